//! The first thing that a user does: the statements in psql, over a real Kafka broker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use support::bids::{self, bid, closing, json};
use support::broker::Broker;
use support::process::{Weir, temporary, write};
use support::sql::{psql, psql_with};
use support::{PATIENCE, block_on, until};
use tokio_postgres::types::Type;

fn source(brokers: &str) -> String {
    format!(
        "CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
                    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = '{brokers}', topic = 'bids', format = 'json')"
    )
}

const JOB: &str = "CREATE JOB per_minute AS
  SELECT bidder, window_start, window_end, count(*) AS n, sum(price) AS total
  FROM tumble(bids, date_time, INTERVAL '1 minute') GROUP BY bidder, window_start, window_end";

const VALUES: &str = "CREATE SOURCE v (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) AS VALUES (1, 0), (2, 1000), (1, 1500)";

#[test]
fn the_first_statements_work_in_psql_over_kafka() {
    const ROWS: u64 = 130_000;
    let broker = Broker::tansu();
    broker.create_topic("bids", 1);
    let records = (0..ROWS).map(bid).chain([closing(ROWS)]).map(|b| {
        let mut text = String::new();
        json(&b, &mut text);
        (0, text)
    });
    broker.produce("bids", records);

    let data = temporary();
    let weir = Weir::up(data.path());
    let made = psql(weir.pg(), &[&source(&broker.address()), JOB]);
    assert_eq!((made.code, made.out.as_str()), (0, "CREATE SOURCE\nCREATE JOB\n"), "{}", made.err);
    assert!(made.err.contains("NOTICE:") && made.err.contains("per_minute"), "CREATE JOB says how the job stands (SQL-14): {}", made.err);

    let expected = bids::per_minute(ROWS);
    let sql = weir.sql();
    until("every window is there", PATIENCE * 2, || {
        (sql.one("SELECT count(*) FROM per_minute") == expected.len().to_string()).then_some(())
    });

    let shown = psql_with(weir.pg(), &["-A", "-t"], &["SELECT * FROM per_minute ORDER BY window_start DESC, total DESC LIMIT 10"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let lines: Vec<Vec<&str>> = shown.out.lines().map(|line| line.split('|').collect()).collect();
    assert_eq!(lines.len(), 10);
    let last_window = expected.keys().next_back().unwrap().0;
    let mut largest: Vec<_> =
        expected.iter().filter(|((window, _), _)| *window == last_window).map(|((_, b), (n, t))| (*t, *b, *n)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    for (line, (total, bidder, n)) in lines.iter().zip(largest) {
        assert_eq!(line[0], bidder.to_string(), "{line:?}");
        assert_eq!(bids::parse_time(line[1]), last_window);
        assert_eq!(bids::parse_time(line[2]), last_window + bids::MINUTE_MS);
        assert_eq!((line[3], line[4]), (n.to_string().as_str(), total.to_string().as_str()));
    }

    let jobs = psql_with(weir.pg(), &["-A", "-t"], &["SELECT id, state, desired_state, rows_in_total FROM weir.jobs"]);
    assert_eq!(jobs.out, format!("per_minute|running|running|{}\n", ROWS + 1), "{}", jobs.err);
}

/// SQL-10: psql draws the caret under the name that is wrong, also on a later line.
#[test]
fn psql_draws_the_caret_under_the_fault() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let error = psql(weir.pg(), &[VALUES, "CREATE JOB j AS SELECT nope FROM v"]);
    assert_ne!(error.code, 0);
    let lines: Vec<&str> = error.err.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("LINE 1: ")).unwrap_or_else(|| panic!("no caret in\n{}", error.err));
    assert_eq!(lines[at + 1].find('^'), lines[at].find("nope"), "{}", error.err);
    assert!(lines[at - 1].starts_with("ERROR:") && lines[at - 1].contains("nope"), "{}", error.err);

    // Characters before the fault that take several bytes, and a second line.
    let error = psql(weir.pg(), &["CREATE JOB j AS SELECT 'äöü€' AS t,\n  nope FROM v"]);
    let lines: Vec<&str> = error.err.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("LINE 2: ")).unwrap_or_else(|| panic!("no caret in\n{}", error.err));
    assert_eq!(lines[at + 1].find('^'), lines[at].find("nope"), "{}", error.err);

    let error = psql(weir.pg(), &["SELEC 1"]);
    assert!(error.err.contains("LINE 1: SELEC 1\n        ^"), "{}", error.err);
}

