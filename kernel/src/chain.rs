//! One chain as a machine: `step(budget)`, no async, no locks on the data path (KER-1).

mod inputs;
mod lane;
mod report;
mod source;
mod tail;

use crate::envelope::Envelope;
use crate::error::Error;
use crate::io::{ChainCut, Clock, FrozenImage, SinkHandle};
use crate::metric::{ChainMetrics, TaskMetrics};
use crate::operator::{Context, Operator};
use crate::side::{Side, Sides};
pub(crate) use inputs::{Input, Inputs};
pub(crate) use lane::Lane;
pub use report::{ChainReport, Control};
pub use source::OPEN_EPOCH_BYTES_MAX;
pub(crate) use source::{Peers, SourceHead, Standing};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub(crate) use tail::Tail;
use weir_planner::id::{ChainId, EpochId, TaskId};

/// Controls that a chain holds at most; the coordinator has one round open at a time.
const CONTROLS_MAX: usize = 64;
/// Envelopes that one step emits at most, so that a large window does not hold the shard.
const ENVELOPES_A_STEP: usize = 8;
/// How soon a full sink or report channel is tried again without a wake-up.
const RETRY_NS: u64 = 1_000_000;
/// How soon an open flush is looked at again without a wake-up.
const FLUSH_RETRY_NS: u64 = 20_000_000;

/// What a step did.
#[derive(Debug)]
pub enum Step {
    /// Something; step again soon.
    Worked,
    /// Nothing to do until a wake-up, or `until_ns` at the latest.
    Idle {
        /// Monotonic.
        until_ns: Option<u64>,
    },
    /// Held back by a full edge, sink or report channel; woken when there is room, or `until_ns`.
    Blocked {
        /// Monotonic.
        until_ns: Option<u64>,
    },
    /// The task failed; do not step again, close it.
    Failed(Error),
}

/// Where a chain's envelopes come from.
pub(crate) enum Head {
    /// A connector.
    Source(Box<SourceHead>),
    /// Edges.
    Inputs(Inputs),
}

impl Head {
    /// A head over edges.
    pub(crate) fn inputs(inputs: Vec<Input>) -> Self {
        Head::Inputs(Inputs::new(inputs))
    }
}

/// An operator with the position of its task in the metrics.
pub(crate) struct Stage {
    pub(crate) task: usize,
    pub(crate) operator: Box<dyn Operator>,
}

/// What a chain is made of.
pub(crate) struct Wiring {
    pub(crate) id: ChainId,
    pub(crate) subtask: u32,
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) head: Head,
    /// Where each input of a head over edges comes from.
    pub(crate) inputs: Vec<String>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) tail: Tail,
    /// Side outputs.
    pub(crate) sides: Sides,
    /// Of a chain that owes one batch for each that it takes.
    pub(crate) lane: Option<Lane>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reports: flume::Sender<ChainReport>,
}

/// A chain instance.
pub struct Chain {
    id: ChainId,
    subtask: u32,
    head: Head,
    stages: Vec<Stage>,
    tail: Tail,
    sides: Sides,
    lane: Option<Lane>,
    clock: Arc<dyn Clock>,
    metrics: Arc<ChainMetrics>,
    control: flume::Sender<Control>,
    controls: flume::Receiver<Control>,
    reports: flume::Sender<ChainReport>,
    /// Reports that found the channel full: at most a cut and a flush.
    outbox: VecDeque<ChainReport>,
    /// State frozen by the barrier that is passing.
    images: Vec<FrozenImage>,
    /// The cut of a barrier that has passed the operators, until its flush begins.
    cut: Option<(EpochId, ChainCut)>,
    ended: bool,
    blocked_since_ns: Option<u64>,
    closed: bool,
}

impl Chain {
    pub(crate) fn new(wiring: Wiring) -> Self {
        let (control, controls) = flume::bounded(CONTROLS_MAX);
        let mut metrics = ChainMetrics::reading(wiring.inputs, wiring.tasks);
        for (task, metrics) in metrics.tasks.iter_mut().enumerate() {
            metrics.routes_error = wiring.sides.wired(task, Side::Error);
            metrics.routes_late = wiring.sides.wired(task, Side::Late);
        }
        Chain {
            id: wiring.id,
            subtask: wiring.subtask,
            head: wiring.head,
            stages: wiring.stages,
            tail: wiring.tail,
            sides: wiring.sides,
            lane: wiring.lane,
            clock: wiring.clock,
            metrics: Arc::new(metrics),
            control,
            controls,
            reports: wiring.reports,
            outbox: VecDeque::new(),
            images: Vec::new(),
            cut: None,
            ended: false,
            blocked_since_ns: None,
            closed: false,
        }
    }

