//! `weir bench state`: bytes of live window state a key (SPD-4), on the real path.

use super::{LONGEST, resident_bytes};
use crate::config::StateConfig;
use crate::control::on_control;
use crate::stack::{Embedded, Scratch};
use anyhow::{Context, bail};
use std::time::{Duration, Instant};
use weir_planner::id::JobId;

/// How often the job's reports are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The window's only time. No later row comes, so it stays open.
const TIME_MS: u64 = 1_767_225_600_000;
/// Keys that come at once.
const BATCH_KEYS: u64 = 131_072;

/// Fills one window with integer keys, each with a count and a sum, until a report has as many, and
/// prints one line of JSON with what they hold. Keys come at a pace, so that there are not many more.
pub fn state(config: &StateConfig) -> anyhow::Result<()> {
    let scratch = Scratch::make()?;
    on_control(async {
        let embedded = Embedded::open(&scratch.0, crate::config::LEASE, None, Some(1), None).await?;
        let keys = config.keys;
        let script = format!(
            r#"CREATE SOURCE numbers (n BIGINT, t BIGINT, WATERMARK FOR t AS t - INTERVAL '4 seconds')
               WITH (connector = 'generate', context = '{{"n":"{{{{counter}}}}","t":{TIME_MS}}}', batch_size = {BATCH_KEYS}, interval_ms = 100);
               CREATE SINK nowhere WITH (connector = 'drop');
               CREATE JOB bench INTO nowhere WITH (parallelism = 1, checkpoint.epoch_ms = 1000) AS
                 SELECT n, window_start, window_end, count(*) AS rows, sum(n) AS total
                 FROM tumble(numbers, t, INTERVAL '10 seconds') GROUP BY n, window_start, window_end"#
        );
        let resident_before = resident_bytes()?;
        for statement in weir_frontend::sql::parse(&script).map_err(|e| anyhow::anyhow!("{e}"))? {
            embedded.engine.run(&statement, &[]).await.map_err(|e| anyhow::anyhow!("{e}"))?;
        }
        let job = JobId::new("bench").map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let began = Instant::now();
        let (rows, bytes) = loop {
            let info = embedded.hub.job(&job)?;
            let tasks = info.observation.as_ref().map(|observation| observation.tasks.as_slice()).unwrap_or_default();
            let rows: u64 = tasks.iter().map(|task| task.state_rows).sum();
            if rows >= keys {
                break (rows, tasks.iter().map(|task| task.state_bytes).sum::<u64>());
            }
            if began.elapsed() > LONGEST {
                bail!("only {rows} of {keys} keys are in the window after {} seconds", LONGEST.as_secs());
            }
            tokio::time::sleep(LOOK).await;
        };
        let line = serde_json::json!({
            "keys": rows, "state_bytes": bytes, "bytes_per_key": bytes as f64 / rows as f64, "seconds": began.elapsed().as_secs_f64(),
            "resident_bytes_before": resident_before, "resident_bytes": resident_bytes()?,
        });
        println!("{line}");
        embedded.close().await;
        Ok(())
    })
    .context("the state could not be measured")
}
