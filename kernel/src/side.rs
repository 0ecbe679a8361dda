//! Side outputs of a chain (PLAN-5): rows that one of its operators judged late or could not take,
//! on their way to other chains. Marks go to them in step with the main way out.
//!
//! An operator hands rows out while it works on one envelope, before it gives that envelope's
//! successors on, and a mark reaches the side edges only when it has passed every operator. So what
//! was handed out before a barrier lies before it on each side edge, and what comes after lies after.

pub(crate) mod rows;

use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::metric::TaskMetrics;
use crate::origin::Origins;
use crate::route::Output;
use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::Schema as ArrowSchema;
pub(crate) use rows::ErrorRow;
pub use rows::{RAW_BYTES_MAX, json as row_texts};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_planner::error::Class;

/// Which rows leave an operator by the side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What it could not take, as [`weir_planner::schema::error_rows`].
    Error,
    /// What came too late or without a time, as [`weir_planner::schema::late_rows`].
    Late,
}

/// Value of [`weir_planner::schema::REASON_COLUMN`] of rows that came too late.
pub(crate) const LATE: &str = "late";
/// Value of [`weir_planner::schema::REASON_COLUMN`] of rows without a time.
pub(crate) const NULL_TIMESTAMP: &str = "null_timestamp";

/// One side edge.
pub(crate) struct SideEdge {
    /// Position of the operator in its chain.
    pub(crate) task: usize,
    pub(crate) side: Side,
    /// What the consumer takes.
    pub(crate) schema: Arc<ArrowSchema>,
    pub(crate) output: Output,
}

/// All side edges of a chain instance; mostly there are none.
#[derive(Default)]
pub(crate) struct Sides {
    edges: Vec<SideEdge>,
}

impl Sides {
    pub(crate) fn new(edges: Vec<SideEdge>) -> Self {
        Sides { edges }
    }

    /// Whether rows of `side` of the operator at `task` go anywhere.
    pub(crate) fn wired(&self, task: usize, side: Side) -> bool {
        self.edges.iter().any(|edge| edge.task == task && edge.side == side)
    }

    /// Whether everything handed out has found room. Each edge is flushed, also after one that is full.
    pub(crate) fn flush(&mut self) -> bool {
        self.edges.iter_mut().map(|edge| edge.output.flush()).filter(|flushed| !flushed).count() == 0
    }

    /// Passes a mark to every side edge, after the rows handed out before it. Rows stay on the main way.
    pub(crate) fn mark(&mut self, envelope: &Envelope) -> Result<(), Error> {
        match envelope {
            Envelope::Data(_) => Ok(()),
            Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => {
                self.edges.iter_mut().try_for_each(|edge| edge.output.accept(envelope.clone()))
            }
        }
    }

    /// Lets go of gathered rows: nothing more comes for now. True when there were any.
    pub(crate) fn settle(&mut self) -> Result<bool, Error> {
        let mut any = false;
        for edge in &mut self.edges {
            any |= edge.output.settle()?;
        }
        Ok(any)
    }

    /// Hands out rows of the operator at `task`, each edge's in the columns that its consumer takes.
    fn give(
        &mut self,
        task: usize,
        side: Side,
        metrics: &TaskMetrics,
        rows: usize,
        shaped: impl Fn(&Arc<ArrowSchema>) -> Result<Vec<Data>, Error>,
    ) -> Result<(), Error> {
        let mut wired = false;
        for edge in self.edges.iter_mut().filter(|edge| edge.task == task && edge.side == side) {
            wired = true;
            for data in shaped(&edge.schema)? {
                edge.output.accept(Envelope::Data(data))?;
            }
        }
        if !wired {
            return Err(Error::new(Class::Bug, format!("task {} routes rows by an edge that its plan does not have", metrics.task)));
        }
        metrics.rows_routed.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Hands out rows judged late, with by how many ms each.
    pub(crate) fn late(&mut self, task: usize, metrics: &TaskMetrics, data: &Data, late_by_ms: &Int64Array) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        self.give(task, Side::Late, metrics, data.len(), |schema| Ok(vec![rows::late(data, LATE, late_by_ms, schema)?]))
    }

    /// Hands out rows without a time; they travel with that of the wall clock.
    pub(crate) fn timeless(&mut self, task: usize, metrics: &TaskMetrics, rows: RecordBatch, wall_ms: i64) -> Result<(), Error> {
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        let data = Data { rows, times: Int64Array::from_value(wall_ms, count), stamps: None, origins: Origins::Unknown };
        let unknown = Int64Array::new_null(count);
        self.give(task, Side::Late, metrics, count, |schema| Ok(vec![rows::late(&data, NULL_TIMESTAMP, &unknown, schema)?]))
    }

    /// Hands out what could not be taken.
    pub(crate) fn error(&mut self, task: usize, metrics: &TaskMetrics, bad: &[ErrorRow], wall_ms: i64) -> Result<(), Error> {
        if bad.is_empty() {
            return Ok(());
        }
        let operator = metrics.task.operator.as_str();
        self.give(task, Side::Error, metrics, bad.len(), |schema| rows::errors(operator, bad, wall_ms, schema))
    }
}
