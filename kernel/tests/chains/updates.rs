//! Windows that are given more than once: late rows revise them, and open ones are given early.

use crate::plans::{Shape, binary, col, number, sink};
use crate::shapes::{Results, expected, given, random_windows, shaped};
use crate::windows::{BRISK, random_rows, row, run, run_over_compactions, world};
use crate::world::{Feed, Out, Pace, Rng, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_kernel::chain::Step;
use weir_oracle::Row;
use weir_planner::expr::BinaryOp;
use weir_planner::plan::{JobPlan, UPDATE_COLUMN, WindowWork, Work};
use weir_planner::schema::{Column, ColumnType};
use weir_planner::spec::LatePolicy;
use weir_planner::window::Aligned;

/// The plan of [`shaped`] whose window `change` makes one that gives updates.
fn updating(shape: &Shape, windows: &Aligned, change: impl Fn(&mut WindowWork)) -> JobPlan {
    let mut plan = shaped(shape, windows);
    let [window, out] = plan.chains[1].operators.as_mut_slice() else { panic!("a window and a sink") };
    let Work::Window(work) = &mut window.work else { panic!("a window") };
    change(work);
    assert!(work.marks_updates());
    window.output.0.push(Column { name: UPDATE_COLUMN.to_owned(), ty: ColumnType::Boolean, nullable: false });
    *out = sink(&window.output);
    plan
}

fn revising(shape: &Shape, windows: &Aligned) -> JobPlan {
    updating(shape, windows, |work| work.late = LatePolicy::Update)
}

/// What a table has that each row replaces in.
fn last(outs: &BTreeMap<u32, Out>) -> Results {
    given(outs).into_iter().map(|(id, agg, _)| (id, agg)).collect()
}

/// (window end, key, sum, marker) of all rows in their order.
fn told(world: &World) -> Vec<(i64, i64, i64, bool)> {
    let one = |((_, end, key), agg, marker): (_, weir_oracle::Agg, Option<bool>)| {
        let (end, key): (i64, Option<i64>) = (end, key);
        (end, key.unwrap(), agg.sum.unwrap() as i64, marker.unwrap())
    };
    given(&world.outs).into_iter().map(|((start, end, key), agg, marker)| one(((start, end, key), agg, marker))).collect()
}

fn tumbling() -> Aligned {
    Aligned::Tumbling { size_ms: 1_000, offset_ms: 0 }
}

/// WIN-4, E6, C11: over any batch cut, interleaving and restarts the last row of each window and key is
/// what all its rows within the lateness come to; the first complete one, and no other, is no update;
/// nothing is kept after the lateness.
#[test]
fn the_last_update_is_the_whole_window() {
    let (mut updates, mut added) = (0, 0);
    for seed in 0..50 {
        let mut rng = Rng(60_000 + seed);
        let windows = random_windows(&mut rng);
        let shape = Shape {
            sources: [1, 2, 3][rng.below(3) as usize],
            windows: [1, 2, 3][rng.below(3) as usize],
            bound_ms: [0, 3, 60][rng.below(3) as usize],
            lateness_ms: [0, 5, 500, 3_000][rng.below(4) as usize],
            ..Shape::default()
        };
        let pace = Pace { batch_max: [1, 7, 60][rng.below(3) as usize], sink_slow: 1 + rng.below(3) };
        let rows = random_rows(&mut rng, if windows.keeps_own() { 60 } else { 900 });
        let rows: Vec<Row> = rows.into_iter().map(|row| Row { key: row.key.map(|key| key % 4), ..row }).collect();
        println!("seed {seed}: cut {}, {windows:?}, {shape:?}", pace.batch_max);
        let expected = expected(&rows, &windows, shape.bound_ms, shape.lateness_ms);
        let plan = revising(&shape, &windows);
        let feed = Feed::of(&rows, true);
        let restarts = rng.below(4);
        let world = run_over_compactions(&plan, &feed, &mut rng, pace, restarts, [150, 80]);
        assert_eq!(last(&world.outs), expected.results);
        assert_eq!(world.counted(|task| &task.state_rows), 0, "E6");
        if restarts == 0 {
            assert_eq!(world.counted(|task| &task.rows_late), expected.late);
            assert_eq!(world.counted(|task| &task.rows_late_partly), expected.partly);
        }
        let mut seen: BTreeMap<_, Vec<bool>> = BTreeMap::new();
        given(&world.outs).into_iter().for_each(|(id, _, marker)| seen.entry(id).or_default().push(marker.unwrap()));
        for (id, markers) in seen {
            // A key that came late to a fired window has updates only.
            assert!(markers[1..].iter().all(|update| *update), "{id:?}: {markers:?}");
            updates += markers.len() - 1;
            added += usize::from(markers[0]);
        }
    }
    assert!(updates > 50 && added > 50, "{updates} updates and {added} late keys prove nothing");
}

/// WIN-4: fired at its end; a late row gives its key's whole row again and no other; a late key is an update.
#[test]
fn a_late_row_revises_its_key_alone() {
    let shape = Shape { lateness_ms: 500, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1), row(0, 20, 2, 2)], false);
    let mut world = world(&revising(&shape, &tumbling()), &feed, 1, BRISK).unwrap();
    let step = |world: &mut World, more: Row| {
        let before = told(world).len();
        feed.append(&[more]);
        world.settle().unwrap();
        told(world).split_off(before)
    };
    world.settle().unwrap();
    assert_eq!(step(&mut world, row(0, 999, 1, 4)), []);
    assert_eq!(step(&mut world, row(0, 1_000, 3, 8)), [(1_000, 1, 5, false), (1_000, 2, 2, false)], "at its end, not after its lateness");
    assert_eq!(step(&mut world, row(0, 500, 1, 16)), [(1_000, 1, 21, true)]);
    assert_eq!(step(&mut world, row(0, 500, 4, 32)), [(1_000, 4, 32, true)]);
    assert_eq!(step(&mut world, row(0, 1_499, 3, 64)), []);
    assert_eq!(step(&mut world, row(0, 0, 2, 128)), [(1_000, 2, 130, true)]);
    assert_eq!(world.counted(|task| &task.state_rows), 4);
    assert_eq!(step(&mut world, row(0, 1_500, 3, 256)), []);
    assert_eq!(world.counted(|task| &task.state_rows), 1, "its lateness is over");
    assert_eq!(step(&mut world, row(0, 0, 2, 512)), []);
    assert_eq!(world.counted(|task| &task.rows_late), 1);
}

