//! One attempt: restore, connect, build, run, decide epochs, close in reverse.

pub mod attempt;
mod checkpoints;
mod open;
mod rounds;

pub use open::Options;

use crate::checkpoint::round::{Ask, Means};
use crate::checkpoint::store::StateStore;
use crate::connector::Opening;
use crate::decision::{Decisions, Opened, Replacement, Retention, merge_candidates};
use crate::error::Error;
use crate::read;
use crate::region::{JobDirs, Member, Outcome, Region, Shared, Work, Works, blocking};
use crate::shard::{News, Passenger, Shards, close_caught};
use attempt::{Attempt, Order, aborted};
use checkpoints::Checkpoints;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use open::{Open, Seats, Stored};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_kernel::chain::{Chain, ChainReport};
use weir_kernel::io::{Clock, ResultFile, Sink, SinkHandle, Source, StateImage};
use weir_planner::connector::SplitPosition;
use weir_planner::epoch::{Decider, Pace};
use weir_planner::error::Class;
use weir_planner::id::{Attempt as AttemptId, ChainId, EpochId, JobId, RegionId};
use weir_planner::plan::{SinkWork, SourceWork, Work as PlanWork};
use weir_planner::protocol::{AttemptState, Level, Restore};
use weir_planner::schema::Schema;
use weir_planner::spec::Horizon;

/// Warnings about lost rows of a job come at most so often.
const LOSSES_MS: u64 = 10_000;
/// Members are looked at for changes at least so often, however slow the epochs.
const LOOK_MS: u64 = 1_000;

/// How connectors are opened: by their options, or doubles in tests. Both block.
pub trait Connectors: Send + Sync {
    /// Opens one source task.
    fn source(&self, work: &SourceWork, output: &Schema, positions: &[SplitPosition], opening: Opening) -> Result<Box<dyn Source>, Error>;
    /// Opens one sink task.
    fn sink(&self, work: &SinkWork, input: &Schema, handle: Option<&SinkHandle>, opening: Opening) -> Result<Box<dyn Sink>, Error>;
}

/// Merges state images; a bad one is an error.
pub type Merge = fn(&[Arc<StateImage>]) -> Result<StateImage, weir_kernel::error::Error>;

/// The parts of an agent that its attempts share.
pub struct Context {
    /// Decided epochs.
    pub decisions: Decisions,
    /// Threads that step chains.
    pub shards: Shards,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Segments that are written or merged at once.
    pub snapshots: Arc<Semaphore>,
    /// How connectors are opened.
    pub connectors: Arc<dyn Connectors>,
    /// Undecoded bytes of a source task between two barriers (EPO-6).
    pub open_epoch_bytes: u64,
    /// How segments are merged.
    pub merge: Merge,
    /// Merged result files that wait for a decision, by job.
    pub replacements: Mutex<BTreeMap<JobId, Replacement>>,
    /// Where checkpoints go; `None` where there are none.
    pub store: Option<StateStore>,
    /// To whoever seals checkpoints.
    pub asks: flume::Sender<Ask>,
}

impl Context {
    /// The merged result file that waits for a decision of this job.
    pub fn take_replacement(&self, job: &JobId) -> Option<Replacement> {
        self.replacements.lock().remove(job)
    }

    /// What rounds of a job need, where there is a state store.
    pub fn means(&self, job: &JobId) -> Option<Means> {
        let store = self.store.clone()?;
        let (decisions, dirs) = (self.decisions.clone(), JobDirs::of(&self.data_dir, job));
        Some(Means { store, decisions, dirs, asks: self.asks.clone() })
    }

    fn now_ms(&self) -> u64 {
        self.clock.monotonic_ns() / 1_000_000
    }
}

/// How an attempt ended without an error.
enum Ending {
    Stopped,
    Finished,
}

