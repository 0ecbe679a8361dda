//! What is stored comes back equal; what is damaged is refused; a full disk is survived.

use super::{Class, Database, Error, FILE, Store, Stored, Write, assemble, read_all};
use crate::fleet::Fleet;
use crate::hub::{CatalogEntry, CatalogObject, DesiredState, OnExists};
use crate::tests::{Disk, LEASE_MS, at, create, job, new_job, observation, plan, register, report, spec, world};
use crate::world::World;
use redb::TableDefinition;
use std::time::Duration;
use weir_planner::protocol::AttemptState;

/// A world with something in every table.
fn full() -> World {
    let mut world = world();
    let source = spec("x").sources.remove(0);
    let entry = CatalogEntry {
        name: "s".to_owned(),
        object: CatalogObject::Source(Box::new(source)),
        sql: "CREATE …".to_owned(),
        created_at_ms: 7,
    };
    world.create_entry(entry, OnExists::Fail).unwrap();
    world.register(&register("a", "boot", "disk", &[]), "s".to_owned(), at(0));
    create(&mut world, "j", at(0));
    let mut stopped = new_job("k", DesiredState::Stopped);
    stopped.uses = vec!["s".to_owned()];
    let plan = plan(&stopped.spec);
    world.create_job(stopped, Some(plan), at(1)).unwrap();
    let mut seen = observation("j", 1, AttemptState::Running);
    seen.has_cut = true;
    world.report(&report("s", 1, vec![seen]), at(2));
    world
}

fn save(store: &Store, world: &mut World) {
    let (writes, _) = world.take_changes();
    store.commit(&writes).unwrap();
}

fn load(stored: Stored) -> World {
    let agents = stored.agents.clone();
    assemble(stored, Fleet::load(agents, Duration::from_millis(LEASE_MS), None, at(0))).unwrap()
}

fn assert_same(left: &World, right: &World) {
    assert_eq!(left.entries, right.entries);
    assert_eq!(left.counters, right.counters);
    assert_eq!(left.jobs.keys().collect::<Vec<_>>(), right.jobs.keys().collect::<Vec<_>>());
    for (id, job) in &left.jobs {
        let other = &right.jobs[id];
        let stored = |job: &crate::world::Job| serde_json::to_value(&job.intent).unwrap();
        assert_eq!(stored(job), stored(other));
        assert_eq!((&job.version, &job.assignment), (&other.version, &other.assignment));
    }
    assert_eq!(left.outbox.iter().collect::<Vec<_>>(), right.outbox.iter().collect::<Vec<_>>());
    let agents = |world: &World| world.fleet.members().map(|member| member.agent.clone()).collect::<Vec<_>>();
    assert_eq!(agents(left), agents(right));
    let events = |world: &World| world.events.iter().map(|(id, log)| (id.clone(), log.first, log.items.clone())).collect::<Vec<_>>();
    assert_eq!(events(left), events(right));
}

fn message(error: Error) -> (String, Class) {
    match error {
        Error::Store { message, class } => (message, class),
        other => panic!("{other:?}"),
    }
}

/// HUB-1: whatever is stored comes back equal, also after the file was closed and after deletions.
#[test]
fn every_table_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = full();
    let (store, _) = Store::open(dir.path()).unwrap();
    save(&store, &mut world);
    store.close();
    let (store, stored) = Store::open(dir.path()).unwrap();
    assert_same(&load(stored), &world);
    world.drop_entry("source", "s", true).unwrap();
    world.drop_job(&job("j")).unwrap();
    world.take_changes().0.chunks(100).for_each(|writes| store.commit(writes).unwrap());
    store.close();
    let (_, stored) = Store::open(dir.path()).unwrap();
    assert!(stored.versions.is_empty() && stored.events.is_empty() && stored.assignments.is_empty());
    let back = load(stored);
    assert_same(&back, &world);
    assert!(back.jobs.is_empty() && back.entries.is_empty());
    assert_eq!(back.outbox.iter().count(), 1, "the agent still has to forget");
}

/// A7: whoever is killed while a new store is made leaves none, not one that can never be opened.
#[test]
fn a_store_is_there_whole_or_not_at_all() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        // What a making that was killed has left.
        std::fs::write(dir.path().join("hub.redb.new"), vec![0; 73_728]).unwrap();
        let making = std::thread::spawn({
            let dir = dir.path().to_owned();
            move || Store::open(&dir).map(drop)
        });
        let first = loop {
            match std::fs::read(dir.path().join(FILE)) {
                Ok(bytes) => break bytes,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert!(first.starts_with(b"redb"), "a kill here would leave a file that is no database");
        making.join().unwrap().unwrap();
    }
}

