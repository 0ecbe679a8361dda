//! The records in the decision store: a version byte, then postcard.

use super::redeal::Kept;
use crate::error::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId, JobVersion, OperatorId, RegionId, TaskId};
use weir_planner::manifest::{RegionCut, TaskSet};
use weir_planner::plan::{JobPlan, Work};
use weir_planner::spec::listed;

/// First byte of every record.
const RECORD_VERSION: u8 = 2;

/// What is known of a job: who may act, and what its cuts belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The last attempt that was opened.
    pub attempt: Attempt,
    /// The version that it runs.
    pub version: JobVersion,
    /// What its cuts consist of.
    pub planned: TaskSet,
    /// Operators of the plan that keep state. Not stored, as the next: the plan that is to run is asked.
    #[serde(skip)]
    pub stateful: BTreeSet<OperatorId>,
    /// State may be dealt to other tasks (CKP-9).
    #[serde(skip)]
    pub rescale: bool,
}

impl JobRecord {
    /// The record of an attempt to run `plan`.
    pub fn of(plan: &JobPlan, attempt: Attempt) -> Self {
        let stateful = |work: &Work| match work {
            Work::Window(_) | Work::Top(_) | Work::Buffer(_) => true,
            Work::Source(_) | Work::Map(_) | Work::Partial(_) | Work::Batch(_) | Work::Union | Work::Sink(_) => false,
        };
        let operators = plan.operators();
        JobRecord {
            attempt,
            version: plan.version,
            planned: TaskSet::of(plan),
            stateful: operators.filter(|operator| stateful(&operator.work)).map(|operator| operator.id.clone()).collect(),
            rescale: plan.rescale,
        }
    }

    /// Operators with a task in a region that has decided nothing yet, when others have: each region
    /// decides by itself, so a crash may come between. The splits of such a task are in no cut, and
    /// are found as on the first start.
    pub fn undecided(&self, cuts: &BTreeMap<RegionId, RegionCut>) -> BTreeSet<OperatorId> {
        // Epoch 0 is dealt from cuts of which some were missing.
        let decided = |region: usize| {
            let cut = u32::try_from(region).ok().and_then(|region| cuts.get(&RegionId::new(region)));
            cuts.is_empty() || cut.is_some_and(|cut| cut.epoch.sequence > 0)
        };
        let regions = self.planned.regions.iter().enumerate().filter(|(region, _)| !decided(*region));
        regions.flat_map(|(_, tasks)| tasks.iter().map(|task| task.operator.clone())).collect()
    }

    /// How the tasks of `next` differ from these, whose cuts are there; `None` when they are the same.
    pub fn change_to(&self, next: &JobRecord) -> Option<TaskChange> {
        let only = |a: &[TaskId], b: &[TaskId]| a.iter().filter(|task| !b.contains(task)).map(ToString::to_string).collect::<Vec<_>>();
        // Fusing operators in another way reorders a region's tasks and changes nothing else.
        let sorted =
            |regions: &[Vec<TaskId>]| -> Vec<BTreeSet<TaskId>> { regions.iter().map(|region| region.iter().cloned().collect()).collect() };
        let change = TaskChange {
            added: only(&next.planned.tasks, &self.planned.tasks),
            removed: only(&self.planned.tasks, &next.planned.tasks),
            max_parallelism: (self.planned.max_parallelism != next.planned.max_parallelism)
                .then_some((self.planned.max_parallelism, next.planned.max_parallelism)),
        };
        let same = change.added.is_empty() && change.removed.is_empty() && change.max_parallelism.is_none();
        (!same || sorted(&self.planned.regions) != sorted(&next.planned.regions)).then_some(change)
    }
}

/// How the tasks of a plan differ from those of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Tasks that only the plan has.
    pub added: Vec<String>,
    /// Tasks that only the cut has.
    pub removed: Vec<String>,
    /// Numbers of key groups of cut and plan, where they differ.
    pub max_parallelism: Option<(u32, u32)>,
}

impl TaskChange {
    /// Tasks that a refusal names one by one.
    const NAMED_MAX: usize = 32;

    /// The refusal, naming what was added and removed and the ways out (CKP-8, G3).
    pub fn refused(&self, job: &JobId, kept: &Kept) -> Error {
        let mut reasons = Vec::new();
        for (what, tasks) in [("added", &self.added), ("removed", &self.removed)] {
            if !tasks.is_empty() {
                reasons.push(format!("{what} tasks {}", listed(tasks, Self::NAMED_MAX)));
            }
        }
        if let Some((cut, plan)) = self.max_parallelism {
            reasons.push(format!("max_parallelism {plan} instead of {cut}"));
        }
        if reasons.is_empty() {
            reasons.push("tasks connected in another way".to_owned());
        }
        let (why, rescale) = match kept {
            Kept::Unasked => (String::new(), ", set rescale: true to have its state dealt to the tasks that there are now"),
            Kept::Lost(why) => (format!("; it cannot be dealt to them, since {why}"), ""),
        };
        let message = format!(
            "job {job}: the plan does not match the tasks of its decided cut: {}{why}; run the same plan as before{rescale}, or start fresh (--fresh, ALTER JOB … START FRESH) and give up its state",
            reasons.join("; ")
        );
        Error::new(Class::User, message)
    }
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
