//! Columns between the two stages of a window aggregate (PLAN-6, WIN-7): what [`Work::Partial`]
//! emits and the window behind it takes.
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | the keys | as in the input | by their names, in their order |
//! | `__pane_start` | BIGINT | start of the pane, ms |
//! | `__pane_from` | BIGINT | end of the first window for which the rows count, ms |
//! | `__a<i>_<part>` | see [`state_columns`] | state of aggregate i of those [kept](WindowWork::kept) |
//! | `__rows` | BIGINT | rows of the input that the row stands for |
//!
//! [`Work::Partial`]: crate::plan::Work::Partial

use crate::expr::{Aggregate, AggregateFunction};
use crate::id::{ChainId, OperatorId};
use crate::plan::{JobPlan, Port, Routing, WindowWork, Work};
use crate::schema::{Column, ColumnType, Schema};
use crate::spec::{ErrorPolicy, LatePolicy};
use crate::window::Windows;

/// Column with the start of a partial row's pane, ms.
pub const PANE_START_COLUMN: &str = "__pane_start";
/// Column with the end of the first window for which a partial row counts, ms.
pub const PANE_FROM_COLUMN: &str = "__pane_from";
/// Column with the number of rows that a partial row stands for.
pub const ROWS_COLUMN: &str = "__rows";

/// Id of the first stage of the window aggregate `window`; `None` when that is no valid id (too long).
pub fn partial_id(window: &OperatorId) -> Option<OperatorId> {
    OperatorId::new(format!("{window}-partial")).ok()
}

