//! What is known of a stream while it is lowered: its last operator, and what is pending on top.

use crate::sql::convert::{binary, children, flattened, joined, parts};
use std::fmt::Display;
use weir_planner::expr::{BinaryOp, Expr};
use weir_planner::spec::{Expression, Projection};

/// Parts that composed expressions may have before a map takes them in.
const COMPOSED_PARTS_MAX: usize = 300;

/// Begins the names that stand for window columns until a window operator gives them; no column
/// can be called so.
const WINDOW_MARK: char = '\u{0}';

/// A pending window.
#[derive(Clone, Debug)]
pub(super) struct Windowing {
    pub size_ms: i64,
    pub offset_ms: i64,
    /// Of the call, in the text.
    pub position: usize,
}

/// One column as an expression over the last operator's columns.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub expr: Expr,
}

/// An operator's output with a filter, a projection and a window pending on it.
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
    /// `tumble(…)` without its aggregate yet.
    pub windowing: Option<Windowing>,
    /// The operator's column that is the event time of its rows.
    pub time: Option<String>,
    /// A window lies upstream.
    pub windowed: bool,
    /// Names of the sources, for messages.
    pub origin: String,
}

impl Stream {
    /// Exactly an operator's output.
    pub fn over(from: usize, base: Vec<String>, time: Option<String>, origin: String) -> Stream {
        let columns = base.iter().map(|name| Out { expr: Expr::Column(name.clone()) }).collect();
        Stream { from, base, filter: None, columns, windowing: None, time, windowed: false, origin }
    }

    /// With one more condition.
    pub fn filtered(mut self, condition: Expr) -> Stream {
        self.filter = Some(match self.filter.take() {
            None => condition,
            Some(filter) => {
                let mut terms = conjuncts(filter);
                terms.extend(conjuncts(condition));
                joined(BinaryOp::And, terms)
            }
        });
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

    /// The name under which the time column goes on, if it does.
    pub fn time_among(&self, names: &[String]) -> Option<String> {
        let time = self.time.as_ref()?;
        let at = self.columns.iter().position(|out| matches!(&out.expr, Expr::Column(column) if column == time))?;
        names.get(at).cloned()
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

/// Stands for a window column.
pub(super) fn window_column(name: &str) -> Expr {
    Expr::Column(format!("{WINDOW_MARK}{name}"))
}

/// The window column that a column stands for.
pub(super) fn as_window_column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(name) => name.strip_prefix(WINDOW_MARK),
        _ => None,
    }
}

/// True when an expression reads a window column.
pub(super) fn reads_window(expr: &Expr) -> bool {
    let (mut found, mut open) = (false, vec![expr]);
    while let Some(expr) = open.pop() {
        found |= as_window_column(expr).is_some();
        children(expr, &mut |child| open.push(child));
    }
    found
}

/// Columns that an expression reads.
pub(super) fn columns_of(expr: &Expr) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), vec![expr]);
    while let Some(expr) = open.pop() {
        if let Expr::Column(name) = expr
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

/// True when expressions have grown so much that a map should compute their inputs.
pub(super) fn too_large(exprs: &[Expr]) -> bool {
    exprs.iter().map(parts).sum::<usize>() > COMPOSED_PARTS_MAX
}

/// Window columns as the window operator gives them: `window_time` is the last instant of the window.
pub(super) fn settled(expr: Expr) -> Expr {
    use weir_planner::expr::Literal;
    match as_window_column(&expr) {
        Some("window_time") => {
            let tick = Expr::Literal(Literal::Interval { months: 0, days: 0, nanos: 1_000_000 });
            binary(BinaryOp::Minus, Expr::Column("window_end".to_owned()), tick)
        }
        Some(name) => Expr::Column(name.to_owned()),
        None => expr,
    }
}
