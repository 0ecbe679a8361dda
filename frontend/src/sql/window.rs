//! Window table functions: `tumble(t, ts, size [, offset])` and the standard
//! `TUMBLE(TABLE t, DESCRIPTOR(ts), size)` become a plan node that adds `window_start`,
//! `window_end` and `window_time` to its input (SQL-2).

use super::duration::interval_parts_ms;
use crate::error::{Error, sqlstate};
use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, Result};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::scalar::ScalarValue;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, Spanned, TableFactor};
use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// Columns that a window adds, in order.
pub(crate) const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// Names of window functions; only the first runs yet.
pub(crate) const WINDOW_FUNCTIONS: [&str; 4] = ["tumble", "hop", "session", "cumulate"];

/// Rows of `input`, each with the tumbling window that holds its event time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tumble {
    pub input: LogicalPlan,
    pub time: Column,
    pub size_ms: i64,
    pub offset_ms: i64,
    /// Line and column of the call, for errors found later.
    pub place: (u64, u64),
    schema: DFSchemaRef,
}

impl PartialOrd for Tumble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.time, self.size_ms, self.offset_ms, self.place).partial_cmp(&(&other.time, other.size_ms, other.offset_ms, other.place))
    }
}

impl UserDefinedLogicalNodeCore for Tumble {
    fn name(&self) -> &str {
        "Tumble"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.time.clone())]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Tumble: time={}, size={} ms, offset={} ms", self.time, self.size_ms, self.offset_ms)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (exprs.pop(), inputs.pop()) {
            (Some(Expr::Column(time)), Some(input)) if exprs.is_empty() && inputs.is_empty() => {
                let schema = with_window_columns(input.schema())?;
                Ok(Tumble { input, time, schema, ..self.clone() })
            }
            _ => Err(DataFusionError::Internal("a window takes one column and one input".to_owned())),
        }
    }
}

fn with_window_columns(input: &DFSchema) -> Result<DFSchemaRef> {
    let mut fields: Vec<_> = input.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
    for name in WINDOW_COLUMNS {
        fields.push((None, Arc::new(Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, None), false))));
    }
    Ok(Arc::new(DFSchema::new_with_metadata(fields, input.metadata().clone())?))
}

/// Knows window functions in FROM.
#[derive(Debug)]
pub(crate) struct WindowPlanner;

impl RelationPlanner for WindowPlanner {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<RelationPlanning> {
        let TableFactor::Table { name, alias, args: Some(args), .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let function = name.to_string().to_lowercase();
        let span = name.span();
        if !WINDOW_FUNCTIONS.contains(&function.as_str()) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let call = Call::read(&function, &args.args).map_err(|error| placed(error, span))?;
        let input = context.plan(call.table)?;
        if has_window(&input) {
            let error = Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "a window over a window is not available yet");
            return Err(placed(error.with_hint("write the finer windows to a sink, and read that in a second job"), span));
        }
        let time_span = call.time.span();
        let time = match context.sql_to_expr(call.time, input.schema())? {
            Expr::Column(column) => column,
            _ => {
                let error =
                    Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("the second argument of {function} is the time column's name"));
                return Err(placed(error.with_hint("name the column that the source's WATERMARK clause names"), time_span));
            }
        };
        for column in WINDOW_COLUMNS {
            if input.schema().has_column_with_unqualified_name(column) {
                let error = Error::new("42701", format!("{function} adds a column '{column}', and its input has one already"));
                return Err(placed(error.with_hint("rename the input's column in a subquery"), span));
            }
        }
        let size_span = call.size.span();
        let size_ms = milliseconds(call.size, context, input.schema())?;
        if size_ms <= 0 {
            return Err(placed(Error::new(sqlstate::INVALID_PARAMETER_VALUE, "the size of a window must be positive"), size_span));
        }
        let offset_ms = match call.offset {
            Some(offset) => milliseconds(offset, context, input.schema())?,
            None => 0,
        };
        let schema = with_window_columns(input.schema())?;
        let place = (span.start.line, span.start.column);
        let node = Tumble { input, time, size_ms, offset_ms, place, schema };
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

fn has_window(plan: &LogicalPlan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if matches!(plan, LogicalPlan::Extension(extension) if extension.node.as_any().is::<Tumble>()) {
            return true;
        }
        open.extend(plan.inputs());
    }
    false
}

