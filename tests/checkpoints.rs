//! Checkpoints through the whole binary: a savepoint goes on as other tasks, and when an agent dies for good another one goes on
//! from what was sealed, without a loss and without a repeat.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::process::{Weir, temporary};
use support::sql::Sql;
use support::{PATIENCE, until};

const ROWS: i64 = 6_000;
/// Rows of one key in one window: each window has 500 rows, of 7 keys.
const WINDOW: i64 = 500;

/// `SELECT k, window_start, count(*), sum(n)` of numbers from 0, of which each is its own time in ms and goes to key `n % 7`.
fn expected() -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for window in 0..ROWS / WINDOW {
        for k in 0..7 {
            let of_key: Vec<i64> = (window * WINDOW..(window + 1) * WINDOW).filter(|n| n % 7 == k).collect();
            rows.push(vec![k.to_string(), (window * WINDOW).to_string(), of_key.len().to_string(), of_key.iter().sum::<i64>().to_string()]);
        }
    }
    rows
}

fn source(sql: &Sql) {
    sql.run(&format!(
        "CREATE SOURCE numbers (n BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'generate', \
         context = '{{\"n\": \"{{{{counter}}}}\", \"ts\": \"{{{{counter}}}}\"}}', rows = {ROWS}, batch_size = 5, interval = '2ms')"
    ));
}

fn job(sql: &Sql, with: &str) {
    sql.run(&format!(
        "CREATE JOB sums WITH (checkpoint.epoch = '50ms', checkpoint.interval = '1s', {with}) AS \
         SELECT n % 7 AS k, window_start, count(*) AS n, sum(n) AS total FROM tumble(numbers, ts, INTERVAL '500 milliseconds') \
         GROUP BY n % 7, window_start, window_end"
    ));
}

fn results(sql: &Sql) -> Vec<Vec<String>> {
    sql.rows("SELECT k, CAST(EXTRACT(EPOCH FROM window_start) * 1000 AS BIGINT) AS start, n, total FROM sums ORDER BY start, k")
}

/// CKP-7, CKP-9, G2: a savepoint of one task is begun from by three, under a new job of the name that says `rescale`; one that
/// does not say so is refused, and so is one of other key groups.
#[test]
fn a_savepoint_goes_on_as_more_tasks() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    source(&sql);
    job(&sql, "parallelism = 1");
    until("windows are there", PATIENCE, || (sql.one("SELECT count(*) FROM sums") != "0").then_some(()));
    sql.run("ALTER JOB sums STOP WITH SAVEPOINT");
    sql.run("WAIT FOR JOB sums UNTIL STOPPED TIMEOUT '30s'");
    let id = sql.one("SELECT max(id) FROM weir.job_checkpoints WHERE job = 'sums' AND kind = 'savepoint' AND state = 'completed'");
    for (with, why) in [("parallelism = 3", "set rescale: true"), ("parallelism = 3, rescale = true, max_parallelism = 64", "key groups")] {
        sql.run("DROP JOB sums");
        job(&sql, &format!("start = false, {with}"));
        sql.run(&format!("ALTER JOB sums START FROM SAVEPOINT {id}"));
        let (_, _, error) = until("it is refused", PATIENCE, || Some(sql.job("sums")).filter(|(state, _, _)| state == "failed"));
        assert!(error.contains(why) && error.contains("added tasks"), "{error}");
        sql.run("ALTER JOB sums STOP");
    }
    sql.run("DROP JOB sums");
    job(&sql, "start = false, parallelism = 3, rescale = true");
    sql.run(&format!("ALTER JOB sums START FROM SAVEPOINT {id}"));
    sql.run("WAIT FOR JOB sums UNTIL FINISHED TIMEOUT '60s'");
    assert_eq!(results(&sql), expected());
}

fn agent(name: &str, dir: &Path, hub: &Weir, store: &Path) -> Weir {
    let store = format!("file://{}", store.display());
    let args = ["agent", "--data-dir", dir.to_str().unwrap(), "--hub", hub.agents(), "--node-id", name, "--state-url", &store];
    Weir::start(args.iter().map(ToString::to_string).collect())
}

/// EPO-8, EPO-9, CKP-6, A3: an agent is killed and never comes back. What it decided after the last seal is gone with it, and
/// the next one reads it again: each window of each key is there once.
#[test]
fn another_agent_goes_on_from_what_was_sealed() {
    let (hub_dir, store, agents) = (temporary(), temporary(), temporary());
    let mut args = Weir::serving_args("hub", hub_dir.path());
    args.extend(["--lease-ms", "1000"].map(str::to_owned));
    let hub = Weir::start(args);
    let sql = hub.sql();
    source(&sql);
    let mut one = agent("one", &agents.path().join("one"), &hub, store.path());
    job(&sql, "parallelism = 2");
    let sealed = "SELECT count(*) FROM weir.job_checkpoints WHERE job = 'sums' AND state = 'completed'";
    until("a checkpoint with results is sealed", PATIENCE, || {
        (sql.one(sealed) != "0" && sql.try_rows("SELECT count(*) FROM sums").is_ok_and(|rows| rows[0][0] != "0")).then_some(())
    });
    one.kill();
    let _two = agent("two", &agents.path().join("two"), &hub, store.path());
    sql.run("WAIT FOR JOB sums UNTIL FINISHED TIMEOUT '60s'");
    assert_eq!(results(&sql), expected());
    let told = sql.rows("SELECT kind FROM weir.job_events WHERE job = 'sums' AND kind = 'restored'");
    assert_eq!(told.len(), 1, "{told:?}");
}
