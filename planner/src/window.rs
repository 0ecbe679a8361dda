//! How windows are cut out of time, and the arithmetic that follows (WIN-1).
//!
//! Rows are kept by **pane**: a stretch of time that lies wholly in or wholly out of every window,
//! so that windows that overlap share what they have in common. A tumbling window is one pane.
//! All lengths and times are milliseconds; a start is floored, so that times before 1970 land
//! right (C02); what leaves the range of i64 is `None`.

use chrono::{Offset, TimeZone};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

/// Most panes that a window may have; where more would be needed each window keeps its own rows.
pub const PANES_MAX: i64 = 1_024;
/// Milliseconds of a day of 24 hours.
pub const DAY_MS: i64 = 86_400_000;

/// What windows a window operator has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// The same for every row.
    Aligned(Aligned),
    /// Of each key: rows with less than the gap between neighbours.
    Session {
        /// Silence that ends one; positive.
        gap_ms: i64,
    },
}

/// Windows that do not depend on what rows there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aligned {
    /// Back to back.
    Tumbling {
        /// Length; positive.
        size_ms: i64,
        /// Shift of the boundaries; any.
        offset_ms: i64,
    },
    /// `[k * slide + offset, k * slide + offset + size)` for every k; there may be gaps between them.
    Sliding {
        /// Length; positive.
        size_ms: i64,
        /// Distance of starts; positive.
        slide_ms: i64,
        /// Shift of the starts; any.
        offset_ms: i64,
    },
    /// Windows that grow by a step until they begin anew.
    Cumulate {
        /// Longest; a multiple of the step.
        max_size_ms: i64,
        /// Growth; positive.
        step_ms: i64,
        /// Shift; any.
        offset_ms: i64,
    },
    /// Back to back, each so many days of a time zone: 23 or 25 hours long where clocks change (C15).
    Calendar {
        /// Days of one; positive.
        days: i64,
        /// Shift of the boundaries in local time; any.
        offset_ms: i64,
        /// Where.
        zone: Zone,
    },
}

/// A time zone of the IANA database, by its name in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(Tz);

impl TryFrom<String> for Zone {
    type Error = String;
    fn try_from(name: String) -> Result<Self, String> {
        Zone::named(&name).ok_or_else(|| format!("time zone '{name}' is not known"))
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.0.name().to_owned()
    }
}

/// A stretch of time whose rows are kept together, and the ends of the windows that it lies in:
/// `first_end`, then every `step_ms` up to `last_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pane {
    /// First ms of it. With `first_end_ms` it names the pane.
    pub start_ms: i64,
    /// First ms after it. Where windows keep their own rows, the window's end.
    pub end_ms: i64,
    /// End of the first window.
    pub first_end_ms: i64,
    /// End of the last window.
    pub last_end_ms: i64,
    /// From one end to the next; positive.
    pub step_ms: i64,
}

impl Pane {
    /// End of the first window of the pane that ends after `ms`.
    pub fn end_after(&self, ms: i64) -> Option<i64> {
        if ms < self.first_end_ms {
            return Some(self.first_end_ms);
        }
        let past = (i128::from(ms) - i128::from(self.first_end_ms)).div_euclid(i128::from(self.step_ms)) + 1;
        let end = i64::try_from(i128::from(self.first_end_ms) + past * i128::from(self.step_ms)).ok()?;
        (end <= self.last_end_ms).then_some(end)
    }

    /// Whether the pane lies in the window that ends at `end_ms`.
    pub fn holds(&self, end_ms: i64) -> bool {
        end_ms >= self.first_end_ms
            && end_ms <= self.last_end_ms
            && end_ms.abs_diff(self.first_end_ms).is_multiple_of(self.step_ms.unsigned_abs())
    }

    /// How many windows the pane lies in.
    pub fn windows(&self) -> u64 {
        (self.last_end_ms.abs_diff(self.first_end_ms) / self.step_ms.unsigned_abs()) + 1
    }
}

impl Zone {
    /// The zone of this name.
    pub fn named(name: &str) -> Option<Zone> {
        name.parse().ok().map(Zone)
    }

    /// Every name that is known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Local time of an instant, as ms since 1970 by the local clock.
    fn local(&self, utc_ms: i64) -> Option<i64> {
        let offset = self.0.offset_from_utc_datetime(&chrono::DateTime::from_timestamp_millis(utc_ms)?.naive_utc());
        utc_ms.checked_add(i64::from(offset.fix().local_minus_utc()) * 1_000)
    }

    /// First instant at which the local clock shows `local_ms` or, where it leaps over that, more.
    fn instant(&self, local_ms: i64) -> Option<i64> {
        let local = chrono::DateTime::from_timestamp_millis(local_ms)?.naive_utc();
        match self.0.from_local_datetime(&local) {
            chrono::LocalResult::Single(found) => Some(found.timestamp_millis()),
            chrono::LocalResult::Ambiguous(first, _) => Some(first.timestamp_millis()),
            chrono::LocalResult::None => {
                // Zones lie within a day of UTC, and a leap is no longer than a day.
                let (mut before, mut after) = (local_ms.checked_sub(2 * DAY_MS)?, local_ms.checked_add(2 * DAY_MS)?);
                while after - before > 1 {
                    let middle = before + (after - before) / 2;
                    if self.local(middle)? >= local_ms { after = middle } else { before = middle }
                }
                Some(after)
            }
        }
    }
}

