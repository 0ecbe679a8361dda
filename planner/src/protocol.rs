//! Messages between hub and agents. The same ones travel over HTTP and over the in-process link.
//!
//! Control flows down: the agent asks for commands with a long poll and acknowledges each one.
//! Observation flows up: reports, which also renew the lease. Whatever carries an attempt or a
//! session older than the receiver's is refused as fenced.

mod checkpoint;

pub use checkpoint::{CheckpointDone, CutGrant, LocalGrant, Sealed, StateRead};

use crate::error::Class;
use crate::id::{AgentId, Attempt, CheckpointId, EpochId, Generation, JobId, OperatorId, TaskId};
use crate::manifest::{CheckpointKind, Manifest};
use crate::plan::JobPlan;
use crate::schema::Schema;
use crate::spec::Source;
use serde::{Deserialize, Serialize};

/// Version of these messages; a hub refuses an agent with another one.
pub const PROTOCOL_VERSION: u32 = 1;

/// What an agent asks of the hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// First message of a process or of a reconnect.
    Register(Register),
    /// Long poll for commands.
    NextCommands(NextCommands),
    /// End of one command.
    CommandDone(CommandDone),
    /// What runs; renews the lease.
    Report(Report),
    /// Long poll for reads.
    NextRead(NextRead),
    /// A checkpoint is complete in the state store, or could not be made.
    CheckpointDone(Box<CheckpointDone>),
}

/// What the hub answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HubResponse {
    /// To `Register`.
    Registered(Registered),
    /// To `NextCommands`; empty when the wait ended without one.
    Commands(Vec<Command>),
    /// To `NextRead`; `None` when the wait ended without one.
    Read(Option<ReadRequest>),
    /// To `CommandDone` and `Report`, and to a `CheckpointDone` that tells of a failure.
    Accepted,
    /// To `CheckpointDone`.
    Sealed(Sealed),
    /// The request was not taken.
    Refused(Refusal),
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What to do: `Fenced` means register anew, `User` means give up and say so.
    pub class: Class,
    /// Says why.
    pub message: String,
}

/// Registration (AGT-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Stable name.
    pub agent: AgentId,
    /// Must equal [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Random, new for each process: tells a restart from a reconnect.
    pub boot_id: String,
    /// Random, made with the data directory: tells whose local state this is (EPO-9).
    pub store_id: String,
    /// Weir's version.
    pub version: String,
    /// `job_runtime`, `state_backend`, …
    pub capabilities: Vec<String>,
    /// Where the agent can be seen, for people.
    pub address: String,
    /// Shared secret, where the hub wants one.
    pub token: Option<String>,
    /// Attempts that run right now (empty after a process start).
    pub running: Vec<RunningAttempt>,
    /// The highest attempt of any job in the data directory: a hub that has never seen it, such as
    /// one whose own store was lost, grants higher ones.
    #[serde(default)]
    pub last_attempt: Attempt,
    /// Where it keeps checkpoints, without secrets: agents of one URL can take over each other's jobs.
    #[serde(default)]
    pub state_url: String,
    /// It runs in the hub's own process: the horizon of its jobs is local unless they say otherwise (EPO-8).
    #[serde(default)]
    pub embedded: bool,
}

/// A job attempt that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningAttempt {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
}

/// Answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Goes into every later request.
    pub session: String,
    /// Without a report for so long the agent fences itself (AGT-4).
    pub lease_ms: u64,
    /// Pace of reports.
    pub report_ms: u64,
}

/// Asks for commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextCommands {
    /// From registration.
    pub session: String,
    /// How long the hub may hold the request.
    pub wait_ms: u64,
}

/// Asks for a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRead {
    /// From registration.
    pub session: String,
    /// How long the hub may hold the request.
    pub wait_ms: u64,
}

/// One outbox entry. Commands are idempotent; after a lease without `CommandDone` one comes again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Outbox id.
    pub id: u64,
    /// The job.
    pub job: JobId,
    /// Which intent.
    pub generation: Generation,
    /// What to do.
    pub action: Action,
}

