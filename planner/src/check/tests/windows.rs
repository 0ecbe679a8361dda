//! Windows of every shape, tops, and results that come again: what is allowed and what is not.

use super::{bound, changed, check, gives, notices, sample};
use crate::check::graph::Graph;
use crate::check::update::replaces_by;
use crate::spec::Horizon;
use serde_json::{Value, json};

const CONFIG: &str = "operators[2].config";

fn shaped(shape: Value, expected: &[(&str, &str)]) {
    let expected: Vec<(&str, String)> = expected.iter().map(|(code, path)| (*code, format!("{CONFIG}.window.{path}"))).collect();
    let expected: Vec<(&str, &str)> = expected.iter().map(|(code, path)| (*code, path.as_str())).collect();
    gives(&[("/operators/2/config/window", shape)], &expected);
}

/// The words of the only fault of a changed sample.
#[track_caller]
fn said(changes: &[(&str, Value)]) -> (String, String) {
    let faults = check(&bound(changed(changes)), Horizon::Local);
    assert_eq!(faults.len(), 1, "{faults:?}");
    (faults[0].message.clone(), faults[0].hint.clone())
}

/// A hundred years, the longest that anything in event time may be.
const LONGEST: i64 = 3_162_240_000_000;

/// WIN-1: lengths from 1 ms to a hundred years, and any offset, also before 1970 and beyond the size.
#[test]
fn shapes_have_ranges() {
    shaped(json!({"tumbling": {"size_ms": 1000, "offset_ms": -7_777}}), &[]);
    shaped(json!({"tumbling": {"size_ms": LONGEST, "offset_ms": LONGEST}}), &[]);
    shaped(
        json!({"tumbling": {"size_ms": LONGEST + 1, "offset_ms": -LONGEST - 1}}),
        &[("out_of_range", "tumbling.size_ms"), ("out_of_range", "tumbling.offset_ms")],
    );
    shaped(json!({"sliding": {"size_ms": 5, "slide_ms": 2, "offset_ms": -999}}), &[]);
    // Gaps between windows are allowed.
    shaped(json!({"sliding": {"size_ms": 2, "slide_ms": 5}}), &[]);
    shaped(json!({"sliding": {"size_ms": 100_000, "slide_ms": 1}}), &[]);
    shaped(json!({"sliding": {"size_ms": 100_001, "slide_ms": 1}}), &[("too_many_windows", "sliding.slide_ms")]);
    shaped(
        json!({"sliding": {"size_ms": 0, "slide_ms": -1, "offset_ms": LONGEST + 1}}),
        &[("out_of_range", "sliding.size_ms"), ("out_of_range", "sliding.slide_ms"), ("out_of_range", "sliding.offset_ms")],
    );
    shaped(json!({"session": {"gap_ms": 1}}), &[]);
    shaped(json!({"session": {"gap_ms": 0}}), &[("out_of_range", "session.gap_ms")]);
    shaped(json!({"session": {"gap_ms": LONGEST + 1}}), &[("out_of_range", "session.gap_ms")]);
    shaped(json!({"cumulate": {"max_size_ms": 6000, "step_ms": 2000, "offset_ms": 9000}}), &[]);
    shaped(json!({"cumulate": {"max_size_ms": 5000, "step_ms": 2000}}), &[("cumulate_step", "cumulate.max_size_ms")]);
    shaped(
        json!({"cumulate": {"max_size_ms": 0, "step_ms": 0}}),
        &[("out_of_range", "cumulate.max_size_ms"), ("out_of_range", "cumulate.step_ms")],
    );
    shaped(json!({"cumulate": {"max_size_ms": 200_000, "step_ms": 1}}), &[("too_many_windows", "cumulate.step_ms")]);
}

/// WIN-1: a maximum that steps do not reach names both, and the two that they would reach.
#[test]
fn cumulate_names_both_lengths() {
    let cumulate =
        |max: i64, step: i64| said(&[("/operators/2/config/window", json!({"cumulate": {"max_size_ms": max, "step_ms": step}}))]);
    let message = "window 'count' grows to max_size_ms 5000, which is not a multiple of its step_ms 2000";
    assert_eq!(cumulate(5000, 2000), (message.to_owned(), "give max_size_ms 4000 or 6000".to_owned()));
    assert_eq!(cumulate(5, 7).1, "give max_size_ms 7");
}