/// The arguments of a window function, by role.
struct Call {
    table: TableFactor,
    time: ast::Expr,
    size: ast::Expr,
    offset: Option<ast::Expr>,
}

impl Call {
    fn read(function: &str, args: &[FunctionArg]) -> Result<Call, Error> {
        if function != "tumble" {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{function} windows are not available yet"))
                .with_hint("tumble(t, ts, INTERVAL '1 minute') works"));
        }
        let usage = || {
            Error::new(sqlstate::UNDEFINED_FUNCTION, format!("{function} does not take these arguments")).with_hint(
                "write tumble(t, ts, INTERVAL '1 minute' [, INTERVAL 'offset']) or TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 minute')",
            )
        };
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if named.is_empty() => positional.push(expr.clone()),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => named.push((name.value.to_lowercase(), expr.clone())),
                _ => return Err(usage()),
            }
        }
        let mut positional = positional.into_iter();
        let mut take = |names: &[&str]| -> Option<ast::Expr> {
            positional.next().or_else(|| named.iter().position(|(name, _)| names.contains(&name.as_str())).map(|at| named.remove(at).1))
        };
        let (data, time, size, offset) = (take(&["data"]), take(&["timecol"]), take(&["size"]), take(&["offset"]));
        let timezone = take(&["timezone"]);
        let (Some(data), Some(time), Some(size)) = (data, time, size) else { return Err(usage()) };
        if positional.next().is_some() || !named.is_empty() {
            return Err(usage());
        }
        if timezone.is_some() || offset.as_ref().is_some_and(is_text) {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "a time zone for windows is not available yet")
                .with_hint("windows are cut in UTC; an offset moves them: tumble(t, ts, INTERVAL '1 day', INTERVAL '-1 hour')"));
        }
        Ok(Call { table: table(data).ok_or_else(usage)?, time: descriptor(time).ok_or_else(usage)?, size, offset })
    }
}

fn is_text(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)))
}

/// The first argument as something that FROM takes: a name or a subquery.
fn table(expr: ast::Expr) -> Option<TableFactor> {
    let name = match expr {
        ast::Expr::Identifier(ident) => vec![ident],
        ast::Expr::CompoundIdentifier(idents) => idents,
        ast::Expr::Subquery(subquery) => {
            return Some(TableFactor::Derived { lateral: false, subquery, alias: None, sample: None });
        }
        _ => return None,
    };
    Some(TableFactor::Table {
        name: ast::ObjectName::from(name),
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    })
}

/// `ts` out of `DESCRIPTOR(ts)` or `ts`.
fn descriptor(expr: ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::Function(function) = expr else { return Some(expr) };
    if !function.name.to_string().eq_ignore_ascii_case("descriptor") {
        return None;
    }
    let ast::FunctionArguments::List(list) = function.args else { return None };
    match <[FunctionArg; 1]>::try_from(list.args) {
        Ok([FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))]) => Some(expr),
        _ => None,
    }
}

fn milliseconds(expr: ast::Expr, context: &mut dyn RelationPlannerContext, schema: &DFSchema) -> Result<i64> {
    let span = expr.span();
    let wrong = |message: &str| {
        let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, message).with_hint("write for example INTERVAL '1 minute'");
        Err(placed(error, span))
    };
    match context.sql_to_expr(expr, schema)? {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
            interval_parts_ms(interval.months, interval.days, interval.nanoseconds)
                .or_else(|message| wrong(&format!("the length of a window: {message}")))
        }
        _ => wrong("the length of a window is a constant INTERVAL"),
    }
}

/// Carries an error of ours through DataFusion's planner; its place is a span, resolved at the end.
fn placed(error: Error, span: sqlparser::tokenizer::Span) -> DataFusionError {
    DataFusionError::External(Box::new(Placed { error, span }))
}

/// An error with a span that has yet to become an offset.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Placed {
    pub error: Error,
    pub span: sqlparser::tokenizer::Span,
}
