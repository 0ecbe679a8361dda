//! Paths with `*`, `?`, `[…]` and `**` to the files that they match, sorted.

use std::io;
use std::path::{Path, PathBuf};

/// Entries looked at before a search gives up: a `**` from the root must not run for ever.
const ENTRIES_MAX: usize = 1_000_000;

/// Files that match `pattern`, sorted by name; a pattern without wildcards is that one file, there
/// or not. `*`, `?` and `[…]` stay within a name, `**` takes any number of directories, names that
/// begin with a dot are matched only by a pattern that does too. Directories are never given.
///
/// Errors: a directory that cannot be read, or too many entries.
pub fn expand(pattern: &str) -> io::Result<Vec<String>> {
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let start = if pattern.starts_with('/') { PathBuf::from("/") } else { PathBuf::new() };
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut search = Search { found: Vec::new(), looked_at: 0 };
    search.descend(&start, &parts)?;
    search.found.sort();
    search.found.dedup();
    Ok(search.found)
}

struct Search {
    found: Vec<String>,
    looked_at: usize,
}

impl Search {
    /// Depth is bounded by that of the directory tree: links to directories are not followed by `**`.
    fn descend(&mut self, directory: &Path, parts: &[&str]) -> io::Result<()> {
        let Some((part, rest)) = parts.split_first() else { return Ok(()) };
        if *part == "**" {
            self.descend(directory, rest)?;
            for (path, name, is_link) in self.entries(directory)? {
                if !is_link && !name.starts_with('.') && path.is_dir() {
                    self.descend(&path, parts)?;
                }
            }
            return Ok(());
        }
        if !part.contains(['*', '?', '[']) {
            return self.step(directory.join(part), rest);
        }
        for (path, name, _) in self.entries(directory)? {
            if (!name.starts_with('.') || part.starts_with('.')) && matches(part, &name) {
                self.step(path, rest)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, path: PathBuf, rest: &[&str]) -> io::Result<()> {
        if !rest.is_empty() {
            return if path.is_dir() { self.descend(&path, rest) } else { Ok(()) };
        }
        if path.is_file() {
            self.found.push(path.to_string_lossy().into_owned());
        }
        Ok(())
    }

    fn entries(&mut self, directory: &Path) -> io::Result<Vec<(PathBuf, String, bool)>> {
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let listing = match std::fs::read_dir(here) {
            Ok(listing) => listing,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut entries = Vec::new();
        for entry in listing {
            let entry = entry?;
            self.looked_at += 1;
            if self.looked_at > ENTRIES_MAX {
                return Err(io::Error::other(format!("the pattern looks at more than {ENTRIES_MAX} entries")));
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_link = entry.file_type()?.is_symlink();
            entries.push((directory.join(entry.file_name()), name, is_link));
        }
        Ok(entries)
    }
}

/// Whether a file name matches a pattern of `*`, `?` and `[…]` (with ranges, and `!` or `^` to negate).
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on when a match fails: after the last star, one more character swallowed.
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                back = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => class(&pattern, p, name.get(n).copied().unwrap_or_default()),
            Some(c) if name.get(n) == Some(c) => Some(p + 1),
            _ => None,
        };
        match (step, back) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((star, taken))) => {
                back = Some((star, taken + 1));
                (p, n) = (star, taken + 1);
            }
            (None, None) => return false,
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

/// The place after a bracket expression that holds `c`; an unclosed bracket is an ordinary character.
fn class(pattern: &[char], open: usize, c: char) -> Option<usize> {
    let negated = matches!(pattern.get(open + 1), Some('!' | '^'));
    let first = open + 1 + usize::from(negated);
    let Some(length) = pattern.get(first + 1..).and_then(|rest| rest.iter().position(|c| *c == ']')) else {
        return (c == '[').then_some(open + 1);
    };
    let close = first + 1 + length;
    let (mut at, mut holds) = (first, false);
    while at < close {
        let low = pattern.get(at).copied().unwrap_or_default();
        if pattern.get(at + 1) == Some(&'-') && at + 2 < close {
            holds |= (low..=pattern.get(at + 2).copied().unwrap_or(low)).contains(&c);
            at += 3;
        } else {
            holds |= low == c;
            at += 1;
        }
    }
    (holds != negated).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        let yes = [
            ("*.json", "a.json"),
            ("*", "x"),
            ("a*b*c", "aXbbYc"),
            ("?", "é"),
            ("part-[0-9].csv", "part-7.csv"),
            ("[!a]b", "cb"),
            ("[]]", "]"),
            ("[", "["),
        ];
        let no = [("*.json", "a.jsonl"), ("?", ""), ("part-[0-9].csv", "part-x.csv"), ("[!a]b", "ab"), ("a*b", "ac")];
        assert!(yes.iter().all(|(p, n)| matches(p, n)));
        assert!(no.iter().all(|(p, n)| !matches(p, n)));
    }

    #[test]
    fn a_pattern_gives_its_files_sorted_and_no_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for path in ["b/2.json", "a/1.json", "a/deep/er/3.json", "a/.hidden.json", "a/4.csv"] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), "x").unwrap();
        }
        std::fs::create_dir(root.join("a/dir.json")).unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let all = expand(&format!("{}/{pattern}", root.display())).unwrap();
            all.iter().map(|path| path.strip_prefix(&format!("{}/", root.display())).unwrap().to_owned()).collect()
        };
        assert_eq!(names("*/*.json"), ["a/1.json", "b/2.json"]);
        assert_eq!(names("**/*.json"), ["a/1.json", "a/deep/er/3.json", "b/2.json"]);
        assert_eq!(names("c/*.json"), Vec::<String>::new());
        assert_eq!(names("a/1.json"), ["a/1.json"]);
    }
}
