//! Whether the jobs of a file may go on from what an earlier run left: a version never changes its
//! content, never goes back, and never takes over state that does not fit (JOB-1, CKP-7, CKP-8).

use std::cmp::Ordering;
use weir_agent::agent::Agent;
use weir_agent::decision::KeptSpec;
use weir_planner::error::Class;
use weir_planner::plan::JobPlan;
use weir_planner::spec::{JobSpec, differences, listed, with_tuning_of};

/// Differences that a refusal names.
const NAMED_MAX: usize = 8;

/// Looks at every job and tells every refusal; true when all may start.
///
/// Errors: the data directory cannot be read.
pub async fn all(agent: &Agent, plans: &[(JobSpec, JobPlan)], file: &str) -> anyhow::Result<bool> {
    let mut admitted = true;
    for (spec, plan) in plans {
        if let Some(reason) = refusal(agent, spec, plan).await? {
            eprintln!("{file}: {reason}");
            admitted = false;
        }
    }
    Ok(admitted)
}

/// Keeps what a job was asked for, for the next run to compare with.
pub async fn keep(agent: &Agent, spec: &JobSpec) -> anyhow::Result<()> {
    Ok(agent.keep_spec(KeptSpec { submitted: spec.clone(), bound: spec.clone() }).await?)
}

async fn refusal(agent: &Agent, spec: &JobSpec, plan: &JobPlan) -> anyhow::Result<Option<String>> {
    if let Some(kept) = agent.kept_spec(&spec.id).await?
        && let Some(reason) = of_version(&kept.submitted, spec)
    {
        return Ok(Some(reason));
    }
    match agent.check_cut(plan).await {
        Ok(()) => Ok(None),
        Err(error) if error.class == Class::User => Ok(Some(error.message)),
        Err(error) => Err(error.into()),
    }
}

/// Why `new` may not follow `old` in one data directory.
fn of_version(old: &JobSpec, new: &JobSpec) -> Option<String> {
    let (id, before, now) = (&new.id, old.version, new.version);
    match now.cmp(&before) {
        Ordering::Greater => None,
        Ordering::Less => Some(format!(
            "job {id}: version {now} is older than version {before}, which ran here last, and a job never goes back: raise version to {before} or above, or give --fresh to give up its state"
        )),
        Ordering::Equal => {
            let changed = differences(old, &with_tuning_of(new, old));
            (!changed.is_empty()).then(|| {
                format!(
                    "job {id}: version {now} ran here with other content ({}): raise version to go on with its state, or give --fresh to give its state up",
                    listed(&changed, NAMED_MAX)
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

    use super::of_version;
    use serde_json::{Value, json};
    use weir_planner::spec::JobSpec;

    fn spec(version: u64, more: Value) -> JobSpec {
        let mut job = json!({"id": "j", "version": version, "operators": [{"id": "a", "kind": "source"}]});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    /// JOB-1, J1: equal content goes on, a tuned one too, a raised version with anything; other content
    /// and older versions do not.
    #[test]
    fn what_may_follow_what() {
        let old = spec(2, json!({}));
        let follows = [
            (spec(2, json!({})), None),
            (spec(2, json!({"parallelism": 4, "checkpoint": {"epoch_ms": 100}, "resources": {"inflight_bytes": 70000}})), None),
            (spec(3, json!({"max_parallelism": 7})), None),
            (spec(2, json!({"max_parallelism": 7})), Some("max_parallelism")),
            (spec(2, json!({"operators": [{"id": "b", "kind": "source"}]})), Some("operators[a] (removed), operators[b] (added)")),
            (spec(1, json!({})), Some("version 1 is older than version 2")),
        ];
        for (new, named) in follows {
            let reason = of_version(&old, &new);
            match named {
                None => assert_eq!(reason, None, "{new:?}"),
                Some(named) => {
                    let reason = reason.unwrap();
                    assert!(reason.contains(named) && reason.contains("raise version") && reason.contains("--fresh"), "{reason}");
                }
            }
        }
    }
}
