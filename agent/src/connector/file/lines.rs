//! One file of records by lines, read in blocks and decoded in place.
//!
//! Reads are inline: they come from the page cache or stall the chain for one block of disk.

use crate::format::{Decoded, Decoder};
use memchr::{memchr, memchr2};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use weir_kernel::error::Error;
use weir_kernel::io::Budget;
use weir_planner::error::Class;

/// Bytes read at once: few enough to be in the core's cache still when they are decoded.
const BLOCK_BYTES: usize = 1 << 18;
/// Bytes of a header at most.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// A longer record is bad, and skipped to its line end.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// How records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// At each line end.
    Lines,
    /// At each line end outside of quotes; a quote opens at the start of a field only.
    Quoted {
        /// Field separator.
        delimiter: u8,
    },
}

/// What a read gave.
pub struct Lines {
    /// Rows and bad records.
    pub decoded: Decoded,
    /// Bytes of the records.
    pub bytes: usize,
    /// The file has been read to its end.
    pub ended: bool,
}

/// A file being read.
pub struct LineFile {
    path: String,
    file: File,
    decoder: Box<dyn Decoder>,
    framing: Framing,
    block: Vec<u8>,
    /// Undecoded bytes of `block`.
    start: usize,
    end: usize,
    /// The file has no more bytes.
    drained: bool,
    /// The rest of a record that was too long is being thrown away.
    discarding: bool,
    /// The first record names the fields.
    header_due: bool,
    /// Place of `start` in the file.
    offset: u64,
    /// Lines before it.
    line: u64,
}

enum Next {
    Record { length: usize, ending: usize },
    TooLong,
    End,
}

impl LineFile {
    /// Opens `path` at a place where a record starts. With `header` the first record names the
    /// fields: it is read again when the place lies behind it.
    ///
    /// Errors: `User` for a file that is missing, compressed, shorter than the place, or without the
    /// columns that are used.
    pub fn open(path: &str, decoder: Box<dyn Decoder>, framing: Framing, header: bool, offset: u64, line: u64) -> Result<Self, Error> {
        let wrap = |e| Error::because(Class::User, format!("file '{path}' cannot be opened"), e);
        let mut file = File::open(path).map_err(wrap)?;
        let size = file.metadata().map_err(wrap)?.len();
        if offset > size {
            let message =
                format!("file '{path}' has {size} bytes, fewer than the {offset} that were already read: it has been cut or replaced");
            return Err(Error::new(Class::User, message));
        }
        let mut decoder = decoder;
        if offset > 0 {
            if header {
                let mut first = Vec::new();
                BufReader::new(&file).take(HEADER_BYTES_MAX).read_until(b'\n', &mut first).map_err(wrap)?;
                decoder.header(trimmed(without_mark(&first))).map_err(|e| Error::new(e.class, format!("file '{path}': {}", e.message)))?;
            }
            file.seek(SeekFrom::Start(offset)).map_err(wrap)?;
        }
        let block = vec![0; BLOCK_BYTES];
        let header_due = header && offset == 0;
        let mut this = LineFile {
            path: path.to_owned(),
            file,
            decoder,
            framing,
            block,
            start: 0,
            end: 0,
            drained: false,
            discarding: false,
            header_due,
            offset,
            line,
        };
        if offset == 0 {
            this.begin()?;
        }
        Ok(this)
    }

