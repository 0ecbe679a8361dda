//! What becomes of each row: stamps, lateness, and the windows for which it counts.

use crate::query::Event;
use crate::shape::{Shape, Span, windows};
use std::collections::BTreeMap;

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has no time.
    Invalid,
    /// Late for every window that holds it; by how much for the last of them.
    Late {
        /// How far its stamp lies past the end of the window and the lateness.
        by_ms: i128,
    },
    /// It counts for these windows, none where it lies between windows. Of a session: its own window.
    Counts {
        /// Ascending.
        windows: Vec<Span>,
        /// It is late for others.
        partly: bool,
        /// Its stamp.
        stamp: i128,
    },
}

/// The fate of every row, in the order of the rows. Those of a split are in the order of the split;
/// how splits are mixed does not matter.
pub fn fates(shape: &Shape, events: &[Event], bound_ms: i64, lateness_ms: i64) -> Vec<Fate> {
    let mut largest: BTreeMap<u32, i64> = BTreeMap::new();
    let mut fates = Vec::new();
    for event in events {
        let Some(time) = event.time_ms else {
            fates.push(Fate::Invalid);
            continue;
        };
        let seen = largest.entry(event.split).or_insert(time);
        if time > *seen {
            *seen = time;
        }
        let stamp = i128::from(*seen) - i128::from(bound_ms);
        let all = windows(shape, time);
        let closes = |window: &Span| window.end + i128::from(lateness_ms);
        let open: Vec<Span> = all.iter().filter(|window| closes(window) > stamp).copied().collect();
        fates.push(match all.last() {
            Some(last) if open.is_empty() => Fate::Late { by_ms: stamp - closes(last) },
            _ => Fate::Counts { partly: open.len() < all.len(), windows: open, stamp },
        });
    }
    fates
}

/// The greatest watermark that any split reaches, before the end of the input; `None` without a row that has a time.
pub fn last_watermark(events: &[Event], bound_ms: i64) -> Option<i128> {
    let newest = events.iter().filter_map(|event| event.time_ms).max()?;
    Some(i128::from(newest) - i128::from(bound_ms))
}

#[cfg(test)]
mod tests {
    use super::{Fate, fates};
    use crate::query::Event;
    use crate::shape::Shape;

    fn event(split: u32, time: i64) -> Event {
        Event { split, time_ms: Some(time), values: Vec::new() }
    }

    /// EV-3, E3: in [2100, 100] with bound 0 the second row is late at once, by its own split alone.
    #[test]
    fn a_row_is_judged_by_its_own_split() {
        let shape = Shape::Tumbling { size: 1_000, offset: 0 };
        let found = fates(&shape, &[event(0, 2_100), event(1, 100), event(0, 100)], 0, 0);
        assert!(matches!(found[1], Fate::Counts { .. }));
        assert_eq!(found[2], Fate::Late { by_ms: 1_100 });
        assert!(matches!(fates(&shape, &[event(0, 2_100), event(0, 100)], 0, 1_101)[1], Fate::Counts { .. }));
    }

    /// EV-4: judged window by window. Row 0 lies in [-4, 1), [-2, 3), [0, 5); its stamp is 3.
    #[test]
    fn a_row_may_be_late_for_some_of_its_windows() {
        let shape = Shape::Sliding { size: 5, slide: 2, offset: 0 };
        let Fate::Counts { windows, partly, .. } = fates(&shape, &[event(0, 3), event(0, 0)], 0, 0)[1].clone() else { panic!("it counts") };
        assert_eq!((windows.len(), windows[0].start, partly), (1, 0, true));
    }
}
