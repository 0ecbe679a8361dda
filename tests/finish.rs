//! Bounded work ends, and the command line says how: 0 finished, 1 failed, 2 invalid.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::output;
use support::process::{Weir, temporary, weir, write};
use support::sql::Sql;

/// A job over a file of numbers into a file, as a YAML document.
fn document(id: &str, input: &Path, output: &Path, policy: &str) -> String {
    format!(
        "id: {id}
operators:
  - {{id: source-1, kind: source}}
  - id: window-1
    kind: window
    config:
      window: {{tumbling: {{size: 1s}}}}
      keys: [k]
      aggregates:
        - {{expr: count(*), as: n}}
        - {{expr: sum(x), as: total}}
  - {{id: sink-1, kind: sink}}
edges:
  - {{id: e1, from: source-1, to: window-1}}
  - {{id: e2, from: window-1, to: sink-1}}
sources:
  - operator_id: source-1
    input_type: file
    config: {{path: '{}'}}
    codec: {{type: json}}
    schema:
      - {{name: k, type: BIGINT}}
      - {{name: ts, type: BIGINT}}
      - {{name: x, type: BIGINT}}
    time: {{mode: event_time, timestamp_field: ts, watermark: {{}}}}
    on_error: {{policy: {policy}}}
sinks:
  - operator_id: sink-1
    output_type: file
    config: {{path: '{}'}}
    codec: {{type: json}}
",
        input.display(),
        output.display()
    )
}

/// Lines of all files of a file sink, sorted.
fn lines(dir: &Path) -> Vec<String> {
    let mut lines = output::lines(dir);
    lines.sort();
    lines
}

fn numbers(rows: u64) -> String {
    (0..rows).map(|n| format!("{{\"k\":{},\"ts\":{n},\"x\":{n}}}\n", n % 2)).collect()
}

