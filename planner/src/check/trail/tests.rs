//! Which columns windows may follow, with the trail of each (EV-10).

use crate::check::check;
use crate::check::tests::{bound, changed};
use crate::compile::compile;
use crate::expr::{BinaryOp, Expr, Literal, Typed};
use crate::plan::{TimeColumn, WindowWork, Work};
use crate::schema::ColumnType;
use crate::spec::{Horizon, JobSpec, OperatorKind, Projection};
use crate::time::TimeUnit;
use serde_json::{Value, json};

const TIME: ColumnType = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };

fn column(name: &str) -> Expr {
    Expr::Column(name.to_owned())
}

fn shifted(op: BinaryOp, name: &str, ms: i64) -> Expr {
    let by = Expr::Literal(Literal::Interval { months: 0, days: 0, nanos: ms * 1_000_000 });
    Expr::Binary { op, left: Box::new(column(name)), right: Box::new(by) }
}

/// The sample with its time column passed to the window `count`, and the window `again` behind it
/// that follows `field`; `project` stands in a map between them.
fn chained(first: Value, keys: Value, field: &str, project: &[(Expr, &str)]) -> JobSpec {
    let second =
        json!({"window": {"tumbling": {"size_ms": 5000}}, "aggregates": [{"expr": "count(*)", "as": "n"}], "timestamp_field": field});
    let mut spec = bound(changed(&[
        ("/operators/1/config/project", json!(["bidder", "price", "date_time"])),
        ("/operators/2/config", json!({"window": first, "keys": keys, "aggregates": [{"expr": "sum(price)", "as": "total"}]})),
        ("/operators/-", json!({"id": "between", "kind": "map", "config": {}})),
        ("/operators/-", json!({"id": "again", "kind": "window", "config": second})),
        ("/edges/2", json!({"id": "e3", "from": "count", "to": "between"})),
        ("/edges/-", json!({"id": "e5", "from": "between", "to": "again"})),
        ("/edges/-", json!({"id": "e6", "from": "again", "to": "out"})),
        ("/sinks/1/config/key", json!([])),
    ]));
    let projections = project.iter().map(|(expr, name)| {
        let value = Typed { expr: expr.clone(), ty: TIME, nullable: false };
        let mut one: crate::spec::Expression<Projection> = serde_json::from_value(json!("x")).unwrap();
        one.bound = Some(Box::new(Projection { name: (*name).to_owned(), value }));
        one
    });
    for operator in &mut spec.operators {
        match (operator.id.as_str(), &mut operator.kind) {
            ("between", OperatorKind::Map(map)) => map.project = projections.clone().collect(),
            // The door types the time column as it is declared.
            ("slim", OperatorKind::Map(map)) => map.project[2].bound.as_mut().unwrap().value.ty = TIME,
            _ => {}
        }
    }
    spec
}

