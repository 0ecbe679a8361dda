//! Relays reads: a question goes to the agent that holds the job, its answer comes back as a
//! stream of bytes that the hub passes on unread (ST-2). Nothing here is stored.

use crate::clock::Clock;
use crate::error::Error;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};
use weir_planner::id::AgentId;
use weir_planner::protocol::{Failure, ReadRequest};

/// Reads that may wait for one agent; more are refused.
pub const QUEUE_MAX: usize = 64;
/// An agent that is silent for so long, before or within an answer, has failed to answer.
pub const SILENCE_MS: u64 = 30_000;
/// Pieces in flight to a reader; a slow reader holds the agent back.
const PIECES_MAX: usize = 8;

type Pieces = mpsc::Receiver<Result<Bytes, Error>>;

/// An answer on its way from an agent.
pub type Body = Result<BoxStream<'static, Result<Bytes, String>>, Failure>;

struct Waiter {
    agent: AgentId,
    answer: oneshot::Sender<Result<Pieces, Error>>,
}

#[derive(Default)]
struct Desk {
    last_id: u64,
    queues: HashMap<AgentId, VecDeque<ReadRequest>>,
    bells: HashMap<AgentId, Arc<Notify>>,
    waiters: HashMap<u64, Waiter>,
}

/// Reads under way.
#[derive(Default)]
pub struct Relay {
    desk: Mutex<Desk>,
}

/// Takes a read off the desk when its reader leaves before it is answered.
struct Ticket {
    relay: Arc<Relay>,
    agent: AgentId,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut desk = self.relay.desk.lock();
        desk.waiters.remove(&self.id);
        if let Some(queue) = desk.queues.get_mut(&self.agent) {
            queue.retain(|request| request.id != self.id);
        }
    }
}

impl Relay {
    /// Asks `agent` and waits for the first bytes.
    ///
    /// Cancel: safe to drop; the agent's answer is then dropped too.
    pub async fn ask(
        self: &Arc<Self>,
        agent: AgentId,
        mut request: ReadRequest,
        clock: Arc<dyn Clock>,
    ) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        let (answer, answered) = oneshot::channel();
        let ticket = self.post(&agent, &mut request, answer)?;
        let silent = {
            let (agent, job) = (agent.clone(), request.job.clone());
            move || Error::Unavailable(format!("agent '{agent}' did not answer a read of job '{job}' within {} s", SILENCE_MS / 1_000))
        };
        let deadline = clock.now().steady_ms.saturating_add(SILENCE_MS);
        let first = async {
            let mut pieces = answered.await.map_err(|_| Error::Unavailable("the hub is shutting down".to_owned()))??;
            let first = pieces.recv().await;
            Ok::<_, Error>((first, pieces))
        };
        let (first, pieces) = tokio::select! {
            got = first => got?,
            () = clock.until(deadline) => return Err(silent()),
        };
        drop(ticket);
        let first = match first {
            None => return Ok(stream::empty().boxed()),
            Some(Err(error)) => return Err(error),
            Some(Ok(bytes)) => bytes,
        };
        let rest = stream::unfold(Some((pieces, clock, silent)), |state| async move {
            let (mut pieces, clock, silent) = state?;
            let deadline = clock.now().steady_ms.saturating_add(SILENCE_MS);
            tokio::select! {
                piece = pieces.recv() => match piece? {
                    Ok(bytes) => Some((Ok(bytes), Some((pieces, clock, silent)))),
                    Err(error) => Some((Err(error), None)),
                },
                () = clock.until(deadline) => Some((Err(silent()), None)),
            }
        });
        Ok(stream::once(async move { Ok(first) }).chain(rest).boxed())
    }

    fn post(
        self: &Arc<Self>,
        agent: &AgentId,
        request: &mut ReadRequest,
        answer: oneshot::Sender<Result<Pieces, Error>>,
    ) -> Result<Ticket, Error> {
        let mut desk = self.desk.lock();
        desk.last_id += 1;
        request.id = desk.last_id;
        let queue = desk.queues.entry(agent.clone()).or_default();
        if queue.len() >= QUEUE_MAX {
            return Err(Error::Unavailable(format!("{QUEUE_MAX} reads already wait for agent '{agent}': try again later")));
        }
        queue.push_back(request.clone());
        desk.waiters.insert(request.id, Waiter { agent: agent.clone(), answer });
        desk.bells.entry(agent.clone()).or_default().notify_waiters();
        Ok(Ticket { relay: self.clone(), agent: agent.clone(), id: request.id })
    }

    /// Rings when a read is posted for `agent`.
    pub fn bell(&self, agent: &AgentId) -> Arc<Notify> {
        self.desk.lock().bells.entry(agent.clone()).or_default().clone()
    }

    /// The oldest read that waits for `agent`.
    pub fn next(&self, agent: &AgentId) -> Option<ReadRequest> {
        self.desk.lock().queues.get_mut(agent)?.pop_front()
    }

    /// Passes an answer on until it ends or its reader leaves. An answer that nobody waits for is dropped.
    ///
    /// Cancel: safe to drop; the reader sees the answer break off.
    pub async fn answer(&self, agent: &AgentId, id: u64, body: Body) {
        let waiter = {
            let mut desk = self.desk.lock();
            match desk.waiters.get(&id) {
                Some(waiter) if waiter.agent == *agent => desk.waiters.remove(&id),
                Some(_) | None => None,
            }
        };
        let Some(waiter) = waiter else { return };
        let mut body = match body {
            Ok(body) => body,
            Err(failure) => {
                let _ = waiter.answer.send(Err(Error::Refused(failure)));
                return;
            }
        };
        let (pieces, reader) = mpsc::channel(PIECES_MAX);
        if waiter.answer.send(Ok(reader)).is_err() {
            return;
        }
        let mut unfinished = Unfinished { pieces: Some(pieces), agent: agent.clone() };
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|e| Error::Unavailable(format!("the answer of agent '{agent}' broke off: {e}")));
            let failed = piece.is_err();
            let Some(pieces) = &unfinished.pieces else { return };
            if pieces.send(piece).await.is_err() || failed {
                break;
            }
        }
        unfinished.pieces = None;
    }
}

/// Tells the reader when an answer is dropped half way: an end without an error would look complete.
struct Unfinished {
    pieces: Option<mpsc::Sender<Result<Bytes, Error>>>,
    agent: AgentId,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(pieces) = self.pieces.take() {
            let broken = Error::Unavailable(format!("the answer of agent '{}' broke off", self.agent));
            // A full channel loses this, but then the IPC stream lacks its end mark.
            let _ = pieces.try_send(Err(broken));
        }
    }
}

#[cfg(test)]
mod tests;
