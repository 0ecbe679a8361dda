//! Life of a statement: text to statements to outcomes.
//!
//! `parse` makes statements (sqlparser's, and ours for sources, sinks and jobs) that keep their
//! place in the text; `Engine::run` does what one asks for. A SELECT over tables goes to
//! [`crate::query`]; `CREATE JOB` is lowered to a JobSpec and handed to the hub.

use crate::error::Error;
use crate::query::{Queries, Reads, SessionFacts};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::BoxFuture;
use std::sync::Arc;
use weir_hub::Hub;
use weir_planner::connector::ConnectorCard;

/// What every session shares. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    /// The hub.
    pub hub: Hub,
    /// How stored rows are read.
    pub reads: Arc<dyn Reads>,
    /// Runs SELECT, VALUES and EXPLAIN of these.
    pub queries: Queries,
}

/// What a statement gave.
pub enum Outcome {
    /// A command tag such as `CREATE JOB`, and notices to show.
    Done {
        /// Tag.
        tag: String,
        /// NOTICE messages.
        notices: Vec<String>,
    },
    /// Rows. The tag is `SELECT n`, or `SHOW`/`EXPLAIN` when set.
    Rows {
        /// Columns.
        schema: SchemaRef,
        /// Batches.
        stream: SendableRecordBatchStream,
        /// Tag word when it is not `SELECT n`.
        tag: Option<&'static str>,
    },
}

/// A parameter value of a prepared statement, decoded by the door from its declared or inferred type.
pub type Parameter = datafusion::scalar::ScalarValue;

/// What a statement takes and gives, for the extended protocol.
#[derive(Clone, Debug)]
pub struct Described {
    /// Type of each parameter `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// Columns of the answer; `None` for a statement that gives no rows.
    pub columns: Option<SchemaRef>,
}

/// Parses a text of one or more statements separated by `;`.
///
/// Errors: `42601` with the position.
pub fn parse(text: &str) -> Result<Vec<Statement>, Error> {
    let _ = text;
    Err(Error::new(crate::error::sqlstate::INTERNAL_ERROR, "not built yet"))
}

/// One parsed statement with the text that it came from, so that errors can point into it.
#[derive(Clone, Debug)]
pub struct Statement {
    text: Arc<str>,
}

impl Statement {
    /// The whole text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statement when it is one of plain Postgres, such as SELECT, SET or BEGIN; `None` for Weir's own.
    pub fn postgres(&self) -> Option<&sqlparser::ast::Statement> {
        None
    }
}

impl Engine {
    /// Makes the functions and limits that all queries share; `connectors` is what `weir.connectors` lists.
    ///
    /// Errors: `XX000` when the query runtime cannot be built.
    pub fn new(hub: Hub, reads: Arc<dyn Reads>, connectors: Vec<ConnectorCard>) -> Result<Engine, Error> {
        let queries = Queries::new(hub.clone(), Arc::clone(&reads), connectors)?;
        Ok(Engine { hub, reads, queries })
    }

    /// The same engine for one session, whose user and database queries may ask for.
    #[must_use]
    pub fn for_session(&self, facts: SessionFacts) -> Engine {
        Engine { queries: self.queries.for_session(facts), ..self.clone() }
    }

    /// Does what a statement asks for.
    ///
    /// Cancel: safe to drop; a verb that the hub has taken is not undone.
    pub fn run<'a>(&'a self, statement: &'a Statement, parameters: &'a [Parameter]) -> BoxFuture<'a, Result<Outcome, Error>> {
        let _ = (statement, parameters);
        Box::pin(async { Err(Error::new(crate::error::sqlstate::INTERNAL_ERROR, "not built yet")) })
    }

    /// What a statement takes and gives, without running it. `hints` are the types that the
    /// client gave for `$1`, `$2`, …, which go over inferred ones.
    pub fn describe<'a>(&'a self, statement: &'a Statement, hints: &'a [Option<DataType>]) -> BoxFuture<'a, Result<Described, Error>> {
        let _ = (statement, hints);
        Box::pin(async { Err(Error::new(crate::error::sqlstate::INTERNAL_ERROR, "not built yet")) })
    }
}
