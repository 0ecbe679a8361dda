//! What windows do with rows that they cannot take, aggregates of single batches, and buffers before both.

use crate::plans::{
    Shape, aggregate, aside, binary, col, column, id, input, number, plan, sink, sink_named, source, two_stages, window, windowed,
};
use crate::windows::{BRISK, random_rows, random_shape, row, run, world};
use crate::world::{Cut, FakeClock, Feed, Out, Pace, Rng, World, collect};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_oracle::{Agg, Row, tumble_late};
use weir_planner::error::Class;
use weir_planner::expr::{AggregateFunction, BinaryOp, Typed};
use weir_planner::plan::{BatchWork, JobPlan, PlanOperator, Port, Routing, Work};
use weir_planner::schema::{ColumnType, Schema, error_rows, late_rows};
use weir_planner::spec::{Buffer, ErrorPolicy, LatePolicy, MemoryBuffer, SessionBuffer, TumblingBuffer};

/// Source, window, sink, and the window's late rows to another sink.
fn late_routed(shape: &Shape) -> JobPlan {
    let mut window = window(shape);
    if let Work::Window(work) = &mut window.work {
        work.late = LatePolicy::Route;
    }
    let (out, late) = (sink(&window.output), sink_named("late", &late_rows(&input())));
    let chains = vec![(shape.sources, vec![source("in", shape)]), (shape.windows, vec![window, out]), (1, vec![late])];
    let mut plan = plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))], shape);
    plan.edges.push(aside(1, 2, Routing::RoundRobin, Port::Late(id("win"))));
    plan
}

/// Values and lateness of the rows of the late sink, ascending.
fn late_found(outs: &BTreeMap<u32, Out>) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for batch in outs.iter().filter(|(sink, _)| **sink >= 100).flat_map(|(_, out)| out.0.lock().clone()) {
        let int = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let reason = batch.column_by_name("__reason").unwrap().as_string::<i32>().clone();
        for row in 0..batch.num_rows() {
            assert_eq!(reason.value(row), "late");
            found.push((int("v").value(row), int("__late_by_ms").value(row)));
        }
    }
    found.sort_unstable();
    found
}

fn normal(outs: &BTreeMap<u32, Out>) -> BTreeMap<u32, Out> {
    outs.iter().filter(|(sink, _)| **sink < 100).map(|(sink, out)| (*sink, out.clone())).collect()
}

/// EV-4, PLAN-5: each late row is routed once, with how far its stamp lies past the moment its window
/// closed; all others are in the windows.
#[test]
fn late_rows_are_routed_once_and_say_how_late() {
    let mut late_all = 0;
    for seed in 0..30 {
        let mut rng = Rng(700 + seed);
        // The value tells rows apart.
        let rows: Vec<Row> = random_rows(&mut rng, 1_500).into_iter().zip(0..).map(|(row, v)| Row { value: Some(v), ..row }).collect();
        let shape = random_shape(&mut rng);
        let mut expected = Vec::new();
        let mut largest: BTreeMap<u32, i64> = BTreeMap::new();
        for row in &rows {
            let Some(time) = row.time_ms else { continue };
            let stamp = *largest.entry(row.split).and_modify(|most| *most = (*most).max(time)).or_insert(time) - shape.bound_ms;
            let closed = time - (time - shape.offset_ms).rem_euclid(shape.size_ms) + shape.size_ms + shape.lateness_ms;
            if stamp >= closed {
                expected.push((row.value.unwrap(), stamp - closed));
            }
        }
        expected.sort_unstable();
        println!("seed {seed}: {} late, {shape:?}", expected.len());
        let world = run(&late_routed(&shape), &rows, seed, Pace { batch_max: 1 + rng.below(300), sink_slow: 1 }).unwrap();
        assert_eq!(late_found(&world.outs), expected);
        assert_eq!(world.counted(|task| &task.rows_late), expected.len() as u64);
        assert_eq!(world.counted(|task| &task.rows_routed), expected.len() as u64);
        assert_eq!(world.counted(|task| &task.rows_retired), 0);
        let windows = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms).windows;
        assert_eq!(collect(&normal(&world.outs)), windows);
        late_all += expected.len();
    }
    assert!(late_all > 1_000, "{late_all}");
}

