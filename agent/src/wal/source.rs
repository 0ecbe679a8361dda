//! A source whose rows are in a log before they are given.

use super::writer::{ORDERS_MAX, Order, Shared, Writer, dropped_within};
use super::{Durable, Entry, Found, Log, Place};
use crate::connector::{Opening, Reading, resume_row};
use crate::error::Error;
use arrow::datatypes::SchemaRef;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_kernel::io::{Budget, Polled, Source, SourceBatch, Split, Wake};
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;
use weir_planner::protocol::Level;
use weir_planner::schema::Schema;
use weir_planner::spec::DurabilitySync;

/// Undecoded bytes that are on their way into the log, or in it and not given: more are not taken from the source.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Entries likewise.
const WAITING_MAX: usize = 4096;
/// Entries that are read ahead from the log after a restart.
const REPLAY_AHEAD: usize = 4;
/// Polls of the inner source in one poll.
const POLLS_MAX: usize = 4;
/// Longest wait for what is being written when the source closes.
const FLUSH_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for the threads to end.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// The source and its log.
pub struct LoggedSource {
    inner: Box<dyn Source>,
    split: &'static str,
    name: String,
    sync: DurabilitySync,
    shared: Arc<Shared>,
    /// `None` once it is closed.
    orders: Option<flume::Sender<Order>>,
    writer: flume::Receiver<()>,
    /// Entries of the log from before the start, while there are some.
    replay: Option<flume::Receiver<Result<Entry, Error>>>,
    /// Entries of this start, in order: to be given once they are durable.
    waiting: VecDeque<Entry>,
    /// Undecoded bytes of them.
    waiting_bytes: usize,
    /// Ends and undecoded bytes of what is not durable.
    unwritten: VecDeque<(u64, usize)>,
    unwritten_bytes: usize,
    /// An entry that is being given, in pieces.
    giving: Option<Entry>,
    /// The number of the next record to give.
    given: u64,
    /// The number of the next record to take.
    next: u64,
    /// Records below this number are told to the inner source as safe.
    confirmed: u64,
    inner_ended: bool,
    time_max_ms: Option<i64>,
    wake: Arc<dyn Wake>,
}

impl LoggedSource {
    /// Opens the log of the task, then the source by `open`, which gets positions as a source of the one split `split` that
    /// counts records. Blocks.
    ///
    /// Errors: as [`Log::open`] and `open`.
    pub fn open(
        durable: Durable,
        split: &'static str,
        work: &SourceWork,
        output: &Schema,
        positions: &[SplitPosition],
        opening: &Opening,
        open: impl FnOnce(&[SplitPosition]) -> Result<Box<dyn Source>, Error>,
    ) -> Result<Self, Error> {
        let name = Reading::new(work, opening).name;
        let (cut, _, time_max_ms) = resume_row(positions, split, &name)?;
        let recorded = positions.iter().any(|position| position.split == split);
        let task = format!("{}-{}", opening.operator, opening.subtask);
        let (log, found) = Log::open(&durable, &opening.log, &task, &opening.runtime)?;
        if recorded && cut > 0 && found.new {
            let message = format!(
                "{name}: the input log is new here, and the job goes on from record {cut}: what an earlier log held after it, if there was \
                 one, is lost with it"
            );
            (opening.log.tell)(Level::Warn, "wal_new", message);
        }
        let next = cut.max(found.end);
        let moved = SplitPosition { split: split.to_owned(), position: Position::Row(next), time_max_ms, ended: false };
        let inner = open(&[moved])?;
        let shared = Arc::new(Shared::default());
        shared.durable.store(next, Ordering::Release);
        let (orders, waiting) = flume::bounded(ORDERS_MAX);
        let (ended, writer) = flume::bounded(1);
        let thread = Writer {
            log,
            attempt: opening.log.attempt.get(),
            work: durable.clone(),
            name: name.clone(),
            tell: opening.log.tell.clone(),
            shared: shared.clone(),
            orders: waiting,
            wake: opening.wake.clone(),
        };
        start("wal-writer", &name, move || thread.run(ended))?;
        let (from, replay) = (recorded.then_some(cut), flume::bounded(REPLAY_AHEAD));
        let reader = Reader { from, schema: Arc::new(output.to_arrow()), name: name.clone(), place: opening.log.clone(), found, next };
        let (entries, wake) = (replay.0, opening.wake.clone());
        start("wal-reader", &name, move || {
            reader.run(&entries, wake.as_ref());
            // The source hears that there is no more once this end is gone.
            drop(entries);
            wake.wake();
        })?;
        Ok(LoggedSource {
            inner,
            split,
            name,
            sync: durable.sync,
            shared,
            orders: Some(orders),
            writer,
            replay: Some(replay.1),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            giving: None,
            given: cut,
            next,
            confirmed: next,
            inner_ended: false,
            time_max_ms,
            wake: opening.wake.clone(),
        })
    }

