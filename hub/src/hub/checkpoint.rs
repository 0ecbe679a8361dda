//! The hub's verbs for checkpoints and savepoints.

use super::{DesiredState, Hub, Result};
use crate::checkpoint::Checkpoint;
use std::sync::Arc;
use weir_planner::id::{CheckpointId, JobId};
use weir_planner::manifest::CheckpointKind;

/// What a start begins from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// What the job has decided last, as its `recovery` says.
    Newest,
    /// Nothing: what it has is deleted.
    Fresh,
    /// This checkpoint or savepoint; what came after it is deleted.
    Checkpoint(CheckpointId),
}

impl Hub {
    /// Begins a checkpoint or savepoint of a job, and gives its id; [`Hub::wait_for_checkpoint`] waits for its end.
    ///
    /// Errors: no such job, or one that has nothing to make it of, with the reason.
    pub async fn checkpoint(&self, job: &JobId, kind: CheckpointKind) -> Result<CheckpointId> {
        let id = job.clone();
        self.change(move |world, now| world.ask_checkpoint(&id, kind, false, now)).await
    }

    /// Stops a job and makes a savepoint of its last cut, and gives the savepoint's id.
    ///
    /// Errors: as [`Hub::checkpoint`].
    pub async fn stop_with_savepoint(&self, job: &JobId) -> Result<CheckpointId> {
        let id = job.clone();
        self.change(move |world, now| {
            let savepoint = world.ask_checkpoint(&id, CheckpointKind::Savepoint, true, now)?;
            world.set_desired(&id, DesiredState::Stopped, None, StartFrom::Newest, now)?;
            Ok(savepoint)
        })
        .await
    }

    /// Gives up a savepoint.
    ///
    /// Errors: there is no such savepoint.
    pub async fn drop_savepoint(&self, id: CheckpointId) -> Result<()> {
        self.change(move |world, _| world.drop_savepoint(id)).await
    }

    /// Checkpoints and savepoints, of one job or of all, oldest first.
    pub fn checkpoints(&self, job: Option<&JobId>) -> Vec<Arc<Checkpoint>> {
        let view = self.view();
        view.checkpoints.values().filter(|record| job.is_none_or(|job| record.job == *job)).cloned().collect()
    }
}
