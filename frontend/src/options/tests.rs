//! The list of fields against the JobSpec's own types, and durations.

use super::duration;
use super::fit::{Fit, Path};
use super::node::Node;
use super::shape::{CODECS, JOB, Kind, OPERATORS, Object, SINKS, SOURCES};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weir_planner::spec::JobSpec;

/// A spec in which every field of every type is given.
fn everything() -> JobSpec {
    let source = |id: &str, kind: &str, config: Value, codec: Value| {
        json!({"operator_id": id, "input_type": kind, "config": config, "codec": codec,
            "schema": [{"name": "a", "type": "BIGINT", "not_null": true, "timestamp_unit": "s"}], "timestamp_unit": "ms",
            "time": {"mode": "event_time", "timestamp_field": "a", "allowed_lateness_ms": 1, "late_event_policy": "route", "late_event_route": "o", "idle_advance_ms": 1,
                "watermark": {"strategy": "monotonous", "out_of_orderness_ms": 1, "idle_timeout_ms": 1, "max_future_ms": 1, "alignment_ms": 1}},
            "durability": {"enabled": true, "path": "p", "sync": "periodic", "allow_loss": true, "backend": "object_store", "compression": "c", "wal_wait_ms": 1},
            "on_error": {"policy": "route", "to": "o"}, "batch": {"rows": 1, "bytes": 1, "linger_ms": 1}})
    };
    let sink = |id: &str, kind: &str, config: Value| json!({"operator_id": id, "output_type": kind, "config": config, "codec": {"type": "json"}, "delivery": "upsert", "key": ["a"], "on_error": {"policy": "route", "to": "o"}});
    let window = |shape: Value| {
        json!({"window": shape, "timestamp_field": "a", "keys": ["a"], "aggregates": [{"expr": "count(*)", "as": "n", "filter": "a > 1"}], "having": "n > 1", "trigger": "processing_time",
            "trigger_interval_ms": 1, "max_buffered_keys": 1, "on_overflow": "fail", "emit_empty": {"horizon_ms": 1}})
    };
    let kafka = json!({"type": "kafka", "brokers": ["a:1"], "topics": ["t"], "consumer_group": "g", "scan.start": "timestamp", "scan.timestamp_ms": 1, "bounded": true, "properties": {"x": "y"}});
    let generate = json!({"type": "generate", "kind": "nexmark", "context": "{}", "interval_ms": 1, "batch_size": 1, "rows": 1, "table": "bid", "events_per_second": 1, "start_ms": 1, "seed": 1});
    let join = json!({"join_type": "inner", "left_from": "a", "right_from": "b", "left_key": "a", "right_key": ["a", "b"], "window_ms": 1, "lower_ms": -1, "upper_ms": 1,
        "left_timestamp": "a", "right_timestamp": "a", "ttl_ms": 1, "max_per_key": 1, "residual": "a > 1"});
    let spec = json!({
        "id": "all", "version": 2, "parallelism": 2, "max_parallelism": 3, "placement": "split", "node_ids": ["n"], "rescale": true,
        "rebalance": {"mode": "auto", "pressure_streak": 1, "cooldown_ms": 1, "memory_pct": 1, "cpu_pct": 1}, "recovery": "fail",
        "checkpoint": {"epoch_ms": 1, "interval_ms": 1, "timeout_ms": 1, "retention": 1},
        "restart": {"max_attempts": 1, "window_ms": 1, "backoff_ms": 1, "max_backoff_ms": 1}, "horizon": "sealed", "on_hub_loss": "continue",
        "result_retention_rows": 1, "result_retention_ms": 1, "state": {"backend": "b", "format_version": 1, "ttl_ms": 1, "max_bytes": 1},
        "resources": {"memory_bytes": 1, "cpu_millicores": 1, "inflight_bytes": 1},
        "operators": [
            {"id": "a", "kind": "source", "parallelism": 1}, {"id": "m", "kind": "map", "config": {"filter": "a > 1", "project": ["a"]}},
            {"id": "t", "kind": "window", "config": window(json!({"tumbling": {"size_ms": 1, "offset_ms": 1, "timezone": "UTC"}}))},
            {"id": "s", "kind": "window", "config": window(json!({"sliding": {"size_ms": 1, "slide_ms": 1, "offset_ms": 1}}))},
            {"id": "g", "kind": "window", "config": window(json!({"session": {"gap_ms": 1}}))},
            {"id": "c", "kind": "window", "config": window(json!({"cumulate": {"max_size_ms": 1, "step_ms": 1, "offset_ms": 1}}))},
            {"id": "j", "kind": "join", "config": join}, {"id": "u", "kind": "union"}, {"id": "x", "kind": "window", "config": window(json!({"batch": {}}))},
            {"id": "b1", "kind": "buffer", "config": {"memory": {"capacity": 1, "timeout_ms": 1}}}, {"id": "b2", "kind": "buffer", "config": {"tumbling": {"interval_ms": 1}}},
            {"id": "b3", "kind": "buffer", "config": {"session": {"gap_ms": 1}}}, {"id": "o", "kind": "sink"},
            {"id": "p", "kind": "top", "config": {"keys": ["a"], "order_by": [{"column": "n", "descending": true, "nulls_first": true}], "limit": 1, "as": "place"}}],
        "edges": [{"id": "e", "from": "a", "to": "m", "partitioned": true, "broadcast": true, "ordered": true}],
        "sources": [
            source("a", "kafka", kafka, json!({"type": "csv", "header": true, "delimiter": ";"})), source("b", "generate", generate, json!({"type": "json"})),
            source("c", "values", json!({"type": "values", "rows": [[1, "x", null, 1.5, true]]}), json!({"type": "raw"})),
            source("d", "file", json!({"type": "file", "path": "p"}), json!({"type": "parquet"})),
            source("h", "http", json!({"type": "http", "address": "a:1", "path": "/p", "acknowledge": "received", "token": "t", "max_body_bytes": 1}), json!({"type": "json"})), source("e", "memory", json!({"type": "memory", "messages": ["{}"]}), json!({"type": "raw"}))],
        "sinks": [
            sink("a", "stdout", json!({"type": "stdout"})), sink("b", "drop", json!({"type": "drop"})), sink("c", "file", json!({"type": "file", "path": "p"})),
            sink("d", "kafka", json!({"type": "kafka", "brokers": ["a:1"], "topic": "t", "key": ["a"], "properties": {"x": "y"}})), sink("e", "result", json!({"type": "result"})),
            sink("h", "http", json!({"type": "http", "url": "u", "method": "put", "headers": {"x": "y"}, "batch_rows": 1, "timeout_ms": 1, "tries": 1}))]
    });
    serde_json::from_value(spec).unwrap()
}

