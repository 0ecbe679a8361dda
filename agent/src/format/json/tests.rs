//! Tests of the JSON decoder and encoder, with values written by hand.

use super::*;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use arrow::util::display::array_value_to_string;
use weir_planner::schema::{Column, Schema};
use weir_planner::time::TimeUnit;

fn column(name: &str, ty: &str) -> DecodeColumn {
    let column = Column { name: name.to_owned(), ty: ty.parse().unwrap(), nullable: true };
    DecodeColumn { column, timestamp_unit: None }
}

fn decode_with(columns: &[DecodeColumn], records: &[&[u8]]) -> Decoded {
    let used: Vec<String> = columns.iter().map(|column| column.column.name.clone()).collect();
    let mut decoder = JsonDecoder::new(columns, &used).unwrap();
    for (at, record) in records.iter().enumerate() {
        decoder.push(record, at as u64);
    }
    assert_eq!(decoder.pending(), records.len());
    decoder.finish().unwrap()
}

/// Cells as Arrow prints them, `NULL` for null; what is bad by its reason.
fn one(ty: &str, value: &str) -> Result<String, String> {
    one_of(&column("v", ty), value)
}

fn one_of(column: &DecodeColumn, value: &str) -> Result<String, String> {
    let record = format!("{{\"v\":{value}}}");
    // Twice: the second time along the remembered layout. And once with other spacing.
    let spaced = format!(" {{ \"v\" : {value} }}\r");
    let decoded = decode_with(std::slice::from_ref(column), &[record.as_bytes(), record.as_bytes(), spaced.as_bytes()]);
    let cells: Vec<String> = (0..decoded.rows.num_rows()).map(|row| cell(&decoded.rows, 0, row)).collect();
    let reasons: Vec<String> = decoded.bad.into_iter().map(|bad| bad.reason).collect();
    assert!(cells.windows(2).all(|pair| pair[0] == pair[1]), "{value}: {cells:?}");
    assert!(cells.is_empty() || reasons.is_empty(), "{value}: {cells:?} {reasons:?}");
    cells.into_iter().next().map_or_else(|| Err(reasons[0].clone()), Ok)
}

fn cell(rows: &RecordBatch, column: usize, row: usize) -> String {
    let array = rows.column(column);
    if array.is_null(row) { "NULL".to_owned() } else { array_value_to_string(array, row).unwrap() }
}

