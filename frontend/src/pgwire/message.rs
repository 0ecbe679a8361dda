//! Frames of the Postgres protocol, version 3: what clients send, decoded with every length
//! checked, and what the server sends. Foreign bytes never panic (docs/decision/003).

use crate::error::{Error, sqlstate};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Longest first message of a connection.
pub(super) const STARTUP_BYTES_MAX: usize = 10_000;
/// Longest message that is read into memory; a longer one is skipped and answered by an error.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Longest text of a query.
pub(super) const QUERY_BYTES_MAX: usize = 4 << 20;
/// A frame that claims to be longer than this is not skipped: the connection ends.
pub(super) const SKIP_BYTES_MAX: usize = 256 << 20;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// SQLSTATE of a message that does not follow the protocol.
pub(super) const PROTOCOL_VIOLATION: &str = "08P01";

/// First message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Asks for encryption.
    Encrypt,
    /// Asks to cancel what another connection runs.
    Cancel { process_id: i32, secret: i32 },
    /// Starts a session.
    Startup { major: u16, minor: u16, parameters: Vec<(String, String)> },
}

/// What a named message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Statement,
    Portal,
}

/// A message of a running session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frontend {
    Query(String),
    Parse { name: String, query: String, types: Vec<u32> },
    Bind { portal: String, statement: String, formats: Vec<i16>, values: Vec<Option<Bytes>>, result_formats: Vec<i16> },
    Describe { target: Target, name: String },
    Execute { portal: String, rows_max: i32 },
    Close { target: Target, name: String },
    Sync,
    Flush,
    Terminate,
    /// Rows or their end for a COPY that failed before it began.
    CopyInput,
}

/// A frame whose body has not been looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub tag: u8,
    pub body: Bytes,
}

/// What the bytes read so far hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// The frame is not complete.
    More,
    /// One frame, taken out of the buffer.
    Frame(Frame),
    /// A frame too long to be held; so many bytes of body are to be skipped.
    TooLong { tag: u8, bytes: usize },
}

/// Takes the next frame out of `input`.
///
/// Errors: a length that no frame can have.
pub(super) fn frame(input: &mut BytesMut) -> Result<Framed, Error> {
    let Some((header, _)) = input.split_first_chunk::<5>() else { return Ok(Framed::More) };
    let [tag, length @ ..] = *header;
    let Some(bytes) = usize::try_from(i32::from_be_bytes(length)).ok().and_then(|length| length.checked_sub(4)) else {
        return Err(violation("a message has an impossible length"));
    };
    if bytes > SKIP_BYTES_MAX {
        return Err(violation("a message is far too long"));
    }
    if bytes > MESSAGE_BYTES_MAX {
        input.advance(5);
        return Ok(Framed::TooLong { tag, bytes });
    }
    if input.len() < 5 + bytes {
        return Ok(Framed::More);
    }
    input.advance(5);
    Ok(Framed::Frame(Frame { tag, body: input.split_to(bytes).freeze() }))
}

