//! Aggregate calls: their arguments, what they order by and keep apart, and the type that they give.

use super::{Converter, folded, joined};
use crate::error::{Error, sqlstate};
use crate::sql::functions::{aggregate_of, result_type};
use datafusion::logical_expr::Expr as Df;
use datafusion::logical_expr::expr::{AggregateFunction as Call, NullTreatment};
use datafusion::scalar::ScalarValue;
use weir_planner::expr::{Aggregate, AggregateFunction, BinaryOp, Expr, Kind, Literal, Order, Typed};
use weir_planner::schema::ColumnType;

/// Most arguments of `count(DISTINCT …)`.
const DISTINCT_ARGUMENTS_MAX: usize = 4;
/// Most columns that a call may order by.
const ORDER_COLUMNS_MAX: usize = 8;

impl Converter<'_> {
    /// An aggregate call.
    pub fn aggregate(&self, df: &Df) -> Result<Aggregate, Error> {
        match df {
            Df::Alias(alias) => self.aggregate(&alias.expr),
            Df::AggregateFunction(call) => self.call(call),
            _ => Err(Error::new(sqlstate::GROUPING_ERROR, "an aggregate is expected, such as count(*) or sum(price)")),
        }
    }

    fn call(&self, call: &Call) -> Result<Aggregate, Error> {
        let name = call.func.name();
        let function = aggregate_of(name)
            .ok_or_else(|| Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("the aggregate {name} is not available")))?;
        let mut arguments = match call.params.args.as_slice() {
            [Df::Literal(ScalarValue::Int64(Some(1)), _)] if function == AggregateFunction::Count && !call.params.distinct => Vec::new(),
            given => given.iter().map(|argument| self.typed(argument)).collect::<Result<Vec<_>, _>>()?,
        };
        counted(name, function, arguments.len(), call.params.distinct)?;
        let kind = function.kind();
        let ordered_set = matches!(function, AggregateFunction::PercentileCont | AggregateFunction::ApproxPercentileCont);
        let types: Vec<ColumnType> = arguments.iter().map(|argument| argument.ty).collect();
        let ty = result_type(function, &types).ok_or_else(|| misfit(name, function, &types))?;
        prepare(name, function, &mut arguments, ordered_set && call.params.order_by.iter().any(|order| !order.asc))?;
        let distinct = call.params.distinct && matches!(kind, Kind::Bag | Kind::Pairs | Kind::Sequence);
        if let Some(interval) = arguments.iter().find(|argument| distinct && argument.ty == ColumnType::Interval) {
            return Err(Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("{name}(DISTINCT …) does not take a value of type {}", interval.ty),
            ));
        }
        let order_by = match kind {
            Kind::Row | Kind::Sequence => self.order_by(name, call)?,
            // What the result is made of has no order, so that none is needed.
            Kind::Set | Kind::Bag | Kind::Pairs => Vec::new(),
        };
        if distinct && order_by.iter().any(|order| arguments.first().is_none_or(|argument| argument.expr != order.by.expr)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(Error::new("42P10", message).with_hint(format!("order by the argument of {name}")));
        }
        let mut filter = call.params.filter.as_deref().map(|filter| self.scalar(filter)).transpose()?;
        if let (Some(NullTreatment::IgnoreNulls), Some(argument)) = (call.params.null_treatment, arguments.first()) {
            let there = Expr::IsNull { expr: Box::new(argument.expr.clone()), negated: true };
            filter = Some(joined(BinaryOp::And, filter.into_iter().chain([there]).collect()));
        }
        Ok(Aggregate { function, arguments, distinct, order_by, filter, ty, nullable: !function.counts() })
    }

    fn order_by(&self, name: &str, call: &Call) -> Result<Vec<Order>, Error> {
        let mut orders: Vec<Order> = Vec::new();
        for sort in &call.params.order_by {
            let by = self.typed(&sort.expr)?;
            if by.ty == ColumnType::Interval {
                return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{name} cannot order by a value of type {}", by.ty)));
            }
            // A constant orders nothing, nor does what has been ordered by before.
            if !matches!(by.expr, Expr::Literal(_)) && !orders.iter().any(|order| order.by.expr == by.expr) {
                orders.push(Order { by, descending: !sort.asc, nulls_first: sort.nulls_first });
            }
        }
        if orders.len() > ORDER_COLUMNS_MAX {
            let message = format!("{name} orders by more than {ORDER_COLUMNS_MAX} columns");
            return Err(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(orders)
    }
}

/// Checks the number of arguments.
fn counted(name: &str, function: AggregateFunction, given: usize, distinct: bool) -> Result<(), Error> {
    let (fits, what) = match (function, distinct) {
        (AggregateFunction::Count, true) => ((1..=DISTINCT_ARGUMENTS_MAX).contains(&given), "one to four values"),
        (AggregateFunction::Count, false) => (given <= 1, "* or one value; count(DISTINCT a, b) takes several"),
        (AggregateFunction::StringAgg, _) => (given == 2, "a text and what stands between texts: string_agg(t, ',')"),
        (AggregateFunction::PercentileCont | AggregateFunction::ApproxPercentileCont, _) => {
            (given == 2, "a value and a share: percentile_cont(0.5) WITHIN GROUP (ORDER BY x)")
        }
        (function, _) if function.kind() == Kind::Pairs => (given == 2, "two numbers: y and x"),
        _ => (given == 1, "one argument"),
    };
    if fits { Ok(()) } else { Err(Error::new(sqlstate::UNDEFINED_FUNCTION, format!("{name} takes {what}"))) }
}

/// Says which type does not fit, and what would.
fn misfit(name: &str, function: AggregateFunction, types: &[ColumnType]) -> Error {
    let shown = types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let as_type = match function {
        AggregateFunction::BoolAnd | AggregateFunction::BoolOr => "BOOLEAN",
        AggregateFunction::StringAgg => "TEXT",
        _ => "BIGINT",
    };
    let error = Error::new(sqlstate::UNDEFINED_FUNCTION, format!("{name} does not take a value of type {shown}"));
    match function.takes_constant() {
        true => error.with_hint(format!("cast it: {name}(CAST(… AS {as_type}), …)")),
        false => error.with_hint(format!("cast it: {name}(CAST(… AS {as_type}))")),
    }
}

/// Casts what is computed in DOUBLE, and makes constants of what has to be one.
fn prepare(name: &str, function: AggregateFunction, arguments: &mut [Typed], descending: bool) -> Result<(), Error> {
    let (first, second) = match arguments {
        [first, rest @ ..] => (first, rest.first_mut()),
        [] => return Ok(()),
    };
    match function {
        AggregateFunction::Median => {
            if matches!(first.ty, ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt) {
                to_double(first)?;
            }
        }
        AggregateFunction::ApproxMedian => to_double(first)?,
        AggregateFunction::PercentileCont | AggregateFunction::ApproxPercentileCont => {
            to_double(first)?;
            if let Some(share) = second {
                to_double(share)?;
                let Expr::Literal(Literal::Double(given)) = share.expr else {
                    return Err(not_constant(name, "share", "0.95"));
                };
                if !(0.0..=1.0).contains(&given) {
                    let message = format!("the share of {name} is {given}; it lies between 0 and 1");
                    return Err(Error::new("22003", message));
                }
                // From the other end, without the last digit that 1 - 0.9 has too much.
                let given = if descending { ((1.0 - given) * 1e15).round() / 1e15 } else { given };
                share.expr = Expr::Literal(Literal::Double(given));
            }
        }
        AggregateFunction::StringAgg => match second.map(|between| &between.expr) {
            Some(Expr::Literal(Literal::Text(_) | Literal::Null(_))) => {}
            _ => return Err(not_constant(name, "text between", "','")),
        },
        _ => {}
    }
    Ok(())
}

fn not_constant(name: &str, what: &str, such_as: &str) -> Error {
    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("the {what} of {name} is a constant"))
        .with_hint(format!("write it, such as {such_as}"))
}

fn to_double(typed: &mut Typed) -> Result<(), Error> {
    if typed.ty != ColumnType::Double {
        typed.expr = match &typed.expr {
            Expr::Literal(constant) => folded(constant, ColumnType::Double, false)?,
            expr => Expr::Cast { expr: Box::new(expr.clone()), to: ColumnType::Double, lenient: false },
        };
        typed.ty = ColumnType::Double;
    }
    Ok(())
}
