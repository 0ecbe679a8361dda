//! State of session windows: the open sessions of each key, and their accumulators by slot.
//!
//! A session is a slot: what time it spans, and the group numbers of all accumulators. Those of one
//! key are a list from the newest to the oldest; rows come mostly in order, so that the newest is
//! nearly always the one, found by the number of the key alone. Two sessions of a key are never less
//! than the gap apart, so a row touches two at most, and then it joins them. A slot that was joined
//! to another leads there until the batch is over and its entry among the due ones has gone.
//!
//! What is due is found by a heap with one entry for each slot. Its time is one at which the session
//! ended at some time; one that ends later by now is put back when its turn comes, which it is no
//! more than once for each gap that it grew by. So firing costs by what fires.
//!
//! Slots are used again. The index of keys only grows; when most of its keys have no sessions it is
//! built anew from those that have (SPD-7).

mod image;

use crate::accumulate::piece::Piece;
use crate::accumulate::{Accumulator, accumulator};
use crate::envelope::broken;
use crate::error::Error;
use crate::route::key::Encoded;
use crate::state::bits::Bits;
use crate::state::index::Index;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema as ArrowSchema};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::Arc;
use weir_planner::expr::Aggregate;
use weir_planner::id::OperatorId;

/// No slot. Slot 0 is never a session: its accumulators stay empty and its span holds no time.
const NONE: u32 = 0;
/// Group of a slot that is no session.
const NO_GROUP: u32 = u32::MAX;
/// Keys, or slots, without a session that are kept at least.
const SPARE: usize = 4_096;

/// What sessions are made for.
pub struct Shape {
    /// Operator that the state belongs to.
    pub operator: OperatorId,
    /// Its subtask.
    pub subtask: u32,
    /// Key columns.
    pub keys: Vec<(String, DataType)>,
    /// Output name and aggregate.
    pub aggregates: Vec<(String, Aggregate)>,
    /// Silence that ends a session.
    pub gap_ms: i64,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Key groups of this task.
    pub owned: Range<u32>,
}

/// How far sessions are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Sessions ending at or before this are fired, and no row before it may open one.
    pub fired_ms: i64,
    /// Sessions ending at or before this were evicted.
    pub evicted_ms: i64,
}

/// From the first row of a session to the gap after its last, and whose it is.
#[derive(Clone, Copy)]
struct Span {
    first_ms: i64,
    end_ms: i64,
    /// Number of the key; [`NO_GROUP`] where this is no session.
    group: u32,
    /// The next older session of the key; of a slot that was joined to another, that one.
    older: u32,
}

/// A session that images hold and that is no more under its start.
struct Gone {
    group: u32,
    first_ms: i64,
    end_ms: i64,
}

/// Sessions of a task.
pub struct Sessions {
    shape: Shape,
    schema: Arc<ArrowSchema>,
    index: Index,
    /// Newest session of each key.
    newest: Vec<u32>,
    /// Keys that have a session.
    keys_open: usize,
    spans: Vec<Span>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Slots that nothing names.
    free: Vec<u32>,
    /// One entry for each slot that is not free.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    open: usize,
    /// Slots that changed since the last image, and those that images hold under their present start.
    dirty: Bits,
    imaged: Bits,
    gone: Vec<Gone>,
    marks: Marks,
    /// Marks at the last image.
    marks_imaged: Marks,
    scratch: Scratch,
}

/// Used again from batch to batch.
#[derive(Default)]
struct Scratch {
    encoded: Encoded,
    groups: Vec<u32>,
    slots: Vec<u32>,
    chosen: Vec<u32>,
    /// Slots that were joined to others, and to which.
    joined: Vec<(u32, u32)>,
}

/// Columns of some sessions.
pub struct Results {
    /// Key columns.
    pub keys: Vec<ArrayRef>,
    /// First rows' times.
    pub starts: Vec<i64>,
    /// Last rows' times and the gap.
    pub ends: Vec<i64>,
    /// A column for each aggregate.
    pub aggregates: Vec<ArrayRef>,
}

