//! What is known of a stream while it is lowered: its last operator, and what is pending on top.

use crate::sql::convert::{binary, children, flattened, joined, parts};
use std::collections::BTreeMap;
use std::fmt::Display;
use weir_planner::expr::{BinaryOp, Expr, Literal};
use weir_planner::schema::ColumnType;
use weir_planner::spec::{Expression, Projection, TopOrder, WindowShape};

/// Parts that composed expressions may have before a map takes them in.
const COMPOSED_PARTS_MAX: usize = 300;

/// Begins the names that stand for columns of a window or a ranking until an operator gives them;
/// no column can be called so.
const MARK: char = '\u{0}';

/// The place of a row among those of its window, until a top gives it.
pub(super) const PLACE: &str = "row_number";

/// A pending window.
#[derive(Clone, Debug)]
pub(super) struct Windowing {
    pub shape: WindowShape,
    /// Column that the windows follow where it is not the event time of the rows.
    pub time: Option<String>,
    /// Type of the column that the windows follow.
    pub ty: Option<ColumnType>,
    /// Of the call, in the text.
    pub position: usize,
}

/// A pending `row_number()`, over columns of the last operator.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    pub keys: Vec<String>,
    pub order_by: Vec<TopOrder>,
    /// The name that the place gets in the end, where it is known.
    pub hint: Option<String>,
    /// Of the call, in the text.
    pub position: usize,
}

/// What a column has to do with the time of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// It is their event time: a source's time column, or `window_time`.
    Event,
    /// Start of the window that they are results of.
    Start,
    /// End of the window that they are results of.
    End,
}

/// What is known of the windows that rows are results of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bounds {
    /// Windows that start together end together.
    Even(WindowShape),
    /// Windows with one start may have several ends.
    Uneven,
    /// Sessions: of any length, so that how far a start lies behind is not known.
    Sessions,
}

/// One column as an expression over the last operator's columns.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub expr: Expr,
}

/// An operator's output with a filter, a projection and a window or a ranking pending on it.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Index of the last operator.
    pub from: usize,
    /// Its column names.
    pub base: Vec<String>,
    /// Rows that pass.
    pub filter: Option<Expr>,
    /// What the plan's columns are.
    pub columns: Vec<Out>,
    /// A window function without its aggregate yet.
    pub windowing: Option<Windowing>,
    /// `row_number()` without its bound yet; never together with a window.
    pub ranking: Option<Ranking>,
    /// The operator's columns of which it is known how they follow time.
    pub times: BTreeMap<String, Time>,
    /// The rows are results of windows.
    pub windows: Option<Bounds>,
    /// Names of the sources, for messages.
    pub origin: String,
}

impl Stream {
    /// Exactly an operator's output.
    pub fn over(from: usize, base: Vec<String>, origin: String) -> Stream {
        let columns = base.iter().map(|name| Out { expr: Expr::Column(name.clone()) }).collect();
        let times = BTreeMap::new();
        Stream { from, base, filter: None, columns, windowing: None, ranking: None, times, windows: None, origin }
    }

    /// The same rows as the next operator gives them, under `names`; nothing is pending.
    pub fn given(&self, from: usize, names: &[String]) -> Stream {
        let times = self.times_among(names);
        Stream { times, windows: self.windows.clone(), ..Stream::over(from, names.to_vec(), self.origin.clone()) }
    }

    /// With one more condition.
    pub fn filtered(mut self, condition: Expr) -> Stream {
        let mut terms = self.filter.take().map(conjuncts).unwrap_or_default();
        terms.extend(conjuncts(condition));
        self.filter = all(terms);
        self
    }

    /// True when the columns are the operator's own, in order and under these names.
    pub fn is_bare(&self, names: &[String]) -> bool {
        self.base == names
            && self.columns.iter().zip(names).all(|(out, name)| matches!(&out.expr, Expr::Column(column) if column == name))
            && self.columns.len() == names.len()
    }

    /// The columns as projections.
    pub fn projections(&self, names: &[String]) -> Vec<Expression<Projection>> {
        self.columns.iter().zip(names).map(|(out, name)| projection(&out.expr, name)).collect()
    }

    /// What an expression over the operator's columns has to do with time.
    pub fn time_of(&self, expr: &Expr) -> Option<Time> {
        match expr {
            Expr::Column(name) => self.times.get(name).copied(),
            // `window_time`, as it is written until an operator gives it.
            Expr::Binary { op: BinaryOp::Minus, left, right } if **right == tick() => match self.time_of(left) {
                Some(Time::End) => Some(Time::Event),
                Some(Time::Event | Time::Start) | None => None,
            },
            _ => None,
        }
    }

    /// The operator's column that is the event time of its rows.
    pub fn event_time(&self) -> Option<&str> {
        self.times.iter().find(|(_, time)| **time == Time::Event).map(|(name, _)| name.as_str())
    }

