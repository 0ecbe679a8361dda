//! What cannot run as a stream is refused before planning, with its place, the reason and the
//! nearest thing that works (SQL-7).

use super::functions::FUNCTIONS;
use super::place::Places;
use super::rank::ROW_NUMBER;
use super::sugar::last_part;
use super::window::WINDOW_FUNCTIONS;
use crate::error::{Error, sqlstate};
use datafusion::logical_expr::Volatility;
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, JoinOperator,
    LimitClause, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor,
    Value, ValueWithSpan, Visit, Visitor, WindowType,
};
use sqlparser::tokenizer::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use weir_hub::hub::{CatalogObject, CatalogSnapshot};
use weir_planner::nearest::nearest;

/// Places that errors found later point at.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    /// The first GROUP BY, or the first aggregate of a query without one.
    pub grouping: Option<usize>,
    /// First call of each function, by folded name.
    pub functions: BTreeMap<String, usize>,
}

/// Where an ORDER BY says what it sorts by; it may have no place of its own.
pub(super) fn order_span(query: &Query, order_by: &OrderBy) -> Span {
    match &order_by.kind {
        OrderByKind::Expressions(exprs) => exprs.first().map_or_else(|| order_by.span(), |expr| expr.expr.span()),
        OrderByKind::All(_) => query.body.span(),
    }
}

/// Where a LIMIT or OFFSET says how many.
pub(super) fn limit_span(query: &Query, limit: &LimitClause) -> Span {
    match limit {
        LimitClause::LimitOffset { limit: Some(limit), .. } => limit.span(),
        LimitClause::LimitOffset { limit: None, offset: Some(offset), .. } => offset.value.span(),
        LimitClause::LimitOffset { limit: None, offset: None, .. } => query.body.span(),
        LimitClause::OffsetCommaLimit { offset, .. } => offset.span(),
    }
}

/// Checks a query after its sugar has been rewritten.
///
/// Errors: `0A000` for what does not run as a stream, `42P01` and `42883` for unknown names.
pub(crate) fn check(query: &Query, snapshot: &CatalogSnapshot, places: &Places) -> Result<Landmarks, Error> {
    let mut check = Check { snapshot, places, ctes: BTreeSet::new(), landmarks: Landmarks::default(), lone: false };
    let mut names = CteNames(BTreeSet::new());
    let _ = query.visit(&mut names);
    check.ctes = names.0;
    match query.visit(&mut check) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(check.landmarks),
    }
}

/// Checks a lone expression: functions and what cannot stand in one.
pub(crate) fn check_expression(expr: &Expr, places: &Places) -> Result<Landmarks, Error> {
    let snapshot = CatalogSnapshot::default();
    let mut check = Check { snapshot: &snapshot, places, ctes: BTreeSet::new(), landmarks: Landmarks::default(), lone: true };
    match expr.visit(&mut check) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(check.landmarks),
    }
}

struct CteNames(BTreeSet<String>);

impl Visitor for CteNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.0.insert(folded(&cte.alias.name));
        }
        ControlFlow::Continue(())
    }
}

/// A function's name as the registry has it: folded unless quoted.
fn function_name(name: &ObjectName) -> String {
    match name.0.as_slice() {
        [only] => only.as_ident().map_or_else(|| name.to_string(), folded),
        _ => name.to_string(),
    }
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

struct Check<'a> {
    snapshot: &'a CatalogSnapshot,
    places: &'a Places,
    ctes: BTreeSet<String>,
    landmarks: Landmarks,
    /// An expression without its query: nothing in it ranges over other rows.
    lone: bool,
}

type Flow = ControlFlow<Box<Error>>;

const NEXT: Flow = ControlFlow::Continue(());

