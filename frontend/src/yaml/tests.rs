//! Documents in, specs or faults out.

mod bounds;
mod fields;
mod mutated;
mod page;
mod wrong;

use super::{Document, parse, parse_bytes, print};
use crate::options::{apply_job_options, decode_sink, decode_source};
use serde_json::{Map, Value, json};
use weir_planner::check::columns::pending;
use weir_planner::check::{check, notices};
use weir_planner::connector::{Format, ScanStart, SourceOptions};
use weir_planner::error::{Fault, Place};
use weir_planner::spec::{Horizon, JobSpec, OperatorKind, Placement, RebalanceMode, TimeMode};

/// The three samples of the job documentation, unchanged (JOB-2).
const RESCALE: &str = include_str!("../../../tests/data/seed/rescale.yaml");
const REBALANCE: &str = include_str!("../../../tests/data/seed/rebalance.yaml");
const JOIN: &str = include_str!("../../../tests/data/seed/join.yaml");

/// A job with one of everything that has expressions.
const WINDOWED: &str = "id: per_minute
parallelism: 2
checkpoint: {interval: 10s}
operators:
  - {id: bids, kind: source}
  - id: dear
    kind: map
    config: {filter: price > 100, project: [bidder, price * 2 as twice, \"'a: #b' as note\"]}
  - id: count
    kind: window
    config:
      window: {tumbling: {size: 1m, offset: -10s}}
      keys: [bidder]
      aggregates:
        - {expr: count(*), as: n, filter: twice > 300}
        - {expr: sum(twice), as: total}
      having: n > 1
  - {id: out, kind: sink}
edges:
  - {id: e1, from: bids, to: dear}
  - {id: e2, from: dear, to: count}
  - {id: e3, from: count, to: out}
sources:
  - operator_id: bids
    input_type: kafka
    config:
      brokers: a:9092, b:9092
      topic: bids
      sasl.password: 007
    codec: json
    schema:
      - {name: bidder, type: bigint, not_null: true}
      - {name: price, type: int8}
      - {name: date_time, type: timestamp(3)}
    time:
      mode: event_time
      timestamp_field: date_time
      watermark: {out_of_orderness: 4s, idle_timeout: 1m}
      allowed_lateness: 5s
    on_error: skip
sinks:
  - {operator_id: out, output_type: result}
";

fn one(text: &str) -> JobSpec {
    let mut document = parse(text).unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(document.jobs.len(), 1);
    document.jobs.remove(0)
}

fn faults(text: &str) -> Vec<String> {
    let show = |fault: Fault| {
        let place = fault.place.map(|place| format!("{}:{}", place.line, place.column)).unwrap_or_default();
        format!("{place} {} {}", fault.code, fault.path)
    };
    // Most texts here are no whole jobs.
    let empty = |fault: &Fault| fault.code == "no_operators";
    parse(text).err().unwrap_or_default().into_iter().filter(|fault| !empty(fault)).map(show).collect()
}

/// JOB-2: parsed as they are; the rescale one lacks columns, which its first rows will give (JOB-6).
#[test]
fn the_rescale_sample() {
    let spec = one(RESCALE);
    assert!(spec.rescale);
    assert_eq!((spec.parallelism, spec.max_parallelism), (4, 128));
    let SourceOptions::Kafka(kafka) = &spec.sources[0].config else { panic!("not kafka") };
    assert_eq!((kafka.topics.as_slice(), kafka.scan_start), (["orders".to_owned()].as_slice(), ScanStart::Earliest));
    assert_eq!(check(&spec, Horizon::Local), []);
    assert_eq!(pending(&spec), [&spec.sources[0]]);
    assert!(notices(&spec).iter().any(|notice| notice.starts_with("source 'source' declares no columns: ")));
}

#[test]
fn the_rebalance_sample() {
    let spec = one(REBALANCE);
    assert_eq!((spec.placement, spec.rebalance.mode, spec.rebalance.cooldown_ms), (Placement::Split, RebalanceMode::Auto, 300_000));
    assert_eq!(check(&spec, Horizon::Local), []);
    assert_eq!(notices(&spec).len(), 2);
}

#[test]
fn the_join_sample() {
    let spec = one(JOIN);
    let OperatorKind::Join(join) = &spec.operators[2].kind else { panic!("not a join") };
    assert_eq!((join.window_ms, join.max_per_key), (Some(5000), 10_000));
    let SourceOptions::Generate(generate) = &spec.sources[1].config else { panic!("not generate") };
    assert_eq!((generate.interval_ms, generate.batch_size), (700, 1));
    assert!(check(&spec, Horizon::Local).iter().any(|fault| fault.message == "the join 'join-orders' is not available yet"));
}

/// SQL-13: durations without `_ms`, aliases, short forms, lists as text, client settings beside options.
#[test]
fn spellings_lead_to_one_spec() {
    let spec = one(WINDOWED);
    assert_eq!(spec.checkpoint.interval_ms, 10_000);
    let source = &spec.sources[0];
    let SourceOptions::Kafka(kafka) = &source.config else { panic!("not kafka") };
    assert_eq!(kafka.brokers, ["a:9092", "b:9092"]);
    assert_eq!(kafka.topics, ["bids"]);
    assert_eq!(kafka.properties["sasl.password"], "007", "a secret is never read as a number");
    assert!(matches!(source.codec, Some(Format::Json(_))));
    assert_eq!((source.time.mode, source.time.allowed_lateness_ms), (TimeMode::EventTime, 5000));
    let watermark = source.time.watermark.as_ref().unwrap();
    assert_eq!((watermark.out_of_orderness_ms, watermark.idle_timeout_ms), (4000, 60_000));
    let OperatorKind::Window(window) = &spec.operators[2].kind else { panic!("not a window") };
    let json = serde_json::to_value(&window.window).unwrap();
    assert_eq!(json, json!({"tumbling": {"size_ms": 60_000, "offset_ms": -10_000}}));
}

/// JOB-3, SQL-11: what is printed reads back as the same spec, but for secrets, which are masked.
#[test]
fn printed_specs_read_back() {
    let spec = one(WINDOWED);
    let text = print(&spec);
    assert!(text.contains("sasl.password: \"***\"") && !text.contains("007"), "{text}");
    let mut back = one(&text);
    let mut expected = spec;
    for spec in [&mut back, &mut expected] {
        let SourceOptions::Kafka(kafka) = &mut spec.sources[0].config else { panic!("not kafka") };
        kafka.properties.clear();
    }
    assert_eq!(back, expected, "{text}");
    for sample in [RESCALE, REBALANCE, JOIN] {
        let spec = one(sample);
        assert_eq!(one(&print(&spec)), spec, "{}", print(&spec));
    }
}

/// Text that looks like something else keeps its meaning through printing.
#[test]
fn printed_text_is_never_taken_for_anything_else() {
    for odd in [
        "true", "null", "~", "", " a", "a ", "1e3", "- a", "a: b", "a #b", "'", "\"", "{a}", "[a]", "*a", "&a", "!a", "|", "a\nb",
        "\u{85}\u{2028}", "é✓", "%", "@a", "`",
    ] {
        let mut spec = one(WINDOWED);
        let OperatorKind::Map(map) = &mut spec.operators[1].kind else { panic!("not a map") };
        map.filter.as_mut().unwrap().sql = odd.to_owned();
        let SourceOptions::Kafka(kafka) = &mut spec.sources[0].config else { panic!("not kafka") };
        kafka.properties.clear();
        kafka.consumer_group = Some(odd.to_owned());
        assert_eq!(one(&print(&spec)), spec, "{odd:?}");
    }
}

/// JOB-7: every fault at its line and column, with the nearest known name.
#[test]
fn all_faults_of_a_document_come_together() {
    let text = "jobs:
  - id: a b
    paralelism: 2
    operators:
      - {id: s, kind: sauce}
      - {id: m, kind: map, config: {filtre: x > 1}}
      - {id: w, kind: window, config: {window: {tumbling: {size: soon}}}}
    edges:
      - {id: e, from: s}
    sources:
      - operator_id: s
        input_type: kafka
        config: {brokers: [], topics: t, scan.start: earlyest}
        schema: [{name: x, type: BIGNUM}]
      - {operator_id: t, input_type: mqtt}
    sinks:
      - {operator_id: k, output_type: stdout, config: {type: drop}}
  - id: second
    operators: 5
";
    assert_eq!(
        faults(text),
        [
            "2:9 bad_name jobs[0].id",
            "3:5 unknown_field jobs[0].paralelism",
            "5:23 unknown_kind jobs[0].operators[0].kind",
            "6:37 unknown_field jobs[0].operators[1].config.filtre",
            "7:66 bad_duration jobs[0].operators[2].config.window.tumbling.size",
            "9:9 missing_field jobs[0].edges[0].to",
            "13:54 bad_value jobs[0].sources[0].config.scan.start",
            "14:34 bad_type jobs[0].sources[0].schema[0].type",
            "15:38 unknown_connector jobs[0].sources[1].input_type",
            "17:62 type_mismatch jobs[0].sinks[0].config.type",
            "19:16 wrong_type jobs[1].operators",
        ]
    );
    let all = parse(text).err().unwrap();
    assert_eq!(all[1].hint, "did you mean 'parallelism'?");
    assert_eq!(all[3].hint, "did you mean 'filter'?");
    assert_eq!(all[6].hint, "did you mean 'earliest'?");
    assert_eq!(all[8].hint, "known source connectors: generate, values, file, kafka, memory, http");
}

/// JOB-7: faults of names and values come with those of expressions and rules.
#[test]
fn faults_of_all_steps_come_together() {
    let text = WINDOWED.replace("parallelism: 2", "paralelism: 2").replace("price * 2", "cost * 2").replace("a:9092, b:9092", "a");
    assert_eq!(
        faults(&text),
        ["2:1 unknown_field paralelism", "8:53 expression operators[1].config.project[1]", "27:16 bad_broker sources[0].config.brokers[0]",]
    );
}

/// A field under two of its names is an error, whichever they are.
#[test]
fn a_field_given_twice() {
    let with = |line: &str| format!("id: a\n{line}\noperators: []\n");
    assert_eq!(faults(&with("result_retention_ms: 5\nresult_retention: 5s")), ["3:1 given_twice result_retention"]);
    assert_eq!(faults(&with("checkpoint: {epoch: 1s, epoch_ms: 1000}")), ["2:25 given_twice checkpoint.epoch_ms"]);
    assert_eq!(faults(&with("parallelism: 1\nparallelism: 2")), ["3:1 duplicate_key parallelism"]);
}

#[test]
fn numbers_outside_their_range() {
    assert_eq!(faults("id: a\nparallelism: 5000000000\noperators: []"), ["2:14 bad_value parallelism"]);
    assert_eq!(faults("id: a\nparallelism: -1\noperators: []"), ["2:14 bad_value parallelism"]);
    assert_eq!(faults("id: a\nparallelism: .nan\noperators: []"), ["2:14 bad_value parallelism"]);
    assert_eq!(one("id: a\nparallelism: '4'\noperators: []").parallelism, 4);
    assert_eq!(faults("id: a\nrescale: yes\noperators: []"), ["2:10 bad_value rescale"]);
}

/// Faults of the checks find their line by their path, or by the nearest field around it.
#[test]
fn faults_of_the_checks_have_places() {
    let document = parse(&format!("jobs:\n  - {}", WINDOWED.replace('\n', "\n    "))).unwrap();
    let place = |path: &str| document.locate(0, Fault::new("x", path, "x"));
    assert_eq!(place("operators[2].config.keys[0]").place, Some(Place { line: 14, column: 18 }));
    assert_eq!(place("operators[2].config.keys[0]").path, "jobs[0].operators[2].config.keys[0]");
    assert_eq!(place("operators[2].config.keys[7]").place, place("operators[2].config.keys").place);
    assert_eq!(place("sources[0].time.watermark.alignment_ms").place, place("sources[0].time.watermark").place);
    assert_eq!(place("horizon").place, Some(Place { line: 2, column: 5 }));
    assert_eq!(Document::default().locate(3, Fault::new("x", "id", "x")).place, None);
}

/// L1: one clear error each, whatever the text.
#[test]
fn hostile_texts_give_one_fault() {
    let code = |text: &str| parse(text).err().map(|faults| faults.iter().map(|fault| fault.code.clone()).collect::<Vec<_>>());
    let only = |code: &str| Some(vec![code.to_owned()]);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert_eq!(code(&bomb), only("too_large"));
    assert_eq!(code("a: &a [*a]"), only("bad_alias"));
    assert_eq!(code(&"a".repeat(super::BYTES_MAX + 1)), only("too_large"));
    assert_eq!(code(&"[x,".repeat(100_000)).map(|codes| codes.len()), Some(1));
    assert_eq!(code(&format!("{}{}", "[".repeat(70), "]".repeat(70))).map(|codes| codes.len()), Some(1));
    assert_eq!(code(&"- ".repeat(100_000)).map(|codes| codes.len()), Some(1));
    assert_eq!(code(&"[".repeat(100_000)).map(|codes| codes.len()), Some(1));
    assert_eq!(code(&format!("[{}]", "x,".repeat(250_000))), only("too_large"));
    assert_eq!(code(""), only("empty"));
    assert_eq!(code("# nothing\n"), only("empty"));
    assert_eq!(code("just text"), only("not_a_job"));
    assert_eq!(code("a: [1"), only("syntax"));
    assert_eq!(code("a: *nobody"), only("syntax"));
    assert_eq!(code("? [a]\n: b"), only("bad_key"));
    assert_eq!(code("id: !secret x"), only("tag"));
    assert_eq!(code("id: a\noperators: []\n---\nid: b\noperators: []"), only("several_documents"));
}

#[test]
fn bytes_that_are_not_utf8_have_a_place() {
    let fault = parse_bytes(b"id: a\nname: \xff\n").err().unwrap().remove(0);
    assert_eq!((fault.code.as_str(), fault.place), ("not_utf8", Some(Place { line: 2, column: 7 })));
}

#[test]
fn streams_stand_beside_jobs() {
    let document = parse("streams: [{input: {type: memory}, output: drop}]\njobs: [{id: a, operators: []}]").unwrap();
    assert_eq!(document.jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["stream-1", "a"]);
    assert_eq!(document.streams.iter().map(|stream| stream.job).collect::<Vec<_>>(), [0]);
    let incomplete = faults("streams: [{input: {type: kafka, topics: t}}]\njobs: []");
    assert_eq!(incomplete, ["1:11 missing_field streams[0].output", "1:19 missing_field streams[0].input.brokers"]);
    let all = faults("streams: [{input: {type: kafka}}]\njobs: [{id: a, operatrs: []}]");
    for fault in
        ["1:11 missing_field streams[0].output", "1:19 missing_field streams[0].input.brokers", "2:16 unknown_field jobs[0].operatrs"]
    {
        assert!(all.iter().any(|told| told == fault), "{all:?}");
    }
    assert_eq!(faults("streams: []\njobs: []"), [""; 0]);
    assert_eq!(faults("jobs: {}\nstrems: []"), ["1:1 wrong_type jobs", "2:1 unknown_field strems"]);
}

/// JSON is read the same way.
#[test]
fn json_is_read_as_well() {
    let json = r#"{"jobs": [{"id": "a", "operators": [{"id": "s", "kind": "source"}, {"id": "k", "kind": "sink"}],
	"edges": [{"id": "e", "from": "s", "to": "k"}], "sources": [{"operator_id": "s", "input_type": "memory", "config": {"messages": [{"a": "\ud83d\ude00\/"}, "{}"]}}],
	"sinks": [{"operator_id": "k", "output_type": "drop"}]}]}"#;
    let spec = one(json);
    let SourceOptions::Memory(memory) = &spec.sources[0].config else { panic!("not memory") };
    assert_eq!(memory.messages, ["{\"a\":\"😀/\"}", "{}"]);
    assert_eq!(check(&spec, Horizon::Local), []);
}

