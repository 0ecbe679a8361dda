//! CREATE SOURCE and CREATE SINK: columns, watermark, WITH options and inline rows.

use crate::error::{Error, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::duration::interval_ms;
use crate::sql::statement::{Body, ColumnDef, CreateSink, CreateSource, WatermarkDef, WithOption};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use weir_planner::schema::{ColumnType, RESERVED_PREFIX};

pub(super) fn create_source(mut cursor: Cursor<'_>, or_replace: bool) -> Result<Body, Error> {
    let if_not_exists = if_not_exists(&mut cursor, or_replace)?;
    let name = cursor.name("the source's name")?;
    let (mut columns, mut watermark): (Vec<ColumnDef>, Option<WatermarkDef>) = (Vec::new(), None);
    if cursor.take_token(&Token::LParen) {
        loop {
            if cursor.sees("watermark") && cursor.sees_ahead(1, "for") {
                let position = cursor.position();
                if watermark.replace(watermark_clause(&mut cursor)?).is_some() {
                    return Err(Error::new(sqlstate::SYNTAX_ERROR, "a source has one WATERMARK clause").at(position));
                }
            } else {
                let column = column(&mut cursor)?;
                if columns.iter().any(|other| other.name.text == column.name.text) {
                    return Err(Error::new("42701", format!("column '{}' is declared twice", column.name.text)).at(column.name.position));
                }
                columns.push(column);
            }
            if !cursor.take_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    }
    let options = with_options(&mut cursor)?;
    let values = if cursor.take(&["as", "values"]) { Some(rows(&mut cursor)?) } else { None };
    cursor.end()?;
    let sql = cursor.sql();
    Ok(Body::CreateSource(Box::new(CreateSource { or_replace, if_not_exists, name, columns, watermark, options, values, sql })))
}

pub(super) fn if_not_exists(cursor: &mut Cursor<'_>, or_replace: bool) -> Result<bool, Error> {
    let position = cursor.position();
    let found = cursor.take(&["if", "not", "exists"]);
    if found && or_replace {
        return Err(Error::new(sqlstate::SYNTAX_ERROR, "OR REPLACE and IF NOT EXISTS exclude each other").at(position));
    }
    Ok(found)
}

fn column(cursor: &mut Cursor<'_>) -> Result<ColumnDef, Error> {
    let name = cursor.name("a column name or WATERMARK FOR")?;
    if name.text.starts_with(RESERVED_PREFIX) {
        return Err(Error::new(
            "42939",
            format!("column name '{}' is reserved: names that begin with '{RESERVED_PREFIX}' are Weir's own", name.text),
        )
        .at(name.position));
    }
    let position = cursor.position();
    let tokens = cursor.take_item();
    let ends = |tokens: &[TokenWithSpan], words: &[&str]| {
        tokens.len() > words.len()
            && tokens
                .iter()
                .rev()
                .zip(words.iter().rev())
                .all(|(token, word)| matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word)))
    };
    let (tokens, not_null) = match tokens {
        tokens if ends(tokens, &["not", "null"]) => (tokens.get(..tokens.len() - 2).unwrap_or_default(), true),
        tokens if ends(tokens, &["null"]) => (tokens.get(..tokens.len() - 1).unwrap_or_default(), false),
        tokens => (tokens, false),
    };
    if tokens.is_empty() {
        return Err(cursor.expected(&format!("the type of column '{}'", name.text)));
    }
    let parsed = cursor.parse(tokens, |parser| parser.parse_data_type())?;
    let ty: ColumnType = parsed.to_string().parse().map_err(|message: String| {
        Error::new(sqlstate::UNDEFINED_OBJECT, format!("column '{}': {message}", name.text))
            .with_hint("types are BOOLEAN, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE PRECISION, DECIMAL(p,s), TEXT, BYTEA, DATE, TIMESTAMP(0|3|6|9), TIMESTAMPTZ(0|3|6|9)")
            .at(position)
    })?;
    if ty == ColumnType::Interval {
        return Err(
            Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("column '{}': INTERVAL is for expressions only", name.text)).at(position)
        );
    }
    Ok(ColumnDef { name, ty, not_null })
}

