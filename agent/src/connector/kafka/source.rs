//! A Kafka source task: one split for each partition that it reads, each with its own next offset.
//!
//! Partitions are assigned, never subscribed to: positions come from the job's own decisions, and
//! group offsets are committed behind them for people to look at (C39, CKP-5). One consumer thread
//! for each topic. A record without a value is NULL in raw format and a bad record in others.

use super::super::{Opening, Reading, at, recorded};
use super::reader::{Event, Fetched, Paused, Reader, Record, Share, out_of_range};
use super::{Consumer, ConsumerHearing, Hearing, OPEN_WAIT, config, describe, partitions};
use crate::format::{Decoder, decoder_of};
use crate::secret::Secrets;
use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_kernel::error::Error;
use weir_kernel::io::{Budget, Polled, Source, SourceBatch, Split};
use weir_planner::connector::{KafkaSource as Options, Position, ScanStart, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;

/// Batches between the consumer threads and the chain.
const EVENTS_MAX: usize = 16;
/// Commit requests that wait for a consumer thread; older ones are worth nothing.
const COMMITS_MAX: usize = 4;
/// New partitions are looked for this often, unless `topic.metadata.refresh.interval.ms` says otherwise.
const DISCOVERY: Duration = Duration::from_secs(30);
/// How long a consumer may take to close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// A Kafka source task.
pub struct KafkaSource {
    reading: Reading,
    decoder: Box<dyn Decoder>,
    parts: Vec<Part>,
    topics: Vec<Topic>,
    events: flume::Receiver<Event>,
    /// What is being decoded: the part, the records, and how many are done.
    current: Option<(usize, Fetched, usize)>,
    bounded: bool,
    stop: Arc<AtomicBool>,
}

/// A partition.
struct Part {
    split: Split,
    topic: usize,
    partition: i32,
    next: i64,
    ended: bool,
    caught_up: bool,
    /// Bounded: the first offset that is not read any more, and whether a fetch has confirmed it.
    end: i64,
    end_confirmed: bool,
    /// Too far ahead (EV-9): its thread fetches no more of it.
    held: bool,
    /// What had been fetched when it was held, oldest first, and how many records of it are done;
    /// `None` is the end of the partition. No more than the events and the thread have room for.
    aside: VecDeque<Option<(Fetched, usize)>>,
}

impl Part {
    /// One that is read from `next` on, without an end.
    fn new(split: Split, topic: usize, partition: i32, next: i64) -> Self {
        Part {
            split,
            topic,
            partition,
            next,
            ended: false,
            caught_up: false,
            end: i64::MAX,
            end_confirmed: false,
            held: false,
            aside: VecDeque::new(),
        }
    }

    /// What comes of it now has to wait for its turn.
    fn waits(&self) -> bool {
        self.held || !self.aside.is_empty()
    }
}

struct Topic {
    name: String,
    hearing: Arc<Hearing>,
    commits: flume::Sender<Vec<(i32, i64)>>,
    paused: Arc<Paused>,
    thread: Option<JoinHandle<()>>,
}

impl KafkaSource {
    /// Connects and assigns this task's partitions at their positions.
    ///
    /// Errors: `Retry` when no broker answers in time; `User` when a topic does not exist, or an
    /// offset to go on from is no longer there.
    pub fn open(options: &Options, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<Self, Error> {
        let reading = Reading::new(work, opening);
        let decoder = decoder_of(work)?;
        let (sender, events) = flume::bounded(EVENTS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let mut source =
            KafkaSource { reading, decoder, parts: Vec::new(), topics: Vec::new(), events, current: None, bounded: options.bounded, stop };
        let mut names = options.topics.clone();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(Error::new(Class::User, format!("{}: 'topics' needs at least one topic", source.reading.name)));
        }
        for (ordinal, topic) in names.into_iter().enumerate() {
            // What was started for an earlier topic ends when `source` is dropped (KER-5).
            let opened = source.open_topic(options, ordinal, topic, positions, opening, &sender);
            opened.map_err(|e| match e.message.starts_with("source ") {
                true => e,
                false => Error { message: format!("{}: {}", source.reading.name, e.message), ..e },
            })?;
        }
        Ok(source)
    }

    fn open_topic(
        &mut self,
        options: &Options,
        ordinal: usize,
        topic: String,
        positions: &[SplitPosition],
        opening: &Opening,
        events: &flume::Sender<Event>,
    ) -> Result<(), Error> {
        let group = options.consumer_group.clone().unwrap_or_else(|| format!("weir.{}.{}", opening.job, opening.operator));
        let consumer = connect(options, &group, &opening.secrets)?;
        let hearing = consumer.context().0.clone();
        let share = Share { subtask: opening.subtask, parallelism: opening.parallelism };
        let all = partitions(consumer.client(), &hearing, &options.brokers, &topic)?;
        let mut next = BTreeMap::new();
        let mut list = TopicPartitionList::new();
        for partition in all.into_iter().filter(|p| share.has(ordinal, *p)) {
            let name = format!("{topic}/{partition}");
            let known = recorded(positions, &name);
            let start = Start { options, consumer: &consumer, topic: &topic, partition };
            let (first, high) = start.find(known, positions.is_empty() || opening.undecided, &self.reading.name)?;
            let ended = known.is_some_and(|known| known.ended) && options.bounded;
            if !ended {
                list.add_partition_offset(&topic, partition, Offset::Offset(first)).map_err(|e| Error::new(Class::Bug, describe(&e)))?;
                next.insert(partition, first);
            }
            let split = Split { name, ended, time_max_ms: known.and_then(|known| known.time_max_ms) };
            let part = Part { ended, end: high, ..Part::new(split, ordinal, partition, first) };
            self.parts.push(part);
        }
        consumer.assign(&list).map_err(|e| Error::new(Class::Retry, format!("topic '{topic}' cannot be read: {}", describe(&e))))?;
        let pace = options.properties.get("topic.metadata.refresh.interval.ms").and_then(|ms| ms.parse().ok()).filter(|ms| *ms > 0);
        let (commits, inbox) = flume::bounded(COMMITS_MAX);
        let paused = Arc::new(Paused::default());
        let reader = Reader {
            consumer,
            name: self.reading.name.clone(),
            topic: topic.clone(),
            ordinal,
            next,
            discovery: (!options.bounded).then(|| pace.map_or(DISCOVERY, Duration::from_millis)),
            share,
            events: events.clone(),
            commits: inbox,
            paused: paused.clone(),
            resting: BTreeSet::new(),
            stop: self.stop.clone(),
            wake: opening.wake.clone(),
            held: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("kafka-{topic}-{}", opening.subtask))
            .spawn(move || reader.run())
            .map_err(|e| Error::because(Class::Retry, "the kafka consumer's thread cannot be started", e))?;
        self.topics.push(Topic { name: topic, hearing, commits, paused, thread: Some(thread) });
        Ok(())
    }

    fn part_of(&self, topic: usize, partition: i32) -> Option<usize> {
        self.parts.iter().position(|part| part.topic == topic && part.partition == partition)
    }

    /// The end of a bounded partition: the broker's answer at the start, or, since some brokers
    /// answer that too low, what the first fetches said, if that is more.
    fn confirm_end(&mut self, index: usize) {
        let Some(part) = self.parts.get_mut(index) else { return };
        if !self.bounded || part.end_confirmed {
            return;
        }
        if let Some(high) = self.topics.get(part.topic).and_then(|topic| topic.hearing.high(&topic.name, part.partition)) {
            part.end = part.end.max(high);
            part.end_confirmed = true;
        }
    }

    /// Decodes what fits the budget of the records at hand.
    fn decode(&mut self, index: usize, fetched: Fetched, done: usize, budget: Budget) -> Result<Polled, Error> {
        self.confirm_end(index);
        let Some(part) = self.parts.get_mut(index) else {
            return Err(Error::new(Class::Bug, "records came from a partition that is not read"));
        };
        part.caught_up = false;
        let mut start = done.checked_sub(1).and_then(|i| fetched.records.get(i)).map_or(0, |record| record.end);
        let (mut taken, mut bytes, mut next, mut ended) = (done, 0, part.next, part.ended);
        for &Record { offset, end, absent } in fetched.records.iter().skip(done) {
            let size = end.saturating_sub(start);
            if self.decoder.pending() >= budget.rows.max(1) || (bytes > 0 && bytes + size > budget.bytes) {
                break;
            }
            taken += 1;
            if ended || (self.bounded && part.end_confirmed && offset >= part.end) {
                ended = true;
                continue;
            }
            let at = u64::try_from(offset).unwrap_or(0);
            match fetched.bytes.get(start..end) {
                Some(payload) if !absent => self.decoder.push(payload, at),
                _ => self.decoder.push_absent(at),
            }
            (start, next) = (end, offset.saturating_add(1));
            bytes += size;
        }
        ended |= self.bounded && part.end_confirmed && next >= part.end;
        let (rows, bad) = self.reading.settle(self.decoder.finish()?, &part.split.name, "offset")?;
        let split_ended = ended && !part.ended;
        (part.next, part.ended) = (next, ended);
        if taken < fetched.records.len() {
            self.current = Some((index, fetched, taken));
        }
        Ok(Polled::Batch(SourceBatch { split: index, rows, bad, bytes, split_ended }))
    }

    /// The next of what was fetched before its partition was held, now that it is not.
    fn set_aside(&mut self) -> Option<(usize, Option<(Fetched, usize)>)> {
        let free = self.parts.iter_mut().enumerate().filter(|(_, part)| !part.held);
        free.into_iter().find_map(|(index, part)| Some((index, part.aside.pop_front()?)))
    }

    /// A partition was given to its end; a bounded one is told to have ended.
    fn at_end_of(&mut self, index: usize) -> Result<Option<Polled>, Error> {
        let Some(part) = self.parts.get_mut(index) else { return Ok(None) };
        part.caught_up = true;
        match self.bounded && !part.ended {
            true => self.end(index).map(Some),
            false => Ok(None),
        }
    }

    /// No more rows of this split: told with an empty batch.
    fn end(&mut self, index: usize) -> Result<Polled, Error> {
        let rows = self.decoder.finish()?.rows;
        if let Some(part) = self.parts.get_mut(index) {
            part.ended = true;
        }
        Ok(Polled::Batch(SourceBatch { split: index, rows, bad: Vec::new(), bytes: 0, split_ended: true }))
    }
}

impl Source for KafkaSource {
    fn splits(&self) -> Vec<Split> {
        self.parts.iter().map(|part| part.split.clone()).collect()
    }

    fn poll(&mut self, budget: Budget) -> Result<Polled, Error> {
        if let Some((index, fetched, done)) = self.current.take() {
            return self.decode(index, fetched, done, budget);
        }
        while let Some((index, event)) = self.set_aside() {
            match event {
                Some((fetched, done)) => return self.decode(index, fetched, done, budget),
                None => {
                    if let Some(polled) = self.at_end_of(index)? {
                        return Ok(polled);
                    }
                }
            }
        }
        if self.bounded && self.parts.iter().all(|part| part.ended) {
            return Ok(Polled::End);
        }
        loop {
            match self.events.try_recv() {
                Ok(Event::Records { topic, partition, fetched }) => {
                    let Some(index) = self.part_of(topic, partition) else { continue };
                    if let Some(part) = self.parts.get_mut(index) {
                        if part.ended {
                            continue;
                        }
                        if part.waits() {
                            part.aside.push_back(Some((fetched, 0)));
                            continue;
                        }
                    }
                    return self.decode(index, fetched, 0, budget);
                }
                Ok(Event::End { topic, partition }) => {
                    let Some(index) = self.part_of(topic, partition) else { continue };
                    if let Some(part) = self.parts.get_mut(index).filter(|part| part.waits()) {
                        part.aside.push_back(None);
                    } else if let Some(polled) = self.at_end_of(index)? {
                        return Ok(polled);
                    }
                }
                Ok(Event::Found { topic, partition, next }) => {
                    let Some(name) = self.topics.get(topic).map(|topic| format!("{}/{partition}", topic.name)) else { continue };
                    let split = Split { name, ended: false, time_max_ms: None };
                    self.parts.push(Part::new(split, topic, partition, next));
                }
                Ok(Event::Failed(error)) => return Err(error),
                Err(flume::TryRecvError::Empty) => return Ok(Polled::Pending { until_ns: None }),
                Err(flume::TryRecvError::Disconnected) => {
                    return Err(Error::new(Class::Bug, format!("{}: the consumer threads have ended", self.reading.name)));
                }
            }
        }
    }

    fn hold(&mut self, held: &[bool]) {
        for (part, held) in self.parts.iter_mut().zip(held) {
            if std::mem::replace(&mut part.held, *held) != *held
                && let Some(topic) = self.topics.get(part.topic)
            {
                topic.paused.set(part.partition, *held);
            }
        }
        if let Some((index, fetched, done)) = self.current.take() {
            match self.parts.get_mut(index).filter(|part| part.held) {
                Some(part) => part.aside.push_front(Some((fetched, done))),
                None => self.current = Some((index, fetched, done)),
            }
        }
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        self.parts.iter().map(|part| at(&part.split.name, Position::Offset(part.next), part.ended)).collect()
    }

    fn decided(&mut self, positions: &[SplitPosition]) {
        for (ordinal, topic) in self.topics.iter().enumerate() {
            let mine = self.parts.iter().filter(|part| part.topic == ordinal);
            let offset = |part: &Part| match recorded(positions, &part.split.name) {
                Some(SplitPosition { position: Position::Offset(next), .. }) => Some((part.partition, *next)),
                _ => None,
            };
            let offsets: Vec<(i32, i64)> = mine.filter_map(offset).collect();
            if !offsets.is_empty() {
                // When the thread is behind, a later decision says the same and more.
                let _ = topic.commits.try_send(offsets);
            }
        }
    }

    fn lag(&self) -> Vec<Option<u64>> {
        let lag = |part: &Part| {
            if part.ended || part.caught_up {
                return Some(0);
            }
            let topic = self.topics.get(part.topic)?;
            let high = topic.hearing.high(&topic.name, part.partition)?;
            u64::try_from(high.saturating_sub(part.next)).ok()
        };
        self.parts.iter().map(lag).collect()
    }

    fn at_end(&self, split: usize) -> bool {
        self.parts.get(split).is_none_or(|part| part.ended || (part.caught_up && part.aside.is_empty()))
    }

    fn close(&mut self) {
        self.stop.store(true, Ordering::Release);
        let give_up = Instant::now() + CLOSE_WAIT;
        for topic in &mut self.topics {
            let Some(thread) = topic.thread.take() else { continue };
            while !thread.is_finished() && Instant::now() < give_up {
                // Makes room, so that a thread that waits for it sees the stop.
                let _ = self.events.recv_timeout(Duration::from_millis(5));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!(topic = topic.name, "kafka consumer did not close in time and is left behind");
            }
        }
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.close();
    }
}

/// A consumer that is assigned partitions and never jumps.
///
/// Errors: `User` for a setting that is not known or has a bad value.
pub(super) fn connect(options: &Options, group: &str, secrets: &Arc<Secrets>) -> Result<Consumer, Error> {
    let mut config = config(&options.brokers, &options.properties)?;
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // An offset that is gone must be an error, never a jump.
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("statistics.interval.ms", "1000");
    for (name, value) in [("fetch.wait.max.ms", "100"), ("fetch.queue.backoff.ms", "10"), ("queued.max.messages.kbytes", "32768")] {
        if !options.properties.contains_key(name) {
            config.set(name, value);
        }
    }
    config.create_with_context(ConsumerHearing(Arc::new(Hearing::new(secrets.clone())))).map_err(|e| Error::new(Class::User, describe(&e)))
}

/// Where to begin with a partition.
pub(super) struct Start<'a> {
    pub options: &'a Options,
    pub consumer: &'a Consumer,
    pub topic: &'a str,
    pub partition: i32,
}

impl Start<'_> {
    /// The first offset to read and the partition's end, as the broker tells it. Every beginning is
    /// made a number here, so that the first cut already holds it.
    pub fn find(&self, known: Option<&SplitPosition>, first_start: bool, name: &str) -> Result<(i64, i64), Error> {
        let Start { options, consumer, topic, partition } = self;
        let away = |e| {
            Error::new(
                Class::Retry,
                format!("broker {} does not tell the offsets of '{topic}/{partition}': {}", options.brokers.join(", "), describe(&e)),
            )
        };
        let (low, high) = consumer.fetch_watermarks(topic, *partition, OPEN_WAIT).map_err(away)?;
        if let Some(known) = known {
            return match known.position {
                Position::Offset(next) if next < low => Err(out_of_range(name, topic, *partition, next, low, high)),
                Position::Offset(next) => Ok((next, high)),
                Position::Row(_) | Position::Byte { .. } => {
                    Err(Error::new(Class::Corrupt, format!("{name}: the recorded position of split '{topic}/{partition}' is no offset")))
                }
            };
        }
        if !first_start {
            // It appeared while the job was away: nothing of it has been read (CKP-10).
            return Ok((low, high));
        }
        let mut list = TopicPartitionList::new();
        let offset = |list: &TopicPartitionList| match list.find_partition(topic, *partition).map(|found| found.offset()) {
            Some(Offset::Offset(offset)) => Some(offset),
            _ => None,
        };
        let first = match options.scan_start {
            ScanStart::Earliest => low,
            ScanStart::Latest => high,
            ScanStart::Group => {
                list.add_partition(topic, *partition);
                let committed = consumer.committed_offsets(list, OPEN_WAIT).map_err(away)?;
                offset(&committed).unwrap_or(low).max(low)
            }
            ScanStart::Timestamp => {
                let ms = options
                    .scan_timestamp_ms
                    .ok_or_else(|| Error::new(Class::User, format!("{name}: scan.start = 'timestamp' needs scan.timestamp_ms")))?;
                list.add_partition_offset(topic, *partition, Offset::Offset(ms)).map_err(away)?;
                let found = consumer.offsets_for_times(list, OPEN_WAIT).map_err(away)?;
                offset(&found).unwrap_or(high).max(low)
            }
        };
        Ok((first, high))
    }
}
