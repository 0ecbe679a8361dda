//! Checkpoints through the whole binary: a savepoint goes on as other tasks, and when an agent dies for good another one goes on
//! from what was sealed, without a loss and without a repeat.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::process::{Weir, temporary, weir};
use support::sql::Sql;
use support::{PATIENCE, block_on, until};

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
    inspected(&sql, data.path());
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

/// CKP-12, STA-5, B4: the store is checked and shown with nothing running: entries are as many as the state table has, and each
/// damaged or missing file is named.
fn inspected(sql: &Sql, data: &Path) {
    let asked = |more: &[&str]| {
        let mut args = vec!["state", "inspect", data.to_str().unwrap(), "--job", "sums"];
        args.extend(more);
        weir(&args)
    };
    let id = sql.one("SELECT max(id) FROM weir.job_checkpoints WHERE job = 'sums' AND state = 'completed'");
    // Stopped, so that the last savepoint and the live state are of one epoch.
    let (entries, epoch) =
        (sql.one("SELECT count(*) FROM state.sums.\"window-1\""), sql.one("SELECT max(_epoch) FROM state.sums.\"window-1\""));
    let whole = asked(&["--checkpoint", &id, "--entries", "2"]);
    assert_eq!(whole.code, 0, "{}{}", whole.out, whole.err);
    for said in [
        format!("savepoint {id} of job sums, version 1"),
        format!("epoch {epoch}"),
        format!("{entries} entries of {entries} keys"),
        "__a0_".to_owned(),
        "  whole: ".to_owned(),
    ] {
        assert!(whole.out.contains(&said), "'{said}' is not in: {}", whole.out);
    }
    assert_eq!(whole.out.lines().filter(|line| line.contains("k=")).count(), 2, "{}", whole.out);
    let files = data.join("agent/checkpoints/jobs/sums/files");
    let segments = std::fs::read_dir(files).unwrap().flat_map(|attempt| std::fs::read_dir(attempt.unwrap().path()).unwrap());
    let segments: Vec<_> = segments.map(|file| file.unwrap().path()).filter(|path| whole_segment(path)).collect();
    let mut named = 0;
    for path in &segments {
        let good = std::fs::read(path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for damage in [Some(bad), None] {
            match &damage {
                Some(bad) => std::fs::write(path, bad).unwrap(),
                None => std::fs::remove_file(path).unwrap(),
            }
            let found = asked(&[]);
            let name = path.file_name().unwrap().to_str().unwrap();
            if found.code == 0 {
                // No checkpoint needs it any more, and the next sweep takes it.
                continue;
            }
            named += 1;
            assert!(found.out.lines().any(|line| line.contains("damaged: ") && line.contains(name)), "{name}: {}", found.out);
            std::fs::write(path, &good).unwrap();
        }
    }
    assert!(named >= 2, "of {} segments", segments.len());
    assert_eq!(asked(&["--checkpoint", "1000000"]).code, 1);
    assert_eq!(weir(&["state", "inspect", "/nonexistent"]).code, 1);
}

/// A segment, and not a result file.
fn whole_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// A hub that soon takes a silent agent for gone.
fn hub(dir: &Path) -> Weir {
    let mut args = Weir::serving_args("hub", dir);
    args.extend(["--lease-ms", "1000"].map(str::to_owned));
    Weir::start(args)
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
    let hub = hub(hub_dir.path());
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

/// EPO-8, WAL-2, WAL-4, D1: rows are logged in the state store, trimmed by what is sealed, and answered at once. The agent dies
/// with epochs that no seal holds; the next one takes the rows after the seal out of the log. Each answered row is there once.
#[test]
fn another_agent_reads_the_log_on() {
    let (hub_dir, store, agents) = (temporary(), temporary(), temporary());
    let hub = hub(hub_dir.path());
    let sql = hub.sql();
    sql.run(
        "CREATE SOURCE numbers_in (n BIGINT) WITH (connector = 'http', address = '127.0.0.1:0', path = '/in', format = 'json', \
         durability.enabled = true, durability.backend = 'object_store')",
    );
    let mut one = agent("one", &agents.path().join("one"), &hub, store.path());
    sql.run("CREATE JOB numbers WITH (checkpoint.epoch = '50ms', checkpoint.interval = '1s') AS SELECT n FROM numbers_in");
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    let mut next = 0;
    let mut send = |at: &str| {
        let body: String = (next..next + 20).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        next += 20;
        let request = client.post(format!("http://{at}/in")).header("content-type", "application/x-ndjson").body(body);
        assert_eq!(block_on(async { request.send().await }).unwrap().status().as_u16(), 200);
        next
    };
    let at = one.listens("numbers");
    let sealed = "SELECT count(*) FROM weir.job_checkpoints WHERE job = 'numbers' AND state = 'completed'";
    until("checkpoints are sealed beside requests", PATIENCE, || {
        send(&at);
        (sql.one(sealed) == "2").then_some(())
    });
    let answered = (0..20).map(|_| send(&at)).last().unwrap();
    one.kill();
    let mut two = agent("two", &agents.path().join("two"), &hub, store.path());
    // A read that was sent to the dead agent would wait for its answer.
    let at = two.listens("numbers");
    let all = "SELECT count(*), count(DISTINCT n), min(n), max(n) FROM numbers";
    until("every answered row is in the result", PATIENCE * 2, || {
        let rows = sql.try_rows(all).ok()?;
        assert_eq!(rows[0][0], rows[0][1], "a row is there twice");
        (rows[0][1] == answered.to_string()).then_some(())
    });
    let answered = send(&at);
    until("it goes on", PATIENCE, || {
        let rows = sql.rows(all);
        (rows == [[answered.to_string(), answered.to_string(), "0".to_owned(), (answered - 1).to_string()]]).then_some(())
    });
}
