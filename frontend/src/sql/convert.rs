//! DataFusion's typed expressions to the closed list that plans hold.
//!
//! Type coercion has run before: what is here has operands of fitting types. Casts of constants
//! are folded into constants, so that the printed text of a constant binds back to it, and long
//! AND and OR chains become balanced trees, so that their depth stays within what can be stored.

use crate::error::{Error, sqlstate};
use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr as Df, ExprSchemable, Operator, Volatility};
use weir_planner::expr::{BinaryOp, Expr, Literal, Typed};
use weir_planner::schema::ColumnType;

/// Deepest bound expression, counted in levels of its stored form: the readers of stored plans
/// take 128, and the plan around an expression needs some.
const STORED_DEPTH_MAX: usize = 100;
/// Most parts of one bound expression.
const PARTS_MAX: usize = 20_000;
/// Terms of an AND or OR that stay a plain chain.
const CHAIN_TERMS_MAX: usize = 16;

/// What columns stand for, and the types that go with them.
pub(crate) struct Converter<'a> {
    pub schema: &'a DFSchema,
    pub column: &'a dyn Fn(&Column) -> Result<Expr, Error>,
}

fn refused(what: &str) -> Error {
    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not available in a job"))
}

impl Converter<'_> {
    /// An expression with its type.
    ///
    /// Errors: `0A000` for what a job cannot compute, `54000` for one that is too deep, and
    /// constants that cannot be cast.
    pub fn typed(&self, df: &Df) -> Result<Typed, Error> {
        let expr = self.scalar(df)?;
        let found = df.get_type(self.schema).map_err(|error| internal(&error))?;
        let ty = match &expr {
            Expr::Literal(literal) => literal_type(literal),
            _ => column_type(&found).ok_or_else(|| {
                refused(&format!("a column of type {found}")).with_hint("cast it to a type that columns have, such as BIGINT or TEXT")
            })?,
        };
        let nullable = df.nullable(self.schema).map_err(|error| internal(&error))?;
        Ok(Typed { expr, ty, nullable })
    }

    /// An expression, checked for size.
    pub fn scalar(&self, df: &Df) -> Result<Expr, Error> {
        let expr = self.convert(df)?;
        if stored_depth(&expr) > STORED_DEPTH_MAX || parts(&expr) > PARTS_MAX {
            return Err(Error::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("an expression is too large: at most {} levels and {PARTS_MAX} parts are taken", STORED_DEPTH_MAX / 2),
            )
            .with_hint("compute a part of it in a job of its own, or use IN (…) and CASE instead of long chains"));
        }
        Ok(expr)
    }

    fn boxed(&self, df: &Df) -> Result<Box<Expr>, Error> {
        self.convert(df).map(Box::new)
    }

    fn convert(&self, df: &Df) -> Result<Expr, Error> {
        Ok(match df {
            Df::Alias(alias) => self.convert(&alias.expr)?,
            Df::Column(column) => (self.column)(column)?,
            Df::Literal(value, _) => Expr::Literal(literal(value)?),
            Df::BinaryExpr(binary) => match binary_op(binary.op) {
                Some(op @ (BinaryOp::And | BinaryOp::Or)) => self.chain(op, df)?,
                Some(op) => Expr::Binary { op, left: self.boxed(&binary.left)?, right: self.boxed(&binary.right)? },
                None => return Err(refused(&format!("the operator {}", binary.op))),
            },
            Df::Not(inner) => Expr::Not(self.boxed(inner)?),
            Df::Negative(inner) => negated(self.convert(inner)?)?,
            Df::IsNull(inner) => Expr::IsNull { expr: self.boxed(inner)?, negated: false },
            Df::IsNotNull(inner) => Expr::IsNull { expr: self.boxed(inner)?, negated: true },
            Df::IsTrue(inner) => self.is(inner, Some(true), false)?,
            Df::IsNotTrue(inner) => self.is(inner, Some(true), true)?,
            Df::IsFalse(inner) => self.is(inner, Some(false), false)?,
            Df::IsNotFalse(inner) => self.is(inner, Some(false), true)?,
            Df::IsUnknown(inner) => self.is(inner, None, false)?,
            Df::IsNotUnknown(inner) => self.is(inner, None, true)?,
            Df::Between(between) => {
                let (low, high, join) = match between.negated {
                    false => (BinaryOp::GtEq, BinaryOp::LtEq, BinaryOp::And),
                    true => (BinaryOp::Lt, BinaryOp::Gt, BinaryOp::Or),
                };
                let value = self.convert(&between.expr)?;
                if parts(&value) > PARTS_MAX {
                    return self.scalar(&between.expr);
                }
                let low = binary(low, value.clone(), self.convert(&between.low)?);
                binary(join, low, binary(high, value, self.convert(&between.high)?))
            }
            Df::Case(case) => Expr::Case {
                operand: case.expr.as_deref().map(|operand| self.boxed(operand)).transpose()?,
                branches: case
                    .when_then_expr
                    .iter()
                    .map(|(when, then)| Ok((self.convert(when)?, self.convert(then)?)))
                    .collect::<Result<_, Error>>()?,
                otherwise: case.else_expr.as_deref().map(|otherwise| self.boxed(otherwise)).transpose()?,
            },
            Df::Cast(cast) => self.cast(&cast.expr, cast.field.data_type(), false)?,
            Df::TryCast(cast) => self.cast(&cast.expr, cast.field.data_type(), true)?,
            Df::Like(like) => Expr::Like {
                expr: self.boxed(&like.expr)?,
                pattern: self.boxed(&like.pattern)?,
                escape: like.escape_char,
                case_insensitive: like.case_insensitive,
                negated: like.negated,
            },
            Df::InList(list) => Expr::InList {
                expr: self.boxed(&list.expr)?,
                list: list.list.iter().map(|item| self.convert(item)).collect::<Result<_, Error>>()?,
                negated: list.negated,
            },
            Df::ScalarFunction(call) => {
                let name = call.func.name();
                if call.func.signature().volatility == Volatility::Volatile {
                    return Err(refused(&format!("{name}()"))
                        .with_hint("a job gives the same rows again after a restart: use functions of the columns, or now()"));
                }
                let args = call.args.iter().map(|arg| self.convert(arg)).collect::<Result<_, Error>>()?;
                let function = Expr::Function { name: name.to_owned(), version: 1, args };
                // A result in a type that columns do not have, such as an unsigned number, is cast
                // to the one that holds it.
                let found = df.get_type(self.schema).map_err(|error| internal(&error))?;
                match column_type(&found) {
                    Some(ty) if ty.to_arrow() != found => Expr::Cast { expr: Box::new(function), to: ty, lenient: false },
                    _ => function,
                }
            }
            Df::SimilarTo(_) => return Err(refused("SIMILAR TO").with_hint("use LIKE or ~ with a regular expression")),
            Df::AggregateFunction(call) => {
                return Err(Error::new(sqlstate::GROUPING_ERROR, format!("the aggregate {} cannot stand here", call.func.name())));
            }
            Df::WindowFunction(_) => return Err(not_yet("OVER (…)")),
            Df::Exists(_) | Df::InSubquery(_) | Df::SetComparison(_) | Df::ScalarSubquery(_) | Df::OuterReferenceColumn(..) => {
                return Err(refused("a subquery in an expression").with_hint("put the subquery in FROM"));
            }
            Df::GroupingSet(_) => return Err(not_yet("GROUPING SETS, ROLLUP and CUBE")),
            Df::Placeholder(_) => return Err(refused("a parameter").with_hint("write the value into the statement")),
            Df::Unnest(_) => return Err(not_yet("unnest")),
            Df::ScalarVariable(..) | Df::HigherOrderFunction(_) | Df::Lambda(_) | Df::LambdaVariable(_) => {
                return Err(refused("this expression"));
            }
            #[expect(deprecated, reason = "DataFusion still has the variant")]
            Df::Wildcard { .. } => return Err(refused("* in an expression")),
        })
    }

    fn is(&self, inner: &Df, value: Option<bool>, negated: bool) -> Result<Expr, Error> {
        Ok(Expr::IsBoolean { expr: self.boxed(inner)?, value, negated })
    }

    /// All terms of a chain of one operator, without recursion into the chain itself.
    fn chain(&self, op: BinaryOp, df: &Df) -> Result<Expr, Error> {
        let (mut terms, mut open) = (Vec::new(), vec![df]);
        while let Some(next) = open.pop() {
            match next {
                Df::BinaryExpr(inner) if binary_op(inner.op) == Some(op) => {
                    open.push(&inner.right);
                    open.push(&inner.left);
                }
                // BETWEEN, or a column that stands for a chain, gives more terms of the same kind.
                term => terms.extend(flattened(op, self.convert(term)?)),
            }
        }
        Ok(joined(op, terms))
    }

    fn cast(&self, inner: &Df, to: &DataType, lenient: bool) -> Result<Expr, Error> {
        let expr = self.convert(inner)?;
        let target = column_type(to)
            .filter(|ty| ty.to_arrow() == *to || matches!(to, DataType::Utf8View | DataType::LargeUtf8 | DataType::BinaryView));
        let Some(target) = target else {
            // Coercion may ask for a type that columns do not have; a text or list type among
            // function arguments is the function's own affair.
            return match to {
                DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_) => Ok(expr),
                _ => Err(refused(&format!("a cast to {to}"))),
            };
        };
        if let Expr::Literal(constant) = &expr {
            return folded(constant, target, lenient);
        }
        let from = inner.get_type(self.schema).map_err(|error| internal(&error))?;
        if column_type(&from) == Some(target) {
            return Ok(expr);
        }
        Ok(Expr::Cast { expr: Box::new(expr), to: target, lenient })
    }
}

