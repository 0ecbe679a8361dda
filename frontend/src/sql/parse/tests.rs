//! Statements: what each reads as, and where a wrong one is wrong.

use super::statements;
use crate::error::{Error, sqlstate};
use crate::sql::statement::{Body, ExplainFormat, JobChange, ObjectKind, Show};
use weir_hub::hub::{StartFrom, WaitFor};
use weir_planner::schema::ColumnType;

fn one(text: &str) -> Body {
    let (_, mut bodies) = statements(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(bodies.len(), 1, "{text}");
    bodies.remove(0)
}

fn refused(text: &str) -> Error {
    match statements(text) {
        Ok((_, bodies)) => panic!("{text} was read as {bodies:?}"),
        Err(error) => error,
    }
}

#[test]
fn a_source_is_read_with_everything_that_it_declares() {
    let text = "create or replace source \"Bids\" (k bigint not null, D decimal(5, 2) null, at timestamp(3) with time zone,
        watermark for at as at - interval '4 seconds') with (connector = 'kafka', scan.start = earliest, 'batch.rows' = 10, bounded = true)";
    let Body::CreateSource(create) = one(text) else { panic!() };
    assert!(create.or_replace && !create.if_not_exists);
    assert_eq!((create.name.text.as_str(), create.name.position), ("Bids", 26));
    let columns: Vec<_> = create.columns.iter().map(|column| (column.name.text.as_str(), column.ty.to_string(), column.not_null)).collect();
    assert_eq!(columns, [("k", "BIGINT".into(), true), ("d", "DECIMAL(5,2)".into(), false), ("at", "TIMESTAMPTZ(3)".into(), false)]);
    assert_eq!(create.watermark.map(|watermark| (watermark.column.text, watermark.bound_ms)), Some(("at".to_owned(), 4_000)));
    let options: Vec<_> = create.options.iter().map(|option| (option.key.as_str(), option.value.as_str())).collect();
    assert_eq!(options, [("connector", "kafka"), ("scan.start", "earliest"), ("batch.rows", "10"), ("bounded", "true")]);
    assert_eq!(create.sql, text);
}

