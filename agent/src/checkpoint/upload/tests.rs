//! What a sweep takes, and uploads over a store that fails.

use super::{Needed, Pins, Sweep, sweep, sweepable, upload};
use crate::checkpoint::store::StateStore;
use crate::region::JobDirs;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, CheckpointId, JobId};
use weir_planner::manifest::{file_object, manifest_object};

fn job() -> JobId {
    JobId::new("j").unwrap()
}

proptest! {
    /// B6, H1: nothing that a retained checkpoint needs goes, nothing of a later attempt, nothing of another job; the rest does (B5).
    #[test]
    fn a_sweep_takes_what_nothing_needs(
        files in prop::collection::btree_map((0u64..6, 0u32..12), any::<bool>(), 0..40),
        manifests in prop::collection::btree_map(1u64..20, any::<bool>(), 0..12),
        attempt in 0u64..6,
        newest in 1u64..20,
        all in any::<bool>(),
    ) {
        let object = |(of, name): (u64, u32)| file_object(&job(), Attempt::new(of), &format!("{name:032x}.seg"));
        let needed: BTreeSet<String> = files.iter().filter(|(_, kept)| **kept).map(|(file, _)| object(*file)).collect();
        let retained: BTreeSet<CheckpointId> = manifests.iter().filter(|(_, kept)| **kept).map(|(id, _)| CheckpointId::new(*id)).collect();
        let other = file_object(&JobId::new("jj").unwrap(), Attempt::new(0), "x.seg");
        let mut listed: Vec<String> = files.keys().map(|file| object(*file)).collect();
        listed.extend(manifests.keys().map(|id| manifest_object(&job(), CheckpointId::new(*id))));
        listed.extend([other.clone(), "jobs/j/files/strange".to_owned(), "jobs/j/wal/1".to_owned()]);
        let reach = if all { Sweep::All } else { Sweep::UpTo(CheckpointId::new(newest)) };
        let gone: BTreeSet<String> = sweepable(&listed, &job(), Attempt::new(attempt), &needed, &retained, reach).into_iter().collect();
        for (file, kept) in &files {
            prop_assert_eq!(gone.contains(&object(*file)), !kept && file.0 <= attempt);
        }
        for (id, kept) in &manifests {
            prop_assert_eq!(gone.contains(&manifest_object(&job(), CheckpointId::new(*id))), !kept && (all || *id <= newest));
        }
        prop_assert!(!gone.contains(&other) && !gone.iter().any(|name| name.contains("strange") || name.contains("wal")));
    }
}

/// B5: what a kill in the middle of a put has left in a directory goes too, though no listing shows it; not that of a later attempt,
/// nor what somebody else may be about.
#[tokio::test]
async fn a_sweep_takes_what_a_kill_left_unfinished() {
    let dir = tempfile::tempdir().unwrap();
    let store = StateStore::at(dir.path()).unwrap();
    let left = ["jobs/j/files/1/a.seg#1", "jobs/j/files/2/b.seg#12", "jobs/j/checkpoints/3.json#1"];
    let kept = ["jobs/j/files/3/c.seg#1", "jobs/j/checkpoints/9.json#1", "jobs/other/files/1/a.seg#1", "jobs/j/wal/it-0/5#1"];
    for name in left.iter().chain(&kept) {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "half").unwrap();
    }
    assert_eq!(sweep(&store, &job(), Attempt::new(2), Sweep::UpTo(CheckpointId::new(4)), &[]).await.unwrap(), left.len());
    let there = |names: &[&str]| names.iter().filter(|name| dir.path().join(name).exists()).count();
    assert_eq!((there(&left), there(&kept)), (0, kept.len()));
}

/// Which step of the store fails next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing is done.
    Before(usize),
    /// It is done, and the answer says that it is not.
    After(usize),
}

/// A store in memory of which one step fails.
#[derive(Debug, Clone)]
struct Faulty {
    inner: Arc<InMemory>,
    fault: Arc<Mutex<(usize, Option<Fault>)>>,
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty")
    }
}

impl Faulty {
    fn broken() -> object_store::Error {
        object_store::Error::Generic { store: "faulty", source: "injected".into() }
    }

