//! Cuts dealt to other tasks (CKP-8, CKP-9).
//!
//! Positions belong to splits, whichever task reads them, so every region that has a task of the source gets them all: of two
//! that speak of one split the further one holds, and the one that reads on is never behind. A file belongs to the sink task
//! that wrote it. The handle of a task that is no more stays in the first region, so that what was written past the cut is cut
//! off, and a later task of that number finds it.
//!
//! State belongs to key groups, and is dealt only where the plan says `rescale`. Segments stay under the names of the former
//! tasks, in every region that has a task of their operator; each task takes its own key groups out of all of them, and writes
//! all that it has into its first epoch, which takes their place.

use super::{JobRecord, RegionCut, positions_of};
use std::collections::BTreeMap;
use weir_kernel::io::SinkHandle;
use weir_planner::id::{OperatorId, RegionId, TaskId};
use weir_planner::manifest::TaskSegments;

/// Why a cut is not dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There may be state, and the plan does not say `rescale`.
    Unasked,
    /// Something of it would be lost.
    Lost(String),
}

/// The same cut for the tasks of `next`.
///
/// Errors: why not; then nothing of it may be used.
pub fn redeal(before: &JobRecord, cuts: &BTreeMap<RegionId, RegionCut>, next: &JobRecord) -> Result<BTreeMap<RegionId, RegionCut>, Kept> {
    let has = |operator: &OperatorId| next.planned.tasks.iter().any(|task| task.operator == *operator);
    let state = state_of(cuts);
    let stateless = next.stateful.is_empty() && state.is_empty();
    if !(next.rescale || stateless) {
        return Err(Kept::Unasked);
    }
    dealable(before, cuts, next, &state)?;
    let sinks: Vec<&(TaskId, SinkHandle)> =
        cuts.values().flat_map(|cut| &cut.sinks).filter(|(_, handle)| !matches!(handle, SinkHandle::None)).collect();
    let sources: Vec<&OperatorId> = cuts.values().flat_map(|cut| cut.positions.keys()).collect();
    let lost = |what: &str, operator: &OperatorId| {
        Err(Kept::Lost(format!("the plan has no operator '{operator}', and the {what} it has in the cut would be lost")))
    };
    if let Some(source) = sources.iter().find(|id| !has(id)) {
        return lost("positions that", source);
    }
    if let Some((task, _)) = sinks.iter().find(|(task, _)| !has(&task.operator)) {
        return lost("files that", &task.operator);
    }
    let Some(newest) = cuts.values().max_by_key(|cut| cut.epoch) else { return Ok(BTreeMap::new()) };
    let mut epoch = newest.epoch;
    if !before.undecided(cuts).is_empty() {
        // What a task that never decided would have read is still to be found, so nobody may take these for whole.
        epoch.sequence = 0;
    }
    let mut dealt = BTreeMap::new();
    for (tasks, index) in next.planned.regions.iter().zip(0..) {
        let mut cut = RegionCut::empty(epoch);
        cut.decided_at_ms = newest.decided_at_ms;
        for source in sources.iter().filter(|source| tasks.iter().any(|task| task.operator == ***source)) {
            cut.move_positions(source, &positions_of(cuts.values(), source));
        }
        for (task, handle) in &sinks {
            let gone = !next.planned.tasks.contains(task);
            if tasks.contains(task) || (gone && index == 0) {
                cut.set_sink(task, handle.clone());
            }
        }
        let here = |of_task: &&TaskSegments| tasks.iter().any(|task| task.operator == of_task.task.operator);
        cut.segments = state.values().copied().filter(here).cloned().collect();
        cut.redealt = !cut.segments.is_empty();
        dealt.insert(RegionId::new(index), cut);
    }
    Ok(dealt)
}

/// Segments of tasks that have any. What was dealt before, and not written anew since, is the same in every region.
fn state_of(cuts: &BTreeMap<RegionId, RegionCut>) -> BTreeMap<&TaskId, &TaskSegments> {
    let of_tasks = cuts.values().flat_map(|cut| &cut.segments).filter(|of_task| !of_task.segments.is_empty());
    of_tasks.map(|of_task| (&of_task.task, of_task)).collect()
}

/// Whether every entry would have an owner, and no two say different things of one.
fn dealable(
    before: &JobRecord,
    cuts: &BTreeMap<RegionId, RegionCut>,
    next: &JobRecord,
    state: &BTreeMap<&TaskId, &TaskSegments>,
) -> Result<(), Kept> {
    let (former, planned) = (before.planned.max_parallelism, next.planned.max_parallelism);
    if former != planned && !state.is_empty() {
        let message = format!("max_parallelism is {planned}, and state is in {former} key groups, which stay for the life of the job");
        return Err(Kept::Lost(message));
    }
    for operator in state.keys().map(|task| &task.operator) {
        if !next.stateful.contains(operator) {
            return Err(Kept::Lost(format!("operator '{operator}' keeps state in the cut, and the plan has no such operator that does")));
        }
        // By the tasks that were planned: one that has decided since may have nothing left to keep.
        let regions = before.planned.regions.iter().zip(0..).filter(|(tasks, _)| tasks.iter().any(|task| task.operator == *operator));
        let of_operator = regions.filter_map(|(_, index)| cuts.get(&RegionId::new(index)));
        let (dealt, own): (Vec<&RegionCut>, Vec<&RegionCut>) = of_operator.partition(|cut| cut.redealt);
        if !dealt.is_empty() && !own.is_empty() {
            let message = format!(
                "some tasks of operator '{operator}' have decided since its state was last dealt, and others have not: run those tasks once more first"
            );
            return Err(Kept::Lost(message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
