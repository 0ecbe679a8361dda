//! The JobSpec: a job as it was asked for. SQL and YAML both lower to it; it is never changed
//! once it is a version. Field names are those of YAML and of SQL's `WITH` (JOB-1, JOB-3).

use crate::connector::{Format, SinkOptions, SourceOptions};
use crate::expr::{Aggregate, Typed};
use crate::id::{AgentId, EdgeId, JobId, JobVersion, OperatorId};
use crate::schema::ColumnType;
use crate::time::TimeUnit;
use serde::{Deserialize, Serialize};

/// A whole job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Stable identity.
    pub id: JobId,
    /// An upgrade raises it.
    #[serde(default = "first_version")]
    pub version: JobVersion,
    /// Default number of subtasks of each operator.
    #[serde(default = "one")]
    pub parallelism: u32,
    /// Number of key groups, fixed for the life of the state.
    #[serde(default = "max_parallelism")]
    pub max_parallelism: u32,
    /// May an edge cross agents.
    #[serde(default)]
    pub placement: Placement,
    /// Pinned agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<AgentId>,
    /// Deal state anew when the task set differs on restore (CKP-9).
    #[serde(default)]
    pub rescale: bool,
    /// Moving away from pressure.
    #[serde(default)]
    pub rebalance: Rebalance,
    /// What a start begins from.
    #[serde(default)]
    pub recovery: Recovery,
    /// Epoch and checkpoint pace.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// What happens after a failure.
    #[serde(default)]
    pub restart: Restart,
    /// Where a cut must be durable before effects that cannot be repeated (EPO-8); `None` takes
    /// the door's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    /// Go on without the hub or not.
    #[serde(default)]
    pub on_hub_loss: OnHubLoss,
    /// Rows that the result table keeps at least.
    #[serde(default = "result_rows")]
    pub result_retention_rows: u64,
    /// Age after which result rows go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_retention_ms: Option<u64>,
    /// State backend.
    #[serde(default)]
    pub state: State,
    /// Limits of the job's slice on an agent.
    #[serde(default)]
    pub resources: Resources,
    /// Nodes of the graph.
    pub operators: Vec<Operator>,
    /// Edges of the graph.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// One for each operator of kind `source`.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// One for each operator of kind `sink`.
    #[serde(default)]
    pub sinks: Vec<Sink>,
}

/// `placement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum Placement {
    #[default]
    Colocated,
    Split,
}

/// `rebalance`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rebalance {
    /// Off or auto.
    pub mode: RebalanceMode,
    /// Reports in a row.
    pub pressure_streak: u32,
    /// Pause between moves.
    pub cooldown_ms: u64,
    /// Memory threshold.
    pub memory_pct: u32,
    /// CPU threshold.
    pub cpu_pct: u32,
}

impl Default for Rebalance {
    fn default() -> Self {
        Rebalance { mode: RebalanceMode::Off, pressure_streak: 3, cooldown_ms: 300_000, memory_pct: 90, cpu_pct: 90 }
    }
}

/// `rebalance.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum RebalanceMode {
    #[default]
    Off,
    Auto,
}

/// `recovery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// The newest decided cut.
    #[default]
    LatestCheckpoint,
    /// The newest savepoint.
    LatestSavepoint,
    /// Refuse to start over an existing artifact unless one is named.
    Fail,
}

/// `checkpoint`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Pace of epochs.
    pub epoch_ms: u64,
    /// Pace of sealed checkpoints: a multiple of `epoch_ms`.
    pub interval_ms: u64,
    /// A round that takes longer is abandoned.
    pub timeout_ms: u64,
    /// Sealed checkpoints kept.
    pub retention: u32,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint { epoch_ms: 1_000, interval_ms: 10_000, timeout_ms: 300_000, retention: 3 }
    }
}

/// `restart`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restart {
    /// Failures within the window before the job is `failed`.
    pub max_attempts: u32,
    /// The window.
    pub window_ms: u64,
    /// First pause.
    pub backoff_ms: u64,
    /// Longest pause.
    pub max_backoff_ms: u64,
}

impl Default for Restart {
    fn default() -> Self {
        Restart { max_attempts: 5, window_ms: 60_000, backoff_ms: 500, max_backoff_ms: 30_000 }
    }
}

/// `horizon` (EPO-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// The agent's own decision is enough; the job can only be restored there.
    Local,
    /// The seal in shared storage.
    Sealed,
}

/// `on_hub_loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum OnHubLoss {
    #[default]
    Stop,
    Continue,
}

/// `state`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Only `embedded_kv` is known.
    pub backend: String,
    /// Version of the state bytes.
    pub format_version: u32,
    /// Entries untouched for so long go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Bound that fails the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Default for State {
    fn default() -> Self {
        State { backend: "embedded_kv".to_owned(), format_version: 1, ttl_ms: None, max_bytes: None }
    }
}

