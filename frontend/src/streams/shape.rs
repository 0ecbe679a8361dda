//! The closed lists of what a stream may say (STR-4, JOB-7).

use crate::options::fit::Table;
use crate::options::shape::{BUFFERS, COLUMN, DURABILITY, Kind, Object, field, needed, object};

/// A stream. What a component takes is decided by its `type`.
pub(super) const STREAM: Object = object(
    "stream",
    &[
        field("id", Kind::Id),
        field("version", Kind::Count),
        needed("input", Kind::Any),
        field("buffer", Kind::Any),
        field("pipeline", Kind::Object(&PIPELINE)),
        needed("output", Kind::Any),
        field("error_output", Kind::Any),
        field("durability", Kind::Object(&DURABILITY)),
        field("temporary", Kind::Any),
    ],
);

/// What an input may say beside its connector's options and its codec.
pub(super) const DECLARED: Object = object("input", &[field("schema", Kind::List(&Kind::Object(&COLUMN)))]);

const PIPELINE: Object = object("pipeline", &[field("thread_num", Kind::Small), field("processors", Kind::List(&Kind::Any))]);

const SQL: Object = object("sql processor", &[needed("query", Kind::Text), field("table_name", Kind::Text)]);
const JSON_TO_ARROW: Object =
    object("json_to_arrow processor", &[field("value_field", Kind::Text), field("fields_to_include", Kind::List(&Kind::Text))]);
const ARROW_TO_JSON: Object =
    object("arrow_to_json processor", &[field("value_field", Kind::Text), field("fields_to_include", Kind::List(&Kind::Text))]);
const BATCH: Object = object("batch processor", &[needed("count", Kind::Count), needed("timeout_ms", Kind::Millis)]);

const PROCESSORS: Table = &[("sql", &SQL), ("json_to_arrow", &JSON_TO_ARROW), ("arrow_to_json", &ARROW_TO_JSON), ("batch", &BATCH)];

/// A kind of component: what there is of it, and what a later version brings.
pub(super) struct Family {
    /// `input`, `processor`.
    pub what: &'static str,
    /// By `type`, in the order in which they are listed.
    pub known: &'static [&'static str],
    /// Their options.
    pub table: Table,
    /// Known to the specification, and not there yet.
    pub later: &'static [&'static str],
}

/// Inputs.
pub(super) const INPUTS: Family = Family {
    what: "input",
    known: &["generate", "memory", "file", "http", "kafka"],
    table: crate::options::shape::SOURCES,
    later: &["mqtt", "nats", "redis", "websocket", "sql"],
};

/// Outputs and error outputs.
pub(super) const OUTPUTS: Family = Family {
    what: "output",
    known: &["stdout", "drop", "file", "http", "kafka"],
    table: crate::options::shape::SINKS,
    later: &["sql", "mqtt", "nats", "redis"],
};

/// Buffers.
pub(super) const BUFFER_KINDS: Family =
    Family { what: "buffer", known: &["memory", "tumbling_window", "session_window"], table: BUFFERS, later: &[] };

/// Processors.
pub(super) const PROCESSOR_KINDS: Family = Family {
    what: "processor",
    known: &["sql", "json_to_arrow", "arrow_to_json", "batch"],
    table: PROCESSORS,
    later: &["vrl", "protobuf", "protobuf_to_arrow", "arrow_to_protobuf"],
};
