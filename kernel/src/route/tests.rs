//! Routing over real edges.

use super::Output;
use crate::edge::{Receiver, edge};
use crate::envelope::{BATCH_ROWS, Data, Envelope};
use crate::io::Wake;
use crate::origin::Origins;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use std::sync::Arc;
use weir_planner::keygroup;
use weir_planner::plan::{Routing, key_group_owner};

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

fn output(routing: &Routing, max_parallelism: u32, consumers: usize, bytes_max: usize) -> (Output, Vec<Receiver>) {
    let (senders, receivers) = (0..consumers).map(|_| edge(bytes_max, Arc::new(NoWake), Arc::new(NoWake))).unzip();
    (Output::new(routing, vec![0], max_parallelism, senders), receivers)
}

fn data(keys: Vec<Option<i64>>, stamped: bool) -> Data {
    let times = Int64Array::from_iter_values(0..keys.len() as i64);
    let stamps = stamped.then(|| Int64Array::from_iter_values((0..keys.len() as i64).map(|i| i + 5)));
    let rows = RecordBatch::try_from_iter_with_nullable([("k", Arc::new(Int64Array::from(keys)) as ArrayRef, true)]).unwrap();
    Data { rows, times, stamps, origins: Origins::Unknown }
}

/// Rows (key, time, stamp) and the number of marks that came before the edge was empty.
fn drained(receiver: &Receiver) -> (Vec<(Option<i64>, i64, Option<i64>)>, usize) {
    let (mut rows, mut marks) = (Vec::new(), 0);
    while let Some(envelope) = receiver.receive() {
        let Envelope::Data(data) = envelope else {
            marks += 1;
            continue;
        };
        assert_eq!(marks, 0, "rows before the mark stay before it");
        let keys = data.rows.column(0).as_primitive::<Int64Type>();
        for row in 0..data.len() {
            let key = keys.is_valid(row).then(|| keys.value(row));
            rows.push((key, data.times.value(row), data.stamps.as_ref().map(|stamps| stamps.value(row))));
        }
    }
    (rows, marks)
}

/// PLAN-3: each row goes to the owner of its key group, with its time and stamp, order kept.
#[test]
fn keyed_rows_go_to_their_owner() {
    for (max_parallelism, consumers) in [(128, 3), (100, 7), (5, 5), (128, 1)] {
        let routing = Routing::Partitioned(vec!["k".to_owned()]);
        let (mut output, receivers) = output(&routing, max_parallelism, consumers, usize::MAX);
        let keys: Vec<Option<i64>> = (0..500).map(|i| (i % 9 != 0).then_some(i % 61)).collect();
        output.accept(Envelope::Data(data(keys.clone(), true))).unwrap();
        output.accept(Envelope::Watermark(3)).unwrap();
        assert!(output.flush());
        let mut expected: Vec<Vec<(Option<i64>, i64, Option<i64>)>> = vec![Vec::new(); consumers];
        for (row, key) in keys.iter().enumerate() {
            let mut encoded = Vec::new();
            match key {
                None => keygroup::put_null(&mut encoded),
                Some(key) => keygroup::put_integer(&mut encoded, *key),
            }
            let group = keygroup::group(keygroup::hash(&encoded), max_parallelism).get();
            let owner = key_group_owner(max_parallelism, consumers as u32, group);
            expected[owner as usize].push((*key, row as i64, Some(row as i64 + 5)));
        }
        for (receiver, expected) in receivers.iter().zip(expected) {
            assert_eq!(drained(receiver), (expected, 1));
        }
    }
}

/// KER-3: small pieces are gathered until they are worth sending, or until a mark passes or
/// nothing more comes.
#[test]
fn small_pieces_are_gathered() {
    let (mut output, receivers) = output(&Routing::Forward, 128, 1, usize::MAX);
    let piece = || Envelope::Data(data((0..100).map(Some).collect(), false));
    for _ in 0..BATCH_ROWS / 100 {
        output.accept(piece()).unwrap();
    }
    assert!(receivers[0].receive().is_none());
    output.accept(piece()).unwrap();
    let Some(Envelope::Data(data)) = receivers[0].receive() else { panic!("a batch") };
    assert_eq!(data.len(), (BATCH_ROWS / 100 + 1) * 100);
    output.accept(piece()).unwrap();
    assert!(output.settle().unwrap());
    assert_eq!(drained(&receivers[0]).0.len(), 100);
    assert!(!output.settle().unwrap());
}

/// A piece without stamps gathered with one that has them gets none that judge.
#[test]
fn gathered_stamps_fit_their_rows() {
    let (mut output, receivers) = output(&Routing::Forward, 128, 1, usize::MAX);
    output.accept(Envelope::Data(data(vec![Some(1)], false))).unwrap();
    output.accept(Envelope::Data(data(vec![Some(2)], true))).unwrap();
    output.accept(Envelope::Idle).unwrap();
    assert_eq!(drained(&receivers[0]).0, [(Some(1), 0, Some(0)), (Some(2), 0, Some(5))]);
}

#[test]
fn broadcast_and_round_robin() {
    let (mut all, receivers) = output(&Routing::Broadcast, 128, 3, usize::MAX);
    all.accept(Envelope::Data(data(vec![Some(1), None], false))).unwrap();
    all.accept(Envelope::End).unwrap();
    for receiver in &receivers {
        let (rows, marks) = drained(receiver);
        assert_eq!((rows.len(), marks), (2, 1));
    }
    let (mut turn, receivers) = output(&Routing::RoundRobin, 128, 2, usize::MAX);
    for _ in 0..4 {
        turn.accept(Envelope::Data(data(vec![Some(1)], false))).unwrap();
    }
    turn.accept(Envelope::Active).unwrap();
    assert_eq!(receivers.iter().map(|receiver| drained(receiver).0.len()).collect::<Vec<_>>(), [2, 2]);
}

/// KER-4: a full edge holds the rest, in order, until there is room.
#[test]
fn a_full_edge_holds_the_rest() {
    let (mut output, receivers) = output(&Routing::Forward, 128, 1, 1);
    output.accept(Envelope::Data(data((0..5_000).map(Some).collect(), false))).unwrap();
    assert!(output.flush());
    output.accept(Envelope::Data(data((0..5_000).map(Some).collect(), false))).unwrap();
    assert!(!output.flush());
    assert!(matches!(receivers[0].receive(), Some(Envelope::Data(_))));
    assert!(output.flush());
    assert_eq!(drained(&receivers[0]).0.len(), 5_000);
}