#[test]
fn inline_rows_and_interval_spellings_are_read() {
    let Body::CreateSource(create) = one(
        "CREATE SOURCE IF NOT EXISTS v (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE) AS VALUES (1, -2), (f(3, 4), 5);",
    ) else {
        panic!()
    };
    assert!(create.if_not_exists);
    assert_eq!(create.watermark.unwrap().bound_ms, 120_000);
    assert_eq!(create.values.unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(create.columns[0].ty, ColumnType::BigInt);
}

#[test]
fn a_job_keeps_its_parts_and_its_text() {
    let (_, bodies) =
        statements("SELECT 1; CREATE JOB IF NOT EXISTS Hot INTO \"Out\" WITH (parallelism = 2) AS SELECT * FROM t ; ;").unwrap();
    let [Body::Postgres(_), Body::CreateJob(job)] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert!(job.if_not_exists);
    assert_eq!((job.name.text.as_str(), job.into.as_ref().map(|into| into.text.as_str())), ("hot", Some("Out")));
    assert_eq!(job.sql, "CREATE JOB IF NOT EXISTS Hot INTO \"Out\" WITH (parallelism = 2) AS SELECT * FROM t");
    assert_eq!(job.query_position, 77);
}

#[test]
fn the_small_statements_are_read() {
    assert!(matches!(one("EXPLAIN CREATE JOB j AS SELECT 1"), Body::Explain { format: ExplainFormat::Text, .. }));
    assert!(matches!(one("EXPLAIN (FORMAT dot) CREATE JOB j AS SELECT 1"), Body::Explain { format: ExplainFormat::Dot, .. }));
    assert!(matches!(one("EXPLAIN SELECT 1"), Body::Postgres(_)));
    assert!(matches!(one("ALTER JOB j START FRESH"), Body::AlterJob { change: JobChange::Start(StartFrom::Fresh), .. }));
    assert!(matches!(one("alter job j stop;"), Body::AlterJob { change: JobChange::Stop { savepoint: false }, .. }));
    assert!(matches!(one("ALTER JOB j RESTART"), Body::AlterJob { change: JobChange::Restart, .. }));
    assert!(matches!(one("DROP SOURCE IF EXISTS s CASCADE"), Body::Drop { kind: ObjectKind::Source, if_exists: true, cascade: true, .. }));
    assert!(matches!(one("DROP JOB j"), Body::Drop { kind: ObjectKind::Job, if_exists: false, cascade: false, .. }));
    assert!(matches!(one("SHOW JOBS"), Body::Show(Show::Jobs)));
    assert!(matches!(one("SHOW CREATE SINK s"), Body::Show(Show::Create { kind: ObjectKind::Sink, .. })));
    assert!(matches!(one("SHOW JOB SPEC j"), Body::Show(Show::JobSpec(_))));
    assert!(matches!(one("DESCRIBE s"), Body::Describe(_)));
    assert!(
        matches!(one("WAIT FOR JOB j UNTIL FINISHED TIMEOUT '5m'"), Body::Wait { until: WaitFor::Finished, timeout, .. } if timeout.as_secs() == 300)
    );
    for text in [
        "BEGIN", "COMMIT", "ROLLBACK", "SET search_path TO x", "SHOW server_version", "DISCARD ALL", "DEALLOCATE ALL", "SAVEPOINT a",
        "VALUES (1)",
    ] {
        assert!(matches!(one(text), Body::Postgres(_)), "{text}");
    }
    assert!(statements("  ; -- nothing\n ;").unwrap().1.is_empty());
}

/// SQL-10: text, SQLSTATE, position (1-based, in characters of the whole text), a part of the message.
#[test]
fn a_wrong_statement_is_wrong_at_its_place() {
    let cases = [
        ("CREATE JOB j AZ SELECT 1", sqlstate::SYNTAX_ERROR, 14, "expected AS, found 'AZ'"),
        ("SELECT 1;\nCREATE JOB j AZ SELECT 1", sqlstate::SYNTAX_ERROR, 24, "expected AS"),
        ("SELECT 'ä'; SELEC 1", sqlstate::SYNTAX_ERROR, 13, "expected"),
        ("CREATE JOB j AS SELECT a FORM t", sqlstate::SYNTAX_ERROR, 31, "'t'"),
        ("CREATE JOB j AS SELECT a,, b FROM t", sqlstate::SYNTAX_ERROR, 26, "expected"),
        ("CREATE JOB j AS SELECT (a FROM t", sqlstate::SYNTAX_ERROR, 27, "expected"),
        ("CREATE JOB j AS", sqlstate::SYNTAX_ERROR, 16, "the statement ends here"),
        ("CREATE JOB j AS INSERT INTO t VALUES (1)", sqlstate::SYNTAX_ERROR, 17, "expected SELECT"),
        ("CREATE SOURCE s (a BIGNT) WITH (connector = 'x')", sqlstate::UNDEFINED_OBJECT, 20, "type 'BIGNT' is not known"),
        ("CREATE SOURCE s (a BIGINT, a TEXT)", "42701", 28, "declared twice"),
        ("CREATE SOURCE s (__x BIGINT)", "42939", 18, "reserved"),
        ("CREATE SOURCE s (a INTERVAL)", sqlstate::FEATURE_NOT_SUPPORTED, 20, "INTERVAL"),
        ("CREATE SOURCE s (a BIGINT, WATERMARK FOR a AS b)", sqlstate::FEATURE_NOT_SUPPORTED, 47, "its own column"),
        ("CREATE SOURCE s (a BIGINT, WATERMARK FOR a AS a - INTERVAL '1 month')", "22007", 60, "no fixed length"),
        ("CREATE SOURCE s (a BIGINT, WATERMARK FOR a AS a + 1)", sqlstate::SYNTAX_ERROR, 49, "watermark"),
        ("CREATE SOURCE s WITH (connector 'x')", sqlstate::SYNTAX_ERROR, 33, "expected '='"),
        ("CREATE SOURCE s WITH (a = 1, a = 2)", sqlstate::SYNTAX_ERROR, 30, "given twice"),
        ("CREATE SOURCE s WITH (a = )", sqlstate::SYNTAX_ERROR, 27, "expected a value"),
        ("CREATE SINK s", sqlstate::SYNTAX_ERROR, 14, "expected WITH"),
        ("CREATE TABLE t (a INT)", sqlstate::FEATURE_NOT_SUPPORTED, 8, "not available"),
        ("CREATE VIEW v AS SELECT 1", sqlstate::FEATURE_NOT_SUPPORTED, 8, "CREATE VIEW is not available yet"),
        ("CREATE OR REPLACE JOB j AS SELECT 1", sqlstate::FEATURE_NOT_SUPPORTED, 19, "OR REPLACE JOB"),
        ("ALTER JOB j UPGRADE AS SELECT 1", sqlstate::FEATURE_NOT_SUPPORTED, 13, "not available yet"),
        ("ALTER JOB j STOP WITH j", sqlstate::SYNTAX_ERROR, 23, "expected SAVEPOINT"),
        ("ALTER JOB j START FROM j", sqlstate::SYNTAX_ERROR, 24, "expected SAVEPOINT or CHECKPOINT"),
        ("ALTER JOB j START FROM SAVEPOINT 'a'", sqlstate::SYNTAX_ERROR, 34, "not the number of a checkpoint"),
        ("DROP SAVEPOINT 1 2", sqlstate::SYNTAX_ERROR, 18, "end of the statement"),
        ("SHOW SAVEPOINTS j", sqlstate::SYNTAX_ERROR, 17, "expected FOR"),
        ("ALTER JOB j PAUSE", sqlstate::SYNTAX_ERROR, 13, "expected START, STOP or RESTART"),
        ("CHECKPOINT j", sqlstate::SYNTAX_ERROR, 12, "expected JOB"),
        ("DROP AGENT a", sqlstate::FEATURE_NOT_SUPPORTED, 6, "not available yet"),
        ("DROP THING a", sqlstate::SYNTAX_ERROR, 6, "expected JOB, SOURCE or SINK"),
        ("SHOW JOBS please", sqlstate::SYNTAX_ERROR, 11, "end of the statement"),
        ("SHOW VIEWS", sqlstate::FEATURE_NOT_SUPPORTED, 1, "not available yet"),
        ("WAIT FOR JOB j UNTIL DONE", sqlstate::SYNTAX_ERROR, 22, "expected RUNNING"),
        ("WAIT FOR JOB j UNTIL RUNNING TIMEOUT 'soon'", sqlstate::INVALID_PARAMETER_VALUE, 38, "not a duration"),
        ("SELECT 'abc", sqlstate::SYNTAX_ERROR, 8, "nterminated"),
        ("EXPLAIN (FORMAT xml) CREATE JOB j AS SELECT 1", sqlstate::SYNTAX_ERROR, 17, "expected TEXT"),
    ];
    let mut wrong = Vec::new();
    for (text, code, position, part) in cases {
        let error = refused(text);
        if error.sqlstate != code || error.position != Some(position) || !error.message.contains(part) {
            wrong.push(format!("{text}\n    {error:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// L2: statements that would exhaust the stack are refused before they are parsed.
#[test]
fn bombs_are_refused() {
    let bombs = [
        format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("SELECT {}", vec!["1"; 100_000].join("+")),
        format!("CREATE JOB j AS {}", vec!["SELECT 1"; 20_000].join(" UNION ALL ")),
        format!("SELECT {}", "(SELECT ".repeat(50_000)),
        format!("CREATE SOURCE s (a BIGINT) AS VALUES ({})", vec!["1"; 100_000].join("-")),
        format!("SELECT {}a", "NOT ".repeat(100_000)),
        format!("SELECT 1 -- {}", "x".repeat(2 << 20)),
        format!("SELECT ((((1{}){0}){0}){0})", "+1".repeat(200)),
    ];
    for text in bombs {
        let error = refused(&text);
        assert_eq!(error.sqlstate, sqlstate::PROGRAM_LIMIT_EXCEEDED, "{}…: {error:?}", &text[..30]);
        assert!(error.hint.is_some());
    }
    // Many rows and many columns are long, not deep.
    let rows = vec!["(1, -2 + 3)"; 5_000].join(", ");
    assert!(statements(&format!("CREATE SOURCE s (a BIGINT, b BIGINT) AS VALUES {rows}")).is_ok());
}
