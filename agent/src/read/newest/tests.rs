//! Which rows of result files are the last of their combination.

use super::{Last, Newest};
use crate::read::{answer, merge};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::FileWriter;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::schema::{Column, ColumnType, Schema};

/// A key, a window, a value.
type Row = (Option<&'static str>, i64, i64);

fn schema() -> SchemaRef {
    let column = |name: &str, ty, nullable| Column { name: name.to_owned(), ty, nullable };
    let columns =
        vec![column("n", ColumnType::BigInt, false), column("k", ColumnType::Text, true), column("at", ColumnType::BigInt, false)];
    Arc::new(Schema(columns).to_arrow())
}

fn batch(rows: &[Row]) -> RecordBatch {
    let keys: Vec<Option<&str>> = rows.iter().map(|row| row.0).collect();
    let numbers = |pick: fn(&Row) -> i64| Arc::new(Int64Array::from(rows.iter().map(pick).collect::<Vec<_>>())) as ArrayRef;
    RecordBatch::try_new(schema(), vec![numbers(|row| row.2), Arc::new(StringArray::from(keys)), numbers(|row| row.1)]).unwrap()
}

fn write(dir: &Path, batches: &[&[Row]]) -> ResultFile {
    let mut writer = FileWriter::try_new(Vec::new(), &schema()).unwrap();
    batches.iter().for_each(|rows| writer.write(&batch(rows)).unwrap());
    let bytes = writer.into_inner().unwrap();
    let name = format!("{:032x}-{}", xxhash_rust::xxh3::xxh3_128(&bytes), uuid::Uuid::new_v4().simple());
    std::fs::write(dir.join(&name), &bytes).unwrap();
    let rows = batches.iter().map(|rows| rows.len() as u64).sum();
    ResultFile { name, rows, bytes: bytes.len() as u64, written_at_ms: 1 }
}

fn by(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The values that a read gives.
fn given(dir: &Path, files: &[ResultFile], limit: Option<u64>, names: &[&str]) -> Vec<i64> {
    let open = files.iter().map(|file| (file.clone(), File::open(dir.join(&file.name)).unwrap())).collect();
    let (chunks, mut read) = tokio::sync::mpsc::channel(1_024);
    answer(open, &schema(), limit, &by(names), chunks).unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = read.blocking_recv() {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    let reader = StreamReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    reader.flat_map(|rows| rows.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// WIN-4: of equal keys and windows only the newest row is read, in the order of arrival, over batches
/// and files; NULL is a key like any other.
#[test]
fn a_later_row_replaces_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        write(dir.path(), &[&[(Some("a"), 0, 1), (Some("b"), 0, 2), (None, 0, 3)], &[(Some("a"), 5, 4)]]),
        write(dir.path(), &[&[(Some("a"), 0, 5), (Some("a"), 0, 6)]]),
        write(dir.path(), &[&[(None, 0, 7), (Some("b"), 5, 8)], &[(Some("b"), 5, 9)]]),
    ];
    let path = dir.path();
    assert_eq!(given(path, &files, None, &["k", "at"]), [2, 4, 6, 7, 9]);
    assert_eq!(given(path, &files, None, &["at", "k"]), [2, 4, 6, 7, 9]);
    assert_eq!(given(path, &files, None, &["k"]), [6, 7, 9]);
    assert_eq!(given(path, &files, None, &[]), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // A limit counts what is given.
    assert_eq!(given(path, &files, Some(3), &["k", "at"]), [2, 4, 6]);
    assert_eq!(given(path, &files, Some(0), &["k", "at"]), [0; 0]);
    assert_eq!(given(path, &[], None, &["k", "at"]), [0; 0]);
}

/// WIN-4: merging files drops what no reader would be given, and no more.
#[test]
fn merged_files_keep_the_newest_rows() {
    let dir = tempfile::tempdir().unwrap();
    let run =
        [write(dir.path(), &[&[(Some("a"), 0, 1), (Some("b"), 0, 2)]]), write(dir.path(), &[&[(Some("a"), 0, 3)], &[(Some("c"), 0, 4)]])];
    let later = write(dir.path(), &[&[(Some("b"), 0, 5)]]);
    let merged = merge(dir.path(), &run, &by(&["k", "at"])).unwrap().new;
    assert_eq!(merged.rows, 3);
    assert_eq!(given(dir.path(), std::slice::from_ref(&merged), None, &[]), [2, 3, 4]);
    assert_eq!(given(dir.path(), &[merged, later], None, &["k", "at"]), [3, 4, 5]);
}

/// Against a map, over random rows in random files (seed printed).
#[test]
fn random_rows_are_replaced_as_a_map_would() {
    let seed = 20_261_201_u64;
    println!("seed {seed}");
    let mut state = seed;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let keys = [None, Some(""), Some("a"), Some("aa"), Some("b")];
    for _ in 0..50 {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, mut newest, mut at) = (Vec::new(), BTreeMap::new(), 0);
        for _ in 0..random(5) {
            let rows: Vec<Row> = (0..random(30))
                .map(|_| {
                    at += 1;
                    let row = (keys[random(5) as usize], random(3) as i64, at);
                    newest.insert((row.0, row.1), row.2);
                    row
                })
                .collect();
            let (first, second) = rows.split_at(random(rows.len() as u64 + 1) as usize);
            files.push(write(dir.path(), &[first, second]));
        }
        let mut expected: Vec<i64> = newest.into_values().collect();
        expected.sort_unstable();
        assert_eq!(given(dir.path(), &files, None, &["k", "at"]), expected);
    }
}

/// A column that files lack is an error, not an answer.
#[test]
fn columns_that_are_not_there_are_told() {
    let Err(error) = Last::new(&schema(), &by(&["nothing"])) else { panic!("there is no such column") };
    assert_eq!(error.class, Class::Corrupt);
    let mut newest = Newest { last: Vec::<bool>::new().into(), next: 0 };
    assert!(newest.keep(&batch(&[(None, 1, 1)])).is_err(), "more rows than were counted");
    assert_eq!(newest.last.len(), 0);
}
