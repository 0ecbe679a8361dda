//! Rows to `part-<subtask>.ndjson` in a directory: lines past the last decided length are cut off
//! on a restart, so nothing is doubled.
//!
//! Lines are written inline in pieces; syncing runs on a thread of its own for each flush. Until
//! the first decision a mark beside the file (`.part-<subtask>.ndjson.new`) says that all of it is
//! this sink's undecided work: only then may a start without a handle begin the file anew.

use super::super::Opening;
use crate::format::json::JsonEncoder;
use crate::segment::make_dir;
use arrow::array::RecordBatch;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle, Wake};
use weir_planner::connector::FileSink as Options;
use weir_planner::error::Class;
use weir_planner::id::EpochId;
use weir_planner::schema::Schema;

/// Lines are handed to the file once they take this much.
const BUFFER_BYTES: usize = 256 << 10;

/// One sink task's file.
pub struct FileSink {
    path: PathBuf,
    mark: PathBuf,
    marked: bool,
    file: Arc<File>,
    encoder: JsonEncoder,
    buffer: Vec<u8>,
    /// Bytes in the file.
    length: u64,
    /// The sync of the open flush; its outcome comes before the wake-up.
    flush: Option<(flume::Receiver<std::io::Result<()>>, JoinHandle<()>)>,
    flush_length: u64,
    wake: Arc<dyn Wake>,
    /// A write failed: how much of it the file holds is not known.
    broken: bool,
    /// Of how many tasks this is the first, until it has looked for files of tasks that are no more.
    first_of: Option<u32>,
}

impl FileSink {
    /// Makes the directory, and cuts the file to the length of `handle`.
    ///
    /// Errors: `User` for a file that holds rows of somebody else, or fewer bytes than were decided;
    /// `Retry` for one that another sink has open, since each would overwrite the rows of the other.
    pub fn open(options: &Options, input: &Schema, handle: Option<&SinkHandle>, opening: &Opening) -> Result<Self, Error> {
        let directory = Path::new(&options.path);
        let name = format!("part-{}.ndjson", opening.subtask);
        let (path, mark) = (directory.join(&name), directory.join(format!(".{name}.new")));
        let shown = path.display().to_string();
        let wrap = |e| Error::because(Class::User, format!("file '{shown}' cannot be opened for writing"), e);
        make_dir(directory).map_err(|e| Error::because(Class::User, format!("directory '{}' cannot be made", directory.display()), e))?;
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(wrap)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            // A file system that knows no locks is no reason not to write. An earlier attempt of this
            // job may be about to close, so it is worth another try.
            let message = format!("file '{shown}' is being written by another sink, job or process: give each sink a path of its own");
            return Err(Error::new(Class::Retry, message));
        }
        let size = file.metadata().map_err(wrap)?.len();
        let (length, marked) = match handle {
            Some(SinkHandle::Length(length)) if *length > size => {
                let message = format!(
                    "file '{shown}' has {size} bytes, fewer than the {length} that were confirmed: it has been cut or replaced; bring it back, or create the job anew"
                );
                return Err(Error::new(Class::User, message));
            }
            Some(SinkHandle::Length(length)) => (*length, false),
            None => (0, true),
            Some(SinkHandle::None | SinkHandle::Files(_)) => {
                return Err(Error::new(Class::Corrupt, format!("the recorded state of file '{shown}' is not a length")));
            }
        };
        if marked && size > 0 && !mark.exists() {
            let message = format!("file '{shown}' exists and is not empty; it is not overwritten: move it away, or give another path");
            return Err(Error::new(Class::User, message));
        }
        if marked {
            File::create(&mark).and_then(|file| file.sync_all()).map_err(wrap)?;
        } else {
            remove(&mark).map_err(wrap)?;
        }
        file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length))).map_err(wrap)?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(wrap)?;
        Ok(FileSink {
            path,
            mark,
            marked,
            file: Arc::new(file),
            encoder: JsonEncoder::new(input)?,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            length,
            flush: None,
            flush_length: length,
            wake: opening.wake.clone(),
            broken: false,
            first_of: (opening.subtask == 0).then_some(opening.parallelism),
        })
    }

    fn write_out(&mut self) -> Result<(), Error> {
        if self.broken {
            return Err(Error::new(Class::Retry, format!("file '{}' could not be written before", self.path.display())));
        }
        if let Err(e) = self.file.as_ref().write_all(&self.buffer) {
            self.broken = true;
            return Err(self.wrap(e));
        }
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// A full disk may have room later, so the class is `Retry`.
    fn wrap(&self, e: std::io::Error) -> Error {
        Error::because(Class::Retry, format!("file '{}' cannot be written", self.path.display()), e)
    }
}

