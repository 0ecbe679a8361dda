//! Documents to JobSpecs, with every fault at its line and column, and JobSpecs to documents.
//!
//! A document is a list of jobs under `jobs:` and of streams under `streams:`, or one bare JobSpec. JSON is read the same way,
//! since it is YAML too. Expressions stay text here; `crate::sql` binds them.

mod fault;
mod print;
mod tree;

pub use fault::{in_order, report};
pub use print::{masked, print, to_json};
pub use tree::BYTES_MAX;

use crate::options::fit::{Fit, Path, Spot};
use crate::options::node::{Node, Value};
use crate::options::shape::JOB;
use crate::sql::bind_spec;
use crate::streams::{Compiled, Paths, compiled};
use std::collections::{BTreeMap, BTreeSet};
use weir_planner::check::check;
use weir_planner::check::graph::Graph;
use weir_planner::compile::plan_if_known;
use weir_planner::error::{Fault, Place};
use weir_planner::plan::JobPlan;
use weir_planner::spec::{Horizon, JobSpec};

/// Most jobs of one document.
const JOBS_MAX: usize = 1_000;

/// The jobs of a document, those that its streams compile to among them.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// In the order of the text; expressions are not bound.
    pub jobs: Vec<JobSpec>,
    /// The streams, in the order of the text.
    pub streams: Vec<Stream>,
    origins: Vec<Origin>,
}

/// A stream of a document (STR-1).
#[derive(Clone, Debug)]
pub struct Stream {
    /// Position in `jobs` of the job that it compiles to.
    pub job: usize,
    /// The entry as it was given.
    pub document: serde_json::Value,
}

/// Where the fields of one job stand.
#[derive(Clone, Debug, Default)]
struct Origin {
    prefix: String,
    places: BTreeMap<String, Spot>,
    /// Of a job that is a stream: the text has other names than the JobSpec.
    stream: Option<Paths>,
}

impl Document {
    /// Binds the expressions of every job. What comes back are all faults found, each with its
    /// place; a job with faults is left unbound where they are. Edges that make no graph are for
    /// the checks to tell: what they lead to is left unbound.
    pub fn bind(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for at in 0..self.jobs.len() {
            let found = self.jobs.get_mut(at).map(bound).unwrap_or_default();
            faults.extend(found.into_iter().map(|fault| self.locate(at, fault)));
        }
        faults
    }

    /// Where the fields of the job at `job` stand in the text, by path.
    pub fn places(&self, job: usize) -> BTreeMap<String, Place> {
        let Some(origin) = self.origins.get(job) else { return BTreeMap::new() };
        let places = || origin.places.iter().map(|(path, spot)| (path.clone(), spot.place)).collect();
        origin.stream.as_ref().map_or_else(places, Paths::places)
    }

    /// Binds and compiles every job: what a start does, without connecting (JOB-8).
    ///
    /// A job that waits for the columns of a source has no plan yet (JOB-6).
    ///
    /// Errors: every fault of every job, in the order of the text (JOB-7).
    pub fn plan(&mut self, door: Horizon) -> Result<Vec<Option<JobPlan>>, Vec<Fault>> {
        let mut faults = self.bind();
        let mut plans = Vec::with_capacity(self.jobs.len());
        for (at, spec) in self.jobs.iter().enumerate() {
            match plan_if_known(spec, door) {
                Ok(plan) => plans.push(plan),
                Err(found) => faults.extend(self.found(at, found.0)),
            }
        }
        if faults.is_empty() { Ok(plans) } else { Err(in_order(faults)) }
    }

    /// Faults that the checks find in the job at `job`, each with its place in the text. What could not be
    /// bound is left out: binding tells it, with the reason.
    pub fn found(&self, job: usize, faults: Vec<Fault>) -> impl Iterator<Item = Fault> {
        faults.into_iter().filter(|fault| fault.code != "unbound").map(move |fault| self.locate(job, fault))
    }

