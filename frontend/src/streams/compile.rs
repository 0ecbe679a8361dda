//! A [`StreamSpec`] to its JobSpec: `source`, the buffer `window`, processors `pN-type`, `sink`,
//! `error-sink` (STR-1, STR-2).

use super::path::Paths;
use super::{Output, Processor, SqlStep, StreamSpec, Work};
use crate::sql::{Step, bare};
use weir_planner::error::Place;
use weir_planner::expr::Name;
use weir_planner::id::{EdgeId, OperatorId};
use weir_planner::spec::{
    Batch, BatchShape, Buffer, Delivery, Edge, ErrorPolicy, Expression, JobSpec, Map, OnError, OnOverflow, Operator, OperatorKind, Sink,
    Source, Time, Trigger, Window, WindowAggregate, WindowShape,
};

/// Compiles a stream. `paths` knows where its fields stand; what comes back also knows which
/// parts of the job they became.
pub(super) fn compile(stream: &StreamSpec, paths: Paths) -> (JobSpec, Paths) {
    let mut graph = Graph { lanes: stream.thread_num, operators: Vec::new(), edges: Vec::new(), paths };
    graph.paths.closed("", "", None);
    graph.paths.closed("id", "id", None);
    graph.paths.closed("version", "version", None);
    graph.add("source", OperatorKind::Source, 1, "input");
    if let Some(buffer) = &stream.buffer {
        let at = graph.add("window", OperatorKind::Buffer(buffer.clone()), 1, "buffer");
        graph.paths.open(format!("operators[{at}].config.{}", buffer_word(buffer)), "buffer");
    }
    for processor in &stream.processors {
        graph.processor(processor);
    }
    graph.add("sink", OperatorKind::Sink, 1, "output");
    let mut sinks = vec![sink("sink", &stream.output)];
    graph.paths.open("sinks[0]", "output");
    graph.paths.open("sinks[0].config", "output");
    let mut on_error = OnError::default();
    if let Some(output) = &stream.error_output {
        let at = graph.operators.len();
        graph.operators.push(Operator { id: operator_id("error-sink"), parallelism: None, kind: OperatorKind::Sink });
        graph.paths.closed(format!("operators[{at}]"), "error_output", None);
        graph.paths.open("sinks[1]", "error_output");
        graph.paths.open("sinks[1].config", "error_output");
        graph.paths.closed("sources[0].on_error", "error_output", None);
        sinks.push(sink("error-sink", output));
        on_error = OnError { policy: ErrorPolicy::Route, to: Some(operator_id("error-sink")) };
    }
    graph.paths.open("sources[0]", "input");
    graph.paths.open("sources[0].config", "input");
    graph.paths.open("sources[0].durability", "durability");
    if stream.processors.first().is_some_and(|first| matches!(first.work, Work::JsonToArrow(_))) {
        graph.paths.closed("sources[0].codec", "pipeline.processors[0]", None);
    }
    let mut job = bare(stream.id.clone());
    job.version = stream.version;
    job.sources = vec![Source {
        operator_id: operator_id("source"),
        input_type: stream.input.options.name().to_owned(),
        config: stream.input.options.clone(),
        codec: stream.input.codec.clone(),
        schema: stream.input.schema.clone(),
        timestamp_unit: None,
        time: Time::default(),
        durability: stream.durability.clone(),
        on_error,
        batch: Batch::default(),
    }];
    job.sinks = sinks;
    (job.operators, job.edges) = (graph.operators, graph.edges);
    (job, graph.paths)
}

fn sink(id: &str, output: &Output) -> Sink {
    Sink {
        operator_id: operator_id(id),
        output_type: output.options.name().to_owned(),
        config: output.options.clone(),
        codec: output.codec.clone(),
        delivery: Delivery::default(),
        key: Vec::new(),
        on_error: OnError::default(),
    }
}

fn buffer_word(buffer: &Buffer) -> &'static str {
    match buffer {
        Buffer::Memory(_) => "memory",
        Buffer::Tumbling(_) => "tumbling",
        Buffer::Session(_) => "session",
    }
}

