//! Where a task with state stands, and how much its job's tasks may hold.

use crate::error::Error;
use crate::metric::TaskMetrics;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::key_group_range;

/// Live state bytes of a job on this agent, all tasks together, and their limit (WIN-5).
#[derive(Debug)]
pub struct Budget {
    held: AtomicU64,
    bytes_max: u64,
}

impl Budget {
    /// A limit; `None` is none.
    pub fn new(bytes_max: Option<u64>) -> Self {
        Budget { held: AtomicU64::new(0), bytes_max: bytes_max.unwrap_or(u64::MAX) }
    }

    /// Counts a task's change; false when the job is over its limit.
    fn change(&self, from: usize, to: usize) -> bool {
        if to >= from {
            let grown = (to - from) as u64;
            self.held.fetch_add(grown, Ordering::Relaxed) + grown <= self.bytes_max
        } else {
            self.held.fetch_sub((from - to) as u64, Ordering::Relaxed);
            true
        }
    }
}

/// Where a task with state stands in its job.
pub struct Seat {
    /// Subtask.
    pub subtask: u32,
    /// Subtasks of the operator.
    pub parallelism: u32,
    /// Key groups of the job.
    pub max_parallelism: u32,
    /// Shared by the job's tasks.
    pub budget: Arc<Budget>,
}

impl Seat {
    /// Key groups that the task owns.
    pub(crate) fn owned(&self) -> Range<u32> {
        key_group_range(self.max_parallelism, self.parallelism, self.subtask)
    }
}

/// What one task holds of the budget of its job; given back when the task goes.
pub(crate) struct Holding {
    id: OperatorId,
    budget: Arc<Budget>,
    bytes: usize,
    remedy: &'static str,
}

impl Holding {
    /// Nothing yet. `remedy`: what makes the state of such an operator smaller, for the message.
    pub(crate) fn new(id: &OperatorId, budget: Arc<Budget>, remedy: &'static str) -> Self {
        Holding { id: id.clone(), budget, bytes: 0, remedy }
    }

    /// Tells how much state there is, and fails the job when that is too much.
    pub(crate) fn tell(&mut self, entries: usize, bytes: usize, metrics: &TaskMetrics) -> Result<(), Error> {
        metrics.state_rows.store(entries as u64, Ordering::Relaxed);
        metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        if self.budget.change(std::mem::replace(&mut self.bytes, bytes), bytes) {
            return Ok(());
        }
        let message = format!(
            "operator '{}': the job's state is larger than state.max_bytes, {} bytes; raise it, or {}",
            self.id, self.budget.bytes_max, self.remedy
        );
        Err(Error::new(Class::User, message))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.budget.change(self.bytes, 0);
    }
}
