//! Cuts dealt to more and to fewer tasks, and what is not dealt.

use super::super::tests::{job, local};
use super::super::{Decision, Decisions, JobRecord, KeptSpec, RegionCut, Retention};
use crate::segment::SegmentRef;
use std::collections::BTreeMap;
use weir_kernel::io::SinkHandle;
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{Attempt, EpochId, JobVersion, OperatorId, RegionId, TaskId};
use weir_planner::manifest::TaskSet;
use weir_planner::protocol::Restore;

fn task(name: &str, subtask: u32) -> TaskId {
    TaskId { operator: OperatorId::new(name).unwrap(), subtask }
}

fn at(split: &str, row: u64) -> SplitPosition {
    SplitPosition { split: split.to_owned(), position: Position::Row(row), time_max_ms: Some(row as i64), ended: false }
}

/// A job of `src` and `out`, one region for each of `parallelism` subtasks.
fn lanes(attempt: u64, parallelism: u32) -> JobRecord {
    let regions: Vec<Vec<TaskId>> = (0..parallelism).map(|n| vec![task("src", n), task("out", n)]).collect();
    JobRecord {
        attempt: Attempt::new(attempt),
        version: JobVersion::new(1),
        planned: TaskSet { tasks: regions.concat(), max_parallelism: 128, regions },
        stateful: [].into(),
        rescale: false,
    }
}

fn decide(store: &Decisions, attempt: u64, region: u32, positions: &[SplitPosition], sink: Option<(TaskId, u64)>, segments: &[&str]) {
    let id = RegionId::new(region);
    let before = store.regions(&job()).unwrap().remove(&id);
    let mut record = before.unwrap_or_else(|| RegionCut::empty(EpochId { attempt: Attempt::new(attempt), sequence: 0 }));
    record.epoch = EpochId { attempt: Attempt::new(attempt), sequence: 1 };
    record.move_positions(&task("src", 0).operator, positions);
    if let Some((task, length)) = sink {
        record.set_sink(&task, SinkHandle::Length(length));
    }
    for name in segments {
        record.segments_mut(&task("src", 0)).push(SegmentRef { name: (*name).to_owned(), bytes: 1, rows: 1 });
    }
    let retention = Retention { rows: 1, ms: None };
    let attempt = Attempt::new(attempt);
    store.decide(Decision { job: job(), attempt, region: id, record, results: Vec::new(), replacement: None, retention }).unwrap();
}

fn handles(record: &RegionCut) -> Vec<(String, SinkHandle)> {
    record.sinks.iter().map(|(task, handle)| (task.to_string(), handle.clone())).collect()
}

/// CKP-8: positions follow their splits and files their tasks, to fewer tasks and back to more,
/// and what each said last is what holds.
#[test]
fn a_cut_without_state_goes_to_any_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(lanes(1, 2), &job(), Restore::Fresh).unwrap();
    decide(&store, 1, 0, &[at("a", 10)], Some((task("out", 0), 100)), &[]);
    decide(&store, 1, 1, &[at("b", 20)], Some((task("out", 1), 200)), &[]);

    let one = store.open_attempt(lanes(2, 1), &job(), local(&store, true)).unwrap();
    let source = task("src", 0).operator;
    assert_eq!(one.regions.keys().copied().collect::<Vec<_>>(), [RegionId::new(0)]);
    let only = &one.regions[&RegionId::new(0)];
    assert_eq!(only.positions[&source], [at("a", 10), at("b", 20)]);
    let both = [("out-0".to_owned(), SinkHandle::Length(100)), ("out-1".to_owned(), SinkHandle::Length(200))];
    assert_eq!(handles(only), both);
    // What was dealt is stored, not made anew at each start.
    assert_eq!(store.regions(&job()).unwrap(), one.regions);
    decide(&store, 2, 0, &[at("a", 11), at("b", 22)], Some((task("out", 0), 150)), &[]);

    let two = store.open_attempt(lanes(3, 2), &job(), local(&store, true)).unwrap();
    let both = [at("a", 11), at("b", 22)];
    let found: Vec<_> = two.regions.values().map(|record| (record.positions[&source].as_slice(), handles(record))).collect();
    assert_eq!(found[0], (both.as_slice(), vec![("out-0".to_owned(), SinkHandle::Length(150))]));
    assert_eq!(found[1], (both.as_slice(), vec![("out-1".to_owned(), SinkHandle::Length(200))]));
    // The task that reads on moves its split; the other region's older word of it does not count.
    decide(&store, 3, 1, &[at("b", 30)], None, &[]);
    let again = store.open_attempt(lanes(4, 1), &job(), local(&store, true)).unwrap();
    assert_eq!(again.regions[&RegionId::new(0)].positions[&source], [at("a", 11), at("b", 30)]);
}

