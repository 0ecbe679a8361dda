//! Postgres' own tables, as far as psql and drivers ask: relations, columns, types, schemas, one
//! database, one owner. What Weir has none of (indexes, constraints, triggers, …) is a table
//! without rows (PG-3, docs/decision/002).

mod empty;
pub(crate) mod types;

use super::cells::{self, Cell, Columns, Kind};
use super::information_schema;
use super::scope::{self, Relation, RelationKind, Scope};
use datafusion::catalog::TableProvider;
use datafusion::error::Result;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_hub::hub::{CatalogEntry, CatalogObject};

pub(super) use empty::NAMES as ALWAYS_EMPTY;

/// Number of the one owner, who is also the first role.
pub(super) const OWNER_OID: i64 = 10;
/// The one owner.
pub(super) const OWNER: &str = "weir";
const DATABASE_OID: i64 = 16_383;
const HEAP_OID: i64 = 2;
const DEFAULT_COLLATION_OID: i64 = 100;

/// The table called `name`, with its rows as of now.
pub(super) fn table(scope: &Scope, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some((_, columns)) = tables().find(|(known, _)| *known == name) else { return Ok(None) };
    let rows = match name {
        "pg_class" => scope.relations().iter().map(class_row).collect(),
        "pg_attribute" => scope.relations().iter().flat_map(attribute_rows).collect(),
        "pg_namespace" => super::catalog::SCHEMAS.iter().map(|name| namespace_row(name)).collect(),
        "pg_type" => types::ALL.iter().flat_map(type_rows).collect(),
        "pg_database" => vec![database_row(scope)],
        "pg_roles" => vec![role_row(scope)],
        "pg_user" => vec![vec![owner(scope), OWNER_OID.into(), true.into(), true.into()]],
        "pg_am" => vec![vec![HEAP_OID.into(), "heap".into(), "t".into()]],
        "pg_settings" => super::functions::SETTINGS.iter().map(|(name, value)| setting_row(name, value)).collect(),
        "pg_tables" => scope.relations().iter().filter(|r| is_table(r)).map(tables_row).collect(),
        "pg_foreign_table" => scope.entries.iter().map(foreign_row).collect(),
        "pg_foreign_server" => servers(scope),
        "pg_tablespace" => vec![vec![1663_i64.into(), "pg_default".into(), OWNER_OID.into(), Cell::Null, Cell::Null]],
        _ => Vec::new(),
    };
    cells::table(columns, &rows).map(Some)
}

/// Postgres' own tables and those of `information_schema` as relations.
pub(super) fn relations() -> Vec<Relation> {
    let of = |schema: &'static str| {
        move |(name, columns): (&'static str, Columns)| Relation {
            schema,
            name: name.to_owned(),
            kind: RelationKind::Catalog,
            columns: cells::schema(columns),
        }
    };
    let ours = tables().map(of(scope::PG_CATALOG));
    ours.chain(information_schema::TABLES.iter().copied().map(of(scope::INFORMATION_SCHEMA))).collect()
}

fn tables() -> impl Iterator<Item = (&'static str, Columns)> {
    FILLED.iter().chain(empty::TABLES).copied()
}

/// A schema's number: Postgres' own where it has one.
pub(super) fn namespace_oid(name: &str) -> i64 {
    match name {
        scope::PG_CATALOG => 11,
        scope::PUBLIC => 2200,
        scope::INFORMATION_SCHEMA => 13_000,
        other => scope::oid("", other),
    }
}

/// The kinds that `\dt` lists.
fn is_table(relation: &Relation) -> bool {
    relkind(relation.kind) == "r"
}

fn relkind(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Result | RelationKind::System | RelationKind::Catalog => "r",
        // Their rows live elsewhere: psql calls them foreign tables.
        RelationKind::Source | RelationKind::Sink => "f",
    }
}

