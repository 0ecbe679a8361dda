//! How the splits of a source keep pace: idle ones are left out, fast ones are held, and where all
//! are idle the clock may move time on (EV-8, EV-9).

use super::SourceHead;
use crate::chain::inputs::push_marks;
use crate::io::Clock;
use crate::metric::ChainMetrics;
use crate::progress::Advance;
use std::sync::atomic::Ordering;

/// How soon held splits are looked at again: the slowest one may be another task's.
const HELD_NS: u64 = 5_000_000;
/// Pace at which the clock moves the watermark.
const LIFT_NS: u64 = 100_000_000;

/// How the splits of one source keep pace.
pub(super) struct Pace {
    /// 0: never idle.
    idle_timeout_ns: u64,
    alignment_ms: Option<i64>,
    idle_advance_ns: Option<u64>,
    /// The clock never moves the watermark past the wall clock less this, which no row could.
    bound_ms: i64,
    /// By split: too far ahead of the slowest.
    held: Vec<bool>,
    /// When the clock moved the watermark last.
    lifted_ns: u64,
    started: bool,
}

impl Pace {
    /// As planned; a source without event time has none.
    pub(super) fn new(time: Option<&weir_planner::plan::TimeWork>) -> Self {
        let ms = |ms: u64| ms.saturating_mul(1_000_000);
        Pace {
            idle_timeout_ns: time.map_or(0, |time| ms(time.idle_timeout_ms)),
            alignment_ms: time.and_then(|time| time.alignment_ms).map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            idle_advance_ns: time.and_then(|time| time.idle_advance_ms).map(ms),
            bound_ms: time.map_or(0, |time| time.bound_ms),
            held: Vec::new(),
            lifted_ns: 0,
            started: false,
        }
    }
}

impl SourceHead {
    /// Marks splits idle that have been caught up without a row for the timeout; gives the next
    /// moment at which one could be.
    pub(super) fn look_for_idle(&mut self, now_ns: u64) -> Option<u64> {
        if self.pace.idle_timeout_ns == 0 {
            return None;
        }
        let mut deadline: Option<u64> = None;
        for (i, split) in self.splits.iter_mut().enumerate() {
            if self.progress.has_ended(i) || self.progress.is_idle(i) {
                continue;
            }
            if !self.source.at_end(i) || self.pace.held.get(i).copied().unwrap_or(false) {
                split.quiet_since_ns = None;
                continue;
            }
            let since = *split.quiet_since_ns.get_or_insert(now_ns);
            let due = since.saturating_add(self.pace.idle_timeout_ns);
            if due <= now_ns {
                self.progress.set_idle(i, true);
            } else {
                deadline = Some(deadline.map_or(due, |earliest| earliest.min(due)));
            }
        }
        deadline
    }

    /// The chain was held back for so long: that is not idleness of a split (EV-8).
    pub fn held_back(&mut self, ns: u64) {
        for split in &mut self.splits {
            split.quiet_since_ns = split.quiet_since_ns.map(|since| since.saturating_add(ns));
        }
    }

    /// Holds the splits that are too far ahead of the slowest active one of the operator; one that
    /// has no time yet, is idle or has ended holds nobody. False when there is nothing else to poll.
    pub(super) fn align(&mut self, metrics: &ChainMetrics) -> bool {
        let Some(alignment_ms) = self.pace.alignment_ms else { return true };
        let progress = &self.progress;
        let active = |i: &usize| !progress.has_ended(*i) && !progress.is_idle(*i) && progress.watermark(*i) != i64::MIN;
        let slowest = (0..self.splits.len()).filter(active).map(|i| progress.watermark(i)).min();
        self.peers.tell_slowest(self.subtask, slowest);
        let limit = self.peers.slowest_ms().map_or(i64::MAX, |slowest| slowest.saturating_add(alignment_ms));
        let mut changed = self.pace.held.len() != self.splits.len();
        self.pace.held.resize(self.splits.len(), false);
        let (mut any, mut other) = (false, false);
        for (i, held) in self.pace.held.iter_mut().enumerate() {
            let hold = active(&i) && progress.watermark(i) > limit;
            changed |= std::mem::replace(held, hold) != hold;
            any |= hold;
            other |= !hold && !progress.has_ended(i);
        }
        if changed {
            self.source.hold(&self.pace.held);
            for (shown, held) in metrics.splits.read().iter().zip(&self.pace.held) {
                shown.held.store(*held, Ordering::Relaxed);
            }
        }
        other || !any
    }

    /// When held splits are to be looked at again.
    pub(super) fn held_until(&self, now_ns: u64) -> Option<u64> {
        self.pace.held.contains(&true).then(|| now_ns.saturating_add(HELD_NS))
    }

    /// Tells the other tasks of rows, and of the start, which begins the wait for the clock anew.
    pub(super) fn tell_row(&mut self, has_rows: bool, now_ns: u64) {
        if self.pace.idle_advance_ns.is_some() && (has_rows || !std::mem::replace(&mut self.pace.started, true)) {
            self.peers.tell_row(self.subtask, now_ns);
            // Not only when it looks for more: with rows on their way it may be held back for long (EV-8).
            self.peers.tell_quiet(self.subtask, false);
        }
    }

    /// Lets the clock move the watermark, where all splits of all tasks are idle for long enough;
    /// gives when to look again.
    ///
    /// The watermark goes on from the greatest of the splits by as much as the clock has since the
    /// last row, as if rows had kept coming at the clock's pace: so old data closes its last window
    /// too, and after no longer than new data would (C07, C12). It never passes the wall clock less
    /// the bound, where rows of now still come.
    pub(super) fn lift(&mut self, now_ns: u64, clock: &dyn Clock, metrics: &ChainMetrics) -> Option<u64> {
        let after_ns = self.pace.idle_advance_ns?;
        let quiet = self.progress.all_idle();
        self.peers.tell_quiet(self.subtask, quiet || self.ended);
        let since = self.peers.quiet_since_ns().filter(|_| quiet);
        let due = since.map(|since| since.saturating_add(after_ns)).filter(|due| *due <= now_ns);
        metrics.clock_moves.store(due.is_some(), Ordering::Relaxed);
        let (Some(since), Some(_)) = (since, due) else {
            // Another task may still have rows: it does not tell when that is over.
            let look = since.map_or(now_ns.saturating_add(LIFT_NS), |since| since.saturating_add(after_ns));
            return quiet.then_some(look);
        };
        let greatest = self.progress.greatest().filter(|greatest| *greatest != i64::MIN)?;
        if now_ns.saturating_sub(self.pace.lifted_ns) >= LIFT_NS {
            self.pace.lifted_ns = now_ns;
            let passed_ms = i64::try_from(now_ns.saturating_sub(since) / 1_000_000).unwrap_or(i64::MAX);
            let limit = clock.wall_ms().saturating_sub(self.pace.bound_ms);
            let lifted: Advance = self.progress.lift(greatest.saturating_add(passed_ms).min(limit));
            push_marks(lifted, &mut self.out);
        }
        Some(self.pace.lifted_ns.saturating_add(LIFT_NS))
    }
}
