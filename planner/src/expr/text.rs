//! SQL text of bound expressions: what is printed binds back to an equal expression (JOB-3).
//!
//! Two rules make that hold. Constants whose type SQL cannot tell from their digits are written
//! as casts (`CAST(5 AS SMALLINT)`), which a binder folds back into the constant. And operands
//! are put in parentheses wherever the grammar's precedence is not plainly the same in every
//! dialect, so that the tree that is read is the tree that was printed.

use super::{Aggregate, BinaryOp, Expr, Literal, Order, Typed};
use crate::spec::Projection;
use crate::time::TimeUnit;
use std::fmt::{self, Write};

/// How tightly an expression's outermost operator binds; a primary never needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// `IS DISTINCT FROM` takes everything to its right, so it is lowest.
    Distinct,
    Or,
    And,
    Not,
    Comparison,
    Other,
    Sum,
    Product,
    Sign,
    Primary,
}

impl BinaryOp {
    /// The operator as SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Eq => "=",
            BinaryOp::NotEq => "<>",
            BinaryOp::Lt => "<",
            BinaryOp::LtEq => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::GtEq => ">=",
            BinaryOp::IsDistinctFrom => "IS DISTINCT FROM",
            BinaryOp::IsNotDistinctFrom => "IS NOT DISTINCT FROM",
            BinaryOp::Plus => "+",
            BinaryOp::Minus => "-",
            BinaryOp::Multiply => "*",
            BinaryOp::Divide => "/",
            BinaryOp::Modulo => "%",
            BinaryOp::And => "AND",
            BinaryOp::Or => "OR",
            BinaryOp::Concat => "||",
            BinaryOp::BitwiseAnd => "&",
            BinaryOp::BitwiseOr => "|",
            BinaryOp::BitwiseXor => "#",
            BinaryOp::ShiftLeft => "<<",
            BinaryOp::ShiftRight => ">>",
            BinaryOp::RegexMatch => "~",
            BinaryOp::RegexMatchInsensitive => "~*",
            BinaryOp::RegexNotMatch => "!~",
            BinaryOp::RegexNotMatchInsensitive => "!~*",
        }
    }

    fn level(self) -> Level {
        match self {
            BinaryOp::IsDistinctFrom | BinaryOp::IsNotDistinctFrom => Level::Distinct,
            BinaryOp::Or => Level::Or,
            BinaryOp::And => Level::And,
            BinaryOp::Eq
            | BinaryOp::NotEq
            | BinaryOp::Lt
            | BinaryOp::LtEq
            | BinaryOp::Gt
            | BinaryOp::GtEq
            | BinaryOp::RegexMatch
            | BinaryOp::RegexMatchInsensitive
            | BinaryOp::RegexNotMatch
            | BinaryOp::RegexNotMatchInsensitive => Level::Comparison,
            BinaryOp::Concat
            | BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRight => Level::Other,
            BinaryOp::Plus | BinaryOp::Minus => Level::Sum,
            BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo => Level::Product,
        }
    }

    /// The loosest level that may stand bare on the left and on the right.
    fn operand_levels(self) -> (Level, Level) {
        match self.level() {
            Level::Or => (Level::Or, Level::And),
            Level::And => (Level::And, Level::Not),
            Level::Sum => (Level::Sum, Level::Product),
            Level::Product => (Level::Product, Level::Sign),
            // A chain of the same operator reads from the left; mixed ones get parentheses.
            Level::Other => (Level::Sum, Level::Sum),
            Level::Distinct | Level::Not | Level::Comparison | Level::Sign | Level::Primary => (Level::Sum, Level::Sum),
        }
    }
}

impl Expr {
    fn level(&self) -> Level {
        match self {
            Expr::Binary { op, .. } => op.level(),
            Expr::Not(_) => Level::Not,
            Expr::Negate(_) => Level::Sign,
            Expr::IsNull { .. } | Expr::IsBoolean { .. } | Expr::Like { .. } | Expr::InList { .. } => Level::Comparison,
            Expr::Literal(literal) if literal.has_sign() => Level::Sign,
            Expr::Literal(_) | Expr::Column(_) | Expr::Cast { .. } | Expr::Case { .. } | Expr::Function { .. } => Level::Primary,
        }
    }
}

impl Literal {
    fn has_sign(&self) -> bool {
        match self {
            Literal::BigInt(value) => *value < 0,
            Literal::Double(value) => value.is_sign_negative(),
            Literal::Null(_)
            | Literal::Boolean(_)
            | Literal::SmallInt(_)
            | Literal::Integer(_)
            | Literal::Real(_)
            | Literal::Decimal { .. }
            | Literal::Text(_)
            | Literal::Bytea(_)
            | Literal::Date(_)
            | Literal::Timestamp { .. }
            | Literal::Interval { .. } => false,
        }
    }
}

