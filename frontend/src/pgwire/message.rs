//! What clients send, decoded to pgwire's messages with every length checked: foreign bytes never
//! panic, as they would in the crate's own decoders (docs/decision/003). And the one message to
//! clients that is written by hand, a row; all others are encoded by the crate.

use crate::error::{Error, sqlstate};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::copy::{MESSAGE_TYPE_BYTE_COPY_DATA, MESSAGE_TYPE_BYTE_COPY_DONE, MESSAGE_TYPE_BYTE_COPY_FAIL};
use pgwire::messages::data::MESSAGE_TYPE_BYTE_DATA_ROW;
use pgwire::messages::extendedquery::{
    Bind, Close, Describe, Execute, MESSAGE_TYPE_BYTE_BIND, MESSAGE_TYPE_BYTE_CLOSE, MESSAGE_TYPE_BYTE_DESCRIBE, MESSAGE_TYPE_BYTE_EXECUTE,
    MESSAGE_TYPE_BYTE_FLUSH, MESSAGE_TYPE_BYTE_PARSE, MESSAGE_TYPE_BYTE_SYNC, Parse,
};
use pgwire::messages::simplequery::{MESSAGE_TYPE_BYTE_QUERY, Query};
use pgwire::messages::startup::{GssEncRequest, SecretKey, SslRequest, Startup};
use pgwire::messages::terminate::MESSAGE_TYPE_BYTE_TERMINATE;

/// Longest first message of a connection.
pub(super) const STARTUP_BYTES_MAX: usize = 10_000;
/// Longest message that is read into memory; a longer one is skipped and answered by an error.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Longest text of a query.
pub(super) const QUERY_BYTES_MAX: usize = 4 << 20;
/// A frame that claims to be longer than this is not skipped: the connection ends.
pub(super) const SKIP_BYTES_MAX: usize = 256 << 20;

/// The crate keeps this number to itself.
const CANCEL_REQUEST: i32 = 80_877_102;
/// Lengths that the key of a cancel request may have; ours have 4.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 4..=256;

/// SQLSTATE of a message that does not follow the protocol.
pub(super) const PROTOCOL_VIOLATION: &str = "08P01";

/// First message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Asks for encryption.
    Encrypt,
    /// Asks to cancel what another connection runs.
    Cancel(CancelRequest),
    /// Starts a session. Parameters of another major version than 3 are not read.
    Startup(Startup),
}

/// A message of a running session. Not the crate's `PgWireFrontendMessage`: that one also has what
/// cannot come here, and a match would have to do something about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frontend {
    Query(Query),
    Parse(Parse),
    Bind(Bind),
    Describe(Describe),
    Execute(Execute),
    Close(Close),
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
        SslRequest::BODY_MAGIC_NUMBER | GssEncRequest::BODY_MAGIC_NUMBER => Ok(Some(Opening::Encrypt)),
        CANCEL_REQUEST => {
            let process_id = body.i32()?;
            if !SECRET_BYTES.contains(&body.0.len()) {
                return Err(violation("a cancel request has no key"));
            }
            Ok(Some(Opening::Cancel(CancelRequest::new(process_id, SecretKey::Bytes(body.0)))))
        }
        version => {
            let mut startup = Startup::new();
            (startup.protocol_number_major, startup.protocol_number_minor) = ((version >> 16) as u16, version as u16);
            if startup.protocol_number_major == Startup::PG_PROTOCOL_LATEST {
                while let Some(name) = body.name()? {
                    startup.parameters.insert(name, body.text()?);
                }
            }
            Ok(Some(Opening::Startup(startup)))
        }
    }
}

impl Frame {
    /// Whether the protocol has such a message at all.
    pub fn is_known(tag: u8) -> bool {
        let others = [
            MESSAGE_TYPE_BYTE_QUERY, MESSAGE_TYPE_BYTE_SYNC, MESSAGE_TYPE_BYTE_TERMINATE, MESSAGE_TYPE_BYTE_COPY_DATA,
            MESSAGE_TYPE_BYTE_COPY_DONE, MESSAGE_TYPE_BYTE_COPY_FAIL,
        ];
        Self::waits_for_sync(tag) || others.contains(&tag)
    }

