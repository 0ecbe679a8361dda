//! Streams end to end: documents to rows, with the real binary (spec 1.4).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use support::broker::{Broker, free_port};
use support::output;
use support::process::{Ended, Weir, finish, temporary, weir_command, write};
use support::rest::Rest;
use support::{PATIENCE, until};

/// Runs a document in a directory of its own until its inputs end.
fn run(dir: &Path, document: &str) -> Ended {
    let file = write(dir, "streams.yaml", document);
    let mut command = weir_command();
    command.arg("run").arg(&file).arg("--data-dir").arg(dir.join("data")).current_dir(dir);
    finish(command, PATIENCE)
}

fn row(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(row).collect()
}

/// What a file output wrote, task after task.
fn written(dir: &Path) -> Vec<Value> {
    output::lines(dir).iter().map(|line| row(line)).collect()
}

const BUFFERS: [(&str, &str); 4] = [
    ("none", ""),
    ("memory", "buffer: {type: memory, capacity: 4, timeout: 1h}"),
    ("tumbling", "buffer: {type: tumbling_window, interval: 1h}"),
    ("session", "buffer: {type: session_window, gap: 1h}"),
];

/// STR-1, STR-2, STR-4: each bounded input through each buffer and each processor gives the same
/// rows, in order; what a buffer still holds at the end of the input is given on.
#[test]
fn every_input_and_buffer_passes_its_rows_on() {
    let dir = temporary();
    write(dir.path(), "in.ndjson", "{\"k\": \"a\", \"x\": 1}\n{\"k\": \"b\", \"x\": 2}\n{\"k\": \"a\", \"x\": 3}\n");
    write(dir.path(), "in.csv", "k,x\na,1\nb,2\na,3\n");
    let inputs = [
        ("memory", "{type: memory, messages: [{k: a, x: 1}, {k: b, x: 2}, {k: a, x: 3}]}", "{type: json_to_arrow}"),
        ("file", "{type: file, path: in.ndjson}", "{type: json_to_arrow}"),
        ("csv", "{type: file, input_type: {type: csv, path: in.csv, header: true}}", "{type: sql, query: 'SELECT k, x FROM flow'}"),
        ("generate", "{type: generate, context: {k: 'n{{counter}}', x: 7}, batch_size: 2, count: 3}", "{type: json_to_arrow}"),
    ];
    let mut document = "streams:\n".to_owned();
    for (input, options, first) in inputs {
        for (buffer, line) in BUFFERS {
            document.push_str(&format!(
                "  - id: {input}-{buffer}
    input: {options}
    {line}
    pipeline:
      processors:
        - {first}
        - {{type: batch, count: 2, timeout_ms: 3600000}}
        - {{type: sql, query: 'SELECT *, x * 2 AS twice FROM flow WHERE x <> 2'}}
        - {{type: arrow_to_json}}
    output: {{type: file, path: out/{input}-{buffer}}}\n"
            ));
        }
    }
    let done = run(dir.path(), &document);
    assert_eq!(done.code, 0, "{}", done.err);
    for (input, ..) in inputs {
        let wanted = match input {
            "generate" => [0, 1, 2].map(|n| json!({"k": format!("n{n}"), "x": 7, "twice": 14})).to_vec(),
            _ => vec![json!({"k": "a", "x": 1, "twice": 2}), json!({"k": "a", "x": 3, "twice": 6})],
        };
        for (buffer, _) in BUFFERS {
            assert_eq!(written(&dir.path().join(format!("out/{input}-{buffer}"))), wanted, "{input} through {buffer}");
        }
    }
}

