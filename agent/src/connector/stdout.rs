//! One line of JSON a row on standard output, at least once.

use crate::format::json::JsonEncoder;
use arrow::array::RecordBatch;
use std::io::Write;
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle};
use weir_planner::error::Class;
use weir_planner::id::EpochId;
use weir_planner::schema::Schema;

/// Writes to the process's standard output. Lines of several tasks do not mix: each batch is
/// written under the lock.
pub struct StdoutSink {
    encoder: JsonEncoder,
    lines: Vec<u8>,
}

impl StdoutSink {
    /// For rows of `input`.
    ///
    /// Errors: `User` for a column that JSON cannot hold.
    pub fn new(input: &Schema) -> Result<Self, Error> {
        Ok(StdoutSink { encoder: JsonEncoder::new(input)?, lines: Vec::new() })
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::because(Class::Retry, "standard output cannot be written", error)
}

impl Sink for StdoutSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.lines.clear();
        self.encoder.write_lines(rows, &mut self.lines)?;
        std::io::stdout().lock().write_all(&self.lines).map_err(broken)?;
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        std::io::stdout().lock().flush().map_err(broken)
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        Ok(Flush::Done(SinkHandle::None))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {}
}
