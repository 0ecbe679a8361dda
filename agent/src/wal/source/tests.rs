//! A logged source over a source that can be looked into: what is confirmed when, and what a crash leaves.

use super::super::tests::{Told, batch, kinds, place};
use super::*;
use crate::connector::probe::{Probe, probe, schema, work};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use weir_kernel::io::BadRecord;
use weir_planner::connector::{SourceOptions, Values};
use weir_planner::spec::{Durability, DurabilityBackend, ErrorPolicy};

const SPLIT: &str = "feed";

/// What a test and its source share. Records are numbers; those below zero are bad ones, and come last in a batch.
#[derive(Default)]
struct Feed {
    batches: VecDeque<Vec<i64>>,
    /// Undecoded bytes that each batch is said to have.
    bytes: usize,
    /// Records that were taken by the log.
    taken: u64,
    /// Confirmed to whoever sent them.
    confirmed: u64,
    closed: bool,
}

struct FeedSource(Arc<Mutex<Feed>>);

impl Source for FeedSource {
    fn splits(&self) -> Vec<Split> {
        vec![Split { name: SPLIT.to_owned(), ended: false, time_max_ms: None }]
    }

    fn poll(&mut self, _budget: Budget) -> Result<Polled, Error> {
        let mut feed = self.0.lock();
        let Some(records) = feed.batches.pop_front() else { return Ok(Polled::Pending { until_ns: None }) };
        feed.taken += records.len() as u64;
        let (rows, bad): (Vec<i64>, Vec<i64>) = records.iter().partition(|n| **n >= 0);
        let bad = bad.iter().map(|n| BadRecord { position: n.to_string(), reason: "bad".to_owned(), raw: Vec::new() }).collect();
        Ok(Polled::Batch(SourceBatch { split: 0, rows: batch(&rows), bad, bytes: feed.bytes, split_ended: false }))
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        let position = Position::Row(self.0.lock().taken);
        vec![SplitPosition { split: SPLIT.to_owned(), position, time_max_ms: None, ended: false }]
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn passed(&mut self, positions: &[SplitPosition]) {
        let Position::Row(confirmed) = positions[0].position else { panic!() };
        self.0.lock().confirmed = confirmed;
    }

    fn lag(&self) -> Vec<Option<u64>> {
        vec![Some(0)]
    }

    fn at_end(&self, _split: usize) -> bool {
        self.0.lock().batches.is_empty()
    }

    fn close(&mut self) {
        self.0.lock().closed = true;
    }
}

fn group_commit() -> Durable {
    let compression = super::super::Compression::Lz4;
    Durable { path: Some("a/b".to_owned()), sync: DurabilitySync::GroupCommit, backend: DurabilityBackend::Local, compression }
}

struct Bench {
    source: LoggedSource,
    feed: Arc<Mutex<Feed>>,
    probe: Probe,
    told: Told,
}

fn at(record: u64) -> SplitPosition {
    SplitPosition { split: SPLIT.to_owned(), position: Position::Row(record), time_max_ms: None, ended: false }
}

/// Opens a log below `dir`, by attempt `attempt`, from `cut` on.
fn open(dir: &Path, attempt: u64, cut: Option<u64>, durable: Durable) -> Bench {
    let feed = Arc::new(Mutex::new(Feed { bytes: 100, ..Feed::default() }));
    let mut probe = probe(0, 1, dir);
    let told;
    (probe.opening.log, told) = place(dir, None, attempt, cut.map(|_| attempt - 1));
    let mut work = work(SourceOptions::Values(Values { rows: Vec::new() }), None, &[("n", "BIGINT")], ErrorPolicy::Skip);
    work.durability = Some(Durability { enabled: true, ..Durability::default() });
    let positions: Vec<SplitPosition> = cut.map(at).into_iter().collect();
    let inner = feed.clone();
    let open = move |positions: &[SplitPosition]| -> Result<Box<dyn Source>, Error> {
        let Position::Row(next) = positions[0].position else { panic!() };
        inner.lock().taken = next;
        inner.lock().confirmed = next;
        Ok(Box::new(FeedSource(inner)))
    };
    let source = LoggedSource::open(durable, SPLIT, &work, &schema(&work), &positions, &probe.opening, open).unwrap();
    Bench { source, feed, probe, told }
}

/// The records of a batch in their order.
fn records(batch: &SourceBatch) -> Vec<i64> {
    let rows = batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    rows.into_iter().chain(batch.bad.iter().map(|bad| bad.position.parse().unwrap())).collect()
}

impl Bench {
    fn send(&self, records: &[i64]) {
        self.feed.lock().batches.push_back(records.to_vec());
    }

