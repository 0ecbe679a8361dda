//! Intent and reports in, commands and state changes out (pure): what agents say changes the
//! world, and `settle` brings every job one step nearer to what is wanted of it.

mod heir;

use crate::clock::Now;
use crate::fleet::Arrival;
use crate::intent::Phase;
use crate::outbox::{Entry, Order};
use crate::place;
use crate::world::{Assignment, Version, World, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, JobId};
use weir_planner::manifest::CheckpointKind;
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{
    Action, Command, CommandDone, CutGrant, Failure, HubResponse, JobObservation, Level, LocalGrant, Refusal, Register, Registered, Report,
    Restore, Start,
};
use weir_planner::spec::{Horizon, JobSpec, Recovery};

/// Reports in a row that must leave out an attempt whose command is done before it counts as
/// gone: one that was under way when the command ended may not know of it yet.
const MISSED_REPORTS_MAX: u32 = 3;
/// Events taken from one report and job.
const EVENTS_A_REPORT_MAX: usize = 200;

impl World {
    /// An agent registers. `session` is new and random.
    pub fn register(&mut self, request: &Register, session: String, now: Now) -> HubResponse {
        let known = self.fleet.get(&request.agent).map(|member| member.agent.clone());
        let arrival = match self.fleet.register(request, &session, now) {
            Ok(arrival) => arrival,
            Err(refusal) => return HubResponse::Refused(refusal),
        };
        let agent = &request.agent;
        if known.as_ref().is_none_or(|known| known.store_id != request.store_id) {
            // Attempts of another hub, or of this one before its store was lost: what is granted below them
            // would be refused as stale.
            self.raise_floor(request.last_attempt);
        }
        self.outbox.release(agent);
        if self.fleet.get(agent).map(|member| &member.agent) != known.as_ref() {
            self.changes.agents.insert(agent.clone());
        }
        self.changes.arrived.insert(agent.clone());
        self.changes.seen_agents.insert(agent.clone());
        for id in self.live_on(agent) {
            self.confirm(&id, request, arrival, now);
        }
        if arrival == Arrival::Started {
            self.ask_again(agent);
        }
        for running in &request.running {
            self.stop_stray(agent, &running.job, running.attempt);
        }
        HubResponse::Registered(Registered { session, lease_ms: self.fleet.lease_ms(), report_ms: self.fleet.report_ms() })
    }

    /// A live attempt of this agent after a registration: lost with its data directory, gone with
    /// its process, or confirmed.
    fn confirm(&mut self, id: &JobId, request: &Register, arrival: Arrival, now: Now) {
        let Some(job) = self.jobs.get(id) else { return };
        let Some(assignment) = &job.assignment else { return };
        let attempt = job.intent.attempt;
        let agent = &request.agent;
        let effects = if assignment.store_id != request.store_id && self.can_move(id) {
            let why = format!("agent '{agent}' has another data directory: the job goes on from its last checkpoint");
            self.job_mut(id).map(|job| job.intent.gone(why))
        } else if assignment.store_id != request.store_id {
            let reason = other_store(agent, &assignment.store_id, &request.store_id);
            self.job_mut(id).map(|job| job.intent.give_up(reason))
        } else if arrival == Arrival::Started {
            let why = format!("agent '{agent}' was restarted");
            self.job_mut(id).map(|job| job.intent.gone(why))
        } else if request.running.iter().any(|r| r.job == *id && r.attempt == attempt) || self.start_is_pending(id) {
            // Goes on; the next report says how it stands.
            return;
        } else {
            let why = format!("agent '{agent}' came back without attempt {attempt}");
            self.job_mut(id).map(|job| job.intent.gone(why))
        };
        self.carry_out(id, effects.unwrap_or_default(), now);
    }

