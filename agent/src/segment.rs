//! Immutable state segment files: after-images of one task, checksummed, named by their content (STA-4).

use crate::error::Error;
use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::concat_batches;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Cursor, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_kernel::io::StateImage;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::keygroup::KEY_ENCODING_VERSION;

pub use weir_planner::manifest::SegmentRef;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

/// Version of the layout below.
pub const SEGMENT_VERSION: u32 = 1;
/// First column of every image.
pub const KEY_GROUP_COLUMN: &str = "__key_group";
/// Start of the name of a file that is still being written.
pub const UNFINISHED: &str = ".unfinished-";

const HEAD: &[u8; 8] = b"WEIRSEG1";
const TAIL: &[u8; 8] = b"WEIRSEGE";
const HEAD_BYTES: usize = 16;
const TAIL_BYTES: usize = 32;
/// Rows of one block, the unit of checksums and of later partial reads.
const BLOCK_ROWS: usize = 65_536;

/// What a segment says of itself, behind its blocks.
///
/// | offset | bytes | what |
/// | --- | --- | --- |
/// | 0 | 8 | `WEIRSEG1` |
/// | 8 | 4 | layout version, little-endian |
/// | 12 | 4 | version of the key encoding, little-endian |
/// | 16 | | blocks, one after the other: Arrow IPC streams of one batch |
/// | d | | this directory, in postcard |
/// | end - 32 | 8 | d, little-endian |
/// | end - 24 | 8 | length of the directory, little-endian |
/// | end - 16 | 8 | XXH3 (64 bit) of bytes 0..16, the directory and the two numbers |
/// | end - 8 | 8 | `WEIRSEGE` |
///
/// Every byte is covered: the blocks by their own checksums in the directory, and they must lie
/// without a gap between head and directory; all else by the last checksum or by being constant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Directory {
    operator: OperatorId,
    subtask: u32,
    retired_ms: i64,
    scalars: Vec<(String, i64)>,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Block {
    offset: u64,
    bytes: u64,
    rows: u64,
    /// Key groups of first and last row; both 0 in a block without rows.
    key_group_min: u32,
    key_group_max: u32,
    checksum: u64,
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Class::Corrupt, what)
}

fn bug(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::because(Class::Bug, what.to_owned(), source)
}

fn footer_checksum(head: &[u8], directory: &[u8], offset: u64) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(head);
    hash.update(directory);
    hash.update(&offset.to_le_bytes());
    hash.update(&(directory.len() as u64).to_le_bytes());
    hash.digest()
}

fn key_groups(rows: &RecordBatch) -> Result<&UInt32Array, Error> {
    let column = rows.column_by_name(KEY_GROUP_COLUMN).and_then(|c| c.as_any().downcast_ref::<UInt32Array>());
    column.ok_or_else(|| corrupt(format!("state rows have no {KEY_GROUP_COLUMN} column of 32 bit")))
}

