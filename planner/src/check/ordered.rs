//! Rules on ordered edges (JOB-5, STR-5): what one subtask deals out in turn to several lanes is
//! taken up in the same turn by one.
//!
//! A lane gives exactly one batch for each that it takes, so it holds only maps and batch windows,
//! one after the other, and nothing else leads into or out of it but routes of bad records.

use super::graph::{Graph, subtasks};
use super::side;
use crate::error::Fault;
use crate::spec::{JobSpec, OperatorKind};
use std::collections::BTreeSet;

/// What an ordered edge does between so many subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// From one to several.
    Deal,
    /// From several to one.
    Collect,
    /// From one to one: order is kept anyway.
    Straight,
}

/// The turn of an ordered edge; `None` where none is possible.
pub fn turn(from: u32, to: u32) -> Option<Turn> {
    match (from, to) {
        (1, 1) => Some(Turn::Straight),
        (1, _) => Some(Turn::Deal),
        (_, 1) => Some(Turn::Collect),
        (_, _) => None,
    }
}

/// Rules on all ordered edges of a graph.
pub(super) fn check(spec: &JobSpec, graph: &Graph, faults: &mut Vec<Fault>) {
    let (mut collected, mut lanes) = (BTreeSet::new(), BTreeSet::new());
    let mut open = Vec::new();
    for (edge, flags) in spec.edges.iter().enumerate().filter(|(_, flags)| flags.ordered) {
        let (from, to) = graph.ends[edge];
        match turn(subtasks(spec, from), subtasks(spec, to)) {
            Some(Turn::Straight) => {}
            Some(Turn::Deal) => match lane(spec, graph, edge) {
                Ok((end, members)) => {
                    collected.insert(end);
                    lanes.extend(members);
                }
                Err(fault) => faults.push(fault),
            },
            Some(Turn::Collect) => open.push(edge),
            None => {
                let (n, m) = (subtasks(spec, from), subtasks(spec, to));
                let message = format!("edge '{}' is ordered, but leads from {n} to {m} subtasks", flags.id);
                let hint =
                    "an ordered edge leads from one subtask to several or from several to one: change a parallelism, or leave ordered out";
                faults.push(Fault::new("ordered_edge", format!("edges[{edge}].ordered"), message).with_hint(hint));
            }
        }
    }
    // A deal that failed has its own fault; what it would have dealt is not told a second time.
    let failed = faults.iter().any(|fault| fault.code == "ordered_lane");
    for edge in open.into_iter().filter(|edge| !collected.contains(edge) && !failed) {
        let id = &spec.edges[edge].id;
        let message = format!("edge '{id}' collects in order what no ordered edge has dealt out");
        let hint = "begin the lanes with an ordered edge from one subtask, or leave ordered out";
        faults.push(Fault::new("ordered_edge", format!("edges[{edge}].ordered"), message).with_hint(hint));
    }
    side::into_ordered(spec, graph, &lanes, faults);
}

/// Follows a dealing edge through its lanes to the edge that collects, with what takes batches on the way.
///
/// Errors: what keeps the lanes from being lanes.
fn lane(spec: &JobSpec, graph: &Graph, deal: usize) -> Result<(usize, Vec<usize>), Fault> {
    let dealt = &spec.edges[deal].id;
    let bad = |at: usize, message: String, hint: &str| {
        Err(Fault::new("ordered_lane", format!("operators[{at}]"), format!("edge '{dealt}' deals batches out, but {message}"))
            .with_hint(hint))
    };
    let (mut edge, mut members) = (deal, Vec::new());
    loop {
        let at = graph.ends[edge].1;
        let operator = &spec.operators[at];
        let (id, kind) = (&operator.id, operator.kind.name());
        let stateless = match &operator.kind {
            OperatorKind::Map(_) => true,
            OperatorKind::Window(_) => operator.kind.timed_window().is_none(),
            OperatorKind::Source | OperatorKind::Join(_) | OperatorKind::Top(_) => false,
            OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => false,
        };
        if !stateless {
            let hint = "lanes hold maps and batch windows: collect with an ordered edge into one subtask before it";
            return bad(at, format!("the {kind} '{id}' cannot be a lane"), hint);
        }
        if graph.inputs[at].len() > 1 {
            return bad(at, format!("the lane '{id}' has another input"), "lead only the ordered edge into it");
        }
        members.push(at);
        let &[out] = graph.outputs[at].as_slice() else {
            return bad(at, format!("the lane '{id}' has {} outputs", graph.outputs[at].len()), "fork after the lanes are collected");
        };
        let (flags, to) = (&spec.edges[out], graph.ends[out].1);
        let (wide, next) = (subtasks(spec, at), subtasks(spec, to));
        if flags.ordered && next == 1 {
            if graph.inputs[to].len() > 1 {
                let (to, id) = (&spec.operators[to].id, &flags.id);
                return bad(
                    at,
                    format!("'{to}', which edge '{id}' collects into, has another input"),
                    "collect into an operator of its own",
                );
            }
            members.push(to);
            return Ok((out, members));
        }
        if flags.ordered || flags.partitioned || flags.broadcast || next != wide {
            let (id, to) = (&flags.id, &spec.operators[to].id);
            let message = format!("edge '{id}' to '{to}' does not collect them");
            return bad(at, message, "make it ordered, into an operator with parallelism 1");
        }
        edge = out;
    }
}

#[cfg(test)]
mod tests;
