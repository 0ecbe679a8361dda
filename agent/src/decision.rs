//! What is decided on this agent: one redb file of epochs, positions, the segment index and the
//! result index. Whoever decides goes through one committer thread (KER-8), which puts the
//! decisions of many regions into one durable transaction.

mod commit;
mod kept;
mod record;
mod redeal;
mod retain;

pub use commit::{Decided, Decision, Opened, fitting};
pub use kept::KeptSpec;
pub use record::JobRecord;
pub use retain::{Replacement, Retention, merge_candidates};
pub use weir_planner::manifest::{RegionCut, positions_of};

use crate::error::Error;
use crate::segment;
use commit::{Committer, Request};
use parking_lot::RwLock;
use record::{decode, encode};
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId, RegionId};
use weir_planner::protocol::Restore;

/// `store_id` and `version`.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Job to [`JobRecord`].
const JOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("jobs");
/// Job and region to [`RegionCut`].
const REGIONS: TableDefinition<(&str, u32), &[u8]> = TableDefinition::new("regions");
/// Job to its result files, oldest first.
const RESULTS: TableDefinition<&str, &[u8]> = TableDefinition::new("results");
/// Job to [`KeptSpec`], where no hub keeps it.
const SPECS: TableDefinition<&str, &[u8]> = TableDefinition::new("specs");

/// Version of tables and records.
const STORE_VERSION: u32 = 1;

/// How the file is opened, the first time and after a failed write.
type Opener = Box<dyn Fn(&Path) -> Result<Database, Error> + Send + Sync>;

/// The file, shared by the committer and readers. `None` once it is closed, and while it could not
/// be opened again after a failed write: redb refuses everything after one, so the committer opens
/// it anew.
struct Store {
    path: PathBuf,
    open: Opener,
    db: RwLock<Option<Database>>,
}

/// The decisions of this agent. Cheap to clone.
#[derive(Clone)]
pub struct Decisions {
    store: Arc<Store>,
    store_id: String,
    committer: Arc<Committer>,
}

fn storage(store: &Path, source: impl Into<redb::Error>) -> Error {
    let source: redb::Error = source.into();
    let class = match source {
        redb::Error::Corrupted(_) | redb::Error::UpgradeRequired(_) => Class::Corrupt,
        // A page past the end: the file is shorter than it says.
        redb::Error::Io(ref e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => Class::Corrupt,
        _ => Class::Retry,
    };
    Error::because(class, format!("decision store {}", store.display()), source)
}

fn open_database(path: &Path) -> Result<Database, Error> {
    if !path.exists() {
        make(path)?;
    }
    open_or_make(path)
}

/// Makes an empty store under a name that nobody opens and moves it into place: redb makes a file in
/// several steps, and refuses for ever one whose making was cut off by a kill.
fn make(path: &Path) -> Result<(), Error> {
    let disk = |e: std::io::Error| Error::because(Class::Retry, format!("decision store {}", path.display()), e);
    let unfinished = path.with_extension("redb.new");
    match std::fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(disk(e)),
    }
    drop(open_or_make(&unfinished)?);
    std::fs::rename(&unfinished, path).map_err(disk)?;
    path.parent().map_or(Ok(()), segment::sync_dir)
}

/// How every open reads the file: once and whole, since a plain one believes a damaged page, or panics at it (B4). The file is
/// small, a few records a job.
fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_check_integrity_on_open(true);
    builder
}

fn open_or_make(path: &Path) -> Result<Database, Error> {
    builder().create(path).map_err(|e| match e {
        DatabaseError::DatabaseAlreadyOpen => Error::new(
            Class::User,
            format!("{} is in use by another process; give this one another --data-dir or stop the other", path.display()),
        ),
        other => storage(path, other),
    })
}

fn has_entries(dir: &Path) -> Result<bool, Error> {
    let mut entries = std::fs::read_dir(dir).map_err(|e| Error::because(Class::Retry, format!("directory {}", dir.display()), e))?;
    Ok(entries.next().is_some())
}

impl Store {
    /// Runs `read` on a snapshot of the decided state.
    fn read<T>(&self, read: impl FnOnce(&redb::ReadTransaction) -> Result<T, Error>) -> Result<T, Error> {
        let guard = self.db.read();
        let db = guard.as_ref().ok_or_else(|| Error::new(Class::Retry, format!("decision store {} is closed", self.path.display())))?;
        let transaction = db.begin_read().map_err(|e| storage(&self.path, e))?;
        read(&transaction)
    }

