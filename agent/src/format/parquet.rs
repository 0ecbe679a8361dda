//! Parquet files to batches: only the used columns are read; they are cast to the declared types,
//! and a row whose value does not fit is a bad record, not the end of its batch.

use super::{Bad, Decoded, RAW_BYTES_SHOWN, pick};
use crate::format::value;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch, not};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::fs::File;
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_kernel::side::row_texts;
use weir_planner::connector::DecodeColumn;
use weir_planner::error::Class;
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::time::TimeUnit;

/// One Parquet file being read in row order.
pub struct ParquetFile {
    path: String,
    reader: ParquetRecordBatchReader,
    columns: Vec<DecodeColumn>,
    schema: SchemaRef,
    /// Read but not given yet.
    held: Option<RecordBatch>,
    /// Rows in the file.
    rows: u64,
    /// Next row to give.
    next: u64,
    /// Bytes kept of a bad row.
    raw_bytes: usize,
}

impl ParquetFile {
    /// Opens `path` at row `from`; batches have at most `batch_rows` rows.
    ///
    /// Errors: `User` for a file that is missing or not Parquet, and for a used column that the
    /// file lacks or whose type does not become the declared one; each names the file.
    pub fn open(path: &str, columns: &[DecodeColumn], used: &[String], from: u64, batch_rows: usize) -> Result<Self, Error> {
        let file = File::open(path).map_err(|e| Error::because(Class::User, format!("file '{path}' cannot be opened"), e))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)
            .map_err(|e| Error::because(Class::User, format!("file '{path}' is not a readable Parquet file"), e))?;
        let columns: Vec<DecodeColumn> = pick(columns, used)?.into_iter().cloned().collect();
        for column in &columns {
            let name = &column.column.name;
            let Ok(field) = builder.schema().field_with_name(name) else {
                let have: Vec<&str> = builder.schema().fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::new(Class::User, format!("file '{path}' has no column '{name}'; it has {}", have.join(", "))));
            };
            if !castable(field.data_type(), column) {
                let message =
                    format!("file '{path}': column '{name}' is {}, which does not become {}", field.data_type(), column.column.ty);
                return Err(Error::new(Class::User, message));
            }
        }
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        if from > rows {
            let message = format!("file '{path}' has {rows} rows, fewer than the {from} that were already read: it has been replaced");
            return Err(Error::new(Class::User, message));
        }
        let roots = columns.iter().filter_map(|column| builder.schema().index_of(&column.column.name).ok());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let skip = usize::try_from(from).unwrap_or(usize::MAX);
        let reader = builder
            .with_projection(mask)
            .with_batch_size(batch_rows.max(1))
            .with_offset(skip)
            .build()
            .map_err(|e| Error::because(Class::User, format!("file '{path}' cannot be read"), e))?;
        let schema = Arc::new(Schema(columns.iter().map(|column| column.column.clone()).collect()).to_arrow());
        Ok(ParquetFile { path: path.to_owned(), reader, columns, schema, held: None, rows, next: from, raw_bytes: RAW_BYTES_SHOWN })
    }

    /// Keeps so many bytes of a bad row, which has no record of its own and is kept as JSON.
    pub fn keep_raw(&mut self, bytes_max: usize) {
        self.raw_bytes = bytes_max;
    }

    /// Next row to give.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Rows not given yet.
    pub fn left(&self) -> u64 {
        self.rows.saturating_sub(self.next)
    }

    /// At most `rows_max` rows in the declared types, and their size as read.
    ///
    /// Errors: `User` for a file that breaks off.
    pub fn read(&mut self, rows_max: usize) -> Result<(Decoded, usize), Error> {
        let batch = match self.held.take() {
            Some(batch) => batch,
            None => match self.reader.next() {
                None => {
                    // Nothing is left, whatever the footer said.
                    self.next = self.rows;
                    return Ok((Decoded { rows: RecordBatch::new_empty(self.schema.clone()), bad: Vec::new() }, 0));
                }
                Some(batch) => batch
                    .map_err(|e| Error::because(Class::User, format!("file '{}' cannot be read at row {}", self.path, self.next), e))?,
            },
        };
        let taken = batch.num_rows().min(rows_max.max(1));
        let head = batch.slice(0, taken);
        if taken < batch.num_rows() {
            self.held = Some(batch.slice(taken, batch.num_rows() - taken));
        }
        let decoded = self.cast(&head)?;
        self.next += taken as u64;
        Ok((decoded, head.get_array_memory_size()))
    }

    fn cast(&self, batch: &RecordBatch) -> Result<Decoded, Error> {
        let rows = batch.num_rows();
        let mut reasons: Vec<Option<String>> = Vec::new();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let name = &column.column.name;
            let missing = || Error::new(Class::Bug, format!("file '{}': column '{name}' was not read", self.path));
            let array = batch.column_by_name(name).ok_or_else(missing)?;
            let cast = cast(array, column).map_err(|e| Error::because(Class::User, format!("file '{}': column '{name}'", self.path), e))?;
            if cast.null_count() > array.null_count() || (!column.column.nullable && cast.null_count() > 0) {
                reasons.resize(rows, None);
                for (row, reason) in reasons.iter_mut().enumerate() {
                    if cast.is_null(row) && array.is_valid(row) {
                        reason.get_or_insert_with(|| format!("field '{name}': the value is out of range for {}", column.column.ty));
                    } else if cast.is_null(row) && !column.column.nullable {
                        reason.get_or_insert_with(|| format!("field '{name}': no value for a column that is NOT NULL"));
                    }
                }
            }
            arrays.push(cast);
        }
        let broken = |e| Error::because(Class::Bug, format!("file '{}': the columns read do not make a batch", self.path), e);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        if reasons.iter().all(Option::is_none) {
            let rows = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options).map_err(broken)?;
            return Ok(Decoded { rows, bad: Vec::new() });
        }
        let keep: BooleanArray = reasons.iter().map(|reason| Some(reason.is_none())).collect();
        // Nullable until the faulty rows are out.
        let fields: Vec<_> = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let loose = Arc::new(arrow::datatypes::Schema::new(fields));
        let all = RecordBatch::try_new_with_options(loose, arrays, &options).map_err(broken)?;
        let kept = filter_record_batch(&all, &keep).map_err(broken)?;
        let options = RecordBatchOptions::new().with_row_count(Some(kept.num_rows()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), kept.columns().to_vec(), &options).map_err(broken)?;
        let faulty = filter_record_batch(batch, &not(&keep).map_err(broken)?).map_err(broken)?;
        let texts = row_texts(&faulty)?;
        let faults = reasons.into_iter().zip(self.next..).filter_map(|(reason, at)| Some((reason?, at)));
        let bad = faults.zip(texts).map(|((reason, at), text)| Bad::new(at, reason, &text, self.raw_bytes)).collect();
        Ok(Decoded { rows, bad })
    }
}

