//! The image of a window operator's state.
//!
//! Image columns (format version 2), rows ascending by the first:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `__key_group` | UInt32 | by the key law |
//! | `__pane_start` | Int64 | start of the pane, ms |
//! | `__pane_from` | Int64 | end of the first window for which the rows count, ms |
//! | the keys | as in the input | by their names |
//! | `__a_end` | Int64 | end of the last window: the entry is gone when that is, ms |
//! | `__a<i>_<part>` | by accumulator | state of aggregate i |
//!
//! Where keys get rows for windows without any (C17), entries of the pane that starts and counts from the
//! least time there is hold the time of each key's last row, and end when no window needs it.
//!
//! Scalars: `windows`, which says by a hash how time is cut, `fired_ms` (windows that end at or
//! before it have been given), `retired_ms` (those take no rows any more) and `evicted_below_ms` (WIN-5).

use crate::accumulate::accumulator;
use crate::envelope::broken;
use crate::error::Error;
use crate::io::StateImage;
use crate::state::merge::ENTRY_END;
use arrow::array::{AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, UInt32Type};
use std::ops::Range;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::expr::Aggregate;
use weir_planner::id::OperatorId;
use weir_planner::keygroup;
use weir_planner::window::Aligned;

/// First image column.
pub const KEY_GROUP: &str = "__key_group";
/// Second image column where an entry lasts for a length of time from its start on.
pub const WINDOW_START: &str = "__window_start";
/// Second image column of a window operator.
pub const PANE_START: &str = "__pane_start";
/// Third one.
pub const PANE_FROM: &str = "__pane_from";
/// Columns of a window operator's image before its keys.
pub(crate) const LEADING: usize = 3;

/// How far windows are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Windows ending at or before this have been given, or had no rows.
    pub fired_ms: i64,
    /// Windows ending at or before this take no rows any more. No greater than `fired_ms`.
    pub retired_ms: i64,
    /// Windows ending at or before this were evicted.
    pub evicted_ms: i64,
}

/// What a table is made for.
pub struct Shape {
    /// Operator that the state belongs to.
    pub operator: OperatorId,
    /// Its subtask.
    pub subtask: u32,
    /// How time is cut.
    pub windows: Aligned,
    /// Fired windows stay until they are retired.
    pub revises: bool,
    /// Key columns.
    pub keys: Vec<(String, DataType)>,
    /// Output name and aggregate; the greatest time of a key's rows last, where keys get rows for windows without any.
    pub aggregates: Vec<(String, Aggregate)>,
    /// Keys without rows in a window get a row for it when their last one lies no further before its end, ms (C17).
    pub empty_within_ms: Option<i64>,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Key groups of this task.
    pub owned: Range<u32>,
}

impl Marks {
    /// Nothing is gone.
    pub const NONE: Marks = Marks { fired_ms: i64::MIN, retired_ms: i64::MIN, evicted_ms: i64::MIN };

    /// Windows ending at or before this take no rows any more.
    pub fn gone_ms(&self) -> i64 {
        self.retired_ms.max(self.evicted_ms)
    }
}

/// How time is cut, as a number: other windows have another one.
pub(crate) fn fingerprint(windows: &Aligned) -> i64 {
    let text = match windows {
        Aligned::Tumbling { size_ms, offset_ms } => format!("tumbling {size_ms} {offset_ms}"),
        Aligned::Sliding { size_ms, slide_ms, offset_ms } => format!("sliding {size_ms} {slide_ms} {offset_ms}"),
        Aligned::Cumulate { max_size_ms, step_ms, offset_ms } => format!("cumulate {max_size_ms} {step_ms} {offset_ms}"),
        Aligned::Calendar { days, offset_ms, zone } => format!("calendar {days} {offset_ms} {}", zone.name()),
    };
    keygroup::hash(text.as_bytes()) as i64
}

pub(crate) fn image_schema(shape: &Shape) -> Result<Arc<ArrowSchema>, Error> {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    let mut fields = vec![Field::new(KEY_GROUP, DataType::UInt32, false), number(PANE_START), number(PANE_FROM)];
    fields.extend(shape.keys.iter().map(|(name, ty)| Field::new(name, ty.clone(), true)));
    fields.push(number(ENTRY_END));
    for (i, (_, aggregate)) in shape.aggregates.iter().enumerate() {
        let parts = accumulator(aggregate)?.image_fields();
        fields.extend(parts.into_iter().map(|(part, ty)| Field::new(format!("__a{i}_{part}"), ty, true)));
    }
    Ok(Arc::new(ArrowSchema::new(fields)))
}

/// The rows of an image that lie in these key groups; `None` when its columns are not those of `schema`.
pub(crate) fn owned_rows(rows: &RecordBatch, schema: &ArrowSchema, owned: &Range<u32>) -> Result<Option<RecordBatch>, Error> {
    let fits = rows.num_columns() == schema.fields().len()
        && rows.schema().fields().iter().zip(schema.fields()).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
    if !fits {
        return Ok(None);
    }
    let groups = rows.column(0).as_primitive::<UInt32Type>();
    let mask: BooleanArray = groups.iter().map(|group| group.map(|group| owned.contains(&group))).collect();
    filter_record_batch(rows, &mask).map(Some).map_err(broken)
}

/// A scalar of an image.
pub(crate) fn scalar(image: &StateImage, name: &str) -> Result<i64, Error> {
    let found = image.scalars.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    found.ok_or_else(|| Error::new(Class::Corrupt, format!("stored state of operator '{}' lacks the mark {name}", image.operator)))
}

/// The rows in ascending order of the first column; equal ones keep their order.
pub(crate) fn sorted(rows: &RecordBatch) -> Result<RecordBatch, Error> {
    let groups = rows.column(0).as_primitive::<UInt32Type>().values();
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    order.sort_by_key(|row| groups[*row as usize]);
    take_record_batch(rows, &UInt32Array::from(order)).map_err(broken)
}

/// Sorts both by key group, of which there are `max_parallelism`: a counting sort.
pub(crate) fn sort_together(max_parallelism: u32, key_groups: &mut Vec<u32>, groups: &mut Vec<u32>) {
    let mut next = vec![0usize; max_parallelism as usize + 1];
    key_groups.iter().for_each(|key_group| next[*key_group as usize + 1] += 1);
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let (mut sorted_keys, mut sorted_groups) = (vec![0; groups.len()], vec![0; groups.len()]);
    for (key_group, group) in key_groups.iter().zip(groups.iter()) {
        let place = &mut next[*key_group as usize];
        sorted_keys[*place] = *key_group;
        sorted_groups[*place] = *group;
        *place += 1;
    }
    *key_groups = sorted_keys;
    *groups = sorted_groups;
}
