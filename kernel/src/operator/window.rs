//! Windows cut out of time: tables by pane, fired whole when the watermark passes a window's end (WIN-1).
//!
//! Which rows count follows from their stamps alone (EV-3): a row is late for a window iff
//! `window_end + allowed_lateness <= stamp`. A window is therefore kept until the watermark reaches
//! `window_end + allowed_lateness`; fired at its end, it would take or lose a row within the
//! lateness depending on how inputs interleave. What is sent on is the watermark less the lateness,
//! so that no output row ever lies behind it (EV-10).
//!
//! Where late rows revise (WIN-4) a window fires at its end, stays until the end of its lateness, and
//! a row of that time gives its key's row again. What is sent on is the watermark as it came.

pub(crate) mod judge;
mod partials;
pub(crate) mod pieces;
pub(crate) mod places;
pub(crate) mod timing;

use crate::accumulate::piece::{Argument, Piece};
use crate::envelope::{BATCH_ROWS, Data, Envelope};
use crate::error::Error;
use crate::eval::{Evaluator, constant_times};
use crate::io::Restored;
use crate::operator::budget::{Holding, Seat};
use crate::operator::grouping::{Grouping, key_columns};
use crate::operator::results::{WindowRows, having};
use crate::operator::sift::sift;
use crate::operator::{Context, Operator};
use crate::state::cells::Cells;
use crate::state::layout::Shape;
use crate::state::panes::{Table, Touched};
use arrow::datatypes::{DataType, Schema as ArrowSchema};
use judge::{Judge, aligned};
use partials::Partials;
use pieces::Splitter;
use places::Places;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use timing::Timing;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::schema::Schema;
use weir_planner::spec::{LatePolicy, OnOverflow};
use weir_planner::window::{Aligned, Pane};

/// What comes in.
enum Input {
    /// Rows: this is the first and only stage.
    Rows(Grouping),
    /// States of groups, which the first stage made (WIN-7).
    Partials(Partials),
}

impl Input {
    fn partials(&self) -> Option<&Partials> {
        match self {
            Input::Rows(_) => None,
            Input::Partials(partials) => Some(partials),
        }
    }
}

/// Windows that are being given.
struct Giving {
    what: What,
    /// The one that is under way.
    open: Option<Open>,
}

enum What {
    /// Those that a watermark makes complete; then it is sent on.
    Complete {
        /// The watermark to send on.
        sent: i64,
        /// Windows ending at or before this fire.
        through: i64,
        /// Windows ending at or before this take no more rows afterwards.
        retired: i64,
    },
    /// Touched groups of windows with these ends, as they stand.
    Updates { ends: VecDeque<i64>, touched: Touched },
}

struct Open {
    end_ms: i64,
    cells: Cells,
    /// The first group that has not been given.
    next: u32,
    update: bool,
}

/// An aggregate over windows. Shape: any rows in; keys, `window_start`, `window_end`, aggregates out,
/// and whether the row is an update where there are such.
pub struct Window {
    id: OperatorId,
    work: WindowWork,
    windows: Aligned,
    judge: Judge,
    timing: Timing,
    input: Input,
    having: Option<Evaluator>,
    output: Arc<ArrowSchema>,
    table: Table,
    splitter: Splitter,
    holding: Holding,
    /// Fired windows stay and are revised.
    revises: bool,
    /// Groups of fired windows that the last rows revised.
    revised: Touched,
    /// Groups that changed since open windows were given early.
    changed: Touched,
    /// When they are given next.
    early_due_ns: Option<u64>,
    held: Option<Envelope>,
    giving: Option<Giving>,
}

