//! How an agent reaches its hub: one call with a closed set of messages, over HTTP or in process.

pub mod http;

use bytes::Bytes;
use futures::stream::BoxStream;
use weir_planner::protocol::{AgentRequest, Failure, HubResponse};

/// An Arrow IPC stream in chunks; `Err` says why it broke off.
pub type ReadStream = BoxStream<'static, Result<Bytes, String>>;

/// The way to the hub. HTTP in `weir agent`; a direct call in `weir up`.
#[async_trait::async_trait]
pub trait Link: Send + Sync + 'static {
    /// One request. Errors are transient: the hub is away; try again.
    ///
    /// Cancel: safe to drop; the hub may or may not have acted.
    async fn call(&self, request: AgentRequest) -> Result<HubResponse, LinkError>;

    /// Answers a read with an Arrow IPC stream, or with the reason why there is none. An `Err`
    /// chunk ends the stream and must reach the reader as an error, never as a shorter answer.
    async fn answer(&self, session: &str, read: u64, body: Result<ReadStream, Failure>) -> Result<(), LinkError>;

    /// The hub lives in this process: it cannot be away without the agent, so the lease never
    /// ends (AGT-4).
    fn embedded(&self) -> bool {
        false
    }
}

/// The hub cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("hub {hub}: {message}")]
pub struct LinkError {
    /// Where it should be.
    pub hub: String,
    /// Why not.
    pub message: String,
}
