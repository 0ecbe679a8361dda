//! Tests of opening, dry runs, and the sources that need nothing outside.

use super::probe::{probe, refused, schema, stops_anywhere, work};
use super::*;
use weir_planner::connector::{Csv, Memory, Nothing, Values};
use weir_planner::schema::Column;

fn values(rows: serde_json::Value) -> SourceOptions {
    SourceOptions::Values(Values { rows: serde_json::from_value(rows).unwrap() })
}

/// CON-7, C30: rows of a statement go through the one decoder, in order, from any position.
#[test]
fn values_are_rows_of_every_type() {
    let dir = tempfile::tempdir().unwrap();
    let rows = serde_json::json!([
        [1, "one", "2026-01-01 00:00:00", "1.50"],
        [2, null, "2026-01-01T00:00:01Z", 2],
        ["3", "", null, null],
        [4, "x", null, null]
    ]);
    let columns = [("a", "BIGINT"), ("b", "TEXT"), ("t", "TIMESTAMP(3)"), ("d", "DECIMAL(5,2)")];
    let given = stops_anywhere(&work(values(rows), None, &columns, ErrorPolicy::Fail), dir.path());
    let expected = [
        r#"{"a":1,"b":"one","t":"2026-01-01T00:00:00.000","d":1.50}"#,
        r#"{"a":2,"b":null,"t":"2026-01-01T00:00:01.000","d":2.00}"#,
        r#"{"a":3,"b":"","t":null,"d":null}"#,
        r#"{"a":4,"b":"x","t":null,"d":null}"#,
    ];
    assert_eq!(given.all(), expected);
    let empty = stops_anywhere(&work(values(serde_json::json!([])), None, &columns, ErrorPolicy::Fail), dir.path());
    assert!(empty.all().is_empty());
    let error = refused(&work(values(serde_json::json!([[1]])), None, &columns, ErrorPolicy::Fail), &[], dir.path());
    assert_eq!(error.message, "source 'it' of job 'probe': row 1 has 1 values for 4 columns");
}

