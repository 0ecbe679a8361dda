//! The thread of one consumer: copies payloads into batches and passes them over a bounded
//! channel. It never decodes; the chain does, in its own step (CON-7).

use super::{Consumer, describe};
use parking_lot::Mutex;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_kernel::error::Error;
use weir_kernel::io::Wake;
use weir_planner::error::Class;

/// A batch goes when it holds this much.
const BATCH_BYTES: usize = 256 << 10;
/// A batch goes when it holds this many records.
const BATCH_RECORDS: usize = 4096;
/// All batches go when they hold this much together.
const HELD_BYTES_MAX: usize = 2 << 20;
/// The longest wait for a record before other duties are looked at.
const POLL_WAIT: Duration = Duration::from_millis(100);
/// How long the broker may take for a question between two polls.
const QUESTION_WAIT: Duration = Duration::from_secs(5);

/// Records of one partition, in order, in one buffer.
#[derive(Debug, Default)]
pub struct Fetched {
    pub bytes: Vec<u8>,
    pub records: Vec<Record>,
}

/// One record: its payload ends at `end` in the buffer and starts where the one before ends.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub offset: i64,
    pub end: usize,
    /// A tombstone.
    pub absent: bool,
}

/// What the thread tells the source.
#[derive(Debug)]
pub enum Event {
    Records {
        topic: usize,
        partition: i32,
        fetched: Fetched,
    },
    /// Everything up to the partition's end, as fetched, has been passed on.
    End {
        topic: usize,
        partition: i32,
    },
    /// A partition that appeared later, to be read from `next` on.
    Found {
        topic: usize,
        partition: i32,
        next: i64,
    },
    Failed(Error),
}

/// The thread's belongings.
pub struct Reader {
    pub consumer: Consumer,
    /// `source 'bids' of job 'x'`.
    pub name: String,
    pub topic: String,
    /// Place of the topic among the source's.
    pub ordinal: usize,
    /// Partitions read, with the next offset of each.
    pub next: BTreeMap<i32, i64>,
    /// How often to look for new partitions; `None` for a bounded source.
    pub discovery: Option<Duration>,
    /// Which of all partitions this task reads.
    pub share: Share,
    pub events: flume::Sender<Event>,
    pub commits: flume::Receiver<Vec<(i32, i64)>>,
    pub stop: Arc<AtomicBool>,
    pub wake: Arc<dyn Wake>,
    pub held: BTreeMap<i32, Fetched>,
    /// What is not to be fetched for now.
    pub paused: Arc<Paused>,
    /// What the consumer has been told of that.
    pub resting: BTreeSet<i32>,
}

/// Partitions that are not to be fetched for now (EV-9): set by the source, looked at by the thread.
#[derive(Default)]
pub struct Paused {
    partitions: Mutex<BTreeSet<i32>>,
    changed: AtomicBool,
}

impl Paused {
    /// Pauses a partition, or lets it go on.
    pub fn set(&self, partition: i32, paused: bool) {
        let mut partitions = self.partitions.lock();
        match paused {
            true => partitions.insert(partition),
            false => partitions.remove(&partition),
        };
        self.changed.store(true, Ordering::Release);
    }

    /// All of them, when they changed since the last look.
    fn look(&self) -> Option<BTreeSet<i32>> {
        self.changed.swap(false, Ordering::AcqRel).then(|| self.partitions.lock().clone())
    }
}

/// Deals partitions to tasks. A partition's task depends on its topic and number alone, so it stays
/// when partitions are added.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub subtask: u32,
    pub parallelism: u32,
}

impl Share {
    pub fn has(self, topic: usize, partition: i32) -> bool {
        let number = topic as u64 + u64::from(partition.unsigned_abs());
        number % u64::from(self.parallelism.max(1)) == u64::from(self.subtask)
    }
}

/// The source has gone: end the thread.
struct Gone;

