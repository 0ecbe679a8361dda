//! The image of sessions (format version 1), rows ascending by the first column:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `__key_group` | UInt32 | by the key law |
//! | `__window_start` | Int64 | time of the first row, ms |
//! | the keys | as in the input | by their names |
//! | `__a_end` | Int64 | time of the last row and the gap, ms |
//! | `__a_gone` | Boolean | no session begins here any more |
//! | `__a<i>_<part>` | by accumulator | state of aggregate i; NULL where the session is gone |
//!
//! A session is known by its key and its start. Its start moves when an earlier row joins it, and it
//! vanishes in an older one when a row joins the two; then what older images say is hidden by an entry
//! that is gone. No session of that key begins there again, since the time lies within one.
//!
//! Scalars: `gap_ms`, `fired_ms` and `evicted_below_ms`, as [`super::Marks`] says.

use super::{NONE, Sessions, Shape};
use crate::accumulate::Accumulator;
use crate::envelope::{batch, broken};
use crate::error::Error;
use crate::io::{Restored, StateImage};
use crate::state::layout::{KEY_GROUP, WINDOW_START, owned_rows, scalar, sorted};
use crate::state::merge::{ENTRY_END, ENTRY_GONE, merge_by_task};
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use std::sync::Arc;
use weir_planner::error::Class;

pub(super) fn schema(shape: &Shape, accumulators: &[Box<dyn Accumulator>]) -> Arc<ArrowSchema> {
    let mut fields = vec![Field::new(KEY_GROUP, DataType::UInt32, false), Field::new(WINDOW_START, DataType::Int64, false)];
    fields.extend(shape.keys.iter().map(|(name, ty)| Field::new(name, ty.clone(), true)));
    fields.extend([Field::new(ENTRY_END, DataType::Int64, false), Field::new(ENTRY_GONE, DataType::Boolean, false)]);
    for (i, accumulator) in accumulators.iter().enumerate() {
        fields.extend(accumulator.image_fields().into_iter().map(|(part, ty)| Field::new(format!("__a{i}_{part}"), ty, true)));
    }
    Arc::new(ArrowSchema::new(fields))
}

impl Sessions {
    /// What changed since the last image; `None` when nothing did.
    pub fn freeze(&mut self) -> Result<Option<StateImage>, Error> {
        let slots: Vec<u32> = self.dirty.ones().collect();
        if slots.is_empty() && self.gone.is_empty() && self.marks == self.marks_imaged {
            return Ok(None);
        }
        let live = self.live_rows(&slots)?;
        let rows = if self.gone.is_empty() { live } else { concat_batches(&self.schema, [&live, &self.gone_rows()?]).map_err(broken)? };
        self.dirty.clear();
        slots.iter().for_each(|slot| self.imaged.set(*slot));
        self.gone = Vec::new();
        self.marks_imaged = self.marks;
        Ok(Some(StateImage {
            operator: self.shape.operator.clone(),
            subtask: self.shape.subtask,
            rows: sorted(&rows)?,
            retired_ms: self.marks.fired_ms.max(self.marks.evicted_ms),
            scalars: vec![
                ("gap_ms".to_owned(), self.shape.gap_ms),
                ("fired_ms".to_owned(), self.marks.fired_ms),
                ("evicted_below_ms".to_owned(), self.marks.evicted_ms),
            ],
        }))
    }

    fn live_rows(&self, slots: &[u32]) -> Result<RecordBatch, Error> {
        let spans = || slots.iter().map(|slot| &self.spans[*slot as usize]);
        let groups: Vec<u32> = spans().map(|span| span.group).collect();
        let mut columns = self.leading(&groups, spans().map(|span| span.first_ms), spans().map(|span| span.end_ms), false)?;
        for accumulator in &self.accumulators {
            columns.extend(accumulator.image(slots)?);
        }
        batch(self.schema.clone(), columns, slots.len())
    }