/// `resources`, per slice on an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// CPU limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millicores: Option<u64>,
    /// Bytes in flight on edges.
    pub inflight_bytes: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Resources { memory_bytes: None, cpu_millicores: None, inflight_bytes: 64 << 20 }
    }
}

/// A node of the graph. In text: `id`, `kind`, `parallelism`, `config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "OperatorText", into = "OperatorText")]
pub struct Operator {
    /// Unique in the job.
    pub id: OperatorId,
    /// Overrides the job's.
    pub parallelism: Option<u32>,
    /// What it does.
    pub kind: OperatorKind,
}

/// What an operator does.
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorKind {
    /// Reads; its options are the entry of `sources` with its id.
    Source,
    /// Filters and projects.
    Map(Map),
    /// Aggregates by window and keys.
    Window(Window),
    /// Interval join; validated, not available yet.
    Join(Join),
    /// Puts inputs of one schema together.
    Union,
    /// Writes; its options are the entry of `sinks` with its id.
    Sink,
}

/// The text form of an operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorText {
    id: OperatorId,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parallelism: Option<u32>,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    config: serde_json::Value,
}

impl TryFrom<OperatorText> for Operator {
    type Error = String;
    fn try_from(text: OperatorText) -> Result<Self, String> {
        fn typed<T: serde::de::DeserializeOwned>(text: &OperatorText) -> Result<T, String> {
            let config = if text.config.is_null() { serde_json::json!({}) } else { text.config.clone() };
            serde_json::from_value(config).map_err(|e| format!("config of operator '{}': {e}", text.id))
        }
        let bare = |kind: OperatorKind| match &text.config {
            serde_json::Value::Null => Ok(kind),
            serde_json::Value::Object(fields) if fields.is_empty() => Ok(kind),
            _ => Err(format!("operator '{}' of kind {} takes no config", text.id, text.kind)),
        };
        let kind = match text.kind.as_str() {
            "source" => bare(OperatorKind::Source)?,
            "map" | "filter" => OperatorKind::Map(typed(&text)?),
            "window" | "aggregate" => OperatorKind::Window(typed(&text)?),
            "join" => OperatorKind::Join(typed(&text)?),
            "union" => bare(OperatorKind::Union)?,
            "sink" => bare(OperatorKind::Sink)?,
            other => return Err(format!("kind '{other}' of operator '{}' is not known: use source, map, window, join, union or sink", text.id)),
        };
        Ok(Operator { id: text.id, parallelism: text.parallelism, kind })
    }
}

impl From<Operator> for OperatorText {
    fn from(operator: Operator) -> Self {
        let value = |v: Result<serde_json::Value, serde_json::Error>| v.expect("operator configs have string keys only");
        let config = match &operator.kind {
            OperatorKind::Source | OperatorKind::Union | OperatorKind::Sink => serde_json::Value::Null,
            OperatorKind::Map(map) => value(serde_json::to_value(map)),
            OperatorKind::Window(window) => value(serde_json::to_value(window)),
            OperatorKind::Join(join) => value(serde_json::to_value(join)),
        };
        OperatorText { id: operator.id.clone(), kind: operator.kind.name().to_owned(), parallelism: operator.parallelism, config }
    }
}

impl OperatorKind {
    /// The `kind` word.
    pub fn name(&self) -> &'static str {
        match self {
            OperatorKind::Source => "source",
            OperatorKind::Map(_) => "map",
            OperatorKind::Window(_) => "window",
            OperatorKind::Join(_) => "join",
            OperatorKind::Union => "union",
            OperatorKind::Sink => "sink",
        }
    }
}

/// An expression: SQL text, and beside it the bound form that the doors add before a spec is submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "ExpressionText<T>", into = "ExpressionText<T>")]
pub struct Expression<T: Clone> {
    /// As the user wrote it, or as it was printed from the bound form.
    pub sql: String,
    /// Typed against the operator's input; `None` until a door binds it.
    pub bound: Option<Box<T>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum ExpressionText<T> {
    Plain(String),
    Bound { sql: String, bound: Box<T> },
}

impl<T: Clone> From<ExpressionText<T>> for Expression<T> {
    fn from(text: ExpressionText<T>) -> Self {
        match text {
            ExpressionText::Plain(sql) => Expression { sql, bound: None },
            ExpressionText::Bound { sql, bound } => Expression { sql, bound: Some(bound) },
        }
    }
}

impl<T: Clone> From<Expression<T>> for ExpressionText<T> {
    fn from(expression: Expression<T>) -> Self {
        match expression.bound {
            None => ExpressionText::Plain(expression.sql),
            Some(bound) => ExpressionText::Bound { sql: expression.sql, bound },
        }
    }
}

/// Config of a map: filter first, then project. Without `project` all columns pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Rows for which this is true pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Expression<Typed>>,
    /// `expr AS name` each; a bare column keeps its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub project: Vec<Expression<Projection>>,
}

