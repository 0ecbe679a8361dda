//! The bytes as they are: one column `value BYTEA`.

use super::{Decoded, Decoder, Filling};
use weir_kernel::error::Error;
use weir_planner::connector::DecodeColumn;
use weir_planner::error::Class;
use weir_planner::schema::ColumnType;

/// Decodes a record to one BYTEA value.
pub struct RawDecoder {
    filling: Filling,
}

impl RawDecoder {
    /// For a source that declares exactly one column, of type BYTEA.
    ///
    /// Errors: `User` for any other declaration.
    pub fn new(columns: &[DecodeColumn], used: &[String]) -> Result<Self, Error> {
        match columns {
            [only] if only.column.ty == ColumnType::Bytea => Ok(RawDecoder { filling: Filling::new(columns, used)? }),
            _ => {
                let message = "format 'raw' gives the bytes as they are; declare exactly one column, such as value BYTEA";
                Err(Error::new(Class::User, message))
            }
        }
    }
}

impl Decoder for RawDecoder {
    fn header(&mut self, _line: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn push(&mut self, record: &[u8], at: u64) {
        // Without a used column (`count(*)`) only the row itself counts.
        let filled = self.filling.cells.iter_mut().try_for_each(|cells| cells.push_raw(record));
        self.filling.close(filled, at, record);
    }

    fn push_absent(&mut self, at: u64) {
        self.filling.close(Ok(()), at, &[]);
    }

    fn refuse(&mut self, reason: &str, at: u64, record: &[u8]) {
        self.filling.refuse(reason, at, record);
    }

    fn keep_raw(&mut self, bytes_max: usize) {
        self.filling.keep_raw(bytes_max);
    }

    fn pending(&self) -> usize {
        self.filling.pending()
    }

    fn finish(&mut self) -> Result<Decoded, Error> {
        self.filling.finish()
    }
}
