//! Session windows over shuffles and restarts: one answer, that of looking at all rows together.

use crate::plans::{Shape, id, windowed};
use crate::recovery::{compacted, crash};
use crate::windows::{BRISK, random_rows, row, run, run_over_restarts, world};
use crate::world::{FakeClock, Feed, Out, Pace, Rng, World, collect};
use arrow::array::AsArray;
use arrow::datatypes::TimestampMillisecondType;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_oracle::{Agg, Row};
use weir_planner::error::Class;
use weir_planner::plan::{JobPlan, Work};
use weir_planner::spec::OnOverflow;
use weir_planner::window::Windows;

/// The plan of windows with sessions in their place; `size_ms` is the gap.
fn sessions(shape: &Shape) -> JobPlan {
    let mut plan = windowed(shape);
    let windows = plan.chains.iter_mut().flat_map(|chain| &mut chain.operators).find(|operator| operator.id == id("win"));
    let Some(Work::Window(work)) = windows.map(|window| &mut window.work) else { panic!("there is a window") };
    work.windows = Windows::Session { gap_ms: shape.size_ms };
    plan
}

/// By start and key: the end, and what its rows come to.
type Found = BTreeMap<(i64, Option<i64>), (i64, Agg)>;

/// Sessions of all rows that count, and how many are late. Rows are looked at key by key in the order of time.
fn expected(rows: &[Row], shape: &Shape) -> (Found, u64) {
    let (mut largest, mut late) = (BTreeMap::new(), 0);
    let mut keys: BTreeMap<Option<i64>, Vec<(i64, Option<i64>)>> = BTreeMap::new();
    for row in rows {
        let Some(time) = row.time_ms else { continue };
        let most = largest.entry(row.split).or_insert(time);
        *most = time.max(*most);
        if time + shape.size_ms + shape.lateness_ms <= *most - shape.bound_ms {
            late += 1;
        } else {
            keys.entry(row.key).or_default().push((time, row.value));
        }
    }
    let mut found = Found::new();
    for (key, mut rows) in keys {
        rows.sort_unstable();
        let (mut start, mut last) = (rows[0].0, rows[0].0);
        for (time, value) in rows {
            if time - last >= shape.size_ms {
                start = time;
            }
            last = time;
            let (end, agg) = found.entry((start, key)).or_insert((0, Agg::default()));
            *end = last + shape.size_ms;
            agg.count += 1;
            if let Some(value) = value {
                agg.values += 1;
                agg.sum = Some(agg.sum.unwrap_or(0) + i128::from(value));
                agg.min = Some(agg.min.map_or(value, |least| least.min(value)));
                agg.max = Some(agg.max.map_or(value, |most| most.max(value)));
            }
        }
    }
    (found, late)
}

fn found(outs: &BTreeMap<u32, Out>) -> Found {
    let mut ends = BTreeMap::new();
    for batch in outs.values().flat_map(|out| out.0.lock().clone()) {
        let stamp = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().values().to_vec();
        let keys = batch.column_by_name("k").unwrap().as_primitive::<arrow::datatypes::Int64Type>().clone();
        for ((start, end), key) in stamp("window_start").into_iter().zip(stamp("window_end")).zip(keys.iter()) {
            ends.insert((start, key), end);
        }
    }
    collect(outs).into_iter().map(|(at, agg)| (at, (ends[&at], agg))).collect()
}

fn random_shape(rng: &mut Rng) -> Shape {
    Shape {
        sources: [1, 2, 3, 8][rng.below(4) as usize],
        windows: [1, 2, 3, 8][rng.below(4) as usize],
        size_ms: [1, 5, 20, 100, 1_000][rng.below(5) as usize],
        bound_ms: [0, 3, 60, 5_000][rng.below(4) as usize],
        lateness_ms: [0, 0, 5, 500][rng.below(4) as usize],
        ..Shape::default()
    }
}

