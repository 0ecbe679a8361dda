//! `weir validate`, `weir explain` and `weir components`: documents to faults and plans, nothing started (JOB-8).

use crate::config::PlanFormat;
use crate::control::on_control;
use crate::stack::Scratch;
use anyhow::Context;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use weir_frontend::sql::{Engine, Rehearsed};
use weir_frontend::yaml::{in_order, masked, report};
use weir_planner::check::columns::pending;
use weir_planner::compile::plan_if_known;
use weir_planner::error::{Fault, Place};
use weir_planner::explain;
use weir_planner::plan::JobPlan;
use weir_planner::spec::{Horizon, JobSpec};

/// Exit code of an invalid document.
const INVALID: u8 = 2;

/// A job of a file, checked and built as its start would, without connecting.
pub struct Loaded {
    /// Bound, but for what reads columns that are not known yet.
    pub spec: JobSpec,
    /// `None` while columns of a source are not known (JOB-6).
    pub plan: Option<JobPlan>,
    /// Where its fields stand in the text.
    pub places: BTreeMap<String, Place>,
}

/// What became of a file. Faults have been printed.
pub enum Load {
    /// All is well.
    Jobs(Vec<Loaded>),
    /// The document is wrong.
    Invalid,
    /// The document is right, but something that it asks for cannot be built.
    Unbuildable,
}

/// A file up to one byte more than `most`, so that a device or a file of data is refused for its length and not held.
///
/// Errors: the file cannot be read.
fn bounded(file: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", file.display());
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).with_context(cannot)?;
    opened.take(most as u64 + 1).read_to_end(&mut bytes).with_context(cannot)?;
    Ok(bytes)
}

/// Reads a YAML file; binds, compiles and builds its jobs, and prints notices and every fault of all of them.
///
/// Errors: the file cannot be read.
pub fn load(file: &Path) -> anyhow::Result<Load> {
    let name = file.display().to_string();
    let bytes = bounded(file, weir_frontend::yaml::BYTES_MAX)?;
    let mut document = match weir_frontend::yaml::parse_bytes(&bytes) {
        Ok(document) => document,
        Err(faults) => {
            print_faults(&name, &faults);
            return Ok(Load::Invalid);
        }
    };
    let mut faults = document.bind();
    if document.jobs.is_empty() {
        let fault = Fault::new("no_job", "", "the document has no job and no stream");
        faults.push(fault.with_hint("add an entry under jobs: or streams:"));
    }
    let mut unbuildable = Vec::new();
    let mut jobs = Vec::new();
    for (at, spec) in document.jobs.iter().enumerate() {
        for notice in weir_planner::check::notices(spec) {
            eprintln!("{name}: notice: job {}: {notice}", spec.id);
        }
        match plan_if_known(spec, Horizon::Local) {
            Ok(plan) => {
                let found = plan.iter().flat_map(|plan| weir_agent::rehearsal::check(spec, plan));
                unbuildable.extend(found.map(|fault| document.locate(at, fault)));
                jobs.push(Loaded { spec: spec.clone(), plan, places: document.places(at) });
            }
            Err(found) => faults.extend(document.found(at, found.0)),
        }
    }
    print_faults(&name, &faults);
    print_faults(&name, &unbuildable);
    Ok(match (faults.is_empty(), unbuildable.is_empty()) {
        (false, _) => Load::Invalid,
        (true, false) => Load::Unbuildable,
        (true, true) => Load::Jobs(jobs),
    })
}

/// Prints each fault on standard error, with its place first, in the order of the text.
pub fn print_faults(document: &str, faults: &[Fault]) {
    eprint!("{}", report(document, &in_order(faults.to_vec())));
}

/// The jobs of a file, or of a SQL text; `None` when something was wrong, which has been printed.
fn read(what: &str) -> anyhow::Result<Option<Vec<Loaded>>> {
    let path = Path::new(what);
    if is_sql(what) {
        return sql_plans(what, &std::fs::read_to_string(path).with_context(|| format!("cannot read {what}"))?);
    }
    Ok(match load(path)? {
        Load::Jobs(jobs) => Some(jobs),
        Load::Invalid | Load::Unbuildable => None,
    })
}

