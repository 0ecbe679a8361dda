//! The long-running roles: everything in one process, hub alone, agent alone.

use crate::config::{AgentConfig, Doors, HubConfig, UpConfig};
use crate::control::on_control;
use crate::ops;
use crate::signal::Stop;
use crate::stack::{DataDir, Embedded, close_agent, engine, open_hub};
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use weir_agent::agent::{Agent, AgentOptions, Checkpoints};
use weir_agent::link::http::HttpLink;
use weir_frontend::sql::{Engine, Outcome};
use weir_hub::Hub;

/// `weir up`.
pub fn up(config: UpConfig) -> anyhow::Result<()> {
    config.doors.check()?;
    let _lock = DataDir::lock(&config.doors.data_dir)?;
    on_control(async {
        let mut stop = Stop::listen()?;
        let bound = Bound::bind(&config.doors).await?;
        let doors = &config.doors;
        let embedded =
            Embedded::open(&doors.data_dir, doors.lease(), doors.node_token.clone(), config.shards, config.state_url.clone()).await?;
        let (serving, addresses) = Serving::start(bound, &embedded.hub, &embedded.engine)?;
        if config.demo {
            make_demo(&embedded.engine).await?;
        }
        announce(&addresses, config.demo);
        stop.first().await;
        stop.then_exit();
        serving.close().await;
        embedded.close().await;
        Ok(())
    })
}

/// `weir hub`.
pub fn hub(config: HubConfig) -> anyhow::Result<()> {
    config.doors.check()?;
    let _lock = DataDir::lock(&config.doors.data_dir)?;
    on_control(async {
        let mut stop = Stop::listen()?;
        let bound = Bound::bind(&config.doors).await?;
        let hub = open_hub(&config.doors.data_dir, config.doors.lease(), config.doors.node_token.clone()).await?;
        let (serving, addresses) = Serving::start(bound, &hub, &engine(&hub)?)?;
        announce(&addresses, false);
        stop.first().await;
        stop.then_exit();
        serving.close().await;
        hub.close().await;
        Ok(())
    })
}

/// `weir agent`.
pub fn agent(config: AgentConfig) -> anyhow::Result<()> {
    let id = config.name()?;
    let _lock = DataDir::lock(&config.data_dir)?;
    on_control(async {
        let mut stop = Stop::listen()?;
        let options = AgentOptions {
            agent: id.clone(),
            data_dir: config.data_dir.join("agent"),
            address: format!("process {}", std::process::id()),
            token: config.node_token.clone(),
            shards: config.shards,
            state_url: config.state_url.clone().map_or(Checkpoints::Here, Checkpoints::At),
            environment: crate::config::variable,
        };
        let agent = Agent::open(options).await?;
        let mut session = tokio::spawn(weir_agent::session::run(agent.clone(), Arc::new(HttpLink::new(&config.hub)?)));
        println!("agent     {id} for {}", config.hub);
        println!("ready");
        let refused = tokio::select! {
            () = stop.first() => None,
            ended = &mut session => Some(ended),
        };
        stop.then_exit();
        match refused {
            None => close_agent(&agent, session).await,
            Some(ended) => {
                agent.shutdown(crate::stack::DRAIN).await;
                ended??;
            }
        }
        Ok(())
    })
}

/// The listening sockets, taken before anything else so that a busy port stops the start early.
struct Bound {
    postgres: TcpListener,
    http: TcpListener,
    agents: TcpListener,
}

impl Bound {
    async fn bind(doors: &Doors) -> anyhow::Result<Bound> {
        async fn one(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
            TcpListener::bind(address)
                .await
                .with_context(|| format!("{flag} {address} cannot be listened on; is it in use? choose another with {flag}"))
        }
        Ok(Bound {
            postgres: one("--pg-listen", doors.pg_listen).await?,
            http: one("--http-listen", doors.http_listen).await?,
            agents: one("--agent-listen", doors.agent_listen).await?,
        })
    }
}

struct Addresses {
    postgres: SocketAddr,
    http: SocketAddr,
    agents: SocketAddr,
}

/// Everything that answers on sockets; one switch ends all of it.
struct Serving {
    end: watch::Sender<bool>,
    tasks: tokio::task::JoinSet<()>,
}

impl Serving {
    fn start(bound: Bound, hub: &Hub, engine: &Engine) -> anyhow::Result<(Serving, Addresses)> {
        let addresses =
            Addresses { postgres: bound.postgres.local_addr()?, http: bound.http.local_addr()?, agents: bound.agents.local_addr()? };
        let (end, ended) = watch::channel(false);
        let mut tasks = tokio::task::JoinSet::new();
        let (pg_engine, pg_end) = (engine.clone(), ended_of(ended.clone()));
        tasks.spawn(async move {
            if let Err(error) = weir_frontend::pgwire::serve(bound.postgres, pg_engine, pg_end).await {
                tracing::error!(%error, "postgres door ended");
            }
        });
        let api = weir_frontend::rest::router(engine.clone()).merge(ops::router(hub.clone()));
        tasks.spawn(ops::serve("http", bound.http, api, ended_of(ended.clone())));
        tasks.spawn(ops::serve("agents", bound.agents, hub.agent_router(), ended_of(ended)));
        Ok((Serving { end, tasks }, addresses))
    }

    /// Stops taking connections and ends the open ones, within a bound.
    async fn close(mut self) {
        const GRACE: std::time::Duration = std::time::Duration::from_secs(5);
        self.end.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            tracing::warn!("connections were still open after {} s and are cut", GRACE.as_secs());
        }
    }
}

async fn ended_of(mut ended: watch::Receiver<bool>) {
    // An error means that the switch is gone, which ends serving as well.
    let _ = ended.wait_for(|end| *end).await;
}

/// One line an address, then what to type, then `ready`.
fn announce(addresses: &Addresses, demo: bool) {
    println!("postgres  {}", addresses.postgres);
    println!("http      http://{}", addresses.http);
    println!("agents    http://{}", addresses.agents);
    println!("type      psql -h {} -p {} -U weir weir", addresses.postgres.ip(), addresses.postgres.port());
    if demo {
        println!("then      SELECT * FROM bids_per_channel ORDER BY window_start DESC LIMIT 10;");
    }
    println!("ready");
}

/// What `--demo` makes; a second start finds it there and leaves it alone.
const DEMO: &str = include_str!("demo.sql");

async fn make_demo(engine: &Engine) -> anyhow::Result<()> {
    let statements = weir_frontend::sql::parse(DEMO).map_err(|error| anyhow::anyhow!("demo: {error}"))?;
    for statement in &statements {
        match engine.run(statement, &[]).await.map_err(|error| anyhow::anyhow!("demo: {error}"))? {
            Outcome::Done { .. } | Outcome::Rows { .. } => {}
        }
    }
    Ok(())
}
