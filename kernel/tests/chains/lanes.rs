//! Ordered edges (STR-5): batches are dealt in turn to lanes and collected in the same turn.

use crate::plans::{Shape, aside, binary, col, map, number, plan, sink, sink_named, source};
use crate::windows::{run_over_restarts, world};
use crate::world::{Feed, Out, Pace, Rng, World};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use std::collections::BTreeMap;
use weir_oracle::Row;
use weir_planner::expr::{BinaryOp, Expr};
use weir_planner::plan::{JobPlan, PlanOperator, Port, Routing};
use weir_planner::schema::error_rows;
use weir_planner::spec::ErrorPolicy;

/// Rows of several splits; the value is the row's place in its split.
fn rows(splits: u32, count: i64) -> Vec<Row> {
    let one = |id: i64| Row {
        split: (id % i64::from(splits)) as u32,
        time_ms: Some(id),
        key: Some(id % i64::from(splits)),
        value: Some(id / i64::from(splits)),
    };
    (0..count).map(one).collect()
}

/// Keeps runs of fifty rows and drops the next hundred: whole batches go.
fn runs() -> Expr {
    binary(BinaryOp::Eq, binary(BinaryOp::Modulo, binary(BinaryOp::Divide, col("v"), number(50)), number(3)), number(0))
}

fn kept(value: i64) -> bool {
    value / 50 % 3 == 0
}

fn laned(lanes: u32, stages: u32, operator: PlanOperator, shape: &Shape) -> JobPlan {
    let out = sink(&operator.output);
    let mut chains = vec![(1, vec![source("in", shape)])];
    let mut edges = vec![(0, 1, Routing::Deal)];
    for stage in 0..stages {
        let operator = PlanOperator { id: crate::plans::id(&format!("{}{stage}", operator.id)), ..operator.clone() };
        chains.push((lanes, vec![operator]));
        edges.push((stage + 1, stage + 2, if stage + 1 == stages { Routing::Collect } else { Routing::Forward }));
    }
    chains.push((1, vec![out]));
    plan(chains, edges, shape)
}

/// Values by split in the order in which they came out.
fn came(outs: &BTreeMap<u32, Out>) -> BTreeMap<i64, Vec<i64>> {
    let mut by_split: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for batch in outs[&0].0.lock().iter() {
        let ints = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
        for (split, value) in ints("k").into_iter().zip(ints("v")) {
            by_split.entry(split).or_default().push(value);
        }
    }
    by_split
}

fn expected(rows: &[Row], keep: impl Fn(i64) -> bool) -> BTreeMap<i64, Vec<i64>> {
    let mut by_split: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| keep(row.value.unwrap())) {
        by_split.entry(i64::from(row.split)).or_default().push(row.value.unwrap());
    }
    by_split
}

/// STR-5: any number of lanes keeps the order, with whole batches filtered away, barriers in between,
/// lanes behind lanes, and edges that hold a single batch; the end comes through.
#[test]
fn lanes_keep_the_order() {
    for lanes in 1..=8 {
        for (seed, stages, inflight_bytes) in [(1, 1, 1), (2, 2, 1), (3, 1, 64 << 20)] {
            let mut rng = Rng(100 * u64::from(lanes) + seed);
            let splits = 1 + rng.below(3) as u32;
            let rows = rows(splits, 2_000);
            let shape = Shape { bound_ms: 10_000, inflight_bytes, ..Shape::default() };
            let plan = laned(lanes, stages, map("f", Some(runs()), None, ErrorPolicy::Fail), &shape);
            let pace = Pace { batch_max: 1 + rng.below(30), sink_slow: 1 + rng.below(3) };
            let mut world = world(&plan, &Feed::of(&rows, true), rng.next(), pace).unwrap();
            for _ in 0..6 {
                world.steps(rng.below(300)).unwrap();
                world.epoch().unwrap();
            }
            world.settle().unwrap();
            assert!(world.ended(), "{lanes} lanes, {stages} stages");
            assert_eq!(came(&world.outs), expected(&rows, kept), "{lanes} lanes, {stages} stages");
        }
    }
}

