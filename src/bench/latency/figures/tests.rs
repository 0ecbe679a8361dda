//! Latencies by hand.

use super::{Figures, Pace, Results, millis, rank};

/// 50 events a second from 1,000 s on: event n is due 20 n ms later, and events 4 to 49 of each round are bids.
const PACE: Pace = Pace { events_per_second: 50, start_ms: 1_000_000, bids: 2 * 46 };

/// Nearest rank: the least value that so many of 100 do not exceed.
#[test]
fn ranks_are_by_nearest_rank() {
    let hundred: Vec<u32> = (1..=100).collect();
    assert_eq!([50, 99, 100].map(|percent| rank(&hundred, percent)), [Some(50), Some(99), Some(100)]);
    assert_eq!([50, 99, 100].map(|percent| rank(&[7], percent)), [Some(7); 3]);
    assert_eq!([50, 99, 100].map(|percent| rank(&[1, 2, 3], percent)), [Some(2), Some(3), Some(3)]);
    let two_hundred: Vec<u32> = (1..=200).collect();
    assert_eq!([50, 99].map(|percent| rank(&two_hundred, percent)), [Some(100), Some(198)]);
    assert_eq!(rank(&[], 50), None);
}

#[test]
fn times_are_read_as_milliseconds() {
    assert_eq!(millis("1970-01-01T00:00:00.000"), Some(0));
    assert_eq!(millis("2026-01-01T00:00:00.000"), Some(1_767_225_600_000));
    assert_eq!(millis("2024-02-29T12:34:56.789"), Some(1_709_210_096_789));
    assert_eq!(millis("2000-03-01T00:00:00"), Some(951_868_800_000));
    assert_eq!(millis("1969-12-31T23:59:59.5"), Some(-500));
    assert_eq!(millis("2026-01-01"), None);
    assert_eq!(millis("2026-01-xxT00:00:00"), None);
}

/// At least the asked bids a second: of 50 events 46 are bids.
#[test]
fn the_pace_of_bids_is_that_of_events() {
    assert_eq!(Pace::of_bids(46, 0, 1).events_per_second, 50);
    assert_eq!(Pace::of_bids(1_000, 0, 1).events_per_second, 1_087);
}

/// The bid that closes a window is the first whose time is not before; events 50 to 53 are none.
#[test]
fn windows_count_from_the_bid_that_closes_them() {
    assert_eq!(PACE.first_due_ms(900_000), Some(1_000_080), "event 4 is the first bid");
    assert_eq!(PACE.first_due_ms(1_000_100), Some(1_000_100));
    assert_eq!(PACE.first_due_ms(1_000_101), Some(1_000_120));
    assert_eq!(PACE.first_due_ms(1_000_990), Some(1_001_080), "event 50 is a person, 51 to 53 are auctions");
    assert_eq!(PACE.first_due_ms(1_001_980), Some(1_001_980), "event 99 is the last bid");
    assert_eq!(PACE.first_due_ms(1_001_981), None);
}

/// SPD-3: a row counts from when it was due, however late its request came; those of the warm-up are left out.
#[test]
fn rows_count_from_when_they_were_due() {
    let mut figures = Figures::new(Results::Rows, PACE, 500);
    let lines = br#"{"auction":1,"date_time":"1970-01-01T00:16:40.499","extra":"a\"b"}
{"auction":1,"date_time":"1970-01-01T00:16:40.500","extra":"c"}
{"date_time":"1970-01-01T00:16:41.000"}
"#;
    figures.take(1_001_002_500, lines).unwrap();
    let line = figures.line().unwrap();
    assert_eq!(
        line,
        serde_json::json!({
            "results": 2, "p50_ms": 2.5, "p99_ms": 502.5, "max_ms": 502.5, "left_out_warm_up": 1, "left_out_at_end": 0
        })
    );
}

/// Windows that the end of the bids closes, and not a bid, say nothing.
#[test]
fn windows_closed_by_the_end_are_left_out() {
    let mut figures = Figures::new(Results::Windows { closes_after_ms: 400 }, PACE, 0);
    figures.take(1_001_007_250, br#"{"bidder":1,"window_start":"x","window_end":"1970-01-01T00:16:40.600","bids":3}"#).unwrap();
    figures.take(1_009_000_000, br#"{"bidder":1,"window_end":"1970-01-01T00:16:41.600"}"#).unwrap();
    // Time 1,001.000 s is that of event 50; the bid after it is event 54, due at 1,001.080 s.
    figures.take(1_001_090_000, br#"{"bidder":2,"window_end":"1970-01-01T00:16:40.600"}"#).unwrap();
    let line = figures.line().unwrap();
    assert_eq!((&line["results"], &line["max_ms"], &line["left_out_at_end"]), (&2.into(), &10.0.into(), &1.into()));
    assert_eq!(line["p50_ms"], 0.0, "a clock that went back counts as no time");
}

#[test]
fn what_cannot_be_measured_is_told() {
    let figures = Figures::new(Results::Rows, PACE, 0);
    assert!(figures.line().unwrap_err().to_string().contains("--seconds"));
    let mut figures = Figures::new(Results::Rows, PACE, 0);
    assert!(figures.take(0, b"{}").is_err());
    assert!(figures.take(0, b"no json").is_err());
}
