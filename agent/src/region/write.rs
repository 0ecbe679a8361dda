//! Blocking work of a region: segments, and decisions with what they make obsolete.

use super::{JobDirs, blocking, names};
use crate::decision::{Decided, Decision};
use crate::error::Error;
use crate::segment::{self, SegmentRef};
use std::collections::BTreeSet;
use std::path::Path;
use weir_kernel::io::FrozenImage;
use weir_planner::error::Class;
use weir_planner::id::TaskId;

/// Puts images into columns and writes them as segments, durable when it returns.
pub(super) fn write_images(dir: &Path, images: Vec<FrozenImage>) -> Result<Vec<(TaskId, SegmentRef)>, Error> {
    let mut written = Vec::with_capacity(images.len());
    for image in images {
        let task = TaskId { operator: image.operator.clone(), subtask: image.subtask };
        written.push((task, segment::write(dir, &image.build()?)?));
    }
    segment::sync_dir(dir)?;
    Ok(written)
}

/// Segments that a decision names no more.
pub(super) struct Obsolete {
    pub(super) files: Vec<String>,
    /// Other regions may still name them: they were dealt to several (CKP-9).
    pub(super) shared: bool,
}

/// Decides, then deletes what the decision made obsolete. The next round begins after that, so a
/// file of equal content is never written and deleted at once.
pub(super) async fn store(
    decision: Decision,
    mut obsolete: Obsolete,
    dirs: JobDirs,
    decisions: crate::decision::Decisions,
) -> Result<Decided, Error> {
    // Sinks have synced the directory behind their own files.
    if decision.replacement.is_some() {
        let results = dirs.results.clone();
        blocking(move || segment::sync_dir(&results)).await?;
    }
    let job = decision.job.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    decisions.decide_later(decision, move |answer| {
        // The coordinator is gone: what was decided is found at the next start.
        let _ = tell.send(answer);
    });
    let decided = told.await.unwrap_or_else(|_| Err(Error::new(Class::Bug, "the committer gave no answer")))?;
    if !(obsolete.files.is_empty() && decided.dropped.is_empty()) {
        let dropped = decided.dropped.clone();
        blocking(move || {
            if obsolete.shared {
                let regions = decisions.regions(&job)?;
                let named: BTreeSet<String> = regions.values().flat_map(names).collect();
                obsolete.files.retain(|name| !named.contains(name));
            }
            let files = obsolete.files.iter().map(|n| dirs.state.join(n)).chain(dropped.iter().map(|n| dirs.results.join(n)));
            for file in files {
                if let Err(error) = std::fs::remove_file(&file) {
                    tracing::warn!(file = %file.display(), %error, "obsolete file could not be deleted; the next start of the job tries again");
                }
            }
            Ok(())
        })
        .await?;
    }
    Ok(decided)
}
