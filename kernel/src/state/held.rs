//! State of an operator that holds whole rows: a queue, and its image.
//!
//! Each row has a number, counted up as rows come. The image has the form that windows have, with
//! the number in the place of the window's start and a size of 1, so that it is merged and compacted
//! by the same law: a row is an entry of its own, and retirement at n drops the rows before n.
//! Image columns (format version 1), rows ascending by the first, then by the second:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `__key_group` | UInt32 | the first one of the task: rows have no keys, and stay together |
//! | `__window_start` | Int64 | number of the row |
//! | `__a_time` | Int64 | event time, ms |
//! | `__a_stamp` | Int64 | stamp, ms |
//! | `__a_source` | Utf8 | operator of the source that it comes from; NULL where it comes from no single partition |
//! | `__a_split` | Utf8 | that source's partition |
//! | `__a<i>_<name>` | as in the input | column i of the row |
//!
//! Scalars: `size_ms`, which is 1, and wall clock times in ms: `first_ms`, when the oldest held row came, and
//! `last_ms`, when the newest did.

use crate::envelope::{Data, batch, broken};
use crate::error::Error;
use crate::io::{Restored, StateImage};
use crate::origin::{Origin, Origins, Partition};
use crate::state::layout::{KEY_GROUP, WINDOW_START, owned_rows, scalar};
use crate::state::merge::merge_by_task;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;

/// Column of an image with event time.
pub(crate) const TIME_COLUMN: usize = 2;
/// Columns of an image before those of the rows.
pub(crate) const FIRST_COLUMN: usize = 6;

/// Rows of one task, oldest first.
pub struct Held {
    operator: OperatorId,
    subtask: u32,
    owned: Range<u32>,
    rows: Arc<ArrowSchema>,
    image: Arc<ArrowSchema>,
    /// What is held, as it came; the first begins with the row numbered `first`.
    parts: VecDeque<Data>,
    first: i64,
    next: i64,
    bytes: usize,
    /// Numbers of the rows that images hold and no image has retired.
    imaged: Range<i64>,
}

