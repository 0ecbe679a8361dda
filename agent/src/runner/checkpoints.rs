//! When an attempt makes checkpoints: the pure part. A checkpoint is of what is decided already, so nothing that
//! rows wait for is held up; one that was asked for waits for one more epoch of every region.

use std::collections::BTreeMap;
use weir_planner::id::{CheckpointId, EpochId, RegionId};
use weir_planner::manifest::CheckpointKind;

/// How a region stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Sequence of its last barrier.
    pub injected: u64,
    /// Sequence of its last decided round.
    pub stored: u64,
    /// Nothing more happens there.
    pub over: bool,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait.
    Wait,
    /// Have every region decide one more epoch.
    Hurry,
    /// Make a checkpoint, of this id where the hub asked for it.
    Begin(Option<CheckpointId>, CheckpointKind),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Quiet,
    /// Each region is to decide at least this sequence for the checkpoint that was asked for.
    Awaiting(CheckpointId, CheckpointKind, Vec<u64>),
    Open,
}

/// When checkpoints of an attempt are due.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    interval_ms: u64,
    next_ms: u64,
    stage: Stage,
    /// Epochs of the last sealed one.
    sealed: BTreeMap<RegionId, EpochId>,
}

impl Checkpoints {
    /// One every `interval_ms`, the first after that long. `sealed`: what the attempt began from, where that is a checkpoint.
    pub fn new(interval_ms: u64, now_ms: u64, sealed: BTreeMap<RegionId, EpochId>) -> Self {
        Checkpoints { interval_ms, next_ms: now_ms.saturating_add(interval_ms), stage: Stage::Quiet, sealed }
    }

    /// When time alone brings one, monotonic ms.
    pub fn due_ms(&self) -> Option<u64> {
        (self.stage == Stage::Quiet).then_some(self.next_ms)
    }

    /// What to do. `decided` are the epochs of all regions once each has decided one, `asked` is the checkpoint that was
    /// asked for first.
    pub fn step(
        &mut self,
        now_ms: u64,
        decided: Option<&BTreeMap<RegionId, EpochId>>,
        regions: &[Standing],
        asked: Option<(CheckpointId, CheckpointKind)>,
    ) -> Step {
        match (&self.stage, asked) {
            (Stage::Open, _) => Step::Wait,
            (Stage::Quiet, Some((id, kind))) => {
                // A barrier that is under way was put before the question.
                let wanted = regions.iter().map(|region| region.injected + 1).collect();
                self.stage = Stage::Awaiting(id, kind, wanted);
                Step::Hurry
            }
            (Stage::Awaiting(id, kind, wanted), _) => {
                let there = regions.iter().zip(wanted).all(|(region, wanted)| region.over || region.stored >= *wanted);
                let begin = Step::Begin(Some(*id), *kind);
                if there && decided.is_some() {
                    self.stage = Stage::Open;
                    return begin;
                }
                Step::Wait
            }
            (Stage::Quiet, None) => {
                if now_ms < self.next_ms {
                    return Step::Wait;
                }
                self.next_ms = now_ms.saturating_add(self.interval_ms);
                match decided {
                    // Where nothing was decided since, there is nothing to seal (EPO-7).
                    Some(decided) if *decided != self.sealed => {
                        self.stage = Stage::Open;
                        Step::Begin(None, CheckpointKind::Checkpoint)
                    }
                    Some(_) | None => Step::Wait,
                }
            }
        }
    }

    /// The checkpoint that was begun is sealed, with these epochs, or has failed.
    pub fn ended(&mut self, sealed: Option<BTreeMap<RegionId, EpochId>>) {
        self.stage = Stage::Quiet;
        if let Some(sealed) = sealed {
            self.sealed = sealed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoints, Standing, Step};
    use std::collections::BTreeMap;
    use weir_planner::id::{Attempt, CheckpointId, EpochId, RegionId};
    use weir_planner::manifest::CheckpointKind;

    fn epochs(sequence: u64) -> BTreeMap<RegionId, EpochId> {
        BTreeMap::from([(RegionId::new(0), EpochId { attempt: Attempt::new(1), sequence })])
    }

    fn at(injected: u64, stored: u64) -> [Standing; 1] {
        [Standing { injected, stored, over: false }]
    }

    const DUE: Step = Step::Begin(None, CheckpointKind::Checkpoint);

    /// EPO-7, CKP-3: one each interval where something was decided, one at a time, and the next right after a failed one.
    #[test]
    fn one_each_interval_where_something_changed() {
        let mut checkpoints = Checkpoints::new(100, 0, BTreeMap::new());
        assert_eq!(checkpoints.step(99, Some(&epochs(1)), &at(1, 1), None), Step::Wait);
        assert_eq!(checkpoints.step(100, None, &at(1, 1), None), Step::Wait, "nothing is decided");
        assert_eq!(checkpoints.step(200, Some(&epochs(1)), &at(1, 1), None), DUE);
        assert_eq!(checkpoints.step(900, Some(&epochs(2)), &at(2, 2), None), Step::Wait, "one is open");
        checkpoints.ended(Some(epochs(1)));
        assert_eq!(checkpoints.step(901, Some(&epochs(1)), &at(2, 2), None), Step::Wait, "that one is sealed");
        assert_eq!(checkpoints.step(1_001, Some(&epochs(2)), &at(2, 2), None), DUE);
        checkpoints.ended(None);
        assert_eq!(checkpoints.step(1_101, Some(&epochs(2)), &at(2, 2), None), DUE, "the failed one is made again");
    }

    /// CKP-2: one that was asked for holds what came before the question: a barrier of before does not count.
    #[test]
    fn one_that_was_asked_for_waits_for_one_more_epoch() {
        let mut checkpoints = Checkpoints::new(100, 0, BTreeMap::new());
        let asked = Some((CheckpointId::new(7), CheckpointKind::Savepoint));
        assert_eq!(checkpoints.step(1, Some(&epochs(4)), &at(5, 4), asked), Step::Hurry);
        assert_eq!(checkpoints.step(2, Some(&epochs(5)), &at(5, 5), asked), Step::Wait);
        assert_eq!(
            checkpoints.step(3, Some(&epochs(6)), &at(6, 6), asked),
            Step::Begin(Some(CheckpointId::new(7)), CheckpointKind::Savepoint)
        );
        checkpoints.ended(Some(epochs(6)));
        // A region that is over decides no more.
        assert_eq!(checkpoints.step(4, Some(&epochs(6)), &at(6, 6), asked), Step::Hurry);
        let over = [Standing { over: true, ..at(6, 6)[0] }];
        assert_eq!(checkpoints.step(5, Some(&epochs(6)), &over, asked), Step::Begin(Some(CheckpointId::new(7)), CheckpointKind::Savepoint));
    }
}
