//! Life of a statement: text to statements to outcomes.
//!
//! `parse` makes statements (sqlparser's, and ours for sources, sinks and jobs) that keep their
//! place in the text; `Engine::run` does what one asks for. A SELECT over tables goes to
//! [`crate::query`]; `CREATE JOB` is lowered to a JobSpec and handed to the hub.

mod bind;
mod checkpoint;
mod convert;
mod cursor;
mod ddl;
mod duration;
mod explain;
mod fault;
mod flow;
mod functions;
mod limit;
mod lower;
mod parse;
mod place;
mod rank;
mod refuse;
mod rehearse;
mod sample;
mod scope;
mod show;
mod statement;
pub(crate) mod sugar;
mod verb;
mod window;

pub use bind::bind_spec;
pub(crate) use convert::literal;
pub(crate) use flow::{Step, Text, lower as lower_flow};
pub(crate) use limit::on_deep_stack;
pub(crate) use lower::bare;
pub use rehearse::Rehearsed;
pub use sample::{SampleBinder, columns_of};
pub(crate) use show::masked;
pub(crate) use window::WINDOW_FUNCTIONS;

use crate::error::{Error, sqlstate};
use crate::query::{Queries, Reads, SessionFacts};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::BoxFuture;
use place::Places;
use sqlparser::ast;
use statement::Body;
use std::sync::Arc;
use weir_hub::Hub;
use weir_hub::error::Error as HubError;
use weir_planner::connector::ConnectorCard;
use weir_planner::error::{Fault, Faults};
use weir_planner::plan::JobPlan;
use weir_planner::spec::JobSpec;

/// What every session shares. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    /// The hub.
    pub hub: Hub,
    /// How stored rows are read.
    pub reads: Arc<dyn Reads>,
    /// Runs SELECT, VALUES and EXPLAIN of these.
    pub queries: Queries,
    dry_run: DryRun,
}

/// Builds a plan as a start would, without connecting, and gives the faults by their paths in the spec.
pub type DryRun = fn(&JobSpec, &JobPlan) -> Vec<Fault>;

/// What a statement gave.
pub enum Outcome {
    /// A command tag such as `CREATE JOB`, and notices to show.
    Done {
        /// Tag.
        tag: String,
        /// NOTICE messages.
        notices: Vec<String>,
    },
    /// Rows. The tag is `SELECT n`, or `SHOW`/`EXPLAIN` when set.
    Rows {
        /// Columns.
        schema: SchemaRef,
        /// Batches.
        stream: SendableRecordBatchStream,
        /// Tag word when it is not `SELECT n`.
        tag: Option<&'static str>,
    },
}

/// A parameter value of a prepared statement, decoded by the door from its declared or inferred type.
pub type Parameter = datafusion::scalar::ScalarValue;

/// What a statement takes and gives, for the extended protocol.
#[derive(Clone, Debug)]
pub struct Described {
    /// Type of each parameter `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// Columns of the answer; `None` for a statement that gives no rows.
    pub columns: Option<SchemaRef>,
}

/// Parses a text of one or more statements separated by `;`.
///
/// Errors: `42601` with the position.
pub fn parse(text: &str) -> Result<Vec<Statement>, Error> {
    let (places, bodies) = limit::on_deep_stack(|| parse::statements(text))?;
    let places = Arc::new(places);
    Ok(bodies.into_iter().map(|body| Statement { places: Arc::clone(&places), body: Arc::new(body) }).collect())
}

/// One parsed statement with the text that it came from, so that errors can point into it.
#[derive(Clone, Debug)]
pub struct Statement {
    places: Arc<Places>,
    body: Arc<Body>,
}

impl Statement {
    /// The whole text that was parsed.
    pub fn text(&self) -> &str {
        self.places.text()
    }

    /// The statement when it is one of plain Postgres, such as SELECT, SET or BEGIN; `None` for Weir's own.
    pub fn postgres(&self) -> Option<&ast::Statement> {
        match &*self.body {
            Body::Postgres(statement) => Some(statement),
            Body::CreateSource(_) | Body::CreateSink(_) | Body::CreateJob(_) | Body::Explain { .. } | Body::AlterJob { .. } => None,
            Body::Drop { .. } | Body::Show(_) | Body::Describe(_) | Body::Wait { .. } => None,
            Body::Checkpoint { .. } | Body::DropSavepoint { .. } => None,
        }
    }
}

impl Engine {
    /// Makes the functions and limits that all queries share; `connectors` is what `weir.connectors` lists.
    ///
    /// Errors: `XX000` when the query runtime cannot be built.
    pub fn new(hub: Hub, reads: Arc<dyn Reads>, connectors: Vec<ConnectorCard>) -> Result<Engine, Error> {
        let queries = Queries::new(hub.clone(), Arc::clone(&reads), connectors)?;
        Ok(Engine { hub, reads, queries, dry_run: |_, _| Vec::new() })
    }

    /// The same engine, which also has plans built by `dry_run` before it takes them: doors know no connectors.
    #[must_use]
    pub fn with_dry_run(self, dry_run: DryRun) -> Engine {
        Engine { dry_run, ..self }
    }

    /// Checks, compiles and builds a job as its start would, stores nothing and connects to nothing
    /// (JOB-8). A sound spec with a source whose columns are not known yet has no plan.
    ///
    /// Errors: `Invalid` with every fault.
    pub fn validate(&self, spec: &JobSpec) -> Result<Option<JobPlan>, HubError> {
        let plan = self.hub.validate(spec)?;
        let faults: Vec<Fault> = plan.iter().flat_map(|plan| (self.dry_run)(spec, plan)).collect();
        if faults.is_empty() { Ok(plan) } else { Err(Faults(faults).into()) }
    }

