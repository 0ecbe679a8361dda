//! The built binary as a child process that never outlives its test.

use super::{PATIENCE, sql::Sql, until};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The binary under test.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A command whose process the kernel kills when the test that started it dies, where it can.
pub fn guarded(program: impl AsRef<OsStr>) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if setpriv.exists() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// The weir command, with nothing of the caller's settings.
pub fn weir_command() -> Command {
    let mut command = guarded(WEIR);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A child with its output so far.
pub struct Running {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command.
    pub fn spawn(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (out, err) = (Arc::default(), Arc::default());
        let readers =
            vec![collect(child.stdout.take().unwrap(), Arc::clone(&out)), collect(child.stderr.take().unwrap(), Arc::clone(&err))];
        Running { child, out, err, readers }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far.
    pub fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Both, for a message.
    pub fn log(&self) -> String {
        let tail = |text: String| text.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
        format!("--- stdout\n{}\n--- stderr\n{}\n---", tail(self.out()), tail(self.err()))
    }

    /// Has it ended?
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the end by itself; kills it and panics past the limit.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status;
            }
            if Instant::now() > end {
                let log = self.log();
                self.kill();
                panic!("the process did not end within {limit:?}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success(), "kill -{name} {}", self.pid());
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("output of process {}:\n{}", self.pid(), self.log());
        }
    }
}

/// Output of a command that has ended.
pub struct Ended {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `weir` with arguments to its end.
pub fn weir(args: &[&str]) -> Ended {
    let mut command = weir_command();
    command.args(args);
    finish(command, PATIENCE)
}

/// Runs any command to its end.
pub fn finish(command: Command, limit: Duration) -> Ended {
    let mut running = Running::spawn(command);
    let status = running.wait(limit);
    Ended { code: status.code().unwrap_or(-1), out: running.out(), err: running.err() }
}

/// A serving `weir`: `up`, `hub` or `agent`.
pub struct Weir {
    running: Running,
    args: Vec<String>,
    pg: Option<u16>,
    http: Option<String>,
    agents: Option<String>,
}

impl Weir {
    /// `weir up` over a data directory, all ports free ones.
    pub fn up(data_dir: &Path) -> Weir {
        Weir::up_with(data_dir, &[])
    }

    /// `weir up` with further arguments.
    pub fn up_with(data_dir: &Path, more: &[&str]) -> Weir {
        let mut args = Weir::serving_args("up", data_dir);
        args.extend(more.iter().map(ToString::to_string));
        Weir::start(args)
    }

    /// `weir hub` over a data directory, all ports free ones.
    pub fn hub(data_dir: &Path) -> Weir {
        Weir::start(Weir::serving_args("hub", data_dir))
    }

    /// `weir agent` of a hub.
    pub fn agent(data_dir: &Path, hub: &str) -> Weir {
        Weir::agent_called("one", data_dir, hub)
    }

    /// `weir agent` with a name, for several on one machine.
    pub fn agent_called(name: &str, data_dir: &Path, hub: &str) -> Weir {
        let args = ["agent", "--data-dir", data_dir.to_str().unwrap(), "--hub", hub, "--node-id", name];
        Weir::start(args.iter().map(ToString::to_string).collect())
    }

    /// The arguments of `up` and `hub` with ports of their own choice.
    pub fn serving_args(role: &str, data_dir: &Path) -> Vec<String> {
        let listen = ["--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"];
        let mut args = vec![role.to_owned(), "--data-dir".to_owned(), data_dir.to_str().unwrap().to_owned()];
        args.extend(listen.iter().map(ToString::to_string));
        args
    }

    /// Starts with the given arguments and waits until it says `ready`.
    pub fn start(args: Vec<String>) -> Weir {
        let mut command = weir_command();
        command.args(&args);
        Weir::start_command(command, args)
    }

    /// Starts a command that ends up as a serving `weir`, and waits until it says `ready`.
    pub fn start_command(command: Command, args: Vec<String>) -> Weir {
        let mut running = Running::spawn(command);
        let out = until("weir says ready", PATIENCE, || {
            if let Some(status) = running.ended() {
                panic!("weir {} ended with {status} before it was ready\n{}", args.join(" "), running.log());
            }
            let out = running.out();
            out.lines().any(|line| line.trim() == "ready").then_some(out)
        });
        let said = |name: &str| {
            let line = out.lines().find(|line| line.split_whitespace().next() == Some(name))?;
            line.split_whitespace().nth(1).map(ToOwned::to_owned)
        };
        let pg = said("postgres").map(|address| address.rsplit(':').next().unwrap().parse().unwrap());
        Weir { running, args, pg, http: said("http"), agents: said("agents") }
    }

    /// Port of the Postgres wire.
    pub fn pg(&self) -> u16 {
        self.pg.unwrap_or_else(|| panic!("weir printed no line 'postgres  ADDRESS'\n{}", self.running.log()))
    }

    /// `http://…` of REST.
    pub fn http(&self) -> &str {
        self.http.as_deref().unwrap_or_else(|| panic!("weir printed no line 'http  URL'\n{}", self.running.log()))
    }

    /// `http://…` where agents connect.
    pub fn agents(&self) -> &str {
        self.agents.as_deref().unwrap_or_else(|| panic!("weir printed no line 'agents  URL'\n{}", self.running.log()))
    }

    /// A new SQL session.
    pub fn sql(&self) -> Sql {
        Sql::connect(self.pg())
    }

    /// The process.
    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.running.kill();
    }

    /// Starts again with the same arguments; the ports may be others.
    pub fn again(mut self) -> Weir {
        self.kill();
        let args = std::mem::take(&mut self.args);
        drop(self);
        Weir::start(args)
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self, limit: Duration) -> Ended {
        self.running.signal("TERM");
        let status = self.running.wait(limit);
        Ended { code: status.code().unwrap_or(-1), out: self.running.out(), err: self.running.err() }
    }

    /// Panics unless it runs.
    pub fn must_run(&mut self) {
        if let Some(status) = self.running.ended() {
            panic!("weir ended with {status}\n{}", self.running.log());
        }
    }

    /// Where the http source of a job of this process listens, from its log.
    pub fn listens(&mut self, job: &str) -> String {
        super::until("the source listens", super::PATIENCE, || {
            self.must_run();
            let log = self.running.err();
            let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let mut said = lines.filter(|line| line["fields"]["message"] == "http source listens" && line["fields"]["job"] == job);
            said.next_back().and_then(|line| line["fields"]["address"].as_str().map(ToOwned::to_owned))
        })
    }
}

/// A directory of the test, removed with it.
pub fn temporary() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("weir-test-").tempdir().unwrap()
}

/// A file in a directory.
pub fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn collect(pipe: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}
