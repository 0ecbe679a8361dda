//! The storm: what strikes, when, and what is looked at meanwhile.

use super::ask;
use super::cluster::{Cluster, Fault, LEASE, Who};
use super::feed::{FEED_PATIENCE, Feed};
use super::hook::{Hook, Seen};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What the storm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// One is killed.
    Kill,
    /// All at once are.
    All,
    /// The power of one goes, or that of all: what was not synced is gone.
    Power,
    /// Killed again while it starts.
    Stillborn,
    /// Stopped past its lease.
    Frozen,
    /// There is no room on its disk for a while; then it goes on, or is killed.
    Full,
    /// Its disk does not sync for a while; then it goes on, or is killed.
    Unsynced,
    /// The newest state files of a dead agent are damaged.
    Segments,
    /// The decision store of a dead agent is damaged.
    Decisions,
    /// The data directory of a dead agent is lost.
    Lost,
    /// Those of all agents are, and a file of the newest checkpoint of the generated numbers is damaged.
    Store,
}

/// With a hub and agents, by weight.
pub const APART: [(Blow, u32); 11] = [
    (Blow::Kill, 40),
    (Blow::All, 8),
    (Blow::Power, 20),
    (Blow::Stillborn, 14),
    (Blow::Frozen, 6),
    (Blow::Full, 8),
    (Blow::Unsynced, 8),
    (Blow::Segments, 10),
    (Blow::Decisions, 8),
    (Blow::Lost, 4),
    (Blow::Store, 6),
];

/// With all in one process, whose files nobody can replace.
pub const IN_ONE: [(Blow, u32); 6] =
    [(Blow::Kill, 40), (Blow::Power, 30), (Blow::Stillborn, 20), (Blow::Frozen, 6), (Blow::Full, 12), (Blow::Unsynced, 10)];

/// A storm and what is under it.
pub struct Storm {
    /// Choices.
    pub random: StdRng,
    /// The processes.
    pub cluster: Cluster,
    /// What goes in.
    pub feeds: Vec<Feed>,
    /// Where the sink's rows go.
    pub hook: Hook,
    blows: &'static [(Blow, u32)],
    kills: u64,
    told: BTreeMap<Blow, u32>,
    /// Kinds of events that the jobs told, with what tells one from the other.
    events: BTreeMap<String, BTreeSet<String>>,
}

impl Storm {
    /// Over these; the jobs run.
    pub fn new(seed: u64, cluster: Cluster, feeds: Vec<Feed>, hook: Hook, blows: &'static [(Blow, u32)]) -> Storm {
        let random = StdRng::seed_from_u64(seed);
        Storm { random, cluster, feeds, hook, blows, kills: 0, told: BTreeMap::new(), events: BTreeMap::new() }
    }

    /// Rages until so many processes were killed.
    pub fn rage(&mut self, kills: u64) {
        let begin = Instant::now();
        while self.kills < kills {
            self.lull();
            self.strike();
        }
        self.look();
        println!("{} kills in {:?}: {:?}", self.kills, begin.elapsed(), self.told);
        let events: Vec<_> = self.events.iter().map(|(kind, which)| format!("{kind} {}", which.len())).collect();
        println!("events: {}", events.join(", "));
        self.hook.with(|seen| println!("{} checkpoints, {} windows of the sink in sealed cuts", seen.checkpoints(), seen.settled()));
    }

    /// Waits until the storm may strike: mostly until requests were answered since the last blow, at times in the middle of the
    /// start that follows it.
    fn lull(&mut self) {
        if self.random.random_bool(0.7) {
            let feed = self.random.random_range(0..self.feeds.len());
            let goal = self.feeds[feed].answered() + self.random.random_range(1..=30);
            self.wait("requests are answered", |storm| storm.feeds[feed].answered() >= goal);
        }
        std::thread::sleep(Duration::from_millis(self.random.random_range(0..300)));
        self.look();
    }

