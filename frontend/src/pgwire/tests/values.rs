//! Every type in text and binary, NULL included. Expected bytes are those that Postgres sends.

use super::double::{COLUMNS, Server};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use std::sync::Arc;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::{FromSql, Type};
use weir_planner::schema::ColumnType;

/// The bytes of a value as they came.
#[derive(Debug, PartialEq)]
struct Raw(Option<Vec<u8>>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(Some(raw.to_vec())))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Three rows: usual values, odd ones, NULLs.
pub(super) fn rows() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(Int16Array::from(vec![Some(7), Some(-32_768), None])),
        Arc::new(Int32Array::from(vec![Some(70_000), Some(-1), None])),
        Arc::new(Int64Array::from(vec![Some(9_000_000_000), Some(i64::MIN), None])),
        Arc::new(Float32Array::from(vec![Some(1.5), Some(f32::NEG_INFINITY), None])),
        Arc::new(Float64Array::from(vec![Some(0.1), Some(1e300), None])),
        Arc::new(Decimal128Array::from(vec![Some(1_234_550), Some(-5), None]).with_precision_and_scale(10, 2).unwrap()),
        Arc::new(StringArray::from(vec![Some("a\tb"), Some(""), None])),
        Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), Some(&b""[..]), None])),
        // 2026-11-30 and the day before 0001-01-01, which is in 1 BC.
        Arc::new(Date32Array::from(vec![Some(20_787), Some(-719_163), None])),
        // 2026-11-30 19:50:25.123 and 1969-12-31 23:59:59.999.
        Arc::new(TimestampMillisecondArray::from(vec![Some(1_796_068_225_123), Some(-1), None])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(1_796_068_225_000_001), Some(i64::MAX), None]).with_timezone("+00:00")),
    ];
    let field = |((name, ty), column): (&(&str, &str), &ArrayRef)| {
        assert_eq!(&ty.parse::<ColumnType>().unwrap().to_arrow(), column.data_type(), "{name}");
        Field::new(*name, column.data_type().clone(), true)
    };
    let fields: Vec<Field> = COLUMNS.iter().zip(&columns).map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// PG-2: text results for all types.
#[tokio::test]
async fn every_type_is_printed_as_postgres_prints_it() {
    let server = Server::with_rows(vec![rows()]).await;
    let client = server.client().await;
    let messages = client.simple_query("SELECT * FROM per_minute").await.unwrap();
    let mut printed = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            printed.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect::<Vec<_>>());
        }
    }
    let some = |texts: [&str; 12]| texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
    let usual = [
        "t",
        "7",
        "70000",
        "9000000000",
        "1.5",
        "0.1",
        "12345.50",
        "a\tb",
        "\\x00ff",
        "2026-11-30",
        "2026-11-30 19:50:25.123",
        "2026-11-30 19:50:25.000001+00",
    ];
    let odd = [
        "f", "-32768", "-1", "-9223372036854775808", "-Infinity", "1e+300", "-0.05", "", "\\x", "0001-12-31 BC", "1969-12-31 23:59:59.999",
        "infinity",
    ];
    assert_eq!(printed, [some(usual), some(odd), vec![None; 12]]);
    server.stop().await;
}