/// G3: what would be lost is refused, naming tasks and ways out, and the cut stays as it is.
#[test]
fn a_cut_is_not_dealt_where_something_would_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(lanes(1, 1), &job(), Restore::Fresh).unwrap();
    decide(&store, 1, 0, &[at("a", 10)], None, &[]);
    let stateful = JobRecord { stateful: [task("src", 0).operator].into(), ..lanes(2, 2) };
    let mut renamed = lanes(2, 1);
    renamed.planned.tasks[0] = task("other", 0);
    renamed.planned.regions[0][0] = task("other", 0);
    for (next, added, removed) in [(stateful, "src-1, out-1", ""), (renamed, "other-0", "src-0")] {
        let error = store.open_attempt(next.clone(), &job(), local(&store, true)).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains(&format!("added tasks {added}")), "{error}");
        assert!(removed.is_empty() || error.message.contains(&format!("removed tasks {removed}")), "{error}");
        assert!(error.message.contains("fresh"), "{error}");
        assert_eq!(error.message.contains("set rescale: true"), removed.is_empty(), "{error}");
        assert_eq!(store.check_cut(&next, &job()).unwrap_err().message, error.message);
    }
    assert_eq!(store.job(&job()).unwrap().unwrap().attempt, Attempt::new(1));
    decide(&store, 1, 0, &[at("a", 11)], None, &["1.seg"]);
    let error = store.open_attempt(lanes(2, 2), &job(), local(&store, true)).unwrap_err();
    assert!(error.message.contains("added tasks src-1, out-1"), "{error}");
}

/// A job of `src`, `win`, which keeps state, and `out`, all in one region, that may be rescaled.
fn windows(attempt: u64, parallelism: u32) -> JobRecord {
    let tasks: Vec<TaskId> = ["src", "win", "out"].iter().flat_map(|name| (0..parallelism).map(|n| task(name, n))).collect();
    JobRecord {
        attempt: Attempt::new(attempt),
        version: JobVersion::new(1),
        planned: TaskSet { tasks: tasks.clone(), max_parallelism: 128, regions: vec![tasks] },
        stateful: [task("win", 0).operator].into(),
        rescale: true,
    }
}

/// What `win` has, by task; the names are of segments.
fn state(regions: &BTreeMap<RegionId, RegionCut>) -> Vec<(String, Vec<String>, bool)> {
    let names = |segments: &[SegmentRef]| segments.iter().map(|segment| segment.name.clone()).collect::<Vec<_>>();
    let cuts = regions.values().flat_map(|cut| cut.segments.iter().map(move |of_task| (cut, of_task)));
    cuts.map(|(cut, of_task)| (of_task.task.to_string(), names(&of_task.segments), cut.redealt)).collect()
}

fn write(store: &Decisions, attempt: u64, segments: &[(u32, &[&str])]) {
    let id = RegionId::new(0);
    let mut record = RegionCut::empty(EpochId { attempt: Attempt::new(attempt), sequence: 1 });
    record.move_positions(&task("src", 0).operator, &[at("a", 10)]);
    for (subtask, names) in segments {
        let segments = names.iter().map(|name| SegmentRef { name: (*name).to_owned(), bytes: 1, rows: 1 });
        record.segments_mut(&task("win", *subtask)).extend(segments);
    }
    let (retention, attempt) = (Retention { rows: 1, ms: None }, Attempt::new(attempt));
    store.decide(Decision { job: job(), attempt, region: id, record, results: Vec::new(), replacement: None, retention }).unwrap();
}

