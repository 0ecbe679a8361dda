//! Table `checkpoint`: checkpoint id → its record as JSON; the record is the seal.

use super::{Fault, decode, encode};
use crate::checkpoint::Checkpoint;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use weir_planner::id::CheckpointId;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("checkpoint");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<Vec<Checkpoint>, Fault> {
    let mut records = Vec::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.push(decode("checkpoint", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: CheckpointId, record: Option<&Checkpoint>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert(key.get(), encode(record)?.as_slice())?,
        None => table.remove(key.get())?,
    };
    Ok(())
}
