//! Statements that a session answers by itself: transactions, settings and what clients send to
//! tidy up. Each statement of Weir is its own transaction, so BEGIN and COMMIT only keep count.

use crate::error::{Error, sqlstate};
use crate::query::{SETTINGS, setting};
use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use pgwire::messages::response::TransactionStatus;
use sqlparser::ast::{CloseCursor, ContextModifier, DiscardObject, Expr, Ident, Set, Statement, Value};
use std::sync::Arc;

/// What a session does for a statement without asking the engine.
#[derive(Debug)]
pub(super) enum Local {
    /// A tag, and how the transaction stands afterwards.
    Done { tag: &'static str, then: TransactionStatus, warning: Option<(&'static str, &'static str)> },
    /// Rows of a setting or of all.
    Rows(RecordBatch),
    /// DISCARD ALL: prepared statements and portals go.
    Discard,
    /// DEALLOCATE: one prepared statement, or all.
    Deallocate(Option<String>),
    /// An application named itself.
    Renamed(String),
    /// COPY (query) TO STDOUT.
    Copy(Box<super::copy::CopyOut>),
}

/// The columns that a local statement answers with; `None` when it is not local, `Some(None)`
/// when it gives no rows.
pub(super) fn describe(statement: &Statement) -> Option<Option<SchemaRef>> {
    match statement {
        Statement::ShowVariable { variable } => Some(Some(show_schema(variable))),
        _ if is_local(statement) => Some(None),
        _ => None,
    }
}

fn is_local(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
            | Statement::Set(_)
            | Statement::Reset(_)
            | Statement::Discard { .. }
            | Statement::Deallocate { .. }
            | Statement::Close { .. }
            | Statement::UNLISTEN { .. }
            | Statement::Copy { .. }
    )
}

/// Whether a statement may run in a transaction that has failed.
pub(super) fn ends_transaction(statement: &Statement) -> bool {
    matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. })
}

/// What a session does for `statement`; `None` when the engine is to be asked.
///
/// Errors: `42704` for a setting that does not exist, `22023` for one that cannot be changed.
pub(super) fn answer(statement: &Statement, now: TransactionStatus) -> Result<Option<Local>, Error> {
    let done = |tag| Ok(Some(Local::Done { tag, then: now, warning: None }));
    let is_open = now != TransactionStatus::Idle;
    match statement {
        Statement::StartTransaction { begin, .. } => Ok(Some(Local::Done {
            tag: if *begin { "BEGIN" } else { "START TRANSACTION" },
            then: if is_open { now } else { TransactionStatus::Transaction },
            warning: is_open.then_some(("25001", "there is already a transaction in progress")),
        })),
        Statement::Commit { .. } => Ok(Some(Local::Done {
            tag: if now == TransactionStatus::Error { "ROLLBACK" } else { "COMMIT" },
            then: TransactionStatus::Idle,
            warning: (!is_open).then_some(("25P01", "there is no transaction in progress")),
        })),
        Statement::Rollback { savepoint: Some(_), .. } => {
            let then = if is_open { TransactionStatus::Transaction } else { TransactionStatus::Idle };
            Ok(Some(Local::Done { tag: "ROLLBACK", then, warning: None }))
        }
        Statement::Rollback { .. } => Ok(Some(Local::Done {
            tag: "ROLLBACK",
            then: TransactionStatus::Idle,
            warning: (!is_open).then_some(("25P01", "there is no transaction in progress")),
        })),
        Statement::Savepoint { .. } => done("SAVEPOINT"),
        Statement::ReleaseSavepoint { .. } => done("RELEASE"),
        Statement::Set(set) => set_setting(set, now).map(Some),
        Statement::Reset(_) => done("RESET"),
        Statement::Discard { object_type: DiscardObject::ALL } => Ok(Some(Local::Discard)),
        Statement::Discard { object_type } => done(match object_type {
            DiscardObject::PLANS => "DISCARD PLANS",
            DiscardObject::SEQUENCES => "DISCARD SEQUENCES",
            DiscardObject::TEMP => "DISCARD TEMP",
            DiscardObject::ALL => "DISCARD ALL",
        }),
        Statement::Deallocate { name, .. } => {
            let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
            Ok(Some(Local::Deallocate((!all).then(|| folded(name)))))
        }
        Statement::Close { cursor: CloseCursor::All } => done("CLOSE CURSOR ALL"),
        Statement::Close { cursor: CloseCursor::Specific { name } } => {
            Err(Error::new("34000", format!("cursor '{}' does not exist", folded(name)))
                .with_hint("cursors by DECLARE are not available yet"))
        }
        Statement::UNLISTEN { .. } => done("UNLISTEN"),
        Statement::ShowVariable { variable } => show(variable).map(|rows| Some(Local::Rows(rows))),
        Statement::Copy { .. } => super::copy::parse(statement).map(|copy| Some(Local::Copy(Box::new(copy)))),
        _ => Ok(None),
    }
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Settings are taken, as drivers send many; those whose value must be another one are refused.
fn set_setting(set: &Set, now: TransactionStatus) -> Result<Local, Error> {
    let done = Local::Done { tag: "SET", then: now, warning: None };
    match set {
        Set::SingleAssignment { variable, values, scope, .. } => {
            let name = variable.to_string().to_lowercase();
            let given = values.iter().map(plain).collect::<Vec<_>>().join(", ");
            check(&name, &given)?;
            if name == "application_name" && !matches!(scope, Some(ContextModifier::Local)) {
                return Ok(Local::Renamed(given));
            }
            Ok(done)
        }
        Set::SetNames { charset_name, .. } => check("client_encoding", &charset_name.to_string()).map(|()| done),
        _ => Ok(done),
    }
}

fn plain(expr: &Expr) -> String {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    }
}

