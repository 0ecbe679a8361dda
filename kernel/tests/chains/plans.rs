//! Plans for tests, written out by hand.

use weir_planner::connector::{Memory, Nothing, SinkOptions, SourceOptions};
use weir_planner::expr::{Aggregate, AggregateFunction, BinaryOp, Expr, Literal, Typed};
use weir_planner::id::{ChainId, JobId, JobVersion, OperatorId, RegionId};
use weir_planner::plan::partial::{partial_id, partial_rows};
use weir_planner::plan::{
    Chain, JobPlan, MapWork, PlanEdge, PlanOperator, Port, Region, Routing, SinkWork, SourceWork, TimeWork, WindowWork, Work,
};
use weir_planner::schema::{Column, ColumnType, Schema};
use weir_planner::spec::{Batch, Checkpoint, Delivery, ErrorPolicy, Horizon, LatePolicy, OnOverflow, Projection};
use weir_planner::time::TimeUnit;
use weir_planner::window::{Aligned, Windows};

pub fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

pub fn column(name: &str, ty: ColumnType) -> Column {
    Column { name: name.to_owned(), ty, nullable: true }
}

/// `k, t, v`, all BIGINT.
pub fn input() -> Schema {
    Schema(vec![column("k", ColumnType::BigInt), column("t", ColumnType::BigInt), column("v", ColumnType::BigInt)])
}

/// What a test varies.
#[derive(Clone, Debug)]
pub struct Shape {
    pub sources: u32,
    pub windows: u32,
    pub size_ms: i64,
    pub offset_ms: i64,
    pub bound_ms: i64,
    pub lateness_ms: i64,
    pub idle_timeout_ms: u64,
    pub max_future_ms: Option<u64>,
    pub alignment_ms: Option<u64>,
    pub idle_advance_ms: Option<u64>,
    pub bounded: bool,
    pub keys_max: u64,
    pub on_overflow: OnOverflow,
    pub state_bytes_max: Option<u64>,
    pub inflight_bytes: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            sources: 1,
            windows: 1,
            size_ms: 1_000,
            offset_ms: 0,
            bound_ms: 0,
            lateness_ms: 0,
            idle_timeout_ms: 0,
            max_future_ms: None,
            alignment_ms: None,
            idle_advance_ms: None,
            bounded: true,
            keys_max: 0,
            on_overflow: OnOverflow::Evict,
            state_bytes_max: None,
            inflight_bytes: 64 << 20,
        }
    }
}

pub fn source(name: &str, shape: &Shape) -> PlanOperator {
    let time = TimeWork {
        column: "t".to_owned(),
        unit: TimeUnit::Millisecond,
        bound_ms: shape.bound_ms,
        idle_timeout_ms: shape.idle_timeout_ms,
        max_future_ms: shape.max_future_ms,
        alignment_ms: shape.alignment_ms,
        idle_advance_ms: shape.idle_advance_ms,
        allowed_lateness_ms: shape.lateness_ms,
        late: LatePolicy::Drop,
    };
    let work = SourceWork {
        options: SourceOptions::Memory(Memory::default()),
        format: None,
        columns: Vec::new(),
        used: input().0.iter().map(|c| c.name.clone()).collect(),
        time: Some(time),
        on_error: ErrorPolicy::Fail,
        batch: Batch::default(),
        bounded: shape.bounded,
        durability: None,
    };
    PlanOperator { id: id(name), output: input(), work: Work::Source(work) }
}

pub fn sink(input: &Schema) -> PlanOperator {
    sink_named("out", input)
}

pub fn sink_named(name: &str, input: &Schema) -> PlanOperator {
    let work =
        SinkWork { options: SinkOptions::Drop(Nothing::default()), format: None, delivery: Delivery::default(), replaces_by: Vec::new() };
    PlanOperator { id: id(name), output: input.clone(), work: Work::Sink(work) }
}

/// A side edge.
pub fn aside(from: u32, to: u32, routing: Routing, port: Port) -> PlanEdge {
    PlanEdge { from: ChainId::new(from), to: ChainId::new(to), routing, port }
}

pub fn number(n: i64) -> Expr {
    Expr::Literal(Literal::BigInt(n))
}

pub fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Binary { op, left: Box::new(left), right: Box::new(right) }
}

pub fn col(name: &str) -> Expr {
    Expr::Column(name.to_owned())
}

/// A map of `k, t, v` to `k, t, v` and, if there is one, a further BIGINT column `q`.
pub fn map(name: &str, filter: Option<Expr>, q: Option<Expr>, on_error: ErrorPolicy) -> PlanOperator {
    let big = ColumnType::BigInt;
    let typed = |name: &str, expr| Projection { name: name.to_owned(), value: Typed { expr, ty: big, nullable: true } };
    let mut output = input();
    let project = q.map(|q| {
        output.0.push(column("q", big));
        vec![typed("k", col("k")), typed("t", col("t")), typed("v", col("v")), typed("q", q)]
    });
    PlanOperator { id: id(name), output, work: Work::Map(MapWork { filter, project, on_error }) }
}

