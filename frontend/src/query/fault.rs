//! DataFusion's errors as Postgres errors: SQLSTATE, place, way out (SQL-10).

use super::catalog::{Catalogs, readable_names};
use crate::error::{Error, sqlstate};
use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use sqlparser::ast::{ObjectName, ObjectNamePart, Statement, visit_relations};
use std::ops::ControlFlow;

/// A table that a statement names, with its place in the text.
pub(super) struct Named {
    last: String,
    line: u64,
    column: u64,
}

/// Every table that a statement names, in order.
pub(super) fn relations(statement: &Statement) -> Vec<Named> {
    let mut all = Vec::new();
    let _ = visit_relations(statement, |name: &ObjectName| {
        if let (Some(ObjectNamePart::Identifier(first)), Some(ObjectNamePart::Identifier(last))) = (name.0.first(), name.0.last()) {
            let folded = if last.quote_style.is_some() { last.value.clone() } else { last.value.to_lowercase() };
            all.push(Named { last: folded, line: first.span.start.line, column: first.span.start.column });
        }
        ControlFlow::<()>::Continue(())
    });
    all
}

/// The error of a plan: as [`from_datafusion`], and names near to a table that is not there.
pub(super) fn of_plan(error: &DataFusionError, text: &str, named: &[Named], state: &SessionState) -> Error {
    let mut found = from_datafusion(error, text);
    if found.position.is_none() {
        // A refusal of our own says the table's name in quotes; the statement says where it stands.
        let place = named.iter().find(|table| found.message.contains(&format!("'{}'", table.last)));
        found.position = place.and_then(|table| position(text, table.line, table.column));
    }
    if found.sqlstate == sqlstate::UNDEFINED_TABLE && found.hint.is_none() {
        let missing = found.message.split('\'').nth(1).unwrap_or_default().to_owned();
        let bare = missing.rsplit('.').next().unwrap_or(&missing).to_owned();
        let names = state.catalog_list().downcast_ref::<Catalogs>().map(|catalogs| readable_names(catalogs.scope())).unwrap_or_default();
        let of_state = missing.starts_with("state.");
        found.hint = Some(match nearest(names.iter().map(String::as_str), &bare) {
            Some(name) => format!("did you mean {name}?"),
            None if of_state => "SELECT table_name FROM weir.state_tables lists what jobs keep".to_owned(),
            None => "\\d lists what can be read; SHOW JOBS lists jobs".to_owned(),
        });
    }
    if found.sqlstate == sqlstate::UNDEFINED_FUNCTION
        && let Some(written) = found.message.strip_prefix("invalid function '").and_then(|rest| rest.strip_suffix('\''))
    {
        let (scalar, aggregate, window) = (state.scalar_functions(), state.aggregate_functions(), state.window_functions());
        let names = scalar.keys().chain(aggregate.keys()).chain(window.keys()).map(String::as_str);
        let public = names.filter(|name| !name.starts_with("weir_") && !name.starts_with("pg_"));
        found.hint = nearest(public, &written.to_lowercase()).map(|name| format!("did you mean {name}?"));
        found.message = format!("function '{written}' does not exist");
    }
    found
}

/// How near a name without its schema is to the one that was written: 1 is equal.
fn closeness(name: &str, written: &str) -> f64 {
    let name = name.rsplit('.').next().unwrap_or(name);
    let longest = name.chars().count().max(written.chars().count()).max(1);
    1.0 - steps(name, written) as f64 / longest as f64
}

/// The name nearest to the one that was written, when it is near at all. Of equally near ones,
/// the one that begins alike.
fn nearest<'a>(names: impl Iterator<Item = &'a str>, written: &str) -> Option<&'a str> {
    let alike = |name: &str| name.chars().zip(written.chars()).take_while(|(a, b)| a == b).count();
    let rated = names.map(|name| (closeness(name, written), alike(name), name)).filter(|(near, ..)| *near >= 0.5);
    rated.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(b.2.cmp(a.2))).map(|(_, _, name)| name)
}

