//! Components of a stream: which one it is, its codec, and its options in the names of the JobSpec.
//! Spellings that streams have beyond those of jobs are turned into them here.

use super::{Reader, child, key, text_of};
use crate::options::node::{Key, Node, Value};
use crate::streams::shape::Family;
use weir_planner::error::Place;
use weir_planner::nearest::nearest;

/// A component taken apart.
pub(super) struct Component {
    /// Its `type`, one of those that are known.
    pub kind: String,
    /// Place of that word.
    pub place: Option<Place>,
    /// Its `codec`.
    pub codec: Option<Node>,
    /// Its `schema`, for an input.
    pub schema: Option<(Key, Node)>,
    /// Where it begins.
    begins: Option<Place>,
    /// Its other fields.
    fields: Vec<(Key, Node)>,
}

impl Component {
    /// Its other fields as a tree.
    pub fn rest(&self) -> Node {
        Node { place: self.begins, value: Value::Map(self.fields.clone()) }
    }

    /// One of its other fields.
    pub fn field(&self, name: &str) -> Option<&Node> {
        self.fields.iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    fn take(&mut self, name: &str) -> Option<(Key, Node)> {
        let at = self.fields.iter().position(|(key, _)| key.name == name)?;
        Some(self.fields.remove(at))
    }
}

impl Reader<'_> {
    /// Tells which component of a family a node is.
    pub(super) fn component(&mut self, node: &Node, path: &str, family: &Family) -> Option<Component> {
        self.paths.place(path, node.place);
        let what = family.what;
        let mut component = match &node.value {
            Value::Scalar { text, .. } => {
                Component { kind: text.clone(), place: node.place, codec: None, schema: None, begins: node.place, fields: Vec::new() }
            }
            Value::Map(fields) => {
                let Some(kind) = child(node, "type") else {
                    let hint = format!("known {what}s: {}", family.known.join(", "));
                    self.fault("missing_field", &format!("{path}.type"), node.place, format!("the {what} lacks its type"), hint);
                    return None;
                };
                let Some(text) = text_of(kind) else {
                    let message = format!("the type of the {what} must be a single value, it is {}", kind.kind());
                    self.fault("wrong_type", &format!("{path}.type"), kind.place, message, "");
                    return None;
                };
                Component {
                    kind: text.to_owned(),
                    place: kind.place,
                    codec: None,
                    schema: None,
                    begins: node.place,
                    fields: fields.clone(),
                }
            }
            Value::Null | Value::List(_) => {
                let message = format!("{path} must be a mapping with a type, it is {}", node.kind());
                self.fault("wrong_type", path, node.place, message, format!("known {what}s: {}", family.known.join(", ")));
                return None;
            }
        };
        component.take("type");
        let kind = component.kind.as_str();
        let known = family.known.join(", ");
        let article = if what.starts_with(['i', 'o']) { "an" } else { "a" };
        if family.known.contains(&kind) {
            if matches!(what, "input" | "output") {
                component.codec = component.take("codec").map(|(_, codec)| codec).filter(|codec| !matches!(codec.value, Value::Null));
            }
            if what == "input" {
                component.schema = component.take("schema");
            }
            return Some(component);
        }
        let type_path = format!("{path}.type");
        if family.later.contains(&kind) {
            let message = format!("{article} {what} of type '{kind}' is not available yet");
            self.fault("not_available", &type_path, component.place, message, format!("{what}s that work: {known}"));
        } else {
            let near = nearest(kind, family.known.iter().copied()).map(|near| format!("did you mean '{near}'? ")).unwrap_or_default();
            let message = format!("{article} {what} of type '{}' is not known", kind.escape_debug());
            self.fault("unknown_component", &type_path, component.place, message, format!("{near}known {what}s: {known}"));
        }
        None
    }

    /// An input in the names of a job's source.
    pub(super) fn as_input(&mut self, mut component: Component, path: &str) -> Option<Component> {
        match component.kind.as_str() {
            "kafka" => client(&mut component, &[("client_id", "client.id")]),
            "file" => self.typed_file(&mut component, path)?,
            _ => {}
        }
        Some(component)
    }

