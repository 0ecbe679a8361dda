//! First stage of a window aggregate (WIN-7): rows become states of groups before the shuffle.
//!
//! It holds groups until a barrier, a watermark that closes their window, an idle or end mark, its
//! linger or its bound, and gives them on before what made it let go. So it has no state, and a
//! window behind it sees every row before the mark that would fire it.
//!
//! Grouping pays only where rows come together. What was held is measured when it goes: where two
//! rows or more did not become one, the next rows pass through, each as the state of itself, and
//! after a while it is tried again. A trial costs a hash and a probe of each row that it holds, so
//! it is made for one in [`PASSES`] rows.

use crate::accumulate::piece::Piece;
use crate::envelope::{BATCH_ROWS, Data, Envelope, batch};
use crate::error::Error;
use crate::eval::constant_times;
use crate::operator::grouping::{Grouping, Groups, Scratch, key_columns};
use crate::operator::sift::sift;
use crate::operator::window::judge::Judge;
use crate::operator::window::pieces::Splitter;
use crate::operator::window::places::Places;
use crate::operator::window::timing::Timing;
use crate::operator::{Context, Operator};
use crate::origin::Origins;
use crate::state::layout::Marks;
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Schema as ArrowSchema};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::schema::Schema;
use weir_planner::window::Pane;

/// How long a group waits at most.
const LINGER_NS: u64 = 10_000_000;
/// Groups held at most, but for those of one batch.
const GROUPS_MAX: usize = 65_536;
/// So many groups that came from less than twice as many rows are enough to stop a trial.
const GROUPS_ENOUGH: usize = BATCH_ROWS;
/// Fewer rows than this say nothing about how well they come together.
const ROWS_ENOUGH: u64 = 2_048;
/// Rows that pass through for each row of a trial.
const PASSES: u64 = 64;
/// Emptied groups kept for their room.
const SPARE_MAX: usize = 4;

/// Groups of one pane.
struct Hold {
    groups: Groups,
    /// Where all of their rows come from.
    from: Origins,
}

/// Groups of one pane on their way out.
struct Leaving {
    /// End of the first window for which they count, and the pane's start.
    pane: (i64, i64),
    hold: Hold,
    /// The first of them that has not gone.
    next: u32,
}

/// A first stage. Shape: any rows in; [`weir_planner::plan::partial`] out.
pub struct Partial {
    id: OperatorId,
    work: WindowWork,
    judge: Judge,
    timing: Timing,
    grouping: Grouping,
    key_types: Vec<DataType>,
    output: Arc<ArrowSchema>,
    /// Groups of each pane, by the end of the first window for which they count and the pane's start.
    holds: BTreeMap<(i64, i64), Hold>,
    spare: Vec<Groups>,
    /// Makes states of single rows; has no groups.
    lifting: Groups,
    splitter: Splitter,
    scratch: Scratch,
    /// When the first of the held rows came.
    since_ns: Option<u64>,
    groups_held: usize,
    /// Rows, and the groups that they came to, of holds that went since the last verdict.
    measured: (u64, u64),
    /// Rows that are still to pass through.
    passing: u64,
    leaving: VecDeque<Leaving>,
    /// What goes after them.
    next: Option<Envelope>,
}

