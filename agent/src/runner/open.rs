//! The start of an attempt up to built chains: restore, sinks, sources, chains; what was opened is
//! closed in reverse when the start does not succeed (KER-5).

use super::attempt::{Attempt, Order, aborted};
use super::{Connectors, Context};
use crate::checkpoint::fetch::fetch;
use crate::connector::Opening;
use crate::decision::{JobRecord, Opened, fitting, positions_of};
use crate::error::Error;
use crate::region::{JobDirs, blocking};
use crate::segment;
use crate::shard::Seat;
use crate::wal::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use weir_kernel::chain::{Chain, ChainReport};
use weir_kernel::graph::{Parts, build};
use weir_kernel::io::{Restored, Sink, SinkHandle, Source, Wake};
use weir_planner::error::Class;
use weir_planner::id::{Attempt as AttemptId, ChainId, EpochId, OperatorId, RegionId, TaskId};
use weir_planner::manifest::{Manifest, RegionCut};
use weir_planner::plan::{JobPlan, PlanOperator, Work, key_group_range};
use weir_planner::protocol::{Level, Restore};
use weir_planner::spec::{DurabilityBackend, Horizon};

/// What a log on one machine cannot keep (WAL-4).
const LOCAL_LOG: &str = "the input log is on this agent's disk, but the job may go on elsewhere: if the disk is lost, so are the rows after \
                         the last checkpoint; durability.backend 'object_store' keeps them with the checkpoints";

/// Seats by chain instance.
pub type Seats = BTreeMap<(ChainId, u32), Arc<Seat>>;

/// State by stateful task.
pub type Images = BTreeMap<(OperatorId, u32), Restored>;

/// What is known to be in the state store at the start of an attempt.
#[derive(Debug, Default)]
pub struct Stored {
    /// Files, and the attempts that uploaded them.
    pub files: BTreeMap<String, AttemptId>,
    /// Epochs of the checkpoint that the attempt begins from, when it does.
    pub epochs: BTreeMap<RegionId, EpochId>,
}

/// Opens the attempt in the decision store, and loads the newest cut that may be used and verifies (CKP-6): the one decided
/// here, else the first checkpoint of the grant, else the next. Each one that cannot be used is an event. What no decision
/// names is cleared away.
///
/// Errors: as [`crate::decision::Decisions::open_attempt`]; `Corrupt` when nothing verifies, saying what was tried; `Retry` or
/// `User` when the state store cannot be asked.
pub async fn restore(
    context: &Arc<Context>,
    attempt: &Arc<Attempt>,
    restore: Restore,
    dirs: &JobDirs,
) -> Result<(Opened, Images, Stored), Error> {
    let checkpoints = match &restore {
        Restore::Cut(grant) => grant.checkpoints.clone(),
        Restore::Fresh | Restore::New => Vec::new(),
    };
    let stored_by = |manifests: &[Manifest]| Stored {
        files: manifests.iter().flat_map(|manifest| manifest.files.clone()).collect(),
        epochs: BTreeMap::new(),
    };
    let (shared, started, place) = (context.clone(), attempt.clone(), dirs.clone());
    let (opened, images) = blocking(move || {
        let opened = shared.decisions.open_attempt(JobRecord::of(&started.plan, started.id), &started.job, restore)?;
        make_dirs(&place)?;
        let images = if opened.refused.is_some() { Ok(Images::new()) } else { load(&opened, &started, &place) };
        Ok((opened, images))
    })
    .await?;
    let mut refused = match (&opened.refused, images) {
        (None, Ok(images)) => {
            let (named, place) = (opened.clone(), dirs.clone());
            blocking(move || clear_unnamed(&named, &place)).await?;
            if !opened.regions.is_empty() {
                let message = format!("restored from the cut of {} regions that was decided here", opened.regions.len());
                attempt.note(context.clock.wall_ms(), Level::Info, "restored", message, None, 1);
            }
            return Ok((opened, images, stored_by(&checkpoints)));
        }
        (None, Err(error)) if checkpoints.is_empty() || error.class != Class::Corrupt => return Err(error),
        (None, Err(error)) => error.to_failure().message,
        (Some(reason), _) => reason.clone(),
    };
    let mut tried = Vec::new();
    for (at, manifest) in checkpoints.iter().enumerate() {
        attempt.note(context.clock.wall_ms(), Level::Warn, "cut_refused", refused.clone(), None, 1);
        tried.push(refused);
        match adopt(context, attempt, manifest, dirs).await {
            Ok((opened, images)) => {
                let message = format!("restored from {} {} of attempt {}", manifest.kind, manifest.id, manifest.attempt);
                attempt.note(context.clock.wall_ms(), Level::Info, "restored", message, None, 1);
                // A file of a checkpoint that does not verify must not stand for the same one of a later checkpoint.
                let mut stored = stored_by(&checkpoints[at..]);
                stored.epochs = opened.regions.iter().map(|(region, cut)| (*region, cut.epoch)).collect();
                return Ok((opened, images, stored));
            }
            // Another checkpoint is in the same store, and would not be asked for in vain only because this one is broken.
            Err(error) if error.class == Class::Corrupt => {
                refused = format!("{} {}: {}", manifest.kind, manifest.id, error.to_failure().message);
            }
            Err(error) => return Err(error),
        }
    }
    tried.push(refused);
    let message = format!(
        "job {}: no cut can be used, and it is not started empty: {}; bring the files back, or start the job from a savepoint or fresh",
        attempt.job,
        tried.join("; ")
    );
    Err(Error::new(Class::Corrupt, message))
}

