//! State of operators that keep whole rows: what is seen is what was kept.

use super::View;
use crate::envelope::Data;
use crate::io::StateImage;
use crate::origin::{Origins, Partition};
use crate::state::held::Held;
use crate::state::tops::{Shape, Tops};
use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use std::sync::Arc;
use weir_planner::id::OperatorId;
use weir_planner::plan::{PlanOperator, SortOrder, TopWork, Work};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{Buffer, MemoryBuffer};

fn input() -> Schema {
    let column = |name: &str, ty| Column { name: name.to_owned(), ty, nullable: true };
    Schema(vec![column("name", ColumnType::Text), column("n", ColumnType::BigInt)])
}

/// Names, numbers, and times of 10 ms a number, from a partition of a source.
fn rows(names: &[Option<&str>]) -> Data {
    let numbers = Int64Array::from_iter_values(1..=names.len() as i64);
    let times = Int64Array::from_iter_values((1..=names.len() as i64).map(|n| n * 10));
    let rows = RecordBatch::try_new(Arc::new(input().to_arrow()), vec![Arc::new(StringArray::from(names.to_vec())), Arc::new(numbers)]);
    let origin = Arc::new(Partition { source: OperatorId::new("src").unwrap(), split: "0".to_owned() });
    Data { rows: rows.unwrap(), times, stamps: None, origins: Origins::One(origin) }
}

/// Name, number and event time of what is seen.
fn seen(operator: &PlanOperator, image: StateImage) -> Vec<(Option<String>, i64, i64)> {
    let mut view = View::open(operator, 128, &[Arc::new(image)], &[]).unwrap();
    let mut found = Vec::new();
    while let Some(rows) = view.batch().unwrap() {
        let names = rows.column_by_name("name").unwrap().as_string::<i32>();
        let numbers = rows.column_by_name("n").unwrap().as_primitive::<Int64Type>();
        let times = rows.column_by_name("event_time").unwrap().as_primitive::<TimestampMillisecondType>();
        let of_row = |row| (names.iter().nth(row).unwrap().map(str::to_owned), numbers.value(row), times.value(row));
        found.extend((0..rows.num_rows()).map(of_row));
    }
    found.sort_by_key(|(_, number, _)| *number);
    found
}

const NAMES: [Option<&str>; 3] = [Some("a"), None, Some("c")];

fn expected() -> Vec<(Option<String>, i64, i64)> {
    vec![(Some("a".to_owned()), 1, 10), (None, 2, 20), (Some("c".to_owned()), 3, 30)]
}

/// ST-1: rows that a buffer holds, with the columns that they came with.
#[test]
fn rows_of_a_buffer_are_seen_as_they_came() {
    let id = OperatorId::new("hold").unwrap();
    let mut held = Held::new(&id, 0, 0..128, Arc::new(input().to_arrow()));
    held.put(rows(&NAMES));
    let image = held.freeze(1, 2).unwrap().unwrap();
    let work = Work::Buffer(Buffer::Memory(MemoryBuffer { capacity: 10, timeout_ms: 1_000 }));
    assert_eq!(seen(&PlanOperator { id, output: input(), work }, image), expected());
}

/// ST-1: rows that may be among the first, without the place that they do not have yet.
#[test]
fn rows_of_a_top_are_seen_as_they_came() {
    let id = OperatorId::new("top").unwrap();
    let order = SortOrder { descending: true, nulls_first: false };
    let mut tops = Tops::new(Shape {
        operator: id.clone(),
        subtask: 0,
        rows: Arc::new(input().to_arrow()),
        keys: vec![0],
        order: vec![(1, order)],
        limit: 2,
        max_parallelism: 128,
        owned: 0..128,
    });
    let tops = tops.as_mut().unwrap();
    tops.add(rows(&NAMES)).unwrap();
    let image = tops.freeze().unwrap().unwrap();
    let work =
        TopWork { keys: vec!["name".to_owned()], order_by: vec![("n".to_owned(), order)], limit: 2, place: Some("place".to_owned()) };
    let mut output = input();
    output.0.push(Column { name: "place".to_owned(), ty: ColumnType::BigInt, nullable: false });
    assert_eq!(seen(&PlanOperator { id, output, work: Work::Top(work) }, image), expected());
}