fn work(spec: &JobSpec, id: &str) -> WindowWork {
    let plan = compile(spec, Horizon::Local).unwrap();
    let found = plan.operators().find(|operator| operator.id.as_str() == id);
    match &found.unwrap().work {
        Work::Window(window) => window.clone(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn trails(spec: &JobSpec, expected: Option<(&str, i64)>) {
    let expected = expected.map(|(column, trail_ms)| TimeColumn { column: column.to_owned(), trail_ms });
    assert_eq!(work(spec, "again").time, expected);
}

#[track_caller]
fn refused(spec: &JobSpec, message: &str, hint: &str) {
    let faults = check(spec, Horizon::Local);
    assert_eq!(
        faults.iter().map(|fault| (fault.code.as_str(), fault.path.as_str())).collect::<Vec<_>>(),
        [("no_trail", "operators[6].config.timestamp_field")]
    );
    assert_eq!((faults[0].message.as_str(), faults[0].hint.as_str()), (message, hint));
}

fn minute() -> Value {
    json!({"tumbling": {"size_ms": 60_000}})
}

/// EV-10: `window_end` trails by nothing, `window_start` by the longest window.
#[test]
fn bounds_of_windows_have_trails() {
    trails(&chained(minute(), json!([]), "window_end", &[]), Some(("window_end", 0)));
    trails(&chained(minute(), json!([]), "window_start", &[]), Some(("window_start", 60_000)));
    trails(&chained(json!({"sliding": {"size_ms": 9000, "slide_ms": 2000}}), json!([]), "window_start", &[]), Some(("window_start", 9000)));
    trails(
        &chained(json!({"cumulate": {"max_size_ms": 8000, "step_ms": 2000}}), json!([]), "window_start", &[]),
        Some(("window_start", 8000)),
    );
    // Two days with an hour more where clocks are put back, and a day more for zones that put them back by one.
    let days = json!({"tumbling": {"size_ms": 172_800_000, "timezone": "Europe/Berlin"}});
    trails(&chained(days, json!([]), "window_start", &[]), Some(("window_start", 259_200_000)));
    trails(&chained(json!({"session": {"gap_ms": 1000}}), json!([]), "window_end", &[]), Some(("window_end", 0)));
}

/// EV-10: a session may be of any length, so that its start keeps up with nothing.
#[test]
fn starts_of_sessions_cannot_be_followed() {
    refused(
        &chained(json!({"session": {"gap_ms": 1000}}), json!([]), "window_start", &[]),
        "window 'again' cannot follow 'window_start': its values are not known to keep up with the event time of their rows, since sessions of window 'count' may be of any length",
        "columns that would do: window_end; or leave timestamp_field out, so that the window follows the event time of its rows",
    );
}

/// EV-10: shifts by a constant and new names keep what is known; `window_end` less 1 ms is the event
/// time itself, which needs no column.
#[test]
fn constant_shifts_move_a_trail() {
    let with = |expr: Expr| chained(minute(), json!([]), "at", &[(expr, "at")]);
    trails(&with(column("window_end")), Some(("at", 0)));
    trails(&with(shifted(BinaryOp::Minus, "window_end", 1)), None);
    trails(&with(shifted(BinaryOp::Minus, "window_end", 500)), Some(("at", 499)));
    trails(&with(shifted(BinaryOp::Plus, "window_start", 10_000)), Some(("at", 50_000)));
    // What lies ahead of the watermark does not trail.
    trails(&with(shifted(BinaryOp::Plus, "window_end", 500)), Some(("at", 0)));
    let finer = Expr::Cast {
        expr: Box::new(column("window_end")),
        to: ColumnType::Timestamp { unit: TimeUnit::Nanosecond, zoned: false },
        lenient: false,
    };
    trails(&with(finer), Some(("at", 0)));
    let seconds = Expr::Cast {
        expr: Box::new(column("window_end")),
        to: ColumnType::Timestamp { unit: TimeUnit::Second, zoned: false },
        lenient: false,
    };
    trails(&with(seconds), Some(("at", 998)));
    let twice = Expr::Binary { op: BinaryOp::Plus, left: Box::new(column("window_end")), right: Box::new(column("total")) };
    refused(
        &with(twice),
        "window 'again' cannot follow 'at': its values are not known to keep up with the event time of their rows, since map 'between' computes it",
        "leave timestamp_field out, so that the window follows the event time of its rows",
    );
    let month = Expr::Literal(Literal::Interval { months: 1, days: 0, nanos: 0 });
    let month = Expr::Binary { op: BinaryOp::Minus, left: Box::new(column("window_end")), right: Box::new(month) };
    assert_eq!(check(&with(month), Horizon::Local)[0].code, "no_trail", "months have no length");
}

/// EV-10: a key that is the event time lies within its window.
#[test]
fn keys_trail_by_the_window() {
    trails(&chained(minute(), json!(["date_time"]), "date_time", &[]), Some(("date_time", 60_000)));
    let sessions = chained(json!({"session": {"gap_ms": 1000}}), json!(["date_time"]), "date_time", &[]);
    assert_eq!(check(&sessions, Horizon::Local)[0].code, "no_trail");
}

/// EV-10: the source's own column needs no trail, so that stamps stay in force; its other columns have none.
#[test]
fn the_time_of_the_source_is_the_event_time() {
    let with = |field: &str| {
        let mut spec = chained(minute(), json!([]), "window_end", &[]);
        let OperatorKind::Window(window) = &mut spec.operators[2].kind else { panic!() };
        window.timestamp_field = Some(field.to_owned());
        spec
    };
    assert_eq!(work(&with("date_time"), "count").time, None);
    let faults = check(&with("price"), Horizon::Local);
    assert_eq!(
        faults[0].message,
        "window 'count' cannot follow 'price': its values are not known to keep up with the event time of their rows, since the watermark of source 'bids' is about 'date_time'"
    );
    assert_eq!(
        faults[0].hint,
        "columns that would do: date_time; or leave timestamp_field out, so that the window follows the event time of its rows"
    );
    let codes =
        |spec: &JobSpec| check(spec, Horizon::Local).iter().map(|fault| format!("{} {}", fault.code, fault.path)).collect::<Vec<_>>();
    assert_eq!(codes(&with("nothing")), ["unknown_column operators[2].config.timestamp_field"]);
    let mut text = with("bidder");
    let OperatorKind::Map(map) = &mut text.operators[1].kind else { panic!() };
    map.project[0].bound.as_mut().unwrap().value.ty = ColumnType::Text;
    assert_eq!(codes(&text), ["bad_time_type operators[2].config.timestamp_field"]);
}

/// EV-10: integers in seconds are the event time where they come from the source, and nothing behind a window.
#[test]
fn integers_in_other_units() {
    let with = |unit: &str, field: &str| {
        let mut spec = chained(minute(), json!(["date_time"]), field, &[]);
        spec.sources[0].schema[3] = serde_json::from_value(json!({"name": "date_time", "type": "BIGINT", "timestamp_unit": unit})).unwrap();
        let OperatorKind::Map(map) = &mut spec.operators[1].kind else { panic!() };
        map.project[2].bound.as_mut().unwrap().value.ty = ColumnType::BigInt;
        let OperatorKind::Window(window) = &mut spec.operators[2].kind else { panic!() };
        window.timestamp_field = Some("date_time".to_owned());
        spec
    };
    assert_eq!(work(&with("s", "window_end"), "count").time, None);
    trails(&with("ms", "date_time"), Some(("date_time", 60_000)));
    assert_eq!(check(&with("s", "date_time"), Horizon::Local)[0].code, "no_trail");
}

/// EV-10: where inputs meet, the longest trail holds, and none if one has none.
#[test]
fn the_longest_trail_of_several_inputs_holds() {
    let both = |other: Value| {
        let mut spec = chained(minute(), json!([]), "window_start", &[]);
        let json =
            json!({"id": "also", "kind": "window", "config": {"window": other, "aggregates": [{"expr": "sum(price)", "as": "total"}]}});
        let mut window: crate::spec::Operator = serde_json::from_value(json).unwrap();
        let (OperatorKind::Window(to), OperatorKind::Window(from)) = (&mut window.kind, &spec.operators[2].kind) else { panic!() };
        to.aggregates.clone_from(&from.aggregates);
        spec.operators.push(window);
        spec.operators[5].kind = OperatorKind::Union;
        for (id, from, to) in [("e7", "slim", "also"), ("e8", "also", "between")] {
            spec.edges.push(serde_json::from_value(json!({"id": id, "from": from, "to": to})).unwrap());
        }
        spec
    };
    trails(&both(json!({"tumbling": {"size_ms": 90_000}})), Some(("window_start", 90_000)));
    trails(&both(json!({"tumbling": {"size_ms": 10_000}})), Some(("window_start", 60_000)));
    assert_eq!(check(&both(json!({"session": {"gap_ms": 10_000}})), Horizon::Local)[0].code, "no_trail");
}

/// EV-4: rows of windows are never late, so that a window of windows waits for no lateness.
#[test]
fn windows_of_windows_wait_for_nobody() {
    let mut spec = chained(minute(), json!([]), "window_end", &[]);
    spec.sources[0].time.allowed_lateness_ms = 7000;
    assert_eq!((work(&spec, "count").allowed_lateness_ms, work(&spec, "again").allowed_lateness_ms), (7000, 0));
}