/// EV-3, WIN-1: same input, same sessions, whatever the batch cut, parallelism and interleaving.
#[test]
fn same_rows_same_sessions() {
    let mut several = 0;
    for seed in 0..60 {
        let mut rng = Rng(11_000 + seed);
        let rows = {
            let count = [1, 50, 800, 4_000][rng.below(4) as usize];
            random_rows(&mut rng, count)
        };
        let shape = random_shape(&mut rng);
        let (expected, late) = expected(&rows, &shape);
        let pace = Pace { batch_max: [1, 7, 300, 4096][rng.below(4) as usize], sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {} rows, {} sessions, cut {}, {shape:?}", rows.len(), expected.len(), pace.batch_max);
        let world = run(&sessions(&shape), &rows, seed, pace).unwrap();
        assert_eq!(found(&world.outs), expected);
        assert_eq!(world.counted(|task| &task.rows_late), late);
        assert_eq!(world.counted(|task| &task.rows_retired), 0);
        assert_eq!(world.counted(|task| &task.state_rows), 0, "fired sessions leave nothing behind");
        several += expected.values().filter(|(_, agg)| agg.count > 1).count();
    }
    assert!(several > 1_000, "{several} sessions of several rows");
}

/// STA-3, B1: crashes at random moments and restores from the last cut, now and then compacted: the
/// same sessions, each once.
#[test]
fn restarts_change_no_session() {
    for seed in 0..40 {
        let mut rng = Rng(12_000 + seed);
        let rows = random_rows(&mut rng, 3_000);
        let shape = random_shape(&mut rng);
        let (expected, _) = expected(&rows, &shape);
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {} sessions, {shape:?}", expected.len());
        let (plan, feed) = (sessions(&shape), Feed::of(&rows, true));
        if seed % 2 == 0 {
            let world = run_over_restarts(&plan, &feed, &mut rng, pace, 6, 200);
            assert_eq!(found(&world.outs), expected);
            continue;
        }
        let mut world = world(&plan, &feed, rng.next(), pace).unwrap();
        for _ in 0..10 {
            world.steps(rng.below(120)).unwrap();
            let mut cut = world.epoch().unwrap();
            if rng.one_in(2) {
                cut = compacted(&cut);
            }
            world.steps(rng.below(120)).unwrap();
            if rng.one_in(2) {
                let outs = world.outs.clone();
                world = World::new(&plan, &feed, rng.next(), pace, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
            }
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(found(&world.outs), expected);
    }
}

/// CKP-9: sessions go to the owners of their key groups, each exactly once.
#[test]
fn sessions_are_dealt_by_key_group() {
    for (seed, (before, after)) in [(2, 3), (3, 1), (1, 8), (8, 2)].into_iter().enumerate() {
        let rows = random_rows(&mut Rng(13_000 + seed as u64), 2_000);
        let shape = |windows| Shape { windows, size_ms: 30, bound_ms: 10_000, ..Shape::default() };
        let pace = Pace { batch_max: 50, sink_slow: 1 };
        let feed = Feed::of(&rows, true);
        let mut world = world(&sessions(&shape(before)), &feed, 7, pace).unwrap();
        world.steps(60).unwrap();
        let cut = world.epoch().unwrap();
        crash(&world.outs, &cut);
        let before_it: BTreeMap<u32, Out> = world.outs.iter().map(|(sink, out)| (1_000 + sink, out.clone())).collect();
        let mut next =
            World::new(&sessions(&shape(after)), &feed, 8, pace, &cut, &BTreeMap::new(), Arc::new(FakeClock::default())).unwrap();
        next.settle().unwrap();
        let mut all = next.outs.clone();
        all.extend(before_it);
        assert_eq!(found(&all), expected(&rows, &shape(after)).0, "{before} to {after}");
    }
}

/// The gap itself ends a session: `t - last >= gap` begins the next, and a row between two joins them.
#[test]
fn the_gap_ends_a_session() {
    let shape = Shape { size_ms: 10, bound_ms: 100, ..Shape::default() };
    let starts = |rows: &[Row]| {
        let found = found(&run(&sessions(&shape), rows, 5, BRISK).unwrap().outs);
        found.iter().map(|((start, _), (end, agg))| (*start, *end, agg.count)).collect::<Vec<_>>()
    };
    assert_eq!(starts(&[row(0, 0, 1, 1), row(0, 9, 1, 1), row(0, 19, 1, 1)]), [(0, 19, 2), (19, 29, 1)]);
    assert_eq!(starts(&[row(0, 0, 1, 1), row(0, 18, 1, 1), row(0, 9, 1, 1)]), [(0, 28, 3)]);
    assert_eq!(starts(&[row(0, 20, 1, 1), row(0, 0, 1, 1), row(0, 10, 1, 1)]), [(0, 10, 1), (10, 20, 1), (20, 30, 1)]);
}

/// EV-3: a session waits a gap longer than its end, until no row that counts can touch it.
#[test]
fn a_session_waits_for_what_may_still_touch_it() {
    let shape = Shape { size_ms: 10, lateness_ms: 5, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 100, 1, 1)], false);
    let mut world = world(&sessions(&shape), &feed, 3, BRISK).unwrap();
    let given = |world: &mut World, rows: &[Row]| {
        feed.append(rows);
        world.settle().unwrap();
        found(&world.outs).len()
    };
    // It ends at 110. A row at 109 counts while its stamp is below 109 + 10 + 5.
    assert_eq!(given(&mut world, &[row(0, 123, 2, 1)]), 0);
    assert_eq!(given(&mut world, &[row(0, 109, 1, 1)]), 0);
    // Now it ends at 119, and is complete from 119 + 10 + 5 - 1 on.
    assert_eq!(given(&mut world, &[row(0, 132, 2, 1)]), 0);
    assert_eq!(given(&mut world, &[row(0, 133, 3, 1)]), 1);
    assert_eq!(found(&world.outs)[&(100, Some(1))], (119, Agg { count: 2, values: 2, sum: Some(2), min: Some(1), max: Some(1) }));
    assert_eq!(world.counted(|task| &task.rows_late), 0);
}

/// WIN-5: at the bound the session that ends first goes, later rows for it are counted, and it never comes.
#[test]
fn the_session_that_ends_first_is_evicted() {
    let shape = Shape { size_ms: 10, bound_ms: 1_000, keys_max: 2, ..Shape::default() };
    let rows = [row(0, 100, 1, 1), row(0, 200, 2, 1), row(0, 300, 3, 1), row(0, 99, 1, 1), row(0, 100, 4, 1), row(0, 201, 2, 1)];
    let world = run(&sessions(&shape), &rows, 3, Pace { batch_max: 1, sink_slow: 1 }).unwrap();
    let left: Vec<_> = found(&world.outs).into_iter().map(|((start, key), (end, agg))| (start, key, end, agg.count)).collect();
    assert_eq!(left, [(200, Some(2), 211, 2), (300, Some(3), 310, 1)]);
    assert!(world.counted(|task| &task.rows_evicted) >= 2);
    // Row by row: how many sessions there are is looked at after each batch.
    let (feed, open) = (Feed::of(&[], false), Shape { bounded: false, ..shape.clone() });
    let mut world = crate::windows::world(&sessions(&open), &feed, 3, BRISK).unwrap();
    for row in rows {
        feed.append(&[row]);
        world.settle().unwrap();
    }
    assert_eq!(world.counted(|task| &task.rows_evicted), 3, "one session and two rows");
    assert_eq!(world.counted(|task| &task.state_rows), 2);
    let shape = Shape { on_overflow: OnOverflow::Fail, ..shape };
    let error = run(&sessions(&shape), &rows, 3, BRISK).err().unwrap();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("more than 2 open sessions"), "{}", error.message);
}

