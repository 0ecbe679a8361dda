//! Hostile documents, as large as they may be and of 10 MB: one fault or few, soon, in little memory (L1).

use crate::yaml::{BYTES_MAX, parse_bytes};
use weir_planner::spec::Horizon;

/// What the release build is held to, and how much slower an unoptimised one may be.
const SOON_MS: u64 = 100;
const UNOPTIMISED: u64 = 25;
/// What a document may take beside itself.
const MEMORY_MAX: u64 = 64 << 20;

/// A line of `/proc/self/status` in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Milliseconds of the processor that this thread has used: other tests do not count.
fn worked_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in ticks of 10 ms.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

fn repeated(unit: &str, before: &str, after: &str) -> Vec<u8> {
    let count = (BYTES_MAX - before.len() - after.len()) / unit.len();
    format!("{before}{}{after}", unit.repeat(count)).into_bytes()
}

/// Documents as large as they may be, of each nasty kind.
fn hostile() -> Vec<(&'static str, Box<dyn Fn() -> Vec<u8>>)> {
    let job = "id: j\noperators:\n";
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..60 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")));
    }
    let mut bad = repeated("x", "id: ", "");
    *bad.last_mut().unwrap() = 0xff;
    vec![
        ("alias bomb", Box::new(move || bomb.clone().into_bytes())),
        ("many anchors", Box::new(move || repeated("- &a [x]\n", "", ""))),
        ("many aliases", Box::new(move || repeated("*a, ", "a: &a [x, x, x, x]\nb: [", "]"))),
        ("brackets", Box::new(move || repeated("[", "", ""))),
        ("braces", Box::new(move || repeated("{a: ", "", ""))),
        ("dashes", Box::new(move || repeated("- ", "", ""))),
        ("one list", Box::new(move || repeated("x,", "id: j\nnode_ids: [", "]"))),
        (
            "one mapping",
            Box::new(move || {
                (0..)
                    .map(|at| format!("k{at}: v\n"))
                    .scan(0, |size, line| {
                        *size += line.len();
                        (*size < BYTES_MAX).then_some(line)
                    })
                    .collect::<String>()
                    .into_bytes()
            }),
        ),
        ("the same key", Box::new(move || repeated("a: b\n", "", ""))),
        ("one word", Box::new(move || repeated("x", "id: ", ""))),
        ("one quoted text", Box::new(move || repeated("x", "id: \"", "\""))),
        ("one block text", Box::new(move || repeated("  x\n", "id: |\n", ""))),
        ("escapes", Box::new(move || repeated("\\u0041", "id: \"", "\""))),
        ("an open quote", Box::new(move || repeated("x\n ", "id: \"", ""))),
        ("comments", Box::new(move || repeated("# nothing\n", "", ""))),
        ("blank lines", Box::new(move || repeated("\n", "", ""))),
        ("spaces", Box::new(move || repeated(" ", "id:", "x"))),
        ("not a number", Box::new(move || repeated(".nan, ", "id: j\nparallelism: [", "]"))),
        ("unknown fields", Box::new(move || repeated("- {colour: red}\n", "id: j\noperators:\n", ""))),
        ("operators without kinds", Box::new(move || repeated("- {id: a}\n", job, ""))),
        ("operators", Box::new(move || repeated("- {id: a, kind: source}\n", job, ""))),
        ("edges", Box::new(move || repeated("- {id: a, from: a, to: b}\n", "id: j\noperators: []\nedges:\n", ""))),
        ("jobs", Box::new(move || repeated("- {}\n", "jobs:\n", ""))),
        ("jobs of the same id", Box::new(move || repeated("- {id: a, operators: []}\n", "jobs:\n", ""))),
        (
            "rows",
            Box::new(move || {
                repeated(
                    "[1, x], ",
                    "id: j\noperators: []\nsources: [{operator_id: a, input_type: values, config: {rows: [",
                    "[]]}, schema: [{name: k, type: BIGINT}]}]",
                )
            }),
        ),
        ("a long expression", Box::new(move || repeated("1 + ", "id: j\noperators: [{id: m, kind: map, config: {filter: '", "1'}}]"))),
        ("bytes that are not UTF-8", Box::new(move || bad.clone())),
        ("too long", Box::new(move || vec![b'x'; BYTES_MAX + 1])),
        ("10 MB of brackets", Box::new(move || vec![b'['; 10 << 20])),
        ("10 MB of jobs", Box::new(move || b"- {id: a, operators: []}\n".repeat((10 << 20) / 25))),
        ("10 MB that are not UTF-8", Box::new(move || vec![0xfe; 10 << 20])),
    ]
}

/// L1: each is refused within 100 ms and 64 MB, and nothing panics or overflows.
#[test]
fn hostile_documents_are_refused_soon_and_cheaply() {
    let slow = if cfg!(debug_assertions) { SOON_MS * UNOPTIMISED } else { SOON_MS };
    let mut over = Vec::new();
    // What is made once, such as the list of functions, is not the document's.
    assert!(parse_bytes(b"{}").is_err());
    for (what, text) in hostile() {
        let text = text();
        assert!(text.len() > BYTES_MAX - 40 || what == "alias bomb", "{what} has {} bytes", text.len());
        // Sets the peak to what is used now.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = status("VmRSS:");
        let start = worked_ms();
        let faults = parse_bytes(&text).and_then(|mut document| document.plan(Horizon::Local)).err().unwrap_or_default();
        let took = worked_ms() - start;
        let used = status("VmHWM:").saturating_sub(before);
        println!(
            "{what}: {} faults, {took} ms, {} KiB: {}",
            faults.len(),
            used >> 10,
            faults.first().map(ToString::to_string).unwrap_or_default()
        );
        assert!(!faults.is_empty() && faults.len() <= 101, "{what}: {} faults", faults.len());
        assert!(faults.iter().all(|fault| fault.to_string().len() < 2_000), "{what}: a message is too long");
        if took > slow || used > MEMORY_MAX {
            over.push(format!("{what}: {took} ms, {} MiB", used >> 20));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
