//! SIGTERM and SIGINT: the first drains, the second exits at once (OPS-3).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that was told twice.
const TOLD_TWICE: i32 = 130;

/// The process's stop signals.
pub struct Stop {
    term: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Listens from now on. Errors: the runtime cannot install handlers.
    pub fn listen() -> std::io::Result<Stop> {
        Ok(Stop { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal. Cancel: safe.
    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Makes any later signal end the process at once.
    pub fn then_exit(mut self) {
        tokio::spawn(async move {
            self.first().await;
            std::process::exit(TOLD_TWICE);
        });
    }
}