    /// Whether an error in this message is answered at once or keeps quiet until Sync.
    pub fn waits_for_sync(tag: u8) -> bool {
        let extended = [
            MESSAGE_TYPE_BYTE_PARSE, MESSAGE_TYPE_BYTE_BIND, MESSAGE_TYPE_BYTE_DESCRIBE, MESSAGE_TYPE_BYTE_EXECUTE,
            MESSAGE_TYPE_BYTE_CLOSE, MESSAGE_TYPE_BYTE_FLUSH,
        ];
        extended.contains(&tag)
    }

    /// Decodes the body.
    ///
    /// Errors: `08P01` for what is no message, `22021` for text that is not UTF-8, `54000` for a
    /// query that is too long.
    pub fn decode(self) -> Result<Frontend, Error> {
        let mut body = Reader(self.body);
        let message = match self.tag {
            MESSAGE_TYPE_BYTE_QUERY => Frontend::Query(Query::new(body.query()?)),
            MESSAGE_TYPE_BYTE_PARSE => {
                let (name, query) = (body.name()?, body.query()?);
                let types = (0..body.count()?).map(|_| body.i32().map(|oid| oid as u32)).collect::<Result<_, _>>()?;
                Frontend::Parse(Parse::new(name, query, types))
            }
            MESSAGE_TYPE_BYTE_BIND => {
                let (portal, statement) = (body.name()?, body.name()?);
                let formats = (0..body.count()?).map(|_| body.i16()).collect::<Result<_, _>>()?;
                let values = (0..body.count()?).map(|_| body.value()).collect::<Result<_, _>>()?;
                let result_formats = (0..body.count()?).map(|_| body.i16()).collect::<Result<_, _>>()?;
                Frontend::Bind(Bind::new(portal, statement, formats, values, result_formats))
            }
            MESSAGE_TYPE_BYTE_DESCRIBE => Frontend::Describe(Describe::new(body.byte()?, body.name()?)),
            MESSAGE_TYPE_BYTE_CLOSE => Frontend::Close(Close::new(body.byte()?, body.name()?)),
            MESSAGE_TYPE_BYTE_EXECUTE => Frontend::Execute(Execute::new(body.name()?, body.i32()?)),
            MESSAGE_TYPE_BYTE_SYNC => Frontend::Sync,
            MESSAGE_TYPE_BYTE_FLUSH => Frontend::Flush,
            MESSAGE_TYPE_BYTE_TERMINATE => Frontend::Terminate,
            MESSAGE_TYPE_BYTE_COPY_DATA | MESSAGE_TYPE_BYTE_COPY_DONE | MESSAGE_TYPE_BYTE_COPY_FAIL => return Ok(Frontend::CopyInput),
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

    fn byte(&mut self) -> Result<u8, Error> {
        self.take().map(u8::from_be_bytes)
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

    /// A name; `None` for the empty one, as in the crate.
    fn name(&mut self) -> Result<Option<String>, Error> {
        self.text().map(|name| (!name.is_empty()).then_some(name))
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
}

/// The answer to a message that is too long to be held.
pub(super) fn too_long(bytes: usize) -> Error {
    Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a message of {bytes} bytes is too long")).with_hint(format!(
        "a query may have {} MiB, a message with its parameters {} MiB",
        QUERY_BYTES_MAX >> 20,
        MESSAGE_BYTES_MAX >> 20
    ))
}

/// A text as the wire can carry it: a NUL would end it early and shift what follows.
pub(super) fn text(mut text: String) -> String {
    text.retain(|c| c != '\0');
    text
}

/// Writes a DataRow: `write` puts each value with its length. The crate's DataRow owns its bytes,
/// which would copy every row once more; this one is written where it is sent from.
///
/// Errors: `54000` for a row that no message can hold; nothing is written then.
pub(super) fn data_row(out: &mut BytesMut, columns: usize, write: impl FnOnce(&mut BytesMut)) -> Result<(), Error> {
    let start = out.len();
    out.put_u8(MESSAGE_TYPE_BYTE_DATA_ROW);
    let at = out.len();
    out.put_i32(0);
    // As many as the description has, which is checked (value::check_width).
    out.put_u16(columns as u16);
    write(out);
    if let (Ok(length), Some(place)) = (i32::try_from(out.len() - at), out.get_mut(at..at + 4)) {
        place.copy_from_slice(&length.to_be_bytes());
        return Ok(());
    }
    out.truncate(start);
    Err(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a row is longer than 2 GiB").with_hint("ask for fewer columns"))
}
