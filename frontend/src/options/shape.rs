//! The closed list of every field of a job, by name and kind (JOB-7): what YAML, REST and SQL's
//! `WITH` accept. A test holds it against the JobSpec's own types.

/// What a field takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// A legal name.
    Id,
    /// `true` or `false`.
    Bool,
    /// A number from 0.
    Count,
    /// A number from 0 that fits 32 bits.
    Small,
    /// A number.
    Number,
    /// A duration from 0; its field ends in `_ms`, and may be written without that ending.
    Millis,
    /// A duration that may be negative.
    SignedMillis,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A column type.
    Type,
    /// One character.
    Char,
    /// A list of texts; text with commas is split.
    Commas,
    /// One text or a list of texts.
    OneOrMany,
    /// Texts by name.
    TextMap,
    /// Text, or anything else, which is then written as JSON.
    JsonText,
    /// Any JSON.
    Any,
    /// A list.
    List(&'static Kind),
    /// An object.
    Object(&'static Object),
    /// An object with exactly one of these fields.
    OneOf(&'static Object),
    /// An operator: `kind` decides about `config`.
    Operator,
    /// A source: `input_type` decides about `config`.
    Source,
    /// A sink: `output_type` decides about `config`.
    Sink,
    /// A format: `type` decides about the rest.
    Codec,
}

/// Fields of an object.
#[derive(Debug)]
pub struct Object {
    /// What it is, for messages.
    pub what: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
    /// The field that a single value stands for.
    pub short: Option<&'static str>,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name as in the JobSpec.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// Must be given.
    pub required: bool,
}

/// A field that may be left out.
pub(crate) const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, aliases: &[], kind, required: false }
}

/// A field that must be given.
pub(crate) const fn needed(name: &'static str, kind: Kind) -> Field {
    Field { name, aliases: &[], kind, required: true }
}

/// An object whose fields all have names in the text.
pub(crate) const fn object(what: &'static str, fields: &'static [Field]) -> Object {
    Object { what, fields, short: None }
}

use Kind::{
    Any, Bool, Char, Codec, Commas, Count, Id, JsonText, List, Millis, Number, OneOf, OneOrMany, SignedMillis, Small, Text, TextMap, Type,
    Word,
};

const UNIT: Kind = Word(&["s", "ms", "us", "ns"]);

const REBALANCE: Object = Object {
    what: "rebalance",
    fields: &[
        field("mode", Word(&["off", "auto"])),
        field("pressure_streak", Small),
        field("cooldown_ms", Millis),
        field("memory_pct", Small),
        field("cpu_pct", Small),
    ],
    short: Some("mode"),
};
const CHECKPOINT: Object = object(
    "checkpoint",
    &[field("epoch_ms", Millis), field("interval_ms", Millis), field("timeout_ms", Millis), field("retention", Small)],
);
const RESTART: Object = object(
    "restart",
    &[field("max_attempts", Small), field("window_ms", Millis), field("backoff_ms", Millis), field("max_backoff_ms", Millis)],
);
const STATE: Object =
    object("state", &[field("backend", Text), field("format_version", Small), field("ttl_ms", Millis), field("max_bytes", Count)]);
const RESOURCES: Object =
    object("resources", &[field("memory_bytes", Count), field("cpu_millicores", Count), field("inflight_bytes", Count)]);

/// Fields of the job itself that `WITH` of `CREATE JOB` may set.
pub const JOB_OPTIONS: Object = object(
    "job",
    &[
        field("version", Count),
        field("parallelism", Small),
        field("max_parallelism", Small),
        field("placement", Word(&["colocated", "split"])),
        field("node_ids", Commas),
        field("rescale", Bool),
        field("rebalance", Kind::Object(&REBALANCE)),
        field("recovery", Word(&["latest_checkpoint", "latest_savepoint", "fail"])),
        field("checkpoint", Kind::Object(&CHECKPOINT)),
        field("restart", Kind::Object(&RESTART)),
        field("horizon", Word(&["local", "sealed"])),
        field("on_hub_loss", Word(&["stop", "continue"])),
        field("result_retention_rows", Count),
        field("result_retention_ms", Millis),
        field("state", Kind::Object(&STATE)),
        field("resources", Kind::Object(&RESOURCES)),
    ],
);

