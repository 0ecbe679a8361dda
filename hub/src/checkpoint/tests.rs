//! Seals, retention, requests and what a start may begin from.

use super::CheckpointState;
use crate::error::Error;
use crate::hub::{DesiredState, NewJob, StartFrom};
use crate::tests::{agent, at, attempt, failure, job, new_job, observation, plan, refused, register, report, spec, world};
use crate::world::World;
use std::collections::BTreeMap;
use weir_planner::error::Class;
use weir_planner::id::{CheckpointId, EpochId, JobVersion, RegionId, TaskId};
use weir_planner::keygroup::KEY_ENCODING_VERSION;
use weir_planner::manifest::{CheckpointKind, MANIFEST_VERSION, Manifest, RegionCut, STATE_FORMAT_VERSION, SegmentRef, TaskSet};
use weir_planner::protocol::{Action, AttemptState, CheckpointDone, Command, CutGrant, HubResponse, Restore, Sealed};
use weir_planner::spec::{Horizon, Recovery};

/// Job `j` runs as attempt 1 on agent `a`, session `s`.
fn running() -> World {
    running_as(new_job("j", DesiredState::Running))
}

/// Likewise, of another spec.
fn running_as(new: NewJob) -> World {
    let mut world = world();
    let compiled = plan(&new.spec);
    world.create_job(new, Some(compiled), at(0)).unwrap();
    world.register(&register("a", "boot", "disk", &[]), "s".to_owned(), at(0));
    world.settle(at(0));
    started(&mut world, "s");
    world.report(&report("s", 1, vec![observation("j", 1, AttemptState::Running)]), at(0));
    world
}

/// The start that the agent of this session is given, which it takes.
fn started(world: &mut World, session: &str) -> Restore {
    let mut restore = None;
    // A start waits until what was to be forgotten is.
    for _ in 0..2 {
        let (_, commands) = world.claim(session, at(0)).unwrap();
        for command in commands {
            world.remove_command(command.id);
            if let Action::Start(start) = command.action {
                restore = Some(start.restore);
            }
        }
    }
    restore.expect("a start")
}

fn manifest(number: u64, sequence: u64) -> Manifest {
    let planned = TaskSet::of(&plan(&spec("j")));
    let cut = RegionCut::empty(EpochId { attempt: attempt(number), sequence });
    Manifest {
        manifest_version: MANIFEST_VERSION,
        state_format: STATE_FORMAT_VERSION,
        key_encoding: KEY_ENCODING_VERSION,
        id: CheckpointId::default(),
        kind: CheckpointKind::Checkpoint,
        job: job("j"),
        version: JobVersion::new(1),
        attempt: attempt(number),
        created_at_ms: 0,
        cuts: (0..planned.regions.len()).map(|region| (RegionId::new(region as u32), cut.clone())).collect(),
        planned,
        results: Vec::new(),
        files: BTreeMap::new(),
    }
}

fn done(session: &str, id: Option<u64>, manifest: Manifest) -> CheckpointDone {
    CheckpointDone {
        session: session.to_owned(),
        job: manifest.job.clone(),
        attempt: manifest.attempt,
        id: id.map(CheckpointId::new),
        kind: manifest.kind,
        started_at_ms: 5,
        align_ms: 1,
        bytes_new: 10,
        result: Ok(manifest),
    }
}

fn sealed(response: HubResponse) -> (u64, Vec<u64>) {
    let HubResponse::Sealed(Sealed { id, retained }) = response else { panic!("{response:?}") };
    (id.get(), retained.iter().map(|manifest| manifest.id.get()).collect())
}

