//! Planned expressions on batches, through DataFusion's physical expressions.

use crate::envelope::{Data, batch};
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, TimestampNanosecondArray};
use arrow::compute::{CastOptions, cast_with_options, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, TimeUnit as ArrowUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{Case, Cast, InList, Like, ScalarFunction, TryCast};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, ExprSchemable, Operator, ScalarUDF, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::expressions::BinaryExpr as PhysicalBinary;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use weir_planner::error::Class;
use weir_planner::expr::{BinaryOp, Expr, Literal, Typed};
use weir_planner::id::OperatorId;
use weir_planner::schema::{ColumnType, META_TIMESTAMP, Schema};
use weir_planner::time::TimeUnit;

/// Hidden column with the processing time of the batch, behind `now()`.
const NOW: &str = "__now";

/// DataFusion's scalar functions by name and alias.
static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut functions = HashMap::new();
    for function in SessionStateDefaults::default_scalar_functions() {
        for alias in function.aliases() {
            functions.insert(alias.clone(), function.clone());
        }
        functions.insert(function.name().to_owned(), function);
    }
    functions
});

/// Names, without aliases, of the scalar functions that a job may call: all but those that give something else each time.
pub fn functions() -> BTreeSet<&'static str> {
    let steady = FUNCTIONS.values().filter(|function| function.signature().volatility != Volatility::Volatile);
    steady.map(|function| function.name()).collect()
}

/// An expression ready to run on the rows of one operator.
#[derive(Debug)]
pub struct Evaluator {
    operator: OperatorId,
    text: String,
    form: Form,
    ty: DataType,
}

#[derive(Debug)]
enum Form {
    /// An input column as it is.
    Column(usize),
    /// Anything else; `hidden` says that it reads hidden columns.
    Physical { expr: Arc<dyn PhysicalExpr>, hidden: bool },
}

impl Evaluator {
    /// Builds `expr`, which gives `ty`, over columns `input`.
    ///
    /// Errors: a column or function that does not exist, types that do not fit; they name the operator.
    pub fn new(operator: &OperatorId, expr: &Expr, ty: ColumnType, input: &Schema) -> Result<Self, Error> {
        let ty = ty.to_arrow();
        if let Expr::Column(name) = expr
            && let Some(index) = input.index_of(name)
        {
            return Ok(Evaluator { operator: operator.clone(), text: name.clone(), form: Form::Column(index), ty });
        }
        let fault = |e: DataFusionError| {
            Error::because(Class::User, format!("operator '{operator}': the expression cannot be built: {}", short(&e)), e)
        };
        let schema = DFSchema::try_from(Arc::new(extended(input))).map_err(fault)?;
        let logical = logical(expr, &schema).map_err(fault)?;
        let text = logical.to_string();
        let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
        let coerced = ExprSimplifier::new(context.clone()).coerce(logical, &schema).map_err(fault)?;
        let coerced = rewritten(coerced, &context).map_err(fault)?;
        let hidden = coerced.column_refs().iter().any(|column| column.name == META_TIMESTAMP || column.name == NOW);
        let physical =
            create_physical_expr(&coerced, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default()).map_err(fault)?;
        let expr = checked(physical).map_err(fault)?;
        Ok(Evaluator { operator: operator.clone(), text, form: Form::Physical { expr, hidden }, ty })
    }

    /// Builds a typed expression.
    pub fn typed(operator: &OperatorId, typed: &Typed, input: &Schema) -> Result<Self, Error> {
        Self::new(operator, &typed.expr, typed.ty, input)
    }

    /// Builds a condition.
    pub fn condition(operator: &OperatorId, expr: &Expr, input: &Schema) -> Result<Self, Error> {
        Self::new(operator, expr, ColumnType::Boolean, input)
    }

