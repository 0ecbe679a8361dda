//! The epoch coordinator of one region: carries out what the pure decider says (EPO-3).
//!
//! `next` is the last decided cut with everything added that members have reported since, whatever
//! the number of the round: a round that is given up gives up its number only. Reports come only
//! while a barrier is under way, so at a decision `next` is exactly the cut.

mod compact;
mod write;

use crate::checkpoint::round::Made;
use crate::decision::{Decided, Decision, RegionCut, Replacement, Retention};
use crate::error::Error;
use crate::runner::Context;
use crate::segment::{self, SegmentRef};
use crate::shard::Seat;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_kernel::chain::{ChainReport, Control};
use weir_kernel::io::{ChainCut, ResultFile, SinkHandle, Wake};
use weir_kernel::metric::ChainMetrics;
use weir_planner::connector::SplitPosition;
use weir_planner::epoch::{Action, Decider, Event};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, ChainId, CheckpointId, EpochId, JobId, OperatorId, RegionId, TaskId};
use weir_planner::spec::Horizon;
use write::{Obsolete, store, write_images};

/// Blocking work under way for the regions of one attempt; owned and awaited by its coordinator.
pub type Works = FuturesUnordered<BoxFuture<'static, Work>>;

/// What blocking work came to, and for whom.
#[allow(missing_docs, reason = "the fields say which region, member, round and task")]
pub enum Work {
    /// Segments of a member.
    Written { region: usize, member: usize, sequence: u64, result: Result<Vec<(TaskId, SegmentRef)>, Error> },
    /// A decision, its obsolete files deleted.
    Stored { region: usize, sequence: u64, record: Box<RegionCut>, result: Result<Decided, Error> },
    /// Segments of a task became one.
    Merged { region: usize, task: TaskId, old: Vec<SegmentRef>, result: Result<SegmentRef, Error> },
    /// Small result files became one.
    ResultsMerged { result: Result<Replacement, Error> },
    /// A checkpoint is sealed or failed; `asked` is its id where the hub asked for it.
    Checkpointed { asked: Option<CheckpointId>, result: Box<Result<Made, Error>> },
}

/// One chain instance as its coordinator knows it.
pub struct Member {
    /// Its name.
    pub name: (ChainId, u32),
    /// Where control goes.
    pub control: flume::Sender<Control>,
    /// Its place on a shard.
    pub seat: Arc<Seat>,
    /// Its counters.
    pub metrics: Arc<ChainMetrics>,
    /// The source at its head.
    pub source: Option<OperatorId>,
    /// Control that found the channel full, oldest first: at most one barrier, one decision and a drain.
    pub unsent: VecDeque<Control>,
    /// Positions in its last cut.
    pub positions: Vec<SplitPosition>,
    /// It had ended before its last cut.
    pub ended: bool,
}

/// Where a job's files are.
#[derive(Clone, Debug)]
pub struct JobDirs {
    /// Of the job.
    pub job: PathBuf,
    /// Segments.
    pub state: PathBuf,
    /// Result files.
    pub results: PathBuf,
}

impl JobDirs {
    /// Of a job in a data directory. Job ids are legal file names.
    pub fn of(data_dir: &Path, job: &JobId) -> Self {
        let job = data_dir.join("jobs").join(job.as_str());
        JobDirs { state: job.join("state"), results: job.join("results"), job }
    }
}

/// What all regions of an attempt share.
pub struct Shared {
    /// The agent's parts.
    pub context: Arc<Context>,
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// Its files.
    pub dirs: JobDirs,
    /// What result rows may go.
    pub retention: Retention,
    /// How far effects that cannot be taken back must wait (EPO-8).
    pub horizon: Horizon,
}

/// How a region stands after an event.
#[derive(Debug)]
pub enum Outcome {
    /// The epoch is decided.
    Decided(EpochId, Option<Vec<ResultFile>>),
    /// A round was given up.
    Abandoned(String),
    /// All inputs ended, decided.
    Finished,
    /// The last epoch of a stop is decided.
    Drained,
    /// It cannot go on.
    Failed(Error),
}

