//! Fits a tree into the shape of a job: names and values are checked one by one, so that all
//! faults of a document come together, each with its path and place (JOB-7).

use super::node::{Node, Value};
use super::scalar::scalar;
pub use super::scalar::shown;
use super::shape::{CODECS, FILTER, Field, Kind, OPERATOR, OPERATORS, Object, SINK, SINKS, SOURCE, SOURCES};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use weir_planner::error::{Fault, Place};
use weir_planner::nearest::{hint, nearest};

/// Most faults that one document reports; more of them help nobody.
const FAULTS_MAX: usize = 100;

/// What fitting finds besides the value.
#[derive(Debug, Default)]
pub struct Fit {
    /// Everything that is wrong.
    pub faults: Vec<Fault>,
    /// Where each field of the JobSpec stands, by its path.
    pub places: BTreeMap<String, Spot>,
    /// Whether an element of a list of the graph had to be left out, since nothing could be made of it.
    pub dropped: bool,
    prefix: String,
    partial: bool,
}

/// A field in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Where it stands.
    pub place: Place,
    /// Its path as the user wrote it, where that is not the path in the JobSpec.
    pub given: Option<Box<str>>,
}

/// A field's path, as the user wrote it and as the JobSpec calls it.
#[derive(Clone, Debug, Default)]
pub struct Path {
    given: String,
    spec: String,
}

impl Path {
    /// The root of the JobSpec.
    pub fn root() -> Path {
        Path::default()
    }

    fn field(&self, given: &str, spec: &str) -> Path {
        let join = |base: &str, name: &str| if base.is_empty() { name.to_owned() } else { format!("{base}.{name}") };
        Path { given: join(&self.given, given), spec: join(&self.spec, spec) }
    }

    fn item(&self, at: usize, kept: usize) -> Path {
        Path { given: format!("{}[{at}]", self.given), spec: format!("{}[{kept}]", self.spec) }
    }

    /// Whether it is a list of which the other elements say something without the bad ones.
    fn is_graph(&self) -> bool {
        matches!(self.spec.as_str(), "operators" | "edges" | "sources" | "sinks")
    }
}

impl Fit {
    /// For a patch: what the root lacks is not asked for.
    pub fn partial() -> Fit {
        Fit { partial: true, ..Fit::default() }
    }

    /// For a job whose path in the document is `prefix`.
    pub fn within(prefix: &str) -> Fit {
        Fit { prefix: prefix.to_owned(), ..Fit::default() }
    }

    fn fault(&mut self, code: &str, path: &Path, place: Option<Place>, message: String, hint: &str) {
        if self.faults.len() < FAULTS_MAX {
            let joint = if self.prefix.is_empty() || path.given.is_empty() { "" } else { "." };
            let fault = Fault::new(code, format!("{}{joint}{}", self.prefix, path.given), message).with_hint(hint);
            self.faults.push(match place {
                Some(place) => fault.at(place),
                None => fault,
            });
        }
    }

