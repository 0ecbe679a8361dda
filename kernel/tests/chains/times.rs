//! Idleness, the future guard, late rows of jobs without windows, draining.

use crate::plans::{Shape, column, id, input, plan, sink, source, windowed};
use crate::windows::{row, world};
use crate::world::{Cut, FakeClock, Feed, Pace, World, collect};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::chain::Control;
use weir_oracle::Row;
use weir_planner::expr::{Expr, Typed};
use weir_planner::plan::{MapWork, PlanOperator, Work};
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::spec::Projection;

const PACE: Pace = Pace { batch_max: 10, sink_slow: 1 };

fn starts(world: &World) -> Vec<i64> {
    collect(&world.outs).keys().map(|(start, _)| *start).collect()
}

/// C08: a split that never had a row freezes nothing for longer than its timeout, and a task
/// without a split is idle from the start; what comes back is not late by itself.
#[test]
fn idle_splits_do_not_freeze_windows() {
    let shape = Shape { sources: 3, windows: 2, bounded: false, idle_timeout_ms: 100, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1), row(0, 1_500, 1, 1)], false);
    feed.splits.lock().insert(1, Vec::new());
    let mut world = world(&windowed(&shape), &feed, 1, PACE).unwrap();
    world.settle().unwrap();
    assert_eq!(starts(&world), [] as [i64; 0], "split 1 may still give rows");
    world.clock.pass_ms(200);
    feed.append(&[row(0, 1_501, 1, 1)]);
    world.settle().unwrap();
    assert_eq!(starts(&world), [0]);
    // On time by its own split, but its window is gone: counted apart as late (EV-4).
    feed.append(&[row(1, 20, 2, 1), row(1, 1_600, 2, 1)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_late), 1);
    feed.append(&[row(0, 5_000, 1, 1)]);
    world.settle().unwrap();
    assert_eq!(starts(&world), [0], "split 1 is active again and holds the minimum");
    world.clock.pass_ms(200);
    feed.append(&[row(0, 5_001, 1, 1)]);
    world.settle().unwrap();
    assert_eq!(collect(&world.outs)[&(1_000, Some(2))].count, 1);
}

/// EV-8: all idle, the watermark stays.
#[test]
fn all_idle_keeps_the_watermark() {
    let shape = Shape { bounded: false, idle_timeout_ms: 50, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1)], false);
    let mut world = world(&windowed(&shape), &feed, 1, PACE).unwrap();
    world.settle().unwrap();
    world.clock.pass_ms(10_000);
    world.settle().unwrap();
    assert_eq!(starts(&world), [] as [i64; 0]);
    assert!(world.chains[0].metrics().splits.read()[0].idle.load(Ordering::SeqCst));
}

