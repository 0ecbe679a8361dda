//! Rows held back by the clock, and given on together (STR-2).
//!
//! Rows are state: at a barrier those that are held are part of the cut, the barrier passes them, and
//! they belong to the output of the epoch in which they are given on. A watermark must not pass rows
//! that came before it, or a window behind would fire without them; so it waits until they have
//! gone. It may well come after rows that came after it: that only makes it late. The same holds for
//! idle and active marks. So each mark has the number of the row that would have come next, and goes
//! when all rows before that number have gone; no mark waits for more than the rows before it.
//!
//! The end lets everything go. A stop is no end: held rows stay in the state and go after the restart,
//! at the time that they would have gone at, or at once when that has passed.

use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::io::{FrozenImage, Restored};
use crate::operator::budget::{Holding, Seat};
use crate::operator::{Context, Operator};
use crate::state::held::Held;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::schema::Schema;
use weir_planner::spec::Buffer as Planned;

/// Rows that one buffer task holds at most: then it gives them on before their time.
pub const ROWS_MAX: usize = 1 << 20;
/// Bytes that one buffer task holds at most, but for one batch.
pub const BYTES_MAX: usize = 256 << 20;

/// When rows go.
enum Rule {
    /// So many together, or when the first has waited so long.
    Memory { rows: usize, timeout_ms: i64 },
    /// At multiples of so long.
    Tumbling { interval_ms: i64 },
    /// When none has come for so long.
    Session { gap_ms: i64 },
}

/// Marks that came between two rows.
#[derive(Clone, Copy, Default)]
struct Marks {
    watermark: Option<i64>,
    idle: Option<bool>,
}

/// A buffer. Shape: any rows in, the same out, in the order in which they came, with their times
/// and stamps; each batch is one span, burst or full load.
pub struct Buffer {
    rule: Rule,
    held: Held,
    /// Wall clock when the oldest and the newest of the held rows came.
    first_ms: i64,
    last_ms: i64,
    /// Rows with a number below this are to go.
    released: i64,
    /// Marks that wait for the rows before the number beside them.
    marks: VecDeque<(i64, Marks)>,
    /// Marks whose rows have gone; at most three and an end.
    out: VecDeque<Envelope>,
    due_ns: Option<u64>,
    holding: Holding,
    rows_max: usize,
    bytes_max: usize,
}

