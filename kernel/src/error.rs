//! What can go wrong in a chain.

use weir_planner::error::Class;

/// A failure of one task. The class says whether trying again can help.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// `User`: the data or the job is at fault, the job fails at once. `Retry`: an outside system
    /// is away. `Corrupt`: stored state does not verify. `Bug`: the rest.
    pub class: Class,
    /// Lower case; names operator and, where it can, column or row.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Error { class, message: message.into(), source: None }
    }

    /// An error with its cause.
    pub fn because(class: Class, message: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error { class, message: message.into(), source: Some(Box::new(source)) }
    }
}
