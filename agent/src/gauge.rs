//! Load figures: counters of chains as observations, and what the process uses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use weir_kernel::metric::{ChainMetrics, InputMetrics, TaskMetrics};
use weir_kernel::origin::Origin;
use weir_planner::protocol::{Holder, InputObservation, LateOf, Load, SplitObservation, TaskObservation};

/// Shares of time are taken over at least so long, whoever asks how often.
const WINDOW_NS: u64 = 200_000_000;

/// What a bound of live keys costs.
const EVICTED: &str = "rows of evicted windows were lost at the bound of live keys";
const EARLY: &str = "batches left a full buffer before their time";

/// Counters of one attempt, with what they were at the last look.
#[derive(Default)]
pub struct Gauge {
    chains: Vec<Looked>,
    at_ns: u64,
    /// Source operators of which it was told that the clock moves their watermark.
    clocked: BTreeSet<String>,
}

struct Looked {
    metrics: Arc<ChainMetrics>,
    busy_ns: u64,
    blocked_ns: u64,
    busy_pct: f64,
    blocked_pct: f64,
    skipped: u64,
    invalid: u64,
    late: u64,
    evicted: u64,
    early: u64,
    failed: u64,
}

/// Rows that did not make it, since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Event kind.
    pub kind: &'static str,
    /// The operator, `*` when the whole chain is meant.
    pub operator: String,
    /// How many.
    pub count: u64,
    /// For people.
    pub message: String,
}

fn known(ms: i64) -> Option<i64> {
    (ms != i64::MIN).then_some(ms)
}

impl Looked {
    fn operator(&self, at: usize) -> String {
        self.metrics.tasks.get(at).map_or_else(|| "?".to_owned(), |t| t.task.operator.to_string())
    }

    fn losses(&mut self) -> Vec<Loss> {
        let (mut skipped, mut invalid, mut late, mut failed) = (0, 0, 0, 0);
        let mut example = None;
        // What is routed is not lost.
        let head = self.metrics.tasks.first();
        let (errors_routed, late_routed) = head.map_or((false, false), |head| (head.routes_error, head.routes_late));
        for split in self.metrics.splits.read().iter() {
            if !errors_routed {
                skipped += split.rows_error.load(Relaxed);
                example = example.or_else(|| split.bad.lock().take());
            }
            if !late_routed {
                invalid += split.rows_invalid.load(Relaxed);
                late += split.rows_late.load(Relaxed);
            }
        }
        let losing = |task: &&TaskMetrics| !task.routes_late;
        late += self.metrics.tasks.iter().filter(losing).map(|t| t.rows_late.load(Relaxed)).sum::<u64>();
        invalid += self.metrics.tasks.iter().map(|t| t.rows_invalid.load(Relaxed)).sum::<u64>();
        let timing = self.metrics.tasks.iter().position(|t| t.rows_invalid.load(Relaxed) > 0).unwrap_or(0);
        let evicted = self.metrics.tasks.iter().map(|t| t.rows_evicted.load(Relaxed)).sum::<u64>();
        let evicting = self.metrics.tasks.iter().position(|t| t.rows_evicted.load(Relaxed) > 0).unwrap_or(0);
        let judging = self.metrics.tasks.iter().position(|t| t.rows_late.load(Relaxed) > 0 && !t.routes_late).unwrap_or(0);
        let early = self.metrics.tasks.iter().map(|t| t.batches_early.load(Relaxed)).sum::<u64>();
        let filled = self.metrics.tasks.iter().position(|t| t.batches_early.load(Relaxed) > 0).unwrap_or(0);
        let (mut failing, mut reason) = (0, None);
        for (at, task) in self.metrics.tasks.iter().enumerate().filter(|(_, task)| !task.routes_error) {
            failed += task.rows_error.load(Relaxed);
            if let Some(bad) = task.bad.lock().take() {
                (failing, reason) = (at, Some(bad));
            }
        }
        let grown = |before: &mut u64, now: u64| {
            let by = now.saturating_sub(*before);
            *before = now;
            by
        };
        let such_as = |example: Option<String>| example.map(|example| format!(", such as {example}")).unwrap_or_default();
        let all = [
            ("rows_skipped", 0, grown(&mut self.skipped, skipped), "records could not be decoded and were skipped", such_as(example)),
            ("rows_invalid", timing, grown(&mut self.invalid, invalid), "rows have no event time and were dropped", String::new()),
            ("rows_late", judging, grown(&mut self.late, late), "rows came too late and were dropped", String::new()),
            ("rows_evicted", evicting, grown(&mut self.evicted, evicted), EVICTED, String::new()),
            ("buffer_full", filled, grown(&mut self.early, early), EARLY, String::new()),
            ("rows_failed", failing, grown(&mut self.failed, failed), "rows could not be computed and were skipped", such_as(reason)),
        ];
        let some = all.into_iter().filter(|(_, _, count, _, _)| *count > 0);
        let loss = |(kind, at, count, what, example): (&'static str, usize, u64, &str, String)| Loss {
            kind,
            operator: self.operator(at),
            count,
            message: format!("{count} {what}{example}"),
        };
        some.map(loss).collect()
    }

