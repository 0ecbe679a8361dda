//! PG-2: programs with their own drivers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::process::Command;
use support::PATIENCE;
use support::process::{Weir, finish, temporary};

/// psycopg 3: statements in transactions, parameters, text and binary results, errors, notices.
#[test]
fn psycopg_works() {
    let root = support::tree_root();
    let python = root.join("tests/.env/bin/python");
    assert!(python.exists(), "{} is not there: run tests/run once (tests/run --setup is enough)", python.display());
    let data = temporary();
    let weir = Weir::up(data.path());
    let mut command = Command::new(python);
    command.arg(root.join("tests/clients/psycopg_probe.py")).arg(weir.pg().to_string());
    let done = finish(command, PATIENCE);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}
