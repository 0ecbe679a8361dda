//! Documents and option lists as one kind of tree, with places where there is a text.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fmt;
use weir_planner::error::Place;

/// A value with its place. Scalars keep their text, so that what they mean is decided by the
/// field that takes them: `007` stays a password and becomes a number only where one is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins in the text.
    pub place: Option<Place>,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: the field counts as not given.
    Null,
    /// A scalar. `plain` ones may be numbers or booleans, others are text.
    Scalar {
        /// As written, escapes resolved.
        text: String,
        /// Written without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the text.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name.
    pub name: String,
    /// Where it stands.
    pub place: Option<Place>,
}

impl Node {
    /// A node of JSON, without places.
    pub fn from_json(json: &Json) -> Node {
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Scalar { text: flag.to_string(), plain: true },
            Json::Number(number) => Value::Scalar { text: number.to_string(), plain: true },
            Json::String(text) => Value::Scalar { text: text.clone(), plain: false },
            Json::Array(items) => Value::List(items.iter().map(Node::from_json).collect()),
            Json::Object(fields) => {
                Value::Map(fields.iter().map(|(name, value)| (Key { name: name.clone(), place: None }, Node::from_json(value))).collect())
            }
        };
        Node { place: None, value }
    }

    /// The JSON that a node stands for when no field says what it should be.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Scalar { text, plain: false } => Json::String(text.clone()),
            Value::Scalar { text, plain: true } => resolve(text),
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(fields) => Json::Object(fields.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect()),
        }
    }

    /// What a node is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// JSON as a node, without places. A key that is given twice is an error.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E: Error>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Scalar { text: value.to_string(), plain: true })
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Scalar { text: value.to_string(), plain: true })
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Scalar { text: value.to_string(), plain: true })
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Scalar { text: Json::from(value).to_string(), plain: true })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Scalar { text: text.to_owned(), plain: false })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let (mut fields, mut seen) = (Vec::new(), BTreeSet::new());
                while let Some(name) = entries.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("the key '{}' is given twice", name.escape_debug())));
                    }
                    fields.push((Key { name, place: None }, entries.next_value()?));
                }
                Ok(Value::Map(fields))
            }
        }
        Ok(Node { place: None, value: deserializer.deserialize_any(Any)? })
    }
}

/// A plain scalar by YAML's core rules; what is no number or boolean is text.
fn resolve(text: &str) -> Json {
    match text {
        "true" | "True" | "TRUE" => return Json::Bool(true),
        "false" | "False" | "FALSE" => return Json::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let canonical = text.strip_prefix('+').unwrap_or(text);
        if let Ok(number) = canonical.parse::<i64>() {
            return Json::from(number);
        }
        if let Ok(number) = canonical.parse::<u64>() {
            return Json::from(number);
        }
        if let Some(number) = canonical.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            return Json::Number(number);
        }
    }
    Json::String(text.to_owned())
}
