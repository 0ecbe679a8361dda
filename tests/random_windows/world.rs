//! A whole job in one thread: its plan and Weir's kernel, with sources, sinks and clock made here, and
//! chains stepped in a seeded order, over restarts at decided epochs.

use super::columns::batch;
use arrow::array::RecordBatch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_kernel::chain::{Chain, ChainReport, Control, OPEN_EPOCH_BYTES_MAX, Step};
use weir_kernel::error::Error;
use weir_kernel::graph::{Parts, build};
use weir_kernel::io::{Budget, Clock, Flush, Polled, Pushed, Restored, Sink, SinkHandle, Source, SourceBatch, Split, StateImage, Wake};
use weir_kernel::metric::TaskMetrics;
use weir_oracle::value::Value;
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::id::{Attempt, ChainId, EpochId, OperatorId};
use weir_planner::plan::{JobPlan, Work};

/// Steps after which a run that has not ended is taken to stand still.
const STEPS_MAX: u64 = 2_000_000;

/// Rows of each split, as columns of the source.
pub type Feed = Arc<BTreeMap<u32, RecordBatch>>;

/// Makes the columns that a plan's source gives out of rows by split.
pub fn feed(plan: &JobPlan, splits: &BTreeMap<u32, Vec<Vec<Value>>>, names: &[String]) -> Feed {
    let source = plan.chains.iter().flat_map(|chain| &chain.operators).find(|operator| matches!(operator.work, Work::Source(_)));
    let schema = Arc::new(source.unwrap().output.to_arrow());
    let one = |rows: &Vec<Vec<Value>>| {
        batch(&schema, rows.len(), |row, name| rows[row][names.iter().position(|known| known == name).unwrap()].clone())
    };
    Arc::new(splits.iter().map(|(split, rows)| (*split, one(rows))).collect())
}

/// What came out.
#[derive(Default)]
pub struct Found {
    /// Of each sink operator, in the order in which its tasks took them.
    pub rows: BTreeMap<String, Vec<RecordBatch>>,
    /// Counters of the last attempt, summed over tasks, by operator.
    pub late: BTreeMap<String, u64>,
    /// Late rows by the split that they come from.
    pub late_of: BTreeMap<String, u64>,
    /// Rows whose window was gone although their stamp was not past it.
    pub retired: u64,
    /// Evicted entries and rows.
    pub evicted: u64,
    /// Rows routed, of all tasks.
    pub routed: u64,
    /// Rows without a time.
    pub invalid: u64,
    /// Rows read.
    pub read: u64,
    /// Entries left in the state at the end.
    pub left: u64,
}

#[derive(Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn wall_ms(&self) -> i64 {
        4_102_444_800_000 + (self.0.load(Ordering::Relaxed) / 1_000_000) as i64
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Chains are stepped whether or not they ask for it.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

struct TestSource {
    feed: Feed,
    /// Split, next row, ended, restored maximum.
    splits: Vec<(u32, usize, bool, Option<i64>)>,
    random: StdRng,
    batch_max: usize,
}

impl Source for TestSource {
    fn splits(&self) -> Vec<Split> {
        self.splits.iter().map(|(name, _, ended, max)| Split { name: name.to_string(), ended: *ended, time_max_ms: *max }).collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        let open: Vec<usize> = (0..self.splits.len()).filter(|at| !self.splits[*at].2).collect();
        if open.is_empty() {
            return Ok(Polled::End);
        }
        let split = open[self.random.random_range(0..open.len())];
        let (name, next, ended, _) = &mut self.splits[split];
        let all = &self.feed[name];
        let count = self.random.random_range(1..=self.batch_max).min(budget.rows).min(all.num_rows() - *next);
        let rows = all.slice(*next, count);
        *next += count;
        *ended = *next == all.num_rows();
        Ok(Polled::Batch(SourceBatch { split, rows, bad: Vec::new(), bytes: 24 * count, split_ended: *ended }))
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
        *next >= self.feed[name].num_rows()
    }

    fn close(&mut self) {}
}

/// Batches with their place among those of all tasks.
type Out = Arc<Mutex<Vec<(u64, RecordBatch)>>>;

struct TestSink {
    out: Out,
    taken: Arc<AtomicU64>,
    flushing: Option<u64>,
}

