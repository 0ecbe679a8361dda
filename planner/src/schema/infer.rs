//! Columns from records: what a source without declared columns holds (JOB-6).
//!
//! Each field has the narrowest kind that all of its values share: booleans BOOLEAN; integers that
//! fit 64 bits BIGINT; other numbers, and integers among them, DOUBLE PRECISION; text, objects,
//! arrays (as their JSON text), fields that were always null, and any other mixture TEXT. Text is
//! never taken for a time, whatever it looks like (C29), and every column may be NULL, since the
//! sample is not all of the input. Columns come in the order in which their fields first appear.
//!
//! Delimited text follows the same rules: a field that reads as a JSON number or as `true` or
//! `false` counts as one, so that `007` stays text.

use super::{Column, ColumnType, RESERVED_PREFIX};
use crate::check::COLUMNS_MAX;
use crate::error::Fault;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The way out of every fault here.
const DECLARE: &str = "declare the columns: schema: [{name: id, type: BIGINT}, …], in SQL CREATE SOURCE name (id BIGINT, …)";

/// What has been seen of the fields so far.
#[derive(Clone, Debug, Default)]
pub struct Inference {
    fields: Vec<(String, Option<Kind>)>,
    places: BTreeMap<String, usize>,
    records: u64,
}

/// What a value is; NULL has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Number,
    Text,
}

impl Kind {
    /// The narrowest kind that holds values of both.
    fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Boolean, Kind::Boolean) => Kind::Boolean,
            (Kind::Integer, Kind::Integer) => Kind::Integer,
            (Kind::Integer | Kind::Number, Kind::Number) | (Kind::Number, Kind::Integer) => Kind::Number,
            (Kind::Boolean | Kind::Text, _) | (_, Kind::Boolean | Kind::Text) => Kind::Text,
        }
    }
}

impl Inference {
    /// Takes in a record that should be one JSON object.
    ///
    /// Errors: why it is none; what was seen before stands.
    pub fn json(&mut self, record: &[u8]) -> Result<(), String> {
        let Record(fields) = serde_json::from_slice(record).map_err(|error| format!("not a JSON object: {error}"))?;
        self.records += 1;
        for (name, kind) in fields {
            self.see(name, kind);
        }
        Ok(())
    }

    /// Takes in the fields of a delimited record; `None` is NULL. Fields without a name are called
    /// `column_1` and so on.
    pub fn delimited(&mut self, names: Option<&[String]>, fields: &[Option<String>]) {
        self.records += 1;
        for (at, text) in fields.iter().enumerate() {
            let name = names.and_then(|names| names.get(at)).cloned();
            self.see(name.unwrap_or_else(|| format!("column_{}", at + 1)), text.as_deref().map(kind_of_text));
        }
    }

    /// Records taken in.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The columns.
    ///
    /// Errors: no fields at all, too many, or a name that no column may have.
    pub fn columns(&self) -> Result<Vec<Column>, Fault> {
        let column = |(name, kind): &(String, Option<Kind>)| {
            let ty = match kind {
                Some(Kind::Boolean) => ColumnType::Boolean,
                Some(Kind::Integer) => ColumnType::BigInt,
                Some(Kind::Number) => ColumnType::Double,
                Some(Kind::Text) | None => ColumnType::Text,
            };
            Column { name: name.clone(), ty, nullable: true }
        };
        let columns: Vec<Column> = self.fields.iter().map(column).collect();
        named(&columns)?;
        Ok(columns)
    }

    fn see(&mut self, name: String, kind: Option<Kind>) {
        let at = match self.places.get(&name) {
            Some(at) => *at,
            // One too many is enough to know.
            None if self.fields.len() > COLUMNS_MAX => return,
            None => {
                self.places.insert(name.clone(), self.fields.len());
                self.fields.push((name, kind));
                return;
            }
        };
        if let Some((_, seen)) = self.fields.get_mut(at) {
            *seen = match (*seen, kind) {
                (Some(seen), Some(kind)) => Some(seen.with(kind)),
                (seen, kind) => seen.or(kind),
            };
        }
    }
}

