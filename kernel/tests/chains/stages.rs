//! Aggregates in two stages: the same answer as in one, and counters that count rows.

use crate::plans::{Shape, aggregate, binary, col, column, id, number, plan, sink, source, two_stages, window, windowed};
use crate::windows::{BRISK, random_rows, random_shape, row, run, united, world};
use crate::world::{Cut, FakeClock, Feed, Pace, Rng, World, collect};
use arrow::array::{Array, AsArray};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::chain::Step;
use weir_kernel::metric::TaskMetrics;
use weir_oracle::{Row, tumble_late};
use weir_planner::expr::{AggregateFunction, BinaryOp, Expr, Literal, Typed};
use weir_planner::id::ChainId;
use weir_planner::plan::{JobPlan, MapWork, PlanOperator, Routing, Work};
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::spec::Projection;

/// The sum of a counter over the tasks of an operator.
fn sum(world: &World, operator: &str, pick: fn(&TaskMetrics) -> &std::sync::atomic::AtomicU64) -> u64 {
    let metrics: Vec<_> = world.chains.iter().map(|chain| chain.metrics()).collect();
    let tasks = metrics.iter().flat_map(|metrics| &metrics.tasks).filter(|task| task.task.operator.as_str() == operator);
    tasks.map(|task| pick(task).load(Ordering::SeqCst)).sum()
}

/// WIN-7: in one stage or two, the same windows and the same number of late rows, whatever the
/// batch cut, parallelism and interleaving; what goes in comes out as rows, late rows apart.
#[test]
fn two_stages_same_answer() {
    let (mut rows_all, mut partials_all) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let count = [0, 1, 50, 800, 6_000][rng.below(5) as usize];
        let rows = random_rows(&mut rng, count);
        let shape = random_shape(&mut rng);
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms);
        let pace = Pace { batch_max: [1, 7, 300, 4096][rng.below(4) as usize], sink_slow: 1 + rng.below(3) };
        let plan = if rng.one_in(4) { united(&shape) } else { windowed(&shape) };
        println!("seed {seed}: {count} rows, cut {}, {shape:?}", pace.batch_max);
        for plan in [two_stages(plan.clone()), plan] {
            let world = run(&plan, &rows, seed, pace).unwrap();
            assert_eq!(collect(&world.outs), expected.windows);
            assert_eq!(world.counted(|task| &task.rows_late), expected.late);
            let staged = plan.chains.iter().any(|chain| chain.operators.iter().any(|operator| operator.id.as_str() == "win-partial"));
            let on_time: i64 = expected.windows.values().map(|window| window.count).sum();
            assert_eq!(sum(&world, "win", |task| &task.rows_in) as i64, on_time + if staged { 0 } else { expected.late as i64 });
            if staged {
                assert_eq!(sum(&world, "win-partial", |task| &task.rows_late), expected.late, "judged by the first stage");
                assert_eq!(sum(&world, "win-partial", |task| &task.rows_in) as i64, on_time + expected.late as i64);
                rows_all += on_time;
                partials_all += sum(&world, "win-partial", |task| &task.rows_out) as i64;
            }
        }
    }
    assert!(partials_all < rows_all, "{partials_all} partial rows of {rows_all}");
}

