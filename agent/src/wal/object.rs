//! A log in the state store: objects below `jobs/<job>/wal/<task>`, named by a running number.
//!
//! An object holds the frames of some entries, one after the other, or is the claim of an attempt. Each is made only if absent,
//! so the log is one line of objects on which all writers agree: an attempt begins by claiming the next number, and an older
//! one that still writes finds that number taken and is fenced, before it has confirmed a record that nobody will read.
//! Claims of the last [`CLAIMS_KEPT`] attempts stay, so that a number is not free again for whoever slept meanwhile.

use super::{Contents, Found, Frame, Place};
use crate::checkpoint::store::{Put, StateStore};
use crate::error::Error;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::runtime::Handle;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId};

/// A claim: `WEIRWALC`, the attempt, and 16 bytes that no other claim has.
const CLAIM: &[u8; 8] = b"WEIRWALC";
const CLAIM_BYTES: usize = 32;
/// See the module.
const CLAIMS_KEPT: usize = 16;
/// Tries to claim a number while an older attempt still writes.
const CLAIM_TRIES: usize = 8;

/// Objects with entries, and the number after their last record.
type Ends = Arc<Mutex<Vec<(u64, u64)>>>;

/// The log of one source task.
pub struct ObjectLog {
    store: StateStore,
    dir: String,
    runtime: Handle,
    next: u64,
    ends: Ends,
}

/// An object to be read.
#[derive(Clone)]
pub struct Part {
    store: StateStore,
    dir: String,
    number: u64,
    runtime: Handle,
    ends: Ends,
}

fn name(dir: &str, number: u64) -> String {
    format!("{dir}/{number:020}")
}

fn fenced(dir: &str, by: Option<u64>) -> Error {
    let by = by.map_or_else(|| "another attempt".to_owned(), |by| format!("attempt {by}"));
    Error::new(Class::Fenced, format!("input log {dir}: {by} has taken it over"))
}

/// The attempt of a claim.
fn claimed_by(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == CLAIM_BYTES && bytes.starts_with(CLAIM)).then(|| bytes.get(8..16)?.try_into().ok().map(u64::from_le_bytes)).flatten()
}

impl ObjectLog {
    /// Claims the log of a task. Blocks.
    ///
    /// Errors: `User` without a state store; `Fenced` when a newer attempt has it; `Retry` when the store cannot be asked.
    pub fn open(path: Option<&str>, place: &Place, task: &str, runtime: &Handle) -> Result<(Self, Found), Error> {
        let Some(store) = place.store.clone() else {
            let message = "durability.backend is object_store, but this agent has no state store; start it with --state-url";
            return Err(Error::new(Class::User, message));
        };
        let job = place.dir.parent().and_then(|job| job.file_name()).and_then(|job| job.to_str()).unwrap_or_default();
        let dir = match path {
            Some(path) => format!("jobs/{job}/wal/{path}/{task}"),
            None => format!("jobs/{job}/wal/{task}"),
        };
        let attempt = place.attempt.get();
        let mut claim = Vec::with_capacity(CLAIM_BYTES);
        claim.extend_from_slice(CLAIM);
        claim.extend_from_slice(&attempt.to_le_bytes());
        claim.extend_from_slice(uuid::Uuid::new_v4().as_bytes());
        let claim = Bytes::from(claim);
        for _ in 0..CLAIM_TRIES {
            let listed = runtime.block_on(store.list(&dir))?;
            let mut objects: Vec<(u64, u64)> = listed
                .iter()
                .filter_map(|(name, bytes)| Some((name.strip_prefix(&format!("{dir}/"))?.parse::<u64>().ok()?, *bytes)))
                .collect();
            objects.sort_unstable();
            let next = objects.last().map_or(0, |(number, _)| number + 1);
            if runtime.block_on(store.put_new(&name(&dir, next), claim.clone()))? == Put::Exists
                && runtime.block_on(store.get(&name(&dir, next)))?.as_ref() != Some(&claim)
            {
                continue;
            }
            let log = ObjectLog { store, dir, runtime: runtime.clone(), next: next + 1, ends: Ends::default() };
            let found = log.look(&objects, place)?;
            return Ok((log, found));
        }
        Err(Error::new(Class::Retry, format!("input log {dir} is still written by another attempt")))
    }

