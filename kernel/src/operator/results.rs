//! Rows that aggregates give.

use crate::envelope::{Data, batch, broken};
use crate::error::Error;
use crate::eval::Evaluator;
use crate::origin::Origins;
use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{Schema as ArrowSchema, TimestampMillisecondType};
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;

/// What windows come to: keys, bounds in ms, aggregates and, where there is one, a mark that all rows share, such as that of
/// updates (WIN-2, WIN-4).
pub(crate) struct WindowRows {
    pub keys: Vec<ArrayRef>,
    pub starts: Int64Array,
    pub ends: Int64Array,
    pub aggregates: Vec<ArrayRef>,
    pub mark: Option<bool>,
}

impl WindowRows {
    /// The rows in the columns of `output`; their time is the last ms of their window (EV-10).
    pub(crate) fn data(self, id: &OperatorId, output: &Arc<ArrowSchema>) -> Result<Data, Error> {
        let count = self.ends.len();
        let times = self.ends.unary(|end| end - 1);
        let mut columns = self.keys;
        for bounds in [self.starts, self.ends] {
            let array: ArrayRef = Arc::new(bounds.reinterpret_cast::<TimestampMillisecondType>());
            let field = output.fields().get(columns.len());
            let field = field.ok_or_else(|| Error::new(Class::Bug, format!("operator '{id}' lacks its output columns")))?;
            columns.push(cast(&array, field.data_type()).map_err(broken)?);
        }
        columns.extend(self.aggregates);
        if let Some(mark) = self.mark {
            columns.push(Arc::new(BooleanArray::from(vec![mark; count])));
        }
        Ok(Data { rows: batch(output.clone(), columns, count)?, times, stamps: None, origins: Origins::Unknown })
    }
}

/// The rows for which `HAVING` holds, where there is one.
pub(crate) fn having(condition: Option<&Evaluator>, data: Data, wall_ms: i64) -> Result<Data, Error> {
    match condition {
        None => Ok(data),
        Some(condition) => data.filter(&condition.holds(&data, wall_ms)?),
    }
}