/// One region while it runs.
pub struct Region {
    /// Position among the attempt's regions.
    pub index: usize,
    /// Its id.
    pub id: RegionId,
    /// Its chains, in plan order.
    pub members: Vec<Member>,
    decider: Decider,
    decided: Option<RegionCut>,
    next: RegionCut,
    results: Vec<ResultFile>,
    merging: bool,
    merged: Vec<(TaskId, Vec<SegmentRef>, SegmentRef)>,
    /// Sequence of the last barrier, and when it was put, monotonic ms.
    injected: (u64, u64),
    /// Sequence of the last round that was decided.
    stored: u64,
    /// How long the last round's barrier took to pass every member, ms.
    align_ms: u64,
}

impl Region {
    /// A region that goes on from `decided`.
    pub fn new(index: usize, id: RegionId, members: Vec<Member>, decider: Decider, decided: Option<RegionCut>, attempt: Attempt) -> Self {
        let mut next = decided.clone().unwrap_or_else(|| RegionCut::empty(EpochId { attempt, sequence: 0 }));
        if std::mem::take(&mut next.redealt) {
            // Each task writes all that it has before the first decision, and that takes the place of these (CKP-9).
            next.segments.clear();
        }
        Region {
            index,
            id,
            members,
            decider,
            decided,
            next,
            results: Vec::new(),
            merging: false,
            merged: Vec::new(),
            injected: (0, 0),
            stored: 0,
            align_ms: 0,
        }
    }

    /// The last decided epoch.
    pub fn epoch(&self) -> Option<EpochId> {
        self.decided.as_ref().map(|d| d.epoch)
    }

    /// Sequences of the last barrier and of the last decided round.
    pub fn rounds(&self) -> (u64, u64) {
        (self.injected.0, self.stored)
    }

    /// How long the last barrier took from the sources to the last member, ms.
    pub fn align_ms(&self) -> u64 {
        self.align_ms
    }

    /// Opens a round at once, or right after the one that is open, whether anything has changed or not.
    pub fn hurry(&mut self, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        self.handle(Event::Full, shared, works, now_ms)
    }

    /// The horizon has passed a cut (EPO-8): what cannot be taken back may follow.
    pub fn passed(&mut self, cut: &RegionCut) {
        for member in &mut self.members {
            if let Some(positions) = member.source.as_ref().and_then(|source| cut.positions.get(source)) {
                send(member, Control::Passed { positions: positions.clone() });
            }
        }
    }

    /// Nothing more happens here.
    pub fn is_over(&self) -> bool {
        self.decider.is_over()
    }

    /// When to tick at the latest, in monotonic ms, as far as the decider knows.
    pub fn due_ms(&self) -> Option<u64> {
        self.decider.due_ms()
    }

    /// Looks for changes and ends among the members, sends control that waits, lets time pass.
    pub fn tick(&mut self, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        self.members.iter_mut().for_each(send_waiting);
        if self.members.iter().all(|m| m.metrics.ended.load(Ordering::Acquire)) {
            return self.handle(Event::Ended, shared, works, now_ms);
        }
        let changed = self.members.iter().any(|m| m.metrics.changed.load(Ordering::Acquire));
        let event = if self.is_full() {
            Event::Full
        } else if changed {
            Event::Changed
        } else {
            Event::Tick
        };
        self.handle(event, shared, works, now_ms)
    }

    /// A source waits for the next barrier.
    fn is_full(&self) -> bool {
        self.members.iter().any(|m| m.metrics.full.load(Ordering::Acquire))
    }

    /// Stops intake and asks for the last epoch.
    pub fn drain(&mut self, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        self.handle(Event::DrainRequested, shared, works, now_ms)
    }

    /// Takes a report of one of its members.
    pub fn report(&mut self, member: usize, report: ChainReport, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        match report {
            ChainReport::Cut { epoch, cut, .. } => {
                let sequence = epoch.sequence;
                if sequence == self.injected.0 {
                    self.align_ms = now_ms.saturating_sub(self.injected.1);
                }
                let mut outcomes = self.handle(Event::Cut { member, sequence, ended: cut.ended }, shared, works, now_ms);
                outcomes.extend(self.freeze(member, sequence, cut, shared, works, now_ms));
                outcomes
            }
            ChainReport::Flushed { epoch, sinks, .. } => {
                for (task, handle) in sinks {
                    match handle {
                        SinkHandle::None => {}
                        SinkHandle::Files(files) => self.results.extend(files),
                        handle @ SinkHandle::Length(_) => self.next.set_sink(&task, handle),
                    }
                }
                self.handle(Event::Flushed { member, sequence: epoch.sequence }, shared, works, now_ms)
            }
        }
    }

