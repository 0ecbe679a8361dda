//! `weir.job_watermarks`: where event time stands at every partition and every input of an
//! operator, and what holds it back (EV-7).

use super::at;
use crate::query::cells::{Cell, Columns, Kind};
use crate::query::scope::Scope;
use std::collections::BTreeMap;
use weir_planner::id::OperatorId;
use weir_planner::plan::Work;
use weir_planner::protocol::{Holder, JobObservation, TaskObservation};

pub(super) const COLUMNS: Columns = &[
    ("job", Kind::Text),
    ("operator", Kind::Text),
    ("input", Kind::Text),
    ("partition", Kind::Text),
    ("watermark_at", Kind::At),
    ("last_event_at", Kind::At),
    ("idle", Kind::Bool),
    ("held_by", Kind::Text),
    ("held_since_at", Kind::At),
];

/// One input of an operator.
struct Line {
    input: Cell,
    partition: Cell,
    watermark_ms: Option<i64>,
    last_event_ms: Option<i64>,
    idle: bool,
}

/// A row for each partition of a source and each input of another operator.
pub(super) fn rows(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        let (Some(seen), Some(plan)) = (job.observation.as_deref(), &job.plan) else { continue };
        for chain in &plan.chains {
            for (place, operator) in chain.operators.iter().enumerate() {
                let (lines, holders) = match place.checked_sub(1).and_then(|before| chain.operators.get(before)) {
                    Some(before) => inside(seen, &before.id, &operator.id),
                    None => match &operator.work {
                        Work::Source(_) => partitions(seen, &operator.id),
                        Work::Map(_)
                        | Work::Window(_)
                        | Work::Partial(_)
                        | Work::Batch(_)
                        | Work::Top(_)
                        | Work::Buffer(_)
                        | Work::Union
                        | Work::Sink(_) => edges(seen, &operator.id),
                    },
                };
                let (held_by, since) = holder(&holders);
                rows.extend(lines.into_iter().map(|line| {
                    vec![
                        job.id.as_str().into(),
                        operator.id.as_str().into(),
                        line.input,
                        line.partition,
                        at(line.watermark_ms),
                        at(line.last_event_ms),
                        line.idle.into(),
                        held_by.clone().into(),
                        at(since),
                    ]
                }));
            }
        }
    }
    rows
}

/// What holds one task: which input, how far that is, since when.
struct Held<'a> {
    holder: &'a Holder,
    watermark_ms: Option<i64>,
    since_ms: Option<i64>,
}

/// What holds an operator: of its tasks the one that is furthest behind says it; a task that is
/// idle says it only where all are.
fn holder(tasks: &[Held<'_>]) -> (Option<String>, Option<i64>) {
    let rank = |held: &&Held<'_>| match held.holder {
        Holder::Input(_) => (0, held.watermark_ms),
        Holder::Clock => (1, None),
        Holder::Idle => (2, None),
    };
    let Some(held) = tasks.iter().min_by_key(rank) else { return (None, None) };
    let name = match held.holder {
        Holder::Input(name) => name.clone(),
        Holder::Clock => "(clock)".to_owned(),
        Holder::Idle => "(idle)".to_owned(),
    };
    (Some(name), held.since_ms)
}

fn tasks<'a>(seen: &'a JobObservation, operator: &'a OperatorId) -> impl Iterator<Item = &'a TaskObservation> {
    seen.tasks.iter().filter(move |task| task.task.operator == *operator)
}

fn held<'a>(task: &'a TaskObservation, watermark_of: &dyn Fn(&str) -> Option<i64>) -> Option<Held<'a>> {
    let holder = task.held_by.as_ref()?;
    let watermark_ms = match holder {
        Holder::Input(name) => watermark_of(name),
        Holder::Clock | Holder::Idle => None,
    };
    Some(Held { holder, watermark_ms, since_ms: task.held_since_ms })
}

/// The partitions of a source.
fn partitions<'a>(seen: &'a JobObservation, operator: &'a OperatorId) -> (Vec<Line>, Vec<Held<'a>>) {
    let splits = || seen.sources.iter().filter(|split| split.task.operator == *operator);
    let line = |split: &weir_planner::protocol::SplitObservation| Line {
        input: Cell::Null,
        partition: split.split.clone().into(),
        watermark_ms: split.watermark_ms,
        last_event_ms: split.last_event_ms,
        idle: split.idle,
    };
    let watermark_of = |name: &str| splits().find(|split| split.split == name)?.watermark_ms;
    (splits().map(line).collect(), tasks(seen, operator).filter_map(|task| held(task, &watermark_of)).collect())
}

/// The edges into the head of a chain: each producing task once, as the furthest behind of the
/// consuming ones has heard of it.
fn edges<'a>(seen: &'a JobObservation, operator: &'a OperatorId) -> (Vec<Line>, Vec<Held<'a>>) {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    for input in tasks(seen, operator).flat_map(|task| &task.inputs) {
        let line = Line {
            input: input.from.clone().into(),
            partition: Cell::Null,
            watermark_ms: input.watermark_ms,
            last_event_ms: None,
            idle: input.idle,
        };
        match lines.get_mut(input.from.as_str()) {
            Some(known) if line.watermark_ms >= known.watermark_ms => known.idle &= line.idle,
            Some(known) => *known = Line { idle: known.idle && line.idle, ..line },
            None => drop(lines.insert(&input.from, line)),
        }
    }
    let held_of = |task: &'a TaskObservation| held(task, &|name| task.inputs.iter().find(|input| input.from == name)?.watermark_ms);
    (lines.into_values().collect(), tasks(seen, operator).filter_map(held_of).collect())
}

/// An operator inside a chain: each of its tasks reads the one before it in the same chain.
fn inside<'a>(seen: &'a JobObservation, before: &OperatorId, operator: &'a OperatorId) -> (Vec<Line>, Vec<Held<'a>>) {
    let source =
        |task: &TaskObservation| seen.tasks.iter().find(|other| other.task.operator == *before && other.task.subtask == task.task.subtask);
    let watermark = |task: &TaskObservation| source(task).and_then(|source| source.watermark_ms).filter(|ms| *ms != i64::MAX);
    let line = |task: &TaskObservation| Line {
        input: source(task).map(|source| source.task.to_string()).into(),
        partition: Cell::Null,
        watermark_ms: watermark(task),
        last_event_ms: None,
        idle: matches!(source(task).and_then(|source| source.held_by.as_ref()), Some(Holder::Idle | Holder::Clock)),
    };
    let held_of = |task: &'a TaskObservation| held(task, &|_| watermark(task));
    (tasks(seen, operator).map(line).collect(), tasks(seen, operator).filter_map(held_of).collect())
}
