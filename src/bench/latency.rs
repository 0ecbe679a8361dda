//! `weir bench nexmark --rate N`: how long results take (SPD-1, SPD-3), on the real path.
//!
//! Bids are due at a fixed rate, whatever becomes of them, and a bid's `date_time` is the moment at which it is due by the
//! wall clock. A result counts from there, and that of a window from the moment at which the bid was due whose time closes
//! it. So whoever stalls pays for every row that had to wait, sent or not. Results go out by the http sink to this
//! process; they have arrived when their request is read.

mod figures;

use super::{Cost, LONGEST, SIZE_MS};
use crate::config::{BenchConfig, Query};
use crate::control::on_control;
use crate::stack::{Embedded, Scratch};
use anyhow::{Context, bail};
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use figures::{Figures, Pace, Results};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use weir_hub::hub::WaitFor;
use weir_planner::id::JobId;

/// From the making of the job to its first bid.
const LEAD_MS: i64 = 2_000;
/// Bids due in the first so many ms are to warm up, and results that count from there are left out.
const WARM_UP_MS: i64 = 2_000;
/// How far the watermark stays behind the greatest time; nothing comes out of order.
const BOUND_MS: i64 = 4_000;
/// Requests that wait to be looked at; then the sink does.
const BODIES_MAX: usize = 64;
/// Rows of a request at most.
const REQUEST_ROWS: u64 = 8_192;

/// What a result of a query counts from.
///
/// Errors: its results have no time.
fn results(query: Query) -> anyhow::Result<Results> {
    Ok(match query {
        Query::Q0 | Query::Q1 => Results::Rows,
        Query::Q5 | Query::Q7 | Query::Q12 => Results::Windows { closes_after_ms: BOUND_MS },
        // A session is given when a gap has passed since its end, less one.
        Query::Q11 => Results::Windows { closes_after_ms: BOUND_MS + SIZE_MS - 1 },
        Query::Q2 | Query::Q8 => {
            bail!("the latency of {} cannot be told, since its results have no time; q0, q1, q5, q7, q11 and q12 have one", query.name())
        }
    })
}

/// A request's arrival, in microseconds since 1970, and its body.
type Arrival = (i64, bytes::Bytes);

async fn arrive(State(arrivals): State<mpsc::Sender<Arrival>>, body: bytes::Bytes) {
    // It ends when this process does.
    let _ = arrivals.send((now_us(), body)).await;
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Runs the query over bids at `rate` a second for `seconds`, and prints one line of JSON.
pub fn latency(config: &BenchConfig, rate: u64) -> anyhow::Result<()> {
    // The generator spells its columns so.
    let select = config.query.select()?.replace(r#""dateTime""#, "date_time");
    let results = results(config.query)?;
    let scratch = Scratch::make()?;
    on_control(async {
        let shards = config.shards.unwrap_or(config.parallelism as usize);
        let embedded = Embedded::open(&scratch.0, crate::config::LEASE, None, Some(shards), None).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for the results")?;
        let address = listener.local_addr()?;
        let (arrivals, mut arrived) = mpsc::channel::<Arrival>(BODIES_MAX);
        let door = axum::Router::new().route("/", post(arrive)).layer(DefaultBodyLimit::disable()).with_state(arrivals);
        let (close, closed) = oneshot::channel::<()>();
        let serving = axum::serve(listener, door).with_graceful_shutdown(async { closed.await.unwrap_or_default() });
        let serving = tokio::spawn(serving.into_future());

        let pace = Pace::of_bids(rate, now_us() / 1_000 + LEAD_MS, rate.saturating_mul(config.seconds));
        let reader = std::thread::spawn(move || -> anyhow::Result<Figures> {
            let mut figures = Figures::new(results, pace, WARM_UP_MS);
            let mut read = Ok(());
            // What comes after a fault is thrown away, so that nobody waits for room.
            while let Some((at_us, body)) = arrived.blocking_recv() {
                read = read.and_then(|()| figures.take(at_us, &body));
            }
            read.map(|()| figures)
        });
        let script = format!(
            "CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
                 WATERMARK FOR date_time AS date_time - INTERVAL '{BOUND_MS} milliseconds')
               WITH (connector = 'generate', kind = 'nexmark', table = 'bid', events_per_second = {}, start_ms = {}, rows = {});
               CREATE SINK arrivals WITH (connector = 'http', url = 'http://{address}/', batch_rows = {REQUEST_ROWS});
               CREATE JOB bench INTO arrivals WITH (parallelism = {}, checkpoint.epoch_ms = {}, checkpoint.interval_ms = {}) AS {select}",
            pace.events_per_second,
            pace.start_ms,
            pace.bids,
            config.parallelism,
            config.epoch_ms,
            config.epoch_ms * 10,
        );
        let before = Cost::now()?;
        for statement in weir_frontend::sql::parse(&script).map_err(|e| anyhow::anyhow!("{e}"))? {
            embedded.engine.run(&statement, &[]).await.map_err(|e| anyhow::anyhow!("{e}"))?;
        }
        let job = JobId::new("bench").map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let longest = LONGEST + Duration::from_secs(config.seconds);
        let info = embedded.hub.wait(&job, WaitFor::Finished, longest).await?;
        let cost = Cost::now()?;
        let observation = info.observation.clone().context("the finished job has no report")?;
        let rows: u64 = observation.sources.iter().map(|split| split.rows_in).sum();
        embedded.close().await;
        // The job has ended, so every result has been answered.
        let _ = close.send(());
        serving.await.context("the door for the results")??;
        let figures = reader.join().map_err(|_| anyhow::anyhow!("the reader of the results panicked"))??;
        let mut line = serde_json::json!({
            "query": config.query.name(), "format": "generated", "parallelism": config.parallelism, "epoch_ms": config.epoch_ms,
            "rate": rate, "seconds": config.seconds, "rows": rows, "cpu_seconds": cost.cpu_seconds - before.cpu_seconds,
            "peak_rss_bytes": cost.peak_rss_bytes,
        });
        if let (Some(line), serde_json::Value::Object(found)) = (line.as_object_mut(), figures.line()?) {
            line.extend(found);
        }
        println!("{line}");
        Ok(())
    })
}
