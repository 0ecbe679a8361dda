//! A planned query to a JobSpec.
//!
//! The plan is walked from the sink's end. Filters and projections are not operators yet: they
//! are kept as expressions over the last operator's columns, and become one map where an operator
//! must be fed. So neighbours merge, subqueries and CTEs vanish, and what is printed is what runs.

mod aggregate;
mod assign;
mod stream;
mod top;

use super::convert::Converter;
use super::fault::planning;
use super::place::Places;
use super::refuse::Landmarks;
use super::scope::{Scope, parser_options};
use super::statement::CreateJob;
use super::window::Assign;
use crate::error::{Error, sqlstate};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr as Df, LogicalPlan};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::sql::planner::SqlToRel;
use sqlparser::ast::{Query, Statement};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stream::{Bounds, Out, Stream, Time};
use weir_hub::hub::{CatalogObject, CatalogSnapshot};
use weir_planner::connector::{Nothing, SinkOptions, SourceOptions};
use weir_planner::expr::Expr;
use weir_planner::id::{EdgeId, JobId, JobVersion, OperatorId};
use weir_planner::plan::UPDATE_COLUMN;
use weir_planner::spec::{
    Checkpoint, Delivery, Edge, JobSpec, LatePolicy, Map, OnError, OnHubLoss, Operator, OperatorKind, Placement, Rebalance, Recovery,
    Resources, Restart, Sink, Source, State, TimeMode,
};

/// What a CREATE JOB asks for.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Bound, with default options.
    pub spec: JobSpec,
    /// Catalog entries that were copied into it.
    pub uses: Vec<String>,
    /// Windows of one instant, by which results of windows are put together.
    pub regroupings: BTreeSet<OperatorId>,
    /// The analysed plan, for EXPLAIN.
    pub logical: String,
}

/// Lowers the query of a CREATE JOB against a catalog snapshot. Needs a deep stack.
///
/// Errors: everything that is wrong with the query, with its place.
pub(crate) fn lower(job: &CreateJob, snapshot: &CatalogSnapshot, places: &Places) -> Result<Lowered, Error> {
    let id = JobId::new(job.name.text.clone()).map_err(|fault| {
        let error = Error::new("42602", fault.message).at(job.name.position);
        if fault.hint.is_empty() { error } else { error.with_hint(fault.hint) }
    })?;
    let (sink, output_type) = sink_of(job, snapshot)?;
    let mut query = job.query.clone();
    super::sugar::rewrite(&mut query);
    let landmarks = super::refuse::check(&query, snapshot, places)?;
    let scope = Scope::of(snapshot);
    let plan = analysed(*query, &scope, places, job.query_position)?;
    let logical = plan.display_indent().to_string();
    let mut lowering = Lowering {
        scope: &scope,
        places,
        landmarks: &landmarks,
        fallback: job.query_position,
        operators: Vec::new(),
        edges: Vec::new(),
        sources: Vec::new(),
        counts: BTreeMap::new(),
        uses: BTreeSet::new(),
        listeners: BTreeMap::new(),
        regroupings: BTreeSet::new(),
        early: job.options.iter().any(|option| option.key == "window.trigger" && !option.value.eq_ignore_ascii_case("watermark")),
    };
    let names: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    let stream = lowering.lower(&plan, &vec![None; names.len()])?;
    let stream = lowering.materialize(stream, &names)?;
    let to = lowering.operator("sink", OperatorKind::Sink)?;
    lowering.edge(stream.from, to)?;
    let mut uses = lowering.uses;
    let sink = Sink { operator_id: lowering.operators[to].id.clone(), output_type, ..sink };
    uses.extend(job.into.iter().map(|name| name.text.clone()));
    let mut spec = bare(id);
    (spec.operators, spec.edges, spec.sources, spec.sinks) = (lowering.operators, lowering.edges, lowering.sources, vec![sink]);
    super::bind::bind_spec(&mut spec).map_err(|faults| rebinding(&faults, job.query_position))?;
    Ok(Lowered { spec, uses: uses.into_iter().collect(), regroupings: lowering.regroupings, logical })
}

