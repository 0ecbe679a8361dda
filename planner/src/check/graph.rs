//! The shape of a job: who feeds whom, in which order, and the rules on it (JOB-4, JOB-5).

use super::ordered;
use super::side::{self, Sides};
use super::unknown_operator;
use crate::error::Fault;
use crate::id::OperatorId;
use crate::nearest;
use crate::spec::{Edge, JobSpec, LatePolicy, OperatorKind, Trigger};
use std::collections::{BTreeMap, BTreeSet};

/// The edges of a spec by operator position, side edges beside them (PLAN-5). Made only where every
/// edge names known operators; routes that break a rule are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// For each operator, positions in `edges` of what comes in, in the spec's order.
    pub inputs: Vec<Vec<usize>>,
    /// For each operator, positions in `edges` of what goes out, in the spec's order.
    pub outputs: Vec<Vec<usize>>,
    /// For each edge, positions of producer and consumer in `operators`.
    pub ends: Vec<(usize, usize)>,
    /// Side edges, and what becomes of rows that maps cannot compute.
    pub sides: Sides,
    /// Operators so that producers come before consumers, by side edges too; ties as in the spec.
    pub order: Vec<usize>,
    /// For each operator, whether rows reach it as they are, and not as results of windows, of a
    /// source whose late rows revise results.
    revised: Vec<bool>,
}

/// Subtasks of the operator at `at`. One that keeps state by key, but has no keys, has one group and so one task.
pub fn subtasks(spec: &JobSpec, at: usize) -> u32 {
    let Some(operator) = spec.operators.get(at) else { return 1 };
    match keys_of(&operator.kind) {
        Some([]) => 1,
        Some(_) | None => operator.parallelism.unwrap_or(spec.parallelism),
    }
}

/// The key columns of an operator that keeps state by key, which its inputs are partitioned by (JOB-5).
pub fn keyed_by(kind: &OperatorKind) -> Option<&[String]> {
    keys_of(kind).filter(|keys| !keys.is_empty())
}

fn keys_of(kind: &OperatorKind) -> Option<&[String]> {
    match kind {
        OperatorKind::Top(top) => Some(top.keys.as_slice()),
        _ => kind.timed_window().map(|window| window.keys.as_slice()),
    }
}

impl Graph {
    /// The graph of a spec; `None` where an edge names an unknown operator or edges form a cycle.
    pub fn of(spec: &JobSpec) -> Option<Graph> {
        let places = positions(spec);
        let place = |id: &OperatorId| places.get(id).copied();
        let ends = spec.edges.iter().map(|edge| Some((place(&edge.from)?, place(&edge.to)?))).collect::<Option<Vec<_>>>()?;
        let count = spec.operators.len();
        let (mut inputs, mut outputs) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (edge, &(from, to)) in ends.iter().enumerate() {
            outputs[from].push(edge);
            inputs[to].push(edge);
        }
        let sides = side::of(spec, &places, &ends);
        let mut after: Vec<Vec<usize>> = outputs.iter().map(|edges| edges.iter().map(|&edge| ends[edge].1).collect()).collect();
        let mut missing: Vec<usize> = inputs.iter().map(Vec::len).collect();
        for side in &sides.edges {
            after[side.from].push(side.to);
            missing[side.to] += 1;
        }
        let mut ready: BTreeSet<usize> = (0..count).filter(|&operator| missing[operator] == 0).collect();
        let mut order = Vec::with_capacity(count);
        while let Some(operator) = ready.pop_first() {
            order.push(operator);
            for &to in &after[operator] {
                missing[to] -= 1;
                if missing[to] == 0 {
                    ready.insert(to);
                }
            }
        }
        let mut graph = Graph { inputs, outputs, ends, sides, order, revised: Vec::new() };
        graph.revised = graph.revised(spec, &places);
        (graph.order.len() == count).then_some(graph)
    }

    fn revised(&self, spec: &JobSpec, places: &BTreeMap<&OperatorId, usize>) -> Vec<bool> {
        let mut revised = vec![false; self.inputs.len()];
        for source in spec.sources.iter().filter(|source| source.time.late_event_policy == LatePolicy::Update) {
            if let Some(at) = places.get(&source.operator_id) {
                revised[*at] = matches!(spec.operators[*at].kind, OperatorKind::Source);
            }
        }
        for &operator in &self.order {
            let rows = |from: &usize| spec.operators[*from].kind.timed_window().is_none();
            let before = self.producers(operator).filter(rows).chain(self.sides_into(operator).map(|side| side.from));
            revised[operator] |= before.collect::<Vec<_>>().into_iter().any(|from| revised[from]);
        }
        revised
    }