/// Fetches a checkpoint and makes it what the attempt begins from.
async fn adopt(context: &Arc<Context>, attempt: &Arc<Attempt>, manifest: &Manifest, dirs: &JobDirs) -> Result<(Opened, Images), Error> {
    let record = JobRecord::of(&attempt.plan, attempt.id);
    let (former, version, planned) = (manifest.attempt, manifest.version, manifest.planned.clone());
    let before = JobRecord { attempt: former, version, planned, ..record.clone() };
    let undecided = before.undecided(&manifest.cuts);
    let (regions, _) = fitting(&before, &record, manifest.cuts.clone(), &attempt.job)?;
    let no_store = || Error::new(Class::User, format!("job {}: this agent has no state store, where its checkpoint is", attempt.job));
    fetch(context.store.as_ref().ok_or_else(no_store)?, manifest, dirs).await?;
    let opened = Opened { regions, results: manifest.results.clone(), undecided, refused: None, empty: false };
    let (shared, started, place) = (context.clone(), attempt.clone(), dirs.clone());
    blocking(move || {
        let images = load(&opened, &started, &place)?;
        shared.decisions.adopt(&started.job, started.id, opened.regions.clone(), opened.results.clone())?;
        clear_unnamed(&opened, &place)?;
        Ok((opened, images))
    })
    .await
}

fn make_dirs(dirs: &JobDirs) -> Result<(), Error> {
    for dir in [&dirs.job, &dirs.state, &dirs.results] {
        std::fs::create_dir_all(dir).map_err(|e| Error::because(Class::Retry, format!("directory {}", dir.display()), e))?;
    }
    segment::sync_dir(&dirs.job)?;
    dirs.job.parent().map_or(Ok(()), segment::sync_dir)
}

/// Deletes what no decision names.
fn clear_unnamed(opened: &Opened, dirs: &JobDirs) -> Result<(), Error> {
    let segments = opened.regions.values().flat_map(|r| &r.segments).flat_map(|t| &t.segments);
    clear_orphans(&dirs.state, &segments.map(|s| s.name.as_str()).collect())?;
    clear_orphans(&dirs.results, &opened.results.iter().map(|f| f.name.as_str()).collect())
}

