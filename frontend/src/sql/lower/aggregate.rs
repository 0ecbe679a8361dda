//! GROUP BY over a window: one window operator, with a map before it where rows must be filtered
//! or keys computed.

use super::Lowering;
use super::stream::{Out, Stream, as_window_column, columns_of, conjuncts, projection, reads_window, settled, text};
use crate::error::{Error, sqlstate};
use crate::sql::convert::{Converter, joined};
use crate::sql::sugar::unique;
use datafusion::common::Column;
use datafusion::logical_expr::{Aggregate as DfAggregate, Expr as Df};
use std::collections::BTreeSet;
use weir_planner::expr::{Aggregate, BinaryOp, Expr};
use weir_planner::spec::{Expression, Map, OnOverflow, OperatorKind, Projection, Trigger, Tumbling, Window, WindowAggregate, WindowShape};

/// One column of GROUP BY.
enum Group {
    /// A window column.
    Window(String),
    /// A key, by its name in the window operator.
    Key(String),
}

impl Lowering<'_> {
    /// Lowers an aggregate; `hints` name its columns: groups first, then aggregates.
    pub(super) fn aggregate(&mut self, plan: &DfAggregate, hints: &[Option<String>]) -> Result<Stream, Error> {
        let input = plan.input.schema();
        let stream = self.lower(&plan.input, &vec![None; input.fields().len()])?;
        let grouping = self.landmarks.grouping.unwrap_or(self.fallback);
        let Some(windowing) = stream.windowing.clone() else {
            let message = if stream.windowed {
                "a GROUP BY over a window's results is not available yet"
            } else {
                "GROUP BY without a window cannot run as a stream: its groups would never be complete"
            };
            let hint =
                format!("group in a window: FROM tumble({}, ts, INTERVAL '1 minute') GROUP BY …, window_start, window_end", stream.origin);
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint).at(grouping));
        };
        let mut keys: Vec<Expr> = Vec::new();
        for expr in &plan.group_expr {
            keys.push(self.compose(expr, &stream, input).map_err(|error| Error { position: Some(grouping), ..error })?);
        }
        if !keys.iter().any(|key| as_window_column(key).is_some()) {
            return Err(Error::new(sqlstate::GROUPING_ERROR, "a window's GROUP BY names its window")
                .with_hint("add window_start, window_end to GROUP BY")
                .at(grouping));
        }
        if let Some(mixed) = keys.iter().find(|key| as_window_column(key).is_none() && reads_window(key)) {
            return Err(Error::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("grouping by an expression over window columns is not available: {mixed}").replace('\u{0}', ""),
            )
            .with_hint("group by window_start and window_end, and compute on them in the select list")
            .at(grouping));
        }
        let calls: Vec<Aggregate> = plan.aggr_expr.iter().map(|call| self.call(call, &stream, plan)).collect::<Result<_, _>>()?;
        self.window(stream, windowing, keys, calls, hints, grouping)
    }

    fn call(&self, call: &Df, stream: &Stream, plan: &DfAggregate) -> Result<Aggregate, Error> {
        let schema = plan.input.schema();
        let column = |column: &Column| {
            let out = schema.index_of_column(column).ok().and_then(|at| stream.columns.get(at));
            out.map(|out| out.expr.clone())
                .ok_or_else(|| Error::new(sqlstate::UNDEFINED_COLUMN, format!("column '{}' does not exist", column.flat_name())))
        };
        let name = match call {
            Df::AggregateFunction(function) => function.func.name(),
            _ => "",
        };
        let position = self.landmarks.functions.get(name).copied().unwrap_or(self.fallback);
        let aggregate = Converter { schema, column: &column }
            .aggregate(call)
            .map_err(|error| if error.position.is_none() { error.at(position) } else { error })?;
        let reads = aggregate.columns().any(|column| reads_window(&column.expr)) || aggregate.filter.iter().any(reads_window);
        if reads {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{name} of a window's own columns is not available"))
                .with_hint("window_start and window_end are the same for all rows of a window: use them in the select list")
                .at(position));
        }
        Ok(aggregate)
    }

    fn window(
        &mut self,
        stream: Stream,
        windowing: super::Windowing,
        keys: Vec<Expr>,
        calls: Vec<Aggregate>,
        hints: &[Option<String>],
        grouping: usize,
    ) -> Result<Stream, Error> {
        let (before, after) = self.split_filter(&stream, &keys)?;
        let mut reserved: BTreeSet<String> = ["window_start".to_owned(), "window_end".to_owned()].into();
        let needed: Vec<String> = {
            let mut needed = Vec::new();
            let exprs = calls.iter().flat_map(|call| call.columns().map(|column| &column.expr).chain(&call.filter));
            for name in exprs.flat_map(columns_of) {
                if !needed.contains(&name) {
                    needed.push(name);
                }
            }
            needed
        };
        // Names of keys: a column keeps its own, an expression takes the name that it gets in the end.
        let mut groups = Vec::new();
        let mut computed: Vec<(Expr, String)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        reserved.extend(keys.iter().filter_map(|key| match key {
            Expr::Column(name) if as_window_column(key).is_none() => Some(name.clone()),
            _ => None,
        }));
        for (at, key) in keys.iter().enumerate() {
            if let Some(name) = as_window_column(key) {
                groups.push(Group::Window(name.to_owned()));
                continue;
            }
            let name = match (key, computed.iter().find(|(expr, _)| expr == key)) {
                (Expr::Column(name), _) => name.clone(),
                (_, Some((_, name))) => name.clone(),
                (_, None) => {
                    let wanted = hints.get(at).cloned().flatten().unwrap_or_else(|| format!("key_{}", computed.len() + 1));
                    let name = unique(&wanted, &reserved.union(&needed.iter().cloned().collect()).cloned().collect());
                    computed.push((key.clone(), name.clone()));
                    name
                }
            };
            reserved.insert(name.clone());
            if !names.contains(&name) {
                names.push(name.clone());
            }
            groups.push(Group::Key(name));
        }
        let mut from = stream.from;
        if before.is_some() || !computed.is_empty() {
            let project = if computed.is_empty() { Vec::new() } else { key_projections(&names, &computed, &needed) };
            let map = Map { filter: before.as_ref().map(text), project };
            let to = self.operator("map", OperatorKind::Map(map))?;
            self.edge(from, to)?;
            from = to;
        }
        let mut aggregates = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            let wanted = hints.get(keys.len() + at).cloned().flatten().unwrap_or_else(|| call.function.name().to_owned());
            let name = unique(&wanted, &reserved);
            reserved.insert(name.clone());
            aggregates.push(WindowAggregate {
                expr: Expression { sql: call.call(), bound: None },
                name,
                filter: call.filter.as_ref().map(ToString::to_string),
            });
        }
        if names.is_empty() && aggregates.is_empty() {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "a window has neither keys nor aggregates")
                .with_hint("add an aggregate, such as count(*)")
                .at(grouping));
        }
        let mut base = names.clone();
        base.extend(["window_start".to_owned(), "window_end".to_owned()]);
        base.extend(aggregates.iter().map(|aggregate| aggregate.name.clone()));
        let columns: Vec<Out> = groups
            .into_iter()
            .map(|group| match group {
                Group::Window(name) => settled(super::stream::window_column(&name)),
                Group::Key(name) => Expr::Column(name),
            })
            .chain(aggregates.iter().map(|aggregate| Expr::Column(aggregate.name.clone())))
            .map(|expr| Out { expr })
            .collect();
        let window = Window {
            timestamp_field: None,
            window: WindowShape::Tumbling(Tumbling { size_ms: windowing.size_ms, offset_ms: windowing.offset_ms, timezone: None }),
            keys: names,
            aggregates,
            having: None,
            trigger: Trigger::default(),
            trigger_interval_ms: None,
            max_buffered_keys: 0,
            on_overflow: OnOverflow::default(),
            emit_empty: None,
        };
        let to = self.operator("window", OperatorKind::Window(window))?;
        self.edge(from, to)?;
        Ok(Stream { from: to, base, filter: after, columns, windowing: None, time: None, windowed: true, origin: stream.origin })
    }

    /// WHERE over a window: what reads rows runs before it, what reads window columns after it.
    fn split_filter(&self, stream: &Stream, keys: &[Expr]) -> Result<(Option<Expr>, Option<Expr>), Error> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for term in stream.filter.clone().map(conjuncts).unwrap_or_default() {
            if !reads_window(&term) {
                before.push(term);
                continue;
            }
            let known = columns_of(&term).into_iter().all(|name| {
                let column = Expr::Column(name);
                as_window_column(&column).is_some() || keys.contains(&column)
            });
            if !known {
                return Err(self
                    .refused("a WHERE that compares window columns with columns that are not grouped by is not available")
                    .with_hint("group by the column too, or filter rows in a subquery"));
            }
            after.push(map_columns(term));
        }
        let all = |terms: Vec<Expr>| (!terms.is_empty()).then(|| joined(BinaryOp::And, terms));
        Ok((all(before), all(after)))
    }
}

