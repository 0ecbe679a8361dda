//! Totals of floats with their lost low parts (Neumaier), so that order hardly matters.

use crate::accumulate::numbers_or_zero;
use crate::accumulate::totals::Totals;
use crate::state::pages::Pages;
use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use std::sync::Arc;

/// Compensated totals of groups.
#[derive(Default)]
pub struct FloatSums {
    sums: Pages<f64>,
    lost: Pages<f64>,
}

impl FloatSums {
    /// The compensated sum; infinities and NaN as plain addition gives them.
    pub fn value(&self, group: u32) -> f64 {
        let sum = self.sums.get(group);
        if sum.is_finite() { sum + self.lost.get(group) } else { sum }
    }
}

impl Totals for FloatSums {
    type Number = Float64Type;

    fn image_fields() -> [(&'static str, DataType); 2] {
        [("sum", DataType::Float64), ("lost", DataType::Float64)]
    }

    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups, 0.0);
        self.lost.grow(groups, 0.0);
    }

    #[inline]
    fn add(&mut self, group: u32, value: f64) {
        let sum = self.sums.at(group);
        let total = *sum + value;
        *self.lost.at(group) += if sum.abs() >= value.abs() { (*sum - total) + value } else { (value - total) + *sum };
        *sum = total;
    }

    fn image(&self, groups: &[u32]) -> [ArrayRef; 2] {
        let column =
            |values: &Pages<f64>| Arc::new(Float64Array::from_iter_values(groups.iter().map(|group| values.get(*group)))) as ArrayRef;
        [column(&self.sums), column(&self.lost)]
    }

    fn restore(&mut self, groups: &[u32], sums: &ArrayRef, lost: &ArrayRef) {
        let (sums, lost) = (sums.as_primitive::<Float64Type>(), lost.as_primitive::<Float64Type>());
        for (row, group) in groups.iter().enumerate() {
            *self.sums.at(*group) = sums.value(row);
            *self.lost.at(*group) = lost.value(row);
        }
    }

    fn merge(&mut self, groups: &[u32], sums: &ArrayRef, lost: &ArrayRef) {
        let (sums, lost) = (sums.as_primitive::<Float64Type>().values(), lost.as_primitive::<Float64Type>().values());
        for (row, group) in groups.iter().enumerate() {
            self.add(*group, sums[row]);
            *self.lost.at(*group) += lost[row];
        }
    }

    fn lift(values: &Float64Array) -> [ArrayRef; 2] {
        // As if added to 0, which makes -0 a 0.
        let sums = Float64Array::from_iter_values(numbers_or_zero(values).into_iter().map(|value| 0.0 + value));
        [Arc::new(sums), Arc::new(Float64Array::from_value(0.0, values.len()))]
    }

    fn snapshot(&mut self) -> Self {
        FloatSums { sums: self.sums.snapshot(), lost: self.lost.snapshot() }
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.lost.clear();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.lost.bytes()
    }
}
