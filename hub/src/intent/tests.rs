//! The state machine of one job, by scripts.

use super::{Attempt, AttemptState, Class, DesiredState, Effect, Intent, JobState, JobVersion, Restart};
use crate::hub::StartFrom;
use crate::tests::{at, attempt, failure, job};

/// A step of a script.
enum Do {
    Start,
    Fresh,
    Stop,
    StopUnsent,
    Grant,
    See(AttemptState),
    Fail(Class),
    Gone,
    Offline,
    /// Moves the clock to this time.
    At(u64),
}

fn restart() -> Restart {
    Restart { max_attempts: 3, window_ms: 10_000, backoff_ms: 100, max_backoff_ms: 400 }
}

fn fresh_intent(desired: DesiredState) -> Intent {
    Intent::new(job("j"), JobVersion::new(1), desired, Attempt::new(0), at(0))
}

/// Runs a script and compares `phase generation attempt` after each step.
fn check(intent: &mut Intent, script: &[(Do, &str)]) {
    let mut now = at(0);
    for (n, (step, expected)) in script.iter().enumerate() {
        match step {
            Do::Start => drop(intent.start(StartFrom::Newest)),
            Do::Fresh => drop(intent.start(StartFrom::Fresh)),
            Do::Stop => drop(intent.stop(true)),
            Do::StopUnsent => drop(intent.stop(false)),
            Do::Grant => {
                assert!(intent.wants_grant(now), "step {n}: no grant is wanted");
                drop(intent.grant("a"));
            }
            Do::See(state) => drop(intent.observe(state, &restart(), now)),
            Do::Fail(class) => drop(intent.observe(&AttemptState::Failed(failure(*class, "boom")), &restart(), now)),
            Do::Gone => drop(intent.gone("gone".to_owned())),
            Do::Offline => drop(intent.agent_lost("a")),
            Do::At(ms) => now = at(*ms),
        }
        let seen = format!("{} {} {}", intent.state(), intent.generation, intent.attempt);
        assert_eq!(seen, *expected, "after step {n}");
    }
}

/// Spec 1.3: the straight way, and the generation rises with each change of intent (HUB-2).
#[test]
fn a_job_goes_through_its_life() {
    let mut intent = fresh_intent(DesiredState::Stopped);
    assert_eq!(intent.state(), JobState::Created);
    check(
        &mut intent,
        &[
            (Do::Start, "starting 2 0"),
            (Do::Start, "starting 2 0"),
            (Do::Grant, "starting 2 1"),
            (Do::See(AttemptState::Starting), "starting 2 1"),
            (Do::See(AttemptState::Running), "running 2 1"),
            (Do::Stop, "stopping 3 1"),
            (Do::Stop, "stopping 3 1"),
            (Do::See(AttemptState::Running), "stopping 3 1"),
            (Do::See(AttemptState::Stopping), "stopping 3 1"),
            (Do::See(AttemptState::Stopped), "stopped 3 1"),
            (Do::Start, "starting 4 1"),
            (Do::Grant, "starting 4 2"),
            (Do::See(AttemptState::Finished), "finished 4 2"),
            (Do::Start, "finished 4 2"),
            (Do::Fresh, "starting 5 2"),
        ],
    );
    assert!(intent.fresh);
}

/// A start during a stop follows the stop; a stop before the command left needs no agent.
#[test]
fn intents_that_cross() {
    check(
        &mut fresh_intent(DesiredState::Running),
        &[
            (Do::Grant, "starting 1 1"),
            (Do::See(AttemptState::Running), "running 1 1"),
            (Do::Stop, "stopping 2 1"),
            (Do::Fresh, "stopping 2 1"),
            (Do::Start, "stopping 3 1"),
            (Do::See(AttemptState::Stopped), "starting 3 1"),
            (Do::Grant, "starting 3 2"),
            (Do::StopUnsent, "stopped 4 2"),
        ],
    );
}

/// `restart`: a passing fault is retried for ever and never counted; the pause doubles to its bound.
#[test]
fn passing_faults_are_not_counted() {
    let mut intent = fresh_intent(DesiredState::Running);
    let mut now = 0;
    for pause in [100, 200, 400, 400, 400, 400] {
        drop(intent.grant("a"));
        drop(intent.observe(&AttemptState::Failed(failure(Class::Retry, "broker is away")), &restart(), at(now)));
        assert_eq!(intent.state(), JobState::Degraded);
        assert_eq!(intent.last_error.as_deref(), Some("broker is away"));
        assert_eq!(intent.retry_at_ms, Some(now + pause));
        assert!(!intent.wants_grant(at(now + pause - 1)));
        now += pause;
        assert!(intent.wants_grant(at(now)));
    }
    assert!(intent.failures.failures_at_ms.is_empty());
    // While it is tried again the job stays degraded until it runs.
    drop(intent.grant("a"));
    assert_eq!(intent.state(), JobState::Degraded);
    drop(intent.observe(&AttemptState::Running, &restart(), at(now)));
    assert_eq!(intent.state(), JobState::Running);
    // An attempt that ran for the whole window begins the pauses anew.
    drop(intent.observe(&AttemptState::Failed(failure(Class::Retry, "away")), &restart(), at(now + 10_000)));
    assert_eq!(intent.retry_at_ms, Some(now + 10_100));
}

