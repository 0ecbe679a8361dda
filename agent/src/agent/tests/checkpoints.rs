//! Checkpoints of whole attempts: sealed here, begun from on this machine and on another one.

use super::double::{World, counting_plan, expected, operator};
use super::{begin, job, local, results, spread, until, until_failed, until_running};
use crate::agent::{Agent, AgentOptions, Checkpoints};
use crate::secret::no_environment;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use weir_planner::connector::Position;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, CheckpointId};
use weir_planner::manifest::{CheckpointKind, Manifest, positions_of};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AttemptState, CutGrant, LocalGrant, Restore, Sealed};
use weir_planner::spec::Horizon;

pub async fn open(dir: &Path, world: &World, store: &Path) -> Agent {
    let options = AgentOptions {
        agent: AgentId::new("a").unwrap(),
        data_dir: dir.to_owned(),
        address: String::new(),
        token: None,
        shards: Some(2),
        state_url: Checkpoints::At(format!("file://{}", store.display())),
        environment: no_environment,
    };
    Agent::open_with(options, Arc::new(world.clone())).await.unwrap()
}

/// A plan whose checkpoints are made as often as they can be.
fn plan() -> JobPlan {
    let mut plan = counting_plan(&job());
    plan.checkpoint.interval_ms = 10;
    plan.horizon = Horizon::Sealed;
    plan
}

/// Seals all that is asked for, and keeps the newest three.
#[derive(Clone)]
pub struct Seals {
    kept: Arc<Mutex<Vec<Manifest>>>,
    count: watch::Sender<u64>,
}

impl Seals {
    pub fn of(agent: &Agent) -> Seals {
        let seals = Seals { kept: Arc::default(), count: watch::Sender::new(0) };
        seals.go_on(agent);
        seals
    }

    pub fn go_on(&self, agent: &Agent) {
        let (asks, seals) = (agent.asks(), self.clone());
        tokio::spawn(async move {
            while let Ok(ask) = asks.recv_async().await {
                let Ok(manifest) = ask.done.result else {
                    let _ = ask.reply.send(Ok(None));
                    continue;
                };
                let id = CheckpointId::new(*seals.count.borrow() + 1);
                let retained = {
                    let mut kept = seals.kept.lock();
                    kept.push(Manifest { id, ..manifest });
                    let over = kept.len().saturating_sub(3);
                    kept.drain(..over);
                    kept.clone()
                };
                let _ = ask.reply.send(Ok(Some(Sealed { id, retained })));
                seals.count.send_modify(|count| *count += 1);
            }
        });
    }

    async fn until(&self, count: u64) {
        tokio::time::timeout(super::PATIENCE, self.count.subscribe().wait_for(|seen| *seen >= count)).await.unwrap().unwrap();
    }

    /// Waits for a seal of what the first feed gave up to here.
    pub async fn until_holds(&self, row: u64) {
        let holds = |_: &u64| {
            let kept = self.kept.lock();
            let positions = kept.last().into_iter().flat_map(|manifest| positions_of(manifest.cuts.values(), &operator("src")));
            positions.into_iter().any(|at| at.split == "0" && matches!(at.position, Position::Row(at) if at >= row))
        };
        tokio::time::timeout(super::PATIENCE, self.count.subscribe().wait_for(holds)).await.unwrap().unwrap();
    }

    pub fn newest_first(&self) -> Vec<Manifest> {
        self.kept.lock().iter().rev().cloned().collect()
    }
}

pub fn cut(local: Option<LocalGrant>, checkpoints: Vec<Manifest>) -> Restore {
    Restore::Cut(Box::new(CutGrant { local, checkpoints }))
}

pub fn told(agent: &Agent, kind: &str) -> Vec<String> {
    let events = agent.observe().into_iter().flat_map(|seen| seen.events);
    events.filter(|event| event.kind == kind).map(|event| event.message).collect()
}

