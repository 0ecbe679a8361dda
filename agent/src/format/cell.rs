//! Columns under construction: values go straight into Arrow's buffers, and a bad record is taken
//! back by truncation, so that it never takes its neighbours along (KER-7).

use super::value::{self, Why};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Decimal128Array, NullBufferBuilder, PrimitiveArray, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_planner::connector::DecodeColumn;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;
use weir_planner::time::TimeUnit;

/// Bytes of text that one column of a batch may hold: Arrow's offsets have 32 bits.
const TEXT_BYTES_MAX: usize = i32::MAX as usize;

/// One column being filled.
pub struct Cells {
    name: String,
    ty: ColumnType,
    nullable: bool,
    numeric: Option<TimeUnit>,
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    Boolean(BooleanBufferBuilder),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Int128(Vec<i128>),
    Bytes { ends: Vec<i32>, bytes: Vec<u8> },
}

impl Cells {
    /// An empty column.
    ///
    /// Errors: `User` for INTERVAL, which no record holds.
    pub fn new(column: &DecodeColumn) -> Result<Self, Error> {
        let values = match column.column.ty {
            ColumnType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            ColumnType::SmallInt => Values::Int16(Vec::new()),
            ColumnType::Integer | ColumnType::Date => Values::Int32(Vec::new()),
            ColumnType::BigInt | ColumnType::Timestamp { .. } => Values::Int64(Vec::new()),
            ColumnType::Real => Values::Float32(Vec::new()),
            ColumnType::Double => Values::Float64(Vec::new()),
            ColumnType::Decimal { .. } => Values::Int128(Vec::new()),
            ColumnType::Text | ColumnType::Bytea => Values::Bytes { ends: vec![0], bytes: Vec::new() },
            ColumnType::Interval => {
                let message = format!("column '{}' has type INTERVAL, which a source cannot give", column.column.name);
                return Err(Error::new(Class::User, message));
            }
        };
        Ok(Cells {
            name: column.column.name.clone(),
            ty: column.column.ty,
            nullable: column.column.nullable,
            numeric: column.timestamp_unit,
            nulls: NullBufferBuilder::new(0),
            values,
        })
    }

    /// The column's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The column's type.
    pub fn ty(&self) -> ColumnType {
        self.ty
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        match &self.values {
            Values::Boolean(v) => v.len(),
            Values::Int16(v) => v.len(),
            Values::Int32(v) => v.len(),
            Values::Int64(v) => v.len(),
            Values::Float32(v) => v.len(),
            Values::Float64(v) => v.len(),
            Values::Int128(v) => v.len(),
            Values::Bytes { ends, .. } => ends.len() - 1,
        }
    }

    /// Takes rows back until `rows` are left.
    pub fn truncate(&mut self, rows: usize) {
        self.nulls.truncate(rows);
        match &mut self.values {
            Values::Boolean(v) => v.truncate(rows),
            Values::Int16(v) => v.truncate(rows),
            Values::Int32(v) => v.truncate(rows),
            Values::Int64(v) => v.truncate(rows),
            Values::Float32(v) => v.truncate(rows),
            Values::Float64(v) => v.truncate(rows),
            Values::Int128(v) => v.truncate(rows),
            Values::Bytes { ends, bytes } => {
                // Also drops bytes of a value that failed before it became a row.
                ends.truncate(rows + 1);
                bytes.truncate(ends.last().map_or(0, |&end| usize::try_from(end).unwrap_or(0)));
            }
        }
    }

