//! Statements as verbs of the hub: creating, changing, dropping and waiting for objects.

use super::ddl::{self, Drafted};
use super::fault::of_fault;
use super::limit::on_deep_stack;
use super::lower::{self, Lowered};
use super::place::Places;
use super::statement::{CreateJob, CreateSink, CreateSource, ExplainFormat, JobChange, Named, ObjectKind, WithOption};
use super::{Engine, Outcome, sample, show};
use crate::error::{Error, sqlstate};
use crate::options;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_hub::error::Error as HubError;
use weir_hub::hub::{DesiredState, JobInfo, JobState, NewJob, OnExists, StartFrom, WaitFor};
use weir_planner::check::notices;
use weir_planner::error::Class;
use weir_planner::id::{JobId, OperatorId};
use weir_planner::plan::JobPlan;
use weir_planner::spec::{JobSpec, OperatorKind, Sliding, Source, SourceColumn, Window, WindowShape};

/// How long CREATE JOB and ALTER JOB START wait to say how the job stands (SQL-14).
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// How long ALTER JOB STOP and RESTART wait for the job to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// How long CREATE SOURCE waits for the columns of a source that declares none.
const SAMPLE_PATIENCE: Duration = Duration::from_secs(25);

fn done(tag: &str, notices: Vec<String>) -> Outcome {
    Outcome::Done { tag: tag.to_owned(), notices }
}

pub(super) fn on_exists(or_replace: bool, if_not_exists: bool) -> OnExists {
    match (or_replace, if_not_exists) {
        (true, _) => OnExists::Replace,
        (_, true) => OnExists::Keep,
        (false, false) => OnExists::Fail,
    }
}

/// Wall clock, ms.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

pub(super) async fn create_source(engine: &Engine, create: &CreateSource, places: &Places) -> Result<Outcome, Error> {
    let kept = || vec![format!("source '{}' already exists, skipping", create.name.text)];
    let mut notes = Vec::new();
    let entry = match on_deep_stack(|| ddl::source(create, None, places, now_ms()))? {
        Drafted::Known(entry) => entry,
        // What stays as it is needs no sample.
        Drafted::Pending(_) if create.if_not_exists && engine.hub.catalog().entries.contains_key(&create.name.text) => {
            return Ok(done("CREATE SOURCE", kept()));
        }
        Drafted::Pending(source) => {
            let columns = sampled(engine, *source, create).await?;
            notes.push(format!("source '{}' has the columns ({}), taken from its first rows", create.name.text, sample::told(&columns)));
            match on_deep_stack(|| ddl::source(create, Some(&columns), places, now_ms()))? {
                Drafted::Known(entry) => entry,
                Drafted::Pending(_) => {
                    return Err(Error::new(sqlstate::INTERNAL_ERROR, "a sampled source has no columns").at(create.name.position));
                }
            }
        }
    };
    let made = engine.hub.create_entry(entry, on_exists(create.or_replace, create.if_not_exists)).await;
    let made = made.map_err(|error| of_hub(error, Some(create.name.position)))?;
    Ok(done("CREATE SOURCE", if made { notes } else { kept() }))
}

/// The columns of a source that declares none, from its first rows: at once, or not at all (JOB-6).
///
/// Errors: `57P03` when no agent answers, `55000` when there is no row yet, `22023` when the rows give no
/// columns, `57014` when it takes too long.
async fn sampled(engine: &Engine, source: Source, create: &CreateSource) -> Result<Vec<SourceColumn>, Error> {
    let way_out = format!("declare the columns: CREATE SOURCE {} (column TYPE, …) WITH (…)", create.name.text);
    // Messages name the source as the user does.
    let source = Source { operator_id: OperatorId::new(create.name.text.clone()).unwrap_or(source.operator_id.clone()), ..source };
    let answer = tokio::time::timeout(SAMPLE_PATIENCE, engine.hub.sample(source)).await.map_err(|_| {
        let message =
            format!("the columns of source '{}' could not be taken from its rows within {} s", create.name.text, SAMPLE_PATIENCE.as_secs());
        Error::new(sqlstate::QUERY_CANCELED, message).with_hint(way_out.clone()).at(create.name.position)
    })?;
    let answer = answer.map_err(|error| of_hub(error, Some(create.name.position)).with_hint(way_out.clone()))?;
    sample::columns_of(&answer).map_err(|reason| {
        Error::new(sqlstate::INTERNAL_ERROR, format!("the columns of source '{}' did not come as they should: {reason}", create.name.text))
            .at(create.name.position)
    })
}

pub(super) async fn create_sink(engine: &Engine, create: &CreateSink) -> Result<Outcome, Error> {
    let entry = ddl::sink(create, now_ms())?;
    let made = engine.hub.create_entry(entry, on_exists(create.or_replace, create.if_not_exists)).await;
    let made = made.map_err(|error| of_hub(error, Some(create.name.position)))?;
    let kept = format!("sink '{}' already exists, skipping", create.name.text);
    Ok(done("CREATE SINK", if made { Vec::new() } else { vec![kept] }))
}

