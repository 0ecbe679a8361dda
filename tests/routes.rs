//! Error sinks and late routes through the real binary: each line of the input ends up in one place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::{Value, json};
use std::path::Path;
use support::output;
use support::process::{Weir, temporary, weir, write};
use support::rest::Rest;

/// A window over a file, with everything that does not reach it led into files of its own.
fn document(id: &str, input: &Path, out: &Path) -> String {
    let (sums, late, errors) = (out.join("sums"), out.join("late"), out.join("errors"));
    format!(
        "id: {id}
operators:
  - {{id: source-1, kind: source}}
  - id: share
    kind: map
    config: {{filter: d <> 13, project: [k, ts, 100 / d AS q]}}
  - id: window-1
    kind: window
    config:
      window: {{tumbling: {{size: 1s}}}}
      keys: [k]
      aggregates:
        - {{expr: count(*), as: n}}
        - {{expr: sum(q), as: total}}
  - {{id: sums, kind: sink}}
  - {{id: late, kind: sink}}
  - {{id: errors, kind: sink}}
edges:
  - {{id: e1, from: source-1, to: share}}
  - {{id: e2, from: share, to: window-1}}
  - {{id: e3, from: window-1, to: sums}}
sources:
  - operator_id: source-1
    input_type: file
    config: {{path: '{}'}}
    codec: {{type: json}}
    schema:
      - {{name: k, type: TEXT}}
      - {{name: ts, type: BIGINT}}
      - {{name: d, type: BIGINT}}
    time:
      mode: event_time
      timestamp_field: ts
      watermark: {{max_future: 1d}}
      late_event_policy: route
      late_event_route: late
    on_error: {{policy: route, to: errors}}
sinks:
  - {{operator_id: sums, output_type: file, config: {{path: '{}'}}, codec: {{type: json}}}}
  - {{operator_id: late, output_type: file, config: {{path: '{}'}}, codec: {{type: json}}}}
  - {{operator_id: errors, output_type: file, config: {{path: '{}'}}, codec: {{type: json}}}}
",
        input.display(),
        sums.display(),
        late.display(),
        errors.display()
    )
}

const LINES: &str = r#"{"k":"a","ts":1000,"d":10}
{"k":"a","ts":1500,"d":0}
not json
{"k":"a","ts":1600,"d":20}
{"k":"b","ts":null,"d":3}
{"k":"b","ts":5000,"d":50}
{"k":"a","ts":1700,"d":1}
{"k":"b","ts":5100,"d":13}
{"k":"b","ts":99999999999999,"d":1}
{"k":"b","ts":5200,"d":"many"}
{"k":"b","ts":5300,"d":25}
"#;

