//! Sessions alone: what leaves when, and what is held.

use super::Session;
use crate::envelope::{Data, Envelope};
use crate::io::{FrozenImage, Restored, StateImage};
use crate::metric::TaskMetrics;
use crate::operator::budget::{Budget, Seat};
use crate::operator::{Context, Operator};
use crate::origin::Origins;
use crate::side::Sides;
use crate::state::merge_images;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::expr::{Aggregate, AggregateFunction, Expr, Typed};
use weir_planner::id::{Attempt, EpochId, OperatorId, TaskId};
use weir_planner::plan::{TimeColumn, UPDATE_COLUMN, WindowWork};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{ErrorPolicy, LatePolicy, OnOverflow};
use weir_planner::time::TimeUnit;
use weir_planner::window::Windows;

fn column(name: &str, ty: ColumnType) -> Column {
    Column { name: name.to_owned(), ty, nullable: true }
}

fn input() -> Schema {
    Schema(vec![column("k", ColumnType::Text), column("v", ColumnType::BigInt)])
}

fn work(gap_ms: i64, late: LatePolicy) -> WindowWork {
    let over = |function, name: Option<&str>| Aggregate {
        function,
        arguments: name
            .map(|name| Typed { expr: Expr::Column(name.to_owned()), ty: ColumnType::BigInt, nullable: true })
            .into_iter()
            .collect(),
        distinct: false,
        order_by: Vec::new(),
        filter: None,
        ty: ColumnType::BigInt,
        nullable: true,
    };
    WindowWork {
        windows: Windows::Session { gap_ms },
        time: None,
        keys: vec!["k".to_owned()],
        aggregates: vec![
            ("n".to_owned(), over(AggregateFunction::Count, None)),
            ("least".to_owned(), over(AggregateFunction::Min, Some("v"))),
        ],
        having: None,
        allowed_lateness_ms: 0,
        keys_max: 0,
        on_overflow: OnOverflow::Fail,
        late,
        on_error: ErrorPolicy::Fail,
        partials: false,
        early_ms: None,
        empty_within_ms: None,
    }
}

fn output(work: &WindowWork) -> Schema {
    let stamp = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };
    let mut output = vec![column("k", ColumnType::Text), column("window_start", stamp), column("window_end", stamp)];
    output.extend(work.aggregates.iter().map(|(name, aggregate)| column(name, aggregate.ty)));
    if work.marks_updates() {
        output.push(Column { nullable: false, ..column(UPDATE_COLUMN, ColumnType::Boolean) });
    }
    Schema(output)
}

/// The operator in a chain of its own.
struct Bench {
    session: Session,
    metrics: TaskMetrics,
    images: Vec<FrozenImage>,
    epochs: u64,
    /// The greatest watermark that it sent on.
    sent: i64,
    /// Key, start, end, rows and least value of what it gave.
    given: Vec<(String, i64, i64, i64, i64)>,
}

impl Bench {
    fn new(work: &WindowWork, images: &[StateImage]) -> Self {
        let id = OperatorId::new("win").unwrap();
        let seat = Seat { subtask: 0, parallelism: 1, max_parallelism: 128, budget: Arc::new(Budget::new(None)) };
        let restored = Restored { images: images.iter().cloned().map(Arc::new).collect(), redealt: false };
        let session = Session::new(&id, work, &input(), &output(work), seat, &restored).unwrap();
        let metrics = TaskMetrics::new(TaskId { operator: id, subtask: 0 });
        Bench { session, metrics, images: Vec::new(), epochs: 0, sent: i64::MIN, given: Vec::new() }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Session, &mut Context<'_>) -> T) -> T {
        let (mut changed, mut sides) = (false, Sides::default());
        let (images, metrics) = (&mut self.images, &self.metrics);
        work(&mut self.session, &mut Context { wall_ms: 0, now_ns: 0, metrics, images, changed: &mut changed, task: 0, sides: &mut sides })
    }

    fn take(&mut self, envelope: Envelope) {
        self.with(|session, context| session.take(envelope, context)).unwrap();
        while let Some(envelope) = self.with(|session, context| session.give(context)).unwrap() {
            match envelope {
                Envelope::Data(data) => self.note(&data),
                Envelope::Watermark(watermark) => self.sent = self.sent.max(watermark),
                Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => {}
            }
        }
    }

