//! Windows of every shape that is cut out of time: any batch cut, interleaving, stage and restart, one answer.

use crate::plans::{Shape, two_stages, windowed};
use crate::windows::{BRISK, random_rows, row, run, world};
use crate::world::{Cut, FakeClock, Feed, Out, Pace, Rng, World};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_oracle::{Agg, Row};
use weir_planner::error::Class;
use weir_planner::plan::{JobPlan, TimeColumn, Work};
use weir_planner::window::{Aligned, Windows, Zone};

/// Results by window start, window end and key.
pub type Results = BTreeMap<(i64, i64, Option<i64>), Agg>;

/// What windows come to, from the definition: rows one by one, each window by itself.
#[derive(Debug, Default, PartialEq)]
pub struct Expected {
    pub results: Results,
    pub late: u64,
    pub partly: u64,
    /// Rows between windows.
    pub between: u64,
    /// (row, window) pairs that count.
    pub pairs: i64,
}

/// Windows that hold a time, from the definition.
pub fn holding(windows: &Aligned, time: i64) -> Vec<(i64, i64)> {
    match *windows {
        Aligned::Tumbling { size_ms, offset_ms } => {
            let start = offset_ms + (time - offset_ms).div_euclid(size_ms) * size_ms;
            vec![(start, start + size_ms)]
        }
        Aligned::Sliding { size_ms, slide_ms, offset_ms } => {
            let last = (time - offset_ms).div_euclid(slide_ms);
            let starts = (last - size_ms / slide_ms - 1..=last).map(|k| offset_ms + k * slide_ms);
            starts.map(|start| (start, start + size_ms)).filter(|(_, end)| *end > time).collect()
        }
        Aligned::Cumulate { max_size_ms, step_ms, offset_ms } => {
            let start = offset_ms + (time - offset_ms).div_euclid(max_size_ms) * max_size_ms;
            (1..=max_size_ms / step_ms).map(|n| (start, start + n * step_ms)).filter(|(_, end)| *end > time).collect()
        }
        Aligned::Calendar { .. } => panic!("a zone is no arithmetic"),
    }
}

pub fn expected(rows: &[Row], windows: &Aligned, bound_ms: i64, lateness_ms: i64) -> Expected {
    let (mut expected, mut heads) = (Expected::default(), BTreeMap::new());
    for row in rows {
        let Some(time) = row.time_ms else { continue };
        let head = heads.entry(row.split).or_insert(time);
        *head = time.max(*head);
        let stamp = *head - bound_ms;
        let all = holding(windows, time);
        let (late, good): (Vec<_>, Vec<_>) = all.iter().partition(|(_, end)| end + lateness_ms <= stamp);
        match (late.is_empty(), good.is_empty()) {
            (true, true) => expected.between += 1,
            (false, true) => expected.late += 1,
            (false, false) => expected.partly += 1,
            (true, false) => {}
        }
        expected.pairs += good.len() as i64;
        for (start, end) in good {
            let agg = expected.results.entry((start, end, row.key)).or_default();
            agg.count += 1;
            if let Some(value) = row.value {
                agg.values += 1;
                agg.sum = Some(agg.sum.unwrap_or(0) + i128::from(value));
                agg.min = Some(agg.min.map_or(value, |least| least.min(value)));
                agg.max = Some(agg.max.map_or(value, |greatest| greatest.max(value)));
            }
        }
    }
    expected
}

/// Rows of all sinks in their order: window, key, aggregates, marker.
pub fn given(outs: &BTreeMap<u32, Out>) -> Vec<((i64, i64, Option<i64>), Agg, Option<bool>)> {
    let mut found = Vec::new();
    for batch in outs.values().flat_map(|out| out.0.lock().clone()) {
        let int = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let stamp = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().clone();
        let (key, start, end) = (int("k"), stamp("window_start"), stamp("window_end"));
        let columns = ["s", "lo", "hi"].map(int);
        let marker = batch.column_by_name("__arkflow_window_update").map(|column| column.as_boolean().clone());
        for row in 0..batch.num_rows() {
            let [sum, min, max] = [0, 1, 2].map(|i: usize| columns[i].is_valid(row).then(|| columns[i].value(row)));
            let agg = Agg { count: int("n").value(row), values: int("nv").value(row), sum: sum.map(i128::from), min, max };
            let id = (start.value(row), end.value(row), key.is_valid(row).then(|| key.value(row)));
            found.push((id, agg, marker.as_ref().map(|marker| marker.value(row))));
        }
    }
    found
}

