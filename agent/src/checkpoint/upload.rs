//! What a checkpoint needs in the state store, and what may go from there.

use super::round::put_manifest;
use super::store::StateStore;
use crate::error::Error;
use crate::region::{JobDirs, blocking};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, CheckpointId, JobId};
use weir_planner::manifest::{Manifest, file_object};
use xxhash_rust::xxh3::xxh3_128;

/// Files that are uploaded at once.
const AT_ONCE: usize = 2;

/// A file of a job that cuts or results name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its name, which begins with the hash of its content.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// A result file and not a segment.
    pub is_result: bool,
}

impl Needed {
    /// Where it is on this machine.
    pub fn path(&self, dirs: &JobDirs) -> PathBuf {
        if self.is_result { dirs.results.join(&self.name) } else { dirs.state.join(&self.name) }
    }

    /// Whether these are its bytes, by their number and by the hash in its name.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.bytes && self.name.starts_with(&format!("{:032x}", xxh3_128(bytes)))
    }
}

/// Every file that a manifest's cuts and results name, each once.
pub fn needed(manifest: &Manifest) -> Vec<Needed> {
    let segments = manifest.cuts.values().flat_map(|cut| &cut.segments).flat_map(|task| &task.segments);
    let segments =
        segments.map(|segment| (segment.name.clone(), Needed { name: segment.name.clone(), bytes: segment.bytes, is_result: false }));
    let results =
        manifest.results.iter().map(|file| (file.name.clone(), Needed { name: file.name.clone(), bytes: file.bytes, is_result: true }));
    segments.chain(results).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Hard links to files, so that a merge which deletes them does not break an upload.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
}

impl Pins {
    /// Links these files into a directory of their own. Blocks.
    ///
    /// Errors: `Retry` for a file that is not there any more, since a newer decision names others.
    pub fn take(dirs: &JobDirs, files: &[Needed]) -> Result<Pins, Error> {
        let pins = Pins { dir: dirs.job.join("upload") };
        pins.remove();
        let failed = |path: &Path, e| Error::because(Class::Retry, format!("link {} for its upload", path.display()), e);
        std::fs::create_dir_all(&pins.dir).map_err(|e| failed(&pins.dir, e))?;
        for file in files {
            let path = file.path(dirs);
            std::fs::hard_link(&path, pins.dir.join(&file.name)).map_err(|e| failed(&path, e))?;
        }
        Ok(pins)
    }

    fn remove(&self) {
        // What stays is taken away by the next upload, or with the job.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Uploads pinned files as those of `attempt`; each is in the store, with its length, when this returns. Gives the bytes uploaded.
///
/// Errors: `Retry` when disk or store refuse; `User` where access is denied.
pub async fn upload(store: &StateStore, pins: &Pins, job: &JobId, attempt: Attempt, files: &[Needed]) -> Result<u64, Error> {
    let one = |file: Needed| async move {
        let object = file_object(job, attempt, &file.name);
        if store.length(&object).await? == Some(file.bytes) {
            // Uploaded by a round that failed later. Its name says what it holds.
            return Ok(0);
        }
        let path = pins.dir.join(&file.name);
        let read = blocking(move || std::fs::read(&path).map_err(|e| Error::because(Class::Retry, format!("read {}", path.display()), e)));
        let bytes = Bytes::from(read.await?);
        // What has been damaged here must not be sealed: every later checkpoint would rest on it.
        if !file.matches(&bytes) {
            let message = format!("file {} is not uploaded: its {} bytes do not match its checksum", file.name, bytes.len());
            return Err(Error::new(Class::Corrupt, message));
        }
        store.put(&object, bytes).await?;
        match store.length(&object).await? {
            Some(length) if length == file.bytes => Ok(file.bytes),
            found => {
                let message = format!("state store {}: {object} has length {found:?} after it was put, not {}", store.url(), file.bytes);
                Err(Error::new(Class::Retry, message))
            }
        }
    };
    stream::iter(files.to_vec()).map(one).buffer_unordered(AT_ONCE).try_fold(0, |sum, bytes| async move { Ok(sum + bytes) }).await
}

/// Which manifests a sweep may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Those up to this one, which was just sealed: later ones are not known here.
    UpTo(CheckpointId),
    /// All that are not retained: the job is gone.
    All,
}

/// Which of the listed objects of a job no retained checkpoint needs any more. Those of an attempt above `attempt` are its
/// successor's and stay, whatever is known here.
pub fn sweepable(
    listed: &[String],
    job: &JobId,
    attempt: Attempt,
    needed: &BTreeSet<String>,
    retained: &BTreeSet<CheckpointId>,
    reach: Sweep,
) -> Vec<String> {
    let files = format!("jobs/{job}/files/");
    let manifests = format!("jobs/{job}/checkpoints/");
    let goes = |object: &&String| {
        if let Some(rest) = object.strip_prefix(&files) {
            let of = rest.split_once('/').and_then(|(of, _)| of.parse().ok()).map(Attempt::new);
            of.is_some_and(|of| of <= attempt) && !needed.contains(*object)
        } else if let Some(rest) = object.strip_prefix(&manifests) {
            let id = rest.strip_suffix(".json").and_then(|id| id.parse().ok()).map(CheckpointId::new);
            let reached = |id: CheckpointId| match reach {
                Sweep::UpTo(newest) => id <= newest,
                Sweep::All => true,
            };
            id.is_some_and(|id| reached(id) && !retained.contains(&id))
        } else {
            false
        }
    };
    listed.iter().filter(goes).cloned().collect()
}

/// Deletes what [`sweepable`] says, and writes manifests of what is retained that are not there. Called only right after a seal, so
/// that what is retained is known.
///
/// Errors: as the store's.
pub async fn sweep(store: &StateStore, job: &JobId, attempt: Attempt, reach: Sweep, retained: &[Manifest]) -> Result<usize, Error> {
    let needed = retained.iter().flat_map(Manifest::objects).collect();
    let ids: BTreeSet<CheckpointId> = retained.iter().map(|manifest| manifest.id).collect();
    let listed = store.list(&format!("jobs/{job}")).await?.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    // A crash after the seal may have kept a manifest from being written.
    for manifest in retained.iter().filter(|manifest| !listed.contains(&manifest.object())) {
        put_manifest(store, manifest).await?;
    }
    let gone = sweepable(&listed, job, attempt, &needed, &ids, reach);
    let count = gone.len();
    store.delete(gone).await?;
    let unfinished = store.unfinished(&format!("jobs/{job}")).await?;
    let objects = unfinished.iter().map(|(object, _)| object.clone()).collect::<Vec<_>>();
    let gone: BTreeSet<String> = sweepable(&objects, job, attempt, &needed, &ids, reach).into_iter().collect();
    let files: Vec<PathBuf> = unfinished.into_iter().filter(|(object, _)| gone.contains(object)).map(|(_, file)| file).collect();
    let unfinished = files.len();
    blocking(move || {
        // Best effort: what stays is tried again after the next seal.
        files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        Ok(())
    })
    .await?;
    Ok(count + unfinished)
}

#[cfg(test)]
mod tests;
