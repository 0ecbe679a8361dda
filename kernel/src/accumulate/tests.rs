//! Edges of every accumulator: types, nulls, overflow, NaN, order, image and restore.

use crate::accumulate::{Accumulator, accumulator};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{Aggregate, AggregateFunction as F, Expr, Typed};
use weir_planner::schema::ColumnType as T;
use weir_planner::time::TimeUnit;

fn planned(function: F, input: Option<T>, output: T) -> Aggregate {
    let arguments = input.map(|ty| Typed { expr: Expr::Column("x".to_owned()), ty, nullable: true }).into_iter().collect();
    Aggregate { function, arguments, distinct: false, order_by: Vec::new(), filter: None, ty: output, nullable: true }
}

fn made(function: F, input: T, output: T) -> Box<dyn Accumulator> {
    accumulator(&planned(function, Some(input), output)).unwrap()
}

/// Feeds all values to group 0 in one batch.
fn fed(function: F, input: T, output: T, values: ArrayRef) -> Box<dyn Accumulator> {
    let mut accumulator = made(function, input, output);
    accumulator.grow(1);
    accumulator.update(&vec![0; values.len()], &[values]).unwrap();
    accumulator
}

fn one(function: F, input: T, output: T, values: impl Array + 'static) -> ArrayRef {
    let result = fed(function, input, output, Arc::new(values)).peek(&[0]).unwrap();
    assert_eq!(result.data_type(), &output.to_arrow());
    result
}

fn double(array: &ArrayRef) -> f64 {
    array.as_primitive::<Float64Type>().value(0)
}

fn long(array: &ArrayRef) -> i64 {
    array.as_primitive::<Int64Type>().value(0)
}

fn decimal(array: &ArrayRef) -> i128 {
    array.as_primitive::<Decimal128Type>().value(0)
}

const D: T = T::Decimal { precision: 10, scale: 2 };
const SUM_D: T = T::Decimal { precision: 38, scale: 2 };
const AVG_D: T = T::Decimal { precision: 38, scale: 6 };

fn decimals(values: &[i128]) -> Decimal128Array {
    Decimal128Array::from(values.to_vec()).with_data_type(D.to_arrow())
}

#[test]
fn count_star_counts_rows_and_count_counts_values() {
    let mut star = accumulator(&planned(F::Count, None, T::BigInt)).unwrap();
    star.grow(2);
    star.update(&[0, 1, 0, 0], &[]).unwrap();
    assert_eq!(star.peek(&[0, 1]).unwrap().as_primitive::<Int64Type>().values(), &[3, 1]);
    let values = one(F::Count, T::Text, T::BigInt, StringArray::from(vec![Some("a"), None, Some("")]));
    assert_eq!(long(&values), 2);
    assert_eq!(long(&one(F::Count, T::BigInt, T::BigInt, Int64Array::from(vec![None, None]))), 0, "not NULL");
}

#[test]
fn sum_of_every_integer_is_bigint() {
    assert_eq!(long(&one(F::Sum, T::SmallInt, T::BigInt, Int16Array::from(vec![i16::MAX, i16::MAX, 1]))), 65_535);
    assert_eq!(long(&one(F::Sum, T::Integer, T::BigInt, Int32Array::from(vec![i32::MAX, i32::MAX]))), 2 * i64::from(i32::MAX));
    assert_eq!(long(&one(F::Sum, T::BigInt, T::BigInt, Int64Array::from(vec![Some(5), None, Some(-7)]))), -2);
}

#[test]
fn sum_of_nothing_is_null() {
    for (input, output, values) in [
        (T::BigInt, T::BigInt, Arc::new(Int64Array::from(vec![None::<i64>; 3])) as ArrayRef),
        (T::Double, T::Double, Arc::new(Float64Array::from(vec![None::<f64>]))),
        (T::Real, T::Real, Arc::new(Float32Array::from(vec![None::<f32>]))),
        (D, SUM_D, Arc::new(Decimal128Array::from(vec![None::<i128>]).with_data_type(D.to_arrow()))),
    ] {
        let result = fed(F::Sum, input, output, values).peek(&[0]).unwrap();
        assert!(result.is_null(0));
        assert_eq!(result.data_type(), &output.to_arrow());
    }
    let mut untouched = made(F::Sum, T::BigInt, T::BigInt);
    untouched.grow(3);
    assert_eq!(untouched.peek(&[0, 1, 2]).unwrap().null_count(), 3);
}

