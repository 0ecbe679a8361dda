//! Table `meta`: name → bytes. `schema` is the version of all tables as a little-endian u32,
//! `counters` is JSON.

use super::{Fault, decode, encode};
use crate::world::Counters;
use redb::{Database, Durability, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const SCHEMA: &str = "schema";
const COUNTERS: &str = "counters";

/// Version of the tables that this code writes.
pub const SCHEMA_VERSION: u32 = 1;

/// Makes the tables of a new file, and brings an older one up to date, in one transaction.
///
/// Errors: a file of a newer version, or one with tables but no version.
pub(super) fn migrate(database: &Database) -> Result<(), Fault> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    let is_new = transaction.list_tables()?.next().is_none();
    {
        let mut table = transaction.open_table(TABLE)?;
        let found = table.get(SCHEMA)?.map(|value| value.value().to_vec());
        match found.map(|bytes| <[u8; 4]>::try_from(bytes.as_slice()).map(u32::from_le_bytes)) {
            Some(Ok(SCHEMA_VERSION)) => return Ok(()),
            Some(Ok(newer)) if newer > SCHEMA_VERSION => {
                return Err(Fault::Record(format!(
                    "its tables are of version {newer}, this weir knows {SCHEMA_VERSION}: run the weir that wrote it, or a newer one"
                )));
            }
            // No older version was ever released: a step for each goes here.
            Some(Ok(unknown)) => return Err(Fault::Record(format!("its tables are of version {unknown}, which never was"))),
            Some(Err(_)) => return Err(Fault::Record("the version of its tables is unreadable".to_owned())),
            None if is_new => {
                table.insert(SCHEMA, SCHEMA_VERSION.to_le_bytes().as_slice())?;
            }
            None => return Err(Fault::Record("it has tables but no version of them: this is not a hub's store".to_owned())),
        }
    }
    super::job::create(&transaction)?;
    super::version::create(&transaction)?;
    super::assignment::create(&transaction)?;
    super::catalog::create(&transaction)?;
    super::agent::create(&transaction)?;
    super::outbox::create(&transaction)?;
    super::event::create(&transaction)?;
    super::checkpoint::create(&transaction)?;
    transaction.commit()?;
    Ok(())
}

pub(super) fn counters(transaction: &ReadTransaction) -> Result<Option<Counters>, Fault> {
    let table = match transaction.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    table.get(COUNTERS)?.map(|value| decode("meta", &COUNTERS, value.value())).transpose()
}

pub(super) fn put_counters(transaction: &WriteTransaction, counters: &Counters) -> Result<(), Fault> {
    transaction.open_table(TABLE)?.insert(COUNTERS, encode(counters)?.as_slice())?;
    Ok(())
}
