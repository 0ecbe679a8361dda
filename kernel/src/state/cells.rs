//! Groups with their accumulators: what one pane has, or what several come to together.

use crate::accumulate::piece::Piece;
use crate::accumulate::{Accumulator, accumulator};
use crate::envelope::broken;
use crate::error::Error;
use crate::route::key::Encoded;
use crate::state::bits::Bits;
use crate::state::index::Index;
use crate::state::layout::sort_together;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use weir_planner::expr::Aggregate;
use weir_planner::id::OperatorId;

/// Buffers that are used again from batch to batch.
#[derive(Default)]
pub struct Scratch {
    encoded: Encoded,
    /// Group of each row that came last.
    pub groups: Vec<u32>,
    chosen: Vec<u32>,
}

/// Groups of rows.
pub struct Cells {
    index: Index,
    accumulators: Vec<Box<dyn Accumulator>>,
    dirty: Bits,
}

impl Cells {
    /// None, for keys of these types.
    ///
    /// Errors: an aggregate that does not take its argument.
    pub fn new(types: &[DataType], aggregates: &[(String, Aggregate)]) -> Result<Self, Error> {
        let accumulators = aggregates.iter().map(|(_, aggregate)| accumulator(aggregate)).collect::<Result<Vec<_>, _>>()?;
        Ok(Cells { index: Index::new(types), accumulators, dirty: Bits::default() })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// No groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        self.index.bytes() + accumulators + self.dirty.bytes()
    }

    /// Forgets every group and keeps the room.
    pub fn clear(&mut self) {
        self.index.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        self.dirty.empty();
    }

    /// Adds rows; `scratch.groups` has the group of each afterwards.
    pub fn add(&mut self, piece: &Piece, scratch: &mut Scratch) -> Result<(), Error> {
        self.index.assign(&piece.keys, piece.rows, &mut scratch.encoded, &mut scratch.groups)?;
        self.grow();
        scratch.groups.iter().for_each(|group| self.dirty.set(*group));
        piece.add_to(&mut self.accumulators, &scratch.groups, &mut scratch.chosen)
    }

    /// Adds groups for the keys of listed groups of `other`, empty ones where they are new.
    pub(crate) fn know(&mut self, other: &Cells, listed: &[u32], scratch: &mut Scratch) -> Result<(), Error> {
        self.index.assign_from(&other.index, listed, &mut scratch.groups)?;
        self.grow();
        Ok(())
    }

    /// Adds what all groups of `other` have.
    pub(crate) fn absorb(&mut self, other: &Cells, scratch: &mut Scratch) -> Result<(), Error> {
        let listed: Vec<u32> = (0..other.len() as u32).collect();
        self.know(other, &listed, scratch)?;
        self.merge(other, &listed, &scratch.groups)
    }

    /// Adds the first `count` groups of `other`, and what its last accumulator has of them. They have changed.
    pub(crate) fn absorb_last(&mut self, other: &Cells, count: usize, scratch: &mut Scratch) -> Result<(), Error> {
        let listed: Vec<u32> = (0..count as u32).collect();
        self.know(other, &listed, scratch)?;
        if let (Some(mine), Some(theirs)) = (self.accumulators.last_mut(), other.accumulators.last()) {
            mine.merge(&scratch.groups, &theirs.image(&listed)?)?;
        }
        scratch.groups.iter().for_each(|group| self.dirty.set(*group));
        Ok(())
    }

    /// Results of the last accumulator for listed groups.
    pub(crate) fn last(&self, groups: &[u32]) -> Result<Option<ArrayRef>, Error> {
        self.accumulators.last().map(|last| last.peek(groups)).transpose()
    }

    /// Adds what `other` has of the keys that are here.
    pub(crate) fn absorb_known(&mut self, other: &Cells) -> Result<(), Error> {
        let found = other.index.find_from(&self.index)?;
        let (mine, theirs): (Vec<u32>, Vec<u32>) =
            found.iter().enumerate().filter_map(|(mine, theirs)| theirs.map(|theirs| (mine as u32, theirs))).unzip();
        self.merge(other, &theirs, &mine)
    }

