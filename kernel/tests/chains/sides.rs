//! Side outputs: late rows, rows without a time, bad records and rows that cannot be computed, by id.

use crate::plans::{Shape, aside, binary, col, input, map, number, plan, sink, sink_named, source};
use crate::windows::{run_over_restarts, world};
use crate::world::{Cut, FakeClock, Feed, Out, Pace, Rng, World};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::chain::Step;
use weir_oracle::Row;
use weir_planner::error::Class;
use weir_planner::expr::BinaryOp;
use weir_planner::plan::{JobPlan, PlanOperator, Port, Routing, Work};
use weir_planner::schema::{error_rows, late_rows};
use weir_planner::spec::{ErrorPolicy, LatePolicy};

/// Key of records that cannot be decoded.
const POISON: i64 = 666;
const BOUND_MS: i64 = 40;
const LATENESS_MS: i64 = 10;
const FUTURE_MS: i64 = 1_000_000;

fn shape(sources: u32) -> Shape {
    Shape { sources, bound_ms: BOUND_MS, lateness_ms: LATENESS_MS, max_future_ms: Some(FUTURE_MS as u64), ..Shape::default() }
}

/// A source that routes whatever it can.
fn routing_source(shape: &Shape) -> PlanOperator {
    let mut source = source("in", shape);
    let Work::Source(work) = &mut source.work else { panic!("a source") };
    work.on_error = ErrorPolicy::Route;
    work.time.as_mut().unwrap().late = LatePolicy::Route;
    source
}

/// Drops every eleventh value, and cannot compute every seventh.
fn calculation(on_error: ErrorPolicy) -> PlanOperator {
    let filter = binary(BinaryOp::NotEq, binary(BinaryOp::Modulo, col("v"), number(11)), number(0));
    let q = binary(BinaryOp::Divide, number(1_000), binary(BinaryOp::Modulo, col("v"), number(7)));
    map("calc", Some(filter), Some(q), on_error)
}

/// Sources and map in one chain that ends in edges, or in the sink itself; a sink for late rows and
/// one for errors of both.
fn routed(shape: &Shape, into_sink: bool) -> JobPlan {
    let calc = calculation(ErrorPolicy::Route);
    let out = sink(&calc.output);
    let late = (1, vec![sink_named("late", &late_rows(&input()))]);
    let errors = (2, vec![sink_named("errors", &error_rows())]);
    let port = |name: &str| crate::plans::id(name);
    let (chains, edges, late_at, errors_at) = if into_sink {
        (vec![(shape.sources, vec![routing_source(shape), calc, out]), late, errors], vec![], 1, 2)
    } else {
        let chains = vec![(shape.sources, vec![routing_source(shape), calc]), (3, vec![out]), late, errors];
        (chains, vec![(0, 1, Routing::RoundRobin)], 2, 3)
    };
    let mut plan = plan(chains, edges, shape);
    plan.edges.push(aside(0, late_at, Routing::RoundRobin, Port::Late(port("in"))));
    plan.edges.push(aside(0, errors_at, Routing::RoundRobin, Port::Error(port("in"))));
    plan.edges.push(aside(0, errors_at, Routing::RoundRobin, Port::Error(port("calc"))));
    plan
}

/// Rows whose value is their id, some of them of every kind that does not reach the sink.
fn random_rows(rng: &mut Rng, count: u64) -> Vec<Row> {
    let splits = 1 + rng.below(4) as u32;
    let mut heads = vec![0i64; splits as usize];
    let mut rows = Vec::new();
    for id in 0..count as i64 {
        let split = rng.below(u64::from(splits)) as u32;
        heads[split as usize] += rng.between(0, 20);
        let time = heads[split as usize] - rng.between(0, 90);
        let time = if rng.one_in(15) { 10 * FUTURE_MS } else { time };
        let key = if rng.one_in(12) { POISON } else { rng.between(0, 5) };
        rows.push(Row { split, time_ms: (!rng.one_in(12)).then_some(time), key: Some(key), value: Some(id) });
    }
    rows
}

