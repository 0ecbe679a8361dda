//! Late rows that revise results through the whole binary: the result table shows of each key and
//! window the newest row, also after a kill.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use support::process::{Weir, temporary};
use support::sql::Sql;
use support::{PATIENCE, block_on, until};

/// Sends rows; they are decided when it returns.
fn send(weir: &mut Weir, rows: &[(i64, i64)]) {
    let to = weir.listens("visits");
    let body: String = rows.iter().map(|(k, ts)| format!("{{\"k\": {k}, \"ts\": {ts}}}\n")).collect();
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    block_on(async {
        let sent = client.post(format!("http://{to}/in")).header("content-type", "application/x-ndjson").body(body).send().await.unwrap();
        assert_eq!(sent.status().as_u16(), 200);
    });
}

/// Waits until the table shows these counts by key and window; meanwhile no key and window is there twice.
fn shows(sql: &Sql, expected: &[[&str; 3]]) {
    until("the results are as expected", PATIENCE, || {
        let rows = sql.rows("SELECT k, CAST(window_end AS TEXT) AS till, n FROM visits ORDER BY till, k, n");
        let twice = rows.windows(2).any(|pair| pair[0][..2] == pair[1][..2]);
        assert!(!twice, "{rows:?}");
        let now: Vec<[&str; 3]> = rows.iter().map(|row| [row[0].as_str(), row[1].as_str(), row[2].as_str()]).collect();
        (now == expected).then_some(())
    });
}

/// WIN-4: bound 0, lateness 10 s. [0, 1 s) is given when row 1500 comes; rows 300 and 400 revise it, each before and
/// after a kill, and key 3 is new in it. What adds instead says so when it is made.
#[test]
fn late_rows_revise_what_the_table_shows() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    let listens = "connector = 'http', address = '127.0.0.1:0', path = '/in', format = 'json'";
    sql.run(&format!(
        "CREATE SOURCE visits_in (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) \
         WITH ({listens}, late_event_policy = 'update', allowed_lateness = '10s')"
    ));
    let query = "SELECT k, window_start, window_end, count(*) AS n FROM tumble(visits_in, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end";
    sql.run(&format!("CREATE JOB visits WITH (checkpoint.epoch = '200ms', checkpoint.interval = '1s', parallelism = 2) AS {query}"));
    let (first, second) = ("1970-01-01T00:00:01", "1970-01-01T00:00:02");
    send(&mut weir, &[(1, 100), (2, 200), (1, 1500)]);
    shows(&sql, &[["1", first, "1"], ["2", first, "1"]]);
    send(&mut weir, &[(1, 300)]);
    shows(&sql, &[["1", first, "2"], ["2", first, "1"]]);
    weir.kill();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    shows(&sql, &[["1", first, "2"], ["2", first, "1"]]);
    send(&mut weir, &[(1, 400), (3, 500)]);
    shows(&sql, &[["1", first, "3"], ["2", first, "1"], ["3", first, "1"]]);
    send(&mut weir, &[(2, 2000)]);
    shows(&sql, &[["1", first, "3"], ["2", first, "1"], ["3", first, "1"], ["1", second, "1"]]);

    sql.run("CREATE SINK copies WITH (connector = 'drop')");
    sql.run(&format!("CREATE JOB copied INTO copies WITH (start = false) AS {query}"));
    let told = sql.notices().join("\n");
    assert!(told.contains("adds every result of window 'window-1', which gives some again"), "{told}");
    assert!(told.contains("the last one of equal k, window_start, window_end is right"), "{told}");
}