impl Sessions {
    /// No sessions.
    ///
    /// Errors: an aggregate that does not take its argument.
    pub fn new(shape: Shape) -> Result<Self, Error> {
        let accumulators = accumulators(&shape)?;
        let marks = Marks { fired_ms: i64::MIN, evicted_ms: i64::MIN };
        let types: Vec<DataType> = shape.keys.iter().map(|(_, ty)| ty.clone()).collect();
        let mut sessions = Sessions {
            schema: image::schema(&shape, &accumulators),
            index: Index::new(&types),
            newest: Vec::new(),
            keys_open: 0,
            spans: vec![Span { first_ms: i64::MAX, end_ms: i64::MIN, group: NO_GROUP, older: NONE }],
            accumulators,
            free: Vec::new(),
            due: BinaryHeap::new(),
            open: 0,
            dirty: Bits::default(),
            imaged: Bits::default(),
            gone: Vec::new(),
            marks,
            marks_imaged: marks,
            scratch: Scratch::default(),
            shape,
        };
        sessions.grow();
        Ok(sessions)
    }

    /// Open sessions.
    pub fn open(&self) -> usize {
        self.open
    }

    /// The gap, ms.
    pub fn gap_ms(&self) -> i64 {
        self.shape.gap_ms
    }

    /// Slots of all open sessions.
    pub fn slots(&self) -> Vec<u32> {
        (1..self.spans.len() as u32).filter(|slot| self.spans[*slot as usize].group != NO_GROUP).collect()
    }

