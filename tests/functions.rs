//! Golden vectors of every scalar function, operator and cast: what a stored expression means stays as it is.
//!
//! A block of `tests/functions/*.txt` is an SQL expression, the columns that it reads, its bound forms as plans store
//! them, and rows of values with what comes out:
//!
//! ```text
//! upper(a)
//!   columns a TEXT
//!   bound {"expr":{"function":{"name":"upper","version":1,"args":[{"column":"a"}]}},"type":"TEXT","nullable":true}
//!   'abc' -> 'ABC'
//!   NULL -> NULL
//! ```
//!
//! Values are bare or quoted, and ` | ` stands between them; `-> error WORDS` is an error that has these words. Further
//! lines: `differs` says what Postgres does otherwise, `from` where a value comes from if not from where the head of the
//! file says, `retired` that the text no longer binds to the bound form. Expected values are never written by a program.
//! `WEIR_GOLDEN=write` adds the bound forms that are missing, beside those that are there: an old form stays, since old
//! plans hold it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "functions/block.rs"]
mod block;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use block::{Block, Want, blocks, column, shown};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_kernel::envelope::Data;
use weir_kernel::eval::{Evaluator, functions};
use weir_kernel::origin::Origins;
use weir_planner::expr::Typed;
use weir_planner::id::OperatorId;
use weir_planner::spec::OperatorKind;

/// 2024-02-29 23:59:58.500 UTC, the processing time of all vectors.
const NOW_MS: i64 = 1_709_251_198_500;
/// 2024-02-29 12:00:00 UTC, the event time of all rows.
const ROW_MS: i64 = 1_709_208_000_000;

/// Functions without vectors, and why no job can call them.
const NOT_IN_JOBS: &[(&str, &[&str])] =
    &[("they take a union, which neither columns nor other functions give", &["union_extract", "union_tag"])];

fn bind(block: &Block) -> Result<Typed, String> {
    let columns: Vec<Value> =
        block.columns.iter().map(|column| serde_json::json!({"name": column.name, "type": column.ty.to_string()})).collect();
    let spec = serde_json::json!({
        "id": "j",
        "operators": [
            {"id": "s", "kind": "source"},
            {"id": "m", "kind": "map", "config": {"project": [format!("{} AS result", block.sql)]}},
            {"id": "o", "kind": "sink"},
        ],
        "edges": [{"id": "e1", "from": "s", "to": "m"}, {"id": "e2", "from": "m", "to": "o"}],
        "sources": [{"operator_id": "s", "input_type": "values", "config": {"rows": []}, "schema": columns}],
        "sinks": [{"operator_id": "o", "output_type": "drop"}],
    });
    let mut document = weir_frontend::yaml::parse(&spec.to_string()).map_err(|error| format!("{error:?}"))?;
    let job = document.jobs.first_mut().ok_or("no job")?;
    weir_frontend::sql::bind_spec(job).map_err(|faults| faults.iter().map(|fault| fault.message.clone()).collect::<String>())?;
    match &job.operators[1].kind {
        OperatorKind::Map(map) => Ok(map.project[0].bound.clone().unwrap().value),
        other => Err(format!("{other:?}")),
    }
}

