//! The link to the hub kept alive: register, fetch commands, report, answer reads, back off, and
//! fence itself when the hub stays away (AGT-1 to AGT-4).

use crate::agent::Agent;
use crate::checkpoint::round::Ask;
use crate::clock::boot_ms;
use crate::error::Error;
use crate::link::{Link, LinkError, ReadStream};
use rand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use weir_planner::error::Class;
use weir_planner::protocol::{
    Action, AgentRequest, Command, CommandDone, Failure, HubResponse, NextCommands, NextRead, ReadRequest, Refusal, Register, Registered,
    Report,
};

/// How long the hub may hold an open request.
const WAIT_MS: u64 = 20_000;
/// An answer that takes longer than the hub may hold it is not coming.
const ANSWER_MS: u64 = WAIT_MS + 10_000;
/// First and longest pause after a failed call.
const BACKOFF_MS: (u64, u64) = (50, 5_000);
/// Reads that are answered at once.
const READS_AT_ONCE: usize = 16;
/// Empty answers come at most so often: a hub that is about to close answers polls at once.
const EMPTY_MS: u64 = 20;
/// State changes within this time go into one report.
const GATHER_MS: u64 = 10;

/// Why a session ended.
enum Ended {
    /// The hub knows it no more: register anew.
    Fenced(String),
    /// The agent shuts down.
    Closing,
    /// No use to try again.
    Refused(Refusal),
}

/// Pauses that double, with jitter so that a fleet does not come back in step.
struct Backoff {
    next_ms: u64,
}

impl Backoff {
    fn new() -> Self {
        Backoff { next_ms: BACKOFF_MS.0 }
    }

    async fn pause(&mut self) {
        let ms = rand::rng().random_range(self.next_ms / 2..=self.next_ms);
        self.next_ms = (self.next_ms * 2).min(BACKOFF_MS.1);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// What the loops of one session share.
struct Session {
    agent: Agent,
    link: Arc<dyn Link>,
    registered: Registered,
}

/// Keeps the agent in session with its hub until [`Agent::shutdown`] begins. Jobs go on while the
/// hub is away, up to the lease.
///
/// Errors: `User` when the hub refuses this agent for good.
/// Cancel: safe; jobs are not touched.
pub async fn run(agent: Agent, link: Arc<dyn Link>) -> Result<(), Error> {
    let mut backoff = Backoff::new();
    let mut closing = agent.closing();
    let start = Instant::now();
    // Until the first registration there is no lease, and nothing that could run under one.
    let mut lease: Option<Lease> = None;
    loop {
        let sent_ms = boot_ms(start);
        let call = within(ANSWER_MS, link.call(AgentRequest::Register(Register { embedded: link.embedded(), ..agent.registration() })));
        let answer = tokio::select! {
            answer = call => answer,
            () = Lease::ends(&mut lease, &agent, link.as_ref(), start) => continue,
            () = closed(&mut closing) => return Ok(()),
        };
        match answer {
            Ok(HubResponse::Registered(registered)) => {
                backoff = Backoff::new();
                tracing::info!(session = %registered.session, lease_ms = registered.lease_ms, "registered");
                let mut held =
                    Lease { until_ms: sent_ms.saturating_add(registered.lease_ms), length_ms: registered.lease_ms, fenced: false };
                let session = Session { agent: agent.clone(), link: link.clone(), registered };
                let ended = session.serve(&mut held, start).await;
                lease = Some(held);
                match ended {
                    Ended::Closing => return Ok(()),
                    Ended::Fenced(why) => tracing::warn!(why, "session ended, registering anew"),
                    Ended::Refused(refusal) => {
                        return Err(Error::new(refusal.class, format!("the hub refuses this agent: {}", refusal.message)));
                    }
                }
            }
            Ok(HubResponse::Refused(refusal)) if matches!(refusal.class, Class::User | Class::Corrupt) => {
                return Err(Error::new(refusal.class, format!("the hub refuses this agent: {}", refusal.message)));
            }
            Ok(HubResponse::Refused(refusal)) => tracing::warn!(why = %refusal.message, "registration refused, trying again"),
            Ok(other) => tracing::warn!(answer = ?other, "unexpected answer to a registration, trying again"),
            Err(error) => tracing::debug!(%error, "hub is away"),
        }
        tokio::select! {
            () = backoff.pause() => {}
            () = Lease::ends(&mut lease, &agent, link.as_ref(), start) => {}
            () = closed(&mut closing) => return Ok(()),
        }
    }
}

async fn within<T>(ms: u64, call: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    let late = || LinkError { hub: "hub".to_owned(), message: format!("no answer within {ms} ms") };
    tokio::time::timeout(Duration::from_millis(ms), call).await.unwrap_or_else(|_| Err(late()))
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    // An agent that is gone is closed, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// The right to run, counted on the clock that goes on while the machine sleeps, from the send
/// time of the last answered report.
struct Lease {
    until_ms: u64,
    length_ms: u64,
    fenced: bool,
}

impl Lease {
    fn renew(&mut self, sent_ms: u64) {
        self.until_ms = sent_ms.saturating_add(self.length_ms);
        self.fenced = false;
    }

    /// Closes what runs when the lease has ended. Jobs of an embedded agent have nobody else who
    /// could hold them.
    async fn check(&mut self, agent: &Agent, link: &dyn Link, start: Instant) {
        if !link.embedded() && !self.fenced && boot_ms(start) >= self.until_ms {
            self.fenced = true;
            tracing::warn!(lease_ms = self.length_ms, "the hub was away longer than the lease: jobs are stopped");
            agent.fence(&format!("the hub was away longer than the lease of {} ms", self.length_ms)).await;
        }
    }

    /// Closes what runs at the end of a lease that is held between two sessions; returns after
    /// that, and never when there is nothing to lose.
    async fn ends(lease: &mut Option<Lease>, agent: &Agent, link: &dyn Link, start: Instant) {
        match lease {
            Some(lease) if !lease.fenced && !link.embedded() => {
                while !lease.fenced {
                    tokio::time::sleep(lease.left(start)).await;
                    lease.check(agent, link, start).await;
                }
            }
            Some(_) | None => std::future::pending().await,
        }
    }

    fn left(&self, start: Instant) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(boot_ms(start)))
    }
}

impl Session {
    async fn serve(&self, lease: &mut Lease, start: Instant) -> Ended {
        let mut closing = self.agent.closing();
        tokio::select! {
            ended = self.report(lease, start) => ended,
            ended = self.obey() => ended,
            ended = self.answer() => ended,
            ended = self.seal() => ended,
            () = closed(&mut closing) => Ended::Closing,
        }
    }

