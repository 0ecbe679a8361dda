//! Expressions: how each kind binds, and that what is printed binds back (JOB-3).

use super::{aggregate, bind_spec, condition, projection, scalar};
use crate::error::sqlstate;
use crate::sql::functions::FUNCTIONS;
use crate::sql::limit::on_deep_stack;
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use weir_planner::expr::{Expr, Name};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::time::TimeUnit;

fn stamp(unit: TimeUnit, zoned: bool) -> ColumnType {
    ColumnType::Timestamp { unit, zoned }
}

fn schema() -> Schema {
    let decimal = ColumnType::Decimal { precision: 10, scale: 2 };
    let columns = [
        ("b", ColumnType::Boolean),
        ("s", ColumnType::SmallInt),
        ("i", ColumnType::Integer),
        ("n", ColumnType::BigInt),
        ("r", ColumnType::Real),
        ("d", ColumnType::Double),
        ("m", decimal),
        ("t", ColumnType::Text),
        ("y", ColumnType::Bytea),
        ("day", ColumnType::Date),
        ("ts", stamp(TimeUnit::Millisecond, false)),
        ("us", stamp(TimeUnit::Microsecond, false)),
        ("tz", stamp(TimeUnit::Microsecond, true)),
        ("Mixed", ColumnType::Text),
    ];
    Schema(columns.into_iter().map(|(name, ty)| Column { name: name.to_owned(), ty, nullable: name != "n" }).collect())
}