/// What became of each row, by id.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
enum Fate {
    Out { q: i64 },
    Late { by_ms: i64 },
    Timeless,
    Error { operator: String, reason: String, raw: String, partition: Option<String>, position: Option<String> },
    Dropped,
}

/// The fates by the rules alone, row by row in the order of each split.
fn judged(rows: &[Row]) -> BTreeMap<i64, Fate> {
    let mut max: BTreeMap<u32, i64> = BTreeMap::new();
    let mut at: BTreeMap<u32, usize> = BTreeMap::new();
    let error = |operator: &str, reason: &str, raw: String, partition: Option<u32>, position: Option<String>| Fate::Error {
        operator: operator.to_owned(),
        reason: reason.to_owned(),
        raw,
        partition: partition.map(|split| split.to_string()),
        position,
    };
    let mut fates = BTreeMap::new();
    for row in rows {
        let (id, key) = (row.value.unwrap(), row.key.unwrap());
        let place = at.entry(row.split).or_default();
        let position = *place;
        *place += 1;
        let json = |time: i64| format!("{{\"k\":{key},\"t\":{time},\"v\":{id}}}");
        let fate = if key == POISON {
            error("in", "not a record", format!("record {id}"), Some(row.split), Some(format!("row {position}")))
        } else if let Some(time) = row.time_ms {
            let max = max.entry(row.split).or_insert(i64::MIN);
            if time > FUTURE_MS {
                error("in", "future", json(time), Some(row.split), None)
            } else {
                *max = (*max).max(time);
                let by_ms = max.saturating_sub(BOUND_MS) - (time + LATENESS_MS);
                if by_ms > 0 {
                    Fate::Late { by_ms }
                } else if id % 11 == 0 {
                    Fate::Dropped
                } else if id % 7 == 0 {
                    error("calc", "divide by zero", json(time), None, None)
                } else {
                    Fate::Out { q: 1_000 / (id % 7) }
                }
            }
        } else {
            Fate::Timeless
        };
        fates.insert(id, fate);
    }
    fates
}

