//! One pass over a statement that turns Postgres' spelling into what DataFusion plans: qualified
//! operators and functions, casts to `regclass` and its kin, `= ANY (ARRAY …)`, and queries over
//! catalog tables that never have rows. Places in the text are kept.

use super::functions::{NAME_OF, NUMBER_OF, SCHEMA_OF, TYPE_NUMBER_OF};
use super::pg_catalog::ALWAYS_EMPTY;
use sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinOperator, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    Value, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Rewrites a statement in place.
pub(super) fn postgres(statement: &mut Statement) {
    let mut pass = Pass;
    let _ = statement.visit(&mut pass);
}

struct Pass;

impl VisitorMut for Pass {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(items) = empty_columns(query) {
            make_empty(query, items);
        }
        // FOR UPDATE locks nothing here: rows are written by jobs only.
        query.locks.clear();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(simpler) = subquery_over_nothing(expr) {
            *expr = simpler;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(rewritten) = rewritten(expr) {
            *expr = rewritten;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } = factor {
            strip_catalog(name);
        }
        ControlFlow::Continue(())
    }
}

fn rewritten(expr: &mut Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                *op = plain_operator(parts.last()?)?;
            }
            None
        }
        Expr::Collate { expr, .. } => Some(take(expr)),
        Expr::Function(function) => {
            strip_catalog(&mut function.name);
            None
        }
        Expr::Cast { expr, data_type, .. } => cast(expr, data_type),
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            escape_by_backslash(pattern, escape_char);
            None
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => member(left, right),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
            let inside = member(left, right)?;
            Some(Expr::UnaryOp { op: sqlparser::ast::UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(inside))) })
        }
        _ => None,
    }
}

fn take(expr: &mut Box<Expr>) -> Expr {
    std::mem::replace(&mut **expr, null())
}

fn null() -> Expr {
    Expr::value(Value::Null)
}

fn plain_operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// `pg_catalog.f(…)` is `f(…)`.
fn strip_catalog(name: &mut ObjectName) {
    let is_catalog = |part: &ObjectNamePart| part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case("pg_catalog"));
    if name.0.len() == 2 && name.0.first().is_some_and(is_catalog) {
        name.0.remove(0);
    }
}

fn cast(expr: &mut Box<Expr>, ty: &mut DataType) -> Option<Expr> {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = ty {
        if let Some(plain) = plain_type(element) {
            **element = plain;
        }
        return None;
    }
    let name = type_name(ty)?;
    let is_text =
        |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
    match name.as_str() {
        "regclass" if is_text(expr) => Some(call(NUMBER_OF, vec![take(expr)])),
        // A number stays one under ::oid, and is printed as a name otherwise.
        "regclass" => Some(call(NAME_OF, vec![take(expr)])),
        "regnamespace" => Some(call(SCHEMA_OF, vec![take(expr)])),
        "regtype" if is_text(expr) => Some(call(TYPE_NUMBER_OF, vec![take(expr)])),
        "regtype" => Some(call("format_type", vec![take(expr), null()])),
        "regrole" => Some(call("pg_get_userbyid", vec![take(expr)])),
        // What these find is a number as long as nobody prints it.
        "oid" if is_call(expr, "to_regtype") => rename_call(expr, TYPE_NUMBER_OF),
        "oid" if is_call(expr, "to_regclass") => rename_call(expr, NUMBER_OF),
        "oid" if is_call(expr, NAME_OF) => first_argument(expr),
        _ => {
            if let Some(plain) = plain_type(ty) {
                *ty = plain;
            }
            None
        }
    }
}

fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case(name))
}

fn rename_call(expr: &mut Box<Expr>, name: &str) -> Option<Expr> {
    let mut taken = take(expr);
    if let Expr::Function(function) = &mut taken {
        function.name = ObjectName::from(vec![Ident::new(name)]);
    }
    Some(taken)
}

fn first_argument(expr: &mut Box<Expr>) -> Option<Expr> {
    match take(expr) {
        Expr::Function(Function { args: FunctionArguments::List(list), .. }) => match list.args.into_iter().next() {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) => Some(first),
            _ => None,
        },
        _ => None,
    }
}

/// Name of a type that sqlparser has no word for, without `pg_catalog.` and quotes.
fn type_name(ty: &DataType) -> Option<String> {
    match ty {
        DataType::Custom(name, _) => name.0.last()?.as_ident().map(|ident| ident.value.to_lowercase()),
        DataType::Regclass => Some("regclass".to_owned()),
        _ => None,
    }
}

