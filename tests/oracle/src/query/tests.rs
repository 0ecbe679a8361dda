//! Cases worked out by hand.

use super::{Event, Query};
use crate::aggregate::{Call, Function};
use crate::judge::Fate;
use crate::shape::Shape;
use crate::top::{By, rows_of, top};
use crate::value::{Compare, Condition, Value};

fn call(function: Function, column: Option<usize>) -> Call {
    Call { function, column, distinct: false, filter: None }
}

fn query(shape: Shape) -> Query {
    let calls = vec![call(Function::Count, None), call(Function::Sum, Some(1))];
    Query { shape, keys: vec![0], calls, having: None, bound_ms: 1_000_000, lateness_ms: 0, empty_within_ms: None }
}

fn event(time: i64, key: i64, x: i64) -> Event {
    Event { split: 0, time_ms: Some(time), values: vec![Value::Int(key), Value::Int(x)] }
}

/// Start, end, first result.
fn found(query: &Query, events: &[Event]) -> Vec<(i128, i128, Value)> {
    query.answer(events).lines.into_iter().map(|line| (line.span.start, line.span.end, line.values[0].clone())).collect()
}

/// C01: one event at each second 0 to 6, hop 2 s, size 5 s.
#[test]
fn hops_of_two_by_five() {
    let events: Vec<Event> = (0..7).map(|second| event(second * 1_000, 1, 1)).collect();
    let answer = found(&query(Shape::Sliding { size: 5_000, slide: 2_000, offset: 0 }), &events);
    let expected = [(-4, 1, 1), (-2, 3, 3), (0, 5, 5), (2, 7, 5), (4, 9, 3), (6, 11, 1)];
    assert_eq!(answer, expected.map(|(start, end, n)| (start * 1_000, end * 1_000, Value::Int(n))));
}

#[test]
fn a_silence_of_the_gap_ends_a_session() {
    let events = [event(10, 1, 1), event(0, 1, 1), event(20, 1, 1), event(19, 2, 1), event(9, 2, 1), event(31, 1, 1)];
    let answer = found(&query(Shape::Session { gap: 10 }), &events);
    let expected = [(0, 10, 1), (9, 19, 1), (10, 20, 1), (19, 29, 1), (20, 30, 1), (31, 41, 1)];
    assert_eq!(answer, expected.map(|(start, end, n)| (start, end, Value::Int(n))));
    let answer = found(&query(Shape::Session { gap: 11 }), &events);
    assert_eq!(answer, [(0, 31, 3), (9, 30, 2), (31, 42, 1)].map(|(start, end, n)| (start, end, Value::Int(n))));
}

/// A row of a session is late by its own window: 0 + 10 is not after the stamp 10.
#[test]
fn a_session_row_is_late_by_itself() {
    let query = Query { bound_ms: 0, ..query(Shape::Session { gap: 10 }) };
    let answer = query.answer(&[event(10, 1, 1), event(0, 1, 1), event(1, 1, 1)]);
    assert_eq!(answer.fates[1], Fate::Late { by_ms: 0 });
    assert_eq!(answer.lines.len(), 1);
    assert_eq!((answer.lines[0].span.start, answer.lines[0].values[0].clone()), (1, Value::Int(2)));
}

/// C17: events in minutes 1 and 4: rows with count 0 for minutes 2 and 3 when the watermark has passed them.
#[test]
fn empty_windows_between() {
    let mut query = Query { bound_ms: 0, empty_within_ms: Some(10 * 60), ..query(Shape::Tumbling { size: 60, offset: 0 }) };
    let events = [event(70, 1, 5), event(250, 1, 5), event(300, 2, 1)];
    let counts = |query: &Query| found(query, &events).into_iter().map(|(start, _, n)| (start / 60, n)).collect::<Vec<_>>();
    assert_eq!(counts(&query), [(1, 1), (2, 0), (3, 0), (4, 1), (5, 1)].map(|(minute, n)| (minute, Value::Int(n))));
    let empty = query.answer(&events).lines.into_iter().find(|line| line.span.start == 120);
    assert!(empty.is_some_and(|line| line.values[1].is_null()));
    query.empty_within_ms = Some(110);
    assert_eq!(counts(&query).len(), 4);
}

/// E7: NULLs are left out of aggregates and make one group; DISTINCT, FILTER, HAVING.
#[test]
fn aggregates_leave_nulls_out() {
    let rows: Vec<Event> = [Value::Int(3), Value::Null, Value::Int(3), Value::Int(-5)]
        .into_iter()
        .map(|x| Event { split: 0, time_ms: Some(0), values: vec![Value::Null, x] })
        .collect();
    let negative = Condition { column: 1, compare: Compare::Less, constant: Value::Int(0) };
    let calls = vec![
        call(Function::Count, None),
        call(Function::Count, Some(1)),
        Call { distinct: true, ..call(Function::Count, Some(1)) },
        Call { filter: Some(negative.clone()), ..call(Function::Sum, Some(1)) },
        call(Function::Avg, Some(1)),
        call(Function::Max, Some(1)),
    ];
    let mut query = Query { calls, ..query(Shape::Tumbling { size: 10, offset: 0 }) };
    let lines = query.answer(&rows).lines;
    assert_eq!(lines.len(), 1);
    let expected = [4, 3, 2, -5].map(Value::Int).into_iter().chain([Value::Double(1.0 / 3.0), Value::Int(3)]);
    assert_eq!(lines[0].values, expected.collect::<Vec<_>>());
    query.having = Some(Condition { column: 3, ..negative });
    assert_eq!(query.answer(&rows).lines.len(), 1);
    query.having = Some(Condition { column: 0, compare: Compare::Greater, constant: Value::Int(4) });
    assert_eq!(query.answer(&rows).lines.len(), 0);
}

/// Averages of decimals: 0.02 / 3 = 0.00666…, and -0.01 / 2 = -0.005.
#[test]
fn averages_of_decimals_are_rounded() {
    let of = |digits: &[i128]| {
        let rows: Vec<Event> =
            digits.iter().map(|d| Event { split: 0, time_ms: None, values: vec![Value::Null, Value::Decimal(*d, 2)] }).collect();
        call(Function::Avg, Some(1)).over(&rows.iter().collect::<Vec<_>>())
    };
    assert_eq!(of(&[1, 0, 1]), Value::Decimal(6_667, 6));
    assert_eq!(of(&[-1, 0]), Value::Decimal(-5_000, 6));
    assert_eq!(of(&[-1, 0, -1]), Value::Decimal(-6_667, 6));
}

/// The two greatest sums of each second, and the sum of the counts of what ended together.
#[test]
fn tops_and_windows_over_windows() {
    let events = [event(0, 1, 5), event(1, 2, 7), event(2, 3, 7), event(1_000, 1, 1)];
    let first = query(Shape::Tumbling { size: 1_000, offset: 0 });
    let lines = first.answer(&events).lines;
    let by = By { column: 4, descending: true, nulls_first: false };
    let places: Vec<(Value, Value)> = top(&lines, &[], &[by], 2).into_iter().map(|row| (row[0].clone(), row[5].clone())).collect();
    assert_eq!(places, [(2, 1), (3, 2), (1, 1)].map(|(key, place)| (Value::Int(key), Value::Int(place))));
    let second = Query { keys: vec![], calls: vec![call(Function::Sum, Some(3))], ..query(Shape::Tumbling { size: 2_000, offset: 0 }) };
    assert_eq!(found(&second, &rows_of(&lines, false)), [(0, 2_000, Value::Int(4))]);
}
