//! The whole view of the outside: sources, sinks, clock, wake-up, and what a chain hands over at
//! a barrier and takes back on a restore. The agent implements these; tests do too.

use crate::error::Error;
use arrow::array::RecordBatch;
use std::sync::Arc;
use weir_planner::connector::SplitPosition;
use weir_planner::id::{EpochId, OperatorId};

pub use weir_planner::manifest::{ResultFile, SinkHandle};

/// Makes a parked chain runnable again. Cheap, callable from any thread, never blocks.
pub trait Wake: Send + Sync {
    /// The chain has something to do.
    fn wake(&self);
}

/// Time as the kernel sees it.
pub trait Clock: Send + Sync {
    /// Wall clock, ms since 1970.
    fn wall_ms(&self) -> i64;
    /// Monotonic nanoseconds since an arbitrary start.
    fn monotonic_ns(&self) -> u64;
}

/// How much a source may give in one poll.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Rows at most.
    pub rows: usize,
    /// Undecoded bytes at most (one larger record is admitted alone).
    pub bytes: usize,
}

/// What a poll found.
#[derive(Debug)]
pub enum Polled {
    /// Rows of one split.
    Batch(SourceBatch),
    /// Nothing now: the source wakes the chain when there is, or at `until_ns` (monotonic) at the latest.
    Pending {
        /// Poll again then, even without a wake-up.
        until_ns: Option<u64>,
    },
    /// This task's splits have all ended and every row was given.
    End,
}

/// Rows of one split, in its order, decoded.
#[derive(Debug)]
pub struct SourceBatch {
    /// Index into [`Source::splits`].
    pub split: usize,
    /// Columns as planned (`SourceWork::used`). May be empty of rows (all records were bad).
    pub rows: RecordBatch,
    /// Records of this batch that were bad, under `on_error: skip` or `route`; already left out of `rows`.
    pub bad: Vec<BadRecord>,
    /// Undecoded bytes that the rows came from.
    pub bytes: usize,
    /// The split ends after these rows.
    pub split_ended: bool,
}

/// A record that could not be decoded (CON-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Position text: an offset, a line.
    pub position: String,
    /// Names field and type where it can.
    pub reason: String,
    /// The record: its first KiB for people where it is skipped, up to [`crate::side::RAW_BYTES_MAX`]
    /// bytes of it where it is routed.
    pub raw: Vec<u8>,
}

/// A split that a source task reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Stable name.
    pub name: String,
    /// Ended before this attempt.
    pub ended: bool,
    /// Restored running maximum of event time.
    pub time_max_ms: Option<i64>,
}

/// One task of a source connector: opened, restored and connected before the chain runs.
pub trait Source: Send {
    /// Splits of this task, growing only at the end: indices stay valid.
    fn splits(&self) -> Vec<Split>;

    /// Gives the next rows without blocking. With `on_error: fail` a bad record is an error of
    /// class `User` that names split and position.
    fn poll(&mut self, budget: Budget) -> Result<Polled, Error>;

    /// Splits for which `held` is true are too far ahead: until told otherwise `poll` gives no rows
    /// of them and fetches none, while the others go on (EV-9). Called before a poll when something
    /// has changed; one entry for each split. What was fetched already may be kept. A source of one
    /// split need not do anything: it is not polled while all of its splits are held.
    fn hold(&mut self, _held: &[bool]) {}

    /// Next position of every split: exactly what was given by `poll` lies before it.
    /// `time_max_ms` is left `None`; the chain fills it in.
    fn cut(&mut self) -> Vec<SplitPosition>;

    /// The epoch with these positions is decided: tell people by the outside system, asynchronously.
    /// Nothing may be done that cannot be repeated or taken back.
    fn decided(&mut self, positions: &[SplitPosition]);

    /// The horizon has passed the epoch with these positions (EPO-8): no restart will ever begin before
    /// them. Now native acknowledgements may be sent, logs trimmed, read files deleted. Comes after
    /// `decided`, at once or much later, and may leave epochs out.
    fn passed(&mut self, _positions: &[SplitPosition]) {}

    /// Records between what was given and the end of each split, where known.
    fn lag(&self) -> Vec<Option<u64>>;

