//! `information_schema`: the standard's view of what `pg_catalog` says.

use super::cells::{self, Cell, Columns, Kind};
use super::pg_catalog::types;
use super::scope::{self, Relation, RelationKind, Scope};
use datafusion::catalog::TableProvider;
use datafusion::error::Result;
use std::sync::Arc;

/// Names and columns of the tables here.
pub(super) const TABLES: &[(&str, Columns)] = &[
    ("columns", COLUMNS),
    ("key_column_usage", KEY_COLUMN_USAGE),
    ("referential_constraints", KEY_COLUMN_USAGE),
    ("routines", ROUTINES),
    ("schemata", SCHEMATA),
    ("table_constraints", TABLE_CONSTRAINTS),
    ("tables", TABLES_COLUMNS),
    ("views", VIEWS),
];

const TABLES_COLUMNS: Columns = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("table_type", Kind::Text),
    ("is_insertable_into", Kind::Text),
    ("is_typed", Kind::Text),
];

const COLUMNS: Columns = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("column_name", Kind::Text),
    ("ordinal_position", Kind::Int),
    ("column_default", Kind::Text),
    ("is_nullable", Kind::Text),
    ("data_type", Kind::Text),
    ("character_maximum_length", Kind::Int),
    ("numeric_precision", Kind::Int),
    ("numeric_scale", Kind::Int),
    ("datetime_precision", Kind::Int),
    ("udt_catalog", Kind::Text),
    ("udt_schema", Kind::Text),
    ("udt_name", Kind::Text),
    ("is_identity", Kind::Text),
    ("is_generated", Kind::Text),
    ("is_updatable", Kind::Text),
];

const SCHEMATA: Columns =
    &[("catalog_name", Kind::Text), ("schema_name", Kind::Text), ("schema_owner", Kind::Text), ("default_character_set_name", Kind::Text)];

const VIEWS: Columns =
    &[("table_catalog", Kind::Text), ("table_schema", Kind::Text), ("table_name", Kind::Text), ("view_definition", Kind::Text)];

const TABLE_CONSTRAINTS: Columns = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("constraint_type", Kind::Text),
];

const KEY_COLUMN_USAGE: Columns = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("column_name", Kind::Text),
    ("ordinal_position", Kind::Int),
];

const ROUTINES: Columns =
    &[("routine_catalog", Kind::Text), ("routine_schema", Kind::Text), ("routine_name", Kind::Text), ("routine_type", Kind::Text)];

/// The table called `name`.
pub(super) fn table(scope: &Scope, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some((_, columns)) = TABLES.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    let rows = match name {
        "tables" => scope.relations().iter().map(table_row).collect(),
        "columns" => scope.relations().iter().flat_map(column_rows).collect(),
        "schemata" => {
            super::catalog::SCHEMAS.iter().map(|name| vec![scope::CATALOG.into(), (*name).into(), "weir".into(), Cell::Null]).collect()
        }
        // Weir has no views, constraints or routines of the user's.
        _ => Vec::new(),
    };
    cells::table(columns, &rows).map(Some)
}

fn table_row(relation: &Relation) -> Vec<Cell> {
    let kind = match relation.kind {
        RelationKind::Result => "BASE TABLE",
        RelationKind::Source | RelationKind::Sink => "FOREIGN",
        RelationKind::System | RelationKind::Catalog => "VIEW",
    };
    vec![scope::CATALOG.into(), relation.schema.into(), relation.name.as_str().into(), kind.into(), "NO".into(), "NO".into()]
}

fn column_rows(relation: &Relation) -> Vec<Vec<Cell>> {
    let row = |(i, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let ty = types::of(field.data_type());
        let (precision, scale) = match field.data_type() {
            arrow::datatypes::DataType::Decimal128(precision, scale) => (Some(i64::from(*precision)), Some(i64::from(*scale))),
            _ => (None, None),
        };
        vec![
            scope::CATALOG.into(),
            relation.schema.into(),
            relation.name.as_str().into(),
            field.name().as_str().into(),
            Cell::Int(i as i64 + 1),
            Cell::Null,
            if field.is_nullable() { "YES" } else { "NO" }.into(),
            types::format(i64::from(ty.oid), -1).unwrap_or_else(|| ty.name.to_owned()).into(),
            Cell::Null,
            precision.into(),
            scale.into(),
            types::time_digits(field.data_type()).into(),
            scope::CATALOG.into(),
            scope::PG_CATALOG.into(),
            ty.name.into(),
            "NO".into(),
            "NEVER".into(),
            "NO".into(),
        ]
    };
    relation.columns.fields().iter().enumerate().map(row).collect()
}
