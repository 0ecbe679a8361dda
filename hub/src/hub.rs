//! The handle: one function per verb. Cheap to clone; doors and the in-process link hold one.

use crate::clock::{Clock, Now, SystemClock};
use crate::drive::{Driver, Finish, Message, QUEUE_MAX, Wakers};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::read::{Body, Relay};
use crate::reconcile::other_store;
use crate::store::{Store, Stored, assemble};
use crate::view::View;
use crate::world::World;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use weir_planner::error::{Class, Place};
use weir_planner::id::{AgentId, Attempt, Generation, JobId, JobVersion};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AgentRequest, Event, HubResponse, JobObservation, ReadRequest, Refusal};
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

impl JobState {
    /// Every state, in the order of a job's life.
    pub const ALL: [JobState; 8] = [
        JobState::Created,
        JobState::Starting,
        JobState::Running,
        JobState::Degraded,
        JobState::Stopping,
        JobState::Stopped,
        JobState::Failed,
        JobState::Finished,
    ];
}

impl fmt::Display for DesiredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DesiredState::Running => "running",
            DesiredState::Stopped => "stopped",
        })
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Created => "created",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Degraded => "degraded",
            JobState::Stopping => "stopping",
            JobState::Stopped => "stopped",
            JobState::Failed => "failed",
            JobState::Finished => "finished",
        })
    }
}

/// A job to create.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Every expression bound, but for those that read columns which are not known yet (JOB-6).
    pub spec: JobSpec,
    /// The statement, for jobs that came by SQL.
    pub sql: Option<String>,
    /// Names of catalog entries that it uses.
    pub uses: Vec<String>,
    /// The `streams:` entry that it was compiled from, as JSON text, for jobs that are streams (STR-1).
    pub stream: Option<String>,
    /// Start now or not.
    pub desired: DesiredState,
    /// Where the fields of the spec stand in the text that was submitted, by path: for faults that show
    /// only when a source has been sampled (JOB-6). Empty where there was no text.
    pub places: BTreeMap<String, Place>,
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
    /// As submitted, without bound forms where printed; with the columns that were taken from the
    /// first rows of its sources, once they were.
    pub spec: Arc<JobSpec>,
    /// As submitted, where sampling has completed `spec` since.
    pub submitted: Option<Arc<JobSpec>>,
    /// As compiled; `None` while columns of a source are not known (JOB-6).
    pub plan: Option<Arc<JobPlan>>,
    /// Statement.
    pub sql: Option<String>,
    /// Catalog entries that it uses.
    pub uses: Vec<String>,
    /// The `streams:` entry that it was compiled from, as JSON text, secrets included.
    pub stream: Option<String>,
    /// Wall clock, ms.
    pub created_at_ms: i64,
    /// Wall clock of the last move to running, ms.
    pub started_at_ms: Option<i64>,
    /// Why it last failed or degraded.
    pub last_error: Option<String>,
    /// Agent that holds it.
    pub agent: Option<AgentId>,
    /// Data directory of that agent which has its state and results.
    pub store_id: Option<String>,
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
    /// Data directory that it runs with, or ran with last.
    pub store_id: String,
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

impl fmt::Display for WaitFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitFor::Running => "running",
            WaitFor::Finished => "finished",
            WaitFor::Stopped => "stopped",
        })
    }
}

/// The hub.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    requests: mpsc::Sender<Message>,
    view: watch::Receiver<Arc<View>>,
    wakers: Arc<Wakers>,
    reads: Arc<Relay>,
    clock: Arc<dyn Clock>,
    closing: watch::Sender<bool>,
    driver: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

mod checkpoint;
mod sample;
mod wait;

pub use checkpoint::StartFrom;
pub use sample::Binder;

type Result<T> = std::result::Result<T, Error>;

fn closed() -> Error {
    Error::Unavailable("the hub is shutting down".to_owned())
}

impl Hub {
    /// Opens or makes the store and starts the driver on the current tokio runtime.
    ///
    /// Errors: `Error::Store` when the file is in use, damaged or cannot be written.
    pub async fn open(options: HubOptions) -> Result<Hub> {
        Hub::open_at(options, Arc::new(SystemClock::new())).await
    }

