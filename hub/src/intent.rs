//! What is wanted of one job and how far it has come: a pure state machine over one record.
//!
//! An attempt is *live* from its grant until it is known to have ended. At most one attempt of a
//! job is live; the next one is granted only out of `Waiting` or `Backoff`, where none is. News
//! of any other attempt never reaches this file, so it cannot change the state (HUB-2, H4).

use crate::clock::Now;
use crate::hub::{DesiredState, JobState, StartFrom};
use serde::{Deserialize, Serialize};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, CheckpointId, Generation, JobId, JobVersion};
use weir_planner::protocol::{AttemptState, Failure, Level};
use weir_planner::spec::{AfterFailure, Failures, Restart};

/// Where a job stands between wanted and observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Never started.
    Created,
    /// Wants an attempt, and gets one as soon as its agent can take it.
    Waiting,
    /// The last attempt failed; the next one follows after a pause.
    Backoff,
    /// Live: granted, not yet seen running.
    Starting,
    /// Live: seen running.
    Running,
    /// Live when last heard of, but its agent's lease has ended, so it has fenced itself (AGT-4).
    Lost,
    /// Live: told to stop.
    Stopping,
    /// No attempt, none wanted.
    Stopped,
    /// Needs a person.
    Failed,
    /// Its bounded inputs ended.
    Finished,
}

/// The stored record of a job's intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The job.
    pub job: JobId,
    /// Current version.
    pub version: JobVersion,
    /// Wanted.
    pub desired: DesiredState,
    /// Rises with each change of what is wanted.
    pub generation: Generation,
    /// Last granted attempt.
    pub attempt: Attempt,
    /// How far it has come.
    pub phase: Phase,
    /// An attempt has failed, or its agent has gone, since the job last ran.
    pub degraded: bool,
    /// The next attempt begins from nothing. Kept until one has been seen running, since a grant
    /// that was never carried out has not deleted anything.
    pub fresh: bool,
    /// The next attempt begins from this checkpoint; kept like `fresh`.
    #[serde(default)]
    pub from: Option<CheckpointId>,
    /// Last attempt before the line of cuts that the job is on: what it and earlier ones sealed is of a dropped namesake, or was
    /// given up by a start from something else, and is begun from only when it is named.
    #[serde(default)]
    pub since: Attempt,
    /// The checkpoint that this line was begun from.
    #[serde(default)]
    pub base: Option<CheckpointId>,
    /// Wall clock.
    pub created_at_ms: i64,
    /// Wall clock of the last move to running.
    pub started_at_ms: Option<i64>,
    /// Why an attempt last failed.
    pub last_error: Option<String>,
    /// What the job is waiting for right now.
    pub waiting: Option<String>,
    /// Failures since the job was last asked to run.
    #[serde(flatten)]
    pub failures: Failures,
    /// Steady clock: end of the pause. `None` after a restart of the hub, which ends it.
    #[serde(skip)]
    pub retry_at_ms: Option<u64>,
    /// Steady clock: since when the live attempt has been seen running.
    #[serde(skip)]
    pub running_since_ms: Option<u64>,
    /// How many reports in a row left out the live attempt, though its agent has taken the command.
    #[serde(skip)]
    pub missed_reports: u32,
}

/// What a step asks of its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep an event.
    Tell(Level, &'static str, String),
    /// Tell the agent to stop this job's current attempt.
    StopAttempt,
    /// Take the start command back: it has not left the outbox.
    WithdrawStart,
}

fn tell(level: Level, kind: &'static str, message: impl Into<String>) -> Effect {
    Effect::Tell(level, kind, message.into())
}

impl Intent {
    /// A new job. `floor` is an attempt that all of its attempts exceed.
    pub fn new(job: JobId, version: JobVersion, desired: DesiredState, floor: Attempt, now: Now) -> Self {
        let phase = match desired {
            DesiredState::Running => Phase::Waiting,
            DesiredState::Stopped => Phase::Created,
        };
        Intent {
            job,
            version,
            desired,
            generation: Generation::new(1),
            attempt: floor,
            phase,
            degraded: false,
            fresh: false,
            from: None,
            since: floor,
            base: None,
            created_at_ms: now.wall_ms,
            started_at_ms: None,
            last_error: None,
            waiting: None,
            failures: Failures::default(),
            retry_at_ms: None,
            running_since_ms: None,
            missed_reports: 0,
        }
    }

