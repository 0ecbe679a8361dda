//! Health and metrics of a process with doors: `/livez`, `/healthz`, `/readyz`, `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::net::TcpListener;
use weir_hub::Hub;
use weir_hub::hub::{JobInfo, JobState};
use weir_planner::protocol::Holder;

/// Content type of Prometheus text.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Routes at the root of the HTTP door.
pub fn router(hub: Hub) -> axum::Router {
    axum::Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(hub)
}

/// Serves a door until `ended` is ready.
pub async fn serve(door: &'static str, listener: TcpListener, router: axum::Router, ended: impl Future<Output = ()> + Send + 'static) {
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(ended).await {
        tracing::error!(%error, door, "door ended");
    }
}

/// Ready: at least one agent is there to run jobs.
async fn readyz(State(hub): State<Hub>) -> Response {
    let online = hub.agents().iter().filter(|agent| agent.state == "online").count();
    if online > 0 {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no agent is online\n").into_response()
    }
}

async fn metrics(State(hub): State<Hub>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry(&hub)) {
        Ok(()) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n")).into_response(),
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TaskLabels {
    job: String,
    operator: String,
    task: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InputLabels {
    job: String,
    operator: String,
    task: String,
    input: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SplitLabels {
    job: String,
    operator: String,
    source: String,
}

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Where event time stands at every split and edge, and which holds it back (EV-7).
fn event_time(registry: &mut Registry, jobs: &[Arc<JobInfo>]) {
    let split_watermark = Family::<SplitLabels, Seconds>::default();
    let split_idle = Family::<SplitLabels, Gauge>::default();
    let split_held = Family::<SplitLabels, Gauge>::default();
    let input_watermark = Family::<InputLabels, Seconds>::default();
    let input_idle = Family::<InputLabels, Gauge>::default();
    let holds = Family::<InputLabels, Gauge>::default();
    for (job, observation) in jobs.iter().filter_map(|job| Some((job, job.observation.as_ref()?))) {
        for task in &observation.tasks {
            let labels = |input: &str| InputLabels {
                job: job.id.to_string(),
                operator: task.task.operator.to_string(),
                task: task.task.to_string(),
                input: input.to_owned(),
            };
            for input in &task.inputs {
                if let Some(ms) = input.watermark_ms {
                    input_watermark.get_or_create(&labels(&input.from)).set(ms as f64 / 1_000.0);
                }
                input_idle.get_or_create(&labels(&input.from)).set(i64::from(input.idle));
            }
            if let Some(Holder::Input(name)) = &task.held_by {
                holds.get_or_create(&labels(name)).set(1);
            }
        }
        for split in &observation.sources {
            let labels = SplitLabels { job: job.id.to_string(), operator: split.task.operator.to_string(), source: split.split.clone() };
            if let Some(ms) = split.watermark_ms {
                split_watermark.get_or_create(&labels).set(ms as f64 / 1_000.0);
            }
            split_idle.get_or_create(&labels).set(i64::from(split.idle));
            split_held.get_or_create(&labels).set(i64::from(split.held));
        }
    }
    registry.register("source_watermark_seconds", "Watermark of a split, seconds since 1970", split_watermark);
    registry.register("source_idle", "1 for a split that is idle and left out of the minimum", split_idle);
    registry.register("source_held", "1 for a split that is held back, too far ahead of the slowest", split_held);
    registry.register("input_watermark_seconds", "Watermark that came over an edge, seconds since 1970", input_watermark);
    registry.register("input_idle", "1 for an edge that is idle and left out of the minimum", input_idle);
    registry.register("input_holds", "1 for the edge or split that holds the watermark of its task", holds);
}

/// The figures as of now. Built for each scrape from the last reports: nothing here outlives a
/// dropped job, so label sets stay bounded.
fn registry(hub: &Hub) -> Registry {
    let mut registry = Registry::with_prefix("weir");
    let jobs = hub.jobs();
    let by_state = Family::<StateLabels, Gauge>::default();
    for state in JobState::ALL {
        let count = jobs.iter().filter(|job| job.state == state).count();
        by_state.get_or_create(&StateLabels { state: state.to_string() }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("jobs", "Jobs by state", by_state);
    let agents = hub.agents();
    let online = agents.iter().filter(|agent| agent.state == "online").count();
    let agents_online = Gauge::<i64, AtomicI64>::default();
    agents_online.set(i64::try_from(online).unwrap_or(i64::MAX));
    registry.register("agents_online", "Agents under a live lease", agents_online);

    let rows_in = Family::<TaskLabels, Counter>::default();
    let rows_out = Family::<TaskLabels, Counter>::default();
    let rows_late = Family::<TaskLabels, Counter>::default();
    let rows_late_partly = Family::<TaskLabels, Counter>::default();
    let rows_evicted = Family::<TaskLabels, Counter>::default();
    let rows_error = Family::<TaskLabels, Counter>::default();
    let rows_routed = Family::<TaskLabels, Counter>::default();
    let state_rows = Family::<TaskLabels, Gauge>::default();
    let state_bytes = Family::<TaskLabels, Gauge>::default();
    let watermark = Family::<TaskLabels, Seconds>::default();
    let split_rows = Family::<SplitLabels, Counter>::default();
    let split_errors = Family::<SplitLabels, Counter>::default();
    let split_lag = Family::<SplitLabels, Gauge>::default();
    for job in &jobs {
        let Some(observation) = &job.observation else { continue };
        for task in &observation.tasks {
            let labels = TaskLabels { job: job.id.to_string(), operator: task.task.operator.to_string(), task: task.task.to_string() };
            rows_in.get_or_create(&labels).inc_by(task.rows_in);
            rows_out.get_or_create(&labels).inc_by(task.rows_out);
            rows_late.get_or_create(&labels).inc_by(task.rows_late);
            rows_late_partly.get_or_create(&labels).inc_by(task.rows_late_partly);
            rows_evicted.get_or_create(&labels).inc_by(task.rows_evicted);
            rows_error.get_or_create(&labels).inc_by(task.rows_error);
            rows_routed.get_or_create(&labels).inc_by(task.rows_routed);
            state_rows.get_or_create(&labels).set(i64::try_from(task.state_rows).unwrap_or(i64::MAX));
            state_bytes.get_or_create(&labels).set(i64::try_from(task.state_bytes).unwrap_or(i64::MAX));
            if let Some(ms) = task.watermark_ms.filter(|ms| *ms != i64::MAX) {
                watermark.get_or_create(&labels).set(ms as f64 / 1_000.0);
            }
        }
        for split in &observation.sources {
            let labels = SplitLabels { job: job.id.to_string(), operator: split.task.operator.to_string(), source: split.split.clone() };
            split_rows.get_or_create(&labels).inc_by(split.rows_in);
            split_errors.get_or_create(&labels).inc_by(split.rows_error);
            if let Some(lag) = split.lag {
                split_lag.get_or_create(&labels).set(i64::try_from(lag).unwrap_or(i64::MAX));
            }
        }
    }
    registry.register("task_rows_in", "Rows that a task took in, since its attempt began", rows_in);
    registry.register("task_rows_out", "Rows that a task gave out, since its attempt began", rows_out);
    registry.register("task_rows_late", "Rows late for all their windows", rows_late);
    registry.register("task_rows_late_partly", "Rows late for some of their windows", rows_late_partly);
    registry.register("task_entries_evicted", "Window entries evicted at the bound", rows_evicted);
    registry.register("task_rows_error", "Rows whose expressions could not be computed", rows_error);
    registry.register("task_rows_routed", "Rows handed to an error sink or a late route", rows_routed);
    registry.register("task_state_entries", "Live state entries", state_rows);
    registry.register("task_state_bytes", "Live state bytes", state_bytes);
    registry.register("task_watermark_seconds", "Watermark that a task last forwarded, seconds since 1970", watermark);
    registry.register("source_rows", "Rows read from a split, since its attempt began", split_rows);
    registry.register("source_errors", "Records of a split that could not be decoded", split_errors);
    registry.register("source_lag_records", "Records between a split's position and its end", split_lag);
    event_time(&mut registry, &jobs);
    registry.register("build_info", "Always 1", ConstCounter::new(1u64));
    registry
}
