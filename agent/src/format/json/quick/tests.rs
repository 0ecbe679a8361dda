//! Each quick way against the law it stands for.

use super::*;
use crate::format::json::scan;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }

    fn text(&mut self, alphabet: &[u8], length_max: u64) -> Vec<u8> {
        let length = self.next(length_max + 1);
        (0..length).map(|_| alphabet[usize::try_from(self.next(alphabet.len() as u64)).unwrap()]).collect()
    }
}

#[test]
fn integers_are_those_of_the_law() {
    let table: [(&str, Option<i64>); 14] = [
        ("0,", Some(0)),
        ("-0}", Some(0)),
        ("7}", Some(7)),
        ("1234567,", Some(1_234_567)),
        ("12345678,", Some(12_345_678)),
        ("123456789 ", Some(123_456_789)),
        ("-999999999999999999,", Some(-999_999_999_999_999_999)),
        ("1000000000000000000,", None),
        ("00,", None),
        ("1.0,", None),
        ("1e3,", None),
        ("-,", None),
        ("\"1\"", None),
        ("12", None),
    ];
    for (text, expected) in table {
        assert_eq!(integer(text.as_bytes()).map(|(value, _)| value), expected, "{text}");
    }
    let mut random = Random(1);
    for _ in 0..50_000 {
        let mut text = random.text(b"0123456789", 20);
        if random.next(4) == 0 {
            let place = usize::try_from(random.next(text.len() as u64 + 1)).unwrap();
            text.insert(place, b"-+.eE/:;\x00\xff"[usize::try_from(random.next(10)).unwrap()]);
        }
        let token = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).unwrap_or(text.len());
        text.extend_from_slice(&random.text(b",} x", 12));
        if let Some((value, taken)) = integer(&text) {
            assert_eq!(taken, token, "{text:?}");
            assert!(scan::is_number(&text[..taken]), "{text:?}");
            assert_eq!(value::integer(&text[..taken]), Ok(value), "{text:?}");
        }
    }
}

#[test]
fn strings_end_where_they_end() {
    let mut random = Random(2);
    for _ in 0..50_000 {
        let mut text = b"\"".to_vec();
        text.extend(random.text(b"abcdefghijklmnopqrstuvwxyz\xc3\xa9 !#[]\x80", 70));
        if random.next(8) == 0 {
            let place = usize::try_from(random.next(text.len() as u64)).unwrap() + 1;
            text.insert(place, b"\\\x1f\n\x00\x7f"[usize::try_from(random.next(5)).unwrap()]);
        }
        text.push(b'"');
        text.extend_from_slice(&random.text(b",\"\\}", 20));
        let end = 1 + text[1..].iter().position(|b| matches!(b, b'"' | b'\\')).unwrap();
        let plain = text[end] == b'"';
        assert_eq!(string_length(&text), plain.then_some(end + 1), "{text:?}");
        let inside = &text[1..end];
        match super::text(&text) {
            Some(found) => {
                assert_eq!((found.inside, found.ascii), (inside, inside.is_ascii()), "{text:?}");
                assert!(plain && inside.iter().all(|b| *b >= 0x20), "{text:?}");
            }
            None => assert!(!plain || inside.iter().any(|b| *b < 0x20), "{text:?}"),
        }
    }
}

/// EV-1: floored to the unit, in UTC.
#[test]
fn times_are_those_of_the_law() {
    let mut minute = Minute::default();
    let fixed = [
        (r#""2026-01-31T12:00:05.123","#, Some((1_769_860_805_123, 25))),
        (r#""2026-01-31T12:00:05Z","#, Some((1_769_860_805_000, 22))),
        (r#""1969-12-31 23:59:59.9999","#, Some((-1, 26))),
        (r#""2026-01-31      :05","#, None),
        (r#""2026-02-30T12:00:05","#, None),
        (r#""2026-01-31T12:00:05+01:00","#, None),
        (r#""2026-01-31T12:00:60","#, None),
        (r#""2026-01-31T12:00:05.","#, None),
        (r#""2026-01-31T12:00:05"#, None),
    ];
    for (text, expected) in fixed {
        assert_eq!(stamp(text.as_bytes(), TimeUnit::Millisecond, &mut minute), expected, "{text}");
    }
    let mut random = Random(3);
    let mut taken_all = 0;
    for _ in 0..50_000 {
        let mut number = |from: u64, to: u64| from + random.next(to - from);
        let mut text = format!(
            "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}",
            number(2020, 2023),
            number(1, 3),
            number(27, 32),
            ["T", "T", " ", "t"][number(0, 4) as usize],
            number(0, 2),
            number(0, 2),
            number(0, 61)
        )
        .into_bytes();
        if random.next(2) == 0 {
            text.push(b'.');
            text.extend(random.text(b"0123456789", 11));
        }
        if random.next(3) == 0 {
            text.push(b'Z');
        }
        if random.next(4) == 0 {
            let place = usize::try_from(random.next(text.len() as u64)).unwrap();
            text[place] = b"0129:-TZ. +"[usize::try_from(random.next(11)).unwrap()];
        }
        let quoted = [b"\"", text.as_slice(), b"\",\"x\""].concat();
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            if let Some((value, taken)) = stamp(&quoted, unit, &mut minute) {
                assert_eq!(taken, text.len() + 2, "{text:?}");
                assert_eq!(value::timestamp(&text, unit, None), Ok(value), "{text:?}");
                taken_all += 1;
            }
        }
    }
    assert!(taken_all > 50_000, "only {taken_all} times were read quickly");
}

#[test]
fn a_run_begins_what_it_begins() {
    let mut random = Random(4);
    let mut run = Run::default();
    for _ in 0..50_000 {
        let bytes = random.text(b",\"ab:", 30);
        run.learn(&bytes);
        let mut rest = [bytes.as_slice(), &random.text(b"ab", 12)].concat();
        assert!(run.begins(&rest), "{bytes:?}");
        if !rest.is_empty() {
            let place = usize::try_from(random.next(rest.len() as u64)).unwrap();
            rest[place] ^= 1;
            rest.truncate(usize::try_from(random.next(rest.len() as u64 + 1)).unwrap());
        }
        assert_eq!(run.begins(&rest), rest.starts_with(&bytes), "{bytes:?} {rest:?}");
        assert_eq!(run.len(), bytes.len());
    }
}