/// Prints `expr`, in parentheses when it binds looser than `loosest`.
fn operand(f: &mut fmt::Formatter<'_>, expr: &Expr, loosest: Level) -> fmt::Result {
    if expr.level() < loosest { write!(f, "({expr})") } else { write!(f, "{expr}") }
}

fn list(f: &mut fmt::Formatter<'_>, items: &[Expr]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match self {
            Expr::Column(name) => write!(f, "{}", Name(name)),
            Expr::Literal(literal) => write!(f, "{literal}"),
            Expr::Binary { op, left, right } => {
                let (mut loosest_left, loosest_right) = op.operand_levels();
                if matches!(&**left, Expr::Binary { op: inner, .. } if inner == op && op.level() == Level::Other) {
                    loosest_left = Level::Other;
                }
                operand(f, left, loosest_left)?;
                write!(f, " {} ", op.symbol())?;
                operand(f, right, loosest_right)
            }
            Expr::Not(inner) => {
                f.write_str("NOT ")?;
                operand(f, inner, Level::Comparison)
            }
            Expr::Negate(inner) => {
                f.write_str("-")?;
                operand(f, inner, Level::Primary)
            }
            Expr::IsNull { expr, negated } => {
                operand(f, expr, Level::Sum)?;
                write!(f, " IS {}NULL", not(*negated))
            }
            Expr::IsBoolean { expr, value, negated } => {
                operand(f, expr, Level::Sum)?;
                let word = match value {
                    Some(true) => "TRUE",
                    Some(false) => "FALSE",
                    None => "UNKNOWN",
                };
                write!(f, " IS {}{word}", not(*negated))
            }
            Expr::Cast { expr, to, lenient } => write!(f, "{}({expr} AS {to})", if *lenient { "TRY_CAST" } else { "CAST" }),
            Expr::Case { operand, branches, otherwise } => {
                f.write_str("CASE")?;
                if let Some(operand) = operand {
                    write!(f, " {operand}")?;
                }
                for (when, then) in branches {
                    write!(f, " WHEN {when} THEN {then}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                f.write_str(" END")
            }
            Expr::Like { expr, pattern, escape, case_insensitive, negated } => {
                operand(f, expr, Level::Sum)?;
                write!(f, " {}{} ", not(*negated), if *case_insensitive { "ILIKE" } else { "LIKE" })?;
                operand(f, pattern, Level::Sum)?;
                match escape {
                    Some(escape) => write!(f, " ESCAPE {}", Quoted(&escape.to_string())),
                    None => Ok(()),
                }
            }
            Expr::InList { expr, list: items, negated } => {
                operand(f, expr, Level::Sum)?;
                write!(f, " {}IN (", not(*negated))?;
                list(f, items)?;
                f.write_str(")")
            }
            Expr::Function { name, args, .. } => {
                write!(f, "{}(", Name(name))?;
                list(f, args)?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Null(ty) => write!(f, "CAST(NULL AS {ty})"),
            Literal::Boolean(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            Literal::SmallInt(value) => write!(f, "CAST({value} AS SMALLINT)"),
            Literal::Integer(value) => write!(f, "CAST({value} AS INTEGER)"),
            Literal::BigInt(value) => write!(f, "{value}"),
            Literal::Real(value) => {
                // The shortest text of a REAL is read as a DOUBLE first; where that rounds to
                // another REAL, its exact DOUBLE is written.
                let exact = f64::from(*value);
                let short: f64 = format!("{value:?}").parse().unwrap_or(exact);
                #[allow(clippy::cast_possible_truncation, reason = "this is the rounding under test")]
                if short as f32 == *value { write!(f, "CAST({short:?} AS REAL)") } else { write!(f, "CAST({exact:?} AS REAL)") }
            }
            Literal::Double(value) if value.is_finite() => write!(f, "{value:?}"),
            Literal::Double(value) => write!(f, "CAST('{value:?}' AS DOUBLE PRECISION)"),
            Literal::Decimal { unscaled, precision, scale } => {
                write!(f, "CAST('{}' AS DECIMAL({precision},{scale}))", with_point(unscaled, *scale))
            }
            Literal::Text(text) => write!(f, "{}", Quoted(text)),
            Literal::Bytea(bytes) => {
                f.write_str("X'")?;
                for byte in bytes {
                    write!(f, "{byte:02X}")?;
                }
                f.write_str("'")
            }
            Literal::Date(days) => match civil(i64::from(*days)) {
                Some((year, month, day)) => write!(f, "CAST('{year:04}-{month:02}-{day:02}' AS DATE)"),
                None => write!(f, "CAST(CAST({days} AS INTEGER) AS DATE)"),
            },
            Literal::Timestamp { value, unit, zoned } => timestamp(f, *value, *unit, *zoned),
            Literal::Interval { months, days, nanos } => interval(f, *months, *days, *nanos),
        }
    }
}

/// Digits with a decimal point `scale` places from the right.
fn with_point(unscaled: &str, scale: i8) -> String {
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |digits| ("-", digits));
    let scale = usize::try_from(scale).unwrap_or(0);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Year, month and day of a count of days since 1970, for years that ISO text can write.
///
/// The year is taken to begin in March, so that the leap day is its last day: then a 400-year
/// era has 146,097 days, and month lengths follow one linear rule.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    const ERA_DAYS: i64 = 146_097;
    let since_march_0000 = days.checked_add(719_468)?;
    let era = since_march_0000.div_euclid(ERA_DAYS);
    let day_of_era = since_march_0000.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (1..=9_999).contains(&year).then_some((year, month, day))
}

fn timestamp(f: &mut fmt::Formatter<'_>, value: i64, unit: TimeUnit, zoned: bool) -> fmt::Result {
    let ty = crate::schema::ColumnType::Timestamp { unit, zoned };
    let (per_second, digits) = match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    };
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let Some((year, month, day)) = civil(days) else { return write!(f, "CAST({value} AS {ty})") };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    write!(f, "CAST('{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")?;
    if digits > 0 {
        write!(f, ".{fraction:0digits$}")?;
    }
    write!(f, "{}' AS {ty})", if zoned { "Z" } else { "" })
}