/// C42, KER-7: `fail` names split, position, field and type; `skip` counts and goes on.
#[test]
fn a_poison_record_follows_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let messages = [r#"{"a":1}"#, r#"{"a":"secret"}"#, r#"{"a":3}"#].map(str::to_owned).to_vec();
    let options = SourceOptions::Memory(Memory { messages });
    let skip = stops_anywhere(&work(options.clone(), None, &[("a", "BIGINT")], ErrorPolicy::Skip), dir.path());
    assert_eq!(skip.all(), [r#"{"a":1}"#, r#"{"a":3}"#]);
    let reason = "field 'a': the value is not of type BIGINT".to_owned();
    assert_eq!(skip.bad, [BadRecord { position: "row 2".to_owned(), reason, raw: br#"{"a":"secret"}"#.to_vec() }]);
    let fail = work(options.clone(), None, &[("a", "BIGINT")], ErrorPolicy::Fail);
    let mut source = super::probe::open(&fail, &[], &probe(0, 1, dir.path()));
    let error = source.poll(super::probe::SMALL).unwrap_err();
    assert_eq!(error.class, Class::User);
    let expected = "source 'it' of job 'probe', split '0', row 2: field 'a': the value is not of type BIGINT; on_error = 'skip' would leave such records out";
    assert_eq!(error.message, expected);
}

/// CON-5: a record that is routed is kept whole up to a MiB, one that is skipped up to a KiB.
#[test]
fn routed_records_are_kept_whole() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(5_000));
    let endless = format!(r#"{{"a":"{}"}}"#, "y".repeat(2 << 20));
    let messages = vec![r#"{"a":1}"#.to_owned(), long.clone(), endless.clone(), r#"{"a":3}"#.to_owned()];
    let rows = values(serde_json::json!([[1], [long.clone()]]));
    for (policy, kept) in [(ErrorPolicy::Skip, 1024), (ErrorPolicy::Route, 1 << 20)] {
        let options = SourceOptions::Memory(Memory { messages: messages.clone() });
        let given = stops_anywhere(&work(options, None, &[("a", "BIGINT")], policy), dir.path());
        assert_eq!(given.all(), [r#"{"a":1}"#, r#"{"a":3}"#]);
        let raw: Vec<&[u8]> = given.bad.iter().map(|bad| bad.raw.as_slice()).collect();
        assert_eq!(raw, [&long.as_bytes()[..long.len().min(kept)], &endless.as_bytes()[..kept]]);
        let given = stops_anywhere(&work(rows.clone(), None, &[("a", "BIGINT")], policy), dir.path());
        assert_eq!(given.bad.len(), 1);
        assert_eq!(given.bad[0].raw.len() > 5_000, policy == ErrorPolicy::Route);
    }
}

/// KER-5, CON-1: what is wrong shows before anything is opened.
#[test]
fn dry_runs_name_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let memory = || SourceOptions::Memory(Memory::default());
    let raw = refused(&work(memory(), Some(Format::Raw(Nothing {})), &[("a", "TEXT")], ErrorPolicy::Fail), &[], dir.path());
    assert!(raw.message.contains("exactly one column"), "{}", raw.message);
    let parquet = refused(&work(memory(), Some(Format::Parquet(Nothing {})), &[("a", "TEXT")], ErrorPolicy::Fail), &[], dir.path());
    assert!(parquet.message.contains("from files only"), "{}", parquet.message);
    let delimiter = Format::Csv(Csv { header: false, delimiter: 'é' });
    let csv = refused(&work(memory(), Some(delimiter), &[("a", "TEXT")], ErrorPolicy::Fail), &[], dir.path());
    assert!(csv.message.contains("delimiter"), "{}", csv.message);
    let schema = Schema(vec![Column { name: "a".to_owned(), ty: "INTERVAL".parse().unwrap(), nullable: true }]);
    let sink = SinkWork {
        options: SinkOptions::Stdout(Nothing {}),
        format: None,
        delivery: weir_planner::spec::Delivery::AtLeastOnce,
        replaces_by: Vec::new(),
    };
    assert!(check_sink(&sink, &schema).unwrap_err().message.contains("INTERVAL"));
    let sink = SinkWork { format: Some(Format::Raw(Nothing {})), ..sink };
    assert!(check_sink(&sink, &Schema(vec![])).unwrap_err().message.contains("format 'raw' cannot be written yet"));
}

#[test]
fn a_position_of_another_kind_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let memory = work(SourceOptions::Memory(Memory::default()), None, &[("a", "TEXT")], ErrorPolicy::Fail);
    let wrong = SplitPosition { split: "0".to_owned(), position: Position::Offset(3), time_max_ms: None, ended: false };
    assert_eq!(refused(&memory, &[wrong], dir.path()).class, Class::Corrupt);
}

#[test]
fn other_subtasks_have_no_split_and_end_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let memory = work(SourceOptions::Memory(Memory { messages: vec!["{}".to_owned()] }), None, &[("a", "TEXT")], ErrorPolicy::Fail);
    let second = probe(1, 2, dir.path());
    let mut source = open_source(&memory, &schema(&memory), &[], second.opening.clone()).unwrap();
    assert!(source.splits().is_empty());
    assert!(source.cut().is_empty());
    assert!(matches!(source.poll(super::probe::SMALL), Ok(weir_kernel::io::Polled::End)));
}

#[test]
fn every_connector_and_role_has_a_card() {
    let cards = cards();
    let names: Vec<(&str, &str)> = cards.iter().map(|card| (card.name, card.role)).collect();
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len());
    assert!(names.contains(&("kafka", "source")) && names.contains(&("result", "sink")));
}

/// P4: a dry run of a plan tells every fault, each at its operator.
#[test]
fn a_plan_is_checked_whole() {
    let operator =
        |id: &str, work: Work| weir_planner::plan::PlanOperator { id: OperatorId::new(id).unwrap(), output: Schema(vec![]), work };
    let source = work(SourceOptions::Memory(Memory::default()), Some(Format::Parquet(Nothing {})), &[], ErrorPolicy::Fail);
    let sink = SinkWork {
        options: SinkOptions::Stdout(Nothing {}),
        format: Some(Format::Raw(Nothing {})),
        delivery: weir_planner::spec::Delivery::AtLeastOnce,
        replaces_by: Vec::new(),
    };
    let chain = weir_planner::plan::Chain {
        id: weir_planner::id::ChainId::new(0),
        parallelism: 1,
        operators: vec![operator("in", Work::Source(source)), operator("all", Work::Union), operator("out", Work::Sink(sink))],
    };
    let plan = JobPlan {
        job: JobId::new("j").unwrap(),
        version: weir_planner::id::JobVersion::new(1),
        max_parallelism: 1,
        rescale: false,
        horizon: weir_planner::spec::Horizon::Local,
        checkpoint: weir_planner::spec::Checkpoint::default(),
        inflight_bytes: 1,
        state_bytes_max: None,
        result_retention_rows: 1,
        result_retention_ms: None,
        chains: vec![chain],
        edges: vec![],
        regions: vec![],
    };
    let spec: weir_planner::spec::JobSpec = serde_json::from_value(serde_json::json!({
        "id": "j",
        "operators": [],
        "sinks": [{"operator_id": "out", "output_type": "stdout", "config": {"type": "stdout"}}],
    }))
    .unwrap();
    let faults: Vec<String> = check(&spec, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].starts_with("operator 'in': format 'parquet' is read from files only"), "{}", faults[0]);
    assert!(faults[1].starts_with("sinks[0]: operator 'out': format 'raw' cannot be written yet"), "{}", faults[1]);
}

/// `weir components` lists every format under the word that a document uses.
#[test]
fn every_format_has_a_card() {
    let cards = crate::format::cards();
    for card in &cards {
        let format: Format = serde_json::from_value(serde_json::json!({"type": card.name})).unwrap();
        // A format that is added lights up here, and belongs into the cards.
        match format {
            Format::Json(_) | Format::Csv(_) | Format::Parquet(_) | Format::Raw(_) => assert_eq!(format.name(), card.name),
        }
    }
    assert_eq!(cards.len(), 4);
}