/// State of an aggregate as columns: ending of the name, type. `None` for one that cannot be merged.
pub fn state_columns(aggregate: &Aggregate) -> Option<Vec<(&'static str, ColumnType)>> {
    use AggregateFunction as F;
    let count = ("count", ColumnType::BigInt);
    let wide = ColumnType::Decimal { precision: 38, scale: 0 };
    // What DISTINCT has seen stays where all rows of a group come together.
    if aggregate.distinct {
        return None;
    }
    let Some(argument) = aggregate.arguments.first().map(|argument| argument.ty) else {
        return (aggregate.function == F::Count).then(|| vec![count]);
    };
    // How a sum is kept: `carry` holds what left an integer's range, `lost` a float's low parts.
    let sum = match argument {
        ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt => {
            Some([("sum", ColumnType::BigInt), ("carry", ColumnType::BigInt)])
        }
        ColumnType::Decimal { .. } => Some([("sum", wide), ("carry", ColumnType::BigInt)]),
        ColumnType::Real | ColumnType::Double => Some([("sum", ColumnType::Double), ("lost", ColumnType::Double)]),
        ColumnType::Boolean | ColumnType::Text | ColumnType::Bytea | ColumnType::Date => None,
        ColumnType::Timestamp { .. } | ColumnType::Interval => None,
    };
    let doubles = |names: &[&'static str]| [count].into_iter().chain(names.iter().map(|name| (*name, ColumnType::Double))).collect();
    match aggregate.function {
        F::Count => Some(vec![count]),
        F::Sum => sum.map(|[sum, rest]| vec![sum, rest, ("seen", ColumnType::Boolean)]),
        F::Avg => sum.map(|[sum, rest]| vec![sum, rest, count]),
        F::Min | F::Max => match argument {
            ColumnType::Boolean => Some(vec![("value", ColumnType::Boolean), ("seen", ColumnType::Boolean)]),
            ColumnType::Interval => None,
            ColumnType::SmallInt
            | ColumnType::Integer
            | ColumnType::BigInt
            | ColumnType::Real
            | ColumnType::Double
            | ColumnType::Decimal { .. }
            | ColumnType::Text
            | ColumnType::Bytea
            | ColumnType::Date
            | ColumnType::Timestamp { .. } => Some(vec![("value", argument)]),
        },
        F::BoolAnd | F::BoolOr => Some(vec![("value", ColumnType::Boolean), ("seen", ColumnType::Boolean)]),
        F::BitAnd | F::BitOr | F::BitXor => Some(vec![("value", argument)]),
        F::VarSamp | F::VarPop | F::StddevSamp | F::StddevPop => Some(doubles(&["mean", "squares"])),
        F::Corr | F::CovarSamp | F::CovarPop | F::RegrSlope | F::RegrIntercept | F::RegrR2 => {
            Some(doubles(&["mean_y", "mean_x", "squares_y", "squares_x", "products"]))
        }
        F::RegrCount | F::RegrAvgx | F::RegrAvgy | F::RegrSxx | F::RegrSyy | F::RegrSxy => {
            Some(doubles(&["mean_y", "mean_x", "squares_y", "squares_x", "products"]))
        }
        // These need all rows of a group in one place, for their order or for their number.
        F::FirstValue | F::LastValue | F::StringAgg | F::Median | F::PercentileCont => None,
        F::ApproxDistinct | F::ApproxMedian | F::ApproxPercentileCont => None,
    }
}

/// Columns that the first stage of `work` emits over rows of `input`; `None` when an aggregate
/// cannot be merged or a key is not there: then there is no first stage.
pub fn partial_rows(work: &WindowWork, input: &Schema) -> Option<Schema> {
    let column = |name: String, ty| Column { name, ty, nullable: false };
    let mut columns = work.keys.iter().map(|key| input.index_of(key).map(|at| input.0[at].clone())).collect::<Option<Vec<_>>>()?;
    columns.push(column(PANE_START_COLUMN.to_owned(), ColumnType::BigInt));
    columns.push(column(PANE_FROM_COLUMN.to_owned(), ColumnType::BigInt));
    for (i, (_, aggregate)) in work.kept().iter().enumerate() {
        let parts = state_columns(aggregate)?;
        columns.extend(parts.into_iter().map(|(part, ty)| Column { nullable: true, ..column(format!("__a{i}_{part}"), ty) }));
    }
    columns.push(column(ROWS_COLUMN.to_owned(), ColumnType::BigInt));
    Some(Schema(columns))
}

/// Why the window aggregate at the head of a chain has no first stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The chain does not begin with a window aggregate that takes rows by key from several tasks.
    NotShuffled,
    /// Late rows are routed, whole and by the window.
    LateRouted,
    /// Results are given more than once (WIN-4): how often must not depend on what a first stage holds.
    Updates,
    /// Windows follow the rows of each key.
    Sessions,
    /// Windows keep their own rows: each row would become many.
    OwnRows,
    /// Rows that cannot be computed are routed, and by the window.
    ErrorsRouted,
    /// The state of the aggregate of this name cannot be put together from parts.
    NotMergeable(String),
    /// This producer gives its rows to others too.
    SharedProducer(OperatorId),
}

/// What stands against a first stage before the shuffle into `chain`; `None` where nothing does.
pub fn obstacle(plan: &JobPlan, chain: ChainId) -> Option<Obstacle> {
    let Some(Work::Window(window)) = plan.chain(chain).operators.first().map(|operator| &operator.work) else {
        return Some(Obstacle::NotShuffled);
    };
    let mut inbound = plan.edges.iter().filter(|edge| edge.to == chain).peekable();
    if inbound.peek().is_none() || !inbound.clone().all(|edge| matches!(edge.routing, Routing::Partitioned(_))) {
        return Some(Obstacle::NotShuffled);
    }
    match &window.windows {
        Windows::Session { .. } => return Some(Obstacle::Sessions),
        Windows::Aligned(aligned) if aligned.keeps_own() => return Some(Obstacle::OwnRows),
        Windows::Aligned(_) => {}
    }
    if window.marks_updates() {
        return Some(Obstacle::Updates);
    }
    match window.late {
        LatePolicy::Drop | LatePolicy::Update => {}
        LatePolicy::Route => return Some(Obstacle::LateRouted),
    }
    match window.on_error {
        ErrorPolicy::Fail | ErrorPolicy::Skip => {}
        ErrorPolicy::Route => return Some(Obstacle::ErrorsRouted),
    }
    if let Some((name, _)) = window.aggregates.iter().find(|(_, aggregate)| state_columns(aggregate).is_none()) {
        return Some(Obstacle::NotMergeable(name.clone()));
    }
    let main = |from: ChainId| plan.edges.iter().filter(move |edge| edge.from == from && edge.port == Port::Main).count();
    let shared = inbound.find(|edge| main(edge.from) > 1)?;
    let producer = plan.chain(shared.from).operators.last()?;
    Some(Obstacle::SharedProducer(producer.id.clone()))
}

