//! The closed list of what a statement can be, with the places of the parts that errors name.

use sqlparser::ast;
use std::time::Duration;
use weir_hub::hub::{StartFrom, WaitFor};
use weir_planner::id::CheckpointId;
use weir_planner::manifest::CheckpointKind;
use weir_planner::schema::ColumnType;

/// A name, folded as Postgres folds, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Folded unless it was quoted.
    pub text: String,
    /// Character offset from 1.
    pub position: usize,
}

/// What a statement asks for.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    CreateSource(Box<CreateSource>),
    CreateSink(CreateSink),
    CreateJob(Box<CreateJob>),
    /// `EXPLAIN CREATE JOB …`.
    Explain {
        format: ExplainFormat,
        job: Box<CreateJob>,
    },
    AlterJob {
        job: Named,
        change: JobChange,
    },
    Drop {
        kind: ObjectKind,
        name: Named,
        if_exists: bool,
        cascade: bool,
    },
    Show(Show),
    Describe(Named),
    Wait {
        job: Named,
        until: WaitFor,
        timeout: Duration,
    },
    /// `CHECKPOINT JOB j`, `SAVEPOINT JOB j`.
    Checkpoint {
        job: Named,
        kind: CheckpointKind,
        timeout: Duration,
    },
    /// `DROP SAVEPOINT 7`.
    DropSavepoint {
        id: CheckpointId,
        position: usize,
    },
    /// Plain Postgres: SELECT, SET, BEGIN, …
    Postgres(Box<ast::Statement>),
}

/// `CREATE SOURCE`.
#[derive(Clone, Debug)]
pub(crate) struct CreateSource {
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub name: Named,
    pub columns: Vec<ColumnDef>,
    pub watermark: Option<WatermarkDef>,
    pub options: Vec<WithOption>,
    /// `AS VALUES` rows; every cell with its place.
    pub values: Option<Vec<Vec<(ast::Expr, usize)>>>,
    /// The statement's own text.
    pub sql: String,
}

/// A declared column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnDef {
    pub name: Named,
    pub ty: ColumnType,
    pub not_null: bool,
}

/// `WATERMARK FOR c AS c [- INTERVAL '…']`.
#[derive(Clone, Debug)]
pub(crate) struct WatermarkDef {
    pub column: Named,
    pub bound_ms: i64,
}

/// One `key = value` of a WITH list; the value is text whatever its token was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WithOption {
    pub key: String,
    pub value: String,
    pub key_position: usize,
    pub value_position: usize,
}

/// `CREATE SINK`.
#[derive(Clone, Debug)]
pub(crate) struct CreateSink {
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub name: Named,
    pub options: Vec<WithOption>,
    pub sql: String,
}

/// `CREATE JOB`.
#[derive(Clone, Debug)]
pub(crate) struct CreateJob {
    pub if_not_exists: bool,
    pub name: Named,
    pub into: Option<Named>,
    pub options: Vec<WithOption>,
    pub query: Box<ast::Query>,
    /// Where the query begins: what errors without a better place point at.
    pub query_position: usize,
    pub sql: String,
}

/// `EXPLAIN (FORMAT …)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExplainFormat {
    Text,
    Json,
    Dot,
    Yaml,
}

/// `ALTER JOB j …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobChange {
    Start(StartFrom),
    Stop { savepoint: bool },
    Restart,
}

/// Kinds of named things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Job,
    Source,
    Sink,
}

impl ObjectKind {
    /// Lower case, for messages and the hub.
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::Job => "job",
            ObjectKind::Source => "source",
            ObjectKind::Sink => "sink",
        }
    }
}

/// `SHOW …`.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    Jobs,
    Sources,
    Sinks,
    Agents,
    Connectors,
    Create { kind: ObjectKind, name: Named },
    JobSpec(Named),
    Checkpoints { job: Named, savepoints: bool },
}
