//! Plan share and ports to wired chains: the one exhaustive match on operators.

use crate::chain::{Chain, ChainReport};
use crate::error::Error;
use crate::io::{Clock, Restored, Sink, Source, Wake};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::id::{ChainId, OperatorId};
use weir_planner::plan::JobPlan;

/// What the agent brings for a plan: opened connectors, state, clock, wake-ups, a place for reports.
pub struct Parts {
    /// One opened source for each source task.
    pub sources: BTreeMap<(OperatorId, u32), Box<dyn Source>>,
    /// One opened sink for each sink task.
    pub sinks: BTreeMap<(OperatorId, u32), Box<dyn Sink>>,
    /// State for each stateful operator task; missing means empty.
    pub restored: BTreeMap<(OperatorId, u32), Restored>,
    /// Restored running maximum of event time by source task and split name comes with
    /// [`crate::io::Split::time_max_ms`].
    pub clock: Arc<dyn Clock>,
    /// Wakes chain and subtask on its shard.
    pub wakes: BTreeMap<(ChainId, u32), Arc<dyn Wake>>,
    /// Bounded; a chain that finds it full tries again in its next step.
    pub reports: flume::Sender<ChainReport>,
}

/// Builds every chain instance of a plan, edges wired, state restored, nothing running yet.
///
/// Errors: an expression that cannot be built, state that does not verify.
#[allow(clippy::needless_pass_by_value)]
pub fn build(plan: &JobPlan, parts: Parts) -> Result<Vec<Chain>, Error> {
    let _ = (plan, parts);
    Err(Error::new(weir_planner::error::Class::Bug, "not built yet"))
}