impl Reader {
    /// Runs until stopped, failed, or left alone.
    pub fn run(mut self) {
        let mut looked = Instant::now();
        let mut held_bytes = 0;
        while !self.stop.load(Ordering::Acquire) {
            self.commit();
            self.pause();
            if self.discovery.is_some_and(|pace| looked.elapsed() >= pace) {
                looked = Instant::now();
                if self.discover().is_err() {
                    return;
                }
            }
            let wait = if held_bytes > 0 { Duration::ZERO } else { POLL_WAIT };
            let outcome = match self.consumer.poll(wait) {
                None => {
                    held_bytes = 0;
                    self.pass_all()
                }
                // After a pause the client may begin again with what it has given already.
                Some(Ok(message)) if self.next.get(&message.partition()).is_some_and(|next| message.offset() < *next) => Ok(()),
                Some(Ok(message)) => {
                    let (partition, size, full) = hold(&mut self.held, &mut self.next, &message);
                    drop(message);
                    held_bytes += size;
                    if held_bytes >= HELD_BYTES_MAX {
                        held_bytes = 0;
                        self.pass_all()
                    } else if full {
                        self.pass(partition).map(|passed| held_bytes = held_bytes.saturating_sub(passed))
                    } else {
                        Ok(())
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    let event = Event::End { topic: self.ordinal, partition };
                    self.pass(partition).and_then(|passed| {
                        held_bytes = held_bytes.saturating_sub(passed);
                        self.send(event)
                    })
                }
                Some(Err(error)) => self.trouble(&error),
            };
            if outcome.is_err() {
                return;
            }
        }
    }

    /// Waits for room, in short turns so that a stop is seen.
    fn send(&self, event: Event) -> Result<(), Gone> {
        let mut event = event;
        loop {
            match self.events.send_timeout(event, POLL_WAIT) {
                Ok(()) => {
                    self.wake.wake();
                    return Ok(());
                }
                Err(flume::SendTimeoutError::Timeout(back)) if !self.stop.load(Ordering::Acquire) => event = back,
                Err(_) => return Err(Gone),
            }
        }
    }

    fn pass(&mut self, partition: i32) -> Result<usize, Gone> {
        let Some(fetched) = self.held.remove(&partition) else { return Ok(0) };
        let passed = weight(&fetched);
        self.send(Event::Records { topic: self.ordinal, partition, fetched })?;
        Ok(passed)
    }

    fn pass_all(&mut self) -> Result<(), Gone> {
        while let Some((partition, fetched)) = self.held.pop_first() {
            self.send(Event::Records { topic: self.ordinal, partition, fetched })?;
        }
        Ok(())
    }

    /// Group offsets inform people and tools; they are never waited for.
    fn commit(&self) {
        // Only the newest matters.
        let Some(offsets) = self.commits.try_iter().last() else { return };
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            if let Err(error) = list.add_partition_offset(&self.topic, partition, Offset::Offset(offset)) {
                tracing::debug!(error = describe(&error), "a group offset cannot be committed");
            }
        }
        if list.count() > 0
            && let Err(error) = self.consumer.commit(&list, CommitMode::Async)
        {
            tracing::debug!(error = describe(&error), "kafka group offsets were not committed");
        }
    }

    /// Tells the consumer what to fetch no more of, and what again.
    fn pause(&mut self) {
        let Some(wanted) = self.paused.look() else { return };
        let list = |partitions: Vec<&i32>| {
            let mut list = TopicPartitionList::new();
            for partition in partitions {
                list.add_partition(&self.topic, *partition);
            }
            list
        };
        let rests = list(wanted.difference(&self.resting).collect());
        let goes_on = list(self.resting.difference(&wanted).collect());
        let told = self.consumer.pause(&rests).and_then(|()| self.consumer.resume(&goes_on));
        if let Err(error) = told {
            // The source keeps what comes of them aside; it only takes more room.
            tracing::debug!(topic = self.topic, error = describe(&error), "kafka partitions were not paused or resumed");
        }
        self.resting = wanted;
    }

