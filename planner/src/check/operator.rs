//! Rules on map, window, join and union.

use super::{COLUMNS_MAX, declared_names, duration, not_available, out_of_range, reads, unknown_column};
use crate::error::Fault;
use crate::expr::{Aggregate, Typed};
use crate::schema::{ColumnType, Schema};
use crate::spec::{Buffer, Expression, JobSpec, Map, OnOverflow, OperatorKind, Top, Trigger, Window, WindowShape};

/// Most rows of a buffer that counts them.
const BUFFER_ROWS_MAX: u64 = 1 << 24;
/// Most rows that a top keeps of each window and key.
const TOP_ROWS_MAX: u64 = 1 << 20;
/// Longest wait of a buffer by the clock: a day, since all of its rows are held as state.
const BUFFER_MS_MAX: u64 = 86_400_000;

/// Rules that need no schema.
pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let unchecked = super::columns::unchecked(spec);
    for (i, operator) in spec.operators.iter().enumerate() {
        let before = faults.len();
        let (id, path) = (operator.id.as_str(), format!("operators[{i}].config"));
        match &operator.kind {
            OperatorKind::Source | OperatorKind::Union | OperatorKind::Sink => {}
            OperatorKind::Map(map) => check_map(id, &path, map, faults),
            OperatorKind::Window(window) => check_window(id, &path, window, faults),
            OperatorKind::Buffer(buffer) => check_buffer(&path, buffer, faults),
            OperatorKind::Top(top) => check_top(id, &path, top, faults),
            OperatorKind::Join(_) => {
                let hint = "window and union work today; run the two sides as jobs of their own until joins are there";
                faults.push(not_available(format!("operators[{i}].kind"), &format!("the join '{id}'"), hint));
            }
        }
        if unchecked.get(i) == Some(&true) {
            // Bound when the columns are known, before the job runs (JOB-6).
            let found = faults.split_off(before);
            faults.extend(found.into_iter().filter(|fault| fault.code != "unbound"));
        }
    }
}

/// Rules on the columns that an operator takes and gives.
pub(super) fn columns(spec: &JobSpec, at: usize, input: &Schema, faults: &mut Vec<Fault>) {
    let operator = &spec.operators[at];
    let (id, path) = (operator.id.as_str(), format!("operators[{at}].config"));
    match &operator.kind {
        OperatorKind::Source | OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink | OperatorKind::Join(_) => {}
        OperatorKind::Map(map) => {
            let what = format!("map '{id}'");
            if let Some(bound) = map.filter.as_ref().and_then(|filter| filter.bound.as_deref()) {
                reads(&format!("{path}.filter"), &what, &bound.expr, input, faults);
            }
            for (j, projection) in map.project.iter().enumerate() {
                if let Some(bound) = projection.bound.as_deref() {
                    reads(&format!("{path}.project[{j}]"), &what, &bound.value.expr, input, faults);
                }
            }
        }
        OperatorKind::Top(top) => {
            let what = format!("top '{id}'");
            let keys = top.keys.iter().enumerate().map(|(j, key)| (format!("{path}.keys[{j}]"), key));
            let order = top.order_by.iter().enumerate().map(|(j, order)| (format!("{path}.order_by[{j}].column"), &order.column));
            for (path, column) in keys.chain(order).filter(|(_, column)| input.index_of(column).is_none()) {
                faults.push(unknown_column(path, &what, column, input));
            }
        }
        OperatorKind::Window(window) => {
            let what = format!("window '{id}'");
            for (j, key) in window.keys.iter().enumerate() {
                if input.index_of(key).is_none() {
                    faults.push(unknown_column(format!("{path}.keys[{j}]"), &what, key, input));
                }
            }
            for (j, aggregate) in window.aggregates.iter().enumerate() {
                let Some(bound) = aggregate.expr.bound.as_deref() else { continue };
                for argument in bound.arguments.iter().chain(bound.order_by.iter().map(|order| &order.by)) {
                    reads(&format!("{path}.aggregates[{j}].expr"), &what, &argument.expr, input, faults);
                }
                if let Some(filter) = &bound.filter {
                    reads(&format!("{path}.aggregates[{j}].filter"), &what, filter, input, faults);
                }
            }
            if let Some(bound) = window.having.as_ref().and_then(|having| having.bound.as_deref())
                && let Some(output) = super::of_operator(&operator.kind, None, input, false)
            {
                reads(&format!("{path}.having"), &what, &bound.expr, &output, faults);
            }
        }
    }
}

