//! Where a job goes on that has run before: at its agent, or, sealed, at another one with the same state store.

use super::{Unplaced, other_store};
use crate::clock::Now;
use crate::intent::offline;
use crate::place;
use crate::world::{Assignment, World};
use std::sync::Arc;
use weir_planner::id::{AgentId, JobId, OperatorId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::Level;
use weir_planner::spec::{Durability, DurabilityBackend, Horizon};

impl World {
    /// Whether the job can go on at another agent: what its last attempt did waits for the seal, and there is one.
    pub(super) fn can_move(&self, id: &JobId) -> bool {
        let sealed = |job: &Arc<crate::world::Job>| job.assignment.as_ref().is_some_and(|held| held.horizon == Horizon::Sealed);
        self.jobs.get(id).is_some_and(sealed) && self.own_checkpoints(id).next().is_some()
    }

    /// An agent that is online and reads the state store that the job's newest checkpoint is in. It may be the one that had the job,
    /// with another data directory.
    pub(super) fn heir(&self, id: &JobId, held: &Assignment, unplaced: Unplaced, now: Now) -> Result<AgentId, Unplaced> {
        let location = self.own_checkpoints(id).next_back().map(|record| record.location.clone()).unwrap_or_default();
        let reads =
            |agent: &AgentId| self.fleet.get(agent).is_some_and(|member| member.agent.state_url == location && !location.is_empty());
        let mut candidates = self.fleet.candidates(now);
        candidates.retain(|candidate| reads(&candidate.agent));
        let node_ids = self.jobs.get(id).map(|job| job.version.spec.node_ids.as_slice()).unwrap_or_default();
        place::choose(&candidates, node_ids).map_err(|_| match unplaced {
            Unplaced::NotYet(_) => Unplaced::NotYet(format!(
                "agent '{}' is offline, and no other agent that is online has its state store {location}: the job goes on when one of them is there",
                held.agent
            )),
            Unplaced::Soon | Unplaced::Never(_) => unplaced,
        })
    }

    /// Until when a job waits for the agent that it ran on, steady ms, before it goes on elsewhere: that has an input log with rows
    /// that no checkpoint holds (WAL-4). `None` where there is nothing to wait for.
    pub(super) fn log_due(&self, id: &JobId, held: &Assignment) -> Option<u64> {
        let job = self.jobs.get(id)?;
        let wait_ms = local_logs(job.version.plan.as_deref()?).map(|(_, log)| log.wal_wait_ms).max()?;
        // Under another store the log is not there any more.
        let member = self.fleet.get(&held.agent).filter(|member| member.agent.store_id == held.store_id)?;
        Some(member.deadline_ms.saturating_add(wait_ms))
    }

    /// Says that rows in an input log are given up, since the job goes on where the log is not.
    pub(super) fn tell_gap(&mut self, id: &JobId, held: &Assignment, agent: &AgentId, now: Now) {
        let plan = self.jobs.get(id).and_then(|job| job.version.plan.clone());
        let sources: Vec<String> = plan.iter().flat_map(|plan| local_logs(plan)).map(|(source, _)| format!("'{source}'")).collect();
        if sources.is_empty() {
            return;
        }
        let message = format!(
            "the job goes on at agent '{agent}' from its last checkpoint: rows after it that are in the input log of {} on agent '{}' are lost",
            sources.join(", "),
            held.agent
        );
        self.tell(id, Level::Error, "wal_gap", message, now);
    }

    pub(super) fn pinned_agent(&self, assignment: &Assignment) -> Result<AgentId, Unplaced> {
        let agent = &assignment.agent;
        match self.fleet.get(agent).filter(|member| member.session.is_some()) {
            None if self.fleet.get(agent).is_some_and(|member| !member.lost) => Err(Unplaced::Soon),
            None => Err(Unplaced::NotYet(offline(agent.as_str()))),
            Some(member) if member.agent.store_id == assignment.store_id => Ok(agent.clone()),
            Some(member) => Err(Unplaced::Never(other_store(agent, &assignment.store_id, &member.agent.store_id))),
        }
    }
}

/// Sources that have an input log on the disk of their agent.
fn local_logs(plan: &JobPlan) -> impl Iterator<Item = (&OperatorId, &Durability)> {
    plan.sources().filter_map(|(id, source)| {
        let log = source.durability.as_ref().filter(|log| log.enabled && log.backend == DurabilityBackend::Local);
        log.map(|log| (id, log))
    })
}
