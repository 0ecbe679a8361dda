//! Rules on the job's own fields.

use super::{OPERATORS_MAX, TASKS_MAX, not_available, out_of_range};
use crate::error::Fault;
use crate::spec::{Horizon, JobSpec, OnHubLoss, Placement, RebalanceMode};

/// Largest number of key groups.
pub const MAX_PARALLELISM_MAX: u32 = 32_768;

pub(super) fn check(spec: &JobSpec, door: Horizon, faults: &mut Vec<Fault>) {
    if spec.version.get() == 0 {
        faults.push(out_of_range("version", "version", 0, "at least 1"));
    }
    parallelism(spec, faults);
    placement(spec, door, faults);
    checkpoint(spec, faults);
    limits(spec, faults);
}

fn parallelism(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let max = spec.max_parallelism;
    if !(1..=MAX_PARALLELISM_MAX).contains(&max) {
        faults.push(out_of_range("max_parallelism", "max_parallelism", max, &format!("1 to {MAX_PARALLELISM_MAX}")));
    }
    let mut one = |path: String, value: u32| {
        if !(1..=max.max(1)).contains(&value) {
            let hint = "raise max_parallelism before the job has state, or lower parallelism";
            faults.push(out_of_range(path, "parallelism", value, &format!("1 to max_parallelism, which is {max}")).with_hint(hint));
        }
    };
    one("parallelism".to_owned(), spec.parallelism);
    for (i, operator) in spec.operators.iter().enumerate() {
        if let Some(value) = operator.parallelism {
            one(format!("operators[{i}].parallelism"), value);
        }
    }
    let tasks: u64 = spec.operators.iter().map(|operator| u64::from(operator.parallelism.unwrap_or(spec.parallelism))).sum();
    if tasks > TASKS_MAX {
        faults.push(
            Fault::new("too_many_tasks", "parallelism", format!("the job has {tasks} tasks, at most {TASKS_MAX} are allowed"))
                .with_hint("lower parallelism"),
        );
    }
    if spec.operators.is_empty() {
        faults.push(
            Fault::new("no_operators", "operators", format!("job '{}' has no operators", spec.id))
                .with_hint("a job needs at least a source, a sink and an edge"),
        );
    } else if spec.operators.len() > OPERATORS_MAX {
        let message = format!("the job has {} operators, at most {OPERATORS_MAX} are allowed", spec.operators.len());
        faults.push(Fault::new("too_many_operators", "operators", message).with_hint("split the job"));
    }
}