/// CKP-6, B8, EPO-8: what was sealed is all that another machine needs. It goes on from there, and rows are counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_machine_goes_on_from_a_checkpoint() {
    let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
    let (rows, other) = (spread(0, 900), spread(0, 600));
    let first = open(&dir.path().join("1"), &world, store.path()).await;
    let seals = Seals::of(&first);
    begin(&first, 1, &plan(), Restore::Fresh).unwrap();
    until_running(&first).await;
    world.feeds[0].give(&rows[..300]);
    world.feeds[1].give(&other[..200]);
    seals.until_holds(300).await;
    world.feeds[0].give(&rows[300..500]);
    seals.until_holds(500).await;
    first.fence("crash").await;
    let checkpoints = seals.newest_first();
    // Nothing of the first machine is left but the store.
    std::fs::remove_dir_all(dir.path().join("1/jobs")).unwrap();
    let second = open(&dir.path().join("2"), &world, store.path()).await;
    seals.go_on(&second);
    begin(&second, 2, &plan(), cut(None, checkpoints)).unwrap();
    until_running(&second).await;
    assert!(told(&second, "restored")[0].starts_with("restored from checkpoint"), "{:?}", told(&second, "restored"));
    world.feeds[0].give(&rows[500..]);
    world.feeds[1].give(&other[200..]);
    seals.until_holds(900).await;
    world.feeds.iter().for_each(|feed| feed.close());
    until(&second, "finished", |state| *state == AttemptState::Finished).await;
    assert_eq!(results(&second).await, expected(&[&rows, &other]));
    // B6: every retained checkpoint is whole in the store, whatever the sweeps took.
    for manifest in seals.newest_first() {
        for object in manifest.objects() {
            assert!(store.path().join(&object).exists(), "{object}");
        }
        let path = store.path().join(manifest.object());
        // A crash right after the seal kept it from being written; then the next round does.
        let there = async {
            while !path.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::PATIENCE, there).await.unwrap();
        let written = std::fs::read(path).unwrap();
        assert_eq!(Manifest::decode(&written).unwrap(), manifest);
    }
}

/// B4, CKP-6: damage to what is here, then to the newest checkpoint, is an event each, and the one before holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_goes_back_one_cut_at_a_time() {
    let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
    let rows = spread(0, 600);
    let agent = open(dir.path(), &world, store.path()).await;
    let seals = Seals::of(&agent);
    begin(&agent, 1, &plan(), Restore::Fresh).unwrap();
    until_running(&agent).await;
    world.feeds[0].give(&rows[..200]);
    seals.until_holds(200).await;
    let before = seals.newest_first()[0].clone();
    world.feeds[0].give(&rows[200..400]);
    seals.until_holds(400).await;
    let newest = seals.newest_first()[0].clone();
    agent.fence("crash").await;
    let state = dir.path().join("jobs").join(job().as_str()).join("state");
    for file in std::fs::read_dir(&state).unwrap() {
        std::fs::write(file.unwrap().path(), b"damaged").unwrap();
    }
    // Of the newest checkpoint a file is gone that the one before does not need.
    let lost = newest.objects().find(|object| !before.objects().any(|other| other == *object)).unwrap();
    std::fs::remove_file(store.path().join(&lost)).unwrap();
    let grant = || LocalGrant { store_id: agent.store_id().to_owned(), since: Some(Attempt::new(1)), must_exist: true };
    begin(&agent, 2, &plan(), cut(Some(grant()), vec![newest.clone(), before.clone()])).unwrap();
    until_running(&agent).await;
    let refused = told(&agent, "cut_refused");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("does not match its checksum") && refused[1].contains("is missing"), "{refused:?}");
    assert_eq!(told(&agent, "restored"), [format!("restored from checkpoint {} of attempt 1", before.id)]);
    // The same rows make the same files: what is sealed of them does not lean on those of the checkpoint that was refused.
    seals.until(newest.id.get() + 1).await;
    let again = seals.newest_first()[0].clone();
    assert_eq!(again.attempt, Attempt::new(2));
    for object in again.objects() {
        assert!(store.path().join(&object).exists(), "{object}");
    }
    agent.fence("crash").await;
    // B8: where nothing is whole the job fails visibly and names all that was tried; it never starts empty.
    for object in before.objects() {
        std::fs::write(store.path().join(object), b"damaged").unwrap();
    }
    for file in std::fs::read_dir(&state).unwrap() {
        std::fs::write(file.unwrap().path(), b"damaged").unwrap();
    }
    let grant = LocalGrant { since: Some(Attempt::new(2)), ..grant() };
    begin(&agent, 3, &plan(), cut(Some(grant), vec![newest, before])).unwrap();
    let state = until(&agent, "failed", |state| matches!(state, AttemptState::Failed(f) if f.message.contains("no cut can be used"))).await;
    assert!(matches!(state, AttemptState::Failed(failure) if failure.class == Class::Corrupt));
}

