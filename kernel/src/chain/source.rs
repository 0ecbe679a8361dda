//! Head of a chain that reads a connector: event times, stamps, watermarks, barriers.

mod pace;
mod peers;
mod time;

use crate::chain::inputs::push_marks;
use crate::envelope::{BATCH_ROWS, Data, Envelope, batch};
use crate::error::Error;
use crate::eval::constant_times;
use crate::io::{BadRecord, Budget, Clock, Polled, Source, SourceBatch};
use crate::metric::{ChainMetrics, SplitMetrics};
use crate::origin::{Origin, Origins, Partition};
use crate::progress::{Advance, Progress};
use crate::side::{ErrorRow, Sides};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema as ArrowSchema;
use pace::Pace;
pub(crate) use peers::Peers;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use time::Timing;
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{EpochId, OperatorId};
use weir_planner::plan::SourceWork;
use weir_planner::schema::Schema;
use weir_planner::spec::ErrorPolicy;

/// While rows flow a watermark goes out after so many of them, or after [`WATERMARK_NS`]: each one
/// makes the shuffle let go of what it gathers.
const WATERMARK_ROWS: usize = 4 * BATCH_ROWS;
/// See [`WATERMARK_ROWS`].
const WATERMARK_NS: u64 = 5_000_000;
/// Undecoded bytes that a source task gives between two barriers at most: then it is held back until
/// the next one is put (EPO-6). Four seconds of the fastest input, so that a round that goes well is
/// never waited for, and a crash or a stuck round never has more to read again.
pub const OPEN_EPOCH_BYTES_MAX: u64 = 4 << 30;
/// A source is the first operator of its chain.
const HEAD: usize = 0;
/// Pace of asking the source how far behind it is.
const LAG_NS: u64 = 200_000_000;

struct SplitState {
    origin: Origin,
    /// Running maximum of event time (EV-3).
    max: Option<i64>,
    /// Since when the split has been caught up without a row, monotonic.
    quiet_since_ns: Option<u64>,
}

/// Where a source task stands in its job.
pub(crate) struct Standing {
    /// The job has no windows: late rows are judged here (EV-4).
    pub(crate) judge: bool,
    /// Bounds the open epoch (EPO-6).
    pub(crate) open_bytes_max: u64,
    /// The tasks of the operator.
    pub(crate) peers: Arc<Peers>,
    /// Which of them this is.
    pub(crate) subtask: u32,
}

/// A source with the state of its splits.
pub struct SourceHead {
    id: OperatorId,
    source: Box<dyn Source>,
    budget: Budget,
    /// See [`OPEN_EPOCH_BYTES_MAX`].
    open_bytes_max: u64,
    /// Undecoded bytes given since the last barrier.
    open_bytes: u64,
    schema: Arc<ArrowSchema>,
    timing: Option<Timing>,
    pace: Pace,
    peers: Arc<Peers>,
    subtask: u32,
    bounded: bool,
    /// Bad records go to an error sink.
    routes_error: bool,
    splits: Vec<SplitState>,
    progress: Progress,
    barriers: VecDeque<EpochId>,
    draining: bool,
    ended: bool,
    started: bool,
    /// Envelopes of the last poll that are still to go; at most a batch and five marks.
    out: VecDeque<Envelope>,
    /// A watermark that waits for more rows.
    watermark: Option<i64>,
    rows_since: usize,
    watermark_ns: u64,
    lag_ns: u64,
    /// When to poll again at the latest, after a poll that found nothing.
    until_ns: Option<u64>,
    positions: Vec<SplitPosition>,
    /// The last poll gave nothing.
    empty: bool,
}

impl SourceHead {
    /// A head over an opened source.
    pub fn new(id: &OperatorId, work: &SourceWork, output: &Schema, source: Box<dyn Source>, standing: Standing) -> Result<Self, Error> {
        let timing = work.time.as_ref().map(|time| Timing::new(id, time, work.on_error, output, standing.judge)).transpose()?;
        Ok(SourceHead {
            id: id.clone(),
            source,
            budget: Budget {
                rows: usize::try_from(work.batch.rows).unwrap_or(usize::MAX),
                bytes: usize::try_from(work.batch.bytes).unwrap_or(usize::MAX),
            },
            open_bytes_max: standing.open_bytes_max,
            open_bytes: 0,
            schema: Arc::new(output.to_arrow()),
            timing,
            pace: Pace::new(work.time.as_ref()),
            peers: standing.peers,
            subtask: standing.subtask,
            bounded: work.bounded,
            routes_error: match work.on_error {
                ErrorPolicy::Route => true,
                ErrorPolicy::Fail | ErrorPolicy::Skip => false,
            },
            splits: Vec::new(),
            progress: Progress::new(0),
            barriers: VecDeque::new(),
            draining: false,
            ended: false,
            started: false,
            out: VecDeque::new(),
            watermark: None,
            rows_since: 0,
            watermark_ns: 0,
            lag_ns: 0,
            until_ns: None,
            positions: Vec::new(),
            empty: false,
        })
    }

