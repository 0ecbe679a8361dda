//! Plan share and ports to wired chains: the one exhaustive match on operators.

mod lanes;
mod port;

use crate::chain::{Chain, ChainReport, Head, Input, Lane, Peers, SourceHead, Stage, Standing, Tail, Wiring};
use crate::edge::{BYTES_MAX, Receiver, Sender, edge};
use crate::error::Error;
use crate::io::{Clock, Restored, Sink, Source, Wake};
use crate::operator::Operator;
use crate::operator::batch::Batch;
use crate::operator::budget::{Budget, Seat};
use crate::operator::buffer::Buffer;
use crate::operator::partial::Partial;
use crate::operator::session::Session;
use crate::operator::stateless::{Map, Union};
use crate::operator::top::Top;
use crate::operator::window::Window;
use crate::route::Output;
use crate::side::{SideEdge, Sides};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{ChainId, OperatorId, TaskId};
use weir_planner::plan::{self, JobPlan, PlanEdge, Port, Routing, Work};
use weir_planner::window::Windows;

/// What the agent brings for a plan: opened connectors, state, clock, wake-ups, a place for reports.
pub struct Parts {
    /// One opened source for each source task.
    pub sources: BTreeMap<(OperatorId, u32), Box<dyn Source>>,
    /// One opened sink for each sink task.
    pub sinks: BTreeMap<(OperatorId, u32), Box<dyn Sink>>,
    /// State for each stateful operator task; missing means empty.
    pub restored: BTreeMap<(OperatorId, u32), Restored>,
    /// Restored running maximum of event time by source task and split name comes with
    /// [`crate::io::Split::time_max_ms`].
    pub clock: Arc<dyn Clock>,
    /// Wakes chain and subtask on its shard.
    pub wakes: BTreeMap<(ChainId, u32), Arc<dyn Wake>>,
    /// Bounded; a chain that finds it full tries again in its next step.
    pub reports: flume::Sender<ChainReport>,
    /// Undecoded bytes that each source task gives between two barriers before it is held back
    /// (EPO-6); [`crate::chain::OPEN_EPOCH_BYTES_MAX`] outside tests.
    pub open_epoch_bytes: u64,
}

/// Builds every chain instance of a plan, edges wired, state restored, nothing running yet.
///
/// Errors: an expression that cannot be built, state that does not verify.
pub fn build(plan: &JobPlan, parts: Parts) -> Result<Vec<Chain>, Error> {
    let mut parts = parts;
    let lanes = lanes::find(plan)?;
    let mut wires = wire(plan, &parts, &lanes)?;
    let shared = Shared { budget: Arc::new(Budget::new(plan.state_bytes_max)), peers: peers(plan) };
    let mut chains = Vec::new();
    for chain in &plan.chains {
        for subtask in 0..chain.parallelism {
            let ends = Ends {
                inputs: wires.inputs.remove(&(chain.id, subtask)).unwrap_or_default(),
                outputs: wires.outputs.remove(&(chain.id, subtask)).unwrap_or_default(),
                sides: Sides::new(wires.sides.remove(&(chain.id, subtask)).unwrap_or_default()),
                lane: lanes.contains(&chain.id),
            };
            chains.push(build_chain(plan, chain, subtask, ends, &mut parts, &shared)?);
        }
    }
    Ok(chains)
}

/// What tasks of the job on this agent share.
struct Shared {
    budget: Arc<Budget>,
    /// By source operator.
    peers: BTreeMap<OperatorId, Arc<Peers>>,
}

fn peers(plan: &JobPlan) -> BTreeMap<OperatorId, Arc<Peers>> {
    let of = |chain: &plan::Chain| {
        let source = chain.operators.first().filter(|operator| matches!(operator.work, Work::Source(_)))?;
        Some((source.id.clone(), Arc::new(Peers::new(chain.parallelism))))
    };
    plan.chains.iter().filter_map(of).collect()
}

