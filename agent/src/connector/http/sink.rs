//! Rows as bodies of requests, a JSON object a line, at least once.
//!
//! One request of a task is under way at a time, and the next one goes when it was answered with
//! 2xx: so rows arrive in order, and only those of one request can arrive twice, after a failure. An
//! epoch is flushed when every body of it was answered. A body that is not taken poisons the epoch
//! (A6): every later call fails, the region goes back to its last cut and sends the rows again.

use super::super::Opening;
use super::send::{Body, Sending, Shared, client, drive};
use crate::format::json::JsonEncoder;
use arrow::array::RecordBatch;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle};
use weir_planner::connector::HttpSink as Options;
use weir_planner::error::Class;
use weir_planner::id::EpochId;
use weir_planner::schema::Schema;
use weir_planner::secret::url_place;

/// A body goes when it holds this much, however few rows that is.
const BODY_BYTES: usize = 1 << 20;
/// Bytes of bodies that wait; then the chain does.
const HELD_BYTES_MAX: usize = 8 << 20;
/// How long an endpoint may take to accept a connection when the sink opens.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for the sender to end.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// An http sink task. Requests are sent on the agent's runtime.
pub struct HttpSink {
    shared: Arc<Shared>,
    encoder: JsonEncoder,
    rows_max: u64,
    /// Rows of a batch that was found not to fit whole: it is pushed again, and goes on here.
    sent: usize,
    /// Rows that the open flush waits for.
    flushing: Option<u64>,
    pub(super) ended: flume::Receiver<()>,
}

impl HttpSink {
    /// Connects once, to find an endpoint that is away before rows come; sends nothing.
    ///
    /// Errors: `Retry` when nothing listens there; `User` for a URL or header that cannot be used.
    pub fn open(options: &Options, input: &Schema, opening: &Opening) -> Result<Self, Error> {
        let name = format!("sink '{}' of job '{}'", opening.operator, opening.job);
        let named = |e: Error| Error { message: format!("{name}: {}", e.message), ..e };
        let place = url_place(&options.url);
        let (client, url, headers) = client(options).map_err(named)?;
        reach(&url, &place).map_err(named)?;
        let shared = Arc::new(Shared::new(opening.wake.clone()));
        let (end, ended) = flume::bounded(1);
        let sending = Sending {
            client,
            url,
            headers,
            method: options.method,
            tries: options.tries.max(1),
            name: name.clone(),
            place,
            shared: shared.clone(),
        };
        let encoder = JsonEncoder::new(input).map_err(named)?;
        // Ends when the sink closes or a body is not taken, and then drops its end of `ended`.
        drop(opening.runtime.spawn(drive(sending, end)));
        Ok(HttpSink { shared, encoder, rows_max: options.batch_rows.max(1), sent: 0, flushing: None, ended })
    }
}

/// A connection that is closed at once.
fn reach(url: &reqwest::Url, place: &str) -> Result<(), Error> {
    let away = |reason: String| Error::new(Class::Retry, format!("endpoint {place} does not answer: {reason}"));
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let addresses = (host, port).to_socket_addrs().map_err(|e| away(e.to_string()))?;
    let mut reason = "its name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, OPEN_WAIT) {
            Ok(_) => return Ok(()),
            Err(e) => reason = e.to_string(),
        }
    }
    Err(away(reason))
}

impl Sink for HttpSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.shared.check()?;
        let values = self.encoder.rows(rows)?;
        let mut queue = self.shared.queue.lock();
        for row in self.sent..rows.num_rows() {
            if queue.bytes >= HELD_BYTES_MAX {
                self.sent = row;
                drop(queue);
                self.shared.ready.notify_one();
                return Ok(Pushed::Full);
            }
            let first = queue.rows + 1;
            if queue.bodies.back().is_none_or(|body| body.rows >= self.rows_max || body.bytes.len() >= BODY_BYTES) {
                queue.bodies.push_back(Body { bytes: Vec::new(), rows: 0, first });
            }
            let Some(body) = queue.bodies.back_mut() else { continue };
            let before = body.bytes.len();
            values.write(row, &mut body.bytes);
            body.bytes.push(b'\n');
            body.rows += 1;
            let grown = body.bytes.len() - before;
            queue.bytes += grown;
            queue.rows += 1;
        }
        drop(queue);
        self.sent = 0;
        self.shared.ready.notify_one();
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        self.shared.check()?;
        if self.flushing.is_some() {
            return Err(Error::new(Class::Bug, "a flush of an http sink began while another was open"));
        }
        self.flushing = Some(self.shared.queue.lock().rows);
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        self.shared.check()?;
        if self.flushing.is_some_and(|rows| self.shared.queue.lock().answered < rows) {
            return Ok(Flush::Pending);
        }
        self.flushing = None;
        Ok(Flush::Done(SinkHandle::None))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {
        if self.shared.stop() {
            return;
        }
        // What was not answered will be sent again after a restart.
        if let Err(flume::RecvTimeoutError::Timeout) = self.ended.recv_timeout(CLOSE_WAIT) {
            tracing::warn!("the sender of an http sink did not end in time and is left behind");
        }
    }
}

impl Drop for HttpSink {
    fn drop(&mut self) {
        self.close();
    }
}
