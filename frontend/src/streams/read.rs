//! The tree of a `streams:` entry to a [`StreamSpec`], all faults at once.

mod component;

use super::path::{Paths, within};
use super::shape::{BUFFER_KINDS, DECLARED, INPUTS, OUTPUTS, PROCESSOR_KINDS, STREAM};
use super::{Input, Output, Processor, SqlStep, StreamSpec, THREADS_MAX, Work};
use crate::options::fit::{Fit, Path, Table};
use crate::options::node::{Key, Node, Value};
use crate::options::shape::CODECS;
use crate::sql::{Step, Text, lower_flow, on_deep_stack};
use component::Component;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use weir_planner::connector::{Nothing, SinkOptions};
use weir_planner::error::{Fault, Place};
use weir_planner::id::{JobId, JobVersion};
use weir_planner::spec::{Buffer, Durability, MemoryBuffer, SessionBuffer, SourceColumn, TumblingBuffer};

/// What reading gives.
pub(super) struct Read {
    /// The stream. With faults, what is left of it: only where input and processors are sound.
    pub spec: Option<StreamSpec>,
    /// All that is wrong.
    pub faults: Vec<Fault>,
    /// Where its fields stand.
    pub paths: Paths,
}

/// Reads the entry at `prefix`; `id` is its name where it has none.
pub(super) fn stream(node: &Node, prefix: &str, id: &str, text: Option<&str>) -> Read {
    let mut reader = Reader { prefix, text, faults: Vec::new(), paths: Paths::of(prefix) };
    reader.paths.place("", node.place);
    let spec = reader.stream(node, id);
    Read { spec, faults: reader.faults, paths: reader.paths }
}

/// What a component may be read into.
struct Reader<'a> {
    prefix: &'a str,
    text: Option<&'a str>,
    faults: Vec<Fault>,
    paths: Paths,
}

