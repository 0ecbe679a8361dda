//! tokio-postgres as a user's program would use it.

use super::double::{Canned, Server};
use super::values::rows;
use futures::{SinkExt, StreamExt, TryStreamExt};
use std::time::{Duration, SystemTime};
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A bound on what must not hang; it is never reached when all is right.
const SOON: Duration = Duration::from_secs(20);

/// PG-2: prepared statements with parameters, by the client's types and by inferred ones.
#[tokio::test]
async fn parameters_are_taken_by_hint_and_by_inference() {
    let server = Server::with_rows(vec![rows()]).await;
    let client = server.client().await;
    let one = client.query_one("SELECT i8 FROM per_minute WHERE i4 = $1 AND t = $2", &[&70_000_i32, &"a\tb"]).await.unwrap();
    assert_eq!(one.get::<_, i64>(0), 9_000_000_000);
    let row = client
        .query_one("SELECT $1::bigint + 1, $2::text, $3::double precision * 2, $4::boolean", &[&41_i64, &"x", &1.5_f64, &true])
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1), row.get::<_, f64>(2), row.get::<_, bool>(3)), (42, "x", 3.0, true));
    // A parameter of which nothing is known is text, as in Postgres.
    assert_eq!(client.query_one("SELECT $1", &[&"plain"]).await.unwrap().get::<_, &str>(0), "plain");
    let none: Option<i32> = None;
    assert_eq!(client.query_one("SELECT $1::int", &[&none]).await.unwrap().get::<_, Option<i32>>(0), None);
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_796_068_225_123);
    let found = client.query("SELECT ts FROM per_minute WHERE ts = $1", &[&time]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].get::<_, SystemTime>(0), time);
    let limit = client.query("SELECT i4 FROM per_minute ORDER BY i4 LIMIT $1", &[&2_i64]).await.unwrap();
    assert_eq!(limit.len(), 2);
    let any = client.query("SELECT i4 FROM per_minute WHERE i4 = ANY($1)", &[&vec![-1_i32, 5]]).await.unwrap();
    assert_eq!(any.len(), 1);
    server.stop().await;
}

/// SQL-8: order, limit, joins and aggregates over result tables.
#[tokio::test]
async fn result_tables_take_any_query() {
    let server = Server::with_rows(vec![rows(), rows()]).await;
    let client = server.client().await;
    let top = client.query("SELECT i4 FROM per_minute WHERE i4 IS NOT NULL ORDER BY ts DESC LIMIT 3", &[]).await.unwrap();
    assert_eq!(top.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [70_000, 70_000, -1]);
    let sums = client.query_one("SELECT count(*), count(i4), sum(i8), max(t) FROM per_minute WHERE i4 > 0", &[]).await.unwrap();
    assert_eq!(
        (sums.get::<_, i64>(0), sums.get::<_, i64>(1), sums.get::<_, i64>(2), sums.get::<_, &str>(3)),
        (2, 2, 18_000_000_000, "a\tb")
    );
    // Two equal rows on each side of every key that is not NULL: 2 keys x 2 x 2.
    let joined = client.query_one("SELECT count(*) FROM per_minute a JOIN per_minute b ON a.i4 = b.i4", &[]).await.unwrap();
    assert_eq!(joined.get::<_, i64>(0), 8);
    let with =
        client.query("WITH w AS (SELECT b, count(*) AS n FROM per_minute GROUP BY b) SELECT n FROM w ORDER BY n", &[]).await.unwrap();
    assert_eq!(with.len(), 3);
    server.stop().await;
}

