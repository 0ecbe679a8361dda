//! Functions that psql, drivers and people expect of a Postgres: what is visible, who owns it,
//! how a type is printed, what a setting is.

use super::pg_catalog::{self, types};
use super::scope::{self, Scope};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What Weir says its version is; the number is that of the Postgres whose catalog it imitates.
pub(crate) const SERVER_VERSION: &str = concat!("15.0 (Weir ", env!("CARGO_PKG_VERSION"), ")");

/// Settings that can be asked for with SHOW, `current_setting` and `pg_settings`.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "on"),
    ("jit", "off"),
    ("lc_collate", "C"),
    ("lc_ctype", "C"),
    ("max_identifier_length", "63"),
    ("search_path", "public"),
    ("server_encoding", "UTF8"),
    ("server_version", SERVER_VERSION),
    ("server_version_num", "150000"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("timezone", "UTC"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
];

/// Name of the function that turns a name into the number of its relation.
pub(super) const NUMBER_OF: &str = "weir_regclass_number";
/// Name of the function that turns a name into the number of its type.
pub(super) const TYPE_NUMBER_OF: &str = "weir_regtype_number";
/// Name of the function that turns a number into the name of its relation.
pub(super) const NAME_OF: &str = "weir_regclass_name";
/// Name of the function that turns a number into the name of its schema.
pub(super) const SCHEMA_OF: &str = "weir_regnamespace_name";

type Body = Arc<dyn Fn(&[ScalarValue]) -> Result<ScalarValue> + Send + Sync>;

/// A function that takes anything and is worked out row by row: it meets catalog rows only.
struct Plain {
    name: &'static str,
    returns: DataType,
    signature: Signature,
    body: Body,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Plain {}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Plain {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let of_row = |i: usize| -> Result<ScalarValue> {
            let values: Result<Vec<ScalarValue>> = args
                .args
                .iter()
                .map(|arg| match arg {
                    ColumnarValue::Scalar(value) => Ok(value.clone()),
                    ColumnarValue::Array(array) => ScalarValue::try_from_array(array, i),
                })
                .collect();
            (self.body)(&values?)
        };
        if args.args.iter().all(is_scalar) {
            return Ok(ColumnarValue::Scalar(of_row(0)?));
        }
        if args.number_rows == 0 {
            return Ok(ColumnarValue::Array(arrow::array::new_empty_array(&self.returns)));
        }
        let values: Result<Vec<ScalarValue>> = (0..args.number_rows).map(of_row).collect();
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values?)?))
    }
}

/// Every function for one query.
pub(super) fn all(scope: &Arc<Scope>) -> Vec<Arc<ScalarUDF>> {
    let mut all = Vec::new();
    let mut add = |name: &'static str, returns: DataType, body: Body| {
        // Stable, not immutable: the answer holds for this query only.
        let signature = Signature::one_of(
            vec![datafusion::logical_expr::TypeSignature::Nullary, datafusion::logical_expr::TypeSignature::VariadicAny],
            Volatility::Stable,
        );
        all.push(Arc::new(ScalarUDF::from(Plain { name, returns, signature, body })));
    };
    constants(scope, &mut add);
    lookups(scope, &mut add);
    settings(&mut add);
    all
}

type Add<'a> = &'a mut dyn FnMut(&'static str, DataType, Body);

fn text(value: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(value.into()))
}

