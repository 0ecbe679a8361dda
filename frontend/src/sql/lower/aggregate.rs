//! GROUP BY over a window: one window operator, with a map before it where rows must be filtered
//! or keys computed.

use super::Lowering;
use super::stream::{
    Bounds, Out, Stream, Time, Windowing, all, as_marked, columns_of, conjuncts, marked, projection, reads_marked, settled, substituted,
    text,
};
use crate::error::{Error, sqlstate};
use crate::sql::convert::Converter;
use crate::sql::sugar::unique;
use datafusion::common::Column;
use datafusion::logical_expr::{Aggregate as DfAggregate, Expr as Df};
use std::collections::BTreeSet;
use weir_planner::expr::{Aggregate, Expr};
use weir_planner::spec::{Expression, Map, OnOverflow, OperatorKind, Projection, Trigger, Tumbling, Window, WindowAggregate, WindowShape};

/// One column of GROUP BY.
enum Group {
    /// A window column.
    Window(String),
    /// A key, by its name in the window operator.
    Key(String),
}

/// A GROUP BY over a window, taken apart.
struct Grouping<'a> {
    windowing: Windowing,
    /// What is known of the windows of its results.
    bounds: Bounds,
    /// Window columns are marked.
    keys: Vec<Expr>,
    calls: Vec<Aggregate>,
    /// Names of keys, then of aggregates, where they are known.
    hints: &'a [Option<String>],
    /// Of the GROUP BY, in the text.
    position: usize,
}