/// CKP-9: state goes to other tasks under the names of those that wrote it, in their order, and stays so over restarts with
/// still other tasks until it is written anew.
#[test]
fn state_is_dealt_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(windows(1, 2), &job(), Restore::Fresh).unwrap();
    // The second image of a task may be what its first was.
    write(&store, 1, &[(0, &["a", "b", "a"]), (1, &["c"])]);
    let unasked = JobRecord { rescale: false, ..windows(2, 3) };
    let error = store.open_attempt(unasked, &job(), local(&store, true)).unwrap_err();
    assert!(error.message.contains("added tasks src-2, win-2, out-2") && error.message.contains("set rescale: true"), "{error}");
    let (all, one) = (
        |dealt| vec![("win-0".to_owned(), vec!["a".into(), "b".into(), "a".into()], dealt), ("win-1".to_owned(), vec!["c".into()], dealt)],
        1,
    );
    for (attempt, parallelism) in [(2, 3), (3, one), (4, 3)] {
        let opened = store.open_attempt(windows(attempt, parallelism), &job(), local(&store, true)).unwrap();
        assert_eq!(state(&opened.regions), all(true));
        assert_eq!(store.regions(&job()).unwrap(), opened.regions);
    }
    // The same tasks again deal nothing.
    let same = store.open_attempt(JobRecord { rescale: false, ..windows(5, 3) }, &job(), local(&store, true)).unwrap();
    assert_eq!(state(&same.regions), all(true));
    write(&store, 5, &[(0, &["d"]), (2, &["e"])]);
    let after = store.open_attempt(windows(6, 2), &job(), local(&store, true)).unwrap();
    assert_eq!(state(&after.regions), [("win-0".to_owned(), vec!["d".to_owned()], true), ("win-2".to_owned(), vec!["e".to_owned()], true)]);
}

/// CKP-9, G3: another number of key groups, and state without its operator, are refused with the reason, and nothing is changed.
#[test]
fn state_that_has_no_owner_is_not_dealt() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    store.open_attempt(windows(1, 2), &job(), Restore::Fresh).unwrap();
    write(&store, 1, &[(0, &["a"])]);
    let before = store.regions(&job()).unwrap();
    let mut groups = windows(2, 3);
    groups.planned.max_parallelism = 64;
    let mut gone = windows(2, 3);
    gone.stateful = [].into();
    for (next, why) in [(groups, "max_parallelism is 64, and state is in 128 key groups"), (gone, "operator 'win' keeps state in the cut")]
    {
        let error = store.open_attempt(next.clone(), &job(), local(&store, true)).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains(why) && error.message.contains("start fresh") && !error.message.contains("set rescale"), "{error}");
        assert_eq!(store.check_cut(&next, &job()).unwrap_err().message, error.message);
    }
    assert_eq!(store.regions(&job()).unwrap(), before);
}

/// CKP-9: what one region has written anew while another has not is of different tasks under the same names.
#[test]
fn half_dealt_state_is_not_dealt_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    let buffers =
        |attempt, parallelism| JobRecord { stateful: [task("src", 0).operator].into(), rescale: true, ..lanes(attempt, parallelism) };
    store.open_attempt(buffers(1, 2), &job(), Restore::Fresh).unwrap();
    decide(&store, 1, 0, &[at("a", 10)], None, &["a"]);
    let dealt = store.open_attempt(buffers(2, 3), &job(), local(&store, true)).unwrap();
    assert_eq!(dealt.regions.values().filter(|cut| cut.redealt).count(), 3, "each has a task of the operator");
    let (retention, attempt, region) = (Retention { rows: 1, ms: None }, Attempt::new(2), RegionId::new(1));
    // With something that it keeps, and with nothing any more.
    for kept in [&["b"][..], &[]] {
        let mut record = dealt.regions[&region].clone();
        (record.redealt, record.segments) = (false, Vec::new());
        record.epoch.sequence += 1;
        for name in kept {
            record.segments_mut(&task("src", 1)).push(SegmentRef { name: (*name).to_owned(), bytes: 1, rows: 1 });
        }
        store.decide(Decision { job: job(), attempt, region, record, results: Vec::new(), replacement: None, retention }).unwrap();
        let error = store.open_attempt(buffers(3, 1), &job(), local(&store, true)).unwrap_err();
        assert!(error.message.contains("operator 'src' have decided since its state was last dealt"), "{error}");
    }
    store.open_attempt(buffers(3, 3), &job(), local(&store, true)).unwrap();
}

