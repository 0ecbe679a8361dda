//! Rows of the first stage (WIN-7), as the window that merges them reads them.

use crate::accumulate::piece::{Argument, Piece, sum};
use crate::envelope::Data;
use crate::error::Error;
use crate::operator::grouping::key_columns;
use crate::operator::window::places::Places;
use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use std::ops::Range;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::plan::partial::{PANE_FROM_COLUMN, PANE_START_COLUMN, ROWS_COLUMN, state_columns};
use weir_planner::schema::{ColumnType, Schema};

/// Where the columns of `weir_planner::plan::partial` lie.
pub(crate) struct Partials {
    keys: Vec<usize>,
    start: usize,
    from: usize,
    states: Vec<Range<usize>>,
    rows: usize,
}

impl Partials {
    /// Finds the columns.
    ///
    /// Errors: columns that are not those of the first stage of `work`.
    pub(super) fn new(id: &OperatorId, work: &WindowWork, input: &Schema) -> Result<Self, Error> {
        let wrong = |what: &str| Error::new(Class::Bug, format!("operator '{id}' is to merge partial rows but its input lacks {what}"));
        let keys = key_columns(id, &work.keys, input)?;
        let found = |name: &str, ty: ColumnType| {
            input.index_of(name).filter(|at| input.0[*at].ty == ty).ok_or_else(|| wrong(&format!("the column '{name}' of type {ty}")))
        };
        let mut states = Vec::new();
        for (i, (name, aggregate)) in work.kept().iter().enumerate() {
            let parts = state_columns(aggregate).ok_or_else(|| wrong(&format!("a state of '{name}', which has none")))?;
            let places = parts.iter().map(|(part, ty)| found(&format!("__a{i}_{part}"), *ty)).collect::<Result<Vec<_>, _>>()?;
            let first = places.first().copied().unwrap_or(0);
            if !places.iter().copied().eq(first..first + places.len()) {
                return Err(wrong(&format!("the state of '{name}' in its order")));
            }
            states.push(first..first + places.len());
        }
        let big = |name: &str| found(name, ColumnType::BigInt);
        Ok(Partials { keys, start: big(PANE_START_COLUMN)?, from: big(PANE_FROM_COLUMN)?, states, rows: big(ROWS_COLUMN)? })
    }

    /// The panes of the rows.
    pub(super) fn places<'a>(&self, data: &'a Data) -> Places<'a> {
        let numbers = |at: usize| &data.rows.column(at).as_primitive::<Int64Type>().values()[..];
        Places::Panes { starts: numbers(self.start), froms: numbers(self.from) }
    }

    /// Keys and states.
    pub(super) fn piece(&self, data: &Data) -> Piece {
        let columns = data.rows.columns();
        Piece {
            rows: data.len(),
            keys: self.keys.iter().map(|i| columns[*i].clone()).collect(),
            arguments: self.states.iter().map(|range| Argument::States(columns[range.clone()].to_vec())).collect(),
            behind: Some(self.behind(data)),
        }
    }

    /// Rows of the job in it.
    pub(super) fn rows_of(&self, data: &Data) -> u64 {
        sum(&self.behind(data))
    }

    /// How many rows each one stands for.
    pub(super) fn behind(&self, data: &Data) -> Int64Array {
        data.rows.column(self.rows).as_primitive::<Int64Type>().clone()
    }
}
