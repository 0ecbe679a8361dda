//! CREATE SOURCE and CREATE SINK to catalog entries. Everything that can be said without
//! connecting is said here: the same rules that a job must meet are run on a job of just this
//! source or sink (JOB-8).

use super::bind::constant;
use super::fault::of_fault;
use super::lower::bare;
use super::place::Places;
use super::statement::{ColumnDef, CreateSink, CreateSource, WithOption};
use crate::error::{Error, sqlstate};
use crate::options;
use serde_json::{Map as Fields, Value as Json};
use weir_hub::hub::{CatalogEntry, CatalogObject};
use weir_planner::check::check;
use weir_planner::check::columns::{is_pending, of_source};
use weir_planner::connector::{Format, Nothing, SinkOptions, SourceOptions, Values};
use weir_planner::error::Fault;
use weir_planner::expr::Literal;
use weir_planner::id::{EdgeId, JobId, OperatorId};
use weir_planner::nearest::nearest;
use weir_planner::schema::ColumnType;
use weir_planner::spec::{
    Batch, Delivery, Edge, ErrorPolicy, Horizon, JobSpec, LatePolicy, OnError, Operator, OperatorKind, Sink, Source, SourceColumn, Time,
    TimeMode, WatermarkPolicy,
};

/// What a catalog object's fields are called before a job copies it.
const PLACEHOLDER: &str = "object";

/// Options that are not the connector's own, for "did you mean".
const COMMON_OPTIONS: [&str; 9] =
    ["connector", "format", "allowed_lateness", "late_event_policy", "on_error", "timestamp_unit", "idle_timeout", "delivery", "topic"];

/// What a CREATE SOURCE asks for.
pub(crate) enum Drafted {
    /// A source whose columns are known.
    Known(CatalogEntry),
    /// One whose columns have to be taken from its rows first (JOB-6).
    Pending(Box<Source>),
}

/// The catalog entry of a CREATE SOURCE; `sampled` are its columns where it declares none.
///
/// Errors: everything that is wrong with it, with its place.
pub(crate) fn source(create: &CreateSource, sampled: Option<&[SourceColumn]>, places: &Places, now_ms: i64) -> Result<Drafted, Error> {
    let mut given = Given::split(&create.options, options::is_source_field);
    let input_type = match (&create.values, given.take("connector")) {
        (Some(_), None) => "values".to_owned(),
        (Some(_), Some(connector)) if connector.value == "values" => "values".to_owned(),
        (Some(_), Some(connector)) => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("AS VALUES gives the rows: connector '{}' cannot", connector.value),
            )
            .with_hint("leave connector out")
            .at(connector.value_position));
        }
        (None, Some(connector)) if connector.value == "values" => {
            return Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, "connector 'values' needs its rows")
                .with_hint("write AS VALUES (…), (…) at the end")
                .at(connector.value_position));
        }
        (None, Some(connector)) => connector.value.clone(),
        (None, None) => {
            return Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("source '{}' has no connector", create.name.text))
                .with_hint("add WITH (connector = 'kafka', …), or AS VALUES (…)")
                .at(create.name.position));
        }
    };
    let codec = given.format()?;
    let config = match &create.values {
        Some(rows) => {
            if let Some(stray) = given.own.first() {
                return Err(unknown_option(stray, "AS VALUES"));
            }
            SourceOptions::Values(Values { rows: values(rows, &create.columns, places)? })
        }
        None => {
            options::decode_source(&input_type, given.connector(&input_type)).map_err(|fault| given.error(&fault, create.name.position))?
        }
    };
    let operator_id = OperatorId::new(PLACEHOLDER).map_err(|fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message))?;
    let column = |column: &ColumnDef| SourceColumn {
        name: column.name.text.clone(),
        ty: column.ty,
        not_null: column.not_null,
        timestamp_unit: None,
    };
    let mut source = Source {
        operator_id,
        input_type,
        config,
        codec,
        schema: create.columns.iter().map(column).collect(),
        timestamp_unit: None,
        time: Time::default(),
        durability: None,
        on_error: OnError::default(),
        batch: Batch::default(),
    };
    if let (Some(columns), true) = (sampled, source.schema.is_empty()) {
        source.schema = columns.to_vec();
    }
    let pending = is_pending(&source);
    given.beside_watermark(create)?;
    if !pending {
        watermark(create, &mut source)?;
    }
    options::apply_source_options(&mut source, &given.fields()).map_err(|fault| given.error(&fault, create.name.position))?;
    if source.codec.is_none() && !source.schema.is_empty() && matches!(source.config, SourceOptions::Kafka(_) | SourceOptions::File(_)) {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("source '{}' has columns, but no format to read them from bytes", create.name.text),
        )
        .with_hint(
            "add format = 'json' (or 'csv', 'parquet') to WITH; without columns a source without a format gives one column, value BYTEA",
        )
        .at(create.name.position));
    }
    if of_source(&source).is_empty() && !pending {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("source '{}' declares no columns, and they cannot be taken from its rows", create.name.text),
        )
        .with_hint("declare them: CREATE SOURCE name (column TYPE, …) WITH (…)")
        .at(create.name.position));
    }
    let routed = if source.on_error.policy == ErrorPolicy::Route {
        Some(("bad records", "on_error", "skip leaves them out and counts them"))
    } else if source.time.late_event_policy == LatePolicy::Route {
        Some(("late rows", "late_event_policy", "drop leaves them out and counts them"))
    } else {
        None
    };
    if let Some((what, option, instead)) = routed {
        // A route leads to an operator of the same job, and a source of the catalog is in none.
        return Err(Error::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("a source of SQL cannot route its {what}: {option} = 'route' is for jobs that are written as YAML"),
        )
        .with_hint(format!("{instead}; SHOW JOB SPEC prints a job as YAML, to which a route can be added"))
        .at(create.name.position));
    }
    let probe = probe(Some(source.clone()), None)?;
    if let Some(fault) = check(&probe, Horizon::Local).into_iter().next() {
        return Err(given.error(&named(fault, "source", &create.name.text), create.name.position));
    }
    if pending {
        return Ok(Drafted::Pending(Box::new(source)));
    }
    Ok(Drafted::Known(CatalogEntry {
        name: create.name.text.clone(),
        object: CatalogObject::Source(Box::new(source)),
        sql: create.sql.clone(),
        created_at_ms: now_ms,
    }))
}

