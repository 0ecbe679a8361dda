//! Operators and edges: the graph of a JobSpec.

use crate::expr::{Aggregate, Typed};
use crate::id::{EdgeId, OperatorId};
use serde::{Deserialize, Serialize};

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
    /// The first rows of each window, by an order.
    Top(Top),
    /// Holds rows back and gives them on together: a batch, a span of the clock, a burst.
    Buffer(Buffer),
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
            "top" => OperatorKind::Top(typed(&text)?),
            "buffer" => OperatorKind::Buffer(typed(&text)?),
            "union" => bare(OperatorKind::Union)?,
            "sink" => bare(OperatorKind::Sink)?,
            other => {
                return Err(format!(
                    "kind '{other}' of operator '{}' is not known: use source, map, window, join, top, buffer, union or sink",
                    text.id
                ));
            }
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
            OperatorKind::Top(top) => value(serde_json::to_value(top)),
            OperatorKind::Buffer(buffer) => value(serde_json::to_value(buffer)),
        };
        OperatorText { id: operator.id.clone(), kind: operator.kind.name().to_owned(), parallelism: operator.parallelism, config }
    }
}

impl OperatorKind {
    /// The window over event time that it is, if it is one: it judges rows, keeps state, and its
    /// inputs are partitioned by its keys (JOB-5). A window of single batches does none of these.
    pub fn timed_window(&self) -> Option<&Window> {
        match self {
            OperatorKind::Window(window) => match &window.window {
                WindowShape::Tumbling(_) | WindowShape::Sliding(_) | WindowShape::Session(_) | WindowShape::Cumulate(_) => Some(window),
                WindowShape::Batch(_) => None,
            },
            OperatorKind::Source | OperatorKind::Map(_) | OperatorKind::Join(_) | OperatorKind::Top(_) => None,
            OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => None,
        }
    }

    /// The `kind` word.
    pub fn name(&self) -> &'static str {
        match self {
            OperatorKind::Source => "source",
            OperatorKind::Map(_) => "map",
            OperatorKind::Window(_) => "window",
            OperatorKind::Join(_) => "join",
            OperatorKind::Top(_) => "top",
            OperatorKind::Buffer(_) => "buffer",
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
    /// Time column of the input that the windows follow; `None`: the event time of its rows, which is
    /// the source's time column or, behind a window, `window_end` less 1 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_field: Option<String>,
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
    /// How often a window that is still open gives what it has so far, under trigger `processing_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_interval_ms: Option<u64>,
    /// Live (window, key) entries a task; 0 = no bound.
    #[serde(default = "max_buffered_keys")]
    pub max_buffered_keys: u64,
    /// What happens at the bound.
    #[serde(default)]
    pub on_overflow: OnOverflow,
    /// Rows for empty windows (C17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emit_empty: Option<EmitEmpty>,
}

impl Window {
    /// `max_buffered_keys` where the spec says nothing.
    pub const MAX_BUFFERED_KEYS: u64 = 65_536;
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowShape {
    /// Back to back.
    Tumbling(Tumbling),
    /// Overlapping, or with gaps between them.
    Sliding(Sliding),
    /// By silence.
    Session(Session),
    /// Growing.
    Cumulate(Cumulate),
    /// Each batch is a window of its own, which closes with it: no bounds in the output, no state.
    Batch(BatchShape),
}

/// No fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchShape {}

/// Tumbling windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tumbling {
    /// Length.
    pub size_ms: i64,
    /// Shift of the boundaries, may be negative.
    #[serde(default)]
    pub offset_ms: i64,
    /// Calendar days in this zone; the size is then whole days of 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// Sliding windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Silence that ends one.
    pub gap_ms: i64,
}

/// Cumulating windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// Config of a top: of the rows of each window and of equal keys, the first `limit` by an order. What
/// it takes are windows' rows, with maps, unions and tops between; it gives them when a window is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Top {
    /// Key columns, by name; rows are of one window whether or not its bounds are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Most significant first. Rows that are equal by it are ordered by all their columns.
    pub order_by: Vec<TopOrder>,
    /// Rows that pass, of each window and key.
    pub limit: u64,
    /// Name of a column that is added behind the others with the place of the row, from 1.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// One column of a top's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopOrder {
    /// By name.
    pub column: String,
    /// Greatest first.
    #[serde(default)]
    pub descending: bool,
    /// NULL before all others; as in SQL, the default is that NULL is the greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nulls_first: Option<bool>,
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
    /// Batches keep their order across several subtasks: dealt out in turn from one subtask to
    /// several, or taken up in the same turn from several to one (STR-5).
    #[serde(default)]
    pub ordered: bool,
}

/// Config of a buffer: exactly one key in text, such as `tumbling: {interval_ms: 1000}`. What it
/// gives on is one batch of the rows that it took, in their order, by the clock and not by event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// Until it holds so many rows, or its first row has waited so long.
    Memory(MemoryBuffer),
    /// All rows of each span of the clock, cut at multiples of it.
    Tumbling(TumblingBuffer),
    /// Until no row has come for so long.
    Session(SessionBuffer),
}

/// Rows by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryBuffer {
    /// Rows of a full batch.
    pub capacity: u64,
    /// Longest wait of a row.
    pub timeout_ms: u64,
}

/// Rows by span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TumblingBuffer {
    /// The span.
    pub interval_ms: u64,
}

/// Rows by burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionBuffer {
    /// Silence that ends a burst.
    pub gap_ms: u64,
}

fn max_buffered_keys() -> u64 {
    Window::MAX_BUFFERED_KEYS
}

fn max_per_key() -> u64 {
    10_000
}
