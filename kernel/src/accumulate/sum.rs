//! `sum(x)`: integers to BIGINT and decimals to DECIMAL(38, s), exact or an error; floats compensated.

use crate::accumulate::wide::{Wide, WideSums};
use crate::accumulate::{Accumulator, for_each_valid, image_column, numbers_or_zero, valid_column, widened};
use crate::error::Error;
use crate::state::bits::Bits;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;

/// An accumulator for the sum of values of type `input`; `None` when they cannot be summed.
pub fn new(input: ColumnType, output: ColumnType) -> Option<Box<dyn Accumulator>> {
    match input {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Some(Box::new(IntegerSum::default())),
        ColumnType::Real | ColumnType::Double => {
            Some(Box::new(FloatSum { sums: FloatSums::default(), seen: Bits::default(), output: output.to_arrow() }))
        }
        ColumnType::Decimal { scale, .. } => Some(Box::new(DecimalSum { sums: WideSums::default(), seen: Bits::default(), scale, output })),
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

/// Carries of sums of one value.
pub(crate) fn no_carries(rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from_value(0, rows))
}

fn decimals(values: Option<&ArrayRef>) -> Result<&Decimal128Array, Error> {
    let values = values.ok_or_else(|| Error::new(Class::Bug, "sum lacks its argument"))?;
    let wrong = || Error::new(Class::Bug, format!("sum of DECIMAL got a column of {}", values.data_type()));
    values.as_primitive_opt::<Decimal128Type>().ok_or_else(wrong)
}

#[derive(Default)]
struct IntegerSum {
    sums: WideSums<i64>,
    seen: Bits,
}

impl Accumulator for IntegerSum {
    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: Option<&ArrayRef>) -> Result<(), Error> {
        let values = widened(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| {
            self.sums.add(group, numbers[row]);
            self.seen.set(group);
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| {
            if !self.seen.get(*group) {
                return Ok(None);
            }
            match self.sums.fitting(*group) {
                Some(sum) => Ok(Some(sum)),
                None => Err(Error::new(Class::User, format!("sum overflows BIGINT: it comes to {}", self.sums.exact(*group)))),
            }
        };
        Ok(Arc::new(groups.iter().map(one).collect::<Result<Int64Array, Error>>()?))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("sum", DataType::Int64), ("carry", DataType::Int64), ("seen", DataType::Boolean)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, carries] = self.sums.image(groups);
        Ok(vec![sums, carries, seen_image(&self.seen, groups)])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?)?;
        seen_restore(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_merge(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn lift(&self, rows: usize, values: Option<&ArrayRef>) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        Ok(vec![i64::column(numbers_or_zero(values)), no_carries(rows), valid_column(values)])
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.seen.bytes()
    }
}

struct DecimalSum {
    sums: WideSums<i128>,
    seen: Bits,
    scale: i8,
    output: ColumnType,
}

impl Accumulator for DecimalSum {
    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: Option<&ArrayRef>) -> Result<(), Error> {
        let values = decimals(values)?;
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| {
            self.sums.add(group, numbers[row]);
            self.seen.set(group);
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let overflows = |group: u32| {
            Error::new(Class::User, format!("sum overflows {}: it comes to {}e-{}", self.output, self.sums.exact(group), self.scale))
        };
        let ColumnType::Decimal { precision, scale } = self.output else {
            return Err(Error::new(Class::Bug, format!("sum of DECIMAL cannot give {}", self.output)));
        };
        // Scales are those of the input unless the plan asks for more digits after the point.
        let factor = 10i128.checked_pow(u32::try_from(scale - self.scale).unwrap_or(u32::MAX));
        let limit = 10i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
        let one = |group: &u32| {
            if !self.seen.get(*group) {
                return Ok(None);
            }
            let fitted = self.sums.fitting(*group).zip(factor).and_then(|(sum, factor)| sum.checked_mul(factor));
            fitted.filter(|sum| sum.unsigned_abs() < limit.unsigned_abs()).map(Some).ok_or_else(|| overflows(*group))
        };
        let array = groups.iter().map(one).collect::<Result<Decimal128Array, Error>>()?;
        Ok(Arc::new(array.with_data_type(self.output.to_arrow())))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("sum", i128::ty()), ("carry", DataType::Int64), ("seen", DataType::Boolean)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, carries] = self.sums.image(groups);
        Ok(vec![sums, carries, seen_image(&self.seen, groups)])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?)?;
        seen_restore(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_merge(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn lift(&self, rows: usize, values: Option<&ArrayRef>) -> Result<Vec<ArrayRef>, Error> {
        let values = decimals(values)?;
        Ok(vec![i128::column(numbers_or_zero(values)), no_carries(rows), valid_column(values)])
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.seen.bytes()
    }
}

/// Float sums of groups with their lost low parts (Neumaier), so that order hardly matters.
#[derive(Default)]
pub(crate) struct FloatSums {
    sums: Vec<f64>,
    lost: Vec<f64>,
}

impl FloatSums {
    pub(crate) fn grow(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), 0.0);
        self.lost.resize(groups.max(self.lost.len()), 0.0);
    }

    #[inline]
    pub(crate) fn add(&mut self, group: u32, value: f64) {
        let sum = &mut self.sums[group as usize];
        let total = *sum + value;
        self.lost[group as usize] += if sum.abs() >= value.abs() { (*sum - total) + value } else { (value - total) + *sum };
        *sum = total;
    }

    /// The compensated sum; infinities and NaN as plain addition gives them.
    pub(crate) fn value(&self, group: u32) -> f64 {
        let sum = self.sums[group as usize];
        if sum.is_finite() { sum + self.lost[group as usize] } else { sum }
    }

    pub(crate) fn image(&self, groups: &[u32]) -> [ArrayRef; 2] {
        let column =
            |values: &[f64]| Arc::new(Float64Array::from_iter_values(groups.iter().map(|group| values[*group as usize]))) as ArrayRef;
        [column(&self.sums), column(&self.lost)]
    }

    pub(crate) fn restore(&mut self, groups: &[u32], sums: &ArrayRef, lost: &ArrayRef) {
        let (sums, lost) = (sums.as_primitive::<Float64Type>(), lost.as_primitive::<Float64Type>());
        for (row, group) in groups.iter().enumerate() {
            self.sums[*group as usize] = sums.value(row);
            self.lost[*group as usize] = lost.value(row);
        }
    }

    /// Adds what image columns hold.
    pub(crate) fn merge(&mut self, groups: &[u32], sums: &ArrayRef, lost: &ArrayRef) {
        let (sums, lost) = (sums.as_primitive::<Float64Type>().values(), lost.as_primitive::<Float64Type>().values());
        for (row, group) in groups.iter().enumerate() {
            self.add(*group, sums[row]);
            self.lost[*group as usize] += lost[row];
        }
    }

    /// Sums of one value each: as if added to 0, which makes -0 a 0.
    pub(crate) fn lift_sum(values: &Float64Array) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(numbers_or_zero(values).into_iter().map(|value| 0.0 + value)))
    }

    /// What such a sum has lost.
    pub(crate) fn lift_lost(rows: usize) -> ArrayRef {
        Arc::new(Float64Array::from_value(0.0, rows))
    }

    pub(crate) fn clear(&mut self) {
        self.sums.clear();
        self.lost.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.sums.capacity() + self.lost.capacity()) * 8
    }
}

struct FloatSum {
    sums: FloatSums,
    seen: Bits,
    output: DataType,
}

impl Accumulator for FloatSum {
    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: Option<&ArrayRef>) -> Result<(), Error> {
        let values = widened(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| {
            self.sums.add(group, numbers[row]);
            self.seen.set(group);
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| self.seen.get(*group).then(|| self.sums.value(*group));
        let sums: ArrayRef = Arc::new(groups.iter().map(one).collect::<Float64Array>());
        widened(Some(&sums), &self.output)
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("sum", DataType::Float64), ("lost", DataType::Float64), ("seen", DataType::Boolean)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let [sums, lost] = self.sums.image(groups);
        Ok(vec![sums, lost, seen_image(&self.seen, groups)])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.restore(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_restore(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.sums.merge(groups, image_column(columns, 0)?, image_column(columns, 1)?);
        seen_merge(&mut self.seen, groups, image_column(columns, 2)?);
        Ok(())
    }

    fn lift(&self, rows: usize, values: Option<&ArrayRef>) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        Ok(vec![FloatSums::lift_sum(values), FloatSums::lift_lost(rows), valid_column(values)])
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.seen.bytes()
    }
}
