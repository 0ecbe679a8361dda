//! Options by name, as YAML, REST and SQL's `WITH` give them, to the JobSpec's types. One closed
//! list of fields serves all doors (JOB-3, SQL-13).

pub mod duration;
pub mod fit;
pub mod node;
mod scalar;
pub mod shape;

use fit::{Fit, Path};
use node::{Key, Node, Value};
use serde_json::{Map, Value as Json};
use shape::{CODECS, JOB_OPTIONS, Object, SINKS, SOURCES};
use weir_planner::connector::{Format, SinkOptions, SourceOptions};
use weir_planner::error::Fault;
use weir_planner::spec::{JobSpec, Sink, Source, Window};

/// Options of the source connector `input_type`. The path of a fault is the option's name.
///
/// Errors: the first fault: an unknown connector or option, a bad or missing value.
pub fn decode_source(input_type: &str, options: Map<String, Json>) -> Result<SourceOptions, Fault> {
    decode(input_type, options, "source", SOURCES)
}

/// Options of the sink connector `output_type`.
///
/// Errors: as [`decode_source`].
pub fn decode_sink(output_type: &str, options: Map<String, Json>) -> Result<SinkOptions, Fault> {
    decode(output_type, options, "sink", SINKS)
}

/// A format and its options, such as `json`, or `csv` with `header`.
///
/// Errors: as [`decode_source`].
pub fn decode_format(name: &str, options: Map<String, Json>) -> Result<Format, Fault> {
    decode(name, options, "codec", CODECS)
}

/// Sets fields of the job itself by dotted names, such as `checkpoint.interval = '10s'`.
///
/// Errors: the first fault; the spec is then unchanged.
pub fn apply_job_options(spec: &mut JobSpec, options: &Map<String, Json>) -> Result<(), Fault> {
    let mut graph = spec.clone();
    let (operators, edges) = (std::mem::take(&mut graph.operators), std::mem::take(&mut graph.edges));
    let (sources, sinks) = (std::mem::take(&mut graph.sources), std::mem::take(&mut graph.sinks));
    let changed: JobSpec = patched(&graph, &JOB_OPTIONS, options)?;
    *spec = JobSpec { operators, edges, sources, sinks, ..changed };
    Ok(())
}

/// Sets fields of a window that are not part of its query by dotted names, such as
/// `emit_empty.horizon = '1h'`.
///
/// Errors: the first fault; the window is then unchanged.
pub fn apply_window_options(window: &mut Window, options: &Map<String, Json>) -> Result<(), Fault> {
    *window = patched(window, &shape::WINDOW_OPTIONS, options)?;
    Ok(())
}

/// Sets fields of a source other than its connector's own options by dotted names; those of `time`
/// and of its watermark also without that prefix, such as `allowed_lateness = '5s'`,
/// `watermark.idle_timeout = '1m'` or `idle_timeout = '1m'`.
///
/// Errors: the first fault; the source is then unchanged.
pub fn apply_source_options(source: &mut Source, options: &Map<String, Json>) -> Result<(), Fault> {
    let within =
        |object: &Object, name: &str| object.fields.iter().any(|field| field.name == name || field.name.strip_suffix("_ms") == Some(name));
    let mut prefixed = Map::new();
    for (name, value) in options {
        let first = name.split('.').next().unwrap_or(name);
        let full = if within(&shape::TIME, first) {
            format!("time.{name}")
        } else if within(&shape::WATERMARK, name) {
            format!("time.watermark.{name}")
        } else {
            name.clone()
        };
        if prefixed.insert(full, value.clone()).is_some() {
            return Err(Fault::new("given_twice", name.clone(), format!("option '{name}' is given under two of its names"))
                .with_hint("keep one of them"));
        }
    }
    *source = patched(source, &shape::SOURCE, &prefixed)?;
    Ok(())
}

/// Sets fields of a sink other than its connector's own options by dotted names.
///
/// Errors: the first fault; the sink is then unchanged.
pub fn apply_sink_options(sink: &mut Sink, options: &Map<String, Json>) -> Result<(), Fault> {
    *sink = patched(sink, &shape::SINK, options)?;
    Ok(())
}

