//! The checkout as text: which files there are, and their code without comments and strings.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the checkout.
pub struct SourceFile {
    /// Path below the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All text files below the root that belong to the project, sorted by path.
pub fn files() -> Vec<SourceFile> {
    let mut found = Vec::new();
    walk(root(), &mut found);
    let mut files: Vec<SourceFile> = found
        .into_iter()
        .filter_map(|path| {
            let text = String::from_utf8(fs::read(&path).unwrap()).ok()?;
            let path = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
            Some(SourceFile { path, text })
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.len() > 50, "only {} files were found below {}", files.len(), root().display());
    files
}

/// The Rust files of the project.
pub fn rust_files() -> Vec<SourceFile> {
    files().into_iter().filter(|f| f.path.ends_with(".rs")).collect()
}

/// The Rust files that go into the product: those below a `src`, without the tests beside them.
pub fn product_files() -> Vec<SourceFile> {
    let in_src = |path: &str| path.starts_with("src/") || (path.contains("/src/") && !path.starts_with("tests/"));
    let mut files = rust_files();
    files.retain(|f| in_src(&f.path) && !is_test_file(&f.path));
    let only_for_tests: Vec<String> = files.iter().flat_map(test_modules).collect();
    files.retain(|f| !only_for_tests.contains(&f.path));
    files
}

/// Paths of the modules that a file declares for tests only: `mod name;` under `#[cfg(test)]`.
fn test_modules(file: &SourceFile) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let marked = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").map(|pair| pair[1]);
    let named = marked.filter_map(|line| line.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';')));
    let folder = file.path.trim_end_matches(".rs").trim_end_matches("/lib").trim_end_matches("/main");
    named.map(|name| format!("{folder}/{name}.rs")).collect()
}

/// A `tests.rs` beside its module, or anything below a folder `tests`.
pub fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.starts_with("tests/") || path.contains("/tests/")
}

/// The lines of `text` before its inline test module, numbered from 1. A module declared for tests
/// does not end them.
pub fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let opens = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].trim().ends_with('{');
    let end = lines.windows(2).position(opens).unwrap_or(lines.len());
    lines.into_iter().take(end).enumerate().map(|(i, line)| (i + 1, line))
}

/// A line without its comment and with its strings emptied. Good for one-line strings, which is
/// what a check of identifiers needs; a raw or many-line string is left as it is.
pub fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut chars = line.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                chars.next();
            }
            '"' => {
                in_string = !in_string;
                code.push('"');
            }
            // A quote as a character literal does not open a string.
            '\'' if !in_string && chars.peek() == Some(&'"') => {
                chars.next();
                chars.next();
            }
            '/' if !in_string && chars.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => code.push(c),
        }
    }
    code
}

/// Does `code` use the path root `name`, as in `name::…` or `use name;`?
pub fn uses_path(code: &str, name: &str) -> bool {
    let bytes = code.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    code.match_indices(name).any(|(at, _)| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let rest = &code[at + name.len()..];
        let bounded = before.is_none_or(|b| !word(b) && b != b':' && b != b'.');
        let imported = rest.starts_with(';') && code[..at].trim_end().ends_with("use");
        bounded && (rest.starts_with("::") || imported)
    })
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 6] = ["target", ".git", ".env", ".data", "weir-data", "__pycache__"];
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if SKIPPED.iter().any(|s| name == *s) {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}
