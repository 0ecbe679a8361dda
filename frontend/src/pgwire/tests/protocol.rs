//! Bytes by hand: what no driver sends, and the order of what comes back (L4).

use super::double::{Canned, Server};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A bound on what must not hang.
const SOON: Duration = Duration::from_secs(20);

/// A client that speaks in frames.
pub(super) struct Raw(pub TcpStream);

pub(super) fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as i32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

pub(super) fn startup() -> Vec<u8> {
    let body = b"\x00\x03\x00\x00user\0raw\0database\0weir\0\0";
    let mut bytes = (body.len() as i32 + 4).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

impl Raw {
    pub async fn connect(server: &Server) -> Raw {
        Raw(TcpStream::connect(server.address).await.unwrap())
    }

    pub async fn started(server: &Server) -> Raw {
        let mut raw = Raw::connect(server).await;
        raw.send(&startup()).await;
        let greeting = raw.until_ready().await;
        assert_eq!(greeting.first().unwrap().0, b'R');
        raw
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next message; `None` when the server closed.
    pub async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let tag = self.0.read_u8().await.ok()?;
            let length = self.0.read_i32().await.ok()?;
            let mut body = vec![0; length as usize - 4];
            self.0.read_exact(&mut body).await.ok()?;
            Some((tag, body))
        };
        tokio::time::timeout(SOON, read).await.expect("the server answers")
    }

    /// Messages up to ReadyForQuery.
    pub async fn until_ready(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let message = self.next().await.expect("the session lives");
            let last = message.0 == b'Z';
            all.push(message);
            if last {
                return all;
            }
        }
    }

    pub async fn tags(&mut self) -> String {
        self.until_ready().await.iter().map(|(tag, _)| char::from(*tag)).collect()
    }
}

