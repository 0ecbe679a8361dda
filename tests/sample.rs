//! Sources that declare no columns (JOB-6), with real processes: jobs wait for a first row, take their
//! columns from it once, and keep them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use support::broker::Broker;
use support::process::{Running, Weir, temporary, weir, weir_command, write};
use support::rest::Rest;
use support::{PATIENCE, until};

const RESCALE: &str = include_str!("data/seed/rescale.yaml");

fn objects(out: &str) -> Vec<Value> {
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    lines.sort();
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn run(file: &Path, data: &Path, more: &[&str]) -> Running {
    let mut command = weir_command();
    command.args(["run", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]).args(more);
    Running::spawn(command)
}

/// JOB-2, JOB-6: the sample runs against a broker as it is, but for the broker's address: it waits while
/// the topic is empty, and prints every record as JSON once there is one.
#[test]
fn the_rescale_sample_takes_its_columns_from_kafka() {
    let broker = Broker::tansu();
    broker.create_topic("orders", 3);
    let dir = temporary();
    let file = write(dir.path(), "rescale.yaml", &RESCALE.replace("localhost:9092", &broker.address()));
    let mut running = run(&file, &dir.path().join("data"), &[]);
    until("the job waits for a row", PATIENCE, || {
        assert!(running.ended().is_none(), "{}", running.log());
        running.err().contains("no row to sample yet").then_some(())
    });
    assert_eq!(running.out(), "");
    broker.produce("orders", (0..50).map(|n| (n % 3, format!(r#"{{"id":{n},"name":"order {n}","price":{n}.5,"lines":[{{"sku":"a"}}]}}"#))));
    until("all rows are printed", PATIENCE, || (running.out().lines().count() >= 50).then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait(PATIENCE).code(), Some(0), "{}", running.log());
    let mut found: Vec<Value> = objects(&running.out());
    found.sort_by_key(|row| row["id"].as_i64());
    let expected: Vec<Value> = (0..50)
        // A nested value is TEXT that holds its JSON.
        .map(|n| json!({"id": n, "name": format!("order {n}"), "price": f64::from(n) + 0.5, "lines": "[{\"sku\":\"a\"}]"}))
        .collect();
    assert_eq!(found, expected);
    let told = "source 'source' has the columns (id BIGINT, name TEXT, price DOUBLE PRECISION, lines TEXT), taken from its first rows";
    assert!(running.err().contains(told), "{}", running.err());
}

/// A job over a file without columns, into its result table.
fn document(id: &str, file: &Path, project: &str) -> String {
    format!(
        "id: {id}
operators:
  - {{id: source, kind: source}}
  - id: twice
    kind: map
    config:
      project:
        - k
        - {project}
  - {{id: sink, kind: sink}}
edges:
  - {{id: a, from: source, to: twice}}
  - {{id: b, from: twice, to: sink}}
sources:
  - operator_id: source
    input_type: file
    config: {{path: '{}'}}
    codec: json
sinks:
  - {{operator_id: sink, output_type: result, config: {{}}}}
",
        file.display()
    )
}

fn job(rest: &Rest, id: &str) -> Value {
    rest.get(&format!("/api/v1/jobs/{id}")).expect(200)
}

fn waits_for_a_row(rest: &Rest, id: &str) {
    until("the job waits for a row", PATIENCE, || {
        let job = job(rest, id);
        assert_eq!(job["state"], "starting", "{job}");
        job["last_error"].as_str().is_some_and(|reason| reason.contains("no row to sample yet")).then_some(())
    });
}

/// JOB-1, JOB-6, JOB-9: validation and plan say what is not known; the job waits in `starting` with its
/// reason, also when the process is killed, and runs once there is a row; the columns stay.
#[test]
fn a_rest_job_waits_for_its_first_row_also_when_killed() {
    let dir = temporary();
    let input = write(dir.path(), "rows.ndjson", "");
    let data = dir.path().join("data");
    let up = Weir::up(&data);
    let rest = Rest::new(up.http());
    let text = document("late", &input, "n * 2 AS twice");
    let valid = rest.post_yaml("/api/v1/jobs/validate", &text).expect(200);
    assert!(valid.to_string().contains("source 'source' declares no columns"), "{valid}");
    rest.post_yaml("/api/v1/jobs?desired_state=running", &text).expect(201);
    waits_for_a_row(&rest, "late");
    let plan = rest.get("/api/v1/jobs/late/plan").expect(200);
    assert_eq!((&plan["pending"], &plan["sources"]), (&json!(true), &json!(["source"])), "{plan}");
    let told = rest.get("/api/v1/jobs/late/plan?format=text").expect(200);
    assert!(told.as_str().unwrap().contains("columns unknown until the first start"), "{told}");

    let up = up.again();
    let rest = Rest::new(up.http());
    waits_for_a_row(&rest, "late");
    std::fs::write(&input, "{\"k\": \"a\", \"n\": 1}\n{\"k\": \"b\", \"n\": 20}\n").unwrap();
    until("the job is finished", PATIENCE, || (job(&rest, "late")["state"] == "finished").then_some(()));
    let mut rows = up.sql().rows("SELECT k, twice FROM late");
    rows.sort();
    assert_eq!(rows, [["a", "2"], ["b", "40"]]);
    let pinned = job(&rest, "late");
    assert_eq!(pinned["spec"]["sources"][0]["schema"][1]["type"], "BIGINT", "{pinned}");
    let submitted = rest.get("/api/v1/jobs/late/versions").expect(200);
    assert!(submitted["items"][0]["spec"]["sources"][0].get("schema").is_none(), "{submitted}");
    // The same text is the same version, and another look at the rows would give other columns.
    std::fs::write(&input, "{\"k\": 1, \"other\": true}\n").unwrap();
    rest.post_yaml("/api/v1/jobs", &text).expect(200);
    assert_eq!(job(&rest, "late")["spec"], pinned["spec"]);
}

/// JOB-6, JOB-7: what does not fit the columns that came fails the job, with its place in the text that was submitted.
#[test]
fn an_expression_that_does_not_fit_the_columns_fails_the_job() {
    let dir = temporary();
    let input = write(dir.path(), "rows.ndjson", "{\"k\": \"a\", \"n\": 1}\n");
    let up = Weir::up(&dir.path().join("data"));
    let rest = Rest::new(up.http());
    // What needs no columns is refused at once.
    let refused = rest.post_yaml("/api/v1/jobs", &document("wrong", &input, "nosuch(n) AS twice")).expect(422);
    assert!(refused.to_string().contains("nosuch"), "{refused}");
    rest.post_yaml("/api/v1/jobs?desired_state=running", &document("wrong", &input, "nope + 1 AS twice")).expect(201);
    let reason = until("the job has failed", PATIENCE, || {
        let job = job(&rest, "wrong");
        (job["state"] == "failed").then(|| job["last_error"].as_str().unwrap_or_default().to_owned())
    });
    assert!(reason.contains("line 9, column ") && reason.contains("operators[1].config.project[1]") && reason.contains("nope"), "{reason}");
}

/// JOB-6, STR-6: `weir run` waits for a row and ends by SIGTERM meanwhile; the columns that it took stay with
/// the data directory.
#[test]
fn weir_run_keeps_the_columns_that_it_took() {
    let dir = temporary();
    let input = write(dir.path(), "rows.ndjson", "");
    let text = document("here", &input, "n * 2 AS twice").replace("output_type: result", "output_type: stdout");
    let file = write(dir.path(), "job.yaml", &text);
    let data = dir.path().join("data");
    let mut waiting = run(&file, &data, &[]);
    until("the job waits for a row", PATIENCE, || waiting.err().contains("no row to sample yet").then_some(()));
    waiting.signal("TERM");
    assert_eq!(waiting.wait(PATIENCE).code(), Some(0), "{}", waiting.log());

    let validated = weir(&["validate", file.to_str().unwrap()]);
    assert_eq!(validated.code, 0, "{}", validated.err);
    let explained = weir(&["explain", file.to_str().unwrap()]);
    assert!(explained.code == 0 && explained.out.contains("columns unknown until the first start"), "{}", explained.out);

    std::fs::write(&input, "{\"k\": \"a\", \"n\": 1}\n").unwrap();
    let mut first = run(&file, &data, &[]);
    assert_eq!(first.wait(PATIENCE).code(), Some(0), "{}", first.log());
    assert_eq!(objects(&first.out()), [json!({"k": "a", "twice": 2})]);
    assert!(first.err().contains("has the columns (k TEXT, n BIGINT)"), "{}", first.err());
    // A look at these rows would give no column `n`, which the job reads.
    std::fs::write(&input, "{\"k\": \"b\", \"m\": 1}\n").unwrap();
    let mut second = run(&file, &data, &[]);
    assert_eq!(second.wait(PATIENCE).code(), Some(0), "{}", second.log());
    assert!(!second.err().contains("has the columns"), "{}", second.err());
    let mut fresh = run(&file, &data, &["--fresh"]);
    assert_eq!(fresh.wait(Duration::from_secs(60)).code(), Some(1), "{}", fresh.log());
    assert!(fresh.err().contains("operators[1].config.project[1]"), "{}", fresh.err());
}

/// JOB-6: a job that waits for its first row holds up no other one of its file: the rows may come from there.
#[test]
fn a_waiting_job_does_not_hold_up_the_one_that_makes_its_rows() {
    let dir = temporary();
    let (between, data) = (dir.path().join("between"), dir.path().join("data"));
    std::fs::create_dir(&between).unwrap();
    // What the first job writes; until then a file without rows.
    std::fs::write(between.join("part-0.ndjson"), "").unwrap();
    let reads = document("reads", &between.join("*.ndjson"), "n * 2 AS twice").replace("output_type: result", "output_type: stdout");
    let writes = format!(
        "id: writes
operators: [{{id: source, kind: source}}, {{id: sink, kind: sink}}]
edges: [{{id: a, from: source, to: sink}}]
sources:
  - {{operator_id: source, input_type: memory, codec: json, config: {{messages: ['{{\"k\": \"a\", \"n\": 4}}']}}}}
sinks:
  - {{operator_id: sink, output_type: file, config: {{path: '{}'}}}}
",
        dir.path().join("made").display()
    );
    let entry = |job: &str| {
        job.lines().enumerate().map(|(at, line)| format!("{}{line}\n", if at == 0 { "  - " } else { "    " })).collect::<String>()
    };
    let file = write(dir.path(), "jobs.yaml", &format!("jobs:\n{}{}", entry(&reads), entry(&writes)));
    let mut running = run(&file, &data, &[]);
    let made = dir.path().join("made/part-0.ndjson");
    let rows = until("the other job has written", PATIENCE, || {
        assert!(running.ended().is_none(), "{}", running.log());
        std::fs::read_to_string(&made).ok().filter(|text| !text.is_empty())
    });
    std::fs::write(between.join("part-0.ndjson"), rows).unwrap();
    assert_eq!(running.wait(PATIENCE).code(), Some(0), "{}", running.log());
    assert_eq!(objects(&running.out()), [json!({"k": "a", "twice": 8})]);
}