    /// Which chain and subtask.
    pub fn id(&self) -> (ChainId, u32) {
        (self.id, self.subtask)
    }

    /// At most one batch of work, about a millisecond; control first (KER-8).
    pub fn step(&mut self) -> Step {
        let begun = self.clock.monotonic_ns();
        if let Some(since) = self.blocked_since_ns.take() {
            let held_back = begun.saturating_sub(since);
            self.metrics.blocked_ns.fetch_add(held_back, Ordering::Relaxed);
            if let Head::Source(source) = &mut self.head {
                source.held_back(held_back);
            }
        }
        let mut changed = false;
        let step = self.turn(begun, &mut changed).unwrap_or_else(Step::Failed);
        if changed {
            self.metrics.changed.store(true, Ordering::Relaxed);
        }
        match &step {
            Step::Worked => {
                let spent = self.clock.monotonic_ns().saturating_sub(begun);
                self.metrics.busy_ns.fetch_add(spent, Ordering::Relaxed);
            }
            Step::Blocked { .. } => self.blocked_since_ns = Some(begun),
            Step::Idle { .. } | Step::Failed(_) => {}
        }
        step
    }

    /// Where control goes. Wake the chain after sending.
    pub fn control(&self) -> flume::Sender<Control> {
        self.control.clone()
    }

    /// Counters, shared with whoever reports them.
    pub fn metrics(&self) -> Arc<ChainMetrics> {
        self.metrics.clone()
    }

