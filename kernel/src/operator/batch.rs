//! An aggregate over each batch for itself: nothing is remembered from one to the next.

use crate::envelope::{Data, Envelope, batch};
use crate::error::Error;
use crate::eval::{Evaluator, constant_times};
use crate::operator::grouping::{Grouping, Groups, Scratch, key_columns};
use crate::operator::results::having;
use crate::operator::sift::sift;
use crate::operator::{Context, Operator};
use crate::origin::Origins;
use arrow::datatypes::Schema as ArrowSchema;
use std::cmp::Reverse;
use std::sync::Arc;
use weir_planner::id::OperatorId;
use weir_planner::plan::BatchWork;
use weir_planner::schema::Schema;
use weir_planner::spec::ErrorPolicy;

/// Groups the rows of each batch. Shape: any rows in; keys and aggregates out, one batch for each
/// that came, which may be empty, in the order in which the keys first appear in it. Without
/// aggregates these are the distinct keys. Its rows have the time and the stamp of the latest
/// row of the batch, and come from a partition where all rows of it do.
pub struct Batch {
    grouping: Grouping,
    groups: Groups,
    scratch: Scratch,
    having: Option<Evaluator>,
    output: Arc<ArrowSchema>,
    on_error: ErrorPolicy,
    held: Option<Envelope>,
}

impl Batch {
    /// Builds the aggregate.
    ///
    /// Errors: expressions or types that do not fit.
    pub fn new(id: &OperatorId, work: &BatchWork, input: &Schema, output: &Schema) -> Result<Self, Error> {
        let types: Vec<_> = key_columns(id, &work.keys, input)?.iter().map(|i| input.0[*i].ty.to_arrow()).collect();
        Ok(Batch {
            grouping: Grouping::new(id, &work.keys, &work.aggregates, input)?,
            groups: Groups::new(id, &types, &work.aggregates)?,
            scratch: Scratch::default(),
            having: work.having.as_ref().map(|having| Evaluator::condition(id, having, output)).transpose()?,
            output: Arc::new(output.to_arrow()),
            on_error: work.on_error,
            held: None,
        })
    }

    fn aggregate(&mut self, data: &Data, context: &mut Context<'_>) -> Result<Data, Error> {
        let grouping = &self.grouping;
        let parts = sift(self.on_error, data.clone(), context, &|data, wall_ms| grouping.piece(data, wall_ms))?;
        self.groups.clear();
        for (_, piece) in parts {
            self.groups.add(&piece, &mut self.scratch)?;
        }
        let all: Vec<u32> = (0..self.groups.len() as u32).collect();
        let columns = self.groups.results(&all)?;
        // The latest row, of several the one that is least late: were it late, then all of them would be.
        let stamp = |row: usize| data.stamps.as_ref().map(|stamps| stamps.value(row));
        let latest = (0..data.len()).max_by_key(|row| (data.times.value(*row), Reverse(stamp(*row))));
        let times = constant_times(latest.map_or(0, |row| data.times.value(row)), all.len());
        let stamps = latest.and_then(stamp).map(|stamp| constant_times(stamp, all.len()));
        let origins = data.origins.only().cloned().map_or(Origins::Unknown, Origins::One);
        let data = Data { rows: batch(self.output.clone(), columns, all.len())?, times, stamps, origins };
        having(self.having.as_ref(), data, context.wall_ms)
    }
}

impl Operator for Batch {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        self.held = Some(match envelope {
            Envelope::Data(data) => Envelope::Data(self.aggregate(&data, context)?),
            Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => envelope,
        });
        Ok(())
    }

    fn give(&mut self, _context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        Ok(self.held.take())
    }
}

#[cfg(test)]
mod tests;
