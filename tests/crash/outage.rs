//! A power cut after `kill -9`: takes away what a process wrote and did not sync, as `faults.c` noted it.
//!
//! The kernel outlives a killed process and writes all of it some time; a machine that loses power has not. So of a file that was
//! not synced since it was written the end may be missing or zeros, and a name may be missing whose directory was not synced since.

use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A name whose directory was not synced.
enum Name {
    /// A new file, or one more name of a file.
    File,
    /// A new directory.
    Dir,
    /// It was called so before.
    Moved(PathBuf),
}

/// What a log of `faults.c` says about now.
#[derive(Default)]
struct Unsynced {
    /// How much of a file is durable, if it is not all.
    written: BTreeMap<PathBuf, u64>,
    /// How much of a file was there when it was synced last.
    synced: BTreeMap<PathBuf, u64>,
    /// In the order of their making.
    names: Vec<(PathBuf, Name)>,
}

impl Unsynced {
    fn read(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap();
        let sized = |rest: &str| rest.split_once(' ').map(|(size, path)| (size.parse::<u64>().unwrap(), PathBuf::from(path))).unwrap();
        let path = PathBuf::from(rest);
        match what {
            "C" => {
                self.synced.insert(path.clone(), 0);
                self.names.push((path, Name::File));
            }
            "L" => self.names.push((path, Name::File)),
            "M" => self.names.push((path, Name::Dir)),
            "W" => {
                let (before, path) = sized(rest);
                let durable = self.synced.get(&path).copied().unwrap_or(before).min(before);
                let place = self.written.entry(path).or_insert(durable);
                *place = durable.min(*place);
            }
            "S" => {
                let (length, path) = sized(rest);
                self.written.remove(&path);
                self.synced.insert(path, length);
            }
            "U" => {
                self.written.remove(&path);
                self.synced.remove(&path);
                self.names.retain(|(name, _)| *name != path);
            }
            "D" => self.names.retain(|(name, _)| name.parent() != Some(&path)),
            "R" | "O" => {
                let (from, to) = rest.split_once('\t').map(|(from, to)| (PathBuf::from(from), PathBuf::from(to))).unwrap();
                let (written, synced) = (self.written.remove(&from), self.synced.remove(&from));
                written.map(|durable| self.written.insert(to.clone(), durable));
                synced.map(|length| self.synced.insert(to.clone(), length));
                // What was there before is not known any more, so that cannot be brought back.
                if what == "R" {
                    self.names.push((to, Name::Moved(from)));
                } else {
                    self.names.retain(|(name, _)| *name != from);
                }
            }
            other => panic!("{other} in {line:?}"),
        }
    }
}

/// Takes away some of what a dead process did not sync, and forgets the rest: it came through. Gives what was done.
pub fn cut(log: &Path, random: &mut StdRng) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut unsynced = Unsynced::default();
    text.lines().for_each(|line| unsynced.read(line));
    let mut done = Vec::new();
    for (path, durable) in &unsynced.written {
        let Ok(mut bytes) = std::fs::read(path) else { continue };
        let durable = (*durable).min(bytes.len() as u64) as usize;
        if durable == bytes.len() || random.random_bool(0.25) {
            continue;
        }
        let kept = random.random_range(durable..bytes.len());
        if random.random_bool(0.5) {
            bytes.truncate(kept);
        } else {
            bytes[kept..].fill(0);
        }
        std::fs::write(path, bytes).unwrap();
        done.push(format!("{} bytes of {} are kept", kept, path.display()));
    }
    for (path, name) in unsynced.names.iter().rev().filter(|(path, _)| path.exists()) {
        if random.random_bool(0.5) {
            continue;
        }
        match name {
            Name::File => std::fs::remove_file(path).unwrap(),
            Name::Dir => std::fs::remove_dir_all(path).unwrap(),
            Name::Moved(from) if from.exists() => continue,
            Name::Moved(from) => std::fs::rename(path, from).unwrap(),
        }
        done.push(format!("{} is not there", path.display()));
    }
    let _ = std::fs::remove_file(log);
    done
}
