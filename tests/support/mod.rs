//! What the process tests share: the built binary as a child, its doors, brokers, and input.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub mod bids;
pub mod broker;
pub mod output;
pub mod process;
pub mod rest;
pub mod sql;

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Longest wait for something that takes milliseconds on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Root of the checkout.
pub fn tree_root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a future to its end from a test that is not async.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// The runtime that clients live on.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// Asks `probe` again and again until it answers; panics with `what` when the limit is reached.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "gave up after {limit:?} waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
