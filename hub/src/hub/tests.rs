//! The whole hub with an agent by hand: lives of jobs, kills, waits, reads, full disks.

use super::{
    AgentRequest, Arc, BoxStream, Bytes, Class, DesiredState, Duration, Error, Hub, HubOptions, HubResponse, JobInfo, JobState,
    ReadRequest, Result, Store, WaitFor,
};
use crate::clock::{Clock, ManualClock};
use crate::hub::StartFrom;
use crate::tests::sealed;
use crate::tests::{Disk, agent, attempt, failure, generation, job, new_job, observation, question, register, report, spec};
use futures::{StreamExt, TryStreamExt};
use std::path::Path;
use weir_planner::protocol::{Action, AttemptState, Command, CommandDone, Failure, Level, NextCommands, NextRead, ReadTarget, Restore};
use weir_planner::schema::Schema;

mod sample;

const LEASE: Duration = Duration::from_secs(15);
/// A bound for waits that only a fault makes run out.
const LONG: Duration = Duration::from_secs(600);

fn options(dir: &Path) -> HubOptions {
    HubOptions { data_dir: dir.to_owned(), lease: LEASE, agent_token: None }
}

struct Rig {
    hub: Hub,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let hub = Hub::open_at(options(dir.path()), clock.clone()).await.unwrap();
        Rig { hub, clock, dir }
    }

    /// As after `kill -9`: nothing is closed, only what was committed is there.
    async fn crash(self) -> Rig {
        let Rig { hub, clock, dir } = self;
        if let Some(driver) = hub.inner.driver.lock().await.take() {
            driver.abort();
            assert!(driver.await.unwrap_err().is_cancelled());
        }
        drop(hub);
        let hub = Hub::open_at(options(dir.path()), clock.clone()).await.unwrap();
        Rig { hub, clock, dir }
    }

    async fn until(&self, what: impl Fn(&JobInfo) -> bool) -> Arc<JobInfo> {
        let found = self.hub.seen(|view| view.job(&job("j")).filter(|info| what(info)).cloned());
        tokio::time::timeout(Duration::from_secs(20), found).await.expect("the state is reached").unwrap()
    }

    fn kinds(&self) -> Vec<String> {
        self.hub.events(Some(&job("j"))).into_iter().map(|event| event.event.kind).collect()
    }
}

/// An agent by hand.
struct Fake {
    hub: Hub,
    session: String,
    sequence: u64,
}

impl Fake {
    async fn arrive(hub: &Hub, boot: &str, running: &[(&str, u64)]) -> Fake {
        let request = register("a", boot, "disk", running);
        match hub.agent_call(AgentRequest::Register(request)).await {
            HubResponse::Registered(done) => {
                assert_eq!((done.lease_ms, done.report_ms), (15_000, 1_000));
                Fake { hub: hub.clone(), session: done.session, sequence: 0 }
            }
            other => panic!("{other:?}"),
        }
    }

    async fn poll(&self, wait_ms: u64) -> HubResponse {
        let polled = self.hub.agent_call(AgentRequest::NextCommands(NextCommands { session: self.session.clone(), wait_ms }));
        tokio::time::timeout(Duration::from_secs(20), polled).await.expect("the poll ends")
    }

    async fn commands(&self) -> Vec<Command> {
        match self.poll(30_000).await {
            HubResponse::Commands(commands) => commands,
            other => panic!("{other:?}"),
        }
    }

    async fn done(&self, command: &Command, result: std::result::Result<(), Failure>) {
        let done = CommandDone { session: self.session.clone(), id: command.id, result };
        assert_eq!(self.hub.agent_call(AgentRequest::CommandDone(done)).await, HubResponse::Accepted);
    }

    async fn report(&mut self, number: u64, state: AttemptState) {
        self.sequence += 1;
        let told = report(&self.session, self.sequence, vec![observation("j", number, state)]);
        assert_eq!(self.hub.agent_call(AgentRequest::Report(told)).await, HubResponse::Accepted);
    }

    /// Takes a start, and says that it runs.
    async fn run(&mut self, number: u64) -> Command {
        let command = self.commands().await.remove(0);
        match &command.action {
            Action::Start(start) => assert_eq!(start.attempt, attempt(number)),
            other => panic!("{other:?}"),
        }
        self.done(&command, Ok(())).await;
        self.report(number, AttemptState::Running).await;
        command
    }
}

