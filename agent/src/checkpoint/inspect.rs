//! Looks at checkpoints from outside: what the state store holds, whether each file is whole, and what is in it. Nothing is
//! written, and no hub or agent is asked.

use super::fetch;
use super::store::StateStore;
use super::upload::needed;
use crate::error::Error;
use crate::segment;
use arrow::array::{Array, RecordBatch};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weir_kernel::io::StateImage;
use weir_kernel::state::merge::merge_images;
use weir_planner::error::Class;
use weir_planner::id::TaskId;
use weir_planner::manifest::{Manifest, SegmentRef};

/// Manifests in a store: job, number, name of the object; by job, oldest first.
///
/// Errors: as the store's.
pub async fn manifests(store: &StateStore) -> Result<Vec<(String, u64, String)>, Error> {
    let listed = store.list("jobs").await?;
    let one = |(name, _): &(String, u64)| {
        let (job, number) = name.strip_prefix("jobs/")?.strip_suffix(".json")?.split_once("/checkpoints/")?;
        Some((job.to_owned(), number.parse().ok()?, name.clone()))
    };
    let mut found: Vec<_> = listed.iter().filter_map(one).collect();
    found.sort();
    Ok(found)
}

/// What a stateful task has in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// The task.
    pub task: TaskId,
    /// Its segments.
    pub segments: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries that are live when all of them are merged.
    pub entries: usize,
    /// Different keys among those.
    pub keys: usize,
    /// The first entries, `column=value` each, as far as they were asked for.
    pub shown: Vec<String>,
}

/// A checkpoint as it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// As written.
    pub manifest: Manifest,
    /// Stateful tasks, but for those of which a file is damaged.
    pub tasks: Vec<TaskState>,
    /// Files that are whole.
    pub whole: usize,
    /// What is missing or damaged, naming the object.
    pub faults: Vec<String>,
}

/// Reads a manifest and every file that it names, and merges the state of each task as a restore would, all of it in memory. At most
/// `entries` entries of each task are shown.
///
/// Errors: `Corrupt` for a manifest that is missing or does not verify; as the store's otherwise.
pub async fn inspect(store: &StateStore, object: &str, entries: usize) -> Result<Found, Error> {
    let corrupt = |why: &str| Error::new(Class::Corrupt, format!("{object}: {why}"));
    let bytes = store.get(object).await?.ok_or_else(|| corrupt("is missing"))?;
    let manifest = Manifest::decode(&bytes).map_err(|why| corrupt(&why))?;
    let (mut tasks, mut whole, mut faults) = (Vec::new(), 0, Vec::new());
    let mut images: BTreeMap<String, Arc<StateImage>> = BTreeMap::new();
    for file in needed(&manifest) {
        let bytes = match fetch::object(store, &manifest, &file).await {
            Ok(bytes) => bytes,
            Err(error) if error.class == Class::Corrupt => {
                faults.push(error.message);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !file.is_result {
            match segment::decode(&bytes) {
                Ok(image) => images.insert(file.name, Arc::new(image)),
                Err(error) => {
                    faults.push(format!("segment {}: {}", file.name, error.message));
                    continue;
                }
            };
        }
        whole += 1;
    }
    for of_task in manifest.cuts.values().flat_map(|cut| &cut.segments) {
        match task(&of_task.task, &of_task.segments, &images, entries) {
            Ok(Some(state)) => tasks.push(state),
            // One of its files is a fault already.
            Ok(None) => {}
            Err(error) => faults.push(format!("state of task {}: {}", of_task.task, error.message)),
        }
    }
    Ok(Found { manifest, tasks, whole, faults })
}

fn task(
    task: &TaskId,
    segments: &[SegmentRef],
    images: &BTreeMap<String, Arc<StateImage>>,
    most: usize,
) -> Result<Option<TaskState>, Error> {
    let own: Option<Vec<Arc<StateImage>>> = segments.iter().map(|segment| images.get(&segment.name).cloned()).collect();
    let Some(own) = own else { return Ok(None) };
    let bytes = segments.iter().map(|segment| segment.bytes).sum();
    let mut state = TaskState { task: task.clone(), segments: segments.len(), bytes, entries: 0, keys: 0, shown: Vec::new() };
    if own.is_empty() {
        return Ok(Some(state));
    }
    let rows = merge_images(&own)?.rows;
    state.entries = rows.num_rows();
    state.keys = keys(&rows).map_err(unshown)?;
    state.shown = shown(&rows.slice(0, most.min(rows.num_rows()))).map_err(unshown)?;
    Ok(Some(state))
}

fn unshown(source: arrow::error::ArrowError) -> Error {
    Error::because(Class::Corrupt, "entries cannot be shown", source)
}

/// Different keys: the columns that are neither of the layout nor of aggregates. Without any there is one, where there are entries.
fn keys(rows: &RecordBatch) -> Result<usize, arrow::error::ArrowError> {
    let schema = rows.schema();
    let columns: Vec<_> = schema.fields().iter().zip(rows.columns()).filter(|(field, _)| !field.name().starts_with("__")).collect();
    if columns.is_empty() {
        return Ok(usize::from(rows.num_rows() > 0));
    }
    let converter = RowConverter::new(columns.iter().map(|(field, _)| SortField::new(field.data_type().clone())).collect())?;
    let arrays: Vec<_> = columns.iter().map(|(_, column)| Arc::clone(column)).collect();
    let encoded = converter.convert_columns(&arrays)?;
    Ok(encoded.iter().map(|row| row.data()).collect::<HashSet<_>>().len())
}

/// Each row as `column=value` pairs.
fn shown(rows: &RecordBatch) -> Result<Vec<String>, arrow::error::ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns());
    let columns = columns
        .map(|(field, column)| Ok((field.name().clone(), ArrayFormatter::try_new(column.as_ref() as &dyn Array, &options)?)))
        .collect::<Result<Vec<_>, arrow::error::ArrowError>>()?;
    let row = |at| columns.iter().map(|(name, column)| format!("{name}={}", column.value(at))).collect::<Vec<_>>().join(" ");
    Ok((0..rows.num_rows()).map(row).collect())
}
