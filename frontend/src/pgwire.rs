//! The Postgres listener: accepts connections, counts them, passes cancel requests on, and ends
//! them all on a shutdown. [`session`] speaks with one client.
//!
//! Limits: [`CONNECTIONS_MAX`] sessions, more are told so (`53300`); 10 s to log in; 4 MiB a
//! query. A shutdown lets running statements go on for [`GRACE`], then cuts them.

mod copy;
mod error;
mod local;
mod message;
mod parameter;
mod rows;
mod session;
mod text;
mod value;
mod wire;

use crate::error::Error;
use crate::query::SessionFacts;
use crate::sql::{Described, Engine, Outcome, Parameter, Statement};
use arrow::datatypes::DataType;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Sessions at one time.
pub const CONNECTIONS_MAX: usize = 200;
/// Connections beyond the limit that are told why before they are closed; more are dropped unheard.
const REFUSALS_MAX: usize = 32;
/// How long running statements may go on after a shutdown began.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long cut sessions may take to say good-bye.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a session asks of the engine; tests put another one in its place.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// A parsed statement.
    type Statement: Clone + Send + Sync + 'static;
    /// As [`crate::sql::parse`].
    fn parse(&self, text: &str) -> Result<Vec<Self::Statement>, Error>;
    /// As [`Statement::postgres`].
    fn postgres(statement: &Self::Statement) -> Option<&sqlparser::ast::Statement>;
    /// As [`Engine::for_session`].
    fn for_session(&self, facts: SessionFacts) -> Self;
    /// As [`Engine::run`].
    fn run<'a>(&'a self, statement: &'a Self::Statement, parameters: &'a [Parameter]) -> BoxFuture<'a, Result<Outcome, Error>>;
    /// As [`Engine::describe`].
    fn describe<'a>(&'a self, statement: &'a Self::Statement, hints: &'a [Option<DataType>]) -> BoxFuture<'a, Result<Described, Error>>;
    /// As [`crate::query::Queries::run`], for a query inside another statement of `text`.
    fn query<'a>(&'a self, query: &'a sqlparser::ast::Statement, text: &'a Arc<str>) -> BoxFuture<'a, Result<Outcome, Error>>;
}

impl Answers for Engine {
    type Statement = Statement;

    fn parse(&self, text: &str) -> Result<Vec<Statement>, Error> {
        crate::sql::parse(text)
    }

    fn postgres(statement: &Statement) -> Option<&sqlparser::ast::Statement> {
        statement.postgres()
    }

    fn for_session(&self, facts: SessionFacts) -> Self {
        Engine::for_session(self, facts)
    }

    fn run<'a>(&'a self, statement: &'a Statement, parameters: &'a [Parameter]) -> BoxFuture<'a, Result<Outcome, Error>> {
        Engine::run(self, statement, parameters)
    }

    fn describe<'a>(&'a self, statement: &'a Statement, hints: &'a [Option<DataType>]) -> BoxFuture<'a, Result<Described, Error>> {
        Engine::describe(self, statement, hints)
    }

    fn query<'a>(&'a self, query: &'a sqlparser::ast::Statement, text: &'a Arc<str>) -> BoxFuture<'a, Result<Outcome, Error>> {
        self.queries.run(query, text, &[])
    }
}

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Serving.
    Open,
    /// No new statements.
    Draining,
    /// Running statements are cut.
    Cut,
}

/// Running sessions by process id, with the secret that a cancel request must show.
#[derive(Clone, Default)]
struct Cancels(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    last: i32,
    sessions: HashMap<i32, (SecretKey, watch::Sender<u64>)>,
}

/// A session's entry; it goes when the session goes.
struct Registered {
    process_id: i32,
    secret: SecretKey,
    cancelled: watch::Receiver<u64>,
    cancels: Cancels,
}

impl Cancels {
    fn register(&self) -> Registered {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        let secret = SecretKey::I32(bytes.iter().fold(0_i32, |secret, byte| secret.rotate_left(5) ^ i32::from(*byte)));
        let (sender, cancelled) = watch::channel(0);
        let mut registry = self.0.lock();
        let mut process_id = registry.last;
        loop {
            process_id = if process_id == i32::MAX { 1 } else { process_id + 1 };
            if !registry.sessions.contains_key(&process_id) {
                break;
            }
        }
        registry.last = process_id;
        registry.sessions.insert(process_id, (secret.clone(), sender));
        Registered { process_id, secret, cancelled, cancels: self.clone() }
    }

    /// Cancels what a session runs now. A wrong secret does nothing, and says nothing.
    fn cancel(&self, request: &CancelRequest) {
        if let Some((known, sender)) = self.0.lock().sessions.get(&request.pid)
            && known.eq_value(&request.secret_key)
        {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.cancels.0.lock().sessions.remove(&self.process_id);
    }
}

/// Serves Postgres clients until `shutdown` is ready, and returns when every session has ended.
///
/// Cancel: dropping the future ends all sessions at once.
pub fn serve(
    listener: TcpListener,
    engine: Engine,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(accept(listener, engine, shutdown, Limits { connections_max: CONNECTIONS_MAX, grace: GRACE }))
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections_max: usize,
    grace: Duration,
}

/// As [`serve`], for any engine and limits.
async fn accept<E: Answers>(
    listener: TcpListener,
    engine: E,
    shutdown: impl Future<Output = ()> + Send + 'static,
    limits: Limits,
) -> Result<(), Error> {
    let (phase, watched) = watch::channel(Phase::Open);
    let cancels = Cancels::default();
    let mut sessions = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = sessions.join_next() => note_end(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) if sessions.len() < limits.connections_max + REFUSALS_MAX => {
                    let admitted = sessions.len() < limits.connections_max;
                    let session = session::run(stream, engine.clone(), cancels.clone(), watched.clone(), admitted);
                    tracing::debug!(%peer, "postgres client connected");
                    sessions.spawn(session);
                }
                Ok((_, peer)) => tracing::warn!(%peer, "too many connections: one was dropped"),
                Err(error) => {
                    // Out of descriptors, or a client that left at once: wait a little, go on.
                    tracing::warn!(%error, "a postgres connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    phase.send_replace(Phase::Draining);
    if tokio::time::timeout(limits.grace, drain(&mut sessions)).await.is_err() {
        phase.send_replace(Phase::Cut);
        if tokio::time::timeout(FAREWELL, drain(&mut sessions)).await.is_err() {
            sessions.shutdown().await;
        }
    }
    Ok(())
}

async fn drain(sessions: &mut JoinSet<()>) {
    while let Some(ended) = sessions.join_next().await {
        note_end(ended);
    }
}

fn note_end(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a postgres session broke; the others go on");
    }
}

#[cfg(test)]
mod tests;
