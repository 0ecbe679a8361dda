//! What the connectors' tests share: a clock set by hand, a wake-up that can be waited for, and the
//! contract that every source keeps.

use super::{Opening, open_source};
use crate::format::json::JsonEncoder;
use crate::secret::{Secrets, no_environment};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use weir_kernel::io::{BadRecord, Budget, Clock, Flush, Polled, Sink, SinkHandle, Source, Wake};
use weir_planner::connector::{DecodeColumn, Format, SourceOptions, SplitPosition};
use weir_planner::id::{Attempt, EpochId, JobId, OperatorId};
use weir_planner::plan::SourceWork;
use weir_planner::schema::{Column, Schema};
use weir_planner::spec::ErrorPolicy;

/// Longest wait for a wake-up: a test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where connectors of all tests do what they do on sockets.
pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// Counts wake-ups.
#[derive(Default)]
pub struct Alarm {
    rung: Mutex<u64>,
    bell: Condvar,
}

impl Wake for Alarm {
    fn wake(&self) {
        *self.rung.lock() += 1;
        self.bell.notify_all();
    }
}

impl Alarm {
    pub fn count(&self) -> u64 {
        *self.rung.lock()
    }

    /// Waits for a wake-up after the `seen` ones.
    pub fn wait(&self, seen: u64) {
        let end = Instant::now() + PATIENCE;
        let mut rung = self.rung.lock();
        while *rung <= seen {
            assert!(!self.bell.wait_until(&mut rung, end).timed_out(), "nothing woke the chain");
        }
    }
}

/// A clock that moves when told to.
#[derive(Default)]
pub struct HandClock(Mutex<u64>);

impl HandClock {
    pub fn advance_ms(&self, ms: u64) {
        *self.0.lock() += ms * 1_000_000;
    }
}

impl Clock for HandClock {
    fn wall_ms(&self) -> i64 {
        1_767_225_600_000 + i64::try_from(*self.0.lock() / 1_000_000).unwrap()
    }

    fn monotonic_ns(&self) -> u64 {
        *self.0.lock()
    }
}

pub struct Probe {
    pub alarm: Arc<Alarm>,
    pub clock: Arc<HandClock>,
    pub opening: Opening,
}

/// Subtask `subtask` of `parallelism` of operator `it` in job `probe`.
pub fn probe(subtask: u32, parallelism: u32, dir: &Path) -> Probe {
    let (alarm, clock) = (Arc::new(Alarm::default()), Arc::new(HandClock::default()));
    let opening = Opening {
        job: JobId::new("probe").unwrap(),
        operator: OperatorId::new("it").unwrap(),
        subtask,
        parallelism,
        undecided: false,
        wake: alarm.clone(),
        clock: clock.clone(),
        result_dir: dir.to_owned(),
        log: crate::wal::Place {
            dir: dir.join("wal"),
            store: None,
            attempt: Attempt::new(1),
            empty: false,
            cut: None,
            tell: Arc::new(|_, _, _| {}),
        },
        secrets: Arc::new(Secrets::new(no_environment)),
        runtime: RUNTIME.handle().clone(),
    };
    Probe { alarm, clock, opening }
}

pub fn column(name: &str, ty: &str) -> DecodeColumn {
    DecodeColumn { column: Column { name: name.to_owned(), ty: ty.parse().unwrap(), nullable: true }, timestamp_unit: None }
}

pub fn work(options: SourceOptions, format: Option<Format>, columns: &[(&str, &str)], on_error: ErrorPolicy) -> SourceWork {
    SourceWork {
        options,
        format,
        columns: columns.iter().map(|(name, ty)| column(name, ty)).collect(),
        used: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
        time: None,
        on_error,
        batch: weir_planner::spec::Batch::default(),
        bounded: true,
        durability: None,
    }
}

pub fn schema(work: &SourceWork) -> Schema {
    Schema(work.used.iter().map(|name| work.columns.iter().find(|c| c.column.name == *name).unwrap().column.clone()).collect())
}

