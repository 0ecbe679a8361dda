//! `first_value(x)` and `last_value(x)`: the value of one row, NULL included.

use crate::accumulate::rows::Ordering;
use crate::accumulate::{Accumulator, image_column};
use crate::error::Error;
use crate::state::bits::Bits;
use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::row::Rows;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;

/// Most columns that a call may order by.
pub const ORDER_COLUMNS_MAX: usize = 8;
const PARTS: [&str; ORDER_COLUMNS_MAX] = ["order_0", "order_1", "order_2", "order_3", "order_4", "order_5", "order_6", "order_7"];

/// An accumulator for the value of the first row, or of the last.
///
/// Errors: types that have no order, too many columns to order by.
pub fn new(aggregate: &Aggregate, last: bool) -> Result<Box<dyn Accumulator>, Error> {
    let ordering = Ordering::new(aggregate)?;
    let parts = parts(&ordering, aggregate.timed())?;
    Ok(Box::new(OneRow { ordering, parts, last, held: Vec::new(), seen: Bits::default(), bytes: 0, best: Vec::new() }))
}

/// Names of the columns of an ordering, the value last.
pub(crate) fn parts(ordering: &Ordering, timed: bool) -> Result<Vec<&'static str>, Error> {
    let orders = ordering.types().len() - 1 - usize::from(timed);
    let Some(named) = PARTS.get(..orders) else {
        return Err(Error::new(Class::User, format!("an aggregate orders by at most {ORDER_COLUMNS_MAX} columns")));
    };
    Ok(named.iter().copied().chain(timed.then_some("time")).chain(["value"]).collect())
}

struct OneRow {
    ordering: Ordering,
    parts: Vec<&'static str>,
    /// The last row instead of the first.
    last: bool,
    /// Each group's row as comparable bytes. Room is used again when another row takes the place.
    held: Vec<Vec<u8>>,
    seen: Bits,
    /// Room of all that is held.
    bytes: usize,
    /// The best row of the batch at hand for each group, `u32::MAX` without one.
    best: Vec<u32>,
}

impl OneRow {
    /// Offers each group the best of a batch of rows: a value is copied once a batch, not once a row.
    fn offer(&mut self, groups: &[u32], batch: &Rows) {
        for (row, group) in groups.iter().enumerate() {
            let best = &mut self.best[*group as usize];
            if *best == u32::MAX || (batch.row(row) > batch.row(*best as usize)) == self.last {
                *best = row as u32;
            }
        }
        for group in groups {
            let row = std::mem::replace(&mut self.best[*group as usize], u32::MAX);
            if row == u32::MAX {
                continue;
            }
            let row = batch.row(row as usize);
            let held = &mut self.held[*group as usize];
            if self.seen.get(*group) && (row.as_ref() > held.as_slice()) != self.last {
                continue;
            }
            self.seen.set(*group);
            put(held, row.as_ref(), &mut self.bytes);
        }
    }

    /// Columns of the groups' rows: NULL for groups without one.
    fn columns(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let there: Vec<u32> = groups.iter().copied().filter(|group| self.seen.get(*group)).collect();
        let types = self.ordering.types();
        if there.is_empty() {
            return Ok(types.iter().map(|ty| new_null_array(ty, groups.len())).collect());
        }
        let parser = self.ordering.parser();
        let columns = self.ordering.columns(there.iter().map(|group| parser.parse(&self.held[*group as usize])))?;
        if there.len() == groups.len() {
            return Ok(columns);
        }
        let mut next = 0;
        let place = |group: &u32| {
            self.seen.get(*group).then(|| {
                next += 1;
                next - 1
            })
        };
        let places = groups.iter().map(place).collect::<UInt32Array>();
        columns.iter().map(|column| take(column, &places, None).map_err(crate::envelope::broken)).collect()
    }
}

fn put(held: &mut Vec<u8>, bytes: &[u8], room: &mut usize) {
    *room -= held.capacity();
    held.clear();
    held.extend_from_slice(bytes);
    *room += held.capacity();
}

impl Accumulator for OneRow {
    fn grow(&mut self, groups: usize) {
        let groups = groups.max(self.held.len());
        self.held.resize(groups, Vec::new());
        self.best.resize(groups, u32::MAX);
        self.seen.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let mut batch = self.ordering.none();
        self.ordering.append_given(&mut batch, values)?;
        self.offer(groups, &batch);
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let mut columns = self.columns(groups)?;
        columns.pop().ok_or_else(|| Error::new(Class::Bug, "a row has no value"))
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        self.parts.iter().copied().zip(self.ordering.types().iter().cloned()).chain([("seen", DataType::Boolean)]).collect()
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let mut columns = self.columns(groups)?;
        columns.push(Arc::new(groups.iter().map(|group| Some(self.seen.get(*group))).collect::<BooleanArray>()));
        Ok(columns)
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        for group in groups {
            self.seen.put(*group, false);
        }
        self.merge(groups, columns)
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let rows = self.ordering.types().len();
        let seen = image_column(columns, rows)?.as_boolean();
        let there: Vec<u32> = seen.values().set_indices().map(|row| row as u32).collect();
        if there.is_empty() {
            return Ok(());
        }
        let picked = UInt32Array::from(there.clone());
        let columns = columns[..rows].iter().map(|column| take(column, &picked, None).map_err(crate::envelope::broken));
        let mut batch = self.ordering.none();
        self.ordering.append(&mut batch, &columns.collect::<Result<Vec<_>, _>>()?)?;
        self.offer(&there.iter().map(|row| groups[*row as usize]).collect::<Vec<_>>(), &batch);
        Ok(())
    }

    fn clear(&mut self) {
        self.held.clear();
        self.best.clear();
        self.seen.empty();
        self.bytes = 0;
    }

    fn bytes(&self) -> usize {
        let slots = self.held.capacity() * size_of::<Vec<u8>>() + self.best.capacity() * 4;
        slots + self.bytes + self.seen.bytes()
    }
}