fn interval(f: &mut fmt::Formatter<'_>, months: i32, days: i32, nanos: i64) -> fmt::Result {
    let mut parts = Vec::new();
    if months != 0 {
        parts.push(format!("{months} months"));
    }
    if days != 0 {
        parts.push(format!("{days} days"));
    }
    // The largest unit that holds the time part exactly, so that `INTERVAL '10 seconds'` stays one.
    const UNITS: [(i64, &str); 6] = [
        (3_600_000_000_000, "hours"),
        (60_000_000_000, "minutes"),
        (1_000_000_000, "seconds"),
        (1_000_000, "milliseconds"),
        (1_000, "microseconds"),
        (1, "nanoseconds"),
    ];
    if nanos != 0 || parts.is_empty() {
        let exact = UNITS.iter().find(|(size, _)| nanos != 0 && nanos % size == 0);
        match exact {
            Some((size, unit)) => parts.push(format!("{} {unit}", nanos / size)),
            None => parts.push("0 seconds".to_owned()),
        }
    }
    write!(f, "INTERVAL '{}'", parts.join(" "))
}

impl fmt::Display for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

impl fmt::Display for Projection {
    /// `expr AS name`; a column that keeps its name stands alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value.expr {
            Expr::Column(column) if *column == self.name => write!(f, "{}", Name(column)),
            expr => write!(f, "{expr} AS {}", Name(&self.name)),
        }
    }
}

impl Aggregate {
    /// The call without its `FILTER` clause: `count(*)`, `sum(price)`.
    pub fn call(&self) -> String {
        let arguments = if self.arguments.is_empty() { "*".to_owned() } else { listed(&self.arguments) };
        let distinct = if self.distinct { "DISTINCT " } else { "" };
        let order = if self.order_by.is_empty() { String::new() } else { format!(" ORDER BY {}", listed(&self.order_by)) };
        format!("{}({distinct}{arguments}{order})", self.function.name())
    }
}

fn listed(items: &[impl fmt::Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.descending { " DESC" } else { "" };
        let nulls = match (self.descending, self.nulls_first) {
            (true, true) | (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
        };
        write!(f, "{}{direction}{nulls}", self.by)
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call())?;
        match &self.filter {
            Some(filter) => write!(f, " FILTER (WHERE {filter})"),
            None => Ok(()),
        }
    }
}

/// Text as a SQL string constant.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('\'')?;
        for c in self.0.chars() {
            if c == '\'' {
                f.write_char('\'')?;
            }
            f.write_char(c)?;
        }
        f.write_char('\'')
    }
}

