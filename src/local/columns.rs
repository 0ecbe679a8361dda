//! Columns of sources that declare none (JOB-6): those that an earlier run of the same version took, or else
//! those of some rows, taken by the agent that will read them.

use anyhow::Context;
use bytes::Bytes;
use futures::StreamExt;
use std::time::Duration;
use weir_agent::agent::Agent;
use weir_agent::decision::KeptSpec;
use weir_frontend::sql::{SampleBinder, bind_spec};
use weir_hub::hub::Binder;
use weir_planner::check::columns::pending;
use weir_planner::error::{Class, Fault};
use weir_planner::id::{JobId, OperatorId};
use weir_planner::protocol::{ReadRequest, ReadTarget};
use weir_planner::schema::Schema;
use weir_planner::spec::{JobSpec, Source};

/// First pause before rows are looked for again, which doubles …
const PAUSE: Duration = Duration::from_millis(250);
/// … up to this.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The spec with the columns of every source, bound to them; or the faults of what does not fit them.
/// Waits, and says why, while there is no row.
///
/// Errors: columns that cannot be had at all.
/// Cancel: safe, nothing is kept.
pub async fn settled(agent: &Agent, spec: &JobSpec, kept: Option<&KeptSpec>) -> anyhow::Result<Result<JobSpec, Vec<Fault>>> {
    let mut spec = spec.clone();
    let known = kept.filter(|kept| kept.submitted.version == spec.version);
    let before = known.iter().flat_map(|kept| &kept.bound.sources);
    for found in before.filter(|found| !found.schema.is_empty()) {
        let own = spec.sources.iter_mut().find(|source| source.operator_id == found.operator_id && source.schema.is_empty());
        if let Some(source) = own {
            source.schema.clone_from(&found.schema);
        }
    }
    let mut columns: Vec<(OperatorId, Bytes)> = Vec::new();
    for source in pending(&spec) {
        columns.push((source.operator_id.clone(), sampled(agent, &spec.id, source).await?));
    }
    if columns.is_empty() {
        return Ok(bind_spec(&mut spec).map(|()| spec));
    }
    let bound = SampleBinder.bind(&spec, &columns);
    for source in bound.iter().flat_map(|bound| &bound.sources).filter(|source| columns.iter().any(|(id, _)| *id == source.operator_id)) {
        let told: Vec<String> = source.schema.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
        eprintln!(
            "weir: job {}: source '{}' has the columns ({}), taken from its first rows",
            spec.id,
            source.operator_id,
            told.join(", ")
        );
    }
    Ok(bound)
}

async fn sampled(agent: &Agent, job: &JobId, source: &Source) -> anyhow::Result<Bytes> {
    let (mut pause, mut told) = (PAUSE, String::new());
    loop {
        let request = ReadRequest {
            id: 0,
            job: job.clone(),
            target: ReadTarget::Sample(Box::new(source.clone())),
            schema: Schema::default(),
            limit: None,
            store_id: None,
            replaces_by: Vec::new(),
        };
        match agent.read(request).await {
            Ok(mut answer) => {
                let mut bytes = Vec::new();
                while let Some(piece) = answer.next().await {
                    bytes.extend_from_slice(&piece.map_err(anyhow::Error::msg).with_context(|| format!("job {job}"))?);
                }
                return Ok(bytes.into());
            }
            Err(error) if error.class == Class::Retry => {
                let reason = error.to_failure().message;
                if told != reason {
                    eprintln!("weir: job {job} waits for its columns: {reason}");
                    told = reason;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return Err(anyhow::anyhow!("job {job}: {}", error.to_failure().message)),
        }
    }
}
