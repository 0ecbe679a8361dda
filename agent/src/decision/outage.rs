//! The decision store on a disk that loses power at any moment of a realistic history: what was confirmed is
//! found, whole, and nothing that was never asked.

use super::tests::{attempt, decision, file, record};
use super::{Decision, Decisions, JobRecord, RegionCut, builder, storage};
use crate::power::{Dice, Disk, Event, Outage, outages};
use std::collections::BTreeMap;
use std::path::Path;
use weir_kernel::io::ResultFile;
use weir_planner::error::Class;
use weir_planner::id::{Attempt, JobId, RegionId};
use weir_planner::manifest::SegmentRef;
use weir_planner::protocol::{CutGrant, LocalGrant, Restore};

/// Requests of a history.
const REQUESTS: usize = 25;
/// Images that a run must have tried.
const IMAGES_MIN: usize = 5_000;
/// Images of each moment at which changes are under way.
const IMAGES_A_MOMENT: usize = 4;
/// What `tests::decision` keeps of result files with one row each.
const RESULTS_KEPT: usize = 10;

/// What is decided of a job, told independently of the store.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    record: JobRecord,
    regions: BTreeMap<RegionId, RegionCut>,
    results: Vec<ResultFile>,
}

type Model = BTreeMap<JobId, Kept>;

fn open(disk: &Disk, dir: &Path) -> Result<Decisions, crate::error::Error> {
    let disk = disk.clone();
    Decisions::open_by(dir, Box::new(move |path| builder().create_with_backend(disk.clone()).map_err(|e| storage(path, e))))
}

/// A history that is being made, and what is so after each of its requests.
struct History {
    dice: Dice,
    disk: Disk,
    /// What was on the disk before.
    start: Vec<u8>,
    states: Vec<Model>,
    attempts: u64,
    sequences: u64,
}

impl History {
    fn jobs() -> [JobId; 3] {
        ["a", "b", "c"].map(|name| JobId::new(name).unwrap())
    }

    fn now(&self) -> Model {
        self.states.last().unwrap().clone()
    }

    /// A request is asked that leads to this.
    fn asked(&mut self, after: Model) {
        self.states.push(after);
        self.disk.note(Event::Asked(self.states.len() - 1));
    }

    /// Every request was confirmed.
    fn confirmed(&self) {
        self.disk.note(Event::Confirmed(self.states.len() - 1));
    }

    /// The cut of the next epoch, now and then of many segments.
    fn cut(&mut self, attempt: Attempt) -> RegionCut {
        self.sequences += 1;
        let mut cut = record(attempt.get(), self.sequences);
        if self.dice.below(8) == 0 {
            let segments = &mut cut.segments[0].segments;
            *segments = (0..200).map(|n| SegmentRef { name: format!("{n:032}.seg"), ..segments[0].clone() }).collect();
        }
        cut
    }

    /// The next decision of a job, and what is so when it is made.
    fn next(&mut self, job: &JobId) -> (Decision, Model) {
        let mut after = self.now();
        let attempt = after[job].record.attempt;
        let cut = self.cut(attempt);
        let results: Vec<ResultFile> = (0..self.dice.below(3)).map(|n| file(&format!("{}-{n}", self.sequences), 1)).collect();
        let mut made = decision(attempt.get(), self.sequences, results.clone());
        made.job = job.clone();
        made.region = RegionId::new(self.dice.below(2) as u32);
        made.record = cut.clone();
        let kept = after.get_mut(job).unwrap();
        kept.regions.insert(made.region, cut);
        kept.results.extend(results);
        kept.results.drain(..kept.results.len().saturating_sub(RESULTS_KEPT));
        (made, after)
    }

    fn open_attempt(&mut self, store: &Decisions, job: &JobId) {
        self.attempts += 1;
        let mut after = self.now();
        let record = attempt(self.attempts);
        let before = after.get(job).cloned();
        let restore = match &before {
            Some(kept) if self.dice.below(4) > 0 => Restore::Cut(Box::new(CutGrant {
                local: Some(LocalGrant { store_id: store.store_id().to_owned(), since: None, must_exist: !kept.regions.is_empty() }),
                checkpoints: Vec::new(),
            })),
            Some(_) | None => Restore::Fresh,
        };
        let kept = before.filter(|_| restore != Restore::Fresh);
        let (regions, results) = kept.map(|kept| (kept.regions, kept.results)).unwrap_or_default();
        after.insert(job.clone(), Kept { record: record.clone(), regions, results });
        self.asked(after);
        store.open_attempt(record, job, restore).unwrap();
        self.confirmed();
    }