    fn note(&mut self, data: &Data) {
        assert!(data.times.values().iter().all(|time| *time >= self.sent), "EV-10: no row lies behind the watermark before it");
        let stamp = |name: &str| data.rows.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().clone();
        let number = |name: &str| data.rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let (starts, ends, n, least) = (stamp("window_start"), stamp("window_end"), number("n"), number("least"));
        let keys = data.rows.column(0).as_string::<i32>();
        for row in 0..data.len() {
            assert_eq!(data.times.value(row), ends.value(row) - 1);
            self.given.push((keys.value(row).to_owned(), starts.value(row), ends.value(row), n.value(row), least.value(row)));
        }
    }

    /// Rows of key, time and value.
    fn rows(&mut self, rows: &[(u32, i64, i64)]) {
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, ..)| format!("key {key}"))));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, _, value)| *value)));
        let rows_of = RecordBatch::try_new(Arc::new(input().to_arrow()), vec![keys, values]).unwrap();
        let times = Int64Array::from_iter_values(rows.iter().map(|(_, time, _)| *time));
        self.take(Envelope::Data(Data { rows: rows_of, times, stamps: None, origins: Origins::Unknown }));
    }

    fn barrier(&mut self) -> Option<StateImage> {
        self.epochs += 1;
        self.take(Envelope::Barrier(EpochId { attempt: Attempt::new(1), sequence: self.epochs }));
        self.images.pop().map(|image| image.build().unwrap())
    }

    fn bytes(&self) -> u64 {
        self.metrics.state_bytes.load(Ordering::SeqCst)
    }
}

fn below(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % n
}

/// STA-3, EV-10: after each of many barriers state is put back from the images since the beginning,
/// merged by pieces now and then, as compaction does. Rows come up to a bound behind, so that sessions
/// begin earlier, join, and fire while images still name what they were.
#[test]
fn images_say_what_sessions_are() {
    for seed in 0..60u64 {
        let mut random = seed;
        let (gap, bound) = (1 + below(&mut random, 30) as i64, below(&mut random, 200) as i64);
        println!("seed {seed}: gap {gap}, bound {bound}");
        let work = work(gap, LatePolicy::Drop);
        let mut bench = Bench::new(&work, &[]);
        let (mut all, mut given, mut images): (Vec<_>, Vec<_>, Vec<StateImage>) = (Vec::new(), Vec::new(), Vec::new());
        let mut head = 0;
        for _ in 0..30 {
            for _ in 0..below(&mut random, 4) {
                let row = |random: &mut u64| {
                    (
                        below(random, 4) as u32,
                        head + below(random, 60) as i64 - bound.min(below(random, 200) as i64),
                        below(random, 100) as i64,
                    )
                };
                let rows: Vec<_> = (0..1 + below(&mut random, 12)).map(|_| row(&mut random)).collect();
                bench.rows(&rows);
                all.extend(rows);
                head += below(&mut random, 20) as i64;
            }
            // Every row to come is at `head - bound` at least.
            bench.take(Envelope::Watermark(head - bound));
            images.extend(bench.barrier());
            if below(&mut random, 2) == 0 && images.len() > 1 {
                let newest = images.split_off(below(&mut random, images.len() as u64) as usize);
                images.push(merge_images(&newest.into_iter().map(Arc::new).collect::<Vec<_>>()).unwrap());
            }
            if below(&mut random, 2) == 0 {
                given.append(&mut bench.given);
                bench = Bench { sent: bench.sent, ..Bench::new(&work, &images) };
            }
        }
        bench.take(Envelope::Watermark(i64::MAX));
        given.append(&mut bench.given);
        given.sort_unstable();
        let mut expected: Vec<(String, i64, i64, i64, i64)> = Vec::new();
        all.sort_unstable();
        for (key, time, value) in all {
            match expected.last_mut() {
                Some(last) if last.0 == format!("key {key}") && time < last.2 => {
                    (last.2, last.3, last.4) = (time + gap, last.3 + 1, last.4.min(value));
                }
                _ => expected.push((format!("key {key}"), time, time + gap, 1, value)),
            }
        }
        assert_eq!(given, expected);
        let merged = bench.barrier().map(|last| merge_images(&images.into_iter().chain([last]).map(Arc::new).collect::<Vec<_>>()).unwrap());
        assert_eq!(merged.map(|merged| merged.rows.num_rows()), Some(0), "nothing is left when all is fired");
    }
}