/// Greatest `k * step + offset` that is not above `time`.
fn floor(time: i64, step: i64, offset: i64) -> Option<i64> {
    match time.checked_sub(offset.rem_euclid(step)) {
        Some(shifted) => time.checked_sub(shifted.rem_euclid(step)),
        None => {
            let shifted = i128::from(time) - i128::from(offset);
            i64::try_from(i128::from(time) - shifted.rem_euclid(i128::from(step))).ok()
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Aligned {
    /// Whether windows keep their own rows: then a row lies in several panes, one for each window.
    pub fn keeps_own(&self) -> bool {
        match self {
            Aligned::Sliding { size_ms, slide_ms, .. } => size_ms / gcd(*size_ms, *slide_ms) > PANES_MAX,
            Aligned::Cumulate { max_size_ms, step_ms, .. } => max_size_ms / step_ms > PANES_MAX,
            Aligned::Tumbling { .. } | Aligned::Calendar { .. } => false,
        }
    }

    /// The pane of a time: the first of them where windows keep their own rows. `Ok(None)`: no window
    /// holds the time, which lies in a gap between sliding windows.
    ///
    /// Errors: a pane or window that is out of range.
    pub fn pane(&self, time: i64) -> Result<Option<Pane>, OutOfRange> {
        self.pane_within(time).ok_or(OutOfRange(time)).map(|pane| pane.filter(|pane| pane.first_end_ms > time))
    }

    /// The next pane of the same time, where windows keep their own rows.
    ///
    /// Errors: a pane that is out of range.
    pub fn next_pane(&self, time: i64, pane: &Pane) -> Result<Option<Pane>, OutOfRange> {
        if !self.keeps_own() {
            return Ok(None);
        }
        let next = match self {
            Aligned::Sliding { size_ms, slide_ms, .. } => {
                let start = pane.start_ms.checked_add(*slide_ms).ok_or(OutOfRange(time))?;
                if start > time {
                    return Ok(None);
                }
                single(start, start.checked_add(*size_ms))
            }
            Aligned::Cumulate { max_size_ms, step_ms, .. } => {
                let last = pane.start_ms.checked_add(*max_size_ms).ok_or(OutOfRange(time))?;
                if pane.end_ms >= last {
                    return Ok(None);
                }
                single(pane.start_ms, pane.end_ms.checked_add(*step_ms))
            }
            Aligned::Tumbling { .. } | Aligned::Calendar { .. } => return Ok(None),
        };
        next.map(Some).ok_or(OutOfRange(time))
    }

    fn pane_within(&self, time: i64) -> Option<Option<Pane>> {
        match self {
            Aligned::Tumbling { size_ms, offset_ms } => {
                let start = floor(time, *size_ms, *offset_ms)?;
                single(start, start.checked_add(*size_ms)).map(Some)
            }
            Aligned::Calendar { days, offset_ms, zone } => {
                let (start, end) = day(time, *days, *offset_ms, zone)?;
                single(start, Some(end)).map(Some)
            }
            Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
                let last_start = floor(time, *slide_ms, *offset_ms)?;
                // The first window that holds the time begins after `time - size`.
                let first_start = floor(time.checked_sub(*size_ms)?, *slide_ms, *offset_ms)?.checked_add(*slide_ms)?;
                if first_start > last_start {
                    return Some(None);
                }
                let first_end = first_start.checked_add(*size_ms)?;
                if self.keeps_own() {
                    return single(first_start, Some(first_end)).map(Some);
                }
                let length = gcd(*size_ms, *slide_ms);
                let start_ms = floor(time, length, *offset_ms)?;
                let (end_ms, last_end_ms) = (start_ms.checked_add(length)?, last_start.checked_add(*size_ms)?);
                Some(Some(Pane { start_ms, end_ms, first_end_ms: first_end, last_end_ms, step_ms: *slide_ms }))
            }
            Aligned::Cumulate { max_size_ms, step_ms, offset_ms } => {
                let start = floor(time, *max_size_ms, *offset_ms)?;
                let pane_start = floor(time, *step_ms, start)?;
                let first_end = pane_start.checked_add(*step_ms)?;
                if self.keeps_own() {
                    return single(start, Some(first_end)).map(Some);
                }
                let last_end_ms = start.checked_add(*max_size_ms)?;
                Some(Some(Pane { start_ms: pane_start, end_ms: first_end, first_end_ms: first_end, last_end_ms, step_ms: *step_ms }))
            }
        }
    }

    /// Start of the window that ends at `end`; `None` where it is out of range. `end` is the end of a window.
    pub fn start_of(&self, end: i64) -> Option<i64> {
        match self {
            Aligned::Tumbling { size_ms, .. } | Aligned::Sliding { size_ms, .. } => end.checked_sub(*size_ms),
            Aligned::Cumulate { max_size_ms, offset_ms, .. } => floor(end.checked_sub(1)?, *max_size_ms, *offset_ms),
            Aligned::Calendar { days, offset_ms, zone } => Some(day(end.checked_sub(1)?, *days, *offset_ms, zone)?.0),
        }
    }

    /// End of the first window that ends after `ms`; `None` where it is out of range.
    pub fn end_after(&self, ms: i64) -> Option<i64> {
        match self {
            Aligned::Tumbling { size_ms, offset_ms } => floor(ms, *size_ms, *offset_ms)?.checked_add(*size_ms),
            Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
                floor(ms.checked_sub(*size_ms)?, *slide_ms, *offset_ms)?.checked_add(*slide_ms)?.checked_add(*size_ms)
            }
            Aligned::Cumulate { max_size_ms, step_ms, offset_ms } => {
                floor(ms, *step_ms, floor(ms, *max_size_ms, *offset_ms)?)?.checked_add(*step_ms)
            }
            Aligned::Calendar { days, offset_ms, zone } => Some(day(ms, *days, *offset_ms, zone)?.1),
        }
    }

    /// End of the last window that ends at or before `ms`; `None` where it is out of range.
    pub fn end_through(&self, ms: i64) -> Option<i64> {
        match self {
            Aligned::Tumbling { size_ms, offset_ms } => floor(ms, *size_ms, *offset_ms),
            Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
                floor(ms.checked_sub(*size_ms)?, *slide_ms, *offset_ms)?.checked_add(*size_ms)
            }
            Aligned::Cumulate { step_ms, offset_ms, .. } => floor(ms, *step_ms, *offset_ms),
            Aligned::Calendar { days, offset_ms, zone } => Some(day(ms, *days, *offset_ms, zone)?.0),
        }
    }

    /// End of the last window that holds a time. `Ok(None)`: no window holds it.
    ///
    /// Errors: a window that is out of range.
    pub fn last_end(&self, time: i64) -> Result<Option<i64>, OutOfRange> {
        let end = match self {
            Aligned::Tumbling { size_ms, offset_ms } => floor(time, *size_ms, *offset_ms).and_then(|start| start.checked_add(*size_ms)),
            Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
                floor(time, *slide_ms, *offset_ms).and_then(|start| start.checked_add(*size_ms))
            }
            Aligned::Cumulate { max_size_ms, offset_ms, .. } => {
                floor(time, *max_size_ms, *offset_ms).and_then(|start| start.checked_add(*max_size_ms))
            }
            Aligned::Calendar { days, offset_ms, zone } => day(time, *days, *offset_ms, zone).map(|(_, end)| end),
        };
        end.ok_or(OutOfRange(time)).map(|end| (end > time).then_some(end))
    }

    /// The pane that starts at `start_ms`, of which only the windows from the one that ends at
    /// `first_end_ms` on count: what its rows are stored under. `None`: there is no such pane.
    pub fn pane_named(&self, start_ms: i64, first_end_ms: i64) -> Option<Pane> {
        if self.keeps_own() {
            return if start_ms < first_end_ms { single(start_ms, Some(first_end_ms)) } else { None };
        }
        let pane = self.pane(start_ms).ok()??;
        let past = first_end_ms.checked_sub(pane.first_end_ms)?;
        let counts = pane.start_ms == start_ms && past >= 0 && first_end_ms <= pane.last_end_ms && past % pane.step_ms == 0;
        counts.then_some(Pane { first_end_ms, ..pane })
    }

    /// Longest distance from the start to the end of a window: by how much `window_start` trails (EV-10).
    pub fn longest_ms(&self) -> i64 {
        match self {
            Aligned::Tumbling { size_ms, .. } | Aligned::Sliding { size_ms, .. } => *size_ms,
            Aligned::Cumulate { max_size_ms, .. } => *max_size_ms,
            // Clocks are put back by a day at most.
            Aligned::Calendar { days, .. } => days.saturating_add(1).saturating_mul(DAY_MS),
        }
    }
}

/// A window of its own.
fn single(start_ms: i64, end: Option<i64>) -> Option<Pane> {
    let end_ms = end?;
    Some(Pane { start_ms, end_ms, first_end_ms: end_ms, last_end_ms: end_ms, step_ms: 1 })
}

/// The days of a zone that hold an instant: from when to when.
fn day(time: i64, days: i64, offset_ms: i64, zone: &Zone) -> Option<(i64, i64)> {
    let length = days.checked_mul(DAY_MS)?;
    let mut local = floor(zone.local(time)?, length, offset_ms)?;
    loop {
        let (start, end) = (zone.instant(local)?, zone.instant(local.checked_add(length)?)?);
        // Where clocks are put back over midnight the local clock alone does not tell the day.
        if time < start {
            local = local.checked_sub(length)?;
        } else if time >= end {
            local = local.checked_add(length)?;
        } else {
            return Some((start, end));
        }
    }
}

/// The window of an event time is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the window of event time {0} ms is out of range")]
pub struct OutOfRange(pub i64);

#[cfg(test)]
mod tests;
