//! Tests of the result table sink.

use super::super::probe::{EPOCH, flushed, probe};
use super::*;
use arrow::array::{Array, Int64Array, StringArray};
use weir_planner::schema::Column;

fn schema() -> Schema {
    Schema(vec![Column { name: "n".to_owned(), ty: "BIGINT".parse().unwrap(), nullable: true }])
}

fn rows(values: &[i64]) -> RecordBatch {
    RecordBatch::try_new(Arc::new(schema().to_arrow()), vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
}

fn files(handle: SinkHandle) -> Vec<ResultFile> {
    match handle {
        SinkHandle::Files(files) => files,
        other => panic!("{other:?}"),
    }
}

fn read(dir: &Path, file: &ResultFile) -> Vec<i64> {
    let bytes = std::fs::read(dir.join(&file.name)).unwrap();
    assert_eq!(file.bytes, bytes.len() as u64);
    assert!(file.name.starts_with(&format!("{:032x}-", xxhash_rust::xxh3::xxh3_128(&bytes))), "{}", file.name);
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let values: Vec<i64> =
        batches.iter().flat_map(|batch| batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()).collect();
    assert_eq!(file.rows, values.len() as u64);
    values
}

/// CON-6, EPO-3: an epoch's rows, and no others, are in the files of its handle.
#[test]
fn each_epoch_has_its_own_files() {
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, &dir.path().join("made/on/the/way"));
    let mut sink = ResultSink::open(&schema(), &probe.opening).unwrap();
    assert_eq!(sink.push(&rows(&[1, 2])).unwrap(), Pushed::Taken);
    assert_eq!(sink.push(&rows(&[])).unwrap(), Pushed::Taken);
    assert_eq!(sink.push(&rows(&[3])).unwrap(), Pushed::Taken);
    sink.begin_flush(EPOCH).unwrap();
    // Rows of the next epoch arrive while this one is being written.
    assert_eq!(sink.push(&rows(&[4])).unwrap(), Pushed::Taken);
    let first = loop {
        let seen = probe.alarm.count();
        match sink.poll_flush().unwrap() {
            Flush::Done(handle) => break files(handle),
            Flush::Pending => probe.alarm.wait(seen),
        }
    };
    let path = &probe.opening.result_dir;
    assert_eq!(first.iter().map(|file| read(path, file)).collect::<Vec<_>>(), [vec![1, 2, 3]]);
    assert_eq!(first[0].written_at_ms, 1_767_225_600_000);
    let second = files(flushed(&mut sink, &probe).unwrap());
    assert_eq!(second.iter().map(|file| read(path, file)).collect::<Vec<_>>(), [vec![4]]);
    assert_eq!(files(flushed(&mut sink, &probe).unwrap()), []);
    // Equal rows of another epoch are another file: the first may be retired on its own.
    sink.push(&rows(&[4])).unwrap();
    let third = files(flushed(&mut sink, &probe).unwrap());
    assert_eq!(third.iter().map(|file| read(path, file)).collect::<Vec<_>>(), [vec![4]]);
    assert_ne!(third[0].name, second[0].name);
    sink.close();
    sink.close();
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 3, "no drafts are left");
}

/// Memory is bounded: a large epoch goes out in several files.
#[test]
fn a_large_epoch_goes_out_early() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema(vec![Column { name: "t".to_owned(), ty: "TEXT".parse().unwrap(), nullable: true }]);
    let probe = probe(0, 1, dir.path());
    let mut sink = ResultSink::open(&schema, &probe.opening).unwrap();
    let text = "x".repeat(33 << 20);
    let large = RecordBatch::try_new(Arc::new(schema.to_arrow()), vec![Arc::new(StringArray::from(vec![text]))]).unwrap();
    for _ in 0..3 {
        assert_eq!(sink.push(&large).unwrap(), Pushed::Taken);
    }
    let files = files(flushed(&mut sink, &probe).unwrap());
    assert_eq!(files.iter().map(|file| file.rows).collect::<Vec<_>>(), [2, 1]);
}

/// A6: a failed write poisons the epoch; the message names the file.
#[test]
fn a_lost_directory_fails_the_flush_and_stays_failed() {
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, &dir.path().join("results"));
    let mut sink = ResultSink::open(&schema(), &probe.opening).unwrap();
    std::fs::remove_dir_all(dir.path().join("results")).unwrap();
    sink.push(&rows(&[1])).unwrap();
    let error = flushed(&mut sink, &probe).unwrap_err();
    assert_eq!(error.class, Class::Retry);
    assert!(error.message.contains("cannot be written") && error.message.contains("results"), "{}", error.message);
    assert!(sink.push(&rows(&[2])).is_err());
}
