//! Panes and windows against their definition, days of time zones, and the ends of the range.

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
        (1i64..20, 1i64..20, offset.clone()).prop_map(|(size_ms, slide_ms, offset_ms)| Aligned::Sliding { size_ms, slide_ms, offset_ms }),
        (2_000i64..2_100, 1i64..2, offset.clone()).prop_map(|(size_ms, slide_ms, offset_ms)| Aligned::Sliding {
            size_ms,
            slide_ms,
            offset_ms
        }),
        (1i64..6, 1i64..6, offset).prop_map(|(n, step_ms, offset_ms)| Aligned::Cumulate { max_size_ms: n * step_ms, step_ms, offset_ms }),
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
        prop_assert_eq!(windows.last_end(time), Ok(holding.iter().map(|(_, end)| *end).max()));
        prop_assert_eq!(told, holding);
        if let Some(pane) = windows.pane(time).unwrap() {
            prop_assert_eq!(windows.pane_named(pane.start_ms, pane.first_end_ms), Some(pane));
            prop_assert!(pane.holds(pane.first_end_ms) && pane.holds(pane.last_end_ms) && !pane.holds(pane.last_end_ms + pane.step_ms));
        }
    }

    /// Ends follow one another without leaving one out.
    #[test]
    fn ends_in_order(windows in shapes(), from in -200i64..200) {
        let end = windows.end_after(from).unwrap();
        prop_assert!(end > from);
        prop_assert!(holding(&windows, end - 1).iter().any(|(_, other)| *other == end));
        let between = (from..end - 1).rev().take(30).flat_map(|time| holding(&windows, time)).map(|(_, end)| end);
        prop_assert!(between.into_iter().all(|other| other <= from || other >= end));
        let through = windows.end_through(from).unwrap();
        prop_assert!(through <= from);
        prop_assert_eq!(windows.end_after(through), Some(end), "no end lies between");
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