/// Runs an attempt to its end; `before` must be over first. Everything that was opened is closed
/// when it returns.
pub async fn run(context: Arc<Context>, attempt: Arc<Attempt>, restore: Restore, before: Option<Arc<Attempt>>) {
    if let Some(before) = before {
        before.until_over().await;
    }
    let driven = AssertUnwindSafe(drive(&context, &attempt, restore)).catch_unwind().await;
    let end = driven.unwrap_or_else(|_| Err(Error::new(Class::Bug, format!("job {}: its coordinator panicked", attempt.job))));
    context.replacements.lock().remove(&attempt.job);
    let now_ms = context.clock.wall_ms();
    match end {
        Ok(Ending::Stopped) => attempt.ends(AttemptState::Stopped, now_ms),
        Ok(Ending::Finished) => attempt.ends(AttemptState::Finished, now_ms),
        Err(error) => {
            let mut failure = error.to_failure();
            failure.message = attempt.secrets.scrub(failure.message);
            tracing::warn!(job = %attempt.job, attempt = %attempt.id, class = ?failure.class, error = %failure.message, "attempt ended");
            attempt.ends(AttemptState::Failed(failure), now_ms);
        }
    }
}

async fn drive(context: &Arc<Context>, attempt: &Arc<Attempt>, restore: Restore) -> Result<Ending, Error> {
    open::told(attempt)?;
    let dirs = JobDirs::of(&context.data_dir, &attempt.job);
    let (opened, images, stored) = open::restore(context, attempt, restore, &dirs).await?;
    if !opened.regions.is_empty() {
        attempt.decided(lowest(opened.regions.values().map(|r| Some(r.epoch)), attempt.plan.regions.len()));
    }
    let instances = attempt.plan.chains.iter().flat_map(|c| (0..c.parallelism).map(move |s| (c.id, s)));
    let seats: Seats = instances.map(|name| (name, context.shards.seat())).collect();
    let mut open = Open::default();
    let connected = open::connectors(context, attempt, &opened, &seats, &dirs, &mut open).await;
    if !matches!(connected, Ok(Some(()))) {
        blocking(move || {
            open.close();
            Ok(())
        })
        .await?;
        connected?;
        open::told(attempt)?;
        return Ok(Ending::Stopped);
    }
    // A chain has at most one cut and one flush to report for each barrier, and one barrier is
    // under way at most: with room for twice that no chain ever waits here.
    let (report, reports) = flume::bounded(4 * seats.len() + 16);
    let chains = {
        let (context, attempt, seats) = (context.clone(), attempt.clone(), seats.clone());
        blocking(move || open::chains(&context, &attempt.plan, open, images, &seats, report)).await?
    };
    let (news, told) = flume::bounded(2 * seats.len() + 16);
    let _unseat = Unseat(&seats);
    let regions = seat(context, attempt, chains, &seats, &opened, news)?;
    attempt.moves_to(AttemptState::Running);
    attempt.note(context.clock.wall_ms(), Level::Info, "started", format!("attempt {} runs", attempt.id), None, 1);
    let plan = &attempt.plan;
    let shared = Shared {
        context: context.clone(),
        job: attempt.job.clone(),
        attempt: attempt.id,
        dirs,
        retention: Retention { rows: plan.result_retention_rows, ms: plan.result_retention_ms },
        // Where nothing can be sealed, what is decided here is all that a restart can begin from.
        horizon: if context.store.is_some() { plan.horizon } else { Horizon::Local },
    };
    let mut coordinator = Coordinator::new(shared, attempt.clone(), regions, opened.results, stored);
    let end = coordinator.run(&reports, &told).await;
    attempt.note_losses(context.clock.wall_ms());
    // What is being written ends before the files may be touched by another attempt.
    while coordinator.works.next().await.is_some() {}
    close(&seats).await;
    end
}

