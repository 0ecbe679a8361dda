//! What each operator of a plan does.

use super::source_of;
use crate::check::columns::of_source;
use crate::check::graph::Graph;
use crate::check::side::SideRows;
use crate::check::trail::Trails;
use crate::check::update::replaces_by;
use crate::check::window::windows_of;
use crate::connector::{DecodeColumn, Format, GenerateKind, Json, SinkOptions, SourceOptions};
use crate::expr::{Aggregate, Typed};
use crate::plan::{BatchWork, MapWork, SinkWork, SortOrder, SourceWork, TimeColumn, TimeWork, TopWork, WindowWork, Work};
use crate::schema::{Column, ColumnType, Schema};
use crate::spec::{
    ErrorPolicy, Expression, JobSpec, LatePolicy, Map, OperatorKind, Sink, Source, TimeMode, Top, TopOrder, Trigger, Window, WindowShape,
};
use crate::time::TimeUnit;

/// How far ahead of the wall clock a row of an unbounded source may push the watermark, unless the spec says (EV-9).
const MAX_FUTURE_MS: u64 = 86_400_000;

/// The work of the operator at `at`, which emits `output`. `None` where `check` would have refused.
pub(super) fn of(spec: &JobSpec, graph: &Graph, trails: &Trails, at: usize, output: &Schema, lateness_ms: i64) -> Option<Work> {
    let routes_late = graph.sides.edges.iter().any(|side| side.from == at && side.rows == SideRows::Late);
    let on_error = graph.sides.on_error.get(at).copied().unwrap_or_default();
    let operator = spec.operators.get(at)?;
    Some(match &operator.kind {
        OperatorKind::Source => Work::Source(of_source_entry(source_of(spec, at)?, output)),
        OperatorKind::Map(map) => Work::Map(of_map(map, on_error)?),
        OperatorKind::Window(window) => match &window.window {
            WindowShape::Batch(_) => Work::Batch(of_batch(window, on_error)?),
            WindowShape::Tumbling(_) | WindowShape::Sliding(_) | WindowShape::Session(_) | WindowShape::Cumulate(_) => {
                let late = match (routes_late, graph.revises(at)) {
                    (true, _) => LatePolicy::Route,
                    (false, true) => LatePolicy::Update,
                    (false, false) => LatePolicy::Drop,
                };
                Work::Window(of_window(window, trails.followed(spec, at).ok()?, lateness_ms, late, on_error)?)
            }
        },
        OperatorKind::Top(top) => Work::Top(of_top(top)),
        OperatorKind::Buffer(buffer) => Work::Buffer(buffer.clone()),
        OperatorKind::Join(_) => return None,
        OperatorKind::Union => Work::Union,
        OperatorKind::Sink => {
            let sink = spec.sinks.iter().find(|sink| sink.operator_id == operator.id)?;
            Work::Sink(SinkWork { replaces_by: replaces_by(spec, graph, at), ..of_sink(sink) })
        }
    })
}

fn of_source_entry(source: &Source, output: &Schema) -> SourceWork {
    let columns = of_source(source).into_iter().map(|declared| {
        let timed = matches!(declared.ty, ColumnType::Timestamp { .. });
        let unit = declared.timestamp_unit.or(source.timestamp_unit.filter(|_| timed));
        DecodeColumn { column: Column { name: declared.name, ty: declared.ty, nullable: !declared.not_null }, timestamp_unit: unit }
    });
    SourceWork {
        options: source.config.clone(),
        format: format_of(source),
        columns: columns.collect(),
        used: output.0.iter().map(|column| column.name.clone()).collect(),
        time: time_of(source),
        on_error: source.on_error.policy,
        batch: source.batch.clone(),
        bounded: source.config.is_bounded(),
        durability: source.durability.clone().filter(|asked| asked.enabled),
    }
}

fn format_of(source: &Source) -> Option<Format> {
    let given = source.codec.clone();
    let json = Format::Json(Json::default());
    match &source.config {
        SourceOptions::Generate(generate) => match generate.kind {
            GenerateKind::Template => Some(given.unwrap_or(json)),
            GenerateKind::Nexmark => None,
        },
        SourceOptions::Values(_) => None,
        SourceOptions::Memory(_) if !source.schema.is_empty() => Some(given.unwrap_or(json)),
        SourceOptions::File(_) | SourceOptions::Kafka(_) | SourceOptions::Memory(_) | SourceOptions::Http(_) => {
            Some(given.unwrap_or(Format::Raw(crate::connector::Nothing {})))
        }
    }
}

