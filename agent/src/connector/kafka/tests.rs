//! Tests of the Kafka source and sink against librdkafka's own mock of a cluster. It keeps no
//! promise about durability; those are proven with real brokers in the process tests.

use super::super::probe::{EPOCH, Given, SMALL, drain, flushed, open, probe, refused, stops_anywhere, work};
use super::reader::Share;
use super::sink::KafkaSink;
use super::*;
use arrow::array::{Int64Array, RecordBatch};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::sync::Arc;
use weir_kernel::io::{Budget, Polled, Pushed, Sink, Source};
use weir_planner::connector::{KafkaSink as SinkOptions, KafkaSource, Position, ScanStart, SourceOptions, SplitPosition};
use weir_planner::plan::SourceWork;
use weir_planner::schema::{Column, Schema};
use weir_planner::spec::ErrorPolicy;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(partitions: i32) -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("bids", partitions, 1).unwrap();
    cluster
}

/// One record for each number: `{"n": i}` to partition i % partitions.
fn produce(cluster: &Cluster, numbers: std::ops::Range<i64>, partitions: i64) {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
    for n in numbers {
        let value = format!("{{\"n\":{n}}}");
        let partition = i32::try_from(n % partitions).unwrap();
        producer.send(BaseRecord::<(), str>::to("bids").payload(&value).partition(partition)).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

fn options(brokers: String) -> KafkaSource {
    KafkaSource {
        brokers: vec![brokers],
        topics: vec!["bids".to_owned()],
        consumer_group: None,
        scan_start: ScanStart::Earliest,
        scan_timestamp_ms: None,
        bounded: true,
        properties: BTreeMap::new(),
    }
}

fn source(options: KafkaSource) -> SourceWork {
    work(SourceOptions::Kafka(options), None, &[("n", "BIGINT")], ErrorPolicy::Fail)
}

fn lines(numbers: impl Iterator<Item = i64>) -> Vec<String> {
    numbers.map(|n| format!("{{\"n\":{n}}}")).collect()
}

/// CKP-5, CKP-10: one split a partition; stopped between any two polls nothing is lost or doubled;
/// a bounded source ends where the partitions ended.
#[test]
fn partitions_are_read_once_and_in_order() {
    let cluster = cluster(3);
    produce(&cluster, 0..14, 2);
    let dir = tempfile::tempdir().unwrap();
    let given = stops_anywhere(&source(options(cluster.bootstrap_servers())), dir.path());
    assert_eq!(given.lines["bids/0"], lines((0..14).step_by(2)));
    assert_eq!(given.lines["bids/1"], lines((1..14).step_by(2)));
    assert!(given.lines["bids/2"].is_empty());
}

/// EV-8: an unbounded source catches up, says so, and goes on when more comes.
#[test]
fn an_unbounded_source_waits_for_more() {
    let cluster = cluster(2);
    produce(&cluster, 0..4, 2);
    let dir = tempfile::tempdir().unwrap();
    let work = source(KafkaSource { bounded: false, ..options(cluster.bootstrap_servers()) });
    // The second of two subtasks reads partition 1 alone.
    let probe = probe(1, 2, dir.path());
    let mut source = open(&work, &[], &probe);
    assert_eq!(source.splits().len(), 1);
    assert_eq!(source.cut()[0].position, Position::Offset(0));
    let mut given = Given::default();
    let mut until = |source: &mut dyn Source, rows: usize| {
        while given.all().len() < rows || !source.at_end(0) {
            let seen = probe.alarm.count();
            if let Polled::Batch(batch) = source.poll(SMALL).unwrap() {
                let all = given.lines.entry("bids/1".to_owned()).or_default();
                all.extend((0..batch.rows.num_rows()).map(|_| "row".to_owned()));
            } else if given.all().len() < rows || !source.at_end(0) {
                probe.alarm.wait(seen);
            }
        }
    };
    until(source.as_mut(), 2);
    // A broker that goes away and comes back is reconnected to, without an error.
    cluster.broker_down(1).unwrap();
    cluster.broker_up(1).unwrap();
    assert_eq!((source.cut()[0].position.clone(), source.lag()), (Position::Offset(2), vec![Some(0)]));
    produce(&cluster, 4..8, 2);
    until(source.as_mut(), 4);
    let cut = source.cut();
    assert_eq!(cut[0].position, Position::Offset(4));
    // C39: group offsets follow the decision, and nothing but it.
    source.decided(&cut);
    source.close();
}

/// C41: what retention took is an error that names the gap, not a jump.
#[test]
fn a_gap_is_named() {
    let cluster = cluster(1);
    // The mock keeps about 5 MB, and drops whole batches.
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("batch.num.messages", "1");
    let producer: BaseProducer = config.create().unwrap();
    let value = vec![b'x'; 100_000];
    for _ in 0..100 {
        producer.send(BaseRecord::<(), [u8]>::to("bids").payload(&value)).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let position = SplitPosition { split: "bids/0".to_owned(), position: Position::Offset(1), time_max_ms: None, ended: false };
    let error = refused(&source(options(cluster.bootstrap_servers())), &[position], dir.path());
    assert_eq!(error.class, Class::User);
    assert!(error.message.starts_with("source 'it' of job 'probe', split 'bids/0': offsets 1 to "), "{}", error.message);
    assert!(error.message.contains("are gone from the broker"), "{}", error.message);
    // Beyond the end: the topic was made anew. Found by the first fetch.
    let position = SplitPosition { split: "bids/0".to_owned(), position: Position::Offset(5_000), time_max_ms: None, ended: false };
    let probe = probe(0, 1, dir.path());
    let mut source = open(&source(KafkaSource { bounded: false, ..options(cluster.bootstrap_servers()) }), &[position], &probe);
    let error = loop {
        let seen = probe.alarm.count();
        match source.poll(SMALL) {
            Err(error) => break error,
            Ok(_) => probe.alarm.wait(seen),
        }
    };
    assert!(error.message.contains("offset 5000 lies beyond the broker's end 100"), "{}", error.message);
}

/// Tombstones and poison: named by offset, or skipped and counted.
#[test]
fn bad_records_carry_their_offset() {
    let cluster = cluster(1);
    produce(&cluster, 0..1, 1);
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
    producer.send(BaseRecord::<str, str>::to("bids").key("k")).map_err(|(e, _)| e).unwrap();
    producer.flush(Duration::from_secs(10)).unwrap();
    produce(&cluster, 2..3, 1);
    let dir = tempfile::tempdir().unwrap();
    let fail = source(options(cluster.bootstrap_servers()));
    let skip = SourceWork { on_error: ErrorPolicy::Skip, ..fail.clone() };
    let probe = probe(0, 1, dir.path());
    let mut given = Given::default();
    assert!(drain(open(&skip, &[], &probe).as_mut(), &skip, &probe, SMALL, usize::MAX, &mut given));
    assert_eq!(given.all(), lines([0, 2].into_iter()));
    assert_eq!((given.bad[0].position.as_str(), given.bad[0].reason.as_str()), ("offset 1", "the record has no value (a tombstone)"));
    let raw = work(
        fail.options,
        Some(weir_planner::connector::Format::Raw(weir_planner::connector::Nothing {})),
        &[("value", "BYTEA")],
        ErrorPolicy::Fail,
    );
    let mut given = Given::default();
    assert!(drain(open(&raw, &[], &probe).as_mut(), &raw, &probe, SMALL, usize::MAX, &mut given));
    assert_eq!(given.all(), [r#"{"value":"\\x7b226e223a307d"}"#, r#"{"value":null}"#, r#"{"value":"\\x7b226e223a327d"}"#]);
}

/// C30: the same bytes give the same rows from a broker, a file and memory.
#[test]
fn one_decoder_serves_all_sources() {
    let records = [r#"{"d": 100.0, "t": 1767225600, "b": "yes"}"#, r#"{"t":"2026-01-01 02:00:00+02:00","d":"0.10","x":[{}]}"#];
    let cluster = cluster(1);
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
    for record in records {
        producer.send(BaseRecord::<(), str>::to("bids").payload(record)).map_err(|(e, _)| e).unwrap();
        producer.flush(Duration::from_secs(10)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json").to_str().unwrap().to_owned();
    std::fs::write(&path, records.join("\n")).unwrap();
    let all = [
        SourceOptions::Kafka(options(cluster.bootstrap_servers())),
        SourceOptions::File(weir_planner::connector::FileSource { path }),
        SourceOptions::Memory(weir_planner::connector::Memory { messages: records.map(str::to_owned).to_vec() }),
    ];
    for options in all {
        let mut work = work(options, None, &[("d", "DECIMAL(28,18)"), ("t", "TIMESTAMP(3)"), ("b", "BOOLEAN")], ErrorPolicy::Fail);
        work.columns[1].timestamp_unit = Some(weir_planner::time::TimeUnit::Second);
        let probe = probe(0, 1, dir.path());
        let mut given = Given::default();
        assert!(drain(open(&work, &[], &probe).as_mut(), &work, &probe, SMALL, usize::MAX, &mut given));
        let expected = [
            r#"{"d":100.000000000000000000,"t":"2026-01-01T00:00:00.000","b":true}"#,
            r#"{"d":0.100000000000000000,"t":"2026-01-01T00:00:00.000","b":null}"#,
        ];
        assert_eq!(given.all(), expected, "{:?}", work.options);
    }
}

/// CON-1: a dead endpoint is an error in bounded time that names it; a missing topic is the user's.
#[test]
fn a_dead_broker_and_a_missing_topic_are_named() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was free a moment ago, with nobody behind it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = format!("127.0.0.1:{port}");
    let sink = SinkOptions { brokers: vec![dead.clone()], topic: "out".to_owned(), key: vec![], properties: BTreeMap::new() };
    let opening = probe(0, 1, dir.path()).opening;
    let sink = std::thread::spawn(move || KafkaSink::open(&sink, &numbers(), &opening).err().unwrap());
    let error = refused(&source(options(dead.clone())), &[], dir.path());
    let sink = sink.join().unwrap();
    for (class, message) in [(error.class, error.message), (sink.class, sink.message)] {
        assert_eq!(class, Class::Retry);
        assert!(message.contains(&format!("broker {dead} does not answer within 5 s")), "{message}");
    }
    let cluster = cluster(1);
    let missing = KafkaSource { topics: vec!["nowhere".to_owned()], ..options(cluster.bootstrap_servers()) };
    let error = refused(&source(missing), &[], dir.path());
    assert_eq!(error.class, Class::User);
    assert!(error.message.starts_with("source 'it' of job 'probe': topic 'nowhere' does not exist on"), "{}", error.message);
}

/// CON-3: a wrong setting is named without its value.
#[test]
fn wrong_settings_are_named_without_secrets() {
    let with = |name: &str, value: &str| {
        let properties = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        check(&["localhost:9092".to_owned()], &properties).unwrap_err().message
    };
    assert!(with("no.such.setting", "hunter2").contains("no.such.setting"));
    assert!(!with("no.such.setting", "hunter2").contains("hunter2"));
    let message = with("security.protocol", "hunter2");
    assert!(message.contains("security.protocol") && !message.contains("hunter2"), "{message}");
    assert_eq!(with("group.id", "x"), "kafka: property 'group.id' is set by weir itself; use 'consumer_group'");
    assert!(check(&[], &BTreeMap::new()).unwrap_err().message.contains("brokers"));
}

/// C37: a partition keeps its task when others are added, and every one has exactly one.
#[test]
fn shares_are_disjoint_and_stable() {
    for parallelism in 1..5 {
        for (topic, partition) in (0..3).flat_map(|topic| (0..9).map(move |partition| (topic, partition))) {
            let owners = (0..parallelism).filter(|&subtask| Share { subtask, parallelism }.has(topic, partition)).count();
            assert_eq!(owners, 1);
        }
    }
}

fn numbers() -> Schema {
    Schema(["n", "k"].map(|name| Column { name: name.to_owned(), ty: "BIGINT".parse().unwrap(), nullable: true }).to_vec())
}

fn rows(values: &[i64]) -> RecordBatch {
    let keys: Vec<i64> = values.iter().map(|n| n % 3).collect();
    let columns: [arrow::array::ArrayRef; 2] = [Arc::new(Int64Array::from(values.to_vec())), Arc::new(Int64Array::from(keys))];
    RecordBatch::try_new(Arc::new(numbers().to_arrow()), columns.to_vec()).unwrap()
}

fn sink(cluster: &Cluster, properties: &[(&str, &str)], probe: &super::super::probe::Probe) -> KafkaSink {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options =
        SinkOptions { brokers: vec![cluster.bootstrap_servers()], topic: "bids".to_owned(), key: vec!["k".to_owned()], properties };
    KafkaSink::open(&options, &numbers(), &probe.opening).unwrap()
}

fn written(cluster: &Cluster, count: usize) -> Vec<(String, String)> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "check").create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset("bids", 0, Offset::Beginning).unwrap();
    consumer.assign(&list).unwrap();
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < end {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            all.push((text(message.key()), text(message.payload())));
        }
    }
    all
}

/// CON-7: a flush ends when the broker has all of it, and a full queue takes a batch in parts, each row once.
#[test]
fn flushed_rows_are_at_the_broker() {
    let cluster = cluster(1);
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, dir.path());
    let mut sink = sink(&cluster, &[("queue.buffering.max.messages", "50")], &probe);
    let batch = rows(&(0..200).collect::<Vec<_>>());
    let mut refusals = 0;
    loop {
        let seen = probe.alarm.count();
        match sink.push(&batch).unwrap() {
            Pushed::Taken => break,
            Pushed::Full => {
                refusals += 1;
                probe.alarm.wait(seen);
            }
        }
    }
    assert!(refusals > 0);
    flushed(&mut sink, &probe).unwrap();
    sink.decided(EPOCH);
    let expected: Vec<(String, String)> =
        (0..200).map(|n| (format!("{{\"k\":{}}}", n % 3), format!("{{\"n\":{n},\"k\":{}}}", n % 3))).collect();
    assert_eq!(written(&cluster, 200), expected);
    sink.close();
    sink.close();
    assert!(sink.push(&batch).is_err());
}

/// A6, CON-2: what is not delivered poisons the epoch, with a class that says whether to try again.
#[test]
fn an_undelivered_row_poisons_the_epoch() {
    let cluster = cluster(1);
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, dir.path());
    let text = Schema(vec![Column { name: "t".to_owned(), ty: "TEXT".parse().unwrap(), nullable: true }]);
    let options = SinkOptions {
        brokers: vec![cluster.bootstrap_servers()],
        topic: "bids".to_owned(),
        key: vec![],
        properties: BTreeMap::from([("message.max.bytes".to_owned(), "1000".to_owned())]),
    };
    let mut small = KafkaSink::open(&options, &text, &probe.opening).unwrap();
    let long = arrow::array::StringArray::from(vec!["x".repeat(2000)]);
    let batch = RecordBatch::try_new(Arc::new(text.to_arrow()), vec![Arc::new(long)]).unwrap();
    let error = small.push(&batch).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.starts_with("topic 'bids': row 0 of a batch cannot be sent"), "{}", error.message);
    assert!(small.begin_flush(EPOCH).is_err());

    let mut refused = sink(&cluster, &[], &probe);
    let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 4];
    cluster.request_errors(RDKafkaApiKey::Produce, &denied);
    assert_eq!(refused.push(&rows(&[1])).unwrap(), Pushed::Taken);
    let error = flushed(&mut refused, &probe).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.starts_with("topic 'bids': a record was not delivered"), "{}", error.message);
    assert!(refused.push(&rows(&[2])).is_err());
}

