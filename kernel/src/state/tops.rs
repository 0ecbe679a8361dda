//! State of tops: rows that may still be among the first of their window and key.
//!
//! Rows of one window have one event time, so a group is a time and a key. Rows are candidates until
//! there are more than twice as many as can be first; then they are cut back to those, and a group
//! that is full has a bound: the last of its first rows by the order. What comes behind a bound is no
//! candidate, which is seen by the order alone, before anything else is looked at. So most rows
//! cost the encoding of what they are ordered by, and of the others each is sorted a few times.
//!
//! Image columns (format version 1), rows ascending by the first:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `__key_group` | UInt32 | by the key law |
//! | `__window_start` | Int64 | event time, ms |
//! | `__row` | Int64 | number of the row |
//! | `__a<i>_<name>` | as in the input | column i of the row |
//!
//! Each row that was a candidate at a barrier is in one image, and stays there until its time is
//! over: a row that is none any more is one again after a restore, and not for long. Scalars:
//! `size_ms`, which is 1; `fired_ms`: rows before it are given; `next`, the number of the next row.

use crate::envelope::{BATCH_ROWS, Data, batch, broken};
use crate::error::Error;
use crate::io::{Restored, StateImage};
use crate::origin::Origins;
use crate::route::key::Encoded;
use crate::state::index::Index;
use crate::state::layout::{KEY_GROUP, WINDOW_START, owned_rows, scalar, sorted};
use crate::state::merge::merge_by_task;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, not};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema as ArrowSchema};
use arrow::row::{RowConverter, Rows, SortField};
use std::ops::Range;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::SortOrder;

/// Column with the number of a row.
const ROW: &str = "__row";
/// Column of an image with event time.
pub(crate) const TIME_COLUMN: usize = 1;
/// Columns of an image before those of the rows.
pub(crate) const FIRST_COLUMN: usize = 3;

/// What tops are made for.
pub struct Shape {
    /// Operator that the state belongs to.
    pub operator: OperatorId,
    /// Its subtask.
    pub subtask: u32,
    /// Columns of the rows.
    pub rows: Arc<ArrowSchema>,
    /// Positions of the key columns.
    pub keys: Vec<usize>,
    /// Positions of the columns of the order, most significant first.
    pub order: Vec<(usize, SortOrder)>,
    /// Rows of a group that are first; positive.
    pub limit: usize,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Key groups of this task.
    pub owned: Range<u32>,
}

/// Candidates of a task.
pub struct Tops {
    shape: Shape,
    image: Arc<ArrowSchema>,
    /// By time and key.
    index: Index,
    /// By group, what is ordered by of the last row of a full one; empty where it is not full.
    bounds: Vec<Vec<u8>>,
    /// Candidates in the order in which they came, and their groups.
    parts: Vec<Data>,
    groups: Vec<u32>,
    /// How many were left when they were last cut back.
    kept: usize,
    /// So many of them, from the first on, are in images.
    imaged: usize,
    next: i64,
    fired_ms: i64,
    /// At the last image.
    fired_imaged_ms: i64,
    order: RowConverter,
    whole: RowConverter,
    encoded: Encoded,
}

impl Tops {
    /// No rows.
    ///
    /// Errors: a column that cannot be ordered by.
    pub fn new(shape: Shape) -> Result<Self, Error> {
        let ty = |at: usize| shape.rows.field(at).data_type().clone();
        let options = |order: &SortOrder| SortOptions { descending: order.descending, nulls_first: order.nulls_first };
        let order: Vec<SortField> = shape.order.iter().map(|(at, order)| SortField::new_with_options(ty(*at), options(order))).collect();
        // As in SQL, NULL is the greatest.
        let ascending = SortOptions { descending: false, nulls_first: false };
        let all = (0..shape.rows.fields().len()).map(|at| SortField::new_with_options(ty(at), ascending));
        // Zeros of either sign are equal, and so is every NaN; only where all else is are their bits looked at.
        let bits = floats(&shape.rows).map(|at| SortField::new_with_options(ty(at), ascending));
        let whole = order.iter().cloned().chain(all).chain(bits).collect();
        let number = |name: &str| Field::new(name, DataType::Int64, false);
        let mut fields = vec![Field::new(KEY_GROUP, DataType::UInt32, false), number(WINDOW_START), number(ROW)];
        let column = |(i, field): (usize, &Arc<Field>)| Field::new(format!("__a{i}_{}", field.name()), field.data_type().clone(), true);
        fields.extend(shape.rows.fields().iter().enumerate().map(column));
        Ok(Tops {
            image: Arc::new(ArrowSchema::new(fields)),
            index: index(&shape),
            bounds: Vec::new(),
            parts: Vec::new(),
            groups: Vec::new(),
            kept: 0,
            imaged: 0,
            next: 0,
            fired_ms: i64::MIN,
            fired_imaged_ms: i64::MIN,
            order: RowConverter::new(order).map_err(broken)?,
            whole: RowConverter::new(whole).map_err(broken)?,
            encoded: Encoded::default(),
            shape,
        })
    }