fn check(name: &str, given: &str) -> Result<(), Error> {
    let folded: String = given.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let refused = match name {
        "client_encoding" => !matches!(folded.as_str(), "utf8" | "unicode" | "default"),
        "standard_conforming_strings" => !matches!(folded.as_str(), "on" | "true" | "1" | "yes" | "default"),
        "datestyle" => !(folded.starts_with("iso") || folded == "default"),
        "intervalstyle" => !matches!(folded.as_str(), "postgres" | "default"),
        "bytea_output" => !matches!(folded.as_str(), "hex" | "default"),
        _ => false,
    };
    if refused {
        let only = setting(name).unwrap_or_default();
        return Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("{name} cannot be '{given}'"))
            .with_hint(format!("only '{only}' is available")));
    }
    Ok(())
}

/// Checks the encoding that a client names at the start.
///
/// Errors: `22023` for any but UTF-8.
pub(super) fn check_encoding(given: &str) -> Result<(), Error> {
    check("client_encoding", given)
}

fn show_name(variable: &[Ident]) -> String {
    let words: Vec<String> = variable.iter().map(|ident| ident.value.to_lowercase()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["transaction", "isolation", "level"] => "transaction_isolation".to_owned(),
        ["time", "zone"] => "timezone".to_owned(),
        ["session", "authorization"] => "session_authorization".to_owned(),
        words => words.join("."),
    }
}

fn show_schema(variable: &[Ident]) -> SchemaRef {
    let name = show_name(variable);
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let fields = if name == "all" { vec![text("name"), text("setting"), text("description")] } else { vec![text(&name)] };
    Arc::new(Schema::new(fields))
}

fn show(variable: &[Ident]) -> Result<RecordBatch, Error> {
    let name = show_name(variable);
    let columns: Vec<StringArray> = if name == "all" {
        let pick = |which: fn(&(&'static str, &'static str)) -> &'static str| StringArray::from_iter_values(SETTINGS.iter().map(which));
        let blank = StringArray::from_iter_values(SETTINGS.iter().map(|_| ""));
        vec![pick(|pair| pair.0), pick(|pair| pair.1), blank]
    } else {
        let Some(value) = setting(&name) else {
            return Err(Error::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter '{name}'"))
                .with_hint("SHOW ALL lists the settings; SHOW JOBS, SOURCES, SINKS and AGENTS list Weir's objects"));
        };
        vec![StringArray::from(vec![value])]
    };
    let columns = columns.into_iter().map(|column| Arc::new(column) as arrow::array::ArrayRef).collect();
    RecordBatch::try_new(show_schema(variable), columns).map_err(|error| Error::new(sqlstate::INTERNAL_ERROR, error.to_string()))
}
