//! Tests of input logs, and what they share.

mod local;
mod object;
mod outage;

use super::{Compression, Entry, Frame, Place};
use crate::checkpoint::store::StateStore;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use weir_planner::id::Attempt;

/// Rows of one column `n`.
pub fn batch(numbers: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap()
}

/// An entry of rows.
pub fn entry(first: u64, numbers: &[i64]) -> Entry {
    Entry { first, rows: batch(numbers), bad: Vec::new(), bytes: numbers.len() * 8 }
}

/// A frame whose rows are the numbers of its records.
fn frame(first: u64, records: u64) -> Frame {
    let rows: Vec<i64> = (first..first + records).map(|n| i64::try_from(n).unwrap()).collect();
    entry(first, &rows).frame(1, Compression::None).unwrap()
}

/// What was told: kinds and messages.
pub type Told = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Where the logs of a test are.
pub fn place(dir: &Path, store: Option<StateStore>, attempt: u64, cut: Option<u64>) -> (Place, Told) {
    let told = Told::default();
    let tell = told.clone();
    let place = Place {
        dir: dir.join("j").join("wal"),
        store,
        attempt: Attempt::new(attempt),
        empty: false,
        cut: cut.map(Attempt::new),
        tell: Arc::new(move |_, kind, message| tell.lock().push((kind, message))),
    };
    (place, told)
}

/// The kinds of what was told.
pub fn kinds(told: &Told) -> Vec<&'static str> {
    told.lock().iter().map(|(kind, _)| *kind).collect()
}
