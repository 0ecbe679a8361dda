//! Columns from rows: the lowest type that holds all values, and what is refused.

use super::*;
use proptest::prelude::*;

fn of(records: &[&str]) -> Result<Vec<(String, String)>, Fault> {
    let mut inference = Inference::default();
    for record in records {
        inference.json(record.as_bytes()).unwrap();
    }
    let columns = inference.columns()?;
    assert!(columns.iter().all(|column| column.nullable), "a sample never shows that NULL cannot come");
    Ok(columns.into_iter().map(|column| (column.name, column.ty.to_string())).collect())
}

fn pairs(columns: &[(&str, &str)]) -> Vec<(String, String)> {
    columns.iter().map(|(name, ty)| ((*name).to_owned(), (*ty).to_owned())).collect()
}

/// JOB-6: the sample's columns, in the order of first appearance; C29: a text that looks like a time stays text.
#[test]
fn kinds_become_types_in_order_of_appearance() {
    let records = [
        r#"{"z": true, "n": 1, "t": "2026-01-01T00:00:00Z", "gone": null, "o": {"a": [1]}}"#,
        r#"{"late": -7, "n": 2, "z": null, "a": [1, 2], "big": 9223372036854775807, "f": 1.0}"#,
        r#"{"huge": 9223372036854775808, "e": 1e3}"#,
    ];
    let expected = pairs(&[
        ("z", "BOOLEAN"),
        ("n", "BIGINT"),
        ("t", "TEXT"),
        ("gone", "TEXT"),
        ("o", "TEXT"),
        ("late", "BIGINT"),
        ("a", "TEXT"),
        ("big", "BIGINT"),
        ("f", "DOUBLE PRECISION"),
        ("huge", "DOUBLE PRECISION"),
        ("e", "DOUBLE PRECISION"),
    ]);
    assert_eq!(of(&records).unwrap(), expected);
}

#[test]
fn mixtures_take_the_narrowest_common_type() {
    for (values, ty) in [
        (vec!["1", "2.5"], "DOUBLE PRECISION"),
        (vec!["2.5", "null", "1"], "DOUBLE PRECISION"),
        (vec!["1", "true"], "TEXT"),
        (vec!["true", "1"], "TEXT"),
        (vec!["1", "\"1\""], "TEXT"),
        (vec!["{}", "1"], "TEXT"),
        (vec!["null", "false"], "BOOLEAN"),
    ] {
        let records: Vec<String> = values.iter().map(|value| format!("{{\"x\": {value}}}")).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        assert_eq!(of(&records).unwrap(), pairs(&[("x", ty)]), "{values:?}");
    }
}