/// The same as a map; a row that comes twice fails the test.
pub fn once(outs: &BTreeMap<u32, Out>) -> Results {
    let mut results = Results::new();
    for (id, agg, _) in given(outs) {
        assert_eq!(results.insert(id, agg), None, "{id:?} came twice");
    }
    results
}

/// The plan of [`windowed`] over other windows.
pub fn shaped(shape: &Shape, windows: &Aligned) -> JobPlan {
    let mut plan = windowed(shape);
    let Work::Window(work) = &mut plan.chains[1].operators[0].work else { panic!("a window") };
    work.windows = Windows::Aligned(windows.clone());
    plan
}

pub fn random_windows(rng: &mut Rng) -> Aligned {
    let offset_ms = [0, 0, 3, -4, 12_345][rng.below(5) as usize];
    let pick = |rng: &mut Rng, of: &[(i64, i64)]| of[rng.below(of.len() as u64) as usize];
    match rng.below(7) {
        0 => Aligned::Tumbling { size_ms: rng.between(1, 900), offset_ms },
        1..=3 => {
            let (size_ms, slide_ms) = pick(rng, &[(50, 20), (100, 10), (1_000, 300), (7, 3), (40, 40), (30, 100), (5_000, 2_000)]);
            Aligned::Sliding { size_ms, slide_ms, offset_ms }
        }
        // More than 1,024 panes: each window keeps its own rows.
        4 => Aligned::Sliding { size_ms: 2_003, slide_ms: 400, offset_ms },
        _ => {
            let (step_ms, steps) = pick(rng, &[(10, 6), (100, 24), (1, 5), (700, 3), (1, 1_100)]);
            Aligned::Cumulate { max_size_ms: step_ms * steps, step_ms, offset_ms }
        }
    }
}

fn random_case(rng: &mut Rng) -> (Shape, Aligned, Pace) {
    let windows = random_windows(rng);
    let shape = Shape {
        sources: [1, 2, 3][rng.below(3) as usize],
        windows: [1, 2, 3][rng.below(3) as usize],
        bound_ms: [0, 3, 60, 5_000][rng.below(4) as usize],
        lateness_ms: [0, 0, 5, 500][rng.below(4) as usize],
        ..Shape::default()
    };
    (shape, windows, Pace { batch_max: [1, 7, 300, 4096][rng.below(4) as usize], sink_slow: 1 + rng.below(3) })
}

/// WIN-1, EV-3, EV-4, E5: every row counts in exactly the windows that hold it and for which its stamp
/// does not make it late, whatever the batch cut, interleaving and number of stages; late and partly
/// late rows are counted once each.
#[test]
fn same_input_same_answer_for_every_shape() {
    let (mut late, mut partly) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng(40_000 + seed);
        let (shape, windows, pace) = random_case(&mut rng);
        let count = if windows.keeps_own() { 60 } else { [1, 50, 800, 3_000][rng.below(4) as usize] };
        let rows = random_rows(&mut rng, count);
        println!("seed {seed}: {count} rows, cut {}, {windows:?}, {shape:?}", pace.batch_max);
        let expected = expected(&rows, &windows, shape.bound_ms, shape.lateness_ms);
        let plan = shaped(&shape, &windows);
        let staged = (!windows.keeps_own()).then(|| two_stages(plan.clone()));
        for plan in [Some(plan), staged].into_iter().flatten() {
            let world = run(&plan, &rows, seed, pace).unwrap();
            let found = once(&world.outs);
            assert_eq!(found, expected.results);
            assert_eq!(found.values().map(|agg| agg.count).sum::<i64>(), expected.pairs, "E5");
            assert_eq!(world.counted(|task| &task.rows_late), expected.late);
            assert_eq!(world.counted(|task| &task.rows_late_partly), expected.partly);
            assert_eq!(world.counted(|task| &task.state_rows), 0, "fired windows leave nothing behind");
        }
        (late, partly) = (late + expected.late, partly + expected.partly);
    }
    assert!(late > 100 && partly > 100, "{late} late and {partly} partly late rows prove nothing");
}

