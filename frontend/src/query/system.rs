//! The tables of schema `weir`: what the hub knows, in rows. What it does not know yet is NULL.

mod checkpoints;
mod late;
mod state;
mod watermarks;

use super::cells::{self, Cell, Columns, Kind};
use super::scope::Scope;
use crate::yaml;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::error::Result;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use weir_hub::hub::{CatalogObject, JobInfo};
use weir_planner::id::OperatorId;
use weir_planner::plan::{Port, Routing, Work};
use weir_planner::protocol::{AttemptState, JobObservation};

/// One table of schema `weir`.
pub(super) struct SystemTable {
    pub name: &'static str,
    columns: Columns,
    rows: fn(&Scope) -> Vec<Vec<Cell>>,
}

impl SystemTable {
    pub fn schema(&self) -> SchemaRef {
        cells::schema(self.columns)
    }
}

/// Every system table, by name.
pub(super) const TABLES: &[SystemTable] = &[
    SystemTable { name: "agents", columns: AGENTS, rows: agents },
    SystemTable { name: "connectors", columns: CONNECTORS, rows: connectors },
    SystemTable { name: "job_checkpoints", columns: checkpoints::COLUMNS, rows: checkpoints::rows },
    SystemTable { name: "job_edges", columns: JOB_EDGES, rows: job_edges },
    SystemTable { name: "job_events", columns: JOB_EVENTS, rows: job_events },
    SystemTable { name: "job_operators", columns: JOB_OPERATORS, rows: job_operators },
    SystemTable { name: "job_sources", columns: JOB_SOURCES, rows: job_sources },
    SystemTable { name: "job_tasks", columns: JOB_TASKS, rows: job_tasks },
    SystemTable { name: "job_versions", columns: JOB_VERSIONS, rows: job_versions },
    SystemTable { name: "job_watermarks", columns: watermarks::COLUMNS, rows: watermarks::rows },
    SystemTable { name: "jobs", columns: JOBS, rows: jobs },
    SystemTable { name: "state_tables", columns: state::COLUMNS, rows: state::rows },
];

/// The system table called `name`, with its rows as of now.
pub(super) fn table(scope: &Scope, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(found) = TABLES.iter().find(|table| table.name == name) else { return Ok(None) };
    cells::table(found.columns, &(found.rows)(scope)).map(Some)
}

const JOBS: Columns = &[
    ("id", Kind::Text),
    ("version", Kind::Int),
    ("state", Kind::Text),
    ("desired_state", Kind::Text),
    ("generation", Kind::Int),
    ("parallelism", Kind::Int),
    ("max_parallelism", Kind::Int),
    ("placement", Kind::Text),
    ("created_at", Kind::At),
    ("started_at", Kind::At),
    ("last_error", Kind::Text),
    ("rows_in_total", Kind::Int),
    ("rows_out_total", Kind::Int),
];

fn jobs(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |job: &Arc<JobInfo>| {
        let seen = job.observation.as_deref();
        vec![
            job.id.as_str().into(),
            job.version.get().into(),
            word(&job.state),
            word(&job.desired),
            job.generation.get().into(),
            job.spec.parallelism.into(),
            job.spec.max_parallelism.into(),
            word(&job.spec.placement),
            Cell::At(job.created_at_ms),
            at(job.started_at_ms),
            job.last_error.clone().into(),
            seen.map(|seen| seen.sources.iter().map(|split| split.rows_in).sum::<u64>()).into(),
            seen.map(|seen| rows_out(job, seen)).into(),
        ]
    };
    scope.jobs.iter().map(row).collect()
}

/// Rows that reached the job's sinks in the current attempt.
fn rows_out(job: &JobInfo, seen: &JobObservation) -> u64 {
    let is_sink = |operator: &OperatorId| job.spec.sinks.iter().any(|sink| &sink.operator_id == operator);
    seen.tasks.iter().filter(|task| is_sink(&task.task.operator)).map(|task| task.rows_in).sum()
}

const JOB_VERSIONS: Columns = &[
    ("job", Kind::Text),
    ("version", Kind::Int),
    ("created_at", Kind::At),
    ("sql", Kind::Text),
    ("spec", Kind::Text),
    ("state_format", Kind::Int),
];

fn job_versions(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |job: &Arc<JobInfo>| {
        vec![
            job.id.as_str().into(),
            job.version.get().into(),
            Cell::At(job.created_at_ms),
            job.sql.as_deref().map(crate::sql::masked).into(),
            shown(&*job.spec),
            job.spec.state.format_version.into(),
        ]
    };
    scope.jobs.iter().map(row).collect()
}

