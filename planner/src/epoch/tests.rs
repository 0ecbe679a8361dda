//! Rounds in order, out of order, late, ended and drained; and the invariants over random orders.

use super::{Action, Decider, Event, Pace};
use crate::error::Class;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};

const PACE: Pace = Pace { epoch_ms: 1_000, timeout_ms: 5_000 };

fn inject(sequence: u64) -> Vec<Action> {
    vec![Action::Inject { sequence }]
}

fn cut(member: usize, sequence: u64) -> Event {
    Event::Cut { member, sequence, ended: false }
}

/// Reports everything of one member; only the last report may cause something.
fn whole(decider: &mut Decider, member: usize, sequence: u64, ended: bool, now: u64) -> Vec<Action> {
    assert_eq!(decider.handle(Event::Cut { member, sequence, ended }, now), []);
    assert_eq!(decider.handle(Event::Flushed { member, sequence }, now), []);
    decider.handle(Event::SegmentsWritten { member, sequence }, now)
}

/// EPO-7: a region in which nothing changed opens no epoch.
#[test]
fn nothing_changed_opens_nothing() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000_000), []);
    assert_eq!(decider.due_ms(), None);
}

/// EPO-3, EPO-4: one round, in order, and the next one not before its turn.
#[test]
fn a_round_is_decided_only_when_nothing_is_missing() {
    let mut decider = Decider::new(PACE, 2, 0, 0);
    assert_eq!(decider.handle(Event::Changed, 10), []);
    assert_eq!(decider.due_ms(), Some(1_000));
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(whole(&mut decider, 1, 1, false, 1_001), []);
    assert_eq!(whole(&mut decider, 0, 1, false, 1_002), [Action::Decide { sequence: 1 }]);
    assert_eq!(decider.handle(Event::Changed, 1_003), []);
    assert_eq!(decider.handle(Event::DecisionStored { sequence: 1 }, 1_004), [Action::Publish { sequence: 1 }]);
    assert_eq!(decider.due_ms(), Some(2_000));
    assert_eq!(decider.handle(Event::Tick, 1_999), []);
    assert_eq!(decider.handle(Event::Tick, 2_000), inject(2));
}

/// EPO-6: a decision that takes longer than an epoch holds the next barrier back.
#[test]
fn no_barrier_while_a_decision_is_being_stored() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    decider.handle(Event::Changed, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(whole(&mut decider, 0, 1, false, 1_000), [Action::Decide { sequence: 1 }]);
    assert_eq!(decider.handle(Event::Changed, 9_000), []);
    assert_eq!(
        decider.handle(Event::DecisionStored { sequence: 1 }, 9_001),
        [Action::Publish { sequence: 1 }, Action::Inject { sequence: 2 }]
    );
}

/// EPO-6: a source that is held back gets its barrier at once when no round is under way, else
/// right after it; a word that came during the round opens nothing early by itself.
#[test]
fn a_full_epoch_does_not_wait_for_its_turn() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    assert_eq!(decider.handle(Event::Full, 10), inject(1));
    assert_eq!(decider.handle(Event::Full, 11), []);
    assert_eq!(whole(&mut decider, 0, 1, false, 12), [Action::Decide { sequence: 1 }]);
    assert_eq!(decider.handle(Event::DecisionStored { sequence: 1 }, 20), [Action::Publish { sequence: 1 }]);
    assert_eq!(decider.due_ms(), Some(1_010));
    assert_eq!(decider.handle(Event::Full, 21), inject(2));
    // The pace counts from this opening.
    assert_eq!(whole(&mut decider, 0, 2, false, 22), [Action::Decide { sequence: 2 }]);
    decider.handle(Event::DecisionStored { sequence: 2 }, 23);
    assert_eq!(decider.handle(Event::Changed, 1_020), []);
    assert_eq!(decider.handle(Event::Tick, 1_021), inject(3));
    // A round that was given up holds it back as well.
    assert_eq!(decider.handle(Event::Tick, 6_021), [Action::AbandonRound { sequence: 3, missing: vec![0] }]);
    assert_eq!(decider.handle(Event::Full, 6_022), []);
    assert_eq!(whole(&mut decider, 0, 3, false, 7_000), inject(4));
}

