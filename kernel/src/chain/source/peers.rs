//! What the tasks of one source operator on an agent know of each other: how far the slowest is,
//! and whether all are quiet (EV-8, EV-9). Plain atomics, looked at once a poll; each task writes
//! its own place alone.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// One place for each task.
pub(crate) struct Peers(Vec<Peer>);

struct Peer {
    /// Least watermark of its active splits that have one, ms; `i64::MAX` without any.
    slowest_ms: AtomicI64,
    /// Each of its splits is idle or has ended.
    quiet: AtomicBool,
    /// Monotonic time of its last row, or of its start.
    last_row_ns: AtomicU64,
}

impl Peers {
    /// Tasks that have told nothing yet: they hold nobody back, and none counts as quiet.
    pub(crate) fn new(tasks: u32) -> Self {
        let peer = |_| Peer { slowest_ms: AtomicI64::new(i64::MAX), quiet: AtomicBool::new(false), last_row_ns: AtomicU64::new(0) };
        Peers((0..tasks).map(peer).collect())
    }

    /// The slowest split of a task that is active and has a watermark.
    pub(super) fn tell_slowest(&self, task: u32, slowest_ms: Option<i64>) {
        if let Some(peer) = self.0.get(task as usize) {
            peer.slowest_ms.store(slowest_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        }
    }

    /// Whether a task is quiet.
    pub(super) fn tell_quiet(&self, task: u32, quiet: bool) {
        if let Some(peer) = self.0.get(task as usize) {
            peer.quiet.store(quiet, Ordering::Relaxed);
        }
    }

    /// A task had a row, or starts.
    pub(super) fn tell_row(&self, task: u32, now_ns: u64) {
        if let Some(peer) = self.0.get(task as usize) {
            peer.last_row_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Watermark of the slowest of all; `None` when no split holds others back.
    pub(super) fn slowest_ms(&self) -> Option<i64> {
        self.0.iter().map(|peer| peer.slowest_ms.load(Ordering::Relaxed)).min().filter(|slowest| *slowest != i64::MAX)
    }

    /// When the last row of any task came, once all are quiet.
    pub(super) fn quiet_since_ns(&self) -> Option<u64> {
        let quiet = self.0.iter().all(|peer| peer.quiet.load(Ordering::Relaxed));
        let last = self.0.iter().map(|peer| peer.last_row_ns.load(Ordering::Relaxed)).max();
        last.filter(|_| quiet)
    }
}
