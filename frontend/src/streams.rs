//! `streams:` entries: one input, perhaps a buffer, processors in a row, one output. An entry is read
//! into a closed [`StreamSpec`] and compiled to a JobSpec, so that a stream runs as any job does (STR-1).

mod card;
mod compile;
mod path;
mod read;
mod shape;

pub use card::cards;
pub(crate) use path::Paths;

use crate::options::node::Node;
use crate::sql::{Step, bind_spec};
use serde_json::Value as Json;
use weir_planner::check::check;
use weir_planner::connector::{Format, SinkOptions, SourceOptions};
use weir_planner::error::{Fault, Place};
use weir_planner::id::{JobId, JobVersion};
use weir_planner::spec::{Buffer, Durability, Horizon, JobSpec, SourceColumn};

/// Most subtasks that `pipeline.thread_num` may ask for (STR-5).
pub const THREADS_MAX: u32 = 64;

/// A stream as it was asked for. The list of fields is closed.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Stable identity: that of its job.
    pub id: JobId,
    /// A changed stream raises it to go on with its state, as a job does.
    pub version: JobVersion,
    /// What it reads.
    pub input: Input,
    /// What holds rows back before the processors (STR-2).
    pub buffer: Option<Buffer>,
    /// Subtasks of the processors.
    pub thread_num: u32,
    /// In order.
    pub processors: Vec<Processor>,
    /// What it writes.
    pub output: Output,
    /// Where records go that cannot be processed.
    pub error_output: Option<Output>,
    /// Input log.
    pub durability: Option<Durability>,
}

/// An input.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Connector options.
    pub options: SourceOptions,
    /// Format of the bytes.
    pub codec: Option<Format>,
    /// Declared columns; without them they are taken from the first rows.
    pub schema: Vec<SourceColumn>,
}

/// An output.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Connector options.
    pub options: SinkOptions,
    /// Format of the bytes.
    pub codec: Option<Format>,
}

/// A processor with its place in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// Position in `pipeline.processors`, from 0.
    pub at: usize,
    /// What it does.
    pub work: Work,
}

/// What a processor does (STR-4).
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// `sql`: a query over each batch, taken apart.
    Sql(Vec<SqlStep>),
    /// `json_to_arrow`: the input's records are JSON; of their fields these, or all.
    JsonToArrow(Vec<String>),
    /// `arrow_to_json`: the output's records are JSON; of the columns these, or all.
    ArrowToJson(Vec<String>),
    /// `batch`: rows by number and time.
    Batch(Buffer),
}

/// One step of a query; how it is written is the affair of [`crate::sql`].
#[derive(Clone, Debug, PartialEq)]
pub struct SqlStep {
    pub(crate) step: Step,
    /// Places of its expressions, by their path in the config of its operator.
    pub(crate) places: Vec<(String, Place)>,
}

/// A stream with the job that it compiles to.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// Expressions are not bound.
    pub job: JobSpec,
    /// Where the fields of the job stand in the stream's text.
    pub paths: Paths,
    /// The entry as it was given.
    pub document: Json,
}

/// Reads and compiles the entry whose path in the document is `prefix`. `id` is its name where it
/// has none, `text` the document, to find places within queries.
///
/// Errors: every fault of the entry. Where only its ends are faulty, those of its expressions too.
pub(crate) fn compiled(node: &Node, prefix: &str, id: &str, text: Option<&str>) -> Result<Compiled, Vec<Fault>> {
    let read::Read { spec, mut faults, paths } = read::stream(node, prefix, id, text);
    let Some(spec) = spec else { return Err(faults) };
    let (mut job, paths) = compile::compile(&spec, paths);
    if faults.is_empty() {
        return Ok(Compiled { job, paths, document: node.to_json() });
    }
    let mut found = bind_spec(&mut job).err().unwrap_or_default();
    found.extend(check(&job, Horizon::Local).into_iter().filter(|fault| fault.code != "unbound"));
    // What stands in for a faulty part has nothing to say.
    let sound = |fault: &Fault| fault.path.starts_with("operators") || fault.path.starts_with("sources");
    faults.extend(found.into_iter().filter(sound).map(|fault| paths.locate(fault)));
    Err(faults)
}

#[cfg(test)]
mod tests;
