//! One row a rule on the routes of sources, and the side edges that they make.

use crate::check::check;
use crate::check::graph::Graph;
use crate::check::tests::{bound, changed, gives, sample};
use crate::plan::Port;
use crate::spec::{ErrorPolicy, Horizon};
use serde_json::{Value, json};

/// The sample with a sink `dead` that no edge leads to.
fn dead() -> Vec<(&'static str, Value)> {
    vec![
        ("/operators/-", json!({"id": "dead", "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": "dead", "output_type": "drop", "config": {"type": "drop"}})),
    ]
}

fn errors_to(to: &str) -> (&'static str, Value) {
    ("/sources/0/on_error", json!({"policy": "route", "to": to}))
}

fn late_to(to: &str) -> Vec<(&'static str, Value)> {
    vec![("/sources/0/time/late_event_policy", json!("route")), ("/sources/0/time/late_event_route", json!(to))]
}

fn with(more: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<(&'static str, Value)> {
    dead().into_iter().chain(more).collect()
}

#[track_caller]
fn says(changes: &[(&str, Value)], message: &str) {
    let faults = check(&bound(changed(changes)), Horizon::Local);
    assert_eq!(faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>(), [message]);
}

/// Side edges as `from>to port`, by ids.
fn sides(json: Value) -> Vec<String> {
    let spec = bound(json);
    assert_eq!(check(&spec, Horizon::Local), []);
    let id = |at: usize| spec.operators[at].id.as_str();
    let graph = Graph::of(&spec).unwrap();
    let port = |port: Port| match port {
        Port::Main => "main".to_owned(),
        Port::Error(id) => format!("errors of {id}"),
        Port::Late(id) => format!("late rows of {id}"),
    };
    graph.sides.edges.iter().map(|side| format!("{}>{} {}", id(side.from), id(side.to), port(side.port(&spec).unwrap()))).collect()
}

/// PLAN-5, KER-7: bad records leave the source and each map behind it. A sink that only a side edge
/// reaches is reached.
#[test]
fn an_error_route_leads_from_source_and_maps() {
    assert_eq!(sides(changed(&with([errors_to("dead")]))), ["bids>dead errors of bids", "slim>dead errors of slim"]);
}

/// PLAN-5, EV-5: late rows leave the window that judges them, rows without a time the source.
#[test]
fn a_late_route_leads_from_window_and_source() {
    assert_eq!(sides(changed(&with(late_to("dead")))), ["bids>dead late rows of bids", "count>dead late rows of count"]);
    let mut no_window = with(late_to("dead"));
    no_window.push(("/operators/2", json!({"id": "count", "kind": "map"})));
    assert_eq!(sides(changed(&no_window)), ["bids>dead late rows of bids"]);
}

/// Where a source's rows are judged by several windows, each of them routes; a window behind
/// another one finds nothing late, and one over batches does not judge.
#[test]
fn every_window_that_judges_routes() {
    let hour =
        json!({"window": {"tumbling": {"size_ms": 3_600_000}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(price)", "as": "total"}]});
    let day =
        json!({"window": {"tumbling": {"size_ms": 86_400_000}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(total)", "as": "total"}]});
    let mut changes = with(late_to("dead"));
    changes.extend([
        ("/operators/-", json!({"id": "hourly", "kind": "window", "config": hour})),
        ("/operators/-", json!({"id": "daily", "kind": "window", "config": day})),
        ("/edges/-", json!({"id": "e5", "from": "slim", "to": "hourly"})),
        ("/edges/-", json!({"id": "e6", "from": "hourly", "to": "daily"})),
        ("/edges/-", json!({"id": "e7", "from": "daily", "to": "out"})),
    ]);
    let expected = ["bids>dead late rows of bids", "count>dead late rows of count", "hourly>dead late rows of hourly"];
    assert_eq!(sides(changed(&changes)), expected);
}

/// JOB-4: each rule on the target of an error route names source and target.
#[test]
fn rules_on_error_routes() {
    let path = "sources[0].on_error.to";
    gives(&with([errors_to("nobody")])[2..], &[("unknown_operator", path)]);
    gives(&[("/sources/0/on_error", json!({"policy": "route"}))], &[("route_without_target", path)]);
    gives(&[("/sources/0/on_error", json!({"policy": "skip", "to": "out"}))], &[("route_without_policy", path)]);
    gives(&[errors_to("bids")], &[("bad_error_route", path)]);
    gives(&[errors_to("count")], &[("bad_error_route", path)]);
    gives(&[errors_to("slim")], &[("bad_error_route", path)]);
    says(&[errors_to("nobody")], "the error route of source 'bids' is the unknown operator 'nobody'");
    says(&[errors_to("bids")], "the error route of source 'bids' leads to the source itself");
    says(&[errors_to("count")], "the error route of source 'bids' is 'count', a window");
    says(&[errors_to("slim")], "the error route of source 'bids' to 'slim' is also a normal edge");
    let forked = with([errors_to("dead"), ("/edges/-", json!({"id": "e5", "from": "slim", "to": "dead"}))]);
    says(&forked, "the error route of source 'bids' leads from map 'slim' to 'dead', which is also a normal edge");
    let second = [
        ("/operators/-", json!({"id": "more", "kind": "source"})),
        ("/sources/-", json!({"operator_id": "more", "input_type": "memory", "config": {"type": "memory"}})),
        ("/operators/-", json!({"id": "end", "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": "end", "output_type": "drop", "config": {"type": "drop"}})),
        ("/edges/-", json!({"id": "e5", "from": "more", "to": "end"})),
        errors_to("more"),
    ];
    says(&second, "the error route of source 'bids' is 'more', a source");
}

/// JOB-4: the late route is a sink or map, not a source, not itself, not also a normal edge, and
/// does not lead back.
#[test]
fn rules_on_late_routes() {
    let path = "sources[0].time.late_event_route";
    gives(&late_to("nobody"), &[("unknown_operator", path)]);
    gives(&late_to("bids"), &[("bad_late_route", path)]);
    gives(&late_to("count"), &[("bad_late_route", path)]);
    gives(&late_to("slim"), &[("bad_late_route", path)]);
    gives(&late_to("x")[..1], &[("route_without_target", path)]);
    gives(&with(late_to("dead").split_off(1)), &[("route_without_policy", path)]);
    says(&late_to("out"), "the late route of source 'bids' leads from window 'count' to 'out', which is also a normal edge");
    let mut back = late_to("fix");
    back.extend([
        ("/operators/-", json!({"id": "fix", "kind": "map", "config": {"project": ["bidder", "price"]}})),
        ("/edges/-", json!({"id": "e5", "from": "fix", "to": "count"})),
    ]);
    says(&back, "the late route of source 'bids' to 'fix' leads back into the window 'count', which finds rows late");
    gives(&[("/sources/0/time/late_event_policy", json!("update"))], &[]);
    let mut clocked = with(late_to("dead"));
    clocked.extend([
        ("/sources/0/time", json!({"late_event_policy": "route", "late_event_route": "dead"})),
        ("/operators/2", json!({"id": "count", "kind": "map"})),
    ]);
    clocked.drain(2..4);
    gives(&clocked, &[("processing_time", "sources[0].time.late_event_policy")]);
}

/// EV-5: a window that rows of two sources reach routes the late rows of both or of none. Windows of
/// their own may differ.
#[test]
fn a_window_has_one_late_policy() {
    let second = |policy: Value| {
        let mut source = sample()["sources"][0].clone();
        source["operator_id"] = json!("more");
        for (name, value) in policy.as_object().unwrap() {
            source["time"][name] = value.clone();
        }
        let mut both = with(late_to("dead"));
        both.extend([
            ("/operators/-", json!({"id": "more", "kind": "source"})),
            ("/sources/-", source),
            ("/operators/1", json!({"id": "slim", "kind": "union"})),
            ("/edges/-", json!({"id": "e5", "from": "more", "to": "slim"})),
        ]);
        both
    };
    let dropping = second(json!({}));
    gives(&dropping, &[("mixed_late_policies", "sources[1].time.late_event_policy")]);
    says(
        &dropping,
        "window 'count' takes rows of source 'bids', which routes late rows, and of source 'more', which drops them: it cannot tell them apart",
    );
    let routing = second(json!({"late_event_policy": "route", "late_event_route": "dead"}));
    assert_eq!(sides(changed(&routing)), ["bids>dead late rows of bids", "count>dead late rows of count", "more>dead late rows of more"]);
    let mut elsewhere = second(json!({"late_event_policy": "route", "late_event_route": "morgue"}));
    elsewhere.extend([
        ("/operators/-", json!({"id": "morgue", "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": "morgue", "output_type": "drop", "config": {"type": "drop"}})),
    ]);
    gives(&elsewhere, &[("mixed_late_policies", "sources[1].time.late_event_route")]);
    let mut apart = dropping;
    let window = sample()["operators"].as_array().unwrap().iter().find(|operator| operator["id"] == "count").unwrap().clone();
    let mut own = window;
    own["id"] = json!("own");
    apart.retain(|(path, _)| *path != "/operators/1");
    apart.extend([
        ("/operators/-", own),
        ("/operators/-", json!({"id": "end", "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": "end", "output_type": "drop", "config": {"type": "drop"}})),
    ]);
    for (path, value) in &mut apart {
        if *path == "/edges/-" {
            value["to"] = json!("own");
        }
    }
    apart.push(("/edges/-", json!({"id": "e6", "from": "own", "to": "end"})));
    assert_eq!(sides(changed(&apart)), ["bids>dead late rows of bids", "count>dead late rows of count"]);
}

/// Routes may meet edges and each other where their columns are the same; otherwise both are named.
#[test]
fn routes_that_meet_have_the_same_columns() {
    says(
        &[errors_to("out")],
        "the inputs of sink 'out' differ: the error route of 'bids' has 6 columns instead of 4 (the first is 'count')",
    );
    let mut both = with([errors_to("dead")]);
    both.extend(late_to("dead"));
    says(
        &both,
        "the inputs of sink 'dead' differ: the late route of 'count' has 4 columns instead of 6 (the first is the error route of 'bids')",
    );
    let mut second = sample()["sources"][0].clone();
    second["operator_id"] = json!("more");
    second["on_error"] = json!({"policy": "route", "to": "dead"});
    let mut two = with([errors_to("dead")]);
    two.extend([
        ("/operators/-", json!({"id": "more", "kind": "source"})),
        ("/sources/-", second),
        ("/operators/1", json!({"id": "slim", "kind": "union"})),
        ("/edges/-", json!({"id": "e5", "from": "more", "to": "slim"})),
    ]);
    assert_eq!(sides(changed(&two)), ["bids>dead errors of bids", "more>dead errors of more"]);
}

/// KER-7: a map follows the strictest policy of the sources upstream, and routes to all of theirs.
#[test]
fn maps_follow_the_strictest_policy() {
    let policies = [("fail", ErrorPolicy::Fail), ("skip", ErrorPolicy::Skip), ("route", ErrorPolicy::Route)];
    for (first, one) in policies {
        for (second, other) in policies {
            let policy = |name: &str| if name == "route" { json!({"policy": name, "to": "dead"}) } else { json!({"policy": name}) };
            let mut more = sample()["sources"][0].clone();
            more["operator_id"] = json!("more");
            more["on_error"] = policy(second);
            let mut changes = with([("/sources/0/on_error", policy(first)), ("/sources/-", more)]);
            changes.extend([
                ("/operators/-", json!({"id": "more", "kind": "source"})),
                ("/edges/-", json!({"id": "e5", "from": "more", "to": "slim"})),
                ("/edges/-", json!({"id": "e6", "from": "bids", "to": "dead"})),
            ]);
            if first == "route" || second == "route" {
                changes.pop();
            } else {
                changes.retain(|(_, value)| value["id"] != "dead" && value["operator_id"] != "dead");
                changes.pop();
            }
            let spec = bound(changed(&changes));
            assert_eq!(check(&spec, Horizon::Local), [], "{first} {second}");
            let graph = Graph::of(&spec).unwrap();
            let expected = if one == ErrorPolicy::Fail || other == ErrorPolicy::Fail {
                ErrorPolicy::Fail
            } else if one == ErrorPolicy::Route || other == ErrorPolicy::Route {
                ErrorPolicy::Route
            } else {
                ErrorPolicy::Skip
            };
            assert_eq!(graph.sides.on_error[1], expected, "{first} {second}");
            let routes = graph.sides.edges.iter().filter(|side| side.from == 1).count();
            assert_eq!(routes, usize::from(expected == ErrorPolicy::Route), "{first} {second}");
        }
    }
}

/// A map behind an error route cannot route there again: it skips. One behind a late route can.
#[test]
fn maps_on_side_ways() {
    let told = |id: &str| {
        vec![("/operators/-", json!({"id": id, "kind": "map"})), ("/edges/-", json!({"id": format!("to-{id}"), "from": id, "to": "dead"}))]
    };
    let mut errors = with([errors_to("told")]);
    errors.extend(told("told"));
    let spec = bound(changed(&errors));
    assert_eq!(check(&spec, Horizon::Local), []);
    let graph = Graph::of(&spec).unwrap();
    assert_eq!((graph.sides.on_error[1], graph.sides.on_error[6]), (ErrorPolicy::Route, ErrorPolicy::Skip));
    assert_eq!(sides(changed(&errors)), ["bids>told errors of bids", "slim>told errors of slim"]);
    let mut late = with([errors_to("told")]);
    late.extend(late_to("fix"));
    late.extend([("/operators/-", json!({"id": "fix", "kind": "map"})), ("/edges/-", json!({"id": "e8", "from": "fix", "to": "end"}))]);
    late.extend(told("told"));
    late.extend([
        ("/operators/-", json!({"id": "end", "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": "end", "output_type": "drop", "config": {"type": "drop"}})),
    ]);
    let expected = [
        "bids>fix late rows of bids", "bids>told errors of bids", "slim>told errors of slim", "count>fix late rows of count",
        "fix>told errors of fix",
    ];
    assert_eq!(sides(changed(&late)), expected);
}

/// Routes of several sources may make a cycle that no edge is part of alone; it names its members.
#[test]
fn a_cycle_through_routes_is_told() {
    let mut second = sample()["sources"][0].clone();
    second["operator_id"] = json!("more");
    second["time"]["late_event_policy"] = json!("route");
    second["time"]["late_event_route"] = json!("fix2");
    let count = sample()["operators"][2]["config"].clone();
    let mut changes = late_to("fix1");
    changes.extend([
        ("/operators/-", json!({"id": "more", "kind": "source"})),
        ("/sources/-", second),
        ("/operators/-", json!({"id": "count2", "kind": "window", "config": count})),
        ("/operators/-", json!({"id": "fix1", "kind": "map", "config": {"project": ["bidder", "price"]}})),
        ("/operators/-", json!({"id": "fix2", "kind": "map", "config": {"project": ["bidder", "price"]}})),
        ("/edges/-", json!({"id": "e5", "from": "more", "to": "count2"})),
        ("/edges/-", json!({"id": "e6", "from": "count2", "to": "out"})),
        ("/edges/-", json!({"id": "e7", "from": "fix1", "to": "count2"})),
        ("/edges/-", json!({"id": "e8", "from": "fix2", "to": "count"})),
    ]);
    says(&changes, "the edges and the routes of sources form a cycle through count, count2, fix1, fix2");
}
