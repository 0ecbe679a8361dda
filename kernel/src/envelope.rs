//! What travels between tasks: rows with their times, and the marks that order them (KER-3).

use crate::error::Error;
use crate::origin::Origins;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat, filter, take};
use arrow::datatypes::{DataType, Schema};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::EpochId;

/// Rows that a coalesced batch aims at, and the largest batch that an operator makes.
pub const BATCH_ROWS: usize = 8_192;

/// Rows with what travels beside them.
#[derive(Clone, Debug)]
pub struct Data {
    /// The columns of the plan.
    pub rows: RecordBatch,
    /// Event time of each row in ms (`__meta_timestamp`); no nulls.
    pub times: Int64Array,
    /// Stamp of each row in ms (EV-3); present only when some row's time lies below its stamp (EV-4).
    pub stamps: Option<Int64Array>,
    /// Which partition each row comes from.
    pub origins: Origins,
}

/// One item of an edge. Nearly all of them are rows, so boxing those would cost an allocation a batch and save nothing.
#[allow(clippy::large_enum_variant, reason = "data is the common case")]
#[derive(Clone, Debug)]
pub enum Envelope {
    /// Rows.
    Data(Data),
    /// Rows with a time below this are behind; ms. `i64::MAX` is the end of time.
    Watermark(i64),
    /// Leave the sender out of the minimum until `Active`.
    Idle,
    /// The sender counts again.
    Active,
    /// The cut of an epoch.
    Barrier(EpochId),
    /// No rows follow; barriers do (EPO-7).
    End,
}

impl Data {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Only the rows where `mask` is true.
    pub fn filter(&self, mask: &BooleanArray) -> Result<Data, Error> {
        let pick = |column: &dyn Array| filter(column, mask).map_err(broken);
        self.map(&pick, self.origins.filter(mask))
    }

    /// The rows at `indices`, in that order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Data, Error> {
        let pick = |column: &dyn Array| take(column, indices, None).map_err(broken);
        self.map(&pick, self.origins.take(indices))
    }

    /// `length` rows from `offset`, without copying.
    #[must_use]
    pub fn slice(&self, offset: usize, length: usize) -> Data {
        Data {
            rows: self.rows.slice(offset, length),
            times: self.times.slice(offset, length),
            stamps: self.stamps.as_ref().map(|stamps| stamps.slice(offset, length)),
            origins: self.origins.slice(offset, length),
        }
    }

    /// All rows of `parts`, which have one schema and are not empty, one after the other.
    pub fn concat(parts: &[Data]) -> Result<Data, Error> {
        let [first, rest @ ..] = parts else {
            return Err(Error::new(Class::Bug, "nothing to concatenate"));
        };
        if rest.is_empty() {
            return Ok(first.clone());
        }
        let rows_all: usize = parts.iter().map(Data::len).sum();
        let columns = (0..first.rows.num_columns())
            .map(|i| {
                let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.rows.column(i).as_ref()).collect();
                concat(&arrays).map_err(broken)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let times = concat_times(parts.iter().map(|part| &part.times))?;
        // A part without stamps has no row behind: its rows' own times stand in as stamps that judge none late.
        let stamps = if parts.iter().any(|part| part.stamps.is_some()) {
            Some(concat_times(parts.iter().map(|part| part.stamps.as_ref().unwrap_or(&part.times)))?)
        } else {
            None
        };
        let origins = Origins::concat(parts.iter().map(|part| (&part.origins, part.len())));
        Ok(Data { rows: batch(first.rows.schema(), columns, rows_all)?, times, stamps, origins })
    }

    /// Bytes that the rows take, cheaply estimated: a slice counts what it shows.
    pub fn bytes(&self) -> usize {
        let beside = if self.stamps.is_some() { 16 } else { 8 };
        batch_bytes(&self.rows) + beside * self.len()
    }

    /// The same times with other columns.
    pub(crate) fn with_rows(self, rows: RecordBatch) -> Data {
        Data { rows, ..self }
    }

    fn map(&self, pick: &dyn Fn(&dyn Array) -> Result<ArrayRef, Error>, origins: Origins) -> Result<Data, Error> {
        let times = pick(&self.times)?.as_primitive().clone();
        let stamps = match &self.stamps {
            None => None,
            Some(stamps) => Some(pick(stamps)?.as_primitive().clone()),
        };
        let columns = self.rows.columns().iter().map(|column| pick(column.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let length = Int64Array::len(&times);
        Ok(Data { rows: batch(self.rows.schema(), columns, length)?, times, stamps, origins })
    }
}

/// Builds a batch of `rows` rows, also one without columns.
pub(crate) fn batch(schema: Arc<Schema>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(broken)
}

/// An Arrow kernel refused what the plan promised to be right.
pub(crate) fn broken(error: arrow::error::ArrowError) -> Error {
    let message = format!("columns do not fit the plan: {error}");
    Error::because(Class::Bug, message, error)
}

fn concat_times<'a>(parts: impl Iterator<Item = &'a Int64Array>) -> Result<Int64Array, Error> {
    let arrays: Vec<&dyn Array> = parts.map(|part| part as &dyn Array).collect();
    Ok(concat(&arrays).map_err(broken)?.as_primitive().clone())
}

/// Bytes of a batch's values as shown, without walking buffers that it shares.
pub(crate) fn batch_bytes(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(|column| array_bytes(column.as_ref())).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    let rows = array.len();
    match array.data_type() {
        DataType::Boolean => rows.div_ceil(8),
        DataType::Utf8 => {
            4 * rows
                + array
                    .as_string::<i32>()
                    .value_offsets()
                    .last()
                    .map_or(0, |end| (*end - array.as_string::<i32>().value_offsets()[0]) as usize)
        }
        DataType::Binary => {
            4 * rows
                + array
                    .as_binary::<i32>()
                    .value_offsets()
                    .last()
                    .map_or(0, |end| (*end - array.as_binary::<i32>().value_offsets()[0]) as usize)
        }
        other => match other.primitive_width() {
            Some(width) => width * rows,
            None => array.get_array_memory_size(),
        },
    }
}
