//! Units, stamps and guards of event time.

use super::{Timed, Timing};
use crate::error::Error;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::TimeWork;
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{ErrorPolicy, LatePolicy};
use weir_planner::time::TimeUnit;

fn work(unit: TimeUnit, bound_ms: i64) -> TimeWork {
    TimeWork {
        column: "t".to_owned(),
        unit,
        bound_ms,
        idle_timeout_ms: 0,
        max_future_ms: None,
        alignment_ms: None,
        idle_advance_ms: None,
        allowed_lateness_ms: 0,
        late: LatePolicy::Drop,
    }
}

fn schema(ty: ColumnType) -> Schema {
    Schema(vec![Column { name: "t".to_owned(), ty, nullable: true }])
}

fn timing(ty: ColumnType, work: &TimeWork, on_error: ErrorPolicy) -> Result<Timing, Error> {
    Timing::new(&OperatorId::new("src").unwrap(), work, on_error, &schema(ty), false)
}

fn stamped(timing: &Timing, ty: ColumnType, column: ArrayRef, max: &mut Option<i64>) -> Result<Timed, Error> {
    let rows = RecordBatch::try_new(Arc::new(schema(ty).to_arrow()), vec![column]).unwrap();
    timing.stamp(rows, max, 0)
}

fn stamp_of(unit: TimeUnit) -> ColumnType {
    ColumnType::Timestamp { unit, zoned: false }
}

/// EV-1: every unit, floored below zero.
#[test]
fn units_are_floored_to_milliseconds() {
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, 999, 1_000, -1_001]));
    let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![-1, 0, 999_999, 1_000_000, -1_000_001]));
    let expected = [-1, 0, 0, 1, -2];
    for (unit, column) in [(TimeUnit::Microsecond, micros), (TimeUnit::Nanosecond, nanos)] {
        let ty = stamp_of(unit);
        let raw: ArrayRef = arrow::compute::cast(&column, &arrow::datatypes::DataType::Int64).unwrap();
        // The unit of a TIMESTAMP is its own; that of a BIGINT is declared.
        let by_type = timing(ty, &work(TimeUnit::Second, 0), ErrorPolicy::Fail).unwrap();
        let by_unit = timing(ColumnType::BigInt, &work(unit, 0), ErrorPolicy::Fail).unwrap();
        assert_eq!(stamped(&by_type, ty, column, &mut None).unwrap().data.times.values(), &expected);
        assert_eq!(stamped(&by_unit, ColumnType::BigInt, raw, &mut None).unwrap().data.times.values(), &expected);
    }
    let ty = stamp_of(TimeUnit::Second);
    let seconds = timing(ty, &work(TimeUnit::Millisecond, 0), ErrorPolicy::Fail).unwrap();
    let column = Arc::new(TimestampSecondArray::from(vec![-2, 3]));
    assert_eq!(stamped(&seconds, ty, column, &mut None).unwrap().data.times.values(), &[-2_000, 3_000]);
}

/// EV-1, EV-5: overflow names the column and is never a wrap; with `on_error: skip` it costs the
/// row alone.
#[test]
fn overflow_goes_by_on_error() {
    let column = || Arc::new(Int64Array::from(vec![1, i64::MAX / 1_000 + 1, 2, i64::MIN, 3])) as ArrayRef;
    let strict = timing(ColumnType::BigInt, &work(TimeUnit::Second, 0), ErrorPolicy::Fail).unwrap();
    let error = stamped(&strict, ColumnType::BigInt, column(), &mut None).err().unwrap();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("column 't'") && error.message.contains("'src'"), "{error}");
    let lenient = timing(ColumnType::BigInt, &work(TimeUnit::Second, 0), ErrorPolicy::Skip).unwrap();
    let mut max = None;
    let timed = stamped(&lenient, ColumnType::BigInt, column(), &mut max).unwrap();
    assert_eq!(timed.data.times.values(), &[1_000, 2_000, 3_000]);
    assert_eq!((timed.refused, timed.data.rows.num_rows(), max), (2, 3, Some(3_000)));
}

