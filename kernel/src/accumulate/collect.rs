//! Aggregates that need all values of a group at once: `string_agg`, `median`, `percentile_cont`.
//! Every value is a child row of its group, in a state that grows with the rows.

use crate::accumulate::distinct::{end, flattened, list, list_type};
use crate::accumulate::members::Members;
use crate::accumulate::ordered::parts;
use crate::accumulate::rows::{Ordering, canonical};
use crate::accumulate::{Accumulator, cast_to};
use crate::envelope::broken;
use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, StringBuilder, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use arrow::row::Rows;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction, Expr, Literal};
use weir_planner::schema::ColumnType;

/// What is made of a group's values in their order.
enum Finish {
    /// Texts, with this between them.
    Join(String),
    /// A value at this share of the way from the first to the last.
    At(f64),
}

/// An accumulator for one of the three; `None` for an argument that it does not take.
///
/// Errors: a second argument that is no constant.
pub(crate) fn new(aggregate: &Aggregate) -> Result<Option<Box<dyn Accumulator>>, Error> {
    let constant = aggregate.arguments.get(1).map(|argument| &argument.expr);
    let finish = match (aggregate.function, constant) {
        (AggregateFunction::Median, None) => Finish::At(0.5),
        (AggregateFunction::PercentileCont, Some(Expr::Literal(Literal::Double(share)))) => Finish::At(*share),
        (AggregateFunction::StringAgg, Some(Expr::Literal(Literal::Text(between)))) => Finish::Join(between.clone()),
        (AggregateFunction::StringAgg, Some(Expr::Literal(Literal::Null(_)))) => Finish::Join(String::new()),
        (function, _) => return Err(Error::new(Class::User, format!("{} takes a constant beside its value", function.name()))),
    };
    let taken = aggregate.arguments.first().is_some_and(|argument| match (&finish, argument.ty) {
        (Finish::Join(_), ColumnType::Text) => true,
        (Finish::At(_), ColumnType::Real | ColumnType::Double | ColumnType::Decimal { .. }) => true,
        (Finish::Join(_) | Finish::At(_), _) => false,
    });
    if !taken {
        return Ok(None);
    }
    let ordering = Ordering::new(aggregate)?;
    let parts = parts(&ordering, aggregate.timed())?;
    let (rows, output) = (ordering.none(), aggregate.ty);
    Ok(Some(Box::new(Collect { ordering, parts, rows, members: Members::default(), forgotten: 0, finish, output })))
}

struct Collect {
    ordering: Ordering,
    parts: Vec<&'static str>,
    rows: Rows,
    members: Members,
    /// Rows that no group has any more.
    forgotten: usize,
    finish: Finish,
    output: ColumnType,
}

impl Collect {
    /// Rows of a group, in their order.
    fn sorted(&self, group: u32) -> Vec<u32> {
        let mut rows: Vec<u32> = self.members.of(group).collect();
        rows.sort_unstable_by(|a, b| self.rows.row(*a as usize).cmp(&self.rows.row(*b as usize)));
        rows
    }

    /// Columns of rows.
    ///
    /// Errors: more bytes of text than one column holds.
    fn columns(&self, rows: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let bytes: usize = rows.iter().map(|row| self.rows.row_len(*row as usize)).sum();
        if i32::try_from(bytes).is_err() {
            return Err(Error::new(Class::User, "the values that an aggregate keeps for some groups are larger than 2 GiB"));
        }
        self.ordering.columns(rows.iter().map(|row| self.rows.row(*row as usize)))
    }

    /// Keeps only the rows that groups have.
    fn compact(&mut self) {
        let (mut rows, mut members) = (self.ordering.none(), Members::default());
        members.grow(self.members.groups());
        for group in 0..self.members.groups() as u32 {
            for row in self.members.of(group) {
                rows.push(self.rows.row(row as usize));
                members.push(group);
            }
        }
        (self.rows, self.members, self.forgotten) = (rows, members, 0);
    }

    fn value(&self, rows: &[u32]) -> Result<ArrayRef, Error> {
        self.columns(rows)?.pop().ok_or_else(|| Error::new(Class::Bug, "a row has no value"))
    }

    fn joined(&self, groups: &[u32], between: &str) -> Result<ArrayRef, Error> {
        let lists: Vec<Vec<u32>> = groups.iter().map(|group| self.sorted(*group)).collect();
        let values = self.value(&lists.concat())?;
        let mut values = values.as_string::<i32>().iter().flatten();
        let mut texts = StringBuilder::new();
        for list in &lists {
            if list.is_empty() {
                texts.append_null();
                continue;
            }
            let text = values.by_ref().take(list.len()).collect::<Vec<_>>().join(between);
            if i32::try_from(texts.values_slice().len() + text.len()).is_err() {
                return Err(Error::new(Class::User, "string_agg gives more than 2 GiB of text"));
            }
            texts.append_value(text);
        }
        Ok(Arc::new(texts.finish()))
    }