impl Check<'_> {
    fn stop(&self, span: Span, error: Error) -> Flow {
        let position = self.places.start(span);
        ControlFlow::Break(Box::new(Error { position, ..error }))
    }

    fn not_streaming(&self, span: Span, message: &str, hint: &str) -> Flow {
        self.stop(span, Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint))
    }

    fn body(&self, body: &SetExpr) -> Flow {
        match body {
            SetExpr::Select(_) | SetExpr::Query(_) => NEXT,
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                match (op, set_quantifier) {
                    (SetOperator::Union, SetQuantifier::All) => {}
                    (SetOperator::Union, _) => {
                        let hint = "use UNION ALL, which passes all rows on";
                        return self.not_streaming(
                            right.span(),
                            "UNION without ALL cannot run as a stream: it would have to remember every row",
                            hint,
                        );
                    }
                    _ => {
                        let message = format!("{op} cannot run as a stream: it would have to remember every row");
                        return self.not_streaming(right.span(), &message, "UNION ALL works");
                    }
                }
                self.body(left)?;
                self.body(right)
            }
            SetExpr::Values(values) => self.not_streaming(
                values.span(),
                "a job reads from sources, not from VALUES",
                "CREATE SOURCE v (…) AS VALUES (…) makes a source of rows",
            ),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => {
                self.not_streaming(body.span(), "a job's query is a SELECT", "write SELECT … FROM a source")
            }
        }
    }

    fn relation(&self, relation: &TableFactor) -> Flow {
        match relation {
            TableFactor::Table { name, args: None, .. } => self.table(name),
            TableFactor::Table { name, args: Some(args), .. } => {
                let function = function_name(name);
                if !WINDOW_FUNCTIONS.contains(&function.as_str()) {
                    let error = Error::new(sqlstate::UNDEFINED_FUNCTION, format!("the table function {function} does not exist"));
                    return self
                        .stop(name.span(), error.with_hint("tumble, hop, cumulate and session are: tumble(t, ts, INTERVAL '1 minute')"));
                }
                match args.args.first() {
                    Some(
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident)))
                        | FunctionArg::Named { arg: FunctionArgExpr::Expr(Expr::Identifier(ident)), .. },
                    ) => self.table(&ObjectName::from(vec![ident.clone()])),
                    Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(idents)))) => {
                        self.table(&ObjectName::from(idents.clone()))
                    }
                    _ => NEXT,
                }
            }
            TableFactor::Derived { lateral: false, .. } => NEXT,
            other => self.not_streaming(
                other.span(),
                "this kind of table cannot be read by a job",
                "a job reads sources, tumble(…) over them, and subqueries",
            ),
        }
    }

    fn table(&self, name: &ObjectName) -> Flow {
        let Some(ident) = last_part(name) else { return NEXT };
        let table = folded(ident);
        if self.ctes.contains(&table) && name.0.len() == 1 {
            return NEXT;
        }
        match self.snapshot.entries.get(&table).map(|entry| &entry.object) {
            Some(CatalogObject::Source(_)) => NEXT,
            Some(CatalogObject::Sink(_)) => {
                let error = Error::new("42809", format!("'{table}' is a sink, a job cannot read it"));
                self.stop(name.span(), error.with_hint("a job writes to a sink: CREATE JOB j INTO sink AS SELECT …"))
            }
            None if self.snapshot.jobs.contains_key(&table) => {
                let message = format!("reading the results of job '{table}' in another job is not available yet");
                self.not_streaming(name.span(), &message, "put its query into a subquery, or write it to a Kafka topic and read that")
            }
            None => {
                let error = Error::new(sqlstate::UNDEFINED_TABLE, format!("source '{table}' does not exist"));
                let sources = self.snapshot.entries.iter().filter(|(_, entry)| matches!(entry.object, CatalogObject::Source(_)));
                let error = match nearest(&table, sources.map(|(name, _)| name.as_str())) {
                    Some(near) => error.with_hint(format!("did you mean '{near}'?")),
                    None => error.with_hint("SHOW SOURCES lists them; CREATE SOURCE makes one"),
                };
                self.stop(name.span(), error)
            }
        }
    }

    fn select(&mut self, select: &Select) -> Flow {
        if let Some(distinct) = &select.distinct {
            let on = matches!(distinct, Distinct::On(_));
            let what = if on { "DISTINCT ON" } else { "DISTINCT" };
            let span = select.select_token.0.span;
            let hint = "group by the columns in a window: SELECT a, window_start FROM tumble(t, ts, INTERVAL '1 minute') GROUP BY a, window_start, window_end";
            if !matches!(distinct, Distinct::All) {
                return self.not_streaming(span, &format!("{what} cannot run as a stream: it would have to remember every row"), hint);
            }
        }
        let Some(first) = select.from.first() else {
            let span = select.select_token.0.span;
            return self.not_streaming(span, "a job's query reads from a source: this SELECT has no FROM", "write SELECT … FROM a source");
        };
        if let Some(second) = select.from.get(1) {
            return self.cross(second.relation.span());
        }
        if let Some(join) = first.joins.first() {
            return match &join.join_operator {
                JoinOperator::CrossJoin(_) | JoinOperator::CrossApply | JoinOperator::OuterApply => self.cross(join.relation.span()),
                _ => {
                    let hint = "UNION ALL of sources and windows over one of them work; run the two sides as jobs of their own until then";
                    self.not_streaming(join.relation.span(), "joins are not available yet", hint)
                }
            };
        }
        self.relation(&first.relation)?;
        for (present, span, what) in [
            (select.qualify.is_some(), select.qualify.as_ref().map(Spanned::span), "QUALIFY"),
            (!select.lateral_views.is_empty(), None, "LATERAL VIEW"),
            (!select.named_window.is_empty(), None, "WINDOW"),
            (select.into.is_some(), None, "SELECT INTO"),
            (select.top.is_some(), None, "TOP"),
        ] {
            if present {
                let span = span.unwrap_or(select.select_token.0.span);
                return self.not_streaming(span, &format!("{what} is not available in a job"), "leave it out");
            }
        }
        match &select.group_by {
            GroupByExpr::All(_) => {
                return self.not_streaming(select.select_token.0.span, "GROUP BY ALL is not available in a job", "name the columns");
            }
            GroupByExpr::Expressions(keys, _) => {
                if let (None, Some(key)) = (self.landmarks.grouping, keys.first()) {
                    self.landmarks.grouping = self.places.start(key.span());
                }
            }
        }
        if self.landmarks.grouping.is_none() {
            self.landmarks.grouping = select.projection.iter().find_map(aggregate_in).and_then(|span| self.places.start(span));
        }
        NEXT
    }

    fn cross(&self, span: Span) -> Flow {
        let hint = "read one source; joins with a time bound (a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1 minute') come in a later version";
        self.not_streaming(span, "a cross join cannot run as a stream: every row would have to wait for every other", hint)
    }

    fn function(&mut self, function: &Function) -> Flow {
        let name = function_name(&function.name);
        let span = function.name.span();
        if let Some(position) = self.places.start(span) {
            self.landmarks.functions.entry(name.clone()).or_insert(position);
        }
        if function.over.is_some()
            || FUNCTIONS.window.contains(&name) && !FUNCTIONS.scalar.contains_key(&name) && !FUNCTIONS.other_aggregates.contains(&name)
        {
            return self.over_rows(function, &name);
        }
        if FUNCTIONS.aggregate.contains_key(name.as_str()) {
            if let FunctionArguments::List(list) = &function.args {
                let known = |clause: &FunctionArgumentClause| {
                    matches!(clause, FunctionArgumentClause::OrderBy(_) | FunctionArgumentClause::IgnoreOrRespectNulls(_))
                };
                if let Some(clause) = list.clauses.iter().find(|clause| !known(clause)) {
                    let message = format!("{clause} in {name}(…) is not available");
                    return self.not_streaming(span, &message, "DISTINCT, ORDER BY and FILTER (WHERE …) work");
                }
            }
            return NEXT;
        }
        if let Some(scalar) = FUNCTIONS.scalar.get(&name) {
            if scalar.signature().volatility == Volatility::Volatile {
                let hint = "a job gives the same rows again after a restart: use functions of the columns, or now()";
                return self.not_streaming(span, &format!("{name}() is not available in a job"), hint);
            }
            return NEXT;
        }
        if name == "descriptor" {
            return NEXT;
        }
        if FUNCTIONS.other_aggregates.contains(&name) {
            let hint = match name.as_str() {
                "array_agg" => "columns have no list type: string_agg(CAST(x AS TEXT), ',') gives the values as one text",
                "any_value" | "nth_value" => "first_value(x) and last_value(x) work, with ORDER BY in the call",
                "approx_percentile_cont_with_weight" => "approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY x) works",
                _ => "docs/functions.md lists the aggregates that work",
            };
            return self.not_streaming(span, &format!("the aggregate {name} is not available"), hint);
        }
        if WINDOW_FUNCTIONS.contains(&name.as_str()) {
            let hint = "write FROM tumble(t, ts, INTERVAL '1 minute') and use window_start and window_end, or GROUP BY tumble(ts, INTERVAL '1 minute')";
            return self.not_streaming(span, &format!("{name} cannot stand here"), hint);
        }
        let error = Error::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name} does not exist"));
        let bound = WINDOW_FUNCTIONS.iter().find(|function| name.strip_prefix(**function).is_some_and(|rest| rest.starts_with('_')));
        if let Some(function) = bound {
            let hint = format!(
                "beside GROUP BY {function}(…) there are {function}_start(…), {function}_end(…) and {function}_time(…), with the same arguments or none"
            );
            return self.stop(span, error.with_hint(hint));
        }
        let known = FUNCTIONS.scalar.keys().map(String::as_str).chain(FUNCTIONS.aggregate.keys().copied());
        self.stop(
            span,
            match nearest(&name, known) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error,
            },
        )
    }
}

