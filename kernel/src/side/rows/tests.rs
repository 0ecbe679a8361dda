//! Error rows and late rows, column by column.

use super::{BATCH_BYTES, ErrorRow, RAW_BYTES_MAX, brief, errors, json, late};
use crate::envelope::{Data, batch};
use crate::origin::Origins;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{Int64Type, Schema as ArrowSchema, TimestampMillisecondType};
use std::sync::Arc;
use weir_planner::schema::{Column, ColumnType, Schema, error_rows, late_rows};

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn schema(columns: &[(&str, ColumnType)]) -> Schema {
    Schema(columns.iter().map(|(name, ty)| Column { name: (*name).to_owned(), ty: *ty, nullable: false }).collect())
}

fn bad(raw: Vec<u8>) -> ErrorRow {
    ErrorRow { raw, reason: "why".to_owned(), partition: Some("p".to_owned()), position: None }
}

/// EV-5: columns by name: those that the rows lack are NULL, and so are values that do not become the
/// column's type; order is the consumer's; columns that it does not take are left out.
#[test]
fn late_rows_go_by_name() {
    let taken = Arc::new(
        late_rows(&schema(&[("q", ColumnType::Text), ("v", ColumnType::BigInt), ("k", ColumnType::Integer), ("n", ColumnType::BigInt)]))
            .to_arrow(),
    );
    let given = rows(vec![
        ("k", Arc::new(Int64Array::from(vec![1, i64::MAX]))),
        ("v", Arc::new(Int64Array::from(vec![Some(5), None]))),
        ("n", Arc::new(StringArray::from(vec!["7", "seven"]))),
        ("other", Arc::new(Int64Array::from(vec![0, 0]))),
    ]);
    let data = Data {
        rows: given,
        times: Int64Array::from(vec![10, 20]),
        stamps: Some(Int64Array::from(vec![30, 40])),
        origins: Origins::Unknown,
    };
    let late = late(&data, "late", &Int64Array::from(vec![3, 4]), &taken).unwrap();
    assert_eq!((late.times.values(), late.stamps.unwrap().values()), (data.times.values(), data.stamps.as_ref().unwrap().values()));
    assert_eq!(late.rows.schema(), taken);
    let names: Vec<&str> = taken.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["q", "v", "k", "n", "__reason", "__late_by_ms"]);
    assert_eq!(late.rows.column(0).null_count(), 2);
    assert_eq!(late.rows.column(1).as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(5), None]));
    assert_eq!(late.rows.column(2).as_primitive(), &Int32Array::from(vec![Some(1), None]));
    assert_eq!(late.rows.column(3).as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(7), None]));
    assert_eq!(late.rows.column(4).as_string::<i32>(), &StringArray::from(vec!["late", "late"]));
    assert_eq!(late.rows.column(5).as_primitive::<Int64Type>(), &Int64Array::from(vec![3, 4]));
}

/// CON-5: what an error row carries; a record longer than a MiB is cut.
#[test]
fn error_rows_carry_the_record_and_its_place() {
    let taken = Arc::new(error_rows().to_arrow());
    let given = errors("src", &[bad(b"x".to_vec()), bad(vec![b'y'; RAW_BYTES_MAX + 1])], 77, &taken).unwrap();
    let [data] = given.as_slice() else { panic!("one batch") };
    let raw = data.rows.column(0).as_binary::<i32>();
    assert_eq!((raw.value(0), raw.value(1).len()), (&b"x"[..], RAW_BYTES_MAX));
    let text = |column: usize| data.rows.column(column).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>();
    let both = |text: &str| vec![Some(text.to_owned()), Some(text.to_owned())];
    assert_eq!((text(1), text(2), text(3), text(4)), (both("why"), both("src"), both("p"), vec![None, None]));
    let at = data.rows.column(5).as_primitive::<TimestampMillisecondType>();
    assert_eq!((at.values().to_vec(), data.times.values().to_vec()), (vec![77, 77], vec![77, 77]));
    let other = Arc::new(ArrowSchema::empty());
    assert!(errors("src", &[bad(Vec::new())], 0, &other).is_err());
}

/// Large records leave in several batches, each once and in order.
#[test]
fn large_error_rows_are_cut_into_batches() {
    let many: Vec<ErrorRow> = (0..20u8).map(|i| bad(vec![i; RAW_BYTES_MAX])).collect();
    let given = errors("src", &many, 0, &Arc::new(error_rows().to_arrow())).unwrap();
    assert_eq!(given.iter().map(Data::len).collect::<Vec<_>>(), [8, 8, 4]);
    let raw = |data: &Data| data.rows.column(0).as_binary::<i32>().iter().map(|raw| raw.unwrap()[0]).collect::<Vec<_>>();
    assert_eq!(given.iter().flat_map(raw).collect::<Vec<_>>(), (0..20).collect::<Vec<u8>>());
    let huge = [bad(vec![0; BATCH_BYTES + 1]), bad(vec![1])];
    assert_eq!(errors("src", &huge, 0, &Arc::new(error_rows().to_arrow())).unwrap().len(), 2);
}

/// A row as JSON: one object each, NULLs and line breaks included; one without columns too.
#[test]
fn rows_become_json() {
    let given = rows(vec![
        ("t", Arc::new(StringArray::from(vec![Some("a\"b\nc"), None]))),
        ("f", Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
        ("d", Arc::new(Decimal128Array::from(vec![12_345, -1]).with_precision_and_scale(10, 2).unwrap())),
        ("b", Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![0, 1]))),
    ]);
    let texts: Vec<String> = json(&given).unwrap().into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
    let first = r#"{"t":"a\"b\nc","f":1.5,"d":123.45,"b":"00ff","at":"1970-01-01T00:00:00"}"#;
    let second = r#"{"t":null,"f":null,"d":-0.01,"b":"","at":"1970-01-01T00:00:00.001"}"#;
    assert_eq!(texts, [first, second]);
    let none = batch(Arc::new(ArrowSchema::empty()), Vec::new(), 3).unwrap();
    assert_eq!(json(&none).unwrap(), vec![b"{}".to_vec(); 3]);
    assert_eq!(json(&given.slice(0, 0)).unwrap(), Vec::<Vec<u8>>::new());
    let long = rows(vec![("t", Arc::new(StringArray::from(vec!["ä".repeat(RAW_BYTES_MAX)])))]);
    assert_eq!(json(&long).unwrap()[0].len(), RAW_BYTES_MAX);
    assert_eq!(brief(&long, 8).unwrap(), r#"{"t":"ää…"#);
    assert_eq!(brief(&given.slice(1, 1), 500).unwrap(), second);
}
