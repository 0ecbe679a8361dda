//! Rules on sources: connector options, codec, columns, event time.

use super::columns::{held_rows, is_pending, of_source};
use super::{declared_names, durability, duration, not_available, out_of_range, unknown_operator};
use crate::connector::{Format, Generate, GenerateKind, KafkaSource, ScanStart, SourceOptions};
use crate::error::Fault;
use crate::schema::ColumnType;
use crate::secret::refers;
use crate::spec::{JobSpec, LatePolicy, OperatorKind, Source, SourceColumn, TimeMode, WatermarkStrategy};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    for (i, source) in spec.sources.iter().enumerate() {
        let (id, path) = (&source.operator_id, format!("sources[{i}]"));
        match spec.operators.iter().find(|operator| operator.id == *id) {
            Some(operator) if matches!(operator.kind, OperatorKind::Source) => {}
            Some(operator) => {
                let message = format!("sources names '{id}', which is a {}", operator.kind.name());
                let hint = "name an operator of kind source";
                faults.push(Fault::new("not_a_source", format!("{path}.operator_id"), message).with_hint(hint));
            }
            None => {
                let message = format!("sources names the unknown operator '{id}'");
                faults.push(unknown_operator(format!("{path}.operator_id"), message, id, spec));
            }
        }
        if !seen.insert(id) {
            faults.push(
                Fault::new("duplicate_source", format!("{path}.operator_id"), format!("source '{id}' has more than one entry"))
                    .with_hint("keep one of them"),
            );
        }
        one(source, &path, faults);
    }
    for (i, operator) in spec.operators.iter().enumerate() {
        if matches!(operator.kind, OperatorKind::Source) && !seen.contains(&operator.id) {
            let message = format!("source '{}' has no entry under sources", operator.id);
            faults.push(
                Fault::new("missing_source", format!("operators[{i}]"), message).with_hint("add one with its operator_id and input_type"),
            );
        }
    }
}

fn one(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let (id, kind) = (&source.operator_id, source.config.name());
    if source.input_type != kind {
        let message = format!("source '{id}' has input_type '{}', but config of type '{kind}'", source.input_type.escape_debug());
        faults.push(Fault::new("type_mismatch", format!("{path}.input_type"), message).with_hint("leave type out of config"));
    }
    options(source, path, faults);
    codec(source, path, faults);
    columns(source, path, faults);
    time(source, path, faults);
    durability::check(source, path, faults);
    for (field, value, most) in [("rows", source.batch.rows, 1 << 20), ("bytes", source.batch.bytes, 1 << 30)] {
        if !(1..=most).contains(&value) {
            faults.push(out_of_range(format!("{path}.batch.{field}"), field, value, &format!("1 to {most}")));
        }
    }
    if source.batch.linger_ms > 60_000 {
        faults.push(out_of_range(format!("{path}.batch.linger_ms"), "linger_ms", source.batch.linger_ms, "at most 60000"));
    }
}

fn missing(path: String, who: &str, what: &str, hint: &str) -> Fault {
    Fault::new("missing_option", path, format!("{who} needs {what}")).with_hint(hint)
}

fn options(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let (who, path) = (format!("source '{}'", source.operator_id), format!("{path}.config"));
    match &source.config {
        SourceOptions::Generate(generate) => generated(generate, &who, &path, faults),
        SourceOptions::Values(values) => {
            if !source.schema.is_empty() {
                super::values::check(source, &values.rows, &path, faults);
            }
        }
        SourceOptions::File(file) => {
            if file.path.is_empty() {
                faults.push(missing(format!("{path}.path"), &who, "a path", "give a file or a glob such as data/*.ndjson"));
            }
        }
        SourceOptions::Kafka(kafka) => kafka_options(kafka, &who, &path, faults),
        // The rules on http have a file of their own.
        SourceOptions::Memory(_) | SourceOptions::Http(_) => {}
    }
}

