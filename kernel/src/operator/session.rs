//! Session windows: rows of a key with less than the gap between neighbours (WIN-1).
//!
//! When may a session be given? What it holds follows from which rows count, and that from their
//! stamps alone (EV-3): a row at `t` is late iff `t + gap + lateness <= stamp`, its own window being
//! the session that it would be alone. A row that is to come has a stamp of at least the watermark
//! `w`, so where it counts, `t > w - gap - lateness`. A session that ends at `e` is touched by rows
//! before `e` only; so from `w >= e + gap + lateness - 1` on no row that counts touches it, and not
//! earlier: one at `e - 1` might still come and make it longer. Given at its end it would have
//! that row or not by how inputs interleave.
//!
//! So sessions fire that end at or before `m = w - gap - lateness + 1`, and rows that count are not
//! before `m`. A session that is left, or begun later, ends after `m`, and its row has the time of its end less 1:
//! `m` is the watermark that is sent on (EV-10), and by `m` the state says what is behind.
//! See decision 010.

mod judge;

use crate::envelope::{BATCH_ROWS, Data, Envelope};
use crate::error::Error;
use crate::eval::Evaluator;
use crate::io::{FrozenImage, Restored};
use crate::operator::budget::{Holding, Seat};
use crate::operator::grouping::{Grouping, key_columns};
use crate::operator::results::{WindowRows, having};
use crate::operator::sift::sift;
use crate::operator::window::timing::Timing;
use crate::operator::{Context, Operator};
use crate::state::sessions::{Sessions, Shape};
use arrow::array::Int64Array;
use arrow::datatypes::{DataType, Schema as ArrowSchema};
use judge::Judge;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::schema::Schema;
use weir_planner::spec::OnOverflow;
use weir_planner::window::Windows;

/// A session aggregate. Shape: any rows in; keys, `window_start`, `window_end`, aggregates out, and
/// the marker of updates where the plan says so, which is always false: a session is given once.
pub struct Session {
    id: OperatorId,
    work: WindowWork,
    timing: Timing,
    judge: Judge,
    grouping: Grouping,
    having: Option<Evaluator>,
    output: Arc<ArrowSchema>,
    sessions: Sessions,
    holding: Holding,
    held: Option<Envelope>,
    /// The watermark to send on when what it fires has gone.
    firing: Option<i64>,
    /// Scratch.
    slots: Vec<u32>,
}

/// No sessions yet: of these keys, and the number of key groups with those that are owned.
pub(crate) fn sessions(
    id: &OperatorId,
    work: &WindowWork,
    keys: Vec<(String, DataType)>,
    subtask: u32,
    (max_parallelism, owned): (u32, Range<u32>),
) -> Result<Sessions, Error> {
    let gap_ms = match &work.windows {
        Windows::Session { gap_ms } if *gap_ms > 0 => *gap_ms,
        Windows::Session { .. } | Windows::Aligned(_) => {
            return Err(Error::new(Class::Bug, format!("operator '{id}' is planned as sessions without a gap")));
        }
    };
    Sessions::new(Shape { operator: id.clone(), subtask, keys, aggregates: work.aggregates.clone(), gap_ms, max_parallelism, owned })
}

