//! Where side edges begin, and which source judges its rows itself.

use crate::error::Error;
use crate::side::Side;
use std::collections::BTreeSet;
use weir_planner::error::Class;
use weir_planner::id::{ChainId, OperatorId};
use weir_planner::plan::{Chain, JobPlan, PlanEdge, Port};

/// The operator, by its position in the producing chain, and the side that a side edge starts from;
/// `None` for an edge of the main way out.
pub(super) fn side(plan: &JobPlan, edge: &PlanEdge) -> Result<Option<(usize, Side)>, Error> {
    Ok(match &edge.port {
        Port::Main => None,
        Port::Error(id) => Some((place(plan, edge, id)?, Side::Error)),
        Port::Late(id) => Some((place(plan, edge, id)?, Side::Late)),
    })
}

/// Name of the operator whose rows an edge carries.
pub(super) fn producer(plan: &JobPlan, edge: &PlanEdge) -> String {
    match &edge.port {
        Port::Main => plan.chain(edge.from).operators.last().map(|operator| operator.id.to_string()).unwrap_or_default(),
        Port::Error(id) | Port::Late(id) => id.to_string(),
    }
}

fn place(plan: &JobPlan, edge: &PlanEdge, id: &OperatorId) -> Result<usize, Error> {
    let missing = || Error::new(Class::Bug, format!("a side edge of chain {} names operator '{id}', which is not in it", edge.from));
    plan.chain(edge.from).operators.iter().position(|operator| operator.id == *id).ok_or_else(missing)
}

/// Whether no window follows a chain, so that its source judges which rows are late (EV-4). Windows
/// behind side edges judge other rows.
pub(super) fn judges(plan: &JobPlan, chain: &Chain) -> bool {
    let (mut seen, mut open): (BTreeSet<ChainId>, Vec<&Chain>) = (BTreeSet::from([chain.id]), vec![chain]);
    while let Some(chain) = open.pop() {
        if chain.operators.iter().any(|operator| operator.work.judges()) {
            return false;
        }
        let next = plan.edges.iter().filter(|edge| edge.from == chain.id && edge.port == Port::Main);
        open.extend(next.filter(|edge| seen.insert(edge.to)).map(|edge| plan.chain(edge.to)));
    }
    true
}
