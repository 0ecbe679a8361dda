//! Checkpoints: asked for, sealed, retained, dropped (pure). A checkpoint is sealed by its record, and only with exactly the
//! planned task set of the job's live attempt (CKP-2).

use crate::clock::Now;
use crate::error::Error;
use crate::hub::DesiredState;
use crate::intent::Phase;
use crate::outbox::{Entry, Order};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, CheckpointId, EpochId, Generation, JobId, JobVersion, RegionId};
use weir_planner::manifest::{CheckpointKind, Manifest, RegionCut};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{CheckpointDone, Failure, HubResponse, Level, Refusal, Sealed};
use weir_planner::spec::Recovery;

mod fit;

pub use fit::{unfit, usable};

/// Records of a job that are kept for people though nothing needs them any more (HUB-5).
const HISTORY_MAX: usize = 100;

/// How a checkpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// Asked for; its job is to stop first.
    Waiting,
    /// Asked for.
    Running,
    /// Sealed: a job can begin from it.
    Completed,
    /// It could not be made.
    Failed,
    /// It was sealed, and is not kept any more.
    Dropped,
}

impl fmt::Display for CheckpointState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointState::Waiting => "waiting",
            CheckpointState::Running => "running",
            CheckpointState::Completed => "completed",
            CheckpointState::Failed => "failed",
            CheckpointState::Dropped => "dropped",
        })
    }
}

/// The record of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Unique at this hub.
    pub id: CheckpointId,
    /// Why it is kept.
    pub kind: CheckpointKind,
    /// The job.
    pub job: JobId,
    /// Its version then.
    pub version: JobVersion,
    /// Its generation then.
    pub generation: Generation,
    /// The attempt that makes it.
    pub attempt: Attempt,
    /// How it stands.
    pub state: CheckpointState,
    /// The lowest epoch of its regions.
    pub epoch: Option<EpochId>,
    /// Wall clock, ms.
    pub started_at_ms: i64,
    /// Wall clock, ms.
    pub completed_at_ms: Option<i64>,
    /// How long its barrier took to pass all tasks, ms.
    pub align_ms: u64,
    /// Bytes uploaded for it.
    pub bytes_new: u64,
    /// Bytes of all files that it names.
    pub bytes_total: u64,
    /// Tasks that it consists of.
    pub tasks: u64,
    /// State store.
    pub location: String,
    /// Why it failed.
    pub error: Option<String>,
    /// What it consists of, as long as it is kept.
    pub manifest: Option<Manifest>,
}

impl Checkpoint {
    /// A job can begin from it.
    pub fn is_kept(&self) -> bool {
        self.manifest.is_some()
    }

    /// It was sealed, or will not be.
    fn is_over(&self) -> bool {
        match self.state {
            CheckpointState::Waiting | CheckpointState::Running => false,
            CheckpointState::Completed | CheckpointState::Failed | CheckpointState::Dropped => true,
        }
    }

    /// It holds at least all that `other` holds, and more, of the same attempt.
    fn is_ahead_of(&self, other: &Manifest) -> bool {
        let Some(own) = self.manifest.as_ref().filter(|own| own.attempt == other.attempt) else { return false };
        let later = |(region, cut): (&RegionId, &RegionCut)| own.cuts.get(region).is_some_and(|own| own.epoch >= cut.epoch);
        other.cuts.iter().all(later) && epochs(&own.cuts) != epochs(&other.cuts)
    }
}

fn epochs(cuts: &BTreeMap<RegionId, RegionCut>) -> Vec<(RegionId, EpochId)> {
    cuts.iter().map(|(region, cut)| (*region, cut.epoch)).collect()
}

fn refused(class: Class, message: String) -> HubResponse {
    HubResponse::Refused(Refusal { class, message })
}

impl World {
    fn checkpoint_mut(&mut self, id: CheckpointId) -> Option<&mut Checkpoint> {
        self.changes.checkpoints.insert(id);
        self.checkpoints.get_mut(&id).map(Arc::make_mut)
    }

    fn next_checkpoint(&mut self) -> CheckpointId {
        self.counters.last_checkpoint = self.counters.last_checkpoint.next();
        self.changes.counters_changed();
        self.counters.last_checkpoint
    }