    /// Fits a node into an object. `None` where it is none; faults inside are told and passed over.
    pub fn object(&mut self, node: &Node, shape: &Object, path: &Path) -> Option<Map<String, Json>> {
        let fields = match (&node.value, shape.short) {
            (Value::Map(fields), _) => fields,
            (Value::Null, _) => return Some(self.finish(node, shape, path, Map::new())),
            (Value::Scalar { .. }, Some(short)) => {
                let mut json = Map::new();
                if let Some(field) = shape.fields.iter().find(|field| field.name == short)
                    && let Some(value) = self.value(node, field, &path.field(short, short))
                {
                    json.insert(short.to_owned(), value);
                }
                return Some(self.finish(node, shape, path, json));
            }
            (Value::Scalar { .. } | Value::List(_), _) => {
                let message = format!("{} must be a mapping, it is {}", shape.what, node.kind());
                let first = shape.fields.first().map_or("", |field| field.name);
                self.fault("wrong_type", path, node.place, message, &format!("write it as fields, such as {{{first}: …}}"));
                return None;
            }
        };
        let mut json = Map::new();
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, value) in fields {
            let Some(field) = find(shape, &key.name) else {
                self.unknown(&key.name, shape, path, key.place);
                continue;
            };
            if matches!(value.value, Value::Null) {
                continue;
            }
            let inner = path.field(&key.name, field.name);
            if let Some(first) = given.insert(field.name, &key.name) {
                let message = format!("{} has both '{first}' and '{}', which are the same field", shape.what, key.name);
                self.fault("given_twice", &inner, key.place, message, "keep one of them");
                continue;
            }
            if let Some(value) = self.value(value, field, &inner) {
                json.insert(field.name.to_owned(), value);
            }
        }
        let bad: Vec<&str> = given.keys().copied().filter(|name| !json.contains_key(*name)).collect();
        self.required(node, shape, path, &json, &bad);
        self.seen(node, path);
        Some(json)
    }

    fn finish(&mut self, node: &Node, shape: &Object, path: &Path, json: Map<String, Json>) -> Map<String, Json> {
        self.required(node, shape, path, &json, &[]);
        self.seen(node, path);
        json
    }

    fn required(&mut self, node: &Node, shape: &Object, path: &Path, json: &Map<String, Json>, bad: &[&str]) {
        if self.partial && path.spec.is_empty() {
            return;
        }
        let lacks = |field: &&Field| field.required && !json.contains_key(field.name) && !bad.contains(&field.name);
        for field in shape.fields.iter().filter(lacks) {
            let message = format!("{} lacks the field '{}'", shape.what, field.name);
            let example = example(field.kind).map(|value| format!(", such as {value}")).unwrap_or_default();
            self.fault("missing_field", &path.field(field.name, field.name), node.place, message, &format!("add {}{example}", field.name));
        }
    }

    fn seen(&mut self, node: &Node, path: &Path) {
        if let Some(place) = node.place {
            let given = (path.given != path.spec).then(|| path.given.as_str().into());
            self.places.insert(path.spec.clone(), Spot { place, given });
        }
    }

    fn unknown(&mut self, name: &str, shape: &Object, path: &Path, place: Option<Place>) {
        let names: Vec<String> = shape.fields.iter().flat_map(spellings).collect();
        let hint = match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean '{near}'?"),
            None if names.is_empty() => "leave it out".to_owned(),
            None if shape.what == FILTER.what && name == "project" => "use kind: map, which has both".to_owned(),
            None => format!("known fields: {}", shape.fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")),
        };
        let message = format!("{} has no field '{}'", shape.what, shown(name));
        self.fault("unknown_field", &path.field(name, name), place, message, &hint);
    }

    fn value(&mut self, node: &Node, field: &Field, path: &Path) -> Option<Json> {
        self.seen(node, path);
        self.of_kind(node, field.name, field.kind, path)
    }

    fn of_kind(&mut self, node: &Node, name: &str, kind: Kind, path: &Path) -> Option<Json> {
        match kind {
            Kind::Any => Some(node.to_json()),
            Kind::JsonText => match &node.value {
                Value::Scalar { text, .. } => Some(Json::from(text.as_str())),
                Value::Null | Value::List(_) | Value::Map(_) => Some(Json::from(node.to_json().to_string())),
            },
            Kind::List(of) => self.list(node, name, *of, path),
            Kind::Commas => match &node.value {
                Value::Scalar { text, .. } => {
                    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                    Some(Json::Array(parts.map(Json::from).collect()))
                }
                Value::Null | Value::List(_) | Value::Map(_) => self.list(node, name, Kind::Text, path),
            },
            Kind::OneOrMany => match &node.value {
                Value::Scalar { text, .. } => Some(Json::from(text.as_str())),
                Value::Null | Value::List(_) | Value::Map(_) => self.list(node, name, Kind::Text, path),
            },
            Kind::TextMap => self.text_map(node, name, path),
            Kind::Object(shape) => self.object(node, shape, path).map(Json::Object),
            Kind::OneOf(shape) => {
                let json = self.object(node, shape, path)?;
                if json.len() == 1 {
                    return Some(Json::Object(json));
                }
                let names: Vec<&str> = shape.fields.iter().map(|field| field.name).collect();
                let message = format!("{name} must have exactly one of {}", names.join(", "));
                self.fault("one_of", path, node.place, message, &format!("such as {}", one_of(shape)));
                None
            }
            Kind::Operator => self.operator(node, path),
            Kind::Source => self.endpoint(node, &SOURCE, "input_type", "source", SOURCES, path),
            Kind::Sink => self.endpoint(node, &SINK, "output_type", "sink", SINKS, path),
            Kind::Codec => self.codec(node, path),
            Kind::Text
            | Kind::Id
            | Kind::Bool
            | Kind::Count
            | Kind::Small
            | Kind::Number
            | Kind::Millis
            | Kind::SignedMillis
            | Kind::Word(_)
            | Kind::Type
            | Kind::Char => {
                let Value::Scalar { text, .. } = &node.value else {
                    self.fault(
                        "wrong_type",
                        path,
                        node.place,
                        format!("{name} must be a single value, it is {}", node.kind()),
                        "write one value",
                    );
                    return None;
                };
                match scalar(name, text, kind) {
                    Ok(json) => Some(json),
                    Err((code, message, hint)) => {
                        self.fault(code, path, node.place, message, &hint);
                        None
                    }
                }
            }
        }
    }

    fn list(&mut self, node: &Node, name: &str, of: Kind, path: &Path) -> Option<Json> {
        let Value::List(items) = &node.value else {
            self.fault(
                "wrong_type",
                path,
                node.place,
                format!("{name} must be a list, it is {}", node.kind()),
                "write [a, b], or each entry on a line of its own that begins with '- '",
            );
            return None;
        };
        let mut all = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let inner = path.item(at, all.len());
            self.seen(item, &inner);
            match self.of_kind(item, name, of, &inner) {
                Some(json) => all.push(json),
                None => {
                    self.forget(&inner.spec);
                    self.dropped |= path.is_graph();
                }
            }
        }
        (all.len() == items.len() || path.is_graph()).then_some(Json::Array(all))
    }

    /// The next element takes the path of one that was left out.
    fn forget(&mut self, spec: &str) {
        let of_it = self.places.range(spec.to_owned()..).take_while(|(path, _)| path.starts_with(spec));
        let gone: Vec<String> = of_it.map(|(path, _)| path.clone()).collect();
        for path in gone {
            self.places.remove(&path);
        }
    }

    fn text_map(&mut self, node: &Node, name: &str, path: &Path) -> Option<Json> {
        let Value::Map(fields) = &node.value else {
            self.fault("wrong_type", path, node.place, format!("{name} must be a mapping, it is {}", node.kind()), "write {key: value}");
            return None;
        };
        let mut json = Map::new();
        for (key, value) in fields {
            let inner = path.field(&key.name, &key.name);
            self.seen(value, &inner);
            if let Some(value) = self.of_kind(value, &key.name, Kind::Text, &inner) {
                json.insert(key.name.clone(), value);
            }
        }
        Some(Json::Object(json))
    }

    fn operator(&mut self, node: &Node, path: &Path) -> Option<Json> {
        let mut json = self.object(node, &OPERATOR, path)?;
        json.remove("config");
        let kind = json.get("kind").and_then(Json::as_str)?.to_owned();
        let inner = path.field("config", "config");
        let Some((_, shape)) = OPERATORS.iter().find(|(name, _)| *name == kind) else {
            let place = child(node, "kind").map_or(node.place, |kind| kind.place);
            let later = || format!("the operator kind '{kind}' is not available yet");
            let (code, message, hint) = match kind.as_str() {
                "udf" | "function" => {
                    let hint = "write it as a map with SQL expressions: config: {project: [upper(name) AS name]}";
                    ("not_available", later(), hint.to_owned())
                }
                "lookup" => ("not_available", later(), format!("known kinds: {KINDS}")),
                _ => {
                    let message = format!("the operator kind '{}' is not known", shown(&kind));
                    ("unknown_kind", message, hint(&kind, "kinds", KINDS.split(", ")))
                }
            };
            self.fault(code, &path.field("kind", "kind"), place, message, &hint);
            return None;
        };
        let empty = Node { place: node.place, value: Value::Null };
        let config = self.object(child(node, "config").unwrap_or(&empty), shape, &inner)?;
        if !config.is_empty() {
            json.insert("config".to_owned(), Json::Object(config));
        }
        Some(Json::Object(json))
    }

    fn endpoint(&mut self, node: &Node, shape: &Object, tag: &str, role: &str, table: Table, path: &Path) -> Option<Json> {
        let mut json = self.object(node, shape, path)?;
        let kind = json.get(tag).and_then(Json::as_str)?.to_owned();
        let place = child(node, tag).map_or(node.place, |kind| kind.place);
        let empty = Node { place: node.place, value: Value::Null };
        let config = child(node, "config").unwrap_or(&empty);
        let config = self.config(&kind, config, role, table, (&path.field(tag, tag), place), &path.field("config", "config"))?;
        json.insert("config".to_owned(), config);
        Some(Json::Object(json))
    }

    /// Fits the options of a connector and tags them with its name.
    pub fn config(&mut self, kind: &str, node: &Node, role: &str, table: Table, tag: (&Path, Option<Place>), path: &Path) -> Option<Json> {
        let Some((_, shape)) = table.iter().find(|(name, _)| *name == kind) else {
            let what = if role == "codec" { role.to_owned() } else { format!("{role} connector") };
            let message = format!("the {what} '{}' is not known", shown(kind));
            let hint = hint(kind, &format!("{what}s"), table.iter().map(|(name, _)| *name));
            self.fault("unknown_connector", tag.0, tag.1, message, &hint);
            return None;
        };
        let node = self.rewritten(kind, node, path)?;
        let mut json = self.object(&node, shape, path)?;
        json.insert("type".to_owned(), Json::from(kind));
        Some(Json::Object(json))
    }

    /// Options in the names of the JobSpec: takes out `type`, and turns other spellings into ours.
    fn rewritten(&mut self, kind: &str, node: &Node, path: &Path) -> Option<Node> {
        let Value::Map(fields) = &node.value else { return Some(node.clone()) };
        let mut kept = Vec::with_capacity(fields.len());
        let mut properties = Vec::new();
        for (key, value) in fields {
            let mut key = key.clone();
            let mut value = value.clone();
            let text = match &value.value {
                Value::Scalar { text, .. } => Some(text.clone()),
                Value::Null | Value::List(_) | Value::Map(_) => None,
            };
            match (kind, key.name.as_str(), text.as_deref()) {
                ("generate", "type", Some("nexmark" | "template")) => key.name = "kind".to_owned(),
                (_, "type", Some(given)) if given == kind => continue,
                (_, "type", given) => {
                    let message = format!("the config is of type '{}', but the connector is '{kind}'", shown(given.unwrap_or_default()));
                    self.fault("type_mismatch", &path.field("type", "type"), value.place, message, "leave type out of config");
                    continue;
                }
                ("kafka", "start_from_latest", Some(flag @ ("true" | "false"))) => {
                    let start = if flag == "true" { "latest" } else { "earliest" };
                    key.name = "scan.start".to_owned();
                    value.value = Value::Scalar { text: start.to_owned(), plain: true };
                }
                ("kafka", name, _) if CLIENT.iter().any(|prefix| name.starts_with(prefix)) => {
                    properties.push((key, value));
                    continue;
                }
                _ => {}
            }
            kept.push((key, value));
        }
        if !properties.is_empty() {
            match kept.iter_mut().find(|(key, _)| key.name == "properties").map(|(_, value)| &mut value.value) {
                Some(Value::Map(given)) => given.extend(properties),
                Some(Value::Null | Value::Scalar { .. } | Value::List(_)) => {}
                None => {
                    let key = super::node::Key { name: "properties".to_owned(), place: node.place };
                    kept.push((key, Node { place: node.place, value: Value::Map(properties) }));
                }
            }
        }
        Some(Node { place: node.place, value: Value::Map(kept) })
    }

    fn codec(&mut self, node: &Node, path: &Path) -> Option<Json> {
        let kind = match (&node.value, child(node, "type").map(|kind| &kind.value)) {
            (Value::Scalar { text, .. }, _) | (Value::Map(_), Some(Value::Scalar { text, .. })) => text.clone(),
            (Value::Null | Value::List(_) | Value::Map(_), _) => {
                let message = "the codec lacks its type".to_owned();
                self.fault("missing_field", &path.field("type", "type"), node.place, message, "such as codec: {type: json}");
                return None;
            }
        };
        let empty = Node { place: node.place, value: Value::Null };
        let options = if let Value::Map(_) = node.value { node } else { &empty };
        let place = child(node, "type").map_or(node.place, |kind| kind.place);
        self.seen(node, path);
        self.config(&kind, options, "codec", CODECS, (&path.field("type", "type"), place), path)
    }
}

