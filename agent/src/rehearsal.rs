//! The dry run of a plan: built as a start builds it, with stand-ins for what would connect (JOB-8, CON-1).
//!
//! Nothing outside is touched, no thread is started, and everything is freed when it returns.

use crate::connector::{self, drop::DropSink};
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_kernel::graph::{Parts, build};
use weir_kernel::io::{Budget, Clock, Polled, Sink, Source, Split, Wake};
use weir_planner::connector::SplitPosition;
use weir_planner::error::Fault;
use weir_planner::plan::{JobPlan, Work};
use weir_planner::spec::JobSpec;

/// Every fault that a start of this plan would meet before it connects: those of each source and sink by its
/// options, then the first one of the graph.
pub fn check(spec: &JobSpec, plan: &JobPlan) -> Vec<Fault> {
    let mut faults = connector::check(spec, plan);
    if let Err(error) = build(plan, parts(plan)) {
        faults.push(Fault::new("unbuildable", "", error.to_failure().message));
    }
    faults
}

fn parts(plan: &JobPlan) -> Parts {
    let instances = || plan.chains.iter().flat_map(|chain| (0..chain.parallelism).map(move |subtask| (chain, subtask)));
    let (mut sources, mut sinks) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
    for (chain, subtask) in instances() {
        for operator in &chain.operators {
            let key = (operator.id.clone(), subtask);
            match &operator.work {
                Work::Source(_) => drop(sources.insert(key, Box::new(StandIn) as Box<dyn Source>)),
                Work::Sink(_) => drop(sinks.insert(key, Box::new(DropSink) as Box<dyn Sink>)),
                Work::Map(_) | Work::Window(_) | Work::Partial(_) | Work::Batch(_) | Work::Top(_) | Work::Buffer(_) | Work::Union => {}
            }
        }
    }
    // Chains that are never stepped never report.
    let (reports, _) = flume::bounded(1);
    Parts {
        sources,
        sinks,
        restored: std::collections::BTreeMap::new(),
        clock: Arc::new(StandIn),
        wakes: instances().map(|(chain, subtask)| ((chain.id, subtask), Arc::new(StandIn) as Arc<dyn Wake>)).collect(),
        reports,
        open_epoch_bytes: weir_kernel::chain::OPEN_EPOCH_BYTES_MAX,
    }
}

/// In the place of a connector, a clock and a shard: an empty source that has ended.
struct StandIn;

impl Source for StandIn {
    fn splits(&self) -> Vec<Split> {
        Vec::new()
    }

    fn poll(&mut self, _budget: Budget) -> Result<Polled, Error> {
        Ok(Polled::End)
    }

    fn cut(&mut self) -> Vec<SplitPosition> {
        Vec::new()
    }

    fn decided(&mut self, _positions: &[SplitPosition]) {}

    fn lag(&self) -> Vec<Option<u64>> {
        Vec::new()
    }

    fn at_end(&self, _split: usize) -> bool {
        true
    }

    fn close(&mut self) {}
}

impl Clock for StandIn {
    fn wall_ms(&self) -> i64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        0
    }
}

impl Wake for StandIn {
    fn wake(&self) {}
}
