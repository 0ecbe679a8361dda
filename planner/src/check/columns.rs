//! Columns through the graph: what each operator takes and gives.

use super::graph::Graph;
use crate::connector::{Format, GenerateKind, SourceOptions};
use crate::error::Fault;
use crate::expr::Expr;
use crate::plan::UPDATE_COLUMN;
use crate::schema::infer::Inference;
use crate::schema::{Column, ColumnType, META_TIMESTAMP, Schema};
use crate::spec::{JobSpec, Map, OperatorKind, Source, SourceColumn, Top, Window, WindowShape};
use crate::time::TimeUnit;
use std::collections::BTreeSet;

/// Type of `window_start` and `window_end`.
pub const WINDOW_TIME: ColumnType = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };

/// The columns of a source as declared, or as its connector or format fixes them: Nexmark tables
/// bring their own, templates and messages hold their rows, a source without a format gives
/// `value BYTEA` (JOB-6). Empty when they could only be known by connecting.
pub fn of_source(source: &Source) -> Vec<SourceColumn> {
    if !source.schema.is_empty() {
        return source.schema.clone();
    }
    if let Some(columns) = held_rows(source) {
        return columns.unwrap_or_default();
    }
    match &source.config {
        SourceOptions::Generate(generate) => match (generate.kind, generate.table) {
            (GenerateKind::Nexmark, Some(table)) => table.columns().into_iter().map(declared).collect(),
            (GenerateKind::Nexmark, None) | (GenerateKind::Template, _) => Vec::new(),
        },
        SourceOptions::Values(_) => Vec::new(),
        SourceOptions::File(_) | SourceOptions::Kafka(_) | SourceOptions::Memory(_) | SourceOptions::Http(_) => match &source.codec {
            None | Some(Format::Raw(_)) => {
                vec![SourceColumn { name: "value".to_owned(), ty: ColumnType::Bytea, not_null: false, timestamp_unit: None }]
            }
            Some(Format::Json(_) | Format::Csv(_) | Format::Parquet(_)) => Vec::new(),
        },
    }
}

/// A column as it would be declared.
pub fn declared(column: Column) -> SourceColumn {
    SourceColumn { name: column.name, ty: column.ty, not_null: !column.nullable, timestamp_unit: None }
}

/// The columns of a source whose rows stand in its options, taken from them; `None` for all others.
///
/// Errors: rows that give no columns.
pub fn held_rows(source: &Source) -> Option<Result<Vec<SourceColumn>, Fault>> {
    let mut inference = Inference::default();
    let mut reason = None;
    match (&source.config, &source.codec) {
        (SourceOptions::Generate(generate), _) if generate.kind == GenerateKind::Template => {
            // One that is missing or no object has its own fault.
            let context = generate.context.as_ref()?;
            inference.json(context.replace("{{counter}}", "0").as_bytes()).ok()?;
        }
        (SourceOptions::Memory(memory), Some(Format::Json(_))) if !memory.messages.is_empty() => {
            for message in &memory.messages {
                if let Err(why) = inference.json(message.as_bytes()) {
                    reason.get_or_insert(why);
                }
            }
        }
        _ => return None,
    }
    Some(match (inference.records(), reason) {
        (0, Some(reason)) => Err(Fault::new("bad_message", "", reason)),
        (_, _) => inference.columns().map(|columns| columns.into_iter().map(declared).collect()),
    })
}

/// Whether a source's columns are taken from its first rows, when a job first starts (JOB-6).
pub fn is_pending(source: &Source) -> bool {
    let sampled = match &source.config {
        SourceOptions::File(_) | SourceOptions::Kafka(_) => true,
        SourceOptions::Generate(_) | SourceOptions::Values(_) | SourceOptions::Memory(_) | SourceOptions::Http(_) => false,
    };
    let formed = match &source.codec {
        Some(Format::Json(_) | Format::Csv(_) | Format::Parquet(_)) => true,
        Some(Format::Raw(_)) | None => false,
    };
    source.schema.is_empty() && sampled && formed
}

/// The sources of a spec whose columns are not known yet. A spec with any has no plan.
pub fn pending(spec: &JobSpec) -> Vec<&Source> {
    spec.sources.iter().filter(|source| is_pending(source)).collect()
}

/// For each operator, whether what it gets depends on columns that are not known yet.
pub fn unchecked(spec: &JobSpec) -> Vec<bool> {
    let unknown: BTreeSet<_> = pending(spec).into_iter().map(|source| &source.operator_id).collect();
    let Some(graph) = Graph::of(spec).filter(|_| !unknown.is_empty()) else { return vec![false; spec.operators.len()] };
    let behind = |sources: &BTreeSet<usize>| sources.iter().any(|&at| spec.operators.get(at).is_some_and(|o| unknown.contains(&o.id)));
    graph.sources_upstream(spec).iter().map(behind).collect()
}

/// The same as a schema.
pub fn schema_of_source(source: &Source) -> Schema {
    let column = |c: SourceColumn| Column { name: c.name, ty: c.ty, nullable: !c.not_null };
    Schema(of_source(source).into_iter().map(column).collect())
}

/// What an operator gives for what it takes (of a sink: what it takes). `updates`: it is a window
/// that marks results which come again (see [`Graph::updates`]). `None` while an expression that
/// decides about it is not bound, or for a key that `input` lacks.
pub fn of_operator(kind: &OperatorKind, source: Option<&Source>, input: &Schema, updates: bool) -> Option<Schema> {
    match kind {
        OperatorKind::Source => source.map(schema_of_source),
        OperatorKind::Map(map) => of_map(map, input),
        OperatorKind::Window(window) => of_window(window, input, updates),
        OperatorKind::Top(top) => Some(of_top(top, input)),
        OperatorKind::Join(_) => None,
        OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => Some(input.clone()),
    }
}

