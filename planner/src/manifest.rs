//! What a cut consists of, and the manifest of a checkpoint: the one record by which a cut can be
//! found, verified and restored without anything else (CKP-2, CKP-12).
//!
//! A manifest is JSON text, then a line with the XXH3 (128 bit) of that text in hexadecimal. A checkpoint
//! has one manifest with the cut of every region of the job (docs/decision/012).
//!
//! Objects in the state store, below its URL:
//!
//! | name | what |
//! | --- | --- |
//! | `jobs/<job>/files/<attempt>/<name>` | a segment or result file, as the agent of that attempt uploaded it |
//! | `jobs/<job>/checkpoints/<id>.json` | a manifest, made only if absent, after everything that it names |
//! | `jobs/<job>/wal/<task>/<number>` | a part of an input log (docs/decision/013) |
//!
//! The attempt in the name keeps an agent that has lost the job from deleting what its successor wrote.

use crate::connector::{Position, SplitPosition};
use crate::id::{Attempt, CheckpointId, EpochId, JobId, JobVersion, OperatorId, RegionId, TaskId};
use crate::keygroup::KEY_ENCODING_VERSION;
use crate::plan::{Chain, JobPlan, Region};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use xxhash_rust::xxh3::xxh3_128;

/// Version of the manifest's own layout.
pub const MANIFEST_VERSION: u32 = 1;
/// Version of what state files hold (`state.format_version` of a job).
pub const STATE_FORMAT_VERSION: u32 = 1;

/// What a decision must remember of a sink (CON-6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkHandle {
    /// Nothing: at least once.
    None,
    /// File sink: what lies past this length is not part of the cut.
    Length(u64),
    /// Result table: immutable files to add, oldest first, with their row counts.
    Files(Vec<ResultFile>),
}

/// One immutable file of result rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// File name in the job's result directory: begins with the content hash.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Wall clock when it was written, ms.
    pub written_at_ms: i64,
}

/// A state segment as a decision remembers it. The name is the XXH3 (128 bit) of the whole file in
/// hexadecimal and `.seg`, so it is the checksum as well (STA-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// File name in the job's state directory.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
}

/// Segments of one stateful task, in the order of their decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSegments {
    /// The task.
    pub task: TaskId,
    /// Oldest first.
    pub segments: Vec<SegmentRef>,
}

/// A decided epoch of a region: all that its next attempt begins from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionCut {
    /// Which.
    pub epoch: EpochId,
    /// Wall clock, ms.
    pub decided_at_ms: i64,
    /// By source operator: next positions of all splits that the region ever read.
    pub positions: BTreeMap<OperatorId, Vec<SplitPosition>>,
    /// By task.
    pub segments: Vec<TaskSegments>,
    /// Handles of sink tasks; those of result tables live in the result index.
    pub sinks: Vec<(TaskId, SinkHandle)>,
    /// Every member had ended.
    pub ended: bool,
    /// Dealt to other tasks and not decided since (CKP-9): the segments are those of the former tasks of the
    /// region's operators. Each task takes its own key groups out of them, and writes all that it has into its
    /// first epoch, which takes their place.
    pub redealt: bool,
}

impl RegionCut {
    /// Nothing decided yet.
    pub fn empty(epoch: EpochId) -> Self {
        RegionCut {
            epoch,
            decided_at_ms: 0,
            positions: BTreeMap::new(),
            segments: Vec::new(),
            sinks: Vec::new(),
            ended: false,
            redealt: false,
        }
    }

    /// The same cut, whatever its number and hour: then there is nothing to write (EPO-7).
    pub fn same_cut(&self, other: &RegionCut) -> bool {
        self.positions == other.positions
            && self.segments == other.segments
            && self.sinks == other.sinks
            && self.ended == other.ended
            && self.redealt == other.redealt
    }

    /// Takes over new positions of an operator; a split that is not told of keeps its own (CKP-5).
    pub fn move_positions(&mut self, operator: &OperatorId, moved: &[SplitPosition]) {
        let known = self.positions.entry(operator.clone()).or_default();
        for position in moved {
            match known.iter_mut().find(|p| p.split == position.split) {
                Some(place) => *place = position.clone(),
                None => known.push(position.clone()),
            }
        }
    }

    /// Segments of a task, made when missing.
    pub fn segments_mut(&mut self, task: &TaskId) -> &mut Vec<SegmentRef> {
        let at = match self.segments.iter().position(|t| t.task == *task) {
            Some(at) => at,
            None => {
                self.segments.push(TaskSegments { task: task.clone(), segments: Vec::new() });
                self.segments.len() - 1
            }
        };
        &mut self.segments[at].segments
    }

    /// Sets the handle of a sink task.
    pub fn set_sink(&mut self, task: &TaskId, handle: SinkHandle) {
        match self.sinks.iter_mut().find(|(t, _)| t == task) {
            Some((_, place)) => *place = handle,
            None => self.sinks.push((task.clone(), handle)),
        }
    }
}

/// Positions of an operator over all regions. A split that moved between subtasks may stand in
/// two records; both are decided, so the further one holds.
pub fn positions_of<'a>(cuts: impl IntoIterator<Item = &'a RegionCut>, operator: &OperatorId) -> Vec<SplitPosition> {
    let mut merged: Vec<SplitPosition> = Vec::new();
    for position in cuts.into_iter().filter_map(|cut| cut.positions.get(operator)).flatten() {
        match merged.iter_mut().find(|p| p.split == position.split) {
            Some(place) if progress(position) > progress(place) => *place = position.clone(),
            Some(_) => {}
            None => merged.push(position.clone()),
        }
    }
    merged
}

