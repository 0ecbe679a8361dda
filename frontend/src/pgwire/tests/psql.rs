//! psql 13+ as people use it: meta commands, carets, notices (PG-1, SQL-10).

use super::double::{Canned, Server};
use super::values::rows;

/// PG-1: `\d` and `\dt` list what is there, `\d name` shows columns and types.
#[tokio::test]
async fn psql_lists_and_describes() {
    let server = Server::with_objects(Canned(vec![rows()])).await;
    let all = server.psql(&["\\d"]).await;
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    for wanted in [
        ["public", "bids", "foreign table", "tester"],
        ["public", "counts", "foreign table", "tester"],
        ["public", "per_minute", "table", "tester"],
    ] {
        assert!(all.lines().any(|line| cells(line) == wanted), "{wanted:?}\n{all}");
    }
    assert!(!all.contains("into_counts"), "{all}");
    let tables = server.psql(&["\\dt"]).await;
    assert!(tables.contains("per_minute") && !tables.contains("bids") && !tables.contains("jobs"), "{tables}");
    let system = server.psql(&["\\dt weir.*"]).await;
    for name in [
        "agents", "connectors", "job_edges", "job_events", "job_operators", "job_sources", "job_tasks", "job_versions", "job_watermarks",
        "jobs",
    ] {
        assert!(system.contains(&format!(" weir   | {name} ")), "{name}\n{system}");
    }
    let columns = server.psql(&["\\d per_minute"]).await;
    for (name, ty) in [
        ("b", "boolean"),
        ("i2", "smallint"),
        ("i4", "integer"),
        ("i8", "bigint"),
        ("f4", "real"),
        ("f8", "double precision"),
        ("n", "numeric(10,2)"),
        ("t", "text"),
        ("y", "bytea"),
        ("d", "date"),
        ("ts", "timestamp(3) without time zone"),
        ("tz", "timestamp with time zone"),
    ] {
        let line = columns.lines().find(|line| line.split('|').next().is_some_and(|cell| cell.trim() == name));
        assert!(line.is_some_and(|line| line.split('|').nth(1).is_some_and(|cell| cell.trim() == ty)), "{name} {ty}\n{columns}");
    }
    let source = server.psql(&["\\d bids"]).await;
    assert!(
        source.contains("Foreign table \"public.bids\"") && source.contains("Server: kafka") && source.contains("not null"),
        "{source}"
    );
    let missing = server.psql(&["\\d nothing"]).await;
    assert!(missing.contains("Did not find any relation named \"nothing\""), "{missing}");
    server.stop().await;
}