/// What was printed did not bind back: a limit, or a fault of ours.
fn rebinding(faults: &[weir_planner::error::Fault], position: usize) -> Error {
    let message = faults.first().map_or_else(String::new, |fault| fault.message.clone());
    // A type that the query computes and no column can have.
    if message.contains("is not available in a job") {
        return Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
            .with_hint("give a column that is a number, text or time: of two times, extract(epoch FROM a) - extract(epoch FROM b)")
            .at(position);
    }
    let code = if message.contains("too large") || message.contains("too deep") {
        sqlstate::PROGRAM_LIMIT_EXCEEDED
    } else {
        sqlstate::INTERNAL_ERROR
    };
    Error::new(code, format!("the query cannot be written as a spec: {message}")).at(position)
}

/// Where the job writes: a copy of a catalog sink, or its own result table.
fn sink_of(job: &CreateJob, snapshot: &CatalogSnapshot) -> Result<(Sink, String), Error> {
    let placeholder = || OperatorId::new("sink-1").map_err(|fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message));
    let Some(into) = &job.into else {
        let sink = Sink {
            operator_id: placeholder()?,
            output_type: "result".to_owned(),
            config: SinkOptions::Result(Nothing {}),
            codec: None,
            delivery: Delivery::default(),
            key: Vec::new(),
            on_error: OnError::default(),
        };
        return Ok((sink, "result".to_owned()));
    };
    match snapshot.entries.get(&into.text).map(|entry| &entry.object) {
        Some(CatalogObject::Sink(sink)) => Ok(((**sink).clone(), sink.output_type.clone())),
        Some(CatalogObject::Source(_)) => Err(Error::new("42809", format!("'{}' is a source, a job cannot write to it", into.text))
            .with_hint("CREATE SINK makes something to write to; without INTO the job gets a result table")
            .at(into.position)),
        None => Err(Error::new(sqlstate::UNDEFINED_TABLE, format!("sink '{}' does not exist", into.text))
            .with_hint("SHOW SINKS lists them; without INTO the job gets a result table")
            .at(into.position)),
    }
}

/// A spec with every default and no graph.
pub(crate) fn bare(id: JobId) -> JobSpec {
    JobSpec {
        id,
        version: JobVersion::new(1),
        parallelism: 1,
        max_parallelism: 128,
        placement: Placement::default(),
        node_ids: Vec::new(),
        rescale: false,
        rebalance: Rebalance::default(),
        recovery: Recovery::default(),
        checkpoint: Checkpoint::default(),
        restart: Restart::default(),
        horizon: None,
        on_hub_loss: OnHubLoss::default(),
        result_retention_rows: 1_000_000,
        result_retention_ms: None,
        state: State::default(),
        resources: Resources::default(),
        operators: Vec::new(),
        edges: Vec::new(),
        sources: Vec::new(),
        sinks: Vec::new(),
    }
}

/// Plans and coerces a query; nothing is optimised, so that operators follow the text.
fn analysed(query: Query, scope: &Scope, places: &Places, fallback: usize) -> Result<LogicalPlan, Error> {
    let planner = SqlToRel::new_with_options(scope, parser_options());
    let analyzer = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
    let statement = Statement::Query(Box::new(query));
    planner
        .sql_statement_to_plan(statement)
        .and_then(|plan| analyzer.execute_and_check(plan, &ConfigOptions::default(), |_, _| {}))
        .map_err(|error| planning(&error, places, fallback))
}

struct Lowering<'a> {
    scope: &'a Scope,
    places: &'a Places,
    landmarks: &'a Landmarks,
    fallback: usize,
    operators: Vec<Operator>,
    edges: Vec<Edge>,
    sources: Vec<Source>,
    counts: BTreeMap<&'static str, usize>,
    uses: BTreeSet<String>,
    /// Operators of sources that a job can have once only, by the names of these.
    listeners: BTreeMap<String, usize>,
    regroupings: BTreeSet<OperatorId>,
    /// The job's windows are to be given before they are complete.
    early: bool,
}