const JOB_OPERATORS: Columns = &[
    ("job", Kind::Text),
    ("operator", Kind::Text),
    ("kind", Kind::Text),
    ("parallelism", Kind::Int),
    ("chain", Kind::Int),
    ("config", Kind::Text),
];

fn job_operators(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        for chain in job.plan.iter().flat_map(|plan| &plan.chains) {
            for operator in &chain.operators {
                rows.push(vec![
                    job.id.as_str().into(),
                    operator.id.as_str().into(),
                    work_kind(&operator.work).into(),
                    chain.parallelism.into(),
                    chain.id.get().into(),
                    config(job, &operator.id),
                ]);
            }
        }
    }
    rows
}

fn work_kind(work: &Work) -> &'static str {
    match work {
        Work::Source(_) => "source",
        Work::Map(_) => "map",
        Work::Window(_) | Work::Batch(_) => "window",
        Work::Partial(_) => "partial",
        Work::Top(_) => "top",
        Work::Buffer(_) => "buffer",
        Work::Union => "union",
        Work::Sink(_) => "sink",
    }
}

/// The options of an operator as JSON: those of its source or sink where it is one.
fn config(job: &JobInfo, operator: &OperatorId) -> Cell {
    if let Some(source) = job.spec.sources.iter().find(|source| &source.operator_id == operator) {
        return shown(source);
    }
    if let Some(sink) = job.spec.sinks.iter().find(|sink| &sink.operator_id == operator) {
        return shown(sink);
    }
    let Some(found) = job.spec.operators.iter().find(|found| &found.id == operator) else { return Cell::Null };
    match serde_json::to_value(found) {
        Ok(Value::Object(mut fields)) => fields.remove("config").map_or(Cell::Null, |config| shown(&config)),
        Ok(_) | Err(_) => Cell::Null,
    }
}

const JOB_EDGES: Columns = &[
    ("job", Kind::Text),
    ("edge", Kind::Text),
    ("from_operator", Kind::Text),
    ("to_operator", Kind::Text),
    ("kind", Kind::Text),
    ("keys", Kind::Text),
];

fn job_edges(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        for edge in &job.spec.edges {
            let (kind, keys) = routing(job, &edge.from, &edge.to);
            rows.push(vec![
                job.id.as_str().into(),
                edge.id.as_str().into(),
                edge.from.as_str().into(),
                edge.to.as_str().into(),
                kind.into(),
                keys,
            ]);
        }
        rows.extend(side_edges(job));
    }
    rows
}

/// Edges of rows that leave by the side (PLAN-5). They are no `edges` of the spec, so they are named after what makes them.
fn side_edges(job: &JobInfo) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for edge in job.plan.iter().flat_map(|plan| plan.edges.iter().map(move |edge| (plan, edge))) {
        let (plan, edge) = edge;
        let (kind, from) = match &edge.port {
            Port::Main => continue,
            Port::Error(from) => ("error", from),
            Port::Late(from) => ("late", from),
        };
        let Some(to) = plan.chains.iter().find(|chain| chain.id == edge.to).and_then(|chain| chain.operators.first()) else { continue };
        let name = format!("{from}-{kind}");
        rows.push(vec![job.id.as_str().into(), name.into(), from.as_str().into(), to.id.as_str().into(), kind.into(), Cell::Null]);
    }
    rows
}

/// How rows go from one operator to another: inside a chain always to the same subtask.
fn routing(job: &JobInfo, from: &OperatorId, to: &OperatorId) -> (&'static str, Cell) {
    // Where a job has no plan yet nothing goes anywhere.
    let Some(plan) = &job.plan else { return ("forward", Cell::Null) };
    let chain_of = |id: &OperatorId| plan.chains.iter().find(|chain| chain.operators.iter().any(|operator| &operator.id == id));
    let (Some(from), Some(to)) = (chain_of(from), chain_of(to)) else { return ("forward", Cell::Null) };
    match plan.edges.iter().find(|edge| edge.port == Port::Main && edge.from == from.id && edge.to == to.id).map(|edge| &edge.routing) {
        None | Some(Routing::Forward) => ("forward", Cell::Null),
        Some(Routing::Partitioned(keys)) => ("partitioned", keys.join(", ").into()),
        Some(Routing::RoundRobin) => ("round_robin", Cell::Null),
        Some(Routing::Broadcast) => ("broadcast", Cell::Null),
        Some(Routing::Deal) => ("deal", Cell::Null),
        Some(Routing::Collect) => ("collect", Cell::Null),
    }
}

