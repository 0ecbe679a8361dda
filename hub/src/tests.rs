//! Jobs and agents as tests need them: a small real job, and messages with the fields that matter.

use crate::clock::Now;
use crate::fleet::Fleet;
use crate::hub::{DesiredState, NewJob};
use crate::world::World;
use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_planner::error::Class;
use weir_planner::id::{AgentId, Attempt, Generation, JobId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{
    AttemptState, Failure, HubResponse, JobObservation, Load, PROTOCOL_VERSION, ReadRequest, ReadTarget, Register, Report, RunningAttempt,
};
use weir_planner::schema::Schema;
use weir_planner::spec::{Horizon, JobSpec};

pub const LEASE_MS: u64 = 15_000;

pub fn at(steady_ms: u64) -> Now {
    Now { steady_ms, wall_ms: 1_000_000 + steady_ms as i64 }
}

pub fn job(id: &str) -> JobId {
    JobId::new(id).unwrap()
}

pub fn agent(id: &str) -> AgentId {
    AgentId::new(id).unwrap()
}

/// A read of the results of `j`.
pub fn question() -> ReadRequest {
    ReadRequest {
        id: 0,
        job: job("j"),
        target: ReadTarget::Results,
        schema: Schema::default(),
        limit: None,
        store_id: None,
        replaces_by: Vec::new(),
    }
}

pub fn attempt(number: u64) -> Attempt {
    Attempt::new(number)
}

pub fn generation(number: u64) -> Generation {
    Generation::new(number)
}

/// Generated rows into nothing.
pub fn spec(id: &str) -> JobSpec {
    serde_json::from_value(serde_json::json!({
        "id": id,
        "operators": [{"id": "source-0", "kind": "source"}, {"id": "sink-0", "kind": "sink"}],
        "edges": [{"id": "edge-0", "from": "source-0", "to": "sink-0"}],
        "sources": [{
            "operator_id": "source-0", "input_type": "generate", "codec": {"type": "json"},
            "config": {"type": "generate", "context": "{\"n\": 1}", "rows": 10},
            "schema": [{"name": "n", "type": "BIGINT"}],
        }],
        "sinks": [{"operator_id": "sink-0", "output_type": "drop", "config": {"type": "drop"}}],
    }))
    .unwrap()
}

pub fn plan(spec: &JobSpec) -> JobPlan {
    weir_planner::compile::compile(spec, Horizon::Local).unwrap()
}

/// As an agent of its own is given it (EPO-8).
pub fn sealed(plan: &JobPlan) -> JobPlan {
    JobPlan { horizon: Horizon::Sealed, ..plan.clone() }
}

pub fn new_job(id: &str, desired: DesiredState) -> NewJob {
    NewJob {
        spec: spec(id),
        sql: Some(format!("CREATE JOB {id} AS …")),
        uses: Vec::new(),
        stream: None,
        desired,
        places: Default::default(),
    }
}

pub fn world() -> World {
    World::new(Fleet::load([], Duration::from_millis(LEASE_MS), None, at(0)))
}

pub fn create(world: &mut World, id: &str, now: Now) {
    let new = new_job(id, DesiredState::Running);
    let plan = plan(&new.spec);
    assert!(world.create_job(new, Some(plan), now).unwrap());
    world.settle(now);
}

pub fn register(name: &str, boot: &str, store: &str, running: &[(&str, u64)]) -> Register {
    let held = |(id, number): &(&str, u64)| RunningAttempt { job: job(id), attempt: attempt(*number) };
    Register {
        agent: agent(name),
        protocol: PROTOCOL_VERSION,
        boot_id: boot.to_owned(),
        store_id: store.to_owned(),
        version: "0.1.0".to_owned(),
        capabilities: vec!["job_runtime".to_owned()],
        address: "127.0.0.1:1".to_owned(),
        token: None,
        running: running.iter().map(held).collect(),
        last_attempt: Attempt::default(),
        state_url: "memory:///".to_owned(),
        embedded: false,
    }
}

pub fn observation(id: &str, number: u64, state: AttemptState) -> JobObservation {
    JobObservation {
        job: job(id),
        attempt: attempt(number),
        generation: generation(1),
        state,
        epoch: None,
        has_cut: false,
        tasks: Vec::new(),
        sources: Vec::new(),
        events: Vec::new(),
    }
}

pub fn report(session: &str, sequence: u64, jobs: Vec<JobObservation>) -> Report {
    Report { session: session.to_owned(), sequence, jobs, load: Load::default() }
}

pub fn failure(class: Class, message: &str) -> Failure {
    Failure { class, message: message.to_owned() }
}

/// The class of a refusal.
pub fn refused(response: &HubResponse) -> Option<Class> {
    match response {
        HubResponse::Refused(refusal) => Some(refusal.class),
        HubResponse::Registered(_) | HubResponse::Commands(_) | HubResponse::Read(_) | HubResponse::Accepted | HubResponse::Sealed(_) => {
            None
        }
    }
}

/// A disk that can be filled, and keeps what it has.
#[derive(Debug, Clone)]
pub struct Disk {
    bytes: Arc<InMemoryBackend>,
    full: Arc<AtomicBool>,
}

impl Default for Disk {
    fn default() -> Self {
        Disk { bytes: Arc::new(InMemoryBackend::new()), full: Arc::default() }
    }
}

impl Disk {
    pub fn fill(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    pub fn opener(&self) -> crate::store::Opener {
        let disk = self.clone();
        Box::new(move || Database::builder().create_with_backend(disk.clone()).map_err(redb::Error::from))
    }

    fn check(&self) -> Result<(), std::io::Error> {
        if self.full.load(Ordering::SeqCst) { Err(std::io::Error::from(std::io::ErrorKind::StorageFull)) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, std::io::Error> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.check()?;
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        self.check()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.check()?;
        self.bytes.write(offset, data)
    }
}
