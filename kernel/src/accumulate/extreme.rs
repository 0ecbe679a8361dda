//! `min(x)` and `max(x)` of any column type; NaN is the greatest number, as in Postgres.

use crate::accumulate::sum::{seen_image, seen_restore};
use crate::accumulate::{Accumulator, cast_to, for_each_valid, image_column, valid_column, widened};
use crate::envelope::broken;
use crate::error::Error;
use crate::state::bits::Bits;
use crate::state::pages::Pages;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use std::marker::PhantomData;
use std::sync::Arc;
use weir_planner::schema::ColumnType;

/// An accumulator for the greatest (or least) value of type `ty`; `None` when it has no order.
pub fn new(ty: ColumnType, greatest: bool) -> Option<Box<dyn Accumulator>> {
    fn number<T: ArrowPrimitiveType>(ty: ColumnType, storage: DataType, greatest: bool) -> Option<Box<dyn Accumulator>>
    where
        T::Native: Order,
    {
        let seen = Bits::default();
        Some(Box::new(NumberExtreme::<T> { values: Pages::default(), seen, storage, ty: ty.to_arrow(), greatest, _type: PhantomData }))
    }
    match ty {
        ColumnType::SmallInt => number::<Int16Type>(ty, DataType::Int16, greatest),
        ColumnType::Integer => number::<Int32Type>(ty, DataType::Int32, greatest),
        ColumnType::BigInt => number::<Int64Type>(ty, DataType::Int64, greatest),
        ColumnType::Real => number::<Float32Type>(ty, DataType::Float32, greatest),
        ColumnType::Double => number::<Float64Type>(ty, DataType::Float64, greatest),
        ColumnType::Decimal { .. } => number::<Decimal128Type>(ty, ty.to_arrow(), greatest),
        ColumnType::Date => number::<Date32Type>(ty, DataType::Date32, greatest),
        ColumnType::Timestamp { .. } => number::<Int64Type>(ty, DataType::Int64, greatest),
        ColumnType::Text | ColumnType::Bytea => Some(Box::new(BytesExtreme { values: Vec::new(), held: 0, ty: ty.to_arrow(), greatest })),
        ColumnType::Boolean => Some(Box::new(BooleanExtreme { values: Bits::default(), seen: Bits::default(), greatest })),
        ColumnType::Interval => None,
    }
}

/// A total order in which equal values are the same bits.
pub trait Order: Copy + Send + Default + 'static {
    /// The one representative of equal values: -0 becomes 0, every NaN one NaN.
    fn canonical(self) -> Self;
    /// Whether `self` comes after `other`.
    fn after(self, other: Self) -> bool;
}

macro_rules! integer_order {
    ($($int:ty),*) => {$(
        impl Order for $int {
            #[inline]
            fn canonical(self) -> Self {
                self
            }
            #[inline]
            fn after(self, other: Self) -> bool {
                self > other
            }
        }
    )*};
}

macro_rules! float_order {
    ($($float:ty),*) => {$(
        impl Order for $float {
            #[inline]
            fn canonical(self) -> Self {
                if self.is_nan() { <$float>::NAN } else if self == 0.0 { 0.0 } else { self }
            }
            #[inline]
            fn after(self, other: Self) -> bool {
                self > other || (self.is_nan() && !other.is_nan())
            }
        }
    )*};
}

integer_order!(i16, i32, i64, i128);
float_order!(f32, f64);

struct NumberExtreme<T: ArrowPrimitiveType> {
    values: Pages<T::Native>,
    seen: Bits,
    /// The type that `T` is: timestamps are kept as their integers.
    storage: DataType,
    ty: DataType,
    greatest: bool,
    _type: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> NumberExtreme<T>
where
    T::Native: Order,
{
    #[inline]
    fn offer(&mut self, group: u32, value: T::Native) {
        let value = value.canonical();
        let held = self.values.at(group);
        if !self.seen.get(group) {
            self.seen.set(group);
            *held = value;
        } else if if self.greatest { value.after(*held) } else { held.after(value) } {
            *held = value;
        }
    }
}

impl<T: ArrowPrimitiveType> Accumulator for NumberExtreme<T>
where
    T::Native: Order,
{
    fn grow(&mut self, groups: usize) {
        self.values.grow(groups, T::Native::default());
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &self.storage)?;
        let values = values.as_primitive::<T>();
        let numbers = values.values();
        for_each_valid(groups, values, |group, row| self.offer(group, numbers[row]));
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let values = groups.iter().map(|group| self.values.get(*group)).collect::<Vec<_>>();
        let nulls = groups.iter().map(|group| self.seen.get(*group)).collect::<NullBuffer>();
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        let array = PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(self.storage.clone());
        cast(&(Arc::new(array) as ArrayRef), &self.ty).map_err(broken)
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("value", self.ty.clone())]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let column = cast_to(image_column(columns, 0)?, &self.storage)?;
        let column = column.as_primitive::<T>();
        for (row, group) in groups.iter().enumerate() {
            *self.values.at(*group) = column.value(row);
            self.seen.put(*group, column.is_valid(row));
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.update(groups, columns)
    }