/// EV-4: rows whose window was retired while their split was idle are counted for that split, in one stage or two. Where
/// the first stage has put rows of two splits into one group, they are counted for none.
#[test]
fn retired_rows_are_their_splits() {
    let shape = Shape { sources: 1, windows: 2, bounded: false, idle_timeout_ms: 10, ..Shape::default() };
    let late = [row(1, 200, 2, 3), row(1, 300, 2, 4), row(0, 5_600, 2, 5)];
    let both = [row(1, 200, 2, 3), row(2, 300, 2, 4)];
    for (staged, then, own, all) in [
        (false, &late[..], vec![("1", 2)], 2),
        (true, &late[..], vec![("1", 2)], 2),
        (false, &both[..], vec![("1", 1), ("2", 1)], 2),
        (true, &both[..], vec![], 2),
    ] {
        let feed = Feed::of(&[row(0, 5_400, 1, 1), row(1, 100, 2, 2), row(2, 100, 2, 2)], false);
        let plan = if staged { two_stages(windowed(&shape)) } else { windowed(&shape) };
        let mut world = world(&plan, &feed, 3, BRISK).unwrap();
        world.settle().unwrap();
        world.clock.pass_ms(20);
        world.settle().unwrap();
        // The source is active again, so that no mark comes between the rows that follow.
        feed.append(&[row(0, 5_500, 1, 1)]);
        world.settle().unwrap();
        feed.append(then);
        world.settle().unwrap();
        world.clock.pass_ms(20);
        world.settle().unwrap();
        let mut found = BTreeMap::<String, u64>::new();
        for chain in &world.chains {
            for (origin, rows) in chain.metrics().tasks.iter().flat_map(|task| task.late_of.lock().clone()) {
                assert_eq!(origin.source.as_str(), "in");
                *found.entry(origin.split.clone()).or_default() += rows;
            }
        }
        assert_eq!(found, own.into_iter().map(|(split, rows)| (split.to_owned(), rows)).collect(), "two stages: {staged}");
        assert_eq!((world.counted(|task| &task.rows_late), world.counted(|task| &task.rows_retired)), (all, all));
    }
}

/// WIN-7: the first stage has no state, so that a restart from any cut equals none, also where the
/// plan had one stage before.
#[test]
fn restart_equals_no_restart_in_two_stages() {
    for seed in 0..20 {
        let mut rng = Rng(9_000 + seed);
        let rows = random_rows(&mut rng, 3_000);
        let shape = random_shape(&mut rng);
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {shape:?}");
        let expected = tumble_late(&rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms);
        let plans = [windowed(&shape), two_stages(windowed(&shape))];
        let feed = Feed::of(&rows, true);
        let mut world = world(&plans[rng.below(2) as usize], &feed, rng.next(), pace).unwrap();
        let (mut cut, mut outs) = (Cut::default(), world.outs.clone());
        for _ in 0..6 {
            world.steps(rng.below(120)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
                assert!(!cut.images.keys().any(|operator| operator.as_str() == "win-partial"));
            }
            world.steps(rng.below(120)).unwrap();
            if rng.one_in(2) {
                drop(world);
                let plan = &plans[usize::from(!rng.one_in(3))];
                world = World::new(plan, &feed, rng.next(), pace, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
                outs.extend(world.outs.clone());
            }
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(collect(&world.outs), expected.windows);
    }
}

fn entries(world: &World) -> u64 {
    sum(world, "win", |task| &task.state_rows)
}

/// WIN-7: a group waits for its linger and no longer, and the chain asks to be stepped then.
#[test]
fn a_group_leaves_after_its_linger() {
    let shape = Shape { bounded: false, bound_ms: 100_000, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1), row(0, 2, 1, 1), row(0, 3, 2, 1)], false);
    let mut world = world(&two_stages(windowed(&shape)), &feed, 1, BRISK).unwrap();
    let source = world.chains.iter().position(|chain| chain.id().0 == ChainId::new(0)).unwrap();
    let rest = |world: &mut World| loop {
        match world.chains[source].step() {
            Step::Worked => {}
            Step::Idle { until_ns } => return until_ns,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rest(&mut world), Some(10_000_000));
    world.clock.pass_ms(9);
    assert_eq!(rest(&mut world), Some(10_000_000));
    assert_eq!(sum(&world, "win-partial", |task| &task.rows_out), 0);
    world.clock.pass_ms(1);
    assert_eq!(rest(&mut world), None);
    world.settle().unwrap();
    assert_eq!(sum(&world, "win-partial", |task| &task.rows_out), 2);
    assert_eq!((entries(&world), sum(&world, "win", |task| &task.rows_in)), (2, 3));
}

/// WIN-7: a barrier takes everything along, a watermark what it closes; before either, not after.
#[test]
fn marks_do_not_pass_what_they_close() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1), row(0, 900, 2, 1)], false);
    let mut world = world(&two_stages(windowed(&shape)), &feed, 1, BRISK).unwrap();
    world.steps(30).unwrap();
    let cut = world.epoch().unwrap();
    assert_eq!(cut.images.values().flatten().map(|image| image.rows.num_rows()).sum::<usize>(), 2);
    feed.append(&[row(0, 950, 1, 1), row(0, 1_000, 3, 1)]);
    let outs: BTreeMap<_, _> = world.outs.clone();
    for _ in 0..200 {
        world.step().unwrap();
    }
    let found = collect(&outs);
    assert_eq!(found.iter().map(|(at, agg)| (*at, agg.count)).collect::<Vec<_>>(), [((0, Some(1)), 2), ((0, Some(2)), 1)]);
}

