//! Which partition rows come from, for the counters of late rows (EV-4).
//!
//! A batch of a source is of one partition, so it travels with one shared name, whatever its rows.
//! Only where batches are put together behind a shuffle or a union it becomes a list of runs, one for
//! each piece: rows of a piece lie side by side.

use arrow::array::{BooleanArray, UInt32Array};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::id::OperatorId;

/// A partition of a source.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// The source's operator.
    pub source: OperatorId,
    /// Name of the split.
    pub split: String,
}

/// Where one row comes from.
pub type Origin = Arc<Partition>;

/// Where the rows of a batch come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// From no single partition: an operator made them.
    #[default]
    Unknown,
    /// All from this one.
    One(Origin),
    /// From several: runs of rows that have one origin, two at least, neighbours different.
    Runs(Arc<[Run]>),
}

/// Rows side by side that have one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The row after the last of them.
    end: usize,
    /// `None`: from no single partition.
    of: Option<Origin>,
}

/// Puts origins together in the order of their rows.
#[derive(Default)]
struct Joined {
    runs: Vec<Run>,
    /// The run that is still growing.
    last: Option<Run>,
}

impl Joined {
    /// So many more rows of this origin.
    fn add(&mut self, of: Option<&Origin>, rows: usize) {
        if rows == 0 {
            return;
        }
        match &mut self.last {
            Some(last) if last.of.as_ref() == of => last.end += rows,
            last => {
                let start = last.as_ref().map_or(0, |last| last.end);
                self.runs.extend(last.replace(Run { end: start + rows, of: of.cloned() }));
            }
        }
    }

    fn done(mut self) -> Origins {
        let Some(last) = self.last else { return Origins::Unknown };
        if self.runs.is_empty() {
            return last.of.map_or(Origins::Unknown, Origins::One);
        }
        self.runs.push(last);
        Origins::Runs(self.runs.into())
    }
}

impl Origins {
    /// Those of a batch of `rows` rows as runs: how many rows, and of which origin.
    fn runs(&self, rows: usize) -> impl Iterator<Item = (usize, Option<&Origin>)> {
        let (whole, runs): (_, &[Run]) = match self {
            Origins::Unknown => (Some((rows, None)), &[]),
            Origins::One(origin) => (Some((rows, Some(origin))), &[]),
            Origins::Runs(runs) => (None, runs),
        };
        let mut start = 0;
        let lengths = runs.iter().map(move |run| (run.end - std::mem::replace(&mut start, run.end), run.of.as_ref()));
        whole.into_iter().chain(lengths)
    }

    /// The one that all rows have.
    #[must_use]
    pub(crate) fn only(&self) -> Option<&Origin> {
        match self {
            Origins::One(origin) => Some(origin),
            Origins::Unknown | Origins::Runs(_) => None,
        }
    }

    /// Of `length` rows from `offset`.
    #[must_use]
    pub(crate) fn slice(&self, offset: usize, length: usize) -> Origins {
        let Origins::Runs(runs) = self else { return self.clone() };
        let mut joined = Joined::default();
        let mut start = offset;
        for run in &runs[runs.partition_point(|run| run.end <= offset)..] {
            if start >= offset + length {
                break;
            }
            let end = run.end.min(offset + length);
            joined.add(run.of.as_ref(), end - start);
            start = end;
        }
        joined.done()
    }

    /// Of the rows where `mask` is true.
    #[must_use]
    pub(crate) fn filter(&self, mask: &BooleanArray) -> Origins {
        let Origins::Runs(_) = self else { return self.clone() };
        let (mut joined, mut start) = (Joined::default(), 0);
        for (rows, of) in self.runs(mask.len()) {
            joined.add(of, mask.slice(start, rows).true_count());
            start += rows;
        }
        joined.done()
    }

    /// Of the rows at `indices`, in that order.
    #[must_use]
    pub(crate) fn take(&self, indices: &UInt32Array) -> Origins {
        let Origins::Runs(runs) = self else { return self.clone() };
        let mut joined = Joined::default();
        // Rows taken from the same run as the last one, mostly.
        let (mut at, mut found, mut rows) = (0..0, 0, 0);
        for index in indices.values() {
            let index = *index as usize;
            if !at.contains(&index) {
                joined.add(runs.get(found).and_then(|run| run.of.as_ref()), rows);
                found = runs.partition_point(|run| run.end <= index);
                at = found.checked_sub(1).map_or(0, |before| runs[before].end)..runs.get(found).map_or(usize::MAX, |run| run.end);
                rows = 0;
            }
            rows += 1;
        }
        joined.add(runs.get(found).and_then(|run| run.of.as_ref()), rows);
        joined.done()
    }

    /// Of batches one after the other, each with its number of rows.
    #[must_use]
    pub(crate) fn concat<'a>(parts: impl Iterator<Item = (&'a Origins, usize)>) -> Origins {
        let mut joined = Joined::default();
        for (origins, rows) in parts {
            origins.runs(rows).for_each(|(rows, of)| joined.add(of, rows));
        }
        joined.done()
    }

    /// From one name or none for each row.
    pub(crate) fn each(rows: impl Iterator<Item = Option<Origin>>) -> Origins {
        let mut joined = Joined::default();
        rows.for_each(|of| joined.add(of.as_ref(), 1));
        joined.done()
    }

    /// Each row's, for a batch of `rows` rows.
    pub(crate) fn by_row(&self, rows: usize) -> impl Iterator<Item = Option<&Origin>> {
        self.runs(rows).flat_map(|(rows, of)| std::iter::repeat_n(of, rows))
    }

    /// Adds up what rows weigh by their origin: `weights` has one for each row. Those of no single
    /// partition are left out.
    pub(crate) fn count(&self, weights: &[u64], counts: &mut BTreeMap<Origin, u64>) {
        let mut start = 0;
        for (rows, of) in self.runs(weights.len()) {
            let weight: u64 = weights[start..start + rows].iter().sum();
            start += rows;
            if let Some(origin) = of.filter(|_| weight > 0) {
                *counts.entry(origin.clone()).or_default() += weight;
            }
        }
    }
}

#[cfg(test)]
mod tests;
