//! SELECT with aggregates over one batch: a map that computes keys, a batch window, and a map that
//! gives the select list its order and names; each only where it does something.

use super::text::{Columns, column, expression, named};
use super::{Flow, Step, Text};
use crate::error::{Error, sqlstate};
use crate::sql::functions::FUNCTIONS;
use crate::sql::sugar::{natural_name, unique};
use sqlparser::ast::{Expr, Function, GroupByExpr, Ident, Select, SelectItem, Spanned, Value, Visit, VisitMut, Visitor, VisitorMut};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use weir_planner::expr::Name;

/// Whether a SELECT computes over groups: it has keys, HAVING or an aggregate in its list.
pub(super) fn is_grouped(select: &Select) -> bool {
    let keyed = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if !keys.is_empty());
    keyed || select.having.is_some() || select.projection.iter().any(|item| !aggregates_in(item).is_empty())
}

struct Named {
    expr: Expr,
    name: String,
}

/// A SELECT with aggregates, taken apart.
pub(super) struct Grouped {
    /// The select list: expressions over keys and aggregates, and their names.
    items: Vec<(Expr, String, Option<usize>)>,
    keys: Vec<Named>,
    aggregates: Vec<Named>,
    having: Option<(Expr, Option<usize>)>,
}

impl Grouped {
    /// Takes a SELECT apart; `known` are columns that its input is known to have.
    ///
    /// Errors: a column that is neither grouped by nor aggregated, `*`, and what no column can be.
    pub fn of(select: &Select, read: &Columns<'_>, known: BTreeSet<String>) -> Result<Grouped, Error> {
        let mut items = Vec::new();
        for item in &select.projection {
            if matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)) {
                let hint = "name the columns that you group by, and aggregate the others";
                return Err(read.flow.refused(item.span(), "* cannot stand in a query with aggregates", hint));
            }
            let (expr, name) = read.item(item)?;
            items.push(Named { expr, name });
        }
        let exprs = keys_of(select, &items, read, known)?;
        let having = select.having.as_ref().map(|having| read.expression(having)).transpose()?;
        let having = having.map(|having| with_aliases(having, &items, &exprs));
        let aggregates = collected(&items, having.as_ref());
        let keys = named_keys(exprs, &items, &aggregates);
        let aggregates = named_aggregates(aggregates, &items, &keys);
        let over = Over { keys: &keys, aggregates: &aggregates, flow: read.flow };
        let items = items
            .iter()
            .map(|item| Ok((over.rewritten(item.expr.clone())?, item.name.clone(), read.flow.at(item.expr.span()))))
            .collect::<Result<Vec<_>, Error>>()?;
        let having = having.map(|having| Ok((over.rewritten(having.clone())?, read.flow.at(having.span())))).transpose()?;
        Ok(Grouped { items, keys, aggregates, having })
    }

    /// Adds its steps, and gives the names of its columns.
    pub fn steps(self, filter: Option<Text>, flow: &Flow<'_>, steps: &mut Vec<Step>) -> Option<Vec<String>> {
        let computed = self.keys.iter().any(|key| !is_column(&key.expr, &key.name));
        let mut project = Vec::new();
        if computed {
            project.extend(self.keys.iter().map(|key| flow.text(&key.expr, named(&key.expr, &key.name))));
            let mut given: BTreeSet<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
            let read: Vec<Ident> = self.aggregates.iter().flat_map(|aggregate| columns_in(&aggregate.expr)).collect();
            for ident in &read {
                if given.insert(&ident.value) {
                    project.push(Text { sql: Name(&ident.value).to_string(), position: flow.at(ident.span) });
                }
            }
        }
        if filter.is_some() || computed {
            steps.push(Step::Map { filter, project });
        }
        let outputs: Vec<&str> = self.keys.iter().chain(&self.aggregates).map(|column| column.name.as_str()).collect();
        let given = self.items.len() == outputs.len()
            && self.items.iter().zip(&outputs).all(|((expr, name, _), output)| name == output && is_column(expr, output));
        steps.push(Step::Batch {
            keys: self.keys.iter().map(|key| key.name.clone()).collect(),
            aggregates: self.aggregates.iter().map(|call| (flow.text(&call.expr, expression(&call.expr)), call.name.clone())).collect(),
            having: self.having.map(|(expr, position)| Text { sql: expression(&expr), position }),
        });
        if !given {
            let project = self.items.iter().map(|(expr, name, position)| Text { sql: named(expr, name), position: *position });
            steps.push(Step::Map { filter: None, project: project.collect() });
        }
        Some(self.items.into_iter().map(|(_, name, _)| name).collect())
    }
}

