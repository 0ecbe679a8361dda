//! Exact sums that may run out of their integer on the way: the sum wraps and rare carries are
//! kept aside, so that only the final value decides whether it fits. A plain checked addition
//! would fail or not depending on the order of the rows, which EV-3 forbids.

use crate::accumulate::numbers_or_zero;
use crate::accumulate::totals::Totals;
use crate::state::pages::Pages;
use arrow::array::{ArrayRef, AsArray, Int64Array, PrimitiveArray};
use arrow::datatypes::{ArrowNativeType, ArrowPrimitiveType, DataType, Decimal128Type, Int64Type, i256};
use hashbrown::HashMap;
use std::sync::Arc;

/// An integer that sums wrap in.
pub trait Wide: ArrowNativeType {
    /// Its kind of Arrow column.
    type Number: ArrowPrimitiveType<Native = Self>;
    /// Type of the image column.
    const TYPE: DataType;
    /// The wrapped sum, and whether it left the range upward (1) or downward (-1).
    fn add(self, other: Self) -> (Self, i64);
    /// `self + carry * 2^bits`, exactly.
    fn with_carry(self, carry: i64) -> i256;
}

impl Wide for i64 {
    type Number = Int64Type;
    const TYPE: DataType = DataType::Int64;
    #[inline]
    fn add(self, other: Self) -> (Self, i64) {
        let (sum, wrapped) = self.overflowing_add(other);
        (sum, carry(wrapped, other < 0))
    }
    fn with_carry(self, carry: i64) -> i256 {
        i256::from_i128(i128::from(self) + (i128::from(carry) << 64))
    }
}

impl Wide for i128 {
    type Number = Decimal128Type;
    const TYPE: DataType = DataType::Decimal128(38, 0);
    #[inline]
    fn add(self, other: Self) -> (Self, i64) {
        let (sum, wrapped) = self.overflowing_add(other);
        (sum, carry(wrapped, other < 0))
    }
    fn with_carry(self, carry: i64) -> i256 {
        i256::from_i128(self).wrapping_add(i256::from_parts(0, i128::from(carry)))
    }
}

/// The carry of an addition: a sum wraps in the direction of what is added.
#[inline]
fn carry(wrapped: bool, downward: bool) -> i64 {
    match (wrapped, downward) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => -1,
    }
}

/// Numbers as an image column. Their bits travel as they are: those of decimals need not be within 38 digits.
fn column<T: Wide>(numbers: Vec<T>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T::Number>::new(numbers.into(), None).with_data_type(T::TYPE))
}

/// Exact sums of groups.
pub struct WideSums<T> {
    sums: Pages<T>,
    carries: HashMap<u32, i64, foldhash::fast::FixedState>,
}

impl<T> Default for WideSums<T> {
    fn default() -> Self {
        WideSums { sums: Pages::default(), carries: HashMap::default() }
    }
}

impl<T: Wide> WideSums<T> {
    /// The exact sum of `group`.
    pub fn exact(&self, group: u32) -> i256 {
        self.sums.get(group).with_carry(self.carry(group))
    }

    /// The sum of `group` where it fits its integer.
    pub fn fitting(&self, group: u32) -> Option<T> {
        (self.carry(group) == 0).then(|| self.sums.get(group))
    }

    fn carry(&self, group: u32) -> i64 {
        if self.carries.is_empty() { 0 } else { self.carries.get(&group).copied().unwrap_or(0) }
    }
}

impl<T: Wide> Totals for WideSums<T> {
    type Number = T::Number;

    fn image_fields() -> [(&'static str, DataType); 2] {
        [("sum", T::TYPE), ("carry", DataType::Int64)]
    }

    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups, T::default());
    }

    #[inline]
    fn add(&mut self, group: u32, value: T) {
        let sum = self.sums.at(group);
        let (wrapped, carry) = sum.add(value);
        *sum = wrapped;
        if carry != 0 {
            *self.carries.entry(group).or_insert(0) += carry;
        }
    }

    fn image(&self, groups: &[u32]) -> [ArrayRef; 2] {
        let sums = groups.iter().map(|group| self.sums.get(*group)).collect();
        let carries = Int64Array::from_iter_values(groups.iter().map(|group| self.carry(*group)));
        [column::<T>(sums), Arc::new(carries)]
    }

    fn restore(&mut self, groups: &[u32], sums: &ArrayRef, carries: &ArrayRef) {
        let (sums, carries) = (sums.as_primitive::<T::Number>(), carries.as_primitive::<Int64Type>());
        for ((group, sum), carry) in groups.iter().zip(sums.values()).zip(carries.values()) {
            *self.sums.at(*group) = *sum;
            if *carry == 0 {
                self.carries.remove(group);
            } else {
                self.carries.insert(*group, *carry);
            }
        }
    }

    fn merge(&mut self, groups: &[u32], sums: &ArrayRef, carries: &ArrayRef) {
        let (sums, carries) = (sums.as_primitive::<T::Number>().values(), carries.as_primitive::<Int64Type>().values());
        // Nearly always there is no carry at all, and looking at them all at once is cheap.
        let some = carries.iter().fold(0, |any, carry| any | carry) != 0;
        for (row, (group, sum)) in groups.iter().zip(sums).enumerate() {
            self.add(*group, *sum);
            if some && carries[row] != 0 {
                *self.carries.entry(*group).or_insert(0) += carries[row];
            }
        }
    }

    fn lift(values: &PrimitiveArray<T::Number>) -> [ArrayRef; 2] {
        [column::<T>(numbers_or_zero(values)), Arc::new(Int64Array::from_value(0, values.len()))]
    }

    fn snapshot(&mut self) -> Self {
        WideSums { sums: self.sums.snapshot(), carries: self.carries.clone() }
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.carries.clear();
    }

    fn bytes(&self) -> usize {
        self.sums.bytes() + self.carries.allocation_size()
    }
}