    /// `input_type: {type: csv, path: …}` names format and path together.
    fn typed_file(&mut self, component: &mut Component, path: &str) -> Option<()> {
        let Some((name, node)) = component.take("input_type") else { return Some(()) };
        let Value::Map(fields) = node.value else {
            let message = format!("input_type must be a mapping with type and path, it is {}", node.kind());
            self.fault(
                "wrong_type",
                &format!("{path}.input_type"),
                node.place,
                message,
                "such as input_type: {type: json, path: data.ndjson}",
            );
            return None;
        };
        if component.codec.is_some() {
            let message = "the file input has both 'codec' and 'input_type', which say the same";
            self.fault("given_twice", &format!("{path}.input_type"), name.place, message, "keep one of them");
            return None;
        }
        let (paths, format): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(key, _)| key.name == "path");
        component.fields.extend(paths);
        component.codec = Some(Node { place: node.place, value: Value::Map(format) });
        Some(())
    }

    /// An output in the names of a job's sink.
    pub(super) fn as_output(&mut self, mut component: Component, path: &str) -> Option<Component> {
        match component.kind.as_str() {
            "kafka" => {
                client(&mut component, &[("client_id", "client.id"), ("compression", "compression.type")]);
                self.all_acks(&mut component, path)?;
                self.constant_topic(&mut component, path)?;
            }
            "http" => {
                for (key, value) in &mut component.fields {
                    if let ("method", Value::Scalar { text, .. }) = (key.name.as_str(), &mut value.value) {
                        *text = text.to_ascii_lowercase();
                    }
                }
                self.retries(&mut component, path)?;
            }
            _ => {}
        }
        Some(component)
    }

    /// `acks: all` is what there is: an epoch is decided when every replica has its records.
    fn all_acks(&mut self, component: &mut Component, path: &str) -> Option<()> {
        let Some((_, node)) = component.take("acks") else { return Some(()) };
        if matches!(text_of(&node), None | Some("all" | "-1")) {
            return Some(());
        }
        let hint = "leave acks out: records are confirmed by all replicas, so that none is lost";
        self.fault("acks", &format!("{path}.acks"), node.place, "acks of a kafka output can only be 'all'", hint);
        None
    }

    /// `topic: {type: value, value: t}`.
    fn constant_topic(&mut self, component: &mut Component, path: &str) -> Option<()> {
        let Some((_, topic)) = component.fields.iter_mut().find(|(key, _)| key.name == "topic") else { return Some(()) };
        if !matches!(topic.value, Value::Map(_)) {
            return Some(());
        }
        if let (Some("value"), Some(value)) = (child(topic, "type").and_then(text_of), child(topic, "value").cloned()) {
            *topic = value;
            return Some(());
        }
        let place = topic.place;
        let hint = "name one topic: topic: alerts, or topic: {type: value, value: alerts}";
        self.fault("not_available", &format!("{path}.topic"), place, "a topic that is computed for each row is not available yet", hint);
        None
    }

    /// `retry_count: n` is one try more than that.
    fn retries(&mut self, component: &mut Component, path: &str) -> Option<()> {
        let Some((name, node)) = component.take("retry_count") else { return Some(()) };
        if component.fields.iter().any(|(key, _)| key.name == "tries") {
            let message = "the http output has both 'tries' and 'retry_count', which say the same";
            self.fault("given_twice", &format!("{path}.retry_count"), name.place, message, "keep one of them");
            return None;
        }
        let Some(tries) = text_of(&node).and_then(|text| text.trim().parse::<u32>().ok()).and_then(|retries| retries.checked_add(1)) else {
            self.fault("bad_value", &format!("{path}.retry_count"), node.place, "retry_count must be a whole number from 0", "");
            return None;
        };
        let tries = Node { place: node.place, value: Value::Scalar { text: tries.to_string(), plain: true } };
        component.fields.push((key("tries", name.place), tries));
        Some(())
    }

    /// A processor; what needs a second input is not there.
    pub(super) fn as_processor(&mut self, mut component: Component, path: &str) -> Option<Component> {
        if component.kind == "sql"
            && let Some((name, list)) = component.take("temporary_list")
            && !super::is_empty(&list)
        {
            let hint = "leave it out: a query reads the batch alone";
            self.fault(
                "not_available",
                &format!("{path}.temporary_list"),
                name.place,
                "temporary_list (lookup tables in a query) is not available yet",
                hint,
            );
            return None;
        }
        Some(component)
    }
}

/// Settings of the Kafka client that streams name as their own fields.
fn client(component: &mut Component, names: &[(&str, &str)]) {
    let place = component.begins;
    for (name, setting) in names {
        let Some((given, value)) = component.take(name) else { continue };
        let fields = &mut component.fields;
        let setting = (key(setting, given.place), value);
        match fields.iter_mut().find(|(key, _)| key.name == "properties").map(|(_, properties)| &mut properties.value) {
            Some(Value::Map(properties)) => properties.push(setting),
            // Its shape has a fault of its own.
            Some(Value::Scalar { .. } | Value::List(_)) => {}
            Some(none @ Value::Null) => *none = Value::Map(vec![setting]),
            None => fields.push((key("properties", place), Node { place, value: Value::Map(vec![setting]) })),
        }
    }
}
