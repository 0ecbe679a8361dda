//! The server of an http source: connections, limits, and the way from a request to its answer.
//!
//! It runs on the agent's runtime and only moves bytes: records are looked at by the chain, in its
//! own step (CON-7). A client can cost a bounded share of memory and time, whatever it sends:
//! connections, headers, bodies and waits all have a limit.

use super::answer::{Problem, TURNED_AWAY, Verdict, problem, verdict};
use super::body::Shape;
use crate::secret::Resolved;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use weir_kernel::io::Wake;

/// Bytes that a permit of the room stands for.
const ROOM_UNIT: u64 = 1024;
/// Bodies of any source may be held up to here, and at least one of the longest.
const ROOM_BYTES: u64 = 32 << 20;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// What is read of the body of a refused request, so that its sender gets to read the answer.
const REFUSED_BYTES_MAX: usize = 256 << 10;
/// How long that may take.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How long connections may take to send their last answers when the source closes.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted, such as for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds on what clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; those above are told 503.
    pub connections: usize,
    /// For a request's head, and between requests of a connection.
    pub head: Duration,
    /// For a body to arrive whole.
    pub body: Duration,
    /// Longest wait for room; then 503.
    pub room: Duration,
    /// Longest wait for the decision; then 503.
    pub decision: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 512,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            room: Duration::from_secs(5),
            decision: Duration::from_secs(600),
        }
    }
}

/// A whole body on its way to the chain.
pub struct Delivery {
    pub body: Bytes,
    /// It was declared as one value.
    pub one: bool,
    pub answer: oneshot::Sender<Verdict>,
    /// Given back when the body has been decoded.
    pub _room: OwnedSemaphorePermit,
}

/// What the connections share.
pub struct Door {
    pub path: String,
    pub token: Option<Resolved<String>>,
    pub shape: Shape,
    pub max_body_bytes: u64,
    pub limits: Limits,
    pub room: Arc<Semaphore>,
    pub deliveries: flume::Sender<Delivery>,
    pub wake: Arc<dyn Wake>,
    pub closing: watch::Receiver<bool>,
}

/// Room for bodies of at most this length.
pub fn room(max_body_bytes: u64) -> Arc<Semaphore> {
    let units = ROOM_BYTES.max(max_body_bytes).div_ceil(ROOM_UNIT);
    Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)))
}

