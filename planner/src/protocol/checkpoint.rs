//! Messages about checkpoints, what a start may begin from, and reads of state.

use super::Failure;
use crate::expr::Literal;
use crate::id::{Attempt, CheckpointId, JobId, OperatorId};
use crate::manifest::{CheckpointKind, Manifest};
use crate::plan::JobPlan;
use serde::{Deserialize, Serialize};

/// The cuts that an attempt may begin from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutGrant {
    /// Preferred where it holds: the newest epoch that an agent has decided in its own data directory.
    pub local: Option<LocalGrant>,
    /// Sealed ones, in the order of preference.
    pub checkpoints: Vec<Manifest>,
}

/// When a cut that is only in an agent's data directory may be used (EPO-9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalGrant {
    /// In this data directory only.
    pub store_id: String,
    /// Only when the last attempt there was this one or a later one: since then the job was granted nowhere else, so that
    /// what was decided there continues its line. `None`: whichever it was (`horizon: local`).
    pub since: Option<Attempt>,
    /// A cut is known to have been decided there. Without it and without a checkpoint the start is
    /// refused instead of beginning empty (C51).
    pub must_exist: bool,
}

/// How a checkpoint ended. Told again it is the same one: the attempt and the epochs of its cuts name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointDone {
    /// From registration.
    pub session: String,
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// The id of one that the hub asked for; `None` for one of the interval.
    pub id: Option<CheckpointId>,
    /// What it is for.
    pub kind: CheckpointKind,
    /// Wall clock, ms.
    pub started_at_ms: i64,
    /// How long the slowest barrier of its epoch took from the sources to the last task, ms.
    pub align_ms: u64,
    /// Bytes that were uploaded for it.
    pub bytes_new: u64,
    /// What it consists of, every object confirmed by the store; its `id` is set by the hub.
    pub result: Result<Manifest, Failure>,
}

/// The seal of a checkpoint (CKP-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Its id.
    pub id: CheckpointId,
    /// Every checkpoint and savepoint of the job that is kept, this one included, oldest first: what none
    /// of them needs may be deleted.
    pub retained: Vec<Manifest>,
}

/// Which state is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRead {
    /// The operator.
    pub operator: OperatorId,
    /// Only entries with these values in all key columns; empty for all entries.
    pub keys: Vec<(String, Literal)>,
    /// `AS OF CHECKPOINT`, filled in by the hub from the id.
    pub checkpoint: Option<CheckpointId>,
    /// The checkpoint that is meant, filled in by the hub.
    pub manifest: Option<Manifest>,
    /// The plan that says how the state is to be read, filled in by the hub where the agent does not hold the job.
    pub plan: Option<JobPlan>,
}
