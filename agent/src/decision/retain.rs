//! Which result files stay: whole files go, oldest first; neighbours that are small become one.

use weir_kernel::io::ResultFile;

/// Files below this many bytes count as small.
pub const SMALL_BYTES: u64 = 1 << 20;
/// More small files than this are merged.
pub const SMALL_FILES_MAX: usize = 64;
/// A merged file stops growing here.
const MERGED_BYTES_MAX: u64 = 32 << 20;

/// How many result rows a job keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At least so many rows stay.
    pub rows: u64,
    /// Files older than this go.
    pub ms: Option<u64>,
}

/// Neighbouring files that are replaced by one with the same rows in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Names, oldest first.
    pub old: Vec<String>,
    /// What takes their place.
    pub new: ResultFile,
}

/// Drops what is over the retention from the front of `files`, and gives the dropped ones.
pub fn apply(files: &mut Vec<ResultFile>, retention: Retention, now_ms: i64) -> Vec<ResultFile> {
    let mut rows: u64 = files.iter().map(|f| f.rows).sum();
    let mut dropped = 0;
    for file in files.iter() {
        let enough = rows.saturating_sub(file.rows) >= retention.rows;
        let age = now_ms.saturating_sub(file.written_at_ms);
        let old = retention.ms.is_some_and(|ms| age > i64::try_from(ms).unwrap_or(i64::MAX));
        if !(enough || old) {
            break;
        }
        rows = rows.saturating_sub(file.rows);
        dropped += 1;
    }
    files.drain(..dropped).collect()
}

/// Puts the new file where its neighbours were. `false` when they are no longer all there, side by
/// side; then nothing is changed.
pub fn replace(files: &mut Vec<ResultFile>, replacement: &Replacement) -> bool {
    let run = replacement.old.len();
    if run == 0 || files.len() < run {
        return false;
    }
    let same = |at: &usize| files[*at..*at + run].iter().map(|f| &f.name).eq(replacement.old.iter());
    match (0..=files.len() - run).find(same) {
        Some(at) => {
            files.splice(at..at + run, [replacement.new.clone()]);
            true
        }
        None => false,
    }
}

