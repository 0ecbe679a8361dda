//! What agents say against what is wanted, by scripts and by random orders.

use super::{Action, Class, Command, CommandDone, HubResponse, JobObservation, Level, Now, Register, Restore, World};
use crate::error::Error;
use crate::hub::StartFrom;
use crate::hub::{DesiredState, JobState};
use crate::tests::{LEASE_MS, agent, at, attempt, create, failure, job, observation, refused, register, report, world};
use weir_planner::protocol::{AttemptState, Event, Load, LocalGrant};

mod chaos;

/// Registers, settles and says what the agent finds in the outbox: `start 1 local`, `stop 1`, …
fn arrive(world: &mut World, request: &Register, session: &str, now: Now) -> Vec<String> {
    let response = world.register(request, session.to_owned(), now);
    assert_eq!(refused(&response), None);
    world.settle(now);
    orders(world, session, now)
}

/// What the agent of this session is given now; all of it is done at once.
fn orders(world: &mut World, session: &str, now: Now) -> Vec<String> {
    let (_, commands) = world.claim(session, now).unwrap();
    let word = |command: &Command| match &command.action {
        Action::Start(start) => {
            let restore = match &start.restore {
                Restore::Fresh => "fresh".to_owned(),
                Restore::New => "new".to_owned(),
                Restore::Cut(grant) => {
                    let local =
                        |local: &LocalGrant| format!("local {}{}", local.store_id, if local.must_exist { " must exist" } else { "" });
                    grant.local.as_ref().map(local).unwrap_or_default()
                }
            };
            format!("start {} {restore}", start.attempt)
        }
        Action::Stop { attempt } => format!("stop {attempt}"),
        Action::Forget { attempt, .. } => format!("forget {attempt}"),
        Action::Checkpoint { attempt, id, kind } => format!("{kind} {id} of {attempt}"),
    };
    let words = commands.iter().map(word).collect();
    for command in commands {
        world.command_done(&CommandDone { session: session.to_owned(), id: command.id, result: Ok(()) }, now);
    }
    words
}

fn see(world: &mut World, session: &str, sequence: u64, jobs: Vec<JobObservation>, now: Now) {
    assert_eq!(world.report(&report(session, sequence, jobs), now), HubResponse::Accepted);
    world.settle(now);
}

fn state(world: &World, id: &str) -> (JobState, u64) {
    let intent = &world.jobs[&job(id)].intent;
    (intent.state(), intent.attempt.get())
}

fn said(world: &World, id: &str) -> String {
    let intent = &world.jobs[&job(id)].intent;
    intent.waiting.clone().or(intent.last_error.clone()).unwrap_or_default()
}

/// A world with job `j` running as attempt 1 on agent `a` (store `disk`), session `s`, sequence 1.
fn running() -> World {
    let mut world = world();
    create(&mut world, "j", at(0));
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[]), "s", at(0)), ["start 1 new"]);
    see(&mut world, "s", 1, vec![observation("j", 1, AttemptState::Running)], at(0));
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
    world
}

/// C55: without an agent the job says so, and is placed as soon as one registers.
#[test]
fn a_job_waits_for_an_agent_and_says_so() {
    let mut world = world();
    create(&mut world, "j", at(0));
    assert_eq!(state(&world, "j"), (JobState::Starting, 0));
    assert_eq!(said(&world, "j"), "no agent is online; the job is placed as soon as one registers");
    let events = world.events[&job("j")].items.len();
    world.settle(at(1));
    assert_eq!(world.events[&job("j")].items.len(), events, "a reason is told once");
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[]), "s", at(2)), ["start 1 new"]);
    assert_eq!(said(&world, "j"), "");
}

/// AGT-1, C56: another boot id is a restart, and every job there gets a new attempt at once,
/// uncounted, from its cut.
#[test]
fn a_restarted_agent_gets_new_attempts() {
    let mut world = running();
    for kill in 2..10 {
        let mut seen = observation("j", kill - 1, AttemptState::Running);
        seen.has_cut = true;
        see(&mut world, if kill == 2 { "s".to_owned() } else { format!("s{}", kill - 1) }.as_str(), 2, vec![seen], at(kill));
        let request = register("a", &format!("boot {kill}"), "disk", &[]);
        let given = arrive(&mut world, &request, &format!("s{kill}"), at(kill));
        assert_eq!(given, [format!("start {kill} local disk must exist")]);
    }
    assert_eq!(world.jobs[&job("j")].intent.failures.streak, 0);
}

/// HUB-6, H4: the same boot id is a reconnect; what still runs is confirmed, not restarted, and
/// the old session can no longer speak.
#[test]
fn a_reconnect_confirms_what_runs() {
    let mut world = running();
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(1)), Vec::<String>::new());
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
    let late = report("s", 2, vec![observation("j", 1, AttemptState::Failed(failure(Class::User, "late")))]);
    assert_eq!(refused(&world.report(&late, at(1))), Some(Class::Fenced));
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
    see(&mut world, "t", 1, vec![observation("j", 1, AttemptState::Running)], at(2));
    // One that fenced itself comes back without it.
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[]), "u", at(3)), ["start 2 local disk"]);
}

