//! Expressions on batches: values, hidden columns, and errors that name operator and expression.

use super::Evaluator;
use crate::envelope::Data;
use crate::origin::Origins;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Date32Type, Int64Type, TimestampMillisecondType};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::{BinaryOp, Expr, Literal};
use weir_planner::id::OperatorId;
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::time::TimeUnit;

const NOW_MS: i64 = 86_400_000 * 3 + 5;

fn schema() -> Schema {
    let column = |name: &str, ty| Column { name: name.to_owned(), ty, nullable: true };
    Schema(vec![
        column("a", ColumnType::BigInt),
        column("S", ColumnType::Text),
        column("f", ColumnType::Double),
        column("b", ColumnType::Boolean),
    ])
}

fn data() -> Data {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX)])),
        Arc::new(StringArray::from(vec![Some("x"), Some("Yy"), None])),
        Arc::new(Float64Array::from(vec![0.5, -1.0, 2.0])),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
    ];
    let rows = RecordBatch::try_new(Arc::new(schema().to_arrow()), columns).unwrap();
    Data { rows, times: Int64Array::from(vec![10, 20, 30]), stamps: None, origins: Origins::Unknown }
}

fn col(name: &str) -> Expr {
    Expr::Column(name.to_owned())
}

fn int(value: i64) -> Expr {
    Expr::Literal(Literal::BigInt(value))
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Binary { op, left: Box::new(left), right: Box::new(right) }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    Expr::Function { name: name.to_owned(), version: 1, args }
}

fn run(expr: &Expr, ty: ColumnType) -> Result<ArrayRef, crate::error::Error> {
    let evaluator = Evaluator::new(&OperatorId::new("m").unwrap(), expr, ty, &schema())?;
    let array = evaluator.evaluate(&data(), NOW_MS)?;
    assert_eq!(array.data_type(), &ty.to_arrow());
    assert_eq!(array.len(), 3);
    Ok(array)
}

fn longs(expr: &Expr) -> Vec<Option<i64>> {
    run(expr, ColumnType::BigInt).unwrap().as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn columns_literals_and_arithmetic() {
    assert_eq!(longs(&col("a")), [Some(1), None, Some(i64::MAX)]);
    assert_eq!(longs(&int(4)), [Some(4); 3]);
    assert_eq!(longs(&Expr::Literal(Literal::Null(ColumnType::BigInt))), [None; 3]);
    assert_eq!(longs(&binary(BinaryOp::Minus, col("a"), int(3))), [Some(-2), None, Some(i64::MAX - 3)]);
    assert_eq!(longs(&Expr::Negate(Box::new(col("a")))), [Some(-1), None, Some(-i64::MAX)]);
    let case = Expr::Case {
        operand: None,
        branches: vec![(Expr::IsNull { expr: Box::new(col("a")), negated: false }, int(0))],
        otherwise: Some(Box::new(col("a"))),
    };
    assert_eq!(longs(&case), [Some(1), Some(0), Some(i64::MAX)]);
}

/// SQL-6: functions that DataFusion only runs in their rewritten form, nested in each other and in arithmetic too.
#[test]
fn functions_that_exist_only_as_a_rewrite() {
    let zero = || call("coalesce", vec![col("a"), int(0)]);
    assert_eq!(longs(&zero()), [Some(1), Some(0), Some(i64::MAX)]);
    assert_eq!(longs(&call("nvl", vec![col("a"), int(7)])), [Some(1), Some(7), Some(i64::MAX)]);
    assert_eq!(longs(&call("ifnull", vec![col("a"), int(7)])), [Some(1), Some(7), Some(i64::MAX)]);
    assert_eq!(longs(&call("nvl2", vec![col("a"), int(1), int(2)])), [Some(1), Some(2), Some(1)]);
    let nested = call("coalesce", vec![col("a"), call("nullif", vec![zero(), int(0)]), int(9)]);
    assert_eq!(longs(&binary(BinaryOp::Minus, nested, int(1))), [Some(0), Some(8), Some(i64::MAX - 1)]);
    // The arguments are coerced to one type first: a DOUBLE beside a BIGINT.
    let mixed = run(&call("coalesce", vec![col("a"), col("f")]), ColumnType::Double).unwrap();
    assert_eq!(mixed.as_primitive::<arrow::datatypes::Float64Type>().value(1), -1.0);
    // What is not reached is not computed.
    let lazy = call("coalesce", vec![int(5), binary(BinaryOp::Divide, int(1), int(0))]);
    assert_eq!(longs(&lazy), [Some(5); 3]);
}

/// KER-7: a library function that panics on a value costs that row, with an error that names operator and expression.
#[test]
fn a_panic_of_a_function_is_an_error() {
    let negative = call("lpad", vec![col("S"), binary(BinaryOp::Minus, col("a"), int(3))]);
    let error = run(&negative, ColumnType::Text).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("operator 'm'") && error.message.contains("lpad"), "{}", error.message);
}

