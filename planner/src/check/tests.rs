//! One row a rule: a legal job, one change, the fault that it must give.

mod columns;
mod durability;
mod windows;

use super::{check, notices};
use crate::expr::{Aggregate, AggregateFunction, Expr, Typed};
use crate::schema::ColumnType;
use crate::spec::{Expression, Horizon, JobSpec, OperatorKind, Projection};
use serde_json::{Value, json};

/// Kafka bids, filtered and projected, counted by bidder, into the result table and a topic.
pub(crate) fn sample() -> Value {
    json!({
        "id": "per_minute", "parallelism": 2,
        "operators": [
            {"id": "bids", "kind": "source"},
            {"id": "slim", "kind": "map", "config": {"project": ["bidder", "price"]}},
            {"id": "count", "kind": "window", "config": {
                "window": {"tumbling": {"size_ms": 60000}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(price)", "as": "total"}]}},
            {"id": "out", "kind": "sink"},
            {"id": "topic", "kind": "sink"}
        ],
        "edges": [
            {"id": "e1", "from": "bids", "to": "slim"},
            {"id": "e2", "from": "slim", "to": "count"},
            {"id": "e3", "from": "count", "to": "out"},
            {"id": "e4", "from": "count", "to": "topic"}
        ],
        "sources": [{
            "operator_id": "bids", "input_type": "kafka", "config": {"type": "kafka", "brokers": ["localhost:9092"], "topics": ["bids"]},
            "codec": {"type": "json"},
            "schema": [
                {"name": "auction", "type": "BIGINT"}, {"name": "bidder", "type": "BIGINT", "not_null": true},
                {"name": "price", "type": "BIGINT"}, {"name": "date_time", "type": "TIMESTAMP(3)"}, {"name": "extra", "type": "TEXT"}],
            "time": {"mode": "event_time", "timestamp_field": "date_time", "watermark": {"out_of_orderness_ms": 4000}}
        }],
        "sinks": [
            {"operator_id": "out", "output_type": "result", "config": {"type": "result"}},
            {"operator_id": "topic", "output_type": "kafka", "config": {"type": "kafka", "brokers": ["localhost:9092"], "topic": "counts", "key": ["bidder"]}}
        ]
    })
}

/// Binds what tests write, as a door would: a projection or aggregate argument is one column.
pub(crate) fn bound(json: Value) -> JobSpec {
    let mut spec: JobSpec = serde_json::from_value(json).unwrap();
    let column = |name: &str| Typed { expr: Expr::Column(name.to_owned()), ty: ColumnType::BigInt, nullable: true };
    for operator in &mut spec.operators {
        match &mut operator.kind {
            OperatorKind::Map(map) => {
                for project in map.project.iter_mut().filter(|project| project.sql != "unbound") {
                    let (from, to) = project.sql.split_once(" as ").unwrap_or((&project.sql, &project.sql));
                    project.bound = Some(Box::new(Projection { name: to.to_owned(), value: column(from) }));
                }
                for filter in map.filter.iter_mut().filter(|filter| filter.sql != "unbound") {
                    filter.bound = Some(Box::new(truth(&filter.sql)));
                }
            }
            OperatorKind::Top(_) => {}
            OperatorKind::Window(window) => {
                for aggregate in window.aggregates.iter_mut().filter(|aggregate| aggregate.expr.sql != "unbound") {
                    let inner = aggregate.expr.sql.trim_start_matches("sum(").trim_end_matches(')').to_owned();
                    let arguments: Vec<_> = (inner != "count(*").then(|| column(&inner)).into_iter().collect();
                    let function = if !arguments.is_empty() { AggregateFunction::Sum } else { AggregateFunction::Count };
                    let nullable = !arguments.is_empty();
                    aggregate.expr.bound = Some(Box::new(Aggregate {
                        function,
                        arguments,
                        distinct: false,
                        order_by: Vec::new(),
                        filter: None,
                        ty: ColumnType::BigInt,
                        nullable,
                    }));
                }
                for having in window.having.iter_mut() {
                    having.bound = Some(Box::new(truth(&having.sql)));
                }
            }
            OperatorKind::Source | OperatorKind::Buffer(_) | OperatorKind::Join(_) | OperatorKind::Union | OperatorKind::Sink => {}
        }
    }
    spec
}

/// A condition: the column is not NULL, or, for `bare x`, the column itself.
fn truth(sql: &str) -> Typed {
    match sql.strip_prefix("bare ") {
        Some(name) => Typed { expr: Expr::Column(name.to_owned()), ty: ColumnType::BigInt, nullable: true },
        None => {
            let expr = Expr::IsNull { expr: Box::new(Expr::Column(sql.to_owned())), negated: true };
            Typed { expr, ty: ColumnType::Boolean, nullable: false }
        }
    }
}

/// The sample with the value at each pointer replaced; a pointer to a missing field adds it, one
/// that ends in `/-` appends to a list.
pub(crate) fn changed(changes: &[(&str, Value)]) -> Value {
    let mut json = sample();
    for (pointer, value) in changes {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match json.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}")) {
            Value::Object(fields) => {
                fields.insert(last.to_owned(), value.clone());
            }
            Value::Array(items) if last == "-" => items.push(value.clone()),
            Value::Array(items) => items[last.parse::<usize>().unwrap()] = value.clone(),
            other => panic!("{parent} is {other}"),
        }
    }
    json
}

fn found(json: Value, door: Horizon) -> Vec<(String, String)> {
    check(&bound(json), door).into_iter().map(|fault| (fault.code, fault.path)).collect()
}

#[track_caller]
pub(crate) fn gives(changes: &[(&str, Value)], expected: &[(&str, &str)]) {
    let expected: Vec<(String, String)> = expected.iter().map(|(code, path)| ((*code).to_owned(), (*path).to_owned())).collect();
    assert_eq!(found(changed(changes), Horizon::Local), expected, "{changes:?}");
}

#[test]
fn a_legal_job_has_no_faults() {
    gives(&[], &[]);
}

/// JOB-4, 1.1: fields of the job itself.
#[test]
fn fields_of_the_job() {
    gives(&[("/version", json!(0))], &[("out_of_range", "version")]);
    gives(&[("/max_parallelism", json!(0))], &[("out_of_range", "max_parallelism"), ("out_of_range", "parallelism")]);
    gives(&[("/max_parallelism", json!(32_769))], &[("out_of_range", "max_parallelism")]);
    gives(&[("/parallelism", json!(0))], &[("out_of_range", "parallelism")]);
    gives(&[("/parallelism", json!(129))], &[("out_of_range", "parallelism")]);
    gives(&[("/operators/0/parallelism", json!(129))], &[("out_of_range", "operators[0].parallelism")]);
    gives(&[("/parallelism", json!(20_000)), ("/max_parallelism", json!(20_000))], &[("too_many_tasks", "parallelism")]);
    gives(&[("/checkpoint", json!({"epoch_ms": 2000, "interval_ms": 3000}))], &[("checkpoint_pace", "checkpoint.interval_ms")]);
    gives(&[("/checkpoint", json!({"epoch_ms": 2000, "interval_ms": 1000}))], &[("checkpoint_pace", "checkpoint.interval_ms")]);
    gives(&[("/checkpoint", json!({"epoch_ms": 0}))], &[("out_of_range", "checkpoint.epoch_ms")]);
    gives(&[("/restart", json!({"backoff_ms": 60_000}))], &[("restart_backoff", "restart.backoff_ms")]);
    gives(&[("/state", json!({"backend": "rocksdb"}))], &[("unsupported_backend", "state.backend")]);
    gives(&[("/state", json!({"format_version": 2}))], &[("unsupported_format", "state.format_version")]);
    gives(&[("/resources", json!({"inflight_bytes": 10}))], &[("out_of_range", "resources.inflight_bytes")]);
    gives(&[("/result_retention_rows", json!(0))], &[("out_of_range", "result_retention_rows")]);
    gives(&[("/node_ids", json!(["a"])), ("/rebalance", json!({"mode": "auto"}))], &[("pinned_rebalance", "rebalance.mode")]);
    gives(&[("/node_ids", json!(["a", "b"]))], &[("too_many_nodes", "node_ids")]);
    gives(&[("/node_ids", json!(["a", "a"]))], &[("duplicate_node", "node_ids[1]"), ("too_many_nodes", "node_ids")]);
    gives(&[("/rebalance", json!({"cpu_pct": 101}))], &[("out_of_range", "rebalance.cpu_pct")]);
}

/// What the specification knows and this version cannot do is refused by name.
#[test]
fn what_is_not_available_is_refused() {
    let refused = |pointer: &str, value: Value, path: &str| gives(&[(pointer, value)], &[("not_available", path)]);
    refused("/on_hub_loss", json!("continue"), "on_hub_loss");
    refused("/state", json!({"ttl_ms": 1000}), "state.ttl_ms");
    refused("/resources", json!({"memory_bytes": 1_000_000}), "resources.memory_bytes");
    refused("/resources", json!({"cpu_millicores": 500}), "resources.cpu_millicores");
    refused("/sources/0/config/topics", json!(["^bids.*"]), "sources[0].config.topics[0]");
    refused("/sinks/1/delivery", json!("exactly_once"), "sinks[1].delivery");
    refused("/sinks/0/delivery", json!("upsert"), "sinks[0].delivery");
    refused("/sinks/1/on_error", json!({"policy": "skip"}), "sinks[1].on_error");
    refused("/sinks/1/codec", json!({"type": "csv"}), "sinks[1].codec");
    gives(&[("/sinks/0/delivery", json!("exactly_once"))], &[]);
}

/// JOB-4: the graph.
#[test]
fn the_graph() {
    gives(
        &[("/operators/4/id", json!("out"))],
        &[("duplicate_operator", "operators[4].id"), ("unknown_operator", "edges[3].to"), ("unknown_operator", "sinks[1].operator_id")],
    );
    gives(&[("/edges/1/id", json!("e1"))], &[("duplicate_edge_id", "edges[1].id")]);
    gives(&[("/edges/0/to", json!("nobody"))], &[("unknown_operator", "edges[0].to")]);
    gives(&[("/edges/-", json!({"id": "e5", "from": "slim", "to": "slim"}))], &[("self_loop", "edges[4]")]);
    gives(&[("/edges/-", json!({"id": "e5", "from": "slim", "to": "count"}))], &[("duplicate_edge", "edges[4]")]);
    gives(&[("/edges/-", json!({"id": "e5", "from": "out", "to": "topic"}))], &[("edge_out_of_sink", "edges[4].from")]);
    gives(&[("/edges/-", json!({"id": "e5", "from": "count", "to": "slim"}))], &[("cycle", "edges")]);
    gives(&[("/edges/-", json!({"id": "e5", "from": "slim", "to": "bids"}))], &[("edge_into_source", "edges[4].to")]);
    let both = json!({"id": "e2", "from": "slim", "to": "count", "partitioned": true, "broadcast": true});
    gives(&[("/edges/1", both)], &[("edge_routing", "edges[1].broadcast"), ("edge_routing", "edges[1].broadcast")]);
    let broadcast = json!({"id": "e2", "from": "slim", "to": "count", "broadcast": true});
    gives(&[("/edges/1", broadcast)], &[("edge_routing", "edges[1].broadcast")]);
    gives(&[("/operators/-", json!({"id": "loose", "kind": "map"}))], &[("not_reached", "operators[5]"), ("no_sink", "operators[5]")]);
    gives(&[("/operators/-", json!({"id": "more", "kind": "sink"}))], &[("not_reached", "operators[5]"), ("missing_sink", "operators[5]")]);
    gives(&[("/operators/-", json!({"id": "more", "kind": "source"}))], &[("no_sink", "operators[5]"), ("missing_source", "operators[5]")]);
}

/// The names of a cycle are told, and only those.
#[test]
fn a_cycle_names_its_operators() {
    let spec = bound(changed(&[("/edges/-", json!({"id": "e5", "from": "count", "to": "slim"}))]));
    let faults = check(&spec, Horizon::Local);
    assert_eq!(faults[0].message, "the edges form a cycle through slim, count");
}

/// JOB-4: joins have two named inputs; they are refused all the same.
#[test]
fn joins() {
    let join = json!({"id": "count", "kind": "join", "config": {"left_from": "slim", "right_from": "bids", "left_key": "bidder", "right_key": "bidder", "window_ms": 1}});
    gives(
        &[("/operators/2", join)],
        &[("join_inputs", "operators[2]"), ("join_side", "operators[2].config.right_from"), ("not_available", "operators[2].kind")],
    );
}

#[test]
fn columns_and_expressions() {
    gives(&[("/operators/2/config/keys/0", json!("seller"))], &[("unknown_column", "operators[2].config.keys[0]")]);
    gives(&[("/operators/2/config/keys", json!(["bidder", "bidder"]))], &[("duplicate_column", "operators[2].config.keys[1]")]);
    gives(&[("/operators/2/config/aggregates/0/as", json!("window_end"))], &[("duplicate_column", "operators[2].config.aggregates[0].as")]);
    gives(&[("/operators/2/config/aggregates/0/as", json!("__total"))], &[("reserved_name", "operators[2].config.aggregates[0].as")]);
    gives(
        &[("/operators/2/config/aggregates/0/expr", json!("sum(extra)"))],
        &[("unknown_column", "operators[2].config.aggregates[0].expr")],
    );
    gives(&[("/operators/2/config/aggregates/0/expr", json!("unbound"))], &[("unbound", "operators[2].config.aggregates[0].expr")]);
    gives(&[("/operators/2/config/aggregates/0/filter", json!("price > 1"))], &[("unbound", "operators[2].config.aggregates[0].filter")]);
    gives(&[("/operators/2/config/having", json!("total"))], &[]);
    gives(&[("/operators/2/config/having", json!("price"))], &[("unknown_column", "operators[2].config.having")]);
    gives(&[("/operators/2/config/having", json!("bare total"))], &[("not_boolean", "operators[2].config.having")]);
    gives(&[("/operators/2/config/trigger_interval_ms", json!(5))], &[("trigger_interval", "operators[2].config.trigger_interval_ms")]);
    gives(&[("/operators/2/config/window/tumbling/size_ms", json!(0))], &[("out_of_range", "operators[2].config.window.tumbling.size_ms")]);
    gives(&[("/operators/1/config/filter", json!("unbound"))], &[("unbound", "operators[1].config.filter")]);
    gives(&[("/operators/1/config/filter", json!("bare price"))], &[("not_boolean", "operators[1].config.filter")]);
    gives(&[("/operators/1/config/filter", json!("seller"))], &[("unknown_column", "operators[1].config.filter")]);
    gives(&[("/operators/1/config/project/-", json!("price"))], &[("duplicate_column", "operators[1].config.project[2]")]);
    gives(&[("/operators/1/config/project/-", json!("extra as __extra"))], &[("reserved_name", "operators[1].config.project[2]")]);
    gives(&[("/sinks/1/config/key/0", json!("seller"))], &[("unknown_column", "sinks[1].config.key[0]")]);
    let none = json!({"window": {"tumbling": {"size_ms": 1000}}});
    gives(&[("/operators/2/config", none), ("/sinks/1/config/key", json!([]))], &[("empty_window", "operators[2].config")]);
}

#[test]
fn too_many_columns() {
    let columns: Vec<Value> = (0..1601).map(|i| json!({"name": format!("c{i}"), "type": "BIGINT"})).collect();
    let faults = found(changed(&[("/sources/0/schema", Value::Array(columns))]), Horizon::Local);
    assert!(faults.contains(&("too_many_columns".to_owned(), "sources[0].schema[1600].name".to_owned())), "{faults:?}");
}

#[test]
fn sources() {
    gives(&[("/sources/0/input_type", json!("file"))], &[("type_mismatch", "sources[0].input_type")]);
    gives(&[("/sources/0/operator_id", json!("slim"))], &[("not_a_source", "sources[0].operator_id"), ("missing_source", "operators[0]")]);
    gives(&[("/sources/0/config/brokers", json!([]))], &[("missing_option", "sources[0].config.brokers")]);
    gives(&[("/sources/0/config/brokers", json!(["localhost"]))], &[("bad_broker", "sources[0].config.brokers[0]")]);
    gives(&[("/sources/0/config/topics", json!([]))], &[("missing_option", "sources[0].config.topics")]);
    gives(&[("/sources/0/config/topics", json!(["a b"]))], &[("bad_topic", "sources[0].config.topics[0]")]);
    gives(&[("/sources/0/config/scan.start", json!("timestamp"))], &[("missing_option", "sources[0].config.scan.timestamp_ms")]);
    gives(&[("/sources/0/config/scan.timestamp_ms", json!(5))], &[("option_not_used", "sources[0].config.scan.timestamp_ms")]);
    gives(&[("/sources/0/config/properties", json!({"group.id": "x"}))], &[("reserved_property", "sources[0].config.properties.group.id")]);
    gives(
        &[("/sources/0/config/properties", json!({"sasl.password": "***"}))],
        &[("masked_secret", "sources[0].config.properties.sasl.password")],
    );
    gives(&[("/sources/0/batch", json!({"rows": 0}))], &[("out_of_range", "sources[0].batch.rows")]);
    gives(&[("/sources/0/on_error", json!({"policy": "skip", "to": "out"}))], &[("route_without_policy", "sources[0].on_error.to")]);
    gives(&[("/sources/0/codec", json!({"type": "parquet"}))], &[("codec_not_taken", "sources[0].codec")]);
    gives(&[("/sources/0/codec", json!({"type": "csv", "delimiter": "\""}))], &[("bad_delimiter", "sources[0].codec.delimiter")]);
    gives(&[("/sources/0/codec", json!({"type": "raw"}))], &[("fixed_column", "sources[0].schema")]);
    gives(&[("/sources/0/schema/0/name", json!("price"))], &[("duplicate_column", "sources[0].schema[2].name")]);
    gives(&[("/sources/0/schema/0/name", json!("__meta_offset"))], &[("reserved_name", "sources[0].schema[0].name")]);
    gives(&[("/sources/0/schema/0/type", json!("INTERVAL"))], &[("bad_column_type", "sources[0].schema[0].type")]);
    gives(&[("/sources/0/schema/4/timestamp_unit", json!("s"))], &[("unit_without_time", "sources[0].schema[4].timestamp_unit")]);
}

/// Sources that are not Kafka, in the place of the sample's.
#[test]
fn other_connectors() {
    let with = |kind: &str, config: Value, codec: Value, expected: &[(&str, &str)]| {
        gives(&[("/sources/0/input_type", json!(kind)), ("/sources/0/config", config), ("/sources/0/codec", codec)], expected);
    };
    let json_codec = || json!({"type": "json"});
    with("generate", json!({"type": "generate"}), json_codec(), &[("missing_option", "sources[0].config.context")]);
    with("generate", json!({"type": "generate", "context": "[1]"}), json_codec(), &[("bad_context", "sources[0].config.context")]);
    with("generate", json!({"type": "generate", "context": "{"}), json_codec(), &[("bad_context", "sources[0].config.context")]);
    with(
        "generate",
        json!({"type": "generate", "context": "{}", "table": "bid"}),
        json_codec(),
        &[("option_not_used", "sources[0].config.table")],
    );
    with(
        "generate",
        json!({"type": "generate", "context": "{}", "batch_size": 0}),
        Value::Null,
        &[("out_of_range", "sources[0].config.batch_size")],
    );
    let nexmark = json!({"type": "generate", "kind": "nexmark"});
    with("generate", nexmark, Value::Null, &[("missing_option", "sources[0].config.table")]);
    let clocked = json!({"type": "generate", "kind": "nexmark", "table": "bid", "start_ms": 1});
    with("generate", clocked, Value::Null, &[("missing_option", "sources[0].config.events_per_second")]);
    let bids = json!({"type": "generate", "kind": "nexmark", "table": "bid"});
    with("generate", bids.clone(), Value::Null, &[]);
    with("generate", bids, json_codec(), &[("codec_not_taken", "sources[0].codec")]);
    let people = json!({"type": "generate", "kind": "nexmark", "table": "person"});
    let unknown = ["auction", "bidder", "price"].map(|_| "fixed_column");
    let paths = ["sources[0].schema[0].name", "sources[0].schema[1].name", "sources[0].schema[2].name"];
    with("generate", people, Value::Null, &std::array::from_fn::<_, 3, _>(|i| (unknown[i], paths[i])));
    with("file", json!({"type": "file", "path": ""}), json_codec(), &[("missing_option", "sources[0].config.path")]);
    with("file", json!({"type": "file", "path": "x"}), Value::Null, &[("missing_option", "sources[0].codec")]);
    with("file", json!({"type": "file", "path": "x"}), json!({"type": "raw"}), &[("codec_not_taken", "sources[0].codec")]);
    with("file", json!({"type": "file", "path": "x"}), json!({"type": "parquet"}), &[]);
    let rows = json!({"type": "values", "rows": [[1, 2, 3, "2024-01-01T00:00:00Z", ""], [1, 2]]});
    with("values", rows, Value::Null, &[("values_width", "sources[0].config.rows[1]")]);
    with("memory", json!({"type": "memory"}), json_codec(), &[]);
}

/// JOB-4, EV-1: event time.
#[test]
fn event_time() {
    gives(
        &[("/sources/0/time", json!({"mode": "event_time"}))],
        &[("no_time_field", "sources[0].time.timestamp_field"), ("no_watermark", "sources[0].time.watermark")],
    );
    gives(&[("/sources/0/time/timestamp_field", json!("nothing"))], &[("unknown_column", "sources[0].time.timestamp_field")]);
    gives(&[("/sources/0/time/timestamp_field", json!("extra"))], &[("bad_time_type", "sources[0].time.timestamp_field")]);
    gives(&[("/sources/0/time/timestamp_field", json!("auction"))], &[]);
    gives(
        &[("/sources/0/time/watermark/out_of_orderness_ms", json!(-1))],
        &[("out_of_range", "sources[0].time.watermark.out_of_orderness_ms")],
    );
    gives(
        &[("/sources/0/time/watermark/alignment_ms", json!(0)), ("/sources/0/time/idle_advance_ms", json!(u64::MAX))],
        &[("out_of_range", "sources[0].time.watermark.alignment_ms"), ("out_of_range", "sources[0].time.idle_advance_ms")],
    );
    let never_idle = [("/sources/0/time/watermark/idle_timeout_ms", json!(0)), ("/sources/0/time/idle_advance_ms", json!(5_000))];
    gives(&never_idle, &[("never_idle", "sources[0].time.idle_advance_ms")]);
    gives(&[("/sources/0/time/watermark/alignment_ms", json!(1)), ("/sources/0/time/idle_advance_ms", json!(1))], &[]);
    gives(
        &[("/sources/0/time/watermark/strategy", json!("monotonous"))],
        &[("monotonous_bound", "sources[0].time.watermark.out_of_orderness_ms")],
    );
    gives(&[("/sources/0/time/allowed_lateness_ms", json!(-1))], &[("out_of_range", "sources[0].time.allowed_lateness_ms")]);
    gives(&[("/sources/0/time", json!({"mode": "processing_time"}))], &[("window_without_time", "operators[2]")]);
    gives(
        &[("/sources/0/time/mode", json!("processing_time"))],
        &[
            ("processing_time", "sources[0].time.watermark"),
            ("processing_time", "sources[0].time.timestamp_field"),
            ("window_without_time", "operators[2]"),
        ],
    );
    gives(
        &[("/sources/0/time/late_event_route", json!("nobody"))],
        &[("unknown_operator", "sources[0].time.late_event_route"), ("route_without_policy", "sources[0].time.late_event_route")],
    );
    gives(
        &[("/sources/0/time/late_event_policy", json!("route")), ("/sources/0/time/late_event_route", json!("bids"))],
        &[("bad_late_route", "sources[0].time.late_event_route")],
    );
    gives(
        &[("/sources/0/time/late_event_policy", json!("route")), ("/sources/0/time/late_event_route", json!("slim"))],
        &[("bad_late_route", "sources[0].time.late_event_route")],
    );
}

#[test]
fn sinks() {
    gives(&[("/sinks/1/output_type", json!("file"))], &[("type_mismatch", "sinks[1].output_type")]);
    gives(&[("/sinks/1/operator_id", json!("out"))], &[("duplicate_sink", "sinks[1].operator_id"), ("missing_sink", "operators[4]")]);
    gives(
        &[("/sinks/1", json!({"operator_id": "topic", "output_type": "result", "config": {"type": "result"}}))],
        &[("two_results", "sinks[1]")],
    );
    gives(
        &[("/sinks/1", json!({"operator_id": "topic", "output_type": "file", "config": {"type": "file", "path": ""}}))],
        &[("missing_option", "sinks[1].config.path")],
    );
    gives(&[("/sinks/0/codec", json!({"type": "json"}))], &[("codec_not_taken", "sinks[0].codec")]);
    gives(&[("/sinks/0/key", json!(["bidder"]))], &[("key_without_upsert", "sinks[0].key")]);
    gives(&[("/sinks/1/config/topic", json!(""))], &[("bad_topic", "sinks[1].config.topic")]);
}

/// Inputs that meet must have the same columns.
#[test]
fn inputs_that_differ() {
    let changes = [
        ("/operators/-", json!({"id": "raw", "kind": "map"})),
        ("/edges/-", json!({"id": "e5", "from": "bids", "to": "raw"})),
        ("/edges/-", json!({"id": "e6", "from": "raw", "to": "count"})),
    ];
    let faults = check(&bound(changed(&changes)), Horizon::Local);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].message, "the inputs of window 'count' differ: 'raw' has 5 columns instead of 2 (the first is 'slim')");
}

