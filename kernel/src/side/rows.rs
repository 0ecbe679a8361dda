//! Rows as side edges carry them: late rows by column name, error rows with what was read.

use crate::envelope::{Data, batch, broken};
use crate::error::Error;
use crate::origin::Origins;
use arrow::array::{
    Array, ArrayRef, BinaryBuilder, Int64Array, RecordBatch, StringArray, StringBuilder, TimestampMillisecondArray, new_null_array,
};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::Schema as ArrowSchema;
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::schema::{LATE_BY_COLUMN, REASON_COLUMN, error_rows};

/// Bytes of a record that an error row carries at most.
pub const RAW_BYTES_MAX: usize = 1 << 20;
/// Bytes of records in one batch of error rows, but for one record that is larger by itself.
const BATCH_BYTES: usize = 8 << 20;

/// A record or row that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorRow {
    /// The record as it was read, or the row as a JSON object.
    pub(crate) raw: Vec<u8>,
    pub(crate) reason: String,
    /// Name of the split, where it is known.
    pub(crate) partition: Option<String>,
    /// Offset or line, where it is known.
    pub(crate) position: Option<String>,
}

/// Late rows under `schema`, which is that of some [`weir_planner::schema::late_rows`]: columns by
/// name, NULL where the rows have none of that name or a value that the column's type cannot hold.
pub(super) fn late(data: &Data, reason: &str, late_by_ms: &Int64Array, schema: &Arc<ArrowSchema>) -> Result<Data, Error> {
    let count = data.len();
    let column = |field: &Arc<arrow::datatypes::Field>| -> Result<ArrayRef, Error> {
        match field.name().as_str() {
            REASON_COLUMN => return Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(reason, count)))),
            LATE_BY_COLUMN => return Ok(Arc::new(late_by_ms.clone())),
            _ => {}
        }
        Ok(match data.rows.column_by_name(field.name()) {
            None => new_null_array(field.data_type(), count),
            Some(found) if found.data_type() == field.data_type() => found.clone(),
            Some(found) if can_cast_types(found.data_type(), field.data_type()) => cast(found, field.data_type()).map_err(broken)?,
            Some(_) => new_null_array(field.data_type(), count),
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(data.clone().with_rows(batch(schema.clone(), columns, count)?))
}

/// Error rows of the operator called `source`, read at `wall_ms`, which is also their time.
pub(super) fn errors(source: &str, bad: &[ErrorRow], wall_ms: i64, schema: &Arc<ArrowSchema>) -> Result<Vec<Data>, Error> {
    let mut given = Vec::new();
    let mut rest = bad;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&ErrorRow| {
            bytes += row.raw.len();
            bytes <= BATCH_BYTES
        };
        let (part, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        given.push(errors_batch(source, part, wall_ms, schema)?);
        rest = after;
    }
    Ok(given)
}

fn errors_batch(source: &str, bad: &[ErrorRow], wall_ms: i64, schema: &Arc<ArrowSchema>) -> Result<Data, Error> {
    let count = bad.len();
    let (mut raw, mut reason) = (BinaryBuilder::new(), StringBuilder::new());
    let (mut partition, mut position) = (StringBuilder::new(), StringBuilder::new());
    for row in bad {
        raw.append_value(row.raw.get(..RAW_BYTES_MAX).unwrap_or(&row.raw));
        reason.append_value(&row.reason);
        partition.append_option(row.partition.as_deref());
        position.append_option(row.position.as_deref());
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(raw.finish()),
        Arc::new(reason.finish()),
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(source, count))),
        Arc::new(partition.finish()),
        Arc::new(position.finish()),
        Arc::new(TimestampMillisecondArray::from_value(wall_ms, count).with_timezone("+00:00")),
    ];
    // The consumer's columns are these; it may only allow more NULLs.
    let planned = error_rows().to_arrow();
    let same = planned.fields().iter().zip(schema.fields()).all(|(ours, theirs)| ours.data_type() == theirs.data_type());
    if !same || planned.fields().len() != schema.fields().len() {
        return Err(Error::new(Class::Bug, format!("the consumer of error rows of operator '{source}' takes other columns")));
    }
    let rows = batch(schema.clone(), columns, count)?;
    Ok(Data { rows, times: Int64Array::from_value(wall_ms, count), stamps: None, origins: Origins::Unknown })
}

/// Each row as the text of a JSON object, cut at [`RAW_BYTES_MAX`] bytes: what an error row carries
/// of a row that has no record of its own. NULLs are written out, BYTEA is hexadecimal.
pub fn json(rows: &RecordBatch) -> Result<Vec<Vec<u8>>, Error> {
    if rows.num_columns() == 0 {
        return Ok(vec![b"{}".to_vec(); rows.num_rows()]);
    }
    let mut text = Vec::new();
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut text);
    writer.write(rows).and_then(|()| writer.finish()).map_err(broken)?;
    drop(writer);
    // A line break inside a value is escaped, so lines are rows.
    let cut = |line: &[u8]| line.get(..RAW_BYTES_MAX).unwrap_or(line).to_vec();
    Ok(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(cut).collect())
}

/// One row as JSON for a message to people, at most `chars_max` characters of it.
pub(crate) fn brief(rows: &RecordBatch, chars_max: usize) -> Result<String, Error> {
    let text = json(&rows.slice(0, rows.num_rows().min(1)))?.pop().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut brief: String = text.chars().take(chars_max).collect();
    if text.chars().nth(chars_max).is_some() {
        brief.push('…');
    }
    Ok(brief)
}

#[cfg(test)]
mod tests;