/// Reads the segments of a cut, and looks whether its result files are there.
fn load(opened: &Opened, attempt: &Attempt, dirs: &JobDirs) -> Result<Images, Error> {
    let mut images = Images::new();
    for (region, cut) in &opened.regions {
        if cut.redealt {
            load_dealt(*region, cut, &attempt.plan, dirs, &mut images)?;
            continue;
        }
        for of_task in &cut.segments {
            let key = (of_task.task.operator.clone(), of_task.task.subtask);
            let restored = images.entry(key).or_default();
            for one in &of_task.segments {
                restored.images.push(Arc::new(segment::read(&dirs.state, one)?));
            }
        }
    }
    if let Some(lost) = opened.results.iter().find(|f| !dirs.results.join(&f.name).exists()) {
        let message = format!(
            "job {}: result file {} is missing; bring it back or start the job fresh",
            attempt.job,
            dirs.results.join(&lost.name).display()
        );
        return Err(Error::new(Class::Corrupt, message));
    }
    Ok(images)
}

/// Reads for each task of a region what the segments of former tasks have of its key groups (CKP-9).
fn load_dealt(region: RegionId, cut: &RegionCut, plan: &JobPlan, dirs: &JobDirs, images: &mut Images) -> Result<(), Error> {
    let members = plan.regions.iter().find(|known| known.id == region).map(|known| known.members.as_slice()).unwrap_or_default();
    let here = |chain: ChainId, subtask: u32| members.contains(&(chain, subtask));
    for (operator, _, subtask, parallelism) in tasks_of(plan, |_| true).filter(|(_, chain, subtask, _)| here(*chain, *subtask)) {
        let owned = key_group_range(plan.max_parallelism, parallelism, subtask);
        for of_task in cut.segments.iter().filter(|of_task| of_task.task.operator == operator.id) {
            let restored = images.entry((operator.id.clone(), subtask)).or_default();
            restored.redealt = true;
            for one in &of_task.segments {
                restored.images.push(Arc::new(segment::open(&dirs.state, one)?.part(&owned)?));
            }
        }
    }
    Ok(())
}

/// Deletes files that no decision names: a crash left them between writing and deciding.
fn clear_orphans(dir: &Path, named: &BTreeSet<&str>) -> Result<(), Error> {
    let io = |e| Error::because(Class::Retry, format!("directory {}", dir.display()), e);
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().to_str().is_none_or(|name| !named.contains(name)) {
            std::fs::remove_file(entry.path()).map_err(io)?;
        }
    }
    Ok(())
}

/// Connectors opened so far, in order. Dropped or closed in reverse.
#[derive(Default)]
pub struct Open {
    sinks: Vec<((OperatorId, u32), Box<dyn Sink>)>,
    sources: Vec<((OperatorId, u32), Box<dyn Source>)>,
}

impl Open {
    /// Closes sources, then sinks, each in reverse. Blocks.
    pub fn close(mut self) {
        self.sources.iter_mut().rev().for_each(|(_, source)| source.close());
        self.sinks.iter_mut().rev().for_each(|(_, sink)| sink.close());
    }
}

/// Waits for blocking work, but not after an abort or a drain; then `late` gets what comes out.
async fn unless_told<T: Send + 'static>(
    orders: &mut watch::Receiver<Order>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    late: impl FnOnce(T) + Send + 'static,
) -> Result<Option<T>, Error> {
    let mut work = Box::pin(blocking(work));
    let told = async {
        // The sender lives as long as the attempt.
        let _ = orders.wait_for(|o| !matches!(o, Order::Run)).await;
    };
    tokio::select! {
        done = &mut work => done.map(Some),
        () = told => {
            // The open call itself cannot be stopped: it ends by its own time limit, and then its
            // connector is closed.
            tokio::spawn(async move {
                if let Ok(opened) = work.await {
                    late(opened);
                }
            });
            Ok(None)
        }
    }
}

