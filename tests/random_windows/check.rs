//! What a run gave against the oracle's answer.

use super::case::{COLUMNS, Case, Kind, Policy, Second};
use super::columns::rows;
use super::world::Found;
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use std::collections::BTreeMap;
use weir_oracle::aggregate::{Call, Function};
use weir_oracle::judge::Fate;
use weir_oracle::query::{Answer, Line};
use weir_oracle::shape::Span;
use weir_oracle::top::{columns, rows_of, top};
use weir_oracle::update::{Again, Emission, fault};
use weir_oracle::value::Value;

/// What is wrong, if anything. `counters`: the run had one attempt, so that its counters are those of all rows.
pub fn check(case: &Case, found: &Found, counters: bool) -> Result<(), String> {
    let answer = case.query.answer(&case.events);
    let sinks = found.rows.get("sink").cloned().unwrap_or_default();
    types(case, &sinks)?;
    if case.policy == Policy::Update || case.early_ms.is_some() {
        updates(case, &sinks)?;
    } else {
        same("results", &expected(case, &answer), &flat(&sinks))?;
    }
    let late: Vec<i128> =
        answer.fates.iter().filter_map(|fate| if let Fate::Late { by_ms } = fate { Some(*by_ms) } else { None }).collect();
    if case.policy == Policy::Route {
        routed(case, &answer, found)?;
    }
    if counters {
        let invalid = answer.fates.iter().filter(|fate| **fate == Fate::Invalid).count() as u64;
        let second = found.late.get("second").copied().unwrap_or(0);
        let counted = [found.late.values().sum::<u64>(), second, found.invalid, found.read, found.retired, found.evicted, found.left];
        let wanted = [late.len() as u64, 0, invalid, case.events.len() as u64, 0, 0, 0];
        if counted != wanted {
            return Err(format!(
                "late, late for the second operator, without a time, read, retired, evicted, entries left are {counted:?}, not {wanted:?}"
            ));
        }
        late_by_split(&answer, case, &found.late_of)?;
        let routes = if case.policy == Policy::Route { late.len() as u64 + invalid } else { 0 };
        if found.routed != routes {
            return Err(format!("{} rows were routed, not {routes}", found.routed));
        }
    }
    Ok(())
}

/// EV-4: each late row is counted for its own partition, and for no other.
pub fn late_by_split(answer: &Answer, case: &Case, found: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for (event, fate) in case.events.iter().zip(&answer.fates) {
        if let Fate::Late { .. } = fate {
            *wanted.entry(event.split.to_string()).or_default() += 1;
        }
    }
    if *found == wanted { Ok(()) } else { Err(format!("late rows by partition are {found:?}, not {wanted:?}")) }
}

/// E8: what is wrong with a run whose tasks held only so many entries: each result must be complete, and
/// results are missing only where entries were evicted. Gives whether any were.
pub fn check_evicting(case: &Case, found: &Found) -> Result<bool, String> {
    let answer = case.query.answer(&case.events);
    // Keys, start and end are those of one line.
    let bounds = case.query.keys.len() + 2;
    let whole: BTreeMap<Vec<Value>, Vec<Value>> = answer.lines.iter().map(columns).map(|row| (row[..bounds].to_vec(), row)).collect();
    let got = flat(found.rows.get("sink").map_or(&[][..], Vec::as_slice));
    for row in &got {
        let line = whole.get(&row[..bounds]);
        if line.is_none_or(|line| !line.iter().zip(row).all(|(x, y)| x.is_near(y))) {
            return Err(format!("{row:?} is not a whole result"));
        }
    }
    let (all, evicted) = (answer.lines.len(), found.evicted > 0);
    if evicted != (got.len() < all) || got.len() > all {
        return Err(format!("{} results of {all}, and {} were counted as evicted", got.len(), found.evicted));
    }
    let late = answer.fates.iter().filter(|fate| matches!(fate, Fate::Late { .. })).count() as u64;
    let counted = found.late.values().sum::<u64>();
    if counted != late {
        return Err(format!("{counted} rows were counted late, not {late}"));
    }
    Ok(evicted)
}

/// Every row.
pub fn flat(batches: &[RecordBatch]) -> Vec<Vec<Value>> {
    batches.iter().flat_map(rows).collect()
}

/// The rows that the sink must get.
fn expected(case: &Case, answer: &Answer) -> Vec<Vec<Value>> {
    match &case.second {
        Second::Nothing => answer.lines.iter().map(columns).collect(),
        Second::Top { keys, order, limit } => top(&answer.lines, keys, order, *limit),
        Second::Window { query, by_start } => query.answer(&rows_of(&answer.lines, *by_start)).lines.iter().map(columns).collect(),
    }
}

