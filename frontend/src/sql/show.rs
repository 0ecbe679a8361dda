//! SHOW and DESCRIBE. Lists are documented SELECTs over the system tables; what only the catalog
//! knows is told from its snapshot.

use super::statement::{Named, ObjectKind, Show};
use super::{Engine, Outcome, verb};
use crate::error::{Error, sqlstate};
use crate::yaml as printed;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::sync::Arc;
use weir_hub::hub::{CatalogEntry, CatalogObject};
use weir_planner::check::columns::schema_of_source;
use weir_planner::expr::Quoted;
use weir_planner::id::OperatorId;
use weir_planner::schema::Schema;
use weir_planner::secret;

/// The query that a SHOW is short for.
fn query(show: &Show) -> Option<String> {
    const CHECKPOINTS: &str = "SELECT id, kind, version, epoch, state, started_at, completed_at, bytes_new, bytes_total, location, error FROM weir.job_checkpoints";
    let text = match show {
        Show::Checkpoints { job, savepoints } => {
            let kind = if *savepoints { " AND kind = 'savepoint'" } else { "" };
            return Some(format!("{CHECKPOINTS} WHERE job = '{}'{kind} ORDER BY id", job.text.replace('\'', "''")));
        }
        Show::Jobs => Some(
            "SELECT id, version, state, desired_state, parallelism, rows_in_total, rows_out_total, last_error FROM weir.jobs ORDER BY id",
        ),
        Show::Agents => Some("SELECT id, state, address, version, last_seen_at, tasks FROM weir.agents ORDER BY id"),
        Show::Connectors => Some("SELECT * FROM weir.connectors"),
        Show::Sources | Show::Sinks | Show::Create { .. } | Show::JobSpec(_) => None,
    };
    text.map(str::to_owned)
}

/// Columns of a SHOW that is not a query.
fn columns(show: &Show) -> SchemaRef {
    match show {
        Show::Sources => text_columns(&["name", "connector", "format", "columns", "time_column"]),
        Show::Sinks => text_columns(&["name", "connector", "format", "delivery"]),
        Show::Create { .. } => text_columns(&["name", "statement"]),
        Show::JobSpec(_) => text_columns(&["spec"]),
        Show::Jobs | Show::Agents | Show::Connectors | Show::Checkpoints { .. } => text_columns(&[]),
    }
}

/// What DESCRIBE tells of each column.
const DESCRIBED: [&str; 4] = ["column", "type", "nullable", "note"];

pub(super) fn text_columns(names: &[&str]) -> SchemaRef {
    Arc::new(ArrowSchema::new(names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect::<Vec<_>>()))
}

/// Runs a SHOW.
pub(super) async fn show(engine: &Engine, show: &Show) -> Result<Outcome, Error> {
    if let Show::Checkpoints { job, .. } = show {
        verb::job(engine, job)?;
    }
    if let Some(text) = query(show) {
        let (statement, text) = parsed(&text)?;
        let outcome = engine.queries.run(&statement, &text, &[]).await?;
        return Ok(match outcome {
            Outcome::Rows { schema, stream, .. } => Outcome::Rows { schema, stream, tag: Some("SHOW") },
            Outcome::Done { tag, notices } => Outcome::Done { tag, notices },
        });
    }
    let rows = match show {
        Show::Sources => entries(engine, |entry| match &entry.object {
            CatalogObject::Source(source) => {
                let names: Vec<String> = schema_of_source(source).0.into_iter().map(|column| column.name).collect();
                let format = source.codec.as_ref().map(format_name);
                Some(vec![
                    Some(entry.name.clone()),
                    Some(source.input_type.clone()),
                    format,
                    Some(names.join(", ")),
                    source.time.timestamp_field.clone(),
                ])
            }
            CatalogObject::Sink(_) => None,
        }),
        Show::Sinks => entries(engine, |entry| match &entry.object {
            CatalogObject::Sink(sink) => {
                let format = sink.codec.as_ref().map(format_name);
                Some(vec![Some(entry.name.clone()), Some(sink.output_type.clone()), format, Some(word(&sink.delivery))])
            }
            CatalogObject::Source(_) => None,
        }),
        Show::Create { kind, name } => vec![vec![Some(name.text.clone()), Some(created_by(engine, *kind, name)?)]],
        Show::JobSpec(name) => vec![vec![Some(printed::print(&verb::job(engine, name)?.spec))]],
        Show::Jobs | Show::Agents | Show::Connectors | Show::Checkpoints { .. } => Vec::new(),
    };
    answer(columns(show), &rows, "SHOW")
}

