//! Routes about jobs.

use super::parameters::Whole;
use super::problem::Problem;
use super::{body_with_text, field, tree};
use crate::options::fit::{Fit, Path as FieldPath};
use crate::options::node::{Node, Value as NodeValue};
use crate::options::shape::{Field, Kind, Object};
use crate::sql::{Engine, masked};
use crate::yaml::{self, Document};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_hub::error::Error as HubError;
use weir_hub::hub::{DesiredState, JobEvent, JobInfo, NewJob, StartFrom};
use weir_planner::check::notices;
use weir_planner::error::{Fault, Place};
use weir_planner::explain;
use weir_planner::id::CheckpointId;
use weir_planner::id::{Generation, JobId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::Event;
use weir_planner::spec::JobSpec;

pub(super) type Answer = Result<Response, Problem>;

/// `?desired_state=` and `?format=`; others are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    desired_state: Option<String>,
    format: Option<String>,
}

/// `POST /jobs`: 201, or 200 where the same version with equal content was there.
pub(super) async fn create(
    State(engine): State<Engine>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked = query_of(asked)?;
    let submitted = submitted(&engine, &headers, body).await?;
    let desired = desired_of(&asked, submitted.desired)?;
    let notices = notices(&submitted.spec);
    let (status, info) = stored(&engine, submitted, None, desired).await?;
    let mut answer = whole(&info);
    if let Value::Object(fields) = &mut answer {
        fields.insert("notices".to_owned(), json!(notices));
    }
    Ok(tagged(status, &info, Some("jobs"), answer))
}

pub(super) fn query_of(asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>) -> Result<Asked, Problem> {
    let Query(asked) = asked.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "bad_query", error.body_text()))?;
    Ok(asked)
}

/// What is wanted of a new job: said in the query or in the body, else that it is stopped.
pub(super) fn desired_of(asked: &Asked, in_body: Option<DesiredState>) -> Result<DesiredState, Problem> {
    match (asked.desired_state.as_deref(), in_body) {
        (Some(_), Some(_)) => {
            let message = "desired_state is given in the query and in the body";
            Err(Problem::new(StatusCode::BAD_REQUEST, "given_twice", message))
        }
        (Some(word), None) => state_of(word),
        (None, Some(desired)) => Ok(desired),
        (None, None) => Ok(DesiredState::Stopped),
    }
}

/// Stores what came in, with the document that it is, for a stream: 201, or 200 where it was there.
pub(super) async fn stored(
    engine: &Engine,
    submitted: Submitted,
    stream: Option<String>,
    desired: DesiredState,
) -> Result<(StatusCode, JobInfo), Problem> {
    let Submitted { spec, places, .. } = submitted;
    let known = engine.hub.job(&spec.id).is_ok();
    let info = engine.hub.create_job(NewJob { spec, sql: None, uses: Vec::new(), stream, desired, places }).await?;
    Ok((if known { StatusCode::OK } else { StatusCode::CREATED }, info))
}

/// `GET /jobs`.
pub(super) async fn list(State(engine): State<Engine>, _: Whole) -> Json<Value> {
    list_of(engine.hub.jobs().iter().filter(|info| info.stream.is_none()).map(|info| summary(info)).collect())
}

/// `GET /jobs/{id}`.
pub(super) async fn show(State(engine): State<Engine>, Path(id): Path<String>) -> Answer {
    let info = job(&engine, &id)?;
    Ok(tagged(StatusCode::OK, &info, None, whole(&info)))
}

/// `GET /jobs/{id}/detail`: how it runs.
pub(super) async fn detail(State(engine): State<Engine>, Path(id): Path<String>) -> Answer {
    let info = job(&engine, &id)?;
    let mut answer = whole(&info);
    if let (Value::Object(fields), Some(observation)) = (&mut answer, &info.observation) {
        fields.insert("tasks".to_owned(), observation.tasks.iter().map(|task| with_task(task, &task.task.to_string())).collect());
        fields.insert("sources".to_owned(), observation.sources.iter().map(|split| with_task(split, &split.task.to_string())).collect());
        fields.insert("epoch".to_owned(), json!(observation.epoch.map(|epoch| epoch.to_string())));
        fields.insert("has_cut".to_owned(), json!(observation.has_cut));
    }
    if let Value::Object(fields) = &mut answer {
        let events = engine.hub.events(Some(&info.id));
        let last = events.len().saturating_sub(20);
        fields.insert("events".to_owned(), events.iter().skip(last).map(event).collect());
        fields.insert("planned_tasks".to_owned(), info.plan.iter().flat_map(|plan| plan.tasks()).map(|task| task.to_string()).collect());
    }
    Ok(tagged(StatusCode::OK, &info, None, answer))
}

