//! The hub's memory on disk: one redb database, one transaction for each batch of changes (HUB-1).
//!
//! Every transaction is durable when it returns and leaves a file that opens without a walk over
//! all of it, so a `kill -9` at any point costs nothing but what was not yet answered.

pub mod agent;
pub mod assignment;
pub mod catalog;
pub mod checkpoint;
pub mod event;
pub mod job;
pub mod meta;
pub mod outbox;
pub mod version;

use crate::error::Error;
use crate::world::{Counters, EventLog, Version, Write};
use parking_lot::Mutex;
use redb::{Database, Durability, ReadableDatabase};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{JobId, JobVersion};

/// Name of the file in the data directory.
pub const FILE: &str = "hub.redb";
/// Bytes of pages kept in memory: everything is read once, at start.
const CACHE_BYTES: usize = 16 << 20;

/// All that was stored.
#[derive(Debug, Default)]
pub struct Stored {
    /// Intents by job.
    pub jobs: Vec<crate::intent::Intent>,
    /// Versions of all jobs.
    pub versions: BTreeMap<(JobId, JobVersion), Version>,
    /// Assignments by job.
    pub assignments: BTreeMap<JobId, crate::world::Assignment>,
    /// Catalog entries.
    pub entries: Vec<crate::hub::CatalogEntry>,
    /// Agents.
    pub agents: Vec<crate::fleet::Agent>,
    /// Commands that are not done.
    pub commands: Vec<crate::outbox::Entry>,
    /// Events by job.
    pub events: BTreeMap<JobId, EventLog>,
    /// Checkpoints.
    pub checkpoints: Vec<crate::checkpoint::Checkpoint>,
    /// Counters.
    pub counters: Option<Counters>,
}

/// Opens the database; called again after an I/O error.
pub(crate) type Opener = Box<dyn Fn() -> Result<Database, redb::Error> + Send + Sync>;

fn open_or_make(path: &Path) -> Result<Database, redb::Error> {
    let mut builder = Database::builder();
    // The file is small, and a damaged one must be refused, not believed.
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder.create(path).map_err(redb::Error::from)
}

/// Makes an empty store under a name that nobody opens and moves it into place: redb makes a file in
/// several steps, and refuses for ever one whose making was cut off by a kill.
fn make(path: &Path) -> Result<(), redb::Error> {
    let unfinished = path.with_extension("redb.new");
    match std::fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    drop(open_or_make(&unfinished)?);
    std::fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(dir) => Ok(std::fs::File::open(dir)?.sync_all()?),
        None => Ok(()),
    }
}

/// The database. Every call blocks: use a blocking thread.
pub struct Store {
    opener: Opener,
    name: String,
    /// `None` after an I/O error, which leaves a database unusable until it is opened again.
    database: Mutex<Option<Database>>,
}

impl Store {
    /// Opens or makes `hub.redb` in `data_dir` and reads all of it.
    ///
    /// Errors: another process has it, it is damaged, it is of a newer version, the disk fails.
    pub fn open(data_dir: &Path) -> Result<(Store, Stored), Error> {
        let path = data_dir.join(FILE);
        let name = path.display().to_string();
        let made = std::fs::create_dir_all(data_dir).and_then(|()| match data_dir.parent() {
            // Its name must outlast a power cut as well.
            Some(parent) if !parent.as_os_str().is_empty() => std::fs::File::open(parent)?.sync_all(),
            Some(_) | None => std::fs::File::open(".")?.sync_all(),
        });
        made.map_err(|e| Error::Store {
            message: format!("data directory '{}' cannot be made: {e}", data_dir.display()),
            class: Class::Retry,
        })?;
        let opener = move || {
            if !path.exists() {
                make(&path)?;
            }
            open_or_make(&path)
        };
        Store::open_with(name, Box::new(opener))
    }

    pub(crate) fn open_with(name: String, opener: Opener) -> Result<(Store, Stored), Error> {
        let store = Store { opener, name, database: Mutex::new(None) };
        let stored = store.with(|database| {
            meta::migrate(database)?;
            read_all(database)
        })?;
        Ok((store, stored))
    }

