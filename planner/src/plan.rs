//! The JobPlan: chains, tasks, edges, key-group ranges and regions, with nothing left to decide.
//! Only `compile` makes one; kernel and agent read it.

pub mod partial;

use crate::connector::{DecodeColumn, Format, SinkOptions, SourceOptions};
use crate::expr::{Aggregate, AggregateFunction, Expr, Typed};
use crate::id::{ChainId, JobId, JobVersion, OperatorId, RegionId, TaskId};
use crate::schema::{Column, ColumnType, META_TIMESTAMP, Schema, error_rows, late_rows};
use crate::spec::{Batch, Buffer, Checkpoint, Delivery, Durability, ErrorPolicy, Horizon, LatePolicy, OnOverflow, Projection};
use crate::time::TimeUnit;
use crate::window::Windows;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// A whole job as it will run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    /// The job.
    pub job: JobId,
    /// The version that it was compiled from.
    pub version: JobVersion,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// State may be dealt to other tasks than those that wrote it (CKP-9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rescale: bool,
    /// Where cuts must be durable.
    pub horizon: Horizon,
    /// Pace of epochs.
    pub checkpoint: Checkpoint,
    /// Bytes in flight on the job's edges of one agent.
    pub inflight_bytes: u64,
    /// Limit on live state bytes of the job on one agent; over it the job fails.
    pub state_bytes_max: Option<u64>,
    /// Rows that the result table keeps at least.
    pub result_retention_rows: u64,
    /// Age after which result rows go.
    pub result_retention_ms: Option<u64>,
    /// In topological order; `ChainId` is the position.
    pub chains: Vec<Chain>,
    /// Between chains.
    pub edges: Vec<PlanEdge>,
    /// Connected components of the physical graph; `RegionId` is the position.
    pub regions: Vec<Region>,
}

/// Operators that run in one loop, head first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Position in the plan.
    pub id: ChainId,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Not empty.
    pub operators: Vec<PlanOperator>,
}

/// One operator with its output columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOperator {
    /// As in the spec.
    pub id: OperatorId,
    /// Columns of what it emits; of what it takes for a sink.
    pub output: Schema,
    /// What it does.
    pub work: Work,
}

/// What a planned operator does: the closed list that kernel and agent match without a wildcard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Reads a connector.
    Source(SourceWork),
    /// Filters, then projects.
    Map(MapWork),
    /// Windowed aggregate.
    Window(WindowWork),
    /// First stage of the window aggregate behind the next shuffle (PLAN-6, WIN-7). Its id is the
    /// window's with `-partial` after it, made unique; it has no state, and gives the rows of [`partial`].
    Partial(WindowWork),
    /// Aggregate over each batch.
    Batch(BatchWork),
    /// First rows of each window by an order.
    Top(TopWork),
    /// Holds rows back.
    Buffer(Buffer),
    /// Passes all inputs on.
    Union,
    /// Writes a connector.
    Sink(SinkWork),
}

/// A source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceWork {
    /// Connector options.
    pub options: SourceOptions,
    /// Format of the bytes; `None` when the connector gives rows.
    pub format: Option<Format>,
    /// Every declared column, in declared order.
    pub columns: Vec<DecodeColumn>,
    /// Names of the declared columns that the job uses, in declared order: what is decoded and
    /// emitted. Equals the operator's output columns.
    pub used: Vec<String>,
    /// Event time; `None` for processing time.
    pub time: Option<TimeWork>,
    /// Bad records.
    pub on_error: ErrorPolicy,
    /// Batching.
    pub batch: Batch,
    /// Every split ends by itself.
    pub bounded: bool,
    /// Its input log, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
}

/// Event time of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeWork {
    /// Name of the time column, one of `used`.
    pub column: String,
    /// Unit when the column is an integer.
    pub unit: TimeUnit,
    /// Out-of-orderness bound.
    pub bound_ms: i64,
    /// 0 = never idle.
    pub idle_timeout_ms: u64,
    /// `None`: no guard.
    pub max_future_ms: Option<u64>,
    /// Splits that are further ahead of the slowest active one are held (EV-9).
    #[serde(default)]
    pub alignment_ms: Option<u64>,
    /// After so long without a row the wall clock moves the watermark (EV-8).
    #[serde(default)]
    pub idle_advance_ms: Option<u64>,
    /// Judges rows of jobs without windows (EV-4).
    pub allowed_lateness_ms: i64,
    /// What becomes of late rows, and of rows without a time.
    #[serde(default)]
    pub late: LatePolicy,
}

