//! Typed options of each source, sink and format, and the positions that sources resume from.

use crate::schema::{Column, ColumnType};
use crate::time::TimeUnit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a source reads. In a JobSpec: `input_type` names the variant, `config` holds its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SourceOptions {
    /// Made-up rows.
    Generate(Generate),
    /// Rows written in the statement (`AS VALUES`): bounded, one split, in order.
    Values(Values),
    /// Files on this machine.
    File(FileSource),
    /// A Kafka topic.
    Kafka(KafkaSource),
    /// An input that tests feed; bounded and empty outside of them.
    Memory(Memory),
    /// A server that takes records by HTTP POST.
    Http(HttpSource),
}

impl SourceOptions {
    /// The `input_type` word.
    pub fn name(&self) -> &'static str {
        match self {
            SourceOptions::Generate(_) => "generate",
            SourceOptions::Values(_) => "values",
            SourceOptions::File(_) => "file",
            SourceOptions::Kafka(_) => "kafka",
            SourceOptions::Memory(_) => "memory",
            SourceOptions::Http(_) => "http",
        }
    }

    /// Whether every split ends by itself.
    pub fn is_bounded(&self) -> bool {
        match self {
            SourceOptions::Generate(generate) => generate.rows.is_some(),
            SourceOptions::Values(_) | SourceOptions::File(_) | SourceOptions::Memory(_) => true,
            SourceOptions::Kafka(kafka) => kafka.bounded,
            SourceOptions::Http(_) => false,
        }
    }
}

/// Options of `generate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// `template` or `nexmark`.
    #[serde(default)]
    pub kind: GenerateKind,
    /// JSON object that every template row repeats; `{{counter}}` inside a string is the row number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Pause between template batches, in ms.
    #[serde(default)]
    pub interval_ms: u64,
    /// Rows of a template batch.
    #[serde(default = "one")]
    pub batch_size: u64,
    /// Rows in all; `None` never ends. `count` is an alias.
    #[serde(default, alias = "count", skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Nexmark table: `person`, `auction` or `bid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<NexmarkTable>,
    /// Nexmark events (of all three tables) per second of wall clock; 0 is as fast as it goes.
    #[serde(default)]
    pub events_per_second: u64,
    /// Event time of the first Nexmark event in ms since 1970, where it is not 2026-01-01. With it a row comes no sooner
    /// than its event time by the wall clock, and after a pause everything that is due comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<i64>,
    /// Seed of the Nexmark generator.
    #[serde(default = "one")]
    pub seed: u64,
}

/// Kind of made-up rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerateKind {
    /// One JSON object repeated.
    #[default]
    Template,
    /// The auction site of the Nexmark benchmark.
    Nexmark,
}

/// The three Nexmark streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NexmarkTable {
    /// People who register.
    Person,
    /// Auctions that open.
    Auction,
    /// Bids.
    Bid,
}

impl NexmarkTable {
    /// The table's columns, in the benchmark's order; none is ever NULL.
    pub fn columns(self) -> Vec<Column> {
        const BIGINT: ColumnType = ColumnType::BigInt;
        const TEXT: ColumnType = ColumnType::Text;
        const TIME: ColumnType = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };
        let columns: &[(&str, ColumnType)] = match self {
            NexmarkTable::Person => &[
                ("id", BIGINT),
                ("name", TEXT),
                ("email_address", TEXT),
                ("credit_card", TEXT),
                ("city", TEXT),
                ("state", TEXT),
                ("date_time", TIME),
                ("extra", TEXT),
            ],
            NexmarkTable::Auction => &[
                ("id", BIGINT),
                ("item_name", TEXT),
                ("description", TEXT),
                ("initial_bid", BIGINT),
                ("reserve", BIGINT),
                ("date_time", TIME),
                ("expires", TIME),
                ("seller", BIGINT),
                ("category", BIGINT),
                ("extra", TEXT),
            ],
            NexmarkTable::Bid => &[
                ("auction", BIGINT),
                ("bidder", BIGINT),
                ("price", BIGINT),
                ("channel", TEXT),
                ("url", TEXT),
                ("date_time", TIME),
                ("extra", TEXT),
            ],
        };
        columns.iter().map(|&(name, ty)| Column { name: name.to_owned(), ty, nullable: false }).collect()
    }
}

/// Options of `values`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// The rows: each cell is JSON (text for types that JSON lacks), in column order.
    pub rows: Vec<Vec<serde_json::Value>>,
}

/// Options of `memory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Rows to give, one JSON object each.
    #[serde(default)]
    pub messages: Vec<String>,
}

/// Options of a `file` source: each matched file is a split, read to its end once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// A path or a glob (`*`, `?`, `[…]`, `**`); matched when the job first starts.
    pub path: String,
}

/// Options of a `kafka` source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSource {
    /// `host:port` list.
    pub brokers: Vec<String>,
    /// Topics to read.
    pub topics: Vec<String>,
    /// Group for informational offset commits; default `weir.<job>.<source>` (SQL-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_group: Option<String>,
    /// Where to begin when there is no position.
    #[serde(default, rename = "scan.start")]
    pub scan_start: ScanStart,
    /// Start time in ms when `scan.start` is `timestamp`.
    #[serde(default, rename = "scan.timestamp_ms", skip_serializing_if = "Option::is_none")]
    pub scan_timestamp_ms: Option<i64>,
    /// Stop at each partition's end as seen at the start: makes the source bounded.
    #[serde(default)]
    pub bounded: bool,
    /// librdkafka settings passed through, such as `sasl.password`; secrets are masked when shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// Where a Kafka source begins without a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanStart {
    /// The oldest record.
    #[default]
    Earliest,
    /// Records that arrive after the start.
    Latest,
    /// The group's committed offset, else earliest.
    Group,
    /// The first record at or after `scan.timestamp_ms`.
    Timestamp,
}