/// SQL-3: overflow is an error, not a wrap, in both directions and however far.
#[test]
fn sum_overflow_is_an_error() {
    for values in [vec![i64::MAX, 1], vec![i64::MIN, -1], vec![i64::MAX; 5], vec![i64::MIN; 7]] {
        let exact: i128 = values.iter().map(|v| i128::from(*v)).sum();
        let error = fed(F::Sum, T::BigInt, T::BigInt, Arc::new(Int64Array::from(values))).peek(&[0]).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert_eq!(error.message, format!("sum overflows BIGINT: it comes to {exact}"));
    }
}

/// EV-3: whether a sum overflows does not depend on the order of the rows.
#[test]
fn sum_that_comes_back_into_range_is_right_in_any_order() {
    for values in [[i64::MAX, i64::MAX, i64::MIN, -5], [i64::MIN, -5, i64::MAX, i64::MAX], [-5, i64::MAX, i64::MIN, i64::MAX]] {
        assert_eq!(long(&one(F::Sum, T::BigInt, T::BigInt, Int64Array::from(values.to_vec()))), i64::MAX - 6);
    }
    assert_eq!(long(&one(F::Sum, T::BigInt, T::BigInt, Int64Array::from(vec![i64::MIN, i64::MAX]))), -1);
    assert_eq!(long(&one(F::Sum, T::BigInt, T::BigInt, Int64Array::from(vec![i64::MAX]))), i64::MAX);
}

#[test]
fn sum_of_doubles_is_compensated() {
    let mut values = vec![1e16];
    values.extend([1.0; 1000]);
    values.push(-1e16);
    assert_eq!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(values))), 1000.0);
    assert_eq!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(vec![0.1; 10]))), 1.0);
}

#[test]
fn sum_of_doubles_keeps_infinity_and_nan() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    assert_eq!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(vec![1.0, inf, 2.0]))), inf);
    assert_eq!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(vec![-inf, 2.0]))), -inf);
    assert!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(vec![inf, -inf]))).is_nan());
    assert!(double(&one(F::Sum, T::Double, T::Double, Float64Array::from(vec![1.0, nan]))).is_nan());
}

#[test]
fn sum_of_reals_is_real_and_added_up_in_double() {
    let values = Float32Array::from(vec![16_777_216.0, 1.0, 1.0]);
    let sum = one(F::Sum, T::Real, T::Real, values);
    assert_eq!(sum.as_primitive::<Float32Type>().value(0), 16_777_218.0);
}

#[test]
fn sum_of_decimals_is_exact() {
    assert_eq!(decimal(&one(F::Sum, D, SUM_D, decimals(&[101, -1, 9_999_999_999]))), 10_000_000_099);
    let big = T::Decimal { precision: 38, scale: 0 };
    let huge = 10i128.pow(38) - 1;
    let column = |values: Vec<i128>| Arc::new(Decimal128Array::from(values).with_data_type(big.to_arrow())) as ArrayRef;
    let error = fed(F::Sum, big, big, column(vec![huge, 1])).peek(&[0]).unwrap_err();
    assert!(error.message.starts_with("sum overflows DECIMAL(38,0)"), "{error}");
    // Leaves even 128 bit on the way and comes back.
    let back = fed(F::Sum, big, big, column(vec![huge, huge, huge, -huge, -huge])).peek(&[0]).unwrap();
    assert_eq!(decimal(&back), huge);
    assert!(fed(F::Sum, big, big, column(vec![-huge, -huge, -huge])).peek(&[0]).is_err());
}