const FILLED: &[(&str, Columns)] = &[
    ("pg_class", PG_CLASS),
    ("pg_attribute", PG_ATTRIBUTE),
    ("pg_namespace", &[("oid", Kind::Int), ("nspname", Kind::Text), ("nspowner", Kind::Int), ("nspacl", Kind::Texts)]),
    ("pg_type", PG_TYPE),
    ("pg_database", PG_DATABASE),
    ("pg_roles", PG_ROLES),
    ("pg_user", &[("usename", Kind::Text), ("usesysid", Kind::Int), ("usecreatedb", Kind::Bool), ("usesuper", Kind::Bool)]),
    ("pg_am", &[("oid", Kind::Int), ("amname", Kind::Text), ("amtype", Kind::Text)]),
    ("pg_settings", PG_SETTINGS),
    ("pg_tables", PG_TABLES),
    ("pg_foreign_table", &[("ftrelid", Kind::Int), ("ftserver", Kind::Int), ("ftoptions", Kind::Texts)]),
    (
        "pg_foreign_server",
        &[("oid", Kind::Int), ("srvname", Kind::Text), ("srvowner", Kind::Int), ("srvfdw", Kind::Int), ("srvoptions", Kind::Texts)],
    ),
    (
        "pg_tablespace",
        &[("oid", Kind::Int), ("spcname", Kind::Text), ("spcowner", Kind::Int), ("spcacl", Kind::Texts), ("spcoptions", Kind::Texts)],
    ),
];

const PG_CLASS: Columns = &[
    ("oid", Kind::Int),
    ("relname", Kind::Text),
    ("relnamespace", Kind::Int),
    ("reltype", Kind::Int),
    ("reloftype", Kind::Int),
    ("relowner", Kind::Int),
    ("relam", Kind::Int),
    ("relfilenode", Kind::Int),
    ("reltablespace", Kind::Int),
    ("relpages", Kind::Int),
    ("reltuples", Kind::Float),
    ("relallvisible", Kind::Int),
    ("reltoastrelid", Kind::Int),
    ("relhasindex", Kind::Bool),
    ("relisshared", Kind::Bool),
    ("relpersistence", Kind::Text),
    ("relkind", Kind::Text),
    ("relnatts", Kind::Small),
    ("relchecks", Kind::Small),
    ("relhasrules", Kind::Bool),
    ("relhastriggers", Kind::Bool),
    ("relhassubclass", Kind::Bool),
    ("relrowsecurity", Kind::Bool),
    ("relforcerowsecurity", Kind::Bool),
    ("relispopulated", Kind::Bool),
    ("relreplident", Kind::Text),
    ("relispartition", Kind::Bool),
    ("relrewrite", Kind::Int),
    ("relacl", Kind::Texts),
    ("reloptions", Kind::Texts),
    ("relpartbound", Kind::Text),
];

fn class_row(relation: &Relation) -> Vec<Cell> {
    vec![
        scope::oid(relation.schema, &relation.name).into(),
        relation.name.as_str().into(),
        namespace_oid(relation.schema).into(),
        0_i64.into(),
        0_i64.into(),
        OWNER_OID.into(),
        if relkind(relation.kind) == "r" { HEAP_OID } else { 0 }.into(),
        0_i64.into(),
        0_i64.into(),
        0_i64.into(),
        // Postgres' word for "never counted".
        Cell::Float(-1.0),
        0_i64.into(),
        0_i64.into(),
        false.into(),
        false.into(),
        "p".into(),
        relkind(relation.kind).into(),
        (relation.columns.fields().len() as i64).into(),
        0_i64.into(),
        false.into(),
        false.into(),
        false.into(),
        false.into(),
        false.into(),
        true.into(),
        "d".into(),
        false.into(),
        0_i64.into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ]
}

const PG_ATTRIBUTE: Columns = &[
    ("attrelid", Kind::Int),
    ("attname", Kind::Text),
    ("atttypid", Kind::Int),
    ("attstattarget", Kind::Int),
    ("attlen", Kind::Small),
    ("attnum", Kind::Small),
    ("attndims", Kind::Int),
    ("atttypmod", Kind::Int),
    ("attbyval", Kind::Bool),
    ("attalign", Kind::Text),
    ("attstorage", Kind::Text),
    ("attcompression", Kind::Text),
    ("attnotnull", Kind::Bool),
    ("atthasdef", Kind::Bool),
    ("atthasmissing", Kind::Bool),
    ("attidentity", Kind::Text),
    ("attgenerated", Kind::Text),
    ("attisdropped", Kind::Bool),
    ("attislocal", Kind::Bool),
    ("attinhcount", Kind::Int),
    ("attcollation", Kind::Int),
    ("attacl", Kind::Texts),
    ("attoptions", Kind::Texts),
    ("attfdwoptions", Kind::Texts),
];

