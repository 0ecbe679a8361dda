//! Starting and stopping: SIGTERM drains, a second process is told who holds the directory, a busy
//! port is named, and what a file sink wrote is neither torn nor doubled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::{Ended, Weir, finish, temporary, weir_command};
use support::sql::Sql;
use support::{PATIENCE, until};

fn refused(args: &[String]) -> Ended {
    let mut command = weir_command();
    command.args(args);
    let ended = finish(command, PATIENCE);
    assert_ne!(ended.code, 0, "{}", ended.out);
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    ended
}

/// A job that numbers rows into a file, without an end.
fn numbering(sql: &Sql, output: &Path) {
    sql.run(
        "CREATE SOURCE g (n TEXT) WITH (connector = 'generate', context = '{\"n\": \"{{counter}}\"}', interval = '1ms', batch_size = 5)",
    );
    sql.run(&format!("CREATE SINK f WITH (connector = 'file', path = '{}', format = 'json')", output.display()));
    sql.run("CREATE JOB numbers INTO f WITH (checkpoint.epoch = '100ms', checkpoint.interval = '1s') AS SELECT n FROM g");
    sql.run("WAIT FOR JOB numbers UNTIL RUNNING TIMEOUT '30s'");
}

/// The numbers in the file sink's files; torn lines are a fault.
fn numbers(output: &Path) -> Vec<u64> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(output).into_iter().flatten() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("torn line {line:?}: {e}"));
            numbers.push(row["n"].as_str().unwrap().parse().unwrap());
        }
    }
    numbers
}

/// Each number once, without a gap from the first one.
fn assert_whole(numbers: &[u64]) {
    let set: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(set.len(), numbers.len(), "{} of {} lines are doubled", numbers.len() - set.len(), numbers.len());
    let (first, last) = (*set.first().unwrap(), *set.last().unwrap());
    assert!(first <= 1, "the first number is {first}");
    assert_eq!(last - first + 1, set.len() as u64, "numbers are missing below {last}");
}

/// How many lines are surely whole: for waiting only.
fn lines_so_far(output: &Path) -> usize {
    let files = std::fs::read_dir(output).into_iter().flatten().flatten();
    files.map(|entry| std::fs::read_to_string(entry.path()).map_or(0, |text| text.lines().count())).sum()
}

/// OPS-3, A7: SIGTERM confirms the last epoch and exits 0; a restart goes on after it, no line twice.
#[test]
fn sigterm_drains_and_a_restart_repeats_nothing() {
    let (data, files) = (temporary(), temporary());
    let output = files.path().join("out");
    let weir = Weir::up(data.path());
    numbering(&weir.sql(), &output);
    until("rows are written", PATIENCE, || (lines_so_far(&output) > 200).then_some(()));
    // A session that does nothing does not hold it up.
    let _idle = weir.sql();
    let begin = Instant::now();
    let ended = weir.terminate(Duration::from_secs(10));
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    println!("drained in {:?}", begin.elapsed());
    let first = numbers(&output);
    assert_whole(&first);

    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run("WAIT FOR JOB numbers UNTIL RUNNING TIMEOUT '30s'");
    until("more rows are written", PATIENCE, || (lines_so_far(&output) > first.len() + 200).then_some(()));
    sql.run("ALTER JOB numbers STOP");
    sql.run("WAIT FOR JOB numbers UNTIL STOPPED TIMEOUT '30s'");
    let second = numbers(&output);
    assert_whole(&second);
    assert!(second.len() > first.len());
    let ended = weir.terminate(Duration::from_secs(10));
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
}

/// Killed in the middle, a file sink cuts off what was never decided: no line torn, doubled or lost.
#[test]
fn a_file_sink_is_whole_after_kills() {
    let (data, files) = (temporary(), temporary());
    let output = files.path().join("out");
    let mut weir = Weir::up(data.path());
    numbering(&weir.sql(), &output);
    for _ in 0..3 {
        let before = lines_so_far(&output);
        until("rows are written", PATIENCE, || (lines_so_far(&output) > before + 300).then_some(()));
        weir = weir.again();
        weir.sql().run("WAIT FOR JOB numbers UNTIL RUNNING TIMEOUT '30s'");
    }
    let sql = weir.sql();
    sql.run("ALTER JOB numbers STOP");
    sql.run("WAIT FOR JOB numbers UNTIL STOPPED TIMEOUT '30s'");
    assert_whole(&numbers(&output));
}