    fn adopt(&mut self, store: &Decisions, job: &JobId) {
        let mut after = self.now();
        let attempt = after[job].record.attempt;
        let regions: BTreeMap<RegionId, RegionCut> = (0..2).map(|region| (RegionId::new(region), self.cut(attempt))).collect();
        let results = vec![file(&format!("{}-adopted", self.sequences), 1)];
        let kept = after.get_mut(job).unwrap();
        (kept.regions, kept.results) = (regions.clone(), results.clone());
        self.asked(after);
        store.adopt(job, attempt, regions, results).unwrap();
        self.confirmed();
    }

    fn forget(&mut self, store: &Decisions, job: &JobId) {
        let mut after = self.now();
        let attempt = after.remove(job).unwrap().record.attempt;
        self.asked(after);
        store.forget(job, attempt).unwrap();
        self.confirmed();
    }

    /// Decisions that are asked without waiting, so that some share a transaction.
    fn burst(&mut self, store: &Decisions, job: &JobId) {
        let told: Vec<flume::Receiver<()>> = (0..2 + self.dice.below(5))
            .map(|_| {
                let (made, after) = self.next(job);
                self.asked(after);
                let (disk, count) = (self.disk.clone(), self.states.len() - 1);
                let (tell, told) = flume::bounded(1);
                store.decide_later(made, move |answer| {
                    answer.unwrap();
                    disk.note(Event::Confirmed(count));
                    let _ = tell.send(());
                });
                told
            })
            .collect();
        told.iter().for_each(|told| told.recv().unwrap());
    }

    fn step(&mut self, store: &Decisions) {
        let job = History::jobs()[self.dice.below(3)].clone();
        if !self.now().contains_key(&job) {
            return self.open_attempt(store, &job);
        }
        match self.dice.below(20) {
            0..11 => {
                let (made, after) = self.next(&job);
                self.asked(after);
                store.decide(made).unwrap();
                self.confirmed();
            }
            11..14 => self.burst(store, &job),
            14..17 => self.open_attempt(store, &job),
            17..19 => self.adopt(store, &job),
            _ => self.forget(store, &job),
        }
    }
}

/// All that the store holds.
fn found(store: &Decisions) -> Model {
    let cuts = History::jobs().map(|job| {
        let cut = store.cut(&job).unwrap();
        let strays = (store.regions(&job).unwrap().len(), store.results(&job).unwrap().len());
        assert!(cut.is_some() || strays == (0, 0), "job {job} is not known and has {strays:?} regions and results");
        cut.map(|cut| (job, Kept { record: cut.record, regions: cut.regions, results: cut.results }))
    });
    cuts.into_iter().flatten().collect()
}

/// What a start finds on the image must be so after a request between the last confirmed and the last asked one.
fn judge(store: &Decisions, states: &[Model], outage: &Outage, what: &str) -> usize {
    let found = found(store);
    let holds = (outage.confirmed..=outage.asked).rev().find(|at| states[*at] == found);
    holds.unwrap_or_else(|| {
        let elsewhere: Vec<usize> = (0..states.len()).filter(|at| states[*at] == found).collect();
        panic!(
            "{what}: {} of {} requests were confirmed, and what is found is that of {elsewhere:?}: {found:?}",
            outage.confirmed, outage.asked
        )
    })
}

fn opened(disk: &Disk, dir: &Path, what: &str) -> Decisions {
    open(disk, dir).unwrap_or_else(|e| panic!("{what}: it does not open: {}", e.to_failure().message))
}

/// Goes on from an image: the store decides, and a start after a kill finds that.
fn goes_on(disk: &Disk, store: Decisions, dir: &Path, what: &str) {
    let job = History::jobs()[0].clone();
    store.open_attempt(attempt(1_000), &job, Restore::Fresh).unwrap();
    let mut next = decision(1_000, 1, vec![file("next", 1)]);
    next.job = job.clone();
    store.decide(next).unwrap();
    let wanted = found(&store);
    assert_eq!(wanted[&job].regions[&RegionId::new(0)], record(1_000, 1), "{what}");
    let killed = Disk::of(disk.bytes());
    drop(store);
    assert_eq!(found(&opened(&killed, dir, what)), wanted, "{what}: after another start");
}

/// A history of a new store to its end, and the store's id. `new` is a data directory at its first start, `used` one in
/// which jobs have run.
fn history(dice: Dice, new: &Path, used: &Path) -> (History, String) {
    // As `make` leaves it: nobody opens a store under its name before that.
    let made = Disk::default();
    drop(builder().create_with_backend(made.clone()).unwrap());
    let start = made.bytes();
    let mut history = History { dice, disk: Disk::of(start.clone()), start, states: vec![Model::new()], attempts: 0, sequences: 0 };
    // Preparing the store is the first request.
    history.asked(Model::new());
    let mut store = open(&history.disk, new).unwrap();
    history.confirmed();
    let id = store.store_id().to_owned();
    while history.states.len() < REQUESTS {
        history.step(&store);
        if history.dice.below(20) == 0 {
            store.close();
            store = open(&history.disk, used).unwrap();
        }
    }
    store.close();
    assert_eq!(found(&open(&history.disk, used).unwrap()), history.now());
    (history, id)
}

