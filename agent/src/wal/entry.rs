//! One entry of a log: the rows of one poll, and the bytes that stand for them.

use super::{Compression, corrupt};
use crate::error::Error;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::io::Cursor;
use weir_kernel::io::BadRecord;
use weir_planner::error::Class;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"WEIRWAL1";
const HEAD_BYTES: usize = 64;
/// Where the bytes begin that the checksum covers.
const SUMMED: usize = 16;

/// Records of a source in their order. They count from `first`: the rows, then the bad ones.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number of the first record.
    pub first: u64,
    /// Decoded rows.
    pub rows: RecordBatch,
    /// Records that were bad, under `on_error: skip` or `route`.
    pub bad: Vec<BadRecord>,
    /// Undecoded bytes that the records came from.
    pub bytes: usize,
}

/// An entry as it is stored.
///
/// | offset | bytes | what |
/// | --- | --- | --- |
/// | 0 | 8 | `WEIRWAL1`; the digit is the version of this layout |
/// | 8 | 8 | XXH3 (64 bit) of all that follows |
/// | 16 | 4 | length of the whole frame |
/// | 20 | 4 | number of records |
/// | 24 | 8 | number of the first record |
/// | 32 | 8 | attempt that wrote it |
/// | 40 | 8 | undecoded bytes |
/// | 48 | 4 | length of the bad records |
/// | 52 | 4 | length of the rows before compression |
/// | 56 | 1 | compression: 0 none, 1 lz4, 2 zstd |
/// | 57 | 7 | zero |
/// | 64 | | bad records, postcard of (position, reason, raw), then rows, an Arrow IPC stream of one batch |
///
/// Numbers are little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
}

type StoredBad = Vec<(String, String, Vec<u8>)>;

impl Entry {
    /// How many records.
    pub fn records(&self) -> u64 {
        (self.rows.num_rows() + self.bad.len()) as u64
    }

    /// The number after the last record.
    pub fn end(&self) -> u64 {
        self.first + self.records()
    }

    /// Drops the records before a number.
    pub fn skip_to(&mut self, number: u64) {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let of_rows = skipped.min(self.rows.num_rows());
        self.rows = self.rows.slice(of_rows, self.rows.num_rows() - of_rows);
        let of_bad = (skipped - of_rows).min(self.bad.len());
        self.bad.drain(..of_bad);
        self.first += (of_rows + of_bad) as u64;
    }