pub fn aggregate(function: AggregateFunction, argument: Option<(&str, ColumnType)>, ty: ColumnType) -> Aggregate {
    let arguments = argument.map(|(name, ty)| Typed { expr: Expr::Column(name.to_owned()), ty, nullable: true }).into_iter().collect();
    Aggregate { function, arguments, distinct: false, order_by: Vec::new(), filter: None, ty, nullable: true }
}

pub fn window(shape: &Shape) -> PlanOperator {
    let big = ColumnType::BigInt;
    let aggregates = vec![
        ("n".to_owned(), aggregate(AggregateFunction::Count, None, big)),
        ("nv".to_owned(), aggregate(AggregateFunction::Count, Some(("v", big)), big)),
        ("s".to_owned(), aggregate(AggregateFunction::Sum, Some(("v", big)), big)),
        ("lo".to_owned(), aggregate(AggregateFunction::Min, Some(("v", big)), big)),
        ("hi".to_owned(), aggregate(AggregateFunction::Max, Some(("v", big)), big)),
    ];
    let stamp = ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false };
    let mut output = vec![column("k", big), column("window_start", stamp), column("window_end", stamp)];
    output.extend(aggregates.iter().map(|(name, aggregate)| column(name, aggregate.ty)));
    let work = WindowWork {
        windows: Windows::Aligned(Aligned::Tumbling { size_ms: shape.size_ms, offset_ms: shape.offset_ms }),
        time: None,
        keys: vec!["k".to_owned()],
        aggregates,
        having: None,
        allowed_lateness_ms: shape.lateness_ms,
        keys_max: shape.keys_max,
        on_overflow: shape.on_overflow,
        late: LatePolicy::Drop,
        on_error: ErrorPolicy::Fail,
        partials: false,
        early_ms: None,
        empty_within_ms: None,
    };
    PlanOperator { id: id("win"), output: Schema(output), work: Work::Window(work) }
}

pub fn plan(chains: Vec<(u32, Vec<PlanOperator>)>, edges: Vec<(u32, u32, Routing)>, shape: &Shape) -> JobPlan {
    let chain =
        |(i, (parallelism, operators)): (usize, (u32, Vec<PlanOperator>))| Chain { id: ChainId::new(i as u32), parallelism, operators };
    let chains: Vec<Chain> = chains.into_iter().enumerate().map(chain).collect();
    let members = chains.iter().flat_map(|c| (0..c.parallelism).map(|i| (c.id, i))).collect();
    let edge = |(from, to, routing)| PlanEdge { from: ChainId::new(from), to: ChainId::new(to), routing, port: Port::Main };
    JobPlan {
        job: JobId::new("j").unwrap(),
        version: JobVersion::new(1),
        max_parallelism: 128,
        rescale: false,
        horizon: Horizon::Local,
        checkpoint: Checkpoint::default(),
        inflight_bytes: shape.inflight_bytes,
        state_bytes_max: shape.state_bytes_max,
        result_retention_rows: 0,
        result_retention_ms: None,
        regions: vec![Region { id: RegionId::new(0), members }],
        chains,
        edges: edges.into_iter().map(edge).collect(),
    }
}

/// Source, window by `k`, sink: two chains with a shuffle between.
pub fn windowed(shape: &Shape) -> JobPlan {
    let window = window(shape);
    let out = sink(&window.output);
    let chains = vec![(shape.sources, vec![source("in", shape)]), (shape.windows, vec![window, out])];
    plan(chains, vec![(0, 1, Routing::Partitioned(vec!["k".to_owned()]))], shape)
}

/// The same plan with a first stage before the shuffle into its window.
pub fn two_stages(mut plan: JobPlan) -> JobPlan {
    let holds = |chain: &Chain| chain.operators.iter().any(|operator| matches!(operator.work, Work::Window(_)));
    let consumer = plan.chains.iter().position(holds).unwrap();
    let edge = plan.edges.iter().find(|edge| edge.to == ChainId::new(consumer as u32)).unwrap();
    let producer = edge.from.get() as usize;
    let Work::Window(work) = &mut plan.chains[consumer].operators[0].work else { panic!("the window is not the head") };
    let first = work.clone();
    work.partials = true;
    let input = plan.chains[producer].operators.last().unwrap().output.clone();
    let output = partial_rows(&first, &input).unwrap();
    let partial = PlanOperator { id: partial_id(&id("win")).unwrap(), output, work: Work::Partial(first) };
    plan.chains[producer].operators.push(partial);
    plan
}