impl Session {
    /// Builds the operator and puts its state back.
    ///
    /// Errors: expressions or types that do not fit, state of another shape; class `User` for what
    /// sessions do not do.
    pub fn new(
        id: &OperatorId,
        work: &WindowWork,
        input: &Schema,
        output: &Schema,
        seat: Seat,
        restored: &Restored,
    ) -> Result<Self, Error> {
        refuse(id, work)?;
        let column = |i: &usize| (input.0[*i].name.clone(), input.0[*i].ty.to_arrow());
        let keys = key_columns(id, &work.keys, input)?.iter().map(column).collect();
        let mut sessions = sessions(id, work, keys, seat.subtask, (seat.max_parallelism, seat.owned()))?;
        sessions.restore(restored)?;
        Ok(Session {
            id: id.clone(),
            timing: Timing::new(id, work.time.as_ref(), Some(input))?,
            judge: Judge::new(id, sessions.gap_ms(), work),
            grouping: Grouping::new(id, &work.keys, &work.aggregates, input)?,
            having: work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?,
            work: work.clone(),
            output: Arc::new(output.to_arrow()),
            sessions,
            holding: Holding::new(id, seat.budget, "use a shorter gap or fewer keys"),
            held: None,
            firing: None,
            slots: Vec::new(),
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = self.timing.timed(data, context)?;
        let data = self.judge.on_time(data, self.sessions.marks(), context)?;
        let grouping = &self.grouping;
        for (data, piece) in sift(self.work.on_error, data, context, &|data, wall_ms| grouping.piece(data, wall_ms))? {
            self.sessions
                .add(data.times.values(), &piece)
                .map_err(|e| Error { message: format!("operator '{}': {}", self.id, e.message), ..e })?;
        }
        self.hold_to_bound(context)?;
        self.account(context)
    }

    /// Keeps no more sessions than the plan allows, after each batch.
    fn hold_to_bound(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let open_max = usize::try_from(self.work.keys_max).unwrap_or(usize::MAX);
        if open_max == 0 || self.sessions.open() <= open_max {
            return Ok(());
        }
        match self.work.on_overflow {
            OnOverflow::Fail => {
                let message = format!(
                    "operator '{}': more than {open_max} open sessions; raise max_buffered_keys or set on_overflow to evict",
                    self.id
                );
                Err(Error::new(Class::User, message))
            }
            OnOverflow::Evict => {
                let evicted = self.sessions.evict(open_max)?;
                context.metrics.rows_evicted.fetch_add(evicted as u64, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.holding.tell(self.sessions.open(), self.sessions.bytes(), context.metrics)
    }

    /// The next rows of sessions that fire, then the watermark.
    fn fire(&mut self, watermark: i64, context: &mut Context<'_>) -> Result<Envelope, Error> {
        loop {
            let mut slots = std::mem::take(&mut self.slots);
            self.sessions.fired(BATCH_ROWS, &mut slots);
            let data = if slots.is_empty() { None } else { Some(self.rows(&slots)?) };
            self.sessions.release(&slots)?;
            self.slots = slots;
            let Some(data) = data else {
                self.sessions.shrink()?;
                self.account(context)?;
                return Ok(Envelope::Watermark(watermark));
            };
            *context.changed = true;
            let data = having(self.having.as_ref(), data, context.wall_ms)?;
            if !data.is_empty() {
                return Ok(Envelope::Data(data));
            }
        }
    }

    fn rows(&self, slots: &[u32]) -> Result<Data, Error> {
        let results = self.sessions.results(slots)?;
        let rows = WindowRows {
            keys: results.keys,
            starts: Int64Array::from(results.starts),
            ends: Int64Array::from(results.ends),
            aggregates: results.aggregates,
            mark: self.work.marks_updates().then_some(false),
        };
        rows.data(&self.id, &self.output)
    }
}

/// What sessions do not do; the planner refuses it before.
fn refuse(id: &OperatorId, work: &WindowWork) -> Result<(), Error> {
    let refused = |what: &str, way: &str| Err(Error::new(Class::User, format!("operator '{id}': {what}; {way}")));
    if work.early_ms.is_some() {
        return refused(
            "a session cannot give what it has so far, since it has another end with each row",
            "leave trigger: processing_time out, or use tumbling, sliding or cumulate windows",
        );
    }
    if work.empty_within_ms.is_some() {
        return refused("there are no empty sessions", "leave emit_empty out, or use tumbling windows");
    }
    if work.partials {
        return Err(Error::new(Class::Bug, format!("operator '{id}': sessions are planned in two stages")));
    }
    Ok(())
}

impl Operator for Session {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.add(data, context)?,
            Envelope::Watermark(watermark) => {
                let through = self.judge.gone(self.timing.watermark(watermark));
                self.sessions.mark_fired(through);
                self.firing = Some(through);
            }
            Envelope::Barrier(_) => {
                context.images.extend(self.sessions.freeze()?.map(FrozenImage::from));
                self.account(context)?;
                self.held = Some(envelope);
            }
            Envelope::Idle | Envelope::Active | Envelope::End => self.held = Some(envelope),
        }
        Ok(())
    }

    fn give(&mut self, context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        let Some(watermark) = self.firing.take() else {
            return Ok(self.held.take());
        };
        let envelope = self.fire(watermark, context)?;
        if matches!(envelope, Envelope::Data(_)) {
            self.firing = Some(watermark);
        }
        Ok(Some(envelope))
    }
}

#[cfg(test)]
mod tests;
