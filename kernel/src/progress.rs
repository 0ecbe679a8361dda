//! Watermark of a task: the minimum over its active inputs, never going back (EV-2).
//!
//! When the last active input goes idle the watermark could be any of its inputs', by the order in
//! which they happened to go: a partition with rows and an empty one would close their windows or
//! not by a race of milliseconds. So inputs that end up all idle count as having gone in the order
//! of their watermarks, the least first, and the watermark stays at the greatest (EV-8, C08).

/// What the minimum came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Nothing to tell.
    Same,
    /// The forwarded watermark grew to this.
    Watermark(i64),
    /// No input is active any more; before that the watermark may have grown to the value.
    Idle(Option<i64>),
    /// An input came back; the watermark may have grown to the value.
    Active(Option<i64>),
    /// Every input has ended.
    End,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    watermark: i64,
    idle: bool,
    ended: bool,
}

/// Watermarks of a set of inputs: edges of a task, or splits of a source.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    inputs: Vec<Input>,
    forwarded: Option<i64>,
    idle: bool,
    ended: bool,
}

impl Progress {
    /// `inputs` inputs, all active and without a watermark.
    pub fn new(inputs: usize) -> Self {
        let input = Input { watermark: i64::MIN, idle: false, ended: false };
        Progress { inputs: vec![input; inputs], forwarded: None, idle: false, ended: false }
    }

    /// Adds an input that was found later; it does not pull the forwarded value back (EV-8).
    pub fn add(&mut self, watermark: i64, ended: bool) {
        self.inputs.push(Input { watermark, idle: false, ended });
    }

    /// Input `index` reached `watermark`. Call [`Progress::advance`] afterwards.
    pub fn raise(&mut self, index: usize, watermark: i64) {
        if let Some(input) = self.inputs.get_mut(index) {
            input.watermark = input.watermark.max(watermark);
        }
    }

    /// Input `index` is left out of the minimum, or counts again.
    pub fn set_idle(&mut self, index: usize, idle: bool) {
        if let Some(input) = self.inputs.get_mut(index) {
            input.idle = idle;
        }
    }

    /// Input `index` has given its last row.
    pub fn end(&mut self, index: usize) {
        if let Some(input) = self.inputs.get_mut(index) {
            input.ended = true;
        }
    }

    /// Whether input `index` has ended.
    pub fn has_ended(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(|input| input.ended)
    }

    /// Whether input `index` is left out as idle.
    pub fn is_idle(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(|input| input.idle)
    }

    /// The watermark last forwarded, `i64::MIN` when none.
    pub fn forwarded(&self) -> i64 {
        self.forwarded.unwrap_or(i64::MIN)
    }

    /// What is to be forwarded after a change. An ended input is out of the minimum, but it does
    /// not let the end of time through while another one lives, idle or not.
    pub fn advance(&mut self) -> Advance {
        if self.ended {
            return Advance::Same;
        }
        if self.inputs.iter().all(|input| input.ended) && !self.inputs.is_empty() {
            self.ended = true;
            self.forwarded = Some(i64::MAX);
            return Advance::End;
        }
        let active = self.inputs.iter().filter(|input| !input.ended && !input.idle);
        let Some(minimum) = active.map(|input| input.watermark).min() else {
            if std::mem::replace(&mut self.idle, true) {
                return Advance::Same;
            }
            let quiet = self.inputs.iter().filter(|input| !input.ended).map(|input| input.watermark).max();
            return Advance::Idle(quiet.and_then(|greatest| self.grow(greatest)));
        };
        let grown = self.grow(minimum);
        match (std::mem::replace(&mut self.idle, false), grown) {
            (true, grown) => Advance::Active(grown),
            (false, Some(watermark)) => Advance::Watermark(watermark),
            (false, None) => Advance::Same,
        }
    }

    fn grow(&mut self, watermark: i64) -> Option<i64> {
        let grown = (watermark > self.forwarded()).then_some(watermark);
        if grown.is_some() {
            self.forwarded = grown;
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::{Advance, Progress};

    /// EV-2: the minimum over active inputs, and it never goes back.
    #[test]
    fn minimum_never_goes_back() {
        let mut progress = Progress::new(2);
        progress.raise(0, 10);
        assert_eq!(progress.advance(), Advance::Same, "the other input has none yet");
        progress.raise(1, 5);
        assert_eq!(progress.advance(), Advance::Watermark(5));
        progress.raise(1, 3);
        assert_eq!(progress.advance(), Advance::Same);
        progress.raise(1, 20);
        assert_eq!(progress.advance(), Advance::Watermark(10));
        progress.add(i64::MIN, false);
        assert_eq!(progress.advance(), Advance::Same);
        assert_eq!(progress.forwarded(), 10);
    }

    /// C08: an idle input is left out; when it comes back the forwarded value waits.
    #[test]
    fn idle_input_is_left_out() {
        let mut progress = Progress::new(2);
        progress.raise(0, 100);
        progress.set_idle(1, true);
        assert_eq!(progress.advance(), Advance::Watermark(100));
        progress.set_idle(1, false);
        progress.raise(1, 50);
        assert_eq!(progress.advance(), Advance::Same);
        progress.raise(0, 200);
        assert_eq!(progress.advance(), Advance::Same, "held by the returned input");
        progress.raise(1, 150);
        assert_eq!(progress.advance(), Advance::Watermark(150));
    }

    /// EV-8: all idle, the watermark stays; an ended input does not let the end of time through.
    #[test]
    fn all_idle_stays_and_end_needs_all() {
        let mut progress = Progress::new(2);
        progress.raise(0, 7);
        progress.raise(1, 9);
        assert_eq!(progress.advance(), Advance::Watermark(7));
        progress.end(0);
        assert_eq!(progress.advance(), Advance::Watermark(9));
        progress.set_idle(1, true);
        assert_eq!(progress.advance(), Advance::Idle(None));
        assert_eq!(progress.advance(), Advance::Same);
        progress.set_idle(1, false);
        progress.raise(1, 11);
        assert_eq!(progress.advance(), Advance::Active(Some(11)));
        progress.end(1);
        assert_eq!(progress.advance(), Advance::End);
        assert_eq!(progress.advance(), Advance::Same);
    }

    /// C08: rows in one partition and none in the other close their windows whichever goes idle first.
    #[test]
    fn order_of_going_idle_does_not_matter() {
        for order in [[0, 1], [1, 0]] {
            let mut progress = Progress::new(2);
            progress.raise(0, 100);
            let told: Vec<Advance> = order
                .into_iter()
                .map(|input| {
                    progress.set_idle(input, true);
                    progress.advance()
                })
                .collect();
            assert_eq!(progress.forwarded(), 100, "order {order:?} told {told:?}");
        }
    }
}