/// PG-1.
#[test]
fn psql_describes_what_there_is() {
    let data = temporary();
    let weir = Weir::up(data.path());
    weir.sql().run(VALUES);
    weir.sql().run("CREATE JOB j AS SELECT k, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end");
    for (command, wanted) in [
        ("\\d", vec!["v", "j"]),
        ("\\dt", vec!["j"]),
        ("\\d j", vec!["k", "bigint", "n"]),
        ("\\d v", vec!["k", "ts", "bigint"]),
        ("\\d weir.jobs", vec!["id", "text", "last_error", "rows_in_total"]),
        ("\\dt weir.*", vec!["jobs", "job_tasks", "job_events", "agents"]),
        ("\\dn", vec!["weir", "public"]),
        ("\\l", vec!["weir"]),
        ("\\dv", vec![]),
        ("\\du", vec![]),
        ("\\conninfo", vec!["weir"]),
    ] {
        let shown = psql(weir.pg(), &[command]);
        assert!(shown.code == 0 && !shown.err.contains("ERROR"), "{command}: {}", shown.err);
        for word in wanted {
            let found = shown.out.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
            assert!(found, "{command} does not show {word}:\n{}{}", shown.out, shown.err);
        }
    }
}

/// psql -f: several statements in a file, comments, and one query text with several statements.
#[test]
fn a_script_of_statements_runs() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let script = format!(
        "-- a comment; with a semicolon\n{VALUES};\n/* another; */ CREATE JOB j AS SELECT k FROM v;\nWAIT FOR JOB j UNTIL FINISHED TIMEOUT '30s';\nSELECT sum(k) FROM j;\n"
    );
    let path = write(data.path(), "script.sql", &script);
    let done = psql_with(weir.pg(), &["-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", path.to_str().unwrap()], &[]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.lines().any(|line| line == "4"), "{}", done.out);

    let both = psql_with(weir.pg(), &["-A", "-t"], &["SELECT 1; SELECT 2"]);
    assert_eq!(both.out, "1\n2\n", "{}", both.err);
}

/// PG-2: prepared statements with parameters and binary results, through a driver.
#[test]
fn a_driver_prepares_binds_and_reads_types() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(
        "CREATE SOURCE t (ts BIGINT, i2 SMALLINT, i4 INTEGER, f4 REAL, f8 DOUBLE PRECISION, d DECIMAL(10,2), s TEXT, b BOOLEAN, day DATE, at TIMESTAMP(3), WATERMARK FOR ts AS ts)
         AS VALUES (0, 1, 2, 0.5, 0.25, 1.10, 'x', TRUE, DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03.004')",
    );
    sql.run(
        "CREATE JOB typed AS SELECT s, b, window_start, sum(i2) AS si2, sum(i4) AS si4, sum(f4) AS sf4, sum(f8) AS sf8, sum(d) AS sd, avg(i4) AS ai4, avg(f4) AS af4,
         min(i2) AS mi2, max(i4) AS mi4, min(f4) AS mf4, max(day) AS day, max(at) AS at, count(*) AS n
         FROM tumble(t, ts, INTERVAL '1 second') GROUP BY s, b, window_start, window_end",
    );
    sql.run("WAIT FOR JOB typed UNTIL FINISHED TIMEOUT '30s'");
    let client = sql.client();
    let statement = block_on(client.prepare("SELECT * FROM typed")).unwrap();
    let types: Vec<(&str, Type)> = statement.columns().iter().map(|c| (c.name(), c.type_().clone())).collect();
    // SQL-3.
    let wanted = [
        ("s", Type::TEXT),
        ("b", Type::BOOL),
        ("window_start", Type::TIMESTAMP),
        ("si2", Type::INT8),
        ("si4", Type::INT8),
        ("sf4", Type::FLOAT4),
        ("sf8", Type::FLOAT8),
        ("sd", Type::NUMERIC),
        ("ai4", Type::FLOAT8),
        ("af4", Type::FLOAT8),
        ("mi2", Type::INT2),
        ("mi4", Type::INT4),
        ("mf4", Type::FLOAT4),
        ("day", Type::DATE),
        ("at", Type::TIMESTAMP),
        ("n", Type::INT8),
    ];
    assert_eq!(types, wanted);
    let row = block_on(client.query_one(&statement, &[])).unwrap();
    assert_eq!((row.get::<_, &str>("s"), row.get::<_, bool>("b"), row.get::<_, i64>("si4")), ("x", true, 2));
    assert_eq!((row.get::<_, f32>("sf4"), row.get::<_, f64>("sf8"), row.get::<_, i16>("mi2")), (0.5, 0.25, 1));
    let start: std::time::SystemTime = row.get("window_start");
    assert_eq!(start, std::time::UNIX_EPOCH);

    let found = block_on(client.query("SELECT id FROM weir.jobs WHERE id = $1 AND parallelism < $2", &[&"typed", &10i64])).unwrap();
    assert_eq!(found.len(), 1);
    let none = block_on(client.query("SELECT id FROM weir.jobs WHERE id = $1", &[&"other"])).unwrap();
    assert!(none.is_empty());

    // An error in a prepared statement leaves the session usable.
    let error = block_on(client.prepare("SELECT nope FROM weir.jobs")).unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42703"));
    assert_eq!(block_on(client.query_one("SELECT 1", &[])).unwrap().get::<_, i64>(0), 1);
}