fn tasks_of(plan: &JobPlan, wanted: fn(&Work) -> bool) -> impl Iterator<Item = (&PlanOperator, ChainId, u32, u32)> {
    plan.chains.iter().flat_map(move |chain| {
        let operators = chain.operators.iter().filter(move |o| wanted(&o.work));
        operators.flat_map(move |o| (0..chain.parallelism).map(move |subtask| (o, chain.id, subtask, chain.parallelism)))
    })
}

/// Opens every sink, then every source. `Ok(None)` when told to stop meanwhile. Whatever the end,
/// what was opened is in `open`.
pub async fn connectors(
    context: &Arc<Context>,
    attempt: &Arc<Attempt>,
    opened: &Opened,
    seats: &Seats,
    dirs: &JobDirs,
    open: &mut Open,
) -> Result<Option<()>, Error> {
    let mut orders = attempt.orders();
    let plan = &attempt.plan;
    let runtime = tokio::runtime::Handle::current();
    let place = |operator: &OperatorId| {
        let (attempt, clock, source) = (attempt.clone(), context.clock.clone(), operator.to_string());
        Place {
            dir: dirs.job.join("wal"),
            store: context.store.clone(),
            attempt: attempt.id,
            empty: opened.empty,
            cut: opened.regions.values().filter(|cut| cut.positions.contains_key(operator)).map(|cut| cut.epoch.attempt).max(),
            tell: Arc::new(move |level, kind, message| attempt.note(clock.wall_ms(), level, kind, message, Some(source.clone()), 1)),
        }
    };
    let opening = |operator: &PlanOperator, chain: ChainId, subtask: u32, parallelism: u32| -> Result<Opening, Error> {
        let seat = seats.get(&(chain, subtask)).ok_or_else(|| Error::new(Class::Bug, format!("chain {chain}-{subtask} has no seat")))?;
        let wake: Arc<dyn Wake> = seat.clone();
        Ok(Opening {
            job: attempt.job.clone(),
            operator: operator.id.clone(),
            subtask,
            parallelism,
            undecided: opened.undecided.contains(&operator.id),
            wake,
            clock: context.clock.clone(),
            result_dir: dirs.results.clone(),
            log: place(&operator.id),
            secrets: attempt.secrets.clone(),
            runtime: runtime.clone(),
        })
    };
    for (operator, chain, subtask, parallelism) in tasks_of(plan, |w| matches!(w, Work::Sink(_))) {
        let Work::Sink(work) = &operator.work else { continue };
        let task = TaskId { operator: operator.id.clone(), subtask };
        let handle: Option<SinkHandle> = opened.regions.values().flat_map(|r| &r.sinks).find(|(t, _)| *t == task).map(|(_, h)| h.clone());
        let (work, schema, opening, connectors) =
            (work.clone(), operator.output.clone(), opening(operator, chain, subtask, parallelism)?, context.connectors.clone());
        let sink =
            unless_told(&mut orders, move || connectors.sink(&work, &schema, handle.as_ref(), opening), |mut sink| sink.close()).await;
        match named(sink, &attempt.job, &task)? {
            Some(sink) => open.sinks.push(((operator.id.clone(), subtask), sink)),
            None => return Ok(None),
        }
    }
    cut_off(context, attempt, opened, &opening).await?;
    for (operator, chain, subtask, parallelism) in tasks_of(plan, |w| matches!(w, Work::Source(_))) {
        let Work::Source(work) = &operator.work else { continue };
        let task = TaskId { operator: operator.id.clone(), subtask };
        let positions = positions_of(opened.regions.values(), &operator.id);
        let log = work.durability.as_ref().filter(|log| log.enabled && log.backend == DurabilityBackend::Local);
        if log.is_some() && plan.horizon == Horizon::Sealed {
            attempt.note(context.clock.wall_ms(), Level::Warn, "wal_local", LOCAL_LOG.to_owned(), Some(operator.id.to_string()), 1);
        }
        let (work, schema, opening, connectors) =
            (work.clone(), operator.output.clone(), opening(operator, chain, subtask, parallelism)?, context.connectors.clone());
        let source =
            unless_told(&mut orders, move || connectors.source(&work, &schema, &positions, opening), |mut source| source.close()).await;
        match named(source, &attempt.job, &task)? {
            Some(source) => {
                if let Some(message) = source.greeting() {
                    attempt.note(context.clock.wall_ms(), Level::Info, "opened", message, Some(operator.id.to_string()), 1);
                }
                open.sources.push(((operator.id.clone(), subtask), source));
            }
            None => return Ok(None),
        }
    }
    Ok(Some(()))
}