fn is_column(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.value == name)
}

/// What is grouped by: a column, an expression, the number of a select item, or its name.
fn keys_of(select: &Select, items: &[Named], read: &Columns<'_>, known: BTreeSet<String>) -> Result<Vec<Expr>, Error> {
    let GroupByExpr::Expressions(given, _) = &select.group_by else { return Ok(Vec::new()) };
    let mut input = known;
    let listed = items.iter().filter(|item| !is_column(&item.expr, &item.name)).map(|item| &item.expr);
    input.extend(listed.flat_map(columns_in).map(|ident| ident.value));
    let mut keys: Vec<Expr> = Vec::new();
    for key in given {
        let span = key.span();
        if matches!(key, Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) | Expr::Tuple(_)) {
            let hint = "name the columns, separated by commas";
            return Err(read.flow.refused(span, "GROUPING SETS, ROLLUP and CUBE are not available in a stream", hint));
        }
        let expr = match bare(key) {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    let at = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                    let item = at.and_then(|at| items.get(at)).map(|item| item.expr.clone());
                    item.ok_or_else(|| {
                        let error = Error::new(sqlstate::GROUPING_ERROR, format!("GROUP BY position {digits} is not in the select list"));
                        Error { position: read.flow.at(span), ..error }
                    })?
                }
                _ => read.expression(key)?,
            },
            expr => match read.expression(expr)? {
                // A name of the select list stands for its expression, unless it is also a column
                // that the query reads: then it is the column, as in Postgres.
                Expr::Identifier(ident) if !input.contains(&ident.value) => {
                    let item = items.iter().find(|item| item.name == ident.value && !is_column(&item.expr, &item.name));
                    item.map_or(Expr::Identifier(ident), |item| item.expr.clone())
                }
                expr => expr,
            },
        };
        if let Some(call) = aggregates_in(&expr).first() {
            let error = Error::new(sqlstate::GROUPING_ERROR, "an aggregate cannot be grouped by").with_hint("group by columns");
            return Err(Error { position: read.flow.at(call.span()).or(read.flow.at(span)), ..error });
        }
        if !keys.contains(&expr) {
            keys.push(expr);
        }
    }
    Ok(keys)
}

fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// HAVING with names of the select list in the place of what they stand for.
fn with_aliases(mut having: Expr, items: &[Named], keys: &[Expr]) -> Expr {
    struct Aliases<'a> {
        items: &'a [Named],
        keys: &'a [Expr],
        calls: usize,
    }
    impl VisitorMut for Aliases<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.calls += usize::from(is_aggregate(expr));
            ControlFlow::Continue(())
        }
        // After its parts, so that what is put in is not looked at again.
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.calls -= usize::from(is_aggregate(expr));
            if self.calls == 0
                && !self.keys.contains(expr)
                && let Expr::Identifier(ident) = &*expr
                && let Some(item) = self.items.iter().find(|item| item.name == ident.value && !is_column(&item.expr, &item.name))
            {
                *expr = match &item.expr {
                    call if is_aggregate(call) => call.clone(),
                    other => Expr::Nested(Box::new(other.clone())),
                };
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(&mut having, &mut Aliases { items, keys, calls: 0 });
    having
}