/// What was tried.
#[derive(Default)]
struct Tried {
    images: usize,
    /// With a request that was under way.
    between: usize,
    /// Of a second outage.
    again: usize,
}

/// Tries images of one moment.
fn try_moment(outage: &Outage, history: &History, id: &str, dir: &Path, dice: &mut Dice, tried: &mut Tried) {
    let tries = if outage.open() == 0 { 1 } else { IMAGES_A_MOMENT };
    for _ in 0..tries {
        let (bytes, how) = outage.image(dice);
        tried.images += 1;
        let disk = Disk::of(bytes.clone());
        let store = opened(&disk, dir, &how);
        if outage.confirmed > 0 {
            assert_eq!(store.store_id(), id, "{how}");
        }
        let at = judge(&store, &history.states, outage, &how);
        tried.between += usize::from(at > outage.confirmed);
        match dice.below(16) {
            0 => goes_on(&disk, store, dir, &how),
            1 => {
                drop(store);
                let moments: Vec<Outage> = outages(bytes, &disk.events()).filter(|moment| moment.open() > 0).collect();
                if !moments.is_empty() {
                    let (bytes, then) = moments[dice.below(moments.len())].image(dice);
                    tried.images += 1;
                    tried.again += 1;
                    let how = format!("{how}, and while it starts {then}");
                    judge(&opened(&Disk::of(bytes), dir, &how), &history.states, outage, &how);
                }
            }
            _ => {}
        }
    }
}

/// A2, C2: whatever part of what was not synced arrived, in whatever order and torn at whatever sector, a start finds every
/// confirmed request and at most those under way, whole, in their order; also when the power goes again while it starts.
#[test]
fn no_outage_loses_or_tears_a_decision() {
    let mut dice = Dice::printed();
    let (new, used) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(used.path().join("jobs").join("a")).unwrap();
    let mut all = Tried::default();
    while all.images < IMAGES_MIN {
        let (history, id) = history(Dice::new(dice.next()), new.path(), used.path());
        let events = history.disk.events();
        let dices = [Dice::new(dice.next()), Dice::new(dice.next())];
        std::thread::scope(|scope| {
            let threads = dices.into_iter().enumerate().map(|(thread, mut dice)| {
                let (history, id, events, new, used) = (&history, &id, &events, &new, &used);
                scope.spawn(move || {
                    let mut tried = Tried::default();
                    for outage in outages(history.start.clone(), events).skip(thread).step_by(2) {
                        let dir = if outage.confirmed == 0 { new.path() } else { used.path() };
                        try_moment(&outage, history, id, dir, &mut dice, &mut tried);
                    }
                    tried
                })
            });
            for thread in threads.collect::<Vec<_>>() {
                let tried = thread.join().unwrap();
                all.images += tried.images;
                all.between += tried.between;
                all.again += tried.again;
            }
        });
    }
    println!("{} images, {} with requests that were under way, {} of a second outage", all.images, all.between, all.again);
    assert!(all.images >= IMAGES_MIN && all.between > 100 && all.again > 50);
}

/// The simulation bites: on a disk that does not do what a sync promises, decisions are lost; what is opened even then is
/// a state that was once so, and all else is refused (B4).
#[test]
fn a_disk_that_lies_is_found_out() {
    let mut dice = Dice::printed();
    let (new, used) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(used.path().join("jobs").join("a")).unwrap();
    let (history, _) = history(Dice::new(dice.next()), new.path(), used.path());
    let mut events = history.disk.events();
    events.retain(|event| !matches!(event, Event::Sync));
    let (mut lost, mut refused) = (0, 0);
    for outage in outages(history.start.clone(), &events).filter(|outage| outage.confirmed > 1).step_by(3) {
        let (bytes, how) = outage.image(&mut dice);
        match open(&Disk::of(bytes), used.path()) {
            Ok(store) => {
                let found = found(&store);
                assert!(history.states[..=outage.asked].contains(&found), "{how}: {found:?} was never so");
                lost += usize::from(!history.states[outage.confirmed..=outage.asked].contains(&found));
            }
            Err(error) => {
                assert_eq!(error.class, Class::Corrupt, "{how}: {}", error.to_failure().message);
                refused += 1;
            }
        }
    }
    println!("{lost} with lost decisions, {refused} refused");
    assert!(lost > 0 && refused > 0, "{lost} {refused}");
}
