//! The http connectors through the whole binary: what was answered is in the result, whatever
//! happens between receiving and deciding, and rows go from job to job.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use reqwest::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use support::process::{Weir, temporary};
use support::sql::Sql;
use support::{PATIENCE, block_on, until};

const NDJSON: &str = "application/x-ndjson";

fn post(client: &Client, address: &str, body: String) -> Option<(u16, String)> {
    block_on(async {
        let sent = client.post(format!("http://{address}/in")).header("content-type", NDJSON).body(body).send().await.ok()?;
        let status = sent.status().as_u16();
        Some((status, sent.text().await.ok()?))
    })
}

fn client() -> Client {
    Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

fn counting(sql: &Sql, job: &str, with: &str) {
    sql.run(&format!(
        "CREATE SOURCE {job}_in (n BIGINT) WITH (connector = 'http', address = '127.0.0.1:0', path = '/in', format = 'json'{with})"
    ));
    sql.run(&format!(
        "CREATE JOB {job} WITH (checkpoint.epoch = '200ms', checkpoint.interval = '1s', parallelism = 2) AS SELECT n FROM {job}_in"
    ));
}

/// Each number with how often it is in the job's result.
fn counts(sql: &Sql, job: &str) -> BTreeMap<u64, u64> {
    let rows = sql.rows(&format!("SELECT n, count(*) FROM {job} GROUP BY n"));
    rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
}

/// EPO-8, C42: an answer of 200 means that the rows are in the result; a poison record is refused
/// with its line, and neither it nor a stop ends the job or loses a row. The address is told in an event.
#[test]
fn what_was_answered_is_in_the_result() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let (sql, client) = (weir.sql(), client());
    counting(&sql, "numbers", ", token = 'open-sesame'");
    let at = weir.listens("numbers");
    let event = sql.rows("SELECT message, operator FROM weir.job_events WHERE job = 'numbers' AND kind = 'opened'");
    assert_eq!(event, [[format!("listens on http://{at}/in"), "source-1".to_owned()]]);
    assert_eq!(post(&client, &at, "{\"n\": 1}".to_owned()).unwrap().0, 401);
    let send = |body: &str| {
        block_on(async {
            let request = client.post(format!("http://{at}/in")).bearer_auth("open-sesame").header("content-type", NDJSON);
            let answer = request.body(body.to_owned()).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        })
    };
    let (status, body) = send("{\"n\": 1}\n{\"n\": 2}\n");
    assert_eq!((status, body.trim()), (200, "{\"records\":2,\"skipped\":0}"));
    assert_eq!(counts(&sql, "numbers"), BTreeMap::from([(1, 1), (2, 1)]));
    let (status, body) = send("{\"n\": 3}\n{\"n\": true}\n");
    assert_eq!(status, 400);
    assert!(body.contains("line 2: field 'n': the value is not of type BIGINT"), "{body}");
    assert_eq!(send("{\"n\": 4}").0, 200);
    assert_eq!(counts(&sql, "numbers"), BTreeMap::from([(1, 1), (2, 1), (4, 1)]));
    assert_eq!(sql.rows("SELECT state FROM weir.jobs WHERE id = 'numbers'"), [["running"]]);
    // A request under way at a stop is decided by the last epoch and answered, or told to come again.
    let stopped = std::thread::spawn({
        let (client, at) = (client.clone(), at.clone());
        move || {
            block_on(async {
                let sent = client.post(format!("http://{at}/in")).bearer_auth("open-sesame").body("{\"n\": 5}").send().await;
                sent.map(|answer| answer.status().as_u16()).ok()
            })
        }
    });
    sql.run("ALTER JOB numbers STOP");
    let answered = stopped.join().unwrap();
    sql.run("WAIT FOR JOB numbers UNTIL STOPPED TIMEOUT '30s'");
    let inside = counts(&sql, "numbers").contains_key(&5);
    assert!(!inside && answered != Some(200) || inside && answered == Some(200), "{answered:?}, in the result: {inside}");
}

