//! Whole attempts over real chains, segments and decisions: restarts, drains, ends, refusals.

mod checkpoints;
mod rescale;
pub(crate) mod double;

use super::{Agent, AgentOptions, Checkpoints};
use crate::decision::{Retention, SMALL_FILES_MAX, merge_candidates};
use crate::error::Error;
use crate::secret::no_environment;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use double::{World, counting_plan, expected, files, output};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, Generation, JobId};
use weir_planner::plan::{JobPlan, Work};
use weir_planner::protocol::{AttemptState, CutGrant, Failure, LocalGrant, ReadRequest, ReadTarget, Restore, Start};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn job() -> JobId {
    JobId::new("counts").unwrap()
}

pub(crate) async fn open(dir: &Path, world: &World) -> Agent {
    let options = AgentOptions {
        agent: AgentId::new("a").unwrap(),
        data_dir: dir.to_owned(),
        address: String::new(),
        token: None,
        shards: Some(2),
        state_url: Checkpoints::Nowhere,
        environment: no_environment,
    };
    Agent::open_with(options, Arc::new(world.clone())).await.unwrap()
}

fn local(agent: &Agent, must_exist: bool) -> Restore {
    Restore::Cut(Box::new(CutGrant {
        local: Some(LocalGrant { store_id: agent.store_id().to_owned(), since: None, must_exist }),
        checkpoints: Vec::new(),
    }))
}

fn begin(agent: &Agent, attempt: u64, plan: &JobPlan, restore: Restore) -> Result<(), Error> {
    agent.start(&job(), Generation::new(1), Start { attempt: Attempt::new(attempt), plan: plan.clone(), restore })
}

/// Waits for a state of the job's last attempt.
pub(crate) async fn until(agent: &Agent, what: &str, wanted: impl Fn(&AttemptState) -> bool) -> AttemptState {
    let mut changed = agent.changed();
    let wait = async {
        loop {
            if let Some(seen) = agent.observe().into_iter().find(|o| o.job == job() && wanted(&o.state)) {
                return seen.state;
            }
            changed.changed().await.unwrap();
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(state) => state,
        Err(_) => panic!("never {what}: {:?}", agent.observe().iter().map(|o| &o.state).collect::<Vec<_>>()),
    }
}

pub(crate) async fn until_running(agent: &Agent) {
    until(agent, "running", |s| *s == AttemptState::Running).await;
}

pub(crate) async fn until_failed(agent: &Agent) -> Failure {
    match until(agent, "failed", |s| matches!(s, AttemptState::Failed(_))).await {
        AttemptState::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

async fn rows(agent: &Agent, limit: Option<u64>) -> Vec<RecordBatch> {
    let request =
        ReadRequest { id: 1, job: job(), target: ReadTarget::Results, schema: output(), limit, store_id: None, replaces_by: Vec::new() };
    let mut stream = agent.read(request).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    let reader = arrow_ipc::reader::StreamReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    reader.map(Result::unwrap).collect()
}

/// The result table by key and window; every (key, window) may stand in it once only.
async fn results(agent: &Agent) -> BTreeMap<(i64, i64), i64> {
    let mut counts = BTreeMap::new();
    for batch in rows(agent, None).await {
        let (k, start) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<TimestampMillisecondType>());
        let n = batch.column(3).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let before = counts.insert((k.value(row), start.value(row)), n.value(row));
            assert_eq!(before, None, "window given twice");
        }
    }
    counts
}

fn spread(from: i64, to: i64) -> Vec<(i64, i64)> {
    (from..to).map(|i| (i / 3, i % 7)).collect()
}

/// EPO-3, CKP-1, A3: whatever the moment of the crash, rows are counted once, in state and in
/// results. An attempt that is fenced decides nothing more, which is what a crash leaves behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_right_however_often_the_job_crashes() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let all = [spread(0, 3_000), spread(0, 2_500)];
    let mut given = [0, 0];
    for attempt in 1..=6 {
        let agent = open(dir.path(), &world).await;
        begin(&agent, attempt, &plan, local(&agent, attempt > 1)).unwrap();
        until_running(&agent).await;
        for piece in 0..10 {
            for (feed, rows) in all.iter().enumerate() {
                let to = rows.len() * ((attempt as usize - 1) * 10 + piece + 1) / 60;
                world.feeds[feed].give(&rows[given[feed]..to]);
                given[feed] = to;
            }
            // Some epochs are decided before the crash, some rows are not.
            if piece == 5 {
                world.feeds[0].until_decided(given[0] as u64).await;
            }
        }
        if attempt == 6 {
            world.feeds.iter().for_each(|f| f.close());
            until(&agent, "finished", |s| *s == AttemptState::Finished).await;
            assert_eq!(results(&agent).await, expected(&[&all[0], &all[1]]));
        } else {
            agent.fence("crash").await;
            assert_eq!(until_failed(&agent).await.class, Class::Retry);
        }
        agent.shutdown(PATIENCE).await;
    }
    assert_eq!(given, [3_000, 2_500]);
}

