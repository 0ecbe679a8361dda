//! A log in the data directory: a directory of redb files, each written by one attempt from one record on.
//!
//! | name | what |
//! | --- | --- |
//! | `lock` | held by whoever has the log open |
//! | `opened` | the last attempt that opened it, in digits |
//! | `<first>-<attempt>.redb` | entries from record `first` on; the next file begins where it ends |
//! | `new.redb` | a file that has no entry yet |
//!
//! A file only grows, and a new one is begun after [`FILE_BYTES`], after a failed write, and by each attempt. So deleting is
//! deleting files: nothing is compacted, and what a write left unknown lies in a file that is written no more.
//!
//! Damage: redb verifies a file whole when it is opened. Where it does not, the frames are looked for in the bytes of the
//! file, which hold each value in one piece, and each frame carries its own checksum. How far the log went is written with
//! every commit in another place of the file, so that a lost end is seen as well.

use super::{Contents, Found, Frame, Place};
use crate::error::Error;
use crate::segment::sync_dir;
use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase, StorageBackend, TableDefinition};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use weir_planner::error::Class;
use weir_planner::protocol::Level;
use xxhash_rust::xxh3::xxh3_64;

/// Number of the first record to frame.
const ENTRIES: TableDefinition<u64, &[u8]> = TableDefinition::new("entries");
/// One mark: how far the file goes.
const ENDS: TableDefinition<u8, &[u8]> = TableDefinition::new("ends");
/// A new file is begun when this one has so many bytes of entries.
pub const FILE_BYTES: u64 = 8 << 20;
/// Bytes of a file that are kept in memory.
const CACHE_BYTES: usize = 1 << 20;
const MARK: &[u8; 8] = b"WEIRWALE";
const MARK_BYTES: usize = 24;

/// The log of one source task.
pub struct LocalLog {
    dir: PathBuf,
    attempt: u64,
    current: Option<Current>,
    /// Files that are written no more, with the number after their last record.
    closed: VecDeque<(PathBuf, u64)>,
    /// What an older history left, until the horizon passes.
    left: Option<PathBuf>,
    _lock: File,
}

struct Current {
    db: Database,
    path: PathBuf,
    end: u64,
    bytes: u64,
}

/// A file to be read.
#[derive(Clone, Debug)]
pub struct Part {
    path: PathBuf,
    first: u64,
    /// Where the next file begins.
    until: Option<u64>,
}

fn failed(verb: &str, path: &Path, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::because(Class::Retry, format!("input log {}: {verb}", path.display()), source)
}

fn make(path: &Path) -> Result<Database, redb::Error> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create(path)?)
}

