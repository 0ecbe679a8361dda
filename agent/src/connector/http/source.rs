//! Records that clients send by POST: one split, not to be read again.
//!
//! What came is gone once it was given, so a request is answered only when the epoch with its
//! records is decided (EPO-8): what was answered with 200 is never lost, and whoever got no answer
//! sends again. Records are looked at before any of their request is taken: under `on_error: fail` a
//! bad one refuses its request with 400 and leaves the job alone, since no client may end a job.

use super::super::{Opening, Reading, at, resume_row};
use super::answer::Verdict;
use super::body::{Records, Shape};
use super::serve::{Delivery, Door, Limits, room, serve};
use crate::format::{Decoded, Decoder};
use crate::secret::Resolved;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type, TimeUnit as ArrowUnit};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use weir_kernel::error::Error;
use weir_kernel::io::{BadRecord, Budget, Polled, Source, SourceBatch, Split, Wake};
use weir_planner::connector::{Acknowledge, HttpSource as Options, Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;
use weir_planner::spec::ErrorPolicy;
use weir_planner::time::TimeUnit;

/// The one split.
pub const SPLIT: &str = "http";
/// Bodies that wait for the chain; each comes from a connection of its own, so there are never more.
const DELIVERIES_MAX: usize = 1024;
/// Groups of refused requests in a row that one poll looks at.
const REFUSED_GROUPS_MAX: usize = 4;
/// Longest wait for the server to end: its own bound and some.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

type Answer = oneshot::Sender<Verdict>;

/// The chain's side of the server.
pub struct HttpSource {
    decoder: Box<dyn Decoder>,
    reading: Reading,
    shape: Shape,
    /// Column of event time in seconds, whose values may be out of range.
    seconds: Option<usize>,
    acknowledge: Acknowledge,
    address: SocketAddr,
    path: String,
    deliveries: flume::Receiver<Delivery>,
    /// Decoded, not all given yet.
    ready: Option<Ready>,
    /// Records given.
    given: u64,
    time_max_ms: Option<i64>,
    /// Answers for the records before a count, in order.
    waiting: VecDeque<(u64, Vec<(Answer, Verdict)>)>,
    closing: watch::Sender<bool>,
    ended: flume::Receiver<()>,
    wake: Arc<dyn Wake>,
}

/// The records of some requests.
struct Ready {
    rows: RecordBatch,
    bad: VecDeque<BadRecord>,
    /// Undecoded bytes, told with the first piece.
    bytes: usize,
    answers: Vec<(Answer, Verdict)>,
}

impl HttpSource {
    /// Listens.
    ///
    /// Errors: `Retry` when the address is in use; `User` when it is none of this machine's.
    pub fn open(options: &Options, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<Self, Error> {
        HttpSource::open_within(options, work, positions, opening, Limits::default())
    }

    /// Like [`HttpSource::open`], with other bounds on what clients may take.
    ///
    /// Errors: as there.
    pub fn open_within(
        options: &Options,
        work: &SourceWork,
        positions: &[SplitPosition],
        opening: &Opening,
        limits: Limits,
    ) -> Result<Self, Error> {
        let reading = Reading::new(work, opening);
        if opening.parallelism != 1 {
            return Err(Error::new(Class::Bug, format!("{} has {} tasks, but only one can listen", reading.name, opening.parallelism)));
        }
        let (given, _, time_max_ms) = resume_row(positions, SPLIT, &reading.name)?;
        let decoder = crate::format::decoder_of(work)?;
        let shape = Shape::of(work.format.as_ref());
        let listener = listen(&options.address, &reading.name)?;
        let unfit = |e| Error::because(Class::Retry, format!("{}: address {}", reading.name, options.address), e);
        let address = listener.local_addr().map_err(unfit)?;
        let (deliver, deliveries) = flume::bounded(DELIVERIES_MAX.max(limits.connections));
        let (closing, told) = watch::channel(false);
        let (end, ended) = flume::bounded(1);
        let door = Door {
            path: options.path.clone(),
            token: options.token.clone().map(Resolved),
            shape,
            max_body_bytes: options.max_body_bytes,
            limits,
            room: room(options.max_body_bytes),
            deliveries: deliver,
            wake: opening.wake.clone(),
            closing: told,
        };
        let _inside = opening.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(unfit)?;
        // Ends when told by `closing`, and then drops its end of `ended`, which `close` waits for.
        drop(opening.runtime.spawn(serve(listener, Arc::new(door), end)));
        let seconds = work.time.as_ref().and_then(|time| {
            let column = work.used.iter().position(|name| *name == time.column)?;
            let declared = work.columns.iter().find(|declared| declared.column.name == time.column)?;
            let in_seconds = match declared.column.ty.to_arrow() {
                DataType::Int64 => time.unit == TimeUnit::Second,
                DataType::Timestamp(unit, _) => unit == ArrowUnit::Second,
                _ => false,
            };
            in_seconds.then_some(column)
        });
        tracing::info!(job = %opening.job, operator = %opening.operator, %address, path = options.path, "http source listens");
        Ok(HttpSource {
            decoder,
            reading,
            shape,
            seconds,
            acknowledge: options.acknowledge,
            address,
            path: options.path.clone(),
            deliveries,
            ready: None,
            given,
            time_max_ms,
            waiting: VecDeque::new(),
            closing,
            ended,
            wake: opening.wake.clone(),
        })
    }

    /// Where it listens: tells the port where the options leave it open.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bodies of one poll: whole requests up to the budget, at least one.
    fn group(&self, budget: Budget) -> Vec<Delivery> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        // A record takes at least two bytes with its line end; that many requests are no bound on rows, which are cut later.
        while bytes < budget.bytes && group.len() < budget.rows.max(1) {
            let Ok(delivery) = self.deliveries.try_recv() else { break };
            bytes += delivery.body.len();
            group.push(delivery);
        }
        group
    }

    /// Decodes requests: together, and each for itself where one of them may have to be refused.
    fn decode(&mut self, group: Vec<Delivery>) -> Result<Option<Ready>, Error> {
        let refuses = match self.reading.on_error {
            ErrorPolicy::Fail => true,
            ErrorPolicy::Skip | ErrorPolicy::Route => false,
        };
        let bytes = group.iter().map(|delivery| delivery.body.len()).sum();
        if !self.shape.has_header() {
            let counts: Vec<u64> = group.iter().map(|delivery| self.push(delivery)).collect();
            let decoded = self.decoder.finish()?;
            let clean = counts.iter().all(|count| *count > 0) && decoded.bad.is_empty() && self.out_of_range(&decoded.rows).is_none();
            if clean {
                let answers =
                    group.into_iter().zip(counts).map(|(delivery, records)| (delivery.answer, Verdict::Taken { records, skipped: 0 }));
                return Ok(Some(Ready { rows: decoded.rows, bad: VecDeque::new(), bytes, answers: answers.collect() }));
            }
        }
        let (mut batches, mut bad, mut answers) = (Vec::new(), VecDeque::new(), Vec::new());
        for delivery in group {
            match self.one(&delivery, refuses)? {
                Ok((decoded, records)) => {
                    let skipped = decoded.bad.len() as u64;
                    batches.push(decoded.rows);
                    bad.extend(decoded.bad.into_iter().map(|bad| bad.into_record("line")));
                    answers.push((delivery.answer, Verdict::Taken { records, skipped }));
                }
                // Whoever does not wait any more needs no answer, here and below.
                Err(verdict) => drop(delivery.answer.send(verdict)),
            }
        }
        let Some(first) = batches.first() else { return Ok(None) };
        let rows = concat_batches(&first.schema(), &batches)
            .map_err(|e| Error::because(Class::Bug, format!("{}: batches of one decoder do not join", self.reading.name), e))?;
        Ok(Some(Ready { rows, bad, bytes, answers }))
    }

    /// Pushes the records of a request into the decoder; how many.
    fn push(&mut self, delivery: &Delivery) -> u64 {
        let mut count = 0;
        for (line, record) in Records::of(&delivery.body, self.shape.cut(&delivery.body, delivery.one)) {
            self.decoder.push(record, line);
            count += 1;
        }
        count
    }

    /// One request for itself: its rows and number of records, or why none of it is taken.
    fn one(&mut self, delivery: &Delivery, refuses: bool) -> Result<Result<(Decoded, u64), Verdict>, Error> {
        let mut records = Records::of(&delivery.body, self.shape.cut(&delivery.body, delivery.one));
        if self.shape.has_header() {
            let Some((_, names)) = records.next() else { return Ok(Err(empty())) };
            if let Err(error) = self.decoder.header(names) {
                return Ok(Err(Verdict::Unreadable { reason: error.message }));
            }
        }
        let mut count = 0;
        let mut lines = Vec::new();
        for (line, record) in records {
            self.decoder.push(record, line);
            count += 1;
            if refuses && self.seconds.is_some() {
                lines.push(line);
            }
        }
        let decoded = self.decoder.finish()?;
        if count == 0 {
            return Ok(Err(empty()));
        }
        if refuses {
            if let Some(bad) = decoded.bad.first() {
                return Ok(Err(Verdict::Refused { line: bad.at, reason: bad.reason.clone() }));
            }
            // Without bad records each row is a record.
            if let Some(row) = self.out_of_range(&decoded.rows) {
                let reason = "the event time is out of range".to_owned();
                return Ok(Err(Verdict::Refused { line: lines.get(row).copied().unwrap_or_default(), reason }));
            }
        }
        Ok(Ok((decoded, count)))
    }

    /// The first row whose event time milliseconds cannot hold: under `fail` it would end the job.
    fn out_of_range(&self, rows: &RecordBatch) -> Option<usize> {
        let column = rows.columns().get(self.seconds?)?;
        let values = cast(column, &DataType::Int64).ok()?;
        let values = values.as_primitive::<Int64Type>();
        (0..values.len()).find(|row| values.is_valid(*row) && TimeUnit::Second.to_millis(values.value(*row)).is_none())
    }

    /// The next piece of what is decoded.
    fn give(&mut self, budget: Budget) -> Option<SourceBatch> {
        let ready = self.ready.as_mut()?;
        let most = budget.rows.max(1);
        let rows = ready.rows.slice(0, ready.rows.num_rows().min(most));
        ready.rows = ready.rows.slice(rows.num_rows(), ready.rows.num_rows() - rows.num_rows());
        let room = most - rows.num_rows();
        let bad: Vec<BadRecord> = ready.bad.drain(..ready.bad.len().min(room)).collect();
        let bytes = std::mem::take(&mut ready.bytes);
        self.given += (rows.num_rows() + bad.len()) as u64;
        if ready.rows.num_rows() == 0 && ready.bad.is_empty() {
            let answers = self.ready.take().map(|ready| ready.answers).unwrap_or_default();
            match self.acknowledge {
                Acknowledge::Decided => self.waiting.push_back((self.given, answers)),
                Acknowledge::Received => reply(answers),
            }
        }
        Some(SourceBatch { split: 0, rows, bad, bytes, split_ended: false })
    }
}

fn empty() -> Verdict {
    Verdict::Unreadable { reason: "the body holds no record".to_owned() }
}

fn reply(answers: Vec<(Answer, Verdict)>) {
    for (answer, verdict) in answers {
        // Its client may have gone.
        let _ = answer.send(verdict);
    }
}

fn listen(address: &str, name: &str) -> Result<std::net::TcpListener, Error> {
    let unknown = |e| Error::because(Class::Retry, format!("{name}: address '{address}' is not known"), e);
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(unknown)?.collect();
    let listener = std::net::TcpListener::bind(addresses.as_slice()).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|e| {
        let (class, message) = match e.kind() {
            ErrorKind::AddrInUse => (Class::Retry, "is in use; stop what listens there, or give another address"),
            ErrorKind::AddrNotAvailable => (Class::User, "is none of the agent's machine"),
            ErrorKind::PermissionDenied => (Class::User, "may not be listened on; use a port above 1023"),
            _ => (Class::Retry, "cannot be listened on"),
        };
        Error::because(class, format!("{name}: address {address} {message}"), e)
    })
}

