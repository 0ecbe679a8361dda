//! Runs the suites of `sqllogictest/` over the Postgres wire against a real `weir up`, one server
//! a folder. Expected rows were worked out by hand or by another database, never taken from a run.
//!
//! Errors read `SQLSTATE: message | detail: … | hint: … | position: n`; NULL prints as `NULL`.
//! Column letters are checked against what the server says: I for integers, R for floats and
//! decimals, T for the rest, ? for any.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use std::path::PathBuf;
use support::process::{Weir, temporary};
use support::sql::{Sql, SqlError};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

/// A session that sqllogictest drives.
struct Session(Sql);

#[async_trait]
impl AsyncDB for Session {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let client = self.0.client();
        let (mut rows, mut width) = (Vec::new(), None);
        for message in client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => width = Some(columns.len()),
                SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|i| shown(row.get(i))).collect()),
                _ => {}
            }
        }
        let Some(width) = width else { return Ok(DBOutput::StatementComplete(0)) };
        // The simple protocol's client hides types, so SELECTs are described once more.
        let is_select = sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"));
        let types = if is_select {
            client.prepare(sql).await?.columns().iter().map(|column| letter(column.type_())).collect()
        } else {
            vec![DefaultColumnType::Any; width]
        };
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "weir"
    }

    fn error_sql_state(error: &SqlError) -> Option<String> {
        Some(error.code.clone())
    }
}

fn shown(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.to_owned(),
    }
}

fn letter(ty: &Type) -> DefaultColumnType {
    if [Type::INT2, Type::INT4, Type::INT8].contains(ty) {
        DefaultColumnType::Integer
    } else if [Type::FLOAT4, Type::FLOAT8, Type::NUMERIC].contains(ty) {
        DefaultColumnType::FloatingPoint
    } else {
        DefaultColumnType::Text
    }
}

#[allow(clippy::ptr_arg, reason = "the signature that sqllogictest asks for")]
fn same_types(actual: &Vec<DefaultColumnType>, expected: &Vec<DefaultColumnType>) -> bool {
    let fits = |(a, e): (&DefaultColumnType, &DefaultColumnType)| *a == DefaultColumnType::Any || *e == DefaultColumnType::Any || a == e;
    actual.len() == expected.len() && actual.iter().zip(expected).all(fits)
}

/// Runs every file of a folder; a failed file does not hide the others.
fn suite(folder: &str) {
    let dir = support::tree_root().join("sqllogictest").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "slt"));
    files.sort();
    assert!(!files.is_empty(), "no suite in {}", dir.display());
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let port = weir.pg();
    let mut faults = Vec::new();
    for file in &files {
        let mut runner = Runner::new(|| async { Sql::open(port).await.map(Session) });
        runner.with_column_validator(same_types);
        if let Err(error) = support::block_on(runner.run_file_async(file)) {
            faults.push(format!("{}", error.display(false)));
        }
        weir.must_run();
    }
    assert!(faults.is_empty(), "{} of {} files failed\n{}", faults.len(), files.len(), faults.join("\n"));
}

macro_rules! suites {
    ($($folder:ident),*) => {
        $(#[test] fn $folder() { suite(stringify!($folder)); })*

        #[test]
        fn every_folder_is_run() {
            let mut listed = vec![$(stringify!($folder).to_owned()),*];
            let dir = support::tree_root().join("sqllogictest");
            let mut found: Vec<String> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()).filter(|e| e.path().is_dir())
                .map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            listed.sort();
            found.sort();
            assert_eq!(listed, found);
        }
    };
}

suites!(catalog, ddl, errors, late, lifecycle, nulls, state, timezones, types, windows);

/// A file that cannot be read as a suite, or that asks nothing, is a fault before any server starts.
#[test]
fn every_file_asks_something() {
    let dir = support::tree_root().join("sqllogictest");
    for file in std::fs::read_dir(dir).unwrap().flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap()) {
        let path = file.unwrap().path();
        let records = sqllogictest::parse_file::<DefaultColumnType>(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let asked =
            records.iter().filter(|r| matches!(r, sqllogictest::Record::Query { .. } | sqllogictest::Record::Statement { .. })).count();
        assert!(asked >= 5, "{} has only {asked} records", path.display());
    }
}