fn unbound<T: Clone>(path: &str, expression: &Expression<T>, faults: &mut Vec<Fault>) {
    if expression.bound.is_none() {
        let message = format!("the expression '{}' was not bound to its input", expression.sql.escape_debug());
        faults.push(Fault::new("unbound", path, message).with_hint("this is a fault of Weir, not of the job: please report it"));
    }
}

fn condition(path: &str, what: &str, expression: &Expression<Typed>, faults: &mut Vec<Fault>) {
    unbound(path, expression, faults);
    if let Some(bound) = expression.bound.as_deref()
        && bound.ty != ColumnType::Boolean
    {
        let message = format!("{what} is '{}', which gives {}, not BOOLEAN", expression.sql.escape_debug(), bound.ty);
        faults.push(Fault::new("not_boolean", path, message).with_hint("write a comparison"));
    }
}

fn check_map(id: &str, path: &str, map: &Map, faults: &mut Vec<Fault>) {
    if let Some(filter) = &map.filter {
        condition(&format!("{path}.filter"), &format!("the filter of map '{id}'"), filter, faults);
    }
    for (j, projection) in map.project.iter().enumerate() {
        unbound(&format!("{path}.project[{j}]"), projection, faults);
    }
    if map.project.len() > COLUMNS_MAX {
        let message = format!("map '{id}' has more than {COLUMNS_MAX} columns");
        faults.push(Fault::new("too_many_columns", format!("{path}.project"), message));
        return;
    }
    let names =
        map.project.iter().enumerate().filter_map(|(j, p)| Some((format!("{path}.project[{j}]"), p.bound.as_deref()?.name.as_str())));
    declared_names(&format!("map '{id}'"), names, &[], faults);
}

fn check_window(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    shape(path, &window.window, faults);
    if window.keys.is_empty() && window.aggregates.is_empty() {
        let message = format!("window '{id}' has neither keys nor aggregates");
        faults.push(Fault::new("empty_window", path, message).with_hint("add an aggregate, such as {expr: count(*), as: n}"));
    }
    let keys = window.keys.iter().enumerate().map(|(j, key)| (format!("{path}.keys[{j}]"), key.as_str()));
    let aggregates =
        window.aggregates.iter().enumerate().map(|(j, aggregate)| (format!("{path}.aggregates[{j}].as"), aggregate.name.as_str()));
    declared_names(&format!("window '{id}'"), keys.chain(aggregates), super::columns::bounds(&window.window), faults);
    for (j, aggregate) in window.aggregates.iter().enumerate() {
        unbound(&format!("{path}.aggregates[{j}].expr"), &aggregate.expr, faults);
        if let (Some(filter), Some(Aggregate { filter: None, .. })) = (&aggregate.filter, aggregate.expr.bound.as_deref()) {
            let message = format!("the filter '{}' was not bound to its input", filter.escape_debug());
            faults.push(
                Fault::new("unbound", format!("{path}.aggregates[{j}].filter"), message)
                    .with_hint("this is a fault of Weir, not of the job: please report it"),
            );
        }
    }
    if let Some(having) = &window.having {
        condition(&format!("{path}.having"), &format!("having of window '{id}'"), having, faults);
    }
    if let WindowShape::Batch(_) = window.window {
        batch(id, path, window, faults);
        return;
    }
    if window.trigger == Trigger::Watermark && window.trigger_interval_ms.is_some() {
        let message = format!("window '{id}' has a trigger_interval_ms, but trigger is watermark");
        faults.push(
            Fault::new("trigger_interval", format!("{path}.trigger_interval_ms"), message).with_hint("leave trigger_interval_ms out"),
        );
    }
}

