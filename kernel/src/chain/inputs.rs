//! Head of a chain that reads edges: data in turn, marks put together, barriers aligned.

use crate::align::Align;
use crate::edge::Receiver;
use crate::envelope::Envelope;
use crate::error::Error;
use crate::progress::{Advance, Progress};
use std::collections::VecDeque;

/// The incoming edges of a chain instance.
pub struct Inputs {
    receivers: Vec<Receiver>,
    align: Align,
    progress: Progress,
    /// The input to look at first: they take turns.
    turn: usize,
    /// Marks that one change led to; at most three.
    out: VecDeque<Envelope>,
}

impl Inputs {
    /// A head over these edges.
    pub fn new(receivers: Vec<Receiver>) -> Self {
        let count = receivers.len();
        Inputs { receivers, align: Align::new(count), progress: Progress::new(count), turn: 0, out: VecDeque::new() }
    }

    /// The next envelope; data only when `may_read`. `None` when nothing may be read now.
    pub fn next(&mut self, may_read: bool) -> Result<Option<Envelope>, Error> {
        loop {
            if let Some(envelope) = self.out.pop_front() {
                return Ok(Some(envelope));
            }
            if !may_read {
                return Ok(None);
            }
            let count = self.receivers.len();
            let order = (0..count).map(|i| (self.turn + i) % count);
            let mut open = order.filter(|input| !self.align.holds(*input));
            let Some((input, envelope)) = open.find_map(|input| Some((input, self.receivers[input].receive()?))) else {
                return Ok(None);
            };
            match envelope {
                Envelope::Data(_) => {
                    self.turn = (input + 1) % count;
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
        }
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
        Advance::End => out.extend([Envelope::Watermark(i64::MAX), Envelope::End]),
    }
}
