//! The decision store on a disk that refuses: every write, growth and sync of a decision fails once,
//! and a disk that stays full for a while.

use super::tests::{attempt, decision, file, job, local, record};
use super::{Decisions, storage};
use parking_lot::Mutex;
use redb::{Database, StorageBackend};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::id::RegionId;
use weir_planner::protocol::Restore;

/// Bytes that outlive the databases over them, and when they refuse.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    /// Changes since the last look.
    changes: u64,
    /// The change of this number is refused, half of it done.
    refuse_at: Option<u64>,
    /// Every change is refused.
    full: bool,
}

impl Disk {
    /// Counts a change; false when it is refused.
    fn admits(&mut self) -> bool {
        self.changes += 1;
        !self.full && self.refuse_at != Some(self.changes)
    }
}

#[derive(Clone, Debug, Default)]
struct Faulty(Arc<Mutex<Disk>>);

fn refused() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::StorageFull, "no space left on the test's disk")
}

impl StorageBackend for Faulty {
    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        let disk = self.0.lock();
        let from = offset as usize;
        let found = disk.bytes.get(from..from + out.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        let mut disk = self.0.lock();
        if !disk.admits() {
            return Err(refused());
        }
        disk.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        if self.0.lock().admits() { Ok(()) } else { Err(refused()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        let mut disk = self.0.lock();
        let whole = disk.admits();
        let (from, done) = (offset as usize, if whole { data.len() } else { data.len() / 2 });
        disk.bytes[from..from + done].copy_from_slice(&data[..done]);
        if whole { Ok(()) } else { Err(refused()) }
    }
}

impl Faulty {
    fn store(&self, dir: &Path) -> Decisions {
        let disk = self.clone();
        let open = move |path: &Path| Database::builder().create_with_backend(disk.clone()).map_err(|e| storage(path, e));
        Decisions::open_by(dir, Box::new(open)).unwrap()
    }

    /// What a process that is killed now would find.
    fn crashed(&self, dir: &Path) -> Decisions {
        let bytes = self.0.lock().bytes.clone();
        Faulty(Arc::new(Mutex::new(Disk { bytes, ..Disk::default() }))).store(dir)
    }
}

/// What epoch `sequence` leaves: its cut, and one result file for each epoch up to it.
fn seen(store: &Decisions) -> (u64, Vec<ResultFile>) {
    let regions = store.regions(&job()).unwrap();
    let sequence = regions[&RegionId::new(0)].epoch.sequence;
    assert_eq!(regions, BTreeMap::from([(RegionId::new(0), record(1, sequence))]), "a torn cut");
    (sequence, store.results(&job()).unwrap())
}

fn results(sequences: &[u64]) -> Vec<ResultFile> {
    sequences.iter().map(|s| file(&s.to_string(), 1)).collect()
}

/// A store with epoch 1 decided, and a decision of epoch 2 with its result.
fn begun(dir: &Path) -> (Faulty, Decisions) {
    let disk = Faulty::default();
    let store = disk.store(dir);
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    store.decide(decision(1, 1, results(&[1]))).unwrap();
    disk.0.lock().changes = 0;
    (disk, store)
}

/// EPO-4, C2, A6: whatever change of a decision the disk refuses, the decision is not claimed, the
/// store holds the old cut or the new one whole, here and after a crash, and decides again.
#[test]
fn a_refused_write_claims_nothing_and_the_next_decision_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, store) = begun(dir.path());
    store.decide(decision(1, 2, results(&[2]))).unwrap();
    let changes = disk.0.lock().changes;
    assert!(changes >= 4, "two phases write and sync: {changes}");
    drop(store);
    let mut kept = 0;
    for refuse_at in 1..=changes {
        let (disk, store) = begun(dir.path());
        disk.0.lock().refuse_at = Some(refuse_at);
        let error = store.decide(decision(1, 2, results(&[2]))).unwrap_err();
        assert_eq!(error.class, Class::Retry, "change {refuse_at}: {error}");
        assert!(error.message.contains("agent.redb"), "change {refuse_at}: {error}");
        let (sequence, found) = seen(&store);
        match sequence {
            1 => assert_eq!(found, results(&[1]), "change {refuse_at}"),
            // Refused after the record was whole: durable, though not claimed.
            2 => assert_eq!(found, results(&[1, 2]), "change {refuse_at}"),
            other => panic!("change {refuse_at}: epoch {other}"),
        }
        kept += u64::from(sequence == 1);
        assert_eq!(seen(&disk.crashed(dir.path())), (sequence, found), "change {refuse_at}: a crash finds what readers saw");
        // The attempt that was refused ends; the next one begins from what the store holds.
        store.open_attempt(attempt(1), &job(), local(&store, true)).unwrap();
        store.decide(decision(1, 3, results(&[3]))).unwrap();
        let wanted = if sequence == 1 { results(&[1, 3]) } else { results(&[1, 2, 3]) };
        assert_eq!(seen(&store), (3, wanted.clone()), "change {refuse_at}");
        store.close();
        assert_eq!(seen(&disk.crashed(dir.path())), (3, wanted), "change {refuse_at}");
    }
    assert!(kept >= changes - 2, "all but the last phase leave the old cut: {kept} of {changes}");
}

/// A6: a disk that stays full refuses every decision with its reason; with room again the same
/// store goes on, nothing decided is lost.
#[test]
fn a_full_disk_refuses_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, store) = begun(dir.path());
    disk.0.lock().full = true;
    for _ in 0..3 {
        let error = store.decide(decision(1, 2, results(&[2]))).unwrap_err();
        assert_eq!(error.class, Class::Retry);
        assert!(error.to_failure().message.contains("no space left"), "{}", error.to_failure().message);
    }
    disk.0.lock().full = false;
    store.decide(decision(1, 2, results(&[2]))).unwrap();
    assert_eq!(seen(&store), (2, results(&[1, 2])));
    assert_eq!(seen(&disk.crashed(dir.path())), (2, results(&[1, 2])));
}