/// The map before a window with computed keys: the keys, and what the aggregates read.
fn key_projections(names: &[String], computed: &[(Expr, String)], needed: &[String]) -> Vec<Expression<Projection>> {
    let key = |name: &String| match computed.iter().find(|(_, computed)| computed == name) {
        Some((expr, _)) => projection(expr, name),
        None => projection(&Expr::Column(name.clone()), name),
    };
    let rest = needed.iter().filter(|name| !names.contains(name)).map(|name| projection(&Expr::Column(name.clone()), name));
    names.iter().map(key).chain(rest).collect()
}

/// The same expression over what a window operator gives.
fn map_columns(expr: Expr) -> Expr {
    let boxed = |expr: Box<Expr>| Box::new(map_columns(*expr));
    let all = |exprs: Vec<Expr>| exprs.into_iter().map(map_columns).collect();
    match expr {
        Expr::Column(_) => settled(expr),
        Expr::Literal(_) => expr,
        Expr::Binary { op, left, right } => Expr::Binary { op, left: boxed(left), right: boxed(right) },
        Expr::Not(expr) => Expr::Not(boxed(expr)),
        Expr::Negate(expr) => Expr::Negate(boxed(expr)),
        Expr::IsNull { expr, negated } => Expr::IsNull { expr: boxed(expr), negated },
        Expr::IsBoolean { expr, value, negated } => Expr::IsBoolean { expr: boxed(expr), value, negated },
        Expr::Cast { expr, to, lenient } => Expr::Cast { expr: boxed(expr), to, lenient },
        Expr::Case { operand, branches, otherwise } => Expr::Case {
            operand: operand.map(boxed),
            branches: branches.into_iter().map(|(when, then)| (map_columns(when), map_columns(then))).collect(),
            otherwise: otherwise.map(boxed),
        },
        Expr::Like { expr, pattern, escape, case_insensitive, negated } => {
            Expr::Like { expr: boxed(expr), pattern: boxed(pattern), escape, case_insensitive, negated }
        }
        Expr::InList { expr, list, negated } => Expr::InList { expr: boxed(expr), list: all(list), negated },
        Expr::Function { name, version, args } => Expr::Function { name, version, args: all(args) },
    }
}