    /// Caught up: the last poll reached the end of this split as known (EV-8).
    fn at_end(&self, split: usize) -> bool;

    /// What people should know once it is open, such as the address where it listens.
    fn greeting(&self) -> Option<String> {
        None
    }

    /// Closes connections; idempotent.
    fn close(&mut self);
}

/// What became of a pushed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Taken.
    Taken,
    /// Not taken: try the same batch again after a wake-up or a millisecond.
    Full,
}

/// How a flush stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Flush {
    /// Not yet; the sink wakes the chain.
    Pending,
    /// All that was pushed before `begin_flush` is durable outside, or described by the handle.
    Done(SinkHandle),
}

/// One task of a sink connector.
pub trait Sink: Send {
    /// Takes a batch without blocking.
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error>;

    /// Starts to make everything pushed so far durable. Pushes go on meanwhile; at most one
    /// flush is open (EPO-6).
    fn begin_flush(&mut self, epoch: EpochId) -> Result<(), Error>;

    /// How the open flush stands.
    fn poll_flush(&mut self) -> Result<Flush, Error>;

    /// The epoch is decided.
    fn decided(&mut self, epoch: EpochId);

    /// Closes connections; idempotent. What was not flushed may be lost.
    fn close(&mut self);
}

/// What one stateful operator task changed since the last barrier: after-images and a retirement
/// mark, never partial aggregates (STA-3). Applying an image twice gives the same state.
#[derive(Clone, Debug)]
pub struct StateImage {
    /// The operator.
    pub operator: OperatorId,
    /// The subtask that wrote it.
    pub subtask: u32,
    /// One row a changed entry, ascending by the first column `__key_group` (UInt32). Then the
    /// operator's own columns: for windows those of [`crate::state::layout`].
    /// [`crate::state::merge`] says how an entry has an end of its own, and how it is no more.
    pub rows: RecordBatch,
    /// Entries whose last window ends at or before this are gone, those in this image included (ms);
    /// `i64::MIN` when none.
    pub retired_ms: i64,
    /// Further scalars of the task, such as marks and counters; the newest image's hold.
    pub scalars: Vec<(String, i64)>,
}

/// What one stateful operator task had changed at a barrier, standing still. Putting it into columns takes time
/// and is for another thread than the chain's (CKP-4).
pub struct FrozenImage {
    /// The operator.
    pub operator: OperatorId,
    /// The subtask.
    pub subtask: u32,
    build: Box<dyn FnOnce() -> Result<StateImage, Error> + Send>,
}

impl FrozenImage {
    /// One that `build` makes when it is asked for.
    pub fn later(operator: OperatorId, subtask: u32, build: impl FnOnce() -> Result<StateImage, Error> + Send + 'static) -> Self {
        FrozenImage { operator, subtask, build: Box::new(build) }
    }

    /// Puts it into columns.
    ///
    /// Errors: state that its columns cannot hold, which is a fault of Weir.
    pub fn build(self) -> Result<StateImage, Error> {
        (self.build)()
    }
}

impl From<StateImage> for FrozenImage {
    fn from(image: StateImage) -> Self {
        FrozenImage::later(image.operator.clone(), image.subtask, move || Ok(image))
    }
}

impl std::fmt::Debug for FrozenImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrozenImage({}-{})", self.operator, self.subtask)
    }
}

/// What a chain hands over when a barrier has passed it.
#[derive(Debug)]
pub struct ChainCut {
    /// Positions of its source, if it has one, with `time_max_ms` filled in.
    pub positions: Vec<SplitPosition>,
    /// Changed state of each stateful operator in the chain; empty images are left out.
    pub images: Vec<FrozenImage>,
    /// Every source of the chain had ended and end of stream had passed all of it before the barrier.
    pub ended: bool,
}

/// State to begin from: for each stateful operator the images in the order of their decisions.
/// The kernel drops rows of key groups that the task does not own.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Oldest first.
    pub images: Vec<Arc<StateImage>>,
    /// They come from other tasks than this one (CKP-9): all that is kept of them counts as changed, so
    /// that the first image after the restore is the whole state.
    pub redealt: bool,
}
