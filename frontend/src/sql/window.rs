//! Window table functions: `tumble(t, ts, size)`, `hop(t, ts, slide, size)`, `cumulate(t, ts, step, max)` and
//! `session(t, ts, gap)`, or the standard `HOP(TABLE t, DESCRIPTOR(ts), slide, size)`, become a plan
//! node that adds `window_start`, `window_end` and `window_time` to its input (SQL-2).

mod call;

use super::duration::interval_parts_ms;
use crate::error::{Error, sqlstate};
use arrow::datatypes::{DataType, Field, TimeUnit};
use call::{Call, SIGNATURES, Signature};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, Result};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::scalar::ScalarValue;
use sqlparser::ast::{self, Spanned, TableFactor};
use sqlparser::tokenizer::Span;
use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use weir_planner::nearest::nearest;
use weir_planner::spec::{Cumulate, Session, Sliding, Tumbling, WindowShape};
use weir_planner::window::{DAY_MS, Zone};

/// Columns that a window adds, in order.
pub(crate) const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// Names of window functions.
pub(crate) const WINDOW_FUNCTIONS: [&str; 4] = ["tumble", "hop", "session", "cumulate"];

/// The longest that a window may be, and what its offset is within: 100 years.
const LENGTH_MS_MAX: i64 = weir_planner::check::DURATION_MS_MAX;

/// Rows of `input`, each with the windows that hold its event time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Assign {
    pub input: LogicalPlan,
    pub time: Column,
    pub shape: WindowShape,
    /// Line and column of the call, for errors found later.
    pub place: (u64, u64),
    schema: DFSchemaRef,
}

impl PartialOrd for Assign {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let by_place = (&self.time, self.place).partial_cmp(&(&other.time, other.place));
        by_place.filter(|order| *order != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for Assign {
    fn name(&self) -> &str {
        match self.shape {
            WindowShape::Tumbling(_) => "Tumble",
            WindowShape::Sliding(_) => "Hop",
            WindowShape::Cumulate(_) => "Cumulate",
            WindowShape::Session(_) => "Session",
            WindowShape::Batch(_) => "Batch",
        }
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
        write!(f, "{}: time={}", self.name(), self.time)?;
        match &self.shape {
            WindowShape::Tumbling(Tumbling { size_ms, offset_ms, timezone }) => {
                write!(f, ", size={size_ms} ms, offset={offset_ms} ms")?;
                timezone.iter().try_for_each(|zone| write!(f, ", time zone={zone}"))
            }
            WindowShape::Sliding(Sliding { size_ms, slide_ms, offset_ms }) => {
                write!(f, ", slide={slide_ms} ms, size={size_ms} ms, offset={offset_ms} ms")
            }
            WindowShape::Cumulate(Cumulate { max_size_ms, step_ms, offset_ms }) => {
                write!(f, ", step={step_ms} ms, max={max_size_ms} ms, offset={offset_ms} ms")
            }
            WindowShape::Session(Session { gap_ms }) => write!(f, ", gap={gap_ms} ms"),
            WindowShape::Batch(_) => Ok(()),
        }
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (exprs.pop(), inputs.pop()) {
            (Some(Expr::Column(time)), Some(input)) if exprs.is_empty() && inputs.is_empty() => {
                let schema = with_window_columns(input.schema())?;
                Ok(Assign { input, time, schema, ..self.clone() })
            }
            _ => Err(DataFusionError::Internal("a window takes one column and one input".to_owned())),
        }
    }
}

/// Whether a column of the input can be seen behind a window over it: the bounds of the windows that
/// it is a result of cannot where the new window's have their names.
pub(crate) fn stays(name: &str) -> bool {
    !WINDOW_COLUMNS.contains(&name)
}

fn with_window_columns(input: &DFSchema) -> Result<DFSchemaRef> {
    let own = input.iter().filter(|(_, field)| stays(field.name()));
    let mut fields: Vec<_> = own.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
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
        let Some(signature) = SIGNATURES.iter().find(|signature| signature.function == function) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let span = name.span();
        let call = Call::read(signature, &args.args).map_err(|error| placed(error, span))?;
        let input = context.plan(call.table.clone())?;
        let time_span = or(call.time.span(), span);
        let Expr::Column(time) = context.sql_to_expr(call.time.clone(), input.schema())? else {
            let error =
                Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("the second argument of {function} is the time column's name"));
            return Err(placed(error.with_hint(format!("write {}", signature.usage)), time_span));
        };
        // What windows have given has bounds of its own, which the new ones take the place of.
        if !has_window(&input)
            && let Some(column) = WINDOW_COLUMNS.iter().find(|column| input.schema().has_column_with_unqualified_name(column))
        {
            let error = Error::new("42701", format!("{function} adds a column '{column}', and its input has one already"));
            return Err(placed(error.with_hint("rename the input's column in a subquery"), span));
        }
        let shape = Lengths { signature, context, schema: input.schema(), span }.shape(&call)?;
        let schema = with_window_columns(input.schema())?;
        let place = (span.start.line, span.start.column);
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(Assign { input, time, shape, place, schema }) });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

fn has_window(plan: &LogicalPlan) -> bool {
    let mut open = vec![plan];
    while let Some(plan) = open.pop() {
        if matches!(plan, LogicalPlan::Extension(extension) if extension.node.as_any().is::<Assign>()) {
            return true;
        }
        open.extend(plan.inputs());
    }
    false
}

/// Reads the lengths of one call.
struct Lengths<'a> {
    signature: &'a Signature,
    context: &'a mut dyn RelationPlannerContext,
    schema: &'a DFSchema,
    /// Of the function's name.
    span: Span,
}