/// The spec that a CREATE JOB asks for, with its WITH options; and whether it starts.
pub(crate) fn lowered(engine: &Engine, create: &CreateJob, places: &Places) -> Result<(Lowered, DesiredState), Error> {
    let snapshot = engine.hub.catalog();
    on_deep_stack(|| with_options(lower::lower(create, &snapshot, places)?, create))
}

pub(crate) fn with_options(mut lowered: Lowered, create: &CreateJob) -> Result<(Lowered, DesiredState), Error> {
    let mut desired = DesiredState::Running;
    let (mut fields, mut of_windows) = (Fields::new(), Fields::new());
    for option in &create.options {
        if option.key == "start" {
            desired = start_option(option)?;
        } else if let Some(field) = option.key.strip_prefix("window.") {
            of_windows.insert(field.to_owned(), Json::from(option.value.as_str()));
        } else {
            fields.insert(option.key.clone(), Json::from(option.value.as_str()));
        }
    }
    options::apply_job_options(&mut lowered.spec, &fields).map_err(|fault| ddl::located(&create.options, &fault, create.name.position))?;
    window_options(&mut lowered, create, &of_windows)?;
    Ok((lowered, desired))
}

/// Options by name.
type Fields = serde_json::Map<String, Json>;

/// Sets `window.…` of every window of the query (SQL-13).
fn window_options(lowered: &mut Lowered, create: &CreateJob, fields: &Fields) -> Result<(), Error> {
    let Some(first) = create.options.iter().find(|option| option.key.starts_with("window.")) else { return Ok(()) };
    // Where results of windows are put together there is no window that could be empty.
    let unfilled: Fields = fields.iter().filter(|(name, _)| !name.starts_with("emit_empty")).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut windows = 0;
    for operator in &mut lowered.spec.operators {
        let OperatorKind::Window(window) = &mut operator.kind else { continue };
        let fields = if lowered.regroupings.contains(&operator.id) { &unfilled } else { fields };
        options::apply_window_options(window, fields).map_err(|mut fault| {
            fault.path = format!("window.{}", fault.path);
            ddl::located(&create.options, &fault, first.key_position)
        })?;
        windows += 1;
    }
    if windows == 0 {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("{} is an option of windows, and this query has none", first.key),
        )
        .with_hint("leave it out, or aggregate in a window: FROM tumble(t, ts, INTERVAL '1 minute') GROUP BY …")
        .at(first.key_position));
    }
    Ok(())
}

fn start_option(option: &WithOption) -> Result<DesiredState, Error> {
    match option.value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" => Ok(DesiredState::Running),
        "false" | "off" | "no" => Ok(DesiredState::Stopped),
        other => {
            Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("start is true or false, not '{other}'")).at(option.value_position))
        }
    }
}

pub(super) async fn create_job(engine: &Engine, create: &CreateJob, places: &Places) -> Result<Outcome, Error> {
    if create.if_not_exists && engine.hub.catalog().jobs.contains_key(&create.name.text) {
        return Ok(done("CREATE JOB", vec![format!("job '{}' already exists, skipping", create.name.text)]));
    }
    if engine.hub.catalog().jobs.contains_key(&create.name.text) {
        return Err(Error::new(sqlstate::DUPLICATE_OBJECT, format!("job '{}' already exists", create.name.text))
            .with_hint("DROP JOB deletes it with its state and results")
            .at(create.name.position));
    }
    let (lowered, desired) = lowered(engine, create, places)?;
    engine.validate(&lowered.spec).map_err(|error| of_create(error, create))?;
    let mut notes = notices(&lowered.spec);
    notes.extend(gaps(&lowered.spec));
    let id = lowered.spec.id.clone();
    let job =
        NewJob { spec: lowered.spec, sql: Some(create.sql.clone()), uses: lowered.uses, stream: None, desired, places: BTreeMap::new() };
    engine.hub.create_job(job).await.map_err(|error| of_create(error, create))?;
    if desired == DesiredState::Running {
        notes.push(first_look(engine, &id).await);
    } else {
        notes.push(format!("job '{id}' is created, not started: ALTER JOB {id} START starts it"));
    }
    Ok(done("CREATE JOB", notes))
}

