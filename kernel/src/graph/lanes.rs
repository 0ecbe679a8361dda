//! Which chains are lanes of an ordered edge (STR-5).

use crate::error::Error;
use std::collections::BTreeSet;
use weir_planner::error::Class;
use weir_planner::id::ChainId;
use weir_planner::plan::{JobPlan, Port, Routing, Work};

/// The chains that owe exactly one batch for each that they take: those that are dealt to, and those
/// that such a one forwards to. Chains come in topological order.
///
/// Errors: `Bug` for a plan whose lanes could not keep their turn.
pub(super) fn find(plan: &JobPlan) -> Result<BTreeSet<ChainId>, Error> {
    let mut lanes = BTreeSet::new();
    for chain in &plan.chains {
        let mut inputs = plan.edges.iter().filter(|edge| edge.to == chain.id);
        let dealt = |edge: &weir_planner::plan::PlanEdge| {
            edge.port == Port::Main && (edge.routing == Routing::Deal || (edge.routing == Routing::Forward && lanes.contains(&edge.from)))
        };
        if !inputs.clone().any(dealt) {
            continue;
        }
        let stateless = chain.operators.iter().all(|operator| match operator.work {
            Work::Map(_) | Work::Union | Work::Batch(_) | Work::Sink(_) => true,
            Work::Source(_) | Work::Window(_) | Work::Partial(_) | Work::Top(_) | Work::Buffer(_) => false,
        });
        if inputs.by_ref().count() > 1 || !stateless {
            return Err(Error::new(Class::Bug, format!("chain {} is dealt to, but has state or further inputs", chain.id)));
        }
        lanes.insert(chain.id);
    }
    for edge in &plan.edges {
        let (from, to) = (plan.chain(edge.from), plan.chain(edge.to));
        let fits = match edge.routing {
            Routing::Deal => from.parallelism == 1,
            Routing::Collect => to.parallelism == 1 && lanes.contains(&from.id),
            Routing::Forward | Routing::Partitioned(_) | Routing::RoundRobin | Routing::Broadcast => true,
        };
        if !fits {
            return Err(Error::new(Class::Bug, format!("the ordered edge from chain {} to chain {} has no turn to keep", from.id, to.id)));
        }
    }
    Ok(lanes)
}