/// WIN-7: where rows do not come together they pass as they are, and each is still counted once;
/// eviction and its counters count rows as well (WIN-5).
#[test]
fn rows_that_do_not_come_together_pass() {
    let rows: Vec<Row> = (0..60_000).map(|i| row(0, i / 100, i, i)).collect();
    let shape = Shape { bound_ms: 10, windows: 3, ..Shape::default() };
    let world = run(&two_stages(windowed(&shape)), &rows, 5, BRISK).unwrap();
    assert_eq!(collect(&world.outs), tumble_late(&rows, 1_000, 0, 10, 0).windows);
    assert_eq!(sum(&world, "win-partial", |task| &task.rows_out), 60_000);
    assert_eq!(sum(&world, "win", |task| &task.rows_in), 60_000);
    // 10 windows of 100 keys each, 6 rows a key; one window fits.
    let rows: Vec<Row> = (0..6_000).map(|i| row(0, i / 600 * 1_000, i % 100, 1)).collect();
    let shape = Shape { bound_ms: 100_000, keys_max: 100, ..Shape::default() };
    let world = run(&two_stages(windowed(&shape)), &rows, 5, BRISK).unwrap();
    let given: i64 = collect(&world.outs).values().map(|window| window.count).sum();
    assert_eq!(given, 600, "the newest window");
    assert_eq!(sum(&world, "win", |task| &task.rows_evicted), 900, "entries of the others");
}

