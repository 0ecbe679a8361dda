//! One checkpoint: taken from what is decided, uploaded, sealed by whoever keeps the record, swept after (CKP-2).

use super::store::{Put, StateStore};
use super::upload::{Needed, Pins, Sweep, needed, sweep, upload};
use crate::decision::{Cut, Decisions};
use crate::error::Error;
use crate::region::{JobDirs, blocking};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, CheckpointId, JobId};
use weir_planner::keygroup::KEY_ENCODING_VERSION;
use weir_planner::manifest::{CheckpointKind, MANIFEST_VERSION, Manifest, STATE_FORMAT_VERSION};
use weir_planner::protocol::{CheckpointDone, Sealed};

/// How often a cut is taken anew because a merge has deleted a file of it meanwhile.
const TRIES_MAX: usize = 8;
/// Pause before a seal is asked for again.
const AGAIN: Duration = Duration::from_millis(500);

/// Asks whoever keeps the record of checkpoints. Without an answer it may be asked again.
pub struct Ask {
    /// What came of the checkpoint; the session is filled in by who sends it.
    pub done: CheckpointDone,
    /// Its seal; `None` to a failure that was told; an error when it was refused.
    pub reply: oneshot::Sender<Result<Option<Sealed>, Error>>,
}

/// What a round is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The job.
    pub job: JobId,
    /// Whose cuts.
    pub attempt: Attempt,
    /// The id, where the hub asked for it.
    pub id: Option<CheckpointId>,
    /// Why it is kept.
    pub kind: CheckpointKind,
    /// Wall clock of its begin, ms.
    pub started_at_ms: i64,
    /// See [`CheckpointDone::align_ms`].
    pub align_ms: u64,
    /// It fails after so long.
    pub timeout: Duration,
}

/// The parts that rounds need.
#[derive(Clone)]
pub struct Means {
    /// Where to.
    pub store: StateStore,
    /// What is decided.
    pub decisions: Decisions,
    /// Files of the job.
    pub dirs: JobDirs,
    /// Who seals.
    pub asks: flume::Sender<Ask>,
}

/// A sealed round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// What was sealed.
    pub manifest: Manifest,
    /// Files that retained checkpoints have in the store, and who uploaded them.
    pub stored: BTreeMap<String, Attempt>,
    /// What could not be done after the seal; the next round makes up for it.
    pub warnings: Vec<String>,
}

/// Makes a checkpoint of what is decided. `stored` are files known to be in the store. A failure is told to whoever keeps the record.
///
/// Errors: why there is none; the job goes on, and so does its last checkpoint.
pub async fn make(means: &Means, wanted: &Wanted, stored: &BTreeMap<String, Attempt>) -> Result<Made, Error> {
    let until = Instant::now() + wanted.timeout;
    let made = match tokio::time::timeout_at(until, uploaded(means, wanted, stored)).await {
        Ok(made) => made,
        Err(_) => {
            let message = format!("checkpoint of job {}: not complete after {} ms", wanted.job, wanted.timeout.as_millis());
            Err(Error::new(Class::Retry, message))
        }
    };
    let (mut manifest, bytes_new) = match made {
        Ok(made) => made,
        Err(error) => {
            // Nobody waits for the answer: the error is what counts.
            let _ = tell(means, wanted, Err(&error), 0, Instant::now() + AGAIN * 4).await;
            return Err(error);
        }
    };
    let sealed = tell(means, wanted, Ok(&manifest), bytes_new, until).await?;
    let sealed = sealed.ok_or_else(|| Error::new(Class::Bug, format!("checkpoint of job {} was not sealed", wanted.job)))?;
    manifest.id = sealed.id;
    let mut warnings = Vec::new();
    if let Err(error) = put_manifest(&means.store, &manifest).await {
        warnings.push(error.to_failure().message);
    }
    if let Err(error) = sweep(&means.store, &wanted.job, wanted.attempt, Sweep::UpTo(sealed.id), &sealed.retained).await {
        warnings.push(error.to_failure().message);
    }
    let stored = sealed.retained.iter().flat_map(|manifest| manifest.files.clone()).collect();
    Ok(Made { manifest, stored, warnings })
}