pub const EPOCH: EpochId = EpochId { attempt: Attempt::new(1), sequence: 1 };
pub const SMALL: Budget = Budget { rows: 3, bytes: 1 << 20 };

/// What a source gave, by split, as JSON lines.
#[derive(Debug, Default, PartialEq)]
pub struct Given {
    pub lines: BTreeMap<String, Vec<String>>,
    pub bad: Vec<BadRecord>,
}

impl Given {
    pub fn all(&self) -> Vec<String> {
        self.lines.values().flatten().cloned().collect()
    }
}

/// Polls until the end, or until `polls` batches came; false when they did.
pub fn drain(source: &mut dyn Source, work: &SourceWork, probe: &Probe, budget: Budget, polls: usize, given: &mut Given) -> bool {
    let encoder = JsonEncoder::new(&schema(work)).unwrap();
    let mut count = 0;
    while count < polls {
        let seen = probe.alarm.count();
        match source.poll(budget).unwrap() {
            Polled::End => return true,
            Polled::Pending { until_ns: Some(_) } => probe.clock.advance_ms(10),
            Polled::Pending { until_ns: None } => probe.alarm.wait(seen),
            Polled::Batch(batch) => {
                assert!(batch.rows.num_rows() + batch.bad.len() <= budget.rows.max(1));
                count += 1;
                let mut lines = Vec::new();
                encoder.write_lines(&batch.rows, &mut lines).unwrap();
                let name = source.splits()[batch.split].name.clone();
                let into = given.lines.entry(name).or_default();
                into.extend(String::from_utf8(lines).unwrap().lines().map(str::to_owned));
                given.bad.extend(batch.bad);
            }
        }
    }
    false
}

pub fn open(work: &SourceWork, positions: &[SplitPosition], probe: &Probe) -> Box<dyn Source> {
    open_source(work, &schema(work), positions, probe.opening.clone()).unwrap()
}

pub fn refused(work: &SourceWork, positions: &[SplitPosition], dir: &Path) -> crate::error::Error {
    match open_source(work, &schema(work), positions, probe(0, 1, dir).opening) {
        Ok(_) => panic!("the source opened"),
        Err(error) => error,
    }
}

/// The contract of a bounded source: stopped between any two polls and opened again at its cut, it
/// gives the same rows in the same order, each once. Gives those rows.
pub fn stops_anywhere(work: &SourceWork, dir: &Path) -> Given {
    let mut whole = Given::default();
    let one = probe(0, 1, dir);
    let mut source = open(work, &[], &one);
    assert!(drain(source.as_mut(), work, &one, SMALL, usize::MAX, &mut whole));
    let end = source.cut();
    assert!(end.iter().all(|position| position.ended), "{end:?}");
    assert!((0..end.len()).all(|split| source.at_end(split)));
    source.close();
    source.close();
    for polls in 0.. {
        let mut given = Given::default();
        let first = probe(0, 1, dir);
        let mut source = open(work, &[], &first);
        let ended = drain(source.as_mut(), work, &first, SMALL, polls, &mut given);
        let cut = source.cut();
        source.close();
        let second = probe(0, 1, dir);
        let mut source = open(work, &cut, &second);
        assert!(drain(source.as_mut(), work, &second, SMALL, usize::MAX, &mut given));
        assert_eq!(source.cut(), end);
        given.lines.retain(|_, lines| !lines.is_empty());
        let mut expected = whole.lines.clone();
        expected.retain(|_, lines| !lines.is_empty());
        assert_eq!(given.lines, expected, "after {polls} polls");
        assert_eq!(given.bad.len(), whole.bad.len());
        if ended {
            break;
        }
    }
    whole
}

/// Waits for an open flush.
pub fn flushed(sink: &mut dyn Sink, probe: &Probe) -> Result<SinkHandle, weir_kernel::error::Error> {
    sink.begin_flush(EPOCH)?;
    loop {
        let seen = probe.alarm.count();
        match sink.poll_flush()? {
            Flush::Done(handle) => return Ok(handle),
            Flush::Pending => probe.alarm.wait(seen),
        }
    }
}
