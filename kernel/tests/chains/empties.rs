//! Windows without rows: keys that had some not long ago get a row for each (C17).

use crate::plans::{Shape, two_stages};
use crate::shapes::{Results, expected, given, holding, once, shaped};
use crate::windows::{BRISK, random_rows, row, run, run_over_compactions};
use crate::world::{Feed, Pace, Rng};
use std::collections::{BTreeMap, BTreeSet};
use weir_oracle::{Agg, Row};
use weir_planner::plan::{JobPlan, Work};
use weir_planner::window::Aligned;

fn plan_of(shape: &Shape, windows: &Aligned, horizon_ms: u64) -> JobPlan {
    let mut plan = shaped(shape, windows);
    let Work::Window(work) = &mut plan.chains[1].operators[0].work else { panic!("a window") };
    work.empty_within_ms = Some(horizon_ms);
    plan
}

/// What windows come to, with a row of every key for each that the last watermark closed, whose end lies no
/// more than the horizon after the key's last row before it.
fn with_empty(rows: &[Row], windows: &Aligned, bound_ms: i64, horizon_ms: i64) -> Results {
    let mut results = expected(rows, windows, bound_ms, 0).results;
    let Some(watermark) = rows.iter().filter_map(|row| row.time_ms).max().map(|time| time - bound_ms) else { return results };
    let least = rows.iter().filter_map(|row| row.time_ms).min().unwrap();
    let spans: BTreeSet<(i64, i64)> =
        (least..=watermark).flat_map(|time| holding(windows, time)).filter(|(_, end)| *end <= watermark).collect();
    let mut times: BTreeMap<Option<i64>, BTreeSet<i64>> = BTreeMap::new();
    for (start, end, key) in results.keys() {
        let counts = |row: &&Row| row.key == *key && row.time_ms.is_some_and(|time| time >= *start && time < *end);
        times.entry(*key).or_default().extend(rows.iter().filter(counts).filter_map(|row| row.time_ms));
    }
    for (key, times) in times {
        for (start, end) in &spans {
            if times.range(..*end).next_back().is_some_and(|last| end - last <= horizon_ms) {
                results.entry((*start, *end, key)).or_default();
            }
        }
    }
    results
}

/// C17: any shape, cut, number of stages and restarts: the rows of the definition, and no others.
#[test]
fn keys_seen_not_long_ago_get_a_row_for_every_window() {
    let mut empty = 0;
    for seed in 0..40 {
        let mut rng = Rng(80_000 + seed);
        let windows = [
            Aligned::Tumbling { size_ms: 50, offset_ms: 7 },
            Aligned::Sliding { size_ms: 100, slide_ms: 40, offset_ms: 0 },
            Aligned::Sliding { size_ms: 20, slide_ms: 70, offset_ms: 0 },
            Aligned::Cumulate { max_size_ms: 120, step_ms: 40, offset_ms: 0 },
        ][rng.below(4) as usize]
            .clone();
        // Rows that are late for none of their windows: none lies further behind than the bound.
        let shape = Shape { sources: 1 + rng.below(2) as u32, windows: 1 + rng.below(3) as u32, bound_ms: 2_100, ..Shape::default() };
        let horizon_ms = [1, 90, 300, 2_000][rng.below(4) as usize];
        let rows: Vec<Row> = random_rows(&mut rng, 300).into_iter().map(|row| Row { key: row.key.map(|key| key % 5), ..row }).collect();
        println!("seed {seed}: {windows:?}, horizon {horizon_ms}, {shape:?}");
        let expected = with_empty(&rows, &windows, shape.bound_ms, horizon_ms);
        empty += expected.values().filter(|agg| agg.count == 0).count();
        let plan = plan_of(&shape, &windows, horizon_ms as u64);
        let plan = if rng.one_in(2) { two_stages(plan) } else { plan };
        let pace = Pace { batch_max: 1 + rng.below(60), sink_slow: 1 };
        let feed = Feed::of(&rows, true);
        let restarts = rng.below(5);
        let world = run_over_compactions(&plan, &feed, &mut rng, pace, restarts, [100, 60]);
        assert_eq!(once(&world.outs), expected);
    }
    assert!(empty > 200, "{empty} empty windows prove nothing");
}

/// C17: a count of 0 and NULL for the rest, in the order of the windows; none before the key's first row,
/// none after its horizon, and none at the end of the input that the last watermark had not closed.
#[test]
fn empty_windows_of_one_key() {
    let windows = Aligned::Tumbling { size_ms: 1_000, offset_ms: 0 };
    let rows = [row(0, 500, 1, 7), row(0, 10_200, 2, 1)];
    let world = run(&plan_of(&Shape::default(), &windows, 3_500), &rows, 1, BRISK).unwrap();
    let found: Vec<_> = given(&world.outs).into_iter().map(|((start, _, key), agg, _)| (start, key.unwrap(), agg)).collect();
    let seven = Agg { count: 1, values: 1, sum: Some(7), min: Some(7), max: Some(7) };
    let one = Agg { count: 1, values: 1, sum: Some(1), min: Some(1), max: Some(1) };
    // The window that ends at 4000 lies 3500 after row 500, the next one too far.
    let nothing = Agg::default();
    assert_eq!(found, [(0, 1, seven), (1_000, 1, nothing), (2_000, 1, nothing), (3_000, 1, nothing), (10_000, 2, one)]);
}

/// C17: a window without keys has one row, also when nothing came.
#[test]
fn a_window_without_keys_is_never_missing() {
    let windows = Aligned::Tumbling { size_ms: 1_000, offset_ms: 0 };
    let mut plan = plan_of(&Shape::default(), &windows, 1_000_000);
    let [window, out] = plan.chains[1].operators.as_mut_slice() else { panic!("a window and a sink") };
    let Work::Window(work) = &mut window.work else { panic!("a window") };
    work.keys.clear();
    window.output.0.remove(0);
    *out = crate::plans::sink(&window.output);
    let world = run(&plan, &[row(0, 500, 1, 7), row(0, 3_000, 1, 7)], 1, BRISK).unwrap();
    let counts: Vec<i64> = (world.outs.values().flat_map(|out| out.0.lock().clone()))
        .flat_map(|batch| {
            let counts = batch.column_by_name("n").unwrap().clone();
            arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(counts.as_ref()).values().to_vec()
        })
        .collect();
    assert_eq!(counts, [1, 0, 0, 1]);
}
