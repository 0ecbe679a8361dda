//! The log in objects of the state store.

use super::super::object::{ObjectLog, forget};
use super::super::{Found, Frame};
use super::{frame, place};
use crate::checkpoint::store::StateStore;
use crate::connector::probe::RUNTIME;
use crate::error::Error;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::path::Path;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId};

fn open(store: &StateStore, attempt: u64) -> Result<(ObjectLog, Found), Error> {
    ObjectLog::open(None, &place(Path::new("/nowhere"), Some(store.clone()), attempt, None).0, "it-0", RUNTIME.handle())
}

fn all(found: &Found) -> (Vec<Frame>, usize) {
    let read: Vec<_> = found.parts.iter().map(|part| part.read().unwrap()).collect();
    let damaged = read.iter().filter(|contents| contents.damage.is_some()).count();
    (read.into_iter().flat_map(|contents| contents.frames).collect(), damaged)
}

fn objects(store: &StateStore) -> Vec<(String, u64)> {
    let mut listed = RUNTIME.block_on(store.list("jobs/j/wal/it-0")).unwrap();
    listed.sort();
    listed
}

/// WAL-1, D1: entries are found by the next attempt, on whatever machine, in order; passed ones are deleted, whoever wrote them.
#[test]
fn what_was_put_is_found_anywhere() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    let (mut log, found) = open(&store, 1).unwrap();
    assert!(found.new && found.end == 0);
    log.append(&[frame(0, 3), frame(3, 2)]).unwrap();
    log.append(&[frame(5, 1)]).unwrap();
    let (mut log, found) = open(&store, 2).unwrap();
    assert!(!found.new);
    assert_eq!((found.end, all(&found)), (6, (vec![frame(0, 3), frame(3, 2), frame(5, 1)], 0)));
    log.append(&[frame(6, 4)]).unwrap();
    let before = objects(&store).len();
    log.trim(4);
    assert_eq!(objects(&store).len(), before, "a record of the first object was not passed");
    log.trim(5);
    assert_eq!(objects(&store).len(), before - 1);
    log.trim(10);
    let (_, found) = open(&store, 3).unwrap();
    assert_eq!((found.new, found.parts.len(), found.end), (false, 1, 10), "the last one says how far the log went");
}

/// EPO-9, D1: an older attempt that still writes is refused before it confirms anything, at once, after its successor has
/// written, and after all that was passed; it cannot claim the log again either.
#[test]
fn an_older_writer_is_fenced() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    let (mut old, _) = open(&store, 1).unwrap();
    old.append(&[frame(0, 3)]).unwrap();
    let (mut new, found) = open(&store, 2).unwrap();
    assert_eq!(found.end, 3);
    let refused = |log: &mut ObjectLog| {
        let error = log.append(&[frame(3, 1)]).unwrap_err();
        assert!(error.class == Class::Fenced && error.message.contains("attempt 2"), "{error}");
    };
    refused(&mut old);
    new.append(&[frame(3, 2)]).unwrap();
    refused(&mut old);
    assert_eq!(all(&found).0, [frame(0, 3)]);
    new.trim(5);
    refused(&mut old);
    let error = open(&store, 1).err().unwrap();
    assert_eq!(error.class, Class::Fenced, "{error}");
}

/// Claims do not pile up.
#[test]
fn old_claims_go() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    for attempt in 1..=40 {
        open(&store, attempt).unwrap();
    }
    assert!(objects(&store).len() <= 17, "{:?}", objects(&store));
}

/// EPO-9: a job that begins from nothing takes nothing of an earlier one, whether that was forgotten or not; an attempt that
/// is told twice to do so keeps what it has. Forgetting leaves alone what a later job has begun.
#[test]
fn a_job_from_nothing_has_an_empty_log() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    let fresh = |attempt: u64| {
        let (mut at, _) = place(Path::new("/nowhere"), Some(store.clone()), attempt, None);
        at.empty = true;
        ObjectLog::open(None, &at, "it-0", RUNTIME.handle()).unwrap()
    };
    open(&store, 1).unwrap().0.append(&[frame(0, 3)]).unwrap();
    let (_, found) = fresh(2);
    assert_eq!((found.end, found.parts.len()), (0, 0));
    // Killed before it wrote anything, it has left nothing of the earlier job for the next attempt.
    assert_eq!(open(&store, 2).unwrap().1.parts.len(), 0);
    let mut log = open(&store, 2).unwrap().0;
    log.append(&[frame(0, 5)]).unwrap();
    drop(log);
    let job = JobId::new("j").unwrap();
    RUNTIME.block_on(forget(&store, &job, Attempt::new(1))).unwrap();
    let (mut log, found) = open(&store, 3).unwrap();
    assert_eq!(all(&found).0, [frame(0, 5)]);
    log.append(&[frame(5, 1)]).unwrap();
    assert_eq!(all(&fresh(3).1).0, [frame(0, 5), frame(5, 1)], "told twice");
    RUNTIME.block_on(forget(&store, &job, Attempt::new(3))).unwrap();
    assert!(objects(&store).is_empty());
}

/// WAL-3: a put whose answer was lost is not taken for another writer's.
#[test]
fn the_same_entries_may_be_put_again() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    let (mut log, _) = open(&store, 1).unwrap();
    let next = objects(&store).len();
    RUNTIME.block_on(store.put(&format!("jobs/j/wal/it-0/{next:020}"), frame(0, 3).bytes().to_vec().into())).unwrap();
    log.append(&[frame(0, 3)]).unwrap();
    log.append(&[frame(3, 1)]).unwrap();
    assert_eq!(all(&open(&store, 2).unwrap().1).0, [frame(0, 3), frame(3, 1)]);
}

/// WAL-3: damage of any byte of an object costs at most the entry that holds it, and is told.
#[test]
fn damage_of_any_byte_leaves_the_rest() {
    let store = StateStore::over(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, "memory:///");
    let frames = [frame(0, 3), frame(3, 2), frame(5, 4)];
    open(&store, 1).unwrap().0.append(&frames).unwrap();
    let (name, _) = objects(&store).into_iter().max_by_key(|(_, bytes)| *bytes).unwrap();
    let whole = RUNTIME.block_on(store.get(&name)).unwrap().unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x10;
        RUNTIME.block_on(store.put(&name, bytes.into())).unwrap();
        let (found, damaged) = all(&open(&store, 2).unwrap().1);
        assert!(damaged == 1 && found.len() == 2 && found.iter().all(|frame| frames.contains(frame)), "byte {at}");
    }
    for cut in 0..whole.len() {
        RUNTIME.block_on(store.put(&name, whole.slice(..cut))).unwrap();
        let (found, _) = all(&open(&store, 2).unwrap().1);
        let kept = frames
            .iter()
            .scan(0, |end, frame| {
                *end += frame.bytes().len();
                Some(*end)
            })
            .filter(|end| *end <= cut)
            .count();
        assert_eq!(found, frames[..kept], "cut at {cut}");
    }
}