/// Every line: what is written, what it binds to as text, its type.
const CASES: &[(&str, &str, &str)] = &[
    // Columns and names.
    ("n", "n", "BIGINT"),
    ("N", "n", "BIGINT"),
    ("\"Mixed\"", "\"Mixed\"", "TEXT"),
    ("(n)", "n", "BIGINT"),
    // Constants.
    ("1", "1", "BIGINT"),
    ("-1", "-1", "BIGINT"),
    ("- 1", "-1", "BIGINT"),
    ("+1", "1", "BIGINT"),
    ("9223372036854775807", "9223372036854775807", "BIGINT"),
    ("-9223372036854775808", "-9223372036854775808", "BIGINT"),
    ("1.5", "1.5", "DOUBLE PRECISION"),
    ("-1.5", "-1.5", "DOUBLE PRECISION"),
    ("1e20", "1e20", "DOUBLE PRECISION"),
    (".5", "0.5", "DOUBLE PRECISION"),
    ("'it''s'", "'it''s'", "TEXT"),
    ("''", "''", "TEXT"),
    ("'a\\b'", "'a\\b'", "TEXT"),
    ("TRUE", "TRUE", "BOOLEAN"),
    ("NULL", "CAST(NULL AS TEXT)", "TEXT"),
    ("X'00ff'", "X'00FF'", "BYTEA"),
    ("DATE '2024-02-29'", "CAST('2024-02-29' AS DATE)", "DATE"),
    ("TIMESTAMP '2024-01-02 03:04:05.678'", "CAST('2024-01-02 03:04:05.678000' AS TIMESTAMP(6))", "TIMESTAMP(6)"),
    ("TIMESTAMP(3) '2024-01-02 03:04:05.678'", "CAST('2024-01-02 03:04:05.678' AS TIMESTAMP(3))", "TIMESTAMP(3)"),
    ("CAST('2024-01-02T03:04:05+02:00' AS TIMESTAMPTZ(3))", "CAST('2024-01-02 01:04:05.000Z' AS TIMESTAMPTZ(3))", "TIMESTAMPTZ(3)"),
    ("CAST('1969-12-31 23:59:59.999' AS TIMESTAMP(3))", "CAST('1969-12-31 23:59:59.999' AS TIMESTAMP(3))", "TIMESTAMP(3)"),
    ("INTERVAL '1 minute'", "INTERVAL '1 minutes'", "INTERVAL"),
    ("INTERVAL '90' SECOND", "INTERVAL '90 seconds'", "INTERVAL"),
    ("INTERVAL '1 month 2 days'", "INTERVAL '1 months 2 days'", "INTERVAL"),
    ("INTERVAL '1.5 seconds'", "INTERVAL '1500 milliseconds'", "INTERVAL"),
    ("-INTERVAL '1 hour'", "INTERVAL '-1 hours'", "INTERVAL"),
    // Casts.
    ("CAST(1 AS SMALLINT)", "CAST(1 AS SMALLINT)", "SMALLINT"),
    ("1::INT", "CAST(1 AS INTEGER)", "INTEGER"),
    ("1.5::REAL", "CAST(1.5 AS REAL)", "REAL"),
    ("'1.50'::DECIMAL(5,2)", "CAST('1.50' AS DECIMAL(5,2))", "DECIMAL(5,2)"),
    ("CAST('-0.05' AS NUMERIC(10,2))", "CAST('-0.05' AS DECIMAL(10,2))", "DECIMAL(10,2)"),
    ("NULL::INT", "CAST(NULL AS INTEGER)", "INTEGER"),
    ("'t'::BOOLEAN", "TRUE", "BOOLEAN"),
    ("CAST(n AS INTEGER)", "CAST(n AS INTEGER)", "INTEGER"),
    ("CAST(n AS BIGINT)", "n", "BIGINT"),
    ("n::TEXT", "CAST(n AS TEXT)", "TEXT"),
    ("n::VARCHAR(10)", "CAST(n AS TEXT)", "TEXT"),
    ("t::DOUBLE PRECISION", "CAST(t AS DOUBLE PRECISION)", "DOUBLE PRECISION"),
    ("t::FLOAT8", "CAST(t AS DOUBLE PRECISION)", "DOUBLE PRECISION"),
    ("TRY_CAST(t AS BIGINT)", "TRY_CAST(t AS BIGINT)", "BIGINT"),
    ("TRY_CAST('x' AS BIGINT)", "CAST(NULL AS BIGINT)", "BIGINT"),
    ("CAST(ts AS TIMESTAMP)", "CAST(ts AS TIMESTAMP(6))", "TIMESTAMP(6)"),
    ("CAST(us AS TIMESTAMP(0))", "CAST(us AS TIMESTAMP(0))", "TIMESTAMP(0)"),
    ("CAST('NaN' AS DOUBLE PRECISION)", "CAST('NaN' AS DOUBLE PRECISION)", "DOUBLE PRECISION"),
    // Arithmetic and its coercions.
    ("n + 1", "n + 1", "BIGINT"),
    ("i + 1", "CAST(i AS BIGINT) + 1", "BIGINT"),
    ("s + i", "CAST(s AS INTEGER) + i", "INTEGER"),
    ("n * 0.5", "CAST(n AS DOUBLE PRECISION) * 0.5", "DOUBLE PRECISION"),
    ("n - -1", "n - -1", "BIGINT"),
    ("(n + 1) * 2", "(n + 1) * 2", "BIGINT"),
    ("n + 1 * 2", "n + 1 * 2", "BIGINT"),
    ("n - (n - 1)", "n - (n - 1)", "BIGINT"),
    ("n / 2 % 3", "n / 2 % 3", "BIGINT"),
    ("-n", "-n", "BIGINT"),
    ("-(-n)", "-(-n)", "BIGINT"),
    ("-(n + 1)", "-(n + 1)", "BIGINT"),
    ("n & 7 | 8", "(n & 7) | 8", "BIGINT"),
    ("n # 3", "n # 3", "BIGINT"),
    ("n << 2 >> 1", "(n << 2) >> 1", "BIGINT"),
    ("r + d", "CAST(r AS DOUBLE PRECISION) + d", "DOUBLE PRECISION"),
    ("m + m", "m + m", "DECIMAL(11,2)"),
    // Comparison and logic.
    ("n = 1", "n = 1", "BOOLEAN"),
    ("n <> 1", "n <> 1", "BOOLEAN"),
    ("n != 1", "n <> 1", "BOOLEAN"),
    ("i < n", "CAST(i AS BIGINT) < n", "BOOLEAN"),
    ("t = 'x'", "t = 'x'", "BOOLEAN"),
    ("NOT b", "NOT b", "BOOLEAN"),
    ("NOT n = 1", "NOT n = 1", "BOOLEAN"),
    ("b AND n > 1 OR NOT b", "b AND n > 1 OR NOT b", "BOOLEAN"),
    ("b AND (n > 1 OR b)", "b AND (n > 1 OR b)", "BOOLEAN"),
    ("b AND (b AND b)", "b AND b AND b", "BOOLEAN"),
    ("n IS NULL", "n IS NULL", "BOOLEAN"),
    ("n + 1 IS NOT NULL", "n + 1 IS NOT NULL", "BOOLEAN"),
    ("(n = 1) IS NULL", "(n = 1) IS NULL", "BOOLEAN"),
    ("b IS TRUE", "b IS TRUE", "BOOLEAN"),
    ("b IS NOT TRUE", "b IS NOT TRUE", "BOOLEAN"),
    ("b IS FALSE", "b IS FALSE", "BOOLEAN"),
    ("b IS UNKNOWN", "b IS UNKNOWN", "BOOLEAN"),
    ("b IS NOT UNKNOWN", "b IS NOT UNKNOWN", "BOOLEAN"),
    ("n IS DISTINCT FROM 1", "n IS DISTINCT FROM 1", "BOOLEAN"),
    ("(n IS DISTINCT FROM 1) AND b", "(n IS DISTINCT FROM 1) AND b", "BOOLEAN"),
    ("n IS NOT DISTINCT FROM 1", "n IS NOT DISTINCT FROM 1", "BOOLEAN"),
    ("n BETWEEN 1 AND 5", "n >= 1 AND n <= 5", "BOOLEAN"),
    ("n NOT BETWEEN 1 AND 5", "n < 1 OR n > 5", "BOOLEAN"),
    ("b AND n BETWEEN 1 AND 5", "b AND n >= 1 AND n <= 5", "BOOLEAN"),
    ("n IN (1, 2)", "n IN (1, 2)", "BOOLEAN"),
    ("n NOT IN (1, 2)", "n NOT IN (1, 2)", "BOOLEAN"),
    ("t IN ('a')", "t IN ('a')", "BOOLEAN"),
    ("t LIKE 'a%'", "t LIKE 'a%'", "BOOLEAN"),
    ("t NOT LIKE 'a%'", "t NOT LIKE 'a%'", "BOOLEAN"),
    ("t ILIKE 'A%'", "t ILIKE 'A%'", "BOOLEAN"),
    ("t LIKE 'a!%' ESCAPE '!'", "t LIKE 'a!%' ESCAPE '!'", "BOOLEAN"),
    ("t ~ '^a'", "t ~ '^a'", "BOOLEAN"),
    ("t !~* 'b$'", "t !~* 'b$'", "BOOLEAN"),
    // CASE, functions and special forms.
    ("CASE WHEN n > 1 THEN 'x' ELSE 'y' END", "CASE WHEN n > 1 THEN 'x' ELSE 'y' END", "TEXT"),
    ("CASE n WHEN 1 THEN 2 END", "CASE n WHEN 1 THEN 2 END", "BIGINT"),
    ("CASE WHEN b THEN 1 ELSE 1.5 END", "CASE WHEN b THEN 1.0 ELSE 1.5 END", "DOUBLE PRECISION"),
    ("CASE WHEN b THEN i ELSE NULL END", "CASE WHEN b THEN i ELSE CAST(NULL AS INTEGER) END", "INTEGER"),
    ("t || 'x'", "t || 'x'", "TEXT"),
    ("t || 'x' || t", "t || 'x' || t", "TEXT"),
    ("upper(t)", "upper(t)", "TEXT"),
    ("UPPER(t)", "upper(t)", "TEXT"),
    ("length(t)", "character_length(t)", "INTEGER"),
    ("substring(t FROM 2 FOR 3)", "\"substr\"(t, 2, 3)", "TEXT"),
    ("substr(t, 2)", "\"substr\"(t, 2)", "TEXT"),
    ("trim(t)", "btrim(t)", "TEXT"),
    ("position('a' IN t)", "strpos(t, 'a')", "INTEGER"),
    ("left(t, 2)", "\"left\"(t, 2)", "TEXT"),
    ("coalesce(n, 0)", "coalesce(n, 0)", "BIGINT"),
    ("nullif(n, 0)", "nullif(n, 0)", "BIGINT"),
    ("extract(hour FROM ts)", "date_part('HOUR', ts)", "INTEGER"),
    ("date_part('hour', ts)", "date_part('hour', ts)", "INTEGER"),
    ("date_trunc('hour', ts)", "date_trunc('hour', ts)", "TIMESTAMP(3)"),
    ("ts + INTERVAL '1 day'", "ts + INTERVAL '1 days'", "TIMESTAMP(3)"),
    ("ts - INTERVAL '1 second'", "ts - INTERVAL '1 seconds'", "TIMESTAMP(3)"),
    ("now()", "now()", "TIMESTAMP(9)"),
    ("ts < us", "CAST(ts AS TIMESTAMP(6)) < us", "BOOLEAN"),
    ("md5(t)", "CAST(md5(t) AS TEXT)", "TEXT"),
    ("regexp_replace(t, 'a', 'b')", "regexp_replace(t, 'a', 'b')", "TEXT"),
];