    /// Makes tables and store id on the first open, and checks the version on every other.
    ///
    /// Errors: `Corrupt` when `jobs` holds files that a new store would not know of.
    fn prepare(&self, jobs: &Path) -> Result<String, Error> {
        let guard = self.db.read();
        let Some(db) = guard.as_ref() else { return Err(Error::new(Class::Bug, "the decision store was prepared before it was opened")) };
        let err = |e: redb::Error| storage(&self.path, e);
        let mut write = db.begin_write().map_err(|e| err(e.into()))?;
        write.set_durability(redb::Durability::Immediate).map_err(|e| err(e.into()))?;
        write.set_quick_repair(true);
        let id = {
            let mut meta = write.open_table(META).map_err(|e| err(e.into()))?;
            write.open_table(JOBS).map_err(|e| err(e.into()))?;
            write.open_table(REGIONS).map_err(|e| err(e.into()))?;
            write.open_table(RESULTS).map_err(|e| err(e.into()))?;
            write.open_table(SPECS).map_err(|e| err(e.into()))?;
            let version = meta.get("version").map_err(|e| err(e.into()))?.map(|v| v.value().to_vec());
            match version {
                None if has_entries(jobs)? => {
                    let message = format!(
                        "{} holds state of jobs, but decision store {} is missing or empty, so nothing says what of it counts: bring the store back, or move the whole data directory away to begin empty",
                        jobs.display(),
                        self.path.display()
                    );
                    return Err(Error::new(Class::Corrupt, message));
                }
                None => {
                    let id = uuid::Uuid::new_v4().to_string();
                    meta.insert("version", STORE_VERSION.to_le_bytes().as_slice()).map_err(|e| err(e.into()))?;
                    meta.insert("store_id", id.as_bytes()).map_err(|e| err(e.into()))?;
                    id
                }
                Some(version) if version == STORE_VERSION.to_le_bytes() => {
                    let id = meta.get("store_id").map_err(|e| err(e.into()))?.and_then(|v| String::from_utf8(v.value().to_vec()).ok());
                    id.ok_or_else(|| Error::new(Class::Corrupt, format!("decision store {} has no store id", self.path.display())))?
                }
                Some(_) => {
                    let message = format!(
                        "decision store {} was written by another version of weir; start that one, or use another --data-dir",
                        self.path.display()
                    );
                    return Err(Error::new(Class::Corrupt, message));
                }
            }
        };
        write.commit().map_err(|e| err(e.into()))?;
        Ok(id)
    }
}

/// What is decided of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Who acted last, and what the cuts consist of.
    pub record: JobRecord,
    /// By region; a region that has decided nothing is not there.
    pub regions: BTreeMap<RegionId, RegionCut>,
    /// Result files, oldest first.
    pub results: Vec<ResultFile>,
}

impl Decisions {
    /// Opens or makes `agent.redb` in `data_dir` and starts the committer thread.
    ///
    /// Errors: `User` when another process has it open, `Corrupt` when it does not verify or is gone
    /// while state of jobs is there, `Retry` for I/O.
    pub fn open(data_dir: &Path) -> Result<Decisions, Error> {
        Decisions::open_by(data_dir, Box::new(open_database))
    }

    /// Like [`Decisions::open`], over whatever `open` gives.
    fn open_by(data_dir: &Path, open: Opener) -> Result<Decisions, Error> {
        let io = |e| Error::because(Class::Retry, format!("data directory {}", data_dir.display()), e);
        let jobs = data_dir.join("jobs");
        segment::make_dir(data_dir).and_then(|()| segment::make_dir(&jobs)).map_err(io)?;
        let path = data_dir.join("agent.redb");
        let db = open(&path)?;
        let store = Arc::new(Store { path, open, db: RwLock::new(Some(db)) });
        let store_id = store.prepare(&jobs)?;
        let committer = Committer::start(store.clone(), store_id.clone())?;
        Ok(Decisions { store, store_id, committer: Arc::new(committer) })
    }

    /// Random, made with the store: tells whose cuts these are (EPO-9).
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// Records durably that `attempt` may act on the job, and gives the cut that it begins from.
    /// The same attempt again goes on where it was. Blocks.
    ///
    /// Errors: `Fenced` for an attempt below the last one; `Corrupt` for a cut of another store or
    /// one that must exist and does not (C51); `User` when the plan has other tasks than the cut.
    pub fn open_attempt(&self, job: JobRecord, id: &JobId, restore: Restore) -> Result<Opened, Error> {
        let id = id.clone();
        self.committer.ask(|reply| Request::Open { id, job, restore, reply })
    }

    /// Whether [`Decisions::open_attempt`] would let this plan go on from the job's local cut, without
    /// opening anything. Blocks.
    ///
    /// Errors: `User` for an older version, or for tasks that the cut cannot be given to.
    pub fn check_cut(&self, job: &JobRecord, id: &JobId) -> Result<(), Error> {
        let Some(before) = self.job(id)? else { return Ok(()) };
        commit::fitting(&before, job, self.regions(id)?, id).map(|_| ())
    }

