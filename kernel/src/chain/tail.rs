//! Way out of a chain: edges to other chains, or a sink with its flushes.

use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::io::{Flush, Pushed, Sink, SinkHandle};
use crate::route::Output;
use crate::route::gather::Gather;
use std::collections::VecDeque;
use weir_planner::id::{EpochId, TaskId};

/// Where a chain's envelopes go.
pub enum Tail {
    /// To other chains; more than one edge is a fan-out.
    Edges(Vec<Output>),
    /// Into a connector.
    Sink(Box<SinkTail>),
}

/// A sink, what it had no room for yet, and its open flush.
pub struct SinkTail {
    /// The task.
    pub task: TaskId,
    sink: Box<dyn Sink>,
    gather: Gather,
    /// Rows for the sink, at most what one envelope came to.
    held: VecDeque<Data>,
    /// A barrier that waits for the rows before it, or for the open flush (EPO-6).
    waiting: Option<EpochId>,
    flushing: Option<EpochId>,
}

/// What moved when a tail was asked to go on.
#[derive(Debug, Default)]
pub struct Moved {
    /// A flush has begun for this epoch: its cut can be reported.
    pub begun: Option<EpochId>,
    /// The flush of this epoch is done.
    pub flushed: Option<(EpochId, Vec<(TaskId, SinkHandle)>)>,
    /// Rows that the sink took.
    pub rows: u64,
}

impl Tail {
    /// A way out into a sink.
    pub fn sink(task: TaskId, sink: Box<dyn Sink>) -> Self {
        let held = VecDeque::new();
        Tail::Sink(Box::new(SinkTail { task, sink, gather: Gather::default(), held, waiting: None, flushing: None }))
    }

    /// Goes on with what was accepted.
    pub fn advance(&mut self) -> Result<Moved, Error> {
        match self {
            Tail::Edges(outputs) => {
                outputs.iter_mut().for_each(|output| {
                    output.flush();
                });
                Ok(Moved::default())
            }
            Tail::Sink(sink) => sink.advance(),
        }
    }

    /// Whether another envelope may be accepted.
    pub fn ready(&mut self) -> bool {
        match self {
            // Each one is flushed, also after one that is full.
            Tail::Edges(outputs) => outputs.iter_mut().map(Output::flush).filter(|flushed| !flushed).count() == 0,
            Tail::Sink(sink) => sink.held.is_empty() && sink.waiting.is_none(),
        }
    }

    /// Takes an envelope; call only when ready, and [`Tail::advance`] afterwards.
    pub fn accept(&mut self, envelope: Envelope) -> Result<(), Error> {
        match self {
            Tail::Edges(outputs) => match outputs.as_mut_slice() {
                [] => Ok(()),
                [only] => only.accept(envelope),
                several => several.iter_mut().try_for_each(|output| output.accept(envelope.clone())),
            },
            Tail::Sink(sink) => match envelope {
                Envelope::Data(data) => sink.put(data),
                Envelope::Barrier(epoch) => {
                    sink.waiting = Some(epoch);
                    sink.held.extend(sink.gather.rest()?);
                    Ok(())
                }
                Envelope::End => {
                    sink.held.extend(sink.gather.rest()?);
                    Ok(())
                }
                Envelope::Watermark(_) | Envelope::Idle | Envelope::Active => Ok(()),
            },
        }
    }

    /// Lets go of gathered rows: nothing more comes for now. True when there were any.
    pub fn settle(&mut self) -> Result<bool, Error> {
        match self {
            Tail::Edges(outputs) => {
                let mut any = false;
                for output in outputs {
                    any |= output.settle()?;
                }
                Ok(any)
            }
            Tail::Sink(sink) => {
                let rest = sink.gather.rest()?;
                let any = rest.is_some();
                sink.held.extend(rest);
                Ok(any)
            }
        }
    }

    /// Whether a flush is under way.
    pub fn flushing(&self) -> bool {
        match self {
            Tail::Edges(_) => false,
            Tail::Sink(sink) => sink.flushing.is_some(),
        }
    }

    /// An epoch is decided.
    pub fn decided(&mut self, epoch: EpochId) {
        if let Tail::Sink(sink) = self {
            sink.sink.decided(epoch);
        }
    }

    /// Closes a sink.
    pub fn close(&mut self) {
        if let Tail::Sink(sink) = self {
            sink.sink.close();
        }
    }
}

impl SinkTail {
    fn put(&mut self, data: Data) -> Result<(), Error> {
        self.gather.put(data)?;
        while let Some(data) = self.gather.pop() {
            self.held.push_back(data);
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Moved, Error> {
        let mut moved = Moved::default();
        if let Some(epoch) = self.flushing
            && let Flush::Done(handle) = self.sink.poll_flush()?
        {
            self.flushing = None;
            moved.flushed = Some((epoch, vec![(self.task.clone(), handle)]));
        }
        while let Some(data) = self.held.front() {
            match self.sink.push(&data.rows)? {
                Pushed::Full => return Ok(moved),
                Pushed::Taken => {
                    moved.rows += data.len() as u64;
                    self.held.pop_front();
                }
            }
        }
        // A flush that has just ended is reported before the next one begins.
        if self.flushing.is_none()
            && moved.flushed.is_none()
            && let Some(epoch) = self.waiting.take()
        {
            self.sink.begin_flush(epoch)?;
            self.flushing = Some(epoch);
            moved.begun = Some(epoch);
        }
        Ok(moved)
    }
}