    /// Waits, and tells what the jobs say when it takes too long.
    pub fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Storm) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            self.cluster.check();
            if begin.elapsed() > FEED_PATIENCE {
                let port = self.cluster.doors().pg();
                let jobs = ask(port, "SELECT id, state, last_error FROM weir.jobs");
                let events = ask(port, "SELECT at, job, level, kind, message FROM weir.job_events ORDER BY at DESC LIMIT 30");
                panic!("gave up after {FEED_PATIENCE:?} waiting until {what}\njobs {jobs:#?}\nevents {events:#?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if begin.elapsed() > FEED_PATIENCE / 6 {
            println!("     {:?} until {what}", begin.elapsed());
        }
    }

    /// Notes what is sealed and what the jobs told, and looks at what the sink got.
    fn look(&mut self) {
        let (port, now) = (self.cluster.doors().pg(), Instant::now());
        let sealed = "SELECT id FROM weir.job_checkpoints WHERE job = 'windows' AND state IN ('completed', 'dropped')";
        if let Some(rows) = ask(port, sealed) {
            self.hook.with(|seen| seen.sealed(now, rows.iter().map(|row| row[0].parse().unwrap())));
        }
        for row in ask(port, "SELECT kind, job, at FROM weir.job_events").unwrap_or_default() {
            self.events.entry(row[0].clone()).or_default().insert(format!("{} {}", row[1], row[2]));
        }
        let faults = self.hook.with(|seen| std::mem::take(&mut seen.faults));
        assert!(faults.is_empty(), "{} faults at the sink:\n{}", faults.len(), faults[..faults.len().min(20)].join("\n"));
    }

    fn strike(&mut self) {
        let blow = self.blows.choose_weighted(&mut self.random, |(_, weight)| *weight).unwrap().0;
        let agents_only = matches!(blow, Blow::Segments | Blow::Decisions | Blow::Lost | Blow::Store);
        let who = self.random.random_range(usize::from(agents_only)..self.cluster.len());
        *self.told.entry(blow).or_default() += 1;
        println!("{:>4} kills: {blow:?} {who}", self.kills);
        match blow {
            Blow::Kill => self.kill(who),
            Blow::All => (0..self.cluster.len()).for_each(|who| self.kill(who)),
            Blow::Power => {
                let whose = if self.random.random_bool(0.5) { who..who + 1 } else { 0..self.cluster.len() };
                whose.clone().for_each(|who| self.kill(who));
                for who in whose {
                    self.cluster.cut_power(who, &mut self.random).iter().for_each(|done| println!("       {done}"));
                }
            }
            Blow::Stillborn => {
                self.kill(who);
                let life = Duration::from_millis(self.random.random_range(10..500));
                self.cluster.stillborn(who, life);
                self.kills += 1;
            }
            Blow::Frozen => {
                let past = LEASE.mul_f64(self.random.random_range(1.05..1.5));
                self.cluster.freeze(who, past);
                self.hook.with(Seen::forgive);
            }
            Blow::Full => {
                // A limit would hold for what is noted as well.
                let length = Fault::Length(self.random.random_range(0..200_000));
                let fault = if self.cluster.has_faults() { Fault::Space } else { length };
                self.fault(who, fault);
            }
            Blow::Unsynced => self.fault(who, Fault::Sync),
            Blow::Segments => {
                self.kill(who);
                self.cluster.damage_segments(who, &mut self.random);
            }
            Blow::Decisions => {
                self.kill(who);
                let lost = self.cluster.damage_decisions(who, &mut self.random);
                self.kills += u64::from(!lost);
            }
            Blow::Store => {
                for who in 1..self.cluster.len() {
                    self.kill(who);
                    self.cluster.give_up(who);
                }
                if !self.cluster.damage_checkpoint("counted", &mut self.random) {
                    println!("       nothing that only the newest checkpoint needs");
                }
            }
            Blow::Lost => {
                self.kill(who);
                self.cluster.give_up(who);
            }
        }
        self.cluster.all_up();
        let port = self.cluster.doors().pg();
        self.feeds.iter().for_each(|feed| feed.sql_at(port));
    }

    /// The disk has a fault for a while. Half of the time that ends, else the process is killed in it.
    fn fault(&mut self, who: Who, fault: Fault) {
        let mut killed = self.random.random_bool(0.5);
        let begun = self.cluster.fault(who, fault, true);
        if begun {
            std::thread::sleep(Duration::from_millis(self.random.random_range(100..800)));
        }
        killed |= !begun;
        if killed {
            self.kill(who);
        }
        // A limit goes with its process.
        if !killed || !matches!(fault, Fault::Length(_)) {
            self.cluster.fault(who, fault, false);
        }
    }

    fn kill(&mut self, who: Who) {
        self.cluster.kill(who);
        self.kills += 1;
    }
}