    async fn call(&self, request: AgentRequest) -> Result<HubResponse, LinkError> {
        within(ANSWER_MS, self.link.call(request)).await
    }

    /// Reports at the given pace, and at once when something changes.
    async fn report(&self, lease: &mut Lease, start: Instant) -> Ended {
        let mut changed = self.agent.changed();
        let pace = Duration::from_millis(self.registered.report_ms.max(1));
        let mut sequence = 0;
        loop {
            changed.mark_unchanged();
            sequence += 1;
            let sent_ms = boot_ms(start);
            let jobs = self.agent.observe();
            let report = Report { session: self.registered.session.clone(), sequence, jobs: jobs.clone(), load: self.agent.load() };
            // A hung call must not outlive the lease.
            let patience =
                if self.link.embedded() { Duration::from_millis(ANSWER_MS) } else { lease.left(start).max(Duration::from_millis(100)) };
            match tokio::time::timeout(patience, self.call(AgentRequest::Report(report))).await {
                Ok(Ok(HubResponse::Refused(refusal))) => return ended(refusal),
                Ok(Ok(HubResponse::Accepted)) => {
                    lease.renew(sent_ms);
                    self.agent.acknowledge(&jobs);
                }
                Ok(Ok(other)) => tracing::warn!(answer = ?other, "unexpected answer to a report"),
                Ok(Err(error)) => tracing::debug!(%error, "report did not arrive"),
                Err(_) => tracing::debug!("report was not answered within the lease"),
            }
            lease.check(&self.agent, self.link.as_ref(), start).await;
            let wait = if self.link.embedded() || lease.fenced { pace } else { pace.min(lease.left(start)) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The agent lives as long as its session, so a change can be waited for.
                _ = changed.changed() => tokio::time::sleep(Duration::from_millis(GATHER_MS)).await,
            }
        }
    }

    /// Fetches commands by long poll and carries them out, each on a task of its own.
    async fn obey(&self) -> Ended {
        let mut backoff = Backoff::new();
        let mut tasks = JoinSet::new();
        let mut under_way = BTreeSet::new();
        loop {
            let request = AgentRequest::NextCommands(NextCommands { session: self.registered.session.clone(), wait_ms: WAIT_MS });
            let asked = Instant::now();
            match self.call(request).await {
                Ok(HubResponse::Commands(commands)) => {
                    backoff = Backoff::new();
                    if commands.is_empty() {
                        not_sooner(asked).await;
                    }
                    while let Some(done) = tasks.try_join_next() {
                        if let Ok(id) = done {
                            under_way.remove(&id);
                        }
                    }
                    for command in commands {
                        // A command that comes again while it is carried out is answered once.
                        if under_way.insert(command.id) {
                            let (agent, link, session) = (self.agent.clone(), self.link.clone(), self.registered.session.clone());
                            tasks.spawn(carry_out(agent, link, session, command));
                        }
                    }
                }
                Ok(HubResponse::Refused(refusal)) => return ended(refusal),
                Ok(other) => {
                    tracing::warn!(answer = ?other, "unexpected answer to a poll for commands");
                    backoff.pause().await;
                }
                Err(error) => {
                    tracing::debug!(%error, "poll for commands failed");
                    backoff.pause().await;
                }
            }
        }
    }

