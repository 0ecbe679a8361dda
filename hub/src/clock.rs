//! Time as the hub sees it, behind a trait so that every decision can be tested without waiting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One moment on both clocks. Leases and pauses count on the steady one; the wall clock is only
/// shown to people and kept across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since some moment in this process; never goes back.
    pub steady_ms: u64,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

/// The two clocks, and a way to wait.
#[async_trait::async_trait]
pub trait Clock: Send + Sync + 'static {
    /// This moment.
    fn now(&self) -> Now;

    /// Returns when the steady clock has reached `steady_ms`.
    ///
    /// Cancel: safe to drop.
    async fn until(&self, steady_ms: u64);
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A steady clock that starts at 0 now.
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait::async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Now { steady_ms: millis(self.start.elapsed()), wall_ms: i64::try_from(millis(wall)).unwrap_or(i64::MAX) }
    }

    async fn until(&self, steady_ms: u64) {
        let at = self.start + Duration::from_millis(steady_ms);
        tokio::time::sleep_until(at.into()).await;
    }
}

/// A clock that tests move by hand.
#[cfg(test)]
pub(crate) struct ManualClock {
    steady: tokio::sync::watch::Sender<u64>,
}

#[cfg(test)]
impl ManualClock {
    /// Wall clock at steady 0.
    pub const WALL_START_MS: i64 = 1_000_000;

    pub fn new() -> Self {
        ManualClock { steady: tokio::sync::watch::channel(0).0 }
    }

    pub fn advance(&self, by: Duration) {
        self.steady.send_modify(|now| *now += by.as_millis() as u64);
    }
}

#[cfg(test)]
#[async_trait::async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Now {
        let steady_ms = *self.steady.borrow();
        Now { steady_ms, wall_ms: Self::WALL_START_MS + steady_ms as i64 }
    }

    async fn until(&self, steady_ms: u64) {
        let mut seen = self.steady.subscribe();
        // The sender lives as long as the clock, which is borrowed here.
        let _ = seen.wait_for(|now| *now >= steady_ms).await;
    }
}
