//! A plan as stable text, as a DOT graph and as JSON (JOB-9).
//!
//! All three are functions of the plan alone. Text and DOT show connectors by name and by what they
//! read or write, so secrets never appear there; JSON is the plan as it is stored, and who hands it
//! out masks it.

pub mod pending;
mod words;

use crate::plan::partial::{Obstacle, obstacle};
use crate::plan::{Chain, JobPlan, PlanEdge, PlanOperator, Port, Work, key_group_range};
use crate::spec::Horizon;
use serde_json::{Value, json};
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
    let tasks = plan.chains.iter().map(|chain| chain.parallelism as usize * chain.operators.len()).sum();
    let counts = [
        counted(plan.chains.len(), "chain"),
        counted(tasks, "task"),
        counted(plan.edges.len(), "edge"),
        counted(plan.regions.len(), "region"),
        counted(plan.max_parallelism as usize, "key group"),
    ];
    line(&mut out, format_args!("job {} version {}", plan.job, plan.version));
    line(&mut out, format_args!("  {}, horizon {horizon}, epoch every {} ms", counts.join(", "), plan.checkpoint.epoch_ms));
    for chain in &plan.chains {
        line(&mut out, format_args!("chain {} x{}", chain.id, chain.parallelism));
        for (at, operator) in chain.operators.iter().enumerate() {
            line(&mut out, format_args!("  {}: {}", operator.id, words::work(&operator.work)));
            if let Some(stages) = stages(plan, chain, at) {
                line(&mut out, format_args!("    {stages}"));
            }
            if !matches!(operator.work, Work::Sink(_)) {
                line(&mut out, format_args!("    columns: {}", words::columns(&operator.output)));
            }
        }
        line(&mut out, format_args!("  tasks: {}", tasks_of(chain)));
        subtasks(plan, chain).iter().for_each(|task| line(&mut out, format_args!("  {task}")));
    }
    for edge in &plan.edges {
        line(&mut out, format_args!("edge {} -> {}: {}", edge.from, edge.to, carries(edge)));
    }
    for region in &plan.regions {
        line(&mut out, format_args!("region {}: {}", region.id, members(plan, &region.members)));
    }
    out
}

/// The plan as a DOT graph: a box a chain, an arrow an edge, dashed where it leads aside.
pub fn dot(plan: &JobPlan) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("digraph {} {{", quoted(plan.job.as_str())));
    line(&mut out, format_args!("  rankdir=LR;"));
    line(&mut out, format_args!("  node [shape=box];"));
    for chain in &plan.chains {
        let mut lines = vec![format!("chain {} x{}", chain.id, chain.parallelism)];
        for (at, operator) in chain.operators.iter().enumerate() {
            lines.push(format!("{}: {}", operator.id, words::work(&operator.work)));
            lines.extend(stages(plan, chain, at).map(|stages| format!("  {stages}")));
        }
        lines.push(format!("tasks: {}", tasks_of(chain)));
        lines.extend(subtasks(plan, chain));
        line(&mut out, format_args!("  c{} [label={}];", chain.id, quoted(&(lines.join("\n") + "\n"))));
    }
    for edge in &plan.edges {
        let style = if edge.port == Port::Main { "" } else { ", style=dashed" };
        line(&mut out, format_args!("  c{} -> c{} [label={}{style}];", edge.from, edge.to, quoted(&carries(edge))));
    }
    line(&mut out, format_args!("}}"));
    out
}

/// The plan as it is stored, with its tasks beside: their chains and, where they hold keyed state,
/// their key groups as first and last.
pub fn json(plan: &JobPlan) -> Value {
    // A plan has only text keys, so that it can always be written.
    let mut value = serde_json::to_value(plan).unwrap_or_default();
    let mut tasks = Vec::new();
    for chain in &plan.chains {
        for operator in &chain.operators {
            for subtask in 0..chain.parallelism {
                let mut task = json!({"task": format!("{}-{subtask}", operator.id), "chain": chain.id});
                let range = key_group_range(plan.max_parallelism, chain.parallelism, subtask);
                if let (true, Value::Object(fields)) = (keyed(operator), &mut task) {
                    let groups = if range.is_empty() { json!([]) } else { json!([range.start, range.end - 1]) };
                    fields.insert("key_groups".to_owned(), groups);
                }
                tasks.push(task);
            }
        }
    }
    if let Value::Object(fields) = &mut value {
        fields.insert("tasks".to_owned(), Value::Array(tasks));
    }
    value
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

/// Lines of a label end in `\l`, which sets them flush left.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\l"))
}

/// In how many stages the window at the head of a chain aggregates, and why (PLAN-6).
fn stages(plan: &JobPlan, chain: &Chain, at: usize) -> Option<String> {
    let Work::Window(window) = &chain.operators.get(at)?.work else { return None };
    if window.partials {
        return Some("two-phase: partial aggregate before the shuffle".to_owned());
    }
    let why = match obstacle(plan, chain.id).filter(|_| at == 0)? {
        Obstacle::NotShuffled => return None,
        Obstacle::LateRouted => "late rows are routed".to_owned(),
        Obstacle::Updates => "results are given more than once".to_owned(),
        Obstacle::Sessions => "sessions follow the rows of each key".to_owned(),
        Obstacle::OwnRows => "each window keeps its own rows".to_owned(),
        Obstacle::ErrorsRouted => "rows that cannot be computed are routed".to_owned(),
        Obstacle::NotMergeable(name) => format!("'{name}' cannot be put together from parts"),
        Obstacle::SharedProducer(producer) => format!("'{producer}' feeds others too"),
    };
    Some(format!("one phase: {why}"))
}

fn keyed(operator: &PlanOperator) -> bool {
    matches!(&operator.work, Work::Window(window) if !window.keys.is_empty())
}

/// Every task of a chain, as runs.
fn tasks_of(chain: &Chain) -> String {
    let one = |operator: &PlanOperator| match chain.parallelism {
        1 => format!("{}-0", operator.id),
        several => format!("{0}-0 to {0}-{1}", operator.id, several - 1),
    };
    chain.operators.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Key groups of the subtasks, where the chain holds keyed state.
fn subtasks(plan: &JobPlan, chain: &Chain) -> Vec<String> {
    let Some(holder) = chain.operators.iter().find(|operator| keyed(operator)) else { return Vec::new() };
    let shown = chain.parallelism.min(SUBTASKS_SHOWN);
    let one = |subtask| {
        let range = key_group_range(plan.max_parallelism, chain.parallelism, subtask);
        let groups = match range.end - range.start {
            0 => "no key groups".to_owned(),
            1 => format!("key group {}", range.start),
            _ => format!("key groups {} to {}", range.start, range.end - 1),
        };
        format!("task {}-{subtask}: {groups}", holder.id)
    };
    let mut lines: Vec<String> = (0..shown).map(one).collect();
    if chain.parallelism > shown {
        lines.push(format!("… and {} more tasks", chain.parallelism - shown));
    }
    lines
}

/// Which rows an edge carries, and how they find their subtask.
fn carries(edge: &PlanEdge) -> String {
    let routing = words::routing(&edge.routing);
    match &edge.port {
        Port::Main => routing,
        Port::Error(operator) => format!("errors of {operator}, {routing}"),
        Port::Late(operator) => format!("late rows of {operator}, {routing}"),
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
