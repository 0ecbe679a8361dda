//! Answers reads of an operator's state: its segments of the last decided epoch of each region, merged on the reader's own thread
//! (ST-1, ST-2, STA-5). They are opened in one go, and stay readable whatever is merged or decided meanwhile.

use super::{Chunks, TRIES_MAX};
use crate::decision::Decisions;
use crate::error::Error;
use crate::region::JobDirs;
use crate::segment::{self, Held};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;
use weir_kernel::eval::literal;
use weir_kernel::view::{View, key_group};
use weir_planner::connector::{Position, SplitPosition};
use weir_planner::error::Class;
use weir_planner::id::{JobId, OperatorId, RegionId, TaskId};
use weir_planner::manifest::RegionCut;
use weir_planner::plan::{JobPlan, PlanOperator};
use weir_planner::protocol::StateRead;
use weir_planner::state::{Kept, StateTable, table};

/// What a read goes on from.
pub(super) struct Reading {
    plan: JobPlan,
    operator: PlanOperator,
    told: StateTable,
    cuts: BTreeMap<RegionId, RegionCut>,
    /// Of each task that wrote state, with the epoch and event time of its region.
    tasks: Vec<(Stamp, Vec<Held>)>,
    keys: Vec<(String, ArrayRef)>,
    key_groups: Range<u32>,
}

/// The values of `_epoch` and `_watermark`.
struct Stamp {
    epoch: String,
    watermark_ms: Option<i64>,
}

/// Opens what is asked for.
///
/// Errors: `Bug` for an operator without a state table; `Corrupt` for a segment that is missing; `Retry` when what is decided
/// changes faster than it can be opened.
pub(super) fn hold(decisions: &Decisions, dirs: &JobDirs, job: &JobId, asked: StateRead) -> Result<Reading, Error> {
    let unknown = || Error::new(Class::Bug, format!("job {job} has no state table for operator '{}'", asked.operator));
    let plan = asked.plan.ok_or_else(unknown)?;
    let operator = plan.operators().find(|operator| operator.id == asked.operator).cloned();
    let operator = operator.ok_or_else(unknown)?;
    let told = table(&operator).ok_or_else(unknown)?;
    let (keys, key_groups) = wanted(&plan, &told, &asked.keys)?;
    for _ in 0..TRIES_MAX {
        let cuts = decisions.cut(job)?.map(|cut| cut.regions).unwrap_or_default();
        match open(&plan, &cuts, &operator.id, dirs) {
            Ok(tasks) => return Ok(Reading { plan, operator, told, cuts, tasks, keys, key_groups }),
            // A later decision has replaced it: only what the newest cut still names is really missing.
            Err(error) if error.class == Class::Corrupt && decisions.cut(job)?.map(|cut| cut.regions).unwrap_or_default() != cuts => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(Class::Retry, format!("state of job {job} changes faster than it can be opened; try again")))
}

/// Keys as arrays of the columns' types, and the key groups in which they are: all, where they are not the whole key.
fn wanted(
    plan: &JobPlan,
    told: &StateTable,
    keys: &[(String, weir_planner::expr::Literal)],
) -> Result<(Vec<(String, ArrayRef)>, Range<u32>), Error> {
    let columns = told.schema.to_arrow();
    let mut found = Vec::new();
    for field in columns.fields().iter().take(told.keys) {
        if let Some((name, value)) = keys.iter().find(|(name, _)| name == field.name()) {
            found.push((name.clone(), cast(&literal(value)?, field.data_type()).map_err(|e| Error::because(Class::User, "key", e))?));
        }
    }
    let values: Vec<ArrayRef> = found.iter().map(|(_, value)| value.clone()).collect();
    let whole = !values.is_empty() && values.len() == told.keys;
    let groups = if whole { key_group(&values, plan.max_parallelism).map(|group| group..group + 1)? } else { 0..plan.max_parallelism };
    Ok((found, groups))
}

fn open(
    plan: &JobPlan,
    cuts: &BTreeMap<RegionId, RegionCut>,
    operator: &OperatorId,
    dirs: &JobDirs,
) -> Result<Vec<(Stamp, Vec<Held>)>, Error> {
    // Where state was dealt to several regions, each lists all of it.
    let mut by_task: BTreeMap<(&TaskId, bool), (Stamp, Vec<Held>)> = BTreeMap::new();
    for cut in cuts.values() {
        for of_task in cut.segments.iter().filter(|of_task| of_task.task.operator == *operator) {
            let held = of_task.segments.iter().map(|one| segment::open(&dirs.state, one)).collect::<Result<Vec<_>, _>>()?;
            by_task.insert((&of_task.task, cut.redealt), (Stamp::of(plan, cut), held));
        }
    }
    Ok(by_task.into_values().collect())
}

/// The bound by which a source's watermark trails, where it has event time.
fn bound_ms(plan: &JobPlan, source: &OperatorId) -> Option<i64> {
    plan.sources().find(|(id, _)| *id == source).and_then(|(_, work)| Some(work.time.as_ref()?.bound_ms))
}

impl Stamp {
    /// Event time has come as far as in the partition that is furthest behind, of those that have not ended.
    fn of(plan: &JobPlan, cut: &RegionCut) -> Stamp {
        let timed = cut.positions.iter().filter_map(|(source, positions)| Some((bound_ms(plan, source)?, positions.as_slice())));
        Stamp { epoch: cut.epoch.to_string(), watermark_ms: reached_ms(timed) }
    }
}

/// How far event time has come in partitions of sources with these bounds; `None` while one of them has not told any.
fn reached_ms<'a>(sources: impl Iterator<Item = (i64, &'a [SplitPosition])>) -> Option<i64> {
    let open = |positions: &'a [SplitPosition]| positions.iter().filter(|position| !position.ended);
    let times = sources.flat_map(|(bound_ms, positions)| {
        open(positions).map(move |position| position.time_max_ms.map(|time_ms| time_ms.saturating_sub(bound_ms)))
    });
    // One without any is further behind than all others, as `None` is less than they.
    times.min().flatten()
}

