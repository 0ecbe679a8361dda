//! Tumbling windows: one table a window, fired whole when the watermark passes its end (WIN-1).
//!
//! Which rows count follows from their stamps alone (EV-3): a row is late for its window iff
//! `window_end + allowed_lateness <= stamp`. A window is therefore kept until the watermark reaches
//! `window_end + allowed_lateness`; fired at its end, it would take or lose a row within the
//! lateness depending on how inputs interleave. What is sent on is the watermark less the lateness,
//! so that no output row ever lies behind it (EV-10).

pub(crate) mod judge;
mod partials;
pub(crate) mod pieces;

use crate::accumulate::piece::Piece;
use crate::envelope::{BATCH_ROWS, Data, Envelope, batch, broken};
use crate::error::Error;
use crate::eval::{Evaluator, constant_times};
use crate::io::Restored;
use crate::operator::grouping::{Grouping, key_columns};
use crate::operator::sift::sift;
use crate::operator::{Context, Operator};
use crate::state::layout::{Pane, Shape, Table};
use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::Schema as ArrowSchema;
use judge::Judge;
use partials::Partials;
use pieces::Splitter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::{WindowWork, key_group_range};
use weir_planner::schema::Schema;
use weir_planner::spec::OnOverflow;
use weir_planner::time::tumble_start;

/// Live state bytes of a job on this agent, all tasks together, and their limit (WIN-5).
#[derive(Debug)]
pub struct Budget {
    held: AtomicU64,
    bytes_max: u64,
}

impl Budget {
    /// A limit; `None` is none.
    pub fn new(bytes_max: Option<u64>) -> Self {
        Budget { held: AtomicU64::new(0), bytes_max: bytes_max.unwrap_or(u64::MAX) }
    }

    /// The limit.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts a task's change; false when the job is over its limit.
    pub(crate) fn change(&self, from: usize, to: usize) -> bool {
        if to >= from {
            let grown = (to - from) as u64;
            self.held.fetch_add(grown, Ordering::Relaxed) + grown <= self.bytes_max
        } else {
            self.held.fetch_sub((from - to) as u64, Ordering::Relaxed);
            true
        }
    }
}

/// Where a task with state stands in its job.
pub struct Seat {
    /// Subtask.
    pub subtask: u32,
    /// Subtasks of the operator.
    pub parallelism: u32,
    /// Key groups of the job.
    pub max_parallelism: u32,
    /// Shared by the job's tasks.
    pub budget: Arc<Budget>,
}

/// What comes in.
enum Input {
    /// Rows: this is the first and only stage.
    Rows(Grouping),
    /// States of groups, which the first stage made (WIN-7).
    Partials(Partials),
}

struct Firing {
    /// The watermark to send on afterwards.
    watermark: i64,
    /// Windows ending at or before this fire.
    through: i64,
    pane: Option<(i64, Pane, u32)>,
}

/// A tumbling aggregate. Shape: any rows in; keys, `window_start`, `window_end`, aggregates out.
pub struct Window {
    id: OperatorId,
    work: WindowWork,
    size_ms: i64,
    offset_ms: i64,
    judge: Judge,
    input: Input,
    having: Option<Evaluator>,
    output: Arc<ArrowSchema>,
    table: Table,
    splitter: Splitter,
    budget: Arc<Budget>,
    bytes_counted: usize,
    held: Option<Envelope>,
    firing: Option<Firing>,
}

