//! Which cuts are on the line that a job goes on along, whatever comes late, twice or not at all.

use super::super::CheckpointState;
use super::{done, manifest, running, running_as, sealed, started};
use crate::hub::{DesiredState, StartFrom};
use crate::tests::{agent, at, attempt, job, new_job, observation, plan, register, report, spec};
use crate::world::World;
use weir_planner::id::CheckpointId;
use weir_planner::manifest::{CheckpointKind, Manifest};
use weir_planner::protocol::{Action, AttemptState, CutGrant, HubResponse, Restore};

fn ids(restore: &Restore) -> Vec<u64> {
    match restore {
        Restore::Cut(grant) => grant.checkpoints.iter().map(|m| m.id.get()).collect(),
        Restore::Fresh | Restore::New => Vec::new(),
    }
}

fn stop(world: &mut World, session: &str, sequence: u64, number: u64) {
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(4)).unwrap();
    world.settle(at(4));
    world.report(&report(session, sequence, vec![observation("j", number, AttemptState::Stopped)]), at(4));
    world.settle(at(4));
}

/// CKP-6, EPO-9: After FRESH, what was sealed before it is no candidate, on no path.
#[test]
fn fresh_then_crash_does_not_bring_the_old_state_back() {
    let mut world = running();
    world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1));
    stop(&mut world, "s", 2, 1);
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Fresh, at(5)).unwrap();
    world.settle(at(5));
    assert_eq!(started(&mut world, "s"), Restore::Fresh);
    world.report(&report("s", 3, vec![observation("j", 2, AttemptState::Running)]), at(6));
    // Killed before its first seal.
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(7));
    world.settle(at(7));
    let restore = started(&mut world, "u");
    assert_eq!(ids(&restore), [0u64; 0], "{restore:?}");
}

/// CKP-6, EPO-9: After a start from checkpoint 1, checkpoint 2 is no ancestor, and no candidate.
#[test]
fn a_named_checkpoint_gives_up_the_later_ones() {
    let mut world = running();
    for sequence in [1, 2] {
        world.checkpoint_done(&done("s", None, manifest(1, sequence)), at(1));
    }
    stop(&mut world, "s", 2, 1);
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Checkpoint(CheckpointId::new(1)), at(5)).unwrap();
    world.settle(at(5));
    assert_eq!(ids(&started(&mut world, "s")), [1]);
    world.report(&report("s", 3, vec![observation("j", 2, AttemptState::Running)]), at(6));
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(7));
    world.settle(at(7));
    let restore = started(&mut world, "u");
    assert_eq!(ids(&restore), [1], "{restore:?}");
}

/// SQL-12: A new job of a dropped one's name does not begin from its savepoint unless it is named.
#[test]
fn a_namesake_begins_from_nothing() {
    let mut world = running();
    let savepoint = Manifest { kind: CheckpointKind::Savepoint, ..manifest(1, 1) };
    world.checkpoint_done(&done("s", None, savepoint), at(1));
    world.drop_job(&job("j")).unwrap();
    let (_, commands) = world.claim("s", at(2)).unwrap();
    commands.iter().for_each(|command| drop(world.remove_command(command.id)));
    world.create_job(new_job("j", DesiredState::Running), Some(plan(&spec("j"))), at(3)).unwrap();
    world.settle(at(3));
    assert_eq!(started(&mut world, "s"), Restore::New);
}

/// CKP-2, H1: A seal told again late, after retention gave it up, does not become the newest.
#[test]
fn a_late_duplicate_does_not_go_back() {
    let mut world = running();
    for sequence in 1..5 {
        world.checkpoint_done(&done("s", None, manifest(1, sequence)), at(1));
    }
    let answer = world.checkpoint_done(&done("s", None, manifest(1, 1)), at(2));
    let newest = world.retained(&job("j")).last().map(|m| m.cuts.values().next().unwrap().epoch.sequence);
    assert_eq!(newest, Some(4), "{}", matches!(answer, HubResponse::Sealed(_)));
}

