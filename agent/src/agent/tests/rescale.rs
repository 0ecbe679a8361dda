//! State that goes to other tasks when an attempt begins (CKP-8, CKP-9): from what was decided here, and from a checkpoint
//! on another machine.

use super::checkpoints::{Seals, cut, open, told};
use super::double::{World, counting_plan, expected};
use super::{begin, job, local, results, spread, until, until_failed, until_running};
use std::collections::BTreeSet;
use std::path::Path;
use weir_planner::error::Class;
use weir_planner::id::{ChainId, RegionId};
use weir_planner::manifest::Manifest;
use weir_planner::plan::{JobPlan, Region};
use weir_planner::protocol::{AttemptState, Restore};

/// The counting job with so many window tasks.
fn windows(parallelism: u32) -> JobPlan {
    let mut plan = counting_plan(&job());
    plan.rescale = true;
    plan.chains[1].parallelism = parallelism;
    let sources = (0..2).map(|subtask| (ChainId::new(0), subtask));
    let members = sources.chain((0..parallelism).map(|subtask| (ChainId::new(1), subtask))).collect();
    plan.regions = vec![Region { id: RegionId::new(0), members }];
    plan
}

/// No epoch and no checkpoint comes by itself in a plan like this.
fn still(mut plan: JobPlan) -> JobPlan {
    plan.checkpoint.epoch_ms = 3_600_000;
    plan
}

fn segments(dir: &Path) -> BTreeSet<String> {
    let state = dir.join("jobs").join(job().as_str()).join("state");
    std::fs::read_dir(state).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// CKP-9, G1, G2: two tasks, three, one, sixteen; broken off before anything is decided and after. Each row counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_follows_its_key_groups() {
    let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
    let (rows, other) = (spread(0, 800), spread(0, 800));
    let agent = open(dir.path(), &world, store.path()).await;
    begin(&agent, 1, &windows(2), Restore::Fresh).unwrap();
    until_running(&agent).await;
    let mut attempt = 1;
    for (step, parallelism) in (1..).zip([3, 1, 16]) {
        let upto = step * 200;
        world.feeds[0].give(&rows[upto - 200..upto]);
        world.feeds[1].give(&other[upto - 200..upto]);
        world.feeds[0].until_decided(upto as u64).await;
        world.feeds[1].until_decided(upto as u64).await;
        agent.fence("crash").await;
        until_failed(&agent).await;
        let written = segments(dir.path());
        // Other tasks again before anything was decided, then those, twice.
        for (quiet, parallelism) in [(true, 5), (true, parallelism), (false, parallelism)] {
            attempt += 1;
            let plan = if quiet { still(windows(parallelism)) } else { windows(parallelism) };
            begin(&agent, attempt, &plan, local(&agent, true)).unwrap();
            until_running(&agent).await;
            if quiet {
                assert_eq!(segments(dir.path()), written, "what was dealt is not written anew before it is decided");
                agent.fence("crash").await;
                until_failed(&agent).await;
            }
        }
    }
    world.feeds[0].give(&rows[600..]);
    world.feeds[1].give(&other[600..]);
    world.feeds.iter().for_each(|feed| feed.close());
    until(&agent, "finished", |state| *state == AttemptState::Finished).await;
    assert_eq!(results(&agent).await, expected(&[&rows, &other]));
    assert!(told(&agent, "cut_refused").is_empty());
}

/// CKP-8, CKP-9: another machine deals what was sealed, or refuses it and says which tasks there were. What it seals before
/// anything was decided can be dealt again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_goes_to_other_tasks() {
    let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
    let rows = spread(0, 600);
    let first = open(&dir.path().join("1"), &world, store.path()).await;
    let seals = Seals::of(&first);
    let sealing = |parallelism| {
        let mut plan = windows(parallelism);
        plan.horizon = weir_planner::spec::Horizon::Sealed;
        plan
    };
    begin(&first, 1, &sealing(2), Restore::Fresh).unwrap();
    until_running(&first).await;
    world.feeds[0].give(&rows[..400]);
    seals.until_holds(400).await;
    first.fence("crash").await;
    let sealed = seals.newest_first();
    let second = open(&dir.path().join("2"), &world, store.path()).await;
    seals.go_on(&second);
    let unasked = JobPlan { rescale: false, ..sealing(3) };
    begin(&second, 2, &unasked, cut(None, sealed.clone())).unwrap();
    let refused = until(&second, "failed", |state| matches!(state, AttemptState::Failed(_))).await;
    let AttemptState::Failed(failure) = refused else { panic!("{refused:?}") };
    assert_eq!(failure.class, Class::User);
    assert!(failure.message.contains("added tasks win-2, out-2") && failure.message.contains("set rescale: true"), "{failure:?}");
    begin(&second, 3, &sealing(3), cut(None, sealed)).unwrap();
    until_running(&second).await;
    world.feeds[0].give(&rows[400..500]);
    seals.until_holds(500).await;
    second.fence("crash").await;
    let sealed: Vec<Manifest> = seals.newest_first();
    let third = open(&dir.path().join("3"), &world, store.path()).await;
    begin(&third, 4, &sealing(1), cut(None, sealed)).unwrap();
    until_running(&third).await;
    world.feeds[0].give(&rows[500..]);
    world.feeds.iter().for_each(|feed| feed.close());
    until(&third, "finished", |state| *state == AttemptState::Finished).await;
    assert_eq!(results(&third).await, expected(&[&rows, &[]]));
}