/// Takes the first message of a connection out of `input`; `None` when it is not complete.
///
/// Errors: one that is no such message.
pub(super) fn opening(input: &mut BytesMut) -> Result<Option<Opening>, Error> {
    let Some((length, _)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let bytes = match usize::try_from(length) {
        Ok(bytes) if (8..=STARTUP_BYTES_MAX).contains(&bytes) => bytes,
        _ => return Err(violation("the first message is no Postgres startup message")),
    };
    if input.len() < bytes {
        return Ok(None);
    }
    let mut body = Reader(input.split_to(bytes).freeze().slice(4..));
    match body.i32()? {
        SSL_REQUEST | GSS_REQUEST => Ok(Some(Opening::Encrypt)),
        CANCEL_REQUEST => Ok(Some(Opening::Cancel { process_id: body.i32()?, secret: body.i32()? })),
        version => {
            let (major, minor) = ((version >> 16) as u16, version as u16);
            let mut parameters = Vec::new();
            if major == 3 {
                loop {
                    let name = body.text()?;
                    if name.is_empty() {
                        break;
                    }
                    parameters.push((name, body.text()?));
                }
            }
            Ok(Some(Opening::Startup { major, minor, parameters }))
        }
    }
}

impl Frame {
    /// Whether the protocol has such a message at all.
    pub fn is_known(tag: u8) -> bool {
        matches!(tag, b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'S' | b'H' | b'X' | b'd' | b'c' | b'f')
    }

    /// Whether an error in this message is answered at once or keeps quiet until Sync.
    pub fn waits_for_sync(tag: u8) -> bool {
        matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'H')
    }

    /// Decodes the body.
    ///
    /// Errors: `08P01` for what is no message, `22021` for text that is not UTF-8, `54000` for a
    /// query that is too long.
    pub fn decode(self) -> Result<Frontend, Error> {
        let mut body = Reader(self.body);
        let message = match self.tag {
            b'Q' => Frontend::Query(body.query()?),
            b'P' => {
                let (name, query) = (body.text()?, body.query()?);
                let types = (0..body.count()?).map(|_| body.i32().map(|oid| oid as u32)).collect::<Result<_, _>>()?;
                Frontend::Parse { name, query, types }
            }
            b'B' => {
                let (portal, statement) = (body.text()?, body.text()?);
                let formats = (0..body.count()?).map(|_| body.i16()).collect::<Result<_, _>>()?;
                let values = (0..body.count()?).map(|_| body.value()).collect::<Result<_, _>>()?;
                let result_formats = (0..body.count()?).map(|_| body.i16()).collect::<Result<_, _>>()?;
                Frontend::Bind { portal, statement, formats, values, result_formats }
            }
            b'D' => Frontend::Describe { target: body.target()?, name: body.text()? },
            b'C' => Frontend::Close { target: body.target()?, name: body.text()? },
            b'E' => Frontend::Execute { portal: body.text()?, rows_max: body.i32()? },
            b'S' => Frontend::Sync,
            b'H' => Frontend::Flush,
            b'X' => Frontend::Terminate,
            b'd' | b'c' | b'f' => return Ok(Frontend::CopyInput),
            other => return Err(violation(&format!("message type {other} is not known"))),
        };
        if body.0.is_empty() { Ok(message) } else { Err(violation("a message is longer than what it holds")) }
    }
}

/// An error for bytes that are no protocol.
pub(super) fn violation(text: &str) -> Error {
    Error::new(PROTOCOL_VIOLATION, text)
}

/// Reads a body; every step checks that the bytes are there.
struct Reader(Bytes);

impl Reader {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((bytes, _)) = self.0.split_first_chunk::<N>() else { return Err(violation("a message ends too early")) };
        let bytes = *bytes;
        self.0.advance(N);
        Ok(bytes)
    }

    fn i16(&mut self) -> Result<i16, Error> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, Error> {
        self.take().map(i32::from_be_bytes)
    }

    fn count(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_be_bytes)
    }

    fn text(&mut self) -> Result<String, Error> {
        let Some(end) = self.0.iter().position(|byte| *byte == 0) else { return Err(violation("a text in a message has no end")) };
        let text = self.0.split_to(end);
        self.0.advance(1);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Error::new("22021", "a text in a message is not UTF-8").with_hint("SET client_encoding is UTF8 only")),
        }
    }

    fn query(&mut self) -> Result<String, Error> {
        let text = self.text()?;
        if text.len() <= QUERY_BYTES_MAX { Ok(text) } else { Err(too_long(text.len())) }
    }

    fn value(&mut self) -> Result<Option<Bytes>, Error> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        match usize::try_from(length) {
            Ok(length) if length <= self.0.len() => Ok(Some(self.0.split_to(length))),
            _ => Err(violation("a parameter is longer than its message")),
        }
    }

    fn target(&mut self) -> Result<Target, Error> {
        match self.take::<1>()? {
            [b'S'] => Ok(Target::Statement),
            [b'P'] => Ok(Target::Portal),
            [other] => Err(violation(&format!("'{}' is neither a statement nor a portal", char::from(other).escape_default()))),
        }
    }
}

/// The answer to a message that is too long to be held.
pub(super) fn too_long(bytes: usize) -> Error {
    Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a message of {bytes} bytes is too long"))
        .with_hint(format!("a query may have {} MiB, a message with its parameters {} MiB", QUERY_BYTES_MAX >> 20, MESSAGE_BYTES_MAX >> 20))
}

