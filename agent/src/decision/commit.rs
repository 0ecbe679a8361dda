//! The committer thread: takes what is asked, puts all of it that waits into one transaction.

use super::redeal::redeal;
use super::retain::{Replacement, Retention, apply, replace};
use super::{JOBS, JobRecord, REGIONS, RESULTS, RegionCut, SPECS, Store, decode, encode, storage};
use crate::error::Error;
use parking_lot::Mutex;
use redb::{Durability, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId, OperatorId, RegionId};
use weir_planner::protocol::{LocalGrant, Restore};

/// Requests that may wait; who comes later waits for room.
const WAITING_MAX: usize = 1_024;
/// Requests in one transaction.
const GROUP_MAX: usize = 256;

/// An epoch of one region to be made decided.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The job.
    pub job: JobId,
    /// Who decides.
    pub attempt: Attempt,
    /// Of which region.
    pub region: RegionId,
    /// The cut.
    pub record: RegionCut,
    /// Result files that become visible with it, oldest first.
    pub results: Vec<ResultFile>,
    /// Merged result files, if any wait.
    pub replacement: Option<Replacement>,
    /// What may go.
    pub retention: Retention,
}

/// What a decision changed beside the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Result files that no decision names any more; to be deleted.
    pub dropped: Vec<String>,
    /// The result index as it is now, when it changed.
    pub results: Option<Vec<ResultFile>>,
}

/// What an attempt begins from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Decided cuts.
    pub regions: BTreeMap<RegionId, RegionCut>,
    /// Decided result files, oldest first.
    pub results: Vec<ResultFile>,
    /// Operators of which not every task is in a decided cut, although there are some: see [`JobRecord::undecided`].
    pub undecided: BTreeSet<OperatorId>,
    /// Why what was decided here may not be used; then nothing of it is given, and a checkpoint must take its place.
    pub refused: Option<String>,
    /// It was told to begin from nothing: nothing that was kept under the job's name is its own.
    pub empty: bool,
}

type Reply<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// What can be asked.
pub enum Request {
    /// Opens an attempt.
    Open { id: JobId, job: JobRecord, restore: Restore, reply: Reply<Opened> },
    /// Decides an epoch.
    Decide { decision: Box<Decision>, reply: Reply<Decided> },
    /// Removes a job.
    Forget { id: JobId, attempt: Attempt, reply: Reply<()> },
    /// Takes over a checkpoint.
    Adopt { id: JobId, attempt: Attempt, regions: BTreeMap<RegionId, RegionCut>, results: Vec<ResultFile>, reply: Reply<()> },
    /// Keeps the record of a job's spec.
    Keep { id: JobId, record: Vec<u8>, reply: Reply<()> },
}

impl Request {
    fn refuse(self, error: Error) {
        match self {
            Request::Open { reply, .. } => reply(Err(error)),
            Request::Decide { reply, .. } => reply(Err(error)),
            Request::Forget { reply, .. } => reply(Err(error)),
            Request::Keep { reply, .. } => reply(Err(error)),
            Request::Adopt { reply, .. } => reply(Err(error)),
        }
    }
}

/// Says how a request ended, once its transaction is durable; with an error, that it is not.
type Finish = Box<dyn FnOnce(Option<Error>) + Send>;

/// The thread and the way to it.
pub struct Committer {
    requests: Mutex<Option<flume::Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn closed() -> Error {
    Error::new(Class::Retry, "the decision store is closed")
}

impl Committer {
    pub(super) fn start(store: Arc<Store>, store_id: String) -> Result<Committer, Error> {
        let (requests, waiting) = flume::bounded::<Request>(WAITING_MAX);
        let run = move || {
            while let Ok(first) = waiting.recv() {
                let mut group = vec![first];
                group.extend(waiting.try_iter().take(GROUP_MAX - 1));
                commit(&store, &store_id, group);
            }
        };
        let thread = std::thread::Builder::new().name("weir-committer".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Error::because(Class::Retry, "committer thread", e))?;
        Ok(Committer { requests: Mutex::new(Some(requests)), thread: Mutex::new(Some(thread)) })
    }

    /// Asks and waits for the answer.
    pub(super) fn ask<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (tell, told) = flume::bounded(1);
        self.post(request(Box::new(move |answer| {
            let _ = tell.send(answer);
        })));
        told.recv().unwrap_or_else(|_| Err(closed()))
    }

    /// Asks; the answer goes to the request's own reply.
    pub(super) fn post(&self, request: Request) {
        let requests = self.requests.lock().clone();
        match requests {
            Some(requests) => {
                if let Err(back) = requests.send(request) {
                    back.into_inner().refuse(closed());
                }
            }
            None => request.refuse(closed()),
        }
    }

