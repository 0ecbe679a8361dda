//! Which windows hold a time, found by looking at every window that could.

use crate::days;

/// A window: `start <= time < end`, ms since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First ms.
    pub start: i128,
    /// First ms after it.
    pub end: i128,
}

/// How time is cut. All lengths are ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Back to back.
    Tumbling {
        /// Length.
        size: i64,
        /// Shift.
        offset: i64,
    },
    /// One begins every `slide`.
    Sliding {
        /// Length.
        size: i64,
        /// Distance of starts.
        slide: i64,
        /// Shift.
        offset: i64,
    },
    /// From each multiple of `size` one for each multiple of `step` up to `size`.
    Cumulate {
        /// Longest.
        size: i64,
        /// Growth.
        step: i64,
        /// Shift.
        offset: i64,
    },
    /// So many days of a time zone, counted from 1970-01-01; `offset` shifts the local time at which they begin.
    Days {
        /// How many.
        days: i64,
        /// Shift.
        offset: i64,
        /// IANA name.
        zone: String,
    },
    /// By silence, for each key.
    Session {
        /// How long a silence ends one.
        gap: i64,
    },
}

/// The greatest multiple of `step`, shifted by `offset`, that is not above `time`.
fn floor(time: i128, step: i128, offset: i128) -> i128 {
    let mut n = (time - offset) / step;
    if offset + n * step > time {
        n -= 1;
    }
    offset + n * step
}

/// The windows that hold `time`, ascending. Of a session: the window of the row by itself.
pub fn windows(shape: &Shape, time: i64) -> Vec<Span> {
    let time = i128::from(time);
    let mut found = Vec::new();
    match shape {
        Shape::Tumbling { size, offset } => {
            let start = floor(time, i128::from(*size), i128::from(*offset));
            found.push(Span { start, end: start + i128::from(*size) });
        }
        Shape::Sliding { size, slide, offset } => {
            let (size, slide) = (i128::from(*size), i128::from(*slide));
            let mut start = floor(time, slide, i128::from(*offset));
            while start + size > time {
                found.push(Span { start, end: start + size });
                start -= slide;
            }
            found.reverse();
        }
        Shape::Cumulate { size, step, offset } => {
            let (size, step) = (i128::from(*size), i128::from(*step));
            let start = floor(time, size, i128::from(*offset));
            let mut length = step;
            while length <= size {
                if time < start + length {
                    found.push(Span { start, end: start + length });
                }
                length += step;
            }
        }
        Shape::Days { days, offset, zone } => found.push(days::window(zone, *days, *offset, time)),
        Shape::Session { gap } => found.push(Span { start: time, end: time + i128::from(*gap) }),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Shape, windows};

    fn spans(shape: &Shape, time: i64) -> Vec<(i128, i128)> {
        windows(shape, time).iter().map(|span| (span.start, span.end)).collect()
    }

    /// C02: times before 1970 land in their own window.
    #[test]
    fn negative_times_are_floored() {
        assert_eq!(spans(&Shape::Tumbling { size: 10, offset: 0 }, -15), [(-20, -10)]);
        assert_eq!(spans(&Shape::Tumbling { size: 10, offset: 0 }, -20), [(-20, -10)]);
        assert_eq!(spans(&Shape::Tumbling { size: 10, offset: -8 }, 3), [(2, 12)]);
        assert_eq!(spans(&Shape::Tumbling { size: 10, offset: 25 }, 0), [(-5, 5)]);
    }

    /// C01: size 5 by slide 2.
    #[test]
    fn a_slide_need_not_divide_the_size() {
        let shape = Shape::Sliding { size: 5, slide: 2, offset: 0 };
        assert_eq!(spans(&shape, 0), [(-4, 1), (-2, 3), (0, 5)]);
        assert_eq!(spans(&shape, 1), [(-2, 3), (0, 5)]);
        assert_eq!(spans(&shape, -1), [(-4, 1), (-2, 3)]);
        let gaps = Shape::Sliding { size: 2, slide: 5, offset: 1 };
        assert_eq!(spans(&gaps, 2), [(1, 3)]);
        assert_eq!(spans(&gaps, 3), []);
    }

    #[test]
    fn cumulating_windows_share_their_start() {
        let shape = Shape::Cumulate { size: 6, step: 2, offset: 1 };
        assert_eq!(spans(&shape, 1), [(1, 3), (1, 5), (1, 7)]);
        assert_eq!(spans(&shape, 3), [(1, 5), (1, 7)]);
        assert_eq!(spans(&shape, 0), [(-5, 1)]);
    }
}
