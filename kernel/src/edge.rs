//! A bounded channel between two tasks, counted in envelopes and in bytes (KER-2).

use crate::envelope::Envelope;
use crate::io::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Envelopes that one edge holds at most.
pub const ENVELOPES_MAX: usize = 1_024;
/// Bytes that one edge holds at most, but for one envelope that is larger by itself.
pub const BYTES_MAX: usize = 8 << 20;

struct Level {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// The producer found the edge full and waits for a wake-up.
    starved: AtomicBool,
}

/// The producer's end.
pub struct Sender {
    queue: flume::Sender<(Envelope, usize)>,
    level: Arc<Level>,
    consumer: Arc<dyn Wake>,
}

/// The consumer's end.
pub struct Receiver {
    queue: flume::Receiver<(Envelope, usize)>,
    level: Arc<Level>,
    producer: Arc<dyn Wake>,
}

/// An edge of at most `bytes_max` bytes between a producer and a consumer that can be woken.
pub fn edge(bytes_max: usize, producer: Arc<dyn Wake>, consumer: Arc<dyn Wake>) -> (Sender, Receiver) {
    let (tx, rx) = flume::bounded(ENVELOPES_MAX);
    let level = Arc::new(Level { bytes: AtomicUsize::new(0), bytes_max, starved: AtomicBool::new(false) });
    (Sender { queue: tx, level: level.clone(), consumer }, Receiver { queue: rx, level, producer })
}

impl Sender {
    /// Puts an envelope in and wakes the consumer. Gives it back when the edge is full; the
    /// producer is then woken as soon as there is room. An edge whose consumer is gone stays full:
    /// whoever took the consumer away also ends the producer.
    pub fn send(&self, envelope: Envelope) -> Result<(), Envelope> {
        let bytes = match &envelope {
            Envelope::Data(data) => data.bytes(),
            Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => 0,
        };
        if self.full(bytes) {
            // The consumer may empty the edge between the look and the flag: look again after it.
            self.level.starved.store(true, Ordering::SeqCst);
            if self.full(bytes) {
                return Err(envelope);
            }
            self.level.starved.store(false, Ordering::SeqCst);
        }
        self.level.bytes.fetch_add(bytes, Ordering::SeqCst);
        match self.queue.try_send((envelope, bytes)) {
            Ok(()) => {
                self.consumer.wake();
                Ok(())
            }
            Err(flume::TrySendError::Full((envelope, _)) | flume::TrySendError::Disconnected((envelope, _))) => {
                self.level.bytes.fetch_sub(bytes, Ordering::SeqCst);
                Err(envelope)
            }
        }
    }

    fn full(&self, bytes: usize) -> bool {
        let held = self.level.bytes.load(Ordering::SeqCst);
        self.queue.is_disconnected() || self.queue.is_full() || (bytes > 0 && held > 0 && held + bytes > self.level.bytes_max)
    }
}

impl Receiver {
    /// Takes the oldest envelope, if there is one, and wakes a producer that waits for room.
    pub fn receive(&self) -> Option<Envelope> {
        let (envelope, bytes) = self.queue.try_recv().ok()?;
        self.level.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.level.starved.swap(false, Ordering::SeqCst) {
            self.producer.wake();
        }
        Some(envelope)
    }
}

#[cfg(test)]
mod tests;
