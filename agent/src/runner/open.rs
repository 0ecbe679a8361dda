//! The start of an attempt up to built chains: restore, sinks, sources, chains; what was opened is
//! closed in reverse when the start does not succeed (KER-5).

use super::attempt::{Attempt, Order, aborted};
use super::{Connectors, Context};
use crate::connector::Opening;
use crate::decision::{JobRecord, Opened, positions_of};
use crate::error::Error;
use crate::region::{JobDirs, blocking};
use crate::segment;
use crate::shard::Seat;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use weir_kernel::chain::{Chain, ChainReport};
use weir_kernel::graph::{Parts, build};
use weir_kernel::io::{Restored, Sink, SinkHandle, Source, Wake};
use weir_planner::error::Class;
use weir_planner::id::{ChainId, OperatorId, TaskId};
use weir_planner::plan::{JobPlan, PlanOperator, Work};
use weir_planner::protocol::{Level, Restore};

/// Seats by chain instance.
pub type Seats = BTreeMap<(ChainId, u32), Arc<Seat>>;

/// State by stateful task.
pub type Images = BTreeMap<(OperatorId, u32), Restored>;

/// Opens the attempt in the decision store, clears away what no decision names, loads state.
///
/// Errors: as [`crate::decision::Decisions::open_attempt`]; `Corrupt` for a segment that is missing
/// or does not verify.
pub fn restore(context: &Context, plan: &JobPlan, attempt: &Attempt, restore: Restore, dirs: &JobDirs) -> Result<(Opened, Images), Error> {
    let opened = context.decisions.open_attempt(JobRecord::of(plan, attempt.id), &attempt.job, restore)?;
    for dir in [&dirs.job, &dirs.state, &dirs.results] {
        std::fs::create_dir_all(dir).map_err(|e| Error::because(Class::Retry, format!("directory {}", dir.display()), e))?;
    }
    segment::sync_dir(&dirs.job)?;
    if let Some(jobs) = dirs.job.parent() {
        segment::sync_dir(jobs)?;
    }
    let segments = opened.regions.values().flat_map(|r| &r.segments);
    clear_orphans(&dirs.state, &segments.clone().flat_map(|t| t.segments.iter().map(|s| s.name.as_str())).collect())?;
    clear_orphans(&dirs.results, &opened.results.iter().map(|f| f.name.as_str()).collect())?;
    let mut images = Images::new();
    for of_task in segments {
        let key = (of_task.task.operator.clone(), of_task.task.subtask);
        let restored = images.entry(key).or_default();
        for one in &of_task.segments {
            restored.images.push(Arc::new(segment::read(&dirs.state, one)?));
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
    Ok((opened, images))
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
    attempt: &Attempt,
    opened: &Opened,
    seats: &Seats,
    dirs: &JobDirs,
    open: &mut Open,
) -> Result<Option<()>, Error> {
    let mut orders = attempt.orders();
    let plan = &attempt.plan;
    let runtime = tokio::runtime::Handle::current();
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
