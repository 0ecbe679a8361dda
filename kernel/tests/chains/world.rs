//! A whole graph in one thread: fake sources, sinks, clock and coordinator, chains stepped in a
//! seeded order. The same seed gives the same run.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use weir_kernel::chain::{Chain, ChainReport, Control, OPEN_EPOCH_BYTES_MAX, Step};
use weir_kernel::error::Error;
use weir_kernel::graph::{Parts, build};
use weir_kernel::io::{
    BadRecord, Budget, Clock, Flush, Polled, Pushed, Restored, Sink, SinkHandle, Source, SourceBatch, Split, StateImage, Wake,
};
use weir_oracle::{Agg, Row};
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::id::{Attempt, ChainId, EpochId, OperatorId};
use weir_planner::plan::{JobPlan, Work};

/// Small deterministic random numbers.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Default)]
pub struct FakeClock {
    pub wall_ms: AtomicI64,
    pub ns: AtomicU64,
}

impl FakeClock {
    pub fn pass_ms(&self, ms: u64) {
        self.ns.fetch_add(ms * 1_000_000, Ordering::SeqCst);
        self.wall_ms.fetch_add(ms as i64, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }
    fn monotonic_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }
}

/// Steps are driven by the test; nobody needs to be woken.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// What a source task reads: rows by split. Rows may be appended while it runs.
#[derive(Clone, Default)]
pub struct Feed {
    pub splits: Arc<Mutex<BTreeMap<u32, Vec<Row>>>>,
    /// Splits end after their last row.
    pub bounded: bool,
    /// Rows of this key are records that cannot be decoded.
    pub poison: Option<i64>,
}

impl Feed {
    pub fn of(rows: &[Row], bounded: bool) -> Self {
        let feed = Feed { splits: Arc::default(), bounded, poison: None };
        feed.append(rows);
        feed
    }

    pub fn append(&self, rows: &[Row]) {
        let mut splits = self.splits.lock();
        for row in rows {
            splits.entry(row.split).or_default().push(*row);
        }
    }
}

struct FeedSource {
    feed: Feed,
    /// Split number, next row, ended, restored maximum.
    splits: Vec<(u32, usize, bool, Option<i64>)>,
    /// Which task of how many: new splits are dealt in turn.
    task: (u32, u32),
    rng: Rng,
    /// Splits that the chain holds.
    held: Vec<bool>,
    batch_max: u64,
    schema: Arc<arrow::datatypes::Schema>,
}

pub fn columns(rows: &[Row], schema: &Arc<arrow::datatypes::Schema>) -> RecordBatch {
    let column = |pick: fn(&Row) -> Option<i64>| -> ArrayRef { Arc::new(rows.iter().map(pick).collect::<Int64Array>()) };
    RecordBatch::try_new(schema.clone(), vec![column(|r| r.key), column(|r| r.time_ms), column(|r| r.value)]).unwrap()
}

impl Source for FeedSource {
    fn splits(&self) -> Vec<Split> {
        let one =
            |(name, _, ended, max): &(u32, usize, bool, Option<i64>)| Split { name: name.to_string(), ended: *ended, time_max_ms: *max };
        self.splits.iter().map(one).collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        let lists = self.feed.splits.lock();
        for name in lists.keys().filter(|name| *name % self.task.1 == self.task.0) {
            if self.splits.iter().all(|split| split.0 != *name) {
                self.splits.push((*name, 0, false, None));
            }
        }
        let left = |(name, next, ended, _): &(u32, usize, bool, Option<i64>)| !ended && (self.feed.bounded || *next < lists[name].len());
        let open: Vec<usize> = (0..self.splits.len()).filter(|i| left(&self.splits[*i])).collect();
        let ended = open.is_empty();
        let open: Vec<usize> = open.into_iter().filter(|i| !self.held.get(*i).copied().unwrap_or(false)).collect();
        if open.is_empty() {
            return Ok(if self.feed.bounded && ended { Polled::End } else { Polled::Pending { until_ns: None } });
        }
        let split = open[self.rng.below(open.len() as u64) as usize];
        let (name, next, ended, _) = &mut self.splits[split];
        let rows = &lists[name];
        let count = (1 + self.rng.below(self.batch_max)).min(budget.rows as u64) as usize;
        let end = (*next + count).min(rows.len());
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (at, row) in rows[*next..end].iter().enumerate() {
            if self.feed.poison.is_none() || row.key != self.feed.poison {
                good.push(*row);
                continue;
            }
            let raw = format!("record {:?}", row.value.unwrap()).into_bytes();
            bad.push(BadRecord { position: format!("row {}", *next + at), reason: "not a record".to_owned(), raw });
        }
        let batch = columns(&good, &self.schema);
        *next = end;
        *ended = self.feed.bounded && end == rows.len();
        Ok(Polled::Batch(SourceBatch { split, rows: batch, bad, bytes: 24 * count, split_ended: *ended }))
    }