/// The window by a DOUBLE key over DOUBLE, TEXT and BOOLEAN columns made of `v`, with every aggregate that they take.
fn of_every_type(shape: &Shape) -> JobPlan {
    let (double, text) = (ColumnType::Double, ColumnType::Text);
    let when = |n: i64, then: f64| {
        let rest = binary(BinaryOp::Modulo, col("k"), number(7));
        (binary(BinaryOp::Eq, rest, number(n)), Expr::Literal(Literal::Double(then)))
    };
    // Keys: NaN of both signs, both zeroes, whole numbers, NULL.
    let whole = || Expr::Cast { expr: Box::new(col("k")), to: double, lenient: false };
    let key = Expr::Case {
        operand: None,
        branches: vec![when(0, 0.0), when(1, -0.0), when(2, f64::NAN), when(3, -f64::NAN)],
        otherwise: Some(Box::new(whole())),
    };
    let value = Expr::Case {
        operand: None,
        branches: vec![when(5, -0.0)],
        otherwise: Some(Box::new(binary(BinaryOp::Divide, Expr::Cast { expr: Box::new(col("v")), to: double, lenient: false }, {
            Expr::Literal(Literal::Double(7.0))
        }))),
    };
    let words = Expr::Cast { expr: Box::new(col("v")), to: text, lenient: false };
    let flag = binary(BinaryOp::Gt, col("v"), number(0));
    let money = ColumnType::Decimal { precision: 12, scale: 2 };
    let price = Expr::Cast { expr: Box::new(col("v")), to: money, lenient: false };
    let columns = [("k", key, double), ("d", value, double), ("w", words, text), ("b", flag, ColumnType::Boolean), ("m", price, money)];
    let typed = |(name, expr, ty): &(&str, Expr, ColumnType)| Projection {
        name: (*name).to_owned(),
        value: Typed { expr: expr.clone(), ty: *ty, nullable: true },
    };
    let work = MapWork { project: Some(columns.iter().map(typed).collect()), ..MapWork::default() };
    let output = Schema(columns.iter().map(|(name, _, ty)| column(name, *ty)).collect());
    let map = PlanOperator { id: id("m"), output, work: Work::Map(work) };
    let mut window = window(shape);
    let Work::Window(work) = &mut window.work else { panic!("a window") };
    let (sum, avg, min, max) = (AggregateFunction::Sum, AggregateFunction::Avg, AggregateFunction::Min, AggregateFunction::Max);
    let total = ColumnType::Decimal { precision: 38, scale: 2 };
    let mean = ColumnType::Decimal { precision: 38, scale: 6 };
    let mut list = vec![("d", sum, double, double), ("d", avg, double, double), ("d", min, double, double), ("d", max, double, double)];
    list.extend([
        ("w", min, text, text),
        ("w", max, text, text),
        ("m", sum, money, total),
        ("m", avg, money, mean),
        ("m", max, money, money),
    ]);
    list.extend([("b", min, ColumnType::Boolean, ColumnType::Boolean), ("b", max, ColumnType::Boolean, ColumnType::Boolean)]);
    list.push(("b", AggregateFunction::Count, ColumnType::Boolean, ColumnType::BigInt));
    work.aggregates = (list.iter().enumerate())
        .map(|(i, (name, function, input, ty))| {
            let mut aggregate = aggregate(*function, Some((name, *input)), *ty);
            // Every other one with a filter.
            aggregate.filter = (i % 2 == 1).then(|| binary(BinaryOp::GtEq, col("d"), Expr::Literal(Literal::Double(-1_000.0))));
            (format!("a{i}"), aggregate)
        })
        .collect();
    let mut filtered_rows = aggregate(AggregateFunction::Count, None, ColumnType::BigInt);
    filtered_rows.filter = Some(col("b"));
    work.aggregates.push(("rows".to_owned(), filtered_rows));
    let stamps = window.output.0[1..3].to_vec();
    let results = work.aggregates.iter().map(|(name, aggregate)| column(name, aggregate.ty)).collect::<Vec<_>>();
    window.output = Schema([vec![column("k", double)], stamps, results].concat());
    let out = sink(&window.output);
    let chains = vec![(shape.sources, vec![source("in", shape), map]), (shape.windows, vec![window, out])];
    plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))], shape)
}

/// Rows of all sinks as sorted text, floats to 11 digits.
fn texts(world: &World) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in world.outs.values().flat_map(|out| out.0.lock().clone()) {
        let shown = |column: &arrow::array::ArrayRef, row: usize| match column.data_type() {
            arrow::datatypes::DataType::Float64 if column.is_valid(row) => {
                format!("{:.10e}", column.as_primitive::<arrow::datatypes::Float64Type>().value(row))
            }
            _ => arrow::util::display::array_value_to_string(column, row).unwrap(),
        };
        rows.extend((0..batch.num_rows()).map(|row| batch.columns().iter().map(|column| shown(column, row)).collect::<Vec<_>>().join(" ")));
    }
    rows.sort_unstable();
    rows
}

/// WIN-7: nulls, NaN, -0, decimals, text, booleans and filters come through two stages as through one.
#[test]
fn every_type_comes_through_two_stages() {
    for seed in 0..8 {
        let mut rng = Rng(600 + seed);
        let rows = random_rows(&mut rng, 1_500);
        let shape = Shape { sources: 2, windows: 3, bound_ms: 30_000, size_ms: 5_000, ..Shape::default() };
        let pace = Pace { batch_max: 1 + rng.below(300), sink_slow: 1 };
        let plan = of_every_type(&shape);
        let one = texts(&run(&plan, &rows, seed, pace).unwrap());
        let two = texts(&run(&two_stages(plan), &rows, seed, pace).unwrap());
        assert_eq!(one, two, "seed {seed}");
        let keys = |wanted: &str| one.iter().filter(|row| row.starts_with(wanted)).count();
        let windows = one.iter().filter_map(|row| row.split(' ').nth(1)).collect::<std::collections::BTreeSet<_>>().len();
        assert!(keys("NaN ") <= windows && keys("0.0000000000e0 ") <= windows && keys("-0.") == 0, "one group for each: {one:?}");
        assert!(!one.is_empty());
    }
}
