//! Column types, schemas and the reserved column names.

pub mod infer;

use crate::time::TimeUnit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Column with the row's event time in ms; may be named in expressions, never in `*` (CON-4).
pub const META_TIMESTAMP: &str = "__meta_timestamp";
/// Prefix of every reserved column.
pub const RESERVED_PREFIX: &str = "__";

/// The SQL scalar types that a column may have. Serialised as SQL text, such as `TIMESTAMP(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ColumnType {
    /// `BOOLEAN`.
    Boolean,
    /// `SMALLINT`, 16 bit.
    SmallInt,
    /// `INTEGER`, 32 bit.
    Integer,
    /// `BIGINT`, 64 bit.
    BigInt,
    /// `REAL`, 32 bit float.
    Real,
    /// `DOUBLE PRECISION`, 64 bit float.
    Double,
    /// `DECIMAL(precision, scale)`, at most 38 digits.
    Decimal {
        /// Digits in all, 1..=38.
        precision: u8,
        /// Digits after the point, 0..=precision.
        scale: i8,
    },
    /// `TEXT`.
    Text,
    /// `BYTEA`.
    Bytea,
    /// `DATE`.
    Date,
    /// `TIMESTAMP(0|3|6|9)` or, when `zoned`, `TIMESTAMPTZ(…)`, held in UTC.
    Timestamp {
        /// Resolution.
        unit: TimeUnit,
        /// `TIMESTAMP WITH TIME ZONE`.
        zoned: bool,
    },
    /// `INTERVAL` of months, days and nanoseconds; in expressions only.
    Interval,
}

/// One column of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Name as in SQL, folded.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub ty: ColumnType,
    /// May hold NULL.
    pub nullable: bool,
}

/// The columns of a batch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema(pub Vec<Column>);

impl Schema {
    /// Position of the column called `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|column| column.name == name)
    }

    /// The same schema in Arrow's types.
    pub fn to_arrow(&self) -> arrow_schema::Schema {
        let field = |c: &Column| arrow_schema::Field::new(&c.name, c.ty.to_arrow(), c.nullable);
        arrow_schema::Schema::new(self.0.iter().map(field).collect::<Vec<_>>())
    }
}

impl ColumnType {
    /// The unit of the times that a column of this type may hold, `integers` being that of BIGINT;
    /// `None` for a type that holds none (EV-1).
    pub fn time_unit(self, integers: TimeUnit) -> Option<TimeUnit> {
        match self {
            ColumnType::BigInt => Some(integers),
            ColumnType::Timestamp { unit, .. } => Some(unit),
            ColumnType::Boolean | ColumnType::SmallInt | ColumnType::Integer | ColumnType::Real | ColumnType::Double => None,
            ColumnType::Decimal { .. } | ColumnType::Text | ColumnType::Bytea | ColumnType::Date | ColumnType::Interval => None,
        }
    }

    /// The Arrow type that holds it.
    pub fn to_arrow(self) -> arrow_schema::DataType {
        use arrow_schema::{DataType, IntervalUnit, TimeUnit as Arrow};
        match self {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::SmallInt => DataType::Int16,
            ColumnType::Integer => DataType::Int32,
            ColumnType::BigInt => DataType::Int64,
            ColumnType::Real => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            ColumnType::Text => DataType::Utf8,
            ColumnType::Bytea => DataType::Binary,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp { unit, zoned } => {
                let unit = match unit {
                    TimeUnit::Second => Arrow::Second,
                    TimeUnit::Millisecond => Arrow::Millisecond,
                    TimeUnit::Microsecond => Arrow::Microsecond,
                    TimeUnit::Nanosecond => Arrow::Nanosecond,
                };
                DataType::Timestamp(unit, zoned.then(|| "+00:00".into()))
            }
            ColumnType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        }
    }

    /// The column type that holds values of an Arrow type, where one does: unsigned and small
    /// integers widen, string and binary views and large variants fold to `TEXT` and `BYTEA`.
    pub fn from_arrow(ty: &arrow_schema::DataType) -> Option<ColumnType> {
        use arrow_schema::{DataType as D, TimeUnit as Arrow};
        Some(match ty {
            D::Boolean => ColumnType::Boolean,
            D::Int8 | D::Int16 | D::UInt8 => ColumnType::SmallInt,
            D::Int32 | D::UInt16 => ColumnType::Integer,
            D::Int64 | D::UInt32 | D::UInt64 => ColumnType::BigInt,
            D::Float16 | D::Float32 => ColumnType::Real,
            D::Float64 => ColumnType::Double,
            D::Decimal128(precision, scale) => ColumnType::Decimal { precision: *precision, scale: *scale },
            D::Utf8 | D::LargeUtf8 | D::Utf8View => ColumnType::Text,
            D::Binary | D::LargeBinary | D::BinaryView => ColumnType::Bytea,
            D::Date32 | D::Date64 => ColumnType::Date,
            D::Timestamp(unit, zone) => ColumnType::Timestamp {
                unit: match unit {
                    Arrow::Second => TimeUnit::Second,
                    Arrow::Millisecond => TimeUnit::Millisecond,
                    Arrow::Microsecond => TimeUnit::Microsecond,
                    Arrow::Nanosecond => TimeUnit::Nanosecond,
                },
                zoned: zone.is_some(),
            },
            D::Interval(_) => ColumnType::Interval,
            _ => return None,
        })
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ColumnType::Boolean => f.write_str("BOOLEAN"),
            ColumnType::SmallInt => f.write_str("SMALLINT"),
            ColumnType::Integer => f.write_str("INTEGER"),
            ColumnType::BigInt => f.write_str("BIGINT"),
            ColumnType::Real => f.write_str("REAL"),
            ColumnType::Double => f.write_str("DOUBLE PRECISION"),
            ColumnType::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            ColumnType::Text => f.write_str("TEXT"),
            ColumnType::Bytea => f.write_str("BYTEA"),
            ColumnType::Date => f.write_str("DATE"),
            ColumnType::Timestamp { unit, zoned } => {
                let digits = match unit {
                    TimeUnit::Second => 0,
                    TimeUnit::Millisecond => 3,
                    TimeUnit::Microsecond => 6,
                    TimeUnit::Nanosecond => 9,
                };
                write!(f, "{}({digits})", if zoned { "TIMESTAMPTZ" } else { "TIMESTAMP" })
            }
            ColumnType::Interval => f.write_str("INTERVAL"),
        }
    }
}

