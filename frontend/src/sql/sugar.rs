//! Rewrites of a query before it is planned: windows as group keys become windows in FROM, and
//! columns without a name get the one that Postgres would give them.

use super::window::WINDOW_FUNCTIONS;
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, TableAlias,
    TableFactor, TableFunctionArgs, VisitMut, VisitorMut,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Rewrites every SELECT of a query.
pub(crate) fn rewrite(query: &mut Query) {
    let _ = VisitMut::visit(query, &mut Sugar);
}

struct Sugar;

impl VisitorMut for Sugar {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        group_key(select);
        group_by_time(select);
        name_columns(select);
        ControlFlow::Continue(())
    }
}

/// `FROM t GROUP BY tumble(ts, size)` as `FROM tumble(t, ts, size) GROUP BY window_start, window_end`.
fn group_key(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let Some(at) = keys.iter().position(|key| window_call(key).is_some()) else { return };
    let Some(function) = keys.get(at).and_then(window_call).cloned() else { return };
    let FunctionArguments::List(list) = function.args else { return };
    let [from] = select.from.as_mut_slice() else { return };
    if !from.joins.is_empty() {
        return;
    }
    let (table, alias) = match &from.relation {
        TableFactor::Table { name, alias, args: None, .. } => {
            let idents: Option<Vec<Ident>> = name.0.iter().map(|part| part.as_ident().cloned()).collect();
            let Some(idents) = idents else { return };
            (Expr::CompoundIdentifier(idents), alias.clone())
        }
        TableFactor::Derived { lateral: false, subquery, alias, .. } => (Expr::Subquery(subquery.clone()), alias.clone()),
        _ => return,
    };
    // The key keeps its place; what else is grouped by stays in order.
    let span = function.name.0.first().and_then(|part| part.as_ident()).map(|ident| ident.span);
    let column = |name: &str| {
        let mut ident = Ident::new(name);
        if let Some(span) = span {
            ident.span = span;
        }
        Expr::Identifier(ident)
    };
    keys.splice(at..=at, [column("window_start"), column("window_end")]);
    // Within the call the table has its own name.
    let own = match (&table, &alias) {
        (_, Some(alias)) => Some(folded(&alias.name)),
        (Expr::CompoundIdentifier(idents), None) => idents.last().map(folded),
        (_, None) => None,
    };
    let inner = unqualified(list.args, own.as_deref());
    let bounds = Bounds { function: function.name.to_string().to_lowercase(), args: &inner, own };
    for item in &mut select.projection {
        // A call that stands alone gives its name to its column.
        if let SelectItem::UnnamedExpr(expr @ Expr::Function(_)) = item
            && bounds.column(expr).is_some()
            && let Some(name) = natural_name(expr)
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
        let _ = VisitMut::visit(item, &mut &bounds);
    }
    if let Some(having) = &mut select.having {
        let _ = VisitMut::visit(having, &mut &bounds);
    }
    let mut args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(table))];
    args.extend(inner);
    from.relation = named(function.name, alias, Some(TableFunctionArgs { args, settings: None }));
}

/// A table or table function of this name, as FROM takes it.
pub(crate) fn named(name: ObjectName, alias: Option<TableAlias>, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// Arguments without the name of the table before their columns.
fn unqualified(args: Vec<FunctionArg>, table: Option<&str>) -> Vec<FunctionArg> {
    let bare = |arg: FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(idents))) => match idents.as_slice() {
            [name, column] if Some(folded(name).as_str()) == table => {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(column.clone())))
            }
            _ => FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(idents))),
        },
        other => other,
    };
    args.into_iter().map(bare).collect()
}

/// `window_time` goes with `window_end`: who groups by the end of a window may select its time.
fn group_by_time(select: &mut Select) {
    let windowed = select.from.iter().any(|from| match &from.relation {
        TableFactor::Table { name, args: Some(_), .. } => WINDOW_FUNCTIONS.contains(&name.to_string().to_lowercase().as_str()),
        _ => false,
    });
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let names = |keys: &[Expr], wanted: &str| keys.iter().any(|key| natural_column(key).as_deref() == Some(wanted));
    if windowed && names(keys, "window_end") && !names(keys, "window_time") {
        keys.push(Expr::Identifier(Ident::new("window_time")));
    }
}

/// The folded name of a bare column.
fn natural_column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(folded),
        _ => None,
    }
}

/// `tumble_start(…)` and the like beside a window that is a group key, with its arguments or none.
struct Bounds<'a> {
    /// Folded name of the window function.
    function: String,
    args: &'a [FunctionArg],
    /// Name of the table.
    own: Option<String>,
}

impl Bounds<'_> {
    /// The window column that a call stands for.
    fn column(&self, expr: &Expr) -> Option<Expr> {
        let Expr::Function(call) = expr else { return None };
        let name = call.name.to_string().to_lowercase();
        let column = match name.strip_prefix(self.function.as_str())? {
            "_start" => "window_start",
            "_end" => "window_end",
            "_time" | "_rowtime" => "window_time",
            _ => return None,
        };
        let same = match &call.args {
            FunctionArguments::None => true,
            FunctionArguments::List(list) => list.args.is_empty() || unqualified(list.args.clone(), self.own.as_deref()) == self.args,
            FunctionArguments::Subquery(_) => false,
        };
        let mut ident = Ident::new(column);
        if let Some(called) = call.name.0.first().and_then(|part| part.as_ident()) {
            ident.span = called.span;
        }
        same.then_some(Expr::Identifier(ident))
    }
}

impl VisitorMut for &Bounds<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(column) = self.column(expr) {
            *expr = column;
        }
        ControlFlow::Continue(())
    }
}

fn window_call(expr: &Expr) -> Option<&ast::Function> {
    match expr {
        Expr::Function(function)
            if function.name.0.len() == 1 && WINDOW_FUNCTIONS.contains(&function.name.to_string().to_lowercase().as_str()) =>
        {
            Some(function)
        }
        _ => None,
    }
}

/// Gives each column of a select list that is neither a column nor named a name of its own.
pub(crate) fn name_columns(select: &mut Select) {
    let mut taken: BTreeSet<String> = select
        .projection
        .iter()
        .filter_map(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(folded(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(idents)) => idents.last().map(folded),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        })
        .collect();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            continue;
        }
        let base = natural_name(expr).unwrap_or_else(|| format!("column_{}", at + 1));
        let name = unique(&base, &taken);
        taken.insert(name.clone());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// What Postgres would call it: the function's or the cast column's name.
pub(crate) fn natural_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(folded),
        Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()).map(folded),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => natural_name(expr),
        Expr::Case { .. } => Some("case".to_owned()),
        Expr::Extract { .. } => Some("extract".to_owned()),
        Expr::Substring { .. } => Some("substring".to_owned()),
        Expr::Trim { .. } => Some("trim".to_owned()),
        Expr::Ceil { .. } => Some("ceil".to_owned()),
        Expr::Floor { .. } => Some("floor".to_owned()),
        Expr::Position { .. } => Some("position".to_owned()),
        _ => None,
    }
}

/// `base`, or `base_1`, `base_2`, … when taken.
pub(crate) fn unique(base: &str, taken: &BTreeSet<String>) -> String {
    let mut name = base.to_owned();
    let mut number = 0;
    while taken.contains(&name) {
        number += 1;
        name = format!("{base}_{number}");
    }
    name
}

/// A bare name's parts in a table reference, for messages.
pub(crate) fn last_part(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|part| part.as_ident())
}