fn progress(position: &SplitPosition) -> (i128, bool) {
    let at = match position.position {
        Position::Row(row) => i128::from(row),
        Position::Offset(offset) => i128::from(offset),
        Position::Byte { offset, .. } => i128::from(offset),
    };
    (at, position.ended)
}

/// Why a checkpoint is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// Until `checkpoint.retention` newer ones are sealed.
    Checkpoint,
    /// Until a user drops it.
    Savepoint,
}

impl fmt::Display for CheckpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointKind::Checkpoint => "checkpoint",
            CheckpointKind::Savepoint => "savepoint",
        })
    }
}

/// The tasks that a cut is made of: what a plan must match to go on from it (CKP-8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSet {
    /// The planned task set, in plan order, without what appears in no artifact (PLAN-2).
    pub tasks: Vec<TaskId>,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Tasks of each region, so that a region's cut always describes the same tasks.
    pub regions: Vec<Vec<TaskId>>,
}

impl TaskSet {
    /// Of a plan. Partial stages are left out: they hold nothing, and a plan may have them or not without
    /// being another job (PLAN-2, WIN-7).
    pub fn of(plan: &JobPlan) -> Self {
        let of_chain = |chain: &Chain, subtask: u32| {
            let own = chain.operators.iter().filter(|operator| operator.work.in_cuts());
            own.map(move |operator| TaskId { operator: operator.id.clone(), subtask }).collect::<Vec<_>>()
        };
        let members = |region: &Region| region.members.iter().flat_map(|(id, subtask)| of_chain(plan.chain(*id), *subtask)).collect();
        TaskSet { tasks: plan.tasks_in_cuts(), max_parallelism: plan.max_parallelism, regions: plan.regions.iter().map(members).collect() }
    }
}

/// A sealed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`].
    pub manifest_version: u32,
    /// [`STATE_FORMAT_VERSION`].
    pub state_format: u32,
    /// [`KEY_ENCODING_VERSION`].
    pub key_encoding: u32,
    /// Unique among the checkpoints of a hub; 0 until it is sealed.
    pub id: CheckpointId,
    /// Why it is kept.
    pub kind: CheckpointKind,
    /// The job.
    pub job: JobId,
    /// The version that wrote it.
    pub version: JobVersion,
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// Wall clock at which it was begun, ms.
    pub created_at_ms: i64,
    /// What it was planned to consist of.
    pub planned: TaskSet,
    /// The cut of every region.
    pub cuts: BTreeMap<RegionId, RegionCut>,
    /// The result table's files, oldest first.
    pub results: Vec<ResultFile>,
    /// For every file that the cuts and results name, the attempt that uploaded it.
    pub files: BTreeMap<String, Attempt>,
}

impl Manifest {
    /// Name of its object.
    pub fn object(&self) -> String {
        manifest_object(&self.job, self.id)
    }

    /// Names of the objects that it needs.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        self.files.iter().map(|(name, attempt)| file_object(&self.job, *attempt, name))
    }

    /// Bytes of all files that it names.
    pub fn bytes(&self) -> u64 {
        let segments = self.cuts.values().flat_map(|cut| &cut.segments).flat_map(|task| &task.segments).map(|segment| segment.bytes);
        segments.chain(self.results.iter().map(|file| file.bytes)).sum()
    }

    /// As the bytes of its object.
    ///
    /// Errors: it cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|e| format!("the manifest cannot be written: {e}"))?;
        let sum = xxh3_128(&bytes);
        bytes.extend_from_slice(format!("\n{sum:032x}\n").as_bytes());
        Ok(bytes)
    }

    /// Reads a manifest back. Any flipped, missing or added byte is an error.
    ///
    /// Errors: why it is not usable, without the object's name, which the caller knows.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        /// A newline, 32 digits, a newline.
        const TAIL_BYTES: usize = 34;
        let at = bytes.len().checked_sub(TAIL_BYTES).ok_or("too short for a manifest")?;
        let (text, tail) = bytes.split_at(at);
        if tail != format!("\n{:032x}\n", xxh3_128(text)).as_bytes() {
            return Err("the manifest does not match its checksum, or is cut short".to_owned());
        }
        /// Read first, since other versions may have other fields.
        #[derive(Deserialize)]
        struct Versions {
            manifest_version: u32,
            state_format: u32,
            key_encoding: u32,
        }
        let unreadable = |e: serde_json::Error| format!("the manifest is not readable: {e}");
        let found: Versions = serde_json::from_slice(text).map_err(unreadable)?;
        let known = [
            ("manifest version", found.manifest_version, MANIFEST_VERSION),
            ("state format", found.state_format, STATE_FORMAT_VERSION),
            ("key encoding", found.key_encoding, KEY_ENCODING_VERSION),
        ];
        if let Some((what, found, known)) = known.iter().find(|(_, found, known)| found != known) {
            return Err(format!("{what} {found} is not readable: this build reads {known}"));
        }
        serde_json::from_slice(text).map_err(unreadable)
    }
}

/// Object name of a file that the agent of `attempt` uploaded.
pub fn file_object(job: &JobId, attempt: Attempt, name: &str) -> String {
    format!("jobs/{job}/files/{attempt}/{name}")
}

/// Object name of a manifest.
pub fn manifest_object(job: &JobId, id: CheckpointId) -> String {
    format!("jobs/{job}/checkpoints/{id}.json")
}

#[cfg(test)]
mod tests;
