//! Routes for agents over HTTP: the same messages as over the in-process link.

use crate::error::Error;
use crate::hub::Hub;
use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use serde::Deserialize;
use weir_planner::error::Class;
use weir_planner::protocol::{AgentRequest, Failure};

/// Longest request, other than the answer to a read: a report of a very large job.
const CALL_BYTES_MAX: usize = 16 << 20;
/// Carries the reason when there is no answer to a read.
pub const ERROR_HEADER: &str = "x-weir-error";
/// Carries the class of that reason, such as `retry`.
pub const CLASS_HEADER: &str = "x-weir-class";

impl Hub {
    /// Routes for agents: `POST /agent/v1/call` (JSON of `AgentRequest` to JSON of `HubResponse`)
    /// and `POST /agent/v1/reads/{id}?session=…` (body: the Arrow IPC stream that answers a read,
    /// or the headers `x-weir-error` and `x-weir-class` with the reason why there is none).
    pub fn agent_router(&self) -> Router {
        let call = post(call).layer(DefaultBodyLimit::max(CALL_BYTES_MAX));
        // Answers to reads are streamed through a bounded channel, never held: they need no limit.
        let read = post(read).layer(DefaultBodyLimit::disable());
        Router::new().route("/agent/v1/call", call).route("/agent/v1/reads/{id}", read).with_state(self.clone())
    }
}

async fn call(State(hub): State<Hub>, body: Bytes) -> Response {
    match serde_json::from_slice::<AgentRequest>(&body) {
        Ok(request) => Json(hub.agent_call(request).await).into_response(),
        Err(e) => problem(StatusCode::BAD_REQUEST, "malformed_request", &format!("the body is not a request of an agent: {e}")),
    }
}

#[derive(Deserialize)]
struct Session {
    session: String,
}

async fn read(State(hub): State<Hub>, Path(id): Path<u64>, Query(query): Query<Session>, headers: HeaderMap, body: Body) -> Response {
    let answer = match headers.get(ERROR_HEADER) {
        Some(reason) => {
            let class =
                headers.get(CLASS_HEADER).and_then(|class| class.to_str().ok()).and_then(|word| serde_json::from_value(word.into()).ok());
            let message = String::from_utf8_lossy(reason.as_bytes()).into_owned();
            Err(Failure { class: class.unwrap_or(Class::Retry), message })
        }
        None => Ok(body.into_data_stream().map(|piece| piece.map_err(|e| e.to_string())).boxed()),
    };
    match hub.read_answer(&query.session, id, answer).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => {
            let status = match &error {
                Error::Conflict(_) => StatusCode::CONFLICT,
                Error::Unavailable(_) | Error::Store { .. } | Error::Timeout(_) => StatusCode::SERVICE_UNAVAILABLE,
                Error::NotFound { .. } => StatusCode::NOT_FOUND,
                Error::Invalid(_) | Error::Exists { .. } | Error::InUse { .. } | Error::JobFailed { .. } | Error::Refused(_) => {
                    StatusCode::BAD_REQUEST
                }
            };
            problem(status, "refused", &error.to_string())
        }
    }
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(serde_json::json!({ "code": code, "message": message }))).into_response()
}

#[cfg(test)]
mod tests;