/// Columns that a SHOW answers with.
pub(super) async fn describe_show(engine: &Engine, show: &Show) -> Result<SchemaRef, Error> {
    match query(show) {
        Some(text) => {
            let (statement, text) = parsed(&text)?;
            let described = engine.queries.describe(&statement, &text, &[]).await?;
            Ok(described.columns.unwrap_or_else(|| text_columns(&[])))
        }
        None => Ok(columns(show)),
    }
}

fn parsed(text: &str) -> Result<(sqlparser::ast::Statement, Arc<str>), Error> {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, text);
    let statement = statements.ok().and_then(|statements| statements.into_iter().next());
    let statement = statement.ok_or_else(|| Error::new(sqlstate::INTERNAL_ERROR, "a built-in query does not parse"))?;
    Ok((statement, Arc::from(text)))
}

fn entries(engine: &Engine, row: impl Fn(&CatalogEntry) -> Option<Vec<Option<String>>>) -> Vec<Vec<Option<String>>> {
    engine.hub.catalog().entries.values().filter_map(|entry| row(entry)).collect()
}

/// The tag of a format.
fn format_name(format: &weir_planner::connector::Format) -> String {
    use weir_planner::connector::Format;
    match format {
        Format::Json(_) => "json",
        Format::Csv(_) => "csv",
        Format::Parquet(_) => "parquet",
        Format::Raw(_) => "raw",
    }
    .to_owned()
}

/// A unit variant's word.
fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
}

fn entry(engine: &Engine, kind: ObjectKind, name: &Named) -> Result<Arc<CatalogEntry>, Error> {
    let found = engine.hub.catalog().entries.get(&name.text).cloned();
    let is_kind = |entry: &Arc<CatalogEntry>| {
        matches!((&entry.object, kind), (CatalogObject::Source(_), ObjectKind::Source) | (CatalogObject::Sink(_), ObjectKind::Sink))
    };
    found
        .filter(is_kind)
        .ok_or_else(|| Error::new(sqlstate::UNDEFINED_OBJECT, format!("{} '{}' does not exist", kind.word(), name.text)).at(name.position))
}

/// The statement that made an object, secrets masked.
fn created_by(engine: &Engine, kind: ObjectKind, name: &Named) -> Result<String, Error> {
    match kind {
        ObjectKind::Source | ObjectKind::Sink => Ok(masked(&entry(engine, kind, name)?.sql)),
        ObjectKind::Job => {
            let job = verb::job(engine, name)?;
            match &job.sql {
                Some(sql) => Ok(masked(sql)),
                None => Err(Error::new(sqlstate::OBJECT_NOT_IN_STATE, format!("job '{}' was not made by a statement", name.text))
                    .with_hint(format!("SHOW JOB SPEC {} prints its YAML", name.text))
                    .at(name.position)),
            }
        }
    }
}

/// A statement with the values of secret options replaced by `'***'` (SQL-11).
pub(crate) fn masked(sql: &str) -> String {
    use sqlparser::tokenizer::{Token, Tokenizer};
    let places = super::place::Places::new(sql);
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location() else { return secret::MASK.to_owned() };
    let mut shown = String::with_capacity(sql.len());
    let (mut copied, mut key) = (0, String::new());
    let mut assigned = false;
    for token in tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))) {
        match &token.token {
            Token::Eq => assigned = true,
            Token::Period => key.push('.'),
            value if assigned => {
                let instead = match value {
                    Token::EOF => None,
                    Token::SingleQuotedString(text) => Some(secret::shown(&key, text)).filter(|shown| shown != text),
                    _ => (secret::is_secret(&key) || secret::is_url(&key)).then(|| secret::MASK.to_owned()),
                };
                if let Some(instead) = instead {
                    let (start, end) = (places.byte(token.span.start), places.byte(token.span.end));
                    shown.push_str(sql.get(copied..start).unwrap_or_default());
                    shown.push_str(&Quoted(&instead).to_string());
                    copied = end;
                }
                (assigned, key) = (false, String::new());
            }
            Token::Word(word) if key.ends_with('.') => key.push_str(&word.value),
            Token::Word(word) => key = word.value.clone(),
            Token::SingleQuotedString(text) if key.ends_with('.') => key.push_str(text),
            Token::SingleQuotedString(text) => key = text.clone(),
            _ => (assigned, key) = (false, String::new()),
        }
    }
    shown.push_str(sql.get(copied..).unwrap_or_default());
    shown
}

