//! Days of a time zone, found by walking through time until the local date is another.

use crate::shape::Span;
use chrono::{DateTime, Datelike, Duration};
use chrono_tz::Tz;
use std::cell::RefCell;
use std::collections::BTreeMap;

const DAY: i128 = 86_400_000;

thread_local! {
    /// Walks are long, and tests ask for the same days again.
    static WALKED: RefCell<BTreeMap<(String, i64, i128), i128>> = RefCell::default();
}

/// Local date at `time`, its clock set back by `offset`, as days since 1970-01-01.
fn date(zone: Tz, offset: i64, time: i128) -> i128 {
    let utc = DateTime::from_timestamp_millis(time as i64).unwrap_or_default();
    let local = utc.with_timezone(&zone).naive_local() - Duration::milliseconds(offset);
    i128::from(local.date().num_days_from_ce()) - 719_163
}

/// The first ms at which the date is `day` or later.
fn begins(name: &str, offset: i64, day: i128) -> i128 {
    let key = (name.to_owned(), offset, day);
    if let Some(known) = WALKED.with_borrow(|walked| walked.get(&key).copied()) {
        return known;
    }
    let zone: Tz = name.parse().unwrap_or(Tz::UTC);
    let mut time = (day - 1) * DAY - DAY / 2 + i128::from(offset);
    for step in [3_600_000, 60_000, 1_000, 1] {
        while date(zone, offset, time + step) < day {
            time += step;
        }
    }
    WALKED.with_borrow_mut(|walked| walked.insert(key, time + 1));
    time + 1
}

/// The window of `days` days that holds `time`.
pub(crate) fn window(name: &str, days: i64, offset: i64, time: i128) -> Span {
    let days = i128::from(days);
    let mut first = (time / DAY / days - 2 - i128::from(offset) / DAY / days) * days;
    while begins(name, offset, first + days) <= time {
        first += days;
    }
    while begins(name, offset, first) > time {
        first -= days;
    }
    Span { start: begins(name, offset, first), end: begins(name, offset, first + days) }
}

#[cfg(test)]
mod tests {
    use super::window;

    const HOUR: i128 = 3_600_000;

    /// C15: the day on which clocks go forward in Berlin has 23 hours, the one on which they go back 25.
    #[test]
    fn days_follow_their_zone() {
        // 2026-03-28T23:00Z to 2026-03-29T22:00Z; 2026-10-24T22:00Z to 2026-10-25T23:00Z.
        let (spring, autumn) = (1_774_738_800_000_i128, 1_792_879_200_000_i128);
        let day = window("Europe/Berlin", 1, 0, spring);
        assert_eq!((day.start, day.end), (spring, spring + 23 * HOUR));
        assert_eq!(window("Europe/Berlin", 1, 0, spring + 23 * HOUR - 1), day);
        assert_eq!(window("Europe/Berlin", 1, 0, spring - 1).end, spring);
        let day = window("Europe/Berlin", 1, 0, autumn + 12 * HOUR);
        assert_eq!((day.start, day.end), (autumn, autumn + 25 * HOUR));
        // Days that begin at six in the morning: 2026-03-28T05:00Z to 2026-03-29T04:00Z.
        let day = window("Europe/Berlin", 1, 6 * 3_600_000, spring);
        assert_eq!((day.start, day.end), (spring - 18 * HOUR, spring + 5 * HOUR));
        assert_eq!(window("UTC", 7, 0, -1), crate::shape::Span { start: -7 * 24 * HOUR, end: 0 });
    }
}
