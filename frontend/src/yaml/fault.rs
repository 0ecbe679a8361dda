//! All faults of a document together: those of a job of which only a part could be read, their
//! order, and how they are shown.

use super::{Document, Origin, bound};
use crate::options::fit::shown;
use crate::options::node::{Node, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use weir_planner::check::check;
use weir_planner::error::Fault;
use weir_planner::nearest::nearest;
use weir_planner::spec::{Horizon, JobSpec};

/// Most faults that a document reports; more of them help nobody.
const FAULTS_MAX: usize = 100;

/// Faults that may only be there because an element of the graph could not be read.
const RELATIONAL: [&str; 10] = [
    "unknown_operator", "missing_source", "missing_sink", "not_reached", "no_sink", "join_inputs", "join_side", "no_operators",
    "window_without_time", "not_a_source",
];

/// Faults that may only be there because the columns upstream are not what the user meant.
const OF_COLUMNS: [&str; 8] = [
    "expression", "unknown_column", "schema_mismatch", "not_boolean", "duplicate_column", "window_without_time", "bad_time_type",
    "too_many_columns",
];

/// Faults of a value alone, whatever stands around it.
const BY_ITSELF: [&str; 17] = [
    "out_of_range", "bad_broker", "bad_topic", "bad_group", "reserved_property", "masked_secret", "not_available", "bad_context",
    "bad_column_type", "reserved_name", "unsupported_backend", "unsupported_format", "expression", "duplicate_column", "unknown_column",
    "values_type", "duplicate_operator",
];

/// Faults in the order of the text, each once; those without a place come first.
pub fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by_key(|fault| fault.place.map(|place| (place.line, place.column)));
    let mut seen = BTreeSet::new();
    faults.retain(|fault| seen.insert((fault.path.clone(), fault.message.clone())));
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        let fault = Fault::new("too_many_faults", "", format!("there are {more} more faults"));
        faults.push(fault.with_hint("mend those above first"));
    }
    faults
}

/// What is wrong with the part of a job that could be read, but for what may follow from `found`,
/// the faults of the part that could not.
pub(super) fn of_the_rest(spec: JobSpec, origin: Origin, found: &[Fault], dropped: bool) -> Vec<Fault> {
    let mut document = Document { jobs: vec![spec], origins: vec![origin], ..Document::default() };
    let given = |document: &Document, list: &str, at: usize| document.locate(0, Fault::new("", format!("{list}[{at}]"), "")).path;
    let touched = |path: &str| found.iter().any(|fault| is_within(&fault.path, path));
    // A source with declared columns gives them whatever its other fields say.
    let columns_touched = |path: &str, declared: bool| {
        found
            .iter()
            .filter_map(|fault| fault.path.strip_prefix(path))
            .any(|rest| !declared || !rest.starts_with('.') || rest.starts_with(".schema"))
    };
    let Some(spec) = document.jobs.first() else { return Vec::new() };
    let mut doubtful = BTreeSet::new();
    for (at, operator) in spec.operators.iter().enumerate() {
        if touched(&given(&document, "operators", at)) {
            doubtful.insert(operator.id.clone());
        }
    }
    for (at, source) in spec.sources.iter().enumerate() {
        if columns_touched(&given(&document, "sources", at), !source.schema.is_empty()) {
            doubtful.insert(source.operator_id.clone());
        }
    }
    // What an operator gives whose fields are not all understood is not known, so nothing is said
    // about the expressions behind it.
    let prefix = document.origins.first().map(|origin| origin.prefix.clone()).unwrap_or_default();
    let mut faults = Vec::new();
    if let Some(spec) = document.jobs.first_mut() {
        let whole = spec.edges.clone();
        let lacking: BTreeSet<_> = if dropped { unsourced(spec) } else { BTreeSet::new() };
        spec.edges.retain(|edge| !doubtful.contains(&edge.from) && !lacking.contains(&edge.from));
        faults.extend(bound(spec));
        faults.extend(check(spec, Horizon::Local).into_iter().filter(|fault| OF_COLUMNS.contains(&fault.code.as_str())));
        spec.edges = whole;
        let of_the_graph = |fault: &Fault| !OF_COLUMNS.contains(&fault.code.as_str()) && fault.code != "unbound";
        let lists = ["operators", "edges", "sources", "sinks"].map(|list| document_path(&prefix, list));
        let slip = |name: &str| nearest(name, ["operators", "edges", "sources", "sinks"].into_iter()).is_some();
        let misspelt = |fault: &Fault| {
            fault.code == "unknown_field" && slip(fault.path.strip_prefix(&prefix).unwrap_or_default().trim_start_matches('.'))
        };
        let dropped = dropped || found.iter().any(misspelt);
        let dropped = dropped || found.iter().any(|fault| lists.contains(&fault.path));
        let told = |fault: &Fault| of_the_graph(fault) && !(dropped && RELATIONAL.contains(&fault.code.as_str()));
        faults.extend(check(spec, Horizon::Local).into_iter().filter(told));
    }
    let faults = faults.into_iter().map(|fault| document.locate(0, fault));
    faults.filter(|fault| !found.iter().any(|cause| follows(fault, &cause.path, &prefix))).collect()
}

