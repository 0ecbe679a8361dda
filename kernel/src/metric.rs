//! Plain counters of a chain, written by its loop (relaxed atomics, once a batch), read by reporters.

use crate::origin::{Origin, Origins};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use weir_planner::id::TaskId;

/// Counters of one chain instance.
#[derive(Debug)]
pub struct ChainMetrics {
    /// One for each operator, head first.
    pub tasks: Vec<TaskMetrics>,
    /// Nanoseconds in steps that worked.
    pub busy_ns: AtomicU64,
    /// Nanoseconds between a step that was blocked and the next one.
    pub blocked_ns: AtomicU64,
    /// Splits of the head source; grows only when splits are discovered.
    pub splits: parking_lot::RwLock<Vec<SplitMetrics>>,
    /// Set by anything that an epoch would have to record; cleared by whoever opens one (EPO-7).
    pub changed: AtomicBool,
    /// Its source is held back until the next barrier: the open epoch has its bound of bytes (EPO-6).
    pub full: AtomicBool,
    /// End of stream has passed all of the chain.
    pub ended: AtomicBool,
    /// Edges that its head reads, as marks count them; empty for a source.
    pub inputs: Vec<InputMetrics>,
    /// What holds the watermark of its head where it is (EV-7).
    pub holder: HolderMetrics,
    /// Every split of its source is idle and the clock moves the watermark (EV-8).
    pub clock_moves: AtomicBool,
}

/// One input of a chain.
#[derive(Debug)]
pub struct InputMetrics {
    /// The task that it comes from; the operator alone where lanes are collected in turn.
    pub from: String,
    /// Watermark that came over it, ms; `i64::MIN` when none.
    pub watermark_ms: AtomicI64,
    /// Left out of the minimum.
    pub idle: AtomicBool,
    /// It has ended.
    pub ended: AtomicBool,
}

/// Which input or split holds the minimum, and since when the watermark stands there.
#[derive(Debug)]
pub struct HolderMetrics {
    /// Index among the inputs of the chain, or the splits of its source; -1 when none does.
    pub index: AtomicI64,
    /// Watermark of the head then, ms.
    pub watermark_ms: AtomicI64,
    /// Wall clock at the last change of either, ms; `i64::MIN` before the first.
    pub since_ms: AtomicI64,
}

impl HolderMetrics {
    /// Told after each change of marks, by the chain's loop alone.
    pub fn tell(&self, index: Option<usize>, watermark_ms: i64, wall_ms: i64) {
        let index = index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1);
        let moved = self.index.swap(index, Ordering::Relaxed) != index;
        let rose = self.watermark_ms.swap(watermark_ms, Ordering::Relaxed) != watermark_ms;
        if moved || rose || self.since_ms.load(Ordering::Relaxed) == i64::MIN {
            self.since_ms.store(wall_ms, Ordering::Relaxed);
        }
    }
}

/// Counters of one task.
#[derive(Debug)]
pub struct TaskMetrics {
    /// Which.
    pub task: TaskId,
    /// Rows in.
    pub rows_in: AtomicU64,
    /// Rows out.
    pub rows_out: AtomicU64,
    /// Bytes in.
    pub bytes_in: AtomicU64,
    /// Bytes out.
    pub bytes_out: AtomicU64,
    /// Rows late for all their windows.
    pub rows_late: AtomicU64,
    /// Those of `rows_late` that come from a single partition, by partition; the others were made by an
    /// operator of rows of several. Locked once a batch that has late rows.
    pub late_of: parking_lot::Mutex<BTreeMap<Origin, u64>>,
    /// Rows late for some of their windows and in time for others (EV-4).
    pub rows_late_partly: AtomicU64,
    /// Rows that a window was to follow by a time column in which they are NULL (EV-5).
    pub rows_invalid: AtomicU64,
    /// Rows whose expressions could not be computed (KER-7).
    pub rows_error: AtomicU64,
    /// What was wrong with one of them, for whoever tells people; locked once a batch that has one.
    pub bad: parking_lot::Mutex<Option<String>>,
    /// Rows handed out by the side: to an error sink or a late route (PLAN-5).
    pub rows_routed: AtomicU64,
    /// Its bad rows go to an error sink: they are not lost.
    pub routes_error: bool,
    /// Its late rows, and a source's rows without a time, go to a late route: they are not lost.
    pub routes_late: bool,
    /// Those of `rows_late` that were not late by their stamp, but whose windows had been retired (EV-4).
    pub rows_retired: AtomicU64,
    /// Evicted (window, key) entries, one for each pane of the window, and rows that came for an
    /// evicted window afterwards, each once (WIN-5).
    pub rows_evicted: AtomicU64,
    /// Batches that a full buffer gave on before their time.
    pub batches_early: AtomicU64,
    /// Live entries.
    pub state_rows: AtomicU64,
    /// Live bytes.
    pub state_bytes: AtomicU64,
    /// Watermark last forwarded, ms; `i64::MIN` when none.
    pub watermark_ms: AtomicI64,
    /// Wall clock when it was forwarded, ms; `i64::MIN` when none was.
    pub risen_at_ms: AtomicI64,
}