    /// As it is stored by an attempt.
    ///
    /// Errors: `User` for an entry of 4 GiB and more; `Bug` when the rows cannot be written.
    pub fn frame(&self, attempt: u64, compression: Compression) -> Result<Frame, Error> {
        let unfit = |e| Error::because(Class::Bug, "rows cannot be written to the input log", e);
        let mut plain = Vec::with_capacity(self.rows.get_array_memory_size().min(64 << 20) + 1024);
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut plain, &self.rows.schema()).map_err(unfit)?;
        writer.write(&self.rows).and_then(|()| writer.finish()).map_err(unfit)?;
        drop(writer);
        let stored: Vec<(&str, &str, &[u8])> =
            self.bad.iter().map(|bad| (bad.position.as_str(), bad.reason.as_str(), bad.raw.as_slice())).collect();
        let bad = postcard::to_allocvec(&stored).map_err(|e| Error::because(Class::Bug, "bad records cannot be written to the log", e))?;
        let length = plain.len();
        let rows = match compression {
            Compression::None => plain,
            Compression::Lz4 => lz4_flex::block::compress(&plain),
            Compression::Zstd => zstd::bulk::compress(&plain, 1).map_err(|e| Error::because(Class::Bug, "rows cannot be compressed", e))?,
        };
        let size = |bytes: usize| {
            u32::try_from(bytes)
                .map_err(|_| Error::new(Class::User, "one batch of rows is longer than 4 GiB, the most that the input log takes"))
        };
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&size(HEAD_BYTES + bad.len() + rows.len())?.to_le_bytes());
        bytes[20..24].copy_from_slice(&size(self.rows.num_rows() + self.bad.len())?.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&attempt.to_le_bytes());
        bytes[40..48].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        bytes[48..52].copy_from_slice(&size(bad.len())?.to_le_bytes());
        bytes[52..56].copy_from_slice(&size(length)?.to_le_bytes());
        bytes[56] = compression.byte();
        bytes.extend_from_slice(&bad);
        bytes.extend_from_slice(&rows);
        let sum = xxh3_64(&bytes[SUMMED..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        Ok(Frame { bytes })
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn small(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes).into()
}

impl Frame {
    /// The frame at the start of these bytes; `None` where there is none that verifies.
    pub fn at_start(bytes: &[u8]) -> Option<Frame> {
        if bytes.len() < HEAD_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        let whole = bytes.get(..usize::try_from(small(bytes, 16)).ok()?).filter(|whole| whole.len() >= HEAD_BYTES)?;
        (xxh3_64(&whole[SUMMED..]) == number(whole, 8)).then(|| Frame { bytes: whole.to_vec() })
    }

    /// Every frame that verifies, wherever it stands in these bytes, and whether there was the start of one that does not.
    pub fn all_in(bytes: &[u8]) -> (Vec<Frame>, bool) {
        let (mut found, mut damaged, mut from) = (Vec::new(), false, 0);
        let finder = memchr::memmem::Finder::new(MAGIC);
        while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            let start = from + at;
            match Frame::at_start(&bytes[start..]) {
                Some(frame) => {
                    from = start + frame.bytes.len();
                    found.push(frame);
                }
                None => {
                    damaged = true;
                    from = start + MAGIC.len();
                }
            }
        }
        (found, damaged)
    }

    /// The bytes to store.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of the first record.
    pub fn first(&self) -> u64 {
        number(&self.bytes, 24)
    }

    /// The number after the last record.
    pub fn end(&self) -> u64 {
        self.first().saturating_add(small(&self.bytes, 20))
    }

    /// The entry, with the columns of `schema` in their order.
    ///
    /// Errors: `User` when the entry lacks one of the columns or has it under another type, since another version of the job
    /// wrote it; `Corrupt` when it cannot be read.
    pub fn entry(&self, schema: &SchemaRef) -> Result<Entry, Error> {
        let bytes = &self.bytes;
        let odd = || corrupt("an entry verifies, but cannot be read");
        let rows_at = HEAD_BYTES + usize::try_from(small(bytes, 48)).map_err(|_| odd())?;
        let bad = bytes.get(HEAD_BYTES..rows_at).ok_or_else(odd)?;
        let stored = bytes.get(rows_at..).ok_or_else(odd)?;
        let length = usize::try_from(small(bytes, 52)).map_err(|_| odd())?;
        let unpacked = |e: &dyn std::fmt::Display| corrupt(format!("an entry verifies, but its rows cannot be unpacked: {e}"));
        let plain = match bytes.get(56).copied().and_then(Compression::of_byte) {
            Some(Compression::None) => stored.to_vec(),
            Some(Compression::Lz4) => lz4_flex::block::decompress(stored, length).map_err(|e| unpacked(&e))?,
            Some(Compression::Zstd) => zstd::bulk::decompress(stored, length).map_err(|e| unpacked(&e))?,
            None => return Err(corrupt("an entry was compressed in a way that this version does not know")),
        };
        let unread = |e| Error::because(Class::Corrupt, "the input log has an entry whose rows cannot be read", e);
        let mut reader = arrow_ipc::reader::StreamReader::try_new(Cursor::new(plain), None).map_err(unread)?;
        let batch = reader.next().ok_or_else(odd)?.map_err(unread)?;
        let bad: StoredBad = postcard::from_bytes(bad).map_err(|e| Error::because(Class::Corrupt, "bad records of the input log", e))?;
        let bad = bad.into_iter().map(|(position, reason, raw)| BadRecord { position, reason, raw }).collect();
        let bytes_read = usize::try_from(number(bytes, 40)).unwrap_or(usize::MAX);
        let entry = Entry { first: self.first(), rows: fitted(&batch, schema)?, bad, bytes: bytes_read };
        if entry.end() != self.end() {
            return Err(odd());
        }
        Ok(entry)
    }
}

