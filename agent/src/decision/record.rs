//! The records in the decision store: a version byte, then postcard.

use crate::error::Error;
use crate::segment::SegmentRef;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use weir_kernel::io::SinkHandle;
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, JobVersion, OperatorId, TaskId};
use weir_planner::plan::JobPlan;

/// First byte of every record.
const RECORD_VERSION: u8 = 1;

/// What is known of a job: who may act, and what its cuts belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The last attempt that was opened.
    pub attempt: Attempt,
    /// The version that it runs.
    pub version: JobVersion,
    /// The planned task set, in plan order, without what appears in no artifact (PLAN-2).
    pub tasks: Vec<TaskId>,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Tasks of each region, so that a region's record always describes the same tasks.
    pub regions: Vec<Vec<TaskId>>,
}

impl JobRecord {
    /// The record of an attempt to run `plan`.
    pub fn of(plan: &JobPlan, attempt: Attempt) -> Self {
        let members = |region: &weir_planner::plan::Region| {
            let tasks = |&(chain, subtask): &(_, u32)| {
                let chain = plan.chain(chain);
                chain.operators.iter().filter(|o| o.work.in_cuts()).map(move |o| TaskId { operator: o.id.clone(), subtask })
            };
            region.members.iter().flat_map(tasks).collect()
        };
        JobRecord {
            attempt,
            version: plan.version,
            tasks: plan.tasks_in_cuts(),
            max_parallelism: plan.max_parallelism,
            regions: plan.regions.iter().map(members).collect(),
        }
    }

    /// Whether cuts of `self` may be restored into `next` (CKP-8).
    ///
    /// Errors: `User`, naming what was added and removed and the ways out.
    pub fn check_same_tasks(&self, next: &JobRecord, job: &str) -> Result<(), Error> {
        let only = |a: &[TaskId], b: &[TaskId]| a.iter().filter(|t| !b.contains(t)).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (added, removed) = (only(&next.tasks, &self.tasks), only(&self.tasks, &next.tasks));
        let mut reasons = Vec::new();
        if !added.is_empty() {
            reasons.push(format!("added tasks {added}"));
        }
        if !removed.is_empty() {
            reasons.push(format!("removed tasks {removed}"));
        }
        if self.max_parallelism != next.max_parallelism {
            reasons.push(format!("max_parallelism {} instead of {}", next.max_parallelism, self.max_parallelism));
        }
        if reasons.is_empty() && self.regions != next.regions {
            reasons.push("tasks connected in another way".to_owned());
        }
        if reasons.is_empty() {
            return Ok(());
        }
        let message = format!(
            "job {job}: the plan does not match the tasks of its decided cut: {}; run the same plan as before, or start fresh and give up its state",
            reasons.join("; ")
        );
        Err(Error::new(Class::User, message))
    }
}

/// Segments of one stateful task, in the order of their decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSegments {
    /// The task.
    pub task: TaskId,
    /// Oldest first.
    pub segments: Vec<SegmentRef>,
}

/// A decided epoch of a region: all that its next attempt begins from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// Which.
    pub epoch: EpochId,
    /// Wall clock, ms.
    pub decided_at_ms: i64,
    /// By source operator: next positions of all splits that the region ever read.
    pub positions: BTreeMap<OperatorId, Vec<SplitPosition>>,
    /// By task.
    pub segments: Vec<TaskSegments>,
    /// Handles of sink tasks; those of result tables live in the result index.
    pub sinks: Vec<(TaskId, SinkHandle)>,
    /// Every member had ended.
    pub ended: bool,
}

impl RegionRecord {
    /// Nothing decided yet.
    pub fn empty(epoch: EpochId) -> Self {
        RegionRecord { epoch, decided_at_ms: 0, positions: BTreeMap::new(), segments: Vec::new(), sinks: Vec::new(), ended: false }
    }

    /// The same cut, whatever its number and hour: then there is nothing to write (EPO-7).
    pub fn same_cut(&self, other: &RegionRecord) -> bool {
        self.positions == other.positions && self.segments == other.segments && self.sinks == other.sinks && self.ended == other.ended
    }

    /// Takes over new positions of an operator; a split that is not told of keeps its own (CKP-5).
    pub fn move_positions(&mut self, operator: &OperatorId, moved: &[SplitPosition]) {
        let known = self.positions.entry(operator.clone()).or_default();
        for position in moved {
            match known.iter_mut().find(|p| p.split == position.split) {
                Some(place) => *place = position.clone(),
                None => known.push(position.clone()),
            }
        }
    }

    /// Segments of a task, made when missing.
    pub fn segments_mut(&mut self, task: &TaskId) -> &mut Vec<SegmentRef> {
        let at = match self.segments.iter().position(|t| t.task == *task) {
            Some(at) => at,
            None => {
                self.segments.push(TaskSegments { task: task.clone(), segments: Vec::new() });
                self.segments.len() - 1
            }
        };
        &mut self.segments[at].segments
    }

    /// Sets the handle of a sink task.
    pub fn set_sink(&mut self, task: &TaskId, handle: SinkHandle) {
        match self.sinks.iter_mut().find(|(t, _)| t == task) {
            Some((_, place)) => *place = handle,
            None => self.sinks.push((task.clone(), handle)),
        }
    }
}

/// Positions of an operator over all regions. A split that moved between subtasks may stand in
/// two records; both are decided, so the further one holds.
pub fn positions_of(regions: &BTreeMap<weir_planner::id::RegionId, RegionRecord>, operator: &OperatorId) -> Vec<SplitPosition> {
    let mut merged: Vec<SplitPosition> = Vec::new();
    for position in regions.values().filter_map(|r| r.positions.get(operator)).flatten() {
        match merged.iter_mut().find(|p| p.split == position.split) {
            Some(place) if progress(position) > progress(place) => *place = position.clone(),
            Some(_) => {}
            None => merged.push(position.clone()),
        }
    }
    merged
}

fn progress(position: &SplitPosition) -> (i128, bool) {
    let at = match position.position {
        Position::Row(row) => i128::from(row),
        Position::Offset(offset) => i128::from(offset),
        Position::Byte { offset, .. } => i128::from(offset),
    };
    (at, position.ended)
}

/// A record as it is stored.
pub fn encode<T: Serialize>(record: &T, what: &str) -> Result<Vec<u8>, Error> {
    postcard::to_extend(record, vec![RECORD_VERSION]).map_err(|e| Error::because(Class::Bug, format!("{what} record cannot be written"), e))
}

/// A stored record.
///
/// Errors: `Corrupt` for another version or bytes that do not read.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => postcard::from_bytes(rest)
            .map_err(|e| Error::because(Class::Corrupt, format!("{what} record in the decision store is not readable"), e)),
        Some((version, _)) => Err(Error::new(
            Class::Corrupt,
            format!("{what} record in the decision store has version {version}; this build reads {RECORD_VERSION}"),
        )),
        None => Err(Error::new(Class::Corrupt, format!("{what} record in the decision store is empty"))),
    }
}