impl Check<'_> {
    /// Of the functions over rows a job has `row_number()`, for the first rows of a window.
    fn over_rows(&self, function: &Function, name: &str) -> Flow {
        let span = function.name.span();
        if self.lone {
            let hint = "the operator top gives the first rows of each window; a window aggregates: GROUP BY … over tumble(…)";
            return self.not_streaming(span, "functions over rows (OVER) cannot stand here", hint);
        }
        if name == ROW_NUMBER && matches!(function.over, Some(WindowType::WindowSpec(_))) && function.filter.is_none() {
            return NEXT;
        }
        let (message, hint) = match name {
            "row_number" => (
                "row_number() needs its window in place".to_owned(),
                "write row_number() OVER (PARTITION BY window_start, window_end ORDER BY …)",
            ),
            "rank" | "dense_rank" => (
                format!("{name}() is not available in a job: rows that are equal would all have to be kept"),
                "row_number() works: row_number() OVER (PARTITION BY window_start, window_end ORDER BY …)",
            ),
            _ => (
                "functions over rows (OVER) are not available in a job, but for row_number()".to_owned(),
                "aggregate in a window: GROUP BY … over tumble(…)",
            ),
        };
        self.not_streaming(span, &message, hint)
    }
}

/// Place of the first aggregate call of a select item.
fn aggregate_in(item: &SelectItem) -> Option<Span> {
    struct First(Option<Span>);
    impl Visitor for First {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if FUNCTIONS.aggregate.contains_key(function_name(&function.name).as_str()) => {
                    self.0 = Some(function.name.span());
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let mut first = First(None);
    let _ = item.visit(&mut first);
    first.0
}

impl Visitor for Check<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
            return self.not_streaming(with.span(), "WITH RECURSIVE cannot run as a stream", "WITH without RECURSIVE works");
        }
        if let Some(order_by) = &query.order_by {
            let span = order_span(query, order_by);
            let hint = "leave ORDER BY out of the job and sort when you read: SELECT * FROM job ORDER BY …";
            return self.not_streaming(span, "ORDER BY cannot run as a stream: an endless input has no last row to sort before", hint);
        }
        if let Some(limit) = &query.limit_clause {
            let span = limit_span(query, limit);
            let hint = "leave LIMIT out of the job and limit when you read: SELECT * FROM job LIMIT …";
            return self.not_streaming(span, "LIMIT cannot run in a job: a job never ends by itself while its input goes on", hint);
        }
        if query.fetch.is_some() || !query.locks.is_empty() || !query.pipe_operators.is_empty() {
            return self.not_streaming(query.body.span(), "FETCH, FOR UPDATE and |> are not available in a job", "leave them out");
        }
        self.body(&query.body)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        self.select(select)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Exists { .. } | Expr::InSubquery { .. } => {
                self.not_streaming(expr.span(), "a subquery in an expression cannot run as a stream", "put the subquery in FROM")
            }
            _ => NEXT,
        }
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> Flow {
        match value.value {
            Value::Placeholder(_) => self.stop(
                value.span,
                Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "a job's query takes no parameters")
                    .with_hint("write the value into the statement"),
            ),
            _ => NEXT,
        }
    }
}
