//! Settings from flags and `WEIR_*` variables; the only place that reads the environment.

use anyhow::{Context, bail};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Lease of agents in a process that takes no setting for it.
pub const LEASE: Duration = Duration::from_secs(15);

/// Settings that the doors of a hub share.
#[derive(clap::Args, Clone, Debug)]
pub struct Doors {
    /// Directory of everything that must survive a restart.
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Where psql connects; port 0 picks a free one.
    #[arg(long, env = "WEIR_PG_LISTEN", default_value = "127.0.0.1:5433")]
    pub pg_listen: SocketAddr,
    /// Where REST and metrics answer; port 0 picks a free one.
    #[arg(long, env = "WEIR_HTTP_LISTEN", default_value = "127.0.0.1:8088")]
    pub http_listen: SocketAddr,
    /// Where agents connect; port 0 picks a free one.
    #[arg(long, env = "WEIR_AGENT_LISTEN", default_value = "127.0.0.1:8089")]
    pub agent_listen: SocketAddr,
    /// Secret that agents must present; needed when agents connect from other machines.
    #[arg(long, env = "WEIR_NODE_TOKEN", hide_env_values = true)]
    pub node_token: Option<String>,
    /// Without a report for so long an agent counts as gone.
    #[arg(long, env = "WEIR_LEASE_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(1_000..=600_000))]
    pub lease_ms: u64,
}

impl Doors {
    /// The lease as a duration.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Refuses what would open an unprotected door to other machines (PG-4, API-3).
    pub fn check(&self) -> anyhow::Result<()> {
        for (flag, address) in [("--pg-listen", self.pg_listen), ("--http-listen", self.http_listen)] {
            if !address.ip().is_loopback() {
                bail!(
                    "{flag} {address} would let other machines in without a password; users are not available yet, so listen on 127.0.0.1"
                );
            }
        }
        if !self.agent_listen.ip().is_loopback() && self.node_token.is_none() {
            bail!(
                "--agent-listen {} lets other machines in; set --node-token (or WEIR_NODE_TOKEN) here and on the agents",
                self.agent_listen
            );
        }
        Ok(())
    }
}

/// `weir up`.
#[derive(clap::Args, Clone, Debug)]
pub struct UpConfig {
    /// Doors and data.
    #[command(flatten)]
    pub doors: Doors,
    /// Where checkpoints are kept: file:///path, s3://bucket/prefix or memory:///; default a directory below the data directory.
    #[arg(long, env = "WEIR_STATE_URL")]
    pub state_url: Option<String>,
    /// Data shards (threads that process rows); default one a core.
    #[arg(long, env = "WEIR_SHARDS")]
    pub shards: Option<usize>,
    /// Also make a Nexmark source and two jobs, to have something to look at.
    #[arg(long)]
    pub demo: bool,
}

/// `weir hub`.
#[derive(clap::Args, Clone, Debug)]
pub struct HubConfig {
    /// Doors and data.
    #[command(flatten)]
    pub doors: Doors,
}

/// `weir agent`.
#[derive(clap::Args, Clone, Debug)]
pub struct AgentConfig {
    /// URL of the hub's agent door (its `--agent-listen` address).
    #[arg(long, env = "WEIR_HUB")]
    pub hub: String,
    /// Stable name of this agent; default the machine's host name.
    #[arg(long, env = "WEIR_NODE_ID")]
    pub node_id: Option<String>,
    /// Directory of state, decisions and results.
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-agent-data")]
    pub data_dir: PathBuf,
    /// Secret that the hub wants.
    #[arg(long, env = "WEIR_NODE_TOKEN", hide_env_values = true)]
    pub node_token: Option<String>,
    /// Where checkpoints are kept: file:///path, s3://bucket/prefix or memory:///; default a directory below the data directory.
    #[arg(long, env = "WEIR_STATE_URL")]
    pub state_url: Option<String>,
    /// Data shards (threads that process rows); default one a core.
    #[arg(long, env = "WEIR_SHARDS")]
    pub shards: Option<usize>,
}

impl AgentConfig {
    /// The agent's name: the flag, else the host name with what a name may not hold made a dash.
    pub fn name(&self) -> anyhow::Result<weir_planner::id::AgentId> {
        let name = match &self.node_id {
            Some(name) => name.clone(),
            None => {
                let host =
                    std::fs::read_to_string("/proc/sys/kernel/hostname").context("no --node-id given and the host name cannot be read")?;
                host.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
            }
        };
        weir_planner::id::AgentId::new(name).map_err(|fault| anyhow::anyhow!("--node-id: {fault}"))
    }
}

/// `weir run`.
#[derive(clap::Args, Clone, Debug)]
pub struct RunConfig {
    /// YAML with `jobs:`, or one bare job.
    pub file: PathBuf,
    /// Directory of state and results; a later run goes on from there.
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Data shards (threads that process rows); default one a core.
    #[arg(long, env = "WEIR_SHARDS")]
    pub shards: Option<usize>,
    /// Begin empty: forget what earlier runs of these jobs left.
    #[arg(long)]
    pub fresh: bool,
    /// Start a failed job again as its `restart` says, instead of ending.
    #[arg(long)]
    pub retry: bool,
}

/// The queries that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Query {
    /// Five of the seven columns as they are.
    Q0,
    /// The price times 0.908.
    Q1,
    /// Bids on auctions whose number 123 divides.
    Q2,
    /// Count of bids per auction, windows of 10 s of event time every 2 s.
    Q5,
    /// Highest price, tumbling 10 s.
    Q7,
    /// Persons who opened an auction in the same window.
    Q8,
    /// Count of bids per bidder, sessions with a gap of 10 s.
    Q11,
    /// Count of bids per bidder, tumbling 10 s.
    Q12,
}

/// How plans are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For Graphviz.
    Dot,
}

/// `weir bench nexmark`.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchConfig {
    /// Which query.
    #[arg(long, value_enum)]
    pub query: Query,
    /// File or glob with bids, .ndjson or .parquet: how fast they are taken is measured.
    #[arg(long, required_unless_present = "rate")]
    pub input: Option<String>,
    /// Bids a second to make instead: how long their results take is measured.
    #[arg(long, conflicts_with = "input", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// How long bids are made.
    #[arg(long, default_value_t = 60, conflicts_with = "input", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Subtasks of each operator.
    #[arg(long, default_value_t = 1)]
    pub parallelism: u32,
    /// Data shards; default as many as subtasks.
    #[arg(long)]
    pub shards: Option<usize>,
    /// Pace of epochs.
    #[arg(long, default_value_t = 1_000)]
    pub epoch_ms: u64,
}

/// `weir bench state`.
#[derive(clap::Args, Clone, Debug)]
pub struct StateConfig {
    /// Keys of the window.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,
}

/// `weir state inspect`.
#[derive(clap::Args)]
pub struct InspectConfig {
    /// A state URL, the directory of a state store, or the data directory of an agent.
    pub place: String,
    /// Only of this job.
    #[arg(long)]
    pub job: Option<String>,
    /// Only this checkpoint or savepoint.
    #[arg(long)]
    pub checkpoint: Option<u64>,
    /// Entries of each task to print.
    #[arg(long, default_value_t = 0)]
    pub entries: usize,
}

/// A variable that a job's connector options refer to as `${env:NAME}`.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Where directories go that last no longer than a command.
pub fn scratch_root() -> PathBuf {
    std::env::temp_dir()
}

/// Logs to standard error: for people on a terminal, JSON otherwise; `WEIR_LOG` filters.
pub fn init_logs() {
    use std::io::IsTerminal;
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,weir=info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().init();
    }
}
