//! One attempt as others see it: its state, its news, and the orders given to it.

use crate::error::Error;
use crate::gauge::Gauge;
use crate::secret::Secrets;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use weir_kernel::metric::ChainMetrics;
use weir_planner::error::Class;
use weir_planner::id::{Attempt as AttemptId, CheckpointId, EpochId, Generation, JobId};
use weir_planner::manifest::CheckpointKind;
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{AttemptState, Event, Failure, JobObservation, Level};

/// Events kept until a report with them was accepted; the oldest go first.
const EVENTS_MAX: usize = 256;

/// What it means that the clock moves time on (EV-8).
const CLOCKED: &str = "every partition is idle: the clock moves the watermark on (idle_advance), and windows close by it";

/// What an attempt is told. Orders only rise.
#[derive(Clone, Debug)]
pub enum Order {
    /// Go on.
    Run,
    /// Stop intake, decide the last epoch, close.
    Drain,
    /// Close at once; nothing more is decided. Says why.
    Abort(Failure),
}

/// An attempt, running or over.
pub struct Attempt {
    /// The job.
    pub job: JobId,
    /// Which.
    pub id: AttemptId,
    /// The intent behind it.
    pub generation: Generation,
    /// What it runs.
    pub plan: Arc<JobPlan>,
    /// What its connectors were opened with; nothing that it tells holds one (CON-3).
    pub secrets: Arc<Secrets>,
    order: watch::Sender<Order>,
    over: watch::Sender<bool>,
    view: Mutex<View>,
    /// Checkpoints that were asked for and not begun.
    asked: Mutex<Vec<(CheckpointId, CheckpointKind)>>,
    /// One was asked for.
    pub asking: Notify,
    /// Bumped on every change that a report should tell at once.
    changed: watch::Sender<u64>,
}

struct View {
    state: AttemptState,
    epoch: Option<EpochId>,
    has_cut: bool,
    events: VecDeque<Event>,
    gauge: Gauge,
}

impl Attempt {
    /// One that is about to start.
    pub fn new(
        job: JobId,
        id: AttemptId,
        generation: Generation,
        plan: Arc<JobPlan>,
        changed: watch::Sender<u64>,
        secrets: Secrets,
    ) -> Self {
        let view = View { state: AttemptState::Starting, epoch: None, has_cut: false, events: VecDeque::new(), gauge: Gauge::default() };
        Attempt {
            job,
            id,
            generation,
            plan,
            secrets: Arc::new(secrets),
            order: watch::Sender::new(Order::Run),
            over: watch::Sender::new(false),
            view: Mutex::new(view),
            asked: Mutex::default(),
            asking: Notify::new(),
            changed,
        }
    }

    /// Gives an order; one below what was ordered before changes nothing.
    pub fn order(&self, order: Order) {
        self.order.send_if_modified(|current| {
            let rises = matches!((&*current, &order), (Order::Run, Order::Drain | Order::Abort(_)) | (Order::Drain, Order::Abort(_)));
            if rises {
                *current = order;
            }
            rises
        });
    }

    /// Asks for a checkpoint of what is decided next; false when it does not run. Asked again it is the same one.
    pub fn ask_checkpoint(&self, id: CheckpointId, kind: CheckpointKind) -> bool {
        if self.state() != AttemptState::Running {
            return false;
        }
        let mut asked = self.asked.lock();
        if !asked.iter().any(|(known, _)| *known == id) {
            asked.push((id, kind));
        }
        self.asking.notify_one();
        true
    }

    /// The checkpoint that was asked for first.
    pub fn next_asked(&self) -> Option<(CheckpointId, CheckpointKind)> {
        self.asked.lock().first().copied()
    }

    /// One that was asked for has been made, or failed.
    pub fn not_asked(&self, id: CheckpointId) {
        self.asked.lock().retain(|(known, _)| *known != id);
    }

    /// Orders as they come.
    pub fn orders(&self) -> watch::Receiver<Order> {
        self.order.subscribe()
    }

    /// Returns once the attempt holds nothing any more. Cancel: safe.
    pub async fn until_over(&self) {
        let mut over = self.over.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = over.wait_for(|over| *over).await;
    }

