//! A table's image: what changed stands still at a barrier, and is put into columns by another thread (CKP-4).

use super::image::SEEN;
use super::{Entry, PaneId, Table};
use crate::envelope::{batch, broken};
use crate::error::Error;
use crate::io::{FrozenImage, StateImage};
use crate::state::cells::Frozen;
use crate::state::layout::{Marks, fingerprint, image_schema, sorted};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, Schema as ArrowSchema};
use std::sync::Arc;
use weir_planner::error::Class;

/// Until when entries are needed.
enum Ends {
    /// All until this, ms.
    At(i64),
    /// Each for so long after the time that its last state column holds, ms.
    After(i64),
}

/// Changed groups of one pane.
struct Part {
    id: PaneId,
    ends: Ends,
    cells: Frozen,
}

impl Part {
    fn rows(&self, schema: &Arc<ArrowSchema>, max_parallelism: u32) -> Result<RecordBatch, Error> {
        let image = self.cells.image(max_parallelism)?;
        let count = image.key_groups.len();
        let same = |ms: i64| Arc::new(Int64Array::from_value(ms, count)) as ArrayRef;
        let ends = match self.ends {
            Ends::At(ms) => same(ms),
            Ends::After(horizon_ms) => {
                let times = image.states.last().and_then(|times| times.as_primitive_opt::<Int64Type>());
                let times = times.ok_or_else(|| Error::new(Class::Bug, "the times of keys are no numbers"))?;
                // A key without a time had only rows that came too late to count for it.
                let end = |time: Option<i64>| time.unwrap_or(i64::MIN).saturating_add(horizon_ms);
                Arc::new(Int64Array::from_iter_values(times.iter().map(end)))
            }
        };
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(image.key_groups)), same(self.id.0), same(self.id.1)];
        columns.extend(image.keys);
        columns.push(ends);
        columns.extend(image.states);
        batch(schema.clone(), columns, count)
    }
}

impl Table {
    /// What changed since the last image; `None` when nothing did. It stands still from now on, and little is copied.
    pub fn freeze(&mut self) -> Result<Option<FrozenImage>, Error> {
        let mut parts = Vec::new();
        for Entry { pane, cells } in self.panes.values_mut() {
            if let Some(cells) = cells.freeze()? {
                parts.push(Part { id: (pane.start_ms, pane.first_end_ms), ends: Ends::At(pane.last_end_ms), cells });
            }
        }
        if let Some(seen) = &mut self.seen
            && let Some(cells) = seen.cells.freeze()?
        {
            parts.push(Part { id: SEEN, ends: Ends::After(seen.horizon_ms), cells });
        }
        if parts.is_empty() && self.marks == self.imaged {
            return Ok(None);
        }
        self.imaged = self.marks;
        let Marks { fired_ms, retired_ms, evicted_ms } = self.marks;
        let scalars = [
            ("windows", fingerprint(&self.shape.windows)),
            ("fired_ms", fired_ms),
            ("retired_ms", retired_ms),
            ("evicted_below_ms", evicted_ms),
        ];
        let scalars = scalars.map(|(name, value)| (name.to_owned(), value)).into();
        let (operator, subtask, retired_ms) = (self.shape.operator.clone(), self.shape.subtask, self.marks.gone_ms());
        let (schema, max_parallelism) = (image_schema(&self.shape)?, self.shape.max_parallelism);
        let named = operator.clone();
        Ok(Some(FrozenImage::later(operator.clone(), subtask, move || {
            let parts = parts.iter().map(|part| part.rows(&schema, max_parallelism)).collect::<Result<Vec<_>, _>>()?;
            let rows = match parts.as_slice() {
                [only] => only.clone(),
                parts => sorted(&concat_batches(&schema, parts).map_err(broken)?)?,
            };
            Ok(StateImage { operator: named, subtask, rows, retired_ms, scalars })
        })))
    }
}