impl Reader<'_> {
    fn full(&self, path: &str) -> String {
        let joint = if path.is_empty() || self.prefix.is_empty() { "" } else { "." };
        format!("{}{joint}{path}", self.prefix)
    }

    fn fault(&mut self, code: &str, path: &str, place: Option<Place>, message: impl Into<String>, hint: impl Into<String>) {
        let fault = Fault::new(code, self.full(path), message).with_hint(hint);
        self.faults.push(Fault { place, ..fault });
    }

    /// Fits with the shapes of [`crate::options`] at a path of the stream.
    fn fitted<T>(&mut self, path: &str, fit: impl FnOnce(&mut Fit, &Path) -> Option<T>) -> Option<T> {
        let mut found = Fit::within(&self.full(path));
        let value = fit(&mut found, &Path::root());
        for (within, spot) in found.places {
            let joint = if within.is_empty() || path.is_empty() { "" } else { "." };
            self.paths.place(&format!("{path}{joint}{within}"), Some(spot.place));
        }
        let sound = found.faults.is_empty();
        self.faults.extend(found.faults);
        value.filter(|_| sound)
    }

    fn typed<T: DeserializeOwned>(&mut self, path: &str, place: Option<Place>, json: Json) -> Option<T> {
        match serde_json::from_value(json) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault("bad_value", path, place, error.to_string(), "");
                None
            }
        }
    }

    fn stream(&mut self, node: &Node, id: &str) -> Option<StreamSpec> {
        let before = self.faults.len();
        let fields = self.fitted("", |fit, path| fit.object(node, &STREAM, path));
        let sound = self.faults.len() == before;
        let id = child(node, "id").and_then(text_of).unwrap_or(id);
        let id = match JobId::new(id) {
            Ok(id) => id,
            Err(fault) => {
                if sound {
                    self.fault("bad_name", "id", child(node, "id").and_then(|id| id.place), fault.message, fault.hint);
                }
                return None;
            }
        };
        if let Some(temporary) = child(node, "temporary").filter(|temporary| !is_empty(temporary)) {
            let hint = "join the lookup data before the stream, or write a job under jobs: with both as sources";
            self.fault("not_available", "temporary", temporary.place, "temporary (lookup tables) is not available yet", hint);
        }
        let input = child(node, "input").and_then(|input| self.input(input));
        let buffer = child(node, "buffer").and_then(|buffer| self.buffer(buffer));
        let pipeline = child(node, "pipeline");
        let thread_num = self.thread_num(pipeline);
        let processors = self.processors(pipeline);
        let output = child(node, "output").and_then(|output| self.output(output, "output"));
        let error_output = child(node, "error_output").and_then(|output| self.output(output, "error_output"));
        let version = fields.as_ref().and_then(|fields| fields.get("version")?.as_u64()).unwrap_or(1);
        let durability = fields.and_then(|fields| fields.get("durability").cloned());
        let durability = durability.and_then(|json| self.typed::<Durability>("durability", None, json));
        let (Some(mut input), Some(processors)) = (input, processors) else { return None };
        // With faults elsewhere the rest is still looked at; a stand-in for a bad output never runs.
        let mut output = output.unwrap_or(Output { options: SinkOptions::Drop(Nothing {}), codec: None });
        self.codecs(&mut input, &processors, &mut output, pipeline);
        Some(StreamSpec { id, version: JobVersion::new(version), input, buffer, thread_num, processors, output, error_output, durability })
    }

    fn thread_num(&mut self, pipeline: Option<&Node>) -> u32 {
        let Some(node) = pipeline.and_then(|pipeline| child(pipeline, "thread_num")) else { return 1 };
        // Text that is no number has its fault already.
        let Some(threads) = text_of(node).and_then(|text| text.trim().parse::<u32>().ok()) else { return 1 };
        if !(1..=THREADS_MAX).contains(&threads) {
            let message = format!("thread_num is {threads}, it must be 1 to {THREADS_MAX}");
            self.fault("out_of_range", "pipeline.thread_num", node.place, message, "");
            return 1;
        }
        threads
    }

    fn input(&mut self, node: &Node) -> Option<Input> {
        let component = self.component(node, "input", &INPUTS)?;
        let component = self.as_input(component, "input")?;
        let codec = self.codec(component.codec.as_ref(), "input.codec");
        let schema = self.schema(&component);
        let options = self.options(&component, "input", INPUTS.table);
        Some(Input { options: options?, codec: codec?, schema: schema? })
    }

    /// Declared columns of an input.
    fn schema(&mut self, component: &Component) -> Option<Vec<SourceColumn>> {
        let Some((key, node)) = &component.schema else { return Some(Vec::new()) };
        let whole = Node { place: component.place, value: Value::Map(vec![(key.clone(), node.clone())]) };
        let mut fields = self.fitted("input", |fit, path| fit.object(&whole, &DECLARED, path))?;
        fields.remove("schema").map_or(Some(Vec::new()), |json| self.typed("input.schema", node.place, json))
    }

    fn output(&mut self, node: &Node, path: &str) -> Option<Output> {
        let component = self.component(node, path, &OUTPUTS)?;
        let component = self.as_output(component, path)?;
        let codec = self.codec(component.codec.as_ref(), &format!("{path}.codec"));
        let options = self.options(&component, path, OUTPUTS.table);
        Some(Output { options: options?, codec: codec? })
    }

    fn options<T: DeserializeOwned>(&mut self, component: &Component, path: &str, table: Table) -> Option<T> {
        let kind = component.kind.as_str();
        let json = self.fitted(path, |fit, root| fit.config(kind, &component.rest(), "stream", table, (root, component.place), root))?;
        self.typed(path, component.place, json)
    }

    /// A format; `Some(None)` without one, `None` where it is faulty.
    fn codec(&mut self, node: Option<&Node>, path: &str) -> Option<Option<weir_planner::connector::Format>> {
        let Some(node) = node else { return Some(None) };
        let Some(kind) = text_of(node).or_else(|| child(node, "type").and_then(text_of)).map(str::to_owned) else {
            self.fault("missing_field", &format!("{path}.type"), node.place, "the codec lacks its type", "such as codec: {type: json}");
            return None;
        };
        let place = child(node, "type").map_or(node.place, |kind| kind.place);
        self.paths.place(path, node.place);
        let rest = match &node.value {
            Value::Map(_) => node.clone(),
            Value::Null | Value::Scalar { .. } | Value::List(_) => Node { place: node.place, value: Value::Null },
        };
        let json = self.fitted(path, |fit, root| fit.config(&kind, &rest, "codec", CODECS, (root, place), root))?;
        self.typed(path, node.place, json).map(Some)
    }

    fn buffer(&mut self, node: &Node) -> Option<Buffer> {
        if self.is_refused_buffer(node) {
            return None;
        }
        let component = self.component(node, "buffer", &BUFFER_KINDS)?;
        let kind = component.kind.as_str();
        let table = BUFFER_KINDS.table;
        let json =
            self.fitted("buffer", |fit, root| fit.config(kind, &component.rest(), "stream", table, (root, component.place), root))?;
        let number = |name: &str| json.get(name).and_then(Json::as_u64).unwrap_or(0);
        Some(match kind {
            "memory" => Buffer::Memory(MemoryBuffer { capacity: number("capacity"), timeout_ms: number("timeout_ms") }),
            "tumbling_window" => Buffer::Tumbling(TumblingBuffer { interval_ms: number("interval_ms") }),
            _ => Buffer::Session(SessionBuffer { gap_ms: number("gap_ms") }),
        })
    }

    /// Buffers that mean something else here, or that two inputs would need (STR-3).
    fn is_refused_buffer(&mut self, node: &Node) -> bool {
        let kind = text_of(node).or_else(|| child(node, "type").and_then(text_of)).unwrap_or_default();
        let place = child(node, "type").map_or(node.place, |kind| kind.place);
        let to_job = "write a job under jobs: with a source for each side and an operator of kind join (left_from, right_from, left_key, right_key, window_ms)";
        if kind == "sliding_window" {
            let message = "the buffer 'sliding_window' counts rows, and is never read as a window of time";
            let hint = "for so many rows at a time use {type: memory, capacity: …, timeout: …}; for spans of time use {type: tumbling_window, interval: …}; \
                        overlapping windows of time are the window operator of a job under jobs:";
            self.fault("sliding_window", "buffer.type", place, message, hint);
            return true;
        }
        if kind == "join" {
            self.fault("join_buffer", "buffer.type", place, "a stream has one input, so its buffer cannot join", to_job);
            return true;
        }
        if let Value::Map(fields) = &node.value
            && let Some((key, _)) = fields.iter().find(|(key, _)| key.name == "join")
        {
            self.fault("join_buffer", "buffer.join", key.place, format!("the buffer '{kind}' cannot join: a stream has one input"), to_job);
            return true;
        }
        false
    }

    /// The processors; `None` where one is faulty, since those after it cannot be judged.
    fn processors(&mut self, pipeline: Option<&Node>) -> Option<Vec<Processor>> {
        let nodes = match pipeline.and_then(|pipeline| child(pipeline, "processors")).map(|processors| &processors.value) {
            Some(Value::List(nodes)) => nodes.as_slice(),
            // Nothing, or something that has its fault already.
            Some(Value::Null | Value::Scalar { .. } | Value::Map(_)) | None => &[],
        };
        let read: Vec<Option<Processor>> = nodes.iter().enumerate().map(|(at, node)| self.processor(at, nodes.len(), node)).collect();
        read.into_iter().collect()
    }

    fn processor(&mut self, at: usize, count: usize, node: &Node) -> Option<Processor> {
        let path = format!("pipeline.processors[{at}]");
        self.paths.place(&path, node.place);
        let component = self.component(node, &path, &PROCESSOR_KINDS)?;
        let component = self.as_processor(component, &path)?;
        let kind = component.kind.as_str();
        let table = PROCESSOR_KINDS.table;
        let json = self.fitted(&path, |fit, root| fit.config(kind, &component.rest(), "stream", table, (root, component.place), root))?;
        let Json::Object(options) = json else { return None };
        let work = match kind {
            "sql" => self.sql(&component, &options, &path)?,
            "json_to_arrow" if at > 0 => {
                let message =
                    format!("json_to_arrow is processor {} of the stream, but only the first one can read the input's records", at + 1);
                let hint = "put it first, or leave it out: rows have columns from there on";
                self.fault("misplaced", &path, component.place, message, hint);
                return None;
            }
            "arrow_to_json" if at + 1 < count => {
                let message =
                    format!("arrow_to_json is processor {} of {count}, but only the last one can write the output's records", at + 1);
                let hint = "put it last: processors after it would have no columns to work on";
                self.fault("misplaced", &path, component.place, message, hint);
                return None;
            }
            "json_to_arrow" | "arrow_to_json" => {
                self.value_field(&component, kind, &options, &path)?;
                let names = options.get("fields_to_include").and_then(Json::as_array);
                let fields: Vec<String> = names.into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect();
                if kind == "json_to_arrow" { Work::JsonToArrow(fields) } else { Work::ArrowToJson(fields) }
            }
            _ => {
                let number = |name: &str| options.get(name).and_then(Json::as_u64).unwrap_or(0);
                Work::Batch(Buffer::Memory(MemoryBuffer { capacity: number("count"), timeout_ms: number("timeout_ms") }))
            }
        };
        Some(Processor { at, work })
    }

    fn sql(&mut self, component: &Component, options: &Map<String, Json>, path: &str) -> Option<Work> {
        let word = |name: &str| options.get(name).and_then(Json::as_str);
        let query = word("query").unwrap_or_default();
        let table = word("table_name").unwrap_or("flow");
        let begins = component.field("query").and_then(|query| query.place);
        match on_deep_stack(|| lower_flow(query, table)) {
            Ok(steps) => Some(Work::Sql(steps.into_iter().map(|step| self.placed(step, query, begins)).collect())),
            Err(error) => {
                let place = error.position.and_then(|position| self.within(query, begins, position)).or(begins);
                self.fault("query", &format!("{path}.query"), place, error.message, error.hint.unwrap_or_default());
                None
            }
        }
    }

    fn within(&self, query: &str, begins: Option<Place>, position: usize) -> Option<Place> {
        let begins = begins?;
        Some(self.text.map_or(begins, |text| within(text, query, begins, position)))
    }

    /// What JSON is read from and written to has one name here.
    fn value_field(&mut self, component: &Component, kind: &str, options: &Map<String, Json>, path: &str) -> Option<()> {
        let Some(name) = options.get("value_field").and_then(Json::as_str) else { return Some(()) };
        if matches!(name, "value" | "__value__") {
            return Some(());
        }
        let place = component.field("value_field").map_or(component.place, |field| field.place);
        let (message, hint) = match kind {
            "json_to_arrow" => (
                format!("the input's records have one field, 'value', not '{}'", name.escape_debug()),
                "leave value_field out; to read JSON inside of JSON is not available yet",
            ),
            _ => (format!("each row is written as one JSON object, not into a field '{}'", name.escape_debug()), "leave value_field out"),
        };
        self.fault("value_field", &format!("{path}.value_field"), place, message, hint);
        None
    }

    /// `json_to_arrow` in front reads the input, `arrow_to_json` at the end writes the output.
    fn codecs(&mut self, input: &mut Input, processors: &[Processor], output: &mut Output, pipeline: Option<&Node>) {
        use weir_planner::connector::{Format, Json as JsonFormat};
        let json = Format::Json(JsonFormat::default());
        let nodes = pipeline.and_then(|pipeline| child(pipeline, "processors"));
        let place = |at: usize| match nodes.map(|nodes| &nodes.value) {
            Some(Value::List(nodes)) => nodes.get(at).and_then(|node| node.place),
            Some(Value::Null | Value::Scalar { .. } | Value::Map(_)) | None => None,
        };
        for Processor { at, work } in processors {
            match work {
                Work::JsonToArrow(_) => match &input.codec {
                    None => input.codec = Some(json.clone()),
                    Some(Format::Json(_)) => {}
                    Some(other) => {
                        let message = format!("json_to_arrow reads JSON, but the input's codec is {}", other.name());
                        let path = format!("pipeline.processors[{at}]");
                        self.fault("two_codecs", &path, place(*at), message, "leave json_to_arrow out: the codec gives rows with columns");
                    }
                },
                // What drops rows writes none.
                Work::ArrowToJson(_) if output.codec.is_none() && !matches!(output.options, SinkOptions::Drop(_)) => {
                    output.codec = Some(json.clone());
                }
                Work::ArrowToJson(_) | Work::Sql(_) | Work::Batch(_) => {}
            }
        }
    }

    /// A step with the places of its expressions.
    fn placed(&self, step: Step, query: &str, begins: Option<Place>) -> SqlStep {
        let mut places = Vec::new();
        let mut note = |path: String, text: &Text| {
            places.extend(text.position.and_then(|position| self.within(query, begins, position)).map(|place| (path, place)));
        };
        match &step {
            Step::Map { filter, project } => {
                filter.iter().for_each(|text| note("filter".to_owned(), text));
                project.iter().enumerate().for_each(|(at, text)| note(format!("project[{at}]"), text));
            }
            Step::Batch { keys: _, aggregates, having } => {
                aggregates.iter().enumerate().for_each(|(at, (text, _))| note(format!("aggregates[{at}]"), text));
                having.iter().for_each(|text| note("having".to_owned(), text));
            }
        }
        SqlStep { step, places }
    }
}

/// A node's field by name; none for one that says nothing.
fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Map(fields) => {
            fields.iter().find(|(key, value)| key.name == name && !matches!(value.value, Value::Null)).map(|(_, value)| value)
        }
        Value::Null | Value::Scalar { .. } | Value::List(_) => None,
    }
}

fn text_of(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Scalar { .. } => false,
        Value::List(items) => items.is_empty(),
        Value::Map(fields) => fields.is_empty(),
    }
}

fn key(name: &str, place: Option<Place>) -> Key {
    Key { name: name.to_owned(), place }
}
