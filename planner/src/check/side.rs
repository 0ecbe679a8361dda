//! Side edges (PLAN-5): where records that cannot be taken and rows that come too late go, with the
//! rules on them (JOB-4).
//!
//! `on_error {policy: route, to}` of a source leads from the source, and from each map and window
//! downstream whose expressions of single rows can fail (KER-7). `late_event_policy: route` leads
//! from whoever judges the source's rows: the first windows downstream, or the source itself where
//! there is none; and from the source, whose rows without a time nobody else sees.
//!
//! Maps and windows follow the strictest policy of the sources upstream: fail before route before
//! skip. One that lies behind an error route cannot route there again; where no other route is left
//! it skips.

use super::graph::Graph;
use crate::error::Fault;
use crate::expr::{Aggregate, Expr};
use crate::id::OperatorId;
use crate::plan::Port;
use crate::spec::{ErrorPolicy, JobSpec, LatePolicy, OperatorKind, Source, TimeMode};
use std::collections::{BTreeMap, BTreeSet};

/// An edge beside those of the spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side {
    /// Position of the operator that emits.
    pub from: usize,
    /// Position of the operator that takes.
    pub to: usize,
    /// What it carries.
    pub rows: SideRows,
}

/// What a side edge carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideRows {
    /// Records that could not be taken, as [`crate::schema::error_rows`].
    Error,
    /// Rows that the emitter judged late, as [`crate::schema::late_rows`].
    Late,
    /// Rows of a source without a time, in the columns of the late rows that windows judge.
    Timeless,
}

impl Side {
    /// The port of the plan.
    pub fn port(&self, spec: &JobSpec) -> Option<Port> {
        let id = spec.operators.get(self.from)?.id.clone();
        Some(match self.rows {
            SideRows::Error => Port::Error(id),
            SideRows::Late | SideRows::Timeless => Port::Late(id),
        })
    }
}

/// All side edges of a job, and the policy of what computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// Ascending, each once.
    pub edges: Vec<Side>,
    /// For each operator, what becomes of rows whose expressions fail there.
    pub on_error: Vec<ErrorPolicy>,
}

/// Successors by operator position.
type Reach = Vec<Vec<usize>>;

/// The side edges of a spec, given its edges as pairs of positions. What a rule forbids is left out.
pub(super) fn of(spec: &JobSpec, places: &BTreeMap<&OperatorId, usize>, ends: &[(usize, usize)]) -> Sides {
    let mut main: Reach = vec![Vec::new(); spec.operators.len()];
    ends.iter().for_each(|&(from, to)| main[from].push(to));
    let mut edges = BTreeSet::new();
    let mut routes: Vec<Option<usize>> = vec![None; spec.operators.len()];
    for (at, source) in placed(spec, places) {
        if let Some(to) = error_target(source, at, spec, places, &main).ok().flatten() {
            edges.insert(Side { from: at, to, rows: SideRows::Error });
            routes[at] = Some(to);
        }
        if let Some(to) = late_target(source, at, spec, places, &main).ok().flatten() {
            let judges = judges(spec, &main, at);
            let rows = if judges.is_empty() { SideRows::Late } else { SideRows::Timeless };
            edges.insert(Side { from: at, to, rows });
            edges.extend(judges.into_iter().map(|from| Side { from, to, rows: SideRows::Late }));
        }
    }
    let mut all = main;
    edges.iter().for_each(|side| all[side.from].push(side.to));
    let behind: BTreeMap<usize, BTreeSet<usize>> = routes.iter().flatten().map(|&to| (to, reached(&all, to))).collect();
    let mut on_error = vec![ErrorPolicy::Skip; spec.operators.len()];
    let mut targets: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); spec.operators.len()];
    for (at, source) in placed(spec, places) {
        for behind_source in reached(&all, at) {
            on_error[behind_source] = stricter(on_error[behind_source], source.on_error.policy);
            targets[behind_source].extend(routes[at]);
        }
    }
    for (at, operator) in spec.operators.iter().enumerate() {
        if on_error[at] != ErrorPolicy::Route {
            continue;
        }
        if !computes(&operator.kind) {
            on_error[at] = ErrorPolicy::Skip;
            continue;
        }
        targets[at].retain(|to| behind.get(to).is_none_or(|behind| !behind.contains(&at)));
        if targets[at].is_empty() {
            on_error[at] = ErrorPolicy::Skip;
        }
        edges.extend(targets[at].iter().map(|&to| Side { from: at, to, rows: SideRows::Error }));
    }
    Sides { edges: edges.into_iter().collect(), on_error }
}

