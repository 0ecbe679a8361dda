//! Rows written in the statement: bounded, one split, in order. Each row becomes a JSON object and
//! goes through the JSON decoder, so that a cell means what it means in any other source (C30).

use super::memory::ListSource;
use super::{Opening, Reading};
use weir_kernel::error::Error;
use weir_planner::connector::{SplitPosition, Values};
use weir_planner::error::Class;
use weir_planner::plan::SourceWork;

/// Opens the rows of a `values` source.
///
/// Errors: `User` for a row with another number of cells than columns.
pub fn open(options: &Values, work: &SourceWork, positions: &[SplitPosition], opening: &Opening) -> Result<ListSource, Error> {
    let reading = Reading::new(work, opening);
    let mut records = Vec::with_capacity(options.rows.len());
    for (index, cells) in options.rows.iter().enumerate() {
        if cells.len() != work.columns.len() {
            let message = format!("{}: row {} has {} values for {} columns", reading.name, index + 1, cells.len(), work.columns.len());
            return Err(Error::new(Class::User, message));
        }
        let names = work.columns.iter().map(|column| column.column.name.clone());
        let object: serde_json::Map<_, _> = names.zip(cells.iter().cloned()).collect();
        records.push(serde_json::Value::Object(object).to_string().into_bytes());
    }
    let mut decoder = crate::format::decoder(None, &work.columns, &work.used)?;
    decoder.keep_raw(crate::format::raw_bytes(work.on_error));
    ListSource::open(records, decoder, reading, positions, opening)
}
