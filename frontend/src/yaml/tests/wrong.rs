//! Wrong documents and the exact words that each gets (JOB-4, JOB-7). `WEIR_GOLDEN=write` writes them anew.

use crate::yaml::{parse_bytes, report};
use std::path::{Path, PathBuf};
use weir_planner::spec::Horizon;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong")
}

/// What `weir validate` says of a document.
fn said(name: &str, bytes: &[u8]) -> String {
    let outcome = parse_bytes(bytes).and_then(|mut document| document.plan(Horizon::Local));
    outcome.err().map(|faults| report(name, &faults)).unwrap_or_default()
}

/// JOB-7: every fault of a document together, in the order of the text, each with its place, path and way out.
#[test]
fn wrong_documents_are_told_what_is_wrong() {
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    names.sort();
    let mut wrong = Vec::new();
    for path in &names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let told = said(&name, &std::fs::read(path).unwrap());
        if told.is_empty() {
            wrong.push(format!("--- {name} is not wrong"));
        }
        let golden = path.with_extension("txt");
        if std::env::var("WEIR_GOLDEN").as_deref() == Ok("write") {
            std::fs::write(&golden, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            wrong.push(format!("--- {name} should say\n{expected}--- says\n{told}"));
        }
    }
    assert!(names.len() >= 60, "{} documents", names.len());
    assert!(wrong.is_empty(), "{}\n{} of {} documents", wrong.join("\n"), wrong.len(), names.len());
}

/// Each fault has a place in the text, unless it is about the text as a whole.
#[test]
fn every_fault_has_a_place() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = std::fs::read_to_string(&path).unwrap();
            let whole = ["the document is empty"];
            for line in text.lines().filter(|line| !line.starts_with("    hint: ") && !whole.iter().any(|words| line.contains(words))) {
                let mut parts = line.split(':').skip(1);
                let number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u32>().is_ok_and(|number| number > 0));
                assert!(number(parts.next()) && number(parts.next()), "{}: {line}", path.display());
            }
        }
    }
}