    /// A fault of the job at `job`, as binding and the checks find it, with its place in the text
    /// and its path as the user wrote it.
    #[must_use]
    pub fn locate(&self, job: usize, mut fault: Fault) -> Fault {
        let Some(origin) = self.origins.get(job) else { return fault };
        if let Some(paths) = &origin.stream {
            return paths.locate(fault);
        }
        let mut known = fault.path.as_str();
        let spot = loop {
            match origin.places.get(known) {
                Some(spot) => break Some(spot),
                None if known.is_empty() => break None,
                None => known = known.rfind(['.', '[']).and_then(|end| known.get(..end)).unwrap_or_default(),
            }
        };
        fault.place = fault.place.or(spot.map(|spot| spot.place));
        let given = spot.and_then(|spot| spot.given.as_deref()).unwrap_or(known);
        let path = format!("{given}{}", fault.path.get(known.len()..).unwrap_or_default());
        let joint = if path.is_empty() || origin.prefix.is_empty() { "" } else { "." };
        fault.path = format!("{}{joint}{path}", origin.prefix);
        fault
    }
}

/// Binds what can be bound. Edges that name unknown operators are left out meanwhile.
fn bound(spec: &mut JobSpec) -> Vec<Fault> {
    let known: BTreeSet<_> = spec.operators.iter().map(|operator| operator.id.clone()).collect();
    let (sound, _) = spec.edges.iter().cloned().partition(|edge| known.contains(&edge.from) && known.contains(&edge.to));
    let edges = std::mem::replace(&mut spec.edges, sound);
    let found = if Graph::of(spec).is_some() { bind_spec(spec).err().unwrap_or_default() } else { Vec::new() };
    spec.edges = edges;
    found
}

/// One job of a tree whose path in the document is `prefix`.
pub(crate) fn single(node: &Node, prefix: &str) -> Result<Document, Vec<Fault>> {
    let (mut document, mut faults) = (Document::default(), Vec::new());
    job(node, prefix, &mut document, &mut faults);
    if faults.is_empty() { Ok(document) } else { Err(in_order(faults)) }
}

/// The jobs of a text.
///
/// Errors: every fault of the document, each with path, line, column and hint, in the order of the
/// text (JOB-7). Text that is too large, too deep or no document gives one.
pub fn parse(text: &str) -> Result<Document, Vec<Fault>> {
    let tree = tree::parse(text)?;
    if tree.faults.is_empty() {
        return document(&tree.root, Some(text));
    }
    let mut faults = tree.faults;
    let rest = document(&tree.root, Some(text)).and_then(|mut document| document.plan(Horizon::Local));
    faults.extend(rest.err().unwrap_or_default());
    Err(in_order(faults))
}

/// The jobs of bytes that should be UTF-8.
///
/// Errors: as [`parse`], and one fault for bytes that are not UTF-8.
pub fn parse_bytes(bytes: &[u8]) -> Result<Document, Vec<Fault>> {
    // Before its words: what is too long may have been cut within a letter.
    tree::fits(bytes.len())?;
    parse(utf8(bytes)?)
}

/// The tree of bytes that should be UTF-8.
pub(crate) fn tree_of(bytes: &[u8]) -> Result<Node, Vec<Fault>> {
    let tree = tree::parse(utf8(bytes)?)?;
    if tree.faults.is_empty() { Ok(tree.root) } else { Err(tree.faults) }
}

pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Vec<Fault>> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1;
        let place = Place { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) };
        vec![Fault::new("not_utf8", "", "the document is not UTF-8").at(place).with_hint("save the file as UTF-8")]
    })
}