/// EPO-6, B7: a round that took too long gives up its number; the next one opens as soon as the
/// stragglers have reported, and can then be decided.
#[test]
fn an_abandoned_round_is_followed_by_another_once_its_stragglers_reported() {
    let mut decider = Decider::new(PACE, 2, 0, 0);
    decider.handle(Event::Changed, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(whole(&mut decider, 0, 1, false, 1_100), []);
    assert_eq!(decider.handle(cut(1, 1), 1_100), []);
    assert_eq!(decider.handle(Event::Tick, 6_000), [Action::AbandonRound { sequence: 1, missing: vec![1] }]);
    assert_eq!(decider.handle(Event::Changed, 60_000), []);
    assert_eq!(decider.handle(Event::Flushed { member: 1, sequence: 1 }, 70_000), []);
    assert_eq!(decider.handle(Event::SegmentsWritten { member: 1, sequence: 1 }, 70_001), inject(2));
    assert_eq!(whole(&mut decider, 0, 2, false, 70_002), []);
    assert_eq!(whole(&mut decider, 1, 2, false, 70_003), [Action::Decide { sequence: 2 }]);
}

/// A region is finished only by a decision that holds the end of every member.
#[test]
fn finished_after_the_decision_that_contains_every_end() {
    let mut decider = Decider::new(PACE, 2, 0, 0);
    decider.handle(Event::Changed, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(whole(&mut decider, 0, 1, true, 1_001), []);
    assert_eq!(whole(&mut decider, 1, 1, false, 1_002), [Action::Decide { sequence: 1 }]);
    assert_eq!(decider.handle(Event::Ended, 1_003), []);
    assert_eq!(
        decider.handle(Event::DecisionStored { sequence: 1 }, 1_004),
        [Action::Publish { sequence: 1 }, Action::Inject { sequence: 2 }]
    );
    assert_eq!(whole(&mut decider, 0, 2, true, 1_005), []);
    assert_eq!(whole(&mut decider, 1, 2, true, 1_006), [Action::Decide { sequence: 2 }]);
    assert_eq!(decider.handle(Event::DecisionStored { sequence: 2 }, 1_007), [Action::Publish { sequence: 2 }, Action::Finished]);
    assert!(decider.is_over());
}

/// A stop puts its barrier behind the drain, also when nothing seems to have changed.
#[test]
fn a_drain_decides_one_last_epoch() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    assert_eq!(decider.handle(Event::DrainRequested, 5), [Action::Drain, Action::Inject { sequence: 1 }]);
    assert_eq!(whole(&mut decider, 0, 1, false, 6), [Action::Decide { sequence: 1 }]);
    assert_eq!(decider.handle(Event::DecisionStored { sequence: 1 }, 7), [Action::Publish { sequence: 1 }, Action::Drained]);
}

/// A round that was open when the stop came does not end it: its barrier may lie before the last rows.
#[test]
fn a_drain_during_a_round_waits_for_its_own_epoch() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    decider.handle(Event::Changed, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(decider.handle(Event::DrainRequested, 1_001), [Action::Drain]);
    assert_eq!(whole(&mut decider, 0, 1, false, 1_002), [Action::Decide { sequence: 1 }]);
    assert_eq!(
        decider.handle(Event::DecisionStored { sequence: 1 }, 1_003),
        [Action::Publish { sequence: 1 }, Action::Inject { sequence: 2 }]
    );
    assert_eq!(whole(&mut decider, 0, 2, false, 1_004), [Action::Decide { sequence: 2 }]);
    assert_eq!(decider.handle(Event::DecisionStored { sequence: 2 }, 1_005), [Action::Publish { sequence: 2 }, Action::Drained]);
}

/// A stop that cannot be decided ends in a failure with a reason, not in a wait for ever.
#[test]
fn a_drain_that_takes_too_long_fails() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    decider.handle(Event::DrainRequested, 0);
    let actions = decider.handle(Event::Tick, 5_000);
    assert!(
        matches!(actions.as_slice(), [Action::FailRegion { class: Class::Retry, reason }] if reason.contains("5000 ms")),
        "{actions:?}"
    );
    assert!(decider.is_over());
}

/// The same when the stop finds a round that was given up and whose stragglers never come.
#[test]
fn a_drain_behind_stragglers_that_never_come_fails() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    decider.handle(Event::Changed, 0);
    assert_eq!(decider.handle(Event::Tick, 1_000), inject(1));
    assert_eq!(decider.handle(Event::Tick, 6_000), [Action::AbandonRound { sequence: 1, missing: vec![0] }]);
    assert_eq!(decider.due_ms(), None);
    assert_eq!(decider.handle(Event::DrainRequested, 90_000), [Action::Drain]);
    assert_eq!(decider.due_ms(), Some(95_000));
    assert_eq!(decider.handle(Event::Tick, 94_999), []);
    let actions = decider.handle(Event::Tick, 95_000);
    assert!(
        matches!(actions.as_slice(), [Action::FailRegion { class: Class::Retry, reason }] if reason.contains("given up")),
        "{actions:?}"
    );
}

