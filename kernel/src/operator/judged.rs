//! What judges have found of a batch of rows (EV-4).

use crate::envelope::Data;
use crate::error::Error;
use crate::operator::Context;
use arrow::array::{BooleanArray, Int64Array};
use std::sync::atomic::Ordering;
use weir_planner::spec::LatePolicy;

/// Which rows stay, and how many rows of the job are to be counted as what. The judge adds its
/// verdict of each row in their order.
pub(crate) struct Judged {
    keep: Vec<bool>,
    is_late: Vec<bool>,
    late_by: Vec<i64>,
    /// For how many rows of the job each one is counted as late: none where it is not.
    late: Vec<u64>,
    /// Late for some of them.
    pub partly: u64,
    /// Those of the late ones whose windows had been retired where they are kept.
    pub retired: u64,
    /// Lost to an eviction, in whole or in part (WIN-5).
    pub evicted: u64,
}

impl Judged {
    /// None yet of so many rows.
    pub(crate) fn new(rows: usize) -> Self {
        let (keep, is_late) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        Judged { keep, is_late, late_by: Vec::new(), late: Vec::with_capacity(rows), partly: 0, retired: 0, evicted: 0 }
    }

    /// The next row, which stands for `weight` rows of the job: whether it stays, and by how many ms it is
    /// late where that is why it does not.
    pub(crate) fn row(&mut self, kept: bool, late_by_ms: Option<i64>, weight: u64) {
        self.keep.push(kept);
        self.late.push(late_by_ms.map_or(0, |_| weight));
        self.is_late.push(late_by_ms.is_some());
        self.late_by.extend(late_by_ms);
    }

    /// Counts the rows, routes the late ones where the plan says so, and gives those that stay.
    pub(crate) fn sort_out(self, data: Data, policy: LatePolicy, context: &mut Context<'_>) -> Result<Data, Error> {
        let metrics = context.metrics;
        metrics.late(&data.origins, &self.late);
        metrics.rows_late_partly.fetch_add(self.partly, Ordering::Relaxed);
        metrics.rows_retired.fetch_add(self.retired, Ordering::Relaxed);
        metrics.rows_evicted.fetch_add(self.evicted, Ordering::Relaxed);
        if self.keep.iter().all(|kept| *kept) {
            return Ok(data);
        }
        match policy {
            LatePolicy::Route if !self.late_by.is_empty() => {
                let late = data.filter(&BooleanArray::from(self.is_late))?;
                context.late(&late, &Int64Array::from(self.late_by))?;
            }
            // A row that is late for all of its windows revises none.
            LatePolicy::Route | LatePolicy::Drop | LatePolicy::Update => {}
        }
        data.filter(&BooleanArray::from(self.keep))
    }
}
