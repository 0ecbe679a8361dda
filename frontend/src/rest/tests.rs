//! Requests in, answers out: a real listener and a real hub, without agents.

use super::router;
use crate::error::Error;
use crate::query::Reads;
use crate::sql::Engine;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_hub::Hub;
use weir_hub::hub::HubOptions;
use weir_planner::protocol::ReadRequest;

struct Nothing;

#[async_trait::async_trait]
impl Reads for Nothing {
    async fn read(&self, _: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String> {
        Err("no agent".to_owned())
    }
}

/// A door with its hub, in a directory of its own.
struct Door {
    address: SocketAddr,
    server: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name))).map(|(_, value)| value)
    }
}

impl Door {
    async fn open() -> Door {
        let dir = tempfile::tempdir().unwrap();
        let options = HubOptions { data_dir: dir.path().to_owned(), lease: Duration::from_secs(15), agent_token: None };
        let hub = Hub::open(options).await.unwrap();
        let engine = Engine::new(hub, Arc::new(Nothing), Vec::new()).map_err(|error: Error| error.message).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router(engine)).await.unwrap() });
        Door { address, server, _dir: dir }
    }

    async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut request =
            format!("{method} /api/v1{path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        // A server may answer before it has read a body that it refuses.
        let _ = stream.write_all(body.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {path}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "").await
    }

    async fn post(&self, path: &str, kind: &str, body: &str) -> Answer {
        self.call("POST", path, &[("content-type", kind)], body).await
    }
}

const JOB: &str = "id: per_minute
operators:
  - {id: bids, kind: source}
  - {id: count, kind: window, config: {window: {tumbling: {size: 1m}}, keys: [bidder], aggregates: [{expr: count(*), as: n}, {expr: sum(price), as: total}]}}
  - {id: out, kind: sink}
edges:
  - {id: e1, from: bids, to: count}
  - {id: e2, from: count, to: out}
sources:
  - operator_id: bids
    input_type: kafka
    config: {brokers: 'localhost:9092', topic: bids, sasl.password: hunter2}
    codec: json
    schema: [{name: bidder, type: BIGINT}, {name: price, type: BIGINT}, {name: at, type: TIMESTAMP(3)}]
    time: {mode: event_time, timestamp_field: at, watermark: {out_of_orderness: 4s}}
sinks:
  - {operator_id: out, output_type: result}
";

/// API-1: validate, create as stopped, look at it, run it, delete it.
#[tokio::test]
async fn the_recommended_flow() {
    let door = Door::open().await;
    let validated = door.post("/jobs/validate", "application/yaml", JOB).await;
    assert_eq!(validated.status, 200, "{}", validated.body);
    assert_eq!(validated.json()["tasks"], json!(["bids-0", "count-0", "out-0"]));
    assert_eq!(validated.json()["agents"], json!([]));
    assert_eq!(door.get("/jobs").await.json(), json!({"items": [], "next": null}), "validation stores nothing");

    let created = door.post("/jobs", "application/yaml", JOB).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.header("location"), Some("/api/v1/jobs/per_minute"));
    assert_eq!((&created.json()["desired_state"], &created.json()["version"]), (&json!("stopped"), &json!(1)));
    let tag = created.header("etag").unwrap().to_owned();

    let detail = door.get("/jobs/per_minute/detail").await.json();
    assert_eq!(detail["planned_tasks"], json!(["bids-0", "count-0", "out-0"]));
    assert_eq!(detail["spec"]["operators"][1]["config"]["aggregates"][1]["expr"], json!("sum(price)"));

    let stale = door.call("PUT", "/jobs/per_minute/desired-state", &[("if-match", "\"999\"")], "state: running").await;
    assert_eq!((stale.status, &stale.json()["code"]), (412, &json!("generation_moved_on")), "{}", stale.body);
    let run = door
        .call(
            "PUT",
            "/jobs/per_minute/desired-state",
            &[("if-match", &tag), ("content-type", "application/json")],
            r#"{"state": "running"}"#,
        )
        .await;
    assert_eq!((run.status, &run.json()["desired_state"]), (202, &json!("running")), "{}", run.body);
    assert_ne!(run.header("etag"), Some(tag.as_str()), "the generation has risen");

    let stale = door.call("DELETE", "/jobs/per_minute", &[("if-match", &tag)], "").await;
    assert_eq!(stale.status, 412);
    let gone = door.call("DELETE", "/jobs/per_minute", &[], "").await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
}

