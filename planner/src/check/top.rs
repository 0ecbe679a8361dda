//! Rules on tops: the first rows of each window.

use super::graph::Graph;
use super::{declared_names, out_of_range, unknown_column};
use crate::error::Fault;
use crate::schema::Schema;
use crate::spec::{JobSpec, OperatorKind, Top};
use std::collections::BTreeSet;

/// Most rows that a top keeps of each window and key.
const ROWS_MAX: u64 = 1 << 20;

/// Rules that need no schema.
pub(super) fn check(id: &str, path: &str, top: &Top, faults: &mut Vec<Fault>) {
    if !(1..=ROWS_MAX).contains(&top.limit) {
        faults.push(out_of_range(format!("{path}.limit"), "limit", top.limit, &format!("1 to {ROWS_MAX}")));
    }
    if top.order_by.is_empty() {
        let message = format!("top '{id}' has no order");
        faults.push(Fault::new("no_order", format!("{path}.order_by"), message).with_hint("add order_by: [{column: n, descending: true}]"));
    }
    let mut seen = BTreeSet::new();
    for (j, key) in top.keys.iter().enumerate().filter(|(_, key)| !seen.insert(key.as_str())) {
        let message = format!("top '{id}' names the key '{key}' twice");
        faults.push(Fault::new("duplicate_column", format!("{path}.keys[{j}]"), message).with_hint("name each key once"));
    }
    let mut seen = BTreeSet::new();
    for (j, order) in top.order_by.iter().enumerate().filter(|(_, order)| !seen.insert(order.column.as_str())) {
        let message = format!("top '{id}' orders by '{}' twice", order.column);
        let fault = Fault::new("duplicate_column", format!("{path}.order_by[{j}].column"), message);
        faults.push(fault.with_hint("the first of them decides: leave the other out"));
    }
}

/// Rules on the columns that a top takes and gives.
pub(super) fn columns(id: &str, path: &str, top: &Top, input: &Schema, faults: &mut Vec<Fault>) {
    let what = format!("top '{id}'");
    let keys = top.keys.iter().enumerate().map(|(j, key)| (format!("{path}.keys[{j}]"), key));
    let order = top.order_by.iter().enumerate().map(|(j, order)| (format!("{path}.order_by[{j}].column"), &order.column));
    for (path, column) in keys.chain(order).filter(|(_, column)| input.index_of(column).is_none()) {
        faults.push(unknown_column(path, &what, column, input));
    }
    let taken: Vec<&str> = input.0.iter().map(|column| column.name.as_str()).collect();
    declared_names(&what, top.place.iter().map(|name| (format!("{path}.as"), name.as_str())), &taken, faults);
}

/// What a top takes are rows of windows, so that its input says when a window is complete: by maps,
/// unions and other tops at most.
pub(super) fn input(spec: &JobSpec, graph: &Graph, at: usize, faults: &mut Vec<Fault>) {
    let (mut seen, mut open) = (BTreeSet::new(), vec![at]);
    while let Some(to) = open.pop() {
        let aside = graph.sides_into(to).map(|side| side.from).next();
        let foreign = |from: &usize| match &spec.operators[*from].kind {
            OperatorKind::Map(_) | OperatorKind::Union | OperatorKind::Top(_) => false,
            OperatorKind::Window(_) => spec.operators[*from].kind.timed_window().is_none(),
            OperatorKind::Source | OperatorKind::Join(_) | OperatorKind::Buffer(_) | OperatorKind::Sink => true,
        };
        if let Some(from) = aside.or_else(|| graph.producers(to).find(foreign)) {
            let (top, id) = (&spec.operators[at].id, &spec.operators[from].id);
            let kind = match (&spec.operators[from].kind, aside) {
                (_, Some(_)) => "a route",
                (OperatorKind::Window(_), None) => "the batch window",
                (other, None) => other.name(),
            };
            let message = format!("top '{top}' takes rows of {kind} '{id}', but only the rows of a window have a first and a last");
            let hint = "put a tumbling, sliding, session or cumulate window before it, with nothing but maps, unions and tops between";
            faults.push(Fault::new("top_without_window", format!("operators[{at}]"), message).with_hint(hint));
            return;
        }
        let passes = |from: &usize| spec.operators[*from].kind.timed_window().is_none();
        open.extend(graph.producers(to).filter(passes).filter(|from| seen.insert(*from)));
    }
}