const JOB_TASKS: Columns = &[
    ("job", Kind::Text),
    ("task", Kind::Text),
    ("operator", Kind::Text),
    ("agent", Kind::Text),
    ("state", Kind::Text),
    ("attempt", Kind::Int),
    ("generation", Kind::Int),
    ("watermark_at", Kind::At),
    ("rows_in_total", Kind::Int),
    ("rows_out_total", Kind::Int),
    ("bytes_in_total", Kind::Int),
    ("bytes_out_total", Kind::Int),
    ("busy_pct", Kind::Float),
    ("idle_pct", Kind::Float),
    ("backpressured_pct", Kind::Float),
    ("error", Kind::Text),
    ("rows_late_total", Kind::Int),
    ("rows_evicted_total", Kind::Int),
    ("rows_error_total", Kind::Int),
    ("rows_routed_total", Kind::Int),
    ("rows_retired_total", Kind::Int),
    ("rows_late_partly_total", Kind::Int),
    ("rows_invalid_total", Kind::Int),
];

fn job_tasks(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        let seen = job.observation.as_deref();
        for task in job.plan.iter().flat_map(|plan| plan.tasks()) {
            let figures = seen.and_then(|seen| seen.tasks.iter().find(|figures| figures.task == task));
            let (state, error) = match seen.map(|seen| &seen.state) {
                None => (word(&job.state), Cell::Null),
                Some(state) => attempt_state(state),
            };
            rows.push(vec![
                job.id.as_str().into(),
                task.to_string().into(),
                task.operator.as_str().into(),
                job.agent.as_ref().map(|agent| agent.as_str()).into(),
                state,
                seen.map_or(job.attempt, |seen| seen.attempt).get().into(),
                seen.map_or(job.generation, |seen| seen.generation).get().into(),
                at(figures.and_then(|f| f.watermark_ms)),
                figures.map(|f| f.rows_in).into(),
                figures.map(|f| f.rows_out).into(),
                figures.map(|f| f.bytes_in).into(),
                figures.map(|f| f.bytes_out).into(),
                figures.map(|f| f.busy_pct).into(),
                figures.map(|f| f.idle_pct).into(),
                figures.map(|f| f.backpressured_pct).into(),
                error,
                figures.map(|f| f.rows_late).into(),
                figures.map(|f| f.rows_evicted).into(),
                figures.map(|f| f.rows_error).into(),
                figures.map(|f| f.rows_routed).into(),
                figures.map(|f| f.rows_retired).into(),
                figures.map(|f| f.rows_late_partly).into(),
                figures.map(|f| f.rows_invalid).into(),
            ]);
        }
    }
    rows
}

fn attempt_state(state: &AttemptState) -> (Cell, Cell) {
    match state {
        AttemptState::Starting => ("starting".into(), Cell::Null),
        AttemptState::Running => ("running".into(), Cell::Null),
        AttemptState::Stopping => ("stopping".into(), Cell::Null),
        AttemptState::Stopped => ("stopped".into(), Cell::Null),
        AttemptState::Finished => ("finished".into(), Cell::Null),
        AttemptState::Failed(failure) => ("failed".into(), failure.message.clone().into()),
    }
}

const JOB_SOURCES: Columns = &[
    ("job", Kind::Text),
    ("operator", Kind::Text),
    ("source", Kind::Text),
    ("partition", Kind::Text),
    ("position", Kind::Text),
    ("lag", Kind::Int),
    ("watermark_at", Kind::At),
    ("last_event_at", Kind::At),
    ("idle", Kind::Bool),
    ("rows_in_total", Kind::Int),
    ("rows_late_total", Kind::Int),
    ("rows_invalid_total", Kind::Int),
    ("rows_error_total", Kind::Int),
    ("held", Kind::Bool),
];

fn job_sources(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        let Some(seen) = job.observation.as_deref() else { continue };
        let mut judged = job.plan.as_ref().map(|plan| late::of(plan, seen)).unwrap_or_default();
        for split in &seen.sources {
            let late = judged.own.remove(&(split.task.operator.clone(), split.split.clone())).unwrap_or_default();
            rows.push(vec![
                job.id.as_str().into(),
                split.task.operator.as_str().into(),
                source_name(scope, job, &split.task.operator),
                split.split.clone().into(),
                split.position.clone().into(),
                split.lag.into(),
                at(split.watermark_ms),
                at(split.last_event_ms),
                split.idle.into(),
                split.rows_in.into(),
                (split.rows_late + late).into(),
                split.rows_invalid.into(),
                split.rows_error.into(),
                split.held.into(),
            ]);
        }
        // Those of partitions that are not listed any more, and those of no single one.
        let gone = judged.own.iter().map(|((operator, split), late)| late_row(scope, job, Some(operator), Some(split), *late));
        let made = judged.made.iter().map(|(operator, late)| late_row(scope, job, operator.as_ref(), None, *late));
        rows.extend(gone.chain(made));
    }
    rows
}

