//! The closed list of aggregate functions: names, and what sets each apart for plans and state.

use super::{Aggregate, Typed};
use serde::{Deserialize, Serialize};

/// The aggregates that windows compute. NULLs do not count, unless something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregateFunction {
    /// `count(*)` without an argument, `count(x)` of non-null values; BIGINT.
    Count,
    /// Integers give BIGINT, REAL gives REAL, DOUBLE gives DOUBLE, DECIMAL gives DECIMAL(38, s) (SQL-3).
    Sum,
    /// Integers, REAL and DOUBLE give DOUBLE, DECIMAL gives DECIMAL.
    Avg,
    /// The input type.
    Min,
    /// The input type.
    Max,
    /// Whether all are true.
    BoolAnd,
    /// Whether any is true.
    BoolOr,
    /// Bits that all integers have; the input type.
    BitAnd,
    /// Bits that any integer has; the input type.
    BitOr,
    /// Bits that an odd number of integers have; the input type.
    BitXor,
    /// Variance of a sample: NULL for less than two values; DOUBLE.
    VarSamp,
    /// Variance of a population; DOUBLE.
    VarPop,
    /// Square root of [`AggregateFunction::VarSamp`].
    StddevSamp,
    /// Square root of [`AggregateFunction::VarPop`].
    StddevPop,
    /// Value of the first row, NULL included, by `ORDER BY`, then event time, then the value itself.
    FirstValue,
    /// Value of the last row in the same order.
    LastValue,
    /// Correlation of pairs `(y, x)`; like all of pairs it leaves out those with a NULL and gives DOUBLE.
    Corr,
    /// Covariance of a sample: NULL for less than two pairs.
    CovarSamp,
    /// Covariance of a population.
    CovarPop,
    /// Slope of the line through pairs `(y, x)` by least squares.
    RegrSlope,
    /// Where that line meets x = 0.
    RegrIntercept,
    /// Square of the correlation.
    RegrR2,
    /// Number of pairs; BIGINT.
    RegrCount,
    /// Average of x.
    RegrAvgx,
    /// Average of y.
    RegrAvgy,
    /// Sum of the squares of x less its average.
    RegrSxx,
    /// Sum of the squares of y less its average.
    RegrSyy,
    /// Sum of the products of both less their averages.
    RegrSxy,
    /// Texts one after the other, with a constant between them.
    StringAgg,
    /// The middle value, or what lies half way between the middle two.
    Median,
    /// The value at a constant share of the way through the ordered values, interpolated; DOUBLE.
    PercentileCont,
    /// About how many different values there are; BIGINT.
    ApproxDistinct,
    /// About [`AggregateFunction::Median`]; DOUBLE.
    ApproxMedian,
    /// About [`AggregateFunction::PercentileCont`].
    ApproxPercentileCont,
}

impl AggregateFunction {
    /// All of them.
    pub const ALL: [AggregateFunction; 34] = [
        AggregateFunction::Count,
        AggregateFunction::Sum,
        AggregateFunction::Avg,
        AggregateFunction::Min,
        AggregateFunction::Max,
        AggregateFunction::BoolAnd,
        AggregateFunction::BoolOr,
        AggregateFunction::BitAnd,
        AggregateFunction::BitOr,
        AggregateFunction::BitXor,
        AggregateFunction::VarSamp,
        AggregateFunction::VarPop,
        AggregateFunction::StddevSamp,
        AggregateFunction::StddevPop,
        AggregateFunction::FirstValue,
        AggregateFunction::LastValue,
        AggregateFunction::Corr,
        AggregateFunction::CovarSamp,
        AggregateFunction::CovarPop,
        AggregateFunction::RegrSlope,
        AggregateFunction::RegrIntercept,
        AggregateFunction::RegrR2,
        AggregateFunction::RegrCount,
        AggregateFunction::RegrAvgx,
        AggregateFunction::RegrAvgy,
        AggregateFunction::RegrSxx,
        AggregateFunction::RegrSyy,
        AggregateFunction::RegrSxy,
        AggregateFunction::StringAgg,
        AggregateFunction::Median,
        AggregateFunction::PercentileCont,
        AggregateFunction::ApproxDistinct,
        AggregateFunction::ApproxMedian,
        AggregateFunction::ApproxPercentileCont,
    ];