/// API-4: a bare JobSpec, a document with one job, `{spec, desired_state}`, and the query.
#[tokio::test]
async fn the_bodies_of_a_job() {
    let door = Door::open().await;
    let named = |name: &str| JOB.replace("per_minute", name);
    let document = format!("streams: []\njobs:\n  - {}", named("document").replace('\n', "\n    "));
    assert_eq!(door.post("/jobs", "application/yaml", &document).await.status, 201);
    let wrapped = format!("desired_state: running\nspec:\n  {}", named("wrapped").replace('\n', "\n  "));
    let answer = door.post("/jobs", "application/yaml", &wrapped).await;
    assert_eq!((answer.status, &answer.json()["desired_state"]), (201, &json!("running")), "{}", answer.body);
    let answer = door.post("/jobs?desired_state=running", "application/yaml", &named("query")).await;
    assert_eq!((answer.status, &answer.json()["desired_state"]), (201, &json!("running")));
    let spec = door.get("/jobs/query").await.json()["spec"].clone();
    let mut json = spec.clone();
    json["id"] = json!("json");
    json["sources"][0]["config"]["properties"] = json!({});
    let answer = door.post("/jobs", "application/json", &json.to_string()).await;
    assert_eq!(answer.status, 201, "what is shown can be posted again: {}", answer.body);
    assert_eq!(door.get("/jobs").await.json()["items"].as_array().map(Vec::len), Some(4));

    assert_eq!(door.post("/jobs?desired_state=running", "application/yaml", &wrapped).await.status, 400);
    assert_eq!(door.post("/jobs?desired_state=walking", "application/yaml", &named("query")).await.status, 422);
    assert_eq!(door.post("/jobs?desired=running", "application/yaml", &named("query")).await.status, 400);
    assert_eq!(door.post("/jobs", "application/yaml", "jobs: []").await.status, 422);
    let answer = door.post("/jobs", "application/yaml", &format!("extra: 1\n{wrapped}")).await;
    assert_eq!((answer.status, &answer.json()["path"]), (422, &json!("extra")));
}

/// 1.1: the same version is a no-op with equal content and a conflict with other content.
#[tokio::test]
async fn a_version_never_changes() {
    let door = Door::open().await;
    assert_eq!(door.post("/jobs", "application/yaml", JOB).await.status, 201);
    let again = door.post("/jobs", "application/yaml", JOB).await;
    assert_eq!(again.status, 200, "{}", again.body);
    let other = door.post("/jobs", "application/yaml", &JOB.replace("1m", "2m")).await;
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("conflict")), "{}", other.body);
}

/// API-2, JOB-7: one problem format; all faults of a job with path, line, column and hint.
#[tokio::test]
async fn faults_come_together_with_their_places() {
    let door = Door::open().await;
    let wrong = JOB
        .replace("keys: [bidder]", "keys: [seller]")
        .replace("sum(price)", "sum(cost)")
        .replace("brokers: 'localhost:9092'", "brokers: nowhere");
    for path in ["/jobs", "/jobs/validate"] {
        let answer = door.post(path, "application/yaml", &wrong).await;
        assert_eq!(answer.status, 422, "{}", answer.body);
        let problem = answer.json();
        let errors = problem["errors"].as_array().unwrap();
        let mut places: Vec<String> =
            errors.iter().map(|e| format!("{} {}:{}", e["path"].as_str().unwrap(), e["line"], e["column"])).collect();
        places.sort();
        assert_eq!(
            places,
            ["operators[1].config.aggregates[1].expr 4:133", "operators[1].config.keys[0] 4:79", "sources[0].config.brokers[0] 12:23",],
            "{}",
            answer.body
        );
        assert_eq!(problem["correlation_id"].as_str(), answer.header("x-correlation-id"));
        for field in ["code", "message", "path", "line", "column", "hint"] {
            assert_eq!(problem[field], errors[0][field], "{field}");
        }
    }
    assert_eq!(door.get("/jobs").await.json()["items"], json!([]));
    let misspelt = door.post("/jobs", "application/yaml", &JOB.replace("edges:", "edgs:")).await;
    assert_eq!((misspelt.status, &misspelt.json()["hint"]), (422, &json!("did you mean 'edges'?")));
    let cycle = JOB.replace("from: count, to: out}", "from: count, to: out}\n  - {id: e3, from: count, to: count}");
    let codes: Vec<Value> = door.post("/jobs", "application/yaml", &cycle).await.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["code"].clone())
        .collect();
    assert_eq!(codes, [json!("self_loop")], "what lies behind a fault is not told as one");
}

