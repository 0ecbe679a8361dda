//! One row a rule on ordered edges.

use crate::check::check;
use crate::check::tests::bound;
use crate::spec::{Horizon, JobSpec};
use serde_json::{Value, json};

/// `in` (1) deals to `lane` (3) and `more` (3), which `out` (1) collects.
fn pool(changes: impl FnOnce(&mut Value)) -> JobSpec {
    let mut json = json!({
        "id": "pool",
        "operators": [
            {"id": "in", "kind": "source"},
            {"id": "lane", "kind": "map", "parallelism": 3},
            {"id": "more", "kind": "window", "parallelism": 3, "config": {
                "window": {"batch": {}}, "keys": ["value"], "aggregates": [{"expr": "count(*)", "as": "n"}]}},
            {"id": "out", "kind": "sink"}
        ],
        "edges": [
            {"id": "deal", "from": "in", "to": "lane", "ordered": true},
            {"id": "on", "from": "lane", "to": "more"},
            {"id": "collect", "from": "more", "to": "out", "ordered": true}
        ],
        "sources": [{"operator_id": "in", "input_type": "memory", "config": {"type": "memory"}}],
        "sinks": [{"operator_id": "out", "output_type": "drop", "config": {"type": "drop"}}]
    });
    changes(&mut json);
    bound(json)
}

#[track_caller]
fn says(changes: impl FnOnce(&mut Value), expected: &[&str]) {
    let faults = check(&pool(changes), Horizon::Local);
    assert_eq!(faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>(), expected);
}

/// JOB-5, STR-5: lanes of maps and batch windows, dealt to by one and collected by one.
#[test]
fn a_pool_is_legal() {
    says(|_| {}, &[]);
}

/// From one to one subtask order is kept anyway: such an edge is plain.
#[test]
fn one_lane_needs_no_turn() {
    says(
        |json| {
            json["operators"][1]["parallelism"] = json!(1);
            json["operators"][2]["parallelism"] = json!(1);
        },
        &[],
    );
}

#[test]
fn an_ordered_edge_has_one_subtask_at_an_end() {
    says(
        |json| json["edges"][1]["ordered"] = json!(true),
        &[
            "edge 'deal' deals batches out, but edge 'on' to 'more' does not collect them",
            "edge 'on' is ordered, but leads from 3 to 3 subtasks",
        ],
    );
    says(
        |json| json["operators"][0]["parallelism"] = json!(2),
        &["edge 'deal' is ordered, but leads from 2 to 3 subtasks", "edge 'collect' collects in order what no ordered edge has dealt out"],
    );
}

#[test]
fn what_is_dealt_is_collected() {
    says(
        |json| json["edges"][2]["ordered"] = json!(false),
        &["edge 'deal' deals batches out, but edge 'collect' to 'out' does not collect them"],
    );
    says(
        |json| json["edges"][1]["partitioned"] = json!(true),
        &["edge 'deal' deals batches out, but edge 'on' to 'more' does not collect them"],
    );
    says(|json| json["edges"][0]["ordered"] = json!(false), &["edge 'collect' collects in order what no ordered edge has dealt out"]);
}

