//! Reads against retention, limits, slow readers and damage.

use super::{answer, merge, open_decided, read};
use crate::decision::{Decision, Decisions, JobRecord, RegionCut, Retention};
use crate::region::JobDirs;
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::FileWriter;
use futures::StreamExt;
use std::sync::Arc;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, JobId, JobVersion, RegionId};
use weir_planner::manifest::TaskSet;
use weir_planner::protocol::{ReadRequest, ReadTarget, Restore};
use weir_planner::schema::{Column, ColumnType, Schema};

struct Stored {
    _dir: tempfile::TempDir,
    decisions: Decisions,
    dirs: JobDirs,
    sequence: u64,
}

fn job() -> JobId {
    JobId::new("j").unwrap()
}

fn schema() -> Schema {
    Schema(vec![Column { name: "n".to_owned(), ty: ColumnType::BigInt, nullable: false }])
}

fn request(limit: Option<u64>) -> ReadRequest {
    ReadRequest { id: 1, job: job(), target: ReadTarget::Results, schema: schema(), limit, store_id: None, replaces_by: Vec::new() }
}

impl Stored {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let decisions = Decisions::open(dir.path()).unwrap();
        let record = JobRecord {
            attempt: Attempt::new(1),
            version: JobVersion::new(1),
            planned: TaskSet { tasks: Vec::new(), max_parallelism: 1, regions: Vec::new() },
            stateful: [].into(),
            rescale: false,
        };
        decisions.open_attempt(record, &job(), Restore::Fresh).unwrap();
        let dirs = JobDirs::of(dir.path(), &job());
        std::fs::create_dir_all(&dirs.results).unwrap();
        Stored { _dir: dir, decisions, dirs, sequence: 0 }
    }

    /// Writes a file of these numbers without deciding it.
    fn write(&self, name: &str, numbers: &[i64]) -> ResultFile {
        let rows = RecordBatch::try_new(Arc::new(schema().to_arrow()), vec![Arc::new(Int64Array::from(numbers.to_vec()))]).unwrap();
        let mut writer = FileWriter::try_new(Vec::new(), &rows.schema()).unwrap();
        writer.write(&rows).unwrap();
        let bytes = writer.into_inner().unwrap();
        let name = format!("{:032x}-{name}", xxhash_rust::xxh3::xxh3_128(&bytes));
        std::fs::write(self.dirs.results.join(&name), &bytes).unwrap();
        ResultFile { name, rows: numbers.len() as u64, bytes: bytes.len() as u64, written_at_ms: 1 }
    }

    fn decide(&mut self, results: Vec<ResultFile>, keep_rows: u64) -> Vec<String> {
        self.sequence += 1;
        let record = RegionCut::empty(EpochId { attempt: Attempt::new(1), sequence: self.sequence });
        let retention = Retention { rows: keep_rows, ms: None };
        let decision =
            Decision { job: job(), attempt: Attempt::new(1), region: RegionId::new(0), record, results, replacement: None, retention };
        self.decisions.decide(decision).unwrap().dropped
    }
}

