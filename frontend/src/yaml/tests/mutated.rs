//! Documents with random faults in them: nothing panics, and what is valid prints and reads back (L1).
//!
//! 100,000 documents in eight tests. A failing one prints seed and text.

use crate::options::node::Node;
use crate::yaml::{parse_bytes, print, tree_of};
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;
use weir_planner::explain;
use weir_planner::spec::Horizon;

/// Documents of each test; eight tests make 100,000.
const EACH: u64 = 12_500;

/// Every sample document of the repository.
static SAMPLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut samples = Vec::new();
    for folder in ["tests/lower", "tests/wrong", "../tests/data/seed"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let mut paths: Vec<_> =
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
        paths.sort();
        samples.extend(paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()));
    }
    let page = std::fs::read_to_string(root.join("../docs/yaml.md")).unwrap();
    samples.extend(page.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split("```").next()?.to_owned())));
    samples
});

/// The same as trees, for changes of structure.
static TREES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let trees: Vec<Value> = SAMPLES.iter().filter_map(|text| tree_of(text.as_bytes()).ok()).map(|node| Node::to_json(&node)).collect();
    trees.into_iter().filter(Value::is_object).collect()
});

/// A small generator, so that a seed says all (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Pieces that mean something to some reader.
const PIECES: [&str; 40] = [
    "\t", "\n", "- ", ": ", "{", "}", "[", "]", "&a ", "*a", "!!str ", "!x ", "|\n", ">-\n", "---\n", "...\n", "? ", "<<: ", "#", "\"",
    "'", "\\", "~", "null", "true", ".nan", "-1", "0", "9223372036854775808", "1e400", "99999999999999d", "count(*)", "CASE WHEN",
    "((((((((", "SELECT 1;", "\u{0}", "\u{feff}", "é", "__meta_timestamp", "***",
];

fn pieces(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '\n', ',', ':', '{', '}', '[', ']']).collect()
}

/// The text after one to four changes to its bytes or tokens.
fn text_changed(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.of(&SAMPLES).clone().into_bytes();
    for _ in 0..=random.below(4) {
        let (at, kind) = (random.below(bytes.len()), random.below(8));
        let span = at..(at + 1 + random.below(30)).min(bytes.len());
        match kind {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(span)),
            2 => {
                let copy = bytes[span].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            3 | 4 => {
                let piece = random.of(&PIECES).as_bytes().to_vec();
                bytes.splice(at..at, piece);
            }
            5 | 6 => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let mut parts = pieces(&text);
                let (a, b) = (random.below(parts.len()), random.below(parts.len()));
                if !parts.is_empty() {
                    parts.swap(a, b);
                }
                bytes = parts.concat().into_bytes();
            }
            _ => {
                let other = random.of(&SAMPLES).as_bytes();
                let from = random.below(other.len());
                let piece = other[from..(from + random.below(60)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The node at a place in depth-first order.
fn at<'a>(value: &'a mut Value, place: &mut usize) -> Option<&'a mut Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| at(item, place)),
        Value::Object(fields) => fields.values_mut().find_map(|item| at(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The document, as JSON, after one to three changes of what it is made of.
fn structure_changed(random: &mut Random) -> Vec<u8> {
    let mut tree = random.of(&TREES).clone();
    for _ in 0..=random.below(3) {
        let place = random.below(count(&tree));
        let mut donor = random.of(&TREES).clone();
        let from = random.below(count(&donor));
        let given = at(&mut donor, &mut from.clone()).map(|node| node.clone()).unwrap_or_default();
        let Some(node) = at(&mut tree, &mut place.clone()) else { continue };
        match random.below(9) {
            0 => *node = Value::Null,
            1 => *node = Value::from(random.next() as i64 >> random.below(64)),
            2 => *node = Value::from(*random.of(&PIECES)),
            3 => *node = Value::Array(vec![node.clone(); random.below(4)]),
            4 => *node = given,
            5 | 6 => match node {
                Value::Array(items) if !items.is_empty() => {
                    let (a, b) = (random.below(items.len()), random.below(items.len()));
                    if random.below(2) == 0 { items.push(items[a].clone()) } else { drop(items.remove(b)) }
                }
                Value::Object(fields) if !fields.is_empty() => {
                    let name = fields.keys().nth(random.below(fields.len())).cloned().unwrap();
                    let value = fields.remove(&name);
                    if random.below(2) == 0 {
                        fields.insert(format!("{name}{}", random.of(&["_ms", "x", "s", ""])), value.unwrap_or_default());
                    }
                }
                Value::String(text) => text.push_str(random.of::<&str>(&PIECES)),
                other => *other = Value::Bool(true),
            },
            7 => *node = Value::Object([(random.of(&PIECES).to_string(), node.clone())].into_iter().collect()),
            _ => {
                *node = Value::from(
                    random
                        .of(&["in", "out", "map", "window", "sink", "source", "kafka", "values", "event_time", "1s", "BIGINT"])
                        .to_string(),
                )
            }
        }
    }
    tree.to_string().into_bytes()
}

fn run(first: u64, change: impl Fn(&mut Random) -> Vec<u8>) {
    // Panics say which document it was, and a stack overflow leaves the last line of the output.
    let (mut valid, mut wrong, mut bound) = (0, 0, 0);
    for seed in first..first + EACH {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let bytes = change(&mut random);
        let told = || format!("seed {seed}\n{}", String::from_utf8_lossy(&bytes));
        let outcome = std::panic::catch_unwind(|| {
            let mut document = parse_bytes(&bytes)?;
            let plans = document.plan(Horizon::Local)?;
            for (spec, plan) in document.jobs.iter().zip(plans.iter()).filter_map(|(spec, plan)| Some((spec, plan.as_ref()?))) {
                assert!(!explain::text(plan).is_empty() && !explain::dot(plan).is_empty());
                let printed = print(spec);
                if !printed.contains("***") {
                    let mut again = parse_bytes(printed.as_bytes()).unwrap_or_else(|faults| panic!("{faults:?}\n{printed}"));
                    assert_eq!(again.bind(), [], "{printed}");
                    assert_eq!(&again.jobs[0], spec, "{printed}");
                }
            }
            Ok::<usize, Vec<weir_planner::error::Fault>>(plans.len())
        });
        match outcome {
            Err(_) => panic!("a document panics: {}", told()),
            Ok(Ok(_)) => valid += 1,
            Ok(Err(faults)) => {
                assert!(!faults.is_empty() && faults.len() <= 101, "{}", told());
                for fault in &faults {
                    assert!(!fault.message.is_empty() && fault.code != "internal" && fault.code != "unbound", "{fault:?}\n{}", told());
                    assert!(fault.message.len() < 2_000, "{}", told());
                }
                bound += usize::from(faults.iter().any(|fault| fault.code == "expression"));
                wrong += 1;
            }
        }
    }
    println!("seeds {first}..: {valid} valid, {wrong} wrong, {bound} of them in expressions");
    assert!(valid > 0 && wrong > 0 && bound > 0, "{valid} valid, {wrong} wrong, {bound} in expressions");
}

macro_rules! parts {
    ($($name:ident, $change:ident, $first:expr;)*) => {
        $(#[test]
        fn $name() {
            run($first * EACH, $change);
        })*
    };
}

parts! {
    text_1, text_changed, 0;
    text_2, text_changed, 1;
    text_3, text_changed, 2;
    text_4, text_changed, 3;
    structure_1, structure_changed, 4;
    structure_2, structure_changed, 5;
    structure_3, structure_changed, 6;
    structure_4, structure_changed, 7;
}
