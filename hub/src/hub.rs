//! The handle: one function per verb. Cheap to clone; doors and the in-process link hold one.

use crate::error::Error;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_planner::id::{AgentId, Attempt, Generation, JobId, JobVersion};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AgentRequest, Event, HubResponse, JobObservation, ReadRequest};
use weir_planner::spec::{JobSpec, Sink, Source};

/// How a hub is opened.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Directory of `hub.redb`; made when missing.
    pub data_dir: PathBuf,
    /// Lease of agents (AGT-4).
    pub lease: Duration,
    /// Secret that agents must present; `None` takes any (loopback).
    pub agent_token: Option<String>,
}

/// A named source or sink of the catalog. Its statement is kept for `SHOW CREATE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogEntry {
    /// Folded name.
    pub name: String,
    /// What it is.
    pub object: CatalogObject,
    /// The statement that made it.
    pub sql: String,
    /// Wall clock, ms.
    pub created_at_ms: i64,
}

/// What a catalog entry is; `operator_id` inside is a placeholder that lowering replaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogObject {
    /// `CREATE SOURCE`.
    Source(Box<Source>),
    /// `CREATE SINK`.
    Sink(Box<Sink>),
}

/// A consistent view of the catalog for planning: names to entries, and the jobs' result columns.
#[derive(Clone, Debug, Default)]
pub struct CatalogSnapshot {
    /// Sources and sinks by folded name.
    pub entries: BTreeMap<String, Arc<CatalogEntry>>,
    /// Jobs by name.
    pub jobs: BTreeMap<String, Arc<JobInfo>>,
}

/// What should happen when a name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExists {
    /// Error.
    Fail,
    /// `IF NOT EXISTS`.
    Keep,
    /// `OR REPLACE`: refused while a job uses it.
    Replace,
}

/// What the user wants of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the type says it")]
pub enum DesiredState {
    Running,
    Stopped,
}

/// How a job stands (spec 1.3); `Display` prints the lower-case word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the spec's words")]
pub enum JobState {
    Created,
    Starting,
    Running,
    Degraded,
    Stopping,
    Stopped,
    Failed,
    Finished,
}

/// A job to create.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Every expression bound.
    pub spec: JobSpec,
    /// The statement, for jobs that came by SQL.
    pub sql: Option<String>,
    /// Names of catalog entries that it uses.
    pub uses: Vec<String>,
    /// Start now or not.
    pub desired: DesiredState,
}

/// One job as everybody may see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobInfo {
    /// Name.
    pub id: JobId,
    /// Current version.
    pub version: JobVersion,
    /// Observed.
    pub state: JobState,
    /// Wanted.
    pub desired: DesiredState,
    /// Which intent.
    pub generation: Generation,
    /// Last granted attempt.
    pub attempt: Attempt,
    /// As submitted, without bound forms where printed.
    pub spec: Arc<JobSpec>,
    /// As compiled.
    pub plan: Arc<JobPlan>,
    /// Statement.
    pub sql: Option<String>,
    /// Catalog entries that it uses.
    pub uses: Vec<String>,
    /// Wall clock, ms.
    pub created_at_ms: i64,
    /// Wall clock of the last move to running, ms.
    pub started_at_ms: Option<i64>,
    /// Why it last failed or degraded.
    pub last_error: Option<String>,
    /// Agent that holds it.
    pub agent: Option<AgentId>,
    /// Last report of its current attempt.
    pub observation: Option<Arc<JobObservation>>,
}

/// One event of a job, oldest first in lists; the last 1,000 a job are kept (HUB-5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// The job.
    pub job: JobId,
    /// Agent that told, if one did.
    pub agent: Option<AgentId>,
    /// The event.
    pub event: Event,
}

