//! What must be so after the storm.

use super::feed::{Expected, Group};
use super::hook::Row;
use super::support::sql::Sql;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows of a window of the generated numbers.
pub const COUNTED: u64 = 1_000;

/// Windows that must be there: those up to number `last` in which a row was answered.
pub fn due(expected: &BTreeMap<Group, Expected>, last: u64) -> BTreeSet<Group> {
    expected.iter().filter(|((_, w), bits)| *w <= last && bits.safe != 0).map(|(group, _)| *group).collect()
}

/// Every window has each row that was answered, once, perhaps some whose request had no known end, and nothing else.
pub fn exact(what: &str, rows: &BTreeMap<Group, Row>, expected: &BTreeMap<Group, Expected>) {
    let mut wrong = Vec::new();
    for (group, row) in rows {
        let Expected { safe, unknown } = expected.get(group).copied().unwrap_or_default();
        let (lost, made_up) = (safe & !row.mask, row.mask & !(safe | unknown));
        if lost != 0 || made_up != 0 || row.n != u64::from(row.mask.count_ones()) {
            wrong.push(format!("window {group:?}: {row:?}, answered {safe:#x}, without an end {unknown:#x}"));
        }
    }
    assert!(wrong.is_empty(), "{what}: {} of {} windows are wrong:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    let sum = |bits: fn(&Expected) -> u64| expected.values().map(|e| bits(e).count_ones()).sum::<u32>();
    let (safe, unknown) = (sum(|e| e.safe), sum(|e| e.unknown));
    println!("{what}: {safe} rows answered, {unknown} of unknown end, {} windows exact", rows.len());
}

/// The windows of a result table, each of which is there once.
pub fn table(sql: &Sql, job: &str) -> Option<BTreeMap<Group, Row>> {
    let found = sql.try_rows(&format!("SELECT k, w, n, mask FROM {job}")).ok()?;
    let mut rows = BTreeMap::new();
    for row in found {
        let cell = |at: usize| row[at].parse::<u64>().unwrap();
        let before = rows.insert((cell(0), cell(1)), Row { n: cell(2), mask: cell(3) });
        assert!(before.is_none(), "window {row:?} is in the table of {job} twice");
    }
    Some(rows)
}

/// The windows of generated numbers are whole, each there once, without a gap.
pub fn counted(rows: &[Vec<String>]) {
    let rows: Vec<Vec<u64>> = rows.iter().map(|row| row.iter().map(|cell| cell.parse().unwrap()).collect()).collect();
    for (at, row) in rows.iter().enumerate() {
        let first = at as u64 * COUNTED;
        // The first number may be 0 or 1.
        let least = first.max(rows[0][0]);
        let most = first + COUNTED - 1;
        assert_eq!(row[..], [least, most, most - least + 1, most - least + 1], "window {at} of {}", rows.len());
    }
    assert!(rows.len() > 3 && rows[0][0] <= 1, "{} windows of numbers", rows.len());
    println!("counted: {} windows of generated numbers, each once and whole", rows.len());
}

/// The files of a sink hold each number once, without a gap or a torn line.
pub fn files(dir: &Path) {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        for line in std::fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("torn line {line:?}: {e}"));
            numbers.push(row["n"].as_u64().unwrap());
        }
    }
    let set: BTreeSet<u64> = numbers.iter().copied().collect();
    let (first, last) = (*set.first().unwrap(), *set.last().unwrap());
    assert_eq!(set.len(), numbers.len(), "{} of {} lines of the file sink are doubled", numbers.len() - set.len(), numbers.len());
    assert!(first <= 1 && last - first + 1 == set.len() as u64, "{first} to {last} in {} lines", set.len());
    println!("copies: {} lines in files, each number once", numbers.len());
}
