//! The input log (`durability`): what a source that cannot be read again took is durable before the job sees it (WAL-1).
//!
//! A [`LoggedSource`] stands around such a source. What the source gives becomes an [`Entry`] and goes to
//! the log's own thread, which writes it; only when it is durable is it given to the chain, and only then is the source told
//! (an http request is answered). Records are numbered, and a position is the number of the next record, with and without a
//! log. After a restart the records from the restored position on come out of the log first. Nothing is deleted before the
//! horizon has passed it ([`weir_kernel::io::Source::passed`]).
//!
//! The log lies in redb files of the data directory ([`local`]) or in objects of the state store
//! ([`object`]); docs/decision/013 says why so.

pub mod entry;
pub mod local;
pub mod object;
pub mod source;
mod writer;

#[cfg(test)]
mod tests;

pub use entry::{Entry, Frame};
pub use source::LoggedSource;

use crate::checkpoint::store::StateStore;
use crate::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::Attempt;
use weir_planner::plan::SourceWork;
use weir_planner::protocol::Level;
use weir_planner::spec::{DurabilityBackend, DurabilitySync};

/// Tells people: level, kind of the event, what happened.
pub type Tell = Arc<dyn Fn(Level, &'static str, String) + Send + Sync>;

/// Where the logs of an attempt are, and to whom they speak.
#[derive(Clone)]
pub struct Place {
    /// The directory for logs of the job on this machine.
    pub dir: PathBuf,
    /// The state store; `None` where there is none.
    pub store: Option<StateStore>,
    /// The attempt that opens.
    pub attempt: Attempt,
    /// The job begins from nothing: what other attempts left is not its own, and is deleted.
    pub empty: bool,
    /// The attempt that decided the cut which this one begins from; `None` when it begins from nothing.
    pub cut: Option<Attempt>,
    /// For events of the job.
    pub tell: Tell,
}

/// How rows are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

impl Compression {
    fn byte(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// What lies in a log where it is opened.
pub struct Found {
    /// Its parts, in their order.
    pub parts: Vec<Part>,
    /// The number after the last record that is in it.
    pub end: u64,
    /// It is new, and there was none before it here.
    pub new: bool,
}

/// A part of a log, to be read on a thread that may wait.
pub enum Part {
    /// A file of this machine.
    File(local::Part),
    /// An object of the state store.
    Object(object::Part),
}

/// What could be read of a part.
pub struct Contents {
    /// In their order.
    pub frames: Vec<Frame>,
    /// What is wrong with it.
    pub damage: Option<String>,
}

impl Part {
    /// The entries, all that verify.
    ///
    /// Errors: `Retry` when it cannot be read now.
    pub fn read(&self) -> Result<Contents, Error> {
        match self {
            Part::File(part) => part.read(),
            Part::Object(part) => part.read(),
        }
    }
}

/// A log that is being written.
pub enum Log {
    /// In the data directory.
    Local(local::LocalLog),
    /// In the state store.
    Object(object::ObjectLog),
}

impl Log {
    /// Opens the log of a source task. Blocks.
    ///
    /// Errors: `User` without a state store for `object_store`; `Retry` when another opener holds it, or when it cannot be
    /// reached.
    pub fn open(work: &Durable, place: &Place, task: &str, runtime: &tokio::runtime::Handle) -> Result<(Log, Found), Error> {
        match work.backend {
            DurabilityBackend::Local => {
                let mut dir = place.dir.clone();
                dir.extend(&work.path);
                let (log, found) = local::LocalLog::open(&dir.join(task), place)?;
                Ok((Log::Local(log), found))
            }
            DurabilityBackend::ObjectStore => {
                let (log, found) = object::ObjectLog::open(work.path.as_deref(), place, task, runtime)?;
                Ok((Log::Object(log), found))
            }
        }
    }

    /// Writes entries; they are durable when it returns.
    ///
    /// Errors: `Retry` when it can be tried again with the same entries; `Fenced` when another attempt has the log.
    pub fn append(&mut self, frames: &[Frame]) -> Result<(), Error> {
        match self {
            Log::Local(log) => log.append(frames),
            Log::Object(log) => log.append(frames),
        }
    }

    /// Deletes what holds records below `passed` alone. What cannot be deleted now is tried again.
    pub fn trim(&mut self, passed: u64) {
        match self {
            Log::Local(log) => log.trim(passed),
            Log::Object(log) => log.trim(passed),
        }
    }
}

/// `durability` of a source task, as it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Durable {
    /// Directory below that of the job's logs.
    pub path: Option<String>,
    /// When rows are given.
    pub sync: DurabilitySync,
    /// Where the log is.
    pub backend: DurabilityBackend,
    /// How rows are packed.
    pub compression: Compression,
}

impl Durable {
    /// Of a source, where it asks for a log.
    ///
    /// Errors: `Bug` for a compression that the planner should have refused.
    pub fn of(work: &SourceWork) -> Result<Option<Durable>, Error> {
        let Some(asked) = work.durability.as_ref().filter(|asked| asked.enabled) else { return Ok(None) };
        let compression = match asked.compression.as_deref() {
            None | Some("none") => Compression::None,
            Some("lz4") => Compression::Lz4,
            Some("zstd") => Compression::Zstd,
            Some(other) => return Err(Error::new(Class::Bug, format!("compression '{other}' of an input log was planned"))),
        };
        Ok(Some(Durable { path: asked.path.clone(), sync: asked.sync, backend: asked.backend, compression }))
    }
}

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(Class::Corrupt, format!("input log: {what}"))
}
