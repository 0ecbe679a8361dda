//! Options to a Decoder or Encoder: the one match on formats.

pub mod cell;
pub mod csv;
pub mod json;
pub mod parquet;
pub mod raw;
pub mod sample;

use arrow::array::RecordBatch;
use cell::Cells;
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_kernel::io::BadRecord;
use weir_kernel::side::RAW_BYTES_MAX;
use weir_planner::connector::{ConnectorCard, DecodeColumn, Format};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;
use weir_planner::spec::ErrorPolicy;
pub use weir_planner::value;

/// Bytes of a bad record that are kept for people, unless it is routed (CON-5).
pub const RAW_BYTES_SHOWN: usize = 1024;

/// Records to columns. One decoder for all sources (C30): the same bytes give the same rows
/// whether they came from a file or a broker.
pub trait Decoder: Send {
    /// Tells the names of the fields, for a format that states them once at the start of a file.
    ///
    /// Errors: `User` when a column that the job uses is not among them.
    fn header(&mut self, line: &[u8]) -> Result<(), Error>;

    /// Adds one record; `at` is its offset, line or row number. A bad record is kept aside and
    /// leaves its neighbours alone (KER-7).
    fn push(&mut self, record: &[u8], at: u64);

    /// Adds a record that has no value at all: a Kafka tombstone. A NULL in raw format, a bad
    /// record in every other.
    fn push_absent(&mut self, at: u64);

    /// Adds a record that the source itself found bad.
    fn refuse(&mut self, reason: &str, at: u64, record: &[u8]);

    /// Keeps so many bytes of a bad record, [`RAW_BYTES_SHOWN`] when never told.
    fn keep_raw(&mut self, bytes_max: usize);

    /// Records pushed since the last `finish`, bad ones included.
    fn pending(&self) -> usize;

    /// The rows so far in the columns used, and the bad records; the decoder is empty again.
    fn finish(&mut self) -> Result<Decoded, Error>;
}

/// One card for each format, as those of connectors.
pub fn cards() -> Vec<ConnectorCard> {
    let card =
        |name, options: &[(&'static str, &'static str, &'static str)]| ConnectorCard { name, role: "format", options: options.to_vec() };
    vec![
        card("json", &[]),
        card("csv", &[("header", "boolean", "false"), ("delimiter", "one character", ",")]),
        card("parquet", &[]),
        card("raw", &[]),
    ]
}

/// What a decoder made of the records pushed.
#[derive(Debug)]
pub struct Decoded {
    /// Rows in record order.
    pub rows: RecordBatch,
    /// Records that gave no row, in record order.
    pub bad: Vec<Bad>,
}

/// A record that gave no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// As it was pushed.
    pub at: u64,
    /// Names field and type where it can; never holds the value (C42).
    pub reason: String,
    /// As much of the record as is kept.
    pub raw: Vec<u8>,
}

impl Bad {
    /// Keeps the first `bytes_max` bytes of the record.
    pub fn new(at: u64, reason: impl Into<String>, record: &[u8], bytes_max: usize) -> Self {
        Bad { at, reason: reason.into(), raw: record.get(..bytes_max).unwrap_or(record).to_vec() }
    }

    /// As the kernel counts it; `label` says what `at` is, such as `offset`.
    pub fn into_record(self, label: &str) -> BadRecord {
        BadRecord { position: format!("{label} {}", self.at), reason: self.reason, raw: self.raw }
    }
}

/// A decoder of records. `columns` are all declared ones, `used` names those to decode, in the
/// order of the batch. Without a format records are JSON.
///
/// Errors: `User` when a used column is not declared, when the format does not give such columns,
/// or when the format does not come in records (Parquet).
pub fn decoder(format: Option<&Format>, columns: &[DecodeColumn], used: &[String]) -> Result<Box<dyn Decoder>, Error> {
    Ok(match format {
        None | Some(Format::Json(_)) => Box::new(json::JsonDecoder::new(columns, used)?),
        Some(Format::Csv(options)) => Box::new(csv::CsvDecoder::new(options, columns, used)?),
        Some(Format::Raw(_)) => Box::new(raw::RawDecoder::new(columns, used)?),
        Some(Format::Parquet(_)) => {
            let message = "format 'parquet' is read from files only; use connector 'file', or another format";
            return Err(Error::new(Class::User, message));
        }
    })
}

/// The decoder of a source. A record that is routed is kept whole, as far as error rows carry it.
///
/// Errors: as [`decoder`].
pub fn decoder_of(work: &SourceWork) -> Result<Box<dyn Decoder>, Error> {
    let mut decoder = decoder(work.format.as_ref(), &work.columns, &work.used)?;
    decoder.keep_raw(raw_bytes(work.on_error));
    Ok(decoder)
}

/// Bytes of a bad record that are kept under a policy.
pub fn raw_bytes(on_error: ErrorPolicy) -> usize {
    match on_error {
        ErrorPolicy::Fail | ErrorPolicy::Skip => RAW_BYTES_SHOWN,
        ErrorPolicy::Route => RAW_BYTES_MAX,
    }
}

/// A format's name as in `WITH (format = …)`.
pub fn name(format: Option<&Format>) -> &'static str {
    match format {
        None | Some(Format::Json(_)) => "json",
        Some(Format::Csv(_)) => "csv",
        Some(Format::Parquet(_)) => "parquet",
        Some(Format::Raw(_)) => "raw",
    }
}

