//! Table `job`: job id → intent as JSON: desired and observed state, generation, attempt.

use super::{Fault, decode, encode};
use crate::intent::Intent;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use weir_planner::id::JobId;

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("job");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<Vec<Intent>, Fault> {
    let mut records = Vec::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.push(decode("job", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: &JobId, record: Option<&Intent>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert(key.as_str(), encode(record)?.as_slice())?,
        None => table.remove(key.as_str())?,
    };
    Ok(())
}
