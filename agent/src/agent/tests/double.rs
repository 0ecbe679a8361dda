//! A plan, and an outside that a test holds in its hand: feeds that give rows when told to, sinks
//! that can be made to wait.

use crate::connector::Opening;
use crate::error::Error;
use crate::runner::{Connectors, Options};
use arrow::array::{Int64Array, RecordBatch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;
use weir_kernel::io::{Budget, Flush, Polled, Pushed, Sink, SinkHandle, Source, SourceBatch, Split, Wake};
use weir_planner::connector::{Memory, Nothing, Position, SinkOptions, SourceOptions, SplitPosition};
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction};
use weir_planner::id::{ChainId, EpochId, JobId, JobVersion, OperatorId, RegionId};
use weir_planner::plan::{Chain, JobPlan, PlanEdge, PlanOperator, Port, Region, Routing, SinkWork, SourceWork, TimeWork, WindowWork, Work};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{Batch, Checkpoint, Delivery, ErrorPolicy, Horizon, LatePolicy, OnOverflow};
use weir_planner::time::TimeUnit;
use weir_planner::window::{Aligned, Windows};

/// Window length of the plan.
pub const SIZE_MS: i64 = 10;

fn column(name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column { name: name.to_owned(), ty, nullable }
}

pub fn operator(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

/// `ts`, `k`.
pub fn input() -> Schema {
    Schema(vec![column("ts", ColumnType::BigInt, false), column("k", ColumnType::BigInt, false)])
}

/// `k`, window bounds, `n`.
pub fn output() -> Schema {
    let stamp = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };
    Schema(vec![
        column("k", ColumnType::BigInt, false),
        column("window_start", stamp, false),
        column("window_end", stamp, false),
        column("n", ColumnType::BigInt, false),
    ])
}

/// `SELECT k, window_start, window_end, count(*) AS n … GROUP BY` over two feeds and two window
/// tasks, into the result table. Epochs as fast as they go.
pub fn counting_plan(job: &JobId) -> JobPlan {
    let source = SourceWork {
        options: SourceOptions::Memory(Memory::default()),
        format: None,
        columns: Vec::new(),
        used: vec!["ts".to_owned(), "k".to_owned()],
        time: Some(TimeWork {
            column: "ts".to_owned(),
            unit: TimeUnit::Millisecond,
            bound_ms: 0,
            idle_timeout_ms: 0,
            max_future_ms: None,
            alignment_ms: None,
            idle_advance_ms: None,
            allowed_lateness_ms: 0,
            late: LatePolicy::Drop,
        }),
        on_error: ErrorPolicy::Fail,
        batch: Batch::default(),
        bounded: false,
        durability: None,
    };
    let count = Aggregate {
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        distinct: false,
        order_by: Vec::new(),
        filter: None,
        ty: ColumnType::BigInt,
        nullable: false,
    };
    let window = WindowWork {
        windows: Windows::Aligned(Aligned::Tumbling { size_ms: SIZE_MS, offset_ms: 0 }),
        time: None,
        keys: vec!["k".to_owned()],
        aggregates: vec![("n".to_owned(), count)],
        having: None,
        allowed_lateness_ms: 0,
        keys_max: 0,
        on_overflow: OnOverflow::Fail,
        late: LatePolicy::Drop,
        on_error: ErrorPolicy::Fail,
        partials: false,
        early_ms: None,
        empty_within_ms: None,
    };
    let sink =
        SinkWork { options: SinkOptions::Result(Nothing {}), format: None, delivery: Delivery::AtLeastOnce, replaces_by: Vec::new() };
    let one = |name: &str, output: Schema, work: Work| PlanOperator { id: operator(name), output, work };
    let chain = |id: u32, operators: Vec<PlanOperator>| Chain { id: ChainId::new(id), parallelism: 2, operators };
    JobPlan {
        job: job.clone(),
        version: JobVersion::new(1),
        max_parallelism: 16,
        rescale: false,
        horizon: Horizon::Local,
        checkpoint: Checkpoint { epoch_ms: 1, interval_ms: 10, timeout_ms: 60_000, retention: 1 },
        inflight_bytes: 1 << 20,
        state_bytes_max: None,
        result_retention_rows: 1_000_000,
        result_retention_ms: None,
        chains: vec![
            chain(0, vec![one("src", input(), Work::Source(source))]),
            chain(1, vec![one("win", output(), Work::Window(window)), one("out", output(), Work::Sink(sink))]),
        ],
        edges: vec![PlanEdge {
            from: ChainId::new(0),
            to: ChainId::new(1),
            routing: Routing::Partitioned(vec!["k".to_owned()]),
            port: Port::Main,
        }],
        regions: vec![Region { id: RegionId::new(0), members: (0..2).flat_map(|c| (0..2).map(move |s| (ChainId::new(c), s))).collect() }],
    }
}

/// What one source task reads: rows that a test adds, whoever reads them and how often.
#[derive(Default)]
pub struct Feed {
    rows: Mutex<Vec<(i64, i64)>>,
    closed: AtomicBool,
    failure: Mutex<Option<Class>>,
    wakes: Mutex<Vec<Arc<dyn Wake>>>,
    decided: watch::Sender<u64>,
    opened_at: AtomicU64,
}

impl Feed {
    /// Adds `(ts, k)` rows.
    pub fn give(&self, rows: &[(i64, i64)]) {
        self.rows.lock().extend_from_slice(rows);
        self.wake();
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The next poll fails.
    pub fn fail(&self, class: Class) {
        *self.failure.lock() = Some(class);
        self.wake();
    }

    fn wake(&self) {
        self.wakes.lock().iter().for_each(|w| w.wake());
    }

    /// Where its last reader began.
    pub fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::SeqCst)
    }

    /// Waits until rows below `position` are decided.
    pub async fn until_decided(&self, position: u64) {
        let mut decided = self.decided.subscribe();
        tokio::time::timeout(super::PATIENCE, decided.wait_for(|d| *d >= position)).await.expect("decided in time").unwrap();
    }
}

