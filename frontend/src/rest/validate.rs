//! `POST /jobs/validate`: jobs and streams checked as their start would, and nothing stored (JOB-8).

use super::body_with_text;
use super::job::{planned, unwrapped};
use super::problem::Problem;
use crate::sql::Engine;
use crate::yaml;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use weir_planner::check::notices;
use weir_planner::error::Fault;
use weir_planner::explain;
use weir_planner::plan::JobPlan;
use weir_planner::spec::JobSpec;

/// Under `jobs` the plan, tasks and notices of each job, beside it the agents; those of the one job also by themselves.
pub(super) async fn run(State(engine): State<Engine>, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let (node, text) = body_with_text(&headers, body).await?;
    let (mut document, _) = unwrapped(&node, text.as_deref())?;
    let plans = planned(&engine, &mut document)?;
    if document.jobs.is_empty() {
        return Err(Problem::invalid(vec![Fault::new("not_a_job", "jobs", "the document has no job")]));
    }
    let jobs: Vec<Value> = document.jobs.iter().zip(&plans).map(|(spec, plan)| one(spec, plan.as_ref())).collect();
    let agents: Vec<Value> = engine.hub.agents().iter().map(super::agent::agent).collect();
    let mut answer = match jobs.as_slice() {
        [only] => only.clone(),
        _ => json!({}),
    };
    if let Value::Object(fields) = &mut answer {
        fields.insert("valid".to_owned(), json!(true));
        fields.insert("jobs".to_owned(), json!(jobs));
        fields.insert("agents".to_owned(), json!(agents));
    }
    Ok(Json(answer))
}

fn one(spec: &JobSpec, plan: Option<&JobPlan>) -> Value {
    json!({
        "id": spec.id,
        "version": spec.version,
        "tasks": plan.into_iter().flat_map(JobPlan::tasks).map(|task| task.to_string()).collect::<Vec<_>>(),
        "plan": plan.map_or_else(|| explain::pending::to_json(spec), |plan| yaml::masked(&explain::json(plan))),
        "notices": notices(spec),
    })
}
