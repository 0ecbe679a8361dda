//! Rows of a batch by pane. Most batches lie in one pane and never come here.

use crate::accumulate::piece::Piece;
use crate::envelope::broken;
use crate::error::Error;
use crate::operator::window::judge::Judge;
use crate::operator::window::places::Places;
use arrow::array::UInt32Array;
use arrow::compute::take;
use hashbrown::HashMap;
use weir_planner::window::Pane;

/// Splits batches; its buffers are used again from batch to batch.
#[derive(Default)]
pub(crate) struct Splitter {
    rows_of: Vec<Vec<u32>>,
    panes: Vec<(Pane, usize)>,
    known: HashMap<(i64, i64), usize>,
}

impl Splitter {
    /// Sorts row numbers by pane. Windows that are gone by `gone_ms`, or by a row's stamp, do not
    /// count for it.
    ///
    /// Errors: a window out of range.
    pub(crate) fn split(&mut self, judge: &Judge, places: &Places<'_>, gone_ms: i64) -> Result<(), Error> {
        self.known.clear();
        self.panes.clear();
        match places {
            Places::Times { times, stamps } if judge.own() => self.split_own(judge, times, *stamps, gone_ms)?,
            Places::Times { times, stamps } => self.split_times(judge, times, *stamps, gone_ms)?,
            Places::Panes { starts, froms } => {
                let mut last: Option<(i64, i64, usize)> = None;
                for (row, (start, from)) in starts.iter().zip(*froms).enumerate() {
                    let slot = match last {
                        Some((known_start, known_from, slot)) if known_start == *start && known_from == *from => Some(slot),
                        _ => self.slot(judge.named(*start, *from)?, gone_ms),
                    };
                    if let Some(slot) = slot {
                        last = Some((*start, *from, slot));
                        self.rows_of[slot].push(row as u32);
                    }
                }
            }
        }
        self.panes.sort_unstable_by_key(|(pane, _)| (pane.first_end_ms, pane.start_ms));
        Ok(())
    }

    fn split_times(&mut self, judge: &Judge, times: &[i64], stamps: Option<&[i64]>, gone_ms: i64) -> Result<(), Error> {
        // Rows come mostly in order, now and then across a boundary: the last two panes are the likely ones.
        let mut recent: [Option<(Pane, Option<usize>)>; 2] = [None, None];
        for (row, time) in times.iter().enumerate() {
            let holds =
                |known: &Option<(Pane, Option<usize>)>| known.is_some_and(|(pane, _)| pane.start_ms <= *time && *time < pane.end_ms);
            if !holds(&recent[0]) {
                recent.swap(0, 1);
                if !holds(&recent[0]) {
                    let Some(pane) = judge.pane(*time)? else { continue };
                    recent[0] = Some((pane, self.slot(pane, gone_ms)));
                }
            }
            let Some((pane, slot)) = recent[0] else { continue };
            let late_through = stamps.map_or(i64::MIN, |stamps| judge.late_through(stamps[row]));
            let slot = if pane.first_end_ms > late_through { slot } else { self.slot(pane, late_through.max(gone_ms)) };
            if let Some(slot) = slot {
                self.rows_of[slot].push(row as u32);
            }
        }
        Ok(())
    }

    /// Every row in a pane for each of its windows.
    fn split_own(&mut self, judge: &Judge, times: &[i64], stamps: Option<&[i64]>, gone_ms: i64) -> Result<(), Error> {
        for (row, time) in times.iter().enumerate() {
            let gone_ms = stamps.map_or(gone_ms, |stamps| judge.late_through(stamps[row]).max(gone_ms));
            let mut next = judge.pane(*time)?;
            while let Some(pane) = next {
                if let Some(slot) = self.slot(pane, gone_ms) {
                    self.rows_of[slot].push(row as u32);
                }
                next = judge.next_pane(*time, &pane)?;
            }
        }
        Ok(())
    }

    /// Where rows of a pane go for which windows up to `gone_ms` do not count; nowhere without a window.
    fn slot(&mut self, pane: Pane, gone_ms: i64) -> Option<usize> {
        let pane = Pane { first_end_ms: pane.end_after(gone_ms)?, ..pane };
        let next = self.panes.len();
        let slot = *self.known.entry((pane.start_ms, pane.first_end_ms)).or_insert(next);
        if slot == next {
            self.panes.push((pane, slot));
            match self.rows_of.get_mut(slot) {
                Some(rows) => rows.clear(),
                None => self.rows_of.push(Vec::new()),
            }
        }
        Some(slot)
    }

    /// Panes with their row numbers, by the first window that counts.
    pub(crate) fn panes(&self) -> impl Iterator<Item = (Pane, &[u32])> {
        self.panes.iter().map(|(pane, slot)| (*pane, self.rows_of[*slot].as_slice())).filter(|(_, rows)| !rows.is_empty())
    }

    /// The parts of `whole`, in the same order.
    pub(crate) fn pieces(&self, whole: &Piece) -> Result<Vec<(Pane, Piece)>, Error> {
        self.panes().map(|(pane, rows)| Ok((pane, part(whole, rows)?))).collect()
    }
}

fn part(whole: &Piece, rows: &[u32]) -> Result<Piece, Error> {
    // Ascending row numbers without a gap are a slice: nothing is copied.
    let run = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if (last - first) as usize + 1 == rows.len() => Some(*first as usize),
        _ => None,
    };
    let indices = UInt32Array::from(if run.is_some() { Vec::new() } else { rows.to_vec() });
    whole.map(rows.len(), &|array| match run {
        Some(first) => Ok(array.slice(first, rows.len())),
        None => take(array, &indices, None).map_err(broken),
    })
}