fn attribute_rows(relation: &Relation) -> Vec<Vec<Cell>> {
    let row = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let ty = types::of(field.data_type());
        let is_text = ty.oid == types::TEXT.oid;
        vec![
            scope::oid(relation.schema, &relation.name).into(),
            field.name().as_str().into(),
            i64::from(ty.oid).into(),
            (-1_i64).into(),
            i64::from(ty.size).into(),
            (i as i64 + 1).into(),
            0_i64.into(),
            i64::from(types::modifier(field.data_type())).into(),
            (ty.size > 0 && ty.size <= 8).into(),
            "i".into(),
            "p".into(),
            "".into(),
            (!field.is_nullable()).into(),
            false.into(),
            false.into(),
            "".into(),
            "".into(),
            false.into(),
            true.into(),
            0_i64.into(),
            if is_text { DEFAULT_COLLATION_OID } else { 0 }.into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ]
    };
    relation.columns.fields().iter().enumerate().map(row).collect()
}

fn namespace_row(name: &str) -> Vec<Cell> {
    vec![namespace_oid(name).into(), name.into(), OWNER_OID.into(), Cell::Null]
}

const PG_TYPE: Columns = &[
    ("oid", Kind::Int),
    ("typname", Kind::Text),
    ("typnamespace", Kind::Int),
    ("typowner", Kind::Int),
    ("typlen", Kind::Small),
    ("typbyval", Kind::Bool),
    ("typtype", Kind::Text),
    ("typcategory", Kind::Text),
    ("typispreferred", Kind::Bool),
    ("typisdefined", Kind::Bool),
    ("typdelim", Kind::Text),
    ("typrelid", Kind::Int),
    ("typsubscript", Kind::Text),
    ("typelem", Kind::Int),
    ("typarray", Kind::Int),
    ("typinput", Kind::Text),
    ("typoutput", Kind::Text),
    ("typreceive", Kind::Text),
    ("typsend", Kind::Text),
    ("typnotnull", Kind::Bool),
    ("typbasetype", Kind::Int),
    ("typtypmod", Kind::Int),
    ("typndims", Kind::Int),
    ("typcollation", Kind::Int),
    ("typdefault", Kind::Text),
];

/// A type and its array type.
fn type_rows(ty: &types::PgType) -> Vec<Vec<Cell>> {
    let row = |oid: u32, name: String, size: i16, category: &str, element: u32, array: u32| {
        let text = |suffix: &str| Cell::Text(if element == 0 { format!("{}{suffix}", ty.name) } else { format!("array_{suffix}") });
        vec![
            i64::from(oid).into(),
            name.into(),
            namespace_oid(scope::PG_CATALOG).into(),
            OWNER_OID.into(),
            i64::from(size).into(),
            (size > 0 && size <= 8).into(),
            "b".into(),
            category.into(),
            false.into(),
            true.into(),
            ",".into(),
            0_i64.into(),
            if element == 0 { "-" } else { "array_subscript_handler" }.into(),
            i64::from(element).into(),
            i64::from(array).into(),
            text("in"),
            text("out"),
            text("recv"),
            text("send"),
            false.into(),
            0_i64.into(),
            (-1_i64).into(),
            0_i64.into(),
            if ty.category == "S" { DEFAULT_COLLATION_OID } else { 0 }.into(),
            Cell::Null,
        ]
    };
    let mut rows = vec![row(ty.oid, ty.name.to_owned(), ty.size, ty.category, 0, ty.array)];
    if ty.array != 0 {
        rows.push(row(ty.array, format!("_{}", ty.name), -1, "A", ty.oid, 0));
    }
    rows
}

const PG_DATABASE: Columns = &[
    ("oid", Kind::Int),
    ("datname", Kind::Text),
    ("datdba", Kind::Int),
    ("encoding", Kind::Int),
    ("datlocprovider", Kind::Text),
    ("datistemplate", Kind::Bool),
    ("datallowconn", Kind::Bool),
    ("datconnlimit", Kind::Int),
    ("dattablespace", Kind::Int),
    ("datcollate", Kind::Text),
    ("datctype", Kind::Text),
    ("daticulocale", Kind::Text),
    ("datcollversion", Kind::Text),
    ("datacl", Kind::Texts),
];