    /// Adds NULL.
    ///
    /// Errors: a reason, where the column is NOT NULL.
    pub fn push_null(&mut self) -> Result<(), String> {
        if !self.nullable {
            return Err(format!("field '{}': no value for a column that is NOT NULL", self.name));
        }
        self.nulls.append_null();
        match &mut self.values {
            Values::Boolean(v) => v.append(false),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) => v.push(0),
            Values::Int64(v) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Int128(v) => v.push(0),
            Values::Bytes { ends, bytes } => ends.push(i32::try_from(bytes.len()).unwrap_or(i32::MAX)),
        }
        Ok(())
    }

    /// Adds the value that a text stands for: a JSON string, a CSV field.
    #[inline]
    pub fn push_text(&mut self, text: &[u8]) -> Result<(), String> {
        let pushed = match (&mut self.values, self.ty) {
            (Values::Int64(v), ColumnType::Timestamp { unit, .. }) => value::timestamp(text, unit, self.numeric).map(|x| v.push(x)),
            (Values::Bytes { ends, bytes }, ColumnType::Bytea) => {
                let before = bytes.len();
                match value::bytes(text, bytes).and_then(|()| push_end(ends, bytes.len())) {
                    Ok(()) => Ok(()),
                    Err(why) => {
                        bytes.truncate(before);
                        Err(why)
                    }
                }
            }
            (Values::Bytes { ends, bytes }, _) => {
                if std::str::from_utf8(text).is_err() {
                    return Err(format!("field '{}': the text is not UTF-8", self.name));
                }
                bytes.extend_from_slice(text);
                push_end(ends, bytes.len())
            }
            (Values::Boolean(v), _) => value::boolean(text).map(|x| v.append(x)),
            (Values::Int32(v), ColumnType::Date) => value::date(text).map(|x| v.push(x)),
            _ => return self.push_number(text),
        };
        self.settle(pushed)
    }

    /// Adds the value that the text of a number stands for.
    #[inline]
    pub fn push_number(&mut self, text: &[u8]) -> Result<(), String> {
        let pushed = match (&mut self.values, self.ty) {
            (Values::Int64(v), ColumnType::Timestamp { unit, .. }) => value::timestamp_number(text, unit, self.numeric).map(|x| v.push(x)),
            (Values::Int64(v), _) => value::integer(text).map(|x| v.push(x)),
            (Values::Int32(_), ColumnType::Date) => Err(Why::Shape),
            (Values::Int32(v), _) => value::integer(text).and_then(|x| i32::try_from(x).map_err(|_| Why::Range)).map(|x| v.push(x)),
            (Values::Int16(v), _) => value::integer(text).and_then(|x| i16::try_from(x).map_err(|_| Why::Range)).map(|x| v.push(x)),
            (Values::Float32(v), _) => value::real(text).map(|x| v.push(x)),
            (Values::Float64(v), _) => value::double(text).map(|x| v.push(x)),
            (Values::Int128(v), ColumnType::Decimal { precision, scale }) => value::decimal(text, precision, scale).map(|x| v.push(x)),
            (Values::Bytes { ends, bytes }, ColumnType::Text) => {
                bytes.extend_from_slice(text);
                push_end(ends, bytes.len())
            }
            (Values::Boolean(_) | Values::Bytes { .. } | Values::Int128(_), _) => Err(Why::Shape),
        };
        self.settle(pushed)
    }

    /// Whether a number in this TIMESTAMP column counts the column's own units.
    pub fn counts_units(&self) -> bool {
        matches!((self.ty, self.numeric), (ColumnType::Timestamp { unit, .. }, Some(numeric)) if unit == numeric)
    }

    /// Adds a whole number, or the count of units that a time comes to; false, and nothing added,
    /// where the column does not hold it.
    #[inline]
    pub fn push_integer(&mut self, number: i64) -> bool {
        let fits = match (&mut self.values, self.ty) {
            (Values::Int64(v), _) => {
                v.push(number);
                true
            }
            (Values::Int32(v), ColumnType::Integer) => i32::try_from(number).map(|number| v.push(number)).is_ok(),
            (Values::Int16(v), _) => i16::try_from(number).map(|number| v.push(number)).is_ok(),
            _ => false,
        };
        if fits {
            self.nulls.append_non_null();
        }
        fits
    }

    /// Adds text that needs no decoding to a TEXT column; false, and nothing added, where the column
    /// does not hold it.
    #[inline]
    pub fn push_plain(&mut self, text: &[u8], ascii: bool) -> bool {
        match (&mut self.values, self.ty) {
            (Values::Bytes { ends, bytes }, ColumnType::Text) if ascii || std::str::from_utf8(text).is_ok() => {
                if push_end(ends, bytes.len() + text.len()).is_err() {
                    return false;
                }
                bytes.extend_from_slice(text);
                self.nulls.append_non_null();
                true
            }
            _ => false,
        }
    }

    /// Adds a truth value; TEXT takes its name.
    pub fn push_bool(&mut self, truth: bool) -> Result<(), String> {
        let pushed = match (&mut self.values, self.ty) {
            (Values::Boolean(v), _) => {
                v.append(truth);
                Ok(())
            }
            (Values::Bytes { ends, bytes }, ColumnType::Text) => {
                bytes.extend_from_slice(if truth { b"true" } else { b"false" });
                push_end(ends, bytes.len())
            }
            _ => Err(Why::Shape),
        };
        self.settle(pushed)
    }

    /// Adds bytes as they are to a BYTEA column.
    pub fn push_raw(&mut self, raw: &[u8]) -> Result<(), String> {
        let pushed = match (&mut self.values, self.ty) {
            (Values::Bytes { ends, bytes }, ColumnType::Bytea) => {
                bytes.extend_from_slice(raw);
                push_end(ends, bytes.len())
            }
            _ => Err(Why::Shape),
        };
        self.settle(pushed)
    }

    /// The finished column; the builder is empty again.
    ///
    /// Errors: `Bug` when what was pushed does not make an array.
    pub fn finish(&mut self) -> Result<ArrayRef, Error> {
        let nulls = self.nulls.finish();
        let array: ArrayRef = match (&mut self.values, self.ty) {
            (Values::Boolean(v), _) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            (Values::Int16(v), _) => primitive::<Int16Type>(v, nulls),
            (Values::Int32(v), ColumnType::Date) => primitive::<Date32Type>(v, nulls),
            (Values::Int32(v), _) => primitive::<Int32Type>(v, nulls),
            (Values::Int64(v), ColumnType::Timestamp { unit, zoned }) => stamps(v, nulls, unit, zoned),
            (Values::Int64(v), _) => primitive::<Int64Type>(v, nulls),
            (Values::Float32(v), _) => primitive::<Float32Type>(v, nulls),
            (Values::Float64(v), _) => primitive::<Float64Type>(v, nulls),
            (Values::Int128(v), ty) => {
                let array = Decimal128Array::new(ScalarBuffer::from(taken(v)), nulls);
                match ty {
                    ColumnType::Decimal { precision, scale } => {
                        Arc::new(array.with_precision_and_scale(precision, scale).map_err(|e| broken(&self.name, e))?)
                    }
                    _ => Arc::new(array),
                }
            }
            (Values::Bytes { ends, bytes }, ty) => {
                let (rows, size) = (ends.len(), bytes.len());
                let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(ends, first_end(rows))));
                let data = Buffer::from_vec(std::mem::replace(bytes, Vec::with_capacity(size)));
                match ty {
                    ColumnType::Bytea => Arc::new(BinaryArray::try_new(offsets, data, nulls).map_err(|e| broken(&self.name, e))?),
                    _ => Arc::new(StringArray::try_new(offsets, data, nulls).map_err(|e| broken(&self.name, e))?),
                }
            }
        };
        Ok(array)
    }

    #[inline]
    fn settle(&mut self, pushed: Result<(), Why>) -> Result<(), String> {
        match pushed {
            Ok(()) => {
                self.nulls.append_non_null();
                Ok(())
            }
            Err(why) => Err(self.reason(why)),
        }
    }

    /// Names field and type, never the value: reasons go to logs (C42).
    #[cold]
    fn reason(&self, why: Why) -> String {
        let (name, ty) = (&self.name, self.ty);
        match why {
            Why::Shape => format!("field '{name}': the value is not of type {ty}"),
            Why::Range => format!("field '{name}': the value is out of range for {ty}"),
            Why::Unit => {
                format!("field '{name}': a number is no {ty} without a unit; declare timestamp_unit = 's', 'ms', 'us' or 'ns'")
            }
        }
    }
}