#[test]
fn every_type_takes_its_values() {
    let table = [
        ("BOOLEAN", "true", "true"),
        ("BOOLEAN", "\"no\"", "false"),
        ("SMALLINT", "-32768", "-32768"),
        ("INTEGER", "\"2147483647\"", "2147483647"),
        ("BIGINT", "9223372036854775807", "9223372036854775807"),
        ("BIGINT", "12.0", "12"),
        ("BIGINT", "\"-7\"", "-7"),
        ("BIGINT", "null", "NULL"),
        ("REAL", "1.5", "1.5"),
        ("DOUBLE", "-2.5e3", "-2500.0"),
        ("DOUBLE", "\"NaN\"", "NaN"),
        ("DECIMAL(28,18)", "100.0", "100.000000000000000000"),
        ("DECIMAL(38,9)", "\"12345678901234567890123456789.123456789\"", "12345678901234567890123456789.123456789"),
        ("TEXT", "\"plain\"", "plain"),
        ("TEXT", "\"\"", ""),
        ("TEXT", r#""quote \" back \\ slash \/ line \n tab \t é é 😀""#, "quote \" back \\ slash / line \n tab \t é é 😀"),
        ("TEXT", "12.50", "12.50"),
        ("TEXT", "true", "true"),
        ("TEXT", r#"{"a": [1, "}"], "b": null}"#, r#"{"a": [1, "}"], "b": null}"#),
        ("TEXT", "[]", "[]"),
        ("BYTEA", r#""\\x00ff""#, "00ff"),
        ("BYTEA", "\"aGVsbG8=\"", "68656c6c6f"),
        ("DATE", "\"2026-01-31\"", "2026-01-31"),
        ("TIMESTAMP(3)", "\"2026-01-01T00:00:00.123\"", "2026-01-01T00:00:00.123"),
        ("TIMESTAMP(3)", "\"2026-01-01 02:00:00.1239+02:00\"", "2026-01-01T00:00:00.123"),
        ("TIMESTAMP(0)", "\"1969-12-31T23:59:59.5Z\"", "1969-12-31T23:59:59"),
        ("TIMESTAMPTZ(6)", "\"2026-01-01T00:00:00Z\"", "2026-01-01T00:00:00Z"),
    ];
    for (ty, value, expected) in table {
        assert_eq!(one(ty, value).as_deref(), Ok(expected), "{ty} from {value}");
    }
}

#[test]
fn what_does_not_fit_is_bad_and_names_field_and_type() {
    let shape = |ty: &str| format!("field 'v': the value is not of type {ty}");
    let range = |ty: &str| format!("field 'v': the value is out of range for {ty}");
    let table = [
        ("SMALLINT", "32768", range("SMALLINT")),
        ("INTEGER", "-2147483649", range("INTEGER")),
        ("BIGINT", "9223372036854775808", range("BIGINT")),
        ("BIGINT", "1.5", shape("BIGINT")),
        ("BIGINT", "true", shape("BIGINT")),
        ("BIGINT", "\"x\"", shape("BIGINT")),
        ("BIGINT", "{}", "field 'v': an object or array is not of type BIGINT".to_owned()),
        ("BOOLEAN", "1", shape("BOOLEAN")),
        ("DECIMAL(4,2)", "100", range("DECIMAL(4,2)")),
        ("DATE", "20454", shape("DATE")),
        ("DATE", "\"2026-02-30\"", shape("DATE")),
        ("BYTEA", "7", shape("BYTEA")),
        ("BYTEA", "\"?\"", shape("BYTEA")),
        ("DOUBLE", "1e999", range("DOUBLE PRECISION")),
        ("TIMESTAMP(9)", "\"2300-01-01T00:00:00Z\"", range("TIMESTAMP(9)")),
        (
            "TIMESTAMP(3)",
            "1767225600000",
            "field 'v': a number is no TIMESTAMP(3) without a unit; declare timestamp_unit = 's', 'ms', 'us' or 'ns'".to_owned(),
        ),
        ("BIGINT", "01", "field 'v': not a JSON number".to_owned()),
        ("BIGINT", "-", "field 'v': not a JSON number".to_owned()),
        ("BIGINT", "nul", "field 'v': not a JSON value".to_owned()),
        ("TEXT", r#""\q""#, "field 'v': not a JSON string".to_owned()),
        ("TEXT", "\"a\nb\"", "field 'v': not a JSON string".to_owned()),
        ("TEXT", "{\"a\" 1}", "field 'v': not valid JSON".to_owned()),
    ];
    for (ty, value, reason) in table {
        assert_eq!(one(ty, value), Err(reason), "{ty} from {value}");
    }
}

/// C29: with a declared unit numbers are times, exactly.
#[test]
fn a_declared_unit_makes_numbers_times() {
    let in_unit = |unit| DecodeColumn { timestamp_unit: Some(unit), ..column("v", "TIMESTAMP(3)") };
    assert_eq!(one_of(&in_unit(TimeUnit::Second), "1767225600").as_deref(), Ok("2026-01-01T00:00:00"));
    assert_eq!(one_of(&in_unit(TimeUnit::Microsecond), "63072000000000000").as_deref(), Ok("3968-09-03T00:00:00"));
    assert_eq!(one_of(&in_unit(TimeUnit::Microsecond), "63072000000000").as_deref(), Ok("1972-01-01T00:00:00"));
    assert_eq!(one_of(&in_unit(TimeUnit::Nanosecond), "-1").as_deref(), Ok("1969-12-31T23:59:59.999"));
    assert_eq!(one_of(&in_unit(TimeUnit::Millisecond), "\"2026-01-01T00:00:00Z\"").as_deref(), Ok("2026-01-01T00:00:00"));
}

/// KER-7: a bad record leaves its neighbours alone, whatever part of it had been taken already.
#[test]
fn fields_come_in_any_order_and_bad_records_go_alone() {
    let mut columns = [column("a", "BIGINT"), column("t", "TEXT"), column("d", "TIMESTAMP(3)")];
    columns[0].column.nullable = false;
    let records: [&[u8]; 9] = [
        br#"{"a":1,"x":[1,{"y":"]"}],"t":"one","d":"2026-01-01T00:00:00"}"#,
        br#"{"d":"2026-01-01T00:00:01","t":"two","a":2}"#,
        br#"{"a":3,"t":"three","d":"never"}"#,
        br#"{"t":"four"}"#,
        br#"{"a":5}"#,
        br#"{"a":6,"a":6}"#,
        br#"{"a":7,"t":"seven""#,
        br#"{"a":8} trailing"#,
        br#"{"\u0061":9,"t":null,"unknown":1e5}"#,
    ];
    let decoded = decode_with(&columns, &records);
    assert_eq!(decoded.rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [1, 2, 5, 9]);
    let text = decoded.rows.column(1).as_string::<i32>();
    assert_eq!(text.iter().collect::<Vec<_>>(), [Some("one"), Some("two"), None, None]);
    let times = decoded.rows.column(2).as_primitive::<TimestampMillisecondType>();
    assert_eq!(times.iter().collect::<Vec<_>>(), [Some(1_767_225_600_000), Some(1_767_225_601_000), None, None]);
    let bad: Vec<(u64, &str)> = decoded.bad.iter().map(|bad| (bad.at, bad.reason.as_str())).collect();
    let expected = [
        (2, "field 'd': the value is not of type TIMESTAMP(3)"),
        (3, "field 'a': no value for a column that is NOT NULL"),
        (5, "field 'a': appears twice"),
        (6, "the record ends within its object"),
        (7, "something follows the object at byte 8"),
    ];
    assert_eq!(bad, expected);
    assert_eq!(decoded.bad[0].raw, records[2]);
}

#[test]
fn what_is_no_object_is_bad() {
    let columns = [column("a", "BIGINT")];
    let records: [&[u8]; 8] = [b"", b"[1]", b"null", b"{", b"{\"a\"}", b"{\"a\":}", b"{a:1}", b"{\"a\":1,}"];
    let decoded = decode_with(&columns, &records);
    assert_eq!(decoded.rows.num_rows(), 0);
    assert_eq!(decoded.bad.len(), records.len());
    let empty = decode_with(&columns, &[b"{}", b" { } "]);
    assert_eq!((empty.rows.num_rows(), empty.rows.column(0).null_count()), (2, 2));
}

/// No column used (`count(*)`): rows still count.
#[test]
fn no_used_column_still_counts_rows() {
    let mut decoder = JsonDecoder::new(&[column("a", "BIGINT")], &[]).unwrap();
    for record in [&b"{\"a\":1}"[..], b"{\"b\":2}", b"oops"] {
        decoder.push(record, 0);
    }
    let decoded = decoder.finish().unwrap();
    assert_eq!((decoded.rows.num_rows(), decoded.rows.num_columns(), decoded.bad.len()), (2, 0, 1));
}

/// A depth bomb costs no stack, neither where it is skipped nor where its text is kept.
#[test]
fn depth_bombs_are_survived() {
    for open in ["[", "{\"a\":"] {
        let deep = open.repeat(100_000);
        let closed = format!("{deep}1{}", if open == "[" { "]" } else { "}" }.repeat(100_000));
        let records = [
            format!("{{\"skipped\":{deep}"),
            format!("{{\"v\":{deep}"),
            format!("{{\"skipped\":{closed},\"v\":1}}"),
            format!("{{\"v\":{closed}}}"),
        ];
        let records: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
        let decoded = decode_with(&[column("v", "TEXT")], &records);
        assert_eq!(decoded.bad.iter().map(|bad| bad.at).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(cell(&decoded.rows, 0, 0), "1");
        assert_eq!(cell(&decoded.rows, 0, 1), closed);
        assert!(decoded.bad.iter().all(|bad| bad.raw.len() == 1024));
    }
}

/// A hundred thousand seeded mutants of a bid: never a panic, and the good records around them live.
#[test]
fn mutants_never_hurt_their_neighbours() {
    let bid = br#"{"auction":1100,"bidder":2001,"price":34500,"channel":"Google","url":"https://auction.example.com/abcde/item.htm?query=1&channel_id=0","dateTime":"2026-01-01T00:00:00.123","extra":"abcdefghijklmnopqrst"}"#;
    let columns =
        [column("bidder", "BIGINT"), column("dateTime", "TIMESTAMP(3)"), column("extra", "TEXT"), column("price", "DECIMAL(10,2)")];
    let used: Vec<String> = columns.iter().map(|column| column.column.name.clone()).collect();
    let mut decoder = JsonDecoder::new(&columns, &used).unwrap();
    let mut random = 0x5EED_u64;
    let mut next = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    let odd = b"\"\\{}[]:,0-9.eE\x00\x7f\xff\xc3 tfn";
    for round in 0..1_000u64 {
        for _ in 0..100 {
            let mut mutant = bid.to_vec();
            for _ in 0..=next(3) {
                let place = next(mutant.len());
                match next(4) {
                    0 => mutant[place] = odd[next(odd.len())],
                    1 => mutant.truncate(place.max(1)),
                    2 => drop(mutant.remove(place)),
                    _ => mutant.insert(place, odd[next(odd.len())]),
                }
                if mutant.is_empty() {
                    mutant.push(b'{');
                }
            }
            decoder.push(&mutant, 2 * round);
            decoder.push(bid, 2 * round + 1);
        }
        let decoded = decoder.finish().unwrap();
        assert!(decoded.bad.iter().all(|bad| bad.at == 2 * round), "a good record was found bad");
        assert_eq!(decoded.rows.num_rows() + decoded.bad.len(), 200);
        let whole = (0..decoded.rows.num_rows()).filter(|&row| {
            ["2001", "2026-01-01T00:00:00.123", "abcdefghijklmnopqrst", "34500.00"]
                .iter()
                .enumerate()
                .all(|(i, text)| cell(&decoded.rows, i, row) == *text)
        });
        assert!(whole.count() >= 100);
    }
}

#[test]
fn rows_become_json_that_decodes_to_the_same_rows() {
    let types = [
        "BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL(38,9)", "TEXT", "BYTEA", "DATE", "TIMESTAMP(0)",
        "TIMESTAMP(3)", "TIMESTAMPTZ(6)", "TIMESTAMP(9)",
    ];
    let columns: Vec<DecodeColumn> = types.iter().enumerate().map(|(i, ty)| column(&format!("c{i}"), ty)).collect();
    let lines = concat!(
        r#"{"c0":true,"c1":-32768,"c2":7,"c3":-9223372036854775808,"c4":1.5,"c5":1e300,"c6":-0.000000001,"c7":"a\"\\\n\u0001é","c8":"\\x00ff","c9":"1969-12-31","c10":"1969-12-31T23:59:59","c11":"2026-01-31T00:00:00.120","c12":"2026-01-31T00:00:00.000001Z","c13":"1700-01-01T00:00:00.000000001"}"#,
        "\n",
        r#"{"c0":null,"c1":null,"c2":null,"c3":null,"c4":"NaN","c5":"-Infinity","c6":99999999999999999999999999999.999999999,"c7":"","c8":"\\x","c9":"0001-01-01","c10":null,"c11":"9999-12-31T23:59:59.999","c12":null,"c13":null}"#,
        "\n"
    );
    let records: Vec<&[u8]> = lines.lines().map(str::as_bytes).collect();
    let decoded = decode_with(&columns, &records);
    assert_eq!(decoded.bad, []);
    let schema = Schema(columns.iter().map(|column| column.column.clone()).collect());
    let mut out = Vec::new();
    JsonEncoder::new(&schema).unwrap().write_lines(&decoded.rows, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), lines);
    let mut key = Vec::new();
    let encoder = JsonEncoder::of(&schema, &["c2".to_owned(), "c0".to_owned()]).unwrap();
    encoder.rows(&decoded.rows).unwrap().write(0, &mut key);
    assert_eq!(String::from_utf8(key).unwrap(), r#"{"c2":7,"c0":true}"#);
    assert!(JsonEncoder::of(&schema, &["nope".to_owned()]).is_err());
}

/// C30: the quick ways and the general one give the same rows and the same faults, whatever the records.
#[test]
fn quick_ways_give_what_the_general_way_gives() {
    let with_unit = |name: &str, unit| DecodeColumn { timestamp_unit: Some(unit), ..column(name, "TIMESTAMP(3)") };
    let columns = [
        column("small", "SMALLINT"),
        column("number", "INTEGER"),
        column("large", "BIGINT"),
        column("text", "TEXT"),
        column("at", "TIMESTAMP(3)"),
        column("nanos", "TIMESTAMPTZ(9)"),
        with_unit("ms", TimeUnit::Millisecond),
        with_unit("us", TimeUnit::Microsecond),
        column("price", "DECIMAL(10,2)"),
        column("day", "DATE"),
    ];
    let fields = [
        r#""small":12"#,
        r#""number":-70000"#,
        r#""large":123456789012"#,
        r#""unused":"something longer than the words that are looked through","more":[1,{"a":"]"}]"#,
        r#""text":"café, two lines""#,
        r#""at":"2026-01-01T00:00:05.123""#,
        r#""nanos":"2026-01-01T00:00:05.123456789Z""#,
        r#""ms":1767225600000"#,
        r#""us":1767225600000000"#,
        r#""price":12.50"#,
        r#""day":"2026-01-31""#,
    ];
    let used: Vec<String> = columns.iter().map(|column| column.column.name.clone()).collect();
    let mut random = 0x0DD_5EED_u64;
    let mut next = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    let odd = b"\"\\{}[]:,0-9.eE\x00\x7f\xff\xc3 tfnZT+";
    let mut decoders = [JsonDecoder::new(&columns, &used).unwrap(), JsonDecoder::new(&columns, &used).unwrap()];
    decoders[1].careful = true;
    let (mut good, mut bad) = (0, 0);
    for round in 0..150 {
        for at in 0..100 {
            let mut order: Vec<&str> = fields.to_vec();
            match next(6) {
                0 => order.rotate_left(next(fields.len())),
                1 => drop(order.remove(next(fields.len()))),
                2 => order.push(fields[next(fields.len())]),
                _ => {}
            }
            let mut record = format!("{{{}}}", order.join([",", ",", ",", ", "][next(4)])).into_bytes();
            for _ in 0..[0, 0, 1, 2][next(4)] {
                let place = next(record.len());
                match next(4) {
                    0 => record[place] = odd[next(odd.len())],
                    1 => record.truncate(place.max(1)),
                    2 => drop(record.remove(place)),
                    _ => record.insert(place, odd[next(odd.len())]),
                }
            }
            decoders.iter_mut().for_each(|decoder| decoder.push(&record, at));
        }
        let [quick, general] = decoders.each_mut().map(|decoder| decoder.finish().unwrap());
        assert_eq!(quick.bad, general.bad, "round {round}");
        assert_eq!(quick.rows, general.rows, "round {round}");
        (good, bad) = (good + quick.rows.num_rows(), bad + quick.bad.len());
    }
    assert!(good > 5_000 && bad > 1_000, "{good} good and {bad} bad records tell little");
}