    fn position(&self, record: u64) -> SplitPosition {
        SplitPosition { split: self.split.to_owned(), position: Position::Row(record), time_max_ms: None, ended: false }
    }

    /// Hears how far the log has come, and tells the source.
    fn listen(&mut self) {
        let durable = self.shared.durable.load(Ordering::Acquire);
        while let Some((_, bytes)) = self.unwritten.front().filter(|(end, _)| *end <= durable) {
            self.unwritten_bytes -= bytes;
            self.unwritten.pop_front();
        }
        let confirmed = match self.sync {
            DurabilitySync::PerEntry | DurabilitySync::GroupCommit => durable,
            DurabilitySync::Periodic => self.next,
        };
        if confirmed > self.confirmed {
            self.confirmed = confirmed;
            let told = self.position(confirmed);
            self.inner.passed(&[told]);
        }
    }

    /// The next entry that may be given.
    fn ready(&mut self) -> Result<Option<Entry>, Error> {
        if let Some(entry) = self.giving.take() {
            return Ok(Some(entry));
        }
        if let Some(replay) = &self.replay {
            match replay.try_recv() {
                Ok(Ok(mut entry)) => {
                    // Records that the cut covers are in the state.
                    entry.skip_to(self.given);
                    return Ok(Some(entry));
                }
                Ok(Err(error)) => return Err(error),
                Err(flume::TryRecvError::Empty) => return Ok(None),
                Err(flume::TryRecvError::Disconnected) => self.replay = None,
            }
        }
        if self.waiting.front().is_some_and(|entry| entry.end() <= self.confirmed) {
            let entry = self.waiting.pop_front();
            self.waiting_bytes -= entry.as_ref().map_or(0, |entry| entry.bytes);
            return Ok(entry);
        }
        Ok(None)
    }

    /// Gives an entry, or the piece of it that the budget has room for.
    fn give(&mut self, entry: Entry, budget: Budget) -> SourceBatch {
        let most = budget.rows.max(1);
        let rows = entry.rows.slice(0, entry.rows.num_rows().min(most));
        let mut bad = entry.bad.clone();
        bad.truncate(if rows.num_rows() == entry.rows.num_rows() { most - rows.num_rows() } else { 0 });
        let bytes = entry.bytes;
        self.given = entry.first + (rows.num_rows() + bad.len()) as u64;
        if self.given < entry.end() {
            let mut rest = entry;
            rest.skip_to(self.given);
            rest.bytes = 0;
            self.giving = Some(rest);
        }
        let split_ended = self.inner_ended && self.is_empty();
        SourceBatch { split: 0, rows, bad, bytes, split_ended }
    }

    /// Everything that was taken is given.
    fn is_empty(&self) -> bool {
        self.giving.is_none() && self.replay.is_none() && self.waiting.is_empty()
    }

    fn has_room(&self) -> bool {
        let bytes = self.waiting_bytes.max(self.unwritten_bytes);
        let entries = self.waiting.len().max(self.unwritten.len());
        let orders = self.orders.as_ref().map_or(ORDERS_MAX, flume::Sender::len);
        self.replay.is_none() && bytes < WAITING_BYTES_MAX && entries < WAITING_MAX && orders < ORDERS_MAX / 2
    }

    /// Takes a batch of the source into the log.
    fn take(&mut self, batch: SourceBatch) -> Result<(), Error> {
        self.inner_ended |= batch.split_ended;
        let entry = Entry { first: self.next, rows: batch.rows, bad: batch.bad, bytes: batch.bytes };
        let counted = self.inner.cut().into_iter().map(|position| position.position).next();
        if counted != Some(Position::Row(entry.end())) {
            return Err(Error::new(Class::Bug, format!("{}: the source counts {counted:?}, its log {}", self.name, entry.end())));
        }
        if entry.records() == 0 {
            return Ok(());
        }
        let closed = || Error::new(Class::Retry, format!("{}: the input log is closed", self.name));
        let orders = self.orders.as_ref().ok_or_else(closed)?;
        self.next = entry.end();
        self.unwritten.push_back((entry.end(), entry.bytes));
        self.unwritten_bytes += entry.bytes;
        self.waiting_bytes += entry.bytes;
        self.waiting.push_back(entry.clone());
        // There is room: it was asked for before the source was.
        orders.try_send(Order::Append(entry)).map_err(|_| closed())
    }

    fn check(&self) -> Result<(), Error> {
        match self.shared.failed.lock().take() {
            Some(error) => Err(Error { message: format!("{}: {}", self.name, error.message), ..error }),
            None => Ok(()),
        }
    }
}