fn push_end(ends: &mut Vec<i32>, bytes: usize) -> Result<(), Why> {
    if bytes > TEXT_BYTES_MAX {
        return Err(Why::Range);
    }
    ends.push(i32::try_from(bytes).map_err(|_| Why::Range)?);
    Ok(())
}

fn first_end(rows: usize) -> Vec<i32> {
    let mut ends = Vec::with_capacity(rows);
    ends.push(0);
    ends
}

/// The values, leaving a vector with the same room for the next batch.
fn taken<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len();
    std::mem::replace(values, Vec::with_capacity(room))
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(taken(values)), nulls))
}

fn stamps(values: &mut Vec<i64>, nulls: Option<NullBuffer>, unit: TimeUnit, zoned: bool) -> ArrayRef {
    let values = ScalarBuffer::from(taken(values));
    let zone = zoned.then_some("+00:00");
    match unit {
        TimeUnit::Second => Arc::new(PrimitiveArray::<TimestampSecondType>::new(values, nulls).with_timezone_opt(zone)),
        TimeUnit::Millisecond => Arc::new(PrimitiveArray::<TimestampMillisecondType>::new(values, nulls).with_timezone_opt(zone)),
        TimeUnit::Microsecond => Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls).with_timezone_opt(zone)),
        TimeUnit::Nanosecond => Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(values, nulls).with_timezone_opt(zone)),
    }
}

fn broken(name: &str, error: arrow::error::ArrowError) -> Error {
    Error::because(Class::Bug, format!("column '{name}' does not make an array"), error)
}
