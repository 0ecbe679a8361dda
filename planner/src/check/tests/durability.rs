//! The input log of a source (WAL-1, WAL-4).

use super::{bound, changed, check, gives, notices};
use crate::compile::compile;
use crate::plan::Work;
use crate::spec::{DurabilityBackend, Horizon};
use serde_json::{Value, json};

/// The sample with an http source for its own, and a log.
fn logged(config: Value, durability: Value) -> Vec<(&'static str, Value)> {
    let mut config = config;
    config["type"] = json!("http");
    config["address"] = json!("127.0.0.1:0");
    vec![
        ("/sources/0/input_type", json!("http")),
        ("/sources/0/config", config),
        ("/sources/0/durability", durability),
        ("/operators/0/parallelism", json!(1)),
    ]
}

/// WAL-1: every field, and each value that is refused with its place.
#[test]
fn what_a_log_may_be() {
    let with = |durability: Value, expected: &[(&str, &str)]| gives(&logged(json!({}), durability), expected);
    with(json!({"enabled": true}), &[]);
    for sync in ["per_entry", "group_commit"] {
        with(json!({"enabled": true, "sync": sync, "backend": "object_store", "compression": "zstd", "path": "a/b-1_2.c"}), &[]);
    }
    let path = "sources[0].durability";
    with(json!({"enabled": true, "sync": "periodic"}), &[("periodic_loss", &format!("{path}.sync"))]);
    with(json!({"enabled": true, "sync": "periodic", "allow_loss": true}), &[]);
    for compression in ["none", "lz4", "zstd"] {
        with(json!({"enabled": true, "compression": compression}), &[]);
    }
    for compression in ["gzip", "", "LZ4"] {
        with(json!({"enabled": true, "compression": compression}), &[("unknown_compression", &format!("{path}.compression"))]);
    }
    for bad in ["/var/log", "..", "a/../b", "", "a//b", "a/", ".", "a b", "a\\b"] {
        with(json!({"enabled": true, "path": bad}), &[("bad_path", &format!("{path}.path"))]);
    }
    let received = logged(json!({"acknowledge": "received"}), json!({"enabled": true}));
    gives(&received, &[("received_before_log", path)]);
    gives(&logged(json!({"acknowledge": "received"}), json!({"enabled": false})), &[]);
}

/// WAL-1: a source that is read again by itself needs none, and is told so.
#[test]
fn a_log_is_for_what_cannot_be_read_again() {
    gives(&[("/sources/0/durability", json!({"enabled": true}))], &[("log_not_needed", "sources[0].durability")]);
    gives(&[("/sources/0/durability", json!({"enabled": false}))], &[]);
}

/// The plan has what was asked for, and nothing where it is off.
#[test]
fn the_plan_has_the_log() {
    let planned = |durability: Value| {
        let plan = compile(&bound(changed(&logged(json!({}), durability))), Horizon::Local).unwrap();
        let works = plan.operators();
        works
            .filter_map(|operator| if let Work::Source(work) = &operator.work { Some(work.durability.clone()) } else { None })
            .next()
            .unwrap()
    };
    assert_eq!(planned(json!({"enabled": true, "backend": "object_store"})).unwrap().backend, DurabilityBackend::ObjectStore);
    assert_eq!(planned(json!({"enabled": false})), None);
}

/// WAL-4: what a lost disk costs a job that may go on elsewhere is said, with the way out.
#[test]
fn a_sealed_job_with_a_local_log_is_warned() {
    let told = |horizon: &str, durability: Value| {
        let mut changes = logged(json!({}), durability);
        changes.push(("/horizon", json!(horizon)));
        let spec = bound(changed(&changes));
        assert_eq!(check(&spec, Horizon::Local), []);
        notices(&spec).into_iter().filter(|notice| notice.contains("input log")).collect::<Vec<_>>()
    };
    let warned = told("sealed", json!({"enabled": true}));
    assert_eq!(warned.len(), 1);
    assert!(warned[0].contains("rows after the last checkpoint") && warned[0].contains("'object_store'"), "{warned:?}");
    assert!(told("local", json!({"enabled": true})).is_empty());
    assert!(told("sealed", json!({"enabled": true, "backend": "object_store"})).is_empty());
    assert!(told("sealed", json!({"enabled": false})).is_empty());
}
