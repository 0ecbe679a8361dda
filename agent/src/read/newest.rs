//! Of result rows that are equal in some columns, the last (WIN-4).
//!
//! Rows are looked at twice: once for the columns alone, to learn which row of each combination is
//! the last one, and once for what is given, so that the order of arrival stays. A combination is
//! known by the 128-bit hash of its row form, 24 bytes each however wide its columns are; how many there are is
//! bounded by the retention of the table.

use super::{unreadable, verified};
use crate::error::Error;
use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use std::collections::HashMap;
use std::fs::File;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use xxhash_rust::xxh3::xxh3_128;

/// The number of the last row of each combination so far.
pub(super) struct Last {
    columns: Vec<usize>,
    converter: RowConverter,
    places: HashMap<u128, usize>,
    rows: usize,
}

/// Which rows are the last of their combination; asked for in the order in which they were added.
pub(super) struct Newest {
    last: BooleanArray,
    next: usize,
}

fn no_rows(error: ArrowError) -> Error {
    Error::because(Class::Bug, "the columns by which result rows replace each other cannot be compared", error)
}

impl Last {
    /// No rows yet, of this schema.
    ///
    /// Errors: `Corrupt` for a column that the schema lacks.
    pub fn new(schema: &Schema, by: &[String]) -> Result<Self, Error> {
        let place = |name: &String| {
            let missing = |e| Error::because(Class::Corrupt, format!("result rows have no column '{name}' to replace each other by"), e);
            schema.index_of(name).map_err(missing)
        };
        let columns = by.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let fields = columns.iter().map(|at| SortField::new(schema.field(*at).data_type().clone())).collect();
        Ok(Last { columns, converter: RowConverter::new(fields).map_err(no_rows)?, places: HashMap::new(), rows: 0 })
    }

    /// Rows with all columns.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        self.add_columns(&rows.project(&self.columns)?)
    }

    /// The columns alone, in their order.
    fn add_columns(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        for row in &self.converter.convert_columns(rows.columns())? {
            self.places.insert(xxh3_128(row.as_ref()), self.rows);
            self.rows += 1;
        }
        Ok(())
    }

    /// What was learnt.
    pub fn into_newest(self) -> Newest {
        let mut last = BooleanBufferBuilder::new(self.rows);
        last.append_n(self.rows, false);
        for place in self.places.into_values() {
            last.set_bit(place, true);
        }
        Newest { last: BooleanArray::new(last.finish(), None), next: 0 }
    }
}

impl Newest {
    /// Looks at all rows of these files.
    ///
    /// Errors: `Corrupt` for a file that cannot be read, or that lacks one of the columns.
    pub fn of(files: &[(ResultFile, File)], schema: &SchemaRef, by: &[String]) -> Result<Self, Error> {
        let mut last = Last::new(schema, by)?;
        // A reader gives its columns in the order of the file.
        let mut ascending = last.columns.clone();
        ascending.sort_unstable();
        let order: Vec<usize> = last.columns.iter().filter_map(|at| ascending.binary_search(at).ok()).collect();
        for (file, open) in files {
            let open = open.try_clone().map_err(|e| Error::because(Class::Retry, format!("result file {}", file.name), e))?;
            for rows in verified(file, open, Some(ascending.clone()))? {
                let rows = rows.and_then(|rows| rows.project(&order)).map_err(|e| unreadable(file, e))?;
                last.add_columns(&rows).map_err(|e| unreadable(file, e))?;
            }
        }
        Ok(last.into_newest())
    }

    /// Those of the next rows that are the last of their combination.
    pub fn keep(&mut self, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let end = self.next + rows.num_rows();
        if end > self.last.len() {
            return Err(ArrowError::InvalidArgumentError(format!("{} rows where {} were counted", end, self.last.len())));
        }
        let kept = filter_record_batch(rows, &self.last.slice(self.next, rows.num_rows()))?;
        self.next = end;
        Ok(kept)
    }
}

#[cfg(test)]
mod tests;
