//! A storm of crashes over the built binary: a hub and two agents, and `weir up` alone, are killed (`kill -9`), lose power and with
//! it what was not synced, are stopped past their lease, left without room or sync and robbed of files at random moments, while rows
//! with unique numbers go in. At the end nothing that was answered is lost, every window is exact, tables and files hold
//! everything once, and the at-least-once sink got rows again only from after the last sealed cut.
//!
//! `WEIR_TEST_SEED=n` repeats the choices of a run, though not its moments, which are the machine's. `WEIR_TEST_KILLS=n` sets how
//! many processes each test kills; the long run is
//!
//!     WEIR_TEST_KILLS=1000 tests/run -P long -E 'binary(crash)'
//!
//! When a test fails it keeps the data directories and says where.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/cluster.rs"]
mod cluster;
#[path = "crash/feed.rs"]
mod feed;
#[path = "crash/hook.rs"]
mod hook;
#[path = "crash/outage.rs"]
mod outage;
#[path = "crash/storm.rs"]
mod storm;
mod support;

use cluster::Cluster;
use feed::{FEED_PATIENCE, Feed, window_of};
use hook::Hook;
use std::time::Duration;
use storm::Storm;
use support::process::temporary;
use support::sql::Sql;
use support::{block_on, until};

/// Processes that each test kills.
const KILLS: u64 = 62;
/// Windows that must have closed after the last kill: more than the slack of the watermark, and than what was under way.
const CALM: u64 = 8;
/// Pace and patience of all jobs.
const PACE: &str = "checkpoint.epoch = '100ms', checkpoint.interval = '100ms', restart.max_attempts = 1000000, restart.max_backoff = '1s', result_retention_rows = 1000000000";

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Asks once, without patience: whoever is asked may be dead.
fn ask(port: u16, sql: &str) -> Option<Vec<Vec<String>>> {
    let asked = async {
        let session = Sql::open(port).await.ok()?;
        let messages = session.client().simple_query(sql).await.ok()?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect())
            }
            _ => None,
        });
        Some(rows.collect())
    };
    block_on(async { tokio::time::timeout(Duration::from_secs(5), asked).await.ok()? })
}

/// A job that puts the rows of an http source into windows. The path is its own: another may listen at a port where it did.
fn windows(sql: &Sql, job: &str, into: &str, path: &str, with: &str) {
    sql.run(&format!(
        "CREATE SOURCE {job}_in (k BIGINT, w BIGINT, bit BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '30 seconds')
         WITH (connector = 'http', address = '127.0.0.1:0', path = '{path}', format = 'json'{with})"
    ));
    sql.run(&format!(
        "CREATE JOB {job} {into} WITH (parallelism = 2, {PACE}) AS SELECT k, max(w) AS w, count(*) AS n, sum(bit) AS mask
         FROM tumble({job}_in, ts, INTERVAL '10 seconds') GROUP BY k, window_start, window_end"
    ));
}

/// A job that puts generated numbers into windows, 1,000 in each.
fn counted(sql: &Sql) {
    sql.run(
        "CREATE SOURCE numbers (n BIGINT, ts BIGINT, WATERMARK FOR ts AS ts)
         WITH (connector = 'generate', context = '{\"n\": \"{{counter}}\", \"ts\": \"{{counter}}\"}', interval = '20ms', batch_size = 20, format = 'json')",
    );
    sql.run(&format!(
        "CREATE JOB counted WITH ({PACE}) AS SELECT min(n) AS least, max(n) AS most, count(*) AS n, count(DISTINCT n) AS different
         FROM tumble(numbers, ts, INTERVAL '1 second') GROUP BY window_start, window_end"
    ));
}

