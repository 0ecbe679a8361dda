//! Whole plans of small jobs, and properties of all plans.

use super::compile;
use crate::check::tests::{bound, changed, sample};
use crate::error::Faults;
use crate::id::{ChainId, OperatorId};
use crate::plan::partial::{Obstacle, obstacle};
use crate::plan::{JobPlan, Port, Routing, Work, key_group_owner, key_group_range};
use crate::schema::Schema;
use crate::spec::{ErrorPolicy, Horizon, JobSpec, LatePolicy};
use crate::time::TimeUnit;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn plan(json: Value) -> JobPlan {
    compile(&bound(json), Horizon::Local).unwrap()
}

/// Chains as `operator+operator xP`, edges as `from>to routing`.
fn shape(plan: &JobPlan) -> (Vec<String>, Vec<String>) {
    let chain = |chain: &crate::plan::Chain| {
        let names: Vec<&str> = chain.operators.iter().map(|operator| operator.id.as_str()).collect();
        format!("{} x{}", names.join("+"), chain.parallelism)
    };
    let edge = |edge: &crate::plan::PlanEdge| {
        let routing = match &edge.routing {
            Routing::Forward => "forward".to_owned(),
            Routing::Partitioned(keys) => format!("by {}", keys.join(",")),
            Routing::RoundRobin => "round-robin".to_owned(),
            Routing::Broadcast => "broadcast".to_owned(),
            Routing::Deal => "deal".to_owned(),
            Routing::Collect => "collect".to_owned(),
        };
        let port = match &edge.port {
            Port::Main => String::new(),
            Port::Error(id) => format!(" errors of {id}"),
            Port::Late(id) => format!(" late rows of {id}"),
        };
        format!("{}>{} {routing}{port}", edge.from, edge.to)
    };
    (plan.chains.iter().map(chain).collect(), plan.edges.iter().map(edge).collect())
}

#[track_caller]
fn lays_out(changes: &[(&str, Value)], chains: &[&str], edges: &[&str]) {
    let (found_chains, found_edges) = shape(&plan(changed(changes)));
    assert_eq!(found_chains, chains);
    assert_eq!(found_edges, edges);
}

/// PLAN-2, JOB-5: source and map fuse, the keyed window is partitioned whatever the flag says,
/// and an operator with two consumers ends its chain.
#[test]
fn chains_break_at_keys_and_forks() {
    lays_out(&[], &["bids+slim+count-partial x2", "count x2", "out x2", "topic x2"], &["0>1 by bidder", "1>2 forward", "1>3 forward"]);
}

/// One task on both sides of a keyed edge leaves nothing to shuffle, so the job is fused to its fork.
#[test]
fn one_task_fuses_over_keys() {
    let changes = [("/parallelism", json!(1))];
    lays_out(&changes, &["bids+slim+count x1", "out x1", "topic x1"], &["0>1 forward", "0>2 forward"]);
}

#[test]
fn different_parallelism_goes_round_robin() {
    let changes = [("/operators/4/parallelism", json!(3))];
    lays_out(
        &changes,
        &["bids+slim+count-partial x2", "count x2", "out x2", "topic x3"],
        &["0>1 by bidder", "1>2 forward", "1>3 round-robin"],
    );
}

#[test]
fn broadcast_goes_to_every_subtask() {
    let changes = [("/edges/3/broadcast", json!(true))];
    lays_out(
        &changes,
        &["bids+slim+count-partial x2", "count x2", "out x2", "topic x2"],
        &["0>1 by bidder", "1>2 forward", "1>3 broadcast"],
    );
}

/// JOB-5: `partitioned` into a receiver without a key goes by the nearest key upstream, under the
/// name that it has there, or else round-robin.
#[test]
fn partitioned_without_a_key_of_its_own() {
    let changes = [("/edges/3/partitioned", json!(true)), ("/edges/0/partitioned", json!(true))];
    let edges = ["0>1 round-robin", "1>2 by bidder", "2>3 forward", "2>4 by bidder"];
    lays_out(&changes, &["bids x2", "slim+count-partial x2", "count x2", "out x2", "topic x2"], &edges);
    let named = |project: Value| {
        [
            ("/operators/-", json!({"id": "name", "kind": "map", "config": {"project": project}})),
            ("/edges/3", json!({"id": "e4", "from": "count", "to": "name"})),
            ("/edges/-", json!({"id": "e5", "from": "name", "to": "topic", "partitioned": true})),
            ("/sinks/1/config/key", json!([])),
        ]
    };
    let chains = ["bids+slim+count-partial x2", "count x2", "out x2", "name x2", "topic x2"];
    let renamed = ["0>1 by bidder", "1>2 forward", "1>3 forward", "3>4 by who"];
    lays_out(&named(json!(["bidder as who", "total"])), &chains, &renamed);
    let lost = ["0>1 by bidder", "1>2 forward", "1>3 forward", "3>4 round-robin"];
    lays_out(&named(json!(["total"])), &chains, &lost);
}

