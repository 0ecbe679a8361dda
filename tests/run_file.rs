//! `weir run FILE` (STR-6): exit codes, going on after a stop and after `kill -9`, what may change between two
//! runs, and several jobs in one file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use support::process::{Ended, Running, temporary, weir, weir_command, write};
use support::{PATIENCE, until};

/// A job that numbers rows into a file, about 2,500 a second. `more` are lines of the job, `sink` is
/// what the sink operator says beside its id.
fn numbering(id: &str, rows: u64, output: &Path, more: &str, sink: &str) -> String {
    format!(
        "  - id: {id}
    checkpoint: {{epoch_ms: 20, interval_ms: 200}}
{more}    operators:
      - {{id: source-1, kind: source}}
      - {{id: sink-1, kind: sink{sink}}}
    edges:
      - {{id: e1, from: source-1, to: sink-1}}
    sources:
      - operator_id: source-1
        input_type: generate
        config: {{context: '{{\"n\": \"{{{{counter}}}}\"}}', rows: {rows}, batch_size: 5, interval_ms: 2}}
        codec: {{type: json}}
        schema: [{{name: n, type: BIGINT}}]
    sinks:
      - operator_id: sink-1
        output_type: file
        config: {{path: '{}'}}
        codec: {{type: json}}
",
        output.display()
    )
}

/// A job that sums the same rows by hundreds of event time, into `sink` (the lines under its `operator_id`).
fn summing(id: &str, rows: u64, more: &str, sink: &str) -> String {
    format!(
        "  - id: {id}
    checkpoint: {{epoch_ms: 20, interval_ms: 200}}
{more}    operators:
      - {{id: source-1, kind: source, parallelism: 1}}
      - id: window-1
        kind: window
        config:
          window: {{tumbling: {{size_ms: 100}}}}
          keys: [k]
          aggregates:
            - {{expr: count(*), as: rows}}
            - {{expr: sum(n), as: total}}
      - {{id: sink-1, kind: sink}}
    edges:
      - {{id: e1, from: source-1, to: window-1}}
      - {{id: e2, from: window-1, to: sink-1}}
    sources:
      - operator_id: source-1
        input_type: generate
        config: {{context: '{{\"n\": \"{{{{counter}}}}\", \"k\": \"one\"}}', rows: {rows}, batch_size: 5, interval_ms: 2}}
        codec: {{type: json}}
        schema: [{{name: n, type: BIGINT}}, {{name: k, type: TEXT}}]
        time: {{mode: event_time, timestamp_field: n, watermark: {{}}}}
    sinks:
      - operator_id: sink-1
{sink}"
    )
}

const NOWHERE: &str = "        output_type: drop\n";

fn jobs(jobs: &[String]) -> String {
    format!("jobs:\n{}", jobs.concat())
}