/// JOB-7: the list has every field that the types have, and takes each as the types write it.
#[test]
fn the_list_has_every_field() {
    let spec = everything();
    let mut fit = Fit::default();
    let json = fit.object(&Node::from_json(&serde_json::to_value(&spec).unwrap()), &JOB, &Path::root()).unwrap();
    assert_eq!(fit.faults, []);
    assert_eq!(serde_json::from_value::<JobSpec>(Value::Object(json)).unwrap(), spec);
}

fn names_of(object: &Object, names: &mut BTreeSet<&'static str>) {
    for field in object.fields {
        names.insert(field.name);
        let mut kind = field.kind;
        while let Kind::List(inner) = kind {
            kind = *inner;
        }
        if let Kind::Object(inner) | Kind::OneOf(inner) = kind {
            names_of(inner, names);
        }
    }
}

fn keys_of(json: &Value, keys: &mut BTreeSet<String>) {
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                keys.insert(name.clone());
                keys_of(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys_of(item, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The list has no field that the types lack.
#[test]
fn the_list_has_no_other_field() {
    let mut names = BTreeSet::new();
    names_of(&JOB, &mut names);
    names_of(&super::shape::OPERATOR, &mut names);
    names_of(&super::shape::SOURCE, &mut names);
    names_of(&super::shape::SINK, &mut names);
    for (_, object) in OPERATORS.iter().chain(SOURCES).chain(SINKS).chain(CODECS) {
        names_of(object, &mut names);
    }
    let mut keys = BTreeSet::new();
    keys_of(&serde_json::to_value(everything()).unwrap(), &mut keys);
    let unknown: Vec<_> = names.iter().filter(|name| !keys.contains(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn durations() {
    for (text, ms) in [
        ("0", 0),
        ("1500", 1_500),
        ("10s", 10_000),
        ("500ms", 500),
        ("1m", 60_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("5 minutes", 300_000),
        ("1 day 2 hours", 93_600_000),
        ("-2s", -2_000),
    ] {
        assert_eq!(duration::parse(text), Ok(ms), "{text}");
    }
    for text in ["", "s", "10 parsecs", "1.5s", "--1s", "10s!", "999999999999d", "9223372036854775808"] {
        assert!(duration::parse(text).is_err(), "{text}");
    }
}