/// EPO-9: an epoch that was decided here after the seal counts only for the attempt that comes right after its own. Once another
/// one has been elsewhere, it never comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_epoch_counts_for_its_successor_alone() {
    for successor in [true, false] {
        let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
        let rows = spread(0, 600);
        let agent = open(dir.path(), &world, store.path()).await;
        let seals = Seals::of(&agent);
        let mut slow = plan();
        begin(&agent, 1, &slow, Restore::Fresh).unwrap();
        until_running(&agent).await;
        world.feeds[0].give(&rows[..250]);
        seals.until_holds(250).await;
        let sealed = seals.newest_first()[0].clone();
        agent.stop(&job(), Attempt::new(1)).await;
        // From here on nothing is sealed.
        slow.checkpoint.interval_ms = 3_600_000;
        begin(&agent, 2, &slow, local(&agent, true)).unwrap();
        until_running(&agent).await;
        world.feeds[0].give(&rows[250..350]);
        world.feeds[0].until_decided(350).await;
        agent.fence("crash").await;
        until_failed(&agent).await;
        let since = if successor { Attempt::new(2) } else { Attempt::new(3) };
        let grant = LocalGrant { store_id: agent.store_id().to_owned(), since: Some(since), must_exist: true };
        begin(&agent, 4, &slow, cut(Some(grant), vec![sealed])).unwrap();
        until_running(&agent).await;
        let refused = told(&agent, "cut_refused");
        if successor {
            assert!(refused.is_empty(), "{refused:?}");
        } else {
            assert!(refused[0].contains("written by attempt 2, and the job was elsewhere before attempt 3"), "{refused:?}");
        }
        // Whichever it was, the rows behind it are read again, and each counts once.
        let from = world.feeds[0].opened_at();
        assert_eq!(from, if successor { 350 } else { 250 });
        world.feeds[0].give(&rows[350..]);
        world.feeds.iter().for_each(|feed| feed.close());
        until(&agent, "finished", |state| *state == AttemptState::Finished).await;
        assert_eq!(results(&agent).await, expected(&[&rows, &[]]));
    }
}

/// CKP-2, UPG-1: a savepoint that is asked for holds all that was given before; so does one of a job that has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_holds_what_came_before_it() {
    let (dir, store, world) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::default());
    let rows = spread(0, 300);
    let agent = open(dir.path(), &world, store.path()).await;
    let seals = Seals::of(&agent);
    let mut plan = plan();
    plan.checkpoint.interval_ms = 3_600_000;
    begin(&agent, 1, &plan, Restore::Fresh).unwrap();
    until_running(&agent).await;
    world.feeds[0].give(&rows);
    world.feeds[0].until_decided(1).await;
    agent.checkpoint(&job(), Attempt::new(1), CheckpointId::new(1), CheckpointKind::Savepoint).unwrap();
    seals.until(1).await;
    agent.stop(&job(), Attempt::new(1)).await;
    agent.checkpoint(&job(), Attempt::new(1), CheckpointId::new(2), CheckpointKind::Savepoint).unwrap();
    seals.until(2).await;
    assert_eq!(
        agent.checkpoint(&job(), Attempt::new(2), CheckpointId::new(3), CheckpointKind::Savepoint).unwrap_err().class,
        Class::Fenced
    );
    let kept = seals.newest_first();
    assert!(kept.iter().all(|manifest| manifest.kind == CheckpointKind::Savepoint));
    // Dropped, the job leaves in the store what its savepoints need, and nothing else.
    agent.forget(&job(), Attempt::new(1), Some(&kept[..1])).await.unwrap();
    let objects = |manifest: &Manifest| manifest.objects().chain([manifest.object()]).collect::<Vec<_>>();
    assert!(objects(&kept[0]).iter().all(|object| store.path().join(object).exists()));
    assert!(!store.path().join(kept[1].object()).exists());
    agent.forget(&job(), Attempt::new(1), Some(&[])).await.unwrap();
    assert!(!objects(&kept[0]).iter().any(|object| store.path().join(object).exists()));
}