fn constants(scope: &Scope, add: Add<'_>) {
    let mut constant = |name: &'static str, value: ScalarValue| {
        let returns = value.data_type();
        add(name, returns, Arc::new(move |_| Ok(value.clone())));
    };
    let session = &scope.session;
    constant("version", text(format!("PostgreSQL {SERVER_VERSION}")));
    constant("current_schema", text(scope::PUBLIC));
    for name in ["current_database", "current_catalog"] {
        constant(name, text(session.database.as_str()));
    }
    for name in ["current_user", "session_user", "user", "current_role"] {
        constant(name, text(session.user.as_str()));
    }
    constant("pg_backend_pid", ScalarValue::Int32(Some(session.process_id)));
    constant("pg_is_in_recovery", ScalarValue::Boolean(Some(false)));
    constant("pg_is_other_temp_schema", ScalarValue::Boolean(Some(false)));
    constant("pg_my_temp_schema", ScalarValue::Int64(Some(0)));
    constant("pg_relation_is_publishable", ScalarValue::Boolean(Some(false)));
    constant("pg_encoding_to_char", text("UTF8"));
    constant("pg_client_encoding", text("UTF8"));
    let schemas = [scope::PG_CATALOG, scope::PUBLIC].map(ScalarValue::from);
    constant("current_schemas", ScalarValue::List(ScalarValue::new_list(&schemas, &DataType::Utf8, true)));
    // Who connects may read everything; there are no roles yet.
    for name in [
        "has_table_privilege", "has_schema_privilege", "has_database_privilege", "has_column_privilege", "has_any_column_privilege",
        "has_function_privilege", "has_sequence_privilege", "has_tablespace_privilege", "pg_has_role", "pg_function_is_visible",
        "pg_type_is_visible", "pg_operator_is_visible", "pg_collation_is_visible", "pg_opclass_is_visible", "pg_ts_config_is_visible",
    ] {
        constant(name, ScalarValue::Boolean(Some(true)));
    }
    // Weir has none of what these tell about.
    for name in [
        "pg_get_expr",
        "obj_description",
        "col_description",
        "shobj_description",
        "pg_get_viewdef",
        "pg_get_indexdef",
        "pg_get_constraintdef",
        "pg_get_functiondef",
        "pg_get_function_result",
        "pg_get_function_arguments",
        "pg_get_function_identity_arguments",
        "pg_get_serial_sequence",
        "pg_get_partkeydef",
        "pg_get_triggerdef",
        "pg_get_ruledef",
        "pg_get_statisticsobjdef_columns",
        "pg_tablespace_location",
        "pg_advisory_lock",
        "pg_advisory_unlock",
        "pg_advisory_unlock_all",
    ] {
        constant(name, ScalarValue::Utf8(None));
    }
    for name in ["pg_table_size", "pg_relation_size", "pg_total_relation_size", "pg_indexes_size", "pg_database_size"] {
        constant(name, ScalarValue::Int64(None));
    }
}