/// E6: a late row around the deadline ± 1 ms, for every window that it lies in.
#[test]
fn deadlines_by_the_millisecond() {
    let windows = Aligned::Sliding { size_ms: 1_000, slide_ms: 500, offset_ms: 0 };
    for (head, revised) in [
        // Row 600 lies in [0, 1000) and [500, 1500), which take rows until 1300 and 1800.
        (999, vec![]),
        (1_000, vec![1_000]),
        (1_299, vec![1_000]),
        (1_300, vec![]),
        (1_499, vec![]),
        (1_500, vec![1_500]),
        (1_799, vec![1_500]),
        (1_800, vec![]),
    ] {
        let shape = Shape { lateness_ms: 300, bounded: false, ..Shape::default() };
        let feed = Feed::of(&[row(0, 600, 1, 1), row(0, head, 2, 1)], false);
        let mut world = world(&revising(&shape, &windows), &feed, 1, BRISK).unwrap();
        world.settle().unwrap();
        feed.append(&[row(0, 600, 1, 2)]);
        world.settle().unwrap();
        let updates: Vec<i64> = told(&world).into_iter().filter(|(_, _, sum, update)| *update && *sum == 3).map(|(end, ..)| end).collect();
        assert_eq!(updates, revised, "stamp {head}");
        assert_eq!(world.counted(|task| &task.rows_late), u64::from(head == 1_800));
        assert_eq!(world.counted(|task| &task.rows_late_partly), u64::from((1_300..1_800).contains(&head)));
        feed.append(&[row(0, 10_000, 3, 1)]);
        world.settle().unwrap();
        assert_eq!(last(&world.outs), expected(&[row(0, 600, 1, 1), row(0, head, 2, 1), row(0, 600, 1, 2)], &windows, 0, 300).results);
        // Row 10000 lies in two panes' worth of windows, and only in one pane.
        assert_eq!(world.counted(|task| &task.state_rows), 1, "nothing else is left");
    }
}

