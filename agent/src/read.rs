//! Answers reads of result rows: the decided files, as one Arrow IPC stream, oldest row first (ST-2).

mod newest;
mod state;

use crate::decision::Decisions;
use crate::error::Error;
use crate::link::ReadStream;
use crate::region::JobDirs;
use crate::segment::put_file;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use bytes::Bytes;
use futures::stream;
use newest::{Last, Newest};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::protocol::{ReadRequest, ReadTarget};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Chunks that may wait for a slow reader.
const CHUNKS_MAX: usize = 4;
/// A file list that is out of date this often in a row is given up.
const TRIES_MAX: usize = 8;
/// A file is checked in pieces of so many bytes.
const PIECE_BYTES: usize = 64 << 10;

fn unreadable(file: &ResultFile, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::because(Class::Corrupt, format!("result file {} is not readable", file.name), source)
}

/// The rows of a file, all columns or these, whose bytes match the checksum that its name begins with: a flipped byte
/// would else be a wrong answer (B4).
fn verified(file: &ResultFile, mut open: File, columns: Option<Vec<usize>>) -> Result<FileReader<BufReader<File>>, Error> {
    let io = |e| Error::because(Class::Retry, format!("result file {}", file.name), e);
    open.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut hash, mut piece) = (Xxh3::new(), vec![0; PIECE_BYTES]);
    loop {
        let read = open.read(&mut piece).map_err(io)?;
        match piece.get(..read) {
            Some(bytes) if read > 0 => hash.update(bytes),
            Some(_) | None => break,
        }
    }
    if !file.name.starts_with(&format!("{:032x}-", hash.digest128())) {
        let message = format!("result file {} does not match its checksum: bring it back, or start the job fresh", file.name);
        return Err(Error::new(Class::Corrupt, message));
    }
    open.seek(SeekFrom::Start(0)).map_err(io)?;
    FileReader::try_new_buffered(open, columns).map_err(|e| unreadable(file, e))
}

/// Opens the decided files that hold the first `limit` rows, or all where some replace others. Once open they can be read to the
/// end, whatever retention deletes meanwhile.
fn open_decided(decisions: &Decisions, dirs: &JobDirs, request: &ReadRequest) -> Result<Vec<(ResultFile, File)>, Error> {
    for _ in 0..TRIES_MAX {
        // Which rows are replaced is known at the end.
        let mut wanted = request.limit.filter(|_| request.replaces_by.is_empty()).unwrap_or(u64::MAX);
        let mut files = Vec::new();
        let mut stale = None;
        for file in decisions.results(&request.job)? {
            if wanted == 0 {
                break;
            }
            match File::open(dirs.results.join(&file.name)) {
                Ok(open) => {
                    wanted = wanted.saturating_sub(file.rows);
                    files.push((file, open));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    stale = Some(file);
                    break;
                }
                Err(error) => {
                    return Err(Error::because(Class::Retry, format!("result file {}", dirs.results.join(&file.name).display()), error));
                }
            }
        }
        match stale {
            None => return Ok(files),
            // A later decision has dropped it: its list names what is there now. Only a file that
            // the newest list still names is really missing.
            Some(file) if decisions.results(&request.job)?.contains(&file) && !dirs.results.join(&file.name).exists() => {
                return Err(Error::new(Class::Corrupt, format!("result file {} is missing", dirs.results.join(&file.name).display())));
            }
            Some(_) => {}
        }
    }
    Err(Error::new(Class::Retry, format!("results of job {} change faster than they can be opened; try again", request.job)))
}

/// Answers on a blocking thread, which ends by itself: at the last row, or when the stream is dropped and a send fails.
fn run(
    chunks: mpsc::Sender<Result<Bytes, String>>,
    answer: impl FnOnce(mpsc::Sender<Result<Bytes, String>>) -> Result<(), Error> + Send + 'static,
) {
    tokio::task::spawn_blocking(move || {
        let failed = chunks.clone();
        if let Err(error) = answer(chunks) {
            // Nobody reads any more: nothing to tell.
            let _ = failed.blocking_send(Err(error.to_failure().message));
        }
    });
}

/// Writes an IPC stream in chunks into a bounded channel.
struct Chunks {
    writer: StreamWriter<Vec<u8>>,
    chunks: mpsc::Sender<Result<Bytes, String>>,
}

impl Chunks {
    /// `Ok(false)` when nobody reads any more.
    fn flush(&mut self) -> bool {
        let bytes = std::mem::take(self.writer.get_mut());
        bytes.is_empty() || self.chunks.blocking_send(Ok(Bytes::from(bytes))).is_ok()
    }
}

fn answer(
    files: Vec<(ResultFile, File)>,
    schema: &SchemaRef,
    limit: Option<u64>,
    replaces_by: &[String],
    chunks: mpsc::Sender<Result<Bytes, String>>,
) -> Result<(), Error> {
    let what = |e| Error::because(Class::Bug, "result rows cannot be written as Arrow IPC", e);
    let mut out = Chunks { writer: StreamWriter::try_new(Vec::new(), schema).map_err(what)?, chunks };
    if !out.flush() {
        return Ok(());
    }
    let mut newest = if replaces_by.is_empty() { None } else { Some(Newest::of(&files, schema, replaces_by)?) };
    let mut left = limit.unwrap_or(u64::MAX);
    for (file, open) in files {
        if left == 0 {
            break;
        }
        for rows in verified(&file, open, None)? {
            if left == 0 {
                break;
            }
            let rows = fit(&rows.map_err(|e| unreadable(&file, e))?, schema, &file)?;
            let rows = match &mut newest {
                Some(newest) => newest.keep(&rows).map_err(|e| unreadable(&file, e))?,
                None => rows,
            };
            if newest.is_some() && rows.num_rows() == 0 {
                continue;
            }
            let take = usize::try_from(left).map_or(rows.num_rows(), |l| l.min(rows.num_rows()));
            left -= take as u64;
            out.writer.write(&rows.slice(0, take)).map_err(what)?;
            if !out.flush() {
                return Ok(());
            }
        }
    }
    out.writer.finish().map_err(what)?;
    out.flush();
    Ok(())
}

