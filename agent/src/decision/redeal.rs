//! Cuts of a job without state, dealt to other tasks (CKP-8).
//!
//! Such a cut is positions of splits and lengths of sink files. Positions belong to splits, whichever
//! task reads them, so every region that has a task of the source gets them all: of two that speak
//! of one split the further one holds, and the one that reads on is never behind. A file belongs
//! to the sink task that wrote it. The handle of a task that is no more stays in the first region,
//! so that what was written past the cut is cut off, and a later task of that number finds it.

use super::{JobRecord, RegionCut, positions_of};
use std::collections::BTreeMap;
use weir_kernel::io::SinkHandle;
use weir_planner::id::{OperatorId, RegionId, TaskId};

/// The same cut for the tasks of `next`; `None` when something of it would be lost: state, or
/// the positions or files of an operator that `next` does not have.
pub fn redeal(before: &JobRecord, cuts: &BTreeMap<RegionId, RegionCut>, next: &JobRecord) -> Option<BTreeMap<RegionId, RegionCut>> {
    let has = |operator: &OperatorId| next.planned.tasks.iter().any(|task| task.operator == *operator);
    let state = cuts.values().flat_map(|cut| &cut.segments).any(|task| !task.segments.is_empty());
    let sinks: Vec<&(TaskId, SinkHandle)> =
        cuts.values().flat_map(|cut| &cut.sinks).filter(|(_, handle)| !matches!(handle, SinkHandle::None)).collect();
    let sources: Vec<&OperatorId> = cuts.values().flat_map(|cut| cut.positions.keys()).collect();
    if !next.stateless || state || !sources.iter().all(|id| has(id)) || !sinks.iter().all(|(task, _)| has(&task.operator)) {
        return None;
    }
    let newest = cuts.values().max_by_key(|cut| cut.epoch)?;
    let mut epoch = newest.epoch;
    if !before.undecided(cuts).is_empty() {
        // What a task that never decided would have read is still to be found, so nobody may take these for whole.
        epoch.sequence = 0;
    }
    let mut dealt = BTreeMap::new();
    for (index, tasks) in next.planned.regions.iter().enumerate() {
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
        dealt.insert(RegionId::new(u32::try_from(index).ok()?), cut);
    }
    Some(dealt)
}

#[cfg(test)]
mod tests;