/// The columns of a file that brings its own, such as Parquet. All may be NULL.
///
/// Errors: columns whose type none of ours holds, each by name; else as [`Inference::columns`].
pub fn of_arrow(schema: &arrow_schema::Schema) -> Result<Vec<Column>, Fault> {
    let mut columns = Vec::new();
    let mut strange = Vec::new();
    for field in schema.fields() {
        match held_by(field.data_type()) {
            Some(ty) => columns.push(Column { name: field.name().clone(), ty, nullable: true }),
            None => strange.push(format!("'{}' ({})", field.name(), field.data_type())),
        }
    }
    if !strange.is_empty() {
        let message = format!("no column type holds {}", strange.join(", "));
        return Err(Fault::new("bad_column_type", "", message).with_hint("declare the other columns, without these"));
    }
    named(&columns)?;
    Ok(columns)
}

/// As [`ColumnType::from_arrow`], for what readers can turn into rows.
fn held_by(ty: &arrow_schema::DataType) -> Option<ColumnType> {
    use arrow_schema::DataType as D;
    match ty {
        D::Dictionary(_, values) if **values == D::Utf8 => Some(ColumnType::Text),
        D::FixedSizeBinary(_) => Some(ColumnType::Bytea),
        D::Decimal32(precision, scale) | D::Decimal64(precision, scale) | D::Decimal128(precision, scale) => {
            (*scale >= 0).then_some(ColumnType::Decimal { precision: *precision, scale: *scale })
        }
        // Values above the signed range have no integer type here.
        D::UInt64 => Some(ColumnType::Decimal { precision: 20, scale: 0 }),
        D::Date64 | D::Interval(_) => None,
        other => ColumnType::from_arrow(other),
    }
}

fn named(columns: &[Column]) -> Result<(), Fault> {
    let fault = |code: &str, message: String| Err(Fault::new(code, "", message).with_hint(DECLARE));
    if columns.is_empty() {
        return fault("no_columns", "the sampled records have no fields".to_owned());
    }
    if columns.len() > COLUMNS_MAX {
        return fault("too_many_columns", format!("the sampled records have more than {COLUMNS_MAX} fields"));
    }
    let mut seen = BTreeSet::new();
    for Column { name, .. } in columns {
        if name.is_empty() {
            return fault("bad_column_name", "a field has an empty name".to_owned());
        }
        if name.starts_with(RESERVED_PREFIX) {
            let message = format!("the field '{}' has a name that is reserved: it begins with '{RESERVED_PREFIX}'", name.escape_debug());
            return fault("reserved_name", message);
        }
        if !seen.insert(name) {
            return fault("duplicate_column", format!("the field '{}' is there twice", name.escape_debug()));
        }
    }
    Ok(())
}

fn kind_of_text(text: &str) -> Kind {
    match text {
        "true" | "false" => Kind::Boolean,
        _ if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit()) => {
            // Out of range for a number: text all the same.
            serde_json::from_str::<Value>(text).ok().and_then(|Value(kind)| kind).unwrap_or(Kind::Text)
        }
        _ => Kind::Text,
    }
}

/// An object's fields in the order of the text.
struct Record(Vec<(String, Option<Kind>)>);

/// The kind of one JSON value.
struct Value(Option<Kind>);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Record;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut fields: Vec<(String, Option<Kind>)> = Vec::new();
                let mut names = BTreeSet::new();
                while let Some((name, Value(kind))) = map.next_entry::<String, Value>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("field '{}' appears twice", name.escape_debug())));
                    }
                    fields.push((name, kind));
                }
                Ok(Record(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
                Ok(Value(Some(Kind::Boolean)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
                Ok(Value(Some(Kind::Integer)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value(Some(if i64::try_from(number).is_ok() { Kind::Integer } else { Kind::Number })))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
                Ok(Value(Some(Kind::Number)))
            }

            fn visit_str<E>(self, _: &str) -> Result<Value, E> {
                Ok(Value(Some(Kind::Text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Value(Some(Kind::Text)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Value(Some(Kind::Text)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests;
