//! Event time and stamp of each row of one split's batch (EV-1, EV-3, EV-5, EV-9).

use crate::envelope::{Data, broken};
use crate::error::Error;
use crate::origin::Origins;
use crate::side::{ErrorRow, rows};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{cast, filter, filter_record_batch, not};
use arrow::datatypes::{DataType, Int64Type};
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::TimeWork;
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::spec::{ErrorPolicy, LatePolicy};
use weir_planner::time::TimeUnit;

/// Rows with times, and how many were left out and why.
pub struct Timed {
    /// What is left; whoever reads the split knows the origin.
    pub data: Data,
    /// NULL times.
    pub invalid: u64,
    /// Out of range, or too far ahead of the wall clock.
    pub refused: u64,
    /// Late in a job without windows.
    pub late: u64,
    /// Those of them that are routed.
    pub aside: Aside,
}

/// Rows left out that go somewhere else (PLAN-5). Empty where the policies drop and skip.
#[derive(Default)]
pub struct Aside {
    /// Rows with a NULL time.
    pub timeless: Option<RecordBatch>,
    /// Late rows, and by how many ms.
    pub late: Option<(Data, Int64Array)>,
    /// Rows whose time cannot be, or lies too far ahead; without partition.
    pub refused: Vec<ErrorRow>,
}

/// Reason of a row that is too far ahead of the wall clock (EV-9).
const FUTURE: &str = "future";

/// How a source's time column becomes event times.
pub struct Timing {
    operator: OperatorId,
    column: usize,
    name: String,
    unit: TimeUnit,
    ty: ColumnType,
    bound_ms: i64,
    max_future_ms: Option<i64>,
    /// Allowed lateness where rows are judged here.
    judge_ms: Option<i64>,
    /// What becomes of a time out of range.
    on_error: ErrorPolicy,
    /// Rows without a time, and late ones judged here, are routed.
    routes_late: bool,
}

impl Timing {
    /// Finds the time column among `output`.
    ///
    /// Errors: no such column, or not of a time's type.
    pub fn new(operator: &OperatorId, work: &TimeWork, on_error: ErrorPolicy, output: &Schema, judge: bool) -> Result<Self, Error> {
        let Some(column) = output.index_of(&work.column) else {
            return Err(Error::new(Class::Bug, format!("source '{operator}' does not give its time column '{}'", work.column)));
        };
        let ty = output.0[column].ty;
        let unit = ty.time_unit(work.unit).ok_or_else(|| {
            let (name, found) = (&work.column, ty.to_arrow());
            let message = format!("source '{operator}': column '{name}' of type {found} cannot be event time: use BIGINT or TIMESTAMP");
            Error::new(Class::User, message)
        })?;
        Ok(Timing {
            operator: operator.clone(),
            column,
            name: work.column.clone(),
            unit,
            ty: output.0[column].ty,
            bound_ms: work.bound_ms,
            max_future_ms: work.max_future_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            judge_ms: judge.then_some(work.allowed_lateness_ms),
            on_error,
            routes_late: match work.late {
                LatePolicy::Route => true,
                LatePolicy::Drop | LatePolicy::Update => false,
            },
        })
    }

    /// Watermark of a split whose running maximum is `max`. The end of time is kept for the end.
    pub fn watermark(&self, max: i64) -> i64 {
        max.saturating_sub(self.bound_ms).min(i64::MAX - 1)
    }

    /// Gives rows their times and stamps and moves the split's running maximum.
    ///
    /// Errors: a time that milliseconds cannot hold, where the source does not skip; names the column.
    pub fn stamp(&self, rows: RecordBatch, max: &mut Option<i64>, wall_ms: i64) -> Result<Timed, Error> {
        let column = rows.column(self.column).clone();
        let mut aside = Aside::default();
        let (rows, column, invalid) = if column.null_count() == 0 {
            (rows, column, 0)
        } else {
            let invalid = column.null_count() as u64;
            let valid: BooleanArray = (0..column.len()).map(|row| Some(column.is_valid(row))).collect();
            if self.routes_late {
                let timeless: BooleanArray = (0..column.len()).map(|row| Some(column.is_null(row))).collect();
                aside.timeless = Some(filter_record_batch(&rows, &timeless).map_err(broken)?);
            }
            (filter_record_batch(&rows, &valid).map_err(broken)?, filter(&column, &valid).map_err(broken)?, invalid)
        };
        let (rows, times, unfit) = self.times(rows, &column, &mut aside)?;
        let (rows, times, future) = self.guard(rows, times, wall_ms, &mut aside)?;
        let mut running = max.unwrap_or(i64::MIN);
        let mut behind = false;
        for time in times.values() {
            running = running.max(*time);
            behind |= *time < running.saturating_sub(self.bound_ms);
        }
        let stamps = behind.then(|| self.stamps(&times, max.unwrap_or(i64::MIN)));
        if !times.is_empty() {
            *max = Some(running);
        }
        let mut timed =
            Timed { data: Data { rows, times, stamps, origins: Origins::Unknown }, invalid, refused: unfit + future, late: 0, aside };
        if let Some(lateness) = self.judge_ms {
            self.judge(&mut timed, lateness)?;
        }
        Ok(timed)
    }