    fn hold(&mut self, held: &[bool]) {
        assert_eq!(held.len(), self.splits.len());
        self.held = held.to_vec();
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        let one = |(name, next, ended, _): &(u32, usize, bool, Option<i64>)| SplitPosition {
            split: name.to_string(),
            position: Position::Row(*next as u64),
            time_max_ms: None,
            ended: *ended,
        };
        self.splits.iter().map(one).collect()
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn lag(&self) -> Vec<Option<u64>> {
        vec![None; self.splits.len()]
    }

    fn at_end(&self, split: usize) -> bool {
        let (name, next, _, _) = &self.splits[split];
        *next >= self.feed.splits.lock()[name].len()
    }

    fn close(&mut self) {}
}

/// Rows that came out, in order, of one sink task.
#[derive(Clone, Default)]
pub struct Out(pub Arc<Mutex<Vec<RecordBatch>>>);

struct OutSink {
    out: Out,
    rng: Rng,
    /// One push in so many is taken, one flush in so many polls is done.
    slow: u64,
    flushing: Option<u64>,
}

impl Sink for OutSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        if !self.rng.one_in(self.slow) {
            return Ok(Pushed::Full);
        }
        self.out.0.lock().push(rows.clone());
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        assert!(self.flushing.is_none(), "two flushes at once");
        self.flushing = Some(self.out.0.lock().len() as u64);
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        if self.flushing.is_some() && !self.rng.one_in(self.slow) {
            return Ok(Flush::Pending);
        }
        Ok(Flush::Done(SinkHandle::Length(self.flushing.take().expect("a flush is open"))))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {}
}

/// A decided cut: what a restart begins from.
#[derive(Clone, Default)]
pub struct Cut {
    pub positions: BTreeMap<String, SplitPosition>,
    pub images: BTreeMap<OperatorId, Vec<Arc<StateImage>>>,
    pub lengths: BTreeMap<u32, u64>,
    pub ended: bool,
}

/// Pace of a run.
#[derive(Clone, Copy)]
pub struct Pace {
    pub batch_max: u64,
    pub sink_slow: u64,
}

pub struct World {
    pub chains: Vec<Chain>,
    pub clock: Arc<FakeClock>,
    pub rng: Rng,
    pub outs: BTreeMap<u32, Out>,
    reports: flume::Receiver<ChainReport>,
    sources: BTreeSet<ChainId>,
    /// Sink operators in the order of the plan: where their numbers in `outs` begin.
    sinks: Vec<OperatorId>,
    cut: Cut,
    sequence: u64,
    attempt: u64,
}

impl World {
    /// Builds `plan` over `feed`, whose splits are dealt to the source tasks in turn, from `cut`.
    pub fn new(
        plan: &JobPlan,
        feed: &Feed,
        seed: u64,
        pace: Pace,
        cut: &Cut,
        outs: &BTreeMap<u32, Out>,
        clock: Arc<FakeClock>,
    ) -> Result<Self, Error> {
        World::bounded(plan, feed, seed, pace, cut, outs, clock, OPEN_EPOCH_BYTES_MAX)
    }

