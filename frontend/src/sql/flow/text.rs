//! Expressions of a stream's query as text over the columns of one step: names are folded and lose
//! their table, and what no single row or batch can answer is refused.

use super::Flow;
use crate::error::{Error, sqlstate};
use crate::sql::refuse;
use sqlparser::ast::{Expr, Ident, SelectItem, Spanned, Visit, VisitMut, Visitor, VisitorMut};
use std::ops::ControlFlow;
use weir_planner::expr::Name;

/// How the columns of a SELECT's input are named.
pub(super) struct Columns<'a> {
    pub flow: &'a Flow<'a>,
    /// The table's name or alias.
    pub qualifier: Option<&'a str>,
}

impl Columns<'_> {
    /// An expression with its names as a step has them.
    pub fn expression(&self, expr: &Expr) -> Result<Expr, Error> {
        let mut subqueries = Subqueries;
        if let ControlFlow::Break(span) = expr.visit(&mut subqueries) {
            return Err(self.flow.refused(span, "a subquery in an expression is not available in a stream", "put the subquery in FROM"));
        }
        refuse::check_expression(expr, self.flow.places)?;
        let mut expr = expr.clone();
        match VisitMut::visit(&mut expr, &mut Unqualified { columns: self }) {
            ControlFlow::Break(error) => Err(*error),
            ControlFlow::Continue(()) => Ok(expr),
        }
    }

    /// A select item that is no wildcard, with the name of its column.
    pub fn item(&self, item: &SelectItem) -> Result<(Expr, String), Error> {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => Ok((self.expression(expr)?, canonical(alias).value)),
            SelectItem::UnnamedExpr(expr) => match self.expression(expr)? {
                Expr::Identifier(ident) => {
                    let name = ident.value.clone();
                    Ok((Expr::Identifier(ident), name))
                }
                _ => Err(self.flow.refused(expr.span(), "this column has no name", "write … AS name")),
            },
            SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
                let hint = "name each column: an expression AS a name";
                Err(self.flow.refused(item.span(), "this cannot stand in a stream's select list", hint))
            }
        }
    }
}

/// A name as steps write it: folded unless it was quoted, and quoted only where it must be.
pub(super) fn canonical(ident: &Ident) -> Ident {
    let value = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    column(value, ident)
}

/// A column's name as an identifier, in the place of another one.
pub(super) fn column(value: String, at: &Ident) -> Ident {
    let quote_style = Name(&value).to_string().starts_with('"').then_some('"');
    Ident { value, quote_style, span: at.span }
}

/// An expression as SQL.
pub(super) fn expression(expr: &Expr) -> String {
    expr.to_string()
}

/// An expression as a column of this name: a column that keeps its name is written once.
pub(super) fn named(expr: &Expr, name: &str) -> String {
    match expr {
        Expr::Identifier(ident) if ident.value == name => Name(name).to_string(),
        expr => format!("{} AS {}", expression(expr), Name(name)),
    }
}

struct Subqueries;

impl Visitor for Subqueries {
    type Break = sqlparser::tokenizer::Span;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(expr.span()),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Unqualified<'a> {
    columns: &'a Columns<'a>,
}

impl VisitorMut for Unqualified<'_> {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(ident) => *ident = canonical(ident),
            Expr::CompoundIdentifier(idents) => {
                let [table, name] = idents.as_slice() else { return self.unknown(idents) };
                if self.columns.qualifier != Some(canonical(table).value.as_str()) {
                    return self.unknown(idents);
                }
                *expr = Expr::Identifier(canonical(name));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Unqualified<'_> {
    fn unknown(&self, idents: &[Ident]) -> ControlFlow<Box<Error>> {
        let shown = idents.iter().map(|ident| ident.value.as_str()).collect::<Vec<_>>().join(".");
        let error = Error::new(sqlstate::UNDEFINED_COLUMN, format!("'{}' is no column of this batch", shown.escape_debug()));
        let error = match self.columns.qualifier {
            Some(table) => error.with_hint(format!("columns are named alone, or as {table}.column")),
            None => error.with_hint("columns are named alone"),
        };
        let position = idents.first().and_then(|ident| self.columns.flow.places.start(ident.span));
        ControlFlow::Break(Box::new(Error { position, ..error }))
    }
}
