//! Splits that keep pace, the clock that moves on what is idle, and what people see of it.

use crate::plans::{Shape, windowed};
use crate::windows::{random_rows, row};
use crate::world::{Cut, FakeClock, Feed, Pace, Rng, World, collect};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_oracle::{Row, tumble_late};

const PACE: Pace = Pace { batch_max: 10, sink_slow: 1 };

fn at(wall_ms: i64, shape: &Shape, feed: &Feed, seed: u64) -> World {
    let clock = Arc::new(FakeClock::default());
    clock.wall_ms.store(wall_ms, Ordering::SeqCst);
    World::new(&windowed(shape), feed, seed, PACE, &Cut::default(), &BTreeMap::new(), clock).unwrap()
}

/// Name, watermark, held and idle of every split.
fn splits(world: &World) -> Vec<(String, i64, bool, bool)> {
    let mut all = Vec::new();
    for chain in &world.chains {
        for split in chain.metrics().splits.read().iter() {
            let flag = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::SeqCst);
            all.push((split.name.clone(), split.watermark_ms.load(Ordering::SeqCst), flag(&split.held), flag(&split.idle)));
        }
    }
    all
}

fn watermark(world: &World, split: usize) -> i64 {
    splits(world)[split].1
}

fn starts(world: &World) -> Vec<i64> {
    collect(&world.outs).keys().map(|(start, _)| *start).collect()
}

/// A row every 10 ms up to a bit under `end_ms`.
fn fast(split: u32, end_ms: i64) -> Vec<Row> {
    (0..end_ms / 10).map(|i| row(split, i * 10, 1, 1)).collect()
}

/// C13, EV-9: a split does not run further ahead of the slowest than the alignment and one batch,
/// be it another split of the task or of another task; it answers barriers, is not idle, and goes
/// on when the slow one has caught up.
#[test]
fn a_fast_split_waits_for_the_slowest() {
    for sources in [1, 2] {
        let shape = Shape { sources, bounded: false, alignment_ms: Some(1_000), lateness_ms: 3_600_000, ..Shape::default() };
        let feed = Feed::of(&fast(0, 100_000), false);
        feed.append(&[row(1, 0, 2, 1)]);
        let mut world = at(0, &shape, &feed, 1);
        world.settle().unwrap();
        let reached = watermark(&world, 0);
        assert!((1_000..=1_000 + 100).contains(&reached), "{sources} tasks: {reached}");
        world.clock.pass_ms(60_000);
        let cut = world.epoch().unwrap();
        world.settle().unwrap();
        assert_eq!(splits(&world), [("0".to_owned(), reached, true, false), ("1".to_owned(), 0, false, false)]);
        assert_eq!(cut.positions["0"].time_max_ms, Some(reached), "it was not read on");
        feed.append(&[row(1, 50_000, 2, 1)]);
        world.settle().unwrap();
        let reached = watermark(&world, 0);
        assert!((51_000..=51_000 + 100).contains(&reached), "{sources} tasks: {reached}");
        assert_eq!(world.counted(|task| &task.rows_late), 0, "no row is late for it");
    }
}

/// EV-9: a split that is idle, or never had a row, holds nobody.
#[test]
fn idle_splits_hold_nobody() {
    let shape = Shape { sources: 2, bounded: false, alignment_ms: Some(1_000), idle_timeout_ms: 100, ..Shape::default() };
    let feed = Feed::of(&fast(0, 50_000), false);
    feed.append(&[row(1, 0, 2, 1)]);
    feed.splits.lock().insert(2, Vec::new());
    let mut world = at(0, &shape, &feed, 2);
    // Too few steps for the clock to come to the timeout.
    world.steps(600).unwrap();
    let slow = splits(&world).iter().position(|split| split.0 == "0").unwrap();
    assert!(watermark(&world, slow) <= 1_100);
    world.clock.pass_ms(200);
    world.settle().unwrap();
    world.clock.pass_ms(200);
    world.settle().unwrap();
    assert_eq!(watermark(&world, slow), 49_990, "{:?}", splits(&world));
}

