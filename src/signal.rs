//! SIGTERM and SIGINT: the first drains, the second exits at once (OPS-3).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that was told twice.
const TOLD_TWICE: i32 = 130;

/// The process's stop signals.
pub struct Stop {
    term: Signal,
    interrupt: Signal,
    /// The first one has come.
    told: bool,
}

impl Stop {
    /// Listens from now on. Errors: the runtime cannot install handlers.
    pub fn listen() -> std::io::Result<Stop> {
        Ok(Stop { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, told: false })
    }

    /// Waits for the first signal. Cancel: safe.
    pub async fn first(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        self.told = true;
    }

    /// Makes the second signal end the process at once. A process that ends by itself may still get
    /// its first while it closes: that one asks for nothing more.
    pub fn then_exit(self) {
        tokio::spawn(async move {
            self.second().await;
            std::process::exit(TOLD_TWICE);
        });
    }

    async fn second(mut self) {
        if !self.told {
            self.first().await;
        }
        self.first().await;
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;
    use futures::FutureExt;
    use std::pin::pin;
    use std::process::Command;

    /// Sends SIGTERM to this process, and returns once it has come.
    async fn told(watch: &mut Stop) {
        assert!(Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().unwrap().success());
        watch.first().await;
    }

    /// STR-6, OPS-3: SIGTERM that comes while all has ended by itself does not make a failure of it;
    /// only the second one does not wait.
    #[tokio::test]
    async fn only_the_second_signal_exits_at_once() {
        let mut watch = Stop::listen().unwrap();
        let mut second = pin!(Stop::listen().unwrap().second());
        assert!(second.as_mut().now_or_never().is_none());
        told(&mut watch).await;
        assert!(second.as_mut().now_or_never().is_none(), "the first one only asks for the end");
        told(&mut watch).await;
        assert!(second.now_or_never().is_some());

        let mut drained = Stop::listen().unwrap();
        told(&mut watch).await;
        drained.first().await;
        let mut second = pin!(drained.second());
        assert!(second.as_mut().now_or_never().is_none());
        told(&mut watch).await;
        assert!(second.now_or_never().is_some());
    }
}
