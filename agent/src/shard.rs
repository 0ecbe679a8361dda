//! The OS threads that step chains: a run queue each, round robin, parked when there is nothing to do (KER-8).
//!
//! A chain is stepped only after somebody woke it, it asked for more, or its time came; a thousand
//! idle chains cost nothing. A wake-up is never lost: the flag is cleared before the step, so one
//! that comes during the step queues the chain again, and a thread looks into its queue once more
//! between saying that it parks and parking.

use crate::error::Error;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use weir_kernel::chain::{Chain, Step};
use weir_kernel::io::{Clock, Wake};
use weir_planner::error::Class;
use weir_planner::id::ChainId;

/// What a shard steps: a kernel chain, or a double in tests.
pub trait Machine: Send {
    /// At most one batch of work.
    fn step(&mut self) -> Step;
    /// End of stream has passed all of it.
    fn ended(&self) -> bool;
    /// Closes what it holds; idempotent.
    fn close(&mut self);
}

impl Machine for Chain {
    fn step(&mut self) -> Step {
        Chain::step(self)
    }

    fn ended(&self) -> bool {
        self.metrics().ended.load(Ordering::Acquire)
    }

    fn close(&mut self) {
        Chain::close(self);
    }
}

/// What a shard tells of a chain.
#[derive(Debug)]
pub enum News {
    /// It has ended for the first time.
    Ended(ChainId, u32),
    /// It failed or panicked and is not stepped any more.
    Failed(ChainId, u32, Error),
}

/// A seated chain: who it is and who hears of it. The channel must have room for two messages a
/// chain; more are never sent.
pub struct Passenger {
    /// The chain.
    pub machine: Box<dyn Machine>,
    /// Its name.
    pub name: (ChainId, u32),
    /// Who hears.
    pub news: flume::Sender<News>,
}

enum Order {
    Seat(u64, Box<Passenger>, Arc<Seat>),
    Take(u64, flume::Sender<Box<Passenger>>),
}

#[derive(Default)]
struct Inbox {
    /// At most one entry a seat, and one more when it is seated: its `runnable` flag sees to that.
    ready: VecDeque<u64>,
    orders: VecDeque<Order>,
    stop: bool,
}

#[derive(Default)]
struct Queue {
    inbox: Mutex<Inbox>,
    parked: AtomicBool,
    thread: OnceLock<Thread>,
    seats: AtomicUsize,
}