    fn lift(&self, _rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        // Made canonical where it is merged.
        Ok(vec![widened(values, &self.ty)?])
    }

    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        let (values, seen) = (self.values.snapshot(), self.seen.clone());
        let (storage, ty) = (self.storage.clone(), self.ty.clone());
        Some(Box::new(NumberExtreme::<T> { values, seen, storage, ty, greatest: self.greatest, _type: PhantomData }))
    }

    fn clear(&mut self) {
        self.values.clear();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.seen.bytes()
    }
}

struct BooleanExtreme {
    values: Bits,
    seen: Bits,
    greatest: bool,
}

impl Accumulator for BooleanExtreme {
    fn grow(&mut self, groups: usize) {
        self.values.grow(groups);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &DataType::Boolean)?;
        let values = values.as_boolean();
        for_each_valid(groups, values, |group, row| {
            let value = values.value(row);
            if !self.seen.get(group) {
                self.seen.set(group);
                self.values.put(group, value);
            } else if value == self.greatest {
                self.values.put(group, value);
            }
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let one = |group: &u32| self.seen.get(*group).then(|| self.values.get(*group));
        Ok(Arc::new(groups.iter().map(one).collect::<BooleanArray>()))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("value", DataType::Boolean), ("seen", DataType::Boolean)]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![seen_image(&self.values, groups), seen_image(&self.seen, groups)])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        seen_restore(&mut self.values, groups, image_column(columns, 0)?);
        seen_restore(&mut self.seen, groups, image_column(columns, 1)?);
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let (values, seen) = (image_column(columns, 0)?.as_boolean(), image_column(columns, 1)?.as_boolean());
        let values: ArrayRef = Arc::new(BooleanArray::new(values.values().clone(), Some(NullBuffer::new(seen.values().clone()))));
        self.update(groups, &[values])
    }

    fn lift(&self, _rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let values = widened(values, &DataType::Boolean)?;
        Ok(vec![Arc::new(BooleanArray::new(values.as_boolean().values().clone(), None)), valid_column(&values)])
    }

    fn snapshot(&mut self) -> Option<Box<dyn Accumulator>> {
        let (values, seen) = (self.values.clone(), self.seen.clone());
        Some(Box::new(BooleanExtreme { values, seen, greatest: self.greatest }))
    }

    fn clear(&mut self) {
        self.values.empty();
        self.seen.empty();
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.seen.bytes()
    }
}

/// Text and bytes, ordered by bytes. A value is copied only when it wins.
struct BytesExtreme {
    values: Vec<Option<Box<[u8]>>>,
    held: usize,
    ty: DataType,
    greatest: bool,
}

impl BytesExtreme {
    fn put(&mut self, group: u32, value: Option<&[u8]>) {
        let slot = &mut self.values[group as usize];
        self.held -= slot.as_ref().map_or(0, |held| held.len());
        self.held += value.map_or(0, <[u8]>::len);
        *slot = value.map(Box::from);
    }
}

impl Accumulator for BytesExtreme {
    fn grow(&mut self, groups: usize) {
        self.values.resize(groups.max(self.values.len()), None);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = widened(values, &DataType::Binary)?;
        let values = values.as_binary::<i32>();
        for_each_valid(groups, values, |group, row| {
            let value = values.value(row);
            let wins = match &self.values[group as usize] {
                None => true,
                Some(held) if self.greatest => value > held.as_ref(),
                Some(held) => value < held.as_ref(),
            };
            if wins {
                self.put(group, Some(value));
            }
        });
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let array: ArrayRef = Arc::new(groups.iter().map(|group| self.values[*group as usize].as_deref()).collect::<BinaryArray>());
        cast(&array, &self.ty).map_err(broken)
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        vec![("value", self.ty.clone())]
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.peek(groups)?])
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let column = cast_to(image_column(columns, 0)?, &DataType::Binary)?;
        let column = column.as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            self.put(*group, column.is_valid(row).then(|| column.value(row)));
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        self.update(groups, columns)
    }

    fn lift(&self, _rows: usize, values: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![widened(values, &self.ty)?])
    }

    fn clear(&mut self) {
        self.values.clear();
        self.held = 0;
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<Box<[u8]>>>() + self.held
    }
}