/// Removes what tasks from number `tasks` on wrote and never decided: there are none of that number
/// any more, so others write the same rows. Files with something decided have lost their mark by the
/// first flush, since each was cut to its length when the attempt began.
fn remove_undecided(directory: &Path, tasks: u32) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let mark = entry?.path();
        let name = mark.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix('.')?.strip_suffix(".new"));
        let number = name.and_then(|name| name.strip_prefix("part-")?.strip_suffix(".ndjson")?.parse::<u32>().ok());
        let (Some(name), Some(_)) = (name, number.filter(|number| *number >= tasks)) else { continue };
        let path = directory.join(name);
        match OpenOptions::new().write(true).open(&path) {
            // Another job's, at work.
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => continue,
            Ok(_) => remove(&path)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        remove(&mark)?;
    }
    Ok(())
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

impl Sink for FileSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.encoder.write_lines(rows, &mut self.buffer)?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        if self.flush.is_some() {
            return Err(Error::new(Class::Bug, format!("a flush of file '{}' began while another was open", self.path.display())));
        }
        if let Some(tasks) = self.first_of.take() {
            remove_undecided(self.path.parent().unwrap_or(Path::new("")), tasks).map_err(|e| self.wrap(e))?;
        }
        self.write_out()?;
        self.flush_length = self.length;
        let (file, wake) = (self.file.clone(), self.wake.clone());
        let (outcome, outcomes) = flume::bounded(1);
        let sync = move || {
            let synced = file.sync_data();
            // The lock goes with the last that holds the file, and whoever hears of the outcome may be that.
            drop(file);
            // Nobody waits any more when the sink is gone.
            let _ = outcome.send(synced);
            wake.wake();
        };
        let thread = std::thread::Builder::new().name("file-sink-sync".to_owned()).spawn(sync);
        self.flush = Some((outcomes, thread.map_err(|e| self.wrap(e))?));
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        let Some((outcomes, thread)) = self.flush.take() else {
            return Ok(Flush::Done(SinkHandle::Length(self.flush_length)));
        };
        match outcomes.try_recv() {
            Err(flume::TryRecvError::Empty) => {
                self.flush = Some((outcomes, thread));
                Ok(Flush::Pending)
            }
            Ok(Ok(())) => Ok(Flush::Done(SinkHandle::Length(self.flush_length))),
            Ok(Err(e)) => {
                // After a failed sync the system may have dropped the pages: nothing later counts.
                self.broken = true;
                Err(self.wrap(e))
            }
            Err(flume::TryRecvError::Disconnected) => {
                Err(Error::new(Class::Bug, format!("syncing file '{}' ended without an outcome", self.path.display())))
            }
        }
    }

    fn decided(&mut self, _epoch: EpochId) {
        if self.marked && remove(&self.mark).is_ok() {
            self.marked = false;
        }
    }

    fn close(&mut self) {
        if let Some((_, thread)) = self.flush.take() {
            // Bounded by one sync of a local file; its outcome no longer matters.
            let _ = thread.join();
        }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        self.close();
    }
}
