//! Cells of a `values` source against its columns, by the rules that the start reads them with.

use super::Fault;
use crate::schema::ColumnType;
use crate::spec::{Source, SourceColumn};
use crate::value::{self, Why};
use serde_json::Value as Json;

/// Most faults of one list of rows.
const FAULTS_MAX: usize = 20;

/// Every row has a cell for each column, and every cell is of its column's type.
pub(super) fn check(source: &Source, rows: &[Vec<Json>], path: &str, faults: &mut Vec<Fault>) {
    let (id, columns) = (&source.operator_id, &source.schema);
    let before = faults.len();
    for (at, row) in rows.iter().enumerate() {
        if faults.len() - before >= FAULTS_MAX {
            return;
        }
        if row.len() != columns.len() {
            let cells = if row.len() == 1 { "1 cell".to_owned() } else { format!("{} cells", row.len()) };
            let message = format!("row {} of source '{id}' has {cells}, but {} columns are declared", at + 1, columns.len());
            let fault = Fault::new("values_width", format!("{path}.rows[{at}]"), message);
            faults.push(fault.with_hint("give each row one cell for each column"));
            continue;
        }
        for (column, (cell, declared)) in row.iter().zip(columns).enumerate() {
            let Err((what, hint)) = fits(cell, declared, source) else { continue };
            let message = format!("row {} of source '{id}' has {what} in column '{}'", at + 1, declared.name);
            faults.push(Fault::new("values_type", format!("{path}.rows[{at}][{column}]"), message).with_hint(hint));
        }
    }
}

/// Whether a cell is a value of its column; else what it is, and the way out.
fn fits(cell: &Json, column: &SourceColumn, source: &Source) -> Result<(), (String, String)> {
    let ty = column.ty;
    let numeric = column.timestamp_unit.or(source.timestamp_unit);
    let read = match cell {
        Json::Null if column.not_null => return Err(("no value".to_owned(), "the column is NOT NULL: give a value".to_owned())),
        Json::Null => Ok(()),
        Json::Bool(_) => {
            if matches!(ty, ColumnType::Boolean | ColumnType::Text) {
                Ok(())
            } else {
                Err(Why::Shape)
            }
        }
        Json::Array(_) | Json::Object(_) => {
            if ty == ColumnType::Text {
                Ok(())
            } else {
                Err(Why::Shape)
            }
        }
        Json::Number(number) => {
            let text = number.to_string();
            match ty {
                ColumnType::Timestamp { unit, .. } => value::timestamp_number(text.as_bytes(), unit, numeric).map(drop),
                ColumnType::Text => Ok(()),
                ColumnType::Date | ColumnType::Boolean | ColumnType::Bytea => Err(Why::Shape),
                ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt | ColumnType::Real | ColumnType::Double => {
                    of_text(&text, ty, None)
                }
                ColumnType::Decimal { .. } | ColumnType::Interval => of_text(&text, ty, None),
            }
        }
        Json::String(text) => of_text(text, ty, numeric),
    };
    let shown: String = match cell {
        Json::String(text) => format!("'{}'", text.chars().take(40).collect::<String>()),
        other => other.to_string().chars().take(40).collect(),
    };
    read.map_err(|why| match why {
        Why::Shape => (format!("{shown}, which is not of type {ty}"), format!("write a value of type {ty}, or declare the column as TEXT")),
        Why::Range => (format!("{shown}, which is out of range for {ty}"), "declare the column with a wider type".to_owned()),
        Why::Unit => (
            format!("the number {shown}, which is no {ty} without a unit"),
            "declare timestamp_unit: s, ms, us or ns, or write the time as text".to_owned(),
        ),
    })
}

fn of_text(text: &str, ty: ColumnType, numeric: Option<crate::time::TimeUnit>) -> Result<(), Why> {
    let bytes = text.as_bytes();
    match ty {
        ColumnType::Boolean => value::boolean(bytes).map(drop),
        ColumnType::SmallInt => value::integer(bytes).and_then(|x| i16::try_from(x).map_err(|_| Why::Range)).map(drop),
        ColumnType::Integer => value::integer(bytes).and_then(|x| i32::try_from(x).map_err(|_| Why::Range)).map(drop),
        ColumnType::BigInt => value::integer(bytes).map(drop),
        ColumnType::Real => value::real(bytes).map(drop),
        ColumnType::Double => value::double(bytes).map(drop),
        ColumnType::Decimal { precision, scale } => value::decimal(bytes, precision, scale).map(drop),
        ColumnType::Text => Ok(()),
        ColumnType::Bytea => value::bytes(bytes, &mut Vec::new()),
        ColumnType::Date => value::date(bytes).map(drop),
        ColumnType::Timestamp { unit, .. } => value::timestamp(bytes, unit, numeric).map(drop),
        // No source has such a column: that has its own fault.
        ColumnType::Interval => Ok(()),
    }
}
