//! `weir.state_tables`: every operator whose state can be read as a table (ST-1).

use crate::query::cells::{Cell, Columns, Kind};
use crate::query::functions::quote_ident;
use crate::query::scope::Scope;
use weir_planner::state;

pub(super) const COLUMNS: Columns = &[
    ("job", Kind::Text),
    ("operator", Kind::Text),
    ("table_name", Kind::Text),
    ("columns", Kind::Int),
    ("rows", Kind::Int),
    ("bytes", Kind::Int),
];

/// `rows` and `bytes` are entries and bytes that the running tasks hold now; NULL of a job that does not run, and of sources.
pub(super) fn rows(scope: &Scope) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for job in &scope.jobs {
        for (operator, table) in job.plan.iter().flat_map(|plan| state::tables(plan)) {
            let tasks = || job.observation.iter().flat_map(|seen| &seen.tasks).filter(|task| task.task.operator == *operator);
            let known = tasks().next().is_some() && table.kept != state::Kept::Partitions;
            let sum = |count: u64| if known { count.into() } else { Cell::Null };
            rows.push(vec![
                job.id.as_str().into(),
                operator.as_str().into(),
                format!("state.{}.{}", quote_ident(job.id.as_str()), quote_ident(operator.as_str())).into(),
                (table.schema.0.len() as u64).into(),
                sum(tasks().map(|task| task.state_rows).sum()),
                sum(tasks().map(|task| task.state_bytes).sum()),
            ]);
        }
    }
    rows
}