#[test]
fn what_cannot_be_a_column_is_told_with_the_way_out() {
    for (record, code) in [(r#"{"": 1}"#, "bad_column_name"), (r#"{"a": 1, "__b": 2}"#, "reserved_name"), ("{}", "no_columns")] {
        let fault = of(&[record]).unwrap_err();
        assert_eq!(fault.code, code, "{record}");
        assert!(fault.hint.contains("declare the columns"), "{fault}");
    }
    let wide = |count: usize| format!("{{{}}}", (0..count).map(|i| format!("\"c{i}\":1")).collect::<Vec<_>>().join(","));
    assert_eq!(of(&[&wide(1_600)]).unwrap().len(), 1_600);
    assert_eq!(of(&[&wide(1_601)]).unwrap_err().code, "too_many_columns");
    // Fields of many records add up.
    assert_eq!(of(&[&wide(1_600), r#"{"more": 1}"#]).unwrap_err().code, "too_many_columns");
}

#[test]
fn a_record_that_is_no_object_changes_nothing() {
    let mut inference = Inference::default();
    inference.json(br#"{"a": 1}"#).unwrap();
    for wrong in ["", "[1]", "7", "{\"b\": }", "{\"a\": 1, \"b\": 2, \"a\": 3}", "{\"b\":1} x"] {
        assert!(inference.json(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert_eq!(inference.records(), 1);
    assert_eq!(inference.columns().unwrap().len(), 1);
}

#[test]
fn delimited_text_follows_the_same_rules() {
    let row = |fields: &[&str]| fields.iter().map(|text| (!text.is_empty()).then(|| (*text).to_owned())).collect::<Vec<_>>();
    let mut inference = Inference::default();
    let names: Vec<String> = ["id", "zip", "ok", "x", "none", "plus", "blank"].map(str::to_owned).to_vec();
    inference.delimited(Some(&names), &row(&["1", "007", "true", "1", "", "+1", "1 "]));
    inference.delimited(Some(&names), &row(&["-2", "08", "false", "1.5", "", "2", "1"]));
    let types: Vec<String> = inference.columns().unwrap().into_iter().map(|column| column.ty.to_string()).collect();
    assert_eq!(types, ["BIGINT", "TEXT", "BOOLEAN", "DOUBLE PRECISION", "TEXT", "TEXT", "TEXT"]);
    let mut nameless = Inference::default();
    nameless.delimited(None, &row(&["1", "a"]));
    let columns = nameless.columns().unwrap();
    assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["column_1", "column_2"]);
}

#[test]
fn a_file_that_brings_its_own_types_names_those_that_nothing_holds() {
    use arrow_schema::{DataType as D, Field, TimeUnit as U};
    let field = |name: &str, ty: D| Field::new(name, ty, false);
    let fine = arrow_schema::Schema::new(vec![
        field("a", D::Int32),
        field("b", D::Timestamp(U::Millisecond, None)),
        field("c", D::Dictionary(Box::new(D::Int8), Box::new(D::Utf8))),
        field("d", D::Decimal128(10, 2)),
        field("e", D::UInt64),
    ]);
    let columns = of_arrow(&fine).unwrap();
    let types: Vec<String> = columns.iter().map(|column| column.ty.to_string()).collect();
    assert_eq!(types, ["INTEGER", "TIMESTAMP(3)", "TEXT", "DECIMAL(10,2)", "DECIMAL(20,0)"]);
    assert!(columns.iter().all(|column| column.nullable));
    let strange = arrow_schema::Schema::new(vec![
        field("a", D::Int32),
        field("tags", D::List(Field::new("item", D::Utf8, true).into())),
        field("span", D::Duration(U::Second)),
    ]);
    let fault = of_arrow(&strange).unwrap_err();
    assert!(fault.message.contains("'tags'") && fault.message.contains("'span'") && !fault.message.contains("'a'"), "{fault}");
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        (-1e9..1e9f64).prop_map(serde_json::Value::from),
        "[ -~]{0,8}".prop_map(serde_json::Value::from),
        Just(serde_json::json!([1, {"a": null}])),
        Just(serde_json::json!({"b": {}})),
    ]
}

/// The type by looking at all values of a field at once.
fn brute(values: &[&serde_json::Value]) -> &'static str {
    let values: Vec<_> = values.iter().filter(|value| !value.is_null()).collect();
    if values.is_empty() {
        "TEXT"
    } else if values.iter().all(|value| value.is_boolean()) {
        "BOOLEAN"
    } else if values.iter().all(|value| value.is_i64()) {
        "BIGINT"
    } else if values.iter().all(|value| value.is_number()) {
        "DOUBLE PRECISION"
    } else {
        "TEXT"
    }
}

proptest! {
    /// JOB-6: types do not depend on the order in which values come; names keep the order of first appearance.
    #[test]
    fn inference_equals_looking_at_all_values(
        records in prop::collection::vec(prop::collection::vec((0..6usize, value()), 1..6), 1..12),
    ) {
        let mut inference = Inference::default();
        let mut order: Vec<String> = Vec::new();
        let mut all: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
        for record in &records {
            let mut text = Vec::new();
            let mut here = BTreeSet::new();
            for (field, value) in record {
                let name = format!("f{field}");
                if here.insert(name.clone()) {
                    text.push(format!("\"{name}\":{value}"));
                    if !order.contains(&name) {
                        order.push(name.clone());
                    }
                    all.entry(name).or_default().push(value.clone());
                }
            }
            inference.json(format!("{{{}}}", text.join(",")).as_bytes()).unwrap();
        }
        let found: Vec<(String, String)> =
            inference.columns().unwrap().into_iter().map(|column| (column.name, column.ty.to_string())).collect();
        let expected: Vec<(String, String)> =
            order.iter().map(|name| (name.clone(), brute(&all[name].iter().collect::<Vec<_>>()).to_owned())).collect();
        prop_assert_eq!(found, expected);
    }
}