/// B1: a restart from any cut, now and then of another number of stages, equals none.
#[test]
fn restart_equals_no_restart_for_every_shape() {
    for seed in 0..40 {
        let mut rng = Rng(50_000 + seed);
        let (shape, windows, pace) = random_case(&mut rng);
        let rows = random_rows(&mut rng, if windows.keeps_own() { 80 } else { 2_000 });
        println!("seed {seed}: cut {}, {windows:?}, {shape:?}", pace.batch_max);
        let expected = expected(&rows, &windows, shape.bound_ms, shape.lateness_ms);
        let mut plans = vec![shaped(&shape, &windows)];
        if !windows.keeps_own() {
            plans.push(two_stages(plans[0].clone()));
        }
        let feed = Feed::of(&rows, true);
        let mut world = world(&plans[0], &feed, rng.next(), pace).unwrap();
        let mut cut = Cut::default();
        for _ in 0..6 {
            world.steps(rng.below(120)).unwrap();
            if !rng.one_in(4) {
                cut = world.epoch().unwrap();
            }
            world.steps(rng.below(120)).unwrap();
            if rng.one_in(2) {
                let outs = world.outs.clone();
                drop(world);
                let plan = &plans[rng.below(plans.len() as u64) as usize];
                let from = if rng.one_in(2) { crate::recovery::compacted(&cut) } else { cut.clone() };
                world = World::new(plan, &feed, rng.next(), pace, &from, &outs, Arc::new(FakeClock::default())).unwrap();
                cut = from;
            }
        }
        world.settle().unwrap();
        assert!(world.ended());
        assert_eq!(once(&world.outs), expected.results);
    }
}

/// C01: size 5 s, slide 2 s: row 3000 lies in [0, 5000) and [2000, 7000).
#[test]
fn size_need_not_be_a_multiple_of_slide() {
    let windows = Aligned::Sliding { size_ms: 5_000, slide_ms: 2_000, offset_ms: 0 };
    let world = run(&shaped(&Shape::default(), &windows), &[row(0, 3_000, 1, 7)], 1, BRISK).unwrap();
    assert_eq!(once(&world.outs).into_keys().collect::<Vec<_>>(), [(0, 5_000, Some(1)), (2_000, 7_000, Some(1))]);
}

/// E3: `[2100, 100]` with bound 0 and windows of 3 s every second: row 100 has stamp 2100 and is late
/// for the windows that end at 1000 and 2000 but not for [0, 3000), in one batch or in two.
#[test]
fn a_row_behind_its_stamp_counts_where_it_can() {
    let windows = Aligned::Sliding { size_ms: 3_000, slide_ms: 1_000, offset_ms: 0 };
    for batch_max in [1, 2] {
        let rows = [row(0, 2_100, 1, 1), row(0, 100, 1, 10)];
        for plan in [shaped(&Shape::default(), &windows), two_stages(shaped(&Shape::default(), &windows))] {
            let world = run(&plan, &rows, 3, Pace { batch_max, sink_slow: 1 }).unwrap();
            let sums: Vec<_> = once(&world.outs).into_iter().map(|((start, _, _), agg)| (start, agg.sum.unwrap())).collect();
            assert_eq!(sums, [(0, 11), (1_000, 1), (2_000, 1)]);
            assert_eq!((world.counted(|task| &task.rows_late), world.counted(|task| &task.rows_late_partly)), (0, 1));
        }
    }
}

/// EV-3: two splits, every interleaving that the seeds give: what is late in one is not what the other makes it.
#[test]
fn two_splits_and_sliding_windows() {
    let windows = Aligned::Sliding { size_ms: 50, slide_ms: 20, offset_ms: 0 };
    let rows: Vec<Row> =
        (0..200).flat_map(|i| [row(0, i * 7 - (i % 5) * 23, i % 3, i), row(1, 400 + i * 3 - (i % 7) * 11, i % 3, i)]).collect();
    let expected = expected(&rows, &windows, 10, 5);
    assert!(expected.partly > 20 && expected.late > 20, "{} {}", expected.partly, expected.late);
    for seed in 0..30 {
        let shape = Shape { sources: 1 + seed as u32 % 2, windows: 2, bound_ms: 10, lateness_ms: 5, ..Shape::default() };
        let batch_max = 1 + seed % 13;
        let world = run(&shaped(&shape, &windows), &rows, seed, Pace { batch_max, sink_slow: 1 }).unwrap();
        assert_eq!(once(&world.outs), expected.results, "seed {seed}");
    }
}