/// Whether `name` is a field of a source (bare, dotted, or one of `time`'s) rather than an option
/// of its connector.
pub fn is_source_field(name: &str) -> bool {
    let first = name.split('.').next().unwrap_or(name);
    let known = |object: &Object| object.fields.iter().any(|field| field.name == first || field.name.strip_suffix("_ms") == Some(first));
    !matches!(first, "config" | "operator_id" | "input_type") && (known(&shape::SOURCE) || known(&shape::TIME) || known(&shape::WATERMARK))
}

/// Whether `name` is a field of a sink rather than an option of its connector. A Kafka sink's `key`
/// is its connector's.
pub fn is_sink_field(name: &str) -> bool {
    matches!(name.split('.').next(), Some("codec" | "delivery" | "on_error"))
}

fn decode<T: serde::de::DeserializeOwned>(kind: &str, options: Map<String, Json>, role: &str, table: fit::Table) -> Result<T, Fault> {
    let mut fit = Fit::default();
    let node = Node::from_json(&Json::Object(options));
    let json = fit.config(kind, &node, role, table, (&Path::root(), None), &Path::root());
    finished(fit, json)
}

fn finished<T: serde::de::DeserializeOwned>(fit: Fit, json: Option<Json>) -> Result<T, Fault> {
    if let Some(fault) = fit.faults.into_iter().next() {
        return Err(fault);
    }
    serde_json::from_value(json.unwrap_or(Json::Null)).map_err(|error| Fault::new("bad_value", "", error.to_string()))
}

/// `base` with the fields that `options` name replaced.
fn patched<T: serde::Serialize + serde::de::DeserializeOwned>(base: &T, shape: &Object, options: &Map<String, Json>) -> Result<T, Fault> {
    let mut fit = Fit::partial();
    let node = nested(options, shape)?;
    let patch = fit.object(&node, shape, &Path::root()).unwrap_or_default();
    if let Some(fault) = fit.faults.into_iter().next() {
        return Err(fault);
    }
    let mut json = serde_json::to_value(base).map_err(|error| Fault::new("bad_value", "", error.to_string()))?;
    merge(&mut json, Json::Object(patch));
    serde_json::from_value(json).map_err(|error| Fault::new("bad_value", "", error.to_string()))
}

fn merge(base: &mut Json, patch: Json) {
    match (base, patch) {
        // A tagged object is another one when its tag is given.
        (Json::Object(base), Json::Object(patch)) if !patch.contains_key("type") => {
            for (name, value) in patch {
                merge(base.entry(name).or_insert(Json::Null), value);
            }
        }
        (base, patch) => *base = patch,
    }
}

/// Dotted names as nested mappings, in the order given.
fn nested(options: &Map<String, Json>, shape: &Object) -> Result<Node, Fault> {
    let mut root = Vec::new();
    for (name, value) in options {
        let parts: Vec<&str> = name.split('.').collect();
        put(&mut root, &parts, Node::from_json(value))
            .map_err(|message| Fault::new("given_twice", name.clone(), format!("{}: {message}", shape.what)))?;
    }
    Ok(Node { place: None, value: Value::Map(root) })
}

fn put(fields: &mut Vec<(Key, Node)>, parts: &[&str], value: Node) -> Result<(), String> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    let at = fields.iter().position(|(key, _)| key.name == *first);
    match (at.and_then(|at| fields.get_mut(at)), rest.is_empty()) {
        (None, true) => fields.push((Key { name: (*first).to_owned(), place: None }, value)),
        (None, false) => {
            let mut inner = Vec::new();
            put(&mut inner, rest, value)?;
            fields.push((Key { name: (*first).to_owned(), place: None }, Node { place: None, value: Value::Map(inner) }));
        }
        (Some((_, Node { value: Value::Map(inner), .. })), false) => put(inner, rest, value)?,
        (Some(_), _) => return Err(format!("'{first}' is given as a whole and in parts")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
