//! Variance and standard deviation of numbers, in DOUBLE.
//!
//! A sum of squares less the square of a sum loses all digits where the values are large and near
//! to each other. So each group keeps the count, the mean, and the sum of the squared distances from
//! it, which a value moves by Welford's step and another group's by that of Chan, Golub and LeVeque:
//! both add only what is not negative.

use crate::accumulate::{Accumulator, for_each_valid, image_column, numbers_or_zero, widened};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use std::sync::Arc;
use weir_planner::schema::ColumnType;

/// What is made of a group's values.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The values are a sample: divides by one less than their number.
    sample: bool,
    /// Gives the square root.
    root: bool,
}

impl Measure {
    /// Of a sample.
    pub fn of_sample(root: bool) -> Self {
        Measure { sample: true, root }
    }

    /// Of all values that there are.
    pub fn of_population(root: bool) -> Self {
        Measure { sample: false, root }
    }
}

/// An accumulator for numbers of type `ty`; `None` for other types.
pub fn new(ty: ColumnType, result: Measure) -> Option<Box<dyn Accumulator>> {
    is_number(ty).then(|| Box::new(Moments { moments: Vec::new(), result }) as Box<dyn Accumulator>)
}

/// Whether values of the type are numbers.
pub(crate) fn is_number(ty: ColumnType) -> bool {
    match ty {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => true,
        ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. } => true,
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => false,
        ColumnType::Timestamp { .. } | ColumnType::Interval => false,
    }
}

/// Count, mean, and squared distances from it.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    count: i64,
    mean: f64,
    squares: f64,
}

impl Moment {
    #[inline]
    fn add(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    fn merge(&mut self, other: Moment) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = other;
            }
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let share = theirs / (ours + theirs);
        let distance = other.mean - self.mean;
        self.count += other.count;
        self.mean += distance * share;
        self.squares += other.squares + distance * distance * ours * share;
    }
}

struct Moments {
    moments: Vec<Moment>,
    result: Measure,
}

impl Accumulator for Moments {
    fn grow(&mut self, groups: usize) {
        self.moments.resize(groups.max(self.moments.len()), Moment::default());
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| self.moments[group as usize].add(numbers[row]));
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| {
            let Moment { count, squares, .. } = self.moments[*group as usize];
            let divisor = count - i64::from(self.result.sample);
            let variance = (divisor > 0).then(|| squares / divisor as f64);
            variance.map(|variance| if self.result.root { variance.sqrt() } else { variance })
        };
        Ok(Arc::new(groups.iter().map(one).collect::<Float64Array>()))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("count", DataType::Int64), ("mean", DataType::Float64), ("squares", DataType::Float64)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let listed = || groups.iter().map(|group| self.moments[*group as usize]);
        Ok(vec![
            Arc::new(Int64Array::from_iter_values(listed().map(|moment| moment.count))),
            Arc::new(Float64Array::from_iter_values(listed().map(|moment| moment.mean))),
            Arc::new(Float64Array::from_iter_values(listed().map(|moment| moment.squares))),
        ])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        groups.iter().zip(moments(columns)?).for_each(|(group, moment)| self.moments[*group as usize] = moment);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        groups.iter().zip(moments(columns)?).for_each(|(group, moment)| self.moments[*group as usize].merge(moment));
        Ok(())
    }

    fn lift(&self, rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let counts = Int64Array::from_iter_values((0..rows).map(|row| i64::from(values.is_valid(row))));
        let means = numbers_or_zero(values);
        // As a step from nothing makes it: NaN where the value is no number.
        let squares = Float64Array::from_iter_values(means.iter().map(|mean| if mean.is_finite() { 0.0 } else { f64::NAN }));
        Ok(vec![Arc::new(counts), Arc::new(Float64Array::from(means)), Arc::new(squares)])
    }

    fn clear(&mut self) {
        self.moments.clear();
    }

    fn bytes(&self) -> usize {
        self.moments.capacity() * size_of::<Moment>()
    }
}

/// What image columns hold.
fn moments(columns: &[ArrayRef]) -> Result<impl Iterator<Item = Moment>, Error> {
    let counts = image_column(columns, 0)?.as_primitive::<Int64Type>().values();
    let means = image_column(columns, 1)?.as_primitive::<Float64Type>().values();
    let squares = image_column(columns, 2)?.as_primitive::<Float64Type>().values();
    Ok(counts.iter().zip(means).zip(squares).map(|((count, mean), squares)| Moment { count: *count, mean: *mean, squares: *squares }))
}
