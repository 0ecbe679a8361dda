//! Routes about streams: the verbs of jobs, on `streams:` entries (STR-1). A stream keeps its own
//! document; its job is no job of the routes about jobs.

use super::job::{
    Answer, Asked, Submitted, change_desired, checked, desired_of, found, list_of, query_of, remove, stored, summary, tagged,
};
use super::parameters::Whole;
use super::problem::Problem;
use super::{body_with_text, field};
use crate::options::node::{Node, Value as NodeValue};
use crate::sql::Engine;
use crate::yaml::{self, Document};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_hub::hub::JobInfo;
use weir_planner::check::notices;
use weir_planner::error::Fault;

/// Name of a stream that is posted without one.
const FIRST: &str = "stream-1";

/// `POST /streams/validate`: whether a stream is sound, and what it compiles to; nothing is stored.
pub(super) async fn validate(State(engine): State<Engine>, headers: HeaderMap, body: Body) -> Answer {
    let (Submitted { spec, .. }, document) = submitted(&engine, &headers, body).await?;
    let answer = json!({
        "valid": true,
        "id": spec.id,
        "stream": yaml::masked(&document),
        "job": yaml::to_json(&spec),
        "notices": notices(&spec),
    });
    Ok(Json(answer).into_response())
}

/// `POST /streams`: 201, or 200 where an equal stream was there. Stopped unless the query asks for running.
pub(super) async fn create(
    State(engine): State<Engine>,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked = query_of(asked)?;
    let (submitted, document) = submitted(&engine, &headers, body).await?;
    let desired = desired_of(&asked, None)?;
    let notices = notices(&submitted.spec);
    let (status, info) = stored(&engine, submitted, Some(document.to_string()), desired).await?;
    let mut answer = whole(&info);
    if let Value::Object(fields) = &mut answer {
        fields.insert("notices".to_owned(), json!(notices));
    }
    Ok(tagged(status, &info, Some("streams"), answer))
}

/// `GET /streams`.
pub(super) async fn list(State(engine): State<Engine>, _: Whole) -> Json<Value> {
    list_of(engine.hub.jobs().iter().filter(|info| info.stream.is_some()).map(|info| short(info)).collect())
}

/// `GET /streams/{id}`: the stream as it was posted, and how it stands.
pub(super) async fn show(State(engine): State<Engine>, Path(id): Path<String>) -> Answer {
    let info = stream(&engine, &id)?;
    Ok(tagged(StatusCode::OK, &info, None, whole(&info)))
}

/// `PUT /streams/{id}/desired-state`: as for a job.
pub(super) async fn set_desired(State(engine): State<Engine>, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Answer {
    let info = stream(&engine, &id)?;
    let changed = change_desired(&engine, &info, &headers, body).await?;
    Ok(tagged(StatusCode::ACCEPTED, &changed, None, short(&changed)))
}

/// `DELETE /streams/{id}`: 204.
pub(super) async fn delete(State(engine): State<Engine>, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    let info = stream(&engine, &id)?;
    remove(&engine, &info, &headers).await
}

/// The stream of this name.
fn stream(engine: &Engine, id: &str) -> Result<Arc<JobInfo>, Problem> {
    match found(engine, id) {
        Some(info) if info.stream.is_some() => Ok(info),
        Some(info) => {
            let problem = Problem::new(StatusCode::NOT_FOUND, "not_found", format!("'{}' is a job, not a stream", info.id));
            Err(problem.with_hint(format!("look at /api/v1/jobs/{}", info.id)))
        }
        None => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", format!("stream '{}' does not exist", id.escape_debug()))),
    }
}

/// A stream that came in, compiled and checked, with its document.
async fn submitted(engine: &Engine, headers: &HeaderMap, body: Body) -> Result<(Submitted, Value), Problem> {
    let (node, text) = body_with_text(headers, body).await?;
    let document = unwrapped(&node, text.as_deref())?;
    let given = document.streams.first().map(|stream| stream.document.clone()).unwrap_or_default();
    Ok((checked(engine, document, None)?, given))
}

/// The one stream of a body: a bare entry, or the one entry under `streams:`.
fn unwrapped(node: &Node, text: Option<&str>) -> Result<Document, Problem> {
    if field(node, "streams").is_none() && field(node, "jobs").is_none() {
        return yaml::single_stream(node, "", FIRST, text).map_err(Problem::invalid);
    }
    let document = yaml::document(node, text).map_err(Problem::invalid)?;
    if let NodeValue::Map(_) = &node.value
        && document.streams.len() == 1
        && document.jobs.len() == 1
    {
        return Ok(document);
    }
    let (streams, jobs) = (document.streams.len(), document.jobs.len() - document.streams.len());
    let message = format!("the document has {streams} streams and {jobs} jobs, one stream at a time can be submitted");
    Err(Problem::invalid(vec![Fault::new("one_stream", "streams", message).with_hint("jobs are posted to /api/v1/jobs")]))
}

/// A stream as a list shows it.
fn short(info: &JobInfo) -> Value {
    let mut answer = summary(info);
    if let Value::Object(fields) = &mut answer {
        fields.remove("parallelism");
        fields.remove("max_parallelism");
        fields.insert("input".to_owned(), json!(info.spec.sources.first().map(|source| &source.input_type)));
        fields.insert("output".to_owned(), json!(info.spec.sinks.first().map(|sink| &sink.output_type)));
    }
    answer
}

/// A stream with its document.
fn whole(info: &JobInfo) -> Value {
    let mut answer = short(info);
    let document = info.stream.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let (Value::Object(fields), Some(document)) = (&mut answer, document) {
        fields.insert("stream".to_owned(), yaml::masked(&document));
    }
    answer
}
