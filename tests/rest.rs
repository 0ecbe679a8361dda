//! The REST door: the recommended flow, both body types, one problem format.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use reqwest::Method;
use serde_json::{Value, json};
use support::process::{Weir, temporary};
use support::rest::Rest;
use support::{PATIENCE, until};

/// A bounded job over VALUES into its result table: k to count per second.
fn document(id: &str) -> Value {
    json!({
        "id": id,
        "operators": [
            { "id": "source-1", "kind": "source" },
            { "id": "window-1", "kind": "window", "config": {
                "window": { "tumbling": { "size_ms": 1000 } }, "keys": ["k"], "aggregates": [{ "expr": "count(*)", "as": "n" }] } },
            { "id": "sink-1", "kind": "sink" }
        ],
        "edges": [
            { "id": "e1", "from": "source-1", "to": "window-1" },
            { "id": "e2", "from": "window-1", "to": "sink-1" }
        ],
        "sources": [{
            "operator_id": "source-1", "input_type": "values", "config": { "rows": [[1, 0], [1, 10], [2, 20]] },
            "schema": [{ "name": "k", "type": "BIGINT" }, { "name": "ts", "type": "BIGINT" }],
            "time": { "mode": "event_time", "timestamp_field": "ts", "watermark": { "strategy": "monotonous" } }
        }],
        "sinks": [{ "operator_id": "sink-1", "output_type": "result", "config": {} }]
    })
}

fn state(rest: &Rest, job: &str) -> String {
    rest.get(&format!("/api/v1/jobs/{job}")).expect(200)["state"].as_str().unwrap_or_default().to_owned()
}

/// API-1: validate, create as stopped, look at detail, set running.
#[test]
fn the_recommended_flow_works() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let validated = rest.post("/api/v1/jobs/validate", &document("flow")).expect(200);
    assert!(validated.get("plan").is_some(), "validate shows the plan: {validated}");
    assert_eq!(rest.get("/api/v1/jobs").expect(200)["items"], json!([]), "validate makes nothing");

    let created = rest.post("/api/v1/jobs", &json!({ "spec": document("flow") })).expect(201);
    assert_eq!(created["id"], "flow", "{created}");
    let detail = rest.get("/api/v1/jobs/flow/detail").expect(200);
    assert_eq!((&detail["desired_state"], &detail["spec"]["id"]), (&json!("stopped"), &json!("flow")), "{detail}");
    assert!(["created", "stopped"].contains(&state(&rest, "flow").as_str()));

    let plan = rest.get("/api/v1/jobs/flow/plan");
    assert_eq!(plan.status, 200);
    assert!(plan.body.to_string().contains("window-1"), "{}", plan.body);

    rest.put("/api/v1/jobs/flow/desired-state", &json!({ "state": "running" })).expect(202);
    until("it is finished", PATIENCE, || (state(&rest, "flow") == "finished").then_some(()));
    assert_eq!(weir.sql().rows("SELECT k, n FROM flow ORDER BY k"), [["1", "2"], ["2", "1"]]);

    let listed = rest.get("/api/v1/jobs").expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["items"][0]["id"], "flow");

    let deleted = rest.send(Method::DELETE, "/api/v1/jobs/flow", None);
    assert!([200, 202, 204].contains(&deleted.status), "{deleted:?}");
    until("it is gone", PATIENCE, || (rest.get("/api/v1/jobs/flow").status == 404).then_some(()));
}

/// JOB-7, API-2: all faults together, each with its path; 422.
#[test]
fn a_document_with_faults_gets_all_of_them() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let mut bad = document("bad");
    bad["paralelism"] = json!(2);
    bad["operators"][1]["config"]["keys"] = json!(["nope"]);
    bad["edges"][1]["to"] = json!("sink-9");
    for path in ["/api/v1/jobs/validate", "/api/v1/jobs"] {
        let answer = rest.post(path, &bad);
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        let text = answer.body["errors"].to_string();
        assert!(
            text.contains("paralelism") && text.contains("parallelism"),
            "an unknown field is named with the nearest known one: {text}"
        );
        for field in ["code", "message"] {
            assert!(answer.body["errors"].as_array().is_some_and(|e| e.iter().all(|e| e[field].is_string())), "{text}");
        }
    }
    bad.as_object_mut().unwrap().remove("paralelism");
    let text = rest.post("/api/v1/jobs/validate", &bad).expect(422)["errors"].to_string();
    assert!(text.contains("sink-9") && text.contains("edges[1]"), "{text}");
    assert_eq!(rest.get("/api/v1/jobs").expect(200)["items"], json!([]), "nothing was made");

    // YAML faults have their line.
    let yaml = "id: bad\noperators:\n  - id: source-1\n    kind: sauce\n";
    let answer = rest.post_yaml("/api/v1/jobs/validate", yaml).expect(422);
    assert!(answer["errors"].to_string().contains("\"line\":4"), "{answer}");
}