    /// Takes over what a member's barrier froze, and has its images written.
    fn freeze(&mut self, member: usize, sequence: u64, cut: ChainCut, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        if let Some(place) = self.members.get_mut(member) {
            if let Some(source) = &place.source {
                self.next.move_positions(source, &cut.positions);
            }
            place.positions = cut.positions;
            place.ended = cut.ended;
        }
        if cut.images.is_empty() {
            return self.handle(Event::SegmentsWritten { member, sequence }, shared, works, now_ms);
        }
        let (dir, permits, region) = (shared.dirs.state.clone(), shared.context.snapshots.clone(), self.index);
        works.push(Box::pin(async move {
            // The semaphore is never closed; without a permit the write would only be less polite.
            let _permit = permits.acquire_owned().await.ok();
            let result = blocking(move || write_images(&dir, cut.images)).await;
            Work::Written { region, member, sequence, result }
        }));
        Vec::new()
    }

    /// Takes the end of blocking work that was begun here.
    pub fn work_done(&mut self, work: Work, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        match work {
            Work::Written { member, sequence, result: Ok(segments), .. } => {
                for (task, segment) in segments {
                    self.next.segments_mut(&task).push(segment);
                }
                self.handle(Event::SegmentsWritten { member, sequence }, shared, works, now_ms)
            }
            Work::Stored { sequence, record, result: Ok(decided), .. } => {
                self.decided = Some(*record);
                self.stored = sequence;
                let epoch = EpochId { attempt: shared.attempt, sequence };
                let mut outcomes = vec![Outcome::Decided(epoch, decided.results)];
                outcomes.extend(self.handle(Event::DecisionStored { sequence }, shared, works, now_ms));
                if self.is_full() {
                    outcomes.extend(self.handle(Event::Full, shared, works, now_ms));
                }
                self.merge_segments(shared, works);
                outcomes
            }
            Work::Merged { task, old, result: Ok(new), .. } => {
                self.merging = false;
                self.merged.push((task, old, new));
                Vec::new()
            }
            Work::Merged { task, result: Err(error), .. } => {
                // The segments that should have been merged are still there and valid.
                self.merging = false;
                tracing::warn!(job = %shared.job, task = %task, error = %error.to_failure().message, "state segments could not be merged");
                Vec::new()
            }
            Work::Written { result: Err(error), .. } | Work::Stored { result: Err(error), .. } => {
                let failure = error.to_failure();
                self.handle(Event::RoundFailed { class: failure.class, reason: failure.message }, shared, works, now_ms)
            }
            Work::ResultsMerged { .. } | Work::Checkpointed { .. } => Vec::new(),
        }
    }

    fn handle(&mut self, event: Event, shared: &Shared, works: &mut Works, now_ms: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for action in self.decider.handle(event, now_ms) {
            match action {
                Action::Drain => self.sources().for_each(|m| send(m, Control::Drain)),
                Action::Inject { sequence } => {
                    // Cleared before the barrier: what changes from now on belongs to a later epoch.
                    self.members.iter().for_each(|m| m.metrics.changed.store(false, Ordering::Release));
                    self.injected = (sequence, now_ms);
                    let epoch = EpochId { attempt: shared.attempt, sequence };
                    self.sources().for_each(|m| send(m, Control::Barrier(epoch)));
                }
                Action::Decide { sequence } => self.decide(sequence, shared, works),
                Action::Publish { sequence } => {
                    let epoch = EpochId { attempt: shared.attempt, sequence };
                    for member in &mut self.members {
                        let positions = member.positions.clone();
                        send(member, Control::Decided { epoch, positions: positions.clone() });
                        if shared.horizon == Horizon::Local && member.source.is_some() {
                            send(member, Control::Passed { positions });
                        }
                    }
                }
                Action::AbandonRound { sequence, missing } => {
                    let names: Vec<String> =
                        missing.iter().filter_map(|&m| self.members.get(m)).map(|m| format!("{}-{}", m.name.0, m.name.1)).collect();
                    outcomes.push(Outcome::Abandoned(format!(
                        "region {}: epoch {sequence} took too long and was given up; chains {} have not reported, their changes go into a later epoch",
                        self.id,
                        names.join(", ")
                    )));
                }
                Action::Finished => outcomes.push(Outcome::Finished),
                Action::Drained => outcomes.push(Outcome::Drained),
                Action::FailRegion { class, reason } => outcomes.push(Outcome::Failed(Error::new(class, reason))),
            }
        }
        outcomes
    }

