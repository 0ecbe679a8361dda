//! Processes of the built binary, a hub with two agents or all in one, and what can be done to them.

use super::outage;
use super::support::process::{Running, WEIR, Weir, guarded, weir_command};
use super::support::{PATIENCE, tree_root, until};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// An agent that is silent for so long counts as gone.
pub const LEASE: Duration = Duration::from_millis(2_000);

/// One of them: 0 has the doors, and the others are its agents.
pub type Who = usize;

/// What has the doors, and its agents.
pub struct Cluster {
    /// Where everything lies.
    root: PathBuf,
    agents_at: String,
    all: Vec<Option<Weir>>,
    /// Data directories that were given up, and moved away.
    given_up: usize,
    /// The checkpoint that was damaged last.
    damaged: u64,
    /// `faults.c`, where it could be compiled.
    faults: Option<PathBuf>,
}

/// What a disk can do to a process for a while.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing can be synced.
    Sync,
    /// There is no room.
    Space,
    /// No file may grow past so many bytes.
    Length(u64),
}

fn compiled(root: &Path) -> Option<PathBuf> {
    let (code, library) = (tree_root().join("tests/crash/faults.c"), root.join("faults.so"));
    let done = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(code).arg("-ldl").output();
    let compiled = done.is_ok_and(|done| done.status.success());
    if !compiled {
        println!("tests/crash/faults.c cannot be compiled here: nothing fails to sync, and no power goes");
    }
    compiled.then_some(library)
}

/// An address that is free now, with a port that nobody is given who asks for any: a hub that is started again must get it back.
fn quiet_address() -> String {
    let free = || {
        let port = rand::rng().random_range(10_000..30_000);
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| format!("127.0.0.1:{port}"))
    };
    std::iter::repeat_with(free).take(1_000).flatten().next().unwrap()
}

impl Cluster {
    /// A hub and two agents.
    pub fn apart(root: &Path) -> Cluster {
        Cluster::start(root, 3)
    }

    /// `weir up`.
    pub fn in_one(root: &Path) -> Cluster {
        Cluster::start(root, 1)
    }

    fn start(root: &Path, processes: usize) -> Cluster {
        let all = (0..processes).map(|_| None).collect();
        // With all in one nobody outside needs to find it again.
        let agents_at = if processes == 1 { "127.0.0.1:0".to_owned() } else { quiet_address() };
        let mut cluster = Cluster { root: root.to_owned(), agents_at, all, given_up: 0, damaged: 0, faults: compiled(root) };
        // Who makes these makes them durable.
        (0..processes).for_each(|who| std::fs::create_dir(cluster.dir(who)).unwrap());
        std::fs::create_dir(root.join("store")).unwrap();
        cluster.all_up();
        cluster
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The process with the doors, which runs.
    pub fn doors(&self) -> &Weir {
        self.all[0].as_ref().unwrap()
    }

    fn name(&self, who: Who) -> &'static str {
        if self.all.len() == 1 { "up" } else { ["hub", "one", "two"][who] }
    }

    fn dir(&self, who: Who) -> PathBuf {
        self.root.join(self.name(who))
    }

    fn args(&self, who: Who) -> Vec<String> {
        let (name, dir) = (self.name(who), self.dir(who));
        if who == 0 {
            let mut args = Weir::serving_args(name, &dir);
            args.last_mut().unwrap().clone_from(&self.agents_at);
            args.extend(["--lease-ms".to_owned(), LEASE.as_millis().to_string()]);
            return args;
        }
        let (hub, store) = (format!("http://{}", self.agents_at), format!("file://{}", self.root.join("store").display()));
        let dir = dir.to_str().unwrap();
        let args = ["agent", "--data-dir", dir, "--hub", &hub, "--node-id", name, "--shards", "1", "--state-url", &store];
        args.iter().map(ToString::to_string).collect()
    }

    /// The command, which can be given faults, and gets an error and no signal for a write past its limit.
    fn command(&self, who: Who) -> Command {
        let mut command = guarded("sh");
        // Nothing of the caller's settings.
        for (variable, _) in weir_command().get_envs().filter(|(_, value)| value.is_none()) {
            command.env_remove(variable);
        }
        if let Some(faults) = &self.faults {
            command.env("LD_PRELOAD", faults).env("FAULTS_AT", self.dir(who));
        }
        command.args(["-c", "trap '' XFSZ && exec \"$@\"", "sh", WEIR]).args(self.args(who)).stdin(Stdio::null());
        command
    }

    fn up(&mut self, who: Who) {
        if self.all[who].is_none() {
            self.all[who] = Some(Weir::start_command(self.command(who), self.args(who)));
        }
    }

    /// Starts those that do not run.
    pub fn all_up(&mut self) {
        (0..self.len()).for_each(|who| self.up(who));
    }

    /// Starts one and kills it after so long, whatever it is about then.
    pub fn stillborn(&self, who: Who, life: Duration) {
        let mut running = Running::spawn(self.command(who));
        std::thread::sleep(life);
        let ended = running.ended();
        assert!(ended.is_none(), "{} ended by itself with {ended:?}\n{}", self.name(who), running.log());
        running.kill();
    }

    /// Panics unless all that should run do, and nothing panicked.
    pub fn check(&mut self) {
        for weir in self.all.iter_mut().flatten() {
            weir.must_run();
            let err = weir.process().err();
            assert!(!err.contains("panicked"), "{err}");
        }
    }

