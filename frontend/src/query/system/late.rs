//! Whose rows windows have judged late (EV-4).
//!
//! Rows know their partition until an operator makes others of them. Late rows that an operator has
//! made of rows of several partitions are told of the source, where only one reaches the window.

use std::collections::{BTreeMap, BTreeSet};
use weir_planner::id::{ChainId, OperatorId};
use weir_planner::plan::{Chain, JobPlan, Port, Work};
use weir_planner::protocol::JobObservation;

/// What windows have judged late.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// Rows of one partition, by source operator and partition.
    pub own: BTreeMap<(OperatorId, String), u64>,
    /// Rows made of several partitions' rows, by source operator; without one where several sources
    /// reach the window.
    pub made: BTreeMap<Option<OperatorId>, u64>,
}

/// What the windows of a job have found.
pub(super) fn of(plan: &JobPlan, seen: &JobObservation) -> Late {
    let mut late = Late::default();
    for chain in &plan.chains {
        for (place, operator) in chain.operators.iter().enumerate() {
            let mut made = 0;
            for task in seen.tasks.iter().filter(|task| task.task.operator == operator.id) {
                let mut rest = task.rows_late;
                for of in &task.late_of {
                    *late.own.entry((of.source.clone(), of.split.clone())).or_default() += of.rows;
                    rest = rest.saturating_sub(of.rows);
                }
                made += rest;
            }
            if made > 0 {
                let only = match sources(plan, chain, place).as_slice() {
                    [only] => Some((*only).clone()),
                    _ => None,
                };
                *late.made.entry(only).or_default() += made;
            }
        }
    }
    for (source, rows) in std::mem::take(&mut late.made) {
        // What was made of the rows of a source's only partition is that one's.
        let splits = seen.sources.iter().filter(|split| Some(&split.task.operator) == source.as_ref());
        match (splits.map(|split| &split.split).collect::<Vec<_>>().as_slice(), &source) {
            ([only], Some(id)) => *late.own.entry((id.clone(), (*only).clone())).or_default() += rows,
            _ => *late.made.entry(source).or_default() += rows,
        }
    }
    late
}

/// Sources from which rows reach the operator at `place` of a chain, as they are or as what others made of them.
fn sources<'a>(plan: &'a JobPlan, chain: &'a Chain, place: usize) -> Vec<&'a OperatorId> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::<ChainId>::new());
    let mut open = vec![(chain, place)];
    while let Some((chain, place)) = open.pop() {
        let before = chain.operators.get(..place).unwrap_or_default();
        found.extend(before.iter().filter(|operator| matches!(operator.work, Work::Source(_))).map(|operator| &operator.id));
        for edge in plan.edges.iter().filter(|edge| edge.to == chain.id && edge.port == Port::Main) {
            let from = plan.chains.iter().find(|chain| chain.id == edge.from);
            open.extend(from.filter(|from| seen.insert(from.id)).map(|from| (from, from.operators.len())));
        }
    }
    found.into_iter().collect()
}
