//! JSON objects to columns and back. The decoder is a flat scanner driven by the columns that the
//! job uses: it expects each record to look like the one before, compares whole `,"name":` runs,
//! and writes values straight into Arrow's buffers.
//!
//! What it takes: one object a record, fields in any order, white space anywhere. A missing field
//! and `null` are NULL. Strings hold any type's text (see [`super::value`]); numbers do for the
//! numeric types, for TEXT (their text) and for times with a declared unit; objects and arrays do
//! for TEXT (their JSON text). BYTEA comes as a string of `\x` hex or base64. A used field that
//! appears twice makes a bad record. Values of fields that the job does not use are skipped by
//! their structure alone: their strings and numbers are not looked into.

mod encode;
mod scan;

pub use encode::{JsonEncoder, Rows};

use super::cell::Cells;
use super::{Decoded, Decoder, Filling};
use scan::Scan;
use std::collections::HashMap;
use weir_kernel::error::Error;
use weir_planner::connector::DecodeColumn;

/// Fields of a record whose place is remembered; those behind are matched by name each time.
const LAYOUT_FIELDS_MAX: usize = 256;
/// Longest run of separator, name and colon that is remembered.
const LAYOUT_BYTES_MAX: usize = 256;

/// What the record before had at one place.
struct Expected {
    /// The bytes from the end of one value to the start of the next, such as `,"price":`.
    run: Vec<u8>,
    /// The used column of that name.
    column: Option<usize>,
}

/// Decodes JSON objects.
pub struct JsonDecoder {
    filling: Filling,
    names: HashMap<Vec<u8>, usize>,
    layout: Vec<Expected>,
    scratch: Vec<u8>,
}

impl JsonDecoder {
    /// For the used ones of the declared columns; fields are matched by exact name.
    ///
    /// Errors: `User` when a used column is not declared or has a type that records cannot hold.
    pub fn new(columns: &[DecodeColumn], used: &[String]) -> Result<Self, Error> {
        let filling = Filling::new(columns, used)?;
        let names = used.iter().enumerate().map(|(i, name)| (name.clone().into_bytes(), i)).collect();
        Ok(JsonDecoder { filling, names, layout: Vec::new(), scratch: Vec::new() })
    }

    fn record(&mut self, record: &[u8]) -> Result<(), String> {
        let row = self.filling.rows();
        let mut scan = Scan::new(record);
        let mut field = 0;
        loop {
            let column = match self.layout.get(field) {
                Some(expected) if scan.take(&expected.run) => {
                    scan.blank();
                    expected.column
                }
                _ => match self.name(&mut scan, field)? {
                    Some(column) => column,
                    None => break,
                },
            };
            match column.and_then(|column| self.filling.cells.get_mut(column)) {
                None => scan.skip_value(&mut self.scratch)?,
                Some(cells) => {
                    if cells.rows() > row {
                        return Err(format!("field '{}': appears twice", cells.name()));
                    }
                    value(&mut scan, cells, &mut self.scratch)?;
                }
            }
            field += 1;
            if scan.at_end_of_object() {
                break;
            }
        }
        scan.end()
    }

    /// Reads separator, name and colon with care, and remembers them. `None` at the closing brace.
    #[cold]
    fn name(&mut self, scan: &mut Scan<'_>, field: usize) -> Result<Option<Option<usize>>, String> {
        let start = scan.position();
        let Some(name) = scan.name(field == 0)? else { return Ok(None) };
        let column = if name.escaped {
            let text: String = serde_json::from_slice(name.quoted).map_err(|_| "a field name is not a JSON string".to_owned())?;
            self.names.get(text.as_bytes()).copied()
        } else {
            self.names.get(name.inside).copied()
        };
        let run = scan.since(start);
        if run.len() <= LAYOUT_BYTES_MAX {
            if let Some(expected) = self.layout.get_mut(field) {
                expected.run.clear();
                expected.run.extend_from_slice(run);
                expected.column = column;
            } else if field == self.layout.len() && field < LAYOUT_FIELDS_MAX {
                self.layout.push(Expected { run: run.to_vec(), column });
            }
        }
        Ok(Some(column))
    }
}

/// One value into its column.
#[inline]
fn value(scan: &mut Scan<'_>, cells: &mut Cells, scratch: &mut Vec<u8>) -> Result<(), String> {
    match scan.peek() {
        Some(b'"') => {
            let text = scan.string()?;
            // Folded rather than stopped early, so that it runs many bytes at a time.
            let odd = text.inside.iter().fold(text.escaped, |odd, &b| odd | (b < 0x20));
            if odd {
                let plain: String =
                    serde_json::from_slice(text.quoted).map_err(|_| format!("field '{}': not a JSON string", cells.name()))?;
                cells.push_text(plain.as_bytes())
            } else {
                cells.push_text(text.inside)
            }
        }
        Some(b'-' | b'0'..=b'9') => {
            let token = scan.number();
            if scan::is_number(token) { cells.push_number(token) } else { Err(format!("field '{}': not a JSON number", cells.name())) }
        }
        Some(b't') if scan.word(b"true") => cells.push_bool(true),
        Some(b'f') if scan.word(b"false") => cells.push_bool(false),
        Some(b'n') if scan.word(b"null") => cells.push_null(),
        Some(b'{' | b'[') => {
            let start = scan.position();
            scan.skip_value(scratch)?;
            let text = scan.since(start);
            // Kept as text, so it has to be JSON all through; serde_json checks it without recursion.
            if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err() {
                return Err(format!("field '{}': not valid JSON", cells.name()));
            }
            match cells.ty() {
                weir_planner::schema::ColumnType::Text => cells.push_text(text),
                ty => Err(format!("field '{}': an object or array is not of type {ty}", cells.name())),
            }
        }
        _ => Err(format!("field '{}': not a JSON value", cells.name())),
    }
}

impl Decoder for JsonDecoder {
    fn header(&mut self, _line: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn push(&mut self, record: &[u8], at: u64) {
        let filled = self.record(record);
        self.filling.close(filled, at, record);
    }

    fn push_absent(&mut self, at: u64) {
        self.filling.refuse("the record has no value (a tombstone)", at, &[]);
    }

    fn refuse(&mut self, reason: &str, at: u64, record: &[u8]) {
        self.filling.refuse(reason, at, record);
    }

    fn keep_raw(&mut self, bytes_max: usize) {
        self.filling.keep_raw(bytes_max);
    }

    fn pending(&self) -> usize {
        self.filling.pending()
    }

    fn finish(&mut self) -> Result<Decoded, Error> {
        self.filling.finish()
    }
}

#[cfg(test)]
mod tests;
