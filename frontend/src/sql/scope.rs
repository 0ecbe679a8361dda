//! What names mean while a query is planned: sources of a catalog snapshot, Weir's functions and
//! types. A lookup never waits: the snapshot was taken before.

use super::functions::FUNCTIONS;
use super::rank;
use super::window::WindowPlanner;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, TableReference, not_impl_err};
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::sql::planner::ParserOptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_hub::hub::{CatalogObject, CatalogSnapshot};
use weir_planner::check::columns::schema_of_source;
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::spec::Source;

/// A source as a query sees it.
pub(crate) struct Readable {
    pub source: Arc<Source>,
    pub schema: Schema,
    table: Arc<dyn TableSource>,
}

/// Names of one planning.
pub(crate) struct Scope {
    pub sources: BTreeMap<String, Readable>,
    options: ConfigOptions,
    relations: Vec<Arc<dyn RelationPlanner>>,
    types: Arc<dyn TypePlanner>,
}

impl Scope {
    /// Names of a snapshot.
    pub fn of(snapshot: &CatalogSnapshot) -> Scope {
        let mut sources = BTreeMap::new();
        for (name, entry) in &snapshot.entries {
            if let CatalogObject::Source(source) = &entry.object {
                let schema = schema_of_source(source);
                let table: Arc<dyn TableSource> = Arc::new(LogicalTableSource::new(Arc::new(schema.to_arrow())));
                sources.insert(name.clone(), Readable { source: Arc::new((**source).clone()), schema, table });
            }
        }
        Scope::with(sources)
    }

    /// No tables: for expressions over given columns.
    pub fn empty() -> Scope {
        Scope::with(BTreeMap::new())
    }

    fn with(sources: BTreeMap<String, Readable>) -> Scope {
        Scope { sources, options: ConfigOptions::default(), relations: vec![Arc::new(WindowPlanner)], types: Arc::new(Types) }
    }
}

/// How SQL is read: names fold, text is Utf8, places are kept.
pub(crate) fn parser_options() -> ParserOptions {
    ParserOptions::new().with_collect_spans(true).with_map_string_types_to_utf8view(false)
}

impl ContextProvider for Scope {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.sources.get(name.table()) {
            Some(readable) if matches!(name.schema(), None | Some("public")) => Ok(Arc::clone(&readable.table)),
            _ => Err(DataFusionError::Plan(format!("source '{name}' does not exist"))),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &FUNCTIONS.planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::clone(&self.types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        FUNCTIONS.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        FUNCTIONS.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        rank::named(name)
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        FUNCTIONS.aggregate.keys().map(|name| (*name).to_owned()).collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Type names as columns have them: `TIMESTAMP` is microseconds, as in Postgres, where
/// DataFusion would take nanoseconds.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql: &sqlparser::ast::DataType) -> Result<Option<FieldRef>> {
        match sql.to_string().parse::<ColumnType>() {
            Ok(ty) => Ok(Some(Arc::new(Field::new("", ty.to_arrow(), true)))),
            Err(message) => not_impl_err!("{message}"),
        }
    }
}
