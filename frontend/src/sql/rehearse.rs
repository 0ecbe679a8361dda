//! Statements checked without running them (JOB-8): sources and sinks are made on a hub of their own,
//! jobs are planned, and nothing connects. A source that declares no columns would take them from its
//! rows, so a job that reads it is checked as far as text goes.

use super::ddl::{self, Drafted};
use super::limit::on_deep_stack;
use super::place::Places;
use super::statement::{CreateJob, CreateSource};
use super::verb::{self, now_ms, of_hub, on_exists};
use super::{Engine, refuse, sugar};
use crate::error::Error;
use sqlparser::ast::visit_relations;
use std::ops::ControlFlow;
use weir_hub::hub::{CatalogEntry, CatalogObject, CatalogSnapshot};
use weir_planner::check::columns::is_pending;
use weir_planner::plan::JobPlan;
use weir_planner::spec::JobSpec;

/// What a statement came to.
#[derive(Debug)]
pub enum Rehearsed {
    /// A source or sink is there.
    Made,
    /// A source is there; CREATE SOURCE will take its columns from its rows.
    Pending {
        /// Its name.
        source: String,
    },
    /// A job has a plan.
    Planned(Box<JobSpec>, Box<JobPlan>),
    /// A job reads sources whose columns are not known: only its text was checked.
    Unchecked {
        /// Its name.
        job: String,
        /// Those sources.
        sources: Vec<String>,
    },
}

pub(super) async fn source(engine: &Engine, create: &CreateSource, places: &Places) -> Result<Rehearsed, Error> {
    let pending = match on_deep_stack(|| ddl::source(create, None, places, now_ms()))? {
        Drafted::Known(_) => return verb::create_source(engine, create, places).await.map(|_| Rehearsed::Made),
        Drafted::Pending(source) => source,
    };
    let (name, sql) = (create.name.text.clone(), create.sql.clone());
    let entry = CatalogEntry { name: name.clone(), object: CatalogObject::Source(pending), sql, created_at_ms: now_ms() };
    let made = engine.hub.create_entry(entry, on_exists(create.or_replace, create.if_not_exists)).await;
    made.map_err(|error| of_hub(error, Some(create.name.position)))?;
    Ok(Rehearsed::Pending { source: name })
}

pub(super) fn job(engine: &Engine, create: &CreateJob, places: &Places) -> Result<Rehearsed, Error> {
    let snapshot = engine.hub.catalog();
    let sources = unknown(create, &snapshot);
    if sources.is_empty() {
        return verb::planned(engine, create, places).map(|(lowered, plan)| Rehearsed::Planned(Box::new(lowered.spec), Box::new(plan)));
    }
    on_deep_stack(|| {
        let mut query = create.query.clone();
        sugar::rewrite(&mut query);
        refuse::check(&query, &snapshot, places)
    })?;
    Ok(Rehearsed::Unchecked { job: create.name.text.clone(), sources })
}

/// The sources that a job's query names and whose columns are not known.
fn unknown(create: &CreateJob, snapshot: &CatalogSnapshot) -> Vec<String> {
    let mut found = Vec::new();
    let _ = visit_relations(&create.query, |name| {
        let last = name.0.last().and_then(|part| part.as_ident());
        let folded = last.map(|ident| if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() });
        if let Some(name) = folded
            && let Some(CatalogObject::Source(source)) = snapshot.entries.get(&name).map(|entry| &entry.object)
            && is_pending(source)
            && !found.contains(&name)
        {
            found.push(name);
        }
        ControlFlow::<()>::Continue(())
    });
    found
}
