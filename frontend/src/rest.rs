//! The REST door: routes under `/api/v1` to verbs of the hub (API-1 to API-4).
//!
//! Bodies are JSON or YAML, answers JSON, errors one problem format. Every job that comes in is
//! parsed, bound and checked with all its faults before the hub stores anything.

mod agent;
mod checkpoint;
mod job;
mod parameters;
mod problem;
mod statement;
mod stream;
mod validate;

use crate::options::node::{Node, Value};
use crate::sql::Engine;
use crate::yaml;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::routing::{get, post, put};
use problem::Problem;
use serde::de::IgnoredAny;
use weir_planner::error::{Fault, Place};

/// Routes of the REST door, each under `/api/v1`.
pub fn router(engine: Engine) -> Router {
    let routes = Router::new()
        .route("/jobs", post(job::create).get(job::list))
        .route("/jobs/validate", post(validate::run))
        .route("/jobs/{id}", get(job::show).delete(job::delete))
        .route("/jobs/{id}/detail", get(job::detail))
        .route("/jobs/{id}/plan", get(job::plan))
        .route("/jobs/{id}/events", get(job::events))
        .route("/jobs/{id}/versions", get(job::versions))
        .route("/jobs/{id}/versions/{number}", get(job::version))
        .route("/jobs/{id}/desired-state", put(job::set_desired))
        .route("/jobs/{id}/checkpoints", get(checkpoint::checkpoints).post(checkpoint::make_checkpoint))
        .route("/jobs/{id}/savepoints", get(checkpoint::savepoints).post(checkpoint::make_savepoint))
        .route("/jobs/{id}/savepoints/{savepoint}", axum::routing::delete(checkpoint::drop_savepoint))
        .route("/streams", post(stream::create).get(stream::list))
        .route("/streams/validate", post(stream::validate))
        .route("/streams/{id}", get(stream::show).delete(stream::delete))
        .route("/streams/{id}/desired-state", put(stream::set_desired))
        .route("/agents", get(agent::list))
        .route("/sql", post(statement::run))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(engine);
    Router::new().nest("/api/v1", routes)
}

async fn unknown(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown_route", format!("there is nothing at '{}'", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", format!("'{}' does not take {method}", uri.path()))
}

/// The whole body, within the bound on documents.
async fn bytes(body: Body) -> Result<Bytes, Problem> {
    axum::body::to_bytes(body, yaml::BYTES_MAX).await.map_err(|error| {
        let too_large = std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("limit"));
        if too_large {
            let message = format!("the body has more than {} bytes", yaml::BYTES_MAX);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        } else {
            Problem::new(StatusCode::BAD_REQUEST, "broken_body", format!("the body could not be read: {error}"))
        }
    })
}

/// The body as a tree. A body that calls itself JSON must be JSON; anything else is read as YAML,
/// which JSON is too, so that `curl --data-binary` needs no header.
async fn tree(headers: &HeaderMap, body: Body) -> Result<Node, Problem> {
    parsed(headers, &bytes(body).await?)
}

/// The body as a tree, and as the text that it was, where places within its values may be looked up.
async fn body_with_text(headers: &HeaderMap, body: Body) -> Result<(Node, Option<String>), Problem> {
    let bytes = bytes(body).await?;
    let node = parsed(headers, &bytes)?;
    Ok((node, String::from_utf8(bytes.to_vec()).ok()))
}

fn parsed(headers: &HeaderMap, bytes: &[u8]) -> Result<Node, Problem> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        let message = format!("a body with content-encoding {} is not read", String::from_utf8_lossy(encoding.as_bytes()).escape_debug());
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "compressed_body", message);
        return Err(problem.with_hint("send the document as it is, without content-encoding"));
    }
    let is_json = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    if !is_json {
        return yaml::tree_of(bytes).map_err(Problem::unreadable);
    }
    let unreadable = |error: serde_json::Error| {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let fault = Fault::new("syntax", "", format!("the body is not JSON: {error}"));
        Problem::unreadable(vec![fault.at(Place { line: small(error.line()), column: small(error.column()) })])
    };
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(unreadable)?;
    // Read as YAML for the places and for all faults at once; what YAML has no words for, such as a tab
    // before a key, is read as JSON alone.
    match yaml::tree_of(bytes) {
        Ok(node) => Ok(node),
        Err(faults) if faults.iter().any(|fault| fault.code == "syntax") => serde_json::from_slice(bytes).map_err(unreadable),
        Err(faults) => Err(Problem::unreadable(faults)),
    }
}

/// A node's field by name.
fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, value)| value),
        Value::Null | Value::Scalar { .. } | Value::List(_) => None,
    }
}

#[cfg(test)]
mod tests;