/// Hands the chains to their shards and makes the coordinators of their regions.
fn seat(
    context: &Context,
    attempt: &Attempt,
    chains: Vec<Chain>,
    seats: &Seats,
    opened: &Opened,
    news: flume::Sender<News>,
) -> Result<Vec<Region>, Error> {
    let plan = &attempt.plan;
    attempt.watches(chains.iter().map(Chain::metrics).collect());
    let mut members = BTreeMap::new();
    let mut passengers = Vec::new();
    for chain in chains {
        let name = chain.id();
        let seat = seats.get(&name).ok_or_else(|| Error::new(Class::Bug, format!("chain {}-{} has no seat", name.0, name.1)))?.clone();
        let planned = plan.chains.get(name.0.get() as usize).and_then(|c| c.operators.first());
        let source = planned.filter(|o| matches!(o.work, PlanWork::Source(_))).map(|o| o.id.clone());
        let (control, metrics) = (chain.control(), chain.metrics());
        let member =
            Member { name, control, seat: seat.clone(), metrics, source, unsent: VecDeque::new(), positions: Vec::new(), ended: false };
        members.insert(name, member);
        passengers.push((seat, Passenger { machine: Box::new(chain), name, news: news.clone() }));
    }
    let pace = Pace { epoch_ms: plan.checkpoint.epoch_ms, timeout_ms: plan.checkpoint.timeout_ms };
    let mut regions = Vec::with_capacity(plan.regions.len());
    for (index, region) in plan.regions.iter().enumerate() {
        let missing = |name: &(ChainId, u32)| Error::new(Class::Bug, format!("region {} has no chain {}-{}", region.id, name.0, name.1));
        let own = region.members.iter().map(|n| members.remove(n).ok_or_else(|| missing(n))).collect::<Result<Vec<_>, _>>()?;
        let decided = opened.regions.get(&region.id).cloned();
        let last = decided.as_ref().filter(|d| d.epoch.attempt == attempt.id).map_or(0, |d| d.epoch.sequence);
        let decider = Decider::new(pace, own.len(), last, context.now_ms());
        regions.push(Region::new(index, region.id, own, decider, decided, attempt.id));
    }
    for (seat, passenger) in passengers {
        seat.run(passenger);
    }
    Ok(regions)
}

/// However an attempt ends, its chains are not stepped any more: those that were not taken in
/// order are closed by their shards.
struct Unseat<'a>(&'a Seats);

impl Drop for Unseat<'_> {
    fn drop(&mut self) {
        for seat in self.0.values() {
            drop(seat.take());
        }
    }
}

/// Takes the chains off their shards and closes them, last first.
async fn close(seats: &Seats) {
    let mut chains = Vec::with_capacity(seats.len());
    for seat in seats.values() {
        // Closed without a chain when the process is stopping: then the shard has closed it.
        if let Ok(passenger) = seat.take().recv_async().await {
            chains.push(passenger);
        }
    }
    let closed = blocking(move || {
        chains.iter_mut().rev().for_each(|p: &mut Box<Passenger>| close_caught(p.machine.as_mut()));
        Ok(())
    });
    if let Err(error) = closed.await {
        tracing::error!(error = %error.to_failure().message, "chains could not be closed");
    }
}

/// The lowest of the regions' epochs, when every region has one.
fn lowest(epochs: impl Iterator<Item = Option<EpochId>>, regions: usize) -> Option<EpochId> {
    let all: Option<Vec<EpochId>> = epochs.collect();
    all.filter(|all| all.len() == regions).and_then(|all| all.into_iter().min())
}

/// Drives all regions of an attempt.
struct Coordinator {
    shared: Shared,
    attempt: Arc<Attempt>,
    regions: Vec<Region>,
    places: BTreeMap<(ChainId, u32), (usize, usize)>,
    finished: Vec<bool>,
    works: Works,
    results: Vec<ResultFile>,
    merging_results: bool,
    draining: bool,
    losses_at_ms: u64,
    checkpoints: Option<Checkpoints>,
    /// The checkpoint that is being made. Nobody waits for it at the end of the attempt.
    round: Works,
    /// Files known to be in the state store.
    stored: BTreeMap<String, AttemptId>,
}

