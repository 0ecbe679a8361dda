//! Groups by key for every key type: equal keys one group, keys back as they came, hashes by the law.

use super::Index;
use crate::route::key::Encoded;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, TimestampMicrosecondArray, TimestampSecondArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_planner::keygroup;

/// Distinct keys of each type, NULL among them, and their encoding by the scalar law.
fn kinds() -> Vec<(ArrayRef, Vec<Vec<u8>>)> {
    fn law<V>(values: &[Option<V>], put: impl Fn(&mut Vec<u8>, &V)) -> Vec<Vec<u8>> {
        let one = |value: &Option<V>| {
            let mut key = Vec::new();
            match value {
                None => keygroup::put_null(&mut key),
                Some(value) => put(&mut key, value),
            }
            key
        };
        values.iter().map(one).collect()
    }
    let shorts = [None, Some(0i16), Some(-1), Some(i16::MAX)];
    let ints = [Some(i32::MIN), None, Some(0i32), Some(7)];
    let longs = [Some(i64::MIN), None, Some(0i64), Some(i64::MAX), Some(-1)];
    let floats = [Some(1.5f32), None, Some(f32::INFINITY), Some(0.0)];
    let doubles = [Some(1.5f64), None, Some(f64::NEG_INFINITY), Some(0.0), Some(f64::MIN_POSITIVE)];
    let money = [Some(5i128), None, Some(-99_999), Some(0)];
    let texts = [Some("a"), None, Some(""), Some("ä\0b"), Some("aa")];
    let blobs = [Some(&b"a"[..]), None, Some(b""), Some(b"\0"), Some(b"\0\0")];
    let flags = [Some(true), None, Some(false)];
    let days = [Some(-1i32), None, Some(20_000)];
    let micros = [Some(-1i64), None, Some(0), Some(1_500_000), Some(i64::MIN), Some(i64::MAX)];
    let seconds = [Some(-1i64), None, Some(0), Some(i64::MAX)];
    let micro = |key: &mut Vec<u8>, v: &i64| keygroup::put_timestamp(key, v.div_euclid(1_000_000), v.rem_euclid(1_000_000) as u32 * 1_000);
    vec![
        (Arc::new(Int16Array::from(shorts.to_vec())), law(&shorts, |k, v| keygroup::put_integer(k, i64::from(*v)))),
        (Arc::new(Int32Array::from(ints.to_vec())), law(&ints, |k, v| keygroup::put_integer(k, i64::from(*v)))),
        (Arc::new(Int64Array::from(longs.to_vec())), law(&longs, |k, v| keygroup::put_integer(k, *v))),
        (Arc::new(Float32Array::from(floats.to_vec())), law(&floats, |k, v| keygroup::put_float(k, f64::from(*v)))),
        (Arc::new(Float64Array::from(doubles.to_vec())), law(&doubles, |k, v| keygroup::put_float(k, *v))),
        (
            Arc::new(Decimal128Array::from(money.to_vec()).with_data_type(DataType::Decimal128(10, 2))),
            law(&money, |k, v| keygroup::put_decimal(k, *v, 2)),
        ),
        (Arc::new(StringArray::from(texts.to_vec())), law(&texts, |k, v| keygroup::put_text(k, v))),
        (Arc::new(BinaryArray::from(blobs.to_vec())), law(&blobs, |k, v| keygroup::put_bytea(k, v))),
        (Arc::new(BooleanArray::from(flags.to_vec())), law(&flags, |k, v| keygroup::put_boolean(k, *v))),
        (Arc::new(Date32Array::from(days.to_vec())), law(&days, |k, v| keygroup::put_date(k, *v))),
        (Arc::new(TimestampMicrosecondArray::from(micros.to_vec()).with_timezone("+00:00")), law(&micros, micro)),
        (Arc::new(TimestampSecondArray::from(seconds.to_vec())), law(&seconds, |k, v| keygroup::put_timestamp(k, *v, 0))),
    ]
}

