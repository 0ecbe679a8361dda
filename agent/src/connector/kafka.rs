//! Kafka topics, in and out: what both directions share of the client.

mod reader;
pub mod sample;
pub mod sink;
pub mod source;

use crate::secret::Secrets;
use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_kernel::error::Error;
use weir_planner::error::Class;
use weir_planner::secret::refers;

/// How long a broker may take to answer when a connector opens.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// How long a topic may take to appear: a broker that makes topics by itself needs a moment.
const TOPIC_WAIT: Duration = Duration::from_secs(2);
/// Settings that Weir's promises rest on, and what to use instead where there is something.
const OWN_SETTINGS: [(&str, &str); 13] = [
    ("bootstrap.servers", "'brokers'"),
    ("metadata.broker.list", "'brokers'"),
    ("group.id", "'consumer_group'"),
    ("auto.offset.reset", "'scan.start'"),
    ("enable.auto.commit", ""),
    ("enable.auto.offset.store", ""),
    ("enable.partition.eof", ""),
    ("statistics.interval.ms", ""),
    ("enable.idempotence", ""),
    ("enable.gapless.guarantee", ""),
    ("transactional.id", ""),
    ("acks", ""),
    ("request.required.acks", ""),
];

/// The dry run of a client: its options and properties, without a connection.
///
/// Errors: `User` for a missing broker, a property that is not known, has a bad value, or is Weir's own.
///
/// A property whose value is kept elsewhere is looked at when the connector opens.
pub fn check(brokers: &[String], properties: &BTreeMap<String, String>) -> Result<(), Error> {
    let known = properties.iter().filter(|(_, value)| !refers(value)).map(|(name, value)| (name.clone(), value.clone())).collect();
    config(brokers, &known)?.create_native_config().map(|_| ()).map_err(|e| Error::new(Class::User, describe(&e)))
}

/// What both directions set before their own settings.
fn config(brokers: &[String], properties: &BTreeMap<String, String>) -> Result<ClientConfig, Error> {
    if brokers.is_empty() || brokers.iter().any(|broker| broker.trim().is_empty()) {
        return Err(Error::new(Class::User, "kafka: 'brokers' needs at least one host:port"));
    }
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers.join(","));
    config.set("client.id", "weir");
    config.set("reconnect.backoff.max.ms", "5000");
    config.set_log_level(RDKafkaLogLevel::Warning);
    for (name, value) in properties {
        if let Some((_, instead)) = OWN_SETTINGS.iter().find(|(own, _)| own == name) {
            let way_out = if instead.is_empty() { "leave it out".to_owned() } else { format!("use {instead}") };
            return Err(Error::new(Class::User, format!("kafka: property '{name}' is set by weir itself; {way_out}")));
        }
        config.set(name, value);
    }
    Ok(config)
}

/// An error as people read it. A bad setting is told without its value, which may be a secret (CON-3).
fn describe(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, name, value) => {
            let reason = if value.is_empty() { reason.clone() } else { reason.replace(value.as_str(), "…") };
            format!("kafka: property '{name}': {reason}")
        }
        other => match other.rdkafka_error_code() {
            Some(code) => format!("kafka: {code}"),
            None => format!("kafka: {other}"),
        },
    }
}

/// Whether trying again can help.
fn class_of(code: RDKafkaErrorCode) -> Class {
    match code {
        RDKafkaErrorCode::MessageSizeTooLarge
        | RDKafkaErrorCode::InvalidMessageSize
        | RDKafkaErrorCode::InvalidRecord
        | RDKafkaErrorCode::InvalidTopic
        | RDKafkaErrorCode::PolicyViolation
        | RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed => Class::User,
        // The client library's list is open and long; what is not known to be final is tried again.
        _ => Class::Retry,
    }
}

/// What a client hears besides its data. What it tells holds no secret (CON-3).
pub struct Hearing {
    secrets: Arc<Secrets>,
    /// The last trouble with a broker, for messages.
    trouble: Mutex<Option<String>>,
    /// End of each partition as last fetched.
    highs: Mutex<HashMap<(String, i32), i64>>,
}

