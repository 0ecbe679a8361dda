//! Every rule that a spec must meet, all faults at once (JOB-4).
//!
//! What the specification knows but this version cannot do is refused with `not_available`, never
//! ignored; what is harmless is accepted and told by [`notices`].

pub mod columns;
mod durability;
pub mod flow;
pub mod graph;
mod http;
mod job;
mod operator;
pub mod ordered;
mod secret;
pub mod side;
mod sink;
mod source;
mod top;
pub mod trail;
pub mod update;
mod values;
pub(crate) mod window;

use crate::connector::SourceOptions;
use crate::error::Fault;
use crate::expr::Expr;
use crate::id::OperatorId;
use crate::nearest;
use crate::schema::{RESERVED_PREFIX, Schema};
use crate::spec::{Horizon, JobSpec, OperatorKind, Placement, RebalanceMode};
use columns::{of_operator, united};
use flow::Flow;
use graph::Graph;
use std::collections::{BTreeMap, BTreeSet};

/// Most columns of a schema, as in Postgres.
pub const COLUMNS_MAX: usize = 1_600;
/// Most operators of a job.
pub const OPERATORS_MAX: usize = 1_000;
/// Most tasks of a job.
pub const TASKS_MAX: u64 = 65_536;
/// Longest duration in event time: a hundred years.
pub const DURATION_MS_MAX: i64 = 100 * 366 * 86_400_000;

/// Checks a spec whose expressions are bound. `door` is the horizon where the spec names none;
/// it also says whether the job will run on an embedded agent (`Local`) or on a fleet.
pub fn check(spec: &JobSpec, door: Horizon) -> Vec<Fault> {
    let mut faults = Vec::new();
    job::check(spec, door, &mut faults);
    graph::check(spec, &mut faults);
    operator::check(spec, &mut faults);
    source::check(spec, &mut faults);
    sink::check(spec, &mut faults);
    http::check(spec, &mut faults);
    secret::check(spec, &mut faults);
    if let Some(graph) = Graph::of(spec) {
        update::check(spec, &graph, &mut faults);
        flow(spec, &graph, &mut faults);
    }
    faults
}

/// What a spec asks for that has no effect where it runs, one sentence each.
pub fn notices(spec: &JobSpec) -> Vec<String> {
    let mut notices = Vec::new();
    if spec.placement == Placement::Split {
        notices.push("placement 'split' has no effect on one agent".to_owned());
    }
    if spec.rebalance.mode == RebalanceMode::Auto {
        notices.push("rebalance 'auto' has no effect on one agent".to_owned());
    }
    for source in columns::pending(spec) {
        notices.push(format!(
            "source '{}' declares no columns: they are taken from its first rows when the job starts, and what reads them is unchecked until then",
            source.operator_id
        ));
    }
    notices.extend(spec.sources.iter().filter_map(|source| match &source.config {
        SourceOptions::Http(options) => http::notice(source, options),
        SourceOptions::Generate(_)
        | SourceOptions::Values(_)
        | SourceOptions::File(_)
        | SourceOptions::Kafka(_)
        | SourceOptions::Memory(_) => None,
    }));
    notices.extend(spec.sources.iter().filter_map(|source| durability::notice(spec, source)));
    for operator in &spec.operators {
        let asked = operator.parallelism.unwrap_or(spec.parallelism);
        if asked > 1 && operator.kind.timed_window().is_some_and(|window| window.keys.is_empty()) {
            notices.push(format!("window '{}' has no keys and runs as one task", operator.id));
        }
    }
    if let Some(graph) = Graph::of(spec) {
        update::notices(spec, &graph, &mut notices);
    }
    notices
}

/// A refusal of what the specification knows and this version cannot do.
fn not_available(path: impl Into<String>, what: &str, hint: &str) -> Fault {
    Fault::new("not_available", path, format!("{what} is not available yet")).with_hint(hint)
}

/// A number out of its range.
fn out_of_range(path: impl Into<String>, field: &str, value: impl std::fmt::Display, range: &str) -> Fault {
    Fault::new("out_of_range", path, format!("{field} is {value}, it must be {range}"))
        .with_hint(format!("leave {field} out for its default, or give a value in this range"))
}

fn duration(path: String, field: &str, ms: i64, least: i64, faults: &mut Vec<Fault>) {
    if !(least..=DURATION_MS_MAX).contains(&ms) {
        faults.push(out_of_range(path, field, format!("{ms} ms"), &format!("{least} ms to 100 years")));
    }
}

