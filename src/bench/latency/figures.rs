//! Latencies out of results: what each counts from, and the ranks of all of them.

use anyhow::{Context, bail};
use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::TimestampMillisecondType;
use serde::Deserialize;

/// Events of a round of the benchmark, and those of them before the first bid; the others are bids.
const ROUND: u64 = 50;
const BEFORE_BIDS: u64 = 4;

/// When bids are due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Persons, auctions and bids, of which only the bids are sent.
    pub events_per_second: u64,
    /// When event 0 is due, ms since 1970.
    pub start_ms: i64,
    /// Bids in all.
    pub bids: u64,
}

impl Pace {
    /// At least `rate` bids a second, `bids` in all.
    pub fn of_bids(rate: u64, start_ms: i64, bids: u64) -> Pace {
        Pace { events_per_second: rate.saturating_mul(ROUND).div_ceil(ROUND - BEFORE_BIDS), start_ms, bids }
    }

    /// When an event is due, ms.
    fn due_ms(&self, event: u64) -> i64 {
        let after = u128::from(event) * 1_000 / u128::from(self.events_per_second);
        self.start_ms.saturating_add(i64::try_from(after).unwrap_or(i64::MAX))
    }

    /// When the first bid is due whose time is `time_ms` or later; `None` when there is none.
    fn first_due_ms(&self, time_ms: i64) -> Option<i64> {
        let after = u128::from(time_ms.saturating_sub(self.start_ms).max(0).unsigned_abs());
        let event = (after * u128::from(self.events_per_second)).div_ceil(1_000);
        let event = u64::try_from(event).ok()?;
        let (round, place) = (event / ROUND, event % ROUND);
        let place = place.max(BEFORE_BIDS);
        let bid = round.checked_mul(ROUND - BEFORE_BIDS)? + place - BEFORE_BIDS;
        (bid < self.bids).then(|| self.due_ms(round * ROUND + place))
    }
}

/// What results count from.
#[derive(Clone, Copy, Debug)]
pub enum Results {
    /// Each is a bid, whose `date_time` is when it was due.
    Rows,
    /// Each is of a window, closed by the first bid whose time is so long after its `window_end`.
    Windows {
        /// Bound of the watermark, and what windows wait besides, ms.
        closes_after_ms: i64,
    },
}

/// Latencies of results as they come.
pub struct Figures {
    results: Results,
    pace: Pace,
    /// Results that count from before this are left out.
    from_ms: i64,
    latencies_us: Vec<u32>,
    warm_up: u64,
    closed_by_end: u64,
}

/// The times of a result, whichever it has.
#[derive(Deserialize)]
struct Times<'a> {
    date_time: Option<&'a str>,
    window_end: Option<&'a str>,
}

impl Figures {
    /// None yet.
    pub fn new(results: Results, pace: Pace, warm_up_ms: i64) -> Self {
        let from_ms = pace.start_ms.saturating_add(warm_up_ms);
        Figures { results, pace, from_ms, latencies_us: Vec::new(), warm_up: 0, closed_by_end: 0 }
    }

    /// The results of a request, a JSON object a line, that was read at this time since 1970.
    ///
    /// Errors: a line that is no such object, or has no such time.
    pub fn take(&mut self, at_us: i64, lines: &[u8]) -> anyhow::Result<()> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let times: Times<'_> = serde_json::from_slice(line).context("a result cannot be read")?;
            let time = match self.results {
                Results::Rows => times.date_time,
                Results::Windows { .. } => times.window_end,
            };
            let time_ms = time.and_then(millis).context("a result has no time")?;
            let due_ms = match self.results {
                Results::Rows => Some(time_ms),
                Results::Windows { closes_after_ms } => self.pace.first_due_ms(time_ms.saturating_add(closes_after_ms)),
            };
            match due_ms {
                None => self.closed_by_end += 1,
                Some(due_ms) if due_ms < self.from_ms => self.warm_up += 1,
                Some(due_ms) => {
                    let took = at_us.saturating_sub(due_ms.saturating_mul(1_000));
                    self.latencies_us.push(u32::try_from(took.max(0)).unwrap_or(u32::MAX));
                }
            }
        }
        Ok(())
    }

    /// What is printed: how many latencies, in ms the one that half of them and the one that 99 of 100 do not
    /// exceed, and the longest; and how many results were left out.
    ///
    /// Errors: nothing was measured.
    pub fn line(mut self) -> anyhow::Result<serde_json::Value> {
        self.latencies_us.sort_unstable();
        let ms = |percent: u64| rank(&self.latencies_us, percent).map(|us| f64::from(us) / 1_000.0);
        let (Some(p50), Some(p99), Some(max)) = (ms(50), ms(99), ms(100)) else {
            bail!(
                "no result came after the warm-up ({} came before, {} at the end of the bids); a window takes more --seconds",
                self.warm_up,
                self.closed_by_end
            );
        };
        Ok(serde_json::json!({
            "results": self.latencies_us.len(), "p50_ms": p50, "p99_ms": p99, "max_ms": max,
            "left_out_warm_up": self.warm_up, "left_out_at_end": self.closed_by_end,
        }))
    }
}

/// The least of ascending values that `percent` of 100 of them do not exceed, by nearest rank.
fn rank(ascending: &[u32], percent: u64) -> Option<u32> {
    let rank = (ascending.len() as u64 * percent).div_ceil(100).max(1);
    ascending.get(usize::try_from(rank).ok()? - 1).copied()
}

/// `2026-01-01T00:00:00.000` as ms since 1970.
fn millis(text: &str) -> Option<i64> {
    // A date alone is no time of a result.
    text.contains('T').then(|| TimestampMillisecondType::parse(text)).flatten()
}

#[cfg(test)]
mod tests;
