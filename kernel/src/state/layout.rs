//! State of a window operator: one pane a window, and its image.
//!
//! Image columns (format version 1), rows ascending by the first:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `__key_group` | UInt32 | by the key law |
//! | `__window_start` | Int64 | ms |
//! | the keys | as in the input | by their names |
//! | `__a<i>_<part>` | by accumulator | state of aggregate i |
//!
//! Scalars: `size_ms`, `fired_ms` (windows that end at or before it have been fired or are
//! behind) and `evicted_below_ms` (WIN-5).

use crate::accumulate::piece::Piece;
use crate::accumulate::{Accumulator, accumulator};
use crate::envelope::{batch, broken};
use crate::error::Error;
use crate::io::StateImage;
use crate::route::key::Encoded;
use crate::state::bits::Bits;
use crate::state::index::Index;
use crate::state::merge::merge_by_task;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema, UInt32Type};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;
use weir_planner::id::OperatorId;

/// First image column.
pub const KEY_GROUP: &str = "__key_group";
/// Second image column.
pub const WINDOW_START: &str = "__window_start";

/// Groups of one window with their accumulators.
pub struct Pane {
    index: Index,
    accumulators: Vec<Box<dyn Accumulator>>,
    dirty: Bits,
}

/// Panes of a task by window start.
pub struct Table {
    shape: Shape,
    panes: BTreeMap<i64, Pane>,
    entries: usize,
    bytes: usize,
    encoded: Encoded,
    groups: Vec<u32>,
    chosen: Vec<u32>,
    /// Marks since the last image; an image is due when they move.
    imaged: Marks,
    marks: Marks,
}

/// How far windows are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Windows ending at or before this are fired or behind.
    pub fired_ms: i64,
    /// Windows ending at or before this were evicted.
    pub evicted_ms: i64,
}

/// What a table is made for.
pub struct Shape {
    /// Operator that the state belongs to.
    pub operator: OperatorId,
    /// Its subtask.
    pub subtask: u32,
    /// Key columns.
    pub keys: Vec<(String, DataType)>,
    /// Output name and aggregate.
    pub aggregates: Vec<(String, Aggregate)>,
    /// Length of a window.
    pub size_ms: i64,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Key groups of this task.
    pub owned: Range<u32>,
}

impl Pane {
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// No groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        self.index.bytes() + accumulators + self.dirty.bytes()
    }

    fn grow(&mut self) {
        let groups = self.index.len();
        self.dirty.grow(groups);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
    }
}

impl Table {
    /// An empty table.
    pub fn new(shape: Shape) -> Self {
        let marks = Marks { fired_ms: i64::MIN, evicted_ms: i64::MIN };
        Table {
            shape,
            panes: BTreeMap::new(),
            entries: 0,
            bytes: 0,
            encoded: Encoded::default(),
            groups: Vec::new(),
            chosen: Vec::new(),
            imaged: marks,
            marks,
        }
    }

    /// Live (window, key) entries.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Live bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How far windows are gone.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Windows that end at or before `end_ms` are fired or behind.
    pub fn mark_fired(&mut self, end_ms: i64) {
        self.marks.fired_ms = self.marks.fired_ms.max(end_ms);
    }

    /// Windows that end at or before `end_ms` are evicted.
    pub fn mark_evicted(&mut self, end_ms: i64) {
        self.marks.evicted_ms = self.marks.evicted_ms.max(end_ms);
    }

    /// Start of the oldest window.
    pub fn oldest(&self) -> Option<i64> {
        self.panes.first_key_value().map(|(start, _)| *start)
    }

    /// Takes the oldest window out.
    pub fn pop(&mut self) -> Option<(i64, Pane)> {
        let (start, pane) = self.panes.pop_first()?;
        self.entries -= pane.len();
        self.bytes -= pane.bytes();
        Some((start, pane))
    }

    /// Adds rows to the window that starts at `start`.
    pub fn add(&mut self, start: i64, piece: &Piece) -> Result<(), Error> {
        let pane = pane_of(&mut self.panes, &self.shape, start)?;
        let (entries, bytes) = (pane.len(), pane.bytes());
        pane.index.assign(&piece.keys, piece.rows, &mut self.encoded, &mut self.groups)?;
        pane.grow();
        self.groups.iter().for_each(|group| pane.dirty.set(*group));
        piece.add_to(&mut pane.accumulators, &self.groups, &mut self.chosen)?;
        self.entries += pane.len() - entries;
        self.bytes = self.bytes + pane.bytes() - bytes;
        Ok(())
    }