/// The windows at the sink and those of the generated numbers, after the storm.
fn settle(storm: &mut Storm) {
    let last: Vec<u64> = storm.feeds.iter().map(|feed| window_of(feed.next())).collect();
    storm.wait("windows pass", |storm| storm.feeds.iter().zip(&last).all(|(feed, last)| window_of(feed.next()) >= last + CALM));
    let mut expected = storm.feeds.drain(..).map(Feed::finish);
    let sent = expected.next().unwrap();
    let due = check::due(&sent, last[0]);
    let hook = storm.hook.clone();
    until("every window is at the sink", FEED_PATIENCE, || {
        hook.with(|seen| due.iter().all(|group| seen.rows.contains_key(group))).then_some(())
    });
    hook.with(|seen| {
        assert!(seen.faults.is_empty(), "{:?}", seen.faults);
        let rows = seen.rows.iter().map(|(group, (row, _))| (*group, *row)).collect();
        check::exact("windows", &rows, &sent);
        println!("{} of {} lines came again", seen.repeats, seen.lines);
    });
    let sql = storm.cluster.doors().sql();
    for sent in expected {
        let due = check::due(&sent, last[1]);
        let rows = until("every window is in the table", FEED_PATIENCE, || {
            check::table(&sql, "plain").filter(|rows| due.iter().all(|group| rows.contains_key(group)))
        });
        check::exact("plain", &rows, &sent);
    }
    let numbers = || sql.try_rows("SELECT least, most, n, different FROM counted ORDER BY least").ok();
    let before = until("the numbers are readable", FEED_PATIENCE, numbers).len();
    let rows = until("numbers go on", FEED_PATIENCE, || numbers().filter(|rows| rows.len() > before));
    check::counted(&rows);
}

/// Keeps its directory when the test fails.
struct Ground(Option<tempfile::TempDir>);

impl Ground {
    fn path(&self) -> &std::path::Path {
        self.0.as_ref().unwrap().path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(dir) = self.0.take()
        {
            eprintln!("the data directories are kept in {}", dir.keep().display());
        }
    }
}

fn begin() -> (u64, u64, Ground) {
    let seed = setting("WEIR_TEST_SEED").unwrap_or_else(rand::random);
    println!("to repeat this: WEIR_TEST_SEED={seed}");
    (seed, setting("WEIR_TEST_KILLS").unwrap_or(KILLS), Ground(Some(temporary())))
}

/// A1, A2, A3, B1, B5, CKP-6, EPO-9: a hub and two agents, with the input log in the state store, so that an agent can lose its disk.
#[test]
fn a_hub_and_two_agents_lose_and_double_nothing_in_a_storm() {
    let (seed, kills, ground) = begin();
    let (hook, url) = Hook::start();
    let cluster = Cluster::apart(ground.path());
    let sql = cluster.doors().sql();
    sql.run(&format!("CREATE SINK hook WITH (connector = 'http', url = '{url}', batch_rows = 50, timeout = '2s')"));
    windows(&sql, "windows", "INTO hook", &format!("/windows-{seed}"), ", durability.enabled = true, durability.backend = 'object_store'");
    counted(&sql);
    let feeds = vec![Feed::start("windows", cluster.doors().pg())];
    // What is lost before a job has a checkpoint is lost: it fails, and says so.
    until("both jobs have a checkpoint", FEED_PATIENCE, || {
        let sealed = "SELECT count(DISTINCT job) FROM weir.job_checkpoints WHERE state = 'completed'";
        (sql.one(sealed) == "2").then_some(())
    });
    let mut storm = Storm::new(seed, cluster, feeds, hook, &storm::APART);
    storm.rage(kills);
    settle(&mut storm);
}

/// A1, A2, A3, A6, WAL-1, EPO-8: all in one process, with effects at the local decision: answers with and without an input
/// log, a result table and files.
#[test]
fn one_process_loses_and_doubles_nothing_in_a_storm() {
    let (seed, kills, ground) = begin();
    let (hook, url) = Hook::start();
    let cluster = Cluster::in_one(ground.path());
    let sql = cluster.doors().sql();
    let copies = ground.path().join("copies");
    sql.run(&format!("CREATE SINK hook WITH (connector = 'http', url = '{url}', batch_rows = 50, timeout = '2s')"));
    windows(&sql, "windows", "INTO hook", &format!("/windows-{seed}"), ", durability.enabled = true");
    windows(&sql, "plain", "", &format!("/plain-{seed}"), "");
    counted(&sql);
    sql.run(&format!("CREATE SINK files WITH (connector = 'file', path = '{}', format = 'json')", copies.display()));
    sql.run(&format!("CREATE JOB copies INTO files WITH ({PACE}) AS SELECT n FROM numbers"));
    let port = cluster.doors().pg();
    let feeds = vec![Feed::start("windows", port), Feed::start("plain", port)];
    let mut storm = Storm::new(seed, cluster, feeds, hook, &storm::IN_ONE);
    storm.rage(kills);
    settle(&mut storm);
    let sql = storm.cluster.doors().sql();
    sql.run("ALTER JOB copies STOP");
    sql.run("WAIT FOR JOB copies UNTIL STOPPED TIMEOUT '30s'");
    check::files(&copies);
}
