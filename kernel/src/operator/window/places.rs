//! Where rows lie in time.

use crate::envelope::Data;
use crate::operator::window::partials::Partials;

/// Places of the rows of a batch.
pub(crate) enum Places<'a> {
    /// Rows, by their times.
    Times {
        /// Event time of each.
        times: &'a [i64],
        /// Stamp of each, where some row lies behind its own.
        stamps: Option<&'a [i64]>,
    },
    /// Rows of a first stage, by their panes.
    Panes {
        /// Start of each one's pane.
        starts: &'a [i64],
        /// End of the first window for which it counts.
        froms: &'a [i64],
    },
}

impl<'a> Places<'a> {
    /// Of rows of a first stage where `partials` says how to read them, and of rows otherwise.
    pub(crate) fn of(data: &'a Data, partials: Option<&Partials>) -> Self {
        match partials {
            None => Places::Times { times: data.times.values(), stamps: data.stamps.as_ref().map(|stamps| &stamps.values()[..]) },
            Some(partials) => partials.places(data),
        }
    }
}
