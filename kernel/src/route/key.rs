//! The key law of `weir_planner::keygroup` over whole columns: encoded bytes and hash of each row.

use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit};
use weir_planner::error::Class;
use weir_planner::keygroup;

/// A key column in the shape that the law encodes: integers and floats widened.
enum KeyColumn {
    Boolean(BooleanArray),
    Integer(Int64Array),
    Float(Float64Array),
    Decimal(Decimal128Array, i8),
    Text(StringArray),
    Bytea(BinaryArray),
    Date(Date32Array),
    /// Values and how many make a second.
    Timestamp(Int64Array, i64),
}

impl KeyColumn {
    fn new(array: &ArrayRef) -> Result<Self, Error> {
        Ok(match array.data_type() {
            DataType::Boolean => KeyColumn::Boolean(array.as_boolean().clone()),
            DataType::Int64 => KeyColumn::Integer(array.as_primitive::<Int64Type>().clone()),
            DataType::Int8 | DataType::Int16 | DataType::Int32 => {
                KeyColumn::Integer(cast(array, &DataType::Int64).map_err(broken)?.as_primitive::<Int64Type>().clone())
            }
            DataType::Float32 | DataType::Float64 => {
                KeyColumn::Float(cast(array, &DataType::Float64).map_err(broken)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Decimal128(_, scale) => KeyColumn::Decimal(array.as_primitive::<Decimal128Type>().clone(), *scale),
            DataType::Utf8 => KeyColumn::Text(array.as_string::<i32>().clone()),
            DataType::Binary => KeyColumn::Bytea(array.as_binary::<i32>().clone()),
            DataType::Date32 => KeyColumn::Date(array.as_primitive().clone()),
            DataType::Timestamp(unit, _) => {
                let per_second = match unit {
                    TimeUnit::Second => 1,
                    TimeUnit::Millisecond => 1_000,
                    TimeUnit::Microsecond => 1_000_000,
                    TimeUnit::Nanosecond => 1_000_000_000,
                };
                let values = cast(array, &DataType::Int64).map_err(broken)?.as_primitive::<Int64Type>().clone();
                KeyColumn::Timestamp(values, per_second)
            }
            other => return Err(Error::new(Class::User, format!("a column of type {other} cannot be a key"))),
        })
    }

    fn put(&self, row: usize, out: &mut Vec<u8>) {
        let null = match self {
            KeyColumn::Boolean(array) => array.is_null(row),
            KeyColumn::Integer(array) | KeyColumn::Timestamp(array, _) => array.is_null(row),
            KeyColumn::Float(array) => array.is_null(row),
            KeyColumn::Decimal(array, _) => array.is_null(row),
            KeyColumn::Text(array) => array.is_null(row),
            KeyColumn::Bytea(array) => array.is_null(row),
            KeyColumn::Date(array) => array.is_null(row),
        };
        if null {
            keygroup::put_null(out);
            return;
        }
        match self {
            KeyColumn::Boolean(array) => keygroup::put_boolean(out, array.value(row)),
            KeyColumn::Integer(array) => keygroup::put_integer(out, array.value(row)),
            KeyColumn::Float(array) => keygroup::put_float(out, array.value(row)),
            KeyColumn::Decimal(array, scale) => keygroup::put_decimal(out, array.value(row), *scale),
            KeyColumn::Text(array) => keygroup::put_text(out, array.value(row)),
            KeyColumn::Bytea(array) => keygroup::put_bytea(out, array.value(row)),
            KeyColumn::Date(array) => keygroup::put_date(out, array.value(row)),
            KeyColumn::Timestamp(array, per_second) => {
                let value = array.value(row);
                let nanos = value.rem_euclid(*per_second) * (1_000_000_000 / *per_second);
                keygroup::put_timestamp(out, value.div_euclid(*per_second), nanos as u32);
            }
        }
    }
}

/// Encoded keys of one batch and their hashes; buffers are used again from batch to batch.
#[derive(Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl Encoded {
    /// Hashes the keys of `rows` rows; the encoded bytes are not kept.
    pub fn hash(&mut self, keys: &[ArrayRef], rows: usize) -> Result<(), Error> {
        self.hashes.clear();
        self.hashes.reserve(rows);
        if let [only] = keys
            && only.data_type() == &DataType::Int64
            && only.null_count() == 0
        {
            let values = only.as_primitive::<Int64Type>().values();
            self.hashes.extend(values.iter().map(|value| keygroup::hash_integer(*value)));
            return Ok(());
        }
        let columns = keys.iter().map(KeyColumn::new).collect::<Result<Vec<_>, _>>()?;
        for row in 0..rows {
            self.bytes.clear();
            columns.iter().for_each(|column| column.put(row, &mut self.bytes));
            self.hashes.push(keygroup::hash(&self.bytes));
        }
        Ok(())
    }

    /// Encodes and hashes the keys of `rows` rows; [`Encoded::key`] gives each.
    pub fn encode(&mut self, keys: &[ArrayRef], rows: usize) -> Result<(), Error> {
        let columns = keys.iter().map(KeyColumn::new).collect::<Result<Vec<_>, _>>()?;
        self.bytes.clear();
        self.ends.clear();
        self.hashes.clear();
        for row in 0..rows {
            let start = self.bytes.len();
            columns.iter().for_each(|column| column.put(row, &mut self.bytes));
            self.hashes.push(keygroup::hash(&self.bytes[start..]));
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    /// Hash of each row.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Encoded key of a row of the last [`Encoded::encode`].
    pub fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }
}