/// A3, EPO-8: killed between receiving and deciding again and again, everything that was answered is
/// in the result; only what was sent again may be there twice.
#[test]
fn kill_9_loses_no_answered_record() {
    const CLIENTS: u64 = 3;
    const ROWS: u64 = 20;
    let data = temporary();
    let mut weir = Weir::up(data.path());
    counting(&weir.sql(), "numbers", "");
    let at = Arc::new(Mutex::new(weir.listens("numbers")));
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (at, done, answered) = (at.clone(), done.clone(), answered.clone());
            std::thread::spawn(move || {
                let (client, mut mine, mut again) = (client(), Vec::new(), 0_u64);
                for batch in 0.. {
                    let from = (batch * CLIENTS + number) * ROWS;
                    let body: String = (from..from + ROWS).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                    loop {
                        let address = at.lock().unwrap().clone();
                        match post(&client, &address, body.clone()) {
                            Some((200, _)) => break,
                            _ if done.load(Ordering::Acquire) => return (mine, again),
                            _ => again += 1,
                        }
                        std::thread::yield_now();
                    }
                    mine.extend(from..from + ROWS);
                    answered.fetch_add(1, Ordering::AcqRel);
                    if done.load(Ordering::Acquire) {
                        return (mine, again);
                    }
                }
                unreachable!("the loop has no end")
            })
        })
        .collect();
    for round in 1..=4 {
        // Clients send the next request at once: when some are answered, others wait for their decision.
        until("requests are answered", PATIENCE, || (answered.load(Ordering::Acquire) >= round * 2 * CLIENTS).then_some(()));
        weir = weir.again();
        let now = weir.listens("numbers");
        *at.lock().unwrap() = now;
    }
    until("requests are answered", PATIENCE, || (answered.load(Ordering::Acquire) >= 10 * CLIENTS).then_some(()));
    done.store(true, Ordering::Release);
    let (mut all, mut again) = (Vec::new(), 0);
    for client in clients {
        let (mine, sent_again) = client.join().unwrap();
        all.extend(mine);
        again += sent_again;
    }
    let found = counts(&weir.sql(), "numbers");
    let lost: Vec<u64> = all.iter().copied().filter(|n| !found.contains_key(n)).collect();
    let doubled = found.values().filter(|count| **count > 1).count();
    println!("{} rows answered, {again} requests failed, {doubled} rows came twice", all.len());
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
    assert!(again > 0, "no kill met a request");
}

/// Clients that send requests of unique numbers, none of them twice, until they are told to stop.
struct Senders {
    at: Arc<Mutex<String>>,
    done: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    /// Numbers that were answered with 200, and those of requests whose end is not known.
    threads: Vec<std::thread::JoinHandle<(Vec<u64>, Vec<u64>)>>,
}