/// One output column of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Output name.
    pub name: String,
    /// Value.
    pub value: Typed,
}

/// Config of a window aggregate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Shape.
    pub window: WindowShape,
    /// Key columns, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// What is computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregates: Vec<WindowAggregate>,
    /// Condition over the output columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub having: Option<Expression<Typed>>,
    /// What fires a window.
    #[serde(default)]
    pub trigger: Trigger,
    /// Pace of a processing-time trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_interval_ms: Option<u64>,
    /// Live (window, key) entries a task; 0 = no bound.
    #[serde(default = "max_buffered_keys")]
    pub max_buffered_keys: u64,
    /// What happens at the bound.
    #[serde(default)]
    pub on_overflow: OnOverflow,
    /// Rows for empty windows; validated, not available yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emit_empty: Option<EmitEmpty>,
}

/// One aggregate column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowAggregate {
    /// `count(*)`, `sum(price)`.
    pub expr: Expression<Aggregate>,
    /// Output name.
    #[serde(rename = "as")]
    pub name: String,
    /// Condition on the rows that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// Window shapes: exactly one key in text, such as `tumbling: {size_ms: 60000}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowShape {
    /// Back to back.
    Tumbling(Tumbling),
    /// Overlapping; validated, not available yet.
    Sliding(Sliding),
    /// By silence; validated, not available yet.
    Session(Session),
    /// Growing; validated, not available yet.
    Cumulate(Cumulate),
}

/// Tumbling windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tumbling {
    /// Length.
    pub size_ms: i64,
    /// Shift of the boundaries, may be negative.
    #[serde(default)]
    pub offset_ms: i64,
    /// Calendar days in this zone; validated, not available yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// Sliding windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sliding {
    /// Length.
    pub size_ms: i64,
    /// Distance of starts.
    pub slide_ms: i64,
    /// Shift.
    #[serde(default)]
    pub offset_ms: i64,
}

/// Session windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Silence that ends one.
    pub gap_ms: i64,
}

/// Cumulating windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cumulate {
    /// Longest.
    pub max_size_ms: i64,
    /// Growth.
    pub step_ms: i64,
    /// Shift.
    #[serde(default)]
    pub offset_ms: i64,
}

/// `trigger`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum Trigger {
    #[default]
    Watermark,
    ProcessingTime,
}

/// `on_overflow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum OnOverflow {
    #[default]
    Evict,
    Fail,
}

/// `emit_empty`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmitEmpty {
    /// For keys seen within this time.
    pub horizon_ms: u64,
}

/// Config of an interval join (JOIN-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// Inner or outer.
    #[serde(default)]
    pub join_type: JoinType,
    /// Operator of the left input.
    pub left_from: OperatorId,
    /// Operator of the right input.
    pub right_from: OperatorId,
    /// Key columns of the left input.
    pub left_key: Names,
    /// Key columns of the right input.
    pub right_key: Names,
    /// Symmetric bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<i64>,
    /// Lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_ms: Option<i64>,
    /// Upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_ms: Option<i64>,
    /// Time column of the left input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_timestamp: Option<String>,
    /// Time column of the right input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_timestamp: Option<String>,
    /// Grace.
    #[serde(default)]
    pub ttl_ms: i64,
    /// Rows kept per key and side.
    #[serde(default = "max_per_key")]
    pub max_per_key: u64,
    /// Further condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<Expression<Typed>>,
}

/// `join_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the field says it")]
pub enum JoinType {
    #[default]
    Inner,
    LeftOuter,
    RightOuter,
    FullOuter,
}

/// One name or a list of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the type says it")]
pub enum Names {
    One(String),
    Many(Vec<String>),
}

/// An edge of the graph (JOB-5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Unique in the job.
    pub id: EdgeId,
    /// Producer.
    pub from: OperatorId,
    /// Consumer.
    pub to: OperatorId,
    /// By key.
    #[serde(default)]
    pub partitioned: bool,
    /// To every subtask.
    #[serde(default)]
    pub broadcast: bool,
}

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
    /// Lets the wall clock move the watermark when all is idle; validated, not available yet.
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
    /// Holds fast splits back; validated, not available yet.
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
#[derive(Default)]
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

fn first_version() -> JobVersion {
    JobVersion::new(1)
}

fn one() -> u32 {
    1
}

fn max_parallelism() -> u32 {
    128
}

fn result_rows() -> u64 {
    1_000_000
}

fn max_buffered_keys() -> u64 {
    65_536
}

fn max_per_key() -> u64 {
    10_000
}
