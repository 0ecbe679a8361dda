//! DataFusion over system tables, `pg_catalog`, and the agents' reads.
//!
//! A statement is planned against a snapshot of what exists when it starts: [`scope`] lists it,
//! [`catalog`] shows it to DataFusion. Nothing here writes; what would is refused.

mod aside;
mod catalog;
mod cells;
mod fault;
mod functions;
mod information_schema;
mod names;
mod parameters;
mod pg_catalog;
mod results;
mod rewrite;
mod scope;
mod system;

use crate::error::{Error, sqlstate};
use crate::sql::{Described, Outcome};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use datafusion::common::ParamValues;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as Planned;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sqlparser::ast::Statement;
use std::sync::Arc;
use weir_hub::Hub;
use weir_planner::connector::ConnectorCard;
use weir_planner::protocol::ReadRequest;

pub(crate) use fault::from_datafusion;
pub(crate) use functions::{SERVER_VERSION, SETTINGS, setting};
pub(crate) use pg_catalog::types;
pub use scope::SessionFacts;

/// Memory that all queries of a process share; one that needs more is refused with `53200`.
pub const MEMORY_BYTES_MAX: usize = 512 << 20;

/// How stored rows are read: in process, or relayed by the hub. The answer is an Arrow IPC stream.
#[async_trait::async_trait]
pub trait Reads: Send + Sync + 'static {
    /// Starts a read; `request.id` is chosen by the receiver.
    ///
    /// Errors: text for people, such as that no agent holds the job now.
    async fn read(&self, request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String>;
}

/// Runs SELECT, VALUES and EXPLAIN of these. Cheap to clone.
#[derive(Clone)]
pub struct Queries {
    hub: Hub,
    reads: Arc<dyn Reads>,
    connectors: Arc<[ConnectorCard]>,
    base: Arc<SessionState>,
    session: SessionFacts,
}

impl Queries {
    /// Functions, configuration and the memory limit are made once and shared by all queries.
    ///
    /// Errors: `XX000` when DataFusion's runtime cannot be built.
    pub fn new(hub: Hub, reads: Arc<dyn Reads>, connectors: Vec<ConnectorCard>) -> Result<Queries, Error> {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_limit(MEMORY_BYTES_MAX, 1.0)
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()
            .map_err(|error| from_datafusion(&error, ""))?;
        // One partition: queries share the machine with jobs, and rows come in a stable order.
        let mut config = SessionConfig::new()
            .with_target_partitions(1)
            .with_default_catalog_and_schema(scope::CATALOG, scope::PUBLIC)
            .with_create_default_catalog_and_schema(false);
        // Without it TIMESTAMPTZ and now() would lose their zone.
        config.options_mut().execution.time_zone = Some("+00:00".to_owned());
        let parser = &mut config.options_mut().sql_parser;
        parser.collect_spans = true;
        parser.map_string_types_to_utf8view = false;
        parser.parse_float_as_decimal = true;
        let base = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_physical_optimizer_rule(Arc::new(aside::YieldingJoins))
            .build();
        Ok(Queries { hub, reads, connectors: connectors.into(), base: Arc::new(base), session: SessionFacts::default() })
    }

    /// The same queries for one session.
    #[must_use]
    pub fn for_session(&self, session: SessionFacts) -> Queries {
        Queries { session, ..self.clone() }
    }

