//! Expression texts of a spec to typed expressions, each against its operator's input (PLAN-1).
//! SQL and YAML come together here: both doors' specs get their bound forms from this one place.

mod syntax;

use super::convert::{Converter, folded, literal_type};
use super::cursor::{self, Cursor};
use super::fault::planning;
use super::limit;
use super::place::Places;
use super::refuse;
use super::scope::{Scope, parser_options};
use crate::error::{Error, sqlstate};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr as Df;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use sqlparser::ast::{self, SelectItem};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::collections::BTreeMap;
use weir_planner::check::check;
use weir_planner::check::columns::{of_operator, unchecked};
use weir_planner::check::flow::Flow;
use weir_planner::check::graph::Graph;
use weir_planner::error::Fault;
use weir_planner::expr::{Aggregate, Expr, Literal, Name, Typed};
use weir_planner::schema::{Column as InputColumn, ColumnType, Schema};
use weir_planner::spec::{Expression, Horizon, JobSpec, Map, OperatorKind, Projection, Source, Window};

/// Binds every expression of a spec to its operator's input, in the order of the graph.
///
/// Errors: every expression that does not bind, each with its path. What lies behind one is
/// passed over.
pub fn bind_spec(spec: &mut JobSpec) -> Result<(), Vec<Fault>> {
    let bound = limit::on_deep_stack(|| Ok(bind_all(spec)));
    bound.unwrap_or_else(|error| Err(vec![Fault::new("internal", "", error.message)]))
}