fn generated(generate: &Generate, who: &str, path: &str, faults: &mut Vec<Fault>) {
    let mut useless = |given: bool, field: &str, kind: &str| {
        if given {
            let message = format!("{who} has {field}, which generate of kind '{kind}' does not use");
            faults.push(Fault::new("option_not_used", format!("{path}.{field}"), message).with_hint(format!("leave {field} out")));
        }
    };
    match generate.kind {
        GenerateKind::Template => {
            useless(generate.table.is_some(), "table", "template");
            useless(generate.events_per_second != 0, "events_per_second", "template");
            useless(generate.start_ms.is_some(), "start_ms", "template");
            match &generate.context {
                None => faults.push(missing(
                    format!("{path}.context"),
                    who,
                    "a context",
                    "give the JSON object that every row repeats, or kind: nexmark with a table",
                )),
                Some(text) => match serde_json::from_str::<serde_json::Value>(text) {
                    Ok(serde_json::Value::Object(_)) => {}
                    Ok(_) => faults.push(
                        Fault::new("bad_context", format!("{path}.context"), format!("the context of {who} is not a JSON object"))
                            .with_hint("such as context: '{\"k\": 1}'"),
                    ),
                    Err(error) => faults.push(
                        Fault::new("bad_context", format!("{path}.context"), format!("the context of {who} is not JSON: {error}"))
                            .with_hint("such as context: '{\"k\": 1}'"),
                    ),
                },
            }
            if !(1..=1 << 20).contains(&generate.batch_size) {
                faults.push(out_of_range(format!("{path}.batch_size"), "batch_size", generate.batch_size, "1 to 1048576"));
            }
        }
        GenerateKind::Nexmark => {
            useless(generate.context.is_some(), "context", "nexmark");
            useless(generate.interval_ms != 0, "interval_ms", "nexmark");
            if generate.table.is_none() {
                faults.push(missing(format!("{path}.table"), who, "a table", "use table: bid, auction or person"));
            }
            if generate.start_ms.is_some() && generate.events_per_second == 0 {
                let hint = "say how many there are, or leave start_ms out";
                faults.push(missing(format!("{path}.events_per_second"), who, "events_per_second to let rows out by start_ms", hint));
            }
        }
    }
}

fn kafka_options(kafka: &KafkaSource, who: &str, path: &str, faults: &mut Vec<Fault>) {
    brokers(who, path, &kafka.brokers, faults);
    if kafka.topics.is_empty() {
        faults.push(missing(format!("{path}.topics"), who, "a topic", "name at least one under topics"));
    }
    for (i, name) in kafka.topics.iter().enumerate() {
        topic(who, format!("{path}.topics[{i}]"), name, faults);
    }
    if kafka.consumer_group.as_deref() == Some("") {
        faults.push(
            Fault::new("bad_group", format!("{path}.consumer_group"), format!("the consumer group of {who} is empty"))
                .with_hint("leave it out for weir.<job>.<source>"),
        );
    }
    match (kafka.scan_start, kafka.scan_timestamp_ms) {
        (ScanStart::Timestamp, None) => {
            faults.push(missing(format!("{path}.scan.timestamp_ms"), who, "a start time", "give scan.timestamp_ms in ms since 1970"))
        }
        (ScanStart::Earliest | ScanStart::Latest | ScanStart::Group, Some(_)) => {
            let message = format!("{who} has scan.timestamp_ms, but scan.start is not timestamp");
            let fault = Fault::new("option_not_used", format!("{path}.scan.timestamp_ms"), message);
            faults.push(fault.with_hint("set scan.start to timestamp, or leave scan.timestamp_ms out"));
        }
        (ScanStart::Timestamp, Some(_)) | (ScanStart::Earliest | ScanStart::Latest | ScanStart::Group, None) => {}
    }
    properties(path, &kafka.properties, faults);
}

/// Rules on a list of brokers.
pub(super) fn brokers(who: &str, path: &str, brokers: &[String], faults: &mut Vec<Fault>) {
    if brokers.is_empty() {
        faults.push(missing(format!("{path}.brokers"), who, "brokers", "give them as host:port"));
    }
    for (i, broker) in brokers.iter().enumerate().filter(|(_, broker)| !refers(broker)) {
        let port = broker.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(1..))) if !host.is_empty() && !broker.contains(char::is_whitespace)) {
            let message = format!("broker '{}' of {who} is not host:port", broker.escape_debug());
            faults.push(Fault::new("bad_broker", format!("{path}.brokers[{i}]"), message).with_hint("such as localhost:9092"));
        }
    }
}