    /// Looks through what was there before the claim.
    fn look(&self, objects: &[(u64, u64)], place: &Place) -> Result<Found, Error> {
        let attempt = place.attempt.get();
        let (claims, entries): (Vec<u64>, Vec<u64>) = {
            let (claims, entries): (Vec<_>, Vec<_>) = objects.iter().partition(|(_, bytes)| *bytes == CLAIM_BYTES as u64);
            (claims.iter().map(|(number, _)| *number).collect(), entries.iter().map(|(number, _)| *number).collect())
        };
        let mut last_by = None;
        if let Some(last) = claims.last() {
            last_by = self.runtime.block_on(self.store.get(&name(&self.dir, *last)))?.as_deref().and_then(claimed_by);
            if let Some(by) = last_by.filter(|by| *by > attempt) {
                return Err(fenced(&self.dir, Some(by)));
            }
        }
        if place.empty && last_by != Some(attempt) {
            // Now, since the next attempt of this job would take them for its own.
            self.runtime.block_on(self.store.delete(entries.iter().map(|number| name(&self.dir, *number)).collect()))?;
            return Ok(Found { end: 0, new: false, parts: Vec::new() });
        }
        let old = claims.len().saturating_sub(CLAIMS_KEPT);
        let old: Vec<String> = claims.iter().take(old).map(|number| name(&self.dir, *number)).collect();
        if let Err(error) = self.runtime.block_on(self.store.delete(old)) {
            tracing::warn!(error = %error.to_failure().message, "old claims of an input log could not be deleted");
        }
        let part = |number: u64| Part {
            store: self.store.clone(),
            dir: self.dir.clone(),
            number,
            runtime: self.runtime.clone(),
            ends: self.ends.clone(),
        };
        let parts: Vec<Part> = entries.into_iter().map(part).collect();
        let mut end = 0;
        // An object that is damaged whole tells nothing, so the one before it is asked.
        for last in parts.iter().rev() {
            if let Some(frame) = last.frames()?.0.last() {
                end = frame.end();
                break;
            }
        }
        Ok(Found { end, new: objects.is_empty(), parts: parts.into_iter().map(super::Part::Object).collect() })
    }

    /// Writes entries as one object.
    ///
    /// Errors: `Fenced` when another attempt has claimed the log; else those of the store. The same entries may be given again.
    pub fn append(&mut self, frames: &[Frame]) -> Result<(), Error> {
        let Some(end) = frames.last().map(Frame::end) else { return Ok(()) };
        let body = Bytes::from(frames.iter().map(Frame::bytes).collect::<Vec<_>>().concat());
        let name = name(&self.dir, self.next);
        if self.runtime.block_on(self.store.put_new(&name, body.clone()))? == Put::Exists {
            // An earlier try may have come through, though it was told that it did not.
            let found = self.runtime.block_on(self.store.get(&name))?;
            if found.as_ref() != Some(&body) {
                return Err(fenced(&self.dir, found.as_deref().and_then(claimed_by)));
            }
        }
        self.ends.lock().push((self.next, end));
        self.next += 1;
        Ok(())
    }

    /// Deletes the objects whose records are all below `passed`, but for the last one, which says how far the log went.
    pub fn trim(&mut self, passed: u64) {
        let gone: Vec<u64> = {
            let ends = self.ends.lock();
            let last = ends.iter().map(|(number, _)| *number).max();
            ends.iter().filter(|(number, end)| *end <= passed && Some(*number) != last).map(|(number, _)| *number).collect()
        };
        if gone.is_empty() {
            return;
        }
        let names = gone.iter().map(|number| name(&self.dir, *number)).collect();
        match self.runtime.block_on(self.store.delete(names)) {
            Ok(()) => self.ends.lock().retain(|(number, _)| !gone.contains(number)),
            Err(error) => {
                tracing::warn!(error = %error.to_failure().message, "objects of an input log could not be deleted and are tried again");
            }
        }
    }
}

/// Deletes what the logs of a job hold that is gone, up to this attempt: a later job of that name has claimed what follows.
///
/// Errors: as the store's.
pub async fn forget(store: &StateStore, job: &JobId, attempt: Attempt) -> Result<(), Error> {
    let mut objects = store.list(&format!("jobs/{job}/wal")).await?;
    objects.sort();
    let (mut gone, mut taken) = (Vec::new(), None);
    for (object, bytes) in objects {
        let dir = object.rsplit_once('/').map_or_else(String::new, |(dir, _)| dir.to_owned());
        if taken.as_ref() == Some(&dir) {
            continue;
        }
        if bytes == CLAIM_BYTES as u64 && store.get(&object).await?.as_deref().and_then(claimed_by).is_some_and(|by| by > attempt.get()) {
            taken = Some(dir);
            continue;
        }
        gone.push(object);
    }
    store.delete(gone).await
}

impl Part {
    /// The entries that verify, and whether there is anything else in the object.
    fn frames(&self) -> Result<(Vec<Frame>, bool), Error> {
        let name = name(&self.dir, self.number);
        let Some(bytes) = self.runtime.block_on(self.store.get(&name))? else {
            return Err(Error::new(Class::Retry, format!("object {name} of an input log was listed and is not there")));
        };
        let (frames, damaged) = Frame::all_in(&bytes);
        let whole = frames.iter().map(|frame| frame.bytes().len()).sum::<usize>() == bytes.len();
        Ok((frames, damaged || !whole))
    }

    /// The entries that verify.
    ///
    /// Errors: `Retry` when the store cannot be asked.
    pub fn read(&self) -> Result<Contents, Error> {
        let (frames, damaged) = self.frames()?;
        self.ends.lock().push((self.number, frames.last().map_or(0, Frame::end)));
        let damage = damaged
            .then(|| format!("object {} of the input log is damaged: not all of its records can be read", name(&self.dir, self.number)));
        Ok(Contents { frames, damage })
    }
}
