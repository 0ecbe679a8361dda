//! Exact sums that may run out of their integer on the way: the sum wraps and rare carries are
//! kept aside, so that only the final value decides whether it fits. A plain checked addition
//! would fail or not depending on the order of the rows, which EV-3 forbids.

use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, i256};
use hashbrown::HashMap;
use std::sync::Arc;

/// An integer that sums wrap in.
pub trait Wide: Copy + Send + Default + 'static {
    /// The wrapped sum, and whether it left the range upward (1) or downward (-1).
    fn add(self, other: Self) -> (Self, i64);
    /// `self + carry * 2^bits`, exactly.
    fn with_carry(self, carry: i64) -> i256;
    /// As an image column.
    fn column(values: Vec<Self>) -> ArrayRef;
    /// Back from an image column.
    fn slice(column: &ArrayRef) -> &[Self];
    /// Type of the image column.
    fn ty() -> DataType;
}

impl Wide for i64 {
    #[inline]
    fn add(self, other: Self) -> (Self, i64) {
        let (sum, wrapped) = self.overflowing_add(other);
        (
            sum,
            if !wrapped {
                0
            } else if other < 0 {
                -1
            } else {
                1
            },
        )
    }
    fn with_carry(self, carry: i64) -> i256 {
        i256::from_i128(i128::from(self) + (i128::from(carry) << 64))
    }
    fn column(values: Vec<Self>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }
    fn slice(column: &ArrayRef) -> &[Self] {
        column.as_primitive::<Int64Type>().values()
    }
    fn ty() -> DataType {
        DataType::Int64
    }
}

impl Wide for i128 {
    #[inline]
    fn add(self, other: Self) -> (Self, i64) {
        let (sum, wrapped) = self.overflowing_add(other);
        (
            sum,
            if !wrapped {
                0
            } else if other < 0 {
                -1
            } else {
                1
            },
        )
    }
    fn with_carry(self, carry: i64) -> i256 {
        i256::from_i128(self).wrapping_add(i256::from_parts(0, i128::from(carry)))
    }
    fn column(values: Vec<Self>) -> ArrayRef {
        // The bits travel as they are; they need not be within 38 digits.
        Arc::new(Decimal128Array::from(values).with_data_type(Self::ty()))
    }
    fn slice(column: &ArrayRef) -> &[Self] {
        column.as_primitive::<Decimal128Type>().values()
    }
    fn ty() -> DataType {
        DataType::Decimal128(38, 0)
    }
}

/// Sums of groups.
#[derive(Default)]
pub struct WideSums<T> {
    sums: Vec<T>,
    carries: HashMap<u32, i64, foldhash::fast::FixedState>,
}

impl<T: Wide> WideSums<T> {
    /// Makes room for `groups` groups.
    pub fn grow(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), T::default());
    }

    /// Adds `value` to `group`.
    #[inline]
    pub fn add(&mut self, group: u32, value: T) {
        let sum = &mut self.sums[group as usize];
        let (wrapped, carry) = sum.add(value);
        *sum = wrapped;
        if carry != 0 {
            *self.carries.entry(group).or_insert(0) += carry;
        }
    }

    /// The exact sum of `group`.
    pub fn exact(&self, group: u32) -> i256 {
        self.sums[group as usize].with_carry(self.carry(group))
    }

    /// The sum of `group` where it fits its integer.
    pub fn fitting(&self, group: u32) -> Option<T> {
        (self.carry(group) == 0).then(|| self.sums[group as usize])
    }

    /// Image columns: sum and carry.
    pub fn image(&self, groups: &[u32]) -> [ArrayRef; 2] {
        let sums = groups.iter().map(|group| self.sums[*group as usize]).collect();
        let carries = Int64Array::from_iter_values(groups.iter().map(|group| self.carry(*group)));
        [T::column(sums), Arc::new(carries)]
    }

    /// Back from image columns.
    pub fn restore(&mut self, groups: &[u32], sums: &ArrayRef, carries: &ArrayRef) -> Result<(), Error> {
        let carries = carries.as_primitive::<Int64Type>();
        for ((group, sum), carry) in groups.iter().zip(T::slice(sums)).zip(carries.values()) {
            self.sums[*group as usize] = *sum;
            if *carry == 0 {
                self.carries.remove(group);
            } else {
                self.carries.insert(*group, *carry);
            }
        }
        Ok(())
    }

    /// Adds what image columns hold.
    pub fn merge(&mut self, groups: &[u32], sums: &ArrayRef, carries: &ArrayRef) {
        let carries = carries.as_primitive::<Int64Type>().values();
        // Nearly always there is no carry at all, and looking at them all at once is cheap.
        let some = carries.iter().fold(0, |any, carry| any | carry) != 0;
        for (row, (group, sum)) in groups.iter().zip(T::slice(sums)).enumerate() {
            self.add(*group, *sum);
            if some && carries[row] != 0 {
                *self.carries.entry(*group).or_insert(0) += carries[row];
            }
        }
    }

    /// Forgets every group and keeps the room.
    pub fn clear(&mut self) {
        self.sums.clear();
        self.carries.clear();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<T>() + self.carries.allocation_size()
    }

    fn carry(&self, group: u32) -> i64 {
        if self.carries.is_empty() { 0 } else { self.carries.get(&group).copied().unwrap_or(0) }
    }
}
