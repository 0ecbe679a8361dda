//! Tumbling windows over shuffles: any batch cut, parallelism and interleaving, one answer.

use crate::plans::{Shape, aggregate, column, id, input, plan, sink, source, two_stages, window, windowed};
use crate::recovery::compacted;
use crate::world::{Cut, FakeClock, Feed, Pace, Rng, World, collect};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_oracle::{Agg, Row, tumble, tumble_late};
use weir_planner::error::Class;
use weir_planner::expr::{AggregateFunction, BinaryOp, Expr, Literal};
use weir_planner::plan::{JobPlan, MapWork, PlanOperator, Routing, TimeColumn, Work};
use weir_planner::schema::ColumnType;
use weir_planner::spec::OnOverflow;

pub const BRISK: Pace = Pace { batch_max: 4096, sink_slow: 1 };

pub fn row(split: u32, time: i64, key: i64, value: i64) -> Row {
    Row { split, time_ms: Some(time), key: Some(key), value: Some(value) }
}

/// Rows of several splits with all kinds of disorder, nulls and negative times.
pub fn random_rows(rng: &mut Rng, count: u64) -> Vec<Row> {
    let splits = 1 + rng.below(5) as u32;
    let keys = [1, 3, 40, 2_000][rng.below(4) as usize];
    let jitter = [0, 3, 50, 2_000][rng.below(4) as usize];
    let pace = [0, 1, 30][rng.below(3) as usize];
    let mut heads: Vec<i64> = (0..splits).map(|_| rng.between(-5_000, 1_000)).collect();
    let mut rows = Vec::new();
    for _ in 0..count {
        let split = rng.below(u64::from(splits)) as u32;
        let head = &mut heads[split as usize];
        *head += rng.between(0, pace);
        let head = *head;
        rows.push(Row {
            split,
            time_ms: (!rng.one_in(40)).then(|| head - rng.between(0, jitter)),
            key: (!rng.one_in(20)).then(|| rng.between(-keys, keys)),
            value: (!rng.one_in(10)).then(|| rng.between(-1_000_000, 1_000_000)),
        });
    }
    rows
}

pub fn random_shape(rng: &mut Rng) -> Shape {
    Shape {
        sources: [1, 2, 3, 8][rng.below(4) as usize],
        windows: [1, 2, 3, 8][rng.below(4) as usize],
        size_ms: [1, 10, 100, 1_000, 7_777][rng.below(5) as usize],
        offset_ms: [0, 0, 3, -4, 12_345][rng.below(5) as usize],
        bound_ms: [0, 3, 60, 5_000][rng.below(4) as usize],
        lateness_ms: [0, 0, 5, 500][rng.below(4) as usize],
        ..Shape::default()
    }
}

pub fn world(plan: &JobPlan, feed: &Feed, seed: u64, pace: Pace) -> Result<World, Error> {
    World::new(plan, feed, seed, pace, &Cut::default(), &BTreeMap::new(), Arc::new(FakeClock::default()))
}