/// A window without keys is one group, so one task.
#[test]
fn a_window_without_keys_is_one_task() {
    let changes = [("/operators/2/config/keys", json!([])), ("/sinks/1/config/key", json!([]))];
    let edges = ["0>1 round-robin", "1>2 round-robin", "1>3 round-robin"];
    lays_out(&changes, &["bids+slim x2", "count x1", "out x2", "topic x2"], &edges);
}

/// What a source decodes: the columns in use, in declared order, always with the time column.
#[test]
fn sources_keep_only_used_columns() {
    let plan = plan(sample());
    let Work::Source(source) = &plan.chains[0].operators[0].work else { panic!("no source") };
    assert_eq!(source.used, ["bidder", "price", "date_time"]);
    assert_eq!(source.columns.len(), 5);
    let names: Vec<&str> = plan.chains[0].operators[0].output.0.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["bidder", "price", "date_time"]);
    assert!(!plan.chains[0].operators[0].output.0[0].nullable);
    let time = source.time.as_ref().unwrap();
    assert_eq!(
        (time.column.as_str(), time.unit, time.bound_ms, time.max_future_ms),
        ("date_time", TimeUnit::Millisecond, 4000, Some(86_400_000))
    );
}

/// A filter's columns are used too; a map without projection passes what it gets.
#[test]
fn a_filter_uses_its_columns() {
    let changes = [("/operators/1/config", json!({"filter": "auction"}))];
    let plan = plan(changed(&changes));
    let Work::Source(source) = &plan.chains[0].operators[0].work else { panic!("no source") };
    assert_eq!(source.used, ["auction", "bidder", "price", "date_time"]);
}

/// A job that uses no column still has rows to count.
#[test]
fn rows_never_lose_their_length() {
    let changes = [
        ("/operators/2", json!({"id": "count", "kind": "map", "config": {"project": ["bidder"]}})),
        ("/operators/1/config", json!({})),
        ("/sources/0/time", json!({})),
    ];
    let mut spec = bound(changed(&changes));
    if let crate::spec::OperatorKind::Map(map) = &mut spec.operators[2].kind {
        let one = crate::expr::Expr::Literal(crate::expr::Literal::BigInt(1));
        map.project[0].bound.as_mut().unwrap().value.expr = one;
    }
    let plan = compile(&spec, Horizon::Local).unwrap();
    let Work::Source(source) = &plan.chains[0].operators[0].work else { panic!("no source") };
    assert_eq!(source.used, ["auction"]);
    assert_eq!(source.time, None);
}

/// Where inputs meet, columns stay as declared, so that they stay equal.
#[test]
fn inputs_that_meet_keep_their_columns() {
    let second = sample()["sources"][0].as_object().map(|source| {
        let mut source = source.clone();
        source.insert("operator_id".to_owned(), json!("more"));
        source["time"]["allowed_lateness_ms"] = json!(7_000);
        Value::Object(source)
    });
    let changes = [
        ("/operators/-", json!({"id": "more", "kind": "source"})),
        ("/operators/1", json!({"id": "slim", "kind": "union"})),
        ("/edges/-", json!({"id": "e5", "from": "more", "to": "slim"})),
        ("/sources/-", second.unwrap()),
    ];
    let plan = plan(changed(&changes));
    let (chains, edges) = shape(&plan);
    assert_eq!(chains, ["bids x2", "more x2", "slim+count-partial x2", "count x2", "out x2", "topic x2"]);
    assert_eq!(edges, ["0>2 forward", "1>2 forward", "2>3 by bidder", "3>4 forward", "3>5 forward"]);
    assert_eq!(plan.chains[0].operators[0].output.0.len(), 5);
    let Work::Window(window) = &plan.chains[3].operators[0].work else { panic!("no window") };
    assert_eq!(window.allowed_lateness_ms, 7_000, "the largest lateness upstream");
}

