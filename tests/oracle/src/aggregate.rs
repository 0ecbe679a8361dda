//! Aggregates over the rows of one group.

use crate::query::Event;
use crate::value::{Condition, Value};
use std::collections::BTreeSet;

/// Which aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `count`
    Count,
    /// `sum`
    Sum,
    /// `avg`
    Avg,
    /// `min`
    Min,
    /// `max`
    Max,
}

/// One aggregate: `function([DISTINCT] column) FILTER (WHERE filter)`.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which.
    pub function: Function,
    /// Of what; `None` is `count(*)`.
    pub column: Option<usize>,
    /// Equal values count once.
    pub distinct: bool,
    /// Rows for which it is not true do not count.
    pub filter: Option<Condition>,
}

impl Call {
    /// Its result over these rows.
    pub fn over(&self, rows: &[&Event]) -> Value {
        let passing: Vec<&&Event> = rows.iter().filter(|row| self.filter.as_ref().is_none_or(|filter| filter.holds(&row.values))).collect();
        let Some(column) = self.column else { return Value::Int(passing.len() as i64) };
        let mut values: Vec<&Value> = passing.iter().map(|row| &row.values[column]).filter(|value| !value.is_null()).collect();
        if self.distinct {
            let once: BTreeSet<&Value> = values.into_iter().collect();
            values = once.into_iter().collect();
        }
        match self.function {
            Function::Count => Value::Int(values.len() as i64),
            Function::Min => values.iter().min().map_or(Value::Null, |value| (**value).clone()),
            Function::Max => values.iter().max().map_or(Value::Null, |value| (**value).clone()),
            Function::Sum => sum(&values),
            Function::Avg => avg(&values),
        }
    }
}

/// Exactly where the values are exact.
fn sum(values: &[&Value]) -> Value {
    let Some(first) = values.first() else { return Value::Null };
    match first {
        Value::Int(_) => Value::Int(whole(values) as i64),
        Value::Decimal(_, scale) => Value::Decimal(whole(values), *scale),
        Value::Real(_) => Value::Real(real(values) as f32),
        _ => Value::Double(real(values)),
    }
}

/// Integers and floats as a double; a decimal with four more places, half away from zero.
fn avg(values: &[&Value]) -> Value {
    let Some(first) = values.first() else { return Value::Null };
    match first {
        Value::Int(_) => Value::Double(whole(values) as f64 / values.len() as f64),
        Value::Decimal(_, scale) => {
            let (total, count) = (whole(values) * 10_000, values.len() as i128);
            let half = if total < 0 { -count } else { count };
            Value::Decimal((2 * total + half) / (2 * count), scale + 4)
        }
        _ => Value::Double(real(values) / values.len() as f64),
    }
}

fn whole(values: &[&Value]) -> i128 {
    let digits = |value: &&Value| match value {
        Value::Int(n) => i128::from(*n),
        Value::Decimal(n, _) => *n,
        _ => 0,
    };
    values.iter().map(digits).sum()
}

/// Smallest first, so that little is lost.
fn real(values: &[&Value]) -> f64 {
    let float = |value: &&Value| match value {
        Value::Real(x) => f64::from(*x),
        Value::Double(x) => *x,
        _ => 0.0,
    };
    let mut floats: Vec<f64> = values.iter().map(float).collect();
    floats.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    floats.into_iter().sum()
}