/// Runs a bounded feed to its end over so many restarts, each from the last cut with a barrier under way;
/// between them are fewer than `steps` steps and perhaps an epoch.
pub fn run_over_restarts(plan: &JobPlan, feed: &Feed, rng: &mut Rng, pace: Pace, restarts: u32, steps: u64) -> World {
    let mut world = world(plan, feed, rng.next(), pace).unwrap();
    let mut cut = Cut::default();
    for _ in 0..restarts {
        world.steps(rng.below(steps)).unwrap();
        if !rng.one_in(3) {
            cut = world.epoch().unwrap();
        }
        world.barrier();
        world.steps(rng.below(60)).unwrap();
        let outs = world.outs.clone();
        drop(world);
        world = World::new(plan, feed, rng.next(), pace, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
    }
    world.settle().unwrap();
    assert!(world.ended());
    world
}

/// The same without barriers under way, each restart perhaps from a compacted cut; `steps` are those before
/// an epoch and after it.
pub fn run_over_compactions(plan: &JobPlan, feed: &Feed, rng: &mut Rng, pace: Pace, restarts: u64, steps: [u64; 2]) -> World {
    let mut world = world(plan, feed, rng.next(), pace).unwrap();
    let mut cut = Cut::default();
    for _ in 0..restarts {
        world.steps(rng.below(steps[0])).unwrap();
        if !rng.one_in(4) {
            cut = world.epoch().unwrap();
        }
        world.steps(rng.below(steps[1])).unwrap();
        let (outs, clock) = (world.outs.clone(), world.clock.clone());
        drop(world);
        let from = if rng.one_in(2) { compacted(&cut) } else { cut.clone() };
        world = World::new(plan, feed, rng.next(), pace, &from, &outs, clock).unwrap();
        cut = from;
    }
    world.settle().unwrap();
    assert!(world.ended());
    world
}

/// Runs a bounded feed to its end.
pub fn run(plan: &JobPlan, rows: &[Row], seed: u64, pace: Pace) -> Result<World, Error> {
    let mut world = world(plan, &Feed::of(rows, true), seed, pace)?;
    world.settle()?;
    assert!(world.ended(), "a bounded feed comes to its end");
    Ok(world)
}

/// EV-3, EV-10: a window that follows a column judges rows of a source by the order of their split less
/// the trail of the column, be it in one stage or two: here the column is the event time itself, so that
/// a trail lets rows be late by so much more.
#[test]
fn a_column_with_a_trail_is_judged_by_its_split() {
    for seed in 0..24 {
        let mut rng = Rng(seed);
        let rows = random_rows(&mut rng, 600);
        let shape = random_shape(&mut rng);
        let trail_ms = [0, 1, 40, 3_000][rng.below(4) as usize];
        let mut plan = windowed(&shape);
        for operator in plan.chains.iter_mut().flat_map(|chain| &mut chain.operators) {
            if let Work::Window(work) = &mut operator.work {
                work.time = Some(TimeColumn { column: "t".to_owned(), trail_ms });
            }
        }
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms + trail_ms);
        println!("seed {seed}: trail {trail_ms}, {shape:?}");
        for plan in [plan.clone(), two_stages(plan)] {
            let pace = Pace { batch_max: [1, 7, 300][rng.below(3) as usize], sink_slow: 1 };
            let world = run(&plan, &rows, seed, pace).unwrap();
            assert_eq!(collect(&world.outs), expected.windows);
            assert_eq!(world.counted(|task| &task.rows_late), expected.late);
        }
    }
}

/// EV-3: same input, same answer, whatever the batch cut, parallelism and interleaving; late rows
/// and rows without a time are counted exactly.
#[test]
fn same_input_same_answer() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let count = [0, 1, 50, 800, 6_000][rng.below(5) as usize];
        let rows = random_rows(&mut rng, count);
        let shape = random_shape(&mut rng);
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms);
        let batch_max = [1, 7, 300, 4096][rng.below(4) as usize];
        let pace = Pace { batch_max, sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {count} rows, cut {batch_max}, {shape:?}");
        let world = run(&windowed(&shape), &rows, seed, pace).unwrap();
        assert_eq!(collect(&world.outs), expected.windows);
        assert_eq!(world.counted(|task| &task.rows_late), expected.late);
        assert_eq!(world.counted(|task| &task.state_rows), 0, "fired windows leave nothing behind");
        let invalid: u64 = world
            .chains
            .iter()
            .map(|chain| {
                chain.metrics().splits.read().iter().map(|split| split.rows_invalid.load(std::sync::atomic::Ordering::SeqCst)).sum::<u64>()
            })
            .sum();
        assert_eq!(invalid, expected.invalid, "EV-5");
    }
}

/// C02: times before 1970 land in the window that holds them, with offsets of either sign.
#[test]
fn negative_times_floor() {
    let shape = Shape { size_ms: 10, ..Shape::default() };
    let found = collect(&run(&windowed(&shape), &[row(0, -15, 1, 5)], 1, BRISK).unwrap().outs);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [(-20, Some(1))]);
    let shape = Shape { size_ms: 10, offset_ms: -3, ..Shape::default() };
    let found = collect(&run(&windowed(&shape), &[row(0, -15, 1, 5), row(0, -14, 1, 5), row(0, -13, 1, 5)], 1, BRISK).unwrap().outs);
    assert_eq!(found.iter().map(|((start, _), agg)| (*start, agg.count)).collect::<Vec<_>>(), [(-23, 2), (-13, 1)]);
}

