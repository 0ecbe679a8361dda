//! Filter, projection and union: row by row, nothing remembered.

use crate::envelope::{Data, Envelope, batch};
use crate::error::Error;
use crate::eval::Evaluator;
use crate::operator::{Context, Operator};
use crate::side::{ErrorRow, rows};
use arrow::array::UInt32Array;
use arrow::datatypes::Schema as ArrowSchema;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::MapWork;
use weir_planner::schema::Schema;
use weir_planner::spec::ErrorPolicy;

/// Characters of a row that the message of a failure shows.
const BRIEF_CHARS: usize = 200;

/// Filters, then projects. Shape: `input` columns in, `output` columns out, order kept.
pub struct Map {
    on_error: ErrorPolicy,
    filter: Option<Evaluator>,
    project: Option<Vec<Evaluator>>,
    output: Arc<ArrowSchema>,
    held: Option<Envelope>,
}

/// What the rows of a batch came to that could not be computed as a whole.
#[derive(Default)]
struct Found {
    good: Vec<Data>,
    /// Row number and what is wrong with it.
    bad: Vec<(usize, Error)>,
}

impl Map {
    /// Builds the expressions of a map.
    pub fn new(id: &OperatorId, work: &MapWork, input: &Schema, output: &Schema) -> Result<Self, Error> {
        let filter = work.filter.as_ref().map(|filter| Evaluator::condition(id, filter, input)).transpose()?;
        let project = match &work.project {
            None => None,
            Some(columns) => Some(columns.iter().map(|column| Evaluator::typed(id, &column.value, input)).collect::<Result<_, _>>()?),
        };
        Ok(Map { on_error: work.on_error, filter, project, output: Arc::new(output.to_arrow()), held: None })
    }

    fn apply(&self, data: Data, wall_ms: i64) -> Result<Option<Data>, Error> {
        let data = match &self.filter {
            None => data,
            Some(filter) => {
                let mask = filter.holds(&data, wall_ms)?;
                match mask.true_count() {
                    0 => return Ok(None),
                    all if all == data.len() => data,
                    _ => data.filter(&mask)?,
                }
            }
        };
        let Some(project) = &self.project else {
            return Ok(Some(data));
        };
        let columns = project.iter().map(|column| column.evaluate(&data, wall_ms)).collect::<Result<Vec<_>, _>>()?;
        let rows = batch(self.output.clone(), columns, data.len())?;
        Ok(Some(data.with_rows(rows)))
    }

    /// A bad row costs itself alone (KER-7). Rows are computed together while that goes well; where
    /// it does not, the batch is halved until the bad rows stand alone. So a row is bad if and only
    /// if it is by itself, whatever it shares a batch with: `a <> 0 AND 1 / a > 0` may fail for a
    /// batch and for none of its rows.
    fn compute(&self, data: Data, context: &mut Context<'_>) -> Result<Option<Data>, Error> {
        let error = match self.apply(data.clone(), context.wall_ms) {
            Err(error) if error.class == Class::User && !data.is_empty() => error,
            done => return done,
        };
        let mut found = Found::default();
        match data.len() {
            1 => found.bad.push((0, error)),
            _ => self.halve(&data, 0, context.wall_ms, &mut found)?,
        }
        if !found.bad.is_empty() {
            self.refuse(&data, found.bad, context)?;
        }
        Ok(match found.good.as_slice() {
            [] => None,
            good => Some(Data::concat(good)?),
        })
    }

    /// Computes both halves of rows that cannot be computed together; the first of them is row `first`.
    fn halve(&self, data: &Data, first: usize, wall_ms: i64, found: &mut Found) -> Result<(), Error> {
        let middle = data.len() / 2;
        for (offset, length) in [(0, middle), (middle, data.len() - middle)] {
            let half = data.slice(offset, length);
            match self.apply(half.clone(), wall_ms) {
                Ok(done) => found.good.extend(done),
                Err(error) if error.class != Class::User => return Err(error),
                Err(error) if length == 1 => found.bad.push((first + offset, error)),
                Err(_) => self.halve(&half, first + offset, wall_ms, found)?,
            }
            if self.on_error == ErrorPolicy::Fail && !found.bad.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Does with bad rows of `data` what the policy says.
    fn refuse(&self, data: &Data, bad: Vec<(usize, Error)>, context: &mut Context<'_>) -> Result<(), Error> {
        match self.on_error {
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
}

impl Operator for Map {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        self.held = match envelope {
            Envelope::Data(data) => self.compute(data, context)?.map(Envelope::Data),
            Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => Some(envelope),
        };
        Ok(())
    }

    fn give(&mut self, _context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        Ok(self.held.take())
    }
}

/// Passes all inputs on; their marks have been put together before.
#[derive(Default)]
pub struct Union {
    held: Option<Envelope>,
}

impl Operator for Union {
    fn take(&mut self, envelope: Envelope, _context: &mut Context<'_>) -> Result<(), Error> {
        self.held = Some(envelope);
        Ok(())
    }

    fn give(&mut self, _context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        Ok(self.held.take())
    }
}
