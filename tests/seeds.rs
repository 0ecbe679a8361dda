//! The samples of the job documentation, unchanged, by way of the command line and of REST (JOB-2). The one that reads
//! Kafka is in `sample.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use support::process::{Weir, temporary, weir};
use support::rest::Rest;

fn seed(name: &str) -> String {
    support::tree_root().join("tests/data/seed").join(name).to_str().unwrap().to_owned()
}

/// JOB-2: read as they are. Two are valid; the join has one fault alone, that joins are not there yet.
#[test]
fn the_samples_are_read_as_they_are() {
    for name in ["rescale.yaml", "rebalance.yaml"] {
        let done = weir(&["validate", &seed(name)]);
        assert_eq!(done.code, 0, "{name}: {}{}", done.out, done.err);
    }
    let done = weir(&["validate", &seed("join.yaml")]);
    assert_eq!(done.code, 2, "{}{}", done.out, done.err);
    let faults: Vec<&str> = done.err.lines().filter(|line| !line.starts_with("    hint: ") && !line.contains(": notice: ")).collect();
    assert_eq!(faults.len(), 1, "{}", done.err);
    assert!(faults[0].contains("the join 'join-orders' is not available yet"), "{}", done.err);
}

/// JOB-2: the rebalance sample runs and ends, with notices of what has no effect here.
#[test]
fn the_rebalance_sample_runs_and_ends() {
    let data = temporary();
    let done = weir(&["run", &seed("rebalance.yaml"), "--data-dir", data.path().join("run").to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for word in ["placement 'split'", "rebalance 'auto'"] {
        assert!(done.err.contains(word), "{}", done.err);
    }
}

/// JOB-2, JOB-9: the same over REST: made running and finished; the join is refused with its one reason.
#[test]
fn the_samples_go_over_rest() {
    let data = temporary();
    let server = Weir::up(data.path());
    let rest = Rest::new(server.http());
    let text = |name: &str| std::fs::read_to_string(seed(name)).unwrap();
    rest.post_yaml("/api/v1/jobs?desired_state=running", &text("rebalance.yaml")).expect(201);
    server.sql().run("WAIT FOR JOB \"rebalanced-orders\" UNTIL FINISHED TIMEOUT '30s'");
    let problem = rest.post_yaml("/api/v1/jobs", &text("join.yaml")).expect(422);
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{problem}");
    assert_eq!(errors[0]["code"], "not_available", "{problem}");
}
