//! Chains, edges and regions: how operators are laid out over tasks (PLAN-2, JOB-5, EPO-1).

use crate::check::graph::{Graph, keyed_by, subtasks};
use crate::check::ordered::{Turn, turn};
use crate::check::update::told_by;
use crate::id::{ChainId, RegionId};
use crate::plan::{PlanEdge, Port, Region, Routing};
use crate::schema::Schema;
use crate::spec::{JobSpec, OperatorKind};

/// Operators that are fused into one chain.
pub(super) struct Members {
    pub(super) id: ChainId,
    pub(super) parallelism: u32,
    /// Positions in the spec, head first.
    pub(super) operators: Vec<usize>,
}

/// The layout of a job.
pub(super) struct Layout {
    pub(super) chains: Vec<Members>,
    pub(super) edges: Vec<PlanEdge>,
    pub(super) regions: Vec<Region>,
}

/// Lays a job out. Chains come in topological order of their heads, edges ordered by their ends and ports.
pub(super) fn of(spec: &JobSpec, graph: &Graph, schemas: &[Schema]) -> Layout {
    let parallelism: Vec<u32> = (0..spec.operators.len()).map(|at| subtasks(spec, at)).collect();
    let routing: Vec<Routing> = (0..spec.edges.len()).map(|edge| route(spec, graph, schemas, &parallelism, edge)).collect();
    let mut chains: Vec<Members> = Vec::new();
    let mut chain_of = vec![0usize; spec.operators.len()];
    for &at in &graph.order {
        // A side edge leads into the head of a chain, beside whatever else does.
        let inputs = if graph.sides_into(at).next().is_some() { &[] } else { graph.inputs[at].as_slice() };
        match inputs {
            [edge] if routing[*edge] == Routing::Forward && graph.outputs[graph.ends[*edge].0].len() == 1 => {
                chain_of[at] = chain_of[graph.ends[*edge].0];
                chains[chain_of[at]].operators.push(at);
            }
            _ => {
                chain_of[at] = chains.len();
                chains.push(Members { id: chain_id(chains.len()), parallelism: parallelism[at], operators: vec![at] });
            }
        }
    }
    let mut edges: Vec<PlanEdge> = Vec::new();
    for (edge, &(from, to)) in graph.ends.iter().enumerate() {
        if chain_of[from] != chain_of[to] {
            edges.push(PlanEdge {
                from: chain_id(chain_of[from]),
                to: chain_id(chain_of[to]),
                routing: routing[edge].clone(),
                port: Port::Main,
            });
        }
    }
    for side in &graph.sides.edges {
        if let Some(port) = side.port(spec) {
            edges.push(PlanEdge {
                from: chain_id(chain_of[side.from]),
                to: chain_id(chain_of[side.to]),
                routing: if parallelism[side.from] == parallelism[side.to] { Routing::Forward } else { Routing::RoundRobin },
                port,
            });
        }
    }
    edges.sort_by(|a, b| (a.from, a.to, &a.port).cmp(&(b.from, b.to, &b.port)));
    let regions = regions(&chains, &edges);
    Layout { chains, edges, regions }
}

fn chain_id(position: usize) -> ChainId {
    ChainId::new(u32::try_from(position).unwrap_or(u32::MAX))
}

/// How rows of an edge find their subtask (JOB-5). From one task to one task all ways are the same.
fn route(spec: &JobSpec, graph: &Graph, schemas: &[Schema], parallelism: &[u32], edge: usize) -> Routing {
    let (from, to) = graph.ends[edge];
    let flags = &spec.edges[edge];
    if parallelism[from] == 1 && parallelism[to] == 1 {
        return Routing::Forward;
    }
    if let Some(keys) = keyed_by(&spec.operators[to].kind) {
        return Routing::Partitioned(keys.to_vec());
    }
    if flags.ordered {
        match turn(parallelism[from], parallelism[to]) {
            Some(Turn::Deal) => return Routing::Deal,
            Some(Turn::Collect) => return Routing::Collect,
            Some(Turn::Straight) | None => {}
        }
    }
    if flags.broadcast {
        return Routing::Broadcast;
    }
    // What a window gives again stays behind what it gave before.
    if parallelism[from] != parallelism[to]
        && let Some(told) = told_by(spec, graph, from)
    {
        return Routing::Partitioned(told);
    }
    if flags.partitioned {
        let keys = keys_upstream(spec, graph, from).filter(|keys| keys.iter().all(|key| schemas[from].index_of(key).is_some()));
        return keys.map_or(Routing::RoundRobin, Routing::Partitioned);
    }
    if parallelism[from] == parallelism[to] { Routing::Forward } else { Routing::RoundRobin }
}

/// Names, in the output of `at`, of the key columns of the nearest keyed operator upstream (itself
/// included). `None` where there is none, a key is not passed on, or several inputs meet before it.
fn keys_upstream(spec: &JobSpec, graph: &Graph, at: usize) -> Option<Vec<String>> {
    let kind = &spec.operators[at].kind;
    if let Some(keys) = keyed_by(kind) {
        return Some(keys.to_vec());
    }
    let upstream = || match graph.inputs[at].as_slice() {
        [edge] if graph.sides_into(at).next().is_none() => keys_upstream(spec, graph, graph.ends[*edge].0),
        _ => None,
    };
    match kind {
        OperatorKind::Source | OperatorKind::Join(_) => None,
        // Its keys are the whole of its partitioning.
        OperatorKind::Top(_) => None,
        OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => upstream(),
        OperatorKind::Map(map) => upstream()?.iter().map(|key| map.passes(key)).collect(),
        // Rows of each batch come together by these keys: others are not passed on.
        OperatorKind::Window(window) => upstream().filter(|keys| keys.iter().all(|key| window.keys.contains(key))),
    }
}

/// Connected components of the tasks, ordered by their first member.
fn regions(chains: &[Members], edges: &[PlanEdge]) -> Vec<Region> {
    let mut first = Vec::with_capacity(chains.len());
    let mut count = 0usize;
    for chain in chains {
        first.push(count);
        count += chain.parallelism as usize;
    }
    let mut parent: Vec<usize> = (0..count).collect();
    for edge in edges {
        let (from, to) = (edge.from.get() as usize, edge.to.get() as usize);
        match edge.routing {
            Routing::Forward => (0..chains[from].parallelism as usize).for_each(|i| unite(&mut parent, first[from] + i, first[to] + i)),
            // Every producer meets every consumer, so they are all one component.
            Routing::Partitioned(_) | Routing::RoundRobin | Routing::Broadcast | Routing::Deal | Routing::Collect => {
                (0..chains[from].parallelism as usize).for_each(|i| unite(&mut parent, first[from] + i, first[to]));
                (0..chains[to].parallelism as usize).for_each(|j| unite(&mut parent, first[from], first[to] + j));
            }
        }
    }
    let mut regions: Vec<Region> = Vec::new();
    let mut region_of = std::collections::BTreeMap::new();
    for (at, chain) in chains.iter().enumerate() {
        for subtask in 0..chain.parallelism {
            let root = root(&mut parent, first[at] + subtask as usize);
            let position = *region_of.entry(root).or_insert_with(|| {
                let id = RegionId::new(u32::try_from(regions.len()).unwrap_or(u32::MAX));
                regions.push(Region { id, members: Vec::new() });
                regions.len() - 1
            });
            regions[position].members.push((chain.id, subtask));
        }
    }
    regions
}

fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

fn unite(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parent, a), root(parent, b));
    // The smaller one leads, so that roots do not depend on the order of edges.
    parent[a.max(b)] = a.min(b);
}
