//! A plan as stable text and as a DOT graph (JOB-9). JSON is the plan's own serialisation.
//!
//! Both are functions of the plan alone; secrets never appear, since connectors are shown by name
//! and by what they read or write.

pub mod pending;

use crate::connector::{GenerateKind, SinkOptions, SourceOptions};
use crate::expr::Aggregate;
use crate::plan::{BatchWork, Chain, JobPlan, PlanOperator, Routing, SinkWork, SourceWork, WindowWork, Work, key_group_range};
use crate::schema::Schema;
use crate::spec::{Buffer, Horizon};
use std::fmt::Write;

/// Most subtasks of a chain that are listed one by one.
const SUBTASKS_SHOWN: u32 = 16;

/// The plan as text: chains with their operators, tasks and key groups, then edges and regions.
pub fn text(plan: &JobPlan) -> String {
    let mut out = String::new();
    let horizon = match plan.horizon {
        Horizon::Local => "local",
        Horizon::Sealed => "sealed",
    };
    let tasks: u64 = plan.chains.iter().map(|chain| u64::from(chain.parallelism) * chain.operators.len() as u64).sum();
    line(&mut out, format_args!("job {} version {}", plan.job, plan.version));
    line(
        &mut out,
        format_args!(
            "  {} chains, {tasks} tasks, {} edges, {} regions, {} key groups, horizon {horizon}, epoch every {} ms",
            plan.chains.len(),
            plan.edges.len(),
            plan.regions.len(),
            plan.max_parallelism,
            plan.checkpoint.epoch_ms
        ),
    );
    for chain in &plan.chains {
        line(&mut out, format_args!("chain {} x{}", chain.id, chain.parallelism));
        for operator in &chain.operators {
            line(&mut out, format_args!("  {}: {}", operator.id, work(&operator.work)));
            if !matches!(operator.work, Work::Sink(_)) {
                line(&mut out, format_args!("    columns: {}", columns(&operator.output)));
            }
        }
        subtasks(plan, chain, &mut out);
    }
    for edge in &plan.edges {
        line(&mut out, format_args!("edge {} -> {}: {}", edge.from, edge.to, routing(&edge.routing)));
    }
    for region in &plan.regions {
        line(&mut out, format_args!("region {}: {}", region.id, members(plan, &region.members)));
    }
    out
}

/// The plan as a DOT graph: a box a chain, an arrow an edge.
pub fn dot(plan: &JobPlan) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("digraph {} {{", quoted(plan.job.as_str())));
    line(&mut out, format_args!("  rankdir=LR;"));
    line(&mut out, format_args!("  node [shape=box];"));
    for chain in &plan.chains {
        let operators: Vec<String> = chain.operators.iter().map(|operator| format!("{}: {}", operator.id, work(&operator.work))).collect();
        let label = format!("chain {} x{}\n{}", chain.id, chain.parallelism, operators.join("\n"));
        line(&mut out, format_args!("  c{} [label={}];", chain.id, quoted(&label)));
    }
    for edge in &plan.edges {
        line(&mut out, format_args!("  c{} -> c{} [label={}];", edge.from, edge.to, quoted(&routing(&edge.routing))));
    }
    line(&mut out, format_args!("}}"));
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\l"))
}