/// `GET /jobs/{id}/plan` as JSON, text or DOT, by `?format=` or else by `Accept`.
pub(super) async fn plan(
    State(engine): State<Engine>,
    Path(id): Path<String>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let asked = query_of(asked)?;
    let info = job(&engine, &id)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let by_accept = if accept.contains("text/vnd.graphviz") {
        "dot"
    } else if accept.contains("text/plain") {
        "text"
    } else {
        "json"
    };
    let of_dot = |dot: String| ([(header::CONTENT_TYPE, "text/vnd.graphviz; charset=utf-8")], dot).into_response();
    match (asked.format.as_deref().unwrap_or(by_accept), info.plan.as_deref()) {
        ("json", Some(plan)) => Ok(Json(yaml::masked(&explain::json(plan))).into_response()),
        ("json", None) => Ok(Json(explain::pending::to_json(&info.spec)).into_response()),
        ("text", Some(plan)) => Ok(explain::text(plan).into_response()),
        ("text", None) => Ok(explain::pending::text(&info.spec).into_response()),
        ("dot", Some(plan)) => Ok(of_dot(explain::dot(plan))),
        ("dot", None) => Ok(of_dot(explain::pending::dot(&info.spec))),
        (other, _) => {
            let message = format!("the format '{}' is not known", other.escape_debug());
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad_query", message).with_hint("use json, text or dot"))
        }
    }
}

/// `GET /jobs/{id}/events`, oldest first.
pub(super) async fn events(State(engine): State<Engine>, Path(id): Path<String>, _: Whole) -> Answer {
    let info = job(&engine, &id)?;
    Ok(list_of(engine.hub.events(Some(&info.id)).iter().map(event).collect()).into_response())
}

/// `GET /jobs/{id}/versions`: every version that is kept; before upgrades exist that is the current one.
pub(super) async fn versions(State(engine): State<Engine>, Path(id): Path<String>, _: Whole) -> Answer {
    let info = job(&engine, &id)?;
    Ok(list_of(vec![version_of(&info)]).into_response())
}

/// `GET /jobs/{id}/versions/{n}`.
pub(super) async fn version(State(engine): State<Engine>, Path((id, number)): Path<(String, String)>) -> Answer {
    let info = job(&engine, &id)?;
    if number.parse() == Ok(info.version.get()) {
        return Ok(Json(version_of(&info)).into_response());
    }
    let message = format!("job '{}' has no version '{}'", info.id, number.escape_debug());
    Err(Problem::new(StatusCode::NOT_FOUND, "not_found", message).with_hint(format!("kept versions: {}", info.version)))
}

/// A version as it was submitted.
fn version_of(info: &JobInfo) -> Value {
    let spec = info.submitted.as_ref().unwrap_or(&info.spec);
    json!({ "version": info.version, "created_at": time(Some(info.created_at_ms)), "sql": statement(info), "spec": yaml::to_json(spec) })
}

/// `DELETE /jobs/{id}`: 204.
pub(super) async fn delete(State(engine): State<Engine>, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    let info = job(&engine, &id)?;
    remove(&engine, &info, &headers).await
}

