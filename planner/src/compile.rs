//! Spec to plan, the only producer (PLAN-1).
//!
//! The plan is a function of the spec alone: every list is built in the spec's order or in
//! topological order with ties in the spec's order, so that equal specs give equal bytes.

mod layout;
mod stages;
mod work;

use crate::check::check;
use crate::check::columns::{of_operator, pending, read_by_operator};
use crate::check::flow::Flow;
use crate::check::graph::Graph;
use crate::check::side::SideRows;
use crate::check::trail::Trails;
use crate::error::{Fault, Faults};
use crate::plan::{Chain, JobPlan, PlanOperator};
use crate::schema::Schema;
use crate::spec::{Horizon, JobSpec, OperatorKind, Source};
use std::collections::BTreeSet;

/// Compiles a spec whose expressions are bound. `door` is the horizon where the spec names none.
///
/// Errors: every fault that `check` finds; `schema_pending` for a spec that is sound but has a
/// source whose columns are not known yet (see [`pending`]).
pub fn compile(spec: &JobSpec, door: Horizon) -> Result<JobPlan, Faults> {
    let faults = check(spec, door);
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    if let Some(source) = pending(spec).first() {
        let message = format!("job '{}' has no plan before the columns of source '{}' are known", spec.id, source.operator_id);
        return Err(Fault::new("schema_pending", "", message).with_hint("they are taken from its first rows; or declare them").into());
    }
    let graph = Graph::of(spec).ok_or_else(|| missed(spec, "its graph"))?;
    let flow = flow(spec, &graph)?;
    let schemas: Vec<Schema> = (0..spec.operators.len()).map(|at| flow.given(at).cloned().unwrap_or_default()).collect();
    let trails = Trails::of(spec, &graph, &flow);
    let judged = graph.sources_judged(spec);
    let mut operators = Vec::with_capacity(spec.operators.len());
    for (at, operator) in spec.operators.iter().enumerate() {
        let lateness = judged[at]
            .iter()
            .filter_map(|&source| source_of(spec, source))
            .map(|source| source.time.allowed_lateness_ms)
            .max()
            .unwrap_or(0);
        let work = work::of(spec, &graph, &trails, at, &schemas[at], lateness).ok_or_else(|| missed(spec, operator.id.as_str()))?;
        operators.push(Some(PlanOperator { id: operator.id.clone(), output: schemas[at].clone(), work }));
    }
    let layout = layout::of(spec, &graph, &schemas);
    let chain = |members: &layout::Members| {
        let operators = members.operators.iter().filter_map(|&at| operators[at].take()).collect();
        Chain { id: members.id, parallelism: members.parallelism, operators }
    };
    let chains = layout.chains.iter().map(chain).collect();
    let mut plan = JobPlan {
        job: spec.id.clone(),
        version: spec.version,
        max_parallelism: spec.max_parallelism,
        rescale: spec.rescale,
        horizon: spec.horizon.unwrap_or(door),
        checkpoint: spec.checkpoint.clone(),
        inflight_bytes: spec.resources.inflight_bytes,
        state_bytes_max: spec.state.max_bytes,
        result_retention_rows: spec.result_retention_rows,
        result_retention_ms: spec.result_retention_ms,
        chains,
        edges: layout.edges,
        regions: layout.regions,
    };
    stages::insert(&mut plan);
    Ok(plan)
}

/// The plan that a spec has today: none while a source does not know its columns, though all else is
/// sound (JOB-6).
///
/// Errors: every fault that `check` finds.
pub fn plan_if_known(spec: &JobSpec, door: Horizon) -> Result<Option<JobPlan>, Faults> {
    if pending(spec).is_empty() {
        return compile(spec, door).map(Some);
    }
    let faults = check(spec, door);
    if faults.is_empty() { Ok(None) } else { Err(Faults(faults)) }
}

/// Something that `check` let through and `compile` cannot plan: a fault of Weir.
fn missed(spec: &JobSpec, what: &str) -> Faults {
    Fault::new("unplannable", "", format!("job '{}' passed its checks, but {what} cannot be planned", spec.id)).into()
}

fn source_of(spec: &JobSpec, operator: usize) -> Option<&Source> {
    let id = &spec.operators.get(operator)?.id;
    spec.sources.iter().find(|source| source.operator_id == *id)
}

/// What each operator takes and emits, with sources narrowed to the columns that are used downstream.
fn flow(spec: &JobSpec, graph: &Graph) -> Result<Flow, Faults> {
    let used = used(spec, graph);
    let mut known = Flow::new(spec.operators.len());
    for &at in &graph.order {
        let operator = &spec.operators[at];
        let input = known.input(graph, at).ok_or_else(|| missed(spec, operator.id.as_str()))?;
        let source = source_of(spec, at);
        let mut output =
            of_operator(&operator.kind, source, &input, graph.updates(spec, at)).ok_or_else(|| missed(spec, operator.id.as_str()))?;
        if let (OperatorKind::Source, Some(source)) = (&operator.kind, source) {
            narrow(&mut output, source, used[at].as_ref());
        }
        known.put(at, input, Some(output));
    }
    Ok(known)
}

/// Keeps the used columns in declared order, always with the time column, and never none: a batch
/// without columns has no length.
fn narrow(output: &mut Schema, source: &Source, used: Option<&BTreeSet<String>>) {
    let Some(used) = used else { return };
    let time = source.time.timestamp_field.as_deref();
    let whole = output.0.clone();
    output.0.retain(|column| used.contains(&column.name) || time == Some(column.name.as_str()));
    if output.0.is_empty() {
        output.0.extend(whole.into_iter().take(1));
    }
}

/// For each operator, which of its output columns are used; `None` for all. Where several inputs
/// meet their columns must stay the same, so all of them are used there.
fn used(spec: &JobSpec, graph: &Graph) -> Vec<Option<BTreeSet<String>>> {
    let mut used: Vec<Option<BTreeSet<String>>> = vec![Some(BTreeSet::new()); spec.operators.len()];
    for side in &graph.sides.edges {
        match side.rows {
            // Late rows are routed whole.
            SideRows::Late | SideRows::Timeless => used[side.from] = None,
            SideRows::Error => {}
        }
    }
    for &at in graph.order.iter().rev() {
        let kind = &spec.operators[at].kind;
        let own = read_by_operator(kind);
        let wanted = match kind {
            _ if graph.inputs[at].len() + graph.sides_into(at).count() > 1 => None,
            OperatorKind::Sink | OperatorKind::Join(_) => None,
            OperatorKind::Map(map) if !map.project.is_empty() => Some(own),
            OperatorKind::Window(_) => Some(own),
            // A top orders what is equal by all of its columns.
            OperatorKind::Top(_) => None,
            OperatorKind::Source | OperatorKind::Buffer(_) | OperatorKind::Union | OperatorKind::Map(_) => {
                used[at].clone().map(|mut passed| {
                    passed.extend(own);
                    passed
                })
            }
        };
        for from in graph.producers(at).collect::<Vec<_>>() {
            used[from] = match (used[from].take(), &wanted) {
                (Some(mut columns), Some(more)) => {
                    columns.extend(more.iter().cloned());
                    Some(columns)
                }
                (None, _) | (_, None) => None,
            };
        }
    }
    used
}

#[cfg(test)]
mod tests;