/// The jobs of a tree; `text` is what it was read from, to find places within scalars.
pub(crate) fn document(root: &Node, text: Option<&str>) -> Result<Document, Vec<Fault>> {
    let Value::Map(fields) = &root.value else {
        let fault = Fault::new("not_a_job", "", format!("a document is a job or has jobs:, this one is {}", root.kind()));
        let fault = fault.with_hint("write a job: id, operators, edges, sources, sinks");
        return Err(vec![root.place.map_or(fault.clone(), |place| fault.at(place))]);
    };
    let mut document = Document::default();
    let mut faults = Vec::new();
    if !fields.iter().any(|(key, _)| key.name == "jobs" || key.name == "streams") {
        return single(root, "");
    }
    for (key, value) in fields {
        let placed = |fault: Fault| key.place.map_or(fault.clone(), |place| fault.at(place));
        match (key.name.as_str(), &value.value) {
            ("jobs", Value::List(jobs)) if jobs.len() > JOBS_MAX => {
                faults.push(placed(
                    Fault::new("too_many_jobs", "jobs", format!("the document has {} jobs, at most {JOBS_MAX} are allowed", jobs.len()))
                        .with_hint("split the document"),
                ));
            }
            ("jobs", Value::List(jobs)) => {
                for (at, node) in jobs.iter().enumerate() {
                    job(node, &format!("jobs[{at}]"), &mut document, &mut faults);
                }
                fault::same_ids(jobs, &mut faults);
            }
            ("streams", Value::List(streams)) if streams.len() > JOBS_MAX => {
                let message = format!("the document has {} streams, at most {JOBS_MAX} are allowed", streams.len());
                faults.push(placed(Fault::new("too_many_jobs", "streams", message)));
            }
            ("streams", Value::List(streams)) => {
                for (at, node) in streams.iter().enumerate() {
                    let (prefix, id) = (format!("streams[{at}]"), format!("stream-{}", at + 1));
                    stream(compiled(node, &prefix, &id, text), &mut document, &mut faults);
                }
            }
            ("jobs" | "streams", Value::Null) => {}
            (name @ ("jobs" | "streams"), Value::Scalar { .. } | Value::Map(_)) => {
                let fault = Fault::new("wrong_type", name, format!("{name} must be a list, it is {}", value.kind()));
                faults.push(placed(fault.with_hint("write each one as an entry of the list, which begins with '- '")));
            }
            (name, _) => {
                let name = crate::options::fit::shown(name);
                let fault = Fault::new("unknown_field", name.clone(), format!("a document has no field '{name}'"));
                faults.push(placed(fault.with_hint("known fields: jobs, streams")));
            }
        }
    }
    same_ids(&document, &mut faults);
    if faults.is_empty() {
        return Ok(document);
    }
    // The sound jobs may have faults that only binding and the checks find: all come together.
    faults.extend(document.bind());
    for (at, spec) in document.jobs.iter().enumerate() {
        faults.extend(document.found(at, check(spec, Horizon::Local)));
    }
    Err(in_order(faults))
}

/// One stream of a tree whose path in the document is `prefix`; `id` is its name where it has none.
pub(crate) fn single_stream(node: &Node, prefix: &str, id: &str, text: Option<&str>) -> Result<Document, Vec<Fault>> {
    let (mut document, mut faults) = (Document::default(), Vec::new());
    stream(compiled(node, prefix, id, text), &mut document, &mut faults);
    if faults.is_empty() { Ok(document) } else { Err(in_order(faults)) }
}

fn stream(compiled: Result<Compiled, Vec<Fault>>, document: &mut Document, faults: &mut Vec<Fault>) {
    match compiled {
        Ok(Compiled { job, paths, document: given }) => {
            document.streams.push(Stream { job: document.jobs.len(), document: given });
            document.jobs.push(job);
            document.origins.push(Origin { stream: Some(paths), ..Origin::default() });
        }
        Err(found) => faults.extend(found),
    }
}

/// A stream shares the one namespace with jobs and other streams.
fn same_ids(document: &Document, faults: &mut Vec<Fault>) {
    for Stream { job, .. } in &document.streams {
        let Some(spec) = document.jobs.get(*job) else { continue };
        let others = document.jobs.iter().enumerate().filter(|(at, other)| at != job && other.id == spec.id);
        let earlier = others.filter(|(at, _)| at < job || !document.streams.iter().any(|stream| stream.job == *at)).count();
        if earlier > 0 {
            let fault =
                Fault::new("duplicate_id", "id", format!("the id '{}' is taken by another stream or job of this document", spec.id));
            faults.push(document.locate(*job, fault.with_hint("give the stream an id of its own")));
        }
    }
}

fn job(node: &Node, prefix: &str, document: &mut Document, faults: &mut Vec<Fault>) {
    let mut fit = Fit::within(prefix);
    let json = fit.object(node, &JOB, &Path::root());
    let Fit { faults: found, places, dropped, .. } = fit;
    let origin = Origin { prefix: prefix.to_owned(), places, stream: None };
    let sound = found.is_empty();
    let spec = json.map(|json| serde_json::from_value::<JobSpec>(serde_json::Value::Object(json)));
    match spec {
        Some(Ok(spec)) if sound => {
            document.jobs.push(spec);
            document.origins.push(origin);
        }
        // What is left of the job is still a job, so that its other faults come in the same answer.
        Some(Ok(spec)) => faults.extend(fault::of_the_rest(spec, origin, &found, dropped)),
        Some(Err(error)) if sound => {
            let fault = Fault::new("bad_value", prefix, error.to_string());
            faults.push(node.place.map_or(fault.clone(), |place| fault.at(place)));
        }
        Some(Err(_)) | None => {}
    }
    faults.extend(found);
}

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;
