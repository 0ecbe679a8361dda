//! State of a window operator: groups by pane, and the agenda of windows that need them.
//!
//! A pane's rows are kept apart by the first window for which they count, since a row may come too
//! late for the first windows of its pane and in time for the others. So what a window is made of
//! never depends on how rows with and without that lateness interleave (EV-3), and, where windows
//! are given once, an entry that a window has been made of never changes afterwards.
//!
//! Each pane stands on the agenda under the end of the oldest window that still needs it. The window
//! that fires next is the first there, with all of its panes, and each of them moves on to its next
//! window, or leaves.

mod agenda;
mod frozen;
mod image;
mod seen;

use crate::accumulate::piece::Piece;
use crate::error::Error;
use crate::state::bits::Bits;
use crate::state::cells::{Cells, Scratch};
use crate::state::layout::{Marks, Shape};
use agenda::Agenda;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weir_planner::window::{Aligned, Pane};

/// Start of a pane and end of the first window for which its rows count.
pub type PaneId = (i64, i64);

/// Groups of panes that were touched.
pub type Touched = BTreeMap<PaneId, Bits>;

struct Entry {
    pane: Pane,
    cells: Cells,
}

/// What all windows of one start have in common so far, where they grow from one to the next.
struct Running {
    /// End of the longest of them.
    last_end_ms: i64,
    /// End of the window that was given: panes that count from there or before are in it.
    through_ms: i64,
    cells: Cells,
}

/// Panes of a task.
pub struct Table {
    shape: Shape,
    types: Vec<DataType>,
    panes: BTreeMap<PaneId, Entry>,
    /// Panes by the oldest window that needs them, a kept one included.
    live: Agenda,
    /// Panes by the first window that has not fired; empty where windows leave as they fire.
    due: Agenda,
    running: Option<Running>,
    /// Keys that get rows for windows without any.
    seen: Option<Seen>,
    spare: Option<Cells>,
    entries: usize,
    bytes: usize,
    scratch: Scratch,
    /// Marks since the last image; an image is due when they move.
    imaged: Marks,
    marks: Marks,
}

impl Table {
    /// An empty table.
    ///
    /// Errors: an aggregate that does not take its argument.
    pub fn new(shape: Shape) -> Result<Self, Error> {
        let types: Vec<DataType> = shape.keys.iter().map(|(_, ty)| ty.clone()).collect();
        Ok(Table {
            seen: Seen::new(&types, &shape)?,
            types,
            shape,
            panes: BTreeMap::new(),
            live: Agenda::default(),
            due: Agenda::default(),
            running: None,
            spare: None,
            entries: 0,
            bytes: 0,
            scratch: Scratch::default(),
            imaged: Marks::NONE,
            marks: Marks::NONE,
        })
    }

    /// Live (pane, key) entries.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Live bytes.
    pub fn bytes(&self) -> usize {
        let running = self.running.as_ref().map_or(0, |running| running.cells.bytes());
        self.bytes + running + self.seen.as_ref().map_or(0, |seen| seen.cells.bytes())
    }

    /// How far windows are gone.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Windows that end at or before `end_ms` are being given.
    pub fn mark_fired(&mut self, end_ms: i64) {
        self.marks.fired_ms = self.marks.fired_ms.max(end_ms);
        if !self.shape.revises {
            self.marks.retired_ms = self.marks.fired_ms;
        }
    }