/// EV-3, EV-9: held or not, the answer is the same, and the input comes to its end.
#[test]
fn alignment_changes_no_answer() {
    for seed in 0..12 {
        let mut rng = Rng(4_000 + seed);
        let rows = random_rows(&mut rng, 400);
        let shape = Shape {
            sources: 1 + rng.below(3) as u32,
            windows: 1 + rng.below(3) as u32,
            size_ms: 100,
            bound_ms: 60,
            alignment_ms: Some(1 + rng.below(200)),
            ..Shape::default()
        };
        let mut world = at(0, &shape, &Feed::of(&rows, true), seed);
        world.settle().unwrap();
        assert!(world.ended(), "seed {seed}: {shape:?}");
        assert_eq!(collect(&world.outs), tumble_late(&rows, 100, 0, 60, 0).windows, "seed {seed}: {shape:?}");
    }
}

/// A minute's windows over a source that goes quiet.
fn quiet() -> Shape {
    Shape { size_ms: 60_000, bounded: false, idle_timeout_ms: 1_000, idle_advance_ms: Some(5_000), windows: 2, ..Shape::default() }
}

/// Passes time in steps that a chain would be stepped at.
fn pass(world: &mut World, ms: u64) {
    for _ in 0..ms / 200 {
        world.clock.pass_ms(200);
        world.settle().unwrap();
    }
}

/// C07, C12, EV-8: two rows in one minute, then silence. The clock closes their window when as much
/// time has passed as new rows would have taken, whether the rows are of now or a year old.
#[test]
fn the_clock_closes_the_last_window() {
    for base in [0, 29_000_000 * 60_000] {
        for wall in [base + 50_000, base + 365 * 86_400_000] {
            let feed = Feed::of(&[row(0, base + 10_000, 1, 1), row(0, base + 50_000, 1, 1)], false);
            let mut world = at(wall, &quiet(), &feed, 3);
            world.settle().unwrap();
            pass(&mut world, 4_000);
            let source = world.chains[0].metrics();
            assert_eq!(source.tasks[0].watermark_ms.load(Ordering::SeqCst), base + 50_000, "idle, but not for long enough");
            assert!(!source.clock_moves.load(Ordering::SeqCst));
            pass(&mut world, 2_000);
            assert!(source.clock_moves.load(Ordering::SeqCst));
            let moved = source.tasks[0].watermark_ms.load(Ordering::SeqCst);
            assert!((base + 55_000..base + 60_000).contains(&moved), "{}", moved - base);
            assert_eq!(starts(&world), [] as [i64; 0], "no more time has passed than that");
            pass(&mut world, 5_000);
            assert_eq!(starts(&world), [base]);
            // A row that comes back is on time by its stamp; its window is gone, and that is told apart.
            feed.append(&[row(0, base + 55_000, 1, 1), row(0, base + 90_000, 1, 1)]);
            world.settle().unwrap();
            assert_eq!((world.counted(|task| &task.rows_late), world.counted(|task| &task.rows_retired)), (1, 1));
            assert!(!source.clock_moves.load(Ordering::SeqCst));
            pass(&mut world, 60_000);
            assert_eq!(starts(&world), [base, base + 60_000]);
        }
    }
}

/// EV-8: the clock never moves the watermark past itself less the bound: rows of now would be behind it.
#[test]
fn the_clock_stops_at_the_wall() {
    let feed = Feed::of(&[row(0, 3_600_000, 1, 1)], false);
    let mut world = at(0, &Shape { bound_ms: 1_000, ..quiet() }, &feed, 4);
    world.settle().unwrap();
    pass(&mut world, 60_000);
    assert_eq!(world.chains[0].metrics().tasks[0].watermark_ms.load(Ordering::SeqCst), 3_599_000);
    assert_eq!(starts(&world), [] as [i64; 0]);
}

