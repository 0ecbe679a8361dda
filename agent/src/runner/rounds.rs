//! Carries out what the pure part says of an attempt's checkpoints.

use super::Coordinator;
use super::checkpoints::{Standing, Step};
use crate::checkpoint::round::{self, Made, Wanted};
use crate::error::Error;
use crate::region::{Region, Work};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_planner::id::{CheckpointId, EpochId, RegionId};
use weir_planner::protocol::Level;
use weir_planner::spec::Horizon;

impl Coordinator {
    /// Begins a checkpoint when one is due.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        let decided: Option<BTreeMap<RegionId, EpochId>> = self.regions.iter().map(|r| Some((r.id, r.epoch()?))).collect();
        let standing = |region: &Region| {
            let (injected, stored) = region.rounds();
            Standing { injected, stored, over: region.is_over() }
        };
        let regions: Vec<Standing> = self.regions.iter().map(standing).collect();
        match checkpoints.step(self.shared.context.now_ms(), decided.as_ref(), &regions, self.attempt.next_asked()) {
            Step::Wait => Ok(()),
            Step::Hurry => (0..self.regions.len()).try_for_each(|region| self.with(region, Region::hurry)),
            Step::Begin(asked, kind) => {
                let Some(means) = self.shared.context.means(&self.attempt.job) else { return Ok(()) };
                let wanted = Wanted {
                    job: self.attempt.job.clone(),
                    attempt: self.attempt.id,
                    id: asked,
                    kind,
                    started_at_ms: self.shared.context.clock.wall_ms(),
                    align_ms: self.regions.iter().map(Region::align_ms).max().unwrap_or_default(),
                    timeout: Duration::from_millis(self.attempt.plan.checkpoint.timeout_ms),
                };
                let stored = self.stored.clone();
                self.round.push(Box::pin(async move {
                    let result = Box::new(round::make(&means, &wanted, &stored).await);
                    Work::Checkpointed { asked, result }
                }));
                Ok(())
            }
        }
    }

    /// Takes over how a checkpoint ended. A failed one leaves the job as it was.
    pub(super) fn checkpointed(&mut self, asked: Option<CheckpointId>, result: Result<Made, Error>) {
        if let Some(id) = asked {
            self.attempt.not_asked(id);
        }
        let at_ms = self.shared.context.clock.wall_ms();
        match result {
            Ok(Made { manifest, stored, warnings }) => {
                self.stored = stored;
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.ended(Some(manifest.cuts.iter().map(|(region, cut)| (*region, cut.epoch)).collect()));
                }
                if self.shared.horizon == Horizon::Sealed {
                    for region in &mut self.regions {
                        if let Some(cut) = manifest.cuts.get(&region.id) {
                            region.passed(cut);
                        }
                    }
                }
                for warning in warnings {
                    self.attempt.note(at_ms, Level::Warn, "checkpoint_warning", warning, None, 1);
                }
            }
            Err(error) => {
                let message = error.to_failure().message;
                tracing::warn!(job = %self.attempt.job, error = %message, "checkpoint failed");
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.ended(None);
                }
                self.attempt.note(at_ms, Level::Warn, "checkpoint_failed", message, None, 1);
            }
        }
    }
}
