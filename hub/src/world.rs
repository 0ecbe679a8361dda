//! Everything that the hub decides over, in memory, and the list of what has changed in it.
//!
//! The driver clones it (the parts are shared), lets pure functions change the clone, stores the
//! changes in one transaction, and only then makes the clone the truth. So memory never runs
//! ahead of the store, and a failed transaction leaves nothing half done (HUB-1).

use crate::checkpoint::Checkpoint;
use crate::clock::Now;
use crate::fleet::Fleet;
use crate::hub::{CatalogEntry, JobEvent};
use crate::intent::{Effect, Intent};
use crate::outbox::{Entry, Order, Outbox};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use weir_planner::error::Place;
use weir_planner::id::{AgentId, Attempt, CheckpointId, JobId, JobVersion};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{Event, JobObservation, Level};
use weir_planner::spec::{Horizon, JobSpec};

/// Events kept of each job (HUB-5).
pub const EVENTS_MAX: usize = 1_000;

/// One submitted version of a job: never changed, but for columns that are sampled once and pinned (JOB-6).
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// As submitted, bound forms included; with sampled columns once there are any.
    pub spec: Arc<JobSpec>,
    /// As submitted, where sampling has completed `spec` since (JOB-6).
    pub submitted: Option<Arc<JobSpec>>,
    /// As compiled; `None` while columns of a source are not known.
    pub plan: Option<Arc<JobPlan>>,
    /// Where fields stand in the submitted text, by path.
    pub places: BTreeMap<String, Place>,
    /// The statement, when it came by SQL.
    pub sql: Option<String>,
    /// Catalog entries that it uses.
    pub uses: Vec<String>,
    /// The `streams:` entry that it was compiled from, as JSON text.
    pub stream: Option<String>,
}

/// Which agent a job is pinned to, since its local state is there (EPO-8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The agent.
    pub agent: AgentId,
    /// Its data directory: another one under the same name does not have the state (C51).
    pub store_id: String,
    /// The attempt that was granted last.
    pub attempt: Attempt,
    /// A cut of the job is known to have been decided there.
    pub has_cut: bool,
    /// The first attempt since the job was granted anything else than to go on here (EPO-9).
    #[serde(default)]
    pub since: Attempt,
    /// How far effects of the attempt wait (EPO-8).
    #[serde(default = "local")]
    pub horizon: Horizon,
}

fn local() -> Horizon {
    Horizon::Local
}

/// A job with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Wanted and observed.
    pub intent: Intent,
    /// Current version.
    pub version: Arc<Version>,
    /// Where its state is.
    pub assignment: Option<Assignment>,
    /// Last report of its current attempt.
    pub observation: Option<Arc<JobObservation>>,
}

/// The last events of one job.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    /// Sequence of the oldest one kept.
    pub first: u64,
    /// Oldest first.
    pub items: VecDeque<Arc<JobEvent>>,
}

/// Numbers that must never be used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Next outbox id.
    pub next_command: u64,
    /// Highest attempt of any dropped job. A new job begins above it, so that late news of a
    /// dropped namesake is always stale.
    pub attempt_floor: Attempt,
    /// Last checkpoint id.
    #[serde(default)]
    pub last_checkpoint: CheckpointId,
}

/// One change of the store.
#[derive(Clone, Debug)]
pub enum Write {
    /// Put or delete a job's intent.
    Job(JobId, Option<Arc<Job>>),
    /// Put a version.
    Version(JobId, JobVersion, Arc<Version>),
    /// Delete every version of a job.
    VersionsGone(JobId),
    /// Put or delete a job's assignment.
    Assignment(JobId, Option<Assignment>),
    /// Put or delete a catalog entry.
    Entry(String, Option<Arc<CatalogEntry>>),
    /// Put an agent.
    Agent(AgentId, crate::fleet::Agent),
    /// Put or delete a command.
    Command(u64, Option<Arc<Entry>>),
    /// Put an event, or delete one that is over the bound.
    Event(JobId, u64, Option<Arc<JobEvent>>),
    /// Delete every event of a job.
    EventsGone(JobId),
    /// Put or delete a checkpoint.
    Checkpoint(CheckpointId, Option<Arc<Checkpoint>>),
    /// Put the counters.
    Counters(Counters),
}

/// What one batch of changes touched.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Stored jobs that changed or went.
    pub jobs: BTreeSet<JobId>,
    /// Stored entries that changed or went.
    pub entries: BTreeSet<String>,
    /// Agents whose stored part changed.
    pub agents: BTreeSet<AgentId>,
    /// Commands that came, or went.
    pub commands: BTreeSet<u64>,
    /// Checkpoints that changed, or went.
    pub checkpoints: BTreeSet<CheckpointId>,
    /// In order: versions and events.
    pub log: Vec<Write>,
    /// Jobs whose visible part changed, stored or not.
    pub seen_jobs: BTreeSet<JobId>,
    /// Agents with a new session.
    pub arrived: BTreeSet<AgentId>,
    /// Agents whose visible part changed, stored or not.
    pub seen_agents: BTreeSet<AgentId>,
    counters: bool,
}

impl Changes {
    /// The counters have to be stored.
    pub fn counters_changed(&mut self) {
        self.counters = true;
    }

    /// How much there is to store; rises with every stored change but a repeated one.
    pub fn stored(&self) -> usize {
        let sets = self.jobs.len() + self.entries.len() + self.agents.len() + self.commands.len() + self.checkpoints.len();
        sets + self.log.len() + usize::from(self.counters)
    }
}

