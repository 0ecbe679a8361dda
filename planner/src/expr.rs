//! Typed scalar expressions and aggregates, as plans hold them, and their SQL text.

mod aggregate;
mod text;

pub use aggregate::{AggregateFunction, Kind};
pub use text::{Name, Quoted};

use crate::schema::ColumnType;
use crate::time::TimeUnit;
use serde::{Deserialize, Serialize};

/// A scalar expression over the columns of one input. `Display` prints SQL that binds back to an
/// equal expression (JOB-3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// An input column by name.
    Column(String),
    /// A constant.
    Literal(Literal),
    /// Two operands of types that the operator takes as they are: coercions are explicit casts.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `NOT x`.
    Not(Box<Expr>),
    /// `-x`.
    Negate(Box<Expr>),
    /// `x IS [NOT] NULL`.
    IsNull {
        /// Operand.
        expr: Box<Expr>,
        /// `IS NOT NULL`.
        negated: bool,
    },
    /// `x IS [NOT] TRUE | FALSE | UNKNOWN`; `value` is `None` for unknown.
    IsBoolean {
        /// Operand.
        expr: Box<Expr>,
        /// What is asked for.
        value: Option<bool>,
        /// With `NOT`.
        negated: bool,
    },
    /// `CAST(x AS t)`, or `TRY_CAST` which gives NULL instead of an error.
    Cast {
        /// Operand.
        expr: Box<Expr>,
        /// Target.
        to: ColumnType,
        /// NULL instead of an error.
        lenient: bool,
    },
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case {
        /// Compared with each branch when present.
        operand: Option<Box<Expr>>,
        /// `(when, then)` in order.
        branches: Vec<(Expr, Expr)>,
        /// `ELSE`.
        otherwise: Option<Box<Expr>>,
    },
    /// `x [NOT] [I]LIKE pattern [ESCAPE c]`.
    Like {
        /// Operand.
        expr: Box<Expr>,
        /// Pattern.
        pattern: Box<Expr>,
        /// Escape character.
        escape: Option<char>,
        /// `ILIKE`.
        case_insensitive: bool,
        /// With `NOT`.
        negated: bool,
    },
    /// `x [NOT] IN (a, b, …)`.
    InList {
        /// Operand.
        expr: Box<Expr>,
        /// Candidates.
        list: Vec<Expr>,
        /// With `NOT`.
        negated: bool,
    },
    /// A scalar function by its registry name.
    Function {
        /// Lower-case name in the function registry.
        name: String,
        /// Which meaning of the function: raised where a later Weir computes something else, so
        /// that a stored plan keeps what it had.
        #[serde(default = "first")]
        version: u32,
        /// Arguments in order.
        args: Vec<Expr>,
    },
}

/// A constant of a known type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Literal {
    /// NULL of a type.
    Null(ColumnType),
    /// A boolean.
    Boolean(bool),
    /// 16 bit.
    SmallInt(i16),
    /// 32 bit.
    Integer(i32),
    /// 64 bit.
    BigInt(i64),
    /// 32 bit float, finite.
    Real(f32),
    /// 64 bit float, finite; others are written as a cast from text.
    Double(f64),
    /// An exact number: digits without the point, and its type's precision and scale. The
    /// unscaled value is text, since it may have 38 digits.
    Decimal {
        /// Unscaled decimal digits with an optional minus.
        unscaled: String,
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// Text.
    Text(String),
    /// Bytes.
    Bytea(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i32),
    /// A point in time in `unit`s since 1970.
    Timestamp {
        /// Count of units.
        value: i64,
        /// Resolution.
        unit: TimeUnit,
        /// With time zone.
        zoned: bool,
    },
    /// A calendar interval.
    Interval {
        /// Months.
        months: i32,
        /// Days.
        days: i32,
        /// Nanoseconds.
        nanos: i64,
    },
}

/// Operators of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each variant is named after its SQL operator")]
pub enum BinaryOp {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
    IsDistinctFrom,
    IsNotDistinctFrom,
    Plus,
    Minus,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Concat,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    ShiftLeft,
    ShiftRight,
    RegexMatch,
    RegexMatchInsensitive,
    RegexNotMatch,
    RegexNotMatchInsensitive,
}

/// An expression with the type that it gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Typed {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: ColumnType,
    /// May give NULL.
    pub nullable: bool,
}

/// The order of one expression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What is compared.
    pub by: Typed,
    /// Greatest first.
    pub descending: bool,
    /// NULL before all others.
    pub nulls_first: bool,
}

/// One aggregate of a window, bound to its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Which.
    pub function: AggregateFunction,
    /// What is aggregated; empty for `count(*)`. The last is a constant where
    /// [`AggregateFunction::takes_constant`] says so.
    pub arguments: Vec<Typed>,
    /// `DISTINCT`: equal arguments of a group count once.
    #[serde(default)]
    pub distinct: bool,
    /// `ORDER BY` within the call, most significant first; then event time.
    #[serde(default)]
    pub order_by: Vec<Order>,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// Result type.
    #[serde(rename = "type")]
    pub ty: ColumnType,
    /// May give NULL: all but those that count.
    pub nullable: bool,
}

/// The version of a function in plans that were stored without one.
fn first() -> u32 {
    1
}
