//! Rows counted and forgotten: the sink of benchmarks. The chain's own counters do the counting.

use arrow::array::RecordBatch;
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle};
use weir_planner::id::EpochId;

/// Takes everything.
#[derive(Debug, Default)]
pub struct DropSink {
    rows: u64,
}

impl DropSink {
    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl Sink for DropSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.rows += rows.num_rows() as u64;
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        Ok(Flush::Done(SinkHandle::None))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {}
}
