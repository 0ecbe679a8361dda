//! Key bytes to hash to key group: the law that routing, state and rescaling share (PLAN-3).
//!
//! Encoding, version 1: the columns one after the other, each a tag byte and a payload.
//!
//! | value | tag | payload |
//! | --- | --- | --- |
//! | NULL | 0 | none |
//! | BOOLEAN | 1 | one byte, 0 or 1 |
//! | SMALLINT, INTEGER, BIGINT | 2 | 8 bytes, little-endian two's complement |
//! | REAL, DOUBLE | 3 | 8 bytes, little-endian IEEE double; -0 as 0, every NaN as the quiet one |
//! | DECIMAL | 4 | 16 bytes little-endian unscaled value, 1 byte scale |
//! | TEXT | 5 | 4 bytes little-endian length, UTF-8 bytes |
//! | BYTEA | 6 | 4 bytes little-endian length, bytes |
//! | DATE | 7 | 4 bytes little-endian days |
//! | TIMESTAMP, TIMESTAMPTZ | 8 | 8 bytes little-endian seconds (floored), 4 bytes little-endian nanoseconds |
//! | INTERVAL | 9 | 4 bytes months, 4 bytes days, 8 bytes nanoseconds, little-endian |
//!
//! Hash: XXH3, 64 bit, seed 0, over the encoded key. Key group: hash mod `max_parallelism`.

use crate::id::KeyGroup;

/// Version of the encoding and hash; part of every stored artifact.
pub const KEY_ENCODING_VERSION: u32 = 1;

/// Appends NULL.
pub fn put_null(key: &mut Vec<u8>) {
    key.push(0);
}

/// Appends a BOOLEAN.
pub fn put_boolean(key: &mut Vec<u8>, value: bool) {
    key.extend_from_slice(&[1, u8::from(value)]);
}

/// Appends an integer of any width.
pub fn put_integer(key: &mut Vec<u8>, value: i64) {
    key.push(2);
    key.extend_from_slice(&value.to_le_bytes());
}

/// Appends a REAL (widened) or DOUBLE.
pub fn put_float(key: &mut Vec<u8>, value: f64) {
    let canonical = if value.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    key.push(3);
    key.extend_from_slice(&canonical.to_le_bytes());
}

/// Appends a DECIMAL.
pub fn put_decimal(key: &mut Vec<u8>, unscaled: i128, scale: i8) {
    key.push(4);
    key.extend_from_slice(&unscaled.to_le_bytes());
    key.extend_from_slice(&scale.to_le_bytes());
}

/// Appends TEXT.
pub fn put_text(key: &mut Vec<u8>, value: &str) {
    put_counted(key, 5, value.as_bytes());
}

/// Appends BYTEA.
pub fn put_bytea(key: &mut Vec<u8>, value: &[u8]) {
    put_counted(key, 6, value);
}

/// Appends a DATE.
pub fn put_date(key: &mut Vec<u8>, days: i32) {
    key.push(7);
    key.extend_from_slice(&days.to_le_bytes());
}

/// Appends a TIMESTAMP as floored seconds and the nanoseconds above them, so that one point in
/// time has one encoding whatever the column's precision.
pub fn put_timestamp(key: &mut Vec<u8>, seconds: i64, nanos: u32) {
    key.push(8);
    key.extend_from_slice(&seconds.to_le_bytes());
    key.extend_from_slice(&nanos.to_le_bytes());
}

/// Appends an INTERVAL.
pub fn put_interval(key: &mut Vec<u8>, months: i32, days: i32, nanos: i64) {
    key.push(9);
    key.extend_from_slice(&months.to_le_bytes());
    key.extend_from_slice(&days.to_le_bytes());
    key.extend_from_slice(&nanos.to_le_bytes());
}

fn put_counted(key: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("an Arrow value is shorter than 2 GiB");
    key.push(tag);
    key.extend_from_slice(&length.to_le_bytes());
    key.extend_from_slice(bytes);
}

/// Hash of an encoded key.
#[inline]
pub fn hash(encoded: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(encoded)
}

/// Hash of a key of one non-null integer column: what [`put_integer`] and [`hash`] give.
#[inline]
pub fn hash_integer(value: i64) -> u64 {
    let mut encoded = [2u8; 9];
    encoded[1..].copy_from_slice(&value.to_le_bytes());
    hash(&encoded)
}

/// Key group of a hash.
pub fn group(hash: u64, max_parallelism: u32) -> KeyGroup {
    KeyGroup::new((hash % u64::from(max_parallelism)) as u32)
}

#[cfg(test)]
mod tests;