impl Held {
    /// An empty queue of rows of columns `rows`, for a task that owns these key groups.
    pub fn new(operator: &OperatorId, subtask: u32, owned: Range<u32>, rows: Arc<ArrowSchema>) -> Self {
        let number = |name: &str| Field::new(name, DataType::Int64, false);
        let name = |name: &str| Field::new(name, DataType::Utf8, true);
        let key_group = Field::new(KEY_GROUP, DataType::UInt32, false);
        let mut fields =
            vec![key_group, number(WINDOW_START), number("__a_time"), number("__a_stamp"), name("__a_source"), name("__a_split")];
        let column = |(i, field): (usize, &Arc<Field>)| Field::new(format!("__a{i}_{}", field.name()), field.data_type().clone(), true);
        fields.extend(rows.fields().iter().enumerate().map(column));
        let image = Arc::new(ArrowSchema::new(fields));
        Held { operator: operator.clone(), subtask, owned, rows, image, parts: VecDeque::new(), first: 0, next: 0, bytes: 0, imaged: 0..0 }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of the oldest row, or of the next one to come.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// Number of the next row to come.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Adds rows.
    pub fn put(&mut self, data: Data) {
        if data.is_empty() {
            return;
        }
        self.next += data.len() as i64;
        self.bytes += data.bytes();
        self.parts.push_back(data);
    }

    /// Takes the oldest rows out as one batch, `rows` of them or all that there are.
    pub fn take(&mut self, rows: usize) -> Result<Option<Data>, Error> {
        let (mut taken, mut missing) = (Vec::new(), rows);
        while missing > 0
            && let Some(data) = self.parts.pop_front()
        {
            self.bytes -= data.bytes();
            let count = data.len().min(missing);
            if count < data.len() {
                let rest = data.slice(count, data.len() - count);
                self.bytes += rest.bytes();
                self.parts.push_front(rest);
            }
            self.first += count as i64;
            missing -= count;
            taken.push(data.slice(0, count));
        }
        if taken.is_empty() { Ok(None) } else { Data::concat(&taken).map(Some) }
    }

    /// What changed since the last image; `None` when nothing did that a restore would miss.
    pub fn freeze(&mut self, first_ms: i64, last_ms: i64) -> Result<Option<StateImage>, Error> {
        let from = self.imaged.end.max(self.first);
        let retires = !self.imaged.is_empty() && self.first > self.imaged.start;
        if from >= self.next && !retires {
            return Ok(None);
        }
        let rows = self.numbered(from)?;
        self.imaged = self.first..self.next;
        Ok(Some(StateImage {
            operator: self.operator.clone(),
            subtask: self.subtask,
            rows,
            retired_ms: self.first,
            scalars: vec![("size_ms".to_owned(), 1), ("first_ms".to_owned(), first_ms), ("last_ms".to_owned(), last_ms)],
        }))
    }

    /// The held rows numbered `from` and up, as an image has them.
    fn numbered(&self, from: i64) -> Result<RecordBatch, Error> {
        let (mut number, mut fresh) = (self.first, Vec::new());
        for data in &self.parts {
            let known = (from - number).clamp(0, data.len() as i64) as usize;
            if known < data.len() {
                fresh.push(data.slice(known, data.len() - known));
            }
            number += data.len() as i64;
        }
        if fresh.is_empty() {
            return Ok(RecordBatch::new_empty(self.image.clone()));
        }
        let data = Data::concat(&fresh)?;
        let count = data.len();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_value(self.owned.start, count)),
            Arc::new(Int64Array::from_iter_values(self.next - count as i64..self.next)),
            Arc::new(data.times.clone()),
            Arc::new(data.stamps.unwrap_or(data.times)),
            Arc::new(data.origins.by_row(count).map(|of| of.map(|origin| origin.source.as_str())).collect::<StringArray>()),
            Arc::new(data.origins.by_row(count).map(|of| of.map(|origin| origin.split.as_str())).collect::<StringArray>()),
        ];
        columns.extend(data.rows.columns().iter().cloned());
        batch(self.image.clone(), columns, count)
    }

    /// Puts rows back, and gives when the oldest and the newest of them came.
    ///
    /// Errors: class `Corrupt` when the images are of other columns; class `User` when they hold
    /// rows of another task, which have no order among this one's.
    pub fn restore(&mut self, restored: &Restored) -> Result<Option<(i64, i64)>, Error> {
        let mut came = None;
        for merged in merge_by_task(&restored.images)? {
            let subtask = merged.subtask;
            let rows = owned_rows(&merged.rows, &self.image, &self.owned)?;
            let rows = rows.ok_or_else(|| self.corrupt("has other columns than the rows that it holds"))?;
            if subtask == self.subtask {
                self.next = merged.retired_ms.max(0);
                self.first = self.next;
                self.put_back(&rows)?;
                self.imaged = if restored.redealt { self.first..self.first } else { self.first..self.next };
                came = (!self.is_empty()).then_some((scalar(&merged, "first_ms")?, scalar(&merged, "last_ms")?));
            } else if rows.num_rows() > 0 {
                let message = format!(
                    "operator '{}' holds {} rows of its former subtask {subtask}: a buffer keeps its rows under the same parallelism only; \
                     set the former one again",
                    self.operator,
                    rows.num_rows()
                );
                return Err(Error::new(Class::User, message));
            }
        }
        Ok(came)
    }

    fn put_back(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let numbers = rows.column(1).as_primitive::<Int64Type>().values();
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_by_key(|row| numbers[*row as usize]);
        let rows = take_record_batch(rows, &UInt32Array::from(order)).map_err(broken)?;
        let numbers = rows.column(1).as_primitive::<Int64Type>().values();
        let Some(first) = numbers.first() else { return Ok(()) };
        if numbers.iter().zip(*first..).any(|(number, expected)| *number != expected) {
            return Err(self.corrupt("lacks rows between others"));
        }
        let (times, stamps) = (rows.column(TIME_COLUMN).as_primitive::<Int64Type>(), rows.column(3).as_primitive::<Int64Type>());
        let behind = times.values().iter().zip(stamps.values()).any(|(time, stamp)| time < stamp);
        let count = rows.num_rows();
        (self.first, self.next) = (*first, *first);
        self.put(Data {
            rows: batch(self.rows.clone(), rows.columns()[FIRST_COLUMN..].to_vec(), count)?,
            times: times.clone(),
            stamps: behind.then(|| stamps.clone()),
            origins: self.origins(&rows)?,
        });
        Ok(())
    }

    /// Where the rows of an image come from.
    fn origins(&self, rows: &RecordBatch) -> Result<Origins, Error> {
        let (sources, splits) = (rows.column(4).as_string::<i32>(), rows.column(5).as_string::<i32>());
        let (mut each, mut last): (Vec<Option<Origin>>, Option<Origin>) = (Vec::new(), None);
        for (source, split) in sources.iter().zip(splits) {
            let (Some(source), Some(split)) = (source, split) else {
                each.push(None);
                continue;
            };
            if last.as_ref().is_none_or(|last| last.source.as_str() != source || last.split != split) {
                let source = OperatorId::new(source).map_err(|fault| self.corrupt(&format!("names a source that cannot be: {fault}")))?;
                last = Some(Arc::new(Partition { source, split: split.to_owned() }));
            }
            each.push(last.clone());
        }
        Ok(Origins::each(each.into_iter()))
    }

    fn corrupt(&self, why: &str) -> Error {
        Error::new(Class::Corrupt, format!("stored state of operator '{}' {why}", self.operator))
    }
}