/// What an agent is told to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run all tasks of the plan under this attempt; older attempts of the job are stopped first.
    Start(Box<Start>),
    /// Stop intake, decide the last epoch, close. Observed as `Stopped`.
    Stop {
        /// The attempt to stop; later ones are left alone.
        attempt: Attempt,
    },
    /// Stop at once if running and delete the job's state, decisions and results, and its objects in
    /// the state store but those that `retained` need.
    Forget {
        /// The attempt to stop; later ones are left alone.
        attempt: Attempt,
        /// Savepoints that outlive the job; `None` where the job lives on elsewhere, and then the state store is left alone.
        #[serde(default)]
        retained: Option<Vec<Manifest>>,
    },
    /// Make a checkpoint of what the attempt has decided after one more epoch, or of the last
    /// decided cut of one that is over. Its end is told by `CheckpointDone`.
    Checkpoint {
        /// The attempt.
        attempt: Attempt,
        /// Its id.
        id: CheckpointId,
        /// What it is for.
        kind: CheckpointKind,
    },
}

/// A grant to run a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The right to run; rises with every grant.
    pub attempt: Attempt,
    /// What to run.
    pub plan: JobPlan,
    /// What to begin from.
    pub restore: Restore,
}

/// What a start begins from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restore {
    /// From nothing; local cuts of the job are deleted first.
    Fresh,
    /// From nothing, since the job never ran. What the store knows of an earlier job of that name, which
    /// this hub does not know, is neither taken for its state nor deleted: the start is refused.
    New,
    /// From the newest of these cuts that verifies (CKP-6); each one that does not is an event.
    Cut(Box<CutGrant>),
}

/// End of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDone {
    /// From registration.
    pub session: String,
    /// Outbox id.
    pub id: u64,
    /// How it ended.
    pub result: Result<(), Failure>,
}

/// Something that went wrong on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `User` and `Corrupt` are deterministic and end in `failed` at once; `Retry` is retried
    /// without being counted; `Bug` is retried under `restart`.
    pub class: Class,
    /// Lower case, names job, operator, task and the way out.
    pub message: String,
}

/// What runs on an agent. Sequences rise strictly within a session (HUB-2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From registration.
    pub session: String,
    /// From 1.
    pub sequence: u64,
    /// Every job attempt that the agent holds or has news of.
    pub jobs: Vec<JobObservation>,
    /// Load figures.
    pub load: Load,
}

/// Load of an agent process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Process CPU since the last report, percent of one core.
    pub cpu_pct: f64,
    /// Resident bytes.
    pub memory_used_bytes: u64,
    /// Bytes of the machine or its limit.
    pub memory_total_bytes: u64,
}

/// One job attempt as the agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobObservation {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// The generation that it was started under.
    pub generation: Generation,
    /// How it stands.
    pub state: AttemptState,
    /// Last decided epoch, lowest over the regions.
    pub epoch: Option<EpochId>,
    /// A cut of the job is decided in this store.
    pub has_cut: bool,
    /// Every task.
    pub tasks: Vec<TaskObservation>,
    /// Every split of every source.
    pub sources: Vec<SplitObservation>,
    /// News since the last accepted report.
    pub events: Vec<Event>,
}

/// How an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Restoring, connecting.
    Starting,
    /// Tasks run.
    Running,
    /// Draining.
    Stopping,
    /// Stopped as told; all is decided.
    Stopped,
    /// Bounded inputs ended; all is decided.
    Finished,
    /// Ended by a failure.
    Failed(Failure),
}

/// Counters of one task. Totals restart at 0 with each attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskObservation {
    /// The task.
    pub task: TaskId,
    /// Watermark that it last forwarded, in ms.
    pub watermark_ms: Option<i64>,
    /// Rows in.
    pub rows_in: u64,
    /// Rows out.
    pub rows_out: u64,
    /// Bytes in.
    pub bytes_in: u64,
    /// Bytes out.
    pub bytes_out: u64,
    /// Share of time spent working since the last report.
    pub busy_pct: f64,
    /// Share of time without input.
    pub idle_pct: f64,
    /// Share of time held back by a full edge or sink.
    pub backpressured_pct: f64,
    /// What it reads over edges; empty for a source and for a task inside a chain.
    #[serde(default)]
    pub inputs: Vec<InputObservation>,
    /// Which of its inputs, or of a source's splits, holds its watermark where it is (EV-7).
    #[serde(default)]
    pub held_by: Option<Holder>,
    /// Since when the watermark that it takes in stands where it is, wall clock in ms.
    #[serde(default)]
    pub held_since_ms: Option<i64>,
    /// Rows late for all their windows, dropped or routed.
    pub rows_late: u64,
    /// Those of `rows_late` that come from a single partition; the others an operator has made of rows of several.
    #[serde(default)]
    pub late_of: Vec<LateOf>,
    /// Those of `rows_late` that their stamp did not make late, but whose windows were gone (EV-4).
    #[serde(default)]
    pub rows_retired: u64,
    /// Rows late for some of their windows and in time for others.
    #[serde(default)]
    pub rows_late_partly: u64,
    /// Rows without a time in the column that a window follows, left out.
    #[serde(default)]
    pub rows_invalid: u64,
    /// Rows whose expressions could not be computed, skipped or routed.
    #[serde(default)]
    pub rows_error: u64,
    /// Rows handed to an error sink or a late route.
    #[serde(default)]
    pub rows_routed: u64,
    /// Windows' entries evicted at the bound.
    pub rows_evicted: u64,
    /// Live state entries.
    pub state_rows: u64,
    /// Live state bytes.
    pub state_bytes: u64,
}