/// Rules on the name of a topic, which are Kafka's own.
pub(super) fn topic(who: &str, path: String, name: &str, faults: &mut Vec<Fault>) {
    if refers(name) {
        return;
    }
    if name.starts_with('^') {
        faults.push(not_available(path, "a pattern of topics", "name each topic"));
        return;
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 249 || !name.chars().all(legal) {
        let message = format!("topic '{}' of {who} is not a legal name", name.escape_debug());
        faults.push(Fault::new("bad_topic", path, message).with_hint("use 1 to 249 letters, digits, '.', '_' or '-'"));
    }
}

/// Client settings that Weir sets itself.
const OWNED: [&str; 8] = [
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
    "transactional.id", "plugin.library.paths",
];

/// Rules on settings that are passed through to the Kafka client.
pub(super) fn properties(path: &str, properties: &BTreeMap<String, String>, faults: &mut Vec<Fault>) {
    for key in properties.keys().filter(|key| OWNED.contains(&key.as_str())) {
        let message = format!("the Kafka setting '{key}' is set by Weir and cannot be passed through");
        faults.push(Fault::new("reserved_property", format!("{path}.properties.{key}"), message).with_hint("leave it out"));
    }
}

fn codec(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let (id, kind, path) = (&source.operator_id, source.config.name(), format!("{path}.codec"));
    let mut refuse = |format: &Format, hint: &str| {
        let message = format!("source '{id}' of type {kind} cannot be read with codec '{}'", format.name());
        faults.push(Fault::new("codec_not_taken", path.clone(), message).with_hint(hint));
    };
    match (&source.config, &source.codec) {
        (SourceOptions::Generate(generate), Some(format)) => match (generate.kind, format) {
            (GenerateKind::Template, Format::Json(_)) => {}
            (GenerateKind::Template, Format::Csv(_) | Format::Parquet(_) | Format::Raw(_)) => refuse(format, "use json"),
            (GenerateKind::Nexmark, _) => refuse(format, "leave codec out: it gives rows"),
        },
        (SourceOptions::Values(_), Some(format)) => refuse(format, "leave codec out: it gives rows"),
        (SourceOptions::File(_), None) => {
            faults.push(missing(
                path.clone(),
                &format!("source '{id}' of type file"),
                "a codec",
                "use codec: {type: json}, csv or parquet",
            ));
        }
        (SourceOptions::File(_), Some(format @ Format::Raw(_))) => refuse(format, "use json, csv or parquet"),
        (SourceOptions::Kafka(_) | SourceOptions::Memory(_) | SourceOptions::Http(_), Some(format @ Format::Parquet(_))) => {
            refuse(format, "use json, csv or raw")
        }
        (
            SourceOptions::Generate(_)
            | SourceOptions::Values(_)
            | SourceOptions::Kafka(_)
            | SourceOptions::Memory(_)
            | SourceOptions::Http(_),
            None,
        )
        | (SourceOptions::File(_), Some(Format::Json(_) | Format::Csv(_) | Format::Parquet(_)))
        | (
            SourceOptions::Kafka(_) | SourceOptions::Memory(_) | SourceOptions::Http(_),
            Some(Format::Json(_) | Format::Csv(_) | Format::Raw(_)),
        ) => {}
    }
    if let Some(Format::Csv(csv)) = &source.codec
        && (!csv.delimiter.is_ascii() || matches!(csv.delimiter, '"' | '\n' | '\r' | '\0'))
    {
        let message = format!("the delimiter '{}' of source '{id}' cannot be used", csv.delimiter.escape_debug());
        faults.push(
            Fault::new("bad_delimiter", format!("{path}.delimiter"), message)
                .with_hint("use one ASCII character other than a quote or line end"),
        );
    }
}

fn columns(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let who = format!("source '{}'", source.operator_id);
    match held_rows(source).filter(|_| source.schema.is_empty()) {
        Some(Ok(_)) => return,
        Some(Err(fault)) => {
            let message = format!("{who}: {}", fault.message);
            faults.push(Fault { path: format!("{path}.schema"), message, ..fault });
            return;
        }
        None => {}
    }
    // A generator without its template or table has its own fault.
    let told = matches!(&source.config, SourceOptions::Generate(_));
    if of_source(source).is_empty() && !told && !is_pending(source) {
        let message = format!("{who} of type {} declares no columns, and they cannot be taken from its rows", source.config.name());
        faults.push(
            Fault::new("no_columns", format!("{path}.schema"), message)
                .with_hint("declare the columns: schema: [{name: id, type: BIGINT}, …]"),
        );
        return;
    }
    declared_names(
        &who,
        source.schema.iter().enumerate().map(|(j, column)| (format!("{path}.schema[{j}].name"), column.name.as_str())),
        &[],
        faults,
    );
    for (j, column) in source.schema.iter().enumerate() {
        if column.ty == ColumnType::Interval {
            let message = format!("column '{}' of {who} cannot be an INTERVAL", column.name);
            faults.push(
                Fault::new("bad_column_type", format!("{path}.schema[{j}].type"), message).with_hint("declare it as TEXT or as a number"),
            );
        }
        let timed = matches!(column.ty, ColumnType::Timestamp { .. } | ColumnType::BigInt);
        if column.timestamp_unit.is_some() && !timed {
            let message = format!("column '{}' of {who} has a timestamp_unit, but is {}", column.name, column.ty);
            let fault = Fault::new("unit_without_time", format!("{path}.schema[{j}].timestamp_unit"), message);
            faults.push(fault.with_hint("leave timestamp_unit out, or declare the column as TIMESTAMP(3)"));
        }
    }
    fixed_columns(source, path, faults);
}

/// Columns that the connector or format fixes may be declared, but only as they are.
fn fixed_columns(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let id = &source.operator_id;
    match (&source.config, &source.codec) {
        (SourceOptions::Generate(Generate { kind: GenerateKind::Nexmark, table: Some(table), .. }), _) => {
            let own = table.columns();
            for (j, column) in source.schema.iter().enumerate() {
                match own.iter().find(|known| known.name == column.name) {
                    Some(known) if known.ty == column.ty => {}
                    Some(known) => {
                        let message = format!("column '{}' of source '{id}' is {}, declared as {}", column.name, known.ty, column.ty);
                        faults.push(
                            Fault::new("fixed_column", format!("{path}.schema[{j}].type"), message)
                                .with_hint("leave schema out, or declare it as it is"),
                        );
                    }
                    None => {
                        let names: Vec<&str> = own.iter().map(|known| known.name.as_str()).collect();
                        let message = format!("the Nexmark table of source '{id}' has no column '{}'", column.name);
                        faults.push(
                            Fault::new("fixed_column", format!("{path}.schema[{j}].name"), message)
                                .with_hint(format!("it has {}", names.join(", "))),
                        );
                    }
                }
            }
        }
        (SourceOptions::Kafka(_), None) | (SourceOptions::Kafka(_) | SourceOptions::Memory(_), Some(Format::Raw(_))) => {
            let value = |column: &SourceColumn| column.name == "value" && column.ty == ColumnType::Bytea;
            if !source.schema.is_empty() && !matches!(source.schema.as_slice(), [column] if value(column)) {
                let message = format!("source '{id}' gives raw bytes: its only column is 'value BYTEA'");
                let hint = "name a codec, such as codec: {type: json}, or leave schema out";
                faults.push(Fault::new("fixed_column", format!("{path}.schema"), message).with_hint(hint));
            }
        }
        _ => {}
    }
}

fn time(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let (id, path, time) = (&source.operator_id, format!("{path}.time"), &source.time);
    match time.mode {
        TimeMode::ProcessingTime => {
            let given = [
                ("watermark", time.watermark.is_some()),
                ("timestamp_field", time.timestamp_field.is_some()),
                ("idle_advance_ms", time.idle_advance_ms.is_some()),
                ("allowed_lateness_ms", time.allowed_lateness_ms != 0),
                ("late_event_policy", time.late_event_policy != LatePolicy::Drop),
            ];
            for (field, _) in given.iter().filter(|(_, given)| *given) {
                let message = format!("source '{id}' is in processing time and has {field}");
                let hint = "set time.mode to event_time, or leave it out";
                faults.push(Fault::new("processing_time", format!("{path}.{field}"), message).with_hint(hint));
            }
        }
        TimeMode::EventTime => event_time(source, &path, faults),
    }
}

fn event_time(source: &Source, path: &str, faults: &mut Vec<Fault>) {
    let (id, time) = (&source.operator_id, &source.time);
    match (&time.timestamp_field, of_source(source)) {
        (None, _) => {
            let message = format!("source '{id}' is in event time, but has no timestamp_field");
            faults.push(
                Fault::new("no_time_field", format!("{path}.timestamp_field"), message).with_hint("name the column with the event time"),
            );
        }
        (Some(_), columns) if columns.is_empty() => {}
        (Some(field), columns) => match columns.iter().find(|column| column.name == *field) {
            Some(column) if matches!(column.ty, ColumnType::BigInt | ColumnType::Timestamp { .. }) => {}
            Some(column) => {
                let message = format!("the time column '{field}' of source '{id}' is {}", column.ty);
                faults.push(Fault::new("bad_time_type", format!("{path}.timestamp_field"), message).with_hint("use BIGINT or TIMESTAMP"));
            }
            None => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                let message = format!("the time column '{field}' of source '{id}' is not among its columns");
                faults.push(
                    Fault::new("unknown_column", format!("{path}.timestamp_field"), message)
                        .with_hint(format!("columns here: {}", names.join(", "))),
                );
            }
        },
    }
    let Some(watermark) = &time.watermark else {
        let message = format!("source '{id}' is in event time, but has no watermark");
        let hint = "add watermark: {strategy: bounded_out_of_orderness, out_of_orderness_ms: 2000}";
        faults.push(Fault::new("no_watermark", format!("{path}.watermark"), message).with_hint(hint));
        return;
    };
    duration(format!("{path}.watermark.out_of_orderness_ms"), "out_of_orderness_ms", watermark.out_of_orderness_ms, 0, faults);
    if watermark.strategy == WatermarkStrategy::Monotonous && watermark.out_of_orderness_ms != 0 {
        let message = format!("source '{id}' has a monotonous watermark with out_of_orderness_ms");
        faults.push(
            Fault::new("monotonous_bound", format!("{path}.watermark.out_of_orderness_ms"), message)
                .with_hint("use bounded_out_of_orderness, or leave it out"),
        );
    }
    // From so many ms on; a longer one than 100 years would be a mistake too.
    let spans = [
        ("watermark.idle_timeout_ms", Some(watermark.idle_timeout_ms), 0),
        ("watermark.max_future_ms", watermark.max_future_ms, 0),
        ("watermark.alignment_ms", watermark.alignment_ms, 1),
        ("idle_advance_ms", time.idle_advance_ms, 1),
    ];
    for (field, value, least) in spans {
        if let Some(value) = value {
            let name = field.rsplit('.').next().unwrap_or(field);
            duration(format!("{path}.{field}"), name, i64::try_from(value).unwrap_or(i64::MAX), least, faults);
        }
    }
    if time.idle_advance_ms.is_some() && watermark.idle_timeout_ms == 0 {
        let message = format!("source '{id}' has idle_advance_ms, but its partitions are never idle: idle_timeout_ms is 0");
        let hint = "set watermark.idle_timeout_ms, such as 30000, or leave idle_advance_ms out";
        faults.push(Fault::new("never_idle", format!("{path}.idle_advance_ms"), message).with_hint(hint));
    }
    duration(format!("{path}.allowed_lateness_ms"), "allowed_lateness_ms", time.allowed_lateness_ms, 0, faults);
}

/// A window needs sources in event time upstream.
pub(super) fn timed(spec: &JobSpec, window: usize, upstream: &BTreeSet<usize>, faults: &mut Vec<Fault>) {
    for &at in upstream {
        let id = &spec.operators[at].id;
        let untimed = |source: &&Source| source.operator_id == *id && source.time.mode == TimeMode::ProcessingTime;
        if spec.sources.iter().any(|source| untimed(&source)) {
            let message =
                format!("window '{}' needs event time, but source '{id}' upstream is in processing time", spec.operators[window].id);
            let hint = "set the source's time: {mode: event_time, timestamp_field: …, watermark: {…}} (in SQL: WATERMARK FOR column AS …)";
            faults.push(Fault::new("window_without_time", format!("operators[{window}]"), message).with_hint(hint));
        }
    }
}
