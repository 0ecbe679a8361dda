//! Places in a text: sqlparser's lines and columns to character offsets and to slices.

use sqlparser::tokenizer::{Location, Span};
use std::sync::Arc;

/// Knows where each line begins, in characters and in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    text: Arc<str>,
    /// Character and byte offset of each line's first character, from 0.
    lines: Vec<(usize, usize)>,
}

impl Places {
    pub fn new(text: &str) -> Places {
        let mut lines = vec![(0, 0)];
        for (characters, (bytes, c)) in text.char_indices().enumerate() {
            if c == '\n' {
                lines.push((characters + 1, bytes + 1));
            }
        }
        Places { text: text.into(), lines }
    }

    /// The whole text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Character offset from 1 of a location; `None` for one that says nothing.
    pub fn offset(&self, location: Location) -> Option<usize> {
        let line = usize::try_from(location.line).ok()?.checked_sub(1)?;
        let column = usize::try_from(location.column).ok()?.max(1);
        self.lines.get(line).map(|(characters, _)| characters + column)
    }

    /// Character offset from 1 of a span's start.
    pub fn start(&self, span: Span) -> Option<usize> {
        self.offset(span.start)
    }

    /// Byte offset of a location; the text's end when it lies outside.
    pub fn byte(&self, location: Location) -> usize {
        let line = usize::try_from(location.line).unwrap_or(0).saturating_sub(1);
        let column = usize::try_from(location.column).unwrap_or(0).saturating_sub(1);
        let Some(&(_, start)) = self.lines.get(line) else { return self.text.len() };
        let rest = self.text.get(start..).unwrap_or_default();
        rest.char_indices().nth(column).map_or(self.text.len(), |(bytes, _)| start + bytes)
    }

    /// The text between two locations.
    pub fn slice(&self, from: Location, to: Location) -> &str {
        self.text.get(self.byte(from)..self.byte(to)).unwrap_or_default()
    }

    /// Number of characters in all.
    pub fn characters(&self) -> usize {
        self.text.chars().count()
    }
}
