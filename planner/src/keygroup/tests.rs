//! Pinned vectors (PLAN-3). The bytes were put together from the table in the module's text by
//! other code, and hashed with another implementation of XXH3 (the C library, 0.8.4). A change
//! here breaks every stored artifact: raise `KEY_ENCODING_VERSION` instead.

use super::{
    KEY_ENCODING_VERSION, group, hash, hash_integer, put_boolean, put_bytea, put_date, put_decimal, put_float, put_integer, put_interval,
    put_null, put_text, put_timestamp,
};

/// A key, its hash, and its key group of 128.
type Vector = (fn(&mut Vec<u8>), u64, u32);

#[test]
fn hashes_are_pinned() {
    assert_eq!(KEY_ENCODING_VERSION, 1);
    let vectors: &[Vector] = &[
        (|k| put_null(k), 0xc44bdff4074eecdb, 91),
        (|k| put_boolean(k, false), 0xab94ac0ace7276c0, 64),
        (|k| put_boolean(k, true), 0x070d80d6a76865f3, 115),
        (|k| put_integer(k, 0), 0x8da2b7ab8b1ee0e7, 103),
        (|k| put_integer(k, 1), 0x77b9ee4e4f0d5d17, 23),
        (|k| put_integer(k, -1), 0x51957c455b8e6c65, 101),
        (|k| put_integer(k, i64::MIN), 0x0982fc13c6eac8cb, 75),
        (|k| put_integer(k, i64::MAX), 0xe043660fb5b7a3db, 91),
        (|k| put_float(k, 0.0), 0xd1d30c5e8136b99d, 29),
        (|k| put_float(k, -0.0), 0xd1d30c5e8136b99d, 29),
        (|k| put_float(k, 1.5), 0x58bdc64af8b48dc4, 68),
        (|k| put_float(k, -1.5), 0x20af764ecde83e31, 49),
        (|k| put_float(k, f64::INFINITY), 0x093a1475c7167590, 16),
        (|k| put_float(k, f64::NAN), 0xa849877be0234960, 96),
        (|k| put_float(k, -f64::NAN), 0xa849877be0234960, 96),
        (|k| put_float(k, f64::from(0.1f32)), 0x6e90e985aa35fc51, 81),
        (|k| put_decimal(k, 12345, 2), 0x10d68dd2f8c37833, 51),
        (|k| put_decimal(k, -1, 0), 0x4199f999fbe0a3a4, 36),
        (|k| put_decimal(k, i128::MAX, 38), 0x81fd1fbf34fb07cc, 76),
        (|k| put_text(k, ""), 0x2db60605234d7cb9, 57),
        (|k| put_text(k, "weir"), 0xc0a93b2546c71037, 55),
        (|k| put_text(k, "größe ✓"), 0xe4d50e6d8f4d95cb, 75),
        (|k| put_text(k, &"x".repeat(300)), 0x4b8d8337074a0c01, 1),
        (|k| put_bytea(k, b""), 0x8c82f6a56b02575f, 95),
        (|k| put_bytea(k, b"weir"), 0x076e2f8b07b64157, 87),
        (|k| put_date(k, 0), 0x2388578ed213216e, 110),
        (|k| put_date(k, -1), 0xbcdabc1ff6f0a32c, 44),
        (|k| put_timestamp(k, 1_757_000_000, 123_000_000), 0x5b9b4bab8338c4e0, 96),
        (|k| put_timestamp(k, -1, 999_999_999), 0x451a40f6fcb10647, 71),
        (|k| put_interval(k, 1, -2, 3), 0xb6c68a08d46d2e73, 115),
        (
            |k| {
                put_text(k, "a");
                put_integer(k, 7)
            },
            0x0f077d51f6885ad3,
            83,
        ),
        (
            |k| {
                put_null(k);
                put_null(k)
            },
            0x3325230e1f285505,
            5,
        ),
        (
            |k| {
                put_text(k, "ab");
                put_text(k, "c")
            },
            0x5d6fd177568f0579,
            121,
        ),
        (
            |k| {
                put_text(k, "a");
                put_text(k, "bc")
            },
            0x47459a7194acf17f,
            127,
        ),
    ];
    for (at, (put, expected, key_group)) in vectors.iter().enumerate() {
        let mut key = Vec::new();
        put(&mut key);
        assert_eq!((hash(&key), group(hash(&key), 128).get()), (*expected, *key_group), "vector {at}: {key:02x?}");
    }
}

/// The bytes themselves, written out by hand from the table.
#[test]
fn bytes_are_pinned() {
    let encoded = |put: fn(&mut Vec<u8>)| {
        let mut key = Vec::new();
        put(&mut key);
        key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(encoded(put_null), "00");
    assert_eq!(encoded(|k| put_boolean(k, true)), "0101");
    assert_eq!(encoded(|k| put_integer(k, -2)), "02feffffffffffffff");
    assert_eq!(encoded(|k| put_float(k, -0.0)), "030000000000000000");
    assert_eq!(encoded(|k| put_float(k, -f64::NAN)), "03000000000000f87f");
    assert_eq!(encoded(|k| put_decimal(k, 258, 1)), "040201000000000000000000000000000001");
    assert_eq!(encoded(|k| put_text(k, "é")), "0502000000c3a9");
    assert_eq!(encoded(|k| put_bytea(k, &[255])), "0601000000ff");
    assert_eq!(encoded(|k| put_date(k, -1)), "07ffffffff");
    assert_eq!(encoded(|k| put_timestamp(k, -1, 5)), "08ffffffffffffffff05000000");
    assert_eq!(encoded(|k| put_interval(k, 1, 2, 3)), "0901000000020000000300000000000000");
}

/// The short way for one integer column gives what the long way gives.
#[test]
fn one_integer_is_hashed_alike() {
    for value in [0, 1, -1, 42, i64::MIN, i64::MAX] {
        let mut key = Vec::new();
        put_integer(&mut key, value);
        assert_eq!(hash_integer(value), hash(&key));
    }
}
