//! One client: log-in, then statements by the simple and the extended protocol until it leaves.

mod extended;

use super::error::{self, Severity};
use super::local::{self, Local};
use super::message::{self, Frame, Frontend, Opening};
use super::rows::{Running, Sent, Stop};
use super::value;
use super::wire::{self, End, Incoming, Reader, Writer};
use super::{Answers, Cancels, Phase, Registered};
use crate::error::{Error, sqlstate};
use crate::query::{SERVER_VERSION, SessionFacts};
use crate::sql::{Outcome, Parameter};
use arrow::record_batch::RecordBatch;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::FutureExt;
use pgwire::messages::extendedquery::{MESSAGE_TYPE_BYTE_SYNC, PortalSuspended};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, ReadyForQuery, SslResponse, TransactionStatus};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, Startup};
use pgwire::messages::terminate::MESSAGE_TYPE_BYTE_TERMINATE;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a client may take to log in.
const LOGIN: Duration = Duration::from_secs(10);
/// How long a client may take to read why its session ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// A logged-in client.
struct Session<E: Answers> {
    engine: E,
    reader: Reader,
    writer: Writer,
    control: Control,
    transaction: TransactionStatus,
    statements: HashMap<String, Arc<extended::Prepared<E::Statement>>>,
    portals: HashMap<String, extended::Portal<E::Statement>>,
    /// After an error of the extended protocol: all is skipped until Sync.
    skipping: bool,
}

/// What can end a statement from outside.
struct Control {
    registered: Registered,
    phase: watch::Receiver<Phase>,
}

/// Serves one connection to its end. A connection that is not admitted hears why.
pub(super) async fn run<E: Answers>(stream: TcpStream, engine: E, cancels: Cancels, phase: watch::Receiver<Phase>, admitted: bool) {
    let (mut reader, mut writer) = wire::split(stream);
    let started = tokio::time::timeout(LOGIN, start(&mut reader, &mut writer, &cancels, admitted)).await;
    let facts = match started {
        Ok(Ok(Some(facts))) => facts,
        // A cancel request, a client that left, or one that did not log in.
        Ok(Ok(None)) | Ok(Err(End::Gone)) | Err(_) => return,
        Ok(Err(End::Broken(error))) => return farewell(&mut writer, &error).await,
    };
    let registered = cancels.register();
    let facts = SessionFacts { process_id: registered.process_id, ..facts };
    let mut session = Session {
        engine: engine.for_session(facts),
        reader,
        writer,
        control: Control { registered, phase },
        transaction: TransactionStatus::Idle,
        statements: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
    };
    match session.serve().await {
        Ok(()) | Err(End::Gone) => {}
        Err(End::Broken(error)) => farewell(&mut session.writer, &error).await,
    }
}

async fn farewell(writer: &mut Writer, last: &Error) {
    let told = error::write(writer, Severity::Fatal, last);
    // A client that does not read cannot keep the session, whatever it has missed.
    let _ = (told, tokio::time::timeout(FAREWELL, writer.flush()).await);
}

/// Log-in: everybody is trusted. `None` for a connection that only cancels.
async fn start(reader: &mut Reader, writer: &mut Writer, cancels: &Cancels, admitted: bool) -> Result<Option<SessionFacts>, End> {
    // Two questions about encryption, then the start.
    for _ in 0..3 {
        match reader.opening().await? {
            Opening::Encrypt => {
                writer.put(&SslResponse::Refuse)?;
                writer.flush().await?;
            }
            Opening::Cancel(request) => {
                cancels.cancel(&request);
                return Ok(None);
            }
            Opening::Startup(startup) => {
                if !admitted {
                    let error = Error::new("53300", "too many connections");
                    return Err(End::Broken(error.with_hint(format!("{} may be open at a time: close some", super::CONNECTIONS_MAX))));
                }
                return accept_startup(writer, &startup).map(Some).map_err(End::Broken);
            }
        }
    }
    Err(End::Broken(message::violation("a client must start after it asked for encryption")))
}

fn accept_startup(writer: &mut Writer, startup: &Startup) -> Result<SessionFacts, Error> {
    let (major, minor) = (startup.protocol_number_major, startup.protocol_number_minor);
    if major != Startup::PG_PROTOCOL_LATEST {
        return Err(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("protocol {major}.{minor} is not available"))
            .with_hint("Weir speaks version 3 of the Postgres protocol"));
    }
    let of = |name: &str| startup.parameters.get(name).cloned();
    let Some(user) = of("user").filter(|user| !user.is_empty()) else {
        return Err(Error::new("28000", "no user name in the startup message"));
    };
    if let Some(encoding) = of("client_encoding") {
        local::check_encoding(&encoding)?;
    }
    let unknown: Vec<String> = startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if minor > 0 || !unknown.is_empty() {
        // The newest minor version is 0.
        writer.put(&NegotiateProtocolVersion::new(0, unknown))?;
    }
    writer.put(&Authentication::Ok)?;
    let application = of("application_name").unwrap_or_default();
    let status = [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
        ("session_authorization", user.as_str()),
        ("application_name", application.as_str()),
    ];
    for (name, value) in status {
        writer.put(&ParameterStatus::new(name.to_owned(), value.to_owned()))?;
    }
    let database = of("database").filter(|name| !name.is_empty()).unwrap_or_else(|| SessionFacts::default().database);
    Ok(SessionFacts { user, database, process_id: 0 })
}

