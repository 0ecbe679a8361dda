//! The sink: order, flush, tries, and what is told of an endpoint that does not take rows.

use super::super::sink::HttpSink;
use super::{PATIENCE, message};
use crate::connector::probe::{EPOCH, Probe, flushed, probe};
use arrow::array::{Int64Array, RecordBatch, StringArray};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;
use weir_kernel::io::{Flush, Pushed, Sink};
use weir_planner::connector::HttpSink as Options;
use weir_planner::error::Class;
use weir_planner::schema::{Column, Schema};

/// What an endpoint does with a request.
#[derive(Clone, Debug)]
enum Reply {
    /// Answers with this status, further headers and body.
    Say(u16, &'static str, String),
    /// Ends the connection without an answer.
    Drop,
    /// Waits until the endpoint is let go, then answers 200.
    Hold,
}

fn say(status: u16) -> Reply {
    Reply::Say(status, "", String::new())
}

#[derive(Default)]
struct Seen {
    replies: VecDeque<Reply>,
    heads: Vec<String>,
    bodies: Vec<String>,
    free: bool,
}

/// An HTTP server that answers by a script, then with 200.
struct Endpoint {
    address: SocketAddr,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl Endpoint {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new((Mutex::new(Seen { replies: replies.into_iter().collect(), ..Seen::default() }), Condvar::new()));
        let shared = seen.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || Endpoint::converse(stream, &shared));
            }
        });
        Endpoint { address, seen }
    }

    fn converse(mut stream: TcpStream, (seen, changed): &(Mutex<Seen>, Condvar)) {
        while let Some((head, body)) = message(&mut stream) {
            let mut now = seen.lock();
            now.heads.push(head);
            now.bodies.push(body);
            let reply = now.replies.pop_front().unwrap_or(say(200));
            changed.notify_all();
            if let Reply::Hold = reply {
                changed.wait_while_for(&mut now, |now| !now.free, PATIENCE);
            }
            drop(now);
            let (status, headers, body) = match reply {
                Reply::Say(status, headers, body) => (status, headers, body),
                Reply::Hold => (200, "", String::new()),
                Reply::Drop => return,
            };
            let response = format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn until(&self, what: &str, mut met: impl FnMut(&Seen) -> bool) {
        let (seen, changed) = &*self.seen;
        let end = Instant::now() + PATIENCE;
        let mut now = seen.lock();
        while !met(&now) {
            assert!(!changed.wait_until(&mut now, end).timed_out(), "{what}");
        }
    }

    fn let_go(&self) {
        self.seen.0.lock().free = true;
        self.seen.1.notify_all();
    }

    fn bodies(&self) -> Vec<String> {
        self.seen.0.lock().bodies.clone()
    }
}

fn input() -> Schema {
    let column = |name: &str, ty: &str| Column { name: name.to_owned(), ty: ty.parse().unwrap(), nullable: true };
    Schema(vec![column("n", "BIGINT"), column("t", "TEXT")])
}

fn rows(range: std::ops::Range<i64>, text: &str) -> RecordBatch {
    let (numbers, texts): (Vec<i64>, Vec<&str>) = range.map(|n| (n, text)).unzip();
    let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))];
    RecordBatch::try_new(Arc::new(input().to_arrow()), columns).unwrap()
}

fn lines(range: std::ops::Range<i64>, text: &str) -> String {
    range.map(|n| format!("{{\"n\":{n},\"t\":\"{text}\"}}\n")).collect()
}