fn placement(spec: &JobSpec, door: Horizon, faults: &mut Vec<Fault>) {
    let pinned = spec.node_ids.len();
    if pinned > 0 && spec.rebalance.mode == RebalanceMode::Auto {
        let message = format!("job '{}' is pinned by node_ids and asks for rebalance 'auto'", spec.id);
        faults.push(Fault::new("pinned_rebalance", "rebalance.mode", message).with_hint("remove node_ids, or set rebalance.mode to off"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (i, node) in spec.node_ids.iter().enumerate() {
        if !seen.insert(node) {
            faults.push(
                Fault::new("duplicate_node", format!("node_ids[{i}]"), format!("agent '{node}' is named more than once"))
                    .with_hint("name it once"),
            );
        }
    }
    match door {
        Horizon::Local => {
            if pinned > 1 {
                let message = format!("node_ids names {pinned} agents, but there is one");
                faults.push(Fault::new("too_many_nodes", "node_ids", message).with_hint("leave node_ids out"));
            }
        }
        Horizon::Sealed => {
            if spec.horizon == Some(Horizon::Local) && pinned != 1 {
                let message = format!("horizon 'local' keeps the state on one agent, but node_ids names {pinned}");
                faults.push(Fault::new("local_unpinned", "node_ids", message).with_hint("name exactly one agent in node_ids"));
            }
            if spec.placement == Placement::Split {
                faults.push(not_available(
                    "placement",
                    "placement 'split' over several agents",
                    "leave placement at colocated: all tasks of the job then run on one agent",
                ));
            }
            if spec.rebalance.mode == RebalanceMode::Auto {
                faults.push(not_available("rebalance.mode", "rebalance 'auto'", "leave rebalance.mode at off"));
            }
        }
    }
    let rebalance = &spec.rebalance;
    if rebalance.pressure_streak == 0 {
        faults.push(out_of_range("rebalance.pressure_streak", "pressure_streak", 0, "at least 1"));
    }
    for (path, field, value) in
        [("rebalance.memory_pct", "memory_pct", rebalance.memory_pct), ("rebalance.cpu_pct", "cpu_pct", rebalance.cpu_pct)]
    {
        if !(1..=100).contains(&value) {
            faults.push(out_of_range(path, field, value, "1 to 100"));
        }
    }
    if spec.on_hub_loss == OnHubLoss::Continue {
        faults.push(not_available("on_hub_loss", "on_hub_loss 'continue'", "leave it at stop"));
    }
}

fn checkpoint(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let checkpoint = &spec.checkpoint;
    for (field, value) in [
        ("epoch_ms", checkpoint.epoch_ms),
        ("interval_ms", checkpoint.interval_ms),
        ("timeout_ms", checkpoint.timeout_ms),
        ("retention", u64::from(checkpoint.retention)),
    ] {
        if value == 0 {
            faults.push(out_of_range(format!("checkpoint.{field}"), field, 0, "at least 1"));
        }
    }
    if checkpoint.epoch_ms > checkpoint.interval_ms
        || (checkpoint.epoch_ms > 0 && !checkpoint.interval_ms.is_multiple_of(checkpoint.epoch_ms))
    {
        let message = format!(
            "checkpoint.interval_ms is {}, it must be a multiple of epoch_ms, which is {}",
            checkpoint.interval_ms, checkpoint.epoch_ms
        );
        let (epoch, interval) = (checkpoint.epoch_ms.max(1), checkpoint.interval_ms);
        let above = (interval / epoch).saturating_add(1).saturating_mul(epoch);
        let hint = match interval / epoch * epoch {
            0 => format!("such as {above}"),
            below => format!("such as {below} or {above}"),
        };
        faults.push(Fault::new("checkpoint_pace", "checkpoint.interval_ms", message).with_hint(hint));
    }
    for (field, value) in
        [("epoch_ms", checkpoint.epoch_ms), ("interval_ms", checkpoint.interval_ms), ("timeout_ms", checkpoint.timeout_ms)]
    {
        if value > super::DURATION_MS_MAX.unsigned_abs() {
            faults.push(out_of_range(format!("checkpoint.{field}"), field, format!("{value} ms"), "at most 100 years"));
        }
    }
    if spec.restart.backoff_ms > spec.restart.max_backoff_ms {
        let message = format!(
            "restart.backoff_ms is {}, more than max_backoff_ms, which is {}",
            spec.restart.backoff_ms, spec.restart.max_backoff_ms
        );
        faults.push(Fault::new("restart_backoff", "restart.backoff_ms", message).with_hint("lower backoff_ms, or raise max_backoff_ms"));
    }
}

fn limits(spec: &JobSpec, faults: &mut Vec<Fault>) {
    if spec.state.backend != "embedded_kv" {
        let message = format!("state backend '{}' is not known", spec.state.backend.escape_debug());
        faults.push(Fault::new("unsupported_backend", "state.backend", message).with_hint("use embedded_kv"));
    }
    if spec.state.format_version != 1 {
        let message = format!("state format version {} is not supported", spec.state.format_version);
        faults.push(Fault::new("unsupported_format", "state.format_version", message).with_hint("use 1"));
    }
    if spec.state.ttl_ms.is_some() {
        faults.push(not_available(
            "state.ttl_ms",
            "state.ttl_ms",
            "leave it out: windows drop their state once they have fired and their lateness has passed",
        ));
    }
    if spec.state.max_bytes == Some(0) {
        faults.push(out_of_range("state.max_bytes", "max_bytes", 0, "at least 1"));
    }
    let resources = &spec.resources;
    if resources.memory_bytes.is_some() {
        faults.push(not_available(
            "resources.memory_bytes",
            "resources.memory_bytes",
            "bound the state with state.max_bytes and the rows in flight with resources.inflight_bytes",
        ));
    }
    if resources.cpu_millicores.is_some() {
        faults.push(not_available("resources.cpu_millicores", "resources.cpu_millicores", "leave it out"));
    }
    if resources.inflight_bytes < 65_536 {
        faults.push(out_of_range("resources.inflight_bytes", "inflight_bytes", resources.inflight_bytes, "at least 65536"));
    }
    if spec.result_retention_rows == 0 {
        faults.push(out_of_range("result_retention_rows", "result_retention_rows", 0, "at least 1"));
    }
}
