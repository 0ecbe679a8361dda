//! One batch in, one batch out.

use super::Batch;
use crate::envelope::{Data, Envelope};
use crate::metric::TaskMetrics;
use crate::operator::{Context, Operator};
use crate::origin::Origins;
use crate::side::Sides;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use std::sync::Arc;
use weir_planner::expr::{Aggregate, AggregateFunction, Expr, Typed};
use weir_planner::id::{OperatorId, TaskId};
use weir_planner::plan::BatchWork;
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::ErrorPolicy;

fn column(name: &str, ty: ColumnType) -> Column {
    Column { name: name.to_owned(), ty, nullable: true }
}

fn input() -> Schema {
    Schema(vec![column("k", ColumnType::Text), column("v", ColumnType::BigInt)])
}

fn rows(rows: &[(&str, Option<i64>)], first_ms: i64) -> Data {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
    ];
    // Times go down: the latest is the first row's.
    let times = Int64Array::from_iter_values((0..rows.len() as i64).map(|i| first_ms - i));
    Data { rows: RecordBatch::try_new(Arc::new(input().to_arrow()), columns).unwrap(), times, stamps: None, origins: Origins::Unknown }
}

fn made(keys: &[&str], sums: bool) -> Batch {
    let argument = Typed { expr: Expr::Column("v".to_owned()), ty: ColumnType::BigInt, nullable: true };
    let (function, ty) = (AggregateFunction::Sum, ColumnType::BigInt);
    let sum = Aggregate { function, arguments: vec![argument], distinct: false, order_by: Vec::new(), filter: None, ty, nullable: true };
    let aggregates = if sums { vec![("s".to_owned(), sum)] } else { Vec::new() };
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let mut output: Vec<Column> = keys.iter().map(|key| input().0[input().index_of(key).unwrap()].clone()).collect();
    output.extend(aggregates.iter().map(|(name, aggregate)| column(name, aggregate.ty)));
    let work = BatchWork { keys, aggregates, having: None, on_error: ErrorPolicy::Fail };
    Batch::new(&OperatorId::new("each").unwrap(), &work, &input(), &Schema(output)).unwrap()
}

/// What comes of one envelope: exactly one.
fn one(batch: &mut Batch, envelope: Envelope) -> Envelope {
    let metrics = TaskMetrics::new(TaskId { operator: OperatorId::new("each").unwrap(), subtask: 0 });
    let (mut images, mut changed, mut sides) = (Vec::new(), false, Sides::default());
    let mut context =
        Context { wall_ms: 0, now_ns: 0, metrics: &metrics, images: &mut images, changed: &mut changed, task: 0, sides: &mut sides };
    batch.take(envelope, &mut context).unwrap();
    let given = batch.give(&mut context).unwrap().unwrap();
    assert!(batch.give(&mut context).unwrap().is_none());
    assert!(images.is_empty(), "no state");
    given
}

fn data(batch: &mut Batch, rows: Data) -> Data {
    match one(batch, Envelope::Data(rows)) {
        Envelope::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

/// Each batch for itself, groups in the order of their first row, with the latest time of the batch.
#[test]
fn each_batch_is_aggregated_for_itself() {
    let mut batch = made(&["k"], true);
    for (round, latest) in [(1, 500), (2, 700)] {
        let given = data(&mut batch, rows(&[("b", Some(round)), ("a", Some(2)), ("b", Some(5)), ("", None)], latest));
        let keys: Vec<_> = given.rows.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(keys, ["b", "a", ""]);
        let sums = given.rows.column(1).as_primitive::<Int64Type>();
        assert_eq!(sums.iter().collect::<Vec<_>>(), [Some(5 + round), Some(2), None]);
        assert_eq!(given.times.values().to_vec(), [latest; 3]);
        assert!(given.stamps.is_none());
    }
}

/// Keys without aggregates are the distinct ones; no keys are one group.
#[test]
fn distinct_keys_and_one_group() {
    let given = data(&mut made(&["k"], false), rows(&[("x", None), ("y", None), ("x", Some(1))], 9));
    assert_eq!((given.rows.num_columns(), given.len()), (1, 2));
    let given = data(&mut made(&[], true), rows(&[("x", Some(4)), ("y", Some(-1))], 9));
    assert_eq!(given.rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [3]);
}

/// STR-5: a batch without rows gives a batch without rows, also without keys; marks pass.
#[test]
fn a_batch_without_rows_gives_one_without_rows() {
    for keys in [&["k"][..], &[]] {
        let mut batch = made(keys, true);
        data(&mut batch, rows(&[("x", Some(4))], 9));
        let given = data(&mut batch, rows(&[], 9));
        assert_eq!((given.len(), given.rows.num_rows(), given.rows.num_columns()), (0, 0, keys.len() + 1));
        assert!(matches!(one(&mut batch, Envelope::Watermark(7)), Envelope::Watermark(7)));
    }
}

/// EV-4: the stamp is that of the latest row, so that a window behind finds a group late if and only if it would
/// have found its latest row late; a row of another split that is far behind does not matter.
#[test]
fn the_stamp_is_that_of_the_latest_row() {
    for (times, stamps, expected) in [([9, 8], [11, 30], (9, 11)), ([5, 100], [120, 90], (100, 90)), ([7, 7], [9, 8], (7, 8))] {
        let mut stamped = rows(&[("x", Some(4)), ("x", Some(1))], 9);
        stamped.times = Int64Array::from(times.to_vec());
        stamped.stamps = Some(Int64Array::from(stamps.to_vec()));
        let given = data(&mut made(&["k"], true), stamped);
        assert_eq!((given.times.value(0), given.stamps.unwrap().value(0)), expected);
    }
}
