//! Tests of the http source and sink over real sockets.

mod sink;
mod source;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for bytes: a test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A response as a client sees it.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends bytes on a connection of its own and reads one response. `None` when there is none.
pub fn exchange(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).ok()?;
    answer(&mut stream)
}

/// Reads one response.
pub fn answer(stream: &mut TcpStream) -> Option<Answer> {
    let (head, body) = message(stream)?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head, body })
}

/// Reads head and body of a message that tells its length; `None` when the connection ends before.
pub fn message(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some((head.to_ascii_lowercase(), body.to_owned()));
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A POST with its length told.
pub fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
