//! The table of fields, line by line (JOB-3, JOB-9): each field is read with a value that is not its
//! default, stored, and printed back as YAML and as JSON; and each default is the one of the table.

use crate::yaml::{parse, print, to_json};
use serde_json::{Value, json};
use weir_planner::check::check;
use weir_planner::spec::{Horizon, JobSpec};

/// A job with one of each, in which a field can be set.
fn base() -> Value {
    let window = |id: &str, shape: Value| json!({"id": id, "kind": "window", "config": {"window": shape, "keys": ["k"], "aggregates": [{"expr": "count(*)", "as": "n"}]}});
    let edge = |from: &str, to: &str| json!({"id": format!("{from}-{to}"), "from": from, "to": to});
    json!({
        "id": "j",
        "operators": [
            {"id": "in", "kind": "source"}, {"id": "out", "kind": "sink"}, {"id": "side", "kind": "sink"}, {"id": "m", "kind": "map"},
            window("w", json!({"tumbling": {"size_ms": 1000}})), {"id": "u", "kind": "union"}],
        "edges": [edge("in", "m"), edge("m", "w"), edge("w", "out"), edge("in", "u"), edge("u", "side")],
        "sources": [{"operator_id": "in", "input_type": "kafka", "config": {"brokers": ["b:1"], "topics": ["t"]}, "codec": {"type": "json"},
            "schema": [{"name": "k", "type": "BIGINT"}, {"name": "t", "type": "TIMESTAMP(3)"}],
            "time": {"mode": "event_time", "timestamp_field": "t", "watermark": {}}}],
        "sinks": [{"operator_id": "out", "output_type": "result"}, {"operator_id": "side", "output_type": "kafka", "config": {"brokers": ["b:1"], "topic": "o"}}],
    })
}

/// What the checks say of a field with the value of the table.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// Nothing: it works.
    Works,
    /// It is not available yet, with a way out, and nothing else.
    Later,
    /// Whatever its feature's state is: it works or is not available yet.
    Either,
}
use Fate::{Either, Later, Works};