    /// As `open`, by a given clock.
    pub async fn open_at(options: HubOptions, clock: Arc<dyn Clock>) -> Result<Hub> {
        let data_dir = options.data_dir.clone();
        let opened = tokio::task::spawn_blocking(move || Store::open(&data_dir)).await;
        let (store, stored) = opened.map_err(|e| Error::Store { message: format!("opening broke off: {e}"), class: Class::Bug })??;
        Hub::start(store, stored, options, clock)
    }

    /// Starts the driver over what was stored.
    pub(crate) fn start(store: Store, mut stored: Stored, options: HubOptions, clock: Arc<dyn Clock>) -> Result<Hub> {
        let HubOptions { data_dir: _, lease, agent_token } = options;
        let agents = std::mem::take(&mut stored.agents);
        let world = assemble(stored, Fleet::load(agents, lease, agent_token, clock.now()))?;
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        let (publish, view) = watch::channel(Arc::new(View::of(&world)));
        let (closing, closing_seen) = watch::channel(false);
        let wakers = Arc::new(Wakers::default());
        let driver = Driver {
            world,
            store: Arc::new(store),
            requests: queue,
            view: publish,
            wakers: wakers.clone(),
            clock: clock.clone(),
            closing: closing_seen,
        };
        let driver = tokio::sync::Mutex::new(Some(tokio::spawn(driver.run())));
        Ok(Hub { inner: Arc::new(Inner { requests, view, wakers, reads: Arc::default(), clock, closing, driver }) })
    }

    /// Refuses new work, waits for the driver to end, closes the store. Jobs keep their desired state.
    pub async fn close(&self) {
        self.inner.closing.send_replace(true);
        if let Some(driver) = self.inner.driver.lock().await.take()
            && let Err(e) = driver.await
        {
            tracing::error!(error = %e, "the hub's driver broke off");
        }
    }

