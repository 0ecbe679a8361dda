//! Constants: DataFusion's values to ours and back, and casts of constants done while binding.

use crate::error::Error;
use arrow::datatypes::{IntervalMonthDayNano, TimeUnit as Arrow};
use datafusion::scalar::ScalarValue;
use weir_planner::expr::{Expr, Literal};
use weir_planner::schema::ColumnType;
use weir_planner::time::TimeUnit;

/// Our form of a constant.
///
/// Errors: `22003` for a number beyond BIGINT, `0A000` for a type that columns do not have.
pub(crate) fn literal(value: &ScalarValue) -> Result<Literal, Error> {
    let beyond = || {
        Error::new("22003", format!("the number {value} is out of range for BIGINT"))
            .with_hint("write it as a DECIMAL: CAST('…' AS DECIMAL(38,0))")
    };
    if value.is_null() {
        let ty = super::column_type(&value.data_type());
        return ty.map(Literal::Null).ok_or_else(|| super::refused(&format!("a constant of type {}", value.data_type())));
    }
    let stamp = |value: i64, unit: TimeUnit, zone: &Option<std::sync::Arc<str>>| Literal::Timestamp { value, unit, zoned: zone.is_some() };
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => Literal::Boolean(*value),
        ScalarValue::Int8(Some(value)) => Literal::SmallInt(i16::from(*value)),
        ScalarValue::Int16(Some(value)) => Literal::SmallInt(*value),
        ScalarValue::Int32(Some(value)) => Literal::Integer(*value),
        ScalarValue::Int64(Some(value)) => Literal::BigInt(*value),
        ScalarValue::UInt8(Some(value)) => Literal::SmallInt(i16::from(*value)),
        ScalarValue::UInt16(Some(value)) => Literal::Integer(i32::from(*value)),
        ScalarValue::UInt32(Some(value)) => Literal::BigInt(i64::from(*value)),
        ScalarValue::UInt64(Some(value)) => Literal::BigInt(i64::try_from(*value).map_err(|_| beyond())?),
        ScalarValue::Float32(Some(value)) => Literal::Real(*value),
        ScalarValue::Float64(Some(value)) => Literal::Double(*value),
        ScalarValue::Decimal128(Some(value), precision, scale) => {
            Literal::Decimal { unscaled: value.to_string(), precision: *precision, scale: *scale }
        }
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
            Literal::Text(text.clone())
        }
        ScalarValue::Binary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) => {
            Literal::Bytea(bytes.clone())
        }
        ScalarValue::FixedSizeBinary(_, Some(bytes)) => Literal::Bytea(bytes.clone()),
        ScalarValue::Date32(Some(days)) => Literal::Date(*days),
        ScalarValue::TimestampSecond(Some(value), zone) => stamp(*value, TimeUnit::Second, zone),
        ScalarValue::TimestampMillisecond(Some(value), zone) => stamp(*value, TimeUnit::Millisecond, zone),
        ScalarValue::TimestampMicrosecond(Some(value), zone) => stamp(*value, TimeUnit::Microsecond, zone),
        ScalarValue::TimestampNanosecond(Some(value), zone) => stamp(*value, TimeUnit::Nanosecond, zone),
        ScalarValue::IntervalMonthDayNano(Some(value)) => {
            Literal::Interval { months: value.months, days: value.days, nanos: value.nanoseconds }
        }
        ScalarValue::IntervalYearMonth(Some(months)) => Literal::Interval { months: *months, days: 0, nanos: 0 },
        ScalarValue::IntervalDayTime(Some(value)) => {
            Literal::Interval { months: 0, days: value.days, nanos: i64::from(value.milliseconds) * 1_000_000 }
        }
        other => return Err(super::refused(&format!("a constant of type {}", other.data_type()))),
    })
}

