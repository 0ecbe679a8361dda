//! What everybody may see, published by the driver after each commit: readers never wait.

use crate::checkpoint::Checkpoint;
use crate::hub::{AgentInfo, CatalogSnapshot, JobEvent, JobInfo};
use crate::outbox::Order;
use crate::world::{Changes, EventLog, Job, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_planner::id::{AgentId, CheckpointId, JobId};

/// One consistent picture.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Entries and jobs.
    pub catalog: Arc<CatalogSnapshot>,
    /// By id.
    pub agents: BTreeMap<AgentId, Arc<AgentInfo>>,
    /// By job.
    pub events: BTreeMap<JobId, Arc<EventLog>>,
    /// Who speaks for whom.
    pub sessions: BTreeMap<String, AgentId>,
    /// By id.
    pub checkpoints: BTreeMap<CheckpointId, Arc<Checkpoint>>,
    /// Dropped jobs whose state an agent that is online still has to delete.
    pub forgetting: BTreeSet<JobId>,
}

impl View {
    /// The whole world.
    pub fn of(world: &World) -> View {
        let mut changes = Changes::default();
        changes.seen_jobs.extend(world.jobs.keys().cloned());
        changes.entries.extend(world.entries.keys().cloned());
        changes.seen_agents.extend(world.fleet.members().map(|member| member.agent.id.clone()));
        View::default().after(world, &changes)
    }

    /// The next picture: only what changed is made anew.
    pub fn after(&self, world: &World, changes: &Changes) -> View {
        let mut next = self.clone();
        if !changes.seen_jobs.is_empty() || !changes.entries.is_empty() {
            let catalog = Arc::make_mut(&mut next.catalog);
            for id in &changes.seen_jobs {
                match world.jobs.get(id) {
                    Some(job) => catalog.jobs.insert(id.to_string(), Arc::new(job_info(id, job))),
                    None => catalog.jobs.remove(id.as_str()),
                };
            }
            for name in &changes.entries {
                match world.entries.get(name) {
                    Some(entry) => catalog.entries.insert(name.clone(), entry.clone()),
                    None => catalog.entries.remove(name),
                };
            }
        }
        let holders = changes.seen_jobs.iter().filter_map(|id| world.jobs.get(id)?.assignment.as_ref().map(|a| a.agent.clone()));
        let agents: BTreeSet<AgentId> = holders.chain(changes.seen_agents.iter().cloned()).collect();
        for id in agents {
            if let Some(member) = world.fleet.get(&id) {
                next.agents.insert(id.clone(), Arc::new(member.info(tasks_on(world, &id))));
            }
        }
        next.events.clone_from(&world.events);
        next.checkpoints.clone_from(&world.checkpoints);
        next.sessions.clone_from(world.fleet.sessions());
        let online = |agent: &AgentId| world.fleet.get(agent).is_some_and(|member| member.session.is_some());
        let forgets = world.outbox.iter().filter(|entry| entry.order == Order::Forget && online(&entry.agent));
        next.forgetting = forgets.map(|entry| entry.job.clone()).collect();
        next
    }

    /// One job.
    pub fn job(&self, id: &JobId) -> Option<&Arc<JobInfo>> {
        self.catalog.jobs.get(id.as_str())
    }

    /// Events, oldest first.
    pub fn events_of(&self, id: Option<&JobId>) -> Vec<JobEvent> {
        let logs = self.events.iter().filter(|(job, _)| id.is_none_or(|id| id == *job));
        let mut events: Vec<JobEvent> = logs.flat_map(|(_, log)| log.items.iter().map(|event| event.as_ref().clone())).collect();
        if id.is_none() {
            events.sort_by_key(|event| event.event.at_ms);
        }
        events
    }
}

fn job_info(id: &JobId, job: &Job) -> JobInfo {
    let intent = &job.intent;
    JobInfo {
        id: id.clone(),
        version: intent.version,
        state: intent.state(),
        desired: intent.desired,
        generation: intent.generation,
        attempt: intent.attempt,
        spec: job.version.spec.clone(),
        submitted: job.version.submitted.clone(),
        plan: job.version.plan.clone(),
        sql: job.version.sql.clone(),
        uses: job.version.uses.clone(),
        stream: job.version.stream.clone(),
        created_at_ms: intent.created_at_ms,
        started_at_ms: intent.started_at_ms,
        last_error: intent.waiting.clone().or_else(|| intent.last_error.clone()),
        agent: job.assignment.as_ref().map(|assignment| assignment.agent.clone()),
        store_id: job.assignment.as_ref().map(|assignment| assignment.store_id.clone()),
        observation: job.observation.clone(),
    }
}

fn tasks_on(world: &World, agent: &AgentId) -> u64 {
    let here = |job: &&Arc<Job>| job.intent.is_live() && job.assignment.as_ref().is_some_and(|a| a.agent == *agent);
    let tasks = |job: &Arc<Job>| job.observation.as_ref().map_or(0, |seen| seen.tasks.len() as u64);
    world.jobs.values().filter(here).map(tasks).sum()
}
