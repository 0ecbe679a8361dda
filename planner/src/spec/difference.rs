//! What differs between two specs of one job, for the rule that a version never changes its content (JOB-1).

use super::JobSpec;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The fields in which two specs differ, in the order of the first one's fields, such as
/// `operators[window-1].config.keys`; empty for equal content. Parts with an id are told apart by
/// it, others by their place. Bound forms do not count: they follow from the text. Values are not
/// shown, since some are secrets.
pub fn differences(old: &JobSpec, new: &JobSpec) -> Vec<String> {
    let mut paths = Vec::new();
    compare("", &content(old), &content(new), &mut paths);
    paths
}

/// `new` with the fields of `old` that may change under one version where nobody but the command
/// line keeps versions: how many tasks and what they may use, the paces of epochs and restarts, how
/// long results stay, and how a changed task set is met. What is left to differ is the job itself.
#[must_use]
pub fn with_tuning_of(new: &JobSpec, old: &JobSpec) -> JobSpec {
    let mut tuned = new.clone();
    tuned.parallelism = old.parallelism;
    tuned.rescale = old.rescale;
    tuned.resources.clone_from(&old.resources);
    tuned.checkpoint.clone_from(&old.checkpoint);
    tuned.restart.clone_from(&old.restart);
    tuned.result_retention_rows = old.result_retention_rows;
    tuned.result_retention_ms = old.result_retention_ms;
    for operator in &mut tuned.operators {
        if let Some(before) = old.operators.iter().find(|before| before.id == operator.id) {
            operator.parallelism = before.parallelism;
        }
    }
    tuned
}

/// A list of paths for a message, cut after `most`.
pub fn listed(paths: &[String], most: usize) -> String {
    let shown = paths.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A spec's content as a tree. A spec always serialises; were it not to, it would equal nothing.
fn content(spec: &JobSpec) -> Value {
    let mut value = serde_json::to_value(spec).unwrap_or(Value::Null);
    unbind(&mut value);
    value
}

fn unbind(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.len() == 2
                && fields.contains_key("bound")
                && let Some(text @ Value::String(_)) = fields.remove("sql")
            {
                *value = text;
                return;
            }
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(unbind);
        }
        Value::Array(items) => items.iter_mut().for_each(unbind),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn compare(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new)) => objects(path, old, new, paths),
        (Value::Array(old), Value::Array(new)) => match (named(old), named(new)) {
            (Some(old), Some(new)) if !old.is_empty() || !new.is_empty() => parts(path, &old, &new, paths),
            _ if old.len() == new.len() => {
                for (at, (old, new)) in old.iter().zip(new).enumerate() {
                    compare(&format!("{path}[{at}]"), old, new, paths);
                }
            }
            _ => paths.push(path.to_owned()),
        },
        _ => paths.push(path.to_owned()),
    }
}

fn objects(path: &str, old: &Map<String, Value>, new: &Map<String, Value>, paths: &mut Vec<String>) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let joint = if path.is_empty() { "" } else { "." };
        let (old, new) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        compare(&format!("{path}{joint}{name}"), old, new, paths);
    }
}

/// What names an item of a list.
const NAMES: [&str; 4] = ["id", "operator_id", "name", "as"];

/// The items of a list whose items all have a name of their own.
fn named(items: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let pairs: Option<Vec<(&str, &Value)>> =
        items.iter().map(|item| NAMES.iter().find_map(|key| item.get(*key)).and_then(Value::as_str).map(|name| (name, item))).collect();
    let pairs = pairs?;
    let distinct: BTreeSet<&str> = pairs.iter().map(|(name, _)| *name).collect();
    (distinct.len() == items.len()).then_some(pairs)
}

fn parts(path: &str, old: &[(&str, &Value)], new: &[(&str, &Value)], paths: &mut Vec<String>) {
    let before = paths.len();
    for (name, value) in old {
        match new.iter().find(|(other, _)| other == name) {
            Some((_, other)) => compare(&format!("{path}[{name}]"), value, other, paths),
            None => paths.push(format!("{path}[{name}] (removed)")),
        }
    }
    for (name, _) in new {
        if !old.iter().any(|(other, _)| other == name) {
            paths.push(format!("{path}[{name}] (added)"));
        }
    }
    if paths.len() == before {
        paths.push(format!("{path} (order)"));
    }
}

#[cfg(test)]
mod tests;