/// EV-4: a row that its stamp does not make late, but whose window was retired while its split was
/// idle, follows the same policy and is counted apart too.
#[test]
fn rows_of_retired_windows_follow_the_same_policy() {
    let shape = Shape { bounded: false, idle_timeout_ms: 10, lateness_ms: 300, ..Shape::default() };
    for routed in [true, false] {
        let feed = Feed::of(&[row(0, 5_400, 1, 1), row(1, 100, 2, 2)], false);
        let plan = if routed { late_routed(&shape) } else { windowed(&shape) };
        let mut world = world(&plan, &feed, 3, BRISK).unwrap();
        world.settle().unwrap();
        world.clock.pass_ms(20);
        world.settle().unwrap();
        feed.append(&[row(1, 200, 2, 3)]);
        world.settle().unwrap();
        assert_eq!(world.counted(|task| &task.rows_late), 1);
        assert_eq!(world.counted(|task| &task.rows_retired), 1);
        // The watermark 5400 less the lateness has retired windows up to 5000; this one ended at 1000.
        assert_eq!(late_found(&world.outs), if routed { vec![(3, 4_000)] } else { vec![] });
        assert_eq!(collect(&normal(&world.outs))[&(0, Some(2))].count, 1);
    }
}

/// The window with `sum(100 / v) FILTER (WHERE 100 / v > -200)` for its sum, under a policy; errors go to the sink `bad`.
fn dividing(shape: &Shape, on_error: ErrorPolicy) -> JobPlan {
    let mut window = window(shape);
    let quotient = binary(BinaryOp::Divide, number(100), col("v"));
    if let Work::Window(work) = &mut window.work {
        work.on_error = on_error;
        work.aggregates[2].1.arguments = vec![Typed { expr: quotient.clone(), ty: ColumnType::BigInt, nullable: true }];
        work.aggregates[2].1.filter = Some(binary(BinaryOp::Gt, quotient, number(-200)));
    }
    let (out, bad) = (sink(&window.output), sink_named("bad", &error_rows()));
    let mut chains = vec![(shape.sources, vec![source("in", shape)]), (shape.windows, vec![window, out])];
    if on_error == ErrorPolicy::Route {
        chains.push((1, vec![bad]));
    }
    let mut plan = plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))], shape);
    if on_error == ErrorPolicy::Route {
        plan.edges.push(aside(1, 2, Routing::RoundRobin, Port::Error(id("win"))));
    }
    plan
}

/// KER-7: a row whose argument cannot be computed costs itself alone, in the first stage or the only one.
#[test]
fn an_argument_that_fails_costs_its_row_alone() {
    for seed in 0..12 {
        let mut rng = Rng(40 + seed);
        let rows = random_rows(&mut rng, 1_200);
        let rows: Vec<Row> = rows.into_iter().map(|row| Row { value: row.value.map(|v| v.rem_euclid(90)), ..row }).collect();
        let shape = Shape { bound_ms: 20_000, sources: 2, windows: 2, ..Shape::default() };
        let good: Vec<Row> = rows.iter().copied().filter(|row| row.value != Some(0)).collect();
        let bad = rows.iter().filter(|row| row.value == Some(0) && row.time_ms.is_some()).count() as u64;
        let quotients: Vec<Row> = good.iter().map(|row| Row { value: row.value.map(|v| 100 / v), ..*row }).collect();
        let sums = tumble_late(&quotients, 1_000, 0, 20_000, 0).windows;
        let whole = tumble_late(&good, 1_000, 0, 20_000, 0).windows;
        let expected: BTreeMap<_, _> = whole.into_iter().map(|(at, agg)| (at, Agg { sum: sums[&at].sum, ..agg })).collect();
        let pace = Pace { batch_max: 1 + rng.below(400), sink_slow: 1 };
        println!("seed {seed}: {bad} bad");
        let skipping = dividing(&shape, ErrorPolicy::Skip);
        for plan in [skipping.clone(), two_stages(skipping), dividing(&shape, ErrorPolicy::Route)] {
            let world = run(&plan, &rows, seed, pace).unwrap();
            assert_eq!(collect(&normal(&world.outs)), expected);
            assert_eq!(world.counted(|task| &task.rows_error), bad);
            let routed: Vec<String> = (world.outs.iter().filter(|(sink, _)| **sink >= 100))
                .flat_map(|(_, out)| out.0.lock().clone())
                .flat_map(|batch| {
                    let (raw, source) = (batch.column(0).as_binary::<i32>().clone(), batch.column(2).as_string::<i32>().clone());
                    (0..batch.num_rows())
                        .map(|i| format!("{} {}", source.value(i), String::from_utf8_lossy(raw.value(i))))
                        .collect::<Vec<_>>()
                })
                .collect();
            let expected_routed = if plan.edges.len() > 1 { bad as usize } else { 0 };
            assert_eq!(routed.len(), expected_routed);
            assert!(routed.iter().all(|text| text.starts_with("win {") && text.contains("\"v\":0")), "{routed:?}");
        }
    }
    let error = run(&dividing(&Shape::default(), ErrorPolicy::Fail), &[row(0, 1, 7, 5), row(0, 2, 7, 0)], 1, BRISK).err().unwrap();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("'win'") && error.message.contains("\"v\":0"), "{error}");
}

