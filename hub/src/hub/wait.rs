//! Waiting at the hub: for a state of a job, for an agent to forget, for commands and reads.
//! Every wait has an end, and none of them polls.

use super::{Hub, JobInfo, JobState, Result, WaitFor, closed, no_job};
use crate::checkpoint::{Checkpoint, CheckpointState};
use crate::error::Error;
use crate::view::View;
use std::sync::Arc;
use std::time::Duration;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, CheckpointId, JobId};
use weir_planner::protocol::{HubResponse, NextCommands, NextRead, Refusal};

/// Longest wait of an agent's poll, whatever it asks for.
const POLL_MAX_MS: u64 = 30_000;
/// A drop waits so long for an agent that is online to have deleted the job's state; after that
/// the agent is told again by itself.
const FORGET_WAIT_MS: u64 = 10_000;

impl Hub {
    /// Waits for a state. Fails at once with the job's last error when it is `failed`; `Finished`
    /// satisfies a wait for `Running`; a job that is finished or was never started satisfies one
    /// for `Stopped`, since nothing of it runs; a wait that runs out is `Error::Timeout`.
    ///
    /// Cancel: safe to drop.
    pub async fn wait(&self, job: &JobId, until: WaitFor, timeout: Duration) -> Result<Arc<JobInfo>> {
        let reached = self.seen(|view| match view.job(job) {
            None => Some(Err(no_job(job))),
            Some(info) => verdict(info, until),
        });
        let ran_out = self.after(timeout);
        tokio::select! {
            biased;
            reached = reached => reached?,
            () = ran_out => {
                let state = self.job(job)?.state;
                Err(Error::Timeout(format!("job '{job}' is still {state} after {} ms: the wait for {until} ran out", timeout.as_millis())))
            }
        }
    }

    /// Waits until a checkpoint is complete.
    ///
    /// Errors: why it failed; there is no such checkpoint; `Error::Timeout` when it is not complete by then, and then it goes on.
    /// Cancel: safe to drop.
    pub async fn wait_for_checkpoint(&self, id: CheckpointId, timeout: Duration) -> Result<Arc<Checkpoint>> {
        let ended = self.seen(|view| match view.checkpoints.get(&id) {
            None => Some(Err(Error::NotFound { kind: "checkpoint", name: id.to_string() })),
            Some(record) => match record.state {
                CheckpointState::Waiting | CheckpointState::Running => None,
                CheckpointState::Completed | CheckpointState::Dropped => Some(Ok(record.clone())),
                CheckpointState::Failed => {
                    let reason = record.error.clone().unwrap_or_default();
                    Some(Err(Error::Unavailable(format!("{} {id} of job '{}' failed: {reason}", record.kind, record.job))))
                }
            },
        });
        tokio::select! {
            biased;
            ended = ended => ended?,
            () = self.after(timeout) => {
                Err(Error::Timeout(format!("checkpoint {id} is not complete after {} ms: it goes on, and weir.job_checkpoints tells how", timeout.as_millis())))
            }
        }
    }

    /// Waits until an agent is online. Errors: `Error::Timeout` when it is not by then.
    ///
    /// Cancel: safe to drop.
    pub async fn wait_for_agent(&self, agent: &AgentId, timeout: Duration) -> Result<()> {
        let online = self.seen(|view| view.agents.get(agent).is_some_and(|found| found.state == "online").then_some(()));
        tokio::select! {
            biased;
            online = online => online,
            () = self.after(timeout) => {
                Err(Error::Timeout(format!("agent '{agent}' is not online after {} ms", timeout.as_millis())))
            }
        }
    }

    /// Waits for a picture that `test` says something about.
    pub(super) async fn seen<R>(&self, test: impl Fn(&View) -> Option<R>) -> Result<R> {
        let mut views = self.inner.view.clone();
        loop {
            let view = views.borrow_and_update().clone();
            if let Some(found) = test(&view) {
                return Ok(found);
            }
            views.changed().await.map_err(|_| closed())?;
        }
    }