/// EV-8: the clock moves a source only when all of its tasks are idle; a source without a row has
/// no time to move on from.
#[test]
fn the_clock_waits_for_every_task() {
    let feed = Feed::of(&[row(0, 50_000, 1, 1), row(1, 50_000, 2, 1)], false);
    let mut world = at(365 * 86_400_000, &Shape { sources: 3, ..quiet() }, &feed, 5);
    world.settle().unwrap();
    for i in 0..20 {
        feed.append(&[row(1, 50_000 + i, 2, 1)]);
        pass(&mut world, 800);
    }
    let of = |world: &World, chain: usize| world.chains[chain].metrics().tasks[0].watermark_ms.load(Ordering::SeqCst);
    assert_eq!((of(&world, 0), of(&world, 2)), (50_000, i64::MIN), "task 1 had rows all the time");
    pass(&mut world, 12_000);
    assert_eq!(starts(&world), [0, 0], "keys 1 and 2");
    assert_eq!(of(&world, 2), i64::MIN);
}

/// EV-6: before the end every task has the greatest watermark of its inputs, whichever ended first.
#[test]
fn the_greatest_watermark_comes_before_the_end() {
    for seed in 0..20 {
        let shape = Shape { sources: 1 + (seed % 3) as u32, windows: 2, ..Shape::default() };
        let rows: Vec<Row> = [(0, 700), (1, 9_300), (2, 4_100), (3, 9_299)].map(|(split, time)| row(split, time, 1, 1)).to_vec();
        let mut world = at(0, &shape, &Feed::of(&rows, true), seed);
        world.settle().unwrap();
        assert!(world.ended());
        for chain in world.chains.iter().filter(|chain| chain.id().0.get() == 1) {
            let metrics = chain.metrics();
            let heard = metrics.inputs.iter().map(|input| input.watermark_ms.load(Ordering::SeqCst)).max();
            assert_eq!(heard, Some(9_300), "seed {seed}");
            assert!(metrics.inputs.iter().all(|input| input.ended.load(Ordering::SeqCst)));
        }
    }
}

/// EV-7: which edge holds a window, and since when.
#[test]
fn what_holds_a_window_can_be_seen() {
    let shape = Shape { sources: 2, bounded: false, idle_timeout_ms: 1_000, ..Shape::default() };
    let feed = Feed::of(&[row(0, 5_000, 1, 1), row(1, 100, 1, 1)], false);
    let mut world = at(1_000_000, &shape, &feed, 6);
    world.settle().unwrap();
    let metrics = world.chains[2].metrics();
    let froms: Vec<&str> = metrics.inputs.iter().map(|input| input.from.as_str()).collect();
    assert_eq!(froms, ["in-0", "in-1"]);
    let told = |metrics: &weir_kernel::metric::ChainMetrics| {
        let heard = |i: usize| metrics.inputs[i].watermark_ms.load(Ordering::SeqCst);
        (heard(0), heard(1), metrics.holder.index.load(Ordering::SeqCst), metrics.holder.since_ms.load(Ordering::SeqCst))
    };
    let (first, second, holder, since) = told(&metrics);
    assert_eq!((first, second, holder), (5_000, 100, 1));
    assert!((1_000_000..1_000_900).contains(&since), "{since}");
    world.clock.pass_ms(500);
    feed.append(&[row(0, 6_000, 1, 1)]);
    world.settle().unwrap();
    assert_eq!(told(&metrics), (6_000, 100, 1, since), "the other one's rows change nothing");
    feed.append(&[row(1, 200, 1, 1)]);
    world.settle().unwrap();
    assert!(told(&metrics).3 >= since + 500, "the watermark has moved");
    world.clock.pass_ms(2_000);
    world.settle().unwrap();
    world.settle().unwrap();
    assert_eq!((told(&metrics).2, metrics.inputs[1].idle.load(Ordering::SeqCst)), (-1, true), "all is idle");
}
