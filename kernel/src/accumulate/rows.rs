//! Rows as bytes that compare as the rows do: what is ordered by, then event time, then the value,
//! so that the order is one and the same whatever order the rows come in (EV-3, WIN-6).
//!
//! The bytes are Arrow's row format and stay in memory: images hold columns.

use crate::accumulate::cast_to;
use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::row::{Row, RowConverter, Rows, SortField};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;

/// Turns columns of an ordered aggregate into comparable rows and back.
pub(crate) struct Ordering {
    converter: RowConverter,
    /// Types of the row's columns: what is ordered by, event time where it matters, the value.
    types: Vec<DataType>,
}

impl Ordering {
    /// The order of a planned aggregate, whose columns are its value, what is ordered by, and the time.
    pub(crate) fn new(aggregate: &Aggregate) -> Result<Self, Error> {
        let value = aggregate.arguments.first().ok_or_else(|| Error::new(Class::Bug, "an ordered aggregate lacks its argument"))?;
        let mut fields: Vec<(DataType, SortOptions)> = Vec::new();
        for order in &aggregate.order_by {
            fields.push((order.by.ty.to_arrow(), SortOptions { descending: order.descending, nulls_first: order.nulls_first }));
        }
        let ascending = SortOptions { descending: false, nulls_first: false };
        if aggregate.timed() {
            fields.push((DataType::Int64, ascending));
        }
        fields.push((value.ty.to_arrow(), ascending));
        let types = fields.iter().map(|(ty, _)| ty.clone()).collect();
        let fields = fields.into_iter().map(|(ty, options)| SortField::new_with_options(ty, options)).collect();
        Ok(Ordering { converter: RowConverter::new(fields).map_err(broken)?, types })
    }

    /// Types of the columns of a row, the value last.
    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// No rows yet.
    pub(crate) fn none(&self) -> Rows {
        self.converter.empty_rows(0, 0)
    }

    /// Adds rows of columns in the order of [`Ordering::types`].
    pub(crate) fn append(&self, rows: &mut Rows, columns: &[ArrayRef]) -> Result<(), Error> {
        let columns = columns.iter().zip(&self.types).map(|(column, ty)| cast_to(column, ty)).collect::<Result<Vec<_>, _>>()?;
        self.converter.append(rows, &columns).map_err(broken)
    }

    /// Adds rows as [`Accumulator::update`](crate::accumulate::Accumulator::update) has them: the value first.
    pub(crate) fn append_given(&self, rows: &mut Rows, given: &[ArrayRef]) -> Result<(), Error> {
        let Some((value, keys)) = given.split_first() else {
            return Err(Error::new(Class::Bug, "an ordered aggregate lacks its argument"));
        };
        let mut columns = keys.iter().map(canonical).collect::<Vec<_>>();
        columns.push(value.clone());
        self.append(rows, &columns)
    }

    /// Columns of rows, in the order of [`Ordering::types`].
    pub(crate) fn columns<'a>(&self, rows: impl IntoIterator<Item = Row<'a>>) -> Result<Vec<ArrayRef>, Error> {
        self.converter.convert_rows(rows).map_err(broken)
    }

    /// Reads kept bytes.
    pub(crate) fn parser(&self) -> arrow::row::RowParser {
        self.converter.parser()
    }
}

/// A column to order by: of floats -0 is 0 and NaN is one, the greatest.
pub(crate) fn canonical(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(one)) as Arc<Float32Array>
        }
        DataType::Float64 => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(one)) as Arc<Float64Array>
        }
        _ => column.clone(),
    }
}