    /// Records of a job, oldest first.
    pub fn checkpoints_of<'a>(&'a self, job: &'a JobId) -> impl DoubleEndedIterator<Item = &'a Arc<Checkpoint>> {
        self.checkpoints.values().filter(move |checkpoint| checkpoint.job == *job)
    }

    /// Those that are kept of the job's line of cuts, what it was begun from first: not those of a dropped job of its name, nor
    /// those that a start from nothing or from an earlier one has given up.
    pub fn own_checkpoints<'a>(&'a self, job: &'a JobId) -> impl DoubleEndedIterator<Item = &'a Arc<Checkpoint>> {
        let (since, base) = self.jobs.get(job).map(|job| (job.intent.since, job.intent.base)).unwrap_or_default();
        let base = base.and_then(|base| self.checkpoints.get(&base)).filter(|record| record.is_kept());
        base.into_iter().chain(self.checkpoints_of(job).filter(move |record| record.is_kept() && record.attempt > since))
    }

    /// What is kept under a job's name, oldest first.
    pub fn retained(&self, job: &JobId) -> Vec<Manifest> {
        self.checkpoints_of(job).filter_map(|checkpoint| checkpoint.manifest.clone()).collect()
    }

    /// Begins a checkpoint of a job; with `after_stop` once the job has stopped. Gives its id.
    ///
    /// Errors: there is no such job; nothing of it can be decided now, with the reason.
    pub fn ask_checkpoint(&mut self, id: &JobId, kind: CheckpointKind, after_stop: bool, now: Now) -> Result<CheckpointId, Error> {
        let job = self.jobs.get(id).ok_or_else(|| Error::NotFound { kind: "job", name: id.to_string() })?;
        let (intent, assignment) = (&job.intent, job.assignment.clone());
        let Some(assignment) = assignment else {
            return Err(Error::Conflict(format!("job '{id}' has never run: there is nothing to make a {kind} of")));
        };
        let agent = assignment.agent.clone();
        if self.fleet.get(&agent).is_none_or(|member| member.session.is_none() || member.lost) {
            return Err(Error::Unavailable(format!(
                "agent '{agent}', which has the state of job '{id}', is offline: try again when it is back"
            )));
        }
        let decided = match intent.phase {
            Phase::Running => true,
            Phase::Starting | Phase::Waiting | Phase::Backoff | Phase::Lost | Phase::Stopping => after_stop,
            Phase::Created => false,
            Phase::Stopped | Phase::Failed | Phase::Finished => assignment.has_cut,
        };
        if !decided {
            let state = intent.state();
            return Err(Error::Conflict(format!(
                "job '{id}' is {state}: a {kind} can be made of a job that runs, or that has run and stopped"
            )));
        }
        let (version, generation, attempt) = (intent.version, intent.generation, intent.attempt);
        let wanted = if after_stop { CheckpointState::Waiting } else { CheckpointState::Running };
        let open = |record: &&Arc<Checkpoint>| record.kind == kind && record.state == wanted && record.attempt == attempt;
        if let Some(open) = self.checkpoints_of(id).find(open) {
            // Asked for twice it is made once.
            return Ok(open.id);
        }
        let checkpoint = self.next_checkpoint();
        let location = self.fleet.get(&agent).map(|member| member.agent.state_url.clone()).unwrap_or_default();
        let record = Checkpoint {
            id: checkpoint,
            kind,
            job: id.clone(),
            version,
            generation,
            attempt,
            state: wanted,
            epoch: None,
            started_at_ms: now.wall_ms,
            completed_at_ms: None,
            align_ms: 0,
            bytes_new: 0,
            bytes_total: 0,
            tasks: 0,
            location,
            error: None,
            manifest: None,
        };
        self.keep_checkpoint(record);
        if !after_stop {
            self.send(agent, id.clone(), attempt, Order::Checkpoint { id: checkpoint, kind });
        }
        Ok(checkpoint)
    }

    fn keep_checkpoint(&mut self, record: Checkpoint) {
        self.changes.checkpoints.insert(record.id);
        self.changes.seen_jobs.insert(record.job.clone());
        self.checkpoints.insert(record.id, Arc::new(record));
    }