/// The catalog entry of a CREATE SINK.
///
/// Errors: everything that is wrong with it, with its place.
pub(crate) fn sink(create: &CreateSink, now_ms: i64) -> Result<CatalogEntry, Error> {
    let mut given = Given::split(&create.options, options::is_sink_field);
    let Some(connector) = given.take("connector") else {
        return Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("sink '{}' has no connector", create.name.text))
            .with_hint("add connector = 'kafka' (or 'file', 'stdout', 'drop') to WITH")
            .at(create.name.position));
    };
    if connector.value == "result" {
        return Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, "a result table belongs to its job and is not created by itself")
            .with_hint("leave INTO out of CREATE JOB: the job then has a result table of its name")
            .at(connector.value_position));
    }
    let output_type = connector.value.clone();
    let codec = given.format()?;
    let config =
        options::decode_sink(&output_type, given.connector(&output_type)).map_err(|fault| given.error(&fault, create.name.position))?;
    let operator_id = OperatorId::new(PLACEHOLDER).map_err(|fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message))?;
    let mut sink =
        Sink { operator_id, output_type, config, codec, delivery: Delivery::default(), key: Vec::new(), on_error: OnError::default() };
    options::apply_sink_options(&mut sink, &given.fields()).map_err(|fault| given.error(&fault, create.name.position))?;
    let probe = probe(None, Some(sink.clone()))?;
    // Columns of the rows that will come are not known yet: rules on them run with the job.
    let own = check(&probe, Horizon::Local).into_iter().find(|fault| fault.code != "unknown_column");
    if let Some(fault) = own {
        return Err(given.error(&named(fault, "sink", &create.name.text), create.name.position));
    }
    Ok(CatalogEntry {
        name: create.name.text.clone(),
        object: CatalogObject::Sink(Box::new(sink)),
        sql: create.sql.clone(),
        created_at_ms: now_ms,
    })
}

/// A fault of a probe, under the name that the user knows.
fn named(fault: Fault, kind: &str, name: &str) -> Fault {
    let of = |text: &str| {
        text.replace(&format!("{kind} '{PLACEHOLDER}'"), &format!("{kind} '{name}'"))
            .replace(&format!("'{PLACEHOLDER}'"), &format!("'{name}'"))
    };
    Fault { message: of(&fault.message), hint: of(&fault.hint), ..fault }
}

