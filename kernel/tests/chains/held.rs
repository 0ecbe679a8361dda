//! The open epoch has a bound of bytes: past it a source is held back until the next barrier.

use crate::plans::{Shape, windowed};
use crate::windows::{random_rows, row};
use crate::world::{Cut, FakeClock, Feed, Pace, Rng, World, collect};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::chain::Control;
use weir_oracle::{Row, tumble, tumble_late};

/// What the feed counts for a row.
const ROW_BYTES: u64 = 24;

fn bounded(shape: &Shape, feed: &Feed, pace: Pace, rows: u64) -> World {
    let outs = BTreeMap::new();
    World::bounded(&windowed(shape), feed, 11, pace, &Cut::default(), &outs, Arc::new(FakeClock::default()), rows * ROW_BYTES).unwrap()
}

/// Rows that the source of chain 0 gave.
fn given(world: &World) -> u64 {
    world.chains[0].metrics().tasks[0].rows_out.load(Ordering::SeqCst)
}

fn full(world: &World) -> bool {
    world.chains[0].metrics().full.load(Ordering::SeqCst)
}

/// EPO-6: while a round is not decided the epoch after its barrier grows up to the bound and no
/// further, however long that takes; each barrier lets the source go on, nothing is lost.
#[test]
fn a_source_is_held_back_until_the_next_barrier() {
    let rows: Vec<Row> = (0..205).map(|i| row(0, i * 10, i % 3, i)).collect();
    let feed = Feed::of(&rows, true);
    let mut world = bounded(&Shape::default(), &feed, Pace { batch_max: 1, sink_slow: 1 }, 20);
    world.settle().unwrap();
    assert_eq!((given(&world), full(&world)), (20, true));
    let metrics = world.chains[0].metrics();
    assert!(metrics.changed.load(Ordering::SeqCst), "what holds a source back has changed something, so that a barrier comes");
    assert_eq!(metrics.tasks[0].watermark_ms.load(Ordering::SeqCst), 190, "what was read goes on");
    // The reports of this round are not looked at: it stays undecided.
    world.barrier();
    world.settle().unwrap();
    assert_eq!((given(&world), full(&world)), (40, true));
    world.clock.pass_ms(60_000);
    world.settle().unwrap();
    assert_eq!((given(&world), full(&world)), (40, true));
    let held_ns = metrics.blocked_ns.load(Ordering::SeqCst);
    assert!(held_ns >= 60_000_000_000, "held back is back-pressure: {held_ns}");
    let cut = world.round().unwrap();
    assert!(cut.positions["0"].position == weir_planner::connector::Position::Row(20), "{:?}", cut.positions);
    for round in 2..10 {
        world.epoch().unwrap();
        world.settle().unwrap();
        assert_eq!(given(&world), 20 * (round + 1), "round {round}");
    }
    assert!(!world.ended());
    world.epoch().unwrap();
    world.settle().unwrap();
    assert!(world.ended() && !full(&world));
    assert_eq!(collect(&world.outs), tumble(&rows, 1_000, 0, 0));
}

/// EPO-6: several tasks, each with a bound of its own: with barriers any job comes to its end, with
/// the answer that it has without a bound.
#[test]
fn a_tiny_bound_changes_no_answer() {
    for seed in 0..10 {
        let mut rng = Rng(900 + seed);
        let rows = random_rows(&mut rng, 400);
        let shape =
            Shape { sources: 1 + rng.below(3) as u32, windows: 1 + rng.below(3) as u32, size_ms: 100, bound_ms: 60, ..Shape::default() };
        let pace = Pace { batch_max: 1 + rng.below(9), sink_slow: 1 + rng.below(3) };
        let mut world = bounded(&shape, &Feed::of(&rows, true), pace, 1 + rng.below(40));
        let mut rounds = 0;
        loop {
            world.settle().unwrap();
            if world.ended() {
                break;
            }
            world.epoch().unwrap();
            rounds += 1;
            assert!(rounds <= 400, "seed {seed}: {shape:?}");
        }
        assert!(rounds > 0);
        assert_eq!(collect(&world.outs), tumble_late(&rows, 100, 0, 60, 0).windows, "seed {seed}: {shape:?}");
    }
}

/// EV-8: time in which a source is held back makes no split idle.
#[test]
fn held_back_is_not_idle() {
    let shape = Shape { bounded: false, idle_timeout_ms: 100, ..Shape::default() };
    let rows: Vec<Row> = (0..12).map(|i| row(i64::from(i > 0) as u32, i * 10, 1, 1)).collect();
    let mut world = bounded(&shape, &Feed::of(&rows, false), Pace { batch_max: 1, sink_slow: 1 }, 10);
    let idle = |world: &World| world.chains[0].metrics().splits.read().iter().any(|split| split.idle.load(Ordering::SeqCst));
    world.settle().unwrap();
    assert_eq!((given(&world), full(&world)), (10, true));
    world.clock.pass_ms(60_000);
    world.epoch().unwrap();
    world.settle().unwrap();
    // The counter is looked at every 200 ms.
    assert_eq!((given(&world), full(&world)), (12, false));
    assert!(!idle(&world));
    let before = world.chains[0].metrics().tasks[0].watermark_ms.load(Ordering::SeqCst);
    assert_eq!(before, 0, "the first split holds the watermark: it has not been idle for 100 ms of being asked");
    world.clock.pass_ms(300);
    world.settle().unwrap();
    assert!(idle(&world));
}

/// EV-6: a stop ends what a full epoch waits for; the barrier after it is answered.
#[test]
fn a_full_source_can_be_drained() {
    let rows: Vec<Row> = (0..50).map(|i| row(0, i, 1, 1)).collect();
    let mut world = bounded(&Shape::default(), &Feed::of(&rows, true), Pace { batch_max: 1, sink_slow: 1 }, 20);
    world.settle().unwrap();
    assert!(full(&world));
    world.chains[0].control().try_send(Control::Drain).unwrap();
    let cut = world.epoch().unwrap();
    world.settle().unwrap();
    assert_eq!((given(&world), full(&world), cut.ended), (20, false, false));
}