impl Sink for TestSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.out.lock().unwrap().push((self.taken.fetch_add(1, Ordering::SeqCst), rows.clone()));
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        self.flushing = Some(self.out.lock().unwrap().len() as u64);
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        Ok(Flush::Done(SinkHandle::Length(self.flushing.take().unwrap())))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {}
}

/// A decided cut, and what the sinks hold.
#[derive(Default)]
struct Cut {
    positions: BTreeMap<String, SplitPosition>,
    images: BTreeMap<OperatorId, Vec<Arc<StateImage>>>,
    lengths: BTreeMap<(OperatorId, u32), u64>,
    outs: BTreeMap<(OperatorId, u32), Out>,
    taken: Arc<AtomicU64>,
}

struct Attempted<'a> {
    plan: &'a JobPlan,
    chains: Vec<Chain>,
    reports: flume::Receiver<ChainReport>,
    clock: Arc<TestClock>,
    random: StdRng,
    number: u64,
    sequence: u64,
}

/// Runs plans one after the other, each from a cut somewhere in the middle of the one before, the last
/// to its end. Batches of the source have up to `batch_max` rows.
///
/// Errors: a chain failed, or nothing moves.
pub fn run(plans: &[&JobPlan], feed: &Feed, seed: u64, batch_max: usize) -> Result<Found, String> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut cut = Cut::default();
    let Some((last, before)) = plans.split_last() else { return Err("there is no plan".to_owned()) };
    for (number, plan) in before.iter().enumerate() {
        let mut attempt = Attempted::new(plan, feed, &mut random, batch_max, &mut cut, number as u64 + 1)?;
        for _ in 0..attempt.random.random_range(1..4) {
            for _ in 0..attempt.random.random_range(0..400) {
                attempt.step()?;
            }
            attempt.epoch(&mut cut)?;
        }
        for _ in 0..attempt.random.random_range(0..200) {
            attempt.step()?;
        }
    }
    let mut attempt = Attempted::new(last, feed, &mut random, batch_max, &mut cut, plans.len() as u64)?;
    let mut steps = 0;
    while !attempt.chains.iter().all(|chain| chain.metrics().ended.load(Ordering::SeqCst)) {
        attempt.step()?;
        steps += 1;
        if steps > STEPS_MAX {
            return Err(format!("the job has not ended after {steps} steps"));
        }
    }
    Ok(attempt.found(&cut))
}

impl<'a> Attempted<'a> {
    fn new(plan: &'a JobPlan, feed: &Feed, random: &mut StdRng, batch_max: usize, cut: &mut Cut, number: u64) -> Result<Self, String> {
        let (sender, reports) = flume::bounded(64);
        let clock = Arc::new(TestClock::default());
        let mut parts = Parts {
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            restored: BTreeMap::new(),
            clock: clock.clone(),
            wakes: BTreeMap::new(),
            reports: sender,
            open_epoch_bytes: OPEN_EPOCH_BYTES_MAX,
        };
        for chain in &plan.chains {
            for subtask in 0..chain.parallelism {
                parts.wakes.insert((chain.id, subtask), Arc::new(NoWake));
                for operator in &chain.operators {
                    let key = (operator.id.clone(), subtask);
                    match &operator.work {
                        Work::Source(_) => {
                            let mine = feed.keys().filter(|name| *name % chain.parallelism == subtask);
                            let splits = mine.map(|name| match cut.positions.get(&name.to_string()) {
                                Some(SplitPosition { position: Position::Row(next), time_max_ms, ended, .. }) => {
                                    (*name, *next as usize, *ended, *time_max_ms)
                                }
                                _ => (*name, 0, false, None),
                            });
                            let source = TestSource {
                                feed: feed.clone(),
                                splits: splits.collect(),
                                random: StdRng::seed_from_u64(random.random()),
                                batch_max,
                            };
                            parts.sources.insert(key, Box::new(source));
                        }
                        Work::Sink(_) => {
                            let out = cut.outs.entry(key.clone()).or_default().clone();
                            out.lock().unwrap().truncate(cut.lengths.get(&key).map_or(0, |length| *length as usize));
                            parts.sinks.insert(key, Box::new(TestSink { out, taken: cut.taken.clone(), flushing: None }));
                        }
                        Work::Window(_) | Work::Top(_) | Work::Buffer(_) => {
                            let images = cut.images.get(&operator.id).cloned().unwrap_or_default();
                            parts.restored.insert(key, Restored { images, redealt: number > 1 });
                        }
                        Work::Map(_) | Work::Partial(_) | Work::Batch(_) | Work::Union => {}
                    }
                }
            }
        }
        // Tasks of another parallelism before: what they wrote is part of the result, up to the cut.
        for (key, out) in &cut.outs {
            out.lock().unwrap().truncate(cut.lengths.get(key).map_or(0, |length| *length as usize));
        }
        let chains = build(plan, parts).map_err(|error| error.to_failure().message)?;
        let random = StdRng::seed_from_u64(random.random());
        Ok(Attempted { plan, chains, reports, clock, random, number, sequence: 0 })
    }

