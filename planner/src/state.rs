//! What an operator keeps, as a table (ST-1): its columns follow from the plan.

use crate::id::OperatorId;
use crate::plan::{JobPlan, PlanOperator, Work};
use crate::schema::{Column, ColumnType, Schema};
use crate::time::TimeUnit;

/// A moment of event time.
const MOMENT: ColumnType = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: true };

/// What a state table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Open windows and those that may still be revised, by key: keys, bounds, aggregates so far, `fired`.
    Windows,
    /// Open sessions, in the same columns.
    Sessions,
    /// Rows that may still be among the first of their window and key, and `event_time`.
    Candidates,
    /// Rows that are held back, and `event_time`.
    Held,
    /// `partition`, `position`, `event_time` (the greatest read), `watermark`, `ended`.
    Partitions,
}

/// The state table of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTable {
    /// What it shows.
    pub kept: Kept,
    /// Its columns. The last two say of which decided epoch a row is, and how far event time had come in it.
    pub schema: Schema,
    /// How many of the columns, from the first on, are the key.
    pub keys: usize,
}

/// The state table of a planned operator; `None` where it keeps nothing.
pub fn table(operator: &PlanOperator) -> Option<StateTable> {
    let column = |name: &str, ty: ColumnType| Column { name: name.to_owned(), ty, nullable: true };
    let output = |count: usize| operator.output.0.iter().take(count).map(|known| column(&known.name, known.ty)).collect::<Vec<_>>();
    let all = operator.output.0.len();
    let (kept, keys, mut columns, more) = match &operator.work {
        Work::Window(work) => {
            let kept = if matches!(work.windows, crate::window::Windows::Session { .. }) { Kept::Sessions } else { Kept::Windows };
            let columns = output(work.keys.len() + 2 + work.aggregates.len());
            (kept, work.keys.len(), columns, vec![("fired", ColumnType::Boolean)])
        }
        Work::Top(work) => (Kept::Candidates, 0, output(all - usize::from(work.place.is_some())), vec![("event_time", MOMENT)]),
        Work::Buffer(_) => (Kept::Held, 0, output(all), vec![("event_time", MOMENT)]),
        Work::Source(_) => {
            let own = [("partition", ColumnType::Text), ("position", ColumnType::Text), ("event_time", MOMENT), ("watermark", MOMENT)];
            (Kept::Partitions, 0, Vec::new(), own.into_iter().chain([("ended", ColumnType::Boolean)]).collect())
        }
        Work::Map(_) | Work::Partial(_) | Work::Batch(_) | Work::Union | Work::Sink(_) => return None,
    };
    for (name, ty) in more.into_iter().chain([("_epoch", ColumnType::Text), ("_watermark", MOMENT)]) {
        let mut name = name.to_owned();
        while columns.iter().any(|taken| taken.name == name) {
            name.push('_');
        }
        columns.push(column(&name, ty));
    }
    Some(StateTable { kept, schema: Schema(columns), keys })
}

/// The operators of a plan that have a state table, in plan order.
pub fn tables(plan: &JobPlan) -> impl Iterator<Item = (&OperatorId, StateTable)> {
    plan.operators().filter_map(|operator| Some((&operator.id, table(operator)?)))
}
