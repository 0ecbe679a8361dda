//! What the storm's jobs read: rows with unique numbers, sent once each, and the oracle of what must become of them.
//!
//! Row `r` goes to key `r % KEYS`; the rows of a key fill windows of `BITS` rows, and each row of a window has a bit of its own. So
//! the count and the sum of bits of a window tell exactly which rows are in it, and that none is in it twice.

use super::ask;
use super::support::{PATIENCE, block_on};
use reqwest::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys of the windows.
pub const KEYS: u64 = 16;
/// Rows of a key in a window.
pub const BITS: u64 = 50;
/// Length of a window, ms.
pub const WINDOW_MS: u64 = 10_000;
/// Requests at once, and rows of each.
const REQUESTS: u64 = 3;
const ROWS: u64 = 40;

/// Key and number of a window.
pub type Group = (u64, u64);

fn group(row: u64) -> (Group, u64) {
    let slot = row / KEYS;
    ((row % KEYS, slot / BITS), slot % BITS)
}

/// The window of a row.
pub fn window_of(row: u64) -> u64 {
    group(row).0.1
}

fn body(rows: std::ops::Range<u64>) -> String {
    rows.map(|row| {
        let ((k, w), bit) = group(row);
        let ts = w * WINDOW_MS + bit * (WINDOW_MS / BITS);
        format!("{{\"k\":{k},\"w\":{w},\"bit\":{},\"ts\":{ts}}}\n", 1_u64 << bit)
    })
    .collect()
}

/// Which rows must be in the results of a window, and which may be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// Bits of rows that were answered.
    pub safe: u64,
    /// Bits of rows whose request has no known end.
    pub unknown: u64,
}

/// What became of a request.
enum End {
    /// 200.
    Safe,
    /// Nobody took it.
    Refused,
    /// It is not known.
    Unknown,
}

struct Shared {
    done: AtomicBool,
    answered: AtomicU64,
    /// The number after the last row that was sent.
    next: AtomicU64,
    /// Where SQL can be asked for the address.
    sql: AtomicU16,
    expected: Mutex<BTreeMap<Group, Expected>>,
}

/// A sender.
pub struct Feed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Starts sending to the http source of a job.
    pub fn start(job: &'static str, sql: u16) -> Feed {
        let shared = Arc::new(Shared {
            done: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            next: AtomicU64::new(0),
            sql: AtomicU16::new(sql),
            expected: Mutex::default(),
        });
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || send(&shared, job)
        });
        Feed { shared, thread: Some(thread) }
    }

    /// SQL is at another port now.
    pub fn sql_at(&self, port: u16) {
        self.shared.sql.store(port, Ordering::Release);
    }

    /// Requests that were answered with 200 so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Acquire)
    }

    /// The number after the last row that was sent.
    pub fn next(&self) -> u64 {
        self.shared.next.load(Ordering::Acquire)
    }

    /// Stops sending; gives what must have become of the rows.
    pub fn finish(mut self) -> BTreeMap<Group, Expected> {
        self.shared.done.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut self.shared.expected.lock().unwrap())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Release);
    }
}

/// Sends request after request, a few at once, none of them twice once somebody may have taken it.
fn send(shared: &Shared, job: &str) {
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
    let mut address = None;
    let mut waiting: Vec<u64> = Vec::new();
    let mut round = Instant::now();
    while !shared.done.load(Ordering::Acquire) {
        let Some(at) = address.clone().or_else(|| listens(shared.sql.load(Ordering::Acquire), job)) else {
            std::thread::sleep(Duration::from_millis(30));
            continue;
        };
        while (waiting.len() as u64) < REQUESTS {
            waiting.push(shared.next.fetch_add(ROWS, Ordering::AcqRel));
        }
        let ends: Vec<End> = block_on(futures_of(&client, &at, &waiting));
        let mut again = Vec::new();
        {
            let mut expected = shared.expected.lock().unwrap();
            for (from, end) in waiting.iter().zip(&ends) {
                match end {
                    End::Refused => again.push(*from),
                    End::Safe | End::Unknown => {
                        for row in *from..*from + ROWS {
                            let (group, bit) = group(row);
                            let known = expected.entry(group).or_default();
                            let place = if matches!(end, End::Safe) { &mut known.safe } else { &mut known.unknown };
                            *place |= 1 << bit;
                        }
                    }
                }
            }
        }
        shared.answered.fetch_add(ends.iter().filter(|end| matches!(end, End::Safe)).count() as u64, Ordering::AcqRel);
        address = ends.iter().all(|end| matches!(end, End::Safe)).then_some(at);
        waiting = again;
        // A pace that leaves the machine room for what it is to be seen under.
        std::thread::sleep(Duration::from_millis(15).saturating_sub(round.elapsed()));
        round = Instant::now();
    }
}

async fn futures_of(client: &Client, at: &str, from: &[u64]) -> Vec<End> {
    let requests = from.iter().map(|from| {
        let request = client.post(at).header("content-type", "application/x-ndjson");
        let request = request.body(body(*from..*from + ROWS));
        async {
            match request.send().await {
                Ok(answer) if answer.status().as_u16() == 200 => End::Safe,
                // Somebody else has the port now.
                Ok(answer) if matches!(answer.status().as_u16(), 404 | 405) => End::Refused,
                Ok(answer) => {
                    let status = answer.status();
                    assert!(status.is_server_error(), "a request was answered with {status}: {:?}", answer.text().await);
                    End::Unknown
                }
                Err(error) if error.is_connect() => End::Refused,
                Err(_) => End::Unknown,
            }
        }
    });
    futures::future::join_all(requests).await
}

/// The URL that the newest attempt told.
fn listens(sql: u16, job: &str) -> Option<String> {
    let rows = ask(sql, &format!("SELECT message FROM weir.job_events WHERE job = '{job}' AND kind = 'opened' ORDER BY at DESC LIMIT 1"))?;
    rows.first()?.first()?.strip_prefix("listens on ").map(ToOwned::to_owned)
}

/// Longest wait for the sender to get on.
pub const FEED_PATIENCE: Duration = Duration::from_secs(PATIENCE.as_secs() * 2);