#[test]
fn avg_of_integers_is_exact_before_it_is_divided() {
    assert_eq!(double(&one(F::Avg, T::BigInt, T::Double, Int64Array::from(vec![i64::MAX, i64::MAX]))), i64::MAX as f64);
    assert_eq!(double(&one(F::Avg, T::BigInt, T::Double, Int64Array::from(vec![i64::MIN, i64::MIN, i64::MIN]))), i64::MIN as f64);
    assert_eq!(double(&one(F::Avg, T::Integer, T::Double, Int32Array::from(vec![Some(1), None, Some(2)]))), 1.5);
    assert_eq!(double(&one(F::Avg, T::SmallInt, T::Double, Int16Array::from(vec![-3, 4]))), 0.5);
    assert!(one(F::Avg, T::BigInt, T::Double, Int64Array::from(vec![None::<i64>])).is_null(0));
}

#[test]
fn avg_of_floats_is_double() {
    assert_eq!(double(&one(F::Avg, T::Real, T::Double, Float32Array::from(vec![0.5, 1.0]))), 0.75);
    assert_eq!(double(&one(F::Avg, T::Double, T::Double, Float64Array::from(vec![1e16, 1.0, -1e16]))), 1.0 / 3.0);
    assert!(double(&one(F::Avg, T::Double, T::Double, Float64Array::from(vec![f64::NAN, 1.0]))).is_nan());
    assert!(one(F::Avg, T::Double, T::Double, Float64Array::from(vec![None::<f64>])).is_null(0));
}

/// Half away from zero, as numeric rounds in Postgres.
#[test]
fn avg_of_decimals_rounds_half_away_from_zero() {
    assert_eq!(decimal(&one(F::Avg, D, AVG_D, decimals(&[100, 101, 101]))), 1_006_667);
    assert_eq!(decimal(&one(F::Avg, D, SUM_D, decimals(&[1, 2]))), 2);
    assert_eq!(decimal(&one(F::Avg, D, SUM_D, decimals(&[-1, -2]))), -2);
    assert_eq!(decimal(&one(F::Avg, D, SUM_D, decimals(&[-1, -1, -2]))), -1);
    assert_eq!(decimal(&one(F::Avg, D, T::Decimal { precision: 10, scale: 0 }, decimals(&[150, 150]))), 2);
    assert!(one(F::Avg, D, AVG_D, Decimal128Array::from(vec![None::<i128>]).with_data_type(D.to_arrow())).is_null(0));
}

#[test]
fn avg_of_decimals_overflow_is_an_error() {
    let wide = T::Decimal { precision: 38, scale: 0 };
    let huge = 10i128.pow(38) - 1;
    let values = Arc::new(Decimal128Array::from(vec![huge, huge, huge]).with_data_type(wide.to_arrow())) as ArrayRef;
    assert_eq!(decimal(&fed(F::Avg, wide, wide, values.clone()).peek(&[0]).unwrap()), huge);
    let scaled = T::Decimal { precision: 38, scale: 4 };
    assert_eq!(fed(F::Avg, wide, scaled, values).peek(&[0]).unwrap_err().message, "avg overflows DECIMAL(38,4)");
}

fn extremes(ty: T, values: ArrayRef) -> (ArrayRef, ArrayRef) {
    let low = fed(F::Min, ty, ty, values.clone()).peek(&[0]).unwrap();
    let high = fed(F::Max, ty, ty, values).peek(&[0]).unwrap();
    assert_eq!((low.data_type(), high.data_type()), (&ty.to_arrow(), &ty.to_arrow()));
    (low, high)
}