    /// Puts a barrier after the current batch.
    pub fn barrier(&mut self, epoch: EpochId) {
        self.barriers.push_back(epoch);
    }

    /// Takes no more input.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// An epoch with these positions is decided.
    pub fn decided(&mut self, positions: &[SplitPosition]) {
        self.source.decided(positions);
    }

    /// The horizon has passed an epoch with these positions.
    pub fn passed(&mut self, positions: &[SplitPosition]) {
        self.source.passed(positions);
    }

    /// Positions recorded with the last barrier that was given.
    pub fn take_positions(&mut self) -> Vec<SplitPosition> {
        std::mem::take(&mut self.positions)
    }

    /// When to try again at the latest.
    pub fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Whether the last call to [`SourceHead::next`] could or did find no input.
    pub fn found_nothing(&self) -> bool {
        self.empty
    }

    /// The open epoch is full: no poll before the next barrier.
    pub fn is_full(&self) -> bool {
        self.open_bytes >= self.open_bytes_max && !self.ended && !self.draining
    }

    /// Closes the source.
    pub fn close(&mut self) {
        self.source.close();
    }

    /// The next envelope; polls only when `may_read`, and then clears it.
    pub fn next(
        &mut self,
        may_read: &mut bool,
        clock: &dyn Clock,
        metrics: &ChainMetrics,
        sides: &mut Sides,
        changed: &mut bool,
    ) -> Result<Option<Envelope>, Error> {
        if let Some(envelope) = self.out.pop_front() {
            return Ok(Some(envelope));
        }
        if !self.started {
            self.started = true;
            self.find_splits(metrics);
            if self.bounded && self.splits.is_empty() {
                self.finish(changed);
            } else {
                let advance = self.progress.advance();
                self.mark(advance, 0, changed);
            }
            if let Some(envelope) = self.out.pop_front() {
                return Ok(Some(envelope));
            }
        }
        if !self.barriers.is_empty() {
            if let Some(watermark) = self.watermark.take() {
                return Ok(Some(Envelope::Watermark(watermark)));
            }
            let epoch = self.barriers.pop_front();
            self.find_splits(metrics);
            self.record_positions(metrics);
            self.open_bytes = 0;
            metrics.full.store(false, Ordering::Release);
            return Ok(epoch.map(Envelope::Barrier));
        }
        self.until_ns = None;
        if self.is_full() {
            metrics.full.store(true, Ordering::Release);
            // What was read goes on as if this were the end for now.
            return Ok(self.watermark.take().map(Envelope::Watermark));
        }
        if self.ended || self.draining || !std::mem::replace(may_read, false) {
            return Ok(None);
        }
        self.poll(clock, metrics, sides, changed)?;
        Ok(self.out.pop_front())
    }

