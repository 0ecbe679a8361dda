//! Whose rows windows have judged late. A row that a window judges belongs to no single partition
//! any more, only to the sources that reach the window (EV-4).

use std::collections::{BTreeMap, BTreeSet};
use weir_planner::id::{ChainId, OperatorId};
use weir_planner::plan::{Chain, JobPlan, PlanOperator, Port, Work};
use weir_planner::protocol::JobObservation;

/// What windows have judged late of a source's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// Rows of this source alone.
    pub own: u64,
    /// Some window that other sources reach too has late rows.
    pub shared: bool,
}

/// By source operator.
pub(super) fn of(plan: &JobPlan, seen: &JobObservation) -> BTreeMap<OperatorId, Late> {
    let mut found: BTreeMap<OperatorId, Late> = BTreeMap::new();
    for chain in &plan.chains {
        for (place, operator) in chain.operators.iter().enumerate() {
            let counts = seen.tasks.iter().filter(|task| task.task.operator == operator.id).map(|task| task.rows_late);
            let late: u64 = counts.sum();
            if late == 0 || !operator.work.judges() {
                continue;
            }
            let sources = sources(plan, chain, place);
            match sources.as_slice() {
                [only] => found.entry((*only).clone()).or_default().own += late,
                several => several.iter().for_each(|id| found.entry((*id).clone()).or_default().shared = true),
            }
        }
    }
    found
}

/// Makes rows of its own, which are no source's.
fn makes_rows(operator: &PlanOperator) -> bool {
    match operator.work {
        Work::Window(_) | Work::Batch(_) | Work::Top(_) => true,
        Work::Source(_) | Work::Map(_) | Work::Partial(_) | Work::Buffer(_) | Work::Union | Work::Sink(_) => false,
    }
}

/// Sources whose rows reach the operator at `place` of a chain.
fn sources<'a>(plan: &'a JobPlan, chain: &'a Chain, place: usize) -> Vec<&'a OperatorId> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::<ChainId>::new());
    let mut open = vec![(chain, place)];
    while let Some((chain, place)) = open.pop() {
        let before = chain.operators.get(..place).unwrap_or_default();
        if before.iter().any(makes_rows) {
            continue;
        }
        found.extend(before.iter().filter(|operator| matches!(operator.work, Work::Source(_))).map(|operator| &operator.id));
        for edge in plan.edges.iter().filter(|edge| edge.to == chain.id && edge.port == Port::Main) {
            let from = plan.chains.iter().find(|chain| chain.id == edge.from);
            open.extend(from.filter(|from| seen.insert(from.id)).map(|from| (from, from.operators.len())));
        }
    }
    found
}
