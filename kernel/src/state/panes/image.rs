//! Back from images.

use super::{Entry, PaneId, Table};
use crate::envelope::broken;
use crate::error::Error;
use crate::io::Restored;
use crate::state::cells::Cells;
use crate::state::layout::{LEADING, Marks, fingerprint, image_schema, owned_rows, scalar};
use crate::state::merge::merge_by_task;
use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;
use weir_planner::error::Class;
use weir_planner::window::Pane;

/// What entries of keys that were seen stand under.
pub(super) const SEEN: PaneId = (i64::MIN, i64::MIN);

impl Table {
    /// Puts state back from the images of one or more former tasks, oldest first. Rows of key
    /// groups that this task does not own are left out.
    ///
    /// Errors: class `Corrupt` when the images are not of this operator's shape.
    pub fn restore(&mut self, restored: &Restored) -> Result<(), Error> {
        let mut tasks = Vec::new();
        for merged in merge_by_task(&restored.images)? {
            if scalar(&merged, "windows")? != fingerprint(&self.shape.windows) {
                return Err(self.corrupt("was written by windows of another size or shape"));
            }
            let fired_ms = scalar(&merged, "fired_ms")?;
            // Windows that leave as they fire leave nothing of what was kept to be revised.
            let retired_ms = if self.shape.revises { scalar(&merged, "retired_ms")? } else { fired_ms };
            let evicted_ms = scalar(&merged, "evicted_below_ms")?;
            tasks.push((merged.rows, Marks { fired_ms, retired_ms, evicted_ms }));
        }
        // What one task has fired another may still have had open: the least of them holds.
        let least = |pick: fn(&Marks) -> i64| tasks.iter().map(|(_, marks)| pick(marks)).min().unwrap_or(i64::MIN);
        self.marks = Marks {
            fired_ms: least(|marks| marks.fired_ms),
            retired_ms: least(|marks| marks.retired_ms),
            evicted_ms: tasks.iter().map(|(_, marks)| marks.evicted_ms).max().unwrap_or(i64::MIN),
        };
        self.imaged = if restored.redealt { Marks::NONE } else { self.marks };
        if let Some(seen) = &mut self.seen {
            seen.given_ms = self.marks.fired_ms;
        }
        let gone_ms = least(Marks::gone_ms);
        for (rows, marks) in &tasks {
            // And what it has done with is not for a window that only others still have.
            let own_ms = marks.gone_ms();
            self.put(rows, gone_ms, (own_ms > gone_ms).then_some(own_ms))?;
        }
        if restored.redealt {
            self.panes.values_mut().for_each(|entry| entry.cells.touch_all());
            self.seen.iter_mut().for_each(|seen| seen.cells.touch_all());
        }
        Ok(())
    }

    /// Puts rows back; panes go on after `gone_ms`, or where they are ahead of it count only from there on.
    fn put(&mut self, rows: &RecordBatch, gone_ms: i64, ahead_ms: Option<i64>) -> Result<(), Error> {
        let schema = image_schema(&self.shape)?;
        let rows = owned_rows(rows, &schema, &self.shape.owned)?;
        let rows = rows.ok_or_else(|| self.corrupt("has other columns than the operator's state"))?;
        let number = |at: usize| rows.column(at).as_primitive::<Int64Type>().values().clone();
        let (starts, froms) = (number(1), number(2));
        let mut panes: BTreeMap<PaneId, Vec<u32>> = BTreeMap::new();
        for (row, id) in starts.iter().copied().zip(froms.iter().copied()).enumerate() {
            panes.entry(id).or_default().push(row as u32);
        }
        for ((start, from), picked) in panes {
            if (start, from) == SEEN {
                let part = take_record_batch(&rows, &UInt32Array::from(picked)).map_err(broken)?;
                self.put_seen(&part)?;
                continue;
            }
            let pane = self.shape.windows.pane_named(start, from).ok_or_else(|| self.corrupt("has a pane that its windows do not have"))?;
            let Some(next) = pane.end_after(ahead_ms.unwrap_or(gone_ms)) else { continue };
            let part = take_record_batch(&rows, &UInt32Array::from(picked)).map_err(broken)?;
            match ahead_ms {
                Some(_) => self.put_pane(Pane { first_end_ms: next, ..pane }, next, &part, true)?,
                None => self.put_pane(pane, next, &part, false)?,
            }
        }
        Ok(())
    }

    fn put_seen(&mut self, part: &RecordBatch) -> Result<(), Error> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let (keys, states) = part.columns()[LEADING..].split_at(self.shape.keys.len());
        seen.cells.restore(keys, part.num_rows(), &states[1..], &mut self.scratch)?;
        seen.look()
    }

    fn put_pane(&mut self, pane: Pane, next: i64, part: &RecordBatch, anew: bool) -> Result<(), Error> {
        use std::collections::btree_map::Entry as Slot;
        let id = (pane.start_ms, pane.first_end_ms);
        let entry = match self.panes.entry(id) {
            Slot::Occupied(found) => found.into_mut(),
            Slot::Vacant(free) => {
                self.live.put(next, id);
                if self.shape.revises
                    && let Some(due) = pane.end_after(self.marks.fired_ms.max(next.saturating_sub(1)))
                {
                    self.due.put(due, id);
                }
                free.insert(Entry { pane, cells: Cells::new(&self.types, &self.shape.aggregates)? })
            }
        };
        let (entries, bytes) = (entry.cells.len(), entry.cells.bytes());
        let (keys, states) = part.columns()[LEADING..].split_at(self.shape.keys.len());
        if anew {
            // Panes of one start that counted from different windows are one now, and may have the same keys.
            let mut own = Cells::new(&self.types, &self.shape.aggregates)?;
            own.restore(keys, part.num_rows(), &states[1..], &mut self.scratch)?;
            entry.cells.absorb(&own, &mut self.scratch)?;
            entry.cells.touch_all();
        } else {
            entry.cells.restore(keys, part.num_rows(), &states[1..], &mut self.scratch)?;
        }
        self.entries += entry.cells.len() - entries;
        self.bytes = self.bytes + entry.cells.bytes() - bytes;
        Ok(())
    }

    fn corrupt(&self, why: &str) -> Error {
        Error::new(Class::Corrupt, format!("stored state of operator '{}' {why}", self.shape.operator))
    }
}
