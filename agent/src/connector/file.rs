//! Files on this machine: each matched file is a split that is read to its end once.

pub mod glob;
pub mod lines;
pub mod sample;
pub mod sink;

use super::{Opening, Reading, at};
use crate::format::{Decoded, decoder, parquet::ParquetFile, raw_bytes};
use lines::{Framing, LineFile};
use std::collections::VecDeque;
use std::path::Path;
use weir_kernel::error::Error;
use weir_kernel::io::{Budget, Polled, Source, SourceBatch, Split};
use weir_planner::connector::{DecodeColumn, FileSource as Options, Format, Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;

/// Files read in turn at one time: each holds a block of memory and a descriptor.
const OPEN_FILES_MAX: usize = 16;
/// Rows of a Parquet batch.
const PARQUET_ROWS: usize = 8_192;

/// Reads files in turn, a batch of each, so that event time goes on in all of them together.
pub struct FileSource {
    reading: Reading,
    format: Option<Format>,
    columns: Vec<DecodeColumn>,
    used: Vec<String>,
    files: Vec<OneFile>,
    /// Files not ended, next one first.
    turn: VecDeque<usize>,
    /// By file: not to be read for now (EV-9).
    held: Vec<bool>,
    /// What to tell of files that match the path by now and are not read.
    left_out: Option<String>,
}

struct OneFile {
    split: Split,
    position: Position,
    ended: bool,
    reader: Option<Reader>,
}

enum Reader {
    Lines(LineFile),
    Parquet(ParquetFile),
}

impl FileSource {
    /// Matches the path when the job first starts; once every task has decided, the recorded files
    /// count, whatever the path matches by then. The first files of this task are opened, so that a wrong file shows now.
    ///
    /// Errors: `User` for a path that matches nothing, or a file that is missing or unfit.
    pub fn open(options: &Options, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<Self, Error> {
        let reading = Reading::new(work, opening);
        let mut names: Vec<String> = positions.iter().map(|position| position.split.clone()).collect();
        let mut left_out = None;
        if names.is_empty() || opening.undecided {
            names.extend(found(&options.path, &reading.name)?);
        } else if opening.subtask == 0 {
            left_out = newer(&options.path, &names);
        }
        names.sort();
        names.dedup();
        let parquet = matches!(work.format, Some(Format::Parquet(_)));
        let mut files = Vec::new();
        for name in names.into_iter().skip(opening.subtask as usize).step_by(opening.parallelism.max(1) as usize) {
            let known = super::recorded(positions, &name);
            let start = if parquet { Position::Row(0) } else { Position::Byte { offset: 0, line: 0 } };
            let (ended, time_max_ms) = known.map_or((false, None), |known| (known.ended, known.time_max_ms));
            let position = known.map_or(start, |known| known.position.clone());
            files.push(OneFile { split: Split { name, ended, time_max_ms }, position, ended, reader: None });
        }
        let turn: VecDeque<usize> = files.iter().enumerate().filter(|(_, file)| !file.ended).map(|(i, _)| i).collect();
        let mut source = FileSource {
            reading,
            format: work.format.clone(),
            columns: work.columns.clone(),
            used: work.used.clone(),
            files,
            turn,
            held: Vec::new(),
            left_out,
        };
        for index in source.turn.iter().copied().take(OPEN_FILES_MAX).collect::<Vec<_>>() {
            source.ready(index)?;
        }
        Ok(source)
    }

    /// Takes the file whose turn it is and that is not held. Those that are read in turn come first;
    /// past them only one that was begun before a restart: others stay closed while files are held.
    fn next(&mut self) -> Option<usize> {
        let free = |index: &usize| !self.held.get(*index).copied().unwrap_or(false);
        let begun = |index: &usize| self.files.get(*index).is_some_and(|file| file.reader.is_some() || file.split.time_max_ms.is_some());
        let place = self.turn.iter().take(OPEN_FILES_MAX).position(free);
        let place = place.or_else(|| self.turn.iter().position(|index| free(index) && begun(index)));
        self.turn.remove(place?)
    }

    /// Opens a file that is not open.
    fn ready(&mut self, index: usize) -> Result<(), Error> {
        let Some(file) = self.files.get_mut(index) else { return Ok(()) };
        if file.reader.is_some() {
            return Ok(());
        }
        let path = &file.split.name;
        let open_lines = |framing, header, offset, line| -> Result<Reader, Error> {
            let mut decoder = decoder(self.format.as_ref(), &self.columns, &self.used)?;
            decoder.keep_raw(raw_bytes(self.reading.on_error));
            Ok(Reader::Lines(LineFile::open(path, decoder, framing, header, offset, line)?))
        };
        let reader = match (&self.format, &file.position) {
            (Some(Format::Parquet(_)), Position::Row(row)) => {
                let mut file = ParquetFile::open(path, &self.columns, &self.used, *row, PARQUET_ROWS);
                if let Ok(file) = &mut file {
                    file.keep_raw(raw_bytes(self.reading.on_error));
                }
                file.map(Reader::Parquet)
            }
            (Some(Format::Csv(csv)), Position::Byte { offset, line }) => {
                let delimiter = u8::try_from(csv.delimiter).unwrap_or(b',');
                open_lines(Framing::Quoted { delimiter }, csv.header, *offset, *line)
            }
            (None | Some(Format::Json(_) | Format::Raw(_)), Position::Byte { offset, line }) => {
                open_lines(Framing::Lines, false, *offset, *line)
            }
            (_, Position::Row(_) | Position::Byte { .. } | Position::Offset(_)) => {
                Err(Error::new(Class::Corrupt, format!("the recorded position of file '{path}' does not fit its format")))
            }
        };
        file.reader = Some(reader.map_err(|e| named(&self.reading.name, e))?);
        Ok(())
    }
}

fn named(source: &str, error: Error) -> Error {
    Error { message: format!("{source}: {}", error.message), ..error }
}

/// Tells of files that match `path` and are none of `names`. A path that cannot be searched is no
/// reason not to go on with those.
fn newer(path: &str, names: &[String]) -> Option<String> {
    let matched = glob::expand(path).unwrap_or_default();
    let new: Vec<&String> = matched.iter().filter(|name| !names.contains(name) && Path::new(name).is_file()).collect();
    let first = new.first()?;
    Some(format!(
        "goes on with the files that path matched when the job first started; {} that '{path}' matches by now, such as '{first}', are not read: give them to another job, or start fresh",
        new.len()
    ))
}

fn found(path: &str, source: &str) -> Result<Vec<String>, Error> {
    let wrap = |e| Error::because(Class::User, format!("{source}: path '{path}' cannot be searched"), e);
    let names = glob::expand(path).map_err(wrap)?;
    for name in &names {
        let kind =
            std::fs::metadata(name).map_err(|e| Error::because(Class::User, format!("{source}: file '{name}' cannot be opened"), e))?;
        if kind.is_dir() {
            let message = format!("{source}: '{name}' is a directory; to read the files in it write '{}/*'", name.trim_end_matches('/'));
            return Err(Error::new(Class::User, message));
        }
    }
    if names.is_empty() {
        return Err(Error::new(Class::User, format!("{source}: no file matches path '{path}'")));
    }
    Ok(names)
}

impl Source for FileSource {
    fn splits(&self) -> Vec<Split> {
        self.files.iter().map(|file| file.split.clone()).collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        if self.turn.is_empty() {
            return Ok(Polled::End);
        }
        let Some(index) = self.next() else { return Ok(Polled::Pending { until_ns: None }) };
        self.ready(index)?;
        let Some(file) = self.files.get_mut(index) else { return Ok(Polled::End) };
        let (decoded, bytes, position, ended, label): (Decoded, usize, Position, bool, &str) = match &mut file.reader {
            Some(Reader::Lines(lines)) => {
                let read = lines.read(budget).map_err(|e| named(&self.reading.name, e))?;
                let (offset, line) = lines.position();
                (read.decoded, read.bytes, Position::Byte { offset, line }, read.ended, "line")
            }
            Some(Reader::Parquet(parquet)) => {
                let (decoded, bytes) = parquet.read(budget.rows).map_err(|e| named(&self.reading.name, e))?;
                (decoded, bytes, Position::Row(parquet.position()), parquet.left() == 0, "row")
            }
            None => return Err(Error::new(Class::Bug, "a file is read that is not open")),
        };
        let (rows, bad) = self.reading.settle(decoded, &file.split.name, label)?;
        (file.position, file.ended) = (position, ended);
        if ended {
            file.reader = None;
        } else {
            // The files that are open take turns; the others follow when one has ended.
            let place = self.turn.len().min(OPEN_FILES_MAX - 1);
            self.turn.insert(place, index);
        }
        Ok(Polled::Batch(SourceBatch { split: index, rows, bad, bytes, split_ended: ended }))
    }

    fn hold(&mut self, held: &[bool]) {
        self.held.clear();
        self.held.extend_from_slice(held);
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        self.files.iter().map(|file| at(&file.split.name, file.position.clone(), file.ended)).collect()
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn lag(&self) -> Vec<Option<u64>> {
        let lag = |file: &OneFile| match &file.reader {
            Some(Reader::Parquet(parquet)) => Some(parquet.left()),
            Some(Reader::Lines(_)) => None,
            None => file.ended.then_some(0),
        };
        self.files.iter().map(lag).collect()
    }

    fn at_end(&self, split: usize) -> bool {
        self.files.get(split).is_none_or(|file| file.ended)
    }

    fn greeting(&self) -> Option<String> {
        self.left_out.clone()
    }

    fn close(&mut self) {
        for file in &mut self.files {
            file.reader = None;
        }
    }
}

#[cfg(test)]
mod tests;
