//! Edges of aggregates that random rows do not show: numbers that are none, limits, sketches of many values.

use super::{F, T, made, planned};
use crate::accumulate::accumulator;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array, Int64Array};
use arrow::datatypes::{Decimal128Type, Float32Type, Float64Type, Int64Type};
use std::sync::Arc;
use weir_planner::expr::{Aggregate, Expr, Literal, Typed};

fn double(function: F, values: &[f64]) -> Option<f64> {
    let mut accumulator = made(function, T::Double, T::Double);
    accumulator.grow(1);
    accumulator.update(&vec![0; values.len()], &[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
    let result = accumulator.peek(&[0]).unwrap();
    result.is_valid(0).then(|| result.as_primitive::<Float64Type>().value(0))
}

/// E7, as Postgres has it: an infinite or undefined value leaves no variance, not even of itself
/// alone; of one value a sample has none.
#[test]
fn variance_of_what_is_no_number_is_none() {
    for odd in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        assert!(double(F::VarPop, &[odd]).unwrap().is_nan(), "{odd}");
        assert!(double(F::StddevSamp, &[1.0, odd, 2.0]).unwrap().is_nan(), "{odd}");
        assert_eq!(double(F::VarSamp, &[odd]), None);
    }
    assert_eq!(double(F::VarSamp, &[5.0]), None);
    assert_eq!(double(F::VarPop, &[5.0]), Some(0.0));
    assert_eq!(double(F::StddevPop, &[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(2.0));
    assert_eq!(double(F::VarPop, &[]), None);
}

/// SQL-3: the median of DECIMAL is exact with one more digit, of REAL it is REAL; of infinities it is theirs.
#[test]
fn median_keeps_its_kind() {
    let (from, to) = (T::Decimal { precision: 10, scale: 2 }, T::Decimal { precision: 11, scale: 3 });
    let decimal = |values: &[i128]| {
        let mut median = made(F::Median, from, to);
        median.grow(1);
        let values = Decimal128Array::from(values.to_vec()).with_data_type(from.to_arrow());
        median.update(&vec![0; values.len()], &[Arc::new(values)]).unwrap();
        let result = median.peek(&[0]).unwrap();
        assert_eq!(result.data_type(), &to.to_arrow());
        result.as_primitive::<Decimal128Type>().value(0)
    };
    assert_eq!(decimal(&[110, 220, 9_999_999_999, -5]), 1_650, "(1.10 + 2.20) / 2 = 1.650");
    assert_eq!(decimal(&[101, 102]), 1_015, "1.015");
    assert_eq!(decimal(&[7]), 70);
    let mut median = made(F::Median, T::Real, T::Real);
    median.grow(1);
    median.update(&[0, 0, 0, 0], &[Arc::new(Float32Array::from(vec![0.5, 2.5, 9.0, -1.0]))]).unwrap();
    assert_eq!(median.peek(&[0]).unwrap().as_primitive::<Float32Type>().value(0), 1.5);
    let (inf, nan, max) = (f64::INFINITY, f64::NAN, f64::MAX);
    assert_eq!(double(F::Median, &[inf, inf]), Some(inf));
    assert_eq!(double(F::Median, &[max, -max]), Some(0.0), "the difference is out of range");
    assert_eq!(double(F::Median, &[nan, 1.0, -nan]).map(f64::is_nan), Some(true), "NaN is the greatest");
    assert_eq!(double(F::Median, &[nan, 1.0, 2.0]), Some(2.0));
}

/// SQL-3: of many values a sketch says about how many differ and where a share of them lies.
#[test]
fn sketches_of_many_values_are_about_right() {
    let mut count = made(F::ApproxDistinct, T::BigInt, T::BigInt);
    count.grow(2);
    for part in 0..10i64 {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..2_000).map(|i| (part * 1_000 + i) % 8_000)));
        count.update(&vec![1; 2_000], &[values]).unwrap();
    }
    let found = count.peek(&[1]).unwrap().as_primitive::<Int64Type>().value(0);
    assert!((7_600..=8_400).contains(&found), "{found} of 8000");
    assert_eq!(count.peek(&[0]).unwrap().as_primitive::<Int64Type>().value(0), 0, "not NULL");
    let argument = Typed { expr: Expr::Column("x".to_owned()), ty: T::Double, nullable: true };
    let share = Typed { expr: Expr::Literal(Literal::Double(0.95)), ty: T::Double, nullable: false };
    let plan = Aggregate { arguments: vec![argument, share], ..planned(F::ApproxPercentileCont, None, T::Double) };
    let mut tail = accumulator(&plan).unwrap();
    tail.grow(2);
    assert!(tail.peek(&[0]).unwrap().is_null(0));
    let mut merged = accumulator(&plan).unwrap();
    merged.grow(2);
    for part in 0..10 {
        let values = Float64Array::from_iter_values((0..1_000).map(|i| f64::from((i * 10 + part) * 7_919 % 10_000)));
        tail.update(&vec![0; 1_000], &[Arc::new(values)]).unwrap();
        merged.merge(&[1], &tail.image(&[0]).unwrap()).unwrap();
        tail.clear();
        tail.grow(2);
    }
    let found = merged.peek(&[1]).unwrap().as_primitive::<Float64Type>().value(0);
    assert!((9_400.0..=9_600.0).contains(&found), "{found}, and 9499.05 is right");
    let again = merged.peek(&[1]).unwrap().as_primitive::<Float64Type>().value(0);
    assert_eq!(found, again, "asking changes nothing");
    let with_nan: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 3.0]));
    tail.update(&[0, 0], &[with_nan]).unwrap();
    assert_eq!(tail.peek(&[0]).unwrap().as_primitive::<Float64Type>().value(0), 3.0, "NaN has no place on a scale");
}