    /// Sends the checkpoints that waited for their job to stop, and gives up those whose attempt is over without an answer.
    pub fn settle_checkpoints(&mut self, now: Now) {
        let open = |state| matches!(state, CheckpointState::Waiting | CheckpointState::Running);
        let waiting: Vec<Arc<Checkpoint>> = self.checkpoints.values().filter(|checkpoint| open(checkpoint.state)).cloned().collect();
        for checkpoint in waiting {
            let (id, kind) = (checkpoint.id, checkpoint.kind);
            let Some(job) = self.jobs.get(&checkpoint.job) else { continue };
            let desired = job.intent.desired;
            let (phase, attempt, assignment) = (job.intent.phase, job.intent.attempt, job.assignment.clone());
            match (checkpoint.state, phase) {
                (CheckpointState::Running, _) if attempt != checkpoint.attempt => {
                    self.fail_checkpoint(id, format!("attempt {} ended before it was complete", checkpoint.attempt), now);
                }
                (CheckpointState::Waiting, Phase::Stopped | Phase::Finished) => {
                    let Some(assignment) = assignment else { continue };
                    if let Some(record) = self.checkpoint_mut(id) {
                        record.state = CheckpointState::Running;
                        record.attempt = attempt;
                    }
                    self.send(assignment.agent, checkpoint.job.clone(), attempt, Order::Checkpoint { id, kind });
                }
                (CheckpointState::Waiting, Phase::Running) if desired == DesiredState::Running => {
                    self.fail_checkpoint(id, "the job was started again before it had stopped".to_owned(), now);
                }
                (CheckpointState::Waiting, Phase::Failed) => self.fail_checkpoint(id, "the job failed while it stopped".to_owned(), now),
                (_, _) => {}
            }
        }
    }

    /// A process of this agent has ended: what it was making of stopped attempts is asked of the next one.
    pub fn ask_again(&mut self, agent: &AgentId) {
        let open = self.checkpoints.values().filter(|record| record.state == CheckpointState::Running);
        let lost = |record: &&Arc<Checkpoint>| {
            let ended = self.jobs.get(&record.job).is_some_and(|job| !job.intent.is_live());
            let order = |id: CheckpointId| move |entry: &Arc<Entry>| matches!(entry.order, Order::Checkpoint { id: of, .. } if of == id);
            ended && self.is_current(agent, &record.job, record.attempt) && !self.outbox.of_job(&record.job).any(order(record.id))
        };
        for record in open.filter(lost).cloned().collect::<Vec<_>>() {
            self.send(agent.clone(), record.job.clone(), record.attempt, Order::Checkpoint { id: record.id, kind: record.kind });
        }
    }

    /// A checkpoint will not be made.
    pub fn fail_checkpoint(&mut self, id: CheckpointId, reason: String, now: Now) {
        let Some(record) = self.checkpoint_mut(id) else { return };
        record.state = CheckpointState::Failed;
        record.completed_at_ms = Some(now.wall_ms);
        record.error = Some(reason.clone());
        let (job, kind) = (record.job.clone(), record.kind);
        self.tell(&job, Level::Warn, "checkpoint_failed", format!("{kind} {id}: {reason}"), now);
        self.forget_history(&job);
    }

    /// An agent says how a checkpoint ended. Sealed when this is stored.
    pub fn checkpoint_done(&mut self, done: &CheckpointDone, now: Now) -> HubResponse {
        let agent = match self.fleet.speaker(&done.session) {
            Ok(agent) => agent,
            Err(refusal) => return HubResponse::Refused(refusal),
        };
        if !self.is_current(&agent, &done.job, done.attempt) {
            let message = format!("job {}: attempt {} may not seal any more", done.job, done.attempt);
            return refused(Class::Fenced, message);
        }
        match &done.result {
            Ok(manifest) => self.seal(&agent, done, manifest, now),
            Err(failure) => {
                self.checkpoint_broke(&agent, done, failure, now);
                HubResponse::Accepted
            }
        }
    }

    fn checkpoint_broke(&mut self, agent: &AgentId, done: &CheckpointDone, failure: &Failure, now: Now) {
        let asked = done.id.filter(|id| self.checkpoints.get(id).is_some_and(|record| record.job == done.job));
        let id = match asked {
            // Told twice it failed once.
            Some(id) if self.checkpoints.get(&id).is_some_and(|record| record.is_over()) => return,
            Some(id) => id,
            None => {
                let id = self.next_checkpoint();
                let record = self.record_of(id, agent, done);
                self.keep_checkpoint(record);
                id
            }
        };
        self.fail_checkpoint(id, failure.message.clone(), now);
    }

