//! Cases through the whole road: `CREATE SOURCE` over files, `CREATE JOB`, the binary, the result table.

use super::case::{COLUMNS, Case, Kind, Policy, Second, call_text, condition_text};
use super::check::{late_by_split, same};
use super::support::process::{Weir, temporary};
use super::support::sql::Sql;
use std::fmt::Write;
use std::path::Path;
use weir_oracle::aggregate::{Call, Function};
use weir_oracle::judge::Fate;
use weir_oracle::shape::Shape;
use weir_oracle::top::columns;
use weir_oracle::value::Value;

/// Whether the case can be said in SQL.
pub fn speaks_sql(case: &Case) -> bool {
    let plain = case.query.empty_within_ms.is_none() && case.early_ms.is_none() && matches!(case.second, Second::Nothing);
    plain && case.policy == Policy::Drop && (!case.unit.integer || case.unit.name == "ms")
}

/// Runs all cases in one process and gives what is wrong.
pub fn faults(cases: &[Case]) -> Vec<String> {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let dirs: Vec<_> = cases.iter().map(|_| temporary()).collect();
    let (mut faults, mut started) = (Vec::new(), Vec::new());
    for ((number, case), dir) in cases.iter().enumerate().zip(&dirs) {
        write(dir.path(), case);
        sql.run(&source(case, number, dir.path()));
        match sql.try_rows(&job(case, number)) {
            Ok(_) => started.push(number),
            Err(error) => faults.push(format!("WEIR_TEST_CASE={}: {error}\n  {}", case.seed, job(case, number))),
        }
    }
    for (number, case) in started.into_iter().map(|number| (number, &cases[number])) {
        sql.run(&format!("WAIT FOR JOB j{number} UNTIL FINISHED TIMEOUT '60s'"));
        if let Err(fault) = check(&sql, case, number) {
            faults.push(format!(
                "WEIR_TEST_CASE={}: {fault}\n  {}\n  {}",
                case.seed,
                source(case, number, Path::new("in")),
                job(case, number)
            ));
        }
    }
    faults
}

fn check(sql: &Sql, case: &Case, number: usize) -> Result<(), String> {
    let answer = case.query.answer(&case.events);
    let keys = case.query.keys.iter().map(|key| (COLUMNS[*key].to_owned(), case.kinds[*key]));
    let bounds = ["window_start", "window_end"].map(|name| (name.to_owned(), Kind::Timestamp));
    let calls = case.query.calls.iter().enumerate().map(|(at, call)| (format!("a{at}"), gives(case, call)));
    let columns_of: Vec<(String, Kind)> = keys.chain(bounds).chain(calls).collect();
    let one = |(name, kind): &(String, Kind)| match kind {
        Kind::Timestamp => format!("CAST(round(extract(epoch FROM {name}) * 1000) AS BIGINT)"),
        _ => name.clone(),
    };
    let list: Vec<String> = columns_of.iter().map(one).collect();
    let rows = sql.rows(&format!("SELECT {} FROM j{number}", list.join(", ")));
    let read = |row: &Vec<String>| row.iter().zip(&columns_of).map(|(cell, (_, kind))| parse(cell, *kind)).collect();
    let got: Vec<Vec<Value>> = rows.iter().map(read).collect();
    same("results", &answer.lines.iter().map(columns).collect::<Vec<_>>(), &got)?;
    let counters = sql.rows(&format!(
        "SELECT (SELECT sum(rows_late_total) FROM weir.job_tasks WHERE job = 'j{number}'), sum(rows_invalid_total), sum(rows_in_total)
         FROM weir.job_sources WHERE job = 'j{number}'"
    ));
    let counters: Vec<usize> = counters[0].iter().map(|cell| cell.parse().unwrap_or(0)).collect();
    let count = |wanted: fn(&Fate) -> bool| answer.fates.iter().filter(|fate| wanted(fate)).count();
    let wanted = [count(|fate| matches!(fate, Fate::Late { .. })), count(|fate| *fate == Fate::Invalid), case.events.len()];
    if counters != wanted {
        return Err(format!("late, without a time, read are {counters:?}, not {wanted:?}"));
    }
    let late =
        sql.rows(&format!("SELECT partition, rows_late_total FROM weir.job_sources WHERE job = 'j{number}' AND rows_late_total <> 0"));
    let by_split = |row: &Vec<String>| {
        let name = Path::new(&row[0]).file_stem().map(|name| name.to_string_lossy().into_owned());
        (name.unwrap_or_default(), row[1].parse().unwrap_or(0))
    };
    late_by_split(&answer, case, &late.iter().map(by_split).collect())
}

/// The kind of an aggregate's result.
fn gives(case: &Case, call: &Call) -> Kind {
    let of = call.column.map_or(Kind::BigInt, |column| case.kinds[column]);
    match (call.function, of) {
        (Function::Count, _) | (Function::Sum, Kind::SmallInt | Kind::Integer) => Kind::BigInt,
        (Function::Avg, Kind::Decimal) => Kind::Decimal,
        (Function::Avg, _) => Kind::Double,
        (Function::Sum | Function::Min | Function::Max, of) => of,
    }
}

