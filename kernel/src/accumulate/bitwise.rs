//! `bit_and(x)`, `bit_or(x)` and `bit_xor(x)` of integers.

use crate::accumulate::{Accumulator, for_each_valid, image_column, widened};
use crate::error::Error;
use crate::state::bits::Bits;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Int16Type, Int32Type, Int64Type};
use std::ops::{BitAnd, BitOr, BitXor};
use std::sync::Arc;
use weir_planner::schema::ColumnType;

/// How two integers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Bits that both have.
    And,
    /// Bits that one has.
    Or,
    /// Bits that one has and the other has not.
    Xor,
}

/// An accumulator for integers of type `ty`; `None` for other types.
pub fn new(ty: ColumnType, law: Law) -> Option<Box<dyn Accumulator>> {
    match ty {
        ColumnType::SmallInt => Some(Box::new(Bitwise::<Int16Type> { values: Vec::new(), seen: Bits::default(), law })),
        ColumnType::Integer => Some(Box::new(Bitwise::<Int32Type> { values: Vec::new(), seen: Bits::default(), law })),
        ColumnType::BigInt => Some(Box::new(Bitwise::<Int64Type> { values: Vec::new(), seen: Bits::default(), law })),
        ColumnType::Boolean | ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. } => None,
        ColumnType::Text | ColumnType::Bytea | ColumnType::Date | ColumnType::Timestamp { .. } | ColumnType::Interval => None,
    }
}

/// Integers of groups; what `seen` leaves out has no value yet.
struct Bitwise<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    seen: Bits,
    law: Law,
}

impl<T: ArrowPrimitiveType> Accumulator for Bitwise<T>
where
    T::Native: BitAnd<Output = T::Native> + BitOr<Output = T::Native> + BitXor<Output = T::Native>,
{
    fn grow(&mut self, groups: usize) {
        self.values.resize(groups.max(self.values.len()), T::Native::default());
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &T::DATA_TYPE)?;
        let values = values.as_primitive::<T>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| {
            let held = &mut self.values[group as usize];
            if !self.seen.get(group) {
                self.seen.set(group);
                *held = numbers[row];
                return;
            }
            *held = match self.law {
                Law::And => *held & numbers[row],
                Law::Or => *held | numbers[row],
                Law::Xor => *held ^ numbers[row],
            };
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let values = groups.iter().map(|group| self.values[*group as usize]).collect::<Vec<_>>();
        let nulls = groups.iter().map(|group| self.seen.get(*group)).collect::<NullBuffer>();
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), Some(nulls).filter(|nulls| nulls.null_count() > 0))))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("value", T::DATA_TYPE)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let column = image_column(columns, 0)?.as_primitive::<T>();
        for (row, group) in groups.iter().enumerate() {
            self.values[*group as usize] = column.value(row);
            self.seen.put(*group, column.is_valid(row));
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.update(groups, columns)
    }

    fn lift(&self, _rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![widened(values, &T::DATA_TYPE)?])
    }

    fn clear(&mut self) {
        self.values.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.bytes()
    }
}