/// Fields that only a whole document has.
const JOB_GRAPH: &[Field] = &[
    needed("id", Id),
    needed("operators", List(&Kind::Operator)),
    field("edges", List(&Kind::Object(&EDGE))),
    field("sources", List(&Kind::Source)),
    field("sinks", List(&Kind::Sink)),
];

const JOB_FIELDS: [Field; JOB_OPTIONS.fields.len() + JOB_GRAPH.len()] = {
    let mut all = [JOB_GRAPH[0]; JOB_OPTIONS.fields.len() + JOB_GRAPH.len()];
    let mut at = 0;
    while at < JOB_GRAPH.len() {
        all[at] = JOB_GRAPH[at];
        at += 1;
    }
    let mut option = 0;
    while option < JOB_OPTIONS.fields.len() {
        all[at] = JOB_OPTIONS.fields[option];
        at += 1;
        option += 1;
    }
    all
};

/// A whole JobSpec.
pub const JOB: Object = object("job", &JOB_FIELDS);

const EDGE: Object = object(
    "edge",
    &[needed("id", Id), needed("from", Id), needed("to", Id), field("partitioned", Bool), field("broadcast", Bool), field("ordered", Bool)],
);

/// An operator, but for its config.
pub const OPERATOR: Object =
    object("operator", &[needed("id", Id), needed("kind", Text), field("parallelism", Small), field("config", Any)]);

/// Config of a map.
pub const MAP: Object = object("map config", &[field("filter", Text), field("project", List(&Text))]);
/// Config of a map that only filters.
pub const FILTER: Object = object("filter config", &[needed("filter", Text)]);

const TUMBLING: Object = object("tumbling window", &[needed("size_ms", Millis), field("offset_ms", SignedMillis), field("timezone", Text)]);
const SLIDING: Object =
    object("sliding window", &[needed("size_ms", Millis), needed("slide_ms", Millis), field("offset_ms", SignedMillis)]);
const SESSION: Object = object("session window", &[needed("gap_ms", Millis)]);
const CUMULATE: Object =
    object("cumulate window", &[needed("max_size_ms", Millis), needed("step_ms", Millis), field("offset_ms", SignedMillis)]);
const WINDOW_SHAPE: Object = object(
    "window",
    &[
        field("tumbling", Kind::Object(&TUMBLING)),
        field("sliding", Kind::Object(&SLIDING)),
        field("session", Kind::Object(&SESSION)),
        field("cumulate", Kind::Object(&CUMULATE)),
        field("batch", Kind::Object(&NOTHING)),
    ],
);
const AGGREGATE: Object = object("aggregate", &[needed("expr", Text), needed("as", Text), field("filter", Text)]);
const EMIT_EMPTY: Object = object("emit_empty", &[needed("horizon_ms", Millis)]);

/// Config of a window.
pub const WINDOW: Object = object(
    "window config",
    &[
        needed("window", OneOf(&WINDOW_SHAPE)),
        field("timestamp_field", Text),
        field("keys", List(&Text)),
        field("aggregates", List(&Kind::Object(&AGGREGATE))),
        field("having", Text),
        field("trigger", Word(&["watermark", "processing_time"])),
        field("trigger_interval_ms", Millis),
        field("max_buffered_keys", Count),
        field("on_overflow", Word(&["evict", "fail"])),
        field("emit_empty", Kind::Object(&EMIT_EMPTY)),
    ],
);

/// Fields of every window of a query that `WITH` of `CREATE JOB` may set, behind `window.`.
pub const WINDOW_OPTIONS: Object = object(
    "window",
    &[
        field("trigger", Word(&["watermark", "processing_time"])),
        field("trigger_interval_ms", Millis),
        field("max_buffered_keys", Count),
        field("on_overflow", Word(&["evict", "fail"])),
        field("emit_empty", Kind::Object(&EMIT_EMPTY)),
    ],
);