/// EV-3: in `[2100, 100]` with bound 0 row 100 has stamp 2100 and is late at once for tumbling
/// 1000, in one batch or in two.
#[test]
fn a_row_far_behind_its_split_is_late_whatever_the_cut() {
    for batch_max in [1, 2] {
        let rows = [row(0, 2_100, 1, 1), row(0, 100, 1, 1)];
        let world = run(&windowed(&Shape::default()), &rows, 3, Pace { batch_max, sink_slow: 1 }).unwrap();
        assert_eq!(collect(&world.outs).keys().copied().collect::<Vec<_>>(), [(2_000, Some(1))]);
        assert_eq!(world.counted(|task| &task.rows_late), 1);
    }
}

/// C11: a late row for a window that was published never publishes it again.
#[test]
fn a_late_row_never_opens_a_window_again() {
    let mut rows: Vec<Row> = (0..100).map(|i| row(0, i * 10, 1, 1)).collect();
    rows.extend([row(0, 5_000, 2, 1), row(0, 500, 1, 1), row(0, 5_001, 2, 1)]);
    let world = run(&windowed(&Shape::default()), &rows, 9, Pace { batch_max: 3, sink_slow: 1 }).unwrap();
    let found = collect(&world.outs);
    assert_eq!(found[&(0, Some(1))].count, 100);
    assert_eq!(found[&(5_000, Some(2))].count, 2);
    assert_eq!(found.len(), 2);
    assert_eq!(world.counted(|task| &task.rows_late), 1);
}

/// C12: history gives its windows; the end of a bounded input gives the rest (EV-6).
#[test]
fn history_fires_windows() {
    let noon = 1_700_000_000_000 / 60_000 * 60_000;
    let shape = Shape { size_ms: 60_000, bound_ms: 30_000, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, noon, 1, 1), row(0, noon + 120_000, 1, 1), row(0, noon + 240_000, 1, 1)], false);
    let mut open = world(&windowed(&shape), &feed, 5, BRISK).unwrap();
    open.settle().unwrap();
    assert_eq!(collect(&open.outs).keys().map(|(start, _)| start - noon).collect::<Vec<_>>(), [0, 120_000]);
    let shape = Shape { bounded: true, ..shape };
    let rows = [row(0, noon, 1, 1), row(0, noon + 120_000, 1, 1), row(0, noon + 240_000, 1, 1)];
    let found = collect(&run(&windowed(&shape), &rows, 5, BRISK).unwrap().outs);
    assert_eq!(found.keys().map(|(start, _)| start - noon).collect::<Vec<_>>(), [0, 120_000, 240_000]);
}

/// EV-4: a window takes rows until its end plus the allowed lateness.
#[test]
fn lateness_is_judged_by_stamp() {
    let shape = Shape { lateness_ms: 500, ..Shape::default() };
    let rows = [row(0, 10, 1, 1), row(0, 1_400, 2, 1), row(0, 20, 1, 1), row(0, 1_500, 2, 1), row(0, 30, 1, 1)];
    for batch_max in [1, 5] {
        let world = run(&windowed(&shape), &rows, 2, Pace { batch_max, sink_slow: 1 }).unwrap();
        assert_eq!(collect(&world.outs)[&(0, Some(1))].count, 2, "row 30 has stamp 1500 = end + lateness");
        assert_eq!(world.counted(|task| &task.rows_late), 1);
    }
}

/// KER-2, KER-4: edges of a few bytes and a slow sink hold the source back, and all comes out.
#[test]
fn back_pressure_terminates() {
    let mut rng = Rng(77);
    let rows = random_rows(&mut rng, 3_000);
    let shape = Shape { sources: 3, windows: 3, size_ms: 10, bound_ms: 5_000, inflight_bytes: 1, ..Shape::default() };
    let world = run(&windowed(&shape), &rows, 77, Pace { batch_max: 64, sink_slow: 40 }).unwrap();
    assert_eq!(collect(&world.outs), tumble(&rows, 10, 0, 5_000));
    let blocked: u64 = world.chains.iter().map(|chain| chain.metrics().blocked_ns.load(std::sync::atomic::Ordering::SeqCst)).sum();
    assert!(blocked > 0, "somebody was held back");
}