/// Windows that leave rows out, since their slide is longer than their size.
fn gaps(spec: &JobSpec) -> Vec<String> {
    let windows = spec.operators.iter().filter_map(|operator| operator.kind.timed_window());
    let gap = |window: &Window| match &window.window {
        WindowShape::Sliding(Sliding { size_ms, slide_ms, .. }) if slide_ms > size_ms => Some(format!(
            "hop with a slide of {slide_ms} ms and a size of {size_ms} ms leaves gaps, whose rows count nowhere: the slide stands before the size"
        )),
        WindowShape::Sliding(_) | WindowShape::Tumbling(_) | WindowShape::Session(_) | WindowShape::Cumulate(_) | WindowShape::Batch(_) => {
            None
        }
    };
    windows.filter_map(gap).collect()
}

/// The refusal of a job at its name, or at the WITH option that a fault is about.
fn of_create(error: HubError, create: &CreateJob) -> Error {
    match error {
        HubError::Invalid(faults) => faults.0.first().map_or_else(
            || Error::new(sqlstate::INTERNAL_ERROR, "the job was refused without a reason"),
            |fault| ddl::located(&create.options, fault, create.name.position),
        ),
        error => of_hub(error, Some(create.name.position)),
    }
}

/// Waits a little and says how a job stands.
async fn first_look(engine: &Engine, id: &JobId) -> String {
    match engine.hub.wait(id, WaitFor::Running, FIRST_LOOK).await {
        Ok(info) => format!("job '{id}' is {}", info.state),
        Err(HubError::JobFailed { reason, .. }) => format!("job '{id}' failed: {reason}"),
        Err(HubError::Timeout(_)) => match engine.hub.job(id) {
            Ok(info) => match &info.last_error {
                Some(reason) => format!("job '{id}' is {}: {reason}", info.state),
                None if info.agent.is_none() => format!("job '{id}' is {}: no agent has taken it yet", info.state),
                None => format!("job '{id}' is {}; SELECT * FROM weir.job_events tells more", info.state),
            },
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    }
}

/// The spec and plan that a CREATE JOB asks for.
pub(super) fn planned(engine: &Engine, create: &CreateJob, places: &Places) -> Result<(Lowered, JobPlan), Error> {
    let (lowered, _) = lowered(engine, create, places)?;
    let plan = engine.validate(&lowered.spec).map_err(|error| of_create(error, create))?;
    // Columns of the catalog's sources are known, or the query could not have been lowered.
    let plan = plan.ok_or_else(|| Error::new(sqlstate::INTERNAL_ERROR, "the job has a source without columns").at(create.name.position))?;
    Ok((lowered, plan))
}

pub(super) async fn explain(engine: &Engine, format: ExplainFormat, create: &CreateJob, places: &Places) -> Result<Outcome, Error> {
    let (lowered, plan) = planned(engine, create, places)?;
    let text = super::explain::text(format, &lowered, &plan, &notices(&lowered.spec))?;
    show::lines("QUERY PLAN", &text, "EXPLAIN")
}

fn job_id(name: &Named) -> Result<JobId, Error> {
    // A name that no job can have is a job that does not exist.
    JobId::new(name.text.clone()).map_err(|_| missing("job", name))
}

fn missing(kind: &'static str, name: &Named) -> Error {
    Error::new(sqlstate::UNDEFINED_OBJECT, format!("{kind} '{}' does not exist", name.text)).at(name.position)
}

pub(super) async fn alter_job(engine: &Engine, job: &Named, change: JobChange) -> Result<Outcome, Error> {
    let id = job_id(job)?;
    let fault = |error| of_hub(error, Some(job.position));
    let notes = match change {
        JobChange::Start(from) => {
            engine.hub.set_desired(&id, DesiredState::Running, None, from).await.map_err(fault)?;
            vec![first_look(engine, &id).await]
        }
        JobChange::Stop { savepoint: true } => {
            let savepoint = engine.hub.stop_with_savepoint(&id).await.map_err(fault)?;
            engine.hub.wait_for_checkpoint(savepoint, STOP_PATIENCE).await.map_err(fault)?;
            vec![stopped(engine, &id).await, format!("savepoint {savepoint} is complete")]
        }
        JobChange::Stop { savepoint: false } => {
            engine.hub.set_desired(&id, DesiredState::Stopped, None, StartFrom::Newest).await.map_err(fault)?;
            vec![stopped(engine, &id).await]
        }
        JobChange::Restart => {
            let info = engine.hub.set_desired(&id, DesiredState::Stopped, None, StartFrom::Newest).await.map_err(fault)?;
            match info.state {
                JobState::Stopped | JobState::Failed | JobState::Finished | JobState::Created => {}
                JobState::Starting | JobState::Running | JobState::Degraded | JobState::Stopping => {
                    engine.hub.wait(&id, WaitFor::Stopped, STOP_PATIENCE).await.map_err(fault)?;
                }
            }
            engine.hub.set_desired(&id, DesiredState::Running, None, StartFrom::Newest).await.map_err(fault)?;
            vec![first_look(engine, &id).await]
        }
    };
    Ok(done("ALTER JOB", notes))
}

/// Waits for a stop and says how it went; a slow one goes on by itself.
async fn stopped(engine: &Engine, id: &JobId) -> String {
    match engine.hub.wait(id, WaitFor::Stopped, STOP_PATIENCE).await {
        Ok(info) => format!("job '{id}' is {}", info.state),
        Err(error) => match engine.hub.job(id) {
            Ok(info) => format!("job '{id}' is {}: {error}", info.state),
            Err(error) => error.to_string(),
        },
    }
}

pub(super) async fn drop_object(engine: &Engine, kind: ObjectKind, name: &Named, if_exists: bool, cascade: bool) -> Result<Outcome, Error> {
    let tag = match kind {
        ObjectKind::Job => "DROP JOB",
        ObjectKind::Source => "DROP SOURCE",
        ObjectKind::Sink => "DROP SINK",
    };
    let dropped = match kind {
        ObjectKind::Job => match JobId::new(name.text.clone()) {
            Ok(id) => engine.hub.drop_job(&id).await.map(|()| Vec::new()),
            Err(_) => Err(HubError::NotFound { kind: "job", name: name.text.clone() }),
        },
        ObjectKind::Source | ObjectKind::Sink => engine.hub.drop_entry(kind.word(), &name.text, cascade).await,
    };
    match dropped {
        Ok(jobs) => Ok(done(tag, jobs.iter().map(|job| format!("drop cascades to job '{job}'")).collect())),
        Err(HubError::NotFound { .. }) if if_exists => {
            Ok(done(tag, vec![format!("{} '{}' does not exist, skipping", kind.word(), name.text)]))
        }
        Err(error) => Err(of_hub(error, Some(name.position))),
    }
}

pub(super) async fn wait(engine: &Engine, job: &Named, until: WaitFor, timeout: Duration) -> Result<Outcome, Error> {
    let id = job_id(job)?;
    engine.hub.wait(&id, until, timeout).await.map_err(|error| of_hub(error, Some(job.position)))?;
    Ok(done("WAIT", Vec::new()))
}

/// The hub's refusal as a Postgres error.
pub(crate) fn of_hub(error: HubError, position: Option<usize>) -> Error {
    let message = error.to_string();
    let found = match error {
        HubError::Invalid(faults) => match faults.0.first() {
            Some(fault) => of_fault(fault, 1),
            None => Error::new(sqlstate::INVALID_PARAMETER_VALUE, message),
        },
        HubError::NotFound { kind, .. } => {
            let hint = match kind {
                "source" => "SHOW SOURCES lists them",
                "sink" => "SHOW SINKS lists them",
                _ => "SHOW JOBS lists them",
            };
            Error::new(sqlstate::UNDEFINED_OBJECT, message).with_hint(hint)
        }
        HubError::Exists { .. } => Error::new(sqlstate::DUPLICATE_OBJECT, message)
            .with_hint("sources, sinks and jobs share one set of names; IF NOT EXISTS keeps what is there"),
        HubError::Conflict(_) => Error::new(sqlstate::OBJECT_NOT_IN_STATE, message),
        HubError::InUse { .. } => Error::new(sqlstate::DEPENDENT_OBJECTS, message)
            .with_hint("drop those jobs first, or use DROP … CASCADE, which stops and drops them"),
        HubError::JobFailed { .. } => {
            return Error::new(sqlstate::OBJECT_NOT_IN_STATE, message).with_hint("SELECT * FROM weir.job_events tells how it came about");
        }
        HubError::Timeout(_) => {
            return Error::new(sqlstate::QUERY_CANCELED, message)
                .with_hint("SHOW JOBS tells how the job stands; TIMEOUT '5m' waits longer");
        }
        HubError::Unavailable(_) => return Error::new(sqlstate::CANNOT_CONNECT_NOW, message),
        HubError::Refused(failure) => {
            let state = match failure.class {
                Class::User => sqlstate::INVALID_PARAMETER_VALUE,
                Class::Retry | Class::Fenced => sqlstate::OBJECT_NOT_IN_STATE,
                Class::Corrupt => sqlstate::DATA_CORRUPTED,
                Class::Bug => sqlstate::INTERNAL_ERROR,
            };
            Error::new(state, message)
        }
        HubError::Store { class, .. } => {
            return Error::new(
                match class {
                    Class::Corrupt => sqlstate::DATA_CORRUPTED,
                    Class::Retry => sqlstate::DISK_FULL,
                    Class::User | Class::Fenced | Class::Bug => sqlstate::INTERNAL_ERROR,
                },
                message,
            );
        }
    };
    Error { position: position.or(found.position), ..found }
}

/// A job by the name in a statement.
pub(crate) fn job(engine: &Engine, name: &Named) -> Result<std::sync::Arc<JobInfo>, Error> {
    engine.hub.job(&job_id(name)?).map_err(|error| of_hub(error, Some(name.position)))
}