/// `restart`: faults of Weir are counted within the window, then the job needs a person.
#[test]
fn counted_faults_end_in_failed() {
    let mut intent = fresh_intent(DesiredState::Running);
    check(
        &mut intent,
        &[
            (Do::Grant, "starting 1 1"),
            (Do::Fail(Class::Bug), "degraded 1 1"),
            (Do::At(100), "degraded 1 1"),
            (Do::Grant, "degraded 1 2"),
            (Do::Fail(Class::Bug), "degraded 1 2"),
            (Do::At(10_050), "degraded 1 2"),
            (Do::Grant, "degraded 1 3"),
            // The first of the three is out of the window by now.
            (Do::Fail(Class::Bug), "degraded 1 3"),
            (Do::At(10_060), "degraded 1 3"),
        ],
    );
    assert_eq!(intent.failures.failures_at_ms.len(), 2);
    drop(intent.grant("a"));
    drop(intent.failed(&failure(Class::Bug, "boom"), &restart(), at(10_060)));
    assert_eq!(intent.state(), JobState::Failed);
    assert_eq!(intent.last_error.as_deref(), Some("boom (failure 3 of 3 within 10000 ms)"));
    // A person starts it again: nothing of before counts.
    drop(intent.start(StartFrom::Newest).unwrap());
    assert_eq!((intent.state(), intent.failures.streak, intent.failures.failures_at_ms.len()), (JobState::Starting, 0, 0));
}

/// Deterministic faults fail at once, whatever the policy says.
#[test]
fn deterministic_faults_fail_at_once() {
    for class in [Class::User, Class::Corrupt] {
        check(
            &mut fresh_intent(DesiredState::Running),
            &[(Do::Grant, "starting 1 1"), (Do::Fail(class), "failed 1 1"), (Do::Stop, "failed 2 1"), (Do::Start, "starting 3 1")],
        );
    }
}

/// Events outside of the job do not count as its failures (H6).
#[test]
fn losses_are_not_failures() {
    let mut intent = fresh_intent(DesiredState::Running);
    check(
        &mut intent,
        &[
            (Do::Grant, "starting 1 1"),
            (Do::See(AttemptState::Running), "running 1 1"),
            (Do::Gone, "starting 1 1"),
            (Do::Grant, "starting 1 2"),
            (Do::See(AttemptState::Running), "running 1 2"),
            (Do::Offline, "degraded 1 2"),
            (Do::See(AttemptState::Running), "running 1 2"),
            (Do::Offline, "degraded 1 2"),
            (Do::Stop, "stopped 2 2"),
            (Do::Start, "starting 3 2"),
            (Do::Grant, "starting 3 3"),
            (Do::See(AttemptState::Running), "running 3 3"),
            (Do::See(AttemptState::Stopped), "starting 3 3"),
            (Do::At(100), "starting 3 3"),
            (Do::Grant, "starting 3 4"),
            (Do::Stop, "stopping 4 4"),
            (Do::Offline, "stopped 4 4"),
        ],
    );
    assert_eq!((intent.failures.streak, intent.last_error.clone()), (0, None));
}

/// A failure on the way to a stop is said, and the job is stopped all the same unless a person is needed.
#[test]
fn a_stop_that_fails() {
    for (class, state) in [(Class::Retry, JobState::Stopped), (Class::Bug, JobState::Stopped), (Class::Corrupt, JobState::Failed)] {
        let mut intent = fresh_intent(DesiredState::Running);
        drop(intent.grant("a"));
        drop(intent.stop(true));
        drop(intent.observe(&AttemptState::Failed(failure(class, "sink is away")), &restart(), at(0)));
        assert_eq!((intent.state(), intent.last_error.as_deref()), (state, Some("sink is away")));
    }
}

/// SQL-12: a fresh start is refused while anything may run, and says what to do first.
#[test]
fn fresh_is_refused_while_it_may_run() {
    let mut intent = fresh_intent(DesiredState::Running);
    drop(intent.grant("a"));
    drop(intent.observe(&AttemptState::Running, &restart(), at(0)));
    assert_eq!(intent.start(StartFrom::Fresh), Err("job 'j' is running: a fresh start deletes its state, so stop it first".to_owned()));
    drop(intent.stop(true));
    assert_eq!(intent.start(StartFrom::Fresh), Err("job 'j' is still stopping: wait for it to be stopped, then start it fresh".to_owned()));
    drop(intent.observe(&AttemptState::Stopped, &restart(), at(0)));
    drop(intent.start(StartFrom::Fresh).unwrap());
    drop(intent.grant("a"));
    assert!(intent.fresh, "a grant alone has deleted nothing");
    drop(intent.observe(&AttemptState::Running, &restart(), at(0)));
    assert!(!intent.fresh);
}

/// An attempt that runs though none is wanted is stopped; its end changes nothing.
#[test]
fn strays_are_stopped_and_change_nothing() {
    let mut intent = fresh_intent(DesiredState::Running);
    drop(intent.grant("a"));
    drop(intent.give_up("no".to_owned()));
    let before = intent.clone();
    assert_eq!(intent.observe(&AttemptState::Running, &restart(), at(0)), vec![Effect::StopAttempt]);
    assert_eq!(intent.observe(&AttemptState::Finished, &restart(), at(0)), Vec::new());
    assert_eq!(intent, before);
}

/// What is kept across a restart of the hub: all but the moments of its steady clock.
#[test]
fn a_pause_ends_with_the_hub() {
    let mut intent = fresh_intent(DesiredState::Running);
    drop(intent.grant("a"));
    drop(intent.failed(&failure(Class::Retry, "away"), &restart(), at(0)));
    let back: Intent = serde_json::from_str(&serde_json::to_string(&intent).unwrap()).unwrap();
    assert_eq!(back.retry_at_ms, None);
    assert!(back.wants_grant(at(0)));
    assert_eq!(Intent { retry_at_ms: intent.retry_at_ms, ..back }, intent);
    assert_eq!(intent.attempt, attempt(1));
}