fn not_yet(what: &str) -> Error {
    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not available yet"))
}

fn internal(error: &datafusion::error::DataFusionError) -> Error {
    Error::new(sqlstate::DATATYPE_MISMATCH, super::fault::plain(error))
}

/// The column type that an Arrow type stands for.
pub(crate) fn column_type(ty: &DataType) -> Option<ColumnType> {
    match ty {
        DataType::Null => Some(ColumnType::Text),
        // Only UTC is a column type.
        DataType::Timestamp(_, Some(zone)) if !matches!(&**zone, "+00:00" | "UTC" | "Z") => None,
        ty => ColumnType::from_arrow(ty),
    }
}

pub(crate) fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Binary { op, left: Box::new(left), right: Box::new(right) }
}

/// The terms of a tree of one associative operator.
pub(crate) fn flattened(op: BinaryOp, expr: Expr) -> Vec<Expr> {
    let (mut terms, mut open) = (Vec::new(), vec![expr]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::Binary { op: found, left, right } if found == op => {
                open.push(*right);
                open.push(*left);
            }
            term => terms.push(term),
        }
    }
    terms
}

/// Terms under one associative operator: a chain from the left, or a balanced tree when long.
pub(crate) fn joined(op: BinaryOp, terms: Vec<Expr>) -> Expr {
    let mut terms = terms;
    if terms.len() > CHAIN_TERMS_MAX {
        let right = terms.split_off(terms.len() / 2);
        return binary(op, balanced(op, terms), balanced(op, right));
    }
    let mut terms = terms.into_iter();
    let first = terms.next().unwrap_or(Expr::Literal(Literal::Boolean(op == BinaryOp::And)));
    terms.fold(first, |left, right| binary(op, left, right))
}

