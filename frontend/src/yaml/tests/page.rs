//! The field reference of docs/yaml.md is printed from the list of fields and the types' own defaults, so
//! that the page has every field and no other. `WEIR_GOLDEN=write` prints it anew.

use crate::options::shape::{CODECS, Field, JOB, Kind, OPERATOR, OPERATORS, Object, SINK, SINKS, SOURCE, SOURCES};
use crate::options::{decode_format, decode_sink, decode_source};
use serde_json::{Map, Value, json};
use std::path::Path;
use weir_planner::spec::JobSpec;

const BEGIN: &str = "<!-- fields -->\n";
const END: &str = "<!-- end of fields -->\n";

/// The smallest job with everything that has defaults of its own.
fn smallest() -> Value {
    let window = json!({"window": {"tumbling": {"size_ms": 1}}, "aggregates": [{"expr": "count(*)", "as": "n"}]});
    let join = json!({"left_from": "a", "right_from": "b", "left_key": "k", "right_key": "k"});
    let top = json!({"order_by": [{"column": "n"}], "limit": 1});
    let spec: JobSpec = serde_json::from_value(json!({
        "id": "j",
        "operators": [{"id": "w", "kind": "window", "config": window}, {"id": "j", "kind": "join", "config": join}, {"id": "t", "kind": "top", "config": top}],
        "edges": [{"id": "e", "from": "a", "to": "b"}],
        "sources": [{"operator_id": "a", "input_type": "memory", "config": {"type": "memory"}, "schema": [{"name": "k", "type": "BIGINT"}],
            "time": {"watermark": {}}, "durability": {}}],
        "sinks": [{"operator_id": "b", "output_type": "drop", "config": {"type": "drop"}}]}))
    .unwrap();
    serde_json::to_value(spec).unwrap()
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Id => "name".to_owned(),
        Kind::Bool => "true, false".to_owned(),
        Kind::Count | Kind::Small | Kind::Number => "number".to_owned(),
        Kind::Millis | Kind::SignedMillis => "duration".to_owned(),
        Kind::Word(words) => words.join(", "),
        Kind::Type => "column type".to_owned(),
        Kind::Char => "one character".to_owned(),
        Kind::Commas => "list".to_owned(),
        Kind::OneOrMany => "text or list".to_owned(),
        Kind::TextMap => "texts by name".to_owned(),
        Kind::JsonText | Kind::Any => "JSON".to_owned(),
        Kind::List(of) => match of {
            Kind::List(_) => "list of lists".to_owned(),
            _ => "list".to_owned(),
        },
        Kind::Object(_) | Kind::Operator | Kind::Source | Kind::Sink => "fields".to_owned(),
        Kind::OneOf(_) => "one of its fields".to_owned(),
        Kind::Codec => "format".to_owned(),
    }
}

fn row(field: &Field, path: &str, default: Option<&Value>, text: &mut String) {
    let default = match default {
        _ if field.required => "needed".to_owned(),
        None if matches!(field.kind, Kind::List(_) | Kind::Commas) => "empty".to_owned(),
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::Array(items)) if items.is_empty() => "empty".to_owned(),
        Some(Value::String(word)) => word.clone(),
        Some(value) => value.to_string(),
    };
    text.push_str(&format!("| `{path}` | {} | {default} |\n", takes(field.kind)));
}

fn rows(shape: &Object, path: &str, defaults: Option<&Value>, text: &mut String) {
    for field in shape.fields {
        let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        let default = defaults.and_then(|defaults| defaults.get(field.name));
        match field.kind {
            Kind::Object(inner) => {
                row(field, &path, None, text);
                rows(inner, &path, default, text);
            }
            Kind::OneOf(inner) => {
                row(field, &path, None, text);
                rows(inner, &path, None, text);
            }
            Kind::List(Kind::Object(inner)) => {
                row(field, &path, None, text);
                rows(inner, &format!("{path}[]"), default.and_then(|list| list.get(0)), text);
            }
            _ => row(field, &path, default.filter(|_| !matches!(field.kind, Kind::List(Kind::Operator | Kind::Source | Kind::Sink))), text),
        }
    }
}

fn table(title: &str, shape: &Object, path: &str, defaults: Option<&Value>, text: &mut String) {
    if !shape.fields.is_empty() {
        text.push_str(&format!("\n{title}\n\n| field | takes | default |\n| --- | --- | --- |\n"));
        rows(shape, path, defaults, text);
    }
}

/// Options with no more than must be given.
fn needed(shape: &Object) -> Map<String, Value> {
    let value = |field: &Field| match field.kind {
        Kind::List(_) | Kind::Commas => json!([]),
        _ => json!("x"),
    };
    shape.fields.iter().filter(|field| field.required).map(|field| (field.name.to_owned(), value(field))).collect()
}

fn reference() -> String {
    let (job, mut text) = (smallest(), String::new());
    table("A job:", &JOB, "", Some(&job), &mut text);
    table("An operator:", &OPERATOR, "operators[]", None, &mut text);
    for (kind, shape) in OPERATORS {
        let defaults = match *kind {
            "window" | "aggregate" => job.pointer("/operators/0/config"),
            "join" => job.pointer("/operators/1/config"),
            "top" => job.pointer("/operators/2/config"),
            _ => None,
        };
        table(&format!("`operators[].config` of kind `{kind}`:"), shape, "", defaults, &mut text);
    }
    table("A source:", &SOURCE, "sources[]", job.pointer("/sources/0"), &mut text);
    for (name, shape) in SOURCES {
        let defaults = decode_source(name, needed(shape)).ok().and_then(|options| serde_json::to_value(options).ok());
        table(&format!("`sources[].config` of `{name}`:"), shape, "", defaults.as_ref(), &mut text);
    }
    table("A sink:", &SINK, "sinks[]", job.pointer("/sinks/0"), &mut text);
    for (name, shape) in SINKS {
        let defaults = decode_sink(name, needed(shape)).ok().and_then(|options| serde_json::to_value(options).ok());
        table(&format!("`sinks[].config` of `{name}`:"), shape, "", defaults.as_ref(), &mut text);
    }
    for (name, shape) in CODECS {
        let defaults = decode_format(name, needed(shape)).ok().and_then(|options| serde_json::to_value(options).ok());
        table(&format!("Codec `{name}`:"), shape, "", defaults.as_ref(), &mut text);
    }
    text.push('\n');
    text
}

/// JOB-7: the page has every field of the contract with its default, and no other.
#[test]
fn the_page_has_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/yaml.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the fields");
    let (found, after) = rest.split_once(END).expect("the fields end");
    let expected = reference();
    if std::env::var("WEIR_GOLDEN").as_deref() == Ok("write") {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
    } else if found != expected {
        let lost = expected.lines().find(|line| !found.contains(*line));
        panic!("docs/yaml.md is not what the fields say (WEIR_GOLDEN=write prints it anew): {lost:?}");
    }
    for (pointer, default) in [("checkpoint.epoch_ms", "1000"), ("restart.max_attempts", "5"), ("sources[].batch.rows", "8192")] {
        assert!(
            expected.lines().any(|line| line.starts_with(&format!("| `{pointer}` |")) && line.ends_with(&format!("| {default} |"))),
            "{pointer}"
        );
    }
}
