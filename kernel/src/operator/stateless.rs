//! Filter, projection and union: row by row, nothing remembered.

use crate::envelope::{Data, Envelope, batch};
use crate::error::Error;
use crate::eval::Evaluator;
use crate::operator::sift::sift;
use crate::operator::{Context, Operator};
use arrow::datatypes::Schema as ArrowSchema;
use std::sync::Arc;
use weir_planner::id::OperatorId;
use weir_planner::plan::MapWork;
use weir_planner::schema::Schema;
use weir_planner::spec::ErrorPolicy;

/// Filters, then projects. Shape: `input` columns in, `output` columns out, order kept.
pub struct Map {
    on_error: ErrorPolicy,
    filter: Option<Evaluator>,
    project: Option<Vec<Evaluator>>,
    output: Arc<ArrowSchema>,
    held: Option<Envelope>,
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

    fn compute(&self, data: Data, context: &mut Context<'_>) -> Result<Option<Data>, Error> {
        let parts = sift(self.on_error, data, context, &|data, wall_ms| self.apply(data.clone(), wall_ms))?;
        let good: Vec<Data> = parts.into_iter().filter_map(|(_, done)| done).collect();
        if good.is_empty() { Ok(None) } else { Data::concat(&good).map(Some) }
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
