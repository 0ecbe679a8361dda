//! Buffers alone, by a clock that the test turns.

use super::Buffer;
use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::io::{FrozenImage, Restored, StateImage};
use crate::metric::TaskMetrics;
use crate::operator::budget::{Budget, Seat};
use crate::operator::{Context, Operator};
use crate::origin::{Origins, Partition};
use crate::side::Sides;
use crate::state::merge_images;
use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, OperatorId, TaskId};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{Buffer as Planned, MemoryBuffer, SessionBuffer, TumblingBuffer};

fn input() -> Schema {
    let column = |name: &str, ty| Column { name: name.to_owned(), ty, nullable: true };
    Schema(vec![column("n", ColumnType::BigInt), column("name", ColumnType::Text)])
}

/// Rows numbered so, whose time is ten times the number; stamps are 5 ahead where asked for. Of each five, two
/// come from one partition, two from another, and one from none.
fn rows(numbers: std::ops::Range<i64>, stamped: bool) -> Data {
    let names = StringArray::from_iter(numbers.clone().map(|n| (n % 3 != 0).then(|| format!("row {n}"))));
    let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(numbers.clone())), Arc::new(names)];
    let times = Int64Array::from_iter_values(numbers.clone().map(|n| 10 * n));
    let partition = |split: &str| Arc::new(Partition { source: OperatorId::new("s").unwrap(), split: split.to_owned() });
    let origin = |n: i64| [Some("a/0"), Some("a/0"), Some("a/1"), Some("a/1"), None][n as usize % 5].map(partition);
    let origins = Origins::each(numbers.clone().map(origin));
    let stamps = stamped.then(|| Int64Array::from_iter_values(numbers.map(|n| 10 * n + 5)));
    Data { rows: RecordBatch::try_new(Arc::new(input().to_arrow()), columns).unwrap(), times, stamps, origins }
}

fn memory(capacity: u64, timeout_ms: u64) -> Planned {
    Planned::Memory(MemoryBuffer { capacity, timeout_ms })
}

/// A buffer in a chain of its own.
struct Bench {
    buffer: Buffer,
    metrics: TaskMetrics,
    wall_ms: i64,
    now_ns: u64,
    images: Vec<FrozenImage>,
    epochs: u64,
}

fn seat(subtask: u32, parallelism: u32, bytes_max: Option<u64>) -> Seat {
    Seat { subtask, parallelism, max_parallelism: 128, budget: Arc::new(Budget::new(bytes_max)) }
}

fn built(work: &Planned, seat: Seat, images: &[StateImage]) -> Result<Buffer, Error> {
    let restored = Restored { images: images.iter().cloned().map(Arc::new).collect(), redealt: false };
    Buffer::new(&OperatorId::new("hold").unwrap(), work, &input(), seat, &restored)
}

impl Bench {
    fn new(work: &Planned, wall_ms: i64) -> Self {
        Bench::restored(work, wall_ms, &[])
    }

    fn restored(work: &Planned, wall_ms: i64, images: &[StateImage]) -> Self {
        let metrics = TaskMetrics::new(TaskId { operator: OperatorId::new("hold").unwrap(), subtask: 1 });
        let buffer = built(work, seat(1, 2, None), images).unwrap();
        Bench { buffer, metrics, wall_ms, now_ns: 1_000_000, images: Vec::new(), epochs: 0 }
    }

    fn pass(&mut self, ms: i64) {
        self.wall_ms += ms;
        self.now_ns += ms as u64 * 1_000_000;
    }

    /// What it gives now, as a chain asks for it.
    fn given(&mut self) -> String {
        let mut told = Vec::new();
        let (mut changed, mut sides) = (false, Sides::default());
        loop {
            let (images, metrics) = (&mut self.images, &self.metrics);
            let mut context =
                Context { wall_ms: self.wall_ms, now_ns: self.now_ns, metrics, images, changed: &mut changed, task: 0, sides: &mut sides };
            match self.buffer.give(&mut context).unwrap() {
                None => break,
                Some(envelope) => told.push(text(&envelope)),
            }
        }
        assert_eq!(changed, told.iter().any(|text| text.starts_with('[')), "rows that go are a change");
        told.join(" ")
    }

