//! Where a job runs: a pure choice among the agents that are online (PLC-1, PLC-3).

use weir_planner::id::AgentId;
use weir_planner::protocol::Load;

/// Figures older than this do not count in the ranking.
pub const LOAD_FRESH_MS: u64 = 10_000;

/// An agent that is online.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub agent: AgentId,
    /// Its last load with its age in ms, when it has reported one.
    pub load: Option<(Load, u64)>,
}

/// Chooses the agent of a job. Agents with fresh figures come first, by free memory, then by idle
/// CPU, then by name; the others follow by name. The same input always gives the same answer.
///
/// Errors: why there is none, with the way out.
pub fn choose(online: &[Candidate], node_ids: &[AgentId]) -> Result<AgentId, String> {
    let eligible = online.iter().filter(|c| node_ids.is_empty() || node_ids.contains(&c.agent));
    let best = eligible.min_by(|a, b| rank(a).total_cmp(&rank(b)));
    best.map(|c| c.agent.clone()).ok_or_else(|| {
        if node_ids.is_empty() {
            return "no agent is online; the job is placed as soon as one registers".to_owned();
        }
        let names: Vec<String> = node_ids.iter().map(|id| format!("'{id}'")).collect();
        format!("none of the agents in node_ids ({}) is online; the job is placed as soon as one registers", names.join(", "))
    })
}

struct Rank<'a> {
    stale: bool,
    memory_free: u64,
    cpu_pct: f64,
    agent: &'a AgentId,
}

impl Rank<'_> {
    fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
        let memory = other.memory_free.cmp(&self.memory_free);
        let by_load = memory.then(self.cpu_pct.total_cmp(&other.cpu_pct));
        self.stale.cmp(&other.stale).then(by_load).then(self.agent.cmp(other.agent))
    }
}

fn rank(candidate: &Candidate) -> Rank<'_> {
    let agent = &candidate.agent;
    match &candidate.load {
        Some((load, age_ms)) if *age_ms <= LOAD_FRESH_MS => {
            let memory_free = load.memory_total_bytes.saturating_sub(load.memory_used_bytes);
            Rank { stale: false, memory_free, cpu_pct: load.cpu_pct, agent }
        }
        Some(_) | None => Rank { stale: true, memory_free: 0, cpu_pct: 0.0, agent },
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, choose};
    use weir_planner::id::AgentId;
    use weir_planner::protocol::Load;

    fn candidate(name: &str, free: Option<u64>, cpu_pct: f64, age_ms: u64) -> Candidate {
        let load = free.map(|free| (Load { cpu_pct, memory_used_bytes: 1_000 - free, memory_total_bytes: 1_000 }, age_ms));
        Candidate { agent: AgentId::new(name).unwrap(), load }
    }

    fn check(online: &[Candidate], node_ids: &[&str], expected: Result<&str, &str>) {
        let node_ids: Vec<AgentId> = node_ids.iter().map(|id| AgentId::new(*id).unwrap()).collect();
        let chosen = choose(online, &node_ids);
        assert_eq!(chosen.as_ref().map(AgentId::as_str).map_err(String::as_str), expected);
        let mut reversed = online.to_vec();
        reversed.reverse();
        assert_eq!(choose(&reversed, &node_ids), chosen, "the order of registration does not matter");
    }

    /// PLC-3: fresh figures first (memory, then CPU, then name), the rest by name.
    #[test]
    fn agents_are_ranked_by_fresh_load_then_by_name() {
        let roomy = candidate("c", Some(900), 50.0, 0);
        check(&[candidate("a", Some(100), 0.0, 0), candidate("b", Some(500), 0.0, 0), roomy.clone()], &[], Ok("c"));
        check(&[candidate("a", Some(900), 60.0, 0), roomy.clone()], &[], Ok("c"));
        check(&[candidate("d", Some(900), 50.0, 0), roomy.clone()], &[], Ok("c"));
        check(&[candidate("a", Some(999), 0.0, 10_001), candidate("b", None, 0.0, 0), roomy.clone()], &[], Ok("c"));
        check(&[candidate("b", None, 0.0, 0), candidate("a", Some(999), 0.0, 10_001)], &[], Ok("a"));
        check(&[candidate("a", Some(100), 0.0, 10_000), candidate("b", Some(100), 0.0, 10_001)], &[], Ok("a"));
    }

    /// `node_ids` is a fence, not a wish; the refusal names the agents and the way out (C55).
    #[test]
    fn pinned_agents_are_the_only_ones() {
        let online = [candidate("a", Some(100), 0.0, 0), candidate("b", Some(900), 0.0, 0)];
        check(&online, &["a"], Ok("a"));
        check(&online, &["x", "y"], Err("none of the agents in node_ids ('x', 'y') is online; the job is placed as soon as one registers"));
        check(&[], &[], Err("no agent is online; the job is placed as soon as one registers"));
    }
}