fn watermark(create: &CreateSource, source: &mut Source) -> Result<(), Error> {
    let Some(clause) = &create.watermark else { return Ok(()) };
    let columns = of_source(source);
    match columns.iter().find(|column| column.name == clause.column.text) {
        None => {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Error::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("the watermark's column '{}' is not among the source's columns", clause.column.text),
            )
            .with_hint(format!("columns here: {}", names.join(", ")))
            .at(clause.column.position));
        }
        Some(column) if matches!(column.ty, ColumnType::BigInt | ColumnType::Timestamp { .. }) => {}
        Some(column) => {
            return Err(Error::new(
                sqlstate::DATATYPE_MISMATCH,
                format!("the watermark's column '{}' is {}, which is no time", column.name, column.ty),
            )
            .with_hint("use a TIMESTAMP or BIGINT column")
            .at(clause.column.position));
        }
    }
    source.time.mode = TimeMode::EventTime;
    source.time.timestamp_field = Some(clause.column.text.clone());
    source.time.watermark = Some(WatermarkPolicy { out_of_orderness_ms: clause.bound_ms, ..WatermarkPolicy::default() });
    Ok(())
}

/// A job of one source and one sink, to run the checks on.
fn probe(source: Option<Source>, sink: Option<Sink>) -> Result<JobSpec, Error> {
    let internal = |fault: Fault| Error::new(sqlstate::INTERNAL_ERROR, fault.message);
    let mut spec = bare(JobId::new("probe").map_err(internal)?);
    let other = OperatorId::new("other").map_err(internal)?;
    let from = source.as_ref().map_or_else(|| other.clone(), |source| source.operator_id.clone());
    let to = sink.as_ref().map_or_else(|| other.clone(), |sink| sink.operator_id.clone());
    spec.operators = vec![
        Operator { id: from.clone(), parallelism: None, kind: OperatorKind::Source },
        Operator { id: to.clone(), parallelism: None, kind: OperatorKind::Sink },
    ];
    spec.edges = vec![Edge {
        id: EdgeId::new("e1").map_err(internal)?,
        from: from.clone(),
        to: to.clone(),
        partitioned: false,
        broadcast: false,
        ordered: false,
    }];
    let plain = SourceColumn { name: "value".to_owned(), ty: ColumnType::BigInt, not_null: false, timestamp_unit: None };
    spec.sources = vec![source.unwrap_or(Source {
        operator_id: from,
        input_type: "values".to_owned(),
        config: SourceOptions::Values(Values { rows: Vec::new() }),
        codec: None,
        schema: vec![plain],
        timestamp_unit: None,
        time: Time::default(),
        durability: None,
        on_error: OnError::default(),
        batch: Batch::default(),
    })];
    spec.sinks = vec![sink.unwrap_or(Sink {
        operator_id: to,
        output_type: "drop".to_owned(),
        config: SinkOptions::Drop(Nothing {}),
        codec: None,
        delivery: Delivery::default(),
        key: Vec::new(),
        on_error: OnError::default(),
    })];
    Ok(spec)
}

/// Cells of inline rows as JSON, each cast to its column's type.
fn values(rows: &[Vec<(sqlparser::ast::Expr, usize)>], columns: &[ColumnDef], places: &Places) -> Result<Vec<Vec<Json>>, Error> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        if row.len() != columns.len() {
            let position = row.first().map_or(1, |(_, position)| *position);
            return Err(
                Error::new(sqlstate::SYNTAX_ERROR, format!("this row has {} values for {} columns", row.len(), columns.len())).at(position)
            );
        }
        let mut cells = Vec::with_capacity(row.len());
        for ((expr, position), column) in row.iter().zip(columns) {
            let wrong = |error: Error| {
                let message = format!("column '{}': {}", column.name.text, error.message);
                Error { message, position: error.position.or(Some(*position)), ..error }
            };
            if let Some(text) = not_finite(expr, column.ty) {
                cells.push(Json::from(text));
                continue;
            }
            let literal = constant(expr.clone(), column.ty, places).map_err(wrong)?;
            if column.not_null && matches!(literal, Literal::Null(_)) {
                return Err(Error::new("23502", format!("column '{}' is NOT NULL", column.name.text)).at(*position));
            }
            cells.push(json(&literal));
        }
        all.push(cells);
    }
    Ok(all)
}