fn balanced(op: BinaryOp, mut terms: Vec<Expr>) -> Expr {
    if terms.len() <= 2 {
        return joined(op, terms);
    }
    let right = terms.split_off(terms.len() / 2);
    binary(op, balanced(op, terms), balanced(op, right))
}

/// `-x`; of a constant, the constant with the other sign, as its text would be read.
fn negated(inner: Expr) -> Result<Expr, Error> {
    let out_of_range = || Error::new("22003", "a number is out of range");
    Ok(match inner {
        Expr::Literal(Literal::SmallInt(value)) => Expr::Literal(Literal::SmallInt(value.checked_neg().ok_or_else(out_of_range)?)),
        Expr::Literal(Literal::Integer(value)) => Expr::Literal(Literal::Integer(value.checked_neg().ok_or_else(out_of_range)?)),
        Expr::Literal(Literal::BigInt(value)) => Expr::Literal(Literal::BigInt(value.checked_neg().ok_or_else(out_of_range)?)),
        Expr::Literal(Literal::Real(value)) => Expr::Literal(Literal::Real(-value)),
        Expr::Literal(Literal::Double(value)) => Expr::Literal(Literal::Double(-value)),
        Expr::Literal(Literal::Decimal { unscaled, precision, scale }) => {
            let zero = unscaled.chars().all(|c| c == '0');
            let unscaled = match unscaled.strip_prefix('-') {
                Some(positive) => positive.to_owned(),
                None if zero => unscaled,
                None => format!("-{unscaled}"),
            };
            Expr::Literal(Literal::Decimal { unscaled, precision, scale })
        }
        Expr::Literal(Literal::Interval { months, days, nanos }) => {
            let parts = months.checked_neg().zip(days.checked_neg()).zip(nanos.checked_neg());
            let ((months, days), nanos) = parts.ok_or_else(out_of_range)?;
            Expr::Literal(Literal::Interval { months, days, nanos })
        }
        Expr::Literal(null @ Literal::Null(_)) => Expr::Literal(null),
        inner => Expr::Negate(Box::new(inner)),
    })
}

