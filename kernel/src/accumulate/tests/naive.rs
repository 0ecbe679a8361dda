//! Every accumulator against plain recomputation from the rows of each group, over random rows in
//! random order, cut into batches and parts that are merged, imaged and restored.

use super::F;
use crate::accumulate::{Accumulator, accumulator};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_planner::expr::{Aggregate, Expr, Literal, Order, Typed};
use weir_planner::schema::ColumnType as T;

const GROUPS: u32 = 4;

/// A row with a column of each kind that aggregates take.
#[derive(Clone, Debug)]
struct Row {
    group: u32,
    long: Option<i64>,
    double: Option<f64>,
    other: Option<f64>,
    text: Option<String>,
    flag: Option<bool>,
    time: i64,
}

/// What a group gives.
#[derive(Clone, Debug)]
enum Want {
    Null,
    Long(i64),
    Double(f64),
    Text(String),
    Flag(bool),
    Error,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn shuffle<X>(&mut self, items: &mut [X]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Values that come again, with edges among them where `edges` says so.
    fn row(&mut self, edges: bool) -> Row {
        let some = |random: &mut Random| random.below(5) > 0;
        let long = match self.below(12) {
            0 if edges => i64::MAX,
            1 if edges => i64::MIN,
            _ => self.below(20) as i64 - 10,
        };
        let double = match self.below(12) {
            0 if edges => f64::NAN,
            1 if edges => -f64::NAN,
            2 => -0.0,
            3 if edges => f64::INFINITY,
            4 => 0.0,
            5 if edges => 1e300,
            // Far from 0 and near to each other: a naive variance has no digit left.
            _ => 1e8 + self.below(1_000) as f64 / 8.0,
        };
        Row {
            group: self.below(u64::from(GROUPS - 1)) as u32,
            long: some(self).then_some(long),
            double: some(self).then_some(double),
            other: some(self).then(|| self.below(1_000) as f64 / 16.0 - 30.0),
            text: some(self).then(|| ["", "a", "b", "ä", "zz"][self.below(5) as usize].to_owned()),
            flag: some(self).then(|| self.below(2) == 1),
            time: self.below(6) as i64,
        }
    }
}

fn typed(name: &str, ty: T) -> Typed {
    Typed { expr: Expr::Column(name.to_owned()), ty, nullable: true }
}

fn constant(literal: Literal, ty: T) -> Typed {
    Typed { expr: Expr::Literal(literal), ty, nullable: false }
}

fn call(function: F, arguments: &[(&str, T)], ty: T) -> Aggregate {
    let arguments = arguments.iter().map(|(name, ty)| typed(name, *ty)).collect();
    Aggregate { function, arguments, distinct: false, order_by: Vec::new(), filter: None, ty, nullable: true }
}

fn distinct(aggregate: Aggregate) -> Aggregate {
    Aggregate { distinct: true, ..aggregate }
}

/// The columns that an aggregate takes of rows, as an operator would compute them.
fn columns(aggregate: &Aggregate, rows: &[Row]) -> Vec<ArrayRef> {
    let column = |name: &str| -> ArrayRef {
        match name {
            "long" => Arc::new(rows.iter().map(|row| row.long).collect::<Int64Array>()),
            "double" => Arc::new(rows.iter().map(|row| row.double).collect::<Float64Array>()),
            "other" => Arc::new(rows.iter().map(|row| row.other).collect::<Float64Array>()),
            "text" => Arc::new(rows.iter().map(|row| row.text.clone()).collect::<StringArray>()),
            "flag" => Arc::new(rows.iter().map(|row| row.flag).collect::<BooleanArray>()),
            other => panic!("{other}"),
        }
    };
    let mut columns: Vec<ArrayRef> = aggregate
        .columns()
        .map(|typed| match &typed.expr {
            Expr::Column(name) => column(name),
            other => panic!("{other}"),
        })
        .collect();
    if aggregate.timed() {
        columns.push(Arc::new(rows.iter().map(|row| Some(row.time)).collect::<Int64Array>()));
    }
    columns
}

fn feed(into: &mut dyn Accumulator, aggregate: &Aggregate, rows: &[Row], random: &mut Random) {
    into.grow(GROUPS as usize);
    let mut rest = rows;
    while !rest.is_empty() {
        let (batch, others) = rest.split_at((1 + random.below(7) as usize).min(rest.len()));
        let groups: Vec<u32> = batch.iter().map(|row| row.group).collect();
        into.update(&groups, &columns(aggregate, batch)).unwrap();
        rest = others;
    }
}

fn agrees(found: &Result<ArrayRef, String>, row: usize, want: &Want) -> bool {
    match (found, want) {
        (Err(_), Want::Error) => true,
        (Ok(array), Want::Null) => array.is_null(row),
        (Ok(array), _) if array.is_null(row) => false,
        (Ok(array), Want::Long(want)) => array.as_primitive::<Int64Type>().value(row) == *want,
        (Ok(array), Want::Flag(want)) => array.as_boolean().value(row) == *want,
        (Ok(array), Want::Text(want)) => array.as_string::<i32>().value(row) == want,
        (Ok(array), Want::Double(want)) => {
            let found = array.as_primitive::<Float64Type>().value(row);
            found == *want || (found.is_nan() && want.is_nan()) || (found - want).abs() <= 1e-9 * want.abs().max(1e-6)
        }
        (Ok(_) | Err(_), _) => false,
    }
}

/// Runs one aggregate in every way and compares each group with `naive`.
fn check(aggregate: &Aggregate, edges: bool, naive: impl Fn(&[Row]) -> Want) {
    for seed in 0..60 {
        let mut random = Random(seed);
        let count = random.below(60) as usize;
        let mut rows: Vec<Row> = (0..count).map(|_| random.row(edges)).collect();
        let wants: Vec<Want> =
            (0..GROUPS).map(|group| naive(&rows.iter().filter(|row| row.group == group).cloned().collect::<Vec<_>>())).collect();
        let all: Vec<u32> = (0..GROUPS).collect();
        let verify = |accumulator: &dyn Accumulator, how: &str| {
            for group in 0..GROUPS {
                let found = accumulator.peek(&[group]).map_err(|error| error.message);
                let want = &wants[group as usize];
                assert!(agrees(&found, 0, want), "seed {seed}, {how}: {aggregate}, group {group}: wanted {want:?}, found {found:?}");
            }
        };
        let fresh = || {
            let mut fresh = accumulator(aggregate).unwrap();
            assert_eq!(fresh.bytes(), 0, "{aggregate}");
            fresh.grow(GROUPS as usize);
            fresh
        };
        let mut whole = fresh();
        feed(whole.as_mut(), aggregate, &rows, &mut random);
        verify(whole.as_ref(), "whole");
        verify(whole.as_ref(), "asked again");
        let mut restored = fresh();
        let image = whole.image(&all).unwrap();
        let types: Vec<DataType> = image.iter().map(|column| column.data_type().clone()).collect();
        assert_eq!(types, whole.image_fields().into_iter().map(|(_, ty)| ty).collect::<Vec<_>>(), "{aggregate}");
        restored.restore(&all, &image).unwrap();
        restored.restore(&all, &image).unwrap();
        verify(restored.as_ref(), "restored over itself");
        // Parts in another order, the first of them restored and gone on with, the others merged.
        random.shuffle(&mut rows);
        let cut = random.below(count as u64 + 1) as usize;
        let (first, second) = rows.split_at(cut);
        let mut parts = (fresh(), fresh());
        feed(parts.0.as_mut(), aggregate, first, &mut random);
        feed(parts.1.as_mut(), aggregate, &second[..second.len() / 2], &mut random);
        let mut merged = fresh();
        merged.restore(&all, &parts.0.image(&all).unwrap()).unwrap();
        feed(merged.as_mut(), aggregate, &second[second.len() / 2..], &mut random);
        // Listed in another order, which images and merges keep.
        let turned = [3, 1, 0, 2];
        merged.merge(&turned, &parts.1.image(&turned).unwrap()).unwrap();
        verify(merged.as_ref(), "merged");
        assert!(merged.bytes() > 0);
        merged.clear();
        feed(merged.as_mut(), aggregate, &rows, &mut random);
        verify(merged.as_ref(), "cleared");
        if weir_planner::plan::partial::state_columns(aggregate).is_some() {
            let lifted = fresh().lift(count, &columns(aggregate, &rows)).unwrap();
            let mut from_rows = fresh();
            from_rows.merge(&rows.iter().map(|row| row.group).collect::<Vec<_>>(), &lifted).unwrap();
            verify(from_rows.as_ref(), "from lifted rows");
        }
    }
}

fn longs(rows: &[Row]) -> Vec<i64> {
    rows.iter().filter_map(|row| row.long).collect()
}

fn doubles(rows: &[Row]) -> Vec<f64> {
    rows.iter().filter_map(|row| row.double).collect()
}

fn some(value: Option<f64>) -> Want {
    value.map_or(Want::Null, Want::Double)
}

fn some_long(value: Option<i64>) -> Want {
    value.map_or(Want::Null, Want::Long)
}

/// Mean, and sum of the squared distances from it, in two passes.
fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|value| (value - mean) * (value - mean)).sum())
}