/// SQL-3: min and max have the input type, for every type.
#[test]
fn extremes_of_every_type() {
    let stamp = T::Timestamp { unit: TimeUnit::Microsecond, zoned: true };
    let cases: Vec<(T, ArrayRef)> = vec![
        (T::SmallInt, Arc::new(Int16Array::from(vec![Some(-3), None, Some(2), Some(9)]))),
        (T::Integer, Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(2), Some(i32::MAX)]))),
        (T::BigInt, Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(2), Some(i64::MAX)]))),
        (T::Real, Arc::new(Float32Array::from(vec![Some(-1.5), None, Some(0.0), Some(2.5)]))),
        (T::Double, Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), None, Some(0.0), Some(f64::INFINITY)]))),
        (D, Arc::new(Decimal128Array::from(vec![Some(-5), None, Some(1), Some(7)]).with_data_type(D.to_arrow()))),
        (T::Date, Arc::new(Date32Array::from(vec![Some(-40), None, Some(0), Some(20_000)]))),
        (stamp, Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(0), Some(5)]).with_timezone("+00:00"))),
        (T::Text, Arc::new(StringArray::from(vec![Some(""), None, Some("a"), Some("é")]))),
        (T::Bytea, Arc::new(BinaryArray::from(vec![Some(&b"\x00"[..]), None, Some(b"a"), Some(b"\xff")]))),
        (T::Boolean, Arc::new(BooleanArray::from(vec![Some(false), None, Some(true), Some(true)]))),
    ];
    for (ty, values) in cases {
        // In either order.
        for order in [[0u32, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]] {
            let indices = arrow::array::UInt32Array::from(order.to_vec());
            let shuffled = arrow::compute::take(&values, &indices, None).unwrap();
            let (low, high) = extremes(ty, shuffled);
            assert_eq!(&low, &values.slice(0, 1), "min of {ty}");
            assert_eq!(&high, &values.slice(3, 1), "max of {ty}");
        }
        let (low, high) = extremes(ty, values.slice(1, 1));
        assert!(low.is_null(0) && high.is_null(0), "all null for {ty}");
    }
}

/// NaN is the greatest number, as in Postgres; 0 and -0 are one value, in any order.
#[test]
fn extremes_of_nan_and_negative_zero() {
    let nan = f64::NAN;
    for values in [vec![nan, 1.0, f64::INFINITY], vec![1.0, f64::INFINITY, nan], vec![f64::INFINITY, -nan, 1.0]] {
        let (low, high) = extremes(T::Double, Arc::new(Float64Array::from(values)));
        assert_eq!(double(&low), 1.0);
        assert!(double(&high).is_nan());
    }
    let (low, high) = extremes(T::Double, Arc::new(Float64Array::from(vec![nan, nan])));
    assert!(double(&low).is_nan() && double(&high).is_nan());
    for values in [vec![0.0, -0.0], vec![-0.0, 0.0]] {
        let (low, high) = extremes(T::Double, Arc::new(Float64Array::from(values)));
        assert_eq!((double(&low).to_bits(), double(&high).to_bits()), (0, 0));
    }
    let (low, high) = extremes(T::Real, Arc::new(Float32Array::from(vec![f32::NAN, -2.0])));
    assert_eq!(low.as_primitive::<Float32Type>().value(0), -2.0);
    assert!(high.as_primitive::<Float32Type>().value(0).is_nan());
}

#[test]
fn types_without_a_meaning_are_refused() {
    for (function, ty) in
        [(F::Sum, T::Text), (F::Sum, T::Boolean), (F::Avg, T::Date), (F::Avg, T::Text), (F::Min, T::Interval), (F::Sum, T::Interval)]
    {
        let error = accumulator(&planned(function, Some(ty), T::BigInt)).err().unwrap();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains(&format!("does not take a value of type {ty}")), "{error}");
    }
    assert_eq!(accumulator(&planned(F::Sum, None, T::BigInt)).err().unwrap().class, Class::Bug);
}

fn every_kind() -> Vec<(Box<dyn Accumulator>, Box<dyn Accumulator>, ArrayRef)> {
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(-4), Some(i64::MAX), Some(7), None]));
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![Some(1e16), None, Some(1.0), Some(f64::NAN), Some(-1e16), Some(0.1)]));
    let money: ArrayRef =
        Arc::new(Decimal128Array::from(vec![Some(1), None, Some(-9_999), Some(3), Some(4), Some(5)]).with_data_type(D.to_arrow()));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some(""), Some("zz"), Some("a"), None]));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true), Some(true), None]));
    let two = |function, input, output, values: &ArrayRef| (made(function, input, output), made(function, input, output), values.clone());
    vec![
        two(F::Count, T::BigInt, T::BigInt, &longs),
        two(F::Sum, T::BigInt, T::BigInt, &longs),
        two(F::Avg, T::BigInt, T::Double, &longs),
        two(F::Min, T::BigInt, T::BigInt, &longs),
        two(F::Sum, T::Double, T::Double, &doubles),
        two(F::Avg, T::Double, T::Double, &doubles),
        two(F::Max, T::Double, T::Double, &doubles),
        two(F::Sum, D, SUM_D, &money),
        two(F::Avg, D, AVG_D, &money),
        two(F::Max, D, D, &money),
        two(F::Min, T::Text, T::Text, &texts),
        two(F::Max, T::Text, T::Text, &texts),
        two(F::Min, T::Boolean, T::Boolean, &flags),
        two(F::Max, T::Boolean, T::Boolean, &flags),
    ]
}

