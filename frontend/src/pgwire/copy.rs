//! COPY (query) TO STDOUT, in text and CSV (C61).

use super::value::Rows;
use crate::error::{Error, sqlstate};
use crate::sql::sugar::named;
use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};
use sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Expr, Ident, ObjectName, Query, SelectItem, Statement,
};

/// A COPY to the client.
#[derive(Debug)]
pub(super) struct CopyOut {
    /// The query whose rows go out.
    pub query: Statement,
    /// How a row is written.
    pub format: Format,
}

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    csv: bool,
    /// A first line with the names.
    pub header: bool,
    delimiter: u8,
    null: String,
    quote: u8,
    escape: u8,
}

/// Reads a COPY statement.
///
/// Errors: `0A000` for what is not a COPY to the client, `22023` for options that do not fit.
pub(super) fn parse(statement: &Statement) -> Result<CopyOut, Error> {
    let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
        return Err(Error::new(sqlstate::INTERNAL_ERROR, "not a COPY"));
    };
    let only = |what: &str| {
        Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, what.to_owned())
            .with_hint("COPY (SELECT …) TO STDOUT and COPY table TO STDOUT are available"))
    };
    if !*to {
        return only("COPY FROM is not available: rows are written by jobs only");
    }
    if *target != CopyTarget::Stdout {
        return only("COPY to files and programs of the server is not available");
    }
    let query = match source {
        CopySource::Query(query) => Statement::Query(query.clone()),
        CopySource::Table { table_name, columns } => Statement::Query(Box::new(select(table_name, columns)?)),
    };
    Ok(CopyOut { query, format: format(options, legacy_options)? })
}

/// `SELECT columns FROM table`, built from the parts so that places in the text stay right.
fn select(table: &ObjectName, columns: &[Ident]) -> Result<Query, Error> {
    use sqlparser::ast::{SetExpr, TableWithJoins};
    let wildcard = || SelectItem::Wildcard(sqlparser::ast::WildcardAdditionalOptions::default());
    let column = |ident: &Ident| SelectItem::UnnamedExpr(Expr::Identifier(ident.clone()));
    let mut query = bare_query()?;
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = if columns.is_empty() { vec![wildcard()] } else { columns.iter().map(column).collect() };
        let relation = named(table.clone(), None, None);
        select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
    }
    Ok(query)
}

/// A query to put the parts into.
fn bare_query() -> Result<Query, Error> {
    let parsed = crate::sql::parse("SELECT 1")?;
    match parsed.first().and_then(crate::sql::Statement::postgres) {
        Some(Statement::Query(query)) => Ok((**query).clone()),
        _ => Err(Error::new(sqlstate::INTERNAL_ERROR, "SELECT 1 is no query")),
    }
}

fn format(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Format, Error> {
    let bad = |text: String| Error::new(sqlstate::INVALID_PARAMETER_VALUE, text);
    let byte = |c: char, what: &str| {
        u8::try_from(c).ok().filter(u8::is_ascii).ok_or_else(|| bad(format!("COPY {what} must be one ASCII character")))
    };
    let (mut csv, mut header, mut delimiter, mut null, mut quote, mut escape) = (false, false, None, None, b'"', None);
    for option in options {
        match option {
            CopyOption::Format(name) => match name.value.to_lowercase().as_str() {
                "csv" => csv = true,
                "text" => csv = false,
                other => {
                    return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("COPY format '{other}' is not available"))
                        .with_hint("use text or csv"));
                }
            },
            CopyOption::Header(on) => header = *on,
            CopyOption::Delimiter(c) => delimiter = Some(byte(*c, "DELIMITER")?),
            CopyOption::Null(text) => null = Some(text.clone()),
            CopyOption::Quote(c) => quote = byte(*c, "QUOTE")?,
            CopyOption::Escape(c) => escape = Some(byte(*c, "ESCAPE")?),
            CopyOption::Encoding(name) if matches!(name.to_lowercase().as_str(), "utf8" | "utf-8") => {}
            other => return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("COPY option {other} is not available"))),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Csv(all) => {
                csv = true;
                header |= all.iter().any(|option| matches!(option, CopyLegacyCsvOption::Header));
            }
            CopyLegacyOption::Delimiter(c) => delimiter = Some(byte(*c, "DELIMITER")?),
            CopyLegacyOption::Null(text) => null = Some(text.clone()),
            CopyLegacyOption::Header => header = true,
            other => return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("COPY option {other} is not available"))),
        }
    }
    let delimiter = delimiter.unwrap_or(if csv { b',' } else { b'\t' });
    let null = null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() });
    Ok(Format { csv, header, delimiter, null, quote, escape: escape.unwrap_or(quote) })
}

impl Format {
    /// The line of names.
    pub fn names(&self, schema: &Schema, line: &mut BytesMut) {
        for (i, field) in schema.fields().iter().enumerate() {
            self.value(i, Some(field.name().as_bytes()), line);
        }
        line.put_u8(b'\n');
    }

    /// The line of one row.
    pub fn row(&self, rows: &Rows, row: usize, scratch: &mut BytesMut, line: &mut BytesMut) {
        rows.texts(row, scratch, |i, text| self.value(i, text, line));
        line.put_u8(b'\n');
    }

    fn value(&self, i: usize, text: Option<&[u8]>, line: &mut BytesMut) {
        if i > 0 {
            line.put_u8(self.delimiter);
        }
        match text {
            None => line.put_slice(self.null.as_bytes()),
            Some(text) if self.csv => self.csv_value(text, line),
            Some(text) => self.text_value(text, line),
        }
    }

    fn csv_value(&self, text: &[u8], line: &mut BytesMut) {
        let special = |byte: &u8| *byte == self.delimiter || *byte == self.quote || matches!(byte, b'\n' | b'\r');
        // An empty text is quoted, so that it is not NULL; so is what would be read as NULL.
        if text != self.null.as_bytes() && !text.iter().any(special) && text != b"\\." {
            line.put_slice(text);
            return;
        }
        line.put_u8(self.quote);
        for byte in text {
            if *byte == self.quote || *byte == self.escape {
                line.put_u8(self.escape);
            }
            line.put_u8(*byte);
        }
        line.put_u8(self.quote);
    }

    fn text_value(&self, text: &[u8], line: &mut BytesMut) {
        for byte in text {
            match byte {
                b'\\' => line.put_slice(b"\\\\"),
                b'\n' => line.put_slice(b"\\n"),
                b'\r' => line.put_slice(b"\\r"),
                b'\t' => line.put_slice(b"\\t"),
                byte if *byte == self.delimiter => line.put_slice(&[b'\\', *byte]),
                byte => line.put_u8(*byte),
            }
        }
    }
}
