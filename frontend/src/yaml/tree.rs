//! YAML (and so JSON) text to a tree with places, within bounds: size, depth, number of nodes,
//! growth by aliases. One clear fault for text that is no document.

use crate::options::fit::shown;
use crate::options::node::{Key, Node, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span, Tag};
use std::collections::{BTreeMap, BTreeSet};
use weir_planner::error::{Fault, Place};

/// Longest text, in bytes.
pub const BYTES_MAX: usize = 2 << 20;
/// Deepest nesting.
pub const DEPTH_MAX: usize = 64;
/// Most nodes of a document.
const NODES_MAX: usize = 100_000;
/// Most nodes that aliases may add.
const ALIASED_MAX: usize = 20_000;

/// Most faults that reading goes on after.
const FAULTS_MAX: usize = 100;
/// Longest scalar, in bytes.
const SCALAR_MAX: usize = 1 << 20;

/// The one document of a text.
pub struct Tree {
    /// Its root.
    pub root: Node,
    /// Keys that cannot be: twice in a mapping, or to be merged.
    pub faults: Vec<Fault>,
}

/// Whether a document may be so long.
///
/// Errors: it may not.
pub fn fits(bytes: usize) -> Result<(), Vec<Fault>> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let fault = Fault::new("too_large", "", format!("the document has more than {BYTES_MAX} bytes"));
    Err(vec![fault.with_hint("a document describes jobs: keep data in files or topics")])
}

/// The tree of the one document in `text`.
///
/// Errors: broken syntax, several documents, or a bound passed.
pub fn parse(text: &str) -> Result<Tree, Vec<Fault>> {
    fits(text.len())?;
    let mut options = Options::default();
    options.emit_comments = false;
    options.flow_nesting_limit = DEPTH_MAX;
    options.block_nesting_limit = DEPTH_MAX;
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| {
            let (code, message, hint) = syntax(&error.info());
            let fault = Fault::new(code, builder.path(), message).with_hint(hint);
            vec![fault.at(Place { line: small(error.marker().line()), column: small(error.marker().col() + 1) })]
        })?;
        builder.take(event, &span).map_err(|fault| vec![fault])?;
    }
    let faults = builder.faults;
    builder.root.map(|root| Tree { root, faults }).ok_or_else(|| {
        vec![Fault::new("empty", "", "the document is empty").with_hint("write a job: id, operators, edges, sources, sinks")]
    })
}

enum Open {
    List(Vec<Node>),
    Map { fields: Vec<(Key, Node)>, seen: BTreeSet<String>, key: Option<Key> },
}

