//! `weir run FILE`: jobs of a file on an agent of this process, without a hub (STR-6).

use crate::config::RunConfig;
use crate::control::on_control;
use crate::document;
use crate::signal::Stop;
use crate::stack::{DRAIN, DataDir, EMBEDDED_AGENT};
use anyhow::Context;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::agent::{Agent, AgentOptions};
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, Generation, JobId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AttemptState, Failure, JobObservation, Restore, Start};
use weir_planner::spec::{JobSpec, Restart};

/// Runs every job of the file. The code is 0 when all finished or SIGTERM came, 1 when one
/// failed, 2 when the file is invalid.
pub fn run_file(config: &RunConfig) -> anyhow::Result<ExitCode> {
    let Some(plans) = document::load_plans(&config.file)? else { return Ok(ExitCode::from(2)) };
    let _lock = DataDir::lock(&config.data_dir)?;
    on_control(async {
        let mut stop = Stop::listen()?;
        let agent = Agent::open(AgentOptions {
            agent: AgentId::new(EMBEDDED_AGENT).map_err(|fault| anyhow::anyhow!("{fault}"))?,
            data_dir: config.data_dir.join("run"),
            address: "in process".to_owned(),
            token: None,
            shards: config.shards,
            environment: crate::config::variable,
        })
        .await?;
        let mut jobs = Jobs { agent: agent.clone(), held: BTreeMap::new(), retry: config.retry };
        for (spec, plan) in plans {
            jobs.start(spec, plan, config.fresh)?;
        }
        let code = tokio::select! {
            code = jobs.drive() => code?,
            () = stop.first() => ExitCode::SUCCESS,
        };
        stop.then_exit();
        agent.shutdown(DRAIN).await;
        Ok(code)
    })
}

/// One job of the file and its tries.
struct Held {
    plan: JobPlan,
    restart: Restart,
    attempt: Attempt,
    failures: u32,
    /// When the next attempt is due, while one is.
    due: Option<Instant>,
    finished: bool,
}

struct Jobs {
    agent: Agent,
    held: BTreeMap<JobId, Held>,
    retry: bool,
}

impl Jobs {
    fn start(&mut self, spec: JobSpec, plan: JobPlan, fresh: bool) -> anyhow::Result<()> {
        let attempt = self.agent.last_attempt(&spec.id)?.next();
        let restore = if fresh { Restore::Fresh } else { self.local() };
        self.agent.start(&spec.id, generation(attempt), Start { attempt, plan: plan.clone(), restore })?;
        self.held.insert(spec.id, Held { plan, restart: spec.restart, attempt, failures: 0, due: None, finished: false });
        Ok(())
    }

    fn local(&self) -> Restore {
        Restore::Local { store_id: self.agent.store_id().to_owned(), must_exist: false }
    }

    /// Until all finished or one failed for good.
    async fn drive(&mut self) -> anyhow::Result<ExitCode> {
        let mut changed = self.agent.changed();
        loop {
            // Read before observing, so that a change in between is seen by the next turn.
            changed.borrow_and_update();
            let observations = self.agent.observe();
            for observed in &observations {
                if !self.note(observed) {
                    return Ok(ExitCode::from(1));
                }
            }
            self.agent.acknowledge(&observations);
            self.start_due()?;
            if self.held.values().all(|held| held.finished) {
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
                change = changed.changed() => change.context("the agent is gone")?,
            }
        }
    }

    /// Takes note of one job; false when it failed and shall not be tried again.
    fn note(&mut self, observed: &JobObservation) -> bool {
        let Some(held) = self.held.get_mut(&observed.job) else { return true };
        if observed.attempt != held.attempt {
            return true;
        }
        for event in &observed.events {
            eprintln!("weir: job {}: {}", observed.job, event.message);
        }
        match &observed.state {
            AttemptState::Starting | AttemptState::Running | AttemptState::Stopping | AttemptState::Stopped => {}
            AttemptState::Finished => held.finished = true,
            AttemptState::Failed(failure) if held.due.is_none() => {
                eprintln!("weir: job {} failed: {}", observed.job, failure.message);
                let Some(pause) = pause_after(held, failure, self.retry) else { return false };
                held.due = Some(Instant::now() + pause);
            }
            AttemptState::Failed(_) => {}
        }
        true
    }

    fn start_due(&mut self) -> anyhow::Result<()> {
        let restore = self.local();
        let now = Instant::now();
        for (job, held) in &mut self.held {
            if held.due.is_some_and(|due| due <= now) {
                held.due = None;
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
    match failure.class {
        _ if !retry => None,
        Class::User | Class::Corrupt | Class::Fenced => None,
        Class::Retry | Class::Bug => {
            if failure.class == Class::Bug {
                held.failures += 1;
            }
            if held.failures >= held.restart.max_attempts {
                return None;
            }
            let pause = held.restart.backoff_ms.saturating_mul(1 << held.failures.min(16));
            Some(Duration::from_millis(pause.min(held.restart.max_backoff_ms)))
        }
    }
}