#[tokio::test]
async fn bodies_that_are_no_documents() {
    let door = Door::open().await;
    let broken = door.post("/jobs", "application/json", "{\"id\": \"a\",\n oops}").await;
    assert_eq!((broken.status, &broken.json()["code"], &broken.json()["line"]), (400, &json!("syntax"), &json!(2)), "{}", broken.body);
    assert_eq!(door.post("/jobs", "application/json", JOB).await.status, 400, "YAML is not JSON");
    assert_eq!(
        door.post("/jobs", "application/json", r#"{"id": "a", "id": "b", "operators": []}"#).await.json()["code"],
        json!("duplicate_key")
    );
    // JSON that YAML cannot read: a tab before a key.
    let tabs = door.post("/jobs", "application/json", "{\n\t\"id\": \"a\",\n\t\"id\": \"b\"\n}").await;
    assert_eq!((tabs.status, &tabs.json()["line"]), (400, &json!(3)), "{}", tabs.body);
    assert!(tabs.json()["message"].as_str().unwrap().contains("the key 'id' is given twice"), "{}", tabs.body);
    let lacking = door.post("/jobs", "application/json", "{\n\t\"id\": \"a\",\n\t\"paralelism\": 2\n}").await;
    assert_eq!(lacking.status, 422, "{}", lacking.body);
    assert_eq!(door.post("/jobs", "application/yaml", "id: [").await.status, 400);
    assert_eq!(door.post("/jobs", "application/yaml", "").await.json()["code"], json!("empty"));
    for (encoding, status) in [("gzip", 415), ("identity", 201)] {
        let headers = [("content-type", "application/yaml"), ("content-encoding", encoding)];
        let answer = door.call("POST", "/jobs", &headers, JOB).await;
        assert_eq!(answer.status, status, "{encoding}: {}", answer.body);
    }
    let huge = "x".repeat(crate::yaml::BYTES_MAX + 1);
    let answer = door.post("/jobs", "application/yaml", &huge).await;
    assert_eq!((answer.status, &answer.json()["code"]), (413, &json!("too_large")));
}

/// JOB-9: the plan as JSON, text and DOT, by query or by Accept.
#[tokio::test]
async fn plans_in_three_formats() {
    let door = Door::open().await;
    door.post("/jobs", "application/yaml", JOB).await;
    let json = door.get("/jobs/per_minute/plan").await;
    assert_eq!(json.json()["chains"][0]["operators"][0]["id"], json!("bids"));
    let text = door.get("/jobs/per_minute/plan?format=text").await;
    assert!(text.body.starts_with("job per_minute version 1\n"), "{}", text.body);
    let accepted = door.call("GET", "/jobs/per_minute/plan", &[("accept", "text/plain")], "").await;
    assert_eq!(accepted.body, text.body);
    let dot = door.call("GET", "/jobs/per_minute/plan", &[("accept", "text/vnd.graphviz")], "").await;
    assert!(dot.body.starts_with("digraph \"per_minute\" {\n"), "{}", dot.body);
    assert_eq!(door.get("/jobs/per_minute/plan?format=pdf").await.status, 400);
}

/// SQL-11: no way to read a job gives its secrets away.
#[tokio::test]
async fn secrets_are_never_shown() {
    let door = Door::open().await;
    let mut answers = vec![door.post("/jobs/validate", "application/yaml", JOB).await, door.post("/jobs", "application/yaml", JOB).await];
    for path in [
        "", "/per_minute", "/per_minute/detail", "/per_minute/plan", "/per_minute/plan?format=text", "/per_minute/plan?format=dot",
        "/per_minute/events", "/per_minute/versions",
    ] {
        answers.push(door.get(&format!("/jobs{path}")).await);
    }
    for answer in answers {
        assert!(answer.status < 300 && !answer.body.contains("hunter2"), "{}", answer.body);
    }
    let shown = door.get("/jobs/per_minute").await.json();
    assert_eq!(shown["spec"]["sources"][0]["config"]["properties"]["sasl.password"], json!("***"));
}

#[tokio::test]
async fn what_does_not_exist() {
    let door = Door::open().await;
    for path in ["/jobs/nobody", "/jobs/nobody/detail", "/jobs/nobody/plan", "/jobs/a%20b"] {
        let answer = door.get(path).await;
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("not_found")), "{path}");
    }
    let answer = door.get("/nothing").await;
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("unknown_route")));
    let answer = door.call("PATCH", "/jobs", &[], "").await;
    assert_eq!((answer.status, &answer.json()["code"]), (405, &json!("wrong_method")));
    assert_eq!(door.get("/agents").await.json(), json!({"items": [], "next": null}));
    door.post("/jobs", "application/yaml", JOB).await;
    let state = |body: &'static str| door.call("PUT", "/jobs/per_minute/desired-state", &[], body);
    assert_eq!(state("state: walking").await.json()["code"], json!("bad_value"));
    assert_eq!(state("{}").await.json()["path"], json!("state"));
    assert_eq!(state("{state: running, from: s1}").await.json()["code"], json!("bad_checkpoint"));
}