/// Letters to put in, take out, change, or swap with their neighbour, to make `b` of `a`.
fn steps(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Rows of the usual table: two back (for swaps), one back, and this one.
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let of = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut best = (of(&last, j + 1) + 1).min(of(&row, j) + 1).min(of(&last, j) + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(of(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

/// What DataFusion says, as a Postgres error with its place in `text`.
pub(crate) fn from_datafusion(error: &DataFusionError, text: &str) -> Error {
    let root = root(error);
    if let DataFusionError::External(inner) = root
        && let Some(ours) = inner.downcast_ref::<Error>()
    {
        return ours.clone();
    }
    let diagnostic = error.diagnostic();
    let said = diagnostic.map_or_else(|| plain(root), |diagnostic| diagnostic.message.clone());
    let message = tidy(&said);
    let state = classify(root, &message);
    let mut out = Error::new(state, message);
    if let Some(diagnostic) = diagnostic {
        out.position = diagnostic.span.and_then(|span| position(text, span.start.line, span.start.column));
        let advice = diagnostic.helps.iter().map(|help| &help.message).chain(diagnostic.notes.iter().map(|note| &note.message));
        let (columns, others): (Vec<String>, Vec<String>) =
            advice.map(|line| tidy(line)).partition(|line| line.starts_with("possible column "));
        let columns: Vec<&str> = columns.iter().map(|line| line.trim_start_matches("possible column ")).take(3).collect();
        let mean = (!columns.is_empty()).then(|| format!("did you mean {}?", columns.join(" or ")));
        let hint: Vec<String> = mean.into_iter().chain(others).collect();
        if !hint.is_empty() {
            out.hint = Some(hint.join("; "));
        }
    }
    if out.sqlstate == sqlstate::INTERNAL_ERROR {
        out.hint = Some("this is a fault of Weir: please report it with the statement".to_owned());
    }
    if let Some(name) = out.message.strip_prefix("table function '").and_then(|rest| rest.strip_suffix("' not found")) {
        out.sqlstate = sqlstate::UNDEFINED_FUNCTION;
        if crate::sql::WINDOW_FUNCTIONS.contains(&name) {
            out.hint = Some("windows run in jobs: CREATE JOB j AS SELECT …, then SELECT * FROM j".to_owned());
        }
    }
    if let (DataFusionError::ResourcesExhausted(_), None) = (root, &out.hint) {
        out.hint = Some(format!("queries share {} MiB: filter or aggregate more, or drop ORDER BY", super::MEMORY_BYTES_MAX >> 20));
    }
    out
}

/// Character offset from 1 of a line and column (both from 1) in `text`.
pub(super) fn position(text: &str, line: u64, column: u64) -> Option<usize> {
    if line == 0 || column == 0 {
        return None;
    }
    let before: usize = text.split_inclusive('\n').take(usize::try_from(line - 1).ok()?).map(|line| line.chars().count()).sum();
    Some(before + usize::try_from(column).ok()?)
}

/// The innermost error, through DataFusion's wrappers and those of Arrow.
fn root(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => root(inner),
        DataFusionError::Shared(inner) => root(inner),
        DataFusionError::Collection(all) => all.first().map_or(error, root),
        DataFusionError::External(inner) => inner.downcast_ref::<DataFusionError>().map_or(error, root),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => inner.downcast_ref::<DataFusionError>().map_or(error, root),
            _ => error,
        },
        _ => error,
    }
}

fn plain(error: &DataFusionError) -> String {
    match error {
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => "division by zero".to_owned(),
            other => {
                let text = other.to_string();
                text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned())
            }
        },
        DataFusionError::SchemaError(inner, _) => inner.to_string(),
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::IoError(inner) => inner.to_string(),
        other => other.message().into_owned(),
    }
}

