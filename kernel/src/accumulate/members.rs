//! Child rows of groups: which numbered rows belong to which group, as lists through one array, so
//! that a row costs four bytes and no group costs an allocation.

/// So many forgotten rows are not worth going through all of them.
const FORGOTTEN_MIN: usize = 1_024;
/// No row.
const NONE: u32 = u32::MAX;

/// Rows, which count up from 0 over all groups.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The row of each group that came last.
    newest: Vec<u32>,
    /// The row of the same group before each row.
    before: Vec<u32>,
}

impl Members {
    /// Makes room for `groups` groups; new ones have no rows. Never shrinks.
    pub(crate) fn grow(&mut self, groups: usize) {
        self.newest.resize(groups.max(self.newest.len()), NONE);
    }

    /// The next row belongs to `group`.
    #[inline]
    pub(crate) fn push(&mut self, group: u32) {
        let newest = &mut self.newest[group as usize];
        self.before.push(*newest);
        *newest = self.before.len() as u32 - 1;
    }

    /// Number of rows, with those that were forgotten.
    pub(crate) fn rows(&self) -> usize {
        self.before.len()
    }

    /// Whether the group has rows.
    pub(crate) fn any(&self, group: u32) -> bool {
        self.newest[group as usize] != NONE
    }

    /// Rows of a group, the newest first.
    pub(crate) fn of(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.newest[group as usize];
        std::iter::successors((first != NONE).then_some(first), |row| Some(self.before[*row as usize]).filter(|row| *row != NONE))
    }

    /// The group has no rows any more; their numbers are not given again. Tells how many they were.
    pub(crate) fn forget(&mut self, group: u32) -> usize {
        let rows = self.of(group).count();
        self.newest[group as usize] = NONE;
        rows
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.newest.len()
    }

    /// Whether most of the rows are forgotten ones, so that it pays to keep only the others.
    pub(crate) fn mostly(&self, forgotten: usize) -> bool {
        forgotten > FORGOTTEN_MIN && forgotten > self.rows() / 2
    }

    /// Forgets everything and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.newest.clear();
        self.before.clear();
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        (self.newest.capacity() + self.before.capacity()) * 4
    }
}