/// The whole.
#[derive(Clone, Debug)]
pub struct World {
    /// By id.
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    /// By folded name.
    pub entries: BTreeMap<String, Arc<CatalogEntry>>,
    /// The agents.
    pub fleet: Fleet,
    /// Commands that are not done.
    pub outbox: Outbox,
    /// By job.
    pub events: BTreeMap<JobId, Arc<EventLog>>,
    /// By id.
    pub checkpoints: BTreeMap<CheckpointId, Arc<Checkpoint>>,
    /// Never used twice.
    pub counters: Counters,
    /// Since the last commit.
    pub changes: Changes,
}

impl World {
    /// A world without jobs or entries.
    pub fn new(fleet: Fleet) -> Self {
        World {
            jobs: BTreeMap::new(),
            entries: BTreeMap::new(),
            fleet,
            outbox: Outbox::default(),
            events: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            counters: Counters { next_command: 1, ..Counters::default() },
            changes: Changes::default(),
        }
    }

    /// Takes the changes out, as writes of one transaction; none when nothing stored has changed.
    pub fn take_changes(&mut self) -> (Vec<Write>, Changes) {
        let mut changes = std::mem::take(&mut self.changes);
        let mut writes = std::mem::take(&mut changes.log);
        for id in &changes.jobs {
            let job = self.jobs.get(id).cloned();
            writes.push(Write::Assignment(id.clone(), job.as_ref().and_then(|job| job.assignment.clone())));
            writes.push(Write::Job(id.clone(), job));
        }
        for name in &changes.entries {
            writes.push(Write::Entry(name.clone(), self.entries.get(name).cloned()));
        }
        for id in &changes.agents {
            if let Some(member) = self.fleet.get(id) {
                writes.push(Write::Agent(id.clone(), member.agent.clone()));
            }
        }
        for id in &changes.commands {
            writes.push(Write::Command(*id, self.outbox.get(*id).cloned()));
        }
        for id in &changes.checkpoints {
            writes.push(Write::Checkpoint(*id, self.checkpoints.get(id).cloned()));
        }
        if changes.counters {
            writes.push(Write::Counters(self.counters));
        }
        (writes, changes)
    }

    /// A job to change; it will be stored.
    pub fn job_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(id)?;
        self.changes.jobs.insert(id.clone());
        self.changes.seen_jobs.insert(id.clone());
        Some(Arc::make_mut(job))
    }

    /// Carries out what a step of a job's intent asked for.
    pub fn carry_out(&mut self, id: &JobId, effects: Vec<Effect>, now: Now) {
        for effect in effects {
            match effect {
                Effect::Tell(level, kind, message) => self.tell(id, level, kind, message, now),
                Effect::StopAttempt => {
                    let Some(job) = self.jobs.get(id) else { continue };
                    let Some(agent) = job.assignment.as_ref().map(|a| a.agent.clone()) else { continue };
                    let attempt = job.intent.attempt;
                    if self.outbox.of_job(id).any(|entry| entry.order == Order::Stop && entry.attempt == attempt) {
                        continue;
                    }
                    self.send(agent, id.clone(), attempt, Order::Stop);
                }
                Effect::WithdrawStart => {
                    let starts = self.outbox.of_job(id).filter(|entry| matches!(entry.order, Order::Start { .. }));
                    let ids: Vec<u64> = starts.map(|entry| entry.id).collect();
                    for id in ids {
                        self.remove_command(id);
                    }
                }
            }
        }
    }

    /// Puts a command into the outbox, under the job's current generation.
    pub fn send(&mut self, agent: AgentId, job: JobId, attempt: Attempt, order: Order) {
        let id = self.counters.next_command;
        self.counters.next_command += 1;
        self.changes.counters = true;
        let generation = self.jobs.get(&job).map(|job| job.intent.generation).unwrap_or_default();
        let void = self.outbox.push(Entry { id, agent, job, generation, attempt, order });
        self.changes.commands.insert(id);
        self.changes.commands.extend(void);
    }

    /// Takes a command out of the outbox.
    pub fn remove_command(&mut self, id: u64) -> Option<Arc<Entry>> {
        let entry = self.outbox.remove(id)?;
        self.changes.commands.insert(id);
        // What waited behind it, and who waits for its end, shall look again.
        self.changes.seen_agents.insert(entry.agent.clone());
        self.changes.seen_jobs.insert(entry.job.clone());
        Some(entry)
    }

    /// The start command of the job's live attempt may have left the outbox, or there is none.
    pub fn start_may_have_left(&self, id: &JobId) -> bool {
        let mut starts = self.outbox.of_job(id).filter(|entry| matches!(entry.order, Order::Start { .. }));
        starts.all(|entry| self.outbox.may_have_left(entry.id))
    }

    /// Keeps an event of the hub's own.
    pub fn tell(&mut self, id: &JobId, level: Level, kind: &str, message: String, now: Now) {
        let event = Event { at_ms: now.wall_ms, level, kind: kind.to_owned(), message, operator: None, count: 1 };
        self.keep(id, None, event);
    }

    /// Keeps an event; the oldest one goes when there are too many.
    pub fn keep(&mut self, id: &JobId, agent: Option<AgentId>, event: Event) {
        let event = Arc::new(JobEvent { job: id.clone(), agent, event });
        let log = Arc::make_mut(self.events.entry(id.clone()).or_default());
        let sequence = log.first + log.items.len() as u64;
        log.items.push_back(event.clone());
        self.changes.log.push(Write::Event(id.clone(), sequence, Some(event)));
        while log.items.len() > EVENTS_MAX {
            log.items.pop_front();
            self.changes.log.push(Write::Event(id.clone(), log.first, None));
            log.first += 1;
        }
        self.changes.seen_jobs.insert(id.clone());
    }

    /// Notes that the counters have to be stored.
    pub fn raise_floor(&mut self, attempt: Attempt) {
        if attempt > self.counters.attempt_floor {
            self.counters.attempt_floor = attempt;
            self.changes.counters = true;
        }
    }
}