/// HUB-6: a restart of the hub, here of its memory, changes nothing for a running job.
#[test]
fn a_restarted_hub_confirms_once() {
    let old = running();
    let agents = old.fleet.members().map(|member| member.agent.clone());
    let fleet = crate::fleet::Fleet::load(agents, std::time::Duration::from_millis(LEASE_MS), None, at(0));
    let mut world = World { fleet, ..old };
    world.settle(at(0));
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(1)), Vec::<String>::new());
    see(&mut world, "t", 1, vec![observation("j", 1, AttemptState::Running)], at(2));
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
}

/// C51: the same agent with another data directory has lost the state: the job fails and names both.
#[test]
fn another_data_directory_is_refused() {
    let expected = "the job's state is in data directory 'disk' of agent 'a', but that agent now runs with data directory 'new': bring the old directory back, or start the job fresh to give its state up";
    let mut world = running();
    // While the lease of the one before runs, the name is taken.
    let taken = world.register(&register("a", "boot 2", "new", &[]), "early".to_owned(), at(1));
    assert_eq!(refused(&taken), Some(Class::Retry));
    // Each newcomer but the last finds the lease before it ended.
    let at = |turn: u64| at([0, 10, 10, 20, 30, 30, 30][turn as usize] * LEASE_MS + turn);
    assert_eq!(arrive(&mut world, &register("a", "boot 2", "new", &[]), "t", at(1)), Vec::<String>::new());
    assert_eq!((state(&world, "j"), said(&world, "j").as_str()), ((JobState::Failed, 1), expected));
    // Starting it again as it is does not help, and says the same.
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest, at(2)).unwrap();
    world.settle(at(2));
    assert_eq!((state(&world, "j"), said(&world, "j").as_str()), ((JobState::Failed, 1), expected));
    // The old directory comes back: it goes on.
    arrive(&mut world, &register("a", "boot 3", "disk", &[]), "u", at(3));
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest, at(3)).unwrap();
    world.settle(at(3));
    assert_eq!(orders(&mut world, "u", at(3)), ["start 2 local disk"]);
    // Or its state is given up.
    arrive(&mut world, &register("a", "boot 4", "new", &[]), "v", at(4));
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Fresh, at(4)).unwrap();
    world.settle(at(4));
    assert_eq!(orders(&mut world, "v", at(4)), ["start 3 fresh"]);
    see(&mut world, "v", 1, vec![observation("j", 3, AttemptState::Running)], at(5));
    assert_eq!(arrive(&mut world, &register("a", "boot 5", "new", &[]), "w", at(6)), ["start 4 local new"]);
}

/// A bounded job may end before any report has shown it running: it has a start all the same.
#[test]
fn a_job_that_ends_between_reports_has_started() {
    let mut world = world();
    create(&mut world, "j", at(0));
    arrive(&mut world, &register("a", "boot", "disk", &[]), "s", at(0));
    assert_eq!(world.jobs[&job("j")].intent.started_at_ms, None);
    see(&mut world, "s", 1, vec![observation("j", 1, AttemptState::Finished)], at(1));
    assert_eq!(state(&world, "j"), (JobState::Finished, 1));
    assert_eq!(world.jobs[&job("j")].intent.started_at_ms, Some(at(1).wall_ms));
}

/// SQL-12: until a fresh attempt has been seen running, each grant is fresh again, and a cut seen
/// before that does not count.
#[test]
fn fresh_holds_until_it_has_happened() {
    let mut world = running();
    let mut cut = observation("j", 1, AttemptState::Running);
    cut.has_cut = true;
    see(&mut world, "s", 2, vec![cut], at(1));
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(1)).unwrap();
    assert_eq!(orders(&mut world, "s", at(1)), ["stop 1"]);
    see(&mut world, "s", 3, vec![observation("j", 1, AttemptState::Stopped)], at(2));
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Fresh, at(3)).unwrap();
    world.settle(at(3));
    assert_eq!(orders(&mut world, "s", at(3)), ["start 2 fresh"]);
    let mut starting = observation("j", 2, AttemptState::Starting);
    starting.has_cut = true;
    see(&mut world, "s", 4, vec![starting], at(3));
    assert_eq!(arrive(&mut world, &register("a", "boot 2", "disk", &[]), "t", at(4)), ["start 3 fresh"]);
    see(&mut world, "t", 1, vec![observation("j", 3, AttemptState::Running)], at(5));
    assert_eq!(arrive(&mut world, &register("a", "boot 3", "disk", &[]), "u", at(6)), ["start 4 local disk"]);
}

