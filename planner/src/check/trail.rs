//! By how much time columns lie beside the event time of their rows (EV-10).
//!
//! A watermark W says that rows with an event time below W are behind. A window that follows another
//! column than the event time needs the same word about that column, and has it once it is known by
//! how much at most the column lies *before* the event time of its row: that is its **trail**, and
//! W less the trail is a watermark of the column.
//!
//! So for each column of each operator we keep a [`Span`]: the least and the most that it may lie
//! after the event time of its row. The time column of a source is the event time itself, 0 to 0. The
//! rows of a window have the event time `window_end` - 1 ms, so that `window_end` is 1 after it, and
//! `window_start` at least the longest window before. A key that is a time column lies somewhere
//! around the time of its group's rows, which lies within the window. Constant shifts move a span;
//! where inputs meet, the wider one holds. Whatever else is computed is not known.

use super::flow::Flow;
use super::graph::Graph;
use super::{DURATION_MS_MAX, columns};
use crate::error::Fault;
use crate::expr::{Aggregate, AggregateFunction, BinaryOp, Expr, Literal};
use crate::plan::TimeColumn;
use crate::schema::{ColumnType, META_TIMESTAMP, Schema};
use crate::spec::{JobSpec, Map, OperatorKind, Source, TimeMode, Window};
use crate::time::TimeUnit;
use crate::window::{DAY_MS, Windows};
use std::collections::BTreeMap;

/// How far after the event time of its row a column lies, in ms; `None`: no bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// At least so much.
    pub least_ms: Option<i64>,
    /// At most so much.
    pub most_ms: Option<i64>,
}

/// What is known of a column that could be a time column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its place beside the event time.
    Within(Span),
    /// It is the event time, in a unit other than milliseconds.
    Itself(TimeUnit),
    /// Nothing, with the reason.
    Nothing(String),
}

/// The columns of an operator's output that could be time columns.
pub type Times = BTreeMap<String, Known>;

impl Span {
    /// The event time itself.
    pub const ITSELF: Span = Span { least_ms: Some(0), most_ms: Some(0) };

    /// Moved by a constant.
    fn moved(self, by_ms: i64) -> Span {
        self.plus(Span { least_ms: Some(by_ms), most_ms: Some(by_ms) })
    }

    /// What lies within `other` after what lies within `self`.
    fn plus(self, other: Span) -> Span {
        let sum = |a: Option<i64>, b: Option<i64>| a.zip(b).and_then(|(a, b)| a.checked_add(b)).filter(|sum| sum.abs() <= DURATION_MS_MAX);
        Span { least_ms: sum(self.least_ms, other.least_ms), most_ms: sum(self.most_ms, other.most_ms) }
    }

    /// The other way round: how far before.
    fn turned(self) -> Span {
        Span { least_ms: self.most_ms.map(|most| -most), most_ms: self.least_ms.map(|least| -least) }
    }

    /// Both.
    fn wider(self, other: Span) -> Span {
        let with = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| a.zip(b).map(|(a, b)| pick(a, b));
        Span { least_ms: with(self.least_ms, other.least_ms, i64::min), most_ms: with(self.most_ms, other.most_ms, i64::max) }
    }

    /// By how much it may lie before the event time (EV-10).
    pub fn trail_ms(self) -> Option<i64> {
        self.least_ms.map(|least| least.saturating_neg().max(0))
    }
}

/// The time columns that each operator takes and gives, as far as columns are known.
#[derive(Clone, Debug)]
pub struct Trails {
    taken: Vec<Times>,
}

impl Trails {
    /// Follows time columns through a graph whose columns are known as far as `flow` has them.
    pub fn of(spec: &JobSpec, graph: &Graph, flow: &Flow) -> Trails {
        let (mut taken, mut given) = (vec![Times::new(); spec.operators.len()], vec![Times::new(); spec.operators.len()]);
        for &at in &graph.order {
            taken[at] = met(spec, graph, &given, at);
            let (Some(input), Some(output)) = (flow.taken(at), flow.given(at)) else { continue };
            let mut times = gives(spec, at, &taken[at], input);
            times.retain(|name, _| output.0.iter().any(|column| column.name == *name && may_be_time(column.ty)));
            given[at] = times;
        }
        Trails { taken }
    }