    fn share(&mut self, elapsed_ns: u64) {
        let (busy, blocked) = (self.metrics.busy_ns.load(Relaxed), self.metrics.blocked_ns.load(Relaxed));
        let pct = |now: u64, before: u64| (now.saturating_sub(before) as f64 * 100.0 / elapsed_ns as f64).min(100.0);
        self.busy_pct = pct(busy, self.busy_ns);
        self.blocked_pct = pct(blocked, self.blocked_ns).min(100.0 - self.busy_pct);
        (self.busy_ns, self.blocked_ns) = (busy, blocked);
    }
}

impl Gauge {
    /// Of these chains.
    pub fn of(chains: Vec<Arc<ChainMetrics>>) -> Self {
        let looked = |metrics| Looked {
            metrics,
            busy_ns: 0,
            blocked_ns: 0,
            busy_pct: 0.0,
            blocked_pct: 0.0,
            skipped: 0,
            invalid: 0,
            late: 0,
            evicted: 0,
            early: 0,
            failed: 0,
        };
        Gauge { chains: chains.into_iter().map(looked).collect(), at_ns: 0, clocked: BTreeSet::new() }
    }

    /// Rows lost since the last call.
    pub fn losses(&mut self) -> Vec<Loss> {
        self.chains.iter_mut().flat_map(Looked::losses).collect()
    }

    /// Source operators whose watermark the clock has begun to move since the last call (EV-8); each once.
    pub fn clocked(&mut self) -> Vec<String> {
        let moved = self.chains.iter().filter(|looked| looked.metrics.clock_moves.load(Relaxed));
        moved.map(|looked| looked.operator(0)).filter(|id| self.clocked.insert(id.clone())).collect()
    }

    /// Every task and every split, as of now.
    pub fn read(&mut self, now_ns: u64) -> (Vec<TaskObservation>, Vec<SplitObservation>) {
        let elapsed = now_ns.saturating_sub(self.at_ns);
        if elapsed >= WINDOW_NS {
            if self.at_ns > 0 {
                self.chains.iter_mut().for_each(|c| c.share(elapsed));
            }
            self.at_ns = now_ns;
        }
        let tasks = self.chains.iter().flat_map(tasks).collect();
        let splits = self.chains.iter().flat_map(|c| splits(&c.metrics)).collect();
        (tasks, splits)
    }
}

fn tasks(looked: &Looked) -> Vec<TaskObservation> {
    let metrics = looked.metrics.as_ref();
    let inputs = |at: usize| match at {
        0 => metrics.inputs.iter().map(input).collect(),
        _ => Vec::new(),
    };
    let one = |(at, task): (usize, &TaskMetrics)| {
        let (rows_late, late_of) = late(task);
        TaskObservation {
            task: task.task.clone(),
            watermark_ms: known(task.watermark_ms.load(Relaxed)),
            rows_in: task.rows_in.load(Relaxed),
            rows_out: task.rows_out.load(Relaxed),
            bytes_in: task.bytes_in.load(Relaxed),
            bytes_out: task.bytes_out.load(Relaxed),
            busy_pct: looked.busy_pct,
            idle_pct: (100.0 - looked.busy_pct - looked.blocked_pct).max(0.0),
            backpressured_pct: looked.blocked_pct,
            inputs: inputs(at),
            held_by: holder(metrics, at),
            held_since_ms: known(match at.checked_sub(1).and_then(|before| metrics.tasks.get(before)) {
                None => metrics.holder.since_ms.load(Relaxed),
                Some(before) => before.risen_at_ms.load(Relaxed),
            }),
            rows_late,
            late_of,
            rows_late_partly: task.rows_late_partly.load(Relaxed),
            rows_invalid: task.rows_invalid.load(Relaxed),
            rows_retired: task.rows_retired.load(Relaxed),
            rows_evicted: task.rows_evicted.load(Relaxed),
            rows_error: task.rows_error.load(Relaxed),
            rows_routed: task.rows_routed.load(Relaxed),
            state_rows: task.state_rows.load(Relaxed),
            state_bytes: task.state_bytes.load(Relaxed),
        }
    };
    metrics.tasks.iter().enumerate().map(one).collect()
}

