//! Between plain values and columns.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use std::sync::Arc;
use weir_oracle::value::Value;

/// Columns of rows by their names; `pick` gives the value of a row in a column.
pub fn batch(schema: &SchemaRef, rows: usize, pick: impl Fn(usize, &str) -> Value) -> RecordBatch {
    let one = |field: &Arc<arrow::datatypes::Field>| {
        let values: Vec<Value> = (0..rows).map(|row| pick(row, field.name())).collect();
        array(field.data_type(), &values)
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(one).collect()).unwrap()
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) | Value::Time(n) => Some(*n),
        Value::Null => None,
        other => panic!("{other:?} is no integer"),
    }
}

/// An integer in a timestamp column is a count of its units.
fn array(ty: &DataType, values: &[Value]) -> ArrayRef {
    let ints = || values.iter().map(int);
    match ty {
        DataType::Int16 => Arc::new(ints().map(|n| n.map(|n| n as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(ints().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        DataType::Timestamp(TimeUnit::Second, _) => Arc::new(ints().collect::<TimestampSecondArray>()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Arc::new(ints().collect::<TimestampMillisecondArray>()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Arc::new(ints().collect::<TimestampMicrosecondArray>()),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Arc::new(ints().collect::<TimestampNanosecondArray>()),
        DataType::Boolean => {
            let one = |value: &Value| if let Value::Boolean(b) = value { Some(*b) } else { None };
            Arc::new(values.iter().map(one).collect::<BooleanArray>())
        }
        DataType::Float32 => {
            let one = |value: &Value| if let Value::Real(x) = value { Some(*x) } else { None };
            Arc::new(values.iter().map(one).collect::<Float32Array>())
        }
        DataType::Float64 => {
            let one = |value: &Value| if let Value::Double(x) = value { Some(*x) } else { None };
            Arc::new(values.iter().map(one).collect::<Float64Array>())
        }
        DataType::Decimal128(precision, scale) => {
            let one = |value: &Value| if let Value::Decimal(digits, _) = value { Some(*digits) } else { None };
            let array = values.iter().map(one).collect::<Decimal128Array>();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Utf8 => {
            let one = |value: &Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
            Arc::new(values.iter().map(one).collect::<StringArray>())
        }
        other => panic!("columns of {other} are not made here"),
    }
}

/// The value at a row. Timestamps are ms.
pub fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Int16 => Value::Int(i64::from(array.as_primitive::<Int16Type>().value(row))),
        DataType::Int32 => Value::Int(i64::from(array.as_primitive::<Int32Type>().value(row))),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => Value::Real(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Value::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(_, scale) => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row), *scale as u8),
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::Timestamp(TimeUnit::Second, _) => Value::Time(array.as_primitive::<TimestampSecondType>().value(row) * 1_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Value::Time(array.as_primitive::<TimestampMillisecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Value::Time(array.as_primitive::<TimestampMicrosecondType>().value(row).div_euclid(1_000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Value::Time(array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000_000))
        }
        other => panic!("columns of {other} are not read here"),
    }
}

/// Every row of a batch.
pub fn rows(batch: &RecordBatch) -> Vec<Vec<Value>> {
    (0..batch.num_rows()).map(|row| batch.columns().iter().map(|column| value(column, row)).collect()).collect()
}
