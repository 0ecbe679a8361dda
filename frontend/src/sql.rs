//! Life of a statement: text to statements to outcomes.
//!
//! `parse` makes statements (sqlparser's, and ours for sources, sinks and jobs) that keep their
//! place in the text; `Engine::run` does what one asks for. A SELECT over tables goes to
//! [`crate::query`]; `CREATE JOB` is lowered to a JobSpec and handed to the hub.

use crate::error::Error;
use crate::query::Reads;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use std::sync::Arc;
use weir_hub::Hub;

/// What every session shares.
#[derive(Clone)]
pub struct Engine {
    /// The hub.
    pub hub: Hub,
    /// How stored rows are read.
    pub reads: Arc<dyn Reads>,
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
}