#[derive(Default)]
struct Builder {
    open: Vec<(Open, Place, usize)>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    aliased: usize,
    documents: usize,
    root: Option<Node>,
    faults: Vec<Fault>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        let place = Place { line: small(span.start.line()), column: small(span.start.col() + 1) };
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let fault = Fault::new("several_documents", "", "the text holds more than one document");
                    return Err(fault.at(place).with_hint("list several jobs under jobs:"));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                if text.len() > SCALAR_MAX {
                    let message = format!("a value has {} bytes, at most {SCALAR_MAX} are allowed", text.len());
                    return Err(Fault::new("too_large", self.path(), message).at(place).with_hint("keep data in files or topics"));
                }
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), place)?;
                let value = if plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
                    Value::Null
                } else {
                    Value::Scalar { text: text.into_owned(), plain }
                };
                self.put(Node { place: Some(place), value }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => self.begin(Open::List(Vec::new()), place, anchor, tag.as_deref()),
            Event::MappingStart(_, anchor, tag) => {
                let map = Open::Map { fields: Vec::new(), seen: BTreeSet::new(), key: None };
                self.begin(map, place, anchor, tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((open, place, anchor)) = self.open.pop() else { return Ok(()) };
                let value = match open {
                    Open::List(items) => Value::List(items),
                    Open::Map { fields, .. } => Value::Map(fields),
                };
                self.put(Node { place: Some(place), value }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor) else {
                    let fault = Fault::new("bad_alias", self.path(), "an alias refers to the node that holds it");
                    return Err(fault.at(place).with_hint("write the value out"));
                };
                let node = target.clone();
                self.copied(&node)?;
                self.put(node, 0)
            }
            _ => Ok(()),
        }
    }

    /// Counts a copy of a node: one for its anchor, one for each alias.
    fn copied(&mut self, node: &Node) -> Result<(), Fault> {
        self.aliased += size(node);
        if self.aliased > ALIASED_MAX {
            let fault = Fault::new("too_large", "", format!("anchors and aliases stand for more than {ALIASED_MAX} nodes"))
                .with_hint("write fewer of them out");
            return Err(node.place.map_or(fault.clone(), |place| fault.at(place)));
        }
        Ok(())
    }

    fn begin(&mut self, open: Open, place: Place, anchor: usize, tag: Option<&Tag>) -> Result<(), Fault> {
        is_text(tag, place)?;
        if self.open.len() >= DEPTH_MAX {
            return Err(Fault::new("too_deep", "", format!("the document is nested more than {DEPTH_MAX} levels deep"))
                .at(place)
                .with_hint("a job needs far fewer"));
        }
        self.open.push((open, place, anchor));
        Ok(())
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Fault::new("too_large", "", format!("the document has more than {NODES_MAX} nodes"))
                .with_hint("keep data in files or topics"));
        }
        if anchor != 0 {
            self.copied(&node)?;
            self.anchors.insert(anchor, node.clone());
        }
        let mut trouble = None;
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some((Open::List(items), ..)) => items.push(node),
            Some((Open::Map { fields, seen, key }, ..)) => match key.take() {
                Some(name) if name.name == "<<" => {
                    trouble = Some((name, "merge_key", "merge keys are not supported".to_owned(), "write the fields out"));
                }
                Some(name) if seen.insert(name.name.clone()) => fields.push((name, node)),
                Some(name) => {
                    let message = format!("the key '{}' is given twice", shown(&name.name));
                    trouble = Some((name, "duplicate_key", message, "keep one of them"));
                }
                None => {
                    let Value::Scalar { text, .. } = node.value else {
                        let fault = Fault::new("bad_key", self.path(), format!("a key must be a name, it is {}", node.kind()))
                            .with_hint("write name: value");
                        return Err(node.place.map_or(fault.clone(), |place| fault.at(place)));
                    };
                    *key = Some(Key { name: text, place: node.place });
                }
            },
        }
        if let Some((name, code, message, hint)) = trouble
            && self.faults.len() < FAULTS_MAX
        {
            let outer = self.path();
            let joint = if outer.is_empty() { "" } else { "." };
            let fault = Fault::new(code, format!("{outer}{joint}{}", shown(&name.name)), message).with_hint(hint);
            self.faults.push(name.place.map_or(fault.clone(), |place| fault.at(place)));
        }
        Ok(())
    }

    /// The path of what is read just now.
    fn path(&self) -> String {
        let mut path = String::new();
        for (open, ..) in &self.open {
            match open {
                Open::List(items) => path.push_str(&format!("[{}]", items.len())),
                Open::Map { key: Some(key), .. } => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(&shown(&key.name));
                }
                Open::Map { key: None, .. } => {}
            }
        }
        path
    }
}

/// What the parser found, in our words where they help more: code, message, hint.
fn syntax(info: &str) -> (&'static str, String, &'static str) {
    let info = info.trim_end_matches('.').to_lowercase();
    let valid = |what: &str| format!("not a valid document: {what}");
    if info.contains("recursion limit") {
        ("too_deep", format!("the document is nested more than {DEPTH_MAX} levels deep"), "a job needs far fewer")
    } else if info.starts_with("tabs") {
        ("syntax", valid("a tab cannot indent"), "indent with spaces")
    } else if info.contains("unknown anchor") {
        (
            "syntax",
            valid("an alias refers to an anchor that is not there"),
            "give the value a name with & before it is used with *, or quote a text that begins with *",
        )
    } else if info.contains("escape character") {
        ("syntax", valid("an unknown escape in a quoted text"), "write \\\\ for a backslash, or use single quotes")
    } else if info.starts_with("unexpected character: `\\u{") {
        ("syntax", valid("a control character"), "remove it, or write it as an escape in double quotes")
    } else if info.contains("unclosed quote") {
        ("syntax", valid("a quote is not closed"), "close it, or double a quote inside single quotes")
    } else {
        ("syntax", valid(&info), "look at indentation, brackets and quotes here and just before")
    }
}

/// Whether a tag says that the scalar is text.
fn is_text(tag: Option<&Tag>, place: Place) -> Result<bool, Fault> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix() == "str"),
        Some(tag) => Err(Fault::new("tag", "", format!("the tag '{}' is not supported", shown(tag.suffix())))
            .at(place)
            .with_hint("write the value without a tag")),
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(fields) => 1 + fields.iter().map(|(_, node)| 1 + size(node)).sum::<usize>(),
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