/// Rows of all files of a file sink, in the order of their texts.
fn rows(dir: &Path) -> Vec<Value> {
    let mut lines = output::lines(dir);
    lines.sort();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bytes(value: &Value) -> String {
    let hex = value.as_str().unwrap().strip_prefix("\\x").unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap()
}

fn check(out: &Path) {
    let sums = rows(&out.join("sums"));
    let sum = |row: &Value| (row["k"].clone(), row["window_start"].clone(), row["n"].clone(), row["total"].clone());
    let mut found: Vec<String> = sums.iter().map(|row| format!("{:?}", sum(row))).collect();
    found.sort();
    let at = |second: i64| format!("1970-01-01T00:00:0{second}.000");
    let expected = [(json!("a"), json!(at(1)), json!(2), json!(15)), (json!("b"), json!(at(5)), json!(2), json!(6))];
    assert_eq!(found, expected.map(|row| format!("{row:?}")));

    // Columns are those that the window takes: the source's row without a time has no q.
    let mut late = rows(&out.join("late"));
    late.sort_by_key(|row| row["k"].to_string());
    let expected = [
        json!({"k": "a", "ts": 1700, "q": 100, "__reason": "late", "__late_by_ms": 3000}),
        json!({"k": "b", "ts": null, "q": null, "__reason": "null_timestamp", "__late_by_ms": null}),
    ];
    assert_eq!(late, expected);

    let mut errors: Vec<(String, String, Value, String)> = Vec::new();
    for row in rows(&out.join("errors")) {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        assert!(text("at").starts_with("20"), "the time of reading: {row}");
        assert_eq!(row["partition"].is_null(), row["source"] == "share", "{row}");
        errors.push((text("source"), bytes(&row["raw"]), row["position"].clone(), text("reason")));
    }
    errors.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let [share, broken, many, future] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!((share.0.as_str(), share.1.as_str()), ("share", r#"{"k":"a","ts":1500,"d":0}"#));
    assert!(share.3.contains("operator 'share'") && share.3.to_lowercase().contains("divide by zero"), "{}", share.3);
    let line = |n: u64| json!(format!("line {n}"));
    assert_eq!((many.0.as_str(), many.1.as_str()), ("source-1", r#"{"k":"b","ts":5200,"d":"many"}"#));
    assert_eq!((many.2.clone(), many.3.as_str()), (line(10), "field 'd': the value is not of type BIGINT"));
    assert_eq!((future.1.as_str(), future.2.clone()), (r#"{"k":"b","ts":99999999999999,"d":1}"#, Value::Null));
    assert_eq!(future.3, "future");
    assert_eq!((broken.1.as_str(), broken.2.clone()), ("not json", line(3)));
}

/// PLAN-5, CON-5, C42, C09: `weir run` leads every line that does not count to its own file, at any
/// parallelism, and a second run of the finished job adds nothing.
#[test]
fn every_line_ends_in_one_place() {
    for parallelism in [1, 2] {
        let dir = temporary();
        let (input, out) = (write(dir.path(), "in.ndjson", LINES), dir.path().join("out"));
        let text = format!("{}parallelism: {parallelism}\n", document("routes", &input, &out));
        let job = write(dir.path(), "job.yaml", &text);
        let data = dir.path().join("data");
        for _ in 0..2 {
            let done = weir(&["run", job.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
            assert_eq!(done.code, 0, "{}{}", done.out, done.err);
            check(&out);
        }
    }
}

/// E5: the counters that people see name each row, and nothing routed is told as a loss.
#[test]
fn counters_tell_what_was_routed() {
    let (data, dir) = (temporary(), temporary());
    let (input, out) = (write(dir.path(), "in.ndjson", LINES), dir.path().join("out"));
    let server = Weir::up(data.path());
    let sql = server.sql();
    Rest::new(server.http()).post_yaml("/api/v1/jobs?desired_state=running", &document("routes", &input, &out)).expect(201);
    sql.run("WAIT FOR JOB routes UNTIL FINISHED TIMEOUT '30s'");
    check(&out);
    let of = |operator: &str, column: &str| {
        sql.one(&format!("SELECT sum({column}) FROM weir.job_tasks WHERE job = 'routes' AND operator = '{operator}'"))
    };
    assert_eq!(of("source-1", "rows_in_total"), "11");
    assert_eq!(of("source-1", "rows_routed_total"), "4", "two bad records, one from the future, one without a time");
    assert_eq!((of("share", "rows_error_total"), of("share", "rows_routed_total")), ("1".to_owned(), "1".to_owned()));
    assert_eq!((of("window-1", "rows_late_total"), of("window-1", "rows_routed_total")), ("1".to_owned(), "1".to_owned()));
    assert_eq!((of("late", "rows_in_total"), of("errors", "rows_in_total")), ("2".to_owned(), "4".to_owned()));
    assert_eq!(sql.one("SELECT sum(rows_invalid_total) FROM weir.job_sources WHERE job = 'routes'"), "1");
    assert_eq!(sql.one("SELECT count(*) FROM weir.job_events WHERE job = 'routes' AND kind LIKE 'rows_%'"), "0");
}
