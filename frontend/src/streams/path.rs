//! From paths of the compiled JobSpec back to the stream's text: a fault that binding or the checks
//! find is told where the user wrote what it is about (JOB-7).

use std::collections::BTreeMap;
use weir_planner::error::{Fault, Place};

/// Where the parts of a job stand in the text of its stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// Path of the stream in the document.
    prefix: String,
    /// Places by path in the stream.
    places: BTreeMap<String, Place>,
    /// Parts of the JobSpec by path.
    parts: BTreeMap<String, Part>,
}

/// A part of the JobSpec as the stream has it.
#[derive(Clone, Debug)]
struct Part {
    /// Path in the stream.
    path: String,
    /// Whether what is inside has the same names in both.
    open: bool,
    /// Its place, where that is more than the path's.
    place: Option<Place>,
}

impl Paths {
    /// Nothing known but the stream's own path.
    pub fn of(prefix: &str) -> Paths {
        Paths { prefix: prefix.to_owned(), ..Paths::default() }
    }

    /// Notes where a field of the stream stands.
    pub fn place(&mut self, path: &str, place: Option<Place>) {
        if let Some(place) = place {
            self.places.insert(path.to_owned(), place);
        }
    }

    /// A part of the JobSpec whose fields have the names that they have in the stream.
    pub fn open(&mut self, spec: impl Into<String>, path: impl Into<String>) {
        self.parts.insert(spec.into(), Part { path: path.into(), open: true, place: None });
    }

    /// A part of the JobSpec that was made of one thing in the stream.
    pub fn closed(&mut self, spec: impl Into<String>, path: impl Into<String>, place: Option<Place>) {
        self.parts.insert(spec.into(), Part { path: path.into(), open: false, place });
    }

    /// Whether some part of the JobSpec is known by this very path.
    fn part(&self, path: &str) -> Option<(&str, &Part)> {
        ancestors(path).find_map(|known| self.parts.get_key_value(known)).map(|(known, part)| (known.as_str(), part))
    }

    /// The place of a path in the stream, or of the nearest thing around it.
    fn place_of(&self, path: &str) -> Option<Place> {
        ancestors(path).find_map(|known| self.places.get(known)).copied()
    }

    /// A fault in the JobSpec as one in the stream's text.
    pub fn locate(&self, mut fault: Fault) -> Fault {
        let (path, place) = match self.part(&fault.path) {
            Some((known, part)) if part.open => (format!("{}{}", part.path, fault.path.get(known.len()..).unwrap_or_default()), part.place),
            Some((_, part)) => (part.path.clone(), part.place),
            None => (String::new(), None),
        };
        fault.place = fault.place.or(place).or_else(|| self.place_of(&path));
        let joint = if path.is_empty() || self.prefix.is_empty() { "" } else { "." };
        fault.path = format!("{}{joint}{path}", self.prefix);
        fault
    }

    /// Places by path in the JobSpec, for whoever sees only that.
    pub fn places(&self) -> BTreeMap<String, Place> {
        let mut places = BTreeMap::new();
        places.extend(self.place_of("").map(|place| (String::new(), place)));
        for (spec, part) in &self.parts {
            places.extend(part.place.or_else(|| self.place_of(&part.path)).map(|place| (spec.clone(), place)));
            if part.open {
                let within = self.places.iter().filter_map(|(path, place)| {
                    let rest = path.strip_prefix(part.path.as_str()).filter(|rest| rest.starts_with(['.', '[']))?;
                    Some((format!("{spec}{rest}"), *place))
                });
                places.extend(within);
            }
        }
        places
    }
}

/// A path, and the paths of all that is around it, to the root.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let mut next = Some(path);
    std::iter::from_fn(move || {
        let path = next?;
        next = (!path.is_empty()).then(|| path.rfind(['.', '[']).and_then(|end| path.get(..end)).unwrap_or_default());
        Some(path)
    })
}

/// The place of a character of a scalar, counted from 1, in the text that holds it: exact where the
/// scalar is written as it is read, else where the scalar begins.
pub(super) fn within(text: &str, scalar: &str, begins: Place, position: usize) -> Place {
    exact(text, scalar, begins, position).unwrap_or(begins)
}

