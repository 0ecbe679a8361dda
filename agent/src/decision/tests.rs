//! Fences, refusals, crash images and retention of the decision store.

use super::{Decision, Decisions, JobRecord, RegionCut, Replacement, Retention};
use crate::segment::SegmentRef;
use std::collections::BTreeMap;
use std::path::Path;
use weir_kernel::io::{ResultFile, SinkHandle};
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, JobId, JobVersion, OperatorId, RegionId, TaskId};
use weir_planner::manifest::TaskSet;
use weir_planner::protocol::{CutGrant, LocalGrant, Restore};

pub fn job() -> JobId {
    JobId::new("j").unwrap()
}

fn task(name: &str) -> TaskId {
    TaskId { operator: OperatorId::new(name).unwrap(), subtask: 0 }
}

pub fn attempt(number: u64) -> JobRecord {
    let tasks = vec![task("src"), task("win")];
    JobRecord {
        attempt: Attempt::new(number),
        version: JobVersion::new(1),
        planned: TaskSet { regions: vec![tasks.clone()], tasks, max_parallelism: 128 },
        stateful: [].into(),
        rescale: false,
    }
}

pub fn record(attempt: u64, sequence: u64) -> RegionCut {
    let position =
        SplitPosition { split: "t/0".to_owned(), position: Position::Offset(sequence as i64), time_max_ms: Some(-1), ended: false };
    let mut record = RegionCut::empty(EpochId { attempt: Attempt::new(attempt), sequence });
    record.move_positions(&task("src").operator, &[position]);
    record.segments_mut(&task("win")).push(SegmentRef { name: format!("{sequence}.seg"), bytes: 9, rows: 1 });
    record.set_sink(&task("win"), SinkHandle::Length(sequence));
    record.decided_at_ms = 1_000;
    record
}

pub fn file(name: &str, rows: u64) -> ResultFile {
    ResultFile { name: name.to_owned(), rows, bytes: rows * 10, written_at_ms: 0 }
}

pub fn decision(attempt: u64, sequence: u64, results: Vec<ResultFile>) -> Decision {
    Decision {
        job: job(),
        attempt: Attempt::new(attempt),
        region: RegionId::new(0),
        record: record(attempt, sequence),
        results,
        replacement: None,
        retention: Retention { rows: 10, ms: None },
    }
}

pub fn local(store: &Decisions, must_exist: bool) -> Restore {
    Restore::Cut(Box::new(CutGrant {
        local: Some(LocalGrant { store_id: store.store_id().to_owned(), since: None, must_exist }),
        checkpoints: Vec::new(),
    }))
}

/// What a machine that loses power now would find: the file as it is, opened as another store.
fn crash_image(dir: &Path) -> (tempfile::TempDir, Decisions) {
    let image = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join("agent.redb"), image.path().join("agent.redb")).unwrap();
    let store = Decisions::open(image.path()).unwrap();
    (image, store)
}

/// EPO-4, C2: before the decision the epoch does not exist; once `decide` has returned it does,
/// whole, whatever happens to the process.
#[test]
fn a_crash_finds_the_last_decided_cut_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    for sequence in 1..=20 {
        let (_image, crashed) = crash_image(dir.path());
        let found = crashed.open_attempt(attempt(2), &job(), local(&crashed, sequence > 1)).unwrap();
        let wanted: BTreeMap<_, _> = (sequence > 1).then(|| (RegionId::new(0), record(1, sequence - 1))).into_iter().collect();
        assert_eq!(found.regions, wanted);
        assert_eq!(found.results.len() as u64, sequence - 1);
        assert_eq!(crashed.store_id(), store.store_id());
        store.decide(decision(1, sequence, vec![file(&sequence.to_string(), 0)])).unwrap();
    }
}

/// A7: whoever is killed while a new store is made leaves none, not one that can never be opened.
#[test]
fn a_store_is_there_whole_or_not_at_all() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        // What a making that was killed has left.
        std::fs::write(dir.path().join("agent.redb.new"), vec![0; 73_728]).unwrap();
        let making = std::thread::spawn({
            let dir = dir.path().to_owned();
            move || Decisions::open(&dir).map(drop)
        });
        let first = loop {
            match std::fs::read(dir.path().join("agent.redb")) {
                Ok(bytes) => break bytes,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert!(first.starts_with(b"redb"), "a kill here would leave a file that is no database");
        making.join().unwrap().unwrap();
        assert!(!dir.path().join("agent.redb.new").exists());
    }
}