/// As the wire writes it.
fn parse(cell: &str, kind: Kind) -> Value {
    if cell == "NULL" {
        return Value::Null;
    }
    match kind {
        Kind::SmallInt | Kind::Integer | Kind::BigInt => Value::Int(cell.parse().unwrap()),
        Kind::Real => Value::Real(cell.parse().unwrap()),
        Kind::Double => Value::Double(cell.parse().unwrap()),
        Kind::Decimal => {
            let places = cell.split_once('.').map_or(0, |(_, places)| places.len());
            Value::Decimal(cell.replace('.', "").parse().unwrap(), places as u8)
        }
        Kind::Text => Value::Text(cell.to_owned()),
        Kind::Boolean => Value::Boolean(cell == "t"),
        Kind::Timestamp => Value::Time(cell.parse().unwrap()),
    }
}

fn source(case: &Case, number: usize, dir: &Path) -> String {
    let columns: Vec<String> = COLUMNS.iter().zip(&case.kinds).map(|(name, kind)| format!("{name} {}", kind.declared())).collect();
    let time = if case.unit.integer { "BIGINT".to_owned() } else { format!("TIMESTAMP({})", case.unit.precision) };
    format!(
        "CREATE SOURCE s{number} ({}, ts {time}, WATERMARK FOR ts AS ts - INTERVAL '{} milliseconds')
  WITH (connector = 'file', path = '{}/*.ndjson', format = 'json', batch.rows = {}, allowed_lateness_ms = {})",
        columns.join(", "),
        case.query.bound_ms,
        dir.display(),
        case.batch_rows,
        case.query.lateness_ms
    )
}

fn job(case: &Case, number: usize) -> String {
    let names = COLUMNS.map(str::to_owned);
    let keys: Vec<&str> = case.query.keys.iter().map(|key| COLUMNS[*key]).collect();
    let call = |(at, call): (usize, &Call)| {
        let filter = call.filter.as_ref().map(|filter| format!(" FILTER (WHERE {})", condition_text(filter, COLUMNS[filter.column])));
        format!("{}{} AS a{at}", call_text(call, &names), filter.unwrap_or_default())
    };
    let calls: Vec<String> = case.query.calls.iter().enumerate().map(call).collect();
    let ms = |length: i64| format!("INTERVAL '{length} milliseconds'");
    let window = match &case.query.shape {
        Shape::Tumbling { size, offset } => format!("tumble(s{number}, ts, {}, {})", ms(*size), ms(*offset)),
        Shape::Sliding { size, slide, offset } => format!("hop(s{number}, ts, {}, {}, {})", ms(*slide), ms(*size), ms(*offset)),
        Shape::Cumulate { size, step, offset } => format!("cumulate(s{number}, ts, {}, {}, {})", ms(*step), ms(*size), ms(*offset)),
        Shape::Days { days, offset, zone } => format!("tumble(s{number}, ts, INTERVAL '{days} days', {}, '{zone}')", ms(*offset)),
        Shape::Session { gap } => format!("session(s{number}, ts, {})", ms(*gap)),
    };
    let group: Vec<&str> = keys.iter().copied().chain(["window_start", "window_end"]).collect();
    let having = case.query.having.as_ref().map(|having| format!(" HAVING {}", condition_text(having, "count(*)"))).unwrap_or_default();
    format!(
        "CREATE JOB j{number} WITH (parallelism = {}) AS\n  SELECT {}, {} FROM {window} GROUP BY {}{having}",
        case.parallelism,
        group.join(", "),
        calls.join(", "),
        group.join(", ")
    )
}

/// One file a split, one row a line.
fn write(dir: &Path, case: &Case) {
    if case.events.is_empty() {
        // A path that matches no file is refused.
        std::fs::write(dir.join("empty.ndjson"), "").unwrap();
    }
    for (split, rows) in case.splits() {
        let mut text = String::new();
        for row in &rows {
            let cell = |(at, value): (usize, &Value)| format!("\"{}\":{}", COLUMNS[at], json(case, at, value));
            writeln!(text, "{{{}}}", row.iter().enumerate().map(cell).collect::<Vec<_>>().join(",")).unwrap();
        }
        std::fs::write(dir.join(format!("{split}.ndjson")), text).unwrap();
    }
}

fn json(case: &Case, column: usize, value: &Value) -> String {
    let float = |text: String, finite: bool| if finite { text } else { format!("\"{}\"", text.replace("inf", "Infinity")) };
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(b) => b.to_string(),
        Value::Int(raw) if column == 5 && !case.unit.integer => format!("\"{}\"", timestamp(i128::from(*raw) * case.unit.nanos())),
        Value::Int(n) => n.to_string(),
        Value::Real(x) => float(format!("{x}"), x.is_finite()),
        Value::Double(x) => float(format!("{x}"), x.is_finite()),
        Value::Decimal(digits, _) => {
            format!("\"{}{}.{:02}\"", if *digits < 0 { "-" } else { "" }, digits.abs() / 100, digits.abs() % 100)
        }
        Value::Text(text) => serde_json::to_string(text).unwrap(),
        Value::Time(ms) => format!("\"{}\"", timestamp(i128::from(*ms) * 1_000_000)),
    }
}

/// Nanoseconds since 1970 as SQL writes them.
fn timestamp(nanos: i128) -> String {
    let (seconds, below) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    let (mut day, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let leap = |year: i128| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let mut year = 1970;
    while day < 0 {
        year -= 1;
        day += if leap(year) { 366 } else { 365 };
    }
    while day >= if leap(year) { 366 } else { 365 } {
        day -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let mut month = 1;
    for days in [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02} {:02}:{:02}:{:02}.{below:09}", day + 1, of_day / 3_600, of_day / 60 % 60, of_day % 60)
}
