//! What is stored of an operator, as rows for people (ST-1). It is made from images alone, on a reader's thread: no task is asked.

use crate::envelope::{BATCH_ROWS, batch, broken};
use crate::error::Error;
use crate::io::{Restored, StateImage};
use crate::operator::results::WindowRows;
use crate::operator::{session, window};
use crate::route::key::Encoded;
use crate::state::cells::Cells;
use crate::state::merge::merge_by_task;
use crate::state::panes::{Table, Touched};
use crate::state::sessions::Sessions;
use crate::state::{held, tops};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{cast, concat, filter_record_batch};
use arrow::datatypes::{Int64Type, Schema as ArrowSchema, TimestampMillisecondType};
use std::collections::VecDeque;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::keygroup;
use weir_planner::plan::{PlanOperator, Work};
use weir_planner::state::{Kept, table};

/// Rows of one task's state, a batch at a time. Shape: the columns of [`weir_planner::state::table`] but for the last two.
pub struct View {
    operator: PlanOperator,
    columns: Arc<ArrowSchema>,
    rows: Rows,
}

enum Rows {
    Windows { table: Box<Table>, touched: Touched, ends: VecDeque<i64>, open: Option<(i64, Cells, u32)> },
    Sessions { sessions: Box<Sessions>, slots: Vec<u32>, given: usize },
    Stored { rows: RecordBatch, given: usize },
}

/// Keys that are asked for: names, and arrays of one value each, of the columns' own types.
pub type Keys = [(String, ArrayRef)];

/// The key group of a whole key.
///
/// Errors: a column that cannot be a key.
pub fn key_group(keys: &[ArrayRef], max_parallelism: u32) -> Result<u32, Error> {
    let mut encoded = Encoded::default();
    encoded.hash(keys, 1)?;
    let hash = encoded.hashes().first().copied().unwrap_or_default();
    Ok(keygroup::group(hash, max_parallelism).get())
}

impl View {
    /// Of the images of one task, oldest first; only entries with these keys.
    ///
    /// Errors: class `Corrupt` when the images are not of the operator's shape; `Bug` for an operator without state.
    pub fn open(operator: &PlanOperator, max_parallelism: u32, images: &[Arc<StateImage>], keys: &Keys) -> Result<View, Error> {
        let nothing = || Error::new(Class::Bug, format!("operator '{}' has no state in images", operator.id));
        let told = table(operator).ok_or_else(nothing)?;
        let own = told.schema.0.len() - 2;
        let columns = Arc::new(told.schema.to_arrow().project(&(0..own).collect::<Vec<_>>()).map_err(broken)?);
        let images = images.iter().map(|image| only(image, keys).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let key_types = columns.fields().iter().take(told.keys).map(|field| (field.name().clone(), field.data_type().clone())).collect();
        let all = (max_parallelism, 0..max_parallelism);
        let restored = |images| Restored { images, redealt: false };
        let rows = match (&operator.work, told.kept) {
            (Work::Window(work), Kept::Windows) => {
                let mut table = window::table(&operator.id, work, key_types, 0, all)?;
                table.restore(&restored(images))?;
                let touched = table.all();
                let ends = table.ends(&touched, table.marks().gone_ms(), i64::MAX).into_iter().collect();
                Rows::Windows { table: Box::new(table), touched, ends, open: None }
            }
            (Work::Window(work), Kept::Sessions) => {
                let mut sessions = session::sessions(&operator.id, work, key_types, 0, all)?;
                sessions.restore(&restored(images))?;
                Rows::Sessions { slots: sessions.slots(), sessions: Box::new(sessions), given: 0 }
            }
            (Work::Top(_), Kept::Candidates) => {
                Rows::Stored { rows: stored(&columns, &images, tops::FIRST_COLUMN, tops::TIME_COLUMN)?, given: 0 }
            }
            (Work::Buffer(_), Kept::Held) => {
                Rows::Stored { rows: stored(&columns, &images, held::FIRST_COLUMN, held::TIME_COLUMN)?, given: 0 }
            }
            _ => return Err(nothing()),
        };
        Ok(View { operator: operator.clone(), columns, rows })
    }

    /// The next rows; `None` after the last.
    ///
    /// Errors: an aggregate that its type cannot hold.
    pub fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let View { operator, columns, rows } = self;
        match rows {
            Rows::Stored { rows, given } => {
                let count = BATCH_ROWS.min(rows.num_rows() - *given);
                *given += count;
                Ok((count > 0).then(|| rows.slice(*given - count, count)))
            }
            Rows::Sessions { sessions, slots, given } => {
                let picked: Vec<u32> = slots.iter().skip(*given).take(BATCH_ROWS).copied().collect();
                *given += picked.len();
                if picked.is_empty() {
                    return Ok(None);
                }
                let found = sessions.results(&picked)?;
                let (starts, ends) = (Int64Array::from(found.starts), Int64Array::from(found.ends));
                // Sessions leave as they fire.
                let rows = WindowRows { keys: found.keys, starts, ends, aggregates: found.aggregates, mark: Some(false) };
                Ok(Some(rows.data(&operator.id, columns)?.rows))
            }
            Rows::Windows { table, touched, ends, open } => loop {
                let Some((end, cells, given)) = open else {
                    let Some(end) = ends.pop_front() else { return Ok(None) };
                    *open = Some((end, table.some(end, touched)?, 0));
                    continue;
                };
                let (from, upto) = (*given, (*given + BATCH_ROWS as u32).min(cells.len() as u32));
                if from == upto {
                    *open = None;
                    continue;
                }
                *given = upto;
                let (keys, mut aggregates) = table.results(cells, from..upto)?;
                if let Work::Window(work) = &operator.work {
                    // Where keys get empty windows there is one more, the time of their last row.
                    aggregates.truncate(work.aggregates.len());
                }
                let count = (upto - from) as usize;
                let (starts, ends) = (Int64Array::from_value(table.start_of(*end), count), Int64Array::from_value(*end, count));
                let rows = WindowRows { keys, starts, ends, aggregates, mark: Some(*end <= table.marks().fired_ms) };
                return Ok(Some(rows.data(&operator.id, columns)?.rows));
            },
        }
    }
}