const TOP_ORDER: Object = Object {
    what: "order",
    fields: &[needed("column", Text), field("descending", Bool), field("nulls_first", Bool)],
    short: Some("column"),
};

/// Config of a top.
pub const TOP: Object = object(
    "top config",
    &[field("keys", List(&Text)), needed("order_by", List(&Kind::Object(&TOP_ORDER))), needed("limit", Count), field("as", Text)],
);

const MEMORY_BUFFER: Object = object("memory buffer", &[needed("capacity", Count), needed("timeout_ms", Millis)]);
const TUMBLING_BUFFER: Object = object("tumbling buffer", &[needed("interval_ms", Millis)]);
const SESSION_BUFFER: Object = object("session buffer", &[needed("gap_ms", Millis)]);

/// Config of a buffer.
pub const BUFFER: Object = object(
    "buffer config",
    &[
        field("memory", Kind::Object(&MEMORY_BUFFER)),
        field("tumbling", Kind::Object(&TUMBLING_BUFFER)),
        field("session", Kind::Object(&SESSION_BUFFER)),
    ],
);

/// Options of a stream's buffer, by its type.
pub const BUFFERS: &[(&str, &Object)] =
    &[("memory", &MEMORY_BUFFER), ("tumbling_window", &TUMBLING_BUFFER), ("session_window", &SESSION_BUFFER)];

/// Config of a join.
pub const JOIN: Object = object(
    "join config",
    &[
        field("join_type", Word(&["inner", "left_outer", "right_outer", "full_outer"])),
        needed("left_from", Id),
        needed("right_from", Id),
        needed("left_key", OneOrMany),
        needed("right_key", OneOrMany),
        field("window_ms", Millis),
        field("lower_ms", SignedMillis),
        field("upper_ms", SignedMillis),
        field("left_timestamp", Text),
        field("right_timestamp", Text),
        field("ttl_ms", Millis),
        field("max_per_key", Count),
        field("residual", Text),
    ],
);

/// A declared column of a source.
pub const COLUMN: Object =
    object("column", &[needed("name", Text), needed("type", Type), field("not_null", Bool), field("timestamp_unit", UNIT)]);

/// `time.watermark`.
pub const WATERMARK: Object = Object {
    what: "watermark",
    fields: &[
        field("strategy", Word(&["bounded_out_of_orderness", "monotonous"])),
        field("out_of_orderness_ms", Millis),
        field("idle_timeout_ms", Millis),
        field("max_future_ms", Millis),
        field("alignment_ms", Millis),
    ],
    short: Some("strategy"),
};

/// `time` of a source.
pub const TIME: Object = Object {
    what: "time",
    fields: &[
        field("mode", Word(&["event_time", "processing_time"])),
        field("timestamp_field", Text),
        field("watermark", Kind::Object(&WATERMARK)),
        field("allowed_lateness_ms", Millis),
        field("late_event_policy", Word(&["drop", "route", "update"])),
        field("late_event_route", Id),
        field("idle_advance_ms", Millis),
    ],
    short: Some("mode"),
};

/// `durability` of a source or stream.
pub const DURABILITY: Object = object(
    "durability",
    &[
        field("enabled", Bool),
        field("path", Text),
        field("sync", Word(&["per_entry", "group_commit", "periodic"])),
        field("allow_loss", Bool),
        field("backend", Word(&["local", "object_store"])),
        field("compression", Text),
        field("wal_wait_ms", Millis),
    ],
);
const ON_ERROR: Object =
    Object { what: "on_error", fields: &[field("policy", Word(&["fail", "skip", "route"])), field("to", Id)], short: Some("policy") };
const BATCH: Object = object("batch", &[field("rows", Count), field("bytes", Count), field("linger_ms", Millis)]);

