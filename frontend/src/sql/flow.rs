//! The query of a stream's `sql` processor, lowered as text.
//!
//! The columns of a stream may not be known before its first start, so the query is taken apart as
//! it is written: into maps and batch windows whose expressions are SQL text, which is bound where
//! all expressions are, once there are columns. A query sees one batch at a time, so what needs all
//! rows of it works, and what needs an order among rows, or a second table, is refused.

mod group;
mod text;

use super::place::Places;
use super::refuse::{limit_span, order_span};
use super::{bind, sugar};
use crate::error::{Error, sqlstate};
use sqlparser::ast::{
    Cte, Distinct, Expr, GroupByExpr, JoinOperator, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Spanned,
    TableAlias, TableFactor, WildcardAdditionalOptions,
};
use sqlparser::tokenizer::Span;
use std::collections::{BTreeMap, BTreeSet};
use text::{Columns, canonical, expression, named};
use weir_planner::expr::Name;

/// Most steps that one query becomes.
const STEPS_MAX: usize = 32;

/// An expression of a step, with its place in the query as a character offset from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    /// SQL over the columns that the step before gives.
    pub sql: String,
    /// Where it stands in the query.
    pub position: Option<usize>,
}

/// One operator that a query becomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Filter, then project; without a project all columns pass.
    Map {
        /// `WHERE`.
        filter: Option<Text>,
        /// The select list.
        project: Vec<Text>,
    },
    /// Aggregates of each batch.
    Batch {
        /// Names of key columns.
        keys: Vec<String>,
        /// Calls and the names of their columns.
        aggregates: Vec<(Text, String)>,
        /// Over keys and aggregates.
        having: Option<Text>,
    },
}

/// What a query or a part of it becomes.
#[derive(Clone, Default)]
struct Lowered {
    steps: Vec<Step>,
    /// Names of the columns that it gives, where the query itself says them all.
    columns: Option<Vec<String>>,
}

/// The steps of a query that reads `table`; at least one. Needs a deep stack.
///
/// Errors: what cannot be said over one batch, with its position in `text`.
pub(crate) fn lower(text: &str, table: &str) -> Result<Vec<Step>, Error> {
    let trimmed = text.trim_end().trim_end_matches(';');
    let (places, query) = bind::parse(trimmed, |parser| parser.parse_query())?;
    let flow = Flow { table, places: &places };
    let mut lowered = flow.query(&query, &BTreeMap::new())?;
    if lowered.steps.is_empty() {
        lowered.steps.push(Step::Map { filter: None, project: Vec::new() });
    }
    Ok(lowered.steps)
}

type Tables = BTreeMap<String, Lowered>;

struct Flow<'a> {
    table: &'a str,
    places: &'a Places,
}