/// `weir validate FILE`.
pub fn validate(file: &Path) -> anyhow::Result<ExitCode> {
    let name = file.display().to_string();
    let Some(jobs) = read(&name)? else { return Ok(ExitCode::from(INVALID)) };
    for Loaded { spec, plan, .. } in &jobs {
        match plan {
            Some(plan) => println!("{name}: job {} is valid: {} tasks in {} chains", plan.job, plan.tasks().len(), plan.chains.len()),
            None => {
                let sources = pending(spec).iter().map(|source| source.operator_id.as_str()).collect::<Vec<_>>().join(", ");
                println!("{name}: job {} is valid; the columns of {sources} are unchecked until its first start", spec.id);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `weir explain FILE|SQL`.
pub fn explain(what: &str, format: PlanFormat) -> anyhow::Result<ExitCode> {
    let jobs = if is_sql(what) || Path::new(what).is_file() { read(what)? } else { sql_plans("sql", what)? };
    let Some(jobs) = jobs else { return Ok(ExitCode::from(INVALID)) };
    match format {
        PlanFormat::Text => jobs.iter().for_each(|job| {
            print!("{}", job.plan.as_ref().map_or_else(|| explain::pending::text(&job.spec), explain::text));
        }),
        // A DOT file may hold several graphs.
        PlanFormat::Dot => jobs.iter().for_each(|job| {
            print!("{}", job.plan.as_ref().map_or_else(|| explain::pending::dot(&job.spec), explain::dot));
        }),
        // A JSON text holds one value: the plan, or the list of several.
        PlanFormat::Json => {
            let one = |job: &Loaded| match &job.plan {
                Some(plan) => masked(&explain::json(plan)),
                None => explain::pending::to_json(&job.spec),
            };
            let mut plans: Vec<_> = jobs.iter().map(one).collect();
            let json = if plans.len() == 1 { plans.remove(0) } else { plans.into() };
            println!("{}", serde_json::to_string_pretty(&json)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `weir components`: what can stand in a document, each with its options.
pub fn components() -> anyhow::Result<()> {
    for card in weir_agent::connector::cards().into_iter().chain(weir_agent::format::cards()).chain(weir_frontend::streams::cards()) {
        println!("{} ({})", card.name, card.role);
        for (option, ty, default) in &card.options {
            let default = if default.is_empty() { "required".to_owned() } else { format!("default {default}") };
            println!("    {option:<24} {ty:<20} {default}");
        }
    }
    Ok(())
}

fn is_sql(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sql"))
}

/// Plans the jobs of a SQL script on a hub of its own in a directory that is removed afterwards:
/// the path from text to plan is the real one, and nothing runs. `None` when a statement was
/// wrong; it has been printed.
fn sql_plans(name: &str, text: &str) -> anyhow::Result<Option<Vec<Loaded>>> {
    let scratch = Scratch::make()?;
    on_control(async {
        let hub = crate::stack::open_hub(&scratch.0, crate::config::LEASE, None).await?;
        let engine = crate::stack::engine(&hub)?;
        let outcome = rehearse(&engine, text).await;
        hub.close().await;
        Ok(outcome.inspect_err(|error| print_sql_error(name, text, error)).ok())
    })
}

async fn rehearse(engine: &Engine, text: &str) -> Result<Vec<Loaded>, weir_frontend::error::Error> {
    let mut jobs = Vec::new();
    for statement in weir_frontend::sql::parse(text)? {
        match engine.rehearse(&statement).await? {
            Rehearsed::Made => {}
            Rehearsed::Pending { source } => {
                eprintln!(
                    "notice: source '{source}' declares no columns: CREATE SOURCE takes them from its first rows, which this does not look at"
                );
            }
            Rehearsed::Planned(spec, plan) => jobs.push(Loaded { spec: *spec, plan: Some(*plan), places: BTreeMap::new() }),
            Rehearsed::Unchecked { job, sources } => {
                eprintln!(
                    "notice: job '{job}' has no plan yet: columns unknown until source {} takes them from its first rows; functions and form are checked",
                    sources.join(", ")
                );
            }
        }
    }
    Ok(jobs)
}

/// Whether a line names an option that holds a secret, or a URL with credentials in it (CON-3).
fn may_hold_secret(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    weir_planner::secret::is_secret(&lower) || lower.contains("headers.") || lower.contains("://")
}

/// The error with the line that it points at and a caret, as psql draws it.
fn print_sql_error(name: &str, text: &str, error: &weir_frontend::error::Error) {
    eprintln!("{name}: {}: {}", error.sqlstate, error.message);
    if let Some(position) = error.position {
        let before: String = text.chars().take(position.saturating_sub(1)).collect();
        let line_number = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        if let Some(line) = text.lines().nth(line_number) {
            let label = format!("LINE {}: ", line_number + 1);
            if may_hold_secret(line) {
                eprintln!("{label}{} (the line may hold a secret and is not repeated; column {})", weir_planner::secret::MASK, column + 1);
            } else {
                eprintln!("{label}{line}\n{}^", " ".repeat(label.len() + column));
            }
        }
    }
    for (what, extra) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(extra) = extra {
            eprintln!("    {what}: {extra}");
        }
    }
}