/// CKP-2: A savepoint that was dropped does not come back by its seal told again.
#[test]
fn a_dropped_savepoint_stays_dropped() {
    let mut world = running();
    let id = world.ask_checkpoint(&job("j"), CheckpointKind::Savepoint, false, at(1)).unwrap();
    let made = Manifest { kind: CheckpointKind::Savepoint, ..manifest(1, 1) };
    sealed(world.checkpoint_done(&done("s", Some(id.get()), made.clone()), at(2)));
    world.drop_savepoint(id).unwrap();
    world.checkpoint_done(&done("s", Some(id.get()), made), at(3));
    assert_eq!(world.checkpoints[&id].state, CheckpointState::Dropped);
}

/// UPG-1, B7: A savepoint of a stopped job whose agent is killed half way ends, as failed or asked again.
#[test]
fn a_savepoint_of_a_stopped_job_ends_with_the_process() {
    let mut world = running();
    let id = world.ask_checkpoint(&job("j"), CheckpointKind::Savepoint, true, at(1)).unwrap();
    stop(&mut world, "s", 2, 1);
    let (_, commands) = world.claim("s", at(5)).unwrap();
    // Under way: the command is done, the upload goes on.
    commands.iter().for_each(|command| drop(world.remove_command(command.id)));
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(6));
    world.settle(at(6));
    let (_, again) = world.claim("u", at(6)).unwrap();
    let asked = again.iter().any(|command| matches!(command.action, Action::Checkpoint { .. }));
    assert!(asked || world.checkpoints[&id].state == CheckpointState::Failed, "{:?}", world.checkpoints[&id].state);
}

/// EPO-9: An agent killed twice before the second attempt was opened: nothing sealed yet, and the cut of attempt 1 stays usable.
#[test]
fn an_attempt_that_never_began_does_not_cut_the_line() {
    let mut world = running();
    let mut seen = observation("j", 1, AttemptState::Running);
    seen.has_cut = true;
    world.report(&report("s", 2, vec![seen]), at(1));
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(2));
    world.settle(at(2));
    // Killed before it fetched the start of attempt 2.
    world.register(&register("a", "boot 3", "disk", &[]), "v".to_owned(), at(3));
    world.settle(at(3));
    let Restore::Cut(grant) = started(&mut world, "v") else { panic!("a cut") };
    let CutGrant { local, checkpoints } = *grant;
    assert_eq!((local.unwrap().since, checkpoints.len()), (Some(attempt(1)), 0));
}

/// AGT-4: after a restart of the hub no agent is judged before lease and grace: the job stays.
#[test]
fn a_restarted_hub_does_not_move_at_once() {
    let mut world = running();
    world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1));
    world.register(&register("b", "boot", "disk b", &[]), "b".to_owned(), at(1));
    // The attempt fails, and waits to be tried again; the hub restarts meanwhile.
    let failed = AttemptState::Failed(crate::tests::failure(weir_planner::error::Class::Retry, "away"));
    world.report(&report("s", 2, vec![observation("j", 1, failed)]), at(2));
    let agents: Vec<_> = world.fleet.members().map(|member| member.agent.clone()).collect();
    world.fleet = crate::fleet::Fleet::load(agents, std::time::Duration::from_millis(15_000), None, at(0));
    std::sync::Arc::make_mut(world.jobs.get_mut(&job("j")).unwrap()).intent.retry_at_ms = None;
    world.register(&register("b", "boot", "disk b", &[]), "b2".to_owned(), at(3));
    world.settle(at(3));
    assert_eq!(world.jobs[&job("j")].assignment.as_ref().unwrap().agent, agent("a"));
}

/// PLC-5, B8: an agent whose disk was replaced takes its sealed job from the shared store.
#[test]
fn an_agent_with_a_new_disk_goes_on_from_the_checkpoint() {
    let mut world = running();
    world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1));
    world.settle(at(60_000));
    world.register(&register("a", "boot 2", "new disk", &[]), "u".to_owned(), at(60_001));
    world.settle(at(60_001));
    let intent = &world.jobs[&job("j")].intent;
    assert!(intent.is_live(), "{:?} {:?} {:?}", intent.phase, intent.waiting, intent.last_error);
}

/// CKP-12: a manifest of another state format is neither sealed nor granted.
#[test]
fn another_state_format_is_refused() {
    let mut world = running();
    let other = Manifest { state_format: 2, ..manifest(1, 1) };
    assert!(!matches!(world.checkpoint_done(&done("s", None, other), at(1)), HubResponse::Sealed(_)));
}