    /// Has checkpoints sealed, one at a time. One whose answer does not come is asked for again by its round.
    async fn seal(&self) -> Ended {
        let asks = self.agent.asks();
        loop {
            let Ok(Ask { mut done, reply }) = asks.recv_async().await else { return std::future::pending().await };
            done.session.clone_from(&self.registered.session);
            let answer = match self.call(AgentRequest::CheckpointDone(Box::new(done))).await {
                Ok(HubResponse::Sealed(sealed)) => Ok(Some(sealed)),
                Ok(HubResponse::Accepted) => Ok(None),
                Ok(HubResponse::Refused(refusal)) => Err(Error::new(refusal.class, refusal.message)),
                Ok(other) => {
                    tracing::warn!(answer = ?other, "unexpected answer to a checkpoint");
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, "a checkpoint was not told");
                    continue;
                }
            };
            // The round has ended by its own time limit: it is told again.
            let _ = reply.send(answer);
        }
    }

    /// Fetches reads by long poll and answers them, a bounded number at once.
    async fn answer(&self) -> Ended {
        let mut backoff = Backoff::new();
        let permits = Arc::new(Semaphore::new(READS_AT_ONCE));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let permit = permits.clone().acquire_owned().await;
            let request = AgentRequest::NextRead(NextRead { session: self.registered.session.clone(), wait_ms: WAIT_MS });
            let asked = Instant::now();
            match self.call(request).await {
                Ok(HubResponse::Read(None)) => {
                    backoff = Backoff::new();
                    not_sooner(asked).await;
                }
                Ok(HubResponse::Read(Some(read))) => {
                    backoff = Backoff::new();
                    let (agent, link, session) = (self.agent.clone(), self.link.clone(), self.registered.session.clone());
                    tasks.spawn(async move {
                        answer_one(&agent, link.as_ref(), &session, read).await;
                        drop(permit);
                    });
                }
                Ok(HubResponse::Refused(refusal)) => return ended(refusal),
                Ok(other) => {
                    tracing::warn!(answer = ?other, "unexpected answer to a poll for reads");
                    backoff.pause().await;
                }
                Err(error) => {
                    tracing::debug!(%error, "poll for reads failed");
                    backoff.pause().await;
                }
            }
        }
    }
}

async fn not_sooner(asked: Instant) {
    tokio::time::sleep_until((asked + Duration::from_millis(EMPTY_MS)).into()).await;
}

fn ended(refusal: Refusal) -> Ended {
    match refusal.class {
        Class::User | Class::Corrupt => Ended::Refused(refusal),
        Class::Fenced | Class::Retry | Class::Bug => Ended::Fenced(refusal.message),
    }
}

/// Carries out one command and says how it ended; gives the command's id.
async fn carry_out(agent: Agent, link: Arc<dyn Link>, session: String, command: Command) -> u64 {
    let id = command.id;
    tracing::info!(job = %command.job, generation = %command.generation, command = id, "command");
    let result: Result<(), Failure> = match command.action {
        Action::Start(start) => agent.start(&command.job, command.generation, *start).map_err(|e| e.to_failure()),
        Action::Stop { attempt } => {
            agent.stop(&command.job, attempt).await;
            Ok(())
        }
        Action::Checkpoint { attempt, id, kind } => agent.checkpoint(&command.job, attempt, id, kind).map_err(|e| e.to_failure()),
        Action::Forget { attempt, retained } => agent.forget(&command.job, attempt, retained.as_deref()).await.map_err(|e| e.to_failure()),
    };
    let done = AgentRequest::CommandDone(CommandDone { session, id, result });
    // When it does not arrive the command comes again after its lease, and is then done at once.
    if let Err(error) = within(ANSWER_MS, link.call(done)).await {
        tracing::debug!(%error, command = id, "end of a command was not told");
    }
    id
}

async fn answer_one(agent: &Agent, link: &dyn Link, session: &str, read: ReadRequest) {
    let id = read.id;
    let body: Result<ReadStream, Failure> = agent.read(read).await.map_err(|e| e.to_failure());
    if let Err(error) = link.answer(session, id, body).await {
        tracing::debug!(%error, read = id, "answer to a read did not arrive");
    }
}

#[cfg(test)]
mod tests;
