//! Random rows, windows of every shape, bounds, latenesses, policies, types and parallelism against a
//! recomputation that knows only the rules (`tests/oracle`). Same input, same answer: EV-3.
//!
//! `WEIR_TEST_SEED=n` repeats a run, `WEIR_TEST_CASES=n` sets how many cases are tried.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "random_windows/case.rs"]
mod case;
#[path = "random_windows/check.rs"]
mod check;
#[path = "random_windows/columns.rs"]
mod columns;
#[path = "random_windows/database.rs"]
mod database;
#[path = "random_windows/process.rs"]
mod process;
mod support;
#[path = "random_windows/world.rs"]
mod world;

use case::{COLUMNS, Case};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weir_planner::plan::JobPlan;
use weir_planner::spec::Horizon;

/// Cases of one run.
const CASES: u64 = 2_000;

/// Cases that go through the binary.
const BINARY_CASES: usize = 60;

/// What is said of what is not there yet.
const MISSING: [&str; 2] = ["not available yet", "the operator kind 'top' is not known"];

/// The number in an environment variable.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed of this run, which the test prints.
fn seed() -> u64 {
    let seed = setting("WEIR_TEST_SEED").unwrap_or_else(|| rand::rng().random());
    println!("to repeat this: WEIR_TEST_SEED={seed}");
    seed
}

/// The plan of a case at a parallelism, through the document as a user would write it.
fn plan(case: &Case, parallelism: u32) -> Result<JobPlan, String> {
    let text = case.document(parallelism);
    let said = |faults: Vec<weir_planner::error::Fault>| faults.iter().map(|fault| format!("{fault:?}\n")).collect::<String>();
    let mut document = weir_frontend::yaml::parse(&text).map_err(said)?;
    let plans = document.plan(Horizon::Local).map_err(said)?;
    plans.into_iter().next().flatten().ok_or_else(|| "there is no plan".to_owned())
}

/// Runs a case once, in one attempt.
fn try_case(case: &Case) -> Result<(), String> {
    let plan = plan(case, case.parallelism)?;
    let names = COLUMNS.map(str::to_owned);
    let feed = world::feed(&plan, &case.splits(), &names);
    let found = world::run(&[&plan], &feed, case.seed, case.batch_rows)?;
    check::check(case, &found, true)?;
    // EV-3: cut into other batches, interleaved and spread in another way, and broken off in the middle.
    if case.seed % 4 == 0 {
        let other = self::plan(case, [1, 2, 3, 8][(case.seed / 4 % 4) as usize])?;
        let found = world::run(&[&other, &plan], &feed, case.seed ^ 1, 1 + (case.seed / 16 % 50) as usize)?;
        check::check(case, &found, false).map_err(|fault| format!("after a restart: {fault}"))?;
    }
    Ok(())
}

/// E1, E2, E5, E6, E7, EV-3: what the planner and the kernel make of a job equals the recomputation.
#[test]
fn random_windows_equal_their_recomputation() {
    let mut random = StdRng::seed_from_u64(seed());
    let cases = setting("WEIR_TEST_CASES").unwrap_or(CASES);
    let one = setting("WEIR_TEST_CASE");
    let (mut faults, mut missing) = (Vec::new(), 0);
    for _ in 0..cases {
        let case = Case::new(one.unwrap_or_else(|| random.random()));
        if let Err(fault) = try_case(&case) {
            if MISSING.iter().any(|part| fault.contains(part)) {
                missing += 1;
                continue;
            }
            let query = &case.query;
            faults.push(format!(
                "WEIR_TEST_CASE={} ({} rows, {:?}, {:?}): {fault}\n  {query:?}\n  {:?}",
                case.seed,
                case.events.len(),
                case.unit,
                case.policy,
                case.second
            ));
            if faults.len() >= 5 || one.is_some() {
                break;
            }
        }
    }
    println!("{missing} of {cases} cases need what is not there yet");
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// E1: the oracle, in turn, against a database that shares nothing with it.
#[test]
fn the_oracle_equals_a_database() {
    let mut random = StdRng::seed_from_u64(seed());
    if let Err(fault) = database::compare(&mut random, 250) {
        panic!("{fault}");
    }
}

/// E1, E5 over the whole road: SQL, files of several splits, result tables, counters of the system tables.
#[test]
fn random_windows_of_the_binary_equal_their_recomputation() {
    let mut random = StdRng::seed_from_u64(seed());
    let one = setting("WEIR_TEST_CASE");
    let mut cases = Vec::new();
    while cases.len() < if one.is_some() { 1 } else { BINARY_CASES } {
        let case = Case::new(one.unwrap_or_else(|| random.random()));
        if one.is_some() || (process::speaks_sql(&case) && matches!(case.query.shape, weir_oracle::shape::Shape::Tumbling { .. })) {
            cases.push(case);
        }
    }
    let faults = process::faults(&cases);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
