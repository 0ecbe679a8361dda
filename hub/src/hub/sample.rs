//! Columns of sources that declare none (JOB-6): asked of an agent, bound, and handed to the world,
//! which pins them with the plan. What an agent answers is passed to the binder unread.
//!
//! Nothing here is stored: a hub that was killed in between asks again. Each job that waits for its
//! columns has one task, which ends when the job has them, has failed, or is not wanted any more.

use super::{Hub, Inner, JobInfo, JobState, Result, closed};
use crate::clock::Clock;
use crate::error::Error;
use crate::read::Relay;
use crate::reconcile::Sampled;
use crate::view::View;
use bytes::Bytes;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use weir_planner::check::columns::pending;
use weir_planner::compile::{compile, plan_if_known};
use weir_planner::error::{Class, Fault, Faults, Place};
use weir_planner::id::{AgentId, JobId, OperatorId};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{ReadRequest, ReadTarget};
use weir_planner::schema::Schema;
use weir_planner::spec::{Horizon, JobSpec, Source};

/// Jobs sampled at once; more wait for their turn.
const AT_ONCE: usize = 8;
/// Longest answer of an agent: the columns of the widest table are far below.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// First pause before an agent is asked again, which doubles …
const PAUSE_MS: u64 = 250;
/// … up to this.
const PAUSE_MAX_MS: u64 = 5_000;

/// Puts sampled columns into a spec and binds its expressions to them: the door that reads SQL has it.
pub trait Binder: Send + Sync + 'static {
    /// `columns` holds for each pending source an Arrow IPC stream without rows whose schema are its columns.
    ///
    /// Errors: every expression that does not fit them.
    fn bind(&self, spec: &JobSpec, columns: &[(OperatorId, Bytes)]) -> std::result::Result<JobSpec, Vec<Fault>>;
}

impl Hub {
    /// Checks and compiles as `create_job` would, and stores nothing (JOB-8). A sound spec with a
    /// source whose columns are not known yet has no plan.
    pub fn validate(&self, spec: &JobSpec) -> Result<Option<JobPlan>> {
        Ok(plan_if_known(spec, Horizon::Local)?)
    }

    /// Has jobs whose sources declare no columns sampled from here on. Without it they wait.
    pub fn sample_with(&self, binder: Arc<dyn Binder>) {
        let sampling = Sampling {
            hub: Arc::downgrade(&self.inner),
            views: self.inner.view.clone(),
            reads: self.inner.reads.clone(),
            clock: self.inner.clock.clone(),
            binder,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        };
        tokio::spawn(sampling.run(self.inner.closing.subscribe()));
    }

    /// The columns of a source that declares none, as an Arrow IPC stream without rows, from an agent
    /// that is online.
    ///
    /// Errors: no agent is online, or it does not answer; `Refused` with its reason, of class `Retry`
    /// where there is no row yet.
    pub async fn sample(&self, source: Source) -> Result<Bytes> {
        let choice = self.change(|world, now| Ok(crate::place::choose(&world.fleet.candidates(now), &[]).ok())).await?;
        let agent = choice.ok_or_else(|| {
            Error::Unavailable(format!("no agent is online that could take the columns of source '{}' from its rows", source.operator_id))
        })?;
        let job = JobId::new("sample").map_err(|fault| Error::Unavailable(fault.message))?;
        let mut closing = self.inner.closing.subscribe();
        tokio::select! {
            answer = ask(&self.inner.reads, &self.inner.clock, agent, job, source) => answer,
            _ = closing.wait_for(|closing| *closing) => Err(closed()),
        }
    }
}

/// What every task has.
#[derive(Clone)]
struct Sampling {
    /// Weak, so that a hub that nobody holds any more can end.
    hub: Weak<Inner>,
    views: watch::Receiver<Arc<View>>,
    reads: Arc<Relay>,
    clock: Arc<dyn Clock>,
    binder: Arc<dyn Binder>,
    permits: Arc<Semaphore>,
}

/// The job waits for the columns of this very spec.
fn wants(view: &View, id: &JobId, spec: &Arc<JobSpec>) -> bool {
    view.job(id).is_some_and(|info| is_waiting(info) && Arc::ptr_eq(&info.spec, spec))
}

fn is_waiting(info: &JobInfo) -> bool {
    let starts = match info.state {
        JobState::Starting | JobState::Degraded => true,
        JobState::Created | JobState::Running | JobState::Stopping => false,
        JobState::Stopped | JobState::Failed | JobState::Finished => false,
    };
    starts && info.plan.is_none()
}