/// Drops a job or stream, unless `If-Match` names another generation.
pub(super) async fn remove(engine: &Engine, info: &JobInfo, headers: &HeaderMap) -> Answer {
    if let Some(expected) = if_match(headers)?
        && expected != info.generation
    {
        return Err(moved_on(info, expected));
    }
    engine.hub.drop_job(&info.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

const DESIRED: Object = Object {
    what: "desired state",
    fields: &[
        Field { name: "state", aliases: &[], kind: Kind::Word(&["running", "stopped"]), required: true },
        Field { name: "from", aliases: &[], kind: Kind::Text, required: false },
        Field { name: "fresh", aliases: &[], kind: Kind::Bool, required: false },
    ],
    short: None,
};

/// `PUT /jobs/{id}/desired-state`: 202; 412 when `If-Match` names another generation.
pub(super) async fn set_desired(State(engine): State<Engine>, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Answer {
    let info = job(&engine, &id)?;
    let changed = change_desired(&engine, &info, &headers, body).await?;
    Ok(tagged(StatusCode::ACCEPTED, &changed, None, summary(&changed)))
}

/// Changes what is wanted of a job or stream, as the body says.
pub(super) async fn change_desired(engine: &Engine, info: &JobInfo, headers: &HeaderMap, body: Body) -> Result<JobInfo, Problem> {
    let expected = if_match(headers)?;
    let node = tree(headers, body).await?;
    let mut fit = Fit::default();
    let asked = fit.object(&node, &DESIRED, &FieldPath::root()).unwrap_or_default();
    let from = asked.get("from").and_then(Value::as_str).map(|text| text.parse().map(CheckpointId::new));
    let fresh = asked.get("fresh").and_then(Value::as_bool).unwrap_or(false);
    if matches!(from, Some(Err(_))) {
        let fault = Fault::new("bad_checkpoint", "from", "this is not the number of a checkpoint or savepoint");
        fit.faults.push(fault.with_hint("GET /api/v1/jobs/{id}/checkpoints lists them"));
    }
    if from.is_some() && fresh {
        let fault = Fault::new("from_and_fresh", "fresh", "a start is either from a checkpoint or fresh");
        fit.faults.push(fault.with_hint("leave one of them out"));
    }
    if !fit.faults.is_empty() {
        return Err(Problem::invalid(fit.faults));
    }
    let desired = state_of(asked.get("state").and_then(Value::as_str).unwrap_or_default())?;
    let from = match (from, fresh) {
        (Some(Ok(id)), _) => StartFrom::Checkpoint(id),
        (_, true) => StartFrom::Fresh,
        (_, false) => StartFrom::Newest,
    };
    engine.hub.set_desired(&info.id, desired, expected, from).await.map_err(|error| match (error, expected) {
        (HubError::Conflict(message), Some(_)) if engine.hub.job(&info.id).is_ok_and(|now| Some(now.generation) != expected) => {
            Problem::new(StatusCode::PRECONDITION_FAILED, "generation_moved_on", message).with_hint("read the job again and take its ETag")
        }
        (error, _) => Problem::from(error),
    })
}

/// A job that came in.
pub(super) struct Submitted {
    pub(super) spec: JobSpec,
    /// Where the fields stand in the text.
    places: BTreeMap<String, Place>,
    desired: Option<DesiredState>,
}

/// A job that came in: parsed, bound, compiled and built, or every fault that it has.
async fn submitted(engine: &Engine, headers: &HeaderMap, body: Body) -> Result<Submitted, Problem> {
    let (node, text) = body_with_text(headers, body).await?;
    let (document, desired) = unwrapped(&node, text.as_deref())?;
    if !document.streams.is_empty() {
        let fault = Fault::new("stream", "streams", "the document has a stream, which is not submitted as a job");
        return Err(Problem::invalid(vec![fault.with_hint("post it to /api/v1/streams")]));
    }
    checked(engine, document, desired)
}

/// The one job of a document, bound, compiled and built, or every fault that it has.
pub(super) fn checked(engine: &Engine, mut document: Document, desired: Option<DesiredState>) -> Result<Submitted, Problem> {
    planned(engine, &mut document)?;
    match document.jobs.as_slice() {
        [spec] => Ok(Submitted { spec: spec.clone(), places: document.places(0), desired }),
        jobs => {
            let message = format!("the document has {} jobs, one at a time can be submitted", jobs.len());
            Err(Problem::invalid(vec![Fault::new("one_job", "jobs", message)]))
        }
    }
}

/// The plan of every job of a document, or every fault of all of them, each at its place. A job whose
/// source does not know its columns yet has none (JOB-6).
pub(super) fn planned(engine: &Engine, document: &mut Document) -> Result<Vec<Option<JobPlan>>, Problem> {
    let mut faults = document.bind();
    let mut plans = Vec::with_capacity(document.jobs.len());
    for (at, spec) in document.jobs.iter().enumerate() {
        match engine.validate(spec) {
            Ok(plan) => plans.push(plan),
            Err(HubError::Invalid(found)) => faults.extend(found.0.into_iter().map(|fault| document.locate(at, fault))),
            Err(error) => return Err(error.into()),
        }
    }
    if faults.is_empty() {
        return Ok(plans);
    }
    // What could not be bound has a fault of its own, or lies behind one.
    if faults.iter().any(|fault| fault.code != "unbound") {
        faults.retain(|fault| fault.code != "unbound");
    }
    Err(Problem::invalid(faults))
}

/// The jobs of a body: a bare JobSpec, those under `jobs:` and `streams:`, or the one of `{spec, desired_state}`.
pub(super) fn unwrapped(node: &Node, text: Option<&str>) -> Result<(Document, Option<DesiredState>), Problem> {
    let Some(spec) = field(node, "spec") else {
        return Ok((yaml::document(node, text).map_err(Problem::invalid)?, None));
    };
    if let NodeValue::Map(fields) = &node.value
        && let Some((key, _)) = fields.iter().find(|(key, _)| !matches!(key.name.as_str(), "spec" | "desired_state"))
    {
        let fault = Fault::new("unknown_field", key.name.clone(), format!("a submission has no field '{}'", key.name.escape_debug()));
        let fault = fault.with_hint("known fields: spec, desired_state");
        return Err(Problem::invalid(vec![key.place.map_or(fault.clone(), |place| fault.at(place))]));
    }
    let desired = match field(node, "desired_state").map(|state| &state.value) {
        None | Some(NodeValue::Null) => None,
        Some(NodeValue::Scalar { text, .. }) => Some(state_of(text)?),
        Some(NodeValue::List(_) | NodeValue::Map(_)) => Some(state_of("")?),
    };
    Ok((yaml::single(spec, "spec").map_err(Problem::invalid)?, desired))
}

fn state_of(word: &str) -> Result<DesiredState, Problem> {
    match word {
        "running" => Ok(DesiredState::Running),
        "stopped" => Ok(DesiredState::Stopped),
        _ => {
            let message = format!("the desired state '{}' is not known", word.escape_debug());
            Err(Problem::invalid(vec![Fault::new("bad_value", "desired_state", message).with_hint("use running or stopped")]))
        }
    }
}

/// What has this name, be it a job or a stream.
pub(super) fn found(engine: &Engine, id: &str) -> Option<Arc<JobInfo>> {
    engine.hub.job(&JobId::new(id).ok()?).ok()
}

pub(super) fn job(engine: &Engine, id: &str) -> Result<Arc<JobInfo>, Problem> {
    match found(engine, id) {
        Some(info) if info.stream.is_none() => Ok(info),
        Some(info) => {
            let problem = Problem::new(StatusCode::CONFLICT, "is_stream", format!("'{}' is a stream, not a job", info.id));
            Err(problem.with_hint(format!("look at /api/v1/streams/{}", info.id)))
        }
        None => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", format!("job '{}' does not exist", id.escape_debug()))),
    }
}

/// The generation that `If-Match` asks for; none for `*` or without it.
fn if_match(headers: &HeaderMap) -> Result<Option<Generation>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text.trim_matches('"').parse::<u64>().map_err(|_| {
        let message = "If-Match is not a generation".to_owned();
        Problem::new(StatusCode::BAD_REQUEST, "bad_if_match", message).with_hint("send the job's ETag, such as \"3\"")
    })?;
    Ok(Some(Generation::new(number)))
}

fn moved_on(info: &JobInfo, expected: Generation) -> Problem {
    let message = format!("job '{}' is at generation {}, not {expected}", info.id, info.generation);
    Problem::new(StatusCode::PRECONDITION_FAILED, "generation_moved_on", message).with_hint("read the job again and take its ETag")
}

/// An answer with the generation as its ETag and, for what was just made, its place under `/api/v1`.
pub(super) fn tagged(status: StatusCode, info: &JobInfo, made_in: Option<&str>, answer: Value) -> Response {
    let mut response = (status, Json(answer)).into_response();
    if let Some(Ok(location)) = made_in.map(|routes| HeaderValue::from_str(&format!("/api/v1/{routes}/{}", info.id))) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", info.generation)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// `{items, next}`: all there is, so there is no next page.
pub(super) fn list_of(items: Vec<Value>) -> Json<Value> {
    Json(json!({ "items": items, "next": null }))
}

/// A time as RFC 3339 text in UTC.
pub(super) fn time(ms: Option<i64>) -> Option<String> {
    let at = chrono::DateTime::from_timestamp_millis(ms?)?;
    Some(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

/// A job under the names of `weir.jobs`.
pub(super) fn summary(info: &JobInfo) -> Value {
    json!({
        "id": info.id,
        "version": info.version,
        "state": info.state,
        "desired_state": info.desired,
        "generation": info.generation,
        "attempt": info.attempt,
        "parallelism": info.spec.parallelism,
        "max_parallelism": info.spec.max_parallelism,
        "created_at": time(Some(info.created_at_ms)),
        "started_at": time(info.started_at_ms),
        "last_error": info.last_error,
        "agent": info.agent,
    })
}

/// The statement that made a job, secrets masked.
fn statement(info: &JobInfo) -> Option<String> {
    info.sql.as_deref().map(masked)
}

/// A job with what it was made from.
fn whole(info: &JobInfo) -> Value {
    let mut answer = summary(info);
    if let Value::Object(fields) = &mut answer {
        fields.insert("sql".to_owned(), json!(statement(info)));
        fields.insert("uses".to_owned(), json!(info.uses));
        fields.insert("spec".to_owned(), yaml::to_json(&info.spec));
    }
    answer
}

fn with_task<T: serde::Serialize>(observation: &T, task: &str) -> Value {
    let mut answer = serde_json::to_value(observation).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut answer {
        fields.insert("task".to_owned(), json!(task));
    }
    answer
}

fn event(event: &JobEvent) -> Value {
    let Event { at_ms, level, kind, message, operator, count } = &event.event;
    json!({
        "job": event.job,
        "at": time(Some(*at_ms)),
        "level": level,
        "kind": kind,
        "message": message,
        "agent": event.agent,
        "operator": operator,
        "count": count,
    })
}