/// CKP-2, B3: only exactly the planned tasks, regions and version seal; the last good one stays what a start begins from.
#[test]
fn only_exactly_the_planned_tasks_seal() {
    let mut world = running();
    assert_eq!(sealed(world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1))), (1, vec![1]));
    let task = |name: &str, subtask| TaskId { operator: weir_planner::id::OperatorId::new(name).unwrap(), subtask };
    let all = [task("source-0", 0), task("sink-0", 0), task("source-0", 1), task("other", 0)];
    // Every subset, with and without a duplicate: two of four tasks are the planned ones.
    for set in 0..16u32 {
        for doubled in [false, true] {
            let mut tasks: Vec<TaskId> =
                all.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, task)| task.clone()).collect();
            if doubled {
                tasks.extend(tasks.first().cloned());
            }
            let exact = set == 3 && !doubled;
            let mut other = manifest(1, 2);
            other.planned.tasks.clone_from(&tasks);
            other.planned.regions = vec![tasks];
            let response = world.checkpoint_done(&done("s", None, other), at(2));
            assert_eq!(matches!(response, HubResponse::Sealed(_)), exact, "set {set} doubled {doubled}");
        }
    }
    let refuse = |world: &mut World, change: fn(&mut Manifest), why: &str| {
        let mut other = manifest(1, 3);
        change(&mut other);
        let HubResponse::Refused(refusal) = world.checkpoint_done(&done("s", None, other), at(3)) else { panic!("{why}") };
        assert!(refusal.message.contains(why), "{}", refusal.message);
        assert_eq!(refusal.class, Class::User);
    };
    refuse(&mut world, |m| m.version = JobVersion::new(2), "it is of version 2, the job is at version 1");
    refuse(&mut world, |m| m.planned.max_parallelism = 64, "64 key groups, the job 128");
    refuse(&mut world, |m| m.cuts.clear(), "the cuts of 0 regions, the job has 1");
    refuse(
        &mut world,
        |m| {
            let task = m.planned.tasks[0].clone();
            let cut = m.cuts.get_mut(&RegionId::new(0)).unwrap();
            cut.segments_mut(&task).push(SegmentRef { name: "x.seg".to_owned(), bytes: 1, rows: 1 });
        },
        "does not say where file x.seg is",
    );
    let last = world.retained(&job("j")).last().map(|kept| kept.cuts[&RegionId::new(0)].epoch.sequence);
    assert_eq!(last, Some(2), "the last good one stays");
    let failed = world.checkpoints_of(&job("j")).filter(|record| record.state == CheckpointState::Failed).count();
    assert_eq!(failed, 31 + 4);
}

/// CKP-2: an answer that was lost is given again; an attempt that is over, or another agent, seals nothing.
#[test]
fn seals_are_idempotent_and_fenced() {
    let mut world = running();
    for _ in 0..3 {
        assert_eq!(sealed(world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1))), (1, vec![1]));
    }
    assert_eq!(sealed(world.checkpoint_done(&done("s", None, manifest(1, 2)), at(1))), (2, vec![1, 2]));
    assert_eq!(refused(&world.checkpoint_done(&done("t", None, manifest(1, 3)), at(1))), Some(Class::Fenced));
    assert_eq!(refused(&world.checkpoint_done(&done("s", None, manifest(2, 3)), at(1))), Some(Class::Fenced));
    world.register(&register("b", "boot", "other", &[]), "b".to_owned(), at(1));
    assert_eq!(refused(&world.checkpoint_done(&done("b", None, manifest(1, 3)), at(1))), Some(Class::Fenced));
    let mut mixed = manifest(1, 3);
    mixed.attempt = attempt(9);
    let told = CheckpointDone { attempt: attempt(1), ..done("s", None, mixed) };
    assert_eq!(refused(&world.checkpoint_done(&told, at(1))), Some(Class::User), "a manifest of another attempt");
}

