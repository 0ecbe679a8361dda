//! Times of rows from a column that windows follow in place of the rows' event time (EV-10).

use crate::envelope::{Data, broken};
use crate::error::Error;
use crate::operator::Context;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::{cast, is_not_null};
use arrow::datatypes::{DataType, Int64Type};
use std::sync::atomic::Ordering;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;
use weir_planner::plan::TimeColumn;
use weir_planner::schema::Schema;
use weir_planner::time::TimeUnit;

/// Where times come from.
pub(crate) struct Timing {
    id: OperatorId,
    /// Position, name and unit; none where rows have their own time, or a first stage has taken it.
    column: Option<(usize, String, TimeUnit)>,
    trail_ms: i64,
}

impl Timing {
    /// Finds the column of `time`, where windows follow one, in `input`, where times are taken here.
    ///
    /// Errors: no such column, or one that is no time.
    pub(crate) fn new(id: &OperatorId, time: Option<&TimeColumn>, input: Option<&Schema>) -> Result<Self, Error> {
        let column = match time.zip(input) {
            None => None,
            Some((time, input)) => {
                let name = &time.column;
                let missing = || Error::new(Class::Bug, format!("operator '{id}': its input has no time column '{name}'"));
                let at = input.index_of(name).ok_or_else(missing)?;
                let ty = input.0[at].ty;
                let unit = ty.time_unit(TimeUnit::Millisecond).ok_or_else(|| {
                    let message = format!(
                        "operator '{id}': the column '{name}' of type {} is no time; windows follow TIMESTAMP, or BIGINT in milliseconds",
                        ty.to_arrow()
                    );
                    Error::new(Class::User, message)
                })?;
                Some((at, name.clone(), unit))
            }
        };
        Ok(Timing { id: id.clone(), column, trail_ms: time.map_or(0, |time| time.trail_ms) })
    }

    /// The rows with their times from the column, where there is one. Their stamps are taken less the trail, as the watermark
    /// is: so rows of a source stay late or in time by the order of their split alone (EV-3). Those that
    /// are NULL in the column are counted and left out (EV-5).
    ///
    /// Errors: a time that milliseconds cannot hold.
    pub(crate) fn timed(&self, data: Data, context: &mut Context<'_>) -> Result<Data, Error> {
        let Some((at, name, unit)) = &self.column else { return Ok(data) };
        let nulls = data.rows.column(*at).null_count();
        let data = if nulls == 0 {
            data
        } else {
            context.metrics.rows_invalid.fetch_add(nulls as u64, Ordering::Relaxed);
            let there = is_not_null(data.rows.column(*at)).map_err(broken)?;
            data.filter(&there)?
        };
        let numbers = cast(data.rows.column(*at), &DataType::Int64).map_err(broken)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let times = match unit {
            TimeUnit::Millisecond => numbers.clone(),
            TimeUnit::Second | TimeUnit::Microsecond | TimeUnit::Nanosecond => {
                let millis = |value: &i64| {
                    unit.to_millis(*value).ok_or_else(|| {
                        let message = format!("operator '{}': the time {value} of column '{name}' is out of range", self.id);
                        Error::new(Class::User, message)
                    })
                };
                numbers.values().iter().map(millis).collect::<Result<Vec<_>, _>>().map(Int64Array::from)?
            }
        };
        let stamps = data.stamps.map(|stamps| stamps.unary(|stamp: i64| stamp.saturating_sub(self.trail_ms)));
        Ok(Data { times, stamps, ..data })
    }

    /// The watermark of these times by that of the input.
    pub(crate) fn watermark(&self, input_ms: i64) -> i64 {
        if input_ms == i64::MAX { input_ms } else { input_ms.saturating_sub(self.trail_ms) }
    }
}
