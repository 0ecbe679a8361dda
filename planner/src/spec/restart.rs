//! The restart law: what follows after a failed attempt (spec 1.1 `restart`).
//!
//! What a person must mend is never tried again: a fault of the job, data that does not verify.
//! An outside system that is away, and news of an older attempt, are tried again for ever, without
//! being counted. A fault of Weir is counted: `max_attempts` of them within `window_ms` end it.
//! The pause doubles with each failure in a row, and starts anew once an attempt has run for a window.

use super::Restart;
use crate::error::Class;
use serde::{Deserialize, Serialize};

/// Failures of a job since it was last asked to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// Wall clock, in ms, of the counted failures within the window; never longer than `max_attempts`.
    pub failures_at_ms: Vec<i64>,
    /// Failures in a row, counted or not: sets the pause.
    pub streak: u32,
}

/// What follows after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another attempt, after a pause.
    Again {
        /// The pause.
        pause_ms: u64,
    },
    /// None: nothing but a person helps.
    GiveUp,
    /// None: the last of the failures that are allowed within the window.
    TooMany {
        /// How many there were within the window.
        failures: u32,
    },
}

impl Restart {
    /// Takes note of a failed attempt and says what follows. `ran_ms` is how long it had run, `None`
    /// where it was never seen running; `now_ms` is the wall clock.
    pub fn after(&self, class: Class, ran_ms: Option<u64>, failures: &mut Failures, now_ms: i64) -> AfterFailure {
        let steady = ran_ms.is_some_and(|ran_ms| ran_ms >= self.window_ms);
        failures.streak = if steady { 1 } else { failures.streak.saturating_add(1) };
        match class {
            Class::User | Class::Corrupt => AfterFailure::GiveUp,
            Class::Retry | Class::Fenced => AfterFailure::Again { pause_ms: self.pause_ms(failures.streak) },
            Class::Bug => {
                let window = i64::try_from(self.window_ms).unwrap_or(i64::MAX);
                failures.failures_at_ms.retain(|at| now_ms.saturating_sub(*at) < window);
                failures.failures_at_ms.push(now_ms);
                let count = u32::try_from(failures.failures_at_ms.len()).unwrap_or(u32::MAX);
                if count >= self.max_attempts.max(1) {
                    return AfterFailure::TooMany { failures: count };
                }
                AfterFailure::Again { pause_ms: self.pause_ms(failures.streak) }
            }
        }
    }

    /// `backoff_ms`, doubled for each failure in a row after the first, at most `max_backoff_ms`.
    fn pause_ms(&self, streak: u32) -> u64 {
        let doublings = streak.saturating_sub(1).min(32);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.max_backoff_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::{AfterFailure, Failures};
    use crate::error::Class;
    use crate::spec::Restart;

    const LAW: Restart = Restart { max_attempts: 3, window_ms: 1_000, backoff_ms: 100, max_backoff_ms: 350 };

    fn again(pause_ms: u64) -> AfterFailure {
        AfterFailure::Again { pause_ms }
    }

    /// What only a person can mend ends at once, whatever came before.
    #[test]
    fn faults_of_the_job_are_final() {
        for class in [Class::User, Class::Corrupt] {
            assert_eq!(LAW.after(class, None, &mut Failures::default(), 0), AfterFailure::GiveUp);
        }
    }

    /// Connect errors are tried again without being counted; the pause doubles up to its limit.
    #[test]
    fn away_is_not_counted() {
        let mut failures = Failures::default();
        let pauses: Vec<AfterFailure> = (0..5).map(|now| LAW.after(Class::Retry, None, &mut failures, now)).collect();
        assert_eq!(pauses, [again(100), again(200), again(350), again(350), again(350)]);
        assert_eq!(failures, Failures { failures_at_ms: vec![], streak: 5 });
        assert_eq!(LAW.after(Class::Fenced, None, &mut failures, 9), again(350));
    }

    /// The third counted failure within a window is the last; one that fell out of it is forgotten.
    #[test]
    fn faults_of_weir_are_counted_within_the_window() {
        let mut failures = Failures::default();
        assert_eq!(LAW.after(Class::Bug, Some(5), &mut failures, 0), again(100));
        assert_eq!(LAW.after(Class::Bug, Some(5), &mut failures, 600), again(200));
        assert_eq!(LAW.after(Class::Bug, Some(5), &mut failures, 1_000), again(350));
        assert_eq!(failures.failures_at_ms, [600, 1_000]);
        assert_eq!(LAW.after(Class::Bug, Some(5), &mut failures, 1_599), AfterFailure::TooMany { failures: 3 });
    }

    /// An attempt that ran for a whole window ends the row of failures, though not their count.
    #[test]
    fn a_steady_run_starts_the_pause_anew() {
        let mut failures = Failures::default();
        LAW.after(Class::Retry, None, &mut failures, 0);
        LAW.after(Class::Retry, Some(999), &mut failures, 0);
        assert_eq!(failures.streak, 2);
        assert_eq!(LAW.after(Class::Retry, Some(1_000), &mut failures, 0), again(100));
    }

    /// No number of attempts means one, and no streak overflows.
    #[test]
    fn odd_numbers_are_harmless() {
        let none = Restart { max_attempts: 0, backoff_ms: u64::MAX, max_backoff_ms: u64::MAX, ..LAW };
        assert_eq!(none.after(Class::Bug, None, &mut Failures::default(), i64::MIN), AfterFailure::TooMany { failures: 1 });
        let mut failures = Failures { streak: u32::MAX, ..Failures::default() };
        assert_eq!(none.after(Class::Retry, None, &mut failures, 0), again(u64::MAX));
        assert_eq!(LAW.after(Class::Retry, None, &mut failures, 0), again(350));
    }
}