#[test]
fn expressions_bind_as_listed_and_their_text_binds_back() {
    let schema = schema();
    let mut wrong = Vec::new();
    for (text, printed, ty) in CASES {
        match scalar(text, &schema) {
            Err(error) => wrong.push(format!("{text}: {error:?}")),
            Ok(bound) => {
                let (got, got_ty) = (bound.to_string(), bound.ty.to_string());
                if (got.as_str(), got_ty.as_str()) != (*printed, *ty) {
                    wrong.push(format!("{text}: got {got} {got_ty}, want {printed} {ty}"));
                }
                match scalar(&got, &schema) {
                    Ok(again) if again == bound => {}
                    Ok(again) => wrong.push(format!("{text}: {got} binds back to {again:?}, not to {bound:?}")),
                    Err(error) => wrong.push(format!("{text}: {got} does not bind back: {error:?}")),
                }
            }
        }
    }
    assert!(CASES.len() > 100);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every line: what is written, SQLSTATE, position, a part of the message.
const REFUSED: &[(&str, &str, usize, &str)] = &[
    ("n +", sqlstate::SYNTAX_ERROR, 4, "end of the statement"),
    ("n n", sqlstate::SYNTAX_ERROR, 3, "'n'"),
    ("nn + 1", sqlstate::UNDEFINED_COLUMN, 1, "column 'nn' does not exist"),
    ("1 + nn", sqlstate::UNDEFINED_COLUMN, 5, "column 'nn' does not exist"),
    ("uper(t)", sqlstate::UNDEFINED_FUNCTION, 1, "function uper does not exist"),
    ("b AND upper(uper(t)) = 'x'", sqlstate::UNDEFINED_FUNCTION, 13, "function uper does not exist"),
    ("random()", sqlstate::FEATURE_NOT_SUPPORTED, 1, "random() is not available in a job"),
    ("uuid()", sqlstate::FEATURE_NOT_SUPPORTED, 1, "uuid() is not available in a job"),
    ("row_number() OVER ()", sqlstate::FEATURE_NOT_SUPPORTED, 1, "OVER"),
    ("n IN (SELECT 1)", sqlstate::FEATURE_NOT_SUPPORTED, 1, "subquery"),
    ("$1", sqlstate::FEATURE_NOT_SUPPORTED, 1, "parameter"),
    ("'x'::BIGINT", "22P02", 1, "'x' is not a value of type BIGINT"),
    ("18446744073709551615", "22003", 1, "out of range"),
    ("count(*)", sqlstate::GROUPING_ERROR, 1, "aggregate"),
    ("ts - ts", sqlstate::FEATURE_NOT_SUPPORTED, 1, "type"),
    ("t SIMILAR TO 'a'", sqlstate::FEATURE_NOT_SUPPORTED, 1, "SIMILAR"),
    ("t + 1", sqlstate::DATATYPE_MISMATCH, 1, "TEXT + BIGINT"),
    ("'unclosed", sqlstate::SYNTAX_ERROR, 1, "nterminated string"),
    ("[1, 2]", sqlstate::FEATURE_NOT_SUPPORTED, 1, "List"),
];

/// SQL-10: every refusal has a SQLSTATE and a place.
#[test]
fn wrong_expressions_are_refused_at_their_place() {
    let mut wrong = Vec::new();
    for (text, code, position, part) in REFUSED {
        match scalar(text, &schema()) {
            Ok(bound) => wrong.push(format!("{text}: bound to {bound}")),
            Err(error) if error.sqlstate == *code && error.position == Some(*position) && error.message.contains(part) => {}
            Err(error) => wrong.push(format!("{text}: {error:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// SQL-3: result types of aggregates, over any expression.
#[test]
fn aggregates_have_the_types_of_the_specification() {
    let cases = [
        ("count(*)", "count(*)", "BIGINT"),
        ("count(t)", "count(t)", "BIGINT"),
        ("COUNT(n + 1)", "count(n + 1)", "BIGINT"),
        ("sum(s)", "sum(s)", "BIGINT"),
        ("sum(i)", "sum(i)", "BIGINT"),
        ("sum(n * 2)", "sum(n * 2)", "BIGINT"),
        ("sum(r)", "sum(r)", "REAL"),
        ("sum(d)", "sum(d)", "DOUBLE PRECISION"),
        ("sum(m)", "sum(m)", "DECIMAL(38,2)"),
        ("avg(s)", "avg(s)", "DOUBLE PRECISION"),
        ("avg(r)", "avg(r)", "DOUBLE PRECISION"),
        ("avg(m)", "avg(m)", "DECIMAL(14,6)"),
        ("min(s)", "min(s)", "SMALLINT"),
        ("max(t)", "max(t)", "TEXT"),
        ("max(ts)", "max(ts)", "TIMESTAMP(3)"),
        ("min(b)", "min(b)", "BOOLEAN"),
        ("sum(n) FILTER (WHERE b)", "sum(n) FILTER (WHERE b)", "BIGINT"),
        ("count(DISTINCT t)", "count(DISTINCT t)", "BIGINT"),
        ("count(DISTINCT t, n)", "count(DISTINCT t, n)", "BIGINT"),
        ("sum(DISTINCT m)", "sum(DISTINCT m)", "DECIMAL(38,2)"),
        // What is made of the different values anyway needs no set of them.
        ("max(DISTINCT n)", "max(n)", "BIGINT"),
        ("every(b)", "bool_and(b)", "BOOLEAN"),
        ("bool_or(n > 1)", "bool_or(n > 1)", "BOOLEAN"),
        ("bit_xor(s)", "bit_xor(s)", "SMALLINT"),
        ("stddev(r)", "stddev_samp(r)", "DOUBLE PRECISION"),
        ("variance(m)", "var_samp(m)", "DOUBLE PRECISION"),
        ("corr(n, d)", "corr(n, d)", "DOUBLE PRECISION"),
        ("first_value(t)", "first_value(t)", "TEXT"),
        ("last_value(n ORDER BY d DESC, t NULLS FIRST)", "last_value(n ORDER BY d DESC, t NULLS FIRST)", "BIGINT"),
        ("first_value(t) IGNORE NULLS", "first_value(t) FILTER (WHERE t IS NOT NULL)", "TEXT"),
        ("sum(n ORDER BY t)", "sum(n)", "BIGINT"),
        ("string_agg(t, ',' ORDER BY n)", "string_agg(t, ',' ORDER BY n)", "TEXT"),
        ("string_agg(DISTINCT t, '')", "string_agg(DISTINCT t, '')", "TEXT"),
        ("median(n)", "median(CAST(n AS DOUBLE PRECISION))", "DOUBLE PRECISION"),
        ("median(r)", "median(r)", "REAL"),
        ("median(m)", "median(m)", "DECIMAL(11,3)"),
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY d)", "percentile_cont(d, 0.9)", "DOUBLE PRECISION"),
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY d DESC)", "percentile_cont(d, 0.1)", "DOUBLE PRECISION"),
        ("percentile_cont(1) WITHIN GROUP (ORDER BY d)", "percentile_cont(d, 1.0)", "DOUBLE PRECISION"),
        ("approx_distinct(t)", "approx_distinct(t)", "BIGINT"),
        ("approx_median(d)", "approx_median(d)", "DOUBLE PRECISION"),
    ];
    for (text, printed, ty) in cases {
        let bound = aggregate(text, &schema()).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!((bound.to_string().as_str(), bound.ty.to_string().as_str()), (printed, ty), "{text}");
        assert_eq!(bound.nullable, !printed.contains("count") && !printed.contains("approx_distinct"), "{text}");
        assert_eq!(aggregate(&bound.to_string(), &schema()).unwrap(), bound, "{text}");
    }
    for (text, part) in [
        ("sum(t)", "TEXT"),
        ("avg(ts)", "TIMESTAMP(3)"),
        ("count(n, t)", "count takes * or one value"),
        ("count(DISTINCT INTERVAL '1 day')", "INTERVAL"),
        ("bool_and(n)", "bool_and does not take a value of type BIGINT"),
        ("bit_and(d)", "DOUBLE PRECISION"),
        ("corr(n)", "two numbers"),
        ("corr(n, t)", "BIGINT, TEXT"),
        ("string_agg(n, ',')", "BIGINT, TEXT"),
        ("string_agg(t, t)", "is a constant"),
        ("string_agg(DISTINCT t, ',' ORDER BY n)", "must appear in argument list"),
        ("percentile_cont(1.5) WITHIN GROUP (ORDER BY d)", "between 0 and 1"),
        ("percentile_cont(d) WITHIN GROUP (ORDER BY d)", "is a constant"),
        ("array_agg(n)", "array_agg is not available"),
        ("sum(n) IGNORE NULLS", "NULLS are not permitted"),
        ("n", "aggregate is expected"),
    ] {
        let error = aggregate(text, &schema()).unwrap_err();
        assert!(error.message.contains(part), "{text}: {error:?}");
    }
}

#[test]
fn conditions_give_boolean_and_projections_have_names() {
    assert_eq!(condition("n + 1", &schema()).unwrap_err().sqlstate, sqlstate::DATATYPE_MISMATCH);
    assert_eq!(projection("n", &schema()).unwrap().name, "n");
    assert_eq!(projection("n * 2 AS Twice", &schema()).unwrap().name, "twice");
    assert_eq!(projection("n * 2 AS \"Twice\"", &schema()).unwrap().to_string(), "n * 2 AS \"Twice\"");
    assert!(projection("n * 2", &schema()).unwrap_err().hint.unwrap().contains("AS name"));
}

/// Names that are words of some SQL still are columns when printed.
#[test]
fn every_keyword_can_name_a_column() {
    for keyword in sqlparser::keywords::ALL_KEYWORDS {
        let name = keyword.to_lowercase();
        let schema = Schema(vec![Column { name: name.clone(), ty: ColumnType::BigInt, nullable: true }]);
        let text = format!("{} + 1 > {0}", Name(&name));
        let bound = scalar(&text, &schema).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(bound.to_string(), text);
        let named = projection(&format!("1 AS {}", Name(&name)), &Schema::default());
        assert_eq!(named.unwrap_or_else(|error| panic!("{name}: {error:?}")).name, name);
    }
}

/// Every function's printed name is read as a call of that function.
#[test]
fn every_function_name_prints_as_a_call() {
    for name in FUNCTIONS.scalar.values().map(|function| function.name()) {
        let text =
            Expr::Function { version: 1, name: name.to_owned(), args: vec![Expr::Column("a".to_owned()), Expr::Column("b".to_owned())] }
                .to_string();
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).unwrap();
        match parser.parse_expr() {
            Ok(ast::Expr::Function(function)) => assert_eq!(function.name.0[0].as_ident().unwrap().value, name),
            other => panic!("{text} is read as {other:?}"),
        }
    }
}

/// Deterministic numbers for generated expressions.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // The high bits of a multiplicative generator are its good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

fn number(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random
            .pick(&[
                "n", "i", "s", "1", "-7", "0.25", "d", "r", "m", "CAST(3 AS SMALLINT)", "1e3", "CAST('2.50' AS DECIMAL(5,2))", "NULL::INT",
            ])
            .to_owned();
    }
    match random.below(8) {
        0 => format!("({} {} {})", number(random, depth - 1), random.pick(&["+", "-", "*", "/", "%"]), number(random, depth - 1)),
        1 => format!("{} {} {}", number(random, depth - 1), random.pick(&["+", "-", "*"]), number(random, depth - 1)),
        2 => format!("-({})", number(random, depth - 1)),
        3 => format!("CASE WHEN {} THEN {} ELSE {} END", boolean(random, depth - 1), number(random, depth - 1), number(random, depth - 1)),
        4 => format!("coalesce({}, {})", number(random, depth - 1), number(random, depth - 1)),
        5 => format!("CAST({} AS {})", number(random, depth - 1), random.pick(&["BIGINT", "DOUBLE PRECISION", "REAL", "DECIMAL(20,4)"])),
        6 => format!("length({})", text(random, depth - 1)),
        _ => format!(
            "extract({} FROM {})",
            random.pick(&["hour", "minute", "year"]),
            random.pick(&["ts", "us", "ts + INTERVAL '90 minutes'", "day"])
        ),
    }
}

fn boolean(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random.pick(&["b", "TRUE", "FALSE", "b IS UNKNOWN", "n = 1", "t IS NULL"]).to_owned();
    }
    match random.below(9) {
        0 => format!("{} {} {}", boolean(random, depth - 1), random.pick(&["AND", "OR"]), boolean(random, depth - 1)),
        1 => format!("({} {} {})", boolean(random, depth - 1), random.pick(&["AND", "OR"]), boolean(random, depth - 1)),
        2 => format!("NOT ({})", boolean(random, depth - 1)),
        3 => format!(
            "({}) {} ({})",
            number(random, depth - 1),
            random.pick(&["=", "<>", "<", ">=", "IS DISTINCT FROM"]),
            number(random, depth - 1)
        ),
        4 => format!("({}) {} ({}, {})", number(random, depth - 1), random.pick(&["IN", "NOT IN"]), number(random, 0), number(random, 0)),
        5 => format!(
            "({}) {} {}",
            text(random, depth - 1),
            random.pick(&["LIKE", "NOT ILIKE", "~", "!~*"]),
            random.pick(&["'a%'", "'it''s'", "t"])
        ),
        6 => format!("({}) {}", boolean(random, depth - 1), random.pick(&["IS TRUE", "IS NOT FALSE", "IS NULL", "IS NOT UNKNOWN"])),
        7 => format!("({}) BETWEEN {} AND {}", number(random, depth - 1), number(random, 0), number(random, 0)),
        _ => format!(
            "({}) {} {}",
            random.pick(&["ts", "us", "tz", "day"]),
            random.pick(&["<", ">"]),
            random.pick(&["now()", "us", "TIMESTAMP '2024-01-01 00:00:00'", "CAST('2024-01-01' AS DATE)"])
        ),
    }
}

fn text(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random.pick(&["t", "\"Mixed\"", "'x'", "'it''s'", "NULL::TEXT"]).to_owned();
    }
    match random.below(5) {
        0 => format!("({}) || ({})", text(random, depth - 1), text(random, depth - 1)),
        1 => format!("{}({})", random.pick(&["upper", "lower", "btrim", "reverse"]), text(random, depth - 1)),
        2 => format!("substring({} FROM 2 FOR 3)", text(random, depth - 1)),
        3 => format!("CAST({} AS TEXT)", number(random, depth - 1)),
        _ => format!("CASE {} WHEN 1 THEN {} END", number(random, 0), text(random, depth - 1)),
    }
}