impl LocalLog {
    /// Opens the log in a directory, which is made.
    ///
    /// Errors: `Retry` when somebody else holds it, or the disk refuses.
    pub fn open(dir: &Path, place: &Place) -> Result<(Self, Found), Error> {
        std::fs::create_dir_all(dir).map_err(|e| failed("make the directory", dir, e))?;
        let path = dir.join("lock");
        let lock = File::create(&path).map_err(|e| failed("open the lock", &path, e))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Error::new(Class::Retry, format!("input log {} is open already", dir.display())),
            TryLockError::Error(e) => failed("lock", &path, e),
        })?;
        let opened = opened_by(dir)?;
        if place.empty && opened != Some(place.attempt.get()) {
            for (_, path) in files(dir)? {
                std::fs::remove_file(&path).map_err(|e| failed("clear away", &path, e))?;
            }
        }
        let left = match (opened, place.cut) {
            (Some(opened), Some(cut)) if opened < cut.get() => Some(set_aside(dir, opened, place)?),
            _ => Some(aside(dir)).filter(|left| left.exists()),
        };
        let opened_path = dir.join("opened.new");
        let written = File::create(&opened_path).and_then(|mut file| {
            file.write_all(place.attempt.get().to_string().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&opened_path, dir.join("opened"))
        });
        written.map_err(|e| failed("note the attempt", dir, e))?;
        // Every directory up to that of the job may be new.
        for dir in dir.ancestors().take_while(|dir| dir.starts_with(&place.dir)) {
            sync_dir(dir)?;
        }
        if let Some(job) = place.dir.parent().filter(|job| job.exists()) {
            sync_dir(job)?;
        }
        let files = files(dir)?;
        let parts: Vec<Part> = files
            .iter()
            .enumerate()
            .map(|(at, (first, path))| Part { path: path.clone(), first: *first, until: files.get(at + 1).map(|(next, _)| *next) })
            .collect();
        let end = match parts.last() {
            // What is wrong with it is told when it is read to be given.
            Some(last) => last.read()?.frames.last().map_or(last.first, Frame::end),
            None => 0,
        };
        let found = Found { end, new: opened.is_none(), parts: parts.iter().cloned().map(super::Part::File).collect() };
        let closed = parts.into_iter().map(|part| (part.path, part.until.unwrap_or(end))).collect();
        let log = LocalLog { dir: dir.to_owned(), attempt: place.attempt.get(), current: None, closed, left, _lock: lock };
        Ok((log, found))
    }

    /// Writes entries in one commit.
    ///
    /// Errors: `Retry`; the entries may or may not be there, and may be given again.
    pub fn append(&mut self, frames: &[Frame]) -> Result<(), Error> {
        let (Some(first), Some(end)) = (frames.first().map(Frame::first), frames.last().map(Frame::end)) else { return Ok(()) };
        let result = match &mut self.current {
            Some(current) => write(&current.db, frames, end).map_err(|e| failed("write", &current.path, e)),
            None => self.begin(first, frames, end),
        };
        if result.is_err() {
            // redb refuses everything after a failed write, and what it left is not known.
            self.close_current();
            return result;
        }
        if let Some(current) = &mut self.current {
            current.end = end;
            current.bytes += frames.iter().map(|frame| frame.bytes().len() as u64).sum::<u64>();
            if current.bytes >= FILE_BYTES {
                self.close_current();
            }
        }
        result
    }

    /// Makes a file that begins with these entries. It has its name only once they are durable, so that no file lacks its
    /// beginning.
    fn begin(&mut self, first: u64, frames: &[Frame], end: u64) -> Result<(), Error> {
        let unfinished = self.dir.join("new.redb");
        match std::fs::remove_file(&unfinished) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed("clear away", &unfinished, e)),
        }
        let path = self.dir.join(format!("{first:020}-{:020}.redb", self.attempt));
        let made = make(&unfinished).and_then(|db| write(&db, frames, end).map(|()| db));
        let db = made.map_err(|e| {
            // It would take the room that others wait for.
            let _ = std::fs::remove_file(&unfinished);
            failed("write", &path, e)
        })?;
        std::fs::rename(&unfinished, &path).map_err(|e| failed("name", &path, e))?;
        self.current = Some(Current { db, path, end: first, bytes: 0 });
        sync_dir(&self.dir)
    }

    fn close_current(&mut self) {
        if let Some(current) = self.current.take() {
            self.closed.push_back((current.path, current.end));
        }
    }

    /// Deletes the files whose records are all below `passed`, but for the last one, which says how far the log went.
    pub fn trim(&mut self, passed: u64) {
        while let Some((path, _)) = self.closed.front().filter(|(_, end)| *end <= passed) {
            if self.closed.len() == 1 && self.current.is_none() {
                break;
            }
            match std::fs::remove_file(path) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "a file of an input log could not be deleted and is tried again");
                    return;
                }
            }
            self.closed.pop_front();
        }
        if let Some(left) = self.left.take()
            && let Err(error) = std::fs::remove_dir_all(&left)
        {
            tracing::warn!(dir = %left.display(), %error, "an input log that was set aside could not be deleted");
        }
    }
}

/// The attempt that opened the log last.
fn opened_by(dir: &Path) -> Result<Option<u64>, Error> {
    let path = dir.join("opened");
    match std::fs::read_to_string(&path) {
        // It is renamed into place whole, so that only damage makes it unreadable: then it proves nothing.
        Ok(text) => Ok(Some(text.trim().parse().unwrap_or(u64::MAX))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Ok(Some(u64::MAX)),
        Err(e) => Err(failed("read", &path, e)),
    }
}

fn aside(dir: &Path) -> PathBuf {
    dir.join("left")
}

/// The job went on elsewhere after this log was written, and decided there: its records are of a history that was left, and
/// are not brought back (EPO-9).
fn set_aside(dir: &Path, opened: u64, place: &Place) -> Result<PathBuf, Error> {
    let left = aside(dir);
    if left.exists() {
        std::fs::remove_dir_all(&left).map_err(|e| failed("clear away", &left, e))?;
    }
    std::fs::create_dir(&left).map_err(|e| failed("make the directory", &left, e))?;
    let files = files(dir)?;
    for (_, path) in &files {
        if let Some(name) = path.file_name() {
            std::fs::rename(path, left.join(name)).map_err(|e| failed("set aside", path, e))?;
        }
    }
    if let Some((first, _)) = files.first() {
        let message = format!(
            "the input log of attempt {opened}, from record {first} on in {} files, is set aside: the job went on elsewhere since; it is \
             deleted once this attempt has decided",
            files.len()
        );
        (place.tell)(Level::Warn, "wal_set_aside", message);
    }
    Ok(left)
}

/// The files of a log in their order, with the numbers of their first records.
fn files(dir: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| failed("list", dir, e))? {
        let path = entry.map_err(|e| failed("list", dir, e))?.path();
        let numbers = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".redb")?.split_once('-'));
        if let Some((Ok(first), Ok(attempt))) = numbers.map(|(first, attempt)| (first.parse::<u64>(), attempt.parse::<u64>())) {
            found.push((first, attempt, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(first, _, path)| (first, path)).collect())
}

