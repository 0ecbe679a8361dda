//! An engine for tests: plain Postgres statements over a real hub, canned result rows, and words
//! of its own for what the real engine's statements do (wait, notices, an endless stream).

use crate::error::{Error, sqlstate};
use crate::pgwire::{Answers, Limits, accept};
use crate::query::{Queries, Reads, SessionFacts};
use crate::sql::{Described, Outcome, Parameter};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sqlparser::ast;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_hub::Hub;
use weir_hub::hub::{CatalogEntry, CatalogObject, DesiredState, HubOptions, NewJob, OnExists, StartFrom};
use weir_planner::connector::ConnectorCard;
use weir_planner::protocol::{AgentRequest, HubResponse, ReadRequest};

/// Columns of the result table `per_minute`, one of each type.
pub(super) const COLUMNS: [(&str, &str); 12] = [
    ("b", "BOOLEAN"),
    ("i2", "SMALLINT"),
    ("i4", "INTEGER"),
    ("i8", "BIGINT"),
    ("f4", "REAL"),
    ("f8", "DOUBLE PRECISION"),
    ("n", "DECIMAL(10,2)"),
    ("t", "TEXT"),
    ("y", "BYTEA"),
    ("d", "DATE"),
    ("ts", "TIMESTAMP(3)"),
    ("tz", "TIMESTAMPTZ(6)"),
];

/// Answers every read with the same batches.
pub(super) struct Canned(pub Vec<RecordBatch>);

#[async_trait::async_trait]
impl Reads for Canned {
    async fn read(&self, request: ReadRequest) -> Result<BoxStream<'static, Result<Bytes, String>>, String> {
        let schema = Arc::new(request.schema.to_arrow());
        let mut bytes = Vec::new();
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &schema).map_err(|e| e.to_string())?;
        for batch in &self.0 {
            writer.write(batch).map_err(|e| e.to_string())?;
        }
        writer.finish().map_err(|e| e.to_string())?;
        drop(writer);
        // Odd cuts: an answer comes in pieces that know nothing of its messages.
        let pieces: Vec<Result<Bytes, String>> = bytes.chunks(97).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Ok(Box::pin(futures::stream::iter(pieces)))
    }
}

#[derive(Clone)]
pub(super) struct Double {
    queries: Queries,
}

#[derive(Clone, Debug)]
pub(super) enum DoubleStatement {
    /// `SLEEP`: never ends by itself.
    Sleep,
    /// `NOTICE`: two notices and a tag.
    Notice,
    /// `ENDLESS`: one row after the other.
    Endless,
    Sql {
        statement: Box<ast::Statement>,
        text: Arc<str>,
    },
}

impl Answers for Double {
    type Statement = DoubleStatement;

    fn parse(&self, text: &str) -> Result<Vec<DoubleStatement>, Error> {
        match text.trim().trim_end_matches(';') {
            "SLEEP" => return Ok(vec![DoubleStatement::Sleep]),
            "NOTICE" => return Ok(vec![DoubleStatement::Notice]),
            "ENDLESS" => return Ok(vec![DoubleStatement::Endless]),
            _ => {}
        }
        let shared: Arc<str> = text.into();
        let dialect = sqlparser::dialect::PostgreSqlDialect {};
        let statements =
            sqlparser::parser::Parser::parse_sql(&dialect, text).map_err(|error| Error::new(sqlstate::SYNTAX_ERROR, error.to_string()))?;
        Ok(statements
            .into_iter()
            .map(|statement| DoubleStatement::Sql { statement: Box::new(statement), text: Arc::clone(&shared) })
            .collect())
    }

    fn postgres(statement: &DoubleStatement) -> Option<&ast::Statement> {
        match statement {
            DoubleStatement::Sql { statement, .. } => Some(statement),
            DoubleStatement::Sleep | DoubleStatement::Notice | DoubleStatement::Endless => None,
        }
    }

    fn for_session(&self, facts: SessionFacts) -> Self {
        Double { queries: self.queries.for_session(facts) }
    }

    fn run<'a>(&'a self, statement: &'a DoubleStatement, parameters: &'a [Parameter]) -> BoxFuture<'a, Result<Outcome, Error>> {
        match statement {
            DoubleStatement::Sleep => Box::pin(futures::future::pending()),
            DoubleStatement::Notice => Box::pin(async {
                Ok(Outcome::Done { tag: "CREATE JOB".to_owned(), notices: vec!["job 'a' is running".to_owned(), "second".to_owned()] })
            }),
            DoubleStatement::Endless => Box::pin(async {
                let schema = Arc::new(arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new("n", DataType::Int64, false)]));
                let told = Arc::clone(&schema);
                let rows = futures::stream::unfold(0_i64, move |n| {
                    let schema = Arc::clone(&told);
                    async move {
                        let column = Arc::new(arrow::array::Int64Array::from(vec![n]));
                        Some((RecordBatch::try_new(schema, vec![column]).map_err(Into::into), n + 1))
                    }
                });
                Ok(Outcome::Rows { schema: Arc::clone(&schema), stream: Box::pin(RecordBatchStreamAdapter::new(schema, rows)), tag: None })
            }),
            DoubleStatement::Sql { statement, text } => self.queries.run(statement, text, parameters),
        }
    }

    fn describe<'a>(&'a self, statement: &'a DoubleStatement, hints: &'a [Option<DataType>]) -> BoxFuture<'a, Result<Described, Error>> {
        match statement {
            DoubleStatement::Sql { statement, text } => self.queries.describe(statement, text, hints),
            DoubleStatement::Sleep | DoubleStatement::Notice | DoubleStatement::Endless => {
                Box::pin(async { Ok(Described { parameters: Vec::new(), columns: None }) })
            }
        }
    }

    fn query<'a>(&'a self, query: &'a ast::Statement, text: &'a Arc<str>) -> BoxFuture<'a, Result<Outcome, Error>> {
        self.queries.run(query, text, &[])
    }
}