    fn sources(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().filter(|m| m.source.is_some())
    }

    /// Has the cut written as the one durable record, and what it made obsolete deleted.
    fn decide(&mut self, sequence: u64, shared: &Shared, works: &mut Works) {
        for (task, old, new) in std::mem::take(&mut self.merged) {
            let segments = self.next.segments_mut(&task);
            let at = (0..segments.len()).find(|&at| segments.get(at..at + old.len()) == Some(old.as_slice()));
            if let Some(at) = at {
                segments.splice(at..at + old.len(), [new]);
            }
        }
        self.next.epoch = EpochId { attempt: shared.attempt, sequence };
        self.next.ended = self.members.iter().all(|m| m.ended);
        let results = std::mem::take(&mut self.results);
        let replacement = shared.context.take_replacement(&shared.job);
        let mut record = Box::new(self.next.clone());
        record.decided_at_ms = shared.context.clock.wall_ms();
        let region = self.index;
        let nothing = results.is_empty() && replacement.is_none();
        if nothing && let Some(before) = self.decided.as_ref().filter(|d| d.same_cut(&record)) {
            // The same cut under a new number: nothing to write (EPO-7).
            let record = Box::new(before.clone());
            works.push(Box::pin(async move { Work::Stored { region, sequence, record, result: Ok(Decided::default()) } }));
            return;
        }
        let keep: BTreeSet<String> = names(&record);
        let obsolete = Obsolete {
            files: self.decided.iter().flat_map(names).filter(|name| !keep.contains(name)).collect(),
            shared: self.decided.as_ref().is_some_and(|decided| decided.redealt),
        };
        let decision = Decision {
            job: shared.job.clone(),
            attempt: shared.attempt,
            region: self.id,
            record: (*record).clone(),
            results,
            replacement,
            retention: shared.retention,
        };
        let (dirs, decisions) = (shared.dirs.clone(), shared.context.decisions.clone());
        works.push(Box::pin(async move {
            let result = store(decision, obsolete, dirs, decisions).await;
            Work::Stored { region, sequence, record, result }
        }));
    }

    /// Starts to merge the segments of the first task that has too many.
    fn merge_segments(&mut self, shared: &Shared, works: &mut Works) {
        if self.merging || !self.merged.is_empty() {
            return;
        }
        let due = self.next.segments.iter().find_map(|t| compact::newest_to_merge(&t.segments).map(|old| (t, old.to_vec())));
        let Some((task, old)) = due else { return };
        let (task, region) = (task.task.clone(), self.index);
        let (dir, permits, merge) = (shared.dirs.state.clone(), shared.context.snapshots.clone(), shared.context.merge);
        self.merging = true;
        works.push(Box::pin(async move {
            let _permit = permits.acquire_owned().await.ok();
            let segments = old.clone();
            let result = blocking(move || {
                let images = segments.iter().map(|s| segment::read(&dir, s).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
                let segment = segment::write(&dir, &merge(&images)?)?;
                segment::sync_dir(&dir)?;
                Ok(segment)
            });
            Work::Merged { region, task, old, result: result.await }
        }));
    }
}

fn names(record: &RegionCut) -> BTreeSet<String> {
    record.segments.iter().flat_map(|t| &t.segments).map(|s| s.name.clone()).collect()
}

fn send(member: &mut Member, control: Control) {
    // A newer one of these says all that an older one said.
    match control {
        Control::Decided { .. } => member.unsent.retain(|c| !matches!(c, Control::Decided { .. })),
        Control::Passed { .. } => member.unsent.retain(|c| !matches!(c, Control::Passed { .. })),
        Control::Barrier(_) | Control::Drain => {}
    }
    member.unsent.push_back(control);
    send_waiting(member);
}

fn send_waiting(member: &mut Member) {
    while let Some(control) = member.unsent.pop_front() {
        match member.control.try_send(control) {
            Ok(()) => {}
            Err(flume::TrySendError::Full(control)) => {
                member.unsent.push_front(control);
                break;
            }
            // The chain is gone: its failure is told by the shard.
            Err(flume::TrySendError::Disconnected(_)) => member.unsent.clear(),
        }
    }
    member.seat.wake();
}

/// Runs blocking work on tokio's bounded pool for it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(join) => Err(Error::because(Class::Bug, "blocking work panicked", join)),
    }
}