/// Spec 1.3 from end to end: created, started, stopped, started, finished, dropped; each step is in the events.
#[tokio::test]
async fn a_job_lives_and_ends() {
    let rig = Rig::new().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    let info = rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    assert_eq!((info.state, info.agent.clone(), info.sql.as_deref()), (JobState::Starting, Some(agent("a")), Some("CREATE JOB j AS …")));
    let command = fake.run(1).await;
    let Action::Start(start) = &command.action else { panic!("a start") };
    assert_eq!(start.plan, sealed(info.plan.as_ref().unwrap()));
    assert_eq!(start.restore, Restore::New);
    let info = rig.hub.wait(&job("j"), WaitFor::Running, LONG).await.unwrap();
    assert_eq!((info.state, info.started_at_ms), (JobState::Running, Some(ManualClock::WALL_START_MS)));
    assert_eq!(info.observation.as_ref().unwrap().attempt, attempt(1));

    let info = rig.hub.set_desired(&job("j"), DesiredState::Stopped, Some(generation(1)), StartFrom::Newest).await.unwrap();
    assert_eq!((info.state, info.generation), (JobState::Stopping, generation(2)));
    let stop = fake.commands().await.remove(0);
    assert_eq!(stop.action, Action::Stop { attempt: attempt(1) });
    fake.done(&stop, Ok(())).await;
    fake.report(1, AttemptState::Stopped).await;
    rig.hub.wait(&job("j"), WaitFor::Stopped, LONG).await.unwrap();

    rig.hub.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest).await.unwrap();
    fake.run(2).await;
    fake.report(2, AttemptState::Finished).await;
    let info = rig.hub.wait(&job("j"), WaitFor::Running, LONG).await.unwrap();
    assert_eq!(info.state, JobState::Finished, "SQL-14: finished satisfies a wait for running");
    let kinds = ["created", "starting", "running", "stopping", "stopped", "started", "restarted", "running", "finished"];
    assert_eq!(rig.kinds(), kinds);

    let dropping = tokio::spawn({
        let hub = rig.hub.clone();
        async move { hub.drop_job(&job("j")).await }
    });
    let forget = fake.commands().await.remove(0);
    assert_eq!(forget.action, Action::Forget { attempt: attempt(2), retained: Some(Vec::new()) });
    assert!(matches!(rig.hub.job(&job("j")), Err(Error::NotFound { kind: "job", .. })));
    assert!(!dropping.is_finished(), "a drop waits until nothing is left");
    fake.done(&forget, Ok(())).await;
    dropping.await.unwrap().unwrap();
    assert!(rig.hub.events(None).is_empty());
    rig.hub.close().await;
}

/// AGT-2: a waiting poll is answered by the change itself, without any time passing.
#[tokio::test]
async fn a_command_is_dispatched_at_once() {
    let rig = Rig::new().await;
    let fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    let (polled, ()) = tokio::join!(fake.commands(), async {
        tokio::task::yield_now().await;
        rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    });
    assert_eq!(polled.len(), 1);
    assert_eq!(rig.clock.now().steady_ms, 0);
    // HUB-4: it is not done within its claim, so it comes again.
    let (again, ()) = tokio::join!(fake.commands(), async {
        tokio::task::yield_now().await;
        rig.clock.advance(Duration::from_secs(5));
    });
    assert_eq!(again, polled);
    fake.done(&again[0], Ok(())).await;
    // An idle poll ends when its time is over.
    let (idle, ()) = tokio::join!(fake.commands(), async {
        tokio::task::yield_now().await;
        rig.clock.advance(Duration::from_secs(30));
    });
    assert_eq!(idle, Vec::new());
}

/// HUB-1, HUB-6, H3: after a kill at any of these points the store opens, the intent is kept, the
/// undone command comes again, and what runs is confirmed instead of restarted.
#[tokio::test]
async fn a_killed_hub_goes_on() {
    let mut rig = Rig::new().await;
    Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    rig = rig.crash().await;
    let info = rig.hub.job(&job("j")).unwrap();
    assert_eq!((info.state, info.attempt, info.desired), (JobState::Starting, attempt(1), DesiredState::Running));
    assert_eq!(*info.spec, spec("j"));

    let fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    let before = fake.commands().await;
    rig = rig.crash().await;
    assert!(matches!(fake.poll(0).await, HubResponse::Refused(_)));
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    assert_eq!(fake.run(1).await, before[0], "the same command under the same id");
    rig.until(|info| info.state == JobState::Running).await;
    let kinds = rig.kinds();

    rig = rig.crash().await;
    assert_eq!(rig.hub.job(&job("j")).unwrap().state, JobState::Running);
    let mut fake = Fake::arrive(&rig.hub, "boot", &[("j", 1)]).await;
    fake.report(1, AttemptState::Running).await;
    assert_eq!(rig.kinds(), kinds, "a restart of the hub is no event of the job");
    rig.hub.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest).await.unwrap();

    rig = rig.crash().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[("j", 1)]).await;
    assert_eq!(fake.commands().await[0].action, Action::Stop { attempt: attempt(1) });
    fake.report(1, AttemptState::Stopped).await;
    rig.hub.wait(&job("j"), WaitFor::Stopped, LONG).await.unwrap();
    drop(rig.dir);
}

