//! The oracle itself against a database that knows nothing of it.

use super::case::Case;
use super::check::same;
use super::support;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use weir_oracle::aggregate::{Call, Function};
use weir_oracle::query::{Event, Query};
use weir_oracle::shape::Shape;
use weir_oracle::top::columns;
use weir_oracle::value::{Compare, Condition, Value};

/// The aggregates of `windows.sql`, over k, x, y, d.
fn calls() -> Vec<Call> {
    let call = |function, column| Call { function, column, distinct: false, filter: None };
    let positive = Condition { column: 1, compare: Compare::Greater, constant: Value::Int(0) };
    vec![
        call(Function::Count, None),
        call(Function::Count, Some(1)),
        call(Function::Sum, Some(1)),
        call(Function::Avg, Some(1)),
        call(Function::Min, Some(1)),
        call(Function::Max, Some(1)),
        call(Function::Sum, Some(2)),
        call(Function::Min, Some(2)),
        call(Function::Max, Some(2)),
        call(Function::Sum, Some(3)),
        Call { distinct: true, ..call(Function::Count, Some(1)) },
        Call { filter: Some(positive), ..call(Function::Count, None) },
        call(Function::Min, Some(0)),
    ]
}

fn values(random: &mut StdRng) -> Vec<Value> {
    let text = ["a", "A", "ä", "b b", "zz"].choose(random).unwrap();
    let double = *[f64::NAN, f64::INFINITY, -0.0, 0.25, -7.5, 1e12, 0.1].choose(random).unwrap();
    let all = [
        Value::Text((*text).to_owned()),
        Value::Int(random.random_range(-5..5_i64) * *[1, 1, 1_000_000_007].choose(random).unwrap()),
        Value::Double(double),
        Value::Decimal(random.random_range(-500..500), 2),
    ];
    all.into_iter().map(|value| if random.random_range(0..8) == 0 { Value::Null } else { value }).collect()
}

/// Cases whose rows all count: tumbling, sliding and session windows.
fn cases(random: &mut StdRng, count: usize) -> Vec<(Query, Vec<Event>)> {
    let mut cases = Vec::new();
    while cases.len() < count {
        let Case { query, events, .. } = Case::new(random.random());
        let left_out = match query.shape {
            Shape::Cumulate { .. } | Shape::Days { .. } => true,
            // Slow, and nothing new.
            Shape::Sliding { size, slide, .. } => size / slide > 60,
            Shape::Tumbling { .. } | Shape::Session { .. } => false,
        };
        if left_out {
            continue;
        }
        let timed = events.into_iter().filter(|event| event.time_ms.is_some()).take(60);
        let events = timed.map(|event| Event { values: values(random), ..event }).collect();
        let query = Query {
            shape: query.shape,
            keys: vec![0],
            calls: calls(),
            having: None,
            bound_ms: i64::MAX / 4,
            lateness_ms: 0,
            empty_within_ms: None,
        };
        cases.push((query, events));
    }
    cases
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "\\N".to_owned(),
        Value::Int(n) | Value::Time(n) => n.to_string(),
        Value::Double(x) if x.is_infinite() => "Infinity".to_owned(),
        Value::Double(x) => x.to_string(),
        Value::Decimal(digits, _) => format!("{}{}.{:02}", if *digits < 0 { "-" } else { "" }, digits.abs() / 100, digits.abs() % 100),
        Value::Text(text) => text.clone(),
        Value::Real(_) | Value::Boolean(_) => panic!("{value:?} is not in these tables"),
    }
}

fn write(dir: &Path, cases: &[(Query, Vec<Event>)]) {
    let (mut shapes, mut rows) = (String::new(), String::new());
    for (number, (query, events)) in cases.iter().enumerate() {
        let (session, size, slide, shift) = match query.shape {
            Shape::Tumbling { size, offset } => (false, size, size, offset),
            Shape::Sliding { size, slide, offset } => (false, size, slide, offset),
            Shape::Session { gap } => (true, gap, 1, 0),
            Shape::Cumulate { .. } | Shape::Days { .. } => panic!("these are left out"),
        };
        writeln!(shapes, "{number},{session},{size},{slide},{shift}").unwrap();
        for event in events {
            let values: Vec<String> = event.values.iter().map(text).collect();
            writeln!(rows, "{number},{},{}", event.time_ms.unwrap(), values.join(",")).unwrap();
        }
    }
    std::fs::write(dir.join("cases.csv"), shapes).unwrap();
    std::fs::write(dir.join("events.csv"), rows).unwrap();
    let sql = include_str!("windows.sql").replace("{dir}", dir.to_str().unwrap());
    std::fs::write(dir.join("windows.sql"), sql).unwrap();
}

/// Lines of the database by case, as values of the kinds that the oracle gives.
fn read(dir: &Path) -> BTreeMap<usize, Vec<Vec<Value>>> {
    let mut lines: BTreeMap<usize, Vec<Vec<Value>>> = BTreeMap::new();
    for line in std::fs::read_to_string(dir.join("answer.csv")).unwrap().lines() {
        let cells: Vec<&str> = line.split(',').collect();
        let null = |cell: &str, of: fn(&str) -> Value| if cell == "\\N" { Value::Null } else { of(cell) };
        let int = |at: usize| null(cells[at], |cell| Value::Int(cell.parse().unwrap()));
        let time = |at: usize| Value::Time(cells[at].parse().unwrap());
        let double = |at: usize| null(cells[at], |cell| Value::Double(cell.parse().unwrap()));
        let name = |at: usize| null(cells[at], |cell| Value::Text(cell.to_owned()));
        let decimal = |at: usize| null(cells[at], |cell| Value::Decimal(cell.replace('.', "").parse().unwrap(), 2));
        let mut row = vec![name(3), time(1), time(2), int(4), int(5), int(6), double(7), int(8), int(9)];
        row.extend([double(10), double(11), double(12), decimal(13), int(14), int(15), name(16)]);
        lines.entry(cells[0].parse().unwrap()).or_default().push(row);
    }
    lines
}

/// Compares the oracle with DuckDB over so many cases; with `WEIR_TEST_DATABASE=program` with the database
/// that this program runs a script in.
///
/// Errors: the first case in which they differ.
pub fn compare(random: &mut StdRng, count: usize) -> Result<(), String> {
    let python = support::tree_root().join("tests/.env/bin/python");
    assert!(python.exists(), "{} is not there: run tests/run once (tests/run --setup is enough)", python.display());
    let cases = cases(random, count);
    let dir = support::process::temporary();
    write(dir.path(), &cases);
    // Any other that takes this SQL, by a program that is given the script.
    let mut command = std::env::var_os("WEIR_TEST_DATABASE").map_or_else(
        || {
            let mut command = Command::new(python);
            command.args(["-c", "import duckdb, sys; duckdb.connect().execute(open(sys.argv[1]).read())"]);
            command
        },
        Command::new,
    );
    command.arg(dir.path().join("windows.sql"));
    let done = support::process::finish(command, support::PATIENCE);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let answers = read(dir.path());
    for (number, (query, events)) in cases.iter().enumerate() {
        let ours: Vec<Vec<Value>> = query.answer(events).lines.iter().map(columns).collect();
        let theirs = answers.get(&number).cloned().unwrap_or_default();
        same("lines of the oracle", &theirs, &ours).map_err(|fault| format!("{:?}: {fault}", query.shape))?;
    }
    Ok(())
}