/// Source entries whose operator is a source, with its position.
fn placed<'a>(spec: &'a JobSpec, places: &BTreeMap<&OperatorId, usize>) -> Vec<(usize, &'a Source)> {
    let place = |source: &'a Source| {
        let at = places.get(&source.operator_id).copied()?;
        matches!(spec.operators.get(at)?.kind, OperatorKind::Source).then_some((at, source))
    };
    spec.sources.iter().filter_map(place).collect()
}

/// The stricter of two policies: fail before route before skip.
fn stricter(one: ErrorPolicy, other: ErrorPolicy) -> ErrorPolicy {
    match (one, other) {
        (ErrorPolicy::Fail, _) | (_, ErrorPolicy::Fail) => ErrorPolicy::Fail,
        (ErrorPolicy::Route, _) | (_, ErrorPolicy::Route) => ErrorPolicy::Route,
        (ErrorPolicy::Skip, ErrorPolicy::Skip) => ErrorPolicy::Skip,
    }
}

/// Whether an operator has expressions of single rows, which can fail: maps, and windows whose
/// aggregates take more than columns as they are.
fn computes(kind: &OperatorKind) -> bool {
    let plain = |aggregate: &Aggregate| {
        let argument = aggregate.columns().all(|column| matches!(column.expr, Expr::Column(_)));
        argument && aggregate.filter.is_none()
    };
    match kind {
        OperatorKind::Map(_) => true,
        OperatorKind::Window(window) => !window.aggregates.iter().all(|named| named.expr.bound.as_deref().is_some_and(plain)),
        OperatorKind::Source | OperatorKind::Join(_) | OperatorKind::Top(_) => false,
        OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => false,
    }
}

/// Everything downstream of `from`, itself included.
fn reached(edges: &Reach, from: usize) -> BTreeSet<usize> {
    let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = open.pop() {
        open.extend(edges[at].iter().copied().filter(|&to| seen.insert(to)));
    }
    seen
}

/// The windows that judge the rows of the source at `from`: the first on each way downstream.
fn judges(spec: &JobSpec, main: &Reach, from: usize) -> BTreeSet<usize> {
    let (mut seen, mut open, mut judges) = (BTreeSet::from([from]), vec![from], BTreeSet::new());
    while let Some(at) = open.pop() {
        for &to in main[at].iter().filter(|&&to| seen.insert(to)) {
            match spec.operators[to].kind.timed_window() {
                Some(_) => {
                    judges.insert(to);
                }
                None => open.push(to),
            }
        }
    }
    judges
}

/// Rules on the routes of sources.
pub(super) fn check(spec: &JobSpec, places: &BTreeMap<&OperatorId, usize>, faults: &mut Vec<Fault>) {
    let mut main: Reach = vec![Vec::new(); spec.operators.len()];
    for edge in &spec.edges {
        if let (Some(&from), Some(&to)) = (places.get(&edge.from), places.get(&edge.to)) {
            main[from].push(to);
        }
    }
    for (i, source) in spec.sources.iter().enumerate() {
        // One that is no source has its own fault.
        let Some(&at) = places.get(&source.operator_id) else { continue };
        let found = [error_target(source, at, spec, places, &main), late_target(source, at, spec, places, &main)];
        let faulty = found.into_iter().filter_map(Result::err).flatten();
        faults.extend(faulty.map(|fault| Fault { path: format!("sources[{i}].{}", fault.path), ..fault }));
    }
    mixed(spec, places, &main, faults);
}