fn numeric(a: &f64, b: &f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).unwrap(),
        (a, b) => a.cmp(&b),
    }
}

/// WIN-6: booleans and bits.
#[test]
fn booleans_and_bits_are_those_of_plain_loops() {
    let flags = |rows: &[Row]| rows.iter().filter_map(|row| row.flag).collect::<Vec<_>>();
    let flag = |value: Option<bool>| value.map_or(Want::Null, Want::Flag);
    check(&call(F::BoolAnd, &[("flag", T::Boolean)], T::Boolean), true, |rows| flag(flags(rows).into_iter().reduce(|a, b| a && b)));
    check(&call(F::BoolOr, &[("flag", T::Boolean)], T::Boolean), true, |rows| flag(flags(rows).into_iter().reduce(|a, b| a || b)));
    let long = [("long", T::BigInt)];
    check(&call(F::BitAnd, &long, T::BigInt), true, |rows| some_long(longs(rows).into_iter().reduce(|a, b| a & b)));
    check(&call(F::BitOr, &long, T::BigInt), true, |rows| some_long(longs(rows).into_iter().reduce(|a, b| a | b)));
    check(&call(F::BitXor, &long, T::BigInt), true, |rows| some_long(longs(rows).into_iter().reduce(|a, b| a ^ b)));
}