fn numbers(bytes: Vec<u8>) -> Vec<i64> {
    let reader = StreamReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    reader.flat_map(|b| b.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

async fn all(stored: &Stored, limit: Option<u64>) -> Result<Vec<i64>, String> {
    let mut stream = read(stored.decisions.clone(), stored.dirs.clone(), request(limit)).await.map_err(|e| e.message)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(numbers(bytes))
}

/// SQL-8: only decided rows are seen, oldest first, up to the limit; none is an empty answer.
#[tokio::test]
async fn only_decided_rows_are_read_in_order() {
    let mut stored = Stored::new();
    assert_eq!(all(&stored, None).await.unwrap(), Vec::<i64>::new());
    let files = vec![stored.write("a", &[1, 2, 3]), stored.write("b", &[4])];
    stored.decide(files, 100);
    stored.write("c", &[9]);
    assert_eq!(all(&stored, None).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(all(&stored, Some(2)).await.unwrap(), [1, 2]);
    assert_eq!(all(&stored, Some(4)).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(all(&stored, Some(0)).await.unwrap(), Vec::<i64>::new());
}

/// A read that has begun survives the deletion of its files by retention.
#[test]
fn open_files_outlive_retention() {
    let mut stored = Stored::new();
    let files = vec![stored.write("a", &[1, 2]), stored.write("b", &[3])];
    stored.decide(files, 100);
    let open = open_decided(&stored.decisions, &stored.dirs, &request(None)).unwrap();
    let newer = stored.write("c", &[4]);
    for name in stored.decide(vec![newer], 1) {
        std::fs::remove_file(stored.dirs.results.join(name)).unwrap();
    }
    let (chunks, mut read) = tokio::sync::mpsc::channel(64);
    answer(open, &Arc::new(schema().to_arrow()), None, &[], chunks).unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = read.blocking_recv() {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    assert_eq!(numbers(bytes), [1, 2, 3]);
    let now = open_decided(&stored.decisions, &stored.dirs, &request(None)).unwrap();
    assert!(now.iter().map(|(f, _)| f.name.rsplit_once('-').unwrap().1).eq(["c"]));
}

/// P5, B4: a missing file is an error, and one that is damaged, be it by one bit, ends the stream
/// with one; neither is a shorter or a wrong answer.
#[tokio::test]
async fn damage_is_an_error_and_never_a_shorter_answer() {
    let mut stored = Stored::new();
    let files = vec![stored.write("a", &[1]), stored.write("b", &[2])];
    stored.decide(files, 100);
    let name = stored.decisions.results(&job()).unwrap()[1].name.clone();
    let path = stored.dirs.results.join(&name);
    let good = std::fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..good.len())
        .map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            bytes
        })
        .collect();
    damaged.extend([good[..good.len() / 2].to_vec(), Vec::new(), [good.as_slice(), &[0]].concat()]);
    for bytes in damaged {
        std::fs::write(&path, &bytes).unwrap();
        assert!(all(&stored, None).await.unwrap_err().contains(&format!("{name} does not match its checksum")));
        assert_eq!(merge(&stored.dirs.results, &stored.decisions.results(&job()).unwrap(), &[]).unwrap_err().class, Class::Corrupt);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(all(&stored, None).await.unwrap_err().contains("b is missing"));
    let mut other = request(None);
    other.schema.0[0].ty = ColumnType::Text;
    std::fs::write(&path, &good).unwrap();
    let mut stream = read(stored.decisions.clone(), stored.dirs.clone(), other).await.unwrap();
    let mut last = stream.next().await;
    while let Some(next) = stream.next().await {
        last = Some(next);
    }
    assert!(last.unwrap().unwrap_err().contains("n Int64"));
}

/// C51: a question that waited while the agent's data directory was swapped gets no empty answer.
#[tokio::test]
async fn rows_of_another_data_directory_are_refused() {
    let mut stored = Stored::new();
    let files = vec![stored.write("a", &[1])];
    stored.decide(files, 100);
    let ask = |store_id: &str| ReadRequest { store_id: Some(store_id.to_owned()), ..request(None) };
    assert!(read(stored.decisions.clone(), stored.dirs.clone(), ask(stored.decisions.store_id())).await.is_ok());
    let refused = read(stored.decisions.clone(), stored.dirs.clone(), ask("another")).await.err().unwrap();
    assert!(refused.message.contains("data directory another"), "{}", refused.message);
}

/// A reader that goes away ends the answer: dropping the stream frees its thread at the next chunk.
#[test]
fn an_answer_ends_with_its_reader() {
    let mut stored = Stored::new();
    let files = (0..50).map(|i| stored.write(&i.to_string(), &[i])).collect();
    stored.decide(files, 100);
    let open = open_decided(&stored.decisions, &stored.dirs, &request(None)).unwrap();
    let (chunks, read) = tokio::sync::mpsc::channel(1);
    drop(read);
    answer(open, &Arc::new(schema().to_arrow()), None, &[], chunks).unwrap();
}

/// Neighbours become one file with the same rows in the same order.
#[test]
fn merged_files_hold_the_same_rows() {
    let stored = Stored::new();
    let run = [stored.write("a", &[3, 1]), stored.write("b", &[2])];
    let merged = merge(&stored.dirs.results, &run, &[]).unwrap();
    assert_eq!(
        (merged.old.as_slice(), merged.new.rows, merged.new.written_at_ms),
        ([run[0].name.clone(), run[1].name.clone()].as_slice(), 3, 1)
    );
    let file = std::fs::File::open(stored.dirs.results.join(&merged.new.name)).unwrap();
    let (chunks, mut read) = tokio::sync::mpsc::channel(64);
    answer(vec![(merged.new, file)], &Arc::new(schema().to_arrow()), None, &[], chunks).unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = read.blocking_recv() {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    assert_eq!(numbers(bytes), [3, 1, 2]);
    std::fs::remove_file(stored.dirs.results.join(&run[0].name)).unwrap();
    assert_eq!(merge(&stored.dirs.results, &run, &[]).unwrap_err().class, Class::Retry);
}
