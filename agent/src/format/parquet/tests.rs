//! Tests of the Parquet reader, over files written here.

use super::*;
use arrow::array::{Float64Array, Int32Array, LargeStringArray, StringArray, TimestampNanosecondArray};
use weir_planner::schema::Column;

fn column(name: &str, ty: &str) -> DecodeColumn {
    DecodeColumn { column: Column { name: name.to_owned(), ty: ty.parse().unwrap(), nullable: true }, timestamp_unit: None }
}

fn file(dir: &std::path::Path, columns: Vec<(&str, ArrayRef)>) -> String {
    let path = dir.join("x.parquet");
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path.to_str().unwrap().to_owned()
}

fn sample(dir: &std::path::Path) -> String {
    let nanos = vec![Some(-1), Some(1_000_000), None, Some(1_999_999), Some(0)];
    file(
        dir,
        vec![
            ("skipped", Arc::new(Float64Array::from(vec![0.5; 5])) as ArrayRef),
            ("small", Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]))),
            ("wide", Arc::new(Int64Array::from(vec![1, i64::from(i32::MAX), i64::MAX, -1, 0]))),
            ("at", Arc::new(TimestampNanosecondArray::from(nanos))),
            ("text", Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("c"), Some(""), Some("é")]))),
            ("a.b", Arc::new(StringArray::from(vec!["dot"; 5]))),
        ],
    )
}

fn read(path: &str, columns: &[DecodeColumn], from: u64, step: usize) -> (Vec<Vec<String>>, Vec<Bad>) {
    let used: Vec<String> = columns.iter().map(|column| column.column.name.clone()).collect();
    let mut file = ParquetFile::open(path, columns, &used, from, 2).unwrap();
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    while file.left() > 0 {
        let (decoded, _) = file.read(step).unwrap();
        for row in 0..decoded.rows.num_rows() {
            let cell = |array: &ArrayRef| {
                if array.is_null(row) { "NULL".to_owned() } else { arrow::util::display::array_value_to_string(array, row).unwrap() }
            };
            rows.push(decoded.rows.columns().iter().map(cell).collect());
        }
        bad.extend(decoded.bad);
    }
    (rows, bad)
}

/// EV-1: times are floored. KER-7: a value that does not fit takes only its own row along.
#[test]
fn columns_are_cast_and_misfits_go_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let columns =
        [column("text", "TEXT"), column("small", "BIGINT"), column("wide", "INTEGER"), column("at", "TIMESTAMP(3)"), column("a.b", "TEXT")];
    let (rows, bad) = read(&path, &columns, 0, 1);
    let expected = [
        ["a", "1", "1", "1969-12-31T23:59:59.999", "dot"],
        ["NULL", "2", "2147483647", "1970-01-01T00:00:00.001", "dot"],
        ["", "4", "-1", "1970-01-01T00:00:00.001", "dot"],
        ["é", "5", "0", "1970-01-01T00:00:00", "dot"],
    ];
    assert_eq!(rows, expected);
    // A row of a file has no record of its own: it is kept as JSON, in the file's columns and types (CON-5).
    let raw = br#"{"small":3,"wide":9223372036854775807,"at":null,"text":"c","a.b":"dot"}"#.to_vec();
    assert_eq!(bad, [Bad { at: 2, reason: "field 'wide': the value is out of range for INTEGER".to_owned(), raw }]);
    // From any row on, in any step.
    for (from, step) in [(0, 5), (1, 2), (3, 1), (5, 1)] {
        let (tail, _) = read(&path, &columns, from, step);
        let skipped = usize::try_from(if from > 2 { from - 1 } else { from }).unwrap();
        assert_eq!(tail, expected[skipped.min(4)..], "from {from}");
    }
}

#[test]
fn what_the_file_lacks_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let refused = |columns: Vec<DecodeColumn>, from| {
        let used: Vec<String> = columns.iter().map(|column| column.column.name.clone()).collect();
        ParquetFile::open(&path, &columns, &used, from, 2).err().unwrap().message
    };
    assert_eq!(
        refused(vec![column("none", "TEXT")], 0),
        format!("file '{path}' has no column 'none'; it has skipped, small, wide, at, text, a.b")
    );
    assert_eq!(
        refused(vec![column("text", "BIGINT")], 0),
        format!("file '{path}': column 'text' is LargeUtf8, which does not become BIGINT")
    );
    // C29: integers are no times without a unit.
    assert_eq!(
        refused(vec![column("wide", "TIMESTAMP(3)")], 0),
        format!("file '{path}': column 'wide' is Int64, which does not become TIMESTAMP(3)")
    );
    assert!(refused(vec![column("small", "BIGINT")], 6).contains("has 5 rows, fewer than the 6"));
    let mut needed = column("at", "TIMESTAMP(3)");
    needed.column.nullable = false;
    let (rows, bad) = read(&path, &[needed], 0, 5);
    assert_eq!((rows.len(), bad[0].reason.as_str()), (4, "field 'at': no value for a column that is NOT NULL"));
    let in_seconds = DecodeColumn { timestamp_unit: Some(TimeUnit::Second), ..column("small", "TIMESTAMP(3)") };
    assert_eq!(read(&path, &[in_seconds], 4, 1).0, [["1970-01-01T00:00:05"]]);
}