fn options(address: SocketAddr, more: serde_json::Value) -> Options {
    let mut json = serde_json::json!({"url": format!("http://user:hush-url@{address}/rows?token=hush-query"), "tries": 3});
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn open(options: &Options, probe: &Probe) -> HttpSink {
    HttpSink::open(options, &input(), &probe.opening).unwrap()
}

fn failed(sink: &mut HttpSink, probe: &Probe) -> weir_kernel::error::Error {
    flushed(sink, probe).unwrap_err()
}

/// CON-7: a flush is over when every row before it was answered; rows arrive in order and in bodies
/// of at most `batch_rows`, with the headers of the options.
#[test]
fn a_flush_waits_for_the_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (endpoint, probe) = (Endpoint::new([Reply::Hold]), probe(0, 1, dir.path()));
    let options = options(endpoint.address, serde_json::json!({"method": "put", "batch_rows": 4, "headers": {"x-key": "hush-header"}}));
    let mut sink = open(&options, &probe);
    assert_eq!(sink.push(&rows(0..6, "a")).unwrap(), Pushed::Taken);
    endpoint.until("the first request", |seen| !seen.bodies.is_empty());
    sink.begin_flush(EPOCH).unwrap();
    assert_eq!(sink.poll_flush().unwrap(), Flush::Pending);
    // Pushed after the barrier: of the next epoch.
    assert_eq!(sink.push(&rows(6..9, "b")).unwrap(), Pushed::Taken);
    let seen = probe.alarm.count();
    endpoint.let_go();
    probe.alarm.wait(seen);
    while let Flush::Pending = sink.poll_flush().unwrap() {
        std::thread::yield_now();
    }
    let bodies = endpoint.bodies();
    assert!(bodies.iter().all(|body| body.lines().count() <= 4), "{bodies:?}");
    assert!(bodies.concat().starts_with(&lines(0..6, "a")), "{bodies:?}");
    flushed(&mut sink, &probe).unwrap();
    assert_eq!(endpoint.bodies().concat(), lines(0..6, "a") + &lines(6..9, "b"));
    let head = endpoint.seen.0.lock().heads[0].clone();
    for part in [
        "put /rows?token=hush-query ",
        "content-type: application/x-ndjson",
        "x-key: hush-header",
        "authorization: basic ",
        "user-agent: weir/",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    // Without rows there is nothing to wait for.
    flushed(&mut sink, &probe).unwrap();
    sink.close();
    sink.close();
}

/// CON-2: what may pass is tried again, after the pause that is asked for, and no row is lost or out of order.
#[test]
fn failures_that_may_pass_are_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let replies = [say(503), Reply::Say(429, "retry-after: 0\r\n", "later".to_owned()), say(200), Reply::Drop, say(408), say(204)];
    let (endpoint, probe) = (Endpoint::new(replies), probe(0, 1, dir.path()));
    let mut sink = open(&options(endpoint.address, serde_json::json!({})), &probe);
    sink.push(&rows(0..3, "a")).unwrap();
    flushed(&mut sink, &probe).unwrap();
    sink.push(&rows(3..5, "b")).unwrap();
    flushed(&mut sink, &probe).unwrap();
    let (first, second) = (lines(0..3, "a"), lines(3..5, "b"));
    let (a, b) = (&first, &second);
    assert_eq!(endpoint.bodies().iter().collect::<Vec<_>>(), [a, a, a, b, b, b]);
}