    fn take(&mut self, envelope: Envelope) -> String {
        let before = self.given();
        assert_eq!(before, "", "a chain takes only when there is nothing to give");
        let (mut changed, mut sides) = (false, Sides::default());
        let (images, metrics) = (&mut self.images, &self.metrics);
        let mut context =
            Context { wall_ms: self.wall_ms, now_ns: self.now_ns, metrics, images, changed: &mut changed, task: 0, sides: &mut sides };
        self.buffer.take(envelope, &mut context).unwrap();
        self.given()
    }

    fn rows(&mut self, numbers: std::ops::Range<i64>) -> String {
        self.take(Envelope::Data(rows(numbers, false)))
    }

    fn watermark(&mut self, watermark: i64) -> String {
        self.take(Envelope::Watermark(watermark))
    }

    fn barrier(&mut self) -> Option<StateImage> {
        self.epochs += 1;
        let epoch = EpochId { attempt: Attempt::new(1), sequence: self.epochs };
        assert_eq!(self.take(Envelope::Barrier(epoch)), "barrier");
        assert!(self.images.len() <= 1);
        self.images.pop().map(|image| image.build().unwrap())
    }

    fn until_ms(&self) -> Option<i64> {
        self.buffer.until_ns().map(|until| self.wall_ms + (until as i64 - self.now_ns as i64) / 1_000_000)
    }
}

