//! `DISTINCT`: each group's set of values, of which every one goes on once.
//!
//! Values are told apart as keys are, by the key law: -0 is 0, and NaN is one value. The set is the
//! state. What is made of it is not stored but made again when it comes back, so that a set merges
//! with another by going through its values.

use crate::accumulate::members::Members;
use crate::accumulate::{Accumulator, image_column};
use crate::envelope::broken;
use crate::error::Error;
use crate::route::key::Encoded;
use crate::state::index::Index;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;

/// Most arguments of one call.
const ARGUMENTS_MAX: usize = 4;
/// Groups whose sets are copied in one go.
const GROUPS_AT_ONCE: usize = 1_024;
const PARTS: [&str; ARGUMENTS_MAX] = ["values", "values_1", "values_2", "values_3"];

/// Gives each value on to `inner` once.
pub(crate) struct Distinct {
    inner: Box<dyn Accumulator>,
    types: Vec<DataType>,
    /// Finds (set, value).
    index: Index,
    /// The set of each group: another one after each restore.
    sets: Vec<u32>,
    sets_made: u32,
    /// Values of the sets, as the index numbers them.
    members: Members,
    /// Values of sets that no group has any more.
    forgotten: usize,
    /// Columns that the call orders by, each of which is its argument.
    orders: usize,
}

impl Distinct {
    /// Over the accumulator that adds up the values.
    ///
    /// Errors: more arguments than are taken.
    pub(crate) fn boxed(aggregate: &Aggregate, inner: Box<dyn Accumulator>) -> Result<Box<dyn Accumulator>, Error> {
        let constants = usize::from(aggregate.function.takes_constant());
        let types: Vec<DataType> = aggregate.arguments.iter().rev().skip(constants).rev().map(|argument| argument.ty.to_arrow()).collect();
        if types.is_empty() || types.len() > ARGUMENTS_MAX {
            return Err(Error::new(Class::User, format!("DISTINCT takes 1 to {ARGUMENTS_MAX} arguments")));
        }
        let index = Index::new(&[&[DataType::Int64], types.as_slice()].concat());
        Ok(Box::new(Distinct {
            inner,
            types,
            index,
            sets: Vec::new(),
            sets_made: 0,
            members: Members::default(),
            forgotten: 0,
            orders: aggregate.order_by.len(),
        }))
    }

    /// A set without values.
    fn new_set(&mut self) -> u32 {
        self.sets_made += 1;
        self.members.grow(self.sets_made as usize);
        self.inner.grow(self.sets_made as usize);
        self.sets_made - 1
    }

    /// Adds values, none of them NULL, to sets.
    fn add(&mut self, sets: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(sets.iter().map(|set| i64::from(*set))));
        let keys: Vec<ArrayRef> = [numbers].into_iter().chain(values.iter().cloned()).collect();
        let known = self.index.len();
        let (mut encoded, mut found) = (Encoded::default(), Vec::new());
        self.index.assign(&keys, sets.len(), &mut encoded, &mut found)?;
        if self.index.len() == known {
            return Ok(());
        }
        // New values are numbered in the order of their first rows.
        let mut firsts = Vec::with_capacity(self.index.len() - known);
        for (row, (set, value)) in sets.iter().zip(&found).enumerate() {
            if *value as usize == self.members.rows() {
                self.members.push(*set);
                firsts.push(row as u32);
            }
        }
        let sets: Vec<u32> = firsts.iter().map(|row| sets[*row as usize]).collect();
        let firsts = UInt32Array::from(firsts);
        let mut values = values.iter().map(|column| take(column, &firsts, None).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
        values.extend(std::iter::repeat_n(values.first().cloned(), self.orders).flatten());
        self.inner.update(&sets, &values)
    }

    /// Keeps only the sets that groups have, and makes again what is made of them.
    fn compact(&mut self) -> Result<(), Error> {
        let groups: Vec<u32> = (0..self.sets.len() as u32).collect();
        let parts = groups.chunks(GROUPS_AT_ONCE).map(|groups| Ok((groups, self.image(groups)?))).collect::<Result<Vec<_>, Error>>()?;
        self.clear();
        self.grow(groups.len());
        parts.into_iter().try_for_each(|(groups, columns)| self.merge(groups, &columns))
    }