    /// The same with a bound for the open epoch.
    #[allow(clippy::too_many_arguments, reason = "one call a test, and each argument says itself what it is")]
    pub fn bounded(
        plan: &JobPlan,
        feed: &Feed,
        seed: u64,
        pace: Pace,
        cut: &Cut,
        outs: &BTreeMap<u32, Out>,
        clock: Arc<FakeClock>,
        open_epoch_bytes: u64,
    ) -> Result<Self, Error> {
        let mut rng = Rng(seed);
        let (tx, reports) = flume::bounded(4);
        let mut parts = Parts {
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            restored: BTreeMap::new(),
            clock: clock.clone(),
            wakes: BTreeMap::new(),
            reports: tx,
            open_epoch_bytes,
        };
        let (mut sources, mut new_outs) = (BTreeSet::new(), BTreeMap::new());
        let names: Vec<u32> = feed.splits.lock().keys().copied().collect();
        let has_source =
            |chain: &&weir_planner::plan::Chain| chain.operators.iter().any(|operator| matches!(operator.work, Work::Source(_)));
        let source_tasks: u32 = plan.chains.iter().filter(has_source).map(|chain| chain.parallelism).sum();
        let mut source_task = 0;
        let mut sinks: Vec<OperatorId> = Vec::new();
        for chain in &plan.chains {
            for subtask in 0..chain.parallelism {
                parts.wakes.insert((chain.id, subtask), Arc::new(NoWake));
                for operator in &chain.operators {
                    let key = (operator.id.clone(), subtask);
                    match &operator.work {
                        Work::Source(_) => {
                            sources.insert(chain.id);
                            let mine = source_task;
                            source_task += 1;
                            let own = names.iter().filter(|name| *name % source_tasks == mine);
                            let split = |name: &u32| match cut.positions.get(&name.to_string()) {
                                Some(SplitPosition { position: Position::Row(next), time_max_ms, ended, .. }) => {
                                    (*name, *next as usize, *ended, *time_max_ms)
                                }
                                _ => (*name, 0, false, None),
                            };
                            let source = FeedSource {
                                feed: feed.clone(),
                                splits: own.map(split).collect(),
                                task: (mine, source_tasks),
                                rng: Rng(rng.next()),
                                held: Vec::new(),
                                batch_max: pace.batch_max,
                                schema: Arc::new(operator.output.to_arrow()),
                            };
                            parts.sources.insert(key, Box::new(source));
                        }
                        Work::Sink(_) => {
                            // A second sink operator counts on from 100, a third from 200.
                            let sink = 100 * sinks.iter().position(|id| *id == operator.id).unwrap_or(sinks.len()) as u32 + subtask;
                            if !sinks.contains(&operator.id) {
                                sinks.push(operator.id.clone());
                            }
                            let out = outs.get(&sink).cloned().unwrap_or_default();
                            let kept = cut.lengths.get(&sink).copied().unwrap_or(0);
                            out.0.lock().truncate(kept as usize);
                            new_outs.insert(sink, out.clone());
                            parts.sinks.insert(key, Box::new(OutSink { out, rng: Rng(rng.next()), slow: pace.sink_slow, flushing: None }));
                        }
                        Work::Window(_) | Work::Top(_) | Work::Buffer(_) => {
                            let images = cut.images.get(&operator.id).cloned().unwrap_or_default();
                            parts.restored.insert(key, Restored { images, redealt: false });
                        }
                        Work::Map(_) | Work::Partial(_) | Work::Batch(_) | Work::Union => {}
                    }
                }
            }
        }
        let chains = build(plan, parts)?;
        let attempt = rng.next() % 1000 + 1;
        Ok(World { chains, clock, rng, outs: new_outs, reports, sources, sinks, cut: cut.clone(), sequence: 0, attempt })
    }

    /// Steps a random chain; whether it worked.
    pub fn step(&mut self) -> Result<bool, Error> {
        let i = self.rng.below(self.chains.len() as u64) as usize;
        match self.chains[i].step() {
            Step::Worked => Ok(true),
            Step::Idle { .. } | Step::Blocked { .. } => Ok(false),
            Step::Failed(error) => Err(error),
        }
    }

    /// Steps until nothing moves for a while. Panics when that does not come.
    pub fn settle(&mut self) -> Result<(), Error> {
        let (mut quiet, mut steps) = (0, 0u64);
        let enough = self.chains.len() as u64 * 60;
        while quiet < enough {
            quiet = if self.step()? { 0 } else { quiet + 1 };
            steps += 1;
            assert!(steps < 5_000_000, "the graph does not come to rest");
            if self.rng.one_in(50) {
                self.clock.pass_ms(1);
            }
        }
        Ok(())
    }

    /// Whether end of stream has passed every chain.
    pub fn ended(&self) -> bool {
        self.chains.iter().all(|chain| chain.metrics().ended.load(Ordering::SeqCst))
    }

    /// Some steps.
    pub fn steps(&mut self, count: u64) -> Result<(), Error> {
        for _ in 0..count {
            self.step()?;
            if self.rng.one_in(50) {
                self.clock.pass_ms(1);
            }
        }
        Ok(())
    }

    /// Puts barriers of the next `count` epochs in at once and steps until all is at rest; gives
    /// the order of reports of each chain: (sequence, flushed).
    pub fn epochs_at_once(&mut self, count: u64) -> Result<BTreeMap<(ChainId, u32), Vec<(u64, bool)>>, Error> {
        for sequence in 1..=count {
            let epoch = EpochId { attempt: Attempt::new(self.attempt), sequence };
            for chain in self.chains.iter().filter(|chain| self.sources.contains(&chain.id().0)) {
                chain.control().try_send(Control::Barrier(epoch)).unwrap();
            }
        }
        let mut order: BTreeMap<(ChainId, u32), Vec<(u64, bool)>> = BTreeMap::new();
        let expected = self.chains.len() * 2 * count as usize;
        let mut steps = 0;
        while order.values().map(Vec::len).sum::<usize>() < expected {
            self.step()?;
            steps += 1;
            assert!(steps < 1_000_000, "reports are missing: {order:?}");
            while let Ok(report) = self.reports.try_recv() {
                match report {
                    ChainReport::Cut { chain, subtask, epoch, .. } => {
                        order.entry((chain, subtask)).or_default().push((epoch.sequence, false))
                    }
                    ChainReport::Flushed { chain, subtask, epoch, .. } => {
                        order.entry((chain, subtask)).or_default().push((epoch.sequence, true))
                    }
                }
            }
        }
        Ok(order)
    }