fn columns(schema: &Schema) -> String {
    let one = |column: &crate::schema::Column| format!("{} {}{}", column.name, column.ty, if column.nullable { "" } else { " NOT NULL" });
    schema.0.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn work(work: &Work) -> String {
    match work {
        Work::Source(source) => of_source(source),
        Work::Map(map) => {
            let filter = map.filter.as_ref().map(|_| "filter");
            let project = map.project.as_ref().map(|project| format!("project {}", project.len()));
            let parts: Vec<String> = filter.map(str::to_owned).into_iter().chain(project).collect();
            if parts.is_empty() { "map".to_owned() } else { format!("map ({})", parts.join(", ")) }
        }
        Work::Window(window) => of_window(window),
        Work::Partial(window) => format!("partial {}", of_window(window)),
        Work::Batch(batch) => of_batch(batch),
        Work::Buffer(buffer) => of_buffer(buffer),
        Work::Union => "union".to_owned(),
        Work::Sink(sink) => of_sink(sink),
    }
}

fn of_source(source: &SourceWork) -> String {
    let what = match &source.options {
        SourceOptions::Generate(generate) => match (generate.kind, generate.table) {
            (GenerateKind::Nexmark, Some(table)) => format!("nexmark {table:?}").to_lowercase(),
            (GenerateKind::Nexmark, None) | (GenerateKind::Template, _) => "template".to_owned(),
        },
        SourceOptions::Values(values) => format!("{} rows", values.rows.len()),
        SourceOptions::File(file) => file.path.clone(),
        SourceOptions::Kafka(kafka) => kafka.topics.join(", "),
        SourceOptions::Memory(memory) => format!("{} messages", memory.messages.len()),
        SourceOptions::Http(http) => format!("{}{}", http.address, http.path),
    };
    let format = source.format.as_ref().map(|format| format!(" as {}", format.name())).unwrap_or_default();
    let time = match &source.time {
        None => ", processing time".to_owned(),
        Some(time) => format!(", event time {} less {} ms", time.column, time.bound_ms),
    };
    let bounded = if source.bounded { ", bounded" } else { "" };
    format!("source {} ({what}){format}{time}{bounded}", source.options.name())
}

fn of_window(window: &WindowWork) -> String {
    let mut text = format!("window tumbling {} ms", window.size_ms);
    if window.offset_ms != 0 {
        text.push_str(&format!(" offset {} ms", window.offset_ms));
    }
    if !window.keys.is_empty() {
        text.push_str(&format!(" by {}", window.keys.join(", ")));
    }
    text.push_str(&gives(&window.aggregates));
    if window.having.is_some() {
        text.push_str(", having");
    }
    if window.allowed_lateness_ms != 0 {
        text.push_str(&format!(", lateness {} ms", window.allowed_lateness_ms));
    }
    text
}

fn of_batch(batch: &BatchWork) -> String {
    let keys = if batch.keys.is_empty() { String::new() } else { format!(" by {}", batch.keys.join(", ")) };
    let having = if batch.having.is_some() { ", having" } else { "" };
    format!("batch{keys}{}{having}", gives(&batch.aggregates))
}

fn gives(aggregates: &[(String, Aggregate)]) -> String {
    let names: Vec<String> =
        aggregates.iter().map(|(name, aggregate)| format!("{name} = {:?}", aggregate.function).to_lowercase()).collect();
    if names.is_empty() { String::new() } else { format!(" gives {}", names.join(", ")) }
}

fn of_buffer(buffer: &Buffer) -> String {
    match buffer {
        Buffer::Memory(memory) => format!("buffer of {} rows or {} ms", memory.capacity, memory.timeout_ms),
        Buffer::Tumbling(tumbling) => format!("buffer of {} ms", tumbling.interval_ms),
        Buffer::Session(session) => format!("buffer until {} ms of silence", session.gap_ms),
    }
}

fn of_sink(sink: &SinkWork) -> String {
    let what = match &sink.options {
        SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::Result(_) => String::new(),
        SinkOptions::File(file) => format!(" ({})", file.path),
        SinkOptions::Kafka(kafka) => format!(" ({})", kafka.topic),
        SinkOptions::Http(http) => format!(" ({})", http.url),
    };
    let format = sink.format.as_ref().map(|format| format!(" as {}", format.name())).unwrap_or_default();
    format!("sink {}{what}{format}", sink.options.name())
}

/// Key groups of the subtasks, where the chain holds keyed state.
fn subtasks(plan: &JobPlan, chain: &Chain, out: &mut String) {
    let keyed = |operator: &PlanOperator| matches!(&operator.work, Work::Window(window) if !window.keys.is_empty());
    let Some(last) = chain.operators.iter().find(|operator| keyed(operator)) else { return };
    let shown = chain.parallelism.min(SUBTASKS_SHOWN);
    for subtask in 0..shown {
        let range = key_group_range(plan.max_parallelism, chain.parallelism, subtask);
        let groups = match range.end - range.start {
            0 => "no key groups".to_owned(),
            1 => format!("key group {}", range.start),
            _ => format!("key groups {} to {}", range.start, range.end - 1),
        };
        line(out, format_args!("  task {}-{subtask}: {groups}", last.id));
    }
    if chain.parallelism > shown {
        line(out, format_args!("  … and {} more tasks", chain.parallelism - shown));
    }
}

fn routing(routing: &Routing) -> String {
    match routing {
        Routing::Forward => "forward".to_owned(),
        Routing::Partitioned(keys) => format!("partitioned by {}", keys.join(", ")),
        Routing::RoundRobin => "round-robin".to_owned(),
        Routing::Broadcast => "broadcast".to_owned(),
        Routing::Deal => "dealt in turn".to_owned(),
        Routing::Collect => "collected in turn".to_owned(),
    }
}

/// Members as runs: `chain 0 tasks 0 to 3, chain 1 task 0`.
fn members(plan: &JobPlan, members: &[(crate::id::ChainId, u32)]) -> String {
    let mut runs: Vec<String> = Vec::new();
    let mut rest = members;
    while let Some(&(chain, first)) = rest.first() {
        let length = rest.iter().zip(first..).take_while(|((id, subtask), expected)| *id == chain && subtask == expected).count();
        let last = first + u32::try_from(length).unwrap_or(1) - 1;
        let head =
            plan.chains.get(chain.get() as usize).and_then(|chain| chain.operators.first()).map_or("", |operator| operator.id.as_str());
        runs.push(if length == 1 {
            format!("chain {chain} ({head}) task {first}")
        } else {
            format!("chain {chain} ({head}) tasks {first} to {last}")
        });
        rest = rest.get(length..).unwrap_or_default();
    }
    runs.join(", ")
}

#[cfg(test)]
mod tests;