fn bind_all(spec: &mut JobSpec) -> Result<(), Vec<Fault>> {
    let Some(graph) = Graph::of(spec) else {
        // Expressions have no input without a graph: the rules on graphs say what is wrong.
        let faults: Vec<Fault> =
            check(spec, spec.horizon.unwrap_or(Horizon::Local)).into_iter().filter(|fault| fault.code != "unbound").collect();
        return if faults.is_empty() { Err(vec![Fault::new("graph", "edges", "the edges do not make a graph")]) } else { Err(faults) };
    };
    let sources: BTreeMap<_, Source> = spec.sources.iter().map(|source| (source.operator_id.clone(), source.clone())).collect();
    let unchecked = unchecked(spec);
    let updates: Vec<bool> = (0..spec.operators.len()).map(|at| graph.updates(spec, at)).collect();
    let mut faults = Vec::new();
    let mut known = Flow::new(spec.operators.len());
    for &at in &graph.order {
        let Some(input) = known.input(&graph, at) else {
            if let (Some(true), Some(operator)) = (unchecked.get(at), spec.operators.get(at)) {
                self::syntax::check(&operator.kind, &format!("operators[{at}].config"), &mut faults);
            }
            continue;
        };
        let Some(operator) = spec.operators.get_mut(at) else { continue };
        // Nothing is known of columns that come from nowhere.
        if input.0.is_empty() && !matches!(operator.kind, OperatorKind::Source) {
            continue;
        }
        let path = format!("operators[{at}].config");
        let before = faults.len();
        match &mut operator.kind {
            OperatorKind::Source | OperatorKind::Top(_) | OperatorKind::Buffer(_) | OperatorKind::Union => {}
            OperatorKind::Sink | OperatorKind::Join(_) => {}
            OperatorKind::Map(map) => bind_map(map, &input, &path, &mut faults),
            OperatorKind::Window(window) => bind_window(window, &input, &path, &mut faults),
        }
        if faults.len() == before {
            let output = of_operator(&operator.kind, sources.get(&operator.id), &input, updates.get(at) == Some(&true));
            known.put(at, input, output.filter(|schema| !schema.0.is_empty()));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn bind_map(map: &mut Map, input: &Schema, path: &str, faults: &mut Vec<Fault>) {
    if let Some(filter) = &mut map.filter {
        bind(filter, format!("{path}.filter"), input, faults, |text| condition(text, input));
    }
    let mut project = Vec::with_capacity(map.project.len());
    for (at, mut expression) in std::mem::take(&mut map.project).into_iter().enumerate() {
        // Beside other columns `*` stands for those of the input, by name, as soon as they are known.
        if expression.sql.trim() == "*" {
            project.extend(input.0.iter().map(passed));
            continue;
        }
        bind(&mut expression, format!("{path}.project[{at}]"), input, faults, |text| projection(text, input));
        project.push(expression);
    }
    map.project = project;
}

/// A projection that gives a column on as it is.
fn passed(column: &InputColumn) -> Expression<Projection> {
    let value = Typed { expr: Expr::Column(column.name.clone()), ty: column.ty, nullable: column.nullable };
    Expression { sql: Name(&column.name).to_string(), bound: Some(Box::new(Projection { name: column.name.clone(), value })) }
}

fn bind_window(window: &mut Window, input: &Schema, path: &str, faults: &mut Vec<Fault>) {
    for (at, aggregate) in window.aggregates.iter_mut().enumerate() {
        let filter = aggregate.filter.clone();
        bind(&mut aggregate.expr, format!("{path}.aggregates[{at}].expr"), input, faults, |text| {
            let mut call = self::aggregate(text, input)?;
            if let Some(filter) = &filter {
                if call.filter.is_some() {
                    return Err(Error::new(sqlstate::SYNTAX_ERROR, "an aggregate has both FILTER (WHERE …) and filter")
                        .with_hint("leave one of them out"));
                }
                call.filter = Some(condition(filter, input)?.expr);
            }
            Ok(call)
        });
    }
    if window.having.is_some() {
        let output = of_operator(&OperatorKind::Window(window.clone()), None, input, false);
        if let (Some(having), Some(output)) = (&mut window.having, output) {
            bind(having, format!("{path}.having"), &output, faults, |text| condition(text, &output));
        }
    }
}

fn bind<T: Clone>(
    expression: &mut Expression<T>,
    path: String,
    input: &Schema,
    faults: &mut Vec<Fault>,
    bind: impl FnOnce(&str) -> Result<T, Error>,
) {
    match bind(&expression.sql) {
        Ok(bound) => expression.bound = Some(Box::new(bound)),
        Err(error) => {
            let mut fault = fault(&expression.sql, path, error);
            if fault.hint.is_empty() {
                let columns = input.0.iter().map(|column| column.name.as_str()).take(30).collect::<Vec<_>>().join(", ");
                fault.hint = format!("columns here: {columns}");
            }
            faults.push(fault);
        }
    }
}

/// Why an expression does not bind.
fn fault(text: &str, path: String, error: Error) -> Fault {
    // An expression is a text of its own here, not a part of a statement.
    let said = error.message.replace("the statement", "the expression");
    let at = error.position.filter(|at| *at > 1).map(|at| format!(", at character {at}")).unwrap_or_default();
    let fault = Fault::new("expression", path, format!("in '{}'{at}: {said}", crate::options::fit::shown(text)));
    error.hint.into_iter().fold(fault, |fault, hint| fault.with_hint(hint))
}

/// A scalar expression over the columns of `input`.
///
/// Errors: as Postgres would say them, with the place in `text`.
pub(crate) fn scalar(text: &str, input: &Schema) -> Result<Typed, Error> {
    let (places, expr) = parse(text, |parser| parser.parse_expr())?;
    let df = plan(expr, input, &places)?;
    converted(input, |converter| converter.typed(&df))
}

/// A scalar expression that gives BOOLEAN.
pub(crate) fn condition(text: &str, input: &Schema) -> Result<Typed, Error> {
    let typed = scalar(text, input)?;
    if typed.ty == ColumnType::Boolean {
        return Ok(typed);
    }
    Err(Error::new(sqlstate::DATATYPE_MISMATCH, format!("a condition gives BOOLEAN, this gives {}", typed.ty))
        .with_hint("write a comparison")
        .at(1))
}

/// `expr AS name`, or a column that keeps its name.
pub(crate) fn projection(text: &str, input: &Schema) -> Result<Projection, Error> {
    let (places, item) = parse(text, |parser| parser.parse_select_item())?;
    let (expr, name) = match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            let name = if alias.quote_style.is_some() { alias.value } else { alias.value.to_lowercase() };
            (expr, Some(name))
        }
        SelectItem::UnnamedExpr(expr) => (expr, None),
        _ => {
            return Err(Error::new(sqlstate::SYNTAX_ERROR, "a projection is 'expr AS name' or a column")
                .with_hint("leave project out to keep all columns")
                .at(1));
        }
    };
    let df = plan(expr, input, &places)?;
    let value = converted(input, |converter| converter.typed(&df))?;
    let name = match (name, &value.expr) {
        (Some(name), _) => name,
        (None, Expr::Column(column)) => column.clone(),
        (None, _) => {
            return Err(Error::new(sqlstate::SYNTAX_ERROR, "a projection that is not a column needs a name")
                .with_hint("write 'expr AS name'")
                .at(1));
        }
    };
    Ok(Projection { name, value })
}

/// `count(*)`, `sum(price) FILTER (WHERE …)`.
pub(crate) fn aggregate(text: &str, input: &Schema) -> Result<Aggregate, Error> {
    let (places, expr) = parse(text, |parser| parser.parse_expr())?;
    let df = plan(expr, input, &places)?;
    converted(input, |converter| converter.aggregate(&df))
}

pub(crate) fn parse<T>(text: &str, parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>) -> Result<(Places, T), Error> {
    limit::text(text)?;
    let places = Places::new(text);
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().map_err(|error| {
        let position = places.offset(error.location).unwrap_or(1);
        cursor::syntax(&ParserError::TokenizerError(error.message), &places, position)
    })?;
    let tokens: Vec<TokenWithSpan> = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    limit::depth(&tokens, &places)?;
    let parsed = Cursor::new(&tokens, &places).parse(&tokens, parse)?;
    Ok((places, parsed))
}

fn df_schema(input: &Schema) -> Result<DFSchema, Error> {
    DFSchema::try_from(input.to_arrow()).map_err(|error| Error::new(sqlstate::INTERNAL_ERROR, super::fault::plain(&error)))
}

/// Plans one expression over unqualified columns, with coercions made explicit.
fn plan(expr: ast::Expr, input: &Schema, places: &Places) -> Result<Df, Error> {
    refuse::check_expression(&expr, places)?;
    let schema = df_schema(input)?;
    let scope = Scope::empty();
    let planner = SqlToRel::new_with_options(&scope, parser_options());
    let planned = planner.sql_to_expr(expr, &schema, &mut PlannerContext::new());
    let coerced = planned.and_then(|df| df.rewrite(&mut TypeCoercionRewriter::new(&schema)));
    Ok(coerced.map_err(|error| planning(&error, places, 1))?.data)
}

fn converted<T>(input: &Schema, convert: impl FnOnce(&Converter<'_>) -> Result<T, Error>) -> Result<T, Error> {
    let schema = df_schema(input)?;
    let column = |column: &Column| Ok(Expr::Column(column.name.clone()));
    convert(&Converter { schema: &schema, column: &column }).map_err(|error| if error.position.is_none() { error.at(1) } else { error })
}

/// A constant expression as a value of a column's type, cast as an INSERT would.
///
/// Errors: `42804` when it is not constant, `22P02` and `22003` when it does not fit.
pub(crate) fn constant(expr: ast::Expr, ty: ColumnType, places: &Places) -> Result<Literal, Error> {
    if let Some(literal) = plain(&expr, ty) {
        return fitted(literal, ty);
    }
    let empty = Schema::default();
    let df = plan(expr, &empty, places)?;
    let typed = converted(&empty, |converter| converter.typed(&df)).map_err(|error| Error { position: None, ..error })?;
    let Expr::Literal(given) = typed.expr else {
        return Err(Error::new(sqlstate::DATATYPE_MISMATCH, "a constant is expected here").with_hint("write the value itself"));
    };
    fitted(given, ty)
}

/// A bare constant without planning it, since inline rows have many; a number for a DECIMAL keeps
/// its digits (C32).
fn plain(expr: &ast::Expr, ty: ColumnType) -> Option<Literal> {
    let number = |digits: &str| {
        if matches!(ty, ColumnType::Decimal { .. }) {
            return Some(Literal::Text(digits.to_owned()));
        }
        let whole = digits.parse().ok().map(Literal::BigInt);
        whole.or_else(|| digits.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Double))
    };
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => number(digits),
            ast::Value::SingleQuotedString(text) => Some(Literal::Text(text.clone())),
            ast::Value::Boolean(value) => Some(Literal::Boolean(*value)),
            ast::Value::Null => Some(Literal::Null(ty)),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match &**expr {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(digits, _) => number(&format!("-{digits}")),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// A constant cast to a column's type without loss.
fn fitted(given: Literal, ty: ColumnType) -> Result<Literal, Error> {
    let misfit = || Error::new("22P02", format!("{given} is not a value of type {ty}"));
    let cast = folded(&given, ty, false)?;
    let Expr::Literal(value) = cast else { return Err(misfit()) };
    // A number that loses digits on the way is not the number that was written.
    let exact = matches!(ty, ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt)
        && matches!(given, Literal::Double(_) | Literal::Decimal { .. } | Literal::Real(_));
    if exact && folded(&value, literal_type(&given), false)? != Expr::Literal(given.clone()) {
        return Err(misfit());
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
