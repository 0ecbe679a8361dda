//! Several images of one task into one that says the same: background compaction and restores.

use crate::envelope::{batch, broken};
use crate::error::Error;
use crate::io::StateImage;
use crate::route::key::Encoded;
use crate::state::index::{encoded_group, spread};
use crate::state::layout::{KEY_GROUP, PANE_START, WINDOW_START, scalar, sorted};
use crate::state::pages::Runs;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter_record_batch, interleave, not};
use arrow::datatypes::{DataType, Int64Type};
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::error::Class;

/// Column with the end of an entry's window, ms, of entries that do not all have one length: it is
/// retired by this. Images without it have the scalar `size_ms`.
pub const ENTRY_END: &str = "__a_end";
/// Column that is true for an entry that is no more though its window is not retired: it became
/// another, or part of another. It hides what older images say of the entry and must therefore stay
/// until the entry is retired, for which its [`ENTRY_END`] is no less than that of any of them.
pub const ENTRY_GONE: &str = "__a_gone";

/// The newest after-image of each (window or pane, key) of the images of one task, given oldest first;
/// retired windows are left out. Restoring the result equals restoring all of them, and so does
/// restoring it behind older images of the task.
///
/// Errors: no image, images of several tasks, or of different shapes.
pub fn merge_images(images: &[Arc<StateImage>]) -> Result<StateImage, Error> {
    let Some(newest) = images.last() else {
        return Err(Error::new(Class::Bug, "no state images to merge"));
    };
    let corrupt = |why: &str| Error::new(Class::Corrupt, format!("stored state of operator '{}' {why}", newest.operator));
    if images.iter().any(|image| image.operator != newest.operator || image.subtask != newest.subtask) {
        return Err(Error::new(Class::Bug, "only images of one task can be merged"));
    }
    if images.iter().any(|image| image.rows.schema().fields() != newest.rows.schema().fields()) {
        return Err(corrupt("has images of different columns"));
    }
    let lengths = Lengths::of(newest)?;
    let retired_ms = images.iter().map(|image| image.retired_ms).max().unwrap_or(i64::MIN);
    let mut seen = Seen::default();
    let mut picks = Vec::new();
    let mut encoded = Encoded::default();
    for (number, image) in images.iter().enumerate().rev() {
        let (starts, keys) = identity(&image.rows).ok_or_else(|| corrupt("lacks its leading columns"))?;
        let retired = lengths.retired(&image.rows, &starts, retired_ms).ok_or_else(|| corrupt("lacks the ends of its windows"))?;
        let left = (0..image.rows.num_rows()).filter(|row| !retired.value(*row));
        if images.len() == 1 {
            // An image has one row an entry.
            picks.extend(left.map(|row| (number, row)));
            break;
        }
        encoded.encode(&keys, image.rows.num_rows())?;
        let hashes = encoded.hashes();
        match number {
            // Nothing is older than this one, and it is the largest as a rule.
            0 => picks.extend(left.filter(|row| !seen.has(hashes[*row], encoded.key(*row))).map(|row| (number, row))),
            _ => picks.extend(left.filter(|row| seen.add(hashes[*row], encoded.key(*row))).map(|row| (number, row))),
        }
    }
    picks.sort_unstable();
    let columns = (0..newest.rows.num_columns())
        .map(|i| {
            let arrays: Vec<&dyn Array> = images.iter().map(|image| image.rows.column(i).as_ref()).collect();
            interleave(&arrays, &picks).map_err(broken)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let rows = batch(newest.rows.schema(), columns, picks.len())?;
    Ok(StateImage {
        operator: newest.operator.clone(),
        subtask: newest.subtask,
        rows: sorted(&rows)?,
        retired_ms,
        scalars: newest.scalars.clone(),
    })
}

/// Entries that newer images have.
#[derive(Default)]
struct Seen {
    keys: Runs,
    table: HashTable<u32>,
}

impl Seen {
    fn has(&self, hash: u64, key: &[u8]) -> bool {
        self.table.find(spread(hash), |number| self.keys.get(*number) == key).is_some()
    }

    /// False where it was there.
    fn add(&mut self, hash: u64, key: &[u8]) -> bool {
        let before = self.keys.len();
        encoded_group(&mut self.keys, &mut self.table, hash, key);
        self.keys.len() > before
    }
}

/// How long the windows of an image are.
enum Lengths {
    /// All the same.
    Fixed(i64),
    /// Each entry has its end.
    Own,
}

impl Lengths {
    fn of(image: &StateImage) -> Result<Self, Error> {
        match image.rows.column_by_name(ENTRY_END) {
            Some(_) => Ok(Lengths::Own),
            None => scalar(image, "size_ms").map(Lengths::Fixed),
        }
    }

    /// Which of the entries that start at `starts` are retired.
    fn retired(&self, rows: &RecordBatch, starts: &ArrayRef, retired_ms: i64) -> Option<BooleanBuffer> {
        let over = |array: &ArrayRef, length_ms: i64| {
            let ends = array.as_primitive_opt::<Int64Type>()?.values().clone();
            // An end past the end of time has not been reached.
            Some(BooleanBuffer::collect_bool(ends.len(), |row| ends[row].checked_add(length_ms).is_some_and(|end| end <= retired_ms)))
        };
        match self {
            Lengths::Fixed(size_ms) => over(starts, *size_ms),
            Lengths::Own => over(rows.column_by_name(ENTRY_END)?, 0),
        }
    }
}

/// The images of several tasks of an operator, oldest first, as one image for each task, without
/// entries that are no more.
///
/// Errors: as [`merge_images`].
pub(crate) fn merge_by_task(images: &[Arc<StateImage>]) -> Result<Vec<StateImage>, Error> {
    let mut by_subtask: BTreeMap<u32, Vec<Arc<StateImage>>> = BTreeMap::new();
    for image in images {
        by_subtask.entry(image.subtask).or_default().push(image.clone());
    }
    by_subtask.values().map(|images| merge_images(images).and_then(left)).collect()
}

/// Without entries that are no more.
fn left(image: StateImage) -> Result<StateImage, Error> {
    let Some(gone) = image.rows.column_by_name(ENTRY_GONE).and_then(|gone| gone.as_boolean_opt()) else { return Ok(image) };
    let rows = filter_record_batch(&image.rows, &not(gone).map_err(broken)?).map_err(broken)?;
    Ok(StateImage { rows, ..image })
}

/// The starts, and the columns that make an entry what it is: start and, as keys, all up to the first that aggregates have.
fn identity(rows: &RecordBatch) -> Option<(ArrayRef, Vec<ArrayRef>)> {
    let schema = rows.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let [KEY_GROUP, WINDOW_START | PANE_START, ..] = names.as_slice() else { return None };
    if rows.column(0).data_type() != &DataType::UInt32 || rows.column(1).data_type() != &DataType::Int64 {
        return None;
    }
    // Keys follow the two; the first aggregate's column ends them.
    let keys = names.iter().skip(2).take_while(|name| !name.starts_with("__a")).count();
    Some((rows.column(1).clone(), rows.columns()[1..2 + keys].to_vec()))
}
