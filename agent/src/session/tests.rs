//! Sessions against a hub that a test holds in its hand.

use super::run;
use crate::agent::Agent;
use crate::agent::tests::double::{World, counting_plan, output};
use crate::agent::tests::{PATIENCE, job, open, until_failed, until_running};
use crate::link::{Link, LinkError, ReadStream};
use futures::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, Generation};
use weir_planner::protocol::{
    Action, AgentRequest, AttemptState, Command, CommandDone, Failure, HubResponse, JobObservation, ReadRequest, ReadTarget, Refusal,
    Register, Registered, Report, Restore, Start,
};

/// A hub of one agent. Every queue is bounded and read by the test.
struct FakeHub {
    lease_ms: u64,
    report_ms: u64,
    embedded: bool,
    away: AtomicBool,
    failed_calls: AtomicU64,
    session: AtomicU64,
    registered: flume::Sender<Register>,
    commands: flume::Receiver<Command>,
    reads: flume::Receiver<ReadRequest>,
    done: flume::Sender<CommandDone>,
    reports: tokio::sync::watch::Sender<Option<Report>>,
    answers: flume::Sender<Result<Vec<u8>, String>>,
    refusal: Mutex<Option<Refusal>>,
    first_sequences: Mutex<Vec<(String, u64)>>,
}

/// The test's ends.
struct Ends {
    registered: flume::Receiver<Register>,
    commands: flume::Sender<Command>,
    reads: flume::Sender<ReadRequest>,
    done: flume::Receiver<CommandDone>,
    reports: tokio::sync::watch::Receiver<Option<Report>>,
    answers: flume::Receiver<Result<Vec<u8>, String>>,
}

fn hub(lease_ms: u64, report_ms: u64, embedded: bool) -> (Arc<FakeHub>, Ends) {
    let (registered, is_registered) = flume::bounded(100);
    let (command, commands) = flume::bounded(100);
    let (read, reads) = flume::bounded(100);
    let (done, is_done) = flume::bounded(100);
    let (answer, answers) = flume::bounded(100);
    let (report, reports) = tokio::sync::watch::channel(None);
    let hub = FakeHub {
        lease_ms,
        report_ms,
        embedded,
        away: AtomicBool::new(false),
        failed_calls: AtomicU64::new(0),
        session: AtomicU64::new(0),
        registered,
        commands,
        reads,
        done,
        reports: report,
        answers: answer,
        refusal: Mutex::new(None),
        first_sequences: Mutex::default(),
    };
    (Arc::new(hub), Ends { registered: is_registered, commands: command, reads: read, done: is_done, reports, answers })
}

impl FakeHub {
    fn session(&self) -> String {
        format!("s{}", self.session.load(Ordering::SeqCst))
    }

    /// What every request of the old session hears.
    fn fence(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
    }

    fn known(&self, session: &str) -> Result<(), HubResponse> {
        let refusal = || HubResponse::Refused(Refusal { class: Class::Fenced, message: "not this session".to_owned() });
        if session == self.session() { Ok(()) } else { Err(refusal()) }
    }
}