#[cfg(test)]
mod tests {
    use super::state_columns;
    use crate::expr::{Aggregate, AggregateFunction, Expr, Typed};
    use crate::schema::ColumnType;
    use crate::time::TimeUnit;

    fn aggregate(function: AggregateFunction, ty: Option<ColumnType>) -> Aggregate {
        let arguments = ty.map(|ty| Typed { expr: Expr::Column("x".to_owned()), ty, nullable: true }).into_iter().collect();
        Aggregate { function, arguments, distinct: false, order_by: Vec::new(), filter: None, ty: ColumnType::BigInt, nullable: true }
    }

    fn told(function: AggregateFunction, ty: ColumnType) -> Option<String> {
        let one = |(name, ty): (&str, ColumnType)| format!("{name} {ty}");
        Some(state_columns(&aggregate(function, Some(ty)))?.into_iter().map(one).collect::<Vec<_>>().join(", "))
    }

    /// PLAN-6: what each aggregate sends on, as the images of the accumulators have it.
    #[test]
    fn each_aggregate_has_its_state() {
        let (sum, avg, max) = (AggregateFunction::Sum, AggregateFunction::Avg, AggregateFunction::Max);
        let decimal = ColumnType::Decimal { precision: 10, scale: 2 };
        assert_eq!(told(AggregateFunction::Count, ColumnType::Text).unwrap(), "count BIGINT");
        assert_eq!(told(sum, ColumnType::SmallInt).unwrap(), "sum BIGINT, carry BIGINT, seen BOOLEAN");
        assert_eq!(told(sum, decimal).unwrap(), "sum DECIMAL(38,0), carry BIGINT, seen BOOLEAN");
        assert_eq!(told(sum, ColumnType::Real).unwrap(), "sum DOUBLE PRECISION, lost DOUBLE PRECISION, seen BOOLEAN");
        assert_eq!(told(avg, ColumnType::BigInt).unwrap(), "sum BIGINT, carry BIGINT, count BIGINT");
        assert_eq!(told(avg, decimal).unwrap(), "sum DECIMAL(38,0), carry BIGINT, count BIGINT");
        assert_eq!(told(avg, ColumnType::Double).unwrap(), "sum DOUBLE PRECISION, lost DOUBLE PRECISION, count BIGINT");
        assert_eq!(told(max, ColumnType::Boolean).unwrap(), "value BOOLEAN, seen BOOLEAN");
        assert_eq!(told(max, ColumnType::Text).unwrap(), "value TEXT");
        let time = ColumnType::Timestamp { unit: TimeUnit::Microsecond, zoned: true };
        assert_eq!(told(AggregateFunction::Min, time).unwrap(), "value TIMESTAMPTZ(6)");
        assert_eq!(told(AggregateFunction::BoolOr, ColumnType::Boolean).unwrap(), "value BOOLEAN, seen BOOLEAN");
        assert_eq!(told(AggregateFunction::BitXor, ColumnType::SmallInt).unwrap(), "value SMALLINT");
        assert_eq!(
            told(AggregateFunction::StddevPop, ColumnType::Real).unwrap(),
            "count BIGINT, mean DOUBLE PRECISION, squares DOUBLE PRECISION"
        );
        assert_eq!(told(AggregateFunction::FirstValue, ColumnType::BigInt), None);
        assert_eq!(state_columns(&Aggregate { distinct: true, ..aggregate(sum, Some(ColumnType::BigInt)) }), None);
        assert_eq!(told(sum, ColumnType::Text), None);
        assert_eq!(told(max, ColumnType::Interval), None);
        assert_eq!(state_columns(&aggregate(sum, None)), None);
    }
}