fn time_of(source: &Source) -> Option<TimeWork> {
    let time = &source.time;
    match time.mode {
        TimeMode::ProcessingTime => None,
        TimeMode::EventTime => {
            let (column, watermark) = (time.timestamp_field.clone()?, time.watermark.as_ref()?);
            let declared = of_source(source).into_iter().find(|declared| declared.name == column)?;
            let unit = match declared.ty {
                ColumnType::Timestamp { unit, .. } => unit,
                _ => declared.timestamp_unit.or(source.timestamp_unit).unwrap_or(TimeUnit::Millisecond),
            };
            let guard = watermark.max_future_ms.or_else(|| (!source.config.is_bounded()).then_some(MAX_FUTURE_MS));
            Some(TimeWork {
                column,
                unit,
                bound_ms: watermark.out_of_orderness_ms,
                idle_timeout_ms: watermark.idle_timeout_ms,
                max_future_ms: guard,
                alignment_ms: watermark.alignment_ms,
                idle_advance_ms: time.idle_advance_ms,
                allowed_lateness_ms: time.allowed_lateness_ms,
                late: time.late_event_policy,
            })
        }
    }
}

fn scalar(expression: Option<&Expression<Typed>>) -> Option<Option<crate::expr::Expr>> {
    match expression {
        None => Some(None),
        Some(expression) => expression.bound.as_deref().map(|typed| Some(typed.expr.clone())),
    }
}

fn of_map(map: &Map, on_error: ErrorPolicy) -> Option<MapWork> {
    let project = map.project.iter().map(|expression| expression.bound.as_deref().cloned()).collect::<Option<Vec<_>>>()?;
    Some(MapWork { filter: scalar(map.filter.as_ref())?, project: (!project.is_empty()).then_some(project), on_error })
}

fn of_window(window: &Window, time: Option<TimeColumn>, lateness_ms: i64, late: LatePolicy, on_error: ErrorPolicy) -> Option<WindowWork> {
    let windows = windows_of(&window.window)?;
    let aggregates = aggregates_of(window)?;
    Some(WindowWork {
        windows,
        time,
        keys: window.keys.clone(),
        aggregates,
        having: scalar(window.having.as_ref())?,
        allowed_lateness_ms: lateness_ms,
        keys_max: window.max_buffered_keys,
        on_overflow: window.on_overflow,
        late,
        on_error,
        partials: false,
        early_ms: match window.trigger {
            Trigger::Watermark => None,
            Trigger::ProcessingTime => window.trigger_interval_ms,
        },
        empty_within_ms: window.emit_empty.as_ref().map(|empty| empty.horizon_ms),
    })
}

fn of_top(top: &Top) -> TopWork {
    let order = |order: &TopOrder| {
        let nulls_first = order.nulls_first.unwrap_or(order.descending);
        (order.column.clone(), SortOrder { descending: order.descending, nulls_first })
    };
    TopWork { keys: top.keys.clone(), order_by: top.order_by.iter().map(order).collect(), limit: top.limit, place: top.place.clone() }
}

fn of_batch(window: &Window, on_error: ErrorPolicy) -> Option<BatchWork> {
    let having = scalar(window.having.as_ref())?;
    Some(BatchWork { keys: window.keys.clone(), aggregates: aggregates_of(window)?, having, on_error })
}

fn aggregates_of(window: &Window) -> Option<Vec<(String, Aggregate)>> {
    window.aggregates.iter().map(|a| Some((a.name.clone(), a.expr.bound.as_deref()?.clone()))).collect()
}

fn of_sink(sink: &Sink) -> SinkWork {
    let format = match &sink.config {
        SinkOptions::Stdout(_) | SinkOptions::File(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_) => {
            Some(sink.codec.clone().unwrap_or(Format::Json(Json::default())))
        }
        SinkOptions::Drop(_) | SinkOptions::Result(_) => None,
    };
    SinkWork { options: sink.config.clone(), format, delivery: sink.delivery, replaces_by: Vec::new() }
}
