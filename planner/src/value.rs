//! Text to values: the one set of rules for what a BIGINT, DECIMAL or TIMESTAMP looks like in
//! JSON, CSV and `values` (C30). Nothing passes through a double that is not one (C32).

use crate::time::TimeUnit;

/// Why a text is not a value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not look like one.
    Shape,
    /// It does, but the type does not hold it.
    Range,
    /// A number for a time column whose unit nobody declared (C29).
    Unit,
}

/// A decimal number: `mantissa * 10^exponent`, exact.
struct Number {
    mantissa: i128,
    exponent: i32,
}

/// Fields up to this many digits keep an `i128` mantissa exact.
const DIGITS_MAX: usize = 38;

/// A whole number: `-12`, `12.0` and `1.2e1` are, `1.5` is not.
pub fn integer(text: &[u8]) -> Result<i64, Why> {
    if let Some(value) = plain_integer(text) {
        return Ok(value);
    }
    let number = number(text)?;
    let whole = scaled(&number, 0, false)?;
    i64::try_from(whole).map_err(|_| Why::Range)
}

/// The fast case: an optional minus and 1 to 18 digits.
pub fn plain_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// An exact number of `scale` digits after the point, unscaled. Digits past the scale must be
/// zeros: nothing is rounded away in silence.
pub fn decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, Why> {
    let value = scaled(&number(text)?, i32::from(scale), false)?;
    let limit = 10i128.checked_pow(u32::from(precision)).ok_or(Why::Range)?;
    if value.unsigned_abs() >= limit.unsigned_abs() { Err(Why::Range) } else { Ok(value) }
}

/// A double; `NaN`, `Infinity` and `-Infinity` in any case, as in SQL.
pub fn double(text: &[u8]) -> Result<f64, Why> {
    let text = std::str::from_utf8(text).map_err(|_| Why::Shape)?.trim();
    let value: f64 = text.parse().map_err(|_| Why::Shape)?;
    if value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) { Err(Why::Range) } else { Ok(value) }
}

/// A 32-bit float by the same rules.
pub fn real(text: &[u8]) -> Result<f32, Why> {
    let text = std::str::from_utf8(text).map_err(|_| Why::Shape)?.trim();
    let value: f32 = text.parse().map_err(|_| Why::Shape)?;
    if value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) { Err(Why::Range) } else { Ok(value) }
}

/// A truth value as SQL spells it, in any case.
pub fn boolean(text: &[u8]) -> Result<bool, Why> {
    let text = text.trim_ascii();
    let is = |words: &[&[u8]]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&[b"true", b"t", b"yes", b"y", b"on", b"1"]) {
        Ok(true)
    } else if is(&[b"false", b"f", b"no", b"n", b"off", b"0"]) {
        Ok(false)
    } else {
        Err(Why::Shape)
    }
}

/// Bytes: hex behind `\x` as in SQL, else standard base64 (padding may be left out).
pub fn bytes(text: &[u8], out: &mut Vec<u8>) -> Result<(), Why> {
    if let [b'\\', b'x', hex @ ..] = text {
        let (pairs, rest) = hex.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Why::Shape);
        }
        for [high, low] in pairs {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(Why::Shape);
            out.push(digit(*high)? << 4 | digit(*low)?);
        }
        return Ok(());
    }
    base64(text, out)
}

