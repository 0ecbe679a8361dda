//! What an http source answers: a verdict on the records of a request, or a problem with it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

/// What became of the records of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are in: `records` in all, of which `skipped` could not be read and are counted.
    Taken { records: u64, skipped: u64 },
    /// None of them is in, since this one cannot be read.
    Refused { line: u64, reason: String },
    /// None of them is in, for a reason that is not about one record.
    Unreadable { reason: String },
    /// The source closes; whether they are in is not known to it.
    Closing,
}

/// Why a request is refused before its records are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    WrongPath,
    WrongMethod,
    Unauthorized,
    /// What is wrong with how the body is written, and how to write it.
    MediaType(String),
    TooLong {
        max_bytes: u64,
    },
    /// The body did not come, or not all of it.
    Slow,
    BrokenOff,
    /// No room for the body in time.
    Busy,
    Closing,
    /// The epoch was not decided in time.
    Undecided,
}

type Answer = Response<Full<Bytes>>;

/// The answer to a request whose records were looked at.
pub fn verdict(verdict: Verdict) -> Answer {
    match verdict {
        Verdict::Taken { records, skipped } => {
            let body = serde_json::json!({"records": records, "skipped": skipped}).to_string();
            response(StatusCode::OK, "application/json", body)
        }
        Verdict::Refused { line, reason } => {
            let detail = format!("line {line}: {reason}; no record of this request was taken");
            problem_body(StatusCode::BAD_REQUEST, &detail, Some(line))
        }
        Verdict::Unreadable { reason } => {
            problem_body(StatusCode::BAD_REQUEST, &format!("{reason}; no record of this request was taken"), None)
        }
        Verdict::Closing => problem(&Problem::Closing),
    }
}

/// The answer to a request that is refused.
pub fn problem(problem: &Problem) -> Answer {
    let (status, detail) = match problem {
        Problem::WrongPath => (StatusCode::NOT_FOUND, "records are taken at another path".to_owned()),
        Problem::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "records are taken by POST".to_owned()),
        Problem::Unauthorized => (StatusCode::UNAUTHORIZED, "the request needs the header authorization: Bearer <token>".to_owned()),
        Problem::MediaType(detail) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, detail.clone()),
        Problem::TooLong { max_bytes } => {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {max_bytes} bytes; send fewer records at a time"))
        }
        Problem::Slow => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned()),
        Problem::BrokenOff => (StatusCode::BAD_REQUEST, "the body ended before its end".to_owned()),
        Problem::Busy => (StatusCode::SERVICE_UNAVAILABLE, "the job takes records more slowly than they come; send again later".to_owned()),
        Problem::Closing => {
            (StatusCode::SERVICE_UNAVAILABLE, "the source is closing; records without an answer of 200 must be sent again".to_owned())
        }
        Problem::Undecided => {
            (StatusCode::SERVICE_UNAVAILABLE, "the records were not confirmed in time; send them again, which may double them".to_owned())
        }
    };
    let mut answer = problem_body(status, &detail, None);
    let headers = answer.headers_mut();
    match problem {
        Problem::WrongMethod => drop(headers.insert(ALLOW, HeaderValue::from_static("POST"))),
        Problem::Unauthorized => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        Problem::Busy | Problem::Closing | Problem::Undecided => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
        // What is left of the body is not waited for.
        Problem::TooLong { .. } | Problem::Slow | Problem::BrokenOff => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
        Problem::WrongPath | Problem::MediaType(_) => {}
    }
    answer
}

fn problem_body(status: StatusCode, detail: &str, line: Option<u64>) -> Answer {
    let mut body = serde_json::json!({"title": status.canonical_reason().unwrap_or_default(), "status": status.as_u16(), "detail": detail});
    if let (Some(line), Some(fields)) = (line, body.as_object_mut()) {
        fields.insert("line".to_owned(), line.into());
    }
    response(status, "application/problem+json", body.to_string())
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body + "\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What a connection above the bound is told, written by hand since no task is spent on it.
pub const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