/// E2: times around 0 and around the ends of the range: the windows of the definition, or an error that names the operator.
#[test]
fn grid_around_zero_and_the_ends_of_the_range() {
    let shapes = [
        Aligned::Tumbling { size_ms: 10, offset_ms: 3 },
        Aligned::Sliding { size_ms: 5, slide_ms: 2, offset_ms: 0 },
        Aligned::Sliding { size_ms: 5, slide_ms: 2, offset_ms: -1 },
        Aligned::Sliding { size_ms: 2, slide_ms: 5, offset_ms: 0 },
        Aligned::Cumulate { max_size_ms: 9, step_ms: 3, offset_ms: 1 },
    ];
    for windows in shapes {
        for time in -12..=12 {
            let rows = [row(0, time, 1, 1)];
            let world = run(&shaped(&Shape::default(), &windows), &rows, 1, BRISK).unwrap();
            assert_eq!(once(&world.outs), expected(&rows, &windows, 0, 0).results, "{windows:?} {time}");
        }
        let mut refused = 0;
        for time in (0..=12).flat_map(|i| [i64::MIN + i, i64::MAX - i]) {
            match run(&shaped(&Shape::default(), &windows), &[row(0, time, 1, 1)], 1, BRISK) {
                // The windows of the same time, two common multiples of 4,050 from the ends of the range, moved back.
                Ok(world) => {
                    let by = if time < 0 { 8_100 } else { -8_100 };
                    let near = expected(&[row(0, time + by, 1, 1)], &windows, 0, 0).results.into_keys();
                    let keys: Vec<_> = near.map(|(start, end, key)| (start - by, end - by, key)).collect();
                    assert_eq!(once(&world.outs).into_keys().collect::<Vec<_>>(), keys, "{windows:?} {time}");
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.class, Class::User);
                    assert!(error.message.contains("operator 'win'") && error.message.contains("out of range"), "{error}");
                }
            }
        }
        assert!(refused >= 2, "{windows:?}: {refused}");
    }
}

/// C15: days of Berlin around both changes of the clock: a short Sunday and a long one.
#[test]
fn days_of_a_time_zone() {
    let hour = 3_600_000;
    // Midnight of 2026-03-29 and 2026-10-25 in Berlin, which is 23:00 and 22:00 UTC of the day before.
    let (spring, autumn) = (1_774_738_800_000, 1_792_879_200_000);
    let windows = Aligned::Calendar { days: 1, offset_ms: 0, zone: Zone::named("Europe/Berlin").unwrap() };
    let times = [spring - 1, spring, spring + 23 * hour - 1, spring + 23 * hour, autumn, autumn + 25 * hour - 1, autumn + 25 * hour];
    let rows: Vec<Row> = times.iter().map(|time| row(0, *time, 1, 1)).collect();
    let world = run(&shaped(&Shape::default(), &windows), &rows, 1, BRISK).unwrap();
    let found: Vec<_> = once(&world.outs).into_iter().map(|((start, end, _), agg)| (start, end, agg.count)).collect();
    let expected = [
        (spring - 24 * hour, spring, 1),
        (spring, spring + 23 * hour, 2),
        (spring + 23 * hour, spring + 47 * hour, 1),
        (autumn, autumn + 25 * hour, 2),
        (autumn + 25 * hour, autumn + 49 * hour, 1),
    ];
    assert_eq!(found, expected);
}

/// WIN-1: windows fire in the order of their ends, also where they overlap.
#[test]
fn windows_fire_in_order_of_their_ends() {
    for windows in [
        Aligned::Sliding { size_ms: 100, slide_ms: 10, offset_ms: 0 },
        Aligned::Cumulate { max_size_ms: 100, step_ms: 10, offset_ms: 0 },
        Aligned::Sliding { size_ms: 2_003, slide_ms: 400, offset_ms: 0 },
    ] {
        let rows: Vec<Row> = (0..40).map(|i| row(0, i * 37, i % 4, 1)).collect();
        let world = run(&shaped(&Shape::default(), &windows), &rows, 1, Pace { batch_max: 3, sink_slow: 1 }).unwrap();
        let ends: Vec<i64> = given(&world.outs).into_iter().map(|((_, end, _), _, _)| end).collect();
        assert!(ends.is_sorted() && ends.len() > 30, "{windows:?}: {ends:?}");
    }
}

