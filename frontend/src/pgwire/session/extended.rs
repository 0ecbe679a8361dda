//! The extended protocol: Parse, Bind, Describe, Execute, Close. An error is answered once, then
//! all is skipped until Sync.

use super::super::message;
use super::super::rows::{Running, Sent, Stop};
use super::super::{Answers, local, parameter, value};
use super::{Session, interruptible};
use crate::error::{Error, sqlstate};
use crate::query::types;
use crate::sql::{Described, Parameter};
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use pgwire::messages::data::{FORMAT_CODE_BINARY, FORMAT_CODE_TEXT, NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use std::sync::Arc;

/// Prepared statements of a session.
const STATEMENTS_MAX: usize = 2_000;
/// Portals of a session.
const PORTALS_MAX: usize = 200;
/// Parameters of a statement: a message counts them in 16 bits.
const PARAMETERS_MAX: usize = u16::MAX as usize;

/// A prepared statement.
pub(super) struct Prepared<S> {
    /// `None` for an empty text.
    statement: Option<S>,
    text: Arc<str>,
    described: Described,
    /// The types as the client is told.
    oids: Vec<u32>,
}

/// A prepared statement with its parameters.
pub(super) struct Portal<S> {
    prepared: Arc<Prepared<S>>,
    parameters: Vec<Parameter>,
    formats: Vec<i16>,
    progress: Progress,
}

enum Progress {
    Ready,
    Suspended(Running),
    Done,
}

/// The error for a prepared statement that is not there.
pub(super) fn no_statement(name: &str) -> Error {
    Error::new("26000", format!("prepared statement '{name}' does not exist"))
}

fn no_portal(name: &str) -> Error {
    Error::new("34000", format!("portal '{name}' does not exist"))
}

/// The error for a message about neither a statement nor a portal.
fn no_target(target: u8) -> Error {
    message::violation(&format!("'{}' is neither a statement nor a portal", char::from(target).escape_default()))
}

fn fail<T>(error: Error) -> Result<T, Stop> {
    Err(Stop::Failed(error))
}

impl<E: Answers> Session<E> {
    pub(super) async fn parse(&mut self, parse: Parse) -> Result<(), Stop> {
        let (name, query, oids) = (parse.name.unwrap_or_default(), parse.query, parse.type_oids);
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            return fail(Error::new("42P05", format!("prepared statement '{name}' already exists")));
        } else if self.statements.len() >= STATEMENTS_MAX {
            return fail(
                Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a session may have {STATEMENTS_MAX} prepared statements"))
                    .with_hint("DEALLOCATE some"),
            );
        }
        let mut statements = self.engine.parse(&query)?;
        let statement = statements.pop();
        if !statements.is_empty() {
            return fail(
                Error::new(sqlstate::SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
                    .with_hint("send one statement at a time"),
            );
        }
        let hints: Vec<Option<DataType>> = oids.iter().map(|oid| types::to_arrow(*oid)).collect();
        let described = match &statement {
            None => Described { parameters: Vec::new(), columns: None },
            Some(statement) => self.described(statement, &hints).await?,
        };
        let told = |(i, ty): (usize, &DataType)| match oids.get(i) {
            Some(oid) if types::to_arrow(*oid).is_some() => *oid,
            _ => types::of(ty).oid,
        };
        let oids = described.parameters.iter().enumerate().map(told).collect();
        self.statements.insert(name, Arc::new(Prepared { statement, text: query.into(), described, oids }));
        Ok(self.writer.put(&ParseComplete::new())?)
    }

    async fn described(&mut self, statement: &E::Statement, hints: &[Option<DataType>]) -> Result<Described, Stop> {
        let postgres = E::postgres(statement);
        self.check_transaction(postgres)?;
        if let Some(columns) = postgres.and_then(local::describe) {
            return Ok(Described { parameters: Vec::new(), columns });
        }
        let engine = &self.engine;
        let work = async { engine.describe(statement, hints).await.map_err(Stop::Failed) };
        let described = interruptible(&mut self.reader, &mut self.control, work).await?;
        if described.parameters.len() > PARAMETERS_MAX {
            return fail(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a statement may have {PARAMETERS_MAX} parameters")));
        }
        if let Some(columns) = &described.columns {
            value::check_width(columns)?;
        }
        Ok(described)
    }

    pub(super) fn bind(&mut self, bind: Bind) -> Result<(), Stop> {
        let (portal, statement) = (bind.portal_name.unwrap_or_default(), bind.statement_name.unwrap_or_default());
        let (formats, values, result_formats) = (bind.parameter_format_codes, bind.parameters, bind.result_column_format_codes);
        let Some(prepared) = self.statements.get(&statement).cloned() else { return fail(no_statement(&statement)) };
        if portal.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&portal) {
            return fail(Error::new("42P03", format!("portal '{portal}' already exists")));
        } else if self.portals.len() >= PORTALS_MAX {
            return fail(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a session may have {PORTALS_MAX} portals")));
        }
        let wanted = &prepared.described.parameters;
        if values.len() != wanted.len() {
            let text = format!("bind supplies {} parameters, but prepared statement '{statement}' requires {}", values.len(), wanted.len());
            return fail(message::violation(&text));
        }
        let columns = prepared.described.columns.as_ref().map_or(0, |columns| columns.fields().len());
        check_formats(&formats, values.len())?;
        check_formats(&result_formats, columns)?;
        let one = |(i, (bytes, ty)): (usize, (&Option<Bytes>, &DataType))| {
            let oid = prepared.oids.get(i).copied().unwrap_or(0);
            parameter::decode(i + 1, oid, ty, value::is_binary(&formats, i), bytes.as_deref())
        };
        let parameters = values.iter().zip(wanted).enumerate().map(one).collect::<Result<Vec<Parameter>, Error>>()?;
        self.portals.insert(portal, Portal { prepared, parameters, formats: result_formats, progress: Progress::Ready });
        Ok(self.writer.put(&BindComplete::new())?)
    }

    pub(super) fn describe(&mut self, describe: Describe) -> Result<(), Stop> {
        let name = describe.name.unwrap_or_default();
        let (columns, formats): (Option<SchemaRef>, &[i16]) = match describe.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let Some(prepared) = self.statements.get(&name) else { return fail(no_statement(&name)) };
                self.writer.put(&ParameterDescription::new(prepared.oids.clone()))?;
                (prepared.described.columns.clone(), &[])
            }
            TARGET_TYPE_BYTE_PORTAL => {
                let Some(portal) = self.portals.get(&name) else { return fail(no_portal(&name)) };
                (portal.prepared.described.columns.clone(), &portal.formats)
            }
            other => return fail(no_target(other)),
        };
        match columns {
            Some(columns) => self.writer.put(&value::description(&columns, formats))?,
            None => self.writer.put(&NoData::new())?,
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, execute: Execute) -> Result<(), Stop> {
        let name = execute.name.unwrap_or_default();
        let Some(mut portal) = self.portals.remove(&name) else { return fail(no_portal(&name)) };
        let limit = u64::try_from(execute.max_rows).unwrap_or(0);
        let running = match std::mem::replace(&mut portal.progress, Progress::Done) {
            Progress::Suspended(running) => Some(running),
            Progress::Done if portal.prepared.described.columns.is_some() => {
                self.complete("SELECT 0")?;
                None
            }
            Progress::Done => return fail(Error::new(sqlstate::OBJECT_NOT_IN_STATE, format!("portal '{name}' has run already"))),
            Progress::Ready => match &portal.prepared.statement {
                None => {
                    self.writer.put(&EmptyQueryResponse::new())?;
                    None
                }
                Some(statement) => self.start(statement, &portal.parameters, portal.formats.clone(), &portal.prepared.text).await?,
            },
        };
        if let Some(mut running) = running
            && self.send(&mut running, limit).await? == Sent::Some
        {
            portal.progress = Progress::Suspended(running);
        }
        // COMMIT, ROLLBACK and DISCARD end all portals but their own, which has run.
        if self.transaction == TransactionStatus::Idle || self.portals.len() < PORTALS_MAX {
            self.portals.insert(name, portal);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, close: Close) -> Result<(), Stop> {
        let name = close.name.unwrap_or_default();
        match close.target_type {
            TARGET_TYPE_BYTE_STATEMENT => drop(self.statements.remove(&name)),
            TARGET_TYPE_BYTE_PORTAL => drop(self.portals.remove(&name)),
            other => return fail(no_target(other)),
        }
        Ok(self.writer.put(&CloseComplete::new())?)
    }
}

/// Format codes: none, one for all, or one each; text is 0, binary 1.
fn check_formats(formats: &[i16], count: usize) -> Result<(), Error> {
    if formats.len() > 1 && formats.len() != count {
        return Err(message::violation(&format!("{} format codes for {count} values", formats.len())));
    }
    match formats.iter().find(|code| !matches!(**code, FORMAT_CODE_TEXT | FORMAT_CODE_BINARY)) {
        Some(code) => Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unsupported format code: {code}"))),
        None => Ok(()),
    }
}