    /// The word of spec 1.3.
    pub fn state(&self) -> JobState {
        match self.phase {
            Phase::Created => JobState::Created,
            Phase::Waiting | Phase::Backoff | Phase::Starting if self.degraded => JobState::Degraded,
            Phase::Waiting | Phase::Backoff | Phase::Starting => JobState::Starting,
            Phase::Running => JobState::Running,
            Phase::Lost => JobState::Degraded,
            Phase::Stopping => JobState::Stopping,
            Phase::Stopped => JobState::Stopped,
            Phase::Failed => JobState::Failed,
            Phase::Finished => JobState::Finished,
        }
    }

    /// An attempt may be running somewhere.
    pub fn is_live(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Lost | Phase::Stopping => true,
            Phase::Created | Phase::Waiting | Phase::Backoff | Phase::Stopped | Phase::Failed | Phase::Finished => false,
        }
    }

    /// The job wants an attempt now.
    pub fn wants_grant(&self, now: Now) -> bool {
        match self.phase {
            Phase::Waiting => true,
            Phase::Backoff => self.retry_at_ms.is_none_or(|at| at <= now.steady_ms),
            Phase::Created | Phase::Starting | Phase::Running | Phase::Lost => false,
            Phase::Stopping | Phase::Stopped | Phase::Failed | Phase::Finished => false,
        }
    }

    /// The user wants it to run, and says from what.
    ///
    /// Errors: the reason, with the way out, when it cannot be had.
    pub fn start(&mut self, from: StartFrom) -> Result<Vec<Effect>, String> {
        let job = self.job.clone();
        let chosen = from != StartFrom::Newest;
        let fresh = from == StartFrom::Fresh;
        match self.phase {
            Phase::Finished if !chosen => Err(format!(
                "job '{job}' is finished: all of its bounded inputs were read to the end; start it fresh to run it again from the beginning"
            )),
            Phase::Created | Phase::Stopped | Phase::Failed | Phase::Finished => {
                self.generation = self.generation.next();
                self.desired = DesiredState::Running;
                self.phase = Phase::Waiting;
                self.degraded = false;
                self.fresh |= fresh;
                match from {
                    StartFrom::Newest => {}
                    StartFrom::Fresh => (self.from, self.base, self.since) = (None, None, self.attempt),
                    StartFrom::Checkpoint(id) => {
                        (self.fresh, self.from, self.base, self.since) = (false, Some(id), Some(id), self.attempt);
                    }
                }
                self.last_error = None;
                self.waiting = None;
                self.failures = Failures::default();
                let how = match from {
                    StartFrom::Newest => "start was asked for".to_owned(),
                    StartFrom::Fresh => "start from nothing was asked for: older state and results are deleted".to_owned(),
                    StartFrom::Checkpoint(id) => format!("start from checkpoint {id} was asked for: what came after it is deleted"),
                };
                Ok(vec![tell(Level::Info, "started", how)])
            }
            Phase::Stopping if chosen => Err(format!(
                "job '{job}' is still stopping: wait for it to be stopped, then start it {}",
                if fresh { "fresh" } else { "from that checkpoint" }
            )),
            Phase::Stopping => {
                if self.desired != DesiredState::Running {
                    self.generation = self.generation.next();
                    self.desired = DesiredState::Running;
                }
                Ok(Vec::new())
            }
            Phase::Waiting | Phase::Backoff | Phase::Starting | Phase::Running | Phase::Lost if chosen => {
                let what = if fresh { "a fresh start" } else { "a start from a checkpoint" };
                Err(format!("job '{job}' is {}: {what} deletes its state, so stop it first", self.state()))
            }
            Phase::Waiting | Phase::Backoff | Phase::Starting | Phase::Running | Phase::Lost => Ok(Vec::new()),
        }
    }

    /// The user wants it to stand still. `left_outbox`: the live attempt's start command may
    /// have reached its agent.
    pub fn stop(&mut self, left_outbox: bool) -> Vec<Effect> {
        if self.desired == DesiredState::Stopped {
            return Vec::new();
        }
        self.desired = DesiredState::Stopped;
        self.generation = self.generation.next();
        match self.phase {
            Phase::Created | Phase::Stopped | Phase::Failed | Phase::Finished | Phase::Stopping => Vec::new(),
            Phase::Waiting | Phase::Backoff => vec![self.stopped()],
            Phase::Starting if !left_outbox => vec![Effect::WithdrawStart, self.stopped()],
            Phase::Starting | Phase::Running => {
                self.phase = Phase::Stopping;
                self.missed_reports = 0;
                vec![tell(Level::Info, "stopping", "stop was asked for"), Effect::StopAttempt]
            }
            // The attempt has fenced itself at its lease's end; the command waits for an agent
            // that returns with it all the same.
            Phase::Lost => vec![Effect::StopAttempt, self.stopped()],
        }
    }

    /// Grants the next attempt.
    pub fn grant(&mut self, agent: &str) -> Vec<Effect> {
        debug_assert!(!self.is_live(), "at most one attempt is live");
        let again = self.started_at_ms.is_some() || self.failures.streak > 0;
        self.attempt = self.attempt.next();
        self.phase = Phase::Starting;
        self.waiting = None;
        self.retry_at_ms = None;
        self.running_since_ms = None;
        self.missed_reports = 0;
        let kind = if again { "restarted" } else { "starting" };
        vec![tell(Level::Info, kind, format!("attempt {} on agent '{agent}'", self.attempt))]
    }

    /// The job wants an attempt but cannot have one.
    pub fn wait_for(&mut self, reason: String) -> Vec<Effect> {
        self.phase = Phase::Waiting;
        if self.waiting.as_ref() == Some(&reason) {
            return Vec::new();
        }
        self.waiting = Some(reason.clone());
        vec![tell(Level::Warn, "waiting", reason)]
    }

    /// The current attempt's agent says how it stands.
    pub fn observe(&mut self, seen: &AttemptState, restart: &Restart, now: Now) -> Vec<Effect> {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Lost => match seen {
                AttemptState::Starting => {
                    if self.phase == Phase::Lost {
                        self.phase = Phase::Starting;
                        self.waiting = None;
                    }
                    Vec::new()
                }
                AttemptState::Running => self.runs(now),
                AttemptState::Stopping => Vec::new(),
                AttemptState::Stopped => self.released(restart, now),
                AttemptState::Finished => {
                    // It may have run between two reports.
                    if self.phase == Phase::Starting || self.started_at_ms.is_none() {
                        self.started_at_ms = Some(now.wall_ms);
                    }
                    self.phase = Phase::Finished;
                    self.degraded = false;
                    self.fresh = false;
                    self.from = None;
                    self.waiting = None;
                    vec![tell(Level::Info, "finished", "all bounded inputs ended")]
                }
                AttemptState::Failed(failure) => self.failed(failure, restart, now),
            },
            Phase::Stopping => match seen {
                AttemptState::Starting | AttemptState::Running | AttemptState::Stopping => Vec::new(),
                AttemptState::Stopped | AttemptState::Finished => vec![self.stopped()],
                AttemptState::Failed(failure) => self.failed_while_stopping(failure),
            },
            Phase::Created | Phase::Waiting | Phase::Backoff | Phase::Stopped | Phase::Failed | Phase::Finished => match seen {
                AttemptState::Starting | AttemptState::Running | AttemptState::Stopping => vec![Effect::StopAttempt],
                AttemptState::Stopped | AttemptState::Finished | AttemptState::Failed(_) => Vec::new(),
            },
        }
    }

    /// The live attempt ended by a failure.
    pub fn failed(&mut self, failure: &Failure, restart: &Restart, now: Now) -> Vec<Effect> {
        let ran_ms = self.running_since_ms.take().map(|since| now.steady_ms.saturating_sub(since));
        let message = failure.message.clone();
        match restart.after(failure.class, ran_ms, &mut self.failures, now.wall_ms) {
            AfterFailure::Again { pause_ms } => self.back_off(message, pause_ms, now),
            AfterFailure::GiveUp => self.give_up(message),
            AfterFailure::TooMany { failures } => {
                let most = restart.max_attempts.max(1);
                self.give_up(format!("{message} (failure {failures} of {most} within {} ms)", restart.window_ms))
            }
        }
    }

    /// The live attempt is known to be gone without having failed: its process ended, or its
    /// agent no longer has it. Not counted: the job is not at fault.
    pub fn gone(&mut self, why: String) -> Vec<Effect> {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Lost => {
                self.phase = Phase::Waiting;
                self.waiting = None;
                vec![tell(Level::Warn, "attempt_lost", why)]
            }
            Phase::Stopping => vec![tell(Level::Warn, "attempt_lost", why), self.stopped()],
            Phase::Created | Phase::Waiting | Phase::Backoff | Phase::Stopped | Phase::Failed | Phase::Finished => Vec::new(),
        }
    }

    /// The lease of the agent that holds the live attempt has ended.
    pub fn agent_lost(&mut self, agent: &str) -> Vec<Effect> {
        match self.phase {
            Phase::Starting | Phase::Running => {
                let why = offline(agent);
                self.phase = Phase::Lost;
                self.degraded = true;
                self.running_since_ms = None;
                self.waiting = Some(why.clone());
                vec![tell(Level::Warn, "degraded", why)]
            }
            Phase::Stopping => {
                vec![
                    tell(Level::Warn, "attempt_lost", format!("agent '{agent}' went offline before it confirmed the stop")),
                    self.stopped(),
                ]
            }
            Phase::Created | Phase::Waiting | Phase::Backoff | Phase::Lost => Vec::new(),
            Phase::Stopped | Phase::Failed | Phase::Finished => Vec::new(),
        }
    }

    /// Nothing but a person helps.
    pub fn give_up(&mut self, reason: String) -> Vec<Effect> {
        self.phase = Phase::Failed;
        self.waiting = None;
        self.retry_at_ms = None;
        self.last_error = Some(reason.clone());
        vec![tell(Level::Error, "failed", reason)]
    }

    /// The agent stopped the attempt by itself, as one does that is about to end. Nothing failed;
    /// the pause keeps an agent that goes on living from being asked again and again.
    fn released(&mut self, restart: &Restart, now: Now) -> Vec<Effect> {
        self.phase = Phase::Backoff;
        self.waiting = None;
        self.running_since_ms = None;
        self.retry_at_ms = Some(now.steady_ms.saturating_add(restart.backoff_ms));
        vec![tell(Level::Info, "released", format!("the agent stopped attempt {} by itself; another one follows", self.attempt))]
    }

    fn runs(&mut self, now: Now) -> Vec<Effect> {
        // What an attempt has written counts from here on; a repeat must not delete it again.
        self.fresh = false;
        self.from = None;
        if self.phase == Phase::Running {
            return Vec::new();
        }
        let came_back = self.phase == Phase::Lost && self.started_at_ms.is_some();
        self.phase = Phase::Running;
        self.degraded = false;
        self.waiting = None;
        self.running_since_ms = Some(now.steady_ms);
        if !came_back {
            self.started_at_ms = Some(now.wall_ms);
        }
        vec![tell(Level::Info, "running", format!("attempt {} runs", self.attempt))]
    }

    fn back_off(&mut self, message: String, pause_ms: u64, now: Now) -> Vec<Effect> {
        self.phase = Phase::Backoff;
        self.degraded = true;
        self.waiting = None;
        self.retry_at_ms = Some(now.steady_ms.saturating_add(pause_ms));
        self.last_error = Some(message.clone());
        vec![tell(Level::Warn, "degraded", format!("{message}; the next attempt follows in {pause_ms} ms"))]
    }

    fn failed_while_stopping(&mut self, failure: &Failure) -> Vec<Effect> {
        match failure.class {
            Class::User | Class::Corrupt => self.give_up(failure.message.clone()),
            Class::Retry | Class::Fenced | Class::Bug => {
                self.last_error = Some(failure.message.clone());
                vec![tell(Level::Warn, "stop_failed", format!("the last epoch was not decided: {}", failure.message)), self.stopped()]
            }
        }
    }

    /// No attempt is live any more; a start that was asked for meanwhile follows.
    fn stopped(&mut self) -> Effect {
        self.phase = match self.desired {
            DesiredState::Running => Phase::Waiting,
            DesiredState::Stopped => Phase::Stopped,
        };
        self.degraded = false;
        self.waiting = None;
        self.retry_at_ms = None;
        self.running_since_ms = None;
        tell(Level::Info, "stopped", "no attempt runs")
    }
}

/// Why a job whose local state is on an agent that is away waits.
pub fn offline(agent: &str) -> String {
    format!("agent '{agent}' is offline; the job's state is on it, so the job goes on when that agent returns")
}

#[cfg(test)]
mod tests;