/// Output of a window: keys, bounds, aggregates.
#[test]
fn a_window_gives_keys_bounds_and_aggregates() {
    let plan = plan(sample());
    let columns: Vec<String> = plan.chains[1].operators[0].output.0.iter().map(|c| format!("{} {} {}", c.name, c.ty, c.nullable)).collect();
    assert_eq!(columns, ["bidder BIGINT true", "window_start TIMESTAMP(3) false", "window_end TIMESTAMP(3) false", "total BIGINT true"]);
}

fn sink(id: &str) -> [(&'static str, Value); 2] {
    [
        ("/operators/-", json!({"id": id, "kind": "sink"})),
        ("/sinks/-", json!({"operator_id": id, "output_type": "drop", "config": {"type": "drop"}})),
    ]
}

/// PLAN-5: side edges start at the chain that holds who emits, end at the head of a chain, go forward
/// between equal numbers of subtasks and round-robin otherwise, and break no chain that they leave.
#[test]
fn side_edges_are_part_of_the_plan() {
    let mut changes = vec![
        ("/sources/0/on_error", json!({"policy": "route", "to": "bad"})),
        ("/sources/0/time/late_event_policy", json!("route")),
        ("/sources/0/time/late_event_route", json!("late")),
    ];
    changes.extend(sink("bad").into_iter().chain(sink("late")));
    changes.push(("/operators/6/parallelism", json!(3)));
    let chains = ["bids+slim x2", "count x2", "out x2", "topic x2", "bad x2", "late x3"];
    let edges = [
        "0>1 by bidder",
        "0>4 forward errors of bids",
        "0>4 forward errors of slim",
        "0>5 round-robin late rows of bids",
        "1>2 forward",
        "1>3 forward",
        "1>5 round-robin late rows of count",
    ];
    lays_out(&changes, &chains, &edges);
    let plan = plan(changed(&changes));
    let source = &plan.chains[0].operators[0];
    assert_eq!(source.output.0.len(), 5, "a source with a late route keeps every column");
    let Work::Source(work) = &source.work else { panic!("no source") };
    assert_eq!((work.on_error, work.time.as_ref().unwrap().late), (ErrorPolicy::Route, LatePolicy::Route));
    let Work::Map(map) = &plan.chains[0].operators[1].work else { panic!("no map") };
    assert_eq!(map.on_error, ErrorPolicy::Route);
    let Work::Window(window) = &plan.chains[1].operators[0].work else { panic!("no window") };
    assert_eq!((window.late, window.partials), (LatePolicy::Route, false));
    let names = |schema: &Schema| schema.0.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plan.chains[4].operators[0].output), ["raw", "reason", "source", "partition", "position", "at"]);
    assert_eq!(names(&plan.chains[5].operators[0].output), ["bidder", "price", "__reason", "__late_by_ms"]);
    assert_eq!(names(&plan.input(ChainId::new(5))), ["bidder", "price", "__reason", "__late_by_ms"]);
    assert_eq!(plan.regions.len(), 1, "marks of one epoch reach side targets too");
}

/// PLAN-5: without windows the source judges, and its late rows have its own columns.
#[test]
fn a_source_judges_where_no_window_does() {
    let mut changes = vec![
        ("/sources/0/time/late_event_policy", json!("route")),
        ("/sources/0/time/late_event_route", json!("late")),
        ("/operators/2", json!({"id": "count", "kind": "map"})),
    ];
    changes.extend(sink("late"));
    let plan = plan(changed(&changes));
    assert_eq!(shape(&plan).1, ["0>1 forward", "0>2 forward", "0>3 forward late rows of bids"]);
    assert_eq!(plan.input(ChainId::new(3)).0.len(), 7);
}

/// PLAN-6: the first stage is the last operator of the producing chain, under a name of its own, and
/// gives keys, window, state and count; cuts do not name it (PLAN-2).
#[test]
fn a_shuffled_aggregate_gets_a_first_stage() {
    let changes =
        [("/operators/1/id", json!("count-partial")), ("/edges/0/to", json!("count-partial")), ("/edges/1/from", json!("count-partial"))];
    let plan = plan(changed(&changes));
    assert_eq!(shape(&plan).0[0], "bids+count-partial+count-partial2 x2");
    let stage = &plan.chains[0].operators[2];
    let columns: Vec<String> = stage.output.0.iter().map(|c| format!("{} {}", c.name, c.ty)).collect();
    assert_eq!(
        columns,
        [
            "bidder BIGINT", "__pane_start BIGINT", "__pane_from BIGINT", "__a0_sum BIGINT", "__a0_carry BIGINT", "__a0_seen BOOLEAN",
            "__rows BIGINT"
        ]
    );
    let (Work::Partial(first), Work::Window(second)) = (&stage.work, &plan.chains[1].operators[0].work) else { panic!("no stages") };
    assert!(second.partials && !first.partials);
    assert_eq!(first.aggregates, second.aggregates);
    assert_eq!(plan.tasks().len(), 12);
    assert_eq!(plan.tasks_in_cuts().len(), 10);
    assert!(plan.tasks_in_cuts().iter().all(|task| task.operator.as_str() != "count-partial2"));
}