fn document_path(prefix: &str, path: &str) -> String {
    if prefix.is_empty() { path.to_owned() } else { format!("{prefix}.{path}") }
}

/// Source operators without an entry under `sources`.
fn unsourced(spec: &JobSpec) -> BTreeSet<weir_planner::id::OperatorId> {
    let known: BTreeSet<_> = spec.sources.iter().map(|source| &source.operator_id).collect();
    spec.operators
        .iter()
        .map(|operator| &operator.id)
        .filter(|id| !known.contains(id))
        .filter(|id| !spec.edges.iter().any(|edge| edge.to == **id))
        .cloned()
        .collect()
}

/// Whether `fault` may only be there because of what is wrong at `cause`: both are in one object,
/// and the fault is not about a value by itself. The job and the elements of its graph are too
/// large to be such an object, but what a connector or codec is decides about all of its element.
fn follows(fault: &Fault, cause: &str, prefix: &str) -> bool {
    if is_within(&fault.path, cause) {
        return true;
    }
    if BY_ITSELF.contains(&fault.code.as_str()) {
        return false;
    }
    let within = cause.strip_prefix(prefix).unwrap_or(cause).trim_start_matches('.');
    let outer = cause.len() - within.len();
    // `sources[0]` of `sources[0].codec.type`, and `checkpoint` of `checkpoint.interval`.
    let (element, field) = match within.split_once('.') {
        Some((element, field)) => (element, field),
        None => return false,
    };
    let end = if element.ends_with(']') && !is_within(field, "codec") && !matches!(field, "input_type" | "output_type") {
        match within.rfind('.') {
            Some(end) if end > element.len() => end,
            Some(_) | None => return false,
        }
    } else {
        element.len()
    };
    is_within(&fault.path, cause.get(..outer + end).unwrap_or(cause)) || is_within(cause, &fault.path)
}

/// Whether `path` is `outer` or a part of it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Jobs of one document that have the same id.
pub(super) fn same_ids(jobs: &[Node], faults: &mut Vec<Fault>) {
    let mut seen = BTreeMap::new();
    for (at, node) in jobs.iter().enumerate() {
        let Value::Map(fields) = &node.value else { continue };
        let Some((_, id)) = fields.iter().find(|(key, _)| key.name == "id") else { continue };
        let Value::Scalar { text, .. } = &id.value else { continue };
        if let Some(first) = seen.insert(text.as_str(), at) {
            let message = format!("the id '{}' is that of jobs[{first}] too", shown(text));
            let fault = Fault::new("duplicate_job", format!("jobs[{at}].id"), message).with_hint("give each job its own id");
            faults.push(id.place.map_or(fault.clone(), |place| fault.at(place)));
        }
    }
}

/// Faults as the command line shows them: `name:line:column: path: message`, then the hint.
pub fn report(name: &str, faults: &[Fault]) -> String {
    let mut text = String::new();
    for fault in faults {
        let place = fault.place.map(|place| format!(":{}:{}", place.line, place.column)).unwrap_or_default();
        let path = if fault.path.is_empty() { String::new() } else { format!("{}: ", fault.path) };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}{place}: {path}{}", fault.message);
        if !fault.hint.is_empty() {
            let _ = writeln!(text, "    hint: {}", fault.hint);
        }
    }
    text
}