fn parse(name: &str, query: &str) -> Vec<u8> {
    frame(b'P', format!("{name}\0{query}\0\0\0").as_bytes())
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    frame(b'B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str, rows: i32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend(rows.to_be_bytes());
    frame(b'E', &body)
}

fn sync() -> Vec<u8> {
    frame(b'S', b"")
}

fn state(message: &(u8, Vec<u8>)) -> String {
    let text = String::from_utf8_lossy(&message.1).into_owned();
    text.split('\0').find_map(|field| field.strip_prefix('C').map(str::to_owned)).unwrap_or_default()
}

/// L4: an error in the extended protocol is answered once and waits for Sync.
#[tokio::test]
async fn an_error_skips_to_sync() {
    let server = Server::start().await;
    let mut raw = Raw::started(&server).await;
    let bytes = [parse("", "SELECT nothing"), bind("", ""), execute("", 0), parse("", "SELECT 1"), sync()].concat();
    raw.send(&bytes).await;
    assert_eq!(raw.tags().await, "EZ");
    raw.send(&[parse("", "SELECT 1"), bind("", ""), frame(b'D', b"P\0"), execute("", 0), sync()].concat()).await;
    assert_eq!(raw.tags().await, "12TDCZ");
    server.stop().await;
}

/// Portals: suspended, resumed, done; an empty text; a portal that is not there.
#[tokio::test]
async fn portals_suspend_and_end() {
    let server = Server::start().await;
    let mut raw = Raw::started(&server).await;
    let values = "SELECT * FROM (VALUES (1), (2), (3)) AS v(n)";
    raw.send(&[parse("s", values), bind("p", "s"), execute("p", 2), execute("p", 2), execute("p", 2), sync()].concat()).await;
    // Two rows, suspended; one row, complete; nothing left.
    assert_eq!(raw.tags().await, "12DDsDCCZ");
    raw.send(&[execute("p", 0), sync()].concat()).await;
    let gone = raw.until_ready().await;
    assert_eq!(state(&gone[0]), "34000", "a portal ends with its transaction");
    raw.send(&[parse("", ""), bind("", ""), frame(b'D', b"P\0"), execute("", 0), sync()].concat()).await;
    assert_eq!(raw.tags().await, "12nIZ");
    raw.send(&[frame(b'C', b"Ss\0"), frame(b'C', b"Snever\0"), bind("", "s"), sync()].concat()).await;
    let closed = raw.until_ready().await;
    assert_eq!((closed[0].0, closed[1].0, state(&closed[2]).as_str()), (b'3', b'3', "26000"));
    raw.send(&[frame(b'Q', b"\0")].concat()).await;
    assert_eq!(raw.tags().await, "IZ");
    server.stop().await;
}

/// L4: bodies that are short, long or no UTF-8 are errors, not ends.
#[tokio::test]
async fn broken_bodies_are_errors() {
    let server = Server::start().await;
    let mut raw = Raw::started(&server).await;
    for (bytes, wanted) in [
        (frame(b'Q', b"SELECT 1"), "08P01"),
        (frame(b'Q', b"SELECT 1\0more"), "08P01"),
        (frame(b'Q', b"SELECT '\xff'\0"), "22021"),
        ([frame(b'P', b"a\0SELECT 1\0\xff\xff"), sync()].concat(), "08P01"),
        ([frame(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"), sync()].concat(), "08P01"),
        ([frame(b'D', b"X\0"), sync()].concat(), "08P01"),
        ([frame(b'E', b"\0"), sync()].concat(), "08P01"),
    ] {
        raw.send(&bytes).await;
        let answer = raw.until_ready().await;
        assert_eq!((answer.len(), state(&answer[0]).as_str()), (2, wanted), "{bytes:?}");
    }
    raw.send(&frame(b'Q', b"SELECT 1\0")).await;
    assert_eq!(raw.tags().await, "TDCZ");
    server.stop().await;
}

/// L4, M7: a message longer than the limit is skipped and answered; an absurd length ends the session.
#[tokio::test]
async fn long_messages_are_refused() {
    let server = Server::start().await;
    let mut raw = Raw::started(&server).await;
    let long = vec![b' '; super::super::message::MESSAGE_BYTES_MAX + 1];
    raw.send(&frame(b'Q', &long)).await;
    let answer = raw.until_ready().await;
    assert_eq!(state(&answer[0]), "54000");
    let mut query = b"SELECT 1".to_vec();
    query.resize(super::super::message::QUERY_BYTES_MAX + 1, b' ');
    query.push(0);
    raw.send(&frame(b'Q', &query)).await;
    let answer = raw.until_ready().await;
    assert_eq!(state(&answer[0]), "54000");
    query.truncate(1 << 20);
    query.push(0);
    raw.send(&frame(b'Q', &query)).await;
    assert_eq!(raw.tags().await, "TDCZ", "one MiB is a query");
    for length in [3_i32, 0, -1, i32::MIN, i32::MAX] {
        let mut raw = Raw::started(&server).await;
        let mut bytes = vec![b'Q'];
        bytes.extend(length.to_be_bytes());
        raw.send(&bytes).await;
        assert_eq!(state(&raw.next().await.unwrap()), "08P01", "{length}");
        assert_eq!(raw.next().await, None);
    }
    server.stop().await;
}

/// The first message: encryption is declined, other protocols and users without a name are refused.
#[tokio::test]
async fn the_start_is_checked() {
    let server = Server::start().await;
    let mut raw = Raw::connect(&server).await;
    for code in [80_877_103_i32, 80_877_104] {
        raw.send(&[8_i32.to_be_bytes(), code.to_be_bytes()].concat()).await;
        assert_eq!(raw.0.read_u8().await.unwrap(), b'N');
    }
    raw.send(&startup()).await;
    let greeting = raw.until_ready().await;
    let status: Vec<String> =
        greeting.iter().filter(|(tag, _)| *tag == b'S').map(|(_, body)| String::from_utf8_lossy(body).replace('\0', "=")).collect();
    assert!(status.iter().any(|line| line.starts_with("server_version=15.0 (Weir")), "{status:?}");
    assert!(status.contains(&"client_encoding=UTF8=".to_owned()) && status.contains(&"integer_datetimes=on=".to_owned()), "{status:?}");
    for (body, wanted) in [
        (&b"\x00\x02\x00\x00"[..], "0A000"),
        (&b"\x00\x03\x00\x00\0"[..], "28000"),
        (&b"\x00\x03\x00\x00user\0a\0client_encoding\0LATIN1\0\0"[..], "22023"),
        (&b"\x00\x03\x00\x00user"[..], "08P01"),
        (&b"\x04\xd2\x16\x2e\0\0\0\x01"[..], "08P01"),
    ] {
        let mut raw = Raw::connect(&server).await;
        raw.send(&[&(body.len() as i32 + 4).to_be_bytes(), body].concat()).await;
        assert_eq!(state(&raw.next().await.unwrap()), wanted, "{body:?}");
        assert_eq!(raw.next().await, None);
    }
    // A newer minor protocol is talked down.
    let mut raw = Raw::connect(&server).await;
    let body = b"\x00\x03\x00\x02user\0a\0_pq_.x\x001\0\0";
    raw.send(&[&(body.len() as i32 + 4).to_be_bytes(), &body[..]].concat()).await;
    assert_eq!(raw.next().await.unwrap(), (b'v', b"\0\0\0\0\0\0\0\x01_pq_.x\0".to_vec()));
    raw.until_ready().await;
    server.stop().await;
}

/// What the messages of an answer cannot hold is an error, and the session goes on.
#[tokio::test]
async fn answers_that_do_not_fit_are_errors() {
    let server = Server::start().await;
    let mut raw = Raw::started(&server).await;
    let wide = format!("SELECT {}\0", vec!["1"; 1_665].join(", "));
    let renamed = format!("SET application_name = '{}'\0", "x".repeat(40_000));
    for (query, wanted) in [(&wide, "54011"), (&renamed, "54000")] {
        raw.send(&frame(b'Q', query.as_bytes())).await;
        let answer = raw.until_ready().await;
        assert_eq!((answer.len(), state(&answer[0]).as_str()), (2, wanted));
    }
    raw.send(&[frame(b'P', format!("\0{wide}\0\0").as_bytes()), sync()].concat()).await;
    let answer = raw.until_ready().await;
    assert_eq!((answer.len(), state(&answer[0]).as_str()), (2, "54011"));
    raw.send(&frame(b'Q', b"SELECT 1\0")).await;
    assert_eq!(raw.tags().await, "TDCZ");
    server.stop().await;
}

/// A client that vanished is found out, and small answers leave at once.
#[tokio::test]
async fn sockets_are_watched() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (_client, accepted) = (client.await.unwrap(), listener.accept().await.unwrap().0);
    super::super::wire::tune(&accepted);
    let socket = socket2::SockRef::from(&accepted);
    assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
}

/// C59: a cancel with a wrong secret does nothing.
#[tokio::test]
async fn a_wrong_secret_cancels_nothing() {
    let server = Server::with(Canned(Vec::new()), 200).await;
    let mut victim = Raw::connect(&server).await;
    victim.send(&startup()).await;
    let greeting = victim.until_ready().await;
    let key = &greeting.iter().find(|(tag, _)| *tag == b'K').unwrap().1;
    let cancel = |secret: [u8; 4]| [&16_i32.to_be_bytes()[..], &80_877_102_i32.to_be_bytes(), &key[..4], &secret].concat();
    let secret: [u8; 4] = key[4..].try_into().unwrap();
    let mut wrong = secret;
    wrong[0] ^= 1;
    victim.send(&frame(b'Q', b"ENDLESS\0")).await;
    assert_eq!(victim.next().await.unwrap().0, b'T');
    let mut other = Raw::connect(&server).await;
    other.send(&cancel(wrong)).await;
    assert_eq!(other.next().await, None, "the server says nothing and closes");
    for _ in 0..100 {
        assert_eq!(victim.next().await.unwrap().0, b'D');
    }
    let mut other = Raw::connect(&server).await;
    other.send(&cancel(secret)).await;
    let end = async {
        loop {
            let message = victim.next().await.unwrap();
            if message.0 != b'D' {
                return message;
            }
        }
    };
    assert_eq!(state(&end.await), "57014");
    server.stop().await;
}