/// PLAN-6: each producer gets a stage, or none does; one that feeds others cannot have one, and one
/// task on both sides shuffles nothing.
#[test]
fn what_stands_against_a_first_stage() {
    let stages = |changes: &[(&str, Value)]| {
        let plan = plan(changed(changes));
        let of = |chain: &crate::plan::Chain| {
            chain.operators.iter().filter(|o| matches!(o.work, Work::Partial(_))).map(|o| o.id.as_str().to_owned()).collect::<Vec<_>>()
        };
        let window = plan.chains.iter().find(|chain| chain.operators[0].id.as_str() == "count").map(|chain| chain.id);
        (plan.chains.iter().flat_map(of).collect::<Vec<_>>(), window.and_then(|window| obstacle(&plan, window)))
    };
    let second = vec![
        ("/operators/-", json!({"id": "thin", "kind": "map", "config": {"project": ["bidder", "price"]}})),
        ("/edges/-", json!({"id": "e5", "from": "thin", "to": "count"})),
        ("/edges/-", json!({"id": "e6", "from": "bids", "to": "thin"})),
    ];
    assert_eq!(stages(&second).0, ["count-partial", "count-partial2"]);
    let mut forked = second.clone();
    forked.extend(sink("raw"));
    forked.push(("/edges/-", json!({"id": "e7", "from": "thin", "to": "raw"})));
    let shared = |id: &str| Some(Obstacle::SharedProducer(OperatorId::new(id).unwrap()));
    assert_eq!(stages(&forked), (vec![], shared("thin")));
    assert_eq!(stages(&[("/operators/1/parallelism", json!(1)), ("/operators/2/parallelism", json!(1))]), (vec![], None));
    assert_eq!(stages(&[("/parallelism", json!(1))]).0, [""; 0]);
    assert_eq!(
        stages(&[("/operators/2/config/keys", json!([])), ("/sinks/1/config/key", json!([]))]),
        (vec![], Some(Obstacle::NotShuffled))
    );
    let mut late = vec![("/sources/0/time/late_event_policy", json!("route")), ("/sources/0/time/late_event_route", json!("late"))];
    late.extend(sink("late"));
    assert_eq!(stages(&late), (vec![], Some(Obstacle::LateRouted)));
}

/// PLAN-4: whichever task of whichever source an equal key comes from, it is hashed by the same columns
/// and every task can reach every owner, so that it meets the others in the one that owns its key group.
#[test]
fn equal_keys_meet_in_one_owner() {
    let mut second = sample()["sources"][0].clone();
    second["operator_id"] = json!("more");
    let changes = [
        ("/operators/-", json!({"id": "more", "kind": "source", "parallelism": 3})),
        ("/sources/-", second),
        ("/operators/-", json!({"id": "thin", "kind": "map", "parallelism": 3, "config": {"project": ["bidder", "price"]}})),
        ("/edges/-", json!({"id": "e5", "from": "more", "to": "thin"})),
        ("/edges/-", json!({"id": "e6", "from": "thin", "to": "count"})),
    ];
    let plan = plan(changed(&changes));
    let window = plan.chains.iter().find(|chain| chain.operators[0].id.as_str() == "count").unwrap();
    let inbound: Vec<_> = plan.edges.iter().filter(|edge| edge.to == window.id).collect();
    assert_eq!(inbound.len(), 2);
    for edge in inbound {
        assert_eq!(edge.routing, Routing::Partitioned(vec!["bidder".to_owned()]));
        let from = plan.chain(edge.from).parallelism;
        assert_eq!(plan.pairs(edge), (0..from).flat_map(|i| (0..window.parallelism).map(move |j| (i, j))).collect::<Vec<_>>());
    }
    for group in 0..plan.max_parallelism {
        let owners =
            (0..window.parallelism).filter(|&task| key_group_range(plan.max_parallelism, window.parallelism, task).contains(&group));
        assert_eq!(owners.count(), 1, "key group {group}");
    }
}

