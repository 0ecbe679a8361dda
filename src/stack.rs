//! Puts a process together: data directory, hub, embedded agent, SQL engine.

use crate::link::{HubReads, InProcess};
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use weir_agent::agent::{Agent, AgentOptions, Checkpoints};
use weir_agent::segment::make_dir;
use weir_frontend::sql::Engine;
use weir_hub::Hub;
use weir_hub::hub::HubOptions;
use weir_planner::id::AgentId;

/// Name of the agent inside `weir up` and `weir run`.
pub const EMBEDDED_AGENT: &str = "embedded";

/// A data directory that no other process uses. The lock ends with the process, however it ends.
pub struct DataDir {
    _lock: File,
}

impl DataDir {
    /// Makes the directory and takes its lock.
    ///
    /// Errors: it cannot be made, or another process has it (named by pid).
    pub fn lock(path: &Path) -> anyhow::Result<DataDir> {
        make_dir(path).with_context(|| format!("data directory {}", path.display()))?;
        let file_path = path.join("lock");
        let open = File::options().create(true).truncate(false).read(true).write(true).open(&file_path);
        let mut file = open.with_context(|| format!("lock file {}", file_path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).ok();
                bail!("data directory {} is used by process {}; stop it, or give --data-dir another directory", path.display(), pid.trim());
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock file {}", file_path.display()));
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(DataDir { _lock: file })
    }
}

/// How long jobs may take to decide their last epoch when the process is told to stop.
pub const DRAIN: Duration = Duration::from_secs(20);

/// Drains an agent while its session can still report, then ends the session.
pub async fn close_agent(agent: &Agent, session: JoinHandle<Result<(), weir_agent::error::Error>>) {
    agent.shutdown(DRAIN).await;
    match session.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the session of the agent ended"),
        Err(error) => tracing::error!(%error, "the session of the agent panicked"),
    }
}

/// Hub, embedded agent and engine over one data directory.
pub struct Embedded {
    /// The hub.
    pub hub: Hub,
    /// The engine that doors run statements on.
    pub engine: Engine,
    agent: Agent,
    session: JoinHandle<Result<(), weir_agent::error::Error>>,
}

impl Embedded {
    /// Opens the stores, starts shards and the session between agent and hub.
    pub async fn open(
        data_dir: &Path,
        lease: Duration,
        node_token: Option<String>,
        shards: Option<usize>,
        state_url: Option<String>,
    ) -> anyhow::Result<Embedded> {
        let hub = open_hub(data_dir, lease, node_token.clone()).await?;
        let id = AgentId::new(EMBEDDED_AGENT).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let agent = Agent::open(AgentOptions {
            agent: id.clone(),
            data_dir: data_dir.join("agent"),
            address: "in process".to_owned(),
            token: node_token,
            shards,
            state_url: state_url.map_or(Checkpoints::Here, Checkpoints::At),
            environment: crate::config::variable,
        })
        .await?;
        let session = tokio::spawn(weir_agent::session::run(agent.clone(), Arc::new(InProcess(hub.clone()))));
        online(&hub, &id).await;
        let engine = engine(&hub)?;
        Ok(Embedded { hub, engine, agent, session })
    }

    /// Drains: intake stops, the last epoch is decided, connectors and stores close.
    pub async fn close(self) {
        close_agent(&self.agent, self.session).await;
        self.hub.close().await;
    }
}

/// Waits until the embedded agent has registered, so that a process that says `ready` can run a
/// job at once. Bounded: a hub that does not take its own agent shows that in its logs.
async fn online(hub: &Hub, agent: &AgentId) {
    const PATIENCE: Duration = Duration::from_secs(5);
    if hub.wait_for_agent(agent, PATIENCE).await.is_err() {
        tracing::warn!("the embedded agent has not registered yet");
    }
}

/// Opens a hub's store under the data directory.
pub async fn open_hub(data_dir: &Path, lease: Duration, node_token: Option<String>) -> anyhow::Result<Hub> {
    let hub = Hub::open(HubOptions { data_dir: data_dir.join("hub"), lease, agent_token: node_token }).await?;
    hub.sample_with(Arc::new(weir_frontend::sql::SampleBinder));
    Ok(hub)
}

/// The engine over a hub.
pub fn engine(hub: &Hub) -> anyhow::Result<Engine> {
    let engine = Engine::new(hub.clone(), Arc::new(HubReads(hub.clone())), weir_agent::connector::cards())?;
    Ok(engine.with_dry_run(weir_agent::rehearsal::check))
}

/// A directory that goes with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A new directory under the system's temporary one.
    pub fn make() -> anyhow::Result<Scratch> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let path = crate::config::scratch_root().join(format!("weir-{}-{nanos}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("scratch directory {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: the system's temporary directory is cleaned by its owner anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
