//! Whether the jobs of a file may go on from what an earlier run left: a version never changes its
//! content, never goes back, and never takes over state that does not fit (JOB-1, CKP-7, CKP-8).

use super::columns;
use crate::config::RunConfig;
use crate::document::{Loaded, print_faults};
use std::cmp::Ordering;
use weir_agent::agent::Agent;
use weir_agent::decision::KeptSpec;
use weir_planner::compile::compile;
use weir_planner::error::Class;
use weir_planner::plan::JobPlan;
use weir_planner::spec::{Horizon, JobSpec, OperatorKind, differences, listed, with_tuning_of};

/// Differences that a refusal names.
const NAMED_MAX: usize = 8;

/// A job that may start.
pub struct Ready {
    /// To be kept before it starts.
    pub spec: KeptSpec,
    /// What runs.
    pub plan: JobPlan,
}

/// Why the jobs of a file do not start; the reasons have been told.
pub enum Refused {
    /// The file does not go with what ran here before.
    Invalid,
    /// A job does not fit the columns that its sources turned out to have.
    Unbuildable,
}

/// Looks at the version of every job, and tells every refusal; true when there is none.
///
/// Errors: the data directory cannot be read.
pub async fn versions(agent: &Agent, loaded: &[Loaded], config: &RunConfig) -> anyhow::Result<bool> {
    let mut refused = Vec::new();
    for job in loaded.iter().filter(|_| !config.fresh) {
        let kept = agent.kept_spec(&job.spec.id).await?;
        refused.extend(kept.and_then(|kept| of_version(&kept.submitted, &job.spec)));
    }
    Ok(!told(&config.file.display().to_string(), &refused))
}

/// Takes the columns that jobs do not declare, looks at the state that lies here, and tells every
/// refusal. Waits while there is no row to take columns from.
///
/// Errors: the data directory cannot be read; columns cannot be had.
/// Cancel: safe, nothing is kept.
pub async fn all(agent: &Agent, loaded: &[&Loaded], config: &RunConfig) -> anyhow::Result<Result<Vec<Ready>, Refused>> {
    let name = config.file.display().to_string();
    let mut ready = Vec::with_capacity(loaded.len());
    for job in loaded {
        let kept = if config.fresh { None } else { agent.kept_spec(&job.spec.id).await? };
        match of_job(agent, job, kept.as_ref(), &name).await? {
            Some(job) => ready.push(job),
            None => return Ok(Err(Refused::Unbuildable)),
        }
    }
    if config.fresh {
        return Ok(Ok(ready));
    }
    let mut of_cuts = Vec::new();
    for job in &ready {
        match agent.check_cut(&job.plan).await {
            Ok(()) => {
                let kept = agent.kept_spec(&job.plan.job).await?;
                let changed = kept.and_then(|kept| of_state(&kept.bound, &job.spec.bound));
                if let (Some(reason), true) = (changed, agent.has_cut(&job.plan.job).await?) {
                    of_cuts.push(reason);
                }
            }
            Err(error) if error.class == Class::User => of_cuts.push(error.message),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(if told(&name, &of_cuts) { Err(Refused::Invalid) } else { Ok(ready) })
}

fn told(file: &str, reasons: &[String]) -> bool {
    reasons.iter().for_each(|reason| eprintln!("{file}: {reason}"));
    !reasons.is_empty()
}

/// The job with its columns and its plan; `None` when it does not fit them.
async fn of_job(agent: &Agent, job: &Loaded, kept: Option<&KeptSpec>, file: &str) -> anyhow::Result<Option<Ready>> {
    let submitted = job.spec.clone();
    if let Some(plan) = &job.plan {
        return Ok(Some(Ready { spec: KeptSpec { bound: submitted.clone(), submitted }, plan: plan.clone() }));
    }
    let built = columns::settled(agent, &job.spec, kept).await?.and_then(|bound| {
        let plan = compile(&bound, Horizon::Local).map_err(|faults| faults.0)?;
        let faults = weir_agent::rehearsal::check(&bound, &plan);
        if faults.is_empty() { Ok((bound, plan)) } else { Err(faults) }
    });
    match built {
        Ok((bound, plan)) => Ok(Some(Ready { spec: KeptSpec { submitted, bound }, plan })),
        Err(faults) => {
            let faults: Vec<_> = faults.into_iter().map(|fault| fault.located(&job.places)).collect();
            print_faults(&format!("{file}: job {}", job.spec.id), &faults);
            Ok(None)
        }
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

/// Why the state that `old` left means nothing to `new`, though the tasks are the same: a window's
/// entries are what its keys, its lengths and its aggregates made them.
fn of_state(old: &JobSpec, new: &JobSpec) -> Option<String> {
    let is_window = |id: &str| old.operators.iter().any(|one| one.id.as_str() == id && matches!(one.kind, OperatorKind::Window(_)));
    let kept = |path: &String| {
        let found = path.strip_prefix("operators[").and_then(|rest| rest.split_once("].config."));
        found.is_some_and(|(id, field)| is_window(id) && ["window", "keys", "aggregates"].iter().any(|kept| field.starts_with(kept)))
    };
    let changed: Vec<String> = differences(old, new).into_iter().filter(kept).collect();
    (!changed.is_empty()).then(|| {
        format!(
            "job {}: version {} changes what its state was made by ({}), and the state cannot be read as another: leave that as it was, or give --fresh to give the state up",
            new.id,
            new.version,
            listed(&changed, NAMED_MAX)
        )
    })
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