/// One chain: source, buffer, aggregate of each batch by key, sink.
fn by_batch(shape: &Shape, buffer: Buffer) -> JobPlan {
    let big = ColumnType::BigInt;
    let aggregates = vec![
        ("n".to_owned(), aggregate(AggregateFunction::Count, None, big)),
        ("s".to_owned(), aggregate(AggregateFunction::Sum, Some(("v", big)), big)),
    ];
    let output = Schema(vec![column("k", big), column("n", big), column("s", big)]);
    let having = Some(binary(BinaryOp::Gt, col("n"), number(1)));
    let work = BatchWork { keys: vec!["k".to_owned()], aggregates, having, on_error: ErrorPolicy::Fail };
    let hold = PlanOperator { id: id("hold"), output: input(), work: Work::Buffer(buffer) };
    let batch = PlanOperator { id: id("batch"), output: output.clone(), work: Work::Batch(work) };
    plan(vec![(1, vec![source("in", shape), hold, batch, sink(&output)])], vec![], shape)
}

type BatchRow = (Option<i64>, i64, Option<i64>);

/// Groups of each `capacity` rows in the order of their first row; those of one row are left out.
fn chunks(rows: &[Row], capacity: usize) -> Vec<BatchRow> {
    let mut all = Vec::new();
    for chunk in rows.chunks(capacity) {
        let mut groups: Vec<BatchRow> = Vec::new();
        for row in chunk {
            let at = groups.iter().position(|group| group.0 == row.key).unwrap_or_else(|| {
                groups.push((row.key, 0, None));
                groups.len() - 1
            });
            groups[at].1 += 1;
            groups[at].2 = row.value.map(|v| groups[at].2.unwrap_or(0) + v).or(groups[at].2);
        }
        all.extend(groups.into_iter().filter(|group| group.1 > 1));
    }
    all
}

fn batch_rows(outs: &BTreeMap<u32, Out>) -> Vec<BatchRow> {
    let mut found = Vec::new();
    for batch in outs[&0].0.lock().iter() {
        let at = |i: usize, row: usize| Some(batch.column(i).as_primitive::<Int64Type>()).filter(|c| c.is_valid(row)).map(|c| c.value(row));
        found.extend((0..batch.num_rows()).map(|row| (at(0, row), at(1, row).unwrap(), at(2, row))));
    }
    found
}