/// Options of an `http` source: a server on this machine, one split, one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSource {
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Path that takes POSTs.
    #[serde(default = "root_path")]
    pub path: String,
    /// When a request is answered with 200.
    #[serde(default)]
    pub acknowledge: Acknowledge,
    /// Bearer token that requests must carry; none asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Longest body in bytes; a longer one is answered with 413.
    #[serde(default = "body_bytes")]
    pub max_body_bytes: u64,
}

/// When an `http` source answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// Once an epoch with the records is decided: what was answered is never lost (EPO-8).
    #[default]
    Decided,
    /// Once they are in memory: faster, and a crash loses what was not decided.
    Received,
}

/// What a sink writes. In a JobSpec: `output_type` names the variant, `config` holds its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SinkOptions {
    /// One line of JSON a row on standard output.
    Stdout(Nothing),
    /// Counted and forgotten.
    Drop(Nothing),
    /// A file on this machine.
    File(FileSink),
    /// A Kafka topic, at least once.
    Kafka(KafkaSink),
    /// The job's own result table (SQL-8).
    Result(Nothing),
    /// An HTTP endpoint, at least once.
    Http(HttpSink),
}

impl SinkOptions {
    /// The `output_type` word.
    pub fn name(&self) -> &'static str {
        match self {
            SinkOptions::Stdout(_) => "stdout",
            SinkOptions::Drop(_) => "drop",
            SinkOptions::File(_) => "file",
            SinkOptions::Kafka(_) => "kafka",
            SinkOptions::Result(_) => "result",
            SinkOptions::Http(_) => "http",
        }
    }
}

/// No options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Options of a `file` sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSink {
    /// Directory; made when missing. Each sink task writes `part-<subtask>.ndjson` in it, and what
    /// lies past the last decided length is cut off on a restart.
    pub path: String,
}

/// Options of a `kafka` sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSink {
    /// `host:port` list.
    pub brokers: Vec<String>,
    /// Topic to write.
    pub topic: String,
    /// Columns whose values make the record key, as a JSON object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// librdkafka settings passed through.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// Options of an `http` sink: batches of rows as request bodies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSink {
    /// Where requests go, `http://` or `https://`.
    pub url: String,
    /// `post` or `put`.
    #[serde(default)]
    pub method: HttpMethod,
    /// Further request headers, such as `authorization`; their values are secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Rows of one request at most; the body is one JSON object a line.
    #[serde(default = "request_rows")]
    pub batch_rows: u64,
    /// Longest wait for an answer.
    #[serde(default = "request_timeout")]
    pub timeout_ms: u64,
    /// Tries of a request whose failure may pass (no answer, 408, 429, 5xx) before the task fails.
    #[serde(default = "request_tries")]
    pub tries: u32,
}

/// Method of an `http` sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "methods are methods")]
pub enum HttpMethod {
    #[default]
    Post,
    Put,
}

/// How bytes become rows and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Format {
    /// One JSON object a record or line.
    Json(Json),
    /// Delimited text.
    Csv(Csv),
    /// Parquet files; source only.
    Parquet(Nothing),
    /// The bytes as they are: one column `value BYTEA`.
    Raw(Nothing),
}

impl Format {
    /// The `type` word.
    pub fn name(&self) -> &'static str {
        match self {
            Format::Json(_) => "json",
            Format::Csv(_) => "csv",
            Format::Parquet(_) => "parquet",
            Format::Raw(_) => "raw",
        }
    }
}

/// Options of `json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Json {}

/// Options of `csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Csv {
    /// The first line names columns; they are then matched by name.
    #[serde(default)]
    pub header: bool,
    /// Field separator.
    #[serde(default = "comma")]
    pub delimiter: char,
}

/// How far a split has been read: the next thing to read. Stored in decisions; variants and
/// fields are only ever added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Position {
    /// Next row number of a generator or a `values` list.
    Row(u64),
    /// Next Kafka offset: one past the highest contiguous one (CKP-5).
    Offset(i64),
    /// Next byte of a file that is read by lines.
    Byte {
        /// Offset of the next line.
        offset: u64,
        /// Number of lines before it, for messages.
        line: u64,
    },
}

/// A split (partition, file, generator) with its position and event-time progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPosition {
    /// Stable name: `topic/3`, a file path, `0`.
    pub split: String,
    /// Next thing to read.
    pub position: Position,
    /// Running maximum of event time in this split (EV-3); `None` before the first timed row.
    pub time_max_ms: Option<i64>,
    /// The split has been read to its end.
    pub ended: bool,
}

/// A connector's name, its roles, and its options with types and defaults, for `SHOW CONNECTORS`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectorCard {
    /// `kafka`.
    pub name: &'static str,
    /// `source` or `sink`.
    pub role: &'static str,
    /// Option name, type as text, default as text (empty when required).
    pub options: Vec<(&'static str, &'static str, &'static str)>,
}

/// A column as a source declares it; `timestamp_unit` says how numbers become times (never guessed, C29).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodeColumn {
    /// The column.
    #[serde(flatten)]
    pub column: Column,
    /// Unit of numeric timestamps, when declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_unit: Option<TimeUnit>,
}

fn one() -> u64 {
    1
}

fn root_path() -> String {
    "/".to_owned()
}

fn body_bytes() -> u64 {
    4 << 20
}

fn request_rows() -> u64 {
    1_000
}

fn request_timeout() -> u64 {
    10_000
}

fn request_tries() -> u32 {
    5
}

fn comma() -> char {
    ','
}
