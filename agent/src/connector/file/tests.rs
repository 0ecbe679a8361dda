//! Tests of the file source and sink.

use super::super::probe::{EPOCH, flushed, open, probe, refused, schema as schema_of, stops_anywhere, work};
use super::sink::FileSink;
use super::*;
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use std::path::Path;
use std::sync::Arc;
use weir_kernel::io::{Pushed, Sink, SinkHandle};
use weir_planner::connector::{Csv, FileSink as SinkOptions, Nothing, SourceOptions};
use weir_planner::schema::{Column, Schema};
use weir_planner::spec::ErrorPolicy;

const AB: [(&str, &str); 2] = [("a", "BIGINT"), ("b", "TEXT")];

fn files(path: &str, format: Option<Format>, on_error: ErrorPolicy) -> SourceWork {
    work(SourceOptions::File(Options { path: path.to_owned() }), format, &AB, on_error)
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The contract over several files: stopped between any two polls, nothing is lost or doubled.
#[test]
fn lines_of_all_files_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let first: String = (0..10).map(|i| format!("{{\"a\":{i},\"b\":\"x\"}}\r\n")).collect();
    write(dir.path(), "1.json", first.as_bytes());
    write(dir.path(), "2.json", b"\xef\xbb\xbf{\"a\":10,\"b\":\"mark\"}\n\n\n{\"a\":11}");
    write(dir.path(), "3.json", b"");
    let pattern = format!("{}/*.json", dir.path().display());
    let given = stops_anywhere(&files(&pattern, None, ErrorPolicy::Fail), dir.path());
    let mut expected: Vec<String> = (0..10).map(|i| format!("{{\"a\":{i},\"b\":\"x\"}}")).collect();
    expected.extend(["{\"a\":10,\"b\":\"mark\"}".to_owned(), "{\"a\":11,\"b\":null}".to_owned()]);
    assert_eq!(given.all(), expected);
    // Two subtasks share them; every file has one reader.
    let all = files(&pattern, None, ErrorPolicy::Fail);
    let names = |subtask| open(&all, &[], &probe(subtask, 2, dir.path())).splits().into_iter().map(|split| split.name).collect::<Vec<_>>();
    let (even, odd) = (names(0), names(1));
    assert!(even[0].ends_with("1.json") && even[1].ends_with("3.json") && odd[0].ends_with("2.json") && odd.len() == 1);
}

/// C42: the place of a bad line is its line number in its file.
#[test]
fn a_bad_line_is_named_or_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "x.json", b"{\"a\":1}\n\n{\"a\":oops}\n{\"a\":4}\n");
    let skip = stops_anywhere(&files(&path, None, ErrorPolicy::Skip), dir.path());
    assert_eq!(skip.all(), ["{\"a\":1,\"b\":null}", "{\"a\":4,\"b\":null}"]);
    assert_eq!((skip.bad[0].position.as_str(), skip.bad[0].raw.as_slice()), ("line 3", &b"{\"a\":oops}"[..]));
    let mut source = open(&files(&path, None, ErrorPolicy::Fail), &[], &probe(0, 1, dir.path()));
    let error = source.poll(super::super::probe::SMALL).unwrap_err();
    assert!(error.message.contains(&format!("split '{path}', line 3: field 'a'")), "{}", error.message);
}

/// A record without end costs bounded memory and itself alone.
#[test]
fn an_endless_line_is_one_bad_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = b"{\"a\":1}\n{\"b\":\"".to_vec();
    bytes.resize(bytes.len() + 2 * lines::RECORD_BYTES_MAX + 5, b'x');
    bytes.extend_from_slice(b"\"}\n{\"a\":3}\n");
    let path = write(dir.path(), "x.json", &bytes);
    let work = files(&path, None, ErrorPolicy::Skip);
    let probe = probe(0, 1, dir.path());
    let mut given = super::super::probe::Given::default();
    let budget = Budget { rows: 100, bytes: 1 << 20 };
    assert!(super::super::probe::drain(open(&work, &[], &probe).as_mut(), &work, &probe, budget, usize::MAX, &mut given));
    assert_eq!(given.all(), ["{\"a\":1,\"b\":null}", "{\"a\":3,\"b\":null}"]);
    assert_eq!(given.bad.len(), 1);
    assert_eq!((given.bad[0].position.as_str(), given.bad[0].raw.len()), ("line 2", 1024));
}

