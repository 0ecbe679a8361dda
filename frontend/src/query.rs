//! DataFusion over system tables, `pg_catalog`, and the agents' reads.

use bytes::Bytes;
use futures::stream::BoxStream;
use weir_planner::protocol::ReadRequest;

/// How stored rows are read: in process, or relayed by the hub. The answer is an Arrow IPC stream.
#[async_trait::async_trait]
pub trait Reads: Send + Sync + 'static {
    /// Starts a read; `request.id` is chosen by the receiver.
    ///
    /// Errors: text for people, such as that no agent holds the job now.
    async fn read(&self, request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String>;
}