#[async_trait::async_trait]
impl Link for FakeHub {
    async fn call(&self, request: AgentRequest) -> Result<HubResponse, LinkError> {
        if self.away.load(Ordering::SeqCst) {
            self.failed_calls.fetch_add(1, Ordering::SeqCst);
            return Err(LinkError { hub: "fake".to_owned(), message: "away".to_owned() });
        }
        let session = match &request {
            AgentRequest::Register(_) => self.session(),
            AgentRequest::NextCommands(r) => r.session.clone(),
            AgentRequest::CommandDone(r) => r.session.clone(),
            AgentRequest::Report(r) => r.session.clone(),
            AgentRequest::NextRead(r) => r.session.clone(),
            AgentRequest::CheckpointDone(r) => r.session.clone(),
        };
        if let Err(refused) = self.known(&session) {
            return Ok(refused);
        }
        Ok(match request {
            AgentRequest::Register(register) => {
                if let Some(refusal) = self.refusal.lock().clone() {
                    return Ok(HubResponse::Refused(refusal));
                }
                self.registered.send(register).unwrap();
                HubResponse::Registered(Registered { session, lease_ms: self.lease_ms, report_ms: self.report_ms })
            }
            AgentRequest::CheckpointDone(_) => HubResponse::Accepted,
            AgentRequest::NextCommands(_) => HubResponse::Commands(self.commands.recv_async().await.into_iter().collect()),
            AgentRequest::CommandDone(done) => {
                self.done.send(done).unwrap();
                HubResponse::Accepted
            }
            AgentRequest::Report(report) => {
                let mut first = self.first_sequences.lock();
                if first.last().is_none_or(|(session, _)| *session != report.session) {
                    first.push((report.session.clone(), report.sequence));
                }
                drop(first);
                self.reports.send_replace(Some(report));
                HubResponse::Accepted
            }
            AgentRequest::NextRead(_) => HubResponse::Read(self.reads.recv_async().await.ok()),
        })
    }

    async fn answer(&self, _session: &str, _read: u64, body: Result<ReadStream, Failure>) -> Result<(), LinkError> {
        let whole = match body {
            Ok(stream) => stream.collect::<Vec<_>>().await.into_iter().collect::<Result<Vec<_>, _>>().map(|c| c.concat()),
            Err(failure) => Err(failure.message),
        };
        self.answers.send(whole).unwrap();
        Ok(())
    }

    fn embedded(&self) -> bool {
        self.embedded
    }
}

fn start(id: u64, attempt: u64) -> Command {
    let start = Start { attempt: Attempt::new(attempt), plan: counting_plan(&job()), restore: Restore::Fresh };
    Command { id, job: job(), generation: Generation::new(7), action: Action::Start(Box::new(start)) }
}

async fn reported(ends: &mut Ends, wanted: impl Fn(&JobObservation) -> bool) -> JobObservation {
    let seen = ends.reports.wait_for(|r| r.as_ref().is_some_and(|r| r.jobs.iter().any(&wanted)));
    let report = tokio::time::timeout(PATIENCE, seen).await.expect("reported in time").unwrap();
    report.as_ref().unwrap().jobs.iter().find(|o| wanted(o)).unwrap().clone()
}

async fn soon<T>(receiver: &flume::Receiver<T>) -> T {
    tokio::time::timeout(PATIENCE, receiver.recv_async()).await.expect("in time").unwrap()
}

async fn finish(agent: &Agent, session: tokio::task::JoinHandle<Result<(), crate::error::Error>>) {
    agent.shutdown(PATIENCE).await;
    tokio::time::timeout(PATIENCE, session).await.expect("session ends").unwrap().unwrap();
}

/// AGT-2, AGT-3: commands arrive by long poll and are acknowledged; changes are reported at once,
/// not at the next turn; reads are answered, or refused with a reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_carried_out_reported_and_acknowledged() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let agent = open(dir.path(), &world).await;
    // Reports by the clock alone would come hourly.
    let (hub, mut ends) = hub(10_000_000, 3_600_000, false);
    let session = tokio::spawn(run(agent.clone(), hub.clone()));
    let register = soon(&ends.registered).await;
    assert_eq!((register.store_id.as_str(), register.running.len()), (agent.store_id(), 0));
    ends.commands.send(start(1, 1)).unwrap();
    assert_eq!(soon(&ends.done).await, CommandDone { session: "s0".to_owned(), id: 1, result: Ok(()) });
    let seen = reported(&mut ends, |o| o.state == AttemptState::Running).await;
    assert_eq!((seen.attempt, seen.generation), (Attempt::new(1), Generation::new(7)));
    world.feeds[0].give(&[(1, 1)]);
    world.feeds.iter().for_each(|f| f.close());
    let seen = reported(&mut ends, |o| o.state == AttemptState::Finished).await;
    assert!(seen.has_cut);
    // An older attempt is refused with its class.
    ends.commands.send(start(2, 0)).unwrap();
    assert_eq!(soon(&ends.done).await.result.unwrap_err().class, Class::Fenced);
    let read = ReadRequest {
        id: 5,
        job: job(),
        target: ReadTarget::Results,
        schema: output(),
        limit: None,
        store_id: None,
        replaces_by: Vec::new(),
    };
    ends.reads.send(read).unwrap();
    let bytes = soon(&ends.answers).await.unwrap();
    let reader = arrow_ipc::reader::StreamReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    assert_eq!(reader.map(|b| b.unwrap().num_rows()).sum::<usize>(), 1);
    finish(&agent, session).await;
}

