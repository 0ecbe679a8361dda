//! Values as they mostly look, read eight bytes at a time: plain integers, plain text, times in
//! ISO 8601. Each function gives `None` for what it is not sure of and has then touched nothing; the
//! general way takes it from there. So there is one law of what a value is, and this is a way around
//! most of its cost.

use weir_planner::time::TimeUnit;
use weir_planner::value;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
/// Bytes of a string that are looked through in words before a search takes over, which is faster
/// but takes longer to start.
const WORDS_BYTES: usize = 16;

/// Eight bytes in the order in which they stand, the first one lowest.
#[inline]
fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk))
}

/// The high bit of each zero byte; past the first one there may be false ones.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    zeros(word ^ (ONES * u64::from(byte)))
}

/// The high bit of each byte below a space, as [`zeros`].
#[inline]
fn controls(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGHS
}

#[inline]
fn first(mask: u64) -> usize {
    (mask.trailing_zeros() / 8) as usize
}

/// The run of bytes before a value, ready to be compared.
#[derive(Default)]
pub struct Run {
    bytes: Vec<u8>,
    /// The first eight bytes and the last eight, which overlap; of a shorter run as many as it has.
    head: u64,
    tail: u64,
    form: RunForm,
}

#[derive(Default)]
enum RunForm {
    /// Below eight bytes; the mask says how many.
    Short(u64),
    /// Eight to sixteen, with the place of the last eight.
    Middle(usize),
    #[default]
    Long,
}

impl Run {
    /// Becomes these bytes.
    pub fn learn(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        let length = bytes.len();
        self.head = word_or_rest(bytes);
        self.tail = length.checked_sub(8).and_then(|at| bytes.get(at..)).map_or(0, word_or_rest);
        self.form = match length {
            0..8 => RunForm::Short((1 << (8 * length)) - 1),
            8..=16 => RunForm::Middle(length - 8),
            _ => RunForm::Long,
        };
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether `rest` begins with it.
    #[inline]
    pub fn begins(&self, rest: &[u8]) -> bool {
        match self.form {
            RunForm::Short(mask) => match word(rest) {
                Some(head) => (head ^ self.head) & mask == 0,
                None => rest.starts_with(&self.bytes),
            },
            RunForm::Middle(at) => {
                let tail = rest.get(at..).and_then(word);
                word(rest) == Some(self.head) && tail == Some(self.tail)
            }
            RunForm::Long => rest.starts_with(&self.bytes),
        }
    }
}

/// A whole number and how many bytes it takes: a minus or not, up to eighteen digits without a
/// leading zero, and something behind them that cannot belong to a number.
#[inline]
pub fn integer(rest: &[u8]) -> Option<(i64, usize)> {
    let negative = rest.first() == Some(&b'-');
    let start = usize::from(negative);
    let (mut at, mut value) = (start, 0u64);
    while at <= start + 16 {
        let digits = word_or_rest(rest.get(at..)?) ^ (ONES * u64::from(b'0'));
        // A digit is at most nine: neither it nor, without carrying, it plus 118 has the high bit.
        let others = (digits | (digits & !HIGHS).wrapping_add(ONES * 118)) & HIGHS;
        let count = if others == 0 { 8 } else { first(others) };
        if count > 0 {
            // Zeros move in where the others were, which makes eight digits of any count.
            value = value.wrapping_mul(POWERS[count]).wrapping_add(eight_digits(digits << (64 - 8 * count)));
        }
        at += count;
        if count < 8 {
            break;
        }
    }
    let count = at - start;
    let leading_zero = count > 1 && rest.get(start) == Some(&b'0');
    let follows = rest.get(at)?;
    if count == 0 || count > 18 || leading_zero || matches!(follows, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
        return None;
    }
    let value = i64::try_from(value).ok()?;
    Some((if negative { -value } else { value }, at))
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The value of eight digits, the first one lowest: neighbours are put together three times.
#[inline]
fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10 * (1 << 8) + 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 * (1 << 16) + 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 * (1 << 32) + 1) >> 32
}