    /// One poll; what it gave.
    fn poll(&mut self, rows: usize) -> Option<Vec<i64>> {
        match self.source.poll(Budget { rows, bytes: 1 << 20 }).unwrap() {
            Polled::Batch(batch) => {
                assert!(batch.rows.num_rows() + batch.bad.len() <= rows);
                Some(records(&batch))
            }
            Polled::Pending { .. } => None,
            Polled::End => panic!("a feed has no end"),
        }
    }

    /// Polls until `count` records came.
    fn take(&mut self, rows: usize, count: usize) -> Vec<i64> {
        let mut all = Vec::new();
        while all.len() < count {
            let seen = self.probe.alarm.count();
            match self.poll(rows) {
                Some(records) => all.extend(records),
                None => self.probe.alarm.wait(seen),
            }
        }
        assert_eq!(all.len(), count);
        all
    }

    /// Waits until everything that was taken is durable, and what was passed is gone.
    fn settle(&mut self) {
        let (done, flushed) = flume::bounded(1);
        self.source.orders.as_ref().unwrap().send(Order::Flush(done)).unwrap();
        let _ = flushed.recv();
        let (done, flushed) = flume::bounded(1);
        self.source.orders.as_ref().unwrap().send(Order::Flush(done)).unwrap();
        let _ = flushed.recv();
    }