/// J1, CKP-7: an older version never goes on from the cut of a newer one.
#[test]
fn an_older_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    let newer = JobRecord { version: JobVersion::new(3), ..lanes(1, 1) };
    store.open_attempt(newer, &job(), Restore::Fresh).unwrap();
    // Nothing was decided, so there is nothing to go back from.
    store.check_cut(&lanes(2, 1), &job()).unwrap();
    decide(&store, 1, 0, &[at("a", 10)], None, &[]);
    let error = store.open_attempt(lanes(2, 1), &job(), local(&store, true)).unwrap_err();
    assert_eq!(error.class, Class::User);
    assert!(error.message.contains("version 3") && error.message.contains("version 1 is older"), "{error}");
    let raised = JobRecord { version: JobVersion::new(4), ..lanes(2, 1) };
    store.open_attempt(raised, &job(), local(&store, true)).unwrap();
}

/// STR-6: a kept spec is there after a restart, and goes with its job.
#[test]
fn a_kept_spec_lasts_as_long_as_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    let spec: weir_planner::spec::JobSpec =
        serde_json::from_value(serde_json::json!({"id": "j", "operators": [], "parallelism": 3})).unwrap();
    let kept = KeptSpec { bound: spec.clone(), submitted: spec };
    assert_eq!(store.kept_spec(&job()).unwrap(), None);
    store.keep_spec(&job(), &kept).unwrap();
    store.open_attempt(lanes(1, 1), &job(), Restore::Fresh).unwrap();
    store.close();
    drop(store);
    let store = Decisions::open(dir.path()).unwrap();
    assert_eq!(store.kept_spec(&job()).unwrap(), Some(kept));
    store.forget(&job(), Attempt::new(1)).unwrap();
    assert_eq!(store.kept_spec(&job()).unwrap(), None);
}

#[test]
fn nothing_is_dealt_from_nothing() {
    assert_eq!(super::redeal(&lanes(1, 1), &BTreeMap::new(), &lanes(1, 2)), Ok(BTreeMap::new()));
}

/// CKP-8, EPO-4: each region decides by itself. What the tasks of one that has not decided yet would
/// have read is in no cut: that is known for as long as it holds, also once the cuts were dealt.
#[test]
fn cuts_that_lack_a_region_are_known_to() {
    let dir = tempfile::tempdir().unwrap();
    let store = Decisions::open(dir.path()).unwrap();
    let undecided = |attempt, parallelism| {
        let opened = store.open_attempt(lanes(attempt, parallelism), &job(), local(&store, false)).unwrap();
        opened.undecided.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(undecided(1, 2).is_empty(), "the first start finds everything anyway");
    decide(&store, 1, 0, &[at("a", 10)], Some((task("out", 0), 100)), &[]);
    assert_eq!(undecided(2, 2), ["out", "src"]);
    assert_eq!(undecided(3, 1), ["out", "src"], "as it was before they were dealt");
    assert_eq!(undecided(4, 1), ["out", "src"], "nobody has decided since");
    decide(&store, 4, 0, &[at("a", 11), at("b", 20)], None, &[]);
    assert!(undecided(5, 1).is_empty());
    assert!(undecided(6, 3).is_empty());
    assert!(undecided(7, 3).is_empty(), "dealt whole");
}
