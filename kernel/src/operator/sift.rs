//! Computing rows so that a bad row costs itself alone (KER-7).
//!
//! Rows are computed together while that goes well; where it does not, the batch is halved until the
//! bad rows stand alone. So a row is bad if and only if it is by itself, whatever it shares a batch
//! with: `a <> 0 AND 1 / a > 0` may fail for a batch and for none of its rows.

use crate::envelope::Data;
use crate::error::Error;
use crate::operator::Context;
use crate::side::{ErrorRow, rows};
use arrow::array::UInt32Array;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::spec::ErrorPolicy;

/// Characters of a row that the message of a failure shows.
const BRIEF_CHARS: usize = 200;

/// What is computed of some rows at a wall clock time.
type Compute<'a, T> = &'a dyn Fn(&Data, i64) -> Result<T, Error>;

/// What the rows of a batch came to that could not be computed as a whole.
struct Found<T> {
    good: Vec<(Data, T)>,
    /// Row number and what is wrong with it.
    bad: Vec<(usize, Error)>,
}

/// What `compute` makes of the good rows, in their order and with them: of all together, as a rule.
/// Bad ones are skipped or routed, and counted.
///
/// Errors: that of the first bad row where the policy is to fail; one that is no row's fault.
pub(crate) fn sift<T>(
    policy: ErrorPolicy,
    data: Data,
    context: &mut Context<'_>,
    compute: Compute<'_, T>,
) -> Result<Vec<(Data, T)>, Error> {
    let error = match compute(&data, context.wall_ms) {
        Ok(done) => return Ok(vec![(data, done)]),
        Err(error) if error.class == Class::User && !data.is_empty() => error,
        Err(error) => return Err(error),
    };
    let mut found = Found { good: Vec::new(), bad: Vec::new() };
    match data.len() {
        1 => found.bad.push((0, error)),
        _ => halve(policy, &data, 0, context.wall_ms, compute, &mut found)?,
    }
    if !found.bad.is_empty() {
        refuse(policy, &data, found.bad, context)?;
    }
    Ok(found.good)
}

/// Computes both halves of rows that cannot be computed together; the first of them is row `first`.
fn halve<T>(
    policy: ErrorPolicy,
    data: &Data,
    first: usize,
    wall_ms: i64,
    compute: Compute<'_, T>,
    found: &mut Found<T>,
) -> Result<(), Error> {
    let middle = data.len() / 2;
    for (offset, length) in [(0, middle), (middle, data.len() - middle)] {
        let half = data.slice(offset, length);
        match compute(&half, wall_ms) {
            Ok(done) => found.good.push((half, done)),
            Err(error) if error.class != Class::User => return Err(error),
            Err(error) if length == 1 => found.bad.push((first + offset, error)),
            Err(_) => halve(policy, &half, first + offset, wall_ms, compute, found)?,
        }
        if policy == ErrorPolicy::Fail && !found.bad.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Does with bad rows of `data` what the policy says.
fn refuse(policy: ErrorPolicy, data: &Data, bad: Vec<(usize, Error)>, context: &mut Context<'_>) -> Result<(), Error> {
    match policy {
        ErrorPolicy::Fail => {
            let Some((row, error)) = bad.into_iter().next() else { return Ok(()) };
            let brief = rows::brief(&data.rows.slice(row, 1), BRIEF_CHARS)?;
            let message = format!("{} in row {brief}; on_error = 'skip' or 'route' of its source would leave it out", error.message);
            return Err(Error { message, ..error });
        }
        ErrorPolicy::Skip => {}
        ErrorPolicy::Route => {
            let numbers = UInt32Array::from_iter_values(bad.iter().map(|(row, _)| *row as u32));
            let texts = rows::json(&data.take(&numbers)?.rows)?;
            let error = |(raw, (_, error)): (Vec<u8>, &(usize, Error))| ErrorRow {
                raw,
                reason: error.message.clone(),
                partition: None,
                position: None,
            };
            context.error(&texts.into_iter().zip(&bad).map(error).collect::<Vec<_>>())?;
        }
    }
    context.metrics.rows_error.fetch_add(bad.len() as u64, Ordering::Relaxed);
    *context.metrics.bad.lock() = bad.into_iter().next().map(|(_, error)| error.message);
    Ok(())
}
