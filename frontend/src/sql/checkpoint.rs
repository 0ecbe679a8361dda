//! CHECKPOINT JOB, SAVEPOINT JOB and DROP SAVEPOINT.

use super::show::{answer, text_columns};
use super::statement::Named;
use super::verb::{job, of_hub};
use super::{Engine, Outcome};
use crate::error::{Error, sqlstate};
use arrow::datatypes::SchemaRef;
use std::time::Duration;
use weir_hub::checkpoint::Checkpoint;
use weir_planner::id::CheckpointId;
use weir_planner::manifest::CheckpointKind;

/// What both verbs answer with.
pub(super) fn columns() -> SchemaRef {
    text_columns(&["id", "kind", "job", "epoch", "bytes_new", "bytes_total", "location"])
}

/// Makes a checkpoint or savepoint and waits for its end.
pub(super) async fn make(engine: &Engine, name: &Named, kind: CheckpointKind, timeout: Duration) -> Result<Outcome, Error> {
    let info = job(engine, name)?;
    let fault = |error| of_hub(error, Some(name.position));
    let id = engine.hub.checkpoint(&info.id, kind).await.map_err(fault)?;
    let made = engine.hub.wait_for_checkpoint(id, timeout).await.map_err(fault)?;
    let tag = match kind {
        CheckpointKind::Checkpoint => "CHECKPOINT JOB",
        CheckpointKind::Savepoint => "SAVEPOINT JOB",
    };
    answer(columns(), &[row(&made)], tag)
}

fn row(made: &Checkpoint) -> Vec<Option<String>> {
    vec![
        Some(made.id.to_string()),
        Some(made.kind.to_string()),
        Some(made.job.to_string()),
        made.epoch.map(|epoch| epoch.to_string()),
        Some(made.bytes_new.to_string()),
        Some(made.bytes_total.to_string()),
        Some(made.location.clone()),
    ]
}

/// Gives up a savepoint.
pub(super) async fn drop(engine: &Engine, id: CheckpointId, position: usize) -> Result<Outcome, Error> {
    engine.hub.drop_savepoint(id).await.map_err(|error| {
        let error = of_hub(error, Some(position));
        if error.sqlstate == sqlstate::UNDEFINED_OBJECT {
            error.with_hint("SELECT id, job, kind FROM weir.job_checkpoints WHERE kind = 'savepoint' lists them")
        } else {
            error
        }
    })?;
    Ok(Outcome::Done { tag: "DROP SAVEPOINT".to_owned(), notices: Vec::new() })
}