/// A window cannot tell whose row is late once rows of several sources have met before it: it routes
/// the late rows of all of them or of none.
fn mixed(spec: &JobSpec, places: &BTreeMap<&OperatorId, usize>, main: &Reach, faults: &mut Vec<Fault>) {
    let mut judged: BTreeMap<usize, Vec<(usize, &Source)>> = BTreeMap::new();
    for (i, source) in spec.sources.iter().enumerate() {
        // One that is no source has its own fault, and so has a window of a source by the clock.
        let Some(&at) = places.get(&source.operator_id) else { continue };
        if source.time.mode != TimeMode::EventTime || !matches!(spec.operators[at].kind, OperatorKind::Source) {
            continue;
        }
        for window in judges(spec, main, at) {
            judged.entry(window).or_default().push((i, source));
        }
    }
    let mut told = BTreeSet::new();
    for (window, sources) in judged {
        let with = |policy: LatePolicy| sources.iter().find(|(_, source)| source.time.late_event_policy == policy);
        let window = &spec.operators[window].id;
        if let Some((_, routing)) = with(LatePolicy::Route) {
            let other = |(_, source): &&(usize, &Source)| {
                source.time.late_event_policy == LatePolicy::Route && source.time.late_event_route != routing.time.late_event_route
            };
            if let Some((i, elsewhere)) = sources.iter().find(other)
                && told.insert(*i)
            {
                let message = format!(
                    "window '{window}' takes rows of source '{}' and of source '{}', whose late rows have different routes: it cannot tell them apart",
                    routing.operator_id, elsewhere.operator_id
                );
                faults.push(
                    Fault::new("mixed_late_policies", format!("sources[{i}].time.late_event_route"), message)
                        .with_hint("give both sources the same late_event_route, or give each a window of its own"),
                );
            }
        }
        let Some((_, first)) = with(LatePolicy::Route).or_else(|| with(LatePolicy::Update)) else { continue };
        let policy = first.time.late_event_policy;
        let Some((i, other)) = sources.iter().find(|(_, source)| source.time.late_event_policy != policy) else { continue };
        if told.insert(*i) {
            let does = |policy: LatePolicy| match policy {
                LatePolicy::Route => "routes late rows",
                LatePolicy::Drop => "drops them",
                LatePolicy::Update => "lets them revise results",
            };
            let message = format!(
                "window '{window}' takes rows of source '{}', which {}, and of source '{}', which {}: it cannot tell them apart",
                first.operator_id,
                if policy == LatePolicy::Route { "routes late rows" } else { "lets late rows revise results" },
                other.operator_id,
                does(other.time.late_event_policy)
            );
            let path = format!("sources[{i}].time.late_event_policy");
            faults.push(
                Fault::new("mixed_late_policies", path, message)
                    .with_hint("give both sources the same late_event_policy and late_event_route, or give each a window of its own"),
            );
        }
    }
}

/// Whether some source names `target` as a route, rightly or not.
pub(super) fn named(spec: &JobSpec, target: &OperatorId) -> bool {
    let names = |source: &Source| [&source.on_error.to, &source.time.late_event_route].into_iter().flatten().any(|to| to == target);
    spec.sources.iter().any(names)
}

/// Where bad records of the source at `at` go; `None` unless its policy is route.
///
/// Errors: what is wrong with it, with paths below the source.
fn error_target(
    source: &Source,
    at: usize,
    spec: &JobSpec,
    places: &BTreeMap<&OperatorId, usize>,
    main: &Reach,
) -> Result<Option<usize>, Vec<Fault>> {
    let (id, path) = (&source.operator_id, "on_error.to");
    match (source.on_error.policy, &source.on_error.to) {
        (ErrorPolicy::Fail | ErrorPolicy::Skip, None) => Ok(None),
        (ErrorPolicy::Fail | ErrorPolicy::Skip, Some(_)) => {
            let message = format!("source '{id}' has on_error.to, but the policy is not 'route'");
            let fault = Fault::new("route_without_policy", path, message);
            Err(vec![fault.with_hint("set on_error.policy to route, or leave on_error.to out")])
        }
        (ErrorPolicy::Route, None) => {
            let message = format!("source '{id}' routes bad records, but on_error.to does not say where");
            Err(vec![Fault::new("route_without_target", path, message).with_hint("name a sink or a map")])
        }
        (ErrorPolicy::Route, Some(to)) => {
            let route = Route { code: "bad_error_route", path, what: "error route", source: id };
            let to = route.target(to, at, spec, places, main).map_err(|fault| vec![fault])?;
            // What computes upstream of the target routes to it too, so they must not feed it otherwise.
            let mapped = |from: &usize| computes(&spec.operators[*from].kind);
            let before = reached(main, to);
            match reached(main, at).into_iter().filter(mapped).find(|from| main[*from].contains(&to) && !before.contains(from)) {
                Some(from) => Err(vec![route.also_normal(spec, from, to)]),
                None => Ok(Some(to)),
            }
        }
    }
}

/// Where late rows of the source at `at` go; `None` unless its policy is route.
///
/// Errors: what is wrong with it, with paths below the source.
fn late_target(
    source: &Source,
    at: usize,
    spec: &JobSpec,
    places: &BTreeMap<&OperatorId, usize>,
    main: &Reach,
) -> Result<Option<usize>, Vec<Fault>> {
    let (id, path, time) = (&source.operator_id, "time.late_event_route", &source.time);
    let route = Route { code: "bad_late_route", path, what: "late route", source: id };
    let mut faults = Vec::new();
    match (time.late_event_policy, &time.late_event_route) {
        (LatePolicy::Drop | LatePolicy::Update, None) => {}
        (LatePolicy::Drop | LatePolicy::Update, Some(to)) => {
            faults.extend(route.target(to, at, spec, places, main).err());
            let message = format!("source '{id}' has a late_event_route, but late_event_policy is not 'route'");
            faults.push(
                Fault::new("route_without_policy", path, message).with_hint("leave late_event_route out, or set the policy to route"),
            );
        }
        (LatePolicy::Route, None) => {
            let message = format!("source '{id}' routes late rows, but late_event_route does not say where");
            faults.push(Fault::new("route_without_target", path, message).with_hint("name a sink or a map"));
        }
        (LatePolicy::Route, Some(to)) => match route.target(to, at, spec, places, main) {
            Err(fault) => faults.push(fault),
            Ok(to) => {
                let behind = reached(main, to);
                for judge in judges(spec, main, at) {
                    if main[judge].contains(&to) {
                        faults.push(route.also_normal(spec, judge, to));
                    } else if behind.contains(&judge) {
                        let (to, judge) = (&spec.operators[to].id, &spec.operators[judge].id);
                        let message = format!(
                            "the late route of source '{id}' to '{to}' leads back into the window '{judge}', which finds rows late"
                        );
                        faults.push(Fault::new(route.code, path, message).with_hint("lead late rows to an operator that does not feed it"));
                    }
                }
                // In processing time no row is late: the policy has its own fault.
                if faults.is_empty() && time.mode == TimeMode::EventTime {
                    return Ok(Some(to));
                }
            }
        },
    }
    if faults.is_empty() { Ok(None) } else { Err(faults) }
}