/// A union of two sources aligns its inputs and takes the minimum of their watermarks (B2).
pub fn united(shape: &Shape) -> JobPlan {
    let union = PlanOperator { id: id("both"), output: input(), work: Work::Union };
    let window = window(shape);
    let out = sink(&window.output);
    let chains = vec![
        (shape.sources, vec![source("a", shape)]),
        (shape.sources, vec![source("b", shape)]),
        (shape.windows, vec![union]),
        (shape.windows, vec![window, out]),
    ];
    let keyed = || Routing::Partitioned(vec!["k".to_owned()]);
    plan(chains, vec![(0, 2, Routing::RoundRobin), (1, 2, Routing::RoundRobin), (2, 3, keyed())], shape)
}

#[test]
fn union_of_two_sources() {
    for seed in 0..10 {
        let mut rng = Rng(1_000 + seed);
        let rows = random_rows(&mut rng, 900);
        let shape = Shape { sources: 1 + seed as u32 % 2, windows: 2, bound_ms: 40, ..Shape::default() };
        println!("seed {seed}");
        let world = run(&united(&shape), &rows, seed, Pace { batch_max: 100, sink_slow: 2 }).unwrap();
        assert_eq!(collect(&world.outs), tumble(&rows, 1_000, 0, 40));
    }
}

/// A filter and a projection between source and window; broadcast to nobody else.
#[test]
fn filter_and_projection_before_a_window() {
    let shape = Shape { sources: 2, windows: 3, bound_ms: 10_000, ..Shape::default() };
    let number = |n| Box::new(Expr::Literal(Literal::BigInt(n)));
    let col = |name: &str| Expr::Column(name.to_owned());
    let filter = Expr::Binary { op: BinaryOp::Gt, left: Box::new(col("v")), right: number(0) };
    let doubled = Expr::Binary { op: BinaryOp::Multiply, left: Box::new(col("v")), right: number(2) };
    let project = [("k", col("k")), ("t", col("__meta_timestamp")), ("v", doubled)].map(|(name, expr)| weir_planner::spec::Projection {
        name: name.to_owned(),
        value: weir_planner::expr::Typed { expr, ty: ColumnType::BigInt, nullable: true },
    });
    let map = PlanOperator {
        id: id("m"),
        output: input(),
        work: Work::Map(MapWork { filter: Some(filter), project: Some(project.to_vec()), ..MapWork::default() }),
    };
    let window = window(&shape);
    let out = sink(&window.output);
    let plan = plan(
        vec![(2, vec![source("in", &shape), map]), (3, vec![window, out])],
        vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))],
        &shape,
    );
    let rows = random_rows(&mut Rng(4), 2_000);
    let kept: Vec<Row> =
        rows.iter().filter(|row| row.value.is_some_and(|v| v > 0)).map(|row| Row { value: row.value.map(|v| v * 2), ..*row }).collect();
    // Stamps follow the split's own order before the filter; with this bound none is late.
    let world = run(&plan, &rows, 4, Pace { batch_max: 20, sink_slow: 1 }).unwrap();
    assert_eq!(collect(&world.outs), tumble(&kept, 1_000, 0, 10_000));
}