fn check_top(id: &str, path: &str, top: &Top, faults: &mut Vec<Fault>) {
    if !(1..=TOP_ROWS_MAX).contains(&top.limit) {
        faults.push(out_of_range(format!("{path}.limit"), "limit", top.limit, &format!("1 to {TOP_ROWS_MAX}")));
    }
    if top.order_by.is_empty() {
        let message = format!("top '{id}' has no order");
        faults.push(Fault::new("no_order", format!("{path}.order_by"), message).with_hint("add order_by: [{column: n, descending: true}]"));
    }
}

/// A batch window closes with its batch and keeps nothing: what governs firing and state says nothing there.
fn batch(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    let given = [
        ("trigger", window.trigger != Trigger::Watermark),
        ("trigger_interval_ms", window.trigger_interval_ms.is_some()),
        ("emit_empty", window.emit_empty.is_some()),
        ("on_overflow", window.on_overflow != OnOverflow::default()),
        ("max_buffered_keys", ![0, Window::MAX_BUFFERED_KEYS].contains(&window.max_buffered_keys)),
    ];
    for (field, _) in given.into_iter().filter(|(_, given)| *given) {
        let message = format!("the batch window '{id}' has {field}, but it closes with each batch and keeps nothing");
        faults.push(Fault::new("batch_window", format!("{path}.{field}"), message).with_hint(format!("leave {field} out")));
    }
}

fn check_buffer(path: &str, buffer: &Buffer, faults: &mut Vec<Fault>) {
    let mut within = |field: &str, value: u64, most: u64| {
        if !(1..=most).contains(&value) {
            let name = field.rsplit('.').next().unwrap_or(field);
            faults.push(out_of_range(format!("{path}.{field}"), name, value, &format!("1 to {most}")));
        }
    };
    match buffer {
        Buffer::Memory(memory) => {
            within("memory.capacity", memory.capacity, BUFFER_ROWS_MAX);
            within("memory.timeout_ms", memory.timeout_ms, BUFFER_MS_MAX);
        }
        Buffer::Tumbling(tumbling) => within("tumbling.interval_ms", tumbling.interval_ms, BUFFER_MS_MAX),
        Buffer::Session(session) => within("session.gap_ms", session.gap_ms, BUFFER_MS_MAX),
    }
}

fn shape(path: &str, shape: &WindowShape, faults: &mut Vec<Fault>) {
    let path = format!("{path}.window");
    match shape {
        WindowShape::Tumbling(tumbling) => {
            let path = format!("{path}.tumbling");
            duration(format!("{path}.size_ms"), "size_ms", tumbling.size_ms, 1, faults);
            if !(-super::DURATION_MS_MAX..=super::DURATION_MS_MAX).contains(&tumbling.offset_ms) {
                faults.push(out_of_range(
                    format!("{path}.offset_ms"),
                    "offset_ms",
                    format!("{} ms", tumbling.offset_ms),
                    "within 100 years",
                ));
            }
        }
        WindowShape::Sliding(sliding) => {
            duration(format!("{path}.sliding.size_ms"), "size_ms", sliding.size_ms, 1, faults);
            duration(format!("{path}.sliding.slide_ms"), "slide_ms", sliding.slide_ms, 1, faults);
        }
        WindowShape::Session(session) => {
            duration(format!("{path}.session.gap_ms"), "gap_ms", session.gap_ms, 1, faults);
        }
        WindowShape::Batch(_) => {}
        WindowShape::Cumulate(cumulate) => {
            duration(format!("{path}.cumulate.max_size_ms"), "max_size_ms", cumulate.max_size_ms, 1, faults);
            duration(format!("{path}.cumulate.step_ms"), "step_ms", cumulate.step_ms, 1, faults);
        }
    }
}
