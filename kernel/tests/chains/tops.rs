//! Tops of windows over shuffles and restarts: the first rows of each window, as sorting all of them gives.

use crate::plans::{Shape, column, id, plan, sink, source, window};
use crate::recovery::{compacted, crash};
use crate::windows::{random_rows, run, world};
use crate::world::{Cut, FakeClock, Feed, Out, Pace, Rng, World};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_oracle::{Row, tumble_late};
use weir_planner::plan::{JobPlan, PlanOperator, Routing, SortOrder, TopWork, Work};
use weir_planner::schema::ColumnType;

/// Columns of a window's row and the place: `k, window_start, window_end, n, nv, s, lo, hi, place`.
type Line = Vec<Option<i64>>;

/// What a test varies of a top.
#[derive(Clone, Debug)]
struct Tops {
    tasks: u32,
    /// Positions in the window's row.
    keys: Vec<usize>,
    order: Vec<(usize, SortOrder)>,
    limit: u64,
}

const NAMES: [&str; 8] = ["k", "window_start", "window_end", "n", "nv", "s", "lo", "hi"];

fn random_tops(rng: &mut Rng) -> Tops {
    let keys = [vec![], vec![4], vec![4, 3]][rng.below(3) as usize].clone();
    let order = |rng: &mut Rng, at: usize| (at, SortOrder { descending: rng.one_in(2), nulls_first: rng.one_in(2) });
    Tops {
        tasks: if keys.is_empty() { 1 } else { [1, 2, 5][rng.below(3) as usize] },
        order: [vec![5], vec![3], vec![3, 7], vec![6, 5]][rng.below(4) as usize].clone().into_iter().map(|at| order(rng, at)).collect(),
        limit: [1, 2, 3, 1_000][rng.below(4) as usize],
        keys,
    }
}

/// Source, window by `k`, top, sink.
fn topped(shape: &Shape, tops: &Tops) -> JobPlan {
    let window = window(shape);
    let mut output = window.output.clone();
    output.0.push(column("place", ColumnType::BigInt));
    let work = TopWork {
        keys: tops.keys.iter().map(|at| NAMES[*at].to_owned()).collect(),
        order_by: tops.order.iter().map(|(at, order)| (NAMES[*at].to_owned(), *order)).collect(),
        limit: tops.limit,
        place: Some("place".to_owned()),
    };
    let keys = work.keys.clone();
    let top = PlanOperator { id: id("top"), output, work: Work::Top(work) };
    let out = sink(&top.output);
    let chains = vec![(shape.sources, vec![source("in", shape)]), (shape.windows, vec![window]), (tops.tasks, vec![top, out])];
    plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()])), (1, 2, Routing::Partitioned(keys))], shape)
}