    fn gone_rows(&self) -> Result<RecordBatch, Error> {
        let groups: Vec<u32> = self.gone.iter().map(|gone| gone.group).collect();
        let (starts, ends) = (self.gone.iter().map(|gone| gone.first_ms), self.gone.iter().map(|gone| gone.end_ms));
        let mut columns = self.leading(&groups, starts, ends, true)?;
        columns.extend(self.schema.fields().iter().skip(columns.len()).map(|field| new_null_array(field.data_type(), groups.len())));
        batch(self.schema.clone(), columns, groups.len())
    }

    fn leading(
        &self,
        groups: &[u32],
        starts: impl Iterator<Item = i64>,
        ends: impl Iterator<Item = i64>,
        gone: bool,
    ) -> Result<Vec<ArrayRef>, Error> {
        let key_group = |hash: &u64| (*hash % u64::from(self.shape.max_parallelism)) as u32;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(self.index.hashes(groups).iter().map(key_group))),
            Arc::new(Int64Array::from_iter_values(starts)),
        ];
        columns.extend(self.index.keys(groups)?);
        columns.push(Arc::new(Int64Array::from_iter_values(ends)));
        columns.push(Arc::new(BooleanArray::from(vec![gone; groups.len()])));
        Ok(columns)
    }

    /// Puts sessions back from the images of one or more former tasks, oldest first. Rows of key
    /// groups that this task does not own are left out.
    ///
    /// Errors: class `Corrupt` when the images are not of this operator's shape.
    pub fn restore(&mut self, restored: &Restored) -> Result<(), Error> {
        let mut fired = None;
        for merged in merge_by_task(&restored.images)? {
            // What one task has fired another may still have had open: the least of them holds,
            // since fired sessions are gone from each.
            let mark = scalar(&merged, "fired_ms")?;
            fired = Some(fired.map_or(mark, |least: i64| least.min(mark)));
            self.marks.evicted_ms = self.marks.evicted_ms.max(scalar(&merged, "evicted_below_ms")?);
            if scalar(&merged, "gap_ms")? != self.shape.gap_ms {
                return Err(self.corrupt("was written by sessions of another gap"));
            }
            self.put(&merged.rows, restored.redealt)?;
        }
        self.mark_fired(fired.unwrap_or(i64::MIN));
        if !restored.redealt {
            self.marks_imaged = self.marks;
        }
        Ok(())
    }

    fn put(&mut self, rows: &RecordBatch, redealt: bool) -> Result<(), Error> {
        let rows = owned_rows(rows, &self.schema, &self.shape.owned)?;
        let rows = rows.ok_or_else(|| self.corrupt("has other columns than the operator's state"))?;
        // Each goes before the next newer one of its key.
        let starts = rows.column(1).as_primitive::<Int64Type>().values();
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_by_key(|row| starts[*row as usize]);
        let rows = take_record_batch(&rows, &UInt32Array::from(order)).map_err(broken)?;
        let starts = rows.column(1).as_primitive::<Int64Type>().values();
        let (keys, rest) = rows.columns()[2..].split_at(self.shape.keys.len());
        let mut groups = Vec::new();
        self.index.assign(keys, rows.num_rows(), &mut self.scratch.encoded, &mut groups)?;
        self.newest.resize(self.index.len(), NONE);
        let ends = rest[0].as_primitive::<Int64Type>().values();
        let mut slots = Vec::with_capacity(rows.num_rows());
        for ((group, start), end) in groups.iter().zip(starts).zip(ends) {
            let newest = self.newest[*group as usize];
            if end < start || (newest != NONE && self.spans[newest as usize].end_ms > *start) {
                return Err(self.corrupt("has sessions of one key that overlap"));
            }
            slots.push(self.begin(*group, (*start, *end), NONE, newest));
        }
        self.grow();
        let mut rest = &rest[2..];
        for accumulator in &mut self.accumulators {
            let (own, others) = rest.split_at(accumulator.image_fields().len());
            accumulator.restore(&slots, own)?;
            rest = others;
        }
        let bits = if redealt { &mut self.dirty } else { &mut self.imaged };
        slots.iter().for_each(|slot| bits.set(*slot));
        Ok(())
    }

    fn corrupt(&self, why: &str) -> Error {
        Error::new(Class::Corrupt, format!("stored state of operator '{}' {why}", self.shape.operator))
    }
}