/// An image as the bytes of a segment.
pub fn encode(image: &StateImage) -> Result<Vec<u8>, Error> {
    let groups = key_groups(&image.rows)?;
    let mut bytes = Vec::with_capacity(image.rows.get_array_memory_size() + 4_096);
    bytes.extend_from_slice(HEAD);
    bytes.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&KEY_ENCODING_VERSION.to_le_bytes());
    let mut blocks = Vec::new();
    let mut from = 0;
    loop {
        let rows = BLOCK_ROWS.min(image.rows.num_rows() - from);
        let start = bytes.len();
        let what = "state rows cannot be written as Arrow IPC";
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &image.rows.schema()).map_err(|e| bug(what, e))?;
        writer.write(&image.rows.slice(from, rows)).and_then(|()| writer.finish()).map_err(|e| bug(what, e))?;
        drop(writer);
        blocks.push(Block {
            offset: start as u64,
            bytes: (bytes.len() - start) as u64,
            rows: rows as u64,
            key_group_min: if rows == 0 { 0 } else { groups.value(from) },
            key_group_max: if rows == 0 { 0 } else { groups.value(from + rows - 1) },
            checksum: xxh3_64(&bytes[start..]),
        });
        from += rows;
        if from >= image.rows.num_rows() {
            break;
        }
    }
    let directory = Directory {
        operator: image.operator.clone(),
        subtask: image.subtask,
        retired_ms: image.retired_ms,
        scalars: image.scalars.clone(),
        blocks,
    };
    let directory = postcard::to_stdvec(&directory).map_err(|e| bug("a segment directory cannot be written", e))?;
    let offset = bytes.len() as u64;
    let checksum = footer_checksum(&bytes[..HEAD_BYTES], &directory, offset);
    bytes.extend_from_slice(&directory);
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&(directory.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(TAIL);
    Ok(bytes)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

fn version(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

/// Where the directory begins, and its length and checksum, by the last bytes of a segment of `length` bytes.
fn place(tail: &[u8], length: u64) -> Result<(u64, u64, u64), Error> {
    if tail.len() != TAIL_BYTES || tail.get(TAIL_BYTES - 8..) != Some(TAIL) {
        return Err(corrupt("not a segment or cut short"));
    }
    match (number(tail, 0), number(tail, 8), number(tail, 16)) {
        (Some(at), Some(bytes), Some(checksum))
            if at >= HEAD_BYTES as u64 && at.checked_add(bytes) == length.checked_sub(TAIL_BYTES as u64) =>
        {
            Ok((at, bytes, checksum))
        }
        _ => Err(corrupt("directory lies outside")),
    }
}

/// Checks head and directory against their checksum, and reads the directory that begins at `at`.
fn directory(head: &[u8], text: &[u8], at: u64, checksum: u64) -> Result<Directory, Error> {
    if head.get(..8) != Some(HEAD) {
        return Err(corrupt("not a segment or cut short"));
    }
    match (version(head, 8), version(head, 12)) {
        (Some(SEGMENT_VERSION), Some(KEY_ENCODING_VERSION)) => {}
        (layout, keys) => {
            return Err(corrupt(format!(
                "layout version {} with key encoding {} is not readable (this build reads {SEGMENT_VERSION} and {KEY_ENCODING_VERSION})",
                layout.unwrap_or_default(),
                keys.unwrap_or_default()
            )));
        }
    }
    if footer_checksum(head, text, at) != checksum {
        return Err(corrupt("checksum of the directory does not match"));
    }
    postcard::from_bytes(text).map_err(|e| Error::because(Class::Corrupt, "directory is not readable", e))
}

/// Part of bytes, by offset and length.
fn part(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

/// The rows of a block of these bytes.
fn block_rows(text: &[u8], block: &Block) -> Result<Vec<RecordBatch>, Error> {
    if xxh3_64(text) != block.checksum {
        return Err(corrupt(format!("checksum of the block at byte {} does not match", block.offset)));
    }
    let unreadable = |e| Error::because(Class::Corrupt, "block is not readable as Arrow IPC", e);
    let reader = arrow_ipc::reader::StreamReader::try_new(Cursor::new(text), None).map_err(unreadable)?;
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows as u64 != block.rows || batches.is_empty() {
        return Err(corrupt("block has another number of rows than its directory says"));
    }
    Ok(batches)
}

/// The image that a segment's bytes hold. Any flipped, missing or added byte is an error.
///
/// Errors: `Corrupt`, without the file's name, which the caller knows.
pub fn decode(bytes: &[u8]) -> Result<StateImage, Error> {
    let cut_short = || corrupt("too short for a segment");
    let tail = bytes.len().checked_sub(TAIL_BYTES).filter(|&at| at >= HEAD_BYTES).and_then(|at| bytes.get(at..)).ok_or_else(cut_short)?;
    let (end, length, checksum) = place(tail, bytes.len() as u64)?;
    let (head, text) = part(bytes, 0, HEAD_BYTES as u64).zip(part(bytes, end, length)).ok_or_else(cut_short)?;
    let directory = directory(head, text, end, checksum)?;
    follow(&directory, end)?;
    let mut batches = Vec::with_capacity(directory.blocks.len());
    for block in &directory.blocks {
        let text = part(bytes, block.offset, block.bytes).ok_or_else(|| corrupt("block lies outside"))?;
        batches.extend(block_rows(text, block)?);
    }
    image(directory, &batches)
}

/// Blocks lie without a gap between the head and the directory at `end`.
fn follow(directory: &Directory, end: u64) -> Result<(), Error> {
    let mut at = HEAD_BYTES as u64;
    for block in &directory.blocks {
        if block.offset != at {
            return Err(corrupt("blocks do not follow each other"));
        }
        at = at.saturating_add(block.bytes);
    }
    if at == end { Ok(()) } else { Err(corrupt("blocks do not reach the directory")) }
}

fn image(directory: Directory, batches: &[RecordBatch]) -> Result<StateImage, Error> {
    let schema = batches.first().ok_or_else(|| corrupt("no block"))?.schema();
    let rows = concat_batches(&schema, batches).map_err(|e| Error::because(Class::Corrupt, "blocks have different columns", e))?;
    key_groups(&rows)?;
    Ok(StateImage {
        operator: directory.operator,
        subtask: directory.subtask,
        rows,
        retired_ms: directory.retired_ms,
        scalars: directory.scalars,
    })
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    Error::because(Class::Retry, format!("{verb} {}", path.display()), source)
}

/// Makes the entries of a directory durable.
///
/// Errors: `Retry`, with path and cause.
pub fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| failed("sync directory", dir, e))
}

/// Makes a directory, and those above it, durably.
///
/// Errors: what the file system says of it or of its parents.
pub fn make_dir(dir: &Path) -> std::io::Result<()> {
    let missing = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).count();
    std::fs::create_dir_all(dir)?;
    // One that is there may have been made right before the power went away.
    for made in dir.ancestors().take(missing.max(1)) {
        let parent = match made.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => break,
        };
        match File::open(parent).and_then(|parent| parent.sync_all()) {
            // Somebody else's, who made this one for us.
            Err(e) if missing == 0 && e.kind() == std::io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Writes a whole file so that it is there completely or not at all: another name, fsync, rename.
/// The directory is not yet synced.
///
/// Errors: `Retry`, with path and cause, such as "no space left on device". Nothing is left behind.
pub fn put_file(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    static UNIQUE: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(name);
    let unfinished: PathBuf = dir.join(format!("{UNFINISHED}{}-{name}", UNIQUE.fetch_add(1, Ordering::Relaxed)));
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&unfinished, &path)).map_err(|e| {
        // Best effort: what stays is deleted at the job's next start.
        let _ = std::fs::remove_file(&unfinished);
        failed("write", &path, e)
    })
}