struct Reader {
    feed: Arc<Feed>,
    split: String,
    at: usize,
    ended: bool,
    time_max_ms: Option<i64>,
}

impl Source for Reader {
    fn splits(&self) -> Vec<Split> {
        vec![Split { name: self.split.clone(), ended: self.ended, time_max_ms: self.time_max_ms }]
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, weir_kernel::error::Error> {
        if let Some(class) = self.feed.failure.lock().take() {
            return Err(weir_kernel::error::Error::new(class, "the feed was told to fail"));
        }
        if self.ended {
            return Ok(Polled::End);
        }
        let closed = self.feed.closed.load(Ordering::SeqCst);
        let rows = self.feed.rows.lock();
        let fresh = &rows[self.at..rows.len().min(self.at + budget.rows)];
        let (ts, k): (Vec<i64>, Vec<i64>) = fresh.iter().copied().unzip();
        let (taken, all) = (fresh.len(), rows.len());
        drop(rows);
        self.at += taken;
        self.ended = closed && self.at == all;
        if taken == 0 && !self.ended {
            return Ok(Polled::Pending { until_ns: None });
        }
        let rows = RecordBatch::try_new(Arc::new(input().to_arrow()), vec![Arc::new(Int64Array::from(ts)), Arc::new(Int64Array::from(k))]);
        Ok(Polled::Batch(SourceBatch { split: 0, rows: rows.unwrap(), bad: Vec::new(), bytes: taken * 16, split_ended: self.ended }))
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        vec![SplitPosition { split: self.split.clone(), position: Position::Row(self.at as u64), time_max_ms: None, ended: self.ended }]
    }

    fn decided(&mut self, positions: &[SplitPosition]) {
        let [SplitPosition { position: Position::Row(row), .. }] = positions else { panic!("{positions:?}") };
        self.feed.decided.send_replace(*row);
    }

    fn lag(&self) -> Vec<Option<u64>> {
        vec![None]
    }

    fn at_end(&self, _split: usize) -> bool {
        false
    }

    fn close(&mut self) {}
}

/// A gate that flushes wait at while it is shut.
#[derive(Default)]
pub struct Gate {
    shut: AtomicBool,
    wakes: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Gate {
    pub fn set(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
        self.wakes.lock().iter().for_each(|w| w.wake());
    }
}

struct Gated {
    sink: Box<dyn Sink>,
    gate: Arc<Gate>,
}

impl Sink for Gated {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, weir_kernel::error::Error> {
        self.sink.push(rows)
    }

    fn begin_flush(&mut self, epoch: EpochId) -> Result<(), weir_kernel::error::Error> {
        self.sink.begin_flush(epoch)
    }

    fn poll_flush(&mut self) -> Result<Flush, weir_kernel::error::Error> {
        if self.gate.shut.load(Ordering::SeqCst) { Ok(Flush::Pending) } else { self.sink.poll_flush() }
    }

    fn decided(&mut self, epoch: EpochId) {
        self.sink.decided(epoch);
    }

    fn close(&mut self) {
        self.sink.close();
    }
}

/// The outside of a counting plan: two feeds, and result sinks behind a gate.
#[derive(Clone, Default)]
pub struct World {
    pub feeds: [Arc<Feed>; 2],
    pub gate: Arc<Gate>,
    /// While true, opening a source waits for it to become false.
    pub stuck: Arc<(parking_lot::Mutex<bool>, parking_lot::Condvar)>,
}

impl Connectors for World {
    fn source(
        &self,
        _work: &SourceWork,
        _output: &Schema,
        positions: &[SplitPosition],
        opening: Opening,
    ) -> Result<Box<dyn Source>, Error> {
        let mut stuck = self.stuck.0.lock();
        while *stuck {
            self.stuck.1.wait(&mut stuck);
        }
        let feed = self.feeds[opening.subtask as usize].clone();
        feed.wakes.lock().push(opening.wake.clone());
        let split = opening.subtask.to_string();
        let before = positions.iter().find(|p| p.split == split);
        let at = match before.map(|p| &p.position) {
            Some(Position::Row(row)) => usize::try_from(*row).unwrap(),
            Some(other) => panic!("{other:?}"),
            None => 0,
        };
        feed.opened_at.store(at as u64, Ordering::SeqCst);
        Ok(Box::new(Reader { feed, split, at, ended: before.is_some_and(|p| p.ended), time_max_ms: before.and_then(|p| p.time_max_ms) }))
    }

    fn sink(&self, work: &SinkWork, input: &Schema, handle: Option<&SinkHandle>, opening: Opening) -> Result<Box<dyn Sink>, Error> {
        self.gate.wakes.lock().push(opening.wake.clone());
        Ok(Box::new(Gated { sink: Options.sink(work, input, handle, opening)?, gate: self.gate.clone() }))
    }
}

/// Counts by key and window start: what the plan should give, by brute force.
pub fn expected(feeds: &[&[(i64, i64)]]) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for &(ts, k) in feeds.iter().copied().flatten() {
        let start = ts - ((ts % SIZE_MS) + SIZE_MS) % SIZE_MS;
        *counts.entry((k, start)).or_insert(0) += 1;
    }
    counts
}

/// Names of the files in a directory that end so.
pub fn files(dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut found: Vec<_> = entries.filter(|p| p.to_str().unwrap().ends_with(ending)).collect();
    found.sort();
    found
}