/// The late route: rows that were late, and those without a time, in the columns that the job reads.
fn routed(case: &Case, answer: &Answer, found: &Found) -> Result<(), String> {
    let batches = || found.rows.get("late").into_iter().flatten();
    let names: Vec<String> = match batches().next() {
        Some(batch) => batch.schema().fields().iter().map(|field| field.name().clone()).collect(),
        None => COLUMNS.iter().copied().chain(["__reason", "__late_by_ms"]).map(str::to_owned).collect(),
    };
    let mut expected: Vec<Vec<Value>> = Vec::new();
    for (event, fate) in case.events.iter().zip(&answer.fates) {
        let (reason, by) = match fate {
            Fate::Late { by_ms } => ("late", Value::Int(*by_ms as i64)),
            Fate::Invalid => ("null_timestamp", Value::Null),
            Fate::Counts { .. } => continue,
        };
        let time = if case.unit.integer { event.values[5].clone() } else { event.time_ms.map_or(Value::Null, Value::Time) };
        let value = |name: &String| match COLUMNS.iter().position(|known| known == name) {
            Some(5) => time.clone(),
            Some(column) => event.values[column].clone(),
            None if name == "__reason" => Value::Text(reason.to_owned()),
            None => by.clone(),
        };
        expected.push(names.iter().map(value).collect());
    }
    same("rows of the late route", &expected, &batches().flat_map(rows).collect::<Vec<_>>())
}

/// Sorts both and names the first difference.
pub fn same(what: &str, expected: &[Vec<Value>], got: &[Vec<Value>]) -> Result<(), String> {
    let (mut expected, mut got) = (expected.to_vec(), got.to_vec());
    expected.sort();
    got.sort();
    let differs = expected.iter().zip(&got).position(|(a, b)| a.len() != b.len() || !a.iter().zip(b).all(|(x, y)| x.is_near(y)));
    if differs.is_none() && expected.len() == got.len() {
        return Ok(());
    }
    let at = differs.unwrap_or(expected.len().min(got.len()));
    let around =
        |rows: &[Vec<Value>]| rows.iter().skip(at.saturating_sub(1)).take(4).map(|row| format!("\n    {row:?}")).collect::<String>();
    Err(format!(
        "{what}: {} rows, not {}; from row {at}\n  got{}\n  expected{}",
        got.len(),
        expected.len(),
        around(&got),
        around(&expected)
    ))
}

fn updates(case: &Case, sinks: &[RecordBatch]) -> Result<(), String> {
    let mut emissions = Vec::new();
    for row in flat(sinks) {
        emissions.push(emission(case.query.keys.len(), row)?);
    }
    let again = Again { early: case.early_ms.is_some(), revised: case.policy == Policy::Update };
    fault(&case.query, &case.events, &emissions, again).map_or(Ok(()), Err)
}

fn emission(keys: usize, mut row: Vec<Value>) -> Result<Emission, String> {
    let Some(Value::Boolean(update)) = row.pop() else { return Err("the mark of a result is no boolean".to_owned()) };
    let values = row.split_off(keys + 2);
    let (Value::Time(start), Value::Time(end)) = (&row[keys], &row[keys + 1]) else { return Err(format!("{row:?} has no bounds")) };
    let span = Span { start: i128::from(*start), end: i128::from(*end) };
    row.truncate(keys);
    Ok(Emission { line: Line { keys: row, span, values }, update })
}

/// E7: columns have the types that the documents promise.
fn types(case: &Case, sinks: &[RecordBatch]) -> Result<(), String> {
    let Second::Nothing = case.second else { return Ok(()) };
    let of = |call: &Call| {
        let kind = call.column.map(|column| case.kinds[column]);
        match (call.function, kind) {
            (Function::Count, _) | (Function::Sum, Some(Kind::SmallInt | Kind::Integer | Kind::BigInt)) => DataType::Int64,
            (Function::Sum, Some(Kind::Decimal)) => DataType::Decimal128(38, 2),
            (Function::Avg, Some(Kind::Decimal)) => DataType::Decimal128(16, 6),
            (Function::Avg, _) => DataType::Float64,
            (Function::Sum | Function::Min | Function::Max, Some(kind)) => arrow_type(kind),
            (Function::Sum | Function::Min | Function::Max, None) => DataType::Null,
        }
    };
    let wanted: Vec<DataType> = case.query.calls.iter().map(of).collect();
    for batch in sinks {
        let got = batch.schema().fields().iter().skip(case.query.keys.len() + 2).map(|field| field.data_type().clone()).collect::<Vec<_>>();
        if !got.starts_with(&wanted) {
            return Err(format!("the aggregates are {got:?}, not {wanted:?}"));
        }
    }
    Ok(())
}

fn arrow_type(kind: Kind) -> DataType {
    match kind {
        Kind::SmallInt => DataType::Int16,
        Kind::Integer => DataType::Int32,
        Kind::BigInt => DataType::Int64,
        Kind::Real => DataType::Float32,
        Kind::Double => DataType::Float64,
        Kind::Decimal => DataType::Decimal128(12, 2),
        Kind::Text => DataType::Utf8,
        Kind::Boolean => DataType::Boolean,
        Kind::Timestamp => DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None),
    }
}