    /// Makes an epoch decided. Durable when it returns. Blocks.
    ///
    /// Errors: `Fenced` when a newer attempt was opened or the job was forgotten; `Retry` when the
    /// disk refuses, and then only the store knows whether the epoch is decided.
    pub fn decide(&self, decision: Decision) -> Result<Decided, Error> {
        self.committer.ask(|reply| Request::Decide { decision: Box::new(decision), reply })
    }

    /// Like [`Decisions::decide`], answered on a channel instead of waiting.
    pub fn decide_later(&self, decision: Decision, reply: impl FnOnce(Result<Decided, Error>) + Send + 'static) {
        self.committer.post(Request::Decide { decision: Box::new(decision), reply: Box::new(reply) });
    }

    /// Removes everything about a job, unless an attempt above `attempt` was opened. Blocks.
    pub fn forget(&self, job: &JobId, attempt: Attempt) -> Result<(), Error> {
        let id = job.clone();
        self.committer.ask(|reply| Request::Forget { id, attempt, reply })
    }

    /// What is recorded of a job.
    pub fn job(&self, job: &JobId) -> Result<Option<JobRecord>, Error> {
        self.store.read(|tx| {
            let table = tx.open_table(JOBS).map_err(|e: TableError| storage(&self.store.path, e))?;
            let value = table.get(job.as_str()).map_err(|e| storage(&self.store.path, e))?;
            value.map(|v| decode(v.value(), "job")).transpose()
        })
    }

    /// The highest attempt of any job.
    pub fn last_attempt(&self) -> Result<Attempt, Error> {
        self.store.read(|tx| {
            let table = tx.open_table(JOBS).map_err(|e: TableError| storage(&self.store.path, e))?;
            let mut last = Attempt::default();
            for entry in table.iter().map_err(|e| storage(&self.store.path, e))? {
                let (_, value) = entry.map_err(|e| storage(&self.store.path, e))?;
                last = last.max(decode::<JobRecord>(value.value(), "job")?.attempt);
            }
            Ok(last)
        })
    }

    /// The decided cut of every region of a job that has one.
    pub fn regions(&self, job: &JobId) -> Result<BTreeMap<RegionId, RegionCut>, Error> {
        self.store.read(|tx| {
            let table = tx.open_table(REGIONS).map_err(|e: TableError| storage(&self.store.path, e))?;
            commit::regions_of(&table, job, &self.store.path)
        })
    }

    /// All that is decided of a job, of one moment; `None` when it is not known here.
    pub fn cut(&self, job: &JobId) -> Result<Option<Cut>, Error> {
        let path = &self.store.path;
        self.store.read(|tx| {
            let jobs = tx.open_table(JOBS).map_err(|e: TableError| storage(path, e))?;
            let Some(value) = jobs.get(job.as_str()).map_err(|e| storage(path, e))? else { return Ok(None) };
            let record = decode(value.value(), "job")?;
            let regions = tx.open_table(REGIONS).map_err(|e: TableError| storage(path, e))?;
            let results = tx.open_table(RESULTS).map_err(|e: TableError| storage(path, e))?;
            Ok(Some(Cut { record, regions: commit::regions_of(&regions, job, path)?, results: commit::results_of(&results, job, path)? }))
        })
    }

    /// Puts the cuts and results of a checkpoint in the place of all that the job had here, as what `attempt` begins from. Blocks.
    ///
    /// Errors: `Fenced` when a newer attempt was opened; `Retry` when the disk refuses.
    pub fn adopt(
        &self,
        job: &JobId,
        attempt: Attempt,
        regions: BTreeMap<RegionId, RegionCut>,
        results: Vec<ResultFile>,
    ) -> Result<(), Error> {
        let id = job.clone();
        self.committer.ask(|reply| Request::Adopt { id, attempt, regions, results, reply })
    }

    /// The decided result files of a job, oldest first.
    pub fn results(&self, job: &JobId) -> Result<Vec<ResultFile>, Error> {
        self.store.read(|tx| {
            let table = tx.open_table(RESULTS).map_err(|e: TableError| storage(&self.store.path, e))?;
            commit::results_of(&table, job, &self.store.path)
        })
    }

    /// Ends the committer after what was asked of it and lets go of the file. Idempotent; later
    /// calls are refused.
    pub fn close(&self) {
        self.committer.stop();
        *self.store.db.write() = None;
    }
}

#[cfg(test)]
pub use retain::SMALL_FILES_MAX;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod tests;