fn database_row(scope: &Scope) -> Vec<Cell> {
    vec![
        DATABASE_OID.into(),
        scope.session.database.as_str().into(),
        OWNER_OID.into(),
        6_i64.into(),
        "c".into(),
        false.into(),
        true.into(),
        (-1_i64).into(),
        1663_i64.into(),
        "C".into(),
        "C".into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ]
}

const PG_ROLES: Columns = &[
    ("oid", Kind::Int),
    ("rolname", Kind::Text),
    ("rolsuper", Kind::Bool),
    ("rolinherit", Kind::Bool),
    ("rolcreaterole", Kind::Bool),
    ("rolcreatedb", Kind::Bool),
    ("rolcanlogin", Kind::Bool),
    ("rolreplication", Kind::Bool),
    ("rolconnlimit", Kind::Int),
    ("rolvaliduntil", Kind::At),
    ("rolbypassrls", Kind::Bool),
    ("rolconfig", Kind::Texts),
];

/// Until users exist, whoever connects may do everything.
fn role_row(scope: &Scope) -> Vec<Cell> {
    let (yes, no) = (|| Cell::Bool(true), || Cell::Bool(false));
    vec![OWNER_OID.into(), owner(scope), yes(), yes(), no(), no(), yes(), no(), (-1_i64).into(), Cell::Null, no(), Cell::Null]
}

fn owner(scope: &Scope) -> Cell {
    scope.session.user.as_str().into()
}

const PG_SETTINGS: Columns = &[
    ("name", Kind::Text),
    ("setting", Kind::Text),
    ("unit", Kind::Text),
    ("category", Kind::Text),
    ("short_desc", Kind::Text),
    ("context", Kind::Text),
    ("vartype", Kind::Text),
    ("source", Kind::Text),
    ("min_val", Kind::Text),
    ("max_val", Kind::Text),
    ("enumvals", Kind::Texts),
    ("boot_val", Kind::Text),
    ("reset_val", Kind::Text),
];

fn setting_row(name: &str, value: &str) -> Vec<Cell> {
    vec![
        name.into(),
        value.into(),
        Cell::Null,
        "Client Connection Defaults".into(),
        Cell::Null,
        "internal".into(),
        "string".into(),
        "default".into(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        value.into(),
        value.into(),
    ]
}

const PG_TABLES: Columns = &[
    ("schemaname", Kind::Text),
    ("tablename", Kind::Text),
    ("tableowner", Kind::Text),
    ("tablespace", Kind::Text),
    ("hasindexes", Kind::Bool),
    ("hasrules", Kind::Bool),
    ("hastriggers", Kind::Bool),
    ("rowsecurity", Kind::Bool),
];

fn tables_row(relation: &Relation) -> Vec<Cell> {
    let no = || Cell::Bool(false);
    vec![relation.schema.into(), relation.name.as_str().into(), OWNER.into(), Cell::Null, no(), no(), no(), no()]
}

/// Sources and sinks are foreign tables of a server that is called like their connector.
fn foreign_row(entry: &Arc<CatalogEntry>) -> Vec<Cell> {
    vec![scope::oid(scope::PUBLIC, &entry.name).into(), scope::oid("server", connector(entry)).into(), Cell::Null]
}

fn servers(scope: &Scope) -> Vec<Vec<Cell>> {
    let names: BTreeSet<&str> = scope.entries.iter().map(|entry| connector(entry)).collect();
    let row = |name: &str| vec![scope::oid("server", name).into(), name.into(), OWNER_OID.into(), 0_i64.into(), Cell::Null];
    names.into_iter().map(row).collect()
}

fn connector(entry: &CatalogEntry) -> &str {
    match &entry.object {
        CatalogObject::Source(source) => &source.input_type,
        CatalogObject::Sink(sink) => &sink.output_type,
    }
}

/// The relation that a name means on the search path, or with its schema, for `regclass`.
pub(super) fn relation_by_name(scope: &Scope, text: &str) -> Option<Relation> {
    let clean = |part: &str| match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => part.to_lowercase(),
    };
    let parts: Vec<String> = text.split('.').map(clean).collect();
    let visible = |relation: &Relation| relation.schema == scope::PUBLIC || relation.schema == scope::PG_CATALOG;
    let found = |relation: &Relation| match parts.as_slice() {
        [name] => &relation.name == name && visible(relation),
        [schema, name] => &relation.name == name && relation.schema == schema,
        _ => false,
    };
    scope.relations().into_iter().find(found)
}