/// Names and versions of the functions that a stored form calls.
fn calls(stored: &Value, found: &mut BTreeSet<(String, u64)>) {
    match stored {
        Value::Object(fields) => {
            if let Some(Value::Object(call)) = fields.get("function")
                && let (Some(name), Some(version)) = (call.get("name").and_then(Value::as_str), call.get("version").and_then(Value::as_u64))
            {
                found.insert((name.to_owned(), version));
            }
            fields.values().for_each(|value| calls(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| calls(value, found)),
        _ => {}
    }
}

fn calls_of(typed: &Typed) -> BTreeSet<(String, u64)> {
    let mut found = BTreeSet::new();
    calls(&serde_json::to_value(typed).unwrap(), &mut found);
    found
}

/// Runs rows through one stored form: a text for each, or the error of them all.
fn run(block: &Block, typed: &Typed, rows: &[&block::Row]) -> Result<Vec<String>, String> {
    let evaluator = Evaluator::typed(&OperatorId::new("m").unwrap(), typed, &block.schema()).map_err(|error| error.to_string())?;
    let columns: Result<Vec<ArrayRef>, String> = block
        .columns
        .iter()
        .enumerate()
        .map(|(at, of)| column(&rows.iter().map(|row| row.values[at].as_deref()).collect::<Vec<_>>(), of.ty))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(block.schema().to_arrow()), columns?).map_err(|error| error.to_string())?;
    let data = Data { rows: batch, times: Int64Array::from_value(ROW_MS, rows.len()), stamps: None, origins: Origins::Unknown };
    let array = evaluator.evaluate(&data, NOW_MS).map_err(|error| error.to_string())?;
    assert_eq!(array.data_type(), &typed.ty.to_arrow());
    shown(&array)
}

/// What is wrong with one stored form.
fn faults(block: &Block, typed: &Typed) -> Vec<String> {
    let mut faults = Vec::new();
    let (fine, wrong): (Vec<_>, Vec<_>) = block.rows.iter().partition(|row| matches!(row.want, Want::Value(_)));
    for row in wrong {
        let Want::Error(words) = &row.want else { continue };
        match run(block, typed, &[row]) {
            Err(error) if error.contains(words.as_str()) => {}
            other => faults.push(format!("{}: expected the error '{words}', found {other:?}", block.at(row.line))),
        }
    }
    let wanted: Vec<Option<&str>> =
        fine.iter().map(|row| if let Want::Value(value) = &row.want { value.as_deref() } else { None }).collect();
    let wanted = match column(&wanted, typed.ty).and_then(|array| shown(&array)) {
        Ok(wanted) => wanted,
        Err(error) => return vec![format!("{}: {}: {error}", block.at(block.line), block.sql)],
    };
    // All rows as one batch, and on an error again one by one, to see which it is.
    let found: Vec<Result<String, String>> = match run(block, typed, &fine) {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(_) => fine.iter().map(|row| run(block, typed, &[row]).map(|mut found| found.remove(0))).collect(),
    };
    for ((row, wanted), found) in fine.iter().zip(wanted).zip(found) {
        if found.as_ref() != Ok(&wanted) {
            faults.push(format!("{}: {}: expected {wanted}, found {found:?}", block.at(row.line), block.sql));
        }
    }
    faults
}

/// PLAN-1: every bound form that ever was stored gives what it gave.
#[test]
fn stored_forms_keep_their_meaning() {
    let blocks = blocks();
    let mut wrong = Vec::new();
    for block in &blocks {
        for stored in &block.bound {
            match serde_json::from_str::<Typed>(stored) {
                Ok(typed) => wrong.extend(faults(block, &typed)),
                Err(error) => wrong.push(format!("{}: the bound form cannot be read: {error}", block.at(block.line))),
            }
        }
        if block.rows.is_empty() || block.bound.is_empty() {
            wrong.push(format!("{}: {} needs rows, and a bound form (WEIR_GOLDEN=write)", block.at(block.line), block.sql));
        }
    }
    assert!(blocks.len() > 100, "{} blocks", blocks.len());
    assert!(wrong.is_empty(), "{} of {} blocks:\n{}", wrong.len(), blocks.len(), wrong.join("\n"));
}

/// Every function that a job may call has a vector of the version that is bound today.
#[test]
fn every_function_has_vectors_of_its_version() {
    let (mut stored, mut current) = (BTreeMap::<_, usize>::new(), BTreeSet::new());
    let mut wrong = Vec::new();
    for mut block in blocks() {
        if !block.retired {
            match bind(&block) {
                Ok(typed) => {
                    let text = serde_json::to_string(&typed).unwrap();
                    if !block.bound.contains(&text) {
                        if std::env::var("WEIR_GOLDEN").is_ok_and(|value| value == "write") {
                            block.add(&text);
                        } else {
                            wrong.push(format!("{}: {} now binds to {text}: WEIR_GOLDEN=write adds it", block.at(block.line), block.sql));
                        }
                    }
                    current.extend(calls_of(&typed));
                }
                Err(error) => wrong.push(format!("{}: {}: {error}", block.at(block.line), block.sql)),
            }
        }
        for text in &block.bound {
            for call in serde_json::from_str::<Typed>(text).iter().flat_map(calls_of) {
                *stored.entry(call).or_default() += block.rows.len();
            }
        }
    }
    let excepted: BTreeSet<&str> = NOT_IN_JOBS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let registry = functions();
    for name in &registry {
        let version = current.iter().filter(|(found, _)| found == name).map(|(_, version)| *version).max();
        let rows = version.map_or(0, |version| stored.get(&((*name).to_owned(), version)).copied().unwrap_or(0));
        match (excepted.contains(name), rows) {
            (true, 0) | (false, 2..) => {}
            (true, _) => wrong.push(format!("{name} has vectors: take it off the list of exceptions")),
            (false, _) => wrong.push(format!("{name} has {rows} rows of its current version {version:?}: it needs two")),
        }
    }
    wrong.extend(excepted.difference(&registry).map(|name| format!("{name} is no function: take it off the list of exceptions")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