impl Senders {
    fn start(clients: u64, rows: u64, at: String) -> Senders {
        let (at, done, answered) = (Arc::new(Mutex::new(at)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..clients).map(|number| {
            let (at, done, answered) = (at.clone(), done.clone(), answered.clone());
            std::thread::spawn(move || {
                let (client, mut safe, mut unknown) = (client(), Vec::new(), Vec::new());
                for request in 0.. {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    let from = (request * clients + number) * rows;
                    let body: String = (from..from + rows).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                    let address = at.lock().unwrap().clone();
                    match post(&client, &address, body) {
                        Some((200, _)) => {
                            safe.extend(from..from + rows);
                            answered.fetch_add(1, Ordering::AcqRel);
                        }
                        _ => unknown.extend(from..from + rows),
                    }
                    std::thread::yield_now();
                }
                (safe, unknown)
            })
        });
        Senders { threads: threads.collect(), at, done, answered }
    }

    fn finish(self) -> (Vec<u64>, BTreeSet<u64>) {
        self.done.store(true, Ordering::Release);
        let (mut safe, mut unknown) = (Vec::new(), BTreeSet::new());
        for thread in self.threads {
            let (answered, rest) = thread.join().unwrap();
            safe.extend(answered);
            unknown.extend(rest);
        }
        (safe, unknown)
    }
}

/// D1, D2, WAL-2: with an input log a request is answered long before an epoch holds its rows; killed at once after
/// answers, again and again, every answered row is in the result exactly once, and what had no answer at most once.
fn kill_9_right_after_the_answer(backend: &str, horizon: &str) {
    const CLIENTS: u64 = 3;
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(&format!(
        "CREATE SOURCE numbers_in (n BIGINT) WITH (connector = 'http', address = '127.0.0.1:0', path = '/in', format = 'json', \
         durability.enabled = true, durability.backend = '{backend}', durability.compression = 'lz4')"
    ));
    // An epoch takes longer than a round: rows that come out of the log were in no cut.
    sql.run(&format!(
        "CREATE JOB numbers WITH (checkpoint.epoch = '2500ms', checkpoint.interval = '5s', parallelism = 2, horizon = '{horizon}') \
         AS SELECT n FROM numbers_in"
    ));
    let senders = Senders::start(CLIENTS, 20, weir.listens("numbers"));
    for round in 1..=5 {
        until("requests are answered", PATIENCE, || (senders.answered.load(Ordering::Acquire) >= round * 4 * CLIENTS).then_some(()));
        weir = weir.again();
        let now = weir.listens("numbers");
        *senders.at.lock().unwrap() = now;
    }
    until("requests are answered", PATIENCE, || (senders.answered.load(Ordering::Acquire) >= 24 * CLIENTS).then_some(()));
    // The last kill comes when all is answered and nothing is under way.
    let (safe, unknown) = senders.finish();
    weir = weir.again();
    weir.listens("numbers");
    let sql = weir.sql();
    let found = until("what was answered is in the result", PATIENCE, || {
        let found = counts(&sql, "numbers");
        safe.iter().all(|n| found.contains_key(n)).then_some(found)
    });
    let doubled: Vec<_> = found.iter().filter(|(_, count)| **count > 1).collect();
    println!("{} rows answered, {} of unknown end, {} of those are in", safe.len(), unknown.len(), found.len() - safe.len());
    assert!(doubled.is_empty(), "rows that are there more than once: {doubled:?}");
    let all: BTreeSet<u64> = safe.iter().chain(&unknown).copied().collect();
    assert!(found.keys().all(|n| all.contains(n)));
}

#[test]
fn kill_9_right_after_an_answer_loses_and_doubles_nothing() {
    kill_9_right_after_the_answer("local", "local");
}

#[test]
fn kill_9_with_a_log_in_the_state_store_loses_and_doubles_nothing() {
    kill_9_right_after_the_answer("object_store", "local");
}

/// EPO-8: rows are given again and trimmed by what is sealed, and answers do not wait for it.
#[test]
fn kill_9_of_a_sealed_job_loses_and_doubles_nothing() {
    kill_9_right_after_the_answer("object_store", "sealed");
}

/// WAL-1: what a log cannot be is refused at the statement, with its place and the way out.
#[test]
fn a_log_that_cannot_be_is_refused() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let refused = |connector: &str, log: &str, told: &str| {
        let source = format!("CREATE SOURCE s (n BIGINT) WITH (connector = {connector}, format = 'json', durability.enabled = true{log})");
        let said = match sql.try_rows(&source) {
            Err(error) => error,
            Ok(_) => {
                let error = sql.error("CREATE JOB j AS SELECT n FROM s");
                sql.run("DROP SOURCE s");
                error
            }
        };
        let said = format!("{said:?}");
        assert!(said.contains(told), "{told}: {said}");
    };
    let http = "'http', address = '127.0.0.1:0', path = '/in'";
    refused(http, ", durability.compression = 'gzip'", "use none, lz4 or zstd");
    refused(http, ", durability.sync = 'periodic'", "allow_loss");
    refused(http, ", durability.path = '/var/log'", "not below the data directory");
    refused(http, ", acknowledge = 'received'", "answers before the records are in it");
    refused("'generate', context = '{\"n\": 1}'", "", "read again from its position");
}

/// JOB-3: rows go from one job's http sink to another's http source, each exactly once while nothing fails.
#[test]
fn rows_go_from_job_to_job() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let sql = weir.sql();
    counting(&sql, "numbers", ", on_error = 'skip'");
    let at = weir.listens("numbers");
    sql.run("CREATE SOURCE g (n TEXT) WITH (connector = 'generate', context = '{\"n\": \"{{counter}}\"}', batch_size = 100, rows = 5000, format = 'json')");
    sql.run(&format!("CREATE SINK hop WITH (connector = 'http', url = 'http://{at}/in', batch_rows = 300)"));
    sql.run("CREATE JOB giver INTO hop AS SELECT CAST(n AS BIGINT) AS n FROM g");
    sql.run("WAIT FOR JOB giver UNTIL FINISHED TIMEOUT '60s'");
    let found = counts(&sql, "numbers");
    assert_eq!(found.values().sum::<u64>(), 5000);
    assert_eq!(found.len(), 5000);
    // A sink whose rows are refused for good ends its job, and says which.
    sql.run(&format!("CREATE SINK wrong WITH (connector = 'http', url = 'http://user:hush@{at}/elsewhere?key=hush')"));
    sql.run("CREATE JOB refused INTO wrong AS SELECT CAST(n AS BIGINT) AS n FROM g");
    let said = until("the job has failed", PATIENCE, || {
        let row = sql.rows("SELECT state, last_error FROM weir.jobs WHERE id = 'refused'").remove(0);
        (row[0] == "failed").then(|| row[1].clone())
    });
    assert!(said.contains("rows 1 to ") && said.contains(&format!("were refused by http://{at}/elsewhere: 404")), "{said}");
    assert!(!said.contains("hush"), "{said}");
}