/// PG-2: binary results for all types.
#[tokio::test]
async fn every_type_is_sent_in_postgres_binary_form() {
    let server = Server::with_rows(vec![rows()]).await;
    let client = server.client().await;
    let found = client.query("SELECT * FROM per_minute", &[]).await.unwrap();
    let types: Vec<Type> = found[0].columns().iter().map(|column| column.type_().clone()).collect();
    let wanted_types = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::NUMERIC,
        Type::TEXT,
        Type::BYTEA,
        Type::DATE,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
    ];
    assert_eq!(types, wanted_types);
    let raw = |row: usize| (0..12).map(|i| found[row].get::<_, Raw>(i).0).collect::<Vec<_>>();
    // Days and microseconds count from 2000-01-01: 10957 days, 946684800 s after 1970.
    let usual: Vec<Option<Vec<u8>>> = vec![
        Some(vec![1]),
        Some(7_i16.to_be_bytes().to_vec()),
        Some(70_000_i32.to_be_bytes().to_vec()),
        Some(9_000_000_000_i64.to_be_bytes().to_vec()),
        Some(1.5_f32.to_be_bytes().to_vec()),
        Some(0.1_f64.to_be_bytes().to_vec()),
        // Three groups 1, 2345, 5000; weight 1; positive; two digits.
        Some([0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x13, 0x88].to_vec()),
        Some(b"a\tb".to_vec()),
        Some(vec![0, 255]),
        Some(9_830_i32.to_be_bytes().to_vec()),
        Some(849_383_425_123_000_i64.to_be_bytes().to_vec()),
        Some(849_383_425_000_001_i64.to_be_bytes().to_vec()),
    ];
    assert_eq!(raw(0), usual);
    let odd: Vec<Option<Vec<u8>>> = vec![
        Some(vec![0]),
        Some((-32_768_i16).to_be_bytes().to_vec()),
        Some((-1_i32).to_be_bytes().to_vec()),
        Some(i64::MIN.to_be_bytes().to_vec()),
        Some(f32::NEG_INFINITY.to_be_bytes().to_vec()),
        Some(1e300_f64.to_be_bytes().to_vec()),
        // One group 500 of weight -1; negative; two digits.
        Some([0, 1, 0xff, 0xff, 0x40, 0, 0, 2, 0x01, 0xf4].to_vec()),
        Some(Vec::new()),
        Some(Vec::new()),
        Some((-730_120_i32).to_be_bytes().to_vec()),
        Some((-946_684_800_001_000_i64).to_be_bytes().to_vec()),
        Some(i64::MAX.to_be_bytes().to_vec()),
    ];
    assert_eq!(raw(1), odd);
    assert_eq!(raw(2), vec![None; 12]);
    server.stop().await;
}

/// PG-2: what expressions give beyond column types: intervals, arrays, unsigned counts, times, structs.
#[tokio::test]
async fn expressions_have_postgres_types() {
    let server = Server::start().await;
    let client = server.client().await;
    let text = |rows: Vec<SimpleQueryMessage>| {
        rows.into_iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { row.get(0).map(str::to_owned) } else { None })
    };
    for (query, wanted) in [
        ("SELECT INTERVAL '1 year 2 months -3 days 4 hours 5 minutes 6.7 seconds'", "1 year 2 mons -3 days +04:05:06.7"),
        ("SELECT INTERVAL '0 seconds'", "00:00:00"),
        ("SELECT make_array(1, NULL, 3)", "{1,NULL,3}"),
        ("SELECT make_array('a b', '', 'null', 'q\"')", "{\"a b\",\"\",\"null\",\"q\\\"\"}"),
        ("SELECT make_array(make_array(1), make_array(2, 3))", "{{1},{2,3}}"),
        ("SELECT row_number() OVER ()", "1"),
        ("SELECT named_struct('a', 1, 'b', 'x')", "{\"a\":1,\"b\":\"x\"}"),
        ("SELECT 1.10", "1.10"),
        ("SELECT 0.00001::double precision", "1e-05"),
        ("SELECT 123456789012345::double precision", "123456789012345"),
        ("SELECT 1234567890123456::double precision", "1.234567890123456e+15"),
        ("SELECT NULL::text IS NULL", "t"),
    ] {
        let rows = client.simple_query(query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        assert_eq!(text(rows).as_deref(), Some(wanted), "{query}");
    }
    let row = client.query_one("SELECT make_array(1, NULL) AS a, INTERVAL '1 day' AS i, row_number() OVER () AS r", &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<Option<i64>>>(0), [Some(1), None]);
    assert_eq!(row.columns()[1].type_(), &Type::INTERVAL);
    assert_eq!(row.get::<_, Raw>(1).0.unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(row.get::<_, i64>(2), 1);
    server.stop().await;
}
