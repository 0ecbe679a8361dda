//! Table `agent`: agent id → its last registration as JSON.

use super::{Fault, decode, encode};
use crate::fleet::Agent;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use weir_planner::id::AgentId;

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("agent");

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), Fault> {
    transaction.open_table(TABLE)?;
    Ok(())
}

pub(super) fn all(transaction: &ReadTransaction) -> Result<Vec<Agent>, Fault> {
    let mut records = Vec::new();
    for row in transaction.open_table(TABLE)?.iter()? {
        let (key, value) = row?;
        records.push(decode("agent", &key.value(), value.value())?);
    }
    Ok(records)
}

pub(super) fn put(transaction: &WriteTransaction, key: &AgentId, record: &Agent) -> Result<(), Fault> {
    transaction.open_table(TABLE)?.insert(key.as_str(), encode(record)?.as_slice())?;
    Ok(())
}