    /// Whether this step fails before, and after it is done.
    fn step(&self) -> (bool, bool) {
        let mut fault = self.fault.lock();
        let at = fault.0;
        fault.0 += 1;
        (fault.1 == Some(Fault::Before(at)), fault.1 == Some(Fault::After(at)))
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (before, after) = self.step();
        if before {
            return Err(Faulty::broken());
        }
        let put = self.inner.put_opts(location, payload, options).await;
        if after { Err(Faulty::broken()) } else { put }
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (before, _) = self.step();
        if before { Err(Faulty::broken()) } else { self.inner.get_opts(location, options).await }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A file of the job with this content.
fn segment(dirs: &JobDirs, text: &str) -> Needed {
    let name = format!("{:032x}.seg", xxhash_rust::xxh3::xxh3_128(text.as_bytes()));
    let file = Needed { name, bytes: text.len() as u64, is_result: false };
    std::fs::write(file.path(dirs), text).unwrap();
    file
}

/// B4: a file that was damaged on this machine never gets into a checkpoint.
#[tokio::test]
async fn a_damaged_file_is_not_uploaded() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = JobDirs::of(dir.path(), &job());
    std::fs::create_dir_all(&dirs.state).unwrap();
    let file = segment(&dirs, "abc");
    std::fs::write(file.path(&dirs), "abd").unwrap();
    let store = StateStore::over(Arc::new(InMemory::new()), "memory:///");
    let pins = Pins::take(&dirs, std::slice::from_ref(&file)).unwrap();
    let error = upload(&store, &pins, &job(), Attempt::new(1), std::slice::from_ref(&file)).await.unwrap_err();
    assert!(error.class == Class::Corrupt && error.message.contains(&file.name), "{error}");
    assert_eq!(store.list("jobs/j").await.unwrap(), []);
}

/// B5: whichever step fails, before or after it is done, the upload says so, and the next one completes it.
#[tokio::test]
async fn an_upload_over_a_failing_store_is_whole_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = JobDirs::of(dir.path(), &job());
    std::fs::create_dir_all(&dirs.state).unwrap();
    let files: Vec<Needed> = ["1234", "5678", "9"].map(|text| segment(&dirs, text)).to_vec();
    let steps = 9;
    let mut failed = 0;
    for at in 0..steps {
        for fault in [Fault::Before(at), Fault::After(at)] {
            let faulty = Faulty { inner: Arc::default(), fault: Arc::new(Mutex::new((0, Some(fault)))) };
            let store = StateStore::over(Arc::new(faulty.clone()), "memory:///");
            let pins = Pins::take(&dirs, &files).unwrap();
            let first = upload(&store, &pins, &job(), Attempt::new(1), &files).await;
            if let Err(error) = &first {
                failed += 1;
                assert_eq!(error.class, Class::Retry, "{error}");
            }
            faulty.fault.lock().1 = None;
            upload(&store, &pins, &job(), Attempt::new(1), &files).await.unwrap();
            assert_eq!(store.list("jobs/j").await.unwrap().len(), 3, "{fault:?}");
            // What is there already is not uploaded again.
            assert_eq!(upload(&store, &pins, &job(), Attempt::new(1), &files).await.unwrap(), 0);
        }
    }
    assert!(failed >= steps, "{failed} of the steps failed an upload");
    assert!(!dirs.job.join("upload").exists(), "pins go when nobody needs them");
}

/// CKP-3: a file that a merge deletes meanwhile is uploaded all the same; one that is gone before is an error to try again.
#[tokio::test]
async fn pinned_files_outlive_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = JobDirs::of(dir.path(), &job());
    std::fs::create_dir_all(&dirs.state).unwrap();
    let file = segment(&dirs, "abc");
    std::fs::remove_file(file.path(&dirs)).unwrap();
    assert_eq!(Pins::take(&dirs, std::slice::from_ref(&file)).unwrap_err().class, Class::Retry);
    segment(&dirs, "abc");
    let pins = Pins::take(&dirs, std::slice::from_ref(&file)).unwrap();
    std::fs::remove_file(file.path(&dirs)).unwrap();
    let store = StateStore::over(Arc::new(InMemory::new()), "memory:///");
    assert_eq!(upload(&store, &pins, &job(), Attempt::new(1), &[file]).await.unwrap(), 3);
}
