//! Commands on their way to agents (HUB-4): stored with the change that made them, claimed under
//! a lease, delivered again until they are done, taken back when a later one makes them void.

use crate::clock::Now;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_planner::id::{AgentId, Attempt, CheckpointId, Generation, JobId};
use weir_planner::manifest::CheckpointKind;
use weir_planner::protocol::Restore;

/// A command without `CommandDone` comes again after this time, then after twice as long, …
pub const CLAIM_MS: u64 = 5_000;
/// … but at least this often.
pub const CLAIM_MAX_MS: u64 = 30_000;

/// One command, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Rises; never used twice.
    pub id: u64,
    /// Who shall do it.
    pub agent: AgentId,
    /// The job.
    pub job: JobId,
    /// Which intent.
    pub generation: Generation,
    /// The attempt that it starts, stops or forgets.
    pub attempt: Attempt,
    /// What to do.
    pub order: Order,
}

/// What to do. The plan of a start is added at delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in planner/protocol")]
pub enum Order {
    Start { restore: Restore },
    Stop,
    Forget,
    Checkpoint { id: CheckpointId, kind: CheckpointKind },
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    until_ms: u64,
    deliveries: u32,
}

/// All commands that are not done. Claims are kept in memory only: after a restart of the hub
/// everything is delivered again, which agents take as nothing new.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    entries: BTreeMap<u64, Arc<Entry>>,
    claims: BTreeMap<u64, Claim>,
    /// Added by this process and never claimed: certain not to have left.
    untouched: BTreeSet<u64>,
}

impl Outbox {
    /// As stored by an earlier process.
    pub fn load(entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries = entries.into_iter().map(|entry| (entry.id, Arc::new(entry))).collect();
        Outbox { entries, ..Outbox::default() }
    }

    /// Adds a command and takes back those of the same job on the same agent that it makes void:
    /// a stop or a start voids earlier starts and stops, a forget voids all. Returns the ids taken back.
    pub fn push(&mut self, entry: Entry) -> Vec<u64> {
        let void = |old: &Entry| {
            let same = old.agent == entry.agent && old.job == entry.job && old.attempt <= entry.attempt;
            let voids = match (&entry.order, &old.order) {
                (Order::Forget, _) => true,
                // A stop lets what was asked for before be made of the last cut.
                (Order::Checkpoint { .. }, _) | (_, Order::Forget) | (Order::Stop, Order::Checkpoint { .. }) => false,
                (Order::Start { .. } | Order::Stop, Order::Start { .. } | Order::Stop | Order::Checkpoint { .. }) => true,
            };
            same && voids
        };
        let gone: Vec<u64> = self.entries.values().filter(|old| void(old)).map(|old| old.id).collect();
        for id in &gone {
            self.remove(*id);
        }
        self.untouched.insert(entry.id);
        self.entries.insert(entry.id, Arc::new(entry));
        gone
    }

    /// Takes a command out.
    pub fn remove(&mut self, id: u64) -> Option<Arc<Entry>> {
        self.claims.remove(&id);
        self.untouched.remove(&id);
        self.entries.remove(&id)
    }

    /// One command.
    pub fn get(&self, id: u64) -> Option<&Arc<Entry>> {
        self.entries.get(&id)
    }

    /// All commands, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// Commands of one job.
    pub fn of_job<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.entries.values().filter(move |entry| entry.job == *job)
    }

    /// The command may have reached its agent.
    pub fn may_have_left(&self, id: u64) -> bool {
        !self.untouched.contains(&id)
    }

    /// Claims what can be delivered to `agent` now, oldest first.
    pub fn claim(&mut self, agent: &AgentId, now: Now) -> Vec<Arc<Entry>> {
        let taken: Vec<Arc<Entry>> = self.ready(now).filter(|entry| entry.agent == *agent).cloned().collect();
        for entry in &taken {
            self.postpone(entry.id, now);
            self.untouched.remove(&entry.id);
        }
        taken
    }

    /// Agents with a command that can be delivered now.
    pub fn deliverable(&self, now: Now) -> BTreeSet<AgentId> {
        self.ready(now).map(|entry| entry.agent.clone()).collect()
    }

    /// What can be delivered now, oldest first. What follows an undone `Forget` of the same job
    /// on the same agent waits for it, so that a new job of that name cannot lose its state to it.
    fn ready(&self, now: Now) -> impl Iterator<Item = &Arc<Entry>> {
        let mut forgetting = BTreeSet::new();
        self.entries.values().filter(move |entry| {
            let place = (&entry.agent, &entry.job);
            if forgetting.contains(&place) {
                return false;
            }
            if entry.order == Order::Forget {
                forgetting.insert(place);
            }
            self.claims.get(&entry.id).is_none_or(|claim| claim.until_ms <= now.steady_ms)
        })
    }

    /// Holds a command back for a while that grows with each delivery.
    pub fn postpone(&mut self, id: u64, now: Now) {
        let claim = self.claims.entry(id).or_insert(Claim { until_ms: 0, deliveries: 0 });
        let wait_ms = CLAIM_MS.saturating_mul(1 << claim.deliveries.min(8)).min(CLAIM_MAX_MS);
        *claim = Claim { until_ms: now.steady_ms.saturating_add(wait_ms), deliveries: claim.deliveries.saturating_add(1) };
    }

    /// A new session of `agent`: whatever it was given before is delivered again.
    pub fn release(&mut self, agent: &AgentId) {
        let entries = &self.entries;
        self.claims.retain(|id, _| entries.get(id).is_some_and(|entry| entry.agent != *agent));
    }

    /// The next end of a claim after `now`, with its agent.
    pub fn next_due(&self, now: Now) -> Option<u64> {
        self.claims.values().map(|claim| claim.until_ms).filter(|until| *until > now.steady_ms).min()
    }
}

#[cfg(test)]
mod tests;