impl Sampling {
    async fn run(mut self, mut closing: watch::Receiver<bool>) {
        let mut tasks: JoinSet<JobId> = JoinSet::new();
        let mut under_way: BTreeSet<JobId> = BTreeSet::new();
        loop {
            let view = self.views.borrow_and_update().clone();
            for info in view.catalog.jobs.values().filter(|info| is_waiting(info)) {
                if under_way.insert(info.id.clone()) {
                    let (one, id, spec) = (self.clone(), info.id.clone(), info.spec.clone());
                    tasks.spawn(async move {
                        one.job(&id, &spec).await;
                        id
                    });
                }
            }
            drop(view);
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => return,
                changed = self.views.changed() => if changed.is_err() { return },
                Some(ended) = tasks.join_next() => match ended {
                    Ok(id) => { under_way.remove(&id); }
                    // Its job is not known any more: all are looked at anew.
                    Err(error) => {
                        tracing::error!(%error, "sampling a job broke off");
                        tasks.abort_all();
                        under_way.clear();
                    }
                },
            }
        }
    }

    /// Until the job has its columns, has failed, or is not wanted any more.
    async fn job(&self, id: &JobId, spec: &Arc<JobSpec>) {
        let mut views = self.views.clone();
        let mut pause_ms = PAUSE_MS;
        loop {
            let agent = match self.sampler_of(id, spec).await {
                None => return,
                // Placing it has told why.
                Some(None) => {
                    if views.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                Some(Some(agent)) => agent,
            };
            let outcome = {
                let Ok(_permit) = self.permits.acquire().await else { return };
                tokio::select! {
                    outcome = self.once(id, spec, agent) => outcome,
                    _ = views.wait_for(|view| !wants(view, id, spec)) => return,
                }
            };
            let again = matches!(outcome, Sampled::NotYet(_));
            if !self.told(id, spec, outcome, again).await {
                return;
            }
            let due = self.clock.now().steady_ms.saturating_add(pause_ms);
            tokio::select! {
                () = self.clock.until(due) => {}
                _ = views.wait_for(|view| !wants(view, id, spec)) => return,
            }
            pause_ms = pause_ms.saturating_mul(2).min(PAUSE_MAX_MS);
        }
    }

    async fn sampler_of(&self, id: &JobId, spec: &Arc<JobSpec>) -> Option<Option<AgentId>> {
        let hub = Hub { inner: self.hub.upgrade()? };
        let (id, spec) = (id.clone(), spec.clone());
        hub.change(move |world, now| Ok(world.sampler_of(&id, &spec, now))).await.ok()?
    }

    /// Hands the outcome to the world; false when there is nothing more to do.
    async fn told(&self, id: &JobId, spec: &Arc<JobSpec>, outcome: Sampled, again: bool) -> bool {
        let Some(inner) = self.hub.upgrade() else { return false };
        let hub = Hub { inner };
        let (id, spec) = (id.clone(), spec.clone());
        match hub.change(move |world, now| Ok(world.sampled(&id, &spec, outcome, now))).await {
            Ok(waited) => waited && again,
            // What could not be stored is sampled again, unless the hub ends.
            Err(_) => true,
        }
    }

    async fn once(&self, id: &JobId, spec: &Arc<JobSpec>, agent: AgentId) -> Sampled {
        let mut answers = Vec::new();
        for source in pending(spec) {
            let who = &source.operator_id;
            match ask(&self.reads, &self.clock, agent.clone(), id.clone(), source.clone()).await {
                Ok(columns) => answers.push((who.clone(), columns)),
                Err(Error::Refused(failure)) if matches!(failure.class, Class::User | Class::Corrupt) => {
                    return Sampled::Never(format!("the columns of source '{who}' cannot be taken from its rows: {}", failure.message));
                }
                Err(error) => return Sampled::NotYet(format!("the columns of source '{who}' are not known yet: {error}")),
            }
        }
        let places = self.places(id, spec).await;
        let (binder, spec) = (self.binder.clone(), spec.clone());
        let bound = tokio::task::spawn_blocking(move || planned(binder.as_ref(), &spec, &answers, &places)).await;
        bound.unwrap_or_else(|error| Sampled::Never(format!("binding the job to its columns broke off: {error}")))
    }

    async fn places(&self, id: &JobId, spec: &Arc<JobSpec>) -> BTreeMap<String, Place> {
        let Some(inner) = self.hub.upgrade() else { return BTreeMap::new() };
        let hub = Hub { inner };
        let (id, spec) = (id.clone(), spec.clone());
        let found = hub.change(move |world, _| {
            let version = world.jobs.get(&id).map(|job| job.version.clone()).filter(|version| Arc::ptr_eq(&version.spec, &spec));
            Ok(version.map(|version| version.places.clone()))
        });
        found.await.ok().flatten().unwrap_or_default()
    }
}

/// The spec with its columns, and its plan.
fn planned(binder: &dyn Binder, spec: &JobSpec, answers: &[(OperatorId, Bytes)], places: &BTreeMap<String, Place>) -> Sampled {
    let told = |bound: &JobSpec| -> String {
        let sampled = bound.sources.iter().filter(|source| answers.iter().any(|(id, _)| *id == source.operator_id));
        let one = |source: &Source| {
            let columns: Vec<String> = source.schema.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
            format!("source '{}' has the columns ({}), taken from its first rows", source.operator_id, columns.join(", "))
        };
        sampled.map(one).collect::<Vec<_>>().join("; ")
    };
    // The horizon of the door that checked it when it was submitted.
    let outcome = binder.bind(spec, answers).and_then(|bound| match compile(&bound, Horizon::Local) {
        Ok(plan) => Ok((bound, plan)),
        Err(Faults(faults)) => Err(faults),
    });
    match outcome {
        Ok((bound, plan)) => Sampled::Bound { told: told(&bound), spec: Box::new(bound), plan: Box::new(plan) },
        Err(faults) => {
            let located: Vec<String> = faults.into_iter().map(|fault| fault.located(places).to_string()).collect();
            Sampled::Never(format!("the job does not fit the columns that its sources turned out to have: {}", located.join("; ")))
        }
    }
}

/// Asks an agent for the columns of a source.
async fn ask(reads: &Arc<Relay>, clock: &Arc<dyn Clock>, agent: AgentId, job: JobId, source: Source) -> Result<Bytes> {
    let request = ReadRequest {
        id: 0,
        job,
        target: ReadTarget::Sample(Box::new(source)),
        schema: Schema::default(),
        limit: None,
        store_id: None,
        replaces_by: Vec::new(),
    };
    let mut answer = reads.ask(agent, request, clock.clone()).await?;
    let mut whole = Vec::new();
    while let Some(piece) = answer.next().await {
        whole.extend_from_slice(&piece?);
        if whole.len() > ANSWER_BYTES_MAX {
            return Err(Error::Unavailable(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
        }
    }
    Ok(whole.into())
}
