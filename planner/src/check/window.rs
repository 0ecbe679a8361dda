//! Rules on windows: their shapes, what fires them, and their columns (WIN-1, WIN-3, JOB-4).

use super::columns::{bounds, of_operator};
use super::operator::{condition, unbound};
use super::{DURATION_MS_MAX, declared_names, duration, out_of_range, reads, unknown_column};
use crate::error::Fault;
use crate::expr::{Aggregate, AggregateFunction};
use crate::nearest;
use crate::schema::Schema;
use crate::spec::{Cumulate, OnOverflow, OperatorKind, Sliding, Trigger, Tumbling, Window, WindowShape};
use crate::window::{Aligned, DAY_MS, Windows, Zone};

/// Most windows that one row may lie in: each of them counts it.
const WINDOWS_OF_ROW_MAX: i64 = 100_000;
/// Most windows without rows for which one key gets rows when time leaps on.
const EMPTY_WINDOWS_MAX: u64 = 1_000_000;
/// Shortest time between two firings by the clock: each of them gives every window that changed.
const TRIGGER_MS_MIN: i64 = 10;

/// Rules that need no schema.
pub(super) fn check(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    shape(id, path, &window.window, faults);
    if window.keys.is_empty() && window.aggregates.is_empty() {
        let message = format!("window '{id}' has neither keys nor aggregates");
        faults.push(Fault::new("empty_window", path, message).with_hint("add an aggregate, such as {expr: count(*), as: n}"));
    }
    let keys = window.keys.iter().enumerate().map(|(j, key)| (format!("{path}.keys[{j}]"), key.as_str()));
    let aggregates =
        window.aggregates.iter().enumerate().map(|(j, aggregate)| (format!("{path}.aggregates[{j}].as"), aggregate.name.as_str()));
    declared_names(&format!("window '{id}'"), keys.chain(aggregates), bounds(&window.window), faults);
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
    trigger(id, path, window, faults);
    emit_empty(id, path, window, faults);
}

/// Aggregates that keep every value need a bound on the job's state (SQL-3), except where a window is but a batch.
pub(super) fn bounded(id: &str, path: &str, window: &Window, state_bytes_max: Option<u64>, faults: &mut Vec<Fault>) {
    if state_bytes_max.is_some() || matches!(window.window, WindowShape::Batch(_)) {
        return;
    }
    for (j, aggregate) in window.aggregates.iter().enumerate() {
        let Some(call) = aggregate.expr.bound.as_deref().filter(|call| call.function.keeps_values()) else { continue };
        let name = call.function.name();
        let message = format!("{name} of window '{id}' keeps every value of a window, and the job's state has no bound");
        let instead = if call.function == AggregateFunction::StringAgg { "" } else { ", or use approx_percentile_cont" };
        let hint = format!("set state.max_bytes, such as 1000000000{instead}");
        faults.push(Fault::new("unbounded_state", format!("{path}.aggregates[{j}].expr"), message).with_hint(hint));
    }
}