/// OPS-3, A7: a stop decides what was read: the next attempt reads nothing twice, and open windows
/// go on where they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_decides_the_last_epoch_and_the_next_attempt_goes_on() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let mut plan = counting_plan(&job());
    // Slow epochs: without its own last epoch the stop would lose what was read.
    plan.checkpoint.epoch_ms = 3_600_000;
    let agent = open(dir.path(), &world).await;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    // All in one open window: only state can know of them.
    world.feeds[0].give(&[(1, 1), (2, 1), (3, 2)]);
    let mut changed = agent.changed();
    while agent.observe()[0].sources.iter().map(|s| s.rows_in).sum::<u64>() < 3 {
        let _ = tokio::time::timeout(Duration::from_millis(5), changed.changed()).await;
    }
    agent.stop(&job(), Attempt::new(1)).await;
    let seen = &agent.observe()[0];
    assert_eq!(seen.state, AttemptState::Stopped);
    assert!(seen.has_cut);
    agent.shutdown(PATIENCE).await;
    let state = dir.path().join("jobs/counts/state");
    let segments = files(&state, ".seg");
    assert!(!segments.is_empty());
    // B5: what a crash leaves between writing and deciding is not part of the cut, and goes.
    std::fs::write(state.join("00.seg"), b"written, never decided").unwrap();
    std::fs::write(state.join(".unfinished-0-11.seg"), b"half").unwrap();
    std::fs::write(dir.path().join("jobs/counts/results/22"), b"rows never decided").unwrap();

    let agent = open(dir.path(), &world).await;
    assert_eq!(agent.last_attempt(&job()).unwrap(), Attempt::new(1));
    begin(&agent, 2, &plan, local(&agent, true)).unwrap();
    until_running(&agent).await;
    assert_eq!(files(&state, ""), segments);
    assert_eq!(files(&dir.path().join("jobs/counts/results"), ""), Vec::<std::path::PathBuf>::new());
    // The third row is behind its split's maximum and its window is over: late, and told so (P3).
    world.feeds[1].give(&[(4, 1), (25, 3), (5, 1)]);
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, BTreeMap::from([((1, 0), 3), ((2, 0), 1), ((3, 20), 1)]));
    let losses: Vec<(String, u64)> =
        agent.observe()[0].events.iter().filter(|e| e.kind == "rows_late").map(|e| (e.operator.clone().unwrap(), e.count)).collect();
    assert_eq!(losses, [("win".to_owned(), 1)]);
    let seen = &agent.observe()[0];
    assert_eq!(seen.sources.iter().map(|s| s.rows_in).sum::<u64>(), 3, "rows were read again");
    agent.shutdown(PATIENCE).await;
}

