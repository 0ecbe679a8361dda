//! House rules that a machine can check, over every file of the checkout.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/tree.rs"]
mod tree;

use tree::{code_of, files, is_test_file, product_files, product_lines, root, rust_files};

/// Lines that a product file may have; inline tests do not count.
const LINES_MAX: usize = 500;

fn check(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_file_says_first_what_it_is() {
    let faults =
        rust_files().into_iter().filter(|f| !f.text.starts_with("//! ")).map(|f| format!("{} has no module doc on its first line", f.path));
    check(&faults.collect::<Vec<_>>());
}

#[test]
fn no_product_file_is_too_long() {
    let lengths = product_files().into_iter().map(|f| (product_lines(&f.text).count(), f.path));
    let faults =
        lengths.filter(|(lines, _)| *lines > LINES_MAX).map(|(lines, path)| format!("{path} has {lines} lines, limit {LINES_MAX}"));
    check(&faults.collect::<Vec<_>>());
}

/// Style: inline tests past 150 lines move to `foo/tests.rs`.
#[test]
fn long_inline_tests_have_a_file_of_their_own() {
    let inline = product_files().into_iter().map(|f| (f.text.lines().count() - product_lines(&f.text).count(), f.path));
    let faults = inline.filter(|(lines, _)| *lines > 160).map(|(lines, path)| format!("{path} has {lines} lines of inline tests"));
    check(&faults.collect::<Vec<_>>());
}

#[test]
fn modules_live_beside_their_folders() {
    let is_odd = |path: &str| path.ends_with("/mod.rs") && path != "tests/support/mod.rs";
    let faults = rust_files().into_iter().filter(|f| is_odd(&f.path)).map(|f| format!("{}: use foo.rs beside foo/", f.path));
    check(&faults.collect::<Vec<_>>());
}

#[test]
fn open_work_has_a_number() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("HA", "CK")];
    let mut faults = Vec::new();
    for file in files().iter().filter(|f| !f.path.ends_with(".lock")) {
        for (number, line) in file.text.lines().enumerate() {
            let numbered = line.split_once('#').is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
            if marks.iter().any(|m| line.contains(m)) && !numbered {
                faults.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    check(&faults);
}

#[test]
fn product_code_neither_unwraps_nor_leaves_gaps() {
    let calls = [".unwrap()", "todo!(", "unimplemented!(", "dbg!("];
    let mut faults = Vec::new();
    for file in product_files() {
        for (number, line) in product_lines(&file.text) {
            let code = code_of(line);
            if let Some(call) = calls.iter().find(|call| code.contains(**call)) {
                faults.push(format!("{}:{number}: {call}", file.path));
            }
        }
    }
    check(&faults);
}

#[test]
fn imports_name_what_they_take() {
    let mut faults = Vec::new();
    for file in product_files() {
        for (number, line) in product_lines(&file.text) {
            let code = code_of(line);
            if (code.trim_start().starts_with("use ") || code.trim_start().starts_with("pub use ")) && code.contains('*') {
                faults.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    check(&faults);
}

#[test]
fn nothing_names_one_machine() {
    let homes = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut faults = Vec::new();
    for file in files().iter().filter(|f| !f.path.ends_with(".lock")) {
        for (number, line) in file.text.lines().enumerate() {
            if homes.iter().any(|home| line.contains(home)) {
                faults.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    check(&faults);
}

/// docs/architecture.md is read first, so it may not rot: what it names in backticks with a slash,
/// or with the ending of a file, is there.
#[test]
fn every_path_that_the_architecture_names_exists() {
    let path = root().join("docs/architecture.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut faults = Vec::new();
    let mut checked = 0;
    for (number, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            for named in expand(quoted) {
                if !looks_like_a_path(&named) {
                    continue;
                }
                checked += 1;
                if !exists(&named) {
                    faults.push(format!("docs/architecture.md:{}: {named} is not there", number + 1));
                }
            }
        }
    }
    check(&faults);
    assert!(checked >= 20, "only {checked} paths were found in docs/architecture.md");
}

#[test]
fn tests_are_told_from_product_files() {
    for (path, test) in
        [("kernel/src/chain/tests.rs", true), ("tests/kafka.rs", true), ("frontend/tests/lower.rs", true), ("src/main.rs", false)]
    {
        assert_eq!(is_test_file(path), test, "{path}");
    }
    assert_eq!(expand("agent/{a,b}.rs"), ["agent/a.rs", "agent/b.rs"]);
    assert!(looks_like_a_path("planner/spec") && looks_like_a_path("src/main.rs") && looks_like_a_path("docs/"));
    assert!(!looks_like_a_path("/api/v1/jobs") && !looks_like_a_path("a b/c") && !looks_like_a_path("topic/3"));
}

/// `a/{b,c}` to `a/b` and `a/c`.
fn expand(text: &str) -> Vec<String> {
    let Some((head, rest)) = text.split_once('{') else { return vec![text.to_owned()] };
    let Some((middle, tail)) = rest.split_once('}') else { return vec![text.to_owned()] };
    middle.split(',').flat_map(|part| expand(&format!("{head}{}{tail}", part.trim()))).collect()
}

/// A path of ours begins with a folder of the checkout; everything else in backticks is code.
fn looks_like_a_path(text: &str) -> bool {
    const TOPS: [&str; 10] = ["planner", "kernel", "agent", "hub", "frontend", "src", "tests", "sqllogictest", "docs", ".ci"];
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c));
    plain && text.split_once('/').is_some_and(|(top, _)| TOPS.contains(&top))
}

/// A file, a folder, or a module path such as `planner/spec` for `planner/src/spec.rs`.
fn exists(named: &str) -> bool {
    let named = named.trim_end_matches('*').trim_end_matches('/');
    let module = named.split_once('/').map(|(top, rest)| format!("{top}/src/{rest}")).unwrap_or_default();
    [named, &format!("{named}.rs"), &module, &format!("{module}.rs")].iter().any(|p| !p.is_empty() && root().join(p).exists())
}
