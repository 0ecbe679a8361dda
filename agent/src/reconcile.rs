//! What is wanted against what runs, to one action: pure, so that a command told twice, late or
//! out of order has one effect (HUB-4).

use weir_planner::id::Attempt;

/// The attempt of a job that an agent holds or held last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub attempt: Attempt,
    /// It holds nothing any more.
    pub over: bool,
}

/// What a start command comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStart {
    /// Begin; first stop the older attempt, when there is one that is not over.
    Begin {
        /// The older one.
        stop: Option<Attempt>,
    },
    /// This attempt was begun before, and runs or has ended: nothing to do.
    Done,
    /// A newer attempt is here.
    Fenced {
        /// Which.
        by: Attempt,
    },
}

/// What a stop or forget command comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// End this one.
    End(Attempt),
    /// Nothing of this attempt or an older one runs.
    Done,
    /// A newer attempt is here and is left alone.
    LeaveAlone,
}

/// A start of `wanted` while `held` is here.
pub fn on_start(held: Option<Held>, wanted: Attempt) -> OnStart {
    match held {
        None => OnStart::Begin { stop: None },
        Some(held) if held.attempt > wanted => OnStart::Fenced { by: held.attempt },
        Some(held) if held.attempt == wanted => OnStart::Done,
        Some(held) => OnStart::Begin { stop: (!held.over).then_some(held.attempt) },
    }
}

/// A stop of `wanted` and everything older while `held` is here.
pub fn on_stop(held: Option<Held>, wanted: Attempt) -> OnStop {
    match held {
        Some(held) if held.attempt > wanted => OnStop::LeaveAlone,
        Some(held) if !held.over => OnStop::End(held.attempt),
        Some(_) | None => OnStop::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::{Held, OnStart, OnStop, on_start, on_stop};
    use weir_planner::id::Attempt;

    fn held(attempt: u64, over: bool) -> Option<Held> {
        Some(Held { attempt: Attempt::new(attempt), over })
    }

    /// HUB-4: commands are idempotent, and fencing is by attempt (HUB-2).
    #[test]
    fn a_start_is_begun_once_and_never_below_a_newer_attempt() {
        let wanted = Attempt::new(5);
        assert_eq!(on_start(None, wanted), OnStart::Begin { stop: None });
        assert_eq!(on_start(held(4, true), wanted), OnStart::Begin { stop: None });
        assert_eq!(on_start(held(4, false), wanted), OnStart::Begin { stop: Some(Attempt::new(4)) });
        assert_eq!(on_start(held(5, false), wanted), OnStart::Done);
        assert_eq!(on_start(held(5, true), wanted), OnStart::Done);
        assert_eq!(on_start(held(6, true), wanted), OnStart::Fenced { by: Attempt::new(6) });
    }

    #[test]
    fn a_stop_ends_this_and_older_attempts_only() {
        let wanted = Attempt::new(5);
        assert_eq!(on_stop(None, wanted), OnStop::Done);
        assert_eq!(on_stop(held(5, true), wanted), OnStop::Done);
        assert_eq!(on_stop(held(5, false), wanted), OnStop::End(Attempt::new(5)));
        assert_eq!(on_stop(held(4, false), wanted), OnStop::End(Attempt::new(4)));
        assert_eq!(on_stop(held(6, false), wanted), OnStop::LeaveAlone);
    }
}