/// C51, B4: a segment that is missing or altered is refused by name; the job never starts empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_cut_is_refused_and_named() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let agent = open(dir.path(), &world).await;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    world.feeds[0].give(&[(1, 1), (2, 2), (3, 3)]);
    world.feeds[0].until_decided(3).await;
    agent.stop(&job(), Attempt::new(1)).await;
    let segment = files(&dir.path().join("jobs/counts/state"), ".seg").remove(0);
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    let good = std::fs::read(&segment).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;

    std::fs::write(&segment, bad).unwrap();
    begin(&agent, 2, &plan, local(&agent, true)).unwrap();
    let failure = until_failed(&agent).await;
    assert_eq!(failure.class, Class::Corrupt);
    assert!(failure.message.contains(&name), "{}", failure.message);

    std::fs::remove_file(&segment).unwrap();
    begin(&agent, 3, &plan, local(&agent, true)).unwrap();
    let failure = until(&agent, "refused", |s| matches!(s, AttemptState::Failed(f) if f.message.contains("is missing"))).await;
    assert!(matches!(&failure, AttemptState::Failed(f) if f.class == Class::Corrupt && f.message.contains(&name)), "{failure:?}");

    std::fs::write(&segment, good).unwrap();
    begin(&agent, 4, &plan, local(&agent, true)).unwrap();
    until_running(&agent).await;
    agent.shutdown(PATIENCE).await;
}

/// A failing task ends its job with class and place, and nothing else: the agent starts the next
/// attempt, which goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_task_fails_its_job_only() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let agent = open(dir.path(), &world).await;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    world.feeds[1].fail(Class::User);
    let failure = until_failed(&agent).await;
    assert_eq!(failure.class, Class::User);
    assert!(failure.message.contains("job counts: chain of task src-1: the feed was told to fail"), "{}", failure.message);
    let seen = &agent.observe()[0];
    assert_eq!(seen.events.last().map(|e| e.kind.as_str()), Some("failed"));
    agent.acknowledge(&agent.observe());
    assert_eq!(agent.observe()[0].events, []);
    // The same attempt told again stays ended; an older one is fenced.
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    begin(&agent, 2, &plan, local(&agent, false)).unwrap();
    until_running(&agent).await;
    assert_eq!(begin(&agent, 1, &plan, Restore::Fresh).unwrap_err().class, Class::Fenced);
    world.feeds[0].give(&[(1, 1)]);
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, BTreeMap::from([((1, 0), 1)]));
    agent.shutdown(PATIENCE).await;
}

/// C3: a disk that refuses a segment fails the job with path and cause; nothing is decided on top
/// of it, the process lives, and the job goes on once the disk takes files again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_refuses_fails_the_job_and_decides_nothing() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let agent = open(dir.path(), &world).await;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    let state = dir.path().join("jobs/counts/state");
    std::fs::remove_dir(&state).unwrap();
    std::fs::write(&state, b"in the way").unwrap();
    world.feeds[0].give(&[(1, 1)]);
    let failure = until_failed(&agent).await;
    assert_eq!(failure.class, Class::Retry);
    assert!(failure.message.contains("jobs/counts/state"), "{}", failure.message);
    assert!(!agent.observe()[0].has_cut);
    std::fs::remove_file(&state).unwrap();
    begin(&agent, 2, &plan, local(&agent, false)).unwrap();
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, BTreeMap::from([((1, 0), 1)]));
    agent.shutdown(PATIENCE).await;
}

/// B7, EPO-6: a sink that does not flush makes the round give up its number, not its changes; the
/// job runs on and everything is decided once the sink is through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_sink_costs_a_round_but_no_row() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let mut plan = counting_plan(&job());
    plan.checkpoint.timeout_ms = 30;
    let agent = open(dir.path(), &world).await;
    world.gate.set(true);
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    world.feeds[0].give(&[(1, 1), (25, 2)]);
    let given_up = async {
        while !agent.observe()[0].events.iter().any(|e| e.kind == "epoch_abandoned") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_up).await.expect("the round is given up");
    assert!(!agent.observe()[0].has_cut);
    world.feeds[1].give(&[(30, 1)]);
    world.gate.set(false);
    world.feeds[0].until_decided(2).await;
    world.feeds[1].until_decided(1).await;
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, BTreeMap::from([((1, 0), 1), ((2, 20), 1), ((1, 30), 1)]));
    agent.shutdown(PATIENCE).await;
}