/// A route of a source, for its faults.
struct Route<'a> {
    code: &'static str,
    path: &'static str,
    what: &'static str,
    source: &'a OperatorId,
}

impl Route<'_> {
    /// The rules that all routes share.
    fn target(
        &self,
        to: &OperatorId,
        at: usize,
        spec: &JobSpec,
        places: &BTreeMap<&OperatorId, usize>,
        main: &Reach,
    ) -> Result<usize, Fault> {
        let (what, source) = (self.what, self.source);
        let bad = |message: String, hint: &str| Err(Fault::new(self.code, self.path, message).with_hint(hint));
        let Some(&place) = places.get(to) else {
            let known: Vec<&str> = spec.operators.iter().map(|operator| operator.id.as_str()).collect();
            let message = format!("the {what} of source '{source}' is the unknown operator '{to}'");
            return Err(Fault::new("unknown_operator", self.path, message).with_hint(format!("known operators: {}", known.join(", "))));
        };
        if place == at {
            return bad(format!("the {what} of source '{source}' leads to the source itself"), "lead it to a sink or a map");
        }
        let kind = &spec.operators[place].kind;
        match kind {
            OperatorKind::Sink | OperatorKind::Map(_) => {}
            OperatorKind::Source
            | OperatorKind::Window(_)
            | OperatorKind::Join(_)
            | OperatorKind::Top(_)
            | OperatorKind::Buffer(_)
            | OperatorKind::Union => {
                return bad(format!("the {what} of source '{source}' is '{to}', a {}", kind.name()), "lead it to a sink or a map");
            }
        }
        if main[at].contains(&place) {
            return Err(self.also_normal(spec, at, place));
        }
        if main[place].contains(&place) || reached(main, place).contains(&at) {
            return bad(
                format!("the {what} of source '{source}' to '{to}' leads back to it"),
                "lead it to an operator that does not feed it",
            );
        }
        Ok(place)
    }

    fn also_normal(&self, spec: &JobSpec, from: usize, to: usize) -> Fault {
        let (from, to) = (&spec.operators[from], &spec.operators[to].id);
        let (what, source, kind) = (self.what, self.source, from.kind.name());
        let message = if from.id == *source {
            format!("the {what} of source '{source}' to '{to}' is also a normal edge")
        } else {
            format!("the {what} of source '{source}' leads from {kind} '{}' to '{to}', which is also a normal edge", from.id)
        };
        Fault::new(self.code, self.path, message).with_hint("lead it to a sink or a map of its own")
    }
}

/// Names an input of an operator in faults.
pub(super) fn told(spec: &JobSpec, from: usize, rows: Option<SideRows>) -> String {
    let id = spec.operators.get(from).map_or("", |operator| operator.id.as_str());
    match rows {
        None => format!("'{id}'"),
        Some(SideRows::Error) => format!("the error route of '{id}'"),
        Some(SideRows::Late | SideRows::Timeless) => format!("the late route of '{id}'"),
    }
}

/// No side edge leads to where batches are ordered: its own would have no place among them (STR-5).
pub(super) fn into_ordered(spec: &JobSpec, graph: &Graph, ordered: &BTreeSet<usize>, faults: &mut Vec<Fault>) {
    for side in graph.sides.edges.iter().filter(|side| ordered.contains(&side.to)) {
        let (from, to) = (&spec.operators[side.from].id, &spec.operators[side.to].id);
        let message = format!("'{from}' routes rows to '{to}', which takes the batches of an ordered edge");
        faults
            .push(Fault::new("ordered_lane", format!("operators[{}]", side.to), message).with_hint("route them to an operator of its own"));
    }
}

#[cfg(test)]
mod tests;
