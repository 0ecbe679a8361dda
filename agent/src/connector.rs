//! Options to an opened Source or Sink: the one match on connectors.

pub mod card;
pub mod drop;
pub mod file;
pub mod generate;
pub mod http;
pub mod kafka;
pub mod memory;
#[cfg(test)]
pub(crate) mod probe;
pub mod result;
pub mod stdout;
pub mod values;

pub use card::cards;

use crate::error::Error;
use crate::format::{self, Decoded, json::JsonEncoder};
use crate::secret::Secrets;
use crate::wal;
use arrow::array::RecordBatch;
use std::path::PathBuf;
use std::sync::Arc;
use weir_kernel::error::Error as Fault;
use weir_kernel::io::{BadRecord, Clock, Sink, SinkHandle, Source, Wake};
use weir_planner::connector::{Format, Position, SinkOptions, SourceOptions, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{JobId, OperatorId};
use weir_planner::plan::{JobPlan, SinkWork, SourceWork, Work};
use weir_planner::schema::Schema;
use weir_planner::spec::{ErrorPolicy, JobSpec};

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
    /// The positions given may lack splits that the first start found: some task of the operator has
    /// decided nothing yet. They are looked for as on the first start.
    pub undecided: bool,
    /// Wakes the chain that will hold the connector.
    pub wake: Arc<dyn Wake>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Directory of the job's result files.
    pub result_dir: PathBuf,
    /// Where input logs are.
    pub log: wal::Place,
    /// Gives values for references, and takes them out of messages.
    pub secrets: Arc<Secrets>,
    /// Runs what connectors do on sockets.
    pub runtime: tokio::runtime::Handle,
}

/// Opens one source task. `positions` are those of the restored cut for every split of the whole
/// operator (all subtasks); the source takes its own by split name, so a split keeps its position
/// whichever subtask reads it. Blocks: call it off the async runtime.
///
/// Errors: `Retry` for an endpoint that does not answer, `User` for a missing file or topic or a
/// wrong option.
pub fn open_source(work: &SourceWork, output: &Schema, positions: &[SplitPosition], opening: Opening) -> Result<Box<dyn Source>, Error> {
    let resolved = opening.secrets.source(&work.options)?;
    let work = &SourceWork { options: resolved.0, ..work.clone() };
    check_source(work, output)?;
    Ok(match &work.options {
        SourceOptions::Generate(options) => Box::new(generate::GenerateSource::open(options, work, positions, &opening)?),
        SourceOptions::Values(options) => Box::new(values::open(options, work, positions, &opening)?),
        SourceOptions::Memory(options) => Box::new(memory::open(options, work, positions, &opening)?),
        SourceOptions::File(options) => Box::new(file::FileSource::open(options, work, positions, &opening)?),
        SourceOptions::Kafka(options) => Box::new(kafka::source::KafkaSource::open(options, work, positions, &opening)?),
        SourceOptions::Http(options) => {
            let open = |positions: &[SplitPosition]| -> Result<Box<dyn Source>, Error> {
                Ok(Box::new(http::source::HttpSource::open(options, work, positions, &opening)?))
            };
            match wal::Durable::of(work)? {
                None => open(positions)?,
                Some(durable) => Box::new(wal::LoggedSource::open(durable, http::source::SPLIT, work, output, positions, &opening, open)?),
            }
        }
    })
}

/// Opens one sink task. `handle` is that of the restored cut for this task. Blocks.
///
/// Errors: `Retry` for an endpoint that does not answer, `User` for a wrong option or a file that
/// is not ours to write.
pub fn open_sink(work: &SinkWork, input: &Schema, handle: Option<&SinkHandle>, opening: Opening) -> Result<Box<dyn Sink>, Error> {
    let resolved = opening.secrets.sink(&work.options)?;
    let work = &SinkWork { options: resolved.0, ..work.clone() };
    check_sink(work, input)?;
    Ok(match &work.options {
        SinkOptions::Stdout(_) => Box::new(stdout::StdoutSink::new(input)?),
        SinkOptions::Drop(_) => Box::new(drop::DropSink),
        SinkOptions::File(options) => Box::new(file::sink::FileSink::open(options, input, handle, &opening)?),
        SinkOptions::Kafka(options) => Box::new(kafka::sink::KafkaSink::open(options, input, &opening)?),
        SinkOptions::Result(_) => Box::new(result::ResultSink::open(input, &opening)?),
        SinkOptions::Http(options) => Box::new(http::sink::HttpSink::open(options, input, &opening)?),
    })
}

/// The dry run of a source: builds its decoder and checks its options without touching the
/// outside, so that it also works where the endpoint is away (CON-1).
///
/// Errors: `User`, naming the option or column.
pub fn check_source(work: &SourceWork, output: &Schema) -> Result<(), Error> {
    let picked = format::pick(&work.columns, &work.used)?;
    let planned = output.0.iter().map(|column| (&column.name, column.ty));
    if !picked.iter().map(|column| (&column.column.name, column.column.ty)).eq(planned) {
        return Err(Error::new(Class::Bug, "the columns that a source decodes are not those that it was planned to give"));
    }
    match &work.options {
        SourceOptions::Generate(options) => generate::check(options, work)?,
        SourceOptions::Values(_) | SourceOptions::Memory(_) | SourceOptions::Http(_) => {
            drop_decoder(format::decoder(work.format.as_ref(), &work.columns, &work.used)?)
        }
        SourceOptions::File(_) => match &work.format {
            Some(Format::Parquet(_)) => {}
            other => drop_decoder(format::decoder(other.as_ref(), &work.columns, &work.used)?),
        },
        SourceOptions::Kafka(options) => {
            if matches!(&work.format, Some(Format::Csv(csv)) if csv.header) {
                let message = "csv with a header cannot be read from kafka, where every record stands alone; set header = false";
                return Err(Error::new(Class::User, message));
            }
            drop_decoder(format::decoder(work.format.as_ref(), &work.columns, &work.used)?);
            kafka::check(&options.brokers, &options.properties)?;
        }
    }
    Ok(())
}