    /// Operators that feed `operator`, in the order of its edges.
    pub fn producers(&self, operator: usize) -> impl Iterator<Item = usize> + '_ {
        self.inputs[operator].iter().map(|&edge| self.ends[edge].0)
    }

    /// Operators that `operator` feeds, in the order of its edges.
    pub fn consumers(&self, operator: usize) -> impl Iterator<Item = usize> + '_ {
        self.outputs[operator].iter().map(|&edge| self.ends[edge].1)
    }

    /// Side edges into `operator`.
    pub fn sides_into(&self, operator: usize) -> impl Iterator<Item = &side::Side> + '_ {
        self.sides.edges.iter().filter(move |side| side.to == operator)
    }

    /// Whether the window at `operator` marks results that come again (WIN-4).
    pub fn updates(&self, spec: &JobSpec, operator: usize) -> bool {
        match spec.operators.get(operator).and_then(|window| window.kind.timed_window()).map(|window| window.trigger) {
            None => false,
            Some(Trigger::ProcessingTime) => true,
            Some(Trigger::Watermark) => self.revises(operator),
        }
    }

    /// Whether late rows revise what the window at `operator` has given (WIN-4).
    pub fn revises(&self, operator: usize) -> bool {
        self.revised.get(operator).is_some_and(|revised| *revised)
    }

    /// For each operator, the positions of the source operators upstream of it (itself included), by
    /// side edges too.
    pub fn sources_upstream(&self, spec: &JobSpec) -> Vec<BTreeSet<usize>> {
        let mut upstream: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.inputs.len()];
        for &operator in &self.order {
            let before = self.producers(operator).chain(self.sides_into(operator).map(|side| side.from));
            let mut all: BTreeSet<usize> = before.flat_map(|from| upstream[from].iter().copied().collect::<Vec<_>>()).collect();
            if matches!(spec.operators[operator].kind, OperatorKind::Source) {
                all.insert(operator);
            }
            upstream[operator] = all;
        }
        upstream
    }

    /// For each operator, the positions of the sources whose rows reach it as they are, and not as
    /// results of windows, which no stamp makes late; by side edges all that are upstream.
    pub fn sources_judged(&self, spec: &JobSpec) -> Vec<BTreeSet<usize>> {
        let upstream = self.sources_upstream(spec);
        let mut judged: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.inputs.len()];
        for &operator in &self.order {
            let rows = |from: &usize| spec.operators[*from].kind.timed_window().is_none();
            let main = self.producers(operator).filter(rows).flat_map(|from| judged[from].iter());
            let aside = self.sides_into(operator).flat_map(|side| upstream[side.from].iter());
            let mut all: BTreeSet<usize> = main.chain(aside).copied().collect();
            if matches!(spec.operators[operator].kind, OperatorKind::Source) {
                all.insert(operator);
            }
            judged[operator] = all;
        }
        judged
    }
}

fn positions(spec: &JobSpec) -> BTreeMap<&OperatorId, usize> {
    let mut places = BTreeMap::new();
    for (place, operator) in spec.operators.iter().enumerate() {
        places.entry(&operator.id).or_insert(place);
    }
    places
}

/// Rules on operators and edges that need no schema.
pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    unique_ids(spec, faults);
    edges(spec, faults);
    joins(spec, faults);
    let places = positions(spec);
    side::check(spec, &places, faults);
    let known = spec.edges.iter().all(|edge| places.contains_key(&edge.from) && places.contains_key(&edge.to));
    match Graph::of(spec) {
        Some(graph) => {
            reach(spec, &graph, faults);
            ordered::check(spec, &graph, faults);
        }
        None if known => cycle(spec, &places, faults),
        None => {}
    }
}