    /// Steps a chain.
    fn step(&mut self) -> Result<(), String> {
        let at = self.random.random_range(0..self.chains.len());
        if self.random.random_range(0..50) == 0 {
            self.clock.0.fetch_add(self.random.random_range(1..12) * 1_000_000, Ordering::Relaxed);
        }
        match self.chains[at].step() {
            Step::Worked | Step::Idle { .. } | Step::Blocked { .. } => Ok(()),
            Step::Failed(error) => Err(error.to_failure().message),
        }
    }

    /// A barrier to every source, all reports, and the decision.
    fn epoch(&mut self, cut: &mut Cut) -> Result<(), String> {
        self.sequence += 1;
        let epoch = EpochId { attempt: Attempt::new(self.number), sequence: self.sequence };
        if self.number > 1 && self.sequence == 1 {
            // Each task writes all that it took of what former tasks wrote (CKP-9).
            cut.images.clear();
        }
        let heads = self.plan.chains.iter().filter(|chain| matches!(chain.operators[0].work, Work::Source(_)));
        let sources: BTreeSet<ChainId> = heads.map(|chain| chain.id).collect();
        for chain in self.chains.iter().filter(|chain| sources.contains(&chain.id().0)) {
            chain.control().try_send(Control::Barrier(epoch)).unwrap();
        }
        let (mut cuts, mut flushes, mut steps) = (0, 0, 0);
        while cuts < self.chains.len() || flushes < self.chains.len() {
            self.step()?;
            steps += 1;
            if steps > STEPS_MAX {
                return Err(format!("an epoch is not complete after {steps} steps"));
            }
            while let Ok(report) = self.reports.try_recv() {
                match report {
                    ChainReport::Cut { cut: part, .. } => {
                        cuts += 1;
                        cut.positions.extend(part.positions.into_iter().map(|position| (position.split.clone(), position)));
                        for image in part.images {
                            cut.images.entry(image.operator.clone()).or_default().push(Arc::new(image.build().unwrap()));
                        }
                    }
                    ChainReport::Flushed { sinks, .. } => {
                        flushes += 1;
                        for (task, handle) in sinks {
                            let SinkHandle::Length(length) = handle else { panic!("{handle:?} is not what the sinks here give") };
                            cut.lengths.insert((task.operator, task.subtask), length);
                        }
                    }
                }
            }
        }
        for chain in &self.chains {
            let positions = cut.positions.values().cloned().collect();
            chain.control().try_send(Control::Decided { epoch, positions }).unwrap();
        }
        Ok(())
    }

    fn found(&self, cut: &Cut) -> Found {
        let mut found = Found::default();
        let mut taken: BTreeMap<(&OperatorId, u64), RecordBatch> = BTreeMap::new();
        for ((operator, _), out) in &cut.outs {
            taken.extend(out.lock().unwrap().iter().map(|(place, rows)| ((operator, *place), rows.clone())));
        }
        for ((operator, _), rows) in taken {
            found.rows.entry(operator.as_str().to_owned()).or_default().push(rows);
        }
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        for chain in &self.chains {
            for task in &chain.metrics().tasks {
                let TaskMetrics { rows_late, late_of, rows_retired, rows_evicted, rows_routed, state_rows, .. } = task;
                *found.late.entry(task.task.operator.as_str().to_owned()).or_default() += get(rows_late);
                for (origin, rows) in late_of.lock().iter() {
                    *found.late_of.entry(origin.split.clone()).or_default() += rows;
                }
                found.retired += get(rows_retired);
                found.evicted += get(rows_evicted);
                found.routed += get(rows_routed);
                found.left += get(state_rows);
            }
            for split in chain.metrics().splits.read().iter() {
                found.invalid += get(&split.rows_invalid);
                found.read += get(&split.rows_in);
            }
        }
        found
    }
}
