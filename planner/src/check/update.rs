//! Rules on windows that give results more than once, because late rows revise them or because they
//! fire early (WIN-3, WIN-4), and by which columns a later result replaces an earlier one.

use super::graph::Graph;
use crate::connector::SinkOptions;
use crate::error::Fault;
use crate::id::OperatorId;
use crate::spec::{JobSpec, LatePolicy, Map, OperatorKind, Source, Trigger, Window, WindowShape};

/// Rules on updating windows and on what takes their rows.
pub(super) fn check(spec: &JobSpec, graph: &Graph, faults: &mut Vec<Fault>) {
    let behind = behind(spec, graph);
    for (at, operator) in spec.operators.iter().enumerate() {
        let counts = match &operator.kind {
            OperatorKind::Window(_) | OperatorKind::Top(_) | OperatorKind::Join(_) => true,
            OperatorKind::Source | OperatorKind::Map(_) | OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => false,
        };
        if let Some(window) = graph.producers(at).find_map(|from| behind[from]).filter(|_| counts) {
            let (kind, id, name) = (operator.kind.name(), &operator.id, &spec.operators[window].id);
            let (when, hint) = reason(spec, graph, window);
            let message = format!(
                "{kind} '{id}' takes rows of window '{name}', which gives a result again when {when}: what came before would count twice"
            );
            faults.push(Fault::new("behind_updates", format!("operators[{at}]"), message).with_hint(hint));
        }
    }
}

/// When a window gives results again, and what to do so that it does not.
fn reason(spec: &JobSpec, graph: &Graph, window: usize) -> (String, String) {
    let early = spec.operators[window].kind.timed_window().is_some_and(|window| window.trigger == Trigger::ProcessingTime);
    if early {
        return ("its trigger_interval_ms is over".to_owned(), "leave trigger out: it then fires once, by the watermark".to_owned());
    }
    let judged = graph.sources_judged(spec);
    let ids: Vec<_> = judged.get(window).into_iter().flatten().map(|&at| &spec.operators[at].id).collect();
    let revising = |source: &&Source| ids.contains(&&source.operator_id) && source.time.late_event_policy == LatePolicy::Update;
    let source = spec.sources.iter().find(revising).map_or("", |source| source.operator_id.as_str());
    (
        format!("a late row of source '{source}' comes"),
        format!("set late_event_policy of source '{source}' to drop or route, or lead the rows of the window to sinks alone"),
    )
}

/// For each operator, the updating window whose rows it gives on, or is.
fn behind(spec: &JobSpec, graph: &Graph) -> Vec<Option<usize>> {
    let mut behind = vec![None; spec.operators.len()];
    for &at in &graph.order {
        behind[at] = match &spec.operators[at].kind {
            // Sessions are complete when they are given: no late row that counts could still touch one.
            OperatorKind::Window(Window { window: WindowShape::Session(_), .. }) => None,
            OperatorKind::Window(_) if graph.updates(spec, at) => Some(at),
            // What these give are results of their own, and refused behind updates anyway.
            OperatorKind::Window(_) | OperatorKind::Join(_) | OperatorKind::Top(_) | OperatorKind::Source => None,
            OperatorKind::Map(_) | OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => {
                graph.producers(at).find_map(|from| behind[from])
            }
        };
    }
    behind
}

/// How the rows of a sink behind an updating window are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// By these columns, under the names that they have there.
    By(Vec<String>),
    /// Not: why.
    Not(String),
}

fn told(spec: &JobSpec, graph: &Graph, behind: &[Option<usize>], at: usize) -> Option<Told> {
    let window = behind[at]?;
    let operator = &spec.operators[at];
    if window == at {
        let keys = operator.kind.timed_window()?.keys.iter().cloned();
        return Some(Told::By(keys.chain(["window_start".to_owned(), "window_end".to_owned()]).collect()));
    }
    let alone = graph.inputs[at].len() == 1 && graph.sides_into(at).next().is_none();
    let (true, Some(from)) = (alone, graph.producers(at).next()) else {
        return Some(Told::Not(format!("in '{}' other rows come to those of window '{}'", operator.id, spec.operators[window].id)));
    };
    let before = told(spec, graph, behind, from)?;
    Some(match (before, &operator.kind) {
        (Told::By(names), OperatorKind::Map(map)) => renamed(&operator.id, map, names),
        (before, _) => before,
    })
}