impl Window {
    /// Builds a window and puts its state back.
    ///
    /// Errors: expressions or types that do not fit, state of another shape.
    pub fn new(
        id: &OperatorId,
        work: &WindowWork,
        input: &Schema,
        output: &Schema,
        seat: Seat,
        restored: &Restored,
    ) -> Result<Self, Error> {
        let column = |i: &usize| (input.0[*i].name.clone(), input.0[*i].ty.to_arrow());
        let keys = key_columns(id, &work.keys, input)?.iter().map(column).collect();
        let judge = Judge::new(id, work)?;
        let (size_ms, offset_ms) = judge::tumbling(id, work)?;
        let input = if work.partials {
            Input::Partials(Partials::new(id, work, input)?)
        } else {
            Input::Rows(Grouping::new(id, &work.keys, &work.aggregates, input)?)
        };
        let mut table = Table::new(Shape {
            operator: id.clone(),
            subtask: seat.subtask,
            keys,
            aggregates: work.aggregates.clone(),
            size_ms,
            max_parallelism: seat.max_parallelism,
            owned: key_group_range(seat.max_parallelism, seat.parallelism, seat.subtask),
        });
        table.restore(&restored.images)?;
        let having = work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?;
        Ok(Window {
            id: id.clone(),
            work: work.clone(),
            size_ms,
            offset_ms,
            judge,
            input,
            having,
            output: Arc::new(output.to_arrow()),
            table,
            splitter: Splitter::default(),
            budget: seat.budget,
            bytes_counted: 0,
            held: None,
            firing: None,
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = match &self.input {
            Input::Rows(_) => self.judge.on_time(data, None, self.table.marks(), context)?,
            Input::Partials(partials) => {
                let (data, behind) = partials.timed(data);
                self.judge.on_time(data, Some(&behind), self.table.marks(), context)?
            }
        };
        let parts = match &self.input {
            Input::Rows(grouping) => sift(self.work.on_error, data, context, &|data, wall_ms| grouping.piece(data, wall_ms))?,
            Input::Partials(partials) => {
                let piece = partials.piece(&data);
                vec![(data, piece)]
            }
        };
        for (data, piece) in parts {
            let Some((first, last)) = self.judge.span(&data)? else { continue };
            if first == last {
                self.put(first, &piece, context)?;
                continue;
            }
            self.splitter.split(data.times.values(), self.size_ms, self.offset_ms);
            for (start, part) in self.splitter.pieces(&piece)? {
                self.put(start, &part, context)?;
            }
        }
        self.account(context)
    }

    fn put(&mut self, start: i64, piece: &Piece, context: &mut Context<'_>) -> Result<(), Error> {
        let end = start + self.size_ms;
        if end <= self.table.marks().evicted_ms {
            // An eviction within this very batch.
            context.metrics.rows_evicted.fetch_add(piece.rows_behind(), Ordering::Relaxed);
            return Ok(());
        }
        self.table.add(start, piece).map_err(|e| Error { message: format!("operator '{}': {}", self.id, e.message), ..e })?;
        let entries_max = usize::try_from(self.work.keys_max).unwrap_or(usize::MAX);
        while entries_max > 0 && self.table.entries() > entries_max {
            match self.work.on_overflow {
                OnOverflow::Fail => {
                    let message = format!(
                        "operator '{}': more than {entries_max} keys in open windows; raise max_buffered_keys or set on_overflow to evict",
                        self.id
                    );
                    return Err(Error::new(Class::User, message));
                }
                OnOverflow::Evict => {
                    let Some((oldest, pane)) = self.table.pop() else { break };
                    self.table.mark_evicted(oldest + self.size_ms);
                    context.metrics.rows_evicted.fetch_add(pane.len() as u64, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Tells how much state there is, and fails the job when that is too much.
    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let bytes = self.table.bytes();
        context.metrics.state_rows.store(self.table.entries() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        let within = self.budget.change(std::mem::replace(&mut self.bytes_counted, bytes), bytes);
        if within {
            return Ok(());
        }
        let message = format!(
            "operator '{}': the job's state is larger than state.max_bytes, {} bytes; raise it, or use shorter windows or fewer keys",
            self.id, self.budget.bytes_max
        );
        Err(Error::new(Class::User, message))
    }

    fn begin_firing(&mut self, watermark: i64) {
        let sent = if watermark == i64::MAX { watermark } else { watermark.saturating_sub(self.work.allowed_lateness_ms) };
        let through = if sent == i64::MAX { sent } else { tumble_start(sent, self.size_ms, self.offset_ms).unwrap_or(i64::MIN) };
        self.table.mark_fired(through);
        self.firing = Some(Firing { watermark: sent, through, pane: None });
    }

    /// The next rows of windows that fire, then the watermark.
    fn fire(&mut self, firing: &mut Firing, context: &mut Context<'_>) -> Result<Envelope, Error> {
        loop {
            let Some((start, pane, next)) = &mut firing.pane else {
                let due = self.table.oldest().is_some_and(|start| start + self.size_ms <= firing.through);
                let Some((start, pane)) = due.then(|| self.table.pop()).flatten() else {
                    self.account(context)?;
                    return Ok(Envelope::Watermark(firing.watermark));
                };
                *context.changed = true;
                firing.pane = Some((start, pane, 0));
                continue;
            };
            let until = (*next as usize + BATCH_ROWS).min(pane.len()) as u32;
            let data = self.rows(*start, pane, *next..until)?;
            *next = until;
            if until as usize == pane.len() {
                firing.pane = None;
            }
            let data = match &self.having {
                None => data,
                Some(having) => data.filter(&having.holds(&data, context.wall_ms)?)?,
            };
            if !data.is_empty() {
                return Ok(Envelope::Data(data));
            }
        }
    }

    fn rows(&self, start: i64, pane: &Pane, groups: std::ops::Range<u32>) -> Result<Data, Error> {
        let count = groups.len();
        let end = start + self.size_ms;
        let (mut columns, aggregates) = self.table.results(pane, groups)?;
        let bounds = columns.len()..columns.len() + 2;
        for (i, bound) in bounds.zip([start, end]) {
            let array: ArrayRef = Arc::new(TimestampMillisecondArray::from_value(bound, count));
            let field = self
                .output
                .fields()
                .get(i)
                .ok_or_else(|| Error::new(Class::Bug, format!("operator '{}' lacks its output columns", self.id)))?;
            columns.push(cast(&array, field.data_type()).map_err(broken)?);
        }
        columns.extend(aggregates);
        Ok(Data { rows: batch(self.output.clone(), columns, count)?, times: constant_times(end - 1, count), stamps: None })
    }
}

impl Operator for Window {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.add(data, context)?,
            Envelope::Watermark(watermark) => self.begin_firing(watermark),
            Envelope::Barrier(_) => {
                context.images.extend(self.table.freeze()?);
                self.account(context)?;
                self.held = Some(envelope);
            }
            Envelope::Idle | Envelope::Active | Envelope::End => self.held = Some(envelope),
        }
        Ok(())
    }

    fn give(&mut self, context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        let Some(mut firing) = self.firing.take() else {
            return Ok(self.held.take());
        };
        let envelope = self.fire(&mut firing, context)?;
        if matches!(envelope, Envelope::Data(_)) {
            self.firing = Some(firing);
        }
        Ok(Some(envelope))
    }

    fn rows_of(&self, data: &Data) -> u64 {
        match &self.input {
            Input::Rows(_) => data.len() as u64,
            Input::Partials(partials) => partials.rows_of(data),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.budget.change(self.bytes_counted, 0);
    }
}