/// The batch under the asked schema: the same columns by name and type.
fn fit(rows: &RecordBatch, schema: &SchemaRef, file: &ResultFile) -> Result<RecordBatch, Error> {
    let stored = rows.schema();
    let same = stored.fields().len() == schema.fields().len()
        && stored.fields().iter().zip(schema.fields()).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
    if !same {
        let names = |s: &Schema| s.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect::<Vec<_>>().join(", ");
        let message = format!("result file {} has columns ({}), asked were ({})", file.name, names(&stored), names(schema));
        return Err(Error::new(Class::Corrupt, message));
    }
    RecordBatch::try_new(schema.clone(), rows.columns().to_vec()).map_err(|e| unreadable(file, e))
}

/// Starts an answer. Files are opened before it returns; the rest goes on on a blocking thread,
/// at the reader's pace, and ends when the stream is dropped.
///
/// Shape: one IPC stream of `request.schema`, rows in the order of their decisions; where `replaces_by` names
/// columns, of rows that are equal in them only the last.
/// Errors: `Corrupt` for a missing file, and for rows of another data directory; one that cannot be read ends the stream with an `Err`.
pub async fn read(decisions: Decisions, dirs: JobDirs, request: ReadRequest) -> Result<ReadStream, Error> {
    let asked = match &request.target {
        ReadTarget::Results => None,
        ReadTarget::State(asked) => Some((**asked).clone()),
        ReadTarget::Sample(_) => return Err(Error::new(Class::Bug, "a sample does not come from stored rows")),
    };
    if let Some(wanted) = request.store_id.as_ref().filter(|wanted| *wanted != decisions.store_id()) {
        let message = format!(
            "job {}: its rows are in data directory {wanted}, and this agent runs with {}: bring that one back",
            request.job,
            decisions.store_id()
        );
        return Err(Error::new(Class::Corrupt, message));
    }
    let schema: SchemaRef = Arc::new(request.schema.to_arrow());
    let (limit, replaces_by) = (request.limit, request.replaces_by.clone());
    let (chunks, waiting) = mpsc::channel(CHUNKS_MAX);
    match asked {
        Some(asked) => {
            let held = crate::region::blocking(move || state::hold(&decisions, &dirs, &request.job, asked)).await?;
            run(chunks, move |chunks| held.answer(&schema, limit, chunks));
        }
        None => {
            let files = crate::region::blocking(move || open_decided(&decisions, &dirs, &request)).await?;
            run(chunks, move |chunks| answer(files, &schema, limit, &replaces_by, chunks));
        }
    }
    Ok(Box::pin(stream::unfold(waiting, |mut waiting| async move { waiting.recv().await.map(|chunk| (chunk, waiting)) })))
}

/// Writes the rows of neighbouring result files into one file; where `replaces_by` names columns, of rows
/// that are equal in them only the last: no reader would be given the others.
///
/// Errors: `Corrupt` for one that cannot be read, `Retry` for the disk.
pub fn merge(dir: &Path, run: &[ResultFile], replaces_by: &[String]) -> Result<crate::decision::Replacement, Error> {
    let mut batches = Vec::new();
    for file in run {
        let path = dir.join(&file.name);
        let open = File::open(&path).map_err(|e| Error::because(Class::Retry, format!("result file {}", path.display()), e))?;
        for rows in verified(file, open, None)? {
            batches.push(rows.map_err(|e| unreadable(file, e))?);
        }
    }
    let first = batches.first().ok_or_else(|| Error::new(Class::Corrupt, "result files without rows"))?;
    let schema = first.schema();
    let what = |e| Error::because(Class::Corrupt, "result files of different columns", e);
    let mut rows = concat_batches(&schema, &batches).map_err(what)?;
    if !replaces_by.is_empty() {
        let mut last = Last::new(&schema, replaces_by)?;
        last.add(&rows).map_err(what)?;
        rows = last.into_newest().keep(&rows).map_err(what)?;
    }
    let mut writer = FileWriter::try_new(Vec::new(), &schema).map_err(what)?;
    writer.write(&rows).map_err(what)?;
    let bytes = writer.into_inner().map_err(what)?;
    // Equal rows of other files may give an equal file; the random part keeps them apart.
    let name = format!("{:032x}-{}", xxh3_128(&bytes), uuid::Uuid::new_v4().simple());
    put_file(dir, &name, &bytes)?;
    let written_at_ms = run.iter().map(|f| f.written_at_ms).max().unwrap_or_default();
    let new = ResultFile { name, rows: rows.num_rows() as u64, bytes: bytes.len() as u64, written_at_ms };
    Ok(crate::decision::Replacement { old: run.iter().map(|f| f.name.clone()).collect(), new })
}

#[cfg(test)]
mod tests;
