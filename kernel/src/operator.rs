//! The page for operator authors.
//!
//! A chain pulls: it asks its last operator to [`Operator::give`]; when there is nothing to give,
//! the operator before is asked, and what it gives goes into [`Operator::take`]. So an operator
//! holds what one envelope led to and no more, and a window that fires a million rows gives them
//! batch by batch as the way out has room.
//!
//! Rules: `take` is called only after `give` returned `None`. Marks keep their place among rows.
//! At a barrier an operator with state puts what changed into [`Context::images`] before it gives
//! the barrier on.

pub mod stateless;
pub mod window;

use crate::envelope::{Data, Envelope};
use crate::error::Error;
use crate::io::StateImage;
use crate::metric::TaskMetrics;

/// What an operator sees of its chain while it works.
pub struct Context<'a> {
    /// Processing time of the step, ms.
    pub wall_ms: i64,
    /// Monotonic time of the step: what [`Operator::until_ns`] is measured by.
    pub now_ns: u64,
    /// Counters of this operator's task.
    pub metrics: &'a TaskMetrics,
    /// Changed state, at a barrier.
    pub images: &'a mut Vec<StateImage>,
    /// Set when an epoch has something to record (EPO-7).
    pub changed: &'a mut bool,
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