/// STR-2: a buffer has room for a row and a span that passes.
#[test]
fn buffers() {
    let with = |config: Value| json!({"id": "slim", "kind": "buffer", "config": config});
    let columns = |config: Value, expected: &[(&str, &str)]| {
        gives(&[("/operators/1", with(config))], expected);
    };
    columns(json!({"memory": {"capacity": 1, "timeout_ms": 1}}), &[]);
    columns(json!({"tumbling": {"interval_ms": 86_400_000}}), &[]);
    columns(
        json!({"memory": {"capacity": 0, "timeout_ms": 0}}),
        &[("out_of_range", "operators[1].config.memory.capacity"), ("out_of_range", "operators[1].config.memory.timeout_ms")],
    );
    columns(json!({"tumbling": {"interval_ms": 0}}), &[("out_of_range", "operators[1].config.tumbling.interval_ms")]);
    columns(json!({"session": {"gap_ms": 86_400_001}}), &[("out_of_range", "operators[1].config.session.gap_ms")]);
}

/// A batch window has no bounds, no trigger and no state, and needs no event time.
#[test]
fn batch_windows() {
    let with = |field: &str, value: Value, expected: &[(&str, &str)]| {
        let mut config = json!({"window": {"batch": {}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(price)", "as": "total"}]});
        config[field] = value;
        gives(&[("/operators/2/config", config)], expected);
    };
    with("max_buffered_keys", json!(0), &[]);
    with("max_buffered_keys", json!(10), &[("batch_window", "operators[2].config.max_buffered_keys")]);
    with("trigger", json!("processing_time"), &[("batch_window", "operators[2].config.trigger")]);
    with("trigger_interval_ms", json!(10), &[("batch_window", "operators[2].config.trigger_interval_ms")]);
    with("emit_empty", json!({"horizon_ms": 10}), &[("batch_window", "operators[2].config.emit_empty")]);
    with("on_overflow", json!("fail"), &[("batch_window", "operators[2].config.on_overflow")]);
    with("having", json!("window_start"), &[("unknown_column", "operators[2].config.having")]);
    let config = json!({"window": {"batch": {}}, "keys": ["bidder"]});
    gives(&[("/operators/2/config", config), ("/sources/0/time", json!({}))], &[]);
}

/// On a fleet: a job must be pinned with a local horizon; split and auto are refused.
#[test]
fn a_fleet_needs_a_pinned_job() {
    let on_fleet = |changes: &[(&str, Value)]| found(changed(changes), Horizon::Sealed);
    let codes = |faults: Vec<(String, String)>| faults.into_iter().map(|(code, path)| format!("{code} {path}")).collect::<Vec<_>>();
    assert_eq!(codes(on_fleet(&[])), [""; 0]);
    assert_eq!(codes(on_fleet(&[("/horizon", json!("local"))])), ["local_unpinned node_ids"]);
    assert_eq!(codes(on_fleet(&[("/horizon", json!("local")), ("/node_ids", json!(["a"]))])), [""; 0]);
    let split = [("/horizon", json!("local")), ("/node_ids", json!(["a"])), ("/placement", json!("split"))];
    assert_eq!(codes(on_fleet(&split)), ["not_available placement"]);
}

/// On one agent they are accepted and said to do nothing (JOB-2).
#[test]
fn what_has_no_effect_is_told() {
    let changes = [
        ("/placement", json!("split")),
        ("/rebalance", json!({"mode": "auto"})),
        ("/operators/2/config/keys", json!([])),
        ("/sinks/1/config/key", json!([])),
    ];
    let spec = bound(changed(&changes));
    assert_eq!(check(&spec, Horizon::Local), []);
    assert_eq!(
        notices(&spec),
        [
            "placement 'split' has no effect on one agent",
            "rebalance 'auto' has no effect on one agent",
            "window 'count' has no keys and runs as one task",
        ]
    );
    assert!(notices(&bound(sample())).is_empty());
}

/// JOB-7: all faults come at once, each with a way out or a plain reason.
#[test]
fn all_faults_come_together() {
    let changes = [
        ("/version", json!(0)),
        ("/on_hub_loss", json!("continue")),
        ("/sources/0/config/brokers", json!([])),
        ("/operators/2/config/keys/0", json!("x")),
    ];
    let paths: Vec<String> = check(&bound(changed(&changes)), Horizon::Local).into_iter().map(|fault| fault.path).collect();
    assert_eq!(paths, ["version", "on_hub_loss", "sources[0].config.brokers", "operators[2].config.keys[0]"]);
}

/// An unbound expression is told as a fault of Weir, and hides nothing else.
#[test]
fn an_unbound_projection() {
    let mut spec = bound(sample());
    if let OperatorKind::Map(map) = &mut spec.operators[1].kind {
        map.project.push(Expression { sql: "price * 2".to_owned(), bound: None });
    }
    let faults = check(&spec, Horizon::Local);
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].code.as_str(), faults[0].path.as_str()), ("unbound", "operators[1].config.project[2]"));
}

