//! The first rows of each window by an order.
//!
//! What it takes are the rows of a window operator: those of one window have one event time,
//! `window_end` less 1 ms, beside them. All of them have come when the watermark passes that time, and
//! only then can it be said which are first. Rows that an order does not tell apart are ordered
//! by all of their columns, so that the answer does not depend on how they came (EV-3).

use crate::envelope::{BATCH_ROWS, Data, Envelope, batch};
use crate::error::Error;
use crate::io::{FrozenImage, Restored};
use crate::operator::budget::{Holding, Seat};
use crate::operator::grouping::key_columns;
use crate::operator::{Context, Operator};
use crate::state::tops::{Shape, Tops};
use arrow::array::{BooleanArray, Int64Array};
use arrow::datatypes::Schema as ArrowSchema;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::TopWork;
use weir_planner::schema::Schema;

/// What a watermark has let go.
struct Firing {
    watermark: i64,
    /// Rows with their places, and how many of them have gone.
    rows: Option<(Data, Int64Array, usize)>,
}

/// A top. Shape: any rows in; the same columns out and, where it is named, the place of each row in its
/// group from 1. Rows come by time and key, and in each group in order.
pub struct Top {
    place: bool,
    output: Arc<ArrowSchema>,
    tops: Tops,
    holding: Holding,
    held: Option<Envelope>,
    firing: Option<Firing>,
}

impl Top {
    /// Builds a top and puts its rows back.
    ///
    /// Errors: columns that are not there, a top without order or rows, state of another shape.
    pub fn new(id: &OperatorId, work: &TopWork, input: &Schema, output: &Schema, seat: Seat, restored: &Restored) -> Result<Self, Error> {
        let names: Vec<String> = work.order_by.iter().map(|(name, _)| name.clone()).collect();
        let order =
            key_columns(id, &names, input)?.into_iter().zip(&work.order_by).map(|(at, (_, order))| (at, *order)).collect::<Vec<_>>();
        let limit = usize::try_from(work.limit).unwrap_or(usize::MAX);
        if order.is_empty() || limit == 0 {
            return Err(Error::new(Class::User, format!("operator '{id}': a top needs an order and a limit above 0")));
        }
        let mut tops = Tops::new(Shape {
            operator: id.clone(),
            subtask: seat.subtask,
            rows: Arc::new(input.to_arrow()),
            keys: key_columns(id, &work.keys, input)?,
            order,
            limit,
            max_parallelism: seat.max_parallelism,
            owned: seat.owned(),
        })?;
        tops.restore(restored)?;
        Ok(Top {
            place: work.place.is_some(),
            output: Arc::new(output.to_arrow()),
            tops,
            holding: Holding::new(id, seat.budget, "use a smaller limit or fewer keys"),
            held: None,
            firing: None,
        })
    }

    /// Takes rows. Those of a time that has been given are late: only after an input was idle (EV-4).
    fn add(&mut self, data: Data, context: &mut Context<'_>) -> Result<(), Error> {
        let fired_ms = self.tops.fired_ms();
        let data = if data.times.values().iter().any(|time| *time < fired_ms) {
            let keep: BooleanArray = data.times.values().iter().map(|time| Some(*time >= fired_ms)).collect();
            let late: Vec<u64> = data.times.values().iter().map(|time| u64::from(*time < fired_ms)).collect();
            context.metrics.late(&data.origins, &late);
            context.metrics.rows_retired.fetch_add(late.iter().sum(), Ordering::Relaxed);
            data.filter(&keep)?
        } else {
            data
        };
        self.tops.add(data)?;
        self.account(context)
    }

    fn account(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        self.holding.tell(self.tops.len(), self.tops.bytes(), context.metrics)
    }

    /// The next rows of those that a watermark has let go.
    fn next(&self, rows: &mut Option<(Data, Int64Array, usize)>) -> Result<Option<Data>, Error> {
        let Some((data, places, gone)) = rows else { return Ok(None) };
        let count = (data.len() - *gone).min(BATCH_ROWS);
        let part = data.slice(*gone, count);
        let mut columns = part.rows.columns().to_vec();
        if self.place {
            columns.push(Arc::new(places.slice(*gone, count)));
        }
        *gone += count;
        if *gone == data.len() {
            *rows = None;
        }
        Ok(Some(Data { rows: batch(self.output.clone(), columns, count)?, ..part }))
    }
}

impl Operator for Top {
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.add(data, context)?,
            Envelope::Watermark(watermark) => {
                let rows = self.tops.fire(watermark)?.map(|(data, places)| (data, places, 0));
                *context.changed |= rows.is_some();
                self.account(context)?;
                self.firing = Some(Firing { watermark, rows });
            }
            Envelope::Barrier(_) => {
                context.images.extend(self.tops.freeze()?.map(FrozenImage::from));
                self.account(context)?;
                self.held = Some(envelope);
            }
            Envelope::Idle | Envelope::Active | Envelope::End => self.held = Some(envelope),
        }
        Ok(())
    }

    fn give(&mut self, _context: &mut Context<'_>) -> Result<Option<Envelope>, Error> {
        let Some(mut firing) = self.firing.take() else {
            return Ok(self.held.take());
        };
        Ok(Some(match self.next(&mut firing.rows)? {
            Some(data) => {
                self.firing = Some(firing);
                Envelope::Data(data)
            }
            None => Envelope::Watermark(firing.watermark),
        }))
    }
}

#[cfg(test)]
mod tests;