/// WIN-5: an overlapping window is evicted whole; panes that others need stay, and what was evicted never fires.
#[test]
fn eviction_of_overlapping_windows() {
    // Windows of 30 every 10: row 5 lies in those that end at 10, 20 and 30.
    let windows = Aligned::Sliding { size_ms: 30, slide_ms: 10, offset_ms: 0 };
    let shape = Shape { bound_ms: 100_000, keys_max: 2, bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 5, 1, 1), row(0, 15, 1, 2)], false);
    let mut world = world(&shaped(&shape, &windows), &feed, 1, BRISK).unwrap();
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.state_rows), 2, "panes count once");
    // A third pane: windows go until the first pane is needed no more, that is through 30.
    feed.append(&[row(0, 25, 1, 4)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.state_rows), 2);
    // Window 10 had one pane, 20 two, 30 three.
    assert_eq!(world.counted(|task| &task.rows_evicted), 6);
    // Row 6 comes for evicted windows only.
    feed.append(&[row(0, 6, 1, 8)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_evicted), 7);
    // The row that moves the watermark takes an entry itself: window 40 goes, with its two panes.
    feed.append(&[row(0, 200_000, 1, 16)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_evicted), 9);
    let sums: Vec<_> = once(&world.outs).into_iter().map(|((_, end, _), agg)| (end, agg.sum.unwrap())).collect();
    assert_eq!(sums, [(50, 4)]);
}

/// E8: 65,536 entries under a stalled watermark: the oldest windows go, each loss is counted, none fires later.
#[test]
fn a_stalled_watermark_at_the_bound() {
    let keys_max = 65_536;
    let shape = Shape { bound_ms: 1_000_000_000, keys_max, ..Shape::default() };
    // 20 windows of 10,000 keys: six fit whole, a seventh does not.
    let rows: Vec<Row> = (0..200_000).map(|i| row(0, i / 10_000 * 1_000, i % 10_000, 1)).collect();
    let world = run(&windowed(&shape), &rows, 1, BRISK).unwrap();
    let found = once(&world.outs);
    let starts: std::collections::BTreeSet<i64> = found.keys().map(|(start, _, _)| *start).collect();
    assert_eq!(starts.into_iter().collect::<Vec<_>>(), (14..20).map(|i| i * 1_000).collect::<Vec<_>>());
    assert_eq!(found.len(), 60_000);
    assert_eq!(world.counted(|task| &task.rows_evicted), 140_000, "every row is in or counted");
}

/// STA-3: state of other windows is refused, also where their panes are of one length.
#[test]
fn state_of_other_windows_is_refused() {
    let shape = Shape { bounded: false, ..Shape::default() };
    let feed = Feed::of(&[row(0, 1, 1, 1)], false);
    let sliding = |size_ms| Aligned::Sliding { size_ms, slide_ms: 1_000, offset_ms: 0 };
    let mut world = world(&shaped(&shape, &sliding(5_000)), &feed, 3, BRISK).unwrap();
    world.settle().unwrap();
    let cut = world.epoch().unwrap();
    let plan = shaped(&shape, &sliding(6_000));
    let error = World::new(&plan, &feed, 1, BRISK, &cut, &BTreeMap::new(), Arc::new(FakeClock::default())).err().unwrap();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains("'win'") && error.message.contains("another size or shape"), "{error}");
}

