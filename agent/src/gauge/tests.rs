//! What observations say of counters.

use super::{Gauge, Loss, cpu_ticks, kilobytes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weir_kernel::metric::{ChainMetrics, SplitMetrics};
use weir_planner::id::{OperatorId, TaskId};
use weir_planner::protocol::{Holder, InputObservation};

fn metrics() -> Arc<ChainMetrics> {
    Arc::new(ChainMetrics::new(vec![TaskId { operator: OperatorId::new("win").unwrap(), subtask: 0 }]))
}

/// KER-4: busy, idle and back-pressured time are shares of the time between two looks.
#[test]
fn shares_of_time_are_over_the_time_between_two_looks() {
    let metrics = metrics();
    let mut gauge = Gauge::of(vec![metrics.clone()]);
    gauge.read(1_000_000_000);
    metrics.busy_ns.store(500_000_000, Relaxed);
    metrics.blocked_ns.store(250_000_000, Relaxed);
    let (tasks, _) = gauge.read(2_000_000_000);
    assert_eq!((tasks[0].busy_pct, tasks[0].backpressured_pct, tasks[0].idle_pct), (50.0, 25.0, 25.0));
    // A look too soon after keeps the figures.
    let (tasks, _) = gauge.read(2_000_000_001);
    assert_eq!(tasks[0].busy_pct, 50.0);
    assert_eq!(tasks[0].watermark_ms, None);
}

/// P3: what is lost is told once, with its number.
#[test]
fn losses_are_told_once() {
    let metrics = metrics();
    let mut gauge = Gauge::of(vec![metrics.clone()]);
    metrics.tasks[0].rows_late.store(3, Relaxed);
    let message = "3 rows came too late and were dropped".to_owned();
    assert_eq!(gauge.losses(), [Loss { kind: "rows_late", operator: "win".to_owned(), count: 3, message }]);
    assert_eq!(gauge.losses(), []);
}

/// KER-7, C42: a row that could not be computed is told with an example; what is routed is not lost.
#[test]
fn failed_rows_are_told_and_routed_ones_are_not() {
    let task = |name: &str| TaskId { operator: OperatorId::new(name).unwrap(), subtask: 0 };
    let with = |errors: bool, late: bool| {
        let mut metrics = ChainMetrics::new(vec![task("src"), task("map")]);
        for task in &mut metrics.tasks {
            (task.routes_error, task.routes_late) = (errors, late);
        }
        let split = SplitMetrics::new("s".to_owned(), 0, 0);
        split.rows_invalid.store(1, Relaxed);
        split.rows_error.store(2, Relaxed);
        split.rows_late.store(3, Relaxed);
        *split.bad.lock() = Some("s at row 1: no".to_owned());
        metrics.splits.write().push(split);
        metrics.tasks[1].rows_error.store(4, Relaxed);
        *metrics.tasks[1].bad.lock() = Some("operator 'map': 1 / v cannot be computed".to_owned());
        let told = Gauge::of(vec![Arc::new(metrics)]).losses();
        told.into_iter().map(|loss| (loss.kind, loss.operator, loss.count, loss.message)).collect::<Vec<_>>()
    };
    let loss = |kind, operator: &str, count, message: &str| (kind, operator.to_owned(), count, message.to_owned());
    let skipped = loss("rows_skipped", "src", 2, "2 records could not be decoded and were skipped, such as s at row 1: no");
    let invalid = loss("rows_invalid", "src", 1, "1 rows have no event time and were dropped");
    let late = loss("rows_late", "src", 3, "3 rows came too late and were dropped");
    let message = "4 rows could not be computed and were skipped, such as operator 'map': 1 / v cannot be computed";
    let failed = loss("rows_failed", "map", 4, message);
    assert_eq!(with(false, false), [skipped.clone(), invalid.clone(), late.clone(), failed.clone()]);
    assert_eq!(with(true, false), [invalid, late]);
    assert_eq!(with(false, true), [skipped, failed]);
    assert_eq!(with(true, true), []);
}

#[test]
fn proc_texts_are_read() {
    let stat = "4242 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0";
    assert_eq!(cpu_ticks(stat), Some(100));
    assert_eq!(cpu_ticks(""), None);
    assert_eq!(kilobytes("VmPeak:\t 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12_288));
}

/// EV-7: what holds a watermark is told by name: a split, an edge, the task before in the chain; or
/// that nothing does, and whether the clock moves it.
#[test]
fn holders_are_told_by_name() {
    let task = |name: &str, subtask| TaskId { operator: OperatorId::new(name).unwrap(), subtask };
    let source = Arc::new(ChainMetrics::new(vec![task("src", 1), task("map", 1)]));
    source.splits.write().extend([SplitMetrics::new("t/0".to_owned(), 900, 800), SplitMetrics::new("t/1".to_owned(), i64::MIN, i64::MIN)]);
    let window = Arc::new(ChainMetrics::reading(vec!["map-0".to_owned(), "map-1".to_owned()], vec![task("win", 0)]));
    let other = Arc::new(ChainMetrics::new(vec![task("src", 2)]));
    other.clock_moves.store(true, Relaxed);
    let mut both = Gauge::of(vec![source.clone(), other.clone(), other]);
    assert_eq!(both.clocked(), ["src"], "one event for all tasks of a source");
    let mut gauge = Gauge::of(vec![source.clone(), window.clone()]);
    let held = |gauge: &mut Gauge| {
        let (tasks, _) = gauge.read(1);
        tasks.into_iter().map(|task| (task.held_by, task.held_since_ms)).collect::<Vec<_>>()
    };
    let input = |name: &str| Some(Holder::Input(name.to_owned()));
    assert_eq!(held(&mut gauge), [(None, None), (input("src-1"), None), (None, None)], "nothing was heard yet");
    source.holder.tell(Some(1), i64::MIN, 5_000);
    source.tasks[0].risen_at_ms.store(4_000, Relaxed);
    window.holder.tell(Some(1), i64::MIN, 6_000);
    assert_eq!(held(&mut gauge), [(input("t/1"), Some(5_000)), (input("src-1"), Some(4_000)), (input("map-1"), Some(6_000))]);
    window.inputs[0].watermark_ms.store(70, Relaxed);
    window.inputs[0].ended.store(true, Relaxed);
    let (tasks, splits) = gauge.read(1);
    let of = |from: &str, watermark_ms, ended| InputObservation { from: from.to_owned(), watermark_ms, idle: false, ended };
    assert_eq!(tasks[2].inputs, [of("map-0", Some(70), true), of("map-1", None, false)]);
    assert_eq!(splits.iter().map(|split| split.watermark_ms).collect::<Vec<_>>(), [Some(800), None]);
    // Since when: it stays while nothing changes, and begins anew with the watermark or the holder.
    source.holder.tell(Some(1), i64::MIN, 7_000);
    assert_eq!(held(&mut gauge)[0], (input("t/1"), Some(5_000)));
    source.holder.tell(Some(1), 10, 8_000);
    assert_eq!(held(&mut gauge)[0], (input("t/1"), Some(8_000)));
    source.holder.tell(None, 10, 9_000);
    assert_eq!(held(&mut gauge)[0], (Some(Holder::Idle), Some(9_000)));
    assert_eq!(gauge.clocked(), [] as [String; 0]);
    source.clock_moves.store(true, Relaxed);
    assert_eq!(held(&mut gauge)[0], (Some(Holder::Clock), Some(9_000)));
    assert_eq!(gauge.clocked(), ["src"]);
    source.clock_moves.store(false, Relaxed);
    source.clock_moves.store(true, Relaxed);
    assert_eq!(gauge.clocked(), [] as [String; 0], "told once");
    source.tasks[0].watermark_ms.store(i64::MAX, Relaxed);
    assert_eq!(held(&mut gauge)[..2], [(None, Some(9_000)), (None, Some(4_000))], "after the end nothing holds it");
}