/// EV-3: the stamp is the running maximum with the row itself, less the bound; EV-4: it travels
/// only where a row lies behind it. EV-5: a NULL time is left out and counted.
#[test]
fn stamps_are_running_maxima() {
    let timing = timing(ColumnType::BigInt, &work(TimeUnit::Millisecond, 10), ErrorPolicy::Fail).unwrap();
    let mut max = None;
    let calm =
        stamped(&timing, ColumnType::BigInt, Arc::new(Int64Array::from(vec![Some(100), None, Some(90), Some(105)])), &mut max).unwrap();
    assert!(calm.data.stamps.is_none());
    assert_eq!((calm.invalid, calm.data.len(), max), (1, 3, Some(105)));
    let late = stamped(&timing, ColumnType::BigInt, Arc::new(Int64Array::from(vec![94, 200, 95])), &mut max).unwrap();
    assert_eq!(late.data.stamps.unwrap().values(), &[95, 190, 190]);
    assert_eq!(timing.watermark(200), 190);
    let nothing = stamped(&timing, ColumnType::BigInt, Arc::new(Int64Array::from(vec![None::<i64>])), &mut max).unwrap();
    assert!(nothing.data.is_empty());
    assert_eq!(max, Some(200));
    assert_eq!(timing.watermark(i64::MIN + 1), i64::MIN, "no wrap");
}

#[test]
fn a_column_that_is_no_time_is_refused() {
    let error = timing(ColumnType::Text, &work(TimeUnit::Millisecond, 0), ErrorPolicy::Fail).err().unwrap();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("use BIGINT or TIMESTAMP"), "{error}");
}

/// EV-1, E2: around zero, a unit's edges and both ends of the range, every unit and both kinds of
/// column give what division with a floor gives in wider numbers; what milliseconds cannot hold is
/// refused with the column and its type, never wrapped.
#[test]
fn a_grid_of_times_is_floored_or_refused() {
    let nanos = |unit: TimeUnit| match unit {
        TimeUnit::Second => 1_000_000_000i128,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        let edges = [0, 1_000, 1_000_000, 60_000_000_000, i64::MAX / 1_000];
        let near = edges.into_iter().flat_map(|edge| (-2..=2).map(move |by| edge + by)).flat_map(|value| [value, -value]);
        let grid: Vec<i64> = near.chain([i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]).collect();
        for (ty, declared) in [(ColumnType::BigInt, unit), (stamp_of(unit), TimeUnit::Millisecond)] {
            for value in &grid {
                let raw: ArrayRef = Arc::new(Int64Array::from(vec![*value]));
                let column = || arrow::compute::cast(&raw, &ty.to_arrow()).unwrap();
                let expected = i64::try_from((i128::from(*value) * nanos(unit)).div_euclid(1_000_000)).ok();
                let lenient = timing(ty, &work(declared, 0), ErrorPolicy::Skip).unwrap();
                let timed = stamped(&lenient, ty, column(), &mut None).unwrap();
                assert_eq!(timed.data.times.values().first().copied(), expected, "{value} {unit:?} as {ty}");
                assert_eq!(timed.refused, u64::from(expected.is_none()));
                let strict = timing(ty, &work(declared, 0), ErrorPolicy::Fail).unwrap();
                let outcome = stamped(&strict, ty, column(), &mut None);
                assert_eq!(outcome.is_ok(), expected.is_some());
                if let Err(error) = outcome {
                    assert_eq!(error.class, Class::User);
                    for part in ["'src'", "column 't'", &ty.to_string(), &value.to_string()] {
                        assert!(error.message.contains(part), "{part}: {error}");
                    }
                }
            }
        }
    }
}

/// EV-1, EV-3: bounds at the ends of the range do not wrap, and the end of time is kept for the end.
#[test]
fn watermarks_at_the_ends_of_the_range() {
    for (bound_ms, max, expected) in [
        (0, i64::MAX, i64::MAX - 1),
        (1, i64::MAX, i64::MAX - 1),
        (2, i64::MAX, i64::MAX - 2),
        (1, i64::MIN, i64::MIN),
        (i64::MAX, -2, i64::MIN),
        (i64::MAX, 0, -i64::MAX),
        (10, -15, -25),
    ] {
        let timing = timing(ColumnType::BigInt, &work(TimeUnit::Millisecond, bound_ms), ErrorPolicy::Fail).unwrap();
        assert_eq!(timing.watermark(max), expected, "{max} less {bound_ms}");
        let mut before = None;
        stamped(&timing, ColumnType::BigInt, Arc::new(Int64Array::from(vec![max])), &mut before).unwrap();
        let next = stamped(&timing, ColumnType::BigInt, Arc::new(Int64Array::from(vec![i64::MIN])), &mut before).unwrap();
        let stamp = next.data.stamps.map(|stamps| stamps.value(0));
        assert_eq!(stamp, (max.saturating_sub(bound_ms) > i64::MIN).then(|| max.saturating_sub(bound_ms)));
    }
}
