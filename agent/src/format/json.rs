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
mod quick;
mod scan;

pub use encode::{JsonEncoder, Rows};

use super::cell::Cells;
use super::{Decoded, Decoder, Filling};
use quick::{Minute, Run};
use scan::Scan;
use std::collections::HashMap;
use weir_kernel::error::Error;
use weir_planner::connector::DecodeColumn;
use weir_planner::schema::ColumnType;
use weir_planner::time::TimeUnit;

/// Fields of a record whose place is remembered; those behind are matched by name each time.
const LAYOUT_FIELDS_MAX: usize = 256;
/// Longest run of separator, name and colon that is remembered.
const LAYOUT_BYTES_MAX: usize = 256;

/// What the record before had at one place.
struct Expected {
    /// The bytes from the end of one value to the start of the next, such as `,"price":`.
    run: Run,
    road: Road,
}

/// How the value of a field is read.
enum Road {
    /// No column uses it.
    Skip,
    /// Into a column, as the general way reads values.
    Any(usize),
    /// Into a column of whole numbers, quickly as a rule.
    Integer(usize),
    /// Into a TEXT column.
    Text(usize),
    /// Into a TIMESTAMP column.
    Stamp(usize, TimeUnit, Minute),
}

/// Decodes JSON objects.
pub struct JsonDecoder {
    filling: Filling,
    names: HashMap<Vec<u8>, usize>,
    layout: Vec<Expected>,
    scratch: Vec<u8>,
    /// Every value goes the general way: what the tests compare the others with.
    careful: bool,
}

impl JsonDecoder {
    /// For the used ones of the declared columns; fields are matched by exact name.
    ///
    /// Errors: `User` when a used column is not declared or has a type that records cannot hold.
    pub fn new(columns: &[DecodeColumn], used: &[String]) -> Result<Self, Error> {
        let filling = Filling::new(columns, used)?;
        let names = used.iter().enumerate().map(|(i, name)| (name.clone().into_bytes(), i)).collect();
        Ok(JsonDecoder { filling, names, layout: Vec::new(), scratch: Vec::new(), careful: false })
    }

    fn record(&mut self, record: &[u8]) -> Result<(), String> {
        let row = self.filling.rows();
        let mut scan = Scan::new(record);
        let mut field = 0;
        loop {
            match self.layout.get_mut(field) {
                Some(expected) if expected.run.begins(scan.rest()) => {
                    scan.step(expected.run.len());
                    travel(&mut expected.road, &mut scan, &mut self.filling.cells, row, &mut self.scratch)?;
                }
                _ => {
                    // Spares most records the careful look.
                    if field > 0 && scan.at_end_of_object() {
                        break;
                    }
                    let Some(column) = self.name(&mut scan, field)? else { break };
                    let mut road = column.map_or(Road::Skip, Road::Any);
                    travel(&mut road, &mut scan, &mut self.filling.cells, row, &mut self.scratch)?;
                }
            }
            field += 1;
        }
        scan.end()
    }

    /// The way of values into a column.
    fn road(&self, column: Option<usize>) -> Road {
        let Some(column) = column else { return Road::Skip };
        match self.filling.cells.get(column) {
            Some(cells) if !self.careful => match cells.ty() {
                ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Road::Integer(column),
                ColumnType::Timestamp { .. } if cells.counts_units() => Road::Integer(column),
                ColumnType::Timestamp { unit, .. } => Road::Stamp(column, unit, Minute::default()),
                ColumnType::Text => Road::Text(column),
                ColumnType::Boolean | ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. } => Road::Any(column),
                ColumnType::Bytea | ColumnType::Date | ColumnType::Interval => Road::Any(column),
            },
            Some(_) | None => Road::Any(column),
        }
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
            if field == self.layout.len() && field < LAYOUT_FIELDS_MAX {
                self.layout.push(Expected { run: Run::default(), road: Road::Skip });
            }
            let road = self.road(column);
            if let Some(expected) = self.layout.get_mut(field) {
                expected.run.learn(run);
                expected.road = road;
            }
        }
        Ok(Some(column))
    }
}

/// One value, from its first byte on or blanks before it, into its column.
#[inline]
fn travel(road: &mut Road, scan: &mut Scan<'_>, cells: &mut [Cells], row: usize, scratch: &mut Vec<u8>) -> Result<(), String> {
    let (column, taken) = match road {
        Road::Skip => {
            return match quick::string_length(scan.rest()) {
                Some(length) => {
                    scan.step(length);
                    Ok(())
                }
                None => {
                    scan.blank();
                    scan.skip_value(scratch)
                }
            };
        }
        Road::Any(column) => (*column, None),
        Road::Integer(column) => {
            let found = quick::integer(scan.rest());
            (*column, found.filter(|(number, _)| fill(cells, *column, row, |cells| cells.push_integer(*number))).map(|(_, taken)| taken))
        }
        Road::Stamp(column, unit, minute) => {
            let found = quick::stamp(scan.rest(), *unit, minute);
            (*column, found.filter(|(stamp, _)| fill(cells, *column, row, |cells| cells.push_integer(*stamp))).map(|(_, taken)| taken))
        }
        Road::Text(column) => {
            let found = quick::text(scan.rest());
            let pushed = found.filter(|text| fill(cells, *column, row, |cells| cells.push_plain(text.inside, text.ascii)));
            (*column, pushed.map(|text| text.inside.len() + 2))
        }
    };
    if let Some(taken) = taken {
        scan.step(taken);
        return Ok(());
    }
    scan.blank();
    match cells.get_mut(column) {
        Some(cells) if cells.rows() > row => Err(format!("field '{}': appears twice", cells.name())),
        Some(cells) => value(scan, cells, scratch),
        None => scan.skip_value(scratch),
    }
}

/// Whether the column took a value quickly, as its first in this row.
#[inline]
fn fill(cells: &mut [Cells], column: usize, row: usize, push: impl FnOnce(&mut Cells) -> bool) -> bool {
    cells.get_mut(column).is_some_and(|cells| cells.rows() == row && push(cells))
}

/// One value into its column, the general way.
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
                ColumnType::Text => cells.push_text(text),
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
