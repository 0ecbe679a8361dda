//! Equal content, changed content, and what may change under one version.

use super::{differences, listed, with_tuning_of};
use crate::check::tests::{bound, changed, sample};
use crate::spec::JobSpec;
use serde_json::{Value, json};

fn against(changes: &[(&str, Value)]) -> Vec<String> {
    differences(&bound(sample()), &bound(changed(changes)))
}

/// JOB-1: content is what the user wrote; whether it is bound does not matter.
#[test]
fn bound_forms_are_no_content() {
    let unbound: JobSpec = serde_json::from_value(sample()).unwrap();
    assert_eq!(differences(&unbound, &bound(sample())), Vec::<String>::new());
}

/// JOB-1: each difference is named where the user wrote it, parts by their ids.
#[test]
fn differences_are_named_by_path() {
    assert_eq!(against(&[("/parallelism", json!(3))]), ["parallelism"]);
    assert_eq!(against(&[("/sources/0/config/topics", json!(["other"]))]), ["sources[bids].config.topics[0]"]);
    assert_eq!(against(&[("/sources/0/config/topics", json!(["bids", "more"]))]), ["sources[bids].config.topics"]);
    assert_eq!(
        against(&[("/operators/2/config/aggregates/0/expr", json!("sum(auction)"))]),
        ["operators[count].config.aggregates[total].expr"]
    );
    assert_eq!(against(&[("/sources/0/schema/1/not_null", json!(false))]), ["sources[bids].schema[bidder].not_null"]);
    // How time is cut, and which column says when, is content like any other.
    assert_eq!(
        against(&[("/operators/2/config/window/tumbling/offset_ms", json!(5))]),
        ["operators[count].config.window.tumbling.offset_ms"]
    );
    assert_eq!(
        against(&[("/operators/2/config/window", json!({"session": {"gap_ms": 60000}}))]),
        ["operators[count].config.window.session", "operators[count].config.window.tumbling"]
    );
    assert_eq!(against(&[("/operators/2/config/timestamp_field", json!("date_time"))]), ["operators[count].config.timestamp_field"]);
    assert_eq!(against(&[("/operators/2/config/emit_empty", json!({"horizon_ms": 5}))]), ["operators[count].config.emit_empty"]);
    assert_eq!(against(&[("/sources/0/time/late_event_policy", json!("update"))]), ["sources[bids].time.late_event_policy"]);
    // A renamed operator is one less and one more.
    assert_eq!(against(&[("/operators/4/id", json!("copy"))]), ["operators[topic] (removed)", "operators[copy] (added)"]);
    let mut turned = sample();
    turned["edges"].as_array_mut().unwrap().reverse();
    assert_eq!(differences(&bound(sample()), &bound(turned)), ["edges (order)"]);
}

/// STR-6: what tunes a job may change under one version, the job itself not.
#[test]
fn tuning_is_no_other_job() {
    let old = bound(sample());
    let tunings = [
        ("/parallelism", json!(5)),
        ("/operators/1/parallelism", json!(4)),
        ("/rescale", json!(true)),
        ("/resources", json!({"inflight_bytes": 1_000_000})),
        ("/checkpoint", json!({"epoch_ms": 100})),
        ("/restart", json!({"max_attempts": 9})),
        ("/result_retention_rows", json!(5)),
        ("/result_retention_ms", json!(5_000)),
    ];
    for tuning in &tunings {
        let new = bound(changed(std::slice::from_ref(tuning)));
        assert_eq!(differences(&old, &new).len(), 1, "{tuning:?}");
        assert_eq!(differences(&old, &with_tuning_of(&new, &old)), Vec::<String>::new(), "{tuning:?}");
    }
    let shape = json!({"sliding": {"size_ms": 60000, "slide_ms": 30000}});
    for other in [("/operators/2/config/window", shape), ("/operators/2/config/timestamp_field", json!("date_time"))] {
        let new = bound(changed(std::slice::from_ref(&other)));
        assert_ne!(differences(&old, &with_tuning_of(&new, &old)), Vec::<String>::new(), "{other:?}");
    }
    for other in [("/max_parallelism", json!(64)), ("/operators/2/config/keys", json!(["price"])), ("/state", json!({"max_bytes": 9}))] {
        let new = bound(changed(std::slice::from_ref(&other)));
        assert_eq!(differences(&old, &with_tuning_of(&new, &old)).len(), 1, "{other:?}");
    }
}

#[test]
fn long_lists_are_cut() {
    let paths: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(listed(&paths, 2), "a, b and 1 more");
    assert_eq!(listed(&paths, 3), "a, b, c");
}
