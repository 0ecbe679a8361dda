//! What file sinks wrote.

use std::path::Path;

/// Lines of all files in the directory of a file sink, task after task; panics where there is no directory.
pub fn lines(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}