/// STR-6: `weir run FILE` runs bounded jobs to their end and exits 0.
#[test]
fn run_ends_with_its_input() {
    let dir = temporary();
    let (input, output) = (write(dir.path(), "in.ndjson", &numbers(2_000)), dir.path().join("out"));
    let job = write(dir.path(), "job.yaml", &document("sums", &input, &output, "fail"));
    let data = dir.path().join("data");
    let done = weir(&["run", job.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let rows: Vec<serde_json::Value> = lines(&output).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Two keys, two seconds: 500 rows each; the sums of 0,2,…,998 and so on.
    let mut got: Vec<(i64, i64, i64)> =
        rows.iter().map(|r| (r["k"].as_i64().unwrap(), r["n"].as_i64().unwrap(), r["total"].as_i64().unwrap())).collect();
    got.sort_unstable();
    assert_eq!(got, [(0, 500, 249_500), (0, 500, 749_500), (1, 500, 250_000), (1, 500, 750_000)]);

    // A second run finds it finished: nothing is written twice.
    let again = weir(&["run", job.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    assert_eq!(lines(&output).len(), 4);
}

/// Invalid: exit 2, every fault with its place, and nothing is made.
#[test]
fn run_and_validate_refuse_a_bad_file() {
    let dir = temporary();
    let output = dir.path().join("out");
    let good = document("sums", &dir.path().join("in.ndjson"), &output, "fail");
    let bad = good.replace("keys: [k]", "keyz: [k]").replace("to: sink-1", "to: sink-2");
    let path = write(dir.path(), "job.yaml", &bad);
    let data = dir.path().join("data");
    for command in ["run", "validate"] {
        let refused = weir(&[command, path.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
        let refused = if command == "validate" { weir(&[command, path.to_str().unwrap()]) } else { refused };
        assert_eq!(refused.code, 2, "{command}: {}{}", refused.out, refused.err);
        let said = format!("{}{}", refused.out, refused.err);
        assert!(said.contains("keyz") && said.contains("keys"), "{command}: {said}");
        assert!(said.contains(":8:") || said.contains("line 8"), "{command} names the line of 'keyz': {said}");
    }
    assert!(!output.exists());

    let good_path = write(dir.path(), "good.yaml", &good);
    let fine = weir(&["validate", good_path.to_str().unwrap()]);
    assert_eq!(fine.code, 0, "{}{}", fine.out, fine.err);
    let missing = weir(&["validate", dir.path().join("none.yaml").to_str().unwrap()]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("none.yaml"), "{}", missing.err);
}

/// A failed job: exit 1, with the record at fault.
#[test]
fn run_fails_with_the_record_at_fault() {
    let dir = temporary();
    let text = format!("{}this is no json\n{}", numbers(10), numbers(10));
    let (input, output) = (write(dir.path(), "in.ndjson", &text), dir.path().join("out"));
    let job = write(dir.path(), "job.yaml", &document("sums", &input, &output, "fail"));
    let failed = weir(&["run", job.to_str().unwrap(), "--data-dir", dir.path().join("data").to_str().unwrap()]);
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    let said = format!("{}{}", failed.out, failed.err);
    assert!(said.contains("in.ndjson") && said.contains("11"), "the file and line 11 are named: {said}");

    let skipping = write(dir.path(), "skip.yaml", &document("skips", &input, &dir.path().join("out2"), "skip"));
    let done = weir(&["run", skipping.to_str().unwrap(), "--data-dir", dir.path().join("data2").to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(lines(&dir.path().join("out2")).len(), 2);
}

#[test]
fn explain_prints_the_plan_of_a_file() {
    let dir = temporary();
    let path = write(dir.path(), "job.yaml", &document("sums", &dir.path().join("in.ndjson"), &dir.path().join("out"), "fail"));
    let explained = weir(&["explain", path.to_str().unwrap()]);
    assert_eq!(explained.code, 0, "{}", explained.err);
    for word in ["source-1", "window-1", "sink-1", "key groups 0 to 127"] {
        assert!(explained.out.contains(word), "{word}: {}", explained.out);
    }
}

#[test]
fn help_and_wrong_flags() {
    let help = weir(&["--help"]);
    assert_eq!(help.code, 0);
    for command in ["up", "hub", "agent", "run", "validate", "explain", "bench"] {
        assert!(help.out.contains(command), "{command}: {}", help.out);
    }
    let wrong = weir(&["up", "--data-dri", "x"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("--data-dir"), "{}", wrong.err);
}

/// SPD-1, SPD-3: bids at a rate, on the real path; what the line says, and what cannot be measured.
#[test]
fn bench_prints_latencies() {
    let bench = |args: &[&str]| weir(&[&["bench", "nexmark", "--query"], args].concat());
    let done = bench(&["q1", "--rate", "460", "--seconds", "3", "--parallelism", "2"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let line: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap();
    let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{field} of {line}"));
    assert_eq!((&line["query"], &line["rate"], &line["rows"]), (&"q1".into(), &460.into(), &1_380.into()));
    // 500 events a second: 2 s of them warm up, and of the other 500 the bids are 46 of 50.
    assert_eq!((&line["left_out_warm_up"], &line["results"], &line["left_out_at_end"]), (&920.into(), &460.into(), &0.into()));
    let (p50, p99, max) = (number("p50_ms"), number("p99_ms"), number("max_ms"));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{line}");
    assert!(number("cpu_seconds") > 0.0 && number("peak_rss_bytes") > 0.0, "{line}");

    let untimed = bench(&["q2", "--rate", "10"]);
    assert!(untimed.code == 1 && untimed.err.contains("q0, q1, q5, q7, q11 and q12"), "{}", untimed.err);
    let nothing = bench(&["q0"]);
    assert!(nothing.code == 2 && nothing.err.contains("--input"), "{}", nothing.err);
}

/// EV-6: files of each format end, and their windows fire once. CSV and Parquet say the same as JSON (C30).
#[test]
fn every_file_format_gives_the_same_rows() {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::record_batch::RecordBatch;
    use std::sync::Arc;

    let dir = temporary();
    let (ks, ts, names): (Vec<i64>, Vec<i64>, Vec<String>) =
        ((0..300).map(|n| n % 3).collect(), (0..300).map(|n| n * 10).collect(), (0..300).map(|n| format!("n{}", n % 5)).collect());
    let json: String = (0..300).map(|i| format!("{{\"k\":{},\"ts\":{},\"name\":\"{}\"}}\n", ks[i], ts[i], names[i])).collect();
    let csv: String = "name,k,ts\n".to_owned() + &(0..300).map(|i| format!("{},{},{}\n", names[i], ks[i], ts[i])).collect::<String>();
    let json = write(dir.path(), "in.ndjson", &json);
    let csv = write(dir.path(), "in.csv", &csv);
    let columns: [(&str, ArrayRef); 3] =
        [("k", Arc::new(Int64Array::from(ks))), ("ts", Arc::new(Int64Array::from(ts))), ("name", Arc::new(StringArray::from(names)))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let parquet_path = dir.path().join("in.parquet");
    let mut writer = parquet::arrow::ArrowWriter::try_new(std::fs::File::create(&parquet_path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    let data = temporary();
    let weir = Weir::up(data.path());
    let sql: Sql = weir.sql();
    let columns = "(k BIGINT, ts BIGINT, name TEXT, WATERMARK FOR ts AS ts)";
    let mut results = Vec::new();
    for (format, path, more) in [("json", &json, ""), ("csv", &csv, ", format.header = true"), ("parquet", &parquet_path, "")] {
        sql.run(&format!(
            "CREATE SOURCE s_{format} {columns} WITH (connector = 'file', path = '{}', format = '{format}'{more})",
            path.display()
        ));
        sql.run(&format!(
            "CREATE JOB j_{format} AS SELECT k, name, window_start, count(*) AS n FROM tumble(s_{format}, ts, INTERVAL '1 second') GROUP BY k, name, window_start, window_end"
        ));
        sql.run(&format!("WAIT FOR JOB j_{format} UNTIL FINISHED TIMEOUT '30s'"));
        results.push(sql.rows(&format!("SELECT k, name, window_start, n FROM j_{format} ORDER BY 1, 2, 3")));
    }
    // 100 rows a second; k and name run together every 15 rows: 6 or 7 of each of the 15 pairs a window.
    assert_eq!(results[0].len(), 45);
    assert_eq!(results[0].iter().map(|r| r[3].parse::<u64>().unwrap()).sum::<u64>(), 300);
    assert!(results[0].iter().all(|r| r[3] == "6" || r[3] == "7"), "{:?}", results[0]);
    assert_eq!(results[0], results[1], "csv");
    assert_eq!(results[0], results[2], "parquet");
}

/// A glob: each file is a split, read in its own order.
#[test]
fn a_glob_reads_every_file() {
    let dir = temporary();
    for part in 0..3u64 {
        let text: String = (0..50).map(|n| format!("{{\"k\":{part},\"ts\":{}}}\n", n * 10)).collect();
        write(dir.path(), &format!("part-{part}.ndjson"), &text);
    }
    write(dir.path(), "other.txt", "not json\n");
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(&format!(
        "CREATE SOURCE g (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'file', path = '{}/part-*.ndjson', format = 'json')",
        dir.path().display()
    ));
    sql.run("CREATE JOB j WITH (parallelism = 2) AS SELECT k, count(*) AS n FROM tumble(g, ts, INTERVAL '1 minute') GROUP BY k, window_start, window_end");
    sql.run("WAIT FOR JOB j UNTIL FINISHED TIMEOUT '30s'");
    assert_eq!(sql.rows("SELECT k, n FROM j ORDER BY k"), [["0", "50"], ["1", "50"], ["2", "50"]]);
    assert_eq!(sql.one("SELECT count(*) FROM weir.job_sources WHERE job = 'j'"), "3");
}