/// WIN-6: variances of values that are far from 0 and near to each other, within 1e-9.
#[test]
fn variances_are_those_of_two_passes() {
    for (function, sample, root) in [(F::VarSamp, 1, false), (F::VarPop, 0, false), (F::StddevSamp, 1, true), (F::StddevPop, 0, true)] {
        check(&call(function, &[("other", T::Double)], T::Double), true, |rows| {
            let values: Vec<f64> = rows.iter().filter_map(|row| row.other).collect();
            let variance = (values.len() > sample).then(|| spread(&values).1 / (values.len() - sample) as f64);
            some(variance.map(|variance| if root { variance.sqrt() } else { variance }))
        });
        // Without the zeros, which lie far from the others.
        let near = Aggregate { ..call(function, &[("double", T::Double)], T::Double) };
        check(&near, false, |rows| {
            let values = doubles(rows);
            let variance = (values.len() > sample).then(|| spread(&values).1 / (values.len() - sample) as f64);
            some(variance.map(|variance| if root { variance.sqrt() } else { variance }))
        });
        // One that is no number makes all of them none.
        check(&call(function, &[("long", T::BigInt)], T::Double), false, |rows| {
            let values: Vec<f64> = longs(rows).iter().map(|value| *value as f64).collect();
            let variance = (values.len() > sample).then(|| spread(&values).1 / (values.len() - sample) as f64);
            some(variance.map(|variance| if root { variance.sqrt() } else { variance }))
        });
    }
}

