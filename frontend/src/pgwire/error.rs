//! Errors and notices as messages, so that psql draws its caret and prints detail and hint.

use super::message;
use crate::error::Error;
use bytes::BytesMut;

/// Whether the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    /// The connection ends.
    Fatal,
}

/// Writes an ErrorResponse.
pub(super) fn write(out: &mut BytesMut, severity: Severity, error: &Error) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let position = error.position.map(|at| at.to_string());
    let mut fields = vec![(b'S', severity), (b'V', severity), (b'C', error.sqlstate), (b'M', error.message.as_str())];
    fields.extend(error.detail.as_deref().map(|text| (b'D', text)));
    fields.extend(error.hint.as_deref().map(|text| (b'H', text)));
    fields.extend(position.as_deref().map(|text| (b'P', text)));
    message::report(out, b'E', &fields);
}

/// Writes a NoticeResponse of severity NOTICE.
pub(super) fn notice(out: &mut BytesMut, text: &str) {
    message::report(out, b'N', &[(b'S', "NOTICE"), (b'V', "NOTICE"), (b'C', "00000"), (b'M', text)]);
}

/// Writes a NoticeResponse of severity WARNING.
pub(super) fn warning(out: &mut BytesMut, sqlstate: &str, text: &str) {
    message::report(out, b'N', &[(b'S', "WARNING"), (b'V', "WARNING"), (b'C', sqlstate), (b'M', text)]);
}
