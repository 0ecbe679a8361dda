//! Faults of a job, and the classes that every error in Weir falls into.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What the receiver of an error should do next. Each door maps a class to SQLSTATE or HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The user's input is wrong: say where and how to mend it; trying again does not help.
    User,
    /// An outside system is away or slow: try again later.
    Retry,
    /// An older attempt or generation spoke: drop it.
    Fenced,
    /// Stored data does not verify: refuse, never guess.
    Corrupt,
    /// Weir itself is at fault.
    Bug,
}

/// Where in the user's text a thing came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Line, starting at 1.
    pub line: u32,
    /// Column in characters, starting at 1.
    pub column: u32,
}

/// One thing that is wrong with a job, with its place and the way out (JOB-4, JOB-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Stable machine-readable code in snake case, such as `unknown_field`.
    pub code: String,
    /// Lower case, no full stop, names the object.
    pub message: String,
    /// Field path in the JobSpec, such as `operators[1].config.keys[0]`; empty for the whole job.
    pub path: String,
    /// Place in the text that was submitted, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What to do about it; empty when there is nothing to add.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Fault {
    /// A fault at `path`, without a place or hint.
    pub fn new(code: &str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Fault { code: code.to_owned(), message: message.into(), path: path.into(), place: None, hint: String::new() }
    }

    /// The same fault with a way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same fault at the place of its path, or of the nearest path around it; one that has a
    /// place keeps it.
    #[must_use]
    pub fn located(mut self, places: &BTreeMap<String, Place>) -> Self {
        let mut path = self.path.as_str();
        let found = loop {
            match places.get(path) {
                Some(place) => break Some(*place),
                None if path.is_empty() => break None,
                None => path = path.rfind(['.', '[']).and_then(|end| path.get(..end)).unwrap_or_default(),
            }
        };
        self.place = self.place.or(found);
        self
    }

    /// The same fault with a place in the user's text.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, " (hint: {})", self.hint)?;
        }
        Ok(())
    }
}

/// Every fault of one job, never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Faults(pub Vec<Fault>);

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Faults(vec![fault])
    }
}
