//! The agents: who is registered, which session speaks for whom, how long each lease lasts (pure).

use crate::clock::Now;
use crate::hub::AgentInfo;
use crate::place::Candidate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_planner::error::Class;
use weir_planner::id::AgentId;
use weir_planner::protocol::{Load, PROTOCOL_VERSION, Refusal, Register};

/// Most agents that a hub takes (AGT-6).
pub const AGENTS_MAX: usize = 256;
/// Added to a lease before an agent is judged, counted from the hub's own receipt (AGT-4).
pub const GRACE_MS: u64 = 5_000;

/// What is stored of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Name.
    pub id: AgentId,
    /// Of its last process: tells a restart from a reconnect.
    pub boot_id: String,
    /// Of its data directory.
    pub store_id: String,
    /// Weir's version.
    pub version: String,
    /// As announced.
    pub capabilities: Vec<String>,
    /// For people.
    pub address: String,
    /// Where it keeps checkpoints.
    #[serde(default)]
    pub state_url: String,
    /// It runs in this process.
    #[serde(default)]
    pub embedded: bool,
    /// Wall clock of the last registration.
    pub registered_at_ms: i64,
}

/// An agent with what is known of it right now.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Stored part.
    pub agent: Agent,
    /// Its only valid session; none when it has to register first.
    pub session: Option<String>,
    /// Of its last accepted report.
    pub sequence: u64,
    /// Steady clock: when it is judged.
    pub deadline_ms: u64,
    /// It was judged and has not come back.
    pub lost: bool,
    /// Wall clock of its last accepted message.
    pub last_seen_at_ms: Option<i64>,
    /// Wall clock.
    pub lease_until_at_ms: Option<i64>,
    /// Last load with the steady time of its report.
    pub load: Option<(Load, u64)>,
}

/// All agents.
#[derive(Clone, Debug)]
pub struct Fleet {
    members: BTreeMap<AgentId, Arc<Member>>,
    sessions: BTreeMap<String, AgentId>,
    lease_ms: u64,
    token: Option<String>,
}

/// What a registration turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Another process than the last one, or the first: nothing of before runs.
    Started,
    /// The same process again.
    Reconnected,
}