impl Coordinator {
    fn new(shared: Shared, attempt: Arc<Attempt>, regions: Vec<Region>, results: Vec<ResultFile>, stored: Stored) -> Self {
        let place =
            |(r, region): (usize, &Region)| region.members.iter().enumerate().map(|(m, member)| (member.name, (r, m))).collect::<Vec<_>>();
        let places = regions.iter().enumerate().flat_map(place).collect();
        let finished = vec![false; regions.len()];
        let interval_ms = attempt.plan.checkpoint.interval_ms;
        let checkpoints = shared.context.store.is_some().then(|| Checkpoints::new(interval_ms, shared.context.now_ms(), stored.epochs));
        Coordinator {
            shared,
            attempt,
            regions,
            places,
            finished,
            works: FuturesUnordered::new(),
            results,
            merging_results: false,
            draining: false,
            losses_at_ms: 0,
            checkpoints,
            round: FuturesUnordered::new(),
            stored: stored.files,
        }
    }

    async fn run(&mut self, reports: &flume::Receiver<ChainReport>, news: &flume::Receiver<News>) -> Result<Ending, Error> {
        let mut orders = self.attempt.orders();
        orders.mark_changed();
        let attempt = self.attempt.clone();
        let asking = &attempt.asking;
        let look_ms = self.attempt.plan.checkpoint.epoch_ms.clamp(10, LOOK_MS);
        let mut look_at = self.shared.context.now_ms() + look_ms;
        loop {
            if let Some(ending) = self.ending() {
                return Ok(ending);
            }
            let now = self.shared.context.now_ms();
            let checkpoint = self.checkpoints.as_ref().and_then(Checkpoints::due_ms);
            let due = self.regions.iter().filter_map(Region::due_ms).chain(checkpoint).chain([look_at]).min().unwrap_or(look_at);
            let wait = tokio::time::sleep(Duration::from_millis(due.saturating_sub(now)));
            tokio::select! {
                report = reports.recv_async() => match report {
                    Ok(report) => self.report(report)?,
                    Err(_) => return Err(Error::new(Class::Bug, "every chain is gone")),
                },
                Ok(heard) = news.recv_async() => self.hear(heard)?,
                Some(work) = self.works.next(), if !self.works.is_empty() => self.work_done(work)?,
                Some(work) = self.round.next(), if !self.round.is_empty() => self.work_done(work)?,
                Ok(()) = orders.changed() => {
                    let order = orders.borrow_and_update().clone();
                    self.obey(&order)?;
                }
                () = asking.notified() => {}
                () = wait => {
                    look_at = self.shared.context.now_ms() + look_ms;
                    self.tick()?;
                }
            }
            self.checkpoint()?;
        }
    }

    fn ending(&self) -> Option<Ending> {
        if self.finished.iter().all(|f| *f) {
            return Some(Ending::Finished);
        }
        (self.draining && self.regions.iter().all(Region::is_over)).then_some(Ending::Stopped)
    }

    fn report(&mut self, report: ChainReport) -> Result<(), Error> {
        let (ChainReport::Cut { chain, subtask, .. } | ChainReport::Flushed { chain, subtask, .. }) = &report;
        let Some(&(region, member)) = self.places.get(&(*chain, *subtask)) else {
            return Err(Error::new(Class::Bug, format!("report of an unknown chain {chain}-{subtask}")));
        };
        self.with(region, |r, shared, works, now| r.report(member, report, shared, works, now))
    }

    fn hear(&mut self, news: News) -> Result<(), Error> {
        match news {
            News::Failed(chain, subtask, error) => {
                let task = self.attempt.plan.chains.get(chain.get() as usize).and_then(|c| c.operators.first());
                let task = task.map_or_else(String::new, |o| format!("{}-{subtask}", o.id));
                Err(Error { message: format!("job {}: chain of task {task}: {}", self.attempt.job, error.message), ..error })
            }
            News::Ended(chain, subtask) => match self.places.get(&(chain, subtask)) {
                Some(&(region, _)) => self.with(region, Region::tick),
                None => Ok(()),
            },
        }
    }