/// Takes what is decided and has all of it in the store; the manifest has no id yet.
async fn uploaded(means: &Means, wanted: &Wanted, stored: &BTreeMap<String, Attempt>) -> Result<(Manifest, u64), Error> {
    let (mut manifest, files, pins) = taken(means, wanted, stored).await?;
    let bytes_new = upload(&means.store, &pins, &wanted.job, wanted.attempt, &files).await?;
    for file in needed(&manifest) {
        let attempt = stored.get(&file.name).copied().unwrap_or(wanted.attempt);
        manifest.files.insert(file.name, attempt);
    }
    Ok((manifest, bytes_new))
}

async fn taken(means: &Means, wanted: &Wanted, stored: &BTreeMap<String, Attempt>) -> Result<(Manifest, Vec<Needed>, Pins), Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (decisions, dirs, wanted, stored) = (means.decisions.clone(), means.dirs.clone(), wanted.clone(), stored.clone());
        let attempted = blocking(move || {
            let job = &wanted.job;
            let cut = decisions.cut(job)?.ok_or_else(|| Error::new(Class::User, format!("job {job}: nothing is decided here")))?;
            let manifest = manifest_of(cut, &wanted)?;
            let files: Vec<Needed> = needed(&manifest).into_iter().filter(|file| !stored.contains_key(&file.name)).collect();
            Ok(Pins::take(&dirs, &files).map(|pins| (manifest, files, pins)))
        });
        match attempted.await? {
            Ok(taken) => return Ok(taken),
            Err(error) if tries >= TRIES_MAX => return Err(error),
            Err(_) => {}
        }
    }
}

/// The manifest of what is decided, without the places of its files.
fn manifest_of(cut: Cut, wanted: &Wanted) -> Result<Manifest, Error> {
    let Cut { record, regions, results } = cut;
    let job = &wanted.job;
    if record.attempt != wanted.attempt {
        let message = format!("job {job}: attempt {} may not make a checkpoint any more, {} was opened", wanted.attempt, record.attempt);
        return Err(Error::new(Class::Fenced, message));
    }
    let missing = record.planned.regions.len().saturating_sub(regions.len());
    if missing > 0 {
        let message = format!("job {job}: {missing} of its {} regions have decided nothing yet", record.planned.regions.len());
        return Err(Error::new(Class::Retry, message));
    }
    Ok(Manifest {
        manifest_version: MANIFEST_VERSION,
        state_format: STATE_FORMAT_VERSION,
        key_encoding: KEY_ENCODING_VERSION,
        id: CheckpointId::default(),
        kind: wanted.kind,
        job: job.clone(),
        version: record.version,
        attempt: record.attempt,
        created_at_ms: wanted.started_at_ms,
        planned: record.planned,
        cuts: regions,
        results,
        files: BTreeMap::new(),
    })
}

async fn tell(
    means: &Means,
    wanted: &Wanted,
    result: Result<&Manifest, &Error>,
    bytes_new: u64,
    until: Instant,
) -> Result<Option<Sealed>, Error> {
    loop {
        let done = CheckpointDone {
            session: String::new(),
            job: wanted.job.clone(),
            attempt: wanted.attempt,
            id: wanted.id,
            kind: wanted.kind,
            started_at_ms: wanted.started_at_ms,
            align_ms: wanted.align_ms,
            bytes_new,
            result: result.cloned().map_err(Error::to_failure),
        };
        let (reply, answer) = oneshot::channel();
        let away = || Error::new(Class::Retry, format!("checkpoint of job {}: the hub did not answer", wanted.job));
        let asked = async {
            means.asks.send_async(Ask { done, reply }).await.map_err(|_| away())?;
            answer.await.map_err(|_| away())
        };
        match tokio::time::timeout_at(until, asked).await {
            Ok(Ok(answer)) => return answer,
            // Told again it is the same checkpoint.
            Ok(Err(_)) if Instant::now() + AGAIN < until => tokio::time::sleep(AGAIN).await,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(away()),
        }
    }
}

/// Writes the manifest object, what offline tools read. One that is there must be the same.
pub async fn put_manifest(store: &StateStore, manifest: &Manifest) -> Result<(), Error> {
    let bytes = manifest.encode().map_err(|why| Error::new(Class::Bug, why))?;
    let object = manifest.object();
    match store.put_new(&object, Bytes::from(bytes.clone())).await? {
        Put::Made => Ok(()),
        Put::Exists if store.get(&object).await?.is_some_and(|found| found == bytes) => Ok(()),
        Put::Exists => Err(Error::new(Class::Corrupt, format!("state store {}: {object} is there with another content", store.url()))),
    }
}