/// PLAN-3: whole columns hash as the scalar law says, in routing and in state alike.
#[test]
fn hashes_follow_the_law() {
    for (column, law) in kinds() {
        let expected: Vec<u64> = law.iter().map(|key| keygroup::hash(key)).collect();
        let mut encoded = Encoded::default();
        encoded.hash(std::slice::from_ref(&column), column.len()).unwrap();
        assert_eq!(encoded.hashes(), expected, "{}", column.data_type());
        encoded.encode(std::slice::from_ref(&column), column.len()).unwrap();
        assert_eq!(encoded.hashes(), expected);
        let (mut index, mut groups) = (Index::new(&[column.data_type().clone()]), Vec::new());
        index.assign(std::slice::from_ref(&column), column.len(), &mut encoded, &mut groups).unwrap();
        assert_eq!(index.hashes(&groups), expected);
    }
    let mut encoded = Encoded::default();
    let dense: ArrayRef = Arc::new(Int64Array::from(vec![3, -9, i64::MAX]));
    encoded.hash(&[dense], 3).unwrap();
    assert_eq!(encoded.hashes(), [3, -9, i64::MAX].map(keygroup::hash_integer));
}

/// Equal keys share a group, NULL is a key, and keys come back as they were.
#[test]
fn groups_and_keys_of_every_type() {
    for (column, _) in kinds() {
        let (mut index, mut groups, mut scratch) = (Index::new(&[column.data_type().clone()]), Vec::new(), Encoded::default());
        let count = column.len() as u32;
        for round in 0..3 {
            let order: UInt32Array = (0..count * 2).map(|i| (i * 7 + round) % count).collect();
            let rows = take(&column, &order, None).unwrap();
            index.assign(std::slice::from_ref(&rows), rows.len(), &mut scratch, &mut groups).unwrap();
            assert_eq!(index.len() as u32, count, "{}", column.data_type());
            assert_eq!(&index.keys(&groups).unwrap()[0], &rows, "{}", column.data_type());
        }
    }
}

/// Two columns are not confused with one another's bytes, and a NULL in one is not a NULL in the other.
#[test]
fn composite_keys() {
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("ab"), None, Some(""), None, Some("a")]));
    let blob: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"bc"[..]), Some(b"c"), Some(b""), None, None, Some(b"bc")]));
    let types = [DataType::Utf8, DataType::Binary];
    let (mut index, mut groups) = (Index::new(&types), Vec::new());
    index.assign(&[text.clone(), blob.clone()], 6, &mut Encoded::default(), &mut groups).unwrap();
    assert_eq!(groups, [0, 1, 2, 3, 4, 0]);
    assert_eq!(index.keys(&groups).unwrap(), [text, blob]);
}

/// -0 is 0 and every NaN is one key.
#[test]
fn floats_are_canonical() {
    let odd = f64::from_bits(0xFFF8_0000_0000_1234);
    let column: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, odd, -f64::NAN]));
    let (mut index, mut groups) = (Index::new(&[DataType::Float64]), Vec::new());
    index.assign(&[column], 5, &mut Encoded::default(), &mut groups).unwrap();
    assert_eq!(groups, [0, 0, 1, 1, 1]);
}

/// Many keys, all of one key group: the table must not degrade to a list.
#[test]
fn keys_of_one_key_group_spread() {
    let keys: Vec<i64> = (0..400_000).filter(|key| keygroup::hash_integer(*key) % 128 == 5).collect();
    let column: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..200_000).map(|i| i.to_string()).filter(|key| {
        let mut encoded = Vec::new();
        keygroup::put_text(&mut encoded, key);
        keygroup::hash(&encoded) % 128 == 5
    })));
    for (column, ty) in [(column, DataType::Int64), (text, DataType::Utf8)] {
        let (mut index, mut groups) = (Index::new(&[ty]), Vec::new());
        index.assign(std::slice::from_ref(&column), column.len(), &mut Encoded::default(), &mut groups).unwrap();
        assert_eq!(index.len(), column.len());
        assert_eq!(&index.keys(&groups).unwrap()[0], &column);
    }
}
