//! Tops alone: many rows of one window, odd values, and what is held.

use super::Top;
use crate::envelope::{BATCH_ROWS, Data, Envelope};
use crate::error::Error;
use crate::io::{FrozenImage, Restored, StateImage};
use crate::metric::TaskMetrics;
use crate::operator::budget::{Budget, Seat};
use crate::operator::{Context, Operator};
use crate::origin::Origins;
use crate::side::Sides;
use crate::state::merge_images;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, OperatorId, TaskId};
use weir_planner::plan::{SortOrder, TopWork};
use weir_planner::schema::{Column, ColumnType, Schema};

fn column(name: &str, ty: ColumnType) -> Column {
    Column { name: name.to_owned(), ty, nullable: true }
}

fn input() -> Schema {
    Schema(vec![column("k", ColumnType::Text), column("score", ColumnType::Double), column("n", ColumnType::BigInt)])
}

/// The greatest scores first.
fn work(keys: &[&str], limit: u64) -> TopWork {
    TopWork {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        order_by: vec![("score".to_owned(), SortOrder { descending: true, nulls_first: false })],
        limit,
        place: Some("place".to_owned()),
    }
}

/// Time, key, score, number.
type Row = (i64, Option<String>, Option<f64>, i64);

fn rows(rows: &[Row]) -> Data {
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.1.clone()).collect::<StringArray>());
    let scores: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>());
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.3)));
    let batch = RecordBatch::try_new(Arc::new(input().to_arrow()), vec![keys, scores, numbers]).unwrap();
    Data { rows: batch, times: Int64Array::from_iter_values(rows.iter().map(|row| row.0)), stamps: None, origins: Origins::Unknown }
}

/// The operator in a chain of its own.
struct Bench {
    top: Top,
    metrics: TaskMetrics,
    images: Vec<FrozenImage>,
    epochs: u64,
    watermark: i64,
    /// Time, number and place of what it gave.
    given: Vec<(i64, i64, i64)>,
    /// Largest batch that it gave.
    largest: usize,
}

fn built(work: &TopWork, bytes_max: Option<u64>, images: &[StateImage]) -> Result<Top, Error> {
    let mut output = input();
    output.0.push(Column { nullable: false, ..column("place", ColumnType::BigInt) });
    let seat = Seat { subtask: 0, parallelism: 1, max_parallelism: 128, budget: Arc::new(Budget::new(bytes_max)) };
    let restored = Restored { images: images.iter().cloned().map(Arc::new).collect(), redealt: false };
    Top::new(&OperatorId::new("top").unwrap(), work, &input(), &output, seat, &restored)
}

impl Bench {
    fn new(work: &TopWork, images: &[StateImage]) -> Self {
        let metrics = TaskMetrics::new(TaskId { operator: OperatorId::new("top").unwrap(), subtask: 0 });
        let top = built(work, None, images).unwrap();
        Bench { top, metrics, images: Vec::new(), epochs: 0, watermark: i64::MIN, given: Vec::new(), largest: 0 }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Top, &mut Context<'_>) -> T) -> T {
        let (mut changed, mut sides) = (false, Sides::default());
        let (images, metrics) = (&mut self.images, &self.metrics);
        work(&mut self.top, &mut Context { wall_ms: 0, now_ns: 0, metrics, images, changed: &mut changed, task: 0, sides: &mut sides })
    }

    fn take(&mut self, envelope: Envelope) {
        self.with(|top, context| top.take(envelope, context)).unwrap();
        while let Some(envelope) = self.with(|top, context| top.give(context)).unwrap() {
            match envelope {
                Envelope::Data(data) => {
                    self.largest = self.largest.max(data.len());
                    let number = |at: usize| data.rows.column(at).as_primitive::<Int64Type>().values().to_vec();
                    assert!(data.times.values().iter().all(|time| *time >= self.watermark), "EV-10");
                    let places = number(2).into_iter().zip(number(3));
                    self.given.extend(data.times.values().iter().zip(places).map(|(time, (n, place))| (*time, n, place)));
                }
                Envelope::Watermark(watermark) => self.watermark = watermark,
                Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => {}
            }
        }
    }

