//! Whether a manifest is a checkpoint of a plan, and whether a plan may go on from one.

use std::collections::BTreeSet;
use weir_planner::id::{RegionId, TaskId};
use weir_planner::keygroup::KEY_ENCODING_VERSION;
use weir_planner::manifest::{MANIFEST_VERSION, Manifest, STATE_FORMAT_VERSION, TaskSet};
use weir_planner::plan::JobPlan;

/// Why a manifest is not a checkpoint of this plan; `None` when it is.
pub fn unfit(manifest: &Manifest, plan: &JobPlan) -> Option<String> {
    let planned = TaskSet::of(plan);
    if let Err(reason) = readable(manifest) {
        return Some(reason);
    }
    if manifest.version != plan.version {
        return Some(format!("it is of version {}, the job is at version {}", manifest.version, plan.version));
    }
    if manifest.planned.max_parallelism != planned.max_parallelism {
        return Some(format!("it has {} key groups, the job {}", manifest.planned.max_parallelism, planned.max_parallelism));
    }
    let sorted = |set: &TaskSet| -> Vec<Vec<String>> {
        let names = |tasks: &Vec<_>| {
            let mut names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
            names.sort_unstable();
            names
        };
        std::iter::once(names(&set.tasks)).chain(set.regions.iter().map(names)).collect()
    };
    if sorted(&manifest.planned) != sorted(&planned) {
        return Some("it is not of exactly the planned tasks".to_owned());
    }
    let regions = |count: usize| (0..count).filter_map(|region| u32::try_from(region).ok().map(RegionId::new)).collect::<BTreeSet<_>>();
    if manifest.cuts.keys().copied().collect::<BTreeSet<_>>() != regions(planned.regions.len()) {
        return Some(format!("it has the cuts of {} regions, the job has {}", manifest.cuts.len(), planned.regions.len()));
    }
    for (region, cut) in &manifest.cuts {
        let of_region = planned.regions.get(region.get() as usize);
        let operators: BTreeSet<_> = of_region.into_iter().flatten().map(|task| &task.operator).collect();
        // State that was dealt and not written anew since has the names of former tasks (CKP-9).
        let known = |task: &TaskId| if cut.redealt { operators.contains(&task.operator) } else { planned.tasks.contains(task) };
        if let Some(task) = cut.segments.iter().map(|of_task| &of_task.task).find(|task| !known(task)) {
            return Some(format!("the cut of region {region} has state of task {task}, which is not planned"));
        }
        let written = cut.segments.iter().filter(|_| !cut.redealt).map(|of_task| &of_task.task);
        let strange = written.chain(cut.sinks.iter().map(|(task, _)| task));
        // The handle of a file that a former task wrote stays with the first region (CKP-8).
        if let Some(task) = strange.into_iter().find(|task| planned.tasks.contains(task) && of_region.is_none_or(|own| !own.contains(task)))
        {
            return Some(format!("the cut of region {region} has state of task {task}, which is not there"));
        }
    }
    let segments = manifest.cuts.values().flat_map(|cut| &cut.segments).flat_map(|task| &task.segments).map(|segment| &segment.name);
    let named = segments.chain(manifest.results.iter().map(|file| &file.name));
    named.into_iter().find(|name| !manifest.files.contains_key(*name)).map(|name| format!("it does not say where file {name} is"))
}

/// Whether this build reads what a manifest describes (CKP-12).
fn readable(manifest: &Manifest) -> Result<(), String> {
    let known = [
        ("manifest version", manifest.manifest_version, MANIFEST_VERSION),
        ("state format", manifest.state_format, STATE_FORMAT_VERSION),
        ("key encoding", manifest.key_encoding, KEY_ENCODING_VERSION),
    ];
    let other = known.iter().find(|(_, found, known)| found != known);
    other.map_or(Ok(()), |(what, found, known)| {
        Err(format!("{} {} has {what} {found}, and this build reads {known}: use the build that made it", manifest.kind, manifest.id))
    })
}

/// Whether a plan may go on from a manifest: not one of a later version or another format (CKP-7).
pub fn usable(manifest: &Manifest, plan: &JobPlan) -> Result<(), String> {
    readable(manifest)?;
    if manifest.version > plan.version {
        return Err(format!(
            "{} {} is of version {}, and version {} of job '{}' is older: run version {} or a higher one",
            manifest.kind, manifest.id, manifest.version, plan.version, manifest.job, manifest.version
        ));
    }
    Ok(())
}