impl Hearing {
    /// Nothing heard yet.
    pub fn new(secrets: Arc<Secrets>) -> Self {
        Hearing { secrets, trouble: Mutex::default(), highs: Mutex::default() }
    }

    fn note(&self, trouble: String) {
        *self.trouble.lock() = Some(self.secrets.scrub(trouble));
    }

    fn trouble(&self) -> String {
        self.trouble.lock().as_ref().map_or(String::new(), |trouble| format!(": {trouble}"))
    }

    /// End of a partition as last fetched.
    pub fn high(&self, topic: &str, partition: i32) -> Option<i64> {
        self.highs.lock().get(&(topic.to_owned(), partition)).copied()
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let message = self.secrets.scrub(message.to_owned());
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(facility, message, "kafka client");
                self.note(message);
            }
            RDKafkaLogLevel::Warning => {
                tracing::debug!(facility, message, "kafka client");
                self.note(message);
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::debug!(facility, message, "kafka client");
            }
        }
    }

    fn stats(&self, statistics: &[u8]) {
        #[derive(Deserialize)]
        struct Statistics {
            topics: HashMap<String, Topic>,
        }
        #[derive(Deserialize)]
        struct Topic {
            partitions: HashMap<String, Partition>,
        }
        #[derive(Deserialize)]
        struct Partition {
            hi_offset: i64,
        }
        let Ok(statistics) = serde_json::from_slice::<Statistics>(statistics) else { return };
        let mut highs = self.highs.lock();
        for (topic, parts) in statistics.topics {
            for (partition, known) in parts.partitions {
                // Negative before the first fetch, and for the partition of unassigned messages.
                if let (Ok(partition @ 0..), 0..) = (partition.parse::<i32>(), known.hi_offset) {
                    highs.insert((topic.clone(), partition), known.hi_offset);
                }
            }
        }
    }
}

/// Context of a consumer.
#[derive(Clone)]
pub struct ConsumerHearing(Arc<Hearing>);

impl ConsumerHearing {
    fn hearing(&self) -> std::sync::Arc<Hearing> {
        self.0.clone()
    }
}

impl ClientContext for ConsumerHearing {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.0.stats(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.note(format!("{} ({reason})", describe(&error)));
    }
}

impl ConsumerContext for ConsumerHearing {
    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            // Committed offsets only inform people; positions live in the job's own decisions.
            tracing::debug!(error = describe(&error), "kafka group offsets were not committed");
        }
    }
}

type Consumer = BaseConsumer<ConsumerHearing>;

/// Partitions of a topic, ascending. Waits for the broker and, shorter, for the topic.
///
/// Errors: `Retry` when no broker answers, `User` when there is no such topic or it is not ours to see.
fn partitions<C: ClientContext>(client: &Client<C>, hearing: &Hearing, brokers: &[String], topic: &str) -> Result<Vec<i32>, Error> {
    let brokers = brokers.join(", ");
    let started = Instant::now();
    loop {
        let metadata = client.fetch_metadata(Some(topic), OPEN_WAIT).map_err(|e| {
            let message =
                format!("broker {brokers} does not answer within {} s: {}{}", OPEN_WAIT.as_secs(), describe(&e), hearing.trouble());
            Error::new(Class::Retry, message)
        })?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let failure = match found.map(|found| (found.error(), found.partitions())) {
            Some((None, partitions)) if !partitions.is_empty() => {
                let mut ids: Vec<i32> = partitions.iter().map(|partition| partition.id()).collect();
                ids.sort_unstable();
                return Ok(ids);
            }
            Some((Some(error), _)) => Some(RDKafkaErrorCode::from(error)),
            Some((None, _)) | None => None,
        };
        if let Some(code) = failure
            && class_of(code) == Class::User
        {
            return Err(Error::new(Class::User, format!("topic '{topic}' on {brokers}: {code}")));
        }
        if started.elapsed() >= TOPIC_WAIT {
            return Err(match failure {
                Some(RDKafkaErrorCode::LeaderNotAvailable) => {
                    Error::new(Class::Retry, format!("topic '{topic}' on {brokers} has no leader at the moment"))
                }
                _ => Error::new(Class::User, format!("topic '{topic}' does not exist on {brokers}; create it first, or mend the name")),
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests;
