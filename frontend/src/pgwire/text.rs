//! Postgres' text forms of values.

use bytes::{BufMut, BytesMut};
use std::fmt::Write;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// An integer.
pub(super) fn integer(out: &mut BytesMut, value: i64) {
    let _ = write!(out, "{value}");
}

/// A float from its shortest exponent form; `digits` is where Postgres turns to an exponent.
pub(super) fn float(out: &mut BytesMut, shortest: &str, digits: i32) {
    let plain = match shortest {
        "NaN" => "NaN",
        "inf" => "Infinity",
        "-inf" => "-Infinity",
        _ => "",
    };
    if !plain.is_empty() {
        out.put_slice(plain.as_bytes());
        return;
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let all: String = mantissa.chars().filter(|c| *c != '.').collect();
    out.put_slice(sign.as_bytes());
    if exponent < -4 || exponent >= digits {
        let (first, rest) = all.split_at(all.len().min(1));
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{first}{point}{rest}e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
        let _ = write!(out, "0.{}{all}", "0".repeat(zeros));
    } else {
        let whole = usize::try_from(exponent + 1).unwrap_or(1);
        if all.len() <= whole {
            let _ = write!(out, "{all}{}", "0".repeat(whole - all.len()));
        } else {
            let (left, right) = all.split_at(whole);
            let _ = write!(out, "{left}.{right}");
        }
    }
}

/// BYTEA in hexadecimal.
pub(super) fn bytes(out: &mut BytesMut, value: &[u8]) {
    out.put_slice(b"\\x");
    for byte in value {
        let _ = write!(out, "{byte:02x}");
    }
}

/// Year, month and day of a day since 1970, for every day that fits (proleptic Gregorian).
fn civil(day: i64) -> (i64, i64, i64) {
    // Count from March of year 0, in eras of 400 years: the leap day is then the last of its year.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Puts the day; true when the year is before Christ and has to be marked at the end.
fn put_day(out: &mut BytesMut, day: i64) -> bool {
    let (year, month, day) = civil(day);
    // There is no year 0: it is 1 BC.
    let (year, before) = if year > 0 { (year, false) } else { (1 - year, true) };
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
    before
}

/// DATE from days since 1970.
pub(super) fn date(out: &mut BytesMut, day: i32) {
    if put_day(out, i64::from(day)) {
        out.put_slice(b" BC");
    }
}

/// TIME from microseconds of the day.
pub(super) fn time(out: &mut BytesMut, micros: i64) {
    let seconds = micros.div_euclid(1_000_000);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    fraction(out, micros.rem_euclid(1_000_000));
}

/// Digits after the second without zeros at the end.
fn fraction(out: &mut BytesMut, micros: i64) {
    if micros != 0 {
        let digits = format!("{micros:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// TIMESTAMP, or TIMESTAMPTZ in UTC, from microseconds since 1970.
pub(super) fn stamp(out: &mut BytesMut, micros: i64, zoned: bool) {
    match micros {
        i64::MAX => out.put_slice(b"infinity"),
        i64::MIN => out.put_slice(b"-infinity"),
        _ => {
            let before = put_day(out, micros.div_euclid(MICROS_PER_DAY));
            out.put_u8(b' ');
            time(out, micros.rem_euclid(MICROS_PER_DAY));
            if zoned {
                out.put_slice(b"+00");
            }
            if before {
                out.put_slice(b" BC");
            }
        }
    }
}

/// INTERVAL in Postgres' own style.
pub(super) fn interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    let mut parts = Vec::new();
    let mut negative_before = false;
    let (years, months) = (months / 12, months % 12);
    for (value, unit) in [(years, "year"), (months, "mon"), (days, "day")] {
        if value != 0 {
            // After a negative part a positive one gets its sign.
            let sign = if negative_before && value > 0 { "+" } else { "" };
            negative_before = value < 0;
            parts.push(format!("{sign}{value} {unit}{}", if value == 1 { "" } else { "s" }));
        }
    }
    if micros != 0 || parts.is_empty() {
        let sign = if micros < 0 {
            "-"
        } else if negative_before {
            "+"
        } else {
            ""
        };
        let size = micros.unsigned_abs();
        let seconds = size / 1_000_000;
        let mut clock = BytesMut::new();
        let _ = write!(clock, "{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
        fraction(&mut clock, i64::try_from(size % 1_000_000).unwrap_or(0));
        parts.push(String::from_utf8_lossy(&clock).into_owned());
    }
    out.put_slice(parts.join(" ").as_bytes());
}

/// An element inside `{…}`, quoted where it must be.
pub(super) fn array_element(out: &mut BytesMut, text: &[u8]) {
    let special = |byte: &u8| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace();
    if !text.is_empty() && !text.iter().any(special) && !text.eq_ignore_ascii_case(b"null") {
        out.put_slice(text);
        return;
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}