/// WIN-4: `HAVING` is asked of a revision as of a first row.
#[test]
fn having_applies_to_revisions() {
    let shape = Shape { lateness_ms: 1_000, bounded: false, ..Shape::default() };
    let plan = updating(&shape, &tumbling(), |work| {
        work.late = LatePolicy::Update;
        work.having = Some(binary(BinaryOp::GtEq, col("s"), number(10)));
    });
    let feed = Feed::of(&[row(0, 10, 1, 4), row(0, 20, 2, 12), row(0, 1_000, 3, 50)], false);
    let mut world = world(&plan, &feed, 1, BRISK).unwrap();
    world.settle().unwrap();
    assert_eq!(told(&world), [(1_000, 2, 12, false)]);
    for more in [row(0, 30, 1, 5), row(0, 40, 1, 1), row(0, 50, 2, -5)] {
        feed.append(&[more]);
        world.settle().unwrap();
    }
    assert_eq!(told(&world), [(1_000, 2, 12, false), (1_000, 1, 10, true)]);
}

/// WIN-5: kept windows count at the bound and go first; what went is neither revised nor given.
#[test]
fn kept_windows_count_at_the_bound() {
    let shape = Shape { lateness_ms: 100_000, keys_max: 2, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1), row(0, 1_010, 1, 2)], false);
    let mut world = world(&revising(&shape, &tumbling()), &feed, 1, BRISK).unwrap();
    world.settle().unwrap();
    assert_eq!((told(&world), world.counted(|task| &task.state_rows)), (vec![(1_000, 1, 1, false)], 2));
    feed.append(&[row(0, 2_010, 1, 4)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_evicted), 1);
    feed.append(&[row(0, 20, 1, 8), row(0, 1_020, 1, 16)]);
    world.settle().unwrap();
    assert_eq!(told(&world), [(1_000, 1, 1, false), (2_000, 1, 2, false), (2_000, 1, 18, true)]);
    assert_eq!(world.counted(|task| &task.rows_evicted), 2);
}

/// EV-3, C17: whether a late row came before its window fired hangs on batch cuts and on the other splits;
/// so it never lengthens the time in which its key gets empty windows.
#[test]
fn late_rows_do_not_lengthen_the_horizon() {
    let plan = |shape: &Shape| {
        updating(shape, &tumbling(), |work| {
            work.late = LatePolicy::Update;
            work.empty_within_ms = Some(10_000);
        })
    };
    // Row 500 of key 3 has the stamp 1000: the window [0, 1000) is over by then, and takes it.
    let rows = [row(0, 10, 1, 1), row(0, 1_000, 2, 2), row(0, 500, 3, 4), row(0, 3_000, 2, 8)];
    for batch_max in [1, 60] {
        let world = run(&plan(&Shape { lateness_ms: 5_000, ..Shape::default() }), &rows, 1, Pace { batch_max, sink_slow: 1 }).unwrap();
        let found: Vec<_> = last(&world.outs).into_iter().map(|((_, end, key), agg)| (end, key.unwrap(), agg.sum)).collect();
        let expected = [
            (1_000, 1, Some(1)),
            (1_000, 3, Some(4)),
            (2_000, 1, None),
            (2_000, 2, Some(2)),
            (3_000, 1, None),
            (3_000, 2, None),
            (4_000, 2, Some(8)),
        ];
        assert_eq!(found, expected, "cut {batch_max}");
    }
    // And over any cut and interleaving.
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = Rng(90_000 + seed);
        let rows: Vec<Row> = random_rows(&mut rng, 150).into_iter().map(|row| Row { key: row.key.map(|key| key % 9), ..row }).collect();
        let mut first = None;
        for batch_max in [1, 7, 60] {
            let shape = Shape { sources: 2, windows: 1 + rng.below(3) as u32, lateness_ms: 3_000, ..Shape::default() };
            let world = run(&plan(&shape), &rows, rng.next(), Pace { batch_max, sink_slow: 1 + rng.below(3) }).unwrap();
            let found = last(&world.outs);
            assert_eq!(&found, first.get_or_insert_with(|| found.clone()), "cut {batch_max}");
        }
    }
}

