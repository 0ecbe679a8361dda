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
    let shifted = i128::from(time) - i128::from(offset);
    i64::try_from(i128::from(time) - shifted.rem_euclid(i128::from(step))).ok()
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
mod tests {
    use super::{Aligned, DAY_MS, OutOfRange, Pane, Zone};
    use proptest::prelude::*;

    /// Every window that holds `time`, from the definition: (start, end).
    fn holding(windows: &Aligned, time: i64) -> Vec<(i64, i64)> {
        let near = |step: i64, reach: i64| (time - reach - 2 * step..=time + reach + 2 * step).collect::<Vec<_>>();
        let all: Vec<(i64, i64)> = match *windows {
            Aligned::Tumbling { size_ms, offset_ms } => {
                near(size_ms, size_ms).into_iter().filter(|s| (s - offset_ms) % size_ms == 0).map(|s| (s, s + size_ms)).collect()
            }
            Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
                near(slide_ms, size_ms).into_iter().filter(|s| (s - offset_ms) % slide_ms == 0).map(|s| (s, s + size_ms)).collect()
            }
            Aligned::Cumulate { max_size_ms, step_ms, offset_ms } => near(max_size_ms, max_size_ms)
                .into_iter()
                .filter(|s| (s - offset_ms) % max_size_ms == 0)
                .flat_map(|s| (1..=max_size_ms / step_ms).map(move |n| (s, s + n * step_ms)))
                .collect(),
            Aligned::Calendar { .. } => unreachable!("has its own test"),
        };
        all.into_iter().filter(|(start, end)| *start <= time && time < *end).collect()
    }

    /// Every window that the panes of a time say that it lies in.
    fn told(windows: &Aligned, time: i64) -> Vec<(i64, i64)> {
        let (mut told, mut next) = (Vec::new(), windows.pane(time).unwrap());
        while let Some(pane) = next {
            let mut end = pane.end_after(i64::MIN);
            while let Some(at) = end {
                let start = if windows.keeps_own() { pane.start_ms } else { windows.start_of(at).unwrap() };
                told.push((start, at));
                end = pane.end_after(at);
            }
            assert!(pane.start_ms <= time && (windows.keeps_own() || time < pane.end_ms), "{pane:?} does not hold {time}");
            next = windows.next_pane(time, &pane).unwrap();
        }
        told
    }

    fn shapes() -> impl Strategy<Value = Aligned> {
        let offset = -50i64..50;
        prop_oneof![
            (1i64..20, offset.clone()).prop_map(|(size_ms, offset_ms)| Aligned::Tumbling { size_ms, offset_ms }),
            (1i64..20, 1i64..20, offset.clone()).prop_map(|(size_ms, slide_ms, offset_ms)| Aligned::Sliding {
                size_ms,
                slide_ms,
                offset_ms
            }),
            (2_000i64..2_100, 1i64..2, offset.clone()).prop_map(|(size_ms, slide_ms, offset_ms)| Aligned::Sliding {
                size_ms,
                slide_ms,
                offset_ms
            }),
            (1i64..6, 1i64..6, offset).prop_map(|(n, step_ms, offset_ms)| Aligned::Cumulate {
                max_size_ms: n * step_ms,
                step_ms,
                offset_ms
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// WIN-1: a time lies in exactly the windows of the definition, and in no other.
        #[test]
        fn windows_of_a_time(windows in shapes(), time in -200i64..200) {
            let mut told = told(&windows, time);
            told.sort_unstable();
            let mut holding = holding(&windows, time);
            holding.sort_unstable();
            prop_assert_eq!(told, holding);
        }

        /// Ends follow one another without leaving one out.
        #[test]
        fn ends_in_order(windows in shapes(), from in -200i64..200) {
            let end = windows.end_after(from).unwrap();
            prop_assert!(end > from);
            prop_assert!(holding(&windows, end - 1).iter().any(|(_, other)| *other == end));
            let between = (from..end - 1).rev().take(30).flat_map(|time| holding(&windows, time)).map(|(_, end)| end);
            prop_assert!(between.into_iter().all(|other| other <= from || other >= end));
        }
    }

    /// C01: size 5, slide 2.
    #[test]
    fn size_need_not_be_a_multiple_of_slide() {
        let windows = Aligned::Sliding { size_ms: 5_000, slide_ms: 2_000, offset_ms: 0 };
        assert_eq!(told(&windows, 3_000), [(0, 5_000), (2_000, 7_000)]);
        assert_eq!(told(&windows, 0), [(-4_000, 1_000), (-2_000, 3_000), (0, 5_000)]);
    }

    /// C02: before 1970 windows lie as after it.
    #[test]
    fn negative_times_are_floored() {
        assert_eq!(told(&Aligned::Tumbling { size_ms: 10, offset_ms: 0 }, -15), [(-20, -10)]);
    }

    /// A slide above the size leaves gaps.
    #[test]
    fn gaps_have_no_window() {
        let windows = Aligned::Sliding { size_ms: 2, slide_ms: 5, offset_ms: 0 };
        assert_eq!(windows.pane(3), Ok(None));
        assert_eq!(told(&windows, 6), [(5, 7)]);
    }

    /// E2: what leaves the range is told, not wrapped.
    #[test]
    fn range_ends_are_told() {
        let windows = Aligned::Tumbling { size_ms: 10, offset_ms: 0 };
        assert_eq!(windows.pane(i64::MAX), Err(OutOfRange(i64::MAX)));
        assert_eq!(windows.pane(i64::MIN), Err(OutOfRange(i64::MIN)));
        assert!(windows.pane(i64::MAX - 20).is_ok());
        let pane = Pane { start_ms: 0, end_ms: 1, first_end_ms: i64::MAX - 3, last_end_ms: i64::MAX - 1, step_ms: 2 };
        assert_eq!(pane.end_after(i64::MAX - 3), Some(i64::MAX - 1));
        assert_eq!(pane.end_after(i64::MAX - 1), None);
    }

    fn at(text: &str) -> i64 {
        chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    /// C15: 23 and 25 hour days of Berlin, and the days around them.
    #[test]
    fn days_of_berlin() {
        let windows = Aligned::Calendar { days: 1, offset_ms: 0, zone: Zone::named("Europe/Berlin").unwrap() };
        let day = |time: &str| {
            let pane = windows.pane(at(time)).unwrap().unwrap();
            assert_eq!(windows.start_of(pane.first_end_ms), Some(pane.start_ms));
            assert_eq!(windows.end_after(at(time)), Some(pane.end_ms));
            (pane.start_ms, pane.end_ms)
        };
        assert_eq!(day("2026-03-29T00:30:00Z"), (at("2026-03-28T23:00:00Z"), at("2026-03-29T22:00:00Z")));
        assert_eq!(day("2026-03-28T22:59:59.999Z"), (at("2026-03-27T23:00:00Z"), at("2026-03-28T23:00:00Z")));
        let (start, end) = day("2026-10-25T12:00:00Z");
        assert_eq!((start, end), (at("2026-10-24T22:00:00Z"), at("2026-10-25T23:00:00Z")));
        assert_eq!(end - start, 25 * 3_600_000);
    }

    /// Midnight that a clock leaps over (Beirut 2021), and clocks put back over midnight (Havana 2026).
    #[test]
    fn days_whose_midnight_is_odd() {
        for name in ["Asia/Beirut", "America/Havana", "America/Sao_Paulo", "Africa/Cairo", "Pacific/Apia", "Asia/Kolkata", "UTC"] {
            let windows = Aligned::Calendar { days: 1, offset_ms: 0, zone: Zone::named(name).unwrap() };
            let mut last = windows.pane(at("2008-01-01T12:00:00Z")).unwrap().unwrap();
            while last.end_ms < at("2027-01-01T00:00:00Z") {
                let next = windows.pane(last.end_ms).unwrap().unwrap();
                assert_eq!(next.start_ms, last.end_ms, "{name}: days do not meet");
                assert_eq!(windows.pane(next.end_ms - 1).unwrap(), Some(next), "{name}");
                assert!((20 * 3_600_000..=48 * 3_600_000).contains(&(next.end_ms - next.start_ms)), "{name}: {next:?}");
                last = next;
            }
        }
        let days = Aligned::Calendar { days: 7, offset_ms: 6 * 3_600_000, zone: Zone::named("Europe/Berlin").unwrap() };
        let week = days.pane(at("2026-03-29T12:00:00Z")).unwrap().unwrap();
        assert_eq!(week.end_ms - week.start_ms, 7 * DAY_MS - 3_600_000, "a week from Thursday six o'clock with a short Sunday");
        assert_eq!(week.start_ms, at("2026-03-26T05:00:00Z"));
    }
}
