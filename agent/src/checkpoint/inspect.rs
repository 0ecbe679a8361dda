//! Looks at checkpoints from outside: what the state store holds, whether each file is whole, and what is in it. Nothing is
//! written, and no hub or agent is asked.

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
use weir_planner::manifest::{Manifest, SegmentRef, file_object};

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

/// Reads a manifest and every file that it names, one at a time, and merges the state of each task as a restore would. At most
/// `entries` entries of each task are shown.
///
/// Errors: `Corrupt` for a manifest that is missing or does not verify; as the store's otherwise.
pub async fn inspect(store: &StateStore, object: &str, entries: usize) -> Result<Found, Error> {
    let corrupt = |why: &str| Error::new(Class::Corrupt, format!("{object}: {why}"));
    let bytes = store.get(object).await?.ok_or_else(|| corrupt("is missing"))?;
    let manifest = Manifest::decode(&bytes).map_err(|why| corrupt(&why))?;
    let mut found = Found { manifest, tasks: Vec::new(), whole: 0, faults: Vec::new() };
    let manifest = found.manifest.clone();
    let mut images: BTreeMap<String, Arc<StateImage>> = BTreeMap::new();
    for file in needed(&manifest) {
        let Some(attempt) = manifest.files.get(&file.name) else {
            found.faults.push(format!("{object} does not say where {} is", file.name));
            continue;
        };
        let name = file_object(&manifest.job, *attempt, &file.name);
        match store.get(&name).await? {
            None => found.faults.push(format!("{name} is missing")),
            Some(bytes) if !file.matches(&bytes) => {
                found.faults.push(format!("{name} does not match its checksum ({} bytes, {} expected)", bytes.len(), file.bytes));
            }
            Some(_) if file.is_result => found.whole += 1,
            Some(bytes) => match segment::decode(&bytes) {
                Ok(image) => {
                    found.whole += 1;
                    images.insert(file.name.clone(), Arc::new(image));
                }
                Err(error) => found.faults.push(format!("{name}: {}", error.message)),
            },
        }
    }
    for of_task in manifest.cuts.values().flat_map(|cut| &cut.segments) {
        match task(&of_task.task, &of_task.segments, &images, entries) {
            Ok(Some(state)) => found.tasks.push(state),
            // One of its files is a fault already.
            Ok(None) => {}
            Err(error) => found.faults.push(format!("state of task {}: {}", of_task.task, error.message)),
        }
    }
    Ok(found)
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