    fn rows(&mut self, given: &[Row]) {
        self.take(Envelope::Data(rows(given)));
    }

    fn barrier(&mut self) -> Option<StateImage> {
        self.epochs += 1;
        self.take(Envelope::Barrier(EpochId { attempt: Attempt::new(1), sequence: self.epochs }));
        self.images.pop().map(|image| image.build().unwrap())
    }
}

fn below(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % n
}

/// NaN the greatest, then numbers from above, NULL last; ties by all columns: the key, where NULL is the
/// greatest, the number, and at last the bits of the score, since -0 is 0 and every NaN is one.
fn expected(mut rows: Vec<Row>, keyed: bool, limit: usize) -> Vec<(i64, i64, i64)> {
    let rank = |score: Option<f64>| match score {
        None => (2, 0.0),
        Some(score) if score.is_nan() => (0, 0.0),
        Some(score) => (1, -score),
    };
    rows.sort_by(|a, b| {
        let ((x, v), (y, w)) = (rank(a.2), rank(b.2));
        let scores = x.cmp(&y).then(v.partial_cmp(&w).unwrap());
        let keys = (a.1.is_none(), &a.1).cmp(&(b.1.is_none(), &b.1));
        let bits = a.2.unwrap_or_default().total_cmp(&b.2.unwrap_or_default());
        scores.then(keys).then(a.3.cmp(&b.3)).then(bits)
    });
    let mut places: BTreeMap<(i64, Option<String>), i64> = BTreeMap::new();
    let mut found = Vec::new();
    for (time, key, _, number) in rows {
        let place = places.entry((time, key.filter(|_| keyed))).or_insert(0);
        *place += 1;
        if *place as usize <= limit {
            found.push((time, number, *place));
        }
    }
    found.sort_unstable();
    found
}

/// The same as sorting all rows of each time, over many batches of all sizes, and over restarts from
/// images that were put together in part.
#[test]
fn the_first_of_many() {
    for seed in 0..12u64 {
        let mut random = seed;
        let keyed = below(&mut random, 2) == 0;
        let limit = [1, 3, 50, 10_000][below(&mut random, 4) as usize];
        let work = work(if keyed { &["k"] } else { &[] }, limit);
        println!("seed {seed}: keyed {keyed}, limit {limit}");
        let (mut all, mut given, mut images): (Vec<Row>, Vec<_>, Vec<StateImage>) = (Vec::new(), Vec::new(), Vec::new());
        let mut bench = Bench::new(&work, &[]);
        let mut head = 0;
        for step in 0..24 {
            let count = [1, 40, 3_000][below(&mut random, 3) as usize];
            let batch: Vec<Row> = (0..count)
                .map(|i| {
                    let score = match below(&mut random, 40) {
                        0 => None,
                        1 => Some(f64::NAN * if i % 2 == 0 { 1.0 } else { -1.0 }),
                        2 => Some(if i % 2 == 0 { 0.0 } else { -0.0 }),
                        _ => Some(below(&mut random, 1_000) as f64 - 500.0),
                    };
                    let key = (below(&mut random, 9) > 0).then(|| format!("key {}", below(&mut random, 5)));
                    (head + below(&mut random, 3) as i64, key, score, step * 10_000 + i)
                })
                .collect();
            bench.rows(&batch);
            all.extend(batch);
            if below(&mut random, 5) == 0 {
                head += below(&mut random, 3) as i64;
                bench.take(Envelope::Watermark(head));
            }
            if below(&mut random, 2) == 0 {
                images.extend(bench.barrier());
                if below(&mut random, 2) == 0 && images.len() > 1 {
                    let newest = images.split_off(below(&mut random, images.len() as u64) as usize);
                    images.push(merge_images(&newest.into_iter().map(Arc::new).collect::<Vec<_>>()).unwrap());
                }
                if below(&mut random, 3) == 0 {
                    given.append(&mut bench.given);
                    bench = Bench { watermark: bench.watermark, ..Bench::new(&work, &images) };
                }
            }
        }
        bench.take(Envelope::Watermark(i64::MAX));
        assert!(bench.largest <= BATCH_ROWS);
        given.append(&mut bench.given);
        given.sort_unstable();
        let expected = expected(all, keyed, limit as usize);
        assert_eq!(given.iter().zip(&expected).find(|(a, b)| a != b), None);
        assert_eq!(given.len(), expected.len());
        assert_eq!(bench.metrics.state_rows.load(Ordering::SeqCst), 0);
        let last = images.into_iter().chain(bench.barrier()).map(Arc::new).collect::<Vec<_>>();
        assert_eq!(merge_images(&last).unwrap().rows.num_rows(), 0, "nothing is left when all is given");
    }
}

