//! Which panes stand under which end of a window.

use super::PaneId;
use std::collections::BTreeMap;

/// Panes by end, each once.
#[derive(Default)]
pub(super) struct Agenda(BTreeMap<i64, Vec<PaneId>>);

impl Agenda {
    /// Puts a pane under an end.
    pub(super) fn put(&mut self, end: i64, id: PaneId) {
        self.0.entry(end).or_default().push(id);
    }

    /// The least end and its panes.
    pub(super) fn first(&self) -> Option<(i64, &[PaneId])> {
        self.0.first_key_value().map(|(end, ids)| (*end, ids.as_slice()))
    }

    /// Takes out the least end when it is no greater than `through`.
    pub(super) fn pop(&mut self, through: i64) -> Option<(i64, Vec<PaneId>)> {
        let first = self.0.first_entry()?;
        (*first.key() <= through).then(|| first.remove_entry())
    }

    /// Takes out the panes under an end.
    pub(super) fn take(&mut self, end: i64) -> Vec<PaneId> {
        self.0.remove(&end).unwrap_or_default()
    }
}
