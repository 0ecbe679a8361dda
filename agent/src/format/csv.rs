//! Delimited text to columns. A field without quotes that is empty is NULL, a quoted empty one is
//! an empty text; `""` within quotes is a quote. Values follow the rules of JSON strings.

use super::{Decoded, Decoder, Filling};
use weir_kernel::error::Error;
use weir_planner::connector::{Csv, DecodeColumn};
use weir_planner::error::Class;

/// Decodes delimited records.
pub struct CsvDecoder {
    filling: Filling,
    delimiter: u8,
    /// For each field of a record the used column that it feeds.
    fields: Vec<Option<usize>>,
    used: Vec<String>,
    named: bool,
    scratch: Vec<u8>,
}

/// One field as it was written.
struct Field {
    /// Its text is in the scratch buffer from here.
    start: usize,
    quoted: bool,
}

/// The separator as a byte.
///
/// Errors: `User` for a character that cannot delimit.
pub fn delimiter(options: &Csv) -> Result<u8, Error> {
    let delimiter = u8::try_from(options.delimiter).ok().filter(|d| d.is_ascii() && !matches!(d, b'"' | b'\n' | b'\r'));
    delimiter.ok_or_else(|| {
        let message = format!(
            "csv delimiter '{}' cannot be used; take one ASCII character other than a quote or line end",
            options.delimiter.escape_debug()
        );
        Error::new(Class::User, message)
    })
}

/// The fields of a record; `None` is NULL. Text that is not UTF-8 is mended, since only its kind matters.
///
/// Errors: a quote that is not closed, or closed too early.
pub fn split(delimiter: u8, record: &[u8]) -> Result<Vec<Option<String>>, String> {
    let (mut fields, mut scratch, mut rest) = (Vec::new(), Vec::new(), Some(record));
    while let Some(bytes) = rest {
        scratch.clear();
        let (found, tail) = field(delimiter, &mut scratch, bytes)?;
        rest = tail;
        let is_null = scratch.is_empty() && !found.quoted;
        fields.push((!is_null).then(|| String::from_utf8_lossy(&scratch).into_owned()));
    }
    Ok(fields)
}

/// Takes the next field off `rest` into the scratch buffer; gives what is left, if anything is.
fn field<'a>(delimiter: u8, scratch: &mut Vec<u8>, rest: &'a [u8]) -> Result<(Field, Option<&'a [u8]>), String> {
    let start = scratch.len();
    let Some(mut inside) = rest.strip_prefix(b"\"") else {
        let end = memchr::memchr(delimiter, rest);
        let (text, tail) = match end {
            Some(end) => (rest.get(..end), rest.get(end + 1..)),
            None => (Some(rest), None),
        };
        scratch.extend_from_slice(text.unwrap_or_default());
        return Ok((Field { start, quoted: false }, tail));
    };
    loop {
        let Some(end) = memchr::memchr(b'"', inside) else { return Err("a quote is not closed".to_owned()) };
        scratch.extend_from_slice(inside.get(..end).unwrap_or_default());
        match inside.get(end + 1..).unwrap_or_default() {
            [b'"', tail @ ..] => {
                scratch.push(b'"');
                inside = tail;
            }
            [] => return Ok((Field { start, quoted: true }, None)),
            [next, tail @ ..] if *next == delimiter => return Ok((Field { start, quoted: true }, Some(tail))),
            _ => return Err("text follows a closing quote".to_owned()),
        }
    }
}

impl CsvDecoder {
    /// Without a header fields follow the declared columns; with one they wait for
    /// [`Decoder::header`].
    ///
    /// Errors: `User` for a delimiter that cannot delimit, or a used column that is not declared.
    pub fn new(options: &Csv, columns: &[DecodeColumn], used: &[String]) -> Result<Self, Error> {
        let delimiter = delimiter(options)?;
        let place = |column: &DecodeColumn| used.iter().position(|name| *name == column.column.name);
        let fields = columns.iter().map(place).collect();
        Ok(CsvDecoder {
            filling: Filling::new(columns, used)?,
            delimiter,
            fields,
            used: used.to_vec(),
            named: options.header,
            scratch: Vec::new(),
        })
    }

    fn field<'a>(&mut self, rest: &'a [u8]) -> Result<(Field, Option<&'a [u8]>), String> {
        field(self.delimiter, &mut self.scratch, rest)
    }

    fn record(&mut self, record: &[u8]) -> Result<(), String> {
        let mut rest = Some(record);
        let mut count = 0;
        while let Some(bytes) = rest {
            self.scratch.clear();
            let (field, tail) = self.field(bytes)?;
            rest = tail;
            let Some(place) = self.fields.get(count) else {
                return Err(format!("more than the {} fields expected", self.fields.len()));
            };
            count += 1;
            let Some(cells) = place.and_then(|place| self.filling.cells.get_mut(place)) else { continue };
            let text = self.scratch.get(field.start..).unwrap_or_default();
            if text.is_empty() && !field.quoted {
                cells.push_null()?;
            } else {
                cells.push_text(text)?;
            }
        }
        if count < self.fields.len() {
            return Err(format!("{count} fields where {} are expected", self.fields.len()));
        }
        Ok(())
    }
}

impl Decoder for CsvDecoder {
    fn header(&mut self, line: &[u8]) -> Result<(), Error> {
        let (mut names, mut rest) = (Vec::new(), Some(line));
        while let Some(bytes) = rest {
            self.scratch.clear();
            let (field, tail) = self.field(bytes).map_err(|reason| Error::new(Class::User, format!("csv header: {reason}")))?;
            rest = tail;
            names.push(String::from_utf8_lossy(self.scratch.get(field.start..).unwrap_or_default()).into_owned());
        }
        for name in &self.used {
            match names.iter().filter(|other| *other == name).count() {
                0 => {
                    let message = format!("csv header has no column '{name}'; it has {}", names.join(", "));
                    return Err(Error::new(Class::User, message));
                }
                1 => {}
                _ => return Err(Error::new(Class::User, format!("csv header names column '{name}' twice"))),
            }
        }
        self.fields = names.iter().map(|name| self.used.iter().position(|used| used == name)).collect();
        self.named = false;
        Ok(())
    }

    fn push(&mut self, record: &[u8], at: u64) {
        if self.named {
            self.filling.refuse("the csv header has not been read", at, record);
            return;
        }
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