/// The dry run of a sink, by the same rules.
///
/// Errors: `User`, naming the option or column.
pub fn check_sink(work: &SinkWork, input: &Schema) -> Result<(), Error> {
    match &work.options {
        SinkOptions::Drop(_) | SinkOptions::Result(_) => return Ok(()),
        SinkOptions::Stdout(_) | SinkOptions::File(_) | SinkOptions::Http(_) => {}
        SinkOptions::Kafka(options) => {
            kafka::check(&options.brokers, &options.properties)?;
            JsonEncoder::of(input, &options.key)?;
        }
    }
    match &work.format {
        None | Some(Format::Json(_)) => JsonEncoder::new(input).map(|_| ()),
        Some(Format::Csv(_) | Format::Parquet(_) | Format::Raw(_)) => {
            let name = format::name(work.format.as_ref());
            Err(Error::new(Class::User, format!("format '{name}' cannot be written yet; use format = 'json'")))
        }
    }
}

/// The dry run of every source and sink of a plan: all faults at once, each at its entry in the spec (P4).
pub fn check(spec: &JobSpec, plan: &JobPlan) -> Vec<weir_planner::error::Fault> {
    let entry = |id: &OperatorId| {
        let source = spec.sources.iter().position(|source| source.operator_id == *id).map(|at| format!("sources[{at}]"));
        let sink = || spec.sinks.iter().position(|sink| sink.operator_id == *id).map(|at| format!("sinks[{at}]"));
        source.or_else(sink).unwrap_or_default()
    };
    let mut faults = Vec::new();
    for operator in plan.operators() {
        let outcome = match &operator.work {
            Work::Source(work) => check_source(work, &operator.output),
            Work::Sink(work) => check_sink(work, &operator.output),
            Work::Map(_) | Work::Window(_) | Work::Partial(_) | Work::Batch(_) | Work::Top(_) | Work::Buffer(_) | Work::Union => Ok(()),
        };
        if let Err(error) = outcome {
            let message = format!("operator '{}': {}", operator.id, error.to_failure().message);
            faults.push(weir_planner::error::Fault::new("bad_connector", entry(&operator.id), message));
        }
    }
    faults
}

/// A dry run builds a decoder only to see that it can be built.
fn drop_decoder(_decoder: Box<dyn format::Decoder>) {}

/// How a source speaks of itself and treats bad records.
#[derive(Clone, Debug)]
pub struct Reading {
    /// `source 'bids' of job 'per_minute'`.
    pub name: String,
    /// Bad records.
    pub on_error: ErrorPolicy,
}

impl Reading {
    /// Of a source task.
    pub fn new(work: &SourceWork, opening: &Opening) -> Self {
        Reading { name: format!("source '{}' of job '{}'", opening.operator, opening.job), on_error: work.on_error }
    }

    /// What was decoded, as the policy wants it (KER-7, C42). `label` says what a position is.
    ///
    /// Errors: `User` under `fail` for the first bad record: names split, position and reason.
    pub fn settle(&self, decoded: Decoded, split: &str, label: &str) -> Result<(RecordBatch, Vec<BadRecord>), Fault> {
        match (self.on_error, decoded.bad.first()) {
            (ErrorPolicy::Fail, Some(bad)) => {
                let Reading { name, .. } = self;
                let message =
                    format!("{name}, split '{split}', {label} {}: {}; on_error = 'skip' would leave such records out", bad.at, bad.reason);
                Err(Fault::new(Class::User, message))
            }
            _ => Ok((decoded.rows, decoded.bad.into_iter().map(|bad| bad.into_record(label)).collect())),
        }
    }
}

/// The recorded position of a split.
fn recorded<'a>(positions: &'a [SplitPosition], split: &str) -> Option<&'a SplitPosition> {
    positions.iter().find(|position| position.split == split)
}

/// Next row, whether it has ended, and event-time progress of a split that counts rows.
///
/// Errors: `Corrupt` for a position of another kind.
pub(crate) fn resume_row(positions: &[SplitPosition], split: &str, name: &str) -> Result<(u64, bool, Option<i64>), Fault> {
    match recorded(positions, split) {
        None => Ok((0, false, None)),
        Some(SplitPosition { position: Position::Row(row), ended, time_max_ms, .. }) => Ok((*row, *ended, *time_max_ms)),
        Some(_) => Err(Fault::new(Class::Corrupt, format!("{name}: the recorded position of split '{split}' does not count rows"))),
    }
}

/// A position as a cut gives it: the chain fills in the event time.
fn at(split: &str, position: Position, ended: bool) -> SplitPosition {
    SplitPosition { split: split.to_owned(), position, time_max_ms: None, ended }
}

#[cfg(test)]
mod tests;