/// Rows that a task has judged late, and which partitions those of them come from that come from one.
fn late(task: &TaskMetrics) -> (u64, Vec<LateOf>) {
    // What is counted meanwhile waits, so that both fit.
    let late_of = task.late_of.lock();
    let one = |(origin, rows): (&Origin, &u64)| LateOf { source: origin.source.clone(), split: origin.split.clone(), rows: *rows };
    (task.rows_late.load(Relaxed), late_of.iter().map(one).collect())
}

fn input(input: &InputMetrics) -> InputObservation {
    InputObservation {
        from: input.from.clone(),
        watermark_ms: known(input.watermark_ms.load(Relaxed)),
        idle: input.idle.load(Relaxed),
        ended: input.ended.load(Relaxed),
    }
}

/// What holds the watermark of a task: inside a chain the task before it, at its head an input or a
/// split. `None` once the end has come.
fn holder(metrics: &ChainMetrics, at: usize) -> Option<Holder> {
    if let Some(before) = at.checked_sub(1).and_then(|before| metrics.tasks.get(before)) {
        return (before.watermark_ms.load(Relaxed) != i64::MAX).then(|| Holder::Input(before.task.to_string()));
    }
    let ended = metrics.tasks.first().is_some_and(|task| task.watermark_ms.load(Relaxed) == i64::MAX);
    match usize::try_from(metrics.holder.index.load(Relaxed)) {
        _ if ended => None,
        Ok(index) => {
            let split = || metrics.splits.read().get(index).map(|split| split.name.clone());
            metrics.inputs.get(index).map(|input| input.from.clone()).or_else(split).map(Holder::Input)
        }
        Err(_) if metrics.clock_moves.load(Relaxed) => Some(Holder::Clock),
        // Before its first step a task has heard nothing; it holds nothing yet.
        Err(_) if metrics.holder.since_ms.load(Relaxed) == i64::MIN => None,
        Err(_) => Some(Holder::Idle),
    }
}

fn splits(metrics: &ChainMetrics) -> Vec<SplitObservation> {
    let Some(head) = metrics.tasks.first() else { return Vec::new() };
    let one = |split: &weir_kernel::metric::SplitMetrics| {
        let lag = split.lag.load(Relaxed);
        SplitObservation {
            task: head.task.clone(),
            split: split.name.clone(),
            position: split.position.load(Relaxed).to_string(),
            lag: (lag != u64::MAX).then_some(lag),
            watermark_ms: known(split.watermark_ms.load(Relaxed)),
            last_event_ms: known(split.last_event_ms.load(Relaxed)),
            idle: split.idle.load(Relaxed),
            ended: split.ended.load(Relaxed),
            held: split.held.load(Relaxed),
            rows_in: split.rows_in.load(Relaxed),
            rows_late: split.rows_late.load(Relaxed),
            rows_invalid: split.rows_invalid.load(Relaxed),
            rows_error: split.rows_error.load(Relaxed),
        }
    };
    metrics.splits.read().iter().map(one).collect()
}

/// What the process uses, from `/proc`; zeros where the system does not tell.
pub struct ProcessGauge {
    looked: Option<(Instant, u64)>,
}

/// Clock ticks a second in `/proc`, fixed by the kernel's interface.
const TICKS: f64 = 100.0;

impl ProcessGauge {
    /// Not looked yet.
    pub fn new() -> Self {
        ProcessGauge { looked: None }
    }

    /// Load as of now; CPU since the last call.
    pub fn read(&mut self) -> Load {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (now, ticks) = (Instant::now(), cpu_ticks(&text("/proc/self/stat")).unwrap_or(0));
        let cpu_pct = self.looked.map_or(0.0, |(then, before)| {
            let seconds = now.duration_since(then).as_secs_f64().max(0.001);
            ticks.saturating_sub(before) as f64 / TICKS / seconds * 100.0
        });
        self.looked = Some((now, ticks));
        let machine = kilobytes(&text("/proc/meminfo"), "MemTotal:").unwrap_or(0);
        let limit = text("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
        Load {
            cpu_pct,
            memory_used_bytes: kilobytes(&text("/proc/self/status"), "VmRSS:").unwrap_or(0),
            memory_total_bytes: machine.min(limit),
        }
    }
}

impl Default for ProcessGauge {
    fn default() -> Self {
        ProcessGauge::new()
    }
}

/// User and system ticks: fields 14 and 15. The name before them may hold anything but ends at the last `)`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests;