/// SQL-3: `FILTER` and `HAVING`; a window without keys.
#[test]
fn filter_having_and_no_keys() {
    let shape = Shape { bound_ms: 10_000, ..Shape::default() };
    let mut window = window(&shape);
    if let Work::Window(work) = &mut window.work {
        work.keys.clear();
        let mut few = aggregate(AggregateFunction::Count, None, ColumnType::BigInt);
        few.filter = Some(Expr::Binary {
            op: BinaryOp::Gt,
            left: Box::new(Expr::Column("v".into())),
            right: Box::new(Expr::Literal(Literal::BigInt(0))),
        });
        let mut total = aggregate(AggregateFunction::Sum, Some(("v", ColumnType::BigInt)), ColumnType::BigInt);
        total.filter = few.filter.clone();
        work.aggregates = vec![("few".to_owned(), few), ("total".to_owned(), total)];
        work.having = Some(Expr::Binary {
            op: BinaryOp::GtEq,
            left: Box::new(Expr::Column("few".into())),
            right: Box::new(Expr::Literal(Literal::BigInt(2))),
        });
    }
    let stamps = window.output.0[1..3].to_vec();
    window.output.0 = stamps.into_iter().chain([column("few", ColumnType::BigInt), column("total", ColumnType::BigInt)]).collect();
    let out = sink(&window.output);
    let plan = plan(vec![(1, vec![source("in", &shape), window, out])], vec![], &shape);
    let rows = [
        row(0, 1, 1, 5),
        row(0, 2, 2, 6),
        row(0, 3, 3, -7),
        row(0, 1_001, 1, 9),
        row(0, 1_002, 1, -9),
        row(0, 2_000, 1, 4),
        row(0, 2_100, 1, 8),
        row(0, 2_999, 2, 1),
    ];
    let world = run(&plan, &rows, 1, BRISK).unwrap();
    let mut found = Vec::new();
    for batch in world.outs[&0].0.lock().iter() {
        let start = arrow::array::AsArray::as_primitive::<arrow::datatypes::TimestampMillisecondType>(batch.column(0).as_ref()).clone();
        let int = |i: usize| arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batch.column(i).as_ref()).clone();
        found.extend((0..batch.num_rows()).map(|row| (start.value(row), int(2).value(row), int(3).value(row))));
    }
    assert_eq!(found, [(0, 2, 11), (2_000, 3, 13)]);
}

/// WIN-5: at the bound the oldest window goes whole and never comes again; rows for it are counted.
#[test]
fn eviction_takes_the_oldest_window() {
    let shape = Shape { bound_ms: 100_000, keys_max: 3, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 0, 1, 1), row(0, 1, 2, 1), row(0, 1_000, 1, 1)], false);
    let mut world = world(&windowed(&shape), &feed, 1, BRISK).unwrap();
    for more in [row(0, 2_000, 1, 1), row(0, 5, 1, 1), row(0, 1_005, 1, 1), row(0, 200_000, 1, 1)] {
        world.settle().unwrap();
        feed.append(&[more]);
    }
    world.settle().unwrap();
    let found = collect(&world.outs);
    assert_eq!(
        found.iter().map(|((start, key), agg)| (*start, *key, agg.count)).collect::<Vec<_>>(),
        [(1_000, Some(1), 2), (2_000, Some(1), 1)]
    );
    assert_eq!(world.counted(|task| &task.rows_evicted), 3, "two entries and one row after them");
}

fn failure(shape: &Shape, rows: &[Row]) -> Error {
    run(&windowed(shape), rows, 1, BRISK).err().expect("the job fails")
}

/// WIN-5: `on_overflow: fail` names the operator and the bound; so does `state.max_bytes`.
#[test]
fn bounds_fail_by_choice() {
    let rows: Vec<Row> = (0..10).map(|i| row(0, i, i, 1)).collect();
    let error = failure(&Shape { keys_max: 9, on_overflow: OnOverflow::Fail, ..Shape::default() }, &rows);
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("'win'") && error.message.contains("more than 9 keys"), "{error}");
    let rows: Vec<Row> = (0..10_000).map(|i| row(0, 1, i, 1)).collect();
    let error = failure(&Shape { state_bytes_max: Some(100_000), ..Shape::default() }, &rows);
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("'win'") && error.message.contains("100000 bytes"), "{error}");
}

/// SPD-4: at most 64 bytes a live (window, BIGINT key) with a count and a sum, when the vectors are full.
#[test]
fn state_is_small() {
    let mut shape = Shape { bounded: false, ..Shape::default() };
    shape.windows = 1;
    let mut plan = windowed(&shape);
    let kept = ["n", "s"];
    for operator in &mut plan.chains[1].operators {
        operator.output.0.retain(|column| ["k", "window_start", "window_end", "n", "s"].contains(&column.name.as_str()));
        if let Work::Window(work) = &mut operator.work {
            work.aggregates.retain(|(name, _)| kept.contains(&name.as_str()));
        }
    }
    let rows: Vec<Row> = (0..65_536).map(|i| row(0, 1, i, 1)).collect();
    let mut world = world(&plan, &Feed::of(&rows, false), 1, BRISK).unwrap();
    world.settle().unwrap();
    let (entries, bytes) = (world.counted(|task| &task.state_rows), world.counted(|task| &task.state_bytes));
    assert_eq!(entries, 65_536);
    assert!(bytes <= 64 * entries, "{bytes} bytes");
}