/// HUB-5, CKP-3: the newest `retention` stay, savepoints stay until they are dropped, and history is bounded.
#[test]
fn retention_keeps_the_newest_and_every_savepoint() {
    let mut world = running();
    let savepoint = |sequence| Manifest { kind: CheckpointKind::Savepoint, ..manifest(1, sequence) };
    assert_eq!(sealed(world.checkpoint_done(&done("s", None, savepoint(1)), at(1))), (1, vec![1]));
    for sequence in 2..6 {
        world.checkpoint_done(&done("s", None, manifest(1, sequence)), at(1));
    }
    // Retention is 3 unless the job says otherwise.
    assert_eq!(sealed(world.checkpoint_done(&done("s", None, manifest(1, 6)), at(1))), (6, vec![1, 4, 5, 6]));
    let states: Vec<String> = world.checkpoints_of(&job("j")).map(|record| record.state.to_string()).collect();
    assert_eq!(states, ["completed", "dropped", "dropped", "completed", "completed", "completed"]);
    assert!(matches!(world.drop_savepoint(CheckpointId::new(6)), Err(Error::NotFound { kind: "savepoint", .. })));
    world.drop_savepoint(CheckpointId::new(1)).unwrap();
    assert!(matches!(world.drop_savepoint(CheckpointId::new(1)), Err(Error::NotFound { .. })));
    for sequence in 7..400 {
        world.checkpoint_done(&done("s", None, manifest(1, sequence)), at(1));
    }
    assert_eq!(world.checkpoints_of(&job("j")).count(), 103);
    // Savepoints outlive their job; the rest goes with it.
    world.checkpoint_done(&done("s", None, savepoint(400)), at(1));
    world.drop_job(&job("j")).unwrap();
    let left: Vec<CheckpointKind> = world.checkpoints_of(&job("j")).map(|record| record.kind).collect();
    assert_eq!(left, [CheckpointKind::Savepoint]);
    // A new job of the name does not begin from it, unless it is named.
    world.create_job(new_job("j", DesiredState::Running), Some(plan(&spec("j"))), at(2)).unwrap();
    assert_eq!(world.candidates(&job("j"), &plan(&spec("j")), None, Recovery::LatestCheckpoint).unwrap(), []);
    let id = world.checkpoints_of(&job("j")).next().unwrap().id;
    assert_eq!(world.candidates(&job("j"), &plan(&spec("j")), Some(id), Recovery::LatestCheckpoint).unwrap().len(), 1);
    world.settle(at(2));
    // The start waits until the former job is forgotten.
    let (_, commands) = world.claim("s", at(2)).unwrap();
    assert!(matches!(commands[..], [Command { action: Action::Forget { .. }, .. }]));
    world.remove_command(commands[0].id);
    assert_eq!(started(&mut world, "s"), Restore::New);
}

/// UPG-1: a checkpoint that is asked for goes to the job's agent; its end makes the record; one whose attempt ended fails.
#[test]
fn asked_checkpoints_are_sent_and_end() {
    let mut world = running();
    let id = world.ask_checkpoint(&job("j"), CheckpointKind::Savepoint, false, at(1)).unwrap();
    assert_eq!(world.ask_checkpoint(&job("j"), CheckpointKind::Savepoint, false, at(1)).unwrap(), id, "asked for twice it is one");
    let (_, commands) = world.claim("s", at(1)).unwrap();
    assert_eq!(commands[0].action, Action::Checkpoint { attempt: attempt(1), id, kind: CheckpointKind::Savepoint });
    world.remove_command(commands[0].id);
    let made = Manifest { kind: CheckpointKind::Savepoint, ..manifest(1, 1) };
    for _ in 0..2 {
        assert_eq!(sealed(world.checkpoint_done(&done("s", Some(id.get()), made.clone()), at(2))), (1, vec![1]));
    }
    let second = world.ask_checkpoint(&job("j"), CheckpointKind::Checkpoint, false, at(3)).unwrap();
    let broke = CheckpointDone { result: Err(failure(Class::Retry, "the store is away")), ..done("s", Some(second.get()), manifest(1, 2)) };
    for _ in 0..2 {
        assert_eq!(world.checkpoint_done(&broke, at(4)), HubResponse::Accepted);
    }
    assert_eq!(world.checkpoints[&second].error.as_deref(), Some("the store is away"));
    // The process is killed before it answers.
    let third = world.ask_checkpoint(&job("j"), CheckpointKind::Checkpoint, false, at(5)).unwrap();
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(6));
    world.settle(at(6));
    world.settle(at(6));
    assert_eq!(world.checkpoints[&third].state, CheckpointState::Failed);
    assert_eq!(world.checkpoints[&third].error.as_deref(), Some("attempt 1 ended before it was complete"));
    // Before anything ran, there is nothing to make one of.
    world.create_job(new_job("k", DesiredState::Stopped), Some(plan(&spec("k"))), at(7)).unwrap();
    let Err(Error::Conflict(why)) = world.ask_checkpoint(&job("k"), CheckpointKind::Savepoint, false, at(7)) else { panic!() };
    assert_eq!(why, "job 'k' has never run: there is nothing to make a savepoint of");
}

