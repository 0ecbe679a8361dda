//! The runtime of everything that is not rows: doors, sockets, coordinators, commands of the command line.

use anyhow::Context;

/// Small, so that data shards keep the cores (KER-8).
const CONTROL_THREADS: usize = 2;
/// Stack of its threads: a query is planned on them, which recurses as deep as the parser's limits
/// let a statement be nested. Reserved, not used, until then.
const CONTROL_STACK_BYTES: usize = 32 << 20;
/// How long the end waits for threads that still compute a query which nobody waits for any more.
const LEFTOVER: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the work of a command on the control runtime, and ends the runtime within a bound.
///
/// Errors: those of the work; threads cannot be started.
pub fn on_control<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(CONTROL_THREADS).thread_stack_size(CONTROL_STACK_BYTES).thread_name("weir-control").enable_all();
    let runtime = builder.build().context("control runtime")?;
    let done = runtime.block_on(work);
    // Everything that must be kept was closed by `work`.
    runtime.shutdown_timeout(LEFTOVER);
    done
}
