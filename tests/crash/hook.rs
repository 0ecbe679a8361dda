//! Where the http sink sends its rows: remembers each, and tells repeats that nothing explains.

use super::feed::Group;
use super::support::runtime;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For how long a process that was stopped and goes on may still send what it was about to send: nothing can fence requests.
const GRACE: Duration = Duration::from_secs(5);

/// A row of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Rows in the window.
    pub n: u64,
    /// Sum of their bits.
    pub mask: u64,
}

/// What came so far.
#[derive(Default)]
pub struct Seen {
    /// The rows, and when each came first.
    pub rows: BTreeMap<Group, (Row, Instant)>,
    /// Rows that came again.
    pub repeats: u64,
    /// What must not be.
    pub faults: Vec<String>,
    /// Lines of requests that were answered.
    pub lines: u64,
    /// What came before is in a sealed cut: it may not come again.
    settled: Option<Instant>,
    forgiven: Option<Instant>,
    /// Observations: when, and how many checkpoints were sealed then.
    looks: Vec<(Instant, usize)>,
    sealed: BTreeSet<u64>,
}

/// The server.
#[derive(Clone, Default)]
pub struct Hook(Arc<Mutex<Seen>>);

impl Hook {
    /// Serves; gives its URL too.
    pub fn start() -> (Hook, String) {
        let hook = Hook::default();
        let router = Router::new().route("/rows", post(take)).with_state(hook.clone());
        let listener = super::support::block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/rows", listener.local_addr().unwrap());
        runtime().spawn(async move { axum::serve(listener, router).await });
        (hook, url)
    }

    /// Looks at what came.
    pub fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }
}

async fn take(State(hook): State<Hook>, body: String) -> StatusCode {
    hook.with(|seen| body.lines().for_each(|line| seen.take(line)));
    StatusCode::OK
}

impl Seen {
    fn take(&mut self, line: &str) {
        self.lines += 1;
        let Ok(row) = serde_json::from_str::<serde_json::Value>(line) else {
            return self.faults.push(format!("a torn line: {line:?}"));
        };
        let number = |name: &str| row[name].as_u64().or_else(|| row[name].as_str()?.parse().ok());
        let (Some(k), Some(w), Some(n), Some(mask)) = (number("k"), number("w"), number("n"), number("mask")) else {
            return self.faults.push(format!("a row that is none: {line}"));
        };
        let (group, now, row) = ((k, w), Instant::now(), Row { n, mask });
        match self.rows.get(&group).copied() {
            None => {
                self.rows.insert(group, (row, now));
            }
            Some((before, first)) => {
                self.repeats += 1;
                let forgiven = self.forgiven.is_some_and(|since| now < since + GRACE);
                if before != row {
                    self.faults.push(format!("window {group:?} was {before:?} and came again as {row:?}"));
                }
                if self.settled.is_some_and(|settled| first < settled) && !forgiven {
                    self.faults.push(format!("window {group:?} came again, {:?} after it came first and was in a sealed cut", now - first));
                }
            }
        }
    }

    /// A process goes on that was stopped.
    pub fn forgive(&mut self) {
        self.forgiven = Some(Instant::now());
    }

    /// These checkpoints were sealed, as was seen at some moment before now.
    ///
    /// Of the checkpoints after one that was the newest at a moment the next one may have begun before it, and its
    /// cut may hold an epoch that began before; the two after that cut may too, for one epoch is open while another
    /// is decided. The fourth one holds all that came up to the moment.
    pub fn sealed(&mut self, at: Instant, ids: impl Iterator<Item = u64>) {
        self.sealed.extend(ids);
        let now = self.sealed.len();
        if let Some((when, _)) = self.looks.iter().rev().find(|(_, then)| then + 4 <= now) {
            self.settled = Some(*when);
        }
        self.looks.push((at, now));
    }

    /// How many checkpoints were seen.
    pub fn checkpoints(&self) -> usize {
        self.sealed.len()
    }

    /// How many rows may not come again.
    pub fn settled(&self) -> usize {
        self.rows.values().filter(|(_, first)| self.settled.is_some_and(|settled| *first < settled)).count()
    }
}