fn mark(end: u64) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(MARK);
    mark[8..16].copy_from_slice(&end.to_le_bytes());
    let sum = xxh3_64(&mark[..16]);
    mark[16..].copy_from_slice(&sum.to_le_bytes());
    mark
}

/// How far the log went, by the marks in these bytes.
fn marked(bytes: &[u8]) -> u64 {
    let marks = memchr::memmem::find_iter(bytes, MARK).filter_map(|at| {
        let found = bytes.get(at..at + MARK_BYTES)?;
        let end = u64::from_le_bytes(found.get(8..16)?.try_into().ok()?);
        (mark(end) == found).then_some(end)
    });
    marks.max().unwrap_or(0)
}

/// Puts entries and how far they go into a file, in one commit.
pub(super) fn write(db: &Database, frames: &[Frame], end: u64) -> Result<(), redb::Error> {
    let mut write = db.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    {
        let mut entries = write.open_table(ENTRIES)?;
        for frame in frames {
            entries.insert(frame.first(), frame.bytes())?;
        }
        write.open_table(ENDS)?.insert(0, mark(end).as_slice())?;
    }
    write.commit()?;
    Ok(())
}

/// The entries of a file as redb has them. It gets a copy: an open may repair, and overwrites or cuts off what it believes to
/// be free, although the frames there can be the only ones; every read must find the same.
fn committed(bytes: &[u8]) -> Result<Vec<Frame>, String> {
    let read = || -> Result<Vec<Frame>, redb::Error> {
        let copy = InMemoryBackend::new();
        copy.set_len(bytes.len() as u64)?;
        copy.write(0, bytes)?;
        let db = Database::builder().set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true).create_with_backend(copy)?;
        let read = db.begin_read()?;
        let entries = read.open_table(ENTRIES)?;
        let mut frames = Vec::new();
        for entry in entries.range(0_u64..)? {
            let (first, bytes) = entry?;
            let frame = Frame::at_start(bytes.value()).filter(|frame| frame.first() == first.value());
            frames.push(frame.ok_or_else(|| redb::Error::Corrupted(format!("the entry of record {} does not verify", first.value())))?);
        }
        Ok(frames)
    };
    // What is damaged in a way that nobody thought of is read from the bytes as well.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(frames)) => Ok(frames),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it cannot be read".to_owned()),
    }
}

impl Part {
    /// The entries that verify.
    ///
    /// Errors: `Retry` when the file cannot be read at all.
    pub fn read(&self) -> Result<Contents, Error> {
        let bytes = std::fs::read(&self.path).map_err(|e| failed("read", &self.path, e))?;
        let committed = committed(&bytes);
        let goal = marked(&bytes).min(self.until.unwrap_or(u64::MAX));
        let whole = matches!(&committed, Ok(frames) if frames.last().map_or(self.first, Frame::end) >= goal);
        let (kept, trouble) = match committed {
            Ok(frames) => (frames, None),
            Err(trouble) => (Vec::new(), Some(trouble)),
        };
        let mut by_first: BTreeMap<u64, Frame> = kept.into_iter().map(|frame| (frame.first(), frame)).collect();
        if !whole {
            for frame in Frame::all_in(&bytes).0 {
                by_first.entry(frame.first()).or_insert(frame);
            }
        }
        let (mut frames, mut next, mut lost) = (Vec::new(), self.first, 0);
        for (first, frame) in by_first {
            if first < next || self.until.is_some_and(|until| first >= until) {
                continue;
            }
            lost += first - next;
            next = frame.end();
            frames.push(frame);
        }
        lost += goal.saturating_sub(next);
        let damage = (lost > 0 || trouble.is_some()).then(|| {
            let why = trouble.map_or_else(String::new, |trouble| format!(" ({trouble})"));
            let what = match lost {
                0 => "all of its records could be read".to_owned(),
                _ => format!("{lost} of its records cannot be read; those at its end were perhaps never confirmed"),
            };
            format!("file {} of the input log is damaged or was not finished{why}: {what}", self.path.display())
        });
        Ok(Contents { frames, damage })
    }
}
