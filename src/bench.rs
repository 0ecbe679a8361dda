//! `weir bench nexmark`: one query on the real path (SQL, planner, hub, agent, kernel, epochs), measured as a
//! whole process (SPD-1): over files, how fast; at a rate, how soon.

mod latency;
mod state;

pub use state::state;

use crate::config::{BenchConfig, Query};
use crate::control::on_control;
use crate::stack::{Embedded, Scratch};
use anyhow::{Context, bail};
use std::time::{Duration, Instant};
use weir_hub::hub::WaitFor;
use weir_planner::id::JobId;

impl Query {
    fn name(self) -> &'static str {
        match self {
            Query::Q0 => "q0",
            Query::Q1 => "q1",
            Query::Q2 => "q2",
            Query::Q5 => "q5",
            Query::Q7 => "q7",
            Query::Q8 => "q8",
            Query::Q11 => "q11",
            Query::Q12 => "q12",
        }
    }

    /// What the job selects from `bids`.
    ///
    /// Errors: a query that jobs cannot have yet.
    fn select(self) -> anyhow::Result<&'static str> {
        Ok(match self {
            Query::Q0 => r#"SELECT auction, bidder, price, "dateTime", extra FROM bids"#,
            Query::Q1 => r#"SELECT auction, bidder, price * 0.908 AS price, "dateTime", extra FROM bids"#,
            Query::Q2 => "SELECT auction, price FROM bids WHERE auction % 123 = 0",
            Query::Q5 => {
                r#"SELECT auction, window_start, window_end, count(*) AS bids
                   FROM hop(bids, "dateTime", INTERVAL '2 seconds', INTERVAL '10 seconds') GROUP BY auction, window_start, window_end"#
            }
            Query::Q7 => {
                r#"SELECT window_start, window_end, max(price) AS price
                   FROM tumble(bids, "dateTime", INTERVAL '10 seconds') GROUP BY window_start, window_end"#
            }
            Query::Q8 => bail!("q8 joins persons and auctions, and jobs cannot join yet; q0, q1, q2, q5, q7, q11 and q12 can be measured"),
            Query::Q11 => {
                r#"SELECT bidder, window_start, window_end, count(*) AS bids
                   FROM session(bids, "dateTime", INTERVAL '10 seconds') GROUP BY bidder, window_start, window_end"#
            }
            Query::Q12 => {
                r#"SELECT bidder, window_start, window_end, count(*) AS bids
                   FROM tumble(bids, "dateTime", INTERVAL '10 seconds') GROUP BY bidder, window_start, window_end"#
            }
        })
    }
}

/// A bench that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(600);

/// Length of tumbling windows, and gap of sessions, ms; as the queries say.
const SIZE_MS: i64 = 10_000;

/// Runs the query once and prints one line of JSON.
pub fn nexmark(config: &BenchConfig) -> anyhow::Result<()> {
    match (config.rate, &config.input) {
        (Some(rate), _) => latency::latency(config, rate),
        (None, Some(input)) => speed(config, input),
        (None, None) => bail!("give --input, a file of bids, or --rate, so many bids a second"),
    }
}

/// What a process has used so far.
struct Cost {
    cpu_seconds: f64,
    peak_rss_bytes: u64,
}

impl Cost {
    fn now() -> anyhow::Result<Cost> {
        Ok(Cost { cpu_seconds: cpu_seconds()?, peak_rss_bytes: status_bytes("VmHWM:")? })
    }
}

fn speed(config: &BenchConfig, input: &str) -> anyhow::Result<()> {
    let select = config.query.select()?;
    let format = if input.ends_with(".parquet") { "parquet" } else { "json" };
    let scratch = Scratch::make()?;
    on_control(async {
        let shards = config.shards.unwrap_or(config.parallelism as usize);
        let embedded = Embedded::open(&scratch.0, crate::config::LEASE, None, Some(shards), None).await?;
        let script = format!(
            r#"CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, "dateTime" TIMESTAMP(3), extra TEXT,
                 WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4 seconds')
               WITH (connector = 'file', path = '{}', format = '{format}');
               CREATE SINK nowhere WITH (connector = 'drop');
               CREATE JOB bench INTO nowhere WITH (parallelism = {}, checkpoint.epoch_ms = {}, checkpoint.interval_ms = {}) AS {}"#,
            input.replace('\'', "''"),
            config.parallelism,
            config.epoch_ms,
            config.epoch_ms * 10,
            select,
        );
        let before = Cost::now()?;
        let began = Instant::now();
        for statement in weir_frontend::sql::parse(&script).map_err(|e| anyhow::anyhow!("{e}"))? {
            embedded.engine.run(&statement, &[]).await.map_err(|e| anyhow::anyhow!("{e}"))?;
        }
        let job = JobId::new("bench").map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let info = embedded.hub.wait(&job, WaitFor::Finished, LONGEST).await?;
        let seconds = began.elapsed().as_secs_f64();
        let cost = Cost::now()?;
        let cpu = cost.cpu_seconds - before.cpu_seconds;
        let observation = info.observation.clone().context("the finished job has no report")?;
        let rows: u64 = observation.sources.iter().map(|split| split.rows_in).sum();
        let sink_rows = observation.tasks.iter().filter(|task| task.task.operator.as_str().starts_with("sink")).map(|task| task.rows_in);
        let line = serde_json::json!({
            "query": config.query.name(), "format": format, "parallelism": config.parallelism, "epoch_ms": config.epoch_ms,
            "rows": rows, "out_rows": sink_rows.sum::<u64>(), "seconds": seconds, "cpu_seconds": cpu,
            "rows_per_s": rows as f64 / seconds, "rows_per_cpu_s": rows as f64 / cpu, "peak_rss_bytes": cost.peak_rss_bytes,
        });
        println!("{line}");
        embedded.close().await;
        if rows == 0 {
            bail!("{input} has no rows");
        }
        Ok(())
    })
}

/// User and system seconds of this process, from `/proc/self/stat` fields 14 and 15 (in ticks of 10 ms on Linux).
fn cpu_seconds() -> anyhow::Result<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').context("/proc/self/stat has no name")?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut tick = || -> anyhow::Result<f64> { Ok(fields.next().context("/proc/self/stat is short")?.parse()?) };
    Ok((tick()? + tick()?) / TICKS_PER_SECOND)
}

fn resident_bytes() -> anyhow::Result<u64> {
    status_bytes("VmRSS:")
}

/// A figure of `/proc/self/status`, which states it in KiB.
fn status_bytes(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("/proc/self/status has no {name}"))?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1_024)
}