/// EPO-6: past its bound of bytes the open epoch ends although its turn is an hour away; while a
/// round cannot be decided the source is held back, and goes on after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_epoch_is_decided_before_its_turn() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let mut plan = counting_plan(&job());
    plan.checkpoint.epoch_ms = 3_600_000;
    for operator in plan.chains.iter_mut().flat_map(|c| &mut c.operators) {
        if let Work::Source(source) = &mut operator.work {
            source.batch.rows = 5;
        }
    }
    let options = AgentOptions {
        agent: AgentId::new("a").unwrap(),
        data_dir: dir.path().to_owned(),
        address: String::new(),
        token: None,
        shards: Some(2),
        state_url: Checkpoints::Nowhere,
        environment: no_environment,
    };
    // A row of the feed counts 16 bytes.
    let agent = Agent::open_bounded(options, Arc::new(world.clone()), 10 * 16).await.unwrap();
    let all = spread(0, 48);
    world.feeds[0].give(&all);
    world.gate.set(true);
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    let read = || agent.observe()[0].sources.iter().map(|s| s.rows_in).sum::<u64>();
    let held = async {
        while read() < 20 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.expect("ten rows before the barrier and ten after it");
    assert!(!agent.observe()[0].has_cut);
    assert_eq!(read(), 20);
    world.gate.set(false);
    // One barrier each for 10, 20, 30 and 40 rows; the last eight wait for their turn or the end.
    world.feeds[0].until_decided(40).await;
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, expected(&[&all, &[]]));
    agent.shutdown(PATIENCE).await;
}

/// KER-5: an attempt that hangs while it connects can still be stopped, superseded and forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_hangs_can_be_stopped() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let agent = open(dir.path(), &world).await;
    *world.stuck.0.lock() = true;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    agent.stop(&job(), Attempt::new(1)).await;
    assert_eq!(agent.observe()[0].state, AttemptState::Stopped);
    begin(&agent, 2, &plan, local(&agent, false)).unwrap();
    begin(&agent, 3, &plan, local(&agent, false)).unwrap();
    *world.stuck.0.lock() = false;
    world.stuck.1.notify_all();
    until_running(&agent).await;
    assert_eq!(agent.observe()[0].attempt, Attempt::new(3));
    agent.forget(&job(), Attempt::new(3), None).await.unwrap();
    assert!(!dir.path().join("jobs/counts").exists());
    assert_eq!(agent.observe(), []);
    agent.shutdown(PATIENCE).await;
}

/// Waits until merged result files wait for the next decision, if a merge is due: no decision waits
/// for a merge, and on a busy machine the epochs of a test come faster than files are merged.
async fn until_merged(agent: &Agent, retention: Retention) {
    let context = &agent.inner.context;
    let waits = || context.replacements.lock().contains_key(&job());
    let due = || merge_candidates(&context.decisions.results(&job()).unwrap(), retention).is_some();
    let merged = async {
        while due() && !waits() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, merged).await.expect("result files are merged");
}

/// No window task has more decided segments than one over what a merge leaves.
fn segments_are_few(agent: &Agent) -> bool {
    let regions = agent.inner.context.decisions.regions(&job()).unwrap();
    regions.values().flat_map(|region| &region.segments).all(|task| task.segments.len() <= 9)
}

