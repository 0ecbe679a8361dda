//! Rows of a running query on their way to the client: flushed batch by batch, and able to stop
//! after so many (Execute with a row limit) and go on later.

use super::copy::Format;
use super::value::{self, Rows};
use super::wire::{End, Writer};
use crate::error::Error;
use arrow::datatypes::SchemaRef;
use bytes::BytesMut;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use pgwire::messages::copy::{CopyData, CopyDone, CopyOutResponse};
use pgwire::messages::data::FORMAT_CODE_TEXT;
use std::sync::Arc;

/// Why sending stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The query failed.
    Failed(Error),
    /// The connection did.
    End(End),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<End> for Stop {
    fn from(end: End) -> Stop {
        Stop::End(end)
    }
}

/// A query whose rows are being sent.
pub(super) struct Running {
    pub schema: SchemaRef,
    stream: SendableRecordBatchStream,
    formats: Vec<i16>,
    text: Arc<str>,
    current: Option<(Rows, usize)>,
    /// The word of the tag when it is not `SELECT n`.
    pub tag: Option<&'static str>,
}

/// How a call of [`Running::send`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All rows are out; so many in this call.
    All(u64),
    /// The limit was reached first.
    Some,
}

impl Running {
    /// A query that has started. `formats` as in [`value::is_binary`].
    ///
    /// Errors: as [`value::check_width`].
    pub fn new(
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
        tag: Option<&'static str>,
        formats: Vec<i16>,
        text: Arc<str>,
    ) -> Result<Running, Error> {
        value::check_width(&schema)?;
        Ok(Running { schema, stream, formats, text, current: None, tag })
    }

    /// Sends rows, at most `limit` of them (0: all), flushing with each batch.
    ///
    /// Cancel: safe to drop between messages; the query must then be dropped too.
    pub async fn send(&mut self, writer: &mut Writer, limit: u64) -> Result<Sent, Stop> {
        let mut sent = 0;
        loop {
            let Some((rows, mut row)) = self.take_batch().await? else { return Ok(Sent::All(sent)) };
            while row < rows.count() {
                if limit > 0 && sent == limit {
                    self.current = Some((rows, row));
                    return Ok(Sent::Some);
                }
                rows.put(row, &mut writer.out)?;
                row += 1;
                sent += 1;
                writer.relieve().await?;
            }
            writer.flush().await?;
        }
    }

    /// Sends all rows as COPY data; the number of rows comes back.
    pub async fn copy(&mut self, writer: &mut Writer, format: &Format) -> Result<u64, Stop> {
        let (mut scratch, mut line) = (BytesMut::new(), BytesMut::new());
        let formats = vec![FORMAT_CODE_TEXT; self.schema.fields().len()];
        // The width is checked: it fits.
        writer.put(&CopyOutResponse::new(0, formats.len() as i16, formats))?;
        if format.header {
            format.names(&self.schema, &mut line);
            writer.put(&CopyData::new(line.split().freeze()))?;
        }
        let mut sent = 0;
        while let Some((rows, _)) = self.take_batch().await? {
            for row in 0..rows.count() {
                format.row(&rows, row, &mut scratch, &mut line);
                // The line's memory comes back with the message: the next one is written there.
                writer.put(&CopyData::new(line.split().freeze()))?;
                sent += 1;
                writer.relieve().await?;
            }
            writer.flush().await?;
        }
        writer.put(&CopyDone::new())?;
        Ok(sent)
    }

    /// The batch that was being sent, or the next one that has rows.
    async fn take_batch(&mut self) -> Result<Option<(Rows, usize)>, Stop> {
        if let Some(current) = self.current.take() {
            return Ok(Some(current));
        }
        let failed = |error: &datafusion::error::DataFusionError, text: &str| Stop::Failed(crate::query::from_datafusion(error, text));
        loop {
            match self.stream.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(failed(&error, &self.text)),
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => {
                    let rows = Rows::new(&batch, &self.formats).map_err(|error| failed(&error.into(), &self.text))?;
                    return Ok(Some((rows, 0)));
                }
            }
        }
    }
}