    /// Values of the expression for all rows; `wall_ms` is the processing time of the batch.
    ///
    /// Errors: class `User` when a value has no result (division by zero, a cast, an overflow);
    /// names operator and expression.
    pub fn evaluate(&self, data: &Data, wall_ms: i64) -> Result<ArrayRef, Error> {
        let array = match &self.form {
            Form::Column(index) => data.rows.column(*index).clone(),
            Form::Physical { expr, hidden: false } => self.run(expr, &data.rows, data.len())?,
            Form::Physical { expr, hidden: true } => {
                let mut fields = data.rows.schema().fields().iter().cloned().collect::<Vec<_>>();
                fields.extend(hidden_fields().map(Arc::new));
                let now = TimestampNanosecondArray::from_value(wall_ms.saturating_mul(1_000_000), data.len()).with_timezone("+00:00");
                let mut columns = data.rows.columns().to_vec();
                columns.push(Arc::new(data.times.clone()));
                columns.push(Arc::new(now));
                let rows = batch(Arc::new(ArrowSchema::new(fields)), columns, data.len())?;
                self.run(expr, &rows, data.len())?
            }
        };
        if array.data_type() == &self.ty {
            return Ok(array);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(&array, &self.ty, &options).map_err(|e| self.failed(&e.to_string(), e))
    }

    /// Which rows the condition holds for: NULL counts as false.
    pub fn holds(&self, data: &Data, wall_ms: i64) -> Result<BooleanArray, Error> {
        let array = self.evaluate(data, wall_ms)?;
        let mask = array.as_boolean();
        Ok(if mask.null_count() == 0 { mask.clone() } else { prep_null_mask_filter(mask) })
    }

    fn run(&self, expr: &Arc<dyn PhysicalExpr>, rows: &arrow::array::RecordBatch, count: usize) -> Result<ArrayRef, Error> {
        // Some library functions panic on a value, such as lpad on a negative length. That is the row's
        // fault and goes by its policy like any other (KER-7). An expression keeps nothing between calls.
        let run = AssertUnwindSafe(|| expr.evaluate(rows).and_then(|value| value.into_array(count)));
        match std::panic::catch_unwind(run) {
            Ok(value) => value.map_err(|e| self.failed(&short(&e), e)),
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let why = said.unwrap_or("a function does not take a value that it got");
                Err(Error::new(Class::User, format!("operator '{}': {} cannot be computed: {why}", self.operator, self.text)))
            }
        }
    }

    fn failed(&self, why: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::because(Class::User, format!("operator '{}': {} cannot be computed: {why}", self.operator, self.text), cause)
    }
}

/// DataFusion's message without its wrapping.
fn short(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => error.to_string(),
        other => other.strip_backtrace(),
    }
}

fn hidden_fields() -> [Field; 2] {
    let now = DataType::Timestamp(ArrowUnit::Nanosecond, Some("+00:00".into()));
    [Field::new(META_TIMESTAMP, DataType::Int64, false), Field::new(NOW, now, false)]
}

fn extended(input: &Schema) -> ArrowSchema {
    let mut fields = input.to_arrow().fields().iter().cloned().collect::<Vec<_>>();
    fields.extend(hidden_fields().map(Arc::new));
    ArrowSchema::new(fields)
}

/// Function calls as their functions rewrite them. Some (`coalesce`, `nvl`, `nvl2`, `arrow_cast`) exist only as their
/// rewrite and refuse to run themselves. Nothing else is simplified: folding would move errors out of untaken branches.
fn rewritten(expr: Logical, context: &SimplifyContext) -> Result<Logical, DataFusionError> {
    let rewrite = |node: Logical| match node {
        Logical::ScalarFunction(ScalarFunction { func, args }) => Ok(match func.simplify(args, context)? {
            ExprSimplifyResult::Simplified(expr) => Transformed::yes(expr),
            ExprSimplifyResult::Original(args) => Transformed::no(Logical::ScalarFunction(ScalarFunction { func, args })),
        }),
        other => Ok(Transformed::no(other)),
    };
    Ok(expr.transform_up(rewrite)?.data)
}

/// Integer arithmetic that fails on overflow: DataFusion's default wraps.
fn checked(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let strict = |node: Arc<dyn PhysicalExpr>| {
        let any: &dyn std::any::Any = node.as_ref();
        Ok(match any.downcast_ref::<PhysicalBinary>() {
            None => Transformed::no(node),
            Some(binary) => Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true)) as Arc<dyn PhysicalExpr>),
        })
    };
    Ok(expr.transform_up(strict)?.data)
}

fn boxed(expr: &Expr, schema: &DFSchema) -> Result<Box<Logical>, DataFusionError> {
    Ok(Box::new(logical(expr, schema)?))
}