impl Partial {
    /// Builds the stage for a planned window.
    ///
    /// Errors: expressions or types that do not fit.
    pub fn new(id: &OperatorId, work: &WindowWork, input: &Schema, output: &Schema) -> Result<Self, Error> {
        let work = &WindowWork { aggregates: work.kept(), empty_within_ms: None, ..work.clone() };
        let key_types: Vec<_> = key_columns(id, &work.keys, input)?.iter().map(|i| input.0[*i].ty.to_arrow()).collect();
        Ok(Partial {
            id: id.clone(),
            work: work.clone(),
            judge: Judge::new(id, work)?,
            timing: Timing::new(id, work.time.as_ref(), Some(input))?,
            grouping: Grouping::new(id, &work.keys, &work.aggregates, input)?,
            lifting: Groups::new(id, &key_types, &work.aggregates)?,
            key_types,
            output: Arc::new(output.to_arrow()),
            holds: BTreeMap::new(),
            spare: Vec::new(),
            splitter: Splitter::default(),
            scratch: Scratch::default(),
            since_ns: None,
            groups_held: 0,
            measured: (0, 0),
            passing: 0,
            leaving: VecDeque::new(),
            next: None,
        })
    }

    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let data = self.timing.timed(data, context)?;
        let data = self.judge.on_time(data, None, Marks::NONE, context)?;
        let (grouping, rows) = (&self.grouping, data.len() as u64);
        let parts = sift(self.work.on_error, data, context, &|data, wall_ms| grouping.piece(data, wall_ms))?;
        if self.passing > 0 {
            self.passing = self.passing.saturating_sub(rows);
            let mut passed = Vec::new();
            for (data, piece) in parts.iter().filter(|(data, _)| !data.is_empty()) {
                passed.push(self.passed(data, piece)?);
            }
            self.next = passed.first().map(|_| Data::concat(&passed)).transpose()?.map(Envelope::Data);
            return Ok(());
        }
        for (data, piece) in parts {
            if data.is_empty() {
                continue;
            }
            self.since_ns.get_or_insert(context.now_ns);
            let from = data.origins.only().cloned().map_or(Origins::Unknown, Origins::One);
            let places = Places::of(&data, None);
            if let Some(pane) = self.judge.one_pane(&places, i64::MIN)? {
                self.hold(pane, &piece, &from)?;
                continue;
            }
            self.splitter.split(&self.judge, &places, i64::MIN)?;
            for (pane, part) in self.splitter.pieces(&piece)? {
                self.hold(pane, &part, &from)?;
            }
        }
        let rows: u64 = self.holds.values().map(|hold| hold.groups.rows_behind()).sum();
        if self.groups_held >= GROUPS_MAX || (self.groups_held >= GROUPS_ENOUGH && !pays(rows, self.groups_held as u64)) {
            self.let_go(i64::MAX);
        }
        Ok(())
    }

    fn hold(&mut self, pane: Pane, piece: &Piece, from: &Origins) -> Result<(), Error> {
        let hold = match self.holds.entry((pane.first_end_ms, pane.start_ms)) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let groups = match self.spare.pop() {
                    Some(spare) => spare,
                    None => Groups::new(&self.id, &self.key_types, &self.work.aggregates)?,
                };
                free.insert(Hold { groups, from: from.clone() })
            }
        };
        if hold.from != *from {
            hold.from = Origins::Unknown;
        }
        let before = hold.groups.len();
        hold.groups.add(piece, &mut self.scratch)?;
        self.groups_held += hold.groups.len() - before;
        Ok(())
    }

    /// Each row as the state of itself.
    fn passed(&mut self, data: &Data, piece: &Piece) -> Result<Data, Error> {
        let count = data.len();
        let places = Places::of(data, None);
        let (froms, starts) = match self.judge.one_pane(&places, i64::MIN)? {
            Some(pane) => (constant_times(pane.first_end_ms, count), constant_times(pane.start_ms, count)),
            None => {
                // Windows that keep their own rows have no first stage, so that each row lies in one pane.
                self.splitter.split(&self.judge, &places, i64::MIN)?;
                let (mut froms, mut starts) = (vec![0; count], vec![0; count]);
                for (pane, rows) in self.splitter.panes() {
                    for row in rows {
                        froms[*row as usize] = pane.first_end_ms;
                        starts[*row as usize] = pane.start_ms;
                    }
                }
                (froms.into(), starts.into())
            }
        };
        let mut columns = piece.keys.clone();
        columns.push(Arc::new(starts.clone()));
        columns.push(Arc::new(froms));
        columns.extend(piece.lift(self.lifting.accumulators())?);
        columns.push(Arc::new(Int64Array::from_value(1, count)));
        Ok(Data { rows: batch(self.output.clone(), columns, count)?, times: starts, stamps: None, origins: data.origins.clone() })
    }

    /// Lets panes go the end and lateness of whose first window a watermark has passed.
    fn let_go(&mut self, watermark: i64) {
        while let Some(first) = self.holds.first_entry() {
            let closes = first.key().0.saturating_add(self.work.allowed_lateness_ms);
            if closes > watermark {
                break;
            }
            let (pane, hold) = first.remove_entry();
            self.groups_held -= hold.groups.len();
            self.measured = (self.measured.0 + hold.groups.rows_behind(), self.measured.1 + hold.groups.len() as u64);
            self.leaving.push_back(Leaving { pane, hold, next: 0 });
        }
        if self.holds.is_empty() {
            self.since_ns = None;
        }
        let (rows, groups) = self.measured;
        if rows >= ROWS_ENOUGH {
            if !pays(rows, groups) {
                self.passing = rows * PASSES;
                // What is held of other windows goes as well: nothing is held while rows pass.
                self.measured = (0, 0);
                self.let_go(i64::MAX);
            }
            self.measured = (0, 0);
        }
    }

    fn leave(&mut self) -> Result<Option<Data>, Error> {
        let Some(Leaving { pane: (closes, start), hold: Hold { groups, from }, next }) = self.leaving.front_mut() else { return Ok(None) };
        let until = (*next as usize + BATCH_ROWS).min(groups.len()) as u32;
        let listed: Vec<u32> = (*next..until).collect();
        let starts = constant_times(*start, listed.len());
        let mut columns = groups.keys(&listed)?;
        columns.push(Arc::new(starts.clone()) as ArrayRef);
        columns.push(Arc::new(constant_times(*closes, listed.len())));
        for accumulator in groups.accumulators() {
            columns.extend(accumulator.image(&listed)?);
        }
        columns.push(Arc::new(Int64Array::from(groups.rows()[*next as usize..until as usize].to_vec())));
        let data = Data { rows: batch(self.output.clone(), columns, listed.len())?, times: starts, stamps: None, origins: from.clone() };
        *next = until;
        if until as usize == groups.len()
            && let Some(Leaving { hold: Hold { mut groups, .. }, .. }) = self.leaving.pop_front()
            && self.spare.len() < SPARE_MAX
        {
            groups.clear();
            self.spare.push(groups);
        }
        Ok(Some(data))
    }

    fn due_ns(&self) -> Option<u64> {
        self.since_ns.map(|since| since.saturating_add(LINGER_NS))
    }
}

/// Whether so many rows for so many groups are worth it.
fn pays(rows: u64, groups: u64) -> bool {
    rows >= 2 * groups
}

impl Operator for Partial {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => return self.add(data, context),
            Envelope::Watermark(watermark) => self.let_go(self.timing.watermark(watermark)),
            Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => self.let_go(i64::MAX),
        }
        self.next = Some(envelope);
        Ok(())
    }

    fn give(&mut self, context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        if self.due_ns().is_some_and(|due| due <= context.now_ns) {
            self.let_go(i64::MAX);
        }
        match self.leave()? {
            Some(data) => Ok(Some(Envelope::Data(data))),
            None => Ok(self.next.take()),
        }
    }

    fn until_ns(&self) -> Option<u64> {
        self.due_ns()
    }
}
