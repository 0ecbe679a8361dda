//! `row_number()` over the results of windows, with a bound: the first rows of each window (SQL-5).

use super::Lowering;
use super::stream::{Bounds, Out, PLACE, Ranking, Stream, Time, all, as_marked, conjuncts, marked, reads_marked, substituted};
use crate::error::{Error, sqlstate};
use crate::sql::sugar::unique;
use datafusion::logical_expr::{Expr as Df, Window as DfWindow};
use std::collections::BTreeSet;
use weir_planner::expr::{BinaryOp, Expr, Literal};
use weir_planner::spec::{OperatorKind, Top, TopOrder};

const REWRITE: &str = "write SELECT … FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn \
                       FROM (SELECT k, window_start, window_end, count(*) AS n FROM tumble(…) GROUP BY …)) WHERE rn <= 10";

impl Lowering<'_> {
    /// Makes a `row_number()` pending on its input; `hints` name the columns, the place last.
    pub(super) fn rank(&mut self, plan: &DfWindow, hints: &[Option<String>]) -> Result<Stream, Error> {
        let position = self.landmarks.functions.get(PLACE).copied().unwrap_or(self.fallback);
        let refused = |message: &str, hint: &str| Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint).at(position));
        let [Df::WindowFunction(call)] = plan.window_expr.as_slice() else {
            return refused("several row_number() in one SELECT are not available", "write each into a query of its own");
        };
        let schema = plan.input.schema();
        let stream = self.lower(&plan.input, &vec![None; schema.fields().len()])?;
        let stream = self.settle(stream)?;
        if stream.windowing.is_some() || stream.windows.is_none() {
            return refused("row_number() ranks the results of windows: other rows are never all there", REWRITE);
        }
        let composed = |expr: &Df| self.compose(expr, &stream, schema).map_err(|error| Error { position: Some(position), ..error });
        let by: Vec<Expr> = call.params.partition_by.iter().map(&composed).collect::<Result<_, _>>()?;
        let sorted = call.params.order_by.iter().map(|sort| Ok((composed(&sort.expr)?, sort.asc, sort.nulls_first)));
        let sorted: Vec<(Expr, bool, bool)> = sorted.collect::<Result<_, Error>>()?;
        if sorted.is_empty() {
            return refused("row_number() without ORDER BY has no first rows", REWRITE);
        }
        let names_end = by.iter().any(|expr| matches!(stream.time_of(expr), Some(Time::End | Time::Event)));
        let names_start = by.iter().any(|expr| stream.time_of(expr) == Some(Time::Start));
        let even = matches!(stream.windows, Some(Bounds::Even(_)));
        if !(names_end || names_start && even) {
            let message = "row_number() over rows of several windows cannot run as a stream: they are never all there";
            return refused(message, "name the window first: PARTITION BY window_start, window_end, …");
        }
        // Rows of one window have one event time: bounds that this tells are no keys.
        let told = |expr: &Expr| match stream.time_of(expr) {
            Some(Time::End | Time::Event) => true,
            Some(Time::Start) => even,
            None => false,
        };
        let keys: Vec<Expr> = by.into_iter().filter(|expr| !told(expr)).collect();
        let mut names: Vec<String> = Vec::new();
        let mut taken = BTreeSet::new();
        for field in schema.fields() {
            let name = unique(field.name(), &taken);
            taken.insert(name.clone());
            names.push(name);
        }
        // Columns that keys and order need, behind those that go on.
        let (own, mut columns) = (names.len(), stream.columns.clone());
        let mut named = |expr: Expr, wanted: &str| match columns.iter().position(|out| out.expr == expr) {
            Some(at) => names.get(at).cloned().unwrap_or_default(),
            None => {
                let name = unique(wanted, &taken);
                taken.insert(name.clone());
                names.push(name.clone());
                columns.push(Out { expr });
                name
            }
        };
        let mut key_names: Vec<String> = Vec::new();
        for name in keys.into_iter().map(|expr| named(expr, "key")) {
            if !key_names.contains(&name) {
                key_names.push(name);
            }
        }
        let mut order_by: Vec<TopOrder> = Vec::new();
        for (expr, ascending, nulls_first) in sorted {
            let column = named(expr, "order");
            // What is ordered by already decides nothing more.
            if !order_by.iter().any(|order| order.column == column) {
                let nulls_first = (nulls_first == ascending).then_some(nulls_first);
                order_by.push(TopOrder { column, descending: !ascending, nulls_first });
            }
        }
        let mut stream = self.materialize(Stream { columns, ..stream }, &names)?;
        stream.columns.truncate(own);
        stream.columns.push(Out { expr: marked(PLACE) });
        stream.ranking = Some(Ranking { keys: key_names, order_by, hint: hints.get(own).cloned().flatten(), position });
        Ok(stream)
    }

    /// Turns a pending `row_number()` and the bound on it into a top.
    pub(super) fn settle(&mut self, mut stream: Stream) -> Result<Stream, Error> {
        let Some(ranking) = stream.ranking.take() else { return Ok(stream) };
        let (mut limit, mut rest) = (None::<i64>, Vec::new());
        for term in stream.filter.take().map(conjuncts).unwrap_or_default() {
            let (most, says_all) = bound(&term);
            limit = [limit, most].into_iter().flatten().min();
            if !says_all {
                rest.push(term);
            }
        }
        let unbound = |message: &str, hint: &str| Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint).at(ranking.position);
        let Some(limit) = limit else {
            let message = "row_number() without a bound cannot run as a stream: every row of a window would have to be kept";
            return Err(unbound(message, "add a condition on it around this query, such as WHERE rn <= 10"));
        };
        let Some(limit) = u64::try_from(limit).ok().filter(|limit| *limit > 0) else {
            return Err(unbound("no row has a row_number() below 1", "write a bound of 1 or more, such as WHERE rn <= 10"));
        };
        let read = rest.iter().chain(stream.columns.iter().map(|out| &out.expr)).any(reads_marked);
        let taken: BTreeSet<String> = stream.base.iter().cloned().collect();
        let place = read.then(|| unique(ranking.hint.as_deref().unwrap_or(PLACE), &taken));
        let top = Top { keys: ranking.keys, order_by: ranking.order_by, limit, place: place.clone() };
        let to = self.operator("top", OperatorKind::Top(top))?;
        self.edge(stream.from, to)?;
        let column = |expr: Expr| match (as_marked(&expr), &place) {
            (Some(_), Some(place)) => Expr::Column(place.clone()),
            (Some(_) | None, _) => expr,
        };
        stream.columns.iter_mut().for_each(|out| out.expr = substituted(out.expr.clone(), &column));
        stream.filter = all(rest.into_iter().map(|term| substituted(term, &column)).collect());
        stream.base.extend(place);
        stream.from = to;
        Ok(stream)
    }
}

