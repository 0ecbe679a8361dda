//! One chain as a machine: `step(budget)`, no async, no locks on the data path (KER-1).

use crate::error::Error;
use crate::io::{ChainCut, SinkHandle};
use crate::metric::ChainMetrics;
use std::sync::Arc;
use weir_planner::connector::SplitPosition;
use weir_planner::id::{ChainId, EpochId, TaskId};

/// What the region coordinator tells a chain. Sent over a bounded channel, looked at before each batch.
#[derive(Clone, Debug)]
pub enum Control {
    /// Source chains only: put this barrier after the current batch.
    Barrier(EpochId),
    /// The epoch is decided: pass it to source (with its positions) and sinks.
    Decided {
        /// Which.
        epoch: EpochId,
        /// Positions of this chain's source in it.
        positions: Vec<SplitPosition>,
    },
    /// Source chains only: take no more input (no end of stream); barriers are still answered.
    Drain,
}

/// What a chain tells the region coordinator.
#[derive(Debug)]
pub enum ChainReport {
    /// The barrier passed; state is frozen and handed over, the chain goes on.
    Cut {
        /// Chain.
        chain: ChainId,
        /// Subtask.
        subtask: u32,
        /// Epoch.
        epoch: EpochId,
        /// Frozen parts.
        cut: ChainCut,
    },
    /// Every sink of the chain has flushed what came before the barrier. Sent after `Cut`, by
    /// every chain (at once by one without sinks).
    Flushed {
        /// Chain.
        chain: ChainId,
        /// Subtask.
        subtask: u32,
        /// Epoch.
        epoch: EpochId,
        /// Handle of each sink task.
        sinks: Vec<(TaskId, SinkHandle)>,
    },
}

/// What a step did.
#[derive(Debug)]
pub enum Step {
    /// Something; step again soon.
    Worked,
    /// Nothing to do until a wake-up, or `until_ns` at the latest.
    Idle {
        /// Monotonic.
        until_ns: Option<u64>,
    },
    /// Held back by a full edge, sink or report channel; woken when there is room, or `until_ns`.
    Blocked {
        /// Monotonic.
        until_ns: Option<u64>,
    },
    /// The task failed; do not step again, close it.
    Failed(Error),
}

/// A chain instance.
pub struct Chain {
    metrics: Arc<ChainMetrics>,
    control: flume::Sender<Control>,
}

impl Chain {
    /// Which chain and subtask.
    pub fn id(&self) -> (ChainId, u32) {
        (ChainId::new(0), 0)
    }

    /// At most one batch of work, about a millisecond; control first (KER-8).
    pub fn step(&mut self) -> Step {
        Step::Idle { until_ns: None }
    }

    /// Where control goes. Wake the chain after sending.
    pub fn control(&self) -> flume::Sender<Control> {
        self.control.clone()
    }

    /// Counters, shared with whoever reports them.
    pub fn metrics(&self) -> Arc<ChainMetrics> {
        self.metrics.clone()
    }

    /// Closes source and sinks; idempotent.
    pub fn close(&mut self) {}
}