    /// Closes source and sinks; idempotent.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        // A decision that has come is passed on first: a source may owe an answer for it.
        self.obey();
        if let Head::Source(source) = &mut self.head {
            source.close();
        }
        self.tail.close();
    }

    fn turn(&mut self, begun: u64, changed: &mut bool) -> Result<Step, Error> {
        self.obey();
        let retry = Some(begun.saturating_add(RETRY_NS));
        if !self.send_reports() {
            return Ok(Step::Blocked { until_ns: retry });
        }
        let wall_ms = self.clock.wall_ms();
        let mut worked = self.advance_tail()?;
        let mut may_read = true;
        for _ in 0..ENVELOPES_A_STEP {
            // Side edges are flushed also while the main way out is full.
            let sides_ready = self.sides.flush();
            if !self.tail.ready() || !sides_ready || !self.outbox.is_empty() {
                // Room on an edge wakes this chain; a sink and the report channel may not.
                let until_ns = if matches!(self.tail, Tail::Sink(_)) || !self.outbox.is_empty() { retry } else { None };
                return Ok(if worked { Step::Worked } else { Step::Blocked { until_ns } });
            }
            let Some(envelope) = self.pull((wall_ms, begun), &mut may_read, changed)? else {
                if may_read || self.waits() {
                    break;
                }
                // A batch was read and nothing came of it: a filter, or an open window.
                return Ok(Step::Worked);
            };
            self.deliver(envelope, changed)?;
            self.advance_tail()?;
            worked = true;
        }
        if worked {
            return Ok(Step::Worked);
        }
        let aside = self.sides.settle()?;
        if self.tail.settle()? || aside {
            self.advance_tail()?;
            return Ok(Step::Worked);
        }
        let flush = self.tail.flushing().then(|| begun.saturating_add(FLUSH_RETRY_NS));
        let due = self.stages.iter().filter_map(|stage| stage.operator.until_ns()).min();
        let own = flush.into_iter().chain(due).min();
        let source = match &self.head {
            // The barrier that it waits for comes with a wake-up.
            Head::Source(source) if source.is_full() => return Ok(Step::Blocked { until_ns: own }),
            Head::Source(source) => source.until_ns(),
            Head::Inputs(_) => None,
        };
        Ok(Step::Idle { until_ns: own.into_iter().chain(source).min() })
    }

    /// Whether the last poll of a source found nothing; reading edges never ends a step early.
    fn waits(&self) -> bool {
        match &self.head {
            Head::Source(source) => source.found_nothing(),
            Head::Inputs(_) => false,
        }
    }

    fn obey(&mut self) {
        while let Ok(control) = self.controls.try_recv() {
            match (control, &mut self.head) {
                (Control::Barrier(epoch), Head::Source(source)) => source.barrier(epoch),
                (Control::Drain, Head::Source(source)) => source.drain(),
                // Others get their barriers from their inputs, and drain with them.
                (Control::Barrier(_) | Control::Drain, Head::Inputs(_)) => {}
                (Control::Decided { epoch, positions }, head) => {
                    if let Head::Source(source) = head {
                        source.decided(&positions);
                    }
                    self.tail.decided(epoch);
                }
                (Control::Passed { positions }, Head::Source(source)) => source.passed(&positions),
                (Control::Passed { .. }, Head::Inputs(_)) => {}
            }
        }
    }

    /// False when the channel is full. A coordinator that is gone wants no reports.
    fn send_reports(&mut self) -> bool {
        while let Some(report) = self.outbox.pop_front() {
            if let Err(flume::TrySendError::Full(report)) = self.reports.try_send(report) {
                self.outbox.push_front(report);
                return false;
            }
        }
        true
    }

    /// The next envelope out of the operators, asking the last one first. The head is read only
    /// while `may_read`, which one batch clears. Times are those of the wall and the monotonic clock.
    fn pull(&mut self, (wall_ms, now_ns): (i64, u64), may_read: &mut bool, changed: &mut bool) -> Result<Option<Envelope>, Error> {
        let last = self.stages.len();
        let mut asked = last;
        loop {
            let given = match asked.checked_sub(1) {
                None => {
                    if let Some(owed) = self.lane.as_mut().map(Lane::pay).transpose()?.flatten() {
                        return Ok(Some(Envelope::Data(owed)));
                    }
                    let given = read(&mut self.head, &self.metrics, self.clock.as_ref(), &mut self.sides, may_read, changed)?;
                    if let (Some(lane), Some(Envelope::Data(data))) = (&mut self.lane, &given) {
                        lane.owe();
                        if data.is_empty() {
                            // Nothing comes of nothing: operators only see rows.
                            continue;
                        }
                    }
                    given
                }
                Some(stage) => {
                    let Stage { task, operator } = &mut self.stages[stage];
                    let metrics = &self.metrics.tasks[*task];
                    let (images, sides) = (&mut self.images, &mut self.sides);
                    let given = operator.give(&mut Context { wall_ms, now_ns, metrics, images, changed, task: *task, sides })?;
                    if let Some(envelope) = &given {
                        count_out(metrics, envelope, wall_ms);
                    }
                    given
                }
            };
            match given {
                None if asked == 0 => return Ok(None),
                None => asked -= 1,
                Some(envelope) if asked == last => {
                    match &mut self.lane {
                        None => return Ok(Some(envelope)),
                        Some(lane) => match lane.collect(envelope) {
                            None => {}
                            passed => return Ok(passed),
                        },
                    }
                    // The operators may have more of the batch that is owed.
                    asked = last;
                }
                Some(envelope) => {
                    let Stage { task, operator } = &mut self.stages[asked];
                    let metrics = &self.metrics.tasks[*task];
                    if let Envelope::Data(data) = &envelope {
                        metrics.rows_in.fetch_add(operator.rows_of(data), Ordering::Relaxed);
                        metrics.bytes_in.fetch_add(data.bytes() as u64, Ordering::Relaxed);
                    }
                    let (images, sides) = (&mut self.images, &mut self.sides);
                    operator.take(envelope, &mut Context { wall_ms, now_ns, metrics, images, changed, task: *task, sides })?;
                    asked += 1;
                }
            }
        }
    }

    fn deliver(&mut self, envelope: Envelope, changed: &mut bool) -> Result<(), Error> {
        if let (Tail::Sink(_), Some(metrics)) = (&self.tail, self.metrics.tasks.last()) {
            count_in(metrics, &envelope);
            if let Envelope::Watermark(watermark) = &envelope {
                metrics.watermark_ms.store(*watermark, Ordering::Relaxed);
            }
        }
        match &envelope {
            Envelope::Barrier(epoch) => {
                let positions = match &mut self.head {
                    Head::Source(source) => source.take_positions(),
                    Head::Inputs(_) => Vec::new(),
                };
                let images = std::mem::take(&mut self.images);
                self.cut = Some((*epoch, ChainCut { positions, images, ended: self.ended }));
            }
            Envelope::End => {
                self.ended = true;
                self.metrics.ended.store(true, Ordering::Relaxed);
                *changed = true;
            }
            Envelope::Data(_) | Envelope::Watermark(_) | Envelope::Idle | Envelope::Active => {}
        }
        self.sides.mark(&envelope)?;
        let barrier = if let Envelope::Barrier(epoch) = &envelope { Some(*epoch) } else { None };
        self.tail.accept(envelope)?;
        if let (Tail::Edges(_), Some(epoch)) = (&self.tail, barrier) {
            self.report_cut(epoch);
            self.report_flushed(epoch, Vec::new());
        }
        Ok(())
    }

    /// Goes on with what the tail holds; true when something moved.
    fn advance_tail(&mut self) -> Result<bool, Error> {
        let mut any = false;
        // A sink may be done with a flush as soon as it has begun, and then begin the next.
        loop {
            let moved = self.tail.advance()?;
            if moved.rows > 0
                && let Some(metrics) = self.metrics.tasks.last()
            {
                metrics.rows_out.fetch_add(moved.rows, Ordering::Relaxed);
            }
            let again = moved.begun.is_some() || moved.flushed.is_some();
            if let Some((epoch, sinks)) = moved.flushed {
                self.report_flushed(epoch, sinks);
            }
            if let Some(epoch) = moved.begun {
                self.report_cut(epoch);
            }
            any |= again || moved.rows > 0;
            if !again {
                break;
            }
        }
        self.send_reports();
        Ok(any)
    }

    fn report_cut(&mut self, epoch: EpochId) {
        if let Some((_, cut)) = self.cut.take_if(|(cut, _)| *cut == epoch) {
            self.outbox.push_back(ChainReport::Cut { chain: self.id, subtask: self.subtask, epoch, cut });
        }
    }

    fn report_flushed(&mut self, epoch: EpochId, sinks: Vec<(TaskId, SinkHandle)>) {
        self.outbox.push_back(ChainReport::Flushed { chain: self.id, subtask: self.subtask, epoch, sinks });
    }
}