fn plain_type(ty: &DataType) -> Option<DataType> {
    Some(match type_name(ty)?.as_str() {
        "oid" | "xid" | "cid" | "int8" | "bigint" => DataType::BigInt(None),
        "int4" | "integer" | "int" => DataType::Integer(None),
        "int2" | "smallint" => DataType::SmallInt(None),
        "bool" | "boolean" => DataType::Boolean,
        "float8" => DataType::DoublePrecision,
        "float4" => DataType::Real,
        "text" | "name" | "char" | "bpchar" | "varchar" | "cstring" | "regproc" | "regprocedure" | "regoper" | "json" | "jsonb"
        | "uuid" | "unknown" => DataType::Text,
        _ => return None,
    })
}

/// DataFusion escapes in LIKE by a backslash only: a pattern with another escape character is
/// put into that form when it runs. The character twice stands for itself.
fn escape_by_backslash(pattern: &mut Box<Expr>, escape: &mut Option<ValueWithSpan>) {
    let Some(Value::SingleQuotedString(given)) = escape.as_ref().map(|value| &value.value) else { return };
    if given.chars().count() != 1 || given == "\\" {
        return;
    }
    let text = |text: &str| Expr::value(Value::SingleQuotedString(text.to_owned()));
    let replace = |within: Expr, from: &str, to: &str| call("replace", vec![within, text(from), text(to)]);
    let aside = "\u{1}";
    let doubled = replace(replace(take(pattern), "\\", "\\\\"), &given.repeat(2), aside);
    **pattern = replace(replace(doubled, given, "\\"), aside, given);
    *escape = None;
}

/// `x = ANY (list)` as IN or as a search in an array.
fn member(left: &mut Box<Expr>, right: &mut Box<Expr>) -> Option<Expr> {
    let right = match &mut **right {
        Expr::Nested(inner) => inner,
        _ => right,
    };
    match &mut **right {
        Expr::Array(Array { elem, .. }) => {
            let list = std::mem::take(elem);
            Some(Expr::InList { expr: Box::new(take(left)), list, negated: false })
        }
        Expr::Subquery(query) => Some(Expr::InSubquery { expr: Box::new(take(left)), subquery: query.clone(), negated: false }),
        // '{r,v}' as drivers write it.
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => {
                let inner = text.strip_prefix('{')?.strip_suffix('}')?;
                let item = |part: &str| Expr::value(Value::SingleQuotedString(part.trim().trim_matches('"').to_owned()));
                let list = inner.split(',').filter(|part| !part.is_empty()).map(item).collect();
                Some(Expr::InList { expr: Box::new(take(left)), list, negated: false })
            }
            _ => Some(call("array_has", vec![take(right), take(left)])),
        },
        _ => Some(call("array_has", vec![take(right), take(left)])),
    }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A subquery over tables without rows, as the constant that it is.
fn subquery_over_nothing(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Subquery(query) if empty_columns(query).is_some() => Some(null()),
        // DataFusion wants to see that a correlated subquery gives one row; over Postgres' own
        // tables these look one up by its number.
        Expr::Subquery(query) if over_catalog(query) => {
            let mut query = query.clone();
            aggregate_items(&mut query, "max").then_some(Expr::Subquery(query))
        }
        Expr::Exists { subquery, negated } => empty_columns(subquery).map(|_| Expr::value(Value::Boolean(*negated))),
        Expr::InSubquery { subquery, negated, .. } => empty_columns(subquery).map(|_| Expr::value(Value::Boolean(*negated))),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("array") => match &function.args {
            FunctionArguments::Subquery(query) if empty_columns(query).is_some() => {
                let text = Expr::value(Value::SingleQuotedString("List(Utf8)".to_owned()));
                Some(call("arrow_cast", vec![call("make_array", Vec::new()), text]))
            }
            // ARRAY (SELECT x …) is the one row of (SELECT array_agg(x) …).
            FunctionArguments::Subquery(query) => {
                let mut query = query.clone();
                query.order_by = None;
                aggregate_items(&mut query, "array_agg").then_some(Expr::Subquery(query))
            }
            FunctionArguments::None | FunctionArguments::List(_) => None,
        },
        _ => None,
    }
}

/// Whether a query reads tables of `pg_catalog` only, and does not aggregate.
fn over_catalog(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_catalog = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: None, .. } => {
            name.0.last().and_then(|part| part.as_ident()).is_some_and(|ident| ident.value.starts_with("pg_"))
        }
        _ => false,
    };
    let tables = select.from.iter().flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let plain = !select.projection.iter().any(aggregates);
    plain && query.limit_clause.is_none() && !select.from.is_empty() && tables.clone().all(is_catalog)
}

