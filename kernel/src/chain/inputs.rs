//! Head of a chain that reads edges: data in turn, marks put together, barriers aligned.

use crate::align::Align;
use crate::edge::Receiver;
use crate::envelope::Envelope;
use crate::error::Error;
use crate::io::Clock;
use crate::metric::ChainMetrics;
use crate::progress::{Advance, Progress};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;

/// One input of a chain instance, as marks count it.
pub enum Input {
    /// The edge from one producing subtask.
    One(Receiver),
    /// The lanes of an ordered edge, which were dealt to in turn and are read in the same turn (STR-5).
    Lanes(Box<Lanes>),
}

/// The edges from the lanes of an ordered edge. Each mark was dealt to all of them at one place in
/// the turn; so when the lane whose turn it is brings a mark, every lane's next envelope is that
/// mark, and the turn goes on where it was.
pub struct Lanes {
    receivers: Vec<Receiver>,
    turn: usize,
    /// A mark that came from so many lanes yet, beginning with the one whose turn it is.
    fence: Option<(Envelope, usize)>,
}

/// The incoming edges of a chain instance.
pub struct Inputs {
    inputs: Vec<Input>,
    align: Align,
    progress: Progress,
    /// The input to look at first: they take turns.
    turn: usize,
    /// Marks that one change led to; at most four.
    out: VecDeque<Envelope>,
}

impl Input {
    /// Lanes in the order of their subtasks, which is that of the turn.
    pub fn lanes(receivers: Vec<Receiver>) -> Self {
        Input::Lanes(Box::new(Lanes { receivers, turn: 0, fence: None }))
    }

    fn receive(&mut self) -> Result<Option<Envelope>, Error> {
        match self {
            Input::One(receiver) => Ok(receiver.receive()),
            Input::Lanes(lanes) => lanes.receive(),
        }
    }
}

impl Lanes {
    fn receive(&mut self) -> Result<Option<Envelope>, Error> {
        let count = self.receivers.len();
        loop {
            let came = self.fence.as_ref().map_or(0, |(_, came)| *came);
            let lane = (self.turn + came) % count;
            let Some(envelope) = self.receivers[lane].receive() else { return Ok(None) };
            match (envelope, &mut self.fence) {
                (Envelope::Data(data), None) => {
                    self.turn = (lane + 1) % count;
                    if !data.is_empty() {
                        return Ok(Some(Envelope::Data(data)));
                    }
                }
                (mark, None) => self.fence = Some((mark, 1)),
                (mark, Some((expected, came))) if same_mark(&mark, expected) => *came += 1,
                (other, Some((expected, _))) => {
                    let message = format!("lane {lane} brought {} where the others have {}", name(&other), name(expected));
                    return Err(Error::new(Class::Bug, message));
                }
            }
            if let Some((mark, _)) = self.fence.take_if(|(_, came)| *came == count) {
                return Ok(Some(mark));
            }
        }
    }
}

fn same_mark(a: &Envelope, b: &Envelope) -> bool {
    match (a, b) {
        (Envelope::Watermark(a), Envelope::Watermark(b)) => a == b,
        (Envelope::Barrier(a), Envelope::Barrier(b)) => a == b,
        (Envelope::Idle, Envelope::Idle) | (Envelope::Active, Envelope::Active) | (Envelope::End, Envelope::End) => true,
        (Envelope::Data(_) | Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End, _) => false,
    }
}

fn name(envelope: &Envelope) -> String {
    match envelope {
        Envelope::Data(data) => format!("{} rows", data.len()),
        Envelope::Watermark(watermark) => format!("watermark {watermark}"),
        Envelope::Idle => "'idle'".to_owned(),
        Envelope::Active => "'active'".to_owned(),
        Envelope::Barrier(epoch) => format!("barrier {epoch}"),
        Envelope::End => "the end".to_owned(),
    }
}

impl Inputs {
    /// A head over these inputs.
    pub fn new(inputs: Vec<Input>) -> Self {
        let count = inputs.len();
        Inputs { inputs, align: Align::new(count), progress: Progress::new(count), turn: 0, out: VecDeque::new() }
    }

    /// The next envelope; data only when `may_read`. `None` when nothing may be read now.
    pub fn next(&mut self, may_read: bool, clock: &dyn Clock, metrics: &ChainMetrics) -> Result<Option<Envelope>, Error> {
        loop {
            if let Some(envelope) = self.out.pop_front() {
                return Ok(Some(envelope));
            }
            if !may_read {
                return Ok(None);
            }
            let Some((input, envelope)) = self.receive()? else { return Ok(None) };
            match envelope {
                Envelope::Data(_) => {
                    self.turn = (input + 1) % self.inputs.len();
                    return Ok(Some(envelope));
                }
                // The end of time is no watermark to take a minimum of: the input is out of it.
                Envelope::Watermark(i64::MAX) | Envelope::End => self.progress.end(input),
                Envelope::Watermark(watermark) => self.progress.raise(input, watermark),
                Envelope::Idle => self.progress.set_idle(input, true),
                Envelope::Active => self.progress.set_idle(input, false),
                Envelope::Barrier(epoch) => {
                    if let Some(epoch) = self.align.arrive(input, epoch)? {
                        return Ok(Some(Envelope::Barrier(epoch)));
                    }
                    continue;
                }
            }
            push_marks(self.progress.advance(), &mut self.out);
            self.show(input, clock, metrics);
        }
    }

    /// Publishes what a mark of `input` has changed.
    fn show(&self, input: usize, clock: &dyn Clock, metrics: &ChainMetrics) {
        if let Some(shown) = metrics.inputs.get(input) {
            shown.watermark_ms.store(self.progress.watermark(input), Ordering::Relaxed);
            shown.idle.store(self.progress.is_idle(input), Ordering::Relaxed);
            shown.ended.store(self.progress.has_ended(input), Ordering::Relaxed);
        }
        metrics.holder.tell(self.progress.holder(), self.progress.forwarded(), clock.wall_ms());
    }

    /// What the first input that is not held and has something has, looked at in turn.
    fn receive(&mut self) -> Result<Option<(usize, Envelope)>, Error> {
        let count = self.inputs.len();
        for input in (0..count).map(|i| (self.turn + i) % count) {
            if self.align.holds(input) {
                continue;
            }
            if let Some(envelope) = self.inputs[input].receive()? {
                return Ok(Some((input, envelope)));
            }
        }
        Ok(None)
    }
}

/// The envelopes that an advance comes to.
pub(crate) fn push_marks(advance: Advance, out: &mut VecDeque<Envelope>) {
    match advance {
        Advance::Same => {}
        Advance::Watermark(watermark) => out.push_back(Envelope::Watermark(watermark)),
        Advance::Idle(watermark) => {
            out.extend(watermark.map(Envelope::Watermark));
            out.push_back(Envelope::Idle);
        }
        Advance::Active(watermark) => {
            out.push_back(Envelope::Active);
            out.extend(watermark.map(Envelope::Watermark));
        }
        Advance::End(watermark) => {
            out.extend(watermark.map(Envelope::Watermark));
            out.extend([Envelope::Watermark(i64::MAX), Envelope::End]);
        }
    }
}