/// Lists are whole: a parameter that would do nothing is refused by its name, not passed over.
#[tokio::test]
async fn lists_take_no_parameters() {
    let door = Door::open().await;
    door.post("/jobs", "application/yaml", JOB).await;
    for list in ["/jobs", "/streams", "/agents", "/jobs/per_minute/events", "/jobs/per_minute/versions"] {
        assert_eq!(door.get(list).await.status, 200, "{list}");
        for limit in ["abc", "-1", "99999999999999999999", "5", ""] {
            let answer = door.get(&format!("{list}?limit={limit}")).await;
            assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_query")), "{list} {limit}");
            assert_eq!(answer.json()["message"], json!("this list takes no parameter 'limit'"));
        }
    }
}

/// `POST /sql`: columns with SQL types, rows in column order; errors with SQLSTATE and place.
#[tokio::test]
async fn statements() {
    let door = Door::open().await;
    let answer = door
        .post("/sql", "application/json", r#"{"sql": "SELECT 1 AS a, 'x' AS b, NULL::bigint AS c, 1.5::double precision AS d, true AS e"}"#)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json = answer.json();
    assert_eq!(json["rows"], json!([[1, "x", null, 1.5, true]]));
    let types: Vec<&str> = json["columns"].as_array().unwrap().iter().map(|column| column["type"].as_str().unwrap()).collect();
    assert_eq!(types[1..], ["TEXT", "BIGINT", "DOUBLE PRECISION", "BOOLEAN"]);
    let wrong = door.post("/sql", "application/yaml", "sql: |\n  SELECT 1;\n  SELEC 2\n").await;
    assert_eq!(
        (wrong.status, &wrong.json()["code"], &wrong.json()["line"], &wrong.json()["column"]),
        (422, &json!("42601"), &json!(2), &json!(1)),
        "{}",
        wrong.body
    );
    assert_eq!(door.post("/sql", "application/json", "{}").await.json()["path"], json!("sql"));
    // One that shows only while rows come, with the same code as over Postgres wire.
    let late = door.post("/sql", "application/json", r#"{"sql": "SELECT 10 / n FROM (VALUES (1), (0)) AS t(n)"}"#).await;
    assert_eq!((late.status, &late.json()["code"]), (422, &json!("22012")), "{}", late.body);
}

/// JOB-3: a job made by SQL is shown with its statement and spec, and the same spec comes in by REST.
#[tokio::test]
async fn sql_and_rest_show_the_same_job() {
    let door = Door::open().await;
    let sql = "CREATE SOURCE bids (bidder BIGINT, price BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '4 seconds') \
               WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json', sasl.password = 'hunter2'); \
               CREATE JOB by_sql WITH (start = false) AS SELECT bidder, window_start, window_end, count(*) AS n FROM tumble(bids, at, INTERVAL '1 minute') \
               GROUP BY bidder, window_start, window_end";
    let made = door.post("/sql", "application/json", &json!({ "sql": sql }).to_string()).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let shown = door.get("/jobs/by_sql").await;
    assert!(!shown.body.contains("hunter2"), "{}", shown.body);
    assert!(shown.json()["sql"].as_str().is_some_and(|sql| sql.contains("CREATE JOB by_sql")), "{}", shown.body);
    let mut spec = shown.json()["spec"].clone();
    spec["id"] = json!("by_rest");
    spec["sources"][0]["config"]["properties"]["sasl.password"] = json!("hunter2");
    let created = door.post("/jobs", "application/json", &spec.to_string()).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let (mut one, mut two) = (door.get("/jobs/by_sql/plan").await.json(), door.get("/jobs/by_rest/plan").await.json());
    for plan in [&mut one, &mut two] {
        plan["job"] = Value::Null;
    }
    assert_eq!(one, two);
}

const STREAM: &str = "id: ticks
input: {type: generate, context: {a: 1}}
pipeline:
  processors:
    - {type: json_to_arrow}
    - type: sql
      query: |
        SELECT a + 1 AS b
        FROM flow
output: {type: kafka, brokers: 'localhost:9092', topic: t, properties: {sasl.password: hunter2}}
";

/// STR-1, API-4, SQL-11: a stream keeps its document, is listed among streams, and is no job.
#[tokio::test]
async fn streams_and_jobs_have_routes_of_their_own() {
    let door = Door::open().await;
    let validated = door.post("/streams/validate", "application/yaml", STREAM).await;
    assert_eq!(validated.status, 200, "{}", validated.body);
    assert_eq!(validated.json()["job"]["operators"][2]["id"], "p2-sql");
    assert_eq!(door.get("/streams").await.json()["items"], json!([]), "validating stores nothing");

    let made = door.post("/streams", "application/yaml", STREAM).await;
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/streams/ticks")), "{}", made.body);
    assert_eq!(door.post("/streams", "application/yaml", &format!("streams:\n  - {}", STREAM.replace('\n', "\n    "))).await.status, 200);
    let shown = door.get("/streams/ticks").await;
    assert!(!shown.body.contains("hunter2") && shown.body.contains("***"), "{}", shown.body);
    let shown = shown.json();
    assert_eq!((&shown["state"], &shown["input"], &shown["output"]), (&json!("created"), &json!("generate"), &json!("kafka")));
    assert_eq!(shown["stream"]["pipeline"]["processors"][1]["query"], "SELECT a + 1 AS b\nFROM flow\n");
    assert_eq!(shown["stream"]["input"]["context"], json!({"a": 1}));

    assert_eq!(door.get("/jobs").await.json()["items"], json!([]));
    for path in ["/jobs/ticks", "/jobs/ticks/detail", "/jobs/ticks/plan", "/jobs/ticks/events", "/jobs/ticks/versions"] {
        let refused = door.get(path).await;
        assert_eq!((refused.status, refused.json()["code"].clone()), (409, json!("is_stream")), "{path}: {}", refused.body);
    }
    assert_eq!(door.call("DELETE", "/jobs/ticks", &[], "").await.status, 409);

    // An equal job of the same name is another thing.
    let job = validated.json()["job"].to_string().replace("***", "hunter2");
    let clash = door.post("/jobs", "application/json", &job).await;
    assert_eq!((clash.status, clash.json()["code"].clone()), (409, json!("exists")), "{}", clash.body);
    let misplaced = door.post("/jobs", "application/yaml", &format!("streams:\n  - {}", STREAM.replace('\n', "\n    "))).await;
    assert_eq!((misplaced.status, misplaced.json()["hint"].clone()), (422, json!("post it to /api/v1/streams")), "{}", misplaced.body);

    let body = r#"{"state": "running"}"#;
    let started = door.call("PUT", "/streams/ticks/desired-state", &[("if-match", "\"7\"")], body).await;
    assert_eq!(started.status, 412, "{}", started.body);
    assert_eq!(door.call("PUT", "/streams/ticks/desired-state", &[], body).await.status, 202);
    assert_eq!(door.get("/streams").await.json()["items"][0]["desired_state"], "running");
    assert_eq!(door.call("DELETE", "/streams/ticks", &[], "").await.status, 204);
    assert_eq!(door.get("/streams/ticks").await.status, 404);
}

/// JOB-7, API-4: a fault in a query is told at its place in the body, be it YAML or JSON.
#[tokio::test]
async fn faults_of_streams_have_their_place() {
    let door = Door::open().await;
    let wrong = door.post("/streams", "application/yaml", &STREAM.replace("a + 1", "a + nothing")).await;
    assert_eq!(wrong.status, 422, "{}", wrong.body);
    let wrong = wrong.json();
    assert_eq!(
        (&wrong["path"], &wrong["line"], &wrong["column"]),
        (&json!("pipeline.processors[1].query"), &json!(8), &json!(16)),
        "{wrong}"
    );
    let json = r#"{"input": {"type": "generate", "context": {"a": 1}}, "pipeline": {"processors": [{"type": "sql", "query": "SELECT a FROM flw"}]}, "output": "drop"}"#;
    let wrong = door.post("/streams", "application/json", json).await.json();
    assert_eq!(
        (&wrong["path"], &wrong["line"], &wrong["column"]),
        (&json!("pipeline.processors[0].query"), &json!(1), &json!(122)),
        "{wrong}"
    );
    let two = door
        .post("/streams", "application/yaml", "streams: [{input: {type: memory}, output: drop}, {input: {type: memory}, output: drop}]")
        .await;
    assert_eq!((two.status, two.json()["code"].clone()), (422, json!("one_stream")), "{}", two.body);
    // The name of one without a name is taken by the first.
    let one = "{input: {type: memory}, output: drop}";
    assert_eq!(door.post("/streams", "application/yaml", one).await.json()["id"], "stream-1");
    assert_eq!(door.post("/streams", "application/yaml", one).await.status, 200);
    assert_eq!(door.post("/streams", "application/yaml", "{input: {type: memory}, output: stdout}").await.status, 409);
}
