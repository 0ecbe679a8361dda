//! Table `outbox`: command id → command as JSON. Only what is not done is here; the plan of a
//! start is with the job's version.

use super::{Fault, decode, encode};
use crate::outbox::Entry;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("outbox");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<Vec<Entry>, Fault> {
    let mut records = Vec::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.push(decode("outbox", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: u64, record: Option<&Entry>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert(key, encode(record)?.as_slice())?,
        None => table.remove(key)?,
    };
    Ok(())
}