    /// Whether `faults.c` works here.
    pub fn has_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// `kill -9`.
    pub fn kill(&mut self, who: Who) {
        self.all[who] = None;
    }

    /// Stops a process for a while; it believes that no time has passed.
    pub fn freeze(&mut self, who: Who, how_long: Duration) {
        let process = self.all[who].as_mut().unwrap().process();
        process.signal("STOP");
        std::thread::sleep(how_long);
        process.signal("CONT");
    }

    /// Begins or ends a fault of the disk under a process. False where this machine cannot.
    pub fn fault(&mut self, who: Who, fault: Fault, begins: bool) -> bool {
        let named = match fault {
            Fault::Sync => "fsync",
            Fault::Space => "space",
            Fault::Length(bytes) => {
                let limit = if begins { bytes.to_string() } else { "unlimited".to_owned() };
                let pid = self.all[who].as_mut().unwrap().process().pid();
                let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &format!("--fsize={limit}:")]).status();
                return status.is_ok_and(|status| status.success());
            }
        };
        let told = self.dir(who).with_extension(named);
        if begins {
            std::fs::write(told, "").unwrap()
        } else {
            std::fs::remove_file(told).unwrap()
        }
        self.faults.is_some()
    }

    /// Takes away what a dead process did not sync, as if its machine had lost power. Gives what was done.
    pub fn cut_power(&self, who: Who, random: &mut StdRng) -> Vec<String> {
        outage::cut(&self.dir(who).with_extension("log"), random)
    }

    /// Damages the newest state files of a dead agent. How many.
    pub fn damage_segments(&self, agent: Who, random: &mut StdRng) -> usize {
        let jobs = std::fs::read_dir(self.dir(agent).join("agent/jobs")).into_iter().flatten().flatten();
        let files = jobs.flat_map(|job| std::fs::read_dir(job.path().join("state")).into_iter().flatten().flatten());
        let mut files: Vec<PathBuf> =
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|ext| ext == "seg")).collect();
        files.sort_by_key(|path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok());
        let newest = &files[files.len().saturating_sub(4)..];
        newest.iter().for_each(|path| damage(path, 0, random));
        newest.len()
    }

    /// Damages a file that only a job's newest checkpoint needs, if several were made since the last time.
    pub fn damage_checkpoint(&mut self, job: &str, random: &mut StdRng) -> bool {
        let store = self.root.join("store/jobs").join(job);
        let names = std::fs::read_dir(store.join("checkpoints")).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut ids: Vec<u64> = names.filter_map(|name| name.to_str()?.strip_suffix(".json")?.parse().ok()).collect();
        ids.sort_unstable();
        let files = |id: &u64| -> BTreeSet<PathBuf> {
            let text = std::fs::read_to_string(store.join(format!("checkpoints/{id}.json"))).unwrap();
            // Its checksum follows.
            let manifest = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>().next().unwrap().unwrap();
            manifest["files"].as_object().unwrap().iter().map(|(name, attempt)| store.join(format!("files/{attempt}/{name}"))).collect()
        };
        let Some((newest, others)) = ids.split_last().filter(|(_, others)| others.iter().filter(|id| **id > self.damaged).count() > 1)
        else {
            return false;
        };
        let others: BTreeSet<PathBuf> = others.iter().flat_map(files).collect();
        let Some(path) = files(newest).difference(&others).next().cloned() else { return false };
        damage(&path, 0, random);
        self.damaged = *newest;
        true
    }

    /// Damages the decision store of a dead agent and starts it: it runs, with all that it had, or refuses, and then
    /// its data directory is given up.
    pub fn damage_decisions(&mut self, agent: Who, random: &mut StdRng) -> bool {
        let path = self.dir(agent).join("agent/agent.redb");
        let len = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        damage(&path, len / 2, random);
        let mut running = Running::spawn(self.command(agent));
        let ready = until("the agent starts or refuses", PATIENCE, || {
            let ready = running.out().lines().any(|line| line.trim() == "ready");
            (ready || running.ended().is_some()).then_some(ready)
        });
        if ready {
            running.kill();
            return false;
        }
        let status = running.wait(PATIENCE);
        let err = running.err();
        assert!(status.code().is_some_and(|code| code != 0) && err.contains("agent.redb") && !err.contains("panicked"), "{status}: {err}");
        self.give_up(agent);
        true
    }

    /// Moves the data directory of a dead agent away, as if its disk were lost.
    pub fn give_up(&mut self, agent: Who) {
        self.given_up += 1;
        std::fs::rename(self.dir(agent), self.root.join(format!("{}.lost-{}", self.name(agent), self.given_up))).unwrap();
    }
}

/// Flips a byte of a file, or cuts it off, at a random place from `from` on.
fn damage(path: &Path, from: u64, random: &mut StdRng) {
    let Ok(mut bytes) = std::fs::read(path) else { return };
    if bytes.len() as u64 <= from {
        return;
    }
    let at = random.random_range(from as usize..bytes.len());
    if random.random_bool(0.5) {
        bytes[at] ^= 1 << random.random_range(0..8);
    } else {
        bytes.truncate(at);
    }
    std::fs::write(path, bytes).unwrap();
}
