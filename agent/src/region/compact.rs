//! Which segments of a task become one (CKP-3).
//!
//! Few segments may stay, each merge rewrites what it takes, and nobody knows what comes. Taking
//! little each time rewrites the newest segments again and again; taking much rewrites the large
//! old ones too often. So a merge of the newest segments is judged by what it costs, its bytes, and
//! by what it gives, the segments that are fewer afterwards: the more it frees, the longer it is
//! until the next merge, and the fewer merges of that kind there will be.

use crate::segment::SegmentRef;

/// More segments of a task than this are merged (CKP-3).
pub const SEGMENTS_MAX: usize = 8;

/// The newest segments that should become one, at least two, when there are too many; no more than
/// the allowed number is left then. They are those with the least bytes for the cube of the number
/// of segments freed. The power is measured, not derived: of one to four the third rewrites least
/// where merging drops rows (windows, keys that change again), and where it drops none at most a
/// quarter or so more than it must, whatever the sizes.
pub fn newest_to_merge(segments: &[SegmentRef]) -> Option<&[SegmentRef]> {
    if segments.len() <= SEGMENTS_MAX {
        return None;
    }
    let freed = |start: usize| (segments.len() - start - 1) as u128;
    let bytes = |start: usize| segments[start..].iter().map(|s| u128::from(s.bytes)).sum::<u128>();
    let mut best = (0, bytes(0), freed(0).pow(3));
    for start in 1..SEGMENTS_MAX {
        let (cost, gain) = (bytes(start), freed(start).pow(3));
        // `cost / gain` is less than the best so far; of equals the one that frees more.
        if cost.saturating_mul(best.2) < best.1.saturating_mul(gain) {
            best = (start, cost, gain);
        }
    }
    segments.get(best.0..)
}

#[cfg(test)]
mod tests {
    use super::{SEGMENTS_MAX, newest_to_merge};
    use crate::segment::SegmentRef;
    use std::collections::BTreeMap;

    fn sizes(bytes: &[u64]) -> Vec<SegmentRef> {
        bytes.iter().map(|&bytes| SegmentRef { name: String::new(), bytes, rows: 1 }).collect()
    }

    fn taken(bytes: &[u64]) -> Option<usize> {
        newest_to_merge(&sizes(bytes)).map(<[SegmentRef]>::len)
    }

    /// CKP-3: at most eight segments stay, and a large old one is left alone as long as it can be.
    #[test]
    fn merging_leaves_at_most_eight_and_spares_large_old_segments() {
        assert_eq!(taken(&[10; 8]), None);
        // 70 bytes for 6 freed: 0.32 a cube; with the 900 as well 970 for 7: 2.8.
        assert_eq!(taken(&[1_000, 900, 10, 10, 10, 10, 10, 10, 10]), Some(7));
        // 5 for 1: 5; 13 for 2: 1.6; 29 for 3: 1.07; 61 for 4: 0.95; 125 for 5: 1; 253 for 6: 1.2.
        assert_eq!(taken(&[512, 256, 128, 64, 32, 16, 8, 4, 1]), Some(5));
        // However many came while one merge was under way, the next one makes up for it.
        let twenty: Vec<u64> = (0..20).map(|i| 1u64 << (40 - 2 * i)).collect();
        assert!(taken(&twenty).unwrap() > 20 - SEGMENTS_MAX);
        assert!(taken(&[u64::MAX; 9]).unwrap() >= 2);
    }

    /// A segment as its windows with their rows.
    type Rows = BTreeMap<u64, u64>;