/// A stopped job stays stopped, a running one runs again by itself, and a finished one is not run twice.
#[test]
fn a_restart_brings_back_what_was_wanted() {
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run("CREATE SOURCE v (k BIGINT) AS VALUES (1), (2)");
    sql.run("CREATE SOURCE g (n BIGINT) WITH (connector = 'generate', context = '{\"n\": 1}', interval = '10ms')");
    sql.run("CREATE JOB done AS SELECT k FROM v");
    sql.run("CREATE JOB runs AS SELECT n FROM g");
    sql.run("CREATE JOB stopped AS SELECT n FROM g");
    sql.run("WAIT FOR JOB done UNTIL FINISHED TIMEOUT '30s'");
    sql.run("WAIT FOR JOB runs UNTIL RUNNING TIMEOUT '30s'");
    sql.run("WAIT FOR JOB stopped UNTIL RUNNING TIMEOUT '30s'");
    sql.run("ALTER JOB stopped STOP");
    sql.run("WAIT FOR JOB stopped UNTIL STOPPED TIMEOUT '30s'");
    until("a row is visible", PATIENCE, || (sql.one("SELECT count(*) FROM runs") != "0").then_some(()));
    let kept = sql.one("SELECT count(*) FROM stopped");
    let before: u64 = sql.one("SELECT count(*) FROM runs").parse().unwrap();

    let weir = weir.again();
    let sql = weir.sql();
    sql.run("WAIT FOR JOB runs UNTIL RUNNING TIMEOUT '30s'");
    assert_eq!(sql.rows("SELECT id, state FROM weir.jobs WHERE id <> 'runs' ORDER BY id"), [["done", "finished"], ["stopped", "stopped"]]);
    assert_eq!(sql.rows("SELECT count(*), sum(k) FROM done"), [["2", "3"]]);
    assert_eq!(sql.one("SELECT count(*) FROM stopped"), kept);
    until("it goes on from where it was", PATIENCE, || {
        let now: u64 = sql.one("SELECT count(*) FROM runs").parse().unwrap();
        assert!(now >= before, "{now} rows are visible, {before} were");
        (now > before).then_some(())
    });
    // Sources and sinks are kept too.
    assert_eq!(sql.one("SELECT count(*) FROM information_schema.tables WHERE table_name IN ('v', 'g')"), "2");
}

/// OPS-9: the data directory has one owner.
#[test]
fn a_second_process_is_told_who_holds_the_directory() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let pid = weir.process().pid();
    let ended = refused(&Weir::serving_args("up", data.path()));
    assert!(ended.err.contains(&pid.to_string()), "the pid {pid} is named: {}", ended.err);
    assert!(ended.err.contains(data.path().to_str().unwrap()), "{}", ended.err);
    weir.must_run();
    assert_eq!(weir.sql().one("SELECT 1"), "1");
    // A lock of a dead process holds nobody up.
    weir.kill();
    drop(weir);
    assert_eq!(Weir::up(data.path()).sql().one("SELECT 1"), "1");
}

/// OPS-9: a busy port is named with its flag.
#[test]
fn a_busy_port_is_named_with_its_flag() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap();
    for flag in ["--pg-listen", "--http-listen", "--agent-listen"] {
        let data = temporary();
        let mut args = Weir::serving_args("up", data.path());
        let at = args.iter().position(|arg| arg == flag).unwrap();
        args[at + 1] = address.to_string();
        let ended = refused(&args);
        assert!(ended.err.contains(&address.port().to_string()) && ended.err.contains(flag), "{flag}: {}", ended.err);
    }
}

/// OPS-1: what is printed is what a person types next.
#[test]
fn the_first_lines_say_what_to_type() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    let port = weir.pg();
    let out = weir.process().out();
    assert!(out.contains(&format!("psql -h 127.0.0.1 -p {port} -U weir weir")), "{out}");
}

/// SIGINT, as Ctrl-C sends it, is the same as SIGTERM.
#[test]
fn ctrl_c_ends_it_too() {
    let data = temporary();
    let mut weir = Weir::up(data.path());
    weir.process().signal("INT");
    let status = weir.process().wait(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0));
}