    /// A barrier to every source, without a look at the reports.
    pub fn barrier(&mut self) {
        self.sequence += 1;
        let epoch = EpochId { attempt: Attempt::new(self.attempt), sequence: self.sequence };
        for chain in self.chains.iter().filter(|chain| self.sources.contains(&chain.id().0)) {
            chain.control().try_send(Control::Barrier(epoch)).unwrap();
        }
    }

    /// One round: barriers in, every report back, then the decision. Gives the cut.
    pub fn epoch(&mut self) -> Result<Cut, Error> {
        self.barrier();
        self.round()
    }

    /// The rest of a round whose barriers are in.
    pub fn round(&mut self) -> Result<Cut, Error> {
        let epoch = EpochId { attempt: Attempt::new(self.attempt), sequence: self.sequence };
        let all: BTreeSet<(ChainId, u32)> = self.chains.iter().map(Chain::id).collect();
        let (mut cuts, mut flushed) = (BTreeSet::new(), BTreeSet::new());
        let mut next = self.cut.clone();
        next.ended = true;
        let mut steps = 0u64;
        while cuts != all || flushed != all {
            self.step()?;
            steps += 1;
            assert!(steps < 5_000_000, "an epoch does not come to its end");
            while let Ok(report) = self.reports.try_recv() {
                match report {
                    ChainReport::Cut { chain, subtask, epoch: of, cut } => {
                        assert_eq!(of, epoch);
                        assert!(cuts.insert((chain, subtask)), "one cut a chain");
                        next.ended &= cut.ended;
                        next.positions.extend(cut.positions.into_iter().map(|p| (p.split.clone(), p)));
                        for image in cut.images {
                            next.images.entry(image.operator.clone()).or_default().push(Arc::new(image.build().unwrap()));
                        }
                    }
                    ChainReport::Flushed { chain, subtask, epoch: of, sinks } => {
                        assert_eq!(of, epoch);
                        assert!(cuts.contains(&(chain, subtask)), "the cut comes before its flush");
                        assert!(flushed.insert((chain, subtask)));
                        for (task, handle) in sinks {
                            let SinkHandle::Length(length) = handle else { panic!("a length was given") };
                            let sink = self.sinks.iter().position(|id| *id == task.operator).unwrap() as u32;
                            next.lengths.insert(100 * sink + task.subtask, length);
                        }
                    }
                }
            }
        }
        self.cut = next.clone();
        for chain in &self.chains {
            chain.control().try_send(Control::Decided { epoch, positions: next.positions.values().cloned().collect() }).unwrap();
        }
        Ok(next)
    }

    /// The sum of a counter over all window tasks.
    pub fn counted(&self, pick: fn(&weir_kernel::metric::TaskMetrics) -> &AtomicU64) -> u64 {
        self.chains
            .iter()
            .flat_map(|chain| chain.metrics().tasks.iter().map(|task| pick(task).load(Ordering::SeqCst)).collect::<Vec<_>>())
            .sum()
    }
}

/// Window rows (`k, window_start, window_end, n, nv, s, lo, hi`) of all sinks as a map; a row that
/// comes twice fails the test.
pub fn collect(outs: &BTreeMap<u32, Out>) -> BTreeMap<(i64, Option<i64>), Agg> {
    let mut found = BTreeMap::new();
    for batch in outs.values().flat_map(|out| out.0.lock().clone()) {
        let int = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let stamp = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().clone();
        let (key, start, end) = (int("k"), stamp("window_start"), stamp("window_end"));
        let (n, nv, s, lo, hi) = (int("n"), int("nv"), int("s"), int("lo"), int("hi"));
        let at = |array: &Int64Array, row: usize| array.is_valid(row).then(|| array.value(row));
        for row in 0..batch.num_rows() {
            assert!(end.value(row) > start.value(row));
            let agg =
                Agg { count: n.value(row), values: nv.value(row), sum: at(&s, row).map(i128::from), min: at(&lo, row), max: at(&hi, row) };
            let before = found.insert((start.value(row), at(&key, row)), agg);
            assert!(before.is_none(), "window {} of key {:?} came twice", start.value(row), at(&key, row));
        }
    }
    found
}