    /// It holds nothing any more.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// How it stands.
    pub fn state(&self) -> AttemptState {
        self.view.lock().state.clone()
    }

    /// Moves on to a state that is not an end.
    pub fn moves_to(&self, state: AttemptState) {
        self.view.lock().state = state;
        self.tell();
    }

    /// Ends, with the event that says how.
    pub fn ends(&self, state: AttemptState, now_ms: i64) {
        let (level, kind, message) = match &state {
            AttemptState::Finished => (Level::Info, "finished", "all inputs ended and everything is decided".to_owned()),
            AttemptState::Failed(failure) => (Level::Error, "failed", failure.message.clone()),
            AttemptState::Stopped | AttemptState::Starting | AttemptState::Running | AttemptState::Stopping => {
                (Level::Info, "stopped", "stopped as told".to_owned())
            }
        };
        self.view.lock().state = state;
        self.note(now_ms, level, kind, message, None, 1);
        self.over.send_replace(true);
        self.tell();
    }

    /// A cut exists; `epoch` is the lowest over the regions, where all have one.
    pub fn decided(&self, epoch: Option<EpochId>) {
        let mut view = self.view.lock();
        view.epoch = epoch;
        let first = !std::mem::replace(&mut view.has_cut, true);
        drop(view);
        // That a cut exists must reach the hub soon: it forbids an empty start (C51).
        if first {
            self.tell();
        }
    }

    /// The chains whose counters are told.
    pub fn watches(&self, chains: Vec<Arc<ChainMetrics>>) {
        self.view.lock().gauge = Gauge::of(chains);
    }

    /// Adds an event.
    pub fn note(&self, at_ms: i64, level: Level, kind: &str, message: String, operator: Option<String>, count: u64) {
        let message = self.secrets.scrub(message);
        let mut view = self.view.lock();
        if view.events.len() >= EVENTS_MAX {
            view.events.pop_front();
        }
        view.events.push_back(Event { at_ms, level, kind: kind.to_owned(), message, operator, count });
    }

    /// Adds warnings about rows that were skipped, late or evicted since the last look (P3); false
    /// when there were none.
    pub fn note_losses(&self, at_ms: i64) -> bool {
        let (losses, clocked) = {
            let gauge = &mut self.view.lock().gauge;
            (gauge.losses(), gauge.clocked())
        };
        for operator in clocked {
            self.note(at_ms, Level::Info, "idle_advance", CLOCKED.to_owned(), Some(operator), 1);
        }
        let any = !losses.is_empty();
        for loss in losses {
            tracing::warn!(job = %self.job, operator = loss.operator, rows = loss.count, "{}", loss.message);
            self.note(at_ms, Level::Warn, loss.kind, loss.message, Some(loss.operator), loss.count);
        }
        any
    }

    /// The attempt as of now, with all events that were not acknowledged.
    pub fn observe(&self, now_ns: u64) -> JobObservation {
        let mut view = self.view.lock();
        let (tasks, sources) = view.gauge.read(now_ns);
        JobObservation {
            job: self.job.clone(),
            attempt: self.id,
            generation: self.generation,
            state: view.state.clone(),
            epoch: view.epoch,
            has_cut: view.has_cut,
            tasks,
            sources,
            events: view.events.iter().cloned().collect(),
        }
    }

    /// Forgets the events of an observation that was accepted.
    pub fn acknowledge(&self, events: &[Event]) {
        let mut view = self.view.lock();
        // The oldest may have gone since: forget only what the observation held.
        while view.events.front().is_some_and(|e| events.contains(e)) {
            view.events.pop_front();
        }
    }

    fn tell(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

/// The abort of an attempt whose place is taken by a newer one.
pub fn superseded(by: AttemptId) -> Order {
    Order::Abort(Failure { class: Class::Fenced, message: format!("attempt {by} takes over") })
}

/// Turns an abort into the error that ends the attempt.
pub fn aborted(failure: &Failure) -> Error {
    Error::new(failure.class, failure.message.clone())
}
