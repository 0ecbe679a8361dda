//! Small batches put together again after filters and shuffles (KER-3).

use crate::envelope::{BATCH_ROWS, Data};
use crate::error::Error;

/// A batch of at least so many rows is not worth copying.
const ROWS_ENOUGH: usize = BATCH_ROWS / 2;
/// Bytes gathered at most before they leave, so that wide rows do not pile up.
const BYTES_ENOUGH: usize = 1 << 20;

/// Gathers small batches up to about [`BATCH_ROWS`] rows.
#[derive(Default)]
pub struct Gather {
    parts: Vec<Data>,
    rows: usize,
    bytes: usize,
    ready: Option<Data>,
    next: Option<Data>,
}

impl Gather {
    /// Takes a batch; look at [`Gather::pop`] afterwards.
    pub fn put(&mut self, data: Data) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() >= ROWS_ENOUGH {
            self.ready = self.rest()?;
            self.next = Some(data);
            return Ok(());
        }
        self.rows += data.len();
        self.bytes += data.bytes();
        self.parts.push(data);
        if self.rows >= BATCH_ROWS || self.bytes >= BYTES_ENOUGH {
            self.ready = self.rest()?;
        }
        Ok(())
    }

    /// A batch that is large enough to go on.
    pub fn pop(&mut self) -> Option<Data> {
        self.ready.take().or_else(|| self.next.take())
    }

    /// Whatever is gathered.
    pub fn rest(&mut self) -> Result<Option<Data>, Error> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let data = Data::concat(&self.parts)?;
        self.parts.clear();
        self.rows = 0;
        self.bytes = 0;
        Ok(Some(data))
    }
}
