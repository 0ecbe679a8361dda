//! What rows bring to their groups: keys, and an argument for each aggregate, by rows or as states.

use crate::accumulate::Accumulator;
use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{filter, nullif};
use arrow::datatypes::Int64Type;
use std::sync::Arc;
use weir_planner::error::Class;

/// One aggregate's input for some rows.
pub enum Argument {
    /// A value a row.
    Rows {
        /// What is aggregated, as [`Accumulator::update`] takes it; none for `count(*)`.
        values: Vec<ArrayRef>,
        /// `FILTER`.
        mask: Option<BooleanArray>,
    },
    /// A state a row, in the columns of [`Accumulator::image`] (WIN-7).
    States(Vec<ArrayRef>),
}

/// Keys and arguments of rows.
pub struct Piece {
    /// Number of rows.
    pub rows: usize,
    /// Key columns.
    pub keys: Vec<ArrayRef>,
    /// One for each aggregate.
    pub arguments: Vec<Argument>,
    /// How many rows of the job each one stands for; `None`: itself.
    pub behind: Option<Int64Array>,
}

impl Piece {
    /// Rows of the job in it.
    pub fn rows_behind(&self) -> u64 {
        self.behind.as_ref().map_or(self.rows as u64, sum)
    }

    /// Adds row i to `groups[i]` of each accumulator, all of which have grown. `chosen` is scratch.
    pub fn add_to(&self, accumulators: &mut [Box<dyn Accumulator>], groups: &[u32], chosen: &mut Vec<u32>) -> Result<(), Error> {
        for (accumulator, argument) in accumulators.iter_mut().zip(&self.arguments) {
            match argument {
                Argument::Rows { values, mask: None } => accumulator.update(groups, values)?,
                Argument::Rows { values, mask: Some(mask) } => {
                    chosen.clear();
                    chosen.extend(mask.values().set_indices().map(|row| groups[row]));
                    let values = values.iter().map(|values| filter(values, mask).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
                    accumulator.update(chosen, &values)?;
                }
                Argument::States(columns) => accumulator.merge(groups, columns)?,
            }
        }
        Ok(())
    }

    /// State of each row alone, for each aggregate.
    pub fn lift(&self, accumulators: &[Box<dyn Accumulator>]) -> Result<Vec<ArrayRef>, Error> {
        let mut columns = Vec::new();
        for (accumulator, argument) in accumulators.iter().zip(&self.arguments) {
            let masked = match argument {
                Argument::Rows { values, mask: None } => values.clone(),
                // A row that the filter leaves out is a row without a value.
                Argument::Rows { values, mask: Some(mask) } if values.is_empty() => {
                    let nulls = NullBuffer::new(mask.values().clone());
                    vec![Arc::new(BooleanArray::new(mask.values().clone(), Some(nulls))) as ArrayRef]
                }
                Argument::Rows { values, mask: Some(mask) } => {
                    let left_out = BooleanArray::new(!mask.values(), None);
                    values.iter().map(|values| nullif(values, &left_out).map_err(broken)).collect::<Result<_, _>>()?
                }
                Argument::States(_) => return Err(Error::new(Class::Bug, "a state is not made into a state again")),
            };
            columns.extend(accumulator.lift(self.rows, &masked)?);
        }
        Ok(columns)
    }

    /// Other rows of it, each array as `pick` makes it; `rows` of them.
    pub fn map(&self, rows: usize, pick: &dyn Fn(&dyn Array) -> Result<ArrayRef, Error>) -> Result<Piece, Error> {
        let all = |arrays: &[ArrayRef]| arrays.iter().map(|array| pick(array.as_ref())).collect::<Result<Vec<_>, Error>>();
        let argument = |argument: &Argument| {
            Ok(match argument {
                Argument::Rows { values, mask } => Argument::Rows {
                    values: all(values)?,
                    mask: mask.as_ref().map(|mask| Ok::<_, Error>(pick(mask)?.as_boolean().clone())).transpose()?,
                },
                Argument::States(columns) => Argument::States(all(columns)?),
            })
        };
        Ok(Piece {
            rows,
            keys: all(&self.keys)?,
            arguments: self.arguments.iter().map(argument).collect::<Result<_, Error>>()?,
            behind: self.behind.as_ref().map(|behind| Ok::<_, Error>(pick(behind)?.as_primitive::<Int64Type>().clone())).transpose()?,
        })
    }
}

/// Sum of counts, which are not negative.
pub(crate) fn sum(counts: &Int64Array) -> u64 {
    counts.values().iter().map(|count| count.unsigned_abs()).sum()
}
