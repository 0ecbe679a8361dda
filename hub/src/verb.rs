//! What users may do to jobs, on the world in memory: everything is checked before anything changes.

use crate::clock::Now;
use crate::error::Error;
use crate::hub::{DesiredState, NewJob, StartFrom};
use crate::intent::Intent;
use crate::outbox::Order;
use crate::world::{Job, Version, World, Write};
use std::sync::Arc;
use weir_planner::id::{Generation, JobId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::Level;
use weir_planner::spec::{Placement, Recovery, differences, listed};

fn missing(id: &JobId) -> Error {
    Error::NotFound { kind: "job", name: id.to_string() }
}

impl World {
    /// Stores a job. `Ok(false)` when this version was there with equal content.
    pub fn create_job(&mut self, new: NewJob, plan: Option<JobPlan>, now: Now) -> Result<bool, Error> {
        let id = new.spec.id.clone();
        if let Some(old) = self.jobs.get(&id) {
            return same_version(old, &new);
        }
        if let Some(kind) = self.kind_of(id.as_str()) {
            return Err(Error::Exists { kind, name: id.to_string() });
        }
        // The statement was planned against a snapshot; what it uses may have gone since.
        if let Some(gone) = new.uses.iter().find(|name| self.kind_of(name).is_none()) {
            return Err(Error::NotFound { kind: "source or sink", name: gone.clone() });
        }
        let number = new.spec.version;
        let split = new.spec.placement == Placement::Split;
        let version = Arc::new(Version {
            spec: Arc::new(new.spec),
            submitted: None,
            plan: plan.map(Arc::new),
            places: new.places,
            sql: new.sql,
            uses: new.uses,
            stream: new.stream,
        });
        let intent = Intent::new(id.clone(), number, new.desired, self.counters.attempt_floor, now);
        self.jobs.insert(id.clone(), Arc::new(Job { intent, version: version.clone(), assignment: None, observation: None }));
        self.changes.jobs.insert(id.clone());
        self.changes.seen_jobs.insert(id.clone());
        self.changes.log.push(Write::Version(id.clone(), number, version));
        self.tell(&id, Level::Info, "created", format!("version {number}"), now);
        if split {
            let notice = "placement: split has no effect yet: all tasks run on one agent".to_owned();
            self.tell(&id, Level::Warn, "placement", notice, now);
        }
        Ok(true)
    }

    /// Changes what is wanted of a job.
    pub fn set_desired(
        &mut self,
        id: &JobId,
        desired: DesiredState,
        if_generation: Option<Generation>,
        from: StartFrom,
        now: Now,
    ) -> Result<(), Error> {
        let left_outbox = self.start_may_have_left(id);
        let job = self.jobs.get(id).ok_or_else(|| missing(id))?;
        let current = job.intent.generation;
        if let Some(expected) = if_generation
            && expected != current
        {
            return Err(Error::Conflict(format!(
                "job '{id}' is at generation {current}, not {expected}: somebody changed it meanwhile; look again, then decide"
            )));
        }
        let mut intent = job.intent.clone();
        let effects = match desired {
            DesiredState::Running => {
                if let StartFrom::Checkpoint(named) = from {
                    let plan = job.version.plan.as_deref();
                    let plan = plan.ok_or_else(|| Error::Conflict(format!("job '{id}' has no plan yet: start it as it is first")))?;
                    self.candidates(id, plan, Some(named), job.version.spec.recovery).map_err(Error::Conflict)?;
                }
                let keeps = job.assignment.as_ref().is_some_and(|held| held.has_cut) || self.own_checkpoints(id).next().is_some();
                if from == StartFrom::Newest && job.version.spec.recovery == Recovery::Fail && !intent.is_live() && keeps {
                    return Err(Error::Conflict(format!(
                        "job '{id}' has state, and its recovery is 'fail': start it from a checkpoint or savepoint by its number, or fresh"
                    )));
                }
                intent.start(from).map_err(Error::Conflict)?
            }
            DesiredState::Stopped if from != StartFrom::Newest => {
                return Err(Error::Conflict(format!("job '{id}': fresh, or a checkpoint, goes with a start, not with a stop")));
            }
            DesiredState::Stopped => intent.stop(left_outbox),
        };
        if intent == job.intent {
            return Ok(());
        }
        if let Some(job) = self.job_mut(id) {
            job.intent = intent;
        }
        self.carry_out(id, effects, now);
        Ok(())
    }

    /// Deletes a job at once, and has its agent stop it and delete its state and results.
    pub fn drop_job(&mut self, id: &JobId) -> Result<(), Error> {
        let job = self.jobs.remove(id).ok_or_else(|| missing(id))?;
        self.changes.jobs.insert(id.clone());
        self.changes.seen_jobs.insert(id.clone());
        self.changes.log.push(Write::VersionsGone(id.clone()));
        self.events.remove(id);
        self.changes.log.push(Write::EventsGone(id.clone()));
        self.raise_floor(job.intent.attempt);
        self.drop_checkpoints(id, false);
        // A job without an assignment was never granted: there is nothing to forget.
        if let Some(assignment) = &job.assignment {
            self.send(assignment.agent.clone(), id.clone(), job.intent.attempt, Order::Forget);
        }
        Ok(())
    }
}

fn same_version(old: &Job, new: &NewJob) -> Result<bool, Error> {
    /// Differences that a refusal names.
    const NAMED_MAX: usize = 8;
    let (id, number) = (&new.spec.id, new.spec.version);
    // A stream and a job of one name are two things, even where they would run alike (STR-1).
    if old.version.stream.is_some() != new.stream.is_some() {
        let kind = if old.version.stream.is_some() { "stream" } else { "job" };
        return Err(Error::Exists { kind, name: id.to_string() });
    }
    let current = old.intent.version;
    let way_out = format!("drop job '{id}' and create it again");
    match number.cmp(&current) {
        std::cmp::Ordering::Equal => {
            // Sampling may have completed the spec since: what came in then is what comes in again, or
            // else what can be read back.
            let submitted = old.version.submitted.as_ref().unwrap_or(&old.version.spec);
            let changed = differences(submitted, &new.spec);
            if changed.is_empty() || differences(&old.version.spec, &new.spec).is_empty() {
                return Ok(false);
            }
            let changed = listed(&changed, NAMED_MAX);
            Err(Error::Conflict(format!(
                "version {number} of job '{id}' exists with other content ({changed}): a changed job needs a higher `version`, but upgrade is not available yet, so {way_out}"
            )))
        }
        std::cmp::Ordering::Greater => Err(Error::Conflict(format!(
            "job '{id}' is at version {current}: upgrade to version {number} is not available yet, so {way_out}"
        ))),
        std::cmp::Ordering::Less => Err(Error::Conflict(format!(
            "job '{id}' is at version {current}: version {number} is older, and a job never goes back; submit version {current}, or {way_out}"
        ))),
    }
}

#[cfg(test)]
mod tests;