    fn record_of(&self, id: CheckpointId, agent: &AgentId, done: &CheckpointDone) -> Checkpoint {
        let job = self.jobs.get(&done.job);
        Checkpoint {
            id,
            kind: done.kind,
            job: done.job.clone(),
            version: job.map(|job| job.intent.version).unwrap_or_default(),
            generation: job.map(|job| job.intent.generation).unwrap_or_default(),
            attempt: done.attempt,
            state: CheckpointState::Running,
            epoch: None,
            started_at_ms: done.started_at_ms,
            completed_at_ms: None,
            align_ms: done.align_ms,
            bytes_new: done.bytes_new,
            bytes_total: 0,
            tasks: 0,
            location: self.fleet.get(agent).map(|member| member.agent.state_url.clone()).unwrap_or_default(),
            error: None,
            manifest: None,
        }
    }

    fn seal(&mut self, agent: &AgentId, done: &CheckpointDone, manifest: &Manifest, now: Now) -> HubResponse {
        let Some(job) = self.jobs.get(&done.job).cloned() else {
            return refused(Class::Fenced, format!("job {} does not exist", done.job));
        };
        let Some(plan) = job.version.plan.clone() else {
            return refused(Class::Bug, format!("job {} has no plan", done.job));
        };
        let same = |record: &&Arc<Checkpoint>| {
            let alike = |kept: &Manifest| kept.planned == manifest.planned && epochs(&kept.cuts) == epochs(&manifest.cuts);
            record.attempt == done.attempt && record.kind == done.kind && record.manifest.as_ref().is_some_and(alike)
        };
        let asked = done.id.filter(|id| self.checkpoints.get(id).is_some_and(|record| record.job == done.job));
        let told = match asked {
            Some(id) => self.checkpoints.get(&id).filter(|record| record.is_kept()).map(|record| record.id),
            // An answer that was lost is given again.
            None => self.checkpoints_of(&done.job).rev().find(same).map(|record| record.id),
        };
        if let Some(id) = told {
            return HubResponse::Sealed(Sealed { id, retained: self.retained(&done.job) });
        }
        let reason = if manifest.job != done.job || manifest.attempt != done.attempt {
            Some(format!("it is of attempt {} of job {}", manifest.attempt, manifest.job))
        } else {
            unfit(manifest, &plan)
        };
        if let Some(reason) = reason {
            let message = format!("checkpoint of job {} is not sealed: {reason}", done.job);
            self.checkpoint_broke(agent, done, &Failure { class: Class::User, message: message.clone() }, now);
            return refused(Class::User, message);
        }
        let dropped = asked.is_some_and(|id| self.checkpoints.get(&id).is_some_and(|record| record.state == CheckpointState::Dropped));
        if dropped || self.checkpoints_of(&done.job).any(|record| record.is_ahead_of(manifest)) {
            // News that was under way for long: sealed now, a start would go back to it.
            let message = format!("checkpoint of job {}: it was given up, or a later one is sealed", done.job);
            return refused(Class::Fenced, message);
        }
        let id = asked.unwrap_or_else(|| self.next_checkpoint());
        let mut record = match self.checkpoints.get(&id) {
            Some(record) => record.as_ref().clone(),
            None => self.record_of(id, agent, done),
        };
        record.state = CheckpointState::Completed;
        record.epoch = manifest.cuts.values().map(|cut| cut.epoch).min();
        record.started_at_ms = done.started_at_ms;
        record.completed_at_ms = Some(now.wall_ms);
        record.align_ms = done.align_ms;
        record.bytes_new = done.bytes_new;
        record.bytes_total = manifest.bytes();
        record.tasks = manifest.planned.tasks.len() as u64;
        record.manifest = Some(Manifest { id, ..manifest.clone() });
        let kind = record.kind;
        self.keep_checkpoint(record);
        if let Some(job) = self.job_mut(&done.job) {
            if job.intent.is_live() {
                // The attempt has begun as it was told to: the next one goes on from here.
                (job.intent.fresh, job.intent.from) = (false, None);
            }
            if let Some(assignment) = &mut job.assignment {
                assignment.has_cut = true;
            }
        }
        if kind == CheckpointKind::Savepoint {
            self.tell(&done.job, Level::Info, "savepoint", format!("savepoint {id} is complete"), now);
        }
        self.retain(&done.job, plan.checkpoint.retention);
        HubResponse::Sealed(Sealed { id, retained: self.retained(&done.job) })
    }

