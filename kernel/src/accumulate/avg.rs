//! `avg(x)`: numbers give DOUBLE, decimals DECIMAL, rounded half away from zero.

use crate::accumulate::count::Count;
use crate::accumulate::float::FloatSums;
use crate::accumulate::totals::Totals;
use crate::accumulate::wide::{Wide, WideSums};
use crate::accumulate::{Accumulator, for_each_valid, image_column, widened};
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{DataType, Int64Type, i256};
use std::marker::PhantomData;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;

/// An accumulator for the average of values of type `input`; `None` when they have none.
pub fn new(input: ColumnType, output: ColumnType) -> Option<Box<dyn Accumulator>> {
    match input {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => {
            Some(Avg::boxed(DataType::Int64, Exact::<i64> { scale: 0, output, of: PhantomData }))
        }
        ColumnType::Decimal { scale, .. } => Some(Avg::boxed(input.to_arrow(), Exact::<i128> { scale, output, of: PhantomData })),
        ColumnType::Real | ColumnType::Double => Some(Avg::boxed(DataType::Float64, Floats)),
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
        ColumnType::Timestamp { .. } | ColumnType::Interval => None,
    }
}

/// How totals and counts become averages.
trait Results: Clone + Send + 'static {
    type Totals: Totals;

    /// Averages of the listed groups; NULL where the count is 0. `counts[i]` is that of `groups[i]`.
    ///
    /// Errors: an average that the result's type cannot hold.
    fn results(&self, totals: &Self::Totals, counts: &[i64], groups: &[u32]) -> Result<ArrayRef, Error>;
}

/// Averages of integers and decimals.
#[derive(Clone)]
struct Exact<T> {
    /// Scale of the argument.
    scale: i8,
    output: ColumnType,
    of: PhantomData<T>,
}

impl<T: Wide> Results for Exact<T> {
    type Totals = WideSums<T>;

    fn results(&self, totals: &WideSums<T>, counts: &[i64], groups: &[u32]) -> Result<ArrayRef, Error> {
        let pairs = groups.iter().zip(counts);
        match self.output {
            ColumnType::Decimal { precision, scale } => {
                let one = |(group, count): (&u32, &i64)| {
                    if *count == 0 {
                        return Ok(None);
                    }
                    divide(totals.exact(*group), *count, scale - self.scale, precision)
                        .map(Some)
                        .ok_or_else(|| Error::new(Class::User, format!("avg overflows {}", self.output)))
                };
                let array = pairs.map(one).collect::<Result<Decimal128Array, Error>>()?;
                Ok(Arc::new(array.with_data_type(self.output.to_arrow())))
            }
            _ => {
                let one = |(group, count): (&u32, &i64)| {
                    (*count != 0).then(|| {
                        // The exact sum of at most 2^63 values of 64 bit fits 128 bit.
                        let sum = totals.exact(*group).to_i128().map_or(f64::NAN, |sum| sum as f64);
                        sum / *count as f64 / 10f64.powi(i32::from(self.scale))
                    })
                };
                Ok(Arc::new(pairs.map(one).collect::<Float64Array>()))
            }
        }
    }
}

#[derive(Clone)]
struct Floats;

impl Results for Floats {
    type Totals = FloatSums;

    fn results(&self, totals: &FloatSums, counts: &[i64], groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |(group, count): (&u32, &i64)| (*count != 0).then(|| totals.value(*group) / *count as f64);
        Ok(Arc::new(groups.iter().zip(counts).map(one).collect::<Float64Array>()))
    }
}

/// An average of any kind of number; `R` says which.
struct Avg<R: Results> {
    totals: R::Totals,
    counts: Count,
    /// Type that arguments are cast to before they are added.
    input: DataType,
    results: R,
}

impl<R: Results> Avg<R> {
    fn boxed(input: DataType, results: R) -> Box<dyn Accumulator> {
        Box::new(Avg { totals: R::Totals::default(), counts: Count::default(), input, results })
    }
}

impl<R: Results> Accumulator for Avg<R> {
    fn grow(&mut self, groups: usize) {
        self.totals.grow(groups);
        self.counts.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &self.input)?;
        self.counts.update(groups, std::slice::from_ref(&values))?;
        let values = values.as_primitive::<<R::Totals as Totals>::Number>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| self.totals.add(group, numbers[row]));
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let counts = self.counts.peek(groups)?;
        self.results.results(&self.totals, counts.as_primitive::<Int64Type>().values(), groups)
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        let [sum, rest] = R::Totals::image_fields();
        vec![sum, rest, ("count", DataType::Int64)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, rest] = self.totals.image(groups);
        Ok(vec![sums, rest, self.counts.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.totals.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        self.counts.restore(groups, &[image_column(columns, 2)?.clone()])
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.totals.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        self.counts.merge(groups, &[image_column(columns, 2)?.clone()])
    }

    fn lift(&self, rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &self.input)?;
        let counts = self.counts.lift(rows, std::slice::from_ref(&values))?;
        Ok([R::Totals::lift(values.as_primitive::<<R::Totals as Totals>::Number>()).to_vec(), counts].concat())
    }

    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        let (totals, counts) = (self.totals.snapshot(), self.counts.shared());
        Some(Box::new(Avg { totals, counts, input: self.input.clone(), results: self.results.clone() }))
    }

    fn clear(&mut self) {
        self.totals.clear();
        self.counts.clear();
    }

    fn bytes(&self) -> usize {
        self.totals.bytes() + self.counts.bytes()
    }
}

/// `sum / count` with `shift` more digits after the point, rounded half away from zero; `None`
/// when it has more than `precision` digits.
fn divide(sum: i256, count: i64, shift: i8, precision: u8) -> Option<i128> {
    let ten = |power: u8| i256::from_i128(10).checked_pow(u32::from(power));
    let (mut numerator, mut denominator) = (sum, i256::from_i128(i128::from(count)));
    if shift >= 0 {
        numerator = numerator.checked_mul(ten(shift.unsigned_abs())?)?;
    } else {
        denominator = denominator.checked_mul(ten(shift.unsigned_abs())?)?;
    }
    let (quotient, rest) = (numerator.checked_div(denominator)?, numerator.checked_rem(denominator)?);
    let twice = rest.checked_abs()?.checked_mul(i256::from_i128(2))?;
    let away = if twice < denominator {
        i256::ZERO
    } else if numerator < i256::ZERO {
        i256::MINUS_ONE
    } else {
        i256::ONE
    };
    let result = quotient.checked_add(away)?.to_i128()?;
    (i256::from_i128(result).checked_abs()? < ten(precision)?).then_some(result)
}
