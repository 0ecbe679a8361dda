//! Life of the process: one data directory, its shards, its decisions, and the jobs it holds.

use crate::checkpoint::round::{self, Ask, Wanted};
use crate::checkpoint::store::StateStore;
use crate::checkpoint::upload::{Sweep, sweep};
use crate::clock::SystemClock;
use crate::decision::{Decisions, JobRecord, KeptSpec};
use crate::error::Error;
use crate::gauge::ProcessGauge;
use crate::link::ReadStream;
use crate::read;
use crate::reconcile::{Held, OnStart, OnStop, on_start, on_stop};
use crate::region::{JobDirs, blocking};
use crate::runner::attempt::{Attempt, Order, superseded};
use crate::runner::{self, Connectors, Context, Options};
use crate::sample;
use crate::secret::{Environment, Secrets};
use crate::shard::Shards;
use crate::wal;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use weir_kernel::chain::OPEN_EPOCH_BYTES_MAX;
use weir_kernel::io::Clock;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt as AttemptId, CheckpointId, Generation, JobId};
use weir_planner::manifest::{CheckpointKind, Manifest};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{Failure, JobObservation, Load, PROTOCOL_VERSION, ReadRequest, ReadTarget, Register, RunningAttempt, Start};

/// How long a checkpoint of a job that has stopped may take.
const CHECKPOINT_OF_STOPPED: Duration = Duration::from_secs(300);
/// Seals that may wait to be asked for.
const ASKS_MAX: usize = 64;
/// Segments that are written or merged at once, over all jobs.
const SNAPSHOTS_AT_ONCE: usize = 2;

/// How an agent is opened.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Stable name.
    pub agent: AgentId,
    /// Where decisions, state and results live; made when missing.
    pub data_dir: PathBuf,
    /// Where the agent can be seen, for people.
    pub address: String,
    /// Shared secret for the hub.
    pub token: Option<String>,
    /// Threads that step chains; `None`: one for each core.
    pub shards: Option<usize>,
    /// URL of the state store.
    pub state_url: Checkpoints,
    /// Where `${env:NAME}` of connector options is looked up.
    pub environment: Environment,
}

/// Where an agent keeps checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// Nowhere: it makes none.
    Nowhere,
    /// In a directory below its data directory.
    Here,
    /// Below this URL.
    At(String),
}

struct Inner {
    options: AgentOptions,
    boot_id: String,
    /// The highest attempt of any job when the directory was opened.
    last_attempt: AttemptId,
    context: Arc<Context>,
    jobs: Mutex<BTreeMap<JobId, Job>>,
    closing: watch::Sender<bool>,
    changed: watch::Sender<u64>,
    asks: flume::Receiver<Ask>,
    process: Mutex<ProcessGauge>,
}

/// The last attempt of a job here and the task that runs it.
struct Job {
    attempt: Arc<Attempt>,
    task: Option<JoinHandle<()>>,
}

impl Job {
    fn held(&self) -> Held {
        Held { attempt: self.attempt.id, over: self.attempt.is_over() }
    }
}

/// A worker. Cheap to clone. [`Agent::shutdown`] ends it.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

impl Agent {
    /// Opens the data directory and starts the threads. Runs jobs on the current tokio runtime.
    ///
    /// Errors: `User` when another process holds the directory; see [`Decisions::open`].
    pub async fn open(options: AgentOptions) -> Result<Agent, Error> {
        Agent::open_with(options, Arc::new(Options)).await
    }

    /// Like [`Agent::open`], with other connectors than those of the options.
    pub async fn open_with(options: AgentOptions, connectors: Arc<dyn Connectors>) -> Result<Agent, Error> {
        Agent::open_bounded(options, connectors, OPEN_EPOCH_BYTES_MAX).await
    }