/// SQL-10: SQLSTATE, message, hint and position; the session goes on in both protocols.
#[tokio::test]
async fn errors_are_postgres_errors_with_a_place() {
    let server = Server::with_objects(Canned(Vec::new())).await;
    let client = server.client().await;
    for (query, state, position, hint) in [
        ("SELECT\n  idd FROM weir.jobs", SqlState::UNDEFINED_COLUMN, Some(10), Some("id")),
        ("SELECT 'ä', * FROM per_minut", SqlState::UNDEFINED_TABLE, Some(20), Some("per_minute")),
        ("SELECT * FROM weir.jbos", SqlState::UNDEFINED_TABLE, Some(15), Some("weir.jobs")),
        ("SELECT coutn(*) FROM weir.jobs", SqlState::UNDEFINED_FUNCTION, Some(8), Some("count")),
        ("SELECT * FROM into_counts", SqlState::UNDEFINED_TABLE, Some(15), Some("sink-0")),
        ("SELECT * FROM bids", SqlState::FEATURE_NOT_SUPPORTED, Some(15), Some("CREATE JOB")),
        ("SELECT * FROM counts", SqlState::WRONG_OBJECT_TYPE, Some(15), None),
        ("SELECT id, count(*) FROM weir.jobs", SqlState::GROUPING_ERROR, Some(8), None),
        ("SELECT 1/0", SqlState::DIVISION_BY_ZERO, None, None),
        ("SELECT 'x'::int", SqlState::INVALID_TEXT_REPRESENTATION, None, None),
        ("INSERT INTO per_minute VALUES (1)", SqlState::FEATURE_NOT_SUPPORTED, None, Some("CREATE JOB")),
        ("SELEKT 1", SqlState::SYNTAX_ERROR, None, None),
    ] {
        for extended in [false, true] {
            let failed = if extended { client.query(query, &[]).await.map(drop) } else { client.simple_query(query).await.map(drop) };
            let error = failed.expect_err(query);
            let error = error.as_db_error().unwrap_or_else(|| panic!("{query}: no server error"));
            assert_eq!(error.code(), &state, "{query}: {error:?}");
            let found = error.position().map(|position| match position {
                ErrorPosition::Original(at) => *at,
                ErrorPosition::Internal { .. } => 0,
            });
            assert_eq!(found, position, "{query}: {error:?}");
            assert!(!error.message().ends_with('.') && !error.message().contains("DataFusion"), "{query}: {error:?}");
            if let Some(hint) = hint {
                assert!(error.hint().is_some_and(|text| text.contains(hint)), "{query}: {error:?}");
            }
            assert_eq!(client.query_one("SELECT 1", &[]).await.unwrap().get::<_, i64>(0), 1, "after {query}");
        }
    }
    server.stop().await;
}

/// C59: a cancel request ends what runs, and only that, in both protocols.
#[tokio::test]
async fn cancel_ends_a_statement_that_waits_and_one_that_streams() {
    let server = Server::start().await;
    for endless in [false, true] {
        let client = server.client().await;
        let token = client.cancel_token();
        let error = if endless {
            let mut rows = Box::pin(client.simple_query_raw("ENDLESS").await.unwrap());
            // Rows arrive one by one while the query goes on.
            for _ in 0..3 {
                tokio::time::timeout(SOON, rows.next()).await.unwrap().unwrap().unwrap();
            }
            token.cancel_query(NoTls).await.unwrap();
            let rest = async move {
                while rows.try_next().await?.is_some() {}
                Ok::<_, tokio_postgres::Error>(())
            };
            tokio::time::timeout(SOON, rest).await.unwrap().unwrap_err()
        } else {
            let running = client.simple_query("SLEEP");
            tokio::pin!(running);
            // A cancel that comes before the statement is about none: ask until it has landed.
            let cancel = async {
                loop {
                    token.cancel_query(NoTls).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                failed = tokio::time::timeout(SOON, &mut running) => failed.unwrap().unwrap_err(),
                () = cancel => unreachable!(),
            }
        };
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        assert_eq!(client.query_one("SELECT 2", &[]).await.unwrap().get::<_, i64>(0), 2);
    }
    server.stop().await;
}

/// PG-2: transactions do not error, fail as a whole, and end by ROLLBACK.
#[tokio::test]
async fn transactions_keep_count() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let transaction = client.transaction().await.unwrap();
    transaction.query("SELECT 1", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    client.batch_execute("BEGIN; SELECT 1; SAVEPOINT a; RELEASE SAVEPOINT a; COMMIT").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    client.simple_query("SELECT nothing").await.unwrap_err();
    let error = client.simple_query("SELECT 1").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    client.batch_execute("ROLLBACK").await.unwrap();
    client.simple_query("SELECT 1").await.unwrap();
    server.stop().await;
}

/// Several statements in one text run in order until one fails.
#[tokio::test]
async fn a_text_of_statements_stops_at_the_first_that_fails() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut found = Vec::new();
    let mut rows = Box::pin(client.simple_query_raw("SELECT 1 AS a; SELECT 2; SELECT nothing; SELECT 3").await.unwrap());
    let error = loop {
        match rows.try_next().await {
            Ok(Some(SimpleQueryMessage::Row(row))) => found.push(row.get(0).unwrap().to_owned()),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the third statement is wrong"),
            Err(error) => break error,
        }
    };
    assert_eq!(found, ["1", "2"]);
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_COLUMN));
    assert!(client.simple_query(" ; ").await.unwrap().is_empty() || client.simple_query("").await.is_ok());
    let error = client.query("SELECT 1; SELECT 2", &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::SYNTAX_ERROR));
    server.stop().await;
}

