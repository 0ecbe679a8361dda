//! Documents to JobSpecs, with every fault at its line and column, and JobSpecs to documents.
//!
//! A document is a list of jobs under `jobs:`, or one bare JobSpec. JSON is read the same way,
//! since it is YAML too. Expressions stay text here; `crate::sql` binds them.

mod print;
mod tree;

pub use print::{masked, print, to_json};
pub use tree::BYTES_MAX;

use crate::options::fit::{Fit, Path};
use crate::options::node::{Node, Value};
use crate::options::shape::JOB;
use crate::sql::bind_spec;
use std::collections::BTreeMap;
use weir_planner::check::check;
use weir_planner::check::graph::Graph;
use weir_planner::error::{Fault, Place};
use weir_planner::spec::{Horizon, JobSpec};

/// Most jobs of one document.
const JOBS_MAX: usize = 1_000;

/// The jobs of a document.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// In the order of the text; expressions are not bound.
    pub jobs: Vec<JobSpec>,
    origins: Vec<Origin>,
}

/// Where the fields of one job stand.
#[derive(Clone, Debug, Default)]
struct Origin {
    prefix: String,
    places: BTreeMap<String, Place>,
}

impl Document {
    /// Binds the expressions of every job. What comes back are all faults found, each with its
    /// place; a job with faults is left unbound where they are, and so is one whose edges make no
    /// graph, which is for the checks to tell.
    pub fn bind(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for at in 0..self.jobs.len() {
            let graphed = self.jobs.get_mut(at).filter(|spec| Graph::of(spec).is_some());
            let found = graphed.and_then(|spec| bind_spec(spec).err()).unwrap_or_default();
            faults.extend(found.into_iter().map(|fault| self.locate(at, fault)));
        }
        faults
    }

    /// Where the fields of the job at `job` stand in the text, by path.
    pub fn places(&self, job: usize) -> BTreeMap<String, Place> {
        self.origins.get(job).map(|origin| origin.places.clone()).unwrap_or_default()
    }

    /// A fault of the job at `job`, as binding and the checks find it, with its place in the text.
    #[must_use]
    pub fn locate(&self, job: usize, mut fault: Fault) -> Fault {
        let Some(origin) = self.origins.get(job) else { return fault };
        fault = fault.located(&origin.places);
        let joint = if fault.path.is_empty() || origin.prefix.is_empty() { "" } else { "." };
        fault.path = format!("{}{joint}{}", origin.prefix, fault.path);
        fault
    }
}

/// One job of a tree whose path in the document is `prefix`.
pub(crate) fn single(node: &Node, prefix: &str) -> Result<Document, Vec<Fault>> {
    let (mut document, mut faults) = (Document::default(), Vec::new());
    job(node, prefix, &mut document, &mut faults);
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

/// The jobs of a text.
///
/// Errors: every fault of the document, each with path, line, column and hint (JOB-7). Text that
/// is too large, too deep or no document gives one.
pub fn parse(text: &str) -> Result<Document, Vec<Fault>> {
    document(&tree::parse(text)?)
}

/// The jobs of bytes that should be UTF-8.
///
/// Errors: as [`parse`], and one fault for bytes that are not UTF-8.
pub fn parse_bytes(bytes: &[u8]) -> Result<Document, Vec<Fault>> {
    parse(utf8(bytes)?)
}

/// The tree of bytes that should be UTF-8.
pub(crate) fn tree_of(bytes: &[u8]) -> Result<Node, Vec<Fault>> {
    tree::parse(utf8(bytes)?)
}

fn utf8(bytes: &[u8]) -> Result<&str, Vec<Fault>> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1;
        let place = Place { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) };
        vec![Fault::new("not_utf8", "", "the document is not UTF-8").at(place)]
    })
}

/// The jobs of a tree.
pub(crate) fn document(root: &Node) -> Result<Document, Vec<Fault>> {
    let Value::Map(fields) = &root.value else {
        let fault = Fault::new("not_a_job", "", format!("a document is a job or has jobs:, this one is {}", root.kind()));
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
                faults.push(placed(Fault::new(
                    "too_many_jobs",
                    "jobs",
                    format!("the document has {} jobs, at most {JOBS_MAX} are allowed", jobs.len()),
                )));
            }
            ("jobs", Value::List(jobs)) => {
                for (at, node) in jobs.iter().enumerate() {
                    job(node, &format!("jobs[{at}]"), &mut document, &mut faults);
                }
            }
            ("streams", Value::List(streams)) if !streams.is_empty() => {
                let fault = Fault::new("not_available", "streams", "streams are not available yet");
                faults.push(placed(fault.with_hint("write the stream as a job under jobs:, with operators, edges, sources and sinks")));
            }
            ("streams", Value::List(_)) | ("jobs" | "streams", Value::Null) => {}
            (name @ ("jobs" | "streams"), Value::Scalar { .. } | Value::Map(_)) => {
                faults.push(placed(Fault::new("wrong_type", name, format!("{name} must be a list, it is {}", value.kind()))));
            }
            (name, _) => {
                let fault = Fault::new("unknown_field", name, format!("a document has no field '{}'", name.escape_debug()));
                faults.push(placed(fault.with_hint("known fields: jobs, streams")));
            }
        }
    }
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

fn job(node: &Node, prefix: &str, document: &mut Document, faults: &mut Vec<Fault>) {
    let mut fit = Fit::default();
    let json = fit.object(node, &JOB, &Path::root(prefix));
    let Fit { faults: found, places, .. } = fit;
    let sound = found.is_empty();
    faults.extend(found);
    let Some(json) = json else { return };
    let spec = serde_json::from_value(serde_json::Value::Object(json));
    let origin = Origin { prefix: prefix.to_owned(), places };
    match spec {
        Ok(spec) if sound => {
            document.jobs.push(spec);
            document.origins.push(origin);
        }
        // What is left of the job is still a job, so that its other faults come in the same answer.
        Ok(spec) => {
            let mut rest = Document { jobs: vec![spec], origins: vec![origin] };
            faults.extend(rest.bind());
            let found = rest.jobs.first().map(|spec| check(spec, Horizon::Local)).unwrap_or_default();
            faults.extend(found.into_iter().filter(|fault| fault.code != "unbound").map(|fault| rest.locate(0, fault)));
        }
        Err(error) if sound => {
            let fault = Fault::new("bad_value", prefix, error.to_string());
            faults.push(node.place.map_or(fault.clone(), |place| fault.at(place)));
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
