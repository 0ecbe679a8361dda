//! The snapshot as DataFusion wants to see it: catalog, schemas, tables.

use super::scope::{self, RelationKind, Scope};
use super::{information_schema, pg_catalog, results, system};
use crate::error::{Error, sqlstate};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::{DataFusionError, Result};
use std::fmt;
use std::sync::Arc;
use weir_hub::hub::{CatalogObject, JobInfo};
use weir_planner::state;

/// The one catalog, under its own name and the name of the database that the client asked for.
pub(super) struct Catalogs(Arc<Scope>);

impl Catalogs {
    pub fn new(scope: Arc<Scope>) -> Self {
        Catalogs(scope)
    }

    pub fn scope(&self) -> &Scope {
        &self.0
    }
}

impl fmt::Debug for Catalogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Catalogs")
    }
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(&self, _: String, _: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![scope::CATALOG.to_owned(), STATE.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        if name == STATE && self.0.session.database != STATE {
            return Some(Arc::new(States(Arc::clone(&self.0))));
        }
        let known = name == scope::CATALOG || name == self.0.session.database;
        known.then(|| Arc::new(Database(Arc::clone(&self.0))) as Arc<dyn CatalogProvider>)
    }
}

/// Catalog of state tables: a schema for each job, a table for each of its operators that keeps something (ST-1).
const STATE: &str = "state";

struct States(Arc<Scope>);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("States")
    }
}

impl CatalogProvider for States {
    fn schema_names(&self) -> Vec<String> {
        self.0.jobs.iter().map(|job| job.id.to_string()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let job = self.0.job(name)?;
        Some(Arc::new(StateOf { job: Arc::clone(job), scope: Arc::clone(&self.0) }))
    }
}

struct StateOf {
    job: Arc<JobInfo>,
    scope: Arc<Scope>,
}

impl fmt::Debug for StateOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateOf({})", self.job.id)
    }
}

#[async_trait]
impl SchemaProvider for StateOf {
    fn table_names(&self) -> Vec<String> {
        self.job.plan.iter().flat_map(|plan| state::tables(plan)).map(|(operator, _)| operator.to_string()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(plan) = &self.job.plan else { return Ok(None) };
        let Some((operator, table)) = state::tables(plan).find(|(operator, _)| operator.as_str() == name) else { return Ok(None) };
        Ok(Some(stored(&self.job, results::StoredTable::state(&self.job, plan, operator, table, Arc::clone(&self.scope.reads)))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

/// A table of rows that the agent of a job has. A job that never ran has no agent to ask, and no rows.
fn stored(job: &JobInfo, table: results::StoredTable) -> Arc<dyn TableProvider> {
    match job.agent.is_none() && job.started_at_ms.is_none() {
        true => Arc::new(EmptyTable::new(table.schema())),
        false => Arc::new(table),
    }
}

struct Database(Arc<Scope>);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

impl CatalogProvider for Database {
    fn schema_names(&self) -> Vec<String> {
        SCHEMAS.iter().map(|name| (*name).to_owned()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let name = SCHEMAS.iter().find(|known| **known == name)?;
        Some(Arc::new(Namespace { name, scope: Arc::clone(&self.0) }))
    }
}

/// Schemas of the database.
pub(super) const SCHEMAS: [&str; 4] = [scope::PUBLIC, scope::WEIR, scope::PG_CATALOG, scope::INFORMATION_SCHEMA];

struct Namespace {
    name: &'static str,
    scope: Arc<Scope>,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({})", self.name)
    }
}

#[async_trait]
impl SchemaProvider for Namespace {
    fn table_names(&self) -> Vec<String> {
        self.scope.relations().into_iter().filter(|relation| relation.schema == self.name).map(|relation| relation.name).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.name {
            scope::WEIR => system::table(&self.scope, name),
            scope::PG_CATALOG => pg_catalog::table(&self.scope, name),
            scope::INFORMATION_SCHEMA => information_schema::table(&self.scope, name),
            _ => match public(&self.scope, name)? {
                // As in Postgres, pg_catalog is always on the search path.
                None => pg_catalog::table(&self.scope, name),
                some => Ok(some),
            },
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.scope.relations().iter().any(|relation| relation.schema == self.name && relation.name == name)
    }
}

fn public(scope: &Arc<Scope>, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let refuse = |error: Error| Err(DataFusionError::External(Box::new(error)));
    if let Some(job) = scope.job(name) {
        return match scope::result_table(job) {
            Some((schema, replaces_by)) => {
                let table = results::StoredTable::new(job.id.clone(), schema.clone(), Arc::clone(&scope.reads));
                Ok(Some(stored(job, table.replacing(replaces_by))))
            }
            None if job.plan.is_none() && scope::keeps_result(job) => refuse(
                Error::new(sqlstate::OBJECT_NOT_IN_STATE, format!("the columns of job '{name}' are not known until it starts"))
                    .with_hint(format!("they are taken from the rows of its source at the first start: RESUME JOB {name}")),
            ),
            None => {
                let sinks = scope::sink_names(job, &scope.entries).join(", ");
                refuse(
                    Error::new(sqlstate::UNDEFINED_TABLE, format!("job '{name}' has no result table"))
                        .with_hint(format!("its rows go to {sinks}; a job without INTO keeps them in a table of its own name")),
                )
            }
        };
    }
    match scope.entry(name).map(|entry| &entry.object) {
        None => Ok(None),
        Some(CatalogObject::Source(_)) => refuse(
            Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("source '{name}' cannot be read by a bare SELECT yet"))
                .with_hint(format!("CREATE JOB j AS SELECT … FROM {name}, then SELECT * FROM j")),
        ),
        Some(CatalogObject::Sink(_)) => refuse(
            Error::new("42809", format!("'{name}' is a sink, which cannot be read"))
                .with_hint("SELECT from the result table of a job, which a job without INTO has"),
        ),
    }
}

/// Names that a reader may have meant, for hints.
pub(super) fn readable_names(scope: &Scope) -> Vec<String> {
    let shown = |relation: scope::Relation| match relation.kind {
        RelationKind::Result => Some(relation.name),
        RelationKind::System => Some(format!("{}.{}", relation.schema, relation.name)),
        RelationKind::Source | RelationKind::Sink | RelationKind::Catalog => None,
    };
    scope.relations().into_iter().filter_map(shown).collect()
}