    /// The same engine for one session, whose user and database queries may ask for.
    #[must_use]
    pub fn for_session(&self, facts: SessionFacts) -> Engine {
        Engine { queries: self.queries.for_session(facts), ..self.clone() }
    }

    /// Does what a statement asks for.
    ///
    /// Cancel: safe to drop; a verb that the hub has taken is not undone.
    pub fn run<'a>(&'a self, statement: &'a Statement, parameters: &'a [Parameter]) -> BoxFuture<'a, Result<Outcome, Error>> {
        Box::pin(async move {
            let places = &statement.places;
            if !parameters.is_empty() && statement.postgres().is_none() {
                return Err(
                    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "this statement takes no parameters").with_hint("write the values into it")
                );
            }
            match &*statement.body {
                Body::CreateSource(create) => verb::create_source(self, create, places).await,
                Body::CreateSink(create) => verb::create_sink(self, create).await,
                Body::CreateJob(create) => verb::create_job(self, create, places).await,
                Body::Explain { format, job } => verb::explain(self, *format, job, places).await,
                Body::AlterJob { job, change } => verb::alter_job(self, job, *change).await,
                Body::Drop { kind, name, if_exists, cascade } => verb::drop_object(self, *kind, name, *if_exists, *cascade).await,
                Body::Show(show) => show::show(self, show).await,
                Body::Describe(name) => show::describe(self, name),
                Body::Wait { job, until, timeout } => verb::wait(self, job, *until, *timeout).await,
                Body::Checkpoint { job, kind, timeout } => checkpoint::make(self, job, *kind, *timeout).await,
                Body::DropSavepoint { id, position } => checkpoint::drop(self, *id, *position).await,
                Body::Postgres(inner) => match accepted(inner) {
                    Some(tag) => Ok(Outcome::Done { tag: tag.to_owned(), notices: Vec::new() }),
                    None => self.queries.run(inner, places.text(), parameters).await,
                },
            }
        })
    }

    /// Makes the sources and sinks that a statement creates, and plans the job that it creates or
    /// explains without creating it: what `weir validate` and `weir explain` run on a hub of their own (JOB-8).
    ///
    /// Errors: those of [`Engine::run`]; `0A000` for a statement that neither creates nor explains.
    pub fn rehearse<'a>(&'a self, statement: &'a Statement) -> BoxFuture<'a, Result<Rehearsed, Error>> {
        Box::pin(async move {
            match &*statement.body {
                Body::CreateSource(create) => rehearse::source(self, create, &statement.places).await,
                Body::CreateSink(create) => verb::create_sink(self, create).await.map(|_| Rehearsed::Made),
                Body::CreateJob(create) | Body::Explain { job: create, .. } => rehearse::job(self, create, &statement.places),
                Body::AlterJob { .. }
                | Body::Drop { .. }
                | Body::Show(_)
                | Body::Describe(_)
                | Body::Wait { .. }
                | Body::Checkpoint { .. }
                | Body::DropSavepoint { .. }
                | Body::Postgres(_) => Err(Error::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "only CREATE SOURCE, CREATE SINK, CREATE JOB and EXPLAIN CREATE JOB can be checked without running",
                )
                .with_hint("leave the other statements out, or run the script with psql")),
            }
        })
    }

    /// What a statement takes and gives, without running it. `hints` are the types that the
    /// client gave for `$1`, `$2`, …, which go over inferred ones.
    pub fn describe<'a>(&'a self, statement: &'a Statement, hints: &'a [Option<DataType>]) -> BoxFuture<'a, Result<Described, Error>> {
        Box::pin(async move {
            let columns = match &*statement.body {
                Body::CreateSource(_)
                | Body::CreateSink(_)
                | Body::CreateJob(_)
                | Body::AlterJob { .. }
                | Body::Drop { .. }
                | Body::DropSavepoint { .. }
                | Body::Wait { .. } => None,
                Body::Checkpoint { .. } => Some(checkpoint::columns()),
                Body::Explain { .. } => Some(show::explained_columns()),
                Body::Show(show) => Some(show::describe_show(self, show).await?),
                Body::Describe(_) => Some(show::described_columns()),
                Body::Postgres(inner) if accepted(inner).is_some() => None,
                Body::Postgres(inner) => return self.queries.describe(inner, statement.places.text(), hints).await,
            };
            Ok(Described { parameters: Vec::new(), columns })
        })
    }
}

/// The tag of a statement that is accepted and has no effect: every statement is its own
/// transaction, and a door without sessions keeps no settings.
fn accepted(statement: &ast::Statement) -> Option<&'static str> {
    match statement {
        ast::Statement::StartTransaction { .. } => Some("BEGIN"),
        ast::Statement::Commit { .. } => Some("COMMIT"),
        ast::Statement::Rollback { .. } => Some("ROLLBACK"),
        ast::Statement::Savepoint { .. } => Some("SAVEPOINT"),
        ast::Statement::ReleaseSavepoint { .. } => Some("RELEASE"),
        ast::Statement::Set(_) => Some("SET"),
        ast::Statement::Reset(_) => Some("RESET"),
        ast::Statement::Discard { .. } => Some("DISCARD ALL"),
        ast::Statement::Deallocate { .. } => Some("DEALLOCATE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
