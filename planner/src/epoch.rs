//! The pure decider of a region's rounds: events and now in, actions out. Used by agent and hub (EPO-2).
//!
//! The trouble: a round has as many steps as the region has members, they report in any order,
//! and a decision made one report too early loses rows for good. The idea: one explicit phase, at
//! most one barrier under way, and `Decide` said at exactly one place, when nothing is missing.
//!
//! ```text
//! Quiet ──Inject──► Gathering ──all cut, written, flushed──► Storing ──Stored──► Quiet | Over
//!                       │ timeout                               (Decide … Publish)
//!                       ▼
//!                   Straggling ──the same reports──► Quiet (opens the next round at once)
//! ```
//!
//! A round that ran out of time gives up its number, not its changes (EPO-6): what its members
//! froze waits with the coordinator for the next decision. The next barrier is put only after the
//! last straggler of the given-up round reported, so that there is never more than one undecided
//! epoch besides the open one.

use crate::error::Class;

/// Pace and patience, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At least so long between two openings.
    pub epoch_ms: u64,
    /// A round that takes longer is given up.
    pub timeout_ms: u64,
}

/// What happened. Members are numbered as in the plan's region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Only time passed.
    Tick,
    /// Some member did something that an epoch has to record (EPO-7).
    Changed,
    /// A source is held back: the open epoch has its bound of bytes (EPO-6). To be told again as
    /// long as it is so.
    Full,
    /// End of stream has passed every member.
    Ended,
    /// The region should stop: no more input, one last epoch.
    DrainRequested,
    /// A member's barrier passed and its state is frozen.
    Cut {
        /// Who.
        member: usize,
        /// Of which round.
        sequence: u64,
        /// Everything had ended before the barrier.
        ended: bool,
    },
    /// What a member froze is durable.
    SegmentsWritten {
        /// Who.
        member: usize,
        /// Of which round.
        sequence: u64,
    },
    /// A member's sinks have flushed what came before the barrier.
    Flushed {
        /// Who.
        member: usize,
        /// Of which round.
        sequence: u64,
    },
    /// The decision is durable.
    DecisionStored {
        /// Of which round.
        sequence: u64,
    },
    /// The round cannot be completed: a segment or the decision could not be written.
    RoundFailed {
        /// What to do next.
        class: Class,
        /// Why.
        reason: String,
    },
}

/// What to do now, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the sources to take no more input. Comes before the `Inject` of the last epoch.
    Drain,
    /// Put a barrier with this sequence at every source.
    Inject {
        /// Rises by one with every round.
        sequence: u64,
    },
    /// Everything is there: write the one durable record.
    Decide {
        /// Of which round.
        sequence: u64,
    },
    /// The record is durable: tell the members, show results, move cursors (EPO-3).
    Publish {
        /// Of which round.
        sequence: u64,
    },
    /// The round took too long: its number is given up, its changes go into the next decision.
    AbandonRound {
        /// Of which round.
        sequence: u64,
        /// Members that have not reported everything.
        missing: Vec<usize>,
    },
    /// All inputs ended and that is decided. The region is over.
    Finished,
    /// The last epoch of a drain is decided. The region is over.
    Drained,
    /// The region cannot go on. It is over.
    FailRegion {
        /// What to do next.
        class: Class,
        /// Why.
        reason: String,
    },
}

/// What a member has reported of the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    cut: bool,
    ended: bool,
    written: bool,
    flushed: bool,
}

