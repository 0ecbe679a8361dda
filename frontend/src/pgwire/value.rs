//! Batches as rows of the wire: each column's array is made ready once a batch, then every value
//! is put as text or in Postgres' binary form without further allocation for the usual types.

use super::{message, text};
use crate::error::Error;
use crate::query::types::{self, PgType};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array, Float32Array, Float64Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, Schema, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};
use pgwire::messages::data::{FORMAT_CODE_BINARY, FORMAT_CODE_TEXT, FieldDescription, RowDescription};
use std::sync::Arc;

/// Microseconds from 1970 to 2000, where Postgres' times begin.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Days from 1970 to 2000.
const EPOCH_DAYS: i32 = 10_957;

/// Columns of one answer, as in Postgres.
const COLUMNS_MAX: usize = 1_664;

/// Checks that an answer is not too wide for the messages that describe and carry it.
///
/// Errors: `54011`.
pub(super) fn check_width(schema: &Schema) -> Result<(), Error> {
    match schema.fields().len() {
        ..=COLUMNS_MAX => Ok(()),
        many => {
            Err(Error::new("54011", format!("an answer may have {COLUMNS_MAX} columns, not {many}")).with_hint("ask for fewer columns"))
        }
    }
}

/// The description of an answer's columns. `formats` has none (all text), one for all, or one for
/// each. Columns are not told to be those of a table: table and number are 0.
pub(super) fn description(schema: &Schema, formats: &[i16]) -> RowDescription {
    let describe = |(i, field): (usize, &Arc<Field>)| {
        let ty = types::of(field.data_type());
        let format = if is_binary(formats, i) { FORMAT_CODE_BINARY } else { FORMAT_CODE_TEXT };
        FieldDescription::new(message::text(field.name().clone()), 0, 0, ty.oid, ty.size, types::modifier(field.data_type()), format)
    };
    RowDescription::new(schema.fields().iter().enumerate().map(describe).collect())
}

/// The format of value `i` under the rule of none, one, or one each.
pub(super) fn is_binary(formats: &[i16], i: usize) -> bool {
    match formats {
        [] => false,
        [all] => *all == FORMAT_CODE_BINARY,
        each => each.get(i) == Some(&FORMAT_CODE_BINARY),
    }
}

/// A batch made ready to be written row by row.
pub(super) struct Rows {
    columns: Vec<(Column, bool)>,
    count: usize,
}