fn lookups(scope: &Arc<Scope>, add: Add<'_>) {
    let relations = scope.relations();
    let on_path = |relation: &&scope::Relation| relation.schema == scope::PUBLIC || relation.schema == scope::PG_CATALOG;
    let visible: HashSet<i64> = relations.iter().filter(on_path).map(|r| scope::oid(r.schema, &r.name)).collect();
    add(
        "pg_table_is_visible",
        DataType::Boolean,
        Arc::new(move |args| Ok(ScalarValue::Boolean(number(args, 0)?.map(|oid| visible.contains(&oid))))),
    );
    let user = scope.session.user.clone();
    add(
        "pg_get_userbyid",
        DataType::Utf8,
        Arc::new(move |args| {
            Ok(ScalarValue::Utf8(
                number(args, 0)?.map(|oid| if oid == pg_catalog::OWNER_OID { user.clone() } else { format!("unknown (OID={oid})") }),
            ))
        }),
    );
    add(
        "format_type",
        DataType::Utf8,
        Arc::new(|args| {
            let modifier = number(args, 1)?.unwrap_or(-1);
            Ok(ScalarValue::Utf8(number(args, 0)?.map(|oid| types::format(oid, modifier).unwrap_or_else(|| "???".to_owned()))))
        }),
    );
    add("quote_ident", DataType::Utf8, Arc::new(|args| Ok(ScalarValue::Utf8(string(args, 0).map(|name| quote_ident(&name))))));
    add("pg_size_pretty", DataType::Utf8, Arc::new(|args| Ok(ScalarValue::Utf8(number(args, 0)?.map(size_pretty)))));
    let name_of = |relation: &scope::Relation| {
        let name = quote_ident(&relation.name);
        if on_path(&relation) { name } else { format!("{}.{name}", relation.schema) }
    };
    let names: HashMap<i64, String> = relations.iter().map(|r| (scope::oid(r.schema, &r.name), name_of(r))).collect();
    add(
        NAME_OF,
        DataType::Utf8,
        Arc::new(move |args| {
            Ok(ScalarValue::Utf8(
                number(args, 0)?
                    .map(|oid| names.get(&oid).cloned().unwrap_or_else(|| if oid == 0 { "-".to_owned() } else { oid.to_string() })),
            ))
        }),
    );
    let schemas: HashMap<i64, &str> = super::catalog::SCHEMAS.iter().map(|name| (pg_catalog::namespace_oid(name), *name)).collect();
    add(
        SCHEMA_OF,
        DataType::Utf8,
        Arc::new(move |args| {
            Ok(ScalarValue::Utf8(number(args, 0)?.map(|oid| schemas.get(&oid).map_or_else(|| oid.to_string(), |name| (*name).to_owned()))))
        }),
    );
    let (known, known_too) = (Arc::clone(scope), Arc::clone(scope));
    add(
        NUMBER_OF,
        DataType::Int64,
        Arc::new(move |args| {
            let Some(name) = string(args, 0) else { return Ok(ScalarValue::Int64(None)) };
            if let Ok(oid) = name.parse::<i64>() {
                return Ok(ScalarValue::Int64(Some(oid)));
            }
            match pg_catalog::relation_by_name(&known, &name) {
                Some(relation) => Ok(ScalarValue::Int64(Some(scope::oid(relation.schema, &relation.name)))),
                None => exec_err!("relation \"{name}\" does not exist"),
            }
        }),
    );
    add(
        "to_regclass",
        DataType::Utf8,
        Arc::new(move |args| {
            let found = string(args, 0).and_then(|name| pg_catalog::relation_by_name(&known_too, &name));
            Ok(ScalarValue::Utf8(found.map(|relation| relation.name)))
        }),
    );
    add(
        TYPE_NUMBER_OF,
        DataType::Int64,
        Arc::new(|args| Ok(ScalarValue::Int64(string(args, 0).and_then(|name| types::by_name(&name)).map(|ty| i64::from(ty.oid))))),
    );
    add(
        "to_regtype",
        DataType::Utf8,
        Arc::new(|args| Ok(ScalarValue::Utf8(string(args, 0).and_then(|name| types::by_name(&name)).map(|ty| ty.long_name.to_owned())))),
    );
}

fn settings(add: Add<'_>) {
    add(
        "current_setting",
        DataType::Utf8,
        Arc::new(|args| {
            let Some(name) = string(args, 0) else { return Ok(ScalarValue::Utf8(None)) };
            match setting(&name) {
                Some(value) => Ok(text(value)),
                None if matches!(args.get(1), Some(ScalarValue::Boolean(Some(true)))) => Ok(ScalarValue::Utf8(None)),
                None => exec_err!("unrecognized configuration parameter \"{name}\""),
            }
        }),
    );
    // As SET, it is taken and changes nothing.
    add("set_config", DataType::Utf8, Arc::new(|args| Ok(ScalarValue::Utf8(string(args, 1)))));
}

/// The value of a setting, by its name in any case.
pub(crate) fn setting(name: &str) -> Option<&'static str> {
    let folded = name.to_lowercase();
    SETTINGS.iter().find(|(known, _)| *known == folded).map(|(_, value)| *value)
}

fn number(args: &[ScalarValue], i: usize) -> Result<Option<i64>> {
    match args.get(i) {
        None => Ok(None),
        Some(value) => match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(value) => Ok(value),
            other => exec_err!("expected a number, got {other}"),
        },
    }
}

fn string(args: &[ScalarValue], i: usize) -> Option<String> {
    match args.get(i)? {
        ScalarValue::Utf8(value) | ScalarValue::LargeUtf8(value) | ScalarValue::Utf8View(value) => value.clone(),
        value if value.is_null() => None,
        other => Some(other.to_string()),
    }
}

/// A name as it must be written in SQL.
pub(super) fn quote_ident(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain && name.chars().next().is_some_and(|c| !c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn size_pretty(bytes: i64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value.abs() >= 10_240 && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", units.get(unit).copied().unwrap_or_default())
}
