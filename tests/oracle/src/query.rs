//! A windowed aggregate over rows that are all there.

use crate::aggregate::Call;
use crate::judge::{Fate, fates, last_watermark};
use crate::shape::{Shape, Span, windows};
use crate::value::{Condition, Value};
use std::collections::{BTreeMap, BTreeSet};

/// An input row.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which split it comes from.
    pub split: u32,
    /// Event time.
    pub time_ms: Option<i64>,
    /// All columns.
    pub values: Vec<Value>,
}

/// A windowed aggregate.
#[derive(Clone, Debug)]
pub struct Query {
    /// How time is cut.
    pub shape: Shape,
    /// Columns that make groups; none is one group.
    pub keys: Vec<usize>,
    /// What is computed.
    pub calls: Vec<Call>,
    /// Over the results of `calls`.
    pub having: Option<Condition>,
    /// Out-of-orderness of each split.
    pub bound_ms: i64,
    /// Grace of each window.
    pub lateness_ms: i64,
    /// Rows for windows without any, for keys whose last row before the end of the window lies no further back.
    pub empty_within_ms: Option<i64>,
}

/// A result row.
#[derive(Clone, Debug)]
pub struct Line {
    /// The group.
    pub keys: Vec<Value>,
    /// The window.
    pub span: Span,
    /// Results of the calls.
    pub values: Vec<Value>,
}

/// What a query comes to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// By window and keys.
    pub lines: Vec<Line>,
    /// What became of each row.
    pub fates: Vec<Fate>,
}

/// Rows by window and group.
pub type Groups<'a> = BTreeMap<(Span, Vec<Value>), Vec<&'a Event>>;

impl Query {
    /// The group of a row.
    pub fn group(&self, event: &Event) -> Vec<Value> {
        self.keys.iter().map(|key| event.values[*key].clone()).collect()
    }

    /// The answer over all rows that are not late.
    pub fn answer(&self, events: &[Event]) -> Answer {
        let fates = fates(&self.shape, events, self.bound_ms, self.lateness_ms);
        let mut groups = self.groups(events, &fates);
        if let Some(horizon) = self.empty_within_ms {
            self.add_empty(events, &fates, horizon, &mut groups);
        }
        Answer { lines: self.lines(&groups), fates }
    }

    /// One line for each group that HAVING lets pass.
    fn lines(&self, groups: &Groups<'_>) -> Vec<Line> {
        let mut lines = Vec::new();
        for ((span, keys), rows) in groups {
            let values: Vec<Value> = self.calls.iter().map(|call| call.over(rows)).collect();
            if self.having.as_ref().is_none_or(|having| having.holds(&values)) {
                lines.push(Line { keys: keys.clone(), span: *span, values });
            }
        }
        lines
    }

    /// The rows that count, by window and group.
    pub fn groups<'a>(&self, events: &'a [Event], fates: &[Fate]) -> Groups<'a> {
        let mut groups = Groups::new();
        if let Shape::Session { gap } = self.shape {
            let mut by_key: BTreeMap<Vec<Value>, Vec<(i64, &Event)>> = BTreeMap::new();
            for (event, fate) in events.iter().zip(fates) {
                if let (Fate::Counts { .. }, Some(time)) = (fate, event.time_ms) {
                    by_key.entry(self.group(event)).or_default().push((time, event));
                }
            }
            for (key, mut rows) in by_key {
                rows.sort_by_key(|(time, _)| *time);
                let mut session: Vec<(i64, &Event)> = Vec::new();
                for (time, event) in rows {
                    if session.last().is_some_and(|(last, _)| time - last >= gap) {
                        groups.insert((span_of(&session, gap), key.clone()), session.drain(..).map(|(_, event)| event).collect());
                    }
                    session.push((time, event));
                }
                groups.insert((span_of(&session, gap), key.clone()), session.into_iter().map(|(_, event)| event).collect());
            }
            return groups;
        }
        for (event, fate) in events.iter().zip(fates) {
            if let Fate::Counts { windows, .. } = fate {
                for window in windows {
                    groups.entry((*window, self.group(event))).or_default().push(event);
                }
            }
        }
        groups
    }

    /// Groups without rows: of every window that the last watermark before the end has closed, for
    /// every key that has no row in it, but one before its end that is no older than the horizon and
    /// came before the window was closed.
    fn add_empty(&self, events: &[Event], fates: &[Fate], horizon: i64, groups: &mut Groups<'_>) {
        let Some(watermark) = last_watermark(events, self.bound_ms) else { return };
        let mut seen: BTreeMap<Vec<Value>, Vec<(i128, i128)>> = BTreeMap::new();
        for (event, fate) in events.iter().zip(fates) {
            if let (Fate::Counts { stamp, .. }, Some(time)) = (fate, event.time_ms) {
                seen.entry(self.group(event)).or_default().push((i128::from(time), *stamp));
            }
        }
        for (keys, rows) in seen {
            let Some(mut time) = rows.iter().map(|(time, _)| *time).min() else { continue };
            let mut spans = BTreeSet::new();
            while time <= watermark {
                spans.extend(windows(&self.shape, time as i64));
                time += self.stride();
            }
            for span in spans {
                let closes = span.end + i128::from(self.lateness_ms);
                let counts = |(time, stamp): &(i128, i128)| *time < span.end && span.end - time <= i128::from(horizon) && closes > *stamp;
                if closes <= watermark && rows.iter().any(counts) {
                    groups.entry((span, keys.clone())).or_default();
                }
            }
        }
    }

    /// Short enough to miss no window.
    fn stride(&self) -> i128 {
        let stride = match &self.shape {
            Shape::Tumbling { size, .. } => *size,
            Shape::Sliding { size, slide, .. } => *size.min(slide),
            Shape::Cumulate { step, .. } => *step,
            Shape::Days { .. } => 3_600_000,
            Shape::Session { gap } => *gap,
        };
        i128::from(stride)
    }
}

fn span_of(session: &[(i64, &Event)], gap: i64) -> Span {
    let edge = |row: Option<&(i64, &Event)>| row.map_or(0, |(time, _)| i128::from(*time));
    Span { start: edge(session.first()), end: edge(session.last()) + i128::from(gap) }
}

#[cfg(test)]
mod tests;
