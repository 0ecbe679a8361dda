//! Bounds and wake-ups of an edge.

use super::{ENVELOPES_MAX, edge};
use crate::envelope::{Data, Envelope};
use crate::io::Wake;
use crate::origin::Origins;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// 16 bytes a row.
fn data(rows: usize) -> Envelope {
    let times = Int64Array::from_value(0, rows);
    let rows = RecordBatch::try_from_iter([("a", Arc::new(times.clone()) as ArrayRef)]).unwrap();
    Envelope::Data(Data { rows, times, stamps: None, origins: Origins::Unknown })
}

/// KER-2: full by bytes; one larger envelope is admitted when empty; marks weigh nothing.
#[test]
fn bounded_by_bytes() {
    let (producer, consumer) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (tx, rx) = edge(100, producer.clone(), consumer.clone());
    assert!(tx.send(data(1_000)).is_ok(), "larger than the bound, but alone");
    assert!(tx.send(data(1)).is_err());
    assert!(tx.send(Envelope::Watermark(1)).is_ok());
    assert_eq!(consumer.0.load(Ordering::SeqCst), 2, "each envelope wakes the consumer");
    assert_eq!(producer.0.load(Ordering::SeqCst), 0);
    assert!(matches!(rx.receive(), Some(Envelope::Data(_))));
    assert_eq!(producer.0.load(Ordering::SeqCst), 1, "there is room again");
    assert!(tx.send(data(3)).is_ok());
    assert!(tx.send(data(3)).is_ok());
    assert!(tx.send(data(3)).is_err(), "144 bytes would be over 100");
    assert!(matches!(rx.receive(), Some(Envelope::Watermark(1))));
    assert!(matches!(rx.receive(), Some(Envelope::Data(_))));
    assert!(matches!(rx.receive(), Some(Envelope::Data(_))));
    assert!(rx.receive().is_none());
    assert_eq!(producer.0.load(Ordering::SeqCst), 2, "woken once, not for each envelope");
}

/// KER-2: full by number of envelopes.
#[test]
fn bounded_by_envelopes() {
    let producer = Arc::new(Count::default());
    let (tx, rx) = edge(usize::MAX, producer.clone(), Arc::new(Count::default()));
    for _ in 0..ENVELOPES_MAX {
        assert!(tx.send(Envelope::Idle).is_ok());
    }
    assert!(tx.send(Envelope::End).is_err());
    assert!(rx.receive().is_some());
    assert_eq!(producer.0.load(Ordering::SeqCst), 1);
    assert!(tx.send(Envelope::End).is_ok());
}

/// A consumer that is gone holds the producer, and loses nothing in silence.
#[test]
fn a_dropped_consumer_is_full() {
    let (tx, rx) = edge(100, Arc::new(Count::default()), Arc::new(Count::default()));
    drop(rx);
    assert!(tx.send(data(1)).is_err());
    assert!(tx.send(Envelope::End).is_err());
}

/// Two threads, a tiny edge: everything arrives in order and nobody sleeps for ever.
#[test]
fn nothing_is_lost_between_threads() {
    struct Unpark(std::sync::OnceLock<std::thread::Thread>);
    impl Wake for Unpark {
        fn wake(&self) {
            if let Some(thread) = self.0.get() {
                thread.unpark();
            }
        }
    }
    let (producer, consumer) = (Arc::new(Unpark(Default::default())), Arc::new(Unpark(Default::default())));
    let (tx, rx) = edge(40, producer.clone(), consumer.clone());
    let reader = std::thread::spawn(move || {
        consumer.0.set(std::thread::current()).unwrap();
        let mut marks = Vec::new();
        while marks.last() != Some(&1_999) {
            match rx.receive() {
                Some(Envelope::Watermark(mark)) => marks.push(mark),
                Some(_) => {}
                // A wake-up before the thread was known would be lost: the edge is looked at again soon.
                None => std::thread::park_timeout(std::time::Duration::from_millis(5)),
            }
        }
        marks
    });
    producer.0.set(std::thread::current()).unwrap();
    for mark in 0..2_000 {
        for mut envelope in [data(2), Envelope::Watermark(mark)] {
            while let Err(back) = tx.send(envelope) {
                envelope = back;
                std::thread::park();
            }
        }
    }
    assert_eq!(reader.join().unwrap(), (0..2_000).collect::<Vec<_>>());
}