#[test]
fn lanes_are_stateless_and_alone() {
    says(
        |json| json["operators"][1] = json!({"id": "lane", "kind": "union", "parallelism": 3}),
        &["edge 'deal' deals batches out, but the union 'lane' cannot be a lane"],
    );
    says(
        |json| {
            json["operators"][1] =
                json!({"id": "lane", "kind": "buffer", "parallelism": 3, "config": {"memory": {"capacity": 5, "timeout_ms": 5}}});
        },
        &["edge 'deal' deals batches out, but the buffer 'lane' cannot be a lane"],
    );
    let second = |json: &mut Value, to: &str| {
        json["operators"].as_array_mut().unwrap().push(json!({"id": "more-in", "kind": "source"}));
        json["sources"]
            .as_array_mut()
            .unwrap()
            .push(json!({"operator_id": "more-in", "input_type": "memory", "config": {"type": "memory"}}));
        json["edges"].as_array_mut().unwrap().push(json!({"id": "beside", "from": "more-in", "to": to}));
    };
    says(|json| second(json, "lane"), &["edge 'deal' deals batches out, but the lane 'lane' has another input"]);
    says(
        |json| {
            json["operators"][2] = json!({"id": "more", "kind": "map", "parallelism": 3});
            second(json, "out");
        },
        &["edge 'deal' deals batches out, but 'out', which edge 'collect' collects into, has another input"],
    );
    says(
        |json| {
            json["operators"].as_array_mut().unwrap().push(json!({"id": "side", "kind": "sink"}));
            json["sinks"].as_array_mut().unwrap().push(json!({"operator_id": "side", "output_type": "drop", "config": {"type": "drop"}}));
            json["edges"].as_array_mut().unwrap().push(json!({"id": "fork", "from": "lane", "to": "side"}));
        },
        &["edge 'deal' deals batches out, but the lane 'lane' has 2 outputs"],
    );
}

/// JOB-5: ordered goes with no other way of finding a subtask.
#[test]
fn ordered_excludes_other_routings() {
    says(|json| json["edges"][0]["partitioned"] = json!(true), &["edge 'deal' is both ordered and partitioned"]);
    says(|json| json["edges"][2]["broadcast"] = json!(true), &["edge 'collect' is both ordered and broadcast"]);
    says(
        |json| {
            json["operators"][2]["config"]["window"] = json!({"tumbling": {"size_ms": 1000}});
            json["operators"][2]["parallelism"] = json!(1);
            json["edges"][1]["ordered"] = json!(true);
            json["edges"][2]["ordered"] = json!(false);
            json["sources"][0]["codec"] = json!({"type": "json"});
            json["sources"][0]["schema"] = json!([{"name": "value", "type": "BIGINT"}]);
            json["sources"][0]["time"] = json!({"mode": "event_time", "timestamp_field": "value", "watermark": {}});
        },
        &["edge 'on' into the window 'more' cannot be ordered: it is partitioned by the window's keys"],
    );
}

/// Routes of bad records may leave lanes, but none may lead into what is ordered.
#[test]
fn routes_and_lanes() {
    let route = |json: &mut Value, to: &str| {
        json["sources"][0]["on_error"] = json!({"policy": "route", "to": to});
        json["operators"].as_array_mut().unwrap().push(json!({"id": "dead", "kind": "sink"}));
        json["sinks"].as_array_mut().unwrap().push(json!({"operator_id": "dead", "output_type": "drop", "config": {"type": "drop"}}));
        if to != "dead" {
            json["edges"].as_array_mut().unwrap().push(json!({"id": "x", "from": "in", "to": "dead"}));
        }
    };
    says(|json| route(json, "dead"), &[]);
    says(
        |json| {
            route(json, "out");
            json["operators"][1]["config"] = json!({"project": ["value"]});
            json["operators"][2] = json!({"id": "more", "kind": "map", "parallelism": 3});
        },
        &["the error route of source 'in' leads from map 'more' to 'out', which is also a normal edge"],
    );
    says(
        |json| {
            route(json, "dead");
            json["operators"].as_array_mut().unwrap().push(json!({"id": "other", "kind": "source"}));
            json["sources"]
                .as_array_mut()
                .unwrap()
                .push(json!({"operator_id": "other", "input_type": "memory", "config": {"type": "memory"},
                "on_error": {"policy": "route", "to": "lane"}}));
            json["operators"].as_array_mut().unwrap().push(json!({"id": "end", "kind": "sink"}));
            json["sinks"].as_array_mut().unwrap().push(json!({"operator_id": "end", "output_type": "drop", "config": {"type": "drop"}}));
            json["edges"].as_array_mut().unwrap().push(json!({"id": "y", "from": "other", "to": "end"}));
        },
        &[
            "'other' routes rows to 'lane', which takes the batches of an ordered edge",
            "the inputs of map 'lane' differ: the error route of 'other' has 6 columns instead of 1 (the first is 'in')",
        ],
    );
}