impl Lowering<'_> {
    /// Lowers an aggregate; `hints` name its columns: groups first, then aggregates.
    pub(super) fn aggregate(&mut self, plan: &DfAggregate, hints: &[Option<String>]) -> Result<Stream, Error> {
        let input = plan.input.schema();
        let stream = self.lower(&plan.input, &vec![None; input.fields().len()])?;
        let stream = self.settle(stream)?;
        let position = self.landmarks.grouping.unwrap_or(self.fallback);
        let mut keys: Vec<Expr> = Vec::new();
        for expr in &plan.group_expr {
            keys.push(self.compose(expr, &stream, input).map_err(|error| Error { position: Some(position), ..error })?);
        }
        let (windowing, bounds) = match (&stream.windowing, &stream.windows) {
            (Some(windowing), _) => self.grouped(windowing, &keys, position)?,
            (None, Some(bounds)) => {
                let bounds = bounds.clone();
                (self.regrouped(&stream, &bounds, &mut keys, position)?, bounds)
            }
            (None, None) => {
                let message = "GROUP BY without a window cannot run as a stream: its groups would never be complete";
                let time = stream.event_time().unwrap_or("ts");
                let table = if self.scope.sources.contains_key(&stream.origin) { &stream.origin } else { "(SELECT …)" };
                let hint =
                    format!("group in a window: FROM tumble({table}, {time}, INTERVAL '1 minute') GROUP BY …, window_start, window_end");
                return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint).at(position));
            }
        };
        let calls: Vec<Aggregate> = plan.aggr_expr.iter().map(|call| self.call(call, &stream, plan)).collect::<Result<_, _>>()?;
        self.window(stream, Grouping { windowing, bounds, keys, calls, hints, position })
    }

    /// The window of rows that have one and are grouped by it.
    fn grouped(&self, windowing: &Windowing, keys: &[Expr], position: usize) -> Result<(Windowing, Bounds), Error> {
        let names = |column: &str| keys.iter().any(|key| as_marked(key) == Some(column));
        let names_end = names("window_end") || names("window_time");
        if !names_end && !names("window_start") {
            return Err(Error::new(sqlstate::GROUPING_ERROR, "a window's GROUP BY names its window")
                .with_hint("add window_start, window_end to GROUP BY")
                .at(position));
        }
        let bounds = match &windowing.shape {
            WindowShape::Tumbling(_) | WindowShape::Sliding(_) => Bounds::Even(windowing.shape.clone()),
            WindowShape::Session(_) => Bounds::Sessions,
            WindowShape::Batch(_) => Bounds::Uneven,
            WindowShape::Cumulate(_) => {
                if !names_end {
                    let message = "windows of cumulate that start together end apart: their GROUP BY names the end";
                    return Err(Error::new(sqlstate::GROUPING_ERROR, message)
                        .with_hint("add window_start, window_end to GROUP BY")
                        .at(position));
                }
                Bounds::Uneven
            }
        };
        if let Some(mixed) = keys.iter().find(|key| as_marked(key).is_none() && reads_marked(key)) {
            return Err(Error::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("grouping by an expression over window columns is not available: {mixed}").replace('\u{0}', ""),
            )
            .with_hint("group by window_start and window_end, and compute on them in the select list")
            .at(position));
        }
        Ok((windowing.clone(), bounds))
    }

    /// The window of results of windows that are grouped by their window: what ends together is one
    /// millisecond of event time. A start goes with the other keys. Marks the columns of the end.
    fn regrouped(&self, stream: &Stream, bounds: &Bounds, keys: &mut [Expr], position: usize) -> Result<Windowing, Error> {
        let times: Vec<Option<Time>> = keys.iter().map(|key| stream.time_of(key)).collect();
        let names_end = times.iter().any(|time| matches!(time, Some(Time::End | Time::Event)));
        let names_start = times.contains(&Some(Time::Start));
        if !names_end && !names_start {
            let message = "a GROUP BY over a window's results names their window, or its groups would never be complete";
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
                .with_hint("add window_start, window_end to GROUP BY, or group in a longer window: FROM tumble((SELECT …, window_time …), window_time, INTERVAL '1 hour')")
                .at(position));
        }
        if !names_end && !matches!(bounds, Bounds::Even(_)) {
            let message = "windows that start together may end apart here: a GROUP BY over their results names the end";
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
                .with_hint("add window_start, window_end to GROUP BY")
                .at(position));
        }
        for (key, time) in keys.iter_mut().zip(times) {
            match time {
                Some(Time::End) => *key = marked("window_end"),
                Some(Time::Event) => *key = marked("window_time"),
                Some(Time::Start) | None => {}
            }
        }
        let shape = WindowShape::Tumbling(Tumbling { size_ms: 1, offset_ms: 0, timezone: None });
        Ok(Windowing { shape, time: None, ty: None, position })
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
        let reads = aggregate.columns().any(|column| reads_marked(&column.expr)) || aggregate.filter.iter().any(reads_marked);
        if reads {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{name} of a window's own columns is not available"))
                .with_hint("window_start and window_end are the same for all rows of a window: use them in the select list")
                .at(position));
        }
        Ok(aggregate)
    }

    fn window(&mut self, stream: Stream, grouping: Grouping<'_>) -> Result<Stream, Error> {
        let Grouping { windowing, bounds, keys, calls, hints, position } = grouping;
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
            needed.extend(windowing.time.clone().filter(|time| !needed.contains(time)));
            needed
        };
        // Names of keys: a column keeps its own, an expression takes the name that it gets in the end.
        // A bound of an earlier window cannot keep the name that the new window's has.
        let mut groups = Vec::new();
        let mut computed: Vec<(Expr, String)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        reserved.extend(keys.iter().filter_map(|key| match key {
            Expr::Column(name) if as_marked(key).is_none() && !bound(name) => Some(name.clone()),
            _ => None,
        }));
        for (at, key) in keys.iter().enumerate() {
            if let Some(name) = as_marked(key) {
                groups.push(Group::Window(name.to_owned()));
                continue;
            }
            let name = match (key, computed.iter().find(|(expr, _)| expr == key)) {
                (Expr::Column(name), _) if !bound(name) => name.clone(),
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
                .at(position));
        }
        let mut base = names.clone();
        base.extend(["window_start".to_owned(), "window_end".to_owned()]);
        base.extend(aggregates.iter().map(|aggregate| aggregate.name.clone()));
        // A start that is a key stays one; behind a window of its own, so do its bounds.
        let regrouped = stream.windowing.is_none();
        let starts = keys.iter().zip(&groups).filter_map(|(key, group)| match group {
            Group::Key(name) if regrouped && stream.time_of(key) == Some(Time::Start) => Some((name.clone(), Time::Start)),
            Group::Key(_) | Group::Window(_) => None,
        });
        let own =
            [("window_start", Time::Start), ("window_end", Time::End)].into_iter().filter(|(_, time)| !regrouped || *time == Time::End);
        let times = starts.chain(own.map(|(name, time)| (name.to_owned(), time))).collect();
        let columns: Vec<Out> = groups
            .into_iter()
            .map(|group| match group {
                Group::Window(name) => settled(marked(&name)),
                Group::Key(name) => Expr::Column(name),
            })
            .chain(aggregates.iter().map(|aggregate| Expr::Column(aggregate.name.clone())))
            .map(|expr| Out { expr })
            .collect();
        let window = Window {
            timestamp_field: windowing.time,
            window: windowing.shape,
            keys: names,
            aggregates,
            having: None,
            trigger: if self.early { Trigger::ProcessingTime } else { Trigger::Watermark },
            trigger_interval_ms: None,
            max_buffered_keys: 0,
            on_overflow: OnOverflow::default(),
            emit_empty: None,
        };
        let to = self.operator("window", OperatorKind::Window(window))?;
        self.edge(from, to)?;
        if regrouped {
            self.regroupings.insert(self.operators[to].id.clone());
        }
        Ok(Stream { filter: after, columns, times, windows: Some(bounds), ..Stream::over(to, base, stream.origin) })
    }

    /// WHERE over a window: what reads rows runs before it, what reads window columns after it.
    fn split_filter(&self, stream: &Stream, keys: &[Expr]) -> Result<(Option<Expr>, Option<Expr>), Error> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for term in stream.filter.clone().map(conjuncts).unwrap_or_default() {
            if !reads_marked(&term) {
                before.push(term);
                continue;
            }
            let known = columns_of(&term).into_iter().all(|name| !bound(&name) && keys.contains(&Expr::Column(name)));
            if !known {
                return Err(self
                    .refused("a WHERE that compares window columns with columns that are not grouped by is not available")
                    .with_hint("group by the column too, or filter rows in a subquery"));
            }
            after.push(substituted(term, &settled));
        }
        Ok((all(before), all(after)))
    }
}

/// Whether the window operator gives a column of this name itself.
fn bound(name: &str) -> bool {
    matches!(name, "window_start" | "window_end")
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
