//! Records of a sample to columns (JOB-6): a decoder that keeps what kinds of values it saw, and no row.

use super::csv::split;
use super::{Decoded, Decoder};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema as ArrowSchema;
use parking_lot::Mutex;
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_planner::connector::Format;
use weir_planner::error::Class;
use weir_planner::schema::Column;
use weir_planner::schema::infer::Inference;

/// What the records of one source gave so far; shared by the decoders of all of its files.
#[derive(Clone, Default)]
pub struct Sample(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    inference: Inference,
    /// Why the first bad record is none.
    bad: Option<String>,
}

impl Sample {
    /// A decoder that adds to this sample.
    ///
    /// Errors: `User` for a format that does not come in records.
    pub fn decoder(&self, format: Option<&Format>) -> Result<Box<dyn Decoder>, Error> {
        let form = match format {
            None | Some(Format::Json(_)) => Form::Json,
            Some(Format::Csv(csv)) => Form::Csv { delimiter: super::csv::delimiter(csv)?, named: csv.header, names: None },
            Some(Format::Raw(_) | Format::Parquet(_)) => {
                let message = format!("format '{}' does not come in records whose columns can be found out", super::name(format));
                return Err(Error::new(Class::User, message));
            }
        };
        Ok(Box::new(SampleDecoder { sample: self.clone(), form, pending: 0 }))
    }

    /// Good records so far.
    pub fn records(&self) -> u64 {
        self.0.lock().inference.records()
    }

    /// The columns.
    ///
    /// Errors: `Retry` when there was no record; `User` when none of them was good, or when their fields cannot be columns.
    pub fn columns(&self) -> Result<Vec<Column>, Error> {
        let seen = self.0.lock();
        match (seen.inference.records(), &seen.bad) {
            (0, None) => Err(Error::new(Class::Retry, "no row to sample yet")),
            (0, Some(reason)) => Err(Error::new(
                Class::User,
                format!("none of the sampled records can be read: {reason}; mend the format, or declare the columns"),
            )),
            (_, _) => seen.inference.columns().map_err(refused),
        }
    }
}

/// A fault of the sample as this agent's error.
pub fn refused(fault: weir_planner::error::Fault) -> Error {
    let hint = if fault.hint.is_empty() { String::new() } else { format!("; {}", fault.hint) };
    Error::new(Class::User, format!("{}{hint}", fault.message))
}

enum Form {
    Json,
    Csv { delimiter: u8, named: bool, names: Option<Vec<String>> },
}

struct SampleDecoder {
    sample: Sample,
    form: Form,
    pending: usize,
}

impl Decoder for SampleDecoder {
    fn keep_raw(&mut self, _bytes_max: usize) {}

    fn header(&mut self, line: &[u8]) -> Result<(), Error> {
        if let Form::Csv { delimiter, names, .. } = &mut self.form {
            let fields = split(*delimiter, line).map_err(|reason| Error::new(Class::User, format!("csv header: {reason}")))?;
            *names = Some(fields.into_iter().map(Option::unwrap_or_default).collect());
        }
        Ok(())
    }

    fn push(&mut self, record: &[u8], _at: u64) {
        self.pending += 1;
        let mut seen = self.sample.0.lock();
        let taken = match &self.form {
            Form::Json => seen.inference.json(record),
            Form::Csv { named: true, names: None, .. } => Err("the csv header has not been read".to_owned()),
            Form::Csv { delimiter, names, .. } => split(*delimiter, record).and_then(|fields| match names {
                Some(names) if names.len() != fields.len() => Err(format!("{} fields where {} are expected", fields.len(), names.len())),
                Some(_) | None => {
                    seen.inference.delimited(names.as_deref(), &fields);
                    Ok(())
                }
            }),
        };
        if let Err(reason) = taken {
            seen.bad.get_or_insert(reason);
        }
    }

    fn push_absent(&mut self, _at: u64) {
        self.pending += 1;
    }

    fn refuse(&mut self, reason: &str, _at: u64, _record: &[u8]) {
        self.pending += 1;
        self.sample.0.lock().bad.get_or_insert_with(|| reason.to_owned());
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn finish(&mut self) -> Result<Decoded, Error> {
        self.pending = 0;
        Ok(Decoded { rows: RecordBatch::new_empty(Arc::new(ArrowSchema::empty())), bad: Vec::new() })
    }
}
