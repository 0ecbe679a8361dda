//! Manifests read back, and whatever is wrong with one is noticed.

use super::{
    CheckpointKind, MANIFEST_VERSION, Manifest, RegionCut, STATE_FORMAT_VERSION, SegmentRef, TaskSet, file_object, manifest_object,
};
use crate::connector::{Position, SplitPosition};
use crate::id::{Attempt, CheckpointId, EpochId, JobId, JobVersion, OperatorId, RegionId, TaskId};
use crate::keygroup::KEY_ENCODING_VERSION;
use std::collections::BTreeMap;

fn manifest() -> Manifest {
    let task = TaskId { operator: OperatorId::new("w").unwrap(), subtask: 0 };
    let mut cut = RegionCut::empty(EpochId { attempt: Attempt::new(3), sequence: 57 });
    let at = SplitPosition { split: "bids/0".to_owned(), position: Position::Offset(12), time_max_ms: Some(-1), ended: false };
    cut.move_positions(&OperatorId::new("s").unwrap(), &[at]);
    let name = format!("{:032x}.seg", 7);
    cut.segments_mut(&task).push(SegmentRef { name: name.clone(), bytes: 100, rows: 2 });
    Manifest {
        manifest_version: MANIFEST_VERSION,
        state_format: STATE_FORMAT_VERSION,
        key_encoding: KEY_ENCODING_VERSION,
        id: CheckpointId::new(9),
        kind: CheckpointKind::Savepoint,
        job: JobId::new("j").unwrap(),
        version: JobVersion::new(1),
        attempt: Attempt::new(3),
        created_at_ms: 1_000,
        planned: TaskSet { tasks: vec![task.clone()], max_parallelism: 128, regions: vec![vec![task]] },
        cuts: BTreeMap::from([(RegionId::new(0), cut)]),
        results: Vec::new(),
        files: BTreeMap::from([(name, Attempt::new(2))]),
    }
}

/// CKP-2: what was written reads back, and names its objects.
#[test]
fn a_manifest_reads_back() {
    let manifest = manifest();
    assert_eq!(Manifest::decode(&manifest.encode().unwrap()).unwrap(), manifest);
    assert_eq!(manifest.object(), "jobs/j/checkpoints/9.json");
    assert_eq!(manifest.object(), manifest_object(&manifest.job, manifest.id));
    let name = format!("{:032x}.seg", 7);
    assert_eq!(manifest.objects().collect::<Vec<_>>(), [format!("jobs/j/files/2/{name}")]);
    assert_eq!(file_object(&manifest.job, Attempt::new(2), &name), format!("jobs/j/files/2/{name}"));
    assert_eq!(manifest.bytes(), 100);
}

/// B4: every bit of every byte flipped, every cut, and a byte more are detected.
#[test]
fn any_damage_to_a_manifest_is_detected() {
    let bytes = manifest().encode().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Manifest::decode(&damaged).is_err(), "bit {bit} of byte {at}");
        }
        assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert!(Manifest::decode(&[&bytes[..], b"\n"].concat()).is_err());
}

/// CKP-12: another version is refused by name, whatever else it holds.
#[test]
fn other_versions_are_refused() {
    let check = |change: fn(&mut Manifest), why: &str| {
        let mut other = manifest();
        change(&mut other);
        assert_eq!(Manifest::decode(&other.encode().unwrap()).unwrap_err(), why);
    };
    check(|m| m.manifest_version = 2, "manifest version 2 is not readable: this build reads 1");
    check(|m| m.state_format = 9, "state format 9 is not readable: this build reads 1");
    check(|m| m.key_encoding = 0, "key encoding 0 is not readable: this build reads 1");
}
