//! Errors and notices as messages, so that psql draws its caret and prints detail and hint.

use super::message;
use super::wire::Writer;
use crate::error::Error;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};

/// Whether the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    /// The connection ends.
    Fatal,
}

/// Writes an ErrorResponse.
pub(super) fn write(writer: &mut Writer, severity: Severity, error: &Error) -> Result<(), Error> {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let mut fields = fields(severity, error.sqlstate, &error.message);
    let position = error.position.map(|at| at.to_string());
    for (letter, text) in [(b'D', &error.detail), (b'H', &error.hint), (b'P', &position)] {
        fields.extend(text.clone().map(|text| (letter, message::text(text))));
    }
    writer.put(&ErrorResponse::new(fields))
}

/// Writes a NoticeResponse of severity NOTICE.
pub(super) fn notice(writer: &mut Writer, text: &str) -> Result<(), Error> {
    writer.put(&NoticeResponse::new(fields("NOTICE", "00000", text)))
}

/// Writes a NoticeResponse of severity WARNING.
pub(super) fn warning(writer: &mut Writer, sqlstate: &str, text: &str) -> Result<(), Error> {
    writer.put(&NoticeResponse::new(fields("WARNING", sqlstate, text)))
}

/// What each of them has: the severity in the client's and in no language, the state, the text.
fn fields(severity: &str, sqlstate: &str, text: &str) -> Vec<(u8, String)> {
    let field = |letter, text: &str| (letter, message::text(text.to_owned()));
    vec![field(b'S', severity), field(b'V', severity), field(b'C', sqlstate), field(b'M', text)]
}