fn options(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

/// SQL's `WITH` gives texts and dotted names; both lead to the same types.
#[test]
fn options_as_with_gives_them() {
    let kafka = decode_source(
        "kafka",
        options(json!({"brokers": "a:1", "topic": "t", "scan.start": "latest", "sasl.username": "u", "bounded": "true"})),
    )
    .unwrap();
    let SourceOptions::Kafka(kafka) = kafka else { panic!("not kafka") };
    assert_eq!((kafka.scan_start, kafka.bounded, kafka.properties["sasl.username"].as_str()), (ScanStart::Latest, true, "u"));
    let nexmark = decode_source("generate", options(json!({"type": "nexmark", "table": "bid", "rows": "10"}))).unwrap();
    assert_eq!(serde_json::to_value(nexmark).unwrap()["kind"], "nexmark");
    let fault = decode_source("kafka", options(json!({"brokers": "a:1", "topic": "t", "topics": "u"}))).unwrap_err();
    assert_eq!((fault.code.as_str(), fault.path.as_str()), ("given_twice", "topics"));
    let fault = decode_source("kafka", options(json!({"topic": "t"}))).unwrap_err();
    assert_eq!((fault.code.as_str(), fault.path.as_str()), ("missing_field", "brokers"));
    let fault = decode_sink("kafka", options(json!({"brokers": "a:1", "topik": "t"}))).unwrap_err();
    assert_eq!((fault.path.as_str(), fault.hint.as_str()), ("topik", "did you mean 'topic'?"));
    assert_eq!(decode_source("mqtt", Map::new()).unwrap_err().code, "unknown_connector");
}

#[test]
fn job_options_change_the_job_alone() {
    let mut spec = one(WINDOWED);
    let before = spec.clone();
    apply_job_options(
        &mut spec,
        &options(json!({"parallelism": 3, "checkpoint.interval": "20s", "state.max_bytes": "1000", "restart.backoff": "1s"})),
    )
    .unwrap();
    assert_eq!((spec.parallelism, spec.checkpoint.interval_ms, spec.checkpoint.epoch_ms), (3, 20_000, 1_000));
    assert_eq!((spec.state.max_bytes, spec.restart.backoff_ms), (Some(1000), 1000));
    assert_eq!((&spec.operators, &spec.sources), (&before.operators, &before.sources));
    let fault = apply_job_options(&mut spec, &options(json!({"checkpoint.intervall": "20s"}))).unwrap_err();
    assert_eq!((fault.path.as_str(), fault.hint.as_str()), ("checkpoint.intervall", "did you mean 'interval'?"));
    assert_eq!(apply_job_options(&mut spec, &options(json!({"operators": []}))).unwrap_err().code, "unknown_field");
    let both = options(json!({"checkpoint": {"epoch_ms": 1}, "checkpoint.epoch_ms": 2}));
    assert_eq!(apply_job_options(&mut spec, &both).unwrap_err().code, "given_twice");
}