/// Rules on a list of declared names: not empty, not reserved, unique, not too many.
fn declared_names<'a>(what: &str, names: impl Iterator<Item = (String, &'a str)>, taken: &[&str], faults: &mut Vec<Fault>) {
    let mut seen: BTreeSet<&str> = taken.iter().copied().collect();
    let mut count = taken.len();
    for (path, name) in names {
        count += 1;
        if count == COLUMNS_MAX + 1 {
            faults.push(
                Fault::new("too_many_columns", path.clone(), format!("{what} has more than {COLUMNS_MAX} columns"))
                    .with_hint("leave out columns that are not used"),
            );
        }
        if name.is_empty() {
            faults.push(Fault::new("bad_column_name", path, format!("{what} has a column without a name")).with_hint("give it a name"));
        } else if name.starts_with(RESERVED_PREFIX) {
            let message = format!("{what} declares '{name}', but names that begin with '{RESERVED_PREFIX}' are reserved");
            faults.push(Fault::new("reserved_name", path, message).with_hint("choose another name"));
        } else if !seen.insert(name) {
            faults.push(
                Fault::new("duplicate_column", path, format!("{what} has more than one column '{name}'"))
                    .with_hint("give each column its own name"),
            );
        }
    }
}

/// An operator id that no operator has.
fn unknown_operator(path: impl Into<String>, message: String, id: &OperatorId, spec: &JobSpec) -> Fault {
    let known = spec.operators.iter().map(|operator| operator.id.as_str());
    Fault::new("unknown_operator", path, message).with_hint(nearest::hint(id.as_str(), "operators", known))
}

/// A name that a schema lacks, with the nearest way out.
fn unknown_column(path: impl Into<String>, what: &str, name: &str, input: &Schema) -> Fault {
    let known = input.0.iter().map(|column| column.name.as_str());
    Fault::new("unknown_column", path, format!("{what} names the unknown column '{name}'")).with_hint(nearest::hint(name, "columns", known))
}

/// Column rules along the graph. An operator whose input is not known is passed over: what
/// made it unknown has its own fault.
fn flow(spec: &JobSpec, graph: &Graph, faults: &mut Vec<Fault>) {
    let sources: BTreeMap<_, _> = spec.sources.iter().map(|source| (&source.operator_id, source)).collect();
    let upstream = graph.sources_upstream(spec);
    let mut known = Flow::new(spec.operators.len());
    for &at in &graph.order {
        let operator = &spec.operators[at];
        if operator.kind.timed_window().is_some() {
            source::timed(spec, at, &upstream[at], faults);
        }
        if let OperatorKind::Top(_) = operator.kind {
            top::input(spec, graph, at, faults);
        }
        let Some(inputs) = known.inputs(graph, at) else { continue };
        if inputs.is_empty() && !matches!(operator.kind, OperatorKind::Source) {
            continue;
        }
        // The sides of a join have columns of their own.
        if let OperatorKind::Join(_) = operator.kind {
            continue;
        }
        let input = match united(&inputs.iter().map(|input| &input.schema).collect::<Vec<_>>()) {
            Ok(input) => input,
            Err((which, difference)) => {
                let told = |which: usize| inputs.get(which).map_or(String::new(), |input| side::told(spec, input.from, input.rows));
                let (kind, id, other, first) = (operator.kind.name(), &operator.id, told(which), told(0));
                let message = format!("the inputs of {kind} '{id}' differ: {other} has {difference} (the first is {first})");
                let hint = "give all inputs the same columns in the same order, with a map before it";
                faults.push(Fault::new("schema_mismatch", format!("operators[{at}]"), message).with_hint(hint));
                continue;
            }
        };
        operator::columns(spec, at, &input, faults);
        if let OperatorKind::Sink = operator.kind {
            sink::columns(spec, &operator.id, &input, faults);
        }
        let source = sources.get(&operator.id).copied();
        let output = of_operator(&operator.kind, source, &input, graph.updates(spec, at)).filter(|schema| !schema.0.is_empty());
        known.put(at, input, output);
    }
    trail::check(spec, graph, &known, faults);
}

/// Every column that a bound expression reads exists in its input.
fn reads(path: &str, what: &str, expr: &Expr, input: &Schema, faults: &mut Vec<Fault>) {
    let mut names = BTreeSet::new();
    columns::read_by(expr, &mut names);
    for name in names.iter().filter(|name| input.index_of(name).is_none()) {
        faults.push(unknown_column(path, what, name, input));
    }
}

#[cfg(test)]
pub(crate) mod tests;