/// SQL-3: what is of pairs, as Postgres defines each.
#[test]
fn pairs_are_those_of_two_passes() {
    let functions = [F::CovarSamp, F::CovarPop, F::RegrSlope, F::RegrIntercept, F::RegrAvgx, F::RegrAvgy, F::RegrSxx, F::RegrSyy];
    for function in functions.into_iter().chain([F::RegrSxy, F::RegrCount, F::Corr, F::RegrR2]) {
        let output = if function == F::RegrCount { T::BigInt } else { T::Double };
        check(&call(function, &[("other", T::Double), ("long", T::BigInt)], output), false, |rows| {
            let (ys, xs): (Vec<f64>, Vec<f64>) = rows.iter().filter_map(|row| Some((row.other?, row.long? as f64))).unzip();
            let count = ys.len() as f64;
            let ((mean_y, syy), (mean_x, sxx)) = (spread(&ys), spread(&xs));
            let sxy: f64 = ys.iter().zip(&xs).map(|(y, x)| (y - mean_y) * (x - mean_x)).sum();
            if function == F::RegrCount {
                return Want::Long(ys.len() as i64);
            }
            if ys.is_empty() {
                return Want::Null;
            }
            let one_x = xs.iter().all(|x| *x == xs[0]);
            let one_y = ys.iter().all(|y| *y == ys[0]);
            some(match function {
                F::CovarSamp => (count > 1.0).then(|| sxy / (count - 1.0)),
                F::CovarPop => Some(sxy / count),
                F::RegrSlope => (!one_x).then(|| sxy / sxx),
                F::RegrIntercept => (!one_x).then(|| mean_y - sxy / sxx * mean_x),
                F::RegrAvgx => Some(mean_x),
                F::RegrAvgy => Some(mean_y),
                F::RegrSxx => Some(sxx),
                F::RegrSyy => Some(syy),
                F::RegrSxy => Some(sxy),
                F::Corr => (!one_x && !one_y).then(|| sxy / (sxx * syy).sqrt()),
                F::RegrR2 if one_x => None,
                F::RegrR2 => Some(if one_y { 1.0 } else { sxy * sxy / (sxx * syy) }),
                other => panic!("{other:?}"),
            })
        });
    }
}