    /// The catalog as of now; never blocks on I/O.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        self.view().catalog.clone()
    }

    /// Adds a source or sink. `Ok(false)` when it was there and kept.
    pub async fn create_entry(&self, entry: CatalogEntry, on_exists: OnExists) -> Result<bool> {
        self.change(move |world, _| world.create_entry(entry, on_exists)).await
    }

    /// Drops a source or sink with `kind` `source` or `sink`. With `cascade` the jobs that use it
    /// are dropped first; their names come back.
    pub async fn drop_entry(&self, kind: &'static str, name: &str, cascade: bool) -> Result<Vec<JobId>> {
        let name = name.to_owned();
        let dropped = self.change(move |world, _| world.drop_entry(kind, &name, cascade)).await?;
        self.forgotten(&dropped).await;
        Ok(dropped)
    }

    /// Compiles, where all columns are known, and stores spec, plan, desired state and generation in one transaction. Durable when
    /// it returns. The same version with equal content is a no-op; with other content a conflict.
    pub async fn create_job(&self, job: NewJob) -> Result<JobInfo> {
        let plan = self.validate(&job.spec)?;
        let id = job.spec.id.clone();
        self.change(move |world, now| world.create_job(job, plan, now)).await?;
        self.job(&id).map(|info| info.as_ref().clone())
    }

    /// Changes what is wanted. Refused when `if_generation` has moved on, or a job that runs is to begin from something else.
    pub async fn set_desired(
        &self,
        job: &JobId,
        desired: DesiredState,
        if_generation: Option<Generation>,
        from: StartFrom,
    ) -> Result<JobInfo> {
        let id = job.clone();
        self.change(move |world, now| world.set_desired(&id, desired, if_generation, from, now)).await?;
        self.job(job).map(|info| info.as_ref().clone())
    }

    /// Stops the job and deletes it with its state and results. The job is gone from every list at
    /// once; when its agent is online, this also waits (10 s at most) until nothing of it runs or
    /// is left there. An agent that is offline deletes it when it returns.
    pub async fn drop_job(&self, job: &JobId) -> Result<()> {
        let id = job.clone();
        self.change(move |world, _| world.drop_job(&id)).await?;
        self.forgotten(std::slice::from_ref(job)).await;
        Ok(())
    }

    /// One job.
    pub fn job(&self, job: &JobId) -> Result<Arc<JobInfo>> {
        self.view().job(job).cloned().ok_or_else(|| no_job(job))
    }

    /// All jobs by id.
    pub fn jobs(&self) -> Vec<Arc<JobInfo>> {
        self.view().catalog.jobs.values().cloned().collect()
    }

    /// Events, of one job or of all, oldest first.
    pub fn events(&self, job: Option<&JobId>) -> Vec<JobEvent> {
        self.view().events_of(job)
    }

    /// All known agents by id.
    pub fn agents(&self) -> Vec<AgentInfo> {
        self.view().agents.values().map(|agent| agent.as_ref().clone()).collect()
    }

    /// One request of an agent: the in-process link and the HTTP door both end here.
    pub async fn agent_call(&self, request: AgentRequest) -> HubResponse {
        let answer = match request {
            AgentRequest::Register(request) => {
                let session = uuid::Uuid::new_v4().to_string();
                self.change(move |world, now| Ok(world.register(&request, session, now))).await
            }
            AgentRequest::NextCommands(request) => self.next_commands(request).await,
            AgentRequest::CommandDone(done) => self.change(move |world, now| Ok(world.command_done(&done, now))).await,
            AgentRequest::Report(report) => {
                let renews = Some(report.session.clone());
                self.change_renewing(renews, move |world, now| Ok(world.report(&report, now))).await
            }
            AgentRequest::NextRead(request) => self.next_read(request).await,
            AgentRequest::CheckpointDone(done) => self.change(move |world, now| Ok(world.checkpoint_done(&done, now))).await,
        };
        answer.unwrap_or_else(|error| HubResponse::Refused(Refusal { class: Class::Retry, message: error.to_string() }))
    }

    /// Passes a read to the agent that holds the job and relays its answer, an Arrow IPC stream, unread.
    ///
    /// Errors: no such job; the job was never started; its agent is offline, does not answer
    /// within 30 s, or says why it cannot.
    pub async fn read(&self, mut request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes>>> {
        let info = self.job(&request.job)?;
        let Some(agent) = info.agent.clone() else {
            return Err(Error::Unavailable(format!("job '{}' has not run yet, so there is nothing to read", info.id)));
        };
        match (self.view().agents.get(&agent), &info.store_id) {
            // Another data directory would answer with an empty table (C51).
            (Some(found), Some(store_id)) if found.state == "online" && found.store_id != *store_id => {
                return Err(Error::Unavailable(other_store(&agent, store_id, &found.store_id)));
            }
            (Some(found), _) if found.state == "online" => {}
            (Some(_) | None, _) => return Err(Error::Unavailable(format!("agent '{agent}', which holds job '{}', is offline", info.id))),
        }
        // The agent may be replaced before it takes the question: then it is the agent that refuses.
        request.store_id.clone_from(&info.store_id);
        let mut closing = self.inner.closing.subscribe();
        tokio::select! {
            answer = self.inner.reads.ask(agent, request, self.inner.clock.clone()) => answer,
            _ = closing.wait_for(|closing| *closing) => Err(closed()),
        }
    }

    /// Takes an agent's answer to a read and passes it on until it ends or its reader leaves.
    ///
    /// An `Err` piece ends the answer, and the reader gets it as an error.
    ///
    /// Errors: the session has ended.
    /// Cancel: safe to drop; the reader sees the answer break off.
    pub async fn read_answer(&self, session: &str, id: u64, body: Body) -> Result<()> {
        let agent = self.view().sessions.get(session).cloned();
        let agent = agent.ok_or_else(|| Error::Conflict("this session has ended: register again".to_owned()))?;
        let mut closing = self.inner.closing.subscribe();
        tokio::select! {
            () = self.inner.reads.answer(&agent, id, body) => Ok(()),
            _ = closing.wait_for(|closing| *closing) => Err(closed()),
        }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.inner.view.borrow().clone()
    }

    async fn change<R: Send + 'static>(&self, act: impl FnOnce(&mut World, Now) -> Result<R> + Send + 'static) -> Result<R> {
        self.change_renewing(None, act).await
    }

    async fn change_renewing<R: Send + 'static>(
        &self,
        renews: Option<String>,
        act: impl FnOnce(&mut World, Now) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        if *self.inner.closing.borrow() {
            return Err(closed());
        }
        let (answer, answered) = oneshot::channel();
        let act = Box::new(move |world: &mut World, now: Now| {
            let done = act(world, now);
            // Whoever asked may have left; the change stands all the same.
            Box::new(move |stored: Result<()>| drop(answer.send(stored.and(done)))) as Finish
        });
        self.inner.requests.send(Message { act, renews }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

fn no_job(job: &JobId) -> Error {
    Error::NotFound { kind: "job", name: job.to_string() }
}

#[cfg(test)]
mod tests;