    /// Like [`Agent::open_with`], with another bound for what a source task gives between two
    /// barriers (EPO-6).
    pub async fn open_bounded(options: AgentOptions, connectors: Arc<dyn Connectors>, open_epoch_bytes: u64) -> Result<Agent, Error> {
        let data_dir = options.data_dir.clone();
        let (decisions, last_attempt) = blocking(move || {
            let decisions = Decisions::open(&data_dir)?;
            let last = decisions.last_attempt()?;
            Ok((decisions, last))
        })
        .await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = Shards::start(options.shards.unwrap_or_else(cores), &clock)?;
        let store = match &options.state_url {
            Checkpoints::Nowhere => None,
            Checkpoints::Here => {
                let dir = std::path::absolute(options.data_dir.join("checkpoints"));
                let dir = dir.map_err(|e| Error::because(Class::Retry, format!("data directory {}", options.data_dir.display()), e))?;
                Some(StateStore::at(&dir)?)
            }
            Checkpoints::At(url) => Some(StateStore::open(url, options.environment)?),
        };
        let (ask, asks) = flume::bounded(ASKS_MAX);
        let context = Context {
            store,
            asks: ask,
            decisions,
            shards,
            clock,
            data_dir: options.data_dir.clone(),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE)),
            connectors,
            open_epoch_bytes,
            merge: weir_kernel::state::merge_images,
            replacements: Mutex::default(),
        };
        let inner = Inner {
            options,
            boot_id: uuid::Uuid::new_v4().to_string(),
            last_attempt,
            context: Arc::new(context),
            jobs: Mutex::default(),
            closing: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            asks,
            process: Mutex::default(),
        };
        Ok(Agent { inner: Arc::new(inner) })
    }

    /// Whose local cuts these are (EPO-9).
    pub fn store_id(&self) -> &str {
        self.inner.context.decisions.store_id()
    }

    /// The last attempt of a job that was opened here, 0 when there was none: where nobody else
    /// grants attempts, the next one follows it.
    pub fn last_attempt(&self, job: &JobId) -> Result<AttemptId, Error> {
        Ok(self.inner.context.decisions.job(job)?.map(|j| j.attempt).unwrap_or_default())
    }

    /// The spec that was kept of a job (`weir run`, where no hub keeps it).
    pub async fn kept_spec(&self, job: &JobId) -> Result<Option<KeptSpec>, Error> {
        let (context, job) = (self.inner.context.clone(), job.clone());
        blocking(move || context.decisions.kept_spec(&job)).await
    }

    /// Keeps the spec of a job durably, until the job is forgotten.
    pub async fn keep_spec(&self, spec: KeptSpec) -> Result<(), Error> {
        let context = self.inner.context.clone();
        blocking(move || context.decisions.keep_spec(&spec.submitted.id, &spec)).await
    }

    /// Whether anything of the job was decided in this directory.
    pub async fn has_cut(&self, job: &JobId) -> Result<bool, Error> {
        let (context, job) = (self.inner.context.clone(), job.clone());
        blocking(move || Ok(!context.decisions.regions(&job)?.is_empty())).await
    }

    /// Whether a start of this plan could go on from the job's local cut, without starting anything;
    /// true as well where there is none.
    ///
    /// Errors: `User` for an older version, or for tasks that the cut cannot be given to (CKP-7, CKP-8).
    pub async fn check_cut(&self, plan: &JobPlan) -> Result<(), Error> {
        let (context, id) = (self.inner.context.clone(), plan.job.clone());
        let record = JobRecord::of(plan, AttemptId::default());
        blocking(move || context.decisions.check_cut(&record, &id)).await
    }

    /// Begins an attempt. `Ok` means that it is under way, was before, or has ended: how it goes is
    /// observed. Must be called on the runtime that runs the jobs.
    ///
    /// Errors: `Fenced` for an attempt below the one held; `Retry` while shutting down.
    pub fn start(&self, job: &JobId, generation: Generation, start: Start) -> Result<(), Error> {
        let mut jobs = self.inner.jobs.lock();
        if *self.inner.closing.borrow() {
            return Err(Error::new(Class::Retry, format!("job {job}: agent {} is shutting down", self.inner.options.agent)));
        }
        let before = match on_start(jobs.get(job).map(Job::held), start.attempt) {
            OnStart::Done => return Ok(()),
            OnStart::Fenced { by } => {
                return Err(Error::new(Class::Fenced, format!("job {job}: attempt {} comes after attempt {by}", start.attempt)));
            }
            OnStart::Begin { stop } => {
                let before = jobs.get(job).map(|j| j.attempt.clone());
                if let (Some(_), Some(before)) = (stop, &before) {
                    before.order(superseded(start.attempt));
                }
                before
            }
        };
        let secrets = Secrets::new(self.inner.options.environment);
        let attempt = Attempt::new(job.clone(), start.attempt, generation, Arc::new(start.plan), self.inner.changed.clone(), secrets);
        let attempt = Arc::new(attempt);
        let task = tokio::spawn(runner::run(self.inner.context.clone(), attempt.clone(), start.restore, before));
        jobs.insert(job.clone(), Job { attempt, task: Some(task) });
        drop(jobs);
        self.inner.changed.send_modify(|n| *n = n.wrapping_add(1));
        Ok(())
    }

    /// Stops this attempt and older ones: no more input, one last epoch, everything closed when it
    /// returns. Cancel: safe, the stop goes on.
    pub async fn stop(&self, job: &JobId, attempt: AttemptId) {
        if let Some(held) = self.end(job, attempt, Order::Drain) {
            held.until_over().await;
        }
    }

    /// Gives an order to the attempt that a stop of `attempt` concerns.
    fn end(&self, job: &JobId, attempt: AttemptId, order: Order) -> Option<Arc<Attempt>> {
        let jobs = self.inner.jobs.lock();
        let held = jobs.get(job)?;
        match on_stop(Some(held.held()), attempt) {
            OnStop::End(_) => {
                held.attempt.order(order);
                Some(held.attempt.clone())
            }
            OnStop::Done | OnStop::LeaveAlone => None,
        }
    }

    /// Begins a checkpoint of this attempt: of what it decides next while it runs, else of what it has decided last. How it
    /// ends is told to whoever seals.
    ///
    /// Errors: `Fenced` for an attempt that is not the last one here; `User` where there is no state store.
    pub fn checkpoint(&self, job: &JobId, attempt: AttemptId, id: CheckpointId, kind: CheckpointKind) -> Result<(), Error> {
        let context = &self.inner.context;
        let nowhere = || Error::new(Class::User, format!("job {job}: agent {} has no state store", self.inner.options.agent));
        let means = context.means(job).ok_or_else(nowhere)?;
        let held = self.inner.jobs.lock().get(job).map(|j| j.attempt.clone());
        match held {
            Some(held) if held.id != attempt => {
                Err(Error::new(Class::Fenced, format!("job {job}: attempt {attempt} is not the last one here, which is {}", held.id)))
            }
            Some(held) if held.ask_checkpoint(id, kind) => Ok(()),
            Some(_) | None => {
                let started_at_ms = context.clock.wall_ms();
                let timeout = CHECKPOINT_OF_STOPPED;
                let wanted = Wanted { job: job.clone(), attempt, id: Some(id), kind, started_at_ms, align_ms: 0, timeout };
                tokio::spawn(async move {
                    if let Err(error) = round::make(&means, &wanted, &BTreeMap::new()).await {
                        tracing::warn!(job = %wanted.job, error = %error.to_failure().message, "checkpoint failed");
                    }
                });
                Ok(())
            }
        }
    }

    /// Seals that are asked for. Whoever takes one sends it to the hub; one that is dropped is asked for again.
    pub fn asks(&self) -> flume::Receiver<Ask> {
        self.inner.asks.clone()
    }

    /// Stops at once what runs of the job up to `attempt`, and deletes its state, decisions and
    /// results, and what is in the state store but for what `retained` need.
    ///
    /// Errors: `Fenced` when a newer attempt was opened; `Retry` when the disk refuses.
    pub async fn forget(&self, job: &JobId, attempt: AttemptId, retained: Option<&[Manifest]>) -> Result<(), Error> {
        let why = Failure { class: Class::Fenced, message: format!("job {job} is dropped") };
        if let Some(held) = self.end(job, attempt, Order::Abort(why)) {
            held.until_over().await;
        }
        let (context, id) = (self.inner.context.clone(), job.clone());
        blocking(move || {
            context.decisions.forget(&id, attempt)?;
            let dir = JobDirs::of(&context.data_dir, &id).job;
            match std::fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::because(Class::Retry, format!("job {id}: delete {}", dir.display()), error))
                }
                Ok(()) | Err(_) => Ok(()),
            }
        })
        .await?;
        if let (Some(store), Some(retained)) = (&self.inner.context.store, retained) {
            sweep(store, job, attempt, Sweep::All, retained).await?;
            wal::object::forget(store, job, attempt).await?;
        }
        let mut jobs = self.inner.jobs.lock();
        if jobs.get(job).is_some_and(|j| j.attempt.id <= attempt) {
            jobs.remove(job);
        }
        Ok(())
    }

    /// Closes everything at once, without a last epoch: the right to run is gone (AGT-4). The jobs
    /// are observed as failed with `Retry`. Returns when all is closed.
    pub async fn fence(&self, why: &str) {
        let attempts = self.attempts();
        for attempt in &attempts {
            attempt.order(Order::Abort(Failure { class: Class::Retry, message: format!("job {}: {why}", attempt.job) }));
        }
        for attempt in attempts {
            attempt.until_over().await;
        }
    }

    fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.inner.jobs.lock().values().map(|j| j.attempt.clone()).collect()
    }

    /// Every job attempt that is held, or was last.
    pub fn observe(&self) -> Vec<JobObservation> {
        let now_ns = self.inner.context.clock.monotonic_ns();
        self.attempts().iter().map(|a| a.observe(now_ns)).collect()
    }

    /// The events in these observations have arrived: they are not told again.
    pub fn acknowledge(&self, observations: &[JobObservation]) {
        let attempts = self.attempts();
        for seen in observations {
            if let Some(attempt) = attempts.iter().find(|a| a.job == seen.job && a.id == seen.attempt) {
                attempt.acknowledge(&seen.events);
            }
        }
    }

    /// Load of the process, CPU since the last call.
    pub fn load(&self) -> Load {
        self.inner.process.lock().read()
    }

    /// Changes whenever an observation is worth telling at once.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Becomes true when [`Agent::shutdown`] begins.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    /// How this agent registers. It names what runs and also what has ended: the hub may not have
    /// heard how, and must not start it again before it has.
    pub fn registration(&self) -> Register {
        let options = &self.inner.options;
        let held = |a: &Arc<Attempt>| RunningAttempt { job: a.job.clone(), attempt: a.id };
        let attempts = self.attempts();
        Register {
            agent: options.agent.clone(),
            protocol: PROTOCOL_VERSION,
            boot_id: self.inner.boot_id.clone(),
            store_id: self.store_id().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: vec!["job_runtime".to_owned(), "state_backend".to_owned()],
            address: options.address.clone(),
            token: options.token.clone(),
            running: attempts.iter().map(held).collect(),
            last_attempt: attempts.iter().map(|a| a.id).fold(self.inner.last_attempt, AttemptId::max),
            state_url: self.inner.context.store.as_ref().map(|store| store.url().to_owned()).unwrap_or_default(),
            embedded: false,
        }
    }

    /// Starts an answer to a read; see [`read::read`].
    pub async fn read(&self, request: ReadRequest) -> Result<ReadStream, Error> {
        let context = &self.inner.context;
        if let ReadTarget::Sample(source) = request.target {
            return sample::answer(Secrets::new(self.inner.options.environment), request.job, *source).await;
        }
        let dirs = JobDirs::of(&context.data_dir, &request.job);
        read::read(context.decisions.clone(), dirs, request).await
    }

    /// Stops intake of every job, decides the last epochs, closes everything. Jobs that have not
    /// ended `within` are closed without their last epoch; what is decided stays decided. Idempotent.
    pub async fn shutdown(&self, within: Duration) {
        self.inner.closing.send_replace(true);
        let attempts = self.attempts();
        attempts.iter().for_each(|a| a.order(Order::Drain));
        let drained = async {
            for attempt in &attempts {
                attempt.until_over().await;
            }
        };
        if tokio::time::timeout(within, drained).await.is_err() {
            tracing::warn!(seconds = within.as_secs(), "jobs did not stop in time and are closed without their last epoch");
            self.fence("closed at shutdown before its last epoch was decided").await;
        }
        let tasks: Vec<JoinHandle<()>> = self.inner.jobs.lock().values_mut().filter_map(|j| j.task.take()).collect();
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "the task of an attempt panicked");
            }
        }
        let context = self.inner.context.clone();
        let closed = blocking(move || {
            context.shards.stop();
            context.decisions.close();
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::error!(error = %error.to_failure().message, "shutdown");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
