//! Naive recomputation of what Weir computes, sharing no code with it: rows one by one, maps of
//! plain values, arithmetic wide enough not to think about.

pub mod aggregate;
mod days;
pub mod judge;
pub mod query;
pub mod shape;
pub mod top;
pub mod update;
pub mod value;

use std::collections::BTreeMap;

/// One input row. Rows of a split are in the order in which the split gives them; how splits
/// interleave does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which split it comes from.
    pub split: u32,
    /// Event time; a row without one is left out.
    pub time_ms: Option<i64>,
    /// Group key; NULL is a key like any other.
    pub key: Option<i64>,
    /// What is aggregated.
    pub value: Option<i64>,
}

/// Aggregates of one window and key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agg {
    /// `count(*)`.
    pub count: i64,
    /// `count(value)`.
    pub values: i64,
    /// `sum(value)`; none when all were NULL.
    pub sum: Option<i128>,
    /// `min(value)`.
    pub min: Option<i64>,
    /// `max(value)`.
    pub max: Option<i64>,
}

/// What a tumbling aggregate comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tumbled {
    /// By window start and key.
    pub windows: BTreeMap<(i64, Option<i64>), Agg>,
    /// Rows that were late for their window.
    pub late: u64,
    /// Rows without an event time.
    pub invalid: u64,
}

/// A tumbling aggregate over all rows, by window start and key. A row is late, and left out, when
/// its window's end lies at or below the largest time of its split so far, itself included, less
/// `bound_ms`.
pub fn tumble(rows: &[Row], size_ms: i64, offset_ms: i64, bound_ms: i64) -> BTreeMap<(i64, Option<i64>), Agg> {
    tumble_late(rows, size_ms, offset_ms, bound_ms, 0).windows
}

/// The same with an allowed lateness, and with counts of what was left out.
pub fn tumble_late(rows: &[Row], size_ms: i64, offset_ms: i64, bound_ms: i64, lateness_ms: i64) -> Tumbled {
    let mut result = Tumbled::default();
    let mut largest: BTreeMap<u32, i64> = BTreeMap::new();
    for row in rows {
        let Some(time) = row.time_ms else {
            result.invalid += 1;
            continue;
        };
        let seen = largest.entry(row.split).or_insert(time);
        if time > *seen {
            *seen = time;
        }
        let stamp = i128::from(*seen) - i128::from(bound_ms);
        let start = window_start(time, size_ms, offset_ms);
        if i128::from(start) + i128::from(size_ms) + i128::from(lateness_ms) <= stamp {
            result.late += 1;
            continue;
        }
        let agg = result.windows.entry((start, row.key)).or_default();
        agg.count += 1;
        if let Some(value) = row.value {
            agg.values += 1;
            agg.sum = Some(agg.sum.unwrap_or(0) + i128::from(value));
            agg.min = Some(agg.min.map_or(value, |least| if value < least { value } else { least }));
            agg.max = Some(agg.max.map_or(value, |greatest| if value > greatest { value } else { greatest }));
        }
    }
    result
}

/// The largest `offset + n * size` that is not above `time`.
pub fn window_start(time_ms: i64, size_ms: i64, offset_ms: i64) -> i64 {
    let (time, size, offset) = (i128::from(time_ms), i128::from(size_ms), i128::from(offset_ms));
    let mut windows = (time - offset) / size;
    if offset + windows * size > time {
        windows -= 1;
    }
    (offset + windows * size) as i64
}

#[cfg(test)]
mod tests {
    use super::{Row, tumble_late, window_start};

    #[test]
    fn starts_lie_at_or_below() {
        assert_eq!(window_start(-15, 10, 0), -20);
        assert_eq!(window_start(-20, 10, 0), -20);
        assert_eq!(window_start(0, 10, 3), -7);
        assert_eq!(window_start(3, 10, 3), 3);
        assert_eq!(window_start(3, 10, -8), 2);
    }

    #[test]
    fn a_row_far_behind_its_own_split_is_late() {
        let row = |split, time| Row { split, time_ms: Some(time), key: Some(1), value: Some(1) };
        let found = tumble_late(&[row(0, 2100), row(0, 100), row(1, 100)], 1000, 0, 0, 0);
        assert_eq!(found.late, 1);
        assert_eq!(found.windows.len(), 2);
        assert_eq!(found.windows[&(0, Some(1))].count, 1);
    }
}
