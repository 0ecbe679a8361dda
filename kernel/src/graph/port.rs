//! What an edge carries, by its port, and what a chain takes.

use crate::error::Error;
use crate::side::Side;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::{Chain, JobPlan, PlanEdge, PlanOperator, Port, Work};
use weir_planner::schema::{Schema, error_rows, late_rows};

/// The operator, by its position in the producing chain, and the side that a side edge starts from;
/// `None` for an edge of the main way out.
pub(super) fn side(plan: &JobPlan, edge: &PlanEdge) -> Result<Option<(usize, Side)>, Error> {
    Ok(match &edge.port {
        Port::Main => None,
        Port::Error(id) => Some((place(plan, edge, id)?, Side::Error)),
        Port::Late(id) => Some((place(plan, edge, id)?, Side::Late)),
    })
}

/// Columns of what an edge carries. Late rows of a source and of a window may have one consumer: it
/// takes the window's, and the source gives its own by name (EV-5).
pub(super) fn carried(plan: &JobPlan, edge: &PlanEdge) -> Result<Schema, Error> {
    match &edge.port {
        Port::Main => Ok(emitted(plan.chain(edge.from))),
        Port::Error(_) => Ok(error_rows()),
        Port::Late(_) => taken(plan, plan.chain(edge.to)),
    }
}

/// Columns of what the first operator of a chain takes; none for a source.
pub(super) fn taken(plan: &JobPlan, chain: &Chain) -> Result<Schema, Error> {
    if let Some(PlanOperator { output, work: Work::Sink(_), .. }) = chain.operators.first() {
        return Ok(output.clone());
    }
    let mut of_source = None;
    for edge in plan.edges.iter().filter(|edge| edge.to == chain.id) {
        match &edge.port {
            Port::Main => return Ok(emitted(plan.chain(edge.from))),
            Port::Error(_) => return Ok(error_rows()),
            Port::Late(id) => {
                let judge = place(plan, edge, id)?;
                let from = plan.chain(edge.from);
                match from.operators.get(judge) {
                    Some(PlanOperator { output, work: Work::Source(_), .. }) => {
                        of_source.get_or_insert_with(|| late_rows(output));
                    }
                    _ => return Ok(late_rows(&before(plan, from, judge)?)),
                }
            }
        }
    }
    Ok(of_source.unwrap_or_default())
}

/// What the operator at `place` of a chain takes.
fn before(plan: &JobPlan, chain: &Chain, place: usize) -> Result<Schema, Error> {
    match place.checked_sub(1).and_then(|before| chain.operators.get(before)) {
        Some(operator) => Ok(operator.output.clone()),
        None => taken(plan, chain),
    }
}

fn emitted(chain: &Chain) -> Schema {
    chain.operators.last().map(|operator| operator.output.clone()).unwrap_or_default()
}

fn place(plan: &JobPlan, edge: &PlanEdge, id: &OperatorId) -> Result<usize, Error> {
    let missing = || Error::new(Class::Bug, format!("a side edge of chain {} names operator '{id}', which is not in it", edge.from));
    plan.chain(edge.from).operators.iter().position(|operator| operator.id == *id).ok_or_else(missing)
}