/// As [`word`], filled up with zeros where the record ends.
#[inline]
fn word_or_rest(rest: &[u8]) -> u64 {
    word(rest).unwrap_or_else(|| rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// A string without escapes or control characters.
pub struct Plain<'a> {
    /// Without its quotes.
    pub inside: &'a [u8],
    /// Every byte is ASCII.
    pub ascii: bool,
}

/// The string that `rest` begins with.
#[inline]
pub fn text(rest: &[u8]) -> Option<Plain<'_>> {
    if rest.first() != Some(&b'"') {
        return None;
    }
    let (mut at, mut high) = (1, 0);
    loop {
        // Past the end of the record are zeros, which are control characters.
        let word = word_or_rest(rest.get(at..)?);
        let stops = equal(word, b'"') | equal(word, b'\\') | controls(word);
        if stops == 0 {
            high |= word;
            at += 8;
            continue;
        }
        let before = first(stops);
        high |= word & ((1 << (8 * before)) - 1);
        let end = at + before;
        if rest.get(end) != Some(&b'"') {
            return None;
        }
        return Some(Plain { inside: rest.get(1..end)?, ascii: high & HIGHS == 0 });
    }
}

/// Bytes of the string that `rest` begins with, its quotes included.
#[inline]
pub fn string_length(rest: &[u8]) -> Option<usize> {
    if rest.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    while at < WORDS_BYTES {
        let Some(word) = word(rest.get(at..)?) else { break };
        let stops = equal(word, b'"') | equal(word, b'\\');
        if stops != 0 {
            let end = at + first(stops);
            return (rest.get(end) == Some(&b'"')).then_some(end + 1);
        }
        at += 8;
    }
    let end = at + memchr::memchr2(b'"', b'\\', rest.get(at..)?)?;
    (rest.get(end) == Some(&b'"')).then_some(end + 1)
}

/// The minute that the row before had: most rows have it as well.
#[derive(Default)]
pub struct Minute {
    text: [u8; 16],
    /// Since 1970; `None` before the first.
    seconds: Option<i64>,
}

impl Minute {
    #[inline]
    fn seconds(&mut self, text: &[u8; 16]) -> Option<i64> {
        if u128::from_le_bytes(*text) == u128::from_le_bytes(self.text) && self.seconds.is_some() {
            return self.seconds;
        }
        self.learn(text)
    }

    #[cold]
    fn learn(&mut self, text: &[u8; 16]) -> Option<i64> {
        // What else the law takes, such as a date with blanks behind it, is not a minute.
        if text[13] != b':' || !text[0].is_ascii_digit() || !text[15].is_ascii_digit() {
            return None;
        }
        let seconds = value::timestamp(text, TimeUnit::Second, None).ok()?;
        *self = Minute { text: *text, seconds: Some(seconds) };
        Some(seconds)
    }
}

/// A time as a string and how many bytes it takes: `"2026-01-31T12:00:05"` with or without up to
/// nine digits behind a point and a `Z`.
#[inline]
pub fn stamp(rest: &[u8], unit: TimeUnit, minute: &mut Minute) -> Option<(i64, usize)> {
    let (quote, after) = rest.split_first()?;
    let (text, after) = after.split_first_chunk::<16>()?;
    let [b':', tens @ b'0'..=b'5', ones @ b'0'..=b'9', after @ ..] = after else { return None };
    if *quote != b'"' {
        return None;
    }
    let mut at = 20;
    let mut nanos = 0;
    if let [b'.', fraction @ ..] = after {
        let mut worth = 1_000_000_000;
        let mut digits = 0;
        while let Some(digit @ b'0'..=b'9') = fraction.get(digits) {
            worth /= 10;
            nanos += i64::from(digit - b'0') * worth;
            digits += 1;
            if digits > 9 {
                return None;
            }
        }
        if digits == 0 {
            return None;
        }
        at += 1 + digits;
    }
    at += usize::from(rest.get(at) == Some(&b'Z'));
    if rest.get(at) != Some(&b'"') {
        return None;
    }
    let seconds = minute.seconds(text)? + i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let value = match unit {
        TimeUnit::Second => seconds,
        TimeUnit::Millisecond => seconds * 1_000 + nanos / 1_000_000,
        TimeUnit::Microsecond => seconds * 1_000_000 + nanos / 1_000,
        TimeUnit::Nanosecond => seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?,
    };
    Some((value, at + 1))
}

#[cfg(test)]
mod tests;
