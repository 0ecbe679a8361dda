//! `sum(x)`: integers to BIGINT and decimals to DECIMAL(38, s), exact or an error; floats compensated.

use crate::accumulate::float::FloatSums;
use crate::accumulate::totals::Totals;
use crate::accumulate::wide::WideSums;
use crate::accumulate::{Accumulator, cast_to, for_each_valid, image_column, valid_column, widened};
use crate::error::Error;
use crate::state::bits::Bits;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array};
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;

/// An accumulator for the sum of values of type `input`; `None` when they cannot be summed.
pub fn new(input: ColumnType, output: ColumnType) -> Option<Box<dyn Accumulator>> {
    match input {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Some(Sum::boxed(DataType::Int64, BigInts)),
        ColumnType::Real | ColumnType::Double => Some(Sum::boxed(DataType::Float64, Floats { output: output.to_arrow() })),
        ColumnType::Decimal { scale, .. } => Some(Sum::boxed(input.to_arrow(), Decimals { scale, output })),
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
        ColumnType::Timestamp { .. } | ColumnType::Interval => None,
    }
}

/// Image column of the bits of `groups`.
pub(crate) fn seen_image(seen: &Bits, groups: &[u32]) -> ArrayRef {
    Arc::new(groups.iter().map(|group| Some(seen.get(*group))).collect::<BooleanArray>())
}

/// Puts bits back from an image column.
pub(crate) fn seen_restore(seen: &mut Bits, groups: &[u32], column: &ArrayRef) {
    let column = column.as_boolean();
    groups.iter().enumerate().for_each(|(row, group)| seen.put(*group, column.value(row)));
}

/// Sets the bits that an image column has.
fn seen_merge(seen: &mut Bits, groups: &[u32], column: &ArrayRef) {
    column.as_boolean().values().set_indices().for_each(|row| seen.set(groups[row]));
}

/// How totals become the results of a sum.
trait Results: Clone + Send + 'static {
    type Totals: Totals;

    /// Results of the listed groups; NULL for those that have `seen` no value.
    ///
    /// Errors: a total that the result's type cannot hold.
    fn results(&self, totals: &Self::Totals, seen: &Bits, groups: &[u32]) -> Result<ArrayRef, Error>;
}

#[derive(Clone)]
struct BigInts;

impl Results for BigInts {
    type Totals = WideSums<i64>;

    fn results(&self, totals: &WideSums<i64>, seen: &Bits, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| {
            if !seen.get(*group) {
                return Ok(None);
            }
            match totals.fitting(*group) {
                Some(sum) => Ok(Some(sum)),
                None => Err(Error::new(Class::User, format!("sum overflows BIGINT: it comes to {}", totals.exact(*group)))),
            }
        };
        Ok(Arc::new(groups.iter().map(one).collect::<Result<Int64Array, Error>>()?))
    }
}

#[derive(Clone)]
struct Decimals {
    /// Scale of the argument.
    scale: i8,
    output: ColumnType,
}

impl Results for Decimals {
    type Totals = WideSums<i128>;

    fn results(&self, totals: &WideSums<i128>, seen: &Bits, groups: &[u32]) -> Result<ArrayRef, Error> {
        let overflows = |group: u32| {
            Error::new(Class::User, format!("sum overflows {}: it comes to {}e-{}", self.output, totals.exact(group), self.scale))
        };
        let ColumnType::Decimal { precision, scale } = self.output else {
            return Err(Error::new(Class::Bug, format!("sum of DECIMAL cannot give {}", self.output)));
        };
        // Scales are those of the input unless the plan asks for more digits after the point.
        let factor = 10i128.checked_pow(u32::try_from(scale - self.scale).unwrap_or(u32::MAX));
        let limit = 10i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
        let one = |group: &u32| {
            if !seen.get(*group) {
                return Ok(None);
            }
            let fitted = totals.fitting(*group).zip(factor).and_then(|(sum, factor)| sum.checked_mul(factor));
            fitted.filter(|sum| sum.unsigned_abs() < limit.unsigned_abs()).map(Some).ok_or_else(|| overflows(*group))
        };
        let array = groups.iter().map(one).collect::<Result<Decimal128Array, Error>>()?;
        Ok(Arc::new(array.with_data_type(self.output.to_arrow())))
    }
}

#[derive(Clone)]
struct Floats {
    output: DataType,
}

impl Results for Floats {
    type Totals = FloatSums;

    fn results(&self, totals: &FloatSums, seen: &Bits, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| seen.get(*group).then(|| totals.value(*group));
        let sums: ArrayRef = Arc::new(groups.iter().map(one).collect::<Float64Array>());
        cast_to(&sums, &self.output)
    }
}

/// A sum of any kind of number; `R` says which.
struct Sum<R: Results> {
    totals: R::Totals,
    seen: Bits,
    /// Type that arguments are cast to before they are added.
    input: DataType,
    results: R,
}

impl<R: Results> Sum<R> {
    fn boxed(input: DataType, results: R) -> Box<dyn Accumulator> {
        Box::new(Sum { totals: R::Totals::default(), seen: Bits::default(), input, results })
    }
}

impl<R: Results> Accumulator for Sum<R> {
    fn grow(&mut self, groups: usize) {
        self.totals.grow(groups);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &self.input)?;
        let values = values.as_primitive::<<R::Totals as Totals>::Number>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| {
            self.totals.add(group, numbers[row]);
            self.seen.set(group);
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        self.results.results(&self.totals, &self.seen, groups)
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        let [sum, rest] = R::Totals::image_fields();
        vec![sum, rest, ("seen", DataType::Boolean)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, rest] = self.totals.image(groups);
        Ok(vec![sums, rest, seen_image(&self.seen, groups)])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.totals.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_restore(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.totals.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_merge(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn lift(&self, _rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &self.input)?;
        let values = values.as_primitive::<<R::Totals as Totals>::Number>();
        let [sums, rest] = R::Totals::lift(values);
        Ok(vec![sums, rest, valid_column(values)])
    }

    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        let (totals, seen) = (self.totals.snapshot(), self.seen.clone());
        Some(Box::new(Sum { totals, seen, input: self.input.clone(), results: self.results.clone() }))
    }

    fn clear(&mut self) {
        self.totals.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.totals.bytes() + self.seen.bytes()
    }
}
