//! L4: mutated protocol bytes neither hang nor kill the server, and other sessions go on.

use super::double::Server;
use super::protocol::{frame, startup};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sessions of mutated bytes; each has several messages, 10,000 in all.
const SESSIONS: u64 = 1_000;
const MESSAGES: u64 = 10;

/// A small generator of numbers (xorshift): the same seed gives the same bytes.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

fn messages() -> Vec<Vec<u8>> {
    vec![
        frame(b'Q', b"SELECT 1\0"),
        frame(b'Q', b"SELECT * FROM weir.jobs; SELECT 'x'\0"),
        frame(b'P', b"s\0SELECT $1::int\0\0\x01\0\0\0\x17"),
        frame(b'B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"),
        frame(b'D', b"Ss\0"),
        frame(b'D', b"Pp\0"),
        frame(b'E', b"p\0\0\0\0\x01"),
        frame(b'C', b"Ss\0"),
        frame(b'S', b""),
        frame(b'H', b""),
        frame(b'd', b"row\n"),
        frame(b'f', b"why\0"),
        frame(b'p', b"secret\0"),
        frame(b'F', b"\0\0\0\0"),
    ]
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(3) {
        let at = dice.roll(bytes.len().max(1));
        match dice.roll(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), dice.roll(256) as u8),
            2 => {
                let twice = bytes.clone();
                bytes.extend(twice);
            }
            // Lengths are what decoders trust most.
            3 if bytes.len() >= 5 => bytes[1 + dice.roll(4)] = dice.roll(256) as u8,
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = dice.roll(256) as u8;
                }
            }
        }
    }
}

#[tokio::test]
async fn mutated_messages_neither_hang_nor_kill() {
    let server = Server::start().await;
    let steady = server.client().await;
    for seed in 1..=SESSIONS {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = startup();
        // Some sessions begin wrong already.
        if dice.roll(5) == 0 {
            mutate(&mut bytes, &mut dice);
        }
        let kinds = messages();
        for _ in 0..MESSAGES {
            let mut message = kinds[dice.roll(kinds.len())].clone();
            if dice.roll(2) == 0 {
                mutate(&mut message, &mut dice);
            }
            bytes.extend(message);
        }
        let session = async {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            // The server may close first; that is an answer too.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
        };
        tokio::time::timeout(Duration::from_secs(20), session).await.unwrap_or_else(|_| panic!("seed {seed} hangs"));
        if seed % 100 == 0 {
            assert_eq!(steady.query_one("SELECT $1::bigint", &[&(seed as i64)]).await.unwrap().get::<_, i64>(0), seed as i64);
        }
    }
    tokio::time::timeout(Duration::from_secs(20), server.stop()).await.unwrap();
}
