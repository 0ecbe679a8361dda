//! Jobs of `weir run` whose sources declare no columns (JOB-6): an earlier run's columns, or those of
//! the first rows, asked of the agent in this process until there is a row.

use anyhow::Context;
use futures::TryStreamExt;
use std::time::Duration;
use weir_agent::agent::Agent;
use weir_agent::decision::KeptSpec;
use weir_frontend::sql::{bind_spec, columns_of};
use weir_planner::check::columns::pending;
use weir_planner::compile::compile;
use weir_planner::error::{Class, Fault};
use weir_planner::plan::JobPlan;
use weir_planner::protocol::{ReadRequest, ReadTarget};
use weir_planner::schema::Schema;
use weir_planner::spec::{Horizon, JobSpec, Source, SourceColumn};

/// First pause before a source without a row is looked at again, which doubles …
const PAUSE: Duration = Duration::from_millis(250);
/// … up to this.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a job came to once its columns were known.
pub enum Settled {
    /// Bound, with its plan.
    Ready(Box<JobSpec>, Box<JobPlan>),
    /// Its faults, by their paths in the spec.
    Wrong(Vec<Fault>),
}

/// The job with all of its columns: those that an earlier run of this version pinned, unless `fresh`, else
/// those of its sources' first rows. Waits as long as there is no row.
///
/// Cancel: safe to drop.
/// Errors: a source whose columns cannot be had at all; the data directory cannot be read.
pub async fn settle(agent: &Agent, spec: &JobSpec, fresh: bool) -> anyhow::Result<Settled> {
    let kept = if fresh { None } else { agent.kept_spec(&spec.id).await?.filter(|kept| kept.submitted.version == spec.version) };
    let mut bound = spec.clone();
    for source in &mut bound.sources {
        if !weir_planner::check::columns::is_pending(source) {
            continue;
        }
        source.schema = match kept.as_ref().and_then(|kept| pinned(kept, source)) {
            Some(columns) => columns,
            None => {
                let columns = first_rows(agent, spec, source).await?;
                let told: Vec<String> = columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
                eprintln!(
                    "weir: job {}: source '{}' has the columns ({}), taken from its first rows",
                    spec.id,
                    source.operator_id,
                    told.join(", ")
                );
                columns
            }
        };
    }
    debug_assert!(pending(&bound).is_empty(), "every source has columns by now");
    if let Err(faults) = bind_spec(&mut bound) {
        return Ok(Settled::Wrong(faults));
    }
    Ok(match compile(&bound, Horizon::Local) {
        Ok(plan) => match weir_agent::rehearsal::check(&bound, &plan) {
            faults if faults.is_empty() => Settled::Ready(Box::new(bound), Box::new(plan)),
            faults => Settled::Wrong(faults),
        },
        Err(faults) => Settled::Wrong(faults.0),
    })
}

/// The columns that an earlier run took for the very same source.
fn pinned(kept: &KeptSpec, source: &Source) -> Option<Vec<SourceColumn>> {
    let same = |other: &&Source| other.operator_id == source.operator_id && other.config == source.config && other.codec == source.codec;
    let columns = &kept.bound.sources.iter().find(same)?.schema;
    (!columns.is_empty()).then(|| columns.clone())
}

async fn first_rows(agent: &Agent, spec: &JobSpec, source: &Source) -> anyhow::Result<Vec<SourceColumn>> {
    let (mut pause, mut told) = (PAUSE, None);
    loop {
        let request = ReadRequest {
            id: 0,
            job: spec.id.clone(),
            target: ReadTarget::Sample(Box::new(source.clone())),
            schema: Schema::default(),
            limit: None,
            store_id: None,
        };
        let reason = match agent.read(request).await {
            Ok(answer) => {
                let whole = answer.try_collect::<Vec<_>>().await.map_err(|reason| anyhow::anyhow!("job {}: {reason}", spec.id))?.concat();
                return columns_of(&whole)
                    .map_err(|reason| anyhow::anyhow!("{reason}"))
                    .with_context(|| format!("job {}: the columns of source '{}' did not come as they should", spec.id, source.operator_id));
            }
            Err(error) if matches!(error.class, Class::Retry | Class::Fenced | Class::Bug) => error.to_failure().message,
            Err(error) => anyhow::bail!("job {} failed: {}", spec.id, error.to_failure().message),
        };
        if told.as_ref() != Some(&reason) {
            eprintln!("weir: job {} waits for columns: {reason}", spec.id);
            told = Some(reason);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
