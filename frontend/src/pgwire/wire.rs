//! The two directions of one connection, with bounded buffers.

use super::message::{self, Frame, Framed, Opening};
use crate::error::{Error, sqlstate};
use bytes::{Buf, BytesMut};
use pgwire::messages::Message;
use socket2::{SockRef, TcpKeepalive};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Bytes that are read ahead while a statement runs; past it the client waits.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Written bytes that are held back until they are sent.
pub(super) const HELD_BYTES_MAX: usize = 64 << 10;

/// After so long without a byte the system asks whether the client is still there.
const QUIET: Duration = Duration::from_secs(60);

/// Why reading ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client is gone.
    Gone,
    /// The client does not speak the protocol: say this and close.
    Broken(Error),
}

/// What cannot be answered ends the connection.
impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Broken(error)
    }
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> End {
        End::Gone
    }
}

/// What came from the client.
#[derive(Debug)]
pub(super) enum Incoming {
    Frame(Frame),
    /// A message that was too long and has been skipped.
    TooLong {
        tag: u8,
        bytes: usize,
    },
}

/// From the client.
pub(super) struct Reader {
    half: OwnedReadHalf,
    input: BytesMut,
}

/// To the client.
pub(super) struct Writer {
    half: OwnedWriteHalf,
    /// Messages that wait to be sent.
    pub out: BytesMut,
}

/// Sets what a session wants of its socket. One that takes no settings serves as it is.
pub(super) fn tune(stream: &TcpStream) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    // A client that vanished must not keep one of the places for good.
    let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET));
}

/// Splits a connection.
pub(super) fn split(stream: TcpStream) -> (Reader, Writer) {
    tune(&stream);
    let (read, write) = stream.into_split();
    (Reader { half: read, input: BytesMut::new() }, Writer { half: write, out: BytesMut::new() })
}

impl Reader {
    /// The first message of a connection.
    ///
    /// Cancel: safe to drop.
    pub async fn opening(&mut self) -> Result<Opening, End> {
        loop {
            if let Some(opening) = message::opening(&mut self.input).map_err(End::Broken)? {
                return Ok(opening);
            }
            self.fill().await?;
        }
    }

    /// The next message.
    ///
    /// Cancel: safe to drop, but in the middle of a message that is too long: then close.
    pub async fn next(&mut self) -> Result<Incoming, End> {
        loop {
            match message::frame(&mut self.input).map_err(End::Broken)? {
                Framed::Frame(frame) => return Ok(Incoming::Frame(frame)),
                Framed::More => self.fill().await?,
                Framed::TooLong { tag, bytes } => {
                    self.skip(bytes).await?;
                    return Ok(Incoming::TooLong { tag, bytes });
                }
            }
        }
    }

    /// Whether a whole message waits already.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    /// Ends when the client is gone; reads ahead a little on the way.
    ///
    /// Cancel: safe to drop.
    pub async fn gone(&mut self) {
        while self.input.len() < AHEAD_BYTES_MAX {
            if self.fill().await.is_err() {
                return;
            }
        }
        // A client that sends this much ahead is there; it is seen again when the buffer is read.
        std::future::pending::<()>().await;
    }

    async fn fill(&mut self) -> Result<(), End> {
        if self.half.read_buf(&mut self.input).await? == 0 { Err(End::Gone) } else { Ok(()) }
    }

    async fn skip(&mut self, mut bytes: usize) -> Result<(), End> {
        loop {
            let here = bytes.min(self.input.len());
            self.input.advance(here);
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }
}

impl Writer {
    /// Writes one message.
    ///
    /// Errors: `54000` for one that is longer than its kind may be; nothing is written then.
    pub fn put(&mut self, message: &impl Message) -> Result<(), Error> {
        let start = self.out.len();
        message.encode(&mut self.out).map_err(|error| {
            // The crate has written its letter already.
            self.out.truncate(start);
            Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("an answer cannot be sent: {error}"))
        })
    }

    /// Sends all that waits.
    ///
    /// Cancel: safe to drop; what was sent has left the buffer, the rest goes out next time.
    pub async fn flush(&mut self) -> Result<(), End> {
        while !self.out.is_empty() {
            if self.half.write_buf(&mut self.out).await? == 0 {
                return Err(End::Gone);
            }
        }
        if self.out.capacity() > 4 * HELD_BYTES_MAX {
            // One long row must not keep its memory for the life of the session.
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Sends what waits when it is much.
    pub async fn relieve(&mut self) -> Result<(), End> {
        if self.out.len() >= HELD_BYTES_MAX { self.flush().await } else { Ok(()) }
    }
}