    /// Gives up checkpoints of a job that are older than the newest `retention` of its line of cuts, and those of other lines once
    /// this one has some; savepoints stay.
    fn retain(&mut self, job: &JobId, retention: u32) {
        let passing = |record: &&Arc<Checkpoint>| record.kind == CheckpointKind::Checkpoint && record.is_kept();
        let own = self.own_checkpoints(job).filter(passing).rev().take(retention.max(1) as usize);
        let own: BTreeSet<CheckpointId> = own.map(|record| record.id).collect();
        if own.is_empty() {
            return self.forget_history(job);
        }
        let kept = self.checkpoints_of(job).filter(passing).map(|record| record.id);
        let old: Vec<CheckpointId> = kept.filter(|id| !own.contains(id)).collect();
        for id in old {
            self.give_up_checkpoint(id);
        }
        self.forget_history(job);
    }

    fn give_up_checkpoint(&mut self, id: CheckpointId) {
        if let Some(record) = self.checkpoint_mut(id) {
            record.manifest = None;
            record.state = CheckpointState::Dropped;
        }
    }

    fn forget_history(&mut self, job: &JobId) {
        let over = self.checkpoints_of(job).filter(|record| matches!(record.state, CheckpointState::Failed | CheckpointState::Dropped));
        let gone: Vec<CheckpointId> = over.rev().skip(HISTORY_MAX).map(|record| record.id).collect();
        for id in gone {
            self.checkpoints.remove(&id);
            self.changes.checkpoints.insert(id);
        }
    }

    /// Gives up a savepoint. Its objects go with the next sweep of its job, or at once where the job is gone.
    ///
    /// Errors: there is no such savepoint.
    pub fn drop_savepoint(&mut self, id: CheckpointId) -> Result<(), Error> {
        let record = self.checkpoints.get(&id).filter(|record| record.kind == CheckpointKind::Savepoint && record.is_kept());
        let record = record.ok_or_else(|| Error::NotFound { kind: "savepoint", name: id.to_string() })?.clone();
        self.give_up_checkpoint(id);
        if !self.jobs.contains_key(&record.job) {
            self.changes.seen_jobs.insert(record.job.clone());
            self.checkpoints.remove(&id);
            let members = self.fleet.members();
            let holder = members.filter(|member| member.agent.state_url == record.location).map(|member| member.agent.id.clone()).next();
            if let Some(agent) = holder {
                self.send(agent, record.job.clone(), record.attempt, Order::Forget);
            }
        }
        Ok(())
    }

    /// A job is dropped: its checkpoints go, its savepoints stay unless `purge`.
    pub fn drop_checkpoints(&mut self, job: &JobId, purge: bool) {
        let gone = self.checkpoints_of(job).filter(|record| purge || record.kind == CheckpointKind::Checkpoint || !record.is_kept());
        for id in gone.map(|record| record.id).collect::<Vec<_>>() {
            self.checkpoints.remove(&id);
            self.changes.checkpoints.insert(id);
        }
    }

    /// The checkpoints that an attempt may begin from, in the order of preference.
    ///
    /// Errors: why the one that was named cannot be used.
    pub fn candidates(
        &self,
        job: &JobId,
        plan: &JobPlan,
        named: Option<CheckpointId>,
        recovery: Recovery,
    ) -> Result<Vec<Manifest>, String> {
        match named {
            Some(id) => {
                let record = self.checkpoints.get(&id).filter(|record| record.job == *job);
                let manifest = record.and_then(|record| record.manifest.clone());
                let manifest = manifest.ok_or_else(|| format!("job '{job}' has no checkpoint or savepoint {id} any more"))?;
                usable(&manifest, plan).map(|()| vec![manifest])
            }
            None => {
                let mut retained: Vec<Manifest> = self.own_checkpoints(job).rev().filter_map(|record| record.manifest.clone()).collect();
                retained.retain(|manifest| usable(manifest, plan).is_ok());
                let savepoint = |manifest: &Manifest| manifest.kind == CheckpointKind::Savepoint;
                if recovery == Recovery::LatestSavepoint && retained.iter().any(savepoint) {
                    retained.retain(savepoint);
                }
                Ok(retained)
            }
        }
    }
}

#[cfg(test)]
mod tests;