/// Every aggregate call once, in the order of the text.
fn collected(items: &[Named], having: Option<&Expr>) -> Vec<Expr> {
    let mut calls: Vec<Expr> = Vec::new();
    for call in items.iter().map(|item| &item.expr).chain(having).flat_map(aggregates_in) {
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}

/// Keys with the names that their columns have: a column keeps its own; what is computed takes the
/// name of its select item where no column of the input that is still needed has it.
fn named_keys(exprs: Vec<Expr>, items: &[Named], aggregates: &[Expr]) -> Vec<Named> {
    let plain = exprs.iter().filter_map(|expr| if let Expr::Identifier(ident) = expr { Some(ident.value.clone()) } else { None });
    let mut taken: BTreeSet<String> = plain.chain(aggregates.iter().flat_map(columns_in).map(|ident| ident.value)).collect();
    let mut keys = Vec::with_capacity(exprs.len());
    for (at, expr) in exprs.into_iter().enumerate() {
        let name = match &expr {
            Expr::Identifier(ident) => ident.value.clone(),
            expr => {
                let item = items.iter().find(|item| item.expr == *expr).map(|item| item.name.clone());
                let base = item.or_else(|| natural_name(expr)).unwrap_or_else(|| format!("key_{}", at + 1));
                unique(&base, &taken)
            }
        };
        taken.insert(name.clone());
        keys.push(Named { expr, name });
    }
    keys
}

/// Aggregates with the names that their columns have: those of their select items before all others.
fn named_aggregates(calls: Vec<Expr>, items: &[Named], keys: &[Named]) -> Vec<Named> {
    let mut taken: BTreeSet<String> = keys.iter().map(|key| key.name.clone()).collect();
    let mut names: Vec<Option<String>> = Vec::with_capacity(calls.len());
    for call in &calls {
        let free = items.iter().find(|item| item.expr == *call && !taken.contains(&item.name)).map(|item| item.name.clone());
        taken.extend(free.clone());
        names.push(free);
    }
    let mut named = Vec::with_capacity(calls.len());
    for (expr, name) in calls.into_iter().zip(names) {
        let name = name.unwrap_or_else(|| unique(&natural_name(&expr).unwrap_or_else(|| "aggregate".to_owned()), &taken));
        taken.insert(name.clone());
        named.push(Named { expr, name });
    }
    named
}

/// What expressions over keys and aggregates may read.
struct Over<'a> {
    keys: &'a [Named],
    aggregates: &'a [Named],
    flow: &'a Flow<'a>,
}

impl Over<'_> {
    fn rewritten(&self, mut expr: Expr) -> Result<Expr, Error> {
        match VisitMut::visit(&mut expr, &mut Outputs { over: self }) {
            ControlFlow::Break(error) => Err(*error),
            ControlFlow::Continue(()) => Ok(expr),
        }
    }
}

struct Outputs<'a> {
    over: &'a Over<'a>,
}

impl VisitorMut for Outputs<'_> {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let output = self.over.keys.iter().chain(self.over.aggregates).find(|output| output.expr == *expr);
        if let Some(output) = output {
            let mut at = Ident::new("");
            at.span = expr.span();
            *expr = Expr::Identifier(column(output.name.clone(), &at));
        } else if let Expr::Identifier(ident) = &*expr {
            let message = format!("column '{}' must be in GROUP BY or in an aggregate", ident.value.escape_debug());
            let error = Error::new(sqlstate::GROUPING_ERROR, message).with_hint("add it to GROUP BY, or write min or max of it");
            return ControlFlow::Break(Box::new(Error { position: self.over.flow.at(ident.span), ..error }));
        }
        ControlFlow::Continue(())
    }
}

fn is_aggregate(expr: &Expr) -> bool {
    let call = |function: &Function| match function.name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|ident| FUNCTIONS.aggregate.contains_key(ident.value.to_lowercase().as_str())),
        _ => false,
    };
    matches!(expr, Expr::Function(function) if function.over.is_none() && call(function))
}

/// The outermost aggregate calls of a tree, in the order of the text.
fn aggregates_in(tree: &impl Visit) -> Vec<Expr> {
    struct Calls {
        depth: usize,
        found: Vec<Expr>,
    }
    impl Visitor for Calls {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if is_aggregate(expr) {
                if self.depth == 0 {
                    self.found.push(expr.clone());
                }
                self.depth += 1;
            }
            ControlFlow::Continue(())
        }
        fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.depth -= usize::from(is_aggregate(expr));
            ControlFlow::Continue(())
        }
    }
    let mut calls = Calls { depth: 0, found: Vec::new() };
    let _ = tree.visit(&mut calls);
    calls.found
}

/// The columns that a tree reads, in the order of the text.
pub(super) fn columns_in(tree: &impl Visit) -> Vec<Ident> {
    struct Idents(Vec<Ident>);
    impl Visitor for Idents {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Identifier(ident) = expr {
                self.0.push(ident.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut idents = Idents(Vec::new());
    let _ = tree.visit(&mut idents);
    idents.0
}
