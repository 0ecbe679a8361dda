//! The source: what is answered when, what is refused, and that nothing answered is lost.

use super::super::serve::Limits;
use super::super::source::{HttpSource, SPLIT};
use super::{Answer, PATIENCE, answer, exchange, post};
use crate::connector::probe::{Probe, SMALL, probe, schema, work};
use crate::format::json::JsonEncoder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_kernel::io::{BadRecord, Budget, Polled, Source};
use weir_planner::connector::{Acknowledge, Csv, Format, HttpSource as Options, Nothing, Position, SourceOptions, SplitPosition};
use weir_planner::error::Class;
use weir_planner::plan::{SourceWork, TimeWork};
use weir_planner::spec::{ErrorPolicy, LatePolicy};
use weir_planner::time::TimeUnit;

const WIDE: Budget = Budget { rows: 8192, bytes: 1 << 20 };

fn options() -> Options {
    Options {
        address: "127.0.0.1:0".to_owned(),
        path: "/in".to_owned(),
        acknowledge: Acknowledge::Decided,
        token: None,
        max_body_bytes: 1 << 20,
    }
}

fn numbers(options: &Options, on_error: ErrorPolicy) -> SourceWork {
    work(SourceOptions::Http(options.clone()), None, &[("n", "BIGINT")], on_error)
}

fn open(work: &SourceWork, positions: &[SplitPosition], probe: &Probe, limits: Limits) -> HttpSource {
    let SourceOptions::Http(options) = &work.options else { panic!() };
    HttpSource::open_within(options, work, positions, &probe.opening, limits).unwrap()
}

/// A request of a client of its own.
fn send(address: SocketAddr, request: Vec<u8>) -> JoinHandle<Option<Answer>> {
    std::thread::spawn(move || exchange(address, &request))
}

/// Polls until `records` have come, rows and bad ones.
fn take(source: &mut HttpSource, work: &SourceWork, probe: &Probe, budget: Budget, records: usize) -> (Vec<String>, Vec<BadRecord>) {
    let encoder = JsonEncoder::new(&schema(work)).unwrap();
    let (mut lines, mut bad) = (Vec::new(), Vec::new());
    while lines.len() + bad.len() < records {
        let seen = probe.alarm.count();
        match source.poll(budget).unwrap() {
            Polled::Batch(batch) => {
                assert!(batch.rows.num_rows() + batch.bad.len() <= budget.rows);
                let mut text = Vec::new();
                encoder.write_lines(&batch.rows, &mut text).unwrap();
                lines.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned));
                bad.extend(batch.bad);
            }
            Polled::Pending { until_ns: None } => probe.alarm.wait(seen),
            other => panic!("{other:?}"),
        }
    }
    (lines, bad)
}

/// Polls until a client has its answer, deciding all that comes.
fn until_answered(source: &mut HttpSource, client: JoinHandle<Option<Answer>>) -> Option<Answer> {
    while !client.is_finished() {
        if let Polled::Batch(_) = source.poll(WIDE).unwrap() {
            let cut = source.cut();
            source.passed(&cut);
        }
        std::thread::yield_now();
    }
    client.join().unwrap()
}

fn ask(source: &mut HttpSource, request: Vec<u8>) -> Answer {
    let client = send(source.address(), request);
    until_answered(source, client).expect("no answer")
}