fn base64(text: &[u8], out: &mut Vec<u8>) -> Result<(), Why> {
    let body = match text {
        [body @ .., b'=', b'='] | [body @ .., b'='] if text.len().is_multiple_of(4) => body,
        _ => text,
    };
    let (mut bits, mut count) = (0u32, 0u32);
    for &c in body {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(Why::Shape),
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    // One character alone holds no byte, and what is left over must be zero bits.
    if count >= 6 || bits & ((1 << count) - 1) != 0 { Err(Why::Shape) } else { Ok(()) }
}

/// `2026-01-31` as days since 1970-01-01.
pub fn date(text: &[u8]) -> Result<i32, Why> {
    let (days, rest) = date_prefix(text.trim_ascii())?;
    if rest.is_empty() { i32::try_from(days).map_err(|_| Why::Range) } else { Err(Why::Shape) }
}

/// RFC 3339 or SQL text, with or without a zone (then UTC), in `unit`s since 1970. Digits finer
/// than the unit are floored. With a declared `numeric` unit a number is taken too.
pub fn timestamp(text: &[u8], unit: TimeUnit, numeric: Option<TimeUnit>) -> Result<i64, Why> {
    let text = text.trim_ascii();
    match stamp(text) {
        Ok((seconds, nanos)) => from_seconds(seconds, nanos, unit),
        Err(Why::Shape) => match (number(text), numeric) {
            (Ok(number), Some(from)) => from_number(&number, from, unit),
            (Ok(_), None) => Err(Why::Unit),
            (Err(why), _) => Err(why),
        },
        Err(why) => Err(why),
    }
}

/// A number of `from` units in `unit`s, floored (EV-1).
pub fn timestamp_number(text: &[u8], unit: TimeUnit, from: Option<TimeUnit>) -> Result<i64, Why> {
    let from = from.ok_or(Why::Unit)?;
    if from == unit
        && let Some(value) = plain_integer(text)
    {
        return Ok(value);
    }
    from_number(&number(text)?, from, unit)
}

/// Decimal digits after the second.
pub fn digits_of(unit: TimeUnit) -> i32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// `value` in `from` units as `to` units, floored; `None` on overflow.
pub fn convert_unit(value: i64, from: TimeUnit, to: TimeUnit) -> Option<i64> {
    let shift = digits_of(to) - digits_of(from);
    let factor = 10i64.pow(shift.unsigned_abs());
    if shift >= 0 { value.checked_mul(factor) } else { Some(value.div_euclid(factor)) }
}

fn from_number(number: &Number, from: TimeUnit, unit: TimeUnit) -> Result<i64, Why> {
    let value = scaled(number, digits_of(unit) - digits_of(from), true)?;
    i64::try_from(value).map_err(|_| Why::Range)
}

fn from_seconds(seconds: i64, nanos: i64, unit: TimeUnit) -> Result<i64, Why> {
    let per_second = 10i64.pow(digits_of(unit).unsigned_abs());
    // In 128 bits, since the sum may fit where the product alone does not.
    let value = i128::from(seconds) * i128::from(per_second) + i128::from(nanos / (1_000_000_000 / per_second));
    i64::try_from(value).map_err(|_| Why::Range)
}

fn pair(text: &[u8]) -> Option<(i64, &[u8])> {
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] => Some((i64::from(a - b'0') * 10 + i64::from(b - b'0'), rest)),
        _ => None,
    }
}

fn after(text: &[u8], byte: u8) -> Option<&[u8]> {
    match text {
        [first, rest @ ..] if *first == byte => Some(rest),
        _ => None,
    }
}

fn date_prefix(text: &[u8]) -> Result<(i64, &[u8]), Why> {
    let parts = || {
        let (century, rest) = pair(text)?;
        let (year, rest) = pair(rest)?;
        let (month, rest) = pair(after(rest, b'-')?)?;
        let (day, rest) = pair(after(rest, b'-')?)?;
        Some((century * 100 + year, month, day, rest))
    };
    let (year, month, day, rest) = parts().ok_or(Why::Shape)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return Err(Why::Shape),
    };
    if day < 1 || day > days_in_month {
        return Err(Why::Shape);
    }
    // Days of whole years counted from March, so that the leap day ends a year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let before_month = (153 * month + 2) / 5;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + before_month + day - 1;
    Ok((days - 719_468, rest))
}

/// Seconds since 1970 and nanoseconds within the second.
fn stamp(text: &[u8]) -> Result<(i64, i64), Why> {
    let (days, rest) = date_prefix(text)?;
    let midnight = days * 86_400;
    let rest = match rest {
        [] => return Ok((midnight, 0)),
        [b'T' | b't' | b' ', rest @ ..] => rest,
        _ => return Err(Why::Shape),
    };
    let clock = || {
        let (hour, rest) = pair(rest)?;
        let (minute, rest) = pair(after(rest, b':')?)?;
        let (second, rest) = match after(rest, b':') {
            Some(rest) => pair(rest)?,
            None => (0, rest),
        };
        (hour < 24 && minute < 60 && second <= 60).then_some((hour * 3600 + minute * 60 + second, rest))
    };
    let (seconds, mut rest) = clock().ok_or(Why::Shape)?;
    let mut nanos = 0;
    if let Some(fraction) = after(rest, b'.') {
        let count = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 {
            return Err(Why::Shape);
        }
        let (digits, tail) = fraction.split_at(count);
        let mut unit = 100_000_000;
        for digit in digits.iter().take(9) {
            nanos += i64::from(digit - b'0') * unit;
            unit /= 10;
        }
        rest = tail;
    }
    Ok((midnight + seconds - zone(rest)?, nanos))
}

