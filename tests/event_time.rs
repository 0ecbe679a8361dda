//! Event time through the whole binary: partitions without rows, history, silence and splits that
//! run apart; and what people can see of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use support::broker::Broker;
use support::process::{Weir, temporary};
use support::sql::Sql;
use support::{PATIENCE, until};

/// 2023-05-01 12:00:00.
const NOON_MS: i64 = 1_682_942_400_000;

fn records(partition: i32, times: &[i64]) -> Vec<(i32, String)> {
    times.iter().map(|time| (partition, format!("{{\"k\": {partition}, \"ts\": {time}}}"))).collect()
}

fn source(sql: &Sql, broker: &Broker, name: &str, topic: &str, bound: &str, with: &str) {
    sql.run(&format!(
        "CREATE SOURCE {name} (k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{bound}')
         WITH (connector = 'kafka', brokers = '{}', topic = '{topic}', format = 'json', {with})",
        broker.address()
    ));
}

/// What holds the source and the window of a job.
fn held_by(sql: &Sql, job: &str) -> Vec<Vec<String>> {
    sql.rows(&format!(
        "SELECT DISTINCT o.kind, w.held_by FROM weir.job_watermarks w JOIN weir.job_operators o ON w.job = o.job AND w.operator = o.operator
         WHERE w.job = '{job}' AND o.kind IN ('source', 'window') ORDER BY o.kind"
    ))
}

/// C08, C12, EV-7: a topic of three partitions of which one has rows, all from 2023, read by four
/// tasks. The windows of earlier minutes come out as soon as the empty partitions are idle; the
/// last one stays open, and it can be seen why. C07: with the clock it closes too, and that is told.
#[test]
fn history_in_one_of_three_partitions_yields_its_windows() {
    let broker = Broker::tansu();
    broker.create_topic("meters", 3);
    broker.create_topic("seconds", 3);
    broker.produce("meters", records(1, &[0, 120_000, 240_000].map(|ms| NOON_MS + ms)).into_iter());
    broker.produce("seconds", records(1, &[0, 1_000].map(|ms| NOON_MS + ms)).into_iter());
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    source(&sql, &broker, "meters", "meters", "30 seconds", "watermark.idle_timeout = '1s'");
    sql.run(
        "CREATE JOB per_minute WITH (parallelism = 4) AS
         SELECT window_start, count(*) AS n FROM tumble(meters, ts, INTERVAL '1 minute') GROUP BY window_start, window_end",
    );
    source(&sql, &broker, "seconds", "seconds", "0 seconds", "watermark.idle_timeout = '1s', idle_advance = '1s'");
    sql.run(
        "CREATE JOB clocked WITH (parallelism = 4) AS
         SELECT window_start, count(*) AS n FROM tumble(seconds, ts, INTERVAL '3 seconds') GROUP BY window_start, window_end",
    );
    until("the earlier minutes are there", PATIENCE, || (sql.one("SELECT count(*) FROM per_minute") == "2").then_some(()));
    let rows = sql.rows("SELECT window_start, n FROM per_minute ORDER BY window_start");
    assert_eq!(rows, [["2023-05-01 12:00:00", "1"], ["2023-05-01 12:02:00", "1"]]);
    until("it is seen that all is idle", PATIENCE, || {
        (held_by(&sql, "per_minute") == [["source", "(idle)"], ["window", "(idle)"]]).then_some(())
    });
    assert_eq!(
        sql.rows(
            "SELECT partition, watermark_at, last_event_at, idle, input FROM weir.job_watermarks
             WHERE job = 'per_minute' AND partition = 'meters/1'"
        ),
        [["meters/1", "2023-05-01 12:03:30+00", "2023-05-01 12:04:00+00", "t", "NULL"]]
    );
    assert_eq!(sql.one("SELECT count(*) FROM weir.job_watermarks WHERE job = 'per_minute' AND partition IS NOT NULL"), "3");

    until("the clock closes the window", PATIENCE, || (sql.one("SELECT count(*) FROM clocked") == "1").then_some(()));
    assert_eq!(sql.rows("SELECT window_start, n FROM clocked"), [["2023-05-01 12:00:00", "2"]]);
    let event = "SELECT level, operator FROM weir.job_events WHERE job = 'clocked' AND kind = 'idle_advance'";
    until("the event is there", PATIENCE, || (!sql.rows(event).is_empty()).then_some(()));
    assert_eq!(sql.rows(event).len(), 1, "told once");
    until("it is seen that the clock moves it", PATIENCE, || {
        (held_by(&sql, "clocked").first().map(|row| row[1].clone()) == Some("(clock)".to_owned())).then_some(())
    });
    assert_eq!(sql.one("SELECT count(*) FROM weir.job_events WHERE job = 'per_minute' AND kind = 'idle_advance'"), "0");
    // Rows that come back go on; nothing that is on time is lost.
    broker.produce("meters", records(0, &[NOON_MS + 250_000]).into_iter());
    let read = "SELECT sum(rows_in_total) FROM weir.job_sources WHERE job = 'per_minute'";
    until("the row is read", PATIENCE, || (sql.one(read) == "4").then_some(()));
    broker.produce("meters", records(0, &[NOON_MS + 400_000]).into_iter());
    broker.produce("meters", records(1, &[401_000].map(|ms| NOON_MS + ms)).into_iter());
    let rest = "SELECT window_start, n FROM per_minute WHERE window_start >= TIMESTAMP '2023-05-01 12:04:00' ORDER BY window_start";
    until("the open window closes", PATIENCE, || (!sql.rows(rest).is_empty()).then_some(()));
    assert_eq!(sql.rows(rest), [["2023-05-01 12:04:00", "2"]]);
    assert_eq!(sql.one("SELECT sum(rows_late_total) FROM weir.job_tasks WHERE job = 'per_minute'"), "0");
}