/// AGT-1, HUB-6: a hub that forgot the session is registered with anew; what runs is named and
/// goes on untouched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_session_is_renewed_and_nothing_restarts() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let agent = open(dir.path(), &world).await;
    let (hub, mut ends) = hub(10_000_000, 5, false);
    let session = tokio::spawn(run(agent.clone(), hub.clone()));
    let first = soon(&ends.registered).await;
    ends.commands.send(start(1, 1)).unwrap();
    soon(&ends.done).await;
    until_running(&agent).await;
    hub.fence();
    let second = soon(&ends.registered).await;
    assert_eq!((second.running.len(), second.running[0].attempt), (1, Attempt::new(1)));
    assert_eq!(second.boot_id, first.boot_id);
    let report = tokio::time::timeout(PATIENCE, ends.reports.wait_for(|r| r.as_ref().is_some_and(|r| r.session == "s1"))).await;
    drop(report.expect("reported").unwrap());
    assert_eq!(hub.first_sequences.lock().last(), Some(&("s1".to_owned(), 1)), "sequences begin anew with a session");
    world.feeds[0].give(&[(1, 1)]);
    world.feeds[0].until_decided(1).await;
    assert_eq!(agent.observe()[0].attempt, Attempt::new(1));
    finish(&agent, session).await;
}

/// AGT-4: an agent whose hub stays away longer than the lease closes its jobs by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_stopped_at_the_end_of_the_lease() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let agent = open(dir.path(), &world).await;
    let (hub, ends) = hub(200, 5, false);
    let session = tokio::spawn(run(agent.clone(), hub.clone()));
    ends.commands.send(start(1, 1)).unwrap();
    soon(&ends.done).await;
    until_running(&agent).await;
    hub.away.store(true, Ordering::SeqCst);
    let failure = until_failed(&agent).await;
    assert_eq!(failure.class, Class::Retry);
    assert!(failure.message.contains("longer than the lease of 200 ms"), "{}", failure.message);
    // The hub comes back and hears of it.
    hub.away.store(false, Ordering::SeqCst);
    let mut ends = ends;
    reported(&mut ends, |o| matches!(o.state, AttemptState::Failed(_))).await;
    finish(&agent, session).await;
}

/// AGT-4: an embedded agent has no lease to lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_agent_goes_on_without_answers() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let agent = open(dir.path(), &world).await;
    let (hub, ends) = hub(20, 1, true);
    let session = tokio::spawn(run(agent.clone(), hub.clone()));
    ends.commands.send(start(1, 1)).unwrap();
    soon(&ends.done).await;
    until_running(&agent).await;
    hub.away.store(true, Ordering::SeqCst);
    let many = async {
        while hub.failed_calls.load(Ordering::SeqCst) < 60 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, many).await.expect("calls go on");
    assert_eq!(agent.observe()[0].state, AttemptState::Running);
    finish(&agent, session).await;
}

/// A hub that refuses for good ends the session with its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_good_is_an_error() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let agent = open(dir.path(), &world).await;
    let (hub, _ends) = hub(1_000, 5, false);
    *hub.refusal.lock() = Some(Refusal { class: Class::User, message: "wrong token".to_owned() });
    let error = tokio::time::timeout(PATIENCE, run(agent.clone(), hub)).await.unwrap().unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("wrong token"), "{error}");
    agent.shutdown(PATIENCE).await;
}