/// A source, but for its config.
pub const SOURCE: Object = object(
    "source",
    &[
        needed("operator_id", Id),
        needed("input_type", Text),
        field("config", Any),
        field("codec", Codec),
        field("schema", List(&Kind::Object(&COLUMN))),
        field("timestamp_unit", UNIT),
        field("time", Kind::Object(&TIME)),
        field("durability", Kind::Object(&DURABILITY)),
        field("on_error", Kind::Object(&ON_ERROR)),
        field("batch", Kind::Object(&BATCH)),
    ],
);

/// A sink, but for its config.
pub const SINK: Object = object(
    "sink",
    &[
        needed("operator_id", Id),
        needed("output_type", Text),
        field("config", Any),
        field("codec", Codec),
        field("delivery", Word(&["at_least_once", "exactly_once", "upsert"])),
        field("key", Commas),
        field("on_error", Kind::Object(&ON_ERROR)),
    ],
);

const GENERATE: Object = object(
    "generate",
    &[
        field("kind", Word(&["template", "nexmark"])),
        field("context", JsonText),
        field("interval_ms", Millis),
        field("batch_size", Count),
        Field { name: "rows", aliases: &["count"], kind: Count, required: false },
        field("table", Word(&["person", "auction", "bid"])),
        field("events_per_second", Count),
        field("start_ms", Number),
        field("seed", Count),
    ],
);
const VALUES: Object = object("values", &[needed("rows", List(&List(&Any)))]);
const MEMORY: Object = object("memory", &[field("messages", List(&JsonText))]);
const FILE: Object = object("file", &[needed("path", Text)]);
const KAFKA_SOURCE: Object = object(
    "kafka source",
    &[
        needed("brokers", Commas),
        Field { name: "topics", aliases: &["topic"], kind: Commas, required: true },
        field("consumer_group", Text),
        field("scan.start", Word(&["earliest", "latest", "group", "timestamp"])),
        field("scan.timestamp_ms", Number),
        field("bounded", Bool),
        field("properties", TextMap),
    ],
);
const KAFKA_SINK: Object =
    object("kafka sink", &[needed("brokers", Commas), needed("topic", Text), field("key", Commas), field("properties", TextMap)]);
const HTTP_SOURCE: Object = object(
    "http source",
    &[
        needed("address", Text),
        field("path", Text),
        field("acknowledge", Word(&["decided", "received"])),
        field("token", Text),
        field("max_body_bytes", Count),
    ],
);
const HTTP_SINK: Object = object(
    "http sink",
    &[
        needed("url", Text),
        field("method", Word(&["post", "put"])),
        field("headers", TextMap),
        field("batch_rows", Count),
        field("timeout_ms", Millis),
        field("tries", Small),
    ],
);
const NOTHING: Object = object("config", &[]);
const BARE: Object = object("an operator of this kind", &[]);

/// Config of each source connector.
pub const SOURCES: &[(&str, &Object)] =
    &[("generate", &GENERATE), ("values", &VALUES), ("file", &FILE), ("kafka", &KAFKA_SOURCE), ("memory", &MEMORY), ("http", &HTTP_SOURCE)];

/// Config of each sink connector.
pub const SINKS: &[(&str, &Object)] =
    &[("stdout", &NOTHING), ("drop", &NOTHING), ("file", &FILE), ("kafka", &KAFKA_SINK), ("result", &NOTHING), ("http", &HTTP_SINK)];

const JSON: Object = object("json codec", &[]);
const CSV: Object = object("csv codec", &[field("header", Bool), field("delimiter", Char)]);

/// Options of each format.
pub const CODECS: &[(&str, &Object)] = &[("json", &JSON), ("csv", &CSV), ("parquet", &NOTHING), ("raw", &NOTHING)];

/// Config of each operator kind, under every name that a kind has.
pub const OPERATORS: &[(&str, &Object)] = &[
    ("source", &BARE),
    ("map", &MAP),
    ("filter", &FILTER),
    ("window", &WINDOW),
    ("aggregate", &WINDOW),
    ("join", &JOIN),
    ("top", &TOP),
    ("buffer", &BUFFER),
    ("union", &BARE),
    ("sink", &BARE),
];