/// JOB-3: the printed form of any bound expression binds to the same expression.
#[test]
fn generated_expressions_bind_back_from_their_text() {
    let schema = schema();
    let (mut random, mut bound_count) = (Random(7), 0);
    for round in 0..450 {
        let depth = 1 + random.below(4);
        let written = match round % 3 {
            0 => number(&mut random, depth),
            1 => boolean(&mut random, depth),
            _ => text(&mut random, depth),
        };
        // Some are refused (a decimal too wide, an integer constant out of range): the rest must hold.
        let Ok(bound) = scalar(&written, &schema) else { continue };
        bound_count += 1;
        let printed = bound.to_string();
        let again =
            scalar(&printed, &schema).unwrap_or_else(|error| panic!("round {round}\nwritten {written}\nprinted {printed}\n{error:?}"));
        assert_eq!(again, bound, "round {round}\nwritten {written}\nprinted {printed}");
    }
    assert!(bound_count > 300, "too few of the generated expressions bind: {bound_count}");
}

/// L2: neither depth nor length of an expression can exhaust the stack, and the refusal is clear.
#[test]
fn bombs_are_refused() {
    let deep = [
        format!("{}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        vec!["1"; 100_000].join("+"),
        vec!["b"; 100_000].join(" OR "),
        format!("{}b", "NOT ".repeat(50_000)),
        format!("{}1", "- ".repeat(50_000)),
        format!("{}n{}", "upper(".repeat(10_000), ")".repeat(10_000)),
        format!("n{}", "::INT::BIGINT".repeat(5_000)),
        format!("n{}", " IS NULL IS NULL".repeat(5_000)),
        format!("{}1{}", "CASE WHEN b THEN ".repeat(10_000), " END".repeat(10_000)),
        format!("{}1{}", "(".repeat(80), ")".repeat(80)),
        vec!["1"; 400].join("+"),
        "x".repeat(2 << 20),
    ];
    for text in deep {
        let error = on_deep_stack(|| scalar(&text, &schema())).unwrap_err();
        assert!(matches!(error.sqlstate, sqlstate::PROGRAM_LIMIT_EXCEEDED), "{}…: {error:?}", text.get(..40).unwrap());
        assert!(error.hint.is_some());
    }
    // Long, but flat: these are fine.
    let many = vec!["n = 1"; 200].join(" OR ");
    let bound = on_deep_stack(|| scalar(&many, &schema())).unwrap();
    assert_eq!(on_deep_stack(|| scalar(&bound.to_string(), &schema())).unwrap(), bound);
    let list = format!("n IN ({})", vec!["1"; 5_000].join(", "));
    assert!(on_deep_stack(|| scalar(&list, &schema())).is_ok());
}

/// JOB-7: all faults of a spec come together, each with its path.
#[test]
fn a_specs_faults_come_together() {
    let yaml = "
id: j
operators:
- {id: s, kind: source}
- {id: m, kind: map, config: {filter: 'k > ', project: ['nope', 'k + 1']}}
- {id: o, kind: sink}
edges: [{id: e1, from: s, to: m}, {id: e2, from: m, to: o}]
sources:
- {operator_id: s, input_type: values, config: {rows: []}, schema: [{name: k, type: BIGINT}]}
sinks: [{operator_id: o, output_type: drop}]
";
    let mut document = crate::yaml::parse(yaml).unwrap();
    let faults = bind_spec(&mut document.jobs[0]).unwrap_err();
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["operators[1].config.filter", "operators[1].config.project[0]", "operators[1].config.project[1]"]);
    assert!(faults[1].message.contains("column 'nope' does not exist"), "{:?}", faults[1]);
}