    fn merge(&mut self, other: &Cells, theirs: &[u32], mine: &[u32]) -> Result<(), Error> {
        for (accumulator, other) in self.accumulators.iter_mut().zip(&other.accumulators) {
            accumulator.merge(mine, &other.image(theirs)?)?;
        }
        Ok(())
    }

    /// Puts groups back from columns of keys and of images.
    pub(crate) fn restore(&mut self, keys: &[ArrayRef], rows: usize, images: &[ArrayRef], scratch: &mut Scratch) -> Result<(), Error> {
        self.index.assign(keys, rows, &mut scratch.encoded, &mut scratch.groups)?;
        self.grow();
        let mut rest = images;
        for accumulator in &mut self.accumulators {
            let (own, others) = rest.split_at(accumulator.image_fields().len().min(rest.len()));
            accumulator.restore(&scratch.groups, own)?;
            rest = others;
        }
        Ok(())
    }

    /// Keys and aggregates of listed groups. `operator` and `aggregates` say whose they are.
    ///
    /// Errors: a result that its type cannot hold, naming operator and column.
    pub(crate) fn results(
        &self,
        groups: &[u32],
        operator: &OperatorId,
        aggregates: &[(String, Aggregate)],
    ) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        let mut columns = Vec::with_capacity(self.accumulators.len());
        for (accumulator, (name, _)) in self.accumulators.iter().zip(aggregates) {
            let name_it = |e: Error| Error { message: format!("{} in operator '{operator}', column '{name}'", e.message), ..e };
            columns.push(accumulator.peek(groups).map_err(name_it)?);
        }
        Ok((self.index.keys(groups)?, columns))
    }

    /// What changed since the last time, standing still; `None` when nothing did.
    pub(crate) fn freeze(&mut self) -> Result<Option<Frozen>, Error> {
        let Some(changed) = self.dirty.take() else { return Ok(None) };
        let mut states = Vec::with_capacity(self.accumulators.len());
        let mut listed = None;
        for accumulator in &mut self.accumulators {
            states.push(match accumulator.snapshot() {
                Some(shared) => State::Shared(shared),
                None => State::Copied(accumulator.image(listed.get_or_insert_with(|| changed.ones().collect::<Vec<u32>>()))?),
            });
        }
        Ok(Some(Frozen { index: self.index.snapshot(), changed, states }))
    }

    /// All of them have changed.
    pub(crate) fn touch_all(&mut self) {
        (0..self.index.len() as u32).for_each(|group| self.dirty.set(group));
    }

    fn grow(&mut self) {
        let groups = self.index.len();
        self.dirty.grow(groups);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(groups));
    }
}

/// State of one aggregate in a [`Frozen`].
enum State {
    /// Of all groups.
    Shared(Box<dyn Accumulator>),
    /// Image columns of the changed groups, in their order.
    Copied(Vec<ArrayRef>),
}

/// Groups that had changed at a barrier, as they were then.
pub(crate) struct Frozen {
    index: Index,
    changed: Bits,
    states: Vec<State>,
}

/// Image columns of a [`Frozen`], rows ascending by key group.
pub(crate) struct Image {
    /// Of each row.
    pub key_groups: Vec<u32>,
    /// Key columns.
    pub keys: Vec<ArrayRef>,
    /// State of the aggregates.
    pub states: Vec<ArrayRef>,
}

impl Frozen {
    /// The columns. Takes as long as the groups are many: not for a thread that rows wait for.
    pub(crate) fn image(&self, max_parallelism: u32) -> Result<Image, Error> {
        let changed: Vec<u32> = self.changed.ones().collect();
        let mut key_groups: Vec<u32> = self.index.hashes(&changed).iter().map(|hash| (*hash % u64::from(max_parallelism)) as u32).collect();
        let mut order: Vec<u32> = (0..changed.len() as u32).collect();
        sort_together(max_parallelism, &mut key_groups, &mut order);
        let groups: Vec<u32> = order.iter().map(|at| changed[*at as usize]).collect();
        let order = UInt32Array::from(order);
        let mut states = Vec::new();
        for state in &self.states {
            match state {
                State::Shared(shared) => states.extend(shared.image(&groups)?),
                State::Copied(columns) => {
                    for column in columns {
                        states.push(take(column, &order, None).map_err(broken)?);
                    }
                }
            }
        }
        Ok(Image { key_groups, keys: self.index.keys(&groups)?, states })
    }
}
