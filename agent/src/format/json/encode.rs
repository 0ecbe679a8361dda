//! Rows to JSON objects: one a row, fields in column order, NULL written as `null`.
//!
//! Numbers are exact (decimals with their full scale); a double that is not finite has no JSON
//! number, so it is the string `"NaN"`, `"Infinity"` or `"-Infinity"`, which the decoder takes
//! back. BYTEA is a `"\\x…"` hex string, a date `"2026-01-31"`, a timestamp
//! `"2026-01-31T00:00:00.123"` with the digits of its unit, and with a `Z` when zoned.

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, PrimitiveArray, RecordBatch, StringArray,
};
use arrow::datatypes::{
    ArrowTimestampType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use std::io::Write;
use weir_kernel::error::Error;
use weir_planner::error::Class;
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::time::TimeUnit;

/// Encodes rows of one schema.
pub struct JsonEncoder {
    fields: Vec<Field>,
}

struct Field {
    /// `{"name":` or `,"name":`.
    run: Vec<u8>,
    name: String,
    column: usize,
    ty: ColumnType,
}

/// A batch made ready: columns resolved once, rows written one by one.
pub struct Rows<'a> {
    fields: Vec<(&'a [u8], Values<'a>)>,
}

enum Values<'a> {
    Boolean(&'a BooleanArray),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Decimal(&'a Decimal128Array, usize),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Date(&'a Date32Array),
    Stamp { array: &'a dyn Array, values: &'a [i64], unit: TimeUnit, zoned: bool },
}

impl JsonEncoder {
    /// For all columns of a schema.
    ///
    /// Errors: `User` for an INTERVAL column.
    pub fn new(schema: &Schema) -> Result<Self, Error> {
        let names: Vec<String> = schema.0.iter().map(|column| column.name.clone()).collect();
        Self::of(schema, &names)
    }

    /// For the named columns, in that order.
    ///
    /// Errors: `User` for a name that is not a column, or an INTERVAL column.
    pub fn of(schema: &Schema, names: &[String]) -> Result<Self, Error> {
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            let found = schema.0.iter().enumerate().find(|(_, column)| column.name == *name);
            let (index, column) =
                found.ok_or_else(|| Error::new(Class::User, format!("column '{name}' is not among the columns written")))?;
            if column.ty == ColumnType::Interval {
                let message = format!("column '{name}' has type INTERVAL, which JSON cannot hold; cast it to TEXT");
                return Err(Error::new(Class::User, message));
            }
            let mut run = vec![if fields.is_empty() { b'{' } else { b',' }];
            write_text(name, &mut run);
            run.push(b':');
            fields.push(Field { run, name: name.clone(), column: index, ty: column.ty });
        }
        Ok(JsonEncoder { fields })
    }

    /// Resolves the columns of a batch.
    ///
    /// Errors: `Bug` when the batch has other columns than the schema.
    pub fn rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<Rows<'a>, Error> {
        let resolve = |field: &'a Field| {
            let array = batch.columns().get(field.column);
            let values = array.and_then(|array| values(array, field.ty));
            let values = values
                .ok_or_else(|| Error::new(Class::Bug, format!("column '{}' is not the {} that was planned", field.name, field.ty)))?;
            Ok((field.run.as_slice(), values))
        };
        Ok(Rows { fields: self.fields.iter().map(resolve).collect::<Result<_, Error>>()? })
    }

    /// Appends every row of a batch, one line each.
    ///
    /// Errors: as [`JsonEncoder::rows`].
    pub fn write_lines(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        let rows = self.rows(batch)?;
        for row in 0..batch.num_rows() {
            rows.write(row, out);
            out.push(b'\n');
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// Appends one row as an object, without a line end. `row` is one of the batch.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.fields.is_empty() {
            out.push(b'{');
        }
        for (run, values) in &self.fields {
            out.extend_from_slice(run);
            values.write(row, out);
        }
        out.push(b'}');
    }
}

fn values<'a>(array: &'a ArrayRef, ty: ColumnType) -> Option<Values<'a>> {
    let any = array.as_any();
    Some(match ty {
        ColumnType::Boolean => Values::Boolean(any.downcast_ref()?),
        ColumnType::SmallInt => Values::Int16(any.downcast_ref()?),
        ColumnType::Integer => Values::Int32(any.downcast_ref()?),
        ColumnType::BigInt => Values::Int64(any.downcast_ref()?),
        ColumnType::Real => Values::Float32(any.downcast_ref()?),
        ColumnType::Double => Values::Float64(any.downcast_ref()?),
        ColumnType::Decimal { scale, .. } => Values::Decimal(any.downcast_ref()?, usize::try_from(scale).ok()?),
        ColumnType::Text => Values::Text(any.downcast_ref()?),
        ColumnType::Bytea => Values::Bytes(any.downcast_ref()?),
        ColumnType::Date => Values::Date(any.downcast_ref()?),
        ColumnType::Timestamp { unit, zoned } => {
            let values = match unit {
                TimeUnit::Second => stamps::<TimestampSecondType>(array),
                TimeUnit::Millisecond => stamps::<TimestampMillisecondType>(array),
                TimeUnit::Microsecond => stamps::<TimestampMicrosecondType>(array),
                TimeUnit::Nanosecond => stamps::<TimestampNanosecondType>(array),
            }?;
            Values::Stamp { array: array.as_ref(), values, unit, zoned }
        }
        ColumnType::Interval => return None,
    })
}