/// WIN-5: what groups had that were emptied and filled again, as sessions are, does not stay behind.
#[test]
fn emptied_groups_give_their_room_back() {
    let distinct = Aggregate { distinct: true, ..planned(F::Sum, Some(T::BigInt), T::BigInt) };
    for plan in [distinct, planned(F::Median, Some(T::Double), T::Double)] {
        let mut held = accumulator(&plan).unwrap();
        held.grow(3);
        let fill = |held: &mut dyn crate::accumulate::Accumulator, group: u32, from: i64| {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 1_000));
            let values = arrow::compute::cast(&values, &plan.arguments[0].ty.to_arrow()).unwrap();
            held.update(&vec![group; 1_000], &[values]).unwrap();
        };
        fill(held.as_mut(), 2, 0);
        let stays = format!("{:?}", held.peek(&[2]).unwrap());
        let empty = held.image(&[0]).unwrap();
        let mut most = 0;
        for round in 0..100 {
            fill(held.as_mut(), 1, round * 7);
            most = most.max(held.bytes());
            held.restore(&[1], &empty).unwrap();
            assert!(held.peek(&[1]).unwrap().is_null(0), "{plan}");
        }
        assert!(most < 1_000_000, "{plan}: {most} bytes for 2000 values");
        fill(held.as_mut(), 1, 0);
        assert_eq!(format!("{:?}", held.peek(&[2]).unwrap()), stays, "{plan}");
        assert_eq!(format!("{:?}", held.peek(&[1]).unwrap()), stays, "{plan}");
    }
}

/// WIN-5: what DISTINCT and kept values hold is counted.
#[test]
fn bytes_follow_the_values_held() {
    let distinct = Aggregate { distinct: true, ..planned(F::Count, Some(T::BigInt), T::BigInt) };
    for plan in [distinct, planned(F::Median, Some(T::Double), T::Double), planned(F::ApproxDistinct, Some(T::BigInt), T::BigInt)] {
        let mut held = accumulator(&plan).unwrap();
        held.grow(1);
        let before = held.bytes();
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let values = arrow::compute::cast(&values, &plan.arguments[0].ty.to_arrow()).unwrap();
        held.update(&vec![0; 10_000], &[values]).unwrap();
        assert!(held.bytes() > before + 10_000, "{plan}: {before} to {}", held.bytes());
    }
}