/// STA-3: an epoch that changed nothing writes nothing, and one that changed a session writes that one.
#[test]
fn an_image_holds_what_changed() {
    let mut bench = Bench::new(&work(10, LatePolicy::Drop), &[]);
    bench.rows(&[(1, 100, 1), (2, 100, 1), (2, 200, 1)]);
    assert_eq!(bench.barrier().unwrap().rows.num_rows(), 3);
    assert!(bench.barrier().is_none());
    bench.rows(&[(2, 205, 1)]);
    assert_eq!(bench.barrier().unwrap().rows.num_rows(), 1);
    // One begins earlier: it is written anew, and what it was is gone.
    bench.rows(&[(1, 95, 1)]);
    let image = bench.barrier().unwrap();
    assert_eq!(image.rows.column_by_name("__a_gone").unwrap().as_boolean().true_count(), 1);
    assert_eq!(image.rows.num_rows(), 2);
}

/// SPD-7: keys that come once and never again leave nothing behind.
#[test]
fn keys_without_sessions_give_their_memory_back() {
    let mut bench = Bench::new(&work(10, LatePolicy::Drop), &[]);
    let mut most = 0;
    for second in 0..400i64 {
        let rows: Vec<_> = (0..500).map(|i| ((second * 500 + i) as u32, second * 100 + i % 100, i)).collect();
        bench.rows(&rows);
        bench.take(Envelope::Watermark(second * 100));
        if second >= 40 {
            most = most.max(bench.bytes());
        }
    }
    assert_eq!(bench.given.len() + bench.session.sessions.open(), 200_000);
    assert!(most < 4 << 20, "{most} bytes for 1,000 open sessions of 200,000 keys");
}

/// WIN-4: sessions are complete when they are given, so that none is ever an update; the marker is there all the same.
#[test]
fn updates_are_never_marked() {
    let work = work(10, LatePolicy::Update);
    let mut bench = Bench::new(&work, &[]);
    bench.rows(&[(1, 100, 1)]);
    bench.with(|session, context| session.take(Envelope::Watermark(i64::MAX), context)).unwrap();
    let Some(Envelope::Data(data)) = bench.with(|session, context| session.give(context)).unwrap() else { panic!("it fires") };
    let marker = data.rows.column_by_name(UPDATE_COLUMN).unwrap().as_boolean();
    assert_eq!((marker.len(), marker.true_count(), marker.null_count()), (1, 0, 0));
}

/// Counts by key of what many rows in one batch come to that join sessions one after the other.
#[test]
fn joins_within_one_batch_lose_nothing() {
    let mut bench = Bench::new(&work(10, LatePolicy::Drop), &[]);
    bench.rows(&(0..20).map(|i| (1, 100 + 15 * i, i)).collect::<Vec<_>>());
    // The rows between them, the last first: each joins what is behind it.
    bench.rows(&(0..20).rev().map(|i| (1, 107 + 15 * i, i)).collect::<Vec<_>>());
    bench.rows(&[(1, 1_000, 1), (1, 1_018, 1), (1, 1_036, 1), (1, 1_027, 1), (1, 1_009, 1)]);
    bench.take(Envelope::Watermark(i64::MAX));
    let counts: BTreeMap<i64, (i64, i64)> = bench.given.iter().map(|(_, start, end, n, _)| (*start, (*end, *n))).collect();
    assert_eq!(counts, BTreeMap::from([(100, (107 + 15 * 19 + 10, 40)), (1_000, (1_046, 5))]));
}

/// EV-10: where sessions follow a column, its times make them, and the watermark is taken less the
/// trail: a row may lie so far behind the input's.
#[test]
fn sessions_follow_a_time_column() {
    let time = TimeColumn { column: "v".to_owned(), trail_ms: 100 };
    let mut bench = Bench::new(&WindowWork { time: Some(time), ..work(10, LatePolicy::Drop) }, &[]);
    bench.rows(&[(1, 7_000, 1_000), (1, 7_000, 1_009), (1, 7_000, 1_019)]);
    // The session ends at 1,019: complete from 1,019 + 10 - 1 on, which the input's watermark is 100 ahead of.
    bench.take(Envelope::Watermark(1_127));
    assert_eq!((bench.given.len(), bench.sent), (0, 1_018));
    bench.rows(&[(2, 7_000, 1_027)]);
    bench.take(Envelope::Watermark(1_128));
    assert_eq!((bench.given.as_slice(), bench.sent), ([("key 1".to_owned(), 1_000, 1_019, 2, 1_000)].as_slice(), 1_019));
    bench.take(Envelope::Watermark(i64::MAX));
    assert_eq!(bench.given.len(), 3);
    assert_eq!(bench.metrics.rows_late.load(Ordering::SeqCst), 0);
}