fn operator_id(id: &str) -> OperatorId {
    OperatorId::new(id).expect("ids of streams are made of legal words and numbers")
}

/// Operators in a row.
struct Graph {
    /// Subtasks of a run of processors.
    lanes: u32,
    operators: Vec<Operator>,
    edges: Vec<Edge>,
    paths: Paths,
}

impl Graph {
    /// Adds an operator behind the last one. Between one subtask and several the batches keep
    /// their order (STR-5).
    fn add(&mut self, id: &str, kind: OperatorKind, lanes: u32, path: &str) -> usize {
        let at = self.operators.len();
        let to = Operator { id: operator_id(id), parallelism: (lanes > 1).then_some(lanes), kind };
        if let Some(from) = self.operators.last() {
            let id = EdgeId::new(format!("e{at}")).expect("a letter and a number is a legal id");
            let ordered = from.parallelism != to.parallelism;
            self.edges.push(Edge { id, from: from.id.clone(), to: to.id.clone(), partitioned: false, broadcast: false, ordered });
        }
        self.operators.push(to);
        self.paths.closed(format!("operators[{at}]"), path, None);
        at
    }

    fn processor(&mut self, processor: &Processor) {
        let number = processor.at + 1;
        let path = format!("pipeline.processors[{}]", processor.at);
        match &processor.work {
            Work::JsonToArrow(fields) => {
                self.add(&format!("p{number}-json_to_arrow"), columns(fields), self.lanes, &path);
            }
            Work::ArrowToJson(fields) => {
                self.add(&format!("p{number}-arrow_to_json"), columns(fields), self.lanes, &path);
            }
            // It has state, so it is one task, and parts the runs around it.
            Work::Batch(buffer) => {
                let at = self.add(&format!("p{number}-batch"), OperatorKind::Buffer(buffer.clone()), 1, &path);
                self.paths.open(format!("operators[{at}].config.memory"), &path);
                self.paths.open(format!("operators[{at}].config.memory.capacity"), format!("{path}.count"));
            }
            Work::Sql(steps) => {
                let query = format!("{path}.query");
                for (at, SqlStep { step, places }) in steps.iter().enumerate() {
                    let id = if at + 1 == steps.len() { format!("p{number}-sql") } else { format!("p{number}-sql-{}", at + 1) };
                    let operator = self.add(&id, kind_of(step), self.lanes, &query);
                    self.expressions(operator, &query, places);
                }
            }
        }
    }

    fn expressions(&mut self, operator: usize, query: &str, places: &[(String, Place)]) {
        for (path, place) in places {
            self.paths.closed(format!("operators[{operator}].config.{path}"), query, Some(*place));
        }
    }
}

/// A map that passes these columns, or all.
fn columns(names: &[String]) -> OperatorKind {
    let project = names.iter().map(|name| unbound(Name(name).to_string())).collect();
    OperatorKind::Map(Map { filter: None, project })
}

fn unbound<T: Clone>(sql: String) -> Expression<T> {
    Expression { sql, bound: None }
}

fn kind_of(step: &Step) -> OperatorKind {
    match step {
        Step::Map { filter, project } => OperatorKind::Map(Map {
            filter: filter.as_ref().map(|text| unbound(text.sql.clone())),
            project: project.iter().map(|text| unbound(text.sql.clone())).collect(),
        }),
        Step::Batch { keys, aggregates, having } => OperatorKind::Window(Window {
            window: WindowShape::Batch(BatchShape {}),
            timestamp_field: None,
            keys: keys.clone(),
            aggregates: aggregates
                .iter()
                .map(|(text, name)| WindowAggregate { expr: unbound(text.sql.clone()), name: name.clone(), filter: None })
                .collect(),
            having: having.as_ref().map(|text| unbound(text.sql.clone())),
            trigger: Trigger::Watermark,
            trigger_interval_ms: None,
            max_buffered_keys: 65_536,
            on_overflow: OnOverflow::Evict,
            emit_empty: None,
        }),
    }
}