/// EV-1: window arithmetic out of range is an error naming the operator, never a wrap.
#[test]
fn window_arithmetic_does_not_wrap() {
    for time in [i64::MAX, i64::MAX - 10, i64::MIN, i64::MIN + 10] {
        let shape = Shape { size_ms: 1_000, offset_ms: 7, ..Shape::default() };
        let error = failure(&shape, &[row(0, time, 1, 1)]);
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains("operator 'win'") && error.message.contains("out of range"), "{error}");
    }
}

/// SQL-3: a sum that BIGINT cannot hold is an error naming operator and column; one that leaves
/// the range and comes back is right.
#[test]
fn sum_overflow_is_an_error() {
    let error = failure(&Shape::default(), &[row(0, 1, 1, i64::MAX), row(0, 2, 1, 1)]);
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("sum overflows BIGINT") && error.message.contains("'win'") && error.message.contains("'s'"), "{error}");
    let world = run(&windowed(&Shape::default()), &[row(0, 1, 1, i64::MAX), row(0, 2, 1, 5), row(0, 3, 1, -6)], 1, BRISK).unwrap();
    assert_eq!(collect(&world.outs)[&(0, Some(1))].sum, Some(i128::from(i64::MAX) - 1));
}

/// WIN-2: an all-null aggregate is NULL and its count 0.
#[test]
fn all_null_values() {
    let rows = [Row { split: 0, time_ms: Some(1), key: None, value: None }];
    let world = run(&windowed(&Shape::default()), &rows, 1, BRISK).unwrap();
    assert_eq!(collect(&world.outs)[&(0, None)], Agg { count: 1, ..Agg::default() });
}

/// A window of many keys fires batch by batch, held back by a slow sink, and a barrier that comes
/// meanwhile waits for all of it.
#[test]
fn a_large_window_fires_in_batches() {
    let rows: Vec<Row> = (0..30_000).map(|i| row(0, 5, i, i)).chain([row(0, 1_000, 0, 1)]).collect();
    let shape = Shape { bounded: false, inflight_bytes: 1, ..Shape::default() };
    let mut world = world(&windowed(&shape), &Feed::of(&rows, false), 6, Pace { batch_max: 4096, sink_slow: 9 }).unwrap();
    world.steps(40).unwrap();
    world.epoch().unwrap();
    world.settle().unwrap();
    let cut = world.epoch().unwrap();
    assert_eq!(collect(&world.outs).len(), 30_000);
    assert!(world.outs[&0].0.lock().iter().all(|batch| batch.num_rows() <= 8_192));
    assert_eq!(cut.images.values().flatten().last().unwrap().retired_ms, 1_000);
    assert_eq!(world.counted(|task| &task.state_rows), 1);
}

/// One source into two sinks: both get every row, and one barrier cuts both.
#[test]
fn fan_out() {
    let shape = Shape { sources: 2, windows: 3, bound_ms: 10_000, ..Shape::default() };
    let window = window(&shape);
    let windows_out = sink(&window.output);
    let mut raw_out = sink(&input());
    raw_out.id = id("raw");
    let chains = vec![(2, vec![source("in", &shape)]), (3, vec![window, windows_out]), (2, vec![raw_out])];
    let plan = plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()])), (0, 2, Routing::Forward)], &shape);
    let rows = random_rows(&mut Rng(8), 1_500);
    let mut world = world(&plan, &Feed::of(&rows, true), 8, Pace { batch_max: 64, sink_slow: 3 }).unwrap();
    world.steps(50).unwrap();
    world.epoch().unwrap();
    world.settle().unwrap();
    assert!(world.ended());
    let (windows, raw): (BTreeMap<_, _>, BTreeMap<_, _>) = world.outs.clone().into_iter().partition(|(sink, _)| *sink < 100);
    assert_eq!(collect(&windows), tumble(&rows, 1_000, 0, 10_000));
    let given: usize = raw.values().map(|out| out.0.lock().iter().map(|batch| batch.num_rows()).sum::<usize>()).sum();
    assert_eq!(given, rows.iter().filter(|row| row.time_ms.is_some()).count());
}