/// How the session stands, for ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    None,
    Open,
    Failed,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnHeader {
    pub name: String,
    pub oid: u32,
    pub size: i16,
    pub modifier: i32,
    pub binary: bool,
}

/// Writes one message: the body by `write`, the length by itself.
fn message(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let at = out.len();
    out.put_i32(0);
    write(out);
    let length = i32::try_from(out.len() - at).unwrap_or(i32::MAX);
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

fn put_text(out: &mut BytesMut, text: &str) {
    // A NUL would end the text early and shift what follows.
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.put_u8(0);
}

pub(super) fn authentication_ok(out: &mut BytesMut) {
    message(out, b'R', |out| out.put_i32(0));
}

pub(super) fn negotiate(out: &mut BytesMut, options: &[&str]) {
    message(out, b'v', |out| {
        out.put_i32(0);
        out.put_i32(i32::try_from(options.len()).unwrap_or(0));
        options.iter().for_each(|option| put_text(out, option));
    });
}

pub(super) fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

pub(super) fn backend_key(out: &mut BytesMut, process_id: i32, secret: i32) {
    message(out, b'K', |out| {
        out.put_i32(process_id);
        out.put_i32(secret);
    });
}

pub(super) fn ready(out: &mut BytesMut, transaction: Transaction) {
    let status = match transaction {
        Transaction::None => b'I',
        Transaction::Open => b'T',
        Transaction::Failed => b'E',
    };
    message(out, b'Z', |out| out.put_u8(status));
}

pub(super) fn command_complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| put_text(out, tag));
}

pub(super) fn row_description(out: &mut BytesMut, columns: &[ColumnHeader]) {
    message(out, b'T', |out| {
        out.put_i16(i16::try_from(columns.len()).unwrap_or(i16::MAX));
        for column in columns {
            put_text(out, &column.name);
            out.put_i32(0);
            out.put_i16(0);
            out.put_u32(column.oid);
            out.put_i16(column.size);
            out.put_i32(column.modifier);
            out.put_i16(i16::from(column.binary));
        }
    });
}

pub(super) fn parameter_description(out: &mut BytesMut, oids: &[u32]) {
    message(out, b't', |out| {
        out.put_i16(i16::try_from(oids.len()).unwrap_or(i16::MAX));
        oids.iter().for_each(|oid| out.put_u32(*oid));
    });
}

/// A row: `write` puts each value with its length.
pub(super) fn data_row(out: &mut BytesMut, columns: usize, write: impl FnOnce(&mut BytesMut)) {
    message(out, b'D', |out| {
        out.put_i16(i16::try_from(columns).unwrap_or(i16::MAX));
        write(out);
    });
}

pub(super) fn copy_out(out: &mut BytesMut, columns: usize) {
    message(out, b'H', |out| {
        out.put_u8(0);
        out.put_i16(i16::try_from(columns).unwrap_or(i16::MAX));
        (0..columns).for_each(|_| out.put_i16(0));
    });
}

pub(super) fn copy_data(out: &mut BytesMut, line: &[u8]) {
    message(out, b'd', |out| out.put_slice(line));
}

/// Messages without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bare {
    ParseComplete,
    BindComplete,
    CloseComplete,
    NoData,
    EmptyQuery,
    PortalSuspended,
    CopyDone,
}

pub(super) fn bare(out: &mut BytesMut, which: Bare) {
    let tag = match which {
        Bare::ParseComplete => b'1',
        Bare::BindComplete => b'2',
        Bare::CloseComplete => b'3',
        Bare::NoData => b'n',
        Bare::EmptyQuery => b'I',
        Bare::PortalSuspended => b's',
        Bare::CopyDone => b'c',
    };
    message(out, tag, |_| ());
}

/// An error or notice: field letters and texts.
pub(super) fn report(out: &mut BytesMut, tag: u8, fields: &[(u8, &str)]) {
    message(out, tag, |out| {
        for (letter, text) in fields {
            out.put_u8(*letter);
            put_text(out, text);
        }
        out.put_u8(0);
    });
}