/// Runs a DESCRIBE: the columns of a source, of a job's result, or the options of a sink.
pub(super) fn describe(engine: &Engine, name: &Named) -> Result<Outcome, Error> {
    let snapshot = engine.hub.catalog();
    let rows = match (snapshot.entries.get(&name.text).map(|entry| &entry.object), snapshot.jobs.get(&name.text)) {
        (Some(CatalogObject::Source(source)), _) => {
            let time = source.time.timestamp_field.clone();
            column_rows(&schema_of_source(source), |column| (time.as_deref() == Some(column)).then(|| "event time".to_owned()))
        }
        (Some(CatalogObject::Sink(sink)), _) => {
            let options = printed::masked(&sink.config);
            let fields = options.as_object().into_iter().flatten().filter(|(name, _)| *name != "type");
            let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fields.map(|(option, value)| vec![Some(option.clone()), None, None, Some(text(value))]).collect()
        }
        (None, Some(job)) => {
            let sinks: Vec<&OperatorId> = job.spec.sinks.iter().map(|sink| &sink.operator_id).collect();
            let operators = job.plan.iter().flat_map(|plan| plan.operators());
            let output = operators.filter(|operator| sinks.contains(&&operator.id)).map(|operator| &operator.output).next();
            output.map(|schema| column_rows(schema, |_| None)).unwrap_or_default()
        }
        (None, None) => {
            return Err(Error::new(sqlstate::UNDEFINED_OBJECT, format!("'{}' does not exist", name.text))
                .with_hint("SHOW SOURCES, SHOW SINKS and SHOW JOBS list what there is")
                .at(name.position));
        }
    };
    answer(text_columns(&DESCRIBED), &rows, "DESCRIBE")
}

/// Columns that DESCRIBE answers with.
pub(super) fn described_columns() -> SchemaRef {
    text_columns(&DESCRIBED)
}

/// Columns that EXPLAIN answers with.
pub(super) fn explained_columns() -> SchemaRef {
    text_columns(&["QUERY PLAN"])
}

fn column_rows(schema: &Schema, note: impl Fn(&str) -> Option<String>) -> Vec<Vec<Option<String>>> {
    let row = |column: &weir_planner::schema::Column| {
        let nullable = if column.nullable { "yes" } else { "no" };
        vec![Some(column.name.clone()), Some(column.ty.to_string()), Some(nullable.to_owned()), note(&column.name)]
    };
    schema.0.iter().map(row).collect()
}

/// A text as rows, one a line.
pub(super) fn lines(column: &str, text: &str, tag: &'static str) -> Result<Outcome, Error> {
    let rows: Vec<Vec<Option<String>>> = text.lines().map(|line| vec![Some(line.to_owned())]).collect();
    answer(text_columns(&[column]), &rows, tag)
}

pub(super) fn answer(schema: SchemaRef, rows: &[Vec<Option<String>>], tag: &'static str) -> Result<Outcome, Error> {
    let column = |at: usize| -> ArrayRef { Arc::new(rows.iter().map(|row| row.get(at).cloned().flatten()).collect::<StringArray>()) };
    let columns = (0..schema.fields().len()).map(column).collect();
    let batch =
        RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|error| Error::new(sqlstate::INTERNAL_ERROR, error.to_string()))?;
    let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter([Ok(batch)]));
    Ok(Outcome::Rows { schema, stream: Box::pin(stream), tag: Some(tag) })
}