    fn poll(&mut self, clock: &dyn Clock, metrics: &ChainMetrics, sides: &mut Sides, changed: &mut bool) -> Result<(), Error> {
        let now_ns = clock.monotonic_ns();
        let polled = match self.align(metrics) {
            true => self.source.poll(self.budget)?,
            false => Polled::Pending { until_ns: None },
        };
        self.empty = !matches!(polled, Polled::Batch(_));
        self.tell_row(!self.empty, now_ns);
        match polled {
            Polled::Batch(found) => {
                *changed = true;
                self.open_bytes = self.open_bytes.saturating_add(found.bytes as u64);
                let split = found.split;
                if split >= self.splits.len() {
                    self.find_splits(metrics);
                }
                let (has_rows, split_ended) = (found.rows.num_rows() > 0, found.split_ended);
                if let Some(data) = self.ingest(found, clock.wall_ms(), metrics, sides)? {
                    self.rows_since += data.len();
                    self.out.push_back(Envelope::Data(data));
                }
                if has_rows {
                    self.splits[split].quiet_since_ns = None;
                    self.progress.set_idle(split, false);
                }
                if split_ended {
                    self.progress.end(split);
                }
                self.look_for_idle(now_ns);
                let advance = self.progress.advance();
                self.mark(advance, now_ns, changed);
            }
            Polled::Pending { until_ns } => {
                self.find_splits(metrics);
                let deadline = self.look_for_idle(now_ns);
                let advance = self.progress.advance();
                self.mark(advance, now_ns, changed);
                self.out.extend(self.watermark.take().map(Envelope::Watermark));
                let lift = self.lift(now_ns, clock, metrics);
                self.until_ns = [until_ns, deadline, self.held_until(now_ns), lift].into_iter().flatten().min();
            }
            Polled::End => self.finish(changed),
        }
        self.show(now_ns, clock, metrics);
        Ok(())
    }

    /// Every split has ended.
    fn finish(&mut self, changed: &mut bool) {
        let advance = self.progress.finish();
        self.mark(advance, 0, changed);
    }

    fn mark(&mut self, advance: Advance, now_ns: u64, changed: &mut bool) {
        match advance {
            Advance::Same => {}
            Advance::Watermark(watermark) => {
                self.watermark = Some(watermark);
            }
            Advance::Idle(_) | Advance::Active(_) => {
                self.out.extend(self.watermark.take().map(Envelope::Watermark));
                push_marks(advance, &mut self.out);
            }
            Advance::End(greatest) => {
                *changed = true;
                self.ended = true;
                self.peers.tell_slowest(self.subtask, None);
                self.peers.tell_quiet(self.subtask, true);
                let waiting = self.watermark.take();
                push_marks(Advance::End(greatest.or(waiting)), &mut self.out);
            }
        }
        let due = self.rows_since >= WATERMARK_ROWS || now_ns.saturating_sub(self.watermark_ns) >= WATERMARK_NS;
        if due && let Some(watermark) = self.watermark.take() {
            self.out.push_back(Envelope::Watermark(watermark));
            self.rows_since = 0;
            self.watermark_ns = now_ns;
        }
    }

    /// Takes up splits that the source has found.
    fn find_splits(&mut self, metrics: &ChainMetrics) {
        let found = self.source.splits();
        for split in found.into_iter().skip(self.splits.len()) {
            let watermark = match (&self.timing, split.time_max_ms) {
                (Some(timing), Some(max)) => timing.watermark(max),
                _ => i64::MIN,
            };
            self.progress.add(watermark, split.ended);
            let last_event_ms = split.time_max_ms.unwrap_or(i64::MIN);
            let shown = SplitMetrics::new(split.name.clone(), last_event_ms, watermark);
            shown.ended.store(split.ended, Ordering::Relaxed);
            metrics.splits.write().push(shown);
            let origin = Arc::new(Partition { source: self.id.clone(), split: split.name });
            self.splits.push(SplitState { origin, max: split.time_max_ms, quiet_since_ns: None });
        }
    }

