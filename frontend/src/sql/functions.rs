//! Functions that a job may call: DataFusion's scalar functions whose result depends on their
//! arguments alone (or on the clock, for `now()`), and Weir's own five aggregates.
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
use weir_planner::expr::AggregateFunction;
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
    let ours = [AggregateFunction::Count, AggregateFunction::Sum, AggregateFunction::Avg, AggregateFunction::Min, AggregateFunction::Max];
    let aggregate = ours.map(|function| (function.name(), Arc::new(AggregateUDF::from(Planned::new(function))))).into();
    let theirs = SessionStateDefaults::default_aggregate_functions();
    let other_aggregates = theirs.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().to_owned()])).collect();
    let over = SessionStateDefaults::default_window_functions();
    let window = over.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().to_owned()])).collect();
    Functions { scalar, aggregate, other_aggregates, window, planners: SessionStateDefaults::default_expr_planners() }
});

/// One of Weir's aggregates as DataFusion's planner sees it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Planned {
    function: AggregateFunction,
    signature: Signature,
}

impl Planned {
    fn new(function: AggregateFunction) -> Planned {
        Planned { function, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Planned {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Takes what it is given; whether it can is said by the binder, with the place.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let input = types.first().and_then(ColumnType::from_arrow);
        let output = input.and_then(|ty| result_type(self.function, Some(ty)));
        // A type that the function does not take gets some type here, and an error from the binder.
        Ok(output.map_or(DataType::Int64, ColumnType::to_arrow))
    }

    fn is_nullable(&self) -> bool {
        self.function != AggregateFunction::Count
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("{} is run by a job", self.function.name())
    }
}

/// Result type of an aggregate (SQL-3); `None` for an argument that it does not take.
pub(crate) fn result_type(function: AggregateFunction, argument: Option<ColumnType>) -> Option<ColumnType> {
    let Some(ty) = argument else { return (function == AggregateFunction::Count).then_some(ColumnType::BigInt) };
    match function {
        AggregateFunction::Count => Some(ColumnType::BigInt),
        AggregateFunction::Sum => match ty {
            ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => Some(ColumnType::BigInt),
            ColumnType::Real | ColumnType::Double => Some(ty),
            ColumnType::Decimal { scale, .. } => Some(ColumnType::Decimal { precision: 38, scale }),
            ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
            ColumnType::Timestamp { .. } | ColumnType::Interval => None,
        },
        AggregateFunction::Avg => match ty {
            ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt | ColumnType::Real | ColumnType::Double => {
                Some(ColumnType::Double)
            }
            // Four more digits after the point, as far as 38 digits allow.
            ColumnType::Decimal { precision, scale } => {
                Some(ColumnType::Decimal { precision: precision.saturating_add(4).min(38), scale: scale.saturating_add(4).min(38) })
            }
            ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
            ColumnType::Timestamp { .. } | ColumnType::Interval => None,
        },
        AggregateFunction::Min | AggregateFunction::Max => match ty {
            ColumnType::Interval => None,
            ColumnType::Boolean | ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt | ColumnType::Real => Some(ty),
            ColumnType::Double | ColumnType::Decimal { .. } | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => Some(ty),
            ColumnType::Timestamp { .. } => Some(ty),
        },
    }
}
