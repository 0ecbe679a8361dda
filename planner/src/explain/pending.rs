//! A job that has no plan yet (JOB-6): its operators and edges as far as they are known, and which
//! columns are still to be taken from the first rows of its sources.

use super::words::columns;
use super::{line, quoted};
use crate::check::columns::{of_operator, pending};
use crate::check::flow::Flow;
use crate::check::graph::Graph;
use crate::schema::Schema;
use crate::spec::{JobSpec, OperatorKind};
use serde_json::{Value, json};

/// Said wherever a column list is missing.
pub const UNKNOWN: &str = "columns unknown until the first start";

/// Operators, columns where they are known, and edges, as text.
pub fn text(spec: &JobSpec) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("job {} version {}", spec.id, spec.version));
    line(&mut out, format_args!("  no plan yet: {}", reason(spec)));
    for (operator, known) in spec.operators.iter().zip(known(spec)) {
        let parallelism = operator.parallelism.unwrap_or(spec.parallelism);
        line(&mut out, format_args!("operator {} x{parallelism}: {}", operator.id, named(spec, operator.id.as_str(), &operator.kind)));
        if !matches!(operator.kind, OperatorKind::Sink) {
            let told = known.as_ref().map_or_else(|| UNKNOWN.to_owned(), |schema| format!("columns: {}", columns(schema)));
            line(&mut out, format_args!("  {told}"));
        }
    }
    for edge in &spec.edges {
        line(&mut out, format_args!("edge {} -> {}", edge.from, edge.to));
    }
    out
}

/// The same as a DOT graph: a box an operator, an arrow an edge.
pub fn dot(spec: &JobSpec) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("digraph {} {{", quoted(spec.id.as_str())));
    line(&mut out, format_args!("  rankdir=LR;"));
    line(&mut out, format_args!("  node [shape=box];"));
    line(&mut out, format_args!("  label={};", quoted(&format!("no plan yet: {}", reason(spec)))));
    for operator in &spec.operators {
        let parallelism = operator.parallelism.unwrap_or(spec.parallelism);
        let label = format!("{} x{parallelism}\n{}", operator.id, named(spec, operator.id.as_str(), &operator.kind));
        line(&mut out, format_args!("  {} [label={}];", quoted(operator.id.as_str()), quoted(&label)));
    }
    for edge in &spec.edges {
        line(&mut out, format_args!("  {} -> {};", quoted(edge.from.as_str()), quoted(edge.to.as_str())));
    }
    line(&mut out, format_args!("}}"));
    out
}

/// The same as JSON, with `pending: true`, which no plan has.
pub fn to_json(spec: &JobSpec) -> Value {
    let operator = |(operator, known): (&crate::spec::Operator, Option<Schema>)| {
        json!({
            "id": operator.id,
            "kind": operator.kind.name(),
            "parallelism": operator.parallelism.unwrap_or(spec.parallelism),
            "columns": known,
        })
    };
    json!({
        "pending": true,
        "reason": reason(spec),
        "job": spec.id,
        "version": spec.version,
        "sources": pending(spec).iter().map(|source| &source.operator_id).collect::<Vec<_>>(),
        "operators": spec.operators.iter().zip(known(spec)).map(operator).collect::<Vec<_>>(),
        "edges": spec.edges.iter().map(|edge| json!({"id": edge.id, "from": edge.from, "to": edge.to})).collect::<Vec<_>>(),
    })
}

fn reason(spec: &JobSpec) -> String {
    let names: Vec<String> = pending(spec).iter().map(|source| format!("'{}'", source.operator_id)).collect();
    format!("{UNKNOWN} (taken from the first rows of source {})", names.join(", "))
}

fn named(spec: &JobSpec, id: &str, kind: &OperatorKind) -> String {
    let source = spec.sources.iter().find(|source| source.operator_id.as_str() == id).map(|source| source.config.name());
    let sink = spec.sinks.iter().find(|sink| sink.operator_id.as_str() == id).map(|sink| sink.config.name());
    source.or(sink).map_or_else(|| kind.name().to_owned(), |connector| format!("{} {connector}", kind.name()))
}

/// What each operator gives, where that does not hang on unknown columns.
fn known(spec: &JobSpec) -> Vec<Option<Schema>> {
    let mut known = Flow::new(spec.operators.len());
    let Some(graph) = Graph::of(spec) else { return vec![None; spec.operators.len()] };
    for &at in &graph.order {
        let (Some(operator), Some(input)) = (spec.operators.get(at), known.input(&graph, at)) else { continue };
        let source = spec.sources.iter().find(|source| source.operator_id == operator.id);
        let output = of_operator(&operator.kind, source, &input, graph.updates(spec, at)).filter(|schema| !schema.0.is_empty());
        known.put(at, input, output);
    }
    (0..spec.operators.len()).map(|at| known.given(at).cloned()).collect()
}
