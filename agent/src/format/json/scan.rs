//! A cursor over one JSON record: finds where values end. No recursion, so depth costs heap, not stack.

use memchr::memchr2;

/// A string as it stands in the record.
pub struct Text<'a> {
    /// Without its quotes.
    pub inside: &'a [u8],
    /// With them.
    pub quoted: &'a [u8],
    /// Has a backslash.
    pub escaped: bool,
}

/// A cursor over one record.
pub struct Scan<'a> {
    record: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// At the start of a record.
    pub fn new(record: &'a [u8]) -> Self {
        Scan { record, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The bytes from `start` to here.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.record.get(start..self.at).unwrap_or_default()
    }

    /// The bytes from here on.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.record.get(self.at..).unwrap_or_default()
    }

    /// Steps over bytes that have been looked at.
    #[inline]
    pub fn step(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next byte.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.record.get(self.at).copied()
    }

    /// Steps over `run` if it comes next.
    #[inline]
    pub fn take(&mut self, run: &[u8]) -> bool {
        let comes = self.record.get(self.at..).is_some_and(|rest| rest.starts_with(run));
        self.at += if comes { run.len() } else { 0 };
        comes
    }

    /// Steps over a literal if it comes next and ends there.
    pub fn word(&mut self, word: &[u8]) -> bool {
        let ends = self.record.get(self.at + word.len()).is_none_or(|b| !b.is_ascii_alphanumeric());
        ends && self.take(word)
    }

    /// Steps over white space.
    #[inline]
    pub fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Steps over the separator, a field's name and the colon, up to the value. Gives the name;
    /// `None` where the object ends instead (then its brace is taken).
    pub fn name(&mut self, first: bool) -> Result<Option<Text<'a>>, String> {
        self.blank();
        if first {
            match self.peek() {
                Some(b'{') => self.at += 1,
                None => return Err("the record is empty".to_owned()),
                Some(_) => return Err("the record is not a JSON object".to_owned()),
            }
            self.blank();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(None);
            }
        } else {
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(None);
                }
                None => return Err("the record ends within its object".to_owned()),
                Some(_) => return Err(format!("a ',' or '}}' is missing at byte {}", self.at)),
            }
            self.blank();
        }
        if self.peek() != Some(b'"') {
            return Err(format!("a field name is missing at byte {}", self.at));
        }
        let name = self.string()?;
        self.blank();
        if self.peek() != Some(b':') {
            return Err(format!("a ':' is missing at byte {}", self.at));
        }
        self.at += 1;
        self.blank();
        Ok(Some(name))
    }

    /// True, and the brace taken, if the object ends right here: spares the next look.
    #[inline]
    pub fn at_end_of_object(&mut self) -> bool {
        let ends = self.peek() == Some(b'}');
        self.at += usize::from(ends);
        ends
    }

    /// Only white space may follow the object.
    #[inline]
    pub fn end(&mut self) -> Result<(), String> {
        if self.at == self.record.len() {
            return Ok(());
        }
        self.blank();
        if self.at == self.record.len() { Ok(()) } else { Err(format!("something follows the object at byte {}", self.at)) }
    }

    /// Steps over a string.
    #[inline]
    pub fn string(&mut self) -> Result<Text<'a>, String> {
        let start = self.at + 1;
        let mut from = start;
        let mut escaped = false;
        loop {
            let rest = self.record.get(from..).unwrap_or_default();
            let Some(found) = memchr2(b'"', b'\\', rest) else {
                return Err("the record ends within a string".to_owned());
            };
            let end = from + found;
            if self.record.get(end) == Some(&b'"') {
                self.at = end + 1;
                let quoted = self.record.get(start - 1..=end).unwrap_or_default();
                return Ok(Text { inside: self.record.get(start..end).unwrap_or_default(), quoted, escaped });
            }
            escaped = true;
            from = end + 2;
        }
    }

    /// Steps over what looks like a number.
    #[inline]
    pub fn number(&mut self) -> &'a [u8] {
        let rest = self.record.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Steps over any value by its structure. `open` is scratch for the brackets to be closed.
    #[inline]
    pub fn skip_value(&mut self, open: &mut Vec<u8>) -> Result<(), String> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => {
                self.number();
                Ok(())
            }
            Some(b'{' | b'[') => self.skip_nested(open),
            Some(b't') if self.word(b"true") => Ok(()),
            Some(b'f') if self.word(b"false") => Ok(()),
            Some(b'n') if self.word(b"null") => Ok(()),
            Some(_) => Err(format!("no JSON value at byte {}", self.at)),
            None => Err("the record ends where a value should be".to_owned()),
        }
    }

    #[cold]
    fn skip_nested(&mut self, open: &mut Vec<u8>) -> Result<(), String> {
        open.clear();
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => open.push(b'}'),
                b'[' => open.push(b']'),
                b'}' | b']' if open.pop() != Some(byte) => {
                    return Err(format!("a bracket does not match at byte {}", self.at));
                }
                _ => {}
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(());
            }
        }
        Err("the record ends within an object or array".to_owned())
    }
}

/// JSON's grammar of numbers: no leading zeros, no lone point.
#[inline]
pub fn is_number(token: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.first() == Some(&b'0')) {
        return false;
    }
    let Some(mut rest) = rest.get(whole..) else { return false };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = fraction.get(count..).unwrap_or_default();
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', tail @ ..] => tail,
            _ => exponent,
        };
        let count = digits(exponent);
        return count > 0 && count == exponent.len();
    }
    rest.is_empty()
}