fn numbers(rows: &RecordBatch) -> Vec<i64> {
    rows.column_by_name("n").or_else(|| rows.column_by_name("__a0_n")).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn text(envelope: &Envelope) -> String {
    match envelope {
        Envelope::Data(data) => {
            let found = numbers(&data.rows);
            let (first, last) = (found[0], found[found.len() - 1]);
            assert_eq!(found, (first..=last).collect::<Vec<_>>(), "the order of arrival");
            let stamped = data.stamps.is_some();
            assert_eq!(format!("{data:?}"), format!("{:?}", rows(first..last + 1, stamped)), "rows are as they came");
            format!("[{first}..{last}]")
        }
        Envelope::Watermark(i64::MAX) => "end of time".to_owned(),
        Envelope::Watermark(watermark) => format!("w{watermark}"),
        Envelope::Idle => "idle".to_owned(),
        Envelope::Active => "active".to_owned(),
        Envelope::Barrier(_) => "barrier".to_owned(),
        Envelope::End => "end".to_owned(),
    }
}

/// A memory buffer gives on full batches of exactly its capacity, whatever the batches that came,
/// and the rest when its first row has waited for the timeout.
#[test]
fn a_memory_buffer_is_full_or_waits_so_long() {
    let mut bench = Bench::new(&memory(5, 100), 7_000);
    assert_eq!(bench.until_ms(), Some(7_000 - 1), "looked at in the first step");
    assert_eq!((bench.given().as_str(), bench.until_ms()), ("", None));
    assert_eq!(bench.rows(0..3), "");
    bench.pass(60);
    assert_eq!(bench.rows(3..4), "");
    assert_eq!(bench.until_ms(), Some(7_100), "since the first row");
    bench.pass(10);
    assert_eq!(bench.rows(4..17), "[0..4] [5..9] [10..14]");
    assert_eq!(bench.until_ms(), Some(7_170), "since the first row of what is left");
    bench.pass(99);
    assert_eq!(bench.given(), "");
    bench.pass(1);
    assert_eq!(bench.given(), "[15..16]");
    assert_eq!(bench.until_ms(), None);
    assert_eq!(bench.rows(17..22), "[17..21]");
}

/// A tumbling buffer gives on each span of the clock, cut at multiples of its length, also before 1970;
/// a row of the next span does not share a batch with those before it.
#[test]
fn a_tumbling_buffer_cuts_the_clock_at_multiples() {
    for begin in [7_000, -3_000] {
        let mut bench = Bench::new(&Planned::Tumbling(TumblingBuffer { interval_ms: 1_000 }), begin + 990);
        assert_eq!(bench.rows(0..2), "");
        assert_eq!(bench.until_ms(), Some(begin + 1_000));
        bench.pass(9);
        assert_eq!(bench.rows(2..4), "");
        bench.pass(1);
        assert_eq!(bench.given(), "[0..3]");
        assert_eq!(bench.rows(4..5), "");
        assert_eq!(bench.until_ms(), Some(begin + 2_000));
        // The wall clock is set ahead: no timer has run out, but the next row finds the span over.
        bench.wall_ms += 1_500;
        assert_eq!(bench.rows(5..7), "[4..4]");
        bench.pass(500);
        assert_eq!(bench.given(), "[5..6]");
    }
}

/// A session buffer gives on when no row has come for the gap.
#[test]
fn a_session_buffer_waits_for_silence() {
    let mut bench = Bench::new(&Planned::Session(SessionBuffer { gap_ms: 50 }), 7_000);
    for at in 0..10 {
        assert_eq!(bench.rows(2 * at..2 * at + 2), "");
        assert_eq!(bench.until_ms(), Some(bench.wall_ms + 50));
        bench.pass(49);
        assert_eq!(bench.given(), "");
    }
    bench.pass(1);
    assert_eq!(bench.given(), "[0..19]");
    assert_eq!(bench.rows(20..21), "");
}

/// A wall clock that is set back keeps nothing.
#[test]
fn a_clock_set_back_lets_rows_go() {
    for work in
        [memory(100, 1_000), Planned::Session(SessionBuffer { gap_ms: 1_000 }), Planned::Tumbling(TumblingBuffer { interval_ms: 1_000 })]
    {
        let mut bench = Bench::new(&work, 3_600_500);
        assert_eq!(bench.rows(0..2), "");
        bench.wall_ms -= 3_600_000;
        assert_eq!(bench.rows(2..3), "[0..1]");
        bench.pass(1_000);
        assert_eq!(bench.given(), "[2..2]");
    }
}

/// EV-2: no mark passes a row that came before it, and none waits for a row that came after it.
#[test]
fn marks_wait_for_the_rows_before_them_and_no_others() {
    let mut bench = Bench::new(&memory(4, 100), 0);
    assert_eq!(bench.watermark(5), "w5", "nothing is held");
    assert_eq!(bench.take(Envelope::Idle), "idle");
    assert_eq!(bench.take(Envelope::Active), "active");
    assert_eq!(bench.rows(0..2), "");
    assert_eq!(bench.watermark(10), "");
    assert_eq!(bench.watermark(15), "", "the later one stands for both");
    assert_eq!(bench.rows(2..3), "");
    assert_eq!(bench.watermark(20), "");
    assert_eq!(bench.take(Envelope::Idle), "");
    assert_eq!(bench.take(Envelope::Active), "");
    assert_eq!(bench.rows(3..6), "[0..3] w15 active w20");
    assert_eq!(bench.watermark(30), "");
    assert_eq!(bench.take(Envelope::Idle), "");
    assert!(bench.barrier().is_some(), "a barrier waits for nothing: what is held is in the cut");
    assert_eq!(bench.rows(6..7), "");
    assert_eq!(bench.rows(7..9), "[4..7] w30 idle", "row 8 came later");
    // The end lets all go.
    assert_eq!(bench.watermark(i64::MAX), "[8..8] end of time");
    assert_eq!(bench.take(Envelope::End), "end");
    assert!(bench.barrier().is_some_and(|image| image.rows.num_rows() == 0), "EPO-7: barriers follow the end");
}

/// STA-3: an image has what came since the last one and is still held, and says what has gone; what
/// came and went between two barriers leaves no trace, and without a change there is no image.
#[test]
fn images_hold_what_changed() {
    let mut bench = Bench::new(&memory(10, 100), 1_000);
    assert!(bench.barrier().is_none());
    bench.rows(0..3);
    let first = bench.barrier().unwrap();
    assert_eq!((numbers(&first.rows), first.retired_ms), (vec![0, 1, 2], 0));
    let group = first.rows.column(0).as_primitive::<arrow::datatypes::UInt32Type>().value(0);
    assert_eq!(group, 64, "the first key group of subtask 1 of 2");
    assert!(bench.barrier().is_none());
    bench.rows(3..5);
    assert_eq!(numbers(&bench.barrier().unwrap().rows), [3, 4]);
    assert_eq!(bench.rows(5..12), "[0..9]");
    let third = bench.barrier().unwrap();
    assert_eq!((numbers(&third.rows), third.retired_ms), (vec![10, 11], 10));
    bench.pass(100);
    assert_eq!(bench.given(), "[10..11]");
    let fourth = bench.barrier().unwrap();
    assert_eq!((fourth.rows.num_rows(), fourth.retired_ms), (0, 12));
    assert_eq!(bench.rows(12..22), "[12..21]");
    assert!(bench.barrier().is_none(), "what came and went");
    let merged = merge_images(&[first, third, fourth].map(Arc::new)).unwrap();
    assert_eq!((merged.rows.num_rows(), merged.retired_ms), (0, 12));
}

/// B1, STA-3: a restart from any barrier, with images as they are or merged, gives on what had not
/// gone at that barrier: each row once, in order, with times and stamps, in the same batches where the
/// clock allows it. Batches that went after the barrier were part of no decided epoch.
#[test]
fn a_restart_from_any_barrier_loses_and_doubles_nothing() {
    let plans = [memory(7, 40), Planned::Session(SessionBuffer { gap_ms: 15 }), Planned::Tumbling(TumblingBuffer { interval_ms: 30 })];
    for (plan, work) in plans.iter().enumerate() {
        for seed in 0..30u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + plan as u64;
            let mut below = move |n: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % n
            };
            let mut bench = Bench::new(work, 1_000);
            let (mut next, mut given) = (0i64, Vec::new());
            // Images, next input row, rows given until then, and the clock: what a decided epoch has.
            let mut cut = (Vec::new(), 0i64, 0usize, 1_000i64);
            for _ in 0..120 {
                match below(8) {
                    0..=3 => {
                        let count = 1 + below(6) as i64;
                        let told = bench.take(Envelope::Data(rows(next..next + count, seed % 2 == 0)));
                        next += count;
                        given.extend(ranges(&told));
                    }
                    4 | 5 => {
                        bench.pass(below(25) as i64);
                        let told = bench.given();
                        given.extend(ranges(&told));
                    }
                    6 => {
                        let image = bench.barrier();
                        cut.0.extend(image);
                        if below(3) == 0 && !cut.0.is_empty() {
                            cut.0 = vec![merge_images(&cut.0.iter().cloned().map(Arc::new).collect::<Vec<_>>()).unwrap()];
                        }
                        cut = (cut.0, next, given.len(), bench.wall_ms);
                    }
                    _ => {
                        let wall_ms = bench.wall_ms.max(cut.3) + below(40) as i64;
                        bench = Bench::restored(work, wall_ms, &cut.0);
                        next = cut.1;
                        given.truncate(cut.2);
                        let told = bench.given();
                        given.extend(ranges(&told));
                    }
                }
            }
            let told = bench.watermark(i64::MAX);
            given.extend(ranges(told.trim_end_matches("end of time")));
            let rows: Vec<i64> = given.iter().flat_map(|(first, last)| *first..=*last).collect();
            assert_eq!(rows, (0..next).collect::<Vec<_>>(), "plan {plan} seed {seed}");
        }
    }
}

