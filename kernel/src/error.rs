//! What can go wrong in a chain, and around it on its agent.

use weir_planner::error::Class;
use weir_planner::protocol::Failure;

/// A failure with its class, which says whether trying again can help.
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
    /// As the hub hears of it: the causes joined to the message.
    pub fn to_failure(&self) -> Failure {
        let mut message = self.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Failure { class: self.class, message }
    }
}