/// C09: one row from the future is left out and counted; honest rows after it count.
#[test]
fn the_future_is_guarded() {
    let minute = 60_000;
    let shape = Shape { size_ms: minute, lateness_ms: minute, bounded: true, max_future_ms: Some(3_600_000), ..Shape::default() };
    let mut rows: Vec<Row> = [0, 2].map(|m| row(0, m * minute, 1, 1)).to_vec();
    rows.push(row(0, 24 * 60 * minute, 1, 1));
    rows.extend((3..13).map(|m| row(0, m * minute, 1, 1)));
    for batch_max in [1, 100] {
        let clock = Arc::new(FakeClock::default());
        clock.wall_ms.store(13 * minute, Ordering::SeqCst);
        let pace = Pace { batch_max, sink_slow: 1 };
        let mut world = World::new(&windowed(&shape), &Feed::of(&rows, true), 1, pace, &Cut::default(), &BTreeMap::new(), clock).unwrap();
        world.settle().unwrap();
        let found = collect(&world.outs);
        assert_eq!(found.keys().map(|(start, _)| start / minute).collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(world.counted(|task| &task.rows_late), 0);
        assert_eq!(world.chains[0].metrics().splits.read()[0].rows_error.load(Ordering::SeqCst), 1);
    }
}

/// EV-4: in a job without windows a row is late when its time plus the lateness is below its stamp.
#[test]
fn jobs_without_windows_judge_at_the_source() {
    let shape = Shape { bound_ms: 100, lateness_ms: 10, ..Shape::default() };
    let plan = plan(vec![(1, vec![source("in", &shape), sink(&input())])], vec![], &shape);
    // Stamps: 0, 900, 900, 900. Row 890 is at the edge, row 889 is late.
    let rows = [row(0, 100, 1, 1), row(0, 1_000, 2, 1), row(0, 890, 3, 1), row(0, 889, 4, 1)];
    for batch_max in [1, 10] {
        let mut world = world(&plan, &Feed::of(&rows, true), 1, Pace { batch_max, sink_slow: 1 }).unwrap();
        world.settle().unwrap();
        assert!(world.ended());
        let given: usize = world.outs[&0].0.lock().iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(given, 3);
        assert_eq!(world.chains[0].metrics().splits.read()[0].rows_late.load(Ordering::SeqCst), 1);
    }
}

/// A drained source takes no more input and ends nothing; barriers are still answered (EV-6).
#[test]
fn drain_stops_intake_and_fires_nothing() {
    let shape = Shape { bounded: true, ..Shape::default() };
    let rows: Vec<Row> = (0..500).map(|i| row(0, i, 1, 1)).collect();
    let mut world = world(&windowed(&shape), &Feed::of(&rows, true), 1, PACE).unwrap();
    world.steps(20).unwrap();
    world.chains[0].control().try_send(Control::Drain).unwrap();
    world.settle().unwrap();
    assert!(!world.ended());
    let cut = world.epoch().unwrap();
    assert!(!cut.ended && !cut.positions["0"].ended);
    assert_eq!(starts(&world), [] as [i64; 0], "no window is closed by a stop");
    let outs = world.outs.clone();
    drop(world);
    let mut again = World::new(&windowed(&shape), &Feed::of(&rows, true), 2, PACE, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
    again.settle().unwrap();
    assert_eq!(collect(&again.outs)[&(0, Some(1))].count, 500);
}

/// EV-8: a split found later does not pull the watermark back, and holds it from then on.
#[test]
fn a_split_found_later_joins_the_minimum() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 10, 1, 1), row(0, 1_200, 1, 1)], false);
    let mut world = world(&windowed(&shape), &feed, 1, PACE).unwrap();
    world.settle().unwrap();
    assert_eq!(starts(&world), [0]);
    feed.append(&[row(1, 1_100, 2, 1)]);
    world.settle().unwrap();
    feed.append(&[row(0, 3_500, 1, 1)]);
    world.settle().unwrap();
    assert_eq!(starts(&world), [0], "split 1 stands at 1100");
    assert_eq!(world.chains[0].metrics().splits.read().len(), 2);
    feed.append(&[row(1, 2_100, 2, 1)]);
    world.settle().unwrap();
    assert_eq!(starts(&world), [0, 1_000, 1_000], "keys 1 and 2");
}

/// CON-4: without event time `__meta_timestamp` is the time of ingestion, and nothing is late.
#[test]
fn processing_time_sources_stamp_the_wall_clock() {
    let shape = Shape::default();
    let mut input_task = source("in", &shape);
    if let Work::Source(work) = &mut input_task.work {
        work.time = None;
    }
    let value = Typed { expr: Expr::Column("__meta_timestamp".to_owned()), ty: ColumnType::BigInt, nullable: false };
    let output = Schema(vec![column("at", ColumnType::BigInt)]);
    let work = MapWork { project: Some(vec![Projection { name: "at".to_owned(), value }]), ..MapWork::default() };
    let map = PlanOperator { id: id("m"), output: output.clone(), work: Work::Map(work) };
    let plan = plan(vec![(1, vec![input_task, map, sink(&output)])], vec![], &shape);
    let clock = Arc::new(FakeClock::default());
    clock.wall_ms.store(777, Ordering::SeqCst);
    let rows = [row(0, 5_000, 1, 1), row(0, 3, 1, 1)];
    let mut world = World::new(&plan, &Feed::of(&rows, true), 1, PACE, &Cut::default(), &BTreeMap::new(), clock).unwrap();
    world.steps(3).unwrap();
    world.settle().unwrap();
    assert!(world.ended());
    let found: Vec<i64> =
        world.outs[&0].0.lock().iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|at| (777..800).contains(at)), "{found:?}");
}
