//! Keys that had rows not long ago: each gets a row for every window without any (C17).

use crate::error::Error;
use crate::state::cells::{Cells, Scratch};
use crate::state::layout::Shape;
use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};

/// Fewer keys than this are not worth looking for those that are over.
const KEYS_FEW: usize = 1_024;

/// Keys with the time of their last row in a window that was given.
pub(super) struct Seen {
    /// A group for each key; only the last accumulator is used.
    pub(super) cells: Cells,
    pub(super) horizon_ms: i64,
    /// The greatest of the times.
    greatest_ms: i64,
    /// End of the last window that was given.
    pub(super) given_ms: i64,
}

impl Seen {
    pub(super) fn new(types: &[DataType], shape: &Shape) -> Result<Option<Self>, Error> {
        let Some(horizon_ms) = shape.empty_within_ms else { return Ok(None) };
        let cells = Cells::new(types, &shape.aggregates)?;
        Ok(Some(Seen { cells, horizon_ms, greatest_ms: i64::MIN, given_ms: i64::MIN }))
    }

    /// Times of listed groups; the least there is where all rows came too late to count for it.
    fn times(&self, groups: &[u32]) -> Result<Vec<i64>, Error> {
        let Some(times) = self.cells.last(groups)? else { return Ok(Vec::new()) };
        Ok(times.as_primitive::<Int64Type>().iter().map(|time| time.unwrap_or(i64::MIN)).collect())
    }

    /// Whether a key may get a row for the window that ends at `end_ms`.
    pub(super) fn reaches(&self, end_ms: i64) -> bool {
        !self.cells.is_empty() && end_ms <= self.greatest_ms.saturating_add(self.horizon_ms)
    }

    /// Until when the entries of listed groups are needed.
    pub(super) fn ends(&self, groups: &[u32]) -> Result<Vec<i64>, Error> {
        Ok(self.times(groups)?.into_iter().map(|time| time.saturating_add(self.horizon_ms)).collect())
    }

    /// Adds an empty group for each key whose last row lies within the horizon before `end_ms`.
    pub(super) fn add_empty(&self, end_ms: i64, cells: &mut Cells, scratch: &mut Scratch) -> Result<(), Error> {
        let all: Vec<u32> = (0..self.cells.len() as u32).collect();
        let times = self.times(&all)?;
        let recent = |time: i64| time < end_ms && end_ms <= time.saturating_add(self.horizon_ms);
        let listed: Vec<u32> = all.into_iter().filter(|group| times.get(*group as usize).copied().is_some_and(recent)).collect();
        cells.know(&self.cells, &listed, scratch)
    }

    /// Takes in the first `count` groups of a window that is being given, and forgets keys for which it
    /// is too late when most are.
    pub(super) fn take(&mut self, end_ms: i64, cells: &Cells, count: usize, shape: &Shape, scratch: &mut Scratch) -> Result<(), Error> {
        self.given_ms = end_ms;
        self.cells.absorb_last(cells, count, scratch)?;
        self.look()?;
        let all: Vec<u32> = (0..self.cells.len() as u32).collect();
        if all.len() < KEYS_FEW {
            return Ok(());
        }
        let ends = self.ends(&all)?;
        let left: Vec<u32> = all.iter().copied().filter(|group| ends.get(*group as usize).is_some_and(|end| *end > end_ms)).collect();
        if left.len() * 2 > all.len() {
            return Ok(());
        }
        let types: Vec<DataType> = shape.keys.iter().map(|(_, ty)| ty.clone()).collect();
        let mut fresh = Cells::new(&types, &shape.aggregates)?;
        fresh.know(&self.cells, &left, scratch)?;
        fresh.absorb_known(&self.cells)?;
        // Those that changed since the last image are among them.
        fresh.touch_all();
        self.cells = fresh;
        Ok(())
    }

    /// Finds the greatest time anew.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        let all: Vec<u32> = (0..self.cells.len() as u32).collect();
        self.greatest_ms = self.times(&all)?.into_iter().max().unwrap_or(i64::MIN);
        Ok(())
    }
}
