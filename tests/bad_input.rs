//! What users do wrong, and what goes wrong around them: each fault has a message that says what to
//! do, and the process goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::process::Command;
use support::broker::{Broker, free_port};
use support::process::{WEIR, Weir, guarded, temporary, write};
use support::sql::{Sql, psql};
use support::{PATIENCE, until};

/// The server still answers and still runs jobs.
fn still_works(weir: &mut Weir, name: &str) {
    weir.must_run();
    let sql = weir.sql();
    sql.run(&format!("CREATE SOURCE {name}_input (k BIGINT) AS VALUES (1), (2)"));
    sql.run(&format!("CREATE JOB {name}_job AS SELECT k FROM {name}_input"));
    sql.run(&format!("WAIT FOR JOB {name}_job UNTIL FINISHED TIMEOUT '30s'"));
    assert_eq!(sql.one(&format!("SELECT sum(k) FROM {name}_job")), "3");
}

#[test]
fn a_wrong_statement_shows_what_is_wrong_and_changes_nothing() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    weir.sql().run("CREATE SOURCE v (k BIGINT) AS VALUES (1)");
    for (statement, words) in [
        ("CREATE JOB j AS SELEKT k FROM v", &["ERROR:", "SELEKT", "LINE 1:", "^"][..]),
        ("CREATE JOB j AS SELECT kk FROM v", &["ERROR:", "kk", "LINE 1:", "^", "k"]),
        ("CREATE JOB j AS SELECT k FROM w", &["ERROR:", "w", "LINE 1:", "^"]),
        ("CREATE JOB j WITH (paralelism = 2) AS SELECT k FROM v", &["ERROR:", "paralelism", "parallelism"]),
        ("CREATE SOURCE k (k BIGINT) WITH (connector = 'kafka', topic = 't', format = 'json')", &["ERROR:", "brokers"]),
        (
            "CREATE SOURCE r (k BIGINT) WITH (connector = 'file', path = '/nowhere', format = 'json', on_error.policy = 'route', on_error.to = 'x')",
            &["ERROR:", "bad records", "on_error", "YAML", "skip", "LINE 1:"],
        ),
        (
            "CREATE SOURCE r (k BIGINT) WITH (connector = 'file', path = '/nowhere', format = 'json', late_event_policy = 'route', late_event_route = 'x')",
            &["ERROR:", "late rows", "late_event_policy", "YAML", "drop", "LINE 1:"],
        ),
        ("CREATE SOURCE k (k BIGINT) WITH (connector = 'kafak')", &["ERROR:", "kafak", "kafka"]),
        ("CREATE SOURCE k (k BIGINT) WITH (connector = 'file', path = '/nowhere/*.json', format = 'jsn')", &["ERROR:", "jsn", "json"]),
    ] {
        let shown = psql(weir.pg(), &[statement]);
        assert_ne!(shown.code, 0, "{statement}");
        for word in words {
            assert!(shown.err.contains(word), "{statement}\nshould say {word}:\n{}", shown.err);
        }
        assert!(!shown.err.to_lowercase().contains("internal") && !shown.err.contains("panic"), "{}", shown.err);
    }
    assert_eq!(weir.sql().one("SELECT count(*) FROM weir.jobs"), "0");
    still_works(&mut weir, "after");
}