fn logical(expr: &Expr, schema: &DFSchema) -> Result<Logical, DataFusionError> {
    Ok(match expr {
        Expr::Column(name) => Logical::Column(Column::new_unqualified(name.clone())),
        Expr::Literal(literal) => Logical::Literal(scalar(literal)?, None),
        Expr::Binary { op, left, right } => {
            Logical::BinaryExpr(BinaryExpr::new(boxed(left, schema)?, operator(*op), boxed(right, schema)?))
        }
        Expr::Not(inner) => Logical::Not(boxed(inner, schema)?),
        Expr::Negate(inner) => negate(logical(inner, schema)?, schema)?,
        Expr::IsNull { expr, negated: false } => Logical::IsNull(boxed(expr, schema)?),
        Expr::IsNull { expr, negated: true } => Logical::IsNotNull(boxed(expr, schema)?),
        Expr::IsBoolean { expr, value, negated } => {
            let inner = boxed(expr, schema)?;
            match (value, negated) {
                (Some(true), false) => Logical::IsTrue(inner),
                (Some(true), true) => Logical::IsNotTrue(inner),
                (Some(false), false) => Logical::IsFalse(inner),
                (Some(false), true) => Logical::IsNotFalse(inner),
                (None, false) => Logical::IsUnknown(inner),
                (None, true) => Logical::IsNotUnknown(inner),
            }
        }
        Expr::Cast { expr, to, lenient: false } => Logical::Cast(Cast::new(boxed(expr, schema)?, to.to_arrow())),
        Expr::Cast { expr, to, lenient: true } => Logical::TryCast(TryCast::new(boxed(expr, schema)?, to.to_arrow())),
        Expr::Case { operand, branches, otherwise } => {
            let operand = operand.as_ref().map(|inner| boxed(inner, schema)).transpose()?;
            let pair = |(when, then): &(Expr, Expr)| Ok((boxed(when, schema)?, boxed(then, schema)?));
            let branches = branches.iter().map(pair).collect::<Result<Vec<_>, DataFusionError>>()?;
            let otherwise = otherwise.as_ref().map(|inner| boxed(inner, schema)).transpose()?;
            Logical::Case(Case::new(operand, branches, otherwise))
        }
        Expr::Like { expr, pattern, escape, case_insensitive, negated } => {
            Logical::Like(Like::new(*negated, boxed(expr, schema)?, boxed(pattern, schema)?, *escape, *case_insensitive))
        }
        Expr::InList { expr, list, negated } => {
            let list = list.iter().map(|item| logical(item, schema)).collect::<Result<Vec<_>, _>>()?;
            Logical::InList(InList::new(boxed(expr, schema)?, list, *negated))
        }
        Expr::Function { name, version, args } => call(name, *version, args, schema)?,
    })
}

/// A function call. `now()` and its kin read the hidden column: DataFusion would fold them once.
fn call(name: &str, version: u32, args: &[Expr], schema: &DFSchema) -> Result<Logical, DataFusionError> {
    if version != 1 {
        return Err(DataFusionError::Plan(format!(
            "version {version} of function '{name}' is not known: this plan was made by a newer Weir"
        )));
    }
    let now = || Logical::Column(Column::new_unqualified(NOW));
    match (name, args) {
        ("now" | "current_timestamp", []) => return Ok(now()),
        ("current_date" | "today", []) => return Ok(Logical::Cast(Cast::new(Box::new(now()), DataType::Date32))),
        ("current_time", []) => return Ok(Logical::Cast(Cast::new(Box::new(now()), DataType::Time64(ArrowUnit::Nanosecond)))),
        _ => {}
    }
    let Some(function) = FUNCTIONS.get(name) else {
        return Err(DataFusionError::Plan(format!("function '{name}' is not known")));
    };
    let args = args.iter().map(|arg| logical(arg, schema)).collect::<Result<Vec<_>, _>>()?;
    Ok(Logical::ScalarFunction(ScalarFunction::new_udf(function.clone(), args)))
}