impl Buffer {
    /// Builds a buffer and puts its rows back.
    ///
    /// Errors: a buffer without a size or length; state of another shape.
    pub fn new(id: &OperatorId, work: &Planned, input: &Schema, seat: Seat, restored: &Restored) -> Result<Self, Error> {
        let some = |value: u64, what: &str| {
            let message = format!("operator '{id}': a buffer with {what} of 0 would hold rows for ever");
            if value == 0 { Err(Error::new(Class::User, message)) } else { Ok(i64::try_from(value).unwrap_or(i64::MAX)) }
        };
        let rule = match work {
            Planned::Memory(memory) => Rule::Memory {
                rows: usize::try_from(some(memory.capacity, "a capacity")?).unwrap_or(usize::MAX),
                timeout_ms: some(memory.timeout_ms, "a timeout")?,
            },
            Planned::Tumbling(tumbling) => Rule::Tumbling { interval_ms: some(tumbling.interval_ms, "an interval")? },
            Planned::Session(session) => Rule::Session { gap_ms: some(session.gap_ms, "a gap")? },
        };
        let owned = seat.owned();
        let mut held = Held::new(id, seat.subtask, owned, Arc::new(input.to_arrow()));
        let (first_ms, last_ms) = held.restore(restored)?.unwrap_or_default();
        Ok(Buffer {
            rule,
            released: held.first(),
            held,
            first_ms,
            last_ms,
            marks: VecDeque::new(),
            out: VecDeque::new(),
            // Restored rows are looked at in the first step.
            due_ns: Some(0),
            holding: Holding::new(id, seat.budget, "hold rows for a shorter time"),
            rows_max: ROWS_MAX,
            bytes_max: BYTES_MAX,
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        // Rows of a span that is over do not share a batch with what comes after it.
        self.look_at_clock(context);
        if self.held.next() == self.released {
            self.first_ms = context.wall_ms;
        }
        self.last_ms = context.wall_ms;
        self.held.put(data);
        if let Rule::Memory { rows, .. } = &self.rule {
            let full = *rows as i64;
            let waiting = self.held.next() - self.released;
            if waiting >= full {
                // What is left over came with this batch.
                self.released += waiting / full * full;
                self.first_ms = context.wall_ms;
            }
        }
        if self.waiting() >= self.rows_max || self.held.bytes() >= self.bytes_max {
            context.metrics.batches_early.fetch_add(1, Ordering::Relaxed);
            self.released = self.held.next();
        }
        self.set_due(context);
        self.account(context)
    }

    /// Rows that are not to go yet.
    fn waiting(&self) -> usize {
        (self.held.next() - self.released) as usize
    }

    /// Wall clock at which what waits is to go.
    fn due_ms(&self) -> i64 {
        match self.rule {
            Rule::Memory { timeout_ms, .. } => self.first_ms.saturating_add(timeout_ms),
            Rule::Tumbling { interval_ms } => (self.first_ms - self.first_ms.rem_euclid(interval_ms)).saturating_add(interval_ms),
            Rule::Session { gap_ms } => self.last_ms.saturating_add(gap_ms),
        }
    }

    /// Lets rows go whose time has come. A wall clock that was set back does not keep them: then
    /// nobody knows how long they have waited.
    fn look_at_clock(&mut self, context: &Context<'_>) {
        if self.waiting() > 0 && (context.wall_ms >= self.due_ms() || context.wall_ms < self.last_ms) {
            self.released = self.held.next();
        }
        self.set_due(context);
    }

    fn set_due(&mut self, context: &Context<'_>) {
        self.due_ns = (self.waiting() > 0).then(|| {
            let wait_ms = u64::try_from(self.due_ms().saturating_sub(context.wall_ms)).unwrap_or(0);
            context.now_ns.saturating_add(wait_ms.saturating_mul(1_000_000))
        });
    }

    fn mark(&mut self, more: Marks) {
        let at = self.held.next();
        match self.marks.back_mut().filter(|(number, _)| *number == at) {
            Some((_, marks)) => {
                marks.watermark = marks.watermark.max(more.watermark);
                marks.idle = more.idle.or(marks.idle);
            }
            None => self.marks.push_back((at, more)),
        }
    }

    /// Marks that wait for no row any more.
    fn marks_due(&mut self) {
        while let Some((_, marks)) = self.marks.pop_front_if(|(number, _)| *number <= self.held.first()) {
            let watermark = marks.watermark.map(Envelope::Watermark);
            match marks.idle {
                Some(true) => self.out.extend(watermark.into_iter().chain([Envelope::Idle])),
                Some(false) => self.out.extend([Envelope::Active].into_iter().chain(watermark)),
                None => self.out.extend(watermark),
            }
        }
    }

    /// The next batch that is to go.
    fn batch(&mut self, context: &mut Context<'_>) -> Result<Option<Data>, Error> {
        let going = (self.released - self.held.first()) as usize;
        let rows = match &self.rule {
            Rule::Memory { rows, .. } => going.min(*rows),
            Rule::Tumbling { .. } | Rule::Session { .. } => going,
        };
        let Some(data) = self.held.take(rows)? else { return Ok(None) };
        *context.changed = true;
        self.account(context)?;
        Ok(Some(data))
    }

    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.holding.tell(self.held.len(), self.held.bytes(), context.metrics)
    }
}

impl Operator for Buffer {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.add(data, context)?,
            Envelope::Watermark(watermark) => {
                if watermark == i64::MAX {
                    self.released = self.held.next();
                }
                self.mark(Marks { watermark: Some(watermark), idle: None });
            }
            Envelope::Idle => self.mark(Marks { watermark: None, idle: Some(true) }),
            Envelope::Active => self.mark(Marks { watermark: None, idle: Some(false) }),
            Envelope::Barrier(_) => {
                context.images.extend(self.held.freeze(self.first_ms, self.last_ms)?.map(FrozenImage::from));
                self.out.push_back(envelope);
            }
            Envelope::End => {
                // The end of time came before it and has let everything go.
                self.out.push_back(envelope);
            }
        }
        Ok(())
    }

    fn give(&mut self, context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        if self.due_ns.is_some_and(|due| due <= context.now_ns) {
            self.look_at_clock(context);
        }
        if let Some(envelope) = self.out.pop_front() {
            return Ok(Some(envelope));
        }
        if let Some(data) = self.batch(context)? {
            self.marks_due();
            return Ok(Some(Envelope::Data(data)));
        }
        self.marks_due();
        Ok(self.out.pop_front())
    }

    fn until_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

#[cfg(test)]
mod tests;
