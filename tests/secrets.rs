//! M4, CON-3, SQL-11: a canary in each option that may hold a secret, as a literal, in the
//! environment and in a file; none of them comes out of any door, plan, error, event or log.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::process::{Ended, Weir, finish, temporary, weir_command, write};
use support::{PATIENCE, until};

/// What every canary has in it.
const CANARY: &str = "canary";
/// How the doors of this test are called, to say which one told.
type Told = Vec<(String, String)>;

/// A job with a secret in every option that may hold one; `{p}` says how they are written.
fn document(file: &Path) -> Vec<(&'static str, String)> {
    let literal = |n: &str| format!("canary-literal-{n}");
    let job = |kafka_password: &str, key_password: &str, token: &str, header: &str, url: &str| {
        format!(
            r#"jobs:
  - id: tells
    operators:
      - {{id: k, kind: source}}
      - {{id: h, kind: source}}
      - {{id: all, kind: union}}
      - {{id: out, kind: sink}}
    edges:
      - {{id: e1, from: k, to: all}}
      - {{id: e2, from: h, to: all}}
      - {{id: e3, from: all, to: out}}
    sources:
      - operator_id: k
        input_type: kafka
        config:
          brokers: ["127.0.0.1:9"]
          topics: [t]
          properties: {{security.protocol: sasl_plaintext, sasl.mechanism: PLAIN, sasl.username: u, sasl.password: "{kafka_password}", ssl.key.password: "{key_password}"}}
        schema: [{{name: n, type: BIGINT}}]
        codec: {{type: json}}
      - operator_id: h
        input_type: http
        config: {{address: "127.0.0.1:0", token: "{token}"}}
        schema: [{{name: n, type: BIGINT}}]
        codec: {{type: json}}
    sinks:
      - operator_id: out
        output_type: http
        config: {{url: "{url}", headers: {{x-any: "{header}"}}}}
"#
        )
    };
    let from_file = format!("${{file:{}}}", file.display());
    vec![
        (
            "literal",
            job(
                &literal("a"),
                &literal("b"),
                &literal("c"),
                &literal("d"),
                "http://u:canary-literal-e@127.0.0.1:9/x?api_key=canary-literal-f",
            ),
        ),
        (
            "env",
            job(
                "${env:CANARY_A}",
                "${env:CANARY_A}",
                "${env:CANARY_B}",
                "Bearer ${env:CANARY_A}",
                "http://u:${env:CANARY_A}@127.0.0.1:9/${env:CANARY_B}",
            ),
        ),
        ("file", job(&from_file, &from_file, &from_file, &from_file, &format!("http://u:{from_file}@127.0.0.1:9/{from_file}"))),
    ]
}

fn with_canaries(args: &[&str]) -> std::process::Command {
    let mut command = weir_command();
    command.args(args).env("CANARY_A", "canary-env-a").env("CANARY_B", "canary-env-b").env("WEIR_LOG", "info,weir=trace,librdkafka=trace");
    command
}

fn run(told: &mut Told, what: &str, args: &[&str]) -> Ended {
    let ended = finish(with_canaries(args), PATIENCE);
    told.push((what.to_owned(), format!("{}{}", ended.out, ended.err)));
    ended
}

fn assert_silent(told: &Told) {
    let hits: Vec<String> =
        told.iter().filter(|(_, text)| text.contains(CANARY)).map(|(what, text)| format!("== {what}\n{text}")).collect();
    assert!(hits.is_empty(), "{} of {} outputs tell a secret:\n{}", hits.len(), told.len(), hits.join("\n"));
}