    /// How far sessions are gone.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Live bytes.
    pub fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let slots = self.spans.capacity() * size_of::<Span>() + (self.free.capacity() + self.newest.capacity()) * 4;
        let lists = self.due.capacity() * size_of::<(i64, u32)>() + self.gone.capacity() * size_of::<Gone>();
        self.index.bytes() + accumulators + slots + lists + self.dirty.bytes() + self.imaged.bytes()
    }

    /// Adds rows with their times. The caller has seen that a gap after each time is in range.
    pub fn add(&mut self, times: &[i64], piece: &Piece) -> Result<(), Error> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let done = self.add_with(times, piece, &mut scratch);
        self.scratch = scratch;
        done
    }

    fn add_with(&mut self, times: &[i64], piece: &Piece, scratch: &mut Scratch) -> Result<(), Error> {
        self.index.assign(&piece.keys, piece.rows, &mut scratch.encoded, &mut scratch.groups)?;
        self.newest.resize(self.index.len(), NONE);
        scratch.slots.clear();
        scratch.joined.clear();
        let gap_ms = self.shape.gap_ms;
        for (time, group) in times.iter().zip(&scratch.groups) {
            let newest = self.newest[*group as usize];
            let span = &mut self.spans[newest as usize];
            let slot = if span.first_ms <= *time && *time < span.end_ms {
                span.end_ms = span.end_ms.max(*time + gap_ms);
                newest
            } else {
                self.place(*group, *time, &mut scratch.joined)
            };
            scratch.slots.push(slot);
        }
        self.grow();
        if !scratch.joined.is_empty() {
            scratch.slots.iter_mut().for_each(|slot| *slot = self.led(*slot));
            self.join(&scratch.joined)?;
        }
        scratch.slots.iter().for_each(|slot| self.dirty.set(*slot));
        piece.add_to(&mut self.accumulators, &scratch.slots, &mut scratch.chosen)
    }

    /// The session of a row that its key's newest one does not hold. Where it joins two, the newer
    /// is joined to the older, whose start stays what it was.
    fn place(&mut self, group: u32, time: i64, joined: &mut Vec<(u32, u32)>) -> u32 {
        let reach = time + self.shape.gap_ms;
        let (mut newer, mut at) = (NONE, self.newest[group as usize]);
        while at != NONE && reach <= self.spans[at as usize].first_ms {
            newer = at;
            at = self.spans[at as usize].older;
        }
        let span = self.spans[at as usize];
        if at == NONE || time >= span.end_ms {
            return self.begin(group, (time, reach), newer, at);
        }
        if time >= span.first_ms {
            self.spans[at as usize].end_ms = span.end_ms.max(reach);
            return at;
        }
        if time < self.spans[span.older as usize].end_ms {
            self.forget_imaged(at);
            self.dirty.grow(self.spans.len());
            self.dirty.put(at, false);
            let older = &mut self.spans[span.older as usize];
            older.end_ms = older.end_ms.max(span.end_ms);
            self.spans[at as usize].group = NO_GROUP;
            self.link(group, newer, span.older);
            self.open -= 1;
            joined.push((at, span.older));
            return span.older;
        }
        self.forget_imaged(at);
        self.spans[at as usize].first_ms = time;
        at
    }

    /// A new session between two neighbours.
    fn begin(&mut self, group: u32, (first_ms, end_ms): (i64, i64), newer: u32, older: u32) -> u32 {
        let span = Span { first_ms, end_ms, group, older };
        let slot = self.free.pop().unwrap_or(self.spans.len() as u32);
        match self.spans.get_mut(slot as usize) {
            Some(place) => *place = span,
            None => self.spans.push(span),
        }
        if newer == NONE && older == NONE {
            self.keys_open += 1;
        }
        self.link(group, newer, slot);
        self.due.push(Reverse((end_ms, slot)));
        self.open += 1;
        slot
    }

    fn link(&mut self, group: u32, newer: u32, slot: u32) {
        match newer {
            NONE => self.newest[group as usize] = slot,
            newer => self.spans[newer as usize].older = slot,
        }
    }

    /// What images hold of a session under its start is to be hidden.
    fn forget_imaged(&mut self, slot: u32) {
        self.imaged.grow(self.spans.len());
        if self.imaged.get(slot) {
            self.imaged.put(slot, false);
            let Span { group, first_ms, end_ms, .. } = self.spans[slot as usize];
            self.gone.push(Gone { group, first_ms, end_ms });
        }
    }

    /// Where a slot leads.
    fn led(&self, mut slot: u32) -> u32 {
        while self.spans[slot as usize].group == NO_GROUP {
            slot = self.spans[slot as usize].older;
        }
        slot
    }

    fn join(&mut self, joined: &[(u32, u32)]) -> Result<(), Error> {
        let (from, into): (Vec<u32>, Vec<u32>) = joined.iter().map(|(from, into)| (*from, self.led(*into))).unzip();
        for accumulator in &mut self.accumulators {
            let states = accumulator.image(&from)?;
            accumulator.merge(&into, &states)?;
        }
        self.empty(&from)
    }

    /// Empties the accumulators of slots.
    fn empty(&mut self, slots: &[u32]) -> Result<(), Error> {
        let none = UInt32Array::from_value(0, slots.len());
        for accumulator in &mut self.accumulators {
            let state = accumulator.image(&[NONE])?;
            let states = state.iter().map(|column| take(column, &none, None).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
            accumulator.restore(slots, &states)?;
        }
        Ok(())
    }

    fn grow(&mut self) {
        let slots = self.spans.len();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(slots));
        self.dirty.grow(slots);
        self.imaged.grow(slots);
    }

    /// Sessions that end at or before `end_ms` are fired or behind.
    pub fn mark_fired(&mut self, end_ms: i64) {
        self.marks.fired_ms = self.marks.fired_ms.max(end_ms);
    }

    /// Puts slots of sessions that are fired, the earliest end first, into `slots`, up to `most` of
    /// them. They stay until they are [released](Sessions::release).
    pub fn fired(&mut self, most: usize, slots: &mut Vec<u32>) {
        slots.clear();
        self.ended(self.marks.fired_ms, most, slots);
    }

    /// Adds sessions that end at or before a time to `slots`, the earliest first, until there are `most`.
    fn ended(&mut self, through_ms: i64, most: usize, slots: &mut Vec<u32>) {
        while slots.len() < most
            && let Some(mut top) = self.due.peek_mut()
            && let Reverse((end_ms, slot)) = *top
            && end_ms <= through_ms
        {
            let span = self.spans[slot as usize];
            if span.group == NO_GROUP {
                PeekMut::pop(top);
                self.free.push(slot);
            } else if span.end_ms > end_ms {
                top.0.0 = span.end_ms;
            } else {
                PeekMut::pop(top);
                slots.push(slot);
            }
        }
    }

    /// Evicts the sessions that end first until no more than `most` are left; how many went. Those
    /// that end together go together, so that the mark says it of all.
    pub fn evict(&mut self, most: usize) -> Result<usize, Error> {
        let mut slots = Vec::new();
        self.ended(i64::MAX, self.open.saturating_sub(most), &mut slots);
        let Some(last) = slots.last() else { return Ok(0) };
        let end_ms = self.spans[*last as usize].end_ms;
        self.ended(end_ms, usize::MAX, &mut slots);
        self.marks.evicted_ms = self.marks.evicted_ms.max(end_ms);
        self.release(&slots)?;
        Ok(slots.len())
    }

    /// Forgets sessions that [`Sessions::fired`] gave.
    pub fn release(&mut self, slots: &[u32]) -> Result<(), Error> {
        for slot in slots {
            let Span { group, older, .. } = self.spans[*slot as usize];
            let (mut newer, mut at) = (NONE, self.newest[group as usize]);
            while at != *slot {
                newer = at;
                at = self.spans[at as usize].older;
            }
            self.link(group, newer, older);
            self.keys_open -= usize::from(newer == NONE && older == NONE);
            self.spans[*slot as usize].group = NO_GROUP;
            self.dirty.put(*slot, false);
            self.imaged.put(*slot, false);
        }
        self.open -= slots.len();
        self.free.extend_from_slice(slots);
        self.empty(slots)
    }

    /// Keys, bounds and aggregates of sessions.
    ///
    /// Errors: a result that its type cannot hold, naming operator and column.
    pub fn results(&self, slots: &[u32]) -> Result<Results, Error> {
        let mut aggregates = Vec::with_capacity(self.accumulators.len());
        for (accumulator, (name, _)) in self.accumulators.iter().zip(&self.shape.aggregates) {
            let name_it =
                |e: Error| Error { message: format!("{} in operator '{}', column '{name}'", e.message, self.shape.operator), ..e };
            aggregates.push(accumulator.peek(slots).map_err(name_it)?);
        }
        let spans = || slots.iter().map(|slot| &self.spans[*slot as usize]);
        Ok(Results {
            keys: self.index.keys(&spans().map(|span| span.group).collect::<Vec<_>>())?,
            starts: spans().map(|span| span.first_ms).collect(),
            ends: spans().map(|span| span.end_ms).collect(),
            aggregates,
        })
    }

    /// Gives back what keys and slots without a session hold, where these are most. No slots may be
    /// in anybody's hands.
    pub fn shrink(&mut self) -> Result<(), Error> {
        let keys = self.index.len() > 2 * (self.keys_open + self.gone.len()) + SPARE;
        if keys || self.spans.len() > 4 * self.open + SPARE { self.rebuild() } else { Ok(()) }
    }

    fn rebuild(&mut self) -> Result<(), Error> {
        let mut named: Vec<bool> = self.newest.iter().map(|slot| *slot != NONE).collect();
        self.gone.iter().for_each(|gone| named[gone.group as usize] = true);
        let groups: Vec<u32> = (0..self.index.len() as u32).filter(|group| named[*group as usize]).collect();
        let types: Vec<DataType> = self.shape.keys.iter().map(|(_, ty)| ty.clone()).collect();
        let mut index = Index::new(&types);
        let mut assigned = Vec::new();
        index.assign(&self.index.keys(&groups)?, groups.len(), &mut self.scratch.encoded, &mut assigned)?;
        let mut new_group = vec![NO_GROUP; self.index.len()];
        groups.iter().zip(&assigned).for_each(|(old, new)| new_group[*old as usize] = *new);

        let slots: Vec<u32> = (0..self.spans.len() as u32).filter(|slot| self.spans[*slot as usize].group != NO_GROUP).collect();
        let mut new_slot = vec![NONE; self.spans.len()];
        slots.iter().zip(1..).for_each(|(old, new)| new_slot[*old as usize] = new);
        let new_slots: Vec<u32> = (1..=slots.len() as u32).collect();
        let mut accumulators = accumulators(&self.shape)?;
        for (new, old) in accumulators.iter_mut().zip(&self.accumulators) {
            new.grow(slots.len() + 1);
            new.restore(&new_slots, &old.image(&slots)?)?;
        }
        let (mut dirty, mut imaged) = (Bits::default(), Bits::default());
        for bits in [&mut dirty, &mut imaged] {
            bits.grow(slots.len() + 1);
        }
        let mut spans = vec![self.spans[NONE as usize]];
        for (old, new) in slots.iter().zip(&new_slots) {
            let span = self.spans[*old as usize];
            spans.push(Span { group: new_group[span.group as usize], older: new_slot[span.older as usize], ..span });
            dirty.put(*new, self.dirty.get(*old));
            imaged.put(*new, self.imaged.get(*old));
        }
        self.newest = groups.iter().map(|group| new_slot[self.newest[*group as usize] as usize]).collect();
        self.gone.iter_mut().for_each(|gone| gone.group = new_group[gone.group as usize]);
        self.due = new_slots.iter().map(|slot| Reverse((spans[*slot as usize].end_ms, *slot))).collect();
        (self.index, self.spans, self.accumulators) = (index, spans, accumulators);
        (self.dirty, self.imaged, self.free) = (dirty, imaged, Vec::new());
        self.scratch = Scratch::default();
        Ok(())
    }
}

fn accumulators(shape: &Shape) -> Result<Vec<Box<dyn Accumulator>>, Error> {
    shape.aggregates.iter().map(|(_, aggregate)| accumulator(aggregate)).collect()
}
