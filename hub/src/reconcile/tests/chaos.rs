//! Random orders of everything that can happen, on a model of three agents: H1 (one live attempt
//! at most), H3 (nothing is lost), H4 (old sessions change nothing), H6.

use super::{
    Action, AttemptState, Class, CommandDone, DesiredState, HubResponse, JobState, LEASE_MS, Now, World, at, failure, job, observation,
    refused, register, report, world,
};
use crate::hub::StartFrom;
use crate::outbox::{Entry, Order, Outbox};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::id::{Attempt, JobId};

const JOBS: [&str; 3] = ["j0", "j1", "j2"];

/// What an agent process does, as the protocol asks: it takes commands by attempt, reports, and
/// fences itself at the end of its lease.
struct Process {
    name: String,
    boot: u64,
    disk: u64,
    session: Option<String>,
    /// Of the process before, as long as the hub may still listen to it.
    dead: Option<String>,
    sequence: u64,
    heard_ms: u64,
    /// By job: attempt and state.
    held: BTreeMap<JobId, (Attempt, AttemptState)>,
    /// Highest attempt seen of each job: older starts are refused.
    highest: BTreeMap<JobId, Attempt>,
}

struct Trial {
    world: World,
    agents: Vec<Process>,
    random: StdRng,
    now_ms: u64,
    sessions: u64,
    old_sessions: Vec<String>,
    attempts: BTreeMap<JobId, Attempt>,
    /// Attempts of a job above this one are of its present life, not of a dropped namesake.
    born: BTreeMap<JobId, Attempt>,
}