/// The fates as the sinks have them; a row that comes twice fails the test.
fn found(outs: &BTreeMap<u32, Out>) -> BTreeMap<i64, Fate> {
    let mut fates = BTreeMap::new();
    for (sink, out) in outs {
        for batch in out.0.lock().iter() {
            let text = |name: &str, row: usize| {
                let column = batch.column_by_name(name).unwrap().as_string::<i32>().clone();
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            let int = |name: &str, row: usize| {
                let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
                column.is_valid(row).then(|| column.value(row))
            };
            for row in 0..batch.num_rows() {
                let (id, fate) = match sink / 100 {
                    0 => (int("v", row).unwrap(), Fate::Out { q: int("q", row).unwrap() }),
                    1 => {
                        let by_ms = int("__late_by_ms", row);
                        assert_eq!(int("t", row).is_some(), by_ms.is_some());
                        match text("__reason", row).unwrap().as_str() {
                            "late" => (int("v", row).unwrap(), Fate::Late { by_ms: by_ms.unwrap() }),
                            "null_timestamp" => (int("v", row).unwrap(), Fate::Timeless),
                            other => panic!("reason {other}"),
                        }
                    }
                    _ => {
                        let at = batch.column_by_name("at").unwrap().as_primitive::<TimestampMillisecondType>().value(row);
                        assert!((0..FUTURE_MS).contains(&at), "the wall clock of the test, not {at}");
                        let raw = batch.column_by_name("raw").unwrap().as_binary::<i32>().value(row).to_vec();
                        let raw = String::from_utf8(raw).unwrap();
                        let digits = raw.trim_start_matches("record ").rsplit(':').next().unwrap().trim_end_matches('}');
                        let full = text("reason", row).unwrap();
                        let reason = if full.to_lowercase().contains("divide by zero") {
                            assert!(full.contains("operator 'calc'") && full.contains("1000"), "{full}");
                            "divide by zero".to_owned()
                        } else {
                            full
                        };
                        let operator = text("source", row).unwrap();
                        let (partition, position) = (text("partition", row), text("position", row));
                        (digits.parse().unwrap(), Fate::Error { operator, reason, raw: raw.clone(), partition, position })
                    }
                };
                assert!(fates.insert(id, fate).is_none(), "row {id} came twice");
            }
        }
    }
    fates
}

fn arrived(rows: &[Row]) -> BTreeMap<i64, Fate> {
    judged(rows).into_iter().filter(|(_, fate)| *fate != Fate::Dropped).collect()
}

fn poisoned(rows: &[Row]) -> Feed {
    Feed { poison: Some(POISON), ..Feed::of(rows, true) }
}

/// E5, PLAN-5, EV-5, EV-9, CON-5, KER-7: each row is in exactly one place, and the counters say so.
#[test]
fn every_row_has_one_fate() {
    for seed in 0..30 {
        let mut rng = Rng(7_000 + seed);
        let count = rng.below(1_500);
        let rows = random_rows(&mut rng, count);
        let shape = Shape { inflight_bytes: [1, 64 << 20][rng.below(2) as usize], ..shape(1 + rng.below(3) as u32) };
        let plan = routed(&shape, rng.one_in(2));
        let pace = Pace { batch_max: 1 + rng.below(300), sink_slow: 1 + rng.below(3) };
        let mut world = world(&plan, &poisoned(&rows), rng.next(), pace).unwrap();
        world.settle().unwrap();
        assert!(world.ended(), "seed {seed}: the end reaches every sink");
        let expected = judged(&rows);
        assert_eq!(found(&world.outs), arrived(&rows), "seed {seed}");
        let all = |pick: fn(&Fate) -> bool| expected.values().filter(|fate| pick(fate)).count() as u64;
        let by_source = |fate: &Fate| matches!(fate, Fate::Error { operator, .. } if operator == "in");
        let by_map = |fate: &Fate| matches!(fate, Fate::Error { operator, .. } if operator == "calc");
        let (late, timeless) = (all(|fate| matches!(fate, Fate::Late { .. })), all(|fate| *fate == Fate::Timeless));
        let of = |operator: &str, pick: fn(&weir_kernel::metric::TaskMetrics) -> u64| {
            let metrics: Vec<_> = world.chains.iter().map(|chain| chain.metrics()).collect();
            let tasks = metrics.iter().flat_map(|metrics| &metrics.tasks).filter(|task| task.task.operator.as_str() == operator);
            tasks.map(pick).sum::<u64>()
        };
        let routed = |task: &weir_kernel::metric::TaskMetrics| task.rows_routed.load(Ordering::SeqCst);
        assert_eq!(of("in", routed), late + timeless + expected.values().filter(|fate| by_source(fate)).count() as u64);
        assert_eq!(of("calc", routed), expected.values().filter(|fate| by_map(fate)).count() as u64);
        assert_eq!(of("calc", |task| task.rows_error.load(Ordering::SeqCst)), of("calc", routed));
        let rows_in = |task: &weir_kernel::metric::TaskMetrics| task.rows_in.load(Ordering::SeqCst);
        assert_eq!(of("in", rows_in), rows.len() as u64);
        assert_eq!(of("late", rows_in), late + timeless);
        assert_eq!(of("errors", rows_in), of("in", routed) + of("calc", routed) - late - timeless);
        assert_eq!(of("out", rows_in), all(|fate| matches!(fate, Fate::Out { .. })));
    }
}

/// C50, PLAN-5: killed after any step, also between a barrier and its decision, and gone on from the
/// last decided cut: nothing is lost from and nothing doubled in any of the sinks.
#[test]
fn a_kill_at_any_step_loses_and_doubles_nothing() {
    let rows = random_rows(&mut Rng(3), 90);
    let expected = arrived(&rows);
    for into_sink in [false, true] {
        let shape = Shape { inflight_bytes: 1, ..shape(2) };
        let plan = routed(&shape, into_sink);
        let pace = Pace { batch_max: 4, sink_slow: 2 };
        let feed = poisoned(&rows);
        let mut killed_at = 0;
        loop {
            let mut world = world(&plan, &feed, 11, pace).unwrap();
            let (mut cut, mut left) = (Cut::default(), killed_at);
            // A decision after every forty steps, and a barrier under way that never comes to one.
            while left >= 40 {
                world.steps(40).unwrap();
                cut = world.epoch().unwrap();
                left -= 40;
            }
            world.steps(left / 2).unwrap();
            world.barrier();
            world.steps(left - left / 2).unwrap();
            let ended = world.ended();
            let outs = world.outs.clone();
            drop(world);
            let clock = Arc::new(FakeClock::default());
            let mut again = World::new(&plan, &feed, 12 + killed_at, pace, &cut, &outs, clock).unwrap();
            again.settle().unwrap();
            assert!(again.ended());
            assert_eq!(found(&again.outs), expected, "killed after {killed_at} steps");
            if ended {
                break;
            }
            killed_at += 1;
        }
        assert!(killed_at > 60, "the run is long enough to be killed in: {killed_at}");
    }
}

/// KER-2: a side edge that nobody empties holds its chain back; what waits is bounded, and all of it
/// comes when there is room again.
#[test]
fn a_full_side_edge_holds_the_chain() {
    // Every row is late for its split, so that only the side edge moves.
    let mut rows = vec![Row { split: 0, time_ms: Some(100_000), key: Some(1), value: Some(1) }];
    rows.extend((2..60_000).map(|id| Row { split: 0, time_ms: Some(0), key: Some(1), value: Some(id) }));
    for into_sink in [false, true] {
        let shape = Shape { inflight_bytes: 3_000, ..shape(1) };
        let plan = routed(&shape, into_sink);
        let mut world = world(&plan, &Feed::of(&rows, true), 1, Pace { batch_max: 1_000, sink_slow: 1 }).unwrap();
        let is_late = |chain: &weir_kernel::chain::Chain| chain.metrics().tasks[0].task.operator.as_str() == "late";
        let late_at = world.chains.iter().position(is_late).unwrap();
        let mut blocked = 0;
        for _ in 0..500 {
            // The source first, the sink of errors last; the one of late rows never.
            for at in (0..world.chains.len()).filter(|at| *at != late_at) {
                match world.chains[at].step() {
                    Step::Failed(error) => panic!("{error}"),
                    Step::Blocked { .. } if at == 0 => blocked += 1,
                    Step::Worked | Step::Idle { .. } | Step::Blocked { .. } => {}
                }
            }
        }
        let metrics = world.chains[0].metrics();
        let read = metrics.tasks[0].rows_in.load(Ordering::SeqCst);
        // A batch on the edge, one that waits for it, and what was being gathered meanwhile.
        assert!(read < 30_000, "{read} rows were read though nobody takes them");
        assert!(blocked > 20, "blocked {blocked} times");
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(found(&world.outs).len(), rows.len());
    }
}

/// A plan of one map over rows `v`; the error sink takes what it routes.
fn computed(q: weir_planner::expr::Expr, filter: Option<weir_planner::expr::Expr>, on_error: ErrorPolicy) -> JobPlan {
    let shape = shape(1);
    let calc = map("calc", filter, Some(q), on_error);
    let out = sink(&calc.output);
    let errors = (1, vec![sink_named("errors", &error_rows())]);
    let mut plan = plan(vec![(1, vec![source("in", &shape), calc, out]), errors], vec![], &shape);
    plan.edges.push(aside(0, 1, Routing::Forward, Port::Error(crate::plans::id("calc"))));
    plan
}

fn values(world: &World, sink: u32) -> Vec<i64> {
    let out = world.outs[&sink].0.lock();
    out.iter().flat_map(|batch| batch.column_by_name("v").unwrap().as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn numbered(count: i64) -> Vec<Row> {
    (0..count).map(|id| Row { split: 0, time_ms: Some(id), key: Some(id % 3), value: Some(id) }).collect()
}

/// C42, KER-7: a row that cannot be computed costs itself alone, in order, whatever the batch; under
/// `fail` the first one is named.
#[test]
fn a_poison_row_costs_itself_alone() {
    let bad = [0, 1, 2, 77, 78, 199, 200, 998, 999];
    // (v - 0) * (v - 1) * … is zero for the bad rows alone.
    let product = bad.map(|id| binary(BinaryOp::Minus, col("v"), number(id))).into_iter();
    let product = product.reduce(|all, one| binary(BinaryOp::Modulo, binary(BinaryOp::Multiply, all, one), number(1_000_003)));
    let q = || binary(BinaryOp::Divide, number(1), product.clone().unwrap());
    let rows = numbered(1_000);
    let zero = |id: i64| {
        bad.into_iter().fold(None, |all: Option<i64>, one| Some(all.map_or(id - one, |all| all * (id - one) % 1_000_003))) == Some(0)
    };
    assert_eq!((0..1_000).filter(|id| zero(*id)).collect::<Vec<_>>(), bad, "no product happens to be zero otherwise");
    let expected: Vec<i64> = (0..1_000).filter(|id| !bad.contains(id)).collect();
    for batch_max in [1, 7, 200, 1_000] {
        let pace = Pace { batch_max, sink_slow: 1 };
        let run = |policy| {
            let mut world = world(&computed(q(), None, policy), &Feed::of(&rows, true), batch_max, pace).unwrap();
            world.settle().map(|()| world)
        };
        let skipped = run(ErrorPolicy::Skip).unwrap();
        assert_eq!(values(&skipped, 0), expected);
        assert_eq!(skipped.counted(|task| &task.rows_error), bad.len() as u64);
        assert_eq!(skipped.counted(|task| &task.rows_routed), 0);
        let example = skipped.chains[0].metrics().tasks[1].bad.lock().clone().unwrap();
        assert!(example.contains("operator 'calc'") && example.to_lowercase().contains("divide by zero"), "{example}");
        let routed = run(ErrorPolicy::Route).unwrap();
        assert_eq!(values(&routed, 0), expected);
        let raws: Vec<String> = routed.outs[&100]
            .0
            .lock()
            .iter()
            .flat_map(|batch| {
                let raw = batch.column_by_name("raw").unwrap().as_binary::<i32>();
                raw.iter().map(|raw| String::from_utf8(raw.unwrap().to_vec()).unwrap()).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(raws, bad.map(|id| format!("{{\"k\":{},\"t\":{id},\"v\":{id}}}", id % 3)));
        let error = run(ErrorPolicy::Fail).err().unwrap();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains("operator 'calc'") && error.message.contains("{\"k\":0,\"t\":0,\"v\":0}"), "{error}");
    }
}

/// KER-7: filters fail by row as well. A condition that guards itself fails for no row, though it may
/// fail for a batch in which one row needs the other side.
#[test]
fn filters_fail_by_row() {
    let seventh = || binary(BinaryOp::Modulo, col("v"), number(7));
    let inverse = || binary(BinaryOp::Divide, number(6), seventh());
    let positive = || binary(BinaryOp::Gt, inverse(), number(1));
    let guarded = binary(BinaryOp::And, binary(BinaryOp::NotEq, seventh(), number(0)), positive());
    let rows = numbered(300);
    let kept: Vec<i64> = (0..300).filter(|id| id % 7 != 0 && 6 / (id % 7) > 1).collect();
    for batch_max in [1, 3, 300] {
        let pace = Pace { batch_max, sink_slow: 1 };
        let run = |filter, policy| {
            let mut world = world(&computed(col("v"), Some(filter), policy), &Feed::of(&rows, true), 5, pace).unwrap();
            world.settle().map(|()| world)
        };
        let all = run(guarded.clone(), ErrorPolicy::Fail).unwrap();
        assert_eq!(values(&all, 0), kept, "batches of up to {batch_max}");
        let some = run(positive(), ErrorPolicy::Skip).unwrap();
        assert_eq!(values(&some, 0), kept);
        assert_eq!(some.counted(|task| &task.rows_error), 43);
    }
}

/// PLAN-5, EV-4, EV-5, E5: late rows of a window and rows without a time share a route, in the columns
/// that the window takes; restarts lose and double none of them.
#[test]
fn windows_route_what_they_find_late() {
    for seed in 0..12 {
        let mut rng = Rng(40 + seed);
        let count = 300 + rng.below(1_200);
        let mut rows = random_rows(&mut rng, count);
        rows.iter_mut().for_each(|row| row.time_ms = row.time_ms.filter(|time| *time < FUTURE_MS));
        let shape = Shape { windows: 1 + rng.below(3) as u32, size_ms: 30, ..shape(1 + rng.below(3) as u32) };
        let widened = map("wide", None, Some(binary(BinaryOp::Plus, col("v"), number(1))), ErrorPolicy::Fail);
        let mut window = crate::plans::window(&shape);
        let Work::Window(work) = &mut window.work else { panic!("a window") };
        work.late = LatePolicy::Route;
        let late = late_rows(&widened.output);
        let out = sink(&window.output);
        let mut source = routing_source(&shape);
        let Work::Source(work) = &mut source.work else { panic!("a source") };
        work.on_error = ErrorPolicy::Fail;
        let chains = vec![(shape.sources, vec![source, widened]), (shape.windows, vec![window, out]), (1, vec![sink_named("late", &late)])];
        let mut plan = plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))], &shape);
        plan.edges.push(aside(0, 2, Routing::RoundRobin, Port::Late(crate::plans::id("in"))));
        plan.edges.push(aside(1, 2, Routing::RoundRobin, Port::Late(crate::plans::id("win"))));
        let feed = Feed::of(&rows, true);
        let pace = Pace { batch_max: 1 + rng.below(60), sink_slow: 1 + rng.below(2) };
        let world = run_over_restarts(&plan, &feed, &mut rng, pace, 4, 200);
        let windows: BTreeMap<u32, Out> = world.outs.iter().filter(|(sink, _)| **sink < 100).map(|(i, out)| (*i, out.clone())).collect();
        let tumbled = weir_oracle::tumble_late(&rows, shape.size_ms, 0, BOUND_MS, LATENESS_MS);
        assert_eq!(crate::world::collect(&windows), tumbled.windows, "seed {seed}");
        // Late by the rule, or without a time: (reason, by how much, t, q) by id.
        let mut expected = BTreeMap::new();
        let mut max: BTreeMap<u32, i64> = BTreeMap::new();
        for row in &rows {
            let id = row.value.unwrap();
            let Some(time) = row.time_ms else {
                expected.insert(id, ("null_timestamp".to_owned(), None, None, None));
                continue;
            };
            let max = max.entry(row.split).or_insert(i64::MIN);
            *max = (*max).max(time);
            let by_ms = *max - BOUND_MS - (time.div_euclid(30) * 30 + 30 + LATENESS_MS);
            if by_ms >= 0 {
                expected.insert(id, ("late".to_owned(), Some(by_ms), Some(time), Some(id + 1)));
            }
        }
        let mut found = BTreeMap::new();
        for batch in world.outs[&100].0.lock().iter() {
            let int = |name: &str, row: usize| {
                let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
                column.is_valid(row).then(|| column.value(row))
            };
            for row in 0..batch.num_rows() {
                let reason = batch.column_by_name("__reason").unwrap().as_string::<i32>().value(row).to_owned();
                let before = found.insert(int("v", row).unwrap(), (reason, int("__late_by_ms", row), int("t", row), int("q", row)));
                assert!(before.is_none(), "row {:?} came twice", int("v", row));
            }
        }
        assert_eq!(found, expected, "seed {seed}");
        let counted: i64 = tumbled.windows.values().map(|agg| agg.count).sum();
        assert_eq!(counted as usize + found.len(), rows.len(), "E5");
    }
}
