//! The sender of an http sink: one request at a time, tried again while its failure may pass.

use parking_lot::Mutex;
use rand::Rng;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use weir_kernel::error::Error;
use weir_kernel::io::Wake;
use weir_planner::connector::{HttpMethod, HttpSink as Options};
use weir_planner::error::Class;

/// Pause before the second try; it doubles from try to try.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between tries.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest pause that an endpoint may ask for by `retry-after`.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// What is read of an answer; a longer one costs its connection.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// What is told of an answer that refuses.
const TOLD_CHARS_MAX: usize = 200;

/// Rows of one request.
pub struct Body {
    pub bytes: Vec<u8>,
    pub rows: u64,
    /// Number of the first row among those of the task since it was opened, from 1.
    pub first: u64,
}

/// What waits, and how far it has come.
#[derive(Default)]
pub struct Queue {
    pub bodies: VecDeque<Body>,
    /// Bytes of all bodies that have not been answered.
    pub bytes: usize,
    /// Rows pushed since the sink was opened.
    pub rows: u64,
    /// Rows answered with 2xx: those before them are, too.
    pub answered: u64,
    failure: Option<(Class, String)>,
}

/// What chain and sender share.
pub struct Shared {
    pub queue: Mutex<Queue>,
    /// Something to send.
    pub ready: Notify,
    stopped: watch::Sender<bool>,
    wake: Arc<dyn Wake>,
}

impl Shared {
    /// Nothing waits yet.
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Shared { queue: Mutex::default(), ready: Notify::new(), stopped: watch::Sender::new(false), wake }
    }

    /// The failure that ended the sender, if one did.
    ///
    /// Errors: that one.
    pub fn check(&self) -> Result<(), Error> {
        match &self.queue.lock().failure {
            Some((class, message)) => Err(Error::new(*class, message.clone())),
            None => Ok(()),
        }
    }

    /// Ends the sender; whether it was told before.
    pub fn stop(&self) -> bool {
        self.stopped.send_replace(true)
    }
}

/// The sender's belongings.
pub struct Sending {
    pub client: Client,
    pub url: Url,
    pub headers: HeaderMap,
    pub method: HttpMethod,
    pub tries: u32,
    /// `sink 'out' of job 'x'`.
    pub name: String,
    /// The URL without credentials.
    pub place: String,
    pub shared: Arc<Shared>,
}

/// A client for these options.
///
/// Errors: `User` for a URL or header that cannot be used; no value of a header is told.
pub fn client(options: &Options) -> Result<(Client, Url, HeaderMap), Error> {
    let refuse = |message: String| Error::new(Class::User, message);
    let url = Url::parse(&options.url).map_err(|e| refuse(format!("option 'url' is not a URL: {e}")))?;
    if url.scheme() != "http" || url.host_str().is_none_or(str::is_empty) {
        return Err(refuse("option 'url' needs the form http://host:port/path; https is not available yet".to_owned()));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let unfit = || refuse(format!("header '{}' has a name or value that no header can carry", name.escape_debug()));
        let mut value = HeaderValue::from_str(value).map_err(|_| unfit())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?, value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let timeout = Duration::from_millis(options.timeout_ms.max(1));
    // The endpoint is named by the job: no proxy of the environment stands between, and no answer leads elsewhere.
    let client = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WAIT.min(timeout))
        .timeout(timeout)
        .pool_max_idle_per_host(1)
        .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| Error::new(Class::Bug, format!("http client: {}", e.without_url())))?;
    Ok((client, url, headers))
}

/// How a try ended that was not answered with 2xx.
struct Miss {
    /// `User` when another try cannot help.
    class: Class,
    reason: String,
    /// What the endpoint asks to wait.
    asked: Option<Duration>,
}

