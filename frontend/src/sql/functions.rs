//! Functions that a job may call: DataFusion's scalar functions whose result depends on their
//! arguments alone (or on the clock, for `now()`), and Weir's own aggregates.
//!
//! The aggregates are planned with Weir's result types (SQL-3) and take their argument as it is:
//! DataFusion's own would widen it first, and give other types. They are never run by DataFusion.

use arrow::datatypes::DataType;
use datafusion::common::{Result, not_impl_err};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ScalarUDF, Signature, Volatility};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use weir_planner::expr::{AggregateFunction, Kind};
use weir_planner::schema::ColumnType;

/// What names mean.
pub(crate) struct Functions {
    /// By name and by alias.
    pub scalar: BTreeMap<String, Arc<ScalarUDF>>,
    /// Ours.
    pub aggregate: BTreeMap<&'static str, Arc<AggregateUDF>>,
    /// Aggregates that DataFusion has and Weir does not.
    pub other_aggregates: BTreeSet<String>,
    /// Functions that only go with OVER.
    pub window: BTreeSet<String>,
    /// How special forms such as `EXTRACT(… FROM …)` become calls.
    pub planners: Vec<Arc<dyn ExprPlanner>>,
}

/// Made once: the lists are the same for every statement.
pub(crate) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut scalar = BTreeMap::new();
    for function in SessionStateDefaults::default_scalar_functions() {
        for alias in function.aliases() {
            scalar.insert(alias.clone(), Arc::clone(&function));
        }
        scalar.insert(function.name().to_owned(), function);
    }
    let named = |function: AggregateFunction| std::iter::once(function.name()).chain(function.aliases().iter().copied());
    let ours = AggregateFunction::ALL.into_iter().flat_map(|function| named(function).map(move |name| (name, function)));
    let aggregate = ours.map(|(name, function)| (name, Arc::new(AggregateUDF::from(Planned::new(name, function))))).collect();
    let theirs = SessionStateDefaults::default_aggregate_functions();
    let other_aggregates = theirs.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().to_owned()])).collect();
    let over = SessionStateDefaults::default_window_functions();
    let window = over.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().to_owned()])).collect();
    Functions { scalar, aggregate, other_aggregates, window, planners: SessionStateDefaults::default_expr_planners() }
});

/// The aggregate that a name stands for.
pub(crate) fn aggregate_of(name: &str) -> Option<AggregateFunction> {
    AggregateFunction::ALL.into_iter().find(|function| function.name() == name || function.aliases().contains(&name))
}

/// One of Weir's aggregates as DataFusion's planner sees it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Planned {
    /// As it is written: an alias stands for itself, so that errors point at it.
    name: &'static str,
    function: AggregateFunction,
    signature: Signature,
}

impl Planned {
    fn new(name: &'static str, function: AggregateFunction) -> Planned {
        Planned { name, function, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Planned {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Takes what it is given; whether it can is said by the binder, with the place.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let input: Option<Vec<ColumnType>> = types.iter().map(ColumnType::from_arrow).collect();
        let output = input.and_then(|types| result_type(self.function, &types));
        // A type that the function does not take gets some type here, and an error from the binder.
        Ok(output.map_or(DataType::Int64, ColumnType::to_arrow))
    }

    fn is_nullable(&self) -> bool {
        !self.function.counts()
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function.kind() == Kind::Row
    }

    fn supports_within_group_clause(&self) -> bool {
        matches!(self.function, AggregateFunction::PercentileCont | AggregateFunction::ApproxPercentileCont)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("{} is run by a job", self.name)
    }
}

/// Result type of an aggregate (SQL-3); `None` for arguments that it does not take.
pub(crate) fn result_type(function: AggregateFunction, arguments: &[ColumnType]) -> Option<ColumnType> {
    use AggregateFunction as F;
    let Some(ty) = arguments.first().copied() else { return (function == F::Count).then_some(ColumnType::BigInt) };
    let number = is_number(ty);
    match function {
        F::Count | F::RegrCount if arguments.iter().all(|ty| function == F::Count || is_number(*ty)) => Some(ColumnType::BigInt),
        F::Count | F::RegrCount => None,
        F::ApproxDistinct => (ty != ColumnType::Interval).then_some(ColumnType::BigInt),
        F::Sum => match ty {
            ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Some(ColumnType::BigInt),
            ColumnType::Decimal { scale, .. } => Some(ColumnType::Decimal { precision: 38, scale }),
            ty => number.then_some(ty),
        },
        F::Avg => match ty {
            // Four more digits after the point, as far as 38 digits allow.
            ColumnType::Decimal { precision, scale } => {
                Some(ColumnType::Decimal { precision: precision.saturating_add(4).min(38), scale: scale.saturating_add(4).min(38) })
            }
            _ => number.then_some(ColumnType::Double),
        },
        F::Median => match ty {
            ColumnType::Real => Some(ty),
            // Half way between two values is one digit more.
            ColumnType::Decimal { precision: 38, .. } => Some(ty),
            ColumnType::Decimal { precision, scale } => Some(ColumnType::Decimal { precision: precision + 1, scale: scale + 1 }),
            _ => number.then_some(ColumnType::Double),
        },
        F::Min | F::Max | F::FirstValue | F::LastValue => (ty != ColumnType::Interval).then_some(ty),
        F::BoolAnd | F::BoolOr => (ty == ColumnType::Boolean).then_some(ty),
        F::BitAnd | F::BitOr | F::BitXor => matches!(ty, ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt).then_some(ty),
        F::StringAgg => {
            let between = arguments.get(1).is_none_or(|between| *between == ColumnType::Text);
            (ty == ColumnType::Text && between).then_some(ty)
        }
        F::VarSamp | F::VarPop | F::StddevSamp | F::StddevPop => number.then_some(ColumnType::Double),
        F::Corr | F::CovarSamp | F::CovarPop | F::RegrSlope | F::RegrIntercept | F::RegrR2 | F::RegrAvgx | F::RegrAvgy => {
            arguments.iter().all(|ty| is_number(*ty)).then_some(ColumnType::Double)
        }
        F::RegrSxx | F::RegrSyy | F::RegrSxy | F::PercentileCont | F::ApproxMedian | F::ApproxPercentileCont => {
            arguments.iter().all(|ty| is_number(*ty)).then_some(ColumnType::Double)
        }
    }
}

fn is_number(ty: ColumnType) -> bool {
    match ty {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => true,
        ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. } => true,
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => false,
        ColumnType::Timestamp { .. } | ColumnType::Interval => false,
    }
}

#[cfg(test)]
mod tests;
