//! Which window a row belongs to, and whether it comes too late for it (EV-4).

use crate::envelope::Data;
use crate::error::Error;
use crate::operator::Context;
use crate::state::layout::Marks;
use arrow::array::{BooleanArray, Int64Array};
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::WindowWork;
use weir_planner::spec::LatePolicy;
use weir_planner::time::tumble_start;
use weir_planner::window::{Aligned, Windows};

/// Size and offset of tumbling windows.
pub(crate) fn tumbling(id: &OperatorId, work: &WindowWork) -> Result<(i64, i64), Error> {
    match work.windows {
        Windows::Aligned(Aligned::Tumbling { size_ms, offset_ms }) if size_ms > 0 => Ok((size_ms, offset_ms)),
        Windows::Aligned(_) | Windows::Session { .. } => {
            Err(Error::new(Class::User, format!("operator '{id}': windows of this shape are not available yet")))
        }
    }
}

/// Judges rows of one window operator, in whichever stage has them first.
pub(crate) struct Judge {
    id: OperatorId,
    size_ms: i64,
    offset_ms: i64,
    lateness_ms: i64,
    late: LatePolicy,
}

impl Judge {
    /// A judge for planned windows.
    ///
    /// Errors: windows without a length.
    pub(crate) fn new(id: &OperatorId, work: &WindowWork) -> Result<Self, Error> {
        let (size_ms, offset_ms) = tumbling(id, work)?;
        Ok(Judge { id: id.clone(), size_ms, offset_ms, lateness_ms: work.allowed_lateness_ms, late: work.late })
    }

    /// Start of the window of a time.
    ///
    /// Errors: a window whose end, or end of lateness, is out of range.
    pub(crate) fn start(&self, time_ms: i64) -> Result<i64, Error> {
        let start = tumble_start(time_ms, self.size_ms, self.offset_ms);
        let fits = |start: &i64| start.checked_add(self.size_ms).is_some_and(|end| end.checked_add(self.lateness_ms).is_some());
        start.filter(fits).ok_or_else(|| {
            Error::new(Class::User, format!("operator '{}': the window of event time {time_ms} ms is out of range", self.id))
        })
    }

    /// First and last window of rows that are not late; `None` without rows.
    pub(crate) fn span(&self, data: &Data) -> Result<Option<(i64, i64)>, Error> {
        let times = data.times.values();
        let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else { return Ok(None) };
        Ok(Some((self.start(*least)?, self.start(*greatest)?)))
    }

    /// The rows that are not late for their window and whose window is not gone by `marks`.
    ///
    /// The others are counted: late by their stamp, or because the window had been retired (which
    /// can only be after a split was idle or was found late, and is counted apart as well), or
    /// evicted (WIN-5). Late ones of either kind are routed where the plan says so, each once, with
    /// by how much: how far its stamp lies past the end of the window's lateness or, where the
    /// window had been retired, how far past its end windows had been retired. `behind`: how many
    /// rows each one stands for.
    pub(crate) fn on_time(&self, data: Data, behind: Option<&Int64Array>, marks: Marks, context: &mut Context<'_>) -> Result<Data, Error> {
        let gone = marks.fired_ms.max(marks.evicted_ms);
        let Some(least) = data.times.values().iter().min() else { return Ok(data) };
        if data.stamps.is_none() && self.start(*least)? + self.size_ms > gone {
            return Ok(data);
        }
        let weight = |row: usize| behind.map_or(1, |behind| behind.value(row).unsigned_abs());
        let (mut late, mut retired, mut evicted) = (0, 0, 0);
        let mut keep = Vec::with_capacity(data.len());
        let (mut is_late, mut late_by) = (Vec::new(), Vec::new());
        for (row, time) in data.times.values().iter().enumerate() {
            let end = self.start(*time)? + self.size_ms;
            let stamp = data.stamps.as_ref().map_or(i64::MIN, |stamps| stamps.value(row));
            let by_ms = if end + self.lateness_ms <= stamp {
                Some(stamp.saturating_sub(end + self.lateness_ms))
            } else if end <= marks.fired_ms {
                retired += weight(row);
                Some(marks.fired_ms.saturating_sub(end))
            } else {
                None
            };
            let kept = by_ms.is_none() && end > marks.evicted_ms;
            match by_ms {
                Some(_) => late += weight(row),
                None if !kept => evicted += weight(row),
                None => {}
            }
            keep.push(kept);
            is_late.push(by_ms.is_some());
            late_by.extend(by_ms);
        }
        context.metrics.rows_late.fetch_add(late, Ordering::Relaxed);
        context.metrics.rows_retired.fetch_add(retired, Ordering::Relaxed);
        context.metrics.rows_evicted.fetch_add(evicted, Ordering::Relaxed);
        if late + evicted == 0 {
            return Ok(data);
        }
        match self.late {
            LatePolicy::Route if !late_by.is_empty() => {
                let late = data.filter(&BooleanArray::from(is_late))?;
                context.late(&late, &Int64Array::from(late_by))?;
            }
            LatePolicy::Route | LatePolicy::Drop | LatePolicy::Update => {}
        }
        data.filter(&BooleanArray::from(keep))
    }
}