    fn position(&mut self) -> u64 {
        let Position::Row(record) = self.source.cut()[0].position else { panic!() };
        record
    }
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copied(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// What the next attempt reads when the process is killed now and `cut` is the last cut.
fn after_a_kill(dir: &Path, cut: Option<u64>, expected: &[i64]) {
    let copy = tempfile::tempdir().unwrap();
    copied(dir, copy.path());
    let mut bench = open(copy.path(), 2, cut, group_commit());
    assert_eq!(bench.take(2, expected.len()), expected, "from {cut:?} on");
    // What comes anew goes on behind it, and nothing came in between.
    bench.send(&[1000]);
    assert_eq!(bench.take(2, 1), [1000]);
    assert_eq!(kinds(&bench.told), [""; 0]);
}

/// D1, D2, WAL-2: a kill between any two of commit, answer, decision, horizon and trim loses nothing and gives nothing twice.
#[test]
fn a_kill_between_any_two_steps_is_made_good() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = open(dir.path(), 1, None, group_commit());
    assert_eq!(bench.poll(8), None);
    bench.send(&[1, 2, 3, -4]);
    assert_eq!(bench.feed.lock().confirmed, 0, "nothing is confirmed before it is taken");
    assert_eq!(bench.take(3, 3), [1, 2, 3], "it is given only when it is durable");
    assert_eq!(bench.feed.lock().confirmed, 4, "and confirmed before it is given");
    after_a_kill(dir.path(), None, &[1, 2, 3, -4]);
    let first = bench.position();
    assert_eq!(first, 3, "a cut may lie within an entry");
    bench.send(&[5, 6]);
    assert_eq!(bench.take(8, 3), [-4, 5, 6]);
    let second = bench.position();
    bench.send(&[7]);
    bench.take(8, 1);
    // Committed and answered; decided or not.
    for (cut, expected) in [(None, &[1, 2, 3, -4, 5, 6, 7][..]), (Some(first), &[-4, 5, 6, 7]), (Some(second), &[7]), (Some(7), &[])] {
        after_a_kill(dir.path(), cut, expected);
    }
    // The horizon passed the first cut: whatever was trimmed by it is below.
    bench.source.passed(&[at(first)]);
    for settled in [false, true] {
        if settled {
            bench.settle();
        }
        after_a_kill(dir.path(), Some(first), &[-4, 5, 6, 7]);
        after_a_kill(dir.path(), Some(second), &[7]);
    }
    bench.source.close();
    assert!(bench.feed.lock().closed);
    after_a_kill(dir.path(), Some(second), &[7]);
}

/// D3: random batches, polls, cuts, horizons and kills: every record that was confirmed is given exactly once along the
/// history that the cuts make, in order.
#[test]
fn random_histories_have_no_gap() {
    for seed in 0..12_u64 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let sync = if seed % 3 == 0 { DurabilitySync::PerEntry } else { DurabilitySync::GroupCommit };
        let root = tempfile::tempdir().unwrap();
        let (mut next_id, mut taken, mut given): (i64, Vec<i64>, Vec<i64>) = (1, Vec::new(), Vec::new());
        // Cuts that a restart may begin from; the horizon has passed the first one.
        let mut cuts: Vec<Option<u64>> = vec![None];
        for attempt in 1..=5_u64 {
            let dir = root.path().join(attempt.to_string());
            if attempt > 1 {
                copied(&root.path().join((attempt - 1).to_string()), &dir);
            }
            let cut = cuts[random.random_range(0..cuts.len())];
            let keep = cuts.iter().position(|known| *known == cut).unwrap();
            cuts.truncate(keep + 1);
            given.truncate(usize::try_from(cut.unwrap_or(0)).unwrap());
            let mut bench = open(&dir, attempt, cut, Durable { sync, ..group_commit() });
            for _ in 0..random.random_range(5..25) {
                match random.random_range(0..10) {
                    0..4 => {
                        let count = random.random_range(1..12);
                        let bad = random.random_range(0..=count);
                        let records: Vec<i64> = (0..count).map(|n| if n < bad { next_id + n } else { -(next_id + n) }).collect();
                        next_id += count;
                        bench.send(&records);
                        taken.extend(records);
                    }
                    4..8 => given.extend(bench.poll(random.random_range(1..9)).unwrap_or_default()),
                    8 => {
                        let cut = bench.position();
                        assert_eq!(cut, given.len() as u64);
                        if *cuts.last().unwrap() != Some(cut) {
                            cuts.push(Some(cut));
                        }
                    }
                    _ => {
                        let passed = random.random_range(0..cuts.len());
                        cuts.drain(..passed);
                        if let Some(cut) = cuts[0] {
                            bench.source.passed(&[at(cut)]);
                        }
                    }
                }
            }
            bench.settle();
            // What was never taken was never confirmed: it is gone with the process.
            taken.truncate(usize::try_from(bench.feed.lock().taken).unwrap());
            assert!(bench.feed.lock().confirmed <= taken.len() as u64);
            assert_eq!(given, taken[..given.len()]);
            assert_eq!(kinds(&bench.told), [""; 0]);
            if attempt == 5 {
                given.extend(bench.take(7, taken.len() - given.len()));
                assert_eq!(given, taken);
            }
        }
    }
}

/// WAL-3: while the log cannot be written nothing is confirmed or given, a bounded amount is taken, and it is told; once it
/// can be, everything goes on, and nothing is lost.
#[test]
fn a_full_disk_holds_back_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A directory stands where the first file is to be made.
    let obstacle = dir.path().join("j/wal/a/b/it-0/new.redb");
    std::fs::create_dir_all(&obstacle).unwrap();
    let mut bench = open(dir.path(), 1, None, group_commit());
    bench.feed.lock().bytes = 1 << 20;
    (0..40).for_each(|n| bench.send(&[n]));
    while !kinds(&bench.told).contains(&"wal_blocked") {
        assert_eq!(bench.poll(8), None);
        std::thread::yield_now();
    }
    for _ in 0..40 {
        assert_eq!(bench.poll(8), None);
    }
    let message = bench.told.lock()[0].1.clone();
    assert!(message.contains("source 'it' of job 'probe': the input log cannot be written, so nothing is taken or confirmed"), "{message}");
    assert_eq!(bench.feed.lock().confirmed, 0);
    assert_eq!(bench.feed.lock().taken, 16, "16 MiB wait, the rest is left to whoever sends");
    std::fs::remove_dir(&obstacle).unwrap();
    assert_eq!(bench.take(8, 40), (0..40).collect::<Vec<_>>());
    assert_eq!(bench.feed.lock().confirmed, 40);
    assert_eq!(kinds(&bench.told), ["wal_blocked", "wal_resumed"]);
}