/// Rules on the columns that a window takes and gives.
pub(super) fn columns(kind: &OperatorKind, id: &str, path: &str, window: &Window, input: &Schema, faults: &mut Vec<Fault>) {
    let what = format!("window '{id}'");
    for (j, key) in window.keys.iter().enumerate().filter(|(_, key)| input.index_of(key).is_none()) {
        faults.push(unknown_column(format!("{path}.keys[{j}]"), &what, key, input));
    }
    if let Some(field) = window.timestamp_field.as_ref().filter(|field| input.index_of(field).is_none())
        && !matches!(window.window, WindowShape::Batch(_))
    {
        faults.push(unknown_column(format!("{path}.timestamp_field"), &what, field, input));
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
        && let Some(output) = of_operator(kind, None, input, false)
    {
        reads(&format!("{path}.having"), &what, &bound.expr, &output, faults);
    }
}

/// From one end of a window to the next, as far as that is the same for all; none for sessions and batches.
pub(super) fn step_ms(shape: &WindowShape) -> Option<i64> {
    match shape {
        WindowShape::Tumbling(tumbling) => Some(tumbling.size_ms),
        WindowShape::Sliding(sliding) => Some(sliding.slide_ms),
        WindowShape::Cumulate(cumulate) => Some(cumulate.step_ms),
        WindowShape::Session(_) | WindowShape::Batch(_) => None,
    }
}

/// How a shape cuts time; `None` for batches, and for a time zone that is not known.
pub(crate) fn windows_of(shape: &WindowShape) -> Option<Windows> {
    Some(match shape {
        WindowShape::Tumbling(Tumbling { size_ms, offset_ms, timezone: None }) => {
            Windows::Aligned(Aligned::Tumbling { size_ms: *size_ms, offset_ms: *offset_ms })
        }
        WindowShape::Tumbling(Tumbling { size_ms, offset_ms, timezone: Some(zone) }) => {
            Windows::Aligned(Aligned::Calendar { days: size_ms / DAY_MS, offset_ms: *offset_ms, zone: Zone::named(zone)? })
        }
        WindowShape::Sliding(Sliding { size_ms, slide_ms, offset_ms }) => {
            Windows::Aligned(Aligned::Sliding { size_ms: *size_ms, slide_ms: *slide_ms, offset_ms: *offset_ms })
        }
        WindowShape::Cumulate(Cumulate { max_size_ms, step_ms, offset_ms }) => {
            Windows::Aligned(Aligned::Cumulate { max_size_ms: *max_size_ms, step_ms: *step_ms, offset_ms: *offset_ms })
        }
        WindowShape::Session(session) => Windows::Session { gap_ms: session.gap_ms },
        WindowShape::Batch(_) => return None,
    })
}

fn shape(id: &str, path: &str, shape: &WindowShape, faults: &mut Vec<Fault>) {
    let path = format!("{path}.window");
    match shape {
        WindowShape::Tumbling(window) => {
            let path = format!("{path}.tumbling");
            duration(format!("{path}.size_ms"), "size_ms", window.size_ms, 1, faults);
            offset(&path, window.offset_ms, faults);
            calendar(id, &path, window, faults);
        }
        WindowShape::Sliding(Sliding { size_ms, slide_ms, offset_ms }) => {
            let (path, before) = (format!("{path}.sliding"), faults.len());
            duration(format!("{path}.size_ms"), "size_ms", *size_ms, 1, faults);
            duration(format!("{path}.slide_ms"), "slide_ms", *slide_ms, 1, faults);
            if faults.len() == before {
                overlap(id, format!("{path}.slide_ms"), ("size_ms", *size_ms), ("slide_ms", *slide_ms), faults);
            }
            offset(&path, *offset_ms, faults);
        }
        WindowShape::Cumulate(Cumulate { max_size_ms, step_ms, offset_ms }) => {
            let (path, before) = (format!("{path}.cumulate"), faults.len());
            duration(format!("{path}.max_size_ms"), "max_size_ms", *max_size_ms, 1, faults);
            duration(format!("{path}.step_ms"), "step_ms", *step_ms, 1, faults);
            if faults.len() == before {
                steps(id, &path, *max_size_ms, *step_ms, faults);
                overlap(id, format!("{path}.step_ms"), ("max_size_ms", *max_size_ms), ("step_ms", *step_ms), faults);
            }
            offset(&path, *offset_ms, faults);
        }
        WindowShape::Session(session) => duration(format!("{path}.session.gap_ms"), "gap_ms", session.gap_ms, 1, faults),
        WindowShape::Batch(_) => {}
    }
}

fn offset(path: &str, offset_ms: i64, faults: &mut Vec<Fault>) {
    if !(-DURATION_MS_MAX..=DURATION_MS_MAX).contains(&offset_ms) {
        faults.push(out_of_range(format!("{path}.offset_ms"), "offset_ms", format!("{offset_ms} ms"), "within 100 years"));
    }
}

/// Calendar days: of a zone that is known, and whole ones (C15).
fn calendar(id: &str, path: &str, window: &Tumbling, faults: &mut Vec<Fault>) {
    let Some(zone) = &window.timezone else { return };
    if Zone::named(zone).is_none() {
        let message = format!("window '{id}' has the time zone '{}', which is not known", zone.escape_debug());
        // The names differ by their ending, and people write the case as they please.
        let same = Zone::names().find(|known| known.eq_ignore_ascii_case(zone));
        let hint = same.or_else(|| nearest::nearest(zone, Zone::names())).map_or_else(
            || "use a name of the IANA database, such as Europe/Berlin, America/New_York or UTC".to_owned(),
            |near| format!("did you mean '{near}'?"),
        );
        faults.push(Fault::new("unknown_timezone", format!("{path}.timezone"), message).with_hint(hint));
    }
    let size_ms = window.size_ms;
    if size_ms > 0 && size_ms % DAY_MS != 0 {
        let message = format!("window '{id}' has a timezone and a size_ms of {size_ms}, which is not whole days");
        let hint = format!("give a multiple of {DAY_MS} (1d), or leave timezone out and shift the windows with offset_ms");
        faults.push(Fault::new("calendar_size", format!("{path}.size_ms"), message).with_hint(hint));
    }
}

/// Cumulating windows grow by whole steps.
fn steps(id: &str, path: &str, max_size_ms: i64, step_ms: i64, faults: &mut Vec<Fault>) {
    let rest = max_size_ms % step_ms;
    if rest == 0 {
        return;
    }
    let message = format!("window '{id}' grows to max_size_ms {max_size_ms}, which is not a multiple of its step_ms {step_ms}");
    let (below, above) = (max_size_ms - rest, max_size_ms - rest + step_ms);
    let hint = if below == 0 { format!("give max_size_ms {above}") } else { format!("give max_size_ms {below} or {above}") };
    faults.push(Fault::new("cumulate_step", format!("{path}.max_size_ms"), message).with_hint(hint));
}

/// One row lies in so many windows as steps fit into one.
fn overlap(id: &str, path: String, size: (&str, i64), step: (&str, i64), faults: &mut Vec<Fault>) {
    let windows = size.1 / step.1;
    if windows > WINDOWS_OF_ROW_MAX {
        let (message, least) =
            (format!("each row lies in {windows} windows of '{id}', at most {WINDOWS_OF_ROW_MAX} work"), size.1 / WINDOWS_OF_ROW_MAX);
        let hint = format!("make {} at least {}, or {} shorter", step.0, least.max(1), size.0);
        faults.push(Fault::new("too_many_windows", path, message).with_hint(hint));
    }
}

/// What fires a window, and how often (WIN-3).
fn trigger(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    let path = format!("{path}.trigger_interval_ms");
    match (window.trigger, window.trigger_interval_ms) {
        (Trigger::Watermark, None) => {}
        (Trigger::Watermark, Some(_)) => {
            let message = format!("window '{id}' has a trigger_interval_ms, but trigger is watermark");
            let hint = "leave trigger_interval_ms out, or set trigger to processing_time";
            faults.push(Fault::new("trigger_interval", path, message).with_hint(hint));
        }
        (Trigger::ProcessingTime, None) => {
            let message = format!("window '{id}' fires by the clock, but has no trigger_interval_ms");
            let hint = "say how often: trigger_interval: 1s; or leave trigger out, so that it fires by the watermark alone";
            faults.push(Fault::new("trigger_interval", path, message).with_hint(hint));
        }
        (Trigger::ProcessingTime, Some(_)) if matches!(window.window, WindowShape::Session(_)) => {
            let message =
                format!("window '{id}' has sessions, which end elsewhere with each row: what it gave early could not be replaced");
            let hint = "leave trigger out: a session is given once, when it is complete; or use tumbling, sliding or cumulate windows";
            faults.push(Fault::new("early_session", path, message).with_hint(hint));
        }
        (Trigger::ProcessingTime, Some(every)) => {
            duration(path, "trigger_interval_ms", i64::try_from(every).unwrap_or(i64::MAX), TRIGGER_MS_MIN, faults)
        }
    }
}

/// Rows for windows without rows: of a key, only so many at a time (C17).
fn emit_empty(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    let Some(empty) = &window.emit_empty else { return };
    let Some(step_ms) = step_ms(&window.window) else {
        let message = format!("window '{id}' has emit_empty, but sessions are made by their rows: there is none without");
        let hint = "leave emit_empty out, or use tumbling, sliding or cumulate windows";
        faults.push(Fault::new("empty_session", format!("{path}.emit_empty"), message).with_hint(hint));
        return;
    };
    let path = format!("{path}.emit_empty.horizon_ms");
    let horizon = i64::try_from(empty.horizon_ms).unwrap_or(i64::MAX);
    let before = faults.len();
    duration(path.clone(), "horizon_ms", horizon, 1, faults);
    let windows = empty.horizon_ms / u64::try_from(step_ms).unwrap_or(1).max(1);
    if faults.len() == before && step_ms > 0 && windows > EMPTY_WINDOWS_MAX {
        let message =
            format!("window '{id}' would give {windows} rows for windows without rows, at most {EMPTY_WINDOWS_MAX} a key are possible");
        let hint = format!("make horizon_ms at most {}", u64::try_from(step_ms).unwrap_or(1).saturating_mul(EMPTY_WINDOWS_MAX));
        faults.push(Fault::new("too_many_windows", path, message).with_hint(hint));
    }
}

/// A batch window closes with its batch and keeps nothing: what governs time, firing and state says nothing there.
fn batch(id: &str, path: &str, window: &Window, faults: &mut Vec<Fault>) {
    let given = [
        ("timestamp_field", window.timestamp_field.is_some()),
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