/// `'NaN'`, `'Infinity'` and `'-Infinity'` for a column of floats, which neither constants nor JSON
/// numbers can say: they stay text, which the reader of the rows takes.
fn not_finite(expr: &sqlparser::ast::Expr, ty: ColumnType) -> Option<&'static str> {
    if !matches!(ty, ColumnType::Real | ColumnType::Double) {
        return None;
    }
    let sqlparser::ast::Expr::Value(value) = expr else { return None };
    let sqlparser::ast::Value::SingleQuotedString(text) = &value.value else { return None };
    match weir_planner::value::double(text.as_bytes()) {
        Ok(number) if number.is_nan() => Some("NaN"),
        Ok(f64::INFINITY) => Some("Infinity"),
        Ok(f64::NEG_INFINITY) => Some("-Infinity"),
        Ok(_) | Err(_) => None,
    }
}

/// A constant as the JSON reader takes it: text for types that JSON lacks.
fn json(literal: &Literal) -> Json {
    match literal {
        Literal::Null(_) => Json::Null,
        Literal::Boolean(value) => Json::from(*value),
        Literal::SmallInt(value) => Json::from(*value),
        Literal::Integer(value) => Json::from(*value),
        Literal::BigInt(value) => Json::from(*value),
        Literal::Real(value) => Json::from(*value),
        Literal::Double(value) => Json::from(*value),
        Literal::Text(text) => Json::from(text.as_str()),
        Literal::Bytea(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Json::from(format!("\\x{hex}"))
        }
        Literal::Decimal { .. } | Literal::Date(_) | Literal::Timestamp { .. } => quoted_part(&literal.to_string()),
        Literal::Interval { .. } => Json::Null,
    }
}

/// What stands in quotes in `CAST('…' AS type)`, or the bare number of one without.
fn quoted_part(cast: &str) -> Json {
    match cast.split('\'').nth(1) {
        Some(text) => Json::from(text),
        None => cast
            .trim_start_matches("CAST(")
            .split_whitespace()
            .next()
            .and_then(|number| number.parse::<i64>().ok())
            .map_or(Json::Null, Json::from),
    }
}

/// WITH options by whom they are for.
struct Given<'a> {
    all: &'a [WithOption],
    own: Vec<&'a WithOption>,
    format: Vec<&'a WithOption>,
    fields: Vec<&'a WithOption>,
}