    /// Keys and aggregates of a range of a pane's groups.
    ///
    /// Errors: a result that its type cannot hold, naming operator and column.
    pub fn results(&self, pane: &Pane, groups: Range<u32>) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        let groups: Vec<u32> = groups.collect();
        let mut aggregates = Vec::with_capacity(pane.accumulators.len());
        for (accumulator, (name, _)) in pane.accumulators.iter().zip(&self.shape.aggregates) {
            let name_it =
                |e: Error| Error { message: format!("{} in operator '{}', column '{name}'", e.message, self.shape.operator), ..e };
            aggregates.push(accumulator.peek(&groups).map_err(name_it)?);
        }
        Ok((pane.index.keys(&groups)?, aggregates))
    }

    /// What changed since the last image; `None` when nothing did.
    pub fn freeze(&mut self) -> Result<Option<StateImage>, Error> {
        let schema = image_schema(&self.shape)?;
        let mut parts = Vec::new();
        for (start, pane) in &mut self.panes {
            let mut groups: Vec<u32> = pane.dirty.ones().collect();
            if groups.is_empty() {
                continue;
            }
            let group_of = |hash: &u64| (*hash % u64::from(self.shape.max_parallelism)) as u32;
            let mut key_groups: Vec<u32> = pane.index.hashes(&groups).iter().map(group_of).collect();
            sort_together(self.shape.max_parallelism, &mut key_groups, &mut groups);
            let mut columns: Vec<ArrayRef> =
                vec![Arc::new(UInt32Array::from(key_groups)), Arc::new(Int64Array::from_value(*start, groups.len()))];
            columns.extend(pane.index.keys(&groups)?);
            for accumulator in &pane.accumulators {
                columns.extend(accumulator.image(&groups)?);
            }
            parts.push(batch(schema.clone(), columns, groups.len())?);
            pane.dirty.clear();
        }
        if parts.is_empty() && self.marks == self.imaged {
            return Ok(None);
        }
        self.imaged = self.marks;
        let rows = match parts.as_slice() {
            [only] => only.clone(),
            parts => sorted(&concat_batches(&schema, parts).map_err(broken)?)?,
        };
        Ok(Some(StateImage {
            operator: self.shape.operator.clone(),
            subtask: self.shape.subtask,
            rows,
            retired_ms: self.marks.fired_ms.max(self.marks.evicted_ms),
            scalars: vec![
                ("size_ms".to_owned(), self.shape.size_ms),
                ("fired_ms".to_owned(), self.marks.fired_ms),
                ("evicted_below_ms".to_owned(), self.marks.evicted_ms),
            ],
        }))
    }

    /// Puts state back from the images of one or more former tasks, oldest first. Rows of key
    /// groups that this task does not own are left out.
    ///
    /// Errors: class `Corrupt` when the images are not of this operator's shape.
    pub fn restore(&mut self, images: &[Arc<StateImage>]) -> Result<(), Error> {
        let mut fired = None;
        for merged in merge_by_task(images)? {
            // What one task has fired another may still have had open: the least of them holds,
            // since fired entries are gone from each.
            let mark = scalar(&merged, "fired_ms")?;
            fired = Some(fired.map_or(mark, |least: i64| least.min(mark)));
            self.mark_evicted(scalar(&merged, "evicted_below_ms")?);
            if scalar(&merged, "size_ms")? != self.shape.size_ms {
                return Err(self.corrupt("was written by a window of another size"));
            }
            self.put(&merged.rows)?;
        }
        if let Some(fired) = fired {
            self.mark_fired(fired);
        }
        self.panes.values_mut().for_each(|pane| pane.dirty.clear());
        self.imaged = self.marks;
        Ok(())
    }

    fn put(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let schema = image_schema(&self.shape)?;
        let rows = owned_rows(rows, &schema, &self.shape.owned)?;
        let rows = rows.ok_or_else(|| self.corrupt("has other columns than the operator's state"))?;
        let mut windows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, start) in rows.column(1).as_primitive::<Int64Type>().values().iter().enumerate() {
            windows.entry(*start).or_default().push(row as u32);
        }
        for (start, picked) in windows {
            if start.checked_add(self.shape.size_ms).is_none() {
                return Err(self.corrupt("has a window out of range"));
            }
            let part = take_record_batch(&rows, &UInt32Array::from(picked)).map_err(broken)?;
            let pane = pane_of(&mut self.panes, &self.shape, start)?;
            let (entries, bytes) = (pane.len(), pane.bytes());
            let keys = &part.columns()[2..2 + self.shape.keys.len()];
            pane.index.assign(keys, part.num_rows(), &mut self.encoded, &mut self.groups)?;
            pane.grow();
            let mut rest = &part.columns()[2 + self.shape.keys.len()..];
            for accumulator in &mut pane.accumulators {
                let (own, others) = rest.split_at(accumulator.image_fields().len());
                accumulator.restore(&self.groups, own)?;
                rest = others;
            }
            self.entries += pane.len() - entries;
            self.bytes = self.bytes + pane.bytes() - bytes;
        }
        Ok(())
    }

    fn corrupt(&self, why: &str) -> Error {
        Error::new(Class::Corrupt, format!("stored state of operator '{}' {why}", self.shape.operator))
    }
}