/// CON-2, CON-3: a failure names status, endpoint and rows, and no credential; its class says
/// whether the job is tried again.
#[test]
fn a_failure_names_status_endpoint_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let place = |address: SocketAddr| format!("http://{address}/rows");
    for (replies, class, reason) in [
        (
            vec![say(200), Reply::Say(422, "", "no\r\nsuch column".to_owned())],
            Class::User,
            "were refused by {}: 422 Unprocessable Entity: no  such column",
        ),
        (
            vec![say(200), Reply::Say(302, "location: http://x/?hush-location\r\n", String::new())],
            Class::User,
            "were refused by {}: 302 Found: redirects are not followed; give the url that it leads to",
        ),
        (vec![say(200), Reply::Say(401, "", "x".repeat(300_000))], Class::User, "were refused by {}: 401 Unauthorized: xxx"),
        (vec![say(200), say(500), say(502), say(503)], Class::Retry, "were not taken by {} in 3 tries: 503 Service Unavailable"),
        (vec![say(200), Reply::Drop, Reply::Drop, Reply::Drop], Class::Retry, "were not taken by {} in 3 tries: error sending request"),
    ] {
        let (endpoint, probe) = (Endpoint::new(replies), probe(0, 1, dir.path()));
        let mut sink = open(&options(endpoint.address, serde_json::json!({"headers": {"x-key": "hush-header"}})), &probe);
        sink.push(&rows(0..2, "a")).unwrap();
        flushed(&mut sink, &probe).unwrap();
        sink.push(&rows(2..5, "a")).unwrap();
        let error = failed(&mut sink, &probe);
        assert_eq!(error.class, class, "{error}");
        let expected =
            format!("sink 'it' of job 'probe': rows 3 to 5 since it was opened {}", reason.replace("{}", &place(endpoint.address)));
        assert!(error.message.starts_with(&expected), "{}\n{expected}", error.message);
        assert!(!format!("{error:?}").contains("hush") && error.message.len() < 500, "{error:?}");
        // Poisoned: nothing goes on.
        assert_eq!(sink.push(&rows(5..6, "a")).unwrap_err().message, error.message);
        assert_eq!(sink.begin_flush(EPOCH).unwrap_err().message, error.message);
    }
}

/// CON-1: an endpoint that is away shows when the sink opens, and is not a mistake.
#[test]
fn a_dead_endpoint_is_named_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Err(error) = HttpSink::open(&options(address, serde_json::json!({})), &input(), &probe(0, 1, dir.path()).opening) else { panic!() };
    assert_eq!(error.class, Class::Retry);
    let expected = format!("sink 'it' of job 'probe': endpoint http://{address}/rows does not answer: ");
    assert!(error.message.starts_with(&expected) && !error.message.contains("hush"), "{}", error.message);
    let header = serde_json::json!({"headers": {"x-key": "hush\nhush"}});
    let Err(error) = HttpSink::open(&options(address, header), &input(), &probe(0, 1, dir.path()).opening) else { panic!() };
    assert_eq!(
        (error.class, error.message.contains("x-key"), error.message.contains("hush")),
        (Class::User, true, false),
        "{}",
        error.message
    );
}

/// Back-pressure: an endpoint that does not answer fills the bound, and no more; then rows go on
/// where they stopped. A sink closes although its endpoint hangs.
#[test]
fn a_slow_endpoint_holds_the_chain_back() {
    let dir = tempfile::tempdir().unwrap();
    let (endpoint, probe) = (Endpoint::new([Reply::Hold]), probe(0, 1, dir.path()));
    let text = "x".repeat(100_000);
    let mut sink = open(&options(endpoint.address, serde_json::json!({})), &probe);
    let batch = rows(0..200, &text);
    assert_eq!(sink.push(&batch).unwrap(), Pushed::Full);
    let mut seen = probe.alarm.count();
    endpoint.let_go();
    loop {
        match sink.push(&batch).unwrap() {
            Pushed::Taken => break,
            Pushed::Full => {
                probe.alarm.wait(seen);
                seen = probe.alarm.count();
            }
        }
    }
    flushed(&mut sink, &probe).unwrap();
    assert_eq!(endpoint.bodies().concat(), lines(0..200, &text));
    assert!(endpoint.bodies().iter().all(|body| body.len() < (1 << 20) + 200_000));

    let hangs = Endpoint::new([Reply::Hold]);
    let mut sink = open(&options(hangs.address, serde_json::json!({})), &probe);
    sink.push(&rows(0..1, "a")).unwrap();
    hangs.until("the request", |seen| !seen.bodies.is_empty());
    sink.close();
    assert!(matches!(sink.ended.try_recv(), Err(flume::TryRecvError::Disconnected)), "the sender has ended");
    hangs.let_go();
}
