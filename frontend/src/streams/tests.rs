//! Golden files: a document with streams to the JobSpecs that they compile to, or to its faults.
//! `WEIR_GOLDEN=write` writes them anew.

use crate::yaml;
use std::path::{Path, PathBuf};
use weir_planner::check::check;
use weir_planner::spec::Horizon;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/streams");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().is_some_and(|name| name.ends_with(".yaml") && !name.ends_with(".job.yaml")));
    files.sort();
    files
}

/// What a document gives: the jobs of its streams as YAML, or its faults one a line, binding and
/// checks included.
fn outcome(text: &str) -> Result<String, String> {
    let lines = |faults: Vec<weir_planner::error::Fault>| faults.iter().map(|fault| format!("{fault}\n")).collect::<String>();
    let mut document = yaml::parse(text).map_err(lines)?;
    assert_eq!(document.streams.len(), document.jobs.len(), "golden files hold streams alone");
    let printed: Vec<String> = document.jobs.iter().map(yaml::print).collect();
    let mut faults = document.bind();
    for (at, spec) in document.jobs.iter().enumerate() {
        let found = check(spec, Horizon::Local).into_iter().filter(|fault| fault.code != "unbound");
        faults.extend(found.map(|fault| document.locate(at, fault)));
    }
    if !faults.is_empty() {
        return Err(lines(faults));
    }
    for spec in &document.jobs {
        // JOB-3: what is printed is a job of its own, equal to the stream's.
        let again = yaml::parse(&yaml::print(spec)).unwrap_or_else(|faults| panic!("{}{}", lines(faults), yaml::print(spec)));
        assert_eq!(again.jobs.len(), 1);
        assert_eq!(again.jobs.iter().map(yaml::print).collect::<Vec<_>>(), [yaml::print(spec)], "the printed job reads back equal");
    }
    Ok(printed.join("---\n"))
}

/// STR-1, STR-2, STR-3, STR-4, STR-5: what each stream compiles to, or how it is refused.
#[test]
fn streams_compile_as_the_golden_files_say() {
    let write = std::env::var("WEIR_GOLDEN").is_ok_and(|value| value == "write");
    let mut wrong = Vec::new();
    let files = cases();
    assert!(files.len() >= 24, "golden files are missing: {}", files.len());
    for file in files {
        let (got, extension) = match outcome(&std::fs::read_to_string(&file).unwrap()) {
            Ok(jobs) => (jobs, "job.yaml"),
            Err(faults) => (faults, "err"),
        };
        let expected = file.with_extension(extension);
        if write {
            for stale in ["job.yaml", "err"] {
                let _ = std::fs::remove_file(file.with_extension(stale));
            }
            std::fs::write(&expected, &got).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(got.as_str()) {
            wrong.push(format!("{}:\n{got}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "golden files differ (WEIR_GOLDEN=write writes them anew):\n{}", wrong.join("\n"));
}