    /// Rows rewritten for each row written. `merged` makes one segment of several, in epoch `now`.
    fn rewritten(epochs: u64, write: impl Fn(u64) -> Rows, merged: impl Fn(u64, &[Rows]) -> Rows) -> f64 {
        let count = |rows: &Rows| rows.values().sum::<u64>();
        let (mut segments, mut written, mut rewritten) = (Vec::new(), 0, 0);
        for epoch in 0..epochs {
            let fresh = write(epoch);
            written += count(&fresh);
            segments.push(fresh);
            let refs = sizes(&segments.iter().map(count).collect::<Vec<_>>());
            if let Some(newest) = newest_to_merge(&refs) {
                let one = merged(epoch, &segments[segments.len() - newest.len()..]);
                rewritten += count(&one);
                segments.truncate(segments.len() - newest.len());
                segments.push(one);
            }
            assert!(segments.len() <= SEGMENTS_MAX);
        }
        rewritten as f64 / written as f64
    }

    fn sum(segments: &[Rows]) -> Rows {
        let mut all = Rows::new();
        for (window, rows) in segments.iter().flatten() {
            *all.entry(*window).or_default() += rows;
        }
        all
    }

    /// CKP-3: keys that change again, and windows that go: at most four rows rewritten for each
    /// row written, over 10,000 epochs.
    #[test]
    fn a_row_is_rewritten_a_few_times_where_merging_drops_rows() {
        for keys in [100u64, 400] {
            // Keys in turn, ten an epoch: a merge keeps one row of each.
            let write = |epoch| (0..10).map(|i| ((epoch * 10 + i) % keys, 1)).collect();
            let merged = |_, segments: &[Rows]| segments.iter().flat_map(|s| s.keys().map(|k| (*k, 1))).collect();
            let times = rewritten(10_000, write, merged);
            assert!(times <= 4.0, "{keys} keys: {times}");
        }
        for size in [10u64, 60, 600] {
            let write = |epoch| Rows::from([(epoch / size, 100)]);
            let merged = |now: u64, segments: &[Rows]| sum(segments).into_iter().filter(|(window, _)| *window >= now / size).collect();
            let times = rewritten(10_000, write, merged);
            assert!(times <= 4.0, "windows of {size} epochs: {times}");
        }
    }

    /// Rows that are never dropped, equally many in each epoch. Then four times cannot hold for
    /// ever: with at most k segments, N(k, j) = N(k, j - 1) + 1 + N(k - 1, j) epochs can be rewritten
    /// at most j times each (up to the last merge of all with one time less, and after it beside the
    /// segment that it made), N(k, 0) = k. For eight that is C(j + 9, 8) - 1, which makes 5.9 times
    /// on average for 10,000 epochs whatever is merged when.
    #[test]
    fn a_row_that_stays_is_rewritten_little_more_than_it_must_be() {
        for (epochs, most) in [(1_000, 4.1), (10_000, 7.5), (50_000, 13.0)] {
            let times = rewritten(epochs, |_| Rows::from([(0, 100)]), |_, segments| sum(segments));
            assert!(times <= most, "{epochs} epochs: {times}");
            // Uneven ones: one in sixteen is a hundred times as large.
            let uneven = |epoch: u64| Rows::from([(0, if epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60 == 0 { 1_000 } else { 10 })]);
            let times = rewritten(epochs, uneven, |_, segments| sum(segments));
            assert!(times <= most, "{epochs} uneven epochs: {times}");
        }
        // By the recurrence: how many epochs can be rewritten at most so often, for one to eight segments.
        let (mut able, mut least, mut placed) = ([1u64, 2, 3, 4, 5, 6, 7, 8], 0u64, 8u64);
        for times in 1.. {
            let mut fewer = 0;
            for able in &mut able {
                *able += 1 + fewer;
                fewer = *able;
            }
            let here = able[SEGMENTS_MAX - 1].min(10_000) - placed;
            (placed, least) = (placed + here, least + here * times);
            if placed == 10_000 {
                break;
            }
        }
        assert_eq!(least, 58_568);
        let times = rewritten(10_000, |_| Rows::from([(0, 100)]), |_, segments| sum(segments));
        assert!(times <= 1.3 * least as f64 / 10_000.0, "{times} against {least} for 10000");
    }
}