/// DataFusion's form of a constant; `None` for a decimal that does not fit one.
fn value(literal: &Literal) -> Option<ScalarValue> {
    Some(match literal {
        Literal::Null(ty) => ScalarValue::try_from(&ty.to_arrow()).ok()?,
        Literal::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Literal::SmallInt(value) => ScalarValue::Int16(Some(*value)),
        Literal::Integer(value) => ScalarValue::Int32(Some(*value)),
        Literal::BigInt(value) => ScalarValue::Int64(Some(*value)),
        Literal::Real(value) => ScalarValue::Float32(Some(*value)),
        Literal::Double(value) => ScalarValue::Float64(Some(*value)),
        Literal::Decimal { unscaled, precision, scale } => ScalarValue::Decimal128(Some(unscaled.parse().ok()?), *precision, *scale),
        Literal::Text(text) => ScalarValue::Utf8(Some(text.clone())),
        Literal::Bytea(bytes) => ScalarValue::Binary(Some(bytes.clone())),
        Literal::Date(days) => ScalarValue::Date32(Some(*days)),
        Literal::Timestamp { value, unit, zoned } => {
            let zone = zoned.then(|| "+00:00".into());
            let unit = match unit {
                TimeUnit::Second => Arrow::Second,
                TimeUnit::Millisecond => Arrow::Millisecond,
                TimeUnit::Microsecond => Arrow::Microsecond,
                TimeUnit::Nanosecond => Arrow::Nanosecond,
            };
            match unit {
                Arrow::Second => ScalarValue::TimestampSecond(Some(*value), zone),
                Arrow::Millisecond => ScalarValue::TimestampMillisecond(Some(*value), zone),
                Arrow::Microsecond => ScalarValue::TimestampMicrosecond(Some(*value), zone),
                Arrow::Nanosecond => ScalarValue::TimestampNanosecond(Some(*value), zone),
            }
        }
        Literal::Interval { months, days, nanos } => {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(*months, *days, *nanos)))
        }
    })
}

/// The type of a constant.
pub(crate) fn literal_type(literal: &Literal) -> ColumnType {
    match literal {
        Literal::Null(ty) => *ty,
        Literal::Boolean(_) => ColumnType::Boolean,
        Literal::SmallInt(_) => ColumnType::SmallInt,
        Literal::Integer(_) => ColumnType::Integer,
        Literal::BigInt(_) => ColumnType::BigInt,
        Literal::Real(_) => ColumnType::Real,
        Literal::Double(_) => ColumnType::Double,
        Literal::Decimal { precision, scale, .. } => ColumnType::Decimal { precision: *precision, scale: *scale },
        Literal::Text(_) => ColumnType::Text,
        Literal::Bytea(_) => ColumnType::Bytea,
        Literal::Date(_) => ColumnType::Date,
        Literal::Timestamp { unit, zoned, .. } => ColumnType::Timestamp { unit: *unit, zoned: *zoned },
        Literal::Interval { .. } => ColumnType::Interval,
    }
}

/// A constant cast to another type.
///
/// Errors: `22P02` when it cannot be, unless `lenient`, which gives NULL.
pub(crate) fn folded(constant: &Literal, to: ColumnType, lenient: bool) -> Result<Expr, Error> {
    if literal_type(constant) == to {
        return Ok(Expr::Literal(constant.clone()));
    }
    let cast = match constant {
        Literal::Null(_) => return Ok(Expr::Literal(Literal::Null(to))),
        constant => value(constant).and_then(|value| value.cast_to(&to.to_arrow()).ok()),
    };
    match cast {
        // NaN and the infinities have no constant of their own: the cast from text stays.
        Some(ScalarValue::Float64(Some(number))) if !number.is_finite() => {
            Ok(Expr::Cast { expr: Box::new(Expr::Literal(constant.clone())), to, lenient })
        }
        Some(ScalarValue::Float32(Some(number))) if !number.is_finite() => {
            Ok(Expr::Cast { expr: Box::new(Expr::Literal(constant.clone())), to, lenient })
        }
        Some(value) if !value.is_null() => Ok(Expr::Literal(literal(&value)?)),
        _ if lenient => Ok(Expr::Literal(Literal::Null(to))),
        _ => {
            Err(Error::new("22P02", format!("{constant} is not a value of type {to}")).with_hint("TRY_CAST gives NULL instead of an error"))
        }
    }
}