    /// Ends the thread after what was asked.
    pub(super) fn stop(&self) {
        drop(self.requests.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // A panic there was reported to whoever asked: their channel closed.
            let _ = thread.join();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One durable transaction for a group. A request that is refused by itself leaves no trace in it;
/// when the transaction fails, all hear of it.
fn commit(store: &Store, store_id: &str, group: Vec<Request>) {
    let mut finishes: Vec<Finish> = Vec::with_capacity(group.len());
    let mut group = group.into_iter();
    let outcome = (|| {
        let mut guard = store.db.write();
        if guard.is_none() {
            *guard = Some((store.open)(&store.path)?);
        }
        drop(guard);
        let guard = store.db.read();
        let Some(db) = guard.as_ref() else { return Err(closed()) };
        let err = |e: redb::Error| storage(&store.path, e);
        let mut write = db.begin_write().map_err(|e| err(e.into()))?;
        write.set_durability(Durability::Immediate).map_err(|e| err(e.into()))?;
        // Two phases and a saved allocator: an open after kill -9 does not walk the file.
        write.set_quick_repair(true);
        for request in group.by_ref() {
            let (finish, broken) = take(&write, &store.path, store_id, request);
            finishes.push(finish);
            // Part of its changes may be in the transaction: none of it may become durable.
            broken.map_or(Ok(()), Err)?;
        }
        write.commit().map_err(|e| err(e.into()))
    })();
    if let Err(error) = &outcome {
        tracing::error!(error = %error.to_failure().message, "decision store failed");
        // After a failed write redb answers nothing more; a fresh handle reads what is durable.
        let mut guard = store.db.write();
        *guard = None;
        match (store.open)(&store.path) {
            Ok(db) => *guard = Some(db),
            Err(error) => tracing::error!(error = %error.to_failure().message, "decision store could not be opened again"),
        }
    }
    let again = |error: &Error| Error::new(error.class, error.to_failure().message);
    for request in group {
        request.refuse(outcome.as_ref().err().map_or_else(closed, again));
    }
    for finish in finishes {
        finish(outcome.as_ref().err().map(again));
    }
}

fn finish<T: Send + 'static>(reply: Reply<T>, answer: Result<T, Error>) -> (Finish, Option<Error>) {
    let broken = match &answer {
        Err(error) if matches!(error.class, Class::Retry | Class::Bug) => Some(Error::new(error.class, error.to_failure().message)),
        Err(_) | Ok(_) => None,
    };
    (Box::new(move |failed| reply(failed.map_or(answer, Err))), broken)
}

/// Carries out one request and says how to answer it. The refusals, all before the first change,
/// concern the request alone; any other error breaks the transaction and comes back too.
fn take(write: &WriteTransaction, path: &Path, store_id: &str, request: Request) -> (Finish, Option<Error>) {
    match request {
        Request::Open { id, job, restore, reply } => finish(reply, open(write, path, store_id, &id, &job, &restore)),
        Request::Decide { decision, reply } => finish(reply, decide(write, path, &decision)),
        Request::Forget { id, attempt, reply } => finish(reply, forget(write, path, &id, attempt)),
        Request::Keep { id, record, reply } => finish(reply, keep(write, path, &id, &record)),
        Request::Adopt { id, attempt, regions, results, reply } => finish(reply, adopt(write, path, &id, attempt, &regions, &results)),
    }
}

fn job_record(write: &WriteTransaction, path: &Path, id: &JobId) -> Result<Option<JobRecord>, Error> {
    let jobs = write.open_table(JOBS).map_err(|e| storage(path, e))?;
    let value = jobs.get(id.as_str()).map_err(|e| storage(path, e))?;
    value.map(|v| decode(v.value(), "job")).transpose()
}

fn fenced(id: &JobId, attempt: Attempt, last: Option<Attempt>) -> Error {
    let last = last.map_or_else(|| "the job was forgotten".to_owned(), |last| format!("attempt {last} was opened"));
    Error::new(Class::Fenced, format!("job {id}: attempt {attempt} may not act any more, {last}"))
}

fn open(write: &WriteTransaction, path: &Path, store_id: &str, id: &JobId, job: &JobRecord, restore: &Restore) -> Result<Opened, Error> {
    let before = job_record(write, path, id)?;
    if let Some(before) = &before
        && before.attempt > job.attempt
    {
        return Err(fenced(id, job.attempt, Some(before.attempt)));
    }
    let mut opened = Opened { empty: matches!(restore, Restore::Fresh | Restore::New), ..Opened::default() };
    {
        let regions = write.open_table(REGIONS).map_err(|e| storage(path, e))?;
        opened.regions = regions_of(&regions, id, path)?;
        let results = write.open_table(RESULTS).map_err(|e| storage(path, e))?;
        opened.results = results_of(&results, id, path)?;
    }
    match restore {
        // The same start may be told twice; what the attempt has decided since is not deleted.
        Restore::Fresh if before.as_ref().is_some_and(|b| b.attempt == job.attempt) => {}
        Restore::Fresh => {
            clear(write, path, id)?;
            opened = Opened { empty: true, ..Opened::default() };
        }
        Restore::New if before.as_ref().is_some_and(|b| b.attempt != job.attempt) => {
            let message = format!(
                "job {id}: this agent's data directory (store {store_id}) holds an earlier job of that name, which the hub does not know; give the job another name, or start it fresh to give up the earlier one's state and results"
            );
            return Err(Error::new(Class::User, message));
        }
        Restore::New => {}
        Restore::Cut(grant) => {
            let refused = unusable(grant.local.as_ref(), before.as_ref(), job.attempt, !opened.regions.is_empty(), store_id);
            match refused {
                Some(reason) if grant.checkpoints.is_empty() => return Err(Error::new(Class::Corrupt, format!("job {id}: {reason}"))),
                // It is not of this line of cuts and must never be taken for a later attempt's.
                Some(reason) => {
                    clear(write, path, id)?;
                    opened = Opened { refused: Some(reason), ..Opened::default() };
                }
                None => {}
            }
        }
    }
    if let (Some(before), None) = (&before, &opened.refused) {
        opened.undecided = before.undecided(&opened.regions);
        let (regions, redealt) = fitting(before, job, std::mem::take(&mut opened.regions), id)?;
        if redealt {
            put_regions(write, path, id, &regions)?;
        }
        opened.regions = regions;
    }
    let mut jobs = write.open_table(JOBS).map_err(|e| storage(path, e))?;
    jobs.insert(id.as_str(), encode(job, "job")?.as_slice()).map_err(|e| storage(path, e))?;
    Ok(opened)
}

/// Why the cut in this store may not be used, with the way out; `None` when it may (EPO-9).
fn unusable(local: Option<&LocalGrant>, before: Option<&JobRecord>, attempt: Attempt, any: bool, store_id: &str) -> Option<String> {
    // A start that is told twice goes on where it was.
    if before.is_some_and(|before| before.attempt == attempt) {
        return None;
    }
    let Some(local) = local else {
        return Some(format!("no cut in store {store_id} may be used: start the job from a checkpoint, or fresh"));
    };
    if local.store_id != store_id {
        let wanted = &local.store_id;
        return Some(format!(
            "its cut is in store {wanted}, but this agent's data directory is store {store_id}; start the agent on the data directory with that store, or start the job fresh"
        ));
    }
    if local.must_exist && !any {
        return Some(format!(
            "a cut was decided in store {store_id}, but the store holds none; it is not started empty: bring the data directory back, or start the job fresh"
        ));
    }
    match (local.since, before) {
        (Some(since), Some(before)) if before.attempt < since => Some(format!(
            "the cut in store {store_id} was written by attempt {}, and the job was elsewhere before attempt {since}",
            before.attempt
        )),
        (Some(_) | None, _) => None,
    }
}

/// The cuts as an attempt at `job` begins from them, and whether they had to be dealt anew (CKP-8, CKP-9).
///
/// Errors: `User` for a version before that of the cuts (CKP-7), or tasks that they cannot be given to.
pub fn fitting(
    before: &JobRecord,
    job: &JobRecord,
    cuts: BTreeMap<RegionId, RegionCut>,
    id: &JobId,
) -> Result<(BTreeMap<RegionId, RegionCut>, bool), Error> {
    if cuts.is_empty() {
        return Ok((cuts, false));
    }
    if job.version < before.version {
        let message = format!(
            "job {id}: its state belongs to version {}, and version {} is older: run version {} or a higher one, or start fresh and give up its state",
            before.version, job.version, before.version
        );
        return Err(Error::new(Class::User, message));
    }
    let Some(change) = before.change_to(job) else { return Ok((cuts, false)) };
    redeal(before, &cuts, job).map(|dealt| (dealt, true)).map_err(|kept| change.refused(id, &kept))
}

fn adopt(
    write: &WriteTransaction,
    path: &Path,
    id: &JobId,
    attempt: Attempt,
    cuts: &BTreeMap<RegionId, RegionCut>,
    files: &[ResultFile],
) -> Result<(), Error> {
    let last = job_record(write, path, id)?.map(|j| j.attempt);
    if last != Some(attempt) {
        return Err(fenced(id, attempt, last));
    }
    put_regions(write, path, id, cuts)?;
    let mut results = write.open_table(RESULTS).map_err(|e| storage(path, e))?;
    results.insert(id.as_str(), encode(&files, "result")?.as_slice()).map_err(|e| storage(path, e))?;
    Ok(())
}

/// Puts these region records in the place of all that the job had.
fn put_regions(write: &WriteTransaction, path: &Path, id: &JobId, records: &BTreeMap<RegionId, RegionCut>) -> Result<(), Error> {
    let encoded =
        records.iter().map(|(region, record)| Ok((region.get(), encode(record, "region")?))).collect::<Result<Vec<_>, Error>>()?;
    let mut regions = write.open_table(REGIONS).map_err(|e| storage(path, e))?;
    regions.retain_in((id.as_str(), 0)..=(id.as_str(), u32::MAX), |_, _| false).map_err(|e| storage(path, e))?;
    for (region, record) in encoded {
        regions.insert((id.as_str(), region), record.as_slice()).map_err(|e| storage(path, e))?;
    }
    Ok(())
}

fn keep(write: &WriteTransaction, path: &Path, id: &JobId, record: &[u8]) -> Result<(), Error> {
    let mut specs = write.open_table(SPECS).map_err(|e| storage(path, e))?;
    specs.insert(id.as_str(), record).map_err(|e| storage(path, e))?;
    Ok(())
}

fn decide(write: &WriteTransaction, path: &Path, decision: &Decision) -> Result<Decided, Error> {
    let id = &decision.job;
    let last = job_record(write, path, id)?.map(|j| j.attempt);
    if last != Some(decision.attempt) {
        return Err(fenced(id, decision.attempt, last));
    }
    let record = encode(&decision.record, "region")?;
    let mut results = write.open_table(RESULTS).map_err(|e| storage(path, e))?;
    let before = results_of(&results, id, path)?;
    let mut files = before.clone();
    let mut dropped = Vec::new();
    if let Some(replacement) = &decision.replacement {
        if replace(&mut files, replacement) {
            dropped.extend(replacement.old.iter().cloned());
        } else {
            dropped.push(replacement.new.name.clone());
        }
    }
    files.extend(decision.results.iter().cloned());
    dropped.extend(apply(&mut files, decision.retention, decision.record.decided_at_ms).into_iter().map(|f| f.name));
    // Equal rows make equal names: a file goes only with the last one that names it.
    dropped.retain(|name| !files.iter().any(|f| f.name == *name));
    let changed = files != before;
    if changed {
        results.insert(id.as_str(), encode(&files, "result")?.as_slice()).map_err(|e| storage(path, e))?;
    }
    let mut regions = write.open_table(REGIONS).map_err(|e| storage(path, e))?;
    regions.insert((id.as_str(), decision.region.get()), record.as_slice()).map_err(|e| storage(path, e))?;
    Ok(Decided { dropped, results: changed.then_some(files) })
}

fn forget(write: &WriteTransaction, path: &Path, id: &JobId, attempt: Attempt) -> Result<(), Error> {
    if let Some(last) = job_record(write, path, id)?.map(|j| j.attempt)
        && last > attempt
    {
        return Err(fenced(id, attempt, Some(last)));
    }
    clear(write, path, id)?;
    let mut jobs = write.open_table(JOBS).map_err(|e| storage(path, e))?;
    jobs.remove(id.as_str()).map_err(|e| storage(path, e))?;
    let mut specs = write.open_table(SPECS).map_err(|e| storage(path, e))?;
    specs.remove(id.as_str()).map_err(|e| storage(path, e))?;
    Ok(())
}

/// Removes cuts and results of a job.
fn clear(write: &WriteTransaction, path: &Path, id: &JobId) -> Result<(), Error> {
    let mut regions = write.open_table(REGIONS).map_err(|e| storage(path, e))?;
    let all = (id.as_str(), 0)..=(id.as_str(), u32::MAX);
    regions.retain_in(all, |_, _| false).map_err(|e| storage(path, e))?;
    let mut results = write.open_table(RESULTS).map_err(|e| storage(path, e))?;
    results.remove(id.as_str()).map_err(|e| storage(path, e))?;
    Ok(())
}

/// Every region record of a job.
pub fn regions_of(
    table: &impl ReadableTable<(&'static str, u32), &'static [u8]>,
    id: &JobId,
    path: &Path,
) -> Result<BTreeMap<RegionId, RegionCut>, Error> {
    let mut found = BTreeMap::new();
    for entry in table.range((id.as_str(), 0)..=(id.as_str(), u32::MAX)).map_err(|e| storage(path, e))? {
        let (key, value) = entry.map_err(|e| storage(path, e))?;
        found.insert(RegionId::new(key.value().1), decode(value.value(), "region")?);
    }
    Ok(found)
}

/// The result index of a job.
pub fn results_of(table: &impl ReadableTable<&'static str, &'static [u8]>, id: &JobId, path: &Path) -> Result<Vec<ResultFile>, Error> {
    let value = table.get(id.as_str()).map_err(|e| storage(path, e))?;
    Ok(value.map(|v| decode(v.value(), "result")).transpose()?.unwrap_or_default())
}