impl Lengths<'_> {
    fn shape(mut self, call: &Call) -> Result<WindowShape> {
        let mut lengths = Vec::new();
        for (expr, names) in call.lengths.iter().zip(self.signature.lengths) {
            let ms = self.milliseconds(expr)?;
            if ms <= 0 {
                let name = names.first().unwrap_or(&"length");
                let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("the {name} of a window must be positive"));
                return Err(self.wrong(expr, error.with_hint("write for example INTERVAL '1 minute'")));
            }
            if ms > LENGTH_MS_MAX {
                let name = names.first().unwrap_or(&"length");
                let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("the {name} of a window is at most 100 years"));
                return Err(self.wrong(expr, error.with_hint("write for example INTERVAL '365 days'")));
            }
            lengths.push(ms);
        }
        let offset_ms = call.offset.as_ref().map_or(Ok(0), |offset| self.milliseconds(offset))?;
        if let Some(offset) = call.offset.as_ref().filter(|_| !(-LENGTH_MS_MAX..=LENGTH_MS_MAX).contains(&offset_ms)) {
            let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, "the offset of a window is within 100 years");
            return Err(self.wrong(offset, error.with_hint("windows repeat: an offset of less than their size does the same")));
        }
        match (self.signature.function, lengths.as_slice()) {
            ("tumble", &[size_ms]) => {
                let timezone = call.timezone.as_ref().map(|zone| self.zone(zone, size_ms, call)).transpose()?;
                Ok(WindowShape::Tumbling(Tumbling { size_ms, offset_ms, timezone }))
            }
            ("hop", &[slide_ms, size_ms]) => Ok(WindowShape::Sliding(Sliding { size_ms, slide_ms, offset_ms })),
            ("cumulate", &[step_ms, max_size_ms]) => {
                if max_size_ms % step_ms == 0 {
                    return Ok(WindowShape::Cumulate(Cumulate { max_size_ms, step_ms, offset_ms }));
                }
                let error = Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("the max of cumulate, {max_size_ms} ms, is not a multiple of its step, {step_ms} ms"),
                );
                let hint = if step_ms % max_size_ms == 0 {
                    format!("the step stands first: write {}", self.signature.usage)
                } else {
                    format!("take a max of {} ms", max_size_ms.saturating_add(step_ms - max_size_ms % step_ms))
                };
                Err(self.wrong(call.lengths.last().unwrap_or(&call.time), error.with_hint(hint)))
            }
            ("session", &[gap_ms]) => Ok(WindowShape::Session(Session { gap_ms })),
            (function, _) => Err(DataFusionError::Internal(format!("{function} has no shape"))),
        }
    }

    /// The time zone, which windows of whole days follow.
    fn zone(&self, expr: &ast::Expr, size_ms: i64, call: &Call) -> Result<String> {
        let Some(name) = call::text(expr) else {
            let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, "a time zone is a constant text");
            return Err(self.wrong(expr, error.with_hint("write for example 'Europe/Berlin'")));
        };
        let Some(zone) = Zone::named(name) else {
            let folded = name.to_lowercase();
            let cased = Zone::names().find(|known| known.to_lowercase() == folded);
            let hint = match cased.or_else(|| nearest(name, Zone::names())) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "name it as the IANA database does, such as 'Europe/Berlin' or 'UTC'".to_owned(),
            };
            let message = format!("the time zone '{}' is not known", name.escape_debug());
            return Err(self.wrong(expr, Error::new(sqlstate::INVALID_PARAMETER_VALUE, message).with_hint(hint)));
        };
        if size_ms % DAY_MS != 0 {
            let message = "the size of a window in a time zone is whole days";
            let error = Error::new(sqlstate::INVALID_PARAMETER_VALUE, message)
                .with_hint("write for example INTERVAL '1 day'; shorter windows need no time zone, an offset moves them");
            return Err(self.wrong(call.lengths.first().unwrap_or(expr), error));
        }
        Ok(zone.name().to_owned())
    }

    fn milliseconds(&mut self, expr: &ast::Expr) -> Result<i64> {
        let planned = self.context.sql_to_expr(expr.clone(), self.schema)?;
        let (value, sign) = match &planned {
            Expr::Negative(inner) => (&**inner, -1),
            other => (other, 1),
        };
        let error = match value {
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
                match interval_parts_ms(interval.months, interval.days, interval.nanoseconds) {
                    Ok(ms) => return Ok(ms * sign),
                    Err(message) => Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("the length of a window: {message}"))
                        .with_hint("write for example INTERVAL '1 minute'"),
                }
            }
            Expr::Column(column) => {
                let message = format!("'{}' is a column, and this argument of {} is a length", column.name, self.signature.function);
                Error::new(sqlstate::INVALID_PARAMETER_VALUE, message).with_hint(format!("write {}", self.signature.usage))
            }
            _ => Error::new(sqlstate::INVALID_PARAMETER_VALUE, "the length of a window is a constant INTERVAL")
                .with_hint("write for example INTERVAL '1 minute'"),
        };
        Err(self.wrong(expr, error))
    }

    fn wrong(&self, expr: &ast::Expr, error: Error) -> DataFusionError {
        placed(error, or(expr.span(), self.span))
    }
}

/// A span, or another where it says nothing.
fn or(span: Span, other: Span) -> Span {
    if span == Span::empty() { other } else { span }
}

/// Carries an error of ours through DataFusion's planner; its place is a span, resolved at the end.
fn placed(error: Error, span: Span) -> DataFusionError {
    DataFusionError::External(Box::new(Placed { error, span }))
}

/// An error with a span that has yet to become an offset.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Placed {
    pub error: Error,
    pub span: Span,
}