/// The newest run of at least two small neighbours that should become one file, when there are too
/// many small ones. The newest, because the oldest go meanwhile, and a run of which one is gone was
/// merged for nothing. Only whole files go, so a merged one holds an eighth of the retention at
/// most. No decision waits for a merge: while one is under way more stay.
pub fn merge_candidates(files: &[ResultFile], retention: Retention) -> Option<&[ResultFile]> {
    let rows_max = retention.rows / 8;
    // Half full is full: else a file would be rewritten for every row that is added to it.
    let small = |f: &ResultFile| f.bytes < SMALL_BYTES && f.rows <= rows_max / 2;
    if files.iter().filter(|f| small(f)).count() <= SMALL_FILES_MAX {
        return None;
    }
    let mut end = files.len();
    while end > 0 {
        let (mut bytes, mut rows) = (0u64, 0u64);
        let take = |f: &&ResultFile| {
            bytes = bytes.saturating_add(f.bytes);
            rows = rows.saturating_add(f.rows);
            small(f) && bytes <= MERGED_BYTES_MAX && rows <= rows_max
        };
        let run = files[..end].iter().rev().take_while(take).count();
        if run >= 2 {
            return Some(&files[end - run..end]);
        }
        end -= run.max(1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Replacement, Retention, SMALL_BYTES, apply, merge_candidates, replace};
    use weir_kernel::io::ResultFile;

    fn file(name: &str, rows: u64, bytes: u64, written_at_ms: i64) -> ResultFile {
        ResultFile { name: name.to_owned(), rows, bytes, written_at_ms }
    }

    fn names(files: &[ResultFile]) -> Vec<&str> {
        files.iter().map(|f| f.name.as_str()).collect()
    }

    /// ST: at least `rows` rows stay, so only whole files above that go.
    #[test]
    fn whole_files_go_oldest_first() {
        let mut files = vec![file("a", 10, 1, 0), file("b", 10, 1, 0), file("c", 5, 1, 0)];
        assert_eq!(names(&apply(&mut files, Retention { rows: 15, ms: None }, 0)), ["a"]);
        assert_eq!(names(&files), ["b", "c"]);
        assert_eq!(apply(&mut files, Retention { rows: 6, ms: None }, 0), []);
        assert_eq!(names(&apply(&mut files, Retention { rows: 0, ms: None }, 0)), ["b", "c"]);
    }

    #[test]
    fn old_files_go_by_age() {
        let mut files = vec![file("a", 1, 1, 100), file("b", 1, 1, 200)];
        assert_eq!(apply(&mut files, Retention { rows: 100, ms: Some(50) }, 150), []);
        assert_eq!(names(&apply(&mut files, Retention { rows: 100, ms: Some(50) }, 151)), ["a"]);
    }

    #[test]
    fn neighbours_are_replaced_only_when_all_are_there() {
        let mut files = vec![file("a", 1, 1, 0), file("b", 1, 1, 0), file("c", 1, 1, 0)];
        let gone = Replacement { old: vec!["z".to_owned(), "a".to_owned()], new: file("m", 2, 2, 0) };
        assert!(!replace(&mut files, &gone));
        let good = Replacement { old: vec!["b".to_owned(), "c".to_owned()], new: file("m", 2, 2, 0) };
        assert!(replace(&mut files, &good));
        assert_eq!(names(&files), ["a", "m"]);
    }

    #[test]
    fn only_too_many_small_files_are_merged() {
        let mut files: Vec<_> = (0..64).map(|i| file(&i.to_string(), 1, 10, 0)).collect();
        let keep = |rows| Retention { rows, ms: None };
        assert_eq!(merge_candidates(&files, keep(8_000)), None);
        files.insert(1, file("big", 1, SMALL_BYTES, 0));
        files.push(file("64", 1, 10, 0));
        // A merged file that could never go alone is not made.
        assert_eq!(merge_candidates(&files, keep(160)).map(<[ResultFile]>::len), Some(20));
        assert_eq!(merge_candidates(&files, keep(15)), None);
        let run = merge_candidates(&files, keep(8_000)).unwrap();
        assert_eq!((run.len(), run[0].name.as_str(), run[63].name.as_str()), (64, "1", "64"));
    }

    /// However long a merge takes beside the epochs, it was not for nothing: small files stay few.
    #[test]
    fn slow_merges_keep_up_with_retention() {
        for (retention_rows, epochs_a_merge) in [(100, 1), (100, 20), (400, 60), (10_000, 60)] {
            let retention = Retention { rows: retention_rows, ms: None };
            let (mut files, mut under_way, mut merges) = (Vec::new(), None, 0);
            for epoch in 0..3_000 {
                files.push(file(&epoch.to_string(), 1, 10, 0));
                if let Some((_, replacement)) = under_way.take_if(|(due, _)| *due == epoch) {
                    assert!(replace(&mut files, &replacement), "epoch {epoch}: merged for nothing");
                    merges += 1;
                }
                apply(&mut files, retention, 0);
                if under_way.is_none()
                    && let Some(run) = merge_candidates(&files, retention)
                {
                    let new = file(&format!("m{epoch}"), run.iter().map(|f| f.rows).sum(), run.iter().map(|f| f.bytes).sum(), 0);
                    let old = run.iter().map(|f| f.name.clone()).collect();
                    under_way = Some((epoch + epochs_a_merge, Replacement { old, new }));
                }
                let small = files.iter().filter(|f| f.rows <= retention_rows / 16).count();
                // One more starts a merge; a run that an eighth of the retention bounds may leave some.
                let most = 65 + 2 * epochs_a_merge as usize;
                assert!(small <= most.min(retention_rows as usize), "{small} small files, {retention:?}, {epochs_a_merge} epochs a merge");
            }
            assert!(merges > 10, "{merges} merges");
        }
    }
}
