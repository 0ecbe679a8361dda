//! Window functions in FROM: which time the windows of a stream follow, and rows that are given with
//! their window instead of being grouped by it.

use super::Lowering;
use super::stream::{Bounds, Out, Stream, Time, Windowing, as_marked, marked, substituted};
use crate::error::{Error, sqlstate};
use crate::sql::convert::column_type;
use crate::sql::window::{Assign, WINDOW_COLUMNS, stays};
use sqlparser::tokenizer::Location;
use weir_planner::expr::{BinaryOp, Expr, Literal};
use weir_planner::schema::ColumnType;
use weir_planner::spec::{TimeMode, Tumbling, WindowShape};
use weir_planner::time::TimeUnit;

impl Lowering<'_> {
    /// Makes a window pending on its input.
    pub(super) fn assign(&mut self, assign: &Assign) -> Result<Stream, Error> {
        let place = Location { line: assign.place.0, column: assign.place.1 };
        let position = self.places.offset(place).unwrap_or(self.fallback);
        let schema = assign.input.schema();
        let stream = self.lower(&assign.input, &vec![None; schema.fields().len()])?;
        let mut stream = self.settle(stream)?;
        if stream.windowing.is_some() {
            let message = "a window over rows that have a window and are not grouped by it is not available";
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
                .with_hint("aggregate in the inner window first: SELECT …, window_time, count(*) FROM tumble(…) GROUP BY …, window_start, window_end, window_time")
                .at(position));
        }
        let at = schema.index_of_column(&assign.time).ok();
        let given = at.and_then(|at| stream.columns.get(at)).map(|out| out.expr.clone());
        let time = match given.as_ref().map(|expr| (expr, stream.time_of(expr))) {
            Some((_, Some(Time::Event))) => None,
            Some((_, Some(Time::Start))) if stream.windows == Some(Bounds::Sessions) => {
                let message =
                    format!("'{}' is the start of sessions, which may be of any length: it is not known to keep up", assign.time.name);
                return Err(Error::new("42P17", message)
                    .with_hint("use their window_time or window_end, which the inner query selects")
                    .at(position));
            }
            Some((Expr::Column(name), Some(Time::Start | Time::End))) => Some(name.clone()),
            Some(_) | None => return Err(self.no_time(&stream, &assign.time.name, position)),
        };
        let ty = at.and_then(|at| column_type(schema.field(at).data_type()));
        let mut kept = schema.fields().iter().map(|field| stays(field.name()));
        stream.columns.retain(|_| kept.next().unwrap_or(true));
        stream.columns.extend(WINDOW_COLUMNS.iter().map(|name| Out { expr: marked(name) }));
        stream.windowing = Some(Windowing { shape: assign.shape.clone(), time, ty, position });
        Ok(stream)
    }

    /// Computes the window of each row where rows are given with it and not grouped by it.
    pub(super) fn assigned(&self, mut stream: Stream) -> Result<Stream, Error> {
        let Some(windowing) = stream.windowing.take() else { return Ok(stream) };
        let time = windowing.time.clone().or_else(|| stream.event_time().map(str::to_owned));
        let (WindowShape::Tumbling(Tumbling { size_ms, offset_ms, timezone: None }), Some(time), Some(ty)) =
            (&windowing.shape, time, windowing.ty)
        else {
            return Err(Error::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "rows with their windows, without GROUP BY, are not available but for tumble in UTC",
            )
            .with_hint("aggregate in the window: SELECT window_start, window_end, count(*) FROM hop(…) GROUP BY window_start, window_end")
            .at(windowing.position));
        };
        let start = start_of(Expr::Column(time), ty, *size_ms, *offset_ms);
        let after = |ms: i64| {
            let interval = Literal::Interval { months: 0, days: 0, nanos: ms.saturating_mul(1_000_000) };
            crate::sql::convert::binary(BinaryOp::Plus, start.clone(), Expr::Literal(interval))
        };
        let column = |expr: Expr| match as_marked(&expr) {
            Some("window_start") => start.clone(),
            Some("window_end") => after(*size_ms),
            Some("window_time") => after(*size_ms - 1),
            Some(_) | None => expr,
        };
        stream.filter = stream.filter.map(|filter| substituted(filter, &column));
        stream.columns.iter_mut().for_each(|out| out.expr = substituted(out.expr.clone(), &column));
        Ok(stream)
    }

    /// A window over a column that does not follow time.
    fn no_time(&self, stream: &Stream, column: &str, position: usize) -> Error {
        let error = |message: String| Error::new("42P17", message).at(position);
        if stream.windows.is_some() {
            return error(format!("'{column}' is not a time of the windows that it comes from"))
                .with_hint("use their window_time, window_start or window_end, which may be renamed but not computed with");
        }
        if let Some(time) = stream.event_time() {
            return error(format!("'{column}' is not the time column: windows follow the column of the source's WATERMARK clause"))
                .with_hint(format!("use '{time}', unchanged: tumble(t, {time}, …)"));
        }
        let Some(readable) = self.scope.sources.get(&stream.origin) else {
            return error(format!("'{column}' is not a time column in every branch of UNION ALL")).with_hint(
                "select in each branch its source's time column, unchanged, or its windows' window_time, under one name and of one type",
            );
        };
        match readable.source.time.timestamp_field.as_ref().filter(|_| readable.source.time.mode == TimeMode::EventTime) {
            Some(time) => {
                error(format!("'{column}' is not the time column of '{}', which the subquery leaves out or computes with", stream.origin))
                    .with_hint(format!("select '{time}' in the subquery, unchanged but for its name"))
            }
            None => error(format!("'{}' has no event time: its source has no WATERMARK clause", stream.origin))
                .with_hint(format!("CREATE SOURCE {} (…, WATERMARK FOR {column} AS {column} - INTERVAL '5 seconds') …", stream.origin)),
        }
    }
}

/// Start of the tumbling window of a time, as TIMESTAMP(3).
fn start_of(time: Expr, ty: ColumnType, size_ms: i64, offset_ms: i64) -> Expr {
    let cast = |expr: Expr, to: ColumnType| Expr::Cast { expr: Box::new(expr), to, lenient: false };
    let millis = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };
    let (time, binned) = match ty {
        ColumnType::Timestamp { zoned: false, .. } => (time, ty),
        _ => (cast(time, millis), millis),
    };
    // An interval holds 292 years in nanoseconds; days carry the rest.
    let size = Literal::Interval { months: 0, days: 0, nanos: size_ms.saturating_mul(1_000_000) };
    let origin = Literal::Timestamp { value: offset_ms, unit: TimeUnit::Millisecond, zoned: false };
    let args = vec![Expr::Literal(size), time, Expr::Literal(origin)];
    let start = Expr::Function { name: "date_bin".to_owned(), version: 1, args };
    if binned == millis { start } else { cast(start, millis) }
}
