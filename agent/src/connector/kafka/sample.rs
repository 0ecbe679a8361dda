//! Some records of a topic, for their columns (JOB-6). Partitions are assigned and nothing is
//! committed, so that no consumer group notices.

use super::source::{Start, connect};
use super::{OPEN_WAIT, describe, partitions};
use crate::format::Decoder;
use crate::format::sample::Sample;
use crate::secret::Secrets;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_kernel::error::Error;
use weir_planner::connector::{Format, KafkaSource as Options};
use weir_planner::error::Class;
use weir_planner::schema::Column;

/// Records looked at.
const RECORDS_MAX: u64 = 100;
/// Longest wait for a record before the time is looked at again.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// The columns of the topics' records from where the source starts; where nothing follows, of those
/// before it. Blocks, little longer than until `deadline`.
///
/// Errors: `Retry` when there is no record yet, or no broker answers in time; `User` for a topic that
/// does not exist, or records that give no columns.
pub fn columns(
    options: &Options,
    format: Option<&Format>,
    group: &str,
    who: &str,
    secrets: &Arc<Secrets>,
    deadline: Instant,
) -> Result<Vec<Column>, Error> {
    if matches!(format, Some(Format::Csv(csv)) if csv.header) {
        let message = format!("{who}: csv with a header cannot be read from kafka, where every record stands alone; set header = false");
        return Err(Error::new(Class::User, message));
    }
    let sample = Sample::default();
    let mut decoder = sample.decoder(format)?;
    let topics: BTreeSet<&String> = options.topics.iter().collect();
    for topic in topics {
        if sample.records() < RECORDS_MAX {
            let asked = Asked { options, topic, group, who, deadline };
            of_topic(&asked, secrets, &sample, decoder.as_mut()).map_err(|e| match e.message.starts_with("source ") {
                true => e,
                false => Error { message: format!("{who}: {}", e.message), ..e },
            })?;
        }
    }
    sample.columns().map_err(|e| Error { message: format!("{who}: {}", e.message), ..e })
}

/// A topic that is looked at.
struct Asked<'a> {
    options: &'a Options,
    topic: &'a str,
    group: &'a str,
    who: &'a str,
    deadline: Instant,
}

fn of_topic(asked: &Asked<'_>, secrets: &Arc<Secrets>, sample: &Sample, decoder: &mut dyn Decoder) -> Result<(), Error> {
    let &Asked { options, topic, group, who, deadline } = asked;
    let consumer = connect(options, group, secrets)?;
    let hearing = consumer.context().hearing();
    let all = partitions(consumer.client(), &hearing, &options.brokers, topic)?;
    let each = i64::try_from(RECORDS_MAX).unwrap_or(i64::MAX) / i64::try_from(all.len()).unwrap_or(1).max(1);
    let mut open = BTreeSet::new();
    let mut list = TopicPartitionList::new();
    for partition in all {
        if Instant::now() >= deadline {
            break;
        }
        let start = Start { options, consumer: &consumer, topic, partition };
        let (mut first, high) = start.find(None, true, who)?;
        if first >= high {
            let (low, high) = consumer.fetch_watermarks(topic, partition, OPEN_WAIT).map_err(|e| Error::new(Class::Retry, describe(&e)))?;
            first = low.max(high.saturating_sub(each.max(1)));
        }
        list.add_partition_offset(topic, partition, Offset::Offset(first)).map_err(|e| Error::new(Class::Bug, describe(&e)))?;
        open.insert(partition);
    }
    consumer.assign(&list).map_err(|e| Error::new(Class::Retry, format!("topic '{topic}' cannot be read: {}", describe(&e))))?;
    let mut looked_at = 0;
    while !open.is_empty() && looked_at < RECORDS_MAX {
        if Instant::now() >= deadline {
            if looked_at == 0 {
                let message = format!("the records of topic '{topic}' did not come in time{}", hearing.trouble());
                return Err(Error::new(Class::Retry, message));
            }
            break;
        }
        match consumer.poll(POLL_WAIT) {
            None => {}
            Some(Ok(record)) => {
                looked_at += 1;
                let at = u64::try_from(record.offset()).unwrap_or(0);
                match record.payload() {
                    Some(payload) => decoder.push(payload, at),
                    None => decoder.push_absent(at),
                }
                if sample.records() >= RECORDS_MAX {
                    break;
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
            }
            Some(Err(error)) => {
                let final_one = error.rdkafka_error_code().is_some_and(|code| super::class_of(code) == Class::User);
                if final_one || matches!(error, KafkaError::MessageConsumptionFatal(_)) {
                    let class = if final_one { Class::User } else { Class::Retry };
                    return Err(Error::new(class, format!("topic '{topic}': {}", describe(&error))));
                }
                // The client connects again by itself until the time is over.
                tracing::debug!(topic, error = describe(&error), "kafka sample");
            }
        }
    }
    Ok(())
}