    /// Adds rows to a pane none of whose windows is gone.
    pub fn add(&mut self, pane: &Pane, piece: &Piece) -> Result<PaneId, Error> {
        let id = (pane.start_ms, pane.first_end_ms);
        let entry = match self.panes.entry(id) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                self.live.put(pane.first_end_ms, id);
                if self.shape.revises
                    && let Some(end) = pane.end_after(self.marks.fired_ms)
                {
                    self.due.put(end, id);
                }
                free.insert(Entry { pane: *pane, cells: Cells::new(&self.types, &self.shape.aggregates)? })
            }
        };
        let (entries, bytes) = (entry.cells.len(), entry.cells.bytes());
        entry.cells.add(piece, &mut self.scratch)?;
        self.entries += entry.cells.len() - entries;
        self.bytes = self.bytes + entry.cells.bytes() - bytes;
        Ok(id)
    }

    /// Notes the groups of the rows that [`Table::add`] took last, which gave `id`.
    pub fn note(&self, id: PaneId, touched: &mut Touched) {
        let bits = touched.entry(id).or_default();
        bits.grow(self.panes.get(&id).map_or(0, |entry| entry.cells.len()));
        self.scratch.groups.iter().for_each(|group| bits.set(*group));
    }

    /// Start of the window that ends at `end_ms`.
    pub fn start_of(&self, end_ms: i64) -> i64 {
        self.shape.windows.start_of(end_ms).unwrap_or(i64::MIN)
    }

    /// Every group of every pane, as touched.
    pub fn all(&self) -> Touched {
        let all = |(id, entry): (&PaneId, &Entry)| {
            let mut bits = Bits::default();
            bits.grow(entry.cells.len());
            (0..entry.cells.len() as u32).for_each(|group| bits.set(group));
            (*id, bits)
        };
        self.panes.iter().map(all).collect()
    }

    /// Ends of the windows in which touched panes lie, after `after_ms` and up to `through_ms`.
    pub fn ends(&self, touched: &Touched, after_ms: i64, through_ms: i64) -> BTreeSet<i64> {
        let panes = touched.keys().filter_map(|id| self.panes.get(id));
        let of_pane = |entry: &Entry| {
            let pane = entry.pane;
            std::iter::successors(pane.end_after(after_ms), move |end| pane.end_after(*end))
                .take_while(|end| *end <= through_ms)
                .collect::<Vec<_>>()
        };
        panes.flat_map(of_pane).collect()
    }

    /// Takes the next window that ends at or before `through_ms` and has not fired: its end, and what
    /// its panes come to. Its panes stay as long as other windows need them. Keys without rows in it
    /// get theirs as long as time has an end (C17).
    pub fn fire(&mut self, through_ms: i64) -> Result<Option<(i64, Cells)>, Error> {
        let agenda = if self.shape.revises { &self.due } else { &self.live };
        let next = agenda.first().map(|(end, _)| end).filter(|end| *end <= through_ms);
        let empty = self.next_empty(through_ms).filter(|end| next.is_none_or(|next| *end < next));
        let fired = match empty {
            Some(end) => Some((end, self.fresh()?)),
            None => self.fire_panes(through_ms)?,
        };
        let Some(seen) = &mut self.seen else { return Ok(fired) };
        let Some((end, mut cells)) = fired else { return Ok(None) };
        let count = cells.len();
        if through_ms < i64::MAX {
            seen.add_empty(end, &mut cells, &mut self.scratch)?;
        }
        seen.take(end, &cells, count, &self.shape, &mut self.scratch)?;
        Ok(Some((end, cells)))
    }

    /// End of the next window for which a key may get a row, whether there are panes of it or not.
    fn next_empty(&self, through_ms: i64) -> Option<i64> {
        let seen = self.seen.as_ref().filter(|_| through_ms < i64::MAX)?;
        let end = self.shape.windows.end_after(seen.given_ms.max(self.marks.evicted_ms))?;
        (end <= through_ms && seen.reaches(end)).then_some(end)
    }

    fn fire_panes(&mut self, through_ms: i64) -> Result<Option<(i64, Cells)>, Error> {
        let agenda = if self.shape.revises { &mut self.due } else { &mut self.live };
        let Some((end, ids)) = agenda.pop(through_ms) else { return Ok(None) };
        if let [only] = ids.as_slice()
            && !self.shape.revises
            && self.panes.get(only).is_some_and(|entry| entry.pane.end_after(end).is_none())
            && let Some(cells) = self.remove(*only)
        {
            self.running = None;
            return Ok(Some((end, cells)));
        }
        let cells = self.together(&ids)?;
        for id in ids {
            let next = self.panes.get(&id).and_then(|entry| entry.pane.end_after(end));
            match (next, self.shape.revises) {
                (Some(next), true) => self.due.put(next, id),
                (Some(next), false) => self.live.put(next, id),
                // It stays until it is retired.
                (None, true) => {}
                (None, false) => drop(self.remove(id)),
            }
        }
        Ok(Some((end, cells)))
    }

    /// Takes back what [`Table::fire`] or [`Table::some`] gave, when it has been given on.
    pub fn done(&mut self, end_ms: i64, mut cells: Cells, fired: bool) {
        let grows = match self.shape.windows {
            Aligned::Tumbling { .. } | Aligned::Calendar { .. } => return,
            // What is kept must have no groups but those of rows.
            Aligned::Cumulate { .. } => fired && !self.shape.revises && self.seen.is_none() && !self.shape.windows.keeps_own(),
            Aligned::Sliding { .. } => false,
        };
        // Its panes stand under the next window now, before those of all windows that start later.
        let next = self.live.first().and_then(|(_, ids)| ids.first()).and_then(|id| self.panes.get(id)).map(|entry| entry.pane);
        match next.filter(|pane| grows && pane.start_ms < end_ms) {
            Some(pane) => self.running = Some(Running { last_end_ms: pane.last_end_ms, through_ms: end_ms, cells }),
            None => {
                cells.clear();
                self.spare = Some(cells);
            }
        }
    }

    /// What the touched groups come to in the window that ends at `end_ms`, with all that its panes have of their keys.
    pub fn some(&mut self, end_ms: i64, touched: &Touched) -> Result<Cells, Error> {
        let mut cells = self.fresh()?;
        let from = self.start_of(end_ms);
        let of_window = |(id, entry): (&PaneId, &Entry)| entry.pane.holds(end_ms).then_some(*id);
        let ids: Vec<PaneId> = self.panes.range((from, i64::MIN)..(end_ms, i64::MIN)).filter_map(of_window).collect();
        for id in &ids {
            if let (Some(entry), Some(bits)) = (self.panes.get(id), touched.get(id)) {
                cells.know(&entry.cells, &bits.ones().collect::<Vec<_>>(), &mut self.scratch)?;
            }
        }
        for entry in ids.iter().filter_map(|id| self.panes.get(id)) {
            cells.absorb_known(&entry.cells)?;
        }
        Ok(cells)
    }

    /// Keys and aggregates of a range of groups.
    ///
    /// Errors: a result that its type cannot hold, naming operator and column.
    pub fn results(&self, cells: &Cells, groups: Range<u32>) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        cells.results(&groups.collect::<Vec<_>>(), &self.shape.operator, &self.shape.aggregates)
    }

    /// Windows that end at or before `through_ms` take no rows any more; panes that no other window needs leave.
    pub fn retire(&mut self, through_ms: i64) {
        self.marks.retired_ms = self.marks.retired_ms.max(through_ms);
        while let Some((end, ids)) = self.live.pop(through_ms) {
            self.pass(end, ids);
        }
    }

    /// Evicts the oldest window whole; gives the entries that it had.
    pub fn evict(&mut self) -> Option<usize> {
        let (end, ids) = self.live.pop(i64::MAX)?;
        self.marks.evicted_ms = self.marks.evicted_ms.max(end);
        let lost = ids.iter().filter_map(|id| self.panes.get(id)).map(|entry| entry.cells.len()).sum();
        // One that has not fired never will.
        for id in self.due.take(end) {
            if let Some(next) = self.panes.get(&id).and_then(|entry| entry.pane.end_after(end)) {
                self.due.put(next, id);
            }
        }
        self.pass(end, ids);
        Some(lost)
    }

    /// Panes go on to their next window after the one that ended at `end`, or leave.
    fn pass(&mut self, end: i64, ids: Vec<PaneId>) {
        for id in ids {
            match self.panes.get(&id).and_then(|entry| entry.pane.end_after(end)) {
                Some(next) => self.live.put(next, id),
                None => drop(self.remove(id)),
            }
        }
    }

    fn remove(&mut self, id: PaneId) -> Option<Cells> {
        let entry = self.panes.remove(&id)?;
        self.entries -= entry.cells.len();
        self.bytes -= entry.cells.bytes();
        Some(entry.cells)
    }

    /// What panes come to together.
    fn together(&mut self, ids: &[PaneId]) -> Result<Cells, Error> {
        let last_end_ms = ids.first().and_then(|id| self.panes.get(id)).map(|entry| entry.pane.last_end_ms);
        let (mut cells, known_ms) = match self.running.take() {
            Some(running) if Some(running.last_end_ms) == last_end_ms => (running.cells, running.through_ms),
            _ => (self.fresh()?, i64::MIN),
        };
        // What counted from a window that has been given is in it.
        for id in ids.iter().filter(|(_, from)| *from > known_ms) {
            if let Some(entry) = self.panes.get(id) {
                cells.absorb(&entry.cells, &mut self.scratch)?;
            }
        }
        Ok(cells)
    }

    fn fresh(&mut self) -> Result<Cells, Error> {
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => Cells::new(&self.types, &self.shape.aggregates),
        }
    }
}
