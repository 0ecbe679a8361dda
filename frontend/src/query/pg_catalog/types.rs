//! Postgres' types: which one stands for an Arrow type, and how each is printed.

use arrow::datatypes::{DataType, TimeUnit};

/// One Postgres type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PgType {
    /// Number that every Postgres gives it.
    pub oid: u32,
    /// Short name, as in `pg_type.typname`.
    pub name: &'static str,
    /// Number of the array type.
    pub array: u32,
    /// Bytes, or -1 when they vary.
    pub size: i16,
    /// `typcategory`.
    pub category: &'static str,
    /// SQL name.
    pub long_name: &'static str,
}

macro_rules! pg_types {
    ($($ident:ident = ($oid:literal, $name:literal, $array:literal, $size:literal, $category:literal, $long:literal);)*) => {
        $(#[doc = $long] pub(crate) const $ident: PgType =
            PgType { oid: $oid, name: $name, array: $array, size: $size, category: $category, long_name: $long };)*
        /// Every type that is known here.
        pub(crate) const ALL: &[PgType] = &[$($ident),*];
    };
}

pg_types! {
    BOOL = (16, "bool", 1000, 1, "B", "boolean");
    BYTEA = (17, "bytea", 1001, -1, "U", "bytea");
    CHAR = (18, "char", 1002, 1, "Z", "\"char\"");
    NAME = (19, "name", 1003, 64, "S", "name");
    INT8 = (20, "int8", 1016, 8, "N", "bigint");
    INT2 = (21, "int2", 1005, 2, "N", "smallint");
    INT4 = (23, "int4", 1007, 4, "N", "integer");
    TEXT = (25, "text", 1009, -1, "S", "text");
    OID = (26, "oid", 1028, 4, "N", "oid");
    JSON = (114, "json", 199, -1, "U", "json");
    FLOAT4 = (700, "float4", 1021, 4, "N", "real");
    FLOAT8 = (701, "float8", 1022, 8, "N", "double precision");
    UNKNOWN = (705, "unknown", 0, -2, "X", "unknown");
    BPCHAR = (1042, "bpchar", 1014, -1, "S", "character");
    VARCHAR = (1043, "varchar", 1015, -1, "S", "character varying");
    DATE = (1082, "date", 1182, 4, "D", "date");
    TIME = (1083, "time", 1183, 8, "D", "time without time zone");
    TIMESTAMP = (1114, "timestamp", 1115, 8, "D", "timestamp without time zone");
    TIMESTAMPTZ = (1184, "timestamptz", 1185, 8, "D", "timestamp with time zone");
    INTERVAL = (1186, "interval", 1187, 16, "T", "interval");
    NUMERIC = (1700, "numeric", 1231, -1, "N", "numeric");
    UUID = (2950, "uuid", 2951, 16, "U", "uuid");
    JSONB = (3802, "jsonb", 3807, -1, "U", "jsonb");
}

/// The Postgres type of an Arrow type. A list is a [`TypeRef`] with `array` set; what Postgres has
/// no type for goes as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeRef {
    /// Number to tell the client.
    pub oid: u32,
    /// Short name; of the element for arrays.
    pub name: &'static str,
    /// Bytes, or -1.
    pub size: i16,
}

/// The Postgres type of an Arrow type.
pub(crate) fn of(ty: &DataType) -> TypeRef {
    match ty {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            let element = scalar(field.data_type());
            TypeRef { oid: if element.array == 0 { TEXT.array } else { element.array }, name: element.name, size: -1 }
        }
        other => {
            let ty = scalar(other);
            TypeRef { oid: ty.oid, name: ty.name, size: ty.size }
        }
    }
}

