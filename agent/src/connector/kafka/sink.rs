//! Rows to a Kafka topic as JSON, at least once: an epoch is flushed when the broker has confirmed
//! every record of it. The producer is idempotent, so its own retries double nothing.
//!
//! A record that is not delivered poisons the epoch (A6): every later call fails, the region goes
//! back to its last cut and sends the rows again. librdkafka tries for `message.timeout.ms` (30 s
//! unless set) before it gives up.

use super::super::Opening;
use super::{Hearing, class_of, config, describe, partitions};
use crate::format::json::JsonEncoder;
use arrow::array::RecordBatch;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_kernel::error::Error;
use weir_kernel::io::{Flush, Pushed, Sink, SinkHandle, Wake};
use weir_planner::connector::KafkaSink as Options;
use weir_planner::error::Class;
use weir_planner::id::EpochId;
use weir_planner::schema::Schema;

/// A Kafka sink task. librdkafka delivers on its own threads.
pub struct KafkaSink {
    producer: Option<ThreadedProducer<Deliveries>>,
    state: Arc<State>,
    topic: String,
    encoder: JsonEncoder,
    key: Option<JsonEncoder>,
    /// Rows of a batch that was found not to fit whole: it is pushed again, and goes on here.
    sent: usize,
    /// Which of the two counters takes what is sent now.
    turn: usize,
    flushing: Option<usize>,
    value: Vec<u8>,
    key_bytes: Vec<u8>,
}

/// What the delivery thread and the chain share.
struct State {
    hearing: Hearing,
    /// Records on their way, for the epoch being filled and the one being flushed.
    outstanding: [AtomicU64; 2],
    /// The chain waits for room.
    full: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<(Class, String)>>,
    wake: Arc<dyn Wake>,
}

impl State {
    fn outstanding(&self, turn: usize) -> Option<&AtomicU64> {
        self.outstanding.get(turn % 2)
    }

    fn fail(&self, class: Class, message: String) {
        self.failure.lock().get_or_insert((class, message));
        self.broken.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), Error> {
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.failure.lock().clone();
        let (class, message) = failure.unwrap_or((Class::Retry, "kafka: a record was not delivered".to_owned()));
        Err(Error::new(class, message))
    }
}

/// The producer's context.
pub struct Deliveries {
    state: Arc<State>,
    topic: String,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.state.hearing.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.state.hearing.note(format!("{} ({reason})", describe(&error)));
        if let KafkaError::Global(RDKafkaErrorCode::Fatal) = error {
            self.state.fail(Class::Retry, format!("topic '{}': the producer gave up: {reason}", self.topic));
            self.state.wake.wake();
        }
    }
}

impl ProducerContext for Deliveries {
    /// Which counter a record belongs to.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, turn: usize) {
        if let Err((error, _)) = result {
            let class = error.rdkafka_error_code().map_or(Class::Retry, class_of);
            let message =
                format!("topic '{}': a record was not delivered: {}{}", self.topic, describe(error), self.state.hearing.trouble());
            self.state.fail(class, message);
        }
        let left = self.state.outstanding(turn).map_or(0, |count| count.fetch_sub(1, Ordering::SeqCst).saturating_sub(1));
        if left == 0 || result.is_err() || self.state.full.swap(false, Ordering::SeqCst) {
            self.state.wake.wake();
        }
    }
}