fn ranges(told: &str) -> Vec<(i64, i64)> {
    let one = |text: &str| {
        let (first, last) = text.trim_matches(['[', ']']).split_once("..").unwrap();
        (first.parse().unwrap(), last.parse().unwrap())
    };
    told.split_whitespace().map(one).collect()
}

/// A restart does not begin the wait anew.
#[test]
fn the_wait_goes_on_over_a_restart() {
    for (work, due) in [
        (memory(100, 100), 7_100),
        (Planned::Session(SessionBuffer { gap_ms: 100 }), 7_150),
        (Planned::Tumbling(TumblingBuffer { interval_ms: 100 }), 7_100),
    ] {
        let mut bench = Bench::new(&work, 7_000);
        bench.rows(0..2);
        bench.pass(50);
        bench.rows(2..3);
        let image = bench.barrier().unwrap();
        let mut again = Bench::restored(&work, 7_080, std::slice::from_ref(&image));
        assert_eq!((again.given().as_str(), again.until_ms()), ("", Some(due)));
        again.pass(due - 7_080);
        assert_eq!(again.given(), "[0..2]");
        let mut late = Bench::restored(&work, 9_999, &[image]);
        assert_eq!(late.given(), "[0..2]", "its time passed meanwhile");
    }
}

/// Memory has a bound: at it rows go before their time, and that is counted.
#[test]
fn a_full_buffer_gives_on_early() {
    let mut bench = Bench::new(&Planned::Session(SessionBuffer { gap_ms: 1_000 }), 0);
    bench.buffer.rows_max = 5;
    assert_eq!(bench.rows(0..4), "");
    assert_eq!(bench.rows(4..7), "[0..6]");
    assert_eq!(bench.metrics.batches_early.load(Ordering::Relaxed), 1);
    bench.buffer.bytes_max = 40;
    assert_eq!(bench.rows(7..8), "");
    assert_eq!(bench.rows(8..10), "[7..9]");
    assert_eq!(bench.metrics.batches_early.load(Ordering::Relaxed), 2);
    assert_eq!((bench.metrics.state_rows.load(Ordering::Relaxed), bench.metrics.state_bytes.load(Ordering::Relaxed)), (0, 0));
}