/// `-x`, with a checked subtraction for integers: DataFusion's negation wraps.
fn negate(inner: Logical, schema: &DFSchema) -> Result<Logical, DataFusionError> {
    let ty = inner.get_type(schema)?;
    if !ty.is_integer() {
        return Ok(Logical::Negative(Box::new(inner)));
    }
    let zero = Logical::Literal(ScalarValue::new_zero(&ty)?, None);
    Ok(Logical::BinaryExpr(BinaryExpr::new(Box::new(zero), Operator::Minus, Box::new(inner))))
}

fn operator(op: BinaryOp) -> Operator {
    match op {
        BinaryOp::Eq => Operator::Eq,
        BinaryOp::NotEq => Operator::NotEq,
        BinaryOp::Lt => Operator::Lt,
        BinaryOp::LtEq => Operator::LtEq,
        BinaryOp::Gt => Operator::Gt,
        BinaryOp::GtEq => Operator::GtEq,
        BinaryOp::IsDistinctFrom => Operator::IsDistinctFrom,
        BinaryOp::IsNotDistinctFrom => Operator::IsNotDistinctFrom,
        BinaryOp::Plus => Operator::Plus,
        BinaryOp::Minus => Operator::Minus,
        BinaryOp::Multiply => Operator::Multiply,
        BinaryOp::Divide => Operator::Divide,
        BinaryOp::Modulo => Operator::Modulo,
        BinaryOp::And => Operator::And,
        BinaryOp::Or => Operator::Or,
        BinaryOp::Concat => Operator::StringConcat,
        BinaryOp::BitwiseAnd => Operator::BitwiseAnd,
        BinaryOp::BitwiseOr => Operator::BitwiseOr,
        BinaryOp::BitwiseXor => Operator::BitwiseXor,
        BinaryOp::ShiftLeft => Operator::BitwiseShiftLeft,
        BinaryOp::ShiftRight => Operator::BitwiseShiftRight,
        BinaryOp::RegexMatch => Operator::RegexMatch,
        BinaryOp::RegexMatchInsensitive => Operator::RegexIMatch,
        BinaryOp::RegexNotMatch => Operator::RegexNotMatch,
        BinaryOp::RegexNotMatchInsensitive => Operator::RegexNotIMatch,
    }
}

/// A literal as an array of one value.
///
/// Errors: digits that are none, which no parser lets through.
pub fn literal(value: &Literal) -> Result<ArrayRef, Error> {
    let bug = |e: DataFusionError| Error::because(Class::Bug, "a literal has no value", e);
    scalar(value).and_then(|value| value.to_array()).map_err(bug)
}

fn scalar(literal: &Literal) -> Result<ScalarValue, DataFusionError> {
    Ok(match literal {
        Literal::Null(ty) => ScalarValue::try_from(&ty.to_arrow())?,
        Literal::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Literal::SmallInt(value) => ScalarValue::Int16(Some(*value)),
        Literal::Integer(value) => ScalarValue::Int32(Some(*value)),
        Literal::BigInt(value) => ScalarValue::Int64(Some(*value)),
        Literal::Real(value) => ScalarValue::Float32(Some(*value)),
        Literal::Double(value) => ScalarValue::Float64(Some(*value)),
        Literal::Decimal { unscaled, precision, scale } => {
            let value = unscaled.parse().map_err(|_| DataFusionError::Plan(format!("'{unscaled}' is not a decimal's digits")))?;
            ScalarValue::Decimal128(Some(value), *precision, *scale)
        }
        Literal::Text(value) => ScalarValue::Utf8(Some(value.clone())),
        Literal::Bytea(value) => ScalarValue::Binary(Some(value.clone())),
        Literal::Date(days) => ScalarValue::Date32(Some(*days)),
        Literal::Timestamp { value, unit, zoned } => {
            let zone = zoned.then(|| "+00:00".into());
            match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(Some(*value), zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(*value), zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(*value), zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(*value), zone),
            }
        }
        Literal::Interval { months, days, nanos } => {
            ScalarValue::IntervalMonthDayNano(Some(arrow::datatypes::IntervalMonthDayNano::new(*months, *days, *nanos)))
        }
    })
}

/// The times column as an array of the hidden column's type; used where a time is constant.
pub(crate) fn constant_times(time_ms: i64, rows: usize) -> Int64Array {
    Int64Array::from_value(time_ms, rows)
}

#[cfg(test)]
mod tests;