    /// Carries out all writes in one durable transaction, or none of them.
    pub fn commit(&self, writes: &[Write]) -> Result<(), Error> {
        self.with(|database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.set_quick_repair(true);
            for write in writes {
                apply(&transaction, write)?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Closes the file. Later calls open it again.
    pub fn close(&self) {
        *self.database.lock() = None;
    }

    fn with<R>(&self, work: impl FnOnce(&Database) -> Result<R, Fault>) -> Result<R, Error> {
        let mut slot = self.database.lock();
        let database = match slot.take() {
            Some(database) => database,
            None => (self.opener)().map_err(|e| self.error(Fault::Redb(e)))?,
        };
        let result = work(&database);
        match result {
            Ok(done) => {
                *slot = Some(database);
                Ok(done)
            }
            // The file stays closed: the next call opens and checks it again.
            Err(fault) => Err(self.error(fault)),
        }
    }

    fn error(&self, fault: Fault) -> Error {
        let name = &self.name;
        let (message, class) = match fault {
            Fault::Redb(redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch) => {
                (format!("'{name}' is in use by another process: stop it, or give this one another data directory"), Class::Retry)
            }
            Fault::Redb(redb::Error::Corrupted(what)) => (damaged(name, &what), Class::Corrupt),
            Fault::Redb(redb::Error::UpgradeRequired(version)) => {
                (format!("'{name}' has file format {version}, which this version does not read"), Class::Corrupt)
            }
            Fault::Redb(redb::Error::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData => {
                (damaged(name, &e.to_string()), Class::Corrupt)
            }
            Fault::Redb(redb::Error::Io(e)) => (format!("'{name}': {e}"), Class::Retry),
            Fault::Redb(redb::Error::PreviousIo) => (format!("'{name}': an earlier write failed"), Class::Retry),
            Fault::Redb(other) => (format!("'{name}': {other}"), Class::Bug),
            Fault::Record(what) => (damaged(name, &what), Class::Corrupt),
        };
        Error::Store { message, class }
    }
}

fn damaged(name: &str, what: &str) -> String {
    format!("'{name}' is damaged ({what}): bring back a copy of it, or move it away to begin with an empty hub")
}

/// What can go wrong below.
#[derive(Debug)]
pub(crate) enum Fault {
    Redb(redb::Error),
    /// A record does not decode, or is not there though another one needs it.
    Record(String),
}

macro_rules! from_redb {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Fault::Redb(error.into())
            }
        })*
    };
}

from_redb!(redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError, redb::SetDurabilityError);

/// Turns a record into bytes. Records are JSON: they are few, people may have to look at them, and
/// new fields with defaults need no migration.
fn encode<T: serde::Serialize>(record: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(record).map_err(|e| Fault::Record(format!("a record cannot be written: {e}")))
}

/// Turns bytes into a record.
fn decode<T: serde::de::DeserializeOwned>(table: &str, key: &dyn std::fmt::Display, bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|e| Fault::Record(format!("record {key} of table {table}: {e}")))
}

/// The job id in a key.
fn job_id(table: &str, text: &str) -> Result<JobId, Fault> {
    JobId::new(text).map_err(|e| Fault::Record(format!("key '{text}' of table {table}: {}", e.message)))
}

fn apply(transaction: &redb::WriteTransaction, write: &Write) -> Result<(), Fault> {
    match write {
        Write::Job(id, job) => job::put(transaction, id, job.as_ref().map(|job| &job.intent)),
        Write::Version(id, number, record) => version::put(transaction, id, *number, record),
        Write::VersionsGone(id) => version::remove_all(transaction, id),
        Write::Assignment(id, record) => assignment::put(transaction, id, record.as_ref()),
        Write::Entry(name, record) => catalog::put(transaction, name, record.as_deref()),
        Write::Agent(id, record) => agent::put(transaction, id, record),
        Write::Command(id, record) => outbox::put(transaction, *id, record.as_deref()),
        Write::Event(id, sequence, record) => event::put(transaction, id, *sequence, record.as_deref()),
        Write::EventsGone(id) => event::remove_all(transaction, id),
        Write::Checkpoint(id, record) => checkpoint::put(transaction, *id, record.as_deref()),
        Write::Counters(record) => meta::put_counters(transaction, record),
    }
}

fn read_all(database: &Database) -> Result<Stored, Fault> {
    let transaction = database.begin_read()?;
    Ok(Stored {
        jobs: job::all(&transaction)?,
        versions: version::all(&transaction)?,
        assignments: assignment::all(&transaction)?,
        entries: catalog::all(&transaction)?,
        agents: agent::all(&transaction)?,
        commands: outbox::all(&transaction)?,
        events: event::all(&transaction)?,
        checkpoints: checkpoint::all(&transaction)?,
        counters: meta::counters(&transaction)?,
    })
}

/// Puts the stored parts together.
///
/// Errors: a job without its version, which no transaction leaves behind.
pub fn assemble(stored: Stored, fleet: crate::fleet::Fleet) -> Result<crate::world::World, Error> {
    let mut world = crate::world::World::new(fleet);
    let Stored { jobs, mut versions, mut assignments, entries, agents: _, commands, events, checkpoints, counters } = stored;
    for intent in jobs {
        let id = intent.job.clone();
        let Some(version) = versions.remove(&(id.clone(), intent.version)) else {
            let message = format!("job '{id}' has no record of its version {}: the hub's store is damaged", intent.version);
            return Err(Error::Store { message, class: Class::Corrupt });
        };
        let assignment = assignments.remove(&id);
        let job = crate::world::Job { intent, version: Arc::new(version), assignment, observation: None };
        world.jobs.insert(id, Arc::new(job));
    }
    world.entries = entries.into_iter().map(|entry| (entry.name.clone(), Arc::new(entry))).collect();
    world.outbox = crate::outbox::Outbox::load(commands);
    world.events = events.into_iter().map(|(id, log)| (id, Arc::new(log))).collect();
    world.checkpoints = checkpoints.into_iter().map(|record| (record.id, Arc::new(record))).collect();
    if let Some(counters) = counters {
        world.counters = counters;
    }
    Ok(world)
}

#[cfg(test)]
mod tests;