fn unique_ids(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    for (i, operator) in spec.operators.iter().enumerate() {
        if !seen.insert(&operator.id) {
            let message = format!("operator id '{}' is used more than once", operator.id);
            faults.push(Fault::new("duplicate_operator", format!("operators[{i}].id"), message).with_hint("give each operator its own id"));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, edge) in spec.edges.iter().enumerate() {
        if !seen.insert(&edge.id) {
            let message = format!("edge id '{}' is used more than once", edge.id);
            faults.push(Fault::new("duplicate_edge_id", format!("edges[{i}].id"), message).with_hint("give each edge its own id"));
        }
    }
}

fn edges(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let places = positions(spec);
    let mut pairs = BTreeMap::new();
    for (i, edge) in spec.edges.iter().enumerate() {
        for (field, id) in [("from", &edge.from), ("to", &edge.to)] {
            if !places.contains_key(id) {
                let message = format!("edge '{}' names the unknown operator '{id}'", edge.id);
                faults.push(unknown_operator(format!("edges[{i}].{field}"), message, id, spec));
            }
        }
        if edge.from == edge.to {
            let message = format!("edge '{}' leads from operator '{}' to itself", edge.id, edge.from);
            faults.push(Fault::new("self_loop", format!("edges[{i}]"), message).with_hint("remove it"));
        } else if let Some(first) = pairs.insert((&edge.from, &edge.to), &edge.id) {
            let message = format!("edges '{first}' and '{}' both lead from '{}' to '{}'", edge.id, edge.from, edge.to);
            faults.push(Fault::new("duplicate_edge", format!("edges[{i}]"), message).with_hint("remove one of them"));
        }
        let kind = |id: &OperatorId| places.get(id).map(|&place| &spec.operators[place].kind);
        if let Some(OperatorKind::Sink) = kind(&edge.from) {
            let message = format!("edge '{}' leads out of the sink '{}'", edge.id, edge.from);
            let hint = "a sink gives nothing on: lead the edge from the operator before it";
            faults.push(Fault::new("edge_out_of_sink", format!("edges[{i}].from"), message).with_hint(hint));
        }
        if let Some(OperatorKind::Source) = kind(&edge.to) {
            let message = format!("edge '{}' leads into the source '{}'", edge.id, edge.to);
            let hint = "a source takes nothing: lead the edge to the operator behind it";
            faults.push(Fault::new("edge_into_source", format!("edges[{i}].to"), message).with_hint(hint));
        }
        routing(i, edge, kind(&edge.to), faults);
    }
}

/// Flags of an edge that contradict each other, or the operator that it leads into (JOB-5).
fn routing(i: usize, edge: &Edge, to: Option<&OperatorKind>, faults: &mut Vec<Fault>) {
    let mut bad = |flag: &str, message: String, hint: &str| {
        faults.push(Fault::new("edge_routing", format!("edges[{i}].{flag}"), message).with_hint(hint));
    };
    if edge.partitioned && edge.broadcast {
        bad("broadcast", format!("edge '{}' is both partitioned and broadcast", edge.id), "keep one of them");
    }
    if edge.ordered && (edge.partitioned || edge.broadcast) {
        let flag = if edge.partitioned { "partitioned" } else { "broadcast" };
        bad("ordered", format!("edge '{}' is both ordered and {flag}", edge.id), "keep one of them");
    }
    let Some(window) = to.and_then(OperatorKind::timed_window) else { return };
    let keyed = !window.keys.is_empty();
    if edge.ordered && keyed {
        let message = format!("edge '{}' into the window '{}' cannot be ordered: it is partitioned by the window's keys", edge.id, edge.to);
        bad("ordered", message, "leave ordered out");
    }
    if edge.broadcast {
        let why = if keyed { "is partitioned by the window's keys" } else { "would count every row once a subtask" };
        bad("broadcast", format!("edge '{}' into the window '{}' cannot be broadcast: it {why}", edge.id, edge.to), "leave broadcast out");
    }
}

fn joins(spec: &JobSpec, faults: &mut Vec<Fault>) {
    for (i, operator) in spec.operators.iter().enumerate() {
        let OperatorKind::Join(join) = &operator.kind else { continue };
        let inbound: Vec<&str> = spec.edges.iter().filter(|edge| edge.to == operator.id).map(|edge| edge.from.as_str()).collect();
        if inbound.len() != 2 {
            let edges = if inbound.len() == 1 { "1 inbound edge".to_owned() } else { format!("{} inbound edges", inbound.len()) };
            let message = format!("join '{}' has {edges}, it needs exactly two", operator.id);
            let hint = "lead one edge to it from left_from and one from right_from";
            faults.push(Fault::new("join_inputs", format!("operators[{i}]"), message).with_hint(hint));
        }
        for (field, side) in [("left_from", &join.left_from), ("right_from", &join.right_from)] {
            if !inbound.contains(&side.as_str()) {
                let message = format!("join '{}' names '{side}' as {field}, but no edge leads from there to it", operator.id);
                let hint = if spec.operators.iter().any(|known| known.id == *side) {
                    format!("add an edge from '{side}' to '{}', or name an operator that has one", operator.id)
                } else {
                    nearest::hint(side.as_str(), "operators", spec.operators.iter().map(|known| known.id.as_str()))
                };
                faults.push(Fault::new("join_side", format!("operators[{i}].config.{field}"), message).with_hint(hint));
            }
        }
        if join.left_from == join.right_from {
            let message = format!("join '{}' names '{}' as both sides", operator.id, join.left_from);
            let fault = Fault::new("join_side", format!("operators[{i}].config.right_from"), message);
            faults.push(fault.with_hint("name the other operator that leads to the join"));
        }
    }
}

fn cycle(spec: &JobSpec, places: &BTreeMap<&OperatorId, usize>, faults: &mut Vec<Fault>) {
    let place = |id: &OperatorId| places.get(id).copied();
    let kind = |at: usize| spec.operators.get(at).map(|operator| &operator.kind);
    // Edges that cannot be have faults of their own, and a cycle only through them is none.
    let can_be = |&(from, to): &(usize, usize)| {
        from != to && !matches!(kind(from), Some(OperatorKind::Sink)) && !matches!(kind(to), Some(OperatorKind::Source))
    };
    let ends = spec.edges.iter().filter_map(|edge| Some((place(&edge.from)?, place(&edge.to)?))).filter(can_be);
    let ends: Vec<(usize, usize)> = ends.collect();
    // Side edges are at fault only where the edges alone make no cycle.
    let mut names = cycle_of(spec, &ends);
    let what = if names.is_empty() { "the edges and the routes of sources" } else { "the edges" };
    if names.is_empty() {
        let sides = side::of(spec, places, &ends).edges;
        names = cycle_of(spec, &ends.into_iter().chain(sides.iter().map(|side| (side.from, side.to))).collect::<Vec<_>>());
    }
    if names.is_empty() {
        return;
    }
    faults.push(
        Fault::new("cycle", "edges", format!("{what} form a cycle through {}", names.join(", ")))
            .with_hint("a job's graph must be acyclic: remove one edge of the cycle"),
    );
}

/// Ids of the operators on cycles, and between them.
fn cycle_of<'a>(spec: &'a JobSpec, ends: &[(usize, usize)]) -> Vec<&'a str> {
    // Drop operators that lead nowhere or come from nowhere until only cycles are left.
    let mut left: BTreeSet<usize> = (0..spec.operators.len()).collect();
    loop {
        let from: BTreeSet<usize> = ends.iter().filter(|(_, to)| left.contains(to)).map(|(from, _)| *from).collect();
        let to: BTreeSet<usize> = ends.iter().filter(|(from, _)| left.contains(from)).map(|(_, to)| *to).collect();
        let next: BTreeSet<usize> = left.iter().copied().filter(|at| from.contains(at) && to.contains(at)).collect();
        if next.len() == left.len() {
            break;
        }
        left = next;
    }
    left.into_iter().filter_map(|at| spec.operators.get(at)).map(|operator| operator.id.as_str()).collect()
}

