//! From rows to groups: key columns, argument expressions, and groups that are made anew again and again.

use crate::accumulate::piece::{Argument, Piece};
use crate::accumulate::{Accumulator, accumulator};
use crate::envelope::Data;
use crate::error::Error;
use crate::eval::Evaluator;
use crate::route::key::Encoded;
use crate::state::index::Index;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;
use weir_planner::id::OperatorId;
use weir_planner::schema::Schema;

/// Keys and arguments of an aggregate, over the columns that it takes.
pub(crate) struct Grouping {
    keys: Vec<usize>,
    /// Of each aggregate.
    arguments: Vec<Call>,
}

/// What one aggregate takes of each row.
struct Call {
    columns: Vec<Evaluator>,
    /// The event time follows the columns.
    timed: bool,
    /// `FILTER`.
    filter: Option<Evaluator>,
}

impl Grouping {
    /// Builds the expressions.
    ///
    /// Errors: a key column that is not there, an expression that cannot be built.
    pub(crate) fn new(id: &OperatorId, keys: &[String], aggregates: &[(String, Aggregate)], input: &Schema) -> Result<Self, Error> {
        let mut arguments = Vec::new();
        for (_, aggregate) in aggregates {
            let columns = aggregate.columns().map(|column| Evaluator::typed(id, column, input)).collect::<Result<_, _>>()?;
            let filter = aggregate.filter.as_ref().map(|filter| Evaluator::condition(id, filter, input)).transpose()?;
            arguments.push(Call { columns, timed: aggregate.timed(), filter });
        }
        Ok(Grouping { keys: key_columns(id, keys, input)?, arguments })
    }

    /// Keys and arguments of rows.
    ///
    /// Errors: class `User` when an argument of a row cannot be computed.
    pub(crate) fn piece(&self, data: &Data, wall_ms: i64) -> Result<Piece, Error> {
        let argument = |call: &Call| {
            let mut values = call.columns.iter().map(|column| column.evaluate(data, wall_ms)).collect::<Result<Vec<_>, Error>>()?;
            if call.timed {
                values.push(Arc::new(data.times.clone()));
            }
            let mask = call.filter.as_ref().map(|filter| filter.holds(data, wall_ms)).transpose()?;
            Ok(Argument::Rows { values, mask })
        };
        Ok(Piece {
            rows: data.len(),
            keys: self.keys.iter().map(|i| data.rows.column(*i).clone()).collect(),
            arguments: self.arguments.iter().map(argument).collect::<Result<_, Error>>()?,
            behind: None,
        })
    }
}

/// Positions of key columns.
pub(crate) fn key_columns(id: &OperatorId, keys: &[String], input: &Schema) -> Result<Vec<usize>, Error> {
    let unknown = |name: &String| Error::new(Class::Bug, format!("operator '{id}': its input has no key column '{name}'"));
    keys.iter().map(|name| input.index_of(name).ok_or_else(|| unknown(name))).collect()
}

/// Buffers that are used again from batch to batch.
#[derive(Default)]
pub(crate) struct Scratch {
    encoded: Encoded,
    groups: Vec<u32>,
    chosen: Vec<u32>,
}

/// Groups that live for a short while: no state.
pub(crate) struct Groups {
    operator: OperatorId,
    names: Vec<String>,
    index: Index,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Rows behind each group.
    rows: Vec<i64>,
    rows_all: u64,
}

impl Groups {
    /// None, for keys of these types.
    pub(crate) fn new(id: &OperatorId, types: &[DataType], aggregates: &[(String, Aggregate)]) -> Result<Self, Error> {
        let accumulators = aggregates.iter().map(|(_, aggregate)| accumulator(aggregate)).collect::<Result<_, _>>()?;
        let names = aggregates.iter().map(|(name, _)| name.clone()).collect();
        Ok(Groups { operator: id.clone(), names, index: Index::new(types), accumulators, rows: Vec::new(), rows_all: 0 })
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Adds rows, each one of the job; new groups count on in the order of their first row.
    pub(crate) fn add(&mut self, piece: &Piece, scratch: &mut Scratch) -> Result<(), Error> {
        self.index.assign(&piece.keys, piece.rows, &mut scratch.encoded, &mut scratch.groups)?;
        let groups = self.index.len();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
        self.rows.resize(groups, 0);
        scratch.groups.iter().for_each(|group| self.rows[*group as usize] += 1);
        self.rows_all += piece.rows as u64;
        piece.add_to(&mut self.accumulators, &scratch.groups, &mut scratch.chosen)
    }

    /// Keys and results of some groups.
    ///
    /// Errors: a result that its type cannot hold, naming operator and column.
    pub(crate) fn results(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let mut columns = self.index.keys(groups)?;
        for (accumulator, name) in self.accumulators.iter().zip(&self.names) {
            let name_it = |e: Error| Error { message: format!("{} in operator '{}', column '{name}'", e.message, self.operator), ..e };
            columns.push(accumulator.peek(groups).map_err(name_it)?);
        }
        Ok(columns)
    }

    /// Key columns of some groups.
    pub(crate) fn keys(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.index.keys(groups)
    }

    /// The accumulators.
    pub(crate) fn accumulators(&self) -> &[Box<dyn Accumulator>] {
        &self.accumulators
    }

    /// Rows behind all of them.
    pub(crate) fn rows_behind(&self) -> u64 {
        self.rows_all
    }

    /// Rows behind each group.
    pub(crate) fn rows(&self) -> &[i64] {
        &self.rows
    }

    /// Forgets every group and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        self.rows.clear();
        self.rows_all = 0;
    }
}
