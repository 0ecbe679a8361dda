//! The job's own result table (SQL-8): rows become immutable Arrow IPC files named by the hash of
//! their bytes and a random part. The epoch's decision names the files; until then nobody reads them, and a file
//! that no decision ever names is left for the agent to clean up.
//!
//! The chain only buffers; a writer thread of the task encodes, hashes, writes, syncs, renames.

use super::Opening;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_kernel::error::Error;
use weir_kernel::io::{Clock, Flush, Pushed, ResultFile, Sink, SinkHandle, Wake};
use weir_planner::error::Class;
use weir_planner::id::EpochId;
use weir_planner::schema::Schema;

/// Rows are written out early once they take this much memory.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Files that wait for the writer; with one in work this bounds a task to four buffers.
const FILES_WAITING_MAX: usize = 2;

/// What the writer is asked for.
enum Order {
    Write(Vec<RecordBatch>),
    /// All orders before it are done when this comes back.
    Mark,
}

enum Answer {
    Written(ResultFile),
    Marked,
    Failed(Error),
}

/// Buffers rows and hands them to its writer.
pub struct ResultSink {
    buffer: Vec<RecordBatch>,
    buffer_bytes: usize,
    orders: Option<flume::Sender<Order>>,
    answers: flume::Receiver<Answer>,
    writer: Option<JoinHandle<()>>,
    /// Orders not given yet: a flush that found the writer busy.
    mark_due: bool,
    open_flush: bool,
    /// Files of the flush that is open.
    files: Vec<ResultFile>,
    /// Files written before the next flush began.
    failed: Option<(Class, String)>,
}

impl ResultSink {
    /// Makes the directory and starts the writer.
    ///
    /// Errors: `Retry` when the directory cannot be made.
    pub fn open(input: &Schema, opening: &Opening) -> Result<Self, Error> {
        let directory = opening.result_dir.clone();
        std::fs::create_dir_all(&directory)
            .map_err(|e| Error::because(Class::Retry, format!("result directory '{}' cannot be made", directory.display()), e))?;
        let (orders, inbox) = flume::bounded(FILES_WAITING_MAX);
        // Every order has one answer, so answers never wait for room.
        let (outbox, answers) = flume::bounded(1024);
        let writer = Writer {
            directory,
            schema: Arc::new(input.to_arrow()),
            clock: opening.clock.clone(),
            wake: opening.wake.clone(),
            task: format!("{}-{}-{}", opening.job, opening.operator, opening.subtask),
        };
        let thread = std::thread::Builder::new()
            .name(format!("result-{}-{}", opening.operator, opening.subtask))
            .spawn(move || writer.run(&inbox, &outbox))
            .map_err(|e| Error::because(Class::Retry, "the result writer's thread cannot be started", e))?;
        Ok(ResultSink {
            buffer: Vec::new(),
            buffer_bytes: 0,
            orders: Some(orders),
            answers,
            writer: Some(thread),
            mark_due: false,
            open_flush: false,
            files: Vec::new(),
            failed: None,
        })
    }

    /// Gives an order without waiting; false when the writer is busy.
    fn order(&mut self, order: Order) -> Result<Option<Order>, Error> {
        let Some(orders) = &self.orders else { return Err(Error::new(Class::Bug, "the result table's sink is closed")) };
        match orders.try_send(order) {
            Ok(()) => Ok(None),
            Err(flume::TrySendError::Full(order)) => Ok(Some(order)),
            Err(flume::TrySendError::Disconnected(_)) => {
                Err(self.failure().unwrap_or_else(|| Error::new(Class::Bug, "the result writer is gone")))
            }
        }
    }

    /// Hands the buffer over; false when the writer is busy and the buffer stays.
    fn hand_over(&mut self) -> Result<bool, Error> {
        if self.buffer.is_empty() {
            return Ok(true);
        }
        let batches = std::mem::take(&mut self.buffer);
        match self.order(Order::Write(batches))? {
            Some(Order::Write(batches)) => {
                self.buffer = batches;
                Ok(false)
            }
            Some(Order::Mark) | None => {
                self.buffer_bytes = 0;
                Ok(true)
            }
        }
    }