/// CKP-3, SQL-8: however many epochs are decided, few segments and few result files stay, old
/// result rows go, and what stays reads in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_stay_few_and_old_results_go() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let mut plan = counting_plan(&job());
    plan.result_retention_rows = 100;
    let retention = Retention { rows: 100, ms: None };
    let agent = open(dir.path(), &world).await;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    let mut all = Vec::new();
    let began = std::time::Instant::now();
    let mut windows = 0;
    // As for result files, epochs may for a while be faster than segments are merged.
    while windows < 130 || !segments_are_few(&agent) {
        assert!(began.elapsed() < 2 * PATIENCE, "segments pile up");
        let window = windows;
        windows += 1;
        // One result row for each window and key.
        all.push((window * SIZE, 1));
        world.feeds[0].give(&all[window as usize..]);
        world.feeds[1].give(&[(window * SIZE, 2)]);
        world.feeds[0].until_decided(window as u64 + 1).await;
        world.feeds[1].until_decided(window as u64 + 1).await;
        until_merged(&agent, retention).await;
    }
    world.feeds.iter().for_each(|f| f.close());
    until(&agent, "finished", |s| *s == AttemptState::Finished).await;
    let results_dir = dir.path().join("jobs/counts/results");
    let index = agent.inner.context.decisions.results(&job()).unwrap();
    // A merge is due from 65 small files on; the window after it and the end add two rows each.
    let (small, merged): (Vec<_>, Vec<_>) = index.iter().partition(|f| f.rows <= 6);
    assert!(small.len() <= SMALL_FILES_MAX + 4, "{} small result files", small.len());
    // What is not small holds seven rows or more of the hundred and a file's worth that stay.
    assert!((1..=16).contains(&merged.len()), "{} merged result files", merged.len());
    let unnamed = files(&results_dir, "").len() - index.len();
    assert!(unnamed <= 1, "{unnamed} files that no decision names, where one may have waited for a decision");
    // The end adds one each at most, and one merge may have come too late.
    let segments = files(&dir.path().join("jobs/counts/state"), ".seg").len();
    assert!(segments <= 2 * 10 + 1, "{segments} segments");
    let counts = results(&agent).await;
    assert!((100..=125).contains(&counts.len()), "{} rows", counts.len());
    assert!(counts.contains_key(&(1, (windows - 1) * SIZE)) && !counts.contains_key(&(1, 0)));
    assert!(counts.values().all(|n| *n == 1));
    let limited: usize = rows(&agent, Some(7)).await.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(limited, 7);
    agent.shutdown(PATIENCE).await;
}

const SIZE: i64 = double::SIZE_MS;

/// EPO-9, C51: a cut of another data directory, or one that has gone, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_of_another_store_is_refused() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::default());
    let plan = counting_plan(&job());
    let agent = open(dir.path(), &world).await;
    let elsewhere = LocalGrant { store_id: "elsewhere".to_owned(), since: None, must_exist: true };
    begin(&agent, 1, &plan, Restore::Cut(Box::new(CutGrant { local: Some(elsewhere), checkpoints: Vec::new() }))).unwrap();
    let failure = until_failed(&agent).await;
    assert_eq!(failure.class, Class::Corrupt);
    assert!(failure.message.contains("elsewhere") && failure.message.contains(agent.store_id()), "{}", failure.message);
    begin(&agent, 2, &plan, local(&agent, true)).unwrap();
    let state = until(&agent, "refused", |s| matches!(s, AttemptState::Failed(f) if f.message.contains("not started empty"))).await;
    assert!(matches!(state, AttemptState::Failed(f) if f.class == Class::Corrupt));
    // A second agent on the same directory is refused while the first has it.
    let options = AgentOptions {
        agent: AgentId::new("b").unwrap(),
        data_dir: dir.path().to_owned(),
        address: String::new(),
        token: None,
        shards: Some(1),
        state_url: Checkpoints::Nowhere,
        environment: no_environment,
    };
    let Err(error) = Agent::open_with(options, Arc::new(world)).await else { panic!("opened twice") };
    assert_eq!(error.class, Class::User);
    agent.shutdown(PATIENCE).await;
}