/// EV-9: a held partition gives nothing and is not fetched on, while the others come to their end;
/// let go, it goes on with each record once and in order.
#[test]
fn a_held_partition_waits() {
    let cluster = cluster(2);
    produce(&cluster, 0..40_000, 2);
    let dir = tempfile::tempdir().unwrap();
    let work = source(options(cluster.bootstrap_servers()));
    let probe = probe(0, 1, dir.path());
    let mut source = open(&work, &[], &probe);
    let mut given = Given::default();
    let budget = Budget { rows: 512, bytes: 1 << 20 };
    let count = |given: &Given, split: &str| given.lines.get(split).map_or(0, Vec::len);
    while count(&given, "bids/0") == 0 {
        assert!(!drain(source.as_mut(), &work, &probe, budget, 1, &mut given));
    }
    source.hold(&[true, false]);
    let (held_at, cut) = (count(&given, "bids/0"), source.cut()[0].clone());
    while count(&given, "bids/1") < 20_000 {
        assert!(!drain(source.as_mut(), &work, &probe, budget, 1, &mut given));
    }
    assert_eq!((count(&given, "bids/0"), source.cut()[0].clone()), (held_at, cut));
    assert!(held_at < 20_000 && !source.at_end(0));
    // To and fro, in the midst of what was set aside.
    for held in [false, true, false] {
        source.hold(&[held, false]);
        if !held {
            assert!(!drain(source.as_mut(), &work, &probe, budget, 2, &mut given));
        }
    }
    assert!(drain(source.as_mut(), &work, &probe, budget, usize::MAX, &mut given));
    assert_eq!(given.lines["bids/0"], lines((0..40_000).step_by(2)));
    assert_eq!(given.lines["bids/1"], lines((1..40_000).step_by(2)));
}