/// SHOW and DESCRIBE are the same tables, ordered by id (spec 2).
#[test]
fn show_and_describe_say_what_there_is() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(VALUES);
    sql.run("CREATE SINK away WITH (connector = 'drop')");
    for job in ["zebra", "ant"] {
        sql.run(&format!("CREATE JOB {job} WITH (start = false) AS SELECT k FROM v"));
    }
    let (names, rows) = sql.try_table("SHOW JOBS").unwrap();
    assert_eq!(names[0], "id");
    assert_eq!(rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["ant", "zebra"]);
    for (statement, wanted) in [("SHOW SOURCES", "v"), ("SHOW SINKS", "away"), ("SHOW AGENTS", "online"), ("SHOW CONNECTORS", "kafka")] {
        let rows = sql.rows(statement);
        assert!(rows.iter().flatten().any(|cell| cell == wanted), "{statement} does not show {wanted}: {rows:?}");
    }
    let described = sql.rows("DESCRIBE v");
    assert!(described[0].contains(&"k".to_owned()) && described[1].contains(&"ts".to_owned()), "{described:?}");
    let described = sql.rows("DESCRIBE ant");
    assert!(described[0].contains(&"k".to_owned()), "{described:?}");
    let created = sql.rows("SHOW CREATE SOURCE v")[0][1].clone();
    assert!(created.contains("WATERMARK FOR ts AS ts") && created.contains("1500"), "{created}");

    // What SHOW CREATE prints makes the same thing again.
    let job = sql.rows("SHOW CREATE JOB ant")[0][1].clone();
    let spec = sql.one("SHOW JOB SPEC ant");
    sql.run("DROP JOB ant");
    sql.run(&job);
    assert_eq!(sql.one("SHOW JOB SPEC ant"), spec);
}

/// EXPLAIN prints the plans, the JobSpec and the tasks with their key groups, and makes nothing.
#[test]
fn explain_shows_the_plan() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(VALUES);
    let text = sql
        .rows("EXPLAIN CREATE JOB j WITH (parallelism = 2) AS SELECT k, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end")
        .concat()
        .join("\n");
    for word in ["window-1", "source-1", "count(*)", "key groups 0 to 63", "key groups 64 to 127"] {
        assert!(text.contains(word), "EXPLAIN does not show {word}:\n{text}");
    }
    let yaml = sql.rows("EXPLAIN (FORMAT yaml) CREATE JOB j AS SELECT k FROM v").concat().join("\n");
    assert!(yaml.contains("id: j"), "{yaml}");
    let dot = sql.rows("EXPLAIN (FORMAT dot) CREATE JOB j AS SELECT k FROM v").concat().join("\n");
    assert!(dot.contains("digraph"), "{dot}");
    let json = sql.rows("EXPLAIN (FORMAT json) CREATE JOB j AS SELECT k FROM v").concat().join("\n");
    serde_json::from_str::<serde_json::Value>(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
    assert!(sql.rows("SELECT id FROM weir.jobs").is_empty());
}

/// OPS-1: `--demo` shows moving data at the first SELECT.
#[test]
fn the_demo_moves() {
    let data = temporary();
    let weir = Weir::up_with(data.path(), &["--demo"]);
    let sql = weir.sql();
    let jobs: Vec<String> = until("the two demo jobs run", PATIENCE, || {
        let rows = sql.rows("SELECT id FROM weir.jobs WHERE state = 'running' ORDER BY id");
        (rows.len() == 2).then(|| rows.concat())
    });
    let moving =
        until("a demo job has rows", PATIENCE, || jobs.iter().find(|job| sql.one(&format!("SELECT count(*) FROM {job}")) != "0").cloned());
    let before: u64 = sql.one(&format!("SELECT rows_in_total FROM weir.jobs WHERE id = '{moving}'")).parse().unwrap();
    until("more rows come in", PATIENCE, || {
        let now: u64 = sql.one(&format!("SELECT rows_in_total FROM weir.jobs WHERE id = '{moving}'")).parse().unwrap();
        (now > before).then_some(())
    });
}