/// The greatest place that passes a condition, if it bounds it; and whether it says nothing else.
fn bound(term: &Expr) -> (Option<i64>, bool) {
    let place = |expr: &Expr| as_marked(expr) == Some(PLACE);
    let number = |expr: &Expr| match expr {
        Expr::Literal(Literal::BigInt(value)) => Some(*value),
        Expr::Literal(Literal::Integer(value)) => Some(i64::from(*value)),
        _ => None,
    };
    match term {
        Expr::Binary { op, left, right } => {
            let (op, value) = match (place(left), place(right)) {
                (true, false) => (*op, number(right)),
                (false, true) => (flipped(*op), number(left)),
                (true, true) | (false, false) => return (None, false),
            };
            match (op, value) {
                (BinaryOp::LtEq, Some(most)) => (Some(most), true),
                (BinaryOp::Lt, Some(above)) => (Some(above.saturating_sub(1)), true),
                (BinaryOp::Eq, Some(only)) => (Some(only), only == 1),
                _ => (None, false),
            }
        }
        Expr::InList { expr, list, negated: false } if place(expr) => {
            let numbers: Option<Vec<i64>> = list.iter().map(number).collect();
            (numbers.and_then(|numbers| numbers.into_iter().max()), false)
        }
        _ => (None, false),
    }
}

/// The comparison with its sides changed.
fn flipped(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::LtEq => BinaryOp::GtEq,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::GtEq => BinaryOp::LtEq,
        BinaryOp::Eq
        | BinaryOp::NotEq
        | BinaryOp::IsDistinctFrom
        | BinaryOp::IsNotDistinctFrom
        | BinaryOp::Plus
        | BinaryOp::Minus
        | BinaryOp::Multiply
        | BinaryOp::Divide
        | BinaryOp::Modulo
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Concat
        | BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight
        | BinaryOp::RegexMatch
        | BinaryOp::RegexMatchInsensitive
        | BinaryOp::RegexNotMatch
        | BinaryOp::RegexNotMatchInsensitive => op,
    }
}
