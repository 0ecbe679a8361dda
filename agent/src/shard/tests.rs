//! Steps, wake-ups, timers, failures and panics, with doubles instead of chains.

use super::{Machine, News, Passenger, Seat, Shards};
use crate::clock::SystemClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_kernel::chain::Step;
use weir_kernel::io::{Clock, Wake};
use weir_planner::error::Class;
use weir_planner::id::ChainId;

const PATIENCE: Duration = Duration::from_secs(20);

/// Says what it does in each step.
struct Double<F: FnMut(u64) -> Step + Send> {
    steps: u64,
    act: F,
    ended_after: u64,
    closed: Arc<AtomicBool>,
}

impl<F: FnMut(u64) -> Step + Send> Machine for Double<F> {
    fn step(&mut self) -> Step {
        self.steps += 1;
        (self.act)(self.steps)
    }

    fn ended(&self) -> bool {
        self.steps >= self.ended_after
    }

    fn close(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

struct Ride {
    seat: Arc<Seat>,
    news: flume::Receiver<News>,
    closed: Arc<AtomicBool>,
}

fn ride(shards: &Shards, ended_after: u64, act: impl FnMut(u64) -> Step + Send + 'static) -> Ride {
    let (tell, news) = flume::bounded(2);
    let (seat, closed) = (shards.seat(), Arc::new(AtomicBool::new(false)));
    let machine = Box::new(Double { steps: 0, act, ended_after, closed: closed.clone() });
    seat.run(Passenger { machine, name: (ChainId::new(3), 1), news: tell });
    Ride { seat, news, closed }
}

fn shards(count: usize) -> (Shards, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    (Shards::start(count, &clock).unwrap(), clock)
}

const IDLE: Step = Step::Idle { until_ns: None };

/// KER-8: whoever works is stepped in turn with the others on its thread; whoever idles is not
/// stepped at all until it is woken.
#[test]
fn only_woken_chains_are_stepped() {
    let (shards, _) = shards(1);
    let idle_steps: Vec<Arc<AtomicU64>> = (0..1_000).map(|_| Arc::default()).collect();
    let (tell, told) = flume::bounded(2_000);
    let idle: Vec<Ride> = idle_steps
        .iter()
        .map(|steps| {
            let (steps, tell) = (steps.clone(), tell.clone());
            ride(&shards, u64::MAX, move |_| {
                steps.fetch_add(1, Ordering::SeqCst);
                tell.send(()).unwrap();
                IDLE
            })
        })
        .collect();
    for _ in 0..1_000 {
        told.recv_timeout(PATIENCE).unwrap();
    }
    let busy = ride(&shards, 10_000, |step| if step < 10_000 { Step::Worked } else { IDLE });
    assert!(matches!(busy.news.recv_timeout(PATIENCE), Ok(News::Ended(chain, 1)) if chain == ChainId::new(3)));
    assert!(idle_steps.iter().all(|steps| steps.load(Ordering::SeqCst) == 1));
    idle[7].seat.wake();
    told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(idle_steps[7].load(Ordering::SeqCst), 2);
}

/// No wake-up is lost: every token put before a wake-up is seen, whatever the timing.
#[test]
fn wake_ups_from_other_threads_are_not_lost() {
    let (shards, _) = shards(2);
    let tokens = Arc::new(AtomicU64::new(0));
    let (tell, told) = flume::bounded(1);
    let mut seen = 0;
    let counted = tokens.clone();
    let chain = ride(&shards, u64::MAX, move |_| {
        seen += counted.swap(0, Ordering::SeqCst);
        if seen == 40_000 {
            tell.send(()).unwrap();
        }
        IDLE
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    tokens.fetch_add(1, Ordering::SeqCst);
                    chain.seat.wake();
                }
            });
        }
    });
    told.recv_timeout(PATIENCE).expect("a wake-up was lost");
}

/// A connector may wake its chain before there is one: the chain is stepped all the same.
#[test]
fn a_wake_up_before_the_chain_is_seated_does_no_harm() {
    let (shards, _) = shards(1);
    let seat = shards.seat();
    seat.wake();
    // The shard has taken the early wake-up once it has stepped a chain that came after it.
    ride(&shards, 1, |_| IDLE).news.recv_timeout(PATIENCE).unwrap();
    let (tell, news) = flume::bounded(2);
    let machine = Box::new(Double { steps: 0, act: |_| IDLE, ended_after: 1, closed: Arc::default() });
    seat.run(Passenger { machine, name: (ChainId::new(0), 0), news: tell });
    news.recv_timeout(PATIENCE).expect("the chain was never stepped");
}

/// A chain that named a time is stepped then, not before, without being woken.
#[test]
fn a_chain_is_stepped_when_its_time_comes() {
    let (shards, clock) = shards(1);
    let (tell, told) = flume::bounded(1);
    let mut asked = 0;
    ride(&shards, u64::MAX, move |step| {
        if step == 1 {
            asked = clock.monotonic_ns() + 20_000_000;
            return Step::Blocked { until_ns: Some(asked) };
        }
        tell.send(clock.monotonic_ns().checked_sub(asked)).unwrap();
        IDLE
    });
    assert!(told.recv_timeout(PATIENCE).unwrap().is_some(), "stepped before its time");
}

/// A failure and a panic end that chain alone: it is told once, not stepped again, and can be
/// taken back and closed; its neighbour goes on.
#[test]
fn failures_and_panics_stay_with_their_chain() {
    let (shards, _) = shards(1);
    let failing = ride(&shards, u64::MAX, |step| {
        assert_eq!(step, 1, "stepped after it failed");
        Step::Failed(weir_kernel::error::Error::new(Class::User, "bad row"))
    });
    let panicking = ride(&shards, u64::MAX, |_| panic!("a planned panic"));
    match failing.news.recv_timeout(PATIENCE) {
        Ok(News::Failed(_, 1, error)) => assert_eq!((error.class, error.message.as_str()), (Class::User, "bad row")),
        other => panic!("{other:?}"),
    }
    match panicking.news.recv_timeout(PATIENCE) {
        Ok(News::Failed(_, 1, error)) => {
            assert_eq!(error.class, Class::Bug);
            assert!(error.message.contains("a planned panic"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    failing.seat.wake();
    let neighbour = ride(&shards, 1, |_| IDLE);
    assert!(matches!(neighbour.news.recv_timeout(PATIENCE), Ok(News::Ended(..))));
    for failed in [failing, panicking] {
        let mut passenger = failed.seat.take().recv_timeout(PATIENCE).unwrap();
        passenger.machine.close();
        assert!(failed.closed.load(Ordering::SeqCst));
        assert!(failed.seat.take().recv_timeout(PATIENCE).is_err(), "taken twice");
    }
}

/// A stopped process leaves no chain open.
#[test]
fn stopping_closes_what_is_seated() {
    let (shards, _) = shards(2);
    let rides: Vec<Ride> = (0..5).map(|_| ride(&shards, 1, |_| IDLE)).collect();
    for ride in &rides {
        ride.news.recv_timeout(PATIENCE).unwrap();
    }
    shards.stop();
    assert!(rides.iter().all(|r| r.closed.load(Ordering::SeqCst)));
}