impl Reported {
    fn whole(self) -> bool {
        self.cut && self.written && self.flushed
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    sequence: u64,
    opened_ms: u64,
    /// Opened after the drain was sent: its decision ends a drain.
    drained: bool,
    /// Opened after the end of stream had passed all members.
    after_end: bool,
    members: Vec<Reported>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Quiet,
    Gathering(Round),
    Straggling(Round),
    Storing { sequence: u64, drained: bool, all_ended: bool },
    Over,
}

/// The rounds of one region.
#[derive(Clone, Debug)]
pub struct Decider {
    pace: Pace,
    members: usize,
    phase: Phase,
    last_sequence: u64,
    next_open_ms: u64,
    changed: bool,
    ended: bool,
    drain_wanted: bool,
    /// When the sources were told to take no more input.
    drained_at_ms: Option<u64>,
}

impl Decider {
    /// A region of `members` members that opens its first epoch `epoch_ms` after `now_ms` at the
    /// earliest, numbered after `last_sequence` (0 unless the attempt has decided epochs before).
    pub fn new(pace: Pace, members: usize, last_sequence: u64, now_ms: u64) -> Self {
        Decider {
            pace,
            members,
            phase: Phase::Quiet,
            last_sequence,
            next_open_ms: now_ms.saturating_add(pace.epoch_ms),
            changed: false,
            ended: false,
            drain_wanted: false,
            drained_at_ms: None,
        }
    }

    /// The region is over: finished, drained or failed.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// A round is under way, given up or not.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Gathering(_) | Phase::Straggling(_) | Phase::Storing { .. })
    }

    /// Nothing happens by time alone before this; `None` when only an event can bring something.
    pub fn due_ms(&self) -> Option<u64> {
        match &self.phase {
            Phase::Quiet if self.changed => Some(self.next_open_ms),
            Phase::Gathering(round) => Some(round.opened_ms.saturating_add(self.pace.timeout_ms)),
            Phase::Straggling(_) => self.drained_at_ms.map(|at| at.saturating_add(self.pace.timeout_ms)),
            Phase::Quiet | Phase::Storing { .. } | Phase::Over => None,
        }
    }

    /// Takes an event and says what to do. `now_ms` is monotonic and never goes back.
    pub fn handle(&mut self, event: Event, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over() {
            return actions;
        }
        match event {
            Event::Tick => {}
            Event::Changed => self.changed = true,
            Event::Full => self.full(now_ms),
            Event::Ended => self.ended = true,
            Event::DrainRequested => self.drain_wanted = true,
            Event::Cut { member, sequence, ended } => self.report(member, sequence, &mut actions, "cut", |r| {
                let fresh = !r.cut;
                r.cut = true;
                r.ended = ended;
                fresh
            }),
            Event::SegmentsWritten { member, sequence } => {
                self.report(member, sequence, &mut actions, "segments", |r| r.cut && !std::mem::replace(&mut r.written, true));
            }
            Event::Flushed { member, sequence } => {
                self.report(member, sequence, &mut actions, "flush", |r| r.cut && !std::mem::replace(&mut r.flushed, true));
            }
            Event::DecisionStored { sequence } => self.stored(sequence, now_ms, &mut actions),
            Event::RoundFailed { class, reason } => self.fail(class, reason, &mut actions),
        }
        self.advance(now_ms, &mut actions);
        actions
    }

    /// A source that waits for a barrier gets it at once, or after the round that is under way. What
    /// is told during a round may be over when it ends, so nothing is kept of it but the change.
    fn full(&mut self, now_ms: u64) {
        self.changed = true;
        if self.phase == Phase::Quiet {
            self.next_open_ms = self.next_open_ms.min(now_ms);
        }
    }

    fn fail(&mut self, class: Class, reason: String, actions: &mut Vec<Action>) {
        self.phase = Phase::Over;
        actions.push(Action::FailRegion { class, reason });
    }

    /// Books a report of the round under way. One that nobody waits for means that the books of
    /// kernel and coordinator differ, and then no decision can be trusted.
    fn report(&mut self, member: usize, sequence: u64, actions: &mut Vec<Action>, what: &str, book: impl FnOnce(&mut Reported) -> bool) {
        let booked = match &mut self.phase {
            Phase::Gathering(round) | Phase::Straggling(round) if round.sequence == sequence => {
                round.members.get_mut(member).is_some_and(book)
            }
            Phase::Gathering(_) | Phase::Straggling(_) | Phase::Quiet | Phase::Storing { .. } | Phase::Over => false,
        };
        if !booked {
            self.fail(Class::Bug, format!("{what} report of member {member} for round {sequence} was not expected"), actions);
        }
    }

