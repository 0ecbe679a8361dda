//! Brings the files of a checkpoint back to this machine.

use super::store::StateStore;
use super::upload::{Needed, needed};
use crate::error::Error;
use crate::region::{JobDirs, blocking};
use crate::segment::{put_file, sync_dir};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::path::Path;
use weir_planner::error::Class;
use weir_planner::manifest::{Manifest, file_object};

/// Files that are fetched at once.
const AT_ONCE: usize = 4;

/// The bytes of a file of a checkpoint, verified by their number and by the hash in its name.
///
/// Errors: `Corrupt` for one that is missing or does not match, naming it; as the store's otherwise.
pub async fn object(store: &StateStore, manifest: &Manifest, file: &Needed) -> Result<Bytes, Error> {
    let attempt = manifest.files.get(&file.name);
    let attempt = attempt.ok_or_else(|| Error::new(Class::Corrupt, format!("the manifest does not say where {} is", file.name)))?;
    let object = file_object(&manifest.job, *attempt, &file.name);
    let wrong = |why: &str| Error::new(Class::Corrupt, format!("state store {}: {object} {why}", store.url()));
    let bytes = store.get(&object).await?.ok_or_else(|| wrong("is missing"))?;
    if file.matches(&bytes) {
        Ok(bytes)
    } else {
        Err(wrong(&format!("does not match its checksum ({} bytes, {} expected)", bytes.len(), file.bytes)))
    }
}

/// Fetches every file of a checkpoint that is not here whole, each verified by its length and by the hash in its name.
/// All are durable when this returns.
///
/// Errors: `Corrupt` for an object that is missing or does not match; as the store's otherwise.
pub async fn fetch(store: &StateStore, manifest: &Manifest, dirs: &JobDirs) -> Result<(), Error> {
    let one = |file: Needed| async move {
        let path = file.path(dirs);
        let (here, wanted) = (path.clone(), file.clone());
        let whole = blocking(move || Ok(std::fs::read(&here).is_ok_and(|bytes| wanted.matches(&bytes)))).await?;
        if whole {
            return Ok(());
        }
        let bytes = object(store, manifest, &file).await?;
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        blocking(move || put_file(&dir, &file.name, &bytes)).await
    };
    stream::iter(needed(manifest)).map(one).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let dirs = dirs.clone();
    blocking(move || sync_dir(&dirs.state).and_then(|()| sync_dir(&dirs.results))).await
}
