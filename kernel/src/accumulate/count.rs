//! `count(*)` and `count(x)`.

use crate::accumulate::{Accumulator, for_each_valid, image_column};
use crate::error::Error;
use crate::state::pages::Pages;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use std::sync::Arc;

/// Counts rows, or non-null values where there is an argument.
#[derive(Default)]
pub struct Count {
    counts: Pages<i64>,
}

impl Count {
    /// The counts as they are now.
    pub(crate) fn shared(&mut self) -> Count {
        Count { counts: self.counts.snapshot() }
    }
}

impl Accumulator for Count {
    fn grow(&mut self, groups: usize) {
        self.counts.grow(groups, 0);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        match values.first() {
            None => groups.iter().for_each(|group| *self.counts.at(*group) += 1),
            Some(values) => for_each_valid(groups, values.as_ref(), |group, _| *self.counts.at(group) += 1),
        }
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Int64Array::from_iter_values(groups.iter().map(|group| self.counts.get(*group)))))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("count", DataType::Int64)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let counts = image_column(columns, 0)?.as_primitive::<Int64Type>();
        for (group, count) in groups.iter().zip(counts.values()) {
            *self.counts.at(*group) = *count;
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let counts = image_column(columns, 0)?.as_primitive::<Int64Type>();
        for (group, count) in groups.iter().zip(counts.values()) {
            *self.counts.at(*group) += count;
        }
        Ok(())
    }

    fn lift(&self, rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let ones = match values.first().and_then(|values| values.logical_nulls()) {
            None => Int64Array::from_value(1, rows),
            Some(nulls) => Int64Array::from_iter_values(nulls.iter().map(i64::from)),
        };
        Ok(vec![Arc::new(ones)])
    }

    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        Some(Box::new(self.shared()))
    }

    fn clear(&mut self) {
        self.counts.clear();
    }

    fn bytes(&self) -> usize {
        self.counts.bytes()
    }
}
