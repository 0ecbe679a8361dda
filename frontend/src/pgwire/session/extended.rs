//! The extended protocol: Parse, Bind, Describe, Execute, Close. An error is answered once, then
//! all is skipped until Sync.

use super::super::message::{self, Bare, Target, Transaction};
use super::super::rows::{Running, Sent, Stop};
use super::super::{Answers, local, parameter, value};
use super::{Session, interruptible};
use crate::error::{Error, sqlstate};
use crate::query::types;
use crate::sql::{Described, Parameter};
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use std::sync::Arc;

/// Prepared statements of a session.
const STATEMENTS_MAX: usize = 2_000;
/// Portals of a session.
const PORTALS_MAX: usize = 200;

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

fn fail<T>(error: Error) -> Result<T, Stop> {
    Err(Stop::Failed(error))
}

impl<E: Answers> Session<E> {
    pub(super) async fn parse(&mut self, name: String, query: String, oids: Vec<u32>) -> Result<(), Stop> {
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            return fail(Error::new("42P05", format!("prepared statement '{name}' already exists")));
        } else if self.statements.len() >= STATEMENTS_MAX {
            return fail(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a session may have {STATEMENTS_MAX} prepared statements")).with_hint("DEALLOCATE some"));
        }
        let mut statements = self.engine.parse(&query).map_err(Stop::Failed)?;
        let statement = statements.pop();
        if !statements.is_empty() {
            return fail(Error::new(sqlstate::SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement").with_hint("send one statement at a time"));
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
        message::bare(&mut self.writer.out, Bare::ParseComplete);
        Ok(())
    }

    async fn described(&mut self, statement: &E::Statement, hints: &[Option<DataType>]) -> Result<Described, Stop> {
        let postgres = E::postgres(statement);
        self.check_transaction(postgres)?;
        if let Some(columns) = postgres.and_then(local::describe) {
            return Ok(Described { parameters: Vec::new(), columns });
        }
        let engine = &self.engine;
        let work = async { engine.describe(statement, hints).await.map_err(Stop::Failed) };
        interruptible(&mut self.reader, &mut self.control, work).await
    }

    pub(super) fn bind(
        &mut self,
        portal: String,
        statement: &str,
        formats: &[i16],
        values: &[Option<Bytes>],
        result_formats: Vec<i16>,
    ) -> Result<(), Stop> {
        let Some(prepared) = self.statements.get(statement).cloned() else { return fail(no_statement(statement)) };
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
        check_formats(formats, values.len()).and_then(|()| check_formats(&result_formats, columns)).map_err(Stop::Failed)?;
        let one = |(i, (bytes, ty)): (usize, (&Option<Bytes>, &DataType))| {
            let oid = prepared.oids.get(i).copied().unwrap_or(0);
            parameter::decode(i + 1, oid, ty, value::is_binary(formats, i), bytes.as_deref())
        };
        let parameters: Result<Vec<Parameter>, Error> = values.iter().zip(wanted).enumerate().map(one).collect();
        let parameters = parameters.map_err(Stop::Failed)?;
        self.portals.insert(portal, Portal { prepared, parameters, formats: result_formats, progress: Progress::Ready });
        message::bare(&mut self.writer.out, Bare::BindComplete);
        Ok(())
    }

    pub(super) fn describe(&mut self, target: Target, name: &str) -> Result<(), Stop> {
        let (columns, formats): (Option<SchemaRef>, &[i16]) = match target {
            Target::Statement => {
                let Some(prepared) = self.statements.get(name) else { return fail(no_statement(name)) };
                message::parameter_description(&mut self.writer.out, &prepared.oids);
                (prepared.described.columns.clone(), &[])
            }
            Target::Portal => {
                let Some(portal) = self.portals.get(name) else { return fail(no_portal(name)) };
                (portal.prepared.described.columns.clone(), &portal.formats)
            }
        };
        match columns {
            Some(columns) => message::row_description(&mut self.writer.out, &value::headers(&columns, formats)),
            None => message::bare(&mut self.writer.out, Bare::NoData),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: String, rows_max: i32) -> Result<(), Stop> {
        let Some(mut portal) = self.portals.remove(&name) else { return fail(no_portal(&name)) };
        let limit = u64::try_from(rows_max).unwrap_or(0);
        let running = match std::mem::replace(&mut portal.progress, Progress::Done) {
            Progress::Suspended(running) => Some(running),
            Progress::Done if portal.prepared.described.columns.is_some() => {
                message::command_complete(&mut self.writer.out, "SELECT 0");
                None
            }
            Progress::Done => return fail(Error::new(sqlstate::OBJECT_NOT_IN_STATE, format!("portal '{name}' has run already"))),
            Progress::Ready => match &portal.prepared.statement {
                None => {
                    message::bare(&mut self.writer.out, Bare::EmptyQuery);
                    None
                }
                Some(statement) => self.start(statement, &portal.parameters, portal.formats.clone(), &portal.prepared.text).await?,
            },
        };
        if let Some(mut running) = running
            && self.send(&mut running, limit).await? == Sent::Some {
                portal.progress = Progress::Suspended(running);
            }
        // COMMIT, ROLLBACK and DISCARD end all portals but their own, which has run.
        if self.transaction == Transaction::None || self.portals.len() < PORTALS_MAX {
            self.portals.insert(name, portal);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, target: Target, name: &str) -> Result<(), Stop> {
        match target {
            Target::Statement => drop(self.statements.remove(name)),
            Target::Portal => drop(self.portals.remove(name)),
        }
        message::bare(&mut self.writer.out, Bare::CloseComplete);
        Ok(())
    }
}

/// Format codes: none, one for all, or one each; text is 0, binary 1.
fn check_formats(formats: &[i16], count: usize) -> Result<(), Error> {
    if formats.len() > 1 && formats.len() != count {
        return Err(message::violation(&format!("{} format codes for {count} values", formats.len())));
    }
    match formats.iter().find(|code| !matches!(code, 0 | 1)) {
        Some(code) => Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unsupported format code: {code}"))),
        None => Ok(()),
    }
}