impl KafkaSink {
    /// Connects and looks for the topic.
    ///
    /// Errors: `Retry` when no broker answers in time; `User` when the topic does not exist, or for
    /// a key column that is not written.
    pub fn open(options: &Options, input: &Schema, opening: &Opening) -> Result<Self, Error> {
        let name = format!("sink '{}' of job '{}'", opening.operator, opening.job);
        let named = |e: Error| Error { message: format!("{name}: {}", e.message), ..e };
        let mut config = config(&options.brokers, &options.properties).map_err(named)?;
        config.set("enable.idempotence", "true");
        let defaults = [("message.timeout.ms", "30000"), ("linger.ms", "5"), ("queue.buffering.max.kbytes", "65536")];
        for (setting, value) in defaults {
            if !options.properties.contains_key(setting) {
                config.set(setting, value);
            }
        }
        let state = Arc::new(State {
            hearing: Hearing::new(opening.secrets.clone()),
            outstanding: [AtomicU64::new(0), AtomicU64::new(0)],
            full: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failure: Mutex::new(None),
            wake: opening.wake.clone(),
        });
        let context = Deliveries { state: state.clone(), topic: options.topic.clone() };
        let producer: ThreadedProducer<Deliveries> =
            config.create_with_context(context).map_err(|e| named(Error::new(Class::User, describe(&e))))?;
        partitions(producer.client(), &state.hearing, &options.brokers, &options.topic).map_err(named)?;
        let key = if options.key.is_empty() { None } else { Some(JsonEncoder::of(input, &options.key).map_err(named)?) };
        Ok(KafkaSink {
            producer: Some(producer),
            state,
            topic: options.topic.clone(),
            encoder: JsonEncoder::new(input).map_err(named)?,
            key,
            sent: 0,
            turn: 0,
            flushing: None,
            value: Vec::new(),
            key_bytes: Vec::new(),
        })
    }
}

impl Sink for KafkaSink {
    fn push(&mut self, rows: &RecordBatch) -> Result<Pushed, Error> {
        self.state.check()?;
        let Some(producer) = &self.producer else { return Err(Error::new(Class::Bug, "the kafka sink is closed")) };
        let values = self.encoder.rows(rows)?;
        let keys = self.key.as_ref().map(|key| key.rows(rows)).transpose()?;
        for row in self.sent..rows.num_rows() {
            self.value.clear();
            values.write(row, &mut self.value);
            let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&self.topic, self.turn).payload(&self.value);
            if let Some(keys) = &keys {
                self.key_bytes.clear();
                keys.write(row, &mut self.key_bytes);
                record = record.key(&self.key_bytes);
            }
            let count = self.state.outstanding(self.turn);
            // Before sending, since the confirmation may come before the call returns.
            if let Some(count) = count {
                count.fetch_add(1, Ordering::AcqRel);
            }
            let Err((error, _)) = producer.send(record) else { continue };
            if let Some(count) = count {
                count.fetch_sub(1, Ordering::AcqRel);
            }
            if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) {
                self.sent = row;
                self.state.full.store(true, Ordering::SeqCst);
                // A confirmation from here on sees the mark and wakes the chain. The last one may have come
                // before it, while this row was still counted: then nobody else would.
                let waiting = |turn: usize| self.state.outstanding(turn).is_some_and(|count| count.load(Ordering::SeqCst) > 0);
                if !waiting(0) && !waiting(1) && self.state.full.swap(false, Ordering::SeqCst) {
                    self.state.wake.wake();
                }
                return Ok(Pushed::Full);
            }
            let class = error.rdkafka_error_code().map_or(Class::Retry, class_of);
            self.state.fail(class, format!("topic '{}': row {row} of a batch cannot be sent: {}", self.topic, describe(&error)));
            self.state.check()?;
        }
        self.sent = 0;
        Ok(Pushed::Taken)
    }

    fn begin_flush(&mut self, _epoch: EpochId) -> Result<(), Error> {
        self.state.check()?;
        if self.flushing.is_some() {
            return Err(Error::new(Class::Bug, format!("a flush of topic '{}' began while another was open", self.topic)));
        }
        // What is sent from here on counts for the next epoch.
        self.flushing = Some(self.turn);
        self.turn = (self.turn + 1) % 2;
        Ok(())
    }

    fn poll_flush(&mut self) -> Result<Flush, Error> {
        self.state.check()?;
        let left = self.flushing.and_then(|turn| self.state.outstanding(turn)).map_or(0, |count| count.load(Ordering::Acquire));
        if left > 0 {
            return Ok(Flush::Pending);
        }
        // A failed delivery marks the failure before it counts down.
        self.state.check()?;
        self.flushing = None;
        Ok(Flush::Done(SinkHandle::None))
    }

    fn decided(&mut self, _epoch: EpochId) {}

    fn close(&mut self) {
        if let Some(producer) = self.producer.take() {
            // What was not flushed will be sent again after a restart.
            producer.purge(PurgeConfig::default().queue().inflight());
        }
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.close();
    }
}