    /// Takes in partitions that appeared since: they are read from their beginning (C37).
    fn discover(&mut self) -> Result<(), Gone> {
        let Ok(metadata) = self.consumer.fetch_metadata(Some(&self.topic), QUESTION_WAIT) else { return Ok(()) };
        let all = metadata.topics().iter().filter(|topic| topic.name() == self.topic).flat_map(|topic| topic.partitions());
        let new: Vec<i32> = all.map(|p| p.id()).filter(|p| self.share.has(self.ordinal, *p) && !self.next.contains_key(p)).collect();
        let mut list = TopicPartitionList::new();
        for partition in new {
            // Not yet ready: found again at the next look.
            let Ok((low, _)) = self.consumer.fetch_watermarks(&self.topic, partition, QUESTION_WAIT) else { continue };
            if list.add_partition_offset(&self.topic, partition, Offset::Offset(low)).is_err() {
                continue;
            }
            tracing::info!(topic = self.topic, partition, "kafka partition discovered");
            self.next.insert(partition, low);
            self.send(Event::Found { topic: self.ordinal, partition, next: low })?;
        }
        if list.count() > 0
            && let Err(error) = self.consumer.incremental_assign(&list)
        {
            let message = format!("{}: new partitions of topic '{}' cannot be read: {}", self.name, self.topic, describe(&error));
            self.send(Event::Failed(Error::new(Class::Retry, message)))?;
            return Err(Gone);
        }
        Ok(())
    }

    /// What librdkafka reports. It reconnects by itself, with backoff; only what it cannot mend ends the task.
    fn trouble(&self, error: &KafkaError) -> Result<(), Gone> {
        let text = describe(error);
        self.consumer.context().0.note(text.clone());
        let fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        let failure = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => self.gap(),
            Some(code) if super::class_of(code) == Class::User => {
                Error::new(Class::User, format!("{}: topic '{}': {text}", self.name, self.topic))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition) => {
                Error::new(Class::Retry, format!("{}: topic '{}' has gone: {text}", self.name, self.topic))
            }
            _ if fatal => Error::new(Class::Retry, format!("{}: topic '{}': {text}", self.name, self.topic)),
            _ => {
                tracing::debug!(topic = self.topic, error = text, "kafka consumer");
                return Ok(());
            }
        };
        self.send(Event::Failed(failure))?;
        Err(Gone)
    }

    /// Which offset the broker does not have: librdkafka does not say, so the ends are asked for.
    fn gap(&self) -> Error {
        for (&partition, &next) in &self.next {
            let Ok((low, high)) = self.consumer.fetch_watermarks(&self.topic, partition, QUESTION_WAIT) else { continue };
            if next < low || next > high {
                return out_of_range(&self.name, &self.topic, partition, next, low, high);
            }
        }
        Error::new(Class::Retry, format!("{}: topic '{}': the broker does not have an offset that is to be read", self.name, self.topic))
    }
}

/// Names the gap and the way out (C41): rows are never left out in silence.
pub fn out_of_range(name: &str, topic: &str, partition: i32, next: i64, low: i64, high: i64) -> Error {
    let what = if next < low {
        format!("offsets {next} to {} are gone from the broker ({} records: its retention was shorter than the pause)", low - 1, low - next)
    } else {
        format!("offset {next} lies beyond the broker's end {high}: the topic was made anew, or lost records")
    };
    let message = format!("{name}, split '{topic}/{partition}': {what}; to go on without them drop the job and create it again");
    Error::new(Class::User, message)
}

/// Copies a record into its partition's batch: the partition, the record's weight, and whether the batch is full.
fn hold(held: &mut BTreeMap<i32, Fetched>, next: &mut BTreeMap<i32, i64>, message: &BorrowedMessage<'_>) -> (i32, usize, bool) {
    let partition = message.partition();
    let fetched = held.entry(partition).or_default();
    let payload = message.payload();
    fetched.bytes.extend_from_slice(payload.unwrap_or_default());
    fetched.records.push(Record { offset: message.offset(), end: fetched.bytes.len(), absent: payload.is_none() });
    next.insert(partition, message.offset().saturating_add(1));
    let size = payload.map_or(0, <[u8]>::len) + size_of::<Record>();
    (partition, size, fetched.bytes.len() >= BATCH_BYTES || fetched.records.len() >= BATCH_RECORDS)
}

fn weight(fetched: &Fetched) -> usize {
    fetched.bytes.len() + fetched.records.len() * size_of::<Record>()
}
