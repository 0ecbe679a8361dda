//! What a verb of the hub can answer instead of success.

use weir_planner::error::{Class, Faults};
use weir_planner::protocol::Failure;

/// Errors of the hub. Doors match it without a wildcard.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job is wrong.
    #[error("{0}")]
    Invalid(#[from] Faults),
    /// No such object.
    #[error("{kind} '{name}' does not exist")]
    NotFound {
        /// `job`, `source`, `sink`, …
        kind: &'static str,
        /// Name as asked for.
        name: String,
    },
    /// The name is taken (one namespace, SQL-15).
    #[error("{kind} '{name}' already exists")]
    Exists {
        /// Kind of the object that has the name.
        kind: &'static str,
        /// Name.
        name: String,
    },
    /// Same version, other content; or a generation that has moved on.
    #[error("{0}")]
    Conflict(String),
    /// Used by others (2BP01).
    #[error("{kind} '{name}' is used by {}", .users.join(", "))]
    InUse {
        /// Kind.
        kind: &'static str,
        /// Name.
        name: String,
        /// Jobs that use it.
        users: Vec<String>,
    },
    /// The job failed while it was waited for.
    #[error("job '{job}' failed: {reason}")]
    JobFailed {
        /// Job.
        job: String,
        /// Its last error.
        reason: String,
    },
    /// A wait ran out.
    #[error("{0}")]
    Timeout(String),
    /// No agent can answer now.
    #[error("{0}")]
    Unavailable(String),
    /// An agent said why it cannot answer.
    #[error("{}", .0.message)]
    Refused(Failure),
    /// The store failed.
    #[error("hub store: {message}")]
    Store {
        /// What failed.
        message: String,
        /// `Corrupt`, `Retry` (disk full) or `Bug`.
        class: Class,
    },
}