impl Source for LoggedSource {
    fn splits(&self) -> Vec<Split> {
        vec![Split { name: self.split.to_owned(), ended: false, time_max_ms: self.time_max_ms }]
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        for _ in 0..POLLS_MAX {
            self.check()?;
            self.listen();
            let mut until_ns = None;
            let mut pending = true;
            if !self.inner_ended && self.has_room() {
                match self.inner.poll(budget)? {
                    Polled::Batch(batch) => {
                        self.take(batch)?;
                        pending = false;
                        self.listen();
                    }
                    Polled::Pending { until_ns: due } => until_ns = due,
                    Polled::End => self.inner_ended = true,
                }
            }
            if let Some(entry) = self.ready()? {
                let batch = self.give(entry, budget);
                if batch.rows.num_rows() + batch.bad.len() > 0 {
                    return Ok(Polled::Batch(batch));
                }
                continue;
            }
            if self.inner_ended && self.is_empty() {
                return Ok(Polled::End);
            }
            if pending && (self.replay.is_some() || !self.has_room() || self.inner_ended || self.inner.at_end(0)) {
                // Whoever is waited for wakes the chain: the source, the reader or the writer.
                return Ok(Polled::Pending { until_ns });
            }
        }
        self.wake.wake();
        Ok(Polled::Pending { until_ns: None })
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        vec![SplitPosition { ended: self.inner_ended && self.is_empty(), ..self.position(self.given) }]
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    /// Whatever lies before is never read again: the log lets go of it (WAL-2).
    fn passed(&mut self, positions: &[SplitPosition]) {
        let Some(SplitPosition { position: Position::Row(passed), .. }) = positions.iter().find(|p| p.split == self.split) else { return };
        if self.shared.passed.fetch_max(*passed, Ordering::AcqRel) < *passed
            && let Some(orders) = &self.orders
        {
            // A thread that has so much to write looks by itself.
            let _ = orders.try_send(Order::Look);
        }
    }

    fn lag(&self) -> Vec<Option<u64>> {
        let inner = self.inner.lag().first().copied().flatten();
        vec![inner.map(|inner| inner + self.next.saturating_sub(self.given))]
    }

    fn at_end(&self, split: usize) -> bool {
        self.is_empty() && self.inner.at_end(split)
    }

    fn greeting(&self) -> Option<String> {
        self.inner.greeting()
    }

    /// The source first, so that what is durable is confirmed and the rest refused, then the log.
    fn close(&mut self) {
        let Some(orders) = self.orders.take() else { return };
        self.replay = None;
        // What cannot be written now is not waited for: it was not confirmed.
        let (done, flushed) = flume::bounded(1);
        let blocked = self.shared.blocked.load(Ordering::Acquire);
        if !blocked && orders.send_timeout(Order::Flush(done), FLUSH_WAIT).is_ok() {
            dropped_within(&flushed, FLUSH_WAIT);
        }
        self.listen();
        self.inner.close();
        drop(orders);
        if !dropped_within(&self.writer, CLOSE_WAIT) {
            tracing::warn!("{}: the input log did not close in time and is left behind", self.name);
        }
    }
}

impl Drop for LoggedSource {
    fn drop(&mut self) {
        self.close();
    }
}

fn start(thread: &str, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = std::thread::Builder::new().name(thread.to_owned()).spawn(run);
    started.map(drop).map_err(|e| Error::because(Class::Retry, format!("{name}: the thread of its input log does not start"), e))
}

/// Reads what lay in the log at the start.
struct Reader {
    /// The number that the cut goes on from; `None` without a cut: then whatever there is.
    from: Option<u64>,
    schema: SchemaRef,
    name: String,
    place: Place,
    found: Found,
    /// The number of the first record that is taken anew.
    next: u64,
}

impl Reader {
    /// Until everything was read, or nobody listens any more.
    fn run(mut self, entries: &flume::Sender<Result<Entry, Error>>, wake: &dyn Wake) {
        if let Err(error) = self.read(entries, wake) {
            let error = Error { message: format!("{}: {}", self.name, error.message), ..error };
            // Whoever does not listen any more need not know.
            let _ = entries.send(Err(error));
        }
    }

    fn read(&mut self, entries: &flume::Sender<Result<Entry, Error>>, wake: &dyn Wake) -> Result<(), Error> {
        let mut expected = self.from;
        for part in std::mem::take(&mut self.found.parts) {
            let contents = part.read()?;
            if let Some(damage) = contents.damage {
                (self.place.tell)(Level::Error, "wal_damaged", format!("{}: {damage}", self.name));
            }
            for frame in contents.frames {
                let next = expected.unwrap_or_else(|| frame.first());
                if frame.end() <= next {
                    continue;
                }
                self.gap(next, frame.first());
                let entry = frame.entry(&self.schema)?;
                expected = Some(frame.end());
                if entries.send(Ok(entry)).is_err() {
                    return Ok(());
                }
                wake.wake();
            }
        }
        self.gap(expected.unwrap_or(self.next), self.next);
        Ok(())
    }

    fn gap(&self, from: u64, to: u64) {
        if from < to {
            let message = format!("{}: records {from} to {} are not in the input log any more and are lost", self.name, to - 1);
            tracing::warn!("{message}");
            (self.place.tell)(Level::Error, "wal_gap", message);
        }
    }
}

#[cfg(test)]
mod tests;