/// A map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapWork {
    /// Boolean; only true passes.
    pub filter: Option<Expr>,
    /// `None`: all columns pass.
    pub project: Option<Vec<Projection>>,
    /// What becomes of a row whose expressions cannot be computed (KER-7): the policy of the
    /// sources upstream, the strictest of them.
    #[serde(default)]
    pub on_error: ErrorPolicy,
}

/// An aggregate over each batch. Output: keys, aggregates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchWork {
    /// Key columns of the input; may be empty.
    pub keys: Vec<String>,
    /// Output name and aggregate.
    pub aggregates: Vec<(String, Aggregate)>,
    /// Over the output columns.
    pub having: Option<Expr>,
    /// What becomes of a row whose arguments cannot be computed (KER-7), as of a map.
    #[serde(default)]
    pub on_error: ErrorPolicy,
}

/// A windowed aggregate. Output: keys, `window_start`, `window_end` (TIMESTAMP(3)), aggregates, and
/// [`UPDATE_COLUMN`] where it marks updates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowWork {
    /// How time is cut.
    pub windows: Windows,
    /// Time column that the windows follow, where it is not the rows' event time.
    #[serde(default)]
    pub time: Option<TimeColumn>,
    /// Key columns of the input; may be empty.
    pub keys: Vec<String>,
    /// Output name and aggregate.
    pub aggregates: Vec<(String, Aggregate)>,
    /// Over the output columns.
    pub having: Option<Expr>,
    /// Lateness of the sources upstream: the largest of them.
    pub allowed_lateness_ms: i64,
    /// Live (window, key) entries a task; 0 = no bound.
    pub keys_max: u64,
    /// What happens at the bound.
    pub on_overflow: OnOverflow,
    /// What becomes of late rows.
    #[serde(default)]
    pub late: LatePolicy,
    /// What becomes of a row whose arguments cannot be computed (KER-7), as of a map.
    #[serde(default)]
    pub on_error: ErrorPolicy,
    /// Second stage: all of its inputs are rows of [`partial`] in place of what `aggregates` name.
    #[serde(default)]
    pub partials: bool,
    /// How often an open window gives what it has so far (WIN-3); `None`: only when it is complete.
    #[serde(default)]
    pub early_ms: Option<u64>,
    /// Keys without rows in a window get a row for it when their last row is no older (C17).
    #[serde(default)]
    pub empty_within_ms: Option<u64>,
}

/// A time column that a window follows (EV-10). An integer is milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeColumn {
    /// By name, in the input.
    pub column: String,
    /// By how much rows may trail the input's watermark in it: the watermark is taken less this.
    pub trail_ms: i64,
}

/// The first rows of each window. Rows of one window have one event time, which is beside them.
/// Output: the input's columns, then the place where it is named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopWork {
    /// Key columns of the input; may be empty.
    pub keys: Vec<String>,
    /// Most significant first, NULLs placed; ties go by all columns.
    pub order_by: Vec<(String, SortOrder)>,
    /// Rows that pass, of each window and key.
    pub limit: u64,
    /// Column with the place of a row, BIGINT from 1.
    pub place: Option<String>,
}

/// How a column is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortOrder {
    /// Greatest first.
    pub descending: bool,
    /// NULL before all others.
    pub nulls_first: bool,
}

/// Name of the BOOLEAN column that windows have which may give a result more than once: false for
/// the first complete one, true for every other (WIN-4; the name is given from outside).
pub const UPDATE_COLUMN: &str = "__arkflow_window_update";

impl WindowWork {
    /// Whether results may come more than once, so that the output has [`UPDATE_COLUMN`] (WIN-4).
    pub fn marks_updates(&self) -> bool {
        self.early_ms.is_some() || self.late == LatePolicy::Update
    }

    /// The aggregates that the stages keep: those of the output and, where keys get rows for windows
    /// without any, the greatest time of a key's rows behind them.
    pub fn kept(&self) -> Vec<(String, Aggregate)> {
        let mut kept = self.aggregates.clone();
        if self.empty_within_ms.is_some() {
            let time = Typed { expr: Expr::Column(META_TIMESTAMP.to_owned()), ty: ColumnType::BigInt, nullable: false };
            let last = Aggregate {
                function: AggregateFunction::Max,
                arguments: vec![time],
                distinct: false,
                order_by: Vec::new(),
                filter: None,
                ty: ColumnType::BigInt,
                nullable: true,
            };
            kept.push((META_TIMESTAMP.to_owned(), last));
        }
        kept
    }
}