    /// Candidates.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// No candidates.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Live bytes.
    pub fn bytes(&self) -> usize {
        let rows: usize = self.parts.iter().map(Data::bytes).sum();
        let bounds: usize = self.bounds.iter().map(|bound| size_of::<Vec<u8>>() + bound.capacity()).sum();
        rows + self.groups.capacity() * 4 + bounds + self.index.bytes()
    }

    /// Rows before this time have been given.
    pub fn fired_ms(&self) -> i64 {
        self.fired_ms
    }

    /// Adds rows of any times that are not before [`Tops::fired_ms`].
    pub fn add(&mut self, data: Data) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let mut groups = Vec::new();
        self.index.assign(&by(&self.shape.keys, &data), data.len(), &mut self.encoded, &mut groups)?;
        self.bounds.resize(self.index.len(), Vec::new());
        let data = Data { stamps: None, origins: Origins::Unknown, ..data };
        if self.bounds.iter().any(|bound| !bound.is_empty()) {
            let order = self.ordered(&data.rows)?;
            let within = |(row, group): (usize, &u32)| {
                let bound = &self.bounds[*group as usize];
                bound.is_empty() || order.row(row).data() <= bound.as_slice()
            };
            let keep: Vec<bool> = groups.iter().enumerate().map(within).collect();
            if keep.iter().all(|keep| *keep) {
                self.put(data, &groups);
            } else {
                let groups: Vec<u32> = groups.into_iter().zip(&keep).filter_map(|(group, keep)| keep.then_some(group)).collect();
                self.put(data.filter(&BooleanArray::from(keep))?, &groups);
            }
        } else {
            self.put(data, &groups);
        }
        if self.len() > 2 * self.kept + BATCH_ROWS {
            self.cut_back()?;
        }
        Ok(())
    }

    fn put(&mut self, data: Data, groups: &[u32]) {
        if !data.is_empty() {
            self.parts.push(data);
            self.groups.extend_from_slice(groups);
        }
    }

    /// What the rows are ordered by, so that bytes compare as they do.
    fn ordered(&self, rows: &RecordBatch) -> Result<Rows, Error> {
        self.order.convert_columns(&self.order_columns(rows)).map_err(broken)
    }

    fn order_columns(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        self.shape.order.iter().map(|(at, _)| plain(rows.column(*at))).collect()
    }

    /// All candidates as one batch.
    fn all(&mut self) -> Result<Option<Data>, Error> {
        if self.parts.len() > 1 {
            self.parts = vec![Data::concat(&self.parts)?];
        }
        Ok(self.parts.first().cloned())
    }

    /// Row numbers of `data` that are first in their group, with their places from 1: groups by
    /// `rank`, and in each of them in order.
    fn firsts(&self, data: &Data, groups: &[u32], rank: impl Fn(u32) -> u32) -> Result<Vec<(u32, i64)>, Error> {
        let mut columns = self.order_columns(&data.rows);
        columns.extend(data.rows.columns().iter().map(plain));
        columns.extend(floats(&self.shape.rows).map(|at| data.rows.column(at).clone()));
        let whole = self.whole.convert_columns(&columns).map_err(broken)?;
        let mut rows: Vec<(u32, u32)> = groups.iter().zip(0..).map(|(group, row)| (rank(*group), row)).collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| whole.row(a.1 as usize).cmp(&whole.row(b.1 as usize))));
        let (mut firsts, mut group, mut place) = (Vec::new(), None, 0);
        for (of, row) in rows {
            place = if group == Some(of) { place + 1 } else { 1 };
            group = Some(of);
            if place as usize <= self.shape.limit {
                firsts.push((row, place));
            }
        }
        Ok(firsts)
    }

    /// Leaves the candidates that are first now, in the order in which they came, and sets bounds.
    fn cut_back(&mut self) -> Result<(), Error> {
        let Some(data) = self.all()? else { return Ok(()) };
        let firsts = self.firsts(&data, &self.groups, |group| group)?;
        let last = firsts.iter().filter(|(_, place)| *place as usize == self.shape.limit).map(|(row, _)| *row).collect::<Vec<_>>();
        let order = self.ordered(&data.take(&UInt32Array::from(last.clone()))?.rows)?;
        for (at, row) in last.iter().enumerate() {
            self.bounds[self.groups[*row as usize] as usize] = order.row(at).data().to_vec();
        }
        let mut rows: Vec<u32> = firsts.into_iter().map(|(row, _)| row).collect();
        rows.sort_unstable();
        if rows.len() < data.len() {
            self.imaged = rows.partition_point(|row| (*row as usize) < self.imaged);
            self.groups = rows.iter().map(|row| self.groups[*row as usize]).collect();
            self.parts = vec![data.take(&UInt32Array::from(rows))?];
        }
        self.kept = self.groups.len();
        Ok(())
    }

    /// Takes out the first rows of each group whose time is before `until_ms`, with their places:
    /// groups by time and key, and in each of them in order.
    pub fn fire(&mut self, until_ms: i64) -> Result<Option<(Data, Int64Array)>, Error> {
        self.fired_ms = self.fired_ms.max(until_ms);
        if !self.parts.iter().flat_map(|part| part.times.values()).any(|time| *time < until_ms) {
            return Ok(None);
        }
        let Some(data) = self.all()? else { return Ok(None) };
        let due: Vec<bool> = data.times.values().iter().map(|time| *time < until_ms).collect();
        let picked = |want: bool| self.groups.iter().zip(&due).filter_map(move |(group, due)| (*due == want).then_some(*group));
        let (gone, left) = (picked(true).collect::<Vec<_>>(), picked(false).collect::<Vec<_>>());
        let mask = BooleanArray::from(due.clone());
        let fired = data.filter(&mask)?;
        let ranks = self.ranks()?;
        let (rows, places): (Vec<u32>, Vec<i64>) = self.firsts(&fired, &gone, |group| ranks[group as usize])?.into_iter().unzip();
        let given = fired.take(&UInt32Array::from(rows))?;
        self.imaged = due[..self.imaged].iter().filter(|due| !**due).count();
        self.leave(data.filter(&not(&mask).map_err(broken)?)?, &left)?;
        Ok(Some((given, Int64Array::from(places))))
    }

    /// The place of each group among all, by time and key.
    fn ranks(&self) -> Result<Vec<u32>, Error> {
        let groups: Vec<u32> = (0..self.index.len() as u32).collect();
        let columns = self.index.keys(&groups)?;
        let converter = RowConverter::new(columns.iter().map(|column| SortField::new(column.data_type().clone())).collect());
        let rows = converter.map_err(broken)?.convert_columns(&columns).map_err(broken)?;
        let mut order = groups;
        order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
        let mut ranks = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(group, rank)| ranks[*group as usize] = rank);
        Ok(ranks)
    }

    /// Has only these candidates left, whose groups were `groups`: other groups are forgotten.
    fn leave(&mut self, data: Data, groups: &[u32]) -> Result<(), Error> {
        self.index = index(&self.shape);
        self.groups = Vec::new();
        self.index.assign(&by(&self.shape.keys, &data), data.len(), &mut self.encoded, &mut self.groups)?;
        let mut before = std::mem::take(&mut self.bounds);
        self.bounds.resize(self.index.len(), Vec::new());
        for (old, new) in groups.iter().zip(&self.groups) {
            let bound = std::mem::take(&mut before[*old as usize]);
            if !bound.is_empty() {
                self.bounds[*new as usize] = bound;
            }
        }
        self.kept = self.kept.min(data.len());
        self.parts = if data.is_empty() { Vec::new() } else { vec![data] };
        Ok(())
    }

    /// What changed since the last image; `None` when nothing did.
    pub fn freeze(&mut self) -> Result<Option<StateImage>, Error> {
        if self.imaged == self.len() && self.fired_ms == self.fired_imaged_ms {
            return Ok(None);
        }
        self.cut_back()?;
        let rows = match self.all()? {
            None => RecordBatch::new_empty(self.image.clone()),
            Some(data) => self.numbered(&data.slice(self.imaged, data.len() - self.imaged))?,
        };
        self.next += rows.num_rows() as i64;
        (self.imaged, self.fired_imaged_ms) = (self.len(), self.fired_ms);
        Ok(Some(StateImage {
            operator: self.shape.operator.clone(),
            subtask: self.shape.subtask,
            rows: sorted(&rows)?,
            retired_ms: self.fired_ms,
            scalars: vec![("size_ms".to_owned(), 1), ("fired_ms".to_owned(), self.fired_ms), ("next".to_owned(), self.next)],
        }))
    }

    /// The last rows of all as an image has them.
    fn numbered(&self, data: &Data) -> Result<RecordBatch, Error> {
        let keys: Vec<ArrayRef> = self.shape.keys.iter().map(|at| data.rows.column(*at).clone()).collect();
        let types: Vec<DataType> = keys.iter().map(|key| key.data_type().clone()).collect();
        let (mut index, mut groups) = (Index::new(&types), Vec::new());
        index.assign(&keys, data.len(), &mut Encoded::default(), &mut groups)?;
        let hashes = index.hashes(&(0..index.len() as u32).collect::<Vec<_>>());
        let key_group = |group: &u32| (hashes[*group as usize] % u64::from(self.shape.max_parallelism)) as u32;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(groups.iter().map(key_group))),
            Arc::new(data.times.clone()),
            Arc::new(Int64Array::from_iter_values(self.next..self.next + data.len() as i64)),
        ];
        columns.extend(data.rows.columns().iter().cloned());
        batch(self.image.clone(), columns, data.len())
    }

    /// Puts rows back from the images of one or more former tasks, oldest first. Rows of key groups
    /// that this task does not own are left out.
    ///
    /// Errors: class `Corrupt` when the images are of other columns.
    pub fn restore(&mut self, restored: &Restored) -> Result<(), Error> {
        let mut fired = None;
        for merged in merge_by_task(&restored.images)? {
            // What one task has given another may still have had.
            let mark = scalar(&merged, "fired_ms")?;
            fired = Some(fired.map_or(mark, |least: i64| least.min(mark)));
            self.next = self.next.max(scalar(&merged, "next")?);
            let rows = owned_rows(&merged.rows, &self.image, &self.shape.owned)?.ok_or_else(|| {
                let operator = &self.shape.operator;
                Error::new(Class::Corrupt, format!("stored state of operator '{operator}' has other columns than the rows that it holds"))
            })?;
            let times = rows.column(TIME_COLUMN).as_primitive::<Int64Type>().clone();
            let count = rows.num_rows();
            self.add(Data {
                rows: batch(self.shape.rows.clone(), rows.columns()[FIRST_COLUMN..].to_vec(), count)?,
                times,
                stamps: None,
                origins: Origins::Unknown,
            })?;
        }
        self.fired_ms = fired.unwrap_or(i64::MIN);
        if !restored.redealt {
            (self.imaged, self.fired_imaged_ms) = (self.len(), self.fired_ms);
        }
        Ok(())
    }
}

/// No groups of these keys at any time.
fn index(shape: &Shape) -> Index {
    let keys = shape.keys.iter().map(|at| shape.rows.field(*at).data_type().clone());
    Index::new(&std::iter::once(DataType::Int64).chain(keys).collect::<Vec<_>>())
}

/// Time and keys of rows.
fn by(keys: &[usize], data: &Data) -> Vec<ArrayRef> {
    let time: ArrayRef = Arc::new(data.times.clone());
    std::iter::once(time).chain(keys.iter().map(|at| data.rows.column(*at).clone())).collect()
}

/// Places of the columns of floats.
fn floats(rows: &ArrowSchema) -> impl Iterator<Item = usize> + '_ {
    rows.fields().iter().enumerate().filter(|(_, field)| field.data_type().is_floating()).map(|(at, _)| at)
}

/// Floats with one NaN, which is the greatest value, and one zero; others as they are.
fn plain(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| if v.is_nan() { f32::NAN } else { v + 0.0 }))
        }
        DataType::Float64 => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }))
        }
        _ => column.clone(),
    }
}