    /// A report. Only the head can be refused; what it says of stale attempts is dropped.
    pub fn report(&mut self, report: &Report, now: Now) -> HubResponse {
        let agent = match self.fleet.accept(&report.session, report.sequence, &report.load, now) {
            Ok(agent) => agent,
            Err(refusal) => return HubResponse::Refused(refusal),
        };
        self.changes.seen_agents.insert(agent.clone());
        let mut named = BTreeSet::new();
        for observation in &report.jobs {
            if self.is_current(&agent, &observation.job, observation.attempt) {
                named.insert(observation.job.clone());
                self.observe(&agent, observation, now);
            } else if !is_over(observation) {
                self.stop_stray(&agent, &observation.job, observation.attempt);
            }
        }
        for id in self.live_on(&agent) {
            self.count_missed(&id, named.contains(&id), &agent, now);
        }
        HubResponse::Accepted
    }

    fn observe(&mut self, agent: &AgentId, seen: &JobObservation, now: Now) {
        for event in seen.events.iter().take(EVENTS_A_REPORT_MAX) {
            self.keep(&seen.job, Some(agent.clone()), event.clone());
        }
        let dropped = seen.events.len().saturating_sub(EVENTS_A_REPORT_MAX);
        if dropped > 0 {
            let message = format!("{dropped} further events of one report were not kept");
            self.tell(&seen.job, Level::Warn, "events_dropped", message, now);
        }
        let Some(job) = self.jobs.get_mut(&seen.job) else { return };
        let before = (job.intent.clone(), job.assignment.clone());
        let job = Arc::make_mut(job);
        let restart = job.version.spec.restart.clone();
        let effects = job.intent.observe(&seen.state, &restart, now);
        if let Some(assignment) = &mut job.assignment {
            // A cut that a fresh start is about to delete does not count.
            assignment.has_cut |= seen.has_cut && !job.intent.fresh;
        }
        let mut kept = seen.clone();
        kept.events = Vec::new();
        job.observation = Some(Arc::new(kept));
        let changed = before != (job.intent.clone(), job.assignment.clone());
        self.changes.seen_jobs.insert(seen.job.clone());
        if changed {
            self.changes.jobs.insert(seen.job.clone());
        }
        self.carry_out(&seen.job, effects, now);
    }