    /// The function's SQL name.
    pub fn name(self) -> &'static str {
        match self {
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Avg => "avg",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
            AggregateFunction::BoolAnd => "bool_and",
            AggregateFunction::BoolOr => "bool_or",
            AggregateFunction::BitAnd => "bit_and",
            AggregateFunction::BitOr => "bit_or",
            AggregateFunction::BitXor => "bit_xor",
            AggregateFunction::VarSamp => "var_samp",
            AggregateFunction::VarPop => "var_pop",
            AggregateFunction::StddevSamp => "stddev_samp",
            AggregateFunction::StddevPop => "stddev_pop",
            AggregateFunction::FirstValue => "first_value",
            AggregateFunction::LastValue => "last_value",
            AggregateFunction::Corr => "corr",
            AggregateFunction::CovarSamp => "covar_samp",
            AggregateFunction::CovarPop => "covar_pop",
            AggregateFunction::RegrSlope => "regr_slope",
            AggregateFunction::RegrIntercept => "regr_intercept",
            AggregateFunction::RegrR2 => "regr_r2",
            AggregateFunction::RegrCount => "regr_count",
            AggregateFunction::RegrAvgx => "regr_avgx",
            AggregateFunction::RegrAvgy => "regr_avgy",
            AggregateFunction::RegrSxx => "regr_sxx",
            AggregateFunction::RegrSyy => "regr_syy",
            AggregateFunction::RegrSxy => "regr_sxy",
            AggregateFunction::StringAgg => "string_agg",
            AggregateFunction::Median => "median",
            AggregateFunction::PercentileCont => "percentile_cont",
            AggregateFunction::ApproxDistinct => "approx_distinct",
            AggregateFunction::ApproxMedian => "approx_median",
            AggregateFunction::ApproxPercentileCont => "approx_percentile_cont",
        }
    }

    /// Other names of it.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            AggregateFunction::BoolAnd => &["every"],
            AggregateFunction::Avg => &["mean"],
            AggregateFunction::VarSamp => &["variance", "var", "var_sample"],
            AggregateFunction::VarPop => &["var_population"],
            AggregateFunction::StddevSamp => &["stddev"],
            AggregateFunction::CovarSamp => &["covar"],
            AggregateFunction::PercentileCont => &["quantile_cont"],
            AggregateFunction::Count
            | AggregateFunction::Sum
            | AggregateFunction::Min
            | AggregateFunction::Max
            | AggregateFunction::BoolOr
            | AggregateFunction::BitAnd
            | AggregateFunction::BitOr
            | AggregateFunction::BitXor
            | AggregateFunction::StddevPop
            | AggregateFunction::FirstValue
            | AggregateFunction::LastValue
            | AggregateFunction::Corr
            | AggregateFunction::CovarPop
            | AggregateFunction::RegrSlope
            | AggregateFunction::RegrIntercept
            | AggregateFunction::RegrR2
            | AggregateFunction::RegrCount
            | AggregateFunction::RegrAvgx
            | AggregateFunction::RegrAvgy
            | AggregateFunction::RegrSxx
            | AggregateFunction::RegrSyy
            | AggregateFunction::RegrSxy
            | AggregateFunction::StringAgg
            | AggregateFunction::Median
            | AggregateFunction::ApproxDistinct
            | AggregateFunction::ApproxMedian
            | AggregateFunction::ApproxPercentileCont => &[],
        }
    }

    /// What its result is made of, which decides what else a call may say.
    pub fn kind(self) -> Kind {
        match self {
            AggregateFunction::Min
            | AggregateFunction::Max
            | AggregateFunction::BoolAnd
            | AggregateFunction::BoolOr
            | AggregateFunction::BitAnd
            | AggregateFunction::BitOr
            | AggregateFunction::ApproxDistinct => Kind::Set,
            AggregateFunction::Count
            | AggregateFunction::Sum
            | AggregateFunction::Avg
            | AggregateFunction::BitXor
            | AggregateFunction::VarSamp
            | AggregateFunction::VarPop
            | AggregateFunction::StddevSamp
            | AggregateFunction::StddevPop
            | AggregateFunction::Median
            | AggregateFunction::PercentileCont
            | AggregateFunction::ApproxMedian
            | AggregateFunction::ApproxPercentileCont => Kind::Bag,
            AggregateFunction::Corr
            | AggregateFunction::CovarSamp
            | AggregateFunction::CovarPop
            | AggregateFunction::RegrSlope
            | AggregateFunction::RegrIntercept
            | AggregateFunction::RegrR2
            | AggregateFunction::RegrCount
            | AggregateFunction::RegrAvgx
            | AggregateFunction::RegrAvgy
            | AggregateFunction::RegrSxx
            | AggregateFunction::RegrSyy
            | AggregateFunction::RegrSxy => Kind::Pairs,
            AggregateFunction::FirstValue | AggregateFunction::LastValue => Kind::Row,
            AggregateFunction::StringAgg => Kind::Sequence,
        }
    }

    /// Its last argument is a constant.
    pub fn takes_constant(self) -> bool {
        matches!(self, AggregateFunction::StringAgg | AggregateFunction::PercentileCont | AggregateFunction::ApproxPercentileCont)
    }

    /// Its state keeps every value, so that a job with it needs a bound on its state (SQL-3).
    pub fn keeps_values(self) -> bool {
        matches!(self, AggregateFunction::StringAgg | AggregateFunction::Median | AggregateFunction::PercentileCont)
    }

    /// Gives a number even where there is no value.
    pub fn counts(self) -> bool {
        matches!(self, AggregateFunction::Count | AggregateFunction::RegrCount | AggregateFunction::ApproxDistinct)
    }
}

/// What an aggregate's result is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Different values: how often each one comes does not matter, nor does `DISTINCT`.
    Set,
    /// Values, in no order.
    Bag,
    /// Pairs of values, in no order.
    Pairs,
    /// One row, found by an order.
    Row,
    /// Values in an order.
    Sequence,
}

impl Aggregate {
    /// What is computed of each row: the arguments that are no constants, then what is ordered by.
    pub fn columns(&self) -> impl Iterator<Item = &Typed> {
        let rows = self.arguments.len() - usize::from(self.function.takes_constant() && !self.arguments.is_empty());
        self.arguments[..rows].iter().chain(self.order_by.iter().map(|order| &order.by))
    }

    /// The event time of rows matters to the result: it follows the columns.
    pub fn timed(&self) -> bool {
        match self.function.kind() {
            Kind::Row => true,
            // Different values are in the order of the values, which have no time.
            Kind::Sequence => !self.distinct,
            Kind::Set | Kind::Bag | Kind::Pairs => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AggregateFunction;
    use std::collections::BTreeSet;

    /// Names are told apart, and are those that stored plans have.
    #[test]
    fn names_are_unique_and_as_stored() {
        let mut names = BTreeSet::new();
        for function in AggregateFunction::ALL {
            assert_eq!(serde_json::to_string(&function).unwrap(), format!("\"{}\"", function.name()));
            for name in std::iter::once(&function.name()).chain(function.aliases()) {
                assert!(names.insert(*name), "{name}");
            }
        }
    }
}