    fn sets_of(&self, groups: &[u32]) -> Vec<u32> {
        groups.iter().map(|group| self.sets[*group as usize]).collect()
    }
}

impl Accumulator for Distinct {
    fn grow(&mut self, groups: usize) {
        while self.sets.len() < groups {
            let set = self.new_set();
            self.sets.push(set);
        }
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let values = values.get(..self.types.len()).ok_or_else(|| Error::new(Class::Bug, "an aggregate lacks its argument"))?;
        let sets = self.sets_of(groups);
        let nulls = values.iter().fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref()));
        match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => self.add(&sets, values),
            Some(nulls) => {
                let rows: Vec<u32> = nulls.valid_indices().map(|row| row as u32).collect();
                let sets: Vec<u32> = rows.iter().map(|row| sets[*row as usize]).collect();
                let rows = UInt32Array::from(rows);
                let values = values.iter().map(|column| take(column, &rows, None).map_err(broken)).collect::<Result<Vec<_>, _>>()?;
                self.add(&sets, &values)
            }
        }
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        self.inner.peek(&self.sets_of(groups))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        PARTS.into_iter().zip(self.types.iter().map(|ty| list_type(ty.clone()))).collect()
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let (mut rows, mut ends) = (Vec::new(), vec![0]);
        for set in self.sets_of(groups) {
            rows.extend(self.members.of(set));
            ends.push(end(rows.len())?);
        }
        // Without the number of the set, which leads.
        let values = self.index.keys(&rows)?.split_off(1);
        values.into_iter().map(|values| list(values, ends.clone())).collect()
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        for group in groups {
            if self.members.any(self.sets[*group as usize]) {
                self.forgotten += self.members.forget(self.sets[*group as usize]);
                self.sets[*group as usize] = self.new_set();
            }
        }
        if self.members.mostly(self.forgotten) {
            self.compact()?;
        }
        self.merge(groups, columns)
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let (sets, values) = flattened(&self.sets_of(groups), columns, self.types.len())?;
        self.add(&sets, &values)
    }

    fn clear(&mut self) {
        self.inner.clear();
        self.index.clear();
        self.sets.clear();
        self.sets_made = 0;
        self.members.clear();
        self.forgotten = 0;
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + self.index.bytes() + self.sets.capacity() * 4 + self.members.bytes()
    }
}

/// Type of a list column of an image.
pub(crate) fn list_type(ty: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(ty, true)))
}

/// Where a list ends.
///
/// Errors: more values than one image holds.
pub(crate) fn end(values: usize) -> Result<i32, Error> {
    i32::try_from(values)
        .map_err(|_| Error::new(Class::User, "the groups of an aggregate that keeps its values have more than 2^31 of them"))
}

/// A list column of values and where each list ends, with 0 before.
pub(crate) fn list(values: ArrayRef, ends: Vec<i32>) -> Result<ArrayRef, Error> {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::new(ends.into()), values, None).map_err(broken)?))
}

/// The values of the first `count` list columns, and for each value what `owners` has for its list.
///
/// Errors: columns that are not lists of equal lengths.
pub(crate) fn flattened(owners: &[u32], columns: &[ArrayRef], count: usize) -> Result<(Vec<u32>, Vec<ArrayRef>), Error> {
    let corrupt = || Error::new(Class::Corrupt, "a state image has no lists of values where they belong");
    let (mut all, mut values) = (Vec::new(), Vec::new());
    for at in 0..count {
        let lists = image_column(columns, at)?.as_list_opt::<i32>().ok_or_else(corrupt)?;
        if at == 0 {
            for (row, owner) in owners.iter().enumerate() {
                all.extend(std::iter::repeat_n(*owner, lists.value_length(row) as usize));
            }
        }
        let (first, last) = (lists.value_offsets()[0] as usize, lists.value_offsets()[lists.len()] as usize);
        let flat = lists.values().slice(first, last - first);
        if flat.len() != all.len() {
            return Err(corrupt());
        }
        values.push(flat);
    }
    Ok((all, values))
}
