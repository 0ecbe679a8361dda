//! `avg(x)`: numbers give DOUBLE, decimals DECIMAL, rounded half away from zero.

use crate::accumulate::count::Count;
use crate::accumulate::sum::{FloatSums, no_carries};
use crate::accumulate::wide::{Wide, WideSums};
use crate::accumulate::{Accumulator, for_each_valid, image_column, numbers_or_zero, widened};
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float64Type, Int64Type, i256};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;

/// An accumulator for the average of values of type `input`; `None` when they have none.
pub fn new(input: ColumnType, output: ColumnType) -> Option<Box<dyn Accumulator>> {
    match input {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Some(Box::new(WideAvg::<Int64Type> {
            sums: WideSums::default(),
            counts: Count::default(),
            input: DataType::Int64,
            scale: 0,
            output,
        })),
        ColumnType::Decimal { scale, .. } => Some(Box::new(WideAvg::<Decimal128Type> {
            sums: WideSums::default(),
            counts: Count::default(),
            input: input.to_arrow(),
            scale,
            output,
        })),
        ColumnType::Real | ColumnType::Double => Some(Box::new(FloatAvg::default())),
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
        ColumnType::Timestamp { .. } | ColumnType::Interval => None,
    }
}

/// Counts as numbers.
fn counts(count: &Count, groups: &[u32]) -> Result<Vec<i64>, Error> {
    Ok(count.peek(groups)?.as_primitive::<Int64Type>().values().to_vec())
}

struct WideAvg<T: ArrowPrimitiveType>
where
    T::Native: Wide,
{
    sums: WideSums<T::Native>,
    counts: Count,
    input: DataType,
    scale: i8,
    output: ColumnType,
}

impl<T: ArrowPrimitiveType> Accumulator for WideAvg<T>
where
    T::Native: Wide,
{
    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups);
        self.counts.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: Option<&ArrayRef>) -> Result<(), Error> {
        let values = widened(values, &self.input)?;
        self.counts.update(groups, Some(&values))?;
        let values = values.as_primitive::<T>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| self.sums.add(group, numbers[row]));
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let counts = counts(&self.counts, groups)?;
        let pairs = groups.iter().zip(counts);
        match self.output {
            ColumnType::Decimal { precision, scale } => {
                let one = |(group, count): (&u32, i64)| {
                    if count == 0 {
                        return Ok(None);
                    }
                    divide(self.sums.exact(*group), count, scale - self.scale, precision)
                        .map(Some)
                        .ok_or_else(|| Error::new(Class::User, format!("avg overflows {}", self.output)))
                };
                let array = pairs.map(one).collect::<Result<Decimal128Array, Error>>()?;
                Ok(Arc::new(array.with_data_type(self.output.to_arrow())))
            }
            _ => {
                let one = |(group, count): (&u32, i64)| {
                    (count != 0).then(|| {
                        // The exact sum of at most 2^63 values of 64 bit fits 128 bit.
                        let sum = self.sums.exact(*group).to_i128().map_or(f64::NAN, |sum| sum as f64);
                        sum / count as f64 / 10f64.powi(i32::from(self.scale))
                    })
                };
                Ok(Arc::new(pairs.map(one).collect::<Float64Array>()))
            }
        }
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("sum", T::Native::ty()), ("carry", DataType::Int64), ("count", DataType::Int64)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, carries] = self.sums.image(groups);
        Ok(vec![sums, carries, self.counts.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?)?;
        self.counts.restore(groups, &[image_column(columns, 2)?.clone()])
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        self.counts.merge(groups, &[image_column(columns, 2)?.clone()])
    }

    fn lift(&self, rows: usize, values: Option<&ArrayRef>) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &self.input)?;
        let counts = self.counts.lift(rows, Some(&values))?;
        let columns = vec![T::Native::column(numbers_or_zero(values.as_primitive::<T>())), no_carries(rows)];
        Ok([columns, counts].concat())
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.counts.clear();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.counts.bytes()
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

#[derive(Default)]
struct FloatAvg {
    sums: FloatSums,
    counts: Count,
}

impl Accumulator for FloatAvg {
    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups);
        self.counts.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: Option<&ArrayRef>) -> Result<(), Error> {
        let values = widened(values, &DataType::Float64)?;
        self.counts.update(groups, Some(&values))?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| self.sums.add(group, numbers[row]));
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let counts = counts(&self.counts, groups)?;
        let one = |(group, count): (&u32, i64)| (count != 0).then(|| self.sums.value(*group) / count as f64);
        Ok(Arc::new(groups.iter().zip(counts).map(one).collect::<Float64Array>()))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("sum", DataType::Float64), ("lost", DataType::Float64), ("count", DataType::Int64)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, lost] = self.sums.image(groups);
        Ok(vec![sums, lost, self.counts.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        self.counts.restore(groups, &[image_column(columns, 2)?.clone()])
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        self.counts.merge(groups, &[image_column(columns, 2)?.clone()])
    }

    fn lift(&self, rows: usize, values: Option<&ArrayRef>) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &DataType::Float64)?;
        let counts = self.counts.lift(rows, Some(&values))?;
        let columns = vec![FloatSums::lift_sum(values.as_primitive::<Float64Type>()), FloatSums::lift_lost(rows)];
        Ok([columns, counts].concat())
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.counts.clear();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.counts.bytes()
    }
}
