//! Delivery: once a claim, again until done, never what is void.

use super::{Arc, BTreeSet, Entry, Order, Outbox, Restore};
use crate::tests::{agent, at, attempt, generation, job};

fn entry(id: u64, to: &str, of: &str, number: u64, order: Order) -> Entry {
    Entry { id, agent: agent(to), job: job(of), generation: generation(1), attempt: attempt(number), order }
}

fn start() -> Order {
    Order::Start { restore: Restore::Fresh }
}

fn ids(entries: &[Arc<Entry>]) -> Vec<u64> {
    entries.iter().map(|entry| entry.id).collect()
}

/// HUB-4: delivered once a claim, again after it ends, later and later, until it is taken out.
#[test]
fn a_command_comes_again_until_it_is_done() {
    let mut outbox = Outbox::default();
    outbox.push(entry(1, "a", "j", 1, start()));
    assert!(!outbox.may_have_left(1));
    assert_eq!(ids(&outbox.claim(&agent("b"), at(0))), Vec::<u64>::new());
    let mut now = 0;
    for pause in [5_000, 10_000, 20_000, 30_000, 30_000] {
        assert_eq!(ids(&outbox.claim(&agent("a"), at(now))), [1]);
        assert_eq!(ids(&outbox.claim(&agent("a"), at(now + pause - 1))), Vec::<u64>::new());
        assert_eq!(outbox.next_due(at(now)), Some(now + pause));
        assert!(outbox.deliverable(at(now)).is_empty());
        now += pause;
        assert_eq!(outbox.deliverable(at(now)), BTreeSet::from([agent("a")]));
    }
    assert!(outbox.may_have_left(1));
    assert!(outbox.remove(1).is_some());
    assert_eq!(ids(&outbox.claim(&agent("a"), at(now))), Vec::<u64>::new());
}

/// A new session gets everything again at once; another agent's claims stay.
#[test]
fn a_new_session_gets_everything_again() {
    let mut outbox = Outbox::default();
    outbox.push(entry(1, "a", "j", 1, start()));
    outbox.push(entry(2, "b", "k", 1, start()));
    outbox.claim(&agent("a"), at(0));
    outbox.claim(&agent("b"), at(0));
    outbox.release(&agent("a"));
    assert_eq!(ids(&outbox.claim(&agent("a"), at(1))), [1]);
    assert_eq!(ids(&outbox.claim(&agent("b"), at(1))), Vec::<u64>::new());
}

/// A later command makes earlier ones of its job on its agent void.
#[test]
fn superseded_commands_are_dropped() {
    let mut outbox = Outbox::default();
    outbox.push(entry(1, "a", "j", 1, start()));
    assert_eq!(outbox.push(entry(2, "a", "j", 1, Order::Stop)), [1]);
    assert_eq!(outbox.push(entry(3, "a", "j", 2, start())), [2]);
    assert_eq!(outbox.push(entry(4, "b", "j", 3, start())), Vec::<u64>::new(), "another agent still has to stop");
    assert_eq!(outbox.push(entry(5, "a", "k", 9, Order::Stop)), Vec::<u64>::new());
    assert_eq!(outbox.push(entry(6, "a", "j", 2, Order::Forget)), [3]);
    assert_eq!(outbox.push(entry(7, "a", "j", 3, start())), Vec::<u64>::new(), "state still has to be deleted");
    assert_eq!(outbox.iter().map(|entry| entry.id).collect::<Vec<_>>(), [4, 5, 6, 7]);
}

/// A new job of a dropped one's name starts only after the old state has gone.
#[test]
fn a_start_waits_for_the_forget_before_it() {
    let mut outbox = Outbox::default();
    outbox.push(entry(1, "a", "j", 1, Order::Forget));
    outbox.push(entry(2, "a", "j", 2, start()));
    outbox.push(entry(3, "a", "k", 1, start()));
    outbox.push(entry(4, "b", "j", 2, start()));
    assert_eq!(ids(&outbox.claim(&agent("a"), at(0))), [1, 3]);
    assert_eq!(ids(&outbox.claim(&agent("b"), at(0))), [4]);
    assert!(outbox.deliverable(at(1)).is_empty(), "what waits behind a forget does not ring");
    outbox.remove(1);
    assert_eq!(outbox.deliverable(at(1)), BTreeSet::from([agent("a")]));
    assert_eq!(ids(&outbox.claim(&agent("a"), at(1))), [2]);
}

/// HUB-2: after a restart of the hub any command may have left before.
#[test]
fn loaded_commands_may_have_left() {
    let mut outbox = Outbox::load([entry(1, "a", "j", 1, start())]);
    assert!(outbox.may_have_left(1));
    assert_eq!(ids(&outbox.claim(&agent("a"), at(0))), [1]);
}
