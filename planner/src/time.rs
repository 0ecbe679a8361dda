//! Event time, watermarks and window arithmetic; the one unit is the millisecond.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since 1970-01-01T00:00:00Z; may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventTime(i64);

impl EventTime {
    /// Wraps milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        EventTime(ms)
    }
    /// The milliseconds.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

/// "Rows with time below this are behind" (EV-2). `Watermark::NONE` before the first row,
/// `Watermark::END` after the last one of a bounded input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Watermark(i64);

impl Watermark {
    /// Nothing is known yet.
    pub const NONE: Watermark = Watermark(i64::MIN);
    /// The end of time: no row follows (EV-6).
    pub const END: Watermark = Watermark(i64::MAX);
    /// Wraps milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Watermark(ms)
    }
    /// The milliseconds.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Watermark::NONE => f.write_str("none"),
            Watermark::END => f.write_str("end"),
            Watermark(ms) => ms.fmt(f),
        }
    }
}

/// Unit of a numeric or timestamp column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Second,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microsecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanosecond,
}

impl TimeUnit {
    /// `value` in this unit as milliseconds, floored (EV-1); `None` on overflow.
    pub const fn to_millis(self, value: i64) -> Option<i64> {
        match self {
            TimeUnit::Second => value.checked_mul(1_000),
            TimeUnit::Millisecond => Some(value),
            TimeUnit::Microsecond => Some(value.div_euclid(1_000)),
            TimeUnit::Nanosecond => Some(value.div_euclid(1_000_000)),
        }
    }
}