/// Reports that nobody waits for fail the region instead of being guessed at.
#[test]
fn unexpected_reports_fail_the_region() {
    let reports = [cut(0, 1), cut(7, 2), Event::DecisionStored { sequence: 2 }, Event::Flushed { member: 0, sequence: 2 }];
    for report in reports {
        let mut decider = Decider::new(PACE, 1, 0, 0);
        decider.handle(Event::Changed, 0);
        decider.handle(Event::Tick, 1_000);
        whole(&mut decider, 0, 1, false, 1_001);
        decider.handle(Event::DecisionStored { sequence: 1 }, 1_002);
        decider.handle(Event::Changed, 1_003);
        assert_eq!(decider.handle(Event::Tick, 2_000), inject(2));
        let actions = decider.handle(report.clone(), 2_001);
        assert!(matches!(actions.as_slice(), [Action::FailRegion { class: Class::Bug, .. }]), "{report:?}: {actions:?}");
    }
}

#[test]
fn a_failed_write_fails_the_region() {
    let mut decider = Decider::new(PACE, 1, 0, 0);
    let reason = "no space left on device".to_owned();
    assert_eq!(
        decider.handle(Event::RoundFailed { class: Class::Retry, reason: reason.clone() }, 1),
        [Action::FailRegion { class: Class::Retry, reason }]
    );
}

/// What the random walk may do next.
#[derive(Clone, Copy, Debug)]
enum Stir {
    Wait(u64),
    Changed,
    Full,
    Report(usize),
    Store,
    Drain,
    End,
}

fn stir() -> impl Strategy<Value = Stir> {
    proptest::prop_oneof![
        3 => (0u64..3_000).prop_map(Stir::Wait),
        2 => proptest::strategy::Just(Stir::Changed),
        1 => proptest::strategy::Just(Stir::Full),
        8 => (0usize..100).prop_map(Stir::Report),
        3 => proptest::strategy::Just(Stir::Store),
        1 => proptest::strategy::Just(Stir::Drain),
        1 => proptest::strategy::Just(Stir::End),
    ]
}

/// The outside as the decider cannot see it: which reports are due, which barriers are under way.
struct Outside {
    due: Vec<Event>,
    open: Option<u64>,
    reported: usize,
    deciding: Option<u64>,
    published: u64,
    over: bool,
}

proptest! {
    /// EPO-3, EPO-6: whatever the order of reports, there is never a second barrier while one is
    /// undecided, never a decision before every cut, segment and flush of the round, and never
    /// anything after the end.
    #[test]
    fn never_early_never_two(members in 1usize..5, stirs in proptest::collection::vec(stir(), 1..300)) {
        let mut decider = Decider::new(PACE, members, 0, 0);
        let mut outside = Outside { due: Vec::new(), open: None, reported: 0, deciding: None, published: 0, over: false };
        let (mut now, mut ended) = (0, false);
        for stir in stirs {
            let event = match stir {
                Stir::Wait(ms) => { now += ms; Event::Tick }
                Stir::Changed => Event::Changed,
                Stir::Full => Event::Full,
                Stir::Drain => Event::DrainRequested,
                Stir::End => { ended = true; Event::Ended }
                Stir::Store => match outside.deciding.take() {
                    Some(sequence) => Event::DecisionStored { sequence },
                    None => continue,
                },
                Stir::Report(which) => {
                    if outside.due.is_empty() { continue }
                    let event = outside.due.swap_remove(which % outside.due.len());
                    // Segments and flush of a member follow its cut.
                    if let Event::Cut { member, sequence, .. } = event {
                        outside.due.push(Event::SegmentsWritten { member, sequence });
                        outside.due.push(Event::Flushed { member, sequence });
                    }
                    outside.reported += 1;
                    event
                }
            };
            for action in decider.handle(event, now) {
                prop_assert!(!outside.over, "{action:?} after the end");
                match action {
                    Action::Inject { sequence } => {
                        prop_assert!(outside.deciding.is_none() && outside.due.is_empty(), "two barriers under way");
                        if let Some(before) = outside.open { prop_assert!(sequence > before); }
                        outside.open = Some(sequence);
                        outside.reported = 0;
                        // `ended` is fixed here, so after the Ended event every cut says so.
                        outside.due = (0..members).map(|member| Event::Cut { member, sequence, ended }).collect();
                    }
                    Action::Decide { sequence } => {
                        prop_assert_eq!(Some(sequence), outside.open);
                        prop_assert_eq!(outside.reported, 3 * members);
                        outside.deciding = Some(sequence);
                    }
                    Action::Publish { sequence } => {
                        prop_assert!(sequence > outside.published && outside.deciding.is_none());
                        outside.published = sequence;
                    }
                    Action::Finished => { prop_assert!(ended); outside.over = true; }
                    Action::Drained => outside.over = true,
                    Action::FailRegion { reason, .. } => {
                        prop_assert!(reason.contains("stop"), "{}", reason);
                        outside.over = true;
                    }
                    Action::Drain | Action::AbandonRound { .. } => {}
                }
            }
        }
        prop_assert_eq!(decider.is_over(), outside.over);
    }
}