/// WIN-3: open windows that changed are given each interval of the clock, as they stand and as updates; the
/// watermark gives the complete ones.
#[test]
fn open_windows_are_given_early() {
    let windows = Aligned::Sliding { size_ms: 2_000, slide_ms: 1_000, offset_ms: 0 };
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1), row(0, 20, 2, 2)], false);
    let plan = updating(&shape, &windows, |work| work.early_ms = Some(50));
    let mut world = world(&plan, &feed, 1, BRISK).unwrap();
    let rest = |world: &mut World| {
        let mut until = None;
        for _ in 0..4 {
            for chain in &mut world.chains {
                loop {
                    match chain.step() {
                        Step::Worked => {}
                        Step::Idle { until_ns } => {
                            until = until_ns.or(until);
                            break;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        until
    };
    assert_eq!(rest(&mut world), Some(50_000_000), "it asks to be stepped then");
    assert_eq!(told(&world), []);
    world.clock.pass_ms(49);
    rest(&mut world);
    assert_eq!(told(&world), []);
    world.clock.pass_ms(1);
    rest(&mut world);
    let first = [(1_000, 1, 1, true), (1_000, 2, 2, true), (2_000, 1, 1, true), (2_000, 2, 2, true)];
    assert_eq!(told(&world), first);
    world.clock.pass_ms(500);
    rest(&mut world);
    assert_eq!(told(&world).len(), 4, "nothing changed");
    feed.append(&[row(0, 30, 1, 4)]);
    rest(&mut world);
    world.clock.pass_ms(50);
    rest(&mut world);
    assert_eq!(told(&world)[4..], [(1_000, 1, 5, true), (2_000, 1, 5, true)], "only what changed");
    feed.append(&[row(0, 1_000, 1, 8)]);
    rest(&mut world);
    assert_eq!(told(&world)[6..], [(1_000, 1, 5, false), (1_000, 2, 2, false)]);
    world.clock.pass_ms(50);
    rest(&mut world);
    assert_eq!(told(&world)[8..], [(2_000, 1, 13, true), (3_000, 1, 8, true)]);
}

/// WIN-3: after a restart what is open is given early again, since what had been given is not known.
#[test]
fn early_rows_go_on_after_a_restart() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1)], false);
    let plan = updating(&shape, &tumbling(), |work| work.early_ms = Some(50));
    let mut world = world(&plan, &feed, 1, BRISK).unwrap();
    world.steps(40).unwrap();
    let cut = world.epoch().unwrap();
    let (outs, clock) = (world.outs.clone(), world.clock.clone());
    drop(world);
    let mut world = World::new(&plan, &feed, 2, BRISK, &cut, &outs, clock).unwrap();
    world.settle().unwrap();
    world.clock.pass_ms(100);
    world.settle().unwrap();
    world.clock.pass_ms(100);
    world.settle().unwrap();
    assert_eq!(told(&world).last(), Some(&(1_000, 1, 1, true)));
}

/// WIN-3, WIN-4: both at once: the last row is the whole window and only the complete one is no update.
#[test]
fn early_and_late_together() {
    for seed in 0..15 {
        let mut rng = Rng(70_000 + seed);
        let windows = Aligned::Cumulate { max_size_ms: 300, step_ms: 100, offset_ms: 0 };
        let rows = random_rows(&mut rng, 600);
        let shape = Shape { sources: 2, windows: 2, bound_ms: 20, lateness_ms: 200, ..Shape::default() };
        println!("seed {seed}");
        let plan = updating(&shape, &windows, |work| {
            work.late = LatePolicy::Update;
            work.early_ms = Some(1);
        });
        let world = run(&plan, &rows, seed, Pace { batch_max: 20, sink_slow: 2 }).unwrap();
        assert_eq!(last(&world.outs), expected(&rows, &windows, 20, 200).results);
        let mut complete: BTreeMap<_, u32> = BTreeMap::new();
        given(&world.outs)
            .into_iter()
            .filter(|(_, _, marker)| *marker == Some(false))
            .for_each(|(id, ..)| *complete.entry(id).or_default() += 1);
        assert!(complete.values().all(|count| *count == 1) && !complete.is_empty());
        assert_eq!(world.counted(|task| &task.state_rows), 0);
    }
}

/// EPO-7: rows given early are something to record.
#[test]
fn early_rows_open_an_epoch() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1)], false);
    let plan = updating(&shape, &tumbling(), |work| work.early_ms = Some(10_000));
    let mut world = world(&plan, &feed, 1, BRISK).unwrap();
    let changed = |world: &World| {
        let all: Vec<Arc<_>> = world.chains.iter().map(|chain| chain.metrics()).collect();
        all.iter().filter(|metrics| metrics.changed.swap(false, std::sync::atomic::Ordering::SeqCst)).count() > 0
    };
    world.settle().unwrap();
    assert!(changed(&world));
    world.clock.pass_ms(10_000);
    world.settle().unwrap();
    assert!(changed(&world));
    assert_eq!(told(&world), [(1_000, 1, 1, true)]);
}
