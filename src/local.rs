//! `weir run FILE`: jobs of a file on an agent of this process, without a hub (STR-6).

mod admit;
mod columns;

use crate::config::RunConfig;
use crate::control::on_control;
use crate::document::{self, Load, Loaded};
use crate::signal::Stop;
use crate::stack::{DRAIN, DataDir, EMBEDDED_AGENT};
use admit::{Ready, Refused};
use anyhow::Context;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::agent::{Agent, AgentOptions, Checkpoints};
use weir_planner::id::{AgentId, Attempt, Generation, JobId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AttemptState, CutGrant, Failure, JobObservation, LocalGrant, Restore, Start};
use weir_planner::spec::{AfterFailure, Failures, Restart};

/// Exit code of a job that failed, or could not be built.
const FAILED: u8 = 1;
/// Exit code of a file that is invalid, by itself or beside what ran here before.
const INVALID: u8 = 2;

/// Runs every job of the file. The code is 0 when all finished or SIGTERM came, 1 when one could
/// not be built or failed, 2 when the file is invalid or does not go with what the data directory holds.
pub fn run_file(config: &RunConfig) -> anyhow::Result<ExitCode> {
    let loaded = match document::load(&config.file)? {
        Load::Jobs(jobs) => jobs,
        Load::Invalid => return Ok(ExitCode::from(INVALID)),
        Load::Unbuildable => return Ok(ExitCode::from(FAILED)),
    };
    let _lock = DataDir::lock(&config.data_dir)?;
    on_control(async {
        let mut stop = Stop::listen()?;
        let agent = Agent::open(AgentOptions {
            agent: AgentId::new(EMBEDDED_AGENT).map_err(|fault| anyhow::anyhow!("{fault}"))?,
            data_dir: config.data_dir.join("run"),
            address: "in process".to_owned(),
            token: None,
            shards: config.shards,
            state_url: Checkpoints::Nowhere,
            environment: crate::config::variable,
        })
        .await?;
        let mut jobs = Jobs { agent: agent.clone(), held: BTreeMap::new(), retry: config.retry };
        let code = tokio::select! {
            code = jobs.run(&loaded, config) => code,
            () = stop.first() => Ok(ExitCode::SUCCESS),
        };
        stop.then_exit();
        // Whatever the end, what runs decides its last epoch and closes: nothing is left half open.
        agent.shutdown(DRAIN).await;
        Ok(if jobs.note_last() { code? } else { ExitCode::from(FAILED) })
    })
}

/// One job of the file and its tries.
struct Held {
    plan: JobPlan,
    restart: Restart,
    attempt: Attempt,
    failures: Failures,
    /// Since when the attempt has been seen running.
    running_since: Option<Instant>,
    /// When the next attempt is due, while one is.
    due: Option<Instant>,
    /// Its failure has been told, and no attempt follows.
    failed: bool,
    finished: bool,
}

struct Jobs {
    agent: Agent,
    held: BTreeMap<JobId, Held>,
    retry: bool,
}

impl Jobs {
    /// Starts every job, or none when one may not start here, and follows them.
    async fn run(&mut self, loaded: &[Loaded], config: &RunConfig) -> anyhow::Result<ExitCode> {
        if !admit::versions(&self.agent, loaded, config).await? {
            return Ok(ExitCode::from(INVALID));
        }
        let (known, open): (Vec<&Loaded>, Vec<&Loaded>) = loaded.iter().partition(|job| job.plan.is_some());
        if let Some(code) = self.admitted(admit::all(&self.agent, &known, config).await?, config).await? {
            return Ok(code);
        }
        // A job whose columns are still to be taken from rows holds up no other one, which may be where
        // those rows come from.
        let agent = self.agent.clone();
        let one = |job| {
            let agent = &agent;
            async move { admit::all(agent, &[job], config).await }
        };
        let mut waiting: FuturesUnordered<_> = open.into_iter().map(one).collect();
        self.drive(&mut waiting, config).await
    }

    /// Starts the jobs that may; the exit code when one may not.
    async fn admitted(&mut self, outcome: Result<Vec<Ready>, Refused>, config: &RunConfig) -> anyhow::Result<Option<ExitCode>> {
        match outcome {
            Ok(ready) => {
                for job in ready {
                    self.start(job, config.fresh).await?;
                }
                Ok(None)
            }
            Err(Refused::Invalid) => Ok(Some(ExitCode::from(INVALID))),
            Err(Refused::Unbuildable) => Ok(Some(ExitCode::from(FAILED))),
        }
    }

