//! Planning errors of DataFusion, and faults of a spec, as Postgres errors with a place.

use super::place::Places;
use super::window::Placed;
use crate::error::{Error, sqlstate};
use datafusion::common::{DataFusionError, SchemaError, Span};
use sqlparser::tokenizer::Location;
use weir_planner::error::Fault;
use weir_planner::nearest::nearest;

/// The error that a planning failure is for the user; `fallback` is the place when it has none.
pub(crate) fn planning(error: &DataFusionError, places: &Places, fallback: usize) -> Error {
    let place = |span: Option<&Span>| span.and_then(|span| places.offset(location(span)));
    let diagnosed = place(error.diagnostic().and_then(|diagnostic| diagnostic.span.as_ref()));
    match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<Placed>() {
            Some(placed) => {
                let position = placed.error.position.or_else(|| places.start(placed.span)).unwrap_or(fallback);
                placed.error.clone().at(position)
            }
            None => Error::new(sqlstate::INTERNAL_ERROR, inner.to_string()).at(fallback),
        },
        DataFusionError::SchemaError(inner, _) => match &**inner {
            SchemaError::FieldNotFound { field, valid_fields } => {
                let known: Vec<&str> = valid_fields.iter().map(|column| column.name.as_str()).collect();
                let error = Error::new(sqlstate::UNDEFINED_COLUMN, format!("column '{}' does not exist", field.flat_name()));
                let position = place(field.spans().first().as_ref()).or(diagnosed).unwrap_or(fallback);
                let error = match nearest(&field.name, known.iter().copied()) {
                    Some(near) => error.with_hint(format!("did you mean '{near}'?")),
                    None if known.is_empty() => error,
                    None => error.with_hint(format!("columns here: {}", known.join(", "))),
                };
                error.at(position)
            }
            SchemaError::AmbiguousReference { field } => {
                let position = place(field.spans().first().as_ref()).or(diagnosed).unwrap_or(fallback);
                Error::new(sqlstate::AMBIGUOUS_COLUMN, format!("column '{}' is ambiguous", field.name)).at(position)
            }
            SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
                Error::new("42701", format!("column '{name}' appears twice"))
                    .with_hint("give one of them another name with AS")
                    .at(diagnosed.unwrap_or(fallback))
            }
        },
        DataFusionError::NotImplemented(message) if message.contains("binary operator: Custom(") => {
            let operator = message.split('"').nth(1).unwrap_or_default();
            Error::new(sqlstate::UNDEFINED_FUNCTION, format!("the operator {operator} does not exist"))
                .with_hint("comparisons are =, <>, <, <=, > and >=")
                .at(diagnosed.unwrap_or(fallback))
        }
        DataFusionError::NotImplemented(message) => {
            Error::new(sqlstate::FEATURE_NOT_SUPPORTED, lowered(message)).at(diagnosed.unwrap_or(fallback))
        }
        root => {
            let message = plain(root);
            if let Some(error) = no_interval(&message, places, fallback) {
                return error;
            }
            let message = said_shorter(message);
            let (code, hint) = kind(&message);
            let error = Error::new(code, message).at(diagnosed.unwrap_or(fallback));
            hint.into_iter().fold(error, |error, hint| error.with_hint(hint))
        }
    }
}

/// The error of a text that is no interval, at the text; `None` for another message.
fn no_interval(message: &str, places: &Places, fallback: usize) -> Option<Error> {
    let (_, told) = message.split_once("nvalid input syntax for type interval: \"")?;
    // A note on what is wrong may follow in words of its own.
    let (value, _) = told.split_once('"')?;
    let text = places.text();
    let quoted = format!("'{value}'");
    let follows = |at: &usize| {
        let before = text.get(..*at).unwrap_or_default().trim_end().as_bytes();
        before.len().checked_sub(8).and_then(|from| before.get(from..)).is_some_and(|word| word.eq_ignore_ascii_case(b"interval"))
    };
    let at = text.match_indices(&quoted).map(|(at, _)| at).find(follows);
    let position = at.and_then(|at| text.get(..at)).map_or(fallback, |before| before.chars().count() + 1);
    let error = Error::new("22007", format!("'{value}' is not an interval"));
    Some(error.with_hint("write a number and a unit, such as INTERVAL '5 seconds'").at(position))
}

/// A message in SQL's words: the column that is not grouped by, and types by their SQL names.
fn said_shorter(message: String) -> String {
    if let (true, Some(column)) = (message.contains("GROUP BY"), message.split("column \"").nth(1).and_then(|rest| rest.split('"').next()))
    {
        return format!("column '{column}' must appear in the GROUP BY clause or be used in an aggregate");
    }
    let types = [
        ("Boolean", "BOOLEAN"),
        ("Utf8View", "TEXT"),
        ("Utf8", "TEXT"),
        ("Int64", "BIGINT"),
        ("Int32", "INTEGER"),
        ("Int16", "SMALLINT"),
        ("Float64", "DOUBLE PRECISION"),
        ("Float32", "REAL"),
        ("Date32", "DATE"),
        ("Timestamp(ms)", "TIMESTAMP(3)"),
        ("Timestamp(µs)", "TIMESTAMP(6)"),
        ("Timestamp(ns)", "TIMESTAMP(9)"),
        ("Timestamp(s)", "TIMESTAMP(0)"),
    ];
    types.iter().fold(message, |message, (arrow, sql)| message.replace(arrow, sql))
}

/// What a planner's message is about.
fn kind(message: &str) -> (&'static str, Option<&'static str>) {
    if message.contains("must appear in the GROUP BY clause") {
        (sqlstate::GROUPING_ERROR, Some("add the column to GROUP BY, or aggregate it"))
    } else if message.contains("unique expression names") {
        ("42701", Some("give one of them another name with AS"))
    } else if message.contains("No function matches") || message.contains("No suitable") {
        (sqlstate::UNDEFINED_FUNCTION, Some("cast the arguments to types that the function takes"))
    } else {
        (sqlstate::DATATYPE_MISMATCH, None)
    }
}

/// A message without DataFusion's prefixes and without backtraces.
pub(crate) fn plain(error: &DataFusionError) -> String {
    let text = error.find_root().strip_backtrace();
    let text = ["Error during planning: ", "Execution error: ", "Schema error: ", "Arrow error: ", "type_coercion", "Internal error: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    lowered(text.split("\nThis issue was likely caused by a bug").next().unwrap_or(text))
}

/// A message as ours begin: in lower case, unless it begins with a name in capitals.
fn lowered(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            format!("{}{}", first.to_lowercase(), text.get(first.len_utf8()..).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

fn location(span: &Span) -> Location {
    Location { line: span.start.line, column: span.start.column }
}

/// A fault as an error.
pub(crate) fn of_fault(fault: &Fault, position: usize) -> Error {
    let code = match fault.code.as_str() {
        "not_available" => sqlstate::FEATURE_NOT_SUPPORTED,
        "unknown_column" => sqlstate::UNDEFINED_COLUMN,
        "internal" | "unbound" | "unplannable" => sqlstate::INTERNAL_ERROR,
        _ => sqlstate::INVALID_PARAMETER_VALUE,
    };
    let error = Error::new(code, fault.message.clone()).at(position);
    if fault.hint.is_empty() { error } else { error.with_hint(fault.hint.clone()) }
}