/// First sentence first, no back trace, no capital at the start, no full stop, no names of crates.
fn tidy(text: &str) -> String {
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    let text = text.split("This issue was likely caused by a bug").next().unwrap_or(text);
    let text = text.replace("weir.public.", "").replace("weir.weir.", "weir.").replace("DataFusion", "the query engine");
    let text = sql_types(&text);
    let text = text.trim().trim_start_matches("Error during planning: ").trim_start_matches("Execution error: ");
    let text = text.trim_end_matches(['.', '\n', ' ']);
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // "NOT cannot be …" keeps its capitals.
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Arrow's names of types as SQL's.
fn sql_types(text: &str) -> String {
    const NAMES: [(&str, &str); 8] = [
        ("Int64", "BIGINT"),
        ("Int32", "INTEGER"),
        ("Int16", "SMALLINT"),
        ("Utf8", "TEXT"),
        ("Float64", "DOUBLE PRECISION"),
        ("Float32", "REAL"),
        ("Date32", "DATE"),
        ("Binary", "BYTEA"),
    ];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut word) = (String::with_capacity(text.len()), String::new());
    for c in text.chars().chain(['\n']) {
        if is_word(c) {
            word.push(c);
            continue;
        }
        let sql = NAMES.iter().find(|(arrow, _)| *arrow == word).map(|(_, sql)| *sql);
        out.push_str(sql.unwrap_or(&word));
        out.push(c);
        word.clear();
    }
    out.pop();
    out
}

fn classify(root: &DataFusionError, message: &str) -> &'static str {
    let said = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match root {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { .. } => sqlstate::UNDEFINED_COLUMN,
            SchemaError::AmbiguousReference { .. } => sqlstate::AMBIGUOUS_COLUMN,
            SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => "42701",
        },
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => "22012",
            ArrowError::ArithmeticOverflow(_) => "22003",
            ArrowError::CastError(_) | ArrowError::ParseError(_) => "22P02",
            ArrowError::IpcError(_) => sqlstate::DATA_CORRUPTED,
            ArrowError::NotYetImplemented(_) => sqlstate::FEATURE_NOT_SUPPORTED,
            ArrowError::ComputeError(_) | ArrowError::InvalidArgumentError(_) => sqlstate::INVALID_PARAMETER_VALUE,
            _ => sqlstate::INTERNAL_ERROR,
        },
        DataFusionError::SQL(..) => sqlstate::SYNTAX_ERROR,
        DataFusionError::NotImplemented(_) => sqlstate::FEATURE_NOT_SUPPORTED,
        DataFusionError::ResourcesExhausted(_) => "53200",
        DataFusionError::Execution(_) => sqlstate::INVALID_PARAMETER_VALUE,
        DataFusionError::Plan(_) | DataFusionError::Internal(_) => {
            if said(&["nvalid function", "No function matches", "no function matches", "o functions registered"]) {
                sqlstate::UNDEFINED_FUNCTION
            } else if message.starts_with("table '") && said(&["not found"]) {
                sqlstate::UNDEFINED_TABLE
            } else if said(&["must be in GROUP BY", "must appear in GROUP BY", "must appear in the GROUP BY", "nested inside"]) {
                sqlstate::GROUPING_ERROR
            } else if said(&["ambiguous"]) {
                sqlstate::AMBIGUOUS_COLUMN
            } else if said(&["No field named", "no field named"]) || (message.starts_with("column '") && said(&["not found"])) {
                sqlstate::UNDEFINED_COLUMN
            } else if matches!(root, DataFusionError::Internal(_)) {
                sqlstate::INTERNAL_ERROR
            } else if said(&["not supported", "nsupported", "not implemented", "DDL", "DML"]) {
                sqlstate::FEATURE_NOT_SUPPORTED
            } else if said(&["oerce", "annot infer", "type", "annot be used with", "expected"]) {
                sqlstate::DATATYPE_MISMATCH
            } else {
                sqlstate::SYNTAX_ERROR
            }
        }
        DataFusionError::Configuration(_) => sqlstate::INVALID_PARAMETER_VALUE,
        DataFusionError::IoError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::ExecutionJoin(_)
        | DataFusionError::External(_)
        | DataFusionError::Substrait(_)
        | DataFusionError::Ffi(_)
        | DataFusionError::Context(..)
        | DataFusionError::Diagnostic(..)
        | DataFusionError::Collection(_)
        | DataFusionError::Shared(_) => sqlstate::INTERNAL_ERROR,
    }
}
