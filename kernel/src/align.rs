//! Barriers across inputs: an input whose barrier came early is not read until the others' came.
//! There is no side buffer; what waits, waits in its edge (KER-2).

use weir_planner::error::Class;
use weir_planner::id::EpochId;

use crate::error::Error;

/// Alignment of the inputs of one task. Inputs that ended keep giving barriers (EPO-7), so every
/// input takes part in every barrier.
#[derive(Clone, Debug)]
pub struct Align {
    arrived: Vec<bool>,
    open: Option<EpochId>,
    missing: usize,
}

impl Align {
    /// `inputs` inputs, no barrier under way.
    pub fn new(inputs: usize) -> Self {
        Align { arrived: vec![false; inputs], open: None, missing: inputs }
    }

    /// Whether input `index` must not be read now.
    pub fn holds(&self, index: usize) -> bool {
        self.arrived.get(index).copied().unwrap_or(false)
    }

    /// The barrier of `epoch` came on input `index`. Gives the epoch when it was the last one.
    ///
    /// Errors: a barrier of another epoch than the open one, which a FIFO edge cannot bring.
    pub fn arrive(&mut self, index: usize, epoch: EpochId) -> Result<Option<EpochId>, Error> {
        let open = *self.open.get_or_insert(epoch);
        if open != epoch {
            return Err(Error::new(Class::Bug, format!("barrier {epoch} came while {open} was aligning")));
        }
        let Some(arrived) = self.arrived.get_mut(index) else {
            return Err(Error::new(Class::Bug, format!("barrier {epoch} came on input {index}, which does not exist")));
        };
        if !std::mem::replace(arrived, true) {
            self.missing -= 1;
        }
        if self.missing > 0 {
            return Ok(None);
        }
        self.missing = self.arrived.len();
        self.arrived.fill(false);
        self.open = None;
        Ok(Some(epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::Align;
    use weir_planner::id::{Attempt, EpochId};

    /// B2: held until all came, then read again.
    #[test]
    fn holds_early_inputs() {
        let epoch = |sequence| EpochId { attempt: Attempt::new(1), sequence };
        let mut align = Align::new(3);
        assert_eq!(align.arrive(1, epoch(1)).unwrap(), None);
        assert!(align.holds(1) && !align.holds(0) && !align.holds(2));
        assert!(align.arrive(0, epoch(2)).is_err(), "two epochs at once");
        assert_eq!(align.arrive(0, epoch(1)).unwrap(), None);
        assert_eq!(align.arrive(2, epoch(1)).unwrap(), Some(epoch(1)));
        assert!(!align.holds(0) && !align.holds(1) && !align.holds(2));
        assert_eq!(align.arrive(2, epoch(2)).unwrap(), None);
    }
}