/// SQL-12: STOP WITH SAVEPOINT asks for it once the job has stopped.
#[test]
fn a_savepoint_waits_for_the_stop() {
    let mut world = running();
    let id = world.ask_checkpoint(&job("j"), CheckpointKind::Savepoint, true, at(1)).unwrap();
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(1)).unwrap();
    world.settle(at(1));
    let (_, commands) = world.claim("s", at(1)).unwrap();
    assert_eq!(commands.iter().map(|command| command.action.clone()).collect::<Vec<_>>(), [Action::Stop { attempt: attempt(1) }]);
    world.remove_command(commands[0].id);
    world.report(&report("s", 2, vec![observation("j", 1, AttemptState::Stopped)]), at(2));
    world.settle(at(2));
    let (_, commands) = world.claim("s", at(2)).unwrap();
    assert_eq!(commands[0].action, Action::Checkpoint { attempt: attempt(1), id, kind: CheckpointKind::Savepoint });
    let made = Manifest { kind: CheckpointKind::Savepoint, ..manifest(1, 4) };
    assert_eq!(sealed(world.checkpoint_done(&done("s", Some(id.get()), made), at(3))).0, id.get());
}

/// CKP-6, EPO-9, SQL-12: what a start is granted: the cut here and the checkpoints behind it, newest first; one that was named, alone.
#[test]
fn a_start_is_granted_the_cuts_it_may_use() {
    let mut world = running();
    for sequence in [1, 2] {
        world.checkpoint_done(&done("s", None, manifest(1, sequence)), at(1));
    }
    world.register(&register("a", "boot 2", "disk", &[]), "u".to_owned(), at(2));
    world.settle(at(2));
    let Restore::Cut(grant) = started(&mut world, "u") else { panic!() };
    let CutGrant { local, checkpoints } = *grant;
    let local = local.unwrap();
    // A remote agent's job is sealed unless it says otherwise (EPO-8), so only its predecessor's cut counts.
    assert_eq!((local.store_id.as_str(), local.since, local.must_exist), ("disk", Some(attempt(1)), true));
    assert_eq!(checkpoints.iter().map(|manifest| manifest.id.get()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(world.jobs[&job("j")].assignment.as_ref().unwrap().horizon, Horizon::Sealed);
    world.report(&report("u", 1, vec![observation("j", 2, AttemptState::Running)]), at(3));
    let start = |world: &mut World, id| {
        world.set_desired(&job("j"), DesiredState::Running, None, StartFrom::Checkpoint(CheckpointId::new(id)), at(4))
    };
    assert!(matches!(start(&mut world, 1), Err(Error::Conflict(why)) if why.contains("stop it first")));
    world.set_desired(&job("j"), DesiredState::Stopped, None, StartFrom::Newest, at(4)).unwrap();
    world.report(&report("u", 2, vec![observation("j", 2, AttemptState::Stopped)]), at(4));
    assert!(matches!(start(&mut world, 77), Err(Error::Conflict(why)) if why == "job 'j' has no checkpoint or savepoint 77 any more"));
    start(&mut world, 1).unwrap();
    world.settle(at(5));
    let Restore::Cut(grant) = started(&mut world, "u") else { panic!() };
    assert_eq!(grant.local, None, "what came after it is not taken");
    assert_eq!(grant.checkpoints.iter().map(|manifest| manifest.id.get()).collect::<Vec<_>>(), [1]);
}

/// PLC, B8: a sealed job whose agent is gone goes on at another one with the same state store, from its last checkpoint.
#[test]
fn a_sealed_job_moves_when_its_agent_is_gone() {
    let mut world = running();
    world.checkpoint_done(&done("s", None, manifest(1, 1)), at(1));
    let mut other = register("b", "boot", "disk b", &[]);
    other.state_url = "file:///elsewhere".to_owned();
    world.register(&other, "b".to_owned(), at(1));
    world.register(&register("c", "boot", "disk c", &[]), "c".to_owned(), at(1));
    let gone = at(60_000);
    world.report(&report("b", 1, Vec::new()), at(59_000));
    world.settle(gone);
    let said = |world: &World| world.jobs[&job("j")].intent.waiting.clone().unwrap_or_default();
    assert!(said(&world).contains("no other agent that is online has its state store memory:///"), "{}", said(&world));
    world.register(&register("c", "boot", "disk c", &[]), "c2".to_owned(), gone);
    // The choice is by load and name; the first that shares the store must be found among all.
    world.settle(gone);
    let assigned = world.jobs[&job("j")].assignment.clone().unwrap();
    assert_eq!(assigned.agent, agent("c"));
    let Restore::Cut(grant) = started(&mut world, "c2") else { panic!() };
    assert_eq!((grant.local, grant.checkpoints.len()), (None, 1));
    assert_eq!(refused(&world.checkpoint_done(&done("s", None, manifest(1, 9)), gone)), Some(Class::Fenced), "the old one seals no more");
}

mod line;