/// The columns of `schema`, by name.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = schema.fields().iter().map(|field| {
        let found = batch.column_by_name(field.name()).filter(|column| column.data_type() == field.data_type());
        found.cloned().ok_or_else(|| {
            let message = format!(
                "the input log holds rows that another version of the job took, without the column '{}' of type {}: run that version until \
                 they are read, then stop it and change over",
                field.name(),
                field.data_type()
            );
            Error::new(Class::User, message)
        })
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|e| Error::because(Class::Corrupt, "rows of the input log do not fit the columns of the source", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::tests::{batch, entry};

    /// D1, J3: what is stored comes back, under every compression; the layout stays as it is.
    #[test]
    fn entries_come_back() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let bad = vec![BadRecord { position: "line 2".to_owned(), reason: "no number".to_owned(), raw: b"x".to_vec() }];
            let given = Entry { bad: bad.clone(), ..entry(7, &[1, 2, 3]) };
            let frame = given.frame(9, compression).unwrap();
            assert_eq!((frame.first(), frame.end()), (7, 11));
            let stored = [b"noise".as_slice(), frame.bytes(), b"WEIRWAL1 noise", frame.bytes(), b"tail"].concat();
            assert_eq!(Frame::all_in(&stored), (vec![frame.clone(), frame.clone()], true));
            let mut found = frame.entry(&given.rows.schema()).unwrap();
            assert_eq!((&found.rows, &found.bad, found.bytes, found.first), (&given.rows, &bad, given.bytes, 7));
            found.skip_to(9);
            assert_eq!((found.first, &found.rows, found.bad.len()), (9, &batch(&[3]), 1));
            found.skip_to(10);
            assert_eq!((found.first, found.rows.num_rows(), found.bad.len()), (10, 0, 1));
            found.skip_to(99);
            assert_eq!((found.first, found.records()), (11, 0));
        }
        let frame = entry(0x0102, &[5]).frame(3, Compression::None).unwrap();
        let head = &frame.bytes()[..HEAD_BYTES];
        assert_eq!(
            (&head[..8], &head[24..32], &head[32..40]),
            (b"WEIRWAL1".as_slice(), [2, 1, 0, 0, 0, 0, 0, 0].as_slice(), [3, 0, 0, 0, 0, 0, 0, 0].as_slice())
        );
    }

    /// WAL-3: a flip of any bit and a cut at any length are seen.
    #[test]
    fn damage_of_any_byte_is_seen() {
        let frame = entry(7, &[1, 2, 3]).frame(9, Compression::Lz4).unwrap();
        for at in 0..frame.bytes().len() {
            for bit in 0..8 {
                let mut bytes = frame.bytes().to_vec();
                bytes[at] ^= 1 << bit;
                assert_eq!(Frame::at_start(&bytes), None, "byte {at}, bit {bit}");
            }
            assert_eq!(Frame::at_start(&frame.bytes()[..at]), None, "cut at {at}");
        }
    }

    /// CKP-7: rows of another version are taken by name, or refused with the column.
    #[test]
    fn other_columns_are_told() {
        let frame = entry(0, &[1]).frame(1, Compression::None).unwrap();
        let other = std::sync::Arc::new(arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
            "m",
            arrow::datatypes::DataType::Int64,
            true,
        )]));
        let error = frame.entry(&other).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains("without the column 'm' of type Int64"), "{error}");
    }
}
