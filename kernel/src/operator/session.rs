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

use crate::envelope::{BATCH_ROWS, Data, Envelope, batch, broken};
use crate::error::Error;
use crate::eval::Evaluator;
use crate::io::Restored;
use crate::operator::grouping::{Grouping, key_columns};
use crate::operator::sift::sift;
use crate::operator::window::timing::Timing;
use crate::operator::window::{Budget, Seat};
use crate::operator::{Context, Operator};
use crate::state::sessions::{Sessions, Shape};
use arrow::array::{ArrayRef, BooleanArray, Int64Array, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::Schema as ArrowSchema;
use judge::Judge;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::{WindowWork, key_group_range};
use weir_planner::schema::Schema;
use weir_planner::spec::OnOverflow;
use weir_planner::window::Windows;

/// A session aggregate. Shape: any rows in; keys, `window_start`, `window_end`, aggregates out, and
/// the marker of updates where the plan says so, which is always false: a session is given once.
pub struct Session {
    id: OperatorId,
    work: WindowWork,
    timing: Option<Timing>,
    judge: Judge,
    grouping: Grouping,
    having: Option<Evaluator>,
    output: Arc<ArrowSchema>,
    sessions: Sessions,
    budget: Arc<Budget>,
    bytes_counted: usize,
    held: Option<Envelope>,
    /// The watermark to send on when what it fires has gone.
    firing: Option<i64>,
    /// Scratch.
    slots: Vec<u32>,
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
        let gap_ms = match &work.windows {
            Windows::Session { gap_ms } if *gap_ms > 0 => *gap_ms,
            Windows::Session { .. } | Windows::Aligned(_) => {
                return Err(Error::new(Class::Bug, format!("operator '{id}' is planned as sessions without a gap")));
            }
        };
        refuse(id, work)?;
        let column = |i: &usize| (input.0[*i].name.clone(), input.0[*i].ty.to_arrow());
        let mut sessions = Sessions::new(Shape {
            operator: id.clone(),
            subtask: seat.subtask,
            keys: key_columns(id, &work.keys, input)?.iter().map(column).collect(),
            aggregates: work.aggregates.clone(),
            gap_ms,
            max_parallelism: seat.max_parallelism,
            owned: key_group_range(seat.max_parallelism, seat.parallelism, seat.subtask),
        })?;
        sessions.restore(&restored.images)?;
        Ok(Session {
            id: id.clone(),
            timing: work.time.as_ref().map(|time| Timing::new(id, time, Some(input))).transpose()?,
            judge: Judge::new(id, gap_ms, work),
            grouping: Grouping::new(id, &work.keys, &work.aggregates, input)?,
            having: work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?,
            work: work.clone(),
            output: Arc::new(output.to_arrow()),
            sessions,
            budget: seat.budget,
            bytes_counted: 0,
            held: None,
            firing: None,
            slots: Vec::new(),
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = match &self.timing {
            Some(timing) => timing.timed(data, context)?,
            None => data,
        };
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

    /// Tells how much state there is, and fails the job when that is too much.
    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let bytes = self.sessions.bytes();
        context.metrics.state_rows.store(self.sessions.open() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        if self.budget.change(std::mem::replace(&mut self.bytes_counted, bytes), bytes) {
            return Ok(());
        }
        let message = format!(
            "operator '{}': the job's state is larger than state.max_bytes, {} bytes; raise it, or use a shorter gap or fewer keys",
            self.id,
            self.budget.bytes_max()
        );
        Err(Error::new(Class::User, message))
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
            let data = match &self.having {
                None => data,
                Some(having) => data.filter(&having.holds(&data, context.wall_ms)?)?,
            };
            if !data.is_empty() {
                return Ok(Envelope::Data(data));
            }
        }
    }

    fn rows(&self, slots: &[u32]) -> Result<Data, Error> {
        let results = self.sessions.results(slots)?;
        let times = Int64Array::from_iter_values(results.ends.iter().map(|end| end - 1));
        let mut columns = results.keys;
        for bounds in [results.starts, results.ends] {
            let array: ArrayRef = Arc::new(TimestampMillisecondArray::from(bounds));
            let field = self.output.fields().get(columns.len());
            let field = field.ok_or_else(|| Error::new(Class::Bug, format!("operator '{}' lacks its output columns", self.id)))?;
            columns.push(cast(&array, field.data_type()).map_err(broken)?);
        }
        columns.extend(results.aggregates);
        if self.work.marks_updates() {
            columns.push(Arc::new(BooleanArray::from(vec![false; slots.len()])));
        }
        Ok(Data { rows: batch(self.output.clone(), columns, slots.len())?, times, stamps: None })
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
                let watermark = self.timing.as_ref().map_or(watermark, |timing| timing.watermark(watermark));
                let through = self.judge.gone(watermark);
                self.sessions.mark_fired(through);
                self.firing = Some(through);
            }
            Envelope::Barrier(_) => {
                context.images.extend(self.sessions.freeze()?);
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

impl Drop for Session {
    fn drop(&mut self) {
        self.budget.change(self.bytes_counted, 0);
    }
}

#[cfg(test)]
mod tests;