/// Sends bodies until the sink closes or one is not taken. `_ended` is dropped at the end.
pub async fn drive(sending: Sending, _ended: flume::Sender<()>) {
    let mut stopped = sending.shared.stopped.subscribe();
    let work = async {
        loop {
            let next = sending.shared.queue.lock().bodies.pop_front();
            let Some(body) = next else {
                sending.shared.ready.notified().await;
                continue;
            };
            let (rows, length) = (body.rows, body.bytes.len());
            let outcome = sending.deliver(body).await;
            let mut queue = sending.shared.queue.lock();
            match outcome {
                Ok(()) => {
                    queue.bytes = queue.bytes.saturating_sub(length);
                    queue.answered += rows;
                }
                Err((class, message)) => queue.failure = Some((class, message)),
            }
            let failed = queue.failure.is_some();
            drop(queue);
            sending.shared.wake.wake();
            if failed {
                return;
            }
        }
    };
    tokio::select! {
        () = work => {}
        // The sender is part of `sending`, so this ends only when told.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

impl Sending {
    /// Tries one body until it is taken.
    ///
    /// Errors: `User` for an answer that will not change, `Retry` after the last try.
    async fn deliver(&self, body: Body) -> Result<(), (Class, String)> {
        let bytes = bytes::Bytes::from(body.bytes);
        let rows = format!("rows {} to {} since it was opened", body.first, body.first + body.rows.saturating_sub(1));
        let mut pause = PAUSE;
        let mut tried = 0;
        loop {
            let miss = match self.once(bytes.clone()).await {
                Ok(()) => return Ok(()),
                Err(miss) => miss,
            };
            tried += 1;
            let Sending { name, place, tries, .. } = self;
            match miss.class {
                Class::Retry if tried < *tries => {
                    tracing::debug!(sink = name, endpoint = place, tried, reason = miss.reason, "a request is tried again");
                    let wait = miss.asked.unwrap_or_else(|| jitter(pause));
                    pause = (pause * 2).min(PAUSE_MAX);
                    tokio::time::sleep(wait).await;
                }
                Class::Retry => {
                    return Err((Class::Retry, format!("{name}: {rows} were not taken by {place} in {tried} tries: {}", miss.reason)));
                }
                class => return Err((class, format!("{name}: {rows} were refused by {place}: {}", miss.reason))),
            }
        }
    }

    async fn once(&self, body: bytes::Bytes) -> Result<(), Miss> {
        let request = match self.method {
            HttpMethod::Post => self.client.post(self.url.clone()),
            HttpMethod::Put => self.client.put(self.url.clone()),
        };
        let sent = request.headers(self.headers.clone()).body(body).send().await;
        let response = sent.map_err(|e| Miss { class: Class::Retry, reason: away(e), asked: None })?;
        let status = response.status();
        if status.is_success() {
            // Read to its end, so that the connection can be used again.
            let _ = text(response).await;
            return Ok(());
        }
        let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
        let asked = asked.map(Duration::from_secs).map(|asked| asked.min(ASKED_PAUSE_MAX));
        let passing = status.is_server_error()
            || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS);
        let reason = if status.is_redirection() {
            format!("{status}: redirects are not followed; give the url that it leads to")
        } else {
            let said = text(response).await;
            if said.is_empty() { status.to_string() } else { format!("{status}: {said}") }
        };
        Err(Miss { class: if passing { Class::Retry } else { Class::User }, reason, asked })
    }
}

/// A pause that two senders do not share.
fn jitter(pause: Duration) -> Duration {
    rand::rng().random_range(pause / 2..=pause)
}

/// Why there is no answer, without the URL, which may hold a secret.
fn away(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason = if error.is_timeout() { "no answer in time".to_owned() } else { error.to_string() };
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        reason = format!("{reason}: {inner}");
        cause = inner.source();
    }
    reason
}

/// The beginning of an answer on one line; the rest is read as far as the bound.
async fn text(mut response: Response) -> String {
    let (mut read, mut head) = (0, Vec::new());
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if head.len() < 4 * TOLD_CHARS_MAX {
            head.extend_from_slice(&chunk);
        }
        if read > ANSWER_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&head);
    text.trim().chars().take(TOLD_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
