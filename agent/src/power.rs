//! A simulated disk for tests that loses power: what was synced stays, of the rest any part may have arrived, in any order,
//! down to single sectors.

use parking_lot::Mutex;
use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::sync::Arc;

/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// splitmix64, so that a printed seed tells everything.
pub struct Dice(u64);

impl Dice {
    /// From `WEIR_TEST_SEED`, or from anywhere; prints what repeats the run.
    pub fn printed() -> Self {
        let seed = std::env::var("WEIR_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
        println!("to repeat this: WEIR_TEST_SEED={seed}");
        Dice(seed)
    }

    /// The same seed gives the same throws.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// What happened on the disk, or to whoever uses it.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// The file got another length.
    Length(u64),
    /// All before is durable once it is past.
    Sync,
    /// So many requests were asked in all.
    Asked(usize),
    /// So many requests were confirmed in all.
    Confirmed(usize),
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    events: Vec<Event>,
}

/// A file in memory that remembers everything that was done to it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk that holds these bytes, durably.
    pub fn of(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Mutex::new(State { bytes, events: Vec::new() })))
    }

    /// What is on it.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }

    /// Remembers a step of whoever uses it.
    pub fn note(&self, event: Event) {
        self.0.lock().events.push(event);
    }

    /// Everything so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().events.clone()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let state = self.0.lock();
        let from = offset as usize;
        let found = state.bytes.get(from..from + out.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut state = self.0.lock();
        state.bytes.resize(len as usize, 0);
        state.events.push(Event::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.0.lock().events.push(Event::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut state = self.0.lock();
        put(&mut state.bytes, offset, data);
        state.events.push(Event::Write(offset, data.to_vec()));
        Ok(())
    }
}

/// Writes at an offset; past the end the file grows, with zeros between.
fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, until) = (offset as usize, offset as usize + data.len());
    if bytes.len() < until {
        bytes.resize(until, 0);
    }
    bytes[from..until].copy_from_slice(data);
}

/// What may be found after the power went away at one moment.
pub struct Outage {
    /// Durable for sure.
    synced: Vec<u8>,
    /// Writes and lengths since, in their order.
    open: Vec<Event>,
    /// Requests that were confirmed before.
    pub confirmed: usize,
    /// Requests that were asked before.
    pub asked: usize,
}

/// Every moment at which the power can go away that differs from the one before: after each event.
/// `start` is what the disk held, durably, before the first one.
pub fn outages(start: Vec<u8>, events: &[Event]) -> impl Iterator<Item = Outage> {
    let (mut synced, mut open, mut confirmed, mut asked) = (start, Vec::new(), 0, 0);
    events.iter().map(move |event| {
        match event {
            Event::Write(..) | Event::Length(_) => open.push(event.clone()),
            Event::Sync => open.drain(..).for_each(|event| apply(&mut synced, &event)),
            Event::Asked(count) => asked = *count,
            Event::Confirmed(count) => confirmed = *count,
        }
        Outage { synced: synced.clone(), open: open.clone(), confirmed, asked }
    })
}

fn apply(bytes: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Write(offset, data) => put(bytes, *offset, data),
        Event::Length(len) => bytes.resize(*len as usize, 0),
        Event::Sync | Event::Asked(_) | Event::Confirmed(_) => {}
    }
}

impl Outage {
    /// How many changes may be on the disk or not.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// What the disk may hold then, and how it came so.
    pub fn image(&self, dice: &mut Dice) -> (Vec<u8>, String) {
        match dice.below(4) {
            0 => {
                let until = dice.below(self.open.len() + 1);
                (self.with(|at| at < until), format!("the first {until} of {} changes", self.open.len()))
            }
            1 => {
                let picked: BTreeSet<usize> = (0..self.open.len()).filter(|_| dice.below(2) == 0).collect();
                (self.with(|at| picked.contains(&at)), format!("the changes {picked:?} of {}", self.open.len()))
            }
            2 => self.torn_end(dice),
            _ => self.sectors(dice),
        }
    }

    /// Some of the changes, whole and in their order.
    fn with(&self, keep: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        self.open.iter().enumerate().filter(|(at, _)| keep(*at)).for_each(|(_, event)| apply(&mut bytes, event));
        bytes
    }

    /// Changes in their order, the last one torn at a sector.
    fn torn_end(&self, dice: &mut Dice) -> (Vec<u8>, String) {
        let last = dice.below(self.open.len() + 1);
        let mut bytes = self.with(|at| at < last);
        let mut torn = 0;
        if let Some(Event::Write(offset, data)) = self.open.get(last) {
            let first = SECTOR - offset % SECTOR;
            let cuts: Vec<u64> = (0..).map(|n| first + n * SECTOR).take_while(|cut| *cut < data.len() as u64).collect();
            if !cuts.is_empty() {
                torn = cuts[dice.below(cuts.len())] as usize;
                put(&mut bytes, *offset, &data[..torn]);
            }
        }
        (bytes, format!("the first {last} of {} changes and {torn} bytes of the next", self.open.len()))
    }

    /// Each sector by itself as it was after any of the writes to it, and any of the lengths.
    fn sectors(&self, dice: &mut Dice) -> (Vec<u8>, String) {
        let mut versions: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let mut lengths = vec![self.synced.len() as u64];
        let mut now = self.synced.clone();
        for event in &self.open {
            apply(&mut now, event);
            if lengths.last() != Some(&(now.len() as u64)) {
                lengths.push(now.len() as u64);
            }
            if let Event::Write(offset, data) = event {
                for sector in offset / SECTOR..(offset + data.len() as u64).div_ceil(SECTOR) {
                    let from = (sector * SECTOR) as usize;
                    let until = now.len().min(from + SECTOR as usize);
                    versions.entry(sector).or_default().push(now[from..until].to_vec());
                }
            }
        }
        let mut bytes = self.synced.clone();
        let len = lengths[dice.below(lengths.len())] as usize;
        bytes.resize(bytes.len().max(len), 0);
        let (mut changed, all) = (0, versions.len());
        for (sector, versions) in versions {
            // As it was before, or after one of the writes.
            if let Some(version) = dice.below(versions.len() + 1).checked_sub(1) {
                put(&mut bytes, sector * SECTOR, &versions[version]);
                changed += 1;
            }
        }
        bytes.resize(len, 0);
        (bytes, format!("{changed} of {all} sectors, length {len} of {lengths:?}"))
    }
}