/// WIN-6, EV-3: first and last go by the call's order, then event time, then the value, NULL last;
/// so that it does not matter in which order rows come.
#[test]
fn first_and_last_have_one_answer_in_any_order() {
    let nulls_last = |a: &Option<String>, b: &Option<String>| (a.is_none(), a).cmp(&(b.is_none(), b));
    let text = |row: Option<&Row>| match row.map(|row| &row.text) {
        Some(Some(text)) => Want::Text(text.clone()),
        Some(None) | None => Want::Null,
    };
    let by_time = |a: &Row, b: &Row| a.time.cmp(&b.time).then_with(|| nulls_last(&a.text, &b.text));
    let value = [("text", T::Text)];
    check(&call(F::FirstValue, &value, T::Text), true, |rows| text(rows.iter().min_by(|a, b| by_time(a, b))));
    check(&call(F::LastValue, &value, T::Text), true, |rows| text(rows.iter().max_by(|a, b| by_time(a, b))));
    // ORDER BY double DESC: NULL first, then NaN, then numbers downward, -0 and 0 as one.
    let order = Order { by: typed("double", T::Double), descending: true, nulls_first: true };
    let by_double = |a: &Row, b: &Row| {
        let order = match (a.double, b.double) {
            (Some(a), Some(b)) => numeric(&b, &a),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        order.then_with(|| by_time(a, b))
    };
    let ordered = |function| Aggregate { order_by: vec![order.clone()], ..call(function, &value, T::Text) };
    check(&ordered(F::FirstValue), true, |rows| text(rows.iter().min_by(|a, b| by_double(a, b))));
    check(&ordered(F::LastValue), true, |rows| text(rows.iter().max_by(|a, b| by_double(a, b))));
}

/// SQL-3: DISTINCT adds each value once; NaN is one value, and -0 is 0.
#[test]
fn distinct_adds_each_value_once() {
    let set = |rows: &[Row]| longs(rows).into_iter().collect::<BTreeSet<_>>();
    let long = [("long", T::BigInt)];
    check(&distinct(call(F::Count, &long, T::BigInt)), true, |rows| Want::Long(set(rows).len() as i64));
    check(&distinct(call(F::Sum, &long, T::BigInt)), true, |rows| {
        let set = set(rows);
        let sum: i128 = set.iter().map(|value| i128::from(*value)).sum();
        if set.is_empty() { Want::Null } else { i64::try_from(sum).map_or(Want::Error, Want::Long) }
    });
    check(&distinct(call(F::Avg, &long, T::Double)), true, |rows| {
        let set = set(rows);
        let sum: i128 = set.iter().map(|value| i128::from(*value)).sum();
        some((!set.is_empty()).then(|| sum as f64 / set.len() as f64))
    });
    check(&distinct(call(F::Count, &[("double", T::Double)], T::BigInt)), true, |rows| {
        let mut values = doubles(rows);
        values.sort_by(numeric);
        values.dedup_by(|a, b| numeric(a, b) == Ordering::Equal);
        Want::Long(values.len() as i64)
    });
    check(&distinct(call(F::Count, &[("text", T::Text), ("flag", T::Boolean)], T::BigInt)), true, |rows| {
        let pairs: BTreeSet<(String, bool)> = rows.iter().filter_map(|row| Some((row.text.clone()?, row.flag?))).collect();
        Want::Long(pairs.len() as i64)
    });
    check(&distinct(call(F::VarPop, &long, T::Double)), false, |rows| {
        let values: Vec<f64> = set(rows).into_iter().map(|value| value as f64).collect();
        some((!values.is_empty()).then(|| spread(&values).1 / values.len() as f64))
    });
}

/// SQL-3: what keeps all values: texts in their order, and places between sorted numbers.
#[test]
fn kept_values_come_in_their_order() {
    let joined = |texts: Vec<String>| if texts.is_empty() { Want::Null } else { Want::Text(texts.join("; ")) };
    let between = constant(Literal::Text("; ".to_owned()), T::Text);
    let strings = |aggregate: Aggregate| Aggregate { arguments: vec![typed("text", T::Text), between.clone()], ..aggregate };
    check(&strings(call(F::StringAgg, &[], T::Text)), true, |rows| {
        let mut rows: Vec<&Row> = rows.iter().filter(|row| row.text.is_some()).collect();
        rows.sort_by(|a, b| (a.time, &a.text).cmp(&(b.time, &b.text)));
        joined(rows.into_iter().filter_map(|row| row.text.clone()).collect())
    });
    let order = Order { by: typed("text", T::Text), descending: true, nulls_first: true };
    let backward = Aggregate { order_by: vec![order], ..distinct(strings(call(F::StringAgg, &[], T::Text))) };
    check(&backward, true, |rows| {
        let set: BTreeSet<String> = rows.iter().filter_map(|row| row.text.clone()).collect();
        joined(set.into_iter().rev().collect())
    });
    let at = |rows: &[Row], share: f64| {
        let mut values = doubles(rows);
        values.sort_by(numeric);
        let place = share * (values.len().max(1) - 1) as f64;
        let low = *values.get(place.floor() as usize)?;
        let high = *values.get(place.ceil() as usize)?;
        Some(if low == high { low } else { low + (high - low) * (place - place.floor()) })
    };
    check(&call(F::Median, &[("double", T::Double)], T::Double), false, |rows| some(at(rows, 0.5)));
    for share in [0.0, 0.3, 0.95, 1.0] {
        let share_of = constant(Literal::Double(share), T::Double);
        let percentile = Aggregate { arguments: vec![typed("double", T::Double), share_of], ..call(F::PercentileCont, &[], T::Double) };
        check(&percentile, false, |rows| some(at(rows, share)));
    }
    check(&distinct(call(F::Median, &[("double", T::Double)], T::Double)), false, |rows| {
        let mut values = doubles(rows);
        values.sort_by(numeric);
        values.dedup();
        let middle = |at: f64| values[at as usize];
        let place = (values.len().max(1) - 1) as f64 / 2.0;
        some((!values.is_empty()).then(|| (middle(place.floor()) + middle(place.ceil())) / 2.0))
    });
}

/// SQL-3: sketches. Of few values they are exact, after merges and restores too.
#[test]
fn sketches_of_few_values_are_near() {
    check(&call(F::ApproxDistinct, &[("long", T::BigInt)], T::BigInt), true, |rows| {
        Want::Long(longs(rows).into_iter().collect::<BTreeSet<_>>().len() as i64)
    });
    check(&call(F::ApproxDistinct, &[("double", T::Double)], T::BigInt), false, |rows| {
        let mut values = doubles(rows);
        values.sort_by(numeric);
        values.dedup();
        Want::Long(values.len() as i64)
    });
}