/// Lines of all files of a file sink; none while there is no file.
fn lines(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
    files.flat_map(|file| std::fs::read_to_string(file.path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The numbers in the files of a numbering job, sorted.
fn numbers(dir: &Path) -> Vec<i64> {
    let number = |line: &String| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("torn line {line:?}: {e}"));
        row["n"].as_i64().unwrap()
    };
    let mut numbers: Vec<i64> = lines(dir).iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Each number from 0 on once.
#[track_caller]
fn assert_whole(numbers: &[i64]) {
    let at = numbers.iter().enumerate().find(|(at, number)| i64::try_from(*at).unwrap() != **number);
    assert_eq!(at, None, "place and number of the first that is missing or doubled");
}

fn run(file: &Path, data: &Path, more: &[&str]) -> Ended {
    let mut args = vec!["run", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    args.extend(more);
    weir(&args)
}

fn started(file: &Path, data: &Path, more: &[&str]) -> Running {
    let mut command = weir_command();
    command.args(["run", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]).args(more);
    Running::spawn(command)
}

#[track_caller]
fn ended(done: &Ended, code: i32, said: &[&str]) {
    assert_eq!(done.code, code, "{}{}", done.out, done.err);
    for words in said {
        assert!(done.err.contains(words), "'{words}' is not in: {}", done.err);
    }
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

/// STR-6, A7: told to stop it exits 0, killed it loses nothing, and the next run goes on: every row and
/// every window is there once at the end.
#[test]
fn a_run_goes_on_after_sigterm_and_after_kill() {
    const ROWS: u64 = 4_000;
    let dir = temporary();
    let (numbered, summed, data) = (dir.path().join("numbers"), dir.path().join("sums"), dir.path().join("data"));
    let sink = format!("        output_type: file\n        config: {{path: '{}'}}\n        codec: {{type: json}}\n", summed.display());
    let text = jobs(&[numbering("numbers", ROWS, &numbered, "", ""), summing("sums", ROWS, "", &sink)]);
    let file = write(dir.path(), "two.yaml", &text);

    let mut first = started(&file, &data, &[]);
    until("rows are written", PATIENCE, || (lines(&numbered).len() > 200 && !lines(&summed).is_empty()).then_some(()));
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE).code(), Some(0), "{}", first.log());
    let stopped = numbers(&numbered);
    assert_whole(&stopped);
    assert!(stopped.len() < ROWS as usize, "it was stopped in the middle");

    let mut second = started(&file, &data, &[]);
    until("more rows are written", PATIENCE, || (lines(&numbered).len() > stopped.len() + 200).then_some(()));
    second.kill();
    drop(second);

    ended(&run(&file, &data, &[]), 0, &[]);
    let all = numbers(&numbered);
    assert_whole(&all);
    assert_eq!(all.len() as u64, ROWS);
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for line in lines(&summed) {
        let row: serde_json::Value = serde_json::from_str(&line).unwrap();
        let start = row["window_start"].to_string();
        assert_eq!(sums.insert(start.clone(), (row["rows"].as_i64().unwrap(), row["total"].as_i64().unwrap())), None, "{start} came twice");
    }
    let mut sums: Vec<(i64, i64)> = sums.into_values().collect();
    sums.sort_unstable();
    // Window i holds the numbers 100 i to 100 i + 99.
    let expected: Vec<(i64, i64)> = (0..ROWS as i64 / 100).map(|i| (100, 100 * 100 * i + 99 * 50)).collect();
    assert_eq!(sums, expected);
}

/// STR-2, STR-6, C51: rows that a buffer holds survive `kill -9`: none is lost, none comes twice, and
/// their order stays.
#[test]
fn a_buffer_keeps_its_rows_over_kills() {
    const ROWS: u64 = 4_000;
    for (kind, config) in [("memory", "{memory: {capacity: 300, timeout_ms: 3600000}}"), ("tumbling", "{tumbling: {interval_ms: 150}}")] {
        let dir = temporary();
        let (numbered, data) = (dir.path().join("numbers"), dir.path().join("data"));
        let plain = numbering("numbers", ROWS, &numbered, "", "");
        let held = plain
            .replace(
                "      - {id: sink-1, kind",
                &format!("      - {{id: hold, kind: buffer, config: {config}}}\n      - {{id: sink-1, kind"),
            )
            .replace("to: sink-1}", "to: hold}\n      - {id: e2, from: hold, to: sink-1}");
        let file = write(dir.path(), "held.yaml", &jobs(&[held]));
        let mut written = 0;
        for round in 0..3 {
            let mut running = started(&file, &data, &[]);
            // It has gone on, and holds rows again: the file ends with a whole batch.
            until("rows are written", PATIENCE, || (lines(&numbered).len() > written + 250).then_some(()));
            running.kill();
            drop(running);
            written = lines(&numbered).len();
            assert!(written < ROWS as usize, "{kind} {round}: it was killed in the middle");
        }
        ended(&run(&file, &data, &[]), 0, &[]);
        let inorder: Vec<String> = lines(&numbered);
        assert_whole(&numbers(&numbered));
        assert_eq!(inorder.len() as u64, ROWS, "{kind}");
        let number = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap()["n"].as_i64().unwrap();
        assert!(inorder.iter().map(number).is_sorted(), "{kind}: in the order in which they came");
    }
}

/// JOB-1, J1, CKP-8, G3: what a next run of the same job may bring, and what not.
#[test]
fn a_version_never_changes_its_content() {
    let dir = temporary();
    let data = dir.path().join("data");
    let base = summing("sums", 200, "    version: 2\n", NOWHERE);
    let go = |change: &[(&str, &str)], more: &[&str]| {
        let mut text = jobs(std::slice::from_ref(&base));
        for (from, to) in change {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        run(&write(dir.path(), "job.yaml", &text), &data, more)
    };
    ended(&go(&[], &[]), 0, &[]);
    // Equal content goes on, and so does what only tunes it.
    ended(&go(&[], &[]), 0, &[]);
    ended(&go(&[("epoch_ms: 20", "epoch_ms: 40")], &[]), 0, &[]);
    ended(&go(&[("version: 2\n", "version: 2\n    resources: {inflight_bytes: 100000}\n    restart: {max_attempts: 2}\n")], &[]), 0, &[]);
    ended(&go(&[("version: 2\n", "version: 2\n    rescale: true\n")], &[]), 0, &[]);
    // Other content does not.
    let other = ("keys: [k]", "keys: [k, n]");
    ended(
        &go(&[other], &[]),
        2,
        &["job.yaml: job sums", "version 2 ran here with other content", "operators[window-1].config.keys", "raise version", "--fresh"],
    );
    ended(&go(&[("version: 2", "version: 1")], &[]), 2, &["version 1 is older than version 2", "--fresh"]);
    // State goes to other tasks only where that is asked for, and never to another operator.
    let wider = ("version: 2\n", "version: 2\n    parallelism: 2\n");
    ended(&go(&[wider], &[]), 2, &["added tasks", "window-1-1", "sink-1-1", "start fresh", "set rescale: true"]);
    for (version, why) in
        [("version: 3\n", "set rescale: true"), ("version: 3\n    rescale: true\n", "operator 'window-1' keeps state in the cut")]
    {
        let renamed = go(&[("version: 2\n", version), ("window-1", "window-2")], &[]);
        ended(&renamed, 2, &["added tasks window-2-0", "removed tasks window-1-0", why]);
    }
    let groups = ("version: 2\n", "version: 3\n    rescale: true\n    max_parallelism: 64\n");
    ended(&go(&[groups], &[]), 2, &["max_parallelism 64 instead of 128", "key groups, which stay for the life of the job"]);
    // Nor is the state of one aggregate that of another.
    let summed = ("expr: sum(n)", "expr: max(n)");
    ended(&go(&[("version: 2", "version: 3"), summed], &[]), 2, &["operators[window-1].config.aggregates[total].expr", "--fresh"]);
    // None of the refused runs has changed what counts.
    ended(&go(&[], &[]), 0, &[]);
    // A raised version may have other content with the same tasks, and there is no way back but a fresh start.
    ended(&go(&[("version: 2", "version: 3"), ("interval_ms: 2}", "interval_ms: 3}")], &[]), 0, &[]);
    ended(&go(&[], &[]), 2, &["version 2 is older than version 3"]);
    ended(&go(&[wider], &["--fresh"]), 0, &[]);
    ended(&go(&[wider], &[]), 0, &[]);
}

/// CKP-8: a job without state goes on with any number of tasks, and each row is written once.
#[test]
fn a_job_without_state_may_change_its_parallelism() {
    const ROWS: u64 = 3_000;
    let dir = temporary();
    let (output, data) = (dir.path().join("numbers"), dir.path().join("data"));
    let with =
        |tasks: u32| write(dir.path(), "job.yaml", &jobs(&[numbering("numbers", ROWS, &output, "", &format!(", parallelism: {tasks}"))]));
    let mut before = 0;
    for tasks in [2, 1, 3] {
        let mut running = started(&with(tasks), &data, &[]);
        until("rows are written", PATIENCE, || (lines(&output).len() > before + 200).then_some(()));
        // Without a last epoch: what each file holds past the cut has to be cut off, also by tasks that are no more.
        running.kill();
        before = lines(&output).len();
    }
    ended(&run(&with(2), &data, &[]), 0, &[]);
    let all = numbers(&output);
    assert_whole(&all);
    assert_eq!(all.len() as u64, ROWS);
    assert!(output.join("part-2.ndjson").exists(), "three tasks have written");
}

/// CKP-9, G1, G2: with `rescale` a killed job goes on as more tasks or fewer, and every window of every key is there once.
#[test]
fn a_job_with_state_is_rescaled_where_it_says_so() {
    const ROWS: u64 = 4_000;
    let dir = temporary();
    let (output, data) = (dir.path().join("sums"), dir.path().join("data"));
    let sink = format!("        output_type: file\n        config: {{path: '{}'}}\n        codec: {{type: json}}\n", output.display());
    // Each row has a key of its own, and its sum is its number.
    let text = summing("sums", ROWS, "    rescale: true\n    parallelism: 1\n", &sink)
        .replace("\"k\": \"one\"", "\"k\": \"{{counter}}\"")
        .replace("expr: sum(n), as: total", "expr: sum(n), as: n")
        .replace("size_ms: 100}", "size_ms: 700}");
    let with = |tasks: u32| {
        let text = text.replace("    parallelism: 1\n", &format!("    parallelism: {tasks}\n"));
        write(dir.path(), "job.yaml", &jobs(&[text]))
    };
    let mut before = 0;
    for tasks in [2, 1, 3, 5] {
        let mut running = started(&with(tasks), &data, &[]);
        until("windows are written", PATIENCE, || (lines(&output).len() > before + 600).then_some(()));
        running.kill();
        before = lines(&output).len();
        // Killed while it starts, perhaps before it has dealt anything, perhaps after: no epoch tells.
        let mut starting = started(&with(tasks + 1), &data, &[]);
        until("it has opened its state", PATIENCE, || starting.err().contains("restored from the cut").then_some(()));
        starting.kill();
    }
    ended(&run(&with(2), &data, &[]), 0, &[]);
    let all = numbers(&output);
    assert_whole(&all);
    assert_eq!(all.len() as u64, ROWS);
}

/// STR-6: when one job fails for good, the others are stopped with their last epoch decided, and the exit code is 1.
#[test]
fn one_failed_job_ends_all_cleanly() {
    const ROWS: u64 = 2_000;
    let dir = temporary();
    let (output, data) = (dir.path().join("numbers"), dir.path().join("data"));
    let input = write(dir.path(), "in.ndjson", "{\"n\": 1}\nnot a record\n");
    let good = numbering("good", ROWS, &output, "", "");
    let bad = numbering("bad", 1, &dir.path().join("bad"), "", "")
        .replace("input_type: generate", "input_type: file")
        .replace("config: {context", &format!("config: {{path: '{}'}}\n        x: {{context", input.display()));
    let bad: String = bad.lines().filter(|line| !line.trim_start().starts_with("x: {")).map(|line| format!("{line}\n")).collect();
    let both = write(dir.path(), "both.yaml", &jobs(&[good.clone(), bad]));
    ended(&run(&both, &data, &[]), 1, &["job bad failed", "in.ndjson", "2"]);
    // The stopped job holds exactly what it had decided, and its next run adds the rest.
    assert_whole(&numbers(&output));
    ended(&run(&write(dir.path(), "good.yaml", &jobs(&[good])), &data, &[]), 0, &[]);
    let all = numbers(&output);
    assert_whole(&all);
    assert_eq!(all.len() as u64, ROWS);
}

/// KER-5, JOB-8: what cannot be built fails before anything is made, and validation says the same with its place.
#[test]
fn what_cannot_be_built_is_not_started() {
    let dir = temporary();
    let data = dir.path().join("data");
    let text = jobs(&[summing("sums", 10, "", NOWHERE), numbering("numbers", 10, &dir.path().join("out"), "", "")]);
    // A generator whose rows are no JSON: only building its decoder and its rows shows that.
    let text = text.replacen("context: '{\"n\"", "context: '{\"n", 1);
    let file = write(dir.path(), "job.yaml", &text);
    let refused = run(&file, &data, &[]);
    assert!(refused.code == 1 || refused.code == 2, "{}{}", refused.out, refused.err);
    assert!(!data.exists() && !dir.path().join("out").exists(), "nothing is made");
    let checked = weir(&["validate", file.to_str().unwrap()]);
    assert_eq!(checked.code, 2, "{}{}", checked.out, checked.err);
    assert!(checked.err.contains("job.yaml:"), "{}", checked.err);
    assert!(refused.err.contains("context") && checked.err.contains("context"), "{}\n{}", refused.err, checked.err);
}

/// Restart law: with `--retry` an endpoint that is away is tried again; without it, and for what trying again cannot mend,
/// the first failure ends the run.
#[test]
fn only_what_may_pass_is_tried_again() {
    let dir = temporary();
    let data = dir.path().join("data");
    // A port that was free a moment ago: nobody answers there.
    let port = support::broker::free_port();
    let away = numbering("away", 1, &dir.path().join("out"), "    restart: {backoff_ms: 10, max_backoff_ms: 20}\n", "")
        .replace("output_type: file", "output_type: kafka")
        .replace(
            &format!("config: {{path: '{}'}}", dir.path().join("out").display()),
            &format!("config: {{brokers: ['127.0.0.1:{port}'], topic: t}}"),
        );
    let file = write(dir.path(), "away.yaml", &jobs(&[away]));
    ended(&run(&file, &data, &[]), 1, &["job away failed"]);
    let mut running = started(&file, &data, &["--retry"]);
    until("it is tried again", PATIENCE * 2, || (running.err().matches("job away failed").count() > 1).then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait(PATIENCE).code(), Some(0), "{}", running.log());

    let missing = numbering("missing", 1, &dir.path().join("out"), "", "").replace("input_type: generate", "input_type: file");
    let missing: String = missing
        .lines()
        .map(|line| match line.trim_start().starts_with("config: {context") {
            true => format!("        config: {{path: '{}'}}\n", dir.path().join("none.ndjson").display()),
            false => format!("{line}\n"),
        })
        .collect();
    let file = write(dir.path(), "missing.yaml", &jobs(&[missing]));
    ended(&run(&file, &dir.path().join("data2"), &["--retry"]), 1, &["job missing failed", "none.ndjson"]);
}

/// JOB-6: columns that nobody declared come from the rows, and the next run of the version keeps them.
#[test]
fn undeclared_columns_are_taken_once() {
    let dir = temporary();
    let (output, data) = (dir.path().join("out"), dir.path().join("data"));
    let input = write(dir.path(), "in-1.ndjson", "{\"n\": 1, \"name\": \"a\"}\n{\"n\": 5, \"name\": \"b\"}\n");
    let text = format!(
        "id: picked
operators:
  - {{id: source-1, kind: source}}
  - {{id: big, kind: map, config: {{filter: 'n > 3'}}}}
  - {{id: sink-1, kind: sink}}
edges: [{{id: e1, from: source-1, to: big}}, {{id: e2, from: big, to: sink-1}}]
sources:
  - {{operator_id: source-1, input_type: file, config: {{path: '{}/in-*.ndjson'}}, codec: {{type: json}}}}
sinks:
  - {{operator_id: sink-1, output_type: file, config: {{path: '{}'}}, codec: {{type: json}}}}
",
        dir.path().display(),
        output.display()
    );
    let file = write(dir.path(), "job.yaml", &text);
    let checked = weir(&["validate", file.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    assert!(checked.out.contains("unchecked") && checked.out.contains("source-1"), "{}", checked.out);
    ended(&run(&file, &data, &[]), 0, &[]);
    let row: serde_json::Value = serde_json::from_str(&lines(&output).concat()).unwrap();
    assert_eq!(row, serde_json::json!({"n": 5, "name": "b"}));
    // The input is gone, so there is nothing to take columns from: they are known.
    std::fs::remove_file(input).unwrap();
    ended(&run(&file, &data, &[]), 0, &[]);
    // What does not fit the columns is a job that cannot be built.
    let wrong = write(dir.path(), "wrong.yaml", &text.replace("n > 3", "m > 3").replace("id: picked", "id: wrong"));
    write(dir.path(), "in-2.ndjson", "{\"n\": 7}\n");
    ended(&run(&wrong, &data, &[]), 1, &["job wrong", "m"]);
}

/// JOB-9: the plans of several jobs are one JSON text, and every fault of every job is told at once.
#[test]
fn several_jobs_are_explained_and_checked_together() {
    let dir = temporary();
    let two = [summing("sums", 10, "", NOWHERE), numbering("numbers", 10, &dir.path().join("out"), "", "")];
    let file = write(dir.path(), "two.yaml", &jobs(&two));
    let explained = weir(&["explain", file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(explained.code, 0, "{}", explained.err);
    let plans: serde_json::Value = serde_json::from_str(&explained.out).unwrap();
    assert_eq!((plans[0]["job"].as_str(), plans[1]["job"].as_str()), (Some("sums"), Some("numbers")));
    let one = weir(&["explain", write(dir.path(), "one.yaml", &jobs(&two[..1])).to_str().unwrap(), "--format", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&one.out).unwrap(), plans[0]);

    let wrong = [two[0].replace("keys: [k]", "keys: [nosuch]"), two[1].replace("from: source-1", "from: nowhere")];
    let file = write(dir.path(), "wrong.yaml", &jobs(&wrong));
    let refused = weir(&["validate", file.to_str().unwrap()]);
    ended(&refused, 2, &["nosuch", "nowhere", "jobs[0]", "jobs[1]"]);
}

/// JOB-7: a document without jobs is not a valid one that does nothing, and what has no end is refused for its length.
#[test]
fn a_document_has_jobs_and_an_end() {
    let dir = temporary();
    for text in ["jobs: []\n", "streams:\n", "jobs: []\nstreams: []\n"] {
        let file = write(dir.path(), "none.yaml", text);
        ended(&weir(&["validate", file.to_str().unwrap()]), 2, &["no job and no stream"]);
        ended(&run(&file, &dir.path().join("data"), &[]), 2, &["no job and no stream"]);
    }
    ended(&weir(&["validate", "/dev/zero"]), 2, &["more than 2097152 bytes"]);
}

#[test]
fn components_are_listed_with_their_options() {
    let listed = weir(&["components"]);
    assert_eq!(listed.code, 0);
    for line in [
        "generate (source)", "kafka (sink)", "file (source)", "json (format)", "csv (format)", "sql (processor)", "session_window (buffer)",
    ] {
        assert!(listed.out.lines().any(|found| found == line), "{line}: {}", listed.out);
    }
    assert!(listed.out.contains("delimiter"), "{}", listed.out);
}

/// STR-1, STR-6: streams run like jobs: two of them to their ends, once.
#[test]
fn two_streams_run_to_their_ends() {
    let dir = temporary();
    let data = dir.path().join("data");
    let stream = |id: &str, rows: u64| {
        format!(
            "  - id: {id}
    input: {{type: generate, context: '{{\"n\": \"{{{{counter}}}}\"}}', interval: 1ms, batch_size: 5, count: {rows}}}
    pipeline:
      thread_num: 2
      processors:
        - {{type: json_to_arrow}}
        - {{type: sql, query: 'SELECT CAST(n AS BIGINT) AS n FROM flow'}}
        - {{type: arrow_to_json}}
    output: {{type: file, path: '{}'}}
",
            dir.path().join(id).display()
        )
    };
    let file = write(dir.path(), "streams.yaml", &format!("streams:\n{}{}", stream("one", 300), stream("two", 500)));
    ended(&run(&file, &data, &[]), 0, &[]);
    ended(&run(&file, &data, &[]), 0, &[]);
    for (id, rows) in [("one", 300), ("two", 500)] {
        let found = numbers(&dir.path().join(id));
        assert_whole(&found);
        assert_eq!(found.len(), rows, "{id}");
    }
}