    /// The column that the window at `at` follows, if that is not the event time of its rows.
    ///
    /// Errors: why the column cannot be followed, and which ones can.
    pub fn followed(&self, spec: &JobSpec, at: usize) -> Result<Option<TimeColumn>, Fault> {
        let Some(operator) = spec.operators.get(at) else { return Ok(None) };
        let Some(field) = operator.kind.timed_window().and_then(|window| window.timestamp_field.as_ref()) else { return Ok(None) };
        let times = &self.taken[at];
        let why = match times.get(field) {
            Some(Known::Itself(_)) => return Ok(None),
            Some(Known::Within(Span::ITSELF)) => return Ok(None),
            Some(Known::Within(span)) => match span.trail_ms() {
                Some(trail_ms) => return Ok(Some(TimeColumn { column: field.clone(), trail_ms })),
                None => "how long before it they may lie is not bounded".to_owned(),
            },
            Some(Known::Nothing(why)) => why.clone(),
            None => "it is no time".to_owned(),
        };
        let able = |known: &Known| match known {
            Known::Within(span) => span.trail_ms().is_some(),
            Known::Itself(_) => true,
            Known::Nothing(_) => false,
        };
        let others: Vec<&str> = times.iter().filter(|(_, known)| able(known)).map(|(name, _)| name.as_str()).collect();
        let others = if others.is_empty() { String::new() } else { format!("columns that would do: {}; or ", others.join(", ")) };
        let message = format!(
            "window '{}' cannot follow '{field}': its values are not known to keep up with the event time of their rows, since {why}",
            operator.id
        );
        let hint = format!("{others}leave timestamp_field out, so that the window follows the event time of its rows");
        Err(Fault::new("no_trail", format!("operators[{at}].config.timestamp_field"), message).with_hint(hint))
    }
}

/// Rules on the columns that windows follow.
pub(super) fn check(spec: &JobSpec, graph: &Graph, flow: &Flow, faults: &mut Vec<Fault>) {
    let trails = Trails::of(spec, graph, flow);
    for (at, operator) in spec.operators.iter().enumerate() {
        let (Some(window), Some(input)) = (operator.kind.timed_window(), flow.taken(at)) else { continue };
        let column = window.timestamp_field.as_ref().and_then(|field| input.0.iter().find(|column| column.name == *field));
        // One that is not there has its own fault.
        let Some(column) = column else { continue };
        if !may_be_time(column.ty) {
            let message = format!("window '{}' cannot follow '{}', which is {}", operator.id, column.name, column.ty);
            let hint = "name a TIMESTAMP column, or a BIGINT column of milliseconds since 1970; or leave timestamp_field out";
            faults.push(Fault::new("bad_time_type", format!("operators[{at}].config.timestamp_field"), message).with_hint(hint));
            continue;
        }
        faults.extend(trails.followed(spec, at).err());
    }
}

/// Columns that could be times (EV-1).
fn may_be_time(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::BigInt | ColumnType::Timestamp { .. })
}

/// What reaches an operator: where several inputs meet, what holds for all of them.
fn met(spec: &JobSpec, graph: &Graph, given: &[Times], at: usize) -> Times {
    let mut all: Option<Times> = None;
    for from in graph.producers(at) {
        let other = &given[from];
        all = Some(match all {
            None => other.clone(),
            Some(mut times) => {
                for (name, known) in &mut times {
                    *known = match (&*known, other.get(name)) {
                        (Known::Within(a), Some(Known::Within(b))) => Known::Within(a.wider(*b)),
                        (Known::Itself(a), Some(Known::Itself(b))) if a == b => Known::Itself(*a),
                        (Known::Nothing(why), _) | (_, Some(Known::Nothing(why))) => Known::Nothing(why.clone()),
                        (_, _) => Known::Nothing(format!("the inputs of '{}' have it in different ways", spec.operators[at].id)),
                    };
                }
                times
            }
        });
    }
    let mut times = all.unwrap_or_default();
    if let Some(side) = graph.sides_into(at).next() {
        let why = format!("rows come to '{}' by a route of '{}'", spec.operators[at].id, spec.operators[side.from].id);
        times.values_mut().for_each(|known| *known = Known::Nothing(why.clone()));
    }
    times
}