#[derive(Default)]
struct Wires {
    /// With where each comes from.
    inputs: BTreeMap<(ChainId, u32), Vec<(String, Input)>>,
    outputs: BTreeMap<(ChainId, u32), Vec<Output>>,
    sides: BTreeMap<(ChainId, u32), Vec<SideEdge>>,
}

/// What one chain instance is wired to.
struct Ends {
    inputs: Vec<(String, Input)>,
    outputs: Vec<Output>,
    sides: Sides,
    /// It owes a batch for each that it takes.
    lane: bool,
}

/// Makes every edge of the plan.
fn wire(plan: &JobPlan, parts: &Parts, lanes: &BTreeSet<ChainId>) -> Result<Wires, Error> {
    let pairs: usize = plan.edges.iter().map(|edge| plan.pairs(edge).len()).sum();
    let inflight = usize::try_from(plan.inflight_bytes).unwrap_or(usize::MAX);
    let bytes_max = (inflight / pairs.max(1)).clamp(1, BYTES_MAX);
    let wake = |chain: ChainId, subtask: u32| {
        let missing = || Error::new(Class::Bug, format!("chain {chain} subtask {subtask} has no wake-up"));
        parts.wakes.get(&(chain, subtask)).cloned().ok_or_else(missing)
    };
    let mut wires = Wires::default();
    for planned in &plan.edges {
        let columns = key_columns(plan, planned)?;
        let mut senders: BTreeMap<u32, Vec<Sender>> = BTreeMap::new();
        let mut receivers: BTreeMap<u32, Vec<(u32, Receiver)>> = BTreeMap::new();
        let producer = port::producer(plan, planned);
        for (from, to) in plan.pairs(planned) {
            let (sender, receiver) = edge(bytes_max, wake(planned.from, from)?, wake(planned.to, to)?);
            senders.entry(from).or_default().push(sender);
            receivers.entry(to).or_default().push((from, receiver));
        }
        for (to, receivers) in receivers {
            let inputs = wires.inputs.entry((planned.to, to)).or_default();
            match planned.routing {
                // One input, as marks count it.
                Routing::Collect => {
                    let lanes = receivers.into_iter().map(|(_, receiver)| receiver).collect();
                    inputs.push((producer.clone(), Input::lanes(lanes)));
                }
                Routing::Forward | Routing::Partitioned(_) | Routing::RoundRobin | Routing::Broadcast | Routing::Deal => {
                    let one = |(from, receiver)| (format!("{producer}-{from}"), Input::One(receiver));
                    inputs.extend(receivers.into_iter().map(one));
                }
            }
        }
        let side = port::side(plan, planned)?;
        for (from, senders) in senders {
            let output = Output::new(&planned.routing, columns.clone(), plan.max_parallelism, senders);
            let key = (planned.from, from);
            match &side {
                Some((task, side)) => {
                    let schema = Arc::new(plan.input(planned.to).to_arrow());
                    wires.sides.entry(key).or_default().push(SideEdge { task: *task, side: *side, schema, output });
                }
                None if lanes.contains(&planned.from) && planned.routing == Routing::Forward => {
                    wires.outputs.entry(key).or_default().push(output.batch_by_batch());
                }
                None => wires.outputs.entry(key).or_default().push(output),
            }
        }
    }
    Ok(wires)
}

/// Positions of an edge's key columns in what it carries.
fn key_columns(plan: &JobPlan, edge: &PlanEdge) -> Result<Vec<usize>, Error> {
    let names = match &edge.routing {
        Routing::Partitioned(names) => names.as_slice(),
        Routing::Forward | Routing::RoundRobin | Routing::Broadcast | Routing::Deal | Routing::Collect => return Ok(Vec::new()),
    };
    let schema = match edge.port {
        Port::Main => plan.chain(edge.from).operators.last().map(|operator| operator.output.clone()).unwrap_or_default(),
        Port::Error(_) | Port::Late(_) => plan.input(edge.to),
    };
    let position = |name: &String| {
        let missing = || Error::new(Class::Bug, format!("chain {} does not emit the key column '{name}'", edge.from));
        schema.index_of(name).ok_or_else(missing)
    };
    names.iter().map(position).collect()
}

