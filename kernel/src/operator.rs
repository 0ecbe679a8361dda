//! The page for operator authors.
//!
//! A chain pulls: it asks its last operator to [`Operator::give`]; when there is nothing to give,
//! the operator before is asked, and what it gives goes into [`Operator::take`]. So an operator
//! holds what one envelope led to and no more, and a window that fires a million rows gives them
//! batch by batch as the way out has room.
//!
//! Rules: `take` is called only after `give` returned `None`. Marks keep their place among rows.
//! At a barrier an operator with state puts what changed into [`Context::images`] before it gives
//! the barrier on. Rows that leave by the side ([`Context::late`], [`Context::error`]) are handed out
//! before the call returns that has seen them.

pub mod batch;
pub mod budget;
pub mod buffer;
pub(crate) mod grouping;
pub mod partial;
pub mod session;
pub(crate) mod judged;
pub(crate) mod results;
pub(crate) mod sift;
pub mod stateless;
pub mod top;
pub mod window;

use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::io::FrozenImage;
use crate::metric::TaskMetrics;
use crate::side::{ErrorRow, Side, Sides};
use arrow::array::Int64Array;

/// What an operator sees of its chain while it works.
pub struct Context<'a> {
    /// Processing time of the step, ms.
    pub wall_ms: i64,
    /// Monotonic time of the step: what [`Operator::until_ns`] is measured by.
    pub now_ns: u64,
    /// Counters of this operator's task.
    pub metrics: &'a TaskMetrics,
    /// Changed state, at a barrier.
    pub images: &'a mut Vec<FrozenImage>,
    /// Set when an epoch has something to record (EPO-7).
    pub changed: &'a mut bool,
    /// Position of this operator in its chain.
    pub(crate) task: usize,
    /// Side edges of the chain.
    pub(crate) sides: &'a mut Sides,
}

impl Context<'_> {
    /// Whether this operator's rows of `side` go to another chain: [`Context::late`] and the like
    /// may be called.
    pub fn routes(&self, side: Side) -> bool {
        self.sides.wired(self.task, side)
    }

    /// Routes rows of this operator's input that came too late, with by how many ms each. Counts
    /// them as routed; that they were late is the caller's to count.
    ///
    /// Errors: `Bug` when the plan has no such edge.
    pub fn late(&mut self, data: &Data, late_by_ms: &Int64Array) -> Result<(), Error> {
        self.sides.late(self.task, self.metrics, data, late_by_ms)
    }

    /// Routes rows that this operator could not compute.
    pub(crate) fn error(&mut self, bad: &[ErrorRow]) -> Result<(), Error> {
        self.sides.error(self.task, self.metrics, bad, self.wall_ms)
    }
}

/// One operator of a chain, between its head and its way out.
pub trait Operator: Send {
    /// Takes the next envelope.
    fn take(&mut self, envelope: Envelope, context: &mut Context<'_>) -> Result<(), Error>;

    /// Gives the next envelope that follows from what was taken; `None` when it wants more.
    fn give(&mut self, context: &mut Context<'_>) -> Result<Option<Envelope>, Error>;

    /// When [`Operator::give`] would give something though nothing more is taken, by the monotonic
    /// clock; the chain steps then at the latest. `None`: never. An operator whose moment has come
    /// must give, or move it.
    fn until_ns(&self) -> Option<u64> {
        None
    }

    /// How many rows of the job these are: more than the batch has where each stands for several
    /// (WIN-7), so that counters count rows.
    fn rows_of(&self, data: &Data) -> u64 {
        data.len() as u64
    }
}