/// The columns that a file brings, in its order.
///
/// Errors: `User` for a file that is missing or not Parquet, and for columns of types that are not
/// read, each by name.
pub fn columns_of(path: &str) -> Result<Vec<Column>, Error> {
    let file = File::open(path).map_err(|e| Error::because(Class::User, format!("file '{path}' cannot be opened"), e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|e| Error::because(Class::User, format!("file '{path}' is not a readable Parquet file"), e))?;
    let in_file = |e: Error| Error { message: format!("file '{path}': {}", e.message), ..e };
    let columns = weir_planner::schema::infer::of_arrow(builder.schema()).map_err(|fault| in_file(super::sample::refused(fault)))?;
    let misfit = |column: &&Column| {
        let declared = DecodeColumn { column: (*column).clone(), timestamp_unit: None };
        builder.schema().field_with_name(&column.name).is_ok_and(|field| !castable(field.data_type(), &declared))
    };
    match columns.iter().find(misfit) {
        None => Ok(columns),
        Some(column) => {
            let message = format!("file '{path}': column '{}' does not become {}; declare the other columns", column.name, column.ty);
            Err(Error::new(Class::Bug, message))
        }
    }
}

fn is_integer(ty: &DataType) -> bool {
    use DataType as D;
    matches!(ty, D::Int8 | D::Int16 | D::Int32 | D::Int64 | D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64)
}

/// What a file's type may become. Integers become times only with a declared unit (C29).
fn castable(from: &DataType, column: &DecodeColumn) -> bool {
    use DataType as D;
    match column.column.ty {
        ColumnType::Boolean => matches!(from, D::Boolean),
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => is_integer(from),
        ColumnType::Real | ColumnType::Double => is_integer(from) || matches!(from, D::Float16 | D::Float32 | D::Float64),
        ColumnType::Decimal { .. } => is_integer(from) || matches!(from, D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..)),
        ColumnType::Text => {
            matches!(from, D::Utf8 | D::LargeUtf8 | D::Utf8View) || matches!(from, D::Dictionary(_, v) if v.as_ref() == &D::Utf8)
        }
        ColumnType::Bytea => matches!(from, D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_)),
        ColumnType::Date => matches!(from, D::Date32),
        ColumnType::Timestamp { .. } => matches!(from, D::Timestamp(..)) || (is_integer(from) && column.timestamp_unit.is_some()),
        ColumnType::Interval => false,
    }
}

/// Values that do not fit become NULL, which the caller tells from a NULL that was read.
fn cast(array: &ArrayRef, column: &DecodeColumn) -> Result<ArrayRef, arrow::error::ArrowError> {
    let target = column.column.ty.to_arrow();
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let ColumnType::Timestamp { unit, .. } = column.column.ty else {
        return if array.data_type() == &target { Ok(array.clone()) } else { cast_with_options(array, &target, &options) };
    };
    let from = match array.data_type() {
        DataType::Timestamp(from, _) => match from {
            arrow::datatypes::TimeUnit::Second => TimeUnit::Second,
            arrow::datatypes::TimeUnit::Millisecond => TimeUnit::Millisecond,
            arrow::datatypes::TimeUnit::Microsecond => TimeUnit::Microsecond,
            arrow::datatypes::TimeUnit::Nanosecond => TimeUnit::Nanosecond,
        },
        // `castable` has made sure of the declared unit.
        _ => column.timestamp_unit.unwrap_or(unit),
    };
    // Through plain integers: Arrow's own cast truncates towards 1970 where time is floored (EV-1).
    let numbers = cast_with_options(array, &DataType::Int64, &options)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let converted: Int64Array =
        if from == unit { numbers.clone() } else { numbers.unary_opt(|value| value::convert_unit(value, from, unit)) };
    // The numbers are right already; only their type changes.
    let data = converted.into_data().into_builder().data_type(target).build()?;
    Ok(arrow::array::make_array(data))
}

#[cfg(test)]
mod tests;