/// The same columns behind a map.
fn renamed(id: &OperatorId, map: &Map, names: Vec<String>) -> Told {
    let renamed = names.iter().map(|name| map.passes(name).ok_or_else(|| format!("map '{id}' leaves out '{name}'")));
    renamed.collect::<Result<_, _>>().map_or_else(Told::Not, Told::By)
}

/// Names of the columns by which later rows of the sink at `at` replace earlier ones: a result table
/// behind an updating window that has all that tells its results apart. Empty: rows are added.
pub fn replaces_by(spec: &JobSpec, graph: &Graph, at: usize) -> Vec<String> {
    if replaces(spec, at) { told_by(spec, graph, at).unwrap_or_default() } else { Vec::new() }
}

/// Names of the columns, in what the operator at `at` gives, that tell the results of an updating
/// window apart; `None` where there is no such window upstream, or its results cannot be told apart.
pub fn told_by(spec: &JobSpec, graph: &Graph, at: usize) -> Option<Vec<String>> {
    match told(spec, graph, &behind(spec, graph), at)? {
        Told::By(names) => Some(names),
        Told::Not(_) => None,
    }
}

/// Whether a sink is one in which rows can replace others.
fn replaces(spec: &JobSpec, at: usize) -> bool {
    let id = &spec.operators[at].id;
    spec.sinks.iter().any(|sink| sink.operator_id == *id && matches!(sink.config, SinkOptions::Result(_)))
}

/// What becomes of results that come again, where that is not what one would think.
pub(super) fn notices(spec: &JobSpec, graph: &Graph, notices: &mut Vec<String>) {
    let (behind, judged) = (behind(spec, graph), graph.sources_judged(spec));
    for source in spec.sources.iter().filter(|source| source.time.late_event_policy == LatePolicy::Update) {
        let at = spec.operators.iter().position(|operator| operator.id == source.operator_id);
        let reaches = |window: &usize| at.is_some_and(|at| judged.get(*window).is_some_and(|sources| sources.contains(&at)));
        if !behind.iter().flatten().any(reaches) {
            notices.push(format!(
                "late_event_policy 'update' of source '{}' revises nothing, since no window that could takes its rows: late rows are counted and left out",
                source.operator_id
            ));
        }
    }
    for (at, operator) in spec.operators.iter().enumerate() {
        let Some(window) = behind[at] else { continue };
        let name = &spec.operators[window].id;
        match &operator.kind {
            OperatorKind::Window(config) if config.having.is_some() => {
                notices.push(format!("window '{name}' gives results again: one that no longer meets its having is not taken back"))
            }
            OperatorKind::Map(map) if map.filter.is_some() => notices.push(format!(
                "window '{name}' gives results again: one that no longer passes the filter of map '{}' is not taken back",
                operator.id
            )),
            OperatorKind::Sink => {
                let rows = told(spec, graph, &behind, at);
                match (replaces(spec, at), rows) {
                    (true, Some(Told::By(_)) | None) => {}
                    (true, Some(Told::Not(why))) => notices.push(format!(
                        "the result table of the job keeps every result of window '{name}', which gives some again: {why}, so that none replaces another"
                    )),
                    (false, Some(Told::By(columns))) => notices.push(format!(
                        "sink '{}' adds every result of window '{name}', which gives some again: the last one of equal {} is right",
                        operator.id,
                        columns.join(", ")
                    )),
                    (false, Some(Told::Not(_)) | None) => {
                        notices.push(format!("sink '{}' adds every result of window '{name}', which gives some again", operator.id));
                    }
                }
            }
            OperatorKind::Window(_) | OperatorKind::Map(_) | OperatorKind::Buffer(_) | OperatorKind::Union => {}
            OperatorKind::Source | OperatorKind::Join(_) | OperatorKind::Top(_) => {}
        }
    }
}