/// An image with the entries of these keys alone.
fn only(image: &Arc<StateImage>, keys: &Keys) -> Result<StateImage, Error> {
    let mut rows = image.rows.clone();
    for (name, value) in keys {
        let Some(column) = rows.column_by_name(name).filter(|column| column.data_type() == value.data_type()) else { continue };
        let mask = not_distinct(column, &arrow::array::Scalar::new(value.clone())).map_err(broken)?;
        rows = filter_record_batch(&rows, &mask).map_err(broken)?;
    }
    Ok(StateImage { rows, ..StateImage::clone(image) })
}

/// Whole rows out of images: columns from `first` on, and the time in column `time`.
fn stored(columns: &Arc<ArrowSchema>, images: &[Arc<StateImage>], first: usize, time: usize) -> Result<RecordBatch, Error> {
    let mut found: Vec<Vec<ArrayRef>> = Vec::new();
    for merged in merge_by_task(images)? {
        let corrupt = || Error::new(Class::Corrupt, format!("stored state of operator '{}' lacks columns", merged.operator));
        let times = merged.rows.columns().get(time).and_then(|times| times.as_primitive_opt::<Int64Type>()).ok_or_else(corrupt)?;
        let own = merged.rows.columns().get(first..).ok_or_else(corrupt)?;
        found.push(own.iter().cloned().chain([moments(times.clone())]).collect());
    }
    let column = |at: usize| {
        let parts: Vec<ArrayRef> = found.iter().filter_map(|columns| columns.get(at).cloned()).collect();
        let ty = columns.field(at).data_type();
        match parts.is_empty() {
            true => Ok(arrow::array::new_empty_array(ty)),
            false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>()).and_then(|column| cast(&column, ty)).map_err(broken),
        }
    };
    let arrays = (0..columns.fields().len()).map(column).collect::<Result<Vec<_>, Error>>()?;
    let count = arrays.last().map_or(0, |times| times.len());
    batch(columns.clone(), arrays, count)
}

fn moments(times: Int64Array) -> ArrayRef {
    Arc::new(times.reinterpret_cast::<TimestampMillisecondType>())
}

#[cfg(test)]
mod tests;