impl<'a> Given<'a> {
    fn split(all: &'a [WithOption], is_field: impl Fn(&str) -> bool) -> Given<'a> {
        let (mut own, mut format, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for option in all {
            if option.key == "format" || option.key.starts_with("format.") {
                format.push(option);
            } else if is_field(&option.key) {
                fields.push(option);
            } else {
                own.push(option);
            }
        }
        Given { all, own, format, fields }
    }

    fn take(&mut self, key: &str) -> Option<&'a WithOption> {
        let at = self.own.iter().position(|option| option.key == key)?;
        Some(self.own.remove(at))
    }

    /// `format = 'csv'` with `format.header = true`.
    fn format(&self) -> Result<Option<Format>, Error> {
        let Some(name) = self.format.iter().find(|option| option.key == "format") else {
            return match self.format.first() {
                Some(stray) => Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("'{}' is given without a format", stray.key))
                    .with_hint("add format = 'csv'")
                    .at(stray.key_position)),
                None => Ok(None),
            };
        };
        let within =
            |option: &&WithOption| option.key.strip_prefix("format.").map(|key| (key.to_owned(), Json::from(option.value.as_str())));
        let fields: Fields<String, Json> = self.format.iter().filter_map(within).collect();
        let decoded = options::decode_format(&name.value, fields).map_err(|fault| {
            let inner = self
                .format
                .iter()
                .find(|option| option.key == format!("format.{}", fault.path))
                .map_or(name.value_position, |option| option.key_position);
            of_fault(&fault, inner)
        });
        decoded.map(Some)
    }

    /// The connector's own options; client settings (`sasl.…`, `ssl.…`, `properties.…`) go together, and so do `headers.…`.
    fn connector(&self, connector: &str) -> Fields<String, Json> {
        let mut fields = Fields::new();
        let (mut properties, mut headers) = (Fields::new(), Fields::new());
        for option in &self.own {
            let value = Json::from(option.value.as_str());
            let setting = option.key.strip_prefix("properties.").or_else(|| {
                let known = ["sasl.", "ssl.", "security.protocol"].iter().any(|prefix| option.key.starts_with(prefix));
                known.then_some(option.key.as_str())
            });
            match (setting, option.key.strip_prefix("headers.")) {
                (Some(setting), _) if connector == "kafka" => properties.insert(setting.to_owned(), value),
                (_, Some(header)) if connector == "http" => headers.insert(header.to_owned(), value),
                _ => fields.insert(option.key.clone(), value),
            };
        }
        for (name, together) in [("properties", properties), ("headers", headers)] {
            if !together.is_empty() {
                fields.insert(name.to_owned(), Json::Object(together));
            }
        }
        fields
    }

    fn fields(&self) -> Fields<String, Json> {
        self.fields.iter().map(|option| (option.key.clone(), Json::from(option.value.as_str()))).collect()
    }

    /// No option says over again what the WATERMARK clause says: one of them would be lost.
    fn beside_watermark(&self, create: &CreateSource) -> Result<(), Error> {
        let Some(clause) = &create.watermark else { return Ok(()) };
        let said = |option: &&&WithOption| {
            let last = option.key.rsplit('.').next().unwrap_or(&option.key);
            matches!(last.trim_end_matches("_ms"), "out_of_orderness" | "timestamp_field")
        };
        let Some(option) = self.fields.iter().find(said) else { return Ok(()) };
        let column = &clause.column.text;
        let message = format!("option '{}' says over again what WATERMARK FOR {column} says", option.key);
        Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, message)
            .with_hint(format!("leave the option out and write WATERMARK FOR {column} AS {column} - INTERVAL '…', or leave the clause out"))
            .at(option.key_position))
    }

    /// A fault at the option that it names, else at `fallback`.
    fn error(&self, fault: &Fault, fallback: usize) -> Error {
        located(self.all, fault, fallback)
    }
}

/// A fault as an error at the WITH option that its path names, else at `fallback`.
pub(crate) fn located(options: &[WithOption], fault: &Fault, fallback: usize) -> Error {
    let short = |key: &str| key.trim_end_matches("_ms").to_owned();
    let path = fault.path.split_once("]").map_or(fault.path.as_str(), |(_, rest)| rest.trim_start_matches('.'));
    let bare = ["config.", "time.watermark.", "time."].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    let names = |option: &&WithOption| {
        let key = short(&option.key);
        [path, bare].iter().any(|path| short(path) == key) || (!bare.is_empty() && key.ends_with(&format!(".{}", short(bare))))
    };
    // `on_error = 'x'` stands for `on_error.policy`.
    let whole = |option: &&WithOption| path.rsplit_once('.').is_some_and(|(group, _)| option.key == group);
    let connector = |option: &&WithOption| bare.is_empty() && option.key == "connector" && fault.code.starts_with("unknown");
    // A rule on two fields of one group names one of them: the other is as good a place.
    let sibling = |option: &&WithOption| path.rsplit_once('.').is_some_and(|(group, _)| option.key.starts_with(&format!("{group}.")));
    let option = options
        .iter()
        .find(names)
        .or_else(|| options.iter().find(whole))
        .or_else(|| options.iter().find(connector))
        .or_else(|| options.iter().find(sibling));
    if let Some(option) = option.filter(|_| fault.code == "unknown_field")
        && let Some(near) = nearest(&option.key, COMMON_OPTIONS.iter().copied())
    {
        return of_fault(&fault.clone().with_hint(format!("did you mean '{near}'?")), option.key_position);
    }
    let value = fault.code.starts_with("bad") || fault.code.contains("range") || fault.code.contains("value");
    let position =
        option.map_or(fallback, |option| if value || option.key == "connector" { option.value_position } else { option.key_position });
    of_fault(fault, position)
}

fn unknown_option(option: &WithOption, what: &str) -> Error {
    Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("{what} takes no option '{}'", option.key)).at(option.key_position)
}