fn binary_op(op: Operator) -> Option<BinaryOp> {
    Some(match op {
        Operator::Eq => BinaryOp::Eq,
        Operator::NotEq => BinaryOp::NotEq,
        Operator::Lt => BinaryOp::Lt,
        Operator::LtEq => BinaryOp::LtEq,
        Operator::Gt => BinaryOp::Gt,
        Operator::GtEq => BinaryOp::GtEq,
        Operator::IsDistinctFrom => BinaryOp::IsDistinctFrom,
        Operator::IsNotDistinctFrom => BinaryOp::IsNotDistinctFrom,
        Operator::Plus => BinaryOp::Plus,
        Operator::Minus => BinaryOp::Minus,
        Operator::Multiply => BinaryOp::Multiply,
        Operator::Divide => BinaryOp::Divide,
        Operator::Modulo => BinaryOp::Modulo,
        Operator::And => BinaryOp::And,
        Operator::Or => BinaryOp::Or,
        Operator::StringConcat => BinaryOp::Concat,
        Operator::BitwiseAnd => BinaryOp::BitwiseAnd,
        Operator::BitwiseOr => BinaryOp::BitwiseOr,
        Operator::BitwiseXor => BinaryOp::BitwiseXor,
        Operator::BitwiseShiftLeft => BinaryOp::ShiftLeft,
        Operator::BitwiseShiftRight => BinaryOp::ShiftRight,
        Operator::RegexMatch => BinaryOp::RegexMatch,
        Operator::RegexIMatch => BinaryOp::RegexMatchInsensitive,
        Operator::RegexNotMatch => BinaryOp::RegexNotMatch,
        Operator::RegexNotIMatch => BinaryOp::RegexNotMatchInsensitive,
        _ => return None,
    })
}

mod aggregate;
mod constant;

pub(crate) use constant::{folded, literal, literal_type};

/// Levels of an expression's stored form.
fn stored_depth(expr: &Expr) -> usize {
    let (mut deepest, mut open) = (0, vec![(expr, 0)]);
    while let Some((expr, above)) = open.pop() {
        let level = above
            + match expr {
                Expr::Case { .. } => 4,
                Expr::Function { .. } | Expr::InList { .. } => 3,
                Expr::Not(_) | Expr::Negate(_) | Expr::Column(_) => 1,
                Expr::Literal(_)
                | Expr::Binary { .. }
                | Expr::IsNull { .. }
                | Expr::IsBoolean { .. }
                | Expr::Cast { .. }
                | Expr::Like { .. } => 2,
            };
        deepest = deepest.max(level);
        children(expr, &mut |child| open.push((child, level)));
    }
    deepest
}

/// Parts of an expression.
pub(crate) fn parts(expr: &Expr) -> usize {
    let (mut count, mut open) = (0, vec![expr]);
    while let Some(expr) = open.pop() {
        count += 1;
        children(expr, &mut |child| open.push(child));
    }
    count
}

/// Calls `each` with the direct parts of an expression.
pub(crate) fn children<'a>(expr: &'a Expr, each: &mut dyn FnMut(&'a Expr)) {
    match expr {
        Expr::Column(_) | Expr::Literal(_) => {}
        Expr::Binary { left, right, .. } => {
            each(left);
            each(right);
        }
        Expr::Not(expr) | Expr::Negate(expr) | Expr::IsNull { expr, .. } | Expr::IsBoolean { expr, .. } | Expr::Cast { expr, .. } => {
            each(expr)
        }
        Expr::Case { operand, branches, otherwise } => {
            operand.iter().chain(otherwise).for_each(|expr| each(expr));
            for (when, then) in branches {
                each(when);
                each(then);
            }
        }
        Expr::Like { expr, pattern, .. } => {
            each(expr);
            each(pattern);
        }
        Expr::InList { expr, list, .. } => {
            each(expr);
            list.iter().for_each(each);
        }
        Expr::Function { args, .. } => args.iter().for_each(each),
    }
}