    /// What lies at a share of the way, between two values in proportion.
    fn at(&self, groups: &[u32], share: f64) -> Result<ArrayRef, Error> {
        let (mut ends, mut places) = (Vec::new(), Vec::with_capacity(groups.len()));
        for group in groups {
            let rows = self.sorted(*group);
            if rows.is_empty() {
                places.push(None);
                continue;
            }
            let place = share * (rows.len() - 1) as f64;
            ends.extend([rows[place.floor() as usize], rows[place.ceil() as usize]]);
            places.push(Some(place.fract()));
        }
        let values = self.value(&ends)?;
        if let (DataType::Decimal128(_, from), ColumnType::Decimal { precision, scale }) = (values.data_type(), self.output) {
            let values = values.as_primitive::<Decimal128Type>().values();
            let between = |pair: &[i128]| middle(pair[0], pair[1], scale - from, precision);
            let mut pairs = values.chunks_exact(2);
            let one = |place: &Option<f64>| place.and_then(|_| pairs.next()).map(between).transpose();
            let array = places.iter().map(one).collect::<Result<Decimal128Array, Error>>()?;
            return Ok(Arc::new(array.with_data_type(self.output.to_arrow())));
        }
        let values = cast_to(&values, &DataType::Float64)?;
        let mut pairs = values.as_primitive::<Float64Type>().values().chunks_exact(2);
        let between = |(pair, share): (&[f64], f64)| if share == 0.0 { pair[0] } else { interpolated(pair[0], pair[1], share) };
        let array: Float64Array = places.iter().map(|place| place.and_then(|share| Some((pairs.next()?, share))).map(between)).collect();
        cast_to(&(Arc::new(array) as ArrayRef), &self.output.to_arrow())
    }
}

/// Between two values, of which neither difference nor sum need be in range.
fn interpolated(low: f64, high: f64, share: f64) -> f64 {
    let far = high - low;
    if far.is_finite() || !low.is_finite() || !high.is_finite() {
        // Equal infinities lie nowhere apart.
        return if low == high { low } else { low + far * share };
    }
    low * (1.0 - share) + high * share
}

/// Half way between two decimals, with `shift` more digits, rounded half away from zero.
fn middle(low: i128, high: i128, shift: i8, precision: u8) -> Result<i128, Error> {
    let overflows = || Error::new(Class::User, "median has more digits than its type".to_owned());
    let factor = u32::try_from(shift).ok().and_then(|shift| 10i128.checked_pow(shift)).ok_or_else(overflows)?;
    let sum = low.checked_add(high).and_then(|sum| sum.checked_mul(factor)).ok_or_else(overflows)?;
    let half = sum / 2 + sum % 2;
    let limit = 10i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
    if half.unsigned_abs() < limit.unsigned_abs() { Ok(half) } else { Err(overflows()) }
}

impl Accumulator for Collect {
    fn grow(&mut self, groups: usize) {
        self.members.grow(groups);
    }

    fn update(&mut self, groups: &[u32], values: &[ArrayRef]) -> Result<(), Error> {
        let value = values.first().ok_or_else(|| Error::new(Class::Bug, "an aggregate lacks its argument"))?;
        let nulls = value.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let mut given = values.to_vec();
        let there: Option<Vec<u32>> = nulls.map(|nulls| nulls.valid_indices().map(|row| row as u32).collect());
        if let Some(there) = &there {
            let picked = UInt32Array::from(there.clone());
            given = given.iter().map(|column| take(column, &picked, None).map_err(broken)).collect::<Result<_, _>>()?;
        }
        given[0] = canonical(&given[0]);
        self.ordering.append_given(&mut self.rows, &given)?;
        match there {
            None => groups.iter().for_each(|group| self.members.push(*group)),
            Some(there) => there.iter().for_each(|row| self.members.push(groups[*row as usize])),
        }
        Ok(())
    }

    fn peek(&self, groups: &[u32]) -> Result<ArrayRef, Error> {
        match &self.finish {
            Finish::Join(between) => self.joined(groups, between),
            Finish::At(share) => self.at(groups, *share),
        }
    }

    fn image_fields(&self) -> Vec<(&'static str, DataType)> {
        self.parts.iter().copied().zip(self.ordering.types().iter().map(|ty| list_type(ty.clone()))).collect()
    }

    fn image(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let (mut rows, mut ends) = (Vec::new(), vec![0]);
        for group in groups {
            rows.extend(self.members.of(*group));
            ends.push(end(rows.len())?);
        }
        self.columns(&rows)?.into_iter().map(|values| list(values, ends.clone())).collect()
    }

    fn restore(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        for group in groups {
            self.forgotten += self.members.forget(*group);
        }
        if self.members.mostly(self.forgotten) {
            self.compact();
        }
        self.merge(groups, columns)
    }

    fn merge(&mut self, groups: &[u32], columns: &[ArrayRef]) -> Result<(), Error> {
        let (groups, columns) = flattened(groups, columns, self.ordering.types().len())?;
        self.ordering.append(&mut self.rows, &columns)?;
        groups.iter().for_each(|group| self.members.push(*group));
        Ok(())
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.members.clear();
        self.forgotten = 0;
    }

    fn bytes(&self) -> usize {
        let rows = if self.rows.num_rows() == 0 { 0 } else { self.rows.size() };
        rows + self.members.bytes()
    }
}
