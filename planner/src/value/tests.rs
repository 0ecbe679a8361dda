//! Tests of the text rules, with values worked out by hand.

use super::*;

const NOON: i64 = 1_767_268_800; // 2026-01-01T12:00:00Z

fn ms(text: &str) -> Result<i64, Why> {
    timestamp(text.as_bytes(), TimeUnit::Millisecond, None)
}

#[test]
fn whole_numbers_are_exact_and_bounded() {
    let good = [
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("12.0", 12),
        ("1.2e1", 12),
        ("1200e-2", 12),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("0.000e400", 0),
        (" 5 ", 5),
    ];
    for (text, value) in good {
        assert_eq!(integer(text.as_bytes()), Ok(value), "{text}");
    }
    for text in ["1.5", "", "-", "1e", "abc", "1 2", "0x10", "1e-1", "--1", "NaN"] {
        assert_eq!(integer(text.as_bytes()), Err(Why::Shape), "{text}");
    }
    for text in ["9223372036854775808", "-9223372036854775809", "1e19", "1e400", "123456789012345678901234567890123456789012345"] {
        assert_eq!(integer(text.as_bytes()), Err(Why::Range), "{text}");
    }
}

/// C32: exact, from text, whatever a double would make of it.
#[test]
fn decimals_do_not_pass_through_a_double() {
    let good = [
        ("100.0", 28, 18, 100_000_000_000_000_000_000),
        ("0.1", 38, 10, 1_000_000_000),
        ("-0.30", 3, 2, -30),
        ("1e2", 5, 2, 10_000),
        ("12345678901234567890123456789.123456789", 38, 9, 12_345_678_901_234_567_890_123_456_789_123_456_789),
        ("9007199254740993", 20, 0, 9_007_199_254_740_993),
        ("0.10000", 2, 1, 1),
    ];
    for (text, precision, scale, value) in good {
        assert_eq!(decimal(text.as_bytes(), precision, scale), Ok(value), "{text}");
    }
    assert_eq!(decimal(b"100", 4, 2), Err(Why::Range));
    assert_eq!(decimal(b"99.99", 4, 2), Ok(9999));
    assert_eq!(decimal(b"1e40", 38, 0), Err(Why::Range));
    // Digits past the scale would be lost.
    assert_eq!(decimal(b"0.125", 4, 2), Err(Why::Shape));
    assert_eq!(decimal(b"ten", 4, 2), Err(Why::Shape));
}

#[test]
fn times_are_rfc_3339_or_sql_text() {
    let good = [
        ("2026-01-01T12:00:00Z", NOON * 1000),
        ("2026-01-01 12:00:00", NOON * 1000),
        ("2026-01-01T12:00:00.123", NOON * 1000 + 123),
        ("2026-01-01t12:00:00.1239z", NOON * 1000 + 123),
        ("2026-01-01T14:30:00+02:30", NOON * 1000),
        ("2026-01-01T14:00:00+02", NOON * 1000),
        ("2026-01-01 10:00:00 -0200", NOON * 1000),
        ("2026-01-01 12:00", NOON * 1000),
        ("2026-01-01", (NOON - 43_200) * 1000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T00:00:00Z", 951_782_400_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
    ];
    for (text, value) in good {
        assert_eq!(ms(text), Ok(value), "{text}");
    }
    for text in [
        "2026-13-01", "2026-02-29", "2026-00-10", "2026-01-01T24:00:00", "2026-01-01T12:60:00", "2026-01-01T12:00:00.", "yesterday", "",
        "2026-01-01T12:00:00+25:00", "2026-01-01T12:00:00 x",
    ] {
        assert_eq!(ms(text), Err(Why::Shape), "{text}");
    }
}

/// C29: no unit, no guess. EV-1: floored, and out of range is an error.
#[test]
fn numbers_are_times_only_with_a_unit() {
    let number = |text: &str, unit, from| timestamp_number(text.as_bytes(), unit, from);
    assert_eq!(number("1767268800000", TimeUnit::Millisecond, None), Err(Why::Unit));
    assert_eq!(ms("1767268800000"), Err(Why::Unit));
    assert_eq!(number("1767268800", TimeUnit::Millisecond, Some(TimeUnit::Second)), Ok(NOON * 1000));
    assert_eq!(number("1767268800.5", TimeUnit::Millisecond, Some(TimeUnit::Second)), Ok(NOON * 1000 + 500));
    assert_eq!(number("63072000000000000", TimeUnit::Microsecond, Some(TimeUnit::Microsecond)), Ok(63_072_000_000_000_000));
    assert_eq!(number("-1", TimeUnit::Millisecond, Some(TimeUnit::Microsecond)), Ok(-1));
    assert_eq!(number("-1000", TimeUnit::Millisecond, Some(TimeUnit::Nanosecond)), Ok(-1));
    assert_eq!(number("9223372036854775807", TimeUnit::Nanosecond, Some(TimeUnit::Second)), Err(Why::Range));
    assert_eq!(timestamp(b"1767268800", TimeUnit::Second, Some(TimeUnit::Second)), Ok(NOON));
    assert_eq!(timestamp(b"2300-01-01T00:00:00Z", TimeUnit::Nanosecond, None), Err(Why::Range));
    assert_eq!(convert_unit(-1, TimeUnit::Microsecond, TimeUnit::Millisecond), Some(-1));
    assert_eq!(convert_unit(i64::MAX, TimeUnit::Second, TimeUnit::Millisecond), None);
}

#[test]
fn dates_truth_values_and_bytes() {
    assert_eq!(date(b"1970-01-02"), Ok(1));
    assert_eq!(date(b"1969-12-31"), Ok(-1));
    assert_eq!(date(b"2026-01-01"), Ok(20_454));
    assert_eq!(date(b"2026-01-01T00:00:00"), Err(Why::Shape));
    assert_eq!(boolean(b"TRUE"), Ok(true));
    assert_eq!(boolean(b"off"), Ok(false));
    assert_eq!(boolean(b"2"), Err(Why::Shape));
    let taken = |text: &[u8]| {
        let mut out = Vec::new();
        bytes(text, &mut out).map(|()| out)
    };
    assert_eq!(taken(br"\x00fF"), Ok(vec![0, 255]));
    assert_eq!(taken(br"\x0"), Err(Why::Shape));
    assert_eq!(taken(br"\xzz"), Err(Why::Shape));
    assert_eq!(taken(b"aGVsbG8="), Ok(b"hello".to_vec()));
    assert_eq!(taken(b"aGVsbG8"), Ok(b"hello".to_vec()));
    assert_eq!(taken(b"a"), Err(Why::Shape));
    assert_eq!(taken(b"aGVsbG9="), Err(Why::Shape));
    assert_eq!(taken(b""), Ok(Vec::new()));
    assert_eq!(double(b"1e400"), Err(Why::Range));
    assert!(double(b"NaN").is_ok_and(f64::is_nan));
    assert_eq!(double(b"-Infinity"), Ok(f64::NEG_INFINITY));
    assert_eq!(real(b"1e39"), Err(Why::Range));
}