/// A name as SQL writes it: bare when that folds back to the same name, else in double quotes.
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        let first = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
        let simple = first && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if simple && RESERVED.binary_search(&self.0).is_err() {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// Words that do not stand for a column or plain function when written bare, sorted.
const RESERVED: [&str; 112] = [
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "between", "both", "by", "case", "cast", "ceil",
    "check", "collate", "column", "connect_by_root", "constraint", "convert", "create", "cross", "cube", "current_catalog", "current_date",
    "current_role", "current_time", "current_timestamp", "current_user", "cursor", "date", "datetime", "default", "desc", "distinct", "do",
    "else", "end", "except", "exists", "extract", "false", "fetch", "filter", "floor", "for", "from", "full", "grant", "group", "grouping",
    "having", "ilike", "in", "inner", "intersect", "interval", "into", "is", "isnull", "join", "lambda", "lateral", "left", "like",
    "limit", "listagg", "localtime", "localtimestamp", "map", "match", "natural", "not", "notnull", "null", "offset", "on", "or", "order",
    "outer", "over", "overlay", "partition", "position", "prior", "regexp", "right", "rlike", "rollup", "safe_cast", "select",
    "session_user", "set", "sets", "some", "struct", "substr", "substring", "table", "then", "time", "timestamp", "to", "trim", "true",
    "try_cast", "union", "unknown", "user", "using", "when",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;

    fn column(name: &str) -> Expr {
        Expr::Column(name.to_owned())
    }

    fn number(value: i64) -> Expr {
        Expr::Literal(Literal::BigInt(value))
    }

    fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
        Expr::Binary { op, left: Box::new(left), right: Box::new(right) }
    }

    #[test]
    fn reserved_words_are_sorted_for_the_search() {
        assert!(RESERVED.windows(2).all(|pair| pair[0] < pair[1]), "{RESERVED:?}");
    }

    #[test]
    fn parentheses_appear_only_where_the_tree_needs_them() {
        use BinaryOp::{And, Concat, Gt, IsDistinctFrom, Minus, Multiply, Or, Plus};
        let sum = binary(Plus, column("a"), column("b"));
        assert_eq!(binary(Multiply, sum.clone(), number(2)).to_string(), "(a + b) * 2");
        assert_eq!(binary(Plus, binary(Multiply, column("a"), number(2)), column("b")).to_string(), "a * 2 + b");
        assert_eq!(binary(Minus, column("a"), binary(Minus, column("b"), number(-1))).to_string(), "a - (b - -1)");
        let greater = binary(Gt, sum, number(0));
        let either = binary(Or, greater.clone(), Expr::Not(Box::new(greater.clone())));
        assert_eq!(either.to_string(), "a + b > 0 OR NOT a + b > 0");
        assert_eq!(binary(And, either.clone(), greater.clone()).to_string(), "(a + b > 0 OR NOT a + b > 0) AND a + b > 0");
        assert_eq!(
            binary(And, binary(IsDistinctFrom, column("a"), greater), either).to_string().find("(a IS DISTINCT FROM (a + b > 0)) AND"),
            Some(0)
        );
        let ab = binary(Concat, column("a"), column("b"));
        assert_eq!(binary(Concat, ab.clone(), ab).to_string(), "a || b || (a || b)");
        assert_eq!(Expr::Negate(Box::new(Expr::Negate(Box::new(column("a"))))).to_string(), "-(-a)");
    }

    #[test]
    fn constants_say_their_type() {
        let cases = [
            (Literal::Text("it's".into()), "'it''s'"),
            (Literal::Bytea(vec![0, 255]), "X'00FF'"),
            (Literal::Decimal { unscaled: "-5".into(), precision: 6, scale: 3 }, "CAST('-0.005' AS DECIMAL(6,3))"),
            (Literal::Date(-1), "CAST('1969-12-31' AS DATE)"),
            (Literal::Date(11_016), "CAST('2000-02-29' AS DATE)"),
            (
                Literal::Timestamp { value: -1, unit: TimeUnit::Millisecond, zoned: false },
                "CAST('1969-12-31 23:59:59.999' AS TIMESTAMP(3))",
            ),
            (
                Literal::Timestamp { value: 1_700_000_000, unit: TimeUnit::Second, zoned: true },
                "CAST('2023-11-14 22:13:20Z' AS TIMESTAMPTZ(0))",
            ),
            (
                Literal::Timestamp { value: i64::MAX, unit: TimeUnit::Millisecond, zoned: false },
                "CAST(9223372036854775807 AS TIMESTAMP(3))",
            ),
            (Literal::Interval { months: 1, days: -2, nanos: 60_000_000_000 }, "INTERVAL '1 months -2 days 1 minutes'"),
            (Literal::Interval { months: 0, days: 0, nanos: 0 }, "INTERVAL '0 seconds'"),
            (Literal::Real(0.1), "CAST(0.1 AS REAL)"),
            (Literal::Double(1e300), "1e300"),
            (Literal::Double(f64::NAN), "CAST('NaN' AS DOUBLE PRECISION)"),
            (Literal::Null(ColumnType::SmallInt), "CAST(NULL AS SMALLINT)"),
        ];
        for (literal, text) in cases {
            assert_eq!(literal.to_string(), text);
        }
    }

    #[test]
    fn names_are_quoted_when_bare_they_would_be_another_thing() {
        for (name, text) in
            [("a1", "a1"), ("A", "\"A\""), ("timestamp", "\"timestamp\""), ("a\"b", "\"a\"\"b\""), ("1a", "\"1a\""), ("", "\"\"")]
        {
            assert_eq!(Name(name).to_string(), text);
        }
    }
}