fn watermark_clause(cursor: &mut Cursor<'_>) -> Result<WatermarkDef, Error> {
    cursor.expect("watermark")?;
    cursor.expect("for")?;
    let column = cursor.name("the time column's name")?;
    cursor.expect("as")?;
    let again = cursor.name("the time column's name")?;
    if again.text != column.text {
        return Err(Error::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("a watermark follows its own column: this must be '{}'", column.text),
        )
        .with_hint(format!("write WATERMARK FOR {0} AS {0} - INTERVAL '5 seconds'", column.text))
        .at(again.position));
    }
    let mut bound_ms = 0;
    if cursor.take_token(&Token::Minus) {
        cursor.expect("interval")?;
        let position = cursor.position();
        let mut text = cursor.string("an interval such as '5 seconds'")?;
        for unit in ["millisecond", "milliseconds", "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days"] {
            if cursor.take(&[unit]) {
                text = format!("{text} {unit}");
                break;
            }
        }
        bound_ms = interval_ms(&text).map_err(|message| Error::new("22007", message).at(position))?;
        if bound_ms < 0 {
            return Err(
                Error::new(sqlstate::INVALID_PARAMETER_VALUE, "a watermark stays behind: its interval cannot be negative").at(position)
            );
        }
    }
    if !matches!(cursor.peek(), Some(Token::Comma | Token::RParen)) {
        return Err(cursor.expected("',' or ')': a watermark is the column itself or the column - INTERVAL '…'"));
    }
    Ok(WatermarkDef { column, bound_ms })
}

/// `WITH (key = value, dotted.key = value)`, or nothing.
pub(super) fn with_options(cursor: &mut Cursor<'_>) -> Result<Vec<WithOption>, Error> {
    let mut options: Vec<WithOption> = Vec::new();
    if !cursor.take(&["with"]) {
        return Ok(options);
    }
    cursor.expect_token(&Token::LParen)?;
    loop {
        let key_position = cursor.position();
        let mut key = option_key(cursor)?;
        while cursor.take_token(&Token::Period) {
            key = format!("{key}.{}", option_key(cursor)?);
        }
        if options.iter().any(|other| other.key == key) {
            return Err(Error::new(sqlstate::SYNTAX_ERROR, format!("option '{key}' is given twice")).at(key_position));
        }
        cursor.expect_token(&Token::Eq)?;
        let value_position = cursor.position();
        let value = cursor.value_text()?;
        options.push(WithOption { key, value, key_position, value_position });
        if !cursor.take_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(options)
}

/// One part of an option's key: a word, or the key in quotes of either kind.
fn option_key(cursor: &mut Cursor<'_>) -> Result<String, Error> {
    match cursor.peek() {
        Some(Token::SingleQuotedString(_)) => cursor.string("an option's name"),
        _ => Ok(cursor.name("an option's name")?.text),
    }
}

/// `(1, 'a'), (2, 'b')`.
fn rows(cursor: &mut Cursor<'_>) -> Result<Vec<Vec<(sqlparser::ast::Expr, usize)>>, Error> {
    let mut rows = Vec::new();
    loop {
        cursor.expect_token(&Token::LParen)?;
        let mut row = Vec::new();
        loop {
            let position = cursor.position();
            let tokens = cursor.take_item();
            if tokens.is_empty() {
                return Err(cursor.expected("a value"));
            }
            row.push((cursor.parse(tokens, |parser| parser.parse_expr())?, position));
            if !cursor.take_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
        rows.push(row);
        if !cursor.take_token(&Token::Comma) {
            return Ok(rows);
        }
    }
}

pub(super) fn create_sink(mut cursor: Cursor<'_>, or_replace: bool) -> Result<Body, Error> {
    let if_not_exists = if_not_exists(&mut cursor, or_replace)?;
    let name = cursor.name("the sink's name")?;
    if !cursor.sees("with") {
        return Err(cursor.expected("WITH (connector = …)"));
    }
    let options = with_options(&mut cursor)?;
    cursor.end()?;
    let sql = cursor.sql();
    Ok(Body::CreateSink(CreateSink { or_replace, if_not_exists, name, options, sql }))
}