fn build_chain(plan: &JobPlan, chain: &plan::Chain, subtask: u32, ends: Ends, parts: &mut Parts, shared: &Shared) -> Result<Chain, Error> {
    let missing = |what: &str, id: &OperatorId| Error::new(Class::Bug, format!("no {what} was opened for task {id}-{subtask}"));
    let judge = port::judges(plan, chain);
    let seat = || Seat { subtask, parallelism: chain.parallelism, max_parallelism: plan.max_parallelism, budget: shared.budget.clone() };
    let mut head = None;
    let mut stages = Vec::new();
    let mut tail = Tail::Edges(ends.outputs);
    // What the next operator takes: at the head of a chain, what its edges carry.
    let mut input = plan.input(chain.id);
    for (task, operator) in chain.operators.iter().enumerate() {
        let key = (operator.id.clone(), subtask);
        match &operator.work {
            Work::Source(work) => {
                let source = parts.sources.remove(&key).ok_or_else(|| missing("source", &operator.id))?;
                let peers = shared.peers.get(&operator.id).cloned().ok_or_else(|| missing("place", &operator.id))?;
                let standing = Standing { judge, open_bytes_max: parts.open_epoch_bytes, peers, subtask };
                head = Some(Head::Source(Box::new(SourceHead::new(&operator.id, work, &operator.output, source, standing)?)));
            }
            Work::Map(work) => {
                let map = Map::new(&operator.id, work, &input, &operator.output)?;
                stages.push(Stage { task, operator: Box::new(map) });
            }
            Work::Window(work) => {
                let restored = parts.restored.remove(&key).unwrap_or_default();
                let (id, output) = (&operator.id, &operator.output);
                let operator: Box<dyn Operator> = match work.windows {
                    Windows::Aligned(_) => Box::new(Window::new(id, work, &input, output, seat(), &restored)?),
                    Windows::Session { .. } => Box::new(Session::new(id, work, &input, output, seat(), &restored)?),
                };
                stages.push(Stage { task, operator });
            }
            Work::Partial(work) => {
                let partial = Partial::new(&operator.id, work, &input, &operator.output)?;
                stages.push(Stage { task, operator: Box::new(partial) });
            }
            Work::Batch(work) => {
                let batch = Batch::new(&operator.id, work, &input, &operator.output)?;
                stages.push(Stage { task, operator: Box::new(batch) });
            }
            Work::Top(work) => {
                let restored = parts.restored.remove(&key).unwrap_or_default();
                let top = Top::new(&operator.id, work, &input, &operator.output, seat(), &restored)?;
                stages.push(Stage { task, operator: Box::new(top) });
            }
            Work::Buffer(work) => {
                let restored = parts.restored.remove(&key).unwrap_or_default();
                let buffer = Buffer::new(&operator.id, work, &input, seat(), &restored)?;
                stages.push(Stage { task, operator: Box::new(buffer) });
            }
            Work::Union => stages.push(Stage { task, operator: Box::new(Union::default()) }),
            Work::Sink(_) => {
                let sink = parts.sinks.remove(&key).ok_or_else(|| missing("sink", &operator.id))?;
                tail = Tail::sink(TaskId { operator: operator.id.clone(), subtask }, sink);
            }
        }
        input = operator.output.clone();
    }
    let (froms, inputs) = ends.inputs.into_iter().unzip();
    let lane = ends.lane.then(|| Lane::new(Arc::new(input.to_arrow())));
    Ok(Chain::new(Wiring {
        id: chain.id,
        subtask,
        tasks: chain.operators.iter().map(|operator| TaskId { operator: operator.id.clone(), subtask }).collect(),
        head: head.unwrap_or_else(|| Head::inputs(inputs)),
        inputs: froms,
        stages,
        tail,
        sides: ends.sides,
        lane,
        clock: parts.clock.clone(),
        reports: parts.reports.clone(),
    }))
}