/// What an operator gives for what it takes.
fn gives(spec: &JobSpec, at: usize, taken: &Times, input: &Schema) -> Times {
    let operator = &spec.operators[at];
    match &operator.kind {
        OperatorKind::Source => spec.sources.iter().find(|source| source.operator_id == operator.id).map(of_source).unwrap_or_default(),
        OperatorKind::Map(map) => of_map(operator.id.as_str(), map, taken, input),
        OperatorKind::Window(window) => of_window(operator.id.as_str(), window, taken),
        OperatorKind::Top(top) => {
            let mut times = taken.clone();
            times.extend(top.place.iter().map(|name| (name.clone(), Known::Nothing(format!("top '{}' counts it", operator.id)))));
            times
        }
        OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => taken.clone(),
        OperatorKind::Join(_) => Times::new(),
    }
}

fn of_source(source: &Source) -> Times {
    let time = source.time.timestamp_field.as_ref().filter(|_| source.time.mode == TimeMode::EventTime);
    let known = |column: &crate::spec::SourceColumn| match time {
        Some(time) if *time == column.name => match column.timestamp_unit.or(source.timestamp_unit).unwrap_or(TimeUnit::Millisecond) {
            unit if column.ty == ColumnType::BigInt && unit != TimeUnit::Millisecond => Known::Itself(unit),
            _ => Known::Within(Span::ITSELF),
        },
        Some(time) => Known::Nothing(format!("the watermark of source '{}' is about '{time}'", source.operator_id)),
        None => Known::Nothing(format!("source '{}' is in processing time", source.operator_id)),
    };
    columns::of_source(source).iter().map(|column| (column.name.clone(), known(column))).collect()
}

fn of_map(id: &str, map: &Map, taken: &Times, input: &Schema) -> Times {
    if map.project.is_empty() {
        return taken.clone();
    }
    let known = |expr: &Expr| match expr {
        Expr::Column(name) if name != META_TIMESTAMP => taken.get(name).cloned(),
        _ => None,
    };
    let computed = |expr: &Expr| spans(expr, taken, input).map_or_else(|| Known::Nothing(format!("map '{id}' computes it")), Known::Within);
    let bound = map.project.iter().filter_map(|projection| projection.bound.as_deref());
    bound.map(|bound| (bound.name.clone(), known(&bound.value.expr).unwrap_or_else(|| computed(&bound.value.expr)))).collect()
}

/// Where a computed time lies: columns as they are, moved by constants, and in another precision.
fn spans(expr: &Expr, taken: &Times, input: &Schema) -> Option<Span> {
    match expr {
        Expr::Column(name) if name == META_TIMESTAMP => Some(Span::ITSELF),
        Expr::Column(name) => match taken.get(name)? {
            Known::Within(span) => Some(*span),
            Known::Itself(_) | Known::Nothing(_) => None,
        },
        Expr::Binary { op: BinaryOp::Plus, left, right } => match (constant_ms(left), constant_ms(right)) {
            (None, Some(by)) => Some(spans(left, taken, input)?.moved(by)),
            (Some(by), None) => Some(spans(right, taken, input)?.moved(by)),
            (_, _) => None,
        },
        Expr::Binary { op: BinaryOp::Minus, left, right } => Some(spans(left, taken, input)?.moved(constant_ms(right)?.checked_neg()?)),
        Expr::Cast { expr, to: ColumnType::Timestamp { unit, .. }, .. } => {
            // What is cut off is less than one unit, to either side of 1970.
            let cut = match (unit_of(expr, input)?, unit) {
                (TimeUnit::Second, _) | (TimeUnit::Millisecond, TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond) => 0,
                (TimeUnit::Microsecond, TimeUnit::Microsecond | TimeUnit::Nanosecond) | (TimeUnit::Nanosecond, TimeUnit::Nanosecond) => 0,
                (_, TimeUnit::Second) => 999,
                (_, _) => 1,
            };
            Some(spans(expr, taken, input)?.plus(Span { least_ms: Some(-cut), most_ms: Some(cut) }))
        }
        _ => None,
    }
}

