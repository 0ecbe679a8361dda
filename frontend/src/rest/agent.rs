//! Routes about agents.

use super::job::{list_of, time};
use super::parameters::Whole;
use crate::sql::Engine;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use weir_hub::hub::AgentInfo;

/// `GET /agents`.
pub(super) async fn list(State(engine): State<Engine>, _: Whole) -> Json<Value> {
    list_of(engine.hub.agents().iter().map(agent).collect())
}

/// An agent under the names of `weir.agents`.
pub(super) fn agent(agent: &AgentInfo) -> Value {
    json!({
        "id": agent.id,
        "state": agent.state,
        "address": agent.address,
        "version": agent.version,
        "capabilities": agent.capabilities,
        "last_seen_at": time(agent.last_seen_at_ms),
        "lease_until_at": time(agent.lease_until_at_ms),
        "cpu_pct": agent.load.cpu_pct,
        "memory_used_bytes": agent.load.memory_used_bytes,
        "memory_total_bytes": agent.load.memory_total_bytes,
        "tasks": agent.tasks,
    })
}
