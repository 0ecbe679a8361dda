//! `POST /sql`: statements in, columns and rows out.

use super::problem::Problem;
use super::tree;
use crate::error::{Error as SqlError, sqlstate};
use crate::options::fit::{Fit, Path};
use crate::options::shape::{Field, Kind, Object};
use crate::query::from_datafusion;
use crate::sql::{Engine, Outcome, parse};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use futures::StreamExt;
use serde_json::{Value, json};
use weir_planner::schema::ColumnType;

/// Most rows of one answer; larger results go over Postgres wire.
const ROWS_MAX: usize = 10_000;

const STATEMENT: Object =
    Object { what: "statement", fields: &[Field { name: "sql", aliases: &[], kind: Kind::Text, required: true }], short: None };

/// Runs each statement in turn; the answer is that of the last one that gave rows, with every notice.
pub(super) async fn run(State(engine): State<Engine>, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let node = tree(&headers, body).await?;
    let mut fit = Fit::default();
    let asked = fit.object(&node, &STATEMENT, &Path::root()).unwrap_or_default();
    if !fit.faults.is_empty() {
        return Err(Problem::invalid(fit.faults));
    }
    let text = asked.get("sql").and_then(Value::as_str).unwrap_or_default();
    let failed = |error: SqlError| Problem::of_statement(error, text);
    let (mut columns, mut rows, mut notices, mut tag) = (json!([]), Vec::new(), Vec::new(), String::new());
    for statement in parse(text).map_err(failed)? {
        match engine.run(&statement, &[]).await.map_err(failed)? {
            Outcome::Done { tag: done, notices: more } => {
                tag = done;
                notices.extend(more);
            }
            Outcome::Rows { schema, mut stream, tag: word } => {
                columns = described(&schema);
                rows.clear();
                while let Some(batch) = stream.next().await {
                    let batch = batch.map_err(|error| failed(from_datafusion(&error, text)))?;
                    rows.extend(rows_of(&batch, ROWS_MAX - rows.len()).map_err(failed)?);
                    if rows.len() >= ROWS_MAX {
                        notices.push(format!("the answer is cut after {ROWS_MAX} rows; use LIMIT, or read it over Postgres wire"));
                        break;
                    }
                }
                tag = word.map_or_else(|| format!("SELECT {}", rows.len()), str::to_owned);
            }
        }
    }
    Ok(Json(json!({ "columns": columns, "rows": rows, "notices": notices, "tag": tag })))
}

fn described(schema: &SchemaRef) -> Value {
    let name = |ty: &DataType| ColumnType::from_arrow(ty).map_or_else(|| ty.to_string(), |ty| ty.to_string());
    schema.fields().iter().map(|field| json!({ "name": field.name(), "type": name(field.data_type()) })).collect()
}

/// Rows as lists in column order: numbers and booleans as JSON has them, all else as text.
fn rows_of(batch: &RecordBatch, most: usize) -> Result<Vec<Value>, SqlError> {
    let options = FormatOptions::default();
    let wrong = |error: arrow::error::ArrowError| SqlError::new(sqlstate::INTERNAL_ERROR, error.to_string());
    let formatters = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).map_err(wrong))
        .collect::<Result<Vec<_>, _>>()?;
    let row = |at: usize| {
        let cell = |(column, formatter): (&std::sync::Arc<dyn Array>, &ArrayFormatter<'_>)| {
            if column.is_null(at) {
                return Ok(Value::Null);
            }
            let text = || formatter.value(at).try_to_string().map(Value::from).map_err(wrong);
            match column.data_type() {
                DataType::Boolean => Ok(json!(column.as_boolean().value(at))),
                DataType::Int16 => Ok(json!(column.as_primitive::<Int16Type>().value(at))),
                DataType::Int32 => Ok(json!(column.as_primitive::<Int32Type>().value(at))),
                DataType::Int64 => Ok(json!(column.as_primitive::<Int64Type>().value(at))),
                DataType::Float32 if column.as_primitive::<Float32Type>().value(at).is_finite() => {
                    Ok(json!(column.as_primitive::<Float32Type>().value(at)))
                }
                DataType::Float64 if column.as_primitive::<Float64Type>().value(at).is_finite() => {
                    Ok(json!(column.as_primitive::<Float64Type>().value(at)))
                }
                _ => text(),
            }
        };
        batch.columns().iter().zip(&formatters).map(cell).collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    (0..batch.num_rows().min(most)).map(row).collect()
}