    fn times_among(&self, names: &[String]) -> BTreeMap<String, Time> {
        self.columns.iter().zip(names).filter_map(|(out, name)| Some((name.clone(), self.time_of(&out.expr)?))).collect()
    }
}

/// `expr AS name` as text.
pub(super) fn projection(expr: &Expr, name: &str) -> Expression<Projection> {
    let sql = match expr {
        Expr::Column(column) if column == name => weir_planner::expr::Name(name).to_string(),
        expr => format!("{expr} AS {}", weir_planner::expr::Name(name)),
    };
    Expression { sql, bound: None }
}

/// An expression as text.
pub(super) fn text<T: Clone>(expr: &impl Display) -> Expression<T> {
    Expression { sql: expr.to_string(), bound: None }
}

/// Stands for a window column or for [`PLACE`].
pub(super) fn marked(name: &str) -> Expr {
    Expr::Column(format!("{MARK}{name}"))
}

/// The name that a column stands for.
pub(super) fn as_marked(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(name) => name.strip_prefix(MARK),
        _ => None,
    }
}

/// True when an expression reads a column that no operator gives yet.
pub(super) fn reads_marked(expr: &Expr) -> bool {
    let (mut found, mut open) = (false, vec![expr]);
    while let Some(expr) = open.pop() {
        found |= as_marked(expr).is_some();
        children(expr, &mut |child| open.push(child));
    }
    found
}

/// Columns that an expression reads, but for those that no operator gives yet.
pub(super) fn columns_of(expr: &Expr) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), vec![expr]);
    while let Some(expr) = open.pop() {
        if let Expr::Column(name) = expr
            && !name.starts_with(MARK)
            && !names.contains(name)
        {
            names.push(name.clone());
        }
        children(expr, &mut |child| open.push(child));
    }
    names
}

/// The terms of an AND.
pub(super) fn conjuncts(expr: Expr) -> Vec<Expr> {
    flattened(BinaryOp::And, expr)
}

/// An AND of terms; `None` of none.
pub(super) fn all(terms: Vec<Expr>) -> Option<Expr> {
    (!terms.is_empty()).then(|| joined(BinaryOp::And, terms))
}

/// True when expressions have grown so much that a map should compute their inputs.
pub(super) fn too_large(exprs: &[Expr]) -> bool {
    exprs.iter().map(parts).sum::<usize>() > COMPOSED_PARTS_MAX
}

/// From `window_end` back to the last instant of a window.
fn tick() -> Expr {
    Expr::Literal(Literal::Interval { months: 0, days: 0, nanos: 1_000_000 })
}

/// Window columns as the window operator gives them: `window_time` is the last instant of the window.
pub(super) fn settled(expr: Expr) -> Expr {
    match as_marked(&expr) {
        Some("window_time") => binary(BinaryOp::Minus, Expr::Column("window_end".to_owned()), tick()),
        Some(name) => Expr::Column(name.to_owned()),
        None => expr,
    }
}

/// The same expression with its columns replaced.
pub(super) fn substituted(expr: Expr, column: &impl Fn(Expr) -> Expr) -> Expr {
    let boxed = |expr: Box<Expr>| Box::new(substituted(*expr, column));
    let all = |exprs: Vec<Expr>| exprs.into_iter().map(|expr| substituted(expr, column)).collect();
    match expr {
        Expr::Column(_) => column(expr),
        Expr::Literal(_) => expr,
        Expr::Binary { op, left, right } => Expr::Binary { op, left: boxed(left), right: boxed(right) },
        Expr::Not(expr) => Expr::Not(boxed(expr)),
        Expr::Negate(expr) => Expr::Negate(boxed(expr)),
        Expr::IsNull { expr, negated } => Expr::IsNull { expr: boxed(expr), negated },
        Expr::IsBoolean { expr, value, negated } => Expr::IsBoolean { expr: boxed(expr), value, negated },
        Expr::Cast { expr, to, lenient } => Expr::Cast { expr: boxed(expr), to, lenient },
        Expr::Case { operand, branches, otherwise } => Expr::Case {
            operand: operand.map(boxed),
            branches: branches.into_iter().map(|(when, then)| (substituted(when, column), substituted(then, column))).collect(),
            otherwise: otherwise.map(boxed),
        },
        Expr::Like { expr, pattern, escape, case_insensitive, negated } => {
            Expr::Like { expr: boxed(expr), pattern: boxed(pattern), escape, case_insensitive, negated }
        }
        Expr::InList { expr, list, negated } => Expr::InList { expr: boxed(expr), list: all(list), negated },
        Expr::Function { name, version, args } => Expr::Function { name, version, args: all(args) },
    }
}