/// WIN-5: `state.max_bytes` fails the job rather than lose rows.
#[test]
fn the_states_bound_fails_the_job() {
    let mut buffer = built(&memory(1_000, 1_000), seat(0, 1, Some(2_000)), &[]).unwrap();
    let metrics = TaskMetrics::new(TaskId { operator: OperatorId::new("hold").unwrap(), subtask: 0 });
    let (mut images, mut changed, mut sides) = (Vec::new(), false, Sides::default());
    let mut context =
        Context { wall_ms: 0, now_ns: 0, metrics: &metrics, images: &mut images, changed: &mut changed, task: 0, sides: &mut sides };
    buffer.take(Envelope::Data(rows(0..10, false)), &mut context).unwrap();
    let error = buffer.take(Envelope::Data(rows(10..200, false)), &mut context).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("'hold'") && error.message.contains("state.max_bytes, 2000 bytes"), "{error}");
}

/// P5: rows of other columns, and rows of a task that is gone, are refused; an empty buffer may change its tasks.
#[test]
fn foreign_state_is_refused() {
    let work = memory(10, 100);
    let mut bench = Bench::new(&work, 0);
    bench.rows(0..3);
    let image = bench.barrier().unwrap();
    let refused = |seat: Seat, images: &[StateImage]| built(&work, seat, images).err();
    let error = refused(seat(0, 1, None), std::slice::from_ref(&image)).unwrap();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("holds 3 rows of its former subtask 1"), "{error}");
    assert!(refused(seat(0, 2, None), std::slice::from_ref(&image)).is_none(), "not its rows");
    let narrow = Schema(input().0[..1].to_vec());
    let restored = Restored { images: vec![Arc::new(image)], redealt: false };
    let error = Buffer::new(&OperatorId::new("hold").unwrap(), &work, &narrow, seat(1, 2, None), &restored).err().unwrap();
    assert_eq!(error.class, Class::Corrupt);
    bench.pass(100);
    assert_eq!(bench.given(), "[0..2]");
    let gone = bench.barrier().unwrap();
    assert!(refused(seat(0, 1, None), &[gone]).is_none());
    for nothing in
        [memory(0, 1), memory(1, 0), Planned::Session(SessionBuffer { gap_ms: 0 }), Planned::Tumbling(TumblingBuffer { interval_ms: 0 })]
    {
        assert!(built(&nothing, seat(0, 1, None), &[]).err().unwrap().message.contains("hold rows for ever"));
    }
}
