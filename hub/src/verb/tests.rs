//! What users may do to jobs, and what is refused.

use super::{DesiredState, Error, Level, NewJob, Order, World, Write};
use crate::hub::JobState;
use crate::hub::StartFrom;
use crate::tests::{at, attempt, create, generation, job, new_job, plan, register, world};
use weir_planner::id::JobVersion;

fn submit(world: &mut World, new: NewJob) -> Result<bool, Error> {
    let plan = plan(&new.spec);
    world.create_job(new, Some(plan), at(0))
}

fn conflict(result: Result<bool, Error>) -> String {
    match result {
        Err(Error::Conflict(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// Part 1 of the spec: the same version with equal content is a no-op, with other content a conflict.
#[test]
fn a_version_never_changes() {
    let mut world = world();
    assert!(submit(&mut world, new_job("j", DesiredState::Stopped)).unwrap());
    assert!(!submit(&mut world, new_job("j", DesiredState::Running)).unwrap());
    assert_eq!(world.jobs[&job("j")].intent.state(), JobState::Created, "a repeat changes nothing");
    let mut other = new_job("j", DesiredState::Running);
    other.spec.checkpoint.epoch_ms = 500;
    assert_eq!(
        conflict(submit(&mut world, other.clone())),
        "version 1 of job 'j' exists with other content (checkpoint.epoch_ms): a changed job needs a higher `version`, but upgrade is not available yet, so drop job 'j' and create it again"
    );
    other.spec.version = JobVersion::new(2);
    assert!(conflict(submit(&mut world, other.clone())).contains("upgrade to version 2 is not available yet, so drop job 'j'"));
    world.drop_job(&job("j")).unwrap();
    assert!(submit(&mut world, other.clone()).unwrap());
    other.spec.version = JobVersion::new(1);
    assert_eq!(
        conflict(submit(&mut world, other)),
        "job 'j' is at version 2: version 1 is older, and a job never goes back; submit version 2, or drop job 'j' and create it again"
    );
}

/// API-2: `If-Match` on the generation.
#[test]
fn an_old_generation_is_refused() {
    let mut world = world();
    create(&mut world, "j", at(0));
    let stop = |world: &mut World, expected| {
        world.set_desired(&job("j"), DesiredState::Stopped, Some(generation(expected)), StartFrom::Newest, at(0))
    };
    assert!(matches!(stop(&mut world, 2), Err(Error::Conflict(_))));
    assert_eq!(world.jobs[&job("j")].intent.desired, DesiredState::Running);
    stop(&mut world, 1).unwrap();
    assert_eq!(world.jobs[&job("j")].intent.generation, generation(2));
    assert!(matches!(stop(&mut world, 1), Err(Error::Conflict(_))));
}

/// A dropped job leaves no trace but the order to forget it, and its attempts are never used again.
#[test]
fn a_dropped_job_is_forgotten_on_its_agent() {
    let mut world = world();
    world.register(&register("a", "boot", "store", &[]), "s".to_owned(), at(0));
    create(&mut world, "j", at(0));
    assert_eq!(world.jobs[&job("j")].intent.attempt, attempt(1));
    world.drop_job(&job("j")).unwrap();
    let orders: Vec<_> = world.outbox.iter().map(|entry| (entry.attempt.get(), entry.order.clone())).collect();
    assert_eq!(orders, [(1, Order::Forget)], "the start was taken back");
    assert!(world.events.is_empty());
    create(&mut world, "j", at(0));
    assert_eq!(world.jobs[&job("j")].intent.attempt, attempt(2));
    assert!(matches!(world.drop_job(&job("x")), Err(Error::NotFound { kind: "job", .. })));
}

/// HUB-5: only the last 1,000 events of a job are kept.
#[test]
fn events_are_bounded() {
    let mut world = world();
    create(&mut world, "j", at(0));
    for n in 0..1_500 {
        world.tell(&job("j"), Level::Info, "test", n.to_string(), at(n));
    }
    let log = &world.events[&job("j")];
    assert_eq!(log.items.len(), 1_000);
    assert_eq!(log.items[0].event.message, "500");
    let (puts, deletes): (Vec<_>, Vec<_>) = world
        .take_changes()
        .0
        .into_iter()
        .filter(|w| matches!(w, Write::Event(..)))
        .partition(|w| matches!(w, Write::Event(_, _, Some(_))));
    assert_eq!(puts.len() - deletes.len(), 1_000, "what goes from memory goes from the store");
}