/// A listener with a hub of its own.
pub(super) struct Server {
    pub address: SocketAddr,
    pub hub: Hub,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
    _data: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(Canned(Vec::new()), 200).await
    }

    pub async fn with(reads: Canned, connections_max: usize) -> Server {
        let data = tempfile::tempdir().unwrap();
        let options = HubOptions { data_dir: data.path().to_owned(), lease: Duration::from_secs(30), agent_token: None };
        let hub = Hub::open(options).await.unwrap();
        let card = ConnectorCard { name: "stdout", role: "sink", options: Vec::new() };
        let queries = Queries::new(hub.clone(), Arc::new(reads), vec![card]).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task =
            tokio::spawn(accept(listener, Double { queries }, shutdown, Limits { connections_max, grace: Duration::from_millis(200) }));
        Server { address, hub, stop: Some(stop), task, _data: data }
    }

    /// As [`Server::with_objects`], with an agent that has `per_minute` and answers reads of it so.
    pub async fn with_rows(rows: Vec<RecordBatch>) -> Server {
        let server = Server::with_objects(Canned(rows)).await;
        let register = serde_json::from_value(serde_json::json!({
            "agent": "a", "protocol": weir_planner::protocol::PROTOCOL_VERSION, "boot_id": "boot", "store_id": "disk", "version": "0.1.0",
            "capabilities": ["job_runtime"], "address": "127.0.0.1:1", "token": null, "running": [],
        }));
        let answer = server.hub.agent_call(AgentRequest::Register(register.unwrap())).await;
        assert!(matches!(answer, HubResponse::Registered(_)), "{answer:?}");
        let job = weir_planner::id::JobId::new("per_minute").unwrap();
        let started = server.hub.set_desired(&job, DesiredState::Running, None, StartFrom::Newest).await.unwrap();
        assert!(started.agent.is_some(), "{started:?}");
        server
    }

    /// A job `name` that keeps its rows, a source `bids` and a sink `counts`.
    pub async fn with_objects(reads: Canned) -> Server {
        let server = Server::with(reads, 200).await;
        server.create_job("per_minute", "result").await;
        server.create_job("into_counts", "drop").await;
        let source = serde_json::from_value(serde_json::json!({
            "operator_id": "bids", "input_type": "kafka", "codec": {"type": "json"},
            "config": {"type": "kafka", "brokers": ["b:9092"], "topics": ["bids"], "properties": {"sasl.password": "hunter2"}},
            "schema": [{"name": "auction", "type": "BIGINT", "not_null": true}, {"name": "at", "type": "TIMESTAMP(3)"}],
        }));
        let sink = serde_json::from_value(serde_json::json!({"operator_id": "counts", "output_type": "drop", "config": {"type": "drop"}}));
        let entry = |name: &str, object| CatalogEntry { name: name.to_owned(), object, sql: String::new(), created_at_ms: 0 };
        let source = entry("bids", CatalogObject::Source(Box::new(source.unwrap())));
        let sink = entry("counts", CatalogObject::Sink(Box::new(sink.unwrap())));
        assert!(server.hub.create_entry(source, OnExists::Fail).await.unwrap());
        assert!(server.hub.create_entry(sink, OnExists::Fail).await.unwrap());
        server
    }

    /// A stopped job over columns of every type.
    pub async fn create_job(&self, name: &str, output: &str) {
        let schema: Vec<_> = COLUMNS.iter().map(|(name, ty)| serde_json::json!({"name": name, "type": ty})).collect();
        let spec = serde_json::from_value(serde_json::json!({
            "id": name,
            "operators": [{"id": "source-0", "kind": "source"}, {"id": "sink-0", "kind": "sink"}],
            "edges": [{"id": "edge-0", "from": "source-0", "to": "sink-0"}],
            "sources": [{
                "operator_id": "source-0", "input_type": "values", "config": {"type": "values", "rows": []}, "schema": schema,
            }],
            "sinks": [{"operator_id": "sink-0", "output_type": output, "config": {"type": output}}],
        }));
        let job = NewJob {
            spec: spec.unwrap(),
            sql: Some("CREATE JOB …".to_owned()),
            uses: Vec::new(),
            stream: None,
            desired: DesiredState::Stopped,
            places: Default::default(),
        };
        self.hub.create_job(job).await.unwrap();
    }

    /// Ends the listener and waits for it.
    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap().unwrap();
        self.hub.close().await;
    }

    pub async fn client(&self) -> tokio_postgres::Client {
        let config = format!("host=127.0.0.1 port={} user=tester dbname=weir", self.address.port());
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        client
    }

    /// Runs psql on `commands`; what it printed, errors included.
    pub async fn psql(&self, commands: &[&str]) -> String {
        let address = self.address;
        let commands: Vec<String> = commands.iter().map(|text| (*text).to_owned()).collect();
        tokio::task::spawn_blocking(move || {
            let mut psql = std::process::Command::new("psql");
            psql.args(["-X", "-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", "tester", "-d", "weir", "-P", "pager=off"]);
            psql.env("PGCONNECT_TIMEOUT", "10");
            for command in &commands {
                psql.args(["-c", command]);
            }
            let output = psql.output().expect("psql is a stated prerequisite of the tests");
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        })
        .await
        .unwrap()
    }
}
