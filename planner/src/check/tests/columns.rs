//! Columns that a spec does not declare (JOB-6): held by the source's options, still to be sampled, or refused.

use super::{bound, changed, found, gives};
use crate::check::columns::{of_source, pending, unchecked};
use crate::check::{check, notices};
use crate::compile::compile;
use crate::explain;
use crate::spec::{Horizon, JobSpec};
use serde_json::{Value, json};

fn undeclared(changes: &[(&str, Value)]) -> Value {
    let mut json = changed(changes);
    json["sources"][0].as_object_mut().unwrap().remove("schema");
    json
}

/// JOB-6, JOB-8: such a spec is valid, has no plan, and says so; what reads unknown columns need not be bound.
#[test]
fn a_source_that_is_to_be_sampled_is_pending() {
    let mut spec: JobSpec = serde_json::from_value(undeclared(&[])).unwrap();
    assert_eq!(check(&spec, Horizon::Local), []);
    assert_eq!(pending(&spec), [&spec.sources[0]]);
    assert_eq!(unchecked(&spec), [true; 5]);
    assert!(notices(&spec).iter().any(|notice| notice.contains("source 'bids' declares no columns")));
    let faults = compile(&spec, Horizon::Local).unwrap_err().0;
    assert_eq!(faults.iter().map(|fault| fault.code.as_str()).collect::<Vec<_>>(), ["schema_pending"]);
    let text = explain::pending::text(&spec);
    assert!(text.contains("operator bids x2: source kafka\n  columns unknown until the first start\n"), "{text}");
    assert!(text.contains("edge slim -> count\n"), "{text}");
    let json = explain::pending::to_json(&spec);
    assert_eq!((&json["pending"], &json["sources"], &json["operators"][1]["columns"]), (&json!(true), &json!(["bids"]), &Value::Null));
    assert!(explain::pending::dot(&spec).contains("\"bids\" -> \"slim\""));
    // Once its columns are there nothing may stay unbound.
    spec.sources[0].schema = serde_json::from_value(json!([{"name": "bidder", "type": "BIGINT"}])).unwrap();
    assert!(check(&spec, Horizon::Local).iter().any(|fault| fault.code == "unbound"));
}

/// What needs no columns is checked all the same.
#[test]
fn a_pending_spec_meets_every_other_rule() {
    let processing = undeclared(&[("/sources/0/time", json!({"mode": "processing_time"}))]);
    assert_eq!(found(processing, Horizon::Local), [("window_without_time".to_owned(), "operators[2]".to_owned())]);
    let empty = undeclared(&[("/operators/2/config/aggregates", json!([])), ("/operators/2/config/keys", json!([]))]);
    assert_eq!(found(empty, Horizon::Local), [("empty_window".to_owned(), "operators[2].config".to_owned())]);
}

/// JOB-6: generate templates and memory messages are looked at without connecting; others have to declare.
#[test]
fn rows_in_the_options_give_their_columns() {
    let with = |config: Value, codec: Value| {
        let kind = config["type"].clone();
        undeclared(&[
            ("/sources/0/input_type", kind),
            ("/sources/0/config", config),
            ("/sources/0/codec", codec),
            ("/sources/0/time/timestamp_field", json!("ts")),
        ])
    };
    let template =
        json!({"type": "generate", "context": "{\"bidder\": 1, \"price\": 42, \"who\": \"{{counter}}\", \"ts\": 1757000000000}"});
    let spec = bound(with(template, json!({"type": "json"})));
    let columns: Vec<String> = of_source(&spec.sources[0]).iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
    assert_eq!(columns, ["bidder BIGINT", "price BIGINT", "who TEXT", "ts BIGINT"]);
    // EV-1: integers are event times in milliseconds.
    assert_eq!(check(&spec, Horizon::Local), []);
    assert!(pending(&spec).is_empty());
    compile(&spec, Horizon::Local).unwrap();
    let messages = json!({"type": "memory", "messages": ["{\"bidder\": 1, \"ts\": 1}", "{\"price\": 2.5}", "{\"bidder\": null}"]});
    let spec = bound(with(messages, json!({"type": "json"})));
    let columns: Vec<String> = of_source(&spec.sources[0]).iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
    assert_eq!(columns, ["bidder BIGINT", "ts BIGINT", "price DOUBLE PRECISION"]);
    let refused = |config: Value, code: &str| {
        let faults = found(with(config, json!({"type": "json"})), Horizon::Local);
        assert!(faults.contains(&(code.to_owned(), "sources[0].schema".to_owned())), "{code}: {faults:?}");
    };
    refused(json!({"type": "generate", "context": "{\"__x\": 1}"}), "reserved_name");
    refused(json!({"type": "memory", "messages": ["[1]"]}), "bad_message");
    refused(json!({"type": "memory", "messages": []}), "no_columns");
    refused(json!({"type": "http", "address": "127.0.0.1:0"}), "no_columns");
    // Declared columns go over what the rows would say.
    gives(&[("/sources/0/input_type", json!("memory")), ("/sources/0/config", json!({"type": "memory", "messages": ["[1]"]}))], &[]);
}