/// JOB-5, STR-5: what is dealt out is collected; the lanes are one chain.
#[test]
fn ordered_edges_deal_and_collect() {
    let json = json!({
        "id": "pool",
        "operators": [
            {"id": "in", "kind": "source"}, {"id": "one", "kind": "map", "parallelism": 4}, {"id": "two", "kind": "map", "parallelism": 4},
            {"id": "then", "kind": "map"}, {"id": "out", "kind": "sink"}],
        "edges": [
            {"id": "a", "from": "in", "to": "one", "ordered": true}, {"id": "b", "from": "one", "to": "two"},
            {"id": "c", "from": "two", "to": "then", "ordered": true}, {"id": "d", "from": "then", "to": "out", "ordered": true}],
        "sources": [{"operator_id": "in", "input_type": "memory", "config": {"type": "memory"}}],
        "sinks": [{"operator_id": "out", "output_type": "drop", "config": {"type": "drop"}}]
    });
    let plan = plan(json);
    let (chains, edges) = shape(&plan);
    assert_eq!(chains, ["in x1", "one+two x4", "then+out x1"]);
    assert_eq!(edges, ["0>1 deal", "1>2 collect"]);
    assert_eq!(plan.pairs(&plan.edges[0]), [(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(plan.pairs(&plan.edges[1]), [(0, 0), (1, 0), (2, 0), (3, 0)]);
}

/// A batch window keeps nothing by key: it is not partitioned, has as many tasks as it asks for, and
/// passes on the keys by which its rows are spread.
#[test]
fn batch_windows_are_not_keyed() {
    let batch = json!({"window": {"batch": {}}, "keys": ["bidder"], "aggregates": [{"expr": "sum(total)", "as": "sums"}]});
    let changes = [
        ("/operators/-", json!({"id": "sums", "kind": "window", "config": batch})),
        ("/edges/2", json!({"id": "e3", "from": "count", "to": "sums"})),
        ("/edges/-", json!({"id": "e5", "from": "sums", "to": "out", "partitioned": true})),
    ];
    let chains = ["bids+slim+count-partial x2", "count x2", "topic x2", "sums x2", "out x2"];
    lays_out(&changes, &chains, &["0>1 by bidder", "1>2 forward", "1>3 forward", "3>4 by bidder"]);
    let all = json!({"window": {"batch": {}}, "aggregates": [{"expr": "sum(price)", "as": "total"}]});
    let whole = [("/operators/2/config", all), ("/sinks/1/config/key", json!([]))];
    lays_out(&whole, &["bids+slim+count x2", "out x2", "topic x2"], &["0>1 forward", "0>2 forward"]);
}

/// EPO-1: tasks without an edge between them are regions of their own.
#[test]
fn parallel_pipes_are_regions_of_their_own() {
    let json = json!({
        "id": "pipes", "parallelism": 3,
        "operators": [{"id": "a", "kind": "source"}, {"id": "b", "kind": "sink"}, {"id": "c", "kind": "source"}, {"id": "d", "kind": "sink", "parallelism": 2}],
        "edges": [{"id": "ab", "from": "a", "to": "b"}, {"id": "cd", "from": "c", "to": "d"}],
        "sources": [
            {"operator_id": "a", "input_type": "memory", "config": {"type": "memory"}},
            {"operator_id": "c", "input_type": "memory", "config": {"type": "memory"}}],
        "sinks": [
            {"operator_id": "b", "output_type": "drop", "config": {"type": "drop"}},
            {"operator_id": "d", "output_type": "drop", "config": {"type": "drop"}}]
    });
    let plan = plan(json);
    let regions: Vec<Vec<(u32, u32)>> =
        plan.regions.iter().map(|region| region.members.iter().map(|(chain, subtask)| (chain.get(), *subtask)).collect()).collect();
    assert_eq!(regions, [vec![(0, 0)], vec![(0, 1)], vec![(0, 2)], vec![(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]]);
}

#[test]
fn a_wrong_spec_gives_every_fault() {
    let Err(Faults(faults)) = compile(&bound(changed(&[("/version", json!(0)), ("/parallelism", json!(0))])), Horizon::Local) else {
        panic!("compiled")
    };
    assert_eq!(faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), ["version", "parallelism"]);
}

/// PLAN-1: equal specs give equal bytes, and a plan survives its own JSON.
#[test]
fn plans_are_the_same_byte_for_byte() {
    let (one, two) = (plan(sample()), plan(sample()));
    let bytes = serde_json::to_vec(&one).unwrap();
    assert_eq!(bytes, serde_json::to_vec(&two).unwrap());
    assert_eq!(serde_json::from_slice::<JobPlan>(&bytes).unwrap(), one);
}

/// A layered graph of maps and unions between sources and sinks, some of whose sources route bad
/// records and late rows, with pools of ordered lanes between; every operator passes its input on.
fn graphs() -> impl Strategy<Value = JobSpec> {
    let layer = prop::collection::vec((1u32..5, prop::collection::vec(any::<prop::sample::Index>(), 1..3), any::<(bool, bool)>()), 1..4);
    let source = (1u32..5, any::<(bool, bool)>());
    let pools = prop::collection::vec((2u32..5, 1usize..3), 0..2);
    (prop::collection::vec(source, 1..3), prop::collection::vec(layer, 0..4), pools, 1u32..4).prop_map(|(sources, layers, pools, dead)| {
        let (mut operators, mut edges) = (Vec::new(), BTreeSet::new());
        for (i, (parallelism, _)) in sources.iter().enumerate() {
            operators.push(json!({"id": format!("source{i}"), "kind": "source", "parallelism": parallelism}));
        }
        for layer in &layers {
            let above = operators.len();
            for (parallelism, inputs, flags) in layer {
                let id = operators.len();
                operators.push(json!({"id": format!("op{id}"), "kind": if inputs.len() > 1 { "union" } else { "map" }, "parallelism": parallelism}));
                edges.extend(inputs.iter().map(|input| (input.index(above), id, flags.0, flags.1 && !flags.0)));
            }
        }
        // A pool takes from one subtask, deals to lanes of so many operators, and collects into one.
        let mut ordered = BTreeSet::new();
        for (wide, long) in &pools {
            let from = operators.len();
            operators.push(json!({"id": format!("deals{from}"), "kind": "map", "parallelism": 1}));
            edges.insert((from % sources.len(), from, false, false));
            for _ in 0..*long {
                let at = operators.len();
                operators.push(json!({"id": format!("lane{at}"), "kind": "map", "parallelism": wide}));
                edges.insert((at - 1, at, false, false));
            }
            let at = operators.len();
            operators.push(json!({"id": format!("collects{at}"), "kind": "map", "parallelism": 1}));
            edges.insert((at - 1, at, false, false));
            ordered.extend([(from, from + 1), (at - 1, at)]);
        }
        let open: Vec<usize> = (0..operators.len()).filter(|at| !edges.iter().any(|(from, ..)| from == at)).collect();
        for from in open {
            operators.push(json!({"id": format!("sink{from}"), "kind": "sink"}));
            edges.insert((from, operators.len() - 1, false, false));
        }
        let routed = |at: fn(&(bool, bool)) -> bool| sources.iter().any(|(_, routes)| at(routes));
        for (id, _) in [("bad", routed(|routes| routes.0)), ("late", routed(|routes| routes.1))].into_iter().filter(|(_, routed)| *routed) {
            operators.push(json!({"id": id, "kind": "sink", "parallelism": dead}));
        }
        let name = |at: usize| operators[at]["id"].clone();
        let mut pairs = BTreeSet::new();
        let edges: Vec<Value> = edges
            .iter()
            .filter(|(from, to, ..)| pairs.insert((*from, *to)))
            .map(|(from, to, partitioned, broadcast)| {
                json!({"id": format!("e{from}-{to}"), "from": name(*from), "to": name(*to), "partitioned": partitioned, "broadcast": broadcast,
                    "ordered": ordered.contains(&(*from, *to))})
            })
            .collect();
        let of = |kind: &str| operators.iter().filter(|o| o["kind"] == kind).map(|o| o["id"].clone()).collect::<Vec<_>>();
        let source = |(id, (_, (bad, late))): (Value, &(u32, (bool, bool)))| {
            let on_error = if *bad { json!({"policy": "route", "to": "bad"}) } else { json!({"policy": "skip"}) };
            let mut time = json!({"mode": "event_time", "timestamp_field": "at", "watermark": {}});
            if *late {
                time["late_event_policy"] = json!("route");
                time["late_event_route"] = json!("late");
            }
            json!({"operator_id": id, "input_type": "memory", "config": {"type": "memory"}, "codec": {"type": "json"},
                "schema": [{"name": "at", "type": "BIGINT"}], "on_error": on_error, "time": time})
        };
        let entries: Vec<Value> = of("source").into_iter().zip(&sources).map(source).collect();
        let sinks: Vec<Value> =
            of("sink").into_iter().map(|id| json!({"operator_id": id, "output_type": "drop", "config": {"type": "drop"}})).collect();
        let job = json!({"id": "any", "parallelism": 2, "operators": operators, "edges": edges, "sources": entries, "sinks": sinks});
        serde_json::from_value(job).unwrap()
    })
}

/// Side edges of a spec without windows, found edge by edge: from each source that routes, and for
/// bad records from each map that some route reaches and no stricter policy.
fn routed(spec: &JobSpec) -> BTreeSet<(String, String, &'static str)> {
    let mut found = BTreeSet::new();
    let text = |id: &OperatorId| id.as_str().to_owned();
    let mut behind: BTreeSet<String> = BTreeSet::new();
    for source in &spec.sources {
        let id = text(&source.operator_id);
        if source.time.late_event_policy == LatePolicy::Route {
            found.insert((id.clone(), "late".to_owned(), "late"));
        }
        if source.on_error.policy == ErrorPolicy::Route {
            found.insert((id.clone(), "bad".to_owned(), "error"));
            behind.insert(id);
        }
    }
    loop {
        let next: Vec<String> = spec.edges.iter().filter(|e| behind.contains(e.from.as_str())).map(|e| text(&e.to)).collect();
        let before = behind.len();
        behind.extend(next);
        if behind.len() == before {
            break;
        }
    }
    let map = |id: &String| spec.operators.iter().any(|o| o.id.as_str() == id && matches!(o.kind, crate::spec::OperatorKind::Map(_)));
    found.extend(behind.iter().filter(|id| map(id)).map(|id| (id.clone(), "bad".to_owned(), "error")));
    found
}

/// PLAN-3: every key belongs to exactly one subtask, for every number of key groups up to 512 and
/// every number of subtasks: each range begins where the one before it ends, and ends where the law says.
#[test]
fn every_small_division_covers_every_key_group() {
    for max in 1u32..=512 {
        for parallelism in 1..=max {
            let mut next = 0;
            for subtask in 0..parallelism {
                let range = key_group_range(max, parallelism, subtask);
                assert_eq!((range.start, range.end), (next, (subtask + 1) * max / parallelism), "{max} {parallelism} {subtask}");
                assert!(!range.is_empty(), "no subtask is without a key group while there are enough");
                next = range.end;
            }
            assert_eq!(next, max);
            for group in [0, max / 2, max - 1] {
                let owner = key_group_owner(max, parallelism, group);
                assert!(key_group_range(max, parallelism, owner).contains(&group), "{max} {parallelism} {group}");
            }
        }
    }
}

proptest! {
    /// PLAN-3: every key group has exactly one owner, and ranges and owner are each other's inverse.
    #[test]
    fn key_groups_are_covered_once(max in 1u32..=32_768, share in 1u32..=32_768) {
        let parallelism = share.min(max);
        let mut next = 0;
        for subtask in 0..parallelism {
            let range = key_group_range(max, parallelism, subtask);
            prop_assert_eq!(range.start, next);
            prop_assert_eq!(u64::from(range.end), u64::from(subtask + 1) * u64::from(max) / u64::from(parallelism));
            for group in [range.start, range.end.saturating_sub(1)].into_iter().filter(|group| range.contains(group)) {
                prop_assert_eq!(key_group_owner(max, parallelism, group), subtask);
            }
            next = range.end;
        }
        prop_assert_eq!(next, max);
    }

    /// The owner of any group, found by looking at every range.
    #[test]
    fn the_owner_is_the_one_whose_range_holds_the_group(max in 1u32..300, share in 1u32..300, at in any::<prop::sample::Index>()) {
        let parallelism = share.min(max);
        let group = u32::try_from(at.index(max as usize)).unwrap();
        let owners: Vec<u32> = (0..parallelism).filter(|subtask| key_group_range(max, parallelism, *subtask).contains(&group)).collect();
        prop_assert_eq!(owners, vec![key_group_owner(max, parallelism, group)]);
    }

    /// PLAN-1, PLAN-2, PLAN-5, JOB-5: every operator is in exactly one chain; edges, side edges and
    /// those that deal and collect connect exactly the pairs that their operators have, whatever was
    /// fused; a second compilation gives the same bytes; chains come after what feeds them; regions are the components of
    /// the pairs, found here by spreading from each task.
    #[test]
    fn plans_hold_what_the_graph_says(spec in graphs()) {
        let plan = compile(&spec, Horizon::Local).map_err(|faults| proptest::test_runner::TestCaseError::fail(faults.to_string()))?;
        let mut names: Vec<&str> = plan.chains.iter().flat_map(|chain| chain.operators.iter().map(|operator| operator.id.as_str())).collect();
        names.sort_unstable();
        let mut asked: Vec<&str> = spec.operators.iter().map(|operator| operator.id.as_str()).collect();
        asked.sort_unstable();
        prop_assert_eq!(names, asked);
        let chain_of = |id: &crate::id::OperatorId| plan.chains.iter().find(|chain| chain.operators.iter().any(|operator| operator.id == *id)).unwrap();
        let parallelism = |id: &crate::id::OperatorId| spec.operators.iter().find(|operator| operator.id == *id).unwrap().parallelism.unwrap_or(2);
        let mut crossing = 0;
        let all = |p: u32, q: u32| (0..p).flat_map(|i| (0..q).map(move |j| (i, j))).collect::<Vec<_>>();
        for edge in &spec.edges {
            let (from, to) = (chain_of(&edge.from), chain_of(&edge.to));
            if from.id == to.id {
                let place = |id: &crate::id::OperatorId| from.operators.iter().position(|operator| operator.id == *id).unwrap();
                prop_assert_eq!(place(&edge.from) + 1, place(&edge.to));
                continue;
            }
            crossing += 1;
            prop_assert!(from.id < to.id);
            prop_assert_eq!(&from.operators.last().unwrap().id, &edge.from);
            prop_assert_eq!(&to.operators[0].id, &edge.to);
            let planned: Vec<_> = plan.edges.iter().filter(|planned| planned.from == from.id && planned.to == to.id && planned.port == Port::Main).collect();
            prop_assert_eq!(planned.len(), 1);
            let (p, q) = (parallelism(&edge.from), parallelism(&edge.to));
            let forward = p == q && ((!edge.partitioned && !edge.broadcast) || p == 1);
            prop_assert_eq!(plan.pairs(planned[0]), all(p, q).into_iter().filter(|(i, j)| !forward || i == j).collect::<Vec<_>>());
            let turns = match (edge.ordered, p, q) {
                (true, 1, 2..) => planned[0].routing == Routing::Deal,
                (true, 2.., 1) => planned[0].routing == Routing::Collect,
                _ => !matches!(planned[0].routing, Routing::Deal | Routing::Collect),
            };
            prop_assert!(turns, "{:?}", planned[0]);
        }
        let mut sides = BTreeSet::new();
        for edge in plan.edges.iter().filter(|edge| edge.port != Port::Main) {
            let (id, what) = match &edge.port { Port::Error(id) => (id, "error"), Port::Late(id) => (id, "late"), Port::Main => continue };
            prop_assert_eq!(chain_of(id).id, edge.from);
            prop_assert!(edge.from < edge.to);
            let to = &plan.chain(edge.to).operators[0].id;
            let (p, q) = (parallelism(id), parallelism(to));
            prop_assert_eq!(plan.pairs(edge), all(p, q).into_iter().filter(|(i, j)| p != q || i == j).collect::<Vec<_>>());
            prop_assert!(sides.insert((id.as_str().to_owned(), to.as_str().to_owned(), what)), "a side edge stands twice");
        }
        prop_assert_eq!(&sides, &routed(&spec));
        prop_assert_eq!(plan.edges.len(), crossing + sides.len());
        prop_assert_eq!(serde_json::to_vec(&plan).unwrap(), serde_json::to_vec(&compile(&spec, Horizon::Local).unwrap()).unwrap());
        let tasks: Vec<(ChainId, u32)> = plan.chains.iter().flat_map(|chain| (0..chain.parallelism).map(|subtask| (chain.id, subtask))).collect();
        let links: Vec<((ChainId, u32), (ChainId, u32))> = plan.edges.iter().flat_map(|edge| plan.pairs(edge).into_iter().map(|(i, j)| ((edge.from, i), (edge.to, j)))).collect();
        let mut left: BTreeSet<(ChainId, u32)> = tasks.iter().copied().collect();
        let mut regions = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut region, mut todo) = (BTreeSet::from([first]), vec![first]);
            while let Some(task) = todo.pop() {
                let beside = links.iter().filter_map(|(a, b)| if *a == task { Some(*b) } else if *b == task { Some(*a) } else { None });
                todo.extend(beside.filter(|other| region.insert(*other)).collect::<Vec<_>>());
            }
            left.retain(|task| !region.contains(task));
            regions.push(region.into_iter().collect::<Vec<_>>());
        }
        prop_assert_eq!(plan.regions.iter().map(|region| region.members.clone()).collect::<Vec<_>>(), regions);
    }
}