impl Rows {
    /// Makes a batch ready.
    ///
    /// Errors: a value that Postgres' type cannot hold, such as an unsigned number above 2^63.
    pub fn new(batch: &RecordBatch, formats: &[i16]) -> Result<Rows, ArrowError> {
        let ready = |(i, array): (usize, &ArrayRef)| Ok((Column::new(array)?, is_binary(formats, i)));
        let columns: Result<Vec<_>, ArrowError> = batch.columns().iter().enumerate().map(ready).collect();
        Ok(Rows { columns: columns?, count: batch.num_rows() })
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes one DataRow.
    ///
    /// Errors: as [`message::data_row`].
    pub fn put(&self, row: usize, out: &mut BytesMut) -> Result<(), Error> {
        message::data_row(out, self.columns.len(), |out| {
            for (column, binary) in &self.columns {
                column.put(row, *binary, out);
            }
        })
    }

    /// Calls `each` with the text of every value of a row, NULL as `None`; `scratch` is reused.
    pub fn texts(&self, row: usize, scratch: &mut BytesMut, mut each: impl FnMut(usize, Option<&[u8]>)) {
        for (i, (column, _)) in self.columns.iter().enumerate() {
            scratch.clear();
            let found = column.put_text(row, scratch);
            each(i, found.then_some(&scratch[..]));
        }
    }
}

/// One column in the form that writing needs.
enum Column {
    Null,
    Bool(BooleanArray),
    /// Any integer with its width in bytes.
    Int(Int64Array, i16),
    Real(Float32Array),
    Double(Float64Array),
    Decimal(Decimal128Array),
    WideDecimal(Decimal256Array),
    Text(StringArray),
    Bytes(BinaryArray),
    /// Days since 1970.
    Date(Int32Array),
    /// Microseconds of the day.
    Time(Int64Array),
    /// Microseconds since 1970; the extremes are the infinities.
    Stamp {
        micros: Int64Array,
        zoned: bool,
    },
    Interval(IntervalMonthDayNanoArray),
    List {
        lists: ListArray,
        element: PgType,
        values: Box<Column>,
    },
}

fn cast(array: &ArrayRef, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    // Not safe: a value that does not fit is an error, never NULL.
    cast_with_options(array, ty, &CastOptions { safe: false, ..CastOptions::default() })
}

impl Column {
    fn new(array: &ArrayRef) -> Result<Column, ArrowError> {
        Ok(match array.data_type() {
            DataType::Null => Column::Null,
            DataType::Boolean => Column::Bool(array.as_boolean().clone()),
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64 => {
                let width = types::scalar(array.data_type()).size;
                Column::Int(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone(), width)
            }
            DataType::Float16 | DataType::Float32 => Column::Real(cast(array, &DataType::Float32)?.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Column::Double(array.as_primitive::<Float64Type>().clone()),
            DataType::Decimal128(..) => Column::Decimal(array.as_primitive::<Decimal128Type>().clone()),
            DataType::Decimal256(..) => Column::WideDecimal(array.as_primitive::<Decimal256Type>().clone()),
            DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
                Column::Decimal(cast(array, &DataType::Decimal128(*precision, *scale))?.as_primitive::<Decimal128Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Column::Text(cast(array, &DataType::Utf8)?.as_string::<i32>().clone())
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Column::Bytes(cast(array, &DataType::Binary)?.as_binary::<i32>().clone())
            }
            DataType::Date32 | DataType::Date64 => {
                Column::Date(cast(array, &DataType::Date32)?.as_primitive::<Date32Type>().reinterpret_cast())
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let micros = cast(array, &DataType::Time64(TimeUnit::Microsecond))?;
                Column::Time(micros.as_primitive::<Time64MicrosecondType>().reinterpret_cast())
            }
            DataType::Timestamp(unit, zone) => Column::Stamp { micros: micros(array, *unit), zoned: zone.is_some() },
            DataType::Interval(_) => interval(cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?),
            DataType::Duration(_) => interval(cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?),
            DataType::Dictionary(_, value) => return Column::new(&cast(array, value)?),
            DataType::RunEndEncoded(_, value) => return Column::new(&cast(array, value.data_type())?),
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                let element = types::scalar(field.data_type());
                let lists = cast(array, &DataType::List(Arc::clone(field)))?.as_list::<i32>().clone();
                let values = Box::new(Column::new(lists.values())?);
                Column::List { lists, element: if element.array == 0 { types::TEXT } else { element }, values }
            }
            DataType::ListView(_) | DataType::LargeListView(_) | DataType::Struct(_) | DataType::Union(..) | DataType::Map(..) => {
                Column::Text(json(array)?)
            }
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Column::Null => true,
            Column::Bool(array) => array.is_null(row),
            Column::Int(array, _) | Column::Time(array) | Column::Stamp { micros: array, .. } => array.is_null(row),
            Column::Real(array) => array.is_null(row),
            Column::Double(array) => array.is_null(row),
            Column::Decimal(array) => array.is_null(row),
            Column::WideDecimal(array) => array.is_null(row),
            Column::Text(array) => array.is_null(row),
            Column::Bytes(array) => array.is_null(row),
            Column::Date(array) => array.is_null(row),
            Column::Interval(array) => array.is_null(row),
            Column::List { lists, .. } => lists.is_null(row),
        }
    }

    /// Puts length and value.
    fn put(&self, row: usize, binary: bool, out: &mut BytesMut) {
        let at = out.len();
        out.put_i32(-1);
        let found = if binary { self.put_binary(row, out) } else { self.put_text(row, out) };
        if found {
            let length = i32::try_from(out.len() - at - 4).unwrap_or(i32::MAX);
            if let Some(place) = out.get_mut(at..at + 4) {
                place.copy_from_slice(&length.to_be_bytes());
            }
        }
    }

    /// Puts a value as text; false for NULL.
    fn put_text(&self, row: usize, out: &mut BytesMut) -> bool {
        if self.is_null(row) {
            return false;
        }
        match self {
            Column::Null => return false,
            Column::Bool(array) => out.put_u8(if array.value(row) { b't' } else { b'f' }),
            Column::Int(array, _) => text::integer(out, array.value(row)),
            Column::Real(array) => text::float(out, &format!("{:e}", array.value(row)), 6),
            Column::Double(array) => text::float(out, &format!("{:e}", array.value(row)), 15),
            Column::Decimal(array) => out.put_slice(array.value_as_string(row).as_bytes()),
            Column::WideDecimal(array) => out.put_slice(array.value_as_string(row).as_bytes()),
            Column::Text(array) => out.put_slice(array.value(row).as_bytes()),
            Column::Bytes(array) => text::bytes(out, array.value(row)),
            Column::Date(array) => text::date(out, array.value(row)),
            Column::Time(array) => text::time(out, array.value(row)),
            Column::Stamp { micros, zoned } => text::stamp(out, micros.value(row), *zoned),
            Column::Interval(array) => {
                let value = array.value(row);
                text::interval(out, value.months, value.days, value.nanoseconds / 1_000);
            }
            Column::List { lists, values, .. } => {
                let (start, end) = range(lists, row);
                out.put_u8(b'{');
                let mut element = BytesMut::new();
                for i in start..end {
                    if i > start {
                        out.put_u8(b',');
                    }
                    element.clear();
                    if values.put_text(i, &mut element) {
                        let nested = matches!(**values, Column::List { .. });
                        if nested { out.put_slice(&element) } else { text::array_element(out, &element) }
                    } else {
                        out.put_slice(b"NULL");
                    }
                }
                out.put_u8(b'}');
            }
        }
        true
    }

    /// Puts a value in binary; false for NULL.
    fn put_binary(&self, row: usize, out: &mut BytesMut) -> bool {
        if self.is_null(row) {
            return false;
        }
        match self {
            Column::Null => return false,
            Column::Bool(array) => out.put_u8(u8::from(array.value(row))),
            // The width is that of the type, which every value fits.
            Column::Int(array, 2) => out.put_i16(array.value(row) as i16),
            Column::Int(array, 4) => out.put_i32(array.value(row) as i32),
            Column::Int(array, _) => out.put_i64(array.value(row)),
            Column::Real(array) => out.put_f32(array.value(row)),
            Column::Double(array) => out.put_f64(array.value(row)),
            Column::Decimal(array) => numeric(out, &array.value_as_string(row)),
            Column::WideDecimal(array) => numeric(out, &array.value_as_string(row)),
            Column::Text(array) => out.put_slice(array.value(row).as_bytes()),
            Column::Bytes(array) => out.put_slice(array.value(row)),
            Column::Date(array) => out.put_i32(array.value(row).saturating_sub(EPOCH_DAYS)),
            Column::Time(array) => out.put_i64(array.value(row)),
            Column::Stamp { micros, .. } => out.put_i64(match micros.value(row) {
                i64::MAX => i64::MAX,
                i64::MIN => i64::MIN,
                finite => finite.saturating_sub(EPOCH_MICROS),
            }),
            Column::Interval(array) => {
                let value = array.value(row);
                out.put_i64(value.nanoseconds / 1_000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
            Column::List { lists, element, values } => {
                let (start, end) = range(lists, row);
                let has_null = (start..end).any(|i| values.is_null(i));
                out.put_i32(i32::from(start < end));
                out.put_i32(i32::from(has_null));
                out.put_u32(element.oid);
                if start < end {
                    out.put_i32(i32::try_from(end - start).unwrap_or(i32::MAX));
                    out.put_i32(1);
                    // A list in a list has no type of its own on the wire: its elements are text.
                    let binary = !matches!(**values, Column::List { .. });
                    (start..end).for_each(|i| values.put(i, binary, out));
                }
            }
        }
        true
    }
}

fn interval(array: ArrayRef) -> Column {
    Column::Interval(array.as_primitive::<IntervalMonthDayNanoType>().clone())
}

fn range(lists: &ListArray, row: usize) -> (usize, usize) {
    let offsets = lists.value_offsets();
    let at = |i: usize| offsets.get(i).and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    (at(row), at(row + 1))
}

/// Microseconds since 1970, floored; what lies outside of them, and the extremes, are the infinities.
fn micros(array: &ArrayRef, unit: TimeUnit) -> Int64Array {
    let scaled = |value: i64, factor: i64| match value.checked_mul(factor) {
        Some(micros) => micros,
        None if value > 0 => i64::MAX,
        None => i64::MIN,
    };
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().unary(|value| scaled(value, 1_000_000)),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().unary(|value| scaled(value, 1_000)),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().reinterpret_cast(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().unary(|value| value.div_euclid(1_000)),
    }
}

/// Structs and maps as JSON text, one value a row.
fn json(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    let schema = Arc::new(Schema::new(vec![Field::new("v", array.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(array)])?;
    let mut lines = Vec::new();
    let mut writer = arrow::json::LineDelimitedWriter::new(&mut lines);
    writer.write(&batch)?;
    writer.finish()?;
    let text = String::from_utf8(lines).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    let value = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(mut fields)) => Ok(fields.remove("v").map(|value| value.to_string())),
        Ok(_) => Ok(None),
        Err(error) => Err(ArrowError::JsonError(error.to_string())),
    };
    text.lines().map(value).collect::<Result<Vec<_>, _>>().map(StringArray::from)
}

/// NUMERIC in binary: groups of four digits around the point.
fn numeric(out: &mut BytesMut, text: &str) {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    // Pad both sides so that groups of four meet at the point.
    let padded = format!("{}{whole}{fraction}{}", "0".repeat((4 - whole.len() % 4) % 4), "0".repeat((4 - fraction.len() % 4) % 4));
    let group = |chunk: &[u8]| chunk.iter().fold(0_i16, |value, digit| value * 10 + i16::from(digit.wrapping_sub(b'0')));
    let mut groups: Vec<i16> = padded.as_bytes().chunks(4).map(group).collect();
    let mut weight = whole.len().div_ceil(4) as i16 - 1;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    if groups.is_empty() {
        weight = 0;
    }
    out.put_i16(groups.len() as i16);
    out.put_i16(weight);
    out.put_u16(if negative && !groups.is_empty() { 0x4000 } else { 0 });
    out.put_i16(fraction.len() as i16);
    groups.into_iter().for_each(|group| out.put_i16(group));
}