impl Queue {
    fn unpark(&self) {
        if self.parked.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// A place on a shard, taken before the chain is built, so that connectors can wake it.
pub struct Seat {
    queue: Arc<Queue>,
    id: u64,
    runnable: AtomicBool,
}

impl Wake for Seat {
    fn wake(&self) {
        if !self.runnable.swap(true, Ordering::AcqRel) {
            self.queue.inbox.lock().ready.push_back(self.id);
            self.queue.unpark();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.queue.seats.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// Hands a chain to the shard, which steps it from now on.
    pub fn run(self: &Arc<Self>, passenger: Passenger) {
        self.order(Order::Seat(self.id, Box::new(passenger), self.clone()));
    }

    /// Takes the chain back; it is not stepped any more once the receiver has it. The channel
    /// closes without a message when there is none.
    pub fn take(&self) -> flume::Receiver<Box<Passenger>> {
        let (give, given) = flume::bounded(1);
        self.order(Order::Take(self.id, give));
        given
    }

    fn order(&self, order: Order) {
        let mut inbox = self.queue.inbox.lock();
        if !inbox.stop {
            inbox.orders.push_back(order);
        }
        drop(inbox);
        self.queue.unpark();
    }
}

/// The shards of a process.
pub struct Shards {
    queues: Vec<Arc<Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_seat: AtomicU64,
}

impl Shards {
    /// Starts `count` threads, at least one.
    ///
    /// Errors: `Retry` when the system gives no thread.
    pub fn start(count: usize, clock: &Arc<dyn Clock>) -> Result<Shards, Error> {
        let shards =
            Shards { queues: (0..count.max(1)).map(|_| Arc::default()).collect(), threads: Mutex::default(), next_seat: AtomicU64::new(0) };
        for (number, queue) in shards.queues.iter().enumerate() {
            let (queue, clock) = (queue.clone(), clock.clone());
            let run = move || {
                // The thread itself is the only one to set it.
                let _ = queue.thread.set(std::thread::current());
                Loop { queue, clock, slots: BTreeMap::new(), timers: BTreeSet::new() }.run();
            };
            let thread = std::thread::Builder::new().name(format!("weir-shard-{number}")).spawn(run);
            shards.threads.lock().push(thread.map_err(|e| Error::because(Class::Retry, format!("thread of shard {number}"), e))?);
        }
        Ok(shards)
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// A place on the shard with the fewest.
    pub fn seat(&self) -> Arc<Seat> {
        let fewest = self.queues.iter().min_by_key(|q| q.seats.load(Ordering::Relaxed));
        let queue = fewest.expect("`start` makes at least one").clone();
        queue.seats.fetch_add(1, Ordering::Relaxed);
        Arc::new(Seat { queue, id: self.next_seat.fetch_add(1, Ordering::Relaxed), runnable: AtomicBool::new(false) })
    }

    /// Ends and joins the threads; chains still seated are closed. Idempotent.
    pub fn stop(&self) {
        for queue in &self.queues {
            queue.inbox.lock().stop = true;
            queue.unpark();
        }
        for thread in self.threads.lock().drain(..) {
            // Steps are caught, so only a fault of the loop itself could have ended it.
            if thread.join().is_err() {
                tracing::error!("a shard thread panicked");
            }
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Slot {
    passenger: Box<Passenger>,
    seat: Arc<Seat>,
    until_ns: Option<u64>,
    told_ended: bool,
    failed: bool,
}

struct Loop {
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    slots: BTreeMap<u64, Slot>,
    /// One entry at most for each slot.
    timers: BTreeSet<(u64, u64)>,
}

/// What an orderly look into the inbox found.
enum Found {
    Stop,
    Orders(VecDeque<Order>),
    Ready(u64),
    Nothing,
}

impl Loop {
    fn look(&self) -> Found {
        let mut inbox = self.queue.inbox.lock();
        if inbox.stop {
            Found::Stop
        } else if !inbox.orders.is_empty() {
            Found::Orders(std::mem::take(&mut inbox.orders))
        } else {
            inbox.ready.pop_front().map_or(Found::Nothing, Found::Ready)
        }
    }

    fn run(&mut self) {
        loop {
            self.fire_timers();
            match self.look() {
                Found::Stop => break,
                Found::Orders(orders) => orders.into_iter().for_each(|order| self.obey(order)),
                Found::Ready(id) => self.step(id),
                Found::Nothing => self.park(),
            }
        }
        for slot in self.slots.values_mut() {
            close_caught(slot.passenger.machine.as_mut());
        }
    }

    fn park(&self) {
        self.queue.parked.store(true, Ordering::SeqCst);
        let quiet = {
            let inbox = self.queue.inbox.lock();
            inbox.ready.is_empty() && inbox.orders.is_empty() && !inbox.stop
        };
        if quiet {
            match self.timers.first() {
                None => std::thread::park(),
                Some(&(until, _)) => {
                    let wait = until.saturating_sub(self.clock.monotonic_ns());
                    if wait > 0 {
                        std::thread::park_timeout(Duration::from_nanos(wait));
                    }
                }
            }
        }
        self.queue.parked.store(false, Ordering::SeqCst);
    }

    fn fire_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = self.clock.monotonic_ns();
        while let Some(&(until, id)) = self.timers.first() {
            if until > now {
                break;
            }
            self.timers.pop_first();
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.until_ns = None;
                slot.seat.wake();
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Seat(id, passenger, seat) => {
                // Queued here and not by a wake-up: a connector may have woken the seat before
                // there was a chain, and that wake-up is spent.
                seat.runnable.store(true, Ordering::Release);
                self.slots.insert(id, Slot { passenger, seat, until_ns: None, told_ended: false, failed: false });
                self.queue.inbox.lock().ready.push_back(id);
            }
            Order::Take(id, give) => {
                if let Some(slot) = self.slots.remove(&id) {
                    if let Some(until) = slot.until_ns {
                        self.timers.remove(&(until, id));
                    }
                    if let Err(flume::SendError(mut passenger)) = give.send(slot.passenger) {
                        close_caught(passenger.machine.as_mut());
                    }
                }
            }
        }
    }

    fn step(&mut self, id: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if let Some(until) = slot.until_ns.take() {
            self.timers.remove(&(until, id));
        }
        slot.seat.runnable.swap(false, Ordering::AcqRel);
        if slot.failed {
            return;
        }
        let machine = &mut slot.passenger.machine;
        let stepped = catch_unwind(AssertUnwindSafe(|| (machine.step(), machine.ended())));
        let (step, ended) = stepped.unwrap_or_else(|panic| (Step::Failed(panicked(panic.as_ref())), false));
        let (chain, subtask) = slot.passenger.name;
        if ended && !slot.told_ended {
            slot.told_ended = true;
            tell(&slot.passenger.news, News::Ended(chain, subtask));
        }
        match step {
            Step::Worked => slot.seat.wake(),
            Step::Idle { until_ns: None } | Step::Blocked { until_ns: None } => {}
            Step::Idle { until_ns: Some(until) } | Step::Blocked { until_ns: Some(until) } => {
                slot.until_ns = Some(until);
                self.timers.insert((until, id));
            }
            Step::Failed(error) => {
                slot.failed = true;
                tell(&slot.passenger.news, News::Failed(chain, subtask, error));
            }
        }
    }
}

fn tell(news: &flume::Sender<News>, what: News) {
    // The listener has gone when the attempt is being closed, and then it takes the chain anyway.
    let _ = news.try_send(what);
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> weir_kernel::error::Error {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    weir_kernel::error::Error::new(Class::Bug, format!("a task panicked: {}", text.unwrap_or_else(|| "no message".to_owned())))
}

/// Closes a chain whatever state a panic left it in.
pub fn close_caught(machine: &mut dyn Machine) {
    if catch_unwind(AssertUnwindSafe(|| machine.close())).is_err() {
        tracing::error!("a chain panicked while it was closed");
    }
}

#[cfg(test)]
mod tests;