/// EPO-8: 200 comes when the epoch with the records is decided, not before; the position counts records.
#[test]
fn an_answer_waits_for_the_decision() {
    let dir = tempfile::tempdir().unwrap();
    let (work, probe) = (numbers(&options(), ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let mut source = open(&work, &[], &probe, Limits::default());
    assert!(matches!(source.poll(WIDE), Ok(Polled::Pending { until_ns: None })));
    assert!(source.at_end(0) && source.lag() == [Some(0)]);
    assert_eq!(source.greeting().unwrap(), format!("listens on http://{}/in", source.address()));
    let client = send(source.address(), post("/in", "", "{\"n\":1}\n{\"n\":2}\n"));
    let (lines, _) = take(&mut source, &work, &probe, WIDE, 2);
    assert_eq!(lines, ["{\"n\":1}", "{\"n\":2}"]);
    let cut = source.cut();
    assert_eq!(cut, [SplitPosition { split: SPLIT.to_owned(), position: Position::Row(2), time_max_ms: None, ended: false }]);
    source.passed(&[SplitPosition { position: Position::Row(1), ..cut[0].clone() }]);
    assert!(!client.is_finished());
    source.passed(&cut);
    let told = client.join().unwrap().unwrap();
    assert_eq!((told.status, told.body.trim()), (200, "{\"records\":2,\"skipped\":0}"));
}

/// A request that is cut into several polls is answered once the last of its rows is decided.
#[test]
fn a_request_in_pieces_is_answered_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (work, probe) = (numbers(&options(), ErrorPolicy::Skip), probe(0, 1, dir.path()));
    let mut source = open(&work, &[], &probe, Limits::default());
    let client = send(source.address(), post("/in", "", "{\"n\":1}\nx\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\ny\n"));
    let (first, _) = take(&mut source, &work, &probe, SMALL, 3);
    assert_eq!(first, ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
    assert!(!source.at_end(0));
    let cut = source.cut();
    source.passed(&cut);
    assert!(!client.is_finished());
    let (rest, bad) = take(&mut source, &work, &probe, SMALL, 3);
    assert_eq!(rest, ["{\"n\":4}"]);
    assert_eq!(bad.iter().map(|bad| bad.position.as_str()).collect::<Vec<_>>(), ["line 2", "line 6"]);
    let cut = source.cut();
    source.passed(&cut);
    assert_eq!(client.join().unwrap().unwrap().body.trim(), "{\"records\":6,\"skipped\":2}");
}

#[test]
fn received_answers_without_a_decision() {
    let dir = tempfile::tempdir().unwrap();
    let work = numbers(&Options { acknowledge: Acknowledge::Received, ..options() }, ErrorPolicy::Fail);
    let probe = probe(0, 1, dir.path());
    let mut source = open(&work, &[], &probe, Limits::default());
    let client = send(source.address(), post("/in", "", "{\"n\":1}"));
    take(&mut source, &work, &probe, WIDE, 1);
    assert_eq!(client.join().unwrap().unwrap().status, 200);
}

/// C42, L3: under `fail` a poison record refuses its own request, with line and reason; its
/// neighbours' requests go in, and the job goes on. Nothing of the refused request is given.
#[test]
fn a_poison_record_refuses_its_request_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (work, probe) = (numbers(&options(), ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let mut source = open(&work, &[], &probe, Limits::default());
    let good: Vec<_> = (0..4).map(|n| send(source.address(), post("/in", "", &format!("{{\"n\":{n}}}\n")))).collect();
    let poison = send(source.address(), post("/in", "", "{\"n\":7}\n\n{\"n\":\"hush\"}\n{\"n\":8}\n"));
    let (mut lines, bad) = take(&mut source, &work, &probe, WIDE, 4);
    lines.sort();
    assert_eq!(lines, ["{\"n\":0}", "{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
    assert!(bad.is_empty());
    let cut = source.cut();
    source.passed(&cut);
    for client in good {
        assert_eq!(client.join().unwrap().unwrap().status, 200);
    }
    let told = until_answered(&mut source, poison).unwrap();
    assert_eq!(told.status, 400);
    let body: serde_json::Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(body["line"], 3);
    assert_eq!(body["detail"], "line 3: field 'n': the value is not of type BIGINT; no record of this request was taken");
    assert!(told.head.contains("application/problem+json") && !told.body.contains("hush"));
    assert_eq!(source.cut()[0].position, Position::Row(4));
}

/// An event time that milliseconds cannot hold would end the job in the kernel: it is refused before.
#[test]
fn no_client_ends_a_job_by_a_time_out_of_range() {
    let dir = tempfile::tempdir().unwrap();
    let mut work = numbers(&options(), ErrorPolicy::Fail);
    work.time = Some(TimeWork {
        column: "n".to_owned(),
        unit: TimeUnit::Second,
        bound_ms: 0,
        idle_timeout_ms: 0,
        max_future_ms: None,
        alignment_ms: None,
        idle_advance_ms: None,
        allowed_lateness_ms: 0,
        late: LatePolicy::default(),
    });
    let probe = probe(0, 1, dir.path());
    let mut source = open(&work, &[], &probe, Limits::default());
    let told = ask(&mut source, post("/in", "", "{\"n\":5}\n{\"n\":9223372036854775807}\n"));
    assert_eq!(told.status, 400);
    assert!(told.body.contains("line 2: the event time is out of range"), "{}", told.body);
    assert_eq!(ask(&mut source, post("/in", "", "{\"n\":5}\n")).status, 200);
}

#[test]
fn bodies_of_every_format_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let probe = probe(0, 1, dir.path());
    let cases: [(Option<Format>, &str, &str, &str, &[&str]); 5] = [
        (None, "BIGINT", "content-type: application/json\r\n", "{\n \"v\": 1\n}\n", &["{\"v\":1}"]),
        (None, "BIGINT", "content-type: application/json\r\n", "{\"v\":1}\n{\"v\":2}", &["{\"v\":1}", "{\"v\":2}"]),
        (
            Some(Format::Csv(Csv { header: false, delimiter: ';' })),
            "TEXT",
            "content-type: text/csv\r\n",
            "\"a\nb\"\r\nc\r\n",
            &["{\"v\":\"a\\nb\"}", "{\"v\":\"c\"}"],
        ),
        (Some(Format::Csv(Csv { header: true, delimiter: ',' })), "TEXT", "", "x,v\n1,a\n2,b\n", &["{\"v\":\"a\"}", "{\"v\":\"b\"}"]),
        (Some(Format::Raw(Nothing {})), "BYTEA", "content-type: text/html\r\n", "a\nb", &["{\"v\":\"\\\\x610a62\"}"]),
    ];
    for (format, ty, headers, body, expected) in cases {
        let work = work(SourceOptions::Http(options()), format.clone(), &[("v", ty)], ErrorPolicy::Fail);
        let mut source = open(&work, &[], &probe, Limits::default());
        let client = send(source.address(), post("/in", headers, body));
        let (lines, _) = take(&mut source, &work, &probe, WIDE, expected.len());
        assert_eq!(lines, expected, "{format:?}");
        let cut = source.cut();
        source.passed(&cut);
        assert_eq!(client.join().unwrap().unwrap().status, 200);
        if let Some(Format::Csv(Csv { header: true, .. })) = format {
            let told = ask(&mut source, post("/in", "", "x,y\n1,2\n"));
            assert_eq!(told.status, 400);
            assert!(told.body.contains("csv header has no column 'v'"), "{}", told.body);
        }
    }
}

/// M7: what is not a request for records gets its own answer, and costs the source nothing.
#[test]
fn requests_that_do_not_fit_are_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { token: Some("s3cret-token".to_owned()), max_body_bytes: 20, ..options() };
    let (work, probe) = (numbers(&options, ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let mut source = open(&work, &[], &probe, Limits::default());
    let bearer = "authorization: Bearer s3cret-token\r\n";
    let with = |more: &str| format!("{bearer}{more}");
    let cases = [
        (post("/other", bearer, "{}"), 404, "another path"),
        (b"GET /in HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(), 405, "by POST"),
        (post("/in", "", "{}"), 401, "Bearer <token>"),
        (post("/in", "authorization: Bearer s3cret-tokem\r\n", "{}"), 401, "Bearer <token>"),
        (post("/in", &with("content-type: text/xml\r\n"), "{}"), 415, "application/x-ndjson"),
        (post("/in", &with("content-encoding: gzip\r\n"), "{}"), 415, "compressed"),
        (post("/in", bearer, "{\"n\":1234567890123456}"), 413, "longer than 20 bytes"),
        (
            format!(
                "POST /in HTTP/1.1\r\nhost: x\r\n{bearer}transfer-encoding: chunked\r\n\r\n16\r\n{{\"n\":1234567890123456}}\r\n0\r\n\r\n"
            )
            .into_bytes(),
            413,
            "longer than 20 bytes",
        ),
        (post("/in", bearer, ""), 400, "no record"),
        (post("/in", bearer, " \r\n\n"), 400, "no record"),
        (b"nonsense\r\n\r\n".to_vec(), 400, ""),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(40_000)).into_bytes(), 414, ""),
        (post("/in", bearer, "{\"n\":1}"), 200, "records"),
        (
            format!("POST /in?a=b HTTP/1.1\r\nhost: x\r\n{bearer}transfer-encoding: chunked\r\n\r\n7\r\n{{\"n\":1}}\r\n0\r\n\r\n")
                .into_bytes(),
            200,
            "records",
        ),
    ];
    for (request, status, text) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(120)]).into_owned();
        let told = ask(&mut source, request);
        if status == 414 {
            assert!(matches!(told.status, 414 | 431), "{told:?}");
            continue;
        }
        assert_eq!(told.status, status, "{shown}: {told:?}");
        assert!(told.body.contains(text), "{shown}: {told:?}");
        assert!(!told.body.contains("s3cret"), "{told:?}");
        match status {
            401 => assert!(told.head.contains("www-authenticate: bearer"), "{told:?}"),
            405 => assert!(told.head.contains("allow: post"), "{told:?}"),
            _ => {}
        }
    }
    assert_eq!(source.cut()[0].position, Position::Row(2));
}

/// M7: slow senders of a head or a body are cut, and those that break off harm nobody.
#[test]
fn slow_and_broken_senders_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (work, probe) = (numbers(&options(), ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let limits = Limits { head: Duration::from_millis(150), body: Duration::from_millis(150), ..Limits::default() };
    let mut source = open(&work, &[], &probe, limits);
    let connect = || {
        let stream = TcpStream::connect(source.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut head = connect();
    head.write_all(b"POST /in HTTP/1.1\r\nhos").unwrap();
    let mut body = connect();
    body.write_all(b"POST /in HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"n\"").unwrap();
    assert_eq!(answer(&mut body).unwrap().status, 408);
    // Whatever is said before, the connection ends.
    let _ = head.read_to_end(&mut Vec::new());
    let mut broken = connect();
    broken.write_all(b"POST /in HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n{\"n\"").unwrap();
    drop(broken);
    assert_eq!(ask(&mut source, post("/in", "", "{\"n\":1}")).status, 200);
    assert_eq!(source.cut()[0].position, Position::Row(1));
}

/// Back-pressure: without room a request waits up to its bound, then is told to come again; so are
/// connections above the bound.
#[test]
fn without_room_clients_are_told_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_body_bytes: 32 << 20, ..options() };
    let (work, probe) = (numbers(&options, ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let limits = Limits { room: Duration::from_millis(50), connections: 2, ..Limits::default() };
    let mut source = open(&work, &[], &probe, limits);
    let seen = probe.alarm.count();
    // Without a length all of the room is taken until the chain has looked at the body.
    let first =
        send(source.address(), b"POST /in HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"n\":1}\r\n0\r\n\r\n".to_vec());
    probe.alarm.wait(seen);
    let mut second = TcpStream::connect(source.address()).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    second.write_all(&post("/in", "", "{\"n\":2}")).unwrap();
    let told = answer(&mut second).unwrap();
    assert_eq!(told.status, 503);
    assert!(told.head.contains("retry-after: 1") && told.body.contains("more slowly"), "{told:?}");
    // The second connection is kept alive: a third is one too many.
    assert_eq!(exchange(source.address(), b"").map(|told| told.status), Some(503));
    assert_eq!(until_answered(&mut source, first).unwrap().status, 200);
    second.write_all(&post("/in", "", "{\"n\":2}")).unwrap();
    let client = std::thread::spawn(move || answer(&mut second));
    assert_eq!(until_answered(&mut source, client).unwrap().status, 200);
}

/// A stop tells the undecided to come again and frees the address; a busy one is named.
#[test]
fn a_closed_source_answers_and_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let (work, probe) = (numbers(&options(), ErrorPolicy::Fail), probe(0, 1, dir.path()));
    let mut source = open(&work, &[], &probe, Limits::default());
    let address = source.address();
    let fixed = Options { address: address.to_string(), ..options() };
    let Err(busy) = HttpSource::open(&fixed, &work, &[], &probe.opening) else { panic!("opened twice") };
    assert_eq!(busy.class, Class::Retry);
    let expected = format!("source 'it' of job 'probe': address {address} is in use; stop what listens there, or give another address");
    assert_eq!(busy.message, expected);
    let given = send(address, post("/in", "", "{\"n\":1}"));
    take(&mut source, &work, &probe, WIDE, 1);
    let seen = probe.alarm.count();
    let waiting = send(address, post("/in", "", "{\"n\":2}"));
    probe.alarm.wait(seen);
    source.close();
    source.close();
    for client in [given, waiting] {
        let told = client.join().unwrap().unwrap();
        assert_eq!(told.status, 503);
        assert!(told.head.contains("retry-after") && told.body.contains("sent again"), "{told:?}");
    }
    let again = HttpSource::open(&fixed, &work, &[], &probe.opening).unwrap();
    assert_eq!(again.address(), address);
    let foreign = Options { address: "192.0.2.1:80".to_owned(), ..options() };
    let Err(foreign) = HttpSource::open(&foreign, &work, &[], &probe.opening) else { panic!() };
    assert_eq!(foreign.class, Class::User);
}

/// The values of rows as numbers.
fn values(lines: &[String]) -> impl Iterator<Item = u64> {
    lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["n"].as_u64().unwrap())
}

/// The contract (spec 6): stopped between any two polls and opened again at its last decided cut,
/// clients that send again what was not answered lose nothing, and what was answered is decided once.
#[test]
fn a_stop_between_any_two_polls_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let work = numbers(&options(), ErrorPolicy::Fail);
    for polls in 0..7 {
        let first = probe(0, 1, dir.path());
        let mut source = open(&work, &[], &first, Limits::default());
        let address = Arc::new(parking_lot::Mutex::new(source.address()));
        let at = address.clone();
        let client = std::thread::spawn(move || {
            // Five requests of two rows; each is sent until it is answered with 200.
            for request in 0..5 {
                let body = format!("{{\"n\":{}}}\n{{\"n\":{}}}\n", 2 * request, 2 * request + 1);
                while exchange(*at.lock(), &post("/in", "", &body)).is_none_or(|told| told.status != 200) {
                    std::thread::yield_now();
                }
            }
        });
        let encoder = JsonEncoder::new(&schema(&work)).unwrap();
        let mut decided: Vec<String> = Vec::new();
        let one = Budget { rows: 1, bytes: 1 << 20 };
        // Epochs of three polls; what comes after the last one is not decided.
        let mut cut = Vec::new();
        let mut epoch: Vec<String> = Vec::new();
        let poll = |source: &mut HttpSource, probe: &Probe, into: &mut Vec<String>| loop {
            let seen = probe.alarm.count();
            match source.poll(one).unwrap() {
                Polled::Batch(batch) => {
                    let mut text = Vec::new();
                    encoder.write_lines(&batch.rows, &mut text).unwrap();
                    into.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned));
                    return;
                }
                _ => probe.alarm.wait(seen),
            }
        };
        for n in 1..=polls {
            poll(&mut source, &first, &mut epoch);
            // A request has two rows: the epoch must not end between requests only.
            if n % 3 == 0 || n % 2 == 0 {
                cut = source.cut();
                decided.append(&mut epoch);
                source.passed(&cut);
            }
        }
        epoch.clear();
        source.close();
        let second = probe(0, 1, dir.path());
        let mut source = open(&work, &cut, &second, Limits::default());
        *address.lock() = source.address();
        while !client.is_finished() {
            if let Polled::Batch(batch) = source.poll(one).unwrap() {
                let mut text = Vec::new();
                encoder.write_lines(&batch.rows, &mut text).unwrap();
                decided.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned));
                let cut = source.cut();
                source.passed(&cut);
            }
            std::thread::yield_now();
        }
        client.join().unwrap();
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        values(&decided).for_each(|n| *counts.entry(n).or_default() += 1);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>(), "after {polls} polls");
        // Only rows of the request that was under way at the stop may come twice.
        assert!(counts.values().filter(|count| **count > 1).count() <= 2, "{counts:?}");
        let Position::Row(end) = source.cut()[0].position else { panic!() };
        assert_eq!(end, decided.len() as u64);
    }
}

