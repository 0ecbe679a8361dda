//! Golden texts.

use super::{dot, text};
use crate::check::tests::{bound, changed};
use crate::compile::compile;
use crate::plan::JobPlan;
use crate::spec::Horizon;
use serde_json::json;

fn plan() -> JobPlan {
    let secret = [("/sources/0/config/properties", json!({"sasl.password": "hidden"})), ("/max_parallelism", json!(5))];
    compile(&bound(changed(&secret)), Horizon::Local).unwrap()
}

/// JOB-9, SQL-11, PLAN-6: chains, tasks, edges, key-group ranges, stages; no secrets.
#[test]
fn plans_as_text() {
    assert_eq!(
        text(&plan()),
        "job per_minute version 1
  4 chains, 12 tasks, 3 edges, 1 region, 5 key groups, horizon local, epoch every 1000 ms
chain 0 x2
  bids: source kafka (bids) as json, event time date_time less 4000 ms
    columns: bidder BIGINT NOT NULL, price BIGINT, date_time TIMESTAMP(3)
  slim: map (project 2)
    columns: bidder BIGINT, price BIGINT
  count-partial: partial aggregate of window tumbling 60000 ms by bidder gives total = sum, lateness 0 ms
    columns: bidder BIGINT, __pane_start BIGINT NOT NULL, __pane_from BIGINT NOT NULL, __a0_sum BIGINT, __a0_carry BIGINT, __a0_seen BOOLEAN, __rows BIGINT NOT NULL
  tasks: bids-0 to bids-1, slim-0 to slim-1, count-partial-0 to count-partial-1
chain 1 x2
  count: window tumbling 60000 ms by bidder gives total = sum, lateness 0 ms
    two-phase: partial aggregate before the shuffle
    columns: bidder BIGINT, window_start TIMESTAMP(3) NOT NULL, window_end TIMESTAMP(3) NOT NULL, total BIGINT
  tasks: count-0 to count-1
  task count-0: key groups 0 to 1
  task count-1: key groups 2 to 4
chain 2 x2
  out: sink result
  tasks: out-0 to out-1
chain 3 x2
  topic: sink kafka (counts) as json
  tasks: topic-0 to topic-1
edge 0 -> 1: partitioned by bidder
edge 1 -> 2: forward
edge 1 -> 3: forward
region 0: chain 0 (bids) tasks 0 to 1, chain 1 (count) tasks 0 to 1, chain 2 (out) tasks 0 to 1, chain 3 (topic) tasks 0 to 1
"
    );
}

#[test]
fn plans_as_dot() {
    assert_eq!(
        dot(&plan()),
        r#"digraph "per_minute" {
  rankdir=LR;
  node [shape=box];
  c0 [label="chain 0 x2\lbids: source kafka (bids) as json, event time date_time less 4000 ms\lslim: map (project 2)\lcount-partial: partial aggregate of window tumbling 60000 ms by bidder gives total = sum, lateness 0 ms\ltasks: bids-0 to bids-1, slim-0 to slim-1, count-partial-0 to count-partial-1\l"];
  c1 [label="chain 1 x2\lcount: window tumbling 60000 ms by bidder gives total = sum, lateness 0 ms\l  two-phase: partial aggregate before the shuffle\ltasks: count-0 to count-1\ltask count-0: key groups 0 to 1\ltask count-1: key groups 2 to 4\l"];
  c2 [label="chain 2 x2\lout: sink result\ltasks: out-0 to out-1\l"];
  c3 [label="chain 3 x2\ltopic: sink kafka (counts) as json\ltasks: topic-0 to topic-1\l"];
  c0 -> c1 [label="partitioned by bidder"];
  c1 -> c2 [label="forward"];
  c1 -> c3 [label="forward"];
}
"#
    );
}

/// JOB-9: JSON is the plan as it is stored, with its tasks and their key groups beside.
#[test]
fn plans_as_json() {
    let plan = plan();
    let shown = super::json(&plan);
    assert_eq!(serde_json::from_value::<JobPlan>(shown.clone()).unwrap(), plan);
    let tasks = shown["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 12);
    assert_eq!(tasks[0], json!({"task": "bids-0", "chain": 0}));
    assert_eq!(
        tasks[6..8],
        [json!({"task": "count-0", "chain": 1, "key_groups": [0, 1]}), json!({"task": "count-1", "chain": 1, "key_groups": [2, 4]})]
    );
    assert_eq!(tasks[11], json!({"task": "topic-1", "chain": 3}));
}
