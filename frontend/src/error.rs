//! One error type of all doors: a Postgres error in full (SQL-10); REST maps it to a problem.

/// What a statement answers instead of success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Five characters.
    pub sqlstate: &'static str,
    /// Lower case, no full stop.
    pub message: String,
    /// More, or nothing.
    pub detail: Option<String>,
    /// The way out, or nothing.
    pub hint: Option<String>,
    /// Character offset in the whole text, from 1: where psql draws its caret.
    pub position: Option<usize>,
}

/// SQLSTATEs that Weir uses.
pub mod sqlstate {
    #![allow(missing_docs, reason = "Postgres names")]
    pub const SYNTAX_ERROR: &str = "42601";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const DUPLICATE_OBJECT: &str = "42710";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const GROUPING_ERROR: &str = "42803";
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const DEPENDENT_OBJECTS: &str = "2BP01";
    pub const QUERY_CANCELED: &str = "57014";
    pub const OBJECT_NOT_IN_STATE: &str = "55000";
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    pub const DISK_FULL: &str = "53100";
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub const DATA_CORRUPTED: &str = "XX001";
    pub const INTERNAL_ERROR: &str = "XX000";
}

impl Error {
    /// An error with a SQLSTATE and a message.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Error { sqlstate, message: message.into(), detail: None, hint: None, position: None }
    }

    /// The same error with a way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same error with a place: character offset from 1.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }
}