/// The rules on http and on references, in the place of the sample's source and sink.
#[test]
fn http_and_references() {
    let source = |config: Value, expected: &[(&str, &str)]| {
        let mut config = config;
        config["type"] = json!("http");
        let one = ("/operators/0/parallelism", json!(1));
        gives(&[("/sources/0/input_type", json!("http")), ("/sources/0/config", config), one], expected);
    };
    source(json!({"address": "127.0.0.1:0"}), &[]);
    source(json!({"address": "[::1]:8080", "path": "/a/b", "token": "t", "acknowledge": "received"}), &[]);
    source(json!({"address": "${env:ADDRESS}", "path": "${env:PATH}", "token": "${file:/run/t}"}), &[]);
    for address in ["localhost", "::1:80", "h:65536", ":80", "h:", "a b:1"] {
        source(json!({"address": address}), &[("bad_address", "sources[0].config.address")]);
    }
    for path in ["", "a", "/a b", "/a?b"] {
        source(json!({"address": "h:1", "path": path}), &[("bad_path", "sources[0].config.path")]);
    }
    source(json!({"address": "h:1", "token": ""}), &[("bad_token", "sources[0].config.token")]);
    source(json!({"address": "h:1", "token": "a b"}), &[("bad_token", "sources[0].config.token")]);
    source(json!({"address": "h:1", "token": "***"}), &[("masked_secret", "sources[0].config.token")]);
    source(json!({"address": "h:1", "token": "${env:}"}), &[("bad_reference", "sources[0].config.token")]);
    source(json!({"address": "h:1", "max_body_bytes": 0}), &[("out_of_range", "sources[0].config.max_body_bytes")]);
    gives(
        &[
            ("/sources/0/input_type", json!("http")),
            ("/sources/0/config", json!({"type": "http", "address": "h:1"})),
            ("/operators/0/parallelism", json!(3)),
        ],
        &[("http_parallelism", "operators[0].parallelism")],
    );
    let sink = |config: Value, expected: &[(&str, &str)]| {
        let mut config = config;
        config["type"] = json!("http");
        gives(&[("/sinks/0/output_type", json!("http")), ("/sinks/0/config", config)], expected);
    };
    sink(json!({"url": "http://u:p@h:1/x?a=b", "headers": {"x-a": "b c"}, "method": "put"}), &[]);
    sink(json!({"url": "${env:SCHEME}://h", "headers": {"x-a": "${env:A}"}}), &[]);
    for url in ["h:1/x", "ftp://h", "https://h/x", "http://", "http:///x", "http://h/a b", ""] {
        sink(json!({"url": url}), &[("bad_url", "sinks[0].config.url")]);
    }
    sink(json!({"url": "http://***@h/x"}), &[("masked_secret", "sinks[0].config.url")]);
    sink(json!({"url": "http://h/${x"}), &[("bad_reference", "sinks[0].config.url")]);
    for (name, value) in [("a b", "x"), ("", "x"), ("Content-Type", "x"), ("x-a", "a\nb"), ("x-a", "é")] {
        sink(json!({"url": "http://h", "headers": {name: value}}), &[("bad_header", &format!("sinks[0].config.headers.{name}"))]);
    }
    for field in ["batch_rows", "timeout_ms", "tries"] {
        sink(json!({"url": "http://h", field: 0}), &[("out_of_range", &format!("sinks[0].config.{field}"))]);
    }
    gives(
        &[("/sources/0/config/properties", json!({"sasl.password": "a${env"}))],
        &[("bad_reference", "sources[0].config.properties.sasl.password")],
    );
    gives(&[("/sources/0/config/brokers", json!(["${env:BROKERS}"])), ("/sources/0/config/topics", json!(["t-${env:TOPIC}"]))], &[]);
}
