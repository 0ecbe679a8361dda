//! A model of how epochs are decided, sealed and begun from (EPO-3 to EPO-9, CKP-2), explored whole: one job of two tasks, a hub,
//! two agents with a disk each, and a source whose inputs are deleted once the horizon has passed them. Agents die between any two
//! steps, are believed dead and go on, lose their disk, and come back.
//!
//! Actions have the names of the code: grant (hub/reconcile), restore (agent/runner/open), inject, prepared, decide (planner/epoch,
//! agent/region), seal (hub/checkpoint), passed (agent/region). Each rule can be left out by name, and then the model must find what
//! goes wrong: that is how it is known to be able to.
//!
//! `WEIR_TEST_INPUTS=4` explores more inputs, and takes longer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use stateright::{Checker, Model, Property};

/// Attempts that the hub grants at most.
const ATTEMPTS: u8 = 3;
const AGENTS: usize = 2;

const BEGUN_RIGHT: &str = "what is begun from is right";
const ONCE: &str = "each input counts once";
const ALWAYS: [&str; 2] = [BEGUN_RIGHT, ONCE];

/// What is left out of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Inputs go at the decision although the horizon is the seal (EPO-8).
    PassedAtDecision,
    /// Any local epoch is begun from, whoever has decided since (EPO-9).
    AnyLocalEpoch,
    /// The decision does not wait for every task (EPO-3).
    DecidedUnprepared,
    /// The hub seals for an attempt that is not the live one (CKP-2).
    SealsAnyAttempt,
}

/// A cut: what was read, and what each task has counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cut {
    attempt: u8,
    position: u8,
    counted: [u8; 2],
}

const EMPTY: Cut = Cut { attempt: 0, position: 0, counted: [0; 2] };

impl Cut {
    /// Every input that was read is counted once.
    fn is_whole(&self) -> bool {
        self.counted[0] + self.counted[1] == self.position
    }
}

/// An open round: what the barrier froze, and which tasks have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Round {
    frozen: Cut,
    prepared: [bool; 2],
}

/// An attempt that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    now: Cut,
    decided: Cut,
    round: Option<Round>,
    /// Position of what the hub has sealed for it.
    sealed: Option<u8>,
}

/// An agent: its disk, what it was told to start, what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Agent {
    local: Option<Cut>,
    /// Attempt and `since` of the grant, until it is begun.
    told: Option<(u8, u8)>,
    run: Option<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    agents: [Agent; AGENTS],
    /// The last granted attempt, where it is, and the first of those that were granted only there.
    attempt: u8,
    at: usize,
    since: u8,
    sealed: Option<Cut>,
    /// Inputs below this are deleted.
    gone: u8,
    /// Something was begun from that is wrong.
    fault: bool,
    /// A local epoch newer than the seal was begun from; a seal was.
    used: (bool, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Grant(usize),
    Restore(usize),
    Read(usize),
    Inject(usize),
    Prepared(usize, usize),
    Decide(usize),
    Seal(usize),
    Passed(usize),
    Crash(usize),
    LoseDisk(usize),
}

struct Epochs {
    inputs: u8,
    /// The horizon is the seal; else the local decision, and then the job stays where it is.
    sealed: bool,
    broken: Broken,
}

impl Epochs {
    /// What an agent begins from: the local epoch where it is of the line, else the newest seal, else nothing at all.
    fn restore(&self, world: &mut World, at: usize, attempt: u8, since: u8) {
        let usable = |cut: &Cut| !self.sealed || self.broken == Broken::AnyLocalEpoch || cut.attempt >= since;
        // What is not begun from is set aside.
        let local = world.agents[at].local.filter(usable);
        world.agents[at].local = local;
        world.used.0 |= matches!((local, world.sealed), (Some(local), Some(seal)) if local.position > seal.position);
        world.used.1 |= local.is_none() && world.sealed.is_some();
        let begun = local.or(world.sealed).unwrap_or(EMPTY);
        // An input that nobody has counted is gone, or a history comes back that a later attempt's seal has replaced. One that is
        // begun late, when another has been granted, may do so: nothing of it is ever sealed, passed or begun from.
        let wrong = begun.position < world.gone || world.sealed.is_some_and(|seal| seal.attempt > begun.attempt);
        world.fault |= wrong && attempt == world.attempt;
        let now = Cut { attempt, ..begun };
        world.agents[at].run = Some(Run { now, decided: begun, round: None, sealed: None });
    }
}