    /// Looks at the first bytes: skips a byte order mark, refuses compressed files.
    fn begin(&mut self) -> Result<(), Error> {
        self.refill()?;
        let head = self.block.get(..self.end).unwrap_or_default();
        let magic: [(&[u8], &str); 3] = [(&[0x1f, 0x8b], "gzip"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"), (b"PAR1", "parquet")];
        if let Some((_, name)) = magic.iter().find(|(magic, _)| head.starts_with(magic)) {
            let way_out = if *name == "parquet" { "set format = 'parquet'" } else { "compressed files are not read yet; unpack it first" };
            return Err(Error::new(Class::User, format!("file '{}' is {name}: {way_out}", self.path)));
        }
        let mark = head.len() - without_mark(head).len();
        self.start += mark;
        self.offset += mark as u64;
        Ok(())
    }

    /// Next byte and the lines before it.
    pub fn position(&self) -> (u64, u64) {
        (self.offset, self.line)
    }

    /// Decodes records within the budget.
    ///
    /// Errors: `Retry` when the file cannot be read; `User` for a header without a used column.
    pub fn read(&mut self, budget: Budget) -> Result<Lines, Error> {
        let (mut bytes, mut ended) = (0, false);
        while self.decoder.pending() < budget.rows.max(1) {
            match self.next()? {
                Next::End => {
                    ended = true;
                    break;
                }
                Next::TooLong => {
                    let head = self.block.get(self.start..self.end).unwrap_or_default();
                    self.decoder.refuse(&format!("the record is longer than {RECORD_BYTES_MAX} bytes"), self.line + 1, head);
                    self.discarding = true;
                    self.consume(self.end - self.start);
                }
                Next::Record { length, ending } => {
                    if bytes > 0 && bytes + length > budget.bytes {
                        break;
                    }
                    let record = self.block.get(self.start..self.start + length).unwrap_or_default();
                    let record = trimmed(record);
                    if self.discarding {
                        self.discarding = false;
                    } else if self.header_due {
                        self.header_due = false;
                        self.decoder.header(record).map_err(|e| Error::new(e.class, format!("file '{}': {}", self.path, e.message)))?;
                    } else if !record.is_empty() {
                        self.decoder.push(record, self.line + 1);
                    }
                    bytes += length + ending;
                    // Records in quotes may span lines; they count as one, so that a position can say
                    // which record of the file comes next.
                    self.line += 1;
                    self.consume(length + ending);
                }
            }
        }
        Ok(Lines { decoded: self.decoder.finish()?, bytes, ended })
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    #[inline]
    fn next(&mut self) -> Result<Next, Error> {
        loop {
            let held = self.block.get(self.start..self.end).unwrap_or_default();
            // What is left of a record that was too long ends at the next line end, quoted or not.
            let found = if self.discarding { memchr(b'\n', held) } else { record_end(self.framing, held, self.drained) };
            if let Some(length) = found {
                return Ok(Next::Record { length, ending: 1 });
            }
            if self.drained {
                return Ok(if held.is_empty() { Next::End } else { Next::Record { length: held.len(), ending: 0 } });
            }
            if self.discarding {
                self.consume(self.end - self.start);
            } else if held.len() > RECORD_BYTES_MAX {
                return Ok(Next::TooLong);
            }
            self.refill()?;
        }
    }

    /// Moves what is held to the front and reads behind it.
    fn refill(&mut self) -> Result<(), Error> {
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.block.len() {
            self.block.resize(self.block.len() * 2, 0);
        }
        let room = self.block.get_mut(self.end..).unwrap_or_default();
        let read = loop {
            match self.file.read(room) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = read.map_err(|e| Error::because(Class::Retry, format!("file '{}' cannot be read", self.path), e))?;
        self.drained = read == 0;
        self.end += read;
        Ok(())
    }
}

/// Length of the first record, if it ends within `held`.
#[inline]
pub fn record_end(framing: Framing, held: &[u8], drained: bool) -> Option<usize> {
    match framing {
        Framing::Lines => memchr(b'\n', held),
        Framing::Quoted { delimiter } => {
            let (mut at, mut quoted) = (0, false);
            loop {
                let found = at + memchr2(b'"', b'\n', held.get(at..)?)?;
                let byte = held.get(found).copied()?;
                at = found + 1;
                if byte == b'\n' {
                    if !quoted {
                        return Some(found);
                    }
                } else if !quoted {
                    let before = found.checked_sub(1).and_then(|i| held.get(i));
                    quoted = before.is_none_or(|b| *b == delimiter);
                } else {
                    match held.get(at) {
                        Some(b'"') => at += 1,
                        // The block may have cut a doubled quote in two.
                        None if !drained => return None,
                        _ => quoted = false,
                    }
                }
            }
        }
    }
}

/// A record without its line end.
pub fn trimmed(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// The bytes without a byte order mark before them.
pub fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head)
}
