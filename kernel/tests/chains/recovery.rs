//! Barriers, cuts and restores: a restart from any cut equals no restart.

use crate::plans::{Shape, windowed};
use crate::windows::{random_rows, random_shape, row, united, world};
use crate::world::{Cut, FakeClock, Feed, Out, Pace, Rng, World, collect};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::state::merge_images;
use weir_oracle::tumble_late;
use weir_planner::plan::JobPlan;

/// What a crash leaves: outputs cut back to the decided lengths.
pub fn crash(outs: &BTreeMap<u32, Out>, cut: &Cut) {
    for (subtask, out) in outs {
        out.0.lock().truncate(cut.lengths.get(subtask).copied().unwrap_or(0) as usize);
    }
}

fn restart(plan: &JobPlan, feed: &Feed, seed: u64, pace: Pace, cut: &Cut, outs: &BTreeMap<u32, Out>) -> World {
    crash(outs, cut);
    World::new(plan, feed, seed, pace, cut, outs, Arc::new(FakeClock::default())).unwrap()
}

/// Compacts the images of each task into one.
pub fn compacted(cut: &Cut) -> Cut {
    let mut cut = cut.clone();
    for images in cut.images.values_mut() {
        let mut by_subtask: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for image in images.iter() {
            by_subtask.entry(image.subtask).or_default().push(image.clone());
        }
        *images = by_subtask.values().map(|images| Arc::new(merge_images(images).unwrap())).collect();
    }
    cut
}

/// B1: crashes at random moments, restores from the last cut, now and then compacted: the same
/// windows, each once, as if nothing had happened.
#[test]
fn restart_equals_no_restart() {
    for seed in 0..40 {
        let mut rng = Rng(5_000 + seed);
        let rows = random_rows(&mut rng, 3_000);
        let shape = random_shape(&mut rng);
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {shape:?}");
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms);
        let plan = if rng.one_in(3) { united(&shape) } else { windowed(&shape) };
        let feed = Feed::of(&rows, true);
        let mut world = world(&plan, &feed, rng.next(), pace).unwrap();
        let (mut cut, mut outs) = (Cut::default(), world.outs.clone());
        for _ in 0..8 {
            world.steps(rng.below(120)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
            }
            world.steps(rng.below(120)).unwrap();
            if rng.one_in(2) {
                let from = if rng.one_in(2) { compacted(&cut) } else { cut.clone() };
                drop(world);
                world = restart(&plan, &feed, rng.next(), pace, &from, &outs);
                cut = from;
                outs.extend(world.outs.clone());
            }
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(collect(&world.outs), expected.windows);
    }
}

/// CKP-9: entries go to the owners of their key groups, each exactly once.
#[test]
fn state_is_dealt_by_key_group() {
    for (seed, (before, after)) in [(2, 3), (3, 1), (1, 8), (8, 2)].into_iter().enumerate() {
        let rows = random_rows(&mut Rng(300 + seed as u64), 2_000);
        let shape = |windows| Shape { windows, size_ms: 400, bound_ms: 10_000, ..Shape::default() };
        let pace = Pace { batch_max: 50, sink_slow: 1 };
        let feed = Feed::of(&rows, true);
        let mut first = world(&windowed(&shape(before)), &feed, 1, pace).unwrap();
        first.steps(150).unwrap();
        first.epoch().unwrap();
        first.steps(100).unwrap();
        let cut = first.epoch().unwrap();
        let mut outs = first.outs.clone();
        let mut second = restart(&windowed(&shape(after)), &feed, 2, pace, &cut, &outs);
        outs.extend(second.outs.clone());
        second.settle().unwrap();
        assert_eq!(collect(&outs), tumble_late(&rows, 400, 0, 10_000, 0).windows, "{before} to {after}");
    }
}

/// EPO-7: after the end barriers are still answered, and the cut says that all has ended; a
/// restart from it gives nothing twice.
#[test]
fn ended_chains_answer_barriers() {
    let rows = [row(0, 1, 1, 1), row(1, 2_000, 2, 1)];
    let shape = Shape { sources: 2, windows: 2, ..Shape::default() };
    let pace = Pace { batch_max: 10, sink_slow: 1 };
    let feed = Feed::of(&rows, true);
    let mut world = world(&windowed(&shape), &feed, 3, pace).unwrap();
    assert!(!world.epoch().unwrap().ended);
    world.settle().unwrap();
    assert!(world.ended());
    let cut = world.epoch().unwrap();
    assert!(cut.ended);
    assert!(cut.positions.values().all(|position| position.ended));
    assert_eq!(cut.positions["0"].time_max_ms, Some(1));
    world.epoch().unwrap();
    let outs = world.outs.clone();
    let mut again = restart(&windowed(&shape), &feed, 4, pace, &cut, &outs);
    again.settle().unwrap();
    assert!(again.ended());
    assert_eq!(collect(&again.outs).len(), 2);
}