/// Connectors or formats and their options.
pub type Table = &'static [(&'static str, &'static Object)];

/// Beginnings of client settings that may stand beside a Kafka connector's own options.
const CLIENT: [&str; 4] = ["sasl.", "ssl.", "security.", "socket."];

/// Kinds of operators, for messages.
const KINDS: &str = "source, map, window, join, buffer, union, sink";

/// A value that a field may have, where one is short enough to be shown.
fn example(kind: Kind) -> Option<String> {
    Some(match kind {
        Kind::Id => "a-name".to_owned(),
        Kind::Count | Kind::Small | Kind::Number => "10".to_owned(),
        Kind::Millis | Kind::SignedMillis => "10s".to_owned(),
        Kind::Bool => "true".to_owned(),
        Kind::Word(words) => (*words.first()?).to_owned(),
        Kind::Type => "BIGINT".to_owned(),
        Kind::OneOf(shape) => one_of(shape),
        Kind::Codec => "{type: json}".to_owned(),
        Kind::Commas | Kind::List(_) | Kind::TextMap | Kind::Object(_) | Kind::Text | Kind::Char | Kind::OneOrMany => return None,
        Kind::JsonText | Kind::Any | Kind::Operator | Kind::Source | Kind::Sink => return None,
    })
}

fn one_of(shape: &Object) -> String {
    let Some(first) = shape.fields.first() else { return "{}".to_owned() };
    let inner = match first.kind {
        Kind::Object(inner) => inner.fields.first().and_then(|field| Some((short_name(field).unwrap_or(field.name), example(field.kind)?))),
        _ => None,
    };
    format!("{{{}: {{{}}}}}", first.name, inner.map(|(name, value)| format!("{name}: {value}")).unwrap_or_default())
}

fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, value)| value),
        Value::Null | Value::Scalar { .. } | Value::List(_) => None,
    }
}

/// Every name of a field: its own, its aliases, and without `_ms` where it is a duration.
fn spellings(field: &Field) -> Vec<String> {
    let own = std::iter::once(field.name).chain(field.aliases.iter().copied()).map(str::to_owned);
    own.chain(short_name(field).map(str::to_owned)).collect()
}

fn short_name(field: &Field) -> Option<&'static str> {
    match field.kind {
        Kind::Millis | Kind::SignedMillis => field.name.strip_suffix("_ms"),
        _ => None,
    }
}

fn find(shape: &Object, name: &str) -> Option<&'static Field> {
    shape.fields.iter().find(|field| field.name == name || field.aliases.contains(&name) || short_name(field) == Some(name))
}