    async fn start(&mut self, job: Ready, fresh: bool) -> anyhow::Result<()> {
        let Ready { spec, plan } = job;
        let id = plan.job.clone();
        let last = self.agent.last_attempt(&id)?;
        if fresh {
            // State and kept spec go together, so that no crash leaves one without the other.
            self.agent.forget(&id, last, Some(&[])).await?;
        }
        let restart = spec.bound.restart.clone();
        self.agent.keep_spec(spec).await?;
        let attempt = last.next();
        self.agent.start(&id, generation(attempt), Start { attempt, plan: plan.clone(), restore: self.local() })?;
        let held =
            Held { plan, restart, attempt, failures: Failures::default(), running_since: None, due: None, failed: false, finished: false };
        self.held.insert(id, held);
        Ok(())
    }

    fn local(&self) -> Restore {
        Restore::Cut(Box::new(CutGrant {
            local: Some(LocalGrant { store_id: self.agent.store_id().to_owned(), since: None, must_exist: false }),
            checkpoints: Vec::new(),
        }))
    }

    /// Until all finished or one failed for good; `waiting` are jobs that start later.
    async fn drive<W>(&mut self, waiting: &mut FuturesUnordered<W>, config: &RunConfig) -> anyhow::Result<ExitCode>
    where
        W: Future<Output = anyhow::Result<Result<Vec<Ready>, Refused>>>,
    {
        let mut changed = self.agent.changed();
        loop {
            // Read before observing, so that a change in between is seen by the next turn.
            changed.borrow_and_update();
            let observations = self.agent.observe();
            for observed in &observations {
                self.note(observed);
            }
            self.agent.acknowledge(&observations);
            if self.held.values().any(|held| held.failed) {
                return Ok(ExitCode::from(FAILED));
            }
            self.start_due()?;
            if waiting.is_empty() && self.held.values().all(|held| held.finished) {
                return Ok(ExitCode::SUCCESS);
            }
            let due = self.held.values().filter_map(|held| held.due).min();
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                Some(outcome) = waiting.next() => {
                    if let Some(code) = self.admitted(outcome?, config).await? {
                        return Ok(code);
                    }
                }
                change = changed.changed() => change.context("the agent is gone")?,
            }
        }
    }

    /// Takes note of one job: tells its events, and what became of its attempt.
    fn note(&mut self, observed: &JobObservation) {
        let Some(held) = self.held.get_mut(&observed.job) else { return };
        if observed.attempt != held.attempt {
            return;
        }
        for event in &observed.events {
            eprintln!("weir: job {}: {}", observed.job, event.message);
        }
        match &observed.state {
            AttemptState::Starting | AttemptState::Stopping | AttemptState::Stopped => {}
            AttemptState::Running => {
                held.running_since.get_or_insert_with(Instant::now);
            }
            AttemptState::Finished => held.finished = true,
            AttemptState::Failed(failure) if held.due.is_none() && !held.failed => {
                eprintln!("weir: job {} failed: {}", observed.job, failure.message);
                match pause_after(held, failure, self.retry) {
                    Some(pause) => held.due = Some(Instant::now() + pause),
                    None => held.failed = true,
                }
            }
            AttemptState::Failed(_) => {}
        }
    }

    /// Takes note of how the jobs ended, once everything is closed; false when one failed, by now
    /// or in its last epoch.
    fn note_last(&mut self) -> bool {
        self.retry = false;
        for observed in self.agent.observe() {
            self.note(&observed);
        }
        !self.held.values().any(|held| held.failed)
    }

    fn start_due(&mut self) -> anyhow::Result<()> {
        let restore = self.local();
        let now = Instant::now();
        for (job, held) in &mut self.held {
            if held.due.is_some_and(|due| due <= now) {
                held.due = None;
                held.running_since = None;
                held.attempt = held.attempt.next();
                let start = Start { attempt: held.attempt, plan: held.plan.clone(), restore: restore.clone() };
                self.agent.start(job, generation(held.attempt), start)?;
            }
        }
        Ok(())
    }
}

/// Nobody changes intents here: each attempt stands for its own.
fn generation(attempt: Attempt) -> Generation {
    Generation::new(attempt.get())
}

/// How long to wait before another attempt; `None` when there shall be none.
fn pause_after(held: &mut Held, failure: &Failure, retry: bool) -> Option<Duration> {
    if !retry {
        return None;
    }
    let ran = held.running_since.map(|since| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
    // A clock before 1970 only makes a window look longer.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    match held.restart.after(failure.class, ran, &mut held.failures, now_ms) {
        AfterFailure::Again { pause_ms } => Some(Duration::from_millis(pause_ms)),
        AfterFailure::GiveUp => None,
        AfterFailure::TooMany { failures } => {
            eprintln!("weir: job {}: {failures} failures within {} ms are too many", held.plan.job, held.restart.window_ms);
            None
        }
    }
}
