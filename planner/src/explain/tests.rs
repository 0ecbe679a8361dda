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

/// JOB-9, SQL-11: chains, tasks, edges, key-group ranges; no secrets.
#[test]
fn plans_as_text() {
    assert_eq!(
        text(&plan()),
        "job per_minute version 1
  4 chains, 10 tasks, 3 edges, 1 regions, 5 key groups, horizon local, epoch every 1000 ms
chain 0 x2
  bids: source kafka (bids) as json, event time date_time less 4000 ms
    columns: bidder BIGINT NOT NULL, price BIGINT, date_time TIMESTAMP(3)
  slim: map (project 2)
    columns: bidder BIGINT, price BIGINT
chain 1 x2
  count: window tumbling 60000 ms by bidder gives total = sum
    columns: bidder BIGINT, window_start TIMESTAMP(3) NOT NULL, window_end TIMESTAMP(3) NOT NULL, total BIGINT
  task count-0: key groups 0 to 1
  task count-1: key groups 2 to 4
chain 2 x2
  out: sink result
chain 3 x2
  topic: sink kafka (counts) as json
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
  c0 [label="chain 0 x2\lbids: source kafka (bids) as json, event time date_time less 4000 ms\lslim: map (project 2)"];
  c1 [label="chain 1 x2\lcount: window tumbling 60000 ms by bidder gives total = sum"];
  c2 [label="chain 2 x2\lout: sink result"];
  c3 [label="chain 3 x2\ltopic: sink kafka (counts) as json"];
  c0 -> c1 [label="partitioned by bidder"];
  c1 -> c2 [label="forward"];
  c1 -> c3 [label="forward"];
}
"#
    );
}