#[test]
fn statuses_are_used_as_http_means_them() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    for (method, path) in [
        (Method::GET, "/api/v1/jobs/nobody"),
        (Method::GET, "/api/v1/jobs/nobody/detail"),
        (Method::GET, "/api/v1/jobs/nobody/plan"),
        (Method::GET, "/api/v1/nothing"),
        (Method::DELETE, "/api/v1/jobs/nobody"),
    ] {
        let answer = rest.send(method.clone(), path, None);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    let missing = rest.put("/api/v1/jobs/nobody/desired-state", &json!({ "state": "running" })).expect(404);
    assert!(missing["message"].as_str().is_some_and(|m| m.contains("nobody")) && missing["code"].is_string(), "{missing}");

    rest.post("/api/v1/jobs", &document("one")).expect(201);
    // JobSpec.version: equal content is a no-op, other content is a conflict.
    let again = rest.post("/api/v1/jobs", &document("one"));
    assert!([200, 201].contains(&again.status), "{again:?}");
    let mut other = document("one");
    other["operators"][1]["config"]["window"]["tumbling"]["size_ms"] = json!(2000);
    let conflict = rest.post("/api/v1/jobs", &other).expect(409);
    assert!(conflict["message"].as_str().is_some_and(|m| m.contains("one")), "{conflict}");

    let broken = rest.send(Method::POST, "/api/v1/jobs", Some(("application/json", "{\"id\": ".to_owned())));
    assert!([400, 422].contains(&broken.status), "{broken:?}");
    let wrong = rest.put("/api/v1/jobs/one/desired-state", &json!({ "state": "flying" }));
    assert!([400, 422].contains(&wrong.status), "{wrong:?}");
    let method = rest.send(Method::PUT, "/api/v1/jobs", Some(("application/json", "{}".to_owned())));
    assert_eq!(method.status, 405, "{method:?}");
    let kind = rest.send(Method::POST, "/api/v1/jobs", Some(("text/plain", "id: x".to_owned())));
    assert!([400, 415, 422].contains(&kind.status), "{kind:?}");
}

#[test]
fn one_document_under_jobs_is_a_spec_too() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let spec: String = serde_json::to_string(&document("listed")).unwrap();
    rest.post_yaml("/api/v1/jobs?desired_state=running", &format!("jobs:\n  - {spec}\n")).expect(201);
    until("it is finished", PATIENCE, || (state(&rest, "listed") == "finished").then_some(()));
}

/// OPS-5: Prometheus text, names `weir_*`.
#[test]
fn health_and_metrics_are_served() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(rest.get(path).status, 200, "{path}");
    }
    rest.post("/api/v1/jobs?desired_state=running", &document("measured")).expect(201);
    until("it is finished", PATIENCE, || (state(&rest, "measured") == "finished").then_some(()));
    let metrics = rest.get("/metrics");
    assert_eq!(metrics.status, 200);
    let text = metrics.body.as_str().unwrap_or_default();
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
    assert!(!samples.is_empty() && samples.iter().all(|line| line.starts_with("weir_")), "{text}");
    assert!(samples.iter().any(|line| line.contains("job=\"measured\"") && line.ends_with(" 3")), "three rows came in:\n{text}");
}

/// P4: a request of any shape gets an answer, and the server stays.
#[test]
fn odd_requests_do_not_hurt() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let deep = "[".repeat(20_000);
    for body in ["", "null", "[]", "\"x\"", "id: [", "&a [*a]", "{\"id\": \"\\u0000\"}", "id: \u{fffd}", deep.as_str()] {
        for kind in ["application/json", "application/yaml"] {
            let answer = rest.send(Method::POST, "/api/v1/jobs", Some((kind, body.to_owned())));
            assert!((400..500).contains(&answer.status), "{kind} {:.40}: {answer:?}", body);
        }
    }
    for id in ["", "a b", "a/b", "ü", &"x".repeat(129)] {
        let mut spec = document("x");
        spec["id"] = json!(id);
        let answer = rest.post("/api/v1/jobs/validate", &spec);
        assert_eq!(answer.status, 422, "{id}: {answer:?}");
    }
    weir.must_run();
    assert_eq!(rest.get("/healthz").status, 200);
}