/// Runs `work` unless a cancel request, the end of the server or that of the client comes first.
async fn interruptible<T>(reader: &mut Reader, control: &mut Control, work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    tokio::select! {
        // What ends the work is asked first: work that is always ready must not hide it.
        biased;
        Ok(()) = control.registered.cancelled.changed() => {
            Err(Stop::Failed(Error::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")))
        }
        () = reached(&mut control.phase, Phase::Cut) => Err(Stop::End(End::Broken(shutting_down()))),
        () = reader.gone() => Err(Stop::End(End::Gone)),
        done = std::panic::AssertUnwindSafe(work).catch_unwind() => done.unwrap_or_else(|_| {
            // What it had begun to write may be half a message: the session cannot go on.
            let error = Error::new(sqlstate::INTERNAL_ERROR, "the statement broke the session");
            Err(Stop::End(End::Broken(error.with_hint("this is a fault of Weir: please report it with the statement"))))
        }),
    }
}

/// Ends when the server has come so far, or is gone altogether.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

fn shutting_down() -> Error {
    Error::new("57P01", "terminating connection: the server is shutting down")
}

impl<E: Answers> Session<E> {
    async fn serve(&mut self) -> Result<(), End> {
        let registered = &self.control.registered;
        self.writer.put(&BackendKeyData::new(registered.process_id, registered.secret.clone()))?;
        self.ready().await?;
        loop {
            let incoming = tokio::select! {
                biased;
                () = reached(&mut self.control.phase, Phase::Draining), if self.reader.is_idle() => {
                    return Err(End::Broken(shutting_down()));
                }
                incoming = self.reader.next() => incoming?,
            };
            // A cancel request that came between statements is about none.
            self.control.registered.cancelled.mark_unchanged();
            match incoming {
                Incoming::Frame(frame) => {
                    if !self.take(frame).await? {
                        return Ok(());
                    }
                }
                Incoming::TooLong { tag, bytes } => {
                    if !(self.skipping && tag != MESSAGE_TYPE_BYTE_SYNC) {
                        self.refuse(tag, &message::too_long(bytes)).await?;
                    }
                }
            }
            self.writer.relieve().await?;
        }
    }

    /// One message; false when the client says good-bye.
    async fn take(&mut self, frame: Frame) -> Result<bool, End> {
        let tag = frame.tag;
        if self.skipping && !matches!(tag, MESSAGE_TYPE_BYTE_SYNC | MESSAGE_TYPE_BYTE_TERMINATE) {
            return Ok(true);
        }
        let decoded = match frame.decode() {
            Ok(decoded) => decoded,
            Err(error) if Frame::is_known(tag) => {
                self.refuse(tag, &error).await?;
                return Ok(true);
            }
            Err(error) => return Err(End::Broken(error)),
        };
        let done = match decoded {
            Frontend::Terminate => return Ok(false),
            Frontend::Query(query) => {
                self.portals.remove("");
                let done = self.simple(query.query).await;
                self.settle(done)?;
                self.ready().await?;
                return Ok(true);
            }
            Frontend::Sync => {
                self.skipping = false;
                if self.transaction == TransactionStatus::Idle {
                    self.portals.clear();
                }
                self.ready().await?;
                return Ok(true);
            }
            Frontend::Flush => {
                self.writer.flush().await?;
                return Ok(true);
            }
            Frontend::CopyInput => return Ok(true),
            Frontend::Parse(parse) => self.parse(parse).await,
            Frontend::Bind(bind) => self.bind(bind),
            Frontend::Describe(describe) => self.describe(describe),
            Frontend::Execute(execute) => self.execute(execute).await,
            Frontend::Close(close) => self.close(close),
        };
        if self.settle(done)? {
            self.skipping = true;
            self.writer.flush().await?;
        }
        Ok(true)
    }

    /// Answers a message that cannot be taken.
    async fn refuse(&mut self, tag: u8, error: &Error) -> Result<(), End> {
        self.settle(Err(Stop::Failed(error.clone())))?;
        self.skipping = Frame::waits_for_sync(tag);
        if self.skipping { self.writer.flush().await } else { self.ready().await }
    }

    /// Says that the next message may come.
    async fn ready(&mut self) -> Result<(), End> {
        self.writer.put(&ReadyForQuery::new(self.transaction))?;
        self.writer.flush().await
    }

    /// Says that a statement is done.
    fn complete(&mut self, tag: impl Into<String>) -> Result<(), Error> {
        self.writer.put(&CommandComplete::new(message::text(tag.into())))
    }

    /// Reports a failure, which also fails an open transaction; true when there was one.
    fn settle(&mut self, done: Result<(), Stop>) -> Result<bool, End> {
        match done {
            Ok(()) => Ok(false),
            Err(Stop::End(end)) => Err(end),
            Err(Stop::Failed(failed)) => {
                error::write(&mut self.writer, Severity::Error, &failed)?;
                if self.transaction == TransactionStatus::Transaction {
                    self.transaction = TransactionStatus::Error;
                }
                Ok(true)
            }
        }
    }

    /// A text of statements, one after the other; the first that fails ends it.
    async fn simple(&mut self, text: String) -> Result<(), Stop> {
        let statements = self.engine.parse(&text).map_err(Stop::Failed)?;
        if statements.is_empty() {
            self.writer.put(&EmptyQueryResponse::new())?;
        }
        let text: Arc<str> = text.into();
        for statement in &statements {
            let started = self.start(statement, &[], Vec::new(), &text).await?;
            if let Some(mut running) = started {
                self.writer.put(&value::description(&running.schema, &[]))?;
                self.send(&mut running, 0).await?;
            }
        }
        Ok(())
    }

    /// Does what a statement asks for. Rows come back unsent; all else is answered in full.
    async fn start(
        &mut self,
        statement: &E::Statement,
        parameters: &[Parameter],
        formats: Vec<i16>,
        text: &Arc<str>,
    ) -> Result<Option<Running>, Stop> {
        let postgres = E::postgres(statement);
        self.check_transaction(postgres)?;
        if let Some(postgres) = postgres
            && let Some(local) = local::answer(postgres, self.transaction).map_err(Stop::Failed)?
        {
            return self.local(local, formats, text).await;
        }
        let engine = &self.engine;
        let work = async { engine.run(statement, parameters).await.map_err(Stop::Failed) };
        match interruptible(&mut self.reader, &mut self.control, work).await? {
            Outcome::Done { tag, notices } => {
                for text in &notices {
                    error::notice(&mut self.writer, text)?;
                }
                self.complete(tag)?;
                Ok(None)
            }
            Outcome::Rows { schema, stream, tag } => Ok(Some(Running::new(schema, stream, tag, formats, Arc::clone(text))?)),
        }
    }

    fn check_transaction(&self, postgres: Option<&sqlparser::ast::Statement>) -> Result<(), Stop> {
        let may_run = self.transaction != TransactionStatus::Error || postgres.is_some_and(local::ends_transaction);
        if may_run {
            return Ok(());
        }
        Err(Stop::Failed(
            Error::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
                .with_hint("ROLLBACK ends it"),
        ))
    }

    async fn local(&mut self, local: Local, formats: Vec<i16>, text: &Arc<str>) -> Result<Option<Running>, Stop> {
        match local {
            Local::Rows(batch) => return Ok(Some(one_batch(batch, formats, text)?)),
            Local::Copy(copy) => {
                let work = async {
                    match self.engine.query(&copy.query, text).await.map_err(Stop::Failed)? {
                        Outcome::Rows { schema, stream, tag } => {
                            Running::new(schema, stream, tag, Vec::new(), Arc::clone(text))?.copy(&mut self.writer, &copy.format).await
                        }
                        Outcome::Done { .. } => {
                            Err(Stop::Failed(Error::new(sqlstate::FEATURE_NOT_SUPPORTED, "COPY takes a query that gives rows")))
                        }
                    }
                };
                let count = interruptible(&mut self.reader, &mut self.control, work).await?;
                self.complete(format!("COPY {count}"))?;
            }
            Local::Done { tag, then, warning } => {
                if let Some((state, text)) = warning {
                    error::warning(&mut self.writer, state, text)?;
                }
                self.transaction = then;
                self.complete(tag)?;
            }
            Local::Discard => {
                self.statements.clear();
                self.portals.clear();
                self.complete("DISCARD ALL")?;
            }
            Local::Deallocate(None) => {
                self.statements.clear();
                self.complete("DEALLOCATE ALL")?;
            }
            Local::Deallocate(Some(name)) => {
                if self.statements.remove(&name).is_none() {
                    return Err(Stop::Failed(extended::no_statement(&name)));
                }
                self.complete("DEALLOCATE")?;
            }
            Local::Renamed(name) => {
                self.writer.put(&ParameterStatus::new("application_name".to_owned(), message::text(name)))?;
                self.complete("SET")?;
            }
        }
        Ok(None)
    }

    /// Sends rows and, when all are out, their tag.
    async fn send(&mut self, running: &mut Running, limit: u64) -> Result<Sent, Stop> {
        let sent = interruptible(&mut self.reader, &mut self.control, running.send(&mut self.writer, limit)).await?;
        match (sent, running.tag) {
            (Sent::All(_), Some(word)) => self.complete(word)?,
            (Sent::All(count), None) => self.complete(format!("SELECT {count}"))?,
            (Sent::Some, _) => self.writer.put(&PortalSuspended::new())?,
        }
        Ok(sent)
    }
}

fn one_batch(batch: RecordBatch, formats: Vec<i16>, text: &Arc<str>) -> Result<Running, Error> {
    let schema = batch.schema();
    let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter([Ok(batch)]));
    Running::new(schema, Box::pin(stream), Some("SHOW"), formats, Arc::clone(text))
}
