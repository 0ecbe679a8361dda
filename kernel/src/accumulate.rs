//! Aggregate functions as columns of state: one value a group, updated by whole batches, read
//! without being consumed, captured and restored by group (WIN-6).

pub mod avg;
pub mod bitwise;
pub(crate) mod collect;
pub mod count;
pub(crate) mod distinct;
pub mod extreme;
pub mod float;
pub(crate) mod members;
pub mod moments;
pub mod ordered;
pub mod pairs;
pub mod piece;
pub(crate) mod rows;
pub(crate) mod sketch;
pub mod sum;
pub mod totals;
pub mod wide;

use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction};
use weir_planner::schema::ColumnType;

/// State of one aggregate for all groups of a window. Results do not depend on the order of the
/// rows or on how they are cut into batches (for floats within rounding).
pub trait Accumulator: Send {
    /// Makes room for `groups` groups; new ones are empty. Never shrinks.
    fn grow(&mut self, groups: usize);

    /// Adds row i of `values` to group `groups[i]`. The columns are those of [`Aggregate::columns`],
    /// then for a [`Aggregate::timed`] one the event time in ms; `count(*)` has none. NULLs are left
    /// out, but where the function takes them.
    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error>;

    /// Results of the listed groups, in their order.
    ///
    /// Errors: a result that its type cannot hold.
    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error>;

    /// Name endings and types of the image columns.
    fn image_fields(&self) -> Vec<(&'static str, DataType)>;

    /// Whole state of the listed groups, in the order of [`Accumulator::image_fields`].
    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error>;

    /// Puts back what `image` gave: row i replaces the state of `groups[i]`. The columns have the
    /// types of [`Accumulator::image_fields`].
    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error>;

    /// Adds other states: row i of `columns`, which are as `image` gives them, to `groups[i]`. The
    /// result is that of having seen the rows behind both (WIN-7).
    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error>;

    /// State of one group for each of `rows` rows, as `image` would give it. NULLs leave theirs
    /// empty; so do NULLs of an argument that stands for the rows to count of `count(*)`.
    ///
    /// Errors: one that has no state for the first stage of a window.
    fn lift(&self, _rows: usize, _values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        Err(Error::new(Class::Bug, "this aggregate has no partial state"))
    }

    /// All groups as they are now, standing still while this one goes on, where that copies next to
    /// nothing; `None` where it would, and then images are taken at once (CKP-4).
    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        None
    }

    /// Forgets every group and keeps the room.
    fn clear(&mut self);

    /// Bytes held; 0 for one that was just made.
    fn bytes(&self) -> usize;
}

/// An empty accumulator for a planned aggregate.
///
/// Errors: a type that the function does not take.
pub fn accumulator(aggregate: &Aggregate) -> Result<Box<dyn Accumulator>, Error> {
    use AggregateFunction as F;
    let input = aggregate.arguments.first().map(|argument| argument.ty);
    let Some(ty) = input else {
        if aggregate.function == F::Count {
            return Ok(Box::new(count::Count::default()));
        }
        return Err(Error::new(Class::Bug, "only count goes without an argument"));
    };
    let inner: Option<Box<dyn Accumulator>> = match aggregate.function {
        F::Count => Some(Box::new(count::Count::default())),
        F::Sum => sum::new(ty, aggregate.ty),
        F::Avg => avg::new(ty, aggregate.ty),
        F::Min => extreme::new(ty, false),
        F::Max => extreme::new(ty, true),
        // False is less than true.
        F::BoolAnd => (ty == ColumnType::Boolean).then(|| extreme::new(ty, false)).flatten(),
        F::BoolOr => (ty == ColumnType::Boolean).then(|| extreme::new(ty, true)).flatten(),
        F::BitAnd => bitwise::new(ty, bitwise::Law::And),
        F::BitOr => bitwise::new(ty, bitwise::Law::Or),
        F::BitXor => bitwise::new(ty, bitwise::Law::Xor),
        F::VarSamp => moments::new(ty, moments::Measure::of_sample(false)),
        F::VarPop => moments::new(ty, moments::Measure::of_population(false)),
        F::StddevSamp => moments::new(ty, moments::Measure::of_sample(true)),
        F::StddevPop => moments::new(ty, moments::Measure::of_population(true)),
        F::Corr
        | F::CovarSamp
        | F::CovarPop
        | F::RegrSlope
        | F::RegrIntercept
        | F::RegrR2
        | F::RegrCount
        | F::RegrAvgx
        | F::RegrAvgy
        | F::RegrSxx
        | F::RegrSyy
        | F::RegrSxy => pairs::new(aggregate),
        F::FirstValue => Some(ordered::new(aggregate, false)?),
        F::LastValue => Some(ordered::new(aggregate, true)?),
        F::StringAgg | F::Median | F::PercentileCont => collect::new(aggregate)?,
        F::ApproxDistinct | F::ApproxMedian | F::ApproxPercentileCont => sketch::new(aggregate)?,
    };
    let name = aggregate.function.name();
    let inner = inner.ok_or_else(|| Error::new(Class::User, format!("{name} does not take a value of type {ty}")))?;
    if aggregate.distinct { distinct::Distinct::boxed(aggregate, inner) } else { Ok(inner) }
}

/// The first argument in the wider type that an accumulator adds up in.
pub(crate) fn widened(values: &[ArrayRef], ty: &DataType) -> Result<ArrayRef, Error> {
    let values = values.first().ok_or_else(|| Error::new(Class::Bug, "an aggregate lacks its argument"))?;
    cast_to(values, ty)
}

/// A column as one of type `ty`.
pub(crate) fn cast_to(values: &ArrayRef, ty: &DataType) -> Result<ArrayRef, Error> {
    if values.data_type() == ty { Ok(values.clone()) } else { cast(values, ty).map_err(broken) }
}

/// Column `index` of an image, for a restore.
pub(crate) fn image_column(columns: &[ArrayRef], index: usize) -> Result<&ArrayRef, Error> {
    columns.get(index).ok_or_else(|| Error::new(Class::Corrupt, "a state image lacks a column"))
}

/// Which of the values are there, as an image column.
pub(crate) fn valid_column(values: &dyn Array) -> ArrayRef {
    let bits = values.logical_nulls().map_or_else(|| BooleanBuffer::new_set(values.len()), |nulls| nulls.inner().clone());
    Arc::new(BooleanArray::new(bits, None))
}

/// The numbers with 0 in the place of NULL.
pub(crate) fn numbers_or_zero<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>) -> Vec<T::Native> {
    match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => values.values().to_vec(),
        Some(nulls) => values.values().iter().zip(nulls.iter()).map(|(v, valid)| if valid { *v } else { T::Native::default() }).collect(),
    }
}

/// Calls `each` with group and row number of every non-null row.
#[inline]
pub(crate) fn for_each_valid(groups: &[u32], array: &dyn Array, mut each: impl FnMut(u32, usize)) {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => groups.iter().enumerate().for_each(|(row, group)| each(*group, row)),
        Some(nulls) => nulls.valid_indices().for_each(|row| each(groups[row], row)),
    }
}

#[cfg(test)]
mod tests;
