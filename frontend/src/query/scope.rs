//! What exists when a query starts: one list that planning, `pg_catalog` and `information_schema` share.

use super::{Reads, pg_catalog, system};
use arrow::datatypes::SchemaRef;
use std::sync::Arc;
use weir_hub::Hub;
use weir_hub::checkpoint::Checkpoint;
use weir_hub::hub::{AgentInfo, CatalogEntry, CatalogObject, JobEvent, JobInfo};
use weir_planner::connector::{ConnectorCard, SinkOptions};
use weir_planner::schema::Schema;

/// Name of the one database.
pub(crate) const CATALOG: &str = "weir";
/// Schema of result tables, sources and sinks.
pub(crate) const PUBLIC: &str = "public";
/// Schema of the system tables.
pub(crate) const WEIR: &str = "weir";
/// Postgres' system schema.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The standard's schema of schemas.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// What a query may learn about the session that it runs in.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// Who is connected.
    pub user: String,
    /// The database's name, as the client gave it.
    pub database: String,
    /// Number of the session.
    pub process_id: i32,
}

impl Default for SessionFacts {
    fn default() -> Self {
        SessionFacts { user: "weir".to_owned(), database: CATALOG.to_owned(), process_id: 0 }
    }
}

/// Kinds of named things with columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelationKind {
    /// A job's result table.
    Result,
    /// A source of the catalog.
    Source,
    /// A sink of the catalog.
    Sink,
    /// A table of schema `weir`.
    System,
    /// A table of `pg_catalog` or `information_schema`.
    Catalog,
}

/// A named thing with columns.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub schema: &'static str,
    pub name: String,
    pub kind: RelationKind,
    pub columns: SchemaRef,
}

/// A snapshot of everything that a query may see.
pub(crate) struct Scope {
    pub session: SessionFacts,
    pub reads: Arc<dyn Reads>,
    pub connectors: Arc<[ConnectorCard]>,
    pub jobs: Vec<Arc<JobInfo>>,
    pub entries: Vec<Arc<CatalogEntry>>,
    hub: Hub,
}

impl Scope {
    /// Takes a snapshot; never blocks on I/O.
    pub fn take(hub: &Hub, reads: &Arc<dyn Reads>, connectors: &Arc<[ConnectorCard]>, session: &SessionFacts) -> Scope {
        Scope {
            session: session.clone(),
            reads: Arc::clone(reads),
            connectors: Arc::clone(connectors),
            jobs: hub.jobs(),
            entries: hub.catalog().entries.values().cloned().collect(),
            hub: hub.clone(),
        }
    }

    /// Checkpoints and savepoints of all jobs, oldest first.
    pub fn checkpoints(&self) -> Vec<Arc<Checkpoint>> {
        self.hub.checkpoints(None)
    }

    /// Events of all jobs, oldest first.
    pub fn events(&self) -> Vec<JobEvent> {
        self.hub.events(None)
    }

    /// All known agents.
    pub fn agents(&self) -> Vec<AgentInfo> {
        self.hub.agents()
    }

    /// The job called `name`.
    pub fn job(&self, name: &str) -> Option<&Arc<JobInfo>> {
        self.jobs.iter().find(|job| job.id.as_str() == name)
    }

    /// The source or sink called `name`.
    pub fn entry(&self, name: &str) -> Option<&Arc<CatalogEntry>> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Everything of schemas `public` and `weir`, by schema and name, then Postgres' own tables.
    pub fn relations(&self) -> Vec<Relation> {
        let mut all = Vec::new();
        for job in &self.jobs {
            if let Some(schema) = result_schema(job) {
                let columns = Arc::new(schema.to_arrow());
                all.push(Relation { schema: PUBLIC, name: job.id.to_string(), kind: RelationKind::Result, columns });
            }
        }
        for entry in &self.entries {
            let (kind, columns) = match &entry.object {
                CatalogObject::Source(source) => {
                    (RelationKind::Source, Arc::new(weir_planner::check::columns::schema_of_source(source).to_arrow()))
                }
                CatalogObject::Sink(_) => (RelationKind::Sink, Arc::new(arrow::datatypes::Schema::empty())),
            };
            all.push(Relation { schema: PUBLIC, name: entry.name.clone(), kind, columns });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        for table in system::TABLES {
            all.push(Relation { schema: WEIR, name: table.name.to_owned(), kind: RelationKind::System, columns: table.schema() });
        }
        all.extend(pg_catalog::relations());
        all
    }
}

/// Whether a sink is a job's result table.
fn of_result(options: &SinkOptions) -> bool {
    match options {
        SinkOptions::Result(_) => true,
        SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::File(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_) => false,
    }
}

/// Whether a job has a result table, be its columns known by now or not.
pub(crate) fn keeps_result(job: &JobInfo) -> bool {
    job.spec.sinks.iter().any(|sink| of_result(&sink.config))
}

/// Columns of a job's result table; `None` when the job writes into a sink, or waits for its columns.
pub(crate) fn result_schema(job: &JobInfo) -> Option<&Schema> {
    result_table(job).map(|(schema, _)| schema)
}

/// Columns of a job's result table, and those by which a later row replaces an earlier one.
pub(crate) fn result_table(job: &JobInfo) -> Option<(&Schema, &[String])> {
    job.plan.as_ref()?.result_table()
}

/// What a job that has no result table writes into, for messages.
pub(crate) fn sink_names(job: &JobInfo, entries: &[Arc<CatalogEntry>]) -> Vec<String> {
    let is_sink = |name: &&String| entries.iter().any(|entry| &entry.name == *name && matches!(entry.object, CatalogObject::Sink(_)));
    let named: Vec<String> = job.uses.iter().filter(is_sink).cloned().collect();
    if named.is_empty() { job.spec.sinks.iter().map(|sink| sink.operator_id.to_string()).collect() } else { named }
}

/// A stable number for a named thing, above those that Postgres gives to its own.
pub(crate) fn oid(schema: &str, name: &str) -> i64 {
    // FNV-1a: stable over restarts and versions; two names of one installation practically never meet.
    let hash = schema
        .bytes()
        .chain([0])
        .chain(name.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    16_384 + i64::try_from(hash % 2_000_000_000).unwrap_or(0)
}
