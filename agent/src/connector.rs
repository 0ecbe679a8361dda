//! Options to an opened Source or Sink: the one match on connectors.

use crate::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use weir_kernel::io::{Clock, Sink, SinkHandle, Source, Wake};
use weir_planner::connector::SplitPosition;
use weir_planner::id::{JobId, OperatorId};
use weir_planner::plan::{SinkWork, SourceWork};
use weir_planner::schema::Schema;

/// Who opens a connector: names for messages, group ids and files.
#[derive(Clone)]
pub struct Opening {
    /// The job.
    pub job: JobId,
    /// The operator.
    pub operator: OperatorId,
    /// Which subtask.
    pub subtask: u32,
    /// Of how many.
    pub parallelism: u32,
    /// Wakes the chain that will hold the connector.
    pub wake: Arc<dyn Wake>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Directory of the job's result files.
    pub result_dir: PathBuf,
}

/// Opens one source task. `positions` are those of the restored cut for every split of the whole
/// operator (all subtasks); the source takes its own by split name, so a split keeps its position
/// whichever subtask reads it. Blocks: call it off the async runtime.
///
/// Errors: `Retry` for an endpoint that does not answer, `User` for a missing file or topic or a
/// wrong option.
pub fn open_source(work: &SourceWork, output: &Schema, positions: &[SplitPosition], opening: Opening) -> Result<Box<dyn Source>, Error> {
    let _ = (work, output, positions, opening);
    Err(Error::new(weir_planner::error::Class::Bug, "not built yet"))
}

/// Opens one sink task. `handle` is that of the restored cut for this task. Blocks.
pub fn open_sink(work: &SinkWork, input: &Schema, handle: Option<&SinkHandle>, opening: Opening) -> Result<Box<dyn Sink>, Error> {
    let _ = (work, input, handle, opening);
    Err(Error::new(weir_planner::error::Class::Bug, "not built yet"))
}