/// STA-3: an image puts back the whole state, under other group numbers, twice without harm, over
/// what was there; and updates go on from it.
#[test]
fn image_and_restore_give_the_same_state() {
    for (mut first, mut second, values) in every_kind() {
        let groups = [0, 0, 1, 0, 2, 1];
        first.grow(4);
        first.update(&groups, std::slice::from_ref(&values)).unwrap();
        let image = first.image(&[0, 1, 2, 3]).unwrap();
        let types: Vec<DataType> = image.iter().map(|column| column.data_type().clone()).collect();
        assert_eq!(types, first.image_fields().into_iter().map(|(_, ty)| ty).collect::<Vec<_>>());
        second.grow(5);
        second.update(&[4, 3, 2, 1, 1, 4], std::slice::from_ref(&values)).unwrap();
        second.restore(&[4, 3, 2, 1], &image).unwrap();
        second.restore(&[4, 3, 2, 1], &image).unwrap();
        first.update(&groups, std::slice::from_ref(&values)).unwrap();
        second.update(&groups.map(|group| 4 - group), std::slice::from_ref(&values)).unwrap();
        let (a, b) = (first.peek(&[1, 2, 3]), second.peek(&[3, 2, 1]));
        assert_eq!(&a.unwrap(), &b.unwrap());
        let (a, b) = (first.image(&[0, 1, 2, 3]).unwrap(), second.image(&[4, 3, 2, 1]).unwrap());
        assert_eq!(format!("{a:?}"), format!("{b:?}"), "NaN included");
    }
}

/// Cutting the rows into batches changes nothing.
#[test]
fn batches_do_not_matter() {
    for (mut whole, mut parts, values) in every_kind() {
        let groups = [1, 0, 1, 0, 1, 0];
        whole.grow(2);
        parts.grow(1);
        whole.update(&groups, std::slice::from_ref(&values)).unwrap();
        for row in 0..values.len() {
            parts.grow(2);
            parts.update(&groups[row..=row], &[values.slice(row, 1)]).unwrap();
        }
        let (a, b) = (whole.image(&[0, 1]).unwrap(), parts.image(&[0, 1]).unwrap());
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert!(whole.bytes() > 0);
    }
}

/// Bytes of text follow the values held.
#[test]
fn bytes_of_text_are_counted() {
    let mut longest = made(F::Max, T::Text, T::Text);
    longest.grow(1);
    let empty = longest.bytes();
    let value: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1_000)]));
    longest.update(&[0], std::slice::from_ref(&value)).unwrap();
    assert_eq!(longest.bytes(), empty + 1_000);
    let greater: ArrayRef = Arc::new(StringArray::from(vec!["y"]));
    longest.update(&[0], std::slice::from_ref(&greater)).unwrap();
    assert_eq!(longest.bytes(), empty + 1);
}

/// Results of groups, floats to 12 digits: the compensation may round elsewhere in another order.
fn results(accumulator: &dyn Accumulator, groups: &[u32]) -> String {
    match accumulator.peek(groups) {
        Err(error) => error.message,
        Ok(array) if array.data_type() == &DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            array.iter().map(|value| value.map_or("null".to_owned(), |value| format!("{value:.12e}"))).collect::<Vec<_>>().join(" ")
        }
        Ok(array) => format!("{array:?}"),
    }
}