fn of_map(map: &Map, input: &Schema) -> Option<Schema> {
    if map.project.is_empty() {
        return Some(input.clone());
    }
    let column = |bound: &crate::spec::Projection| Column { name: bound.name.clone(), ty: bound.value.ty, nullable: bound.value.nullable };
    map.project.iter().map(|expression| expression.bound.as_deref().map(column)).collect::<Option<Vec<_>>>().map(Schema)
}

/// Names of the columns that a window shape adds between keys and aggregates.
pub fn bounds(shape: &WindowShape) -> &'static [&'static str] {
    match shape {
        WindowShape::Batch(_) => &[],
        WindowShape::Tumbling(_) | WindowShape::Sliding(_) | WindowShape::Session(_) | WindowShape::Cumulate(_) => {
            &["window_start", "window_end"]
        }
    }
}

fn of_top(top: &Top, input: &Schema) -> Schema {
    let place = top.place.iter().map(|name| Column { name: name.clone(), ty: ColumnType::BigInt, nullable: false });
    Schema(input.0.iter().cloned().chain(place).collect())
}

fn of_window(window: &Window, input: &Schema, updates: bool) -> Option<Schema> {
    let key = |name: &String| input.index_of(name).and_then(|at| input.0.get(at)).cloned();
    let mut columns = window.keys.iter().map(key).collect::<Option<Vec<_>>>()?;
    for name in bounds(&window.window) {
        columns.push(Column { name: (*name).to_owned(), ty: WINDOW_TIME, nullable: false });
    }
    for aggregate in &window.aggregates {
        let bound = aggregate.expr.bound.as_deref()?;
        columns.push(Column { name: aggregate.name.clone(), ty: bound.ty, nullable: bound.nullable });
    }
    if updates {
        columns.push(Column { name: UPDATE_COLUMN.to_owned(), ty: ColumnType::Boolean, nullable: false });
    }
    Some(Schema(columns))
}

/// Adds the names of the input columns that an expression reads; the row's event time, which
/// travels beside the columns, is not among them.
pub fn read_by(expr: &Expr, names: &mut BTreeSet<String>) {
    match expr {
        Expr::Column(name) => {
            if name != META_TIMESTAMP {
                names.insert(name.clone());
            }
        }
        Expr::Literal(_) => {}
        Expr::Binary { left, right, .. } => {
            read_by(left, names);
            read_by(right, names);
        }
        Expr::Not(expr) | Expr::Negate(expr) | Expr::IsNull { expr, .. } | Expr::IsBoolean { expr, .. } | Expr::Cast { expr, .. } => {
            read_by(expr, names)
        }
        Expr::Case { operand, branches, otherwise } => {
            for expr in operand.iter().chain(otherwise) {
                read_by(expr, names);
            }
            for (when, then) in branches {
                read_by(when, names);
                read_by(then, names);
            }
        }
        Expr::Like { expr, pattern, .. } => {
            read_by(expr, names);
            read_by(pattern, names);
        }
        Expr::InList { expr, list, .. } => {
            read_by(expr, names);
            for item in list {
                read_by(item, names);
            }
        }
        Expr::Function { args, .. } => {
            for arg in args {
                read_by(arg, names);
            }
        }
    }
}

/// Input columns that an operator itself reads (a sink reads all that it gets, which is not said here).
pub fn read_by_operator(kind: &OperatorKind) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match kind {
        OperatorKind::Source | OperatorKind::Join(_) | OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Sink => {}
        OperatorKind::Map(map) => {
            for typed in map.filter.iter().filter_map(|filter| filter.bound.as_deref()) {
                read_by(&typed.expr, &mut names);
            }
            for projection in map.project.iter().filter_map(|project| project.bound.as_deref()) {
                read_by(&projection.value.expr, &mut names);
            }
        }
        OperatorKind::Top(top) => names.extend(top.keys.iter().cloned().chain(top.order_by.iter().map(|order| order.column.clone()))),
        OperatorKind::Window(window) => {
            names.extend(window.keys.iter().chain(&window.timestamp_field).cloned());
            for aggregate in window.aggregates.iter().filter_map(|aggregate| aggregate.expr.bound.as_deref()) {
                for argument in aggregate.arguments.iter().chain(aggregate.order_by.iter().map(|order| &order.by)) {
                    read_by(&argument.expr, &mut names);
                }
                if let Some(filter) = &aggregate.filter {
                    read_by(filter, &mut names);
                }
            }
        }
    }
    names
}

/// One schema for all inputs of an operator: the same names and types in the same order; a column
/// may be NULL where it may be in any of them.
///
/// Errors: what differs, as text, with the position of the input that differs from the first.
pub fn united(inputs: &[&Schema]) -> Result<Schema, (usize, String)> {
    let Some((first, rest)) = inputs.split_first() else { return Ok(Schema::default()) };
    let mut united = (*first).clone();
    for (at, other) in rest.iter().enumerate() {
        if other.0.len() != united.0.len() {
            return Err((at + 1, format!("{} columns instead of {}", other.0.len(), united.0.len())));
        }
        for (mine, theirs) in united.0.iter_mut().zip(&other.0) {
            if mine.name != theirs.name || mine.ty != theirs.ty {
                return Err((at + 1, format!("'{} {}' where the first has '{} {}'", theirs.name, theirs.ty, mine.name, mine.ty)));
            }
            mine.nullable |= theirs.nullable;
        }
    }
    Ok(united)
}