/// EV-4: a row that its stamp does not make late, but that might have touched a session which is
/// gone, is late too and counted apart: only after its split was idle.
#[test]
fn rows_of_sessions_that_are_gone_are_late() {
    let shape = Shape { size_ms: 10, bounded: false, idle_timeout_ms: 10, ..Shape::default() };
    let feed = Feed::of(&[row(0, 5_400, 1, 1), row(1, 100, 2, 2)], false);
    let mut world = world(&sessions(&shape), &feed, 3, BRISK).unwrap();
    world.settle().unwrap();
    world.clock.pass_ms(20);
    world.settle().unwrap();
    feed.append(&[row(1, 105, 2, 3)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_late), 1);
    assert_eq!(world.counted(|task| &task.rows_retired), 1);
    assert_eq!(found(&world.outs)[&(100, Some(2))].1.count, 1);
}

/// E2: a session that would end past the end of time is refused, naming operator and time.
#[test]
fn times_at_the_end_of_time_are_refused() {
    let shape = Shape { size_ms: 10, ..Shape::default() };
    let time = i64::MAX - 20;
    let error = run(&sessions(&shape), &[row(0, time + 1, 1, 1)], 1, BRISK).err().unwrap();
    assert_eq!((error.class, error.message.contains(&format!("event time {} ms", time + 1))), (Class::User, true), "{}", error.message);
    assert_eq!(run(&sessions(&shape), &[row(0, i64::MIN, 1, 1)], 1, BRISK).map(|world| found(&world.outs).len()).ok(), Some(1));
}
