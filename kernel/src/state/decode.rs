//! Encoded keys (the law of `weir_planner::keygroup`) back to columns.

use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use std::sync::Arc;
use weir_planner::error::Class;

enum Builder {
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Float(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(Int64Builder, i64),
}

/// Columns of `types` from encoded keys.
///
/// Errors: bytes that are not an encoding of these types.
pub fn decode<'a>(types: &[DataType], keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, Error> {
    let mut builders = types.iter().map(Builder::new).collect::<Result<Vec<_>, _>>()?;
    for mut key in keys {
        for builder in &mut builders {
            builder.take(&mut key).ok_or_else(|| Error::new(Class::Bug, "a stored key does not decode"))?;
        }
    }
    builders.iter_mut().zip(types).map(|(builder, ty)| builder.finish(ty)).collect()
}

impl Builder {
    fn new(ty: &DataType) -> Result<Self, Error> {
        Ok(match ty {
            DataType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Builder::Integer(Int64Builder::new()),
            DataType::Float32 | DataType::Float64 => Builder::Float(Float64Builder::new()),
            DataType::Decimal128(_, _) => Builder::Decimal(Decimal128Builder::new().with_data_type(ty.clone())),
            DataType::Utf8 => Builder::Text(StringBuilder::new()),
            DataType::Binary => Builder::Bytea(BinaryBuilder::new()),
            DataType::Date32 => Builder::Date(Date32Builder::new()),
            DataType::Timestamp(unit, _) => Builder::Timestamp(
                Int64Builder::new(),
                match unit {
                    TimeUnit::Second => 1,
                    TimeUnit::Millisecond => 1_000,
                    TimeUnit::Microsecond => 1_000_000,
                    TimeUnit::Nanosecond => 1_000_000_000,
                },
            ),
            other => return Err(Error::new(Class::User, format!("a column of type {other} cannot be a key"))),
        })
    }

    /// Reads one value off the front of `key`; `None` when the bytes do not fit.
    fn take(&mut self, key: &mut &[u8]) -> Option<()> {
        let tag = take(key, 1)?[0];
        if tag == 0 {
            match self {
                Builder::Boolean(builder) => builder.append_null(),
                Builder::Integer(builder) | Builder::Timestamp(builder, _) => builder.append_null(),
                Builder::Float(builder) => builder.append_null(),
                Builder::Decimal(builder) => builder.append_null(),
                Builder::Text(builder) => builder.append_null(),
                Builder::Bytea(builder) => builder.append_null(),
                Builder::Date(builder) => builder.append_null(),
            }
            return Some(());
        }
        match self {
            Builder::Boolean(builder) => builder.append_value(take(key, 1)?[0] != 0),
            Builder::Integer(builder) => builder.append_value(i64::from_le_bytes(fixed(key)?)),
            Builder::Float(builder) => builder.append_value(f64::from_le_bytes(fixed(key)?)),
            Builder::Decimal(builder) => {
                builder.append_value(i128::from_le_bytes(fixed(key)?));
                take(key, 1)?;
            }
            Builder::Text(builder) => builder.append_value(std::str::from_utf8(counted(key)?).ok()?),
            Builder::Bytea(builder) => builder.append_value(counted(key)?),
            Builder::Date(builder) => builder.append_value(i32::from_le_bytes(fixed(key)?)),
            Builder::Timestamp(builder, per_second) => {
                let seconds = i64::from_le_bytes(fixed(key)?);
                let nanos = i64::from(u32::from_le_bytes(fixed(key)?));
                // The floored second of a time near i64::MIN may not fit by itself; the sum does.
                let value = i128::from(seconds) * i128::from(*per_second) + i128::from(nanos / (1_000_000_000 / *per_second));
                builder.append_value(i64::try_from(value).ok()?);
            }
        }
        Some(())
    }

    fn finish(&mut self, ty: &DataType) -> Result<ArrayRef, Error> {
        let array: ArrayRef = match self {
            Builder::Boolean(builder) => Arc::new(builder.finish()),
            Builder::Integer(builder) | Builder::Timestamp(builder, _) => Arc::new(builder.finish()),
            Builder::Float(builder) => Arc::new(builder.finish()),
            Builder::Decimal(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Bytea(builder) => Arc::new(builder.finish()),
            Builder::Date(builder) => Arc::new(builder.finish()),
        };
        cast(&array, ty).map_err(broken)
    }
}

fn take<'a>(key: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = key.split_at_checked(count)?;
    *key = tail;
    Some(head)
}

fn fixed<const N: usize>(key: &mut &[u8]) -> Option<[u8; N]> {
    take(key, N)?.try_into().ok()
}

fn counted<'a>(key: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = u32::from_le_bytes(fixed(key)?);
    take(key, count as usize)
}