fn read(
    head: &mut Head,
    metrics: &ChainMetrics,
    clock: &dyn Clock,
    sides: &mut Sides,
    may_read: &mut bool,
    changed: &mut bool,
) -> Result<Option<Envelope>, Error> {
    match head {
        Head::Source(source) => {
            let given = source.next(may_read, clock, metrics, sides, changed)?;
            if let (Some(envelope), Some(task)) = (&given, metrics.tasks.first()) {
                count_out(task, envelope, clock.wall_ms());
            }
            Ok(given)
        }
        Head::Inputs(inputs) => {
            let given = inputs.next(*may_read, clock, metrics)?;
            if matches!(given, Some(Envelope::Data(_))) {
                *may_read = false;
            }
            Ok(given)
        }
    }
}

fn count_in(metrics: &TaskMetrics, envelope: &Envelope) {
    if let Envelope::Data(data) = envelope {
        metrics.rows_in.fetch_add(data.len() as u64, Ordering::Relaxed);
        metrics.bytes_in.fetch_add(data.bytes() as u64, Ordering::Relaxed);
    }
}

fn count_out(metrics: &TaskMetrics, envelope: &Envelope, wall_ms: i64) {
    match envelope {
        Envelope::Data(data) => {
            metrics.rows_out.fetch_add(data.len() as u64, Ordering::Relaxed);
            metrics.bytes_out.fetch_add(data.bytes() as u64, Ordering::Relaxed);
        }
        Envelope::Watermark(watermark) => {
            metrics.watermark_ms.store(*watermark, Ordering::Relaxed);
            metrics.risen_at_ms.store(wall_ms, Ordering::Relaxed);
        }
        Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => {}
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.close();
    }
}