/// A process that holds hub and agent dies and comes back: the job gets a new attempt at once.
#[tokio::test]
async fn everything_is_killed_and_comes_back() {
    let mut rig = Rig::new().await;
    let mut fake = Fake::arrive(&rig.hub, "boot 1", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    fake.run(1).await;
    for kill in 2..7 {
        rig = rig.crash().await;
        let mut fake = Fake::arrive(&rig.hub, &format!("boot {kill}"), &[]).await;
        fake.run(kill).await;
        let info = rig.until(|info| info.state == JobState::Running).await;
        assert_eq!((info.attempt, info.last_error.clone()), (attempt(kill), None));
    }
}

/// SQL-14: what a wait can answer.
#[tokio::test]
async fn waits_end() {
    let rig = Rig::new().await;
    assert!(matches!(rig.hub.wait(&job("j"), WaitFor::Running, LONG).await, Err(Error::NotFound { .. })));
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    let patience = Duration::from_secs(3);
    let (ran_out, ()) =
        tokio::join!(async { rig.hub.wait(&job("j"), WaitFor::Running, patience).await }, async { rig.clock.advance(patience) });
    assert_eq!(ran_out.unwrap_err().to_string(), "job 'j' is still starting after 3000 ms: the wait for running ran out");
    let command = fake.commands().await.remove(0);
    fake.done(&command, Ok(())).await;
    let waiting = tokio::spawn({
        let hub = rig.hub.clone();
        async move { hub.wait(&job("j"), WaitFor::Running, LONG).await }
    });
    fake.report(1, AttemptState::Failed(failure(weir_planner::error::Class::User, "topic 'x' does not exist"))).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().to_string(), "job 'j' failed: topic 'x' does not exist");
    let events = rig.hub.events(None);
    let last = events.last().unwrap();
    assert_eq!((last.event.kind.as_str(), last.event.level), ("failed", Level::Error));

    rig.hub.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest).await.unwrap();
    let waiting = tokio::spawn({
        let hub = rig.hub.clone();
        async move { hub.wait(&job("j"), WaitFor::Finished, LONG).await }
    });
    tokio::task::yield_now().await;
    let (dropped, ()) = tokio::join!(async { rig.hub.drop_job(&job("j")).await }, async {
        let forget = fake.commands().await.into_iter().find(|c| matches!(c.action, Action::Forget { .. })).unwrap();
        fake.done(&forget, Ok(())).await;
    });
    dropped.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::NotFound { .. })));
}

/// AGT-4, C55: within lease and grace a silent agent is offline and its jobs say why they wait; a
/// drop does not wait for it.
#[tokio::test]
async fn a_silent_agent_is_seen() {
    let rig = Rig::new().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    fake.run(1).await;
    rig.clock.advance(LEASE + Duration::from_secs(5));
    let info = rig.until(|info| info.state == JobState::Degraded).await;
    assert!(info.last_error.as_ref().unwrap().starts_with("agent 'a' is offline"));
    assert_eq!(rig.hub.agents()[0].state, "offline");
    assert!(matches!(fake.poll(0).await, HubResponse::Refused(refusal) if refusal.class == Class::Fenced));
    rig.hub.drop_job(&job("j")).await.unwrap();
    let fake = Fake::arrive(&rig.hub, "boot", &[("j", 1)]).await;
    assert_eq!(fake.commands().await[0].action, Action::Forget { attempt: attempt(1), retained: Some(Vec::new()) });
    // An agent that is online but does not answer holds a drop for 10 s only.
    rig.hub.create_job(new_job("k", DesiredState::Running)).await.unwrap();
    let (dropped, ()) = tokio::join!(async { rig.hub.drop_job(&job("k")).await }, async {
        rig.hub.seen(|view| view.forgetting.contains(&job("k")).then_some(())).await.unwrap();
        tokio::task::yield_now().await;
        rig.clock.advance(Duration::from_secs(10));
    });
    dropped.unwrap();
}