/// C13, EV-9: a partition that could be read a day ahead waits for one that stands still, and goes
/// on with it; which holds which can be seen, and no row is late.
#[test]
fn partitions_are_held_within_their_alignment() {
    let broker = Broker::tansu();
    broker.create_topic("apart", 2);
    let second = |n: i64| NOON_MS + n * 1_000;
    // A partition without a row yet holds nobody, so both have one before the fast one has more.
    broker.produce("apart", records(0, &[second(0)]).into_iter());
    broker.produce("apart", records(1, &[second(0)]).into_iter());
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    source(
        &sql,
        &broker,
        "apart",
        "apart",
        "0 seconds",
        "watermark.idle_timeout = '0s', watermark.alignment = '1 hour', batch.rows = 1000",
    );
    sql.run(
        "CREATE JOB j WITH (parallelism = 2) AS
         SELECT window_start, count(*) AS n FROM tumble(apart, ts, INTERVAL '1 hour') GROUP BY window_start, window_end",
    );
    let read = "SELECT sum(rows_in_total) FROM weir.job_sources WHERE job = 'j' AND watermark_at IS NOT NULL";
    until("both partitions are known", PATIENCE, || (sql.one(read) == "2").then_some(()));
    let ahead: Vec<i64> = (1..86_400).map(second).collect();
    broker.produce("apart", records(0, &ahead).into_iter());
    let held = "SELECT held FROM weir.job_sources WHERE job = 'j' AND partition = 'apart/0'";
    until("the fast partition is held", PATIENCE, || (sql.one(held) == "t").then_some(()));
    let ahead_by = "SELECT watermark_at > TIMESTAMPTZ '2023-05-01 13:00:00+00' AND watermark_at <= TIMESTAMPTZ '2023-05-01 13:16:40+00'
                    FROM weir.job_sources WHERE job = 'j' AND partition = 'apart/0'";
    assert_eq!(sql.one(ahead_by), "t");
    let holder = "SELECT DISTINCT held_by FROM weir.job_watermarks WHERE job = 'j' AND partition IS NOT NULL";
    assert_eq!(sql.rows(holder), [["apart/1"]]);
    broker.produce("apart", records(1, &[second(86_400)]).into_iter());
    until("all hours but the last are there", PATIENCE, || (sql.one("SELECT count(*) FROM j") == "23").then_some(()));
    assert_eq!(sql.one("SELECT sum(n) FROM j"), (23 * 3_600 + 1).to_string());
    assert_eq!(sql.one("SELECT sum(rows_late_total) FROM weir.job_tasks WHERE job = 'j'"), "0");
    let late = "SELECT partition, rows_late_total FROM weir.job_sources WHERE job = 'j' ORDER BY partition";
    assert_eq!(sql.rows(late), [["apart/0", "0"], ["apart/1", "0"]]);
    // EV-4: a late row that a window judged behind a shuffle is still known by its partition.
    broker.produce("apart", records(1, &[second(7)]).into_iter());
    until("the late row is counted", PATIENCE, || (sql.rows(late) == [["apart/0", "0"], ["apart/1", "1"]]).then_some(()));
}
