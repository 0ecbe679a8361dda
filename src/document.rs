//! `weir validate`, `weir explain` and `weir components`: documents to faults and plans, nothing started (JOB-8).

use crate::config::PlanFormat;
use crate::control::on_control;
use crate::stack::Scratch;
use anyhow::Context;
use std::path::Path;
use std::process::ExitCode;
use weir_frontend::sql::Engine;
use weir_planner::error::Fault;
use weir_planner::plan::JobPlan;
use weir_planner::spec::{Horizon, JobSpec};

/// Exit code of an invalid document.
const INVALID: u8 = 2;

/// Reads a YAML file, binds and compiles its jobs; notices and faults are printed. `None` when there were faults.
///
/// Errors: the file cannot be read.
pub fn load_plans(file: &Path) -> anyhow::Result<Option<Vec<(JobSpec, JobPlan)>>> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    let faults = match weir_frontend::yaml::parse_bytes(&bytes) {
        Err(faults) => faults,
        Ok(mut document) => {
            let mut faults = document.bind();
            let mut plans = Vec::new();
            for (at, spec) in document.jobs.iter().enumerate() {
                for notice in weir_planner::check::notices(spec) {
                    eprintln!("{name}: notice: {notice}");
                }
                match weir_planner::compile::compile(spec, Horizon::Local) {
                    Ok(plan) => plans.push((spec.clone(), plan)),
                    // What could not be bound has been told already, with the reason.
                    Err(found) => {
                        faults.extend(found.0.into_iter().filter(|fault| fault.code != "unbound").map(|fault| document.locate(at, fault)))
                    }
                }
            }
            if faults.is_empty() {
                return Ok(Some(plans));
            }
            faults
        }
    };
    print_faults(&name, &faults);
    Ok(None)
}

/// Whether a plan cannot be built, by the dry run of its connectors and its graph; the faults are printed.
pub fn unbuildable<'a>(file: &Path, plans: impl Iterator<Item = &'a JobPlan>) -> bool {
    let name = file.display().to_string();
    let mut found = false;
    for plan in plans {
        let faults = weir_agent::rehearsal::check(plan);
        found |= !faults.is_empty();
        print_faults(&format!("{name}: job {}", plan.job), &faults);
    }
    found
}

/// Prints each fault on standard error, with its place first.
fn print_faults(document: &str, faults: &[Fault]) {
    for fault in faults {
        match fault.place {
            Some(place) => eprint!("{document}:{}:{}: ", place.line, place.column),
            None => eprint!("{document}: "),
        }
        if !fault.path.is_empty() {
            eprint!("{}: ", fault.path);
        }
        eprintln!("{}", fault.message);
        if !fault.hint.is_empty() {
            eprintln!("    hint: {}", fault.hint);
        }
    }
}

/// `weir validate FILE`.
pub fn validate(file: &Path) -> anyhow::Result<ExitCode> {
    let name = file.display().to_string();
    if is_sql(&name) {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        return sql_plans(&name, &text).map(|plans| report_valid(&name, plans.as_deref()));
    }
    Ok(report_valid(&name, plans_of(load_plans(file)?).as_deref()))
}

/// `weir explain FILE|SQL`.
pub fn explain(what: &str, format: PlanFormat) -> anyhow::Result<ExitCode> {
    let path = Path::new(what);
    let plans = if is_sql(what) {
        sql_plans(what, &std::fs::read_to_string(path).with_context(|| format!("cannot read {what}"))?)?
    } else if path.is_file() {
        plans_of(load_plans(path)?)
    } else {
        sql_plans("sql", what)?
    };
    let Some(plans) = plans else { return Ok(ExitCode::from(INVALID)) };
    match format {
        PlanFormat::Text => plans.iter().for_each(|plan| print!("{}", weir_planner::explain::text(plan))),
        // A DOT file may hold several graphs.
        PlanFormat::Dot => plans.iter().for_each(|plan| print!("{}", weir_planner::explain::dot(plan))),
        // A JSON text holds one value: the plan, or the list of several.
        PlanFormat::Json => {
            let mut plans: Vec<_> = plans.iter().map(|plan| weir_frontend::yaml::masked(&weir_planner::explain::json(plan))).collect();
            let json = if plans.len() == 1 { plans.remove(0) } else { plans.into() };
            println!("{}", serde_json::to_string_pretty(&json)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `weir components`.
pub fn components() -> anyhow::Result<()> {
    for card in weir_agent::connector::cards() {
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

fn report_valid(name: &str, plans: Option<&[JobPlan]>) -> ExitCode {
    let Some(plans) = plans else { return ExitCode::from(INVALID) };
    if unbuildable(Path::new(name), plans.iter()) {
        return ExitCode::from(INVALID);
    }
    for plan in plans {
        println!("{name}: job {} is valid: {} tasks in {} chains", plan.job, plan.tasks().len(), plan.chains.len());
    }
    ExitCode::SUCCESS
}

fn plans_of(loaded: Option<Vec<(JobSpec, JobPlan)>>) -> Option<Vec<JobPlan>> {
    Some(loaded?.into_iter().map(|(_, plan)| plan).collect())
}

/// Plans the jobs of a SQL script on a hub of its own in a directory that is removed afterwards:
/// the path from text to plan is the real one, and nothing runs. `None` when a statement was
/// wrong; it has been printed.
fn sql_plans(name: &str, text: &str) -> anyhow::Result<Option<Vec<JobPlan>>> {
    let scratch = Scratch::make()?;
    on_control(async {
        let hub = crate::stack::open_hub(&scratch.0, crate::config::LEASE, None).await?;
        let engine = crate::stack::engine(&hub)?;
        let outcome = rehearse(&engine, text).await;
        hub.close().await;
        Ok(outcome.inspect_err(|error| print_sql_error(name, text, error)).ok())
    })
}

async fn rehearse(engine: &Engine, text: &str) -> Result<Vec<JobPlan>, weir_frontend::error::Error> {
    let mut plans = Vec::new();
    for statement in weir_frontend::sql::parse(text)? {
        plans.extend(engine.rehearse(&statement).await?);
    }
    Ok(plans)
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
            eprintln!("{label}{line}\n{}^", " ".repeat(label.len() + column));
        }
    }
    for (what, extra) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(extra) = extra {
            eprintln!("    {what}: {extra}");
        }
    }
}
