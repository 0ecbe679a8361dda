//! The arguments of a window function, by role: positional or named, plain or in the standard's words.

use crate::error::{Error, sqlstate};
use crate::sql::sugar::named;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableFactor};

/// What a window function takes behind its table and its time column.
pub(super) struct Signature {
    /// The function.
    pub function: &'static str,
    /// Names of its lengths, in order; the first of each is the usual one.
    pub lengths: &'static [&'static [&'static str]],
    /// Takes an offset behind them.
    pub offset: bool,
    /// Takes a time zone behind that.
    pub timezone: bool,
    /// How it is written.
    pub usage: &'static str,
}

/// Every window function.
pub(super) const SIGNATURES: [Signature; 4] = [
    Signature {
        function: "tumble",
        lengths: &[&["size"]],
        offset: true,
        timezone: true,
        usage: "tumble(t, ts, INTERVAL '1 minute' [, INTERVAL 'offset'] [, 'time zone'])",
    },
    Signature {
        function: "hop",
        lengths: &[&["slide"], &["size"]],
        offset: true,
        timezone: false,
        usage: "hop(t, ts, INTERVAL 'slide', INTERVAL 'size' [, INTERVAL 'offset'])",
    },
    Signature {
        function: "cumulate",
        lengths: &[&["step"], &["max", "size", "max_size"]],
        offset: true,
        timezone: false,
        usage: "cumulate(t, ts, INTERVAL 'step', INTERVAL 'max' [, INTERVAL 'offset'])",
    },
    Signature { function: "session", lengths: &[&["gap"]], offset: false, timezone: false, usage: "session(t, ts, INTERVAL 'gap')" },
];

/// The arguments of a call, by role.
pub(super) struct Call {
    pub table: TableFactor,
    pub time: ast::Expr,
    /// As many as the signature has.
    pub lengths: Vec<ast::Expr>,
    pub offset: Option<ast::Expr>,
    pub timezone: Option<ast::Expr>,
}

impl Call {
    /// Sorts arguments by role.
    ///
    /// Errors: `42883` with how the function is written.
    pub fn read(signature: &Signature, args: &[FunctionArg]) -> Result<Call, Error> {
        let function = signature.function;
        let wrong = |message: String| Error::new(sqlstate::UNDEFINED_FUNCTION, message).with_hint(format!("write {}", signature.usage));
        let usage = || wrong(format!("{function} does not take these arguments"));
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if named.is_empty() => positional.push(expr.clone()),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => named.push((name.value.to_lowercase(), expr.clone())),
                FunctionArg::ExprNamed { name: ast::Expr::Identifier(name), arg: FunctionArgExpr::Expr(expr), .. } => {
                    named.push((name.value.to_lowercase(), expr.clone()));
                }
                _ => return Err(usage()),
            }
        }
        let mut positional = positional.into_iter().peekable();
        let by_name = |names: &[&str], named: &mut Vec<(String, ast::Expr)>| {
            named.iter().position(|(name, _)| names.contains(&name.as_str())).map(|at| named.remove(at).1)
        };
        let data = positional.next().or_else(|| by_name(&["data"], &mut named));
        let time = positional.next().or_else(|| by_name(&["timecol"], &mut named));
        let (Some(data), Some(time)) = (data, time) else { return Err(usage()) };
        let time = descriptor(time).ok_or_else(usage)?;
        if matches!(time, ast::Expr::Interval(_)) {
            return Err(wrong(format!("the time column of {function} stands before its lengths")));
        }
        let known = |name: &str| {
            matches!(name, "data" | "timecol" | "offset" | "timezone") || signature.lengths.iter().any(|names| names.contains(&name))
        };
        if let Some((name, _)) = named.iter().find(|(name, _)| !known(name)) {
            return Err(wrong(format!("{function} has no argument '{name}'")));
        }
        let mut lengths = Vec::new();
        for names in signature.lengths {
            let length = positional.next().or_else(|| by_name(names, &mut named));
            lengths.push(length.ok_or_else(|| wrong(format!("{function} lacks its {}", names.first().unwrap_or(&"length"))))?);
        }
        let mut offset = by_name(&["offset"], &mut named);
        if offset.is_none() {
            offset = positional.next_if(|expr| !is_text(expr));
        }
        let timezone = positional.next_if(is_text).or_else(|| by_name(&["timezone"], &mut named));
        if let Some((name, _)) = named.first() {
            return Err(wrong(format!("{function} has its argument '{name}' twice")));
        }
        if positional.next().is_some() || (offset.is_some() && !signature.offset) {
            return Err(usage());
        }
        if timezone.is_some() && !signature.timezone {
            return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{function} windows in a time zone are not available"))
                .with_hint("tumble takes one: tumble(t, ts, INTERVAL '1 day', 'Europe/Berlin'); an offset moves the windows"));
        }
        Ok(Call { table: table(data).ok_or_else(usage)?, time, lengths, offset, timezone })
    }
}

fn is_text(expr: &ast::Expr) -> bool {
    text(expr).is_some()
}

/// The value of a text constant.
pub(super) fn text(expr: &ast::Expr) -> Option<&str> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The first argument as something that FROM takes: a name or a subquery.
fn table(expr: ast::Expr) -> Option<TableFactor> {
    let name = match expr {
        ast::Expr::Identifier(ident) => vec![ident],
        ast::Expr::CompoundIdentifier(idents) => idents,
        ast::Expr::Subquery(subquery) => {
            return Some(TableFactor::Derived { lateral: false, subquery, alias: None, sample: None });
        }
        _ => return None,
    };
    Some(named(ast::ObjectName::from(name), None, None))
}

/// `ts` out of `DESCRIPTOR(ts)` or `ts`.
fn descriptor(expr: ast::Expr) -> Option<ast::Expr> {
    let ast::Expr::Function(function) = expr else { return Some(expr) };
    if !function.name.to_string().eq_ignore_ascii_case("descriptor") {
        return None;
    }
    let ast::FunctionArguments::List(list) = function.args else { return None };
    match <[FunctionArg; 1]>::try_from(list.args) {
        Ok([FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))]) => Some(expr),
        _ => None,
    }
}