    /// Gives what a begun flush still has to order.
    fn push_on(&mut self) -> Result<(), Error> {
        if self.mark_due && self.hand_over()? && self.order(Order::Mark)?.is_none() {
            self.mark_due = false;
        }
        Ok(())
    }

    /// A failure stays: the epoch is poisoned until the task is restarted (A6).
    fn failure(&self) -> Option<Error> {
        self.failed.as_ref().map(|(class, message)| Error::new(*class, message.clone()))
    }

    fn check(&self) -> Result<(), Error> {
        self.failure().map_or(Ok(()), Err)
    }
}

impl Sink for ResultSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.check()?;
        // A flush that has not handed everything over yet must not take rows of the next epoch.
        self.push_on()?;
        if self.mark_due {
            return Ok(Pushed::Full);
        }
        if self.buffer_bytes >= BUFFER_BYTES_MAX && !self.hand_over()? {
            return Ok(Pushed::Full);
        }
        if rows.num_rows() > 0 {
            self.buffer_bytes += rows.get_array_memory_size();
            self.buffer.push(rows.clone());
        }
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        self.check()?;
        if self.open_flush {
            return Err(Error::new(Class::Bug, "a flush of the result table began while another was open"));
        }
        (self.open_flush, self.mark_due) = (true, true);
        self.push_on()
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        self.check()?;
        self.push_on()?;
        if !self.open_flush {
            return Ok(Flush::Done(SinkHandle::Files(Vec::new())));
        }
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Written(file) => self.files.push(file),
                Answer::Marked => {
                    self.open_flush = false;
                    return Ok(Flush::Done(SinkHandle::Files(std::mem::take(&mut self.files))));
                }
                Answer::Failed(error) => {
                    self.failed = Some((error.class, error.to_failure().message));
                    self.check()?;
                }
            }
        }
        Ok(Flush::Pending)
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {
        self.orders = None;
        if let Some(writer) = self.writer.take() {
            // The writer ends once it has done its last order; a panic there has nothing to add here.
            let _ = writer.join();
        }
    }
}

impl Drop for ResultSink {
    fn drop(&mut self) {
        self.close();
    }
}

struct Writer {
    directory: PathBuf,
    schema: SchemaRef,
    clock: Arc<dyn Clock>,
    wake: Arc<dyn Wake>,
    task: String,
}

impl Writer {
    fn run(&self, orders: &flume::Receiver<Order>, answers: &flume::Sender<Answer>) {
        while let Ok(order) = orders.recv() {
            let answer = match order {
                Order::Write(batches) => match self.write(&batches) {
                    Ok(file) => Answer::Written(file),
                    Err(error) => Answer::Failed(error),
                },
                Order::Mark => Answer::Marked,
            };
            if answers.send(answer).is_err() {
                return;
            }
            self.wake.wake();
        }
    }

    fn write(&self, batches: &[RecordBatch]) -> Result<ResultFile, Error> {
        let bytes = encode(&self.schema, batches)?;
        // Equal rows of another epoch are another file: retention may delete the one while this
        // one waits for its decision.
        let name = format!("{:032x}-{}", xxhash_rust::xxh3::xxh3_128(&bytes), uuid::Uuid::new_v4().simple());
        let path = self.directory.join(&name);
        let wrap = |e| Error::because(Class::Retry, format!("result file '{}' cannot be written", path.display()), e);
        let draft = self.directory.join(format!("{name}.{}.tmp", self.task));
        store(&draft, &path, &bytes).map_err(|e| {
            let _ = std::fs::remove_file(&draft);
            wrap(e)
        })?;
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        Ok(ResultFile { name, rows, bytes: bytes.len() as u64, written_at_ms: self.clock.wall_ms() })
    }
}

fn encode(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, Error> {
    let wrap = |e| Error::because(Class::Bug, "result rows cannot be encoded", e);
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), schema).map_err(wrap)?;
    for batch in batches {
        writer.write(batch).map_err(wrap)?;
    }
    writer.into_inner().map_err(wrap)
}

/// Durable under its final name, or not there: write, sync, rename, sync the directory.
fn store(draft: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(draft, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