/// Has sinks that no task of the plan has any more drop what they wrote past the cut: its rows
/// are read again, and come out of the tasks that there are now (CKP-8).
async fn cut_off(
    context: &Arc<Context>,
    attempt: &Attempt,
    opened: &Opened,
    opening: &impl Fn(&PlanOperator, ChainId, u32, u32) -> Result<Opening, Error>,
) -> Result<(), Error> {
    for (operator, chain, subtask, parallelism) in
        tasks_of(&attempt.plan, |w| matches!(w, Work::Sink(_))).filter(|(_, _, subtask, _)| *subtask == 0)
    {
        let Work::Sink(work) = &operator.work else { continue };
        for (task, handle) in opened.regions.values().flat_map(|record| &record.sinks) {
            if task.operator != operator.id || task.subtask < parallelism {
                continue;
            }
            let opening = Opening { subtask: task.subtask, ..opening(operator, chain, subtask, parallelism)? };
            let (work, schema, handle, connectors) = (work.clone(), operator.output.clone(), handle.clone(), context.connectors.clone());
            let closed = blocking(move || connectors.sink(&work, &schema, Some(&handle), opening).map(|mut sink| sink.close())).await;
            named(closed, &attempt.job, task)?;
        }
    }
    Ok(())
}

fn named<T>(result: Result<T, Error>, job: &weir_planner::id::JobId, task: &TaskId) -> Result<T, Error> {
    result.map_err(|e| Error { message: format!("job {job}: task {task}: {}", e.message), ..e })
}

/// Builds the chains, state in place, nothing running yet. Blocks.
pub fn chains(
    context: &Context,
    plan: &JobPlan,
    open: Open,
    restored: Images,
    seats: &Seats,
    reports: flume::Sender<ChainReport>,
) -> Result<Vec<Chain>, Error> {
    let wakes = seats.iter().map(|(name, seat)| (*name, seat.clone() as Arc<dyn Wake>)).collect();
    let parts = Parts {
        sources: open.sources.into_iter().collect(),
        sinks: open.sinks.into_iter().collect(),
        restored,
        clock: context.clock.clone(),
        wakes,
        reports,
        open_epoch_bytes: context.open_epoch_bytes,
    };
    build(plan, parts)
}

/// The order that came during a start, as its end: an abort is an error, a drain a stop.
pub fn told(attempt: &Attempt) -> Result<(), Error> {
    match &*attempt.orders().borrow() {
        Order::Abort(failure) => Err(aborted(failure)),
        Order::Run | Order::Drain => Ok(()),
    }
}

/// Opens connectors by their options.
pub struct Options;

impl Connectors for Options {
    fn source(
        &self,
        work: &weir_planner::plan::SourceWork,
        output: &weir_planner::schema::Schema,
        positions: &[weir_planner::connector::SplitPosition],
        opening: Opening,
    ) -> Result<Box<dyn Source>, Error> {
        crate::connector::open_source(work, output, positions, opening)
    }

    fn sink(
        &self,
        work: &weir_planner::plan::SinkWork,
        input: &weir_planner::schema::Schema,
        handle: Option<&SinkHandle>,
        opening: Opening,
    ) -> Result<Box<dyn Sink>, Error> {
        crate::connector::open_sink(work, input, handle, opening)
    }
}
