//! Sources and sinks of a JobSpec, with event time and the policies on bad records.

use crate::connector::{Format, SinkOptions, SourceOptions};
use crate::id::OperatorId;
use crate::schema::ColumnType;
use crate::time::TimeUnit;
use serde::{Deserialize, Serialize};

/// Options of a source operator. In text `input_type` and `config` (without `type`, or with the same one).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The operator.
    pub operator_id: OperatorId,
    /// Connector name; equals the tag of `config`.
    pub input_type: String,
    /// Connector options.
    pub config: SourceOptions,
    /// Format of the bytes; none for connectors that give rows, or raw bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<Format>,
    /// Declared columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schema: Vec<SourceColumn>,
    /// Unit of numeric timestamps of all columns that do not say their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_unit: Option<TimeUnit>,
    /// Event time and lateness.
    #[serde(default)]
    pub time: Time,
    /// Input log; validated, not available yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Bad records.
    #[serde(default)]
    pub on_error: OnError,
    /// Batching.
    #[serde(default)]
    pub batch: Batch,
}

/// A declared column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceColumn {
    /// Name.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub ty: ColumnType,
    /// A NULL or missing value is a bad record.
    #[serde(default)]
    pub not_null: bool,
    /// Unit of numeric timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_unit: Option<TimeUnit>,
}

/// `time` of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Time {
    /// Event or processing time.
    pub mode: TimeMode,
    /// Column of the event time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_field: Option<String>,
    /// How event time progresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<WatermarkPolicy>,
    /// How long a fired window takes late rows.
    pub allowed_lateness_ms: i64,
    /// What happens to late rows.
    pub late_event_policy: LatePolicy,
    /// Operator that gets late rows under `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_event_route: Option<OperatorId>,
    /// So long after the last row, when every partition is idle, the wall clock moves the watermark (EV-8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_advance_ms: Option<u64>,
}

impl Default for Time {
    fn default() -> Self {
        Time {
            mode: TimeMode::ProcessingTime,
            timestamp_field: None,
            watermark: None,
            allowed_lateness_ms: 0,
            late_event_policy: LatePolicy::Drop,
            late_event_route: None,
            idle_advance_ms: None,
        }
    }
}

/// `time.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum TimeMode {
    EventTime,
    #[default]
    ProcessingTime,
}

/// `time.watermark`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatermarkPolicy {
    /// Strategy.
    pub strategy: WatermarkStrategy,
    /// Bound.
    pub out_of_orderness_ms: i64,
    /// 0 = never idle.
    pub idle_timeout_ms: u64,
    /// How far ahead of the wall clock a row may push; `None` takes 24 h for unbounded sources,
    /// no guard for bounded ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_future_ms: Option<u64>,
    /// Partitions further ahead of the slowest active one are held back (EV-9).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment_ms: Option<u64>,
}

impl Default for WatermarkPolicy {
    fn default() -> Self {
        WatermarkPolicy {
            strategy: WatermarkStrategy::BoundedOutOfOrderness,
            out_of_orderness_ms: 0,
            idle_timeout_ms: 30_000,
            max_future_ms: None,
            alignment_ms: None,
        }
    }
}

/// `time.watermark.strategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum WatermarkStrategy {
    #[default]
    BoundedOutOfOrderness,
    Monotonous,
}

/// `time.late_event_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum LatePolicy {
    #[default]
    Drop,
    Route,
    Update,
}

/// `durability` of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Durability {
    /// On or off.
    pub enabled: bool,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When rows are durable.
    pub sync: DurabilitySync,
    /// Needed for `periodic`.
    pub allow_loss: bool,
    /// Local or object store.
    pub backend: DurabilityBackend,
    /// Codec name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// How long a hub waits for an agent that is gone, with a local log, before the job goes on elsewhere without its rows, ms.
    pub wal_wait_ms: u64,
}

impl Default for Durability {
    fn default() -> Self {
        Durability {
            enabled: false,
            path: None,
            sync: DurabilitySync::default(),
            allow_loss: false,
            backend: DurabilityBackend::default(),
            compression: None,
            wal_wait_ms: 300_000,
        }
    }
}

/// `durability.sync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum DurabilitySync {
    PerEntry,
    #[default]
    GroupCommit,
    Periodic,
}

/// `durability.backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum DurabilityBackend {
    #[default]
    Local,
    ObjectStore,
}

/// `on_error` of a source or sink (KER-7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnError {
    /// What happens to a bad record.
    pub policy: ErrorPolicy,
    /// Operator that gets it under `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<OperatorId>,
}

/// `on_error.policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum ErrorPolicy {
    #[default]
    Fail,
    Skip,
    Route,
}

/// `batch` of a source (KER-3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Longest wait for a fuller batch.
    pub linger_ms: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { rows: 8_192, bytes: 1 << 20, linger_ms: 10 }
    }
}

/// Options of a sink operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// The operator.
    pub operator_id: OperatorId,
    /// Connector name; equals the tag of `config`.
    pub output_type: String,
    /// Connector options.
    pub config: SinkOptions,
    /// Format of the bytes; JSON when a connector needs one and none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<Format>,
    /// Promise.
    #[serde(default)]
    pub delivery: Delivery,
    /// Columns that identify a row for `upsert`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Rows that the sink refuses.
    #[serde(default)]
    pub on_error: OnError,
}

/// `delivery` of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum Delivery {
    #[default]
    AtLeastOnce,
    ExactlyOnce,
    Upsert,
}