/// One agent as everybody may see it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentInfo {
    /// Name.
    pub id: AgentId,
    /// `online` or `offline`.
    pub state: &'static str,
    /// Where it can be seen.
    pub address: String,
    /// Weir's version.
    pub version: String,
    /// Announced capabilities.
    pub capabilities: Vec<String>,
    /// Wall clock, ms.
    pub last_seen_at_ms: Option<i64>,
    /// Wall clock, ms.
    pub lease_until_at_ms: Option<i64>,
    /// Last load.
    pub load: weir_planner::protocol::Load,
    /// Tasks that it runs.
    pub tasks: u64,
}

/// What `WAIT FOR JOB` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the statement's words")]
pub enum WaitFor {
    Running,
    Finished,
    Stopped,
}

/// The hub.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<()>,
}

type Result<T> = std::result::Result<T, Error>;

#[allow(unused_variables, clippy::unused_async, reason = "bodies follow")]
impl Hub {
    /// Opens or makes the store and starts the driver on the current tokio runtime.
    pub async fn open(options: HubOptions) -> Result<Hub> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Refuses new work, waits for the driver to end, closes the store. Jobs keep their desired state.
    pub async fn close(&self) {}

    /// The catalog as of now; never blocks on I/O.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        Arc::default()
    }

    /// Adds a source or sink. `Ok(false)` when it was there and kept.
    pub async fn create_entry(&self, entry: CatalogEntry, on_exists: OnExists) -> Result<bool> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Drops a source or sink with `kind` `source` or `sink`. With `cascade` the jobs that use it
    /// are dropped first; their names come back.
    pub async fn drop_entry(&self, kind: &'static str, name: &str, cascade: bool) -> Result<Vec<JobId>> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Compiles, stores spec, plan, desired state and generation in one transaction. Durable when
    /// it returns. The same version with equal content is a no-op; with other content a conflict.
    pub async fn create_job(&self, job: NewJob) -> Result<JobInfo> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Checks and compiles as `create_job` would, and stores nothing (JOB-8).
    pub fn validate(&self, spec: &JobSpec) -> Result<JobPlan> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Changes what is wanted. `if_generation` refuses with a conflict when it has moved on. With
    /// `fresh` a start deletes the job's local cuts and begins empty; refused while running.
    pub async fn set_desired(&self, job: &JobId, desired: DesiredState, if_generation: Option<Generation>, fresh: bool) -> Result<JobInfo> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Stops the job and deletes it with its state and results.
    pub async fn drop_job(&self, job: &JobId) -> Result<()> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// One job.
    pub fn job(&self, job: &JobId) -> Result<Arc<JobInfo>> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// All jobs by id.
    pub fn jobs(&self) -> Vec<Arc<JobInfo>> {
        Vec::new()
    }

    /// Events, of one job or of all, oldest first.
    pub fn events(&self, job: Option<&JobId>) -> Vec<JobEvent> {
        Vec::new()
    }

    /// All known agents by id.
    pub fn agents(&self) -> Vec<AgentInfo> {
        Vec::new()
    }

    /// Waits for a state. Fails at once with the job's last error when it is `failed`; `Finished`
    /// satisfies a wait for `Running`; a wait that runs out is `Error::Timeout`.
    ///
    /// Cancel: safe to drop.
    pub async fn wait(&self, job: &JobId, until: WaitFor, timeout: Duration) -> Result<Arc<JobInfo>> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// One request of an agent: the in-process link and the HTTP door both end here.
    pub async fn agent_call(&self, request: AgentRequest) -> HubResponse {
        HubResponse::Accepted
    }

    /// Passes a read to the agent that holds the job and relays its answer, an Arrow IPC stream, unread.
    pub async fn read(&self, request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes>>> {
        Err(Error::Unavailable("not built yet".to_owned()))
    }

    /// Routes for agents: `POST /agent/v1/call` (JSON of `AgentRequest` to JSON of `HubResponse`)
    /// and `POST /agent/v1/reads/{id}?session=…` (body: the Arrow IPC stream that answers a read,
    /// or status `x-weir-error` header with a message).
    pub fn agent_router(&self) -> axum::Router {
        axum::Router::new()
    }
}
