//! JOB-3: the same job from SQL and from YAML gives equal JobSpecs and equal results.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::Value;
use std::path::Path;
use support::process::{Weir, temporary};
use support::rest::Rest;
use support::sql::{Rows, Sql};
use support::{PATIENCE, until};

fn input(dir: &Path) -> String {
    let row =
        |n: u64| format!("{{\"k\":{},\"s\":\"s{}\",\"x\":{n},\"at\":\"2024-01-01T00:{:02}:{:02}Z\"}}\n", n % 7, n % 3, n / 60 % 60, n % 60);
    let path = dir.join("input.ndjson");
    std::fs::write(&path, (0..600).map(row).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn source(path: &str) -> String {
    format!(
        "CREATE SOURCE f (k BIGINT, s TEXT, x BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '4 seconds')
         WITH (connector = 'file', path = '{path}', format = 'json')"
    )
}

const SELECT: &str = "SELECT k, window_start, window_end, count(*) AS n, sum(x) AS total
  FROM tumble(f, at, INTERVAL '1 minute') WHERE s <> 's1' GROUP BY k, window_start, window_end HAVING count(*) > 1";

/// What the job gives, worked out here: 600 rows, one a second, ten minutes.
fn expected() -> Rows {
    let mut rows = Vec::new();
    for minute in 0..10u64 {
        for k in 0..7u64 {
            let mine: Vec<u64> = (minute * 60..minute * 60 + 60).filter(|n| n % 7 == k && n % 3 != 1).collect();
            if mine.len() > 1 {
                let (start, end) = (format!("2024-01-01 00:{minute:02}:00"), format!("2024-01-01 00:{:02}:00", minute + 1));
                rows.push(vec![k.to_string(), start, end, mine.len().to_string(), mine.iter().sum::<u64>().to_string()]);
            }
        }
    }
    rows
}

fn result(sql: &Sql, job: &str) -> Rows {
    sql.run(&format!("WAIT FOR JOB {job} UNTIL FINISHED TIMEOUT '30s'"));
    sql.rows(&format!("SELECT k, window_start, window_end, n, total FROM {job} ORDER BY window_start, k"))
}

/// The spec of a job over REST, without its name.
fn spec(rest: &Rest, job: &str) -> Value {
    let mut spec = rest.get(&format!("/api/v1/jobs/{job}/detail")).expect(200)["spec"].clone();
    assert_eq!(spec["id"], job, "detail holds the spec: {spec}");
    spec["id"] = Value::Null;
    spec
}

/// What SHOW JOB SPEC prints is a YAML document that REST takes, and it is the same job.
#[test]
fn the_printed_spec_submitted_over_rest_is_the_same_job() {
    let (data, files) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let (sql, rest) = (weir.sql(), Rest::new(weir.http()));
    sql.run(&source(&input(files.path())));
    for (name, with, select) in [
        ("plain", "", SELECT),
        ("wide", "WITH (parallelism = 3, checkpoint.interval = '20s', restart.max_attempts = 2)", SELECT),
        ("stateless", "", "SELECT k, at AS window_start, at AS window_end, x AS n, x * 2 AS total FROM f WHERE x < 5"),
    ] {
        sql.run(&format!("CREATE JOB {name} {with} AS {select}"));
        let printed = sql.one(&format!("SHOW JOB SPEC {name}"));
        let twin = format!("{name}_twin");
        let document = printed.replacen(&format!("id: {name}"), &format!("id: {twin}"), 1);
        assert_ne!(document, printed, "the spec names its job: {printed}");
        rest.post_yaml("/api/v1/jobs?desired_state=running", &document).expect(201);
        assert_eq!(sql.one(&format!("SHOW JOB SPEC {twin}")), document);
        assert_eq!(spec(&rest, name), spec(&rest, &twin));
        assert_eq!(result(&sql, name), result(&sql, &twin));
    }
    assert_eq!(result(&sql, "plain"), expected());
    assert_eq!(result(&sql, "wide"), expected());
}

/// The same job written by hand in YAML.
#[test]
fn a_handwritten_document_gives_the_same_spec_and_rows() {
    let (data, files) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let (sql, rest) = (weir.sql(), Rest::new(weir.http()));
    let path = input(files.path());
    let document = format!(
        "id: by_hand
operators:
  - id: source-1
    kind: source
  - id: map-1
    kind: map
    config:
      filter: s <> 's1'
  - id: window-1
    kind: window
    config:
      window:
        tumbling: {{size: 1m}}
      keys: [k]
      aggregates:
        - {{expr: count(*), as: n}}
        - {{expr: sum(x), as: total}}
      having: n > 1
  - id: sink-1
    kind: sink
edges:
  - {{id: e1, from: source-1, to: map-1}}
  - {{id: e2, from: map-1, to: window-1}}
  - {{id: e3, from: window-1, to: sink-1}}
sources:
  - operator_id: source-1
    input_type: file
    config: {{path: '{path}'}}
    codec: {{type: json}}
    schema:
      - {{name: k, type: BIGINT}}
      - {{name: s, type: TEXT}}
      - {{name: x, type: BIGINT}}
      - {{name: at, type: TIMESTAMP(3)}}
    time:
      mode: event_time
      timestamp_field: at
      watermark: {{out_of_orderness: 4s}}
sinks:
  - operator_id: sink-1
    output_type: result
    config: {{}}
"
    );
    rest.post_yaml("/api/v1/jobs?desired_state=running", &document).expect(201);
    assert_eq!(result(&sql, "by_hand"), expected());

    sql.run(&source(&path));
    sql.run(&format!("CREATE JOB by_sql AS {SELECT}"));
    assert_eq!(result(&sql, "by_sql"), expected());
    // The parts that both doors fill are equal word for word.
    let (hand, lowered) = (spec(&rest, "by_hand"), spec(&rest, "by_sql"));
    for field in ["version", "parallelism", "max_parallelism", "checkpoint", "restart", "state", "resources", "sources", "sinks"] {
        assert_eq!(hand[field], lowered[field], "{field}");
    }
}

/// The job over REST in JSON, taken apart as SQL would print it.
#[test]
fn json_and_yaml_bodies_are_one_document() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let (sql, rest) = (weir.sql(), Rest::new(weir.http()));
    sql.run("CREATE SOURCE v (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) AS VALUES (1, 0), (1, 1), (2, 2)");
    sql.run("CREATE JOB a AS SELECT k, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end");
    let mut body = rest.get("/api/v1/jobs/a/detail").expect(200)["spec"].clone();
    body["id"] = "b".into();
    rest.post("/api/v1/jobs", &serde_json::json!({ "spec": body, "desired_state": "running" })).expect(201);
    until("both are finished", PATIENCE, || (sql.one("SELECT count(*) FROM weir.jobs WHERE state = 'finished'") == "2").then_some(()));
    assert_eq!(sql.rows("SELECT k, n FROM b ORDER BY k"), [["1", "2"], ["2", "1"]]);
    assert_eq!(spec(&rest, "a"), spec(&rest, "b"));
}
