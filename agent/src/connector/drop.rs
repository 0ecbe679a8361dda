//! Rows forgotten: the sink of benchmarks and of dry runs. The chain's own counters do the counting.

use arrow::array::RecordBatch;
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle};
use weir_planner::id::EpochId;

/// Takes everything.
#[derive(Debug)]
pub struct DropSink;

impl Sink for DropSink {
    fn push(&mut self, _rows: &RecordBatch) -> Result<Pushed, Error> {
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