/// AGT-4, C55: a silent agent's jobs wait for it, since their state is there, and say so within
/// lease and grace; when it returns with them nothing is restarted.
#[test]
fn jobs_wait_for_their_agent() {
    let mut world = running();
    let limit = LEASE_MS + crate::fleet::GRACE_MS;
    world.settle(at(limit - 1));
    assert_eq!(state(&world, "j"), (JobState::Running, 1));
    world.settle(at(limit));
    assert_eq!(state(&world, "j"), (JobState::Degraded, 1));
    assert_eq!(said(&world, "j"), "agent 'a' is offline; the job's state is on it, so the job goes on when that agent returns");
    arrive(&mut world, &register("b", "boot", "other disk", &[]), "b", at(limit + 1));
    assert_eq!(orders(&mut world, "b", at(limit + 1)), Vec::<String>::new(), "another agent does not have the state");
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(limit + 2)), Vec::<String>::new());
    see(&mut world, "t", 1, vec![observation("j", 1, AttemptState::Running)], at(limit + 3));
    assert_eq!((state(&world, "j"), said(&world, "j").as_str()), ((JobState::Running, 1), ""));
}

/// A job may be stopped while its agent is away; the order waits for it, and what it comes back with is stopped.
#[test]
fn a_stop_reaches_an_agent_that_was_away() {
    let mut world = running();
    let limit = LEASE_MS + crate::fleet::GRACE_MS;
    world.settle(at(limit));
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(limit)).unwrap();
    assert_eq!(state(&world, "j"), (JobState::Stopped, 1));
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(limit + 1)), ["stop 1"]);
    see(&mut world, "t", 1, vec![observation("j", 1, AttemptState::Stopped)], at(limit + 2));
    assert_eq!(state(&world, "j"), (JobState::Stopped, 1));
}

/// A dropped job's agent forgets it when it returns, however late (C56).
#[test]
fn a_drop_reaches_an_agent_that_was_away() {
    let mut world = running();
    world.settle(at(LEASE_MS + crate::fleet::GRACE_MS));
    world.drop_job(&job("j")).unwrap();
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(60_000)), ["forget 1"]);
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[]), "u", at(60_001)), Vec::<String>::new());
}

/// C56: what runs though nobody wants it is stopped, and its state is left alone.
#[test]
fn strays_are_stopped() {
    let mut world = running();
    let request = register("a", "boot", "disk", &[("j", 1), ("nobody", 4)]);
    assert_eq!(arrive(&mut world, &request, "t", at(1)), ["stop 4"]);
    see(&mut world, "t", 1, vec![observation("j", 1, AttemptState::Running), observation("nobody", 4, AttemptState::Running)], at(2));
    assert_eq!(orders(&mut world, "t", at(2)), ["stop 4"]);
    see(&mut world, "t", 2, vec![observation("j", 1, AttemptState::Running), observation("nobody", 4, AttemptState::Stopped)], at(3));
    assert_eq!(orders(&mut world, "t", at(3)), Vec::<String>::new());
}

/// C56: an attempt that its agent no longer reports is granted anew, but only after several reports.
#[test]
fn an_attempt_that_is_not_reported_is_gone() {
    let mut world = running();
    for sequence in 2..4 {
        see(&mut world, "s", sequence, Vec::new(), at(sequence));
        assert_eq!(state(&world, "j"), (JobState::Running, 1));
    }
    see(&mut world, "s", 4, vec![observation("j", 1, AttemptState::Running)], at(4));
    for sequence in 5..7 {
        see(&mut world, "s", sequence, Vec::new(), at(sequence));
    }
    assert_eq!(state(&world, "j"), (JobState::Running, 1), "they have to be in a row");
    see(&mut world, "s", 7, Vec::new(), at(7));
    assert_eq!(orders(&mut world, "s", at(7)), ["start 2 local disk"]);
}

/// HUB-4: a start that fails on the agent is a failure of the attempt; one that has ended is not delivered again.
#[test]
fn a_failed_start_command() {
    let mut world = world();
    create(&mut world, "j", at(0));
    world.register(&register("a", "boot", "disk", &[]), "s".to_owned(), at(0));
    world.settle(at(0));
    let (_, commands) = world.claim("s", at(0)).unwrap();
    let result = Err(failure(Class::User, "topic 'x' does not exist"));
    let done = CommandDone { session: "s".to_owned(), id: commands[0].id, result };
    assert_eq!(world.command_done(&done, at(1)), HubResponse::Accepted);
    assert_eq!((state(&world, "j"), said(&world, "j").as_str()), ((JobState::Failed, 1), "topic 'x' does not exist"));
    assert_eq!(world.command_done(&done, at(2)), HubResponse::Accepted, "again is nothing new");
    // A report that comes before the end of the command takes the command back.
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest, at(3)).unwrap();
    world.settle(at(3));
    world.claim("s", at(3)).unwrap();
    see(&mut world, "s", 1, vec![observation("j", 2, AttemptState::Failed(failure(Class::User, "no")))], at(4));
    assert_eq!(world.outbox.iter().count(), 0);
}