/// HUB-2: fencing is by attempt, also after the process restarted.
#[test]
fn an_older_attempt_may_neither_open_nor_decide_nor_forget() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(3), &job(), Restore::Fresh).unwrap();
    store.decide(decision(3, 1, Vec::new())).unwrap();
    store.open_attempt(attempt(4), &job(), local(&store, true)).unwrap();
    store.close();
    drop(store);
    let store = Decisions::open(dir.path()).unwrap();
    let refused = [
        store.decide(decision(3, 2, Vec::new())).map(|_| ()),
        store.open_attempt(attempt(3), &job(), Restore::Fresh).map(|_| ()),
        store.forget(&job(), Attempt::new(3)),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.class, Class::Fenced, "{error}");
        assert!(error.message.contains("attempt 3") && error.message.contains("attempt 4"), "{error}");
    }
    assert_eq!(store.regions(&job()).unwrap()[&RegionId::new(0)], record(3, 1));
    store.forget(&job(), Attempt::new(4)).unwrap();
    assert!(store.regions(&job()).unwrap().is_empty());
    assert_eq!(store.decide(decision(4, 1, Vec::new())).unwrap_err().class, Class::Fenced);
}

/// C51, EPO-9: what a start may begin from.
#[test]
fn restores_are_refused_rather_than_started_empty() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    let elsewhere = Restore::Cut(Box::new(CutGrant {
        local: Some(LocalGrant { store_id: "another".to_owned(), since: None, must_exist: false }),
        checkpoints: Vec::new(),
    }));
    let error = store.open_attempt(attempt(1), &job(), elsewhere).unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains("another") && error.message.contains(store.store_id()), "{error}");
    let error = store.open_attempt(attempt(1), &job(), local(&store, true)).unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    // Neither refusal has left a trace.
    assert_eq!(store.job(&job()).unwrap(), None);
    assert!(store.open_attempt(attempt(1), &job(), local(&store, false)).unwrap().regions.is_empty());
}

/// A fresh start deletes cuts and results; the same command told again deletes nothing that the
/// attempt has decided since.
#[test]
fn fresh_deletes_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    store.decide(decision(1, 1, vec![file("a", 1)])).unwrap();
    assert_eq!(store.open_attempt(attempt(2), &job(), Restore::Fresh).unwrap(), super::Opened { empty: true, ..super::Opened::default() });
    store.decide(decision(2, 1, vec![file("b", 1)])).unwrap();
    let again = store.open_attempt(attempt(2), &job(), Restore::Fresh).unwrap();
    assert_eq!((again.regions[&RegionId::new(0)].epoch.attempt, again.results), (Attempt::new(2), vec![file("b", 1)]));
}

/// CKP-8: other tasks than those of the cut are refused, naming them and the way out.
#[test]
fn another_task_set_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    store.decide(decision(1, 1, Vec::new())).unwrap();
    let mut other = attempt(2);
    other.planned.tasks = vec![task("src"), task("join")];
    other.planned.regions = vec![other.planned.tasks.clone()];
    let error = store.open_attempt(other, &job(), local(&store, true)).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(
        error.message.contains("added tasks join-0") && error.message.contains("removed tasks win-0") && error.message.contains("fresh"),
        "{error}"
    );
    let mut other = attempt(2);
    other.planned.max_parallelism = 64;
    assert!(store.open_attempt(other, &job(), local(&store, true)).unwrap_err().message.contains("max_parallelism 64 instead of 128"));
    store.open_attempt(attempt(2), &job(), local(&store, true)).unwrap();
}

/// Result files come, go and are replaced in the decision itself; a name goes with its last use.
#[test]
fn results_change_with_the_decision() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    assert_eq!(store.decide(decision(1, 1, vec![file("a", 4), file("b", 4)])).unwrap().dropped, Vec::<String>::new());
    let mut merging = decision(1, 2, vec![file("a", 4)]);
    merging.replacement = Some(Replacement { old: vec!["a".to_owned(), "b".to_owned()], new: file("m", 8) });
    // 8 + 4 rows stay, for 12 - 8 would be under 10; `a` is named again and must not be deleted.
    let decided = store.decide(merging).unwrap();
    assert_eq!(decided.dropped, ["b"]);
    assert_eq!(decided.results, Some(vec![file("m", 8), file("a", 4)]));
    assert_eq!(store.decide(decision(1, 3, vec![file("c", 6)])).unwrap().dropped, ["m"]);
    let mut late = decision(1, 4, Vec::new());
    late.replacement = Some(Replacement { old: vec!["m".to_owned(), "a".to_owned()], new: file("n", 12) });
    assert_eq!(store.decide(late).unwrap().dropped, ["n"], "neighbours that are gone are not replaced");
    assert_eq!(store.results(&job()).unwrap(), [file("a", 4), file("c", 6)]);
}

/// KER-8: many regions decide at once through the one committer; none is lost or mixed up.
#[test]
fn decisions_of_many_regions_go_through_one_committer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    std::thread::scope(|scope| {
        for region in 0..32u32 {
            let store = store.clone();
            scope.spawn(move || {
                for sequence in 1..=5 {
                    let mut decision = decision(1, sequence, Vec::new());
                    decision.region = RegionId::new(region);
                    store.decide(decision).unwrap();
                }
            });
        }
    });
    let (_image, crashed) = crash_image(dir.path());
    let regions = crashed.regions(&job()).unwrap();
    assert_eq!(regions.len(), 32);
    assert!(regions.values().all(|r| *r == record(1, 5)));
}