/// A source driven by a thread that decides all the time; gives the rows when told to stop.
fn driven(work: &SourceWork, dir: &Path) -> (SocketAddr, Arc<AtomicBool>, JoinHandle<Vec<u64>>) {
    let probe = probe(0, 1, dir);
    let mut source =
        open(work, &[], &probe, Limits { head: Duration::from_secs(2), body: Duration::from_millis(300), ..Limits::default() });
    let (address, stop) = (source.address(), Arc::new(AtomicBool::new(false)));
    let (told, work) = (stop.clone(), work.clone());
    let thread = std::thread::spawn(move || {
        let encoder = JsonEncoder::new(&schema(&work)).unwrap();
        let mut rows = Vec::new();
        while !told.load(Ordering::Acquire) {
            if let Polled::Batch(batch) = source.poll(WIDE).unwrap() {
                let mut text = Vec::new();
                encoder.write_lines(&batch.rows, &mut text).unwrap();
                let lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
                rows.extend(lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["n"].as_u64()));
                let cut = source.cut();
                source.passed(&cut);
            }
            std::thread::yield_now();
        }
        source.close();
        rows
    });
    (address, stop, thread)
}

/// E5: eight clients at once, 50,000 rows in requests of all sizes: each row is there exactly once.
#[test]
fn fifty_thousand_rows_of_eight_clients_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let (address, stop, thread) = driven(&numbers(&options(), ErrorPolicy::Fail), dir.path());
    let next = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..8)
        .map(|seed| {
            let next = next.clone();
            std::thread::spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                loop {
                    let size = random.random_range(1..600);
                    let from = next.fetch_add(size, Ordering::Relaxed).min(50_000);
                    let body: String = (from..(from + size).min(50_000)).map(|n| format!("{{\"n\":{n}}}\n")).collect();
                    if body.is_empty() {
                        return;
                    }
                    stream.write_all(&post("/in", "", &body)).unwrap();
                    assert_eq!(answer(&mut stream).unwrap().status, 200);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    stop.store(true, Ordering::Release);
    let rows = thread.join().unwrap();
    assert_eq!(rows.len(), 50_000);
    assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), (0..50_000).collect::<BTreeSet<u64>>());
}

