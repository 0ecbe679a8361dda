//! Table `assignment`: job id → the agent and data directory that the job is pinned to, as JSON.

use super::{Fault, decode, encode, job_id};
use crate::world::Assignment;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use std::collections::BTreeMap;
use weir_planner::id::JobId;

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("assignment");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<BTreeMap<JobId, Assignment>, Fault> {
    let mut records = BTreeMap::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.insert(job_id("assignment", key.value())?, decode("assignment", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: &JobId, record: Option<&Assignment>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert(key.as_str(), encode(record)?.as_slice())?,
        None => table.remove(key.as_str())?,
    };
    Ok(())
}