/// JOB-1, J1: a version never changes; what was submitted can be read back, and means the same when it is submitted again.
#[test]
fn a_version_is_kept_as_it_was_submitted() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let mut job = document("kept");
    job["version"] = json!(2);
    rest.post("/api/v1/jobs", &job).expect(201);
    rest.post("/api/v1/jobs", &job).expect(200);
    let shown = rest.get("/api/v1/jobs/kept").expect(200)["spec"].clone();
    assert_eq!((&shown["version"], &shown["operators"][1]["config"]["keys"]), (&json!(2), &json!(["k"])), "{shown}");
    rest.post("/api/v1/jobs", &shown).expect(200);
    let versions = rest.get("/api/v1/jobs/kept/versions").expect(200);
    assert_eq!(versions["items"].as_array().map(Vec::len), Some(1), "{versions}");
    let version = rest.get("/api/v1/jobs/kept/versions/2").expect(200);
    assert_eq!((&version, &version["spec"], &version["version"]), (&versions["items"][0], &shown, &json!(2)));
    assert!(version["created_at"].is_string() && version["sql"].is_null(), "{version}");
    for missing in ["1", "3", "x"] {
        let answer = rest.get(&format!("/api/v1/jobs/kept/versions/{missing}")).expect(404);
        assert!(answer["hint"].as_str().unwrap().contains('2'), "{answer}");
    }
    let generation = rest.get("/api/v1/jobs/kept").expect(200)["generation"].clone();

    let refused = |change: &dyn Fn(&mut Value)| {
        let mut other = job.clone();
        change(&mut other);
        rest.post("/api/v1/jobs", &other).expect(409)["message"].as_str().unwrap().to_owned()
    };
    let other = refused(&|job| job["operators"][1]["config"]["aggregates"][0]["expr"] = json!("max(ts)"));
    assert!(other.contains("version 2") && other.contains("operators[window-1].config.aggregates[n].expr"), "{other}");
    let wider = refused(&|job| job["parallelism"] = json!(2));
    assert!(wider.contains("(parallelism)") && wider.contains("drop job 'kept'"), "{wider}");
    let newer = refused(&|job| job["version"] = json!(3));
    assert!(newer.contains("upgrade to version 3 is not available yet") && newer.contains("drop job 'kept'"), "{newer}");
    let older = refused(&|job| job["version"] = json!(1));
    assert!(older.contains("version 1 is older"), "{older}");
    assert_eq!(rest.get("/api/v1/jobs/kept").expect(200)["generation"], generation, "a refusal changes nothing");
    assert_eq!(weir.sql().rows("SELECT job, version FROM weir.job_versions"), [["kept", "2"]]);
}

/// CKP-8: under a hub other tasks mean another job: it begins with its inputs, and never on what the first one left.
#[test]
fn a_job_made_anew_begins_empty() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    for parallelism in [1, 2, 1] {
        let mut job = document("again");
        job["parallelism"] = json!(parallelism);
        rest.post("/api/v1/jobs?desired_state=running", &job).expect(201);
        until("it is finished", PATIENCE, || (state(&rest, "again") == "finished").then_some(()));
        assert_eq!(weir.sql().rows("SELECT k, n FROM again ORDER BY k"), [["1", "2"], ["2", "1"]]);
        assert_eq!(rest.send(Method::DELETE, "/api/v1/jobs/again", None).status, 204);
    }
}

/// JOB-9: REST and the command line show the same plan, in every format.
#[test]
fn plans_are_those_of_the_command_line() {
    let (data, files) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let mut job = document("planned");
    job["parallelism"] = json!(3);
    rest.post("/api/v1/jobs", &job).expect(201);
    let file = support::process::write(files.path(), "job.yaml", &job.to_string());
    for format in ["text", "json", "dot"] {
        let told = support::process::weir(&["explain", file.to_str().unwrap(), "--format", format]);
        assert_eq!(told.code, 0, "{}", told.err);
        let shown = rest.get(&format!("/api/v1/jobs/planned/plan?format={format}")).expect(200);
        match shown {
            Value::String(text) => assert_eq!(text, told.out, "{format}"),
            json => assert_eq!(json, serde_json::from_str::<Value>(&told.out).unwrap(), "{format}"),
        }
    }
}

/// JOB-8: several jobs and streams are checked at once, each by itself, and as their start would build them.
#[test]
fn a_whole_document_is_validated() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let stream = "streams:
  - id: lines
    input: {type: generate, context: '{\"a\": 1}', interval: 1s, batch_size: 1, count: 3}
    pipeline: {processors: [{type: json_to_arrow}]}
    output: {type: drop}
";
    let yaml = format!("jobs:\n  - {}\n  - {}\n{stream}", document("one"), document("two"));
    let answer = rest.post_yaml("/api/v1/jobs/validate", &yaml).expect(200);
    let ids: Vec<&Value> = answer["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [&json!("one"), &json!("two"), &json!("lines")], "{answer}");
    for job in answer["jobs"].as_array().unwrap() {
        assert!(job["plan"]["chains"].is_array() && job["notices"].is_array() && !job["tasks"].as_array().unwrap().is_empty(), "{job}");
    }
    assert_eq!(answer["agents"][0]["id"], "embedded", "{answer}");

    let (mut one, mut two) = (document("one"), document("two"));
    one["operators"][1]["config"]["keys"] = json!(["nope"]);
    // What only building shows: the context of a generator is no JSON.
    two["sources"][0]["input_type"] = json!("generate");
    two["sources"][0]["config"] = json!({"context": "{\"k\": "});
    two["sources"][0]["codec"] = json!({"type": "json"});
    let answer = rest.post_yaml("/api/v1/jobs/validate", &format!("jobs:\n  - {one}\n  - {two}\n")).expect(422);
    let errors = answer["errors"].as_array().unwrap();
    let at = |path: &str| {
        errors.iter().find(|error| error["path"].as_str().unwrap().starts_with(path)).unwrap_or_else(|| panic!("{path}: {answer}"))
    };
    assert_eq!((&at("jobs[0].operators[1]")["line"], &at("jobs[1].sources[0]")["line"]), (&json!(2), &json!(3)), "{answer}");
    assert!(rest.get("/api/v1/jobs").expect(200)["items"].as_array().unwrap().is_empty());
}
