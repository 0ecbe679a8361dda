//! The first records of the first files, for their columns (JOB-6).

use super::lines::{Framing, LineFile};
use super::{found, named};
use crate::format::parquet::columns_of;
use crate::format::sample::Sample;
use std::time::Instant;
use weir_kernel::error::Error;
use weir_kernel::io::Budget;
use weir_planner::connector::{FileSource as Options, Format};
use weir_planner::error::Class;
use weir_planner::schema::Column;

/// Records looked at.
const RECORDS_MAX: u64 = 1_000;
/// Bytes looked at, but for a record that is longer.
const BYTES_MAX: usize = 1 << 20;

/// The columns of the files that a path matches. A Parquet file's are its own; others are inferred
/// from the first records. Blocks; ends at `deadline` with what it has.
///
/// Errors: `Retry` when the files hold no record; `User` for a path that matches nothing, a file
/// that cannot be read, or records that give no columns.
pub fn columns(options: &Options, format: Option<&Format>, who: &str, deadline: Instant) -> Result<Vec<Column>, Error> {
    let names = found(&options.path, who)?;
    for name in &names {
        // Reading a pipe takes its rows away, and may wait for ever.
        if !std::fs::metadata(name).is_ok_and(|kind| kind.is_file()) {
            let message = format!("{who}: '{name}' is no regular file, and is not read to find out its columns; declare them");
            return Err(Error::new(Class::User, message));
        }
    }
    if let (Some(Format::Parquet(_)), Some(first)) = (format, names.first()) {
        return columns_of(first).map_err(|e| named(who, e));
    }
    let (framing, header) = match format {
        Some(Format::Csv(csv)) => (Framing::Quoted { delimiter: crate::format::csv::delimiter(csv)? }, csv.header),
        None | Some(Format::Json(_) | Format::Raw(_) | Format::Parquet(_)) => (Framing::Lines, false),
    };
    let sample = Sample::default();
    let mut bytes = 0;
    for name in &names {
        let mut file = LineFile::open(name, sample.decoder(format)?, framing, header, 0, 0).map_err(|e| named(who, e))?;
        loop {
            let rows = usize::try_from(RECORDS_MAX.saturating_sub(sample.records())).unwrap_or(0);
            let left = BYTES_MAX.saturating_sub(bytes);
            if rows == 0 || left == 0 || Instant::now() >= deadline {
                return sample.columns().map_err(|e| named(who, e));
            }
            let read = file.read(Budget { rows, bytes: left }).map_err(|e| named(who, e))?;
            // A turn that gives nothing would else never end.
            bytes += read.bytes.max(1);
            if read.ended {
                break;
            }
        }
    }
    sample.columns().map_err(|e| named(who, e))
}