    /// Ends when `wait` from now, the moment of the call, is over.
    fn after(&self, wait: Duration) -> impl Future<Output = ()> + use<> {
        let clock = self.inner.clock.clone();
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let deadline = clock.now().steady_ms.saturating_add(wait_ms);
        async move { clock.until(deadline).await }
    }

    pub(super) async fn forgotten(&self, jobs: &[JobId]) {
        let done = self.seen(|view| jobs.iter().all(|job| !view.forgetting.contains(job)).then_some(()));
        tokio::select! {
            biased;
            _ = done => {}
            () = self.after(Duration::from_millis(FORGET_WAIT_MS)) => {}
        }
    }

    pub(super) async fn next_commands(&self, request: NextCommands) -> Result<HubResponse> {
        let deadline = self.after(Duration::from_millis(request.wait_ms.min(POLL_MAX_MS)));
        tokio::pin!(deadline);
        let mut closing = self.inner.closing.subscribe();
        loop {
            let Some(agent) = self.view().sessions.get(&request.session).cloned() else { return Ok(fenced()) };
            let bell = self.inner.wakers.of(&agent);
            let mut rung = std::pin::pin!(bell.notified());
            // Listens before it looks: a command that comes in between rings.
            rung.as_mut().enable();
            let session = request.session.clone();
            match self.change(move |world, now| Ok(world.claim(&session, now))).await? {
                Err(refusal) => return Ok(HubResponse::Refused(refusal)),
                Ok((_, commands)) if !commands.is_empty() => return Ok(HubResponse::Commands(commands)),
                Ok(_) => {}
            }
            tokio::select! {
                () = rung => {}
                () = &mut deadline => return Ok(HubResponse::Commands(Vec::new())),
                _ = closing.wait_for(|closing| *closing) => return Ok(HubResponse::Commands(Vec::new())),
            }
        }
    }

    pub(super) async fn next_read(&self, request: NextRead) -> Result<HubResponse> {
        let deadline = self.after(Duration::from_millis(request.wait_ms.min(POLL_MAX_MS)));
        tokio::pin!(deadline);
        let mut closing = self.inner.closing.subscribe();
        loop {
            let Some(agent) = self.view().sessions.get(&request.session).cloned() else { return Ok(fenced()) };
            let bell = self.inner.reads.bell(&agent);
            let mut rung = std::pin::pin!(bell.notified());
            rung.as_mut().enable();
            if let Some(read) = self.inner.reads.next(&agent) {
                return Ok(HubResponse::Read(Some(read)));
            }
            tokio::select! {
                () = rung => {}
                () = &mut deadline => return Ok(HubResponse::Read(None)),
                _ = closing.wait_for(|closing| *closing) => return Ok(HubResponse::Read(None)),
            }
        }
    }
}

fn fenced() -> HubResponse {
    HubResponse::Refused(Refusal { class: Class::Fenced, message: "this session has ended: register again".to_owned() })
}

fn verdict(info: &Arc<JobInfo>, until: WaitFor) -> Option<Result<Arc<JobInfo>>> {
    let reached = match (info.state, until) {
        (JobState::Failed, _) => {
            let reason = info.last_error.clone().unwrap_or_else(|| "no reason was given".to_owned());
            return Some(Err(Error::JobFailed { job: info.id.to_string(), reason }));
        }
        (JobState::Running, WaitFor::Running) => true,
        (JobState::Finished, WaitFor::Running | WaitFor::Finished | WaitFor::Stopped) => true,
        (JobState::Stopped | JobState::Created, WaitFor::Stopped) => true,
        (JobState::Running, WaitFor::Finished | WaitFor::Stopped) => false,
        (JobState::Stopped | JobState::Created, WaitFor::Running | WaitFor::Finished) => false,
        (JobState::Starting | JobState::Degraded | JobState::Stopping, _) => false,
    };
    reached.then(|| Ok(info.clone()))
}
