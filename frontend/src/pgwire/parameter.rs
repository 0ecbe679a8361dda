//! Parameters of prepared statements: bytes of a client to values.

use crate::error::Error;
use crate::query::types;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;

/// Decodes one parameter. `hint` is the type that the client named (0 for none), `ty` the one
/// that its bytes are read as.
///
/// Errors: `22P02` for text that is no such value, `22P03` for bytes that are none, `0A000` for a
/// binary form that is not taken.
pub(super) fn decode(number: usize, hint: u32, ty: &DataType, binary: bool, bytes: Option<&[u8]>) -> Result<ScalarValue, Error> {
    let Some(bytes) = bytes else {
        return ScalarValue::try_from(ty).map_err(|error| crate::query::from_datafusion(&error, ""));
    };
    if binary { from_binary(number, hint, ty, bytes) } else { from_text(number, ty, bytes) }
}

fn from_text(number: usize, ty: &DataType, bytes: &[u8]) -> Result<ScalarValue, Error> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Error::new("22021", format!("parameter ${number} is not UTF-8")));
    };
    let bad = || Error::new("22P02", format!("invalid input for parameter ${number} of type {}: '{text}'", name(ty)));
    match ty {
        DataType::Utf8 => Ok(ScalarValue::from(text)),
        DataType::Binary => match text.strip_prefix("\\x") {
            Some(digits) => hex(digits).map(|bytes| ScalarValue::Binary(Some(bytes))).ok_or_else(bad),
            None => Ok(ScalarValue::Binary(Some(bytes.to_vec()))),
        },
        DataType::List(field) => {
            let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(bad)?;
            let elements = split_array(inner).ok_or_else(bad)?;
            let element = |text: &Option<String>| match text {
                None => ScalarValue::try_from(field.data_type()).map_err(|_| bad()),
                Some(text) => from_text(number, field.data_type(), text.as_bytes()),
            };
            list(field.data_type(), elements.iter().map(element).collect::<Result<Vec<_>, _>>()?).ok_or_else(bad)
        }
        _ => {
            let value = ScalarValue::from(text.trim()).cast_to(ty).map_err(|_| bad())?;
            // Arrow answers some bad texts with NULL.
            if value.is_null() { Err(bad()) } else { Ok(value) }
        }
    }
}

fn from_binary(number: usize, hint: u32, ty: &DataType, bytes: &[u8]) -> Result<ScalarValue, Error> {
    let bad = || Error::new("22P03", format!("incorrect binary data in parameter ${number} of type {}", name(ty)));
    let value = match ty {
        DataType::Boolean => match bytes {
            [byte] => Some(ScalarValue::Boolean(Some(*byte != 0))),
            _ => None,
        },
        DataType::Int16 => fixed(bytes).map(|b| ScalarValue::Int16(Some(i16::from_be_bytes(b)))),
        DataType::Int32 => fixed(bytes).map(|b| ScalarValue::Int32(Some(i32::from_be_bytes(b)))),
        // An oid is four bytes without a sign.
        DataType::Int64 if hint == types::OID.oid => fixed(bytes).map(|b| ScalarValue::Int64(Some(i64::from(u32::from_be_bytes(b))))),
        DataType::Int64 => fixed(bytes).map(|b| ScalarValue::Int64(Some(i64::from_be_bytes(b)))),
        DataType::Float32 => fixed(bytes).map(|b| ScalarValue::Float32(Some(f32::from_be_bytes(b)))),
        DataType::Float64 => fixed(bytes).map(|b| ScalarValue::Float64(Some(f64::from_be_bytes(b)))),
        DataType::Utf8 if hint == types::UUID.oid => {
            fixed(bytes).map(|b| ScalarValue::from(uuid::Uuid::from_bytes(b).to_string().as_str()))
        }
        DataType::Utf8 => {
            // jsonb puts its version first.
            let bytes = if hint == types::JSONB.oid { bytes.strip_prefix(&[1]).unwrap_or(bytes) } else { bytes };
            std::str::from_utf8(bytes).ok().map(ScalarValue::from)
        }
        DataType::Binary => Some(ScalarValue::Binary(Some(bytes.to_vec()))),
        DataType::Date32 => {
            let day = fixed(bytes).map(i32::from_be_bytes).and_then(|day| day.checked_add(EPOCH_DAYS));
            day.map(|day| ScalarValue::Date32(Some(day)))
        }
        DataType::Time64(TimeUnit::Microsecond) => fixed(bytes).map(|b| ScalarValue::Time64Microsecond(Some(i64::from_be_bytes(b)))),
        DataType::Timestamp(unit, zone) => {
            let micros = fixed(bytes).map(i64::from_be_bytes).and_then(|micros| micros.checked_add(EPOCH_MICROS));
            micros.and_then(|micros| {
                let zone: Option<Arc<str>> = zone.clone();
                let value = ScalarValue::TimestampMicrosecond(Some(micros), zone.clone());
                value.cast_to(&DataType::Timestamp(*unit, zone)).ok()
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => fixed::<16>(bytes).and_then(|all| {
            let micros = i64::from_be_bytes(all.get(..8)?.try_into().ok()?);
            let days = i32::from_be_bytes(all.get(8..12)?.try_into().ok()?);
            let months = i32::from_be_bytes(all.get(12..)?.try_into().ok()?);
            Some(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, micros.checked_mul(1_000)?))))
        }),
        DataType::Decimal128(..) => numeric(bytes).map(|(value, scale)| ScalarValue::Decimal128(Some(value), 38, scale)),
        DataType::List(field) => return array(number, field.data_type(), bytes),
        _ => {
            return Err(Error::new("0A000", format!("parameter ${number} of type {} is taken as text only", name(ty)))
                .with_hint("send it in text format, or cast it in the query"));
        }
    };
    value.ok_or_else(bad)
}