impl Fleet {
    /// As stored. Every known agent gets a full lease and grace before it is judged.
    pub fn load(agents: impl IntoIterator<Item = Agent>, lease: Duration, token: Option<String>, now: Now) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1);
        let deadline_ms = now.steady_ms.saturating_add(lease_ms).saturating_add(GRACE_MS);
        let member = |agent: Agent| {
            let last_seen_at_ms = Some(agent.registered_at_ms);
            let id = agent.id.clone();
            let member = Member {
                agent,
                session: None,
                sequence: 0,
                deadline_ms,
                lost: false,
                last_seen_at_ms,
                lease_until_at_ms: None,
                load: None,
            };
            (id, Arc::new(member))
        };
        Fleet { members: agents.into_iter().map(member).collect(), sessions: BTreeMap::new(), lease_ms, token }
    }

    /// Length of leases.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Pace of reports: a third of the lease at most, a second at most, since people watch them.
    pub fn report_ms(&self) -> u64 {
        (self.lease_ms / 3).clamp(1, 1_000)
    }

    /// One agent.
    pub fn get(&self, id: &AgentId) -> Option<&Arc<Member>> {
        self.members.get(id)
    }

    /// The agent that a session speaks for; another session is fenced.
    pub fn speaker(&self, session: &str) -> Result<AgentId, Refusal> {
        self.sessions
            .get(session)
            .cloned()
            .ok_or_else(|| Refusal { class: Class::Fenced, message: "this session has ended: register again".to_owned() })
    }

    /// Takes a registration and makes `session` the agent's only one.
    pub fn register(&mut self, request: &Register, session: &str, now: Now) -> Result<Arrival, Refusal> {
        let refuse = |message: String| Err(Refusal { class: Class::User, message });
        if request.protocol != PROTOCOL_VERSION {
            return refuse(format!(
                "agent '{}' (weir {}) speaks protocol {}, this hub speaks {PROTOCOL_VERSION}: run the same version of weir on both",
                request.agent, request.version, request.protocol
            ));
        }
        if let Some(token) = &self.token
            && !request.token.as_ref().is_some_and(|shown| same_secret(shown, token))
        {
            return refuse(format!("agent '{}' did not present the hub's agent token", request.agent));
        }
        let known = self.members.get(&request.agent);
        if known.is_none() && self.members.len() >= AGENTS_MAX {
            return refuse(format!(
                "agent '{}' is one too many: this hub has its {AGENTS_MAX} agents; run a further hub for more",
                request.agent
            ));
        }
        if let Some(live) = known.filter(|member| member.session.is_some() && !member.lost && member.deadline_ms > now.steady_ms)
            && live.agent.store_id != request.store_id
        {
            // Not for good: the other one may be a machine that was just replaced, whose lease runs out.
            let message = format!(
                "agent '{}' is online with another data directory ({}): give this one a name of its own with --node-id, or wait for the other's lease to end",
                request.agent, live.agent.address
            );
            return Err(Refusal { class: Class::Retry, message });
        }
        let same_process = known.is_some_and(|member| member.agent.boot_id == request.boot_id);
        if let Some(old) = known.and_then(|member| member.session.as_ref()) {
            self.sessions.remove(old);
        }
        let mut agent = Agent {
            id: request.agent.clone(),
            boot_id: request.boot_id.clone(),
            store_id: request.store_id.clone(),
            version: request.version.clone(),
            capabilities: request.capabilities.clone(),
            address: request.address.clone(),
            state_url: request.state_url.clone(),
            embedded: request.embedded,
            registered_at_ms: now.wall_ms,
        };
        // The stored moment stays with what it is the moment of, so that a mere reconnect changes
        // nothing that is stored and needs no disk.
        if let Some(old) = known {
            let same = Agent { registered_at_ms: old.agent.registered_at_ms, ..agent.clone() };
            if same == old.agent {
                agent = same;
            }
        }
        let member = Member {
            agent,
            session: Some(session.to_owned()),
            sequence: 0,
            deadline_ms: 0,
            lost: false,
            last_seen_at_ms: None,
            lease_until_at_ms: None,
            load: None,
        };
        self.members.insert(request.agent.clone(), Arc::new(member));
        self.sessions.insert(session.to_owned(), request.agent.clone());
        self.renew(&request.agent, now);
        Ok(if same_process { Arrival::Reconnected } else { Arrival::Started })
    }

    /// Takes a report's head: sequences rise strictly within a session (H4).
    pub fn accept(&mut self, session: &str, sequence: u64, load: &Load, now: Now) -> Result<AgentId, Refusal> {
        let id = self.speaker(session)?;
        if let Some(member) = self.members.get_mut(&id) {
            if sequence <= member.sequence {
                let message = format!("report {sequence} came after report {}", member.sequence);
                return Err(Refusal { class: Class::Fenced, message });
            }
            let member = Arc::make_mut(member);
            member.sequence = sequence;
            member.load = Some((load.clone(), now.steady_ms));
        }
        self.renew(&id, now);
        Ok(id)
    }

    /// Extends a lease from now.
    pub fn renew(&mut self, id: &AgentId, now: Now) {
        let lease_ms = self.lease_ms;
        if let Some(member) = self.members.get_mut(id) {
            let member = Arc::make_mut(member);
            member.deadline_ms = now.steady_ms.saturating_add(lease_ms).saturating_add(GRACE_MS);
            member.last_seen_at_ms = Some(now.wall_ms);
            member.lease_until_at_ms = Some(now.wall_ms.saturating_add(i64::try_from(lease_ms).unwrap_or(i64::MAX)));
        }
    }

    /// Ends the sessions of agents whose lease and grace are over, and names those agents.
    pub fn judge(&mut self, now: Now) -> Vec<AgentId> {
        let mut judged = Vec::new();
        for (id, member) in &mut self.members {
            if !member.lost && member.deadline_ms <= now.steady_ms {
                let member = Arc::make_mut(member);
                member.lost = true;
                if let Some(session) = member.session.take() {
                    self.sessions.remove(&session);
                }
                judged.push(id.clone());
            }
        }
        judged
    }

    /// When the next agent is judged, unless it reports.
    pub fn next_deadline(&self) -> Option<u64> {
        self.members.values().filter(|member| !member.lost).map(|member| member.deadline_ms).min()
    }

    /// Agents that can take a job now.
    pub fn candidates(&self, now: Now) -> Vec<Candidate> {
        let online = self.members.values().filter(|member| member.session.is_some());
        let candidate = |member: &Arc<Member>| {
            let load = member.load.clone().map(|(load, at)| (load, now.steady_ms.saturating_sub(at)));
            Candidate { agent: member.agent.id.clone(), load }
        };
        online.map(candidate).collect()
    }

    /// All sessions and whom they speak for.
    pub fn sessions(&self) -> &BTreeMap<String, AgentId> {
        &self.sessions
    }

    /// All agents by id.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values()
    }
}

/// Compares without telling by its duration how much was right.
fn same_secret(shown: &str, expected: &str) -> bool {
    let differing = shown.bytes().zip(expected.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    shown.len() == expected.len() && differing == 0
}

impl Member {
    /// As everybody may see it.
    pub fn info(&self, tasks: u64) -> AgentInfo {
        AgentInfo {
            id: self.agent.id.clone(),
            state: if self.session.is_some() { "online" } else { "offline" },
            store_id: self.agent.store_id.clone(),
            address: self.agent.address.clone(),
            version: self.agent.version.clone(),
            capabilities: self.agent.capabilities.clone(),
            last_seen_at_ms: self.last_seen_at_ms,
            lease_until_at_ms: self.lease_until_at_ms,
            load: self.load.as_ref().map(|(load, _)| load.clone()).unwrap_or_default(),
            tasks,
        }
    }
}

#[cfg(test)]
mod tests;