#[test]
fn text_functions_and_names_with_capitals() {
    let upper = run(&call("upper", vec![col("S")]), ColumnType::Text).unwrap();
    assert_eq!(upper.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("X"), Some("YY"), None]);
    let joined = run(&call("concat", vec![col("S"), Expr::Literal(Literal::Text("!".into()))]), ColumnType::Text).unwrap();
    assert_eq!(joined.as_string::<i32>().value(0), "x!");
    let like = Expr::Like {
        expr: Box::new(col("S")),
        pattern: Box::new(Expr::Literal(Literal::Text("y_".into()))),
        escape: None,
        case_insensitive: true,
        negated: false,
    };
    assert_eq!(run(&like, ColumnType::Boolean).unwrap().as_boolean().iter().collect::<Vec<_>>(), [Some(false), Some(true), None]);
}

#[test]
fn hidden_columns_are_there_when_named() {
    assert_eq!(longs(&col("__meta_timestamp")), [Some(10), Some(20), Some(30)]);
    assert_eq!(longs(&binary(BinaryOp::Plus, col("__meta_timestamp"), int(1))), [Some(11), Some(21), Some(31)]);
    let stamp = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: true };
    assert_eq!(run(&call("now", vec![]), stamp).unwrap().as_primitive::<TimestampMillisecondType>().values(), &[NOW_MS; 3]);
    assert_eq!(run(&call("current_date", vec![]), ColumnType::Date).unwrap().as_primitive::<Date32Type>().values(), &[3; 3]);
}

#[test]
fn conditions_count_null_as_false() {
    let id = OperatorId::new("m").unwrap();
    let holds = |expr: &Expr| Evaluator::condition(&id, expr, &schema()).unwrap().holds(&data(), NOW_MS).unwrap();
    assert_eq!(holds(&col("b")).iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(false)]);
    let unknown = Expr::IsBoolean { expr: Box::new(col("b")), value: None, negated: false };
    assert_eq!(holds(&unknown).iter().collect::<Vec<_>>(), [Some(false), Some(true), Some(false)]);
    let listed = Expr::InList { expr: Box::new(col("a")), list: vec![int(1), int(2)], negated: true };
    assert_eq!(holds(&listed).iter().collect::<Vec<_>>(), [Some(false), Some(false), Some(true)]);
}

/// Values without a result are the user's error, name operator and expression, and take nothing down.
#[test]
fn errors_name_operator_and_expression() {
    let text = |t: &str| Expr::Literal(Literal::Text(t.into()));
    let cast = Expr::Cast { expr: Box::new(text("zebra")), to: ColumnType::BigInt, lenient: false };
    let cases = [
        (binary(BinaryOp::Divide, col("a"), int(0)), "a / "),
        (binary(BinaryOp::Modulo, col("a"), int(0)), "a % "),
        (binary(BinaryOp::Plus, col("a"), int(1)), "a + "),
        (binary(BinaryOp::Multiply, col("a"), int(2)), "a * "),
        (cast, "CAST"),
    ];
    for (expr, part) in cases {
        let error = run(&expr, ColumnType::BigInt).unwrap_err();
        assert_eq!(error.class, Class::User, "{error}");
        assert!(error.message.starts_with("operator 'm': ") && error.message.contains(part), "{error}");
    }
    let lenient = Expr::Cast { expr: Box::new(text("zebra")), to: ColumnType::BigInt, lenient: true };
    assert_eq!(longs(&lenient), [None; 3]);
    let narrowed = run(&col("a"), ColumnType::Integer).unwrap_err();
    assert_eq!(narrowed.class, Class::User);
}

#[test]
fn what_cannot_be_built_is_said_at_build() {
    for (expr, part) in [
        (col("nope"), "nope"),
        (call("frobnicate", vec![]), "frobnicate"),
        (Expr::Literal(Literal::Decimal { unscaled: "x".into(), precision: 3, scale: 0 }), "'x'"),
    ] {
        let error = run(&expr, ColumnType::BigInt).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains("'m'") && error.message.contains(part), "{error}");
    }
}
