//! The in-process link of `weir up`: the agent's requests go straight to the hub (same messages as over HTTP),
//! and the doors' reads go through the hub to whichever agent holds the rows.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use weir_agent::link::{Link, LinkError, ReadStream};
use weir_frontend::query::Reads;
use weir_hub::Hub;
use weir_planner::protocol::{AgentRequest, Failure, HubResponse, ReadRequest};

/// An agent's way to a hub in the same process.
pub struct InProcess(pub Hub);

#[async_trait::async_trait]
impl Link for InProcess {
    async fn call(&self, request: AgentRequest) -> Result<HubResponse, LinkError> {
        Ok(self.0.agent_call(request).await)
    }

    async fn answer(&self, session: &str, read: u64, body: Result<ReadStream, Failure>) -> Result<(), LinkError> {
        self.0.read_answer(session, read, body).await.map_err(|e| LinkError { hub: "in process".to_owned(), message: e.to_string() })
    }

    fn embedded(&self) -> bool {
        true
    }
}

/// Reads by way of the hub.
pub struct HubReads(pub Hub);

#[async_trait::async_trait]
impl Reads for HubReads {
    async fn read(&self, request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String> {
        let answer = self.0.read(request).await.map_err(|e| e.to_string())?;
        Ok(answer.map(|chunk| chunk.map_err(|e| e.to_string())).boxed())
    }
}