/// Late rows of which nothing else is known.
fn late_row(scope: &Scope, job: &JobInfo, operator: Option<&OperatorId>, partition: Option<&String>, rows_late: u64) -> Vec<Cell> {
    let known = |column: &str| match (column, operator, partition) {
        ("job", ..) => job.id.as_str().into(),
        ("operator", Some(operator), _) => operator.as_str().into(),
        ("source", Some(operator), _) => source_name(scope, job, operator),
        ("partition", _, Some(partition)) => partition.clone().into(),
        ("rows_late_total", ..) => rows_late.into(),
        _ => Cell::Null,
    };
    JOB_SOURCES.iter().map(|(column, _)| known(column)).collect()
}

/// The catalog's name of a source, where it can be told for sure: it is called like the operator,
/// or the job uses one source only.
fn source_name(scope: &Scope, job: &JobInfo, operator: &OperatorId) -> Cell {
    let is_source = |name: &&String| scope.entry(name).is_some_and(|entry| matches!(entry.object, CatalogObject::Source(_)));
    let used: Vec<&String> = job.uses.iter().filter(is_source).collect();
    match used.iter().find(|name| name.as_str() == operator.as_str()) {
        Some(name) => name.as_str().into(),
        None if used.len() == 1 && job.spec.sources.len() == 1 => used.first().map(|name| name.as_str()).into(),
        None => Cell::Null,
    }
}

const JOB_EVENTS: Columns = &[
    ("job", Kind::Text),
    ("at", Kind::At),
    ("level", Kind::Text),
    ("kind", Kind::Text),
    ("message", Kind::Text),
    ("agent", Kind::Text),
    ("operator", Kind::Text),
    ("count", Kind::Int),
];

fn job_events(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |event: weir_hub::hub::JobEvent| {
        vec![
            event.job.as_str().into(),
            Cell::At(event.event.at_ms),
            word(&event.event.level),
            event.event.kind.into(),
            event.event.message.into(),
            event.agent.as_ref().map(|agent| agent.as_str()).into(),
            event.event.operator.into(),
            event.event.count.into(),
        ]
    };
    scope.events().into_iter().map(row).collect()
}

const AGENTS: Columns = &[
    ("id", Kind::Text),
    ("state", Kind::Text),
    ("address", Kind::Text),
    ("data_address", Kind::Text),
    ("version", Kind::Text),
    ("capabilities", Kind::Text),
    ("last_seen_at", Kind::At),
    ("lease_until_at", Kind::At),
    ("cpu_pct", Kind::Float),
    ("memory_used_bytes", Kind::Int),
    ("memory_total_bytes", Kind::Int),
    ("tasks", Kind::Int),
];

fn agents(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |agent: weir_hub::hub::AgentInfo| {
        vec![
            agent.id.as_str().into(),
            agent.state.into(),
            agent.address.into(),
            Cell::Null,
            agent.version.into(),
            agent.capabilities.join(", ").into(),
            at(agent.last_seen_at_ms),
            at(agent.lease_until_at_ms),
            agent.load.cpu_pct.into(),
            agent.load.memory_used_bytes.into(),
            agent.load.memory_total_bytes.into(),
            agent.tasks.into(),
        ]
    };
    scope.agents().into_iter().map(row).collect()
}

const CONNECTORS: Columns =
    &[("connector", Kind::Text), ("role", Kind::Text), ("option", Kind::Text), ("type", Kind::Text), ("default_value", Kind::Text)];

/// One row for each option; one with NULLs for a connector without any.
fn connectors(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for card in scope.connectors.iter() {
        if card.options.is_empty() {
            rows.push(vec![card.name.into(), card.role.into(), Cell::Null, Cell::Null, Cell::Null]);
        }
        for (option, ty, default) in &card.options {
            let default = if default.is_empty() { Cell::Null } else { (*default).into() };
            rows.push(vec![card.name.into(), card.role.into(), (*option).into(), (*ty).into(), default]);
        }
    }
    rows
}

fn at(ms: Option<i64>) -> Cell {
    ms.map_or(Cell::Null, Cell::At)
}

/// The lower-case word of a closed list, as it is written everywhere else.
fn word(value: &impl Serialize) -> Cell {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word.into(),
        Ok(_) | Err(_) => Cell::Null,
    }
}

/// A part of a spec as JSON for people: expressions as their text, secrets masked (SQL-11).
fn shown(value: &impl Serialize) -> Cell {
    yaml::masked(value).to_string().into()
}
