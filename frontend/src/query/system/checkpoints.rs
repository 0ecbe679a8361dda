//! `weir.job_checkpoints`: every checkpoint and savepoint that the hub knows of, kept or not.

use crate::query::cells::{Cell, Columns, Kind};
use crate::query::scope::Scope;
use std::sync::Arc;
use weir_hub::checkpoint::Checkpoint;

pub(super) const COLUMNS: Columns = &[
    ("job", Kind::Text),
    ("id", Kind::Int),
    ("kind", Kind::Text),
    ("version", Kind::Int),
    ("generation", Kind::Int),
    ("epoch", Kind::Text),
    ("state", Kind::Text),
    ("started_at", Kind::At),
    ("completed_at", Kind::At),
    ("duration_ms", Kind::Int),
    ("align_ms", Kind::Int),
    ("bytes_new", Kind::Int),
    ("bytes_total", Kind::Int),
    ("tasks", Kind::Int),
    ("location", Kind::Text),
    ("error", Kind::Text),
];

pub(super) fn rows(scope: &Scope) -> Vec<Vec<Cell>> {
    let row = |made: &Arc<Checkpoint>| {
        let duration = made.completed_at_ms.and_then(|end| u64::try_from(end.saturating_sub(made.started_at_ms)).ok());
        vec![
            made.job.as_str().into(),
            made.id.get().into(),
            made.kind.to_string().into(),
            made.version.get().into(),
            made.generation.get().into(),
            made.epoch.map(|epoch| epoch.to_string()).into(),
            made.state.to_string().into(),
            Cell::At(made.started_at_ms),
            super::at(made.completed_at_ms),
            duration.into(),
            made.align_ms.into(),
            made.bytes_new.into(),
            made.bytes_total.into(),
            made.tasks.into(),
            made.location.as_str().into(),
            made.error.clone().into(),
        ]
    };
    scope.checkpoints().iter().map(row).collect()
}