/// Pointer, a value, the default (`null`: none), and what the checks say.
fn table() -> Vec<(&'static str, Value, Value, Fate)> {
    vec![
        ("/id", json!("other-1_X"), json!("j"), Works),
        ("/version", json!(7), json!(1), Works),
        ("/parallelism", json!(4), json!(1), Works),
        ("/max_parallelism", json!(64), json!(128), Works),
        ("/placement", json!("split"), json!("colocated"), Works),
        ("/node_ids", json!(["agent-1"]), Value::Null, Works),
        ("/rescale", json!(true), json!(false), Works),
        ("/rebalance/mode", json!("auto"), json!("off"), Works),
        ("/rebalance/pressure_streak", json!(5), json!(3), Works),
        ("/rebalance/cooldown_ms", json!(1000), json!(300_000), Works),
        ("/rebalance/memory_pct", json!(70), json!(90), Works),
        ("/rebalance/cpu_pct", json!(71), json!(90), Works),
        ("/recovery", json!("latest_savepoint"), json!("latest_checkpoint"), Works),
        ("/recovery", json!("fail"), json!("latest_checkpoint"), Works),
        ("/checkpoint/epoch_ms", json!(500), json!(1000), Works),
        ("/checkpoint/interval_ms", json!(20_000), json!(10_000), Works),
        ("/checkpoint/timeout_ms", json!(1000), json!(300_000), Works),
        ("/checkpoint/retention", json!(9), json!(3), Works),
        ("/restart/max_attempts", json!(9), json!(5), Works),
        ("/restart/window_ms", json!(9000), json!(60_000), Works),
        ("/restart/backoff_ms", json!(9), json!(500), Works),
        ("/restart/max_backoff_ms", json!(9000), json!(30_000), Works),
        ("/horizon", json!("local"), Value::Null, Works),
        ("/horizon", json!("sealed"), Value::Null, Works),
        ("/on_hub_loss", json!("continue"), json!("stop"), Later),
        ("/result_retention_rows", json!(5), json!(1_000_000), Works),
        ("/result_retention_ms", json!(5000), Value::Null, Works),
        ("/state/backend", json!("embedded_kv"), json!("embedded_kv"), Works),
        ("/state/format_version", json!(1), json!(1), Works),
        ("/state/ttl_ms", json!(5000), Value::Null, Later),
        ("/state/max_bytes", json!(5), Value::Null, Works),
        ("/resources/memory_bytes", json!(5), Value::Null, Later),
        ("/resources/cpu_millicores", json!(5), Value::Null, Later),
        ("/resources/inflight_bytes", json!(1 << 20), json!(64 << 20), Works),
        ("/operators/3/parallelism", json!(2), Value::Null, Works),
        ("/operators/3/config", json!({"filter": "k > 1"}), json!({}), Works),
        ("/operators/3/config", json!({"project": ["k", "k + 1 as l", "t"]}), json!({}), Works),
        (
            "/operators/4/config/window",
            json!({"tumbling": {"size_ms": 5000, "offset_ms": -1000}}),
            json!({"tumbling": {"size_ms": 1000, "offset_ms": 0}}),
            Works,
        ),
        (
            "/operators/4/config/window",
            json!({"tumbling": {"size_ms": 86_400_000, "offset_ms": 0, "timezone": "Europe/Berlin"}}),
            json!({"tumbling": {"size_ms": 1000, "offset_ms": 0}}),
            Works,
        ),
        (
            "/operators/4/config/window",
            json!({"sliding": {"size_ms": 5000, "slide_ms": 1000, "offset_ms": 10}}),
            json!({"tumbling": {"size_ms": 1000, "offset_ms": 0}}),
            Works,
        ),
        ("/operators/4/config/window", json!({"session": {"gap_ms": 5000}}), json!({"tumbling": {"size_ms": 1000, "offset_ms": 0}}), Works),
        (
            "/operators/4/config/window",
            json!({"cumulate": {"max_size_ms": 5000, "step_ms": 1000, "offset_ms": 10}}),
            json!({"tumbling": {"size_ms": 1000, "offset_ms": 0}}),
            Works,
        ),
        ("/operators/4/config/keys", json!([]), json!(["k"]), Works),
        (
            "/operators/4/config/aggregates",
            json!([{"expr": "sum(k)", "as": "s", "filter": "k > 3"}]),
            json!([{"expr": "count(*)", "as": "n"}]),
            Works,
        ),
        ("/operators/4/config/having", json!("n > 3"), Value::Null, Works),
        ("/operators/4/config/timestamp_field", json!("t"), Value::Null, Works),
        ("/operators/4/config/max_buffered_keys", json!(0), json!(65_536), Works),
        ("/operators/4/config/on_overflow", json!("fail"), json!("evict"), Works),
        ("/operators/4/config/emit_empty", json!({"horizon_ms": 5000}), Value::Null, Works),
        ("/edges/0/id", json!("x"), json!("in-m"), Works),
        ("/edges/0/partitioned", json!(true), json!(false), Works),
        ("/edges/0/broadcast", json!(true), json!(false), Works),
        ("/sources/0/codec", json!({"type": "csv", "header": true, "delimiter": ";"}), json!({"type": "json"}), Works),
        ("/sources/0/schema/0/type", json!("INTEGER"), json!("BIGINT"), Works),
        ("/sources/0/schema/0/not_null", json!(true), json!(false), Works),
        ("/sources/0/schema/0/timestamp_unit", json!("us"), Value::Null, Works),
        ("/sources/0/timestamp_unit", json!("s"), Value::Null, Works),
        ("/sources/0/time/timestamp_field", json!("k"), json!("t"), Works),
        ("/sources/0/time/watermark/strategy", json!("monotonous"), json!("bounded_out_of_orderness"), Works),
        ("/sources/0/time/watermark/out_of_orderness_ms", json!(5000), json!(0), Works),
        ("/sources/0/time/watermark/idle_timeout_ms", json!(0), json!(30_000), Works),
        ("/sources/0/time/watermark/max_future_ms", json!(5000), Value::Null, Works),
        ("/sources/0/time/watermark/alignment_ms", json!(5000), Value::Null, Works),
        ("/sources/0/time/allowed_lateness_ms", json!(5000), json!(0), Works),
        ("/sources/0/time/late_event_policy", json!("update"), json!("drop"), Works),
        ("/sources/0/time/idle_advance_ms", json!(5000), Value::Null, Works),
        ("/sources/0/on_error/policy", json!("skip"), json!("fail"), Works),
        ("/sources/0/batch/rows", json!(5), json!(8192), Works),
        ("/sources/0/batch/bytes", json!(5000), json!(1 << 20), Works),
        ("/sources/0/batch/linger_ms", json!(5), json!(10), Works),
        ("/sinks/1/codec", json!({"type": "json"}), Value::Null, Works),
        ("/sinks/1/delivery", json!("exactly_once"), json!("at_least_once"), Later),
        ("/sinks/1/config/key", json!(["k"]), Value::Null, Works),
    ]
}

