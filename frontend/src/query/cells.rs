//! Small tables made row by row: the system tables and Postgres' own.

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int16Builder, Int64Builder, StringBuilder, TimestampMillisecondBuilder, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::TableProvider;
use datafusion::common::internal_err;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use std::sync::Arc;

/// Column types that these tables need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// TEXT.
    Text,
    /// TEXT[].
    Texts,
    /// BIGINT.
    Int,
    /// SMALLINT.
    Small,
    /// BIGINT[].
    Ints,
    /// DOUBLE PRECISION.
    Float,
    /// BOOLEAN.
    Bool,
    /// TIMESTAMPTZ(3).
    At,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// Wall clock or event time in ms.
    At(i64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Int(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        // Counters past 2^63 do not occur; the largest BIGINT says "more than can be shown".
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Cell {
        Cell::Int(i64::from(value))
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Float(value)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Bool(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Name and type of each column.
pub(super) type Columns = &'static [(&'static str, Kind)];

impl Kind {
    fn arrow(self) -> DataType {
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Texts => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            Kind::Int => DataType::Int64,
            Kind::Small => DataType::Int16,
            Kind::Ints => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
            Kind::Float => DataType::Float64,
            Kind::Bool => DataType::Boolean,
            Kind::At => DataType::Timestamp(TimeUnit::Millisecond, Some("+00:00".into())),
        }
    }
}

/// The schema of such a table; every column may be NULL.
pub(super) fn schema(columns: Columns) -> SchemaRef {
    let field = |(name, kind): &(&'static str, Kind)| Field::new(*name, kind.arrow(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// A table of these rows.
///
/// Errors: an internal one when a row does not fit the columns.
pub(super) fn table(columns: Columns, rows: &[Vec<Cell>]) -> Result<Arc<dyn TableProvider>> {
    let schema = schema(columns);
    let arrays: Result<Vec<ArrayRef>> = columns.iter().enumerate().map(|(i, column)| array(column, rows, i)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays?, &options)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

macro_rules! plain {
    ($builder:ty, $pattern:path, $rows:expr, $i:expr, $name:expr) => {{
        let mut builder = <$builder>::new();
        for row in $rows {
            match row.get($i) {
                Some(Cell::Null) => builder.append_null(),
                Some($pattern(value)) => builder.append_value(value.to_owned()),
                other => return internal_err!("column {} holds {other:?}", $name),
            }
        }
        Arc::new(builder.finish())
    }};
}

fn array((name, kind): &(&'static str, Kind), rows: &[Vec<Cell>], i: usize) -> Result<ArrayRef> {
    Ok(match kind {
        Kind::Text => plain!(StringBuilder, Cell::Text, rows, i, name),
        Kind::Int => plain!(Int64Builder, Cell::Int, rows, i, name),
        Kind::Float => plain!(Float64Builder, Cell::Float, rows, i, name),
        Kind::Bool => plain!(BooleanBuilder, Cell::Bool, rows, i, name),
        Kind::Small => {
            let mut builder = Int16Builder::new();
            for row in rows {
                match row.get(i) {
                    Some(Cell::Null) => builder.append_null(),
                    Some(Cell::Int(value)) => builder.append_value(i16::try_from(*value).unwrap_or(i16::MAX)),
                    other => return internal_err!("column {name} holds {other:?}"),
                }
            }
            Arc::new(builder.finish())
        }
        Kind::At => {
            let mut builder = TimestampMillisecondBuilder::new().with_timezone("+00:00");
            for row in rows {
                match row.get(i) {
                    Some(Cell::Null) => builder.append_null(),
                    Some(Cell::At(value)) => builder.append_value(*value),
                    other => return internal_err!("column {name} holds {other:?}"),
                }
            }
            Arc::new(builder.finish())
        }
        // Lists are never filled: they hold grants and options that Weir has none of.
        Kind::Texts | Kind::Ints => {
            if rows.iter().any(|row| row.get(i) != Some(&Cell::Null)) {
                return internal_err!("column {name} holds a list");
            }
            new_null_array(&kind.arrow(), rows.len())
        }
    })
}