impl From<ColumnType> for String {
    fn from(ty: ColumnType) -> String {
        ty.to_string()
    }
}

impl TryFrom<String> for ColumnType {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for ColumnType {
    type Err = String;

    /// Parses SQL type text, in any case, with the usual aliases (`INT`, `FLOAT`, `VARCHAR`, `NUMERIC(p,s)`).
    fn from_str(text: &str) -> Result<Self, String> {
        let folded = text.trim().to_ascii_lowercase();
        let (name, numbers, tail) = match folded.split_once('(') {
            None => (folded.as_str(), Vec::new(), ""),
            Some((name, rest)) => {
                let (inside, tail) = rest.split_once(')').ok_or_else(|| format!("type '{text}' lacks a ')'"))?;
                let numbers: Result<Vec<u8>, _> = inside.split(',').map(|n| n.trim().parse::<u8>()).collect();
                (name.trim(), numbers.map_err(|_| format!("type '{text}' has a bad number"))?, tail.trim())
            }
        };
        let stamp = |default_zoned: bool| -> Result<ColumnType, String> {
            let zoned = match tail {
                "" => default_zoned,
                "with time zone" => true,
                "without time zone" => false,
                _ => return Err(format!("type '{text}' is not known")),
            };
            let unit = match numbers.as_slice() {
                [] | [6] => TimeUnit::Microsecond,
                [0] => TimeUnit::Second,
                [3] => TimeUnit::Millisecond,
                [9] => TimeUnit::Nanosecond,
                _ => return Err(format!("type '{text}' needs a precision of 0, 3, 6 or 9")),
            };
            Ok(ColumnType::Timestamp { unit, zoned })
        };
        let plain = |ty: ColumnType| if numbers.is_empty() { Ok(ty) } else { Err(format!("type '{text}' takes no number")) };
        match name {
            "boolean" | "bool" => plain(ColumnType::Boolean),
            "smallint" | "int2" => plain(ColumnType::SmallInt),
            "integer" | "int" | "int4" => plain(ColumnType::Integer),
            "bigint" | "int8" => plain(ColumnType::BigInt),
            "real" | "float4" => plain(ColumnType::Real),
            "double precision" | "double" | "float8" | "float" => plain(ColumnType::Double),
            "decimal" | "numeric" | "dec" => match numbers.as_slice() {
                [] => Ok(ColumnType::Decimal { precision: 38, scale: 10 }),
                [precision @ 1..=38] => Ok(ColumnType::Decimal { precision: *precision, scale: 0 }),
                [precision @ 1..=38, scale] if scale <= precision => {
                    Ok(ColumnType::Decimal { precision: *precision, scale: i8::try_from(*scale).unwrap_or(0) })
                }
                _ => Err(format!("type '{text}' needs 1 to 38 digits and a scale not above them")),
            },
            "text" | "string" => plain(ColumnType::Text),
            "varchar" | "character varying" => Ok(ColumnType::Text),
            "bytea" | "bytes" => plain(ColumnType::Bytea),
            "date" => plain(ColumnType::Date),
            "timestamp" => stamp(false),
            "timestamp with time zone" => stamp(true),
            "timestamp without time zone" => stamp(false),
            "timestamptz" => stamp(true),
            "interval" => plain(ColumnType::Interval),
            _ => Err(format!("type '{text}' is not known")),
        }
    }
}
/// Columns of error rows: what an error sink gets (CON-5). `raw` is the record, `reason` says what is
/// wrong with it, `source` names the operator, `partition` and `position` the place, `at` the time of reading.
pub fn error_rows() -> Schema {
    let column = |name: &str, ty, nullable| Column { name: name.to_owned(), ty, nullable };
    Schema(vec![
        column("raw", ColumnType::Bytea, true),
        column("reason", ColumnType::Text, false),
        column("source", ColumnType::Text, false),
        column("partition", ColumnType::Text, true),
        column("position", ColumnType::Text, true),
        column("at", ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: true }, false),
    ])
}

/// Name of the column that says why a row was routed: `late` or `null_timestamp`.
pub const REASON_COLUMN: &str = "__reason";
/// Name of the column that says by how many ms a routed row came too late; NULL without a time.
pub const LATE_BY_COLUMN: &str = "__late_by_ms";

/// Columns of routed late rows (CON-5): those of `input`, where the row was judged, each of which may
/// be NULL, then why, and by how much.
pub fn late_rows(input: &Schema) -> Schema {
    let mut columns: Vec<Column> = input.0.iter().map(|column| Column { nullable: true, ..column.clone() }).collect();
    columns.push(Column { name: REASON_COLUMN.to_owned(), ty: ColumnType::Text, nullable: false });
    columns.push(Column { name: LATE_BY_COLUMN.to_owned(), ty: ColumnType::BigInt, nullable: true });
    Schema(columns)
}