/// STR-1: aggregates are over each batch; a buffer says what a batch is.
#[test]
fn a_query_groups_what_the_buffer_gave() {
    let dir = temporary();
    let messages = "[{k: a, x: 1}, {k: b, x: 2}, {k: a, x: 3}, {k: b, x: 40}, {k: b, x: 5}]";
    let document = format!(
        "streams:
  - id: sums
    input: {{type: memory, messages: {messages}}}
    buffer: {{type: memory, capacity: 1000, timeout: 1h}}
    pipeline:
      processors:
        - {{type: json_to_arrow}}
        - type: sql
          query: >-
            SELECT upper(k) AS k, count(*) AS n, sum(x) AS total, avg(x) AS mean, min(x) AS least, max(x) AS most
            FROM flow GROUP BY upper(k) HAVING sum(x) > 1
    output: {{type: file, path: sums}}
  - id: all
    input: {{type: memory, messages: {messages}}}
    buffer: {{type: memory, capacity: 1000, timeout: 1h}}
    pipeline:
      processors:
        - {{type: json_to_arrow}}
        - {{type: sql, query: \"SELECT count(*) FILTER (WHERE x > 2) AS n, max(k) AS last FROM flow\"}}
    output: {{type: file, path: all}}
  - id: keys
    input: {{type: memory, messages: {messages}}}
    buffer: {{type: memory, capacity: 1000, timeout: 1h}}
    pipeline:
      processors:
        - {{type: json_to_arrow}}
        - {{type: sql, query: SELECT DISTINCT k FROM flow}}
    output: {{type: file, path: keys}}
  - id: named
    input: {{type: memory, messages: {messages}}}
    buffer: {{type: memory, capacity: 1000, timeout: 1h}}
    pipeline:
      processors:
        - {{type: json_to_arrow}}
        - {{type: sql, query: \"SELECT 1 AS k, count(*) AS n FROM flow WHERE k <> 'z' GROUP BY k\"}}
    output: {{type: file, path: named}}
  - id: printed
    input: {{type: memory, messages: [{{k: z}}]}}
    pipeline: {{processors: [{{type: json_to_arrow}}]}}
    output: {{type: stdout}}
  - id: dropped
    input: {{type: memory, messages: {messages}}}
    output: drop
"
    );
    let done = run(dir.path(), &document);
    assert_eq!(done.code, 0, "{}", done.err);
    let by_key = |path: &str| -> BTreeMap<String, Value> {
        written(&dir.path().join(path)).into_iter().map(|row| (row["k"].as_str().unwrap().to_owned(), row)).collect()
    };
    // a: 1 + 3; b: 2 + 40 + 5.
    let sums = [
        json!({"k": "A", "n": 2, "total": 4, "mean": 2.0, "least": 1, "most": 3}),
        json!({"k": "B", "n": 3, "total": 47, "mean": 47.0 / 3.0, "least": 2, "most": 40}),
    ];
    assert_eq!(by_key("sums").into_values().collect::<Vec<_>>(), sums);
    assert_eq!(written(&dir.path().join("all")), [json!({"n": 3, "last": "b"})]);
    assert_eq!(by_key("keys").into_values().collect::<Vec<_>>(), [json!({"k": "a"}), json!({"k": "b"})]);
    // GROUP BY k is the column, which WHERE reads, not the constant of that name: as in Postgres.
    let mut counts: Vec<u64> = written(&dir.path().join("named")).iter().map(|row| row["n"].as_u64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
    assert_eq!(rows(&done.out), [json!({"k": "z"})]);
}

/// STR-5: with four lanes the output has the order of the input, through maps, aggregates over
/// batches, a batch processor between two runs, and an error output.
#[test]
fn four_lanes_keep_the_order() {
    let dir = temporary();
    let line = |n: u64| format!("{{\"n\":{n},\"text\":\"{}\"}}\n", "x".repeat(usize::try_from(n % 37).unwrap()));
    write(dir.path(), "in.ndjson", &(0..60_000).map(line).collect::<String>());
    let document = "streams:
  - id: rows
    input: {type: file, path: in.ndjson}
    pipeline:
      thread_num: 4
      processors:
        - {type: json_to_arrow}
        - {type: sql, query: \"SELECT n, length(text) AS long FROM flow WHERE text !~ '^xxx$'\"}
    output: {type: file, path: rows}
    error_output: {type: file, path: bad}
  - id: batches
    input: {type: file, path: in.ndjson}
    pipeline:
      thread_num: 4
      processors:
        - {type: json_to_arrow}
        - {type: sql, query: SELECT n FROM flow}
        - {type: batch, count: 500, timeout_ms: 3600000}
        - {type: sql, query: \"SELECT min(n) AS first, max(n) AS last, count(*) AS rows FROM flow\"}
    output: {type: file, path: batches}
";
    let done = run(dir.path(), document);
    assert_eq!(done.code, 0, "{}", done.err);
    let got: Vec<u64> = written(&dir.path().join("rows")).iter().map(|row| row["n"].as_u64().unwrap()).collect();
    let wanted: Vec<u64> = (0..60_000).filter(|n| n % 37 != 3).collect();
    assert!(
        got == wanted,
        "{} rows of {}, the first that differs is {:?}",
        got.len(),
        wanted.len(),
        got.iter().zip(&wanted).find(|(a, b)| a != b)
    );
    // Each batch is one span of the input, and they come in its order.
    let mut next = 0;
    for batch in written(&dir.path().join("batches")) {
        let (first, last, rows) = (batch["first"].as_u64().unwrap(), batch["last"].as_u64().unwrap(), batch["rows"].as_u64().unwrap());
        assert_eq!((first, last + 1 - first), (next, rows), "{batch}");
        next = last + 1;
    }
    assert_eq!(next, 60_000);
}

/// KER-7, CON-5: a record that cannot be read and a row that cannot be computed go to the error
/// output with their reasons; their neighbours go on. Without one the stream ends.
#[test]
fn bad_records_go_to_the_error_output() {
    let dir = temporary();
    write(dir.path(), "in.ndjson", "{\"a\": 6, \"b\": 3}\nnot json\n{\"a\": 1, \"b\": 0}\n{\"a\": 8, \"b\": 2}\n");
    let stream = |id: &str, rest: &str| {
        format!(
            "streams:
  - id: {id}
    input: {{type: file, path: in.ndjson}}
    pipeline:
      processors:
        - {{type: json_to_arrow}}
        - {{type: sql, query: SELECT a / b AS q FROM flow}}
    output: {{type: file, path: good}}
{rest}"
        )
    };
    let done = run(dir.path(), &stream("routed", "    error_output: {type: file, path: bad}\n"));
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(written(&dir.path().join("good")), [json!({"q": 2}), json!({"q": 4})]);
    let bad = written(&dir.path().join("bad"));
    assert_eq!(bad.len(), 2, "{bad:?}");
    assert!(bad.iter().all(|row| row["source"].is_string() && row["reason"].is_string()), "{bad:?}");

    let done = run(dir.path(), &stream("failing", ""));
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
}

/// STR-1, API-4: streams have routes of their own, keep their document, and share the namespace.
#[test]
fn streams_over_rest_are_streams() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let (sql, rest) = (weir.sql(), Rest::new(weir.http()));
    let document = "id: ticks
input: {type: generate, context: {a: 1}, interval: 10ms}
pipeline:
  processors:
    - {type: json_to_arrow}
    - {type: sql, query: SELECT a + 1 AS b FROM flow}
output: {type: http, url: 'http://127.0.0.1:1/rows', headers: {authorization: Bearer hunter2}}
";
    let made = rest.post_yaml("/api/v1/streams", document).expect(201);
    assert_eq!(made["state"], "created", "{made}");
    assert!(!made.to_string().contains("hunter2"), "{made}");
    assert_eq!(made["stream"]["pipeline"]["processors"][1]["query"], "SELECT a + 1 AS b FROM flow");
    rest.post_yaml("/api/v1/streams", document).expect(200);
    assert_eq!(rest.get("/api/v1/streams").expect(200)["items"][0]["id"], "ticks");
    assert_eq!(rest.get("/api/v1/jobs").expect(200)["items"], json!([]));
    let refused = rest.get("/api/v1/jobs/ticks").expect(409);
    assert_eq!((&refused["code"], &refused["hint"]), (&json!("is_stream"), &json!("look at /api/v1/streams/ticks")));
    assert_eq!(sql.rows("SELECT id FROM weir.jobs"), [["ticks"]]);
    // The one namespace.
    sql.run("CREATE SOURCE v (k BIGINT) AS VALUES (1)");
    sql.run("CREATE JOB taken AS SELECT k FROM v");
    let clash = rest.post_yaml("/api/v1/streams", &document.replace("id: ticks", "id: taken")).expect(409);
    assert_eq!(clash["code"], "exists", "{clash}");
    let refused = rest.get("/api/v1/streams/taken").expect(404);
    assert_eq!(refused["hint"], "look at /api/v1/jobs/taken");

    // A stream that runs, survives its server, stops and goes.
    let quiet = document.replace("id: ticks", "id: quiet").replace(document.lines().last().unwrap(), "output: drop");
    rest.post_yaml("/api/v1/streams?desired_state=running", &quiet).expect(201);
    let stands = |rest: &Rest, state: &str| (rest.get("/api/v1/streams/quiet").expect(200)["state"] == state).then_some(());
    until("the stream runs", PATIENCE, || stands(&rest, "running"));
    let weir = weir.again();
    let rest = Rest::new(weir.http());
    until("the stream runs again", PATIENCE, || stands(&rest, "running"));
    assert_eq!(rest.get("/api/v1/streams/quiet").expect(200)["stream"]["output"], "drop");
    rest.put("/api/v1/streams/quiet/desired-state", &json!({"state": "stopped"})).expect(202);
    until("the stream stands", PATIENCE, || stands(&rest, "stopped"));
    assert_eq!(rest.send(reqwest::Method::DELETE, "/api/v1/streams/quiet", None).status, 204);
    rest.get("/api/v1/streams/quiet").expect(404);
}

/// STR-4: HTTP in, a topic between, HTTP out, file at the end: three streams in a row, each of which
/// passes on what the one before gave.
#[test]
fn http_and_kafka_are_inputs_and_outputs() {
    let (data, dir) = (temporary(), temporary());
    let broker = Broker::noida(&dir.path().join("broker"));
    broker.create_topic("readings", 1);
    let weir = Weir::up(data.path());
    let rest = Rest::new(weir.http());
    let (first, last, brokers) = (free_port(), free_port(), broker.address());
    let out = dir.path().join("out");
    for document in [
        format!(
            "id: take
input: {{type: http, address: '127.0.0.1:{first}', path: /in, schema: [{{name: k, type: TEXT}}, {{name: x, type: BIGINT}}]}}
pipeline: {{processors: [{{type: json_to_arrow}}, {{type: sql, query: SELECT * FROM flow WHERE x > 1}}]}}
output: {{type: kafka, brokers: ['{brokers}'], topic: {{type: value, value: readings}}, client_id: take, acks: all}}
"
        ),
        format!(
            "id: keep
input: {{type: http, address: '127.0.0.1:{last}', path: /end, codec: json, schema: [{{name: k, type: TEXT}}, {{name: y, type: BIGINT}}]}}
output: {{type: file, path: '{}'}}
",
            out.display()
        ),
        format!(
            "id: between
input: {{type: kafka, brokers: ['{brokers}'], topics: [readings], consumer_group: streams, start_from_latest: false}}
pipeline: {{thread_num: 2, processors: [{{type: json_to_arrow}}, {{type: sql, query: 'SELECT k, x * 10 AS y FROM flow'}}]}}
output: {{type: http, url: 'http://127.0.0.1:{last}/end', method: POST, retry_count: 3}}
"
        ),
    ] {
        rest.post_yaml("/api/v1/streams?desired_state=running", &document).expect(201);
    }
    // The third one has no columns before there is a record.
    for id in ["take", "keep"] {
        until("the stream runs", PATIENCE, || (rest.get(&format!("/api/v1/streams/{id}")).expect(200)["state"] == "running").then_some(()));
    }
    let records = "{\"k\": \"a\", \"x\": 1}\n{\"k\": \"b\", \"x\": 2}\n{\"k\": \"c\", \"x\": 3}\n";
    let body = Some(("application/x-ndjson", records.to_owned()));
    let taken = Rest::new(&format!("http://127.0.0.1:{first}")).send(reqwest::Method::POST, "/in", body);
    assert_eq!(taken.expect(200)["records"], 3);
    let wanted = [json!({"k": "b", "y": 20}), json!({"k": "c", "y": 30})];
    until("the rows are at the end", PATIENCE, || (out.exists() && written(&out) == wanted).then_some(()));
    let topic: Vec<Value> = broker.consume("readings", 1).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(topic, [json!({"k": "b", "x": 2}), json!({"k": "c", "x": 3})]);
}
