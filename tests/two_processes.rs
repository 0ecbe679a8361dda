//! Hub and agent as two processes run the same job over the same protocol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::process::{Weir, temporary, weir};
use support::rest::Rest;
use support::{PATIENCE, until};

fn input(dir: &Path, rows: u64) -> String {
    let lines: String = (0..rows).map(|n| format!("{{\"k\":{},\"ts\":{},\"x\":{n}}}\n", n % 5, n)).collect();
    let path = dir.join("input.ndjson");
    std::fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_hub_and_an_agent_run_a_job_and_survive_each_others_death() {
    const ROWS: u64 = 5_000;
    let (hub_dir, agent_dir, files) = (temporary(), temporary(), temporary());
    let mut hub = Weir::hub(hub_dir.path());
    let sql = hub.sql();
    sql.run(&format!(
        "CREATE SOURCE f (k BIGINT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'file', path = '{}', format = 'json')",
        input(files.path(), ROWS)
    ));
    sql.run("CREATE SOURCE endless (n BIGINT) WITH (connector = 'generate', context = '{\"n\": 1}', interval = '5ms')");

    // Without an agent the job is made, waits, and says so.
    sql.run("CREATE JOB j AS SELECT k, count(*) AS n, sum(x) AS total FROM tumble(f, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end");
    let (state, desired, _) = sql.job("j");
    assert!(["created", "starting"].contains(&state.as_str()), "{state}");
    assert_eq!(desired, "running");

    let agent = Weir::agent(agent_dir.path(), hub.agents());
    sql.run("WAIT FOR JOB j UNTIL FINISHED TIMEOUT '30s'");
    assert_eq!(sql.rows("SELECT count(*), sum(n), sum(total) FROM j"), [["25", "5000", &(ROWS * (ROWS - 1) / 2).to_string()]]);
    assert_eq!(sql.one("SELECT count(*) FROM weir.agents WHERE state = 'online'"), "1");

    sql.run("CREATE JOB e AS SELECT n FROM endless");
    sql.run("WAIT FOR JOB e UNTIL RUNNING TIMEOUT '30s'");
    until("rows are visible through the hub", PATIENCE, || (sql.one("SELECT count(*) FROM e") != "0").then_some(()));

    // The agent dies and comes back: the job goes on from its cut, no row is lost.
    let before: u64 = sql.one("SELECT count(*) FROM e").parse().unwrap();
    let agent = agent.again();
    until("the job runs again", PATIENCE * 2, || {
        let count: u64 = sql.try_rows("SELECT count(*) FROM e").ok()?[0][0].parse().unwrap();
        assert!(count >= before, "visible rows went from {before} to {count}");
        (count > before).then_some(())
    });

    // The hub dies and comes back on the same port: it still knows everything, and the agent finds it.
    let agents_at = hub.agents().trim_start_matches("http://").to_owned();
    let before: u64 = sql.one("SELECT count(*) FROM e").parse().unwrap();
    hub.kill();
    let mut args = Weir::serving_args("hub", hub_dir.path());
    *args.last_mut().unwrap() = agents_at;
    let hub = Weir::start(args);
    let sql = hub.sql();
    until("the job runs under the new hub", PATIENCE * 2, || {
        let count: u64 = sql.try_rows("SELECT count(*) FROM e").ok()?[0][0].parse().unwrap();
        (count > before).then_some(())
    });
    assert_eq!(sql.one("SELECT sum(n) FROM j"), "5000");

    // Both end well when asked to.
    let ended = agent.terminate(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    until("the hub notices", PATIENCE * 2, || (sql.one("SELECT count(*) FROM weir.agents WHERE state = 'online'") == "0").then_some(()));
    let ended = hub.terminate(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
}

/// EPO-8: with a hub of its own a job is local to the agent that it first ran on: it waits for that
/// one and never begins anew on another.
#[test]
fn a_job_stays_with_its_agent() {
    let (hub_dir, first_dir, second_dir) = (temporary(), temporary(), temporary());
    let hub = Weir::hub(hub_dir.path());
    let first = Weir::agent(first_dir.path(), hub.agents());
    let sql = hub.sql();
    sql.run("CREATE SOURCE g (n BIGINT) WITH (connector = 'generate', context = '{\"n\": 1}', interval = '5ms')");
    sql.run("CREATE JOB j AS SELECT n FROM g");
    sql.run("WAIT FOR JOB j UNTIL RUNNING TIMEOUT '30s'");
    until("rows are decided", PATIENCE, || (sql.one("SELECT count(*) FROM j") != "0").then_some(()));
    let plan = Rest::new(hub.http()).get("/api/v1/jobs/j/plan").expect(200).to_string();
    assert!(plan.contains("local"), "the plan says its horizon: {plan}");
    let agent = sql.one("SELECT DISTINCT agent FROM weir.job_tasks WHERE job = 'j'");
    sql.run("ALTER JOB j STOP");
    sql.run("WAIT FOR JOB j UNTIL STOPPED TIMEOUT '30s'");
    let before: u64 = sql.one("SELECT count(*) FROM j").parse().unwrap();

    let _second = Weir::agent_called("two", second_dir.path(), hub.agents());
    until("both agents are there", PATIENCE, || (sql.one("SELECT count(*) FROM weir.agents") == "2").then_some(()));
    assert_eq!(first.terminate(PATIENCE).code, 0);
    sql.run("ALTER JOB j START");
    let waiting = sql.error("WAIT FOR JOB j UNTIL RUNNING TIMEOUT '1s'");
    assert_eq!(waiting.code, "57014", "{waiting}");

    let _first = Weir::agent(first_dir.path(), hub.agents());
    sql.run("WAIT FOR JOB j UNTIL RUNNING TIMEOUT '30s'");
    assert_eq!(sql.one("SELECT DISTINCT agent FROM weir.job_tasks WHERE job = 'j'"), agent);
    until("it goes on from where it was", PATIENCE, || {
        let now: u64 = sql.one("SELECT count(*) FROM j").parse().unwrap();
        assert!(now >= before, "{now} rows are visible, {before} were");
        (now > before).then_some(())
    });
}

/// OPS-5, spec 4: any role is healthy when it says so.
#[test]
fn a_hub_without_agents_is_alive() {
    let dir = temporary();
    let hub = Weir::hub(dir.path());
    let rest = Rest::new(hub.http());
    assert_eq!(rest.get("/healthz").status, 200);
    assert_eq!(rest.get("/api/v1/agents").status, 200);
}

/// An agent that cannot find its hub says which one, and keeps trying rather than dying in a loop of restarts.
#[test]
fn an_agent_names_the_hub_that_it_cannot_reach() {
    let help = weir(&["agent", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.out.contains("--hub"), "{}", help.out);
    let bad = weir(&["agent", "--hub", "not a url", "--data-dir", temporary().path().to_str().unwrap()]);
    assert_ne!(bad.code, 0);
    assert!(bad.err.contains("not a url"), "{}", bad.err);
}