/// CKP-12: stored bytes do not change within a version, and other versions are refused.
#[test]
fn the_region_record_is_pinned() {
    let bytes = super::encode(&record(1, 2), "region").unwrap();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "020102d00f01037372630103742f300104010100010377696e000105322e7365670901010377696e0001020000");
    let mut other = bytes.clone();
    other[0] = 9;
    let error = super::decode::<RegionCut>(&other, "region").unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains("version 9"), "{error}");
    assert!(super::decode::<RegionCut>(&bytes[..bytes.len() - 1], "region").is_err());
}

/// CKP-5: a split keeps its position until it moves, and of two records the further one holds.
#[test]
fn positions_are_carried_and_the_further_one_holds() {
    let at = |split: &str, offset| SplitPosition {
        split: split.to_owned(),
        position: Position::Offset(offset),
        time_max_ms: None,
        ended: false,
    };
    let source = task("src").operator;
    let mut one = RegionCut::empty(EpochId { attempt: Attempt::new(1), sequence: 1 });
    one.move_positions(&source, &[at("a", 5), at("b", 5)]);
    one.move_positions(&source, &[at("b", 7)]);
    assert_eq!(one.positions[&source], [at("a", 5), at("b", 7)]);
    let mut two = one.clone();
    two.positions.insert(source.clone(), vec![at("b", 6), at("c", 1), at("a", 9)]);
    let regions = BTreeMap::from([(RegionId::new(0), one), (RegionId::new(1), two)]);
    assert_eq!(super::positions_of(regions.values(), &source), [at("a", 9), at("b", 7), at("c", 1)]);
}

/// B4, C51: whatever happened to the file, an open refuses it or finds all of what was decided; it never
/// panics, and never begins empty beside the state of jobs.
#[test]
fn a_damaged_store_is_refused_or_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(attempt(1), &job(), Restore::Fresh).unwrap();
    for sequence in 1..=40 {
        store.decide(decision(1, sequence, vec![file(&sequence.to_string(), 0)])).unwrap();
    }
    let wanted = (store.store_id().to_owned(), store.job(&job()).unwrap(), store.regions(&job()).unwrap(), store.results(&job()).unwrap());
    store.close();
    let good = std::fs::read(dir.path().join("agent.redb")).unwrap();
    let mut images: Vec<(String, Vec<u8>)> = vec![("missing".to_owned(), Vec::new())];
    images.extend([0, 1, good.len() / 3, good.len() - 1].map(|n| (format!("cut to {n}"), good[..n].to_vec())));
    for at in (0..good.len()).step_by(good.len() / 97) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        images.push((format!("bit flipped at {at}"), bytes));
    }
    for at in (0..good.len()).step_by(4_096) {
        let mut bytes = good.clone();
        bytes[at..at + 512].fill(0xa5);
        images.push((format!("sector overwritten at {at}"), bytes));
    }
    let mut refused = 0;
    for (what, bytes) in images {
        let image = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(image.path().join("jobs").join("j")).unwrap();
        if what != "missing" {
            std::fs::write(image.path().join("agent.redb"), bytes).unwrap();
        }
        // The second open must not believe what the first one left behind.
        for _ in 0..2 {
            match Decisions::open(image.path()) {
                Ok(open) => {
                    let found = (
                        open.store_id().to_owned(),
                        open.job(&job()).unwrap(),
                        open.regions(&job()).unwrap(),
                        open.results(&job()).unwrap(),
                    );
                    assert_eq!(found, wanted, "{what}");
                }
                Err(error) => {
                    assert_eq!(error.class, Class::Corrupt, "{what}: {}", error.to_failure().message);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 6, "{refused}");
}

/// C51: a job that never ran neither takes over nor deletes what an unknown namesake left; fresh gives it up.
#[test]
fn a_new_job_does_not_take_over_a_namesake() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    assert_eq!(store.last_attempt().unwrap(), Attempt::default());
    assert_eq!(store.open_attempt(attempt(3), &job(), Restore::New).unwrap().regions, BTreeMap::new());
    store.decide(decision(3, 1, vec![file("a", 1)])).unwrap();
    // The same start told twice goes on where it was.
    assert_eq!(store.open_attempt(attempt(3), &job(), Restore::New).unwrap().regions.len(), 1);
    assert_eq!(store.last_attempt().unwrap(), Attempt::new(3));
    let refused = store.open_attempt(attempt(4), &job(), Restore::New).unwrap_err();
    assert!(refused.class == Class::User && refused.message.contains("an earlier job of that name"), "{}", refused.message);
    assert_eq!((store.regions(&job()).unwrap().len(), store.results(&job()).unwrap().len()), (1, 1));
    assert!(store.open_attempt(attempt(5), &job(), Restore::Fresh).unwrap().regions.is_empty());
}