impl Source for HttpSource {
    fn splits(&self) -> Vec<Split> {
        vec![Split { name: SPLIT.to_owned(), ended: false, time_max_ms: self.time_max_ms }]
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        for _ in 0..REFUSED_GROUPS_MAX {
            if let Some(batch) = self.give(budget) {
                return Ok(Polled::Batch(batch));
            }
            let group = self.group(budget);
            if group.is_empty() {
                return Ok(Polled::Pending { until_ns: None });
            }
            self.ready = self.decode(group)?;
        }
        if let Some(batch) = self.give(budget) {
            return Ok(Polled::Batch(batch));
        }
        self.wake.wake();
        Ok(Polled::Pending { until_ns: None })
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        vec![at(SPLIT, Position::Row(self.given), false)]
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    /// A request is answered when no restart can lose its records any more (docs/decision/009).
    fn passed(&mut self, positions: &[SplitPosition]) {
        let Some(SplitPosition { position: Position::Row(decided), .. }) = positions.iter().find(|position| position.split == SPLIT) else {
            return;
        };
        while self.waiting.front().is_some_and(|(end, _)| end <= decided) {
            reply(self.waiting.pop_front().map(|(_, answers)| answers).unwrap_or_default());
        }
    }

    fn lag(&self) -> Vec<Option<u64>> {
        // Bodies that wait have not been counted in records yet.
        let waits = self.ready.is_some() || !self.deliveries.is_empty();
        vec![(!waits).then_some(0)]
    }

    fn at_end(&self, _split: usize) -> bool {
        self.ready.is_none() && self.deliveries.is_empty()
    }

    fn greeting(&self) -> Option<String> {
        Some(format!("listens on http://{}{}", self.address, self.path))
    }

    fn close(&mut self) {
        if self.closing.send_replace(true) {
            return;
        }
        let undecided = self.waiting.drain(..).flat_map(|(_, answers)| answers);
        let ungiven = self.ready.take().map(|ready| ready.answers).unwrap_or_default();
        for (answer, _) in undecided.chain(ungiven) {
            let _ = answer.send(Verdict::Closing);
        }
        // A request that comes in between finds the door closing; those that wait are dropped, which tells them the same.
        while self.deliveries.try_recv().is_ok() {}
        if let Err(flume::RecvTimeoutError::Timeout) = self.ended.recv_timeout(CLOSE_WAIT) {
            tracing::warn!(address = %self.address, "the server of an http source did not close in time and is left behind");
        }
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        self.close();
    }
}