/// EV-4: a window that was retired takes no row of a split that comes back; for its other windows the row counts.
#[test]
fn a_returning_split_is_partly_late_for_retired_windows() {
    let windows = Aligned::Sliding { size_ms: 2_000, slide_ms: 1_000, offset_ms: 0 };
    let shape = Shape { bounded: false, idle_timeout_ms: 100, ..Shape::default() };
    let feed = Feed::of(&[row(0, 100, 1, 1), row(1, 100, 1, 2)], false);
    let mut world = world(&shaped(&shape, &windows), &feed, 3, BRISK).unwrap();
    world.settle().unwrap();
    // Split 1 falls silent; split 0 goes on past the first window's end.
    feed.append(&[row(0, 1_500, 1, 4)]);
    world.settle().unwrap();
    world.clock.pass_ms(200);
    world.settle().unwrap();
    feed.append(&[row(0, 1_600, 1, 8)]);
    world.settle().unwrap();
    feed.append(&[row(1, 150, 1, 16)]);
    world.settle().unwrap();
    assert_eq!(world.counted(|task| &task.rows_late_partly), 1);
    assert_eq!((world.counted(|task| &task.rows_late), world.counted(|task| &task.rows_retired)), (0, 0));
    feed.append(&[row(0, 5_000, 1, 32), row(1, 5_000, 1, 64)]);
    world.settle().unwrap();
    let sums: Vec<_> = once(&world.outs).into_iter().map(|((_, end, _), agg)| (end, agg.sum.unwrap())).collect();
    assert_eq!(sums, [(1_000, 3), (2_000, 31), (3_000, 12)]);
    assert_eq!(world.chains.iter().map(|chain| chain.metrics().tasks[0].rows_late.load(Ordering::SeqCst)).sum::<u64>(), 0);
}

/// EV-10, EV-5: windows follow a column and the watermark less what it trails, in one stage or two; rows that are
/// NULL in it are left out and counted.
#[test]
fn windows_follow_a_time_column() {
    let windows = Aligned::Sliding { size_ms: 1_000, slide_ms: 400, offset_ms: 0 };
    // The column lies up to 700 behind the event time.
    let rows: Vec<Row> =
        (0..300).map(|i| Row { value: (i % 11 != 0).then(|| i * 40 - (i * 37) % 701), ..row(i as u32 % 2, i * 40, i % 3, 0) }).collect();
    let followed: Vec<Row> = rows.iter().map(|row| Row { time_ms: row.value, ..*row }).collect();
    // Of its rows none is late.
    let expected = expected(&followed, &windows, 1_000_000, 0);
    let mut plan = shaped(&Shape { sources: 2, windows: 2, bound_ms: 40, ..Shape::default() }, &windows);
    let Work::Window(work) = &mut plan.chains[1].operators[0].work else { panic!("a window") };
    work.time = Some(TimeColumn { column: "v".to_owned(), trail_ms: 700 });
    for plan in [plan.clone(), two_stages(plan)] {
        for batch_max in [1, 9, 400] {
            let world = run(&plan, &rows, batch_max, Pace { batch_max, sink_slow: 1 }).unwrap();
            assert_eq!(once(&world.outs), expected.results);
            assert_eq!((world.counted(|task| &task.rows_late), world.counted(|task| &task.rows_invalid)), (0, 28));
        }
    }
}

/// EV-10: the watermark that is sent on is that of the column, less the lateness.
#[test]
fn a_followed_column_holds_the_watermark_back() {
    let shape = Shape { bounded: false, lateness_ms: 100, ..Shape::default() };
    let mut plan = shaped(&shape, &Aligned::Tumbling { size_ms: 1_000, offset_ms: 0 });
    let Work::Window(work) = &mut plan.chains[1].operators[0].work else { panic!("a window") };
    work.time = Some(TimeColumn { column: "v".to_owned(), trail_ms: 500 });
    let feed = Feed::of(&[row(0, 900, 1, 700), row(0, 1_599, 1, 1_200)], false);
    let mut world = world(&plan, &feed, 1, BRISK).unwrap();
    world.settle().unwrap();
    assert_eq!(once(&world.outs).len(), 0, "1599 less 500 less 100 is not yet 1000");
    feed.append(&[row(0, 1_600, 1, 1_200)]);
    world.settle().unwrap();
    assert_eq!(once(&world.outs).into_keys().collect::<Vec<_>>(), [(0, 1_000, Some(1))]);
    let marks: Vec<i64> = world
        .chains
        .iter()
        .flat_map(|chain| chain.metrics().tasks.iter().map(|task| task.watermark_ms.load(Ordering::SeqCst)).collect::<Vec<_>>())
        .collect();
    assert_eq!(marks, [1_600, 1_000, 1_000]);
}
