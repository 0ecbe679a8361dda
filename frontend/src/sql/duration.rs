//! Lengths of time in statements: intervals of fixed length, and time-outs.

use std::time::Duration;

/// Longest time-out, which holds a connection: a day.
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

/// Milliseconds of an interval of fixed length.
pub(crate) fn interval_ms(text: &str) -> Result<i64, String> {
    let parsed = arrow::compute::kernels::cast_utils::parse_interval_month_day_nano(text)
        .map_err(|_| format!("'{text}' is not an interval: write for example '5 seconds'"))?;
    interval_parts_ms(parsed.months, parsed.days, parsed.nanoseconds)
}

/// Milliseconds of months, days and nanoseconds.
///
/// Errors: text that says why there is no such number.
pub(crate) fn interval_parts_ms(months: i32, days: i32, nanos: i64) -> Result<i64, String> {
    if months != 0 {
        return Err("months and years have no fixed length: use days, hours, minutes or seconds".to_owned());
    }
    if nanos % 1_000_000 != 0 {
        return Err("the finest unit here is the millisecond".to_owned());
    }
    Ok(i64::from(days) * 86_400_000 + nanos / 1_000_000)
}

/// `500ms`, `30s`, `5m`, `1h`, or an interval text such as `5 minutes`.
pub(crate) fn timeout(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let ms = match scale {
        Some(scale) => number.parse::<u64>().ok()?.checked_mul(scale)?,
        None => u64::try_from(interval_ms(text).ok()?).ok()?,
    };
    Some(Duration::from_millis(ms)).filter(|duration| *duration <= TIMEOUT_MAX)
}
