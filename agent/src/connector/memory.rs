//! Records held in memory: one split, in order, bounded. The `memory` source of tests, and the
//! ground of `values`.

use super::{Opening, Reading, at, resume_row};
use crate::format::Decoder;
use weir_kernel::error::Error;
use weir_kernel::io::{Budget, Polled, Source, SourceBatch, Split};
use weir_planner::connector::{Memory, Position, SplitPosition};
use weir_planner::plan::SourceWork;

/// The one split.
pub const SPLIT: &str = "0";

/// Gives records of a list. Only subtask 0 reads, so that the split keeps its order and its
/// position at any parallelism.
pub struct ListSource {
    records: Vec<Vec<u8>>,
    decoder: Box<dyn Decoder>,
    reading: Reading,
    /// `None` on the subtasks that do not read.
    split: Option<Split>,
    next: u64,
    ended: bool,
}

/// Opens a `memory` source.
///
/// Errors: as [`crate::format::decoder`].
pub fn open(options: &Memory, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<ListSource, Error> {
    let decoder = crate::format::decoder_of(work)?;
    let records = options.messages.iter().map(|message| message.clone().into_bytes()).collect();
    ListSource::open(records, decoder, Reading::new(work, opening), positions, opening)
}

impl ListSource {
    /// Begins at the recorded position, if there is one.
    ///
    /// Errors: `Corrupt` for a position of another kind.
    pub fn open(
        records: Vec<Vec<u8>>,
        decoder: Box<dyn Decoder>,
        reading: Reading,
        positions: &[SplitPosition],
        opening: &Opening,
    ) -> Result<Self, Error> {
        let (next, ended, time_max_ms) = resume_row(positions, SPLIT, &reading.name)?;
        let split = (opening.subtask == 0).then(|| Split { name: SPLIT.to_owned(), ended, time_max_ms });
        Ok(ListSource { records, decoder, reading, split, next, ended })
    }
}

impl Source for ListSource {
    fn splits(&self) -> Vec<Split> {
        self.split.iter().cloned().collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        if self.ended || self.split.is_none() {
            return Ok(Polled::End);
        }
        let mut bytes = 0;
        let mut next = self.next;
        while let Some(record) = usize::try_from(next).ok().and_then(|next| self.records.get(next)) {
            let full = self.decoder.pending() >= budget.rows.max(1) || (bytes > 0 && bytes + record.len() > budget.bytes);
            if full {
                break;
            }
            bytes += record.len();
            next += 1;
            self.decoder.push(record, next);
        }
        let (rows, bad) = self.reading.settle(self.decoder.finish()?, SPLIT, "row")?;
        self.next = next;
        self.ended = next >= self.records.len() as u64;
        Ok(Polled::Batch(SourceBatch { split: 0, rows, bad, bytes, split_ended: self.ended }))
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        self.split.iter().map(|split| at(&split.name, Position::Row(self.next), self.ended)).collect()
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn lag(&self) -> Vec<Option<u64>> {
        self.split.iter().map(|_| Some((self.records.len() as u64).saturating_sub(self.next))).collect()
    }

    fn at_end(&self, _split: usize) -> bool {
        self.ended
    }

    fn close(&mut self) {}
}
