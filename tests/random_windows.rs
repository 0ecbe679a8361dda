//! Random rows, windows, bounds and parallelism against a recomputation that knows only the rules:
//! a row's stamp is the running maximum of its own split less the bound (EV-3), and it is late when
//! its window's end is not after its stamp (EV-4). Same input, same answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use support::process::{Weir, temporary};

/// Rounds; each makes one source and two jobs.
const ROUNDS: u32 = 12;

#[derive(Clone, Copy, Debug)]
struct Row {
    k: Option<i64>,
    ts: Option<i64>,
    x: Option<i64>,
}

#[derive(Debug)]
struct Round {
    splits: Vec<Vec<Row>>,
    size_ms: i64,
    offset_ms: i64,
    bound_ms: i64,
    parallelism: u32,
}

/// Key and window start to count(*), count(x), sum, min, max of x.
type Answer = BTreeMap<(Option<i64>, i64), (i64, i64, Option<i64>, Option<i64>, Option<i64>)>;

fn round(random: &mut StdRng) -> Round {
    let splits = random.random_range(1..=3);
    let rows = |random: &mut StdRng| {
        let (count, step) = (random.random_range(0..200), random.random_range(1..120));
        (0..count)
            .map(|n| Row {
                k: random.random_bool(0.9).then(|| random.random_range(-3..4)),
                ts: random.random_bool(0.95).then(|| -4_000 + n * step - random.random_range(0..2_500)),
                x: random.random_bool(0.8).then(|| random.random_range(-100..100)),
            })
            .collect()
    };
    Round {
        splits: (0..splits).map(|_| rows(random)).collect(),
        size_ms: *[1, 250, 700, 1_000, 2_500, 60_000].choose(random).unwrap(),
        offset_ms: *[0, 0, 300, -1_100, 7_000].choose(random).unwrap(),
        bound_ms: *[0, 100, 1_000, 3_000].choose(random).unwrap(),
        parallelism: random.random_range(1..=4),
    }
}

/// The answer, how many rows were late, and how many had no time.
fn recompute(round: &Round) -> (Answer, i64, i64) {
    let (mut answer, mut late, mut timeless) = (Answer::new(), 0, 0);
    for split in &round.splits {
        let mut newest = i64::MIN;
        for row in split {
            let Some(ts) = row.ts else {
                timeless += 1;
                continue;
            };
            newest = newest.max(ts);
            let start = (ts - round.offset_ms).div_euclid(round.size_ms) * round.size_ms + round.offset_ms;
            if start + round.size_ms <= newest - round.bound_ms {
                late += 1;
                continue;
            }
            let entry = answer.entry((row.k, start)).or_default();
            entry.0 += 1;
            if let Some(x) = row.x {
                entry.1 += 1;
                entry.2 = Some(entry.2.unwrap_or(0) + x);
                entry.3 = Some(entry.3.map_or(x, |low| low.min(x)));
                entry.4 = Some(entry.4.map_or(x, |high| high.max(x)));
            }
        }
    }
    (answer, late, timeless)
}

fn write_splits(dir: &Path, round: &Round) {
    let json = |value: Option<i64>| value.map_or("null".to_owned(), |v| v.to_string());
    for (number, split) in round.splits.iter().enumerate() {
        let mut text = String::new();
        for row in split {
            writeln!(text, "{{\"k\":{},\"ts\":{},\"x\":{}}}", json(row.k), json(row.ts), json(row.x)).unwrap();
        }
        std::fs::write(dir.join(format!("split-{number}.ndjson")), text).unwrap();
    }
}

fn number(text: &str) -> Option<i64> {
    (text != "NULL").then(|| text.parse().unwrap_or_else(|_| panic!("{text} is no number")))
}

#[test]
fn random_windows_equal_their_recomputation() {
    let seed = std::env::var("WEIR_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| rand::rng().random::<u64>());
    println!("the rounds come from WEIR_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let data = temporary();
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    for number_of_round in 0..ROUNDS {
        let round = round(&mut random);
        let dir = temporary();
        write_splits(dir.path(), &round);
        let source = format!("s{number_of_round}");
        sql.run(&format!(
            "CREATE SOURCE {source} (k BIGINT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{} milliseconds')
             WITH (connector = 'file', path = '{}/*.ndjson', format = 'json', batch.rows = {})",
            round.bound_ms,
            dir.path().display(),
            random.random_range(1..50)
        ));
        let (expected, late, timeless) = recompute(&round);
        for parallelism in [1, round.parallelism] {
            let job = format!("j{number_of_round}_{parallelism}");
            let said = format!("round {number_of_round} of seed {seed}, parallelism {parallelism}: {round:?}");
            sql.run(&format!(
                "CREATE JOB IF NOT EXISTS {job} WITH (parallelism = {parallelism}) AS
                 SELECT k, window_start, count(*) AS n, count(x) AS m, sum(x) AS total, min(x) AS low, max(x) AS high
                 FROM tumble({source}, ts, INTERVAL '{} milliseconds', INTERVAL '{} milliseconds') GROUP BY k, window_start, window_end",
                round.size_ms, round.offset_ms
            ));
            sql.run(&format!("WAIT FOR JOB {job} UNTIL FINISHED TIMEOUT '30s'"));
            let mut got = Answer::new();
            for row in sql.rows(&format!(
                "SELECT k, CAST(round(extract(epoch FROM window_start) * 1000) AS BIGINT), n, m, total, low, high FROM {job}"
            )) {
                let key = (number(&row[0]), number(&row[1]).unwrap());
                let value = (number(&row[2]).unwrap(), number(&row[3]).unwrap(), number(&row[4]), number(&row[5]), number(&row[6]));
                assert!(got.insert(key, value).is_none(), "{key:?} is there twice\n{said}");
            }
            assert_eq!(got, expected, "{said}");
            let counted = sql.rows(&format!(
                "SELECT (SELECT sum(rows_late_total) FROM weir.job_tasks WHERE job = '{job}'), sum(rows_invalid_total), sum(rows_in_total)
                 FROM weir.job_sources WHERE job = '{job}'"
            ));
            let rows = round.splits.iter().map(Vec::len).sum::<usize>() as i64;
            let counted: Vec<i64> = counted[0].iter().map(|cell| number(cell).unwrap_or(0)).collect();
            assert_eq!(counted, [late, timeless, rows], "late, without time, in all\n{said}");
        }
    }
}