fn pane_of<'a>(panes: &'a mut BTreeMap<i64, Pane>, shape: &Shape, start: i64) -> Result<&'a mut Pane, Error> {
    use std::collections::btree_map::Entry;
    match panes.entry(start) {
        Entry::Occupied(found) => Ok(found.into_mut()),
        Entry::Vacant(free) => {
            let types: Vec<DataType> = shape.keys.iter().map(|(_, ty)| ty.clone()).collect();
            let accumulators = shape.aggregates.iter().map(|(_, aggregate)| accumulator(aggregate)).collect::<Result<Vec<_>, _>>()?;
            Ok(free.insert(Pane { index: Index::new(&types), accumulators, dirty: Bits::default() }))
        }
    }
}

fn image_schema(shape: &Shape) -> Result<Arc<ArrowSchema>, Error> {
    let mut fields = vec![Field::new(KEY_GROUP, DataType::UInt32, false), Field::new(WINDOW_START, DataType::Int64, false)];
    fields.extend(shape.keys.iter().map(|(name, ty)| Field::new(name, ty.clone(), true)));
    for (i, (_, aggregate)) in shape.aggregates.iter().enumerate() {
        let parts = accumulator(aggregate)?.image_fields();
        fields.extend(parts.into_iter().map(|(part, ty)| Field::new(format!("__a{i}_{part}"), ty, true)));
    }
    Ok(Arc::new(ArrowSchema::new(fields)))
}

/// The rows of an image that lie in these key groups; `None` when its columns are not those of `schema`.
pub(crate) fn owned_rows(rows: &RecordBatch, schema: &ArrowSchema, owned: &Range<u32>) -> Result<Option<RecordBatch>, Error> {
    let fits = rows.num_columns() == schema.fields().len()
        && rows.schema().fields().iter().zip(schema.fields()).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
    if !fits {
        return Ok(None);
    }
    let groups = rows.column(0).as_primitive::<UInt32Type>();
    let mask: BooleanArray = groups.iter().map(|group| group.map(|group| owned.contains(&group))).collect();
    filter_record_batch(rows, &mask).map(Some).map_err(broken)
}

/// A scalar of an image.
pub(crate) fn scalar(image: &StateImage, name: &str) -> Result<i64, Error> {
    let found = image.scalars.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    found.ok_or_else(|| Error::new(Class::Corrupt, format!("stored state of operator '{}' lacks the mark {name}", image.operator)))
}

/// The rows in ascending order of the first column; equal ones keep their order.
pub(crate) fn sorted(rows: &RecordBatch) -> Result<RecordBatch, Error> {
    let groups = rows.column(0).as_primitive::<UInt32Type>().values();
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    order.sort_by_key(|row| groups[*row as usize]);
    take_record_batch(rows, &UInt32Array::from(order)).map_err(broken)
}

/// Sorts both by key group, of which there are `max_parallelism`: a counting sort.
fn sort_together(max_parallelism: u32, key_groups: &mut Vec<u32>, groups: &mut Vec<u32>) {
    let mut next = vec![0usize; max_parallelism as usize + 1];
    key_groups.iter().for_each(|key_group| next[*key_group as usize + 1] += 1);
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let (mut sorted_keys, mut sorted_groups) = (vec![0; groups.len()], vec![0; groups.len()]);
    for (key_group, group) in key_groups.iter().zip(groups.iter()) {
        let place = &mut next[*key_group as usize];
        sorted_keys[*place] = *key_group;
        sorted_groups[*place] = *group;
        *place += 1;
    }
    *key_groups = sorted_keys;
    *groups = sorted_groups;
}