/// Late rows of one partition of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateOf {
    /// The source's operator.
    pub source: OperatorId,
    /// Name of the split.
    pub split: String,
    /// How many.
    pub rows: u64,
}

/// What holds a watermark where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The active input or split of this name has the least.
    Input(String),
    /// Every input is idle, and nothing moves it.
    Idle,
    /// Every split of the source is idle, and the clock moves it (EV-8).
    Clock,
}

/// Progress of one input of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputObservation {
    /// The task that it comes from; the operator alone where its lanes are collected in turn.
    pub from: String,
    /// Watermark that came over it, in ms.
    pub watermark_ms: Option<i64>,
    /// Left out of the minimum.
    pub idle: bool,
    /// It has ended.
    pub ended: bool,
}

/// Progress of one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitObservation {
    /// The task that reads it.
    pub task: TaskId,
    /// Split name: `topic/3`, a path.
    pub split: String,
    /// Next position, as text.
    pub position: String,
    /// Records behind the end, where known.
    pub lag: Option<u64>,
    /// Watermark in ms.
    pub watermark_ms: Option<i64>,
    /// Last event time in ms.
    pub last_event_ms: Option<i64>,
    /// Left out of the minimum.
    pub idle: bool,
    /// It has given its last row.
    #[serde(default)]
    pub ended: bool,
    /// Held back: too far ahead of the slowest (EV-9).
    #[serde(default)]
    pub held: bool,
    /// Rows read.
    pub rows_in: u64,
    /// Rows without a time, or behind in a job without windows.
    pub rows_late: u64,
    /// Rows with a NULL event time.
    pub rows_invalid: u64,
    /// Records that could not be decoded.
    pub rows_error: u64,
}

/// Level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "levels are levels")]
pub enum Level {
    Info,
    Warn,
    Error,
}

/// Something that a person may want to know about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Wall clock in ms.
    pub at_ms: i64,
    /// Level.
    pub level: Level,
    /// Snake case: `started`, `restored`, `rows_skipped`, …
    pub kind: String,
    /// One sentence fragment.
    pub message: String,
    /// Operator, where it concerns one.
    pub operator: Option<String>,
    /// How many things it stands for.
    pub count: u64,
}

/// A question about stored rows (ST-2). The agent answers with an Arrow IPC stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// Names the answer.
    pub id: u64,
    /// The job.
    pub job: JobId,
    /// What is read.
    pub target: ReadTarget,
    /// Columns of the answer, as the asker knows them from the plan.
    pub schema: Schema,
    /// Stop after so many rows.
    pub limit: Option<u64>,
    /// The data directory that has the job's rows, filled in by the hub: an agent that runs with another one refuses.
    #[serde(default)]
    pub store_id: Option<String>,
    /// Of result rows: the columns of which only the newest row of each combination is given (WIN-4);
    /// empty for all rows.
    #[serde(default)]
    pub replaces_by: Vec<String>,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadTarget {
    /// The job's result table at the last decided epoch, oldest row first.
    Results,
    /// The live state of an operator at the last decided epoch of each region, or in a checkpoint (ST-1).
    State(Box<StateRead>),
    /// Columns of a source that declares none, from a sample of its input (JOB-6). Nothing is read
    /// for good. The answer is a stream without rows whose schema holds them, or a failure of class
    /// `Retry` where there is no row yet.
    Sample(Box<Source>),
}