/// A sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkWork {
    /// Connector options.
    pub options: SinkOptions,
    /// Format of the bytes; `None` when the connector takes rows.
    pub format: Option<Format>,
    /// Promise.
    pub delivery: Delivery,
    /// Columns by which a later row replaces an earlier one (WIN-4); empty: rows are added.
    #[serde(default)]
    pub replaces_by: Vec<String>,
}

/// Batches go from every subtask of `from` to subtasks of `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanEdge {
    /// Producing chain; its last operator emits.
    pub from: ChainId,
    /// Consuming chain; its first operator takes.
    pub to: ChainId,
    /// How rows find their subtask.
    pub routing: Routing,
    /// Which rows of the producer.
    #[serde(default)]
    pub port: Port,
}

/// Which rows of a chain an edge carries. Marks go to every edge.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// What its last operator emits.
    #[default]
    Main,
    /// Records that this operator of the chain could not take, as [`crate::schema::error_rows`] (PLAN-5).
    Error(OperatorId),
    /// Rows that came too late for this operator of the chain, or without a time, as
    /// [`crate::schema::late_rows`] (PLAN-5).
    Late(OperatorId),
}

/// How rows find their subtask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Subtask i to subtask i.
    Forward,
    /// By key group of these columns of the producer's output.
    Partitioned(Vec<String>),
    /// Batch by batch in turn.
    RoundRobin,
    /// To every subtask.
    Broadcast,
    /// From one subtask, batch by batch strictly in turn, without putting batches together or
    /// apart: the consumers give exactly one batch, which may be empty, for each that they take.
    Deal,
    /// From the several subtasks that were dealt to, one batch of each in the same turn.
    Collect,
}

/// A connected component of the physical graph: the unit of alignment, decision and rollback (EPO-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Position in the plan.
    pub id: RegionId,
    /// Chain and subtask pairs, ascending.
    pub members: Vec<(ChainId, u32)>,
}

impl Work {
    /// Whether it judges which rows are late for windows (EV-4).
    pub fn judges(&self) -> bool {
        match self {
            Work::Window(_) | Work::Partial(_) => true,
            Work::Source(_) | Work::Map(_) | Work::Batch(_) | Work::Top(_) | Work::Buffer(_) | Work::Union | Work::Sink(_) => false,
        }
    }

    /// Whether cuts name its tasks. A first stage holds nothing and comes and goes with the plan, so
    /// that it appears in no artifact (PLAN-2).
    pub fn in_cuts(&self) -> bool {
        match self {
            Work::Partial(_) => false,
            Work::Source(_)
            | Work::Map(_)
            | Work::Window(_)
            | Work::Batch(_)
            | Work::Top(_)
            | Work::Buffer(_)
            | Work::Union
            | Work::Sink(_) => true,
        }
    }
}

impl JobPlan {
    /// Columns of the job's result table, and those of them by which a later row replaces an earlier
    /// one (none: rows are added); `None` where no sink writes it.
    pub fn result_table(&self) -> Option<(&Schema, &[String])> {
        let mut tables = self.operators().filter_map(|operator| match &operator.work {
            Work::Sink(sink) => match sink.options {
                SinkOptions::Result(_) => Some((&operator.output, sink.replaces_by.as_slice())),
                SinkOptions::Stdout(_) | SinkOptions::Drop(_) | SinkOptions::File(_) | SinkOptions::Kafka(_) | SinkOptions::Http(_) => None,
            },
            Work::Source(_) | Work::Map(_) | Work::Window(_) | Work::Partial(_) | Work::Batch(_) => None,
            Work::Top(_) | Work::Buffer(_) | Work::Union => None,
        });
        tables.next()
    }

    /// The chain called `id`.
    pub fn chain(&self, id: ChainId) -> &Chain {
        &self.chains[id.get() as usize]
    }

    /// Every operator, in plan order: chains in order, operators head first.
    pub fn operators(&self) -> impl Iterator<Item = &PlanOperator> {
        self.chains.iter().flat_map(|chain| &chain.operators)
    }

    /// The sources among them.
    pub fn sources(&self) -> impl Iterator<Item = (&OperatorId, &SourceWork)> {
        self.operators().filter_map(|operator| match &operator.work {
            Work::Source(source) => Some((&operator.id, source)),
            Work::Map(_) | Work::Window(_) | Work::Partial(_) | Work::Batch(_) => None,
            Work::Top(_) | Work::Buffer(_) | Work::Union | Work::Sink(_) => None,
        })
    }