/// PG-1: no meta command errors.
#[tokio::test]
async fn psql_meta_commands_do_not_error() {
    let server = Server::with_objects(Canned(vec![rows()])).await;
    let commands = [
        "\\d", "\\d+", "\\dt", "\\dt+", "\\dt *.*", "\\dv", "\\dm", "\\di", "\\ds", "\\dE", "\\dS", "\\d+ per_minute", "\\d+ bids",
        "\\d pg_class", "\\l", "\\l+", "\\dn", "\\dn+", "\\du", "\\du+", "\\dg", "\\df", "\\da", "\\dT", "\\dD", "\\dp", "\\z", "\\dx",
        "\\db", "\\dO", "\\dc", "\\dC", "\\dd", "\\des", "\\det", "\\dew", "\\deu", "\\dy", "\\do", "\\dF", "\\dFp", "\\drds", "\\dconfig",
        "\\dA", "\\dL", "\\dRp", "\\dRs", "\\dP", "\\dX", "\\ddp", "\\conninfo", "\\encoding",
    ];
    let mut refused = Vec::new();
    for command in commands {
        let output = server.psql(&[command]).await;
        if output.contains("ERROR") || output.contains("connection to server") {
            refused.push(format!("{command}\n{output}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    server.stop().await;
}

/// SQL-10: the caret stands under the fault.
#[tokio::test]
async fn psql_draws_the_caret_under_the_fault() {
    let server = Server::start().await;
    let output = server.psql(&["SELECT id,\n   statee FROM weir.jobs"]).await;
    assert_eq!(
        output,
        "ERROR:  column 'statee' not found\nLINE 2:    statee FROM weir.jobs\n           ^\nHINT:  did you mean weir.jobs.state or weir.jobs.started_at?\n"
    );
    server.stop().await;
}

/// SQL-14: notices come before the tag; `\x` and `\timing` work.
#[tokio::test]
async fn psql_shows_notices_and_tags() {
    let server = Server::start().await;
    let output = server.psql(&["NOTICE"]).await;
    assert_eq!(output, "CREATE JOB\nNOTICE:  job 'a' is running\nNOTICE:  second\n");
    let output = server.psql(&["\\x", "SELECT 1 AS a, NULL AS b"]).await;
    assert!(output.contains("-[ RECORD 1 ]") && output.contains("a | 1"), "{output}");
    let output = server.psql(&["SET application_name = 'x'", "SHOW timezone", "BEGIN", "COMMIT"]).await;
    assert!(output.starts_with("SET\n TimeZone") || output.starts_with("SET\n timezone"), "{output}");
    assert!(output.ends_with("BEGIN\nCOMMIT\n"), "{output}");
    server.stop().await;
}

/// PG-2: what drivers and tools ask when they connect or look around.
#[tokio::test]
async fn driver_introspection_is_answered() {
    let server = Server::with_objects(Canned(Vec::new())).await;
    let queries = [
        // SQLAlchemy
        "select pg_catalog.version()",
        "select current_schema()",
        "show transaction isolation level",
        "show standard_conforming_strings",
        "SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'",
        "SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace WHERE pg_catalog.pg_class.relkind = ANY (ARRAY['r', 'p', 'f', 'v', 'm']) AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) AND pg_catalog.pg_namespace.nspname != 'pg_catalog' AND pg_catalog.pg_class.relname = 'per_minute'",
        "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg/_'::VARCHAR || '%' ESCAPE '/' ORDER BY nspname",
        // psycopg
        "SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter FROM pg_type t WHERE t.oid = to_regtype('text')::oid ORDER BY t.oid",
        // asyncpg
        "SELECT pg_advisory_unlock_all()",
        "CLOSE ALL",
        "UNLISTEN *",
        "RESET ALL",
        "SELECT set_config('jit', 'off', false), current_setting('jit', true)",
        // JDBC
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        "SELECT TRUE",
        "SELECT current_database()",
        "SELECT nspname AS TABLE_SCHEM, NULL AS TABLE_CATALOG FROM pg_catalog.pg_namespace WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1]) ORDER BY TABLE_SCHEM",
        // node-pg, pgcli, Grafana
        "SET client_encoding TO 'UTF8'",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name",
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'per_minute'",
        "SELECT quote_ident(table_schema) FROM information_schema.tables WHERE table_schema NOT IN ('information_schema', 'pg_catalog') LIMIT 1",
        "SELECT 'per_minute'::regclass::oid IS NOT NULL",
        "SELECT c.oid::regclass FROM pg_class c WHERE c.oid = 'per_minute'::regclass",
        "DISCARD ALL",
    ];
    let client = server.client().await;
    let mut refused = Vec::new();
    for query in queries {
        if let Err(error) = client.simple_query(query).await {
            refused.push(format!("{query}\n  {:?}", error.as_db_error()));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    server.stop().await;
}

/// PG-3, SQL-11: system tables have the columns of the spec and show no secrets.
#[tokio::test]
async fn system_tables_tell_what_the_hub_knows() {
    let server = Server::with_objects(Canned(Vec::new())).await;
    let client = server.client().await;
    let row = client.query_one("SELECT id, version, state, desired_state, parallelism, placement, last_error, rows_in_total FROM weir.jobs WHERE id = 'per_minute'", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "per_minute");
    assert_eq!(row.get::<_, i64>(1), 1);
    assert_eq!(row.get::<_, &str>(3), "stopped");
    assert_eq!(row.get::<_, i64>(4), 1);
    assert_eq!(row.get::<_, &str>(5), "colocated");
    assert_eq!(row.get::<_, Option<i64>>(7), None);
    let operators =
        client.query("SELECT operator, kind, chain FROM weir.job_operators WHERE job = 'per_minute' ORDER BY kind", &[]).await.unwrap();
    let kinds: Vec<(String, String)> = operators.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(kinds, [("sink-0".to_owned(), "sink".to_owned()), ("source-0".to_owned(), "source".to_owned())]);
    let edges =
        client.query_one("SELECT from_operator, to_operator, kind FROM weir.job_edges WHERE job = 'per_minute'", &[]).await.unwrap();
    assert_eq!((edges.get::<_, &str>(0), edges.get::<_, &str>(1), edges.get::<_, &str>(2)), ("source-0", "sink-0", "forward"));
    let tasks = client
        .query_one("SELECT task, agent, watermark_at FROM weir.job_tasks WHERE job = 'per_minute' AND operator = 'source-0'", &[])
        .await
        .unwrap();
    assert_eq!((tasks.get::<_, &str>(0), tasks.get::<_, Option<&str>>(1)), ("source-0-0", None));
    let versions = client.query_one("SELECT spec, state_format, sql FROM weir.job_versions WHERE job = 'per_minute'", &[]).await.unwrap();
    assert!(versions.get::<_, &str>(0).contains("\"id\":\"per_minute\""));
    for table in [
        "agents", "connectors", "job_edges", "job_events", "job_operators", "job_sources", "job_tasks", "job_versions", "job_watermarks",
        "jobs",
    ] {
        let all = client.simple_query(&format!("SELECT * FROM weir.{table}")).await.unwrap();
        assert!(!format!("{all:?}").contains("hunter2"), "{table}");
    }
    server.stop().await;
}
