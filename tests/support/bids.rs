//! A million bids: every field is a function of the row's number, so that a test can recompute
//! each result without keeping the input.

use std::collections::BTreeMap;
use std::fmt::Write;

/// 2024-05-01T01:00:00Z. All bids of a test lie within that day.
const BASE_MS: i64 = 1_714_521_600_000 + 3_600_000;
const MIDNIGHT_MS: i64 = 1_714_521_600_000;

/// One minute, the window of the tests.
pub const MINUTE_MS: i64 = 60_000;

/// Bidder of the closing rows.
pub const CLOSING_BIDDER: i64 = -1;

/// One bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// Item.
    pub auction: i64,
    /// Who.
    pub bidder: i64,
    /// How much.
    pub price: i64,
    /// When: one a millisecond, each up to 3,999 ms back, so that a bound of 4 s makes none late.
    pub time_ms: i64,
}

/// splitmix64.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bid of a row number. Half of the bids come from one of ten busy bidders.
pub fn bid(n: u64) -> Bid {
    let h = mix(n);
    let bidder = if h & 1 == 0 { 1 + (h >> 8) % 10 } else { 100 + (h >> 8) % 1_000 };
    Bid {
        auction: 1_000 + ((h >> 32) % 500) as i64,
        bidder: bidder as i64,
        price: 1 + ((h >> 16) % 100_000) as i64,
        time_ms: BASE_MS + n as i64 - (mix(h) % 4_000) as i64,
    }
}

/// The bid that closes all windows of its partition: far behind the last of `rows`, in a window of its own.
pub fn closing(rows: u64) -> Bid {
    Bid { auction: 0, bidder: CLOSING_BIDDER, price: 0, time_ms: BASE_MS + rows as i64 + 10 * MINUTE_MS }
}

/// The bid as a line of JSON, with the columns of the issue's example.
pub fn json(bid: &Bid, into: &mut String) {
    let Bid { auction, bidder, price, time_ms } = bid;
    let of_day = time_ms - MIDNIGHT_MS;
    let (h, m, s, ms) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    write!(
        into,
        r#"{{"auction":{auction},"bidder":{bidder},"price":{price},"channel":"channel-{auction}","url":"https://auction.example/{auction}","date_time":"2024-05-01T{h:02}:{m:02}:{s:02}.{ms:03}Z","extra":"{price:x}"}}"#
    )
    .unwrap();
}

/// (window start in ms, bidder) to (count, sum of prices).
pub type PerMinute = BTreeMap<(i64, i64), (i64, i64)>;

/// What a job per bidder and minute must give for the rows `0..rows`.
pub fn per_minute(rows: u64) -> PerMinute {
    let mut expected = PerMinute::new();
    for bid in (0..rows).map(bid) {
        let entry = expected.entry((bid.time_ms.div_euclid(MINUTE_MS) * MINUTE_MS, bid.bidder)).or_default();
        entry.0 += 1;
        entry.1 += bid.price;
    }
    expected
}

/// `2024-05-01 01:02:00` as the wire prints a window start, to ms.
pub fn parse_time(text: &str) -> i64 {
    let rest = text.strip_prefix("2024-05-01 ").unwrap_or_else(|| panic!("time {text} is not on the day of the bids"));
    let mut parts = rest.split([':', '.']).map(|p| p.parse::<i64>().unwrap_or_else(|_| panic!("time {text} is not h:m:s")));
    let mut next = || parts.next().unwrap_or(0);
    MIDNIGHT_MS + next() * 3_600_000 + next() * 60_000 + next() * 1_000
}

/// Fails with the first differences, not with ten thousand lines.
pub fn assert_same(got: &PerMinute, expected: &PerMinute) {
    if got == expected {
        return;
    }
    let lost: Vec<_> = expected.iter().filter(|(k, _)| !got.contains_key(k)).take(5).collect();
    let extra: Vec<_> = got.iter().filter(|(k, _)| !expected.contains_key(k)).take(5).collect();
    let other: Vec<_> = expected.iter().filter_map(|(k, v)| got.get(k).filter(|g| *g != v).map(|g| (k, g, v))).take(5).collect();
    panic!("{} rows instead of {}\n  lost: {lost:?}\n  extra: {extra:?}\n  (key, got, expected): {other:?}", got.len(), expected.len());
}