    fn work_done(&mut self, work: Work) -> Result<(), Error> {
        let region = match &work {
            Work::Written { region, .. } | Work::Stored { region, .. } | Work::Merged { region, .. } => *region,
            Work::ResultsMerged { result } => {
                self.merging_results = false;
                match result {
                    Ok(replacement) => {
                        self.shared.context.replacements.lock().insert(self.attempt.job.clone(), replacement.clone());
                    }
                    Err(error) => {
                        tracing::warn!(job = %self.attempt.job, error = %error.to_failure().message, "result files could not be merged")
                    }
                }
                return Ok(());
            }
            Work::Checkpointed { .. } => {
                if let Work::Checkpointed { asked, result } = work {
                    self.checkpointed(asked, *result);
                }
                return Ok(());
            }
        };
        self.with(region, |r, shared, works, now| r.work_done(work, shared, works, now))
    }

    fn obey(&mut self, order: &Order) -> Result<(), Error> {
        match order {
            Order::Run => Ok(()),
            Order::Abort(failure) => Err(aborted(failure)),
            Order::Drain if self.draining => Ok(()),
            Order::Drain => {
                self.draining = true;
                self.attempt.moves_to(AttemptState::Stopping);
                (0..self.regions.len()).try_for_each(|region| self.with(region, Region::drain))
            }
        }
    }

    fn tick(&mut self) -> Result<(), Error> {
        let now = self.shared.context.now_ms();
        // The first loss is told at once, those after it together.
        if now >= self.losses_at_ms && self.attempt.note_losses(self.shared.context.clock.wall_ms()) {
            self.losses_at_ms = now + LOSSES_MS;
        }
        (0..self.regions.len()).try_for_each(|region| self.with(region, Region::tick))
    }

    /// Lets one region act and takes over what came of it.
    fn with(&mut self, index: usize, act: impl FnOnce(&mut Region, &Shared, &mut Works, u64) -> Vec<Outcome>) -> Result<(), Error> {
        let now = self.shared.context.now_ms();
        let Some(region) = self.regions.get_mut(index) else { return Err(Error::new(Class::Bug, format!("no region {index}"))) };
        for outcome in act(region, &self.shared, &mut self.works, now) {
            match outcome {
                Outcome::Decided(epoch, results) => {
                    tracing::trace!(job = %self.attempt.job, epoch = %epoch, "decided");
                    self.attempt.decided(lowest(self.regions.iter().map(Region::epoch), self.regions.len()));
                    if let Some(results) = results {
                        self.results = results;
                        self.merge_results();
                    }
                }
                Outcome::Abandoned(message) => {
                    tracing::warn!(job = %self.attempt.job, "{message}");
                    self.attempt.note(self.shared.context.clock.wall_ms(), Level::Warn, "epoch_abandoned", message, None, 1);
                }
                Outcome::Finished => self.finished[index] = true,
                Outcome::Drained => {}
                Outcome::Failed(error) => {
                    return Err(Error {
                        message: format!("job {}: region {}: {}", self.attempt.job, RegionId::new(index as u32), error.message),
                        ..error
                    });
                }
            }
        }
        Ok(())
    }

    /// Starts to merge small result files when there are too many.
    fn merge_results(&mut self) {
        if self.merging_results || self.shared.context.replacements.lock().contains_key(&self.attempt.job) {
            return;
        }
        let Some(run) = merge_candidates(&self.results, self.shared.retention) else { return };
        let (run, dir) = (run.to_vec(), self.shared.dirs.results.clone());
        let replaces_by = self.attempt.plan.result_table().map_or_else(Vec::new, |(_, by)| by.to_vec());
        let permits = self.shared.context.snapshots.clone();
        self.merging_results = true;
        self.works.push(Box::pin(async move {
            // The semaphore is never closed; without a permit the merge would only be less polite.
            let _permit = permits.acquire_owned().await.ok();
            Work::ResultsMerged { result: blocking(move || read::merge(&dir, &run, &replaces_by)).await }
        }));
    }
}