fn exact(text: &str, scalar: &str, begins: Place, position: usize) -> Option<Place> {
    let offset = position.checked_sub(1)?;
    let before: String = scalar.chars().take(offset).collect();
    if before.chars().count() < offset {
        return None;
    }
    let above = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let read = scalar.split('\n').nth(above)?;
    let row = usize::try_from(begins.line).ok()?.checked_sub(1)?;
    let first = usize::try_from(begins.column).ok()?.checked_sub(1)?;
    let mut lines = text.lines().skip(row);
    let line: Vec<char> = lines.next()?.chars().collect();
    let indent = match line.get(first)? {
        '"' | '\'' if above > 0 => return None,
        '"' | '\'' => first + 1,
        // What is not quoted begins with its own first character, a block too, and every line of a
        // block is indented as its first one.
        _ => first,
    };
    let written: Vec<char> = text.lines().nth(row + above)?.chars().collect();
    let mut rest = written.iter().skip(indent).copied();
    // Lines of a block are written whole as they are read; where lines are folded they are not.
    let same = if above > 0 { rest.eq(read.chars()) } else { read.chars().take(column).all(|c| rest.next() == Some(c)) };
    let place = Place { line: u32::try_from(row + above + 1).ok()?, column: u32::try_from(indent + column + 1).ok()? };
    same.then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u32, column: u32) -> Place {
        Place { line, column }
    }

    /// JOB-7: a character of a query has its place where the text holds the query as it is read.
    #[test]
    fn characters_of_scalars_have_places() {
        let quoted = "a:\n  q: 'SELECT x'";
        assert_eq!(within(quoted, "SELECT x", place(2, 6), 8), place(2, 14));
        let plain = "q: SELECT x";
        assert_eq!(within(plain, "SELECT x", place(1, 4), 8), place(1, 11));
        let block = "q: |\n    SELECT\n      x\nr: 1";
        assert_eq!(within(block, "SELECT\n  x\n", place(2, 5), 10), place(3, 7));
        // Escapes and folded lines move characters: the scalar's own place is what is left.
        let escaped = "q: \"a\\tb x\"";
        assert_eq!(within(escaped, "a\tb x", place(1, 4), 5), place(1, 4));
        assert_eq!(within(escaped, "a\tb x", place(1, 4), 1), place(1, 5));
        let folded = "q: >\n  SELECT\n  x\n";
        assert_eq!(within(folded, "SELECT x\n", place(2, 3), 8), place(2, 3));
        assert_eq!(within(folded, "SELECT x\n", place(2, 3), 4), place(2, 6));
        for position in [0, 1_000] {
            assert_eq!(within(quoted, "SELECT x", place(2, 6), position), place(2, 6));
            assert_eq!(within("", "x", place(7, 7), position), place(7, 7));
        }
    }

    /// What the job calls `sources[0].config.brokers` is `input.brokers` in the stream; what has no
    /// counterpart is told at the nearest thing around it.
    #[test]
    fn paths_lead_back_to_the_stream() {
        let mut paths = Paths::of("streams[2]");
        paths.place("", Some(place(1, 1)));
        paths.place("input", Some(place(2, 3)));
        paths.place("input.brokers[0]", Some(place(3, 9)));
        paths.open("sources[0]", "input");
        paths.open("sources[0].config", "input");
        paths.closed("operators[1].config.filter", "pipeline.processors[0].query", Some(place(5, 5)));
        let located = |path: &str| {
            let fault = paths.locate(Fault::new("code", path, "message"));
            (fault.path, fault.place)
        };
        assert_eq!(located("sources[0].config.brokers[0]"), ("streams[2].input.brokers[0]".to_owned(), Some(place(3, 9))));
        assert_eq!(located("sources[0].codec"), ("streams[2].input.codec".to_owned(), Some(place(2, 3))));
        assert_eq!(located("operators[1].config.filter"), ("streams[2].pipeline.processors[0].query".to_owned(), Some(place(5, 5))));
        assert_eq!(located("edges[0]"), ("streams[2]".to_owned(), Some(place(1, 1))));
        let places = paths.places();
        assert_eq!(places.get("sources[0].config.brokers[0]"), Some(&place(3, 9)));
        assert_eq!(places.get("operators[1].config.filter"), Some(&place(5, 5)));
    }
}