    fn stored(&mut self, sequence: u64, now_ms: u64, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Storing { sequence: waiting, drained, all_ended } if waiting == sequence => {
                actions.push(Action::Publish { sequence });
                self.phase = if all_ended || drained { Phase::Over } else { Phase::Quiet };
                // A slow decision must not be followed by a rush of rounds.
                self.next_open_ms = self.next_open_ms.max(now_ms);
                if all_ended {
                    actions.push(Action::Finished);
                } else if drained {
                    actions.push(Action::Drained);
                }
            }
            Phase::Storing { .. } | Phase::Quiet | Phase::Gathering(_) | Phase::Straggling(_) | Phase::Over => {
                self.fail(Class::Bug, format!("decision of round {sequence} was not expected"), actions);
            }
        }
    }

    fn advance(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.is_over() {
            return;
        }
        if self.drain_wanted && self.drained_at_ms.is_none() {
            self.drained_at_ms = Some(now_ms);
            actions.push(Action::Drain);
        }
        self.complete(now_ms, actions);
        self.open(now_ms, actions);
    }

    /// Ends the gathering when nothing is missing, or gives it up when it took too long.
    fn complete(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        match std::mem::replace(&mut self.phase, Phase::Quiet) {
            Phase::Gathering(round) if round.members.iter().all(|m| m.whole()) => {
                let all_ended = round.members.iter().all(|m| m.ended);
                if round.after_end && !all_ended {
                    return self.fail(
                        Class::Bug,
                        format!("round {} was opened after the end of input, yet not every member had ended", round.sequence),
                        actions,
                    );
                }
                actions.push(Action::Decide { sequence: round.sequence });
                self.phase = Phase::Storing { sequence: round.sequence, drained: round.drained, all_ended };
            }
            Phase::Gathering(round) if now_ms >= round.opened_ms.saturating_add(self.pace.timeout_ms) => {
                let missing: Vec<usize> = (0..round.members.len()).filter(|&m| !round.members[m].whole()).collect();
                if round.drained {
                    let reason = format!(
                        "the last epoch of a stop was not complete after {} ms (members {missing:?} are missing)",
                        self.pace.timeout_ms
                    );
                    return self.fail(Class::Retry, reason, actions);
                }
                actions.push(Action::AbandonRound { sequence: round.sequence, missing });
                self.phase = Phase::Straggling(round);
            }
            Phase::Straggling(round) if round.members.iter().all(|m| m.whole()) => {
                self.changed = true;
                self.next_open_ms = now_ms;
            }
            Phase::Straggling(round) if self.drained_at_ms.is_some_and(|at| now_ms >= at.saturating_add(self.pace.timeout_ms)) => {
                let reason = format!(
                    "the stop waited {} ms for the rest of round {}, which had been given up",
                    self.pace.timeout_ms, round.sequence
                );
                self.fail(Class::Retry, reason, actions);
            }
            phase @ (Phase::Quiet | Phase::Gathering(_) | Phase::Straggling(_) | Phase::Storing { .. } | Phase::Over) => self.phase = phase,
        }
    }

    /// Opens a round when there is a reason to. The last one, after the end or on a stop, does not
    /// wait for its turn.
    fn open(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let last = self.ended || self.drained_at_ms.is_some();
        let turn = self.changed && now_ms >= self.next_open_ms;
        if self.phase != Phase::Quiet || !(last || turn) {
            return;
        }
        self.last_sequence += 1;
        self.changed = false;
        self.next_open_ms = now_ms.saturating_add(self.pace.epoch_ms);
        self.phase = Phase::Gathering(Round {
            sequence: self.last_sequence,
            opened_ms: now_ms,
            drained: self.drained_at_ms.is_some(),
            after_end: self.ended,
            members: vec![Reported::default(); self.members],
        });
        actions.push(Action::Inject { sequence: self.last_sequence });
    }
}

#[cfg(test)]
mod tests;