/// The declared columns that `used` names, in its order.
pub(crate) fn pick<'a>(columns: &'a [DecodeColumn], used: &[String]) -> Result<Vec<&'a DecodeColumn>, Error> {
    let find = |name: &String| {
        let found = columns.iter().find(|column| column.column.name == *name);
        found.ok_or_else(|| Error::new(Class::User, format!("column '{name}' is used but not declared")))
    };
    used.iter().map(find).collect()
}

/// The columns and the bad records of one batch: what every decoder fills.
pub(crate) struct Filling {
    pub cells: Vec<Cells>,
    schema: arrow::datatypes::SchemaRef,
    rows: usize,
    bad: Vec<Bad>,
    raw_bytes: usize,
}

impl Filling {
    pub fn new(columns: &[DecodeColumn], used: &[String]) -> Result<Self, Error> {
        let picked = pick(columns, used)?;
        let cells = picked.iter().map(|column| Cells::new(column)).collect::<Result<Vec<_>, Error>>()?;
        let schema = weir_planner::schema::Schema(picked.iter().map(|column| column.column.clone()).collect());
        Ok(Filling { cells, schema: Arc::new(schema.to_arrow()), rows: 0, bad: Vec::new(), raw_bytes: RAW_BYTES_SHOWN })
    }

    pub fn keep_raw(&mut self, bytes_max: usize) {
        self.raw_bytes = bytes_max;
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn pending(&self) -> usize {
        self.rows + self.bad.len()
    }

    /// Ends a row: columns that got no value get NULL; on a fault the row is taken back.
    #[inline]
    pub fn close(&mut self, filled: Result<(), String>, at: u64, record: &[u8]) {
        let rows = self.rows;
        let ended = filled.and_then(|()| {
            for cells in &mut self.cells {
                if cells.rows() == rows {
                    cells.push_null()?;
                }
            }
            Ok(())
        });
        match ended {
            Ok(()) => self.rows += 1,
            Err(reason) => self.refuse(reason, at, record),
        }
    }

    #[cold]
    pub fn refuse(&mut self, reason: impl Into<String>, at: u64, record: &[u8]) {
        for cells in &mut self.cells {
            cells.truncate(self.rows);
        }
        self.bad.push(Bad::new(at, reason, record, self.raw_bytes));
    }

    pub fn finish(&mut self) -> Result<Decoded, Error> {
        let arrays = self.cells.iter_mut().map(Cells::finish).collect::<Result<Vec<_>, Error>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|e| Error::because(Class::Bug, "decoded columns do not make a batch", e))?;
        self.rows = 0;
        Ok(Decoded { rows, bad: std::mem::take(&mut self.bad) })
    }
}