/// Takes connections until the source closes. `_ended` is dropped when the listener and every
/// connection are gone.
pub async fn serve(listener: TcpListener, door: Arc<Door>, _ended: flume::Sender<()>) {
    let mut connections = JoinSet::new();
    let mut closing = door.closing.clone();
    loop {
        tokio::select! {
            biased;
            () = closed(&mut closing) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= door.limits.connections => turn_away(&stream),
                Ok((stream, _)) => drop(connections.spawn(converse(stream, door.clone()))),
                Err(error) => {
                    tracing::debug!(%error, "a connection to an http source could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is still open then is cut as the set is dropped.
    let _ = timeout(CLOSE_WAIT, all).await;
}

/// The buffer of a fresh socket has room for so little.
fn turn_away(stream: &TcpStream) {
    let _ = stream.try_write(TURNED_AWAY);
}

/// Returns when the source closes, or is gone.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn converse(stream: TcpStream, door: Arc<Door>) {
    let mut closing = door.closing.clone();
    let head = door.limits.head;
    let service = service_fn(move |request| {
        let door = door.clone();
        async move { Ok::<_, Infallible>(respond(&door, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // What goes wrong on a connection is its client's to see.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

async fn respond(door: &Door, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, mut body) = request.into_parts();
    let admitted = admit(door, &parts.uri, &parts.method, &parts.headers, body.size_hint().exact());
    let outcome = match admitted {
        Ok(one) => take(door, &mut body, one).await,
        Err(problem) => Err(problem),
    };
    match outcome {
        Ok(found) => verdict(found),
        Err(found) => {
            if !matches!(found, Problem::Slow | Problem::BrokenOff | Problem::Closing) {
                let _ = timeout(REFUSED_WAIT, discard(&mut body)).await;
            }
            problem(&found)
        }
    }
}

/// Looks at everything but the body; whether that is declared as one value.
fn admit(door: &Door, uri: &hyper::Uri, method: &Method, headers: &HeaderMap, length: Option<u64>) -> Result<bool, Problem> {
    if uri.path() != door.path {
        return Err(Problem::WrongPath);
    }
    if method != Method::POST {
        return Err(Problem::WrongMethod);
    }
    if let Some(token) = &door.token
        && !bears(headers, token)
    {
        return Err(Problem::Unauthorized);
    }
    let one = door.shape.accept(headers).map_err(Problem::MediaType)?;
    if length.is_some_and(|length| length > door.max_body_bytes) {
        return Err(Problem::TooLong { max_bytes: door.max_body_bytes });
    }
    Ok(one)
}

fn bears(headers: &HeaderMap, token: &Resolved<String>) -> bool {
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let (scheme, given) = given.split_at(given.len().min("Bearer ".len()));
    scheme.eq_ignore_ascii_case(b"Bearer ") && same(given.trim_ascii(), token.0.as_bytes())
}

/// Compares in a time that depends on the lengths alone.
fn same(given: &[u8], token: &[u8]) -> bool {
    let differs = given.iter().zip(token.iter().cycle()).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    given.len() == token.len() && differs == 0
}

/// Reads the body, hands it to the chain and waits for what comes of it.
async fn take(door: &Door, body: &mut Incoming, one: bool) -> Result<Verdict, Problem> {
    let mut closing = door.closing.clone();
    let taken = async {
        // Room is taken before the body is read: for all that it may be when its length is not told.
        let most = body.size_hint().exact().unwrap_or(door.max_body_bytes).max(1).div_ceil(ROOM_UNIT);
        let units = u32::try_from(most).unwrap_or(u32::MAX);
        let room = match timeout(door.limits.room, door.room.clone().acquire_many_owned(units)).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(Problem::Closing),
            Err(_) => return Err(Problem::Busy),
        };
        let body = timeout(door.limits.body, read(body, door.max_body_bytes)).await.map_err(|_| Problem::Slow)??;
        let (answer, told) = oneshot::channel();
        door.deliveries.try_send(Delivery { body, one, answer, _room: room }).map_err(|error| match error {
            flume::TrySendError::Full(_) => Problem::Busy,
            flume::TrySendError::Disconnected(_) => Problem::Closing,
        })?;
        door.wake.wake();
        Ok(told)
    };
    let told = tokio::select! {
        biased;
        () = closed(&mut closing) => return Err(Problem::Closing),
        taken = taken => taken?,
    };
    match timeout(door.limits.decision, told).await {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(_)) => Err(Problem::Closing),
        Err(_) => Err(Problem::Undecided),
    }
}

async fn read(body: &mut Incoming, max_bytes: u64) -> Result<Bytes, Problem> {
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let expected = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let mut bytes: Vec<u8> = Vec::with_capacity(expected.unwrap_or(0).min(most));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::BrokenOff)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > most {
                return Err(Problem::TooLong { max_bytes });
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(Bytes::from(bytes))
}

async fn discard(body: &mut Incoming) {
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        seen += frame.data_ref().map_or(0, Bytes::len);
        if seen > REFUSED_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn only_the_token_opens() {
        let token = Resolved("s3cret".to_owned());
        for (given, opens) in [
            ("Bearer s3cret", true),
            ("bearer  s3cret ", true),
            ("Bearer s3cre", false),
            ("Bearer s3crets3cret", false),
            ("Bearer ", false),
            ("Basic s3cret", false),
            ("s3cret", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(given));
            assert_eq!(bears(&headers, &token), opens, "{given:?}");
        }
        assert!(!bears(&HeaderMap::new(), &token));
    }
}
