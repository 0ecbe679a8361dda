//! Table `catalog`: folded name → source or sink with its statement, as JSON.

use super::{Fault, decode, encode};
use crate::hub::CatalogEntry;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("catalog");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<Vec<CatalogEntry>, Fault> {
    let mut records = Vec::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.push(decode("catalog", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: &str, record: Option<&CatalogEntry>) -> Result<(), Fault> {
    let mut table = transaction.open_table(TABLE)?;
    match record {
        Some(record) => table.insert(key, encode(record)?.as_slice())?,
        None => table.remove(key)?,
    };
    Ok(())
}
