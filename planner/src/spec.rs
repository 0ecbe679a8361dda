//! The JobSpec: a job as it was asked for. SQL and YAML both lower to it; it is never changed
//! once it is a version. Field names are those of YAML and of SQL's `WITH` (JOB-1, JOB-3).

mod difference;
mod endpoint;
mod map;
mod operator;
mod restart;

pub use difference::{differences, listed, with_tuning_of};
pub use endpoint::{
    Batch, Delivery, Durability, DurabilityBackend, DurabilitySync, ErrorPolicy, LatePolicy, OnError, Sink, Source, SourceColumn, Time,
    TimeMode, WatermarkPolicy, WatermarkStrategy,
};
pub use operator::{
    BatchShape, Buffer, Cumulate, Edge, EmitEmpty, Expression, Join, JoinType, Map, MemoryBuffer, Names, OnOverflow, Operator,
    OperatorKind, Projection, Session, SessionBuffer, Sliding, Top, TopOrder, Trigger, Tumbling, TumblingBuffer, Window, WindowAggregate,
    WindowShape,
};
pub use restart::{AfterFailure, Failures};

use crate::id::{AgentId, JobId, JobVersion};
use serde::{Deserialize, Serialize};

/// A whole job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Stable identity.
    pub id: JobId,
    /// An upgrade raises it.
    #[serde(default = "first_version")]
    pub version: JobVersion,
    /// Default number of subtasks of each operator.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Number of key groups, fixed for the life of the state.
    #[serde(default = "max_parallelism")]
    pub max_parallelism: u32,
    /// May an edge cross agents.
    #[serde(default)]
    pub placement: Placement,
    /// Pinned agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<AgentId>,
    /// Deal state anew when the task set differs on restore (CKP-9).
    #[serde(default)]
    pub rescale: bool,
    /// Moving away from pressure.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// What a start begins from.
    #[serde(default)]
    pub recovery: Recovery,
    /// Epoch and checkpoint pace.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// What happens after a failure.
    #[serde(default)]
    pub restart: Restart,
    /// Where a cut must be durable before effects that cannot be repeated (EPO-8); `None` takes
    /// the door's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    /// Go on without the hub or not.
    #[serde(default)]
    pub on_hub_loss: OnHubLoss,
    /// Rows that the result table keeps at least.
    #[serde(default = "result_rows")]
    pub result_retention_rows: u64,
    /// Age after which result rows go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_retention_ms: Option<u64>,
    /// State backend.
    #[serde(default)]
    pub state: State,
    /// Limits of the job's slice on an agent.
    #[serde(default)]
    pub resources: Resources,
    /// Nodes of the graph.
    pub operators: Vec<Operator>,
    /// Edges of the graph.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// One for each operator of kind `source`.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// One for each operator of kind `sink`.
    #[serde(default)]
    pub sinks: Vec<Sink>,
}

/// `placement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum Placement {
    #[default]
    Colocated,
    Split,
}

/// `rebalance`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rebalance {
    /// Off or auto.
    pub mode: RebalanceMode,
    /// Reports in a row.
    pub pressure_streak: u32,
    /// Pause between moves.
    pub cooldown_ms: u64,
    /// Memory threshold.
    pub memory_pct: u32,
    /// CPU threshold.
    pub cpu_pct: u32,
}

impl Default for Rebalance {
    fn default() -> Self {
        Rebalance { mode: RebalanceMode::Off, pressure_streak: 3, cooldown_ms: 300_000, memory_pct: 90, cpu_pct: 90 }
    }
}

/// `rebalance.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum RebalanceMode {
    #[default]
    Off,
    Auto,
}

/// `recovery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// The newest decided cut.
    #[default]
    LatestCheckpoint,
    /// The newest savepoint.
    LatestSavepoint,
    /// Refuse to start over an existing artifact unless one is named.
    Fail,
}

/// `checkpoint`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Pace of epochs.
    pub epoch_ms: u64,
    /// Pace of sealed checkpoints: a multiple of `epoch_ms`.
    pub interval_ms: u64,
    /// A round that takes longer is abandoned.
    pub timeout_ms: u64,
    /// Sealed checkpoints kept.
    pub retention: u32,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { epoch_ms: 1_000, interval_ms: 10_000, timeout_ms: 300_000, retention: 3 }
    }
}

/// `restart`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restart {
    /// Failures within the window before the job is `failed`.
    pub max_attempts: u32,
    /// The window.
    pub window_ms: u64,
    /// First pause.
    pub backoff_ms: u64,
    /// Longest pause.
    pub max_backoff_ms: u64,
}

impl Default for Restart {
    fn default() -> Self {
        Restart { max_attempts: 5, window_ms: 60_000, backoff_ms: 500, max_backoff_ms: 30_000 }
    }
}

/// `horizon` (EPO-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// The agent's own decision is enough; the job can only be restored there.
    Local,
    /// The seal in shared storage.
    Sealed,
}

/// `on_hub_loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum OnHubLoss {
    #[default]
    Stop,
    Continue,
}

/// `state`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Only `embedded_kv` is known.
    pub backend: String,
    /// Version of the state bytes.
    pub format_version: u32,
    /// Entries untouched for so long go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Bound that fails the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Default for State {
    fn default() -> Self {
        State { backend: "embedded_kv".to_owned(), format_version: 1, ttl_ms: None, max_bytes: None }
    }
}

/// `resources`, per slice on an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// CPU limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millicores: Option<u64>,
    /// Bytes in flight on edges.
    pub inflight_bytes: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Resources { memory_bytes: None, cpu_millicores: None, inflight_bytes: 64 << 20 }
    }
}

fn first_version() -> JobVersion {
    JobVersion::new(1)
}

fn one() -> u32 {
    1
}

fn max_parallelism() -> u32 {
    128
}

fn result_rows() -> u64 {
    1_000_000
}