/// Puts an aggregate around the only column of a query; false when it has another number of them.
fn aggregate_items(query: &mut Query, name: &str) -> bool {
    let SetExpr::Select(select) = &mut *query.body else { return false };
    match select.projection.as_mut_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => {
            let inner = std::mem::replace(expr, null());
            *expr = call(name, vec![inner]);
            true
        }
        _ => false,
    }
}

/// The columns of a query that cannot give rows because it joins a table that never has any;
/// `None` when it may give rows, or when its columns cannot be told.
fn empty_columns(query: &Query) -> Option<Vec<SelectItem>> {
    if query.with.is_some() {
        return None;
    }
    of_body(&query.body)
}

fn of_body(body: &SetExpr) -> Option<Vec<SelectItem>> {
    match body {
        SetExpr::Select(select) => {
            let grouped = select.projection.iter().any(aggregates);
            let listed = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            let nothing = select.from.iter().any(gives_nothing);
            (nothing && !grouped && select.projection.iter().all(listed)).then(|| select.projection.clone())
        }
        SetExpr::SetOperation { left, right, .. } => {
            let columns = of_body(left)?;
            of_body(right).map(|_| columns)
        }
        SetExpr::Query(query) => empty_columns(query),
        SetExpr::Values(_) | SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => None,
    }
}

/// Whether a column aggregates, which gives a row even over nothing. Subqueries do so by themselves.
fn aggregates(item: &SelectItem) -> bool {
    struct Search {
        depth: usize,
    }
    impl Visitor for Search {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if self.depth == 0 && is_aggregate(&function.name) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    item.visit(&mut Search { depth: 0 }).is_break()
}

fn is_aggregate(name: &ObjectName) -> bool {
    const NAMES: [&str; 10] = ["count", "sum", "min", "max", "avg", "array_agg", "string_agg", "bool_and", "bool_or", "every"];
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|ident| NAMES.iter().any(|known| ident.value.eq_ignore_ascii_case(known)))
}

fn gives_nothing(from: &TableWithJoins) -> bool {
    from.joins.iter().fold(never_has_rows(&from.relation), |left, join| {
        let right = never_has_rows(&join.relation);
        match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => left || right,
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => left,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right,
            JoinOperator::FullOuter(_) => left && right,
            _ => false,
        }
    })
}

/// Columns of Postgres' tables that are NULL in every row here.
const ALWAYS_NULL: [&str; 4] = ["reloptions", "attacl", "relacl", "ftoptions"];

fn never_has_rows(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { name, args: Some(args), .. }
            if name.0.last().is_some_and(|part| part.to_string().eq_ignore_ascii_case("unnest")) =>
        {
            matches!(args.args.as_slice(), [arg] if ALWAYS_NULL.iter().any(|column| arg.to_string().ends_with(column)))
        }
        TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
            let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase()).collect();
            let known = |last: &String| ALWAYS_EMPTY.contains(&last.as_str());
            match parts.as_slice() {
                [last] => known(last),
                [schema, last] => schema == "pg_catalog" && known(last),
                _ => false,
            }
        }
        TableFactor::NestedJoin { table_with_joins, .. } => gives_nothing(table_with_joins),
        _ => false,
    }
}

/// Replaces a query by one of the same columns without rows.
fn make_empty(query: &mut Query, items: Vec<SelectItem>) {
    let body = match first_select(&mut query.body) {
        Some(select) => select,
        None => return,
    };
    let column = |(i, item): (usize, SelectItem)| {
        let alias = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias,
            _ => Ident::with_quote('"', format!("__empty_{i}")),
        };
        let text = Expr::Cast { kind: CastKind::Cast, expr: Box::new(null()), data_type: DataType::Text, array: false, format: None };
        SelectItem::ExprWithAlias { expr: text, alias }
    };
    body.projection = items.into_iter().enumerate().map(column).collect();
    body.from.clear();
    body.distinct = None;
    body.having = None;
    body.selection = Some(Expr::value(Value::Boolean(false)));
    body.group_by = sqlparser::ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
    let select = body.clone();
    *query.body = SetExpr::Select(Box::new(select));
    query.order_by = None;
    query.limit_clause = None;
    query.fetch = None;
}

fn first_select(body: &mut SetExpr) -> Option<&mut sqlparser::ast::Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first_select(left),
        SetExpr::Query(query) => first_select(&mut query.body),
        SetExpr::Values(_) | SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => None,
    }
}