/// HUB-4: what an agent was given but has not done is given again to its next session, at once.
#[test]
fn a_new_session_is_given_what_is_not_done() {
    let mut world = running();
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(1)).unwrap();
    let (_, lost_on_the_way) = world.claim("s", at(1)).unwrap();
    assert_eq!(lost_on_the_way.len(), 1);
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", at(2)), ["stop 1"]);
}

/// H6: what an older attempt says changes nothing, not even its events are kept.
#[test]
fn stale_attempts_are_not_heard() {
    let mut world = running();
    arrive(&mut world, &register("a", "boot 2", "disk", &[]), "t", at(1));
    let mut before = world.jobs[&job("j")].intent.clone();
    let events = world.events[&job("j")].items.len();
    let mut stale = observation("j", 1, AttemptState::Failed(failure(Class::User, "old")));
    stale.events.push(Event { at_ms: 0, level: Level::Error, kind: "x".to_owned(), message: "old".to_owned(), operator: None, count: 1 });
    see(&mut world, "t", 1, vec![stale], at(2));
    before.missed_reports = 1; // The current attempt is not in it.
    assert_eq!(world.jobs[&job("j")].intent, before);
    assert_eq!(world.events[&job("j")].items.len(), events);
}

/// HUB-5, P3: a flood of events in one report is cut, and the cut is told.
#[test]
fn a_flood_of_events_is_cut_and_told() {
    let mut world = running();
    let event = Event { at_ms: 0, level: Level::Info, kind: "x".to_owned(), message: "x".to_owned(), operator: None, count: 1 };
    let mut seen = observation("j", 1, AttemptState::Running);
    seen.events = vec![event; 203];
    see(&mut world, "s", 2, vec![seen], at(1));
    let log = &world.events[&job("j")].items;
    assert_eq!(log.iter().filter(|event| event.event.kind == "x").count(), 200);
    assert_eq!(log.back().unwrap().event.message, "3 further events of one report were not kept");
}

/// A report that says nothing new changes nothing that is stored.
#[test]
fn a_quiet_report_is_not_stored() {
    let mut world = running();
    world.take_changes();
    see(&mut world, "s", 2, vec![observation("j", 1, AttemptState::Running)], at(1));
    let (writes, changes) = world.take_changes();
    assert!(writes.is_empty(), "{writes:?}");
    assert!(changes.seen_jobs.contains(&job("j")), "but it is seen");
}

/// A fresh start whose agent is away goes elsewhere, and what it leaves is forgotten there.
#[test]
fn a_fresh_start_may_move() {
    let mut world = running();
    let later = at(LEASE_MS + crate::fleet::GRACE_MS);
    world.settle(later);
    world.register(&register("b", "boot", "other", &[]), "b".to_owned(), later);
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, later).unwrap();
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Fresh, later).unwrap();
    world.settle(later);
    assert_eq!(orders(&mut world, "b", later), ["start 2 fresh"]);
    assert_eq!(world.jobs[&job("j")].assignment.as_ref().unwrap().agent, agent("b"));
    assert_eq!(arrive(&mut world, &register("a", "boot", "disk", &[("j", 1)]), "t", later), ["forget 1"]);
    assert_eq!(world.jobs[&job("j")].intent.attempt, attempt(2));
}

/// A finished job stays finished, and a refusal says how to run it again.
#[test]
fn finished_stays_finished() {
    let mut world = running();
    see(&mut world, "s", 2, vec![observation("j", 1, AttemptState::Finished)], at(1));
    arrive(&mut world, &register("a", "boot 2", "disk", &[]), "t", at(2));
    assert_eq!(state(&world, "j"), (JobState::Finished, 1));
    let refusal = world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Newest, at(3)).unwrap_err();
    assert!(matches!(&refusal, Error::Conflict(message) if message.contains("start it fresh")), "{refusal}");
}

/// PLC-3: of several agents the one with most free memory takes the job.
#[test]
fn the_roomiest_agent_takes_the_job() {
    let mut world = world();
    for (name, used) in [("a", 900), ("b", 100), ("c", 500)] {
        world.register(&register(name, "boot", name, &[]), name.to_owned(), at(0));
        let mut first = report(name, 1, Vec::new());
        first.load = Load { cpu_pct: 0.0, memory_used_bytes: used, memory_total_bytes: 1_000 };
        world.report(&first, at(0));
    }
    create(&mut world, "j", at(0));
    assert_eq!(orders(&mut world, "b", at(0)), ["start 1 new"]);
}