/// WIN-1: calendar days need a zone that is known, told by its nearest name, and whole days.
#[test]
fn calendar_windows_have_a_zone_and_whole_days() {
    let day = |zone: &str, size_ms: i64| json!({"tumbling": {"size_ms": size_ms, "timezone": zone, "offset_ms": -3_600_000}});
    shaped(day("Europe/Berlin", 86_400_000), &[]);
    shaped(day("UTC", 7 * 86_400_000), &[]);
    shaped(day("Europe/Berlin", 3_600_000), &[("calendar_size", "tumbling.size_ms")]);
    shaped(day("Europe/Nowhere", 0), &[("out_of_range", "tumbling.size_ms"), ("unknown_timezone", "tumbling.timezone")]);
    let hint = |zone: &str| said(&[("/operators/2/config/window", day(zone, 86_400_000))]).1;
    assert_eq!(hint("Europe/Berlim"), "did you mean 'Europe/Berlin'?");
    assert_eq!(hint("europe/berlin"), "did you mean 'Europe/Berlin'?");
    assert_eq!(hint("+02:00"), "use a name of the IANA database, such as Europe/Berlin, America/New_York or UTC");
}

/// WIN-3: firing by the clock needs a pace, and not too fast a one.
#[test]
fn early_firing_has_an_interval() {
    let early = |interval: Value, expected: &[(&str, &str)]| {
        gives(
            &[("/operators/2/config/trigger", json!("processing_time")), ("/operators/2/config/trigger_interval_ms", interval)],
            expected,
        );
    };
    let path = "operators[2].config.trigger_interval_ms";
    early(json!(10), &[]);
    early(json!(9), &[("out_of_range", path)]);
    early(json!(0), &[("out_of_range", path)]);
    early(json!(u64::MAX), &[("out_of_range", path)]);
    early(Value::Null, &[("trigger_interval", path)]);
}

/// C17: rows for windows without rows: for a bounded number of them, of shapes that have them.
#[test]
fn empty_windows_are_bounded() {
    let with = |shape: Value, horizon: u64, expected: &[(&str, &str)]| {
        gives(&[("/operators/2/config/window", shape), ("/operators/2/config/emit_empty", json!({"horizon_ms": horizon}))], expected);
    };
    let path = "operators[2].config.emit_empty.horizon_ms";
    with(json!({"tumbling": {"size_ms": 1000}}), 1, &[]);
    with(json!({"tumbling": {"size_ms": 1000}}), 1_000_000_999, &[]);
    with(json!({"tumbling": {"size_ms": 1000}}), 1_000_001_000, &[("too_many_windows", path)]);
    with(json!({"sliding": {"size_ms": 100, "slide_ms": 10}}), 10_000_010, &[("too_many_windows", path)]);
    with(json!({"cumulate": {"max_size_ms": 100, "step_ms": 10}}), 10_000_000, &[]);
    with(json!({"tumbling": {"size_ms": 1000}}), 0, &[("out_of_range", path)]);
    with(json!({"tumbling": {"size_ms": 1000}}), u64::MAX, &[("out_of_range", path)]);
    with(json!({"session": {"gap_ms": 1000}}), 5000, &[("empty_session", "operators[2].config.emit_empty")]);
}

/// A top of the sample's windows in the place of the edge to the result table.
fn topped(config: Value, more: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let mut changes = vec![
        ("/operators/-", json!({"id": "best", "kind": "top", "config": config})),
        ("/edges/2", json!({"id": "e3", "from": "count", "to": "best"})),
        ("/edges/-", json!({"id": "e5", "from": "best", "to": "out"})),
    ];
    changes.extend_from_slice(more);
    changes
}

fn best() -> Value {
    json!({"keys": ["bidder"], "order_by": [{"column": "total", "descending": true}], "limit": 3, "as": "place"})
}

/// Tops name columns that are there, each once, and a name of their own that is not.
#[test]
fn tops_have_columns() {
    let with = |field: &str, value: Value, expected: &[(&str, &str)]| {
        let mut config = best();
        config[field] = value;
        gives(&topped(config, &[]), expected);
    };
    with("limit", json!(1), &[]);
    with("keys", json!([]), &[]);
    with("as", Value::Null, &[]);
    with("limit", json!(0), &[("out_of_range", "operators[5].config.limit")]);
    with("limit", json!(1_048_577), &[("out_of_range", "operators[5].config.limit")]);
    with("keys", json!(["bidder", "bidder"]), &[("duplicate_column", "operators[5].config.keys[1]")]);
    with("keys", json!(["price"]), &[("unknown_column", "operators[5].config.keys[0]")]);
    with("order_by", json!([]), &[("no_order", "operators[5].config.order_by")]);
    with("order_by", json!([{"column": "price"}]), &[("unknown_column", "operators[5].config.order_by[0].column")]);
    with("order_by", json!([{"column": "total"}, {"column": "total"}]), &[("duplicate_column", "operators[5].config.order_by[1].column")]);
    with("as", json!("total"), &[("duplicate_column", "operators[5].config.as")]);
    with("as", json!("__place"), &[("reserved_name", "operators[5].config.as")]);
    with("as", json!(""), &[("bad_column_name", "operators[5].config.as")]);
}

