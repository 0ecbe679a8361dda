//! Watermark of a task: the minimum over its active inputs, never going back (EV-2).
//!
//! When the last active input goes idle the watermark could be any of its inputs', by the order in
//! which they happened to go: a partition with rows and an empty one would close their windows or
//! not by a race of milliseconds. So inputs that end up all idle count as having gone in the order
//! of their watermarks, the least first, and the watermark stays at the greatest (EV-8, C08). Ended
//! ones count among them: they too are out of the minimum for good. While all are idle only a clock
//! upstream moves an input on, and then the greatest goes on with it.
//!
//! The end of time comes after the greatest watermark of all inputs for the same reason: what was
//! closed before the end does not hang on which input ended last.

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
    /// Every input has ended; before that the watermark may have grown to the value, the greatest of theirs.
    End(Option<i64>),
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
            return self.finish();
        }
        let Some(minimum) = self.holder().map(|input| self.inputs[input].watermark) else {
            let grown = self.greatest().and_then(|greatest| self.grow(greatest));
            return match (std::mem::replace(&mut self.idle, true), grown) {
                (false, grown) => Advance::Idle(grown),
                (true, Some(watermark)) => Advance::Watermark(watermark),
                (true, None) => Advance::Same,
            };
        };
        let grown = self.grow(minimum);
        match (std::mem::replace(&mut self.idle, false), grown) {
            (true, grown) => Advance::Active(grown),
            (false, Some(watermark)) => Advance::Watermark(watermark),
            (false, None) => Advance::Same,
        }
    }

    /// Every input has ended, also where there was none. `Same` when that was told before.
    pub fn finish(&mut self) -> Advance {
        if std::mem::replace(&mut self.ended, true) {
            return Advance::Same;
        }
        self.inputs.iter_mut().for_each(|input| input.ended = true);
        let grown = self.greatest().and_then(|greatest| self.grow(greatest));
        self.forwarded = Some(i64::MAX);
        Advance::End(grown)
    }

    /// The clock moves the watermark on, while every input is idle (EV-8). An input that comes back
    /// behind it waits in the minimum, and the forwarded value waits for it.
    pub fn lift(&mut self, watermark: i64) -> Advance {
        if !self.idle || self.ended {
            return Advance::Same;
        }
        self.grow(watermark).map_or(Advance::Same, Advance::Watermark)
    }

    /// Whether every input is idle or has ended, but not all have ended.
    pub fn all_idle(&self) -> bool {
        self.idle && !self.ended
    }

    /// The input that holds the minimum: the active one with the least watermark, the first of equals.
    pub fn holder(&self) -> Option<usize> {
        let active = self.inputs.iter().enumerate().filter(|(_, input)| !input.ended && !input.idle);
        active.min_by_key(|(_, input)| input.watermark).map(|(index, _)| index)
    }

    /// Watermark of input `index`, `i64::MIN` when none.
    pub fn watermark(&self, index: usize) -> i64 {
        self.inputs.get(index).map_or(i64::MIN, |input| input.watermark)
    }

    /// The greatest watermark of any input; `None` without inputs.
    pub fn greatest(&self) -> Option<i64> {
        self.inputs.iter().map(|input| input.watermark).max()
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
mod tests;
