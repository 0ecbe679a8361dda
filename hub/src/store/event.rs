//! Table `event`: (job id, sequence) → event as JSON. The oldest go as new ones come (HUB-5).

use super::{Fault, decode, encode, job_id};
use crate::hub::JobEvent;
use crate::world::EventLog;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::id::JobId;

const TABLE: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("event");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<BTreeMap<JobId, EventLog>, Fault> {
    let mut logs: BTreeMap<JobId, EventLog> = BTreeMap::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        let (job, sequence) = key.value();
        let log = logs.entry(job_id("event", job)?).or_default();
        if log.items.is_empty() {
            log.first = sequence;
        }
        let event: JobEvent = decode("event", &format!("({job}, {sequence})"), value.value())?;
        log.items.push_back(Arc::new(event));
    }
    Ok(logs)
}

pub(super) fn put(transaction: &WriteTransaction, job: &JobId, sequence: u64, record: Option<&JobEvent>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert((job.as_str(), sequence), encode(record)?.as_slice())?,
        None => table.remove((job.as_str(), sequence))?,
    };
    Ok(())
}

pub(super) fn remove_all(transaction: &WriteTransaction, job: &JobId) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    table.retain_in((job.as_str(), 0)..=(job.as_str(), u64::MAX), |_, _| false)?;
    Ok(())
}