    /// Every task, in plan order: chains in order, operators head first, subtasks ascending.
    pub fn tasks(&self) -> Vec<TaskId> {
        let of_chain = |chain: &Chain| {
            let one = |operator: &PlanOperator| {
                let id = operator.id.clone();
                (0..chain.parallelism).map(move |subtask| TaskId { operator: id.clone(), subtask }).collect::<Vec<_>>()
            };
            chain.operators.iter().flat_map(one).collect::<Vec<_>>()
        };
        self.chains.iter().flat_map(of_chain).collect()
    }

    /// The tasks that cuts name, in the same order.
    pub fn tasks_in_cuts(&self) -> Vec<TaskId> {
        let stages: BTreeSet<&OperatorId> = self.operators().filter(|o| !o.work.in_cuts()).map(|o| &o.id).collect();
        self.tasks().into_iter().filter(|task| !stages.contains(&task.operator)).collect()
    }

    /// Columns that the first operator of a chain takes: those that its edges carry, each of which may
    /// be NULL where it may be in any of them. Where windows judge a source's rows, its rows without a
    /// time come in the columns of theirs, not in its own.
    pub fn input(&self, chain: ChainId) -> Schema {
        let timeless = |edge: &&PlanEdge| match &edge.port {
            Port::Late(id) => self.chain(edge.from).operators.iter().any(|o| o.id == *id && matches!(o.work, Work::Source(_))),
            Port::Main | Port::Error(_) => false,
        };
        let (last, first): (Vec<&PlanEdge>, Vec<&PlanEdge>) = self.edges.iter().filter(|edge| edge.to == chain).partition(timeless);
        let mut carried = first.into_iter().chain(last).map(|edge| self.carried(edge));
        let mut input = carried.next().unwrap_or_default();
        let same = |a: &Column, b: &Column| a.name == b.name && a.ty == b.ty;
        for other in carried.filter(|other| other.0.len() == input.0.len()).collect::<Vec<_>>() {
            if input.0.iter().zip(&other.0).all(|(mine, theirs)| same(mine, theirs)) {
                input.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.nullable |= theirs.nullable);
            }
        }
        input
    }

    /// Columns of the rows that an edge carries, as its producer has them.
    fn carried(&self, edge: &PlanEdge) -> Schema {
        let operators = &self.chain(edge.from).operators;
        match &edge.port {
            Port::Main => operators.last().map(|operator| operator.output.clone()).unwrap_or_default(),
            Port::Error(_) => error_rows(),
            Port::Late(id) => {
                let at = operators.iter().position(|operator| operator.id == *id).unwrap_or(0);
                match (at, operators.get(at).map(|operator| &operator.work)) {
                    (0, Some(Work::Source(_))) => late_rows(&operators[0].output),
                    (0, _) => late_rows(&self.input(edge.from)),
                    (after, _) => late_rows(&operators[after - 1].output),
                }
            }
        }
    }

    /// Subtask pairs (producer, consumer) that an edge connects, ascending.
    pub fn pairs(&self, edge: &PlanEdge) -> Vec<(u32, u32)> {
        let (from, to) = (self.chain(edge.from).parallelism, self.chain(edge.to).parallelism);
        match edge.routing {
            Routing::Forward => (0..from).map(|i| (i, i)).collect(),
            Routing::Partitioned(_) | Routing::RoundRobin | Routing::Broadcast | Routing::Deal | Routing::Collect => {
                (0..from).flat_map(|i| (0..to).map(move |j| (i, j))).collect()
            }
        }
    }
}

/// Key groups that subtask `subtask` of `parallelism` owns (PLAN-3), end exclusive.
pub fn key_group_range(max_parallelism: u32, parallelism: u32, subtask: u32) -> Range<u32> {
    let bound = |i: u32| (u64::from(i) * u64::from(max_parallelism) / u64::from(parallelism)) as u32;
    bound(subtask)..bound(subtask + 1)
}

/// The subtask that owns a key group: the inverse of [`key_group_range`].
pub fn key_group_owner(max_parallelism: u32, parallelism: u32, key_group: u32) -> u32 {
    let guess = (u64::from(key_group) * u64::from(parallelism) / u64::from(max_parallelism)) as u32;
    (guess..parallelism).find(|&i| key_group_range(max_parallelism, parallelism, i).contains(&key_group)).unwrap_or(guess)
}
