//! Specs of jobs that no hub keeps (`weir run`): what the last run was asked for, so that the next
//! one can tell a resume from a change (STR-6, JOB-1).

use super::commit::Request;
use super::{Decisions, SPECS, storage};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use weir_planner::error::Class;
use weir_planner::id::JobId;
use weir_planner::spec::JobSpec;

/// First byte of a record; JSON follows, since a spec's untagged parts need a format that describes itself.
const RECORD_VERSION: u8 = 1;

/// A job as it was submitted, and as it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptSpec {
    /// What the file said: the content that a version never changes.
    pub submitted: JobSpec,
    /// The same with everything bound, columns that were sampled at its first start included (JOB-6).
    pub bound: JobSpec,
}

impl Decisions {
    /// Keeps the spec of a job durably, in place of an older one. Blocks.
    pub fn keep_spec(&self, job: &JobId, spec: &KeptSpec) -> Result<(), Error> {
        let json = serde_json::to_vec(spec).map_err(|e| Error::because(Class::Bug, format!("job {job}: its spec cannot be written"), e))?;
        let record = [&[RECORD_VERSION], json.as_slice()].concat();
        let id = job.clone();
        self.committer.ask(|reply| Request::Keep { id, record, reply })
    }

    /// The spec that was kept last; `None` where none was, or its job was forgotten. Blocks.
    ///
    /// Errors: `Corrupt` for a record that does not read.
    pub fn kept_spec(&self, job: &JobId) -> Result<Option<KeptSpec>, Error> {
        let path = &self.store.path;
        self.store.read(|tx| {
            let table = tx.open_table(SPECS).map_err(|e| storage(path, e))?;
            let Some(value) = table.get(job.as_str()).map_err(|e| storage(path, e))? else { return Ok(None) };
            match value.value().split_first() {
                Some((&RECORD_VERSION, json)) => serde_json::from_slice(json)
                    .map(Some)
                    .map_err(|e| Error::because(Class::Corrupt, format!("job {job}: the kept spec is not readable"), e)),
                Some(_) | None => Err(Error::new(Class::Corrupt, format!("job {job}: the kept spec is of another version of weir"))),
            }
        })
    }
}