impl Trial {
    fn new(seed: u64) -> Trial {
        let process = |n: u64| Process {
            name: format!("a{n}"),
            boot: n * 1_000,
            disk: n,
            session: None,
            dead: None,
            sequence: 0,
            heard_ms: 0,
            held: BTreeMap::new(),
            highest: BTreeMap::new(),
        };
        Trial {
            world: world(),
            agents: (0..3).map(process).collect(),
            random: StdRng::seed_from_u64(seed),
            now_ms: 0,
            sessions: 0,
            old_sessions: Vec::new(),
            attempts: BTreeMap::new(),
            born: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        at(self.now_ms)
    }

    fn step(&mut self) {
        let who = self.random.random_range(0..self.agents.len());
        let id = JOBS[self.random.random_range(0..JOBS.len())];
        match self.random.random_range(0..21) {
            0 => {
                let fresh = self.random_bool(0.3);
                self.user(id, DesiredState::Running, fresh);
            }
            1 => self.user(id, DesiredState::Stopped, false),
            2 => drop(self.world.drop_job(&job(id))),
            3 => {
                let new = crate::tests::new_job(id, DesiredState::Running);
                let plan = crate::tests::plan(&new.spec);
                if let Ok(true) = self.world.create_job(new, Some(plan), self.now()) {
                    self.born.insert(job(id), self.world.jobs[&job(id)].intent.attempt);
                }
            }
            4 => self.kill(who),
            5 => self.register(who),
            6 => self.restart_hub(),
            7 => self.now_ms += self.random.random_range(0..12_000),
            8 => self.speak_late(),
            // A user who gives up what an agent that is away holds.
            20 => {
                self.user(id, DesiredState::Stopped, false);
                self.user(id, DesiredState::Running, true);
            }
            9..=11 => self.work(who),
            12..=15 => self.poll(who),
            _ => self.report(who),
        }
        self.now_ms += self.random.random_range(0..300);
        self.fence();
        self.world.settle(self.now());
        self.check();
    }

    fn random_bool(&mut self, p: f64) -> bool {
        self.random.random_bool(p)
    }

    fn user(&mut self, id: &str, desired: DesiredState, fresh: bool) {
        drop(self.world.set_desired(&job(id), desired, None, if fresh { StartFrom::Fresh } else { StartFrom::Newest }, self.now()));
    }

    fn kill(&mut self, who: usize) {
        let new_disk = self.random_bool(0.1);
        let process = &mut self.agents[who];
        process.boot += 1;
        process.disk += if new_disk { 10 } else { 0 };
        process.held.clear();
        process.highest.clear();
        process.dead = process.session.take().or(process.dead.take());
    }

    fn register(&mut self, who: usize) {
        self.sessions += 1;
        let session = format!("session {}", self.sessions);
        let now = self.now();
        let process = &mut self.agents[who];
        let running = process
            .held
            .iter()
            .filter(|(_, (_, state))| !matches!(state, AttemptState::Failed(_) | AttemptState::Finished | AttemptState::Stopped));
        let running: Vec<(&str, u64)> = running.map(|(id, (attempt, _))| (id.as_str(), attempt.get())).collect();
        let request = register(&process.name, &process.boot.to_string(), &process.disk.to_string(), &running);
        if let Some(class) = refused(&self.world.register(&request, session.clone(), now)) {
            // Only one with a new disk, while the lease of the one before may still run.
            assert_eq!(class, Class::Retry);
            assert!(self.world.fleet.get(&request.agent).is_some_and(|member| member.agent.store_id != request.store_id));
            return;
        }
        self.old_sessions.extend(process.session.replace(session).into_iter().chain(process.dead.take()));
        process.sequence = 0;
        process.heard_ms = now.steady_ms;
    }

    /// Only what was stored survives.
    fn restart_hub(&mut self) {
        let now = self.now();
        let agents: Vec<_> = self.world.fleet.members().map(|member| member.agent.clone()).collect();
        let commands: Vec<Entry> = self.world.outbox.iter().map(|entry| entry.as_ref().clone()).collect();
        self.world.fleet = crate::fleet::Fleet::load(agents, std::time::Duration::from_millis(LEASE_MS), None, now);
        self.world.outbox = Outbox::load(commands);
        for job in self.world.jobs.values_mut() {
            let job = Arc::make_mut(job);
            let stored = serde_json::to_string(&job.intent).unwrap();
            job.intent = serde_json::from_str(&stored).unwrap();
            job.observation = None;
        }
    }

    /// H4: whatever an old session says is refused and changes nothing.
    fn speak_late(&mut self) {
        if self.old_sessions.is_empty() {
            return;
        }
        let session = self.old_sessions[self.random.random_range(0..self.old_sessions.len())].clone();
        let jobs = JOBS.iter().filter_map(|id| self.attempts.get(&job(id)).map(|a| observation(id, a.get(), AttemptState::Finished)));
        let late = report(&session, 1_000_000, jobs.collect());
        let before: Vec<_> = self.world.jobs.values().map(|job| job.intent.clone()).collect();
        let now = self.now();
        assert_eq!(refused(&self.world.report(&late, now)), Some(Class::Fenced));
        assert!(self.world.claim(&session, now).is_err());
        assert_eq!(before, self.world.jobs.values().map(|job| job.intent.clone()).collect::<Vec<_>>());
    }

    /// Attempts come up, fail and end by themselves.
    fn work(&mut self, who: usize) {
        let dice = self.random.random_range(0..10);
        for (_, state) in self.agents[who].held.values_mut() {
            *state = match (&state, dice) {
                (AttemptState::Starting, 0..=7) => AttemptState::Running,
                (AttemptState::Starting | AttemptState::Running, 8) => AttemptState::Failed(failure(Class::Retry, "away")),
                (AttemptState::Running, 9) => AttemptState::Failed(failure(Class::Bug, "bug")),
                (AttemptState::Stopping, _) => AttemptState::Stopped,
                (other, _) => (*other).clone(),
            };
        }
    }

    fn poll(&mut self, who: usize) {
        let now = self.now();
        let lost = self.random_bool(0.2);
        let process = &mut self.agents[who];
        let Some(session) = process.session.clone() else { return };
        let commands = match self.world.claim(&session, now) {
            Ok((_, commands)) => commands,
            Err(_) => return self.register(who),
        };
        if lost {
            return;
        }
        for command in commands {
            let id = command.job.clone();
            let held = process.held.get(&id).map(|(attempt, _)| *attempt);
            match &command.action {
                Action::Start(start) if process.highest.get(&id).is_none_or(|highest| start.attempt > *highest) => {
                    process.highest.insert(id.clone(), start.attempt);
                    process.held.insert(id, (start.attempt, AttemptState::Starting));
                }
                Action::Start(_) => {}
                Action::Stop { attempt } if held.is_some_and(|held| held <= *attempt) => {
                    process.held.entry(id).and_modify(|(_, state)| match state {
                        AttemptState::Starting | AttemptState::Running => *state = AttemptState::Stopping,
                        AttemptState::Stopping | AttemptState::Stopped | AttemptState::Finished | AttemptState::Failed(_) => {}
                    });
                }
                Action::Forget { attempt, .. } if held.is_some_and(|held| held <= *attempt) => drop(process.held.remove(&id)),
                Action::Stop { .. } | Action::Forget { .. } | Action::Checkpoint { .. } => {}
            }
            if self.random.random_bool(0.8) {
                let done = CommandDone { session: session.clone(), id: command.id, result: Ok(()) };
                assert_eq!(self.world.command_done(&done, now), HubResponse::Accepted);
            }
        }
    }

    fn report(&mut self, who: usize) {
        let now = self.now();
        let process = &mut self.agents[who];
        let Some(session) = process.session.clone() else { return self.register(who) };
        process.sequence += 1;
        let jobs = process.held.iter().map(|(id, (attempt, state))| observation(id.as_str(), attempt.get(), state.clone()));
        let response = self.world.report(&report(&session, process.sequence, jobs.collect()), now);
        match refused(&response) {
            None => process.heard_ms = now.steady_ms,
            Some(_) => self.register(who),
        }
    }

    /// AGT-4: an agent that the hub has not answered for a lease stops what it runs.
    fn fence(&mut self) {
        for process in &mut self.agents {
            if self.now_ms - process.heard_ms >= LEASE_MS {
                process.held.clear();
            }
        }
    }

    fn check(&mut self) {
        for id in JOBS.map(job) {
            let lives = |process: &&Process| {
                let state = process.held.get(&id).map(|(_, state)| state);
                matches!(state, Some(AttemptState::Starting | AttemptState::Running | AttemptState::Stopping))
            };
            let live: Vec<_> = self.agents.iter().filter(lives).map(|process| (&process.name, &process.held[&id])).collect();
            // A dropped job may still be stopping where nobody has heard of it yet.
            if let Some(job) = self.world.jobs.get(&id) {
                let current: Vec<_> = live.iter().filter(|(_, (attempt, _))| *attempt > self.born[&id]).collect();
                assert!(current.len() <= 1, "{id}: {live:?}");
                let last = self.attempts.entry(id.clone()).or_default();
                assert!(job.intent.attempt >= *last, "{id}: attempts rise");
                *last = job.intent.attempt;
            }
        }
        for entry in self.world.outbox.iter().filter(|entry| matches!(entry.order, Order::Start { .. })) {
            let job = &self.world.jobs[&entry.job];
            assert!(job.intent.is_live() && job.intent.attempt == entry.attempt, "only the live attempt can still be started");
        }
    }

    /// When the disturbances end, every job gets to where it should be.
    fn calm(&mut self) {
        for round in 0..400 {
            self.now_ms += 500;
            for who in 0..self.agents.len() {
                if self.agents[who].session.is_none() {
                    self.register(who);
                }
                let now = self.now();
                // A new disk waits for the lease of the old one.
                let Some(session) = self.agents[who].session.clone() else { continue };
                for (_, state) in self.agents[who].held.values_mut() {
                    *state = match state {
                        AttemptState::Starting => AttemptState::Running,
                        AttemptState::Stopping => AttemptState::Stopped,
                        AttemptState::Running | AttemptState::Stopped | AttemptState::Finished | AttemptState::Failed(_) => state.clone(),
                    };
                }
                if self.world.fleet.speaker(&session).is_err() {
                    self.register(who);
                }
                self.report(who);
                self.poll(who);
                self.world.settle(now);
            }
            if round > 10
                && self.world.jobs.values().all(|job| converged(job.intent.state(), job.intent.desired))
                && self.world.outbox.iter().count() == 0
            {
                return;
            }
        }
        let jobs: Vec<_> = self.world.jobs.values().map(|job| job.intent.clone()).collect();
        panic!("did not converge: {jobs:#?}");
    }
}

fn converged(state: JobState, desired: DesiredState) -> bool {
    match desired {
        DesiredState::Running => matches!(state, JobState::Running | JobState::Failed | JobState::Finished),
        DesiredState::Stopped => matches!(state, JobState::Created | JobState::Stopped | JobState::Failed | JobState::Finished),
    }
}

/// H1, H3, H4, H6 over seeded random orders.
#[test]
fn any_order_of_events_is_safe_and_converges() {
    for seed in 0..150 {
        println!("seed {seed}");
        let mut trial = Trial::new(seed);
        for _ in 0..200 {
            trial.step();
        }
        trial.calm();
    }
}
