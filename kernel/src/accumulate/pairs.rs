//! Correlation, covariance and the line of least squares of pairs `(y, x)`, in DOUBLE, kept as
//! [`moments`](crate::accumulate::moments) keeps one number: means, and distances from them.

use crate::accumulate::moments::is_number;
use crate::accumulate::{Accumulator, image_column, widened};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction};

/// An accumulator for pairs of numbers; `None` for other arguments.
pub fn new(aggregate: &Aggregate) -> Option<Box<dyn Accumulator>> {
    let numbers = aggregate.arguments.len() == 2 && aggregate.arguments.iter().all(|argument| is_number(argument.ty));
    numbers.then(|| Box::new(Pairs { pairs: Vec::new(), function: aggregate.function }) as Box<dyn Accumulator>)
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    count: i64,
    mean_y: f64,
    mean_x: f64,
    squares_y: f64,
    squares_x: f64,
    products: f64,
}

impl Pair {
    fn add(&mut self, y: f64, x: f64) {
        self.count += 1;
        let (far_y, far_x) = (y - self.mean_y, x - self.mean_x);
        self.mean_y += far_y / self.count as f64;
        self.mean_x += far_x / self.count as f64;
        self.squares_y += far_y * (y - self.mean_y);
        self.squares_x += far_x * (x - self.mean_x);
        self.products += far_x * (y - self.mean_y);
    }

    fn merge(&mut self, other: Pair) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = other;
            }
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let share = theirs / (ours + theirs);
        let (far_y, far_x) = (other.mean_y - self.mean_y, other.mean_x - self.mean_x);
        self.count += other.count;
        self.mean_y += far_y * share;
        self.mean_x += far_x * share;
        self.squares_y += other.squares_y + far_y * far_y * ours * share;
        self.squares_x += other.squares_x + far_x * far_x * ours * share;
        self.products += other.products + far_y * far_x * ours * share;
    }

    /// The result, as Postgres defines it for each function.
    fn result(&self, function: AggregateFunction) -> Option<f64> {
        use AggregateFunction as F;
        let count = self.count as f64;
        let some = self.count > 0;
        match function {
            F::Corr => (some && self.squares_y != 0.0 && self.squares_x != 0.0)
                .then(|| (self.products / (self.squares_y.sqrt() * self.squares_x.sqrt())).clamp(-1.0, 1.0)),
            F::CovarSamp => (self.count > 1).then(|| self.products / (count - 1.0)),
            F::CovarPop => some.then(|| self.products / count),
            F::RegrSlope => (some && self.squares_x != 0.0).then(|| self.products / self.squares_x),
            F::RegrIntercept => (some && self.squares_x != 0.0).then(|| self.mean_y - self.mean_x * (self.products / self.squares_x)),
            F::RegrR2 => match (some && self.squares_x != 0.0, self.squares_y == 0.0) {
                (false, _) => None,
                (true, true) => Some(1.0),
                (true, false) => Some(self.products / self.squares_x * (self.products / self.squares_y)),
            },
            F::RegrAvgx => some.then_some(self.mean_x),
            F::RegrAvgy => some.then_some(self.mean_y),
            F::RegrSxx => some.then_some(self.squares_x),
            F::RegrSyy => some.then_some(self.squares_y),
            F::RegrSxy => some.then_some(self.products),
            // Counts, and what is not of pairs.
            F::RegrCount | F::Count | F::Sum | F::Avg | F::Min | F::Max | F::BoolAnd | F::BoolOr => None,
            F::BitAnd | F::BitOr | F::BitXor | F::VarSamp | F::VarPop | F::StddevSamp | F::StddevPop => None,
            F::FirstValue | F::LastValue | F::StringAgg | F::Median | F::PercentileCont => None,
            F::ApproxDistinct | F::ApproxMedian | F::ApproxPercentileCont => None,
        }
    }
}

struct Pairs {
    pairs: Vec<Pair>,
    function: AggregateFunction,
}

/// Both columns as DOUBLE, and which rows have both.
fn both(values: &[ArrayRef]) -> Result<(Float64Array, Float64Array, Option<NullBuffer>), Error> {
    let y = widened(values, &DataType::Float64)?;
    let x =
        widened(values.get(1..).ok_or_else(|| Error::new(Class::Bug, "an aggregate of pairs lacks its arguments"))?, &DataType::Float64)?;
    let nulls = NullBuffer::union(y.nulls(), x.nulls());
    Ok((y.as_primitive::<Float64Type>().clone(), x.as_primitive::<Float64Type>().clone(), nulls))
}

impl Accumulator for Pairs {
    fn grow(&mut self, groups: usize) {
        self.pairs.resize(groups.max(self.pairs.len()), Pair::default());
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let (y, x, nulls) = both(values)?;
        for (row, group) in groups.iter().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                self.pairs[*group as usize].add(y.value(row), x.value(row));
            }
        }
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let listed = groups.iter().map(|group| &self.pairs[*group as usize]);
        Ok(match self.function {
            AggregateFunction::RegrCount => Arc::new(Int64Array::from_iter_values(listed.map(|pair| pair.count))),
            function => Arc::new(listed.map(|pair| pair.result(function)).collect::<Float64Array>()),
        })
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        let doubles = ["mean_y", "mean_x", "squares_y", "squares_x", "products"].map(|name| (name, DataType::Float64));
        [("count", DataType::Int64)].into_iter().chain(doubles).collect()
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let column = |part: fn(&Pair) -> f64| {
            Arc::new(Float64Array::from_iter_values(groups.iter().map(|group| part(&self.pairs[*group as usize])))) as ArrayRef
        };
        Ok(vec![
            Arc::new(Int64Array::from_iter_values(groups.iter().map(|group| self.pairs[*group as usize].count))),
            column(|pair| pair.mean_y),
            column(|pair| pair.mean_x),
            column(|pair| pair.squares_y),
            column(|pair| pair.squares_x),
            column(|pair| pair.products),
        ])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let pair = pairs(columns)?;
        groups.iter().enumerate().for_each(|(row, group)| self.pairs[*group as usize] = pair(row));
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let pair = pairs(columns)?;
        groups.iter().enumerate().for_each(|(row, group)| self.pairs[*group as usize].merge(pair(row)));
        Ok(())
    }

    fn lift(&self, rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let (y, x, nulls) = both(values)?;
        let mut single = Pairs { pairs: vec![Pair::default(); rows], function: self.function };
        for (row, pair) in single.pairs.iter_mut().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                pair.add(y.value(row), x.value(row));
            }
        }
        single.image(&(0..rows as u32).collect::<Vec<_>>())
    }

    fn clear(&mut self) {
        self.pairs.clear();
    }

    fn bytes(&self) -> usize {
        self.pairs.capacity() * size_of::<Pair>()
    }
}

/// What image columns hold, by row.
fn pairs(columns: &[ArrayRef]) -> Result<impl Fn(usize) -> Pair, Error> {
    let counts = image_column(columns, 0)?.as_primitive::<Int64Type>().values();
    let double = |index: usize| Ok::<_, Error>(image_column(columns, index)?.as_primitive::<Float64Type>().values());
    let (mean_y, mean_x) = (double(1)?, double(2)?);
    let (squares_y, squares_x, products) = (double(3)?, double(4)?, double(5)?);
    Ok(move |row: usize| Pair {
        count: counts[row],
        mean_y: mean_y[row],
        mean_x: mean_x[row],
        squares_y: squares_y[row],
        squares_x: squares_x[row],
        products: products[row],
    })
}