/// PG-2: Execute with a row limit suspends the portal and goes on where it stopped.
#[tokio::test]
async fn a_portal_gives_rows_in_parts() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT * FROM (VALUES (1), (2), (3), (4), (5)) AS v(n)", &[]).await.unwrap();
    let mut parts = Vec::new();
    for _ in 0..4 {
        let rows = transaction.query_portal(&portal, 2).await.unwrap();
        parts.push(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>());
    }
    assert_eq!(parts, [vec![1, 2], vec![3, 4], vec![5], vec![]]);
    transaction.commit().await.unwrap();
    server.stop().await;
}

/// PG-2, C61: COPY (SELECT …) TO STDOUT in text and CSV.
#[tokio::test]
async fn copy_sends_rows_to_the_client() {
    let server = Server::with_rows(vec![rows()]).await;
    let client = server.client().await;
    let copy = |query: &'static str| {
        let client = &client;
        async move {
            let parts: Vec<bytes::Bytes> = client.copy_out(query).await.unwrap().try_collect().await.unwrap();
            String::from_utf8(parts.concat()).unwrap()
        }
    };
    assert_eq!(copy("COPY (SELECT i4, t, b FROM per_minute) TO STDOUT").await, "70000\ta\\tb\tt\n-1\t\tf\n\\N\t\\N\t\\N\n");
    let csv = copy("COPY (SELECT i4, t, n FROM per_minute) TO STDOUT (FORMAT csv, HEADER)").await;
    assert_eq!(csv, "i4,t,n\n70000,a\tb,12345.50\n-1,\"\",-0.05\n,,\n");
    assert_eq!(copy("COPY (SELECT 'a,b' AS x, 'say \"hi\"' AS y) TO STDOUT WITH CSV").await, "\"a,b\",\"say \"\"hi\"\"\"\n");
    let error = client.batch_execute("COPY per_minute FROM STDIN").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
    // In the middle of nothing: the session goes on.
    let mut sink = Box::pin(futures::sink::drain::<()>());
    sink.close().await.unwrap();
    assert_eq!(client.query_one("SELECT 3", &[]).await.unwrap().get::<_, i64>(0), 3);
    server.stop().await;
}

/// PG-4: more connections than the limit are told so; one that leaves makes room.
#[tokio::test]
async fn too_many_connections_are_refused_with_a_reason() {
    let server = Server::with(Canned(Vec::new()), 2).await;
    let (first, _second) = (server.client().await, server.client().await);
    let config = format!("host=127.0.0.1 port={} user=late", server.address.port());
    let refused = async || tokio_postgres::connect(&config, NoTls).await.map(drop);
    let error = refused().await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS));
    drop(first);
    let room = async { while refused().await.is_err() {} };
    tokio::time::timeout(SOON, room).await.unwrap();
    server.stop().await;
}

/// A shutdown says good-bye to idle clients and cuts a statement that does not end.
#[tokio::test]
async fn a_shutdown_ends_idle_and_busy_sessions() {
    let server = Server::start().await;
    let (idle, busy) = (server.client().await, server.client().await);
    let running = tokio::spawn(async move { busy.simple_query("SLEEP").await });
    idle.simple_query("SELECT 1").await.unwrap();
    tokio::time::timeout(SOON, server.stop()).await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.code() == Some(&SqlState::ADMIN_SHUTDOWN) || error.is_closed(), "{error:?}");
    let gone = async {
        while !idle.is_closed() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(SOON, gone).await.unwrap();
}