/// A top takes the rows of windows, through maps, unions and tops at most.
#[test]
fn tops_are_behind_windows() {
    let map = |from: &str| {
        vec![
            ("/operators/-", json!({"id": "names", "kind": "map", "config": {"project": ["bidder", "total"]}})),
            ("/edges/2", json!({"id": "e3", "from": from, "to": "names"})),
            ("/edges/-", json!({"id": "e6", "from": "names", "to": "best"})),
        ]
    };
    gives(&topped(best(), &map("count")), &[]);
    let buffer = [
        ("/operators/-", json!({"id": "wait", "kind": "buffer", "config": {"memory": {"capacity": 5, "timeout_ms": 5}}})),
        ("/edges/2", json!({"id": "e3", "from": "count", "to": "wait"})),
        ("/edges/-", json!({"id": "e6", "from": "wait", "to": "best"})),
    ];
    gives(&topped(best(), &buffer), &[("top_without_window", "operators[5]")]);
    let batch = json!({"window": {"batch": {}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(price)", "as": "total"}]});
    gives(&topped(best(), &[("/operators/2/config", batch)]), &[("top_without_window", "operators[5]")]);
    let mut slim = best();
    slim["order_by"] = json!([{"column": "price"}]);
    let (message, hint) = said(&topped(slim, &[("/edges/2", json!({"id": "e3", "from": "slim", "to": "best"}))]));
    assert_eq!(message, "top 'best' takes rows of source 'bids', but only the rows of a window have a first and a last");
    assert_eq!(hint, "put a tumbling, sliding, session or cumulate window before it, with nothing but maps, unions and tops between");
}

/// A batch window closes with its batch: no column says when.
#[test]
fn batch_windows_follow_no_time() {
    let config = json!({"window": {"batch": {}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(price)", "as": "total"}], "timestamp_field": "date_time"});
    gives(&[("/operators/2/config", config)], &[("batch_window", "operators[2].config.timestamp_field")]);
}

fn updating() -> (&'static str, Value) {
    ("/sources/0/time/late_event_policy", json!("update"))
}

fn early() -> [(&'static str, Value); 2] {
    [("/operators/2/config/trigger", json!("processing_time")), ("/operators/2/config/trigger_interval_ms", json!(1000))]
}

/// WIN-4: what would count a result twice is refused behind a window that gives it again; sinks are not.
#[test]
fn nothing_counts_behind_updates() {
    gives(&[updating()], &[]);
    gives(&early(), &[]);
    gives(&topped(best(), &[updating()]), &[("behind_updates", "operators[5]")]);
    gives(&topped(best(), &early()), &[("behind_updates", "operators[5]")]);
    let again = |shape: Value| {
        let config = json!({"window": shape, "keys": ["bidder"], "aggregates": [{"expr": "sum(total)", "as": "all"}]});
        vec![
            ("/operators/-", json!({"id": "again", "kind": "window", "config": config})),
            ("/operators/-", json!({"id": "pass", "kind": "map", "config": {}})),
            ("/edges/2", json!({"id": "e3", "from": "count", "to": "pass"})),
            ("/edges/-", json!({"id": "e5", "from": "pass", "to": "again"})),
            ("/edges/-", json!({"id": "e6", "from": "again", "to": "out"})),
            updating(),
        ]
    };
    gives(&again(json!({"tumbling": {"size_ms": 1000}})), &[("behind_updates", "operators[5]")]);
    gives(&again(json!({"batch": {}})), &[("behind_updates", "operators[5]")]);
    let (message, hint) = said(&again(json!({"tumbling": {"size_ms": 1000}})));
    assert_eq!(
        message,
        "window 'again' takes rows of window 'count', which gives a result again when a late row of source 'bids' comes: what came before would count twice"
    );
    assert_eq!(hint, "set late_event_policy of source 'bids' to drop or route, or lead the rows of the window to sinks alone");
    // Sessions come once, whatever is late.
    let session = ("/operators/2/config/window", json!({"session": {"gap_ms": 1000}}));
    gives(&topped(best(), &[updating(), session.clone()]), &[]);
    let [trigger, interval] = early();
    gives(&[trigger, interval, session], &[("early_session", "operators[2].config.trigger_interval_ms")]);
}

/// WIN-4: the mark passes through maps as it is; nothing else may be called so.
#[test]
fn the_mark_is_the_windows_own() {
    let map = |projection: &str| {
        vec![
            ("/operators/-", json!({"id": "names", "kind": "map", "config": {"project": ["total", projection]}})),
            ("/edges/2", json!({"id": "e3", "from": "count", "to": "names"})),
            ("/edges/-", json!({"id": "e5", "from": "names", "to": "out"})),
            updating(),
        ]
    };
    gives(&map("__arkflow_window_update"), &[]);
    gives(&map("__arkflow_window_update as revised"), &[]);
    gives(&map("bidder as __arkflow_window_update"), &[("reserved_name", "operators[5].config.project[1]")]);
    let aggregate = ("/operators/2/config/aggregates/0/as", json!("__arkflow_window_update"));
    gives(&[aggregate], &[("reserved_name", "operators[2].config.aggregates[0].as")]);
    gives(&[("/sources/0/schema/0/name", json!("__arkflow_window_update"))], &[("reserved_name", "sources[0].schema[0].name")]);
}

/// WIN-4: a result table replaces by keys and bounds, under the names that they have there, and adds
/// where they do not all get there; sinks that add say so.
#[test]
fn result_tables_replace() {
    let spec = bound(changed(&[updating()]));
    let graph = Graph::of(&spec).unwrap();
    assert_eq!(replaces_by(&spec, &graph, 3), ["bidder", "window_start", "window_end"]);
    assert_eq!(replaces_by(&spec, &graph, 4), [""; 0]);
    let adds = "sink 'topic' adds every result of window 'count', which gives some again: the last one of equal bidder, window_start, window_end is right";
    assert_eq!(notices(&spec), [adds]);
    let nothing = bound(changed(&[updating(), ("/operators/2", json!({"id": "count", "kind": "map"}))]));
    let told = "late_event_policy 'update' of source 'bids' revises nothing, since no window that could takes its rows: late rows are counted and left out";
    assert_eq!(notices(&nothing), [told]);
    let sessions = bound(changed(&[updating(), ("/operators/2/config/window", json!({"session": {"gap_ms": 5}}))]));
    assert_eq!(notices(&sessions), [told]);
    let calm = bound(sample());
    assert_eq!(replaces_by(&calm, &Graph::of(&calm).unwrap(), 3), [""; 0]);
    let behind = |project: &[&str], filter: Value| {
        let changes = [
            ("/operators/-", json!({"id": "names", "kind": "map", "config": {"project": project, "filter": filter}})),
            ("/edges/2", json!({"id": "e3", "from": "count", "to": "names"})),
            ("/edges/3", json!({"id": "e5", "from": "names", "to": "out"})),
            ("/operators/4", json!({"id": "out2", "kind": "sink"})),
            ("/edges/-", json!({"id": "e6", "from": "names", "to": "out2"})),
            ("/sinks/1", json!({"operator_id": "out2", "output_type": "drop", "config": {"type": "drop"}})),
            updating(),
        ];
        let spec = bound(changed(&changes));
        assert_eq!(check(&spec, Horizon::Local), []);
        (replaces_by(&spec, &Graph::of(&spec).unwrap(), 3), notices(&spec))
    };
    let (names, told) = behind(&["window_end as till", "bidder as who", "total", "window_start"], json!("total"));
    assert_eq!(names, ["who", "window_start", "till"]);
    let filtered = "window 'count' gives results again: one that no longer passes the filter of map 'names' is not taken back";
    assert_eq!(told[1], filtered);
    assert_eq!(
        told[0],
        "sink 'out2' adds every result of window 'count', which gives some again: the last one of equal who, window_start, till is right"
    );
    let (names, told) = behind(&["bidder", "total", "window_end"], Value::Null);
    assert_eq!(names, [""; 0]);
    let lost = "the result table of the job keeps every result of window 'count', which gives some again: map 'names' leaves out 'window_start', so that none replaces another";
    assert_eq!(told[0], lost);
}
