//! Named sources and sinks, who uses them, and the one namespace that they share with jobs (SQL-15).

use crate::error::Error;
use crate::hub::{CatalogEntry, CatalogObject, OnExists};
use crate::world::World;
use std::sync::Arc;
use weir_planner::id::JobId;

/// The word for an object.
pub fn kind(object: &CatalogObject) -> &'static str {
    match object {
        CatalogObject::Source(_) => "source",
        CatalogObject::Sink(_) => "sink",
    }
}

impl World {
    /// The kind of the object that has this name.
    pub fn kind_of(&self, name: &str) -> Option<&'static str> {
        let entry = self.entries.get(name).map(|entry| kind(&entry.object));
        let job = || {
            let job = self.jobs.iter().find(|(id, _)| id.as_str() == name)?.1;
            Some(if job.version.stream.is_some() { "stream" } else { "job" })
        };
        entry.or_else(job)
    }

    /// Jobs that use an entry, by id.
    pub fn users_of(&self, name: &str) -> Vec<JobId> {
        let uses = |job: &crate::world::Job| job.version.uses.iter().any(|used| used == name);
        self.jobs.iter().filter(|(_, job)| uses(job)).map(|(id, _)| id.clone()).collect()
    }

    /// Adds a source or sink. `Ok(false)` when it was there and kept.
    pub fn create_entry(&mut self, entry: CatalogEntry, on_exists: OnExists) -> Result<bool, Error> {
        let name = entry.name.clone();
        if let Some(taken) = self.kind_of(&name) {
            let same_kind = taken == kind(&entry.object);
            match on_exists {
                OnExists::Keep if same_kind => return Ok(false),
                OnExists::Replace if same_kind => self.refuse_used(taken, &name)?,
                OnExists::Fail | OnExists::Keep | OnExists::Replace => return Err(Error::Exists { kind: taken, name }),
            }
        }
        self.entries.insert(name.clone(), Arc::new(entry));
        self.changes.entries.insert(name);
        Ok(true)
    }

    /// Drops a source or sink; with `cascade` the jobs that use it first. Their names come back.
    pub fn drop_entry(&mut self, wanted: &'static str, name: &str, cascade: bool) -> Result<Vec<JobId>, Error> {
        if self.entries.get(name).is_none_or(|entry| kind(&entry.object) != wanted) {
            return Err(Error::NotFound { kind: wanted, name: name.to_owned() });
        }
        if !cascade {
            self.refuse_used(wanted, name)?;
        }
        let users = self.users_of(name);
        for job in &users {
            self.drop_job(job)?;
        }
        self.entries.remove(name);
        self.changes.entries.insert(name.to_owned());
        Ok(users)
    }

    fn refuse_used(&self, kind: &'static str, name: &str) -> Result<(), Error> {
        let users: Vec<String> = self.users_of(name).into_iter().map(String::from).collect();
        if users.is_empty() { Ok(()) } else { Err(Error::InUse { kind, name: name.to_owned(), users }) }
    }
}

#[cfg(test)]
mod tests;
