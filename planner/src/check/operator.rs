//! Rules on operators: expressions of maps, buffers, and joins; windows and tops have files of their own.

use super::{COLUMNS_MAX, declared_names, not_available, out_of_range, reads, top, window};
use crate::error::Fault;
use crate::expr::{Expr, Typed};
use crate::plan::UPDATE_COLUMN;
use crate::schema::{ColumnType, Schema};
use crate::spec::{Buffer, Expression, JobSpec, Map, OperatorKind, Projection};

/// Most rows of a buffer that counts them.
const BUFFER_ROWS_MAX: u64 = 1 << 24;
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
            OperatorKind::Window(window) => {
                window::check(id, &path, window, faults);
                window::bounded(id, &path, window, spec.state.max_bytes, faults);
            }
            OperatorKind::Buffer(buffer) => check_buffer(&path, buffer, faults),
            OperatorKind::Top(top) => top::check(id, &path, top, faults),
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
        OperatorKind::Top(top) => top::columns(id, &path, top, input, faults),
        OperatorKind::Window(window) => window::columns(&operator.kind, id, &path, window, input, faults),
    }
}

pub(super) fn unbound<T: Clone>(path: &str, expression: &Expression<T>, faults: &mut Vec<Fault>) {
    if expression.bound.is_none() {
        let message = format!("the expression '{}' was not bound to its input", expression.sql.escape_debug());
        faults.push(Fault::new("unbound", path, message).with_hint("this is a fault of Weir, not of the job: please report it"));
    }
}

pub(super) fn condition(path: &str, what: &str, expression: &Expression<Typed>, faults: &mut Vec<Fault>) {
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
    // The mark of an updating window may be passed on as it is, and nothing else may look like one.
    let marks = |bound: &Projection| bound.name == UPDATE_COLUMN && bound.value.expr == Expr::Column(UPDATE_COLUMN.to_owned());
    let bound = map.project.iter().enumerate().filter_map(|(j, projection)| Some((j, projection.bound.as_deref()?)));
    let mark = bound.clone().find(|(_, bound)| marks(bound)).map(|(j, _)| j);
    let names = bound.filter(|(j, _)| Some(*j) != mark).map(|(j, bound)| (format!("{path}.project[{j}]"), bound.name.as_str()));
    declared_names(&format!("map '{id}'"), names, mark.map(|_| UPDATE_COLUMN).as_slice(), faults);
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