/// Every window row, group by group in order, cut to the limit.
fn expected(rows: &[Row], shape: &Shape, tops: &Tops) -> Vec<Line> {
    let mut groups: BTreeMap<Vec<Option<i64>>, Vec<Line>> = BTreeMap::new();
    for ((start, key), agg) in tumble_late(rows, shape.size_ms, shape.offset_ms, shape.bound_ms, shape.lateness_ms).windows {
        let sum = agg.sum.map(|sum| i64::try_from(sum).unwrap());
        let line = vec![key, Some(start), Some(start + shape.size_ms), Some(agg.count), Some(agg.values), sum, agg.min, agg.max];
        let group = std::iter::once(Some(start)).chain(tops.keys.iter().map(|at| line[*at])).collect();
        groups.entry(group).or_default().push(line);
    }
    let by = |a: Option<i64>, b: Option<i64>, order: SortOrder| match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => {
            if order.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (Some(_), None) => {
            if order.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (Some(a), Some(b)) if order.descending => b.cmp(&a),
        (Some(a), Some(b)) => a.cmp(&b),
    };
    let plain = SortOrder { descending: false, nulls_first: false };
    let mut all = Vec::new();
    for lines in groups.values_mut() {
        lines.sort_by(|a, b| {
            let ordered = tops.order.iter().map(|(at, order)| by(a[*at], b[*at], *order));
            ordered.chain((0..a.len()).map(|at| by(a[at], b[at], plain))).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        for (line, place) in lines.iter().zip(1..).take(tops.limit as usize) {
            all.push(line.iter().copied().chain([Some(place)]).collect());
        }
    }
    all.sort();
    all
}

/// What came; in each sink the rows of a window and key come in the order of their places.
fn found(outs: &BTreeMap<u32, Out>, tops: &Tops) -> Vec<Line> {
    let mut all = Vec::new();
    for out in outs.values() {
        let mut places: BTreeMap<Vec<Option<i64>>, i64> = BTreeMap::new();
        for batch in out.0.lock().iter() {
            let columns: Vec<Vec<Option<i64>>> = batch
                .columns()
                .iter()
                .map(|array| match array.data_type() {
                    DataType::Int64 => array.as_primitive::<Int64Type>().iter().collect(),
                    _ => array.as_primitive::<TimestampMillisecondType>().iter().collect(),
                })
                .collect();
            for row in 0..batch.num_rows() {
                let line: Line = columns.iter().map(|column| column[row]).collect();
                let place = places.entry(std::iter::once(line[1]).chain(tops.keys.iter().map(|at| line[*at])).collect()).or_insert(0);
                *place += 1;
                assert_eq!(line[8], Some(*place), "places count from 1 in the order of the rows");
                all.push(line);
            }
        }
    }
    all.sort();
    all
}

fn shape(rng: &mut Rng) -> Shape {
    Shape {
        sources: [1, 2, 3][rng.below(3) as usize],
        windows: [1, 2, 3][rng.below(3) as usize],
        size_ms: [10, 100, 1_000, 7_777][rng.below(4) as usize],
        bound_ms: [0, 3, 60, 5_000][rng.below(4) as usize],
        ..Shape::default()
    }
}

/// EV-3: the same rows in the same places, whatever the batch cut, parallelism and interleaving.
#[test]
fn same_rows_same_tops() {
    let mut several = 0;
    for seed in 0..60 {
        let mut rng = Rng(21_000 + seed);
        let count = [1, 50, 800, 4_000][rng.below(4) as usize];
        let rows = random_rows(&mut rng, count);
        let (shape, tops) = (shape(&mut rng), random_tops(&mut rng));
        let expected = expected(&rows, &shape, &tops);
        let pace = Pace { batch_max: [1, 7, 300, 4096][rng.below(4) as usize], sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {} rows, cut {}, {shape:?}, {tops:?}", rows.len(), pace.batch_max);
        let world = run(&topped(&shape, &tops), &rows, seed, pace).unwrap();
        assert_eq!(found(&world.outs, &tops), expected);
        assert_eq!(world.counted(|task| &task.state_rows), 0, "what is given is not held");
        assert_eq!(world.counted(|task| &task.rows_retired), 0);
        several += expected.iter().filter(|line| line[8] > Some(1)).count();
    }
    assert!(several > 1_000, "{several} rows that are not the first");
}

/// STA-3, B1: crashes at random moments and restores from the last cut, now and then compacted and
/// with other numbers of tasks: the same rows, each once.
#[test]
fn restarts_change_no_top() {
    for seed in 0..40 {
        let mut rng = Rng(22_000 + seed);
        let rows = random_rows(&mut rng, 3_000);
        let (shape, mut tops) = (shape(&mut rng), random_tops(&mut rng));
        let expected = expected(&rows, &shape, &tops);
        let pace = Pace { batch_max: 1 + rng.below(200), sink_slow: 1 + rng.below(3) };
        println!("seed {seed}: {shape:?}, {tops:?}");
        let feed = Feed::of(&rows, true);
        let mut world = world(&topped(&shape, &tops), &feed, rng.next(), pace).unwrap();
        let mut cut = Cut::default();
        for _ in 0..8 {
            world.steps(rng.below(150)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
            }
            world.steps(rng.below(150)).unwrap();
            if rng.one_in(2) {
                if rng.one_in(2) {
                    cut = compacted(&cut);
                }
                let outs = world.outs.clone();
                world = World::new(&topped(&shape, &tops), &feed, rng.next(), pace, &cut, &outs, Arc::new(FakeClock::default())).unwrap();
            }
        }
        if tops.tasks > 1 {
            // Rows go to the owners of their key groups; outputs so far are set aside.
            cut = world.epoch().unwrap();
            crash(&world.outs, &cut);
            let before: BTreeMap<u32, Out> = world.outs.iter().map(|(sink, out)| (1_000 + sink, out.clone())).collect();
            tops.tasks = 1 + rng.below(4) as u32;
            let mut next =
                World::new(&topped(&shape, &tops), &feed, rng.next(), pace, &cut, &BTreeMap::new(), Arc::new(FakeClock::default()))
                    .unwrap();
            next.outs.values().for_each(|out| assert!(out.0.lock().is_empty()));
            next.settle().unwrap();
            next.outs.extend(before);
            world = next;
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(found(&world.outs, &tops), expected);
    }
}
