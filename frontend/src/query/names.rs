//! What columns of an answer are called, by Postgres' rules: an alias, a column's own name, a
//! function's name, else `?column?`.

use arrow::datatypes::{Schema, SchemaRef};
use sqlparser::ast::{Expr, Ident, ObjectNamePart, Query, SelectItem, SetExpr, Statement, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Names for the columns of an answer, where they are known before wildcards are expanded.
#[derive(Debug, Default)]
pub(super) struct Labels {
    before_wildcard: Vec<String>,
    /// Counted from the last column.
    after_wildcard: Vec<String>,
}

impl Labels {
    /// Reads the names of a query's columns. DataFusion refuses two columns of one name where
    /// Postgres does not, so all but the first of a name get a hidden alias here.
    pub fn of(statement: &mut Statement) -> Labels {
        let mut labels = Labels::default();
        let Statement::Query(query) = statement else { return labels };
        let Some(items) = first_select(query) else { return labels };
        let (mut seen, mut wildcards) = (HashSet::new(), 0_usize);
        let mut named = Vec::new();
        for (i, item) in items.iter_mut().enumerate() {
            match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                    if wildcards == 0 {
                        labels.before_wildcard = std::mem::take(&mut named);
                    }
                    wildcards += 1;
                    named.clear();
                }
                SelectItem::UnnamedExpr(expr) => {
                    let (key, name) = (expr.to_string(), label(expr));
                    if !seen.insert(key) {
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: hidden(i) };
                    }
                    named.push(name);
                }
                SelectItem::ExprWithAlias { alias, .. } => {
                    let name = fold(alias);
                    if !seen.insert(name.clone()) {
                        *alias = hidden(i);
                    }
                    named.push(name);
                }
                // Not of the Postgres dialect.
                SelectItem::ExprWithAliases { .. } => named.push("?column?".to_owned()),
            }
        }
        if wildcards == 0 {
            labels.before_wildcard = named;
        } else {
            named.reverse();
            labels.after_wildcard = named;
        }
        labels
    }

    /// The schema under these names.
    pub fn apply(&self, schema: &Schema) -> SchemaRef {
        let count = schema.fields().len();
        let name = |i: usize| {
            let from_end = count - 1 - i;
            self.before_wildcard.get(i).or_else(|| self.after_wildcard.get(from_end))
        };
        let field = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| match name(i) {
            Some(name) => field.as_ref().clone().with_name(name),
            None => field.as_ref().clone(),
        };
        Arc::new(Schema::new(schema.fields().iter().enumerate().map(field).collect::<Vec<_>>()))
    }
}

fn hidden(i: usize) -> Ident {
    Ident::with_quote('"', format!("__column_{i}"))
}

fn first_select(query: &mut Query) -> Option<&mut Vec<SelectItem>> {
    let mut body = &mut *query.body;
    loop {
        match body {
            SetExpr::Select(select) => return Some(&mut select.projection),
            SetExpr::SetOperation { left, .. } => body = &mut **left,
            SetExpr::Query(query) => body = &mut *query.body,
            SetExpr::Values(_) | SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => {
                return None;
            }
        }
    }
}

fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

fn label(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => fold(ident),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(unknown, fold),
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => fold(ident),
            Some(ObjectNamePart::Function(_)) | None => unknown(),
        },
        Expr::Cast { expr, data_type, .. } => match label(expr) {
            name if name == "?column?" => type_label(&data_type.to_string()),
            name => name,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => label(inner),
        Expr::Case { .. } => "case".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Interval(_) => "interval".to_owned(),
        Expr::TypedString(typed) => type_label(&typed.data_type.to_string()),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        _ => unknown(),
    }
}

fn unknown() -> String {
    "?column?".to_owned()
}

/// The name that Postgres gives to a cast of something nameless.
fn type_label(text: &str) -> String {
    let folded = text.to_lowercase();
    let bare = folded.split('(').next().unwrap_or_default().trim();
    match bare {
        "int" | "integer" => "int4".to_owned(),
        "bigint" => "int8".to_owned(),
        "smallint" => "int2".to_owned(),
        "boolean" => "bool".to_owned(),
        "real" => "float4".to_owned(),
        "double precision" | "double" | "float" => "float8".to_owned(),
        "decimal" | "dec" => "numeric".to_owned(),
        "character varying" => "varchar".to_owned(),
        "timestamp with time zone" => "timestamptz".to_owned(),
        "timestamp without time zone" => "timestamp".to_owned(),
        other => other.rsplit('.').next().unwrap_or(other).to_owned(),
    }
}
