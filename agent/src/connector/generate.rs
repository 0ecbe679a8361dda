//! Made-up rows: a repeated JSON template, or the auction site of the Nexmark benchmark. Every row
//! is a pure function of the options and its number, so a replay gives the same rows.
//!
//! A generator is one split that subtask 0 reads. With a pace rows come in turns of 10 ms, or by the wall
//! clock in turns of a millisecond.

pub mod nexmark;

use super::memory::SPLIT;
use super::{Opening, Reading, at, resume_row};
use crate::format::{Decoder, decoder, raw_bytes};
use nexmark::{BASE_MS, Nexmark};
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_kernel::io::{Budget, Clock, Polled, Source, SourceBatch, Split};
use weir_planner::connector::{Format, Generate, GenerateKind, Json, Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;

/// Paced Nexmark rows are let out at multiples of this.
const TURN_NS: u64 = 10_000_000;
/// Those that are let out by the wall clock are looked for so often: event time has milliseconds.
const CLOCK_TURN_NS: u64 = 1_000_000;
const COUNTER: &str = "{{counter}}";

/// Gives made-up rows.
pub struct GenerateSource {
    reading: Reading,
    /// `None` on the subtasks that do not read.
    split: Option<Split>,
    maker: Maker,
    clock: Arc<dyn Clock>,
    rows: Option<u64>,
    next: u64,
    ended: bool,
    /// The last poll gave all that was due.
    caught_up: bool,
}

enum Maker {
    Template(Box<Template>),
    Nexmark { nexmark: Nexmark, pace: Pace },
}

/// When Nexmark rows are due.
enum Pace {
    /// All at once.
    Free,
    /// So many events a second since this one, whose moment on the monotonic clock is known.
    Even { per_second: u64, start_ns: u64, first_event: u64 },
    /// When the wall clock has reached their event time.
    Clock,
}

struct Template {
    /// The text between the counters.
    pieces: Vec<Vec<u8>>,
    decoder: Box<dyn Decoder>,
    record: Vec<u8>,
    interval_ns: u64,
    batch_size: u64,
    left_in_batch: u64,
    due_ns: u64,
}

/// The dry run of a generator.
///
/// Errors: `User` for options that do not go together or a context that is not a JSON object.
pub fn check(options: &Generate, work: &SourceWork) -> Result<(), Error> {
    maker(options, work, 0, 0).map(|_| ())
}

fn maker(options: &Generate, work: &SourceWork, next: u64, now_ns: u64) -> Result<Maker, Error> {
    let wrong = |message: &str| Err(Error::new(Class::User, message));
    match options.kind {
        GenerateKind::Template => {
            if options.table.is_some() || options.start_ms.is_some() {
                return wrong("generate: 'table' and 'start_ms' belong to kind = 'nexmark'");
            }
            let Some(context) = &options.context else {
                return wrong("generate: a template needs 'context', the JSON object of a row");
            };
            if !matches!(work.format, None | Some(Format::Json(_))) {
                return wrong("generate: a template is JSON; leave the format out");
            }
            let sample = context.replace(COUNTER, "0");
            if !matches!(serde_json::from_str(&sample), Ok(serde_json::Value::Object(_))) {
                return wrong("generate: 'context' is not a JSON object");
            }
            if options.batch_size == 0 {
                return wrong("generate: batch_size must be at least 1");
            }
            let mut decoder = decoder(Some(&Format::Json(Json {})), &work.columns, &work.used)?;
            decoder.keep_raw(raw_bytes(work.on_error));
            Ok(Maker::Template(Box::new(Template {
                pieces: context.split(COUNTER).map(|piece| piece.as_bytes().to_vec()).collect(),
                decoder,
                record: Vec::new(),
                interval_ns: options.interval_ms.saturating_mul(1_000_000),
                batch_size: options.batch_size,
                left_in_batch: options.batch_size,
                due_ns: now_ns,
            })))
        }
        GenerateKind::Nexmark => {
            if options.context.is_some() {
                return wrong("generate: 'context' belongs to kind = 'template'");
            }
            let Some(table) = options.table else {
                return wrong("generate: nexmark needs table = 'person', 'auction' or 'bid'");
            };
            let (per_second, start_ms) = (options.events_per_second, options.start_ms.unwrap_or(BASE_MS));
            let nexmark = Nexmark::new(table, options.seed, per_second, start_ms, &work.columns, &work.used)?;
            let pace = match (per_second, options.start_ms) {
                (0, None) => Pace::Free,
                (0, Some(_)) => return wrong("generate: start_ms needs events_per_second, by which rows come"),
                (_, None) => Pace::Even { per_second, start_ns: now_ns, first_event: nexmark.event(next) },
                (_, Some(_)) => Pace::Clock,
            };
            Ok(Maker::Nexmark { nexmark, pace })
        }
    }
}

impl GenerateSource {
    /// Goes on at the recorded row, if there is one; the pace starts anew.
    ///
    /// Errors: as [`check`]; `Corrupt` for a position of another kind.
    pub fn open(options: &Generate, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<Self, Error> {
        let reading = Reading::new(work, opening);
        let (next, ended, time_max_ms) = resume_row(positions, SPLIT, &reading.name)?;
        let maker = maker(options, work, next, opening.clock.monotonic_ns())?;
        let split = (opening.subtask == 0).then(|| Split { name: SPLIT.to_owned(), ended, time_max_ms });
        Ok(GenerateSource { reading, split, maker, clock: opening.clock.clone(), rows: options.rows, next, ended, caught_up: false })
    }

    /// How many rows are due now, or when the next one is.
    fn due(&self, now_ns: u64) -> Result<u64, u64> {
        match &self.maker {
            Maker::Template(template) if template.interval_ns == 0 => Ok(u64::MAX),
            Maker::Template(template) if now_ns < template.due_ns => Err(template.due_ns),
            Maker::Template(template) => Ok(template.left_in_batch),
            Maker::Nexmark { pace: Pace::Free, .. } => Ok(u64::MAX),
            Maker::Nexmark { nexmark, pace: Pace::Clock } => {
                match nexmark.rows_before(nexmark.events_until(self.clock.wall_ms())).saturating_sub(self.next) {
                    0 => Err(now_ns.saturating_add(CLOCK_TURN_NS)),
                    due => Ok(due),
                }
            }
            Maker::Nexmark { nexmark, pace: Pace::Even { per_second, start_ns, first_event } } => {
                let turns = now_ns.saturating_sub(*start_ns) / TURN_NS;
                let events = u128::from(turns) * u128::from(TURN_NS) * u128::from(*per_second) / 1_000_000_000;
                let limit = first_event.saturating_add(u64::try_from(events).unwrap_or(u64::MAX));
                match nexmark.rows_before(limit).saturating_sub(self.next) {
                    0 => Err(start_ns.saturating_add((turns + 1) * TURN_NS)),
                    due => Ok(due),
                }
            }
        }
    }
}

impl Source for GenerateSource {
    fn splits(&self) -> Vec<Split> {
        self.split.iter().cloned().collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        if self.ended || self.split.is_none() {
            return Ok(Polled::End);
        }
        let now_ns = self.clock.monotonic_ns();
        let left = self.rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.next));
        let due = match self.due(now_ns) {
            Ok(due) => due,
            Err(until_ns) if left > 0 => {
                self.caught_up = true;
                return Ok(Polled::Pending { until_ns: Some(until_ns) });
            }
            Err(_) => 0,
        };
        let wanted = due.min(left);
        let count = wanted.min(budget.rows.max(1) as u64);
        let (decoded, bytes, given) = match &mut self.maker {
            Maker::Template(template) => template.make(self.next, count, budget.bytes, now_ns)?,
            Maker::Nexmark { nexmark, .. } => {
                let rows = nexmark.rows(self.next, count)?;
                let bytes = rows.get_array_memory_size();
                (crate::format::Decoded { rows, bad: Vec::new() }, bytes, count)
            }
        };
        let (rows, bad) = self.reading.settle(decoded, SPLIT, "row")?;
        self.next += given;
        self.caught_up = given == due;
        self.ended = self.rows.is_some_and(|rows| self.next >= rows);
        Ok(Polled::Batch(SourceBatch { split: 0, rows, bad, bytes, split_ended: self.ended }))
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        self.split.iter().map(|split| at(&split.name, Position::Row(self.next), self.ended)).collect()
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn lag(&self) -> Vec<Option<u64>> {
        self.split.iter().map(|_| self.rows.map(|rows| rows.saturating_sub(self.next))).collect()
    }

    fn at_end(&self, _split: usize) -> bool {
        self.ended || self.caught_up
    }

    fn close(&mut self) {}
}

impl Template {
    /// `count` rows from row `next`, cut short at `bytes_max`.
    fn make(&mut self, next: u64, count: u64, bytes_max: usize, now_ns: u64) -> Result<(crate::format::Decoded, usize, u64), Error> {
        let (mut bytes, mut given) = (0, 0);
        while given < count && (given == 0 || bytes < bytes_max) {
            let counter = (next + given).to_string();
            self.record.clear();
            for (i, piece) in self.pieces.iter().enumerate() {
                if i > 0 {
                    self.record.extend_from_slice(counter.as_bytes());
                }
                self.record.extend_from_slice(piece);
            }
            bytes += self.record.len();
            self.decoder.push(&self.record, next + given);
            given += 1;
        }
        self.left_in_batch = self.left_in_batch.saturating_sub(given);
        if self.left_in_batch == 0 {
            self.left_in_batch = self.batch_size;
            self.due_ns = now_ns.saturating_add(self.interval_ns);
        }
        Ok((self.decoder.finish()?, bytes, given))
    }
}

#[cfg(test)]
mod tests;