/// Fields that go only together: all of one row are set in turn, the first is the one told of.
fn together() -> Vec<(Vec<(&'static str, Value)>, Fate)> {
    vec![
        (vec![("/operators/4/config/trigger_interval_ms", json!(5000)), ("/operators/4/config/trigger", json!("processing_time"))], Works),
        (
            vec![
                ("/sources/0/time/late_event_route", json!("late")),
                ("/sources/0/time/late_event_policy", json!("route")),
                ("/operators/6", json!({"id": "late", "kind": "sink"})),
                ("/sinks/2", json!({"operator_id": "late", "output_type": "drop"})),
            ],
            Either,
        ),
        (
            vec![
                ("/sources/0/on_error/to", json!("bad")),
                ("/sources/0/on_error/policy", json!("route")),
                ("/operators/6", json!({"id": "bad", "kind": "sink"})),
                ("/sinks/2", json!({"operator_id": "bad", "output_type": "drop"})),
            ],
            Either,
        ),
        (
            logged(
                json!({"enabled": true, "path": "p", "sync": "periodic", "allow_loss": true, "backend": "object_store", "compression": "lz4", "wal_wait_ms": 60000}),
            ),
            Works,
        ),
        (logged(json!({"enabled": true, "sync": "per_entry", "allow_loss": false, "backend": "local"})), Works),
        (vec![("/sinks/1/delivery", json!("upsert")), ("/sinks/1/key", json!(["k"]))], Later),
    ]
}

/// An input log, before a source that cannot be read again.
fn logged(durability: Value) -> Vec<(&'static str, Value)> {
    vec![
        ("/sources/0/durability", durability),
        ("/sources/0/input_type", json!("http")),
        ("/sources/0/config", json!({"address": "127.0.0.1:0"})),
    ]
}

/// Sets a value, making what is missing on the way.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let mut at = document;
    for part in pointer.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) => {
                let Value::Array(items) = at else { panic!("{pointer}: not a list") };
                while items.len() <= index {
                    items.push(Value::Null);
                }
                &mut items[index]
            }
            Err(_) => {
                if at.is_null() {
                    *at = json!({});
                }
                let Value::Object(fields) = at else { panic!("{pointer}: not a mapping") };
                fields.entry(part).or_insert(Value::Null)
            }
        };
    }
    *at = value;
}

fn read(text: &str) -> JobSpec {
    let mut document = parse(text).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    assert_eq!(document.jobs.len(), 1);
    document.jobs.remove(0)
}

/// The spec of a document as JSON text, after a check that YAML and JSON of it read back as the same.
fn round(document: &Value) -> JobSpec {
    let spec = read(&document.to_string());
    let yaml = print(&spec);
    assert_eq!(read(&yaml), spec, "the YAML reads back\n{yaml}");
    assert_eq!(read(&to_json(&spec).to_string()), spec, "the JSON reads back");
    spec
}

fn judged(document: &Value, fate: Fate, what: &str) {
    let mut parsed = parse(&document.to_string()).unwrap();
    assert_eq!(parsed.bind(), [], "{what}");
    let faults = check(&parsed.jobs[0], Horizon::Local);
    let later = faults.iter().filter(|fault| fault.code == "not_available" && !fault.hint.is_empty()).count();
    assert_eq!(faults.len(), later, "{what}: {faults:?}");
    match fate {
        Works => assert_eq!(faults, [], "{what}"),
        Later => assert_eq!(later, 1, "{what}: {faults:?}"),
        Either => {}
    }
}

/// Part 1.1: every line of the table.
#[test]
fn every_field_is_read_stored_and_printed_back() {
    let plain = serde_json::to_value(read(&base().to_string())).unwrap();
    judged(&base(), Works, "the base");
    for (pointer, value, default, fate) in table() {
        assert_eq!(plain.pointer(pointer).unwrap_or(&Value::Null), &default, "the default of {pointer}");
        let mut document = base();
        set(&mut document, pointer, value.clone());
        let spec = round(&document);
        let stored = serde_json::to_value(&spec).unwrap();
        // An empty list is left out.
        assert_eq!(stored.pointer(pointer).unwrap_or(&json!([])), &value, "{pointer}");
        judged(&document, fate, pointer);
    }
    for (fields, fate) in together() {
        let mut document = base();
        for (pointer, value) in &fields {
            set(&mut document, pointer, value.clone());
        }
        let stored = serde_json::to_value(round(&document)).unwrap();
        for (pointer, value) in fields.iter().filter(|(_, value)| !value.is_object()) {
            assert_eq!(stored.pointer(pointer), Some(value), "{pointer}");
        }
        judged(&document, fate, fields[0].0);
    }
}

