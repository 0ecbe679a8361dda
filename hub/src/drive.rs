//! The one loop that feeds requests and time to the pure files, stores what they changed, and
//! publishes the result.
//!
//! Requests that wait at the same moment share one transaction. An answer is given only after the
//! commit, so what was answered survives a crash; after a failed commit the changes are dropped
//! and every request of the batch is told.

use crate::clock::{Clock, Now};
use crate::error::Error;
use crate::store::Store;
use crate::view::View;
use crate::world::{Changes, World, Write};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};
use weir_planner::error::Class;
use weir_planner::id::AgentId;

/// Requests that may wait for the loop; more wait for room.
pub const QUEUE_MAX: usize = 1_024;
/// Requests that share one transaction.
const BATCH_MAX: usize = 64;
/// After a failed commit, what is due by time waits so long before it is tried again.
const STORE_RETRY_MS: u64 = 1_000;

/// Told how the commit went; sends the answer.
pub type Finish = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// Changes the world; the answer follows the commit.
pub type Act = Box<dyn FnOnce(&mut World, Now) -> Finish + Send>;

/// One request to the loop.
pub struct Message {
    /// What to do.
    pub act: Act,
    /// Session whose lease this message renews even when nothing can be stored: a full disk at
    /// the hub must not stop jobs that run well.
    pub renews: Option<String>,
}

/// Wakes the long polls of an agent.
#[derive(Default)]
pub struct Wakers {
    by_agent: Mutex<HashMap<AgentId, Arc<Notify>>>,
}

impl Wakers {
    /// The bell of one agent.
    pub fn of(&self, agent: &AgentId) -> Arc<Notify> {
        self.by_agent.lock().entry(agent.clone()).or_default().clone()
    }

    fn wake(&self, agent: &AgentId) {
        if let Some(bell) = self.by_agent.lock().get(agent) {
            bell.notify_waiters();
        }
    }
}

/// The loop's belongings.
pub struct Driver {
    /// The truth.
    pub world: World,
    /// Where it is kept.
    pub store: Arc<Store>,
    /// Requests.
    pub requests: mpsc::Receiver<Message>,
    /// What everybody sees.
    pub view: watch::Sender<Arc<View>>,
    /// Long polls.
    pub wakers: Arc<Wakers>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Turns true when the hub closes.
    pub closing: watch::Receiver<bool>,
}

impl Driver {
    /// Runs until the hub closes or nobody holds it any more.
    pub async fn run(mut self) {
        let mut not_before_ms = 0;
        self.turn(Vec::new(), &mut not_before_ms).await;
        loop {
            let now = self.clock.now();
            let due = self.world.next_deadline(now).map(|at| at.max(not_before_ms));
            let clock = self.clock.clone();
            let alarm = async move {
                match due {
                    Some(at) => clock.until(at).await,
                    None => std::future::pending().await,
                }
            };
            let first = tokio::select! {
                biased;
                _ = self.closing.wait_for(|closing| *closing) => break,
                request = self.requests.recv() => match request {
                    Some(request) => Some(request),
                    None => break,
                },
                () = alarm => None,
            };
            let mut batch: Vec<Message> = first.into_iter().collect();
            while !batch.is_empty() && batch.len() < BATCH_MAX {
                match self.requests.try_recv() {
                    Ok(request) => batch.push(request),
                    Err(_) => break,
                }
            }
            self.turn(batch, &mut not_before_ms).await;
        }
        // Whoever still waits for an answer sees its request dropped, and says that the hub closes.
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        let store = self.store.clone();
        if let Err(e) = tokio::task::spawn_blocking(move || store.close()).await {
            tracing::error!(error = %e, "closing the hub's store failed");
        }
    }

    async fn turn(&mut self, batch: Vec<Message>, not_before_ms: &mut u64) {
        let now = self.clock.now();
        let mut draft = self.world.clone();
        let renews: Vec<String> = batch.iter().filter_map(|message| message.renews.clone()).collect();
        let act = |message: Message| {
            let before = draft.changes.stored();
            let finish = (message.act)(&mut draft, now);
            let quiet = message.renews.is_some() && draft.changes.stored() == before;
            (finish, quiet)
        };
        let finishes: Vec<(Finish, bool)> = batch.into_iter().map(act).collect();
        draft.settle(now);
        let (writes, changes) = draft.take_changes();
        match self.commit(writes).await {
            Ok(()) => {
                self.world = draft;
                self.publish(&changes, now);
                finishes.into_iter().for_each(|(finish, _)| finish(Ok(())));
            }
            Err((message, class)) => {
                tracing::error!(error = %message, "the hub's store failed; the changes are dropped");
                *not_before_ms = now.steady_ms.saturating_add(STORE_RETRY_MS);
                for agent in renews.iter().filter_map(|session| self.world.fleet.speaker(session).ok()).collect::<Vec<_>>() {
                    self.world.fleet.renew(&agent, now);
                }
                for (finish, quiet) in finishes {
                    // A report without news has nothing to lose: the next one says the same again.
                    let stored = if quiet { Ok(()) } else { Err(Error::Store { message: message.clone(), class }) };
                    finish(stored);
                }
            }
        }
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<(), (String, Class)> {
        if writes.is_empty() {
            return Ok(());
        }
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || store.commit(&writes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Error::Store { message, class })) => Err((message, class)),
            Ok(Err(other)) => Err((other.to_string(), Class::Bug)),
            Err(panicked) => Err((format!("a transaction broke off: {panicked}"), Class::Bug)),
        }
    }

    fn publish(&self, changes: &Changes, now: Now) {
        // Sessions are part of the picture: a new one has touched its agent.
        let touched = !changes.seen_jobs.is_empty() || !changes.entries.is_empty() || !changes.seen_agents.is_empty();
        if touched || !changes.commands.is_empty() {
            let next = self.view.borrow().after(&self.world, changes);
            self.view.send_replace(Arc::new(next));
        }
        let mut awake = self.world.outbox.deliverable(now);
        // A poll of a session that has just been replaced shall end.
        awake.extend(changes.arrived.iter().cloned());
        for agent in &awake {
            self.wakers.wake(agent);
        }
    }
}
