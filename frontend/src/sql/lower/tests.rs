//! Golden files: SQL to spec, or to the refusal with its caret. `WEIR_GOLDEN=write` writes them anew.

use crate::error::Error;
use crate::sql::statement::Body;
use crate::sql::{bind_spec, ddl, parse, verb};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_hub::hub::CatalogSnapshot;
use weir_planner::check::check;
use weir_planner::spec::Horizon;

/// What a text of statements gives: the spec of its CREATE JOB as YAML, or its first error.
fn outcome(text: &str) -> Result<String, Error> {
    let (places, bodies) = parse::statements(text)?;
    let mut snapshot = CatalogSnapshot::default();
    for body in &bodies {
        match body {
            Body::CreateSource(create) => {
                let ddl::Drafted::Known(entry) = ddl::source(create, None, &places, 0)? else { panic!("columns are declared") };
                snapshot.entries.insert(entry.name.clone(), Arc::new(entry));
            }
            Body::CreateSink(create) => {
                let entry = ddl::sink(create, 0)?;
                snapshot.entries.insert(entry.name.clone(), Arc::new(entry));
            }
            Body::CreateJob(create) => {
                let lowered = crate::sql::limit::on_deep_stack(|| verb::with_options(super::lower(create, &snapshot, &places)?, create))?;
                let (mut spec, _) = (lowered.0.spec, lowered.1);
                let faults = check(&spec, Horizon::Local);
                assert_eq!(faults, [], "what is lowered meets every rule");
                let printed = crate::yaml::print(&spec);
                // JOB-3: the YAML door gives the same spec.
                let mut document =
                    crate::yaml::parse(&printed).unwrap_or_else(|faults| panic!("printed YAML does not parse: {faults:?}\n{printed}"));
                assert_eq!(document.bind(), [], "printed YAML binds\n{printed}");
                assert_eq!(document.jobs, [spec.clone()], "both doors make one spec");
                bind_spec(&mut spec).unwrap();
                assert_eq!(document.jobs, [spec], "binding again changes nothing");
                return Ok(printed);
            }
            _ => panic!("golden files hold CREATE SOURCE, CREATE SINK and CREATE JOB"),
        }
    }
    panic!("a golden file ends in CREATE JOB")
}

/// An error as psql shows it: message, the line with a caret, hint.
fn shown(text: &str, error: &Error) -> String {
    let mut out = format!("ERROR {}: {}\n", error.sqlstate, error.message);
    if let Some(position) = error.position {
        let before: String = text.chars().take(position - 1).collect();
        let line = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        let _ = writeln!(out, "LINE {}: {}", line + 1, text.lines().nth(line).unwrap_or_default());
        let _ = writeln!(out, "{}^", " ".repeat(column + format!("LINE {}: ", line + 1).len()));
    }
    if let Some(detail) = &error.detail {
        let _ = writeln!(out, "DETAIL: {detail}");
    }
    if let Some(hint) = &error.hint {
        let _ = writeln!(out, "HINT: {hint}");
    }
    out
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lower");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    files
}

/// PLAN-2, SQL-2, SQL-3, SQL-6, SQL-7, C19: what each statement lowers to, or how it is refused.
#[test]
fn statements_lower_as_the_golden_files_say() {
    let write = std::env::var("WEIR_GOLDEN").is_ok_and(|value| value == "write");
    let mut wrong = Vec::new();
    let files = cases();
    assert!(files.len() >= 25, "golden files are missing: {}", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (got, extension) = match outcome(&text) {
            Ok(yaml) => (yaml, "yaml"),
            Err(error) => (shown(&text, &error), "err"),
        };
        let expected = file.with_extension(extension);
        if write {
            for stale in ["yaml", "err"] {
                let _ = std::fs::remove_file(file.with_extension(stale));
            }
            std::fs::write(&expected, &got).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(got.as_str()) {
            wrong.push(format!("{}:\n{got}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "golden files differ (WEIR_GOLDEN=write writes them anew):\n{}", wrong.join("\n"));
}
