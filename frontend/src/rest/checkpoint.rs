//! Routes about checkpoints and savepoints of a job.

use super::job::{Answer, job, list_of, time};
use super::parameters::Whole;
use super::problem::Problem;
use crate::sql::Engine;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::time::Duration;
use weir_hub::checkpoint::Checkpoint;
use weir_planner::id::CheckpointId;
use weir_planner::manifest::CheckpointKind;

/// A request waits so long for the checkpoint that it asked for; then it goes on by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// One under the names of `weir.job_checkpoints`.
fn shown(made: &Checkpoint) -> Value {
    json!({
        "id": made.id,
        "kind": made.kind,
        "job": made.job,
        "version": made.version,
        "generation": made.generation,
        "epoch": made.epoch.map(|epoch| epoch.to_string()),
        "state": made.state,
        "started_at": time(Some(made.started_at_ms)),
        "completed_at": time(made.completed_at_ms),
        "duration_ms": made.completed_at_ms.map(|end| end.saturating_sub(made.started_at_ms)),
        "align_ms": made.align_ms,
        "bytes_new": made.bytes_new,
        "bytes_total": made.bytes_total,
        "tasks": made.tasks,
        "location": made.location,
        "error": made.error,
    })
}

fn list(engine: &Engine, id: &str, wanted: impl Fn(CheckpointKind) -> bool) -> Answer {
    let info = job(engine, id)?;
    let made = engine.hub.checkpoints(Some(&info.id));
    Ok(list_of(made.iter().filter(|made| wanted(made.kind)).map(|made| shown(made)).collect()).into_response())
}

async fn make(engine: &Engine, id: &str, kind: CheckpointKind) -> Answer {
    let info = job(engine, id)?;
    let checkpoint = engine.hub.checkpoint(&info.id, kind).await?;
    let (status, made) = match engine.hub.wait_for_checkpoint(checkpoint, PATIENCE).await {
        Ok(made) => (StatusCode::CREATED, Some(made)),
        Err(weir_hub::error::Error::Timeout(_)) => {
            let made = engine.hub.checkpoints(Some(&info.id)).into_iter().find(|made| made.id == checkpoint);
            (StatusCode::ACCEPTED, made)
        }
        Err(error) => return Err(error.into()),
    };
    Ok((status, Json(made.map_or(Value::Null, |made| shown(&made)))).into_response())
}

/// `GET /jobs/{id}/checkpoints`: checkpoints and savepoints, oldest first.
pub(super) async fn checkpoints(State(engine): State<Engine>, Path(id): Path<String>, _: Whole) -> Answer {
    list(&engine, &id, |_| true)
}

/// `GET /jobs/{id}/savepoints`, oldest first.
pub(super) async fn savepoints(State(engine): State<Engine>, Path(id): Path<String>, _: Whole) -> Answer {
    list(&engine, &id, |kind| kind == CheckpointKind::Savepoint)
}

/// `POST /jobs/{id}/checkpoints`: 201 when it is complete, 202 when that takes long.
pub(super) async fn make_checkpoint(State(engine): State<Engine>, Path(id): Path<String>) -> Answer {
    make(&engine, &id, CheckpointKind::Checkpoint).await
}

/// `POST /jobs/{id}/savepoints`: 201 when it is complete, 202 when that takes long.
pub(super) async fn make_savepoint(State(engine): State<Engine>, Path(id): Path<String>) -> Answer {
    make(&engine, &id, CheckpointKind::Savepoint).await
}

/// `DELETE /jobs/{id}/savepoints/{savepoint}`: 204. The job may be gone.
pub(super) async fn drop_savepoint(State(engine): State<Engine>, Path((id, savepoint)): Path<(String, String)>) -> Answer {
    let of_job =
        |checkpoint: CheckpointId| engine.hub.checkpoints(None).into_iter().any(|made| made.id == checkpoint && made.job.as_str() == id);
    let checkpoint = savepoint.parse().ok().map(CheckpointId::new).filter(|checkpoint| of_job(*checkpoint)).ok_or_else(|| {
        let message = format!("job '{}' has no savepoint '{}'", id.escape_debug(), savepoint.escape_debug());
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    })?;
    engine.hub.drop_savepoint(checkpoint).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