fn name(ty: &DataType) -> String {
    let ty = types::of(ty);
    types::format(i64::from(ty.oid), -1).unwrap_or_else(|| ty.name.to_owned())
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}

fn list(element: &DataType, values: Vec<ScalarValue>) -> Option<ScalarValue> {
    let array: ArrayRef = if values.is_empty() {
        arrow::array::new_empty_array(element)
    } else {
        let cast: Result<Vec<_>, _> = values.into_iter().map(|value| value.cast_to(element)).collect();
        ScalarValue::iter_to_array(cast.ok()?).ok()?
    };
    let values: Vec<ScalarValue> = (0..array.len()).filter_map(|i| ScalarValue::try_from_array(&array, i).ok()).collect();
    Some(ScalarValue::List(ScalarValue::new_list(&values, element, true)))
}

/// Elements of the inside of `{…}`; a bare NULL is `None`. `None` when quotes do not match.
fn split_array(inner: &str) -> Option<Vec<Option<String>>> {
    let (mut all, mut current, mut quoted, mut was_quoted) = (Vec::new(), String::new(), false, false);
    let mut chars = inner.chars();
    let finish = |current: &mut String, was_quoted: &mut bool| {
        let text = std::mem::take(current);
        let bare = !std::mem::take(was_quoted);
        if bare && text.trim().eq_ignore_ascii_case("null") { None } else { Some(if bare { text.trim().to_owned() } else { text }) }
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => current.push(chars.next()?),
            '"' => {
                quoted = !quoted;
                was_quoted = true;
            }
            ',' if !quoted => all.push(finish(&mut current, &mut was_quoted)),
            c => current.push(c),
        }
    }
    if quoted {
        return None;
    }
    if !all.is_empty() || !current.trim().is_empty() || was_quoted {
        all.push(finish(&mut current, &mut was_quoted));
    }
    Some(all)
}

/// One-dimensional arrays; a client may send none, of any element type that is taken.
fn array(number: usize, element: &DataType, bytes: &[u8]) -> Result<ScalarValue, Error> {
    let bad = || Error::new("22P03", format!("incorrect binary data in array parameter ${number}"));
    let mut rest = bytes;
    let mut take = |count: usize| -> Result<&[u8], Error> {
        let (taken, left) = rest.split_at_checked(count).ok_or_else(bad)?;
        rest = left;
        Ok(taken)
    };
    let int = |bytes: &[u8]| fixed(bytes).map(i32::from_be_bytes).ok_or_else(bad);
    let dimensions = int(take(4)?)?;
    let _has_null = take(4)?;
    let oid = int(take(4)?)? as u32;
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = int(take(4)?)?;
            let _lower_bound = take(4)?;
            count
        }
        _ => return Err(Error::new("0A000", format!("parameter ${number}: arrays of {dimensions} dimensions are not available"))),
    };
    let mut values = Vec::new();
    for _ in 0..count {
        let length = int(take(4)?)?;
        let bytes = if length < 0 { None } else { Some(take(usize::try_from(length).map_err(|_| bad())?)?) };
        values.push(decode(number, oid, element, true, bytes)?);
    }
    list(element, values).ok_or_else(bad)
}

/// NUMERIC in binary as an integer and its scale.
fn numeric(bytes: &[u8]) -> Option<(i128, i8)> {
    let mut words =
        bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0)]));
    let (count, weight, sign, scale) = (words.next()?, words.next()? as i16, words.next()?, i8::try_from(words.next()?).ok()?);
    if !matches!(sign, 0 | 0x4000) || !(0..=38).contains(&scale) {
        return None;
    }
    let groups: Vec<u16> = words.collect();
    if groups.len() != usize::from(count) || groups.iter().any(|group| *group > 9_999) {
        return None;
    }
    // The value is the sum of group * 10000^(weight - i); shift it to the scale.
    let mut value = 0_i128;
    for (i, group) in groups.iter().enumerate() {
        let power = (i32::from(weight) - i32::try_from(i).ok()?) * 4 + i32::from(scale);
        let group = i128::from(*group);
        let part = match u32::try_from(power) {
            Ok(power) => group.checked_mul(10_i128.checked_pow(power)?)?,
            // Digits below the scale are zero in what Postgres' clients send.
            Err(_) => group / 10_i128.checked_pow(power.unsigned_abs())?,
        };
        value = value.checked_add(part)?;
    }
    Some((if sign == 0 { value } else { -value }, scale))
}
