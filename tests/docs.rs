//! Every SQL and YAML block in the docs works. SQL runs in order, one server a page; a YAML block
//! is a job and must be valid. A block whose language is followed by `no-run` is counted and left out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::{Path, PathBuf};
use support::process::{Weir, temporary, weir, weir_command, write};

/// A fenced block: language, rest of the info string, line of its fence, text.
struct Block {
    language: String,
    marks: String,
    line: usize,
    text: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (open.take(), fence) {
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, Some(info)) => {
                let (language, marks) = info.split_once(char::is_whitespace).unwrap_or((info, ""));
                open = Some(Block { language: language.to_owned(), marks: marks.trim().to_owned(), line: number + 1, text: String::new() });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn pages() -> Vec<PathBuf> {
    fn walk(dir: &Path, pages: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, pages);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    let mut pages = vec![support::tree_root().join("README.md")];
    walk(&support::tree_root().join("docs"), &mut pages);
    pages.sort();
    pages
}

#[test]
fn every_block_in_the_docs_works() {
    let (mut ran, mut left_out, mut faults) = (0, 0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let wanted: Vec<Block> = blocks(&text).into_iter().filter(|b| b.language == "sql" || b.language == "yaml").collect();
        left_out += wanted.iter().filter(|b| b.marks == "no-run").count();
        let wanted: Vec<Block> = wanted.into_iter().filter(|b| b.marks != "no-run").collect();
        if wanted.is_empty() {
            continue;
        }
        let data = temporary();
        // A page that tells its reader to start the demo may use it.
        let mut args = Weir::serving_args("up", &data.path().join("data"));
        args.extend(text.contains("up --demo").then(|| "--demo".to_owned()));
        let mut command = weir_command();
        // What the blocks write to relative paths goes with the directory.
        command.args(&args).current_dir(data.path());
        let server = Weir::start_command(command, args);
        for block in wanted {
            let place = format!("{}:{}", page.strip_prefix(support::tree_root()).unwrap().display(), block.line);
            assert!(block.marks.is_empty(), "{place}: the mark '{}' is not known: only no-run is", block.marks);
            ran += 1;
            if block.language == "sql" {
                if let Err(error) = server.sql().try_rows(&block.text) {
                    faults.push(format!("{place}: {error}"));
                }
            } else {
                let path = write(data.path(), "block.yaml", &block.text);
                let done = weir(&["validate", path.to_str().unwrap()]);
                if done.code != 0 {
                    faults.push(format!("{place}: {}{}", done.out, done.err));
                }
            }
        }
    }
    println!("{ran} blocks ran, {left_out} are marked no-run");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(ran > 0, "no block was found");
}

#[test]
fn blocks_are_found_with_their_marks() {
    let found = blocks("# T\n```sql\nSELECT 1;\n```\ntext\n```yaml no-run\na: 1\n```\n```\nplain\n```\n");
    let shown: Vec<_> = found.iter().map(|b| (b.language.as_str(), b.marks.as_str(), b.line, b.text.as_str())).collect();
    assert_eq!(shown, [("sql", "", 2, "SELECT 1;\n"), ("yaml", "no-run", 6, "a: 1\n"), ("", "", 9, "plain\n")]);
}