    /// Plans and starts a query. Rows are made as the stream is read.
    ///
    /// Errors: `42601`, `42P01`, `42703`, `42883`, … with the position in `text`, which is the
    /// whole text that `statement` was parsed from.
    ///
    /// Cancel: safe to drop, as is the stream.
    pub fn run(&self, statement: &Statement, text: &Arc<str>, parameters: &[ScalarValue]) -> BoxFuture<'static, Result<Outcome, Error>> {
        let (queries, statement, text) = (self.clone(), statement.clone(), Arc::clone(text));
        let parameters = parameters.to_vec();
        Box::pin(aside::beside(async move {
            match explained(&statement)? {
                Some(inner) => queries.explain(inner, &text, parameters).await,
                None => queries.select(statement, &text, parameters).await,
            }
        }))
    }

    /// Types of the parameters (the client's hint, else what the query asks for, else TEXT) and
    /// the columns.
    ///
    /// Errors: as `run`.
    pub fn describe(
        &self,
        statement: &Statement,
        text: &Arc<str>,
        hints: &[Option<DataType>],
    ) -> BoxFuture<'static, Result<Described, Error>> {
        let (queries, statement, text) = (self.clone(), statement.clone(), Arc::clone(text));
        let hints = hints.to_vec();
        Box::pin(aside::beside(async move {
            let inner = explained(&statement)?;
            let is_explain = inner.is_some();
            let statement = inner.unwrap_or(statement);
            let state = queries.state();
            let (plan, labels) = queries.plan(&state, statement, &text).await?;
            let fault = |error| from_datafusion(&error, &text);
            let wanted = parameters::wanted(&plan).map_err(fault)?;
            let number = |name: &String| name.trim_start_matches('$').parse::<usize>().unwrap_or(0);
            let count = wanted.keys().map(number).max().unwrap_or(0).max(hints.len());
            let of = |i: usize| {
                let hinted = hints.get(i).cloned().flatten();
                hinted.or_else(|| wanted.get(&format!("${}", i + 1)).cloned().flatten()).unwrap_or(DataType::Utf8)
            };
            let parameters: Vec<DataType> = (0..count).map(of).collect();
            let nulls: Result<Vec<ScalarValue>, _> = parameters.iter().map(ScalarValue::try_from).collect();
            let plan = bind(plan, nulls.map_err(fault)?).map_err(fault)?;
            let columns = if is_explain { explain_schema() } else { labels.apply(plan.schema().as_arrow()) };
            Ok(Described { parameters, columns: Some(columns) })
        }))
    }

    fn state(&self) -> SessionState {
        let scope = Arc::new(scope::Scope::take(&self.hub, &self.reads, &self.connectors, &self.session));
        let functions = functions::all(&scope);
        let catalogs = Arc::new(catalog::Catalogs::new(scope));
        let mut state = SessionStateBuilder::new_from_existing((*self.base).clone()).with_catalog_list(catalogs).build();
        for function in functions {
            // A session's own functions go over built-in ones of the same name.
            let _ = datafusion::execution::FunctionRegistry::register_udf(&mut state, function);
        }
        // Gives the statement its one `now()`.
        state.mark_start_execution();
        state
    }

    async fn plan(&self, state: &SessionState, mut statement: Statement, text: &str) -> Result<(LogicalPlan, names::Labels), Error> {
        refuse_writes(&statement)?;
        let labels = names::Labels::of(&mut statement);
        rewrite::postgres(&mut statement);
        let looked_for = fault::relations(&statement);
        let planned = Planned::Statement(Box::new(statement));
        let plan = state.statement_to_plan(planned).await.map_err(|error| fault::of_plan(&error, text, &looked_for, state))?;
        let reads_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        reads_only.verify_plan(&plan).map_err(|error| from_datafusion(&error, text))?;
        Ok((plan, labels))
    }

    async fn select(&self, statement: Statement, text: &Arc<str>, parameters: Vec<ScalarValue>) -> Result<Outcome, Error> {
        let state = self.state();
        let (plan, labels) = self.plan(&state, statement, text).await?;
        let fault = |error| from_datafusion(&error, text);
        let plan = bind(plan, parameters).map_err(fault)?;
        let schema = labels.apply(plan.schema().as_arrow());
        let physical = state.create_physical_plan(&plan).await.map_err(fault)?;
        let task = Arc::new(TaskContext::from(&state));
        let stream = aside::aside(execute_stream(physical, task).map_err(fault)?);
        Ok(Outcome::Rows { schema: Arc::clone(&schema), stream: relabel(stream, schema), tag: None })
    }

    async fn explain(&self, statement: Statement, text: &Arc<str>, parameters: Vec<ScalarValue>) -> Result<Outcome, Error> {
        let state = self.state();
        let (plan, _) = self.plan(&state, statement, text).await?;
        let fault = |error| from_datafusion(&error, text);
        let plan = bind(plan, parameters).map_err(fault)?;
        let optimized = state.optimize(&plan).map_err(fault)?;
        let physical = state.create_physical_plan(&plan).await.map_err(fault)?;
        let shown =
            format!("Logical plan\n{}\nPhysical plan\n{}", optimized.display_indent(), displayable(physical.as_ref()).indent(false));
        let schema = explain_schema();
        let lines = arrow::array::StringArray::from(shown.lines().collect::<Vec<_>>());
        let batch =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(lines)]).map_err(|error| from_datafusion(&error.into(), text))?;
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter([Ok(batch)]));
        Ok(Outcome::Rows { schema, stream: Box::pin(stream), tag: Some("EXPLAIN") })
    }
}

/// The statement inside an EXPLAIN, or nothing for other statements.
fn explained(statement: &Statement) -> Result<Option<Statement>, Error> {
    match statement {
        Statement::Explain { analyze: true, .. } => {
            Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "EXPLAIN ANALYZE is not available").with_hint("use EXPLAIN"))
        }
        Statement::Explain { statement, .. } => Ok(Some((**statement).clone())),
        _ => Ok(None),
    }
}

fn refuse_writes(statement: &Statement) -> Result<(), Error> {
    match statement {
        Statement::Query(query) => match &*query.body {
            sqlparser::ast::SetExpr::Insert(_)
            | sqlparser::ast::SetExpr::Update(_)
            | sqlparser::ast::SetExpr::Delete(_)
            | sqlparser::ast::SetExpr::Merge(_) => Err(writes("rows are written by jobs only")),
            _ => Ok(()),
        },
        Statement::Insert(_) | Statement::Update { .. } | Statement::Delete(_) | Statement::Merge { .. } | Statement::Truncate { .. } => {
            Err(writes("rows are written by jobs only"))
        }
        _ => Err(writes("this statement is not available")),
    }
}

fn writes(message: &str) -> Error {
    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
        .with_hint("CREATE JOB … AS SELECT … computes rows; SELECT reads result tables and the tables of schema weir")
}

fn bind(plan: LogicalPlan, values: Vec<ScalarValue>) -> datafusion::error::Result<LogicalPlan> {
    if values.is_empty() { Ok(plan) } else { plan.with_param_values(ParamValues::from(values)) }
}

fn explain_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![arrow::datatypes::Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

/// The same batches under the names and types that the client was told.
fn relabel(stream: SendableRecordBatchStream, schema: SchemaRef) -> SendableRecordBatchStream {
    let told = Arc::clone(&schema);
    let batches = stream.map(move |batch| {
        let batch = batch?;
        let cast = |(column, field): (&arrow::array::ArrayRef, &arrow::datatypes::FieldRef)| {
            if column.data_type() == field.data_type() { Ok(Arc::clone(column)) } else { arrow::compute::cast(column, field.data_type()) }
        };
        let columns: Result<Vec<_>, _> = batch.columns().iter().zip(told.fields()).map(cast).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&told), columns?, &options)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}
