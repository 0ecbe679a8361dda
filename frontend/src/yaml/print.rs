//! JobSpecs as YAML: fields in a fixed order, defaults and bound forms left out, secrets masked.

use serde_json::{Map, Value as Json};
use weir_planner::secret::{MASK, is_secret, shown};
use weir_planner::spec::JobSpec;

/// A spec as YAML that parses and binds to an equal spec, but for secrets (JOB-3, SQL-11).
pub fn print(spec: &JobSpec) -> String {
    let mut json = to_json(spec);
    leave_out_defaults(&mut json);
    let mut text = String::new();
    if let Json::Object(fields) = &json {
        write_fields(fields, 0, &mut text);
    }
    text
}

/// A spec as JSON, every field written out: without bound forms, secrets masked.
pub fn to_json(spec: &JobSpec) -> Json {
    masked(spec)
}

/// The JSON of a spec or plan: without bound forms beside SQL text, secrets masked.
pub fn masked<T: serde::Serialize>(value: &T) -> Json {
    let mut json = serde_json::to_value(value).unwrap_or(Json::Null);
    clean(&mut json, "");
    json
}

/// Takes bound forms away and masks what `within`, the name of the object that holds it, makes a secret.
fn clean(json: &mut Json, within: &str) {
    match json {
        Json::Object(fields) => {
            if let (2, Some(Json::String(sql)), true) = (fields.len(), fields.get("sql"), fields.contains_key("bound")) {
                *json = Json::String(sql.clone());
                return;
            }
            for (name, value) in fields.iter_mut() {
                // Headers are secrets whatever their names; what else is one shows by its name alone.
                let full = if within == "headers" { format!("headers.{name}") } else { name.clone() };
                match value {
                    Json::String(text) => *text = shown(&full, text),
                    Json::Bool(_) | Json::Number(_) | Json::Array(_) if is_secret(&full) => *value = Json::from(MASK),
                    Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => clean(value, name),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| clean(item, "")),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The smallest job with one of each, to tell what a field is when it is left out.
const SMALLEST: &str = r#"{"id":"a","operators":[],"edges":[{"id":"a","from":"a","to":"b"}],
 "sources":[{"operator_id":"a","input_type":"memory","config":{"type":"memory"}}],
 "sinks":[{"operator_id":"b","output_type":"drop","config":{"type":"drop"}}]}"#;

fn leave_out_defaults(json: &mut Json) {
    let Ok(Ok(smallest)) = serde_json::from_str::<JobSpec>(SMALLEST).map(serde_json::to_value) else { return };
    let (Json::Object(fields), Json::Object(mut defaults)) = (json, smallest) else { return };
    for list in ["edges", "sources", "sinks"] {
        let first = defaults.remove(list).and_then(|list| list.get(0).cloned());
        if let (Some(Json::Array(items)), Some(default)) = (fields.get_mut(list), first) {
            items.iter_mut().for_each(|item| prune(item, &default));
        }
    }
    fields.retain(|name, value| {
        let kept = matches!(name.as_str(), "id" | "version" | "parallelism" | "max_parallelism" | "operators");
        kept || match defaults.get(name) {
            Some(default) if value == default => false,
            Some(default) => {
                prune(value, default);
                true
            }
            None => true,
        }
    });
}

fn prune(value: &mut Json, default: &Json) {
    if let (Json::Object(fields), Json::Object(defaults)) = (value, default) {
        fields.retain(|name, value| {
            let kept = matches!(name.as_str(), "id" | "from" | "to" | "operator_id" | "input_type" | "output_type" | "config");
            kept || defaults.get(name) != Some(value)
        });
        for (name, value) in fields.iter_mut().filter(|(name, _)| *name != "config") {
            if let Some(default) = defaults.get(name) {
                prune(value, default);
            }
        }
    }
}

/// Fields that come first, in this order; others follow by name.
const FIRST: [&str; 30] = [
    "id", "operator_id", "name", "kind", "type", "input_type", "output_type", "version", "parallelism", "max_parallelism", "from", "to",
    "config", "filter", "project", "window", "keys", "expr", "as", "aggregates", "codec", "schema", "mode", "timestamp_field", "watermark",
    "time", "operators", "edges", "sources", "sinks",
];

fn ordered(fields: &Map<String, Json>) -> Vec<(&String, &Json)> {
    let mut ordered: Vec<_> = fields.iter().collect();
    ordered.sort_by_key(|(name, _)| (FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()), (*name).clone()));
    // Job-level settings read best before the graph.
    let graph = |name: &str| matches!(name, "operators" | "edges" | "sources" | "sinks");
    if fields.contains_key("operators") {
        ordered.sort_by_key(|(name, _)| graph(name));
    }
    ordered
}

fn write_fields(fields: &Map<String, Json>, indent: usize, text: &mut String) {
    for (at, (name, value)) in ordered(fields).into_iter().enumerate() {
        if at > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&scalar(name));
        text.push(':');
        match value {
            Json::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                text.push_str(&" ".repeat(indent + 2));
                write_fields(inner, indent + 2, text);
            }
            Json::Array(items) if items.iter().any(|item| matches!(item, Json::Object(_))) => {
                text.push('\n');
                for item in items {
                    text.push_str(&" ".repeat(indent));
                    text.push_str("- ");
                    match item {
                        Json::Object(inner) if !inner.is_empty() => write_fields(inner, indent + 2, text),
                        other => {
                            text.push_str(&flow(other));
                            text.push('\n');
                        }
                    }
                }
            }
            other => {
                text.push(' ');
                text.push_str(&flow(other));
                text.push('\n');
            }
        }
    }
}

fn flow(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        Json::String(text) => scalar(text),
        Json::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => format!(
            "{{{}}}",
            fields.iter().map(|(name, value)| format!("{}: {}", scalar(name), flow(value))).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Text as it may stand in YAML: bare where no reader could take it for anything else.
fn scalar(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '(' | ')' | '*' | '+' | '<' | '>' | '=' | ' ');
    let word = text.to_ascii_lowercase();
    let reserved = matches!(word.as_str(), "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n");
    let bare =
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(safe) && !text.ends_with(' ') && !reserved;
    if bare { text.to_owned() } else { Json::from(text).to_string() }
}