    /// An attempt that its agent has taken but does not report is gone (C56).
    fn count_missed(&mut self, id: &JobId, named: bool, agent: &AgentId, now: Now) {
        let pending = self.start_is_pending(id) || self.stop_is_pending(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        if named || pending {
            if job.intent.missed_reports > 0 {
                Arc::make_mut(job).intent.missed_reports = 0;
            }
            return;
        }
        let job = Arc::make_mut(job);
        job.intent.missed_reports += 1;
        if job.intent.missed_reports >= MISSED_REPORTS_MAX {
            let why = format!("agent '{agent}' no longer reports attempt {}", job.intent.attempt);
            let effects = self.job_mut(id).map(|job| job.intent.gone(why));
            self.carry_out(id, effects.unwrap_or_default(), now);
        }
    }

    /// The end of a command. One that is not there any more was superseded: nothing happens.
    pub fn command_done(&mut self, done: &CommandDone, now: Now) -> HubResponse {
        let agent = match self.fleet.speaker(&done.session) {
            Ok(agent) => agent,
            Err(refusal) => return HubResponse::Refused(refusal),
        };
        let Some(entry) = self.outbox.get(done.id).filter(|entry| entry.agent == agent).cloned() else {
            return HubResponse::Accepted;
        };
        match &done.result {
            Ok(()) => {
                self.remove_command(done.id);
            }
            Err(failure) => self.command_failed(&entry, failure, now),
        }
        HubResponse::Accepted
    }

    fn command_failed(&mut self, entry: &Entry, failure: &Failure, now: Now) {
        let again = match (&entry.order, failure.class) {
            (Order::Start { .. } | Order::Checkpoint { .. }, _) | (_, Class::Fenced) => false,
            (Order::Stop | Order::Forget, Class::Retry | Class::Bug) => true,
            (Order::Stop | Order::Forget, Class::User | Class::Corrupt) => false,
        };
        let live = self.is_live(entry);
        if self.jobs.contains_key(&entry.job) && matches!(entry.order, Order::Start { .. } | Order::Stop) {
            let what = if entry.order == Order::Stop { "stop" } else { "start" };
            let message = format!("agent '{}' could not {what} attempt {}: {}", entry.agent, entry.attempt, failure.message);
            self.tell(&entry.job, Level::Warn, "command_failed", message, now);
        }
        if again {
            self.outbox.postpone(entry.id, now);
            return;
        }
        self.remove_command(entry.id);
        if let Order::Checkpoint { id, .. } = entry.order {
            self.fail_checkpoint(id, failure.message.clone(), now);
            return;
        }
        if !live {
            return;
        }
        let effects = match entry.order {
            Order::Start { .. } => self.job_mut(&entry.job).map(|job| {
                let restart = job.version.spec.restart.clone();
                job.intent.failed(failure, &restart, now)
            }),
            // Fenced: the agent has no such attempt. The reports tell whether it is gone.
            Order::Stop if failure.class == Class::Fenced => None,
            Order::Stop => self.job_mut(&entry.job).map(|job| job.intent.give_up(format!("could not be stopped: {}", failure.message))),
            Order::Forget | Order::Checkpoint { .. } => None,
        };
        self.carry_out(&entry.job, effects.unwrap_or_default(), now);
    }

    /// Hands an agent its commands.
    pub fn claim(&mut self, session: &str, now: Now) -> Result<(AgentId, Vec<Command>), Refusal> {
        let agent = self.fleet.speaker(session)?;
        let taken = self.outbox.claim(&agent, now);
        let command = |entry: Arc<Entry>| {
            let action = match &entry.order {
                // One whose attempt has ended meanwhile is taken back by `settle`.
                Order::Start { .. } if !self.is_live(&entry) => return None,
                Order::Start { restore } => {
                    let job = self.jobs.get(&entry.job)?;
                    let mut plan = job.version.plan.as_deref()?.clone();
                    plan.horizon = job.assignment.as_ref()?.horizon;
                    Action::Start(Box::new(Start { attempt: entry.attempt, plan, restore: restore.clone() }))
                }
                Order::Stop => Action::Stop { attempt: entry.attempt },
                Order::Forget => {
                    // Where the job lives on, its checkpoints are another agent's business.
                    let retained = (!self.jobs.contains_key(&entry.job)).then(|| self.retained(&entry.job));
                    Action::Forget { attempt: entry.attempt, retained }
                }
                Order::Checkpoint { id, kind } => Action::Checkpoint { attempt: entry.attempt, id: *id, kind: *kind },
            };
            Some(Command { id: entry.id, job: entry.job.clone(), generation: entry.generation, action })
        };
        let commands = taken.into_iter().filter_map(command).collect();
        Ok((agent, commands))
    }

    /// Judges leases, then grants attempts to the jobs that want one and can have it.
    pub fn settle(&mut self, now: Now) {
        for agent in self.fleet.judge(now) {
            self.changes.seen_agents.insert(agent.clone());
            for id in self.live_on(&agent) {
                let moves = self.can_move(&id);
                let effects = self.job_mut(&id).map(|job| match moves {
                    // The agent has fenced itself at the end of its lease (AGT-4).
                    true => job.intent.gone(format!("agent '{agent}' is offline: the job goes on elsewhere from its last checkpoint")),
                    false => job.intent.agent_lost(agent.as_str()),
                });
                self.carry_out(&id, effects.unwrap_or_default(), now);
            }
        }
        let ended = self.outbox.iter().filter(|entry| matches!(entry.order, Order::Start { .. }) && !self.is_live(entry));
        for id in ended.map(|entry| entry.id).collect::<Vec<_>>() {
            self.remove_command(id);
        }
        self.settle_checkpoints(now);
        let wanting: Vec<JobId> = self.jobs.iter().filter(|(_, job)| job.intent.wants_grant(now)).map(|(id, _)| id.clone()).collect();
        for id in wanting {
            self.place(&id, now);
        }
    }

    /// When `settle`, or an agent's wait for commands, has something to do by the mere passing of time.
    pub fn next_deadline(&self, now: Now) -> Option<u64> {
        let retries = self.jobs.values().filter(|job| job.intent.phase == Phase::Backoff);
        let retry = retries.filter_map(|job| job.intent.retry_at_ms).filter(|at| *at > now.steady_ms).min();
        let waiting = self.jobs.iter().filter(|(_, job)| job.intent.phase == Phase::Waiting);
        let logs = waiting.filter_map(|(id, job)| self.log_due(id, job.assignment.as_ref()?)).filter(|due| *due > now.steady_ms).min();
        [self.fleet.next_deadline(), retry, logs, self.outbox.next_due(now)].into_iter().flatten().min()
    }

    fn place(&mut self, id: &JobId, now: Now) {
        let Some(job) = self.jobs.get(id) else { return };
        let held = job.assignment.clone();
        let pinned = held.as_ref().filter(|_| !job.intent.fresh);
        let chosen = match pinned {
            Some(assignment) => match self.pinned_agent(assignment) {
                Ok(agent) => Ok(agent),
                // The hub has just started, and has not judged its agents (AGT-4).
                Err(Unplaced::Soon) => Err(Unplaced::Soon),
                Err(unplaced) if !self.can_move(id) => Err(unplaced),
                Err(_) if self.log_due(id, assignment).is_some_and(|due| due > now.steady_ms) => {
                    Err(Unplaced::NotYet(log_awaited(&assignment.agent)))
                }
                Err(unplaced) => self.heir(id, assignment, unplaced, now),
            },
            None => self.free_agent(id, held.as_ref(), now),
        };
        let effects = match chosen {
            // Its columns are sampled first, and this job comes here again.
            Ok(_) if job.version.plan.is_none() => return,
            Ok(agent) => return self.grant(id, agent, held, now),
            Err(Unplaced::Never(reason)) => self.job_mut(id).map(|job| job.intent.give_up(reason)),
            Err(Unplaced::Soon) => None,
            Err(Unplaced::NotYet(reason)) if job.intent.phase == Phase::Waiting && job.intent.waiting.as_ref() == Some(&reason) => None,
            Err(Unplaced::NotYet(reason)) => self.job_mut(id).map(|job| job.intent.wait_for(reason)),
        };
        self.carry_out(id, effects.unwrap_or_default(), now);
    }

    /// Which agent shall sample the sources of a job that wants to start and has no plan: the one
    /// that would run it now. `None` for a job that is not there, does not want to start, or has another spec than `spec`.
    pub fn sampler_of(&self, id: &JobId, spec: &Arc<JobSpec>, now: Now) -> Option<Option<AgentId>> {
        self.is_sampled(id, spec).then(|| self.free_agent(id, None, now).ok())
    }

    /// A job that waits for the columns of this very spec.
    fn is_sampled(&self, id: &JobId, spec: &Arc<JobSpec>) -> bool {
        let waits = |job: &crate::world::Job| job.version.plan.is_none() && job.intent.phase == Phase::Waiting;
        self.jobs.get(id).is_some_and(|job| waits(job) && Arc::ptr_eq(&job.version.spec, spec))
    }

    /// What came of sampling: the columns are pinned with the plan, and the start goes on; or the job
    /// waits, or fails. False when the job does not wait for it any more.
    pub fn sampled(&mut self, id: &JobId, spec: &Arc<JobSpec>, outcome: Sampled, now: Now) -> bool {
        if !self.is_sampled(id, spec) {
            return false;
        }
        let Some(job) = self.job_mut(id) else { return false };
        let effects = match outcome {
            Sampled::NotYet(reason) => job.intent.wait_for(reason),
            Sampled::Never(reason) => job.intent.give_up(reason),
            Sampled::Bound { spec: bound, plan, told } => {
                let old = job.version.clone();
                let version = Arc::new(Version {
                    spec: Arc::new(*bound),
                    submitted: Some(old.spec.clone()),
                    plan: Some(Arc::new(*plan)),
                    places: BTreeMap::new(),
                    sql: old.sql.clone(),
                    uses: old.uses.clone(),
                    stream: old.stream.clone(),
                });
                job.version = version.clone();
                job.intent.waiting = None;
                let number = job.intent.version;
                self.changes.log.push(Write::Version(id.clone(), number, version));
                self.tell(id, Level::Info, "sampled", told, now);
                Vec::new()
            }
        };
        self.carry_out(id, effects, now);
        true
    }

    /// A fresh start stays where the job was when that agent is there; else any eligible one.
    fn free_agent(&self, id: &JobId, held: Option<&Assignment>, now: Now) -> Result<AgentId, Unplaced> {
        let candidates = self.fleet.candidates(now);
        if let Some(held) = held
            && candidates.iter().any(|candidate| candidate.agent == held.agent)
        {
            return Ok(held.agent.clone());
        }
        let node_ids = self.jobs.get(id).map(|job| job.version.spec.node_ids.as_slice()).unwrap_or_default();
        place::choose(&candidates, node_ids).map_err(Unplaced::NotYet)
    }

    fn grant(&mut self, id: &JobId, agent: AgentId, held: Option<Assignment>, now: Now) {
        let Some(member) = self.fleet.get(&agent) else { return };
        let (store_id, embedded) = (member.agent.store_id.clone(), member.agent.embedded);
        let Some(job) = self.jobs.get(id) else { return };
        let (fresh, from, plan) = (job.intent.fresh, job.intent.from, job.version.plan.clone());
        let recovery = job.version.spec.recovery;
        let door = if embedded { Horizon::Local } else { Horizon::Sealed };
        let horizon = job.version.spec.horizon.unwrap_or(door);
        let checkpoints = match plan.as_deref().filter(|_| !fresh).map(|plan| self.candidates(id, plan, from, recovery)) {
            None => Vec::new(),
            Some(Ok(checkpoints)) => checkpoints,
            Some(Err(reason)) => {
                let effects = self.job_mut(id).map(|job| job.intent.give_up(reason));
                return self.carry_out(id, effects.unwrap_or_default(), now);
            }
        };
        let moved = held.as_ref().filter(|held| held.agent != agent);
        if let Some(old) = moved {
            // What the job left behind elsewhere must never be taken for its state.
            self.send(old.agent.clone(), id.clone(), old.attempt, Order::Forget);
        }
        if let Some(old) = held.as_ref().filter(|held| held.store_id != store_id && !fresh && from.is_none()) {
            self.tell_gap(id, old, &agent, now);
        }
        let floor = self.counters.attempt_floor;
        let Some(job) = self.job_mut(id) else { return };
        if held.is_none() {
            job.intent.attempt = job.intent.attempt.max(floor);
        }
        let has_cut = !fresh && held.as_ref().is_some_and(|held| held.has_cut);
        let effects = job.intent.grant(agent.as_str());
        let attempt = job.intent.attempt;
        let from_savepoint = recovery == Recovery::LatestSavepoint && checkpoints.iter().any(|made| made.kind == CheckpointKind::Savepoint);
        let goes_on = held.filter(|held| held.store_id == store_id && !fresh && from.is_none() && !from_savepoint);
        let since = goes_on.as_ref().map_or(attempt, |held| held.since);
        let local = goes_on.map(|held| LocalGrant {
            store_id: store_id.clone(),
            since: (held.horizon == Horizon::Sealed).then_some(since),
            must_exist: has_cut || !checkpoints.is_empty(),
        });
        let restore = match (fresh, local.is_none() && checkpoints.is_empty()) {
            (true, _) => Restore::Fresh,
            (false, true) => Restore::New,
            (false, false) => Restore::Cut(Box::new(CutGrant { local, checkpoints })),
        };
        job.assignment = Some(Assignment { agent: agent.clone(), store_id, attempt, has_cut, since, horizon });
        job.observation = None;
        self.send(agent, id.clone(), attempt, Order::Start { restore });
        self.carry_out(id, effects, now);
    }

    /// The attempt that a command is about is the job's live one.
    fn is_live(&self, entry: &Entry) -> bool {
        let live = self.jobs.get(&entry.job).is_some_and(|job| job.intent.is_live());
        live && self.is_current(&entry.agent, &entry.job, entry.attempt)
    }

    /// This attempt of the job is the last one granted, and to this agent.
    pub(crate) fn is_current(&self, agent: &AgentId, id: &JobId, attempt: Attempt) -> bool {
        let assigned = |job: &crate::world::Job| job.assignment.as_ref().is_some_and(|a| a.agent == *agent && a.attempt == attempt);
        self.jobs.get(id).is_some_and(|job| job.intent.attempt == attempt && assigned(job))
    }

    fn live_on(&self, agent: &AgentId) -> Vec<JobId> {
        let here = |job: &crate::world::Job| job.intent.is_live() && job.assignment.as_ref().is_some_and(|a| a.agent == *agent);
        self.jobs.iter().filter(|(_, job)| here(job)).map(|(id, _)| id.clone()).collect()
    }

    fn start_is_pending(&self, id: &JobId) -> bool {
        self.outbox.of_job(id).any(|entry| matches!(entry.order, Order::Start { .. }))
    }

    fn stop_is_pending(&self, id: &JobId) -> bool {
        self.outbox.of_job(id).any(|entry| entry.order == Order::Stop)
    }

    /// Stops an attempt that runs though it should not: an older one, or one of a job that is
    /// stopped, failed, or not known here. Its state is left alone.
    fn stop_stray(&mut self, agent: &AgentId, id: &JobId, attempt: Attempt) {
        let live = self.jobs.get(id).is_some_and(|job| job.intent.is_live());
        let told = |entry: &Arc<Entry>| entry.agent == *agent && entry.attempt >= attempt;
        if (live && self.is_current(agent, id, attempt)) || self.outbox.of_job(id).any(told) {
            return;
        }
        tracing::warn!(job = %id, agent = %agent, attempt = attempt.get(), "stray attempt is stopped");
        self.send(agent.clone(), id.clone(), attempt, Order::Stop);
    }
}

/// What came of sampling the sources of a job (JOB-6).
#[derive(Debug)]
pub enum Sampled {
    /// All columns are known.
    Bound {
        /// The spec with its columns, bound.
        spec: Box<JobSpec>,
        /// As compiled.
        plan: Box<JobPlan>,
        /// The columns, for people.
        told: String,
    },
    /// Not now, for this reason.
    NotYet(String),
    /// Only a person can help, for this reason.
    Never(String),
}

fn log_awaited(agent: &AgentId) -> String {
    format!(
        "agent '{agent}' is offline, and its disk has rows of an input log that are in no checkpoint: the job waits wal_wait_ms for that agent, and goes on elsewhere without them then"
    )
}

enum Unplaced {
    /// The hub has just started and the agent has not been judged: nothing to say yet.
    Soon,
    NotYet(String),
    Never(String),
}

fn is_over(observation: &JobObservation) -> bool {
    use weir_planner::protocol::AttemptState;
    match observation.state {
        AttemptState::Starting | AttemptState::Running | AttemptState::Stopping => false,
        AttemptState::Stopped | AttemptState::Finished | AttemptState::Failed(_) => true,
    }
}

/// Why a job cannot go on: its agent runs with another data directory.
pub fn other_store(agent: &AgentId, expected: &str, found: &str) -> String {
    format!(
        "the job's state is in data directory '{expected}' of agent '{agent}', but that agent now runs with data directory '{found}': bring the old directory back, or start the job fresh to give its state up"
    )
}

#[cfg(test)]
mod tests;