/// STR-5: marks fence the lanes: idle sources, their return and watermarks pass once each, and what
/// waits for them goes on.
#[test]
fn marks_fence_the_lanes() {
    let shape = Shape { bounded: false, idle_timeout_ms: 50, size_ms: 100, ..Shape::default() };
    let window = crate::plans::window(&shape);
    let out = sink(&window.output);
    let filter = map("f", Some(binary(BinaryOp::GtEq, col("v"), number(0))), None, ErrorPolicy::Fail);
    let chains = vec![(1, vec![source("in", &shape)]), (4, vec![filter]), (1, vec![window, out])];
    let plan = plan(chains, vec![(0, 1, Routing::Deal), (1, 2, Routing::Collect)], &shape);
    let feed = Feed::of(&[], false);
    feed.splits.lock().insert(0, Vec::new());
    feed.splits.lock().insert(1, Vec::new());
    let mut world = world(&plan, &feed, 5, Pace { batch_max: 3, sink_slow: 1 }).unwrap();
    let starts = |world: &World| crate::world::collect(&world.outs).keys().map(|(start, _)| *start).collect::<Vec<_>>();
    for round in 0..5i64 {
        let row = |offset, value| Row { split: 0, time_ms: Some(1_000 * round + offset), key: Some(1), value: Some(value) };
        feed.append(&[row(1, 1), row(2, -1), row(150, 2)]);
        world.settle().unwrap();
        world.epoch().unwrap();
        world.clock.pass_ms(200);
        world.settle().unwrap();
        feed.append(&[row(151, 1)]);
        world.settle().unwrap();
        let expected: Vec<i64> = (0..=round).flat_map(|r| [1_000 * r, 1_000 * r + 100]).take(2 * round as usize + 1).collect();
        assert_eq!(starts(&world), expected, "round {round}");
    }
}

/// STR-5, C50: a restart from any cut begins the turn anew on both sides; nothing is lost, doubled or
/// out of order, and bad rows of the lanes go to their own sink.
#[test]
fn lanes_restart_from_any_cut() {
    for seed in 0..12 {
        let mut rng = Rng(900 + seed);
        let lanes = 1 + rng.below(6) as u32;
        let rows = rows(2, 1_500);
        let shape = Shape { bound_ms: 10_000, inflight_bytes: 1, ..Shape::default() };
        let q = binary(BinaryOp::Divide, number(1), binary(BinaryOp::Modulo, col("v"), number(13)));
        let mut plan = laned(lanes, 1, map("f", Some(runs()), Some(q), ErrorPolicy::Route), &shape);
        plan.chains.push(weir_planner::plan::Chain {
            id: weir_planner::id::ChainId::new(3),
            parallelism: 1,
            operators: vec![sink_named("errors", &error_rows())],
        });
        plan.edges.push(aside(1, 3, Routing::RoundRobin, Port::Error(crate::plans::id("f0"))));
        let pace = Pace { batch_max: 1 + rng.below(40), sink_slow: 1 + rng.below(2) };
        let feed = Feed::of(&rows, true);
        let world = run_over_restarts(&plan, &feed, &mut rng, pace, 5, 400);
        assert_eq!(came(&world.outs), expected(&rows, |value| kept(value) && value % 13 != 0), "{lanes} lanes");
        let mut raws: Vec<String> = world.outs[&100]
            .0
            .lock()
            .iter()
            .flat_map(|batch| {
                let raw = batch.column_by_name("raw").unwrap().as_binary::<i32>();
                raw.iter().map(|raw| String::from_utf8(raw.unwrap().to_vec()).unwrap()).collect::<Vec<_>>()
            })
            .collect();
        raws.sort();
        let bad = rows.iter().filter(|row| row.value.is_some_and(|value| kept(value) && value % 13 == 0));
        let json = |row: &Row| format!("{{\"k\":{},\"t\":{},\"v\":{}}}", row.split, row.time_ms.unwrap(), row.value.unwrap());
        let mut wanted: Vec<String> = bad.map(json).collect();
        wanted.sort();
        assert_eq!(raws, wanted);
    }
}

/// A lane that fails fails the job.
#[test]
fn a_lane_that_fails_fails_the_job() {
    let shape = Shape { bound_ms: 10_000, ..Shape::default() };
    let q = binary(BinaryOp::Divide, number(1), binary(BinaryOp::Minus, col("v"), number(700)));
    let plan = laned(3, 1, map("f", None, Some(q), ErrorPolicy::Fail), &shape);
    let mut world = world(&plan, &Feed::of(&rows(1, 1_000), true), 1, Pace { batch_max: 20, sink_slow: 1 }).unwrap();
    let error = world.settle().err().unwrap();
    assert!(error.message.contains("'f0'") && error.message.contains("\"v\":700"), "{error}");
}

/// Plans whose lanes cannot keep their turn are refused when they are wired.
#[test]
fn lanes_without_a_turn_are_refused() {
    let shape = Shape { windows: 2, sources: 2, ..Shape::default() };
    let build = |plan: &JobPlan| world(plan, &Feed::of(&[], true), 1, Pace { batch_max: 1, sink_slow: 1 }).err().map(|error| error.message);
    let mut two_dealers = laned(3, 1, map("f", None, None, ErrorPolicy::Fail), &shape);
    two_dealers.chains[0].parallelism = 2;
    assert!(build(&two_dealers).unwrap().contains("has no turn to keep"));
    let mut stateful = crate::plans::windowed(&Shape { sources: 1, ..shape });
    stateful.edges[0].routing = Routing::Deal;
    assert!(build(&stateful).unwrap().contains("has state"));
}
