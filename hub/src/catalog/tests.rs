//! One namespace, what uses what, and what a drop takes along.

use super::{CatalogEntry, CatalogObject, Error, OnExists, World};
use crate::hub::DesiredState;
use crate::tests::{at, create, job, new_job, plan, spec, world};
use weir_planner::id::OperatorId;

fn source(name: &str, sql: &str) -> CatalogEntry {
    let source = spec("x").sources.remove(0);
    CatalogEntry { name: name.to_owned(), object: CatalogObject::Source(Box::new(source)), sql: sql.to_owned(), created_at_ms: 0 }
}

fn sink(name: &str) -> CatalogEntry {
    let mut sink = spec("x").sinks.remove(0);
    sink.operator_id = OperatorId::new("placeholder").unwrap();
    CatalogEntry { name: name.to_owned(), object: CatalogObject::Sink(Box::new(sink)), sql: String::new(), created_at_ms: 0 }
}

fn job_using(world: &mut World, id: &str, uses: &[&str]) -> Result<bool, Error> {
    let mut new = new_job(id, DesiredState::Stopped);
    new.uses = uses.iter().map(|&name| name.to_owned()).collect();
    let plan = plan(&new.spec);
    world.create_job(new, Some(plan), at(0))
}

/// SQL-15: one namespace for sources, sinks and jobs, whichever comes first.
#[test]
fn names_are_unique_over_all_kinds() {
    let mut world = world();
    assert!(world.create_entry(source("s", ""), OnExists::Fail).unwrap());
    create(&mut world, "j", at(0));
    for on_exists in [OnExists::Fail, OnExists::Keep, OnExists::Replace] {
        assert!(matches!(world.create_entry(sink("s"), on_exists), Err(Error::Exists { kind: "source", name }) if name == "s"));
        assert!(matches!(world.create_entry(sink("j"), on_exists), Err(Error::Exists { kind: "job", name }) if name == "j"));
    }
    assert!(matches!(world.create_entry(source("s", ""), OnExists::Fail), Err(Error::Exists { kind: "source", .. })));
    assert!(matches!(job_using(&mut world, "s", &[]), Err(Error::Exists { kind: "source", .. })));
}

/// `IF NOT EXISTS` keeps what is there; `OR REPLACE` does not while a job uses it.
#[test]
fn keep_and_replace() {
    let mut world = world();
    world.create_entry(source("s", "one"), OnExists::Fail).unwrap();
    assert!(!world.create_entry(source("s", "two"), OnExists::Keep).unwrap());
    assert_eq!(world.entries["s"].sql, "one");
    assert!(world.create_entry(source("s", "two"), OnExists::Replace).unwrap());
    assert_eq!(world.entries["s"].sql, "two");
    job_using(&mut world, "j", &["s"]).unwrap();
    let refused = world.create_entry(source("s", "three"), OnExists::Replace).unwrap_err();
    assert_eq!(refused.to_string(), "source 's' is used by j");
    assert_eq!(world.entries["s"].sql, "two");
}

/// SQL-15: a used object is only dropped with CASCADE, which takes its jobs and no others.
#[test]
fn drops_of_used_entries() {
    let mut world = world();
    world.create_entry(source("s", ""), OnExists::Fail).unwrap();
    world.create_entry(sink("t"), OnExists::Fail).unwrap();
    job_using(&mut world, "j2", &["s"]).unwrap();
    job_using(&mut world, "j1", &["s", "t"]).unwrap();
    job_using(&mut world, "other", &["t"]).unwrap();
    assert!(matches!(world.drop_entry("sink", "s", true), Err(Error::NotFound { kind: "sink", .. })), "the kind is part of the name");
    assert!(matches!(world.drop_entry("source", "s", false), Err(Error::InUse { users, .. }) if users == ["j1", "j2"]));
    assert_eq!(world.jobs.len(), 3);
    assert_eq!(world.drop_entry("source", "s", true).unwrap(), [job("j1"), job("j2")]);
    assert_eq!(world.jobs.keys().cloned().collect::<Vec<_>>(), [job("other")]);
    assert!(!world.entries.contains_key("s"));
    assert!(matches!(world.drop_entry("source", "s", true), Err(Error::NotFound { kind: "source", .. })));
}

/// A job planned against a snapshot is refused when what it uses has gone since.
#[test]
fn a_job_needs_what_it_uses() {
    let mut world = world();
    assert!(matches!(job_using(&mut world, "j", &["gone"]), Err(Error::NotFound { name, .. }) if name == "gone"));
    assert!(world.jobs.is_empty());
}