/// L3, M7: a few thousand malformed requests, and the source still takes the next one.
#[test]
fn malformed_requests_break_nothing() {
    const SEED: u64 = 20_26;
    let dir = tempfile::tempdir().unwrap();
    let (address, stop, thread) = driven(&numbers(&options(), ErrorPolicy::Fail), dir.path());
    let clients: Vec<_> = (0..4)
        .map(|client| {
            std::thread::spawn(move || {
                let mut random = StdRng::seed_from_u64(SEED + client);
                let whole = [
                    post("/in", "content-type: application/json\r\n", "{\"n\":1}\n{\"n\":2}\n"),
                    b"POST /in HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"n\":1}\r\n0\r\n\r\n".to_vec(),
                    post("/in", "expect: 100-continue\r\n", "{\"n\":3}"),
                ];
                for _ in 0..800 {
                    let mut bytes = whole[random.random_range(0..whole.len())].clone();
                    for _ in 0..random.random_range(1..6) {
                        let at = random.random_range(0..bytes.len());
                        match random.random_range(0..5) {
                            0 => bytes[at] = random.random(),
                            1 => drop(bytes.remove(at)),
                            2 => bytes.insert(at, random.random()),
                            3 => bytes.truncate(at.max(1)),
                            _ => bytes.extend_from_within(at..),
                        }
                        if bytes.is_empty() {
                            bytes.push(b'G');
                        }
                    }
                    let Ok(mut stream) = TcpStream::connect(address) else { panic!("seed {SEED}: nothing listens any more") };
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let _ = stream.write_all(&bytes);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    // Whatever comes, it ends.
                    let mut seen = Vec::new();
                    if let Err(error) = stream.read_to_end(&mut seen) {
                        assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "seed {SEED}: {error}");
                    }
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let told = exchange(address, &post("/in", "", "{\"n\":77777}")).expect("no answer");
    assert_eq!(told.status, 200, "seed {SEED}: {told:?}");
    stop.store(true, Ordering::Release);
    assert!(thread.join().unwrap().contains(&77777));
}