/// The empty state of a window: its keys, and the number of key groups with those that it owns.
pub(crate) fn table(
    id: &OperatorId,
    work: &WindowWork,
    keys: Vec<(String, DataType)>,
    subtask: u32,
    (max_parallelism, owned): (u32, Range<u32>),
) -> Result<Table, Error> {
    Table::new(Shape {
        operator: id.clone(),
        subtask,
        windows: aligned(id, work)?,
        revises: work.late == LatePolicy::Update,
        keys,
        aggregates: work.kept(),
        empty_within_ms: work.empty_within_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        max_parallelism,
        owned,
    })
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
        let timing = Timing::new(id, work.time.as_ref(), (!work.partials).then_some(input))?;
        let input = if work.partials {
            Input::Partials(Partials::new(id, work, input)?)
        } else {
            Input::Rows(Grouping::new(id, &work.keys, &work.kept(), input)?)
        };
        let revises = work.late == LatePolicy::Update;
        let mut table = table(id, work, keys, seat.subtask, (seat.max_parallelism, seat.owned()))?;
        table.restore(restored)?;
        let having = work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?;
        Ok(Window {
            id: id.clone(),
            work: work.clone(),
            windows: aligned(id, work)?,
            judge: Judge::new(id, work)?,
            timing,
            input,
            having,
            output: Arc::new(output.to_arrow()),
            // What was given early before a restart is not known.
            changed: if work.early_ms.is_some() { table.all() } else { Touched::new() },
            table,
            splitter: Splitter::default(),
            holding: Holding::new(id, seat.budget, "use shorter windows or fewer keys"),
            revises,
            revised: Touched::new(),
            early_due_ns: None,
            held: None,
            giving: None,
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = self.timing.timed(data, context)?;
        let data = self.judge.on_time(data, self.input.partials(), self.table.marks(), context)?;
        let parts = match &self.input {
            Input::Rows(grouping) => sift(self.work.on_error, data, context, &|data, wall_ms| grouping.piece(data, wall_ms))?,
            Input::Partials(partials) => {
                let piece = partials.piece(&data);
                vec![(data, piece)]
            }
        };
        for (data, mut piece) in parts {
            if data.is_empty() {
                continue;
            }
            // The time of a key's last row, by which it gets empty windows, is the last aggregate. A row whose
            // windows were over by its stamp may come before or after they fired: so its time never counts.
            if self.revises
                && self.work.empty_within_ms.is_some()
                && let Some(Argument::Rows { mask, .. }) = piece.arguments.last_mut()
            {
                *mask = self.judge.punctual(&data)?;
            }
            let gone_ms = self.table.marks().gone_ms();
            let places = Places::of(&data, self.input.partials());
            if let Some(pane) = self.judge.one_pane(&places, gone_ms)? {
                self.put(pane, &piece, context)?;
                continue;
            }
            self.splitter.split(&self.judge, &places, gone_ms)?;
            for (pane, part) in self.splitter.pieces(&piece)? {
                self.put(pane, &part, context)?;
            }
        }
        if !self.revised.is_empty() {
            let marks = self.table.marks();
            let touched = std::mem::take(&mut self.revised);
            let ends = self.table.ends(&touched, marks.gone_ms(), marks.fired_ms).into_iter().collect();
            self.giving = Some(Giving { what: What::Updates { ends, touched }, open: None });
        }
        self.account(context)
    }

    fn put(&mut self, pane: Pane, piece: &Piece, context: &mut Context<'_>) -> Result<(), Error> {
        let marks = self.table.marks();
        let mut pane = pane;
        if pane.first_end_ms <= marks.evicted_ms {
            // An eviction within this very batch.
            context.metrics.rows_evicted.fetch_add(piece.rows_behind(), Ordering::Relaxed);
            let Some(first_end_ms) = pane.end_after(marks.evicted_ms) else { return Ok(()) };
            pane = Pane { first_end_ms, ..pane };
        }
        let id = self.table.add(&pane, piece).map_err(|e| Error { message: format!("operator '{}': {}", self.id, e.message), ..e })?;
        if self.revises && pane.first_end_ms <= marks.fired_ms {
            self.table.note(id, &mut self.revised);
        }
        if self.work.early_ms.is_some() && pane.last_end_ms > marks.fired_ms {
            self.table.note(id, &mut self.changed);
        }
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
                    let Some(lost) = self.table.evict() else { break };
                    context.metrics.rows_evicted.fetch_add(lost as u64, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.holding.tell(self.table.entries(), self.table.bytes(), context.metrics)
    }

    /// The watermark makes windows complete.
    fn complete(&mut self, watermark: i64) {
        let watermark = self.timing.watermark(watermark);
        let less_lateness = if watermark == i64::MAX { watermark } else { watermark.saturating_sub(self.work.allowed_lateness_ms) };
        let sent = if self.revises { watermark } else { less_lateness };
        // The marks stand at ends of windows, so that they move only when a window goes.
        let through = |ms: i64| if ms == i64::MAX { ms } else { self.windows.end_through(ms).unwrap_or(i64::MIN) };
        let (through, retired) = (through(sent), through(less_lateness));
        self.table.mark_fired(through);
        self.giving = Some(Giving { what: What::Complete { sent, through, retired }, open: None });
    }

    /// Gives open windows early when that is due; sets the moment when something has changed.
    fn look_early(&mut self, now_ns: u64) {
        let Some(early_ms) = self.work.early_ms else { return };
        if self.early_due_ns.is_some_and(|due| due <= now_ns) {
            self.early_due_ns = None;
            let touched = std::mem::take(&mut self.changed);
            let marks = self.table.marks();
            let ends = self.table.ends(&touched, marks.fired_ms.max(marks.gone_ms()), i64::MAX).into_iter().collect();
            self.giving = Some(Giving { what: What::Updates { ends, touched }, open: None });
        } else if self.early_due_ns.is_none() && !self.changed.is_empty() {
            self.early_due_ns = Some(now_ns.saturating_add(early_ms.saturating_mul(1_000_000)));
        }
    }

    /// The next rows of windows, then the watermark that made them complete.
    fn go_on(&mut self, giving: &mut Giving, context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        loop {
            let Some(open) = &mut giving.open else {
                let next = match &mut giving.what {
                    What::Complete { through, .. } => self.table.fire(*through)?.map(|(end_ms, cells)| (end_ms, cells, false)),
                    What::Updates { ends, touched } => match ends.pop_front() {
                        Some(end_ms) => Some((end_ms, self.table.some(end_ms, touched)?, true)),
                        None => None,
                    },
                };
                let Some((end_ms, cells, update)) = next else {
                    let What::Complete { sent, retired, .. } = &giving.what else { return Ok(None) };
                    self.table.retire(*retired);
                    self.account(context)?;
                    return Ok(Some(Envelope::Watermark(*sent)));
                };
                *context.changed = true;
                giving.open = Some(Open { end_ms, cells, next: 0, update });
                continue;
            };
            let until = (open.next as usize + BATCH_ROWS).min(open.cells.len()) as u32;
            let data = self.rows(open, until)?;
            open.next = until;
            if until as usize == open.cells.len()
                && let Some(Open { end_ms, cells, update, .. }) = giving.open.take()
            {
                self.table.done(end_ms, cells, !update);
            }
            let data = having(self.having.as_ref(), data, context.wall_ms)?;
            if !data.is_empty() {
                return Ok(Some(Envelope::Data(data)));
            }
        }
    }

    /// Rows of the next groups of a window.
    fn rows(&self, open: &Open, until: u32) -> Result<Data, Error> {
        let groups = open.next..until;
        let count = groups.len();
        let (keys, mut aggregates) = self.table.results(&open.cells, groups)?;
        // What is kept beside them goes to nobody.
        aggregates.truncate(self.work.aggregates.len());
        let unbounded = || Error::new(Class::Bug, format!("operator '{}' has a window without a start", self.id));
        let start = self.windows.start_of(open.end_ms).ok_or_else(unbounded)?;
        let rows = WindowRows {
            keys,
            starts: constant_times(start, count),
            ends: constant_times(open.end_ms, count),
            aggregates,
            mark: self.work.marks_updates().then_some(open.update),
        };
        rows.data(&self.id, &self.output)
    }
}

impl Operator for Window {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.add(data, context)?,
            Envelope::Watermark(watermark) => self.complete(watermark),
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
        if self.giving.is_none() && self.held.is_none() {
            self.look_early(context.now_ns);
        }
        let Some(mut giving) = self.giving.take() else {
            return Ok(self.held.take());
        };
        let envelope = self.go_on(&mut giving, context)?;
        if matches!(envelope, Some(Envelope::Data(_))) {
            self.giving = Some(giving);
        }
        Ok(envelope)
    }

    fn until_ns(&self) -> Option<u64> {
        self.early_due_ns
    }

    fn rows_of(&self, data: &Data) -> u64 {
        match &self.input {
            Input::Rows(_) => data.len() as u64,
            Input::Partials(partials) => partials.rows_of(data),
        }
    }
}