/// SQL-12: A seal during a fresh start counts: the next attempt does not delete it.
#[test]
fn a_seal_ends_fresh() {
    let mut world = running();
    stop(&mut world, "s", 2, 1);
    world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Fresh, at(5)).unwrap();
    world.settle(at(5));
    started(&mut world, "s");
    sealed(world.checkpoint_done(&done("s", None, manifest(2, 1)), at(6)));
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(7));
    world.settle(at(7));
    assert_ne!(started(&mut world, "u"), Restore::Fresh);
}

/// CKP-2, B3: a cut that has segments of a task that is not planned does not seal.
#[test]
fn segments_of_an_unplanned_task_do_not_seal() {
    let mut world = running();
    let mut other = manifest(1, 1);
    let task = weir_planner::id::TaskId { operator: weir_planner::id::OperatorId::new("ghost").unwrap(), subtask: 0 };
    let one = weir_planner::manifest::SegmentRef { name: "x.seg".to_owned(), bytes: 1, rows: 1 };
    other.cuts.values_mut().for_each(|cut| cut.segments_mut(&task).push(one.clone()));
    other.files.insert("x.seg".to_owned(), attempt(1));
    assert!(!matches!(world.checkpoint_done(&done("s", None, other), at(1)), HubResponse::Sealed(_)));
}

/// WAL-4: while an agent with an input log on its disk is away the job waits, for so long as it says; then it goes on elsewhere,
/// and what is given up is recorded. A log in the state store, and a disk that is known to be gone, are not waited for.
#[test]
fn a_local_log_is_waited_for() {
    let limit = crate::tests::LEASE_MS + crate::fleet::GRACE_MS;
    let logged = |backend: &str| {
        let mut new = new_job("j", DesiredState::Running);
        let mut spec = serde_json::to_value(&new.spec).unwrap();
        spec["sources"][0]["input_type"] = "http".into();
        spec["sources"][0]["config"] = serde_json::json!({"type": "http", "address": "127.0.0.1:0"});
        spec["sources"][0]["durability"] = serde_json::json!({"enabled": true, "backend": backend, "wal_wait_ms": 100_000});
        new.spec = serde_json::from_value(spec).unwrap();
        let mut world = running_as(new);
        world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1));
        world
    };
    let other = |world: &mut World, now: u64| {
        world.register(&register("c", "boot", "disk c", &[]), format!("c{now}"), at(now));
        world.settle(at(now));
        world.jobs[&job("j")].assignment.clone().unwrap().agent
    };
    let gaps = |world: &World| world.events[&job("j")].items.iter().filter(|event| event.event.kind == "wal_gap").count();
    let mut world = logged("local");
    world.settle(at(limit));
    assert_eq!(other(&mut world, limit + 1), agent("a"));
    let waiting = world.jobs[&job("j")].intent.waiting.clone().unwrap();
    assert!(waiting.contains("'a' is offline") && waiting.contains("wal_wait_ms"), "{waiting}");
    // The other agent stays, and the hub wakes up by itself when the wait is over.
    assert_eq!(other(&mut world, limit + 99_999), agent("a"));
    assert!(world.next_deadline(at(limit + 99_999)).is_some_and(|due| due <= limit + 100_000));
    assert_eq!(gaps(&world), 0);
    assert_eq!(other(&mut world, limit + 100_000), agent("c"));
    assert_eq!(gaps(&world), 1);
    // In the state store it is there for whoever goes on.
    let mut world = logged("object_store");
    world.settle(at(limit));
    assert_eq!(other(&mut world, limit + 1), agent("c"));
    assert_eq!(gaps(&world), 0);
    // A new disk under the old name: there is nothing to wait for.
    let mut world = logged("local");
    world.settle(at(limit));
    world.register(&register("a", "boot 2", "disk 2", &[]), "a2".to_owned(), at(limit + 1));
    world.settle(at(limit + 1));
    assert_eq!(world.jobs[&job("j")].assignment.clone().unwrap().store_id, "disk 2");
    assert_eq!(gaps(&world), 1);
}