/// A source that closes while its log cannot be written does not wait for it, and confirms nothing.
#[test]
fn a_blocked_log_does_not_hold_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("j/wal/a/b/it-0/new.redb")).unwrap();
    let mut bench = open(dir.path(), 1, None, group_commit());
    bench.send(&[1]);
    while !kinds(&bench.told).contains(&"wal_blocked") {
        assert_eq!(bench.poll(8), None);
        std::thread::yield_now();
    }
    bench.source.close();
    assert!(bench.feed.lock().closed);
    assert_eq!(bench.feed.lock().confirmed, 0);
    // The lock is free again.
    drop(open(dir.path(), 2, None, group_commit()));
}

/// WAL-1: under `periodic` a record is confirmed when it is taken, and a stop loses none.
#[test]
fn periodic_confirms_at_once_and_a_stop_keeps_all() {
    let dir = tempfile::tempdir().unwrap();
    let periodic = || Durable { sync: DurabilitySync::Periodic, ..group_commit() };
    let mut bench = open(dir.path(), 1, None, periodic());
    bench.send(&[1, 2]);
    let reader_done = bench.take(8, 2);
    assert_eq!((reader_done, bench.feed.lock().confirmed), (vec![1, 2], 2));
    bench.source.close();
    assert_eq!(open(dir.path(), 2, None, periodic()).take(8, 2), [1, 2]);
}

/// WAL-3, C51: what is missing is told with its numbers, and the rest is given.
#[test]
fn a_gap_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = open(dir.path(), 1, None, Durable { sync: DurabilitySync::PerEntry, ..group_commit() });
    for n in 0..3 {
        bench.send(&[n * 2, n * 2 + 1]);
        bench.take(8, 2);
    }
    drop(bench);
    let log = dir.path().join("j/wal/a/b/it-0");
    let files: Vec<_> = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).collect();
    let file = files.iter().find(|path| path.extension().is_some_and(|ext| ext == "redb")).unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    let (frames, _) = super::super::Frame::all_in(&bytes);
    let second = frames.iter().find(|frame| frame.first() == 2).unwrap().bytes().to_vec();
    for at in memchr::memmem::find_iter(&bytes.clone(), &second) {
        bytes[at + 70] ^= 1;
    }
    std::fs::write(file, bytes).unwrap();
    let mut bench = open(dir.path(), 2, None, group_commit());
    assert_eq!(bench.take(8, 4), [0, 1, 4, 5]);
    assert_eq!(kinds(&bench.told), ["wal_damaged", "wal_gap"]);
    assert!(bench.told.lock()[1].1.contains("records 2 to 3 are not in the input log"), "{:?}", bench.told.lock()[1]);
    assert_eq!(bench.position(), 6);
    // C41: a cut from before what the log still reaches: what is left is given, and the size of the gap is told.
    bench.send(&[8]);
    assert_eq!(bench.take(8, 1), [8]);
    bench.source.passed(&[at(7)]);
    bench.settle();
    drop(bench);
    let mut bench = open(dir.path(), 3, Some(1), group_commit());
    bench.send(&[9]);
    assert_eq!(bench.take(8, 2), [8, 9]);
    assert!(
        bench.told.lock().iter().any(|(kind, message)| *kind == "wal_gap" && message.contains("records 1 to 5 ")),
        "{:?}",
        bench.told.lock()
    );
    // On a machine where there never was a log.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut bench = open(elsewhere.path(), 3, Some(4), group_commit());
    assert_eq!(kinds(&bench.told), ["wal_new"]);
    bench.send(&[7]);
    assert_eq!((bench.take(8, 1), bench.position()), (vec![7], 5));
}