    fn ingest(&mut self, found: SourceBatch, wall_ms: i64, metrics: &ChainMetrics, sides: &mut Sides) -> Result<Option<Data>, Error> {
        let Some(state) = self.splits.get_mut(found.split) else {
            return Err(Error::new(Class::Bug, format!("source '{}' gave rows of split {}, which it does not list", self.id, found.split)));
        };
        let rows = conform(&self.id, &self.schema, found.rows)?;
        let shown = metrics.splits.read();
        let counters = shown.get(found.split).ok_or_else(|| Error::new(Class::Bug, "a split lacks its counters"))?;
        counters.rows_in.fetch_add((rows.num_rows() + found.bad.len()) as u64, Ordering::Relaxed);
        counters.rows_error.fetch_add(found.bad.len() as u64, Ordering::Relaxed);
        if let Some(first) = found.bad.first() {
            *counters.bad.lock() = Some(format!("{} at {}: {}", counters.name, first.position, first.reason));
        }
        let task = metrics.tasks.first().ok_or_else(|| Error::new(Class::Bug, "a source chain lacks its counters"))?;
        task.rows_in.fetch_add((rows.num_rows() + found.bad.len()) as u64, Ordering::Relaxed);
        task.bytes_in.fetch_add(found.bytes as u64, Ordering::Relaxed);
        if self.routes_error && !found.bad.is_empty() {
            let error = |bad: BadRecord| ErrorRow {
                raw: bad.raw,
                reason: bad.reason,
                partition: Some(state.origin.split.clone()),
                position: Some(bad.position),
            };
            let bad: Vec<ErrorRow> = found.bad.into_iter().map(error).collect();
            sides.error(HEAD, task, &bad, wall_ms)?;
        }
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        let Some(timing) = &self.timing else {
            let times = constant_times(wall_ms, rows.num_rows());
            return Ok(Some(Data { rows, times, stamps: None, origins: Origins::One(state.origin.clone()) }));
        };
        let mut timed = timing.stamp(rows, &mut state.max, wall_ms)?;
        timed.data.origins = Origins::One(state.origin.clone());
        counters.rows_invalid.fetch_add(timed.invalid, Ordering::Relaxed);
        counters.rows_error.fetch_add(timed.refused, Ordering::Relaxed);
        counters.rows_late.fetch_add(timed.late, Ordering::Relaxed);
        if let Some(rows) = timed.aside.timeless.take() {
            sides.timeless(HEAD, task, rows, wall_ms)?;
        }
        if let Some((late, late_by_ms)) = timed.aside.late.take() {
            sides.late(HEAD, task, &late, &late_by_ms)?;
        }
        timed.aside.refused.iter_mut().for_each(|row| row.partition = Some(state.origin.split.clone()));
        sides.error(HEAD, task, &timed.aside.refused, wall_ms)?;
        if let Some(max) = state.max {
            let watermark = timing.watermark(max);
            self.progress.raise(found.split, watermark);
            counters.watermark_ms.store(watermark, Ordering::Relaxed);
            counters.last_event_ms.store(max, Ordering::Relaxed);
        }
        Ok(Some(timed.data).filter(|data| !data.is_empty()))
    }

    fn record_positions(&mut self, metrics: &ChainMetrics) {
        self.positions = self.source.cut();
        let shown = metrics.splits.read();
        for (i, position) in self.positions.iter_mut().enumerate() {
            let same = |state: &&SplitState| state.origin.split == position.split;
            let state = self.splits.get(i).filter(same).or_else(|| self.splits.iter().find(same));
            position.time_max_ms = state.and_then(|state| state.max);
            let next = match position.position {
                Position::Row(row) => i64::try_from(row).unwrap_or(i64::MAX),
                Position::Offset(offset) => offset,
                Position::Byte { offset, .. } => i64::try_from(offset).unwrap_or(i64::MAX),
            };
            if let Some(counters) = shown.iter().find(|counters| counters.name == position.split) {
                counters.position.store(next, Ordering::Relaxed);
            }
        }
    }

    fn show(&mut self, now_ns: u64, clock: &dyn Clock, metrics: &ChainMetrics) {
        for (i, counters) in metrics.splits.read().iter().enumerate() {
            counters.idle.store(self.progress.is_idle(i), Ordering::Relaxed);
            counters.ended.store(self.progress.has_ended(i), Ordering::Relaxed);
        }
        metrics.holder.tell(self.progress.holder(), self.progress.forwarded(), clock.wall_ms());
        if self.lag_ns != 0 && now_ns.saturating_sub(self.lag_ns) < LAG_NS {
            return;
        }
        self.lag_ns = now_ns.max(1);
        let lag = self.source.lag();
        for (i, counters) in metrics.splits.read().iter().enumerate() {
            counters.lag.store(lag.get(i).copied().flatten().unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}

/// The batch under the planned schema: names, types and nullability are those of the plan.
fn conform(id: &OperatorId, schema: &Arc<ArrowSchema>, rows: RecordBatch) -> Result<RecordBatch, Error> {
    if Arc::ptr_eq(schema, &rows.schema()) || schema.as_ref() == rows.schema().as_ref() {
        return Ok(rows);
    }
    let count = rows.num_rows();
    let types = |schema: &ArrowSchema| schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    if types(schema) != types(&rows.schema()) {
        let message = format!("source '{id}' gave columns {:?} where the plan has {:?}", types(&rows.schema()), types(schema));
        return Err(Error::new(Class::Bug, message));
    }
    batch(schema.clone(), rows.columns().to_vec(), count)
}