/// EPO-6: at most one flush is open in a sink; barriers that come meanwhile wait their turn.
#[test]
fn a_second_barrier_waits_for_the_open_flush() {
    let rows: Vec<_> = (0..300).map(|i| row(i % 3, i64::from(i) * 50, 1, 1)).collect();
    let shape = Shape { sources: 2, windows: 2, bound_ms: 1_000, ..Shape::default() };
    let mut world = world(&windowed(&shape), &Feed::of(&rows, true), 3, Pace { batch_max: 5, sink_slow: 30 }).unwrap();
    world.steps(30).unwrap();
    let order = world.epochs_at_once(4).unwrap();
    assert_eq!(order.len(), 4);
    let each: Vec<(u64, bool)> = (1..=4).flat_map(|sequence| [(sequence, false), (sequence, true)]).collect();
    assert!(order.values().all(|reports| *reports == each), "{order:?}");
}

/// EPO-7: rows and the end open an epoch, quiet does not.
#[test]
fn changed_is_set_by_rows_and_end() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1)], false);
    let mut world = world(&windowed(&shape), &feed, 3, Pace { batch_max: 10, sink_slow: 1 }).unwrap();
    let changed = |world: &World| world.chains.iter().any(|chain| chain.metrics().changed.swap(false, Ordering::SeqCst));
    world.settle().unwrap();
    assert!(changed(&world));
    world.settle().unwrap();
    assert!(!changed(&world));
    feed.append(&[row(0, 2, 1, 1)]);
    world.settle().unwrap();
    assert!(changed(&world));
}

/// STA-3: what did not change is not in the next image; what a window had is gone when it fired.
#[test]
fn images_hold_what_changed() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1), row(0, 2, 2, 1)], false);
    let mut world = world(&windowed(&shape), &feed, 3, Pace { batch_max: 10, sink_slow: 1 }).unwrap();
    let rows_of = |cut: &Cut| cut.images.values().flatten().map(|image| image.rows.num_rows()).collect::<Vec<_>>();
    world.settle().unwrap();
    assert_eq!(rows_of(&world.epoch().unwrap()), [2]);
    assert_eq!(rows_of(&world.epoch().unwrap()), [2], "no image without a change");
    feed.append(&[row(0, 3, 2, 7)]);
    world.settle().unwrap();
    assert_eq!(rows_of(&world.epoch().unwrap()), [2, 1]);
    feed.append(&[row(0, 1_000, 3, 7)]);
    world.settle().unwrap();
    let cut = world.epoch().unwrap();
    assert_eq!(rows_of(&cut), [2, 1, 1]);
    let images = cut.images.values().next().unwrap();
    assert_eq!(images.last().unwrap().retired_ms, 1_000);
    let merged = merge_images(images).unwrap();
    assert_eq!(merged.rows.num_rows(), 1, "the first window is gone");
    assert_eq!(merged.retired_ms, 1_000);
}

/// Stored state of another window size or other columns is refused, not guessed at.
#[test]
fn foreign_state_is_refused() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1)], false);
    let pace = Pace { batch_max: 10, sink_slow: 1 };
    let mut world = world(&windowed(&shape), &feed, 3, pace).unwrap();
    world.settle().unwrap();
    let cut = world.epoch().unwrap();
    let other = Shape { size_ms: 999, ..shape.clone() };
    let rebuilt = |plan: &JobPlan| World::new(plan, &feed, 1, pace, &cut, &BTreeMap::new(), Arc::new(FakeClock::default())).err();
    let error = rebuilt(&windowed(&other)).expect("another size");
    assert_eq!(error.class, weir_planner::error::Class::Corrupt);
    assert!(error.message.contains("'win'"), "{error}");
    let mut plan = windowed(&shape);
    if let weir_planner::plan::Work::Window(work) = &mut plan.chains[1].operators[0].work {
        work.aggregates.remove(0);
    }
    assert_eq!(rebuilt(&plan).expect("other columns").class, weir_planner::error::Class::Corrupt);
}