/// What cannot be first any more is not held, and not written: a million rows, of which three are.
#[test]
fn what_cannot_be_first_is_not_held() {
    let mut bench = Bench::new(&work(&[], 3), &[]);
    let mut random = 7;
    for step in 0..60 {
        let batch: Vec<Row> = (0..4_000).map(|i| (10, None, Some(below(&mut random, 1 << 30) as f64), step * 10_000 + i)).collect();
        bench.rows(&batch);
        assert!(bench.metrics.state_rows.load(Ordering::SeqCst) <= 2 * 3 + BATCH_ROWS as u64);
    }
    let image = bench.barrier().unwrap();
    assert_eq!(image.rows.num_rows(), 3);
    assert!(bench.barrier().is_none(), "nothing changed");
    bench.rows(&[(10, None, Some(-1.0), 0)]);
    assert_eq!(bench.metrics.state_rows.load(Ordering::SeqCst), 3, "behind the bound");
    assert!(bench.barrier().is_none());
    bench.take(Envelope::Watermark(10));
    assert!(bench.given.is_empty(), "rows of time 10 may still come");
    bench.take(Envelope::Watermark(11));
    assert_eq!(bench.given.iter().map(|(_, _, place)| *place).collect::<Vec<_>>(), [1, 2, 3]);
}

/// EV-4: rows of a time that has been given are late, and do not come.
#[test]
fn rows_of_times_that_are_gone_are_late() {
    let mut bench = Bench::new(&work(&[], 3), &[]);
    bench.rows(&[(5, None, Some(1.0), 1)]);
    bench.take(Envelope::Watermark(6));
    bench.rows(&[(5, None, Some(2.0), 2), (6, None, Some(2.0), 3)]);
    bench.take(Envelope::Watermark(i64::MAX));
    assert_eq!(bench.given, [(5, 1, 1), (6, 3, 1)]);
    assert_eq!(bench.metrics.rows_late.load(Ordering::SeqCst), 1);
    assert_eq!(bench.metrics.rows_retired.load(Ordering::SeqCst), 1);
}

/// Rows go as they came, with all their columns.
#[test]
fn rows_keep_their_columns() {
    let mut bench = Bench::new(&work(&["k"], 1), &[]);
    bench.with(|top, context| top.take(Envelope::Data(rows(&[(5, Some("a".to_owned()), Some(-0.0), 1)])), context)).unwrap();
    bench.with(|top, context| top.take(Envelope::Watermark(6), context)).unwrap();
    let Some(Envelope::Data(data)) = bench.with(|top, context| top.give(context)).unwrap() else { panic!("it fires") };
    assert_eq!(data.rows.column(0).as_string::<i32>().value(0), "a");
    let score = data.rows.column(1).as_primitive::<Float64Type>();
    assert!(score.null_count() == 0 && score.value(0).is_sign_negative(), "only the order looks at -0 as 0");
}

/// WIN-5: over the job's limit the job fails and says what to do.
#[test]
fn state_over_the_limit_fails_the_job() {
    let mut bench = Bench::new(&work(&[], 1_000_000), &[]);
    bench.top = built(&work(&[], 1_000_000), Some(10_000), &[]).unwrap();
    let batch: Vec<Row> = (0..5_000).map(|i| (10, None, Some(1.0), i)).collect();
    let error = bench.with(|top, context| top.take(Envelope::Data(rows(&batch)), context)).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("operator 'top'") && error.message.contains("state.max_bytes, 10000 bytes"), "{}", error.message);
}
