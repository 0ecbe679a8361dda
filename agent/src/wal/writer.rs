//! The thread that writes a log: one for each source task that has one, since each waits for its own disk or store, and a
//! thread that waits costs nothing.

use super::{Compression, Durable, Entry, Frame, Log, Tell};
use crate::error::Error;
use flume::{Receiver, RecvTimeoutError, Sender};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_kernel::io::Wake;
use weir_planner::error::Class;
use weir_planner::protocol::Level;
use weir_planner::spec::{DurabilityBackend, DurabilitySync};

/// Orders that may wait.
pub const ORDERS_MAX: usize = 256;
/// Undecoded bytes of entries in one commit or object: the next one waits.
const GROUP_BYTES: usize = 4 << 20;
/// Entries likewise.
const GROUP_ENTRIES: usize = 2048;
/// How long entries gather before an object is put, since each one costs a request.
const OBJECT_LINGER: Duration = Duration::from_millis(20);
/// What a crash may lose under `periodic`.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause before a failed write is tried again; it doubles from try to try.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the thread is told.
pub enum Order {
    /// Write this.
    Append(Entry),
    /// Look at what the horizon has passed.
    Look,
    /// Write what waits now, then say so by dropping this.
    Flush(Sender<()>),
}

/// What the thread and its source share.
#[derive(Default)]
pub struct Shared {
    /// Records below this number are durable.
    pub durable: AtomicU64,
    /// The horizon has passed the records below this number.
    pub passed: AtomicU64,
    /// A write was refused and is tried again.
    pub blocked: AtomicBool,
    /// Why nothing is written any more.
    pub failed: Mutex<Option<Error>>,
}

/// The thread.
pub struct Writer {
    /// What it writes.
    pub log: Log,
    /// Who writes.
    pub attempt: u64,
    /// How.
    pub work: Durable,
    /// What messages begin with.
    pub name: String,
    /// For events of the job.
    pub tell: Tell,
    /// See there.
    pub shared: Arc<Shared>,
    /// What it is told.
    pub orders: Receiver<Order>,
    /// Woken when something is durable.
    pub wake: Arc<dyn Wake>,
}

/// Entries that are written together.
#[derive(Default)]
struct Group {
    entries: Vec<Entry>,
    bytes: usize,
    flushed: Vec<Sender<()>>,
}

impl Group {
    /// Takes an order over.
    fn add(&mut self, order: Order) {
        match order {
            Order::Append(entry) => {
                self.bytes += entry.bytes;
                self.entries.push(entry);
            }
            Order::Look => {}
            Order::Flush(done) => self.flushed.push(done),
        }
    }
}

impl Writer {
    /// Writes until nobody gives orders any more, closes the log, and then drops `ended`.
    pub fn run(mut self, ended: Sender<()>) {
        self.work_off();
        drop(self);
        drop(ended);
    }

    fn work_off(&mut self) {
        let mut trimmed = 0;
        while let Ok(order) = self.orders.recv() {
            let group = self.gather(order);
            if let Err(error) = self.write(&group.entries) {
                *self.shared.failed.lock() = Some(error);
                self.wake.wake();
                return;
            }
            drop(group.flushed);
            let passed = self.shared.passed.load(Ordering::Acquire);
            if passed > trimmed {
                self.log.trim(passed);
                trimmed = passed;
            }
        }
    }

    /// What is written together with what an order gives.
    fn gather(&self, first: Order) -> Group {
        let mut group = Group::default();
        group.add(first);
        let wait = match (self.work.sync, self.work.backend) {
            (DurabilitySync::PerEntry, _) => return group,
            (DurabilitySync::GroupCommit, DurabilityBackend::Local) => Duration::ZERO,
            (DurabilitySync::GroupCommit, DurabilityBackend::ObjectStore) => OBJECT_LINGER,
            (DurabilitySync::Periodic, _) => PERIOD,
        };
        let until = Instant::now() + wait;
        // A flush waits for nobody, and whoever only looks need not wait either.
        while group.bytes < GROUP_BYTES && group.entries.len() < GROUP_ENTRIES && group.flushed.is_empty() {
            let next = if group.entries.is_empty() { self.orders.try_recv().ok() } else { self.orders.recv_deadline(until).ok() };
            match next {
                Some(order) => group.add(order),
                None => break,
            }
        }
        group
    }

    /// Writes entries, as often as it takes.
    ///
    /// Errors: what no further try can mend, and every failure once the source has gone.
    fn write(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let Some(end) = entries.last().map(Entry::end) else { return Ok(()) };
        let compression: Compression = self.work.compression;
        let frames = entries.iter().map(|entry| entry.frame(self.attempt, compression)).collect::<Result<Vec<Frame>, _>>()?;
        let (mut pause, mut since) = (PAUSE, None);
        loop {
            let error = match self.log.append(&frames) {
                Ok(()) => break,
                Err(error) => error,
            };
            match error.class {
                // A full disk is made room on, a store comes back, access is given again.
                Class::Retry | Class::User => {}
                Class::Fenced | Class::Corrupt | Class::Bug => return Err(error),
            }
            if since.is_none() {
                since = Some(Instant::now());
                let message = format!(
                    "{}: the input log cannot be written, so nothing is taken or confirmed until it can be: {}",
                    self.name,
                    error.to_failure().message
                );
                tracing::warn!("{message}");
                self.shared.blocked.store(true, Ordering::Release);
                (self.tell)(Level::Error, "wal_blocked", message);
            }
            // Room may be made by what has been passed meanwhile.
            self.log.trim(self.shared.passed.load(Ordering::Acquire));
            if self.source_gone(pause) {
                return Err(error);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if let Some(since) = since {
            self.shared.blocked.store(false, Ordering::Release);
            let message = format!("{}: the input log is written again after {} ms", self.name, since.elapsed().as_millis());
            (self.tell)(Level::Info, "wal_resumed", message);
        }
        self.shared.durable.fetch_max(end, Ordering::AcqRel);
        self.wake.wake();
        Ok(())
    }

    /// Waits a while; whether the source has gone meanwhile. Orders stay where they are.
    fn source_gone(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        while Instant::now() < end {
            if self.orders.is_disconnected() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.orders.is_disconnected()
    }
}

/// Waits until the other end is dropped, at most so long.
pub fn dropped_within(other: &Receiver<()>, most: Duration) -> bool {
    !matches!(other.recv_timeout(most), Err(RecvTimeoutError::Timeout))
}