/// Every duration may be written as `x_ms` in milliseconds or as text, and as `x`; both is an error.
#[test]
fn durations_have_two_spellings() {
    let mut seen = 0;
    for (pointer, value, ..) in table().into_iter().filter(|(pointer, ..)| pointer.ends_with("_ms")) {
        let Some(ms) = value.as_i64() else { continue };
        let mut first = base();
        set(&mut first, pointer, value.clone());
        let spec = read(&first.to_string());
        for (pointer, text) in [
            (pointer, json!(format!("{ms}ms"))),
            (pointer, json!(ms.to_string())),
            (pointer.strip_suffix("_ms").unwrap(), json!(ms)),
            (pointer.strip_suffix("_ms").unwrap(), json!(format!("{}s {}ms", ms / 1000, ms % 1000))),
        ] {
            let mut other = base();
            set(&mut other, pointer, text);
            assert_eq!(read(&other.to_string()), spec, "{pointer}");
        }
        set(&mut first, pointer.strip_suffix("_ms").unwrap(), json!("1s"));
        let faults = parse(&first.to_string()).err().unwrap_or_default();
        assert!(faults.iter().any(|fault| fault.code == "given_twice"), "{pointer}: {faults:?}");
        seen += 1;
    }
    assert!(seen > 10, "{seen} durations");
}

/// Part 3.4: a join is read, stored and printed back with all that it has, and refused with that one reason.
#[test]
fn a_join_is_read_and_refused() {
    let config = json!({"join_type": "full_outer", "left_from": "in", "right_from": "in2", "left_key": "k", "right_key": ["k", "t"], "lower_ms": -5, "upper_ms": 7,
        "left_timestamp": "t", "right_timestamp": "t", "ttl_ms": 3, "max_per_key": 2, "residual": "k > 1"});
    let source = |id: &str| json!({"operator_id": id, "input_type": "memory", "codec": "json", "schema": [{"name": "k", "type": "BIGINT"}, {"name": "t", "type": "BIGINT"}]});
    let document = json!({"id": "j", "operators": [{"id": "in", "kind": "source"}, {"id": "in2", "kind": "source"}, {"id": "x", "kind": "join", "config": config}, {"id": "out", "kind": "sink"}],
        "edges": [{"id": "a", "from": "in", "to": "x"}, {"id": "b", "from": "in2", "to": "x"}, {"id": "c", "from": "x", "to": "out"}],
        "sources": [source("in"), source("in2")], "sinks": [{"operator_id": "out", "output_type": "drop"}]});
    let stored = serde_json::to_value(round(&document)).unwrap();
    assert_eq!(stored["operators"][2]["config"], config);
    judged(&document, Later, "a join");
    let mut short = document;
    set(
        &mut short,
        "/operators/2/config",
        json!({"left_from": "in", "right_from": "in2", "left_key": "k", "right_key": "k", "window": "5s"}),
    );
    let stored = serde_json::to_value(round(&short)).unwrap();
    assert_eq!(stored["operators"][2]["config"]["window_ms"], 5000);
    assert_eq!(stored["operators"][2]["config"]["join_type"], "inner");
    assert_eq!(stored["operators"][2]["config"]["max_per_key"], 10_000);
}

/// Kinds by another name are the same operators; what they cannot be is refused.
#[test]
fn kinds_have_other_names() {
    let kind = |pointer: &str, kind: &str| {
        let mut document = base();
        set(&mut document, "/operators/3/config", json!({"filter": "k > 1"}));
        set(&mut document, pointer, json!(kind));
        document.to_string()
    };
    assert_eq!(read(&kind("/operators/3/kind", "filter")), read(&kind("/operators/3/kind", "map")));
    assert_eq!(read(&kind("/operators/4/kind", "aggregate")), read(&kind("/operators/4/kind", "window")));
    let faults = parse(&kind("/operators/3/kind", "udf")).err().unwrap();
    assert_eq!(faults.iter().map(|fault| fault.code.as_str()).collect::<Vec<_>>(), ["not_available"]);
    assert!(faults[0].hint.contains("map"), "{faults:?}");
}