/// STR-2, B1: a memory buffer cuts the rows into batches of its capacity whatever the batches that
/// came, an aggregate of each batch sees just these, and a restart from any cut changes nothing.
#[test]
fn batches_of_a_buffer_are_the_same_over_restarts() {
    for seed in 0..25 {
        let mut rng = Rng(3_000 + seed);
        let rows: Vec<Row> = random_rows(&mut rng, 2_000).into_iter().map(|row| Row { split: 0, time_ms: Some(5), ..row }).collect();
        let capacity = [1, 7, 100, 5_000][rng.below(4) as usize];
        let plan = by_batch(&Shape::default(), Buffer::Memory(MemoryBuffer { capacity: capacity as u64, timeout_ms: 1 << 40 }));
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: capacity {capacity}");
        let feed = Feed::of(&rows, true);
        let mut world = world(&plan, &feed, rng.next(), pace).unwrap();
        // A clock that began anew would have been set back, and then rows go at once.
        let (mut cut, outs, clock) = (Cut::default(), world.outs.clone(), world.clock.clone());
        for _ in 0..8 {
            world.steps(rng.below(15)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
            }
            world.steps(rng.below(15)).unwrap();
            if rng.one_in(2) {
                drop(world);
                world = World::new(&plan, &feed, rng.next(), pace, &cut, &outs, clock.clone()).unwrap();
            }
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(batch_rows(&outs), chunks(&rows, capacity));
        assert_eq!(world.counted(|task| &task.state_rows), 0, "nothing is left");
    }
}

/// EV-2, STR-2: rows that are held are not passed by their watermarks: a buffer of any kind before a
/// shuffle changes no window and makes no row late, over restarts from any cut.
#[test]
fn a_buffer_changes_no_window() {
    let kinds = [
        Buffer::Memory(MemoryBuffer { capacity: 64, timeout_ms: 3 }),
        Buffer::Tumbling(TumblingBuffer { interval_ms: 4 }),
        Buffer::Session(SessionBuffer { gap_ms: 2 }),
    ];
    for seed in 0..24 {
        let mut rng = Rng(8_000 + seed);
        let rows = random_rows(&mut rng, 2_000);
        let shape = random_shape(&mut rng);
        let mut plan = windowed(&shape);
        let kind = kinds[seed as usize % 3].clone();
        println!("seed {seed}: {kind:?} {shape:?}");
        plan.chains[0].operators.push(PlanOperator { id: id("hold"), output: input(), work: Work::Buffer(kind) });
        let plan = if rng.one_in(2) { two_stages(plan) } else { plan };
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 };
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms);
        let feed = Feed::of(&rows, true);
        let mut world = world(&plan, &feed, rng.next(), pace).unwrap();
        let (mut cut, mut outs) = (Cut::default(), world.outs.clone());
        let mut held = 0;
        for _ in 0..6 {
            world.steps(rng.below(100)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
                held += cut.images.get(&id("hold")).map_or(0, |images| images.iter().map(|image| image.rows.num_rows()).sum());
            }
            world.steps(rng.below(100)).unwrap();
            if rng.one_in(2) {
                drop(world);
                world = World::new(&plan, &feed, rng.next(), pace, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
                outs.extend(world.outs.clone());
            }
        }
        println!("{held} rows in images");
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(collect(&world.outs), expected.windows);
    }
}

/// A buffer wakes its chain by the clock: rows leave an input that has gone quiet, and the epoch that
/// follows has something to record (EPO-7).
#[test]
fn a_quiet_buffer_lets_its_rows_go() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let plan = by_batch(&shape, Buffer::Session(SessionBuffer { gap_ms: 500 }));
    let rows = [row(0, 1, 7, 5), row(0, 2, 7, 6), row(0, 3, 8, 1)];
    let mut world = world(&plan, &Feed::of(&rows, false), 3, BRISK).unwrap();
    world.settle().unwrap();
    assert_eq!(batch_rows(&world.outs), []);
    assert_eq!(world.counted(|task| &task.state_rows), 3);
    let held = world.epoch().unwrap();
    assert_eq!(held.images[&id("hold")].iter().map(|image| image.rows.num_rows()).sum::<usize>(), 3);
    world.chains[0].metrics().changed.store(false, Ordering::SeqCst);
    world.clock.pass_ms(500);
    world.settle().unwrap();
    assert_eq!(batch_rows(&world.outs), [(Some(7), 2, Some(11))]);
    assert!(world.chains[0].metrics().changed.load(Ordering::SeqCst));
    assert_eq!(world.epoch().unwrap().images[&id("hold")].last().unwrap().retired_ms, 3);
}
