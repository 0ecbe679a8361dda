//! What passes between a chain and the coordinator of its region.

use crate::io::{ChainCut, SinkHandle};
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
    /// The horizon has passed these positions of this chain's source (EPO-8).
    Passed {
        /// Of the epoch that is now the earliest that a restart can begin from.
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