/// WIN-7: states of parts merge to the state of the whole, whatever the parts: halves, single
/// rows lifted, parts merged twice over; also where a part overflows and the whole does not.
#[test]
fn merged_states_are_the_whole() {
    let groups = [0, 0, 1, 0, 2, 1];
    for (i, (mut whole, mut first, values)) in every_kind().into_iter().enumerate() {
        whole.grow(4);
        whole.update(&groups, std::slice::from_ref(&values)).unwrap();
        let expected = results(whole.as_ref(), &[0, 1, 2, 3]);
        let fresh = || every_kind().remove(i).0;
        // Halves: groups of each have other numbers.
        let mut second = fresh();
        first.grow(4);
        second.grow(4);
        first.update(&groups[..3], &[values.slice(0, 3)]).unwrap();
        second.update(&groups[3..].iter().map(|group| 3 - group).collect::<Vec<_>>(), &[values.slice(3, 3)]).unwrap();
        let mut merged = fresh();
        merged.grow(4);
        merged.merge(&[3, 2, 1, 0], &second.image(&[0, 1, 2, 3]).unwrap()).unwrap();
        merged.merge(&[0, 1, 2, 3], &first.image(&[0, 1, 2, 3]).unwrap()).unwrap();
        assert_eq!(results(merged.as_ref(), &[0, 1, 2, 3]), expected, "halves of kind {i}");
        // Single rows, in one go and from a slice of a longer column.
        let lifted = fresh().lift(6, std::slice::from_ref(&values)).unwrap();
        let types: Vec<DataType> = lifted.iter().map(|column| column.data_type().clone()).collect();
        assert_eq!(types, whole.image_fields().into_iter().map(|(_, ty)| ty).collect::<Vec<_>>(), "kind {i}");
        let mut from_rows = fresh();
        from_rows.grow(4);
        let part = |from: usize, rows: usize| lifted.iter().map(|column| column.slice(from, rows)).collect::<Vec<_>>();
        from_rows.merge(&groups[2..], &part(2, 4)).unwrap();
        from_rows.merge(&groups[..2], &part(0, 2)).unwrap();
        assert_eq!(results(from_rows.as_ref(), &[0, 1, 2, 3]), expected, "rows of kind {i}");
        // Cleared, it begins anew.
        from_rows.clear();
        from_rows.grow(4);
        from_rows.update(&groups, std::slice::from_ref(&values)).unwrap();
        assert_eq!(results(from_rows.as_ref(), &[0, 1, 2, 3]), expected, "cleared kind {i}");
    }
}

/// WIN-7: a part whose sum leaves the range is no error where the whole comes back into it, and the
/// whole is one where no part is.
#[test]
fn only_the_whole_decides_whether_a_sum_overflows() {
    let of = |values: &[i64]| fed(F::Sum, T::BigInt, T::BigInt, Arc::new(Int64Array::from(values.to_vec())));
    let merged = |parts: &[&[i64]]| {
        let mut all = made(F::Sum, T::BigInt, T::BigInt);
        all.grow(1);
        parts.iter().for_each(|part| all.merge(&[0], &of(part).image(&[0]).unwrap()).unwrap());
        all.peek(&[0])
    };
    let back = merged(&[&[i64::MAX, i64::MAX], &[-1, -i64::MAX]]).unwrap();
    assert_eq!(back.as_primitive::<Int64Type>().value(0), i64::MAX - 1);
    assert_eq!(merged(&[&[i64::MIN, -1], &[1]]).unwrap().as_primitive::<Int64Type>().value(0), i64::MIN);
    let error = merged(&[&[i64::MAX], &[1]]).unwrap_err();
    assert_eq!(error.message, "sum overflows BIGINT: it comes to 9223372036854775808");
}

/// `count(*)` counts the rows that a filter lets through, which is what a NULL argument stands for.
#[test]
fn count_star_is_lifted_by_its_filter() {
    let count = accumulator(&planned(F::Count, None, T::BigInt)).unwrap();
    let counts = |values: &[ArrayRef]| count.lift(3, values).unwrap()[0].as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(counts(&[]), [1, 1, 1]);
    assert_eq!(counts(&[Arc::new(BooleanArray::from(vec![Some(true), None, Some(true)]))]), [1, 0, 1]);
}

mod naive;
mod special;