impl Model for Epochs {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let agents = [Agent::default(); AGENTS];
        vec![World { agents, attempt: 0, at: 0, since: 0, sealed: None, gone: 0, fault: false, used: (false, false) }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, agent) in world.agents.iter().enumerate() {
            // A job whose horizon is local never leaves; a sealed one may once there is a seal.
            let may_come = world.attempt == 0 || world.at == at || (self.sealed && world.sealed.is_some());
            if world.attempt < ATTEMPTS && may_come {
                actions.push(Action::Grant(at));
            }
            if agent.told.is_some() {
                actions.push(Action::Restore(at));
            }
            if self.sealed && agent.run.is_none() && agent.local.is_some() && world.sealed.is_some() {
                actions.push(Action::LoseDisk(at));
            }
            let Some(run) = agent.run else { continue };
            actions.push(Action::Crash(at));
            actions.push(Action::Passed(at));
            // What has been deleted cannot be read: a stale attempt ends there.
            if run.now.position < self.inputs && run.now.position >= world.gone {
                actions.push(Action::Read(at));
            }
            match run.round {
                None if run.now != run.decided => actions.push(Action::Inject(at)),
                None => {}
                Some(round) => {
                    actions.extend((0..2).filter(|task| !round.prepared[*task]).map(|task| Action::Prepared(at, task)));
                    let enough =
                        if self.broken == Broken::DecidedUnprepared { round.prepared != [false; 2] } else { round.prepared == [true; 2] };
                    if enough {
                        actions.push(Action::Decide(at));
                    }
                }
            }
            let live = (world.at == at && world.attempt == run.now.attempt) || self.broken == Broken::SealsAnyAttempt;
            if live && agent.local.is_some_and(|local| local.attempt == run.now.attempt) {
                actions.push(Action::Seal(at));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Grant(at) => {
                world.attempt += 1;
                if world.attempt == 1 || world.at != at {
                    world.since = world.attempt;
                }
                world.at = at;
                world.agents[at].told = Some((world.attempt, world.since));
            }
            Action::Restore(at) => {
                let (attempt, since) = world.agents[at].told.take()?;
                self.restore(&mut world, at, attempt, since);
            }
            Action::Read(at) => {
                let now = &mut world.agents[at].run.as_mut()?.now;
                now.counted[usize::from(now.position % 2)] += 1;
                now.position += 1;
            }
            Action::Inject(at) => {
                let run = world.agents[at].run.as_mut()?;
                run.round = Some(Round { frozen: run.now, prepared: [false; 2] });
            }
            Action::Prepared(at, task) => world.agents[at].run.as_mut()?.round.as_mut()?.prepared[task] = true,
            Action::Decide(at) => {
                let agent = &mut world.agents[at];
                let run = agent.run.as_mut()?;
                let round = run.round.take()?;
                let counted = |task: usize| if round.prepared[task] { round.frozen.counted[task] } else { run.decided.counted[task] };
                run.decided = Cut { counted: [counted(0), counted(1)], ..round.frozen };
                agent.local = Some(run.decided);
            }
            Action::Seal(at) => {
                let cut = world.agents[at].local?;
                world.sealed = Some(cut);
                world.agents[at].run.as_mut()?.sealed = Some(cut.position);
            }
            Action::Passed(at) => {
                let run = world.agents[at].run?;
                let at_decision = !self.sealed || self.broken == Broken::PassedAtDecision;
                world.gone = world.gone.max(if at_decision { run.decided.position } else { run.sealed? });
            }
            Action::Crash(at) => world.agents[at].run = None,
            Action::LoseDisk(at) => world.agents[at].local = None,
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::<Self>::always(BEGUN_RIGHT, |_, world| !world.fault),
            Property::<Self>::always(ONCE, |_, world| {
                let locals = world.agents.iter().filter_map(|agent| agent.local.as_ref());
                world.sealed.iter().chain(locals).all(Cut::is_whole)
            }),
            Property::<Self>::sometimes("all inputs are decided", |model, world| {
                world.agents.iter().any(|agent| agent.local.is_some_and(|local| local.position == model.inputs))
            }),
        ];
        if self.sealed {
            all.push(Property::<Self>::sometimes("a local epoch after the seal is begun from", |_, world| world.used.0));
            all.push(Property::<Self>::sometimes("a seal is begun from", |_, world| world.used.1));
        }
        all
    }
}

/// Explores everything: what does not hold, and how many states there are. Whatever should be reachable is.
fn explored(sealed: bool, broken: Broken) -> (Vec<&'static str>, usize) {
    let inputs = std::env::var("WEIR_TEST_INPUTS").ok().map_or(2, |text| text.parse().unwrap());
    let model = Epochs { inputs, sealed, broken };
    let reachable: Vec<&str> = model.properties().into_iter().map(|known| known.name).filter(|name| !ALWAYS.contains(name)).collect();
    let checker = model.checker().spawn_bfs().join();
    let found = checker.discoveries();
    println!("sealed {sealed}, {broken:?}: {} states", checker.unique_state_count());
    if broken == Broken::Nothing {
        // The way to what should not be.
        ALWAYS.iter().filter_map(|name| found.get(name)).for_each(|path| println!("{:?}", path.clone().into_actions()));
    }
    if broken == Broken::Nothing {
        reachable.iter().for_each(|name| assert!(found.contains_key(name), "it never comes to this: {name}"));
    }
    (ALWAYS.into_iter().filter(|name| found.contains_key(name)).collect(), checker.unique_state_count())
}

/// EPO-3 to EPO-9, A3: whatever dies wherever, nothing is lost, nothing counts twice, and no replaced history comes back.
#[test]
fn epochs_are_safe() {
    for (sealed, least) in [(true, 50_000), (false, 2_000)] {
        let (wrong, states) = explored(sealed, Broken::Nothing);
        assert!(wrong.is_empty(), "sealed {sealed}: {wrong:?}");
        assert!(states >= least, "{states} states are not what was meant to be explored");
    }
}

/// Each rule is needed: without it the model finds what goes wrong.
#[test]
fn each_rule_is_needed() {
    for (broken, goes_wrong) in [
        (Broken::PassedAtDecision, BEGUN_RIGHT),
        (Broken::AnyLocalEpoch, BEGUN_RIGHT),
        (Broken::DecidedUnprepared, ONCE),
        (Broken::SealsAnyAttempt, BEGUN_RIGHT),
    ] {
        let (wrong, _) = explored(true, broken);
        assert!(wrong.contains(&goes_wrong), "{broken:?}: {wrong:?}");
    }
}
