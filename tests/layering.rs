//! Who may import whom. Reads each member's manifest and greps the fences inside the crates, so
//! that docs/architecture.md stays true by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tree::{code_of, product_files, product_lines, root, uses_path};

/// What a member may depend on: ours as listed; `outside` closes the list of foreign crates.
struct Room {
    member: &'static str,
    ours: &'static [&'static str],
    outside: Option<&'static [&'static str]>,
    never: &'static [&'static str],
}

const ROOMS: [Room; 6] = [
    Room {
        member: "planner",
        ours: &[],
        // Time zones, for the days of calendars; no clock.
        outside: Some(&["serde", "serde_json", "arrow-schema", "chrono", "chrono-tz", "thiserror", "xxhash-rust"]),
        never: &[],
    },
    Room {
        member: "kernel",
        ours: &["weir-planner"],
        outside: None,
        never: &["tokio", "axum", "reqwest", "redb", "rdkafka", "parquet", "sqlparser", "pgwire", "async-trait", "chrono"],
    },
    Room { member: "agent", ours: &["weir-planner", "weir-kernel"], outside: None, never: &["sqlparser", "datafusion", "axum", "pgwire"] },
    Room {
        member: "hub",
        ours: &["weir-planner"],
        outside: None,
        never: &["sqlparser", "datafusion", "arrow", "parquet", "rdkafka", "pgwire"],
    },
    Room { member: "frontend", ours: &["weir-planner", "weir-hub"], outside: None, never: &["redb", "rdkafka", "flume"] },
    Room { member: "tests/oracle", ours: &[], outside: Some(&["chrono", "chrono-tz"]), never: &[] },
];

/// A crate or path that only some files may name: prefixes of paths, `.rs` left off.
struct Fence {
    name: &'static str,
    allowed: &'static [&'static str],
}

const FENCES: [Fence; 10] = [
    Fence { name: "redb", allowed: &["hub/src/store", "agent/src/decision", "agent/src/wal"] },
    Fence { name: "axum", allowed: &["frontend/src/rest", "hub/src/agent_api", "src/ops", "src/bench/latency"] },
    Fence { name: "sqlparser", allowed: &["frontend/src/sql", "frontend/src/query", "frontend/src/pgwire"] },
    Fence {
        name: "datafusion",
        allowed: &["frontend/src/sql", "frontend/src/query", "frontend/src/pgwire", "kernel/src/eval", "kernel/src/accumulate"],
    },
    Fence { name: "rdkafka", allowed: &["agent/src/connector/kafka"] },
    Fence { name: "pgwire", allowed: &["frontend/src/pgwire"] },
    Fence { name: "hyper", allowed: &["agent/src/connector/http"] },
    Fence { name: "hyper_util", allowed: &["agent/src/connector/http"] },
    Fence { name: "parquet", allowed: &["agent/src/format/parquet", "agent/src/connector/file"] },
    Fence { name: "std::env", allowed: &["src/config"] },
];

#[test]
fn a_member_imports_only_what_its_room_allows() {
    let mut faults = Vec::new();
    for room in &ROOMS {
        let dependencies = dependencies(room.member);
        for name in &dependencies {
            let is_ours = name.starts_with("weir-");
            let refused =
                if is_ours { !room.ours.contains(&name.as_str()) } else { room.outside.is_some_and(|o| !o.contains(&name.as_str())) };
            if refused || room.never.contains(&name.as_str()) {
                faults.push(format!("{}/Cargo.toml depends on {name}", room.member));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_member_has_a_room() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|l| l.starts_with("members")).unwrap();
    let members: BTreeSet<&str> = line.split('"').skip(1).step_by(2).collect();
    let rooms: BTreeSet<&str> = ROOMS.iter().map(|r| r.member).collect();
    assert_eq!(members, rooms, "a new member needs a line in ROOMS of tests/layering.rs");
}

#[test]
fn a_fenced_crate_is_named_only_behind_its_fence() {
    let mut faults = Vec::new();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for file in product_files() {
        let stem = file.path.trim_end_matches(".rs");
        for (number, line) in product_lines(&file.text) {
            let code = code_of(line);
            for fence in &FENCES {
                if !uses_path(&code, fence.name) {
                    continue;
                }
                *named.entry(fence.name).or_default() += 1;
                if !fence.allowed.iter().any(|a| within(stem, a)) {
                    faults.push(format!("{}:{number} names {}, allowed only in {}", file.path, fence.name, fence.allowed.join(", ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for name in ["redb", "axum", "sqlparser", "datafusion", "rdkafka", "pgwire", "hyper"] {
        assert!(named.contains_key(name), "no file names {name}: the check sees nothing, or the fence is out of date");
    }
}

/// Planner and kernel know neither files, sockets, threads' sleep nor the wall clock (KER-1).
#[test]
fn planner_and_kernel_touch_nothing_outside() {
    const OUTSIDE: [&str; 8] =
        ["std::fs", "std::net", "std::process", "std::io", "SystemTime", "Instant::now", "thread::sleep", "thread::spawn"];
    let mut faults = Vec::new();
    for file in product_files().iter().filter(|f| f.path.starts_with("planner/") || f.path.starts_with("kernel/")) {
        for (number, line) in product_lines(&file.text) {
            let code = code_of(line);
            for name in OUTSIDE.iter().filter(|name| contains_word(&code, name)) {
                faults.push(format!("{}:{number} names {name}", file.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Plans are read by the data column and made by the deciding one.
#[test]
fn kernel_and_agent_never_compile_a_plan() {
    let mut faults = Vec::new();
    for file in product_files().iter().filter(|f| f.path.starts_with("agent/") || f.path.starts_with("kernel/")) {
        for (number, line) in product_lines(&file.text) {
            let code = code_of(line);
            if code.contains("planner::compile") || contains_word(&code, "compile::compile") {
                faults.push(format!("{}:{number} names planner's compile", file.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_check_sees_a_use_and_overlooks_a_mention() {
    for (line, seen) in [
        ("use redb::Database;", true),
        ("    let db = redb::Database::create(path)?;", true),
        ("use redb;", true),
        ("// redb::Database", false),
        ("//! uses redb::Database", false),
        ("let name = \"redb::Database\";", false),
        ("use crate::redb::Thing;", false),
        ("let x = my_redb::open();", false),
    ] {
        assert_eq!(uses_path(&code_of(line), "redb"), seen, "{line}");
    }
}

/// `frontend/src/rest` covers `frontend/src/rest.rs`, `rest/…` and `rest_…`.
fn within(stem: &str, allowed: &str) -> bool {
    stem.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with('_'))
}

fn contains_word(code: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    code.match_indices(word).any(|(at, _)| edge(code[..at].chars().next_back()) && edge(code[at + word.len()..].chars().next()))
}

/// Names in `[dependencies]` of a member, build dependencies too; those for tests are free.
fn dependencies(member: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
    let mut names = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies") && section != "dev-dependencies";
            if let Some((_, name)) = section.split_once("dependencies.") {
                names.push(name.to_owned());
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next().map(|name| name.trim_matches('"').to_owned()));
        }
    }
    names
}