/// Writes an image as a segment file. The directory is synced by the caller, once for many.
pub fn write(dir: &Path, image: &StateImage) -> Result<SegmentRef, Error> {
    let bytes = encode(image)?;
    let name = format!("{:032x}.seg", xxh3_128(&bytes));
    put_file(dir, &name, &bytes)?;
    Ok(SegmentRef { name, bytes: bytes.len() as u64, rows: image.rows.num_rows() as u64 })
}

/// Reads a segment back, verified from its name to its last block.
///
/// Errors: `Corrupt` with the file's name when it is missing or anything does not match; `Retry`
/// when the disk does not answer.
pub fn read(dir: &Path, segment: &SegmentRef) -> Result<StateImage, Error> {
    let path = dir.join(&segment.name);
    let bytes = std::fs::read(&path).map_err(|e| unread(&path, e))?;
    let named = format!("{:032x}.seg", xxh3_128(&bytes));
    if named != segment.name || bytes.len() as u64 != segment.bytes {
        return Err(corrupt(format!(
            "state segment {} does not match its checksum ({} bytes, {} expected)",
            path.display(),
            bytes.len(),
            segment.bytes
        )));
    }
    decode(&bytes).map_err(|e| named_error(&path, e))
}

/// A segment that is open: it can be read, whatever deletes its name meanwhile.
pub struct Held {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Opens a segment.
///
/// Errors: as [`read`].
pub fn open(dir: &Path, segment: &SegmentRef) -> Result<Held, Error> {
    let path = dir.join(&segment.name);
    let file = File::open(&path).map_err(|e| unread(&path, e))?;
    let bytes = file.metadata().map_err(|e| failed("read", &path, e))?.len();
    if bytes != segment.bytes || bytes < (HEAD_BYTES + TAIL_BYTES) as u64 {
        return Err(corrupt(format!("state segment {} has {bytes} bytes, {} expected", path.display(), segment.bytes)));
    }
    Ok(Held { path, file, bytes })
}

impl Held {
    /// The blocks that may have rows of some key groups, each verified by its own checksum, and no others (CKP-9). Rows of other
    /// key groups are among them.
    ///
    /// Errors: as [`read`].
    pub fn part(&self, key_groups: &Range<u32>) -> Result<StateImage, Error> {
        let bytes = |at: u64, count: u64| -> Result<Vec<u8>, Error> {
            let mut bytes = vec![0; usize::try_from(count).map_err(|_| corrupt("block lies outside"))?];
            self.file.read_exact_at(&mut bytes, at).map_err(|e| failed("read", &self.path, e))?;
            Ok(bytes)
        };
        let parts = || {
            let (end, count, checksum) = place(&bytes(self.bytes - TAIL_BYTES as u64, TAIL_BYTES as u64)?, self.bytes)?;
            let directory = directory(&bytes(0, HEAD_BYTES as u64)?, &bytes(end, count)?, end, checksum)?;
            follow(&directory, end)?;
            let mut batches = Vec::new();
            for (number, block) in directory.blocks.iter().enumerate() {
                let some = block.rows > 0 && block.key_group_min < key_groups.end && block.key_group_max >= key_groups.start;
                // The first one tells the columns where none has any of the rows.
                if some || number == 0 {
                    let rows = block_rows(&bytes(block.offset, block.bytes)?, block)?;
                    batches.extend(rows.into_iter().map(|rows| if some { rows } else { rows.slice(0, 0) }));
                }
            }
            image(directory, &batches)
        };
        parts().map_err(|e| named_error(&self.path, e))
    }
}

fn unread(path: &Path, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => corrupt(format!("state segment {} is missing", path.display())),
        _ => failed("read", path, source),
    }
}

fn named_error(path: &Path, error: Error) -> Error {
    match error.class {
        Class::Corrupt => Error { message: format!("state segment {}: {}", path.display(), error.message), ..error },
        _ => error,
    }
}

#[cfg(test)]
mod tests;