    /// Takes out the rows that are late, of a job without windows.
    fn judge(&self, timed: &mut Timed, lateness: i64) -> Result<(), Error> {
        let Some(stamps) = &timed.data.stamps else { return Ok(()) };
        let pairs = timed.data.times.values().iter().zip(stamps.values());
        let keep: BooleanArray = pairs.clone().map(|(time, stamp)| Some(time.saturating_add(lateness) >= *stamp)).collect();
        timed.late = (keep.len() - keep.true_count()) as u64;
        if timed.late == 0 {
            return Ok(());
        }
        if self.routes_late {
            let by = pairs.map(|(time, stamp)| stamp.saturating_sub(time.saturating_add(lateness))).filter(|by| *by > 0);
            let late_by_ms = Int64Array::from_iter_values(by);
            timed.aside.late = Some((timed.data.filter(&not(&keep).map_err(broken)?)?, late_by_ms));
        }
        timed.data = timed.data.filter(&keep)?;
        Ok(())
    }

    /// Keeps rows that are left out here for the error sink.
    fn refuse(&self, rows: &RecordBatch, keep: &BooleanArray, reason: &str, aside: &mut Aside) -> Result<(), Error> {
        match self.on_error {
            ErrorPolicy::Fail | ErrorPolicy::Skip => return Ok(()),
            ErrorPolicy::Route => {}
        }
        let refused = filter_record_batch(rows, &not(keep).map_err(broken)?).map_err(broken)?;
        let error = |raw| ErrorRow { raw, reason: reason.to_owned(), partition: None, position: None };
        aside.refused.extend(rows::json(&refused)?.into_iter().map(error));
        Ok(())
    }

    fn stamps(&self, times: &Int64Array, before: i64) -> Int64Array {
        let mut running = before;
        let stamp = |time: &i64| {
            running = running.max(*time);
            running.saturating_sub(self.bound_ms)
        };
        Int64Array::from_iter_values(times.values().iter().map(stamp))
    }

    /// Times in ms of a column without nulls, and how many rows have none that fits.
    fn times(&self, rows: RecordBatch, column: &ArrayRef, aside: &mut Aside) -> Result<(RecordBatch, Int64Array, u64), Error> {
        let raw = cast(column, &DataType::Int64).map_err(broken)?;
        let raw = raw.as_primitive::<Int64Type>();
        if self.unit == TimeUnit::Millisecond {
            return Ok((rows, Int64Array::new(raw.values().clone(), None), 0));
        }
        let mut times = Vec::with_capacity(raw.len());
        let mut keep = Vec::new();
        for (row, value) in raw.values().iter().enumerate() {
            match self.unit.to_millis(*value) {
                Some(time) => {
                    times.push(time);
                    if !keep.is_empty() {
                        keep.push(true);
                    }
                }
                None => match self.on_error {
                    ErrorPolicy::Skip | ErrorPolicy::Route => {
                        keep.resize(row, true);
                        keep.push(false);
                    }
                    ErrorPolicy::Fail => {
                        let message = format!(
                            "source '{}': {value} of column '{}', {}, is out of range for event time in milliseconds",
                            self.operator, self.name, self.ty
                        );
                        return Err(Error::new(Class::User, message));
                    }
                },
            }
        }
        let times = Int64Array::from(times);
        if keep.is_empty() {
            return Ok((rows, times, 0));
        }
        let unfit = (raw.len() - times.len()) as u64;
        let keep = BooleanArray::from(keep);
        let reason = format!("field '{}', {}: the value is out of range for event time in milliseconds", self.name, self.ty);
        self.refuse(&rows, &keep, &reason, aside)?;
        Ok((filter_record_batch(&rows, &keep).map_err(broken)?, times, unfit))
    }

    /// Leaves out rows too far ahead of the wall clock: they would carry the watermark away (C09).
    fn guard(
        &self,
        rows: RecordBatch,
        times: Int64Array,
        wall_ms: i64,
        aside: &mut Aside,
    ) -> Result<(RecordBatch, Int64Array, u64), Error> {
        let Some(ahead) = self.max_future_ms else {
            return Ok((rows, times, 0));
        };
        let limit = wall_ms.saturating_add(ahead);
        if times.values().iter().all(|time| *time <= limit) {
            return Ok((rows, times, 0));
        }
        let keep: BooleanArray = times.values().iter().map(|time| Some(*time <= limit)).collect();
        let future = (keep.len() - keep.true_count()) as u64;
        self.refuse(&rows, &keep, FUTURE, aside)?;
        let kept = filter(&times, &keep).map_err(broken)?.as_primitive::<Int64Type>().clone();
        Ok((filter_record_batch(&rows, &keep).map_err(broken)?, kept, future))
    }
}

#[cfg(test)]
mod tests;