/// A store that another process has is refused with its path and the way out.
#[test]
fn a_store_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _held = Store::open(dir.path()).unwrap();
    let (message, class) = message(Store::open(dir.path()).err().unwrap());
    let path = dir.path().join(FILE);
    assert_eq!(message, format!("'{}' is in use by another process: stop it, or give this one another data directory", path.display()));
    assert_eq!(class, Class::Retry);
}

/// P5: damage is refused wherever it is, never believed and never a panic.
#[test]
fn a_damaged_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    std::fs::write(&path, b"this was never a database, but it is long enough to be looked at").unwrap();
    let (text, class) = message(Store::open(dir.path()).err().unwrap());
    assert!(text.contains(&path.display().to_string()) && text.contains("is damaged"), "{text}");
    assert_eq!(class, Class::Corrupt);
    std::fs::remove_file(&path).unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    save(&store, &mut full());
    store.close();
    let good = std::fs::read(&path).unwrap();
    let text_at = good
        .windows(7)
        .position(|bytes| bytes == b"nothing")
        .or_else(|| good.windows(9).position(|bytes| bytes == b"sink-0\",\""))
        .unwrap();
    let mut bad = good.clone();
    bad[text_at] ^= 0xff;
    std::fs::write(&path, &bad).unwrap();
    let (text, class) = message(Store::open(dir.path()).err().unwrap());
    assert!(text.contains("is damaged"), "{text}");
    assert_eq!(class, Class::Corrupt);
}

/// Schema versions: a newer file, and one that is not a hub's, are refused with the reason.
#[test]
fn other_schemas_are_refused() {
    const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
    let dir = tempfile::tempdir().unwrap();
    Store::open(dir.path()).unwrap();
    let put = |version: Option<&[u8]>| {
        let database = Database::create(dir.path().join(FILE)).unwrap();
        let transaction = database.begin_write().unwrap();
        match version {
            Some(bytes) => drop(transaction.open_table(META).unwrap().insert("schema", bytes).unwrap()),
            None => drop(transaction.open_table(META).unwrap().remove("schema").unwrap()),
        }
        transaction.commit().unwrap();
    };
    for (version, expected) in [
        (Some(2_u32.to_le_bytes().to_vec()), "its tables are of version 2, this weir knows 1"),
        (Some(0_u32.to_le_bytes().to_vec()), "which never was"),
        (Some(vec![1]), "the version of its tables is unreadable"),
        (None, "this is not a hub's store"),
    ] {
        put(version.as_deref());
        let (text, class) = message(Store::open(dir.path()).err().unwrap());
        assert!(text.contains(expected), "{text}");
        assert_eq!(class, Class::Corrupt);
    }
    put(Some(&1_u32.to_le_bytes()));
    Store::open(dir.path()).unwrap();
}

/// A job without its version is damage, not an empty job.
#[test]
fn a_job_needs_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let (writes, _) = full().take_changes();
    let writes: Vec<Write> = writes.into_iter().filter(|write| !matches!(write, Write::Version(..))).collect();
    store.commit(&writes).unwrap();
    store.close();
    let (_, stored) = Store::open(dir.path()).unwrap();
    let fleet = Fleet::load([], Duration::from_millis(LEASE_MS), None, at(0));
    let (text, class) = message(assemble(stored, fleet).err().unwrap());
    assert!(text.contains("job 'j' has no record of its version 1"), "{text}");
    assert_eq!(class, Class::Corrupt);
}

/// A full disk is an error to try again after, nothing is half written, and the same store goes on
/// when there is room again.
#[test]
fn a_full_disk_is_survived() {
    let disk = Disk::default();
    let (store, _) = Store::open_with("disk".to_owned(), disk.opener()).unwrap();
    let mut world = full();
    save(&store, &mut world);
    let before = world.clone();
    world.drop_job(&job("j")).unwrap();
    create(&mut world, "new", at(5));
    let (writes, _) = world.take_changes();
    disk.fill(true);
    for _ in 0..3 {
        let (text, class) = message(store.commit(&writes).unwrap_err());
        assert!(text.starts_with("'disk': "), "{text}");
        assert_eq!(class, Class::Retry);
    }
    disk.fill(false);
    assert_same(&load(store.with(read_all).unwrap()), &before);
    store.commit(&writes).unwrap();
    assert_same(&load(store.with(read_all).unwrap()), &world);
}
