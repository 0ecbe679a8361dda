//! What a lane of an ordered edge owes (STR-5): exactly one batch, which may be empty, for each that it takes.

use crate::envelope::{Data, Envelope, batch};
use crate::error::Error;
use crate::origin::Origins;
use arrow::array::{Int64Array, new_empty_array};
use arrow::datatypes::Schema as ArrowSchema;
use std::sync::Arc;

/// The batch that a lane owes, as far as its operators have given it.
pub(crate) struct Lane {
    /// What the lane emits.
    schema: Arc<ArrowSchema>,
    owed: Option<Vec<Data>>,
}

impl Lane {
    /// A lane that emits these columns and owes nothing.
    pub(crate) fn new(schema: Arc<ArrowSchema>) -> Self {
        Lane { schema, owed: None }
    }

    /// A batch was taken.
    pub(crate) fn owe(&mut self) {
        self.owed = Some(Vec::new());
    }

    /// Keeps rows of the owed batch back until all of it is there; gives marks on.
    pub(crate) fn collect(&mut self, envelope: Envelope) -> Option<Envelope> {
        match (envelope, &mut self.owed) {
            (Envelope::Data(data), Some(parts)) => {
                if !data.is_empty() {
                    parts.push(data);
                }
                None
            }
            (envelope, _) => Some(envelope),
        }
    }

    /// What is owed, whole, when the operators have nothing more of it to give.
    pub(crate) fn pay(&mut self) -> Result<Option<Data>, Error> {
        let Some(parts) = self.owed.take() else { return Ok(None) };
        if !parts.is_empty() {
            return Data::concat(&parts).map(Some);
        }
        let columns = self.schema.fields().iter().map(|field| new_empty_array(field.data_type())).collect();
        let rows = batch(self.schema.clone(), columns, 0)?;
        Ok(Some(Data { rows, times: Int64Array::new_null(0), stamps: None, origins: Origins::Unknown }))
    }
}