fn stamps<T: ArrowTimestampType>(array: &ArrayRef) -> Option<&[i64]> {
    array.as_any().downcast_ref::<PrimitiveArray<T>>().map(|array| array.values().as_ref())
}

impl Values<'_> {
    fn array(&self) -> &dyn Array {
        match self {
            Values::Boolean(a) => *a,
            Values::Int16(a) => *a,
            Values::Int32(a) => *a,
            Values::Int64(a) => *a,
            Values::Float32(a) => *a,
            Values::Float64(a) => *a,
            Values::Decimal(a, _) => *a,
            Values::Text(a) => *a,
            Values::Bytes(a) => *a,
            Values::Date(a) => *a,
            Values::Stamp { array, .. } => *array,
        }
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.array().is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match self {
            Values::Boolean(a) => out.extend_from_slice(if a.value(row) { b"true" } else { b"false" }),
            Values::Int16(a) => write_integer(i64::from(a.value(row)), out),
            Values::Int32(a) => write_integer(i64::from(a.value(row)), out),
            Values::Int64(a) => write_integer(a.value(row), out),
            Values::Float32(a) => write_float(a.value(row), a.value(row).is_finite(), f64::from(a.value(row)), out),
            Values::Float64(a) => write_float(a.value(row), a.value(row).is_finite(), a.value(row), out),
            Values::Decimal(a, scale) => write_decimal(a.value(row), *scale, out),
            Values::Text(a) => write_text(a.value(row), out),
            Values::Bytes(a) => write_bytes(a.value(row), out),
            Values::Date(a) => {
                out.push(b'"');
                write_date(i64::from(a.value(row)), out);
                out.push(b'"');
            }
            Values::Stamp { values, unit, zoned, .. } => {
                if let Some(&value) = values.get(row) {
                    write_stamp(value, *unit, *zoned, out);
                }
            }
        }
    }
}

fn write_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_digits(u128::from(value.unsigned_abs()), 1, out);
}

/// Decimal digits, at least `width` of them.
fn write_digits(value: u128, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    // 128-bit division is slow: digits come off in 64 bits as soon as the rest fits.
    let mut wide = value;
    while wide > u128::from(u64::MAX) {
        out.push(b'0' + (wide % 10) as u8);
        wide /= 10;
    }
    let mut rest = wide as u64;
    while rest > 0 || out.len() - start < width {
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

fn write_float(shortest: impl std::fmt::Debug, finite: bool, value: f64, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail. `{:?}` gives the shortest text that reads back as the same value.
    let _ = if finite {
        write!(out, "{shortest:?}")
    } else if value.is_nan() {
        write!(out, "\"NaN\"")
    } else {
        write!(out, "\"{}Infinity\"", if value < 0.0 { "-" } else { "" })
    };
}

fn write_decimal(value: i128, scale: usize, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let start = out.len();
    write_digits(value.unsigned_abs(), scale + 1, out);
    if scale > 0 {
        let point = out.len().saturating_sub(scale).max(start);
        out.insert(point, b'.');
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\"\\\\x");
    for byte in bytes {
        out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
    out.push(b'"');
}

/// A JSON string: quotes, backslashes and control characters escaped, all else as it is.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut plain = 0;
    let bytes = text.as_bytes();
    for (i, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(plain..i).unwrap_or_default());
        plain = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}

fn write_date(days: i64, out: &mut Vec<u8>) {
    // The calendar counted from 1 March of year 0, in eras of 400 years of 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    if year < 0 {
        out.push(b'-');
    }
    write_digits(u128::from(year.unsigned_abs()), 4, out);
    out.push(b'-');
    write_digits(u128::from(month.unsigned_abs()), 2, out);
    out.push(b'-');
    write_digits(u128::from(day.unsigned_abs()), 2, out);
}

fn write_stamp(value: i64, unit: TimeUnit, zoned: bool, out: &mut Vec<u8>) {
    let digits = super::super::value::digits_of(unit).unsigned_abs();
    let per_second = 10i64.pow(digits);
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    out.push(b'"');
    write_date(days, out);
    for (mark, part) in [(b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)] {
        out.push(mark);
        write_digits(u128::from(part.unsigned_abs()), 2, out);
    }
    if digits > 0 {
        out.push(b'.');
        write_digits(u128::from(fraction.unsigned_abs()), digits as usize, out);
    }
    if zoned {
        out.push(b'Z');
    }
    out.push(b'"');
}