/// The precision of a timestamp that is computed in one of the ways that [`spans`] knows.
fn unit_of(expr: &Expr, input: &Schema) -> Option<TimeUnit> {
    let of_type = |ty: ColumnType| match ty {
        ColumnType::Timestamp { unit, .. } => Some(unit),
        _ => None,
    };
    match expr {
        Expr::Column(name) => input.0.iter().find(|column| column.name == *name).and_then(|column| of_type(column.ty)),
        Expr::Binary { left, right, .. } => unit_of(left, input).or_else(|| unit_of(right, input)),
        Expr::Cast { to, .. } => of_type(*to),
        _ => None,
    }
}

/// A constant that is added to a time, as milliseconds: an interval without months, or an integer.
fn constant_ms(expr: &Expr) -> Option<i64> {
    let Expr::Literal(literal) = expr else { return None };
    match literal {
        Literal::SmallInt(ms) => Some(i64::from(*ms)),
        Literal::Integer(ms) => Some(i64::from(*ms)),
        Literal::BigInt(ms) => Some(*ms),
        Literal::Interval { months: 0, days, nanos } if nanos % 1_000_000 == 0 => {
            i64::from(*days).checked_mul(DAY_MS)?.checked_add(nanos / 1_000_000)
        }
        _ => None,
    }
}

fn of_window(id: &str, window: &Window, taken: &Times) -> Times {
    let cut = super::window::windows_of(&window.window);
    let Some(cut) = cut else {
        let keys = window.keys.iter().filter(|key| taken.contains_key(*key));
        return keys.map(|key| (key.clone(), Known::Nothing(format!("window '{id}' takes batches, whose rows have many times")))).collect();
    };
    // From the event time of the window's rows to that of its results, which is the end less 1 ms.
    let followed = match window.timestamp_field.as_ref().map(|field| taken.get(field)) {
        None | Some(Some(Known::Itself(_))) => Some(Span::ITSELF),
        Some(Some(Known::Within(span))) => Some(*span),
        Some(Some(Known::Nothing(_)) | None) => None,
    };
    let ahead = match &cut {
        Windows::Aligned(cut) => Span { least_ms: Some(0), most_ms: Some(cut.longest_ms()) },
        Windows::Session { .. } => Span { least_ms: Some(0), most_ms: None },
    };
    let within = |known: &Known, what: &str| match (known, followed) {
        (Known::Within(span), Some(followed)) => Known::Within(span.plus(followed.plus(ahead).turned())),
        (Known::Itself(unit), _) => Known::Nothing(format!("it is in {} and no longer the event time behind window '{id}'", words(*unit))),
        (Known::Within(_), None) => Known::Nothing(format!("what window '{id}' follows is not known")),
        (Known::Nothing(why), _) => Known::Nothing(format!("{what} of window '{id}' has it from a column of which {why}")),
    };
    let mut times: Times = window.keys.iter().filter_map(|key| Some((key.clone(), within(taken.get(key)?, "a key")))).collect();
    let start = match &cut {
        Windows::Aligned(cut) => Known::Within(Span { least_ms: Some(-cut.longest_ms()), most_ms: Some(0) }),
        Windows::Session { .. } => Known::Nothing(format!("sessions of window '{id}' may be of any length")),
    };
    times.insert("window_start".to_owned(), start);
    times.insert("window_end".to_owned(), Known::Within(Span { least_ms: Some(1), most_ms: Some(1) }));
    for named in &window.aggregates {
        let picked = named.expr.bound.as_deref().and_then(picks).and_then(|column| taken.get(column));
        let known = picked.map_or_else(|| Known::Nothing(format!("window '{id}' computes it")), |known| within(known, "an aggregate"));
        times.insert(named.name.clone(), known);
    }
    times
}

/// The column of which an aggregate gives one of the values.
fn picks(aggregate: &Aggregate) -> Option<&String> {
    match (aggregate.function, aggregate.arguments.as_slice()) {
        (AggregateFunction::Min | AggregateFunction::Max, [argument]) => match &argument.expr {
            Expr::Column(name) if name != META_TIMESTAMP => Some(name),
            _ => None,
        },
        (_, _) => None,
    }
}

fn words(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    }
}

#[cfg(test)]
mod tests;