/// Counters of one split.
#[derive(Debug)]
pub struct SplitMetrics {
    /// Name.
    pub name: String,
    /// Rows read.
    pub rows_in: AtomicU64,
    /// Rows with a NULL event time.
    pub rows_invalid: AtomicU64,
    /// Records skipped as bad.
    pub rows_error: AtomicU64,
    /// Position and reason of a record skipped as bad, for whoever tells people (C42); locked once a batch that has one.
    pub bad: parking_lot::Mutex<Option<String>>,
    /// Rows behind in a job without windows.
    pub rows_late: AtomicU64,
    /// Watermark of the split, ms; `i64::MIN` when none.
    pub watermark_ms: AtomicI64,
    /// Last event time, ms; `i64::MIN` when none.
    pub last_event_ms: AtomicI64,
    /// Left out of the minimum.
    pub idle: AtomicBool,
    /// It has given its last row.
    pub ended: AtomicBool,
    /// Held back: too far ahead of the slowest one (EV-9).
    pub held: AtomicBool,
    /// Records behind the end, `u64::MAX` when not known.
    pub lag: AtomicU64,
    /// Next position, for people (byte, row or offset).
    pub position: AtomicI64,
}

impl SplitMetrics {
    /// All at zero, for a split of this name whose greatest event time so far and watermark are these, ms.
    pub fn new(name: String, last_event_ms: i64, watermark_ms: i64) -> Self {
        SplitMetrics {
            name,
            rows_in: AtomicU64::new(0),
            rows_invalid: AtomicU64::new(0),
            rows_error: AtomicU64::new(0),
            bad: parking_lot::Mutex::new(None),
            rows_late: AtomicU64::new(0),
            watermark_ms: AtomicI64::new(watermark_ms),
            last_event_ms: AtomicI64::new(last_event_ms),
            idle: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            held: AtomicBool::new(false),
            lag: AtomicU64::new(u64::MAX),
            position: AtomicI64::new(0),
        }
    }
}

impl InputMetrics {
    /// Nothing has come yet from the task of this name.
    pub fn new(from: String) -> Self {
        InputMetrics { from, watermark_ms: AtomicI64::new(i64::MIN), idle: AtomicBool::new(false), ended: AtomicBool::new(false) }
    }
}

impl ChainMetrics {
    /// All at zero, for these tasks, head first, behind these inputs.
    pub fn reading(inputs: Vec<String>, tasks: Vec<TaskId>) -> Self {
        ChainMetrics { inputs: inputs.into_iter().map(InputMetrics::new).collect(), ..ChainMetrics::new(tasks) }
    }

    /// All at zero, for these tasks, head first.
    pub fn new(tasks: Vec<TaskId>) -> Self {
        ChainMetrics {
            tasks: tasks.into_iter().map(TaskMetrics::new).collect(),
            busy_ns: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            splits: parking_lot::RwLock::new(Vec::new()),
            changed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            inputs: Vec::new(),
            holder: HolderMetrics { index: AtomicI64::new(-1), watermark_ms: AtomicI64::new(i64::MIN), since_ms: AtomicI64::new(i64::MIN) },
            clock_moves: AtomicBool::new(false),
        }
    }
}

impl TaskMetrics {
    /// All at zero.
    pub fn new(task: TaskId) -> Self {
        TaskMetrics {
            task,
            rows_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            rows_late: AtomicU64::new(0),
            late_of: parking_lot::Mutex::default(),
            rows_late_partly: AtomicU64::new(0),
            rows_invalid: AtomicU64::new(0),
            rows_error: AtomicU64::new(0),
            bad: parking_lot::Mutex::new(None),
            rows_routed: AtomicU64::new(0),
            routes_error: false,
            routes_late: false,
            rows_retired: AtomicU64::new(0),
            rows_evicted: AtomicU64::new(0),
            batches_early: AtomicU64::new(0),
            state_rows: AtomicU64::new(0),
            state_bytes: AtomicU64::new(0),
            watermark_ms: AtomicI64::new(i64::MIN),
            risen_at_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Counts late rows of a batch: `weights` says for each of its rows how many it stands for, 0 where it is not late.
    pub(crate) fn late(&self, origins: &Origins, weights: &[u64]) {
        let late: u64 = weights.iter().sum();
        if late > 0 {
            let mut late_of = self.late_of.lock();
            origins.count(weights, &mut late_of);
            self.rows_late.fetch_add(late, Ordering::Relaxed);
        }
    }
}