#[test]
fn csv_by_header_and_by_place() {
    let dir = tempfile::tempdir().unwrap();
    let header = Some(Format::Csv(Csv { header: true, delimiter: ';' }));
    let text = b"b;extra;a\n\"one; \"\"1\"\"\";;1\n\"two\nlines\";x;2\r\n;;3\n\"\";;4\n5;6\n\"x\"y;;7\n";
    let path = write(dir.path(), "x.csv", text);
    let given = stops_anywhere(&files(&path, header.clone(), ErrorPolicy::Skip), dir.path());
    let expected = [r#"{"a":1,"b":"one; \"1\""}"#, r#"{"a":2,"b":"two\nlines"}"#, r#"{"a":3,"b":null}"#, r#"{"a":4,"b":""}"#];
    assert_eq!(given.all(), expected);
    let bad: Vec<(&str, &str)> = given.bad.iter().map(|bad| (bad.position.as_str(), bad.reason.as_str())).collect();
    assert_eq!(bad, [("line 6", "2 fields where 3 are expected"), ("line 7", "text follows a closing quote")]);
    let plain = write(dir.path(), "y.csv", b"1,one\nx,two\n,\n3,\"\n");
    let by_place = stops_anywhere(&files(&plain, Some(Format::Csv(Csv { header: false, delimiter: ',' })), ErrorPolicy::Skip), dir.path());
    assert_eq!(by_place.all(), [r#"{"a":1,"b":"one"}"#, r#"{"a":null,"b":null}"#]);
    assert_eq!(by_place.bad[0].reason, "field 'a': the value is not of type BIGINT");
    assert_eq!(by_place.bad[1].reason, "a quote is not closed");
    let lacking = write(dir.path(), "z.csv", b"a;c\n1;2\n");
    let mut source = open(&files(&lacking, header, ErrorPolicy::Skip), &[], &probe(0, 1, dir.path()));
    let error = source.poll(super::super::probe::SMALL).unwrap_err();
    assert!(error.message.contains("no column 'b'; it has a, c") && error.message.contains("z.csv"), "{}", error.message);
}

#[test]
fn wrong_paths_and_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let message = |path: &str, format| {
        let error = refused(&files(path, format, ErrorPolicy::Fail), &[], dir.path());
        assert_eq!(error.class, weir_planner::error::Class::User);
        error.to_failure().message
    };
    let root = dir.path().to_str().unwrap();
    assert!(message(&format!("{root}/none.json"), None).contains("none.json' cannot be opened: No such file"));
    assert!(message(&format!("{root}/*.nothing"), None).contains("no file matches path"));
    assert!(message(root, None).contains("is a directory; to read the files in it write"));
    let gz = write(dir.path(), "x.json.gz", &[0x1f, 0x8b, 8, 0]);
    assert!(message(&gz, None).contains("is gzip: compressed files are not read yet"));
    let text = write(dir.path(), "x.parquet", b"{}");
    assert!(message(&text, Some(Format::Parquet(Nothing {}))).contains("x.parquet' is not a readable Parquet file"));
    // A cut or replaced file must not be read from the middle.
    let short = write(dir.path(), "short.json", b"{}\n");
    let position =
        SplitPosition { split: short.clone(), position: Position::Byte { offset: 100, line: 9 }, time_max_ms: None, ended: false };
    let error = refused(&files(&short, None, ErrorPolicy::Fail), &[position], dir.path());
    assert!(error.message.contains("fewer than the 100 that were already read"), "{}", error.message);
}

/// A file that has ended is not needed any more, and files that came later are not read.
#[test]
fn a_restore_keeps_to_the_recorded_files() {
    let dir = tempfile::tempdir().unwrap();
    let kept = write(dir.path(), "2.json", b"{\"a\":2}\n{\"a\":3}\n");
    write(dir.path(), "0-new.json", b"{\"a\":0}\n");
    let gone = dir.path().join("1.json").to_str().unwrap().to_owned();
    let positions = [
        SplitPosition { split: gone.clone(), position: Position::Byte { offset: 50, line: 5 }, time_max_ms: Some(7), ended: true },
        SplitPosition { split: kept, position: Position::Byte { offset: 8, line: 1 }, time_max_ms: Some(8), ended: false },
    ];
    let all = files(&format!("{}/*.json", dir.path().display()), None, ErrorPolicy::Fail);
    let probe = probe(0, 1, dir.path());
    let mut source = open(&all, &positions, &probe);
    let splits = source.splits();
    assert_eq!(splits.iter().map(|split| (split.ended, split.time_max_ms)).collect::<Vec<_>>(), [(true, Some(7)), (false, Some(8))]);
    let mut given = super::super::probe::Given::default();
    assert!(super::super::probe::drain(source.as_mut(), &all, &probe, super::super::probe::SMALL, 9, &mut given));
    assert_eq!(given.all(), ["{\"a\":3,\"b\":null}"]);
    assert_eq!(schema_of(&all).0.len(), 2);
}

fn numbers() -> Schema {
    Schema(vec![Column { name: "n".to_owned(), ty: "BIGINT".parse().unwrap(), nullable: true }])
}

fn rows(values: &[i64]) -> RecordBatch {
    RecordBatch::try_new(Arc::new(numbers().to_arrow()), vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
}

/// C48: directories are made; what lies past the decided length goes; nothing is doubled.
#[test]
fn a_file_sink_cuts_what_was_not_decided() {
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions { path: dir.path().join("a/b").to_str().unwrap().to_owned() };
    let path = dir.path().join("a/b/part-3.ndjson");
    let probe = probe(3, 4, dir.path());
    let mut sink = FileSink::open(&options, &numbers(), None, &probe.opening).unwrap();
    assert_eq!(sink.push(&rows(&[1, 2])).unwrap(), Pushed::Taken);
    let first = flushed(&mut sink, &probe).unwrap();
    assert_eq!(first, SinkHandle::Length(16));
    // Killed before the decision: without a handle the sink may begin anew, since the file is its own.
    drop(sink);
    let mut sink = FileSink::open(&options, &numbers(), None, &probe.opening).unwrap();
    sink.push(&rows(&[1, 2])).unwrap();
    let decided = flushed(&mut sink, &probe).unwrap();
    sink.decided(EPOCH);
    sink.push(&rows(&[3])).unwrap();
    assert_eq!(flushed(&mut sink, &probe).unwrap(), SinkHandle::Length(24));
    sink.push(&rows(&[4])).unwrap();
    drop(sink);
    // The second epoch was flushed but never decided.
    let mut sink = FileSink::open(&options, &numbers(), Some(&decided), &probe.opening).unwrap();
    sink.push(&rows(&[3, 4])).unwrap();
    assert_eq!(flushed(&mut sink, &probe).unwrap(), SinkHandle::Length(32));
    drop(sink);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n");
    let failed = |handle| FileSink::open(&options, &numbers(), handle, &probe.opening).err().unwrap();
    let error = failed(None);
    assert!(
        error.message.contains("part-3.ndjson' exists and is not empty") && error.message.contains("move it away"),
        "{}",
        error.message
    );
    let error = failed(Some(&SinkHandle::Length(99)));
    assert!(error.message.contains("32 bytes, fewer than the 99 that were confirmed"), "{}", error.message);
    assert_eq!(failed(Some(&SinkHandle::None)).class, weir_planner::error::Class::Corrupt);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no mark is left");
}

/// C48: two sinks with one path are told so; they never write over each other's rows.
#[test]
fn a_file_has_one_sink_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions { path: dir.path().to_str().unwrap().to_owned() };
    let probe = probe(0, 1, dir.path());
    let mut sink = FileSink::open(&options, &numbers(), None, &probe.opening).unwrap();
    sink.push(&rows(&[1])).unwrap();
    let decided = flushed(&mut sink, &probe).unwrap();
    // Whatever the other believes that the file holds.
    for handle in [None, Some(&SinkHandle::Length(0)), Some(&decided)] {
        let error = FileSink::open(&options, &numbers(), handle, &probe.opening).err().unwrap();
        assert_eq!(error.class, weir_planner::error::Class::Retry);
        assert!(error.message.contains("part-0.ndjson' is being written by another sink"), "{}", error.message);
    }
    sink.push(&rows(&[2])).unwrap();
    flushed(&mut sink, &probe).unwrap();
    drop(sink);
    assert_eq!(std::fs::read_to_string(dir.path().join("part-0.ndjson")).unwrap(), "{\"n\":1}\n{\"n\":2}\n");
    FileSink::open(&options, &numbers(), Some(&decided), &probe.opening).unwrap();
}

/// EPO-4: a crash between the first decisions of two regions leaves the files of one of them in no
/// cut. They are read all the same; once all have decided, the files are those of the first start.
#[test]
fn files_of_a_task_that_never_decided_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..4 {
        write(dir.path(), &format!("{n}.json"), format!("{{\"a\":{n}}}\n").as_bytes());
    }
    let work = files(&format!("{}/*.json", dir.path().display()), None, ErrorPolicy::Fail);
    let read = |source: &mut dyn weir_kernel::io::Source| {
        let mut values = Vec::new();
        while let Polled::Batch(batch) = source.poll(super::super::probe::SMALL).unwrap() {
            values.extend(batch.rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
        values
    };
    // The first of two tasks has 0 and 2, and decided both; of the second nothing is known.
    let mut first = open(&work, &[], &probe(0, 2, dir.path()));
    assert_eq!(read(first.as_mut()), [0, 2]);
    let positions = first.cut();
    let again = |subtask, undecided| {
        let mut probe = probe(subtask, 2, dir.path());
        probe.opening.undecided = undecided;
        read(open(&work, &positions, &probe).as_mut())
    };
    assert_eq!((again(0, true), again(1, true)), (vec![], vec![1, 3]));
    assert_eq!((again(0, false), again(1, false)), (vec![], vec![]));
}

/// Files that come after the first start are not read, and it is said so.
#[test]
fn files_that_come_later_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "1.json", b"{\"a\":1}\n");
    let work = files(&format!("{}/*.json", dir.path().display()), None, ErrorPolicy::Fail);
    let mut first = open(&work, &[], &probe(0, 1, dir.path()));
    let positions = first.cut();
    let greeting = || open(&work, &positions, &probe(0, 1, dir.path())).greeting();
    assert_eq!((first.greeting(), greeting()), (None, None));
    write(dir.path(), "2.json", b"{\"a\":2}\n");
    write(dir.path(), "3.json", b"{\"a\":3}\n");
    let said = greeting().unwrap();
    assert!(said.contains("first started; 2 that") && said.contains("2.json', are not read"), "{said}");
}

/// C48: what tasks wrote that are no more, and of which nothing was decided, is taken away: the same
/// rows come again in the files of others. What was decided stays, and so does what is being written.
#[test]
fn undecided_files_of_tasks_that_are_no_more_go() {
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions { path: dir.path().to_str().unwrap().to_owned() };
    let opened = |subtask, tasks| {
        let probe = probe(subtask, tasks, dir.path());
        let mut sink = FileSink::open(&options, &numbers(), None, &probe.opening).unwrap();
        sink.push(&rows(&[i64::from(subtask)])).unwrap();
        flushed(&mut sink, &probe).unwrap();
        (sink, probe)
    };
    // Of four tasks the second decides; all are killed but the last, which stands for another job's.
    let mut four: Vec<_> = (0..4).map(|subtask| opened(subtask, 4)).collect();
    four[1].0.decided(EPOCH);
    let last = four.pop();
    drop(four);
    drop(opened(0, 1));
    let there = |number: u32| dir.path().join(format!("part-{number}.ndjson")).exists();
    assert_eq!([0, 1, 2, 3].map(there), [true, true, false, true]);
    assert!(!dir.path().join(".part-2.ndjson.new").exists());
    drop(last);
}

/// EV-9: a held file is not read while the others go on, nor are files opened in its place; let go, it
/// goes on where it was.
#[test]
fn a_held_file_waits() {
    let dir = tempfile::tempdir().unwrap();
    let lines = |from: i64| (from..from + 6).map(|i| format!("{{\"a\":{i}}}\n")).collect::<String>();
    for i in 0..OPEN_FILES_MAX as i64 + 4 {
        write(dir.path(), &format!("{i:02}.json"), lines(i * 10).as_bytes());
    }
    let work = files(&format!("{}/*.json", dir.path().display()), None, ErrorPolicy::Fail);
    let mut source = open(&work, &[], &probe(0, 1, dir.path()));
    let count = source.splits().len();
    let mut given: Vec<Vec<i64>> = vec![Vec::new(); count];
    let take = |source: &mut dyn Source, given: &mut Vec<Vec<i64>>| match source.poll(super::super::probe::SMALL).unwrap() {
        Polled::Batch(batch) => {
            given[batch.split].extend(batch.rows.column(0).as_primitive::<Int64Type>().values());
            Some(batch.split)
        }
        Polled::Pending { .. } | Polled::End => None,
    };
    // All that are read in turn but one are held: it alone goes on.
    let mut held: Vec<bool> = (0..count).map(|i| i < OPEN_FILES_MAX && i != 3).collect();
    source.hold(&held);
    assert_eq!(take(source.as_mut(), &mut given), Some(3));
    held[3] = true;
    source.hold(&held);
    assert_eq!(take(source.as_mut(), &mut given), None, "the files that were not begun stay closed");
    held[3] = false;
    held[0] = false;
    source.hold(&held);
    let read: Vec<Option<usize>> = (0..4).map(|_| take(source.as_mut(), &mut given)).collect();
    assert!(read.iter().all(|split| matches!(split, Some(0 | 3))), "{read:?}");
    source.hold(&vec![false; count]);
    while take(source.as_mut(), &mut given).is_some() {}
    let expected: Vec<Vec<i64>> = (0..count as i64).map(|i| (i * 10..i * 10 + 6).collect()).collect();
    assert_eq!(given, expected);
}