impl Flow<'_> {
    fn refused(&self, span: Span, message: impl Into<String>, hint: impl Into<String>) -> Error {
        let error = Error::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(hint);
        Error { position: self.places.start(span), ..error }
    }

    fn query(&self, query: &Query, outer: &Tables) -> Result<Lowered, Error> {
        self.tail(query)?;
        let mut tables = outer.clone();
        if let Some(with) = &query.with {
            if with.recursive {
                return Err(self.refused(with.span(), "WITH RECURSIVE cannot run over a batch", "WITH without RECURSIVE works"));
            }
            for Cte { alias, query, .. } in &with.cte_tables {
                self.plain_alias(alias)?;
                let lowered = self.query(query, &tables)?;
                tables.insert(canonical(&alias.name).value, lowered);
            }
        }
        match &*query.body {
            SetExpr::Select(select) => self.select(select, &tables),
            SetExpr::Query(inner) => self.query(inner, &tables),
            SetExpr::SetOperation { op, right, .. } => {
                let hint = "write one SELECT; a job under jobs: has the operator union for several inputs";
                Err(self.refused(right.span(), format!("{op} is not available in a stream"), hint))
            }
            SetExpr::Values(values) => Err(self.refused(
                values.span(),
                "a stream's query reads its batch, not VALUES",
                format!("write SELECT … FROM {}", self.table),
            )),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => {
                Err(self.refused(query.body.span(), "a stream's query is a SELECT", format!("write SELECT … FROM {}", self.table)))
            }
        }
    }

    /// What may follow a query's body, and none of it runs here.
    fn tail(&self, query: &Query) -> Result<(), Error> {
        if let Some(order_by) = &query.order_by {
            let span = order_span(query, order_by);
            let hint = "leave it out: rows keep the order of the input, and min and max find the ends of a batch";
            return Err(self.refused(span, "ORDER BY is not available in a stream", hint));
        }
        if let Some(limit) = &query.limit_clause {
            let span = limit_span(query, limit);
            let hint = "leave it out: a batch has no order to take the first rows of; WHERE or an aggregate makes it smaller";
            return Err(self.refused(span, "LIMIT is not available in a stream", hint));
        }
        if query.fetch.is_some()
            || !query.locks.is_empty()
            || !query.pipe_operators.is_empty()
            || query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
        {
            let message = "FETCH, FOR, SETTINGS, FORMAT and |> are not available in a stream";
            return Err(self.refused(query.body.span(), message, "leave them out"));
        }
        Ok(())
    }

    fn plain_alias(&self, alias: &TableAlias) -> Result<(), Error> {
        if alias.columns.is_empty() && alias.at.is_none() {
            return Ok(());
        }
        let message = format!("column names after the name '{}' are not available in a stream", alias.name.value);
        Err(self.refused(alias.name.span, message, "name the columns with AS in the inner query"))
    }

    /// What a SELECT reads, and the name that its columns may be qualified with.
    fn relation(&self, select: &Select, tables: &Tables) -> Result<(Lowered, Option<String>), Error> {
        let Some(first) = select.from.first() else {
            let message = "a stream's query reads its batch: this SELECT has no FROM";
            return Err(self.refused(select.select_token.0.span, message, format!("write SELECT … FROM {}", self.table)));
        };
        let join = first.joins.first().map(|join| (join.relation.span(), matches!(join.join_operator, JoinOperator::CrossJoin(_))));
        if let Some((span, cross)) = select.from.get(1).map(|second| (second.relation.span(), true)).or(join) {
            let what = if cross { "a cross join" } else { "a join" };
            let hint = "a stream has one input: write a job under jobs: with a source for each side and the join operator";
            return Err(self.refused(span, format!("{what} is not available in a stream"), hint));
        }
        match &first.relation {
            TableFactor::Table { name, alias, args: None, .. } => {
                let found = match name.0.as_slice() {
                    [part] => part.as_ident(),
                    _ => None,
                };
                let Some(ident) = found else { return Err(self.unknown_table(name.span(), &name.to_string())) };
                let table = canonical(ident).value;
                let lowered = match tables.get(&table) {
                    Some(lowered) => lowered.clone(),
                    None if table.eq_ignore_ascii_case(self.table) => Lowered::default(),
                    None => return Err(self.unknown_table(name.span(), &table)),
                };
                if let Some(alias) = alias {
                    self.plain_alias(alias)?;
                }
                Ok((lowered, Some(alias.as_ref().map_or(table, |alias| canonical(&alias.name).value))))
            }
            TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                if let Some(alias) = alias {
                    self.plain_alias(alias)?;
                }
                Ok((self.query(subquery, tables)?, alias.as_ref().map(|alias| canonical(&alias.name).value)))
            }
            other => {
                let hint =
                    format!("a stream's query reads {} or a subquery over it; a window over time is the stream's buffer", self.table);
                Err(self.refused(other.span(), "this kind of table cannot be read by a stream", hint))
            }
        }
    }

    fn unknown_table(&self, span: Span, name: &str) -> Error {
        let error = Error::new(sqlstate::UNDEFINED_TABLE, format!("table '{}' does not exist in a stream", name.escape_debug()));
        let error = error.with_hint(format!("a stream's query reads its batch as '{}'; table_name gives it another name", self.table));
        Error { position: self.places.start(span), ..error }
    }

    /// Clauses that no batch can answer.
    fn clauses(&self, select: &Select) -> Result<(), Error> {
        let here = select.select_token.0.span;
        let some = |exprs: &[Expr]| !exprs.is_empty();
        for (present, what) in [
            (select.qualify.is_some(), "QUALIFY"),
            (!select.lateral_views.is_empty(), "LATERAL VIEW"),
            (!select.named_window.is_empty(), "WINDOW"),
            (select.into.is_some(), "SELECT INTO"),
            (select.top.is_some(), "TOP"),
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (some(&select.cluster_by), "CLUSTER BY"),
            (some(&select.distribute_by), "DISTRIBUTE BY"),
            (!select.sort_by.is_empty(), "SORT BY"),
            (select.exclude.is_some(), "EXCLUDE"),
            (select.value_table_mode.is_some(), "SELECT AS"),
            (select.select_modifiers.is_some(), "a modifier of SELECT"),
        ] {
            if present {
                return Err(self.refused(here, format!("{what} is not available in a stream"), "leave it out"));
            }
        }
        match &select.group_by {
            GroupByExpr::All(_) => Err(self.refused(here, "GROUP BY ALL is not available in a stream", "name the columns")),
            GroupByExpr::Expressions(_, modifiers) if !modifiers.is_empty() => {
                Err(self.refused(here, "GROUP BY WITH … is not available in a stream", "name the columns"))
            }
            GroupByExpr::Expressions(..) => Ok(()),
        }
    }

    fn select(&self, select: &Select, tables: &Tables) -> Result<Lowered, Error> {
        self.clauses(select)?;
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => {
                let hint = "use DISTINCT, or GROUP BY with min or max";
                return Err(self.refused(select.select_token.0.span, "DISTINCT ON is not available in a stream", hint));
            }
        };
        let (mut input, qualifier) = self.relation(select, tables)?;
        let mut select = select.clone();
        sugar::name_columns(&mut select);
        let read = Columns { flow: self, qualifier: qualifier.as_deref() };
        let filter = select.selection.as_ref().map(|expr| read.expression(expr)).transpose()?;
        // WHERE reads columns of the input alone, never names of the list.
        let mut known: BTreeSet<String> = filter.iter().flat_map(group::columns_in).map(|ident| ident.value).collect();
        known.extend(input.columns.iter().flatten().cloned());
        let filter = filter.map(|expr| self.text(&expr, expression(&expr)));
        let columns = if group::is_grouped(&select) {
            let grouped = group::Grouped::of(&select, &read, known)?;
            grouped.steps(filter, self, &mut input.steps)
        } else {
            self.plain(&select, &read, filter, &mut input)?
        };
        input.columns = columns;
        if distinct {
            let Some(columns) = &input.columns else {
                let hint = "name the columns after DISTINCT";
                return Err(self.refused(select.select_token.0.span, "SELECT DISTINCT * is not available in a stream", hint));
            };
            input.steps.push(Step::Batch { keys: columns.clone(), aggregates: Vec::new(), having: None });
        }
        if input.steps.len() > STEPS_MAX {
            let error = Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("the query becomes more than {STEPS_MAX} steps"));
            let error = error.with_hint("write it as several sql processors, or with fewer subqueries");
            return Err(Error { position: self.places.start(select.select_token.0.span), ..error });
        }
        Ok(input)
    }

    /// A SELECT without aggregates: one map. What comes back are its columns.
    fn plain(&self, select: &Select, read: &Columns<'_>, filter: Option<Text>, input: &mut Lowered) -> Result<Option<Vec<String>>, Error> {
        let all = select.projection.len() == 1 && self.wildcard(select.projection.first(), read)?;
        let known = input.columns.clone();
        let (mut project, mut columns) = (Vec::new(), Some(Vec::new()));
        for item in select.projection.iter().filter(|_| !all) {
            if self.wildcard(Some(item), read)? {
                match &known {
                    Some(known) => {
                        project.extend(known.iter().map(|name| Text { sql: Name(name).to_string(), position: self.at(item.span()) }))
                    }
                    None => project.push(Text { sql: "*".to_owned(), position: self.at(item.span()) }),
                }
                columns = columns.zip(known.clone()).map(|(mut columns, known): (Vec<String>, Vec<String>)| {
                    columns.extend(known);
                    columns
                });
                continue;
            }
            let (expr, name) = read.item(item)?;
            project.push(self.text(&expr, named(&expr, &name)));
            columns = columns.map(|mut columns| {
                columns.push(name);
                columns
            });
        }
        let same = |columns: &[String]| {
            known.as_deref() == Some(columns) && project.iter().zip(columns).all(|(text, name)| text.sql == Name(name).to_string())
        };
        let idle = filter.is_none() && (all || columns.as_deref().is_some_and(same));
        if !idle {
            input.steps.push(Step::Map { filter, project });
        }
        Ok(if all { known } else { columns })
    }

    /// Whether an item stands for all columns.
    fn wildcard(&self, item: Option<&SelectItem>, read: &Columns<'_>) -> Result<bool, Error> {
        let options = match item {
            Some(SelectItem::Wildcard(options)) => options,
            Some(SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)) => {
                let ident = match name.0.as_slice() {
                    [part] => part.as_ident(),
                    _ => None,
                };
                match ident.map(|ident| canonical(ident).value) {
                    Some(table) if read.qualifier == Some(table.as_str()) => options,
                    _ => return Err(self.unknown_table(name.span(), &name.to_string())),
                }
            }
            _ => return Ok(false),
        };
        let WildcardAdditionalOptions { wildcard_token, opt_ilike, opt_exclude, opt_except, opt_replace, opt_rename, opt_alias } = options;
        if opt_ilike.is_some()
            || opt_exclude.is_some()
            || opt_except.is_some()
            || opt_replace.is_some()
            || opt_rename.is_some()
            || opt_alias.is_some()
        {
            return Err(self.refused(wildcard_token.0.span, "words after * are not available in a stream", "name the columns"));
        }
        Ok(true)
    }

    fn at(&self, span: Span) -> Option<usize> {
        self.places.start(span)
    }

    fn text(&self, expr: &Expr, sql: String) -> Text {
        Text { sql, position: self.at(expr.span()) }
    }
}