/// C46, `restart`: a job that fails in passing comes again after its pause; another job goes on.
#[tokio::test]
async fn a_failing_job_is_tried_again() {
    let rig = Rig::new().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    rig.hub.create_job(new_job("other", DesiredState::Running)).await.unwrap();
    for command in fake.commands().await {
        fake.done(&command, Ok(())).await;
    }
    fake.sequence += 1;
    let away = failure(Class::Retry, "sink 'sink-0': broker localhost:1 is away");
    let jobs = vec![observation("j", 1, AttemptState::Failed(away)), observation("other", 1, AttemptState::Running)];
    rig.hub.agent_call(AgentRequest::Report(report(&fake.session, fake.sequence, jobs))).await;
    let info = rig.until(|info| info.state == JobState::Degraded).await;
    assert_eq!(info.last_error.as_deref(), Some("sink 'sink-0': broker localhost:1 is away"));
    assert_eq!(rig.hub.job(&job("other")).unwrap().state, JobState::Running);
    assert_eq!(fake.poll(0).await, HubResponse::Commands(Vec::new()));
    let (_, ()) = tokio::join!(fake.run(2), async {
        tokio::task::yield_now().await;
        rig.clock.advance(Duration::from_millis(500));
    });
    let info = rig.until(|info| info.state == JobState::Running).await;
    assert_eq!(info.attempt, attempt(2));
}

/// ST-2: a question goes to the agent that holds the job, and its answer comes back.
#[tokio::test]
async fn a_read_is_relayed() {
    let rig = Rig::new().await;
    let question = || ReadRequest {
        id: 0,
        job: job("j"),
        target: ReadTarget::Results,
        schema: Schema::default(),
        limit: Some(3),
        store_id: None,
        replaces_by: Vec::new(),
    };
    let reason = |result: Result<BoxStream<'static, Result<Bytes>>>| result.err().unwrap().to_string();
    assert_eq!(reason(rig.hub.read(question()).await), "job 'j' does not exist");
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    assert_eq!(reason(rig.hub.read(question()).await), "job 'j' has not run yet, so there is nothing to read");
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    fake.run(1).await;
    let agent_side = async {
        let next = NextRead { session: fake.session.clone(), wait_ms: 30_000 };
        let HubResponse::Read(Some(asked)) = rig.hub.agent_call(AgentRequest::NextRead(next)).await else { panic!("a read") };
        assert_eq!((asked.job.clone(), asked.limit, asked.store_id.as_deref()), (job("j"), Some(3), Some("disk")));
        let body = futures::stream::iter(["some ", "bytes"]).map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        rig.hub.read_answer(&fake.session, asked.id, Ok(body.boxed())).await.unwrap();
        assert!(matches!(rig.hub.read_answer("another", asked.id, Err(failure(Class::Retry, ""))).await, Err(Error::Conflict(_))));
    };
    let reader = async { rig.hub.read(question()).await.unwrap().try_collect::<Vec<Bytes>>().await.unwrap().concat() };
    let (answer, ()) = tokio::join!(reader, agent_side);
    assert_eq!(answer, b"some bytes");
    rig.clock.advance(LEASE + Duration::from_secs(5));
    rig.until(|info| info.state == JobState::Degraded).await;
    assert_eq!(reason(rig.hub.read(question()).await), "agent 'a', which holds job 'j', is offline");
}

/// A hub that closes lets every wait go, refuses new work, and its store can be opened at once.
#[tokio::test]
async fn a_closed_hub_is_gone() {
    let rig = Rig::new().await;
    let fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    let (polled, ()) = tokio::join!(fake.poll(30_000), async {
        tokio::task::yield_now().await;
        rig.hub.close().await;
    });
    assert_eq!(polled, HubResponse::Commands(Vec::new()));
    assert!(matches!(rig.hub.create_job(new_job("j", DesiredState::Running)).await, Err(Error::Unavailable(_))));
    assert!(matches!(fake.poll(0).await, HubResponse::Refused(refusal) if refusal.class == Class::Retry));
    rig.hub.close().await;
    let again = Hub::open(options(rig.dir.path())).await.unwrap();
    assert_eq!(again.agents().len(), 1);
    again.close().await;
}