/// The Postgres type of an Arrow type that is no list.
pub(crate) fn scalar(ty: &DataType) -> PgType {
    match ty {
        DataType::Boolean => BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => INT2,
        DataType::UInt16 | DataType::Int32 => INT4,
        // Postgres has no unsigned 64 bit; counts of rows fit BIGINT.
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => INT8,
        DataType::Float16 | DataType::Float32 => FLOAT4,
        DataType::Float64 => FLOAT8,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => NUMERIC,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => TEXT,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => BYTEA,
        DataType::Date32 | DataType::Date64 => DATE,
        DataType::Time32(_) | DataType::Time64(_) => TIME,
        DataType::Timestamp(_, None) => TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        DataType::Dictionary(_, value) => scalar(value),
        DataType::RunEndEncoded(_, value) => scalar(value.data_type()),
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Struct(_)
        | DataType::Union(..)
        | DataType::Map(..) => JSON,
    }
}

/// The Arrow type for a Postgres type that a client names; `None` for types that Weir does not take.
pub(crate) fn to_arrow(oid: u32) -> Option<DataType> {
    let list = |element: DataType| DataType::List(std::sync::Arc::new(arrow::datatypes::Field::new_list_field(element, true)));
    if let Some(element) = ALL.iter().find(|ty| ty.array == oid && oid != 0) {
        return to_arrow(element.oid).map(list);
    }
    Some(match ALL.iter().find(|ty| ty.oid == oid)? {
        &BOOL => DataType::Boolean,
        &BYTEA => DataType::Binary,
        &INT2 => DataType::Int16,
        &INT4 => DataType::Int32,
        &INT8 | &OID => DataType::Int64,
        &FLOAT4 => DataType::Float32,
        &FLOAT8 => DataType::Float64,
        &DATE => DataType::Date32,
        &TIME => DataType::Time64(TimeUnit::Microsecond),
        &TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        &TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        &INTERVAL => DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
        &NUMERIC => DataType::Decimal128(38, 10),
        &TEXT | &VARCHAR | &BPCHAR | &NAME | &CHAR | &JSON | &JSONB | &UUID => DataType::Utf8,
        // Includes `unknown`: the server decides.
        _ => return None,
    })
}

/// `typmod` of a column: digits of a numeric or of a time.
pub(crate) fn modifier(ty: &DataType) -> i32 {
    match ty {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            (i32::from(*precision) << 16 | i32::from(*scale)) + 4
        }
        other => time_digits(other).map_or(-1, |digits| digits as i32),
    }
}

/// Digits after the second; Postgres knows at most 6.
pub(crate) fn time_digits(ty: &DataType) -> Option<i64> {
    match ty {
        DataType::Timestamp(unit, _) => Some(match unit {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => 3,
            TimeUnit::Microsecond | TimeUnit::Nanosecond => 6,
        }),
        _ => None,
    }
}

/// `format_type`: a type as SQL text; `None` for one that is not known.
pub(crate) fn format(oid: i64, modifier: i64) -> Option<String> {
    let is = |number: u32| i64::from(number) == oid;
    if let Some(element) = ALL.iter().find(|ty| ty.array != 0 && is(ty.array)) {
        return Some(format!("{}[]", element.long_name));
    }
    let ty = ALL.iter().find(|ty| is(ty.oid))?;
    Some(match ty {
        &NUMERIC if modifier >= 4 => format!("numeric({},{})", (modifier - 4) >> 16, (modifier - 4) & 0xffff),
        &VARCHAR | &BPCHAR if modifier >= 4 => format!("{}({})", ty.long_name, modifier - 4),
        &TIMESTAMP if (0..6).contains(&modifier) => format!("timestamp({modifier}) without time zone"),
        &TIMESTAMPTZ if (0..6).contains(&modifier) => format!("timestamp({modifier}) with time zone"),
        other => other.long_name.to_owned(),
    })
}

/// The type that SQL text names, by short or long name.
pub(crate) fn by_name(text: &str) -> Option<&'static PgType> {
    let folded = text.trim().trim_start_matches("pg_catalog.").to_lowercase();
    ALL.iter().find(|ty| ty.name == folded || ty.long_name == folded)
}
