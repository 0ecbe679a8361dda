//! Tumbling windows: one table a window, fired whole when the watermark passes its end (WIN-1).
//!
//! Which rows count follows from their stamps alone (EV-3): a row is late for its window iff
//! `window_end + allowed_lateness <= stamp`. A window is therefore kept until the watermark reaches
//! `window_end + allowed_lateness`; fired at its end, it would take or lose a row within the
//! lateness depending on how inputs interleave. What is sent on is the watermark less the lateness,
//! so that no output row ever lies behind it (EV-10).

mod pieces;

use crate::envelope::{BATCH_ROWS, Data, Envelope, batch, broken};
use crate::error::Error;
use crate::eval::{Evaluator, constant_times};
use crate::io::Restored;
use crate::operator::{Context, Operator};
use crate::state::layout::{Argument, Pane, Piece, Shape, Table};
use arrow::array::{ArrayRef, BooleanArray, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::Schema as ArrowSchema;
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

    /// Counts a task's change; false when the job is over its limit.
    fn change(&self, from: usize, to: usize) -> bool {
        if to >= from {
            let grown = (to - from) as u64;
            self.held.fetch_add(grown, Ordering::Relaxed) + grown <= self.bytes_max
        } else {
            self.held.fetch_sub((from - to) as u64, Ordering::Relaxed);
            true
        }
    }
}

/// Where a window task stands in its job.
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
    key_columns: Vec<usize>,
    arguments: Vec<(Option<Evaluator>, Option<Evaluator>)>,
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
        let unknown = |name: &String| Error::new(Class::Bug, format!("operator '{id}': its input has no key column '{name}'"));
        let key_columns = work.keys.iter().map(|name| input.index_of(name).ok_or_else(|| unknown(name))).collect::<Result<Vec<_>, _>>()?;
        if work.size_ms <= 0 {
            return Err(Error::new(Class::User, format!("operator '{id}': a window of {} ms has no length", work.size_ms)));
        }
        let mut arguments = Vec::new();
        for (_, aggregate) in &work.aggregates {
            let argument = aggregate.argument.as_ref().map(|argument| Evaluator::typed(id, argument, input)).transpose()?;
            let filter = aggregate.filter.as_ref().map(|filter| Evaluator::condition(id, filter, input)).transpose()?;
            arguments.push((argument, filter));
        }
        let mut table = Table::new(Shape {
            operator: id.clone(),
            subtask: seat.subtask,
            keys: key_columns.iter().map(|i| (input.0[*i].name.clone(), input.0[*i].ty.to_arrow())).collect(),
            aggregates: work.aggregates.clone(),
            size_ms: work.size_ms,
            max_parallelism: seat.max_parallelism,
            owned: key_group_range(seat.max_parallelism, seat.parallelism, seat.subtask),
        });
        table.restore(&restored.images)?;
        let having = work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?;
        Ok(Window {
            id: id.clone(),
            work: work.clone(),
            key_columns,
            arguments,
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

    fn start(&self, time_ms: i64) -> Result<i64, Error> {
        let start = tumble_start(time_ms, self.work.size_ms, self.work.offset_ms);
        let fits =
            |start: &i64| start.checked_add(self.work.size_ms).is_some_and(|end| end.checked_add(self.work.allowed_lateness_ms).is_some());
        start.filter(fits).ok_or_else(|| {
            Error::new(Class::User, format!("operator '{}': the window of event time {time_ms} ms is out of range", self.id))
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = self.on_time(data, context)?;
        let times = data.times.values();
        let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else {
            return Ok(());
        };
        let (first, last) = (self.start(*least)?, self.start(*greatest)?);
        let piece = self.piece(&data, context.wall_ms)?;
        if first == last {
            self.put(first, &piece, context)?;
        } else {
            self.splitter.split(times, self.work.size_ms, self.work.offset_ms);
            for (start, part) in self.splitter.pieces(&piece)? {
                self.put(start, &part, context)?;
            }
        }
        self.account(context)
    }

    /// The rows that are not late for their window and whose window is not gone; counts the others.
    fn on_time(&self, data: Data, context: &mut Context<'_>) -> Result<Data, Error> {
        let marks = self.table.marks();
        let gone = marks.fired_ms.max(marks.evicted_ms);
        let Some(least) = data.times.values().iter().min() else { return Ok(data) };
        if data.stamps.is_none() && self.start(*least)? + self.work.size_ms > gone {
            return Ok(data);
        }
        let (mut late, mut evicted) = (0, 0);
        let mut keep = Vec::with_capacity(data.len());
        for (row, time) in data.times.values().iter().enumerate() {
            let end = self.start(*time)? + self.work.size_ms;
            let stamp = data.stamps.as_ref().map_or(i64::MIN, |stamps| stamps.value(row));
            let is_late = end + self.work.allowed_lateness_ms <= stamp || end <= marks.fired_ms;
            let is_evicted = !is_late && end <= marks.evicted_ms;
            late += u64::from(is_late);
            evicted += u64::from(is_evicted);
            keep.push(!is_late && !is_evicted);
        }
        context.metrics.rows_late.fetch_add(late, Ordering::Relaxed);
        context.metrics.rows_evicted.fetch_add(evicted, Ordering::Relaxed);
        if late + evicted == 0 { Ok(data) } else { data.filter(&BooleanArray::from(keep)) }
    }

    fn piece(&self, data: &Data, wall_ms: i64) -> Result<Piece, Error> {
        let argument = |(values, filter): &(Option<Evaluator>, Option<Evaluator>)| {
            Ok(Argument {
                values: values.as_ref().map(|values| values.evaluate(data, wall_ms)).transpose()?,
                mask: filter.as_ref().map(|filter| filter.holds(data, wall_ms)).transpose()?,
            })
        };
        Ok(Piece {
            rows: data.len(),
            keys: self.key_columns.iter().map(|i| data.rows.column(*i).clone()).collect(),
            arguments: self.arguments.iter().map(argument).collect::<Result<_, Error>>()?,
        })
    }

    fn put(&mut self, start: i64, piece: &Piece, context: &mut Context<'_>) -> Result<(), Error> {
        let end = start + self.work.size_ms;
        if end <= self.table.marks().evicted_ms {
            // An eviction within this very batch.
            context.metrics.rows_evicted.fetch_add(piece.rows as u64, Ordering::Relaxed);
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
                    self.table.mark_evicted(oldest + self.work.size_ms);
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
        let through = if sent == i64::MAX { sent } else { tumble_start(sent, self.work.size_ms, self.work.offset_ms).unwrap_or(i64::MIN) };
        self.table.mark_fired(through);
        self.firing = Some(Firing { watermark: sent, through, pane: None });
    }

    /// The next rows of windows that fire, then the watermark.
    fn fire(&mut self, firing: &mut Firing, context: &mut Context<'_>) -> Result<Envelope, Error> {
        loop {
            let Some((start, pane, next)) = &mut firing.pane else {
                let due = self.table.oldest().is_some_and(|start| start + self.work.size_ms <= firing.through);
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
        let end = start + self.work.size_ms;
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
}

impl Drop for Window {
    fn drop(&mut self) {
        self.budget.change(self.bytes_counted, 0);
    }
}