/// C51: an agent that came back with another data directory does not have the rows, and its empty
/// answer must not stand for them.
#[tokio::test]
async fn another_data_directory_is_not_read() {
    let rig = Rig::new().await;
    let mut fake = Fake::arrive(&rig.hub, "boot", &[]).await;
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    fake.run(1).await;
    fake.report(1, AttemptState::Finished).await;
    rig.clock.advance(LEASE + Duration::from_secs(5));
    rig.hub.seen(|view| view.agents.values().any(|agent| agent.state == "offline").then_some(())).await.unwrap();
    let swapped = register("a", "later", "another disk", &[]);
    assert!(matches!(rig.hub.agent_call(AgentRequest::Register(swapped)).await, HubResponse::Registered(_)));
    let question = question();
    let refused = rig.hub.read(question).await.err().unwrap().to_string();
    assert!(refused.contains("data directory 'disk'") && refused.contains("'another disk'"), "{refused}");
}

/// HUB-2, C51: to a hub whose store was lost, an agent tells how far attempts have gone. A job made
/// anew begins above them, and does not take a lost namesake's state for its own.
#[tokio::test]
async fn a_hub_without_memory_begins_above_what_agents_know() {
    let rig = Rig::new().await;
    let mut arrival = register("a", "boot", "disk", &[]);
    arrival.last_attempt = attempt(7);
    let HubResponse::Registered(done) = rig.hub.agent_call(AgentRequest::Register(arrival)).await else { panic!("registered") };
    let mut fake = Fake { hub: rig.hub.clone(), session: done.session, sequence: 0 };
    rig.hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    let command = fake.run(8).await;
    let Action::Start(start) = &command.action else { panic!("a start") };
    assert_eq!(start.restore, Restore::New);
}

/// JOB-8: a job with faults is refused before anything is stored, with every fault.
#[tokio::test]
async fn a_wrong_job_is_refused() {
    let rig = Rig::new().await;
    let mut wrong = new_job("j", DesiredState::Running);
    wrong.spec.edges.clear();
    assert!(matches!(rig.hub.validate(&wrong.spec), Err(Error::Invalid(faults)) if !faults.0.is_empty()));
    assert!(matches!(rig.hub.create_job(wrong).await, Err(Error::Invalid(_))));
    assert!(rig.hub.jobs().is_empty());
    assert_eq!(rig.hub.validate(&spec("j")).unwrap().unwrap().job, job("j"));
}

/// A full disk at the hub: verbs fail with a reason and change nothing, running jobs keep their
/// lease, and all goes on when there is room.
#[tokio::test]
async fn a_full_disk_stops_no_job() {
    let (disk, clock) = (Disk::default(), Arc::new(ManualClock::new()));
    let (store, stored) = Store::open_with("disk".to_owned(), disk.opener()).unwrap();
    let hub = Hub::start(store, stored, options(Path::new("unused")), clock.clone()).unwrap();
    let mut fake = Fake::arrive(&hub, "boot", &[]).await;
    hub.create_job(new_job("j", DesiredState::Running)).await.unwrap();
    fake.run(1).await;
    disk.fill(true);
    let refused = hub.create_job(new_job("k", DesiredState::Running)).await.unwrap_err();
    assert!(matches!(&refused, Error::Store { class: Class::Retry, message } if message.starts_with("'disk': ")), "{refused}");
    assert!(hub.job(&job("k")).is_err());
    for sequence in 1..5 {
        clock.advance(Duration::from_secs(10));
        let mut seen = observation("j", 1, AttemptState::Running);
        seen.has_cut = true;
        let told = report(&fake.session, fake.sequence + sequence, vec![seen]);
        let answer = hub.agent_call(AgentRequest::Report(told)).await;
        assert!(matches!(answer, HubResponse::Refused(refusal) if refusal.class == Class::Retry));
        assert_eq!(hub.job(&job("j")).unwrap().state, JobState::Running);
        assert_eq!(hub.agents()[0].state, "online");
    }
    // What has no news needs no disk: a report, and a session of the same process.
    let mut fake = Fake::arrive(&hub, "boot", &[("j", 1)]).await;
    fake.report(1, AttemptState::Running).await;
    disk.fill(false);
    hub.create_job(new_job("k", DesiredState::Running)).await.unwrap();
    fake.report(1, AttemptState::Running).await;
    hub.close().await;
}