impl Reading {
    /// Writes the rows, at most so many.
    pub(super) fn answer(self, schema: &SchemaRef, limit: Option<u64>, chunks: mpsc::Sender<Result<Bytes, String>>) -> Result<(), Error> {
        let what = |e| Error::because(Class::Bug, "state rows cannot be written as Arrow IPC", e);
        let mut out = Chunks { writer: StreamWriter::try_new(Vec::new(), schema).map_err(what)?, chunks };
        if !out.flush() {
            return Ok(());
        }
        let mut left = limit.unwrap_or(u64::MAX);
        self.rows(schema, &mut |rows| {
            let rows = rows.slice(0, usize::try_from(left).map_or(rows.num_rows(), |left| left.min(rows.num_rows())));
            left -= rows.num_rows() as u64;
            out.writer.write(&rows).map_err(what)?;
            Ok(out.flush() && left > 0)
        })?;
        out.writer.finish().map_err(what)?;
        out.flush();
        Ok(())
    }

    /// Gives batches until there are no more, or `take` says that no more are wanted.
    fn rows(&self, schema: &SchemaRef, take: &mut dyn FnMut(RecordBatch) -> Result<bool, Error>) -> Result<(), Error> {
        if self.told.kept == Kept::Partitions {
            for cut in self.cuts.values() {
                if let Some(rows) = self.partitions(cut, schema)?
                    && !take(rows)?
                {
                    return Ok(());
                }
            }
            return Ok(());
        }
        for (stamp, held) in &self.tasks {
            let images = held.iter().map(|one| one.part(&self.key_groups).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
            if images.is_empty() {
                continue;
            }
            let mut view = View::open(&self.operator, self.plan.max_parallelism, &images, &self.keys)?;
            while let Some(rows) = view.batch()? {
                if !take(stamped(rows.columns(), rows.num_rows(), stamp, schema)?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Where the source has come in each of its partitions; `None` without any.
    fn partitions(&self, cut: &RegionCut, schema: &SchemaRef) -> Result<Option<RecordBatch>, Error> {
        let Some(positions) = cut.positions.get(&self.operator.id).filter(|positions| !positions.is_empty()) else { return Ok(None) };
        let bound = bound_ms(&self.plan, &self.operator.id);
        let moments = |of: &dyn Fn(Option<i64>) -> Option<i64>| -> ArrayRef {
            Arc::new(positions.iter().map(|position| of(position.time_max_ms)).collect::<TimestampMillisecondArray>())
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(positions.iter().map(|position| &position.split))),
            Arc::new(StringArray::from_iter_values(positions.iter().map(|position| text(&position.position)))),
            moments(&|time| time),
            moments(&|time| time.and_then(|time| Some(time.saturating_sub(bound?)))),
            Arc::new(BooleanArray::from_iter(positions.iter().map(|position| Some(position.ended)))),
        ];
        stamped(&columns, positions.len(), &Stamp::of(&self.plan, cut), schema).map(Some)
    }
}

/// A position as people read it.
fn text(position: &Position) -> String {
    match position {
        Position::Row(row) => row.to_string(),
        Position::Offset(offset) => offset.to_string(),
        Position::Byte { offset, .. } => offset.to_string(),
    }
}

/// The columns with epoch and watermark behind them, in the types that were asked for.
fn stamped(columns: &[ArrayRef], count: usize, stamp: &Stamp, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let epoch: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&stamp.epoch, count)));
    let watermark: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![stamp.watermark_ms; count]));
    let all = columns.iter().chain([&epoch, &watermark]);
    let unfit = |e| Error::because(Class::Bug, format!("state does not fit the columns ({})", names(schema)), e);
    let typed = all.zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()).map_err(unfit));
    RecordBatch::try_new(schema.clone(), typed.collect::<Result<Vec<_>, _>>()?).map_err(unfit)
}

fn names(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(split: &str, time_max_ms: Option<i64>, ended: bool) -> SplitPosition {
        SplitPosition { split: split.to_owned(), position: Position::Row(0), time_max_ms, ended }
    }

    /// ST-2: `_watermark` is the least of the partitions that may still give rows: unknown while one of them has given none, and
    /// partitions that have ended do not count.
    #[test]
    fn a_partition_without_rows_holds_the_watermark_back() {
        let reached = |positions: &[SplitPosition]| reached_ms([(100, positions)].into_iter());
        assert_eq!(reached(&[at("0", Some(5_000), false), at("1", Some(3_000), false)]), Some(2_900));
        assert_eq!(reached(&[at("0", Some(5_000), false), at("1", None, false)]), None);
        assert_eq!(reached(&[at("0", Some(5_000), false), at("1", None, true)]), Some(4_900));
        assert_eq!(reached(&[at("0", Some(5_000), true)]), None);
    }
}
