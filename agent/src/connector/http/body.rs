//! Bodies to records: how a body must be written for a format, and where its records end.

use super::super::file::lines::{Framing, record_end, trimmed, without_mark};
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::IgnoredAny;
use weir_planner::connector::Format;

/// How the bodies of a source are read.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A JSON object a line, or one value over several lines.
    Json,
    /// Delimited records, with a line of names first where `header` says so.
    Csv { delimiter: u8, header: bool },
    /// The body is the record.
    Raw,
}

/// How one body is cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Lines,
    Quoted { delimiter: u8 },
    Whole,
}

impl Shape {
    /// Of a format that comes in records; Parquet never gets here.
    pub fn of(format: Option<&Format>) -> Self {
        match format {
            None | Some(Format::Json(_)) => Shape::Json,
            Some(Format::Csv(csv)) => Shape::Csv { delimiter: u8::try_from(csv.delimiter).unwrap_or(b','), header: csv.header },
            Some(Format::Raw(_) | Format::Parquet(_)) => Shape::Raw,
        }
    }

    /// Whether the first record names the columns.
    pub fn has_header(self) -> bool {
        matches!(self, Shape::Csv { header: true, .. })
    }

    /// Looks at the headers that say how the body is written; whether it is declared as one value.
    /// Types that a browser sends across sites without asking are not among those taken for JSON.
    ///
    /// Errors: what is wrong and how to write it.
    pub fn accept(self, headers: &HeaderMap) -> Result<bool, String> {
        if let Some(encoding) = headers.get(CONTENT_ENCODING)
            && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return Err("compressed bodies are not read; send the body without content-encoding".to_owned());
        }
        let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(false) };
        let given = given.to_str().unwrap_or_default();
        let media = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (known, use_instead): (&[&str], _) = match self {
            Shape::Json => (
                &["application/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"],
                "application/x-ndjson with a JSON object a line, or application/json",
            ),
            Shape::Csv { .. } => (&["text/csv", "application/csv", "text/plain"], "text/csv"),
            Shape::Raw => return Ok(true),
        };
        if known.contains(&media.as_str()) || (matches!(self, Shape::Json) && media.ends_with("+json")) {
            return Ok(media == "application/json" || media.ends_with("+json"));
        }
        Err(format!("this content-type is not taken; use {use_instead}"))
    }

    /// How to cut a body. `one` says that it was declared as one value.
    pub fn cut(self, body: &[u8], one: bool) -> Cut {
        match self {
            Shape::Raw => Cut::Whole,
            Shape::Csv { delimiter, .. } => Cut::Quoted { delimiter },
            Shape::Json => {
                let body = body.trim_ascii();
                let spans_lines = one && memchr::memchr(b'\n', body).is_some();
                // Only a body that could be either is read twice.
                if spans_lines && serde_json::from_slice::<IgnoredAny>(without_mark(body)).is_ok() { Cut::Whole } else { Cut::Lines }
            }
        }
    }
}

/// The records of a body with their lines, the first being 1. Empty lines are counted and passed over.
pub struct Records<'a> {
    rest: Option<&'a [u8]>,
    cut: Cut,
    line: u64,
}

impl<'a> Records<'a> {
    /// Of a body.
    pub fn of(body: &'a [u8], cut: Cut) -> Self {
        let body = if cut == Cut::Whole { body } else { without_mark(body) };
        Records { rest: Some(body), cut, line: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.rest?;
            self.line += 1;
            let end = match self.cut {
                Cut::Whole => None,
                Cut::Lines => record_end(Framing::Lines, rest, true),
                Cut::Quoted { delimiter } => record_end(Framing::Quoted { delimiter }, rest, true),
            };
            let record = match end {
                Some(end) => {
                    self.rest = rest.get(end + 1..);
                    trimmed(rest.get(..end).unwrap_or_default())
                }
                None => {
                    self.rest = None;
                    if self.cut == Cut::Whole { rest } else { trimmed(rest) }
                }
            };
            // In raw an empty body is an empty record.
            if self.cut == Cut::Whole || !record.trim_ascii().is_empty() {
                return Some((self.line, record));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn records(body: &str, shape: Shape, one: bool) -> Vec<(u64, &str)> {
        let cut = shape.cut(body.as_bytes(), one);
        Records::of(body.as_bytes(), cut).map(|(line, record)| (line, std::str::from_utf8(record).unwrap())).collect()
    }

    #[test]
    fn bodies_are_cut_where_records_end() {
        let csv = Shape::Csv { delimiter: b',', header: false };
        assert_eq!(
            records("{\"a\":1}\n\n  \r\n{\"a\":2}\r\n{\"a\":3}", Shape::Json, false),
            [(1, "{\"a\":1}"), (4, "{\"a\":2}"), (5, "{\"a\":3}")]
        );
        assert_eq!(records("\u{feff}{\"a\":1}\n", Shape::Json, true), [(1, "{\"a\":1}")]);
        let pretty = "{\n \"a\": 1\n}\n";
        assert_eq!(records(pretty, Shape::Json, true), [(1, pretty)]);
        assert_eq!(records(pretty, Shape::Json, false).len(), 3, "not declared as one value");
        assert_eq!(records("{}\n{}", Shape::Json, true), [(1, "{}"), (2, "{}")], "lines under the type of one value");
        assert_eq!(records("1,\"x\ny\"\n2,z\n", csv, false), [(1, "1,\"x\ny\""), (2, "2,z")]);
        assert_eq!(records("1,\"x\ny", csv, false), [(1, "1,\"x\ny")], "a quote that is not closed");
        assert_eq!(records("a\nb\n", Shape::Raw, false), [(1, "a\nb\n")]);
        assert_eq!(records("", Shape::Raw, false), [(1, "")]);
        assert!(records("", Shape::Json, true).is_empty() && records("\n \n", csv, false).is_empty());
    }

    #[test]
    fn only_types_that_fit_the_format_are_taken() {
        let csv = Shape::Csv { delimiter: b',', header: false };
        for (shape, kind, expected) in [
            (Shape::Json, Some("application/json; charset=utf-8"), Some(true)),
            (Shape::Json, Some("Application/X-NDJSON"), Some(false)),
            (Shape::Json, Some("application/cloudevents+json"), Some(true)),
            (Shape::Json, None, Some(false)),
            (Shape::Json, Some("text/plain"), None),
            (Shape::Json, Some("application/x-www-form-urlencoded"), None),
            (csv, Some("text/csv"), Some(false)),
            (csv, Some("application/json"), None),
            (Shape::Raw, Some("image/png"), Some(true)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(kind) = kind {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            assert_eq!(shape.accept(&headers).ok(), expected, "{shape:?} {kind:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(Shape::Raw.accept(&headers).unwrap_err().contains("content-encoding"));
    }
}