#[test]
fn no_command_tells_a_secret() {
    let dir = temporary();
    let file = write(dir.path(), "secret", "canary-file\n");
    let mut told = Told::new();
    for (kind, text) in document(&file) {
        let path = write(dir.path(), &format!("{kind}.yaml"), &text);
        let path = path.to_str().unwrap();
        let valid = run(&mut told, &format!("validate {kind}"), &["validate", path]);
        assert_eq!(valid.code, 0, "{}{}", valid.out, valid.err);
        for format in ["text", "json", "dot"] {
            let explained = run(&mut told, &format!("explain {kind} {format}"), &["explain", "--format", format, path]);
            assert_eq!(explained.code, 0, "{}", explained.err);
            if kind == "env" && format == "json" {
                for reference in ["\"${env:CANARY_B}\"", "\"Bearer ${env:CANARY_A}\"", "u:${env:CANARY_A}@127.0.0.1:9/${env:CANARY_B}"] {
                    assert!(explained.out.contains(reference), "{reference} is not shown as it is:\n{}", explained.out);
                }
            }
        }
        // Nothing listens at the sink's port: the start fails (CON-1).
        let data = dir.path().join(format!("data-{kind}"));
        let failed = run(&mut told, &format!("run {kind}"), &["run", "--data-dir", data.to_str().unwrap(), path]);
        assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
        assert!(failed.err.contains("does not answer"), "{}", failed.err);
        // The same with faults in every place.
        for (n, (from, to)) in [
            ("input_type: http", "input_type: htp"),
            ("sasl.username: u", "sasl.username: 5, group.id: g"),
            ("{address:", "{adress: x, address:"),
            ("headers: {", "headers: {\"a b\": \"canary-literal-x\", content-length: \"canary-literal-y\", "),
            ("url: \"http:", "url: \"ftp:"),
            ("token: \"", "token: \"canary ${oops "),
            ("x-any: \"", "x-any: \"canary ${vault:canary} "),
            ("brokers: [\"127.0.0.1:9\"]", "brokers: [nowhere]"),
        ]
        .into_iter()
        .enumerate()
        {
            assert!(text.contains(from), "{from}");
            let path = write(dir.path(), &format!("{kind}-{n}.yaml"), &text.replacen(from, to, 1));
            let refused = run(&mut told, &format!("validate {kind} with {to}"), &["validate", path.to_str().unwrap()]);
            assert_eq!(refused.code, 2, "{to}: {}{}", refused.out, refused.err);
        }
    }
    // A fault in a script is told with its line, but for one that may hold a secret.
    for (n, option) in
        ["token = 'canary-literal-t'", "headers.x = 'canary-literal-h'", "url = 'http://u:canary-literal-u@h'"].iter().enumerate()
    {
        let text = format!("CREATE SOURCE h (n BIGINT)\nWITH (connector = 'http', adress = 'x', {option});\n");
        let path = write(dir.path(), &format!("wrong-{n}.sql"), &text);
        let refused = run(&mut told, &format!("explain script with {option}"), &["explain", path.to_str().unwrap()]);
        assert!(refused.code == 2 && refused.err.contains("LINE 2: ***"), "{}", refused.err);
    }
    // A reference that leads nowhere is named with its option.
    let absent = document(&file).remove(1).1.replace("CANARY_B", "ABSENT");
    let path = write(dir.path(), "absent.yaml", &absent);
    let failed =
        run(&mut told, "run absent", &["run", "--data-dir", dir.path().join("data-absent").to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!(failed.code, 1);
    assert!(failed.err.contains("option 'url' refers to ${env:ABSENT}, which is not set"), "{}", failed.err);
    // A secret that was masked is not taken for one.
    let masked = document(&file).remove(0).1.replace("canary-literal-c", "***");
    let path = write(dir.path(), "masked.yaml", &masked);
    let refused = run(&mut told, "validate masked", &["validate", path.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.err.contains("sources[1].config.token: 'token' of source 'h' is a mask"), "{}", refused.err);
    assert_silent(&told);
}

#[test]
fn no_door_tells_a_secret() {
    let dir = temporary();
    let file = write(dir.path(), "secret", "canary-file\n");
    let mut told = Told::new();
    for (kind, text) in document(&file) {
        let data = dir.path().join(kind);
        let args = Weir::serving_args("up", &data);
        let mut command = with_canaries(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.current_dir(dir.path());
        let mut weir = Weir::start_command(command, args);
        let (sql, rest) = (weir.sql(), support::rest::Rest::new(weir.http()));
        let secret = match kind {
            "literal" => "canary-literal-s".to_owned(),
            "env" => "${env:CANARY_A}".to_owned(),
            _ => format!("${{file:{}}}", file.display()),
        };
        let statements = [
            format!("CREATE SOURCE h (n BIGINT) WITH (connector = 'http', format = 'json', address = '127.0.0.1:0', token = '{secret}')"),
            format!(
                "CREATE SINK s WITH (connector = 'http', url = 'http://u:{secret}@127.0.0.1:9/x?token={secret}', 'headers.x-any' = '{secret}', headers.authorization = 'Bearer {secret}')"
            ),
            format!(
                "CREATE SINK k WITH (connector = 'kafka', brokers = '127.0.0.1:9', topic = 't', 'properties.sasl.password' = '{secret}')"
            ),
            "CREATE JOB j INTO s AS SELECT n FROM h".to_owned(),
            // Faults beside secrets, in their own words and in psql's.
            format!("CREATE SOURCE h2 (n BIGINT) WITH (connector = 'http', adress = 'x', token = '{secret}')"),
            format!("CREATE SOURCE h2 (n BIGINT) WITH (connector = 'http', format = 'json', address = '127.0.0.1', token = '{secret}')"),
            format!("CREATE SINK s2 WITH (connector = 'http', url = 'ftp://u:{secret}@h/')"),
            format!("CREATE SINK s2 WITH (connector = 'http', url = 'http://h/', headers.te = '{secret}')"),
            format!("CREATE SINK s2 WITH (connector = 'http', url = 'http://h/', headers.a = '{secret}$' || '{{', method = 'get')"),
            format!("CREATE SINK s2 WITH (connector = 'http', url = 'http://h/', headers.a = '${{{CANARY}')"),
            "SHOW CREATE SOURCE h".to_owned(),
            "SHOW CREATE SINK s".to_owned(),
            "SHOW CREATE SINK k".to_owned(),
            "SHOW CREATE JOB j".to_owned(),
            "DESCRIBE s".to_owned(),
            "DESCRIBE k".to_owned(),
            "DESCRIBE h".to_owned(),
            "SHOW SOURCES".to_owned(),
            "SHOW SINKS".to_owned(),
            "SHOW JOBS".to_owned(),
            "SHOW JOB SPEC j".to_owned(),
            "EXPLAIN CREATE JOB j2 INTO s AS SELECT n FROM h".to_owned(),
            "EXPLAIN (FORMAT JSON) CREATE JOB j2 INTO s AS SELECT n FROM h".to_owned(),
            "EXPLAIN (FORMAT YAML) CREATE JOB j2 INTO s AS SELECT n FROM h".to_owned(),
            "EXPLAIN (FORMAT DOT) CREATE JOB j2 INTO s AS SELECT n FROM h".to_owned(),
        ];
        let say = |told: &mut Told, statement: &str| {
            let answer = match sql.try_rows(statement) {
                Ok(rows) => format!("{rows:?}"),
                Err(error) => error.to_string(),
            };
            told.push((format!("{kind}: {statement}"), answer));
        };
        let before = told.len();
        statements.iter().for_each(|statement| say(&mut told, statement));
        let answer = |at: usize| told[before + at].1.clone();
        assert_eq!(answer(0), "[]", "the source was made");
        assert_eq!(answer(1), "[]", "the sink was made");
        assert_eq!(answer(3), "[]", "the job was made");
        assert!(answer(11).contains(if kind == "literal" { "'***'" } else { &secret }), "{}", answer(11));
        let posted = rest.post_yaml("/api/v1/jobs?desired_state=running", &text);
        assert!(matches!(posted.status, 200 | 201), "{posted:?}");
        told.push((format!("{kind}: POST job"), posted.body.to_string()));
        for job in ["j", "tells"] {
            until("the start of a job has failed", PATIENCE, || {
                sql.rows(&format!("SELECT last_error FROM weir.jobs WHERE id = '{job}'")).iter().any(|row| row[0] != "NULL").then_some(())
            });
        }
        let tables = sql.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'weir'");
        assert!(tables.len() > 5, "{tables:?}");
        for table in tables {
            say(&mut told, &format!("SELECT * FROM weir.{}", table[0]));
        }
        for path in [
            "/jobs", "/jobs/tells", "/jobs/tells/detail", "/jobs/tells/plan", "/jobs/tells/plan?format=json",
            "/jobs/tells/plan?format=dot", "/jobs/tells/events", "/jobs/tells/versions", "/jobs/j", "/jobs/j/detail", "/jobs/j/versions",
            "/jobs/j/plan?format=json", "/jobs/j/events",
        ] {
            let answer = rest.get(&format!("/api/v1{path}"));
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            told.push((format!("{kind}: GET {path}"), answer.body.to_string()));
        }
        let refused = rest.post_yaml("/api/v1/jobs/validate", &text.replacen("token: \"", "token: \"${oops ", 1));
        told.push((format!("{kind}: POST validate"), refused.body.to_string()));
        let refused = rest.post_yaml("/api/v1/jobs", &text.replacen("codec:", "codec: {{", 1));
        told.push((format!("{kind}: POST of no YAML"), refused.body.to_string()));
        told.push((format!("{kind}: log"), format!("{}{}", weir.process().out(), weir.process().err())));
        drop(sql);
        weir.kill();
        if kind != "literal" {
            // Values are read when a connector opens, and never kept.
            for found in files(&data) {
                let bytes = std::fs::read(&found).unwrap();
                let kept = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
                assert!(!kept, "{} holds a value", found.display());
            }
        }
    }
    assert_silent(&told);
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}