fn reach(spec: &JobSpec, graph: &Graph, faults: &mut Vec<Fault>) {
    let count = spec.operators.len();
    let (mut fed, mut drained) = (vec![false; count], vec![false; count]);
    for &operator in &graph.order {
        let mut before = graph.producers(operator).chain(graph.sides_into(operator).map(|side| side.from));
        // A route that breaks a rule has its own fault: what it would have reached is not told too.
        let begins = matches!(spec.operators[operator].kind, OperatorKind::Source) || side::named(spec, &spec.operators[operator].id);
        fed[operator] = begins || before.any(|from| fed[from]);
    }
    for &operator in graph.order.iter().rev() {
        drained[operator] = matches!(spec.operators[operator].kind, OperatorKind::Sink) || graph.consumers(operator).any(|to| drained[to]);
    }
    let places = positions(spec);
    for (i, operator) in spec.operators.iter().enumerate() {
        let (id, kind) = (&operator.id, operator.kind.name());
        // Edges know only the first of several with one id, which has its own fault.
        if places.get(id) != Some(&i) {
            continue;
        }
        if !fed[i] {
            let message = format!("{kind} '{id}' is not reached from any source");
            faults.push(
                Fault::new("not_reached", format!("operators[{i}]"), message)
                    .with_hint(format!("add an edge that leads to '{id}', or remove it")),
            );
        }
        if !drained[i] {
            let message = format!("{kind} '{id}' does not reach any sink");
            faults.push(
                Fault::new("no_sink", format!("operators[{i}]"), message)
                    .with_hint(format!("add an edge that leads from '{id}', or remove it")),
            );
        }
    }
}
