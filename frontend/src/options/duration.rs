//! Durations: integers are milliseconds, text has units.

/// Milliseconds of `10s`, `500ms`, `1h30m`, `5 minutes`, `-2s` or a bare integer.
///
/// Errors: what is wrong, as text.
pub fn parse(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    if let Ok(ms) = trimmed.parse::<i64>() {
        return Ok(ms);
    }
    let (negative, mut rest) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, trimmed),
    };
    let wrong = || format!("'{}' is not a duration: one is written as '10s', '500ms', '1m', '2h' or '1d'", super::scalar::shown(text));
    let mut total = 0i64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(letters);
        let scale = match unit {
            "ms" | "millisecond" | "milliseconds" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return Err(wrong()),
        };
        let number: i64 = number.parse().map_err(|_| wrong())?;
        total = number
            .checked_mul(scale)
            .and_then(|ms| total.checked_add(ms))
            .ok_or_else(|| format!("'{}' is too long a duration", super::scalar::shown(text)))?;
        rest = after.trim_start();
    }
    Ok(if negative { -total } else { total })
}
