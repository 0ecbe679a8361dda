//! Rows of a batch by window. Most batches lie in one window and never come here.

use crate::accumulate::piece::Piece;
use crate::envelope::broken;
use crate::error::Error;
use arrow::array::UInt32Array;
use arrow::compute::take;
use hashbrown::HashMap;

/// Splits batches; its buffers are used again from batch to batch.
#[derive(Default)]
pub struct Splitter {
    rows_of: Vec<Vec<u32>>,
    windows: Vec<(i64, usize)>,
    known: HashMap<i64, usize>,
}

impl Splitter {
    /// Sorts row numbers by window. The caller has seen that no window start is out of range.
    pub fn split(&mut self, times: &[i64], size_ms: i64, offset_ms: i64) {
        self.known.clear();
        self.windows.clear();
        let shift = offset_ms.rem_euclid(size_ms);
        // Rows come mostly in order: the last row's window is the likely one.
        let mut last: Option<(i64, usize)> = None;
        for (row, time) in times.iter().enumerate() {
            let slot = match last {
                Some((start, slot)) if start <= *time && *time < start + size_ms => slot,
                _ => {
                    let start = time - (time - shift).rem_euclid(size_ms);
                    let slot = self.slot(start);
                    last = Some((start, slot));
                    slot
                }
            };
            self.rows_of[slot].push(row as u32);
        }
        self.windows.sort_unstable();
    }

    fn slot(&mut self, start: i64) -> usize {
        let next = self.windows.len();
        let slot = *self.known.entry(start).or_insert(next);
        if slot == next {
            self.windows.push((start, slot));
            match self.rows_of.get_mut(slot) {
                Some(rows) => rows.clear(),
                None => self.rows_of.push(Vec::new()),
            }
        }
        slot
    }

    /// The parts of `whole`, oldest window first.
    pub fn pieces(&self, whole: &Piece) -> Result<Vec<(i64, Piece)>, Error> {
        self.windows.iter().map(|(start, slot)| Ok((*start, part(whole, &self.rows_of[*slot])?))).collect()
    }
}

fn part(whole: &Piece, rows: &[u32]) -> Result<Piece, Error> {
    // Ascending row numbers without a gap are a slice: nothing is copied.
    let run = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if (last - first) as usize + 1 == rows.len() => Some(*first as usize),
        _ => None,
    };
    let indices = UInt32Array::from(if run.is_some() { Vec::new() } else { rows.to_vec() });
    whole.map(rows.len(), &|array| match run {
        Some(first) => Ok(array.slice(first, rows.len())),
        None => take(array, &indices, None).map_err(broken),
    })
}