/// Seconds east of Greenwich: nothing, `Z`, `+02`, `+02:00`, `+0200`, a space before them allowed.
fn zone(text: &[u8]) -> Result<i64, Why> {
    let text = text.trim_ascii_start();
    let (sign, rest) = match text {
        [] | [b'Z' | b'z'] => return Ok(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(Why::Shape),
    };
    let (hours, rest) = pair(rest).ok_or(Why::Shape)?;
    let rest = after(rest, b':').unwrap_or(rest);
    let (minutes, rest) = if rest.is_empty() { (0, rest) } else { pair(rest).ok_or(Why::Shape)? };
    if !rest.is_empty() || hours > 18 || minutes > 59 {
        return Err(Why::Shape);
    }
    Ok(sign * (hours * 3600 + minutes * 60))
}

/// The text of a number as JSON or SQL writes it, exact. More than 38 significant digits are out
/// of range for every type that asks.
fn number(text: &[u8]) -> Result<Number, Why> {
    let text = text.trim_ascii();
    let (negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (mut mantissa, mut exponent) = (0i128, 0i32);
    let (mut digits, mut significant, mut pending_zeros, mut point) = (0usize, 0usize, 0usize, false);
    while let [byte, tail @ ..] = rest {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                exponent = exponent.saturating_sub(i32::from(point));
                // Zeros are held back until a digit follows: 1e400 written out has trailing ones.
                if *byte == b'0' {
                    pending_zeros += usize::from(significant > 0);
                } else {
                    significant += pending_zeros + 1;
                    if significant > DIGITS_MAX {
                        return out_of_range(rest);
                    }
                    let power = 10i128.pow(u32::try_from(pending_zeros).map_err(|_| Why::Range)? + 1);
                    mantissa = mantissa * power + i128::from(byte - b'0');
                    pending_zeros = 0;
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if digits > 0 => {
                exponent = exponent.saturating_add(exponent_of(tail)?);
                break;
            }
            _ => return Err(Why::Shape),
        }
        rest = tail;
    }
    if digits == 0 {
        return Err(Why::Shape);
    }
    let zeros = i32::try_from(pending_zeros).map_err(|_| Why::Range)?;
    let mantissa = if negative { -mantissa } else { mantissa };
    Ok(Number { mantissa, exponent: exponent.saturating_add(zeros) })
}

/// Tells a number that is too long from text that merely begins like one.
fn out_of_range(rest: &[u8]) -> Result<Number, Why> {
    let numeric = rest.iter().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    Err(if numeric { Why::Range } else { Why::Shape })
}

fn exponent_of(text: &[u8]) -> Result<i32, Why> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Why::Shape);
    }
    let size = digits.iter().fold(0i32, |sum, d| sum.saturating_mul(10).saturating_add(i32::from(d - b'0')));
    let size = size.min(1_000_000);
    Ok(if negative { -size } else { size })
}

/// `number * 10^shift` as a whole number; a fraction is floored or refused.
fn scaled(number: &Number, shift: i32, floor: bool) -> Result<i128, Why> {
    if number.mantissa == 0 {
        return Ok(0);
    }
    let power = number.exponent.saturating_add(shift);
    if power >= 0 {
        let factor = 10i128.checked_pow(power.unsigned_abs()).ok_or(Why::Range)?;
        return number.mantissa.checked_mul(factor).ok_or(Why::Range);
    }
    let Some(divisor) = 10i128.checked_pow(power.unsigned_abs()) else {
        return if floor { Ok(if number.mantissa < 0 { -1 } else { 0 }) } else { Err(Why::Shape) };
    };
    if !floor && number.mantissa % divisor != 0 {
        return Err(Why::Shape);
    }
    Ok(number.mantissa.div_euclid(divisor))
}

#[cfg(test)]
mod tests;
