//! Rules on sinks.

use super::{not_available, unknown_column, unknown_operator};
use crate::connector::{Format, SinkOptions};
use crate::error::Fault;
use crate::id::OperatorId;
use crate::schema::Schema;
use crate::spec::{Delivery, ErrorPolicy, JobSpec, OperatorKind, Sink};
use std::collections::BTreeSet;

pub(super) fn check(spec: &JobSpec, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    let mut result = None;
    for (i, sink) in spec.sinks.iter().enumerate() {
        let (id, path) = (&sink.operator_id, format!("sinks[{i}]"));
        match spec.operators.iter().find(|operator| operator.id == *id) {
            Some(operator) if matches!(operator.kind, OperatorKind::Sink) => {}
            Some(operator) => {
                let message = format!("sinks names '{id}', which is a {}", operator.kind.name());
                let hint = "name an operator of kind sink";
                faults.push(Fault::new("not_a_sink", format!("{path}.operator_id"), message).with_hint(hint));
            }
            None => {
                let message = format!("sinks names the unknown operator '{id}'");
                faults.push(unknown_operator(format!("{path}.operator_id"), message, id, spec));
            }
        }
        if !seen.insert(id) {
            faults.push(
                Fault::new("duplicate_sink", format!("{path}.operator_id"), format!("sink '{id}' has more than one entry"))
                    .with_hint("keep one of them"),
            );
        }
        one(sink, &path, faults);
        if let SinkOptions::Result(_) = sink.config
            && let Some(first) = result.replace(id)
        {
            let message = format!("sinks '{first}' and '{id}' both write the job's result table");
            faults.push(Fault::new("two_results", path, message).with_hint("lead both inputs into one result sink"));
        }
    }
    for (i, operator) in spec.operators.iter().enumerate() {
        if matches!(operator.kind, OperatorKind::Sink) && !seen.contains(&operator.id) {
            let message = format!("sink '{}' has no entry under sinks", operator.id);
            faults.push(
                Fault::new("missing_sink", format!("operators[{i}]"), message).with_hint("add one with its operator_id and output_type"),
            );
        }
    }
}

fn one(sink: &Sink, path: &str, faults: &mut Vec<Fault>) {
    let (id, kind) = (&sink.operator_id, sink.config.name());
    if sink.output_type != kind {
        let message = format!("sink '{id}' has output_type '{}', but config of type '{kind}'", sink.output_type.escape_debug());
        faults.push(Fault::new("type_mismatch", format!("{path}.output_type"), message).with_hint("leave type out of config"));
    }
    let options = format!("{path}.config");
    match &sink.config {
        // The rules on http have a file of their own.
        SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::Result(_) | SinkOptions::Http(_) => {}
        SinkOptions::File(file) => {
            if file.path.is_empty() {
                faults.push(Fault::new(
                    "missing_option",
                    format!("{options}.path"),
                    format!("sink '{id}' needs a path: the directory that it writes to"),
                ));
            }
        }
        SinkOptions::Kafka(kafka) => {
            super::source::brokers(&format!("sink '{id}'"), &options, &kafka.brokers, faults);
            super::source::topic(&format!("sink '{id}'"), format!("{options}.topic"), &kafka.topic, faults);
            super::source::properties(&options, &kafka.properties, faults);
        }
    }
    codec(sink, path, faults);
    match (sink.delivery, &sink.config) {
        (Delivery::AtLeastOnce, _) | (Delivery::ExactlyOnce, SinkOptions::Result(_) | SinkOptions::File(_)) => {}
        (Delivery::ExactlyOnce, SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_)) => {
            let what = format!("delivery 'exactly_once' for a {kind} sink");
            faults.push(not_available(
                format!("{path}.delivery"),
                &what,
                "use at_least_once, or write to the job's result table or a file, which are exact",
            ));
        }
        (Delivery::Upsert, _) => {
            faults.push(not_available(
                format!("{path}.delivery"),
                "delivery 'upsert'",
                "use at_least_once, or exactly_once with the job's result table or a file",
            ));
        }
    }
    if !sink.key.is_empty() && sink.delivery != Delivery::Upsert {
        let hint = if kind == "kafka" { "the record key is config.key" } else { "leave key out" };
        faults.push(
            Fault::new("key_without_upsert", format!("{path}.key"), format!("sink '{id}' has a key, which only delivery 'upsert' uses"))
                .with_hint(hint),
        );
    }
    match sink.on_error.policy {
        ErrorPolicy::Fail => {}
        ErrorPolicy::Skip | ErrorPolicy::Route => {
            faults.push(not_available(format!("{path}.on_error"), "on_error of a sink other than 'fail'", "leave it at fail"));
        }
    }
    if sink.on_error.policy == ErrorPolicy::Fail && sink.on_error.to.is_some() {
        faults.push(Fault::new(
            "route_without_policy",
            format!("{path}.on_error.to"),
            format!("sink '{id}' has on_error.to, but the policy is not 'route'"),
        ));
    }
}

fn codec(sink: &Sink, path: &str, faults: &mut Vec<Fault>) {
    let Some(format) = &sink.codec else { return };
    let (id, kind) = (&sink.operator_id, sink.config.name());
    match &sink.config {
        SinkOptions::Stdout(_) | SinkOptions::File(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_) => match format {
            Format::Json(_) => {}
            Format::Csv(_) | Format::Parquet(_) | Format::Raw(_) => {
                let what = format!("codec '{}' for a {kind} sink", format.name());
                faults.push(not_available(format!("{path}.codec"), &what, "use json"));
            }
        },
        SinkOptions::Drop(_) | SinkOptions::Result(_) => {
            let message = format!("sink '{id}' of type {kind} takes rows, not bytes, so it has no codec");
            faults.push(Fault::new("codec_not_taken", format!("{path}.codec"), message).with_hint("leave codec out"));
        }
    }
}

/// Rules on the columns that a sink takes.
pub(super) fn columns(spec: &JobSpec, id: &OperatorId, input: &Schema, faults: &mut Vec<Fault>) {
    for (i, sink) in spec.sinks.iter().enumerate().filter(|(_, sink)| sink.operator_id == *id) {
        if let SinkOptions::Kafka(kafka) = &sink.config {
            for (j, key) in kafka.key.iter().enumerate().filter(|(_, key)| input.index_of(key).is_none()) {
                faults.push(unknown_column(format!("sinks[{i}].config.key[{j}]"), &format!("the record key of sink '{id}'"), key, input));
            }
        }
    }
}