/// CON-1: a broker that is not there: the job says which one it waits for, and runs when it comes.
#[test]
fn a_dead_broker_is_named_and_waited_for() {
    let dir = temporary();
    let data = temporary();
    let port = free_port();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    // Validation never connects.
    sql.run(&format!(
        "CREATE SOURCE k (k BIGINT) WITH (connector = 'kafka', brokers = '127.0.0.1:{port}', topic = 'later', format = 'json',
           properties.receive.message.max.bytes = '100000000')"
    ));
    sql.run("CREATE JOB waits WITH (restart.max_backoff = '500ms') AS SELECT k FROM k");
    let state = until("the job says why it does not run", PATIENCE, || {
        let (state, _, error) = sql.job("waits");
        error.contains(&port.to_string()).then_some(state)
    });
    assert!(["starting", "degraded"].contains(&state.as_str()), "{state}");
    still_works(&mut weir, "meanwhile");

    let broker = Broker::noida_at(dir.path(), port);
    broker.create_topic("later", 1);
    broker.produce("later", [(0, r#"{"k":42}"#.to_owned())].into_iter());
    sql.run("WAIT FOR JOB waits UNTIL RUNNING TIMEOUT '30s'");
    until("the row is there", PATIENCE, || (sql.rows("SELECT k FROM waits") == [["42"]]).then_some(()));

    // A job whose broker is away can still be dropped.
    broker.stop();
    sql.run("DROP JOB waits");
    assert_eq!(sql.one("SELECT count(*) FROM weir.jobs WHERE id = 'waits'"), "0");
}

/// Lines that cannot be read as the declared columns, with what each is.
const MALFORMED: [(&str, &str); 9] = [
    ("broken", "{\"k\": 1, \"d\":"),
    ("no json", "hello"),
    ("not an object", "[1, 2]"),
    ("a word for a number", "{\"k\": \"one\", \"d\": 1.0, \"at\": \"2024-01-01T00:00:00Z\"}"),
    ("a number that does not fit", "{\"k\": 9223372036854775808, \"d\": 1.0, \"at\": \"2024-01-01T00:00:00Z\"}"),
    ("a fraction for a whole number", "{\"k\": 1.5, \"d\": 1.0, \"at\": \"2024-01-01T00:00:00Z\"}"),
    ("a decimal with too many digits", "{\"k\": 1, \"d\": 123456.78, \"at\": \"2024-01-01T00:00:00Z\"}"),
    ("a time that is none", "{\"k\": 1, \"d\": 1.0, \"at\": \"yesterday\"}"),
    // C29: without a declared unit a number is no time.
    ("a number without a unit for a time", "{\"k\": 1, \"d\": 1.0, \"at\": 1704067200000}"),
];

fn file_source(sql: &Sql, name: &str, path: &Path, policy: &str) {
    sql.run(&format!(
        "CREATE SOURCE {name} (k BIGINT, d DECIMAL(6,2), at TIMESTAMP(3)) WITH (connector = 'file', path = '{}', format = 'json'{policy})",
        path.display()
    ));
}

/// KER-7: under `fail` the job ends with the place of the record.
#[test]
fn a_malformed_record_fails_the_job_with_its_place() {
    let data = temporary();
    let dir = temporary();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    for (number, (what, line)) in MALFORMED.iter().enumerate() {
        let good = "{\"k\": 1, \"d\": 1.0, \"at\": \"2024-01-01T00:00:00Z\"}\n";
        let path = write(dir.path(), &format!("in-{number}.ndjson"), &format!("{good}{good}{line}\n{good}"));
        file_source(&sql, &format!("s{number}"), &path, "");
        sql.run(&format!("CREATE JOB j{number} AS SELECT k, d, at FROM s{number}"));
        let error = sql.error(&format!("WAIT FOR JOB j{number} UNTIL FINISHED TIMEOUT '30s'"));
        assert!(error.message.contains(&format!("in-{number}.ndjson")) && error.message.contains('3'), "{what}: {error}");
        let (state, _, last_error) = sql.job(&format!("j{number}"));
        assert_eq!(state, "failed", "{what}: {last_error}");
        assert!(last_error.contains(&format!("in-{number}.ndjson")), "{what}: {last_error}");
    }
    still_works(&mut weir, "after");
}

/// KER-7: under `skip` the bad ones are counted, and never take their batch with them.
#[test]
fn malformed_records_are_skipped_and_counted() {
    let data = temporary();
    let dir = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let mut text = String::new();
    for (n, (_, line)) in MALFORMED.iter().enumerate() {
        text += &format!("{{\"k\": {n}, \"d\": {n}.25, \"at\": \"2024-01-01T00:00:0{n}Z\"}}\n{line}\n");
    }
    let path = write(dir.path(), "in.ndjson", &text);
    file_source(&sql, "s", &path, ", on_error.policy = 'skip'");
    sql.run("CREATE JOB j AS SELECT k, d, at FROM s");
    sql.run("WAIT FOR JOB j UNTIL FINISHED TIMEOUT '30s'");
    assert_eq!(sql.rows("SELECT count(*), sum(k), sum(d) FROM j"), [["9", "36", "38.25"]]);
    assert_eq!(sql.one("SELECT sum(rows_error_total) FROM weir.job_sources WHERE job = 'j'"), "9");
    assert_ne!(sql.one("SELECT count(*) FROM weir.job_events WHERE job = 'j' AND level = 'warn'"), "0", "nothing silent (P3)");
    // C42: one of them is shown with its place and reason.
    let told = sql.one("SELECT message FROM weir.job_events WHERE job = 'j' AND kind = 'rows_skipped' ORDER BY at LIMIT 1");
    assert!(told.contains("in.ndjson at line 2"), "{told}");
}

/// The same in Kafka: topic, partition and offset are named (C30: one decoder for all sources).
#[test]
fn a_malformed_kafka_record_is_named_by_its_offset() {
    let broker = Broker::tansu();
    broker.create_topic("mixed", 1);
    let records = (0..100).map(|n| (0, if n == 57 { "{\"k\": \"x\"}".to_owned() } else { format!("{{\"k\": {n}}}") }));
    broker.produce("mixed", records);
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    for (name, policy) in [("strict", ""), ("lax", ", on_error.policy = 'skip'")] {
        sql.run(&format!(
            "CREATE SOURCE {name} (k BIGINT) WITH (connector = 'kafka', brokers = '{}', topic = 'mixed', format = 'json'{policy})",
            broker.address()
        ));
        sql.run(&format!("CREATE JOB {name}_job AS SELECT k FROM {name}"));
    }
    until("99 rows are there", PATIENCE, || (sql.one("SELECT count(*) FROM lax_job") == "99").then_some(()));
    let error = sql.error("WAIT FOR JOB strict_job UNTIL FINISHED TIMEOUT '30s'");
    for word in ["mixed", "57", "k"] {
        assert!(error.message.contains(word), "{word}: {error}");
    }
}

/// WAL-3, spec 6: a full disk is an error with a name; the process survives and still answers.
#[test]
fn a_full_disk_fails_the_job_and_not_the_process() {
    let data = temporary();
    let dir = data.path().join("small");
    std::fs::create_dir(&dir).unwrap();
    let args = Weir::serving_args("up", &dir);
    let mut weir = Weir::start_command(limited(&dir, &args), args);
    let sql = weir.sql();
    sql.run(
        "CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT)
         WITH (connector = 'generate', type = 'nexmark', table = 'bid', events_per_second = 50000)",
    );
    sql.run("CREATE JOB fills WITH (restart.max_attempts = 2, checkpoint.epoch = '200ms', checkpoint.interval = '1s', result_retention_rows = 1000000000) AS SELECT * FROM bids");
    let error = until("the job says that the disk is full", PATIENCE * 2, || {
        let rows = sql.try_rows("SELECT state, last_error FROM weir.jobs WHERE id = 'fills'").ok()?;
        let (state, error) = (rows[0][0].clone(), rows[0][1].to_lowercase());
        let told = error.contains("space") || error.contains("too large") || error.contains("full");
        (told && ["degraded", "failed", "starting"].contains(&state.as_str())).then_some(error)
    });
    println!("{error}");
    weir.must_run();
    assert_eq!(weir.sql().one("SELECT 1"), "1");
    // What was decided before stays readable.
    let count: u64 = weir.sql().one("SELECT count(*) FROM fills").parse().unwrap();
    assert!(count > 0);
}

/// The command in a mount namespace with a small file system at `dir` where that is allowed, else with a limit on the size of files.
fn limited(dir: &Path, args: &[String]) -> Command {
    let probe = Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs \"$0\""]).arg(dir).output();
    let script = if probe.is_ok_and(|out| out.status.success()) {
        "mount -t tmpfs -o size=24m tmpfs \"$0\" && exec \"$@\""
    } else {
        // A write past the limit raises a signal unless it is ignored; then it is an error.
        "trap '' XFSZ && ulimit -f 8192 && exec \"$@\""
    };
    let mut command = if script.starts_with("mount") {
        let mut command = guarded("unshare");
        command.args(["-m", "sh"]);
        command
    } else {
        guarded("sh")
    };
    command.args(["-c", script]).arg(dir).arg(WEIR).args(args);
    command
}

/// The data directory is a file, or may not be written: one line that names it.
#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    let dir = temporary();
    let file = write(dir.path(), "file", "x");
    let mut command = support::process::weir_command();
    command.args(Weir::serving_args("up", &file));
    let refused = support::process::finish(command, PATIENCE);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains(file.to_str().unwrap()), "{}", refused.err);
    assert!(!refused.err.contains("panicked"), "{}", refused.err);
}

/// P4 at the wire: garbage, huge lengths and half messages close one connection and hurt no other (lessons 17, 18).
#[test]
fn garbage_on_the_ports_hurts_nobody() {
    use std::io::Write;
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let http: u16 = weir.http().rsplit(':').next().unwrap().parse().unwrap();
    let agents: u16 = weir.agents().rsplit(':').next().unwrap().parse().unwrap();
    let startup_length = [0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0];
    let negative_length = [0xff, 0xff, 0xff, 0xff, 0, 3, 0, 0];
    for port in [weir.pg(), http, agents] {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 64], &startup_length, &negative_length, &[0, 0]] {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            // The other side may close while we write.
            let _ = stream.write_all(bytes);
        }
    }
    let session = weir.sql();
    still_works(&mut weir, "after");
    assert_eq!(session.one("SELECT 1"), "1");
}