impl Lowering<'_> {
    /// Adds an operator called `<kind>-<n>` (PLAN-2); its index.
    fn operator(&mut self, kind: &'static str, what: OperatorKind) -> Result<usize, Error> {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        let id = OperatorId::new(format!("{kind}-{count}")).map_err(|fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message))?;
        self.operators.push(Operator { id, parallelism: None, kind: what });
        Ok(self.operators.len() - 1)
    }

    fn edge(&mut self, from: usize, to: usize) -> Result<(), Error> {
        let id = EdgeId::new(format!("e{}", self.edges.len() + 1)).map_err(|fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message))?;
        let (Some(from), Some(to)) = (self.operators.get(from), self.operators.get(to)) else { return Ok(()) };
        self.edges.push(Edge { id, from: from.id.clone(), to: to.id.clone(), partitioned: false, broadcast: false, ordered: false });
        Ok(())
    }

    /// An error that lies in the query as a whole, unless it has a place.
    fn placed(&self, error: Error) -> Error {
        if error.position.is_some() { error } else { error.at(self.fallback) }
    }

    fn refused(&self, message: impl Into<String>) -> Error {
        self.placed(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
    }

    /// `hints` are the names that the columns of `plan` get in the end, where that is known.
    fn lower(&mut self, plan: &LogicalPlan, hints: &[Option<String>]) -> Result<Stream, Error> {
        match plan {
            LogicalPlan::TableScan(scan) => self.source(scan.table_name.table()),
            LogicalPlan::SubqueryAlias(alias) => self.lower(&alias.input, hints),
            LogicalPlan::Filter(filter) => {
                let stream = self.lower(&filter.input, hints)?;
                let condition = self.compose(&filter.predicate, &stream, filter.input.schema())?;
                Ok(stream.filtered(condition))
            }
            LogicalPlan::Projection(projection) => {
                let input = projection.input.schema();
                let inner = inner_hints(&projection.expr, input, plan.schema(), hints);
                let stream = self.lower(&projection.input, &inner)?;
                let exprs: Vec<Expr> = projection.expr.iter().map(|expr| self.compose(expr, &stream, input)).collect::<Result<_, _>>()?;
                let stream = if stream::too_large(&exprs) { self.rebased(stream, input)? } else { stream };
                let columns = projection
                    .expr
                    .iter()
                    .map(|expr| Ok(Out { expr: self.compose(expr, &stream, input)? }))
                    .collect::<Result<_, Error>>()?;
                Ok(Stream { columns, ..stream })
            }
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Assign>() {
                Some(assign) => self.assign(assign),
                None => Err(self.refused("this part of the query is not available in a job")),
            },
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, hints),
            LogicalPlan::Union(union) => self.union(&union.inputs, plan.schema()),
            LogicalPlan::Distinct(_) => Err(self.refused("DISTINCT cannot run as a stream")),
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => Err(self.refused("ORDER BY and LIMIT cannot run as a stream")),
            LogicalPlan::Join(_) => Err(self.refused("joins are not available yet")),
            LogicalPlan::Window(window) => self.rank(window, hints),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => Err(self.refused("a job's query reads from a source")),
            other => Err(self.refused(format!("{} is not available in a job", other.display()))),
        }
    }

    /// An expression over a plan's columns as one over the stream's last operator.
    fn compose(&self, expr: &Df, stream: &Stream, schema: &DFSchema) -> Result<Expr, Error> {
        let column = |column: &Column| {
            let at = schema.index_of_column(column).ok();
            let out = at.and_then(|at| stream.columns.get(at));
            out.map(|out| out.expr.clone())
                .ok_or_else(|| Error::new(sqlstate::UNDEFINED_COLUMN, format!("column '{}' does not exist", column.flat_name())))
        };
        Converter { schema, column: &column }.scalar(expr).map_err(|error| self.placed(error))
    }

    fn source(&mut self, name: &str) -> Result<Stream, Error> {
        let Some(readable) = self.scope.sources.get(name) else {
            return Err(self.placed(Error::new(sqlstate::UNDEFINED_TABLE, format!("source '{name}' does not exist"))));
        };
        self.uses.insert(name.to_owned());
        let mut source = (*readable.source).clone();
        let time = if source.time.mode == TimeMode::EventTime { source.time.timestamp_field.clone() } else { None };
        let from = match self.listeners.get(name) {
            Some(from) => *from,
            None => {
                let from = self.operator("source", OperatorKind::Source)?;
                source.operator_id = self.operators[from].id.clone();
                if let SourceOptions::Http(_) = source.config {
                    // It listens at one address, whatever the parallelism of the job and however often the query names it.
                    self.operators[from].parallelism = Some(1);
                    self.listeners.insert(name.to_owned(), from);
                }
                self.sources.push(source);
                from
            }
        };
        let columns = readable.schema.0.iter().map(|column| column.name.clone()).collect();
        let times = time.into_iter().map(|column| (column, Time::Event)).collect();
        Ok(Stream { times, ..Stream::over(from, columns, name.to_owned()) })
    }

    /// Inputs brought to the same columns, then put together.
    fn union(&mut self, inputs: &[Arc<LogicalPlan>], schema: &DFSchema) -> Result<Stream, Error> {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let mut streams = Vec::new();
        for input in inputs {
            let hints: Vec<_> = names.iter().cloned().map(Some).collect();
            let stream = self.lower(input, &hints)?;
            streams.push(self.materialize(stream, &names)?);
        }
        self.unmark(&mut streams, &names)?;
        let to = self.operator("union", OperatorKind::Union)?;
        let mut fed = BTreeSet::new();
        for stream in &streams {
            let mut from = stream.from;
            if !fed.insert(from) {
                // Two branches are the same rows, and an edge leads from one operator to another once.
                let map = self.operator("map", OperatorKind::Map(Map { filter: None, project: stream.projections(&names) }))?;
                self.edge(from, map)?;
                from = map;
            }
            self.edge(from, to)?;
        }
        let origins: Vec<&str> = streams.iter().map(|stream| stream.origin.as_str()).collect();
        // What follows time in one branch and not in the other does not in both.
        let same = |name: &&String, time: &Time| streams.iter().all(|stream| stream.times.get(*name) == Some(time));
        let times = streams.first().map(|first| &first.times).into_iter().flatten();
        let times = times.filter(|(name, time)| same(name, time)).map(|(name, time)| (name.clone(), *time)).collect();
        let windows = streams.iter().map(|stream| stream.windows.clone()).reduce(|one, other| match (one?, other?) {
            (one, other) if one == other => Some(one),
            (_, _) => Some(Bounds::Uneven),
        });
        Ok(Stream { times, windows: windows.flatten(), ..Stream::over(to, names, origins.join(" and ")) })
    }

    /// Whether the rows of a stream carry the mark of results that come again (WIN-4), behind its columns.
    fn marked(&self, stream: &Stream) -> bool {
        let (mut open, mut seen) = (vec![stream.from], BTreeSet::new());
        let mut revised = self.early;
        while let Some(operator) = open.pop().and_then(|at| self.operators.get(at)).filter(|operator| seen.insert(&operator.id)) {
            let late = |source: &Source| source.operator_id == operator.id && source.time.late_event_policy == LatePolicy::Update;
            revised |= self.sources.iter().any(late);
            let before = self.edges.iter().filter(|edge| edge.to == operator.id);
            open.extend(before.filter_map(|edge| self.operators.iter().position(|other| other.id == edge.from)));
        }
        revised && stream.windows.is_some()
    }

    /// Leaves the mark of updating windows out where not every branch of a union has it, since its
    /// inputs have the same columns.
    fn unmark(&mut self, streams: &mut [Stream], names: &[String]) -> Result<(), Error> {
        let marked: Vec<bool> = streams.iter().map(|stream| self.marked(stream)).collect();
        if marked.iter().all(|marked| *marked) {
            return Ok(());
        }
        for (stream, _) in streams.iter_mut().zip(marked).filter(|(_, marked)| *marked) {
            match self.operators.get_mut(stream.from).map(|operator| &mut operator.kind) {
                Some(OperatorKind::Map(map)) => map.project = stream.projections(names),
                Some(_) | None => {
                    let map = Map { filter: None, project: stream.projections(names) };
                    let to = self.operator("map", OperatorKind::Map(map))?;
                    self.edge(stream.from, to)?;
                    *stream = stream.given(to, names);
                }
            }
        }
        Ok(())
    }

    /// Feeds an operator: emits what is pending, so that the last operator's columns are exactly `names`.
    fn materialize(&mut self, stream: Stream, names: &[String]) -> Result<Stream, Error> {
        let stream = self.settle(stream)?;
        let stream = self.assigned(stream)?;
        let mut filter = stream.filter.clone();
        if let (Some(condition), Some(OperatorKind::Window(window))) =
            (&filter, self.operators.get_mut(stream.from).map(|operator| &mut operator.kind))
            && window.having.is_none()
        {
            window.having = Some(stream::text(condition));
            filter = None;
        }
        let mut project = if stream.is_bare(names) { Vec::new() } else { stream.projections(names) };
        if filter.is_none() && project.is_empty() {
            return Ok(stream.given(stream.from, names));
        }
        if !project.is_empty() && self.marked(&stream) {
            project.push(stream::projection(&Expr::Column(UPDATE_COLUMN.to_owned()), UPDATE_COLUMN));
        }
        let map = Map { filter: filter.as_ref().map(stream::text), project };
        let to = self.operator("map", OperatorKind::Map(map))?;
        self.edge(stream.from, to)?;
        Ok(stream.given(to, names))
    }

    /// Emits a subquery's columns where repeating its expressions would make them grow without bound.
    /// What reads columns of a pending window or ranking stays pending, over what it needs.
    fn rebased(&mut self, mut stream: Stream, schema: &DFSchema) -> Result<Stream, Error> {
        let (windowing, ranking) = (stream.windowing.take(), stream.ranking.take());
        let (pending, filter): (Vec<Expr>, Vec<Expr>) =
            stream.filter.take().map(stream::conjuncts).unwrap_or_default().into_iter().partition(stream::reads_marked);
        let (mut taken, mut names, mut columns) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut carried: BTreeMap<String, String> = BTreeMap::new();
        let mut rest: Vec<(usize, Expr)> = Vec::new();
        let mut order: Vec<(usize, String)> = Vec::new();
        for (at, (field, out)) in schema.fields().iter().zip(&stream.columns).enumerate() {
            if stream::reads_marked(&out.expr) {
                rest.push((at, out.expr.clone()));
                continue;
            }
            let name = super::sugar::unique(field.name(), &taken);
            taken.insert(name.clone());
            names.push(name.clone());
            columns.push(out.clone());
            order.push((at, name));
        }
        let mut needed: Vec<String> = pending.iter().chain(rest.iter().map(|(_, expr)| expr)).flat_map(stream::columns_of).collect();
        needed.extend(windowing.iter().filter_map(|windowing| windowing.time.clone()));
        needed.extend(windowing.iter().filter_map(|_| stream.event_time().map(str::to_owned)));
        needed.extend(
            ranking.iter().flat_map(|ranking| ranking.keys.iter().chain(ranking.order_by.iter().map(|order| &order.column))).cloned(),
        );
        for name in needed {
            if let Entry::Vacant(free) = carried.entry(name) {
                let new = super::sugar::unique(free.key(), &taken);
                taken.insert(new.clone());
                names.push(new.clone());
                columns.push(Out { expr: Expr::Column(free.key().clone()) });
                free.insert(new);
            }
        }
        let mut stream = self.materialize(Stream { filter: stream::all(filter), columns, ..stream }, &names)?;
        let renamed = |name: String| carried.get(&name).cloned().unwrap_or(name);
        let column = |expr: Expr| match expr {
            Expr::Column(name) => Expr::Column(renamed(name)),
            other => other,
        };
        let plain = order.into_iter().map(|(at, name)| (at, Expr::Column(name)));
        let marked = rest.into_iter().map(|(at, expr)| (at, stream::substituted(expr, &column)));
        let columns: BTreeMap<usize, Expr> = plain.chain(marked).collect();
        stream.columns = columns.into_values().map(|expr| Out { expr }).collect();
        stream.filter = stream::all(pending.into_iter().map(|expr| stream::substituted(expr, &column)).collect());
        stream.windowing = windowing.map(|windowing| stream::Windowing { time: windowing.time.map(renamed), ..windowing });
        stream.ranking = ranking.map(|mut ranking| {
            ranking.keys = ranking.keys.into_iter().map(renamed).collect();
            ranking.order_by.iter_mut().for_each(|order| order.column = renamed(std::mem::take(&mut order.column)));
            ranking
        });
        Ok(stream)
    }
}

/// Which name each input column gets in the end: what a projection calls it, or what is asked of it.
fn inner_hints(exprs: &[Df], input: &DFSchema, output: &DFSchema, hints: &[Option<String>]) -> Vec<Option<String>> {
    let mut inner = vec![None; input.fields().len()];
    for (at, expr) in exprs.iter().enumerate() {
        let mut bare = expr;
        while let Df::Alias(alias) = bare {
            bare = &alias.expr;
        }
        let Df::Column(column) = bare else { continue };
        let Ok(from) = input.index_of_column(column) else { continue };
        let own = output.fields().get(at).map(|field| field.name().clone());
        let name = hints.get(at).cloned().flatten().or(own);
        if let Some(slot @ None) = inner.get_mut(from) {
            *slot = name;
        }
    }
    inner
}

#[cfg(test)]
mod tests;
