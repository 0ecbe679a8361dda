//! The first rows of each window and key, and windows over the rows of windows.

use crate::query::{Event, Line};
use crate::value::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One column of an order; by position in the columns of a row.
#[derive(Clone, Copy, Debug)]
pub struct By {
    /// Which.
    pub column: usize,
    /// Greatest first.
    pub descending: bool,
    /// NULL before all others.
    pub nulls_first: bool,
}

fn compare(order: &[By], a: &[Value], b: &[Value]) -> Ordering {
    for by in order {
        let (x, y) = (&a[by.column], &b[by.column]);
        let found = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if by.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if by.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if by.descending => y.cmp(x),
            (false, false) => x.cmp(y),
        };
        if found != Ordering::Equal {
            return found;
        }
    }
    a.cmp(b)
}

/// The columns of a window's row: keys, start, end, results.
pub fn columns(line: &Line) -> Vec<Value> {
    let time = |ms: i128| Value::Time(ms as i64);
    line.keys.iter().cloned().chain([time(line.span.start), time(line.span.end)]).chain(line.values.iter().cloned()).collect()
}

/// Of the rows that end together and have equal `keys`, the first `limit` by `order`, then by all their
/// columns; each with its place, from 1, behind its columns.
pub fn top(lines: &[Line], keys: &[usize], order: &[By], limit: usize) -> Vec<Vec<Value>> {
    let mut groups: BTreeMap<(i128, Vec<Value>), Vec<Vec<Value>>> = BTreeMap::new();
    for line in lines {
        let row = columns(line);
        let group = keys.iter().map(|key| row[*key].clone()).collect();
        groups.entry((line.span.end, group)).or_default().push(row);
    }
    let mut found = Vec::new();
    for mut rows in groups.into_values() {
        rows.sort_by(|a, b| compare(order, a, b));
        for (at, mut row) in rows.into_iter().take(limit).enumerate() {
            row.push(Value::Int(at as i64 + 1));
            found.push(row);
        }
    }
    found
}

/// A window's rows as the input of another, none of which is ever late: their time is the last ms of
/// their window, or its first.
pub fn rows_of(lines: &[Line], by_start: bool) -> Vec<Event> {
    let time = |line: &Line| if by_start { line.span.start } else { line.span.end - 1 };
    let one = |(at, line): (usize, &Line)| Event { split: at as u32, time_ms: Some(time(line) as i64), values: columns(line) };
    lines.iter().enumerate().map(one).collect()
}
